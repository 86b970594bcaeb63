"""Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3-VL-MoE, as transformers 5.24 runs them (models/qwen3_vl/modeling_qwen3_vl.py
and its kin): features of pictures replace the embeddings of as many tokens. Without pictures the tower stands by.
Positions are counted in three ways: time, height and width, which text does not tell apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from peakmem.architectures import llama, mixtral, qwen3_moe, qwen_tower
from peakmem.architectures.definition import Definition, Layers, Row, buffer
from peakmem.architectures.llava import TEXT, beside
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import cast
from peakmem.estimate.picture_tokens import added_at, image_outputs, masked_scatter, one_by_one, places
from peakmem.estimate.positions import made, positions, rotate
from peakmem.estimate.shapes import cat, split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, project
from peakmem.immutable import replace

MIRRORS = "transformers 5.24.0 models/qwen3_vl/modeling_qwen3_vl.py"
INPUTS = {"input_ids": ("b s", "int64"), "pixel_values": ("(nt pm) (c pt p p')", "fp32", "pictures"),
          "mm_token_type_ids": ("b s", "int64", "pictures"), "labels": ("b s", "int64")}
SHARDS = False  # as LLaVA


def define(m: Structure) -> Definition:
    yield from reached(qwen_tower.rows(m), m.has("pictures"))
    yield from beside(qwen3_moe.define(m) if m.has("experts") else llama.define(m))
    yield from remembered(m)


def remembered(m: Structure) -> Definition:
    """What the step before left."""
    if m.has("pictures") and m.run == "training" and m.step == "steady":
        yield from buffer("model.rope_deltas", "b 1", "int64")  # of the step before


def reached(rows: Definition, sees: bool) -> Definition:
    """Gradients reach the tower where it sees something."""
    for row in rows:
        if isinstance(row, Layers):
            yield row._replace(block=partial(reached_in, row.block, sees))
        else:
            yield row._replace(reached=sees)


def reached_in(block: Callable[[str], Iterator[Row]], sees: bool, kind: str) -> Iterator[Row]:
    return (row._replace(reached=sees) for row in block(kind))


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor | None = None,
            mm_token_type_ids: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
    returned = image_outputs(m)
    return causal_lm(m, lambda: model(m, input_ids, pixel_values, returned, text), f"{TEXT}.embed_tokens")


def model(m: Structure, ids: Tensor, pixels: Tensor | None, returned: list[Tensor],
          text: Callable[..., Tensor]) -> Tensor:
    """Qwen2_5_VLModel, Qwen3VLModel. text: the decoder, see below."""
    if not m.has("pictures"):
        return text(m, ids)
    with scope(TEXT):
        inputs_embeds = embed(ids, "embed_tokens")
    if pixels is None:
        return text(m, ids, inputs_embeds, positions_behind_pictures())
    with scope("model"):
        features, deepstack = image_features(m, pixels, returned)
        image_embeds = cast(joined(features), inputs_embeds.dtype)
        mask, films = places("b s")
        inputs_embeds = masked_scatter(inputs_embeds, mask, image_embeds)
        deepstack_embeds = [joined(each) for each in deepstack]
        position_ids = positions_of_pictures(m)
    x = text(m, ids, inputs_embeds, position_ids, mask, deepstack_embeds)
    del films, image_embeds, features, deepstack
    return x


def positions_of_pictures(m: Structure) -> Tensor:
    """get_rope_index; the model keeps by how much text behind pictures is ahead, in place of what it knew before."""
    position_ids = made("3 b s", "int64", "positions in time, height and width")
    rope_deltas = made("b 1", "int64", "steps that pictures save")
    if rope_deltas.record:
        rope_deltas.record.kind = "weights"
        if m.run == "inference" or m.step == "first":  # later the one before goes instead, of the same size
            current().remembered[:] = [rope_deltas]
    return position_ids


def positions_behind_pictures() -> Tensor:
    """compute_3d_position_ids while a token is decoded: counted on the CPU, then ahead by what pictures saved."""
    position_ids = made("3 b s", "int64", "positions")
    delta = made("b 1", "int64", "steps that pictures save")
    position_ids = made("3 b s", "int64", "positions in time, height and width")
    del delta
    return position_ids


def image_features(m: Structure, pixels: Tensor, returned: list[Tensor]) -> tuple[list[Tensor], list[list[Tensor]]]:
    """get_image_features: of each picture what was merged at last, and what from earlier layers."""
    with scope("visual"):
        last, merged, deepstack = qwen_tower.tower(tower_of(m), cast(pixels, m.dtype))
    count = m.number("pictures")
    features, deep = one_by_one(merged, count, "nt"), [one_by_one(each, count, "nt") for each in deepstack]
    returned += [last, *features, *(part for parts in deep for part in parts)]
    return features, deep


def tower_of(m: Structure) -> Structure:
    """The run as the tower sees it, which drops nothing."""
    return replace(m.tower("image"), dropouts=frozenset())


def joined(features: list[Tensor]) -> Tensor:
    return cat(features, "nt h", "features of all pictures")


def text(m: Structure, ids: Tensor, inputs_embeds: Tensor | None = None, position_ids: Tensor | None = None,
         mask: Tensor | None = None, deepstack: list[Tensor] | None = None) -> Tensor:
    """The decoder; after its first layers features of pictures are added to the tokens that stand for them.

    Its layers get the numbers of text alone, where it is Qwen3's; those are searched for packed sequences.
    """
    old = not qwen_tower.has_table(m)
    packed = not old and position_ids is None

    layer_outputs: list[Tensor] = []  # lives until the next layer's is there

    def after(x: Tensor, kind: str) -> Tensor:
        layer_outputs[:] = [x]
        _, deep, number = kind.partition(", deepstack ")
        return added_at(x, mask, deepstack[int(number)]) if deep and deepstack and mask is not None else x

    def numbered() -> tuple[Tensor, Tensor | None]:
        numbers = positions() if position_ids is None else position_ids
        return numbers, numbers if packed else None

    if m.has("experts"):
        return mixtral.model(m, ids, qwen3_moe.feed_forward(m), TEXT, grids, inputs_embeds, after, numbered, packed)
    masks = ("full", "sliding") if "sliding" in m.kinds() else ("full",)
    return llama.model(m, ids, block if old else None, masks, name=TEXT, tables=joined_grids if old else grids,
                       packed=packed, inputs_embeds=inputs_embeds, after=after, numbered=numbered)


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor) -> Tensor:
    return llama.pre_norm(x, lambda x: attention(m, x, cos, sin, mask), lambda x: llama.mlp(m, x))


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Qwen2VLAttention: all three projections, then heads."""
    with scope("self_attn"):
        q, k, v = (project(x, f"{part}_proj") for part in "qkv")
        q, k, v = split_heads(q, "b a s d"), split_heads(k, "b k s d"), split_heads(v, "b k s d")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities


def grids(m: Structure, dtype: str) -> tuple[Tensor, Tensor]:
    """Qwen3VLTextRotaryEmbedding.forward: tables for time, height and width; the latter two overwrite the first."""
    cos, sin, angles = three_tables()
    sin = made("b s d", "fp32", "sine twice")
    cos = made("b s d", "fp32", "cosine twice")
    tables = cast(cos, dtype), cast(sin, dtype)
    del angles
    return tables


def joined_grids(m: Structure, dtype: str) -> tuple[Tensor, Tensor]:
    """Qwen2_5_VLRotaryEmbedding.forward: parts of the tables for time, height and width, joined."""
    cos, sin, angles = three_tables()
    mixed = made("b s d/2", "fp32", "sine of three grids")
    sin = made("b s d", "fp32", "sine twice")
    del mixed
    mixed = made("b s d/2", "fp32", "cosine of three grids")
    cos = made("b s d", "fp32", "cosine twice")
    del mixed
    tables = cast(cos, dtype), cast(sin, dtype)
    del angles
    return tables


def three_tables() -> tuple[Tensor, Tensor, Tensor]:
    """Cosine and sine for each of the three ways, and the angles, which live as long as the caller runs."""
    numbers = made("3 b s 1", "fp32", "positions in fp32")
    angles = made("3 b s d/2", "fp32", "angles")
    del numbers
    cos = made("3 b s d/2", "fp32", "cosine")
    cos = made("3 b s d/2", "fp32", "cosine table")
    sin = made("3 b s d/2", "fp32", "sine")
    sin = made("3 b s d/2", "fp32", "sine table")
    return cos, sin, angles
