"""Granite 4, as transformers 5.24 runs it (models/granitemoehybrid/modeling_granitemoehybrid.py).

Each layer is Mamba 2 or attention, then a feed-forward that every token meets, with chosen experts beside it or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import jamba, llama
from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    attention_rows,
    embedding,
    linear,
    lm_head,
    rms_norm,
    rotary_buffers,
)
from peakmem.architectures.granitemoe import moe
from peakmem.architectures.mixtral import expert_rows, moe_lm, router_rows
from peakmem.architectures.nemotron_h import mixer, mixer_rows
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, scale
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.shapes import split
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms

MIRRORS = ("transformers 5.24.0 models/granitemoehybrid/modeling_granitemoehybrid.py, without mamba-ssm and "
           "causal-conv1d, experts implementation grouped_mm")


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.norm")
    if not m.has("unturned"):
        yield from rotary_buffers(m)
    yield from lm_head(m)


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")
    if m.has("experts"):
        yield from router_rows(m, "block_sparse_moe.router")
        yield from expert_rows(m, "block_sparse_moe.experts")
    size = shared(m)
    yield from linear("shared_mlp.input_linear", f"(2 {size})", "h")
    yield from linear("shared_mlp.output_linear", "h", size)
    yield from mixer_rows(m, "mamba") if kind == "mamba" else attention_rows(m.has("attention_bias"))


def shared(m: Structure) -> str:
    """The letter of the width of the feed-forward that every token meets."""
    return "y" if m.has("experts") else "f"


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        inputs_embeds = embed(ids, "embed_tokens")
        x = inputs_embeds = scale(inputs_embeds, "embeddings, scaled")
        position_ids = positions()
        mask = causal_mask(m, x.dtype, packed=False)
        tables = None if m.has("unturned") else rotary(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, mask if kind == "full" else None, tables, kind)
        x = rms(x, "norm")
        del inputs_embeds, position_ids
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, tables: tuple[Tensor, Tensor] | None, kind: str) -> Tensor:
    residual = x
    x = rms(x, "input_layernorm")
    probabilities = None
    if kind == "mamba":
        x = mixer(m, x, "mamba", m.activation)
    else:
        x, probabilities = attention(m, x, mask, tables)
    x = residual + scale(x)
    residual = x
    x = rms(x, "post_attention_layernorm")
    chosen = None
    if m.has("experts"):
        chosen = moe(m, x)
        x = add(chosen, mlp(m, x))
    else:
        x = mlp(m, x)
    x = residual + scale(x)
    del probabilities, chosen
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None,
              tables: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor | None]:
    """GraniteMoeHybridAttention: turned only where the file asks for rotary positions."""
    if tables is None:
        return jamba.attention(m, x, mask, "self_attn")
    return llama.attention(m, x, *tables, mask)


def mlp(m: Structure, x: Tensor) -> Tensor:
    """GraniteMoeHybridMLP: gate and up projection in one."""
    with scope("shared_mlp"):
        chunks = split(project(x, "input_linear"), 2, [shared(m), shared(m)])
        x = activation(chunks[0], m.activation) * chunks[1]
        x = project(x, "output_linear")
        del chunks
        return x
