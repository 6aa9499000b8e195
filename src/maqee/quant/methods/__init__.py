"""Quantization methods behind one registry."""

from maqee.quant.methods import erq, mptq, repq, rtn  # noqa: F401 - registers the methods
from maqee.quant.methods.method import Method, methods

__all__ = ["Method", "methods"]
