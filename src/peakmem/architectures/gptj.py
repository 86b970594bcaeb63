"""GPT-J, as transformers 5.24 runs it (models/gptj/modeling_gptj.py): neighbours are turned, scores are fp32."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.architectures.phi import biased_head
from peakmem.estimate import weights
from peakmem.estimate.attention import attend, keys_as, matmul, merged
from peakmem.estimate.inference import cached
from peakmem.estimate.interleaved import repeated_twice, rotate_pairs
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, cast, dropout, scale, softmax
from peakmem.estimate.positions import made, part_and_rest, positions, rotary_size
from peakmem.estimate.shapes import cat, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/gptj/modeling_gptj.py"


def define(m: Structure) -> Definition:
    yield from embedding("transformer.wte", "V", "h")
    yield Layers("transformer.h", lambda kind: block_rows())
    yield from layer_norm("transformer.ln_f")
    yield from buffer("transformer.rotary_emb.embed_positions", f"P {rotary_size(m)}", "fp32")
    yield from biased_head(m)


def block_rows() -> Iterator[Row]:
    yield from layer_norm("ln_1")
    for name in ("k_proj", "v_proj", "q_proj"):
        yield from linear(f"attn.{name}", "(a d)", "h")
    yield from linear("attn.out_proj", "h", "(a d)")
    yield from linear("mlp.fc_in", "f", "h", True)
    yield from linear("mlp.fc_out", "h", "f", True)


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "transformer.wte")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("transformer"):
        inputs_embeds = embed(ids, "wte")
        position_ids = positions()
        mask = causal_mask(m, inputs_embeds.dtype)
        x = inputs_embeds
        x = dropout(x, m.drops("embedding"))
        table = cast(made(f"1 s {rotary_size(m)}", "fp32", "sines and cosines"), x.dtype)
        for _ in m.layers("h"):
            x = m.layer(block, x, mask, position_ids, table)
        x = weights.layer_norm(x, "ln_f")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor, table: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "ln_1")
    attended, _ = attention(m, x, mask, table)
    fed_forward = mlp(m, x)
    return add(add(attended, fed_forward), residual)


def attention(m: Structure, x: Tensor, mask: Tensor | None, table: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("attn"):
        q = view(project(x, "q_proj"), "b s a d")
        k = view(project(x, "k_proj"), "b s a d")
        v = swap(view(project(x, "v_proj"), "b s a d"), "b a s d")
        part = rotary_size(m)
        k_part, k_rest = part_and_rest(k, part)
        q_part, q_rest = part_and_rest(q, part)
        k_part = turned(k_part, table, part)
        q_part = turned(q_part, table, part)
        k = cat([k_part, k_rest], k.dims, "rotated and rest")
        q = cat([q_part, q_rest], q.dims, "rotated and rest")
        q, k = swap(q, "b a s d"), swap(k, "b a s d")
        k, v = cached(m, k, v)
        run = eager if m.kernel() == "eager" else attend
        out, probabilities = run(m, q, k, v, mask)
        out = project(out, "out_proj")
        out = dropout(out, m.drops("hidden"))
        return out, probabilities


def turned(x: Tensor, table: Tensor, part: str) -> Tensor:
    """apply_rotary_pos_emb: sines and cosines are written out twice in a row, for every layer anew."""
    sin = repeated_twice(table, part, "sines")
    cos = repeated_twice(table, part, "cosines")
    return rotate_pairs(x, cos, sin, f"{part}/2")


def eager(m: Structure, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """eager_attention_forward of modeling_gptj.py: scores and softmax in fp32."""
    keys, values = keys_as(k), keys_as(v)
    b, a, t, d = keys.dims
    scores = scale(matmul(cast(q, "fp32"), swap(cast(keys, "fp32"), (b, a, d, t))), "scores, scaled")
    if mask is not None:
        scores = add(scores, mask, "scores, masked")
    probabilities = cast(softmax(scores), v.dtype, "probabilities")
    del scores
    probabilities = dropout(probabilities, m.drops("attention"))
    return merged(matmul(probabilities, values)), probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        x = project(x, "fc_in")
        x = activation(x, m.activation)
        x = project(x, "fc_out")
        return dropout(x, m.drops("hidden"))
