"""Codes packed without gaps: nothing is lost, nothing is wasted, nothing wrong is accepted."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maqee.errors import MaqeeError
from maqee.quant.packing import pack, packed_length, unpack

WIDTHS = range(1, 9)


@pytest.mark.parametrize("bits", WIDTHS)
@settings(max_examples=30)
@given(data=st.data())
def test_round_trip(bits: int, data: st.DataObject) -> None:
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=70))
    packed = pack(torch.tensor(codes, dtype=torch.uint8), bits)
    assert packed.dtype == torch.uint8
    assert packed.numel() == math.ceil(len(codes) * bits / 8) == packed_length(len(codes), bits)
    assert unpack(packed, bits, len(codes)).tolist() == codes


@pytest.mark.parametrize("bits", WIDTHS)
@settings(max_examples=30)
@given(data=st.data())
def test_same_as_one_bit_after_the_other(bits: int, data: st.DataObject) -> None:
    codes = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=40))
    stream = [code >> place & 1 for code in codes for place in range(bits)]
    expected = np.packbits(np.array(stream, dtype=np.uint8), bitorder="little")
    assert pack(torch.tensor(codes, dtype=torch.uint8), bits).tolist() == expected.tolist()


@pytest.mark.parametrize("bits", WIDTHS)
def test_any_bytes_are_codes_in_range(bits: int) -> None:
    count = 8 * 40  # a whole number of bytes: every byte string is possible
    noise = torch.randint(0, 256, (packed_length(count, bits),), dtype=torch.uint8)
    codes = unpack(noise, bits, count)
    assert int(codes.max()) < 2**bits
    assert torch.equal(pack(codes, bits), noise)


def test_any_shape_in_memory_order() -> None:
    codes = torch.randint(0, 16, (5, 3, 7), dtype=torch.uint8)
    assert torch.equal(unpack(pack(codes, 4), 4, codes.numel()).view_as(codes), codes)
    assert torch.equal(pack(codes.transpose(0, 2), 4), pack(codes.transpose(0, 2).contiguous(), 4))


def test_millions_of_codes_are_quick() -> None:
    codes = torch.randint(0, 16, (2_000_000,), dtype=torch.uint8)
    start = time.perf_counter()
    assert torch.equal(unpack(pack(codes, 4), 4, codes.numel()), codes)
    assert time.perf_counter() - start < 5  # one by one it would take minutes


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("bits", [3, 4])
def test_wrong_length(bits: int, change: int) -> None:
    packed = torch.zeros(packed_length(20, bits) + change, dtype=torch.uint8)
    with pytest.raises(MaqeeError, match=f"20 codes of {bits} bits are a row of {packed_length(20, bits)} bytes"):
        unpack(packed, bits, 20)


def test_wrong_type_and_shape() -> None:
    with pytest.raises(MaqeeError, match=r"torch\.int32"):
        unpack(torch.zeros(2, dtype=torch.int32), 4, 4)
    with pytest.raises(MaqeeError, match="shape"):
        unpack(torch.zeros(1, 2, dtype=torch.uint8), 4, 4)
    with pytest.raises(MaqeeError, match="must be uint8"):
        pack(torch.zeros(2), 4)


def test_codes_that_do_not_fit() -> None:
    with pytest.raises(MaqeeError, match="Code 8 does not fit into 3 bits"):
        pack(torch.tensor([1, 8], dtype=torch.uint8), 3)
    with pytest.raises(MaqeeError, match="holds more than 1 codes of 4 bits"):
        unpack(torch.tensor([0x21], dtype=torch.uint8), 4, 1)
    with pytest.raises(MaqeeError, match="1 to 8 bits, not 9"):
        packed_length(1, 9)
