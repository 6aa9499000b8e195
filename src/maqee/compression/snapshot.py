"""Everything that training changes in a quantized model, in one file: a search that tries and takes back needs it."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from maqee.errors import MaqeeError
from maqee.quant import QuantizedModel
from maqee.quant.coded import WeightState
from maqee.quant.learning import drop_learning
from maqee.tensors import read_tensors_and_metadata, write_tensors

_STATE = ("codes", "scale", "zero", "group", "bias")


def save_snapshot(quantized: QuantizedModel, path: Path) -> None:
    """Write float weights, the codes of every width, and all grids."""
    trained = [name for name, layer in quantized.layers.items() if layer.trained]
    tensors = {key: value.contiguous() for key, value in quantized.model.state_dict().items()}
    write_tensors(path, tensors, {"trained": "\n".join(trained)})


def load_snapshot(quantized: QuantizedModel, path: Path) -> None:
    """Bring a fitted model of the same shape back to what it was. Bits in use stay as they are."""
    drop_learning(quantized)
    tensors, metadata = read_tensors_and_metadata(path)
    trained = set(metadata.get("trained", "").split("\n"))
    device = next(quantized.model.parameters()).device
    tensors = {key: value.to(device) for key, value in tensors.items()}
    for name, layer in quantized.layers.items():
        layer.trained = name in trained
        for bits in list(layer.states):
            parts = {part: tensors.get(f"{name}.states.{bits}.{part}") for part in _STATE}
            if parts["codes"] is None:
                raise MaqeeError(f"{path} has no weights of {name} at {bits} bits: it belongs to another search.")
            layer.add_state(WeightState(int(bits), **parts))  # type: ignore[arg-type]
        if (bias := tensors.get(f"{name}.inner.bias")) is not None:
            layer.inner.bias = nn.Parameter(bias)  # some methods create it
    try:
        quantized.model.load_state_dict(tensors)
    except RuntimeError as error:
        raise MaqeeError(f"{path} has other weights than this model: it belongs to another search.") from error
