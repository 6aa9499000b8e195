"""Memory that was freed is kept while it is wanted again, and handed back when asked."""

from __future__ import annotations

import platform

import pytest

from tests.helpers import run_python

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries need no reminder"),
]


def test_freed_memory_goes_back() -> None:
    """Pieces are kept between those that are freed, so that glibc cannot give them back at its end."""
    run_python(
        "from pathlib import Path\n"
        "from maqee.freed_memory import give_back\n"
        "def resident():\n"
        "    [line] = [row for row in Path('/proc/self/status').read_text().splitlines() if row.startswith('VmRSS')]\n"
        "    return int(line.split()[1]) // 1024\n"
        "pieces = [bytearray(b'x' * 100_000) for _ in range(3000)]\n"
        "full = resident()\n"
        "kept = pieces[::10]\n"
        "del pieces\n"
        "give_back()\n"
        "assert full - resident() > 150, (full, resident())\n"
    )


def test_freed_memory_is_kept_for_what_comes_next() -> None:
    """Every page that the system has to give again is a fault: 25,600 in the five pieces."""
    run_python(
        "import resource\n"
        "from maqee.freed_memory import keep_freed\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    pieces = [bytearray(20 << 20) for _ in range(5)]\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "keep_freed()\n"
        "first, second = faults(), faults()\n"
        "assert second < 1000, (first, second)\n"
    )
