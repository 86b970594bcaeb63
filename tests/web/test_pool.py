"""Who is answered when, and by which process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette", reason="the server's tests need the extra: pip install -e '.[serve]'")

from peakmem.web.pool import Busy, Pool, TooSlow, weight
from tests.web.server import Patient


def test_nobody_has_all_turns() -> None:
    """One address asks ten of the heaviest questions: its own estimate, and anything of another's, finds a turn."""
    async def run() -> None:
        engines = [Patient() for _ in range(4)]
        pool = Pool(engines, 20, 0.2, 100)  # type: ignore[arg-type]
        mine = [asyncio.create_task(pool.answer(b'{"ask": "fit", "lines": %d}' % i, "a")) for i in range(10)]
        await asyncio.sleep(0.05)
        assert pool.idle.qsize() == 3  # one of them runs
        others = [asyncio.create_task(pool.answer(question, address)) for question, address in (
            (b'{"model":"gpt2"}', "a"), (b'{"ask":"levers"}', "b"), (b'{"ask":"chart"}', "c"))]
        await asyncio.sleep(0.3)
        assert [isinstance(task.exception(), Busy) for task in mine if task.done()] == [True] * 9
        assert pool.idle.qsize() == 0 and not any(task.done() for task in others)
        for engine in engines:
            engine.go.set()
        assert len(await asyncio.gather(*others)) == 3
        await asyncio.wait(mine)
        assert pool.idle.qsize() == 4 and not any(turns.own for turns in pool.turns)
        pool.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, run()).result()


@pytest.mark.parametrize("many", [2, 3, 4])
def test_a_sliders_question_waits_for_nothing_of_ones_own(many: int) -> None:
    """One address asks whatever takes long, all at once, and then a chart."""
    class Slow(Patient):
        def ask(self, question: bytes) -> bytes:
            return question if b"chart" in question else super().ask(question)

    async def run() -> None:
        engines = [Slow() for _ in range(many)]
        pool = Pool(engines, 20, 20, 100)  # type: ignore[arg-type]
        heavy = [asyncio.create_task(pool.answer(b'{"ask": "%s", "lines": %d}' % (ask, i), "a"))
                 for i in range(3) for ask in (b"fit", b"levers", b"room", b"beside")]
        await asyncio.sleep(0.05)
        for _ in range(20):
            await asyncio.wait_for(pool.answer(b'{"ask":"chart"}', "a"), 5)
        assert not any(task.done() for task in heavy)
        for engine in engines:
            engine.go.set()
        await asyncio.gather(*heavy)
        pool.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, run()).result()


def test_what_has_to_start_anew_is_asked_last() -> None:
    """Processes are there before somebody waits for them; one that was ended does not stand before those."""
    class Named(Patient):
        wakes = 0

        def wake(self) -> None:
            self.wakes += 1

        def ask(self, question: bytes) -> bytes:
            return super().ask(question) if b"fit" in question else str(id(self)).encode()

    async def run() -> None:
        engines = [Named() for _ in range(4)]
        pool = Pool(engines, 0.1, 20, 100)  # type: ignore[arg-type]
        await pool.wake()
        assert [engine.wakes for engine in engines] == [0, 1, 1, 1]
        with pytest.raises(TooSlow):
            await pool.answer(b'{"ask":"fit"}')
        assert engines[3].wakes == 2 and await pool.answer(b'{"ask":"chart"}') == str(id(engines[2])).encode()
        pool.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, run()).result()


@pytest.mark.parametrize("question,heavy", [
    ('{"ask": "chart", "model": "gpt2"}', 0), ('{"allocator" : false}', 0), ("", 0), ("{", 0), ('{"ask":"cells"}', 0),
    ('{"model":"gpt2"}', 1), ('{"ask":"room"}', 1), ('{"allocator":false,"timeline":true}', 1),
    ('{"ask":"fit","model":"\\"ask\\":\\"chart\\""}', 2), ('{"ask":"sweep","model":{"ask":"chart"}}', 2),
    ('{"ask":"levers","allocator":false}', 2), (" " * 300_000 + '{"ask":"chart"}', 2)])
def test_weight_is_of_what_is_asked(question: str, heavy: int) -> None:
    """Not of bytes that may stand anywhere."""
    assert weight(question.encode()) == heavy
