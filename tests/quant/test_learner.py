"""Grids that train: one compiled graph for all widths, and the same numbers as the grids they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

from maqee.exits import EarlyExitModel
from maqee.quant.grids import Grid, LogSqrt2Grid, TwinGrid, UniformGrid
from maqee.quant.learner import LearningGrid
from maqee.quant.learning import start_learning
from tests.helpers import max_difference
from tests.quant.makers import pictures, quantized

GRIDS: list[Grid] = [
    UniformGrid(3, torch.tensor(0.3), torch.tensor(3.0)),
    UniformGrid(5, torch.tensor(0.07), torch.tensor(11.0)),
    LogSqrt2Grid(4, torch.tensor(0.9)),
    TwinGrid(4, torch.tensor(0.02), torch.tensor(0.16), True),
    TwinGrid(5, torch.tensor(0.01), torch.tensor(0.08), False),
]


@pytest.mark.parametrize("grid", GRIDS)
def test_the_same_numbers(grid: Grid) -> None:
    x = torch.rand(200) if grid in GRIDS[2::2] else torch.randn(200)  # probabilities, or any numbers
    assert torch.equal(LearningGrid(grid)(x), grid(x))


def test_columns_take_the_step_of_their_group() -> None:
    """Two groups with the steps 1 and 10: 7 is rounded to 7 or to 10."""
    grid = UniformGrid(4, torch.tensor([[1.0, 10.0]]), torch.tensor([[0.0, 0.0]]))
    learner = LearningGrid(grid, gain=(1, 2), group=torch.tensor([0, 1, 1, 0], dtype=torch.uint8))
    assert learner(torch.full((1, 4), 7.0)).tolist() == [[7.0, 10.0, 10.0, 7.0]]


def test_blocks_of_all_widths_are_compiled_once() -> None:
    """With plain numbers as widths each block would be compiled on its own, and after eight none any more."""
    model = quantized(method="erq", exits="mlp", widths=(3, 4, 5, 6), act_widths=(3, 4, 5, 6))
    assert isinstance(model.model, EarlyExitModel)
    names = [name for name in model.layers if ".blocks." in name]
    for number, name in enumerate(names):
        model.layers[name].switch(3 + number % 4, 3 + number // 4 % 4)
    for number, attend in enumerate(model.attends.values()):
        attend.switch(3 + number % 4)
    assert len({(model.layers[name].bits, model.layers[name].input_bits) for name in names}) > 4
    start_learning(model)
    graphs: list[fx.GraphModule] = []

    def count(graph: fx.GraphModule, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    blocks = model.model.backbone.blocks
    tokens = model.model.backbone.embedding(pictures(2))
    expected: list[Tensor] = []
    found: list[Tensor] = []
    for block in blocks:
        expected.append(block(tokens))
        found.append(torch.compile(block, backend=count, fullgraph=True)(tokens))
    assert len(blocks) >= 4
    assert len(graphs) == 1
    assert all(max_difference(one, other) < 1e-4 for one, other in zip(found, expected, strict=True))
