"""Exit heads and the early-exit model."""

from maqee.exits import detection, lgvit, segformer, vit_ee  # noqa: F401 - registers the heads
from maqee.exits.early_exit import AllOutputs, EarlyExitModel, add_exits
from maqee.exits.heads import ExitHead, heads
from maqee.exits.network import (
    Network,
    all_outputs,
    backbone_of,
    exit_blocks_of,
    has_exits,
    load_compressible,
    load_network,
    load_with_exits,
    network_from_json,
    save_network,
)
from maqee.exits.open_roads import Decision
from maqee.exits.placement import default_positions, head_kinds
from maqee.policy import NEVER, Policy

__all__ = [
    "NEVER",
    "AllOutputs",
    "Decision",
    "EarlyExitModel",
    "ExitHead",
    "Network",
    "Policy",
    "add_exits",
    "all_outputs",
    "backbone_of",
    "default_positions",
    "exit_blocks_of",
    "has_exits",
    "head_kinds",
    "heads",
    "load_compressible",
    "load_network",
    "load_with_exits",
    "network_from_json",
    "save_network",
]
