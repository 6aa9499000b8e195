"""Whether a graph is being traced for another engine, where some layers are written in other words.

torch has `torch.compiler.is_exporting`, but inside `torch.compile` it answers yes too (seen up to torch 2.11), and a
network would train as if it were being exported: with batch norms that never learn their statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_exporting = False


def is_exporting() -> bool:
    """Whether `exporting` is in force."""
    return _exporting


@contextmanager
def exporting() -> Iterator[None]:
    """Trace inside this."""
    global _exporting
    before, _exporting = _exporting, True
    try:
        yield
    finally:
        _exporting = before
