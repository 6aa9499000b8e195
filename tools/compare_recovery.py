"""Ways to train a quantized model, side by side: all from the same fitted model, measured on calibration images.

python -m tools.compare_recovery MODEL --data cifar100 --data-root DATA --steps 400 --out comparison.json

MODEL is a folder with a model with exits. It is quantized once at uniform bits; then every variant, a set of changes to
`maqee.compression.RecoverySettings`, trains a copy of it. Test images are not opened. The file is written anew after
every variant, so that what is finished survives a time limit.

A variant is one of the names below, or NAME={KEY: VALUE, ...}. `--set KEY=VALUE` is for all of them.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from maqee.compression import Recovery, RecoverySettings
from maqee.compression.recovery import training_batch
from maqee.data import ImageSet, eval_batches, open_source
from maqee.device import pick_device, synchronize
from maqee.environment import describe_environment
from maqee.errors import MaqeeError, suggest
from maqee.evaluation.calibration import draw_images
from maqee.evaluation.record import Batch, ExitRecord, evaluation_batches, measure_batches
from maqee.exits import EarlyExitModel, load_with_exits
from maqee.io import write_json
from maqee.models.digest import weights_digest
from maqee.policy import Policy
from maqee.progress import phase
from maqee.quant import QuantizedModel, QuantSettings, quantize
from maqee.runs import model_folder, read_recipe, require_data, require_folder, short_name, task_of
from maqee.tasks import tasks
from maqee.training.recipe import AugmentSection
from maqee.training.stages import stages
from maqee.validation import explain, unknown_key
from maqee.yaml_files import split_assignment

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "depth": {"weights": "depth"},
    "alternate": {"alternate": True},
    "depth-alternate": {"weights": "depth", "alternate": True},
    "detached": {"detached": True},
    "drop-path": {"drop_path": 0.1},
    "same-teacher": {"teacher": "same"},
    "both-teachers": {"teacher": "both"},
    "imitation-only": {"task_loss": 0.0},
    "labels-half": {"task_loss": 0.5},
    "ema": {"ema": 0.99},
    "large-batch": {"batch_size": 768},
    "slow-steps": {"step_lr": 0.25},
    "fast-steps": {"step_lr": 4.0},
    "fastest-steps": {"step_lr": 16.0},
    "fixed-steps": {"learn_steps": False},
    "equal-rates": {"lr_by_size": False},
    "lr-3e-4": {"lr": 3e-4},
    "lr-1e-3": {"lr": 1e-3},
    "mirrored": {"augment": {"flip": True}},
    "mixed": {"augment": {"padding": 4, "flip": True, "jitter": 0.2, "mixup": 0.4, "cutmix": 1.0}},
}
LAST_ENTRIES = 5  # of a training log, whose mean is the loss at the end


@dataclass(frozen=True)
class Bench:
    """What all variants share: the models, the images and how they are measured."""

    reference: EarlyExitModel
    fitted: QuantizedModel
    exit_mass: list[float]
    batches: Sequence[Batch]
    recovery: Recovery
    steps: int

    def measure(self, model: EarlyExitModel) -> ExitRecord:
        """Every exit on the calibration images, which are ready on the device."""
        return measure_batches(model, self.batches, self.recovery.task).record

    def train(self, settings: RecoverySettings, folder: Path) -> tuple[EarlyExitModel, float]:
        """A trained copy of the fitted model, and the seconds that took."""
        quantized = copy.deepcopy(self.fitted)
        assert isinstance(quantized.model, EarlyExitModel)
        self.recovery.settings, self.recovery.folder = settings, folder
        synchronize(self.recovery.device)
        start = time.monotonic()
        self.recovery(quantized, quantized.bit_settings, self.exit_mass, self.steps)
        synchronize(self.recovery.device)
        return quantized.model, time.monotonic() - start


def fit_uniform(
    reference: EarlyExitModel, fitting: ImageSet, method: str, bits: tuple[int, int], device: torch.device
) -> QuantizedModel:
    """The model with the same weight and activation bits everywhere."""
    [(images, _)] = eval_batches(fitting, reference.backbone.preprocessing, len(fitting), device)
    return quantize(reference, images, method, QuantSettings(weight_bits=bits[0], act_bits=bits[1]))


def make_bench(options: argparse.Namespace, folder: Path) -> tuple[Bench, ImageSet]:
    """Load, fit and measure; the images that are measured on come too."""
    run, device = require_folder(options.model), pick_device(options.device)
    task = tasks[task_of(run)]
    reference = load_with_exits(model_folder(run), task.confidence).float().to(device).eval()
    with phase("reading images"):
        splits = open_source(require_data(run, options.data, options.data_root), reference.backbone)
        train = splits.training().to(device)  # once: every training finds the images there
    splits.calibration.require(task.targets, task.name)
    fitting, measuring = draw_images(splits.calibration, options.fit_images, options.images, options.seed)
    batches = list(evaluation_batches(reference, measuring))
    with phase("fitting grids"):
        fitted = fit_uniform(reference, fitting, options.method, tuple(options.bits), device)
    assert isinstance(fitted.model, EarlyExitModel)
    confidence = measure_batches(fitted.model, batches, task).record.confidence
    taken = Policy.same(options.threshold, reference.num_exits).choose(confidence[:, :-1])
    mass = np.bincount(taken, minlength=reference.num_exits + 1) / len(taken)
    recovery = Recovery(reference, train, task, RecoverySettings(), options.seed, folder, device)
    return Bench(reference, fitted, mass.tolist(), batches, recovery, options.steps), measuring


def base_settings(options: argparse.Namespace, reference: EarlyExitModel) -> dict[str, Any]:
    """Settings of every variant, before its own changes."""
    values: dict[str, Any] = {
        "batch_size": options.batch_size or training_batch(reference.backbone),
        "precision": options.precision,
        "compile": options.compile,
        "augment": _trained_augmentation(options.model),
    }
    if options.lr is not None:
        values["lr"] = options.lr
    return values | dict(split_assignment(text, "weights=depth") for text in options.set)


def find_variants(given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Names with their changes; all that are known when none is given."""
    found: dict[str, dict[str, Any]] = {}
    for text in given or VARIANTS:
        name, changes = split_assignment(text, "mine={drop_path: 0.1}") if "=" in text else (text, VARIANTS.get(text))
        if changes is None:
            raise suggest(name, list(VARIANTS), "variant")
        if not isinstance(changes, dict):
            raise MaqeeError(f"Variant {name!r}: {changes!r:.60} must be keys with values, such as {{drop_path: 0.1}}.")
        found[name] = changes
    return found


def make_settings(name: str, values: dict[str, Any]) -> RecoverySettings:
    """Checked settings; mistakes are found before anything is trained."""
    known = [field.name for field in fields(RecoverySettings)]
    if unknown := [key for key in values if key not in known]:
        raise MaqeeError(f"Variant {name!r}: {unknown_key(unknown[0], known)}")
    try:
        return TypeAdapter(RecoverySettings).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise MaqeeError(f"Variant {name!r}: {explain(error, RecoverySettings)}") from error


def figures(record: ExitRecord) -> dict[str, list[float]]:
    """Means over the images at every exit, full depth last."""
    return {
        "score": [round(float(value), 6) for value in record.score.mean(axis=0, dtype=float)],
        "loss": [round(float(value), 6) for value in record.loss.mean(axis=0, dtype=float)],
    }


def difference(record: ExitRecord, other: ExitRecord) -> dict[str, list[float]]:
    """By how much scores are higher than another's on the same images, with the standard error of that."""
    gain = record.score.astype(float) - other.score  # (images, exits + 1)
    error = gain.std(axis=0, ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else np.zeros(gain.shape[1])
    return {"mean": gain.mean(axis=0).round(6).tolist(), "standard_error": error.round(6).tolist()}


def last_losses(folder: Path) -> dict[str, float]:
    """Training losses at the end: means of the last entries that have them."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    names = sorted({name for entry in entries for name in entry if name.startswith("loss")})
    kept = {name: [entry[name] for entry in entries if name in entry][-LAST_ENTRIES:] for name in names}
    return {name: round(statistics.fmean(values), 6) for name, values in kept.items()}


def describe(options: argparse.Namespace, bench: Bench, measured: ImageSet) -> dict[str, Any]:
    """Everything that is known before the first training."""
    assert isinstance(bench.fitted.model, EarlyExitModel)
    return {
        "model": short_name(options.model),
        "weights": weights_digest(bench.reference),
        "data": measured.name,
        "images": len(measured),
        "method": options.method,
        "bits": list(options.bits),
        "seed": options.seed,
        "steps": options.steps,
        "exit_blocks": list(bench.reference.exit_blocks),
        "exit_mass": bench.exit_mass,
        "score": bench.recovery.task.score_name,
        "full_precision": figures(bench.measure(bench.reference)),
        "before": figures(bench.measure(bench.fitted.model)),
        "variants": {},
        "skipped": [],
        "environment": describe_environment(),
    }


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure one variant after the other."""
    started, variants = time.monotonic(), find_variants(options.variants)
    with tempfile.TemporaryDirectory() as logs:
        bench, measured = make_bench(options, Path(logs))
        base = base_settings(options, bench.reference)
        chosen = {name: make_settings(name, base | changes) for name, changes in variants.items()}
        result = describe(options, bench, measured)
        _print_row("", [f"exit {block}" for block in bench.reference.exit_blocks], "seconds")
        _print_scores("full precision", result["full_precision"]["score"])
        _print_scores("before", result["before"]["score"])
        first: ExitRecord | None = None
        longest = 0.0
        for name, settings in chosen.items():
            begun = time.monotonic()
            if options.time_limit is not None and begun - started + longest > options.time_limit:
                result["skipped"].append(name)
                continue
            entry: dict[str, Any] = {"settings": _plain(settings)}
            try:
                model, seconds = bench.train(settings, Path(logs) / name)
            except MaqeeError as error:  # one that diverges must not cost the others
                result["variants"][name] = entry | {"error": str(error)}
                print(f"{name:<24} {error}", flush=True)
            else:
                record = bench.measure(model)
                first = first or record
                entry |= {"seconds": round(seconds, 3), "training": last_losses(Path(logs) / name)}
                entry |= {"after": figures(record), "against_first": difference(record, first)}
                result["variants"][name] = entry
                _print_scores(name, entry["after"]["score"], f"{seconds:.1f}")
            longest = max(longest, time.monotonic() - begun)
            result["seconds"] = round(time.monotonic() - started, 3)
            _write(options.out, result)
        _write(options.out, result)
    if result["skipped"]:
        print(f"Skipped for lack of time: {', '.join(result['skipped'])}.")
    return result


def _trained_augmentation(run: Path) -> dict[str, Any]:
    """As when the backbone was last trained; mirrored where nobody knows that."""
    for stage in reversed(read_recipe(run).get("stages", [])):
        if stages[stage["kind"]].trains_backbone:
            return dict(stage["augment"])
    return AugmentSection(flip=True).model_dump(mode="json")


def _plain(settings: RecoverySettings) -> dict[str, Any]:
    augment = settings.augment
    return {**asdict(settings), "augment": None if augment is None else augment.model_dump(mode="json")}


def _write(path: Path | None, result: dict[str, Any]) -> None:
    if path is not None:
        write_json(path, result)


def _print_scores(name: str, scores: Sequence[float], seconds: str = "") -> None:
    _print_row(name, [f"{100 * score:.2f}" for score in scores], seconds)


def _print_row(name: str, cells: Sequence[str], seconds: str) -> None:
    print(f"{name:<24}" + "".join(f"{cell:>9}" for cell in cells) + f"{seconds:>10}", flush=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What is asked on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder with a model with exits")
    parser.add_argument("--data", help="name of the data set, if the folder does not say")
    parser.add_argument("--data-root", type=Path, help="where the data lie")
    parser.add_argument("--variants", nargs="*", default=[], help=f"which; all when left out: {', '.join(VARIANTS)}")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all variants")
    parser.add_argument("--steps", type=int, default=400, help="training steps")
    parser.add_argument("--batch-size", type=int, help="images of a step")
    parser.add_argument("--lr", type=float, help="peak learning rate")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of training")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--device", help="the GPU if there is one")
    parser.add_argument("--method", default="erq", help="quantization method")
    parser.add_argument("--bits", type=int, nargs=2, default=(4, 4), metavar=("W", "A"), help="weights, activations")
    parser.add_argument("--fit-images", type=int, default=32, help="calibration images that grids are fitted on")
    parser.add_argument("--images", type=int, default=5000, help="further calibration images to measure on, at most")
    parser.add_argument("--threshold", type=float, default=0.8, help="of the policy whose exits weight the loss")
    parser.add_argument("--time-limit", type=float, help="seconds; variants that would not fit any more are skipped")
    parser.add_argument("--out", type=Path, help="JSON file, written anew after every variant")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        compare(parse())
    except MaqeeError as error:
        sys.exit(f"Error: {error}")
