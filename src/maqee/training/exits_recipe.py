"""Exits for a model that is trained already, without writing a recipe: good settings for any amount of data.

A few thousand images and a few million want different numbers of epochs and batch sizes, but about the same number of
steps: heads on a frozen backbone have learnt what they can after some 1,500. Few images are seen again and again, not
more than 60 times though, and many images at least three times.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from maqee.data import ImageSet, open_data
from maqee.data.classes import same_classes
from maqee.device import pick_device
from maqee.errors import MaqeeError
from maqee.exits import backbone_of, load_network
from maqee.models import Backbone
from maqee.runs import DataSource, resolve_model, short_name
from maqee.tasks import segmentation
from maqee.training.recipe import (
    AugmentSection,
    DataSection,
    ExitSection,
    ModelSection,
    PixelSection,
    Recipe,
    StageSection,
)
from maqee.training.train_run import Training
from maqee.training.train_run import train as train_recipe

STEPS, FEWEST_EPOCHS, MOST_EPOCHS = 1500, 3, 60
TASKS = {"labels": "classification", "masks": segmentation.DEFAULT, "boxes": "detection"}
SCHEMES = {"labels": "lgvit", "masks": "segformer", "boxes": "detection"}

Trained = Literal["heads", "all"]


def exits_recipe(
    model: str | Path,
    data: str,
    *,
    data_root: str | Path | None = None,
    train: Trained = "heads",
    scheme: str | None = None,
    positions: tuple[int, ...] | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    holdout: int | None = None,
    distillation: float | None = None,
    pixels: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str | None = None,
) -> Recipe:
    """The recipe that gives a trained model exits; `maqee.train` runs it.

    Args:
        model: a fine-tuned model: a transformers or timm folder, a weights file, a Hub name, a run of `maqee train`.
        data: name of the data set it was fine-tuned on, or one with the same classes.
        data_root: where the data lie.
        train: "heads" leaves the backbone as it is; "all" trains it together with the heads, which makes early exits
            better and needs the augmentation and the time of a fine-tuning.
        scheme: kind of heads; left out, LGViT's for classification, SegFormer's and YOLOS' for the other tasks.
        positions: blocks after which exits sit; the usual ones when left out.
        epochs: how often every image is seen; left out, as many as make about 1,500 steps.
        batch_size: images of a step; left out, up to 256.
        holdout: how many training images are kept for calibration; the data set's own custom when left out.
        distillation: share of the final output in what LGViT's heads learn, beside labels; left out, LGViT's own, and
            0.5 where the backbone is trained too. With 1 labels do not count, which suits few images a class.
        pixels: mean, std, resample, resize and exif of the preprocessing, where the model's own are to be replaced.
        seed: random seed.
        device: decides the precision: bfloat16 on a GPU, single precision elsewhere.
    """
    if train not in ("heads", "all"):
        raise MaqeeError(f"train: {train!r} is not one of heads, all.")
    model = resolve_model(model)
    backbone = backbone_of(load_network(model))
    source = DataSource(data, None if data_root is None else Path(data_root), holdout, seed)
    images = open_data(source.name, source.path, source.holdout, source.seed).training()
    _check_trained(backbone, images, model)
    kind = images.kind.name
    chosen = scheme or SCHEMES[kind]
    said = {name: value for name, value in (pixels or {}).items() if value is not None}
    size = batch_size or usual_batch(len(images))
    return Recipe(
        name=f"{short_name(model).replace('/', '-')}-exits",
        seed=seed,
        task=TASKS[kind],
        model=ModelSection(source=_absolute(model), pixels=PixelSection(**said) if said else None),
        data=DataSection(
            name=data, path=None if data_root is None else str(Path(data_root).resolve()), holdout=holdout
        ),
        exits=ExitSection(scheme=chosen, positions=positions),
        stages=(_stage(train, chosen, len(images), size, epochs, distillation),),
        precision="bf16" if pick_device(device).type == "cuda" else "fp32",
    )


def train_exits(
    model: str | Path, data: str, out: str | Path | None = None, *, device: str | None = None, **settings: Any
) -> Training:
    """Give a fine-tuned model exits and train their heads; called again, it goes on where it stopped.

    Args:
        model: a fine-tuned model: a transformers or timm folder, a weights file, a Hub name.
        data: name of the data set it was fine-tuned on, or one with the same classes.
        out: the run folder; runs/NAME when left out.
        device: the GPU if there is one.
        settings: of `exits_recipe`: data_root, train, scheme, positions, epochs, batch_size, holdout,
            distillation, pixels, seed.
    """
    return train_recipe(exits_recipe(model, data, device=device, **settings), out=out, device=device)


def usual_batch(images: int) -> int:
    """A power of two up to 256 that leaves at least eight steps an epoch, where there are images for it.

    Example:
        >>> [usual_batch(images) for images in (5, 70, 1_000, 45_000)]
        [4, 8, 64, 256]
    """
    wanted = max(min(8, images), min(256, images // 8))
    return 1 << (max(1, wanted).bit_length() - 1)


def usual_epochs(images: int, batch_size: int) -> float:
    """So many that there are about 1,500 steps, within limits.

    Example:
        >>> [usual_epochs(images, usual_batch(images)) for images in (70, 45_000, 1_200_000)]
        [60, 8.6, 3]
    """
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, round(STEPS / max(1, images // batch_size), 1)))


def _stage(
    train: Trained, scheme: str, images: int, size: int, epochs: float | None, distillation: float | None
) -> StageSection:
    length = epochs if epochs is not None else usual_epochs(images, size)
    augment = AugmentSection(flip=True, min_scale=0.6, jitter=0.2)
    if train == "all":
        return StageSection(
            kind="joint",
            epochs=length,
            batch_size=size,
            lr=1e-4,
            head_lr=1e-3,
            layer_decay=0.75,
            warmup=length / 20,
            distillation=0.5 if distillation is None else distillation,
            augment=augment,
        )
    heads = "lgvit-heads" if scheme.startswith("lgvit") else "classifier-wise"
    if distillation is not None and heads != "lgvit-heads":
        raise MaqeeError(f"distillation: heads of the scheme {scheme!r} learn from labels alone: leave it out.")
    return StageSection(
        kind=heads,
        epochs=length,
        batch_size=size,
        lr=1e-3,
        warmup=length / 20,
        distillation=distillation,
        augment=augment,
    )


def _check_trained(backbone: Backbone, images: ImageSet, model: str | Path) -> None:
    """Heads learn from the model's own answers, so that it must know what it is asked for."""
    if images.kind.name == "labels" and (not backbone.config.num_classes or not same_classes(backbone, images)):
        raise MaqeeError(
            f"{model} has no classifier for the classes of {images.name}: fine-tune it first, for example with the "
            "stage 'finetune' of maqee train."
        )


def _absolute(model: str | Path) -> str:
    """A path as it is found from anywhere; a preset's or a Hub's name as it is."""
    return str(Path(model).resolve()) if Path(model).exists() else str(model)
