"""A diagnosis as short tables."""

from __future__ import annotations

from typing import Any

from maqee.report.tables import threshold_words

TAU = 0.05  # the paper's tolerance, shown beside the best one


def diagnosis_table(result: dict[str, Any]) -> str:
    """All theorems, one after the other."""
    heading = (
        f"{result['data']}, {result['images']} images the search has seen, {result['method']}, "
        f"bits {' '.join(f'{bits:g}' for bits in result['bits'])}, {result['accuracy_is']}"
    )
    parts = [[heading], _mis_exits(result), _stopping(result), _flips(result)]
    if result["accumulated_error"] is not None:
        parts.append(_errors(result))
    if result["rank_inversions"] is not None:
        parts += [_blocks(result), _ranks(result)]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _mis_exits(result: dict[str, Any]) -> list[str]:
    found = result["mis_exits"]
    taus = found["taus"]
    usual = min(range(len(taus)), key=lambda index: abs(taus[index] - TAU))
    lines = [
        "Theorem 1: decisions that quantization turns round <= those within tau of the threshold + those moved further",
        f"{'':<25}{f'tau {taus[usual]:g}':>27}{'best tau':>18}",
        f"{'exit':<6}{'threshold':>10}{'turned':>9}{'near':>9}{'moved':>9}{'bound':>9}{'tau':>9}{'bound':>9}",
    ]
    for index, block in enumerate(result["exit_blocks"][:-1]):
        bounds = found["bound"][index]
        best = min(range(len(bounds)), key=bounds.__getitem__)
        near, moved = found["boundary_mass"][index][usual], found["tail"][index][usual]
        lines.append(
            f"{block:<6}{threshold_words(result['thresholds'][index]):>10}{found['measured'][index]:>9.2%}{near:>9.2%}"
            f"{moved:>9.2%}{bounds[usual]:>9.2%}{taus[best]:>9g}{bounds[best]:>9.2%}"
        )
    return lines


def _stopping(result: dict[str, Any]) -> list[str]:
    found = result["stopping_depth"]
    shift = found["quantized_mean"] - found["float_mean"]
    return [
        "Corollary: the depth at which images stop",
        f"mean exit {found['float_mean']:.3f} in float, {found['quantized_mean']:.3f} quantized: {shift:+.3f}, "
        f"at most {found['tight_shift_bound']:.3f} (printed bound {found['shift_bound']:.3f})",
        f"stopped elsewhere {found['changed']:.2%}, at most {found['changed_bound']:.2%}",
    ]


def _flips(result: dict[str, Any]) -> list[str]:
    found = result["flips"]
    blocks = result["exit_blocks"]
    lines = [
        "Flips: rows are exits in float, columns after quantization",
        f"{'':<6}" + "".join(f"{block:>7}" for block in blocks),
    ]
    lines += [
        f"{block:<6}" + "".join(f"{count:>7}" for count in row)
        for block, row in zip(blocks, found["matrix"], strict=True)
    ]
    for name in ("premature", "delayed"):
        loss = found[f"{name}_loss"]
        effect = "" if loss is None else f", loss {loss:+.4f}"
        lines.append(f"{name} {found[name]:.2%}: {found[f'{name}_blocks']:+.3f} blocks an image{effect}")
    return lines


def _errors(result: dict[str, Any]) -> list[str]:
    found = result["accumulated_error"]
    lines = [
        "Theorem 2: error of the states after each block, and its bound (each image's own factors; as printed)",
        f"{'block':<6}{'reached':>9}{'error':>12}{'bound':>12}{'printed':>12}",
    ]
    rows = zip(result["utilization"], found["mean_error"], found["mean_bound"], found["uniform_bound"], strict=True)
    for number, (reach, error, bound, uniform) in enumerate(rows, start=1):
        lines.append(f"{number:<6}{reach:>9.1%}{error:>12.4g}{bound:>12.4g}{uniform:>12.4g}")
    return [*lines, f"where images stop: error {found['stop_error']:.4g}, at most {found['stop_bound']:.4g}"]


def _blocks(result: dict[str, Any]) -> list[str]:
    lines = [
        "Blocks: risk R at these thresholds, noise S that the block itself adds, and S weighted by who reaches it",
        f"{'block':<6}{'bits':>5}{'reached':>9}{'R':>12}{'S':>12}{'u S':>12}",
    ]
    rows = zip(result["bits"], result["utilization"], result["risk"], result["sensitivity"], strict=True)
    for number, (bits, reach, risk, own) in enumerate(rows, start=1):
        lines.append(f"{number:<6}{bits:>5g}{reach:>9.1%}{risk:>12.4g}{own:>12.4g}{reach * own:>12.4g}")
    return lines


def _ranks(result: dict[str, Any]) -> list[str]:
    found = result["rank_inversions"]
    lines = ["Theorem 3: pairs of blocks whose order of sensitivity utilization turns round"]
    if not found["pairs"]:
        return [*lines, "none: a choice of bits that ignores exits would rank the blocks in the same order"]
    pairs = ", ".join(f"{one}-{other}" for one, other in found["pairs"])
    worst = max(range(len(found["shortfall"])), key=found["shortfall"].__getitem__)
    return [
        *lines,
        f"{found['share']:.0%} of all pairs: {pairs}",
        f"a bit for each of {worst + 1} blocks, chosen without utilization, gains {found['shortfall'][worst]:.1%} less "
        "than the best choice",
    ]
