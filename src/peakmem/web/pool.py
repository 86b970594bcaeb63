"""Answers for the server: from a few processes, each question bounded in time, equal questions asked once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager

from peakmem.errors import Unreadable
from peakmem.web.request import parsed
from peakmem.web.worker import Gone, Worker

KEPT = 32 * 2**20
"""Bytes of questions and answers that are remembered."""
WEIGHED = 2**18
"""A longer question is not read before its turn, and counts as the heaviest: others would wait."""
MANY = ("fit", "levers", "sweep")
"""Questions that take many estimates."""
FIGURES = ("chart", "tables", "cells", "growth", "three-layers")


class TooSlow(Exception):
    """The answer took longer than it may."""


class Busy(Exception):
    """Too many are waiting, or one has waited too long."""


def weight(question: bytes) -> int:
    """How much is asked for: 0, what a slider or a figure asks and takes milliseconds; 1, an estimate; 2, many."""
    if len(question) > WEIGHED:
        return 2
    try:
        request = parsed(question.decode()) if question else {"ask": "tables"}
    except (Unreadable, UnicodeDecodeError):
        return 0  # refused at once
    ask = request.get("ask", "estimate")
    if ask == "estimate":
        return 0 if request.get("allocator") is False and request.get("timeline") is not True else 1
    return 2 if ask in MANY else 0 if ask in FIGURES else 1


class Turns:
    """So many at once, and one of them less from any one address; but one more than its heavier questions may have."""

    def __init__(self, slots: int, heavier: int = 0) -> None:
        self.of_one = max(1, min(slots, max(slots - 1, heavier + 1)))
        self.all = asyncio.Semaphore(max(1, slots))
        self.own: dict[str, tuple[asyncio.Semaphore, list[int]]] = {}

    @asynccontextmanager
    async def taken(self, address: str) -> AsyncIterator[None]:
        own, users = self.own.setdefault(address, (asyncio.Semaphore(self.of_one), [0]))
        users[0] += 1
        try:
            async with own, self.all:
                yield
        finally:
            users[0] -= 1
            if not users[0]:
                del self.own[address]


class Pool:
    """Processes that answer. The one that answered last is asked first, so that others can stay asleep; one that has to
    start anew is asked last."""

    def __init__(self, workers: list[Worker], seconds: float, wait: float, most_waiting: int) -> None:
        self.workers, self.seconds, self.wait, self.most_waiting = workers, seconds, wait, most_waiting
        self.threads = ThreadPoolExecutor(len(workers), "engine")
        self.idle: asyncio.PriorityQueue[tuple[int, int, Worker]] = asyncio.PriorityQueue()
        # By weight: of what takes longer less may run at once, so that what takes less need not wait for it.
        self.turns: list[Turns] = []
        for less in (2, 1, 0):
            self.turns.insert(0, Turns(len(workers) - less, self.turns[0].of_one if self.turns else 0))
        self.waiting = 0
        self.answered = 0
        for worker in workers:
            self.free(worker)

    def free(self, worker: Worker, awake: bool = True) -> None:
        """It can be asked."""
        self.answered += 1
        self.idle.put_nowait((-self.answered if awake else self.answered, self.answered, worker))

    async def wake(self) -> None:
        """Start what one client can have at work at once, before somebody waits for it."""
        for worker in self.workers[-self.turns[0].of_one:]:
            await asyncio.get_running_loop().run_in_executor(self.threads, worker.wake)

    async def answer(self, question: bytes, address: str = "") -> bytes:
        """Errors: Busy, TooSlow, Gone. Where the caller is cancelled or time is up, the process is replaced."""
        if self.waiting >= self.most_waiting:
            raise Busy
        async with AsyncExitStack() as held:
            self.waiting += 1
            try:
                async with asyncio.timeout(self.wait):
                    for turns in reversed(self.turns[:weight(question) + 1]):
                        await held.enter_async_context(turns.taken(address))
                    *_, worker = await self.idle.get()
            except TimeoutError:
                raise Busy from None
            finally:
                self.waiting -= 1
            awake = True
            held.callback(lambda: self.free(worker, awake))
            work = asyncio.get_running_loop().run_in_executor(self.threads, worker.ask, question)
            try:
                return await asyncio.wait_for(asyncio.shield(work), self.seconds)
            except (TimeoutError, asyncio.CancelledError) as error:
                worker.stop()
                awake = False
                await asyncio.wait([work])
                work.exception()
                await asyncio.get_running_loop().run_in_executor(self.threads, worker.wake)
                if isinstance(error, TimeoutError):
                    raise TooSlow from None
                raise

    def close(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.stop()
        self.threads.shutdown(wait=False)


class Answers:
    """Answers that were given, and those on their way: the same question has the same answer."""

    def __init__(self, pool: Pool, kept: int = KEPT) -> None:
        self.pool, self.room, self.largest = pool, kept, kept // 8
        self.kept: OrderedDict[bytes, bytes] = OrderedDict()
        self.coming: dict[bytes, tuple[asyncio.Task[bytes], list[int]]] = {}

    async def to(self, question: bytes, address: str = "") -> bytes:
        """Errors: Busy, TooSlow, Gone. A question for which nobody waits any longer is dropped."""
        if question in self.kept:
            self.kept.move_to_end(question)
            return self.kept[question]
        if question not in self.coming:
            task = asyncio.create_task(self.pool.answer(question, address))
            task.add_done_callback(lambda done: self.came(question, done))
            self.coming[question] = task, [0]
        task, waiters = self.coming[question]
        waiters[0] += 1
        try:
            return await asyncio.shield(task)
        finally:
            waiters[0] -= 1
            if not waiters[0] and not task.done():
                self.coming.pop(question, None)
                task.cancel()

    def came(self, question: bytes, task: asyncio.Task[bytes]) -> None:
        if self.coming.get(question, (None,))[0] is task:
            del self.coming[question]
        if task.cancelled() or task.exception():
            return
        answer = task.result()
        size = len(question) + len(answer)
        if size <= self.largest and question not in self.kept:
            self.room -= size
            self.kept[question] = answer
            while self.room < 0:
                old = self.kept.popitem(last=False)
                self.room += len(old[0]) + len(old[1])


__all__ = ["Answers", "Busy", "Gone", "Pool", "TooSlow"]
