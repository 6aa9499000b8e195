"""Compiled roads decide like plain ones, for any number of images. What the compiler makes of them is not looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from maqee.exits import NEVER, EarlyExitModel, Policy
from maqee.runtime.compiled_roads import CompiledSegment, compile_roads
from maqee.runtime.graphs import GraphedSegment
from tests.helpers import max_difference, parting_thresholds
from tests.runtime.makers import segmentation_model, small_model
from tests.runtime.test_graphs import MemoryRecorder


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("closed", [False, True], ids=["all open", "first closed"])
@pytest.mark.parametrize("make", [small_model, segmentation_model])  # heads of the second read earlier blocks
def test_the_same_decisions(make: Callable[[], EarlyExitModel], closed: bool) -> None:
    model = make()
    config = model.backbone.config
    images = torch.randn(9, config.channels, *config.image_size)
    with torch.inference_mode():
        confidence = torch.stack([model.confidence(output) for output in model.forward_all(images).outputs[:-1]], 1)
    thresholds = parting_thresholds(confidence)
    policy = Policy((NEVER, *thresholds[1:]) if closed else thresholds)
    expected = [model.run(part, policy) for part in (images, images[:5])]
    assert len(set(expected[0].exit.tolist())) > 1
    compile_roads(model, backend="eager")
    for graphed in (False, True):
        if graphed:
            model.segments = [GraphedSegment(segment, MemoryRecorder()) for segment in model.segments]
        for part, wanted in zip((images, images[:5]), expected, strict=True):
            found = model.run(part, policy)
            assert torch.equal(found.exit, wanted.exit)
            assert max_difference(found.output, wanted.output) < 1e-4


def test_another_confidence() -> None:
    model = small_model()
    images = torch.randn(3, 1, 16, 16)
    compile_roads(model, backend="eager")
    model.run(images, Policy.same(1.0, model.num_exits))
    model.run(images, Policy.never(model.num_exits))
    model.use_confidence(lambda output: torch.full((len(output),), 0.7))
    assert model.run(images, Policy((0.6,) * model.num_exits)).exit.tolist() == [0, 0, 0]
    assert model.run(images, Policy.never(model.num_exits)).confidence.tolist() == pytest.approx([0.7] * 3)


def test_one_version_for_every_number_of_images() -> None:
    made: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., object]:
        made.append(next(str(node.meta["example_value"].shape) for node in graph.graph.nodes if node.name == "l_x_"))
        return graph.forward

    model = small_model()
    compile_roads(model, backend=backend)
    for count in (3, 7, 20):
        model.run(torch.randn(count, 1, 16, 16), Policy.never(model.num_exits))
    (shape,) = made  # with all exits closed there is one road
    assert shape.startswith("torch.Size([s")
    assert shape.endswith(", 1, 16, 16])")


def test_many_roads_share_one_code() -> None:
    """Torch would run what comes after eight versions of it uncompiled."""
    made: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., object]:
        made.append(1)
        return graph.forward

    road = small_model().segments[0]
    for value in range(10):
        road.use_confidence(lambda output, value=value: output.amax(1) + value)  # type: ignore[misc]
        CompiledSegment(road, backend=backend)(torch.randn(2, 1, 16, 16), {})
    assert len(made) == 10
