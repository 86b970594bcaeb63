"""A user's own file is traced, or the failure says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import PeakmemError, Unreadable
from peakmem.ledger import Ledger
from peakmem.ledger_json import from_json
from peakmem.trace.files import trace_function
from peakmem.trace.process import TraceError, Worker
from peakmem.trace.user import as_json

FILE = Path(__file__).with_name("user_models.py")
SCRIPTS = Path(__file__).with_name("script_models.py")


def traced(worker: Worker, name: str, **options: Any) -> Ledger:
    """Return the ledger of one of the functions, from the shared process."""
    return from_json(worker.call(as_json, str(FILE), name, "", options))


def scripted(worker: Worker, name: str, **options: Any) -> Ledger:
    """The same of a function of the other file."""
    return from_json(worker.call(as_json, str(SCRIPTS), name, "", options))


def test_an_optimizer_made_by_the_user_updates_the_moved_parameters(worker: Worker) -> None:
    ledger = traced(worker, "perceptron")
    assert ledger.parameters.total == 300 * 101 + 10 * 301
    assert ledger.chart[0].by_kind["optimizer_state"] == ledger.chart[0].by_kind["weights"]


def test_a_model_of_terabytes_costs_nothing(worker: Worker) -> None:
    assert traced(worker, "terabytes").totals.tensors > 15 * 10**12


def test_a_value_asked_for_is_noted_with_its_module(worker: Worker) -> None:
    assert any("asked a tensor for its value" in note for note in traced(worker, "asks").notes)


def test_a_size_that_depends_on_values_names_operation_and_module(worker: Worker) -> None:
    with pytest.raises(TraceError, match=r"aten::\w+.* in picky: the size of its result depends on values"):
        traced(worker, "selects")


def test_shared_weights_and_unsaved_buffers_are_counted_once(worker: Worker) -> None:
    ledger = traced(worker, "shared")
    assert ledger.parameters.total == 64_000
    assert ledger.chart[0].by_kind["weights"] == 4 * (64_000 + 256 * 64)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(Unreadable, match="nowhere.py' cannot be read: No such file"):
        trace_function("nowhere.py:model")


def test_a_place_without_a_function_is_refused() -> None:
    with pytest.raises(PeakmemError, match=r"write FILE.py:FUNCTION"):
        trace_function("model.py")


def test_a_missing_function_is_named() -> None:
    with pytest.raises(Unreadable, match="has no function absent"):
        trace_function(f"{FILE}:absent")


def test_an_operation_of_torchs_without_a_shape_rule_is_named(worker: Worker) -> None:
    with pytest.raises(TraceError, match=r"aten::_thnn_fused_gru_cell in inner: the operator has no fake kernel, scr"):
        scripted(worker, "gated")


def test_parametrized_weights_are_counted_as_they_are_kept(worker: Worker) -> None:
    ledger = scripted(worker, "normed")
    assert ledger.parameters.total == 64 * 128 + 128 + 128 + 128 * 4 + 4
    assert any(line.name.startswith("0.parametrizations.weight") for line in ledger.lines)


def test_a_script_for_a_gpu_is_the_same_without_one(worker: Worker) -> None:
    assert scripted(worker, "on_the_gpu").phases == scripted(worker, "at_home").phases


def test_an_operation_of_its_own_is_traced_and_its_scratch_not_known(worker: Worker) -> None:
    ledger = scripted(worker, "known")
    assert any("peakmem_test::tripled (not an operation of torch's)" in note for note in ledger.notes)
    assert any("recurrent layers" in note for note in ledger.notes)
    assert any(line.name == "peakmem_test::tripled" for line in ledger.lines)


@pytest.mark.parametrize(("name", "told"), [
    ("insists", "can't allocate memory"),
    ("downloads", "Connection refused"),
    ("leaves", "the traced code ended its process: SystemExit 3"),
])
def test_what_a_file_does_at_its_start_is_told(worker: Worker, name: str, told: str) -> None:
    with pytest.raises(Exception, match=told):
        scripted(worker, name)


def test_attention_taken_by_its_name_is_the_gpus(worker: Worker) -> None:
    assert any(note.endswith("flash 1 times in one step") for note in scripted(worker, "attends").notes)


def test_each_stream_has_memory_of_its_own(worker: Worker) -> None:
    two, one = scripted(worker, "aside"), scripted(worker, "together")
    assert two.phases == one.phases and two.totals.tensors == one.totals.tensors
    # 4 MiB made elsewhere take a large segment that the other stream's large blocks do not use.
    assert two.totals.reserved == one.totals.reserved + (20 << 20)


def test_a_file_divides_its_layers_over_gpus_itself(worker: Worker) -> None:
    ledger = scripted(worker, "split", gpus=8)
    assert ledger.parameters.total == 2 * 512 * 2048 + 2048 + 512
    start = ledger.chart[0].by_kind
    # up: 256 rows and their biases; down: 256 columns and every bias.
    assert start["weights"] == 4 * (2 * 512 * 256 + 256 + 512)
    assert start["optimizer_state"] == 2 * start["weights"]
    # relu's output, a slice of 256 of each row's 2048, is kept once.
    kept = [line.bytes for line in ledger.lines if line.kind == "activations"]
    assert kept.count(4 * 16 * 256) == 1


@pytest.mark.parametrize(("name", "gpus", "told"), [
    ("replicated", 8, "DistributedDataParallel and FSDP1 make their buckets"),
    ("split", None, "torch.distributed: give --gpus N, and one rank of N is traced"),
])
def test_what_needs_other_processes_is_refused(worker: Worker, name: str, gpus: int | None, told: str) -> None:
    with pytest.raises(TraceError, match=told):
        scripted(worker, name, gpus=gpus)
