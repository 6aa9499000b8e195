"""Quantized layers and attention products as single operations, so that a traced graph holds each as one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from maqee.models.layers import TokenDepthwise
from maqee.quant.attend import QuantAttend
from maqee.quant.layer import QuantLayer

Quantized = QuantLayer | QuantAttend


@torch.library.custom_op("maqee::layer", mutates_args=())
def _layer(x: Tensor, name: str, grid: Sequence[int], keep: int, tail: Sequence[int]) -> Tensor:
    """An empty tensor of the layer's output shape: the first `keep` sizes of x, then `tail`."""
    return x.new_empty([*x.shape[:keep], *tail])


@torch.library.custom_op("maqee::attend", mutates_args=())
def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, name: str) -> Tensor:
    """An empty tensor of the product's shape."""
    return torch.empty_like(q, memory_format=torch.contiguous_format)


_layer.register_fake(lambda x, name, grid, keep, tail: x.new_empty([*x.shape[:keep], *tail]))
_attend.register_fake(lambda q, k, v, bias, name: torch.empty_like(q, memory_format=torch.contiguous_format))


class _MarkedLayer(nn.Module):
    def __init__(self, layer: QuantLayer) -> None:
        super().__init__()
        self.name = layer.name
        self.inner = (layer.inner,)  # in a tuple: its weights are no part of the graph

    def forward(self, x: Tensor, *rest: Any) -> Tensor:
        inner = self.inner[0]
        if isinstance(inner, TokenDepthwise):
            return torch.ops.maqee.layer(x, self.name, list(rest[0]), x.ndim, [])
        if not isinstance(inner, nn.Conv2d):
            return torch.ops.maqee.layer(x, self.name, [], x.ndim - 1, [inner.out_features])
        with torch.device("meta"):
            sizes = inner._conv_forward(
                torch.empty(1, *x.shape[1:]), torch.empty_like(inner.weight, device="meta"), None
            ).shape
        return torch.ops.maqee.layer(x, self.name, [], 1, list(sizes[1:]))

    def __getattr__(self, name: str) -> Any:
        """What the layer itself knows, such as its stride."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["inner"][0], name)


class _MarkedAttend(nn.Module):
    def __init__(self, attend: QuantAttend) -> None:
        super().__init__()
        self.name = attend.name

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        return torch.ops.maqee.attend(q, k, v, bias, self.name)


@contextmanager
def marked(model: nn.Module) -> Iterator[Mapping[str, Quantized]]:
    """Put marks in the place of a model's quantized layers for a while; gives the layers by the names on the marks."""
    found: dict[str, Quantized] = {
        module.name: module for module in model.modules() if isinstance(module, QuantLayer | QuantAttend)
    }
    places = {name: _parent(model, name) for name in found}
    try:
        for name, module in found.items():
            mark = _MarkedLayer(module) if isinstance(module, QuantLayer) else _MarkedAttend(module)
            setattr(places[name], name.rpartition(".")[2], mark.eval())
        yield found
    finally:
        for name, module in found.items():
            setattr(places[name], name.rpartition(".")[2], module)


def _parent(model: nn.Module, name: str) -> nn.Module:
    return model.get_submodule(name.rpartition(".")[0])
