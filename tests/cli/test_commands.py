"""Each command asked as its user would."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from peakmem.cli.parser import COMMANDS
from peakmem.ledger import KINDS, Ledger
from peakmem.setup import FIELDS

from .asking import Ask

SMALL = ("gpt2", "--sequence", "128")


def test_the_answer_comes_first(ask: Ask) -> None:
    answer = ask("estimate", *SMALL)
    assert answer.code == 0 and answer.err == ""
    assert answer.out.split("\n")[0].startswith("peak ") and "GiB" in answer.out.split("\n")[0]
    assert "gpt2, 124,439,808 parameters, batch 1 × 128 tokens, mixed, adamw" in answer.out
    assert max(len(line) for line in answer.out.splitlines()) <= 80


def test_json_is_the_ledger(ask: Ask) -> None:
    answer = ask("estimate", *SMALL, "--json")
    assert answer.out.isascii() and answer.out.endswith("}\n") and answer.out.count("\n") == 1
    data = json.loads(answer.out)
    assert data["format"] == "peakmem.ledger/1" and data["run"]["sequence"] == 128
    assert data["peak"]["bytes"] == data["totals"]["tensors"] == sum(data["peak"]["by_kind"].values())
    assert set(data["kinds"]) <= set(KINDS)


def test_two_questions_have_one_answer(ask: Ask) -> None:
    assert ask("estimate", *SMALL, "--json") == ask("estimate", *SMALL, "--json")


@pytest.mark.parametrize(("word", "value"), [("--batch", "2"), ("--set", "batch=2"), ("--batch=2", ""),
                                             ("--set", "batch = 2".replace(" ", ""))])
def test_a_setting_in_every_form(ask: Ask, word: str, value: str) -> None:
    answer = ask("estimate", *SMALL, word, *filter(None, [value]), "--json")
    assert json.loads(answer.out)["run"]["batch"] == 2


@pytest.mark.parametrize(("words", "value"), [
    (["--clip"], True), (["--clip", "no"], False), (["--no-clip"], False), (["--clip=yes"], True),
    (["--no-set-to-none", "--clip"], True), ([], False)])
def test_switches(ask: Ask, words: list[str], value: bool) -> None:
    for order in ([*words, *SMALL], [*SMALL, *words]):
        assert json.loads(ask("estimate", *order, "--json").out)["run"]["clip"] is value


def test_events(ask: Ask) -> None:
    data = json.loads(ask("estimate", *SMALL, "--json", "--timeline").out)
    assert max(sum(by_kind.values()) for _, by_kind in data["timeline"]) == data["peak"]["bytes"]
    assert "timeline" not in json.loads(ask("estimate", *SMALL, "--json").out)
    shown = ask("estimate", *SMALL, "--timeline").out
    assert f"Over time: {len([m for m, _ in data['timeline'] if m.split('/')[0] != 'start']) + 1:,} events" in shown


def test_every_row_of_the_field_table_is_a_flag(ask: Ask) -> None:
    for command in ("estimate", "explain", "fit"):
        shown = ask(command, "--help").out
        for name in FIELDS:
            assert f"--{name.replace('_', '-')}" in shown


def test_dimensions(ask: Ask) -> None:
    data = json.loads(ask("estimate", "custom", "--layers", "2", "--hidden", "64", "--heads", "2", "--vocabulary",
                          "1000", "--tied", "--sequence", "64", "--json").out)
    assert data["run"]["model"]["layers"] == 2 and data["run"]["model"]["tied"] is True
    untied = json.loads(ask("estimate", "custom", "--layers", "2", "--hidden", "64", "--heads", "2", "--vocabulary",
                            "1000", "--no-tied", "--sequence", "64", "--json").out)
    assert untied["parameters"]["total"] - data["parameters"]["total"] == 64 * 1000
    data = json.loads(ask("estimate", "llama-3.1-8b", "--layers", "4", "--json").out)
    assert data["run"]["model"]["layers"] == 4 and data["run"]["model"]["hidden"] == 4096


def test_a_file_a_folder_and_standard_input(ask: Ask, configs: Path, tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    raw = (configs / "gpt2.json").read_bytes()
    (tmp_path / "config.json").write_bytes(raw)
    wanted = json.loads(ask("estimate", str(configs / "gpt2.json"), "--json").out)["totals"]
    assert json.loads(ask("estimate", str(tmp_path), "--json").out)["totals"] == wanted
    assert json.loads(ask("estimate", str(tmp_path / "config.json"), "--json").out)["totals"] == wanted
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert json.loads(ask("estimate", "-", "--json").out)["totals"] == wanted


def test_room_on_a_gpu(ask: Ask) -> None:
    fits = ask("estimate", *SMALL, "--gpu", "T4")
    assert fits.out.split("\n")[1].startswith("fits in 14.7 GiB of T4 with ") and "What would lower it" not in fits.out
    tight = ask("estimate", *SMALL, "--gpu", "1GiB")
    assert tight.code == 0 and tight.out.split("\n")[1].startswith("does not fit: exceeds 1.0 GiB of 1GiB by ")


def test_levers_are_tried_when_it_does_not_fit(ask: Ask) -> None:
    shown = ask("estimate", "llama-3.1-8b", "--gpu", "H100", "--sequence", "1024").out
    assert "does not fit" in shown and "What would lower it" in shown and "--lora-rank 16" in shown


def test_fail_over(ask: Ask) -> None:
    assert ask("estimate", *SMALL, "--gpu", "T4", "--fail-over", "100").code == 0
    assert ask("estimate", *SMALL, "--gpu", "T4", "--fail-over", "1%").code == 1
    refused = ask("estimate", *SMALL, "--gpu", "1GiB", "--fail-over", "100", "--json")
    assert refused.code == 1 and json.loads(refused.out)
    assert refused.err.startswith("peakmem: ") and "more than --fail-over 100" in refused.err
    assert ask("estimate", *SMALL, "--set", "gpu=1GiB", "--fail-over", "100").code == 1
    assert "give --gpu" in ask.mistake("estimate", *SMALL, "--fail-over", "100")
    assert "--fail-over takes a number" in ask.mistake("estimate", *SMALL, "--gpu", "T4", "--fail-over", "much")


def test_a_sequence_that_was_not_given_is_told(ask: Ask) -> None:
    for words, told in ((("gpt2",), "--sequence is 1,024"), (("bert-base",), "--sequence is 512"),
                        (("gpt2", "--run", "inference", "--generate", "24"), "--sequence is 1,000")):
        assert any(note.startswith(told) for note in json.loads(ask("estimate", *words, "--json").out)["notes"])
    for words in (("gpt2", "--sequence", "1024"), ("llama-3.1-8b",), ("vit-base",)):
        assert "--sequence is" not in ask("estimate", *words, "--json").out


def test_explain(ask: Ask) -> None:
    overview = ask("explain", *SMALL).out
    assert overview.startswith("peak ") and "All lines, the largest first" in overview
    for order in (("explain", *SMALL, "c_fc"), ("explain", "gpt2", "c_fc", "--sequence", "128")):
        shown = ask(*order).out
        assert "c_fc" in shown.split("\n\n")[0] and "  why " in shown
    assert ask("explain", *SMALL, "weights wte").out.count("  kind     weights") >= 1
    assert "unknown line 'c_fcc'" in ask.mistake("explain", *SMALL, "c_fcc")


def test_ledgers_are_files(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text(ask("estimate", *SMALL, "--json").out)
    assert ask("explain", str(path), "c_fc").out == ask("explain", *SMALL, "c_fc").out
    assert "leave the flags out" in ask.mistake("explain", str(path), "--batch", "2")
    monkeypatch.setattr(sys, "stdin", io.StringIO(path.read_text()))
    assert ask("explain", "-").out == ask("explain", *SMALL).out
    assert Ledger.read(path).as_json() == json.loads(path.read_text())


def test_compare(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(ask("estimate", *SMALL, "--json").out)
    b.write_text(ask("estimate", *SMALL, "--batch", "2", "--json").out)
    assert ask("compare", str(a), str(a)).code == 0
    differs = ask("compare", str(a), str(b))
    assert differs.code == 1 and differs.out.startswith("they differ: the peak of B is ")
    assert "batch 1 → 2" in differs.out
    assert ask("compare", str(a), "gpt2 --sequence 128").code == 0
    assert ask("compare", str(b), "gpt2 --sequence 128 --set batch=2").code == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(a.read_text()))
    assert ask("compare", "-", str(b)).out.split("\n")[0] == differs.out.split("\n")[0]
    assert "only one of A and B" in ask.mistake("compare", "-", "-")
    assert "No closing quotation" in ask.mistake("compare", str(a), "gpt2 'x")
    assert "unknown model" in ask.mistake("compare", str(a), "gpt22")


def test_fit(ask: Ask) -> None:
    data = fitted(ask, *SMALL, "--gpu", "T4")
    assert data["batch"] > 1 and data["spare"] >= 0 and data["one_more_exceeds_by"] > 0
    for batch, verdict in ((data["batch"], "fits in"), (data["batch"] + 1, "does not fit")):
        assert ask("estimate", *SMALL, "--gpu", "T4", "--batch", str(batch)).out.split("\n")[1].startswith(verdict)
    assert f"largest batch {data['batch']:,}:" in ask("fit", *SMALL, "--gpu", "T4").out


def test_fit_finds_none(ask: Ask) -> None:
    answer = ask("fit", *SMALL, "--gpu", "100MiB")
    assert answer.code == 1 and answer.out.startswith("no batch fits")
    lever = re.search(r"\n  (--[a-z0-9 -]+?) +→ +[0-9.]+ MiB", answer.out)
    assert lever and "What would lower it" in answer.out
    assert f"{lever[1]} " in ask("estimate", *SMALL, "--batch", "1", "--gpu", "100MiB").out
    answer = ask("fit", *SMALL, "--gpu", "100MiB", "--json")
    assert answer.code == 1 and json.loads(answer.out)["batch"] is None
    assert "which GPU?" in ask.mistake("fit", *SMALL)
    assert "leave it out" in ask.mistake("fit", *SMALL, "--gpu", "T4", "--batch", "3")


def fitted(ask: Ask, *words: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(ask("fit", *words, "--json").out)
    return data


@pytest.mark.parametrize("table", ["models", "gpus", "optimizers", "precisions", "levers"])
def test_list(ask: Ask, table: str) -> None:
    answer = ask("list", table)
    assert answer.code == 0 and max(len(line) for line in answer.out.splitlines()) <= 80
    wanted = {"models": "llama-3.1-8b ", "gpus": "H100 SXM 80GB ", "optimizers": "adamw-8bit ", "precisions": "mixed ",
              "levers": "full checkpointing "}[table]
    assert wanted in answer.out


@pytest.mark.parametrize("table", ["models", "gpus", "optimizers", "precisions", "levers"])
def test_a_list_as_json(ask: Ask, table: str) -> None:
    answer = ask("list", table, "--json")
    rows = json.loads(answer.out)
    assert answer.code == 0 and answer.out.isascii() and "<function" not in answer.out
    assert all(row["name"] and row["source"] for row in rows)
    shown = [line.split("  ")[0] for line in ask("list", table).out.splitlines() if line[:1].strip()]
    assert [row["name"] for row in rows] == [name for name in shown if name != "custom"]
    known = {"models": ("llama-3.1-8b", "parameters", 8_030_261_248), "gpus": ("T4", "memory_gb", 16),
             "optimizers": ("adamw", "states", 2), "precisions": ("mixed", "master", "fp32"),
             "levers": ("flash attention", "flag", "--attention flash")}
    name, cell, value = known[table]
    assert next(row for row in rows if row["name"] == name)[cell] == value


def test_help_and_version(ask: Ask) -> None:
    shown = ask("--help")
    assert shown.code == 0 and "peakmem estimate llama-3.1-8b" in shown.out
    assert all(f"  {command} " in shown.out for command in COMMANDS)
    assert ask("--version").out == ask("-V").out and ask("--version").out.startswith("peakmem 0")
    nothing = ask()
    assert nothing.code == 2 and nothing.err == shown.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion(ask: Ask, shell: str) -> None:
    pytest.importorskip("shtab")
    answer = ask("--print-completion", shell)
    assert answer.code == 0 and "peakmem" in answer.out and "lora-rank" in answer.out
    assert answer.out == ask(f"--print-completion={shell}").out


def test_completion_needs_shtab(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "pip install -e '.[completion]'" in ask.mistake("--print-completion", "bash")
    assert "unknown shell 'fisch'" in ask.mistake("--print-completion", "fisch")


def test_plot(ask: Ask, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "step.svg"
    answer = ask("estimate", *SMALL, "--gpu", "T4", "--plot", str(path))
    assert answer.code == 0 and answer.out.startswith("peak ") and str(path) in answer.out
    assert path.read_text().startswith("<?xml")
    assert "must end in" in ask.mistake("estimate", *SMALL, "--plot", "step.gif")
    assert "No such file" in ask.mistake("estimate", *SMALL, "--plot", str(tmp_path / "no" / "step.svg"))
