"""Make a model of a table: quantized, searched, trained, with its calibration pass beside it.

models/erq-W4A4-lgvit-seed0-1c9f3a52/
prepared.json     written last: it says that the folder is finished
times.json        seconds that it took
model/            as `maqee compress` writes it; of the model as it came, its calibration pass alone
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from maqee.apq import Trace
from maqee.apq.budget import USUAL_DROP
from maqee.compression.baseline_model import fit_baseline, fit_best_pair, recover_baseline
from maqee.compression.compress_run import OpenedRun, open_run
from maqee.compression.envelope import choose_shared
from maqee.compression.job import compress_model
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.calibration import draw_images
from maqee.evaluation.float_trace import float_trace
from maqee.exits import EarlyExitModel
from maqee.io import read_json, write_json
from maqee.processor import check_reduced_precision
from maqee.quant.artifact import save_quantized
from maqee.runs import PREPROCESSING, SEARCH, SOURCE, TRACE, TRAINING, require_data, task_of
from maqee.tables.cases import Case, file_hash
from maqee.tables.known_answers import memory_of
from maqee.tables.opened_data import open_once
from maqee.tables.work import MODEL, MODELS, PREPARED, Place
from maqee.tasks import tasks
from maqee.threads import threads_for


def open_case(case: Case, place: Place) -> OpenedRun:
    """The full-precision model of a case, on its device, with its images."""
    if case.weights and file_hash(case.model) != case.weights:  # it is still being trained, perhaps
        raise MaqeeError(f"{case.model} has changed since the table was begun: start the table again.")
    run = Path(case.model)
    options = replace(case.config.options, task=case.config.options.task or task_of(run))
    opened = open_run(run, require_data(run, case.data, place.data_root), {}, options, False, open_once)
    network = opened.network.to(pick_device(place.device)).eval()
    return replace(opened, network=_without_exits(network) if case.bare else network)


def prepare(case: Case, folder: Path, place: Place) -> None:
    """Make the model in a folder that nobody else works in; what was begun before is gone on with."""
    opened = open_case(case, place)
    for part in (opened.splits.test, opened.splits.calibration):
        part.require(tasks[opened.options.task or ""].targets, opened.options.task or "")
    device = pick_device(place.device)
    check_reduced_precision(opened.options.recovery.precision if opened.options.recovery_steps else "fp32", device)
    with threads_for(opened.network.parts(), device):
        make = {"float": _record_float, "uniform": _fit_uniform, "best": _fit_uniform, "search": _search}[case.kind]
        trace = make(case, opened, folder / MODEL, device, _beginning(case, place))
    write_json(
        folder / PREPARED,
        {
            "settings": case.settings,
            "calibration": {"full_depth": trace.full_metric, "full_precision": trace.float_metric},
            "environment": describe_environment() | {"revision": place.revision},
        },
    )


def _beginning(case: Case, place: Place) -> Path | None:
    """The same model without training, if that was made first."""
    return None if case.beginning is None else place.root / MODELS / case.beginning.name / MODEL


def _record_float(case: Case, opened: OpenedRun, folder: Path, device: torch.device, beginning: Path | None) -> Trace:
    """A calibration pass of the model as it came."""
    network, task = opened.network, tasks[opened.options.task or ""]
    _, measuring = draw_images(opened.splits.calibration, *opened.options.draws)
    trace = float_trace(network, measuring, task)
    trace.save(folder / TRACE)
    return trace


def _fit_uniform(case: Case, opened: OpenedRun, folder: Path, device: torch.device, beginning: Path | None) -> Trace:
    """A baseline: uniform bits, MPTQ's own, or the best uniform pair; trained if that is asked for."""
    network, options, calibration = opened.network, opened.options, opened.splits.calibration
    if case.kind == "best":
        known = None if beginning is None else Trace.load(beginning / TRACE).bits
        budget, how = case.config.budget, case.config.search
        measure, trace = fit_best_pair(network, calibration, options, budget, how, device, known)
    else:
        measure, trace = fit_baseline(network, calibration, options, device)
    if options.recovery_steps:
        if opened.splits.train is None:
            raise MaqeeError(f"{calibration.name} comes without training images: leave recovered out.")
        policy = choose_shared(trace, max(0.0, trace.full_metric - USUAL_DROP)) if trace.exits else ()
        trace = recover_baseline(measure, trace, policy, opened.splits.train, options, folder / TRAINING, device)
    save_quantized(measure.quantized, folder)
    trace.save(folder / TRACE)
    write_json(folder / PREPROCESSING, network.backbone.preprocessing.to_json())
    write_json(folder / SOURCE, opened.facts)
    return trace


def _search(case: Case, opened: OpenedRun, folder: Path, device: torch.device, beginning: Path | None) -> Trace:
    """Bits and thresholds together; a search that was stopped goes on."""
    done = compress_model(
        opened.network,
        opened.splits.calibration,
        opened.splits.train,
        budget=case.config.budget,
        search_options=case.config.search,
        options=opened.options,
        out=folder,
        device=str(device),
        source=opened.facts,
        searched=None if beginning is None else beginning / SEARCH,
        memory=memory_of(opened, case.config.search, device),
        show=False,
    )
    if not done.finished:  # the user stopped it
        raise KeyboardInterrupt
    return done.trace


def _without_exits(network: EarlyExitModel) -> EarlyExitModel:
    """The same backbone with its own classifier alone, or with the head that has taken its place."""
    bare = EarlyExitModel(network.backbone, (), (), network.final_kind, network.confidence)
    if network.final_kind is not None:
        bare.heads[0].load_state_dict(network.heads[-1].state_dict())
    return bare.to(next(network.parameters()).device).eval()


def read_calibration(folder: Path) -> dict[str, Any]:
    """What a finished model reaches on calibration images at full depth."""
    values: dict[str, Any] = read_json(folder / PREPARED)["calibration"]
    return values
