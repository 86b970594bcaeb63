"""What no tensor of a trace owns: cuBLAS workspaces inside the allocator, the CUDA context outside of it."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.ledger import Line, Totals
from peakmem.tables.device import HANDLES, context, cublas_workspace
from peakmem.tables.gpus import find_gpu

from .reserved import totals
from .tracer import Tracer


class Outside:
    """The memory beside tensors on one GPU; an empty name: workspaces of an sm_80, and no context."""

    def __init__(self, gpu: str = "") -> None:
        self.row = find_gpu(gpu) if gpu else None
        self.workspace, self.source = cublas_workspace(self.row.capability if self.row else "8.0")
        self.context = context(self.row)

    def totals(self, tracer: Tracer, tensors: int) -> Totals:
        """Return all totals of a whole trace, its first step included; the device's only where a GPU is named."""
        allocated, reserved = totals(tracer, self.workspace)
        low, high = self.context.low << 20, self.context.high << 20
        return Totals(tensors, allocated, reserved, (reserved + low, reserved + high) if self.row else None)

    def lines(self) -> Iterator[Line]:
        """Yield a line for the workspaces, and one for the context at its upper end."""
        if self.workspace:
            why = "matrix products share it, one for each of the threads that run forward and backward; it is kept"
            yield Line(
                "cuBLAS workspace",
                "temporary",
                self.workspace,
                HANDLES,
                "",
                "",
                "forward",
                "",
                why,
                self.source,
                scratch=True,
            )
        low, high = self.context.low << 20, self.context.high << 20
        why = f"the driver's, outside the allocator: between {low} and {high} bytes ({self.context.name} GPUs)"
        yield Line("CUDA context", "context", high, 1, "", "", "start", "", why, self.context.source, scratch=True)
