"""Pictures of one colour each, and a transformers ViT that knows the colours' names by construction, without training.

The attention of its first block looks at all tokens alike and hands on what it sees, so that the class token knows the
colour; what the later blocks add is small. The classifier is the solution of a linear system: the right class gets the
logit 12, all others 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image

from maqee.compression import CompressOptions
from maqee.quant import QuantSettings
from maqee.training.recipe import Recipe

COLOURS = {"cherry": (230, 20, 20), "grass": (20, 230, 20), "sea_lion": (20, 20, 230), "snow": (230, 230, 230)}
SORTED = tuple(COLOURS)  # as a folder has them
SIZE, MARGIN = 16, 12.0
_SHAPE: dict[str, Any] = {
    "image_size": SIZE,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "num_labels": len(COLOURS),
}


def write_colours(root: Path, train: int = 8, test: int = 3, names: Mapping[str, str] | None = None) -> Path:
    """train/CLASS/0.png, ... and test/CLASS/...: no two pictures are the same, and all of a class are nearly.

    Args:
        root: a new folder.
        train: pictures of a class to train on.
        test: pictures of a class to test on.
        names: other names for the classes.
    """
    for label, (name, colour) in enumerate(COLOURS.items()):
        for number in range(train + test):
            part = "train" if number < train else "test"
            folder = root / part / (names or {}).get(name, name)
            folder.mkdir(parents=True, exist_ok=True)
            pixels = np.full((SIZE, SIZE, 3), colour, dtype=np.uint8)
            pixels[0, 0] = (label, number, 0)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return root


def save_coloured_vit(folder: Path, order: Sequence[str] = SORTED, names: Sequence[str] | None = ()) -> Path:
    """A transformers folder.

    Args:
        folder: a new one.
        order: the colours, in the order of the logits.
        names: what the model calls them; as `order` does when left out, and nothing at all with None.
    """
    model, places = _solved(), [SORTED.index(name) for name in order]
    with torch.no_grad():
        weight, bias = model.classifier.weight.clone(), model.classifier.bias.clone()
        model.classifier.weight.copy_(weight[places])
        model.classifier.bias.copy_(bias[places])
        model.config.id2label = {} if names is None else dict(enumerate(names or order))
        model.save_pretrained(folder)
        model.classifier.weight.copy_(weight)
        model.classifier.bias.copy_(bias)
    return folder


def coloured_recipe(model: Path, data: Path, kind: str = "classifier-wise", **changes: Any) -> Recipe:
    """A few steps that change nothing worth mentioning: heads start as copies of the classifier, and stay so."""
    values: dict[str, Any] = {
        "name": "colours",
        "model": {"source": str(model)},
        "data": {"name": "folder", "path": str(data), "holdout": 16},
        "exits": {"scheme": "mlp", "positions": [1, 2]},
        "stages": [{"kind": kind, "epochs": 1, "batch_size": 8, "lr": 1e-7}],
    }
    return Recipe.model_validate(values | changes)


def coloured_options() -> CompressOptions:
    """A search on few images, with eight bits where it does not choose: the colours stay far apart."""
    fine = QuantSettings(weight_bits=8, act_bits=8)
    return CompressOptions(method="rtn", quantization=fine, fit_images=4, samples=12, scored=6)


@cache
def _solved() -> Any:
    torch.manual_seed(0)
    model: Any = transformers.ViTForImageClassification(transformers.ViTConfig(**_SHAPE))
    model.eval()
    attention = next(module for module in model.modules() if type(module).__name__ == "ViTLayer").attention
    with torch.no_grad():
        for name, module in attention.named_modules():
            if isinstance(module, torch.nn.Linear):  # queries and keys of nothing: every token is looked at alike
                module.weight.copy_(torch.zeros(32, 32) if "q" in name or "k" in name else torch.eye(32))
        pixels = torch.tensor(list(COLOURS.values())).float()[:, :, None, None].expand(-1, -1, SIZE, SIZE)
        tokens = model.vit((pixels / 255 - 0.5) / 0.5).last_hidden_state[:, 0]  # (classes, 32), after the last norm
        system = torch.cat([tokens, torch.ones(len(COLOURS), 1)], dim=1).double()
        solution = torch.linalg.pinv(system) @ (MARGIN * torch.eye(len(COLOURS), dtype=torch.float64))
        model.classifier.weight.copy_(solution[:-1].T)
        model.classifier.bias.copy_(solution[-1])
    return model
