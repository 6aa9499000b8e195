"""How much memory may be taken for what can also be computed or read again."""

from __future__ import annotations

import os
from pathlib import Path

import torch

MOST = 8 << 30
SHARE = 4  # a fourth of what is free: other processes of a table do the same at the same time

_MEMINFO, _LIMITS = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def spare_bytes(device: torch.device) -> int:
    """Bytes on a device that may be filled with things that only save time. What is computed does not depend on it."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory(_MEMINFO, _LIMITS)
    return min(MOST, free // SHARE)


def free_memory(meminfo: Path, limits: Path) -> int:
    """Bytes that this machine can give to this process; where it does not tell, half of what it has.

    Args:
        meminfo: where Linux says what is available.
        limits: folder of the container's own limits; a file that is not there, or says "max", is none.
    """
    if not meminfo.is_file():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2 if hasattr(os, "sysconf") else MOST
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = limits / "memory.max", limits / "memory.current"
    if limit.is_file() and used.is_file() and (most := limit.read_text().strip()).isdigit():
        free = min(free, max(0, int(most) - int(used.read_text())))
    return free
