"""Theorem 1, its corollary and the table of flips: by hand, and never violated on random data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from maqee.apq.theory.diagnosis import TAUS, diagnose
from maqee.policy import NEVER
from tests.apq.theory.makers import BLOCKS, FLOAT, PHI, QUANTIZED


def test_mis_exits_by_hand() -> None:
    found = diagnose(FLOAT, QUANTIZED, PHI, BLOCKS, taus=(0.0, 0.1, 0.22)).mis_exits
    # Decisions of exit 1: 1,0,1,0 and 1,1,0,0; of exit 2: 1,1,0,0 and 0,1,0,1.
    assert found.measured == (0.5, 0.5)
    # |Delta|: 0.2,0.2,0.05,0.6 and 0.3,0.2,0.4,0.5; |xi|: 0.05,0.25,0.25,0 and 0.4,0.1,0.1,0.5.
    assert found.boundary_mass == ((0.0, 0.25, 0.75), (0.0, 0.0, 0.25))
    assert found.tail == ((0.75, 0.5, 0.5), (1.0, 0.5, 0.5))
    assert found.bound == ((0.75, 0.75, 1.25), (1.0, 0.5, 0.75))
    assert found.crossing == (0.5, 0.5)
    assert found.holds


def test_stopping_depth_by_hand() -> None:
    found = diagnose(FLOAT, QUANTIZED, PHI, BLOCKS).stopping_depth
    # Float exits 1, 2, 1, full depth; quantized 1, 1, full depth, 2.
    assert found.float_mean == (2 + 4 + 2 + 6) / 4
    assert found.quantized_mean == (2 + 2 + 6 + 4) / 4
    assert found.changed == 0.75
    assert found.changed_bound == 1.0  # four differing decisions, one of them of a sample that had left
    assert found.shift_bound == 5.0
    assert found.first_disagreement == (0.5, 0.25)
    assert found.tight_shift_bound == 0.5 * 4 + 0.25 * 2
    assert found.holds


def test_flips_by_hand() -> None:
    losses = np.array([[0.0, 0.0, 0.0], [3.0, 1.0, 0.0], [4.0, 9.0, 2.0], [0.0, 5.0, 1.0]])
    found = diagnose(FLOAT, QUANTIZED, PHI, BLOCKS, losses=losses).flips
    assert found.matrix == ((1, 0, 1), (1, 0, 0), (0, 1, 0))
    assert (found.premature, found.delayed) == (0.5, 0.25)
    assert found.premature_loss == pytest.approx(((3 - 1) + (5 - 1)) / 4)
    assert found.delayed_loss == pytest.approx((2 - 4) / 4)
    assert (found.premature_blocks, found.delayed_blocks) == ((-2 - 2) / 4, 4 / 4)
    assert diagnose(FLOAT, QUANTIZED, PHI, BLOCKS).flips.premature_loss is None


def test_a_tie_at_the_threshold_is_an_exit() -> None:
    # rho = phi exits, and the smallest step down does not: Delta = 0, so tau = 0 covers it.
    low = np.nextafter(0.7, 0)
    found = diagnose([[0.7]], [[low]], (0.7,), (1, 2), taus=(0.0,)).mis_exits
    assert found.measured == (1.0,)
    assert found.boundary_mass == ((1.0,),)
    assert found.holds


CONFIDENCES = st.integers(1, 12).flatmap(
    lambda n: st.integers(1, 4).flatmap(
        lambda exits: st.tuples(
            *[hnp.arrays(np.float32, (n, exits), elements=st.floats(0, 1, width=32))] * 2,
            hnp.arrays(np.float64, (exits,), elements=st.floats(0, 1) | st.just(NEVER)),
        )
    )
)


@given(CONFIDENCES, st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_exit_bounds_hold_on_any_data(arrays: tuple[Any, Any, Any], taus: list[float]) -> None:
    before, after, phi = arrays
    exits = before.shape[1]
    found = diagnose(before, after, phi.tolist(), range(1, exits + 2), taus=[*taus, *TAUS])
    found.check()
    assert sum(map(sum, found.flips.matrix)) == found.n
    assert found.flips.premature + found.flips.delayed == pytest.approx(found.stopping_depth.changed)
    shift = found.stopping_depth.quantized_mean - found.stopping_depth.float_mean
    assert found.flips.premature_blocks + found.flips.delayed_blocks == pytest.approx(shift, abs=1e-12)


@given(CONFIDENCES)
def test_margins_near_rounding_do_not_break_the_bound(arrays: tuple[Any, Any, Any]) -> None:
    """Confidences a few units of the last place around the threshold, where differences are all rounding."""
    before, after, phi = arrays
    near = phi + np.round(8 * before.astype(float) - 4) * np.spacing(phi)
    far = phi + np.round(8 * after.astype(float) - 4) * np.spacing(phi)
    taus = [0.0, *(k * np.spacing(0.5) for k in range(5))]
    diagnose(near, far, phi.tolist(), range(1, len(phi) + 2), taus=taus).check()
