"""A model made of formulas: every block adds noise by its bits, and noise makes exits wrong and unsure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from maqee.apq import BlockBits, BlockRisks
from maqee.apq.trace import Trace
from maqee.widths import BitSettings
from tests.apq.makers import make_trace
from tests.helpers import by_block

EXITS = (2, 3, 4, 6)


@dataclass
class FakeModel:
    """A `Measure`. `kept` plays the disk; hand it to another one to play another process."""

    samples: int = 300
    seed: int = 0
    kept: dict[str, str] = field(default_factory=dict)
    damage: float = 1.0  # what training lowers
    asked: list[str] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return EXITS[-1]

    @property
    def start(self) -> BitSettings:
        """Widths as it was fitted."""
        return by_block((4,) * self.depth)

    def _sensitivity(self) -> np.ndarray:
        return np.array([4.0, 1.0, 0.5, 2.0, 0.2, 0.1])

    def _noise(self, bits: BlockBits) -> np.ndarray:
        """Noise that each block adds: (L,)."""
        return self.damage * self._sensitivity() * 4.0 ** (3.0 - np.array(bits)) / 20

    def trace(self, bits: BitSettings) -> Trace:
        """Noise adds up along the blocks and shrinks confidence."""
        self.asked.append("trace")
        clean = make_trace(self.samples, EXITS, self.seed)
        total = np.cumsum(self._noise(bits.block_weights))  # (L,)
        spread = np.random.default_rng(self.seed + 1).exponential(1, (self.samples, 1))
        at_exits = spread * total[np.array(EXITS) - 1]
        return make_trace(
            self.samples,
            EXITS,
            self.seed,
            bits=bits,
            float_confidence=clean.confidence,
            float_loss=clean.loss,
            confidence=clean.confidence * np.exp(-at_exits),
            loss=clean.loss + 2 * at_exits,
            correct=clean.correct * (at_exits < 0.8),
            drift=0.1 * spread * total,
            noise=spread * total,
        )

    def block_risks(self, bits: BitSettings, widths: Sequence[Sequence[int]], path: bool) -> BlockRisks:
        """Noise of a block with its own bits changed, on top of what arrives."""
        self.asked.append("risks")
        risks = np.full((self.depth, 4), np.nan)
        weights = bits.block_weights
        for block, wanted in enumerate(widths):
            for width in wanted:
                total = np.cumsum(self._noise((*weights[:block], width, *weights[block + 1 :])))
                risks[block, width - 3] = total[block:].sum() if path else total[block]
        return BlockRisks(3, 0.1 * risks, risks)

    def recover(self, bits: BitSettings, exit_mass: Sequence[float], steps: int) -> None:
        """Training takes some of the damage away."""
        assert abs(sum(exit_mass) - 1) < 1e-9
        self.asked.append("recover")
        self.damage *= 0.9 if bits.block_weights[0] >= 4 else 1.2

    def snapshot(self, name: str) -> None:
        """Keep the weights."""
        self.kept[name] = json.dumps(self.damage)

    def restore(self, name: str) -> None:
        """Bring them back."""
        self.damage = json.loads(self.kept[name])
