"""A finished plan at work."""

from maqee.runtime.graphs import use_cuda_graphs
from maqee.runtime.load import load, load_quantized_network, read_policy
from maqee.runtime.ready import ReadyModel

__all__ = ["ReadyModel", "load", "load_quantized_network", "read_policy", "use_cuda_graphs"]
