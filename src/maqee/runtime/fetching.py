"""Values on their way from a device to the host."""

from __future__ import annotations

import torch
from torch import Tensor


class Fetched:
    """A copy for the host that is asked for now and waited for later; a GPU goes on with other work meanwhile.

    `Tensor.cpu` would wait for everything that was started before it ends.

    Args:
        values: what to fetch, as it will be when the device gets there.
    """

    def __init__(self, values: Tensor) -> None:
        self._host, self._arrived = values, None
        if values.is_cuda:
            self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._host.copy_(values, non_blocking=True)
            self._arrived = torch.cuda.current_stream(values.device).record_event()

    def wait(self) -> Tensor:
        """The values, on the host."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host
