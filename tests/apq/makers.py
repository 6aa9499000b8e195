"""Traces with plausible numbers, one with numbers to work with by hand, and small problems with many ties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from maqee.apq.objective import ExitProblem, Limit
from maqee.apq.trace import Trace
from maqee.parts import Part
from maqee.widths import BitSettings
from tests.helpers import by_block


def make_parts(depth: int, exit_blocks: tuple[int, ...]) -> tuple[Part, ...]:
    """A patch embedding, blocks of linear layers and attention, a head for each exit, a classifier."""
    body = [Part("patch", "patch", 20, 0)]
    for block in range(1, depth + 1):
        body += [Part(f"block {block} linear", "linear", 1000, block)]
        body += [Part(f"block {block} attention", "attention", 100, block)]
    heads = [Part(f"exit {block} head", "head", 50, block) for block in exit_blocks[:-1]]
    return (*body, *heads, Part("classifier", "classifier", 10, 0))


def make_trace(
    samples: int = 200,
    exit_blocks: tuple[int, ...] = (2, 3, 4, 6),
    seed: int = 0,
    bits: Sequence[int] | BitSettings | None = None,
    **changes: Any,
) -> Trace:
    """A random trace of a model with the depth that `exit_blocks` ends with."""
    rng = np.random.default_rng(seed)
    depth, width = exit_blocks[-1], len(exit_blocks)
    skill = np.linspace(0.6, 1.8, width)  # margin of an average sample at each exit
    ease = 2.5 * rng.normal(size=(samples, 1))
    margin = ease + skill + 0.6 * rng.normal(size=(samples, width))
    confidence = 1 / (1 + np.exp(-np.abs(margin)))
    right, loss = margin > 0, np.log1p(np.exp(-2 * margin))
    blur = 0.03 * rng.normal(size=(samples, width))
    values: dict[str, Any] = {
        "exit_blocks": exit_blocks,
        "float_confidence": np.clip(confidence + blur, 0, 1),
        "confidence": confidence,
        "float_loss": np.abs(loss + blur),
        "loss": loss,
        "float_correct": right,
        "correct": right,
        "drift": rng.exponential(0.02, size=(samples, depth)),
        "noise": rng.exponential(0.05, size=(samples, depth)),
        "parts": make_parts(depth, exit_blocks),
        "bits": bits if isinstance(bits, BitSettings) else by_block(bits or (4,) * depth),
        "task": "classification",
        "model": "0123abcd",
    }
    return Trace(**{**values, **changes})


# Four samples, two exits and full depth, after blocks 1, 3 and 4.
CONFIDENCE = np.array([[0.9, 0.5, 0.6], [0.4, 0.8, 0.7], [0.4, 0.5, 0.9], [0.8, 0.9, 0.9]])
LOSS = np.array([[1.0, 0.5, 0.25], [2.0, 0.5, 0.5], [3.0, 2.0, 1.0], [0.0, 0.5, 0.5]])
FLOAT_LOSS = np.array([[1.0, 0.5, 0.5], [2.0, 0.5, 0.5], [3.0, 2.0, 0.5], [0.0, 0.5, 0.5]])


def four_samples(**changes: Any) -> Trace:
    """The trace of these four samples."""
    values: dict[str, Any] = {
        "confidence": CONFIDENCE,
        "float_confidence": CONFIDENCE[:, ::-1],
        "loss": LOSS,
        "float_loss": FLOAT_LOSS,
        "drift": np.arange(16).reshape(4, 4),
        "noise": np.ones((4, 4)),
        **changes,
    }
    return make_trace(4, (1, 3, 4), **values)


@st.composite
def problems(draw: st.DrawFn, exits: int = 3, most: int = 12, step: int = 100) -> ExitProblem:
    """Small problems with many ties: confidences are hundredths."""
    samples = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    confidence = (rng.integers(0, step + 1, (samples, exits)) / step).astype(np.float32)
    spend, bound = rng.normal(size=(samples, exits + 1)), float(rng.normal() * 0.5)
    heads = rng.choice([0.0, 0.1, 0.7], (2, exits))  # of what is spent, and of the objective
    limit = Limit(spend, bound, heads[0]) if draw(st.booleans()) else None
    return ExitProblem(
        confidence=confidence,
        value=rng.normal(size=(samples, exits + 1)),
        boundary=rng.integers(0, step + 1, (samples, exits)) / step,
        tau=rng.choice([0.0, 0.05, 0.1], exits),
        boundary_weight=rng.choice([0.0, 0.3, 1.0], exits),
        reaching=draw(st.booleans()),
        constant=0.5,
        limit=limit,
        heads=heads[1],
    )
