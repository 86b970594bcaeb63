"""peakmem's Python beside or inside the page: Pyodide's five files from a folder, and our package as a zip."""

from __future__ import annotations

import base64
import gzip
import io
import json
import zipfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from peakmem.errors import Unreadable, printable
from peakmem.web.scripts import shipped

NEEDED = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json", "python_stdlib.zip")
NOTICES = ("LICENSE", "README.md")
LEFT_OUT = frozenset({"trace", "cli", "web/assets", *(f"web/{name}.py" for name in (
    "server", "listen", "guard", "pool", "worker", "openapi"))})
"""By their paths in the package: another folder may have a module of the same name."""
LARGEST = 64 * 2**20


def check(folder: Path) -> None:
    """Errors: Unreadable where a file of Pyodide is missing or far too large."""
    for name in NEEDED:
        path = folder / name
        if not path.is_file():
            raise Unreadable(f"{printable(str(folder))} has no {name}; --pyodide wants the folder of npm's pyodide")
        if path.stat().st_size > LARGEST:
            raise Unreadable(f"{printable(str(path))} is larger than {LARGEST >> 20} MiB")


def package() -> bytes:
    """Our modules as a zip that Python imports from; the same bytes each time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in modules(files("peakmem"), "peakmem"):
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED, 9)
    return buffer.getvalue()


def modules(folder: Traversable, path: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name = f"{path}/{entry.name}"
        if name.partition("/")[2] in LEFT_OUT or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            found += modules(entry, name)
        elif entry.name.endswith(".py"):
            found.append((name, entry.read_text(encoding="utf-8")))
    return found


def lock(folder: Path) -> bytes:
    """Pyodide's list of packages, emptied: we use none."""
    found = json.loads((folder / "pyodide-lock.json").read_text(encoding="utf-8"))
    return json.dumps({"info": found["info"], "packages": {}}, separators=(",", ":")).encode()


def engine(folder: Path) -> dict[str, bytes]:
    """Pyodide's files by name."""
    check(folder)
    found = {name: (folder / name).read_bytes() for name in NEEDED}
    return found | {"pyodide-lock.json": lock(folder)}


def beside_the_page(folder: Path) -> dict[str, bytes]:
    """What a static folder needs to be live."""
    found = {f"pyodide/{name}": content for name, content in engine(folder).items()}
    found |= {f"pyodide/{name}": (folder / name).read_bytes() for name in NOTICES if (folder / name).is_file()}
    return found | {"worker.js": shipped("worker.js").encode(), "peakmem.zip": package()}


def inline(folder: Path) -> str:
    """The same inside one HTML file."""
    packed = engine(folder) | {"peakmem.zip": package()}
    tags = [f'<script type="text/plain" data-engine="{name}">'
            f'{base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()}</script>'
            for name, content in packed.items()]
    worker = base64.b64encode(shipped("worker.js").encode()).decode()
    start = ("<script>window.peakmemWorker='data:text/javascript;base64," + worker + "';"
             "window.peakmemPayload=()=>Object.fromEntries([...document.querySelectorAll('[data-engine]')]"
             ".map((tag)=>[tag.dataset.engine,tag.textContent]))</script>")
    return "\n".join([*tags, start])
