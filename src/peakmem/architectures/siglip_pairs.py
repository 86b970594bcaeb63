"""SigLIP, as transformers 5.24 runs it (models/siglip/modeling_siglip.py): pictures, captions, a loss of each pair.

Letters with an i belong to the tower of pictures; its layers run first.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import clip, siglip
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear, unpacked
from peakmem.errors import Impossible
from peakmem.estimate import weights
from peakmem.estimate.attention import bmm
from peakmem.estimate.contrastive import as_rows, divide, exponential, log_sigmoid
from peakmem.estimate.layout import dims
from peakmem.estimate.ops import add, mul, neg, scale, softmax, total_over
from peakmem.estimate.pictures import mean_over, vector_norm
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import clone, contiguous, expand, reshape, select, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import product, project, weight

MIRRORS = "transformers 5.24.0 models/siglip/modeling_siglip.py"
INPUTS = {"input_ids": ("b s", "int64"), "pixel_values": ("b c i i'", "")}
LOSSES = ("upcast",)
GENERATES = False
POOLED = "vision_model.head.attention.out_proj"


def define(m: Structure) -> Definition:
    refuse(m)
    yield Row("logit_scale", "1")
    yield Row("logit_bias", "1")
    yield from embedding("text_model.embeddings.token_embedding", "V", "h")
    yield from embedding("text_model.embeddings.position_embedding", "P", "h")
    yield from buffer("text_model.embeddings.position_ids", "1 P", "int64")
    yield Layers("text_model.encoder.layers", lambda kind: siglip.block_rows("h", "(a d)", "f"), "text")
    yield from layer_norm("text_model.final_layer_norm")
    yield from linear("text_model.head", "D", "h", True)
    yield from siglip.rows("vision_model")
    yield from head_rows("vision_model.head")


def refuse(m: Structure) -> None:
    """Adapters on what nn.MultiheadAttention reads without calling it. Errors: Impossible."""
    for pattern in m.lora:
        if pattern == "all-linear" or f".{POOLED}".endswith(f".{pattern}"):
            raise Impossible(f"--lora-targets {pattern}: SigLIP's pooling head reads past an adapter on its out_proj, "
                             "which peakmem does not know; name others: q_proj, k_proj, v_proj, fc1, fc2")


def head_rows(name: str) -> Iterator[Row]:
    """SiglipMultiheadAttentionPoolingHead."""
    yield Row(f"{name}.probe", "1 1 hi")
    yield Row(f"{name}.attention.in_proj_weight", "(3 ai di) hi")
    yield Row(f"{name}.attention.in_proj_bias", "(3 ai di)")
    yield from unpacked(linear(f"{name}.attention.out_proj", "hi", "(ai di)", True), "not by bitsandbytes")
    yield from layer_norm(f"{name}.layernorm", "hi")
    yield from linear(f"{name}.mlp.fc1", "fi", "hi", True)
    yield from linear(f"{name}.mlp.fc2", "hi", "fi", True)


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor) -> Tensor:
    with scope("vision_model"):
        image = m.tower("image")
        seen, image_embeds = siglip.pooled(image, pixel_values, lambda x: pooling_head(image, x))
    with scope("text_model"):
        read, text_embeds = text(m, input_ids)
    pooled = image_embeds, text_embeds
    image_embeds = divide(image_embeds, vector_norm(image_embeds, dims("b 1")))
    text_embeds = divide(text_embeds, vector_norm(text_embeds, dims("b 1")))
    logits = product(text_embeds, as_rows(image_embeds), None)
    logits = add(mul(logits, exponential(weight("logit_scale")), "logits, scaled"), weight("logit_bias"), "logits")
    result = each_pair(logits) if m.run == "training" else logits
    del seen, read, pooled
    return result


def each_pair(logits: Tensor) -> Tensor:
    """Whether a caption belongs to a picture: log-sigmoids of all pairs, the diagonal's with the other sign."""
    with scope("loss"):
        eye = made("b b'", "fp32", "the diagonal")
        m1_diag1 = signs(logits.dtype)
        loglik = log_sigmoid(mul(m1_diag1, logits, "logits with signs"))
        nll = neg(total_over(loglik, 1))
        loss = mean_over(nll, 0)
        del eye, m1_diag1, loglik
        return loss


def signs(dtype: str) -> Tensor:
    """-1, and 1 on the diagonal."""
    ones = made("b b'", dtype, "ones")
    ones = made("b b'", dtype, "minus ones")
    twice = made("b b'", "fp32", "the diagonal, twice")
    result = made("b b'", "fp32", "signs")
    del ones, twice
    return result


def pooling_head(m: Structure, x: Tensor) -> Tensor:
    """One trained token looks at all patches."""
    with scope("head"):
        probe = clone(expand(weight("probe"), "b 1 hi"), "probe of each picture")
        with scope("attention"):
            x = attention(probe, x)
        residual = x
        x = weights.layer_norm(x, "layernorm")
        x = add(residual, clip.mlp(m, x))
        del probe
        return select(x, 1)


def attention(probe: Tensor, x: Tensor) -> Tensor:
    """nn.MultiheadAttention, and F.multi_head_attention_forward with weights, which are averaged and not read."""
    query, key = swap(probe, "1 b hi"), swap(x, "(gi gi') b hi")
    q, k, v = packed_projections(query, key)
    q = swap(view(q, "1 (b ai) di"), "(b ai) 1 di")
    k = swap(view(k, "(gi gi') (b ai) di"), "(b ai) (gi gi') di")
    v = swap(view(v, "(gi gi') (b ai) di"), "(b ai) (gi gi') di")
    scaled = scale(q, "query, scaled")
    found = bmm(scaled, swap(k, "(b ai) di (gi gi')"))
    del scaled, k
    found = softmax(found)
    out = bmm(found, v)
    del v
    out = reshape(swap(out, "1 (b ai) di"), "b (ai di)")
    out = view(project(out, "out_proj"), "1 b hi")
    found = mean_over(view(found, "b ai 1 (gi gi')"), 1)
    del q, query, key
    return swap(out, "b 1 hi")


def packed_projections(query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """_in_projection_packed, where keys are values."""
    one, two = ("ai", "di"), ("2", "ai", "di")
    whole = weight("in_proj_weight")
    w_q, w_kv = split(whole, 0, [one, two])
    b_q, b_kv = split(weight("in_proj_bias"), 0, [one, two])
    q = product(query, w_q, b_q)
    kv = product(key, w_kv, b_kv, whole=whole)
    kv = contiguous(swap(view(kv, "(gi gi') b 2 (ai di)"), "2 (gi gi') b (ai di)"), "keys and values")
    return q, select(kv, 0), select(kv, 0)


def text(m: Structure, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The last hidden states, and the last token's projection."""
    with scope("embeddings"):
        hidden = clip.text_embeddings(ids)
    x = hidden
    with scope("encoder"):
        for _ in m.layers("layers", "text"):
            x = m.layer(siglip.block, x, clip.TEXT)
    encoded = x
    x = weights.layer_norm(x, "final_layer_norm")
    pooled = project(select(x, 1), "head")
    del hidden, encoded
    return x, pooled
