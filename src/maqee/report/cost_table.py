"""What a model costs, part by part, as plain text."""

from __future__ import annotations

from typing import Any


def cost_table(result: dict[str, Any]) -> str:
    """Bits, reach, MACs and BOPs of every part, and their sums."""
    lines = [f"{'part':<34}{'bits':>7}{'reach':>8}{'MACs':>13}{'BOPs':>13}{'share':>8}"]
    for part in result["parts"]:
        bits, share = f"{part['weight_bits']}/{part['act_bits']}", part["bops"] / result["bops"]
        lines.append(
            f"{part['name']:<34}{bits:>7}{part['reach']:>8.3f}{part['macs']:>13.4e}{part['bops']:>13.4e}{share:>8.1%}"
        )
    lines.append(f"{'total':<34}{'':>7}{'':>8}{result['macs']:>13.4e}{result['bops']:>13.4e}{1:>8.1%}")
    if len(result["exit_blocks"]) > 1:
        lines.append(f"{'total without heads':<49}{'':>13}{result['bops_without_heads']:>13.4e}")
    return "\n".join(lines)
