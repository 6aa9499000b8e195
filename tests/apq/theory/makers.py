"""Four samples to work with by hand, and a small network with a rounded twin."""

from __future__ import annotations

from typing import Any

import numpy as np

# Four samples, two exits after blocks 2 and 4 of 6.
FLOAT = np.array([[0.9, 0.9], [0.5, 0.8], [0.75, 0.2], [0.1, 0.1]])
QUANTIZED = np.array([[0.85, 0.5], [0.75, 0.9], [0.5, 0.3], [0.1, 0.6]])
PHI = (0.7, 0.6)
BLOCKS = (2, 4, 6)


def run_network(n: int, depth: int, seed: int, step: float, width: int = 4) -> tuple[list[Any], list[Any], list[Any]]:
    """A small residual network and its rounded twin: float, quantized and crossed states."""
    generator = np.random.default_rng(seed)
    weights = generator.normal(0, 0.6, (depth, width, width))

    def block(state: np.ndarray, index: int) -> np.ndarray:
        return state + np.tanh(state @ weights[index])

    exact = [generator.normal(size=(n, width))]
    rounded, crossed = [exact[0].copy()], []
    for index in range(depth):
        exact.append(block(exact[-1], index))
        crossed.append(block(rounded[-1], index))
        rounded.append(np.round(crossed[-1] / step) * step)
    return exact, rounded, crossed
