"""Where training begins: a model whose classifier belongs to the classes of the data, and data in its order."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from maqee.data import Splits
from maqee.data.classes import align_splits, same_classes
from maqee.models import Backbone, is_preset, load_backbone
from maqee.models.labels import has_names
from maqee.models.load import build_backbone
from maqee.models.preprocessing import override
from maqee.runs import resolve_model
from maqee.training.recipe import ModelSection

logger = logging.getLogger(__name__)


def load_start(model: ModelSection, splits: Splits, seed: int) -> tuple[Backbone, Splits]:
    """Load the model that a recipe names, for the classes of a data set.

    A classifier that knows all of them is kept, and the data get its order. One that does not is replaced. Where the
    model has no names but as many classes, numbers must do, and the model takes the names over.

    Returns:
        The model, with class names where anybody knows them, and the data with labels in the order of its logits.
    """
    data = splits.test
    if is_preset(model.source):  # random weights: there is nothing to keep
        backbone = load_backbone(model.source, len(data.classes), model.image_size, model.detection_tokens)
    else:
        backbone = load_backbone(resolve_model(model.source), None, model.image_size, model.detection_tokens)
        if same_classes(backbone, data):
            splits = align_splits(splits, backbone)
        else:
            backbone = _with_new_classifier(backbone, model.source, splits, seed)
    if has_names(data.classes) and not has_names(backbone.classes):
        backbone.classes = data.classes
    if model.pixels is not None:
        backbone.preprocessing = override(backbone.preprocessing, **model.pixels.model_dump())
    return backbone, splits


def _with_new_classifier(backbone: Backbone, source: str, splits: Splits, seed: int) -> Backbone:
    """The same network with a fresh classifier, also where the old one has the right size but other classes."""
    count = len(splits.test.classes)
    if backbone.config.num_classes:
        logger.warning("%s knows other classes than %s: new classifier for %d classes", source, splits.test.name, count)
    torch.manual_seed(seed)
    fresh = build_backbone(replace(backbone.config, num_classes=count), backbone.preprocessing)
    own = fresh.state_dict()
    kept = {name: tensor for name, tensor in backbone.state_dict().items() if not name.startswith("head.")}
    fresh.load_state_dict({name: kept.get(name, tensor) for name, tensor in own.items()})
    return fresh
