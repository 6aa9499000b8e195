"""Where each library says how its models want their images, and what is assumed where nothing is said."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from maqee.errors import MaqeeError
from maqee.models.config import BackboneConfig, SwinConfig, ViTConfig
from maqee.models.preprocessing import HALF, IMAGENET_MEAN, IMAGENET_STD, Preprocessing
from maqee.models.processor_file import Processor, read_processor
from maqee.models.sources import Checkpoint

logger = logging.getLogger(__name__)

_IMAGENET_NAMES = ("deit", "dino")  # in names of models and files: trained with ImageNet's statistics
_TIMM_CROP = 0.875  # what timm takes where a model does not say


def read_preprocessing(checkpoint: Checkpoint, config: BackboneConfig) -> Preprocessing:
    """From the processor's file (transformers) or pretrained_cfg (timm); else the family's custom, with a warning."""
    timm = checkpoint.config.get("pretrained_cfg")
    kind = str(checkpoint.preprocessor.get("image_processor_type"))
    if checkpoint.preprocessor and not kind.startswith("TimmWrapper"):
        source = checkpoint.preprocessor_source
        processor = read_processor(checkpoint.preprocessor, checkpoint.config.get("model_type"), source)
        return _follow(processor, config, source)
    if isinstance(timm, dict):
        return _read_timm(timm, config, f"{checkpoint.config_source}: pretrained_cfg")
    return _guess(checkpoint, config)


def check_channels(preprocessing: Preprocessing, channels: int, source: str) -> None:
    """Mean and std have a number for every channel of the model."""
    if (count := len(preprocessing.mean)) != channels:
        raise MaqeeError(
            f"{source}: mean and std have {count} numbers, and the model {channels} channels: give one for each."
        )


def family_preprocessing(config: BackboneConfig, name: str = "") -> Preprocessing:
    """ViT of the original line: 0.5; DeiT, DINO, YOLOS and Swin: ImageNet's statistics."""
    half = isinstance(config, ViTConfig) and not config.layer_scale and not config.distillation_token
    half = half and not any(word in name.lower() for word in _IMAGENET_NAMES)
    half = half and not getattr(config, "detection_tokens", 0)
    if config.channels != 3:
        half_each = (0.5,) * config.channels
        return Preprocessing(image_size=config.image_size, mean=half_each, std=half_each)
    if half:
        return Preprocessing(image_size=config.image_size, mean=HALF, std=HALF)
    return Preprocessing(image_size=config.image_size, mean=IMAGENET_MEAN, std=IMAGENET_STD)


def _guess(checkpoint: Checkpoint, config: BackboneConfig) -> Preprocessing:
    """Processors of transformers scale for ViT bilinearly, and everybody else bicubically."""
    model_type = checkpoint.config.get("model_type")
    names = (Path(checkpoint.source).name, str(model_type), str(checkpoint.config.get("architecture")))
    found = family_preprocessing(config, " ".join(names))
    if model_type == "vit":
        found = replace(found, resample="bilinear")
    logger.warning(
        "%s: no preprocessing is stored with it: assuming %s, unless you say otherwise (mean, std, resample, resize).",
        checkpoint.source,
        _describe(found),
    )
    return found


def _describe(preprocessing: Preprocessing) -> str:
    mean, std = (", ".join(f"{value:g}" for value in values) for values in (preprocessing.mean, preprocessing.std))
    height, width = preprocessing.image_size
    return f"mean {mean}, std {std}, whole pictures scaled to {width}x{height} ({preprocessing.resample})"


def _follow(processor: Processor, config: BackboneConfig, source: str) -> Preprocessing:
    """What a processor of transformers does, to the pixel."""
    zeros, ones = (0.0,) * config.channels, (1.0,) * config.channels
    image_size, resize = _follow_sizes(processor, config, source)
    values = {
        "image_size": image_size,
        "resize": resize,
        "mean": processor.numbers("image_mean", config.channels, source) if processor.do_normalize else zeros,
        "std": processor.numbers("image_std", config.channels, source) if processor.do_normalize else ones,
        "resample": processor.resample_name(source),
        "rounding": "transformers",
        "rescale": processor.rescale_factor if processor.do_rescale else 1.0,
        "transparent": "white" if processor.do_convert_rgb else "drop",
    }
    found = Preprocessing.from_json(values, source)
    if isinstance(config, SwinConfig) and image_size != config.image_size:  # which is built for one size
        reason = "%s is for images of %s, and the model takes %s: pictures are scaled to show the same"
        logger.warning(reason, source, *("x".join(map(str, size)) for size in (image_size, config.image_size)))
        found = found.for_size(config.image_size)
    return found


def _follow_sizes(processor: Processor, config: BackboneConfig, source: str) -> tuple[tuple[int, int], Any]:
    """`image_size` and `resize`; the model's own size where the file does not say."""
    own = config.image_size
    scaled = processor.scaled(source)
    crop = (processor.crop(source) or own) if processor.do_center_crop else None
    if getattr(config, "detection_tokens", 0) and (crop or scaled not in (None, own)):
        return _whole_picture(own, f"{source} leaves pictures their shape or cuts them, and detectors see all of them")
    if scaled == "varies" or processor.pads:
        return _whole_picture(own, f"{source} leaves pictures their shape")
    if not processor.do_resize:
        return (crop, "crop") if crop else (own, "keep")
    if scaled is None:
        return crop or own, None
    if isinstance(scaled, int):
        if crop is None:
            return _whole_picture(own, f"{source} leaves pictures their shape")
        return crop, scaled
    return (crop, scaled) if crop and crop != scaled else (scaled, None)


def _read_timm(values: dict[str, Any], config: BackboneConfig, source: str) -> Preprocessing:
    """As timm prepares test images: scaled to the size divided by crop_pct, then cut."""
    share, mode = values.get("crop_pct") or _TIMM_CROP, values.get("crop_mode") or "center"
    if not isinstance(share, int | float) or not 0 < share < math.inf:
        raise MaqeeError(f"{source}: key 'crop_pct' is {share!r}, expected a number such as 0.9.")
    height, width = (math.floor(side / share) for side in config.image_size)
    resize: int | tuple[int, int] | None = None
    if getattr(config, "detection_tokens", 0) or (mode == "squash" and (height, width) == config.image_size):
        resize = None
    elif mode == "squash":
        resize = height, width
    elif mode == "center" and height == width:
        resize = height
    else:
        _whole_picture(config.image_size, f"{source}: crop_mode {mode!r} to {width}x{height} is not supported")
    coloured = config.channels == 3
    found = {
        "image_size": config.image_size,
        "resize": resize,
        "mean": values.get("mean") or (IMAGENET_MEAN if coloured else (0.5,) * config.channels),
        "std": values.get("std") or (IMAGENET_STD if coloured else (0.5,) * config.channels),
        "resample": values.get("interpolation") or "bicubic",
        "rounding": "timm",
    }
    preprocessing = Preprocessing.from_json(found, source)
    check_channels(preprocessing, config.channels, source)
    return preprocessing


def _whole_picture(image_size: tuple[int, int], reason: str) -> tuple[tuple[int, int], None]:
    """The model's images have one size: say that a rule which does not give one is not followed."""
    height, width = image_size
    logger.warning("%s: here whole pictures are scaled to %dx%d, unless you say otherwise.", reason, width, height)
    return image_size, None
