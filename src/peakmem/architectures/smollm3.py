"""SmolLM3, as transformers 5.24 runs it (models/smollm3/modeling_smollm3.py): Llama, every fourth layer unturned."""

from __future__ import annotations

from peakmem.architectures import llama
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, rms

MIRRORS = "transformers 5.24.0 models/smollm3/modeling_smollm3.py"

define = llama.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        slides = any(kind.startswith("sliding") for kind in m.kinds())
        masks = layer_masks(m, x.dtype, ("full", "sliding") if slides else ("full",))
        cos, sin = rotary(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, masks[kind.partition(",")[0]], cos, sin, position_ids, "unturned" not in kind)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, position_ids: Tensor,
          turns: bool) -> Tensor:
    return llama.pre_norm(x, lambda x: llama.attention(m, x, cos, sin, mask, llama.turned if turns else None),
                          lambda x: llama.mlp(m, x))
