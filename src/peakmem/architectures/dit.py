"""DiTTransformer2DModel, as diffusers 0.42 runs it (models/transformers/dit_transformer_2d.py): patches.

Timestep and class say how each layer scales and shifts its norms, and how much of its result counts (adaLN-Zero).
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, linear
from peakmem.architectures.picture_transformer import attend_all
from peakmem.estimate import weights
from peakmem.estimate.layout import dims, flat
from peakmem.estimate.losses import squared_error
from peakmem.estimate.ops import activation, add, cast, mul, scale, shift
from peakmem.estimate.positions import made, sinusoids
from peakmem.estimate.shapes import reshape, split, split_heads, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import borrowed, convolution, embed, project

MIRRORS = "diffusers 0.42.1 models/transformers/dit_transformer_2d.py"
INPUTS = {"hidden_states": ("b c i i'", ""), "timestep": ("b", "int64"), "class_labels": ("b", "int64"),
          "labels": ("b co i i'", "")}
LOSSES = ("upcast",)
GENERATES = EAGER = SHARDS = False
PATCHES = "(i/p i/p')"


def define(m: Structure) -> Definition:
    yield Row("pos_embed.proj.weight", "h c p p'")
    yield Row("pos_embed.proj.bias", "h")
    yield from buffer("pos_embed.pos_embed", f"1 {PATCHES} h")
    yield Layers("transformer_blocks", lambda kind: block_rows(m))
    yield from linear("proj_out_1", "2*h", "h", True)
    yield from linear("proj_out_2", "(p p' co)", "h", True)


def block_rows(m: Structure) -> Iterator[Row]:
    yield from linear("norm1.emb.timestep_embedder.linear_1", "h", "256", True)
    yield from linear("norm1.emb.timestep_embedder.linear_2", "h", "h'", True)
    yield from embedding("norm1.emb.class_embedder.embedding_table", "C+1", "h")
    yield from linear("norm1.linear", "6*h", "h", True)
    for part in ("to_q", "to_k", "to_v"):
        yield from linear(f"attn1.{part}", "(a d)", "h", m.has("attention_bias"))
    yield from linear("attn1.to_out.0", "h", "(a d)", True)
    yield from linear("ff.net.0.proj", "f", "h", True)
    yield from linear("ff.net.2", "h", "f", True)


def forward(m: Structure, hidden_states: Tensor, timestep: Tensor, class_labels: Tensor,
            labels: Tensor | None = None) -> Tensor:
    predicted = model(m, hidden_states, class_labels)
    del timestep
    return predicted if labels is None else squared_error(predicted, labels)


def model(m: Structure, latents: Tensor, classes: Tensor) -> Tensor:
    with scope("pos_embed"):
        x = patches(m, latents)
    for _ in m.layers("transformer_blocks"):
        x = m.layer(block, x, classes)
    with borrowed("transformer_blocks.*.norm1", "0.first.0:"):
        conditioning = condition(m, classes, x.dtype)
    shifts, scales = split(project(activation(conditioning, "silu"), "proj_out_1"), 1, ["h", "h"])
    x = add(mul(weights.layer_norm(x, "norm_out"), factor(scales)), view(shifts, "b 1 h"))
    x = project(x, "proj_out_2")
    x = view(x, "b i/p i/p' p p' co")
    x = swap(x, "b co i/p p i/p' p'")
    out = reshape(x, "b co (i/p p) (i/p' p')")
    del conditioning, shifts, scales
    return out


def patches(m: Structure, latents: Tensor) -> Tensor:
    """PatchEmbed: a convolution whose stride is its kernel, and positions from a buffer."""
    x = swap(convolution(latents, "proj", f"b h {PATCHES}"), f"b {PATCHES} h")
    shape = dims(f"1 {PATCHES} h")
    return cast(add(x, Tensor(shape, m.dtype, flat(shape), None)), x.dtype)


def condition(m: Structure, classes: Tensor, dtype: str) -> Tensor:
    """CombinedTimestepLabelEmbeddings; in training some classes are dropped."""
    with scope("emb"):
        timesteps_proj = sinusoids("b", "256")
        with scope("timestep_embedder"):
            timesteps_emb = embedded(cast(timesteps_proj, dtype, "timesteps embedded"))
        with scope("class_embedder"):
            class_emb = embed(dropped(classes) if m.run == "training" else classes, "embedding_table", inputs=False)
        out = add(timesteps_emb, class_emb)
        del timesteps_proj
        return out


def embedded(given: Tensor) -> Tensor:
    x = project(given, "linear_1")
    x = activation(x, "silu")
    return project(x, "linear_2")


def dropped(classes: Tensor) -> Tensor:
    """LabelEmbedding.token_drop: where a random number is small, the class is none."""
    drop_ids = made("b", "fp32", "random numbers")
    drop_ids = made("b", "bool", "what is dropped")
    none = made("", "int64", "no class")
    result = made("b", "int64", "classes")
    del drop_ids, none
    return result


def factor(scales: Tensor) -> Tensor:
    """1 + scale[:, None]."""
    return shift(view(scales, "b 1 h"))


def block(m: Structure, x: Tensor, classes: Tensor) -> Tensor:
    with scope("norm1"):
        normed, gate_msa, shift_mlp, scale_mlp, gate_mlp = adaptive_norm(m, x, classes)
    attended = attention(m, normed)
    attended = mul(view(gate_msa, "b 1 h"), attended)
    x = add(attended, x)
    normed = weights.layer_norm(x, "norm3")
    normed = add(mul(normed, factor(scale_mlp)), view(shift_mlp, "b 1 h"))
    fed = feed_forward(normed)
    fed = mul(view(gate_mlp, "b 1 h"), fed)
    return add(fed, x)


def adaptive_norm(m: Structure, x: Tensor, classes: Tensor) -> tuple[Tensor, ...]:
    """AdaLayerNormZero: what is normalised, and four of the six parts that its condition gives."""
    emb = condition(m, classes, x.dtype)
    emb = project(activation(emb, "silu"), "linear")
    shifts, scales, *others = split(emb, 1, ["h"] * 6)
    x = add(mul(weights.layer_norm(x, "norm"), factor(scales)), view(shifts, "b 1 h"))
    return x, *others


def attention(m: Structure, x: Tensor) -> Tensor:
    """AttnProcessor2_0."""
    shape = (x.dims[0], ("a",), x.dims[1], ("d",))
    with scope("attn1"):
        residual = x
        q, k, v = (project(x, part) for part in ("to_q", "to_k", "to_v"))
        q, k, v = split_heads(q, shape), split_heads(k, shape), split_heads(v, shape)
        x = attend_all(m, q, k, v)
        x = reshape(swap(x, (x.dims[0], x.dims[2], ("a",), ("d",))), (x.dims[0], x.dims[2], ("a", "d")))
        x = project(x, "to_out.0")
        x = scale(x)
        del residual
        return x


def feed_forward(x: Tensor) -> Tensor:
    with scope("ff"):
        with scope("net.0"):
            x = approximated(x)
        return project(x, "net.2")


def approximated(x: Tensor) -> Tensor:
    x = project(x, "proj")
    x = activation(x, "gelu_pytorch_tanh")
    return x
