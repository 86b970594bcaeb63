"""How an architecture writes down its parameters: rows in the order in which the real modules define them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from peakmem.estimate.structure import Structure


class Row(NamedTuple):
    """One parameter or buffer. shape: groups of letters, see estimate/layout.py; module: what it belongs to.

    adapted: whether peft may give its linear layer an adapter. packed: whether transformers replaces the layer by a
    quantised one: always; never, where the class names it in _keep_in_fp32_modules; "not by bitsandbytes", which takes
    nn.Linear itself, and no class made from it (integrations/bitsandbytes.py, replace_with_bnb_linear).
    """

    name: str
    shape: str
    module: str = ""  # linear | conv1d | linear, read: never run | embedding | norm | buffer | unused: frozen | ""
    dtype: str = ""  # empty: the module's
    reached: bool = True  # by a gradient; it is trained, in name, all the same
    adapted: bool = True
    within: str = ""  # the module in which a shared one is met first, where that is not the one in its name
    packed: str = "always"


class Layers(NamedTuple):
    """Equal or nearly equal layers; `block(kind)` gives the rows of one, names relative to the layer.

    stack: where a model has several stacks, the word that the kinds of this one begin with.
    """

    name: str
    block: Callable[[str], Iterator[Row]]
    stack: str = ""


Definition = Iterator[Row | Layers]


def linear(name: str, outputs: str, inputs: str, bias: bool = False) -> Iterator[Row]:
    """nn.Linear: the weight lies as (out, in)."""
    yield Row(f"{name}.weight", f"{outputs} {inputs}", "linear")
    if bias:
        yield Row(f"{name}.bias", outputs, "linear")


def unpacked(rows: Iterator[Row], word: str = "never") -> Iterator[Row]:
    """A linear layer that is not quantised, never or not by everything."""
    return (row._replace(packed=word) for row in rows)


def conv1d(name: str, outputs: str, inputs: str) -> Iterator[Row]:
    """transformers' Conv1D (GPT-2): the weight lies as (in, out), there is always a bias."""
    yield Row(f"{name}.weight", f"{inputs} {outputs}", "conv1d")
    yield Row(f"{name}.bias", outputs, "conv1d")


def embedding(name: str, rows: str, width: str) -> Iterator[Row]:
    """nn.Embedding."""
    yield Row(f"{name}.weight", f"{rows} {width}", "embedding")


def rms_norm(name: str, width: str = "h") -> Iterator[Row]:
    """A norm with a weight and no bias."""
    yield Row(f"{name}.weight", width, "norm")


def layer_norm(name: str, width: str = "h", bias: bool = True) -> Iterator[Row]:
    """nn.LayerNorm."""
    yield Row(f"{name}.weight", width, "norm")
    if bias:
        yield Row(f"{name}.bias", width, "norm")


def lm_head(m: Structure) -> Iterator[Row]:
    """The head; a tied one is the embedding's weight and has no row of its own."""
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def decoder(m: Structure, block: Callable[[str], Iterator[Row]],
            norm: Callable[[str], Iterator[Row]] = rms_norm) -> Definition:
    """LlamaForCausalLM's frame, which most decoders share: embedding, layers, norm, rotary tables, head."""
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", block)
    yield from norm("model.norm")
    yield from rotary_buffers(m)
    yield from lm_head(m)


def attention_rows(biased: bool = False, output_biased: bool | None = None) -> Iterator[Row]:
    """LlamaAttention's four projections; the output's bias is like the others' unless it is said."""
    for part, heads in (("q", "a"), ("k", "k"), ("v", "k")):
        yield from linear(f"self_attn.{part}_proj", f"({heads} d)", "h", biased)
    yield from linear("self_attn.o_proj", "h", "(a d)", biased if output_biased is None else output_biased)


def gated_rows(biased: bool = False, name: str = "mlp", size: str = "f") -> Iterator[Row]:
    """LlamaMLP's three projections."""
    yield from linear(f"{name}.gate_proj", size, "h", biased)
    yield from linear(f"{name}.up_proj", size, "h", biased)
    yield from linear(f"{name}.down_proj", "h", size, biased)


def rotary_buffers(m: Structure, name: str = "model.rotary_emb") -> Iterator[Row]:
    """XxxRotaryEmbedding: frequencies, those it began with, and longrope's, which the first forward makes."""
    size = "u/2" if m.has("partial_rotary") else "d/2"
    yield from buffer(f"{name}.inv_freq", size, "fp32")
    yield from buffer(f"{name}.original_inv_freq", size, "fp32")
    if m.has("longrope") and m.step == "steady":
        yield from buffer(f"{name}.long_inv_freq", size, "fp32")


def buffer(name: str, shape: str, dtype: str = "") -> Iterator[Row]:
    """A tensor that moves with the module and is not trained."""
    yield Row(name, shape, "buffer", dtype)
