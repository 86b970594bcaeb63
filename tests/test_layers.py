"""The design, as far as syntax trees show it: who imports whom, and how long a file is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "peakmem"
FILES = sorted(SOURCE.rglob("*.py"))

BASE = {"errors", "files", "quantity", "version", "answers", "immutable"}
LEDGER = BASE | {"ledger", "ledger_json", "answers", "reasons"}
DATA = LEDGER | {"model", "setup", "tables", "readers"}
ENGINE = DATA | {"architectures", "estimate", "allocator"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "files": {"errors"},
    "immutable": set(),
    "quantity": {"immutable"},
    "version": set(),
    "ledger": LEDGER,
    "ledger_json": LEDGER,
    "answers": LEDGER,
    "reasons": LEDGER,
    "setup": BASE,
    "model": LEDGER,
    "readers": DATA,
    "tables": DATA,
    "allocator": LEDGER,
    "architectures": ENGINE,
    "estimate": ENGINE,
    "trace": DATA | {"allocator"},
    "measured": DATA,
    "views": LEDGER,
    "plan": ENGINE | {"trace", "measured"},
}
LATE = {("model", "readers"), ("ledger", "views")}  # inside a method that is a door: Model.read, Ledger.explain
DOORS = {"__init__", "__main__", "cli", "web"}  # these may import everything
THIRD_PARTY = {
    "rich",
    "numpy",
    "matplotlib",
    "torch",
    "transformers",
    "peft",
    "starlette",
    "uvicorn",
    "huggingface_hub",
    "shtab",
}


def part(path: Path) -> str:
    """The piece of the design that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[str, int]]:
    """Absolute names of everything that is imported, at whatever depth, with the line."""
    package = ("peakmem", *path.relative_to(SOURCE).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            start = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (start, node.module or "")))
            for name in node.names:
                yield f"{base}.{name.name}", node.lineno


def wrong_imports(source: str, path: Path) -> list[str]:
    """Imports that go against the direction of the design."""
    here, found, tree = part(path), [], ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {name for function in functions for name, _ in imports(function, path)}
    for name, line in imports(tree, path):
        words = name.split(".")
        if words[0] != "peakmem" or here in DOORS:
            continue
        target = words[1]
        late = name in inside and (here, target) in LATE
        if target != here and target not in ALLOWED[here] and target in ALLOWED.keys() | DOORS and not late:
            found.append(f"{path.name}:{line} {here} imports {target}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_run_one_way(path: Path) -> None:
    assert part(path) in ALLOWED or part(path) in DOORS, f"{part(path)} has no place in the design"
    assert wrong_imports(path.read_text(), path) == []


def test_the_rule_would_be_broken() -> None:
    assert wrong_imports("from peakmem.estimate import x", SOURCE / "errors.py")
    assert wrong_imports("def f():\n    import peakmem.trace.record", SOURCE / "views" / "text.py")
    assert wrong_imports("from ..measured import rows", SOURCE / "trace" / "record.py")
    assert wrong_imports("import peakmem.readers", SOURCE / "model.py")
    assert not wrong_imports("def read():\n    import peakmem.readers", SOURCE / "model.py")
    assert not wrong_imports("from .kernels import x", SOURCE / "trace" / "record.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_is_one_screenful_of_screens(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 300


def test_the_core_is_the_standard_library() -> None:
    edges = {"trace", "views", "web", "plan", "cli", "estimate"}
    for path in FILES:
        for name, line in imports(ast.parse(path.read_text()), path):
            if name.split(".")[0] in THIRD_PARTY:
                assert part(path) in edges or path.name == "hub.py", f"{path.name}:{line} imports {name}"


@pytest.mark.parametrize("library", ["rich", "numpy", "matplotlib", "starlette", "uvicorn", "huggingface_hub", "shtab"])
def test_one_library_is_imported_in_one_file(library: str) -> None:
    files = {
        path.name
        for path in FILES
        for name, _ in imports(ast.parse(path.read_text()), path)
        if name.split(".")[0] == library
    }
    assert len(files) <= 1
