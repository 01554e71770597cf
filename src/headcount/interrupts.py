"""Ctrl-C as a request: the first lets work end without losses, the second ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

STOPPING = "stopping; finished runs are stored. Interrupt again to stop at once"


class Stop:
    """Whether the work has been asked to end."""

    asked = False


@contextmanager
def stoppable(
    signals: Sequence[int] = (signal.SIGINT,), message: str = "", raises: bool = False
) -> Iterator[Stop]:
    """Turn the first of these signals into `Stop.asked`, which the work looks at where it can end.

    The message is printed then. Another signal raises KeyboardInterrupt; with `raises` the first
    one does too, and `asked` tells a caller that the interrupt was answered further down.
    Outside the main thread nothing is changed: signals go to the main thread.
    """
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        again, stop.asked = stop.asked, True
        if again or raises:
            raise KeyboardInterrupt
        if message:
            # Not print: the signal may have come in the middle of one, and its buffer is locked.
            os.write(2, f"{message}\n".encode())

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, ask) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
