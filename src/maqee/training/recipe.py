"""The training recipe: a validated YAML file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from maqee.errors import MaqeeError
from maqee.io import to_json
from maqee.tasks import tasks
from maqee.training.stages import stages
from maqee.validation import explain
from maqee.yaml_files import read_yaml, split_assignment

_ADDED_LATER = (("model", "detection_tokens"), ("exits", "final"), ("model", "pixels"))


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PixelSection(_Section):
    """How pictures become pixels, where a checkpoint does not say or says it wrong; see maqee.models.Preprocessing."""

    mean: tuple[float, ...] | None = Field(default=None, description="of each channel, or one for all")
    std: tuple[float, ...] | None = Field(default=None, description="of each channel, or one for all")
    resample: str | None = Field(default=None, description="nearest, box, bilinear, hamming, bicubic or lanczos")
    resize: int | None = Field(default=None, ge=1, description="short side before the crop")
    exif: bool | None = Field(default=None, description="turn pictures as their EXIF data says")


class ModelSection(_Section):
    """Where training starts."""

    source: str = Field(description="preset, run or model folder, weights file or Hub name")
    image_size: Annotated[int, Field(ge=1)] | tuple[int, int] | None = Field(
        default=None, description="input size, or height and width; the checkpoint's own when left out"
    )
    detection_tokens: int | None = Field(default=None, ge=1, description="make a detector of it with so many tokens")
    fold_layer_scale: bool = Field(default=False, description="fold DINOv2's LayerScale into the layers before it")
    pixels: PixelSection | None = None


class DataSection(_Section):
    """What is learnt from."""

    name: str
    path: str | None = None
    holdout: int | None = Field(default=None, ge=1, description="calibration images taken out of the training set")


class ExitSection(_Section):
    """Which exits the model gets before the first stage that needs them."""

    scheme: str = "lgvit"
    positions: tuple[int, ...] | None = None
    final: str | None = Field(
        default=None, description="head kind after the last block; left out, what goes with the scheme"
    )


class AugmentSection(_Section):
    """How training images are varied; see maqee.data.Augmentation."""

    padding: int = Field(default=0, ge=0)
    flip: bool = False
    trivial: bool = False
    min_scale: float = Field(default=1.0, gt=0, le=1)
    jitter: float = Field(default=0.0, ge=0, lt=1)
    erase: float = Field(default=0.0, ge=0, le=1)
    mixup: float = Field(default=0.0, ge=0)
    cutmix: float = Field(default=0.0, ge=0)
    mix_share: float = Field(default=1.0, ge=0, le=1)

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what came later, where it makes no difference: runs begun before it can go on."""
        values: dict[str, Any] = dump(self)
        without: dict[str, Any] = {"trivial": False, "mix_share": 1.0}
        return {key: value for key, value in values.items() if key not in without or value != without[key]}


class StageSection(_Section):
    """One stage of training."""

    kind: str
    epochs: float = Field(gt=0)
    batch_size: int = Field(default=256, ge=1, description="images an optimiser step, all processes together")
    accumulate: int = Field(default=1, ge=1, description="pieces a batch is cut into to save memory")
    lr: float = Field(gt=0)
    head_lr: float | None = Field(default=None, gt=0, description="for exit heads and classifier; lr when left out")
    layer_decay: float = Field(default=1.0, gt=0, le=1, description="factor on lr for each block further from the end")
    weight_decay: float = Field(default=0.05, ge=0)
    warmup: float = Field(default=0.0, ge=0, description="epochs of linear warm-up")
    clip: float | None = Field(default=1.0, gt=0, description="largest gradient norm")
    ema: float = Field(default=0.0, ge=0, lt=1, description="decay of the averaged weights; 0 is off")
    drop_path: float = Field(default=0.0, ge=0, lt=1, description="stochastic depth")
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    distillation: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of imitating the final exit; left out, none in 'joint' and LGViT's own in 'lgvit-heads'",
    )
    teacher: str | None = Field(
        default=None, description="model to imitate at full depth: run or model folder, weights file or Hub name"
    )
    teacher_share: float = Field(default=0.5, ge=0, le=1, description="share of imitating it, beside the labels")
    augment: AugmentSection = AugmentSection()


class Recipe(_Section):
    """Everything that decides the trained weights, and how to compute them."""

    name: str
    seed: int = 0
    task: str = "classification"
    model: ModelSection
    data: DataSection
    exits: ExitSection = ExitSection()
    stages: tuple[StageSection, ...] = Field(min_length=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    checkpoint_minutes: float = Field(default=2.0, ge=0)
    tensorboard: bool = False

    def digest(self) -> str:
        """A hash of what decides the result; how often it is saved and logged does not."""
        values = self.model_dump(mode="json", exclude={"name", "checkpoint_minutes", "tensorboard"})
        for section, key in _ADDED_LATER:  # so that runs begun before these keys existed can go on
            if values[section][key] is None:
                del values[section][key]
        for stage in values["stages"]:
            stage["distillation"] = _share_in_digest(stage["kind"], stage["distillation"])
            if stage["teacher"] is None:  # added later, too
                del stage["teacher"], stage["teacher_share"]
        return hashlib.sha256(to_json(values).encode()).hexdigest()


def _share_in_digest(kind: str, share: float | None) -> float | str:
    """0 where a share of distillation is left out, which it once was; LGViT's heads have another loss with 0."""
    if kind == "lgvit-heads" and share == 0:
        return "labels alone"
    return share or 0.0


def read_recipe(path: str | Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe; overrides are `key=value` with dotted keys (`stages.0.epochs=2`), values in YAML."""
    values = read_yaml(Path(path), "a recipe file (see the folder recipes/)")
    for override in overrides or []:
        _override(values, override)
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        raise MaqeeError(f"{path}: {explain(error, Recipe)}") from error
    tasks[recipe.task]  # an unknown name is the user's error, now and not after hours
    for stage in recipe.stages:
        kind = stages[stage.kind]
        if stage.teacher is not None and not kind.has_lessons:
            raise MaqeeError(f"{path}: the stage {stage.kind!r} cannot have a teacher: remove it.")
        if stage.teacher is not None and recipe.task != "classification":
            raise MaqeeError(f"{path}: a teacher can teach classification only, not {recipe.task}: remove it.")
    return recipe


def _override(values: dict[str, Any], override: str) -> None:
    key, value = split_assignment(override, "stages.0.epochs=2")
    *parents, last = key.split(".")
    place: Any = values
    for parent in parents:
        place = _descend(place, parent, override)
    if isinstance(place, list):
        _descend(place, last, override)
        place[int(last)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise MaqeeError(f"{override!r}: {'.'.join(parents)} is a value, it has no key {last!r}.")


def _descend(place: Any, key: str, override: str) -> Any:
    if isinstance(place, list):
        if not key.isdigit() or int(key) >= len(place):
            raise MaqeeError(f"{override!r}: {key!r} is no number from 0 to {len(place) - 1}.")
        return place[int(key)]
    if isinstance(place, dict):
        return place.setdefault(key, {})
    raise MaqeeError(f"{override!r}: there is nothing below {key!r}.")
