"""The one way into the library: any source of weights to a backbone of ours."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from maqee.errors import MaqeeError, suggest
from maqee.io import write_json
from maqee.models.adapt import adapt_state, adapted_config, has_new_head
from maqee.models.backbone import BACKBONE_FORMAT, VERSION, Backbone
from maqee.models.config import BackboneConfig, ViTConfig, config_from_json
from maqee.models.convert import check_module, convert_state, read_hints
from maqee.models.finite import NOT_FINITE, is_finite
from maqee.models.labels import read_class_names, stored_class_names
from maqee.models.preprocessing import Preprocessing
from maqee.models.presets import presets
from maqee.models.read_preprocessing import check_channels, family_preprocessing, read_preprocessing
from maqee.models.sources import Checkpoint, download, read_file, read_folder, read_module
from maqee.models.swin import Swin
from maqee.models.vit import ViT
from maqee.tensors import write_tensors

logger = logging.getLogger(__name__)

EARLY_EXIT_FORMAT = "maqee-early-exit"


def load_backbone(
    source: str | Path | nn.Module,
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    detection_tokens: int | None = None,
    preprocessing: Preprocessing | None = None,
) -> Backbone:
    """Load a vision transformer; the result maps normalised images to logits when called.

    Args:
        source: a preset ("vit-base": random weights), a folder with config.json (transformers, timm or maqee), a
            .safetensors or .pth file, a Hub name ("google/vit-base-patch16-224"), or a live module of transformers
            or timm.
        num_classes: size of the classifier; one that differs from the checkpoint's gets fresh weights and no class
            names, which `Backbone.classes` otherwise has from the checkpoint.
        image_size: input size; position embeddings are resized bicubically.
        detection_tokens: make a detector (YOLOS) of a plain ViT with so many fresh tokens and fresh heads.
        preprocessing: how images are prepared, instead of what is stored with the model or assumed where nothing is;
            unless `image_size` says otherwise, the model gets its image size.
    """

    def adapt(config: BackboneConfig, size: tuple[int, int] | None = None) -> BackboneConfig:
        if preprocessing is not None:
            check_channels(preprocessing, config.channels, "preprocessing")
        return adapted_config(config, num_classes, size if image_size is None else image_size, detection_tokens)

    if isinstance(source, nn.Module):
        return _from_checkpoint(read_module(source), adapt, preprocessing)
    path = Path(source)
    if os.path.isdir(path):  # unlike Path.is_dir, it does not mind names that no file can have
        return _from_checkpoint(read_folder(path), adapt, preprocessing)
    if os.path.isfile(path):
        return _from_checkpoint(read_file(path), adapt, preprocessing)
    name = str(source)
    if name in presets:
        config = adapt(presets[name], None if preprocessing is None else preprocessing.image_size)
        return build_backbone(config, _fit(preprocessing or family_preprocessing(config, name), config))
    if path.suffix in (".safetensors", ".pth", ".pt", ".bin") or name.count("/") != 1 or name.startswith("."):
        if "/" in name or path.suffix:
            raise MaqeeError(f"{name} does not exist: give a file, a folder, a preset or a Hub name.")
        raise suggest(name, presets.names(), "model")
    return _from_checkpoint(read_folder(download(name)), adapt, preprocessing)


def build_backbone(config: BackboneConfig, preprocessing: Preprocessing | None = None) -> Backbone:
    """A backbone of this shape with fresh weights."""
    preprocessing = preprocessing or family_preprocessing(config)
    return ViT(config, preprocessing) if isinstance(config, ViTConfig) else Swin(config, preprocessing)


def save_backbone(model: Backbone, folder: Path) -> None:
    """Write config.json and model.safetensors; `load_backbone(folder)` reads them back."""
    write_tensors(folder / "model.safetensors", model.state_dict())
    write_json(folder / "config.json", model.to_json())


def backbone_from_json(values: dict[str, Any], source: str) -> Backbone:
    """A backbone of the stored shape with fresh weights; `source` names the file in errors."""
    model = build_backbone(*_stored_shape(values, source))
    model.classes = stored_class_names(values, model.config.num_classes, source)
    return model


def _stored_shape(values: dict[str, Any], source: str) -> tuple[BackboneConfig, Preprocessing]:
    if values.get("version") != VERSION:
        raise MaqeeError(f"{source}: version {values.get('version')!r} is not {VERSION}, which this maqee reads.")
    for key in ("backbone", "preprocessing"):
        if not isinstance(values.get(key), dict):
            raise MaqeeError(f"{source}: key {key!r} is missing.")
    config = config_from_json(values["backbone"], source)
    return config, Preprocessing.from_json(values["preprocessing"], source)


def _from_checkpoint(
    checkpoint: Checkpoint, adapt: Callable[..., BackboneConfig], given: Preprocessing | None = None
) -> Backbone:
    """Check every tensor before memory is taken for the model, then adapt it to the wanted classes and size."""
    config, preprocessing, state = _read_checkpoint(checkpoint, given)
    wanted = adapt(config, preprocessing.image_size)
    if given is None and wanted.image_size != adapt(config).image_size:
        logger.warning(
            "%s: made for images of %s, but its preprocessing gives %s: adapted to that, unless you say otherwise "
            "(image_size).",
            checkpoint.source,
            *("x".join(map(str, reversed(shape.image_size))) for shape in (config, wanted)),
        )
    classes = read_class_names(checkpoint.config, config.num_classes, checkpoint.config_source)
    model = build_backbone(wanted, _fit(preprocessing, wanted))
    if config.num_classes and has_new_head(config, wanted):
        logger.warning("%s: new classifier for %d classes", checkpoint.source, wanted.num_classes)
    model.load_state_dict(adapt_state(state, config, model))
    model.classes = () if has_new_head(config, wanted) else classes  # a new classifier knows no class yet
    return model


def _read_checkpoint(
    checkpoint: Checkpoint, given: Preprocessing | None
) -> tuple[BackboneConfig, Preprocessing, dict[str, Tensor]]:
    """Shape, preprocessing and tensors by our names, each tensor known to be there and to fit."""
    kind = checkpoint.config.get("format")
    if kind == BACKBONE_FORMAT:
        config, preprocessing = _stored_shape(checkpoint.config, checkpoint.config_source)
        check_state(on_meta(config), checkpoint.state, checkpoint.source)
        return config, given or replace(preprocessing, image_size=config.image_size), dict(checkpoint.state)
    if kind == EARLY_EXIT_FORMAT:  # what is asked for is the network without its exits
        config, preprocessing = _stored_shape(checkpoint.config, checkpoint.config_source)
        inner = {name: tensor for name, tensor in checkpoint.state.items() if name.startswith("backbone.")}
        state = {name.removeprefix("backbone."): tensor for name, tensor in inner.items()}
        check_state(on_meta(config), state, checkpoint.source, lambda name: f"backbone.{name}")
        return config, given or replace(preprocessing, image_size=config.image_size), state
    if str(kind).startswith("maqee-"):
        raise MaqeeError(
            f"{checkpoint.config_source}: format is {kind!r}, which is no plain backbone ({BACKBONE_FORMAT!r})."
        )
    hints = read_hints(checkpoint.config, checkpoint.config_source)
    converted = convert_state(checkpoint.state, hints, checkpoint.source)
    config, state = converted.config, converted.state
    preprocessing = given or read_preprocessing(checkpoint, config)
    check_state(on_meta(config), state, checkpoint.source, converted.name_in_file, converted.shape_in_file)
    if checkpoint.module is not None:
        check_module(checkpoint.module, converted, checkpoint.source)
    return config, preprocessing, state


def _as_it_is(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape)


def check_state(
    model: nn.Module,
    state: dict[str, Tensor],
    source: str,
    name_in_file: Callable[[str], str] = str,
    shape_in_file: Callable[[str, Sequence[int]], tuple[int, ...]] = _as_it_is,
) -> None:
    """Name the first missing, unexpected or misshapen tensor, or one that is no number, as the file calls it."""
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name not in state:
            raise MaqeeError(f"{source}: key {name_in_file(name)!r} is missing.")
        if state[name].shape != tensor.shape:
            got, want = shape_in_file(name, state[name].shape), shape_in_file(name, tensor.shape)
            raise MaqeeError(f"{source}: key {name_in_file(name)!r} has shape {got}, expected {want}.")
        if state[name].is_floating_point() != tensor.is_floating_point():
            got_type, want_type = state[name].dtype, tensor.dtype
            raise MaqeeError(f"{source}: key {name_in_file(name)!r} holds {got_type} numbers, expected {want_type}.")
        if not is_finite(state[name]):
            raise MaqeeError(f"{source}: key {name_in_file(name)!r} {NOT_FINITE}.")
    for name in state:
        if name not in expected:
            raise MaqeeError(f"{source}: unexpected key {name_in_file(name)!r}.")


def _fit(preprocessing: Preprocessing, config: BackboneConfig) -> Preprocessing:
    """For the model's image size; a detector sees the whole picture, without a crop."""
    if getattr(config, "detection_tokens", 0) and preprocessing.crops:
        preprocessing = replace(preprocessing, resize=None)
    return preprocessing.for_size(config.image_size)


def on_meta(config: BackboneConfig) -> Backbone:
    """The model without memory for its weights: for shapes and cost."""
    with torch.device("meta"):
        return build_backbone(config)
