"""Steps of two groups of columns that are whole multiples of a common one, so that one product does for both.

ERQ sets outlier columns of a layer apart, with steps and zero points of their own. Executed, that is two products with
two sums to keep, which costs a GPU kernel half of its speed. With steps q * unit and p * unit, codes less their zero
points times q and p are codes of one grid with the step `unit`, and as long as they fit into a byte, one product of
bytes is enough. Of narrow codes the multiples may be up to 18, so that steps hardly move for it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from maqee.quant.coded import WeightState
from maqee.quant.grids import UniformGrid

BYTE = 127
MOST_BITS = 5  # multiples of wider codes would be too few to choose from
CLIPPING = 3.0  # how much worse a step is that is too small by some percent than one that is too large by as many
HAIR = 1e-5  # of a ratio: steps were rounded


def common_steps(first: UniformGrid, second: UniformGrid) -> UniformGrid:
    """The second grid, with its steps moved to whole multiples of what the first one's are whole multiples of.

    Both have scales and zero points (out, 1); the middle of the range stays, as nearly as zero points allow. Wide grids
    stay as they are.
    """
    if first.bits > MOST_BITS:
        return second
    p, q = _pairs(first.bits, first.scale)
    ratio = p / q  # (pairs,)
    middle = (second.top / 2 - second.zero) * second.scale
    scale = first.scale * ratio  # (out, pairs)
    zero = torch.round(second.top / 2 - middle / scale).clamp(0, second.top)
    fits = (q * _largest(first.zero, first.top) <= BYTE) & (p * _largest(zero, second.top) <= BYTE)
    apart = torch.log(scale / second.scale)
    loss = torch.where(apart < 0, -CLIPPING * apart, apart).masked_fill(~fits, torch.inf)
    best = loss.argmin(dim=1, keepdim=True)
    return UniformGrid(second.bits, scale.gather(1, best), zero.gather(1, best))


def step_multiples(bits: int, scale: Tensor) -> Tensor | None:
    """(out, groups) whole multiples of a common step that the scales are; None where there are none as small as that.

    Example:
        >>> step_multiples(4, torch.tensor([[0.2, 0.3], [0.5, 0.1]])).tolist()
        [[2, 3], [5, 1]]
    """
    if scale.shape[1] == 1:
        return torch.ones_like(scale, dtype=torch.int64)
    if bits > MOST_BITS:
        return None
    p, q = _pairs(bits, scale)
    apart = (scale[:, 1:] * q / (scale[:, :1] * p) - 1).abs()  # (out, pairs)
    nearest, place = apart.min(dim=1)
    if bool((nearest > HAIR).any()):
        return None
    return torch.stack([q[place], p[place]], dim=1).to(torch.int64)


class JoinedGroups(NamedTuple):
    """Two groups of columns on one grid.

    Attributes:
        numbers: (out, in) whole multiples of the common step, each within a signed byte.
        step: (out,) the common step.
        multiples: (out, groups) of it that the groups' own steps are.
    """

    numbers: Tensor
    step: Tensor
    multiples: Tensor


def join_groups(state: WeightState) -> JoinedGroups | None:
    """Weights in two groups on one grid; None where there is one group, or no common step, or no byte holds them."""
    multiples = None if state.group is None else step_multiples(state.bits, state.scale)
    if state.group is None or multiples is None:
        return None
    columns = state.group.long()
    numbers = (state.codes.to(torch.int64) - state.zero[:, columns]) * multiples[:, columns]
    if int(numbers.abs().max()) > BYTE:
        return None
    return JoinedGroups(numbers, state.scale[:, 0] / multiples[:, 0], multiples)


def _largest(zero: Tensor, top: int) -> Tensor:
    """The largest distance of a code from its zero point."""
    return torch.maximum(zero, top - zero)


def _pairs(bits: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers without a common divisor, the smallest first: as large as codes near a zero point in the middle allow."""
    most = BYTE // 2 ** (bits - 1) if bits > 1 else BYTE
    numbers = torch.arange(1, most + 1)
    p, q = torch.cartesian_prod(numbers, numbers).unbind(1)
    alone = torch.gcd(p, q) == 1
    order = torch.argsort((p + q)[alone], stable=True)
    return p[alone][order].to(like), q[alone][order].to(like)
