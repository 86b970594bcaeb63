"""ModernBERT with its masked language model head (transformers 5.24, models/modernbert/modeling_modernbert.py).

Every third layer sees all tokens, the others a window to both sides; the first layer has no norm before attention.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.bert import GENERATES, INPUTS, LOSSES, masked_lm, pooled
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.losses import tied_to
from peakmem.estimate.masks import both_sides_mask
from peakmem.estimate.ops import activation, add, cast, dropout, mul
from peakmem.estimate.positions import made, rotary_table, rotate_half
from peakmem.estimate.shapes import split, swap, view
from peakmem.estimate.slices import unbind
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/modernbert/modeling_modernbert.py"
__all__ = ["GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    yield from embedding("model.embeddings.tok_embeddings", "V", "h")
    yield from layer_norm("model.embeddings.norm", bias=m.has("norm_bias"))
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from layer_norm("model.final_norm", bias=m.has("norm_bias"))
    for kind in tables_of(m):
        yield from buffer(f"model.rotary_emb.{kind}_attention_inv_freq", "d/2", "fp32")
        yield from buffer(f"model.rotary_emb.{kind}_attention_original_inv_freq", "d/2", "fp32")
    if pooled(m):
        return
    yield from linear("head.dense", "h", "h", m.has("classifier_bias"))
    yield from layer_norm("head.norm", bias=m.has("norm_bias"))
    if not m.has("tied"):
        yield from linear("decoder", "V", "h", m.has("head_bias"))
    elif m.has("head_bias"):
        yield Row("decoder.bias", "V")


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    if "first" not in kind:
        yield from layer_norm("attn_norm", bias=m.has("norm_bias"))
    yield from linear("attn.Wqkv", "(3 a d)", "h", m.has("attention_bias"))
    yield from linear("attn.Wo", "h", "(a d)", m.has("attention_bias"))
    yield from layer_norm("mlp_norm", bias=m.has("norm_bias"))
    yield from linear("mlp.Wi", "(2 f)", "h", m.has("mlp_bias"))
    yield from linear("mlp.Wo", "h", "f", m.has("mlp_bias"))


def tables_of(m: Structure) -> list[str]:
    """The kinds of attention that occur: each has a rotary table of its own."""
    return sorted({kind.partition(",")[0] for kind in m.kinds()})


def forward(m: Structure, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
    return masked_lm(m, labels, lambda: model(m, input_ids), lambda hidden: head(m, hidden))


def head(m: Structure, hidden: Tensor) -> Tensor:
    return project(transform(hidden), "decoder", tied_to(m, "model.embeddings.tok_embeddings"))


def transform(hidden: Tensor) -> Tensor:
    with scope("head"):
        return weights.layer_norm(activation(project(hidden, "dense"), "gelu"), "norm")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        position_ids = made("s", "int64", "position ids")
        x = inputs_embeds = embeddings(m, ids)
        masks = {"full": None, "sliding": both_sides_mask(m, x.dtype)}
        tables = {kind: rotary_table(x.dtype) for kind in tables_of(m)}
        for kind in m.layers("layers"):
            attends = kind.partition(",")[0]
            x = m.layer(block, x, masks[attends], *tables[attends], "first" in kind)
        x = weights.layer_norm(x, "final_norm")
        del position_ids, inputs_embeds
        return x


def embeddings(m: Structure, ids: Tensor) -> Tensor:
    with scope("embeddings"):
        return dropout(weights.layer_norm(embed(ids, "tok_embeddings"), "norm"), m.drops("embedding"))


def block(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, first: bool) -> Tensor:
    attended, _ = attention(m, x if first else weights.layer_norm(x, "attn_norm"), cos, sin, mask)
    x = add(x, attended)
    x = add(x, mlp(m, weights.layer_norm(x, "mlp_norm")))
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("attn"):
        qkv = view(project(x, "Wqkv"), "b s 3 a d")
        q, k, v = unbind(qkv, 2)
        q, k, v = swap(q, "b a s d"), swap(k, "b a s d"), swap(v, "b a s d")
        q, k = turned(q, k, cos, sin)
        out, probabilities = attend(m, q, k, v, mask, causal=False)
        out = dropout(project(out, "Wo"), m.drops("attention"))
        del qkv
        return out, probabilities


def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb: q and k are cast to fp32 twice, the tables are not."""
    q_embed, k_embed = in_fp32(q, cos, sin), in_fp32(k, cos, sin)
    return cast(q_embed, q.dtype), cast(k_embed, k.dtype)


def in_fp32(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    straight = mul(cast(x, "fp32"), cos, "x·cos")
    return add(straight, mul(rotate_half(cast(x, "fp32"), "d/2"), sin, "rotated·sin"), "rotated")


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        given, gate = split(project(x, "Wi"), 2, ["f", "f"])
        return project(dropout(mul(activation(given, m.activation), gate), m.drops("hidden")), "Wo")
