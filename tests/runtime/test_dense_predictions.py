"""What detectors and segmenters say about pictures: boxes and masks by hand, in pixels of the picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from maqee.exits import Policy
from maqee.models import Preprocessing
from maqee.runtime import Area, FoundBox
from maqee.runtime.translate import read_areas, read_boxes
from maqee.runtime.view import View
from maqee.tasks.pixels import IGNORE
from maqee.tasks.segmentation import stretch
from tests.runtime.makers import detection_model, ready, seen_by, segmentation_model

# --- detection -------------------------------------------------------------------------------------------------------


def test_boxes_by_hand() -> None:
    """Two classes; shares of the picture's 100 x 200 pixels, of which the middle 80 x 80 are seen."""
    nothing = [0.0, 0.0, 9.0]
    output = torch.tensor(
        [
            [*nothing, 0.5, 0.5, 0.5, 0.5],
            [2.0, 0.0, 0.0, 0.5, 0.5, 0.5, 0.25],  # e^2 / (e^2 + 2) = 0.787
            [0.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5],  # e / (2e + 1) = 0.42: not sure
            [0.0, 9.0, 0.0, 0.0, 0.0, 1.0, 1.0],  # reaches out of what is seen
        ]
    )
    view = View.of(100, 200, Preprocessing(image_size=(40, 40), resize=50))
    found = read_boxes(output, view, ("cat", "dog"))
    assert [(box.name, box.number) for box in found] == [("dog", 1), ("cat", 0)]
    assert found[1].probability == pytest.approx(np.exp(2) / (np.exp(2) + 2))
    assert (found[1].left, found[1].top, found[1].right, found[1].bottom) == (80, 40, 120, 60)
    assert (found[0].left, found[0].top, found[0].right, found[0].bottom) == (20, 0, 100, 50)


def test_boxes_beside_the_picture_are_left_out() -> None:
    output = torch.tensor([[9.0, 0.0, 2.0, 0.5, 0.5, 0.5], [9.0, 0.0, 0.5, 0.5, 0.5, 0.5]])
    [box] = read_boxes(output, View.whole(10, 20), ())
    assert box == FoundBox("0", 0, box.probability, 5, 2.5, 15, 7.5)


def test_a_detectors_boxes_are_those_of_its_output(files: list[Path]) -> None:
    model = detection_model()
    model.backbone.classes = ("red", "green", "blue")
    loaded = ready(model, "detection")
    found = loaded.predict(files)
    output = loaded(seen_by(model, files))
    share = output[..., :4].softmax(dim=-1)[..., :3]
    for prediction, shares, rows in zip(found, share, output[..., 4:], strict=True):
        sure = {query: shares[query].max().item() for query in range(5) if shares[query].max() > 0.5}
        order = sorted(sure, key=lambda query: -sure[query])
        assert [box.number for box in prediction.boxes] == [int(shares[query].argmax()) for query in order]
        assert [box.name for box in prediction.boxes] == [
            model.backbone.classes[int(shares[query].argmax())] for query in order
        ]
        for box, query in zip(prediction.boxes, order, strict=True):
            x, y, width, height = rows[query].tolist()
            assert box.left == pytest.approx(max(0, (x - width / 2) * 30), abs=1e-3)
            assert box.right == pytest.approx(min(30, (x + width / 2) * 30), abs=1e-3)
            assert box.top == pytest.approx(max(0, (y - height / 2) * 20), abs=1e-3)
            assert box.bottom == pytest.approx(min(20, (y + height / 2) * 20), abs=1e-3)
        assert (prediction.kind, prediction.labels, prediction.mask) == ("boxes", (), None)
    assert sum(len(prediction.boxes) for prediction in found) > 0


# --- segmentation ----------------------------------------------------------------------------------------------------


def test_areas_by_hand() -> None:
    mask = np.array([[3, 3, 3, 0], [3, 7, IGNORE, IGNORE]], dtype=np.uint8)
    assert read_areas(mask, ("sky",)) == (Area("3", 3, 4 / 6), Area("sky", 0, 1 / 6), Area("7", 7, 1 / 6))
    assert read_areas(np.full((2, 2), IGNORE, dtype=np.uint8), ()) == ()


def test_masks_have_the_pictures_size_and_the_outputs_classes(files: list[Path]) -> None:
    model = segmentation_model()
    loaded = ready(model, "segmentation", Policy.same(0.0, 2))
    output = loaded(seen_by(model, files))
    for prediction, scores in zip(loaded.predict(files, batch_size=len(files)), output, strict=True):
        assert prediction.mask is not None
        assert np.array_equal(prediction.mask, stretch(scores[None], (20, 30)).argmax(dim=1)[0].numpy())
        assert sum(area.share for area in prediction.areas) == pytest.approx(1)
        assert {area.number for area in prediction.areas} == set(np.unique(prediction.mask).tolist())
        assert (prediction.kind, prediction.exit, prediction.labels) == ("areas", 1, ())


def test_pixels_that_the_model_did_not_see_have_no_class(files: list[Path]) -> None:
    """20 x 30 pixels become 40 x 60, of which the middle 32 x 32 are seen: rows 2 to 18, columns 7 to 23."""
    loaded = ready(segmentation_model(Preprocessing(image_size=(32, 32), resize=40)), "segmentation")
    for prediction in loaded.predict(files):
        assert prediction.mask is not None
        seen = np.zeros((20, 30), dtype=bool)
        seen[2:18, 7:23] = True
        assert np.array_equal(prediction.mask != IGNORE, seen)
        assert sum(area.share for area in prediction.areas) == pytest.approx(1)
