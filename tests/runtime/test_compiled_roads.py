"""Compiled roads decide like plain ones, for any number of images. What the compiler makes of them is not looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from maqee.exits import NEVER, EarlyExitModel, Policy
from maqee.runtime.compiled_roads import compile_roads
from maqee.runtime.graphs import GraphedSegment
from tests.helpers import max_difference, parting_thresholds
from tests.runtime.makers import segmentation_model, small_model
from tests.runtime.test_graphs import MemoryRecorder


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
    compile_roads(model, backend="aot_eager")
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
    compile_roads(model, backend="aot_eager")
    model.run(images, Policy.same(1.0, model.num_exits))
    model.run(images, Policy.never(model.num_exits))
    model.use_confidence(lambda output: torch.full((len(output),), 0.7))
    assert model.run(images, Policy((0.6,) * model.num_exits)).exit.tolist() == [0, 0, 0]
    assert model.run(images, Policy.never(model.num_exits)).confidence.tolist() == pytest.approx([0.7] * 3)
