"""Checks that a refusal to load is one plain sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from maqee.errors import MaqeeError
from maqee.models import load_backbone

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def complaint(source: str | Path | nn.Module, **options: Any) -> str:
    """The message of a failed load, which must be a single sentence."""
    with pytest.raises(MaqeeError) as caught:
        load_backbone(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    assert not re.search(r"[.!?]\s+[A-Z]", message), f"more than one sentence: {message}"
    return message
