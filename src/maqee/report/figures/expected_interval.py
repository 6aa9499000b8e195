"""What to expect on images that nobody has seen, beside what the images say that chose."""

from __future__ import annotations

from maqee.report.figures.drawing import BLUE, GREEN, INK, ORANGE, QUIET, Section, new_figure, show_percent
from maqee.report.report_content import RunContent

NAME, TITLE = "expected", "What to expect on new images"


def draw_expected(run: RunContent) -> Section:
    """A row for each figure, from full precision down to new images, and a line where the target is."""
    plan, expected = run.plan, run.plan.expected
    rows: list[tuple[str, float, float | None, str]] = []
    if run.trace is not None and run.full_depth is not None:
        rows.append(("full precision", run.trace.float_metric, None, QUIET))
        rows.append(("these bits, full depth", run.full_depth.metric, None, GREEN))
    rows.append(("the plan, images that chose", plan.got.metric, None, BLUE))
    if expected is not None:
        rows.append(("the plan, new images", expected.metric, expected.metric_error, ORANGE))
    figure = new_figure(0.95 + 0.4 * len(rows))
    axes = figure.add_subplot()
    for place, (_, value, error, colour) in enumerate(rows):
        axes.errorbar(value, place, xerr=error, fmt="o", color=colour, ms=7, capsize=4, lw=2)
    if run.needed is not None:
        axes.axvline(run.needed, color=INK, lw=1, ls="--", label="asked for")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderpad=0)
    axes.set_yticks(range(len(rows)), [f"{name}: {value:.2%}" for name, value, _, _ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(True, axis="x")
    axes.margins(x=0.15)
    axes.locator_params(axis="x", nbins=3)
    show_percent(axes.xaxis)
    return Section(
        NAME, TITLE, _words(run), f"{run.score}: " + ", ".join(f"{n} {v:.2%}" for n, v, _, _ in rows), figure
    )


def _words(run: RunContent) -> str:
    expected = run.plan.expected
    if expected is None:
        why = "its thresholds are the guarantee's" if run.plan.guarantee else "it was not measured"
        return f"Nothing is said about new images: {why}. The plan is judged on the images that chose it (simulated)."
    error = "" if expected.metric_error is None else f" ± {expected.metric_error:.2%} (one standard error)"
    return (
        f"Images that chose thresholds flatter them. Chosen on some and measured on others, in {expected.folds} parts, "
        f"the plan has {run.score} {expected.metric:.2%}{error} at mean exit {expected.mean_exit:.2f}, "
        f"{expected.bops:.3e} BOPs (simulated)."
    )
