"""Functions as scripts for a GPU, or for many, would have them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


def normed() -> Any:
    """Weights made from other parameters."""
    made = nn.utils.parametrizations.weight_norm(nn.Linear(64, 128))
    return nn.Sequential(made, nn.Linear(128, 4)), torch.empty(8, 64), None, lambda y: y.sum()


def on_the_gpu() -> Any:
    """A script that has a GPU."""
    device = torch.device("cuda", 0)
    model = nn.Sequential(nn.Linear(64, 128).to(device), nn.Linear(128, 4, device="cuda:0")).cuda()
    return model, torch.randn(8, 64).to(0) + torch.zeros(64, device=device), None, lambda y: y.sum()


def at_home() -> Any:
    """The same without one."""
    model = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 4))
    return model, torch.randn(8, 64), None, lambda y: y.sum()


class Insists(nn.Module):
    """Allocates more than an address space holds, on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1 << 20, 1 << 26, device="cpu"))


def insists() -> Any:
    """A module that meta does not help."""
    return Insists(), torch.empty(1)


class Downloads(nn.Module):
    """Fetches its weights."""

    def __init__(self) -> None:
        super().__init__()
        import urllib.request

        urllib.request.urlopen("http://127.0.0.1:9/weights", timeout=5)


def downloads() -> Any:
    """A module that wants a network."""
    return Downloads(), torch.empty(1)


def leaves() -> Any:
    """Ends the process."""
    raise SystemExit(3)


@torch.library.custom_op("peakmem_test::tripled", mutates_args=())
def tripled(x: Tensor) -> Tensor:
    """An operation with a kernel and a shape rule."""
    return x * 3


@tripled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


tripled.register_autograd(lambda context, grad: grad * 3)


class Known(nn.Module):
    """Calls an operation of its own, and a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        return torch.ops.peakmem_test.tripled(self.inner(x)[0]).sum()


def known() -> Any:
    """A module with an operation that says its shape."""
    return Known(), torch.empty(2, 4)


class Gated(nn.Module):
    """A recurrent cell of which torch has no shape rule on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.GRU(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        return self.inner(x)[0].sum()


def gated() -> Any:
    """A module with an operation of torch's that cannot be followed."""
    return Gated(), torch.empty(2, 4)


class Attends(nn.Module):
    """Has taken attention by its name, and chooses its device as scripts do."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 192, dtype=torch.bfloat16)
        self.to("cuda" if torch.cuda.is_available() else "cpu")

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        x = x + torch.tensor([1.0, 2.0], dtype=x.dtype, device=x.device).sum()
        q, k, v = self.inner(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        return scaled_dot_product_attention(q, k, v).sum()


def attends() -> Any:
    """A module that a flash kernel runs."""
    return Attends(), torch.empty(2, 256, 64, dtype=torch.bfloat16)


class Aside(nn.Module):
    """Makes a tensor on another stream."""

    def __init__(self, stream: bool) -> None:
        super().__init__()
        self.inner, self.stream = nn.Linear(64, 64), stream

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        y = self.inner(x)
        side = torch.cuda.Stream() if self.stream else torch.cuda.current_stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = torch.empty(1 << 20, device=x.device)
        return y.sum() + z.sum()


def aside() -> Any:
    """Two streams."""
    return Aside(True), torch.empty(2, 64)


def together() -> Any:
    """One stream."""
    return Aside(False), torch.empty(2, 64)


class Split(nn.Module):
    """Two layers that tensor parallelism divides."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        return self.down(torch.relu(self.up(x))).square().mean()


def split() -> Any:
    """A module divided by its own file."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = Split()
    parallelize_module(model, init_device_mesh("cuda", (8,)), {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model, torch.empty(16, 512)


def replicated() -> Any:
    """A module on every GPU."""
    import torch.distributed as dist

    dist.init_process_group("nccl")
    return nn.parallel.DistributedDataParallel(Split()), torch.empty(16, 512)
