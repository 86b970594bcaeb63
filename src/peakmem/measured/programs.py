"""The programs behind the rows: whose code of the model ran, which version, and what its loop holds.

A row names its program in `framework` and its place in `source`; the first entry whose words are in both applies.
"""

from __future__ import annotations

from typing import Any

from peakmem.immutable import field, immutable
from peakmem.measured.rows import NotExpressed, Row


@immutable
class Program:
    """One program that was measured. words: all must be in the row's framework and source together."""

    words: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    reason: str = ""  # why it is not expressed
    source: str = ""


_TRAINER = {"clip": True}
PROGRAMS: tuple[Program, ...] = (
    Program(("fms-acceleration", "4.48.1"), {**_TRAINER, "stack": "transformers-4.48"},
            source="fms-acceleration scripts/benchmarks: HF Trainer, max_grad_norm 1.0"),
    Program(("fms-acceleration", "4.45.2"), {**_TRAINER, "stack": "transformers-4.45"},
            source="fms-acceleration scripts/benchmarks: HF Trainer, max_grad_norm 1.0"),
    Program(("HF transformers", "PR 31031"), {"stack": "transformers-4.42", "outputs": "logits+cache"},
            source="the pull request's loop: outputs = model(**inputs); outputs.logits.sum().backward()"),
    Program(("HF transformers", "PR 33298"), {"stack": "transformers-4.46", "outputs": "logits+cache"},
            source="the same loop"),
    Program(("HF transformers", "PR 28802"), {"stack": "transformers-4.42", "outputs": "logits"},
            source="the same loop; an encoder returns no cache"),
    Program(("LitGPT", "finetune"), {"implementation": "litgpt", "loss": "pieces"}),
    Program(("LitGPT", "resource-tables"), {"implementation": "litgpt", "loss": "pieces"}),
    Program(("LitGPT", "quantize"), {"implementation": "litgpt"}),
    Program(("torchtune",), {"implementation": "torchtune", "loss": "torchtune"}),
    Program(("torchvision",), {"implementation": "torchvision"}),
    Program(("timm",), {"implementation": "timm"}),
    Program(("transformers 4.51",), {}),
    Program(("vLLM",), {}),
    Program(("llm.c",), reason="llm.c's buffers are laid out by hand: no PyTorch runs"),
)


def program_of(row: Row) -> Program:
    """The program that a row is of. Errors: NotExpressed."""
    text = f"{row['framework']} {row['source']}"
    for program in PROGRAMS:
        if all(word in text for word in program.words):
            if program.reason:
                raise NotExpressed(program.reason)
            return program
    return Program(())
