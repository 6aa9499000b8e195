"""Exit heads of a detector: shapes, cost, what they start from, where they read, and who may sit where."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, Policy, add_exits
from maqee.exits.detection import DetectionHead
from maqee.models import ViT, load_backbone
from maqee.models.load import on_meta
from maqee.models.presets import presets
from maqee.tasks import Detection
from tests.helpers import chosen_exits, count_head_macs, max_difference, parting_thresholds, randomize

KINDS = ("detection", "detection-encoder")
IMAGES = torch.randn(3, 3, 32, 48, generator=torch.Generator().manual_seed(3))


def make_detector() -> ViT:
    model = randomize(load_backbone("test-yolos"))
    assert isinstance(model, ViT)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_every_exit_gives_boxes_and_gradients(kind: str) -> None:
    model = add_exits(make_detector(), kind, (1, 3)).train()
    outputs = model.forward_all(IMAGES).outputs
    for output in outputs:
        assert output.shape == (3, 5, 3 + 1 + 4)
        assert ((output[..., -4:] > 0) & (output[..., -4:] < 1)).all()
    sum(output.square().sum() for output in outputs).backward()  # type: ignore[union-attr]
    for name, parameter in model.heads.named_parameters():
        assert parameter.grad is not None, name


@pytest.mark.parametrize("preset", ["yolos-tiny", "yolos-base"])
@pytest.mark.parametrize("kind", KINDS)
def test_macs_agree_with_the_flop_counter(kind: str, preset: str) -> None:
    shape = on_meta(presets[preset]).token_shape(4)
    said, counted = count_head_macs(kind, shape, 91)
    assert said == counted


def test_heads_start_from_the_final_ones() -> None:
    backbone = make_detector()
    model = add_exits(backbone, "detection", (2,))
    x = backbone.embedding(IMAGES)
    for number in (1, 2):
        x = backbone.blocks[number - 1](backbone.before(number, x))
    # The network cut after block 2: the exit reads the block's own output, before positions are added.
    assert max_difference(model.forward_all(IMAGES).outputs[0], backbone.finish(x)) < 1e-5


def test_encoder_head_starts_from_the_next_block_too() -> None:
    backbone = make_detector()
    model = add_exits(backbone, "detection-encoder", (2,))
    x = backbone.embedding(IMAGES)
    for number in (1, 2):
        x = backbone.blocks[number - 1](backbone.before(number, x))
    assert max_difference(model.forward_all(IMAGES).outputs[0], backbone.finish(backbone.blocks[2](x))) < 1e-5


def test_a_detection_head_can_also_end_the_model() -> None:
    backbone = make_detector()
    model = add_exits(backbone, "detection", (2,), final="detection")
    assert isinstance(model.head(1), DetectionHead)
    assert max_difference(model(IMAGES), backbone(IMAGES)) < 1e-5


def test_really_stopping_gives_what_all_exits_gave(tmp_path: Path) -> None:
    task = Detection()
    add_exits(make_detector(), "detection", (1, 3)).save(tmp_path)
    model = EarlyExitModel.load(tmp_path, task.confidence).eval().requires_grad_(False)
    outputs = model.forward_all(IMAGES).outputs
    confidence = torch.stack([task.confidence(output) for output in outputs])
    policy = Policy(parting_thresholds(confidence[:-1].t()))
    decision = model.run(IMAGES, policy)
    chosen = chosen_exits(policy, confidence[:-1])
    assert torch.equal(decision.exit, chosen)
    for sample, index in enumerate(chosen.tolist()):
        assert max_difference(decision.output[sample], outputs[index][sample]) < 1e-5


WRONG = {
    "classifier head on a detector": ("test-yolos", "local-3x3", "detector"),
    "scheme of classifiers on a detector": ("test-yolos", "lgvit", "detector"),
    "detection head on a classifier": ("test-vit", "detection", "detection_tokens"),
}


@pytest.mark.parametrize("case", WRONG)
def test_heads_that_do_not_go_with_the_backbone(case: str) -> None:
    preset, kind, words = WRONG[case]
    with pytest.raises(MaqeeError, match=words):
        add_exits(load_backbone(preset), kind, (1,))


def test_detection_head_needs_classes() -> None:
    with pytest.raises(MaqeeError, match="num_classes"):
        add_exits(load_backbone("test-yolos", num_classes=0), "detection", (1,))


def test_every_linear_layer_of_a_head_can_be_found() -> None:
    model = add_exits(make_detector(), "detection", (1, 3))
    names = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    assert {f"heads.1.readout.{part}.layers.{layer}" for part in ("classes", "boxes") for layer in range(3)} <= names
