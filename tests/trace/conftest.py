"""Tests of the tracer run their work in a second process, as the tracer's users do."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from peakmem.trace.process import Worker

collect_ignore_glob = [] if find_spec("torch") and find_spec("transformers") else ["test_*.py"]


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    """A process with torch and the fake GPU, shared by all tests."""
    from peakmem.trace.fake_gpu import set_up
    from peakmem.trace.process import Worker

    with Worker() as worker:
        # Before any backward: the engine counts the devices once.
        worker.call(set_up, fallback=False)
        yield worker
