"""What a stopped stage needs to go on: weights, optimiser, average, step. One file, written atomically."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from maqee.errors import MaqeeError
from maqee.tensors import read_tensors, write_tensors
from maqee.training.ema import Ema

_KINDS = ("model", "exp_avg", "exp_avg_sq", "step", "ema")


def save_checkpoint(
    path: Path, module: nn.Module, optimizer: torch.optim.Optimizer, ema: Ema | None, step: int, digest: str
) -> None:
    """Write everything under `path`; step and recipe digest go into the file's own header."""
    tensors = {f"model/{name}": tensor for name, tensor in module.state_dict().items()}
    for name, parameter in module.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{key}/{name}"] = value
    if ema is not None:
        tensors |= {f"ema/{name}": tensor for name, tensor in ema.state().items()}
    facts = {"step": str(step), "digest": digest, "ema_updates": str(ema.updates if ema else 0)}
    write_tensors(path, tensors, facts)


def load_checkpoint(
    path: Path, module: nn.Module, optimizer: torch.optim.Optimizer, ema: Ema | None, digest: str
) -> int:
    """Restore what `save_checkpoint` wrote and return the step to go on with."""
    tensors = read_tensors(path)
    with safe_open(path, framework="pt") as file:
        facts = file.metadata() or {}
    if facts.get("digest") != digest:
        raise MaqeeError(f"{path} was written by another recipe: choose another folder, or delete this one.")
    groups: dict[str, dict[str, Tensor]] = {kind: {} for kind in _KINDS}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        groups[kind][name] = tensor
    module.load_state_dict(groups["model"])
    for name, parameter in module.named_parameters():
        if name in groups["exp_avg"]:
            optimizer.state[parameter] = {
                "step": groups["step"][name],
                "exp_avg": groups["exp_avg"][name].to(parameter.device),
                "exp_avg_sq": groups["exp_avg_sq"][name].to(parameter.device),
            }
            if parameter.device.type == "cuda":  # the fused optimiser keeps its counter on the device
                optimizer.state[parameter]["step"] = groups["step"][name].to(parameter.device)
    if ema is not None:
        for name, average in ema.averages.items():
            average.copy_(groups["ema"][name])
        ema.updates = int(facts["ema_updates"])
    return int(facts["step"])
