"""Hunyuan's dense models, as transformers 5.24 runs them (models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py).

Llama with norms on queries and keys after positions have turned them.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, gated_rows, rms_norm
from peakmem.estimate.structure import Structure

MIRRORS = "transformers 5.24.0 models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py"

forward = llama.forward


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"))
    yield from rms_norm("self_attn.query_layernorm", "d")
    yield from rms_norm("self_attn.key_layernorm", "d")
    yield from gated_rows()
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")
