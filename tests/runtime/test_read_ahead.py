"""A thread that reads ahead: how far, what it does with errors, and that it is gone afterwards."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from maqee.runtime.read_ahead import ReadAhead


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("maqee-")]


def test_all_items_in_order_and_their_sizes() -> None:
    source = ReadAhead(iter(["some", "words", "for", "a", "test"]), len, room=6)
    taken = []
    while not source.ended:
        read = source.take(most=9)
        assert sum(one.size for one in read) <= 9
        taken += [one.item for one in read]
    assert taken == ["some", "words", "for", "a", "test"]
    source.close()
    assert running() == []


def test_reads_no_further_than_there_is_room() -> None:
    begun: list[int] = []
    full = threading.Event()

    def count() -> Iterator[int]:
        for number in itertools.count():
            begun.append(number)
            if number == 2:
                full.set()
            yield number

    source = ReadAhead(count(), lambda _: 1, room=3)
    assert full.wait(10)
    assert begun == [0, 1, 2]  # the thread asks for the next one only when there is room again
    assert [one.item for one in source.take(most=2)] == [0, 1]
    source.close()
    assert running() == []
    assert len(begun) <= 6


def test_an_item_larger_than_all_room_passes() -> None:
    source = ReadAhead([50, 60], lambda size: size, room=3)
    assert [one.item for one in source.take(most=1)] == [50]
    assert [one.item for one in source.take(most=1)] == [60]
    assert source.take(most=1) == []
    assert source.ended
    source.close()


def test_nothing_within_the_time() -> None:
    speak = threading.Event()

    def live() -> Iterator[int]:
        speak.wait(10)
        yield 7

    source = ReadAhead(live(), lambda _: 1, room=3)
    assert source.take(most=1, timeout=0.01) == []
    assert not source.ended
    speak.set()
    assert [one.item for one in source.take(most=1)] == [7]
    source.close()
    assert running() == []


def test_an_error_is_kept_for_the_reader() -> None:
    def fails() -> Iterator[int]:
        yield 1
        raise OSError("camera unplugged")

    source = ReadAhead(fails(), lambda _: 1, room=3)
    assert [one.item for one in source.take(most=5)] == [1]
    assert source.take(most=5) == []
    assert source.ended
    with pytest.raises(OSError, match="unplugged"):
        raise source.error or AssertionError
    source.close()
