"""What is saved is what is looked at; what is said stays; and what no module draws has no gaps."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from peakmem.web import page as pages
from peakmem.web.answer import estimate_json
from tests.web.conftest import PYODIDE, START, until
from tests.web.serving import folder


def saved(page: Any, name: str, path: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).click()
    download.value.save_as(path / download.value.suggested_filename)
    return path / str(download.value.suggested_filename)


def test_over_time_is_saved_as_it_is_zoomed(opened: Any, address: str, tmp_path: Path) -> None:
    page = opened(address + "#v=1&model=gpt2&gpu=24GiB")
    page.get_by_role("button", name="Over time", exact=True).click()
    page.wait_for_selector(".time path.seg")
    page.get_by_role("button", name="Peak: zoom to it").click()
    shapes = page.eval_on_selector_all(".time path.seg", "all => all.map((one) => one.getAttribute('d'))")
    path = saved(page, "SVG", tmp_path)
    assert path.name == "peakmem-over-time.svg"
    assert [shape in path.read_text() for shape in shapes] == [True] * len(shapes) and "gpt2: " in path.read_text()
    assert saved(page, "PNG", tmp_path).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    rows = list(csv.DictReader(saved(page, "CSV", tmp_path).open()))
    request = {"model": "gpt2", "settings": {"gpu": "24GiB"}, "timeline": True, "lines": 0}
    answer = json.loads(estimate_json(json.dumps(request)))
    assert len(rows) == answer["timeline"]["events"]
    assert max(int(row["bytes"]) for row in rows) == answer["ledger"]["peak"]["bytes"]
    page.get_by_role("button", name="Numbers", exact=True).click()
    assert saved(page, "SVG", tmp_path).name == "peakmem.svg"


@pytest.mark.parametrize("more", ["", "&model=gpt2&shard=ddp&gpus=8"])
def test_thin_segments_have_letters_on_a_phone(opened: Any, address: str, more: str) -> None:
    """Whatever can be seen of a segment has its letter in it or beside it, and none lies on another bar."""
    page = opened(address + START + more, viewport={"width": 320, "height": 700})
    until(page, "!('busy' in document.documentElement.dataset)")
    found = page.evaluate("""[...document.querySelectorAll(".picture .seg")].filter((one) => one.getBBox().height >= 1)
        .map((one) => one.dataset.kind).length""")
    letters = page.locator(".picture .on, .picture .aside").count()
    assert letters == found > 9
    assert page.evaluate("""(() => {
        const boxes = (what) => [...document.querySelectorAll(what)].map((x) => x.getBBox());
        const bars = boxes(".picture .seg");
        return boxes(".picture .aside").every((at) => {
            return bars.every((bar) => at.x + at.width <= bar.x + 1 || at.x >= bar.x + bar.width - 1); }); })()""")


def test_thin_bands_have_letters_over_time(opened: Any, address: str) -> None:
    page = opened(address + START, viewport={"width": 320, "height": 700})
    page.get_by_role("button", name="Over time", exact=True).click()
    page.wait_for_selector(".time path.seg")
    kinds = page.eval_on_selector_all(".time path.seg", "all => all.map((one) => one.classList[2])")
    marked = page.eval_on_selector_all(".time :is(.on, .aside)", "all => all.map((one) => one.classList[1])")
    assert set(kinds) == set(marked)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the answers for every preset, which take half a minute."""
    monkeypatch.setattr(pages, "further_answers", lambda: b"")


def test_a_folder_from_disk_has_no_gaps(browser: Any, few: None, tmp_path: Path) -> None:
    """Modules do not load there; so nothing fills the heights that are kept free for them."""
    pages.build(tmp_path / "site")
    page = browser.new_page()
    page.goto((tmp_path / "site/index.html").as_uri())
    page.wait_for_selector("html.still", state="attached")
    for figure in page.locator(".figure").all():
        content = figure.evaluate(
            "x => x.lastElementChild.getBoundingClientRect().bottom - x.getBoundingClientRect().top")
        assert figure.bounding_box()["height"] - content < 24
    page.close()


@pytest.mark.skipif(not PYODIDE.exists(), reason="Pyodide is not there: npm ci")
def test_python_in_the_browser(opened: Any, few: None, tmp_path: Path) -> None:
    """What a link has wrong stays said while Python loads and after; and a slider does not wait for many estimates."""
    pages.build(tmp_path / "live", PYODIDE)
    with folder(tmp_path / "live") as address:
        page = opened(address + START + "&sequnce=1")
        assert "unknown here: sequnce" in page.inner_text("#status")
        page.wait_for_selector("html[data-engine=two]", state="attached", timeout=60_000)
        assert "unknown here: sequnce" in page.inner_text("#status") and "Loading" not in page.inner_text("#status")
        first = page.evaluate("""async () => {
            const { ask } = await import("./ask.js"), done = [];
            const asked = (what, n) => ask({ ask: what, model: "gpt2", settings: { gpu: "24GiB", sequence: n } })
                .then(() => done.push(what));
            await Promise.all([asked("levers", 512), asked("fit", 512), ...[1, 2, 3].map((n) => asked("chart", n))]);
            return done; }""")
        assert first[:3] == ["chart"] * 3
