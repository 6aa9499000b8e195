"""A finished model at work: what `maqee.load` reads and what `maqee.compress` returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from maqee.apq.plan import Plan
from maqee.errors import MaqeeError
from maqee.exits import Decision, EarlyExitModel
from maqee.models import Preprocessing
from maqee.policy import Policy
from maqee.quant import QuantizedModel
from maqee.runtime.checks import check_images
from maqee.runtime.engines import engines
from maqee.runtime.graphs import forget_graphs
from maqee.runtime.pictures import Images, Pictures
from maqee.runtime.predictions import Prediction
from maqee.runtime.predictor import predict_each
from maqee.runtime.stream import stream_answers
from maqee.tasks import Task, tasks

if TYPE_CHECKING:
    from maqee.apq.trace import Trace


@dataclass(frozen=True)
class Compression:
    """What a compressed model has and a trained one has not.

    Attributes:
        plan: bits and thresholds, and how they came about.
        quantized: handles to the bits.
        trace: the calibration pass, right after a compression; a loaded model leaves it in its file.
        finished: False if the search was interrupted; the plan is then the best so far.
        notes: what the user should know about how it came about.
    """

    plan: Plan
    quantized: QuantizedModel
    trace: Trace | None = None
    finished: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadyModel:
    """A network that stops where its policy says.

    Attributes:
        model: the network; `forward_all` shows every exit. A trained model without exits is one with none.
        policy: where to stop.
        task_name: what is predicted.
        compression: plan and bits of a compressed model; None for a trained one.
        engine: what runs it; see `maqee.runtime.engines`.
        half_tokens: whether tokens travel between blocks in float16, which the engine triton can do.
    """

    model: EarlyExitModel
    policy: Policy
    task_name: str = "classification"
    compression: Compression | None = None
    engine: str = "torch"
    half_tokens: bool = False

    @property
    def plan(self) -> Plan:
        """The plan of a compressed model."""
        return self._compressed().plan

    @property
    def quantized(self) -> QuantizedModel:
        """The handles to the bits of a compressed model."""
        return self._compressed().quantized

    @property
    def trace(self) -> Trace:
        """The calibration pass of a compression that has just ended."""
        trace = self._compressed().trace
        if trace is None:
            raise MaqeeError("A loaded model leaves its trace in the file trace.safetensors: read it with Trace.load.")
        return trace

    @property
    def finished(self) -> bool:
        """Whether the search came to its end."""
        return self.compression is None or self.compression.finished

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about how the model came about."""
        return () if self.compression is None else self.compression.notes

    @property
    def task(self) -> Task:
        """Loss, confidence and metric."""
        return tasks[self.task_name]

    @property
    def preprocessing(self) -> Preprocessing:
        """How it wants its images."""
        return self.model.backbone.preprocessing

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the outputs; empty where nobody knows them."""
        return self.model.backbone.classes

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return next(self.model.parameters()).device

    def __call__(self, images: Tensor) -> Tensor:
        """Predictions for normalised images, each from the exit that was sure enough."""
        return self.run(images).output

    def run(self, images: Tensor) -> Decision:
        """The same with the exit each image took and how sure the model was."""
        check_images(images, self.model.backbone.config.channels)
        return self.model.run(images, self.policy)

    def predict(self, images: Images, top: int = 5, batch_size: int = 16) -> list[Prediction]:
        """What the model says about pictures: class names, boxes or masks, and the exit each took.

        Args:
            images: a file, a folder, a pattern ("pics/*.jpg"), PIL images, uint8 arrays (height, width, 3), uint8
                tensors (3, height, width), or several of these. A float tensor (n, channels, height, width) is taken
                as normalised already.
            top: classes to name for a picture, at most.
            batch_size: pictures that go through the model together.
        """
        return list(self.predict_each(images, top, batch_size))

    def predict_each(self, images: Images, top: int = 5, batch_size: int = 16) -> Iterator[Prediction]:
        """The same one after the other, for more pictures than memory holds, or for an iterator that never ends."""
        return predict_each(self.model, self.policy, self.task, images, top, batch_size)

    @overload
    def stream(
        self, images: Tensor, batch: int = 256, *, limit: int | None = None, max_wait: float | None = None
    ) -> Iterator[Decision]: ...

    @overload
    def stream(
        self,
        images: Pictures,
        batch: int = 256,
        *,
        limit: int | None = None,
        max_wait: float | None = None,
        top: int = 5,
    ) -> Iterator[Prediction]: ...

    @overload
    def stream(
        self, images: Iterable[Tensor], batch: int = 256, *, limit: int | None = None, max_wait: float | None = None
    ) -> Iterator[Decision]: ...

    def stream(
        self,
        images: Images,
        batch: int = 256,
        *,
        limit: int | None = None,
        max_wait: float | None = None,
        top: int = 5,
    ) -> Iterator[Decision] | Iterator[Prediction]:
        """Answers in the order the images come, from full batches at every depth; see docs/streams.md.

        A tensor is what `run` takes, normalised images (n, channels, height, width) or one (channels, height, width),
        and gives one `Decision` of as many. Anything else is what `predict` takes (files, folders, pictures, pixels)
        and gives a `Prediction` for every picture. A thread reads ahead and decodes while the model computes.

        Args:
            images: any iterable; it need not end. All images have one size.
            batch: images that go through the model together.
            limit: images that may have begun and not been handed out; 32 batches when left out. Answers wait for
                those of earlier images: at the limit whatever holds the oldest one up runs with a part of a batch.
            max_wait: seconds after which an image no longer waits for others to fill a batch, for live sources; left
                out, the last ones wait for the end.
            top: classes to name for a picture, at most.
        """
        return stream_answers(  # type: ignore[return-value]
            self.model, self.policy, self.task, images, batch=batch, limit=limit, max_wait=max_wait, top=top
        )

    def with_policy(self, policy: Policy | Sequence[float] | float) -> ReadyModel:
        """The same model with other thresholds: a policy, one threshold for each exit, or one for all."""
        if isinstance(policy, int | float):
            policy = Policy.same(float(policy), self.model.num_exits)
        chosen = policy if isinstance(policy, Policy) else Policy(tuple(policy))
        chosen.check(self.model.num_exits)
        return replace(self, policy=chosen)

    def with_plan(self, plan: Plan) -> ReadyModel:
        """A compressed model with other thresholds and what is known about them; its bits stay."""
        return replace(self, policy=plan.policy, compression=replace(self._compressed(), plan=plan))

    def to(self, device: str | torch.device) -> ReadyModel:
        """Move it to a device. CUDA graphs read weights where they lay, so a model that had some records anew."""
        forget_graphs(self.model)
        return engines[self.engine](self, torch.device(device))

    def to_json(self) -> dict[str, Any]:
        """What it is, as plain values."""
        return {
            "task": self.task_name,
            "classes": list(self.classes),
            "thresholds": list(self.policy.thresholds),
            "exit_blocks": list(self.model.positions),
            "depth": self.model.backbone.depth,
            "bits": None if self.compression is None else self.plan.bits.to_json(),
            "method": None if self.compression is None else self.plan.method,
            "engine": self.engine,
            "half_tokens": self.half_tokens,
            "finished": self.finished,
            "notes": list(self.notes),
        }

    def _compressed(self) -> Compression:
        if self.compression is None:
            raise MaqeeError("This model was trained and not compressed, so that it has no plan: run maqee compress.")
        return self.compression
