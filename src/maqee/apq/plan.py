"""The outcome of a search: everything that is needed to run the model, to repeat the search and to judge it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from maqee.apq._older import current_plan
from maqee.apq._stored import STRICT, check_format, from_json
from maqee.apq.budget import Budget
from maqee.apq.control.guarantee import Guarantee
from maqee.apq.options import SearchOptions
from maqee.apq.records import Expected, Figures, Scales, Step
from maqee.environment import version
from maqee.errors import MaqeeError
from maqee.io import read_json, to_json, write_text
from maqee.policy import NEVER, Policy
from maqee.widths import BitSettings

VERSION = 2


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Bits and thresholds, how they came about and what they achieve.

    Equal searches give equal bytes on one kind of processor with one version of the libraries; another processor may
    round differently.

    Attributes:
        bits: widths of everything: of the layers of every block, of heads, patch embedding and classifier.
        thresholds: of every exit; 2.0 is never.
        exit_blocks: the block after which each exit sits, numbered from 1; full depth is not listed.
        exit_kinds: kind of each exit's head.
        method: quantization method.
        task: name of the task.
        checkpoint: hash of the checkpoint.
        seed: random seed.
        versions: of the libraries it was made with.
        budget: what was asked for.
        got: what the plan achieves on the calibration samples, with simulated quantization.
        expected: what thresholds chosen in the same way achieve on samples that did not choose them, if known.
        options: of the search.
        scales: what risks and cost were divided by.
        history: all steps of the search; empty for a plan made by hand.
        guarantee: what is promised about the thresholds, if anything; a plan without says nothing about it.
    """

    __pydantic_config__ = STRICT

    bits: BitSettings
    thresholds: tuple[float, ...]
    exit_blocks: tuple[int, ...]
    exit_kinds: tuple[str, ...]
    method: str
    task: str
    checkpoint: str
    seed: int
    versions: dict[str, str]
    budget: Budget
    got: Figures
    options: SearchOptions = field(default_factory=SearchOptions)
    scales: Scales = field(default_factory=Scales)
    history: tuple[Step, ...] = ()
    expected: Expected | None = None
    guarantee: Guarantee | None = None

    def __post_init__(self) -> None:
        depth, exits = self.bits.depth, len(self.exit_blocks)
        blocks = (0, *self.exit_blocks, depth)
        if any(before >= after for before, after in pairwise(blocks)):
            raise MaqeeError(f"exit_blocks: {list(self.exit_blocks)} must ascend within 1..{depth - 1}.")
        _check_length("thresholds", self.thresholds, exits, "exits")
        _check_length("exit_kinds", self.exit_kinds, exits, "exits")
        _check_length("got.exit_mass", self.got.exit_mass, exits + 1, "exits, full depth included")
        for value in self.thresholds:
            if not 0 <= value <= 1 and value != NEVER:
                raise MaqeeError(f"thresholds: {value} must be from 0 to 1, or {NEVER} for never.")
        for index, step in enumerate(self.history):
            _check_length(f"history.{index}.position.bits.blocks", step.position.bits.blocks, depth, "blocks")
            _check_length(f"history.{index}.position.thresholds", step.position.thresholds, exits, "exits")
        if self.guarantee is not None and self.guarantee.thresholds != self.thresholds:
            raise MaqeeError(
                f"guarantee.thresholds: {list(self.guarantee.thresholds)} are not the plan's "
                f"{list(self.thresholds)}: a promise is about one policy only."
            )

    @property
    def policy(self) -> Policy:
        """The thresholds as the model takes them."""
        return Policy(self.thresholds)

    @property
    def passes(self) -> float | None:
        """Calibration passes that the search took at most: for errors of widths, allocations, and what it is `like`.

        None for a plan made by hand, and where weights alone are chosen: swaps are scored on parts of passes.
        """
        if not self.history or self.options.bits == "weights":
            return None
        errors = 0.0 if self.options.exit_ms is not None else self.options.error_passes
        return errors + len({step.position.bits for step in self.history}) + (self.budget.like is not None)

    def to_json(self) -> str:
        """Canonical JSON: equal plans give equal bytes."""
        values = {**asdict(self), "bits": self.bits.to_json()}
        for name in ("expected", "guarantee"):
            if values[name] is None:
                del values[name]
        return to_json({"format": "maqee-plan", "version": VERSION, **values})

    def save(self, path: str | Path) -> None:
        """Write a JSON file."""
        write_text(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read what `save` wrote; anything else is an error that names the file and the key."""
        path = Path(path)
        return from_json(cls, current_plan(check_format(read_json(path), "plan", VERSION, path, oldest=1)), path)


def library_versions() -> dict[str, str]:
    """Versions of what decides the numbers in a plan."""
    return {"maqee": version(), **{name: importlib.metadata.version(name) for name in ("numpy", "torch")}}


def _check_length(key: str, values: Sequence[object], expected: int, what: str) -> None:
    if len(values) != expected:
        raise MaqeeError(f"{key}: {len(values)} values for {expected} {what}: give {expected}.")
