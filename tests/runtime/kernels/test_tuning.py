"""Choices of tiles: measured once, kept in a file."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from maqee.io import read_json
from maqee.runtime.kernels import tuning
from maqee.runtime.kernels.tuning import Choices, Config, Launch, cache_folder, kernel_version, tuned

SMALL, LARGE = Config(32, 64, 64, 4, 3, 4), Config(128, 128, 128, 4, 3, 2)


class Clock:
    """Says that larger tiles are faster, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, launch: Launch, config: Config) -> float:
        launch(config)
        self.asked += 1
        return 1 / config.block_m


def ignore(config: Config) -> None:
    """A launch that does nothing."""


def test_fastest_is_kept_between_processes(tmp_path: Path) -> None:
    file, clock = tmp_path / "cache" / "gpu.json", Clock()
    choices = Choices(file, clock)
    assert choices.best("linear 768", [SMALL, LARGE], ignore) == LARGE
    assert choices.best("linear 768", [SMALL, LARGE], ignore) == LARGE
    assert Choices(file, clock).best("linear 768", [SMALL, LARGE], ignore) == LARGE
    assert clock.asked == 2
    assert read_json(file) == {"linear 768": list(LARGE)}


def test_a_choice_that_is_no_longer_offered_is_made_again(tmp_path: Path) -> None:
    file, clock = tmp_path / "gpu.json", Clock()
    Choices(file, clock).best("linear 768", [SMALL, LARGE], ignore)
    assert Choices(file, clock).best("linear 768", [SMALL], ignore) == SMALL
    assert clock.asked == 3


def test_other_shapes_are_other_choices(tmp_path: Path) -> None:
    choices = Choices(tmp_path / "gpu.json", Clock())
    choices.best("linear 768", [SMALL, LARGE], ignore)
    assert choices.best("linear 384", [SMALL], ignore) == SMALL
    assert choices.best("linear 768", [SMALL, LARGE], ignore) == LARGE


def test_where_nothing_can_be_written_choices_are_kept_in_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    clock = Clock()
    choices = Choices(blocked / "gpu.json", clock)
    assert choices.best("linear 768", [SMALL, LARGE], ignore) == LARGE
    assert choices.best("linear 768", [SMALL, LARGE], ignore) == LARGE
    assert clock.asked == 2


def test_kernels_are_measured_and_launched_on_the_gpu_of_their_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton knows the current GPU only, and that is another one where a model is on a second GPU."""
    current = [0]
    seen: list[tuple[int, Config]] = []

    @contextmanager
    def use(device: torch.device) -> Iterator[None]:
        before, current[0] = current[0], device.index
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "device", use)
    monkeypatch.setattr(torch.cuda, "get_device_name", str)
    monkeypatch.setattr(tuning, "_choices", lambda device: Choices(tmp_path / "gpu.json", Clock()))
    tuned("linear", [SMALL, LARGE], lambda config: seen.append((current[0], config)), torch.device("cuda:1"), rows=8)
    assert seen == [(1, SMALL), (1, LARGE), (1, LARGE)]
    assert current == [0]


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "maqee"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "maqee"


@pytest.mark.parametrize(
    ("warps", "programs", "registers"), [(4, 2, None), (8, 2, 128), (4, 3, 168), (8, 1, None)], ids=str
)
def test_registers_of_a_thread(warps: int, programs: int, registers: int | None) -> None:
    assert Config(128, 128, 64, warps, 3, programs).registers == registers


def test_other_kernels_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash is that of all sources beside the file, and of what is in them."""
    here = kernel_version()
    assert re.fullmatch(r"[0-9a-f]{8}", here)
    for file in Path(tuning.__file__).parent.glob("*.py"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(tuning, "__file__", str(tmp_path / "tuning.py"))
    assert kernel_version() == here
    (tmp_path / "linear.py").write_text("other")
    assert kernel_version() != here
