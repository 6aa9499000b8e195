"""The theory, measured on a compressed run: how far quantization moves exits, and how its error grows with depth.

Float, quantized and crossed passes (float blocks fed with quantized states) over some calibration images give all that
the theorems speak of; `maqee.apq.theory.diagnosis` does the mathematics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from maqee.apq import Plan, Trace, risk_of_blocks
from maqee.apq.theory.diagnosis import Diagnosis
from maqee.apq.theory.diagnosis import diagnose as diagnose_arrays
from maqee.apq.theory.error import BlockErrors, measure_blocks
from maqee.data import ImageSet, eval_batches, open_source
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.calibration import draw_images
from maqee.evaluation.record import Batch, evaluation_batch
from maqee.exits import EarlyExitModel, load_with_exits
from maqee.io import read_json
from maqee.models.digest import weights_digest
from maqee.progress import steps
from maqee.runs import REQUEST, SOURCE, TRACE, is_compressed, model_folder, read_source, require_data
from maqee.runtime.loading import load
from maqee.tasks import Task, tasks
from maqee.values import plain

Floats = NDArray[np.float64]
BATCH = 32  # images whose states after every block are held at once, three times over


@dataclass(frozen=True)
class States:
    """What both models did with the same images.

    Attributes:
        float_confidence: (n, exits).
        confidence: (n, exits), of the quantized model.
        losses: (n, exits + 1), of the quantized model.
        errors: total, local and expansion of every block.
        sensitivity: (L,) static sensitivity of a block: mean (local error / norm of the float output)^2.
    """

    float_confidence: NDArray[np.floating]
    confidence: NDArray[np.floating]
    losses: NDArray[np.floating]
    errors: BlockErrors
    sensitivity: Floats


@dataclass(frozen=True, kw_only=True)
class RunDiagnosis:
    """The theorems, measured on calibration images that the search used.

    Attributes:
        run: name of the run.
        data: name of the images.
        images: how many.
        method: quantization method of the plan.
        bits: mean weight bits of each block.
        violated: what does not hold, in words; None if everything does.
        sensitivity: static sensitivity of every block.
        risk: R of every block at the plan's thresholds.
        diagnosis: every theorem.
        environment: versions and hardware.
    """

    run: str
    data: str
    images: int
    method: str
    bits: tuple[float, ...]
    violated: str | None
    sensitivity: tuple[float, ...]
    risk: tuple[float, ...]
    diagnosis: Diagnosis
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee diagnose --out` writes them."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "diagnosis"}
        return {**plain(values), "accuracy_is": "simulated", **self.diagnosis.to_json()}


def diagnose(
    run: str | Path,
    *,
    data_root: str | Path | None = None,
    model: str | Path | None = None,
    images: int = 256,
    device: str | None = None,
) -> RunDiagnosis:
    """The paper's theorems on calibration images that a search used; `violated` says what does not hold, if anything.

    Args:
        run: a folder written by `maqee compress`.
        data_root: where the data lie now; where they lay when left out.
        model: where the full-precision model lies now.
        images: how many calibration images to look at.
        device: the GPU if there is one.
    """
    run = Path(run)
    if not is_compressed(run):
        raise MaqeeError(f"{run} holds no compressed model: give a folder written by maqee compress.")
    if images < 1:
        raise MaqeeError(f"images: {images} must be at least 1.")
    compressed = load(run)
    plan = compressed.plan
    task = tasks[plan.task]
    reference = load_reference(run, plan, model or read_source(run).get("model"))
    splits = open_source(require_data(run, path=data_root), reference.backbone)
    data = searched_images(run, splits.calibration)
    data = data.select(range(min(images, len(data))))
    target = pick_device(device)
    batches = _batches(data, reference, target)
    states = measure_states(reference.to(target), compressed.model.to(target), batches, task)
    diagnosis = diagnose_states(states, plan)
    return RunDiagnosis(
        run=run.name,
        data=data.name,
        images=len(data),
        method=plan.method,
        bits=plan.bits.mean_weights,
        violated=_violated(diagnosis),
        sensitivity=tuple(states.sensitivity.tolist()),
        risk=tuple(risk_of_blocks(Trace.load(run / TRACE), plan.thresholds, plan.scales, plan.options).tolist()),
        diagnosis=diagnosis,
        environment=describe_environment(),
    )


def load_reference(run: Path, plan: Plan, model: Path | str | None) -> EarlyExitModel:
    """The full-precision model that a plan was made for, known by the hash of its weights."""
    if model is None:
        raise MaqeeError(f"{run / SOURCE} does not say where the full-precision model lies: name its folder (model).")
    if not Path(model).is_dir():
        raise MaqeeError(f"The full-precision model is no longer at {model}: name its folder (model).")
    folder = model_folder(Path(model))
    reference = load_with_exits(folder, tasks[plan.task].confidence).eval()
    digest = weights_digest(reference)
    if digest != plan.checkpoint:
        raise MaqeeError(
            f"{folder} holds other weights ({digest}) than {run} was made from ({plan.checkpoint}): "
            "give the folder of the model that was compressed (model)."
        )
    return reference


def searched_images(run: Path, calibration: ImageSet) -> ImageSet:
    """The calibration images that the search measured risks on, in its order."""
    request = run / REQUEST if (run / REQUEST).is_file() else run.parent / REQUEST  # of "unrecovered" one further up
    options = read_json(request).get("choices", {}).get("options", {})
    for name in ("fit_images", "samples", "seed"):
        if name not in options:
            raise MaqeeError(f"{request}: choices.options.{name} is missing: restore the file.")
    return draw_images(calibration, options["fit_images"], options["samples"], options["seed"])[1]


@torch.inference_mode()
def measure_states(
    reference: EarlyExitModel, quantized: EarlyExitModel, batches: Iterable[Batch], task: Task
) -> States:
    """Run both models and the crossed blocks over all images, batch by batch."""
    parts: list[States] = []
    norms: list[Floats] = []
    for images, targets in batches:
        exact, rounded = _walk(reference, images), _walk(quantized, images)
        crossed = [reference.backbone.run_block(number, x) for number, x in enumerate(rounded[:-1], start=1)]
        norms.append(np.stack([np.linalg.norm(_flat(x), axis=1) for x in exact[1:]], axis=1))
        before, after = _predict(reference, exact[1:]), _predict(quantized, rounded[1:])
        parts.append(
            States(
                float_confidence=_columns([task.confidence(output) for output in before[:-1]]),
                confidence=_columns([task.confidence(output) for output in after[:-1]]),
                losses=_columns([task.loss(output, targets) for output in after]),
                errors=measure_blocks(_arrays(exact), _arrays(rounded), _arrays(crossed)),
                sensitivity=np.zeros(0),
            )
        )
    errors = BlockErrors(
        total=np.concatenate([part.errors.total for part in parts]),
        local=np.concatenate([part.errors.local for part in parts]),
        expansion=np.concatenate([part.errors.expansion for part in parts]),
    )
    return States(
        float_confidence=np.concatenate([part.float_confidence for part in parts]),
        confidence=np.concatenate([part.confidence for part in parts]),
        losses=np.concatenate([part.losses for part in parts]),
        errors=errors,
        sensitivity=np.square(errors.local / np.maximum(np.concatenate(norms), 1e-12)).mean(axis=0),
    )


def _batches(data: ImageSet, model: EarlyExitModel, device: torch.device) -> Iterator[Batch]:
    """Few images at once, with a bar."""
    size, done = min(BATCH, evaluation_batch(model.backbone)), 0
    with steps("measuring", len(data)) as bar:
        for images, targets in eval_batches(data, model.backbone.preprocessing, size, device):
            yield images, targets
            done += len(images)
            bar.update(done)


def diagnose_states(states: States, plan: Plan) -> Diagnosis:
    """The theorems at a plan's thresholds."""
    return diagnose_arrays(
        states.float_confidence,
        states.confidence,
        plan.thresholds,
        (*plan.exit_blocks, plan.bits.depth),
        losses=states.losses,
        block_errors=states.errors,
        sensitivity=states.sensitivity,
    )


def _violated(diagnosis: Diagnosis) -> str | None:
    try:
        diagnosis.check()
    except MaqeeError as error:
        return str(error)
    return None


def _walk(model: EarlyExitModel, images: Tensor) -> list[Tensor]:
    """States after blocks 0 (patch embedding) to L."""
    first = model.backbone.embedding(images)
    return [first, *(x for _, x in model.backbone.walk(first))]


def _predict(model: EarlyExitModel, blocks: list[Tensor]) -> list[Tensor]:
    return [model.predict(index, blocks[:block]).float() for index, block in enumerate(model.exit_blocks)]


def _arrays(states: list[Tensor]) -> list[NDArray[np.float32]]:
    return [state.float().cpu().numpy() for state in states]


def _flat(state: Tensor) -> Floats:
    return state.flatten(1).cpu().numpy().astype(np.float64)


def _columns(values: list[Tensor]) -> NDArray[np.floating]:
    return torch.stack(values, dim=1).cpu().numpy()
