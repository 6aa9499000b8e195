"""What every exit of a model says about every test image: one pass, for all rows and thresholds of the model.

passes/erq-W4A4-lgvit-seed0-1c9f3a52/
tested.json           written last: which images, which metric
record.safetensors    confidence and score of every exit for every image

A model in full precision is the same for all seeds, and so is its pass. Only for metrics that are means over images,
such as accuracy: others need the answers themselves, and then each row makes its own pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from maqee.apq import Trace
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.evaluation.record import ExitRecord, Floats, measure_exits, measure_policies, record_figures
from maqee.evaluation.results import PolicyFigures
from maqee.exits import EarlyExitModel
from maqee.io import read_arrays_and_metadata, read_json, write_arrays, write_json
from maqee.policy import Policy
from maqee.runtime.loading import load_quantized_network
from maqee.tables.cases import Case
from maqee.tables.prepare import open_case
from maqee.tables.work import MODEL, MODELS, RECORD, TESTED, Place
from maqee.tasks import tasks
from maqee.threads import threads_for


class Tested(NamedTuple):
    """Figures of policies on the test images.

    Attributes:
        facts: data set, number of images, task and metric.
        figures: of every policy.
    """

    facts: dict[str, Any]
    figures: list[PolicyFigures]


def record_test(case: Case, folder: Path, place: Place) -> None:
    """Make the pass that the rows of a model share."""
    network, facts, data = _open(case, place)
    with threads_for(network.parts(), pick_device(place.device)):
        record = measure_exits(network, data, tasks[facts["task"]]).record
    write_arrays(folder / RECORD, {"confidence": record.confidence, "score": record.score})
    environment = describe_environment() | {"revision": place.revision}
    write_json(folder / TESTED, {**facts, "environment": environment})


def read_test(folder: Path, trace: Trace, policies: Sequence[Policy]) -> Tested:
    """Policies of a model, from the pass that its rows share.

    Args:
        folder: of the pass.
        trace: the model's calibration pass, which knows what exits cost.
        policies: to be looked up.
    """
    facts = read_json(folder / TESTED)
    del facts["environment"]
    arrays, _ = read_arrays_and_metadata(folder / RECORD)
    record = ExitRecord(arrays["confidence"], arrays["score"], np.zeros_like(arrays["score"]))
    figures = [
        record_figures(record, policy, trace.exit_blocks, trace.parts, trace.bits, {facts["metric"]: mean})
        for policy in policies
        for mean in [_mean_score(record.confidence, record.score, policy)]
    ]
    return Tested(facts, figures)


def run_test(case: Case, place: Place, trace: Trace, policies: Sequence[Policy]) -> Tested:
    """Policies of a model from a pass of their own, for metrics that are no means over images."""
    network, facts, data = _open(case, place)
    with threads_for(network.parts(), pick_device(place.device)):
        _, figures = measure_policies(network, data, tasks[facts["task"]], trace.bits, policies)
    return Tested(facts, figures)


def _open(case: Case, place: Place) -> tuple[EarlyExitModel, dict[str, Any], Any]:
    opened = open_case(case, place)
    task, network, data = tasks[opened.options.task or ""], opened.network, opened.splits.test
    data.require(task.targets, task.name)
    if case.kind != "float":
        network = _load(place.root / MODELS / case.name / MODEL, network).to(pick_device(place.device))
    return network, {"data": data.name, "images": len(data), "task": task.name, "metric": task.metric_name}, data


def _load(folder: Path, reference: EarlyExitModel) -> EarlyExitModel:
    """The quantized model, which prepares images and is sure of its answers as the one it was made from."""
    model = load_quantized_network(folder).model
    assert isinstance(model, EarlyExitModel)
    model.use_confidence(reference.confidence)
    model.backbone.preprocessing = reference.backbone.preprocessing
    return model.eval()


def _mean_score(confidence: Floats, score: Floats, policy: Policy) -> float:
    taken = policy.choose(confidence[:, :-1])
    return round(float(score[np.arange(len(score)), taken].astype(np.float64).sum() / len(score)), 6)
