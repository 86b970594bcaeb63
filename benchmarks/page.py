"""How fast the page is in Chromium: first paint, and from an input event to the new chart, with each part's share.

    python benchmarks/page.py   (needs playwright and /usr/bin/chromium; PEAKMEM_CHROMIUM names another)

Served, and, where npm has brought Pyodide (`npm ci`), with peakmem's own Python in the browser. A change counts until
the new chart is written and laid out, and its paint is added from Chromium's trace: what is left out is the wait for
the next frame, which a screen of 60 Hz makes 0 to 16 ms long whatever a page does.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
from playwright.sync_api import sync_playwright  # noqa: E402

from peakmem.web.answer import estimate_json  # noqa: E402
from peakmem.web.page import build  # noqa: E402
from peakmem.web.scripts import scripts, shipped  # noqa: E402
from tests.web.serving import folder, served  # noqa: E402

PYODIDE = ROOT / "node_modules" / "pyodide"
PAINTS = ("PrePaint", "Paint", "Layerize")  # of a frame, in a trace, after style and layout
CHANGE = """async ([name, values, event]) => {
  const box = document.querySelector(`form.form [name=${name}]`), picture = document.querySelector(".picture");
  const times = [];
  for (const value of values) {
    box.value = value;
    const began = performance.now();
    const drawn = new Promise((resolve) => {
      const seen = new MutationObserver(() => {
        seen.disconnect();
        const written = performance.now() - began;
        picture.getBoundingClientRect(); // style and layout are done here, not later
        resolve([written, performance.now() - began]);
      });
      seen.observe(picture, { childList: true });
    });
    box.dispatchEvent(new Event(event, { bubbles: true }));
    times.push(await drawn);
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  return times;
}"""
ROUND_TRIP = """async () => {
  const times = [];
  for (let i = 0; i < 30; i++) {
    const began = performance.now();
    await (await fetch("health")).text();
    times.push(performance.now() - began);
  }
  return times;
}"""
LOOP = """() => {
  const began = performance.now();
  let sum = 0;
  for (let i = 0; i < 1e7; i++) sum += i % 7;
  return performance.now() - began;
}"""
LENGTHS = [str(n) for n in range(500, 530)]


def told(name: str, times: list[float], limit: str = "") -> None:
    print(f"{name:<52} best {min(times):6.1f} ms, median {statistics.median(times):6.1f}, worst {max(times):6.1f}"
          + (f"   (goal {limit})" if limit else ""))


def engine() -> list[float]:
    """The same questions asked in this process."""
    times = []
    for length in range(540, 570):
        question = json.dumps({"ask": "chart", "model": "gpt2",
                               "settings": {"gpu": "H100 SXM 80GB", "sequence": length}})
        began = time.perf_counter()
        estimate_json(question)
        times.append(1e3 * (time.perf_counter() - began))
    return times[1:]


def yardstick() -> float:
    began = time.perf_counter()
    sum(i % 7 for i in range(1_000_000))
    return 1e3 * (time.perf_counter() - began)


def changes(browser: Any, page: Any, where: str) -> None:
    """A number, then the structure."""
    browser.start_tracing(page=page, categories=["devtools.timeline"])
    times = page.evaluate(CHANGE, ["sequence", LENGTHS, "input"])
    trace = json.loads(browser.stop_tracing())["traceEvents"]
    frames = sum(event["name"] == "PrePaint" for event in trace)
    paint = sum(event.get("dur", 0) for event in trace if event["name"] in PAINTS) / 1e3 / max(frames, 1)
    told(f"{where}: a number changes: chart written", [written for written, _ in times])
    told(f"{where}: of it, style and layout", [drawn - written for written, drawn in times])
    print(f"{where + ': of it, paint, a frame':<52} mean {paint:6.1f} ms")
    told(f"{where}: a number changes, in all", [drawn + paint for _, drawn in times], "16 ms")
    times = page.evaluate(CHANGE, ["checkpoint", ["full", "selective"], "change"])
    told(f"{where}: the structure changes, in all", [drawn + paint for _, drawn in times], "100 ms")


def main() -> None:
    """Print every figure beside its goal."""
    size = len(gzip.compress("".join(shipped(name) for name in (*scripts(), "worker.js")).encode(), 9))
    print(f"{'our JavaScript, gzipped':<52} {size:,} bytes   (goal 40,000)")
    print(f"{'yardstick: a million steps of a loop in Python':<52} {yardstick():.0f} ms here (60 on a quiet machine)")
    start = "#v=1&model=gpt2&gpu=H100+SXM+80GB"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("PEAKMEM_CHROMIUM", "/usr/bin/chromium"),
                                             args=["--no-sandbox"])
        with served() as address:
            painted = []
            for _ in range(5):
                page: Any = browser.new_page()
                page.goto(address)
                page.wait_for_selector(".chart rect.seg")
                painted.append(page.evaluate("performance.getEntriesByName('answer')[0].startTime + "
                                             "performance.getEntriesByName('answer')[0].duration"))
                page.close()
            told("served: from navigation to the drawn chart", painted, "600 ms")
            page = browser.new_page()
            page.goto(address + start)
            page.wait_for_selector(".chart rect.seg")
            page.wait_for_timeout(3000)
            print(f"{'yardstick: ten million steps of a loop in the page':<52} {page.evaluate(LOOP):.0f} ms here")
            told("served: share of the engine", engine())
            told("served: share of HTTP, a round trip", page.evaluate(ROUND_TRIP))
            changes(browser, page, "served")
        if PYODIDE.exists():
            with TemporaryDirectory() as place:
                build(Path(place) / "live", PYODIDE)
                with folder(Path(place) / "live") as address:
                    page = browser.new_page()
                    page.goto(address + start)
                    page.wait_for_selector("html[data-engine=live]", state="attached", timeout=120_000)
                    page.wait_for_timeout(4000)
                    changes(browser, page, "Pyodide")
        browser.close()


if __name__ == "__main__":
    main()
