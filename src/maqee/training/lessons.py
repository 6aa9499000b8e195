"""The teachers that a recipe names, loaded before its first stage begins."""

from __future__ import annotations

from collections.abc import Collection

import torch

from maqee.data import Splits
from maqee.data.classes import find_logits, same_classes
from maqee.errors import MaqeeError
from maqee.exits import backbone_of, load_network
from maqee.models import is_preset
from maqee.models.compiling import compile_each
from maqee.models.preprocessing import Preprocessing
from maqee.runs import resolve_model, stage_name
from maqee.training.recipe import Recipe
from maqee.training.teacher import Lesson, Teacher


def load_lessons(
    recipe: Recipe, finished: Collection[str], student: Preprocessing, splits: Splits, device: torch.device
) -> dict[str, Lesson]:
    """The lessons of a recipe by the names of their stages, so that a mistake is known before the first one begins.

    Args:
        recipe: names teachers and their shares.
        finished: names of stages that are done; nobody needs their teachers any more.
        student: how the student wants its images.
        splits: the data, with labels in the order of the student's logits.
        device: where stages run.
    """
    lessons: dict[str, Lesson] = {}
    teachers: dict[str, Teacher] = {}
    for index, settings in enumerate(recipe.stages):
        name, source = stage_name(index, settings.kind), settings.teacher
        if source is None or name in finished:
            continue
        if source not in teachers:
            teachers[source] = _load_teacher(source, student, splits, device, recipe.compile)
        lessons[name] = Lesson(teachers[source], settings.teacher_share)
    return lessons


def _load_teacher(source: str, student: Preprocessing, splits: Splits, device: torch.device, compile: bool) -> Teacher:
    if is_preset(source):
        raise MaqeeError(f"teacher: {source} is a preset with random weights: name a model that was trained.")
    network = load_network(resolve_model(source))
    backbone, data = backbone_of(network), splits.test
    if not same_classes(backbone, data):
        raise MaqeeError(f"teacher: {source} knows other classes than {data.name}: name a model trained on it.")
    if len(backbone.preprocessing.mean) != len(student.mean):
        raise MaqeeError(f"teacher: {source} takes images of other channels than the student: name another model.")
    if compile:
        compile_each(network.compilable())
    return Teacher(network, student, find_logits(data, backbone)).to(device)
