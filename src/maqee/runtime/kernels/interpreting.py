"""Triton's interpreter on a new NumPy: loops whose bounds are known at run time only."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def let_loops_count() -> None:
    """Let the interpreter read a number off an array with one element, which NumPy 2.4 refuses to do unasked."""
    from triton.runtime import interpreter

    plain = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        plain(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch
