"""A measure that remembers its answers, for several searches of one fitted model.

Searches that differ in options ask many of the same questions: the first widths, the errors of every unit, allocations
that several of them try. Equal questions have equal answers, to the last bit (`maqee.apq.measure`), so that the second
search need not run the model for what the first has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from maqee.apq import BitSettings, BlockRisks, Trace
from maqee.apq.options import SearchOptions
from maqee.apq.unit_errors import UnitErrors
from maqee.apq.units import Space, Unit
from maqee.compression.model_measure import ModelMeasure
from maqee.parts import Part

Answer = TypeVar("Answer")
Memory = dict[Hashable, Any]  # answers by question; of one fitted model and its images only


class RememberedMeasure:
    """Asks a model what is not in memory yet. Not for searches that train, after which answers are others.

    Args:
        measure: the model.
        memory: what is known already; it grows.
    """

    def __init__(self, measure: ModelMeasure, memory: Memory) -> None:
        self.measure, self.memory = measure, memory

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.measure.depth

    @property
    def start(self) -> BitSettings:
        """Widths as the model was fitted."""
        return self.measure.start

    @property
    def exit_blocks(self) -> tuple[int, ...]:
        """The block after which each exit sits, and the depth."""
        return self.measure.exit_blocks

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the model costs."""
        return self.measure.parts

    def can_switch(self, unit: Unit) -> bool:
        """Whether the widths of a unit can be changed."""
        return self.measure.can_switch(unit)

    def trace(self, bits: BitSettings) -> Trace:
        """A pass at these widths."""
        return self._answer(("trace", bits), lambda: self.measure.trace(bits))

    def block_risks(self, bits: BitSettings, widths: Sequence[Sequence[int]], path: bool) -> BlockRisks:
        """Risks of every block's output at other weight widths."""
        question = ("block risks", bits, tuple(tuple(some) for some in widths), path)
        return self._answer(question, lambda: self.measure.block_risks(bits, widths, path))

    def unit_errors(
        self, base: BitSettings, space: Space, options: SearchOptions, passes: float
    ) -> tuple[UnitErrors, ...]:
        """Errors that every width of every unit causes; of the options the signal alone counts."""
        question = ("unit errors", base, space, options.signal, passes)
        return self._answer(question, lambda: self.measure.unit_errors(base, space, options, passes))

    def recover(self, bits: BitSettings, exit_mass: Sequence[float], steps: int) -> None:
        """Never asked for."""
        raise AssertionError("what is remembered is of weights that do not change")

    def snapshot(self, name: str) -> None:
        """Never asked for."""
        raise AssertionError("what is remembered is of weights that do not change")

    def restore(self, name: str) -> None:
        """Never asked for."""
        raise AssertionError("what is remembered is of weights that do not change")

    def _answer(self, question: Hashable, ask: Callable[[], Answer]) -> Answer:
        if question not in self.memory:
            self.memory[question] = ask()
        found: Answer = self.memory[question]
        return found
