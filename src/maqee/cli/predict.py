"""`maqee predict`: what a model says about pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from maqee.cli.options import MODEL, OUTPUT, RUNNING, Device, Figures, Json


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Folder of `maqee compress` or `maqee train`, or any model folder.")
    ],
    images: Annotated[
        list[str], typer.Argument(metavar="IMAGE...", help="Files, folders, or patterns in quotes: 'pics/*.jpg'.")
    ],
    policy: Annotated[
        Path | None, typer.Option(help="Take the thresholds from this plan.json.", rich_help_panel=MODEL)
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Leave at the first exit with at least this confidence, 0 to 1.", rich_help_panel=MODEL),
    ] = None,
    batch: Annotated[
        int, typer.Option(help="Images that go through the model together.", rich_help_panel=RUNNING)
    ] = 16,
    device: Device = None,
    top: Annotated[int, typer.Option(help="Classes to name for an image.", rich_help_panel=OUTPUT)] = 5,
    masks: Annotated[
        Path | None,
        typer.Option(help="Write the masks of a segmentation model to this folder.", rich_help_panel=OUTPUT),
    ] = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Name what images show: classes, boxes or masks, with the exit each image took.

    A compressed model follows its plan; a trained one runs at full depth unless --threshold or --policy is given.
    """
    import time

    from maqee.disk import check_writable
    from maqee.errors import MaqeeError
    from maqee.io import to_json, write_json
    from maqee.progress import steps
    from maqee.report.mask_files import mask_files, save_mask
    from maqee.report.prediction_lines import name_width, prediction_heading, prediction_lines, speed_line
    from maqee.runtime import list_pictures, open_model

    ready = open_model(model, policy, threshold, device)
    if masks is not None and ready.task.targets != "masks":
        raise MaqeeError(f"--masks is for segmentation, and this model is for {ready.task_name}: leave it out.")
    pictures = list_pictures(images)
    names = [picture.name for picture in pictures]
    files: list[Path] = []
    if masks is not None:
        files = mask_files(names, masks)
        check_writable(masks)
    depth, width = ready.model.backbone.depth, name_width(names)
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    with steps("predicting", len(pictures), enabled=json) as bar:
        for place, prediction in enumerate(ready.predict_each(pictures, top, batch)):
            rows.append(prediction.to_json())
            if prediction.mask is not None and files:
                save_mask(prediction.mask, files[place])
                rows[-1]["mask"] = str(files[place])
            if not json:
                heading = [] if place else [prediction_heading(rows[0], width)]
                typer.echo("\n".join([*heading, *prediction_lines(rows[-1], width, depth)]))
            bar.update(place + 1)
    if out is not None:
        write_json(out, rows)
    if json:
        typer.echo(to_json(rows), nl=False)
        return
    seconds, exits = time.perf_counter() - started, [row["exit"] for row in rows]
    typer.echo(speed_line(exits, depth, seconds, str(ready.device), ready.compression is not None))
    if files:
        typer.echo(f"Masks written to {masks}, the first is {files[0].name}.")
    if out is not None:
        typer.echo(f"Written to {out}.")
