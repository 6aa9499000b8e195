"""`maqee bench stream | engines | decisions`: finished models at work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from maqee.cli.options import (
    DATA,
    RUNNING,
    Bits,
    CommonSteps,
    Compile,
    DataRoot,
    Device,
    Engine,
    Exits,
    Figures,
    Json,
    KnownData,
    MeanExits,
    Method,
    Patch,
    Repeats,
    Seed,
    parse_integers,
    parse_mean_exits,
)
from maqee.cli.output import deliver


def stream(
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Run folder of `maqee train` or `maqee compress`; or a preset, of random weights."
        ),
    ] = "vit-small",
    exits: Exits = "lgvit",
    engine: Engine = "torch",
    method: Method = "erq",
    bits: Bits = "W4A4",
    patch: Patch = None,
    common_steps: CommonSteps = False,
    images: Annotated[
        int | None, typer.Option(help="Number of images; 32 batches when left out.", min=1, rich_help_panel=RUNNING)
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Images of a batch.", show_default="256 on a GPU, else 8", min=1, rich_help_panel=RUNNING),
    ] = None,
    mean_exit: MeanExits = None,
    precision: Annotated[
        str | None,
        typer.Option(help="fp32 or bf16.", show_default="bf16 on a GPU, else fp32", rich_help_panel=RUNNING),
    ] = None,
    compile: Compile = True,
    graphs: Annotated[
        bool, typer.Option(help="Replay CUDA graphs between exits, on a GPU.", rich_help_panel=RUNNING)
    ] = True,
    batch_by_batch: Annotated[
        bool,
        typer.Option(help="Time `run` too; to record it takes minutes for a large network.", rich_help_panel=RUNNING),
    ] = True,
    seed: Seed = None,
    repeats: Repeats = 3,
    device: Device = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Time a stream of images against `run` batch by batch and full depth, side by side, with latencies and cost.

    On another engine than torch a preset is quantized first, as the options say; a run folder has its own bits.
    """
    from maqee.bench.streams import bench_stream
    from maqee.bench.throughput import MEAN_EXITS
    from maqee.report.bench_tables import stream_table

    found = bench_stream(
        model,
        exits=exits,
        engine=engine,
        method=method,
        bits=bits,
        patch=patch,
        common_steps=common_steps,
        images=images,
        batch_size=batch,
        mean_exits=parse_mean_exits(mean_exit) or MEAN_EXITS,
        precision=precision,
        device=device,
        compile=compile,
        graphs=graphs,
        batch_by_batch=batch_by_batch,
        seed=seed or 0,
        repeats=repeats,
    )
    deliver(found, stream_table, json, out)


def engines(
    model: Annotated[
        str, typer.Argument(metavar="RUN", help="Folder of `maqee compress`; or a backbone, with random weights.")
    ] = "vit-small",
    batch: Annotated[
        str, typer.Option(help="Numbers of images, with commas between them.", rich_help_panel=RUNNING)
    ] = "1,8",
    mean_exit: Annotated[
        float | None,
        typer.Option(
            help="Mean block after which images leave.", show_default="the plan's, or 7.26", rich_help_panel=RUNNING
        ),
    ] = None,
    method: Method = "rtn",
    bits: Bits = "W4A4",
    patch: Patch = None,
    common_steps: CommonSteps = False,
    images: Annotated[int, typer.Option(help="Images a repetition.", min=1, rich_help_panel=RUNNING)] = 16,
    memory: Annotated[
        bool, typer.Option(help="Measure resident memory, in a process each.", rich_help_panel=RUNNING)
    ] = True,
    repeats: Repeats = 5,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Time every engine on the CPU side by side: float, simulated, on integer codes, and what others make int8."""
    from maqee.bench.engine_speed import bench_engines
    from maqee.report.engine_table import engine_table

    found = bench_engines(
        model,
        batch=parse_integers(batch, "--batch"),
        mean_exit=mean_exit,
        method=method,
        bits=bits,
        patch=patch,
        common_steps=common_steps,
        images=images,
        memory=memory,
        repeats=repeats,
    )
    deliver(found, engine_table, json, out)


def decisions(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of `maqee compress`.")],
    engine: Engine = "onnxruntime",
    images: Annotated[int, typer.Option(help="Number of test images.", min=1, rich_help_panel=DATA)] = 1000,
    data: KnownData = None,
    data_root: DataRoot = None,
    out: Figures = None,
    json: Json = False,
) -> None:
    """Compare the exits and answers of another engine with those of the simulation, on real images."""
    from maqee.bench.decisions import bench_decisions
    from maqee.report.engine_table import decisions_line

    found = bench_decisions(run, engine=engine, images=images, data=data, data_root=data_root)
    deliver(found, decisions_line, json, out)
