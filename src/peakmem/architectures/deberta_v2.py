"""DeBERTa v2 and v3 with their masked language model head, as transformers 5.24 runs them
(models/deberta_v2/modeling_deberta_v2.py): BERT's layers, whose attention scores distances, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.bert import GENERATES, INPUTS, LOSSES, intermediate, masked_lm, output, pooled, transform
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import bmm
from peakmem.estimate.disentangled import disentangled_bias, heads_apart, relative_positions
from peakmem.estimate.layout import dims
from peakmem.estimate.losses import tied_to
from peakmem.estimate.ops import add, cast, dropout, masked_fill, mul, scale, softmax
from peakmem.estimate.optimizers.slots import free_folded
from peakmem.estimate.positions import look_for_padding, made, rows_of_buffer
from peakmem.estimate.shapes import alias, contiguous, rename, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, project, weight

MIRRORS = "transformers 5.24.0 models/deberta_v2/modeling_deberta_v2.py"
__all__ = ["GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    width = "e" if m.has("narrow_embedding") else "h"
    yield from embedding("deberta.embeddings.word_embeddings", "V", width)
    if m.has("position_input"):
        yield from embedding("deberta.embeddings.position_embeddings", "P", width)
    if m.has("token_types"):
        yield from embedding("deberta.embeddings.token_type_embeddings", "T", width)
    if m.has("narrow_embedding"):
        yield from linear("deberta.embeddings.embed_proj", "h", "e")
    yield from layer_norm("deberta.embeddings.LayerNorm")
    yield from buffer("deberta.embeddings.position_ids", "1 P", "int64")
    yield Layers("deberta.encoder.layer", lambda kind: block_rows(m))
    if m.has("relative"):
        yield from embedding("deberta.encoder.rel_embeddings", "R", "h")
    if m.has("norm_relative"):
        yield from layer_norm("deberta.encoder.LayerNorm")
    if pooled(m):
        return
    yield Row("cls.predictions.bias", "V", reached=m.has("tied"))
    yield from linear("cls.predictions.transform.dense", width, "h", True)
    yield from layer_norm("cls.predictions.transform.LayerNorm", width)
    if not m.has("tied"):
        yield from linear("cls.predictions.decoder", "V", width, True)


def block_rows(m: Structure) -> Iterator[Row]:
    names = ["query_proj", "key_proj", "value_proj"]
    if m.has("relative") and not m.has("shared_keys"):
        names += [name for way, name in (("c2p", "pos_key_proj"), ("p2c", "pos_query_proj")) if m.has(way)]
    for name in names:
        yield from linear(f"attention.self.{name}", "(a d)", "h", True)
    yield from linear("attention.output.dense", "h", "h", True)
    yield from layer_norm("attention.output.LayerNorm")
    yield from linear("intermediate.dense", "f", "h", True)
    yield from linear("output.dense", "h", "f", True)
    yield from layer_norm("output.LayerNorm")


def forward(m: Structure, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
    return masked_lm(m, labels, lambda: model(m, input_ids), lambda hidden: head(m, hidden))


def model(m: Structure, ids: Tensor) -> Tensor:
    """All hidden states live until the model returns, though it returns none but the last."""
    with scope("deberta"):
        look_for_padding()
        attention_mask = made("b s", "fp32", "attention mask of ones")
        token_type_ids = made("b s", "int64", "token type ids")
        embedded = embeddings(m, ids, token_type_ids, attention_mask)
        held = [embedded.detached()]
        hidden = encoder(m, embedded, held)
        del embedded
        free_folded(current(), held)
        del attention_mask, token_type_ids
        return hidden


def embeddings(m: Structure, ids: Tensor, token_type_ids: Tensor, mask: Tensor) -> Tensor:
    with scope("embeddings"):
        inputs_embeds = embed(ids, "word_embeddings")
        if m.has("position_input"):
            position_embeds = embed(rows_of_buffer(), "position_embeddings", inputs=False)
            x = add(inputs_embeds, position_embeds)
        else:
            position_embeds = current().new(inputs_embeds.dims, inputs_embeds.dtype, None, "embeddings/zeros")
            x = inputs_embeds
        if m.has("token_types"):
            token_type_embeds = embed(token_type_ids, "token_type_embeddings", inputs=False)
            x = add(x, token_type_embeds)
        if m.has("narrow_embedding"):
            x = project(x, "embed_proj")
        x = weights.layer_norm(x, "LayerNorm")
        mask = cast(mask.seen_as(dims("b s 1")), x.dtype, "attention mask")
        x = mul(x, mask, "embeddings, masked")
        x = dropout(x, m.drops("embedding"))
        del position_embeds
        return x


def encoder(m: Structure, x: Tensor, held: list[Tensor]) -> Tensor:
    with scope("encoder"):
        mask = made("b 1 s s'", "fp32", "attention mask of pairs")
        relative_pos = relative_positions(m.has("buckets")) if m.has("relative") else None
        table: Tensor | None = None
        if m.has("relative"):
            with scope("rel_embeddings"):
                table = weight("weight")
            if m.has("norm_relative"):
                table = weights.layer_norm(table, "LayerNorm")
        for _ in m.layers("layer"):
            x = m.layer(block, x, mask, relative_pos, table)
            held.append(x.detached())
        return x


def block(m: Structure, x: Tensor, mask: Tensor, relative_pos: Tensor | None, table: Tensor | None) -> Tensor:
    attended = attention(m, x, mask, relative_pos, table)
    wide = intermediate(m, attended)
    return output(m, wide, attended)


def attention(m: Structure, x: Tensor, mask: Tensor, relative_pos: Tensor | None, table: Tensor | None) -> Tensor:
    with scope("attention"):
        attended = self_attention(m, x, mask, relative_pos, table)
        out = output(m, attended, x)
        return out


def self_attention(m: Structure, x: Tensor, mask: Tensor, relative_pos: Tensor | None,
                   table: Tensor | None) -> Tensor:
    """DisentangledSelfAttention: the scale is a number on the processor."""
    with scope("self"):
        q = heads_apart(project(x, "query_proj"), "s")
        k = rename(heads_apart(project(x, "key_proj"), "s"), "(b a) s' d")
        v = rename(heads_apart(project(x, "value_proj"), "s"), "(b a) s' d")
        scores = bmm(q, scale(swap(k, "(b a) d s'"), "keys, scaled"))
        if relative_pos is not None and table is not None:
            table = dropout(table, m.drops("hidden"))
            rows = view(alias(table), "1 R h")
            bias = disentangled_bias(m, q, k, relative_pos, rows)
            scores = add(scores, bias, "scores with positions")
        scores = view(scores, "b a s s'")
        mask = made("b 1 s s'", "bool", "what is no padding")  # it lives until the layer returns
        scores = masked_fill(scores, made("b 1 s s'", "bool", "what is padding"), "scores, masked")
        probabilities = softmax(scores)
        probabilities = dropout(probabilities, m.drops("attention"))
        context = bmm(view(probabilities, "(b a) s s'"), v)
        context = contiguous(swap(view(context, "b a s d"), "b s a d"), "attention output, heads merged")
        del mask
        return view(context, "b s (a d)")


def head(m: Structure, hidden: Tensor) -> Tensor:
    """cls: a layer of its own, then the embedding matrix, then a bias for each token."""
    with scope("cls.predictions"):
        bias = weight("bias") if m.has("tied") else None
        x = transform(m, hidden)
        return project(x, "decoder", tied_to(m, "deberta.embeddings.word_embeddings"), bias)
