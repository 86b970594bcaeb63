"""Older code of a stack, where it holds other tensors than the one that is mirrored by default.

A row names what differs, in words that forward code asks for (`m.has(...)`), and where it was read. `--stack` takes
its name.

shifted_logits     the loss copies the logits without their last position, contiguous, in fp32
float_logits       the head's result is made fp32 at once, and that is what the model returns
whole_recompute    use_reentrant: a layer that is run again runs to its end, and its result is held until its backward
                   is over (the default of transformers 4)
packed_inputs_kept bitsandbytes' 4-bit layers keep their input
always_dequantised … and dequantise the matrix for any number of rows
heads_copied       OPT copies queries, keys and values head by head; eager scores are kept before the floor
fused_kernels      norms and rotary positions in one kernel each, gradients written where the incoming ones lie
composite_norms    nn.RMSNorm runs as a composite in fp32 (torch before 2.9)
repeated_heads     torchtitan copies keys and values for every query head
float_rotary       GPT-NeoX turns queries and keys in fp32; its layers have a mask and rotary tables of their own
"""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.errors import UnknownName
from peakmem.immutable import immutable


@immutable
class Stack:
    """One version of somebody's code, by what differs from the code that is mirrored by default."""

    name: str
    title: str
    switches: frozenset[str]
    source: str


_SHIFT = frozenset({"shifted_logits", "whole_recompute"})
_OPT = _SHIFT | {"heads_copied"}
_FLOAT = _OPT | {"float_logits"}

STACKS: Mapping[str, Stack] = {row.name: row for row in (
    Stack("current", "the code that each architecture mirrors", frozenset(), ""),
    Stack("bitsandbytes-0.42", "4-bit layers keep their input, though no gradient needs it",
          frozenset({"packed_inputs_kept", "always_dequantised"}),
          "bitsandbytes 0.41.3 and 0.42.0 autograd/_functions.py, MatMul4Bit.forward: ctx.tensors = (A, B)"),
    Stack("transformers-4.48", "logits shifted by a copy in the loss", _SHIFT,
          "transformers 4.48.1 loss/loss_utils.py, ForCausalLMLoss"),
    Stack("transformers-4.46", "as 4.48; OPT copies queries, keys and values head by head", _OPT,
          "transformers 4.46.3 loss/loss_utils.py, ForCausalLMLoss; models/opt/modeling_opt.py, OPTAttention"),
    Stack("transformers-4.45", "logits made fp32 by the model, then shifted by a copy", _FLOAT,
          "transformers 4.45.2 models/llama/modeling_llama.py, LlamaForCausalLM.forward"),
    Stack("torchtitan-2024", "torchtitan of December 2024: norms written out in fp32, keys and values repeated",
          frozenset({"composite_norms", "repeated_heads"}),
          "torch 2.6 native/layer_norm.cpp, rms_norm; torchtitan 9dec370 models/llama/model.py, repeat_kv"),
    Stack("foak-4.48", "as transformers-4.48, with Unsloth's norms and rotary positions", _SHIFT | {"fused_kernels"},
          "fms-acceleration-foak 0.7.4 kernels/unsloth/rms_layernorm.py and rope_embedding.py"),
    Stack("foak-4.45", "as transformers-4.45, with Unsloth's norms and rotary positions", _FLOAT | {"fused_kernels"},
          "fms-acceleration-foak 0.7.4 kernels/unsloth/rms_layernorm.py and rope_embedding.py"),
    Stack("transformers-4.42", "as 4.45; GPT-NeoX turns queries and keys in fp32, with buffers in every layer",
          _FLOAT | {"float_rotary"},
          "transformers 4.42.4 models/gpt_neox/modeling_gpt_neox.py, GPTNeoXAttention"),
)}

OWN_DTYPE = frozenset({"gpt2", "gpt_bigcode", "gpt_neox", "gptj", "opt", "bloom", "falcon", "mpt", "stablelm"})
"""Models that, in these versions, compute the loss in the logits' own dtype."""


def find_stack(name: str) -> Stack:
    """The row of a stack. Errors: UnknownName."""
    if name not in STACKS:
        raise UnknownName("stack", name, STACKS)
    return STACKS[name]
