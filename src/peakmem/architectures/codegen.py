"""CodeGen, as transformers 5.24 runs it (models/codegen/modeling_codegen.py): GPT-J with one projection in four parts.

Letters: mp parts, each of queries, values and keys of `as` heads.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.architectures.gptj import eager, mlp
from peakmem.architectures.phi import biased_head
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.interleaved import repeated_twice, rotate_pairs
from peakmem.estimate.layout import dims
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import add, cast, dropout
from peakmem.estimate.positions import made, part_and_rest, positions, rotary_size
from peakmem.estimate.shapes import cat, regroup, reshape, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/codegen/modeling_codegen.py"


def define(m: Structure) -> Definition:
    yield from embedding("transformer.wte", "V", "h")
    yield Layers("transformer.h", lambda kind: block_rows())
    yield from layer_norm("transformer.ln_f")
    yield from buffer("transformer.rotary_emb.embed_positions", f"P {rotary_size(m)}", "fp32")
    yield from biased_head(m)


def block_rows() -> Iterator[Row]:
    yield from layer_norm("ln_1")
    yield from linear("attn.out_proj", "h", "(a d)")
    yield from linear("attn.qkv_proj", "(mp 3 as d)", "h")
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
        table = made(f"1 s {rotary_size(m)}", "fp32", "sines and cosines")
        halves = tuple(table.seen_as(dims(f"1 s {rotary_size(m)}/2")) for _ in ("sin", "cos"))
        del table
        for _ in m.layers("h"):
            x = m.layer(block, x, mask, position_ids, halves)
        x = weights.layer_norm(x, "ln_f")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor,
          halves: tuple[Tensor, ...]) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "ln_1")
    attended, _ = attention(m, x, mask, halves)
    fed_forward = mlp(m, x)
    return add(add(attended, fed_forward), residual)


def attention(m: Structure, x: Tensor, mask: Tensor | None,
              halves: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
    """Tables in fp32 widen what they turn, which is then cast back."""
    with scope("attn"):
        qkv = view(project(x, "qkv_proj"), "b s mp (3 as d)")
        q, v, k = split(qkv, 3, [("as", "d")] * 3)
        q, k, v = heads(q), heads(k), swap(heads(v), "b a s d")
        part = rotary_size(m)
        k_part, k_rest = part_and_rest(k, part)
        q_part, q_rest = part_and_rest(q, part)
        k_part = turned(k_part, halves, part)
        q_part = turned(q_part, halves, part)
        k = cat([k_part, k_rest], k.dims, "rotated and rest")
        q = cat([q_part, q_rest], q.dims, "rotated and rest")
        q = cast(swap(q, "b a s d"), v.dtype)
        k = cast(swap(k, "b a s d"), v.dtype)
        k, v = cached(m, k, v)
        run = eager if m.kernel() == "eager" else attend
        out, probabilities = run(m, q, k, v, mask)
        out = project(out, "out_proj")
        out = dropout(out, m.drops("hidden"))
        return out, probabilities


def turned(x: Tensor, halves: tuple[Tensor, ...], part: str) -> Tensor:
    """apply_rotary_pos_emb: sines and cosines are written out twice in a row, for every layer anew."""
    sin = repeated_twice(halves[0], part, "sines")
    cos = repeated_twice(halves[1], part, "cosines")
    return rotate_pairs(x, cos, sin, f"{part}/2")


def heads(x: Tensor) -> Tensor:
    """The heads of all parts in a row: a copy, unless a part has one."""
    return regroup(reshape(view(x, "b s mp as d"), "b s (mp as) d"), "b s a d")
