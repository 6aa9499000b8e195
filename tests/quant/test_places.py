"""Every layer of every family and every exit head is found, with its role and the norm that feeds it."""

from __future__ import annotations

import pytest
from torch import nn

from maqee.exits import EarlyExitModel, heads
from maqee.models import load_backbone
from maqee.models.layers import Attend
from maqee.quant.places import find_places

FAMILIES = ("test-vit", "test-deit", "test-dinov2", "test-swin")
VIT_EE = ("mlp", "cnn-ignore", "cnn-add", "cnn-project", "vit", "mixer", "resmlp")
LGVIT = [name for name in heads.names() if name.startswith(("local-", "global-"))]


def everything(model: nn.Module) -> list[str]:
    """Names of all that multiplies, by looking at the modules."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear | nn.Conv2d | Attend)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_of_a_backbone_is_found(family: str) -> None:
    model = load_backbone(family)
    places = find_places(model)
    assert [place.name for place in places] == everything(model)
    assert {place.block for place in places if place.role == "block"} == set(range(1, model.depth + 1))
    assert {place.block for place in places if place.role != "block"} == {0}
    assert [place.name for place in places if place.role == "patch"] == ["embedding.patch"]
    classifiers = ["head.linear", "head.distillation"] if family == "test-deit" else ["head.linear"]
    assert [place.name for place in places if place.role == "classifier"] == classifiers


@pytest.mark.parametrize("family", FAMILIES)
def test_norms_are_those_whose_only_reader_is_the_layer(family: str) -> None:
    places = {place.name: place for place in find_places(load_backbone(family))}
    assert places["blocks.0.attn.qkv"].norm == "blocks.0.norm1"
    assert places["blocks.1.mlp.fc1"].norm == "blocks.1.norm2"
    assert {name for name, place in places.items() if place.norm} == {
        name for name in places if name.endswith(("attn.qkv", "mlp.fc1", "reduction"))
    }
    if family == "test-swin":
        assert places["merges.3.reduction"].norm == "merges.3.norm"
        assert {place.role for name, place in places.items() if name.startswith("merges")} == {"merge"}


def test_a_block_by_hand() -> None:
    places = [place for place in find_places(load_backbone("test-vit")) if place.block == 3]
    assert [place.name.removeprefix("blocks.2.") for place in places] == [
        "attn.qkv", "attn.attend", "attn.proj", "mlp.fc1", "mlp.fc2",
    ]  # fmt: skip
    assert [place.attention for place in places] == [False, True, False, False, False]


@pytest.mark.parametrize("kind", [*VIT_EE, *LGVIT])
@pytest.mark.parametrize("family", ["test-vit", "test-deit", "test-swin"])
def test_every_layer_of_a_head_is_found(family: str, kind: str) -> None:
    model = EarlyExitModel(load_backbone(family), (2,), (kind,))
    places = find_places(model)
    assert [place.name for place in places] == everything(model)
    for place in places:
        assert (place.role == "head") == place.name.startswith("heads.")
        if place.role == "head" and place.norm:
            assert kind == "vit"  # the encoder layer: the only head whose layers have a norm to themselves
            assert place.norm.startswith("heads.0.block.norm")


def test_features_without_classifier() -> None:
    assert not [place for place in find_places(load_backbone("test-vit", num_classes=0)) if place.role == "classifier"]
