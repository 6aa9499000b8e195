"""Every engine gives the same object with the same decisions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import maqee
from maqee.errors import MaqeeError
from maqee.runtime.engines import require_package
from tests.runtime.makers import small_model, write_compressed_run, write_trained_run


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(24, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def test_reference_engine_takes_the_exits_of_the_simulation(tmp_path: Path, images: torch.Tensor) -> None:
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    simulated, executed = maqee.load(folder).run(images), maqee.load(folder, engine="reference").run(images)
    assert len(set(simulated.exit.tolist())) > 1, "a policy that sends everybody to one exit shows nothing"
    assert torch.equal(simulated.exit, executed.exit)
    assert torch.allclose(simulated.output, executed.output, atol=1e-4)


def test_a_model_knows_its_engine(tmp_path: Path, images: torch.Tensor) -> None:
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    assert maqee.load(folder).to_json()["engine"] == "torch"
    assert maqee.load(folder, engine="reference").with_policy(0.5).engine == "reference"


def test_reference_engine_needs_codes(tmp_path: Path) -> None:
    folder = write_trained_run(tmp_path / "run", small_model())
    with pytest.raises(MaqeeError, match="not compressed: use torch"):
        maqee.load(folder, engine="reference")


def test_misspelt_engine_is_named_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match=r"'tourch'.*torch"):
        maqee.load(tmp_path / "nowhere", engine="tourch")


def test_missing_package_names_the_extra() -> None:
    with pytest.raises(MaqeeError, match=r"pip install 'maqee\[onnx\]'"):
        require_package("no_such_package", "onnxruntime", "onnx")
