"""Operations to which a fake tensor has no answer, and why not."""

from __future__ import annotations

import re

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

# The words of torch.library.custom_op, and of torch's own operators, whose real kernel is then tried on zeros.
_NO_RULE = re.compile("There was no fake impl registered|Could not run '")


def why_unanswerable(error: Exception) -> str:
    """Return why an operation cannot run on fake tensors; empty if the error is another one."""
    if isinstance(error, UnsupportedOperatorException) or _NO_RULE.search(str(error)):
        return "the operator has no fake kernel (torch.library.register_fake gives it one)"
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return "the size of its result depends on values, which a fake tensor does not have"
    return ""
