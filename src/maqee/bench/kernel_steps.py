"""The kernels of one block one by one, each on what the one before puts out."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from maqee.bench.timing import Run
from maqee.parts import attention_macs, linear_macs
from maqee.runtime.kernels.attention import MOST_TOKENS
from maqee.runtime.kernels.branches import KernelAttention, KernelMlp, expect_codes
from maqee.runtime.kernels.linear import Linear


class Step(NamedTuple):
    """One kernel.

    Attributes:
        name: what it does in the block.
        run: calls it.
        operations: multiplications and additions of its products, padding not counted; None where it has none.
    """

    name: str
    run: Run
    operations: int | None


def block_steps(block: nn.Module, x: Tensor) -> list[Step]:
    """The kernels of a block; none for a branch that runs in another way (see `maqee.runtime.kernels.swapping`).

    Args:
        block: of a network that uses kernels.
        x: tokens in front of it, (batch, tokens, dim).
    """
    if not isinstance(block, nn.Sequential):
        return []
    attention, mlp = block
    steps: list[Step] = []
    if isinstance(attention, KernelAttention) and (attention.plain is None or x.shape[1] <= MOST_TOKENS):
        steps += _attention_steps(attention, x)
    if isinstance(mlp, KernelMlp):
        steps += _mlp_steps(mlp, attention(x))
    return steps


def _attention_steps(attention: KernelAttention, x: Tensor) -> list[Step]:
    x = x.contiguous()
    batch, tokens, dim = x.shape
    stream = x.view(-1, dim) if attention.adds else None
    coded = attention.code(x)
    qkv = expect_codes(attention.qkv(coded))
    mixed = expect_codes(attention.attend(qkv, batch))
    seen = tokens if attention.attend.windows is None else attention.attend.windows.tokens
    return [
        Step("norm 1", partial(attention.code, x), None),
        Step("qkv", partial(attention.qkv, coded), _operations(attention.qkv, batch * tokens)),
        Step("attention", partial(attention.attend, qkv, batch), 2 * batch * attention_macs(tokens, seen, dim)),
        Step("projection", partial(attention.proj, mixed, stream), _operations(attention.proj, batch * tokens)),
    ]


def _mlp_steps(mlp: KernelMlp, x: Tensor) -> list[Step]:
    x = x.contiguous()
    stream = x.view(-1, x.shape[-1])
    coded = mlp.code(x)
    hidden = expect_codes(mlp.fc1(coded))
    return [
        Step("norm 2", partial(mlp.code, x), None),
        Step("MLP, first layer", partial(mlp.fc1, coded), _operations(mlp.fc1, len(stream))),
        Step("MLP, second layer", partial(mlp.fc2, hidden, stream), _operations(mlp.fc2, len(stream))),
    ]


def _operations(layer: Linear, rows: int) -> int:
    return 2 * linear_macs(rows, layer.weights.inputs, layer.weights.outputs)
