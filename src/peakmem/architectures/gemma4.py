"""Gemma 4's text model, as transformers 5.24 runs it (models/gemma4/modeling_gemma4.py, Gemma4ForCausalLM).

Full layers have larger heads, fewer of them for keys, and may take the keys' projection for values, too. The last
layer of each kind leaves its keys and values to whom it may concern. Experts, where there are any, stand beside the
dense feed-forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from peakmem.architectures.definition import Definition, Layers, Row, buffer, gated_rows, linear, lm_head, rms_norm
from peakmem.architectures.gemma import scaled_embedding
from peakmem.architectures.llama import mlp
from peakmem.estimate.attention import attend
from peakmem.estimate.experts import divide_in_place, experts, topk
from peakmem.estimate.inference import cached
from peakmem.estimate.inplace import mul_over
from peakmem.estimate.layout import dims
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.norms import rms_by_power
from peakmem.estimate.ops import mul, scale, softmax, total_over
from peakmem.estimate.positions import positions, rotary_table, rotate
from peakmem.estimate.shapes import index, reshape, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, weight
from peakmem.immutable import replace

MIRRORS = "transformers 5.24.0 models/gemma4/modeling_gemma4.py, Gemma4ForCausalLM"

Shared = dict[str, tuple[Tensor, Tensor]]


def define(m: Structure) -> Definition:
    yield from scaled_embedding()
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.norm")
    for word in words(m):
        for name in ("inv_freq", "original_inv_freq"):
            yield from buffer(f"model.rotary_emb.{word}_attention_{name}", f"{head(word)}/2", "fp32")
    yield from lm_head(m)


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from attention_rows(m, word_of(kind))
    yield from gated_rows()
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        yield from rms_norm(f"{name}_layernorm")
    yield from buffer("layer_scalar", "1")
    if m.has("experts"):
        yield Row("router.scale", "h")
        yield Row("router.per_expert_scale", "E")
        yield from linear("router.proj", "E", "h")
        yield Row("experts.gate_up_proj", "E (2 x) h")  # peft adapts none of Gemma 4's experts
        yield Row("experts.down_proj", "E h x")
        for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
            yield from rms_norm(name)


def attention_rows(m: Structure, word: str) -> Iterator[Row]:
    biased, d, k = m.has("attention_bias"), head(word), keys(word)
    yield from linear("self_attn.q_proj", f"(a {d})", "h", biased)
    yield from rms_norm("self_attn.q_norm", d)
    yield from rms_norm("self_attn.k_norm", d)
    yield from linear("self_attn.k_proj", f"({k} {d})", "h", biased)
    if not keys_as_values(m, word):
        yield from linear("self_attn.v_proj", f"({k} {d})", "h", biased)
    yield from linear("self_attn.o_proj", "h", f"(a {d})", biased)


def word_of(kind: str) -> str:
    """`full` or `sliding`."""
    return kind.partition(",")[0]


def words(m: Structure) -> list[str]:
    """Those that occur."""
    return sorted({word_of(kind) for kind in m.kinds()} & {"full", "sliding"})


def head(word: str) -> str:
    """The letter of the size of a head."""
    return "dg" if word == "full" else "d"


def keys(word: str) -> str:
    """The letter of the number of heads for keys."""
    return "kg" if word == "full" else "k"


def keys_as_values(m: Structure, word: str) -> bool:
    """Whether the keys' projection is the values', too."""
    return m.has("keys_as_values") and word == "full"


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens", scaled=True)
        position_ids = positions()
        x = decoder(m, x, layer_masks(m, x.dtype, ("full", "sliding")), position_ids)
        del inputs_embeds
        return x


def decoder(m: Structure, x: Tensor, masks: Mapping[str, Tensor | None], position_ids: Tensor) -> Tensor:
    """Layers and last norm."""
    tables = {word: rotary_table(x.dtype, f"{head(word)}/2", head(word)) for word in words(m)}
    shared: Shared = {}
    for kind in m.layers("layers"):
        word = word_of(kind)
        x = m.layer(block, x, shared, tables[word], masks[word], position_ids, kind)
    x = rms_by_power(x, "norm")
    del shared
    return x


def block(m: Structure, x: Tensor, shared: Shared, turned: tuple[Tensor, Tensor], mask: Tensor | None,
          position_ids: Tensor, kind: str) -> Tensor:
    residual = x
    x = rms_by_power(x, "input_layernorm")
    x, other = attention(m, x, shared, turned, mask, kind)
    x = rms_by_power(x, "post_attention_layernorm")
    x = residual + x
    residual = x
    x = rms_by_power(x, "pre_feedforward_layernorm")
    x = mlp(m, x)
    if m.has("experts"):
        x_1 = rms_by_power(x, "post_feedforward_layernorm_1")
        flat = reshape(residual, "(b s) h")
        other, weights, numbers = router(flat)
        x_2 = rms_by_power(flat, "pre_feedforward_layernorm_2")
        x_2 = experts(m, x_2, numbers, weights)
        x_2 = reshape(x_2, residual.dims)
        x_2 = rms_by_power(x_2, "post_feedforward_layernorm_2")
        x = x_1 + x_2
    x = rms_by_power(x, "post_feedforward_layernorm")
    x = residual + x
    x = mul_over(x, Tensor(dims("1"), m.shard_dtype or m.dtype, (), None))
    del other
    return x


def attention(m: Structure, x: Tensor, shared: Shared, turned: tuple[Tensor, Tensor], mask: Tensor | None,
              kind: str) -> tuple[Tensor, Tensor | None]:
    word = word_of(kind)
    d, k_heads = head(word), keys(word)
    with scope("self_attn"):
        cos, sin = turned
        q = view(project(x, "q_proj"), f"b s a {d}")
        q = rms_by_power(q, "q_norm")
        q = rotate(q, cos, sin, f"{d}/2")
        q = swap(q, f"b a s {d}")
        k = view(project(x, "k_proj"), f"b s {k_heads} {d}")
        v = k if keys_as_values(m, word) else view(project(x, "v_proj"), f"b s {k_heads} {d}")
        k = rms_by_power(k, "k_norm")
        k = rotate(k, cos, sin, f"{d}/2")
        k = swap(k, f"b {k_heads} s {d}")
        v = rms_by_power(v, "v_norm")
        v = swap(v, f"b {k_heads} s {d}")
        k, v = cached(m, k, v)
        if kind.endswith(", left"):
            shared[word] = k, v
        x, probabilities = attend(as_seen(m, word), q, k, v, mask)
        return project(x, "o_proj"), probabilities


def as_seen(m: Structure, word: str) -> Structure:
    """The run as attention of one kind of layer sees it: its own kernel, and what holds for its own heads."""
    if word == "sliding":
        return replace(m, kernels=tuple((name, m.kernel("sliding")) for name, _ in m.kernels))
    other = {"grouped_heads", "wide_heads", "odd_heads"}
    switches = {s.removeprefix("full_") for s in m.switches if s not in other}
    return replace(m, switches=frozenset(switches))


def router(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gemma4TextRouter: probabilities, and each row's K weights and expert numbers."""
    with scope("router"):
        x = rms_by_power(x, "norm")
        x = scale(mul(x, weight("scale"), "rows, scaled"), "rows, scaled")
        scores = project(x, "proj")
        probabilities = softmax(scores, "fp32")
        weights, numbers = topk(probabilities, "K")
        weights = divide_in_place(weights, total_over(weights, 1, keep=True))
        weights = mul(weights, index(weight("per_expert_scale"), numbers, "(b s) K", "scale of each expert"))
        del scores
        return probabilities, weights, numbers
