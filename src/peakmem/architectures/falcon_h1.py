"""Falcon-H1, as transformers 5.24 runs it (models/falcon_h1/modeling_falcon_h1.py).

Mamba 2 and attention side by side in every layer; a multiplication at every joint makes a tensor, also by 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    attention_rows,
    buffer,
    embedding,
    gated_rows,
    lm_head,
    rms_norm,
    rotary_buffers,
)
from peakmem.architectures.nemotron_h import mixer_rows, scanned
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.layout import dims
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, cast, mean_last, mul, rsqrt, scale, shift, square
from peakmem.estimate.positions import positions, rotary, rotate
from peakmem.estimate.shapes import split_heads, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, project, rms, weight

MIRRORS = "transformers 5.24.0 models/falcon_h1/modeling_falcon_h1.py, without mamba-ssm and causal-conv1d"

PROJECTED = "2*am*em+2*Gm*o+am"


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m))
    yield from rms_norm("model.final_layernorm")
    yield from rotary_buffers(m)
    yield from lm_head(m)


def block_rows(m: Structure) -> Iterator[Row]:
    yield from gated_rows(m.has("mlp_bias"), "feed_forward")
    yield from mixer_rows(m, "mamba", m.has("mixer_norm"), m.has("mixer_output_bias"))
    yield from buffer("mamba.mup_vector", f"1 1 {PROJECTED}")
    yield from attention_rows(m.has("attention_bias"))
    yield from rms_norm("input_layernorm")
    yield from rms_norm("pre_ff_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    """The decoder. Its loop keeps what the last layer returns."""
    with scope("model"):
        x = inputs_embeds = scale(embed(ids, "embed_tokens"), "embeddings, scaled")
        position_ids = positions()
        mask = causal_mask(m, x.dtype)
        tables = rotary(m, x.dtype)
        for _ in m.layers("layers"):
            x = m.layer(block, x, mask, position_ids, tables)
        outputs = x
        x = rms(x, "final_layernorm")
        del inputs_embeds, outputs
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    residual = x
    x = rms(x, "input_layernorm")
    mixed = mixer(m, x)
    mixed = scale(mixed, "output of the mixer, scaled")
    attended, probabilities = attention(m, scale(x, "input of attention, scaled"), *tables, mask)
    attended = scale(attended, "output of attention, scaled")
    x = add(mixed, attended)
    x = residual + x
    residual = x
    x = rms(x, "pre_ff_layernorm")
    x = mlp(m, x)
    x = residual + x
    del probabilities, mixed, attended
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """FalconH1Attention: Llama's, the keys times a number."""
    with scope("self_attn"):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = scale(split_heads(project(x, "k_proj"), "b k s d"), "keys, scaled")
        v = split_heads(project(x, "v_proj"), "b k s d")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        return project(out, "o_proj"), probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    """FalconH1MLP."""
    with scope("feed_forward"):
        y = project(x, "up_proj") * activation(scale(project(x, "gate_proj"), "gate, scaled"), m.activation)
        y = scale(project(y, "down_proj"))
        return y


def mixer(m: Structure, x: Tensor) -> Tensor:
    """FalconH1Mixer: the projected input times a vector; the output gated, with a norm or without one."""
    with scope("mamba"):
        dtype = x.dtype
        given = [scale(x, "input, scaled")]
        projected = project(given[0], "in_proj")
        factors = Tensor(dims(f"1 1 {PROJECTED}"), m.buffer_dtype, (PROJECTED,), None)
        projected = mul(projected, factors, "projected, scaled")
        normed, single = m.has("mixer_norm"), bool(current().single)
        out, gate, variables = scanned(m, projected, m.activation, given, gates=not normed)
        if normed:
            out = gated_norm(m, out, gate)
        elif not single:
            out = mul(out, activation(gate, "silu"), "gated")
        out = project(cast(out, dtype), "out_proj")
        del variables
        return out


def gated_norm(m: Structure, x: Tensor, gate: Tensor) -> Tensor:
    """FalconH1RMSNormGated: each group by itself; gated before, or after."""
    with scope("norm"):
        dtype = x.dtype
        if not m.has("norm_before_gate"):
            x = mul(x, activation(cast(gate, "fp32", "gate in fp32"), "silu"), "gated")
        x = cast(x, "fp32", "input in fp32")
        x = view(x, "b s Gm (rm em)")
        variance = mean_last(square(x))
        x = mul(x, rsqrt(shift(variance)), "normalised in fp32")
        x = mul(view(weight("weight"), "Gm (rm em)"), x, "output in fp32")
        x = view(x, "b s (Gm rm em)")
        if m.has("norm_before_gate"):
            x = mul(x, activation(cast(gate, "fp32", "gate in fp32"), "silu"), "gated")
        x = cast(x, dtype)
        del variance
        return x
