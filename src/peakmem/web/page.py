"""The page as files: for the server, as a folder, or as one HTML file that opens from disk.

`assets/` is what ships: nothing is compiled, and of scripts only comments are left out (scripts.py). Into index.html
go the answers of the first state, so that the page is complete before any engine is, and a plain form of every figure
for readers without scripts.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import cast

from peakmem.errors import Impossible, Unreadable, printable
from peakmem.files import writable
from peakmem.version import __version__
from peakmem.web.answer import estimate_json
from peakmem.web.colours_css import css
from peakmem.web.doors import COMMANDS, STATES, explained, state
from peakmem.web.scripts import asset, scripts, shipped
from peakmem.web.still import stills

STYLES = ("base.css", "kinds.css", "figures.css", "calculator.css", "story.css")
FIRST: dict[str, object] = {"model": "llama-3.1-8b", "settings": {"gpu": "H100 SXM 80GB"}}
FIGURES: tuple[dict[str, object], ...] = ({"ask": "tables"}, {"ask": "cells"}, {"ask": "growth"},
                                          {"ask": "three-layers"})
HOW = {
    "served": "It is answered by the server that it came from.",
    "baked": "This copy holds answers made beforehand; for any configuration run <code>peakmem serve</code>.",
    "live": "It runs in your browser; nothing is sent anywhere.",
}
STILL = ('addEventListener("error",()=>{const page=document.documentElement.classList;'
         'page.contains("ready")||page.add("still")},true)')
"""Where modules do not load (a folder opened from disk, an old browser), nothing will need the heights kept free."""


def key(request: object) -> str:
    """The one name of a question: its keys in order, as ask.js writes it."""
    return json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def answered(request: object) -> str:
    return estimate_json(key(request))


def sheet() -> str:
    """All styles as one: a page waits for each file of them."""
    return "\n".join(css() if name == "kinds.css" else asset(name) for name in STYLES)


@cache
def first_answers() -> dict[str, str]:
    """What is painted before any engine is there."""
    found = {key(request): answered(request) for request in (*FIGURES, quick(FIRST), *resting(FIRST))}
    for request, answer in found.items():
        if answer.startswith('{"error"'):
            raise RuntimeError(f"the page's own request {request} is refused: {answer}")
    return found


def quick(request: dict[str, object]) -> dict[str, object]:
    """The question as the page asks it at every change."""
    return {**request, "lines": 0, "allocator": False}


def resting(request: dict[str, object]) -> Iterator[dict[str, object]]:
    """What the page asks about one state when the reader rests."""
    settings = dict(cast("dict[str, object]", request["settings"]))
    yield {**request, "ask": "levers"}
    yield {**request, "ask": "room"}
    yield {**request, "ask": "beside"}
    settings.pop("batch", None)
    yield {**request, "settings": settings, "ask": "fit"}
    yield {**request, "settings": dict(cast("dict[str, object]", request["settings"])), "ask": "refused"}


@cache
def further_answers() -> bytes:
    """Answers for a page without an engine: every preset in a few ways, the first state on every GPU; gzipped JSON."""
    from peakmem.tables.gpus import gpus
    from peakmem.tables.models import presets

    found: dict[str, object] = {}

    def keep(request: dict[str, object]) -> None:
        answer = json.loads(answered(request))
        if "error" not in answer:
            found[key(request)] = answer

    gpu = {"gpu": "H100 SXM 80GB"}
    for model in (*presets(), "custom"):
        for more in ({}, {"run": "inference"}, {"checkpoint": "full"}, {"optimizer": "adamw-8bit"}, {"lora_rank": 16}):
            request: dict[str, object] = {"model": model, "settings": dict(sorted({**gpu, **more}.items()))}
            keep(quick(request))
            if not more:
                keep({**request, "ask": "room"})
                keep({**request, "ask": "beside"})
    for more in ({"implementation": "paper"}, {"attention": "eager"}, {"batch": 8}, {"precision": "amp-bf16"}):
        keep(quick({"model": "custom", "settings": dict(sorted({**gpu, **more}.items()))}))
        keep(quick({**FIRST, "settings": dict(sorted({**gpu, **more}.items()))}))
    for row in gpus():
        keep(quick({**FIRST, "settings": {"gpu": row.name}}))
    for door in STATES.values():
        settings = {name: door[name] for name in sorted(door) if name != "model"}
        begun: dict[str, object] = {"model": door["model"], "settings": settings}
        for request in (quick(begun), *resting(begun)):
            keep(request)
    keep({**FIRST, "timeline": True, "lines": 0, "allocator": False})
    return gzip.compress(json.dumps(found, separators=(",", ":")).encode(), 9, mtime=0)


def inside(text: str) -> str:
    """JSON as it may stand in a script element."""
    return text.replace("<", "\\u003c")


def index(mode: str, styles: str, script: str, data: str) -> str:
    """index.html with its parts put in."""
    from peakmem.estimate import MIRRORS

    first = first_answers()
    baked = ",".join(f"{json.dumps(name)}:{text}" for name, text in first.items())
    parts = {
        "mode": mode, "version": __version__, "styles": styles, "scripts": script, "how": HOW[mode],
        "mirrors": ", ".join(f"{name} {version}" for name, version in MIRRORS.items()),
        "data": f'<script type="application/json" id="baked">{inside("{" + baked + "}")}</script>\n{data}',
        "card": escape(state("card")), "plan": escape(state("plan")), "commands": escape(COMMANDS, quote=False),
        **stills({name: json.loads(text) for name, text in zip(("tables", "cells", "growth", "three", "first",
                                                                "levers", "room"), first.values())}),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], explained(asset("index.html")))


def files(mode: str = "served") -> dict[str, bytes]:
    """The files of a folder by their paths; the server's are those of mode "served"."""
    links = '<link rel="stylesheet" href="style.css">'
    module = "\n".join([f'<link rel="modulepreload" href="{name}">' for name in scripts() if name != "main.js"]
                       + ['<script type="module" src="main.js"></script>'])
    # The server's policy allows no script inside the page; but who had the page from it has the modules, too.
    script = module if mode == "served" else f"<script>{STILL}</script>\n{module}"
    found = {"index.html": index(mode, links, script, "").encode(), "style.css": sheet().encode()}
    for name in scripts():
        found[name] = shipped(name).encode()
    if mode != "served":
        found["answers.gz"] = further_answers()
    return found


def single(pyodide: Path | None = None) -> str:
    """One HTML file without any other: modules as data: URLs in an import map, answers inside."""
    styles = f"<style>{sheet()}</style>"
    imports = {}
    for name in scripts():
        text = re.sub(r'(from |import )"\./([\w.]+)"', r'\1"#\2"', shipped(name))
        imports[f"#{name}"] = "data:text/javascript;base64," + base64.b64encode(text.encode()).decode()
    script = (f'<script>{STILL}</script>\n<script type="importmap">{json.dumps({"imports": imports})}</script>\n'
              '<script type="module">import "#main.js"</script>')
    packed = base64.b64encode(further_answers()).decode()
    data = f'<script type="text/plain" id="packed">{packed}</script>'
    if pyodide is None:
        return index("baked", styles, script, data)
    from peakmem.web.pyodide import inline

    return index("live", styles, script, data + "\n" + inline(pyodide))


def build(out: str | Path, pyodide: str | Path | None = None) -> list[Path]:
    """Write the page: one file where the name ends in .html, else a folder. Returns what was written.

    pyodide: a folder with Pyodide's five files; then the page runs any configuration by itself.
    Errors: Unreadable where something of Pyodide is missing, Impossible where the place cannot be written to.
    """
    place = Path(out)
    engine = None if pyodide is None else Path(pyodide)
    if engine is not None:
        from peakmem.web.pyodide import check

        check(engine)
    try:
        if place.suffix == ".html":
            place.parent.mkdir(parents=True, exist_ok=True)
            writable(place)
            place.write_text(single(engine), encoding="utf-8")
            return [place]
        found = files("live" if engine else "baked")
        if engine is not None:
            from peakmem.web.pyodide import beside_the_page

            found |= beside_the_page(engine)
        for name, content in found.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            writable(path)
            path.write_bytes(content)
        return [place / name for name in found]
    except OSError as error:
        raise Impossible(f"{printable(str(place))} cannot be written: {error.strerror}") from None


__all__ = ["build", "files", "single", "Unreadable"]
