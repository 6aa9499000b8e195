"""Ctrl-C at a good moment: long jobs finish their step, save, and then stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """True once the user has asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        return self.asked


@contextmanager
def catch_interrupt() -> Iterator[Interrupt]:
    """Turn the first Ctrl-C into a flag to be looked at between steps; the second one stops at once."""
    flag = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: FrameType | None) -> None:
        flag.asked = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask)
    try:
        yield flag
    finally:
        signal.signal(signal.SIGINT, before)
