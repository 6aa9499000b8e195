"""Tiny models of transformers with random weights, and a way to watch every block of theirs and of ours."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from maqee.models import Backbone
from tests.helpers import max_difference, randomize

TOLERANCE = 1e-4
_LAYERS = ("ViTLayer", "DeiTLayer", "Dinov2Layer", "Dinov2WithRegistersLayer", "SwinLayer")
_SHAPE: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_labels": 5,
}
_SWIN_SHAPE: dict[str, Any] = {
    "image_size": 32,
    "patch_size": 2,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
    "num_labels": 5,
}
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "vit": (transformers.ViTForImageClassification, transformers.ViTConfig, _SHAPE),
    "vit-bare": (transformers.ViTModel, transformers.ViTConfig, _SHAPE),
    "deit": (transformers.DeiTForImageClassification, transformers.DeiTConfig, _SHAPE),
    "deit-distilled": (transformers.DeiTForImageClassificationWithTeacher, transformers.DeiTConfig, _SHAPE),
    "dinov2": (transformers.Dinov2ForImageClassification, transformers.Dinov2Config, _SHAPE | {"mlp_ratio": 2}),
    "dinov2-registers": (
        transformers.Dinov2WithRegistersForImageClassification,
        transformers.Dinov2WithRegistersConfig,
        _SHAPE | {"mlp_ratio": 2, "num_register_tokens": 3},
    ),
    "dinov2-bare": (transformers.Dinov2Model, transformers.Dinov2Config, _SHAPE | {"mlp_ratio": 2}),
    "swin": (transformers.SwinForImageClassification, transformers.SwinConfig, _SWIN_SHAPE),
}
CLASSIFIERS = ("vit", "deit", "deit-distilled", "dinov2", "dinov2-registers", "swin")


def make(kind: str, **changes: Any) -> Any:
    """A model of transformers; its weights are large enough for attention to be far from uniform."""
    model_type, config_type, shape = KINDS[kind]
    return randomize(model_type(config_type(**(shape | changes))), std=0.4)


def images(*size: int, channels: int = 3) -> Tensor:
    """Two normalised images of (height, width)."""
    height, width = size if len(size) == 2 else (size[0], size[0])
    return torch.randn(2, channels, height, width, generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def watch_theirs(model: nn.Module, pixels: Tensor, **options: Any) -> tuple[Any, list[Tensor]]:
    """The output of a model of transformers and the tokens after each of its layers."""
    seen: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
        seen.append(output[0] if isinstance(output, tuple) else output)

    hooks = [m.register_forward_hook(keep) for m in model.modules() if type(m).__name__ in _LAYERS]
    output = model(pixels, **options)
    for hook in hooks:
        hook.remove()
    return output, seen


@torch.no_grad()
def watch_ours(model: Backbone, pixels: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits and the tokens after each block."""
    x = model.embedding(pixels)
    seen = []
    for number, block in enumerate(model.blocks, start=1):
        x = block(model.before(number, x))
        seen.append(x)
    return model.finish(x), seen


def assert_same_blocks(ours: list[Tensor], theirs: list[Tensor]) -> None:
    """Every single block agrees."""
    assert len(ours) == len(theirs) > 0
    for number, (own, other) in enumerate(zip(ours, theirs, strict=True), start=1):
        assert max_difference(own, other) <= TOLERANCE, f"block {number}"


def assert_parity(ours: Backbone, theirs: nn.Module, pixels: Tensor, **options: Any) -> None:
    """Logits and every single block agree."""
    expected, their_blocks = watch_theirs(theirs, pixels, **options)
    logits, our_blocks = watch_ours(ours, pixels)
    assert_same_blocks(our_blocks, their_blocks)
    assert max_difference(logits, expected.logits) <= TOLERANCE
    assert max_difference(ours(pixels), expected.logits) <= TOLERANCE
