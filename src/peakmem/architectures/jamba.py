"""Jamba, as transformers 5.24 runs it (models/jamba/modeling_jamba.py): Mamba layers, now and then attention."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, linear, rms_norm
from peakmem.architectures.mamba import mixer, mixer_rows
from peakmem.architectures.mixtral import expert_rows, moe_lm, router_rows
from peakmem.estimate.attention import attend
from peakmem.estimate.experts import experts, router
from peakmem.estimate.inference import cached
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import activation
from peakmem.estimate.positions import positions
from peakmem.estimate.shapes import reshape, split_heads, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms

MIRRORS = ("transformers 5.24.0 models/jamba/modeling_jamba.py, without mamba-ssm and causal-conv1d, experts "
           "implementation grouped_mm")


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.final_layernorm")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    if kind.startswith("full"):
        yield from linear("self_attn.q_proj", "(a d)", "h")
        yield from linear("self_attn.k_proj", "(k d)", "h")
        yield from linear("self_attn.v_proj", "(k d)", "h")
        yield from linear("self_attn.o_proj", "h", "(a d)")
    else:
        yield from mixer_rows(m, "mamba", "trained")
    if "dense" in kind:
        yield from linear("feed_forward.gate_proj", "f", "h")
        yield from linear("feed_forward.up_proj", "f", "h")
        yield from linear("feed_forward.down_proj", "h", "f")
    else:
        yield from router_rows(m, "feed_forward.router")
        yield from expert_rows(m, "feed_forward.experts")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("pre_ff_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask, = layer_masks(m, x.dtype, ("full",)).values()
        for kind in m.layers("layers"):
            x = m.layer(block, x, mask if kind.startswith("full") else None, position_ids, kind)
        x = rms(x, "final_layernorm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor, kind: str) -> Tensor:
    residual = x
    x = rms(x, "input_layernorm")
    probabilities = None
    if kind.startswith("full"):
        x, probabilities = attention(m, x, mask, "self_attn")
    else:
        x = mixer(m, x, "mamba", "trained")
    x = residual + x
    residual = x
    x = rms(x, "pre_ff_layernorm")
    x = mlp(m, x) if "dense" in kind else moe(m, x)
    x = residual + x
    del probabilities
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None, name: str) -> tuple[Tensor, Tensor | None]:
    """JambaAttention: it knows no positions."""
    with scope(name):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), "b k s d")
        v = split_heads(project(x, "v_proj"), "b k s d")
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("feed_forward"):
        return project(activation(project(x, "gate_proj"), m.activation) * project(x, "up_proj"), "down_proj")


def moe(m: Structure, x: Tensor) -> Tensor:
    """JambaSparseMoeBlock. The router's logits live until it returns."""
    with scope("feed_forward"):
        shape = x.dims
        x = view(x, "(b s) h")
        logits, top_k_weights, top_k_index = router(m, x, True, "router", as_rows=True)
        x = experts(m, x, top_k_index, top_k_weights)
        x = reshape(x, shape)
        del logits
        return x
