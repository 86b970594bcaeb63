"""Text views of a small ledger, against files, and what holds for every ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peakmem.answers import Change, Headroom
from peakmem.errors import UnknownName
from peakmem.ledger import Detail, Ledger, Parameters, Peak, Totals
from peakmem.views import compare, explain, fit, text
from peakmem.views.layout import plain, wrapped
from peakmem.views.words import clean, moment_words, tight

from .golden import check
from .toy import CHART, DETAIL, LINES, MIB, RUN, toy

ROOMY = Headroom("H100 SXM 80GB", 6720 * MIB, "allocated, without fragmentation", (400 * MIB, 1250 * MIB), 85 * 10**9)
TIGHT = replace(ROOMY, gpu="a 6 GB card", capacity=6 * 2**30, note="6GiB is read as 6.00 GiB")
TRIED = (
    Change("full checkpointing", "--checkpoint full", 6720 * MIB, 6000 * MIB, False, "about one more forward"),
    Change("LoRA", "--lora-rank 16", 6720 * MIB, 3000 * MIB, True, "less capacity to change"),
    Change("flash attention", "--attention flash", 6720 * MIB, 0, refused="flash needs bf16"),
    Change("offload", "--offload optimizer+weights --gpus 1024", 6720 * MIB, 5000 * MIB, False, "slow " * 20),
)
TOGETHER = Change("together", "--checkpoint full --optimizer adamw-8bit", 6720 * MIB, 4000 * MIB, True)


def test_estimate() -> None:
    check("estimate.txt", text.render(toy()))


def test_estimate_with_events() -> None:
    check("estimate_timeline.txt", plain(text.page(toy(), events=True)))


def test_estimate_on_a_gpu_that_suffices() -> None:
    check("estimate_fits.txt", plain(text.page(toy(), ROOMY)))


def test_estimate_on_a_gpu_that_does_not() -> None:
    check("estimate_exceeds.txt", plain(text.page(toy(), TIGHT, TRIED, TOGETHER)))


def test_explain() -> None:
    check("explain.txt", explain.explain(toy()))
    check("explain_part.txt", toy().explain("proj"))


def test_compare() -> None:
    lines = (replace(LINES[0], bytes=LINES[0].bytes * 2), *LINES[1:-2], replace(LINES[-1], name="other", scratch=False))
    peak = Peak(7 * 2**30, "backward/loss", {**DETAIL.peak.by_kind, "weights": 2048 * MIB})
    other = toy(run={**RUN, "batch": 2}, walk=lambda: replace(DETAIL, lines=lines, peak=peak))
    check("compare.txt", compare.compare(toy(), other))
    check("compare_equal.txt", compare.compare(toy(), toy(), ("a.json", "-")))
    assert not compare.compared(toy(), other).equal
    assert compare.compared(toy(), toy()).equal


def test_a_total_that_one_side_does_not_know_is_no_difference() -> None:
    assert compare.compared(toy(), toy(totals=Totals(6656 * MIB))).equal
    assert not compare.compared(toy(), toy(totals=Totals(6656 * MIB, 1))).equal


def test_one_byte_is_a_difference() -> None:
    lines = (*LINES[:-1], replace(LINES[-1], bytes=LINES[-1].bytes + 512))
    assert not compare.compared(toy(), toy(walk=lambda: replace(DETAIL, lines=lines))).equal


def test_fit() -> None:
    check("fit.txt", plain(fit.page(5, toy(), ROOMY, replace(ROOMY, used=90 * 10**9))))
    check("fit_none.txt", plain(fit.page(0, toy(), TIGHT, None)))


def test_the_first_line_is_the_answer() -> None:
    for page in (text.page(toy()), text.page(toy(), TIGHT, TRIED, TOGETHER)):
        assert plain(page[:1]) == "peak 6.50 GiB in backward, at the loss\n"


def test_units_are_always_said() -> None:
    assert "GiB is 2³⁰ bytes" in text.render(toy())


@pytest.mark.parametrize("width", [60, 80, 100])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    pages = [text.page(toy(), TIGHT, TRIED, TOGETHER, width), explain.page(toy(), "", width),
             explain.page(toy(), "proj", width), compare.page(toy(), toy(), ("a" * 200, "b"), width),
             fit.page(5, toy(), ROOMY, ROOMY, width)]
    for page in pages:
        assert max(len(line) for line in plain(page).splitlines()) <= width


def test_an_unknown_line_is_told_with_what_is_near() -> None:
    with pytest.raises(UnknownName, match="activations"):
        toy().explain("activatons")


def test_every_word_must_match_in_name_or_kind() -> None:
    def found(part: str) -> str:
        return " ".join(toy().explain(part).split())

    assert "are in 2 lines with" in found("optimizer exp_avg")
    assert "is in 1 line with" in found("STATE Exp_Avg_Sq")


def test_an_empty_ledger_has_views_too() -> None:
    nothing = Detail(Peak(0, "", {}), {}, (), ())
    empty = Ledger("trace", {}, (), Totals(0), {}, Parameters(0, 0, 0), lambda: nothing)
    assert text.render(empty).startswith("peak 0 B\n")
    assert explain.explain(empty)
    assert compare.compared(empty, empty).equal
    assert "<svg" in empty._repr_html_()


def test_bars_add_up_to_their_scale() -> None:
    from peakmem.views.bars import stack

    for chart in CHART:
        drawn = "".join(part for part, _ in stack(chart.peak_by_kind, 6656 * MIB, 52))
        assert len(drawn) == 52
        assert len(drawn.rstrip()) == int(chart.peak * 52 / (6656 * MIB) + 0.5)


HOSTILE = "\x1b[31mred\u202eevil<script>{{7*7}}\ud800\0\n\r\tü中"


def test_foreign_text_is_harmless() -> None:
    ledger = toy(run={**RUN, "model": {"name": HOSTILE}, "precision": HOSTILE, "peakmem": HOSTILE}, notes=(HOSTILE,),
                 walk=lambda: replace(
                     DETAIL, lines=(replace(LINES[0], name=HOSTILE, why=HOSTILE, source=HOSTILE, formula=HOSTILE,
                                            substituted=HOSTILE, born=HOSTILE, freed=HOSTILE), *LINES[1:]),
                     peak=replace(DETAIL.peak, moment=f"backward/{HOSTILE}"),
                     chart=(replace(CHART[0], moment=HOSTILE), *CHART[1:])))
    shown = [text.render(ledger), explain.explain(ledger), explain.explain(ledger, "script"),
             compare.compare(ledger, toy(), (HOSTILE, HOSTILE)), plain(fit.page(1, ledger, ROOMY, None))]
    for page in shown:
        for line in page.split("\n"):
            assert line.isprintable() and not set(line) & set("\x1b\u202e\ud800ü中")
        assert "\\u202e" in page
    page = ledger._repr_html_()
    assert "<script" not in page and "&lt;script&gt;" in page
    assert page.isprintable() or "\n" in page


def test_long_text_is_cut() -> None:
    assert len(clean("x" * 10**6, 80)) == 80
    assert len(text.render(toy(run={**RUN, "model": {"name": "n" * 10**6}}))) < 10_000


def test_short_brackets_are_not_broken() -> None:
    assert tight("(2·32 + 1)·4 + 80·(4·128·8192 + 4·16·8192 + 4)") == "(2·32+1)·4 + 80·(4·128·8192 + 4·16·8192 + 4)"
    assert tight(")(a (b + c") == ")(a (b + c"


def test_moments_in_words() -> None:
    assert moment_words("backward/loss/log_softmax") == "in backward, at the loss"
    assert moment_words("backward.1/layers.3/mlp.up") == "in backward of micro-batch 2, at layers.3 mlp.up"
    assert moment_words("optimizer") == "in the optimizer step"
    assert moment_words("") == ""
    assert moment_words("first decode") == "at the first generated token"


def test_wrapping_breaks_long_words_and_cuts() -> None:
    assert plain(wrapped("aa bb cc", 5, "- ", "  ")) == "- aa\n  bb\n  cc\n"
    assert plain(wrapped("x" * 12, 5, "- ")) == "- xxx\nxxxxx\nxxxx\n"
    assert plain(wrapped("aa bb cc dd", 5, most=1)) == "aa …\n"
    assert plain(wrapped("", 5, "- ")) == "-\n"


def test_a_moment_with_a_long_name_takes_a_second_line() -> None:
    import peakmem

    lines = text.render(peakmem.estimate("sd-1.5-unet")).splitlines()
    assert lines[0].startswith("peak 13.03 GiB in backward, at ") and lines[1].startswith("  ")
    assert max(map(len, lines)) <= 80
