"""Jamba, as transformers 5.24 runs it (models/jamba/modeling_jamba.py): Mamba layers, now and then attention."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import mamba
from peakmem.architectures.definition import Definition, Layers, Row, embedding, linear, rms_norm
from peakmem.architectures.mamba import mixer_rows
from peakmem.architectures.mixtral import expert_rows, router_rows
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.structure import Structure

MIRRORS = ("transformers 5.24.0 models/jamba/modeling_jamba.py, without mamba-ssm and causal-conv1d, experts "
           "implementation grouped_mm")
RUNS = ("inference",)
UNKNOWN = mamba.UNKNOWN


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.final_layernorm")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    if kind.startswith("full"):
        yield from linear("self_attn.q_proj", "(a d)", "h")
        yield from linear("self_attn.k_proj", "(k d)", "h")
        yield from linear("self_attn.v_proj", "(k d)", "h")
        yield from linear("self_attn.o_proj", "h", "(a d)")
    else:
        yield from mixer_rows(m, "mamba", normed=True)
    if "dense" in kind:
        yield from dense_rows(False, "feed_forward")
    else:
        yield from router_rows(m, "feed_forward.router")
        yield from expert_rows(m, "feed_forward.experts")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("pre_ff_layernorm")


def states(m: Structure, kind: str) -> Iterator[tuple[str, str, str]]:
    """What a layer remembers: name, shape, dtype."""
    if kind.startswith("full"):
        yield "cached keys", f"b k {'t2' if m.decodes else 's'} d", ""
        yield "cached values", f"b k {'t2' if m.decodes else 's'} d", ""
    else:
        yield from mamba.states(m, kind)
