"""Where a search stands: enough to go on after a crash and end with the same bytes.

The same bytes are promised on one kind of processor with one version of the libraries.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from maqee.apq._older import with_scores
from maqee.apq._stored import STRICT, check_format, from_json
from maqee.apq.budget import Budget
from maqee.apq.options import SearchOptions
from maqee.apq.records import FoldOutcome, Position, Scales, Step
from maqee.apq.unit_errors import UnitErrors
from maqee.errors import MaqeeError
from maqee.io import to_json

VERSION = 2


@dataclass(frozen=True)
class FrontierPoint:
    """The best position for one of several targets.

    Attributes:
        drop: how far the target lies below what the quantized model can reach.
        target: the target.
        position: the best for it so far.
        folds: for each part of the samples, the best allocation and policy for it by the other parts.
    """

    __pydantic_config__ = STRICT

    drop: float
    target: Budget
    position: Position
    folds: tuple[FoldOutcome, ...]


@dataclass(frozen=True)
class SearchState:
    """A search between two steps.

    Attributes:
        options: how it searches.
        budget: what it was asked for.
        scales: what terms are divided by, measured at the start.
        now: the position that the next step goes on from.
        best: the best position so far.
        history: all steps.
        finished: nothing is left to do.
        target: what was asked for, said as numbers: a drop as the metric that it comes to.
        reachable: metric at full depth with the most bits, which a drop may be counted from.
        errors: of every unit at every width, once they were measured.
        folds: for each part of the samples, the best allocation and policy by the other parts.
        frontier: the best position for each of a ladder of targets, if that was asked.
    """

    __pydantic_config__ = STRICT

    options: SearchOptions
    budget: Budget
    scales: Scales
    now: Position
    best: Position
    history: tuple[Step, ...]
    target: Budget
    reachable: float
    finished: bool = False
    errors: tuple[UnitErrors, ...] = ()
    folds: tuple[FoldOutcome, ...] = ()
    frontier: tuple[FrontierPoint, ...] = ()

    def to_json(self) -> str:
        """Canonical JSON."""
        return to_json({"format": "maqee-search", "version": VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str, source: str = "search state") -> SearchState:
        """Read what `to_json` wrote."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise MaqeeError(f"{source} is not valid JSON ({error}): start the search again.") from error
        state = from_json(cls, with_scores(check_format(values, "search", VERSION, source), "options"), source)
        depth, exits = state.now.bits.depth, len(state.now.thresholds)
        for place in (state.now, state.best, *(step.position for step in state.history)):
            if place.bits.depth != depth or len(place.thresholds) != exits:
                raise MaqeeError(f"{source}: its positions have different numbers of blocks or exits: start again.")
        return state
