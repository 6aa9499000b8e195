"""A guarantee: as a value that travels, and in words."""

from __future__ import annotations

import json

import pytest

from maqee.apq.control.guarantee import Guarantee
from maqee.errors import MaqeeError
from maqee.io import to_json
from tests.apq.control.test_boldest import ladder, pick


def test_guarantee_travels_as_json() -> None:
    arrays = ladder([[1.0, 0.0]] * 2 + [[0.0, 0.0]] * 48)
    for method in ("naive", "crc", "ucb", "ltt"):
        for epsilon in (0.001, 0.2):
            found = pick(arrays, method, epsilon, delta=0.1)
            again = Guarantee.from_json(json.loads(to_json(found.to_json())), "plan.json")
            assert again == found
            assert found.statement.endswith(".")
    assert "With probability at least 0.9" in found.statement
    assert "negative gaps counted as 0" in found.statement
    assert "No member" in pick(arrays, "ltt", 0.001, delta=0.1).statement
    assert "nothing is promised" in pick(arrays, "naive", 0.2).statement
    with pytest.raises(MaqeeError, match=r"plan\.json: n: Field required"):
        Guarantee.from_json({k: v for k, v in found.to_json().items() if k != "n"}, "plan.json")
    with pytest.raises(MaqeeError, match=r"plan\.json: method"):
        Guarantee.from_json({**found.to_json(), "method": "hope"}, "plan.json")
