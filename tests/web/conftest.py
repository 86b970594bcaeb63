"""A real browser: Debian's Chromium through playwright. Where either is missing, these tests are skipped and say so."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.serving import served

CHROMIUM = os.environ.get("PEAKMEM_CHROMIUM", "/usr/bin/chromium")
PYODIDE = Path(__file__).parent.parent.parent / "node_modules" / "pyodide"
START = "#v=1&model=llama-3.1-8b&gpu=H100+SXM+80GB"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="the page's tests need playwright")
    if not os.path.exists(CHROMIUM):
        pytest.skip(f"the page's tests need Chromium at {CHROMIUM}")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with served() as found:
        yield found


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page as files, made once: site/, page.html; with Pyodide where npm has brought it: live/, live.html."""
    from peakmem.web.page import build

    out = tmp_path_factory.mktemp("built")
    build(out / "site")
    build(out / "page.html")
    if PYODIDE.exists():
        build(out / "live", PYODIDE)
        build(out / "live.html", PYODIDE)
    return out


def until(page: Any, expression: str, timeout: int = 8000) -> None:
    """Wait until an expression is true. playwright's own way needs eval(), which the server's policy forbids."""
    end = time.monotonic() + timeout / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(30)


def choose(page: Any, model: str) -> None:
    """Take a model by its name, as a reader who types."""
    page.fill("form.form [name=model]", model)
    page.press("form.form [name=model]", "Enter")


class Opened:
    """Pages that were opened, and everything that must not have happened in them."""

    def __init__(self, browser: Any) -> None:
        self.browser, self.wrong, self.contexts = browser, [], []

    def __call__(self, url: str, **options: Any) -> Any:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        context = self.browser.new_context(**options)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(8000)
        page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        home = url.split("#")[0].rsplit("/", 1)[0]
        page.on("request", lambda r: None if r.url.startswith((home, "data:", "blob:"))
                else self.wrong.append(f"asked for {r.url}"))
        page.goto(url)
        if options.get("java_script_enabled", True):
            page.wait_for_selector("html.ready")
            page.wait_for_selector(".chart rect.seg")
        return page


@pytest.fixture
def opened(browser: Any) -> Iterator[Opened]:
    """Opens pages. No console error, no uncaught error, no request to another place."""
    found = Opened(browser)
    yield found
    for context in found.contexts:
        context.close()
    assert found.wrong == []


@pytest.fixture
def page(opened: Opened, address: str) -> Any:
    """The served page in its first state."""
    return opened(address + START)
