"""Pictures of every section of the page, in both themes and widths: python scripts/screenshots.py OUT [section].

Without arguments: the one in the README.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent / "src")]
from tests.web.serving import served  # noqa: E402

SECTIONS = ("bytes", "kinds", "why", "step", "size", "ledger", "levers", "oom", "check",
            "scripts", "references")
WIDTHS = {"wide": 1280, "narrow": 320}
CHROMIUM = "/usr/bin/chromium"
README = Path(__file__).resolve().parent.parent / "docs" / "images" / "page.png"


def readme() -> None:
    """The calculator, as it is when the page has come to rest."""
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1160, "height": 780})
        page.goto(address + "#v=1&model=llama-3.1-8b&checkpoint=full&optimizer=adamw-8bit&batch=4&gpu=H100+SXM+80GB")
        page.wait_for_selector("html.ready")
        page.locator("pm-calculator").evaluate("one => one.scrollIntoView()")
        page.get_by_text("Largest batch that fits").wait_for()
        page.wait_for_timeout(1000)
        page.screenshot(path=README)
        browser.close()


def main(out: Path, only: list[str]) -> None:
    """Write OUT/section-theme-width.png."""
    out.mkdir(parents=True, exist_ok=True)
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            for name, width in WIDTHS.items():
                page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
                page.on("console", lambda message: print(message.type, message.text))
                page.on("pageerror", lambda error: print("error", error))
                page.goto(address)
                page.wait_for_selector("html.ready")
                page.wait_for_selector(".levers li")
                page.evaluate("for (const x of document.querySelectorAll('header, .sticky, .stage'))"
                              " x.style.position = 'static'")
                for section in only or SECTIONS:
                    page.locator(f"#{section}").screenshot(path=out / f"{section}-{theme}-{name}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(Path(sys.argv[1]), sys.argv[2:])
    else:
        readme()
