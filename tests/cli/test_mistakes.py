"""What a person may get wrong: one line, exit code 2, no traceback; beside it the nearest thing that is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import PeakmemError

from .asking import SOURCE, Ask, process


@pytest.mark.parametrize(("words", "told"), [
    (["estimat"], "Did you mean 'estimate'?"),
    (["--json"], "comes after a command"),
    (["estimate"], "missing: MODEL"),
    (["estimate", "llama-3.1-8"], "Did you mean 'llama-3.1-8b'?"),
    (["estimate", "gpt2", "--sequnce", "8"], "Did you mean --sequence?"),
    (["estimate", "gpt2", "--seq", "8"], "unknown flag '--seq'"),
    (["estimate", "gpt2", "--batch"], "--batch: give a value"),
    (["estimate", "gpt2", "--batch", "0"], "--batch takes a whole number from 1"),
    (["estimate", "gpt2", "--batch", "-1"], "out of range"),
    (["estimate", "gpt2", "--batch", "1.5"], "not a whole number"),
    (["estimate", "gpt2", "--batch", "1e3"], "not a whole number"),
    (["estimate", "gpt2", "--batch", "9" * 5000], "too long"),
    (["estimate", "gpt2", "--dropout", "nan"], "is not a number"),
    (["estimate", "gpt2", "--dropout", "-0.5"], "give a probability from 0 to 1, or -1 for the model's own"),
    (["estimate", "mpt-7b", "--sequence", "2049"], "more than the 2,048 positions of mpt-7b"),
    (["estimate", "mixtral-8x7b", "--lora-rank", "8", "--lora-targets", "default"],
     "no default of peft's is known for mixtral"),
    (["estimate", "gpt2", "--precision", "bf61"], "Did you mean 'bf16'?"),
    (["estimate", "gpt2", "--optimizer", "adam_v"], "unknown optimizer"),
    (["estimate", "gpt2", "--clip=maybe"], "give yes or no"),
    (["estimate", "gpt2", "--set", "batch"], "write FIELD=VALUE"),
    (["estimate", "gpt2", "--set", "bach=2"], "Did you mean 'batch'?"),
    (["estimate", "gpt2", "--set", "batch=2", "--batch", "3"], "is given twice"),
    (["estimate", "gpt2", "--batch", "2", "--batch=3"], "--batch is given twice: '2' and '3'"),
    (["estimate", "gpt2", "--clip", "--no-clip"], "--clip is given twice"),
    (["estimate", "gpt2", "--layers", "2", "--layers", "3"], "--layers is given twice"),
    (["serve", "--port", "1", "--port", "2"], "--port is given twice"),
    (["page", "--out", "a.html", "--out", "b.html"], "--out is given twice"),
    (["estimate", "gpt2", "--gpu", "-1GiB"], "--gpu '-1GiB' is not between"),
    (["fit", "gpt2", "--gpu", "-nonsense"], "unknown GPU '-nonsense'"),
    (["estimate", "gpt2", "--gpu", "--json"], "--gpu: give a value"),
    *[(["estimate", "vit-base", "--run", "inference", "--kv-bits", bits], "give 16, 8 or 4") for bits in "359"],
    (["estimate", "gpt2", "--kv-bits", "17"], "give 16, 8 or 4"),
    (["explain", "gpt2", "zzzz"], "give a kind or part of a name: "),
    *[(["estimate", "gpt2", flag, "\u0663"], "not a whole number") for flag in ("--batch", "--layers", "--gpus")],
    *[(["estimate", "gpt2", flag, "1_0"], "not a whole number") for flag in ("--batch", "--layers", "--gpus")],
    (["estimate", "gpt2", "gpt2"], "one argument too many: 'gpt2'"),
    (["estimate", "gpt2", "--tied", "maybe"], "--tied takes yes or no: got 'maybe'"),
    (["estimate", "gpt2", "--json", "--plot", "a.svg"], "not allowed with"),
    (["estimate", "gpt2", "--heads", "7"], "heads"),
    (["estimate", "gpt2", "--experts", "7"], "has no experts"),
    (["estimate", "custom", "--hidden", "0"], "--hidden"),
    (["estimate", "nowhere/config.json"], "No such file"),
    (["estimate", "a\0b"], "unknown model"),
    (["estimate", "somewhere/gpt22"], "no such file, and no model of that name"),
    (["list"], "missing: TABLE"),
    (["list", "modells"], "Did you mean 'models'?"),
    (["list", "models", "gpus"], "one argument too many"),
    (["compare", "gpt2"], "missing: B"),
    (["compare", "gpt2", ""], "one is empty"),
])
def test_one_line(ask: Ask, words: list[str], told: str) -> None:
    assert told in ask.mistake(*words)


@pytest.mark.parametrize(("size", "told"), [
    ("24", "24GiB (2^30) or 24GB (10^9)"), ("0", "no unit"), ("0GiB", "is not between"), ("-24GiB", "is not between"),
    ("nan", "--gpu"), ("24000", "24000MiB"), ("A100", "name one"), ("H1000", "unknown GPU"),
    ("99999TiB", "is not between"),
])
def test_gpus(ask: Ask, size: str, told: str) -> None:
    assert told in ask.mistake("estimate", "gpt2", f"--gpu={size}")
    for good in ("24GiB", "24 GB", "24 gib"):
        assert ask("estimate", "gpt2", "--gpu", good).code == 0


def test_counts_beyond_reason(ask: Ask) -> None:
    assert "--gpus" in ask.mistake("estimate", "gpt2", "--shard", "zero3", "--gpus", "10000000")
    assert "value for --shard" in ask.mistake("estimate", "gpt2", "--shard", "zero4")


HOSTILE = ["\x1b[31mred", "\u202eevil", "x" * 10**6, "<script>alert(1)</script>", "{{7*7}}", "=cmd|' /C calc'!A0",
           "\ud800", "a\nb\rc", "%s%n", "../../etc/passwd"]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names(ask: Ask, name: str, tmp_path: Path, configs: Path) -> None:
    for words in (["estimate", name], ["estimate", "gpt2", "--gpu", name], ["estimate", "gpt2", "--optimizer", name],
                  ["explain", "gpt2", f"zz{name}"], ["estimate", "gpt2", f"--{name}"], [name], ["list", name]):
        assert len(ask.mistake(*words)) < 1000
    config = json.loads((configs / "llama-3.2-1b.json").read_text())
    config["architectures"] = [name]
    config["_name_or_path"] = name
    config[name[:100]] = name
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    for words in (["estimate", str(path)], ["explain", str(path)], ["estimate", str(path), "--json"]):
        answer = ask(*words)
        assert answer.code in (0, 2)
        assert not set(answer.out + answer.err) & set("\x1b\u202e\ud800\r")


def test_a_ledger_from_a_stranger(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    text = ask("estimate", "gpt2", "--json").out
    path.write_text(text.replace("gpt2", "\\u001b[31m\\u202e\\ud800").replace("wte", "<b>"))
    shown = ask("explain", str(path))
    assert shown.code == 0 and not set(shown.out) & set("\x1b\u202e\ud800")
    for damage in (text[:1000], text.replace("ledger/1", "ledger/9"), text.replace('"chart"', '"chat"'),
                   text.replace('"bytes":', '"bites":')):
        path.write_text(damage)
        ask.mistake("explain", str(path))
        ask.mistake("compare", str(path), "gpt2")
    ask.mistake("compare", str(tmp_path), "gpt2 --batch")


ODD = ["x", -1, 1.5, True, None, [], {}, [1], {"a": "b"}, 10**400, "\ud800\x1b", 2**90]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_a_ledger_with_any_part_odd(ask: Ask, odd: object, tmp_path: Path) -> None:
    path, whole = tmp_path / "ledger.json", json.loads(ask("estimate", "gpt2", "--sequence", "64", "--json").out)
    whole["lines"], whole["chart"] = whole["lines"][:2], whole["chart"][:2]
    # of so few lines the peak is nothing: a ledger that contradicts itself would be refused before anything is shown
    for line in whole["lines"]:
        line["at_peak"] = 0
    for row in whole["chart"]:
        row.update(end=0, peak=0, by_kind={"weights": 0}, peak_by_kind={"weights": 0})
    whole["peak"].update(bytes=0, by_kind={"weights": 0})
    whole["totals"]["tensors"] = 0
    for place in places(whole):
        data = json.loads(json.dumps(whole))
        part = data
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = odd
        path.write_text(json.dumps(data))
        for words in (["explain", str(path)], ["explain", str(path), "e"], ["compare", str(path), str(path)]):
            answer = ask(*words)
            assert answer.code in (0, 1) or answer.err.count("\n") == 1, (place, odd)
            assert not set(answer.out + answer.err) & set("\x1b\ud800")


def places(part: object, path: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in JSON."""
    inner = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    return [found for key, value in inner for found in [(*path, key), *places(value, (*path, key))]]


def test_an_error_inside_is_no_mistake_of_the_user(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(words: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("peakmem.cli.list_command.run", broken)
    with pytest.raises(ZeroDivisionError):
        ask("list", "models")

    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("peakmem.cli.list_command.run", interrupted)
    assert ask("list", "models") == (130, "", "")

    def multiline(words: list[str]) -> int:
        raise PeakmemError("one\ntwo\r\nthree")

    monkeypatch.setattr("peakmem.cli.list_command.run", multiline)
    assert ask.mistake("list", "models") == "one two three"


@pytest.mark.parametrize("environment", [
    {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "utf-8"}, {"PYTHONIOENCODING": "cp437"},
], ids=lambda e: "-".join(e.values()))
def test_every_locale(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "architectures": ["\ud800ü"]}
    path.write_text(json.dumps(config))
    for words in (["estimate", str(path), "--gpu", "1GiB"], ["explain", "gpt2"], ["list", "gpus"], ["--help"],
                  ["estimate", "--help"], ["estimate", "g\u00fcpt2"]):
        done = process(*words, **environment)
        assert done.returncode in (0, 2) and b"Traceback" not in done.stderr
        encoding = environment.get("PYTHONIOENCODING", "ascii")
        assert (done.stdout or done.stderr).decode(encoding)


def test_a_reader_that_goes_away() -> None:
    command = [sys.executable, "-m", "peakmem", "explain", "llama-3.1-8b"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env={**os.environ, "PYTHONPATH": str(SOURCE)})
    assert run.stdout and run.stderr
    run.stdout.close()
    assert run.stderr.read() == b""
    assert run.wait(60) in (0, 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "peakmem", "estimate", "gpt2", "--json"], stdout=full, check=False,
                              stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SOURCE)})
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"No space left" in done.stderr


def test_a_mistake_is_told_at_once() -> None:
    start = time.perf_counter()
    assert process("estimate", "llama-3.1-8").returncode == 2
    assert time.perf_counter() - start < 2


def total_off(data: Any) -> None:
    data["totals"]["tensors"] += 512


def line_doubled(data: Any) -> None:
    max(data["lines"], key=lambda line: line["bytes"] * line["at_peak"])["bytes"] *= 2


def kind_off(data: Any) -> None:
    data["peak"]["by_kind"]["weights"] -= 1


def chart_off(data: Any) -> None:
    data["chart"][3]["by_kind"]["weights"] += 512


def trained_off(data: Any) -> None:
    data["parameters"]["trained"] = data["parameters"]["total"] + 1


@pytest.mark.parametrize("damage", [total_off, line_doubled, kind_off, chart_off, trained_off])
def test_a_ledger_that_contradicts_itself(ask: Ask, damage: Any, tmp_path: Path) -> None:
    data = json.loads(ask("estimate", "gpt2", "--sequence", "64", "--json").out)
    damage(data)
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps(data))
    for words in (("explain", str(path)), ("compare", str(path), "gpt2 --sequence 64")):
        assert "contradicts itself" in ask.mistake(*words)


def test_a_ledger_of_any_size_is_not_parsed(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    path.write_text('{"format":"peakmem.ledger/1","notes":["' + "x" * 2**25 + '"]}')
    assert "larger than 32 MiB" in ask.mistake("explain", str(path))


def test_limits_are_written_out(ask: Ask) -> None:
    assert "from 1 to 1,000,000 (GPUs)" in ask.mistake("estimate", "gpt2", "--gpus", "0")
    assert "from -1 to 1" in ask.mistake("estimate", "gpt2", "--dropout", "2")
    assert "--gpu is empty" in ask.mistake("estimate", "gpt2", "--gpu", "")
