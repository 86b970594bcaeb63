"""The towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, as transformers 5.24 runs them (models/qwen2_vl/ and its kin).

Patches of all pictures lie in one row, (nt pm) of them: pm neighbours make one of nt tokens. Attention looks at one
picture after the other, N patches each; with windows (2.5) at one window after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear, rms_norm
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.layout import dims
from peakmem.estimate.ops import activation, add, cast, mul, total_over
from peakmem.estimate.picture_tokens import like_weight, outside_layers
from peakmem.estimate.positions import made, rotate
from peakmem.estimate.shapes import cat, index, split, swap, view
from peakmem.estimate.slices import unbind
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import convolution, embed, leaf, project, rms

Tables = tuple[Tensor, Tensor]
WINDOWS = {(True, True): "wa", (True, False): "wb", (False, True): "wc", (False, False): "wd"}
"""Patches of a window, by whether it has all rows and all columns: those at the picture's edges may be smaller."""


def rows(m: Structure) -> Definition:
    yield Row("model.visual.patch_embed.proj.weight", "hi c pt p p'")
    if has_table(m):
        yield Row("model.visual.patch_embed.proj.bias", "hi")
        yield from embedding("model.visual.pos_embed", "pp", "hi")
    for name in ("inv_freq", "original_inv_freq"):
        yield from buffer(f"model.visual.rotary_pos_emb.{name}", "di/4", "fp32")
    yield Layers("model.visual.blocks", lambda kind: block_rows(m), "image")
    if has_table(m):
        yield from merger_rows("model.visual.merger", "hi")
        for i in range(m.number("nd")):
            yield from merger_rows(f"model.visual.deepstack_merger_list.{i}", "(pm hi)")
        return
    yield from (rms_norm if has_windows(m) else layer_norm)("model.visual.merger.ln_q", "hi")
    yield from linear("model.visual.merger.mlp.0", "(pm hi)", "(pm hi)", True)
    yield from linear("model.visual.merger.mlp.2", "ho", "(pm hi)", True)


def has_windows(m: Structure) -> bool:
    """Qwen2.5-VL's: norms without biases, a gate in each feed-forward, windows."""
    return m.architecture == "qwen2_5_vl"


def has_table(m: Structure) -> bool:
    """Qwen3-VL's: a table of positions; some layers' outputs are merged, too, for the first layers of the decoder."""
    return m.architecture not in ("qwen2_vl", "qwen2_5_vl")


def block_rows(m: Structure) -> Iterator[Row]:
    norm = rms_norm if has_windows(m) else layer_norm
    yield from norm("norm1", "hi")
    yield from norm("norm2", "hi")
    yield from linear("attn.qkv", "(3 ai di)", "hi", True)
    yield from linear("attn.proj", "hi", "(ai di)", True)
    if has_windows(m):
        yield from linear("mlp.gate_proj", "fi", "hi", True)
        yield from linear("mlp.up_proj", "fi", "hi", True)
        yield from linear("mlp.down_proj", "hi", "fi", True)
    else:
        for name, outputs, inputs in zip(feed_forward_names(m), ("fi", "hi"), ("hi", "fi"), strict=True):
            yield from linear(f"mlp.{name}", outputs, inputs, True)


def feed_forward_names(m: Structure) -> tuple[str, str]:
    return ("linear_fc1", "linear_fc2") if has_table(m) else ("fc1", "fc2")


def merger_rows(name: str, normed: str) -> Iterator[Row]:
    yield from layer_norm(f"{name}.norm", normed)
    yield from linear(f"{name}.linear_fc1", "(pm hi)", "(pm hi)", True)
    yield from linear(f"{name}.linear_fc2", "ho", "(pm hi)", True)


def tower(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The last hidden states, the merged ones, those merged from earlier layers. m: as this tower sees the run."""
    if has_table(m):
        return tower_with_table(m, pixels)
    return tower_with_windows(m, pixels) if has_windows(m) else plain_tower(m, pixels)


def plain_tower(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Qwen2VisionTransformerPretrainedModel."""
    position_ids = made("(nt pm) 2", "int64", "rows and columns of the patches")
    x = patch_embed(pixels)
    tables = rotary_tables(position_ids)
    for _ in m.layers("blocks", "image"):
        x = m.layer(block, x, tables, False)
    merged = merger(m, x)
    del position_ids
    return x, merged, []


def tower_with_windows(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Qwen2_5_VisionTransformerPretrainedModel: patches are put in the order of windows, and at last put back.

    Which goes where is said on the CPU.
    """
    order = Tensor(dims("nt"), "int64", ("nt",), None)
    position_ids = made("(nt pm) 2", "int64", "rows and columns of the patches")
    x = patch_embed(pixels)
    x = by_window(x, order)
    tables = rotary_tables(position_ids)
    cos = by_window(tables[0], order)
    tables = cos, by_window(tables[1], order)
    del cos
    for kind in m.layers("blocks", "image"):
        x = m.layer(block, x, tables, kind == "image, windows")
    merged = merger(m, x)
    merged = index(merged, order, "nt ho", "features in their order")
    del position_ids
    return x, merged, []


def by_window(x: Tensor, order: Tensor) -> Tensor:
    """permute_input_for_window_attn: whole squares of patches change their places."""
    (_, width), shape = x.dims, x.dims
    x = view(x, (*dims("nt pm"), width))
    x = index(x, order, x.dims, "in the order of windows")
    return view(x, shape)


def tower_with_table(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Qwen3VLVisionModel: each patch has a weighted sum of four positions of a table."""
    corners = made("(nt pm) 4", "int64", "four positions of each patch")
    shares = made("(nt pm) 4", "fp32", "their weights")
    position_ids = made("(nt pm) 2", "int64", "rows and columns of the patches")
    x = patch_embed(pixels, older=False)
    pos_embeds = total_over(mul(embed(corners, "pos_embed", inputs=False), shares.seen_as(dims("(nt pm) 4 1"))), 1)
    x = add(x, cast(pos_embeds, x.dtype))
    tables = rotary_tables(position_ids)
    deepstack: list[Tensor] = []
    for kind in m.layers("blocks", "image"):
        x = m.layer(block, x, tables, False)
        if kind != "image":
            with outside_layers():
                deepstack.append(deep_merger(x, kind.rpartition(" ")[2]))
    with scope("merger"):
        merged = merged_squares(view(weights.layer_norm(x, "norm"), "nt (pm hi)"))
    del corners, shares, position_ids, pos_embeds
    return x, merged, deepstack


def deep_merger(x: Tensor, number: str) -> Tensor:
    with scope(f"deepstack_merger_list.{number}"):
        return merged_squares(weights.layer_norm(view(x, "nt (pm hi)"), "norm"))


def patch_embed(pixels: Tensor, older: bool = True) -> Tensor:
    """Conv3d on one patch of two frames after the other; what the older towers call their input embeddings."""
    with scope("patch_embed"):
        x = view(pixels, "(nt pm) c pt p p'")
        x = like_weight(x, "proj.weight")
        x = view(convolution(x, "proj", "(nt pm) hi 1 1 1"), "(nt pm) hi")
        return leaf(x) if older and current().trains_inputs and not x.needs_grad else x


def rotary_tables(position_ids: Tensor) -> Tables:
    """XxxVisionRotaryEmbedding.forward: angles of rows and of columns, cosine and sine of them, each twice."""
    numbers = made("(nt pm) 2 1", "fp32", "positions in fp32")
    angles = made("(nt pm) 2 di/4", "fp32", "angles")
    del numbers
    cos = made("(nt pm) 2 di/4", "fp32", "cosine")
    cos = made("(nt pm) 2 di/4", "fp32", "cosine, scaled")
    sin = made("(nt pm) 2 di/4", "fp32", "sine")
    sin = made("(nt pm) 2 di/4", "fp32", "sine, scaled")
    cos = recomposed("cosine table")
    sin = recomposed("sine table")
    del angles
    return cos, sin


def recomposed(name: str) -> Tensor:
    half = made("(nt pm) di/2", "fp32", "of rows and columns")
    whole = made("(nt pm) di", "fp32", name)
    del half
    return whole


def block(m: Structure, x: Tensor, tables: Tables, windowed: bool) -> Tensor:
    norm: Callable[[Tensor, str], Tensor] = rms if has_windows(m) else weights.layer_norm
    x = add(x, attention(m, norm(x, "norm1"), tables, windowed))
    x = add(x, llama.mlp(m, norm(x, "norm2")) if has_windows(m) else mlp(m, norm(x, "norm2")))
    return x


def attention(m: Structure, x: Tensor, tables: Tables, windowed: bool) -> Tensor:
    """VisionAttention: each stretch of patches is looked at by itself."""
    with scope("attn"):
        q, k, v = unbind(swap(view(project(x, "qkv"), "(nt pm) 3 ai di"), "3 (nt pm) ai di"), 0)
        q, k = turned(q, k, tables)
        q, k, v = (swap(part, "1 ai (nt pm) di") for part in (q, k, v))
        lengths = list(stretches(m, windowed))
        splits = [split(part, 2, lengths) for part in (q, k, v)]
        outputs = [attend(m, queries, keys, values, None, causal=False)[0]
                   for queries, keys, values in zip(*splits, strict=True)]
        out = view(cat(outputs, "1 (nt pm) (ai di)", "of all stretches"), "(nt pm) (ai di)")
        out = project(out, "proj")
        return out


def turned(q: Tensor, k: Tensor, tables: Tables) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb_vision: in fp32, then cast back."""
    dtype = q.dtype
    q, k = cast(q, "fp32"), cast(k, "fp32")
    cos, sin = (table.seen_as(dims("(nt pm) 1 di")) for table in tables)
    q_embed = rotate(q, cos, sin, "di/2")
    k_embed = rotate(k, cos, sin, "di/2")
    q_embed = cast(q_embed, dtype)
    k_embed = cast(k_embed, dtype)
    return q_embed, k_embed


def stretches(m: Structure, windowed: bool) -> Iterator[tuple[str, ...] | str]:
    """How many patches each call of attention gets, as letters; FlashAttention's package is called once."""
    if m.has("packed_pictures"):
        yield "nt", "pm"
        return
    for _ in range(m.number("pictures")):
        if not windowed:
            yield "N"
            continue
        down, across = ([True] * m.number(f"whole {way}") + [False] * m.number(f"part {way}")
                        for way in ("rows", "columns"))
        yield from (WINDOWS[row, column] for row in down for column in across)


def mlp(m: Structure, x: Tensor) -> Tensor:
    first, second = feed_forward_names(m)
    with scope("mlp"):
        return project(activation(project(x, first), m.activation), second)


def merger(m: Structure, x: Tensor) -> Tensor:
    """PatchMerger; what a list of modules is called with lives until it returns."""
    with scope("merger"):
        normed = view((rms if has_windows(m) else weights.layer_norm)(x, "ln_q"), "nt (pm hi)")
        return project(activation(project(normed, "mlp.0"), "gelu"), "mlp.2")


def merged_squares(x: Tensor) -> Tensor:
    """The rest of Qwen3VLVisionPatchMerger."""
    return project(activation(project(x, "linear_fc1"), "gelu"), "linear_fc2")
