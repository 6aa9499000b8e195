"""Accuracy against speed: one point for every row of `maqee bench plans`, one line for every model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from maqee.errors import MaqeeError
from maqee.io import write_atomically
from maqee.report.palette import QUIET, literal, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".svg", ".png")
LETTERS = 34  # of a label
LINE, LETTER = 0.045, 0.0094  # height of a label and width of a letter, in shares of the axes
MARGIN = 0.016  # beside a point, likewise
STEPS = (0, 1, -1, 2, -2, 3, -3, 4, -4)  # lines that a label may be above its point, the nearest first
# One colour and one shape a kind, so that neither alone must tell them apart.
KINDS = {
    "float": ("#000000", "o", "float, full depth"),
    "early exit": ("#E69F00", "^", "early exit alone"),
    "low bits": ("#0072B2", "s", "low bits alone"),
    "low bits and early exit": ("#009E73", "D", "low bits and early exit"),
}


class Bar(NamedTuple):
    """A point with its spread, in shares of the axes."""

    low: float
    high: float
    height: float


def check_ending(path: Path) -> None:
    """Complain about a file that is neither of the two kinds."""
    if path.suffix not in ENDINGS:
        raise MaqeeError(f"picture: {path} must end in {' or '.join(ENDINGS)}.")


def save_plan_picture(result: dict[str, Any], path: Path) -> None:
    """Draw to a file, without a date or version in it: equal results are equal files.

    Args:
        result: what `maqee bench plans --out` wrote.
        path: .svg or .png.
    """
    import matplotlib

    check_ending(path)
    kind = path.suffix[1:]
    metadata = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
    with matplotlib.rc_context({"svg.hashsalt": "maqee", "svg.fonttype": "none"}):
        figure = draw_plans(result)
        write_atomically(path, lambda file: figure.savefig(file, format=kind, metadata=metadata))


def draw_plans(result: dict[str, Any]) -> Figure:
    """Points with their names, the spread of their speeds as a bar, and how many times the first row that is above.

    A line joins what one model does at full depth and with one threshold for all exits, and its points but the first
    are named by that threshold. Where a plan's own thresholds lead lies beside the line.
    """
    from matplotlib.figure import Figure

    rows = result["rows"]
    figure = Figure(figsize=(8.4, 5.2), dpi=130)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for model in dict.fromkeys(_model(row) for row in rows):
        _join(axes, [row for row in rows if _model(row) == model])
    for kind in KINDS:
        _draw_kind(axes, kind, [row for row in rows if row["kind"] == kind])
    slowest = min(row["images_per_second"]["low"] for row in rows)
    fastest = max(row["images_per_second"]["high"] for row in rows)
    accuracies = [100 * row["accuracy"] for row in rows]
    room = max(1.0, 0.18 * (max(accuracies) - min(accuracies)))
    margin = max(0.2 * (fastest - slowest), 0.02 * fastest)
    axes.set_xlim(slowest - margin, fastest + margin)
    axes.set_ylim(min(accuracies) - room, max(accuracies) + room)
    axes.set_xlabel("images per second")
    axes.set_ylabel("accuracy on test images, %")
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    first = rows[0]["images_per_second"]["median"]
    above = axes.secondary_xaxis("top", functions=(lambda x: x / first, lambda x: x * first))
    above.set_xlabel(f"times {literal(_label(rows[0]))}", color=QUIET)
    _name_points(axes, rows)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.27), ncols=4, frameon=False, fontsize=9)
    figure.suptitle(
        literal(
            f"{result['data']}, {result['images']} images, batch {result['batch']}, {result['precision']}, "
            f"{result['device']}: executed"
        ),
        fontsize=10.5,
    )
    return figure


def _join(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """A line through full depth and shared thresholds of one model, in the order of speed."""
    full = [row for row in rows if row["kind"] in ("float", "low bits")]
    shared = [row for row in rows if _stop(row) not in ("", "full")]
    points = sorted((row["images_per_second"]["median"], 100 * row["accuracy"]) for row in full[:1] + shared)
    if shared and len(points) > 1:
        axes.plot(*zip(*points, strict=True), color=KINDS[shared[0]["kind"]][0], linewidth=1.2, alpha=0.5, zorder=1)


def _draw_kind(axes: Axes, kind: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    colour, shape, words = KINDS[kind]
    speeds = [row["images_per_second"] for row in rows]
    medians = [speed["median"] for speed in speeds]
    spread = [
        [speed["median"] - speed["low"] for speed in speeds],
        [speed["high"] - speed["median"] for speed in speeds],
    ]
    accuracies = [100 * row["accuracy"] for row in rows]
    axes.errorbar(medians, accuracies, xerr=spread, fmt=shape, color=colour, markersize=8, elinewidth=1.2, label=words)


def _name_points(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Names beside their points, where they cover neither points nor other names."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()

    def share(speed: float) -> float:
        return (speed - left) / (right - left)

    speeds = [row["images_per_second"] for row in rows]
    bars = [
        Bar(share(speed["low"]), share(speed["high"]), (100 * row["accuracy"] - low) / (high - low))
        for row, speed in zip(rows, speeds, strict=True)
    ]
    texts = labels(rows)
    for row, speed, bar, text, (x, y) in zip(rows, speeds, bars, texts, place_labels(bars, texts), strict=True):
        axes.annotate(
            literal(text),
            (share(speed["median"]), bar.height),
            xycoords="axes fraction",
            xytext=(x, y),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            color=KINDS[row["kind"]][0],
            arrowprops=None if y == bar.height else {"arrowstyle": "-", "color": QUIET, "linewidth": 0.5},
        )


def place_labels(bars: Sequence[Bar], texts: Sequence[str]) -> list[tuple[float, float]]:
    """Where each label begins, in shares of the axes: the nearest free place, right or left of its bar.

    Where nothing is free, labels cover each other.
    """
    taken = [_box(bar.low - MARGIN, bar.height, bar.high - bar.low + 2 * MARGIN) for bar in bars]
    found: list[tuple[float, float]] = []
    for bar, text in zip(bars, texts, strict=True):
        wide = len(text) * LETTER
        begins = (bar.high + MARGIN, bar.low - MARGIN - wide)
        places = [(begin, bar.height + step * LINE) for step in STEPS for begin in begins]
        inside = [place for place in places if place[0] >= 0 and place[0] + wide <= 1 and 0 < place[1] < 1]
        free = [place for place in inside if not any(_overlap(_box(*place, wide), other) for other in taken)]
        found.append((free or inside or places)[0])
        taken.append(_box(*found[-1], wide))
    return found


def _box(left: float, middle: float, wide: float) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of one line of text."""
    return left, left + wide, middle - LINE / 2, middle + LINE / 2


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def labels(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The first row of a model by its name, the others by their threshold where they have one for all exits."""
    seen: set[str] = set()
    found: list[str] = []
    for row in rows:
        short = _model(row) in seen and _stop(row) not in ("", "full")
        found.append(_stop(row) if short else _label(row))
        seen.add(_model(row))
    return found


def _label(row: dict[str, Any]) -> str:
    """The row's name without the folder's parent."""
    name = row["name"].rpartition("/")[2]
    if _stop(row) == "full":
        name = f"{name.removesuffix(':full')}, full depth"
    return shorten(name, LETTERS)


def _model(row: dict[str, Any]) -> str:
    """What runs in a row, whatever its threshold: RUN@ENGINE of RUN@ENGINE:STOP."""
    name: str = row["name"]
    return name.removesuffix(f":{_stop(row)}")


def _stop(row: dict[str, Any]) -> str:
    """STOP of RUN@ENGINE:STOP, or nothing."""
    rest: str = row["name"].rpartition("@")[2]
    return rest.partition(":")[2]
