"""Where to compute: a device that is not there is one sentence."""

from __future__ import annotations

import pytest
import torch

from maqee.device import pick_device
from maqee.errors import MaqeeError


def test_the_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert pick_device(None).type == "cuda"
    assert pick_device("cpu").type == "cpu"
    with pytest.raises(MaqeeError, match="device: cuda:1 was asked and 1 GPUs are usable here: give cpu"):
        pick_device("cuda:1")


def test_none_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert pick_device(None).type == "cpu"
    for name in ("cuda", "cuda:0"):
        with pytest.raises(MaqeeError, match="was asked and 0 GPUs are usable here"):
            pick_device(name)
    with pytest.raises(MaqeeError, match="'gpu' is no device"):
        pick_device("gpu")
