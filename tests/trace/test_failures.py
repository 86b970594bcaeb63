"""Code that asks while it builds is answered; code that fails is told in one line with its place."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from peakmem import Ledger
from peakmem.cli import main
from peakmem.errors import PeakmemError, UnknownName, Unreadable
from peakmem.ledger_json import from_json
from peakmem.trace.failures import said
from peakmem.trace.process import TraceError, Worker
from peakmem.trace.user import as_json

FILE = Path(__file__).with_name("hard_models.py")


def traced(worker: Worker, name: str, file: Path = FILE, timeout: float = 0) -> Ledger:
    """The ledger of one of the functions."""
    return from_json(worker.call(as_json, str(file), name, "", {}, timeout=timeout))


def test_small_values_that_follow_from_the_code_are_what_they_are(worker: Worker) -> None:
    ledger = traced(worker, "rates")
    assert not any("asked" in note for note in ledger.notes)
    masks = [line.count for line in ledger.lines if "native_dropout" in line.name or "layers." in line.name]
    assert masks and not any(line.name.startswith("layers.0") for line in ledger.lines)


@pytest.mark.parametrize(("name", "values"), [("overwritten", ["0.5"]), ("looks", ["True", "0.5"])])
def test_values_asked_for_while_building_are_told_and_noted(worker: Worker, name: str, values: list[str]) -> None:
    notes = [note for note in traced(worker, name).notes if "while the module was built" in note]
    assert all(note.startswith("hard_models.py:") for note in notes)
    assert {note.rpartition(" ")[2] for note in notes} >= set(values)


def test_a_shuffled_loader_gives_a_batch(worker: Worker) -> None:
    assert any(line.name == "input/0" and line.bytes == 512 for line in traced(worker, "loaded").lines)


def test_every_answer_is_noted_with_who_asked_and_what(worker: Worker) -> None:
    notes = [note for note in traced(worker, "all_ask").notes if "asked" in note]
    assert len(notes) == 2
    module, optimizer = notes
    for told in ("1 (aten::argmin)", "True (aten::all)", "0.5 (aten::std.correction)"):
        assert told in module and module.startswith("0 asked")
    assert optimizer.startswith("the optimizer asked") and "norm" in optimizer


def test_the_loss_of_a_tuple_is_noted(worker: Worker) -> None:
    assert "the loss is the first of the module's outputs" in traced(worker, "all_ask").notes


@pytest.mark.parametrize(("name", "told"), [
    ("fails_deep", r"RuntimeError: .*, aten::addmm in outer\.1, hard_models\.py:\d+$"),
    ("raises", r"KeyError: .*wrong.*, in outer\.1, hard_models\.py:\d+$"),
    ("sparse", r"aten::_to_sparse in outer\.1: a trace knows dense tensors only .*hard_models\.py:\d+$"),
    ("sparse_gradient", r"aten::\w+ in 0 makes a sparse tensor"),
    ("sparse_input", "the inputs hold a sparse tensor"),
    ("nested", "the inputs hold a nested tensor"),
    ("mute", r"Mute, hard_models\.py:\d+$"),
    ("bye", r"the traced code ended its process: SystemExit 'bye \\x1b\[31m'"),
    ("child", r"starts another process.*num_workers=0\), hard_models\.py:\d+$"),
    ("again", "LBFGS.*: its step calls the model again"),
    ("no_scalar", "fourth value must be a function from the module's output to a scalar"),
    ("no_loss", "fourth value must be a function from the module's output to a scalar"),
    ("frozen", "no parameter that is trained"),
    ("no_optimizer", "must be an optimizer.* not 'int'"),
])
def test_a_failure_is_told_in_one_line_with_its_place(worker: Worker, name: str, told: str) -> None:
    with pytest.raises(PeakmemError, match=told) as caught:
        traced(worker, name)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_a_forward_without_end_is_named() -> None:
    with Worker() as fresh:
        traced(fresh, "all_ask")  # loads torch
        told = r"at: step 1 of 2, forward in outer\.1 after aten::\w+.*, hard_models\.py:\d+; --timeout"
        with pytest.raises(TraceError, match=told):
            traced(fresh, "loops", timeout=4)


@pytest.mark.parametrize("name", ["torch.py", "without_suffix"])
def test_a_file_may_have_any_name(worker: Worker, tmp_path: Path, name: str) -> None:
    shutil.copy(FILE, tmp_path / name)
    assert traced(worker, "all_ask", tmp_path / name).parameters.total == 20


def test_an_error_without_words_is_told_by_its_kind() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            return 5  # type: ignore[return-value]

    assert said(Odd()) == "Odd"


@pytest.mark.parametrize(("words", "kind"), [
    (["--gpu", "banana"], UnknownName),
    (["--plot", "nowhere/a.svg"], Unreadable),
    (["--plot", "."], PeakmemError),
])
def test_what_cannot_be_is_told_before_the_file_is_run(
    words: list[str], kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    from peakmem.cli.trace_command import run

    def started(*args: object) -> None:
        raise AssertionError("the file is run")

    monkeypatch.setattr("peakmem.trace.process.Worker.__enter__", started)
    pytest.importorskip("matplotlib")
    with pytest.raises(kind):
        run([f"{FILE}:all_ask", *words])


def heard() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_trace_says_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "peakmem", "trace", f"{FILE}:loops"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True,
                          preexec_fn=heard) as running:
        try:
            time.sleep(1.5)
            os.killpg(running.pid, signal.SIGINT)
            told = running.communicate(timeout=60)[1]
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130
    assert not [line for line in told.splitlines() if not line.startswith("peakmem: ")]


def test_a_decoder_begins_with_the_padding_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"model_type": "t5", "d_model": 72, "d_kv": 16, "d_ff": 200, "num_layers": 2, "num_heads": 4,
              "vocab_size": 700}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = [str(tmp_path / "config.json"), "--sequence", "48", "--precision", "fp32", "--json"]
    for command in ("estimate", "trace"):
        assert main([command, *words]) == 0
        (tmp_path / command).write_text(capsys.readouterr().out)
    assert main(["compare", str(tmp_path / "estimate"), str(tmp_path / "trace")]) == 0
    assert capsys.readouterr().out.startswith("equal: ")
