"""The training loop: one for every stage, task and number of processes."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from maqee.data import Augmentation, Splits, TrainBatches
from maqee.errors import MaqeeError
from maqee.exits import backbone_of
from maqee.interrupt import catch_interrupt
from maqee.models import Backbone
from maqee.models.compiling import compile_each, many_versions, undo_compile
from maqee.models.layers import DropPath
from maqee.progress import steps as show_steps
from maqee.runtime.graphs import CudaRecorder
from maqee.training.checkpoint import load_checkpoint, save_checkpoint
from maqee.training.ema import Ema
from maqee.training.log import TrainLog
from maqee.training.optimizer import learning_rate, make_optimizer, set_rate
from maqee.training.recipe import StageSection
from maqee.training.recorded_steps import Losses, Pass, RecordedSteps, can_be_recorded
from maqee.training.runner import Runner
from maqee.training.stages import Stage

LOG_EVERY = 20


@dataclass(frozen=True)
class LoopOptions:
    """What the loop needs besides the stage: where, how safe, how fast."""

    folder: Path
    digest: str
    seed: int
    checkpoint_minutes: float = 2.0
    compile: bool = False
    tensorboard: bool = False


def train_stage(
    stage: Stage, splits: Splits, settings: StageSection, name: str, runner: Runner, options: LoopOptions
) -> float:
    """Train until the stage's epochs are over; leaves the trained weights in `stage.model`.

    Batches, learning rate and random draws depend on the step's number only, so a run that was killed and resumed from
    its last checkpoint ends with the same weights as one that was not.

    Returns:
        Seconds spent in this call.
    """
    backbone = backbone_of(stage.model)
    batches = _make_batches(splits, backbone, settings, runner, options.seed)
    total = max(1, round(settings.epochs * batches.steps_per_epoch / settings.accumulate))
    warmup = round(settings.warmup * batches.steps_per_epoch / settings.accumulate)
    trained = _freeze_rest(stage)
    set_drop_path(backbone, settings.drop_path)
    module = runner.prepare(stage)
    if options.compile:
        compile_each(stage.model.compilable())
    optimizer = make_optimizer(trained.items(), settings, backbone.depth, runner.device, stage.rate_factor)
    ema = Ema(stage, settings.ema) if settings.ema else None
    path = options.folder / f"{name}.checkpoint.safetensors"
    first = load_checkpoint(path, stage, optimizer, ema, options.digest) if path.exists() else 0
    run = _passes(stage, module, list(trained.values()), settings, runner, options)
    log = TrainLog(options.folder, name, first, options.tensorboard) if runner.rank == 0 else None
    started = saved = time.monotonic()
    stage.train()
    versions = many_versions() if options.compile else nullcontext()  # a Swin has seven kinds of blocks
    with show_steps(name, total, enabled=runner.rank == 0) as bar, catch_interrupt() as interrupted, versions:
        for step in range(first, total):
            set_rate(optimizer, factor := learning_rate(step, total, warmup))
            torch.manual_seed(options.seed * 1_000_003 + step)  # stochastic depth; batches draw for themselves
            loss, pieces = _accumulate(run, batches, step, settings.accumulate)
            norm = nn.utils.clip_grad_norm_(trained.values(), settings.clip or math.inf)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if ema is not None:
                ema.update()
            if step % LOG_EVERY == 0 or step == total - 1:
                entry = _measure(loss, norm, pieces, name, step)
                entry |= {"epoch": round(step * settings.accumulate / batches.steps_per_epoch, 4), "rate": factor}
                entry["seconds"] = round(time.monotonic() - started, 3)
                if log is not None:
                    log.write(step, **entry)
                bar.update(step + 1, f"loss {entry['loss']:.3f} norm {entry['gradient_norm']:.2f}")
            due = time.monotonic() - saved >= 60 * options.checkpoint_minutes and step + 1 < total
            if runner.rank == 0 and (due or interrupted):
                save_checkpoint(path, stage, optimizer, ema, step + 1, options.digest)
                saved = time.monotonic()
            if interrupted:
                raise KeyboardInterrupt
    if ema is not None:
        stage.load_state_dict(ema.state())
    if options.compile:
        undo_compile(stage.model.compilable())
    set_drop_path(backbone, 0.0)
    stage.requires_grad_(True)
    stage.eval()
    return time.monotonic() - started


def set_drop_path(backbone: Backbone, rate: float) -> None:
    """Stochastic depth, the same at every block: a rate of its own for each would have each compiled on its own."""
    for child in backbone.modules():
        if isinstance(child, DropPath):
            child.rate = rate


def _make_batches(
    splits: Splits, backbone: Backbone, settings: StageSection, runner: Runner, seed: int
) -> TrainBatches:
    if settings.batch_size % settings.accumulate:
        raise MaqeeError(f"batch_size {settings.batch_size} is not a multiple of accumulate {settings.accumulate}.")
    return TrainBatches(
        splits.training(),
        backbone.preprocessing,
        Augmentation(**settings.augment.model_dump()),
        settings.batch_size // settings.accumulate,
        seed,
        runner.rank,
        runner.world,
        runner.device,
    )


def _freeze_rest(stage: Stage) -> dict[str, nn.Parameter]:
    """Switch gradients off for what the stage does not train, and return the rest."""
    trained = dict(stage.trained_parameters())
    for name, parameter in stage.named_parameters():
        parameter.requires_grad_(name in trained)
    return trained


def _passes(
    stage: Stage,
    module: nn.Module,
    trained: list[nn.Parameter],
    settings: StageSection,
    runner: Runner,
    options: LoopOptions,
) -> Pass:
    """Forward and backward pass over a piece of a batch; recorded where the stage is compiled and allows it."""

    def run(images: Tensor, targets: Tensor, step: int) -> Losses:
        with runner.autocast():
            loss, parts = module(images, targets, step)
        runner.backward(loss / settings.accumulate)
        return loss.detach(), parts

    recordable = can_be_recorded(runner.device, runner.world, settings.accumulate, stage.task.on_device)
    if not (options.compile and recordable):
        return run
    return RecordedSteps(run, trained, stage.form, CudaRecorder(runner.device, warm_up=0))


def _accumulate(run: Pass, batches: TrainBatches, step: int, pieces: int) -> Losses:
    """Passes over the pieces of one batch; the mean loss, and the last piece's parts for the log."""
    losses = []
    for piece in range(pieces):
        loss, parts = run(*batches.batch(step * pieces + piece), step)
        losses.append(loss)
    return torch.stack(losses).mean(), parts


def _measure(loss: Tensor, norm: Tensor, parts: dict[str, Tensor], name: str, step: int) -> dict[str, float]:
    entry = {"loss": float(loss), "gradient_norm": float(norm)} | {key: float(value) for key, value in parts.items()}
    if not math.isfinite(entry["loss"]) or not math.isfinite(entry["gradient_norm"]):
        raise MaqeeError(
            f"Stage {name} diverged at step {step} (loss {entry['loss']}, gradient norm {entry['gradient_norm']}): "
            "lower lr or clip, and compare `maqee bench gradients`."
        )
    return {key: round(value, 6) for key, value in entry.items()}
