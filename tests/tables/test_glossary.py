"""The words that the page explains: said once, and the same in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakmem.setup import FIELDS
from peakmem.tables.glossary import WORDS
from peakmem.tables.precisions import PRECISIONS

GLOSSARY = " ".join((Path(__file__).parent.parent.parent / "docs" / "glossary.md").read_text("utf-8").split())


@pytest.mark.parametrize("word", WORDS)
def test_the_documentation_says_the_same(word: str) -> None:
    assert f": {WORDS[word]}" in GLOSSARY and WORDS[word].endswith(".")


def test_every_stack_and_recipe_is_explained() -> None:
    assert set(FIELDS["implementation"]["choices"]) <= set(WORDS)
    for name in PRECISIONS:
        plain = name in ("fp16", "fp32")  # said with bf16
        assert plain or name in WORDS or f"`{name}`" in " ".join(WORDS.values()), name
