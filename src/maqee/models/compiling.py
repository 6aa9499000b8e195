"""torch.compile block by block: nearly the speed of one big graph, and equal blocks are compiled once.

A compiled whole network takes minutes to compile and again for every batch size; an early-exit model meets many sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

MANY = 256  # versions of one function


def many_versions() -> AbstractContextManager[object]:
    """Let one function be compiled for many networks, shapes and precisions in one process.

    Blocks of all networks share the code of their methods. Torch compiles eight versions of one code and runs whatever
    comes after them uncompiled, without an error: a network would be slower for coming late.
    """
    return torch._dynamo.config.patch(recompile_limit=MANY)


def compile_each(modules: Iterable[nn.Module], **options: Any) -> None:
    """Compile the work of each module on its own, in place. Weights, names and state dict stay as they are."""
    for module in modules:
        for name in _methods(module):
            setattr(module, name, torch.compile(getattr(module, name), **options))


def undo_compile(modules: Iterable[nn.Module]) -> None:
    """Take `compile_each` back."""
    for module in modules:
        for name in _methods(module):
            vars(module).pop(name, None)


def _methods(module: nn.Module) -> tuple[str, ...]:
    """The methods that do the work: forward, unless the module says otherwise."""
    return tuple(getattr(module, "compiled_methods", ("forward",)))
