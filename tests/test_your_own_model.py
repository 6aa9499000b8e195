"""docs/your-own-model.md, command by command, with a transformers folder of seven named classes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from maqee.runs import is_compressed, model_folder
from maqee.runtime import load
from tests.helpers import invoke

pytestmark = pytest.mark.trains

TEXT = (Path(__file__).parents[1] / "docs" / "your-own-model.md").read_text()
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^    (maqee .*)$", TEXT, flags=re.MULTILINE)]
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 200, 60),
    "blue": (40, 60, 220),
    "yellow": (230, 220, 40),
    "white": (240, 240, 240),
    "black": (15, 15, 15),
    "grey_brown": (120, 90, 70),
}


def write_photos(root: Path, train: int = 60, test: int = 3) -> None:
    """Noisy patches of seven colours."""
    random = np.random.default_rng(0)
    for split, count in (("train", train), ("test", test)):
        for name, colour in COLOURS.items():
            folder = root / split / name
            folder.mkdir(parents=True)
            for index in range(count):
                noise = random.normal(0, 12, (20, 24, 3))
                Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(folder / f"{index}.png")


def write_model(folder: Path) -> None:
    """A small ViT as transformers saves it, with its classes in an order of its own."""
    from transformers import ViTConfig, ViTForImageClassification
    from transformers.models.vit import ViTImageProcessor

    names = sorted(COLOURS, key=lambda name: name[::-1])
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64, image_size=16, patch_size=8,
        id2label=dict(enumerate(names)), label2id={name: number for number, name in enumerate(names)},
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one stands, when the whole road has been walked."""
    here = tmp_path_factory.mktemp("road")
    write_photos(here / "photos")
    write_model(here / "my-vit")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for command in COMMANDS:
            quick = ["--epochs", "2", "--device", "cpu"] if command[0] == "exits" else ["--device", "cpu"]
            done = invoke(*command, *quick)
            assert done.exit_code == 0, f"{command}: {done.output} {done.exception}"
    return here


def test_the_road_has_all_its_steps() -> None:
    assert [command[0] for command in COMMANDS] == ["exits", "eval", "compress", "eval", "predict"]


def test_what_the_road_leaves_behind(road: Path) -> None:
    assert model_folder(road / "runs" / "exits").name == "1-lgvit-heads"
    assert is_compressed(road / "runs" / "cheap")
    names = load(road / "runs" / "cheap").classes
    assert set(names) == set(COLOURS)
    assert names == load(road / "runs" / "exits").classes == tuple(sorted(COLOURS, key=lambda name: name[::-1]))


def test_the_code_runs(road: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(road)
    [snippet] = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec(compile(snippet, "your-own-model.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3 * len(COLOURS)
    assert all(any(name in line for name in COLOURS) for line in printed)


def test_full_depth_is_the_model_that_was_given(road: Path) -> None:
    """Heads learn, the network does not."""
    from transformers import ViTForImageClassification

    given: Any = ViTForImageClassification.from_pretrained(road / "my-vit")
    given.eval()
    images = torch.randn(4, 3, 16, 16)
    with torch.inference_mode():
        wanted, got = given(images).logits, load(road / "runs" / "exits").model(images)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-5)
