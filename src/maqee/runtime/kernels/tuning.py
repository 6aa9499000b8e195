"""Which tile is fastest: measured once for a kernel, a shape and a GPU, and kept in a file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from maqee.errors import MaqeeError
from maqee.io import read_json, write_json
from maqee.runtime.kernels.interpreting import let_loops_count

Launch = Callable[["Config"], None]
Measure = Callable[[Launch, "Config"], float]
WARM, TIMED = 3, 10
REGISTERS, MOST_REGISTERS, WARP = 65536, 255, 32  # of a multiprocessor, of a thread; threads of a warp


class Config(NamedTuple):
    """How a kernel is cut.

    Attributes:
        block_m: height of a tile.
        block_n: its width.
        block_k: columns that are multiplied at a time.
        warps: of a program.
        stages: parts of the next columns that are on their way.
        programs: on a multiprocessor.
        flat: whether the next tile's first columns are fetched while one ends.
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    programs: int
    flat: bool = False

    @property
    def registers(self) -> int | None:
        """The most that a thread may have, for so many programs to find room; None where that is no restriction."""
        most = REGISTERS // (self.programs * self.warps * WARP) // 8 * 8
        return most if most < MOST_REGISTERS else None


class Choices:
    """The fastest configuration of every kernel and shape, kept in a file.

    Args:
        file: where they are kept; read when the first one is wanted.
        measure: seconds that a launch takes.
    """

    def __init__(self, file: Path, measure: Measure) -> None:
        self.file, self.measure = file, measure
        self._known: dict[str, list[int]] | None = None

    def best(self, key: str, candidates: Sequence[Config], launch: Launch) -> Config:
        """The kept choice if it is still among the candidates, else the fastest of these."""
        if self._known is None:
            self._known = read_json(self.file) if self.file.is_file() else {}
        for config in candidates:
            if self._known.get(key) == list(config):
                return config
        seconds = [self.measure(launch, config) for config in candidates]
        found = candidates[seconds.index(min(seconds))]
        self._known[key] = list(found)
        with suppress(MaqeeError):  # where nothing can be written, the next process measures again
            write_json(self.file, self._known)
        return found


def tuned(key: str, candidates: Sequence[Config], launch: Launch, device: torch.device, rows: int) -> None:
    """Launch a kernel with the configuration that is fastest for so many rows; the interpreter takes the first."""
    if device.type == "cpu":
        let_loops_count()
        launch(candidates[0])
        return
    nearby = 1 << max(rows - 1, 1).bit_length()  # one choice an octave: batches have many sizes
    with torch.cuda.device(device):  # Triton launches on the current GPU, wherever the tensors are
        launch(_choices(torch.cuda.get_device_name(device)).best(f"{key} {nearby}", candidates, launch))


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU."""
    return 1 if device.type == "cpu" else int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def _choices(device: str) -> Choices:
    import triton

    words = f"{device} triton {triton.__version__} {kernel_version()}"
    name = "".join(letter if letter.isalnum() else "-" for letter in words)
    return Choices(cache_folder() / f"{name}.json", seconds_on_gpu)


def kernel_version() -> str:
    """A short hash of the kernels' sources: other kernels are measured anew, though their tiles have the same sizes."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:8]


def cache_folder() -> Path:
    """Where choices are kept: the folder maqee in XDG_CACHE_HOME, which is ~/.cache where nobody has set it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "maqee"


def seconds_on_gpu(launch: Launch, config: Config) -> float:
    """The time of a launch; infinite where the GPU has no room for the configuration."""
    from triton.runtime.errors import OutOfResources

    try:
        for _ in range(WARM):
            launch(config)
    except OutOfResources:
        return float("inf")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(TIMED):
        launch(config)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / TIMED
