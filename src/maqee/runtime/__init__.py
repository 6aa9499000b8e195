"""A finished plan at work."""

from maqee.runtime.compiled_roads import compile_roads
from maqee.runtime.graphs import use_cuda_graphs
from maqee.runtime.loading import load, load_quantized_network, read_policy
from maqee.runtime.one_call import open_model, predict
from maqee.runtime.pictures import list_pictures
from maqee.runtime.predictions import Area, FoundBox, Label, Prediction
from maqee.runtime.ready import ReadyModel

__all__ = [
    "Area",
    "FoundBox",
    "Label",
    "Prediction",
    "ReadyModel",
    "compile_roads",
    "list_pictures",
    "load",
    "load_quantized_network",
    "open_model",
    "predict",
    "read_policy",
    "use_cuda_graphs",
]
