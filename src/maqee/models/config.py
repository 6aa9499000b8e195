"""Shapes of backbones as frozen values that can be written to and read from JSON."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from maqee.errors import MaqeeError

# No backbone comes near these; a damaged file does, and must not make the machine run out of memory.
_LARGEST_SIZE = 2**15
_LARGEST_DEPTH = 2**10
_LARGEST_SWIN_IMAGE = 2**12  # every shifted block holds a mask for the whole image

ReadoutKind = Literal["class", "class+distillation", "class+mean", "mean", "detection", "anchored"]
PositionResize = Literal["plain", "antialias", "offset"]


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """A plain vision transformer: ViT, DeiT, DINOv2 and YOLOS differ only in these values.

    Attributes:
        readout: which tokens the classifier sees. "class": the class token (ViT, plain DeiT).
            "class+distillation": one classifier each, logits averaged (distilled DeiT). "class+mean": class token and
            mean patch token side by side (DINOv2). "mean": the mean patch token (timm's global_pool="avg").
            "detection": classes and boxes from the detection tokens (YOLOS). "anchored": the same, with a learned box
            for each token to start from.
        distillation_token: a second special token in the sequence (DeiT); it may be there and yet not be read out.
        layer_scale: a learned factor per channel on each residual branch (DINOv2).
        detection_tokens: learned tokens behind the patches, each of which finds at most one object (YOLOS).
        mid_position: learned positions added between blocks as well (YOLOS small and base).
        registers: learned tokens behind the class token that have no position and are never read out (DINOv2 with
            registers).
        pre_norm: a norm between the embedding and the first block (CLIP).
        pooled_norm: the final norm acts on the mean token instead of on every token (timm's fc_norm).
        position_resize: how positions are stretched to another image size, which every library does in its own way:
            see `maqee.models.positions`.
    """

    image_size: tuple[int, int] = (224, 224)
    patch_size: int = 16
    channels: int = 3
    dim: int = 768
    depth: int = 12
    heads: int = 12
    mlp_dim: int = 3072
    num_classes: int = 1000
    readout: ReadoutKind = "class"
    distillation_token: bool = False
    layer_scale: bool = False
    qkv_bias: bool = True
    norm_eps: float = 1e-6
    detection_tokens: int = 0
    mid_position: bool = False
    registers: int = 0
    pre_norm: bool = False
    pooled_norm: bool = False
    position_resize: PositionResize = "plain"

    def __post_init__(self) -> None:
        for name in ("patch_size", "channels", "dim", "heads", "mlp_dim"):
            _check_size(getattr(self, name), name)
        _check_size(self.depth, "depth", _LARGEST_DEPTH)
        _check_common(self)
        _check_divisible(self.dim, self.heads, "dim", "heads")
        for side in self.image_size:
            _check_divisible(side, self.patch_size, "image_size", "patch_size")
        if self.pooled_norm and self.readout != "mean":
            raise MaqeeError(f"pooled_norm=True needs readout 'mean', not {self.readout!r}.")
        if self.readout == "class+distillation" and not self.distillation_token:
            raise MaqeeError("readout 'class+distillation' needs distillation_token=True.")
        for name in ("detection_tokens", "registers"):
            if getattr(self, name):
                _check_size(getattr(self, name), name)
        if (self.readout in ("detection", "anchored")) != bool(self.detection_tokens):
            raise MaqeeError(
                f"readout {self.readout!r} does not go with {self.detection_tokens} detection_tokens: "
                "'detection' and 'anchored' read them, and nothing else does."
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size, self.image_size[1] // self.patch_size

    @property
    def placed_tokens(self) -> int:
        """Special tokens in front of the patch tokens that have a position: all but the registers."""
        return 2 if self.distillation_token else 1

    @property
    def prefix_tokens(self) -> int:
        """Special tokens in front of the patch tokens."""
        return self.placed_tokens + self.registers

    @property
    def tokens(self) -> int:
        """Length of the sequence."""
        return self.prefix_tokens + self.grid[0] * self.grid[1] + self.detection_tokens


@dataclass(frozen=True, kw_only=True)
class SwinConfig:
    """A Swin transformer: stages of window attention with patch merging in between."""

    image_size: tuple[int, int] = (224, 224)
    patch_size: int = 4
    channels: int = 3
    dim: int = 96
    depths: tuple[int, ...] = (2, 2, 6, 2)
    heads: tuple[int, ...] = (3, 6, 12, 24)
    window: int = 7
    mlp_ratio: float = 4.0
    num_classes: int = 1000
    qkv_bias: bool = True
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("patch_size", "channels", "dim", "window"):
            _check_size(getattr(self, name), name)
        _check_common(self, _LARGEST_SWIN_IMAGE)
        if len(self.depths) != len(self.heads) or not 0 < len(self.depths) < 16:
            raise MaqeeError(f"Swin needs one head count a stage: depths {self.depths}, heads {self.heads}.")
        if not 0 < self.mlp_ratio < math.inf:
            raise MaqeeError(f"mlp_ratio must be a positive number, not {self.mlp_ratio!r}.")
        for stage, (depth, heads) in enumerate(zip(self.depths, self.heads, strict=True)):
            place = f"of stage {stage + 1}"
            _check_size(depth, f"depth {place}", _LARGEST_DEPTH)
            _check_size(heads, f"heads {place}")
            _check_size(self.stage_dim(stage), f"width {place}")
            _check_size(self.stage_mlp_dim(stage), f"MLP width {place}")
            _check_divisible(self.stage_dim(stage), heads, f"width {place}", "heads")

    @property
    def depth(self) -> int:
        """Blocks in all stages together."""
        return sum(self.depths)

    def stage_dim(self, stage: int) -> int:
        """Channels in a stage; they double at every merging."""
        return self.dim * 2**stage

    def stage_mlp_dim(self, stage: int) -> int:
        """Hidden width of the MLPs in a stage, rounded down; 1e-6 is for ratios that have no exact fraction."""
        return int(self.stage_dim(stage) * self.mlp_ratio + 1e-6)

    def stage_grid(self, stage: int) -> tuple[int, int]:
        """Rows and columns of tokens in a stage; odd sides are padded before they are halved."""
        rows, columns = (-(-side // self.patch_size) for side in self.image_size)
        for _ in range(stage):
            rows, columns = -(-rows // 2), -(-columns // 2)
        return rows, columns

    def stage_of(self, block: int) -> int:
        """The 0-based stage of a 0-based block."""
        for stage in range(len(self.depths)):
            if block < sum(self.depths[: stage + 1]):
                return stage
        raise IndexError(f"block {block} of {self.depth}")


BackboneConfig = ViTConfig | SwinConfig
T = TypeVar("T")
# Files written before these existed do without.
_ADDED_LATER = {"detection_tokens", "mid_position", "registers", "pre_norm", "pooled_norm", "position_resize"}
_FAMILIES: dict[str, type[ViTConfig] | type[SwinConfig]] = {"vit": ViTConfig, "swin": SwinConfig}


def config_to_json(config: BackboneConfig) -> dict[str, Any]:
    """Plain JSON values with the family's name."""
    family = "vit" if isinstance(config, ViTConfig) else "swin"
    return {"family": family, **dataclasses.asdict(config)}


def config_from_json(values: dict[str, Any], source: str) -> BackboneConfig:
    """The reverse of `config_to_json`; `source` names the file in errors."""
    family = values.get("family")
    if not isinstance(family, str) or family not in _FAMILIES:
        raise MaqeeError(f"{source}: key 'family' is {family!r}, expected one of {', '.join(_FAMILIES)}.")
    config_type = _FAMILIES[family]
    known = {field.name for field in dataclasses.fields(config_type)}
    given = {name: value for name, value in values.items() if name != "family"}
    if unknown := sorted(set(given) - known):
        raise MaqeeError(f"{source}: key {unknown[0]!r} is not part of a {family} configuration; remove it.")
    if missing := sorted(known - set(given) - _ADDED_LATER):
        raise MaqeeError(f"{source}: key {missing[0]!r} is missing from the {family} configuration.")
    return from_plain_values(config_type, given, source)


def from_plain_values(kind: type[T], values: dict[str, Any], source: str) -> T:
    """A dataclass from what JSON holds: lists become tuples; a value of the wrong type is the user's error, named."""
    types = get_type_hints(kind)
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    for name, value in given.items():
        try:
            TypeAdapter(types[name]).validate_python(value, strict=True)
        except ValidationError as error:
            reason = error.errors()[0]["msg"].lower()
            raise MaqeeError(f"{source}: key {name!r} is {values[name]!r}, but {reason}.") from error
    try:
        return kind(**given)
    except MaqeeError as error:
        raise MaqeeError(f"{source}: {error}") from error


def as_pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """One number means a square."""
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _check_common(config: ViTConfig | SwinConfig, largest_image: int = _LARGEST_SIZE) -> None:
    for side in config.image_size:
        _check_size(side, "image_size", largest_image)
    if not 0 <= config.num_classes < 2**31:
        raise MaqeeError(f"num_classes must be 0 (features) or more, not {config.num_classes}.")
    if not 0 < config.norm_eps < math.inf:
        raise MaqeeError(f"norm_eps must be a small positive number, not {config.norm_eps!r}.")


def _check_size(value: int, name: str, largest: int = _LARGEST_SIZE) -> None:
    if not isinstance(value, int) or not 1 <= value <= largest:
        raise MaqeeError(f"{name} must be a whole number from 1 to {largest}, not {value!r}.")


def _check_divisible(whole: int, part: int, whole_name: str, part_name: str) -> None:
    if whole % part:
        raise MaqeeError(f"{whole_name} {whole} is not a multiple of {part_name} {part}.")
