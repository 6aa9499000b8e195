"""The depthwise kernel, and batch norms folded into what stands before them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from maqee.exits.batch_norm import TokenBatchNorm
from maqee.models.layers import TokenDepthwise
from maqee.quant.coded import GridModule, WeightState
from maqee.quant.grids import UniformGrid
from maqee.quant.layer import QuantLayer
from maqee.runtime.kernels.stored import StoredGrid
from tests.helpers import randomize
from tests.runtime.kernels.makers import assert_same_codes

SHAPE, CHANNELS, IMAGES = (3, 4), 20, 2


def make_depthwise(bits: int, zero: int) -> QuantLayer:
    """A convolution with random codes that computes on integers."""
    layer = QuantLayer(TokenDepthwise(CHANNELS), "depthwise", bits)
    codes = torch.randint(0, 2**bits, (CHANNELS, 9))
    steps, zeros = 0.01 + 0.02 * torch.rand(CHANNELS, 1), torch.randint(0, 2**bits, (CHANNELS, 1))
    layer.add_state(WeightState(bits, codes, steps, zeros, None, 0.3 * torch.randn(CHANNELS)))
    layer.set_bits(bits)
    layer.set_input(GridModule(UniformGrid(bits, torch.tensor(4 / 2**bits), torch.tensor(float(zero)))))
    layer.executing = True
    return layer


@pytest.mark.parametrize(("bits", "zero"), [(4, 7), (8, 90), (8, 200)])  # the last with a rest
def test_codes_to_codes(bits: int, zero: int, device: torch.device) -> None:
    from maqee.runtime.kernels.depthwise import Depthwise
    from maqee.runtime.kernels.fitness import store_depthwise
    from maqee.runtime.kernels.passing import Affine, Coded, Target

    layer, norm = make_depthwise(bits, zero), randomize(TokenBatchNorm(CHANNELS), std=0.5)
    assert isinstance(norm, TokenBatchNorm)
    assert layer.input is not None
    x = torch.randn(IMAGES, SHAPE[0] * SHAPE[1], CHANNELS)
    expected = norm(F.gelu(layer(x, SHAPE))).detach().view(-1, CHANNELS)
    stored = StoredGrid.of(layer.input.grid)
    assert stored is not None
    codes = (layer.input.grid.codes(x) - stored.shift).view(-1, CHANNELS)
    coded = Coded(F.pad(codes, (0, 12), value=5).to(device, torch.int8), None)  # what is in padding does not matter

    found = store_depthwise(layer.to(device))
    assert not isinstance(found, str)
    out = StoredGrid(0.0137, 130, 255)
    got = Depthwise(*found, SHAPE, Affine.of(norm.to(device)), Target([out], 64, sums=True))(coded)
    assert got.sums is not None
    result = got.codes.cpu()[:, :CHANNELS]
    assert_same_codes(result, expected, out, hair=5e-4)
    assert torch.equal(got.sums.cpu()[0], result.sum(dim=1, dtype=torch.int32))


@pytest.mark.parametrize(
    ("shape", "bits", "zero"), [((3, 4), 4, 7), ((2, 5), 8, 200), ((1, 6), 8, 90), ((5, 1), 4, 7)], ids=str
)
def test_added_up_over_tokens(shape: tuple[int, int], bits: int, zero: int, device: torch.device) -> None:
    """Exactly the sums of the codes that it puts out otherwise, whatever the number of columns divides into."""
    from maqee.runtime.kernels.depthwise import Depthwise
    from maqee.runtime.kernels.fitness import store_depthwise
    from maqee.runtime.kernels.passing import Affine, Coded, Target

    norm = randomize(TokenBatchNorm(CHANNELS), std=0.5).to(device)
    assert isinstance(norm, TokenBatchNorm)
    found = store_depthwise(make_depthwise(bits, zero).to(device))
    assert not isinstance(found, str)
    grid = StoredGrid(0.0137, 230, 255)
    assert grid.rest != 0
    convolve = Depthwise(*found, shape, Affine.of(norm), Target.plain([grid], CHANNELS))
    tokens = shape[0] * shape[1]
    coded = Coded(torch.randint(-8, 8, (IMAGES * tokens, 32), device=device, dtype=torch.int8), None)
    expected = convolve(coded).codes[:, :CHANNELS].view(IMAGES, tokens, CHANNELS).sum(dim=1)
    got = convolve.pooled(coded)
    assert got.shape == (IMAGES * shape[1] // convolve.strip, CHANNELS)
    assert torch.equal(got.view(IMAGES, -1, CHANNELS).sum(dim=1), expected)


def test_batch_norm_by_hand() -> None:
    from maqee.runtime.kernels.passing import Affine

    norm = TokenBatchNorm(2, eps=0.0)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([2.0, 1.0]))
        norm.bias.copy_(torch.tensor([1.0, 0.0]))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(torch.tensor([3.0, -1.0]))
    norm.running_var.copy_(torch.tensor([4.0, 0.25]))
    affine = Affine.of(norm)  # (x - 3) / 2 * 2 + 1, (x + 1) / 0.5
    assert affine.factor.tolist() == [1.0, 2.0]
    assert affine.summand.tolist() == [-2.0, 2.0]
    share = affine.as_share_of(StoredGrid(0.5, 4, 16)).padded(3)  # from -2 to 6
    assert share.factor.tolist() == [0.125, 0.25, 0.0]
    assert share.summand.tolist() == [0.0, 0.5, 0.0]
