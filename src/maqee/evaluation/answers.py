"""What every exit says about one image, and where a policy stops."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from maqee.data import ImageSet, eval_batches
from maqee.exits import Network, all_outputs, backbone_of, exit_blocks_of
from maqee.models.preprocessing import Preprocessing
from maqee.policy import Policy
from maqee.tasks import Task


@dataclass(frozen=True)
class Answer:
    """One exit's answer.

    Attributes:
        block: the exit sits after this block.
        output: (1, ...), the task's kind of output.
        confidence: how sure the exit is.
        score: how good the answer is, by the task, 0 to 1.
        threshold: the confidence that the policy wants here; None at full depth.
        taken: whether the policy stops here.
        reached: whether the policy gets this far.
    """

    block: int
    output: Tensor
    confidence: float
    score: float
    threshold: float | None
    taken: bool
    reached: bool


@dataclass(frozen=True)
class Example:
    """One image with its truth and all answers.

    Attributes:
        name: the image's.
        pixels: (height, width, channels), 0 to 1, as the model sees it.
        target: (1, ...), the data set's kind of target.
        answers: of every exit, the last at full depth.
    """

    name: str
    pixels: Tensor
    target: Tensor
    answers: tuple[Answer, ...]


@torch.inference_mode()
def answer(network: Network, policy: Policy, data: ImageSet, index: int, task: Task) -> Example:
    """Run every exit on one image.

    Args:
        network: a model with exits, or a plain one, whose only exit is full depth.
        policy: where to stop; without thresholds for a plain model.
        data: the images.
        index: which of them.
        task: what is predicted.
    """
    device = next(network.parameters()).device
    backbone = backbone_of(network)
    [(images, target)] = eval_batches(data.select([index]), backbone.preprocessing, 1, device)
    blocks, outputs = exit_blocks_of(network), all_outputs(network, images)
    sure = torch.cat([task.confidence(output) for output in outputs]).cpu()  # (exits + 1,)
    taken = int(policy.choose(sure[None, :-1].numpy())[0])
    answers = tuple(
        Answer(
            block=block,
            output=output.cpu(),
            confidence=float(sure[place]),
            score=float(task.score(output, target)),
            threshold=policy.thresholds[place] if place < len(policy.thresholds) else None,
            taken=place == taken,
            reached=place <= taken,
        )
        for place, (block, output) in enumerate(zip(blocks, outputs, strict=True))
    )
    pixels = as_seen(images[0], backbone.preprocessing).cpu()
    return Example(data.images.name(index), pixels, target.cpu(), answers)


def as_seen(image: Tensor, preprocessing: Preprocessing) -> Tensor:
    """A normalised image (channels, h, w) back to colours (h, w, channels) from 0 to 1."""
    mean, std = (torch.tensor(values, device=image.device) for values in (preprocessing.mean, preprocessing.std))
    return ((image.permute(1, 2, 0) * std + mean) / (255 * preprocessing.rescale)).clamp(0, 1)
