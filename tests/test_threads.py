"""Miniatures use one thread; commands wait passively."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from maqee.models import load_backbone
from maqee.models.load import on_meta
from maqee.models.presets import presets
from maqee.threads import MINIATURE, one_thread, threads_for, wait_passively
from tests.helpers import run_python

pytestmark = pytest.mark.process

CPU = torch.device("cpu")


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine where the user has said nothing."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_a_miniature_uses_one_thread_for_a_while(two_threads: None) -> None:
    with threads_for(load_backbone("vit-digits").parts(), CPU):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_threads_come_back_after_an_error(two_threads: None) -> None:
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert torch.get_num_threads() == 2


def test_larger_models_and_other_devices_keep_their_threads(two_threads: None) -> None:
    with threads_for(on_meta(presets["vit-tiny"]).parts(), CPU):
        assert torch.get_num_threads() == 2
    with threads_for(on_meta(presets["vit-digits"]).parts(), torch.device("meta")):
        assert torch.get_num_threads() == 2


def test_the_users_number_stands(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with threads_for(load_backbone("vit-digits").parts(), CPU):
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize("name", presets.names())
def test_which_presets_are_miniatures(name: str) -> None:
    macs = sum(part.macs for part in on_meta(presets[name]).parts())
    assert (macs < MINIATURE) == name.startswith(("test-", "vit-digits"))


def test_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_commands_wait_passively_before_torch_is_loaded() -> None:
    """GNU's OpenMP, which torch's Linux builds bring along, shows what it has read when it is asked to."""
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    command = [sys.executable, "-m", "maqee", "ls"]
    done = subprocess.run(
        command, env={**environment, "OMP_DISPLAY_ENV": "TRUE"}, capture_output=True, text=True, check=True
    )
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr or "OMP_WAIT_POLICY='PASSIVE'" in done.stderr


def test_importing_the_helper_loads_no_torch() -> None:
    run_python("import sys, maqee.threads, maqee.disk, maqee.folder_lock; assert 'torch' not in sys.modules")
