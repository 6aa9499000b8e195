"""Which signal tells best what a change of one width really does?

A search for bits goes by figures that are cheap to have. Here all single steps from uniform widths are made, what they
do to loss and answers is measured on images that no signal has seen, and every signal is ranked by how well it ranks
the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from maqee.apq import SearchOptions
from maqee.apq.risks import exit_of_block
from maqee.apq.units import ATTENTION
from maqee.bench.layer_noise import LayerNoise, layer_noise
from maqee.bench.result import BenchResult
from maqee.bench.signal_moves import Answers, Change, Figure, answers_under, single_moves
from maqee.compression.compress_options import CompressOptions
from maqee.compression.job import fit_model, load_batches
from maqee.compression.sensitivity import relative_error
from maqee.data import open_source
from maqee.device import pick_device
from maqee.environment import describe_environment
from maqee.errors import MaqeeError
from maqee.evaluation.calibration import draw_images, other_images
from maqee.evaluation.rank_correlation import rank_correlation
from maqee.evaluation.record import Batch
from maqee.exits import EarlyExitModel, load_with_exits
from maqee.quant import QuantizedModel, QuantSettings
from maqee.runs import model_folder, require_data, require_folder, short_name, task_of
from maqee.tasks import Task, tasks
from maqee.widths import BitPair, BitSettings, BlockWidths

Floats = NDArray[np.float64]
BASE = (4, 4)
WIDEST = (6, 8)
IMAGES = (32, 64, 128)
FEWEST_HELD_OUT = 16
_BOUNDARY = 0.05  # tau of BSR


@dataclass(frozen=True, kw_only=True)
class SignalRank:
    """One signal: Spearman's rank correlation with what the steps really do, 1 is best, None where it has no order.

    Attributes:
        signal: what it is.
        images: that it was measured on.
        loss_full: rank correlation with the change of the loss at full depth.
        loss_exits: with the change of the loss, the mean over all exits and full depth.
        divergence_full: with the change of the distance from the full-precision model's answers at full depth.
        divergence_exits: with the mean of that over all exits and full depth.
        fewer: the same as `divergence_exits` among steps to fewer bits alone.
        more: likewise among steps to more bits.
    """

    signal: str
    images: int
    loss_full: float | None
    loss_exits: float | None
    divergence_full: float | None
    divergence_exits: float | None
    fewer: float | None
    more: float | None


@dataclass(frozen=True, kw_only=True)
class SignalComparison(BenchResult):
    """All signals on one model.

    Attributes:
        model: short name of its folder.
        data: name of the images.
        method: quantization method.
        base: uniform widths that the steps start from.
        widest: widths that some of the signals start from.
        moves: number of single steps.
        held_out: images that the real effects were measured on.
        rows: the signals.
        best: the signal with the largest `divergence_exits`.
    """

    model: str
    data: str
    method: str
    base: str
    widest: str
    moves: int
    held_out: int
    rows: tuple[SignalRank, ...]
    best: str | None


@dataclass(frozen=True)
class Signal:
    """A number for each step, at full depth and as the mean over exits; the same where it knows no exits."""

    name: str
    images: int
    full: Floats
    exits: Floats


def bench_signals(
    model: str | Path,
    *,
    data: str | None = None,
    data_root: str | Path | None = None,
    method: str = "erq",
    images: Sequence[int] = IMAGES,
    held_out: int = 2048,
    fit_images: int = 32,
    seed: int = 0,
    device: str | None = None,
) -> SignalComparison:
    """Rank signals by how well they rank all single steps of widths from uniform W4A4.

    Args:
        model: folder of a run of `maqee train`, of one of its stages, or of any model with exits.
        data: name of the data set, if the folder does not say.
        data_root: where the data lie, if not where they were.
        method: quantization method.
        images: calibration images that signals look at; signals that can are measured on each of these numbers.
        held_out: the most other calibration images to measure the real effects on.
        fit_images: calibration images that grids are fitted on.
        seed: random seed of the draw of images.
        device: the GPU if there is one.
    """
    run, target = require_folder(Path(model)), pick_device(device)
    if not images or min(images) < 1:
        raise MaqeeError("images: give at least one number of images, each at least 1.")
    task, folder = tasks[task_of(run)], model_folder(run)
    network = load_with_exits(folder, task.confidence).to(target).eval()
    calibration = open_source(require_data(run, data, data_root), network.backbone).calibration
    calibration.require(task.targets, task.name)
    options = CompressOptions(method=method, task=task.name, fit_images=fit_images, samples=max(images), seed=seed)
    fitting, looked_at = draw_images(calibration, *options.draws)
    others = other_images(calibration, *options.draws)[:held_out]
    if len(others) < FEWEST_HELD_OUT:
        raise MaqeeError(
            f"{calibration.name} has {len(calibration)} calibration images, which leaves {len(others)} to measure real "
            f"effects on; at least {FEWEST_HELD_OUT} are needed: give signals fewer (images)."
        )
    steps = tuple(range(BASE[0] - 1, BASE[0] + 2))
    settings = QuantSettings(widths=(*steps, WIDEST[0]), act_widths=(*steps, WIDEST[1]))
    quantized = fit_model(network, fitting, settings, options, target)
    depth = network.backbone.depth
    base, moves = _with_blocks(quantized.bit_settings, BASE), single_moves(depth, *BASE)
    measures: list[Figure] = [lambda output, wanted, goal: task.loss(output, goal), _divergence(task)]
    unseen = load_batches(calibration.select(others), network)
    effects = answers_under(network, quantized, unseen, base, moves, measures).moved.mean(axis=1)  # (moves, E + 1, 2)

    batches = load_batches(looked_at, network)
    measures += [_logit_error, lambda output, wanted, goal: task.confidence(output)]
    near = answers_under(network, quantized, batches, base, moves, measures)
    wide = _from_widest(network, quantized, batches, base, moves, measures[1:3])
    noise = layer_noise(quantized, batches, base, moves, task)
    signals = [*paper_signals(near, moves, network.exit_blocks), *_image_signals(near, wide, noise, images)]
    rows = tuple(rank_signal(signal, effects, moves) for signal in signals)
    known = [row for row in rows if row.divergence_exits is not None]
    return SignalComparison(
        model=short_name(folder),
        data=calibration.name,
        method=method,
        base=f"W{BASE[0]}A{BASE[1]}",
        widest=f"W{WIDEST[0]}A{WIDEST[1]}",
        moves=len(moves),
        held_out=len(others),
        rows=rows,
        best=max(known, key=lambda row: row.divergence_exits or 0.0).signal if known else None,
        environment=describe_environment(),
    )


def rank_signal(signal: Signal, effects: Floats, moves: Sequence[Change]) -> SignalRank:
    """Compare a signal with the real effects, (moves, exits + 1, 2): loss and divergence."""
    full, mean = effects[:, -1], effects.mean(axis=1)  # (moves, 2)
    fewer = np.array([sum(move.pair) < sum(BASE) for move in moves])
    return SignalRank(
        signal=signal.name,
        images=signal.images,
        loss_full=rank_correlation(signal.full, full[:, 0]),
        loss_exits=rank_correlation(signal.exits, mean[:, 0]),
        divergence_full=rank_correlation(signal.full, full[:, 1]),
        divergence_exits=rank_correlation(signal.exits, mean[:, 1]),
        fewer=rank_correlation(signal.exits[fewer], mean[fewer, 1]),
        more=rank_correlation(signal.exits[~fewer], mean[~fewer, 1]),
    )


def paper_signals(near: Answers, moves: Sequence[Change], exit_blocks: Sequence[int]) -> list[Signal]:
    """The four risks of the changed block, and their weighed sum R: by how much a step changes them.

    PGR and BSR are those of the next exit behind the block, over all images, with thresholds at the median confidence;
    behind the last exit there are none. BSR looks at the quantized model's confidences: others know nothing of bits.
    """
    options, blocks = SearchOptions(), np.array([move.unit.number for move in moves])
    charged = exit_of_block(exit_blocks, exit_blocks[-1])[blocks - 1]  # (moves,), -1 for none
    loss, confidence = near.moved[..., 0].mean(axis=1), near.base[..., 3]  # (moves, E + 1), (images, E + 1)
    limits = np.median(confidence, axis=0)
    before = (np.abs(confidence - limits) <= _BOUNDARY).mean(axis=0)
    after = (np.abs(confidence + near.moved[..., 3] - limits) <= _BOUNDARY).mean(axis=1)
    rows = np.arange(len(moves))
    pgr, bsr = (np.where(charged >= 0, values[rows, charged], 0.0) for values in (loss, after - before))
    qid, sqnr = near.moved_blocks.mean(axis=1).T
    losses = near.base[..., 0]
    gap = float(np.abs(losses - losses[:, -1:]).mean(axis=0)[:-1].max(initial=0.0)) or 1.0
    scales = np.maximum(near.base_blocks.mean(axis=0).max(axis=0), 1e-12)  # (2,)
    alpha = options.alpha
    total = alpha * (pgr / gap + bsr) + (1 - alpha) * (qid / scales[0] + sqnr / scales[1])
    count = len(confidence)
    named = (("PGR", pgr), ("BSR", bsr), ("QID", qid), ("inverse SQNR", sqnr), ("R, sum of the four", total))
    return [Signal(name, count, values, values) for name, values in named]


def _image_signals(near: Answers, wide: Floats, noise: LayerNoise, images: Sequence[int]) -> list[Signal]:
    """Signals that are means over images, on several numbers of them; `wide` is (moves, images, exits + 1, 2)."""
    found = []
    base, widest = f"W{BASE[0]}A{BASE[1]}", "widest"
    most = noise.own.shape[1]
    for count in sorted({min(count, most) for count in images}):
        own = noise.own[:, :count].mean(axis=1)
        found.append(Signal("noise of the layer's output", count, own, own))
        tables = {
            f"logit error at the exits, from {widest}": wide[..., 1],
            f"divergence at the exits, from {widest}": wide[..., 0],
            f"logit error at the exits, from {base}": near.moved[..., 2],
            f"divergence at the exits, from {base}": near.moved[..., 1],
            "Fisher: squared gradient x squared error": noise.fisher,
        }
        for name, values in tables.items():
            mean = values[:, :count].mean(axis=1)  # (moves, exits + 1)
            found.append(Signal(name, count, mean[:, -1], mean.mean(axis=1)))
    return found


def _from_widest(
    network: EarlyExitModel,
    quantized: QuantizedModel,
    batches: Sequence[Batch],
    base: BitSettings,
    moves: Sequence[Change],
    measures: Sequence[Figure],
) -> Floats:
    """The same steps as differences of two changes from the most bits: (moves, images, exits + 1, figures)."""
    pairs = [(_widened(move), _widened(Change(move.unit, move.unit.pair(base)), move)) for move in moves]
    changes = list(dict.fromkeys(change for pair in pairs for change in pair))
    moved = answers_under(network, quantized, batches, _with_blocks(base, WIDEST), changes, measures).moved
    quantized.set_widths(base)
    return np.stack([moved[changes.index(after)] - moved[changes.index(before)] for after, before in pairs])


def _widened(change: Change, like: Change | None = None) -> Change:
    """The change with the most bits in the width that the move leaves alone."""
    moved = (like or change).pair
    if change.unit.layer == ATTENTION:
        return change
    weights_move = moved[0] != BASE[0]
    return Change(change.unit, (change.pair[0], WIDEST[1]) if weights_move else (WIDEST[0], change.pair[1]))


def _with_blocks(bits: BitSettings, pair: BitPair) -> BitSettings:
    return replace(bits, blocks=(BlockWidths.uniform(*pair),) * bits.depth)


def _divergence(task: Task) -> Figure:
    return lambda output, wanted, goal: task.distillation(output, wanted, 1.0)


def _logit_error(output: Tensor, wanted: Tensor, goal: Tensor) -> Tensor:
    return relative_error(output.float(), wanted.float())
