"""Recipes: the shipped ones are valid, overrides work, mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from maqee.data.readers import readers
from maqee.errors import MaqeeError
from maqee.exits import head_kinds
from maqee.models import load_backbone
from maqee.tasks import tasks
from maqee.training import read_recipe
from maqee.training.shipped import find_recipe, list_recipes

MINIMAL = {
    "name": "x",
    "model": {"source": "test-vit"},
    "data": {"name": "digits"},
    "stages": [{"kind": "finetune", "epochs": 1, "lr": 0.001}],
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


@pytest.mark.parametrize("name", list_recipes())
def test_shipped_recipes_are_valid(name: str) -> None:
    recipe = read_recipe(find_recipe(name))
    assert recipe.name == name
    assert recipe.data.name in readers
    assert recipe.task in tasks
    assert head_kinds(recipe.exits.scheme, load_backbone("test-vit"), 4)


def test_overrides(recipe: Path) -> None:
    changed = read_recipe(recipe, ["stages.0.epochs=2.5", "seed=7", "stages.0.augment.flip=true", "data.path=/x"])
    assert (changed.stages[0].epochs, changed.seed, changed.data.path) == (2.5, 7, "/x")
    assert changed.stages[0].augment.flip


def test_digest_changes_with_what_matters_only(recipe: Path) -> None:
    digest = read_recipe(recipe).digest()
    assert read_recipe(recipe, ["checkpoint_minutes=9", "tensorboard=true", "name=y"]).digest() == digest
    later = {"mix_share": ("1", "0.5"), "trivial": ("false", "true")}
    for key, (usual, other) in later.items():
        assert read_recipe(recipe, [f"stages.0.augment.{key}={usual}"]).digest() == digest
        assert read_recipe(recipe, [f"stages.0.augment.{key}={other}"]).digest() != digest
    assert read_recipe(recipe, ["stages.0.teacher=null", "stages.0.teacher_share=0.3"]).digest() == digest
    assert read_recipe(recipe, ["stages.0.teacher=runs/other"]).digest() != digest
    assert read_recipe(recipe, ["stages.0.lr=0.002"]).digest() != digest


def test_digest_and_distillation(recipe: Path) -> None:
    """Left out, it is another loss than 0 for LGViT's heads, and the same one for `joint`."""

    def digest(kind: str, *more: str) -> str:
        return read_recipe(recipe, [f"stages.0.kind={kind}", *more]).digest()

    shares = [f"stages.0.distillation={share}" for share in (0, 0.5, 1)]
    left_out = digest("lgvit-heads")
    assert left_out == "f97ec180f037b567211fe9295972960349dbc06783903248efd3668178efcd30"  # as ever: runs can go on
    assert len({left_out, *(digest("lgvit-heads", share) for share in shares)}) == 4
    assert digest("joint") == digest("joint", shares[0])
    assert len({digest("joint", share) for share in shares}) == 3


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.0.epoch=2", r"stages\.0: unknown key 'epoch': did you mean epochs\?$"),
        ("stages.0.augment.flop=true", r"stages\.0\.augment: unknown key 'flop': did you mean flip\?$"),
        ("sead=2", r"recipe\.yaml: unknown key 'sead': did you mean seed\?$"),
        ("model.image_size=0", r"model\.image_size: 0 must be greater than or equal to 1\.$"),
        ("stages.0.epochs=0", r"stages\.0\.epochs: 0 must be greater than 0\.$"),
        ("stages.0.teacher_share=1.5", r"stages\.0\.teacher_share: 1\.5 must be less than or equal to 1\.$"),
        ("stages.0.epochs=many", r"stages\.0\.epochs: 'many' must be a valid number\.$"),
        ("data={}", r"data\.name is missing\.$"),
        ("stages.0.kind=fintune", "did you mean finetune"),
        ("stages.3.epochs=1", "no number from 0 to 0"),
        ("seed.deep=1", "nothing below|is a value"),
        ("seed", "no key=value"),
        ("seed=[", "not valid YAML"),
        ("stages=[]", "stages: .* at least 1"),
        ("precision=fp8", "precision"),
    ],
)
def test_mistakes_are_named(recipe: Path, override: str, message: str) -> None:
    if override.startswith("seed."):
        recipe.write_text(recipe.read_text() + "seed: 3\n")
    with pytest.raises(MaqeeError, match=message) as error:
        read_recipe(recipe, [override])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "just words"])
def test_not_a_recipe(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(MaqeeError, match=r"bad\.yaml"):
        read_recipe(path)


def test_missing_file_and_unknown_name() -> None:
    with pytest.raises(MaqeeError, match="does not exist"):
        read_recipe(Path("nowhere.yaml"))
    with pytest.raises(MaqeeError, match="did you mean digits"):
        find_recipe("digit")
