"""What letters stand for is told word by word: `cr` is one letter of the legend, not `c` and `r`."""

from __future__ import annotations

from peakmem.quantity import meaning
from peakmem.views.explain import letters


def told(*formulas: str) -> str:
    return " ".join(text for line in letters([*formulas], 400) for text, _ in line)


def test_a_letter_is_a_whole_word() -> None:
    text = told("2·a2·d2·cr")
    assert "a2 attention heads of stage 2, " in text and "cr width of the text that a UNet reads" in text
    assert "LoRA" not in text and "image channels" not in text


def test_what_is_unknown_is_left_out() -> None:
    assert meaning("zz9") == meaning("t1") == "" and told("2·zz9") == ""
    assert told("2·b·s·ch3").startswith("Letters: b micro-batch (sequences per GPU), s sequence length in tokens, ch3")
