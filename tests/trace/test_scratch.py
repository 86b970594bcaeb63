"""Every operation that may take memory for itself has a rule or stands in the notes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from peakmem import Setup, estimate
from peakmem.readers.hf_config import from_config
from peakmem.trace.no_scratch import takes_none
from peakmem.trace.process import Worker
from peakmem.trace.scratch import KNOWN, UNKNOWN, not_counted

aten = torch.ops.aten


class Exotic(nn.Module):
    """Decompositions, transforms, sorting and counting: what has no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        y = self.inner(x)
        singular = torch.linalg.svdvals(y).sum()
        waves = torch.fft.rfft(y).abs().sum()
        counted = torch.histc(y.detach(), 4).sum()
        far = torch.cdist(y, y.detach()).sum()
        return singular + waves + counted + far + y.sort().values.sum()


def notes_of() -> tuple[str, ...]:
    """Trace it; return the note on what is not counted."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from peakmem.tables.kernels import GPU
    from peakmem.trace import fake_gpu, hf
    from peakmem.trace.patches import gpu_answers
    from peakmem.trace.step import Step, run
    from peakmem.trace.tracer import Tracer

    fake = fake_gpu.set_up(fallback=False)
    with torch.device("meta"):
        model = Exotic()
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(GPU()) as sdpa:
        hf.move(model, fake.device)
        tracer = Tracer(fake.device, sdpa)
        batch = {"x": torch.zeros(16, 16, device=fake.device)}
        run(tracer, model, batch, torch.optim.SGD(model.parameters()), Step(loss=lambda output: output))
    return not_counted(tracer.ran, ())


def test_operations_without_a_rule_are_named(worker: Worker) -> None:
    (note,) = worker.call(notes_of)
    no_rule = next(part for part in note.split("; ") if "no rule" in part)
    for name in ("_linalg_svd", "_fft_r2c", "histc", "_cdist_forward", "_cdist_backward", "_fft_c2c"):
        assert name in no_rule
    assert "sort (sorting takes copies" in note and "sum (partial sums" in note
    for quiet in ("addmm", "relu", "view", "mul", "empty", "copy_", "mm,"):
        assert quiet not in no_rule


@pytest.mark.parametrize("func", [
    aten.mul.Tensor, aten.mul_.Tensor, aten.relu.default, aten.view.default, aten.expand.default,
    aten.empty.memory_format,
    aten._foreach_addcdiv_.ScalarList, aten.threshold_backward.default, aten.gt.Scalar, aten.normal_.default,
    aten.maximum.default, aten.max.other, aten.floor_divide.default, aten._softmax.default, aten.cat.default,
])
def test_these_take_none(func: Any) -> None:
    assert takes_none(func)


@pytest.mark.parametrize("func", [
    aten.max.dim, aten.sum.default, aten.any.default, aten.sort.default, aten._linalg_svd.default,
    aten._fft_r2c.default,
    aten.convolution.default, aten._foreach_norm.Scalar, aten._foreach_max.default, aten.index_put.default,
    aten.linalg_inv_ex.default, aten.multinomial.default, aten.nonzero.default, aten.kthvalue.default,
    aten.unique_dim.default,
])
def test_these_may_take_some(func: Any) -> None:
    assert not takes_none(func)


@pytest.mark.parametrize(("size", "dtype", "wanted"), [
    (128, "bf16", []), (160, "bf16", [4 * 2 * 3 * 33 * 160]), (160, "fp32", []),
])
def test_wide_heads_of_16_bits_need_fp32_output(worker: Worker, size: int, dtype: str, wanted: list[int]) -> None:
    assert worker.call(forward_scratch, size, dtype) == wanted


def forward_scratch(size: int, dtype: str) -> list[int]:
    """The forward scratch of the efficient kernel, in the worker."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from peakmem.trace import fake_gpu
    from peakmem.trace.record import DTYPES
    from peakmem.trace.tracer import Tracer

    fake_gpu.set_up(fallback=False)
    with FakeTensorMode(), Tracer("cuda") as tracer:
        q = torch.empty(2, 3, 33, size, dtype=DTYPES[dtype], device="cuda")
        aten._scaled_dot_product_efficient_attention(q, q, q, None, True)
    return [bytes_ for taken in tracer.scratch for _, bytes_ in taken.pieces]


def test_the_estimate_counts_it_too() -> None:
    config = {"model_type": "gemma3_text", "hidden_size": 320, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 160, "intermediate_size": 640, "vocab_size": 1000,
              "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]}
    setup = Setup.of(precision="bf16", sequence=128, batch=2)
    found = [line for line in estimate(from_config(config), setup).lines if line.name.endswith("attn/output in fp32")]
    assert [(line.bytes, line.scratch) for line in found] == [(4 * 2 * 4 * 128 * 160, True)]


def test_an_operation_has_one_word_on_it() -> None:
    ours = [func for func in KNOWN if takes_none(func)]
    assert not ours
    for name in UNKNOWN:
        packet = getattr(aten, name, None) or getattr(aten, f"{name}_")
        assert not any(takes_none(getattr(packet, word)) for word in packet.overloads()), name
