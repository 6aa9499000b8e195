"""A model made of formulas whose rounding errors really add up, so that the best allocation is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from maqee.apq import BlockRisks, SearchOptions
from maqee.apq.trace import Trace
from maqee.apq.unit_errors import UnitErrors
from maqee.apq.units import ATTENTION, Space, Unit
from maqee.parts import Part, block_parts
from maqee.widths import LAYERS, BitPair, BitSettings

MACS = {"qkv": 300, "attention": 90, "projection": 100, "fc1": 400, "fc2": 400}


@dataclass
class AdditiveModel:
    """A `Measure` whose answers suffer from the sum of all errors in front of an exit.

    `seed` draws the samples; the network is always the same.
    """

    exits: tuple[int, ...] = (2, 3, 4, 6)  # the last is the depth
    samples: int = 200
    seed: int = 0
    start_pair: BitPair = (4, 4)
    fixed: frozenset[Unit] = frozenset()
    sensitive: dict[Unit, tuple[float, float]] = field(default_factory=dict)  # of weights and of activations
    passes: float = 0.0
    traced: list[BitSettings] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.exits[-1]

    @property
    def start(self) -> BitSettings:
        """Uniform."""
        return BitSettings.uniform(*self.start_pair, self.depth)

    @property
    def exit_blocks(self) -> tuple[int, ...]:
        """Where exits sit, full depth last."""
        return self.exits

    @property
    def parts(self) -> tuple[Part, ...]:
        """Blocks by layer, heads, patch embedding and classifier."""
        blocks = [part for block in range(1, self.depth + 1) for part in block_parts(block, MACS)]
        heads = [Part(f"exit {block} head", "head", 50, block, str(i)) for i, block in enumerate(self.exits[:-1])]
        return (Part("patch", "patch", 20, 0), *blocks, *heads, Part("classifier", "classifier", 10, 0))

    def can_switch(self, unit: Unit) -> bool:
        """All but what is fixed."""
        return unit not in self.fixed

    def sensitivity(self, unit: Unit) -> tuple[float, float]:
        """How much the weights and the activations of a unit mind: fixed, and different for all of them."""
        if unit in self.sensitive:
            return self.sensitive[unit]
        place = 5 * unit.number + (LAYERS.index(unit.layer) if unit.layer else 0)
        weights, activations = 0.3 + (7 * place % 11) / 4, 0.2 + (5 * place % 13) ** 2 / 20
        return (0.0 if unit.layer == ATTENTION else weights, activations)

    def error(self, unit: Unit, pair: BitPair) -> float:
        """What a pair of widths adds to the error of everything behind it."""
        weights, activations = self.sensitivity(unit)
        return weights * 4.0 ** (3 - pair[0]) + activations * 4.0 ** (3 - pair[1])

    def total(self, bits: BitSettings, end: int) -> float:
        """The error of all layers up to a block."""
        units = [Unit("layer", block, layer) for block in range(1, end + 1) for layer in LAYERS]
        return sum(self.error(unit, unit.pair(bits)) for unit in units) / 40

    def trace(self, bits: BitSettings) -> Trace:
        """Errors take away from the margin by which samples are right."""
        self.passes += 1
        self.traced.append(bits)
        rng = np.random.default_rng(self.seed)
        width = len(self.exits)
        ease, noise = 2.0 * rng.normal(size=(self.samples, 1)), 0.6 * rng.normal(size=(self.samples, width))
        clean = 1.0 + ease + np.linspace(0.2, 1.6, width) + noise  # (n, E + 1)
        spread = rng.exponential(1, size=(self.samples, 1))
        margin = clean - spread * np.array([self.total(bits, end) for end in self.exits])
        arrays: dict[str, Any] = {f"float_{name}": values for name, values in _answers(clean).items()}
        return Trace(
            exit_blocks=self.exits,
            **arrays,
            **_answers(margin),
            drift=np.full((self.samples, self.depth), 0.1),
            noise=np.full((self.samples, self.depth), 0.1),
            parts=self.parts,
            bits=bits,
            task="classification",
            model="formulas",
        )

    def block_risks(self, bits: BitSettings, widths: Sequence[Sequence[int]], path: bool) -> BlockRisks:
        """Not asked by this search."""
        raise AssertionError

    def unit_errors(
        self, base: BitSettings, space: Space, options: SearchOptions, passes: float
    ) -> tuple[UnitErrors, ...]:
        """What the formulas say, at every exit behind the unit."""
        self.passes += passes

        def rows(unit: Unit, pairs: Sequence[BitPair]) -> tuple[tuple[float, ...], ...]:
            parts = [Unit("layer", unit.number, layer) for layer in LAYERS] if unit.kind == "block" else [unit]
            inside = unit.kind in ("block", "layer")
            changes = [
                sum(self.error(part, pair) - self.error(part, part.pair(base)) for part in parts) if inside else 0.0
                for pair in pairs
            ]
            return tuple(tuple(change * (end >= unit.number) for end in self.exits) for change in changes)

        found = []
        for unit, pairs in zip(space.units, space.pairs, strict=True):
            weight, activation = unit.pair(base)
            one = [(bits, activation) for bits in sorted({pair[0] for pair in pairs})]
            other = [(weight, bits) for bits in sorted({pair[1] for pair in pairs})]
            product = unit.layer == ATTENTION
            found.append(UnitErrors(unit.name, () if product else rows(unit, one), rows(unit, other)))
        return tuple(found)

    def recover(self, bits: BitSettings, exit_mass: Sequence[float], steps: int) -> None:
        """Not asked by this search."""
        raise AssertionError

    def snapshot(self, name: str) -> None:
        """Not asked by this search."""
        raise AssertionError

    def restore(self, name: str) -> None:
        """Not asked by this search."""
        raise AssertionError


def _answers(margin: np.ndarray) -> dict[str, Any]:
    return {
        "confidence": 1 / (1 + np.exp(-np.abs(margin))),
        "loss": np.log1p(np.exp(-margin)),
        "correct": margin > 0,
    }
