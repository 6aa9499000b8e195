"""Graphs run by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import torch

from maqee.runtime.outside import Run

if TYPE_CHECKING:
    import onnx

_ERRORS = 3  # what it logs: errors, and not how it optimises


def start_session(model: onnx.ModelProto) -> Run:
    """Make a graph ready to run, on as many threads as PyTorch uses."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"]
    )
    names = [found.name for found in session.get_inputs()]

    def run(inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        outputs: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
        return outputs

    return run


def session_options() -> onnxruntime.SessionOptions:
    """How sessions are made."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = _ERRORS
    # Every segment has threads of its own, and those that wait for work must not take the processor from the next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    _share_memory()
    options.add_session_config_entry("session.use_env_allocators", "1")
    return options


@cache
def _share_memory() -> None:
    """One working memory for all sessions, which run one after the other: each would keep what it ever needed."""
    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    memory = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    onnxruntime.create_and_register_allocator(memory, None)
