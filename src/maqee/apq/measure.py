"""What the search asks of a model. The answers are arrays; how they are made is the business of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from maqee.apq.bits import BlockRisks
from maqee.apq.options import SearchOptions
from maqee.apq.trace import Trace
from maqee.apq.unit_errors import UnitErrors
from maqee.apq.units import Space, Unit
from maqee.parts import Part
from maqee.widths import BitSettings


class Measure(Protocol):
    """A quantized early-exit model, its frozen full-precision reference and calibration samples.

    Equal questions must get equal answers, to the last bit, also in another process: a search that was stopped goes on
    from its state by asking again. That is asked of one kind of processor and one version of the libraries only.
    """

    @property
    def depth(self) -> int:
        """Number of blocks."""

    @property
    def start(self) -> BitSettings:
        """Widths of everything, as the model was fitted."""

    def trace(self, bits: BitSettings) -> Trace:
        """A pass over the calibration samples with these widths."""

    def block_risks(self, bits: BitSettings, widths: Sequence[Sequence[int]], path: bool) -> BlockRisks:
        """Risks of every block's output at other weight widths, the inputs being those of the pass at `bits`.

        The pass before was almost always at these bits, so that inputs kept from it will do; else run it again.

        Args:
            bits: of all blocks.
            widths: for every block the widths that are wanted; others may be NaN.
            path: sum the risks over the block and all blocks behind it.
        """

    @property
    def exit_blocks(self) -> tuple[int, ...]:
        """The block after which each exit sits, and the depth."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the model costs."""

    def can_switch(self, unit: Unit) -> bool:
        """Whether the widths of a unit can be changed; they cannot where the user has fixed them."""

    def unit_errors(
        self, base: BitSettings, space: Space, options: SearchOptions, passes: float
    ) -> tuple[UnitErrors, ...]:
        """Errors at the exits that every width of every unit causes, all else being in full precision.

        Args:
            base: the most bits of everything.
            space: units and their pairs.
            options: the signal, and the widths.
            passes: calibration passes that it may take; it looks at as many samples as that allows.
        """

    def recover(self, bits: BitSettings, exit_mass: Sequence[float], steps: int) -> None:
        """Train the model at these bits for some steps; exits count by the share that leaves there."""

    def snapshot(self, name: str) -> None:
        """Keep the weights as they are now under a name, also beyond this process; an older one is replaced."""

    def restore(self, name: str) -> None:
        """Bring back the weights that a snapshot kept."""
