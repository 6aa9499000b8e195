"""Tokens read where they lie: codes as of a slice, sums as of what a norm puts out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.exits.lgvit import pick
from maqee.models import TokenShape
from maqee.runtime.kernels.stored import StoredWeights
from tests.helpers import randomize
from tests.runtime.kernels.makers import Case, assert_same_codes, make_layer

IMAGES, GRID, FRONT = 3, (5, 7), 2
SHAPE = TokenShape(1, 64, GRID, FRONT, 2, 64, "class")


def tokens(dim: int = 64) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return 0.7 * torch.randn(IMAGES, FRONT + GRID[0] * GRID[1], dim, generator=generator) + 0.4


def layer_norm(dim: int = 64) -> nn.LayerNorm:
    norm = randomize(nn.LayerNorm(dim, eps=1e-6), std=0.5)
    assert isinstance(norm, nn.LayerNorm)
    return norm


@pytest.mark.parametrize(
    ("case", "normed", "stride", "dim"),
    [
        (Case(4, 4, 7), True, 1, 64),
        (Case(8, 8, 100, grouped=True), True, 1, 70),
        (Case(8, 6, 30), False, 1, 64),
        (Case(8, 6, 30), True, 2, 70),
        (Case(8, 8, 100, grouped=True), False, 2, 64),
        (Case(4, 4, 7), False, 3, 70),
    ],
    ids=str,
)
@torch.no_grad()
def test_codes_and_sums(case: Case, normed: bool, stride: int, dim: int, device: torch.device) -> None:
    """Codes are those of a slice; sums of each part are those of numbers before a norm's factors."""
    from maqee.runtime.kernels.fitness import store_layer
    from maqee.runtime.kernels.token_rows import Picked, TokenReader

    weights = store_layer(make_layer(case, dim, 6).to(device))
    assert isinstance(weights, StoredWeights)
    norm, x = layer_norm(dim), tokens(dim)
    taken = pick(x[:, FRONT:], GRID, stride)
    numbers, bare = (norm(taken), F.layer_norm(taken, (dim,), eps=1e-6)) if normed else (taken, taken)
    reader = TokenReader(Picked.from_grid(SHAPE, stride), norm.to(device) if normed else None, weights, adds_up=True)
    coded, totals = reader(x.to(device))
    assert coded is not None
    codes = coded.codes.cpu()
    order = torch.arange(dim) if weights.columns is None else weights.columns.cpu().long()
    there = order >= 0
    assert_same_codes(codes[:, there], numbers.reshape(-1, dim)[:, order[there]], weights.grid)
    assert not bool(codes[:, ~there].any())
    halves = [codes[:, : weights.split], codes[:, weights.split :]][: weights.groups]
    sums = torch.stack([half.sum(dim=1, dtype=torch.int32) for half in halves])
    assert coded.sums is None if weights.rests is None else torch.equal(coded.sums.cpu(), sums)  # type: ignore[union-attr]
    parts = torch.stack([part.sum(dim=1) for part in bare.double().split(16, dim=1)], dim=1)
    assert totals is not None
    assert torch.allclose(totals.cpu().double(), parts, atol=1e-4)


@torch.no_grad()
def test_all_tokens_behind_the_first(device: torch.device) -> None:
    """Without a grid any number of tokens is read; without a layer there are no codes."""
    from maqee.runtime.kernels.token_rows import Picked, TokenReader

    x = tokens().to(device)
    reader = TokenReader(Picked(FRONT), None, None, adds_up=True)
    for given in (x, x[:, :11], x[1:2, :3]):
        coded, totals = reader(given)
        assert coded is None
        assert totals is not None
        assert torch.allclose(totals.sum(dim=1), given[:, FRONT:].sum(dim=1), atol=1e-5)


@torch.no_grad()
def test_tokens_in_half_are_read_as_they_are(device: torch.device) -> None:
    from maqee.runtime.kernels.fitness import store_layer
    from maqee.runtime.kernels.token_rows import Picked, TokenReader

    weights = store_layer(make_layer(Case(4, 4, 7), 64, 6).to(device))
    assert isinstance(weights, StoredWeights)
    read = TokenReader(Picked(FRONT), layer_norm().to(device), weights, adds_up=True)
    halves, floats = read(tokens().half().to(device)), read(tokens().half().float().to(device))
    assert halves.coded is not None
    assert floats.coded is not None
    assert halves.totals is not None
    assert floats.totals is not None
    assert torch.equal(halves.coded.codes, floats.coded.codes)
    assert torch.equal(halves.totals, floats.totals)


def test_picked_by_hand() -> None:
    from maqee.runtime.kernels.token_rows import Picked

    picked = Picked.from_grid(SHAPE, 2)  # rows 0, 2 and 4, columns 0, 2, 4 and 6
    assert picked == Picked(front=2, number=12, across=4, down=14, step=2, tokens=37)
    assert picked.among(37) == 12
    assert Picked(2).among(21) == 19
    with pytest.raises(MaqeeError, match="reads images of 37 tokens, and got 50: resize the images"):
        picked.among(50)
