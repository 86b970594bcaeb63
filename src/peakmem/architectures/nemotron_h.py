"""Nemotron-H, as transformers 5.24 runs it (models/nemotron_h/modeling_nemotron_h.py).

Each layer is one thing behind one norm: Mamba 2, attention without positions, experts, or a plain feed-forward.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, linear, rms_norm
from peakmem.estimate.structure import Structure

MIRRORS = ("transformers 5.24.0 models/nemotron_h/modeling_nemotron_h.py, without mamba-ssm and causal-conv1d, "
           "experts implementation grouped_mm")
RUNS = ("inference",)
UNKNOWN = "what the chunks of a Mamba 2 layer make on the way is not known to peakmem yet"


def define(m: Structure) -> Definition:
    yield from embedding("model.embeddings", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.norm_f")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from rms_norm("norm")
    rows = {"full": attention_rows, "mamba": mixer_rows, "moe": sparse_rows, "mlp": plain_rows}
    yield from rows[kind](m)


def attention_rows(m: Structure) -> Iterator[Row]:
    yield from linear("mixer.q_proj", "(a d)", "h")
    yield from linear("mixer.k_proj", "(k d)", "h")
    yield from linear("mixer.v_proj", "(k d)", "h")
    yield from linear("mixer.o_proj", "h", "(a d)")


def mixer_rows(m: Structure) -> Iterator[Row]:
    """NemotronHMamba2Mixer: gate, convolved part and time steps in one projection."""
    biased = m.has("mixer_bias")
    yield Row("mixer.dt_bias", "am")
    yield Row("mixer.A_log", "am")
    yield Row("mixer.D", "am")
    yield Row("mixer.conv1d.weight", "am*em+2*Gm*o 1 q")
    if m.has("conv_bias"):
        yield Row("mixer.conv1d.bias", "am*em+2*Gm*o")
    yield from linear("mixer.in_proj", "2*am*em+2*Gm*o+am", "h", biased)
    yield from rms_norm("mixer.norm", "(am em)")
    yield from linear("mixer.out_proj", "h", "(am em)", biased)


def sparse_rows(m: Structure) -> Iterator[Row]:
    """Experts without a gate, on a latent where there is one."""
    width = "lx" if m.has("expert_latent") else "h"
    yield Row("mixer.experts.up_proj", f"E x {width}", "expert")
    yield Row("mixer.experts.down_proj", f"E {width} x", "expert")
    yield Row("mixer.gate.weight", "E h", "", "fp32")
    yield from buffer("mixer.gate.e_score_correction_bias", "E", "fp32")
    yield from linear("mixer.shared_experts.up_proj", "y", "h", m.has("mlp_bias"))
    yield from linear("mixer.shared_experts.down_proj", "h", "y", m.has("mlp_bias"))
    if m.has("expert_latent"):
        yield from linear("mixer.fc1_latent_proj", "lx", "h", m.has("mlp_bias"))
        yield from linear("mixer.fc2_latent_proj", "h", "lx", m.has("mlp_bias"))


def plain_rows(m: Structure) -> Iterator[Row]:
    yield from linear("mixer.up_proj", "f", "h", m.has("mlp_bias"))
    yield from linear("mixer.down_proj", "h", "f", m.has("mlp_bias"))


def states(m: Structure, kind: str) -> Iterator[tuple[str, str, str]]:
    """What a layer remembers: name, shape, dtype."""
    if kind == "full":
        yield "cached keys", f"b k {'t2' if m.decodes else 's'} d", ""
        yield "cached values", f"b k {'t2' if m.decodes else 's'} d", ""
    elif kind == "mamba":
        yield "last tokens before the convolution", "b am*em+2*Gm*o q", ""
        yield "state", "b am em o", "fp32"
