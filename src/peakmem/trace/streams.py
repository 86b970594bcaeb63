"""Streams and events of a GPU that is not there: nothing waits, but each allocation knows on which stream it was made.

The caching allocator keeps the memory of each stream apart, so that the streams matter for what is reserved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import torch

_numbers = count(1)


class Stream:
    """A stream on which nothing waits; the one entered last is the current one."""

    def __init__(self, device: Any = None, priority: int = 0, number: int = -1, **options: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.priority = priority
        self.number = next(_numbers) if number < 0 else number

    def wait_stream(self, stream: Stream) -> None:
        """Return at once."""

    def wait_event(self, event: Event) -> None:
        """Return at once."""

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event that has happened."""
        return event or Event()

    def query(self) -> bool:
        """Return that all is done."""
        return True

    def is_capturing(self) -> bool:
        """Return that no CUDA graph is being captured."""
        return False

    def synchronize(self) -> None:
        """Return at once."""

    def __enter__(self) -> Stream:
        _entered.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _entered.pop()


class Event:
    """An event that has happened."""

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def record(self, stream: Stream | None = None) -> None:
        """Return at once."""

    def wait(self, stream: Stream | None = None) -> None:
        """Return at once."""

    def query(self) -> bool:
        """Return that it has happened."""
        return True

    def elapsed_time(self, event: Event) -> float:
        """Return no milliseconds."""
        return 0.0

    def synchronize(self) -> None:
        """Return at once."""


_entered = [Stream(number=0)]


def current(device: Any = None) -> Stream:
    """Return the stream entered last, in place of ``torch.cuda.current_stream``."""
    return _entered[-1]


@contextmanager
def entered(stream: Stream | None) -> Iterator[Stream]:
    """Work on a stream, in place of ``torch.cuda.stream``; None: on the current one."""
    with stream or current() as made:
        yield made


ANSWERS = {"Stream": Stream, "Event": Event, "current_stream": current, "stream": entered}
"""What ``torch.cuda`` has by these names while a trace runs."""
