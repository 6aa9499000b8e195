"""Running a finished model fast."""

from maqee.runtime.graphs import use_cuda_graphs

__all__ = ["use_cuda_graphs"]
