"""Exits without a recipe: settings that suit the amount of data, and models that can have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.data import open_data
from maqee.errors import MaqeeError
from maqee.models import load_backbone, save_backbone
from maqee.runs import DataSource, data_of, read_recipe
from maqee.training.exits_recipe import FEWEST_EPOCHS, MOST_EPOCHS, exits_recipe, train_exits, usual_batch, usual_epochs
from maqee.training.start import load_start


@given(st.integers(1, 10**7))
def test_any_amount_of_data(images: int) -> None:
    batch = usual_batch(images)
    epochs = usual_epochs(images, batch)
    assert 1 <= batch <= min(256, images)
    assert batch & (batch - 1) == 0  # a power of two
    assert FEWEST_EPOCHS <= epochs <= MOST_EPOCHS
    steps = epochs * (images // batch)
    if FEWEST_EPOCHS < epochs < MOST_EPOCHS:
        assert steps == pytest.approx(1500, rel=0.1)


@pytest.mark.parametrize(
    ("images", "batch", "epochs"), [(5, 4, 60), (70, 8, 60), (1_000, 64, 60), (45_000, 256, 8.6), (1_200_000, 256, 3)]
)
def test_settings_by_hand(images: int, batch: int, epochs: float) -> None:
    assert (usual_batch(images), usual_epochs(images, usual_batch(images))) == (batch, epochs)


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    save_backbone(load_backbone("vit-digits"), tmp_path / "model")
    return tmp_path / "model"


def test_heads_or_everything(digits: Path) -> None:
    heads, everything = exits_recipe(digits, "digits"), exits_recipe(digits, "digits", train="all", epochs=2)
    assert [stage.kind for stage in heads.stages] == ["lgvit-heads"]
    assert [(stage.kind, stage.epochs) for stage in everything.stages] == [("joint", 2)]
    assert everything.stages[0].lr < everything.stages[0].head_lr  # type: ignore[operator]
    assert heads.stages[0].batch_size == usual_batch(1077)
    assert exits_recipe(digits, "digits", scheme="mlp").stages[0].kind == "classifier-wise"
    assert Path(heads.model.source).is_absolute()


def test_pixels_as_the_user_says(digits: Path) -> None:
    as_stored = exits_recipe(digits, "digits", pixels={"resize": None, "mean": None})
    assert as_stored.digest() == exits_recipe(digits, "digits").digest()
    told = exits_recipe(digits, "digits", pixels={"resize": 20, "mean": (0.5,), "exif": None})
    assert told.digest() != as_stored.digest()
    backbone, _ = load_start(told.model, open_data("digits"), 0)
    assert (backbone.preprocessing.resize, backbone.preprocessing.mean) == (20, (0.5,))
    assert backbone.preprocessing.std == load_backbone(digits).preprocessing.std


def test_labels_count_as_much_as_the_user_says(digits: Path) -> None:
    assert exits_recipe(digits, "digits").stages[0].distillation is None
    assert exits_recipe(digits, "digits", distillation=1.0).stages[0].distillation == 1.0
    assert exits_recipe(digits, "digits", train="all").stages[0].distillation == 0.5
    with pytest.raises(MaqeeError, match="distillation: heads of the scheme 'mlp' learn from labels alone"):
        exits_recipe(digits, "digits", scheme="mlp", distillation=1.0)


def test_what_cannot_have_exits(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match="train: 'nothing' is not one of heads, all"):
        exits_recipe(digits, "digits", train="nothing")  # type: ignore[arg-type]
    save_backbone(load_backbone("vit-digits", num_classes=7), tmp_path / "seven")
    with pytest.raises(MaqeeError, match=r"no classifier for the classes of digits train: fine-tune it first"):
        exits_recipe(tmp_path / "seven", "digits")


@pytest.mark.trains
def test_a_run_that_knows_its_data(digits: Path, tmp_path: Path) -> None:
    done = train_exits(digits, "digits", tmp_path / "run", epochs=0.05, positions=(2, 4), holdout=100, device="cpu")
    assert [stage.stage for stage in done.stages] == ["1-lgvit-heads"]
    assert read_recipe(tmp_path / "run")["exits"]["positions"] == [2, 4]
    assert data_of(tmp_path / "run") == DataSource("digits", None, 100, 0)


@pytest.mark.trains
def test_other_exits_for_a_training_run(digits: Path, tmp_path: Path) -> None:
    """A run stands for its last stage; that one has exits already, and its backbone is what counts."""
    first = train_exits(digits, "digits", tmp_path / "first", positions=(4,), epochs=0.1, device="cpu")
    recipe = exits_recipe(first.folder, "digits", scheme="vit-ee", positions=(2, 4))
    assert recipe.model.source == str((first.folder / "1-lgvit-heads").resolve())
    again = train_exits(
        first.folder, "digits", tmp_path / "second", scheme="mlp", positions=(2,), epochs=0.1, device="cpu"
    )
    assert again.stages[-1].stage == "1-classifier-wise"
