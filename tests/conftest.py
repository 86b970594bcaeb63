"""What several tests share."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
NO_DEFAULT = {"deepseek_v2": {"num_experts_per_tok": 6}, "ministral": {"head_dim": 128}, "glm4_moe": {"head_dim": 128}}
"""Sizes that a class has no default for, or one that it cannot be built with."""
CONFIGS = DATA / "configs"
STATUS = pytest.StashKey[int]()


@pytest.fixture(scope="session")
def configs() -> Path:
    """The folder of real config.json files."""
    return CONFIGS


@pytest.fixture(scope="session")
def params() -> dict[str, dict[str, str]]:
    """Facts about each of these files, by its name without .json."""
    with (CONFIGS / "params.csv").open() as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End without tearing the interpreter down: with PyTorch's stand-in for CUDA and the browser's event loop in one
    process, that has crashed after the summary, and a green run would be reported as a red one."""
    if STATUS in config.stash:
        config.get_terminal_writer().flush()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[STATUS])
