"""`maqee exits`: exits for a model that is trained already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import (
    DATA,
    MODEL,
    OUTPUT,
    DataRoot,
    Device,
    Exif,
    Json,
    Mean,
    Resample,
    Resize,
    Seed,
    Std,
    parse_pixels,
)
from maqee.cli.train import print_summary

TRAINING = "Training"


def exits(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Fine-tuned model: transformers or timm folder, file, Hub name or run of `maqee train`.",
        ),
    ],
    data: Annotated[
        str, typer.Option(help="Data set with the classes of the model (see `maqee ls`).", rich_help_panel=DATA)
    ],
    data_root: DataRoot = None,
    holdout: Annotated[
        int | None,
        typer.Option(
            help="Training images kept for calibration; as many as the data set's reader keeps when left out.",
            min=1,
            rich_help_panel=DATA,
        ),
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            help="lgvit, vit-ee, or one head kind for all exits; what suits the data when left out.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    positions: Annotated[
        str | None,
        typer.Option(
            help="Blocks after which exits sit, e.g. 4,6,8,10; evenly by cost when left out.", rich_help_panel=MODEL
        ),
    ] = None,
    train: Annotated[
        str,
        typer.Option(
            help="heads: the backbone stays as it is; all: backbone and heads learn together.",
            rich_help_panel=TRAINING,
        ),
    ] = "heads",
    epochs: Annotated[
        float | None,
        typer.Option(help="Times that every image is seen; about 1,500 steps when left out.", rich_help_panel=TRAINING),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Images of a training step; up to 256 when left out.", min=1, rich_help_panel=TRAINING),
    ] = None,
    distillation: Annotated[
        float | None,
        typer.Option(
            help="Share of the model's own output in what heads learn, beside labels; 1 suits few images a class.",
            show_default="LGViT's own, with --train all 0.5",
            min=0,
            max=1,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    resize: Resize = None,
    mean: Mean = None,
    std: Std = None,
    resample: Resample = None,
    exif: Exif = None,
    seed: Seed = None,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/NAME when left out.", rich_help_panel=OUTPUT)
    ] = None,
    json: Json = False,
) -> None:
    """Give a fine-tuned model exits and train their heads. Run it again to go on after a stop."""
    from maqee.errors import MaqeeError
    from maqee.training.exits_recipe import train_exits

    if positions is not None and not all(part.strip().isdecimal() for part in positions.split(",")):
        raise MaqeeError(f"positions: {positions!r} must be block numbers with commas between them, e.g. 4,6,8,10.")
    done = train_exits(
        model,
        data,
        out,
        data_root=data_root,
        train=train,
        scheme=scheme,
        positions=None if positions is None else tuple(int(part) for part in positions.split(",")),
        epochs=epochs,
        batch_size=batch,
        holdout=holdout,
        distillation=distillation,
        pixels=parse_pixels(resize, mean, std, resample, exif),
        seed=seed or 0,
        device=device,
    )
    print_summary(done, "compress", json)
