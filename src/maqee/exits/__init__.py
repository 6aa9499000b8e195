"""Exit heads and the early-exit model."""

from maqee.exits import detection, lgvit, segformer, vit_ee  # noqa: F401 - registers the heads
from maqee.exits.heads import ExitHead, heads
from maqee.exits.model import AllOutputs, Decision, EarlyExitModel, add_exits, backbone_of
from maqee.exits.placement import default_positions, head_kinds
from maqee.policy import NEVER, Policy

__all__ = [
    "NEVER",
    "AllOutputs",
    "Decision",
    "EarlyExitModel",
    "ExitHead",
    "Policy",
    "add_exits",
    "backbone_of",
    "default_positions",
    "head_kinds",
    "heads",
]
