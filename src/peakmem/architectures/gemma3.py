"""Gemma 3's text model, as transformers 5.24 runs it (models/gemma3/modeling_gemma3.py).

Gemma 2 with norms on q and k and without caps; each kind of layer has its own rotary table.
"""

from __future__ import annotations

from peakmem.architectures.definition import Definition, Layers, buffer, lm_head, rms_norm
from peakmem.architectures.gemma import scaled_embedding
from peakmem.architectures.gemma2 import block_rows, sandwich
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.positions import positions, rotary_table, rotate
from peakmem.estimate.shapes import split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms_plus_one

MIRRORS = "transformers 5.24.0 models/gemma3/modeling_gemma3.py, Gemma3ForCausalLM"


def define(m: Structure) -> Definition:
    yield from scaled_embedding()
    yield Layers("model.layers", lambda kind: block_rows(m))
    yield from rms_norm("model.norm")
    for kind in kinds(m):
        yield from buffer(f"model.rotary_emb.{kind}_attention_inv_freq", "d/2", "fp32")
        yield from buffer(f"model.rotary_emb.{kind}_attention_original_inv_freq", "d/2", "fp32")
    yield from lm_head(m)


def kinds(m: Structure) -> list[str]:
    """The kinds of layers of text that occur."""
    return [kind for kind in ("full", "sliding") if kind in m.kinds()]


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor, name: str = "model", inputs_embeds: Tensor | None = None,
          masks: dict[str, Tensor | None] | None = None) -> Tensor:
    """The decoder. name: where it lies; inputs_embeds, masks: what is there before it runs."""
    with scope(name):
        if inputs_embeds is None:
            inputs_embeds = embed(ids, "embed_tokens", scaled=True)
        x = inputs_embeds
        position_ids = positions()
        if masks is None:
            masks = layer_masks(m, x.dtype, ("full", "sliding"))
        tables = {kind: rotary_table(x.dtype) for kind in kinds(m)}
        for kind in m.layers("layers"):
            x = m.layer(block, x, *tables[kind], masks[kind], position_ids)
        x = rms_plus_one(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    return sandwich(m, x, cos, sin, mask, attention)


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), "b k s d")
        v = split_heads(project(x, "v_proj"), "b k s d")
        q = rms_plus_one(q, "q_norm")
        k = rms_plus_one(k, "k_norm")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities
