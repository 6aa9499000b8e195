"""What "the same model" means: a hash of its weights."""

from __future__ import annotations

import hashlib

import torch


def weights_digest(network: torch.nn.Module) -> str:
    """A hash of every tensor with its name."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
