"""A slow, plain reference: quantized models computed from integer codes with int32 sums ("executed")."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from maqee.errors import MaqeeError
from maqee.quant.attend import QuantAttend
from maqee.quant.coded import GridModule
from maqee.quant.grids import UniformGrid
from maqee.quant.layer import QuantLayer
from maqee.quant.quantized_model import QuantizedModel
from maqee.quant.terms import has_terms


def check_executable(quantized: QuantizedModel) -> None:
    """Complain about the first layer that cannot be computed from integer codes."""
    for name, layer in quantized.layers.items():
        if layer.learning:
            raise MaqeeError(f"{name} is learning, so its codes are not final: end the training first.")
        if layer.input is not None and layer.bits is not None:
            _check_grid(layer.input, f"The input of {name}")
    for name, attend in quantized.attends.items():
        for operand, grid in attend.all_grids().items():
            _check_grid(grid, f"Operand {operand} of {name}")
    if any(tensor.device.type != "cpu" for tensor in quantized.model.state_dict().values()):
        raise MaqeeError("The integer reference runs on the CPU only: move the model there with .model.cpu().")


def _check_grid(module: GridModule, name: str) -> None:
    grid = module.grid
    if not has_terms(grid):
        raise MaqeeError(f"{name} has a grid for each channel, whose sums have no common step: use another method.")
    if isinstance(grid, UniformGrid) and not float(grid.zero).is_integer():
        zero = float(grid.zero)
        raise MaqeeError(f"{name} has the zero point {zero}, which is no integer: quantize with integer_zeros=True.")


@contextmanager
def execute_integers(quantized: QuantizedModel) -> Iterator[None]:
    """Let the model compute from integer codes for a while.

    Every layer and attention product with both operands quantized adds up int32 products of codes. A layer whose input
    is float (weight-only quantization) stays float times the weights its codes stand for.

    Example:
        >>> import torch
        >>> from maqee.models import load_backbone
        >>> from maqee.quant import quantize
        >>> images = torch.rand(2, 3, 32, 32)
        >>> quantized = quantize(load_backbone("test-vit"), images)
        >>> with torch.no_grad(), execute_integers(quantized):
        ...     quantized.model(images).shape
        torch.Size([2, 10])
    """
    try:
        keep_executing(quantized)
        yield
    finally:
        for module in _coded_modules(quantized):
            module.executing = False


def keep_executing(quantized: QuantizedModel) -> None:
    """Let the model compute from integer codes from now on; see `execute_integers`."""
    check_executable(quantized)
    for module in _coded_modules(quantized):
        module.executing = True


def _coded_modules(quantized: QuantizedModel) -> list[QuantLayer | QuantAttend]:
    return [*quantized.layers.values(), *quantized.attends.values()]
