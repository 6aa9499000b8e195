"""Backbones of our own and readers of everybody else's weights."""

from maqee.models.backbone import Backbone, TokenShape
from maqee.models.config import BackboneConfig, SwinConfig, ViTConfig
from maqee.models.load import load_backbone, save_backbone
from maqee.models.preprocessing import Preprocessing
from maqee.models.presets import is_preset, presets
from maqee.models.swin import Swin
from maqee.models.vit import ViT, fold_layer_scale

__all__ = [
    "Backbone",
    "BackboneConfig",
    "Preprocessing",
    "Swin",
    "SwinConfig",
    "TokenShape",
    "ViT",
    "ViTConfig",
    "fold_layer_scale",
    "is_preset",
    "load_backbone",
    "presets",
    "save_backbone",
]
