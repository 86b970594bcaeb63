"""Mixtral, as transformers 5.24 runs it (models/mixtral/modeling_mixtral.py): Mistral with experts as feed-forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, linear, rms_norm
from peakmem.architectures.llama import attention
from peakmem.estimate.experts import experts, router
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.positions import positions, rotary_table
from peakmem.estimate.shapes import reshape, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, rms

MIRRORS = "transformers 5.24.0 models/mixtral/modeling_mixtral.py, experts implementation grouped_mm"

FeedForward = Callable[[Structure, Tensor], Tensor]


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows())
    yield from rms_norm("model.norm")
    yield from buffer("model.rotary_emb.inv_freq", "d/2", "fp32")
    yield from buffer("model.rotary_emb.original_inv_freq", "d/2", "fp32")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows() -> Iterator[Row]:
    yield from linear("self_attn.q_proj", "(a d)", "h")
    yield from linear("self_attn.k_proj", "(k d)", "h")
    yield from linear("self_attn.v_proj", "(k d)", "h")
    yield from linear("self_attn.o_proj", "h", "(a d)")
    yield Row("mlp.gate.weight", "E h")
    yield from expert_rows("mlp.experts")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def expert_rows(name: str) -> Iterator[Row]:
    """All experts in two parameters: gate and up projections in one, down projections in the other."""
    yield Row(f"{name}.gate_up_proj", "E (2 x) h")
    yield Row(f"{name}.down_proj", "E h x")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids, lambda kind: moe), "model.embed_tokens")


def model(m: Structure, ids: Tensor, feed_forward: Callable[[str], FeedForward]) -> Tensor:
    """The decoder; feed_forward: what each kind of layer has there."""
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask, = layer_masks(m, x.dtype, ("sliding" if m.has("window") else "full",)).values()
        cos, sin = rotary_table(x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, cos, sin, mask, position_ids, feed_forward(kind))
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor,
          feed_forward: FeedForward) -> Tensor:
    residual = x
    x = rms(x, "input_layernorm")
    x, probabilities = attention(m, x, cos, sin, mask)
    x = residual + x
    residual = x
    x = rms(x, "post_attention_layernorm")
    x = feed_forward(m, x)
    x = residual + x
    del probabilities
    return x


def moe(m: Structure, x: Tensor, keeps_dtype: bool = False) -> Tensor:
    """MixtralSparseMoeBlock. The router's logits live until it returns."""
    with scope("mlp"):
        shape = x.dims
        x = view(x, "(b s) h")
        logits, top_k_weights, top_k_index = router(m, x, keeps_dtype)
        x = experts(m, x, top_k_index, top_k_weights)
        x = reshape(x, shape)
        del logits
        return x
