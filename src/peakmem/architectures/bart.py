"""BART, as transformers 5.24 runs it (models/bart/modeling_bart.py): a decoder that reads an encoder, norms last.

mBART, Marian, Pegasus and M2M100 share its attention, its rows and its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.architectures.t5 import shifted
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.clamping import all_finite
from peakmem.estimate.inference import cached, read_once
from peakmem.estimate.layout import dims
from peakmem.estimate.losses import cross_entropy, tied_to
from peakmem.estimate.masks import padded_target_mask
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import split_heads, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/bart/modeling_bart.py"
INPUTS = {"input_ids": ("b s", "int64"), "labels": ("b t", "int64")}
LOSSES = ("upcast",)

Stack = Callable[[Structure, Tensor], Tensor]
Reader = Callable[[Structure, Tensor, Tensor], Tensor]


def define(m: Structure) -> Definition:
    yield from rows(m, learned, embedding_norm=True)


def rows(m: Structure, places: Callable[[str], Iterator[Row]], embedding_norm: bool = False,
         last_norm: bool = False, biased: bool = True) -> Definition:
    """Both stacks and the head. places: the positions of a stack; biased: a buffer is added to the logits.

    Untied, each stack has an embedding of its own, and nobody reads the one that would be shared.
    """
    tied = m.has("tied")
    yield Row("model.shared.weight", "V h", "embedding", reached=tied)
    for stack, attentions in (("encoder", ("self_attn",)), ("decoder", ("self_attn", "encoder_attn"))):
        if not tied:
            yield from embedding(f"model.{stack}.embed_tokens", "V", "h")
        yield from places(f"model.{stack}.embed_positions")
        yield Layers(f"model.{stack}.layers", blocks(*attentions), stack)
        if embedding_norm:
            yield from layer_norm(f"model.{stack}.layernorm_embedding")
        if last_norm:
            yield from layer_norm(f"model.{stack}.layer_norm")
    if biased:
        yield from buffer("final_logits_bias", "1 V")
    if not tied:
        yield from linear("lm_head", "V", "h")


def learned(name: str) -> Iterator[Row]:
    return embedding(name, "P", "h")


def fixed(name: str) -> Iterator[Row]:
    """Sines and cosines: a parameter that is not trained."""
    yield Row(f"{name}.weight", "P h", "unused")


def blocks(*attentions: str) -> Callable[[str], Iterator[Row]]:
    return lambda kind: block_rows(*attentions)


def block_rows(*attentions: str) -> Iterator[Row]:
    for name in attentions:
        for part in "kvq":
            yield from linear(f"{name}.{part}_proj", "(a d)", "h", True)
        yield from linear(f"{name}.out_proj", "h", "(a d)", True)
        yield from layer_norm(f"{name}_layer_norm")
    yield from linear("fc1", "f", "h", True)
    yield from linear("fc2", "h", "f", True)
    yield from layer_norm("final_layer_norm")


def forward(m: Structure, input_ids: Tensor, labels: Tensor) -> Tensor:
    return trained(m, input_ids, labels, encoder, decoder)


def trained(m: Structure, ids: Tensor, labels: Tensor, encoder: Stack, decoder: Reader,
            shift: Callable[[], Tensor] = shifted, biased: bool = True) -> Tensor:
    """XxxForConditionalGeneration: the loss takes logits in the dtype in which they are."""
    decoder_input_ids = shift()
    encoded = encoder(m, ids)
    decoded = decoder(m, decoder_input_ids, encoded)
    logits = head(m, decoded, biased)
    with scope("loss"):
        loss = cross_entropy(view(logits, "(b t) V"), labels)
    del decoder_input_ids, encoded, decoded
    return loss


def encode(m: Structure, input_ids: Tensor) -> Tensor:
    return encoder(m, input_ids)


def decode(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    return head(m, decoder(m, ids, encoded))


def head(m: Structure, decoded: Tensor, biased: bool = True) -> Tensor:
    """The embedding matrix, and a buffer that lies in fp32 under autocast and where a policy casts parameters."""
    logits = project(decoded, "lm_head", tied_to(m, "model.shared"))
    if biased:
        logits = add(logits, Tensor(dims("1 V"), m.shard_dtype or m.dtype, ("V",), None), "logits with bias")
    return logits


def embed_tokens(m: Structure, ids: Tensor) -> Tensor:
    """BartScaledWordEmbedding: times one where nothing is scaled, too."""
    return embed(ids, "embed_tokens", times=True, table=tied_to(m, "model.shared"))


def encoder(m: Structure, ids: Tensor) -> Tensor:
    with scope("model.encoder"):
        inputs_embeds = embed_tokens(m, ids)
        embed_pos = placed_source()
        x = add(inputs_embeds, embed_pos)
        x = weights.layer_norm(x, "layernorm_embedding")
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "encoder"):
            x = m.layer(encoder_block, x)
        return x


def placed_source() -> Tensor:
    """BartLearnedPositionalEmbedding: 0 … s-1 for every sequence, plus 2, looked up."""
    numbers = made("s", "int64", "arange")
    result = embed(made("b s", "int64", "position ids"), "embed_positions", inputs=False)
    del numbers
    return result


def decoder(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    with scope("model.decoder"):
        inputs_embeds = embed_tokens(m, ids)
        position_ids = counted()
        padding = made("b t'", "fp32", "attention mask of ones")
        mask = padded_target_mask(m, inputs_embeds.dtype)
        del padding
        placed = embed(made("1 t", "int64", "positions + 2"), "embed_positions", inputs=False)
        x = add(inputs_embeds, placed)
        x = weights.layer_norm(x, "layernorm_embedding")
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "decoder"):
            x = m.layer(decoder_block, x, mask, encoded)
        del position_ids
        return x


def counted() -> Tensor:
    """0 … t-1, plus the tokens before."""
    numbers = made("t", "int64", "arange")
    numbers = made("t", "int64", "position ids")
    return numbers


def encoder_block(m: Structure, x: Tensor) -> Tensor:
    residual = x
    x, _ = attention(m, x, x, "self_attn", None, False)
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    x = weights.layer_norm(x, "self_attn_layer_norm")
    residual = x
    x = feed_forward(m, x)
    x = add(residual, x)
    x = weights.layer_norm(x, "final_layer_norm")
    if x.dtype == "fp16":
        all_finite(x)
    return x


def decoder_block(m: Structure, x: Tensor, mask: Tensor | None, encoded: Tensor) -> Tensor:
    residual = x
    x, _ = attention(m, x, x, "self_attn", mask, True)
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    x = weights.layer_norm(x, "self_attn_layer_norm")
    residual = x
    x, _ = attention(m, x, encoded, "encoder_attn", None, False)
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    x = weights.layer_norm(x, "encoder_attn_layer_norm")
    residual = x
    x = feed_forward(m, x)
    x = add(residual, x)
    x = weights.layer_norm(x, "final_layer_norm")
    return x


def feed_forward(m: Structure, x: Tensor) -> Tensor:
    x = activation(project(x, "fc1"), m.activation)
    x = dropout(x, m.drops("activation"))
    x = project(x, "fc2")
    x = dropout(x, m.drops("hidden"))
    return x


def attention(m: Structure, x: Tensor, read: Tensor, name: str, mask: Tensor | None,
              causal: bool) -> tuple[Tensor, Tensor | None]:
    at = x.dims[1][0]
    with scope(name):
        q = split_heads(project(x, "q_proj"), f"b a {at} d")
        if name == "encoder_attn":
            k, v = read_once(m, lambda: keys_and_values(read))
        else:
            k, v = keys_and_values(read)
            if causal:
                k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask, softmax_in="own", causal=causal)
        out = project(out, "out_proj")
        return out, probabilities


def keys_and_values(read: Tensor) -> tuple[Tensor, Tensor]:
    shape = f"b a {read.dims[1][0]} d"
    k = project(read, "k_proj")
    v = project(read, "v_proj")
    return split_heads(k, shape), split_heads(v, shape)
