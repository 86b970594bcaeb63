"""Scripts ship without their comments: the same text everywhere, and never less than what runs."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from peakmem.web.page import files, single
from peakmem.web.scripts import asset, bare, scripts, shipped

SOURCE = """/** What it is. */
/**
 * In several lines: `one backtick
 */
const a = 1; // stays
  // goes
  /* goes, too */

  /** @type {any} */ (b).c();
/* ends before
   code */ d();
const text = `first
  // no comment
    indented

/* none */ ${a}
`;
  e("/* text */");
"""
LEFT = """const a = 1; // stays
/** @type {any} */ (b).c();
d();
const text = `first
  // no comment
    indented

/* none */ ${a}
`;
e("/* text */");
"""


def test_only_comments_and_indentation_are_left_out() -> None:
    assert bare(SOURCE) == LEFT


@pytest.mark.parametrize("name", [*scripts(), "worker.js"])
def test_what_runs_is_all_there(name: str) -> None:
    """Without its comments the source has the same words in the same order."""
    def words(text: str) -> list[str]:
        return re.sub(r"(?m)^\s*//.*$|^\s*/\*\*(?:(?!\*/)[\s\S])*\*/\s*$", "", text).split()

    assert words(asset(name)) == words(shipped(name)) and len(shipped(name)) < len(asset(name))


def test_all_places_have_the_same(tmp_path: Path) -> None:
    served, found = files("served"), single()
    imports = json.loads(re.findall(r'<script type="importmap">(.*?)</script>', found)[0])["imports"]
    for name in scripts():
        inside = base64.b64decode(imports[f"#{name}"].partition("base64,")[2]).decode()
        assert served[name].decode() == shipped(name) == re.sub(r'"#([\w.]+\.js)"', r'"./\1"', inside), name
