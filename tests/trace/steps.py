"""Small models and what a worker process does with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from peakmem.tables.kernels import GPU
from peakmem.trace import fake_gpu, hf, record
from peakmem.trace.patches import gpu_answers
from peakmem.trace.step import Step, run
from peakmem.trace.summary import summary
from peakmem.trace.tracer import Tracer

LLAMA = {
    "model_type": "llama",
    "hidden_size": 120,
    "intermediate_size": 328,
    "num_hidden_layers": 2,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "vocab_size": 523,
    "pad_token_id": 0,
}
GPT2 = {"model_type": "gpt2", "n_embd": 96, "n_layer": 2, "n_head": 6, "vocab_size": 523, "n_positions": 64}
BERT = {
    "model_type": "bert",
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "vocab_size": 523,
    "max_position_embeddings": 64,
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 344,
    "num_local_experts": 4,
}


def setting(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a setting of `record.trace`: bf16, eager attention, AdamW foreach, b2 s33."""
    usual = {
        "config": config,
        "task": "mlm" if config["model_type"] == "bert" else "causal",
        "dtype": "bf16",
        "autocast": None,
        "attention": "eager",
        "checkpointing": False,
        "lora": None,
        "optimizer_impl": "foreach",
        "accumulation": 1,
        "batch": 2,
        "seq": 33,
    }
    return usual | changes


class Mlp(nn.Module):
    """Embedding, two residual blocks with LayerNorm, a head tied to nothing; returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(300, 64)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(2))
        self.ups = nn.ModuleList(nn.Linear(64, 200) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(200, 64) for _ in range(2))
        self.head = nn.Linear(64, 300, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the mean loss of predicting the tokens themselves."""
        x = self.embedding(ids)
        for norm, up, down in zip(self.norms, self.ups, self.downs):
            x = x + down(torch.nn.functional.gelu(up(norm(x))))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


class Shared(nn.Module):
    """One tensor with three readers, one of them through a transposed view: gradients that cannot be added in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)

    def forward(self, ids: Tensor) -> Tensor:
        """Return a scalar."""
        x = self.first(ids.float())
        a, b = x * 2, x * 3
        return (a + b + (a * 4 + b * 5) + (self.second(x).t() + x.t()).t()).square().mean()


class Gather(nn.Module):
    """Indexing, sorting and maxima: backwards that write into new zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)

    def forward(self, ids: Tensor) -> Tensor:
        """Return a scalar."""
        x = self.first(ids.float())
        rows = torch.arange(8, device=ids.device)
        columns = rows.view(8, 1).expand(8, 64)
        best = x.topk(4, dim=-1).values.sum() + x.max(dim=-1).values.sum() + x.min(dim=-1).values.sum()
        return best + x[rows].sum() + x.index_select(0, rows).sum() + x.gather(0, columns).sum()


class Losses(nn.Module):
    """Losses whose results or backwards are not what they seem."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)

    def forward(self, ids: Tensor) -> Tensor:
        """Return a scalar whose storage holds all elements."""
        x = self.first(ids.float())
        y = nn.functional.binary_cross_entropy_with_logits(x, x.detach().sigmoid()) * x
        # A product after all, so that the kernels' own temporaries are not the peak.
        z = (y @ y) @ (x @ x) + (x * y) @ (y * x)
        return nn.functional.mse_loss(z, x)


class Pictures(nn.Module):
    """A residual block, and a level down and up again: convolutions, two sorts of norms, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.down = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(4, 32), nn.SiLU())
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.head = nn.Linear(16, 10)

    def forward(self, ids: Tensor) -> Tensor:
        """Return a scalar; ids: batch × 768, pictures of 16 × 16."""
        x = self.stem(ids.float().view(-1, 3, 16, 16))
        x = torch.relu(x + self.block(x))
        x = nn.functional.max_pool2d(x + self.up(self.down(x)), 2)
        return nn.functional.cross_entropy(self.head(x.mean((2, 3))), ids[:, 0] % 10)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, int]]] = {
    "mlp": (Mlp, (3, 17)),
    "shared": (Shared, (64, 64)),
    "gather": (Gather, (64, 64)),
    "losses": (Losses, (64, 64)),
    "pictures": (Pictures, (8, 768)),
}


def module_differences(name: str) -> list[tuple[str, int, int]]:
    """Trace a module on the fake CPU and run it; return what differs."""
    from real_cpu import real, traced, unlike

    make, shape = MODULES[name]
    step = Step(loss=lambda output: output)

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), foreach=True)

    with torch.device("meta"):
        meta = make()
    fake = traced(meta, lambda: {"ids": torch.zeros(shape, dtype=torch.int64)}, optimizer, step)
    model = make()
    torch.backends.mkldnn.enabled = False
    return unlike(fake, real(model, {"ids": torch.randint(0, 60, shape)}, optimizer(model), step))


def record_differences(of: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Trace a setting on the fake CPU and run it; return what differs."""
    from real_cpu import differences

    torch.set_num_threads(1)
    return differences(of)


def events_of(function: Callable[[], object], gpu: GPU | None = None) -> list[int]:
    """Return the allocations and releases of a function on the fake GPU."""
    fake_gpu.set_up(fallback=False)
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(gpu or GPU()) as sdpa, Tracer("cuda", sdpa) as tracer:
        tracer.enter("forward")
        function()
        tracer.close()
    return [change for _, change in tracer.events]


def traced_module(name: str) -> dict[str, Any]:
    """Return the record of a module's step on the fake GPU, with module names in `largest_at_peak`."""
    make, shape = MODULES[name]
    fake = fake_gpu.set_up(fallback=False)
    with torch.device("meta"):
        model = make()
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(GPU()) as sdpa:
        hf.move(model, fake.device)
        tracer = Tracer(fake.device, sdpa)
        batch = {"ids": torch.zeros(shape, dtype=torch.int64, device=fake.device)}
        run(tracer, model, batch, torch.optim.AdamW(model.parameters()), Step(loss=lambda output: output))
    return summary(tracer, events=True)


trace = record.trace
