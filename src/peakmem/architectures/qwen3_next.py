"""Qwen3-Next, as transformers 5.24 runs it (models/qwen3_next/modeling_qwen3_next.py).

Three layers with a gated delta net, whose state has a fixed size, then one with gated attention; experts, and one
that every token meets, behind a gate of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures.definition import Definition, Row, decoder, linear, rms_norm
from peakmem.architectures.delta_net import gated_delta_net
from peakmem.architectures.mixtral import expert_rows, moe_lm, router_rows
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.attention import attend
from peakmem.estimate.experts import experts, router
from peakmem.estimate.inference import cached
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import activation, add, mul
from peakmem.estimate.positions import positions, rotary, rotate_both
from peakmem.estimate.shapes import reshape, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms_plus_one

MIRRORS = ("transformers 5.24.0 models/qwen3_next/modeling_qwen3_next.py, without fla and causal-conv1d, experts "
           "implementation grouped_mm")


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m, kind))


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from gated_attention_rows(m) if kind.startswith("full") else delta_rows(m)
    yield from dense_rows() if "dense" in kind else sparse_rows(m)
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def gated_attention_rows(m: Structure) -> Iterator[Row]:
    """The queries' projection holds a gate for each head as well."""
    biased = m.has("attention_bias")
    yield from linear("self_attn.q_proj", "(a 2 d)", "h", biased)
    yield from linear("self_attn.k_proj", "(k d)", "h", biased)
    yield from linear("self_attn.v_proj", "(k d)", "h", biased)
    yield from linear("self_attn.o_proj", "h", "(a d)", biased)
    yield from rms_norm("self_attn.q_norm", "d")
    yield from rms_norm("self_attn.k_norm", "d")


def delta_rows(m: Structure) -> Iterator[Row]:
    """Qwen3NextGatedDeltaNet: queries, keys, values and gate in one projection, b and a in another."""
    yield Row("linear_attn.dt_bias", "av")
    yield Row("linear_attn.A_log", "av")
    yield Row("linear_attn.conv1d.weight", "cc 1 q")
    yield from linear("linear_attn.in_proj_qkvz", "(ak 2*ek+2*rv*ev)", "h")
    yield from linear("linear_attn.in_proj_ba", "(ak 2*rv)", "h")
    yield from rms_norm("linear_attn.norm", "ev")
    yield from linear("linear_attn.out_proj", "h", "(av ev)")


def sparse_rows(m: Structure) -> Iterator[Row]:
    """Experts, and the one that every token meets."""
    yield from router_rows(m, "mlp.gate")
    yield from expert_rows(m, "mlp.experts")
    yield from dense_rows(False, "mlp.shared_expert", "y")
    yield from linear("mlp.shared_expert_gate", "1", "h")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids, lambda x: gated_delta_net(m, x, together=True)))


def model(m: Structure, ids: Tensor, mixer: Callable[[Tensor], Tensor],
          table: Callable[[Structure, str], tuple[Tensor, Tensor]] = rotary, name: str = "model",
          inputs_embeds: Tensor | None = None, numbers: Tensor | None = None) -> Tensor:
    """The decoder. mixer: its delta net; table: its rotary positions; name: where it lies; inputs_embeds, numbers: what
    stands for the tokens' own embeddings and positions."""
    with scope(name):
        if inputs_embeds is None:
            inputs_embeds = embed(ids, "embed_tokens")
        x = inputs_embeds
        position_ids = positions() if numbers is None else None
        mask, = layer_masks(m, x.dtype, ("full",), numbers is None).values()
        cos, sin = table(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, cos, sin, mask if kind.startswith("full") else None, position_ids, kind, mixer)
        x = rms_plus_one(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor | None,
          kind: str, mixer: Callable[[Tensor], Tensor]) -> Tensor:
    residual = x
    x = rms_plus_one(x, "input_layernorm")
    probabilities = None
    if kind.startswith("full"):
        x, probabilities = attention(m, x, cos, sin, mask)
    else:
        x = mixer(x)
    x = residual + x
    residual = x
    x = rms_plus_one(x, "post_attention_layernorm")
    x = moe(m, x) if m.has("experts") and "dense" not in kind else mlp(m, x, "mlp")
    x = residual + x
    del probabilities
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Qwen3NextAttention: each head's output is multiplied with a gate."""
    with scope("self_attn"):
        q, gate = split(view(project(x, "q_proj"), "b s a (2 d)"), 3, ["d", "d"])
        gate = reshape(gate, "b s (a d)")
        q = swap(rms_plus_one(view(q, "b s a d"), "q_norm"), "b a s d")
        k = swap(rms_plus_one(view(project(x, "k_proj"), "b s k d"), "k_norm"), "b k s d")
        v = swap(view(project(x, "v_proj"), "b s k d"), "b k s d")
        q, k = rotate_both(m, q, k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        x = mul(x, activation(gate, "sigmoid"), "output, gated")
        return project(x, "o_proj"), probabilities


def mlp(m: Structure, x: Tensor, name: str) -> Tensor:
    with scope(name):
        return project(activation(project(x, "gate_proj"), m.activation) * project(x, "up_proj"), "down_proj")


def moe(m: Structure, x: Tensor) -> Tensor:
    """Qwen3NextSparseMoeBlock: the shared expert first, its gate after the others."""
    with scope("mlp"):
        shape = x.dims
        x = view(x, "(b s) h")
        shared = mlp(m, x, "shared_expert")
        logits, weights, numbers = router(m, x, keeps_dtype=True)
        output = experts(m, x, numbers, weights)
        shared = mul(activation(project(x, "shared_expert_gate"), "sigmoid"), shared, "shared expert, gated")
        output = add(output, shared)
        output = reshape(output, shape)
        del logits, weights, numbers
        return output
