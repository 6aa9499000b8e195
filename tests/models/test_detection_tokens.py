"""Why detection tokens start as blank patches: what they look at in real networks, before anything has learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from maqee.data import eval_batches, open_data
from maqee.models import ViT, load_backbone
from maqee.models.layers import Attend

ROWS, COLUMNS = 9, 12  # of the grid of detection tokens


def near(grid: tuple[int, int]) -> Tensor:
    """(detection tokens, patches): patches at most one step of the coarse grid away."""
    down, across = ((torch.arange(n) + 0.5) / n for n in grid)
    y, x = ((torch.arange(n) + 0.5) / n for n in (ROWS, COLUMNS))
    close = [(a[:, None] - b[None]).abs() < step for a, b, step in ((y, down, 1 / ROWS), (x, across, 1 / COLUMNS))]
    return (close[0][:, None, :, None] & close[1][None, :, None, :]).reshape(ROWS * COLUMNS, -1)


@torch.no_grad()
def share_nearby(model: ViT, images: Tensor) -> float:
    """How much of the detection tokens' attention goes to patches near their places: the mean over heads and blocks."""
    shares: list[Tensor] = []
    nearby, prefix = near(model.config.grid), model.config.prefix_tokens

    def watch(module: Any, inputs: tuple[Tensor, ...]) -> None:
        q, k = inputs[:2]  # (batch, heads, tokens, head width)
        tokens = len(nearby)
        weights = (q[:, :, -tokens:] @ k.transpose(2, 3) / q.shape[-1] ** 0.5).softmax(dim=-1)
        shares.append((weights[..., prefix:-tokens] * nearby).sum(dim=-1).mean())

    hooks = [part.register_forward_pre_hook(watch) for part in model.modules() if isinstance(part, Attend)]
    model(images)
    for hook in hooks:
        hook.remove()
    assert len(shares) == model.depth
    return float(torch.stack(shares).mean())


@pytest.mark.parametrize("name", ["dinov2_vits14_fp16", "vit_tiny_patch16_224_augreg_in1k_fp16"])
def test_blank_patches_look_around_them_and_class_tokens_do_not(
    name: str, shared_weights: Path, shared_data: Path
) -> None:
    source = shared_weights / f"{name}.safetensors"
    model = load_backbone(source, num_classes=3, image_size=(336, 448), detection_tokens=ROWS * COLUMNS).eval()
    assert isinstance(model, ViT)
    data = open_data("bccd", shared_data).calibration.select([0, 1])
    [(images, _)] = eval_batches(data, model.preprocessing, 2)
    chance = float(near(model.config.grid).float().mean())
    blank = share_nearby(model, images)
    with torch.no_grad():
        assert model.embedding.detection_tokens is not None
        model.embedding.detection_tokens.copy_(model.embedding.class_token)
    copies = share_nearby(model, images)
    assert blank > 1.5 * chance
    assert copies < chance
