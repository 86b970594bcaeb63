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
    reading: str = ""  # which of our numbers its figure is, where the counter's name does not say it
    autocast: str = ""  # which runs are under autocast though their weights have 16 bits: "packed" bases, or "all"
    liger: dict[str, Any] = field(default_factory=dict, hash=False)  # where Liger's kernels are on
    kbit: str = "yes"  # how kbit preparation is done where a row names it
    prompt: int = 0  # tokens of the prompt that runs where none is given
    source: str = ""


_TRAINER = {"clip": True, "lora_dropout": 0.1}
_FMS = ("fms-acceleration scripts/benchmarks: TRL's SFTTrainer, max_grad_norm 1.0; scenarios.yaml: lora_dropout 0.1, "
        "and bf16 or fp16 (autocast) wherever the base is quantised")
_FOAK = _FMS + "; fms-acceleration-foak's kernels; scenarios-liger.yaml: bf16 (autocast) for every run"
_TITAN = {"implementation": "torchtitan", "stack": "torchtitan-2024"}
_TITANS = ("torchtitan train.py: `pred = model(…); loss = loss_fn(pred, labels); del pred`; parallelize_llama: a unit "
           "for each layer and one for the rest")
_GENERATES: dict[str, Any] = {"implementation": "litgpt", "kv_cache": "static"}
_PROMPT = "litgpt generate/base.py: the cache is made for all tokens; the default prompt has about six"
PROGRAMS: tuple[Program, ...] = (
    Program(("fms-acceleration", "4.48.1", "foak"), {**_TRAINER, "stack": "foak-4.48"}, autocast="packed", kbit="trl",
            source=_FOAK),
    Program(("fms-acceleration", "4.45.2", "foak"), {**_TRAINER, "stack": "foak-4.45"}, autocast="all", kbit="trl",
            source=_FOAK),
    Program(("fms-acceleration", "4.48.1"), {**_TRAINER, "stack": "transformers-4.48"}, autocast="packed", kbit="trl",
            source=_FMS),
    Program(("fms-acceleration", "4.45.2"), {**_TRAINER, "stack": "transformers-4.45"}, autocast="packed", kbit="trl",
            source=_FMS),
    Program(("HF transformers", "PR 31031"), {"stack": "transformers-4.42", "outputs": "logits+cache"},
            source="the pull request's loop: outputs = model(**inputs); outputs.logits.sum().backward()"),
    Program(("HF transformers", "PR 33298"), {"stack": "transformers-4.46", "outputs": "logits+cache"},
            source="the same loop"),
    Program(("HF transformers", "PR 28802"), {"stack": "transformers-4.42", "outputs": "logits"},
            source="the same loop; an encoder returns no cache"),
    Program(("LitGPT", "inference table"), _GENERATES, prompt=6, source=_PROMPT),
    Program(("LitGPT", "quantize.md"), _GENERATES, prompt=6, source=_PROMPT),
    Program(("LitGPT", "inference.md"), _GENERATES, prompt=6, source=_PROMPT),
    Program(("LitGPT", "config_hub"), {"implementation": "litgpt", "loss": "pieces", "outputs": "logits"},
            source="litgpt 0.4.5 finetune/lora.py and full.py, fit: `logits = model(…)` binds the name when the model "
                   "has returned, so the last micro-batch's logits, and their graph, are alive during a forward. "
                   "Samples are cut at 512 tokens: the one before is taken to be as long"),
    Program(("LitGPT", "resource-tables"), {"implementation": "litgpt", "loss": "pieces", "outputs": "logits",
                                           "step": "first", "accumulation": 1},
            source="litgpt finetune/lora.py of 2023: get_batch puts the longest sample into the first micro-batch, and "
                   "no later one is as long; `logits` is still bound while its backward runs"),
    Program(("torchtitan 9dec370",), _TITAN, source=_TITANS),
    Program(("torchtitan 2025-01",), _TITAN, source=_TITANS),
    Program(("stas00", "DeepSpeed"), {}, liger={"implementation": "fused", "attention": "auto"},
            source="stas00/ml-engineering benchmark.py: use_liger_kernel, which also replaces norms, rotary positions "
                   "and the gated activation"),
    Program(("torchtune",), reason="torchtune's own code of the model and of its loss is not built"),
    Program(("torchvision",), reason="torchvision's ViT, with nn.MultiheadAttention, is not built; and these scripts "
            "call zero_grad between forward and backward, which keeps the old gradients alive during the forward"),
    Program(("timm",), reason="timm's ViT is not built, and the whole model was compiled"),
    Program(("transformers 4.51", "Qwen3"), reading="allocated at the end",
            source="QwenLM/Qwen3 speed_benchmark: every figure is weights and cache after the last token and one "
                   "cuBLAS workspace to within 16 MiB, whatever the prompt: neither a prefill's tensors nor the "
                   "copies of torch.cat are in it. The authors' figures for Qwen2.5 are peaks"),
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
