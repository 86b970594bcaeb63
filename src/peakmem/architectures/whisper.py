"""Whisper, as transformers 5.24 runs it (models/whisper/modeling_whisper.py): sound is encoded, its text decoded.

The letter s counts the encoder's positions, of which each stands for two frames of the spectrogram.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, layer_norm, linear
from peakmem.architectures.t5 import shifted
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.clamping import clamp
from peakmem.estimate.inference import cached, read_once
from peakmem.estimate.losses import cross_entropy, tied_to
from peakmem.estimate.masks import target_mask
from peakmem.estimate.ops import activation, add, dropout, scale
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import contiguous, index, split_heads, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import convolution, embed, project, weight

MIRRORS = "transformers 5.24.0 models/whisper/modeling_whisper.py"
INPUTS = {"input_features": ("b mel 2*s", ""), "labels": ("b t", "int64")}
LOSSES = ("upcast",)


def define(m: Structure) -> Definition:
    yield from conv_rows("model.encoder.conv1", "h mel 3")
    yield from conv_rows("model.encoder.conv2", "h h' 3")
    yield Row("model.encoder.embed_positions.weight", "s h", "unused")
    yield Layers("model.encoder.layers", lambda kind: block_rows("self_attn"), "encoder")
    yield from layer_norm("model.encoder.layer_norm")
    yield from embedding("model.decoder.embed_tokens", "V", "h")
    yield from embedding("model.decoder.embed_positions", "P", "h")
    yield Layers("model.decoder.layers", lambda kind: block_rows("self_attn", "encoder_attn"), "decoder")
    yield from layer_norm("model.decoder.layer_norm")
    if not m.has("tied"):
        yield from linear("proj_out", "V", "h")


def conv_rows(name: str, shape: str) -> Iterator[Row]:
    yield Row(f"{name}.weight", shape)
    yield Row(f"{name}.bias", "h")


def block_rows(*attentions: str) -> Iterator[Row]:
    for name in attentions:
        for part in "kvq":
            yield from linear(f"{name}.{part}_proj", "(a d)", "h", part != "k")
        yield from linear(f"{name}.out_proj", "h", "(a d)", True)
        yield from layer_norm(f"{name}_layer_norm")
    yield from linear("fc1", "f", "h", True)
    yield from linear("fc2", "h", "f", True)
    yield from layer_norm("final_layer_norm")


def forward(m: Structure, input_features: Tensor, labels: Tensor) -> Tensor:
    decoder_input_ids = shifted()
    encoded = encode(m, input_features)
    decoded, logits = decoding(m, decoder_input_ids, encoded)
    with scope("loss"):
        loss = cross_entropy(view(logits, "(b t) V"), labels)
    del decoder_input_ids, encoded, decoded
    return loss


def encode(m: Structure, features: Tensor) -> Tensor:
    with scope("model"):
        return encoder(m, features)


def decode(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    return decoding(m, ids, encoded)[1]


def decoding(m: Structure, ids: Tensor, encoded: Tensor) -> tuple[Tensor, Tensor]:
    """The last hidden states, which the model's forward holds until it returns, and the logits."""
    with scope("model"):
        decoded = decoder(m, ids, encoded)
    return decoded, project(decoded, "proj_out", tied_to(m, "model.decoder.embed_tokens"))


def encoder(m: Structure, features: Tensor) -> Tensor:
    """Two convolutions, the second of which halves the frames; positions that are not trained."""
    with scope("encoder"):
        embeds = activation(convolution(features, "conv1", "b h 2*s"), "gelu")
        embeds = activation(convolution(embeds, "conv2", "b h s"), "gelu")
        embeds = swap(embeds, "b s h")
        all_positions = made("s", "int64", "position ids")
        x = add(embeds, embed(all_positions, "embed_positions", inputs=False))
        x = dropout(x, m.drops("hidden"))
        for _ in m.layers("layers", "encoder"):
            x = m.layer(encoder_block, x)
        x = weights.layer_norm(x, "layer_norm")
        del all_positions
        return x


def decoder(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    with scope("decoder"):
        embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        with scope("embed_positions"):
            placed = index(weight("weight"), position_ids, "b t h")
        x = add(embeds, placed)
        x = dropout(x, m.drops("hidden"))
        mask = target_mask(m, embeds.dtype, packed=True)
        for _ in m.layers("layers", "decoder"):
            x = m.layer(decoder_block, x, mask, encoded)
        x = weights.layer_norm(x, "layer_norm")
        del placed
        return x


def positions() -> Tensor:
    """0 … t-1, plus the tokens before, for every sequence."""
    numbers = made("t", "int64", "arange")
    numbers = made("t", "int64", "positions")
    numbers = made("b t", "int64", "position ids")
    return numbers


def encoder_block(m: Structure, x: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "self_attn_layer_norm")
    x, _ = attention(m, x, x, "self_attn", None, False)
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    residual = x
    x = weights.layer_norm(x, "final_layer_norm")
    x = activation(project(x, "fc1"), m.activation)
    x = dropout(x, m.drops("activation"))
    x = project(x, "fc2")
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    if x.dtype == "fp16":
        x = clamp(x)
    return x


def decoder_block(m: Structure, x: Tensor, mask: Tensor | None, encoded: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "self_attn_layer_norm")
    x, _ = attention(m, x, x, "self_attn", mask, True)
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    residual = x
    x = weights.layer_norm(x, "encoder_attn_layer_norm")
    x, _ = attention(m, x, encoded, "encoder_attn", None, False)
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    residual = x
    x = weights.layer_norm(x, "final_layer_norm")
    x = activation(project(x, "fc1"), m.activation)
    x = dropout(x, m.drops("activation"))
    x = project(x, "fc2")
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    return x


def attention(m: Structure, x: Tensor, read: Tensor, name: str, mask: Tensor | None,
              causal: bool) -> tuple[Tensor, Tensor | None]:
    """WhisperAttention: queries are scaled before they are split; each part is copied, head by head."""
    at = x.dims[1][0]
    with scope(name):
        q = contiguous(split_heads(scale(project(x, "q_proj")), f"b a {at} d"))
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
    k = contiguous(split_heads(project(read, "k_proj"), shape))
    v = contiguous(split_heads(project(read, "v_proj"), shape))
    return k, v
