"""Rows of `maqee bench plans`: a model, what runs it, and where its images stop."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from maqee.bench.starting import at_full_depth, numbers_of, start_model
from maqee.errors import MaqeeError
from maqee.policy import NEVER
from maqee.runs import WEIGHTS, model_folder, short_name
from maqee.runtime import ReadyModel, load
from maqee.runtime.engines import engines

FULL = "full"
_ROW = re.compile(r"(?P<run>.+?)(?:@(?P<engine>\w+))?(?::(?P<stop>full|\d*\.?\d+))?")
_WEIGHT_FILES = ("*.safetensors", "*.bin")  # maqee and most others; older folders of transformers


@dataclass(frozen=True)
class PlanRequest:
    """What a row asks for, written RUN@ENGINE:STOP; engine and stop may be left out.

    Attributes:
        run: folder of the model.
        engine: what runs it.
        stop: one threshold for all exits, "full" for full depth, or None: a compressed model follows its plan, any
            other runs at full depth.
    """

    run: Path
    engine: str = "torch"
    stop: float | str | None = None

    @property
    def name(self) -> str:
        """The row in few words, without the place on this machine."""
        return f"{short_name(self.run)}@{self.engine}{'' if self.stop is None else f':{self.stop}'}"


@dataclass(frozen=True)
class OpenRow:
    """A row that can run.

    Attributes:
        request: what was asked for.
        ready: the model on its engine, with its policy.
    """

    request: PlanRequest
    ready: ReadyModel

    @property
    def stops_early(self) -> bool:
        """Whether any image can leave before the end."""
        return any(threshold < NEVER for threshold in self.ready.policy.thresholds)

    @property
    def kind(self) -> str:
        """What makes it fast, if anything."""
        if self.ready.compression is None:
            return "early exit" if self.stops_early else "float"
        return "low bits and early exit" if self.stops_early else "low bits"

    @property
    def quantization(self) -> str:
        """Whether products are of integers."""
        return numbers_of(self.ready)

    @property
    def file_bytes(self) -> int:
        """Size of the weights on disk."""
        return weight_bytes(self.request.run)


def parse_row(text: str) -> PlanRequest:
    """The row that a text such as runs/fast@onnxruntime:0.8 asks for; a folder of that very name comes first.

    Example:
        >>> parse_row("runs/vit@openvino:0.8")
        PlanRequest(run=PosixPath('runs/vit'), engine='openvino', stop=0.8)
    """
    found = None if Path(text).is_dir() else _ROW.fullmatch(text)
    if found is None:
        return PlanRequest(Path(text))
    run, engine, stop = Path(found["run"]), found["engine"] or "torch", found["stop"]
    if not run.is_dir():
        raise MaqeeError(f"{run} is no folder: give rows as RUN, RUN@ENGINE or RUN@ENGINE:0.8.")
    _ = engines[engine]  # one that does not exist is named here, before anything is loaded
    if stop is None or stop == FULL:
        return PlanRequest(run, engine, stop)
    if float(stop) > 1:
        raise MaqeeError(f"{text}: the threshold {stop} must be from 0 to 1; for full depth write {run}@{engine}:full.")
    return PlanRequest(run, engine, float(stop))


def open_rows(
    requests: Sequence[PlanRequest], device: torch.device, dtype: torch.dtype, compile: bool
) -> list[OpenRow]:
    """Load every row's model; rows that differ in their threshold alone share one.

    Args:
        requests: what to load.
        device: where everything runs.
        dtype: of models that are not compressed, on the engine torch.
        compile: use torch.compile on the engine torch.
    """
    opened: dict[tuple[Path, str, bool], ReadyModel] = {}
    rows: list[OpenRow] = []
    for request in requests:
        ready = load(request.run)
        if isinstance(request.stop, float):
            if not ready.model.num_exits:
                raise MaqeeError(
                    f"{request.run} has no exits, so that nothing can stop at {request.stop}: leave it out."
                )
            ready = ready.with_policy(request.stop)
        whole = request.stop == FULL or all(threshold >= NEVER for threshold in ready.policy.thresholds)
        key = request.run.resolve(), request.engine, whole
        if key not in opened:
            chosen = at_full_depth(ready) if whole else ready
            opened[key] = start_model(chosen, request.engine, device, dtype, compile=compile, graphs=True)
        rows.append(OpenRow(request, opened[key] if whole else opened[key].with_policy(ready.policy)))
    return rows


def weight_bytes(run: Path) -> int:
    """Bytes of a model's weights on disk: one file, or several where others wrote it in parts."""
    folder = model_folder(run)
    if (folder / WEIGHTS).is_file():
        return (folder / WEIGHTS).stat().st_size
    for pattern in _WEIGHT_FILES:
        if files := list(folder.glob(pattern)):
            return sum(file.stat().st_size for file in files)
    raise MaqeeError(f"{folder} holds no file of weights: give a folder written by maqee or transformers.")
