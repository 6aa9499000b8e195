"""The two ways to search, by name."""

from __future__ import annotations

from maqee.apq import SearchOptions
from maqee.errors import MaqeeError


def search_options(
    solver: str, lambda_outer: float = 0.5, recovery_steps: int = 0, max_swaps: int | None = None
) -> SearchOptions:
    """Options of a solver.

    Args:
        solver: "coordinate", one threshold and one swap of bits at a time, as the paper has it; or "exact", which
            begins with the best allocation for the measured risks and ends with the best thresholds of all.
        lambda_outer: price of cost when thresholds are chosen.
        recovery_steps: training steps after every change of bits.
        max_swaps: swaps of bits to try; with 0 all blocks keep the same bits.
    """
    if solver not in ("coordinate", "exact"):
        raise MaqeeError(f"Solver {solver!r} is not one of coordinate, exact.")
    exact = solver == "exact"
    return SearchOptions(
        lambda_outer=lambda_outer,
        recovery_steps=recovery_steps,
        max_swaps=max_swaps,
        first_move="exact" if exact else "swap",
        last_search="exact" if exact else "coordinate",
    )
