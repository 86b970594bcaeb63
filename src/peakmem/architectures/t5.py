"""T5 and Flan-T5, as transformers 5.24 runs them (models/t5/modeling_t5.py): a decoder that reads an encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, linear, rms_norm, unpacked
from peakmem.estimate.clamping import largest_allowed, within
from peakmem.estimate.inference import cached, read_once
from peakmem.estimate.losses import cross_entropy, tied_to
from peakmem.estimate.masks import target_mask
from peakmem.estimate.norms import rms_of_input
from peakmem.estimate.ops import activation, add, cast, dropout, mul, scale
from peakmem.estimate.position_bias import attend_biased, relative_bias, zero_bias
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import contiguous, reshape, split_heads, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, has, project, weight

MIRRORS = "transformers 5.24.0 models/t5/modeling_t5.py"
INPUTS = {"input_ids": ("b s", "int64"), "labels": ("b t", "int64")}
LOSSES = ("upcast",)

Biases = tuple[Tensor | None, Tensor | None]


def define(m: Structure) -> Definition:
    yield from embedding("shared", "V", "h")
    for stack in ("encoder", "decoder"):
        yield Layers(f"{stack}.block", block_rows(m, stack), stack)
        yield from rms_norm(f"{stack}.final_layer_norm")


def block_rows(m: Structure, stack: str) -> Callable[[str], Iterator[Row]]:
    def rows(kind: str) -> Iterator[Row]:
        yield from attention_rows("layer.0.SelfAttention")
        if kind.endswith("first"):
            yield from embedding("layer.0.SelfAttention.relative_attention_bias", "B", "a")
        yield from rms_norm("layer.0.layer_norm")
        if stack == "decoder":
            yield from attention_rows("layer.1.EncDecAttention")
            yield from rms_norm("layer.1.layer_norm")
        last = f"layer.{2 if stack == 'decoder' else 1}"
        for name in ("wi_0", "wi_1") if m.has("gated") else ("wi",):
            yield from linear(f"{last}.DenseReluDense.{name}", "f", "h")
        yield from unpacked(linear(f"{last}.DenseReluDense.wo", "h", "f"))
        yield from rms_norm(f"{last}.layer_norm")

    return rows


def attention_rows(name: str) -> Iterator[Row]:
    for part in "qkv":
        yield from linear(f"{name}.{part}", "(a d)", "h")
    yield from linear(f"{name}.o", "h", "(a d)")


def forward(m: Structure, input_ids: Tensor, labels: Tensor) -> Tensor:
    encoded = encode(m, input_ids)
    decoder_input_ids = shifted()
    logits, *held = decoded(m, decoder_input_ids, encoded)
    with scope("loss"):
        loss = cross_entropy(view(logits, "(b t) V"), labels)
    del held
    return loss


def encode(m: Structure, input_ids: Tensor) -> Tensor:
    return stack(m, "encoder", input_ids, None)


def decode(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    return decoded(m, ids, encoded)[0]


def decoded(m: Structure, ids: Tensor, encoded: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The logits, and what the model's forward holds until it returns."""
    hidden = stack(m, "decoder", ids, encoded)
    x = hidden
    if m.has("scaled_output"):
        x = scale(x, "output, scaled")
    return project(x, "lm_head", tied_to(m, "shared")), x, hidden


def shifted() -> Tensor:
    """_shift_right: the labels, one place later, behind the start token."""
    result = made("b t", "int64", "decoder input ids")
    made("b t-1", "int64", "labels but the last")
    made("b t", "bool", "where labels are ignored")
    return result


def stack(m: Structure, name: str, ids: Tensor, encoded: Tensor | None) -> Tensor:
    """T5Stack: the first layer makes the position bias, which the loop hands from layer to layer."""
    with scope(name):
        inputs_embeds = embed(ids, "embed_tokens", table=tied_to(m, "shared"))
        mask = target_mask(m, inputs_embeds.dtype) if name == "decoder" else None
        biases: Biases = None, None
        x = dropout(inputs_embeds, m.drops("hidden"))
        for _ in m.layers("block", name):
            x, biases = m.both(block, x, mask, biases, encoded)
        x = rms_of_input(x, "final_layer_norm")
        return dropout(x, m.drops("hidden"))


def block(m: Structure, x: Tensor, mask: Tensor | None, biases: Biases,
          encoded: Tensor | None) -> tuple[Tensor, Biases]:
    with scope("layer.0"):
        x, bias, _ = self_attention(m, x, mask, biases[0], encoded is not None)
    if x.dtype == "fp16":
        limit = largest_allowed(x)
        x = within(x, limit)
    cross_bias = None
    if encoded is not None:
        with scope("layer.1"):
            x, cross_bias, _ = cross_attention(m, x, encoded, biases[1])
        if x.dtype == "fp16":
            limit = largest_allowed(x)
            x = within(x, limit)
    with scope("layer.1" if encoded is None else "layer.2"):
        x = feed_forward(m, x)
    if x.dtype == "fp16":
        limit = largest_allowed(x)
        x = within(x, limit)
    return x, (bias, cross_bias)


def self_attention(m: Structure, x: Tensor, mask: Tensor | None, bias: Tensor | None,
                   causal: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    normed = rms_of_input(x, "layer_norm")
    with scope("SelfAttention"):
        attended, bias, probabilities = attention(m, normed, normed, bias, mask, causal)
    attended = add(x, dropout(attended, m.drops("hidden")))
    return attended, bias, probabilities


def cross_attention(m: Structure, x: Tensor, encoded: Tensor,
                    bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    normed = rms_of_input(x, "layer_norm")
    with scope("EncDecAttention"):
        attended, bias, probabilities = attention(m, normed, encoded, bias, None, False, "cross")
    out = add(x, dropout(attended, m.drops("hidden")))
    return out, bias, probabilities


def attention(m: Structure, x: Tensor, read: Tensor, bias: Tensor | None, mask: Tensor | None, causal: bool,
              kind: str = "full") -> tuple[Tensor, Tensor, Tensor | None]:
    """T5Attention: without a scale; a bias on the scores, which is made here where there is none yet."""
    at = x.dims[1][0]
    q = split_heads(project(x, "q"), f"b a {at} d")
    if kind == "cross":
        k, v = read_once(m, lambda: keys_and_values(read))
    else:
        k, v = keys_and_values(read)
        if causal:
            k, v = cached(m, k, v)
    if bias is None:
        bias = zero_bias(m, q, k) if kind == "cross" else relative_bias(at, causal)
    out, probabilities = attend_biased(m, q, k, v, bias, mask, causal, kind)
    out = contiguous(reshape(out, (*x.dims[:2], ("a", "d"))))
    out = project(out, "o")
    return out, bias, probabilities


def keys_and_values(read: Tensor) -> tuple[Tensor, Tensor]:
    shape = f"b a {read.dims[1][0]} d"
    k = split_heads(project(read, "k"), shape)
    v = split_heads(project(read, "v"), shape)
    return k, v


def feed_forward(m: Structure, x: Tensor) -> Tensor:
    forwarded = rms_of_input(x, "layer_norm")
    forwarded = dense(m, forwarded)
    return add(x, dropout(forwarded, m.drops("hidden")))


def dense(m: Structure, x: Tensor) -> Tensor:
    """T5DenseActDense or, with a gate, T5DenseGatedActDense: wo is called with an input of its weight's dtype."""
    with scope("DenseReluDense"):
        if m.has("gated"):
            gelu = activation(project(x, "wi_0"), m.activation)
            straight = project(x, "wi_1")
            x = mul(gelu, straight)
        else:
            x = project(x, "wi")
            x = activation(x, m.activation)
        x = dropout(x, m.drops("hidden"))
        with scope("wo"):
            w = weight("base_layer.weight" if has("base_layer.weight") else "weight")
        x = cast(x, w.dtype, "input of wo")
        return project(x, "wo")
