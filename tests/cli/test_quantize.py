"""`maqee quantize`: rows for every combination, written as they come, and gone on with after a stop."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maqee.data import open_data
from maqee.evaluation import quantization
from maqee.evaluation.method_comparison import MethodRow, summarize
from maqee.evaluation.quantization import draw
from maqee.evaluation.quantization_cases import Case, settings_of
from maqee.models import load_backbone, save_backbone
from maqee.quant import Bits, QuantSettings, methods, quantize
from tests.helpers import FIXTURES, invoke, load_miniature


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "plain"
    save_backbone(load_miniature().backbone, folder)
    return folder


@pytest.fixture(scope="module")
def early_exit() -> Path:
    return FIXTURES / "digits"


def run(folder: Path, *arguments: str) -> Any:
    result = invoke("quantize", str(folder), "--data", "digits", "--device", "cpu", *arguments)
    assert result.exit_code == 0, result.output
    return result


def test_rows_and_mean_over_seeds(backbone: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    result = run(backbone, "--method", "rtn", "--bits", "W4A4", "--seed", "0,1", "--out", str(out))
    figures = json.loads(out.read_text())
    assert [(row["method"], row["seed"]) for row in figures["rows"]] == [("float", None), ("rtn", 0), ("rtn", 1)]
    assert [row["accuracy_is"] for row in figures["rows"]] == ["full precision", "simulated", "simulated"]
    assert {"versions", "hardware"} <= set(figures["environments"][figures["rows"][0]["environment"]])
    pair = [row["accuracy"][0] for row in figures["rows"][1:]]
    summary = figures["summary"][1]
    assert summary["mean"] == [pytest.approx(np.mean(pair), abs=1e-6)]
    assert summary["spread"] == [pytest.approx(np.std(pair, ddof=1), abs=1e-6)]
    assert "simulated" in result.output
    assert "±" in result.output
    assert str(tmp_path.parent) not in json.dumps(figures)  # the place on this machine is nobody's business


def test_goes_on_where_it_was(backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "figures.json"
    run(backbone, "--method", "rtn", "--out", str(out))
    first = json.loads(out.read_text())
    measured: list[Case] = []
    original = quantization._measure

    def spy(network: Any, case: Case, *rest: Any) -> MethodRow:
        measured.append(case)
        return original(network, case, *rest)

    monkeypatch.setattr(quantization, "_measure", spy)
    run(backbone, "--method", "rtn", "--bits", "W4A4,W6A6", "--out", str(out))
    assert [case.bits for case in measured] == ["W6A6"]
    assert json.loads(out.read_text())["rows"][: len(first["rows"])] == first["rows"]
    measured.clear()
    before = out.read_bytes()
    run(backbone, "--method", "rtn", "--bits", "W6A6", "--out", str(out))
    assert not measured
    assert out.read_bytes() == before


def test_a_stop_loses_only_the_row_in_work(backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "figures.json"
    original = quantization._measure

    def stop(network: Any, case: Case, *rest: Any) -> MethodRow:
        if case.bits == "W8A8":
            raise KeyboardInterrupt
        return original(network, case, *rest)

    monkeypatch.setattr(quantization, "_measure", stop)
    arguments = ("quantize", str(backbone), "--data", "digits", "--device", "cpu", "--out", str(out))
    assert invoke(*arguments, "--method", "rtn", "--bits", "W6A6,W8A8").exit_code != 0
    assert [row["bits"] for row in json.loads(out.read_text())["rows"]] == ["float", "W6A6"]
    assert list(tmp_path.iterdir()) == [out]  # no temporary file is left


def test_every_exit_is_evaluated(early_exit: Path) -> None:
    figures = json.loads(run(early_exit, "--method", "rtn", "--bits", "w8a8", "--images", "16", "--json").stdout)
    assert figures["exit_blocks"] == [1, 2, 4]
    assert all(len(row["accuracy"]) == 3 for row in figures["rows"])
    assert "exit 2 %" in run(early_exit, "--method", "rtn", "--bits", "W8A8", "--images", "16").output


def test_a_row_is_what_quantize_gives(backbone: Path) -> None:
    """The figure by hand: RandomState's draw of the calibration set, the plain call, the share of right answers."""
    arguments = ("--method", "rtn", "--seed", "3", "--images", "8", "--batch", "360")
    figures = json.loads(run(backbone, *arguments, "--json").stdout)
    model, splits = load_backbone(backbone), open_data("digits")
    picked = np.random.RandomState(3).permutation(360)[:8]

    def prepared(pixels: torch.Tensor) -> torch.Tensor:
        from maqee.data.transforms import prepare

        return prepare(pixels, model.preprocessing)

    calibration = prepared(splits.calibration.images.load(picked.tolist(), model.preprocessing))
    quantized = quantize(model, calibration, "rtn", QuantSettings())
    with torch.inference_mode():
        logits = quantized.model(prepared(splits.test.images.load(range(360), model.preprocessing)))
    right = float((logits.argmax(-1) == splits.test.targets).float().mean())
    assert figures["rows"][1]["accuracy"] == [pytest.approx(right, abs=1e-6)]


def test_preprocessing_as_the_user_says(backbone: Path) -> None:
    said = ("--mean", "0.1", "--std", "0.3", "--resample", "lanczos", "--resize", "18", "--no-exif")
    figures = json.loads(run(backbone, "--method", "rtn", "--images", "8", *said, "--json").stdout)
    expected = {"image_size": [16, 16], "resize": 18, "mean": [0.1], "std": [0.3], "resample": "lanczos", "exif": False}
    assert figures["preprocessing"] == expected


def test_large_test_sets_are_read_again_each_time(backbone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = json.loads(run(backbone, "--method", "rtn", "--json", "--batch", "50").stdout)
    monkeypatch.setattr("maqee.evaluation.kept_batches.spare_bytes", lambda device: 0)
    read = json.loads(run(backbone, "--method", "rtn", "--json", "--batch", "50").stdout)
    assert [row["accuracy"] for row in kept["rows"]] == [row["accuracy"] for row in read["rows"]]


@pytest.mark.parametrize(
    ("method", "patch"), [("rtn", Bits(4, 8)), ("repq", Bits(4, 8)), ("mptq", Bits(4, 8)), ("erq", Bits(4, None))]
)
def test_what_the_authors_quantize(method: str, patch: Bits) -> None:
    authors = settings_of(Case(method, "W4A6", "authors", 32, 0))
    assert authors == QuantSettings(act_bits=6, patch=patch, classifier=Bits(4, 6), integer_zeros=False)
    assert settings_of(Case(method, "W4A6", "default", 32, 0)) == QuantSettings(act_bits=6)


def test_draws_differ_between_seeds_and_never_repeat_an_image() -> None:
    calibration = open_data("digits").calibration
    assert draw(calibration, 32, 0) == np.random.RandomState(0).permutation(360)[:32].tolist()
    assert draw(calibration, 32, 0) != draw(calibration, 32, 1)
    assert len(set(draw(calibration, 32, 0))) == 32


def test_one_seed_has_no_spread() -> None:
    row = MethodRow(
        method="rtn",
        bits="W4A4",
        scope="default",
        images=32,
        seed=0,
        accuracy=(0.5,),
        accuracy_is="simulated",
        device="cpu",
        fit_seconds=1.0,
        seconds=2.0,
    )
    assert summarize([row])[0].spread is None
    two = summarize([row, replace(row, seed=1, accuracy=(0.7,), fit_seconds=2.0)])
    assert [(entry.seeds, entry.mean, entry.fit_seconds) for entry in two] == [(2, (0.6,), 1.5)]
    assert two[0].spread == pytest.approx((0.02**0.5,), abs=1e-6)  # of 0.5 and 0.7, with n - 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--method", "repk"), "did you mean repq"),
        (("--bits", "4/4"), "W4A4"),
        (("--bits", "W9A4"), "2 to 8"),
        (("--scope", "author"), "did you mean authors"),
        (("--seed", "one"), "whole numbers"),
        (("--seed=-1",), "seeds: -1"),
        (("--images", "361"), "ask fewer"),
        (("--resize", "8"), "smaller than the model's image size"),
        (("--mean", "grey"), "--mean 'grey' must be numbers with commas between them"),
        (("--std", "0.5,0.5"), "std has 2 numbers, and the model 1 channels"),
        (("--resample", "bilinera"), "did you mean bilinear"),
    ],
)
def test_mistakes_write_nothing(backbone: Path, tmp_path: Path, arguments: tuple[str, ...], hint: str) -> None:
    out = tmp_path / "figures.json"
    result = invoke("quantize", str(backbone), "--data", "digits", "--out", str(out), *arguments)
    assert result.exit_code == 2
    assert hint in str(result.exception)
    assert not out.exists()


def test_model_of_other_classes_or_channels() -> None:
    many = invoke("quantize", "vit-tiny", "--data", "digits")
    assert many.exit_code == 2
    assert "1000 classes" in str(many.exception)
    coloured = invoke("quantize", "test-vit", "--data", "digits")
    assert coloured.exit_code == 2
    assert "3 channels" in str(coloured.exception)


def test_a_file_of_another_model_is_not_touched(backbone: Path, early_exit: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    run(backbone, "--method", "rtn", "--out", str(out))
    before = out.read_bytes()
    other = invoke("quantize", str(early_exit), "--data", "digits", "--device", "cpu", "--out", str(out))
    assert other.exit_code == 2
    assert "other figures" in str(other.exception)
    resized = invoke("quantize", str(backbone), "--data", "digits", "--out", str(out), "--resize", "18")
    assert "preprocessing" in str(resized.exception)
    assert out.read_bytes() == before
    out.write_text(json.dumps({**json.loads(before), "rows": [{}]}))
    broken = invoke("quantize", str(backbone), "--data", "digits", "--device", "cpu", "--out", str(out))
    assert "lacks a part" in str(broken.exception)


DOCUMENT = Path(__file__).parents[2] / "docs" / "quantization.md"


def test_the_documents_code_runs() -> None:
    [snippet] = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(snippet, DOCUMENT.name, "exec"), names)
    assert names["quantized"].asked("backbone.blocks.11.mlp.fc2") == Bits(6, None)
    assert [pair[0] for pair in names["quantized"].bit_settings.blocks[3].linear] == [6] * 4
    assert len(names["every_exit"]) == 5


def test_the_document_names_every_method_and_option() -> None:
    text = DOCUMENT.read_text()
    assert all(f"`{name}`" in text for name in methods.names())
    for verb in (("what",), ("quantize",), ("bench", "quantize")):
        written = re.findall(rf"^    maqee {' '.join(verb)} (.*(?:\\\n.*)*)", text, flags=re.MULTILINE)
        assert written
        known = invoke(*verb, "--help").output
        assert all(option in known for line in written for option in re.findall(r"--[a-z-]+", line))
