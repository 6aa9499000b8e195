"""Small changes of an allocation, the most promising first: one step of one width, or one up and another down.

The allocation is the best by the measured errors, so that no move promises much. But errors are estimates, and they do
not quite add up; what is nearly as good on paper may be better in the network, and running it tells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from maqee.apq.units import ATTENTION, Floats, Space
from maqee.widths import BitPair

_MOST = 24  # steps up and steps down that are combined


class Move(NamedTuple):
    """An allocation next to another.

    Attributes:
        chosen: the pairs of all units after it.
        words: what it changes.
    """

    chosen: tuple[BitPair, ...]
    words: str


class _Step(NamedTuple):
    unit: int
    pair: BitPair
    risk: float  # that it adds; below 0 for one more bit
    cost: float  # likewise; above 0 for one more bit


def propose_moves(
    space: Space,
    chosen: tuple[BitPair, ...],
    risks: Sequence[Floats],
    costs: Sequence[Floats],
    run_before: Collection[tuple[BitPair, ...]],
) -> Move | None:
    """The most promising move to an allocation that was not run before; None if there is none.

    Steps that were part of a move from here already come after all others: their worth is known.

    Args:
        space: units and their pairs.
        chosen: the pairs of all units now.
        risks: of every unit at each of its pairs.
        costs: likewise.
        run_before: allocations that were.
    """
    steps = _single_steps(space, chosen, risks, costs)
    up, down = [step for step in steps if step.cost > 0], [step for step in steps if step.cost < 0]
    price = _going_rate(up, down)
    up, down = (sorted(some, key=lambda step: step.risk + price * step.cost)[:_MOST] for some in (up, down))
    moves: list[tuple[float, tuple[_Step, ...]]] = [(step.risk + price * step.cost, (step,)) for step in (*up, *down)]
    moves += [
        (one.risk + other.risk + price * (one.cost + other.cost), (one, other))
        for one in up
        for other in down
        if one.unit != other.unit
    ]
    tried = _tried_steps(chosen, run_before)

    def order(move: tuple[float, tuple[_Step, ...]]) -> tuple[bool, float, int, tuple[_Step, ...]]:
        worth, taken = move
        return any((step.unit, step.pair) in tried for step in taken), worth, len(taken), taken

    for _, taken in sorted(moves, key=order):
        pairs = list(chosen)
        for step in taken:
            pairs[step.unit] = step.pair
        if tuple(pairs) not in run_before:
            return Move(tuple(pairs), ", ".join(_words(space, chosen, step) for step in taken))
    return None


def _tried_steps(chosen: tuple[BitPair, ...], run_before: Collection[tuple[BitPair, ...]]) -> set[tuple[int, BitPair]]:
    """Units and pairs of allocations that were run and differ from this one in at most two units."""
    tried: set[tuple[int, BitPair]] = set()
    for other in run_before:
        apart = [(unit, there) for unit, (here, there) in enumerate(zip(chosen, other, strict=True)) if here != there]
        if len(apart) <= 2:
            tried |= set(apart)
    return tried


def _single_steps(
    space: Space, chosen: tuple[BitPair, ...], risks: Sequence[Floats], costs: Sequence[Floats]
) -> list[_Step]:
    """One bit more or less in one width of one unit."""
    found = []
    for unit, (pairs, now) in enumerate(zip(space.pairs, chosen, strict=True)):
        here = pairs.index(now)
        for place, pair in enumerate(pairs):
            apart = sorted({abs(pair[0] - now[0]), abs(pair[1] - now[1])})
            product = space.units[unit].layer == ATTENTION
            if apart == ([1] if product else [0, 1]):
                risk, cost = risks[unit][place] - risks[unit][here], costs[unit][place] - costs[unit][here]
                found.append(_Step(unit, pair, float(risk), float(cost)))
    return found


def _going_rate(up: Sequence[_Step], down: Sequence[_Step]) -> float:
    """Risk that a unit of cost is worth here: between what the best step up brings and what the best one down takes."""
    best_up = max((-step.risk / step.cost for step in up), default=0.0)
    best_down = min((-step.risk / step.cost for step in down), default=best_up)
    return max((best_up + best_down) / 2, 0.0)


def _words(space: Space, chosen: tuple[BitPair, ...], step: _Step) -> str:
    now = chosen[step.unit]
    return f"{space.units[step.unit].name} {now[0]}/{now[1]} to {step.pair[0]}/{step.pair[1]}"
