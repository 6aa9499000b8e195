"""`maqee compress`, `maqee eval` of what it wrote, `maqee baselines`: through the command line."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maqee.apq import Plan
from maqee.data import eval_batches, open_data
from maqee.evaluation.compressed import frontier_policies
from maqee.evaluation.kept_examples import KeptExamples
from maqee.models import Preprocessing
from maqee.quant import Bits
from maqee.runtime import load
from maqee.widths import BlockWidths
from tests.apq.makers import make_trace
from tests.helpers import FIXTURES, invoke, load_miniature, parting_thresholds, undecided, wavering
from tests.report import makers

pytestmark = pytest.mark.trains

QUICK = ("--max-drop", "1", "--recover", "2", "--batch", "16", "--max-moves", "2", "--frontier")
WEIGHTS = ("--bits", "weights", "--max-moves", "0")  # uniform bits: thresholds alone are chosen


@pytest.fixture(scope="module")
def model() -> Path:
    return FIXTURES / "digits"


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "compressed"
    result = compress(model, out, *QUICK)
    assert result.exit_code == 0, result.output
    for words in (
        "bits of block",
        "asked  ",
        "uniform W4A4  ",
        "(expected: cross-validated",
        "2 moves tried",
    ):
        assert words in result.output
    assert f"maqee eval {out}" in result.output
    assert f"with a report: {out / 'report.html'}" in result.output
    assert (out / "README.md").read_text().startswith("---\nlibrary_name: maqee\n")
    return out


def compress(model: Path, out: Path, *more: str) -> Any:
    arguments = (str(model), "--data", "digits", "--out", str(out), "--device", "cpu", "--samples", "40")
    return invoke("compress", *arguments, "--method", "repq", *more)


def test_the_report_shows_the_plan_and_images_that_took_its_exits(run: Path) -> None:
    plan, page = Plan.load(run / "plan.json"), (run / "report.html").read_text()
    assert f"{plan.got.metric:.2%}" in page
    assert (run / "report" / "frontier.svg").is_file()
    kept = KeptExamples.load(run / "examples.json")
    assert kept.thresholds == plan.thresholds
    assert {example.exit for example in kept.examples} == {at for at, share in enumerate(plan.got.exit_mass) if share}
    for example in kept.examples:
        assert (example.answer == example.truth) == (example.score == 1.0), example.name
        assert example.answer in "0123456789"
        assert example.picture in page


def test_preprocessing_as_the_user_says(model: Path, tmp_path: Path) -> None:
    """It is kept with the model, and is part of what was asked for."""
    said = ("--mean", "0.1", "--std", "0.3", "--resample", "lanczos", "--resize", "18", "--no-exif")
    result = compress(model, tmp_path / "out", *WEIGHTS, "--max-drop", "1", *said)
    assert result.exit_code == 0, result.output
    expected = Preprocessing(image_size=(16, 16), resize=18, mean=(0.1,), std=(0.3,), resample="lanczos", exif=False)
    assert load(tmp_path / "out").preprocessing == expected
    other = compress(model, tmp_path / "out", *WEIGHTS, "--max-drop", "1", "--resize", "18")
    assert "holds a compression of other inputs" in str(other.exception)


def test_figures_are_those_of_running_the_model(run: Path, tmp_path: Path) -> None:
    """With thresholds at which some images leave at each exit."""
    out, run = tmp_path / "figures.json", shutil.copytree(run, tmp_path / "run")
    compressed, data = load(run), open_data("digits").test
    [(images, targets)] = eval_batches(data, compressed.preprocessing, len(data))
    with torch.inference_mode():
        outputs = compressed.model.forward_all(images).outputs[:-1]
    confidence = torch.stack([compressed.model.confidence(output) for output in outputs], dim=1)
    thresholds = parting_thresholds(confidence)
    replace(compressed.plan, thresholds=thresholds).save(run / "plan.json")
    result = invoke("eval", str(run), "--out", str(out), "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "plan" in result.output
    assert "one threshold for all exits" in result.output
    figures = json.loads(out.read_text())
    decision = load(run).run(images)
    doubt = float(wavering(confidence, thresholds).float().mean())
    right = float((decision.output.argmax(-1) == targets).float().mean())
    assert figures["plan"]["accuracy"] == pytest.approx(right, abs=undecided(decision.output) + doubt + 1e-6)
    mass = np.bincount(decision.exit.numpy(), minlength=3) / len(data)
    assert figures["plan"]["exit_mass"] == pytest.approx(mass.tolist(), abs=doubt + 1e-6)
    assert mass.min() > 0
    assert figures["plan"]["thresholds"] == list(thresholds)
    assert figures["bits"] == json.loads(compressed.plan.to_json())["bits"]
    assert "bits of block  " in result.output
    assert figures["accuracy_is"] == "simulated"
    assert [entry["block"] for entry in figures["exits"]] == [1, 2, 4]
    never = figures["shared_thresholds"][-1]
    assert never["mean_exit"] == 4
    assert never["accuracy"] == figures["exits"][-1]["accuracy"]
    assert {"versions", "hardware"} <= set(figures["environment"])
    assert str(run.parent) not in out.read_text()  # the place on this machine is nobody's business
    before = invoke("eval", str(run / "unrecovered"), "--device", "cpu")
    assert before.exit_code == 0, before.output
    untrained = [Plan.load(folder / "plan.json") for folder in (run / "frontier").iterdir()]
    assert all(step.kind != "recovery" for plan in untrained for step in plan.history)


def test_calibration_figures_are_the_plans(run: Path, tmp_path: Path) -> None:
    """On the images that the search saw, and the ones that it did not."""
    result = invoke("eval", str(run), "--split", "calibration", "--out", str(tmp_path / "f.json"), "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "f.json").read_text())["images"] == 360


def test_mistakes(model: Path, run: Path, tmp_path: Path) -> None:
    for more, hint in (
        (("--bits", "weights", "--solver", "anneal"), "coordinate, exact"),
        (("--method", "repk"), "did you mean repq"),
        (("--patch", "4/4/4"), "patch: '4/4/4' is neither"),
        (("--max-bops", "1"), "cannot be met"),
        (("--max-bops", "1e9", "--min-accuracy", "0.5"), "give one of them"),
        (("--bits", "weights", "--avg-bits", "2"), "nearest that can is 3"),
        (("--avg-bits", "4"), "add --bits weights"),
        (("--solver", "exact"), "exact looks at the calibration images alone"),
        (("--set", "average_bits=5"), "5 weight bits on average are kept only where weights alone are chosen"),
        (("--like", "4/4"), "must be uniform widths such as W4A4"),
        (("--like", "W8A8"), "not among the widths to choose from, 3 to 6 bits of weights and 3 to 8"),
        (("--like", "W4A4", "--bits", "weights"), "where both widths are chosen"),
        (("--like", "W4A4", "--max-bops", "1e9"), "give one of them"),
        (("--frontier", "--bits", "weights"), "where both widths are chosen"),
        (("--recover-swaps", "2"), "where weights alone are chosen"),
        (("--weight-range", "3to6"), "such as 3-6"),
        (("--weight-range", "6-3"), "must ascend"),
        (("--act-range", "3-9"), "9 is impossible, a grid has 2 to 8 bits"),
    ):
        result = compress(model, tmp_path / "out", *more)
        assert result.exit_code == 2, more
        assert hint in str(result.exception), more
        assert not (tmp_path / "out" / "plan.json").exists()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)  # a search that was begun
    other = compress(model, run, "--seed", "1")
    assert other.exit_code == 2
    assert "other inputs or options" in str(other.exception)
    for more in (("--stage", "1"), ("--task", "classification"), ("--split", "train")):
        assert invoke("eval", str(run), *more).exit_code == 2
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in str(compress(tmp_path / "empty", tmp_path / "out").exception)


def test_running_again_changes_nothing(model: Path, run: Path) -> None:
    before = (run / "plan.json").read_bytes()
    assert compress(model, run, *QUICK).exit_code == 0
    assert (run / "plan.json").read_bytes() == before
    assert Plan.load(run / "plan.json").history[-1].kind == "recovery"


@pytest.mark.parametrize("solver", ["coordinate", "exact"])
def test_no_swaps_keep_the_bits_uniform(model: Path, tmp_path: Path, solver: str) -> None:
    result = compress(model, tmp_path / "out", *WEIGHTS, "--max-drop", "1", "--solver", solver)
    assert result.exit_code == 0, result.output
    plan = Plan.load(tmp_path / "out" / "plan.json")
    assert set(plan.bits.blocks) == {BlockWidths.uniform(4, 4)}
    assert "all layers" in result.output  # one line for all layers
    assert plan.budget.max_drop == 1
    assert plan.got.mean_exit == 1  # any accuracy will do: everybody leaves at the first exit


def test_a_missed_target_leaves_a_model_that_can_be_evaluated(tmp_path: Path) -> None:
    """By a model that takes every image for a zero, and that two training steps do not teach better."""
    out, stubborn = tmp_path / "out", load_miniature()
    for layer in (stubborn.backbone.head.linear, *(head.readout.linear for head in stubborn.heads)):  # type: ignore[union-attr]
        assert isinstance(layer, torch.nn.Linear)
        torch.nn.init.constant_(layer.bias[:1], 100.0)
    stubborn.save(tmp_path / "stubborn")
    arguments = ("--min-accuracy", "1", "--recover", "2", "--batch", "16", *WEIGHTS)
    result = compress(tmp_path / "stubborn", out, *arguments)
    assert result.exit_code == 2
    assert "the nearest found is" in str(result.exception)
    for folder in (out, out / "unrecovered"):
        assert invoke("eval", str(folder), "--device", "cpu").exit_code == 0


def test_a_file_settings_and_options_of_the_command(model: Path, tmp_path: Path) -> None:
    """The strongest word counts, and what was used is written down."""
    config = tmp_path / "config.yaml"
    config.write_text(
        "budget: {max_drop: 1}\nsearch: {alpha: 0.1, max_swaps: 0, start: 0.7, grain: block}\n"
        "options: {method: rtn, samples: 30, fit_images: 8}\n"
    )
    out = tmp_path / "out"
    more = ("--config", str(config), "--set", "alpha=0.2", "--set", "samples=35", "--set", "search.reach=0.3")
    result = invoke(
        "compress", str(model), "--data", "digits", "--out", str(out), "--device", "cpu", *more, "--samples", "40"
    )
    assert result.exit_code == 0, result.output
    used = json.loads((out / "request.json").read_text())["choices"]
    assert {key: used["search"][key] for key in ("alpha", "max_swaps", "start", "reach")} == {
        "alpha": 0.2, "max_swaps": 0, "start": 0.7, "reach": 0.3,
    }  # fmt: skip
    assert {key: used["options"][key] for key in ("method", "samples", "scored", "fit_images")} == {
        "method": "rtn", "samples": 40, "scored": 20, "fit_images": 8,
    }  # fmt: skip
    again = invoke(
        "compress", str(model), "--data", "digits", "--out", str(tmp_path / "again"), "--device", "cpu",
        "--config", str(out / "request.json"), "--json",
    )  # fmt: skip
    assert again.exit_code == 0, again.output
    assert (tmp_path / "again" / "plan.json").read_bytes() == (out / "plan.json").read_bytes()
    printed = json.loads(again.stdout)
    assert printed["plan"] == json.loads((out / "plan.json").read_text())
    assert (printed["finished"], printed["notes"]) == (True, [])


def test_layers_by_name(model: Path, tmp_path: Path) -> None:
    """They stay as they are; everything else is chosen."""
    layers = ("--layer", r"mlp\.fc2=8/float", "--patch", "8/8")
    result = compress(model, tmp_path / "out", "--max-moves", "1", "--max-drop", "1", *layers)
    assert result.exit_code == 0, result.output
    plan = Plan.load(tmp_path / "out" / "plan.json")
    assert {block.fc2 for block in plan.bits.blocks} == {(8, 32)}
    assert all(max(block.qkv) <= 8 for block in plan.bits.blocks)
    assert plan.bits.patch == (8, 8)
    quantized = load(tmp_path / "out").quantized
    assert quantized.asked("backbone.blocks.3.mlp.fc2") == Bits(8, None)
    assert quantized.asked("backbone.embedding.patch") == Bits(8, 8)


def test_a_run_knows_its_data(tmp_path: Path) -> None:
    run = makers.classification(tmp_path)
    quick = ("--device", "cpu", "--samples", "8", "--fit-images", "4")
    done = invoke(
        "compress", str(run), "--out", str(tmp_path / "out"), "--method", "rtn", *WEIGHTS, "--max-drop", "1", *quick
    )
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out" / "source.json").read_text())["data"]["data"] == "digits"
    compared = invoke("baselines", str(run), "--method", "rtn", "--bits", "W4A8", "--json", *quick)
    assert compared.exit_code == 0, compared.output
    assert [row["method"] for row in json.loads(compared.stdout)["rows"]] == ["float", "rtn"]
    alone = invoke("quantize", str(run), "--method", "rtn", "--json", "--device", "cpu")
    assert alone.exit_code == 0, alone.output
    assert json.loads(alone.stdout)["model"] == "run/1-joint"


def test_no_folder(tmp_path: Path) -> None:
    for command in (("compress", "nowhere", "--out", str(tmp_path / "out")), ("baselines", "nowhere")):
        assert "nowhere is no folder" in str(invoke(*command).exception)


def test_a_folder_that_knows_no_data(model: Path, tmp_path: Path) -> None:
    for command in (("compress", str(model), "--out", str(tmp_path / "out")), ("baselines", str(model))):
        result = invoke(*command)
        assert result.exit_code == 2
        assert "does not say which data it was trained on" in str(result.exception)


def test_baselines(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "baselines.json"
    arguments = (str(model), "--data", "digits", "--samples", "40", "--device", "cpu", "--out", str(out))
    result = invoke("baselines", *arguments, "--method", "rtn,mptq")
    assert result.exit_code == 0, result.output
    figures = json.loads(out.read_text())
    assert [row["method"] for row in figures["rows"]] == ["float", "rtn", "mptq"]
    full, rtn, mptq = figures["rows"]
    assert full["bits"] is None
    assert rtn["bits"] == [4] * 4
    assert sum(mptq["bits"]) == 16
    assert set(mptq["bits"]) <= {3, 4, 5, 6}
    for row in figures["rows"]:
        assert [entry["block"] for entry in row["exits"]] == [1, 2, 4]
        assert len(row["shared_thresholds"]) == 5
    assert full["shared_thresholds"][-1]["share_of_full_precision"] == pytest.approx(1.0)
    assert rtn["shared_thresholds"][-1]["share_of_full_precision"] < 0.1
    assert str(tmp_path.parent) not in json.dumps(figures["rows"])
    assert "exits 1:" in result.output


def test_frontier_policies_lose_no_more_than_they_may() -> None:
    from maqee.apq import policy_figures
    from maqee.apq.smoothing import smoothed

    trace = make_trace(400)
    wanted, policies = frontier_policies(trace)
    assert wanted
    assert len({policy.thresholds for policy in policies}) == len(policies)
    costs = []
    for target, policy in zip(wanted, policies, strict=True):
        figures = policy_figures(smoothed(trace), policy.thresholds)
        assert figures.metric >= target - 1e-12
        assert target <= max(trace.float_metric, trace.full_metric)
        costs.append(figures.bops)
    assert costs == sorted(costs, reverse=True)  # whoever may lose more pays less


def test_a_model_far_below_full_precision_has_a_frontier_too() -> None:
    trace = make_trace(400)
    worse = replace(trace, correct=trace.correct * np.float32(0.5))
    wanted, policies = frontier_policies(worse)
    assert max(wanted) <= worse.full_metric
    assert len(policies) > 1
