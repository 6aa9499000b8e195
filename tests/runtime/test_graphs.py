"""Graphed execution without a GPU: a recorder that, like a graph, always writes to the same memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maqee.errors import MaqeeError
from maqee.exits import NEVER, EarlyExitModel, Policy, add_exits
from maqee.exits.segment import RunSegment, SegmentOutput
from maqee.models import load_backbone
from maqee.runtime import load
from maqee.runtime.graphs import (
    GraphedSegment,
    collection_paused,
    forget_graphs,
    padded_size,
    plain_segments,
    use_cuda_graphs,
)
from maqee.runtime.token_queue import Group, TokenQueue
from tests.exits.test_early_exit import SumHead
from tests.helpers import max_difference, parting_thresholds, randomize
from tests.runtime.makers import small_model, write_compressed_run


class MemoryRecorder:
    """Replays by running the function again into the memory of its first outputs."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, function: Callable[[], SegmentOutput]) -> tuple[Callable[[], None], SegmentOutput]:
        outputs = function()

        def replay() -> None:
            self.replays += 1
            fresh = function()
            for target, source in zip(_flat(outputs), _flat(fresh), strict=True):
                target.copy_(source)

        return replay, outputs


def _flat(outputs: SegmentOutput) -> list[torch.Tensor]:
    return [outputs.x, *outputs.kept.values(), outputs.output, outputs.confidence]


@given(count=st.integers(1, 5000))
def test_ladder(count: int) -> None:
    size = padded_size(count)
    assert count <= size
    assert size <= max(1.125 * count, 2 * count if count <= 16 else 0)
    assert padded_size(size) == size  # a size on the ladder stays


def test_ladder_has_few_steps() -> None:
    assert len({padded_size(count) for count in range(1, 257)}) == 5 + 8 * 4


@pytest.mark.parametrize("kind", ["lgvit", "reads"])
def test_graphed_run_equals_plain_run(kind: str) -> None:
    backbone = load_backbone("test-vit")
    if kind == "lgvit":
        model = add_exits(backbone, "lgvit")
    else:
        model = EarlyExitModel(backbone, (2, 3), ("test-sum", "test-sum"), final="test-sum")
        assert isinstance(model.head(0), SumHead)  # it reads earlier blocks
    randomize(model, std=0.3).double()
    plain = list(model.segments)
    recorder = MemoryRecorder()
    graphed = [GraphedSegment(segment, recorder) for segment in plain]
    generator = torch.Generator().manual_seed(0)
    earlier = []
    for batch in (1, 37, 24, 37, 5):
        images = torch.randn(batch, 3, 32, 32, generator=generator, dtype=torch.float64)
        model.segments = plain
        with torch.no_grad():
            outputs = model.forward_all(images).outputs
        policy = Policy(tuple(model.confidence(output).median().item() + 1e-9 for output in outputs[:-1]))
        expected = model.run(images, policy)
        model.segments = list(graphed)
        decision = model.run(images, policy)
        assert torch.equal(decision.exit, expected.exit)
        assert max_difference(decision.output, expected.output) < 1e-9
        earlier.append((decision.output, expected.output))
    assert recorder.replays > 5
    for kept, expected_output in earlier:  # no later run may have written over an earlier answer
        assert max_difference(kept, expected_output) < 1e-9


class SharedMemoryRecorder(MemoryRecorder):
    """Graphs of a road share a pool: whatever runs may write over what others of it have put out."""

    def __init__(self) -> None:
        super().__init__()
        self.all_outputs: list[SegmentOutput] = []

    def __call__(self, function: Callable[[], SegmentOutput]) -> tuple[Callable[[], None], SegmentOutput]:
        replay, outputs = super().__call__(function)
        self.all_outputs.append(outputs)

        def write_over_others() -> None:
            for others in self.all_outputs:
                for tensor in _flat(others):
                    tensor.fill_(float("nan"))
            replay()

        return write_over_others, outputs


def test_what_later_heads_read_outlives_the_graphs_of_other_roads() -> None:
    model = EarlyExitModel(load_backbone("test-vit"), (2, 3), ("test-sum", "test-sum"), final="test-sum")
    randomize(model, std=0.3)
    images = torch.randn(3, 3, 32, 32)
    model.use_confidence(lambda output: torch.zeros(len(output)))
    unsure = Policy.same(0.5, 2)  # nobody leaves, so that nothing is taken out and copied
    expected = model.run(images, unsure)
    assert expected.exit.tolist() == [2, 2, 2]
    model.segments = [GraphedSegment(segment, SharedMemoryRecorder()) for segment in model.segments]
    for count in (3, 2, 3):
        output = model.run(images[:count], unsure).output
        assert max_difference(output, expected.output[:count]) < 1e-5


def test_a_model_that_moves_forgets_its_graphs(tmp_path: Path) -> None:
    """They read weights where these lay; and kernels are prepared from roads, not from graphs of roads."""
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), torch.randn(6, 1, 16, 16))
    model = load(folder)
    plain = list(model.model.segments)
    model.model.segments = [GraphedSegment(segment, MemoryRecorder()) for segment in plain]
    assert plain_segments(model.model) == plain
    assert model.to("cpu").model.segments == plain
    forget_graphs(model.model)  # none is left, and nothing happens
    assert model.model.segments == plain


def _waiting(count: int) -> Group:
    x = torch.arange(count, dtype=torch.float32)[:, None, None].expand(count, 2, 3).contiguous()
    return Group(np.arange(count), x, {1: x + 0.5})


def test_full_batches_are_read_where_they_wait() -> None:
    given: list[int] = []

    class Doubling:
        """A road that notes where its input lies."""

        def __call__(self, x: torch.Tensor, kept: Mapping[int, torch.Tensor]) -> SegmentOutput:
            given.append(x.data_ptr())
            return SegmentOutput(2 * x + kept[1], {}, x[:, 0], x[:, 0, 0])

    graphed = GraphedSegment(cast(RunSegment, Doubling()), MemoryRecorder())
    queue, group = TokenQueue(4, graphed.lend), _waiting(8)
    queue.put(group, np.arange(8))
    taken = [queue.take(4), queue.take(4)]
    for index, part in enumerate(taken):
        expected = 3 * group.x[4 * index : 4 * index + 4] + 0.5
        assert torch.equal(graphed(part.x, part.kept).x, expected)
    assert set(given) == {part.x.data_ptr() for part in taken}
    assert not graphed.recorded
    queue.put(group, np.arange(3))  # what is left at the end is no full batch
    rest = queue.take(3)
    assert torch.equal(graphed(rest.x, rest.kept).x, 3 * group.x[:3] + 0.5)
    other = group.x[:4].clone()  # a full batch from elsewhere
    assert torch.equal(graphed(other, {1: other}).x, 3 * other)
    assert sorted(graphed.recorded) == [4]


def test_memory_is_lent_to_one_queue_at_a_time() -> None:
    graphed, group = GraphedSegment(small_model().segments[1], MemoryRecorder()), _waiting(2)
    first, second = TokenQueue(4, graphed.lend), TokenQueue(4, graphed.lend)
    for queue in (first, second):
        queue.put(group, np.arange(2))
    here, there = first.take(2).x.data_ptr(), second.take(2).x.data_ptr()
    assert here != there
    del queue, first, second  # as when a stream ends, or is left
    third = TokenQueue(4, graphed.lend)
    third.put(group, np.arange(2))
    assert third.take(2).x.data_ptr() == here
    del third
    wider = TokenQueue(8, graphed.lend)
    wider.put(_waiting(7), np.arange(7))
    assert torch.equal(wider.take(7).x, _waiting(7).x)


def test_recorded_on_a_gpu(gpu: torch.device) -> None:
    """Real graphs, in turn larger and smaller than the ones before; in double precision, so that sums agree."""
    model = add_exits(load_backbone("test-vit"), "lgvit")
    randomize(model, std=0.3).double().to(gpu)
    plain, batches = list(model.segments), [torch.randn(size, 3, 32, 32).double().to(gpu) for size in (37, 24, 37, 5)]
    use_cuda_graphs(model)
    graphed = list(model.segments)
    for images in batches:
        model.segments = plain
        with torch.no_grad():
            confidence = torch.stack([model.confidence(output) for output in model.forward_all(images).outputs[:-1]])
        policy = Policy(parting_thresholds(confidence.t()))
        expected = model.run(images, policy)
        model.segments = graphed
        decision = model.run(images, policy)
        assert torch.equal(decision.exit, expected.exit)
        assert max_difference(decision.output, expected.output) < 1e-9


def test_kernels_recorded_at_many_sizes(tmp_path: Path, gpu: torch.device) -> None:
    """Tiles are measured for every octave of sizes, never while a road is recorded; streams end with part batches."""
    pytest.importorskip("triton", reason="Triton is not installed on this machine")
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), torch.randn(24, 1, 16, 16))
    model = load(folder, engine="triton", device=str(gpu))
    batches = [torch.randn(size, 1, 16, 16, device=gpu) for size in (37, 5, 24, 1, 37)]
    expected = [model.run(images) for images in batches]
    use_cuda_graphs(model.model)
    for found in ([model.run(images) for images in batches], list(model.stream(batches, batch=16))):
        for decision, wanted in zip(found, expected, strict=True):
            assert torch.equal(decision.exit, wanted.exit)
            assert max_difference(decision.output, wanted.output) < 1e-5
    again = model.to(gpu)  # kernels are prepared anew, from roads that are not recorded
    assert torch.equal(again.run(batches[0]).exit, expected[0].exit)


def test_needs_a_gpu() -> None:
    with pytest.raises(MaqeeError, match="on a GPU"):
        use_cuda_graphs(add_exits(load_backbone("test-vit"), "mlp"))


def test_another_confidence_reaches_graphed_segments() -> None:
    """A graph has the old confidence in it: it must be recorded again."""
    model = randomize(add_exits(load_backbone("test-vit"), "mlp", positions=(1, 2)))
    assert isinstance(model, EarlyExitModel)
    model.segments = [GraphedSegment(segment, MemoryRecorder()) for segment in model.segments]
    images = torch.randn(3, 3, 32, 32)
    assert model.run(images, Policy.same(1.0, 2)).exit.tolist() == [2, 2, 2]
    model.run(images, Policy((NEVER, 1.0)))
    model.use_confidence(lambda output: torch.full((len(output),), 0.7))
    assert model.run(images, Policy((0.9, 0.6))).exit.tolist() == [1, 1, 1]
    assert model.run(images, Policy((0.5, 0.6))).confidence.tolist() == pytest.approx([0.7] * 3)
    assert model.run(images, Policy((NEVER, 0.6))).confidence.tolist() == pytest.approx([0.7] * 3)


def test_nothing_is_collected_while_recording() -> None:
    def fail_inside() -> None:
        with collection_paused():
            assert not gc.isenabled()
            raise ValueError("in the middle")

    assert gc.isenabled()
    with pytest.raises(ValueError, match="in the middle"):
        fail_inside()
    assert gc.isenabled()
    gc.disable()
    with collection_paused():
        pass
    assert not gc.isenabled(), "it was off before, and whoever turned it off turns it on"
    gc.enable()
