"""How fast the page is in Chromium: first paint, and from an input event to the new chart.

python benchmarks/page.py   (needs playwright and /usr/bin/chromium; PEAKMEM_CHROMIUM names another)
"""

from __future__ import annotations

import gzip
import os
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent / "src")]
from playwright.sync_api import sync_playwright  # noqa: E402

from peakmem.web.page import asset, scripts  # noqa: E402
from tests.web.serving import served  # noqa: E402

CHANGE = """async ([name, values, event]) => {
  const box = document.querySelector(`form.form [name=${name}]`), picture = document.querySelector(".picture");
  const times = [];
  for (const value of values) {
    box.value = value;
    const began = performance.now();
    const drawn = new Promise((resolve) => {
      const seen = new MutationObserver(() => { seen.disconnect(); resolve(performance.now() - began); });
      seen.observe(picture, { childList: true });
    });
    box.dispatchEvent(new Event(event, { bubbles: true }));
    times.push(await drawn);
    await new Promise((resolve) => setTimeout(resolve, 40));
  }
  return times;
}"""


def told(name: str, times: list[float], limit: str) -> None:
    print(f"{name:<44} median {statistics.median(times):6.1f} ms, worst {max(times):6.1f} ms   (goal {limit})")


def main() -> None:
    """Print every figure beside its goal."""
    size = len(gzip.compress("".join(asset(name) for name in (*scripts(), "worker.js")).encode(), 9))
    print(f"{'our JavaScript, gzipped':<44} {size:,} bytes   (goal 40,960)")
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("PEAKMEM_CHROMIUM", "/usr/bin/chromium"),
                                             args=["--no-sandbox"])
        painted = []
        for _ in range(5):
            page: Any = browser.new_page()
            page.goto(address)
            page.wait_for_selector(".chart rect.seg")
            painted.append(page.evaluate("performance.now()"))
            page.close()
        told("from navigation to the drawn chart", painted, "600 ms")
        page = browser.new_page()
        page.goto(address + "#v=1&model=gpt2&gpu=H100+SXM+80GB")
        page.wait_for_selector(".chart rect.seg")
        page.wait_for_timeout(3000)
        lengths = [str(n) for n in range(500, 530)]
        told("a number changes", page.evaluate(CHANGE, ["sequence", lengths, "input"]), "16 ms")
        told("the structure changes", page.evaluate(CHANGE, ["checkpoint", ["full", "selective"], "change"]), "100 ms")
        browser.close()


if __name__ == "__main__":
    main()
