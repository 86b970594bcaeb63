"""What a reader of pictures and tables needs: a key of what is drawn, headings at any width, no idle tab stops."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem.web.answer import estimate_json
from peakmem.web.figures import three_layers
from tests.web.conftest import START, until

KEYS = {"notch": "line.end", "dotted": ".beyond", "dashed": "line.limit", "outline": ".behind", "crest": ".top"}


def key(page: Any) -> set[str]:
    return set(page.eval_on_selector_all(".marks .mark", "all => all.map((one) => one.classList[1])"))


def drawn(page: Any, stage: str) -> set[str]:
    return {name for name, part in KEYS.items() if page.locator(f"{stage} {part}").count()}


@pytest.mark.parametrize("gpu", ["H100 SXM 80GB", "B200 SXM", ""])
def test_the_key_is_of_what_is_drawn(opened: Any, address: str, gpu: str) -> None:
    page = opened(f"{address}#v=1&model=gpt2&batch=4&gpu={gpu}")
    until(page, "document.querySelector('.beyond') || !document.querySelector('[name=gpu]').value")
    assert key(page) == drawn(page, ".picture") and "outline" not in key(page)
    page.get_by_role("button", name="Pin this").click()
    assert key(page) == drawn(page, ".picture") and "outline" in key(page)
    page.get_by_role("button", name="Over time", exact=True).click()
    page.wait_for_selector(".timeline .top")
    assert key(page) == drawn(page, ".timeline") and "notch" not in key(page) and "crest" in key(page)
    page.get_by_role("button", name="Numbers", exact=True).click()
    assert key(page) == set() and not page.locator(".legend").is_visible()


def test_one_event_is_wide_enough_to_be_seen(page: Any) -> None:
    """The highest moment of a step of thousands of events: two pixels at least, and a mark that says how much."""
    page.get_by_role("button", name="Over time", exact=True).click()
    page.wait_for_selector(".timeline .top")
    path = page.get_attribute(".timeline path.temporary", "d")
    points = [tuple(map(float, part.split())) for part in path.removesuffix("Z").replace("M", "L").split("L")[1:]]
    widths = [b[0] - a[0] for a, b in zip(points, points[1:]) if b[0] > a[0] and a[1] == b[1]]
    assert min(widths) >= 1.9
    assert page.text_content(".timeline text.best") == "120.0 GiB"
    for _ in range(6):
        page.get_by_role("button", name="Zoom in").click()
    assert page.locator(".timeline .top").count() == page.locator(".marks .crest").count()


@pytest.mark.parametrize("width", [1280, 320])
def test_a_tab_stop_does_something(opened: Any, address: str, width: int) -> None:
    page = opened(address + START, viewport={"width": width, "height": 800})
    page.wait_for_selector(".levers li")
    page.get_by_role("button", name="Pin this").click()
    page.wait_for_timeout(200)
    idle = page.eval_on_selector_all("main [tabindex='0']", """all => all.filter((one) => one.clientWidth &&
        one.scrollWidth <= one.clientWidth + 1 && one.scrollHeight <= one.clientHeight + 1)
        .map((one) => one.className)""")
    assert [name for name in idle if name != "time"] == []
    hidden = page.eval_on_selector_all(".scroll, pre, p.formula", """all => all.filter((one) => one.clientWidth &&
        (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1) && one.tabIndex !== 0)
        .map((one) => one.className)""")
    assert hidden == []


def test_cells_keep_their_headings_on_a_phone(opened: Any, address: str) -> None:
    page = opened(address + START, viewport={"width": 320, "height": 700})
    page.get_by_role("button", name="Pin this").click()
    page.get_by_role("button", name="Numbers", exact=True).click()
    tables = page.evaluate("""[...document.querySelectorAll("main table")].filter((one) => one.clientWidth)
        .map((table) => {
        const heads = [...table.tHead.rows[0].cells].map((one) => one.textContent);
        if (table.tHead.clientHeight || table.tHead.offsetParent) return "a head";
        return [...table.tBodies[0].rows].every((row) => [...row.cells].every((cell, i) =>
            getComputedStyle(cell, "::before").content === JSON.stringify(heads[i]))) ? "in each cell" : "none"; })""")
    assert "in each cell" in tables and "a head" in tables and "none" not in tables
    page.evaluate("document.querySelector('div.numbers').scrollLeft = 200")
    first = page.locator("div.numbers tbody th").first.bounding_box()
    assert first["x"] >= page.locator("div.numbers").bounding_box()["x"] - 1  # the name of the row stays in sight


def test_the_guess_is_answered_from_the_ledger(page: Any) -> None:
    found = three_layers()
    best = found["peak"]["moments"]
    page.locator(".guesses button").first.click()
    words = page.inner_text("pm-grid .answer")
    first = next(one for one in found["moments"] if one["moment"] == best[0])
    assert best == ["B3", "B2"] and "backward, layer 3, and again in backward, layer 2" in words
    assert all(one["name"] in words for one in first["made"]) and "before a3 can go" in words
    assert "first layers" not in words


def test_what_the_moments_say_is_in_the_ledger() -> None:
    moments = {one["moment"]: one for one in three_layers()["moments"]}
    made = {name: [one["name"] for one in row["made"]] for name, row in moments.items()}
    freed = {name: [one["name"] for one in row["freed"]] for name, row in moments.items()}
    assert freed["F1"] == ["z1"] and "a1" in made["F1"] and "a1 stays" in moments["F1"]["words"]
    assert freed["F2"] == ["z2"] and freed["F3"] == ["z3"] and "next to nothing" in moments["F3"]["words"]
    assert {"∇W3", "∂a2"} <= set(made["B3"]) and "a3" in freed["B3"]
    assert moments["B3"]["peak"] == moments["B2"]["peak"] > moments["B1"]["peak"]
    assert not [name for name in made["B1"] if name.startswith("∂")] and "needs no error" in moments["B1"]["words"]
    assert {"a1", "a2", "a3"} <= {name for row in ("B3", "B2", "B1") for name in freed[row]}
    assert made["step"] == [] and set(freed["clear"]) == {"∇W1", "∇W2", "∇W3"}
    assert moments["clear"]["end"] == moments["start"]["end"]


def test_reasons_are_sentences(page: Any) -> None:
    found = json.loads(estimate_json('{"model":"llama-3.1-8b","settings":{"gpu":"H100 SXM 80GB"},"lines":0}'))
    shown = page.locator(".lines .why").all_inner_texts()
    assert shown == [one["why"] for one in found["largest"]] and all(text.endswith(".") for text in shown)
    rules = " ".join(page.locator(".rule").all_inner_texts())
    assert all(text in rules for text in found["reasons"].values()) and "nothing keeps it longer" not in rules
