from __future__ import annotations

import json
from pathlib import Path

import pytest

from maqee.device import pick_device
from maqee.errors import MaqeeError
from tests.helpers import invoke


def test_simulated_and_executed_agree(tmp_path: Path) -> None:
    out = tmp_path / "integers.json"
    result = invoke("bench", "integers", "vit-digits", "--data", "digits", "--images", "40", "--out", str(out))
    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())
    assert figures["images"] == 40
    assert figures["agreement"] == 1.0
    assert figures["worst_layer"] <= 1e-5
    assert "agree on 100.00%" in result.output


def test_a_device_that_does_not_exist() -> None:
    with pytest.raises(MaqeeError, match="'gpu' is no device"):
        pick_device("gpu")
    assert pick_device("cpu").type == "cpu"
