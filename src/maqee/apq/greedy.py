"""Greedy mixed precision, the allocation of MPTQ-ViT as we read it: static, it knows nothing of exits.

A reconstruction: no code and no formula of it are public. All blocks start at the most bits; again and again the block
that saves most cost for each decibel of signal-to-noise ratio gives up a bit, until the budget is met.
"""

from __future__ import annotations

import numpy as np

from maqee.apq.bits import BlockBits, BlockRisks, bit_costs
from maqee.apq.options import SearchOptions
from maqee.apq.trace import Trace
from maqee.errors import MaqeeError


def greedy_bits(trace: Trace, risks: BlockRisks, total_bits: int, options: SearchOptions) -> BlockBits:
    """Bits of every block with the given sum.

    Args:
        trace: what bits cost.
        risks: noise of every block at all widths from the fewest to the most bits.
        total_bits: the sum to end with.
        options: the limits of widths.
    """
    low, high, depth = options.bit_min, options.bit_max, trace.depth
    if not low * depth <= total_bits <= high * depth:
        raise MaqeeError(
            f"total_bits: {total_bits} cannot be met by {depth} blocks of {low} to {high} bits: "
            f"the nearest that can is {min(max(total_bits, low * depth), high * depth)}."
        )
    first, last = low - risks.lowest, high - risks.lowest
    if first < 0 or last >= risks.noise.shape[1] or np.isnan(risks.noise[:, first : last + 1]).any():
        raise MaqeeError(f"The greedy choice needs the noise of every block at all widths from {low} to {high} bits.")
    level = 10 * np.log10(np.maximum(risks.noise, 1e-30))  # (L, widths), in decibels
    bits, saved, blocks = np.full(depth, high), bit_costs(trace), np.arange(depth)
    while bits.sum() > total_bits:
        column = bits - risks.lowest
        lost = np.maximum(level[blocks, np.maximum(column - 1, 0)] - level[blocks, column], 1e-9)
        score = np.where(bits > low, saved / lost, -np.inf)
        bits[int(score.argmax())] -= 1
    return tuple(int(width) for width in bits)
