"""What is kept in memory to save time leaves room for others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from maqee import spare_memory
from maqee.spare_memory import MOST, free_memory, spare_bytes

MEMINFO = "MemTotal: 24000000 kB\nMemFree: 100000 kB\nMemAvailable:   16000000 kB\nHugePages_Total: 0\n"
AVAILABLE = 16_000_000 * 1024


@pytest.mark.parametrize(
    ("limit", "used", "expected"),
    [
        (None, None, AVAILABLE),
        ("max\n", "5\n", AVAILABLE),
        ("4000\n", "1000\n", 3000),
        ("4000\n", "5000\n", 0),
        (f"{10 * AVAILABLE}\n", "0\n", AVAILABLE),
    ],
    ids=["no-limits", "no-limit", "container", "full-container", "wide-container"],
)
def test_what_linux_says(limit: str | None, used: str | None, expected: int, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    for name, text in (("memory.max", limit), ("memory.current", used)):
        if text is not None:
            (tmp_path / name).write_text(text)
    assert free_memory(tmp_path / "meminfo", tmp_path) == expected


def test_elsewhere_it_is_a_part_of_what_there_is(tmp_path: Path) -> None:
    assert free_memory(tmp_path / "meminfo", tmp_path) > 0


@pytest.mark.parametrize(("free", "expected"), [(1000, 250), (100 << 30, MOST)])
def test_a_fourth_and_never_very_much(free: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_memory, "free_memory", lambda *files: free)
    assert spare_bytes(torch.device("cpu")) == expected


def test_on_a_gpu(gpu: torch.device) -> None:
    assert 0 < spare_bytes(gpu) <= MOST
