"""The attention kernel against the attention product that it stands for, which computes on integers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from maqee.quant.attend import QuantAttend
from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid
from maqee.runtime.kernels.stored import StoredGrid
from tests.runtime.kernels.makers import assert_same_codes, make_attend


def number(value: float) -> Tensor:
    return torch.tensor(value)


GRIDS: dict[str, tuple[int, Grid]] = {
    "log-4": (4, LogSqrt2Grid(4, number(0.7))),
    "log-2": (2, LogSqrt2Grid(2, number(0.3))),
    "log-8": (8, LogSqrt2Grid(8, number(0.9))),
    "uniform-4": (4, UniformGrid(4, number(0.04), number(0.0))),
    "uniform-8": (8, UniformGrid(8, number(0.004), number(3.0))),
    "twin-5": (5, TwinGrid(5, number(0.004), number(0.032), signed=False)),
}
IMAGES, HEADS = 2, 2


@pytest.mark.parametrize(("tokens", "width"), [(19, 24), (70, 16)], ids=["one block", "two blocks"])
@pytest.mark.parametrize("name", GRIDS)
def test_codes_to_codes(name: str, tokens: int, width: int, device: torch.device) -> None:
    from maqee.runtime.kernels.attention import CodedAttend, Probabilities
    from maqee.runtime.kernels.passing import Coded, Target

    bits, p = GRIDS[name]
    spread = 5 / 2**bits
    middle = 2 ** (bits - 1)
    operands = [
        UniformGrid(bits, number(spread * f), number(float(middle + d))) for f, d in ((1, 0), (0.9, 1), (0.8, -1))
    ]
    attend = make_attend(bits, dict(zip("qkpv", (operands[0], operands[1], p, operands[2]), strict=True)))
    x, (q, k, v) = untied(attend, p, (IMAGES, tokens, 3, HEADS, width))
    expected = attend(q, k, v).transpose(1, 2).reshape(IMAGES * tokens, HEADS * width)

    stored = [StoredGrid.of(grid) for grid in operands]
    grids = [grid for grid in stored if grid is not None]
    assert len(grids) == 3
    codes = [grid.codes(x[:, :, i]) - grids[i].shift for i, grid in enumerate(operands)]
    qkv = Coded(torch.stack(codes, dim=2).reshape(IMAGES * tokens, -1).to(device, torch.int8), None)
    kind = Probabilities.of(p)
    assert kind is not None
    floats = CodedAttend(grids, kind, HEADS, width, None)(qkv, IMAGES)
    assert isinstance(floats, Tensor)
    assert torch.allclose(floats.cpu(), expected, rtol=1e-5, atol=1e-5)

    out = StoredGrid(0.01371, 120, 255)
    coded = CodedAttend(grids, kind, HEADS, width, Target([out], 64, sums=True))(qkv, IMAGES)
    assert isinstance(coded, Coded)
    assert coded.sums is not None
    mixed = coded.codes.cpu()[:, : HEADS * width]
    assert_same_codes(mixed, expected, out, hair=1e-3)
    assert torch.equal(coded.sums.cpu()[0], mixed.sum(dim=1, dtype=torch.int32))


def untied(attend: QuantAttend, grid: Grid, shape: tuple[int, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Operands, none of whose probabilities is in the middle of two codes: it may become either, on any processor."""
    for seed in range(50):
        x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
        q, k, v = x.permute(2, 0, 3, 1, 4).unbind(0)
        p = attend.probabilities(q, k)
        if torch.equal(grid.codes(p * (1 - 3e-6)), grid.codes(p * (1 + 3e-6))):
            return x, (q, k, v)
    raise AssertionError("every seed has ties")


def test_grids_that_the_kernel_does_not_know() -> None:
    from maqee.runtime.kernels.attention import Probabilities

    assert Probabilities.of(TwinGrid(4, number(0.1), number(0.2), signed=True)) is None
    assert Probabilities.of(UniformGrid(4, number(0.1), number(0.5))) is None
    assert Probabilities.of(UniformGrid(4, torch.ones(2), torch.zeros(2))) is None
