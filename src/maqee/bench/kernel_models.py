"""The two networks that `maqee bench kernels` compares: a quantized one, and the same one in bfloat16."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import NamedTuple

import torch

from maqee.bench.noise_models import float_network, quantize_on_noise, same_shape
from maqee.exits import EarlyExitModel
from maqee.models.presets import presets
from maqee.quant.settings import QuantSettings
from maqee.runs import is_compressed
from maqee.runtime import load


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
    if is_compressed(Path(model)):
        torch.manual_seed(seed)
        quantized = load(model, device=str(device)).model
        return Pair(quantized, _in_bfloat16(same_shape(quantized), device), "stored", True)
    plain = float_network(model, exits, seed)
    fitted = quantize_on_noise(plain, method, settings, device).model
    assert isinstance(fitted, EarlyExitModel)
    return Pair(fitted, _in_bfloat16(plain, device), "random" if model in presets else "stored", False)


def _in_bfloat16(network: EarlyExitModel, device: torch.device) -> EarlyExitModel:
    return copy.deepcopy(network).to(device, torch.bfloat16).eval()
