"""`maqee exits`: exits for a model that is trained already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import DataRoot, Device


def exits(
    model: Annotated[str, typer.Argument(help="Fine-tuned model: transformers or timm folder, file or Hub name.")],
    data: Annotated[str, typer.Option(help="Data set with the model's classes (see `maqee ls`).")],
    out: Annotated[Path, typer.Option(help="New run folder.")],
    data_root: DataRoot = None,
    train: Annotated[
        str, typer.Option(help="heads: the backbone stays as it is. all: backbone and heads learn together.")
    ] = "heads",
    scheme: Annotated[
        str | None, typer.Option(help="lgvit, vit-ee, or one head kind for all exits; what suits the task by default.")
    ] = None,
    positions: Annotated[
        str | None, typer.Option(help="Blocks after which exits sit, e.g. 4,6,8,10; the usual ones by default.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="How often every image is seen; about 1,500 steps by default.")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images of a training step; up to 256 by default.", min=1)] = None,
    holdout: Annotated[
        int | None, typer.Option(help="Training images kept for calibration; the data set's custom by default.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    device: Device = None,
) -> None:
    """Give a fine-tuned model exits and train their heads. Run it again to go on after a stop."""
    from maqee.cli.train import print_summary
    from maqee.errors import MaqeeError
    from maqee.training.exits_recipe import exits_recipe
    from maqee.training.trainer import run_recipe

    if positions is not None and not all(part.strip().isdecimal() for part in positions.split(",")):
        raise MaqeeError(f"--positions {positions!r} must be block numbers with commas between them, e.g. 4,6,8,10.")
    recipe = exits_recipe(
        model,
        data,
        data_root=data_root,
        train=train,  # type: ignore[arg-type]
        scheme=scheme,
        positions=None if positions is None else tuple(int(part) for part in positions.split(",")),
        epochs=epochs,
        batch_size=batch,
        holdout=holdout,
        seed=seed,
        device=device,
    )
    print_summary(run_recipe(recipe, out, device), out, "compress")
