"""Bits in one line."""

from __future__ import annotations

import json
from dataclasses import replace

from maqee.report.tables import block_bits
from maqee.widths import BitSettings, BlockWidths


def test_bits_of_blocks() -> None:
    mixed = BlockWidths(qkv=(3, 4), attention=(8, 8), projection=(4, 4), fc1=(3, 6), fc2=(4, 4))
    bits = replace(BitSettings.uniform(4, 6, 2), blocks=(BlockWidths.uniform(4, 6), mixed))
    assert block_bits(json.loads(json.dumps(bits.to_json()))) == block_bits(bits.to_json()) == "4/6 3.5/4.5"


def test_results_from_before_widths_were_pairs() -> None:
    assert block_bits([4, 3, 5]) == "4 3 5"
