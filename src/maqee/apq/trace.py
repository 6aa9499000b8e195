"""What one calibration pass leaves behind: enough to repeat any search without the model.

Equal passes leave equal bytes on one kind of processor with one version of the libraries.

Shapes use n samples, E exits and L blocks. The last of the E + 1 columns is full depth, which is an exit that always
lets go. "float" arrays come from the frozen full-precision model, the others from the model quantized at `bits`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maqee.apq._older import current_trace
from maqee.apq._stored import STRICT, check_format, from_json
from maqee.apq.options import check_head_ms
from maqee.errors import MaqeeError
from maqee.io import read_arrays_and_metadata, to_json, write_arrays
from maqee.parts import Part
from maqee.widths import BitSettings

VERSION = 2
Array = NDArray[np.float32]
_PER_EXIT = ("float_confidence", "confidence", "float_loss", "loss", "float_correct", "correct")
_PER_BLOCK = ("drift", "noise")
_SHARES = ("float_confidence", "confidence", "float_correct", "correct")  # from 0 to 1
_ROUNDING = 1e-4  # how far a softmax or a loss may stray outside its range


@dataclass(frozen=True)
class _Facts:
    """What a trace holds beside its arrays, as stored in the file's metadata."""

    __pydantic_config__ = STRICT

    exit_blocks: tuple[int, ...]
    parts: tuple[Part, ...]
    bits: BitSettings
    task: str
    model: str
    exit_ms: tuple[float, ...] | None = None
    head_ms: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """One calibration pass.

    Attributes:
        exit_blocks: (E + 1,) the block after which each exit sits, numbered from 1; the last is the depth.
        float_confidence: (n, E + 1) rho, in 0..1.
        confidence: (n, E + 1) rho~, in 0..1; it decides the actual exits.
        float_loss: (n, E + 1).
        loss: (n, E + 1).
        float_correct: (n, E + 1) the sample's share of the task metric, in 0..1; for classification 0 or 1.
        correct: (n, E + 1) the same for the quantized model.
        drift: (n, L) squared relative deviation of the range of each block's output (the term of QID).
        noise: (n, L) squared error of each block's output over its squared norm (the term of inverse SQNR).
        parts: what the model costs.
        bits: the bits of all parts during the pass.
        task: name of the task.
        model: hash of the checkpoint.
        exit_ms: (E + 1,) milliseconds of a sample that leaves at each exit, where measured time is the cost.
        head_ms: (E,) milliseconds that a sample saves by passing each exit where it is closed, if measured.
    """

    exit_blocks: tuple[int, ...]
    float_confidence: Array
    confidence: Array
    float_loss: Array
    loss: Array
    float_correct: Array
    correct: Array
    drift: Array
    noise: Array
    parts: tuple[Part, ...]
    bits: BitSettings
    task: str
    model: str
    exit_ms: tuple[float, ...] | None = None
    head_ms: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _check_facts(self)
        samples = np.shape(self.confidence)[:1]
        if samples in ((), (0,)):
            raise MaqeeError("A trace needs at least one sample: give calibration images.")
        for name in (*_PER_EXIT, *_PER_BLOCK):
            width = len(self.exit_blocks) if name in _PER_EXIT else self.depth
            object.__setattr__(self, name, _checked(name, getattr(self, name), (*samples, width)))

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.bits.depth

    @property
    def exits(self) -> int:
        """Number of exits, full depth not counted."""
        return len(self.exit_blocks) - 1

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.confidence.shape[0]

    @property
    def float_metric(self) -> float:
        """Mean metric of the full-precision model at full depth."""
        return float(self.float_correct[:, -1].astype(np.float64).sum() / self.samples)

    @property
    def full_metric(self) -> float:
        """Mean metric of the quantized model at full depth."""
        return float(self.correct[:, -1].astype(np.float64).sum() / self.samples)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Trace:
        """The trace of some of the samples."""
        return replace(self, **{name: getattr(self, name)[rows] for name in (*_PER_EXIT, *_PER_BLOCK)})

    def at_bits(self, bits: BitSettings) -> Trace:
        """The same arrays under other bits, for who trusts a stale pass (the paper's "no extra forward passes")."""
        return replace(self, bits=bits)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file; equal traces give equal bytes."""
        facts = {field.name: getattr(self, field.name) for field in fields(_Facts)}
        stored = {**asdict(_Facts(**facts)), "format": "maqee-trace", "version": VERSION}
        stored = {name: value for name, value in stored.items() if name not in ("exit_ms", "head_ms") or value}
        arrays = {name: getattr(self, name) for name in (*_PER_EXIT, *_PER_BLOCK)}
        write_arrays(Path(path), arrays, {"maqee": to_json(stored)})

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read what `save` wrote; anything else is an error that names the file and the key."""
        path = Path(path)
        arrays, metadata = read_arrays_and_metadata(path)
        try:
            stored: Any = json.loads(metadata.get("maqee", "null"))
        except (ValueError, RecursionError) as error:
            raise MaqeeError(f"{path}: metadata: not valid JSON ({error}): record the trace again.") from error
        described = current_trace(check_format(stored, "trace", VERSION, path, oldest=1))
        facts = from_json(_Facts, described, path)
        wanted = {*_PER_EXIT, *_PER_BLOCK}
        if missing := sorted(wanted - arrays.keys()):
            raise MaqeeError(f"{path}: {missing[0]}: the array is missing: record the trace again.")
        if foreign := sorted(arrays.keys() - wanted):
            raise MaqeeError(f"{path}: {foreign[0]}: no array of a trace has this name: record the trace again.")
        for name, array in arrays.items():
            if array.dtype != np.float32:
                raise MaqeeError(f"{path}: {name}: the array holds {array.dtype}, not float32: record it again.")
        values: dict[str, Any] = {**{field.name: getattr(facts, field.name) for field in fields(_Facts)}, **arrays}
        try:
            return cls(**values)
        except MaqeeError as error:
            raise MaqeeError(f"{path}: {error}") from error


def _check_facts(trace: Trace) -> None:
    blocks, depth = trace.exit_blocks, trace.depth
    if not blocks or blocks[0] < 1 or blocks[-1] != depth or any(a >= b for a, b in pairwise(blocks)):
        raise MaqeeError(f"exit_blocks: {list(blocks)} must ascend from 1 or later to the depth, {depth}.")
    if trace.exit_ms is not None and len(trace.exit_ms) != len(blocks):
        raise MaqeeError(f"exit_ms: {len(trace.exit_ms)} times for {len(blocks)} exits (full depth included).")
    check_head_ms(trace.head_ms, trace.exit_ms)
    for part in trace.parts:
        if not 0 <= part.block <= depth:
            raise MaqeeError(f"parts: {part.name!r} belongs to block {part.block} of a model with {depth} blocks.")
        if not 0 <= part.macs < 2**63:
            raise MaqeeError(f"parts: {part.name!r} has an impossible number of multiply-accumulates, {part.macs}.")
        if part.kind == "linear" and part.block == 0:
            raise MaqeeError(f"parts: {part.name!r} is linear and belongs to no block, so that it has no bits.")


def _checked(name: str, values: Any, shape: tuple[int, ...]) -> Array:
    """A read-only float32 copy whose shape and range are right."""
    array = np.array(values, dtype=np.float32)
    if array.shape != shape:
        raise MaqeeError(f"{name}: the array has shape {array.shape}, not {shape}: record the trace again.")
    if not np.isfinite(array).all():
        raise MaqeeError(f"{name}: the array holds NaN or infinity: check the model and the images it was run on.")
    highest = 1 + _ROUNDING if name in _SHARES else np.inf
    if array.min() < -_ROUNDING or array.max() > highest:
        limits = "from 0 to 1" if name in _SHARES else "at least 0"
        raise MaqeeError(f"{name}: values must be {limits}, not {array.min():g} to {array.max():g}.")
    array.flags.writeable = False
    return array
