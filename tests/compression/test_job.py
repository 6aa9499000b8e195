"""The whole compression of a small model: reproducible, within its budget, and clear about mistakes."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maqee.apq import (
    Budget,
    Plan,
    SearchOptions,
    SearchState,
    Trace,
    choose_expected,
    exit_costs,
    expected_from,
    policy_figures,
)
from maqee.apq.held_out import expected_choice
from maqee.compression import compress, recovery
from maqee.compression.job import DISCARDED
from maqee.data import eval_batches
from maqee.errors import MaqeeError
from maqee.evaluation.calibration import draw_images, other_images
from maqee.exits import EarlyExitModel
from maqee.models.digest import weights_digest
from maqee.policy import Policy
from maqee.quant import QuantSettings
from maqee.report.write_report import write_report
from maqee.runtime import ReadyModel
from tests.compression.makers import digits, quick_options
from tests.helpers import parting_thresholds, undecided, wavering

pytestmark = pytest.mark.trains
WEIGHTS = SearchOptions(bits="weights")


def run(model: EarlyExitModel, **changes: Any) -> ReadyModel:
    values: dict[str, Any] = {"options": quick_options(), "device": "cpu", "show": False, **changes}
    return compress(model, values.pop("calibration", digits("calibration")), values.pop("train", None), **values)


@pytest.mark.parametrize("bits", ["both", "weights"])
def test_what_comes_out(model: EarlyExitModel, tmp_path: Path, bits: Any) -> None:
    before = copy.deepcopy(model.state_dict())
    done = run(model, search_options=SearchOptions(bits=bits), out=tmp_path / "out")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert done.finished
    assert done.quantized.bit_settings == done.plan.bits == done.trace.bits
    if bits == "weights":
        assert sum(done.plan.bits.block_weights) == 16
    assert done.plan.got == policy_figures(done.trace, done.plan.thresholds)
    assert done.plan.checkpoint == done.trace.model == weights_digest(model)
    assert (done.plan.method, done.plan.seed, done.plan.task) == ("repq", 0, "classification")
    assert done.plan.exit_kinds == model.kinds
    assert Plan.load(tmp_path / "out" / "plan.json") == done.plan
    assert np.array_equal(Trace.load(tmp_path / "out" / "trace.safetensors").noise, done.trace.noise)
    best = [(step.best_excess, step.best_objective) for step in done.plan.history]
    assert best == sorted(best, reverse=True)


def test_figures_are_those_of_running_the_model(model: EarlyExitModel) -> None:
    """Not of the arrays alone: the quantized model itself, stopping early, on the same images."""
    done = run(model, search_options=SearchOptions(max_swaps=1))
    _, measuring = draw_images(digits("calibration"), *quick_options().draws)
    [(images, targets)] = eval_batches(measuring, model.backbone.preprocessing, 60)
    confidence = torch.tensor(done.trace.confidence[:, :-1])
    thresholds = parting_thresholds(confidence)
    decision, figures = done.model.run(images, Policy(thresholds)), policy_figures(done.trace, thresholds)
    mass = np.bincount(decision.exit.numpy(), minlength=3) / 60
    assert figures.exit_mass == pytest.approx(mass.tolist(), abs=float(wavering(confidence, thresholds).sum()) / 60)
    assert mass.min() > 0
    right = float((decision.output.argmax(-1) == targets).float().mean())
    assert figures.metric == pytest.approx(right, abs=undecided(decision.output) + 1e-6)


def test_equal_bytes_in_another_folder(model: EarlyExitModel, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run(model, options=quick_options(method="erq"), out=tmp_path / name)
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir() if p.is_file()} for n in ("one", "two"))
    assert one == two


def test_calling_again_changes_nothing(model: EarlyExitModel, tmp_path: Path) -> None:
    first = run(model, out=tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    again = run(model, out=tmp_path)
    assert again.plan == first.plan
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == files


def test_nothing_is_written_without_a_folder(
    model: EarlyExitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(model, search_options=SearchOptions(max_swaps=1)).finished
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("solver", ["coordinate", "exact"])
def test_a_maximum_of_bops(model: EarlyExitModel, solver: str) -> None:
    """Midway between all images leaving first and none leaving, so that some must leave early."""
    uniform = exit_costs(run(model, search_options=SearchOptions(max_swaps=0)).trace)
    limit = float(uniform[0] + uniform[-1]) / 2
    plan = run(model, budget=Budget(max_bops=limit), search_options=SearchOptions.for_solver(solver)).plan
    assert plan.got.bops <= limit
    assert plan.budget.max_bops == limit
    assert sum(plan.got.exit_mass[:-1]) > 0


def test_a_minimum_of_accuracy(model: EarlyExitModel) -> None:
    """What the uniform bits reach at full depth can be met; to ask for less costs no more where the search is exact."""
    how = SearchOptions.for_solver("exact", max_swaps=0)
    full = run(model, search_options=how).trace.full_metric
    targets = (full - 0.1, full)
    for target in targets:
        assert run(model, budget=Budget(min_metric=target)).plan.got.metric >= target - 1e-9
    low, high = (run(model, budget=Budget(min_metric=target), search_options=how).plan.got for target in targets)
    assert low.metric >= targets[0] - 1e-9
    assert high.metric >= targets[1] - 1e-9
    assert low.bops <= high.bops


def test_average_bits(model: EarlyExitModel) -> None:
    plan = run(model, budget=Budget(average_bits=4.5), search_options=WEIGHTS).plan
    assert sum(plan.bits.block_weights) == 18
    assert plan.got.average_bits == 4.5


@pytest.mark.parametrize(
    ("how", "budget", "hint"),
    [
        (WEIGHTS, Budget(average_bits=2), "the nearest that can is 3"),
        (WEIGHTS, Budget(average_bits=9), "the nearest that can is 6"),
        (WEIGHTS, Budget(max_bops=10), "cheapest exit with 3 bits a block costs"),
        (SearchOptions(), Budget(max_bops=10), "cheapest exit with the fewest bits costs"),
        (SearchOptions(), Budget(min_metric=1.0), "the nearest found is"),
    ],
    ids=["few bits", "many bits", "few BOPs for weights", "few BOPs", "metric"],
)
def test_budgets_that_cannot_be_met(model: EarlyExitModel, how: SearchOptions, budget: Budget, hint: str) -> None:
    """Every image has the label of the next digit, so that whoever knows a single one is not always right."""
    calibration = digits("calibration")
    wrong = replace(calibration, targets=(calibration.targets + 1) % 10)
    with pytest.raises(MaqeeError, match=hint):
        run(model, budget=budget, search_options=how, calibration=wrong)


def test_recovery_at_the_end(model: EarlyExitModel, tmp_path: Path) -> None:
    """Three bits, of activations too, hurt any model; training brings some of it back, and what was before is kept."""
    options = quick_options(recovery_steps=40, quantization=QuantSettings(act_bits=3))
    budget = Budget(average_bits=3)
    how = replace(WEIGHTS, objective="paper")  # the same before training and after it
    done = run(model, train=digits("train"), options=options, budget=budget, search_options=how, out=tmp_path)
    kinds = [step.kind for step in done.plan.history]
    assert kinds[-2:] == ["last", "recovery"]
    before = Plan.load(tmp_path / "unrecovered" / "plan.json")
    assert [step.kind for step in before.history] == kinds[:-1]
    last = done.plan.history[-1]
    assert last.accepted
    assert last.position.objective < before.history[-1].best_objective
    assert done.plan.got == policy_figures(done.trace, done.plan.thresholds)
    assert done.plan.bits == before.bits
    assert done.trace.noise.shape == (60, 4)


def test_bits_for_a_network_that_is_trained_afterwards(model: EarlyExitModel, tmp_path: Path) -> None:
    """Weights get fewer bits than without training; both plans say what is true of their own network."""
    asked, how = Budget(like="W4A4"), SearchOptions(max_swaps=1, bit_min=2, act_min=2)
    before = replace(how, before_training=True)
    options = quick_options(recovery_steps=2)
    plain = run(model, options=quick_options(), budget=asked, search_options=how).plan
    done = run(model, train=digits("train"), options=options, budget=asked, search_options=before, out=tmp_path)
    untrained, trace = Plan.load(tmp_path / "unrecovered" / "plan.json"), tmp_path / "unrecovered" / "trace.safetensors"
    assert untrained.got == policy_figures(Trace.load(trace), untrained.thresholds)
    assert untrained.got.average_bits < plain.got.average_bits
    assert done.plan.bits == untrained.bits
    assert done.plan.options.before_training
    assert done.plan.got == policy_figures(done.trace, done.plan.thresholds)
    assert [step.kind for step in done.plan.history][-2:] == ["last", "recovery"]
    page = write_report(tmp_path).page.read_text()
    assert "Allocations were judged as training may leave them" in page


def test_each_plan_expects_what_its_own_thresholds_were_chosen_for(model: EarlyExitModel, tmp_path: Path) -> None:
    """Before training they are chosen for less than what is asked; both plans say what was asked."""
    asked = Budget(max_drop=0.5)
    run(model, train=digits("train"), options=quick_options(recovery_steps=2), budget=asked, out=tmp_path)
    state = SearchState.from_json((tmp_path / "search.json").read_text(), "search.json")
    assert state.budget.max_drop is None
    before, after = (Plan.load(folder / "plan.json") for folder in (tmp_path / "unrecovered", tmp_path))
    assert before.budget == after.budget == asked
    assert before.expected == expected_from(state.folds)
    trace = Trace.load(tmp_path / "trace.safetensors")
    target = asked.resolved(trace.float_metric, trace.full_metric)
    assert after.expected == choose_expected(trace, target, after.scales, after.options, before.thresholds)[1]


def test_a_recovery_that_does_not_help_is_undone(model: EarlyExitModel, tmp_path: Path) -> None:
    options = quick_options(recovery_steps=3)
    wild = replace(options, recovery=replace(options.recovery, lr=0.5, warmup=0.0))
    asked = Budget(like="W4A4")
    done = run(model, train=digits("train"), options=wild, budget=asked, out=tmp_path)
    assert [(step.kind, step.accepted) for step in done.plan.history][-1] == ("recovery", False)
    plain = run(model, options=quick_options(), budget=asked)
    plain.quantized.settle()  # training keeps no other widths
    assert (done.plan.bits, done.plan.thresholds, done.plan.got) == (
        plain.plan.bits,
        plain.plan.thresholds,
        plain.plan.got,
    )
    pairs = zip(done.model.state_dict().values(), plain.model.state_dict().values(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"options": quick_options(recovery_steps=1)}, "needs training images"),
        ({"search_options": SearchOptions(bits="weights", recovery_steps=1)}, "needs training images"),
        ({"options": quick_options(method="erk")}, "did you mean erq"),
        ({"options": quick_options(task="detection")}, "has labels, the task 'detection' needs"),
        ({"calibration": digits("calibration", 8)}, "more calibration images"),
    ],
    ids=["steps at the end", "steps after swaps", "method", "task", "few images"],
)
def test_mistakes(model: EarlyExitModel, changes: dict[str, Any], hint: str) -> None:
    with pytest.raises(MaqeeError, match=hint):
        run(model, **changes)


def test_mistakes_leave_no_folder_behind(model: EarlyExitModel, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(MaqeeError, match="more calibration images"):
        run(model, out=out, calibration=digits("calibration", 8))
    with pytest.raises(MaqeeError, match="needs training images"):
        run(model, out=out, options=quick_options(recovery_steps=1))
    with pytest.raises(MaqeeError, match="did you mean erq"):
        run(model, out=out, options=quick_options(method="erk"))
    with pytest.raises(MaqeeError, match="average_bits"):
        run(model, out=out, budget=Budget(average_bits=2))
    assert not out.exists()


def test_a_folder_belongs_to_one_request(model: EarlyExitModel, tmp_path: Path) -> None:
    short = SearchOptions(max_swaps=0)
    run(model, out=tmp_path, search_options=short)
    plan = (tmp_path / "plan.json").read_bytes()
    for other in (
        {"search_options": short, "budget": Budget(max_drop=0.5)},
        {"search_options": SearchOptions(max_swaps=1)},
        {"search_options": short, "options": quick_options(seed=1)},
        {"search_options": short, "calibration": digits("calibration", 100)},
    ):
        with pytest.raises(MaqeeError, match="other inputs or options"):
            run(model, out=tmp_path, **other)
    with torch.no_grad():
        next(model.parameters()).add_(0.1)
    with pytest.raises(MaqeeError, match="other inputs or options"):
        run(model, out=tmp_path, search_options=short)
    assert (tmp_path / "plan.json").read_bytes() == plan


def test_a_folder_of_somebody_else(model: EarlyExitModel, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(MaqeeError, match="holds other files"):
        run(model, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_no_image_is_used_twice() -> None:
    calibration, options = digits("calibration"), quick_options()
    order = np.random.RandomState(0).permutation(360)
    fitting, measuring = draw_images(calibration, *options.draws)
    assert (len(fitting), len(measuring)) == (8, 60)
    assert torch.equal(fitting.targets, calibration.targets[order[:8]])
    assert torch.equal(measuring.targets, calibration.targets[order[8:68]])
    assert other_images(calibration, *options.draws) == order[68:].tolist()
    assert other_images(calibration, *quick_options(samples=1000).draws) == []


def test_the_exact_solver_is_not_worse_with_the_same_bits(model: EarlyExitModel) -> None:
    plans = [run(model, search_options=SearchOptions.for_solver(s, max_swaps=0)).plan for s in ("coordinate", "exact")]
    objectives = [plan.history[-1].best_objective for plan in plans]
    assert objectives[1] <= objectives[0] + 1e-12


def test_a_log_file_shows_every_phase(
    model: EarlyExitModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(model, out=tmp_path / "out", search_options=SearchOptions(max_swaps=1), show=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:4] == ["fitting grids", "reading calibration images", "measuring full precision", "searching 0/15"]
    assert not (tmp_path / "out" / ".lock").exists()


def test_recovery_that_was_discarded_is_said(
    model: EarlyExitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training after which the limit is missed is taken back, and the user hears of it."""
    choose = expected_choice

    def worse(*arguments: Any) -> Any:
        found = choose(*arguments)
        return found._replace(found=found.found._replace(excess=1e9))

    monkeypatch.setattr(recovery, "expected_choice", worse)
    options = quick_options(recovery_steps=2)
    how, asked = SearchOptions(max_swaps=0), Budget(like="W4A4")
    done = run(model, train=digits("train"), options=options, search_options=how, budget=asked, out=tmp_path / "out")
    assert done.notes == (DISCARDED,)
    assert done.plan.thresholds == Plan.load(tmp_path / "out" / "unrecovered" / "plan.json").thresholds


@pytest.mark.parametrize(("wrong_after", "kept"), [(3, True), (40, False)])
def test_training_is_taken_back_only_if_it_is_worse_beyond_chance(
    model: EarlyExitModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_after: int, kept: bool
) -> None:
    """All of 100 images were right; three wrong ones may be chance (error 1.7 points), forty are not."""
    scores = [np.ones(100), np.repeat([0.0, 1.0], [wrong_after, 100 - wrong_after])]
    monkeypatch.setattr(recovery, "policy_scores", lambda *arguments: scores.pop(0))
    options, asked = quick_options(recovery_steps=2), Budget(like="W4A4")
    how = SearchOptions(max_swaps=0)
    done = run(model, train=digits("train"), options=options, search_options=how, budget=asked, out=tmp_path / "out")
    assert done.plan.history[-1].kind == "recovery"
    assert done.plan.history[-1].accepted is kept
    assert (DISCARDED in done.notes) is not kept


def test_a_missed_target_keeps_the_nearest_plan(model: EarlyExitModel, tmp_path: Path) -> None:
    """Labels that no model could give: the target is out of reach, and what was found is not lost."""
    data = digits("calibration")
    wrong = replace(data, targets=(data.targets + 1) % 10)
    out = tmp_path / "out"
    with pytest.raises(MaqeeError, match=r"min_metric: 1\.0 cannot be met.*The nearest plan was kept in .*out\."):
        run(
            model,
            calibration=wrong,
            budget=Budget(min_metric=1.0),
            search_options=SearchOptions(max_swaps=0),
            out=out,
        )
    assert Plan.load(out / "plan.json").got.metric < 1
    assert (out / "model.safetensors").is_file()
