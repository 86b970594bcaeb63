"""Answers for the server: from a few processes, each question bounded in time, equal questions asked once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from peakmem.web.worker import Gone, Worker

KEPT = 32 * 2**20
"""Bytes of questions and answers that are remembered."""
QUICK = (b'"ask":"chart"', b'"allocator":false')
"""What the page says at every movement of a slider. Such questions take milliseconds and need not wait for others."""


class TooSlow(Exception):
    """The answer took longer than it may."""


class Busy(Exception):
    """Too many are waiting."""


class Pool:
    """Processes that answer. The one last added to is asked first, so that others can stay asleep."""

    def __init__(self, workers: list[Worker], seconds: float, most_waiting: int) -> None:
        self.workers, self.seconds, self.most_waiting = workers, seconds, most_waiting
        self.threads = ThreadPoolExecutor(len(workers), "engine")
        self.idle: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()
        self.slow = asyncio.Semaphore(max(1, len(workers) - 1))  # one is left for quick questions
        self.waiting = 0
        for worker in workers:
            self.idle.put_nowait(worker)

    async def answer(self, question: bytes) -> bytes:
        """Errors: Busy, TooSlow, Gone. Where the caller is cancelled or time is up, the process is replaced."""
        if self.waiting >= self.most_waiting:
            raise Busy
        async with AsyncExitStack() as held:
            self.waiting += 1
            try:
                if not any(words in question for words in QUICK):
                    await held.enter_async_context(self.slow)
                worker = await self.idle.get()
            finally:
                self.waiting -= 1
            held.callback(self.idle.put_nowait, worker)
            work = asyncio.get_running_loop().run_in_executor(self.threads, worker.ask, question)
            try:
                return await asyncio.wait_for(asyncio.shield(work), self.seconds)
            except (TimeoutError, asyncio.CancelledError) as error:
                worker.stop()
                await asyncio.wait([work])
                work.exception()
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

    async def to(self, question: bytes) -> bytes:
        """Errors: Busy, TooSlow, Gone. A question for which nobody waits any longer is dropped."""
        if question in self.kept:
            self.kept.move_to_end(question)
            return self.kept[question]
        if question not in self.coming:
            task = asyncio.create_task(self.pool.answer(question))
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
