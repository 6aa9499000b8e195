"""Kernels beside torch.compile, as plain text."""

from __future__ import annotations

from typing import Any


def kernel_table(result: dict[str, Any]) -> str:
    """The kernels of a block, what they add up to, and how near they come to the simulation."""
    steps = ", common steps" if result["common_steps"] else ""
    tokens = ", tokens in float16" if result.get("half_tokens") else ""
    lines = [
        f"{result['model']}, {result['weights']} weights, {result['method']} {result['bits']}{steps}{tokens}, "
        f"seed {result['seed']}, {result['device']}, CUDA graphs, executed; "
        f"compiled bf16 has {result['attention']} attention"
    ]
    for row in result["rows"]:
        if row["kernels"]:
            lines.append(f"{f'''batch {row['batch']}, one block''':<28}{'us':>10}{'TOPS':>10}")
        lines += [_kernel_line(kernel) for kernel in row["kernels"]]
        lines.append(
            f"{f'''batch {row['batch']}''':<28}{'kernels ms':>14}{'compiled bf16 ms':>18}{'times as fast':>15}"
        )
        lines += [
            f"{part['part']:<28}{part['kernels_ms']:>14.3f}{part['compiled_ms']:>18.3f}{part['ratio']:>15.2f}"
            for part in row["parts"]
        ]
    found = result["agreement"]
    lines.append(
        f"logits beside the simulation's, {found['images']} images of noise: at most "
        f"{found['largest_difference']:.3g} apart (the largest is {found['largest_logit']:.3g}), the same class for "
        f"{found['same_class']:.1%}"
    )
    return "\n".join(lines + [f"without kernels: {line}" for line in result["simulated"]])


def _kernel_line(kernel: dict[str, Any]) -> str:
    tops = "" if kernel["tops"] is None else f"{kernel['tops']:.1f}"
    return f"{kernel['name']:<28}{kernel['microseconds']:>10.1f}{tops:>10}"
