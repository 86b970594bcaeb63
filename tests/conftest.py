"""What several tests share."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
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
