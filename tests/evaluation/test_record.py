"""Figures of exits and policies, against counting by hand and against really running."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maqee.apq import BitSettings
from maqee.bench.throughput import mass_for_mean, policy_for_mass
from maqee.data import eval_batches, open_data
from maqee.evaluation.record import figures_under, measure_exits, metric_by_exit
from maqee.exits import NEVER, EarlyExitModel, Policy, add_exits
from maqee.models import load_backbone
from maqee.tasks import tasks
from tests.helpers import parting_thresholds, randomize

TASK = tasks["classification"]
BITS = BitSettings.uniform(32, 32, 8)


@pytest.fixture(scope="module")
def model() -> EarlyExitModel:
    network = randomize(add_exits(load_backbone("vit-digits"), "lgvit", positions=(2, 4)), std=0.2)
    assert isinstance(network, EarlyExitModel)
    return network


def test_record_agrees_with_the_metric(model: EarlyExitModel) -> None:
    data = open_data("digits").test.select(range(50))
    record = measure_exits(model, data, TASK, batch_size=16).record
    assert record.confidence.shape == record.score.shape == record.loss.shape == (50, 3)
    figures = metric_by_exit(model, data, TASK, batch_size=20)
    assert figures == {
        f"accuracy@{block}": round(float(row.mean()), 6) for block, row in zip((2, 4, 8), record.score.T, strict=True)
    }
    backbone = metric_by_exit(model.backbone, data, TASK)
    assert backbone == {"accuracy@8": figures["accuracy@8"]}


def test_policy_figures_are_what_running_gives(model: EarlyExitModel) -> None:
    data = open_data("digits").test.select(range(60))
    record = measure_exits(model, data, TASK).record
    policy = Policy(parting_thresholds(torch.from_numpy(record.confidence[:, :-1])))
    [metric] = measure_exits(model, data, TASK, [policy]).policies
    figures = figures_under(model, record, policy, BITS, {"accuracy": metric.compute()})
    images, targets = next(eval_batches(data, model.backbone.preprocessing, 60))
    decision = model.run(images, policy)
    right = float((decision.output.argmax(-1) == targets).float().mean())
    assert figures.metrics["accuracy"] == pytest.approx(right, abs=1e-6)
    blocks = torch.tensor(model.exit_blocks)
    assert figures.mean_exit == pytest.approx(float(blocks[decision.exit].float().mean()), abs=1e-4)
    assert sum(figures.exit_mass) == pytest.approx(1.0)
    never = figures_under(model, record, Policy.never(2), BITS, {})
    assert never.mean_exit == 8
    assert figures.macs < never.macs
    assert never.bops == pytest.approx(1024 * never.macs)
    assert never.share_of_full_precision == pytest.approx(1.0)
    assert never.macs == sum(part.macs for part in model.parts() if part.kind != "head")
    # The first exit closed: everybody passes it, and saves its head.
    raised, shut = (figures_under(model, record, Policy((first, 1.0)), BITS, {}) for first in (1.0, NEVER))
    assert raised.exit_mass == shut.exit_mass == never.exit_mass
    [head] = [part.macs for part in model.parts() if part.kind == "head" and part.block == 2]
    assert raised.macs - shut.macs == pytest.approx(head)


@given(mean=st.floats(4.1, 11.9))
def test_mass_for_mean_has_that_mean(mean: float) -> None:
    blocks = (4, 6, 8, 10, 12)
    mass = mass_for_mean(blocks, mean)
    assert mass.sum() == pytest.approx(1.0)
    assert (mass >= 0).all()
    assert float(mass @ np.array(blocks)) == pytest.approx(mean, abs=1e-6)


def test_policy_for_mass_lets_the_wanted_share_leave() -> None:
    confidences = torch.rand(4, 200)
    policy = policy_for_mass(confidences, np.array([0.3, 0.2, 0.0, 0.1, 0.4]))
    counts = np.bincount(policy.choose(confidences.T.numpy()), minlength=5)
    assert counts.tolist() == [60, 40, 0, 20, 80]
