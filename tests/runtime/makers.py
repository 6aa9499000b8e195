"""Small models with known weights, in folders as every command writes them, and pictures to show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from maqee.apq import Budget
from maqee.apq.plan import Plan
from maqee.apq.records import Figures
from maqee.data import FileEntry, FileImages, ImageSet, eval_batches
from maqee.exits import EarlyExitModel, Policy, add_exits
from maqee.io import write_json
from maqee.models import Preprocessing, ViTConfig, load_backbone
from maqee.models.load import build_backbone
from maqee.quant import QuantSettings, quantize, save_quantized
from maqee.runs import PREPROCESSING, RECIPE, STAGE
from maqee.runtime import ReadyModel
from maqee.tasks import tasks
from tests.helpers import randomize

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIZES = {"image_size": (16, 16), "patch_size": 4, "dim": 32, "depth": 4, "heads": 2, "mlp_dim": 64, "num_classes": 10}
EXITS = (1, 2)


def small_model(channels: int = 1, preprocessing: Preprocessing | None = None) -> EarlyExitModel:
    """Four blocks, exits after the first two, random weights that make it sure of some pictures and not of others."""
    backbone = build_backbone(ViTConfig(**SIZES, channels=channels), preprocessing)  # type: ignore[arg-type]
    model = add_exits(backbone, "mlp", positions=EXITS)
    randomize(model, std=0.3)
    return model


def segmentation_model(preprocessing: Preprocessing | None = None) -> EarlyExitModel:
    """SegFormer exits on 32x32 images, ten classes."""
    backbone = load_backbone("test-vit")
    backbone.preprocessing = preprocessing or backbone.preprocessing
    model = add_exits(backbone, "segformer", positions=EXITS, confidence=tasks["segmentation"].confidence)
    randomize(model, std=0.3)
    return model


def detection_model() -> EarlyExitModel:
    """YOLOS with five queries on 32x48 images, three classes."""
    model = add_exits(
        load_backbone("test-yolos"), "detection", positions=EXITS, confidence=tasks["detection"].confidence
    )
    randomize(model, std=0.5)
    return model


def ready(model: EarlyExitModel, task: str = "classification", policy: Policy | None = None) -> ReadyModel:
    """A model at work, at full depth unless a policy is given."""
    return ReadyModel(model, policy or Policy.never(model.num_exits), task)


def some_pixels(height: int = 20, width: int = 30, seed: int = 0) -> NDArray[np.uint8]:
    """A picture (height, width, 3) of coloured noise on a few large areas."""
    random = np.random.default_rng(seed)
    areas = random.integers(0, 256, (2, 3, 3)).repeat(-(-height // 2), axis=0).repeat(-(-width // 3), axis=1)
    noise = random.integers(-30, 30, (height, width, 3))
    return (areas[:height, :width] + noise).clip(0, 255).astype(np.uint8)


def write_pictures(folder: Path, count: int = 6, size: tuple[int, int] = (20, 30)) -> list[Path]:
    """PNG files 0.png, 1.png, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{number}.png" for number in range(count)]
    for number, file in enumerate(files):
        Image.fromarray(some_pixels(*size, seed=number)).save(file)
    return files


def parting_policy(model: EarlyExitModel, images: Tensor) -> Policy:
    """Thresholds by which some images leave at every exit and some stay to the end; at least one more than exits.

    Each lies in the middle of the widest gap between the confidences of those still there, where rounding moves nobody.
    """
    confidence = torch.stack([model.confidence(output) for output in model.forward_all(images).outputs[:-1]]).detach()
    thresholds: list[float] = []
    staying = torch.ones(len(images), dtype=torch.bool)
    for later, row in zip(reversed(range(len(confidence))), confidence, strict=True):
        values = row[staying].double().sort().values[later:]  # as many must be left for the exits to come
        widest = int(values.diff().argmax())
        thresholds.append(float(values[widest : widest + 2].mean()))
        staying = staying & (row < thresholds[-1])
    return Policy(tuple(thresholds))


def write_trained_run(folder: Path, model: EarlyExitModel, task: str = "classification") -> Path:
    """A run as `maqee train` writes it, with one finished stage."""
    model.save(folder / "1-joint")
    write_json(folder / "1-joint" / STAGE, {})
    write_json(folder / RECIPE, {"recipe": {"name": "small", "task": task, "data": {"name": "digits"}}})
    return folder


def write_compressed_run(folder: Path, model: EarlyExitModel, images: Tensor) -> tuple[Path, ReadyModel]:
    """A run as `maqee compress` writes it, with a plan made by hand, and the model that it holds."""
    quantized = quantize(model, images, "rtn", QuantSettings(weight_bits=4, act_bits=8))
    network = quantized.model
    assert isinstance(network, EarlyExitModel)
    plan = Plan(
        bits=quantized.bit_settings,
        thresholds=parting_policy(network, images).thresholds,
        exit_blocks=network.positions,
        exit_kinds=network.kinds,
        method="rtn",
        task="classification",
        checkpoint="0123abcd",
        seed=0,
        versions={},
        budget=Budget(),
        got=Figures(
            metric=0.5, loss=1.0, bops=1e6, mean_exit=2.0, exit_mass=(0.5, 0.25, 0.25), average_bits=4, weighted_bits=4
        ),
    )
    save_quantized(quantized, folder)
    write_json(folder / PREPROCESSING, network.backbone.preprocessing.to_json())
    plan.save(folder / "plan.json")
    return folder, ReadyModel(network, plan.policy)


def seen_by(model: EarlyExitModel, files: list[Path]) -> Tensor:
    """Files as evaluation feeds them to a model."""
    data = ImageSet(
        "files", FileImages([FileEntry(str(file), file) for file in files]), torch.zeros(len(files)), ("x",)
    )
    return torch.cat([images for images, _ in eval_batches(data, model.backbone.preprocessing, len(files))])
