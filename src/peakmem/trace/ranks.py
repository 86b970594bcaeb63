"""One rank of many, without the others: a fake process group.

FSDP2 and DTensor run in one process on the fake device; collectives return at once and move nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import _disable_current_modes

from .streams import ANSWERS

_MESH_METHODS = (
    "__init__",
    "__getitem__",
    "_flatten",
    "_unflatten",
    "_concatenate",
    "get_local_rank",
    "get_coordinate",
)


@contextmanager
def ranks(count: int) -> Iterator[DeviceMesh]:
    """Make this process rank 0 of `count` while the context lasts; yields the mesh of all.

    Enter it before fake mode: a mesh holds real tensors.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    with ExitStack() as stack:

        def patch(target: object, name: str, value: object) -> None:
            stack.enter_context(mock.patch.object(target, name, value, create=True))

        # Fake tensors made of numbers are lifted on the CPU where there is no device to make them on.
        patch(FakeTensorMode, "avoid_device_init", not torch.cuda.is_available())
        for name, answer in ANSWERS.items():
            patch(torch.cuda, name, answer)
        patch(torch.accelerator, "current_stream", ANSWERS["current_stream"])  # finalize_backward asks here
        patch(torch.cuda, "current_device", lambda: 0)
        patch(torch.cuda, "device_count", lambda: count)
        patch(torch.cuda, "set_device", lambda device: None)
        patch(torch.cuda, "is_available", lambda: True)
        for name in _MESH_METHODS:
            if hasattr(DeviceMesh, name):
                patch(DeviceMesh, name, _outside_modes(getattr(DeviceMesh, name)))
        # DTensor learns an operation's shapes once by running it on whole tensors, which are nobody's memory.
        learn = "_propagate_tensor_meta_non_cached"
        patch(ShardingPropagator, learn, _outside_modes(getattr(ShardingPropagator, learn)))
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)
        stack.callback(dist.destroy_process_group)
        patch(dist, "init_process_group", lambda *args, **kwargs: None)  # a script's own; the group is there
        yield init_device_mesh("cuda", (count,))


def _outside_modes(method: Any) -> Any:
    # A mesh's table of ranks is a real tensor; fake tensors and the tracer must not see it.
    def call(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily(), _disable_current_modes():
            return method(*args, **kwargs)

    return call
