"""Llama with fused kernels.

`--implementation torchtitan` is torchtitan 0.3.0's Llama 3 (models/llama3/model.py and models/common), eager, on one
GPU, positions by default: nn.RMSNorm as one kernel, complex rotary positions from a table in every layer, SwiGLU as
silu and a product. It keeps 12 + 4·k/a + 8·f/h + … bytes per token and hidden unit where transformers keeps 20.
`--implementation fused` is the same with Liger's SwiGLU, which keeps gate and up but not silu(gate): 2·f/h less.
Parameters have transformers' names, and the loss is what --loss says.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, lm_head, rms_norm
from peakmem.architectures.llama import block_rows
from peakmem.errors import Impossible
from peakmem.estimate.attention import attend
from peakmem.estimate.fused import fused_rms, rotary_prefix, rotate_complex, swiglu
from peakmem.estimate.grouped_heads import repeat_heads
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.norms import rms_cast_last
from peakmem.estimate.ops import activation
from peakmem.estimate.shapes import swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project
from peakmem.immutable import replace

MIRRORS = "torchtitan 0.3.0 models/llama3/model.py; SwiGLU of --implementation fused: liger_kernel 0.8.5 ops/swiglu.py"
RUNS = ("training", "inference")


def define(m: Structure) -> Definition:
    if m.run == "inference" and m.implementation == "torchtitan":
        raise Impossible("--implementation torchtitan has no --run inference: it trains; give transformers or fused")
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: rows(m))
    yield from rms_norm("model.norm")
    if m.run == "inference":  # vLLM's get_rope makes one for all layers, cosines and sines in the weights' dtype
        yield from buffer("model.rotary_emb.cos_sin_cache", "s d")
    yield from lm_head(m)


def rows(m: Structure) -> Iterator[Row]:
    yield from block_rows(m)
    if m.run == "training":
        yield from buffer("self_attn.rope.cache", "s d", "fp32")  # d/2 complex numbers of 8 bytes


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        h = embed(ids, "embed_tokens")
        for _ in m.layers("layers"):
            h = m.layer(block, h)
        h = norm(m, h, "norm")
        return h


def block(m: Structure, x: Tensor) -> Tensor:
    h = x + attention(m, norm(m, x, "input_layernorm"))
    out = h + mlp(m, norm(m, h, "post_attention_layernorm"))
    return out


def norm(m: Structure, x: Tensor, name: str) -> Tensor:
    """nn.RMSNorm: a kernel since torch 2.9, before that a composite that computes in fp32."""
    return rms_cast_last(x, name) if m.has("composite_norms") else fused_rms(x, name)


def attention(m: Structure, x: Tensor) -> Tensor:
    with scope("self_attn"):
        q, k, v = project(x, "q_proj"), project(x, "k_proj"), project(x, "v_proj")
        q, k, v = view(q, "b s a d"), view(k, "b s k d"), view(v, "b s k d")
        q, k = rotate_complex(q, k, rotary_prefix())
        q, k, v = swap(q, "b a s d"), swap(k, "b k s d"), swap(v, "b k s d")
        k, v = cached(m, k, v)
        if m.has("repeated_heads") and m.has("grouped_heads"):
            k, v, m = repeat_heads(k), repeat_heads(v), replace(m, switches=m.switches - {"grouped_heads"})
        out, _ = attend(m, q, k, v, None)
        return project(out, "o_proj")


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        if m.implementation == "fused":
            return project(swiglu(project(x, "gate_proj"), project(x, "up_proj")), "down_proj")
        return project(activation(project(x, "gate_proj"), m.activation) * project(x, "up_proj"), "down_proj")
