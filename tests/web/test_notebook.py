"""The notebook of the examples: its cells run one after the other, and a ledger at the end of one shows itself."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def shown(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: the value of a last expression is what it shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def test_it_runs(capsys: Any) -> None:
    book = json.loads(NOTEBOOK.read_text())
    names: dict[str, Any] = {}
    pictures = []
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            value = shown("".join(cell["source"]), names)
            if hasattr(value, "_repr_html_"):
                pictures.append(value._repr_html_())
    assert len(pictures) == 2
    for picture in pictures:
        assert "<svg" in picture and "peak" in picture and "<script" not in picture
        assert not re.search(r"""(?:src|href)=["']""", picture)
    assert "GiB" in capsys.readouterr().out
