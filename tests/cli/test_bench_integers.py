from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch import Tensor

from maqee.data.transforms import prepare
from maqee.device import pick_device
from maqee.errors import MaqeeError
from maqee.models.preprocessing import Preprocessing
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


def test_preprocessing_as_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from maqee.bench import integers

    seen: list[Preprocessing] = []

    def watch(pixels: Tensor, preprocessing: Preprocessing) -> Tensor:
        seen.append(preprocessing)
        return prepare(pixels, preprocessing)

    monkeypatch.setattr(integers, "prepare", watch)
    command = ("bench", "integers", "--model", "vit-digits", "--data", "digits", "--images", "4")
    said = ("--mean", "0.1", "--std", "0.3", "--resample", "nearest", "--resize", "18", "--no-exif")
    assert invoke(*command, *said).exit_code == 0
    expected = Preprocessing(image_size=(16, 16), resize=18, mean=(0.1,), std=(0.3,), resample="nearest", exif=False)
    assert seen == [expected, expected]
    assert "did you mean" in str(invoke(*command, "--resample", "nearst").exception)


def test_a_device_that_does_not_exist() -> None:
    with pytest.raises(MaqeeError, match="'gpu' is no device"):
        pick_device("gpu")
    assert pick_device("cpu").type == "cpu"
