"""Engines side by side, as plain text."""

from __future__ import annotations

from typing import Any

MIB = 2**20


def engine_table(result: dict[str, Any]) -> str:
    """Every engine at every batch, beside torch in float32 at full depth."""
    lines = [
        f"{result['model']}, {result['method']}, {result['bits']} bits{_settings(result)}, "
        f"{result['images']} images, {result['threads']} threads, executed"
    ]
    for size in dict.fromkeys(row["batch"] for row in result["rows"]):
        lines.append(f"{f'batch {size}':<40}{'mean exit':>10}{'images/s':>10}{'speed-up':>10}{'MiB':>8}")
        for row in (row for row in result["rows"] if row["batch"] == size):
            memory = "" if row["resident"] is None else f"{row['resident'] / MIB:.0f}"
            lines.append(
                f"{row['engine']:<40}{row['mean_exit']:>10.2f}{row['images_per_second']:>10.2f}"
                f"{row['speedup']:>10.2f}{memory:>8}"
            )
        lines += [f"{engine:<40}{why}" for engine, why in result["missing"].items()]
    return "\n".join(lines)


def _settings(result: dict[str, Any]) -> str:
    """How else a backbone was quantized, if not in the plainest way; older results do not say."""
    patch = result.get("patch") or "float"
    return ("" if patch == "float" else f", patch {patch}") + (", common steps" if result.get("common_steps") else "")


def decisions_line(result: dict[str, Any]) -> str:
    """Whether another engine decides as the simulation does."""
    return (
        f"{result['run']}, {result['images']} images: {result['same']} take the same exit with the same class "
        f"simulated and by {result['engine']}; worst layer from equal inputs {result['worst_layer']:.1e}"
    )
