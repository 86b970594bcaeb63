"""LitGPT's one model for every family (litgpt/model.py): `--implementation litgpt`.

Queries, keys and values come from one product and lie by groups; keys and values are copied for every query of their
group; rotary tables are fp32 and cover the longest sequence; the head is never the embedding matrix. With LoRA the
model is litgpt/lora.py's: see litgpt_adapters.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear, rms_norm
from peakmem.architectures.litgpt_adapters import WORDS, adapted, adapters, qkv_adapted, qkv_adapters
from peakmem.architectures.litgpt_loss import chunked_head, chunked_loss
from peakmem.estimate import weights
from peakmem.estimate.attention import efficient, flash, keys_as, math, matmul, merged
from peakmem.estimate.inference import cached
from peakmem.estimate.layout import dims, flat
from peakmem.estimate.ops import activation, add, cast, mean_last, mul, rsqrt, scale, shift, softmax, tanh
from peakmem.estimate.outputs import hand_out, returned
from peakmem.estimate.positions import made, part_and_rest, rotary_size, rotate
from peakmem.estimate.shapes import cat, expand, regroup, rename, reshape, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, weight

MIRRORS = "litgpt 0.5.3 litgpt/model.py, litgpt/lora.py, litgpt/finetune/lora.py and full.py"
RUNS = ("training", "inference")
LOSSES = ("pieces",)
ADAPTERS = WORDS
PACKS_HEAD, PACKED_FROM = True, "fp16"
"""lightning 2.4.0 fabric/plugins/precision/bitsandbytes.py: every nn.Linear is replaced, the head too, and packed
from fp16, which is what a matrix is again when it is dequantised."""
LAYER_NORM = frozenset({"gpt_neox", "phi", "falcon"})
UNIT_OFFSET = frozenset({"gemma", "gemma2"})


def define(m: Structure) -> Definition:
    yield from linear("lm_head", "V", "h", m.architecture == "phi")
    yield from adapters(m, "lm_head", "V", "h", "head")
    yield from embedding("transformer.wte", "V", "h")
    yield Layers("transformer.h", lambda kind: block_rows(m))
    yield from norm_rows(m, "transformer.ln_f")
    yield from buffer("cos", f"s {rotary_size(m)}", "fp32")
    yield from buffer("sin", f"s {rotary_size(m)}", "fp32")


def norm_rows(m: Structure, name: str) -> Iterator[Row]:
    yield from layer_norm(name) if m.architecture in LAYER_NORM else rms_norm(name)


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.architecture in ("gpt_neox", "phi")
    yield from norm_rows(m, "norm_1")
    yield from linear("attn.attn", "(k a/k+2 d)", "h", biased)
    yield from qkv_adapters(m)
    yield from linear("attn.proj", "h", "(a d)", biased)
    yield from adapters(m, "attn.proj", "h", "(a d)", "projection")
    if not shared_norm(m):
        yield from norm_rows(m, "norm_2")
    for name in ("fc",) if m.architecture in LAYER_NORM else ("fc_1", "fc_2"):
        yield from linear(f"mlp.{name}", "f", "h", biased)
        yield from adapters(m, f"mlp.{name}", "f", "h", "mlp")
    yield from linear("mlp.proj", "h", "f", biased)
    yield from adapters(m, "mlp.proj", "h", "f", "mlp")
    if m.has("sandwich_norms"):
        yield from rms_norm("post_attention_norm")
        yield from rms_norm("post_mlp_norm")


def shared_norm(m: Structure) -> bool:
    """shared_attention_norm: one norm for attention and feed-forward."""
    return m.architecture in ("phi", "falcon")


def parallel(m: Structure) -> bool:
    """parallel_residual."""
    return m.architecture in LAYER_NORM and (m.architecture != "gpt_neox" or m.has("parallel_residual"))


def forward(m: Structure, ids: Tensor) -> Tensor:
    hidden = model(m, ids)
    if m.run == "inference":
        return in_default_dtype([head(m, hidden)])[0]
    if m.lora:
        logits = chunked_head(m, hidden, lambda x: head(m, x))
    else:
        logits = [head(m, hidden)]
    logits = in_default_dtype(logits)
    for chunk in logits:
        hand_out(chunk)
    del hidden
    returned()
    return chunked_loss(m, logits)


def in_default_dtype(outputs: list[Tensor]) -> list[Tensor]:
    """What Fabric's `-true` precisions do to all that a model returns (lightning/fabric/plugins/precision/half.py)."""
    return [cast(x, "fp32", "logits in fp32") for x in outputs]


def head(m: Structure, x: Tensor) -> Tensor:
    logits = adapted(m, x, "lm_head", "head")
    if m.has("logit_softcap"):
        logits = scale(tanh(scale(logits, "logits, scaled down")), "logits, capped")
    return logits


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("transformer"):
        x = embed(ids, "wte")
        if m.has("scaled_embedding"):
            x = scale(x, "embeddings, scaled")
        for _ in m.layers("h"):
            x = m.layer(block, x)
        return norm(m, x, "ln_f")


def norm(m: Structure, x: Tensor, name: str) -> Tensor:
    """config.norm_class: nn.LayerNorm, or RMSNorm line by line."""
    if m.architecture in LAYER_NORM:
        return weights.layer_norm(x, name)
    with scope(name):
        h = cast(x, "fp32", "input in fp32")
        mean = mean_last(mul(h, h, "squares"))
        h = mul(h, rsqrt(shift(mean)), "normalised in fp32")
        h = cast(h, x.dtype, "normalised")
        w: Tensor = weight("weight")
        return mul(h, shift(w, "1 + weight") if m.architecture in UNIT_OFFSET else w, "output")


def block(m: Structure, x: Tensor) -> Tensor:
    """Block.forward."""
    normed = norm(m, x, "norm_1")
    attended = attention(m, normed)
    if m.has("sandwich_norms"):
        attended = norm(m, attended, "post_attention_norm")
    if parallel(m):
        if not shared_norm(m):
            normed = norm(m, x, "norm_2")
        return add(add(mlp(m, normed), attended), x)
    x = add(attended, x)
    fed = mlp(m, norm(m, x, "norm_2"))
    if m.has("sandwich_norms"):
        fed = norm(m, fed, "post_mlp_norm")
    return add(fed, x)


def attention(m: Structure, x: Tensor) -> Tensor:
    """CausalSelfAttention.forward. The cache has every query's keys and values, but one key/value head alone is
    cached as it is."""
    one_head = m.run == "inference" and "k" in m.ones
    with scope("attn"):
        qkv = view(qkv_adapted(m, x), "b s k a/k+2 d")
        qkv = swap(qkv, "b k a/k+2 s d")
        q, k, v = split(qkv, 2, ["a/k", (), ()])
        if m.has("grouped_heads") and not one_head:
            k, v = expand(k, "b k a/k s d"), expand(v, "b k a/k s d")
        q = heads(m, q)
        k, v = (reshape(x, "b k s d") if one_head else heads(m, x) for x in (k, v))
        q, k = roped(m, q), roped(m, k)
        if m.run == "inference":
            k, v = cached(m, k, v)
        if one_head:
            k, v = (expand(x, (x.dims[0], ("a",), *x.dims[2:])) for x in (k, v))
        out = kernel(m, q, k, v)
        del qkv, q, k, v
        return adapted(m, out, "proj", "projection")


def heads(m: Structure, x: Tensor) -> Tensor:
    """reshape(B, -1, T, hs): a copy where groups and their queries are not neighbours in memory."""
    if x.dims[2]:
        return regroup(reshape(x, "b (k a/k) s d"), "b a s d")
    return rename(reshape(x, "b k s d"), dims("b a s d"))  # one query a group: the groups are the heads


def roped(m: Structure, x: Tensor) -> Tensor:
    """apply_rope on the first part of each head, in fp32, cast back; then joined to the rest."""
    part = rotary_size(m)
    turned, rest = part_and_rest(x, part)
    shape = dims(f"s {part}")
    table = Tensor(shape, "fp32", flat(shape), None)
    turned = cast(rotate(turned, table, table, f"{part}/2"), x.dtype, "rotated")
    return cat([turned, rest], x.dims, "rotated and rest")


def kernel(m: Structure, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """scaled_dot_product_attention; with capped scores the composite that LitGPT writes out."""
    if m.has("attention_softcap"):
        return capped(q, k, v)
    if m.kernel("full") == "flash":
        return merged(flash(q, k, v))
    if m.kernel("full") == "efficient":
        return merged(efficient(q, k, v))
    return merged(math(q, k, v, None, False, False))


def capped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores through tanh, a mask made for every layer, softmax in fp32."""
    keys, values = keys_as(k), keys_as(v)
    b, a, t, d = keys.dims
    scores = scale(matmul(q, swap(keys, (b, a, d, t))), "scores, scaled")
    scores = scale(tanh(scale(scores, "scores, scaled down"), "scores, tanh"), "scores, capped")
    mask = made("s s'", q.dtype, "ones")
    mask = made("s s'", q.dtype, "causal mask as numbers")
    scores = add(scores, mask, "scores, masked")
    probabilities = cast(softmax(scores, "fp32"), q.dtype, "probabilities")
    del mask
    return merged(matmul(probabilities, values))


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        if m.architecture in LAYER_NORM:
            return adapted(m, activation(adapted(m, x, "fc", "mlp"), "gelu"), "proj", "mlp")
        one, two = adapted(m, x, "fc_1", "mlp"), adapted(m, x, "fc_2", "mlp")
        gate = activation(one, "gelu" if m.architecture in UNIT_OFFSET else "silu")
        return adapted(m, mul(gate, two), "proj", "mlp")
