"""The official pickles of CIFAR-100, damaged, incomplete, foreign or hostile: refused, named, and never executed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maqee.data import open_data
from maqee.data.readers.pickles import unpickle
from tests.data import makers
from tests.data.makers import Cifar, assert_refused


def _batch(**changes: object) -> bytes:
    values: dict[str, object] = {"data": makers.random_pixels(2).reshape(2, 3072), "fine_labels": [0, 1]} | changes
    return makers.python2_pickle({key.encode(): value for key, value in values.items() if value is not None})


OFFICIAL: dict[str, tuple[dict[str, bytes | None], tuple[str, ...]]] = {
    "no meta": ({"meta": None}, ("has no", "'meta'")),
    "no data": ({"train": _batch(data=None)}, ("train lacks the key 'data'",)),
    "no labels": ({"test": _batch(fine_labels=None)}, ("test lacks the key 'fine_labels'",)),
    "no class names": ({"meta": makers.python2_pickle({b"coarse": []})}, ("meta lacks the key 'fine_label_names'",)),
    "a list": ({"train": makers.python2_pickle([1, 2])}, ("train is not a CIFAR-100 batch",)),
    "empty": ({"test": b""}, ("test is not a CIFAR-100 batch",)),
    "text": ({"train": b"<html>Not found</html>"}, ("train is not a CIFAR-100 batch",)),
    "other size": ({"train": _batch(data=np.zeros((2, 3000), np.uint8))}, ("train is not a CIFAR-100 batch",)),
    "floats": ({"train": _batch(data=np.zeros((2, 3072)))}, ("train is not", "does not hold bytes")),
    "objects": ({"train": _batch(data=np.array([None, "a"], object))}, ("train is not", "does not hold bytes")),
    "labels in words": ({"train": _batch(fine_labels=["ant", "bee"])}, ("train is not a CIFAR-100 batch",)),
    "too few labels": ({"train": _batch(fine_labels=[0])}, ("cifar100 train has 2 images and 1 labels",)),
    "too few names": ({"test": _batch(filenames=[b"a"])}, ("cifar100 test has 2 images and 1 file names",)),
    "label out of range": ({"test": _batch(fine_labels=[0, 4])}, ("outside 0..3", "4 of test/1")),
}


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "tar"])
@pytest.mark.parametrize("case", OFFICIAL)
def test_official_files_are_checked(tmp_path: Path, case: str, packed: bool) -> None:
    changes, fragments = OFFICIAL[case]
    members = makers.official_members(Cifar(train=makers.random_pixels(4), test=makers.random_pixels(2))) | changes
    kept = {name: data for name, data in members.items() if data is not None}
    path = tmp_path / "cifar"
    if packed:
        makers.write_official_tar(path, kept)
    else:
        path.mkdir()
        for name, data in kept.items():
            (path / name).write_bytes(data)
    place = () if fragments[0].startswith(("cifar100", "outside")) else (str(path),)
    assert_refused(lambda: open_data("cifar100", path, holdout=1), *fragments, *place)


class _Call:
    """Pickled, it asks the reader to call a function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("function", [os.system, eval, np.load, getattr], ids=lambda function: function.__name__)
def test_hostile_pickle_is_refused_and_not_executed(
    tmp_path: Path, function: Callable[..., object], protocol: int
) -> None:
    marker = tmp_path / "was-here"
    command = f"open({str(marker)!r}, 'w')" if function is eval else f"touch {marker}"
    root = makers.write_official(tmp_path / "cifar", Cifar())
    (root / "train").write_bytes(pickle.dumps({b"data": _Call(function, command)}, protocol))
    assert_refused(lambda: open_data("cifar100", root), "train", "it asks for", function.__name__)
    assert not marker.exists()


def test_the_hostile_pickle_would_have_worked(tmp_path: Path) -> None:
    marker = tmp_path / "was-here"
    pickle.loads(pickle.dumps(_Call(os.system, f"touch {marker}")))
    assert marker.exists()


@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_pickle_is_refused_wherever_it_ends(share: float) -> None:
    whole = _batch()
    assert set(unpickle(whole, "whole")) == {"data", "fine_labels"}
    assert_refused(lambda: unpickle(whole[: int(share * len(whole))], "part"), "part is not a CIFAR-100 batch")


@pytest.mark.parametrize("share", [0.001, 0.5, 0.99])
@pytest.mark.parametrize("compression", ["", "gz"])
def test_truncated_tar_is_refused(tmp_path: Path, compression: str, share: float) -> None:
    path = makers.write_official_tar(tmp_path / "cifar.tar", makers.official_members(Cifar()), compression)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert_refused(lambda: open_data("cifar100", path, holdout=1), str(path))


def test_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "cifar.txt").write_text("hello")
    assert_refused(lambda: open_data("cifar100", tmp_path / "cifar.txt"), "cifar.txt is not CIFAR-100 in a known form")
