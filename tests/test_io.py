"""Arrays in files: the same bytes as tensors give, and no surprises when read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from maqee.errors import MaqeeError
from maqee.io import read_arrays_and_metadata, write_arrays
from maqee.tensors import read_tensors_and_metadata, write_tensors

ARRAYS = {
    "zebra": np.arange(6, dtype=np.float32).reshape(2, 3),
    "ant": np.array([1.5, -2.0]),
    "bit": np.array([True, False, True]),
    "empty": np.zeros((0, 4), dtype=np.float32),
}


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "new" / "arrays.safetensors"
    write_arrays(path, ARRAYS, {"maqee": "words"})
    back, metadata = read_arrays_and_metadata(path)
    assert metadata == {"maqee": "words"}
    assert back.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert back[name].dtype == array.dtype
        assert np.array_equal(back[name], array), name
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # no temporary file is left


def test_the_same_bytes_as_tensors(tmp_path: Path) -> None:
    write_arrays(tmp_path / "arrays", ARRAYS, {"maqee": "words"})
    tensors = {name: torch.from_numpy(array) for name, array in ARRAYS.items()}
    write_tensors(tmp_path / "tensors", tensors, {"maqee": "words"})
    assert (tmp_path / "arrays").read_bytes() == (tmp_path / "tensors").read_bytes()
    assert torch.equal(read_tensors_and_metadata(tmp_path / "arrays")[0]["zebra"], tensors["zebra"])
    write_arrays(tmp_path / "bare", ARRAYS)
    assert read_arrays_and_metadata(tmp_path / "bare")[1] == {}


def test_views_are_written_as_they_look(tmp_path: Path) -> None:
    turned = ARRAYS["zebra"].T[::-1]
    write_arrays(tmp_path / "arrays", {"turned": turned})
    assert np.array_equal(read_arrays_and_metadata(tmp_path / "arrays")[0]["turned"], turned)


def test_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "arrays"
    with pytest.raises(MaqeeError, match="does not exist"):
        read_arrays_and_metadata(path)
    with pytest.raises(MaqeeError, match="does not exist"):
        read_arrays_and_metadata(tmp_path)
    path.write_bytes(b"not arrays at all")
    with pytest.raises(MaqeeError, match=f"{path} is not a readable safetensors file"):
        read_arrays_and_metadata(path)
    write_arrays(path, ARRAYS)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(MaqeeError, match="download or write it again"):
        read_arrays_and_metadata(path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_numbers_that_numpy_does_not_have(tmp_path: Path, dtype: torch.dtype) -> None:
    save_file({"weight": torch.zeros(2).to(dtype)}, tmp_path / "model")
    with pytest.raises(MaqeeError, match="is not a readable safetensors file"):
        read_arrays_and_metadata(tmp_path / "model")
