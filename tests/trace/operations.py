"""Single operations with a forward and a backward, on the fake GPU and with the CPU's real kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from peakmem.trace.step import Step

OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(functional, name)
        for name in """
relu gelu silu mish elu selu celu hardswish hardsigmoid hardtanh leaky_relu logsigmoid softplus softsign tanhshrink
softshrink hardshrink relu6 glu rrelu
""".split()
    },
    **{
        name: getattr(torch, name)
        for name in """
sigmoid tanh exp log1p sin cos square abs erf sqrt rsqrt reciprocal sum mean amax amin norm tril triu sinc atan exp2 std
var nan_to_num
""".split()
    },
    "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "cumsum": lambda x: x.cumsum(0),
    "layer_norm": lambda x: functional.layer_norm(x, (64,)),
    "group_norm": lambda x: functional.group_norm(x.view(4, 16, 64), 4),
    "channel_shuffle": lambda x: functional.channel_shuffle(x.view(4, 16, 8, 8), 4),
    "pixel_shuffle": lambda x: functional.pixel_shuffle(x.view(4, 16, 8, 8), 2),
    "max_pool2d": lambda x: functional.max_pool2d(x.view(4, 16, 8, 8), 2),
    "avg_pool2d": lambda x: functional.avg_pool2d(x.view(4, 16, 8, 8), 2),
    "cross_entropy": lambda x: functional.cross_entropy(x, torch.zeros(64, dtype=torch.int64, device=x.device)),
    "nll_loss": lambda x: functional.nll_loss(x, torch.zeros(64, dtype=torch.int64, device=x.device)),
    "l1_loss": lambda x: functional.l1_loss(x, torch.zeros_like(x)),
    "mse_loss": lambda x: functional.mse_loss(x, torch.zeros_like(x)),
    "smooth_l1_loss": lambda x: functional.smooth_l1_loss(x, torch.zeros_like(x)),
    "huber_loss": lambda x: functional.huber_loss(x, torch.zeros_like(x)),
    "binary_cross_entropy": lambda x: functional.binary_cross_entropy(x.sigmoid(), torch.zeros_like(x)),
    "kl_div": lambda x: functional.kl_div(x, torch.zeros_like(x)),
    "normalize": lambda x: functional.normalize(x),
    "cosine_similarity": lambda x: functional.cosine_similarity(x, torch.zeros_like(x)),
    "pad": lambda x: functional.pad(x, (1, 2)),
    "roll": lambda x: x.roll(1),
    "flip": lambda x: x.flip(0),
    "where": lambda x: torch.where(x > 0, x, 2 * x),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "clamp": lambda x: x.clamp(0, 1),
    "maximum": lambda x: torch.maximum(x, 2 * x),
    "pow": lambda x: x.pow(3),
    "matmul": lambda x: x @ x,
    "bmm": lambda x: x.view(4, 16, 64) @ x.view(4, 64, 16),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "unfold": lambda x: functional.unfold(x.view(4, 16, 8, 8), 3),
    "embedding": lambda x: functional.embedding(torch.zeros(8, 8, dtype=torch.int64, device=x.device), x),
    "prelu": lambda x: functional.prelu(x, x[0, :1]),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "lerp": lambda x: torch.lerp(x, 2 * x, 0.5),
    "stack": lambda x: torch.stack([x, x]),
    "cat": lambda x: torch.cat([x, x]),
    "outer": lambda x: torch.outer(x[0], x[1]),
}


def turned(operation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return the operation with a gradient whose dimensions lie otherwise than its input's: a view may cost a copy."""
    return lambda x: operation(x.view(4, 16, 64)).transpose(1, 2).contiguous()


OPERATIONS |= {
    f"{name}, turned": turned(OPERATIONS[name])
    for name in """
relu gelu silu mish elu hardswish hardsigmoid hardtanh leaky_relu softplus sigmoid tanh exp square softmax log_softmax
cumsum layer_norm masked_fill clamp
""".split()
}


UNLIKE = {
    "logsigmoid": "the CPU's forward keeps a buffer; a GPU's makes none",
    "sum": "a product copies the expanded gradient: scratch, in a trace",
    "amax": "the CPU makes numbers of booleans before it multiplies",
    "amin": "as amax",
}
"""Operations whose bytes on a GPU are others than on the CPU, and why."""


class One(nn.Module):
    """A layer, the operation, and a reading of its result."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.first, self.operation = nn.Linear(64, 64), OPERATIONS[name]

    def forward(self, ids: Tensor) -> Tensor:
        """Return a scalar."""
        return self.operation(self.first(ids.float())).square().sum()


def differences() -> Iterator[tuple[str, list[tuple[str, int, int]]]]:
    """Yield the operations whose bytes on the fake GPU are not those of a real run, with what differs."""
    from real_cpu import real, traced, unlike

    torch.backends.mkldnn.enabled = False
    for name in OPERATIONS:
        with torch.device("meta"):
            meta = One(name)
        step = Step(loss=lambda output: output, steps=1)
        fake = traced(
            meta,
            lambda: {"ids": torch.zeros(64, 64, dtype=torch.int64, device="cuda")},
            lambda model: torch.optim.SGD(model.parameters()),
            step,
            "cuda",
        )
        model = One(name)
        ids = torch.randint(1, 60, (64, 64))
        found = unlike(fake, real(model, {"ids": ids}, torch.optim.SGD(model.parameters()), step))
        if found:
            yield name, found


def unlike_the_cpu() -> dict[str, list[tuple[str, int, int]]]:
    """Return `differences` by operation."""
    return dict(differences())


def unlike_with_composites() -> dict[str, list[tuple[str, int, int]]]:
    """The same of two operations in a process where composite kernels stand in for those of a CUDA build."""
    from unittest import mock

    from peakmem.trace import fake_gpu, patches

    fake_gpu.set_up(fallback=False)
    some = {name: OPERATIONS[name] for name in ("silu", "mish", "gelu")}
    with mock.patch.object(patches, "COMPOSITES_WITH_A_CUDA_KERNEL", ()), mock.patch.dict(
        OPERATIONS, some, clear=True
    ):
        return dict(differences())
