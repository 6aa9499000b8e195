"""How much to spend on bits next: amounts are shares of what the first widths cost."""

from __future__ import annotations

from collections.abc import Sequence

from maqee.apq.options import SearchOptions

LADDER = (0.6, 0.72, 0.85, 1.0, 1.2, 1.45, 1.8, 2.4)
FRONTIER_LADDER = (0.72, 0.85, 1.0, 1.1, 1.2, 1.32, 1.45, 1.6, 1.8, 2.1, 2.4)  # every target needs a rung of its own
REFINED = 3  # further rungs, halfway between the best one and its neighbours
_NEAR = 1.02  # rungs nearer to each other than this are the same


def rungs_of(options: SearchOptions) -> tuple[float, ...]:
    """The ladder that a search climbs."""
    return FRONTIER_LADDER if options.frontier else LADDER


def next_rung(tried: Sequence[float], best: float, options: SearchOptions) -> float | None:
    """What to try next; None if the ladder is done.

    From 1 up or down as long as that is better (a frontier takes every rung), then halfway between the best rung and
    its neighbours.

    Args:
        tried: shares so far.
        best: the one of them that was best.
        options: whether a frontier is wanted.
    """
    if not tried:
        return 1.0
    rungs = rungs_of(options)
    around = rungs if options.frontier else _neighbours(rungs, best)
    if untried := [share for share in around if share not in tried]:
        return min(untried, key=lambda share: abs(share - 1))
    if sum(share not in rungs for share in tried) >= REFINED:
        return None
    shares = sorted(tried)
    place = shares.index(best)
    gaps = [(shares[upper] / shares[upper - 1], upper) for upper in (place, place + 1) if 0 < upper < len(shares)]
    ratio, upper = max(gaps, default=(1.0, 0))
    return round((shares[upper] * shares[upper - 1]) ** 0.5, 6) if ratio > _NEAR else None


def _neighbours(rungs: tuple[float, ...], share: float) -> tuple[float, ...]:
    """The next rung up and the next one down; none where a search has gone between the rungs."""
    if share not in rungs:
        return ()
    place = rungs.index(share)
    return (*rungs[place + 1 : place + 2], *rungs[max(place - 1, 0) : place])
