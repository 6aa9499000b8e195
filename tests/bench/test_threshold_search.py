"""The benchmark of threshold searches runs and reports what it should; times are not judged here."""

from __future__ import annotations

import pytest

from maqee.bench.threshold_search import search_speed
from maqee.errors import MaqeeError


def test_the_benchmark() -> None:
    report = search_speed(samples=200, exits=2, repeats=1)
    assert report.exact_objective <= report.coordinate_objective + 1e-12
    for name in ("grid_sweep", "every_value_sweep", "coordinate_search", "exact"):
        assert getattr(report, f"{name}_seconds") > 0


@pytest.mark.parametrize("name", ["samples", "exits", "repeats"])
def test_nothing_to_do(name: str) -> None:
    with pytest.raises(MaqeeError, match=f"^{name}: 0 must be at least 1"):
        search_speed(**{name: 0})
