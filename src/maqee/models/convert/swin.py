"""Layouts of Swin in transformers and timm. Both nest blocks in stages; ours are one list."""

from __future__ import annotations

import math
import re

from maqee.errors import MaqeeError
from maqee.models.config import SwinConfig
from maqee.models.convert.hints import Hints
from maqee.models.convert.layout import Layout, State, count

_EPS = 1e-5
_STAGE = r"stages\.(\d+)"


def flat_name(name: str, depths: tuple[int, ...]) -> str:
    """stages.2.blocks.1.x -> blocks.5.x and stages.1.merge.x -> merges.3.x (the merging in front of block 3)."""
    if match := re.match(_STAGE + r"\.blocks\.(\d+)\.", name):
        return f"blocks.{sum(depths[: int(match[1])]) + int(match[2])}.{name[match.end() :]}"
    if match := re.match(_STAGE + r"\.merge\.", name):
        return f"merges.{sum(depths[: int(match[1])]) + 1}.{name[match.end() :]}"
    return name


def nested_name(name: str, depths: tuple[int, ...]) -> str:
    """The reverse of `flat_name`."""
    kind, _, rest = name.partition(".")
    number, _, rest = rest.partition(".")
    if kind == "blocks":
        block = int(number)
        stage = next(s for s in range(len(depths)) if block < sum(depths[: s + 1]))
        return f"stages.{stage}.blocks.{block - sum(depths[:stage])}.{rest}"
    if kind == "merges":
        stage = next(s for s in range(len(depths)) if sum(depths[:s]) + 1 == int(number))
        return f"stages.{stage}.merge.{rest}"
    return name


def _infer(state: State, hints: Hints) -> SwinConfig:
    """Everything is in the shapes, bar the image size, which windows do not reveal."""
    projection = state["embedding.patch.weight"]  # (dim, channels, patch, patch)
    stages = count(state, "stages.*.blocks.", "0.norm1.weight")
    tables = [state[f"stages.{stage}.blocks.0.attn.bias_table"] for stage in range(stages)]
    window = (math.isqrt(tables[0].shape[0]) + 1) // 2
    has_classifier = any(name.startswith("head.") for name in state)
    hidden = state["stages.0.blocks.0.mlp.fc1.weight"].shape
    return SwinConfig(
        image_size=hints.image_size or (32 * window, 32 * window),  # published: 224 for window 7, 384 for 12
        patch_size=projection.shape[2],
        channels=projection.shape[1],
        dim=projection.shape[0],
        depths=tuple(count(state, f"stages.{stage}.blocks.*.", "norm1.weight") for stage in range(stages)),
        heads=tuple(table.shape[1] for table in tables),
        window=window,
        mlp_ratio=hidden[0] / hidden[1],
        num_classes=state["head.linear.weight"].shape[0] if has_classifier else 0,
        qkv_bias=any(name.endswith(".attn.qkv.bias") for name in state),
        norm_eps=hints.norm_eps or _EPS,
    )


def _infer_transformers(state: State, hints: Hints) -> SwinConfig:
    """Transformers lets a setting choose the epsilon of some norms only; ours all have the same."""
    if hints.norm_eps not in (None, _EPS):
        raise MaqeeError(
            f"layer_norm_eps is {hints.norm_eps:g}, but the norms behind patches and in mergings have {_EPS:g}, and "
            "only one for all is supported."
        )
    return _infer(state, hints)


def _rename_blocks(theirs: str, pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((f"{theirs}.*.blocks.*.{key}", f"stages.*.blocks.*.{ours}") for key, ours in pairs)


_TRANSFORMERS_BLOCK = (
    ("attention.self.query", "attn.q"),
    ("attention.self.key", "attn.k"),
    ("attention.self.value", "attn.v"),
    ("attention.self.relative_position_bias_table", "attn.bias_table"),
    ("attention.output.dense", "attn.proj"),
    ("attention.q_proj", "attn.q"),
    ("attention.k_proj", "attn.k"),
    ("attention.v_proj", "attn.v"),
    ("attention.relative_position_bias.relative_position_bias_table", "attn.bias_table"),
    ("attention.o_proj", "attn.proj"),
    ("layernorm_before", "norm1"),
    ("layernorm_after", "norm2"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
    ("mlp.fc1", "mlp.fc1"),
    ("mlp.fc2", "mlp.fc2"),
)
_TIMM_BLOCK = (
    ("attn.qkv", "attn.qkv"),
    ("attn.proj", "attn.proj"),
    ("attn.relative_position_bias_table", "attn.bias_table"),
    ("norm1", "norm1"),
    ("norm2", "norm2"),
    ("mlp.fc1", "mlp.fc1"),
    ("mlp.fc2", "mlp.fc2"),
)
_TIMM_NAMES = (
    ("patch_embed.proj", "embedding.patch"),
    ("patch_embed.norm", "embedding.norm"),
    *_rename_blocks("layers", _TIMM_BLOCK),
    ("norm", "norm"),
    ("head", "head.linear"),
    ("head.fc", "head.linear"),
)


def _merge_at_end(stages: str) -> tuple[tuple[str, str], ...]:
    """Transformers and old timm keep the merging in front of stage s + 1 at the end of stage s."""
    return tuple(
        (f"{stages}.{stage}.downsample.{part}", f"stages.{stage + 1}.merge.{part}")
        for stage in range(3)
        for part in ("norm", "reduction")
    )


SWIN_LAYOUTS = (
    Layout(
        name="transformers Swin",
        markers=("encoder.layers.*.blocks.*.layernorm_before",),
        prefixes=("swin.",),
        names=(
            ("embeddings.patch_embeddings.projection", "embedding.patch"),
            ("embeddings.norm", "embedding.norm"),
            *_rename_blocks("encoder.layers", _TRANSFORMERS_BLOCK),
            *_merge_at_end("encoder.layers"),
            ("layernorm", "norm"),
            ("classifier", "head.linear"),
        ),
        ignored=("embeddings.mask_token", "encoder.layers.*.blocks.*.attention.self.relative_position_index"),
        infer=_infer_transformers,
    ),
    Layout(
        name="timm Swin (0.8 and older)",
        markers=("layers.0.downsample.reduction", "layers.0.downsample.norm"),
        prefixes=(),
        names=(*_TIMM_NAMES, *_merge_at_end("layers")),
        ignored=("layers.*.blocks.*.attn_mask", "layers.*.blocks.*.attn.relative_position_index"),
        infer=_infer,
    ),
    Layout(
        name="timm Swin",
        markers=("layers.*.blocks.*.attn.relative_position_bias_table",),
        prefixes=(),
        names=(
            *_TIMM_NAMES,
            ("layers.*.downsample.norm", "stages.*.merge.norm"),
            ("layers.*.downsample.reduction", "stages.*.merge.reduction"),
        ),
        ignored=("layers.*.blocks.*.attn_mask", "layers.*.blocks.*.attn.relative_position_index"),
        infer=_infer,
    ),
)
