"""Training steps as CUDA graphs: one launch for a whole forward and backward pass.

A step of a small transformer is thousands of kernels, and the host needs longer to launch them than the GPU to run
them. Batches have one size and a stage has one or two kinds of steps, so that each is recorded once and replayed from
then on: same kernels, same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

Losses = tuple[Tensor, dict[str, Tensor]]  # the loss and its parts
Pass = Callable[[Tensor, Tensor, int], Losses]  # of images, targets and the number of the step
Record = Callable[[Callable[[], Losses]], tuple[Callable[[], None], Losses]]  # as `maqee.runtime.graphs.CudaRecorder`

STEPS_BEFORE = 2  # of each kind, which run as they are: torch.compile and the libraries choose their kernels there


class _Recorded(NamedTuple):
    """A graph with the memory it reads and writes; a parameter that has no part in the step has no gradient."""

    images: Tensor
    targets: Tensor
    replay: Callable[[], None]
    loss: Tensor
    parts: dict[str, Tensor]
    gradients: list[Tensor | None]


class RecordedSteps:
    """Forward and backward passes, of which each kind is recorded after its first steps.

    The loss and gradients of a step stand until the next one. Steps that run before the recording are steps of the
    training like all others, so that nothing is computed that would not be computed without graphs.

    Args:
        run: forward and backward pass; it leaves gradients in the parameters.
        parameters: what is trained.
        form: which kind of step a number is.
        record: takes a function, and returns a way to run it on the memory of its first results, and these.
    """

    def __init__(
        self, run: Pass, parameters: Sequence[nn.Parameter], form: Callable[[int], int], record: Record
    ) -> None:
        self.run, self.parameters, self.form, self.record = run, parameters, form, record
        self._seen: Counter[Hashable] = Counter()
        self._recorded: dict[Hashable, _Recorded] = {}

    def __call__(self, images: Tensor, targets: Tensor, step: int) -> Losses:
        """The loss and its parts; gradients are in the parameters, which had none."""
        kind = self.form(step), images.shape, targets.shape, targets.dtype
        if kind not in self._recorded:
            self._seen[kind] += 1
            if self._seen[kind] <= STEPS_BEFORE:
                return self.run(images, targets, step)
            self._recorded[kind] = self._record(images, targets, step)
        found = self._recorded[kind]
        found.images.copy_(images)
        found.targets.copy_(targets)
        found.replay()
        for parameter, gradient in zip(self.parameters, found.gradients, strict=True):
            parameter.grad = gradient
        return found.loss, found.parts

    def _record(self, images: Tensor, targets: Tensor, step: int) -> _Recorded:
        images, targets = images.clone(), targets.clone()
        replay, (loss, parts) = self.record(lambda: self.run(images, targets, step))
        return _Recorded(images, targets, replay, loss, parts, [parameter.grad for parameter in self.parameters])


def can_be_recorded(device: torch.device, world: int, pieces: int, on_device: bool) -> bool:
    """Whether steps can be recorded: on a GPU, in one process and one piece, where the host has no part in the loss."""
    return device.type == "cuda" and world == 1 and pieces == 1 and on_device
