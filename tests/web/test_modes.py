"""The page without a server of ours: a folder, one file from disk, and both with peakmem's own Python inside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import Unreadable
from peakmem.web.answer import estimate_json
from peakmem.web.page import build
from tests.web.conftest import PYODIDE, START, choose, until
from tests.web.serving import folder

pytestmark = pytest.mark.slow


def headline(request: dict[str, Any]) -> str:
    peak = json.loads(estimate_json(json.dumps(request)))["ledger"]["peak"]["bytes"]
    return f"{peak / 2**30:,.2f} GiB"


def explore(page: Any) -> None:
    """A preset that lies in the page is answered; what does not is told."""
    choose(page, "gpt2-xl")
    settings = {"gpu": "H100 SXM 80GB"}
    until(page, f"document.querySelector('.peak').textContent === "
                           f"{json.dumps(headline({'model': 'gpt2-xl', 'settings': settings}))}")
    page.fill("form.form [name=sequence]", "1234")
    until(page, "document.querySelector('.error').textContent.includes('peakmem serve')")


def compute(page: Any) -> None:
    """Any configuration is answered, by Python in the browser."""
    page.wait_for_selector("html[data-engine=live]", state="attached", timeout=60_000)
    choose(page, "gpt2-xl")
    page.fill("form.form [name=sequence]", "777")
    want = headline({"model": "gpt2-xl", "settings": {"gpu": "H100 SXM 80GB", "sequence": 777}})
    until(page, f"document.querySelector('.peak').textContent === {json.dumps(want)}", timeout=20_000)


def test_a_file_from_disk(opened: Any, built: Path) -> None:
    explore(opened((built / "page.html").as_uri() + START, offline=True))


def test_a_folder(opened: Any, built: Path) -> None:
    with folder(built / "site") as address:
        explore(opened(address + START))


@pytest.mark.skipif(not PYODIDE.exists(), reason="Pyodide is not there: npm ci")
def test_a_live_file_from_disk(opened: Any, built: Path) -> None:
    compute(opened((built / "live.html").as_uri() + START, offline=True))


@pytest.mark.skipif(not PYODIDE.exists(), reason="Pyodide is not there: npm ci")
def test_a_live_folder(opened: Any, built: Path) -> None:
    with folder(built / "live") as address:
        compute(opened(address + START))


def test_a_folder_without_pyodide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="has no pyodide.mjs"):
        build(tmp_path / "x.html", tmp_path)
    assert not (tmp_path / "x.html").exists()
