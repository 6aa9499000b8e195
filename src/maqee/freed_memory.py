"""Memory that was freed: kept for a pass, whose next layer wants as much again, and handed back after it.

glibc gives the end of its memory back as soon as more than a few MB are free there, and gets it again, page by page and
filled with zeros, for the next layer: half of the time of a quantized network on a processor. What lies between pieces
that are in use it keeps for good: several GB in a job that needs less than two. Other systems need neither of the two.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

# glibc's names and numbers for mallopt
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT = 512 << 20
LARGEST, LARGEST_OF_OLD = 256 << 20, 32 << 20  # what is larger is memory of its own; glibc before 2.35 takes no more


def keep_freed() -> None:
    """Let this process keep what is freed, as far as half a GB; to be called where long work begins."""
    if (set_option := _of_glibc("mallopt")) is not None:
        set_option(M_MMAP_THRESHOLD, LARGEST) or set_option(M_MMAP_THRESHOLD, LARGEST_OF_OLD)
        set_option(M_TRIM_THRESHOLD, KEPT)


def give_back() -> None:
    """Hand memory that was freed to the system; to be called now and then in long work."""
    if (trim := _of_glibc("malloc_trim")) is not None:
        trim(0)


def _of_glibc(name: str) -> Callable[..., int] | None:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
