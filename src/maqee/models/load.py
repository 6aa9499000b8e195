"""The one way into the library: any source of weights to a backbone of ours."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError, suggest
from maqee.io import write_json, write_tensors
from maqee.models.backbone import Backbone
from maqee.models.checkpoint import Checkpoint, download, read_file, read_folder, read_module
from maqee.models.config import (
    BackboneConfig,
    ViTConfig,
    as_pair,
    config_from_json,
    config_to_json,
)
from maqee.models.convert import convert_state
from maqee.models.preprocessing import HALF, IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from maqee.models.presets import presets
from maqee.models.swin import Swin
from maqee.models.vit import ViT, resize_positions

logger = logging.getLogger(__name__)

FORMAT, VERSION = "maqee-backbone", 1


def load_backbone(
    source: str | Path | nn.Module,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> Backbone:
    """Load a vision transformer; the result maps normalised images to logits when called.

    Args:
        source: a preset ("vit-base": random weights), a folder with config.json (transformers, timm or maqee), a
            .safetensors or .pth file, a Hub name ("google/vit-base-patch16-224"), or a live module of transformers
            or timm.
        num_classes: size of the classifier; one that differs from the checkpoint's gets fresh weights.
        image_size: input size; position embeddings are resized bicubically.
    """
    if isinstance(source, nn.Module):
        return _from_checkpoint(read_module(source), num_classes, image_size)
    path = Path(source)
    if path.is_dir():
        return _from_checkpoint(read_folder(path), num_classes, image_size)
    if path.is_file():
        return _from_checkpoint(read_file(path), num_classes, image_size)
    name = str(source)
    if name in presets:
        config = _adapted(presets[name], num_classes, image_size)
        return build_backbone(config, _default_preprocessing(config, name))
    if path.suffix in (".safetensors", ".pth", ".pt", ".bin") or name.count("/") != 1 or name.startswith("."):
        if "/" in name or path.suffix:
            raise MaqeeError(f"{name} does not exist: give a file, a folder, a preset or a Hub name.")
        raise suggest(name, presets.names(), "model")
    return _from_checkpoint(read_folder(download(name)), num_classes, image_size)


def build_backbone(config: BackboneConfig, preprocessing: Preprocessing | None = None) -> Backbone:
    """A backbone of this shape with fresh weights."""
    return ViT(config, preprocessing) if isinstance(config, ViTConfig) else Swin(config, preprocessing)


def save_backbone(model: Backbone, folder: Path) -> None:
    """Write config.json and model.safetensors; `load_backbone(folder)` reads them back."""
    write_tensors(folder / "model.safetensors", model.state_dict())
    write_json(folder / "config.json", backbone_to_json(model))


def backbone_to_json(model: Backbone) -> dict[str, Any]:
    """What, with the state dict, makes the model again."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "backbone": config_to_json(model.config),
        "preprocessing": model.preprocessing.to_json(),
    }


def backbone_from_json(values: dict[str, Any], source: str) -> Backbone:
    """A backbone of the stored shape with fresh weights; `source` names the file in errors."""
    if values.get("version") != VERSION:
        raise MaqeeError(f"{source}: version {values.get('version')!r} is not {VERSION}, which this maqee reads.")
    for key in ("backbone", "preprocessing"):
        if not isinstance(values.get(key), dict):
            raise MaqeeError(f"{source}: key {key!r} is missing.")
    preprocessing = Preprocessing.from_json(values["preprocessing"], source)
    return build_backbone(config_from_json(values["backbone"], source), preprocessing)


def _from_checkpoint(
    checkpoint: Checkpoint, num_classes: int | None, image_size: int | tuple[int, int] | None
) -> Backbone:
    """Convert, adapt to the wanted classes and size, and check every tensor before any is copied."""
    if checkpoint.config.get("format") == FORMAT:
        stored = backbone_from_json(checkpoint.config, checkpoint.source)
        config, preprocessing, state = stored.config, stored.preprocessing, dict(checkpoint.state)
        name_in_file: Callable[[str], str] = str
    else:
        hints = _hints(checkpoint.config)
        converted = convert_state(checkpoint.state, hints, checkpoint.source)
        config, state, name_in_file = converted.config, converted.state, converted.name_in_file
        preprocessing = _read_preprocessing(checkpoint, config)
    wanted = _adapted(config, num_classes, image_size)
    model = build_backbone(wanted, replace(preprocessing, **_resized(preprocessing, config, wanted)))
    if wanted.num_classes != config.num_classes:
        if config.num_classes:
            logger.warning("%s: new classifier for %d classes", checkpoint.source, wanted.num_classes)
        state = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
        state |= {name: tensor for name, tensor in model.state_dict().items() if name.startswith("head.")}
    if isinstance(config, ViTConfig) and isinstance(wanted, ViTConfig) and "embedding.position" in state:
        state["embedding.position"] = _fit_positions(state["embedding.position"], config, wanted)
    check_state(model, state, checkpoint.source, name_in_file)
    model.load_state_dict(state)
    return model


def _fit_positions(positions: Tensor, config: ViTConfig, wanted: ViTConfig) -> Tensor:
    if positions.shape[1] != config.prefix_tokens + config.grid[0] * config.grid[1]:
        return positions  # the shape check that follows names it
    return resize_positions(positions.float(), config.prefix_tokens, config.grid, wanted.grid)


def check_state(
    model: nn.Module, state: dict[str, Tensor], source: str, name_in_file: Callable[[str], str] = str
) -> None:
    """Name the first missing, unexpected or misshapen tensor as the file calls it."""
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name not in state:
            raise MaqeeError(f"{source}: key {name_in_file(name)!r} is missing.")
        if state[name].shape != tensor.shape:
            got, want = tuple(state[name].shape), tuple(tensor.shape)
            raise MaqeeError(f"{source}: key {name_in_file(name)!r} has shape {got}, expected {want}.")
    for name in state:
        if name not in expected:
            raise MaqeeError(f"{source}: unexpected key {name_in_file(name)!r}.")


def _adapted(
    config: BackboneConfig, num_classes: int | None, image_size: int | tuple[int, int] | None
) -> BackboneConfig:
    changes: dict[str, Any] = {}
    if num_classes is not None:
        if num_classes < 0:
            raise MaqeeError(f"num_classes must be 0 (features) or more, not {num_classes}.")
        changes["num_classes"] = num_classes
    if image_size is not None:
        changes["image_size"] = as_pair(image_size)
    return replace(config, **changes)


def _hints(config: dict[str, Any]) -> dict[str, Any]:
    """One flat dictionary from a transformers config or from timm's, whose facts are in pretrained_cfg."""
    hints = dict(config)
    timm = config.get("pretrained_cfg")
    if isinstance(timm, dict) and "image_size" not in hints and len(timm.get("input_size", ())) == 3:
        hints["image_size"] = list(timm["input_size"][1:])
    if isinstance(arguments := config.get("model_args"), dict):
        hints = {**arguments, **hints}
        if "img_size" in arguments:
            hints["image_size"] = arguments["img_size"]
    return hints


def _default_preprocessing(config: BackboneConfig, name: str = "") -> Preprocessing:
    """ViT of the original line: 0.5; DeiT, DINOv2 and Swin: ImageNet's statistics."""
    half = isinstance(config, ViTConfig) and not config.layer_scale and not config.distillation_token
    half = half and not name.startswith("deit")
    if config.channels != 3:
        half_each = (0.5,) * config.channels
        return Preprocessing(image_size=config.image_size, mean=half_each, std=half_each)
    if half:
        return Preprocessing(image_size=config.image_size, mean=HALF, std=HALF)
    return Preprocessing(image_size=config.image_size, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def _read_preprocessing(checkpoint: Checkpoint, config: BackboneConfig) -> Preprocessing:
    """From preprocessor_config.json (transformers) or pretrained_cfg (timm); else the family's custom."""
    default = _default_preprocessing(config)
    values, timm = checkpoint.preprocessor, checkpoint.config.get("pretrained_cfg")
    mean, std, resize = default.mean, default.std, default.resize
    if values:
        mean = tuple(values.get("image_mean") or mean)
        std = tuple(values.get("image_std") or std)
        size = values.get("size")
        if isinstance(size, dict) and values.get("do_center_crop"):
            resize = size.get("shortest_edge", size.get("height"))
    elif isinstance(timm, dict):
        mean, std = tuple(timm.get("mean", mean)), tuple(timm.get("std", std))
        if crop := timm.get("crop_pct"):
            resize = int(config.image_size[0] / crop)
    return replace(default, mean=mean, std=std, resize=resize)


def _resized(preprocessing: Preprocessing, config: BackboneConfig, wanted: BackboneConfig) -> dict[str, Any]:
    """Keep the ratio of resize to crop when the image size changes."""
    if wanted.image_size == config.image_size:
        return {}
    resize = preprocessing.resize
    if resize is not None:
        resize = round(resize * wanted.image_size[0] / config.image_size[0])
    return {"image_size": wanted.image_size, "resize": resize}


def on_meta(config: BackboneConfig) -> Backbone:
    """The model without memory for its weights: for shapes and cost."""
    with torch.device("meta"):
        return build_backbone(config)
