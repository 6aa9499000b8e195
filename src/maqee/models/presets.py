"""Named shapes. `test-*` are miniatures that keep every structural feature of their family."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from maqee.models.config import BackboneConfig, SwinConfig, ViTConfig
from maqee.registry import Registry

presets: Registry[BackboneConfig] = Registry("preset")


def _vit(dim: int, heads: int, depth: int = 12) -> ViTConfig:
    return ViTConfig(dim=dim, heads=heads, depth=depth, mlp_dim=4 * dim)


def _distilled(config: ViTConfig) -> ViTConfig:
    return replace(config, distillation_token=True, readout="class+distillation")


def _dinov2(config: ViTConfig) -> ViTConfig:
    return replace(config, image_size=(518, 518), patch_size=14, layer_scale=True, readout="class+mean")


def _yolos(
    config: ViTConfig, image_size: tuple[int, int], mid_position: bool, queries: int = 100, classes: int = 91
) -> ViTConfig:
    """COCO's ids go up to 90, and the published heads have a logit for each number below 91."""
    changed = replace(config, image_size=image_size, num_classes=classes, mid_position=mid_position)
    return replace(changed, readout="detection", detection_tokens=queries)


_TINY, _SMALL, _BASE, _LARGE = _vit(192, 3), _vit(384, 6), _vit(768, 12), _vit(1024, 16, depth=24)
_MINI = ViTConfig(image_size=(32, 32), patch_size=8, dim=32, depth=4, heads=2, mlp_dim=64, num_classes=10)
_DIGITS = ViTConfig(
    image_size=(16, 16), patch_size=4, channels=1, dim=64, depth=8, heads=4, mlp_dim=128, num_classes=10
)
_SWIN_MINI = SwinConfig(
    image_size=(32, 32), patch_size=2, dim=16, depths=(2, 2, 2), heads=(2, 4, 8), window=4, num_classes=10
)
# Patches of one pixel, so that the 18 blocks of the third stage see 8 x 8 tokens of pictures of 32 x 32.
_SWIN_CIFAR = SwinConfig(
    image_size=(32, 32), patch_size=1, dim=48, depths=(2, 2, 18, 2), heads=(3, 6, 12, 24), window=4, num_classes=100
)

_TABLE: dict[str, BackboneConfig] = {
    "vit-tiny": _TINY,
    "vit-small": _SMALL,
    "vit-base": _BASE,
    "vit-large": _LARGE,
    "deit-tiny": _TINY,
    "deit-small": _SMALL,
    "deit-base": _BASE,
    "deit-tiny-distilled": _distilled(_TINY),
    "deit-small-distilled": _distilled(_SMALL),
    "deit-base-distilled": _distilled(_BASE),
    "dinov2-small": _dinov2(_SMALL),
    "dinov2-base": _dinov2(_BASE),
    "yolos-tiny": _yolos(_TINY, (512, 864), mid_position=False),
    "yolos-small": _yolos(_SMALL, (800, 1344), mid_position=True),
    "yolos-base": _yolos(_BASE, (800, 1344), mid_position=True),
    "swin-tiny": SwinConfig(),
    "swin-small": SwinConfig(depths=(2, 2, 18, 2)),
    "swin-base": SwinConfig(dim=128, depths=(2, 2, 18, 2), heads=(4, 8, 16, 32)),
    "swin-cifar": _SWIN_CIFAR,
    "vit-digits": _DIGITS,
    "test-vit": _MINI,
    "test-deit": _distilled(_MINI),
    "test-dinov2": replace(_MINI, layer_scale=True, readout="class+mean"),
    "test-yolos": _yolos(_MINI, (32, 48), mid_position=True, queries=5, classes=3),
    "test-swin": _SWIN_MINI,
}
for _name, _config in _TABLE.items():
    presets.register(_name)(_config)


def is_preset(source: str) -> bool:
    """Whether what a user calls a model is a preset, with random weights; files and folders of that name come first."""
    return source in presets and not Path(source).exists()
