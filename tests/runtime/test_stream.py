"""A stream says what `run` says, whatever the batches; and it ends cleanly, whatever happens."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

import maqee
from maqee.errors import MaqeeError
from maqee.exits import Decision, EarlyExitModel, Policy
from maqee.models import ViTConfig
from maqee.models.load import build_backbone
from maqee.runtime import ReadyModel
from maqee.runtime.graphs import GraphedSegment
from tests.helpers import parting_thresholds, randomize
from tests.runtime.makers import (
    SIZES,
    detection_model,
    ready,
    segmentation_model,
    small_model,
    some_pixels,
    write_compressed_run,
    write_pictures,
)
from tests.runtime.test_graphs import MemoryRecorder

COUNT = 29


def no_exits() -> EarlyExitModel:
    """A trained model without exits."""
    backbone = build_backbone(ViTConfig(**SIZES, channels=1))  # type: ignore[arg-type]
    model = randomize(EarlyExitModel(backbone, (), ()), std=0.3)
    assert isinstance(model, EarlyExitModel)
    return model


def graphed(make: Callable[[], EarlyExitModel]) -> EarlyExitModel:
    """Roads that always write into the same memory, as recorded CUDA graphs do."""
    model = make()
    model.segments = [GraphedSegment(segment, MemoryRecorder()) for segment in model.segments]
    return model


MODELS: dict[str, tuple[Callable[[], EarlyExitModel], str]] = {
    "exits": (small_model, "classification"),
    "no exits": (no_exits, "classification"),
    "segmentation": (segmentation_model, "segmentation"),  # its heads read earlier blocks
    "detection": (detection_model, "detection"),
    "graphs": (partial(graphed, small_model), "classification"),
    "graphs of segmentation": (partial(graphed, segmentation_model), "segmentation"),
}


@pytest.fixture(params=[0, 1], ids=["settled at once", "one road ahead"], autouse=True, scope="module")
def ahead(request: pytest.FixtureRequest) -> Iterator[int]:
    """Roads in flight, as on a GPU, also where there is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("maqee.runtime.stream.roads_ahead", lambda device: request.param)
        yield request.param


@cache
def prepared(name: str) -> tuple[ReadyModel, Tensor, Decision]:
    """A model whose images leave at every exit, with what `run` decides for all of them together."""
    make, task = MODELS[name]
    model = make()
    config = model.backbone.config
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(COUNT, config.channels, *config.image_size, generator=generator)
    with torch.inference_mode():
        outputs = model.forward_all(images).outputs[:-1]
    confidence = torch.stack([model.confidence(output) for output in outputs], dim=1) if outputs else torch.empty(29, 0)
    loaded = ready(model, task, Policy(parting_thresholds(confidence)))
    expected = loaded.run(images)
    assert len(set(expected.exit.tolist())) == model.num_exits + 1
    return loaded, images, expected


def joined(found: list[Decision]) -> Decision:
    """Decisions of single images and of batches, as one."""
    whole = [one if one.exit.ndim else Decision(*(values[None] for values in one)) for one in found]
    return Decision(*map(torch.cat, zip(*whole, strict=True)))


def assert_same(found: Decision, expected: Decision) -> None:
    """The same exits; numbers as far as another batch size leaves them."""
    assert torch.equal(found.exit, expected.exit)
    assert torch.allclose(found.confidence, expected.confidence, atol=1e-5)
    assert torch.allclose(found.output, expected.output, atol=1e-4, rtol=1e-4)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("maqee-")]


# --- decisions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=12)
@given(data=st.data())
def test_any_order_any_batch_any_chunks_same_decisions(name: str, data: st.DataObject) -> None:
    loaded, images, expected = prepared(name)
    order = torch.tensor(data.draw(st.permutations(range(COUNT))), dtype=torch.int64)
    batch = data.draw(st.integers(1, COUNT + 5))
    limit = data.draw(st.none() | st.integers(batch, 3 * batch))
    chunks, start = list[Tensor](), 0
    while start < COUNT:
        size = data.draw(st.integers(0, COUNT - start))  # 0 is one image without the batch dimension
        chunks.append(images[order[start : start + size]] if size else images[order[start]])
        start += size or 1
    found = list(loaded.stream(iter(chunks), batch, limit=limit))
    assert [one.exit.shape for one in found] == [chunk.shape[:-3] for chunk in chunks]
    assert_same(joined(found), Decision(*(values[order] for values in expected)))
    assert threads() == []


def test_blocks_see_full_batches() -> None:
    """Deepest first, full until the end, and then what is left of every road once."""
    loaded, images, expected = prepared("exits")
    sizes: list[list[int]] = [[], [], []]
    model = small_model()
    for road, segment in enumerate(model.segments):

        def count(x: Tensor, kept: Any, road: int = road, segment: Any = segment) -> Any:
            sizes[road].append(len(x))
            return segment(x, kept)

        model.segments[road] = count  # type: ignore[call-overload]
    list(ready(model, policy=loaded.policy).stream(images.split(3), batch=4))
    reached = [COUNT, int((expected.exit > 0).sum()), int((expected.exit > 1).sum())]
    assert [sum(road) for road in sizes] == reached
    for seen, total in zip(sizes, reached, strict=True):
        assert seen == [4] * (total // 4) + ([total % 4] if total % 4 else [])


def test_executed_codes(tmp_path: Path) -> None:
    """The same on another engine: only roads are used."""
    images = torch.randn(24, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    executed = maqee.load(folder, engine="reference")
    assert_same(joined(list(executed.stream(images, batch=5))), executed.run(images))
    assert_same(joined(list(executed.stream(images.unbind(), batch=5))), executed.run(images))


# --- pictures --------------------------------------------------------------------------------------------------------


def test_pictures_get_predictions(tmp_path: Path) -> None:
    files = write_pictures(tmp_path / "pics", count=8)
    loaded = ready(small_model(channels=3))
    expected = loaded.predict(files)
    given: list[Any] = [str(files[0]), files[1], Image.open(files[2]), np.asarray(Image.open(files[3])), *files[4:]]
    found = list(loaded.stream(given, batch=3, top=5))
    assert [one.labels[0].number for one in found] == [one.labels[0].number for one in expected]
    assert [one.confidence for one in found] == pytest.approx([one.confidence for one in expected], abs=1e-5)
    assert [one.image for one in found][:2] == [str(files[0]), str(files[1])]
    assert [one.image for one in loaded.stream(tmp_path / "pics", batch=3)] == [str(file) for file in files]
    assert [one.image for one in loaded.stream(np.stack([some_pixels()] * 2))] == ["image 0", "image 1"]


def test_masks_have_the_size_of_their_pictures(tmp_path: Path) -> None:
    files = [*write_pictures(tmp_path / "a", 2, size=(40, 32)), *write_pictures(tmp_path / "b", 2, size=(32, 50))]
    loaded = ready(segmentation_model(), "segmentation")
    expected, found = loaded.predict(files), list(loaded.stream(files, batch=3))
    assert [one.mask.shape for one in found if one.mask is not None] == [(40, 32)] * 2 + [(32, 50)] * 2
    assert [one.areas[0].number for one in found] == [one.areas[0].number for one in expected]


# --- how it ends -----------------------------------------------------------------------------------------------------


def test_answers_before_an_error_of_the_source_come_first() -> None:
    loaded, images, expected = prepared("exits")

    def fails() -> Iterator[Tensor]:
        yield from images[:6]
        raise OSError("camera unplugged")

    answers = loaded.stream(fails(), batch=4)
    found = list(itertools.islice(answers, 6))
    with pytest.raises(OSError, match="unplugged"):
        next(answers)
    assert torch.equal(torch.stack([one.exit for one in found]), expected.exit[:6])
    assert threads() == []


def test_a_damaged_file_is_named_in_its_turn(tmp_path: Path) -> None:
    files = write_pictures(tmp_path, count=5)
    files[3].write_bytes(b"no picture")
    answers = ready(small_model(channels=3)).stream(files, batch=2)
    assert [one.image for one in itertools.islice(answers, 3)] == [str(file) for file in files[:3]]
    with pytest.raises(MaqeeError, match=r"3\.png cannot be read as an image"):
        next(answers)
    assert threads() == []


def test_an_error_of_the_model_ends_the_stream() -> None:
    model = small_model()

    def breaks(x: Tensor, kept: Any) -> Any:
        raise RuntimeError("out of memory")

    model.segments[1] = breaks  # type: ignore[call-overload]
    loaded = ready(model, policy=Policy.same(1.0, 2))  # open exits, so that every road is taken
    with pytest.raises(RuntimeError, match="out of memory"):
        list(loaded.stream((torch.randn(1, 16, 16) for _ in itertools.count()), batch=2))
    assert threads() == []


def test_a_caller_that_stops_early_leaves_no_thread() -> None:
    loaded, images, _ = prepared("exits")
    taken = 0

    def endless() -> Iterator[Tensor]:
        nonlocal taken
        for image in itertools.cycle(images):
            taken += 1
            yield image

    answers = loaded.stream(endless(), batch=4, limit=8)
    assert threads() == []  # nothing is read before the first answer is asked for
    first = list(itertools.islice(answers, 5))
    assert len(first) == 5
    answers.close()  # type: ignore[attr-defined]
    assert threads() == []
    assert taken < 60


def test_one_image_that_goes_deep_does_not_hold_many_up() -> None:
    """The first image goes to the end and all others leave at once: no more than the limit may pile up behind it."""
    loaded, images, expected = prepared("exits")
    deep, shallow = images[expected.exit == 2][0], images[expected.exit == 0][0]
    read = 0

    def source() -> Iterator[Tensor]:
        nonlocal read
        yield deep
        for _ in range(1000):
            read += 1
            yield shallow

    answers = loaded.stream(source(), batch=4, limit=16)
    assert int(next(answers).exit) == 2
    assert read <= 16 + 3 * 4  # the limit, a batch in front of the first road and two that were read ahead
    assert [int(one.exit) for one in answers] == [0] * 1000


def test_images_are_not_kept_until_their_answers_are_handed_out() -> None:
    """Behind an image that goes deep hundreds of answers wait; images are let go when they have begun."""
    loaded, images, expected = prepared("exits")
    deep, shallow = images[expected.exit == 2][0], images[expected.exit == 0][0]
    alive, most = 0, 0

    def gone() -> None:
        nonlocal alive
        alive -= 1

    def source() -> Iterator[Tensor]:
        nonlocal alive, most
        yield deep
        for _ in range(300):
            pixels = shallow.numpy().copy()
            alive += 1
            most = max(most, alive)
            weakref.finalize(pixels, gone)
            yield torch.from_numpy(pixels)

    found = [int(one.exit) for one in loaded.stream(source(), batch=4, limit=200)]
    assert found == [2] + [0] * 300
    assert most <= 6 * 4  # read ahead, in front of the first road and in it


def test_a_live_source_need_not_fill_a_batch() -> None:
    loaded, images, expected = prepared("exits")
    answered = threading.Event()

    def live() -> Iterator[Tensor]:
        yield images[:3]
        assert answered.wait(30)  # the next image comes only when the first ones were answered
        yield images[3]

    found = []
    for one in loaded.stream(live(), batch=64, max_wait=0.01):
        found.append(one)
        answered.set()
    assert_same(joined(found), Decision(*(values[:4] for values in expected)))


def test_no_wait_at_all() -> None:
    loaded, images, expected = prepared("segmentation")
    assert_same(joined(list(loaded.stream(images.split(2), batch=8, max_wait=0))), expected)


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch: 0"),
        ({"batch": 8, "limit": 7}, "limit: 7 images"),
        ({"max_wait": -1.0}, "max_wait"),
        ({"max_wait": float("nan")}, "max_wait"),
        ({"top": 0}, "top: 0"),
    ],
)
def test_wrong_options_are_named_before_anything_is_read(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        prepared("exits")[0].stream([], **options)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([torch.zeros(1, 16, 16), torch.zeros(1, 8, 16)], r"go through the model together.*16x16 and 8x16"),
        ([torch.zeros(0, 1, 16, 16)], "holds no image"),
        ([torch.zeros(3, 16, 16)], r"takes \(batch, 1, height, width\)"),
        ([torch.zeros(1, 16, 16, dtype=torch.uint8)], "normalised numbers"),
        ([3.5], "float is no image"),
        (["nowhere.png"], "does not exist"),
    ],
)
def test_wrong_items_are_named(items: list[Any], message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        list(prepared("exits")[0].stream(items))
    assert threads() == []


def test_nothing_in_nothing_out() -> None:
    assert list(prepared("exits")[0].stream(iter(()))) == []


def test_policy_of_another_model() -> None:
    with pytest.raises(MaqeeError, match="thresholds"):
        ready(small_model(), policy=Policy((0.5,))).stream([])
