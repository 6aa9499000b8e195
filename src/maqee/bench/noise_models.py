"""Networks for benchmarks that need no training and no data: random weights, quantized on noise, written as a run.

How long a network takes does not depend on its weights.
"""

from __future__ import annotations

from pathlib import Path

import torch

from maqee.apq import Budget
from maqee.apq.cost import bops, without_early_heads
from maqee.apq.plan import Plan, library_versions
from maqee.apq.records import Figures
from maqee.evaluation.quantization_cases import parse_widths
from maqee.exits import EarlyExitModel, Policy, add_exits
from maqee.io import write_json
from maqee.models import load_backbone
from maqee.models.load import backbone_from_json
from maqee.models.presets import presets
from maqee.quant import QuantizedModel, QuantSettings, quantize, save_quantized
from maqee.quant.settings import parse_bits
from maqee.runs import PLAN, PREPROCESSING
from maqee.runtime import load

FIT_IMAGES = 8
SPREAD = 0.05  # of random weights: with smaller ones all tokens count alike, which no trained network has


def asked_settings(bits: str, patch: str | None, classifier: str | None, common_steps: bool) -> QuantSettings:
    """What options ask for.

    Args:
        bits: of weights and activations in blocks and heads, such as "W4A4".
        patch: bits of the patch embedding, such as "8/8"; float when left out.
        classifier: of the classifier, likewise.
        common_steps: let the two groups of weights that "erq" makes have a common step.
    """
    weights, activations = parse_widths(bits)
    return QuantSettings(
        weight_bits=weights,
        act_bits=activations,
        patch=parse_bits(patch or "float", "patch"),
        classifier=parse_bits(classifier or "float", "classifier"),
        common_steps=common_steps,
    )


def float_network(model: str, exits: str, seed: int) -> EarlyExitModel:
    """A network in float32 on the CPU.

    Args:
        model: a preset, which gets random weights; or any other model, or a folder.
        exits: "none", or heads for a model without any.
        seed: of random weights, and of whatever is drawn after them.
    """
    torch.manual_seed(seed)
    network = load(model).model if Path(model).is_dir() else EarlyExitModel(load_backbone(model), (), ())
    if exits != "none" and not network.num_exits:
        network = add_exits(network.backbone, exits)
    if model in presets:
        draw_weights(network)
    return network.eval()


def same_shape(network: EarlyExitModel, early_heads: bool = True) -> EarlyExitModel:
    """A float network with random weights that takes as long as another would in float.

    Args:
        network: the other one; its own float weights may be gone.
        early_heads: have its early exits, too.
    """
    backbone = backbone_from_json(network.backbone.to_json(), "the network")
    positions, kinds = (network.positions, network.kinds) if early_heads else ((), ())
    made = EarlyExitModel(backbone, positions, kinds, network.final_kind, network.confidence)
    draw_weights(made)
    return made.eval()


@torch.no_grad()
def draw_weights(network: EarlyExitModel) -> None:
    """Give matrices random numbers that let tokens differ."""
    for parameter in network.parameters():
        if parameter.ndim > 1:
            parameter.normal_(std=SPREAD)


def quantize_on_noise(
    network: EarlyExitModel, method: str, settings: QuantSettings, device: torch.device
) -> QuantizedModel:
    """A quantized copy, fitted on a few images of noise; the network itself is moved to the device."""
    config = network.backbone.config
    images = torch.randn(FIT_IMAGES, config.channels, *config.image_size)
    fitted = quantize(network.to(device), images.to(device), method, settings)
    fitted.settle()
    return fitted


def write_run(quantized: QuantizedModel, folder: Path, task: str = "classification") -> Path:
    """Write a quantized network as `maqee compress` would, so that it is loaded as a user's run is.

    Its plan never stops, and says that nothing is known of how often it is right.

    Args:
        quantized: the network.
        folder: a new one.
        task: what the network is for.
    """
    network = quantized.model
    assert isinstance(network, EarlyExitModel)
    bits = quantized.bit_settings
    mean = sum(bits.mean_weights) / bits.depth
    plan = Plan(
        bits=bits,
        thresholds=Policy.never(network.num_exits).thresholds,
        exit_blocks=network.positions,
        exit_kinds=network.kinds,
        method=quantized.method,
        task=task,
        checkpoint="random weights",
        seed=0,
        versions=library_versions(),
        budget=Budget(),
        got=Figures(
            metric=0.0,
            loss=0.0,
            bops=bops(without_early_heads(network.parts(), bits.depth), bits),
            mean_exit=float(network.backbone.depth),
            exit_mass=(0.0,) * network.num_exits + (1.0,),
            average_bits=mean,
            weighted_bits=mean,
        ),
    )
    save_quantized(quantized, folder)
    write_json(folder / PREPROCESSING, network.backbone.preprocessing.to_json())
    plan.save(folder / PLAN)
    return folder
