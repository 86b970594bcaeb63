"""DeepSeek-V3 and Kimi-K2, as transformers 5.24 runs them (models/deepseek_v3/modeling_deepseek_v3.py).

Multi-head latent attention: queries, keys and values come from small latents, and the latents are what is cached.
A few dense layers first, then experts, some of which every token meets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, linear, lm_head, rms_norm
from peakmem.architectures.llama import mlp
from peakmem.architectures.mixtral import expert_rows, moe_lm, router_rows
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.attention import attend
from peakmem.estimate.experts import experts
from peakmem.estimate.inference import cached
from peakmem.estimate.layout import dims
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import activation, add
from peakmem.estimate.positions import positions, rotary_table, rotate
from peakmem.estimate.rotary_pairs import rotate_pairs
from peakmem.estimate.routers import group_router
from peakmem.estimate.shapes import cat, expand, split, split_heads, swap, view
from peakmem.estimate.slices import put
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, project, rms

MIRRORS = "transformers 5.24.0 models/deepseek_v3/modeling_deepseek_v3.py, experts implementation grouped_mm"

Turn = Callable[[Structure, Tensor, Tensor, tuple[Tensor, ...]], tuple[Tensor, Tensor]]
Route = Callable[[Structure, Tensor], tuple[Tensor, Tensor, Tensor]]


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.norm")
    for name in ("inv_freq", "original_inv_freq"):
        yield from buffer(f"model.rotary_emb.{name}", "dr/2", "fp32")
    yield from lm_head(m)


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from attention_rows(m)
    yield from dense_rows(m.has("mlp_bias")) if kind == "dense" else sparse_rows(m)
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def attention_rows(m: Structure) -> Iterator[Row]:
    """Multi-head latent attention's matrices and norms."""
    biased = m.has("attention_bias")
    if m.has("query_latent"):
        yield from linear("self_attn.q_a_proj", "lq", "h", biased)
        yield from rms_norm("self_attn.q_a_layernorm", "lq")
        yield from linear("self_attn.q_b_proj", "(a d)", "lq")
    else:
        yield from linear("self_attn.q_proj", "(a d)", "h")
    yield from linear("self_attn.kv_a_proj_with_mqa", "lk+dr", "h", biased)
    yield from rms_norm("self_attn.kv_a_layernorm", "lk")
    yield from linear("self_attn.kv_b_proj", "(a dn+dv)", "lk")
    yield from linear("self_attn.o_proj", "h", "(a dv)", biased)


def sparse_rows(m: Structure) -> Iterator[Row]:
    """Experts, their router in fp32, and the feed-forward that every token meets."""
    yield from expert_rows(m, "mlp.experts")
    yield from router_rows(m, "mlp.gate", "fp32")
    if m.has("correction_bias"):
        yield from buffer("mlp.gate.e_score_correction_bias", "E", "fp32")
    yield from dense_rows(m.has("mlp_bias"), "mlp.shared_experts", "y")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids, table, turn, group_router))


def model(m: Structure, ids: Tensor, table: Callable[[str], tuple[Tensor, ...]], turn: Turn, route: Route) -> Tensor:
    """The decoder. table: what it knows of the positions; turn: how queries and keys meet it."""
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask, = layer_masks(m, x.dtype, ("full",)).values()
        turned = table(x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, turned, mask, position_ids, turn, None if kind == "dense" else route)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, turned: tuple[Tensor, ...], mask: Tensor | None, position_ids: Tensor, turn: Turn,
          route: Route | None) -> Tensor:
    return llama.pre_norm(x, lambda x: attention(m, x, turned, mask, turn),
                          lambda x: mlp(m, x) if route is None else moe(m, x, route))


def attention(m: Structure, x: Tensor, turned: tuple[Tensor, ...], mask: Tensor | None,
              turn: Turn) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = split_heads(queries(m, x), "b a s d")
        q_pass, q_rot = split(q, 3, ["dn", "dr"])
        compressed = project(x, "kv_a_proj_with_mqa")
        latent, k_rot = split(compressed, 2, ["lk", "dr"])
        latent = view(rms(latent, "kv_a_layernorm"), "b 1 s lk")
        k_rot = view(k_rot, "b 1 s dr")
        q_rot, k_rot = turn(m, q_rot, k_rot, turned)
        latent, k_rot = cached(m, latent, k_rot)
        query = cat([q_pass, q_rot], "b a s d", "queries")
        keys, values = expanded(latent, k_rot)
        x, probabilities = attend(m, query, keys, values, mask)
        return project(x, "o_proj"), probabilities


def queries(m: Structure, x: Tensor) -> Tensor:
    """One matrix, or two with a norm between."""
    if not m.has("query_latent"):
        return project(x, "q_proj")
    return project(rms(project(x, "q_a_proj"), "q_a_layernorm"), "q_b_proj")


def expanded(latent: Tensor, k_rot: Tensor) -> tuple[Tensor, Tensor]:
    """expand_kv: keys and values of every head from the latents; all heads share the turned part of the keys."""
    positions = latent.dims[2]
    both = view(project(latent, "kv_b_proj"), (("b",), positions, ("a",), ("dn+dv",)))
    both = swap(both, (("b",), ("a",), positions, ("dn+dv",)))
    k_pass, values = split(both, 3, ["dn", "dv"])
    k_rot = expand(k_rot, (("b",), ("a",), positions, ("dr",)))
    keys = current().new((("b",), ("a",), positions, ("d",)), both.dtype, None, f"{current().scope}/keys")
    keys = put(keys, 3, k_pass)
    keys = put(keys, 3, k_rot)
    return keys, values


def table(dtype: str) -> tuple[Tensor, ...]:
    """Cosine and sine of each position."""
    return rotary_table(dtype, "dr/2", "dr")


def turn(m: Structure, q: Tensor, k: Tensor, turned: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb, on pairs of neighbours or on halves."""
    cos, sin = turned
    if m.has("interleaved_rope"):
        return rotate_pairs(q, k, cos, sin, "dr")
    return rotate(q, cos, sin, "dr/2"), rotate(k, cos, sin, "dr/2")


def moe(m: Structure, x: Tensor, route: Route) -> Tensor:
    """DeepseekV3MoE: chosen experts and shared ones. The router's logits live until it returns."""
    with scope("mlp"):
        residuals = x
        logits, weights, numbers = route(m, x)
        x = view(x, "(b s) h")
        x = view(experts(m, x, numbers, weights), dims("b s h"))
        x = add(x, shared_experts(m, residuals))
        del logits, weights, numbers, residuals
        return x


def shared_experts(m: Structure, x: Tensor) -> Tensor:
    with scope("shared_experts"):
        return project(activation(project(x, "gate_proj"), m.activation) * project(x, "up_proj"), "down_proj")
