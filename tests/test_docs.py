"""The documentation is run: commands print what the pages say, numbers are the present ones."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def script(name: str) -> ModuleType:
    """A file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


console = script("console")
SHOWN = [(page, command, shown) for page in console.pages() for block in console.BLOCK.findall(page.read_text("utf-8"))
         for command, shown in console.commands(block)]


@pytest.mark.parametrize(("page", "command", "shown"), SHOWN, ids=[f"{p.name}:{c[:60]}" for p, c, _ in SHOWN])
def test_commands_print_what_the_pages_say(page: Path, command: str, shown: list[str]) -> None:
    printed = console.output(command)
    assert console.agrees(shown, printed), "python scripts/console.py --write puts in: " + "\n".join(printed)


def test_every_number_of_the_readme_is_in_some_output() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    printed = "\n".join(line for _, command, _ in SHOWN for line in console.output(command))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    numbers = re.findall(r"\d[\d.,]*\d(?= (?:GiB|MiB|bytes))", prose)
    assert numbers
    for number in numbers:
        assert number in printed, f"{number} is in no command's output"


def test_the_settings_table_is_the_present_one() -> None:
    reference = script("cli_reference")
    wanted = reference.TARGET.read_text("utf-8")
    assert reference.reference() == wanted, "run: python scripts/cli_reference.py --write"


def test_the_table_of_families_is_what_the_code_answers() -> None:
    known = script("families")
    found = list(known.families())
    again = "run: python scripts/families.py --write"
    assert known.page(found) == known.TARGET.read_text("utf-8"), again
    assert known.readme(found) == known.README.read_text("utf-8"), again
    assert known.PLACE.search(known.README.read_text("utf-8"))


def test_the_picture_is_what_is_printed() -> None:
    pytest.importorskip("rich")
    made = script("picture")
    shown = (ROOT / "docs" / "images" / "estimate.svg").read_text("utf-8")
    assert words(shown) == words(made.picture(made.README, made.UNTIL)), "run: python scripts/picture.py"
    assert "http" not in shown.replace("http://www.w3.org/2000/svg", "")


def words(svg: str) -> list[str]:
    """The text of a picture; how rich lays it out may change."""
    return re.sub(r"<style>.*?</style>|<[^>]*>|&#160;", " ", svg, flags=re.S).split()


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "examples" / "README.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_targets_of_the_readme_exist() -> None:
    made = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text("utf-8"), re.M):
        assert re.search(rf"^{target}:", made, re.M)


def test_other_commands_of_the_pages_can_be_read() -> None:
    """Blocks without output are at least understood."""
    from peakmem.cli.estimate_command import parser

    for page in console.pages():
        for block in re.findall(r"^```\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
            for line in re.findall(r"^peakmem estimate (.*)$", block, re.M):
                line = line.partition("|")[0].partition(">")[0].partition("#")[0]
                if "…" not in line and "[" not in line:
                    parser().read(shlex.split(line))


def test_gaps_in_outputs() -> None:
    assert console.agrees(["a", "…", "d"], list("abcd")) and console.agrees(["a", "…"], ["a"])
    assert not console.agrees(["a", "…", "c"], list("abcd")) and not console.agrees(["a"], list("ab"))
    assert console.anew(["x", "…", "y"], list("abcd")) == ["a", "…", "d"]
    assert console.anew(["x", "…", "c", "x", "…"], list("abcde")) == ["a", "…", "c", "d", "…"]
    wanted = ["peak 2", "…", "What would lower it: 2", "…"]
    assert console.anew(["peak 1", "…", "What would lower it: 1", "…"], ["peak 2", "x", wanted[2], "y"]) == wanted


def test_extras_are_there_to_be_installed() -> None:
    """The package is in no registry: what is named is a group of pyproject.toml, installed from the folder."""
    import tomllib

    known = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
    texts = [path.read_text("utf-8") for folder, suffix in (("src", "py"), ("docs", "md"), ("examples", "md"))
             for path in (ROOT / folder).rglob(f"*.{suffix}")] + [(ROOT / "README.md").read_text("utf-8")]
    named = [extra for text in texts for found in re.findall(r"pip install -e '\.\[([\w,]+)\]'", text)
             for extra in found.split(",")]
    named += re.findall(r'Missing\([^)]*, "(\w+)"\)', "\n".join(texts))
    assert {"trace", "serve", "plot", "sweep", "hub", "completion"} <= set(named) <= known
    assert not any(re.search(r"pip install '?peakmem", text) for text in texts)
