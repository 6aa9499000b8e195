"""Draw the picture at the top of the README from the results that it shows; run from the root of the checkout.

python -m tools.draw_frontier [FILE.svg]

Equal results give equal bytes, with the same version of matplotlib.
"""

import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from maqee.io import read_json, write_text
from maqee.report.figures.drawing import BLUE, GREEN, INK, ORANGE, QUIET, show_percent, style

RESULTS, TABLE = Path("results", "joint"), Path("results", "tables", "cifar100-vit-tiny.json")
PICTURE = Path("docs", "pictures", "frontier.svg")
WIDEST = 7.0  # per cent of the BOPs of full precision


def main(path: Path) -> None:
    """Write the picture."""
    with style():
        save(draw(frontiers(), read("envelope"), trained("maqee"), trained("best-uniform-trained")), path)


def save(figure: Figure, path: Path) -> None:
    """Write a drawing on white, for pages whose colours are not ours to know, without a date in it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", facecolor="white", metadata={"Date": None, "Creator": None})
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", buffer.getvalue().decode(), flags=re.DOTALL)
    write_text(path, re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE))


def read(name: str) -> dict[str, Any]:
    """A result of ViT-Ti/16 on CIFAR-100."""
    return read_json(RESULTS / f"cifar100-vit-tiny-{name}.json")


def frontiers() -> list[dict[str, Any]]:
    """The plans of one search, for every seed that was run."""
    return [read_json(path) for path in sorted(RESULTS.glob("cifar100-vit-tiny-frontier*.json"))]


def trained(name: str) -> list[tuple[float, float]]:
    """Cost, in per cent of full precision, and accuracy of a row of the table, for every seed."""
    rows = {row["name"]: row for row in read_json(TABLE)["rows"]}
    full = rows["float"]["bops"]["mean"]
    return [(100 * run["bops"] / full, run["accuracy"]) for run in rows[name]["runs"]]


def draw(
    searched: list[dict[str, Any]],
    envelope: dict[str, Any],
    recovered: list[tuple[float, float]],
    uniform: list[tuple[float, float]],
) -> Figure:
    """Accuracy against expected BOPs: plans of a search a seed, the best of uniform bits, and both after training."""
    figure = Figure(figsize=(7.2, 4.2))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.08)
    axes = figure.add_subplot()
    full = envelope["full_precision"][-1]["accuracy"]
    axes.axhline(full, color=QUIET, lw=1, ls="--", label=f"full precision, full depth: {full:.2%}")
    best = [point(row) for row in envelope["envelope"]]
    axes.step(*zip(*best, strict=True), where="post", color=QUIET, lw=1.6, label="best uniform bits, one threshold")
    plans = [sorted(point(row) for row in frontier["plans"]) for frontier in searched]
    words = "one search" if len(plans) == 1 else f"one search a seed ({len(plans)} seeds)"
    for index, points in enumerate(plans):
        label = f"maqee: plans of {words}, no training" if index == 0 else None
        axes.plot(*zip(*points, strict=True), "o", color=BLUE, ms=6 if len(plans) == 1 else 4, label=label)
    costs, low, middle, high = band([undominated(points) for points in plans])
    if len(plans) > 1:
        axes.fill_between(costs, low, high, color=BLUE, alpha=0.2, lw=0)
    axes.plot(costs, middle, color=BLUE, lw=1.8)
    axes.plot(
        *zip(*recovered, strict=True), "*", color=ORANGE, mec=INK, mew=0.5, ms=13,
        label=f"maqee, 1,200 steps of training ({len(recovered)} seeds)",
    )  # fmt: skip
    axes.plot(
        *zip(*uniform, strict=True), "s", color=GREEN, ms=5,
        label=f"best uniform bits, one threshold, the same training ({len(uniform)} seeds)",
    )  # fmt: skip
    axes.set_xlim(2.9, WIDEST)
    axes.set_ylim(0.7, 0.9)
    axes.set_yticks((0.7, 0.75, 0.8, 0.85, 0.9))
    axes.set_xlabel("expected BOPs of an image, % of full precision")
    axes.set_title("ViT-Ti/16 on CIFAR-100: accuracy on the 10,000 test images, simulated")
    show_percent(axes.yaxis)
    axes.grid(True)
    axes.legend(loc="lower right")
    return figure


def undominated(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of points in the order of their cost, those that are better than all before them."""
    return [
        (cost, good) for index, (cost, good) in enumerate(points) if all(good > other for _, other in points[:index])
    ]


def band(curves: list[list[tuple[float, float]]]) -> tuple[list[float], list[float], list[float], list[float]]:
    """Costs that all curves cover, with the lowest, mean and highest accuracy there; straight between points."""
    first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    costs = sorted({first, last, *(cost for curve in curves for cost, _ in curve if first < cost < last)})
    rows = np.array([np.interp(costs, *np.array(curve).T) for curve in curves])  # (seeds, costs)
    return costs, rows.min(axis=0).tolist(), rows.mean(axis=0).tolist(), rows.max(axis=0).tolist()


def point(row: dict[str, Any]) -> tuple[float, float]:
    """Cost and accuracy."""
    return 100 * row["share_of_full_precision"], row["accuracy"]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
