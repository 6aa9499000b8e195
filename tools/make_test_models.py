"""Train the miniature models in tests/fixtures; run from the root of the checkout.

python -m tools.make_test_models tests/fixtures [SEED]

Tests load these weights instead of training their own, so that what a test sees does not depend on how the processor
at hand rounds. Weights from another machine or seed differ a little, and no test may notice: run the tests with models
of another seed to see that none of them hopes for something that only these happen to do.
"""

import sys
import tempfile
from pathlib import Path

import torch

from maqee.data import Augmentation, TrainBatches, open_data
from maqee.exits import EarlyExitModel, add_exits
from maqee.models import ViTConfig
from maqee.models.load import build_backbone
from maqee.tasks import tasks
from maqee.training import read_recipe, run_recipe
from tests.training.test_detection import recipe_for, write_shapes
from tests.training.test_segmentation import write_pictures, write_recipe

SIZES = {"image_size": (16, 16), "patch_size": 4, "channels": 1, "dim": 32, "depth": 4, "heads": 2, "mlp_dim": 64}


def digits(seed: int) -> EarlyExitModel:
    """Exits after two of four blocks, each better than the one before and none of them always sure."""
    torch.manual_seed(seed)
    backbone = build_backbone(ViTConfig(**SIZES, num_classes=10))  # type: ignore[arg-type]
    model = add_exits(backbone, "mlp", positions=(1, 2)).train()
    batches = TrainBatches(open_data("digits").train, backbone.preprocessing, Augmentation(), 64, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loss = tasks["classification"].loss
    for step in range(200):
        images, targets = batches.batch(step)
        losses = [loss(output, targets).mean() for output in model.forward_all(images).outputs]
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()
    return model.eval()


def segmentation(seed: int, folder: Path) -> EarlyExitModel:
    """Three coloured areas, two exits."""
    data = write_pictures(folder, train=16, val=16, test=5)
    changes = ["stages.0.epochs=6", "exits.positions=[1,2]", f"seed={seed}"]
    run_recipe(read_recipe(write_recipe(folder, data), changes), folder / "run", "cpu")
    return EarlyExitModel.load(folder / "run" / "1-joint")


def detection(seed: int, folder: Path) -> EarlyExitModel:
    """One coloured rectangle an image, two exits."""
    data = write_shapes(folder / "shapes", count=16)
    recipe = read_recipe(recipe_for(data, folder / "recipe.yaml", epochs=30), [f"seed={seed}"])
    run_recipe(recipe, folder / "run", "cpu")
    return EarlyExitModel.load(folder / "run" / "1-joint")


if __name__ == "__main__":
    out, seed = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        models = {
            "digits": digits(seed),
            "segmentation": segmentation(seed, Path(first)),
            "detection": detection(seed, Path(second)),
        }
    for name, model in models.items():
        model.half().save(out / name)  # half the size; loading makes them float32 again
