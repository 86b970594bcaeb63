"""Whatever a config.json says, the answer is a model or one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from peakmem.errors import PeakmemError
from peakmem.readers.defaults import ALIASES, DEFAULTS
from peakmem.readers.hf_config import NESTED, from_config
from peakmem.readers.json_file import NotFinite, parse
from peakmem.tables.resize import SIZES, resize
from tests.conftest import CONFIGS, NO_DEFAULT

FIELDS = sorted(
    {f for row in DEFAULTS.values() for f in row}
    | {a for row in ALIASES.values() for a in row}
    | {
        "head_dim",
        "rope_scaling",
        "rope_parameters",
        "rotary_pct",
        "partial_rotary_factor",
        "id2label",
        "num_labels",
        "architectures",
        "text_config",
        "quantization_config",
        "sliding_window_pattern",
        "torch_dtype",
    }
)
WORDS = st.sampled_from(["full_attention", "sliding_attention", "gelu", "relu", "silu", "longrope", "x", "\ud800"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.integers(),
    st.floats(),
    WORDS,
    st.text(),
    st.just(NotFinite.of("1e400")),
    st.just(NotFinite.of("NaN")),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(WORDS, st.sampled_from(FIELDS)), inner, max_size=3)
    ),
    max_leaves=6,
)
CONFIG = st.builds(
    lambda kind, more: {"model_type": kind, **more},
    st.sampled_from([*DEFAULTS, "gemma3"]),
    st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text(max_size=5)), VALUES, max_size=6),
)


def one_line(error: PeakmemError) -> None:
    """A message can be printed anywhere."""
    text = str(error)
    assert text and text.isprintable() and len(text) < 1000


@settings(max_examples=600, deadline=None)
@given(CONFIG)
def test_any_fields(config: dict[str, Any]) -> None:
    try:
        model = from_config(config)
    except PeakmemError as error:
        return one_line(error)
    assert 0 < model.kv_heads <= model.heads and model.heads % model.kv_heads == 0
    assert min(model.layers, model.hidden, model.head_size) > 0
    convolves = model.architecture in ("resnet", "convnext", "convnextv2")
    assert (model.feed_forward > 0) != convolves
    assert len(model.layer_kinds) in (0, model.layers)
    assert ("sliding" in model.layer_kinds) <= (model.window > 0)
    assert model.experts_per_token <= model.experts
    assert all(note.isprintable() and len(note) < 600 for note in model.notes)
    hash(model)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass"))))
def test_any_bytes(raw: bytes) -> None:
    try:
        parse(raw, "file")
    except PeakmemError as error:
        one_line(error)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_cut_of_a_real_file(data: Any) -> None:
    raw = (CONFIGS / "gemma-2-9b.json").read_bytes()
    start = data.draw(st.integers(0, len(raw)))
    cut = raw[:start] + data.draw(st.binary(max_size=3)) + raw[data.draw(st.integers(start, len(raw))) :]
    try:
        from_config(parse(cut, "file"))
    except PeakmemError as error:
        one_line(error)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(DEFAULTS)),
    st.dictionaries(
        st.sampled_from([*SIZES, "tied", "x"]),
        st.one_of(
            st.integers(1, 64).map(lambda n: 64 * n), st.integers(), st.booleans(), st.text(max_size=4), st.floats()
        ),
        max_size=4,
    ),
)
def test_any_size(kind: str, given_sizes: dict[str, Any]) -> None:
    model = from_config({"model_type": kind, **NO_DEFAULT.get(kind, {})})
    try:
        changed = resize(model, **given_sizes)
    except PeakmemError as error:
        return one_line(error)
    assert changed.architecture in (kind, NESTED.get(kind)) and changed.heads % changed.kv_heads == 0
    assert len(changed.layer_kinds) in (0, changed.layers)


def test_resizing_to_the_same_size_changes_nothing() -> None:
    for kind in DEFAULTS:
        model = from_config({"model_type": kind, **NO_DEFAULT.get(kind, {})})
        assert resize(model, hidden=model.hidden, layers=model.layers) == model


def test_the_example_is_the_real_file() -> None:
    example = Path(__file__).parents[2] / "examples" / "llama-3.1-8b" / "config.json"
    assert json.loads(example.read_text()) == json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
