"""OLMo-3, as transformers 5.24 runs it (models/olmo3/modeling_olmo3.py).

OLMo-2 with sliding and full layers in turn; each kind of layer has its own rotary table.
"""

from __future__ import annotations

from peakmem.architectures.definition import Definition, Layers, buffer, embedding, lm_head, rms_norm
from peakmem.architectures.olmo2 import block, block_rows
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.norms import rms_cast_last
from peakmem.estimate.positions import positions, rotary_table
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed

MIRRORS = "transformers 5.24.0 models/olmo3/modeling_olmo3.py"


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m))
    yield from rms_norm("model.norm")
    for kind in sorted(m.kinds()):
        yield from buffer(f"model.rotary_emb.{kind}_attention_inv_freq", "d/2", "fp32")
        yield from buffer(f"model.rotary_emb.{kind}_attention_original_inv_freq", "d/2", "fp32")
    yield from lm_head(m)


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        masks = layer_masks(m, x.dtype, ("full", "sliding"))
        tables = {kind: rotary_table("fp32") for kind in sorted(m.kinds())}
        for kind in m.layers("layers"):
            x = m.layer(block, x, masks[kind], *tables[kind], position_ids)
        x = rms_cast_last(x, "norm")
        del inputs_embeds
        return x
