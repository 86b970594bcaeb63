"""DeepSeek's sparse attention: an indexer of few small heads scores all tokens, and the best of them are attended to.

Source: GlmMoeDsaIndexer of models/glm_moe_dsa in transformers 5.24, which runs it without gradients, and hides the
other tokens in a mask: eager and sdpa attention compute all scores all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from peakmem.estimate.attention import keys_as, matmul
from peakmem.estimate.experts import topk
from peakmem.estimate.inference import cached_alone
from peakmem.estimate.ops import activation, add, cast, masked_fill, scale
from peakmem.estimate.positions import made
from peakmem.estimate.rotary_pairs import rotate_pairs
from peakmem.estimate.shapes import cat, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import has, layer_norm, project, weight


@contextmanager
def no_grad() -> Iterator[None]:
    """torch.no_grad: what is made inside has no graph behind it."""
    tape = current()
    enabled, tape.grad_enabled = tape.grad_enabled, False
    yield
    tape.grad_enabled = enabled


def indexer(m: Structure, x: Tensor, q_residual: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
    """The numbers of the tokens that each token attends to, int32 (b, s, chosen)."""
    with scope("indexer"), no_grad():
        q = view(project(q_residual, "wq_b"), "b s ai di")
        q_rot, q_pass = split(q, 3, ["dr", "di-dr"])
        k = view(layer_norm(project(x, "wk"), "k_norm"), "b s 1 di")
        k_rot, k_pass = split(k, 3, ["dr", "di-dr"])
        q_rot, k_rot = rotate_pairs(q_rot, k_rot, cos, sin, "dr")
        q = cat([q_rot, q_pass], "b s ai di", "queries")
        k = view(cat([k_rot, k_pass], "b s 1 di", "keys"), "b 1 s di")
        k = cached_alone(m, k, "index keys")
        scores = scale(matmul(cast(q, "fp32"), keys_by_token(k)), "scores, scaled")
        scores = activation(scores, "relu")
        inside = "weights_proj.base_layer" if has("weights_proj.base_layer.weight") else "weights_proj"
        dtype = weight(f"{inside}.weight").dtype
        weights = scale(cast(project(cast(x, dtype), "weights_proj"), "fp32"), "weights")
        index_scores = view(matmul(view(weights, "b s 1 ai"), scores), "b s s'")
        if mask.dtype == "bool":
            index_scores = masked_fill(index_scores, made("b s s'", "bool", "not in the mask"), "scores, masked")
        else:
            index_scores = add(index_scores, mask.seen_as(index_scores.dims), "scores, masked")
        values, numbers = topk(index_scores, "it" + current().single)
        del values
        return cast(numbers, "int32", "chosen tokens")


def keys_by_token(k: Tensor) -> Tensor:
    """k.transpose(-1, -2).float().unsqueeze(1)."""
    k = keys_as(k)
    b, one, positions, size = k.dims
    return cast(swap(k, (b, one, size, positions)), "fp32")


def hidden_but(chosen: Tensor, mask: Tensor, dtype: str) -> tuple[Tensor, Tensor]:
    """The mask with all tokens hidden that were not chosen, and the truth values that say which."""
    ones = made("b s s'", "bool", "not chosen")
    numbers = cast(chosen, "int64")
    index_mask = made("b s s'", "bool", "not chosen").seen_as(mask.dims)
    del ones, numbers
    if mask.dtype == "bool":
        inverse = made("b 1 s s'", "bool", "chosen")
        mask = made("b 1 s s'", "bool", "mask of the chosen")
        del inverse
    else:
        mask = made("b 1 s s'", dtype, "mask of the chosen")
    return mask, index_mask
