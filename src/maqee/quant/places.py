"""Which layers of a model can be quantized, what part they play, and which norm feeds them."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from torch import nn

from maqee.models.layers import Attend

Role = Literal["block", "head", "merge", "patch", "classifier"]

_ROLES: tuple[tuple[str, Role], ...] = (
    (r"(^|\.)heads\.\d+\.", "head"),
    (r"(^|\.)embedding\.patch$", "patch"),
    (r"(^|\.)head\.(linear|distillation|(classes|boxes)\.layers\.\d+)$", "classifier"),
    (r"(^|\.)merges\.\d+\.", "merge"),
    (r"(^|\.)blocks\.\d+\.", "block"),
)
# A norm whose only reader is the layer: its scale can be changed if the layer's weights are changed back.
_FED_BY_NORM = (
    (r"attn\.qkv$", "norm1"),
    (r"mlp\.fc1$", "norm2"),
    (r"(?<=\.)reduction$", "norm"),
    (r"(?<=\.)projections\.(\d+)$", r"norms.\1"),
)
_LAYER_NAMES = {"qkv": "qkv", "attend": "attention", "proj": "projection", "fc1": "fc1", "fc2": "fc2"}


class Place(NamedTuple):
    """One layer or attention product of a model.

    Attributes:
        name: as in `named_modules`.
        role: what it belongs to.
        block: 1-based number of the block, 0 outside of blocks.
        norm: name of the LayerNorm that feeds this layer and nothing else; empty if there is none.
        attention: whether it is an attention product and not a layer with weights.
        layer: of a block, which of its layers it is, as `maqee.widths.LAYERS` names them; else empty.
        head: number of the exit head it belongs to, from 0; -1 outside of heads.
    """

    name: str
    role: Role
    block: int
    norm: str
    attention: bool
    layer: str = ""
    head: int = -1


def find_places(model: nn.Module) -> list[Place]:
    """Every linear layer, convolution and attention product with a known role, in the model's order.

    What no output needs (`model.idle`: a classifier whose place another head has taken) is left out.
    """
    modules = dict(model.named_modules())
    idle = tuple(f"{name}." for name in getattr(model, "idle", ()))
    places = []
    for name, module in modules.items():
        if not isinstance(module, nn.Linear | nn.Conv2d | Attend) or name.startswith(idle):
            continue
        role = next((role for pattern, role in _ROLES if re.search(pattern, name)), None)
        if role is None:
            continue
        match = re.search(r"(?:^|\.)blocks\.(\d+)\.", name) if role == "block" else None
        block = int(match[1]) + 1 if match else 0
        head = re.search(r"(?:^|\.)heads\.(\d+)\.", name) if role == "head" else None
        places.append(
            Place(
                name=name,
                role=role,
                block=block,
                norm=_feeding_norm(name, modules),
                attention=isinstance(module, Attend),
                layer=_LAYER_NAMES[name.rpartition(".")[2]] if role == "block" else "",
                head=int(head[1]) if head else -1,
            )
        )
    return places


def _feeding_norm(name: str, modules: dict[str, nn.Module]) -> str:
    for pattern, norm in _FED_BY_NORM:
        if match := re.search(pattern, name):
            found = name[: match.start()] + match.expand(norm)
            return found if isinstance(modules.get(found), nn.LayerNorm) else ""
    return ""
