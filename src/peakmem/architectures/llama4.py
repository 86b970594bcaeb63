"""Llama 4's text model, as transformers 5.24 runs it (models/llama4/modeling_llama4.py, Llama4ForCausalLM).

Attention within chunks; every fourth layer attends to everything and turns nothing. Every expert sees every token,
scaled by the router's score, which is zero for those that were not chosen; one expert more is shared.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, linear, rms_norm, unpacked
from peakmem.errors import Impossible
from peakmem.estimate.attention import attend, bmm
from peakmem.estimate.chunk_mask import chunked_mask
from peakmem.estimate.complex_rotary import complex_table, rotate_complex
from peakmem.estimate.experts import topk
from peakmem.estimate.inference import cached
from peakmem.estimate.inplace import add_into
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.node import Node
from peakmem.estimate.norms import l2_norm, rms_weight_last
from peakmem.estimate.ops import activation, cast, mul, total_over
from peakmem.estimate.positions import made, positions
from peakmem.estimate.shapes import reshape, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, weight

MIRRORS = "transformers 5.24.0 models/llama4/modeling_llama4.py, Llama4ForCausalLM"


def define(m: Structure) -> Definition:
    if any(pattern in ("all-linear", "router") for pattern in m.lora):
        raise Impossible("--lora-targets all-linear: peft puts an adapter on Llama 4's router, whose two results it "
                         "cannot take; name modules, for example q_proj,k_proj,v_proj,o_proj")
    yield from decoder(m, lambda kind: block_rows(m, kind))


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    biased = m.has("attention_bias")
    yield from attention_rows(biased)
    if "dense" in kind:
        yield from mlp_rows("feed_forward", "f")
    else:
        yield Row("feed_forward.experts.gate_up_proj", "E h (2 x)", "expert")
        yield Row("feed_forward.experts.down_proj", "E x h", "expert")
        yield from unpacked(linear("feed_forward.router", "E", "h"))
        yield from mlp_rows("feed_forward.shared_expert", "x")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def mlp_rows(name: str, size: str) -> Iterator[Row]:
    yield from linear(f"{name}.gate_proj", size, "h")
    yield from linear(f"{name}.up_proj", size, "h")
    yield from linear(f"{name}.down_proj", "h", size)


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    """The decoder. The masks are made in the order of a set of words, which differs from run to run."""
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        found = {kind.partition(",")[0] for kind in m.kinds()}
        masks = {kind: make(m, x.dtype) for kind, make in (("full", causal_mask), ("chunked", chunked_mask))
                 if kind in found}
        frequencies = complex_table("d/2")
        for kind in m.layers("layers"):
            x = m.layer(block, x, frequencies, masks[kind.partition(",")[0]], position_ids, kind)
        x = rms_weight_last(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, frequencies: Tensor, mask: Tensor | None, position_ids: Tensor,
          kind: str) -> Tensor:
    residual = x
    x = rms_weight_last(x, "input_layernorm")
    attended, other = attention(m, x, frequencies, mask, "unturned" not in kind)
    x = residual + attended
    residual = x
    x = rms_weight_last(x, "post_attention_layernorm")
    if "dense" in kind:
        x = mlp(m, x, "feed_forward")
    else:
        x, other = moe(m, x)
    x = residual + view(x, residual.dims)
    del other, attended
    return x


def attention(m: Structure, x: Tensor, frequencies: Tensor, mask: Tensor | None,
              turns: bool) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = view(project(x, "q_proj"), "b s a d")
        k = view(project(x, "k_proj"), "b s k d")
        v = swap(view(project(x, "v_proj"), "b s k d"), "b k s d")
        scales = None
        if turns:
            q, k = rotate_complex(q, k, frequencies, cast_last=True)
            if m.has("qk_norm"):
                with scope("qk_norm"):
                    q = l2_norm(q)
                    k = l2_norm(k)
        elif m.has("tuned_scores"):
            scales = score_scales()
            q = cast(mul(q, scales[1], "queries, tuned"), q.dtype)
        q = swap(q, "b a s d")
        k = swap(k, "b k s d")
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask, softmax_in="own")
        return project(x, "o_proj"), probabilities


def score_scales() -> tuple[Tensor, Tensor]:
    """log1p(floor((position + 1) / floor_scale)) · attn_scale + 1: the positions, and one number for each."""
    numbers = made("s", "int64", "arange")
    numbers = made("s", "int64", "positions")
    value = made("s", "fp32", "positions in fp32")
    for step in ("positions + 1", "divided", "floor", "log1p", "scaled", "scales"):
        value = made("s", "fp32", step)
    return numbers, value.seen_as((("b",), ("s",), (), ()))


def mlp(m: Structure, x: Tensor, name: str) -> Tensor:
    with scope(name):
        hidden = activation(project(x, "gate_proj"), m.activation) * project(x, "up_proj")
        return project(hidden, "down_proj")


def moe(m: Structure, x: Tensor) -> tuple[Tensor, Tensor]:
    """Llama4TextMoe: every expert runs on every token."""
    with scope("feed_forward"):
        x = reshape(x, "(b s) h")
        scores, logits = router(x)
        routed_in = repeated(x)
        routed_in = mul(routed_in, reshape(swap(scores, "E (b s)"), "(E b s) 1"), "rows, scaled")
        routed_out = experts(m, routed_in)
        out = mlp(m, x, "shared_expert")
        out = add_into(out, total_over(view(routed_out, "E (b s) h"), 0))
        del scores, routed_in
        return out, logits


def router(x: Tensor) -> tuple[Tensor, Tensor]:
    """Llama4Router: the chosen logits scattered into -inf, then a sigmoid in fp32."""
    logits = project(x, "router")
    with scope("router"):
        values, numbers = topk(logits, "K")
        n = Node("scatter", values)
        scores = n.makes(logits.dims, logits.dtype, None, "chosen logits")
        n.saves(numbers, f"where {n.scope} put the chosen logits")
        n.gradient(0)
        scores = n.output(scores)
        scores = cast(activation(cast(scores, "fp32"), "sigmoid"), logits.dtype, "scores")
        return scores, logits


def repeated(x: Tensor) -> Tensor:
    """x.repeat(E, 1): a copy for every expert; backward sums them (RepeatBackward0)."""
    n = Node("repeat", x)
    out = n.makes((("E", "b", "s"), ("h",)), x.dtype, None, "rows for every expert")
    n.gradient(0)
    return n.output(out)


def experts(m: Structure, x: Tensor) -> Tensor:
    """Llama4TextExperts: two batched products."""
    with scope("experts"):
        x = view(x, "E (b s) h")
        gate_up = bmm(x, weight("gate_up_proj"))
        gate, up = split(gate_up, 2, ["x", "x"])
        x = bmm(mul(up, activation(gate, m.activation), "gated"), weight("down_proj"))
        return view(x, "(E b s) h")
