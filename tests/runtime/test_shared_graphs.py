"""Several streams and runs of one recorded model in turn: none may read what another has written over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from maqee.exits import Decision, EarlyExitModel, Policy
from maqee.runtime.graphs import GraphedSegment
from tests.helpers import max_difference, parting_thresholds
from tests.runtime.makers import ready, segmentation_model, small_model
from tests.runtime.test_graphs import SharedMemoryRecorder


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize(("make", "task"), [(small_model, "classification"), (segmentation_model, "segmentation")])
def test_streams_and_runs_in_turn(
    make: Callable[[], EarlyExitModel], task: str, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("maqee.runtime.stream.roads_ahead", lambda device: ahead)
    model = make()
    config = model.backbone.config
    images = torch.randn(40, config.channels, *config.image_size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        outputs = model.forward_all(images).outputs[:-1]
    thresholds = parting_thresholds(torch.stack([model.confidence(output) for output in outputs], dim=1))
    loaded = ready(model, task, Policy(thresholds))
    expected = loaded.run(images)
    model.segments = [GraphedSegment(segment, SharedMemoryRecorder()) for segment in model.segments]

    def checked(first: int, answers: Iterator[Decision]) -> Iterator[int]:
        for number, answer in enumerate(answers, first):
            assert int(answer.exit) == int(expected.exit[number])
            assert max_difference(answer.output, expected.output[number]) < 1e-4
            yield number

    streams = [checked(20 * index, loaded.stream(iter(images[20 * index :][:20]), batch=4)) for index in (0, 1)]
    seen: list[int] = []
    for pair in zip(*streams, strict=True):
        seen += pair
        other = loaded.run(images[pair[0] : pair[0] + 4])
        assert torch.equal(other.exit, expected.exit[pair[0] : pair[0] + 4])
    assert sorted(seen) == list(range(40))
