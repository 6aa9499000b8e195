"""Where a search stands: enough to go on after a crash and end with the same bytes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from maqee.apq._stored import STRICT, check_format, from_json
from maqee.apq.bits import BlockBits
from maqee.apq.budget import Budget
from maqee.apq.figures import Figures
from maqee.apq.options import SearchOptions
from maqee.apq.risks import Scales
from maqee.apq.thresholds import Found, better
from maqee.errors import MaqeeError
from maqee.io import to_json

VERSION = 1


@dataclass(frozen=True)
class Position:
    """An allocation with its policy, and what they achieve.

    Attributes:
        bits: weight bits of every block.
        thresholds: of every exit.
        excess: how far the budget's limit is missed, in the limit's own unit; 0 is met.
        objective: J, or the expected cost where the budget asks for a metric.
        figures: the policy in numbers.
        weights: name of the snapshot of the weights; empty where nothing was trained.
    """

    __pydantic_config__ = STRICT

    bits: BlockBits
    thresholds: tuple[float, ...]
    excess: float
    objective: float
    figures: Figures
    weights: str = ""

    def beats(self, other: Position) -> bool:
        """Whether this is better: nearer to the limit, or as near with a lower objective."""
        mine, theirs = (Found(place.thresholds, place.excess, place.objective) for place in (self, other))
        return better(mine, theirs)


@dataclass(frozen=True)
class Step:
    """One entry of the history.

    Attributes:
        kind: "start", "swap", "exact" (an allocation from the knapsack), "last" (the closing threshold search) or
            "recovery" (training at the end, and thresholds for what came out).
        position: what was tried.
        accepted: whether the search went on from there.
        best_excess: of the best position so far, this one included.
        best_objective: likewise; with best_excess it never rises.
        donor: block (from 1) that gave a bit.
        receiver: block (from 1) that got it.
        risk_term: u_l x risk that the swap promised to take away.
        cost_term: share of the whole cost that it adds.
    """

    __pydantic_config__ = STRICT

    kind: Literal["start", "swap", "exact", "last", "recovery"]
    position: Position
    accepted: bool
    best_excess: float
    best_objective: float
    donor: int | None = None
    receiver: int | None = None
    risk_term: float | None = None
    cost_term: float | None = None


@dataclass(frozen=True)
class SearchState:
    """A search between two steps.

    Attributes:
        options: how it searches.
        budget: what it was asked for.
        scales: what terms are divided by, measured at the start.
        now: the position that the next step goes on from.
        best: the best position so far.
        seen: allocations tried.
        history: all steps.
        finished: nothing is left to do.
    """

    __pydantic_config__ = STRICT

    options: SearchOptions
    budget: Budget
    scales: Scales
    now: Position
    best: Position
    seen: tuple[BlockBits, ...]
    history: tuple[Step, ...]
    finished: bool = False

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
        state = from_json(cls, check_format(values, "search", VERSION, source), source)
        depth, exits = len(state.now.bits), len(state.now.thresholds)
        for place in (state.now, state.best, *(step.position for step in state.history)):
            if len(place.bits) != depth or len(place.thresholds) != exits:
                raise MaqeeError(f"{source}: its positions have different numbers of blocks or exits: start again.")
        return state
