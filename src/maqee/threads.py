"""How many processor threads a job uses, and how they wait for each other.

OpenMP's threads spin at the end of every operation until the slowest is there. For the tiny operations of a miniature
model that is most of the time, and where another program keeps one of few cores busy, nearly all of it: a job of half
a minute then takes half an hour. torch is imported late: how threads wait is read when its library is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from maqee.parts import Part

if TYPE_CHECKING:
    import torch

# Multiply-accumulates of an image. Measured in training steps of 32 and 64 images on an idle machine: at 5 million two
# threads gain or lose a tenth and all of 16 take three times as long as one; from 37 million on, all of 16 are faster.
MINIATURE = 20_000_000


def wait_passively() -> None:
    """Let waiting threads sleep, unless the user's environment says otherwise; to be called before torch is loaded.

    Both GNU's and LLVM's OpenMP follow this variable; their own, GOMP_SPINCOUNT and KMP_BLOCKTIME, go first.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@contextmanager
def one_thread() -> Iterator[None]:
    """Use a single thread for a while, unless the user has set OMP_NUM_THREADS."""
    import torch

    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def threads_for(parts: Sequence[Part], device: torch.device) -> Iterator[None]:
    """A single thread for a miniature on the processor; all others keep what torch chose.

    What training gives depends on the number of threads, in the last digits of its sums. A miniature always trains
    with one, whatever the machine, unless OMP_NUM_THREADS says otherwise.

    Args:
        parts: of the model, with their cost.
        device: where it runs.
    """
    if device.type == "cpu" and sum(part.macs for part in parts) < MINIATURE:
        with one_thread():
            yield
    else:
        yield
