"""Finished models side by side on real images: how often they are right, how fast they are, how large their files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from maqee.bench.plan_results import PlanComparison, PlanRow, Rate
from maqee.bench.plan_rows import OpenRow, PlanRequest, open_rows, parse_row
from maqee.bench.ready_images import View, draw_some, prepared_chunks
from maqee.bench.timing import times_together
from maqee.data import Splits, open_data
from maqee.data.classes import align_splits
from maqee.device import check_precision, pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.models.compiling import many_versions
from maqee.processor import check_reduced_precision
from maqee.progress import steps
from maqee.runs import DataSource, data_of, require_data


def bench_plans(
    rows: Sequence[str],
    *,
    data: str | None = None,
    data_root: str | Path | None = None,
    images: int = 1000,
    batch_size: int | None = None,
    repeats: int = 3,
    device: str | None = None,
    precision: str | None = None,
    compile: bool = False,
    seed: int = 0,
    show: bool = True,
) -> PlanComparison:
    """Run the same test images through several models, and time them in turns.

    Images go through `ReadyModel.stream` and really leave. They are decoded, prepared and, with a GPU, on it before
    the clock runs, so that the network is timed and not what brings its images. A first pass, which is not timed,
    counts right answers and exits; it is the warm-up too.

    Args:
        rows: models, each as RUN, RUN@ENGINE or RUN@ENGINE:STOP. RUN is a folder of `maqee compress`, `maqee train` or
            any model folder; STOP is one threshold for all exits, or "full" for full depth. Left out, a compressed
            model follows its plan, and any other runs at full depth. At full depth early heads are not computed.
        data: name of a data set; the runs' own when left out.
        data_root: where the data lie.
        images: test images, drawn at random, the same for all.
        batch_size: 256 on a GPU and 8 on a CPU when left out.
        repeats: timed repetitions.
        device: the GPU if there is one.
        precision: "fp32" or "bf16" of models that are not compressed, on the engine torch; bf16 on a GPU and fp32 on a
            CPU when left out.
        compile: use torch.compile on the engine torch.
        seed: random seed of the draw.
        show: progress with the time left.
    """
    requests = [parse_row(text) for text in rows]
    if not requests:
        raise MaqeeError("There is no row to measure: give at least one as RUN@ENGINE.")
    target = pick_device(device)
    on_gpu = target.type == "cuda"
    precision = check_precision(precision or ("bf16" if on_gpu else "fp32"))
    check_reduced_precision(precision, target)
    batch_size = batch_size or (256 if on_gpu else 8)
    source = common_data(requests, data, data_root)
    splits = open_data(source.name, source.path, source.holdout, source.seed)
    splits.test.require("labels", "classification")
    chosen = draw_some(splits.test, images, seed)
    opened = open_rows(requests, target, torch.bfloat16 if precision == "bf16" else torch.float32, compile)
    labels = labels_for(opened, splits, chosen)
    tallies = [_Tally(row, mine.to(target), repeats) for row, mine in zip(opened, labels, strict=True)]
    done, total = 0, len(tallies) * images * (1 + repeats)
    versions = many_versions() if compile else nullcontext()
    with versions, torch.inference_mode(), steps("running", total, enabled=show) as bar:
        views = [tally.view for tally in tallies]
        for chunk in prepared_chunks(splits.test.select(chosen), views, batch_size, target):
            count = chunk.stop - chunk.start
            for tally in tallies:
                tally.look(chunk.batches[tally.view], chunk.start, batch_size)
                done += count
                bar.update(done)
            jobs = [partial(tally.drain, chunk.batches[tally.view], batch_size) for tally in tallies]
            for tally, seconds in zip(tallies, times_together(jobs, target, repeats, warm_up=0), strict=True):
                tally.seconds += seconds
            done += count * repeats * len(tallies)
            bar.update(done)
    return PlanComparison(
        data=splits.test.name,
        images=images,
        seed=seed,
        batch=batch_size,
        repeats=repeats,
        precision=precision,
        compiled=compile,
        cuda_graphs=on_gpu,
        device=target.type,
        rows=tuple(tally.row(tallies[0].seconds) for tally in tallies),
        environment=describe_environment(),
    )


def common_data(requests: Sequence[PlanRequest], name: str | None, path: str | Path | None) -> DataSource:
    """The data set whose test images all rows see: the one that is named, or that those runs know that know any."""
    known = {request.run: source.name for request in requests if (source := data_of(request.run)) is not None}
    if name is None and len(set(known.values())) > 1:
        listed = ", ".join(f"{run} with {data}" for run, data in known.items())
        raise MaqeeError(f"The runs were made with different data ({listed}): name the one to compare them on.")
    return require_data(next(iter(known), requests[0].run), name, path)


def labels_for(rows: Sequence[OpenRow], splits: Splits, chosen: Tensor) -> list[Tensor]:
    """The labels of the chosen test images, for each row in the order of its model's classes."""
    known: dict[tuple[int, tuple[str, ...]], Tensor] = {}
    found: list[Tensor] = []
    for row in rows:
        splits.test.require(row.ready.task.targets, row.ready.task_name)
        backbone = row.ready.model.backbone
        key = backbone.config.num_classes, backbone.classes
        if key not in known:
            known[key] = align_splits(splits, backbone).test.targets[chosen]
        found.append(known[key])
    return found


class _Tally:
    """What became of one row so far.

    Args:
        opened: the row.
        labels: of all images, in the order of the model's classes.
        repeats: timed repetitions.
    """

    def __init__(self, opened: OpenRow, labels: Tensor, repeats: int) -> None:
        self.opened, self.labels = opened, labels
        self.network = opened.ready.model
        self.view = View(opened.ready.preprocessing, next(self.network.parameters()).dtype)
        self.metric = opened.ready.task.metric()
        self.left = np.zeros(self.network.num_exits + 1)  # images at each exit
        self.seconds = np.zeros(repeats)

    def look(self, batches: Sequence[Tensor], start: int, batch_size: int) -> None:
        """Count right answers and exits of the images from number `start` on."""
        for decision in self.opened.ready.stream(batches, batch_size):
            stop = start + len(decision.exit)
            self.metric.update(decision.output, self.labels[start:stop])
            self.left += np.bincount(decision.exit.cpu().numpy(), minlength=len(self.left))
            start = stop

    def drain(self, batches: Sequence[Tensor], batch_size: int) -> None:
        """Let images through and look at nothing."""
        for _ in self.opened.ready.stream(batches, batch_size):
            pass

    def row(self, first: np.ndarray) -> PlanRow:
        """Its figures, beside the seconds of the first row."""
        opened, mass = self.opened, self.left / self.left.sum()
        rates = self.left.sum() / self.seconds
        return PlanRow(
            name=opened.request.name,
            engine=opened.request.engine,
            kind=opened.kind,
            quantization=opened.quantization,
            precision="bf16" if self.view.dtype == torch.bfloat16 else "fp32",
            thresholds=opened.ready.policy.thresholds,
            accuracy=self.metric.compute(),
            mean_exit=float(mass @ np.asarray(self.network.exit_blocks)),
            exit_blocks=self.network.exit_blocks,
            exit_mass=tuple(mass.tolist()),
            images_per_second=Rate(median=float(np.median(rates)), low=float(rates.min()), high=float(rates.max())),
            ratio=float(np.median(first / self.seconds)),
            file_bytes=opened.file_bytes,
        )
