"""Where a search stands: enough to go on after a crash and end with the same bytes.

The same bytes are promised on one kind of processor with one version of the libraries.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from maqee.apq._stored import STRICT, check_format, from_json, without_what_was_meant
from maqee.apq.budget import Budget
from maqee.apq.cost import BlockBits
from maqee.apq.options import SearchOptions
from maqee.apq.records import Position, Scales, Step
from maqee.errors import MaqeeError
from maqee.io import to_json

VERSION = 1


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
        return to_json({"format": "maqee-search", "version": VERSION, **without_what_was_meant(asdict(self))})

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
