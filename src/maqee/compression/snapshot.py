"""Everything that training changes in a quantized model, in one file: a search that tries and takes back needs it."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from maqee.errors import MaqeeError
from maqee.quant import QuantizedModel
from maqee.quant.coded import FittedWidth, WeightState
from maqee.quant.learning import drop_learning
from maqee.tensors import read_tensors_and_metadata, write_tensors

_NOTES = ("trained", "folded")  # of a layer


def save_snapshot(quantized: QuantizedModel, path: Path) -> None:
    """Write float weights, the codes of every width, and all grids."""
    notes = {
        note: "\n".join(name for name, layer in quantized.layers.items() if getattr(layer, note)) for note in _NOTES
    }
    # Widths that were derived from a trained one share its weights; a file does not.
    tensors = {key: value.contiguous().clone() for key, value in quantized.model.state_dict().items()}
    write_tensors(path, tensors, notes)


def load_snapshot(quantized: QuantizedModel, path: Path) -> None:
    """Bring a fitted model of the same shape back to what it was. Bits in use stay as they are."""
    drop_learning(quantized)
    tensors, metadata = read_tensors_and_metadata(path)
    noted = {note: set(metadata.get(note, "").split("\n")) for note in _NOTES}
    device = next(quantized.model.parameters()).device
    tensors = {key: value.to(device) for key, value in tensors.items()}
    for name, layer in quantized.layers.items():
        for note in _NOTES:
            setattr(layer, note, name in noted[note])
        for input_bits, width in layer.fitted.items():
            assert isinstance(width, FittedWidth)
            place = f"{name}.fitted.{input_bits}"
            for part in ("norm", "ratio", "bias"):
                setattr(width, part, tensors.get(f"{place}.{part}"))
            states = nn.ModuleDict()  # of its own: after training several widths share one
            for bits in width.states:
                parts = {part: tensors.get(f"{place}.states.{bits}.{part}") for part in WeightState.PARTS}
                if parts["stored"] is None:
                    raise MaqeeError(f"{path} has no weights of {name} at {bits} bits: it belongs to another search.")
                states[bits] = WeightState.stored_as(int(bits), tuple(layer.rows.shape), parts)
            width.states = states
        bias = tensors.get(f"{name}.inner.bias")
        layer.inner.bias = None if bias is None else nn.Parameter(bias)  # some methods create it, and so does training
    try:
        quantized.model.load_state_dict(tensors)
    except RuntimeError as error:
        raise MaqeeError(f"{path} has other weights than this model: it belongs to another search.") from error
    for layer in quantized.layers.values():
        if not layer.folded:  # the file has the norms of the widths that were in use when it was written
            layer.use_norm()
