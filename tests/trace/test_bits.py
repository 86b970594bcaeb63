"""bitsandbytes' layers and optimizers on the fake GPU have the bytes of real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from steps import GPT2, LLAMA, record_differences, setting

from peakmem import Setup, estimate
from peakmem.ledger import Ledger
from peakmem.ledger_json import from_json
from peakmem.readers.hf_config import from_config
from peakmem.trace.models import as_json
from peakmem.trace.process import TraceError, Worker
from peakmem.trace.settings import setting_of
from peakmem.trace.user import as_json as as_json_of_file

bnb: Any = pytest.importorskip("bitsandbytes")
FILE = Path(__file__).with_name("packed_models.py")


def of_file(worker: Worker, name: str) -> Ledger:
    """The ledger of one of the functions."""
    return from_json(worker.call(as_json_of_file, str(FILE), name, "", {}))


def parts(weight: Any) -> dict[str, tuple[int, str]]:
    """Elements and dtype of a packed weight and of every tensor of its state."""
    from peakmem.trace.bits import states_of

    found = {"": weight, **dict(states_of(weight))}
    return {name: (tensor.numel(), str(tensor.dtype)) for name, tensor in found.items()}


def both(outputs: int, inputs: int, double: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What we make of a layer's weight, and what the layer itself makes of it on the CPU."""
    import torch

    from peakmem.trace.bits import packed

    layer = bnb.nn.Linear4bit(inputs, outputs, compress_statistics=double, quant_type="nf4")
    ours = packed(layer.weight, "meta")
    return parts(ours), parts(layer.to(torch.device("cpu")).weight)


@pytest.mark.parametrize(("outputs", "inputs"), [(64, 192), (65, 31), (512, 2048)])
@pytest.mark.parametrize("double", [False, True])
def test_a_packed_weight_has_the_tensors_of_a_real_one(worker: Worker, outputs: int, inputs: int, double: bool) -> None:
    ours, real = worker.call(both, outputs, inputs, double)
    assert ours == real


@pytest.mark.parametrize(("config", "given"), [
    (LLAMA, {"weights": "nf4-double", "precision": "bf16"}),
    (LLAMA, {"weights": "fp4", "precision": "amp-bf16", "kbit_prepare": True, "checkpoint": "full"}),
    (GPT2, {"weights": "nf4", "precision": "bf16", "optimizer": "adamw-8bit"}),
    (LLAMA | {"vocab_size": 2077}, {"precision": "bf16", "optimizer": "adamw-8bit", "lora_rank": 0}),
], ids=["double", "prepared", "gpt2 in 8 bits", "8 bits"])
def test_a_step_equals_the_estimates(worker: Worker, config: dict[str, Any], given: dict[str, Any]) -> None:
    setup = Setup.of(**{"sequence": 48, "batch": 2, "lora_rank": 4} | given)
    model = from_config(config)
    ours = from_json(worker.call(as_json, setting_of(config, model, setup), {}, ()))
    theirs = estimate(model, setup)
    assert ours.phases == theirs.phases
    assert ours.parameters == theirs.parameters


def test_8_bit_states_equal_a_real_run(worker: Worker) -> None:
    small = LLAMA | {"num_hidden_layers": 1}
    off = worker.call(record_differences, setting(small, dtype="fp32", optimizer="AdamW-8bit"))
    # On the CPU the package updates by ordinary operations, with temporaries that its CUDA kernel has not.
    assert [(phase, end) for phase, _, end in off] == [("optimizer", 0)]


def test_a_files_own_4_bit_layer_is_packed(worker: Worker) -> None:
    ledger = of_file(worker, "four_bits")
    assert ledger.parameters.total == 256 * 512 + 512 * 8 and ledger.parameters.trained == 512 * 8
    assert ledger.chart[0].by_kind["weights"] == 256 * 512 // 2 + 4 * 256 * 512 // 64 + 512 + 4 * 512 * 8


@pytest.mark.parametrize(("name", "per_element"), [("adam", 2), ("lion", 1), ("paged_lion", 0)])
def test_a_files_own_8_bit_optimizer_keeps_bytes(worker: Worker, name: str, per_element: int) -> None:
    ledger = of_file(worker, name)
    states = sum(line.bytes for line in ledger.lines if "/state" in line.name and line.born == "start")
    count = 256 * 512
    assert per_element * count <= states <= per_element * count + 4 * 8 * 512
    assert any(f"{count} bytes of paged" in note for note in ledger.notes) == (name == "paged_lion")


def test_8_bit_products_are_refused(worker: Worker) -> None:
    with pytest.raises(TraceError, match=r"Linear8bitLt: .* take Linear4bit"):
        of_file(worker, "eight_bits")
