"""Zamba2, as transformers 5.24 runs it (models/zamba2/modeling_zamba2.py): Mamba 2, and a few shared blocks.

A hybrid layer runs a block of attention and feed-forward on its input beside the embeddings, and adds what comes out to
the input of its Mamba layer. Hybrid layers take the blocks in turn; a block's weights lie where it is met first, with
the adapters of all layers that take it. The kind `full, 3 of 1` is hybrid layer 3, which takes block 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    embedding,
    linear,
    lm_head,
    rms_norm,
    rotary_buffers,
)
from peakmem.architectures.nemotron_h import mixer, mixer_rows
from peakmem.errors import Impossible
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.shapes import cat, clone, split, split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import borrowed, embed, project, rms

MIRRORS = "transformers 5.24.0 models/zamba2/modeling_zamba2.py, without mamba-ssm and causal-conv1d"
SHARED = "shared_transformer"


def define(m: Structure) -> Definition:
    refuse(m)
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.final_layernorm")
    if not m.has("unturned"):
        yield from rotary_buffers(m)
    yield from lm_head(m)


def refuse(m: Structure) -> None:
    """What sharing weights between layers makes of levers that go by layers. Errors: Impossible."""
    if not any(kind.startswith("full") for kind in m.kinds()):
        return
    if not m.has("tied") and any(number != block for kind in m.kinds() if kind != "mamba"
                                 for number, block in (place(kind),)):
        raise Impossible("Zamba2 with an output head of its own: transformers 5.24 then shares no block of it either, "
                         "which peakmem does not know; give tie_word_embeddings true, or --tied yes")
    modules = {row.name.rpartition(".")[0] for row in shared_rows(m, 0)}
    for pattern in m.lora:
        if pattern == "all-linear" or any(f".{module}".endswith(f".{pattern}") for module in modules):
            raise Impossible(f"--lora-targets {pattern}: peft gives every layer of Zamba2 that shares a block adapters "
                             "of its own for it, which peakmem does not know; name others: in_proj, out_proj, linear")
    if m.checkpoint != "none":
        raise Impossible("--checkpoint: Zamba2's hybrid layers recompute their Mamba layer within their own "
                         "recomputation, which peakmem does not know; leave it out")
    if m.stored.scheme:
        raise Impossible("--weights: how a block that several layers of Zamba2 share is packed is not known; give auto")
    if m.shard not in ("none", "zero1", "zero2"):
        raise Impossible(f"--shard {m.shard}: which layer of Zamba2 owns a block that several share is not known; "
                         "give zero1 or zero2")


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    if kind == "mamba":
        yield from mixer_rows(m, "mamba")
        yield from rms_norm("input_layernorm")
        return
    number, block = place(kind)
    yield from linear("linear", "h", "h'")
    yield from mixer_rows(m, "mamba_decoder.mamba")
    yield from rms_norm("mamba_decoder.input_layernorm")
    if number == block:
        yield from (row._replace(name=f"{SHARED}.{row.name}") for row in shared_rows(m, block))


def place(kind: str) -> tuple[int, int]:
    """The number of a hybrid layer among its like, and of its block: that of the first layer which takes it."""
    number, _, block = kind.removeprefix("full, ").partition(" of ")
    return int(number), int(block)


def shared_rows(m: Structure, block: int) -> Iterator[Row]:
    """A block, and the adapters of every layer that takes it."""
    takers = sorted(number for kind in m.kinds() if kind != "mamba" for number, own in (place(kind),) if own == block)
    biased = m.has("mixer_bias")
    for part, heads in (("q", "a"), ("k", "k"), ("v", "k")):
        yield from linear(f"self_attn.{part}_proj", f"({heads} d)", "(2 h)")
    yield from linear("self_attn.o_proj", "h", "(a d)")
    for part in "qkv" if m.has("attention_adapters") else "":
        for i in takers:
            yield from linear(f"self_attn.linear_{part}_adapter_list.{i}.0", "ra", "(2 h)")
            yield from linear(f"self_attn.linear_{part}_adapter_list.{i}.1", "(2 h)", "ra")
    yield from linear("feed_forward.gate_up_proj", "(2 f)", "h", biased)
    yield from linear("feed_forward.down_proj", "h", "f", biased)
    for i in takers:
        yield from linear(f"feed_forward.gate_up_proj_adapter_list.{i}.0", "ra", "h")
        yield from linear(f"feed_forward.gate_up_proj_adapter_list.{i}.1", "(2 f)", "ra")
    yield from rms_norm("input_layernorm", "(2 h)")
    yield from rms_norm("pre_ff_layernorm")


def owner(m: Structure, block: int) -> str:
    """The key of the layer where a block's weights lie."""
    return next(key for key, kind, _ in m.copies() if kind == f"full, {block} of {block}")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        original = clone(inputs_embeds, "embeddings, copied")
        position_ids = positions()
        mask = causal_mask(m, x.dtype)
        tables = None if m.has("unturned") else rotary(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(mamba_layer if kind == "mamba" else hybrid_layer, x, original, mask, tables, position_ids, kind)
        x = rms(x, "final_layernorm")
        del inputs_embeds
        return x


def hybrid_layer(m: Structure, x: Tensor, original: Tensor, mask: Tensor | None, tables: tuple[Tensor, Tensor] | None,
                 position_ids: Tensor, kind: str) -> Tensor:
    number, block = place(kind)
    with borrowed(SHARED, owner(m, block)):
        transformed = shared_transformer(m, x, original, mask, tables, number)
    transformed = project(transformed, "linear")
    with scope("mamba_decoder"):
        return mamba(m, x, add(x, transformed))


def mamba_layer(m: Structure, x: Tensor, original: Tensor, mask: Tensor | None, tables: tuple[Tensor, Tensor] | None,
                position_ids: Tensor, kind: str) -> Tensor:
    return mamba(m, x, x)


def mamba(m: Structure, residual: Tensor, x: Tensor) -> Tensor:
    """Zamba2MambaDecoderLayer."""
    x = rms(x, "input_layernorm")
    x = mixer(m, x, "mamba")
    return residual + x


def shared_transformer(m: Structure, x: Tensor, original: Tensor, mask: Tensor | None,
                       tables: tuple[Tensor, Tensor] | None, number: int) -> Tensor:
    """Zamba2AttentionDecoderLayer."""
    x = cat([x, original], "b s (2 h)", "input beside embeddings")
    x = rms(x, "input_layernorm")
    x, probabilities = attention(m, x, mask, tables, number)
    x = rms(x, "pre_ff_layernorm")
    x = mlp(m, x, number)
    del probabilities
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None, tables: tuple[Tensor, Tensor] | None,
              number: int) -> tuple[Tensor, Tensor | None]:
    """Zamba2Attention, with this layer's adapters."""
    with scope("self_attn"):
        q, k, v = project(x, "q_proj"), project(x, "k_proj"), project(x, "v_proj")
        if m.has("attention_adapters"):
            q = add(q, adapter(x, f"linear_q_adapter_list.{number}"))
            k = add(k, adapter(x, f"linear_k_adapter_list.{number}"))
            v = add(v, adapter(x, f"linear_v_adapter_list.{number}"))
        q, k, v = split_heads(q, "b a s d"), split_heads(k, "b k s d"), split_heads(v, "b k s d")
        if tables is not None:
            q, k = llama.turned(q, k, *tables)
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        return project(out, "o_proj"), probabilities


def adapter(x: Tensor, name: str) -> Tensor:
    """Two matrices, one behind the other."""
    with scope(name):
        return project(project(x, "0"), "1")


def mlp(m: Structure, x: Tensor, number: int) -> Tensor:
    """Zamba2MLP, with this layer's adapter."""
    with scope("feed_forward"):
        both = project(x, "gate_up_proj")
        both = add(both, adapter(x, f"gate_up_proj_adapter_list.{number}"))
        parts = split(both, 2, ["f", "f"])
        del both
        x = activation(parts[0], m.activation) * parts[1]
        out = project(x, "down_proj")
        del parts
        return out
