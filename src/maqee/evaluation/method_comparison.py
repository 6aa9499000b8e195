"""What comparing quantization methods gives back, and the file that it is kept in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from maqee.errors import MaqeeError
from maqee.evaluation.quantization_cases import IDENTITY
from maqee.io import read_json
from maqee.values import plain

FORMAT, VERSION = "maqee-quantization", 1


@dataclass(frozen=True, kw_only=True)
class MethodRow:
    """One measurement; method "float" is the model as it came.

    Attributes:
        method: quantization method.
        bits: weight and activation bits, such as "W4A4".
        scope: what is quantized beside the blocks.
        images: number of calibration images.
        seed: decides which; None for the model as it came.
        accuracy: of every exit, full depth last.
        accuracy_is: "simulated", or "full precision".
        device: where it ran.
        fit_seconds: how long fitting took.
        seconds: how long everything took.
        environment: number of the versions and hardware in the comparison's list.
    """

    method: str
    bits: str
    scope: str
    images: int
    seed: int | None
    accuracy: tuple[float, ...]
    accuracy_is: str
    device: str
    fit_seconds: float
    seconds: float
    environment: int = 0

    def identity(self) -> tuple[Any, ...]:
        """What makes two rows the same measurement."""
        return tuple(getattr(self, name) for name in IDENTITY)


@dataclass(frozen=True, kw_only=True)
class MethodSummary:
    """All draws of calibration images of one combination.

    Attributes:
        method: quantization method.
        bits: weight and activation bits.
        scope: what is quantized beside the blocks.
        images: number of calibration images.
        seeds: number of draws.
        mean: accuracy of every exit, full depth last.
        spread: sample standard deviation of the same; one draw has none.
        fit_seconds: mean time to fit.
    """

    method: str
    bits: str
    scope: str
    images: int
    seeds: int
    mean: tuple[float, ...]
    spread: tuple[float, ...] | None
    fit_seconds: float


@dataclass(frozen=True, kw_only=True)
class MethodComparison:
    """Accuracy of a model as it came and quantized in several ways.

    Attributes:
        model: short name of the model.
        weights: hash of its weights.
        data: name of the test images.
        test_images: how many.
        calibration: name of the images that calibration images are drawn from.
        calibration_images: how many there are.
        preprocessing: how images were prepared.
        exit_blocks: the block after which each exit sits, full depth last.
        rows: one a measurement, full precision first.
        environments: versions and hardware of the rows.
    """

    model: str
    weights: str
    data: str
    test_images: int
    calibration: str
    calibration_images: int
    preprocessing: Mapping[str, Any]
    exit_blocks: tuple[int, ...]
    rows: tuple[MethodRow, ...] = ()
    environments: tuple[Mapping[str, Any], ...] = ()

    @property
    def summary(self) -> tuple[MethodSummary, ...]:
        """Mean and spread of every combination."""
        return summarize(self.rows)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee quantize --out` writes them."""
        return {"format": FORMAT, "version": VERSION, **plain(self), "summary": plain(self.summary)}


def summarize(rows: Sequence[MethodRow]) -> tuple[MethodSummary, ...]:
    """Mean and spread (sample standard deviation) over seeds of every combination; one seed has no spread."""
    groups: dict[tuple[Any, ...], list[MethodRow]] = {}
    for row in rows:
        groups.setdefault(row.identity()[:-1], []).append(row)
    found = []
    for members in groups.values():
        figures = np.array([row.accuracy for row in members])  # (seeds, exits)
        spread = tuple(figures.std(axis=0, ddof=1).round(6).tolist()) if len(members) > 1 else None
        first = members[0]
        found.append(
            MethodSummary(
                method=first.method,
                bits=first.bits,
                scope=first.scope,
                images=first.images,
                seeds=len(members),
                mean=tuple(figures.mean(axis=0).round(6).tolist()),
                spread=spread,
                fit_seconds=round(float(np.mean([row.fit_seconds for row in members])), 3),
            )
        )
    return tuple(found)


def go_on_from(path: Path, new: MethodComparison) -> MethodComparison:
    """What a file holds already; the user's error if it is of another model, other data or other settings."""
    found = read_json(path)
    for name, value in new.to_json().items():
        if name not in ("model", "rows", "summary", "environments") and found.get(name) != value:
            raise MaqeeError(f"{path} holds other figures ({name} is not {value}): give another file or remove it.")
    names = {entry.name for entry in fields(MethodRow)}
    rows, environments = found.get("rows"), found.get("environments")
    whole = isinstance(rows, list) and all(isinstance(row, dict) and set(row) == names for row in rows)
    if not isinstance(rows, list) or not isinstance(environments, list) or not whole:
        raise MaqeeError(f"{path} lacks a part of its rows: restore the file or remove it.")
    read = tuple(MethodRow(**{**row, "accuracy": tuple(row["accuracy"])}) for row in rows)
    return replace(new, model=found.get("model", new.model), rows=read, environments=tuple(environments))
