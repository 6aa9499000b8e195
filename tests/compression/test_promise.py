"""Promises: made with images the search never saw, carried by the plan, refused where they cannot be kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maqee.apq import Budget, Plan, SearchOptions, exit_costs, policy_figures
from maqee.apq.control.guarantee import Guarantee, statement
from maqee.compression import CompressOptions, RiskOptions, compress
from maqee.compression.promise import Answers, check_kept, choose_promised, collect_answers
from maqee.data import eval_batches, open_data
from maqee.errors import MaqeeError
from maqee.evaluation.calibration import other_images
from maqee.evaluation.record import evaluation_batch
from maqee.exits import NEVER, EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.runtime import ReadyModel
from maqee.tasks import tasks
from tests.data import makers
from tests.helpers import chosen_exits, load_miniature, wavering

pytestmark = pytest.mark.trains

SEARCH = SearchOptions(max_swaps=0, lambda_outer=2.0)
RISK = RiskOptions(method="ltt", epsilon=0.3, delta=0.1)


@pytest.fixture(scope="module")
def network() -> EarlyExitModel:
    return load_miniature()


def run(network: EarlyExitModel, out: Path | None = None, budget: Budget | None = None, **changes: Any) -> ReadyModel:
    values: dict[str, Any] = {"method": "rtn", "samples": 100, "scored": 20, "risk": RISK} | changes
    return compress(
        network,
        open_data("digits").calibration,
        budget=budget,
        search_options=SEARCH,
        options=CompressOptions(**values),
        out=out,
        device="cpu",
        show=False,
    )


@pytest.fixture(scope="module")
def done(network: EarlyExitModel) -> ReadyModel:
    return run(network)


def test_the_promise_is_about_the_plans_own_thresholds(done: ReadyModel) -> None:
    promise = done.plan.guarantee
    assert promise is not None
    assert promise.thresholds == done.plan.thresholds == done.plan.policy.thresholds
    assert (promise.method, promise.loss, promise.epsilon, promise.delta) == ("ltt", "zero-one", 0.3, 0.1)
    assert promise.n == 360 - 32 - 100


def test_it_was_made_with_images_that_nobody_looked_at(network: EarlyExitModel, done: ReadyModel) -> None:
    """The share by hand: the left-over images, the exits they take, right answers there and at full depth."""
    calibration = open_data("digits").calibration
    options = CompressOptions(method="rtn", samples=100, scored=20)
    others = other_images(calibration, *options.draws)
    order = np.random.RandomState(0).permutation(360)
    assert others == order[132:].tolist()
    images = calibration.select(others)
    promise = done.plan.guarantee
    assert promise is not None
    early = full = 0
    for batch, labels in eval_batches(images, network.backbone.preprocessing, evaluation_batch(network.backbone)):
        with torch.inference_mode():
            outputs = done.model.forward_all(batch).outputs
        confidence = torch.stack([done.model.confidence(output) for output in outputs[:-1]])
        taken = chosen_exits(done.plan.policy, confidence)
        right = torch.stack([output.argmax(-1) == labels for output in outputs])
        early += int(right[taken, torch.arange(len(labels))].sum())
        full += int(right[-1].sum())
        clear = ~wavering(confidence.t(), promise.thresholds)
        assert torch.equal(done.model.run(batch, done.plan.policy).exit[clear], taken[clear])
    assert promise.empirical_gap == pytest.approx((full - early) / len(images), abs=1e-6)
    assert promise.bound is not None
    assert promise.bound <= promise.epsilon


def test_figures_are_those_of_the_new_thresholds(network: EarlyExitModel, done: ReadyModel) -> None:
    assert done.plan.got == policy_figures(done.trace, done.plan.thresholds)
    assert run(network, risk=None).plan.guarantee is None


def test_bytes(network: EarlyExitModel, done: ReadyModel, tmp_path: Path) -> None:
    """The same with the promise, and as before there were any without it."""
    assert run(network).plan.to_json() == done.plan.to_json()
    path = tmp_path / "plan.json"
    done.plan.save(path)
    assert Plan.load(path) == done.plan
    assert Plan.load(path).to_json() == path.read_text()
    bare = replace(done.plan, guarantee=None)
    assert "guarantee" not in json.loads(bare.to_json())
    run(network, tmp_path / "run", risk=None)
    assert "risk" not in json.loads((tmp_path / "run" / "request.json").read_text())["choices"]["options"]
    run(network, tmp_path / "promised")
    asked = json.loads((tmp_path / "promised" / "request.json").read_text())["choices"]["options"]["risk"]
    assert asked == {"method": "ltt", "epsilon": 0.3, "delta": 0.1, "loss": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"thresholds": [0.1, 0.1]}, "a promise is about one policy only"),
        ({"method": "hope"}, r"guarantee\.method"),
        ({"n": "many"}, r"guarantee\.n"),
        ({"more": 1}, r"guarantee\.more"),
        ({"epsilon": None}, r"guarantee\.epsilon"),
    ],
)
def test_plans_with_wrong_promises(done: ReadyModel, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    stored = json.loads(done.plan.to_json())
    (tmp_path / "plan.json").write_text(json.dumps({**stored, "guarantee": {**stored["guarantee"], **changes}}))
    with pytest.raises(MaqeeError, match=message):
        Plan.load(tmp_path / "plan.json")


def family_plan(done: ReadyModel, thresholds: tuple[float, ...], budget: Budget) -> Plan:
    return replace(done.plan, thresholds=thresholds, budget=budget, guarantee=None)


def test_the_boldest_policy_that_is_safe(done: ReadyModel) -> None:
    """Exits are right above 0.6 and wrong below: by hand, the lowest safe offset takes thresholds to 0.6."""
    confidence = np.linspace(0.2, 1.0, 400).astype(np.float32)[:, None].repeat(2, axis=1)
    wrong = (confidence <= 0.6).astype(np.float64)
    answers = Answers(confidence, np.concatenate([wrong, np.zeros((400, 1))], axis=1))
    plan = family_plan(done, (0.8, 0.8), Budget())
    promise = choose_promised(answers, plan, RiskOptions(method="crc", epsilon=0.004), "zero-one")
    assert promise.thresholds == (0.6, 0.6)  # at 0.59 five wrong ones leave: (5 + 1) / 401
    kept = choose_promised(answers, family_plan(done, (0.8, 0.8), Budget(min_metric=0.1)), RISK, "zero-one")
    assert kept.thresholds == (0.8, 0.8)  # a budget with a metric allows nothing bolder than the plan
    none = choose_promised(answers, plan, RiskOptions(method="crc", epsilon=0.001), "zero-one")
    assert none.never_exits
    assert none.thresholds == (NEVER, NEVER)


def test_thresholds_are_compared_as_the_model_compares_them(done: ReadyModel) -> None:
    """A confidence of float32(0.7), which is below 0.7, leaves at threshold 0.7 when the policy is executed."""
    confidence = np.full((200, 2), 0.7, dtype=np.float32)
    losses = np.tile([0.0, 0.0, 0.0], (200, 1))
    losses[:, :2] = 1.0
    plan = family_plan(done, (0.7, 0.7), Budget(min_metric=0.0))
    promise = choose_promised(Answers(confidence, losses), plan, RISK, "zero-one")
    assert promise.thresholds == (0.71, 0.71)


def test_brier_losses_are_collected(network: EarlyExitModel) -> None:
    images = open_data("digits").calibration.select(range(20))
    answers = collect_answers(network, images, tasks["classification"], "brier")
    assert answers.losses.shape == (20, 3)
    assert 0 < answers.losses.max() <= 2
    zero_one = collect_answers(network, images, tasks["classification"], "zero-one")
    assert set(np.unique(zero_one.losses)) <= {0.0, 1.0}


def test_losses_go_with_tasks() -> None:
    segmentation, classification = tasks["segmentation"], tasks["classification"]
    assert RISK.loss_for(classification) == "zero-one"
    assert RISK.loss_for(segmentation) == "score"
    assert replace(RISK, loss="brier").loss_for(classification) == "brier"
    with pytest.raises(MaqeeError, match="use score"):
        replace(RISK, loss="brier").loss_for(segmentation)
    with pytest.raises(MaqeeError, match="use zero-one or brier"):
        replace(RISK, loss="score").loss_for(classification)


def test_promises_in_words(done: ReadyModel) -> None:
    assert "1 - score of an image" in statement("ucb", "score", 0.1, 0.1, 50, False)
    assert "With probability at least 0.9" in statement("ltt", "zero-one", 0.3, 0.1, 228, False)
    promise = done.plan.guarantee
    assert isinstance(promise, Guarantee)
    assert promise.statement == statement("ltt", "zero-one", 0.3, 0.1, 228, promise.never_exits)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(min_metric=1.0), r"min_metric: 1.0 cannot be met together with a \w+ guarantee .* reaches 0\."),
        (Budget(max_drop=0.0), r"max_drop: 0.0 cannot be met together with"),
        (Budget(max_bops=1.0), r"max_bops: 1 BOPs cannot be met together with"),
    ],
)
def test_a_promise_that_costs_the_budget_is_reported(done: ReadyModel, budget: Budget, message: str) -> None:
    worse = replace(done.plan, budget=budget, got=replace(done.plan.got, metric=0.0))
    with pytest.raises(MaqeeError, match=message):
        check_kept(worse, done.trace)
    check_kept(replace(worse, guarantee=None), done.trace)  # nothing promised, nothing to keep
    check_kept(replace(worse, budget=Budget()), done.trace)


def test_no_images_left(network: EarlyExitModel, tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="none is left for a guarantee: search on fewer"):
        run(network, tmp_path / "out", samples=328)
    assert not (tmp_path / "out").exists()


def test_a_budget_that_the_promise_breaks(network: EarlyExitModel, done: ReadyModel) -> None:
    cheapest = float(exit_costs(done.trace).min())
    strict = RiskOptions(method="crc", epsilon=0.004)  # less than 1 / (n + 1): only never is safe
    with pytest.raises(MaqeeError, match="together with a crc guarantee"):
        run(network, budget=Budget(max_bops=cheapest * 1.01), risk=strict)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "crr"}, "did you mean crc"),
        ({"method": "naive"}, "Unknown method"),
        ({"epsilon": 1.5}, "epsilon: 1.5.* between 0 and 1"),
        ({"epsilon": 2.5, "loss": "brier"}, "between 0 and 2"),
        ({"delta": 0.0}, "delta: 0.0"),
        ({"loss": "brie"}, "did you mean brier"),
    ],
)
def test_mistakes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        RiskOptions(**{"method": "ltt", "epsilon": 0.1, **changes})


def test_segmentation_is_promised_by_its_scores(tmp_path: Path) -> None:
    """An untrained decoder has scores between 0 and 1, so the test is not the binomial one."""
    members = makers.camvid_members(count=0)
    random = np.random.default_rng(0)
    for split, count in (("train", 2), ("val", 30), ("test", 2)):
        for index in range(count):
            pixels = random.integers(0, 255, (3, 32, 48)).astype(np.uint8)
            members[f"{split}/images/{index:02}.png"] = makers.encode(pixels)
            members[f"{split}/masks/{index:02}.png"] = makers.encode_mask(random.integers(0, 3, (32, 48), np.uint8))
    data = open_data("camvid", makers.write_tar(tmp_path / "camvid_small.tar", members)).calibration
    torch.manual_seed(0)
    classes = len(data.classes)
    backbone = load_backbone("test-vit", image_size=(32, 48), num_classes=classes)
    model = add_exits(backbone, "segformer", positions=(1, 2)).eval()
    risk = RiskOptions(method="ucb", epsilon=0.5)
    options = CompressOptions(method="rtn", task="segmentation", fit_images=4, samples=8, scored=4, risk=risk)
    done = compress(model, data, search_options=SEARCH, options=options, device="cpu", show=False)
    promise = done.plan.guarantee
    assert promise is not None
    assert (promise.loss, promise.n) == ("score", 18)
    assert "1 - score of an image" in promise.statement
    answers = collect_answers(done.model, data.select(range(6)), tasks["segmentation"], "score")
    assert ((answers.losses > 0) & (answers.losses < 1)).any()


def test_a_drop_may_count_from_the_quantized_model(done: ReadyModel) -> None:
    """Full depth at the plan's bits is what it counts from, whatever full precision reaches."""
    plan, trace = replace(done.plan, budget=Budget(max_drop=0.1, drop_from="quantized")), done.trace
    check_kept(replace(plan, got=replace(plan.got, metric=trace.full_metric - 0.1)), trace)
    worse = replace(plan, got=replace(plan.got, metric=trace.full_metric - 0.11))
    with pytest.raises(MaqeeError, match=r"max_drop: .* below what the quantized model can reach cannot be met"):
        check_kept(worse, trace)
