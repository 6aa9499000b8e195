"""A finished network as the teacher of another: it looks at the very pictures that the student sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from maqee.data.transforms import resize
from maqee.exits import Network, backbone_of
from maqee.models.preprocessing import Preprocessing
from maqee.tasks import Task
from maqee.training.exit_losses import TEMPERATURE


class Teacher(nn.Module):
    """What a frozen network makes of images that were prepared for another one, at full depth.

    Crops, colours and mixtures are the student's, so that the two are asked the same question; the picture is then
    scaled to the teacher's size and normalised as the teacher wants it.

    Args:
        network: the teacher.
        student: how the images were prepared.
        logits: which of the teacher's logits belong to the student's, in their order.
    """

    to_picture: Tensor
    from_picture: Tensor
    logits: Tensor

    def __init__(self, network: Network, student: Preprocessing, logits: list[int]) -> None:
        super().__init__()
        self.network = network.eval().requires_grad_(False)
        own = backbone_of(network).preprocessing
        self.image_size = own.image_size
        # buffers, because a recorded step must not copy anything from the host
        self.register_buffer("to_picture", _mean_and_std(student))
        self.register_buffer("from_picture", _mean_and_std(own))
        self.register_buffer("logits", torch.tensor(logits))

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width), normalised for the student, to (batch, classes)."""
        mean, std = self.to_picture
        pictures = resize((images * std + mean).clamp(0, 1), self.image_size)
        mean, std = self.from_picture
        output: Tensor = self.network((pictures - mean) / std)
        return output[:, self.logits]


@dataclass(frozen=True)
class Lesson:
    """A teacher, and how much its word counts beside the labels.

    Attributes:
        teacher: on the device of the student.
        share: of the loss at full depth that is imitation; the rest is the task's own.
    """

    teacher: Teacher
    share: float

    def loss(self, task: Task, own: Tensor, output: Tensor, images: Tensor) -> Tensor:
        """(1 - share) x loss on labels + share x T^2 KL(teacher || student), as a mean over the batch.

        Args:
            task: what is learnt.
            own: the mean loss on labels.
            output: the student's logits.
            images: what it saw.
        """
        imitation = task.distillation(output, self.teacher(images), TEMPERATURE).mean()
        return (1 - self.share) * own + self.share * imitation


def _mean_and_std(preprocessing: Preprocessing) -> Tensor:
    """Of pictures in 0..1: (2, channels, 1, 1)."""
    white = 255 * preprocessing.rescale
    return torch.tensor([preprocessing.mean, preprocessing.std])[..., None, None] / white
