"""Many networks in one process: all of them are compiled, not the first eight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from maqee.models.compiling import compile_each, many_versions


class Counter:
    """A backend that compiles nothing and counts what it is given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., object]:
        self.graphs += 1
        return graph.forward


@pytest.mark.parametrize(("many", "compiled"), [(False, 8), (True, 11)])
def test_late_networks_are_compiled_too(many: bool, compiled: int) -> None:
    class Doubled(nn.Module):  # defined anew each time: versions belong to the code of `forward`
        def __init__(self, width: int) -> None:
            super().__init__()
            self.linear = nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor:
            return 2 * self.linear(x)

    torch._dynamo.reset()
    counter = Counter()
    with many_versions() if many else nullcontext(), torch.inference_mode():
        for width in range(2, 13):
            network = Doubled(width)
            compile_each([network], backend=counter, dynamic=False)
            x = torch.randn(2, width)
            assert torch.equal(network(x), 2 * network.linear(x))
    assert counter.graphs == compiled
