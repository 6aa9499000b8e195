"""A block of a real ViT-Ti: from equal inputs, codes differ from the reference at ties only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from maqee.models import load_backbone
from maqee.models.vit import ViT
from maqee.quant import QuantSettings, quantize
from maqee.quant.integer import execute_integers
from maqee.runtime.kernels.statements import state_codes
from maqee.runtime.kernels.stored import StoredGrid, StoredWeights
from tests.quant.makers import pictures
from tests.runtime.kernels.makers import assert_same_codes, codes_for

WEIGHTS = "vit_tiny_patch16_224_augreg_in1k_fp16.safetensors"


def grid_of(module: Any) -> StoredGrid:
    found = StoredGrid.of(module.grid)
    assert found is not None
    return found


@pytest.mark.slow
@torch.no_grad()
def test_only_ties_differ(shared_weights: Path, device: torch.device) -> None:
    from maqee.runtime.kernels.branches import KernelAttention, KernelMlp, expect_codes
    from maqee.runtime.kernels.passing import Coded
    from maqee.runtime.kernels.swapper import Swapper

    settings = QuantSettings(weight_bits=4, act_bits=4)
    images = pictures(3, side=224)
    quantized = quantize(load_backbone(shared_weights / WEIGHTS), images, "erq", settings)
    vit = quantized.model
    assert isinstance(vit, ViT)
    block: Any = vit.blocks[0]
    attn, mlp = block.attn, block.mlp
    with execute_integers(quantized):
        x = vit.embedding(images[:1])
        normed = block.norm1(x)[0], block.norm2(x)[0]
        qkv: Tensor = attn.qkv(normed[0])
        q, k, v = qkv.view(1, 197, 3, 3, 64).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = attn.attend(q, k, v).transpose(1, 2).reshape(197, 192)
        hidden = F.gelu(mlp.fc1(normed[1]))

    def given(weights: StoredWeights, numbers: Tensor) -> Coded:
        codes, sums = codes_for(weights, numbers)
        return Coded(codes.to(device), None if sums is None else sums.to(device))

    vit.to(device)
    swapped: Any = Swapper().swap(block, "block")
    attention, perceptron = swapped
    assert isinstance(attention, KernelAttention)
    assert isinstance(perceptron, KernelMlp)
    made = expect_codes(attention.qkv(given(attention.code.weights, normed[0])))
    reference = []
    for number, name in enumerate(("q", "k", "v")):
        part, grid = qkv[:, 192 * number : 192 * (number + 1)], grid_of(attn.attend.grids[name])
        assert_same_codes(made.codes.cpu()[:, 192 * number : 192 * (number + 1)], part, grid)
        reference.append(state_codes(part, grid))
    inner = expect_codes(perceptron.fc1(given(perceptron.code.weights, normed[1])))
    assert_same_codes(inner.codes.cpu(), hidden, grid_of(mlp.fc2.input), hair=1e-3)
    operands = Coded(torch.cat(reference, dim=1).to(device, torch.int8), None)
    got = expect_codes(attention.attend(operands, 1)).codes.cpu()
    other = got != state_codes(mixed, grid_of(attn.proj.input))
    assert float(other.float().mean()) < 1e-3  # one probability that is tied can change a row
