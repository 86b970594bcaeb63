"""Operations to which a fake tensor has no answer, and why not."""

from __future__ import annotations

import re
from typing import NoReturn

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from .process import TraceError

DENSE = "a trace knows dense tensors only (sparse=False, .to_dense())"
# The words of torch.library.custom_op, and of torch's own operators, whose real kernel is then tried on zeros.
_NO_RULE = re.compile("There was no fake impl registered|Could not run '")


def why_unanswerable(error: Exception, operation: str) -> str:
    """Return why an operation cannot run on fake tensors; empty if the error is another one."""
    if isinstance(error, UnsupportedOperatorException) or _NO_RULE.search(str(error)):
        if operation.startswith("aten::") and "sparse" in operation:
            return DENSE
        mend = "" if operation.startswith("aten::") else " (torch.library.register_fake gives it one)"
        return f"the operator has no fake kernel{mend}"
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return "the size of its result depends on values, which a fake tensor does not have"
    return ""


def refuse_layout(tensor: torch.Tensor, what: str) -> NoReturn:
    """Refuse a sparse or a nested tensor; `what` makes, takes or holds it. Raises `TraceError`."""
    if tensor.is_nested:
        refuse_nested(what)
    raise TraceError(f"{what} a sparse tensor ({str(tensor.layout).removeprefix('torch.')}), whose size depends on "
                     f"values: {DENSE}")


def refuse_nested(what: str) -> NoReturn:
    """Refuse a nested tensor; `what` makes, takes or holds it. Raises `TraceError`."""
    raise TraceError(f"{what} a nested tensor, whose size depends on values: a trace knows dense tensors only (pad "
                     "to the longest, torch.nested.to_padded_tensor)")
