"""Images that are kept for a report: the right ones, small, in a file that reads back or says what is wrong with it."""

from __future__ import annotations

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from maqee.data import eval_batches
from maqee.errors import MaqeeError
from maqee.evaluation.kept_examples import (
    LOSSLESS,
    SIDE,
    KeptExamples,
    choose_examples,
    collect_examples,
    thumbnail,
)
from maqee.policy import take_exits
from maqee.tasks import tasks
from tests.apq.makers import make_trace
from tests.compression.makers import digits
from tests.helpers import load_miniature
from tests.report.run_folders import keep_pictures


def test_the_surest_and_the_least_sure_of_every_exit() -> None:
    trace, thresholds = make_trace(), (0.95, 0.9, 0.8)
    taken = take_exits(trace.confidence[:, :-1], thresholds)
    chosen = choose_examples(trace, thresholds)
    assert {choice.exit for choice in chosen} == {0, 1, 2, 3}
    assert len({choice.sample for choice in chosen}) == len(chosen)
    for number in range(4):
        sure = np.sort(trace.confidence[taken == number, number])
        here = [choice for choice in chosen if choice.exit == number]
        assert [choice.place for choice in here] == ["easy"] * 3 + ["hard"] * 3
        found = [trace.confidence[choice.sample, number] for choice in here]
        assert found[:3] == list(sure[::-1][:3])
        assert found[3:] == list(sure[:3])


def test_nobody_is_both_easy_and_hard() -> None:
    trace = make_trace(samples=4, exit_blocks=(2, 4))
    chosen = choose_examples(trace, (2.0,))
    assert [choice.place for choice in chosen] == ["easy", "easy", "hard", "hard"]
    alone = choose_examples(make_trace(samples=1, exit_blocks=(2, 4)), (0.0,))
    assert [(choice.exit, choice.place) for choice in alone] == [(0, "easy")]


def test_answers_are_named() -> None:
    """By the exits that images take, right where the trace says so; a class without a name by its number."""
    model, task = load_miniature(), tasks["classification"]
    data = digits("calibration", 6)
    some = replace(data, classes=data.classes[:3], targets=data.targets.clamp(max=2))
    trace = make_trace(samples=6, exit_blocks=(1, 2, 4))
    assert 0 < trace.correct.mean() < 1
    kept = collect_examples(model, some, task, trace, (0.9, 0.9)).examples
    [(images, targets)] = eval_batches(some, model.backbone.preprocessing, 6)
    outputs = [output.scatter(1, targets[:, None], -torch.inf) for output in model.forward_all(images).outputs]
    chosen = choose_examples(trace, (0.9, 0.9))
    assert [example.name for example in kept] == [data.images.name(choice.sample) for choice in chosen]
    for example, (row, at, _) in zip(kept, chosen, strict=True):
        assert example.truth == str(int(targets[row]))
        wrong = str(int(outputs[at][row].argmax()))
        assert example.answer == (example.truth if trace.correct[row, at] else wrong)


def read(uri: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def test_small_images_stay_as_they_are() -> None:
    pixels = torch.rand(LOSSLESS, 20, 3, generator=torch.Generator().manual_seed(0))
    uri = thumbnail(pixels)
    assert uri.startswith("data:image/png;base64,")
    assert np.array_equal(np.asarray(read(uri)), (pixels * 255).round().to(torch.uint8).numpy())
    assert np.asarray(read(thumbnail(torch.ones(8, 8, 1)))).shape == (8, 8)


def test_large_images_become_small() -> None:
    pixels = torch.rand(300, 600, 3)
    uri = thumbnail(pixels)
    assert uri.startswith("data:image/jpeg;base64,")
    assert read(uri).size == (SIDE, SIDE // 2)
    assert len(uri) < 20_000
    assert uri == thumbnail(pixels)


def test_files_read_back_or_complain(tmp_path: Path) -> None:
    trace = make_trace()
    kept = keep_pictures(trace, (0.9, 0.9, 0.9))
    kept.save(tmp_path / "examples.json")
    assert KeptExamples.load(tmp_path / "examples.json") == kept
    (tmp_path / "other.json").write_text('{"format": "maqee-plan", "version": 1}')
    with pytest.raises(MaqeeError, match=r"other\.json: these are no examples"):
        KeptExamples.load(tmp_path / "other.json")
    (tmp_path / "bad.json").write_text('{"format": "maqee-examples", "version": 1, "thresholds": [0.5]}')
    with pytest.raises(MaqeeError, match=r"bad\.json: examples: .*delete the file"):
        KeptExamples.load(tmp_path / "bad.json")
