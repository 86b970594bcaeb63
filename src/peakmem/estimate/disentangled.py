"""DeBERTa's relative positions: content is scored against positions, and positions against content.

Shapes are (sequences × heads, queries, keys), as bmm takes them. R counts the rows of the table of distances.
"""

from __future__ import annotations

from peakmem.estimate.attention import bmm
from peakmem.estimate.inplace import add_into
from peakmem.estimate.layout import dims
from peakmem.estimate.ops import add, scale
from peakmem.estimate.positions import made
from peakmem.estimate.routers import gather
from peakmem.estimate.shapes import clone, contiguous, expand, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor
from peakmem.estimate.weights import project

PAIRS = "(b a) s s'"


def relative_positions(bucketed: bool) -> Tensor:
    """build_relative_position: the distances of all pairs, large ones by their logarithm."""
    queries, keys = made("s", "int64", "query numbers"), made("s'", "int64", "key numbers")
    distances = made("s s'", "int64", "distances")
    if bucketed:
        distances = buckets()
        distances = made("s s'", "int64", "buckets as numbers")
    del queries, keys
    return distances.seen_as(dims("1 s s'"))


def buckets() -> Tensor:
    """make_log_bucket_position."""
    pairs = "s s'"
    sign = made(pairs, "int64", "signs")
    below = made(pairs, "bool", "below the middle")
    above = made(pairs, "bool", "above minus the middle")
    near = made(pairs, "bool", "near")
    del below, above
    middle = made("", "int64", "the middle")
    far = made(pairs, "int64", "distances, positive")
    positive = made(pairs, "int64", "distances, at least the middle")
    del near, middle, far
    logs = made(pairs, "fp32", "ratios")
    for name in ("logarithms", "shares", "steps", "whole steps", "buckets of large distances"):
        logs = made(pairs, "fp32", name)
    small = made(pairs, "bool", "small distances")
    straight = made(pairs, "fp32", "distances in fp32")
    signed = made(pairs, "fp32", "buckets of large distances, signed")
    chosen = made(pairs, "fp32", "buckets")
    del small, straight, signed, sign, positive, logs
    return chosen


def heads_apart(x: Tensor, at: str, sequences: str = "b") -> Tensor:
    """transpose_for_scores: each head of each sequence is one matrix."""
    x = swap(view(x, f"{sequences} {at} a d"), f"{sequences} a {at} d")
    group = "a" if sequences == "1" else f"({sequences} a)"
    return view(contiguous(x), f"{group} {at} d")


def of_each_sequence(x: Tensor) -> Tensor:
    """repeat(b, 1, 1): a copy, for one sequence too; backward sums them."""
    x = view(x, "1 a R d")
    return view(clone(expand(x, "b a R d"), "positions of each sequence"), "(b a) R d")


def disentangled_bias(m: Structure, q: Tensor, k: Tensor, relative_pos: Tensor, table: Tensor) -> Tensor:
    """disentangled_attention_bias. Both directions share a clamp of the distances each, and gather by it."""
    if m.has("shared_keys"):
        pos_query = of_each_sequence(heads_apart(project(table, "query_proj"), "R", "1"))
        pos_key = of_each_sequence(heads_apart(project(table, "key_proj"), "R", "1"))
    else:
        if m.has("c2p"):
            pos_key = of_each_sequence(heads_apart(project(table, "pos_key_proj"), "R", "1"))
        if m.has("p2c"):
            pos_query = of_each_sequence(heads_apart(project(table, "pos_query_proj"), "R", "1"))
    score = None
    if m.has("c2p"):
        att = bmm(q, swap(pos_key, "(b a) d R"))
        c2p_pos = clamped()
        att = gather(att, c2p_pos.seen_as(dims(PAIRS)))
        score = plus_zero(scale(att, "scores of positions, scaled"))
    if m.has("p2c"):
        p2c_pos = clamped(made("1 1 s s'", "int64", "distances, negative"))
        back = bmm(k, swap(pos_query, "(b a) d R"))
        back = swap(gather(back, p2c_pos.seen_as(dims("(b a) s' s"))), PAIRS)
        back_scaled = scale(back, "scores of positions, scaled")
        score = plus_zero(back_scaled) if score is None else add_into(score, back_scaled)
        del back_scaled
    assert score is not None
    return score


def clamped(distances: Tensor | None = None) -> Tensor:
    """clamp(distances + span, 0, 2·span - 1)."""
    moved = made("1 1 s s'", "int64", "distances, moved")
    del distances
    result = made("1 1 s s'", "int64", "rows of the table")
    del moved
    return result


def plus_zero(x: Tensor) -> Tensor:
    """0 + x, which `score += x` is where score is the number 0."""
    return add(x, Tensor((), x.dtype, (), None), "scores of positions")
