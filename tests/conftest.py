"""What several tests share."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
NO_DEFAULT = {"deepseek_v2": {"num_experts_per_tok": 6}, "ministral": {"head_dim": 128}, "glm4_moe": {"head_dim": 128},
              "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
              "nemotron": {"num_key_value_heads": 8}, "lfm2_moe": {"layer_types": ["conv"] * 32},
              "nemotron-nas": {"num_hidden_layers": 2, "block_configs": [
                  {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 2.0}}] * 2},
              "gemma4_text": {"hidden_size_per_layer_input": 0},
              "gemma4": {"text_config": {"hidden_size_per_layer_input": 0}}}
"""Sizes that a class has no default for, or one that it cannot be built with."""
CONFIGS = DATA / "configs"


@pytest.fixture(scope="session")
def configs() -> Path:
    """The folder of real config.json files."""
    return CONFIGS


@pytest.fixture(scope="session")
def params() -> dict[str, dict[str, str]]:
    """Facts about each of these files, by its name without .json."""
    with (CONFIGS / "params.csv").open() as file:
        return {row["name"]: row for row in csv.DictReader(file)}
