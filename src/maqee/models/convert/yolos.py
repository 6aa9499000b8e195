"""Layout of YOLOS in transformers: a ViT with detection tokens, positions between blocks and two heads."""

from __future__ import annotations

from dataclasses import replace

from maqee.models.config import ViTConfig
from maqee.models.convert.hints import Hints
from maqee.models.convert.layout import Layout, State
from maqee.models.convert.vit import TRANSFORMERS_NAMES, encoder_names
from maqee.models.convert.vit_shape import infer_vit

_NAMES = (
    ("embeddings.detection_tokens", "embedding.detection_tokens"),
    ("encoder.mid_position_embeddings", "mid_position"),  # in files
    ("encoder.interpolation.mid_position_embeddings", "mid_position"),  # in live modules
    ("class_labels_classifier.layers.*", "head.classes.layers.*"),
    ("bbox_predictor.layers.*", "head.boxes.layers.*"),
)


def _infer(state: State, hints: Hints) -> ViTConfig:
    """As for a ViT whose position embedding ends with the detection tokens; the last logit is "no object"."""
    queries = state["embedding.detection_tokens"].shape[1]
    positions = state["embedding.position"]
    body = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
    config = infer_vit(body | {"embedding.position": positions[:, : positions.shape[1] - queries]}, hints)
    logits = state["head.classes.layers.2.weight"].shape[0] if len(body) < len(state) else 1
    changed = replace(config, readout="detection", detection_tokens=queries, num_classes=logits - 1)
    return replace(changed, mid_position="mid_position" in state)


YOLOS_LAYOUTS = (
    Layout(
        name="transformers YOLOS",
        markers=("embeddings.detection_tokens",),
        prefixes=("vit.",),
        names=(*_NAMES, *TRANSFORMERS_NAMES, *encoder_names("encoder.layer")),
        ignored=("pooler.dense",),
        infer=_infer,
    ),
)
