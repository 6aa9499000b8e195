"""The tool that compares ways to train: what it measures, what it writes, when it stops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from maqee.compression import RecoverySettings
from maqee.errors import MaqeeError
from tools import compare_recovery
from tools.compare_recovery import VARIANTS, compare, find_variants, make_settings, parse

pytestmark = pytest.mark.trains

BASE = ["--data", "digits", "--steps", "2", "--batch-size", "16", "--fit-images", "8", "--images", "40"]


def run(model_folder: Path, *more: str) -> dict[str, Any]:
    return compare(parse([str(model_folder), *BASE, *more]))


def test_every_variant_starts_from_the_same_model(model_folder: Path, tmp_path: Path) -> None:
    """Equal settings end alike, whatever was trained between them, and the file holds what was returned."""
    out = tmp_path / "comparison.json"
    given = ["one={}", "mine={drop_path: 0.2, teacher: both, ema: 0.9}", "alternate", "two={}"]
    found = run(model_folder, "--variants", *given, "--set", "weights=depth", "--lr", "0.001", "--out", str(out))
    assert json.loads(out.read_text()) == found
    assert list(found["variants"]) == ["one", "mine", "alternate", "two"]
    one, mine, two = (found["variants"][name] for name in ("one", "mine", "two"))
    assert one["after"] == two["after"]
    assert one["training"] == two["training"]
    assert set(one["training"]) == {"loss", "loss@1", "loss@2", "loss@4"}
    assert two["against_first"] == {"mean": [0.0] * 3, "standard_error": [0.0] * 3}
    assert mine["settings"] == {**one["settings"], "drop_path": 0.2, "teacher": "both", "ema": 0.9}
    assert one["settings"]["weights"] == "depth"
    assert (one["settings"]["lr"], one["settings"]["batch_size"]) == (0.001, 16)
    assert found["data"] == "digits calibration"
    assert (found["images"], found["bits"], found["steps"], found["seed"]) == (40, [4, 4], 2, 0)
    assert "versions" in found["environment"]
    assert sum(found["exit_mass"]) == pytest.approx(1.0)
    for part in (found["full_precision"], found["before"], mine["after"]):
        assert [len(values) for values in part.values()] == [3, 3]


def test_a_time_limit_and_a_divergence(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A variant that diverges does not cost the others; what cannot be begun in time is named."""
    out = tmp_path / "comparison.json"
    train = compare_recovery.Bench.train

    def spy(bench: Any, settings: RecoverySettings, folder: Path) -> Any:
        if settings.lr and settings.lr > 1:
            raise MaqeeError("Stage recovery diverged.")
        return train(bench, settings, folder)

    monkeypatch.setattr(compare_recovery.Bench, "train", spy)
    found = run(model_folder, "--variants", "wild={lr: 2.0}", "tame={lr: 0.001}", "--out", str(out))
    assert found["variants"]["wild"]["error"] == "Stage recovery diverged."
    assert "after" in found["variants"]["tame"]
    late = run(model_folder, "--variants", "default", "alternate", "--time-limit", "0", "--out", str(out))
    assert late["skipped"] == ["default", "alternate"]
    assert json.loads(out.read_text())["variants"] == {}
    assert "Skipped for lack of time: default, alternate." in capsys.readouterr().out


def test_variants_that_are_known() -> None:
    assert find_variants([]) == VARIANTS
    assert make_settings("default", VARIANTS["default"]) == RecoverySettings()
    for name, changes in VARIANTS.items():
        assert (make_settings(name, changes) == RecoverySettings()) == (name == "default"), name
    with pytest.raises(MaqeeError, match="Unknown variant 'alternat': did you mean alternate"):
        find_variants(["alternat"])
    with pytest.raises(MaqeeError, match="Variant 'mine': 3 must be keys with values"):
        find_variants(["mine=3"])
    with pytest.raises(MaqeeError, match="Variant 'mine': unknown key 'drop_pat': did you mean drop_path"):
        make_settings("mine", {"drop_pat": 0.1})
