"""Qwen3.5 with its tower, as transformers 5.24 runs it (models/qwen3_5/modeling_qwen3_5.py,
Qwen3_5ForConditionalGeneration): Qwen3-VL's tower, of which the last layer's output is merged alone."""

from __future__ import annotations

from peakmem.architectures import qwen3_5, qwen3_next, qwen_tower, qwen_vl
from peakmem.architectures.definition import Definition
from peakmem.architectures.delta_net import gated_delta_net
from peakmem.architectures.llava import TEXT, beside
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.picture_tokens import image_outputs
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = ("transformers 5.24.0 models/qwen3_5/modeling_qwen3_5.py, Qwen3_5ForConditionalGeneration, without fla and "
           "causal-conv1d")
INPUTS = qwen_vl.INPUTS


def define(m: Structure) -> Definition:
    yield from qwen_vl.reached(qwen_tower.rows(m), m.has("pictures"))
    yield from beside(qwen3_5.define(m))
    yield from qwen_vl.remembered(m)


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor | None = None,
            mm_token_type_ids: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
    returned = image_outputs(m)
    return causal_lm(m, lambda: qwen_vl.model(m, input_ids, pixel_values, returned, text), f"{TEXT}.embed_tokens")


def text(m: Structure, ids: Tensor, inputs_embeds: Tensor | None = None, position_ids: Tensor | None = None,
         *of_earlier_layers: object) -> Tensor:
    def mixer(x: Tensor) -> Tensor:
        return gated_delta_net(m, x, together=False)

    return qwen3_next.model(m, ids, mixer, qwen3_5.grid_table, TEXT, inputs_embeds, position_ids)
