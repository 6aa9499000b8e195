"""The two networks that `maqee bench kernels` compares: a quantized one, and the same one in bfloat16."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import NamedTuple

import torch

from maqee.exits import EarlyExitModel, add_exits
from maqee.models import load_backbone
from maqee.models.load import backbone_from_json
from maqee.models.presets import presets
from maqee.quant import quantize
from maqee.quant.settings import QuantSettings
from maqee.runs import is_compressed
from maqee.runtime import load

FIT_IMAGES = 8
SPREAD = 0.05  # of random weights: with smaller ones all tokens count alike, which no trained network has


class Pair(NamedTuple):
    """A quantized network and one in bfloat16.

    Attributes:
        quantized: simulated as yet, in float32.
        plain: of the same shape.
        weights: "random" or "stored".
        planned: whether bits and method are those of a compressed run.
    """

    quantized: EarlyExitModel
    plain: EarlyExitModel
    weights: str
    planned: bool


def open_pair(model: str, exits: str, method: str, settings: QuantSettings, seed: int, device: torch.device) -> Pair:
    """Both networks on a device.

    Args:
        model: a preset, any other model, or a folder; the float weights of a compressed run are gone, so that the
            network in bfloat16 has random ones, with which it takes as long.
        exits: "none", or heads for a model without any.
        method: how it is quantized, on noise.
        settings: how finely.
        seed: of random weights and of the noise.
        device: where both are.
    """
    torch.manual_seed(seed)
    if is_compressed(Path(model)):
        quantized = load(model, device=str(device)).model
        backbone = backbone_from_json(quantized.backbone.to_json(), model)
        plain = EarlyExitModel(backbone, quantized.positions, quantized.kinds, quantized.final_kind)
        return Pair(quantized, _in_bfloat16(plain, device), "stored", True)
    plain = load(model, device="cpu").model if Path(model).is_dir() else EarlyExitModel(load_backbone(model), (), ())
    if exits != "none" and not plain.num_exits:
        plain = add_exits(plain.backbone, exits)
    if model in presets:
        draw_weights(plain)
    config = plain.backbone.config
    images = torch.randn(FIT_IMAGES, config.channels, *config.image_size)
    fitted = quantize(plain.to(device), images.to(device), method, settings)
    fitted.settle()
    assert isinstance(fitted.model, EarlyExitModel)
    return Pair(fitted.model, _in_bfloat16(plain, device), "random" if model in presets else "stored", False)


@torch.no_grad()
def draw_weights(network: EarlyExitModel) -> None:
    """Give matrices random numbers that let tokens differ."""
    for parameter in network.parameters():
        if parameter.ndim > 1:
            parameter.normal_(std=SPREAD)


def _in_bfloat16(network: EarlyExitModel, device: torch.device) -> EarlyExitModel:
    return copy.deepcopy(network).to(device, torch.bfloat16).eval()
