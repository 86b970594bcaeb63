"""Several threads may ask at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret


def test_threads_get_what_one_alone_gets() -> None:
    questions = [{"accumulation": a, "checkpoint": c, "optimizer": o} for a in (1, 2) for c in ("none", "full")
                 for o in ("adamw", "sgd", "adafactor", "lion")]
    interpret.cache_clear()
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda q: estimate("gpt2", **q).totals, questions))
    interpret.cache_clear()
    assert together == [estimate("gpt2", **q).totals for q in questions]
