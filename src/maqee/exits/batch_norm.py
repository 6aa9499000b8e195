"""Batch normalisation over tokens that sees the whole batch even when it is spread over processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from maqee.models.exporting import is_exporting


class TokenBatchNorm(nn.BatchNorm1d):
    """Normalises each channel over all samples and tokens.

    In distributed training the statistics are those of the global batch, on every backend (torch's SyncBatchNorm
    needs a GPU), so that two processes learn the same weights as one with twice the batch.
    """

    def forward(self, x: Tensor) -> Tensor:
        """x: (batch, tokens, dim)."""
        if is_exporting():
            return self._fixed(x)
        flat = x.flatten(0, 1)
        if self.training and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            return self._over_processes(flat).view_as(x)
        return super().forward(flat).view_as(x)

    def _fixed(self, x: Tensor) -> Tensor:
        """A factor and a shift for each channel, which other engines join with what stands around them."""
        assert self.running_mean is not None
        assert self.running_var is not None
        factor = self.weight / torch.sqrt(self.running_var + self.eps)
        return x * factor + (self.bias - self.running_mean * factor)

    def _over_processes(self, flat: Tensor) -> Tensor:
        from torch.distributed.nn.functional import all_reduce  # differentiable, unlike dist.all_reduce

        world = dist.get_world_size()
        rows = flat.shape[0] * world
        mean = all_reduce(flat.float().mean(dim=0)) / world
        centred = flat.float() - mean
        variance = all_reduce(centred.square().mean(dim=0)) / world
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            momentum = 0.1 if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * rows / (rows - 1), momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
        return (centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias).to(flat.dtype)
