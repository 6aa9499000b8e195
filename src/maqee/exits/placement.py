"""Where exits go and which heads they get, unless the user says otherwise."""

from __future__ import annotations

from itertools import accumulate

from maqee.errors import MaqeeError, suggest
from maqee.exits.heads import heads
from maqee.models import Backbone, SwinConfig

_SWIN_24 = (2, 4, 14, 20)  # the paper's choice for Swin's 24 blocks

# LGViT's published head sequences: local heads first, then global ones with growing stride.
_LGVIT = {
    2: ("local-3x3", "global-s2"),
    4: ("local-3x3", "local-1x1", "global-s2", "global-s3"),
    6: ("local-3x3", "local-1x1", "global-s2", "global-s2", "global-s3", "global-s3"),
    8: ("local-3x3",) * 2 + ("local-1x1",) * 2 + ("global-s2",) * 2 + ("global-s3",) * 2,
}


def default_positions(backbone: Backbone, count: int = 4) -> tuple[int, ...]:
    """Blocks (numbered from 1) after which exits sit.

    Evenly by cost between a third and five sixths of the backbone: 4, 6, 8, 10 of 12 and 8, 12, 16, 20 of ViT-L's 24.
    Swin with 24 blocks follows the paper: 2, 4, 14, 20. A shallow backbone gets fewer exits.
    """
    if count < 1:
        raise MaqeeError(f"The number of exits must be at least 1, not {count}.")
    if isinstance(backbone.config, SwinConfig) and backbone.depth == 24 and count == 4:
        return _SWIN_24
    costs = [0] * backbone.depth
    for part in backbone.parts():
        if part.block:
            costs[part.block - 1] += part.macs
    reached = list(accumulate(costs))
    step = 0.5 / (count - 1) if count > 1 else 0.0
    positions = set()
    for index in range(count):
        target = (1 / 3 + index * step) * reached[-1]
        nearest = min(range(backbone.depth), key=lambda block: (abs(reached[block] - target), block))
        positions.add(min(nearest + 1, max(1, backbone.depth - 1)))
    return tuple(sorted(positions))


def head_kinds(scheme: str, backbone: Backbone, count: int) -> tuple[str, ...]:
    """Kinds of `count` heads for a scheme.

    Args:
        scheme: "lgvit" (local heads, then global ones), "lgvit-raw" (the same without the input norm, as published),
            "vit-ee" (one encoder layer each), or the name of one head kind for all exits.
        backbone: decides between the ViT and the Swin sequence.
        count: number of exits.
    """
    if scheme in heads:
        return (scheme,) * count
    if scheme == "vit-ee":
        return ("vit",) * count
    if scheme in ("lgvit", "lgvit-raw"):
        kinds = _lgvit_kinds(count, swin=isinstance(backbone.config, SwinConfig))
        return tuple(f"{kind}-raw" for kind in kinds) if scheme == "lgvit-raw" else kinds
    raise suggest(scheme, ["lgvit", "lgvit-raw", "vit-ee", *heads.names()], "exit scheme")


def final_kind(scheme: str) -> str | None:
    """The head kind after the last block: that of a scheme whose heads predict what no classifier can, else none."""
    return scheme if scheme in heads and getattr(heads[scheme], "also_final", False) else None


def _lgvit_kinds(count: int, swin: bool) -> tuple[str, ...]:
    if swin and count == 4:
        return ("local-3x3", "local-1x1", "global-s1", "global-s2")
    if count in _LGVIT:
        return _LGVIT[count]
    local = -(-count // 2)
    wide, coarse = -(-local // 2), -(-(count - local) // 2)
    return (
        ("local-3x3",) * wide
        + ("local-1x1",) * (local - wide)
        + ("global-s2",) * coarse
        + ("global-s3",) * (count - local - coarse)
    )
