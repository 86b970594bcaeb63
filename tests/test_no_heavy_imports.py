"""`import peakmem` and an estimate load neither PyTorch nor NumPy nor rich, and this test would see it if they did."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"torch", "numpy", "rich", "transformers", "matplotlib", "pandas"}


def loaded(code: str) -> set[str]:
    """Heavy packages in memory after some code has run in a process of its own."""
    show = f"\nimport sys; print(*({HEAVY!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code + show], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_is_cheap() -> None:
    assert loaded("import peakmem") == set()


def test_reading_and_looking_up_are_cheap() -> None:
    assert (
        loaded(
            "from peakmem.tables.models import find_model; from peakmem.tables.gpus import find_gpu\n"
            "find_model('llama-3.1-8b'); find_gpu('H100')"
        )
        == set()
    )


def test_the_test_would_fail() -> None:
    assert loaded("import numpy") == {"numpy"}
