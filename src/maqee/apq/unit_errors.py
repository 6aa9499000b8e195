"""What each width of each unit does to the answers: measured once, and good for every allocation.

Rounding errors are small and of different layers nearly independent, so the squares of their effects on the outputs
add up: those of weights and activations of one unit, and those of all units. Each is measured with all else in full
precision, where nothing else disturbs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from maqee.apq._stored import STRICT
from maqee.apq.options import SearchOptions
from maqee.apq.units import Space
from maqee.errors import MaqeeError
from maqee.widths import BitPair

Floats = NDArray[np.float64]
KEPT_OPEN = 0.05  # share of the samples that counts as leaving somewhere where fewer do
LEFT_BY_TRAINING = 0.1  # of the errors of weights, where training follows


@dataclass(frozen=True)
class UnitErrors:
    """Mean error of every exit's answers when one unit alone has fewer bits.

    Attributes:
        unit: its name.
        weights: for each weight width from the fewest to the most, the error at every exit and at full depth; empty
            for attention products, which have no weights.
        activations: the same for each activation width.
    """

    __pydantic_config__ = STRICT

    unit: str
    weights: tuple[tuple[float, ...], ...]
    activations: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        for row in (*self.weights, *self.activations):
            if not np.isfinite(row).all():
                raise MaqeeError(
                    f"The errors that fewer bits of {self.unit} cause are not finite numbers: check the model and the "
                    "calibration images."
                )

    def of(self, pair: BitPair, options: SearchOptions) -> Floats:
        """Error at every exit and at full depth of a pair: (E + 1,)."""
        error = np.array(self.activations[pair[1] - options.act_min])
        if not self.weights:
            return error
        share = LEFT_BY_TRAINING if options.before_training else 1.0
        return error + share * np.array(self.weights[pair[0] - options.bit_min])


def unit_risks(
    space: Space, errors: Sequence[UnitErrors], mass: Sequence[float], options: SearchOptions
) -> list[Floats]:
    """Risk of every unit at each of its pairs: its errors at the exits, as often as samples leave there.

    A head counts as if `KEPT_OPEN` of them left there at least. With the fewest bits, an exit that few take now would
    never be taken again, and other policies for the same bits could not open it.
    """
    if [unit.name for unit in space.units] != [error.unit for error in errors]:
        raise MaqeeError("The errors that were measured are of other units: start the search again.")
    weight = np.asarray(mass, dtype=np.float64)
    of_heads = np.maximum(weight, KEPT_OPEN)
    return [
        np.array([float(error.of(pair, options) @ (of_heads if unit.kind == "head" else weight)) for pair in pairs])
        for unit, error, pairs in zip(space.units, errors, space.pairs, strict=True)
    ]
