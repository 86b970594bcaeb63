"""A second engine: what Chromium's tests try in depth works in Firefox, too. Skipped where it is not installed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peakmem.web.answer import estimate_json
from tests.web.conftest import PYODIDE, START
from tests.web.firefox import Firefox, firefox

pytestmark = pytest.mark.skipif(not (shutil.which("firefox-esr") or shutil.which("firefox")),
                                reason="Firefox is not installed (as root on Debian: apt-get install firefox-esr)")
TYPE = """const box = document.querySelector(arguments[0]); box.value = arguments[1];
box.dispatchEvent(new Event(arguments[2], { bubbles: true }));"""
KEY = """const box = document.querySelector('pm-grid input'); box.value = '4';
box.dispatchEvent(new Event('input', { bubbles: true })); return box.getAttribute('aria-valuetext');"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    with firefox(tmp_path_factory.mktemp("firefox")) as found:
        yield found


def headline(**request: Any) -> str:
    peak = json.loads(estimate_json(json.dumps(request)))["ledger"]["peak"]["bytes"]
    return f"{peak / 2**30:,.2f} GiB"


def calculates(page: Firefox) -> None:
    page.until("document.querySelector('.chart rect.seg')")
    page.run(TYPE, "form.form [name=model]", "gpt2", "change")
    page.run(TYPE, "form.form [name=sequence]", "777", "input")
    want = headline(model="gpt2", settings={"gpu": "H100 SXM 80GB", "sequence": 777})
    page.until(f"document.querySelector('.peak').textContent === {json.dumps(want)}")
    page.until("!('busy' in document.documentElement.dataset)")


def test_the_served_page(browser: Firefox, address: str) -> None:
    browser.open(address + START)
    calculates(browser)
    browser.run(TYPE, "pm-cells [name=optimizer]", "sgd", "change")
    assert browser.run("return document.querySelectorAll('pm-cells .bytes span').length") == 8
    assert browser.run(KEY).startswith("B3: backward, layer 3")
    browser.until("document.querySelector('.rule.activations').textContent.includes('777')")
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.complaints() == []


def test_a_file_from_disk(browser: Firefox, built: Path) -> None:
    browser.open((built / "page.html").as_uri() + START)
    browser.until("document.querySelector('.chart rect.seg')")
    browser.run(TYPE, "form.form [name=model]", "gpt2-xl", "change")
    want = headline(model="gpt2-xl", settings={"gpu": "H100 SXM 80GB"})
    browser.until(f"document.querySelector('.peak').textContent === {json.dumps(want)}")
    assert browser.complaints() == []


@pytest.mark.skipif(not PYODIDE.exists(), reason="Pyodide is not there: npm ci")
def test_a_live_file_from_disk(browser: Firefox, built: Path) -> None:
    browser.open((built / "live.html").as_uri() + START)
    browser.until("document.documentElement.dataset.engine === 'live'", 90)
    calculates(browser)
    assert browser.complaints() == []
