"""The ways to the page on the command line, and back: `page`, `estimate --from-url`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import peakmem
from peakmem.cli import main
from peakmem.errors import PeakmemError
from peakmem.web.page import build
from peakmem.web.pyodide import modules, package

URL = "http://127.0.0.1:8000/#v=1&model=llama-3.1-8b&sequence=8192&layers=16&gpu=H100+SXM+80GB"
OUTSIDE = re.compile(r"""(?:src|href|action)=["']?(?:https?:)?//|(?:import|fetch|url)\(["']?https?:""")


def answered(capsys: Any, *words: str) -> Any:
    assert main(["estimate", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_link_is_its_settings(capsys: Any) -> None:
    found = answered(capsys, "--from-url", URL)
    assert found == answered(capsys, "llama-3.1-8b", "--sequence", "8192", "--layers", "16", "--gpu", "H100 SXM 80GB")
    changed = answered(capsys, "--from-url", URL, "--batch", "2", "--layers", "8")
    assert changed == answered(capsys, "llama-3.1-8b", "--sequence", "8192", "--layers", "8", "--batch", "2", "--gpu",
                               "H100 SXM 80GB")


def test_a_link_holds_a_config(capsys: Any) -> None:
    config = json.loads((Path(__file__).parents[2] / "examples/llama-3.1-8b/config.json").read_text())
    from urllib.parse import quote

    found = answered(capsys, "--from-url", f"#v=1&model=mine&config={quote(json.dumps(config))}&batch=3")
    assert found["peak"]["bytes"] == peakmem.estimate("llama-3.1-8b", batch=3).peak.bytes


@pytest.mark.parametrize("words,told", [
    (["gpt2", "--from-url", URL], "names a model already"), ([], "missing: MODEL"),
    (["--from-url", "https://example.org/"], "no link of peakmem's page"),
    (["--from-url", "#v=1&model=/etc/passwd"], "unknown model"), (["--from-url", "#v=1&model=gpt2&x=1"], "x"),
    (["--from-url", "#v=1&model=gpt2", "--fail-over", "90"], "the link names none"),
    (["--from-url", "#v=1&model=gpt2&batch=-1"], "out of range"),
    (["--from-url", "#v=1&model=big.json&config=too-long"], "'big.json', which was too long for it: give the file"),
])
def test_mistakes_are_one_line(capsys: Any, words: list[str], told: str) -> None:
    assert main(["estimate", *words]) == 2
    shown = capsys.readouterr()
    assert told in shown.err and shown.err.count("\n") == 1 and "Traceback" not in shown.err


def test_page_is_one_file_or_a_folder(capsys: Any, tmp_path: Path) -> None:
    assert main(["page", "--out", str(tmp_path / "page.html")]) == 0
    assert "answers made beforehand" in capsys.readouterr().out
    single = (tmp_path / "page.html").read_text()
    assert 'data-mode="baked"' in single and not OUTSIDE.search(re.sub(r"<a [^>]*>", "", single))
    assert main(["page", "--out", str(tmp_path / "site")]) == 0
    assert (tmp_path / "site" / "index.html").exists() and (tmp_path / "site" / "answers.gz").exists()


def test_page_says_what_is_missing(capsys: Any, tmp_path: Path) -> None:
    assert main(["page", "--out", str(tmp_path / "page.html"), "--pyodide", str(tmp_path)]) == 2
    assert "has no pyodide.mjs" in capsys.readouterr().err
    assert main(["page"]) == 2
    with pytest.raises(PeakmemError, match="cannot be written"):
        build("/dev/null/page.html")


def test_the_browsers_package_has_no_server() -> None:
    from importlib.resources import files

    names = {name for name, _ in modules(files("peakmem"), "peakmem")}
    assert "peakmem/web/answer.py" in names and not [name for name in names if "/cli/" in name or "/trace/" in name]
    for name in ("server", "listen", "guard", "pool", "worker", "openapi"):
        assert f"peakmem/web/{name}.py" not in names
    assert package() == package()


def test_the_browsers_package_imports_what_it_holds(tmp_path: Path) -> None:
    """An estimate for training and one for a server, by the modules of the zip and no others."""
    (tmp_path / "peakmem.zip").write_bytes(package())
    code = """if True:
        import sys
        sys.path[:0] = ["peakmem.zip"]
        from peakmem.web.answer import estimate_json
        assert "peakmem.zip" in sys.modules["peakmem"].__file__
        for run in ("training", "inference"):
            print(estimate_json('{"model":"gpt2","settings":{"run":"%s"}}' % run)[:9])
    """
    found = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout == '{"ledger"\n{"ledger"\n', found.stderr
