"""The diagnosis: all theorems together, as JSON, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from maqee.apq.theory.diagnosis import Diagnosis, diagnose
from maqee.apq.theory.error import (
    BlockErrors,
    measure_blocks,
)
from maqee.errors import MaqeeError
from maqee.io import to_json
from tests.apq.theory.makers import BLOCKS, FLOAT, PHI, QUANTIZED, run_network


def full_diagnosis() -> Diagnosis:
    return diagnose(
        FLOAT,
        QUANTIZED,
        PHI,
        BLOCKS,
        losses=np.zeros((4, 3)),
        block_errors=measure_blocks(*run_network(4, 6, 0, 0.1)),
        sensitivity=[1, 1, 1, 2, 3, 4],
    )


def test_diagnosis_is_json() -> None:
    found = full_diagnosis()
    found.check()
    values = json.loads(to_json(found.to_json()))
    assert values == found.to_json()
    assert values["utilization"] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    assert values["rank_inversions"]["pairs"] == [[5, 1], [5, 2], [5, 4]]  # u S = 1, 1, 0.5, 1, 0.75, 1
    assert json.loads(to_json(diagnose(FLOAT, QUANTIZED, PHI, BLOCKS).to_json()))["accumulated_error"] is None


def test_thresholds_are_compared_as_the_model_compares_them() -> None:
    """A single-precision confidence of 0.7 lies below the number 0.7, and leaves at that threshold all the same."""
    single = np.full((3, 1), 0.7, dtype=np.float32)
    assert single.astype(np.float64)[0, 0] < 0.7
    found = diagnose(single, single, (0.7,), (1, 2))
    assert found.stopping_depth.quantized_mean == 1
    assert found.thresholds == (0.7,)  # as it was given
    double = diagnose(single.astype(np.float64), single.astype(np.float64), (0.7,), (1, 2))
    assert double.stopping_depth.quantized_mean == 2
    # The quantized policy is the one that is executed, so its precision decides.
    mixed = diagnose(single.astype(np.float64), single, (0.7,), (1, 2))
    assert (mixed.stopping_depth.float_mean, mixed.stopping_depth.quantized_mean) == (1, 1)


def test_check_names_what_is_violated() -> None:
    found = full_diagnosis()
    broken = dataclasses.replace(found, mis_exits=dataclasses.replace(found.mis_exits, measured=(0.5, 0.9)))
    with pytest.raises(MaqeeError, match=r"violate Theorem 1 \(mis-exits\), which"):
        broken.check()
    broken = dataclasses.replace(found, stopping_depth=dataclasses.replace(found.stopping_depth, quantized_mean=6.1))
    with pytest.raises(MaqeeError, match="corollary"):
        broken.check()
    assert found.accumulated_error is not None
    broken = dataclasses.replace(found, accumulated_error=dataclasses.replace(found.accumulated_error, violations=1))
    with pytest.raises(MaqeeError, match="Theorem 2"):
        broken.check()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"float_confidence": FLOAT[:3]}, "must both be"),
        ({"float_confidence": FLOAT[0], "quantized_confidence": FLOAT[0]}, "must both be"),
        ({"float_confidence": np.full((4, 2), math.nan)}, "without NaN"),
        ({"thresholds": (0.5,)}, "one threshold for each of the 2 exits"),
        ({"thresholds": (0.5, math.inf)}, "one threshold for each of the 2 exits"),
        ({"exit_blocks": (2, 4)}, "2 rising block numbers and the depth"),
        ({"exit_blocks": (4, 2, 6)}, "2 rising block numbers and the depth"),
        ({"exit_blocks": (0, 2, 6)}, "2 rising block numbers and the depth"),
        ({"taus": ()}, "tau"),
        ({"taus": (-0.1,)}, "tau"),
        ({"losses": np.zeros((4, 2))}, r"shape \(4, 3\)"),
        ({"losses": np.full((4, 3), math.inf)}, r"shape \(4, 3\)"),
        ({"block_errors": BlockErrors(np.zeros((4, 3)), np.zeros((4, 2)), np.zeros((4, 2)))}, "4 samples and 6 blocks"),
        ({"sensitivity": [1.0, 2.0]}, "one sensitivity"),
        ({"sensitivity": [1, 1, 1, 1, 1, -1]}, "negative"),
    ],
)
def test_wrong_arrays(change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "float_confidence": FLOAT,
        "quantized_confidence": QUANTIZED,
        "thresholds": PHI,
        "exit_blocks": BLOCKS,
    }
    with pytest.raises(MaqeeError, match=message):
        diagnose(**(good | change))
