"""The model card of a run: README.md as people expect it beside a model, from the run's own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from maqee.io import write_text
from maqee.report.report_content import RunContent, read_run
from maqee.report.report_tables import bit_rows, other_bits, result_rows, settings
from maqee.report.report_words import asked, choice_words, guarantee_words, summary, verdict
from maqee.runs import CARD, PAGE
from maqee.tasks import tasks

OURS = "<!-- Written by maqee compress. Delete this line to keep your own words: the file is then left alone. -->"
PIPELINES = {"labels": "image-classification", "masks": "image-segmentation", "boxes": "object-detection"}  # of the Hub


def write_model_card(run: str | Path) -> Path | None:
    """Write README.md into a folder of `maqee compress`: what the model is, how good, how cheap, and how to load it.

    Equal runs give equal bytes. A file that somebody else wrote is left alone, and None is handed back.

    Args:
        run: the folder.
    """
    folder = Path(run)
    content = read_run(folder)
    path = folder / CARD
    if path.is_file() and OURS not in path.read_text(encoding="utf-8", errors="replace"):
        return None
    write_text(path, model_card(content))
    return path


def model_card(run: RunContent) -> str:
    """The text of the card: Markdown with the header that the Hub reads."""
    parts = [
        _header(run),
        OURS,
        f"# {run.name}",
        summary(run),
        f"Bits of weights and activations and the thresholds of early exits were chosen together by maqee. {PAGE} has "
        "figures and examples, plan.json every number.",
        "## Accuracy and cost" if run.score == "accuracy" else "## Score and cost",
        f"**Asked:** {asked(run)}. {verdict(run)}".rstrip(),
        _results(run),
        "*Simulated*: numbers are rounded to their grids and multiplied as floats. BOPs are bit operations: "
        "multiply-accumulates times the bits of both factors, expected over where images leave.",
        *(["## Exits", _exits(run)] if run.exits else []),
        "## Bits",
        "Bits of weights / bits of what they are multiplied with.",
        _bits(run),
        other_bits(run),
        "## Use",
        f'```python\nimport maqee\n\nmodel = maqee.load("{run.name}")\nfor found in model.predict("pictures/"):\n'
        "    print(found)\n```",
        "## Guarantee",
        "None was asked for."
        if run.plan.guarantee is None
        else f"{run.plan.guarantee.statement} {guarantee_words(run)}",
        "## How it was made",
        _table(("what", "value"), settings(run)),
        "## Limits",
        "Figures hold for images like those of the calibration set. Licence, intended use and known faults are those "
        "of the model and the data that it was made from: nothing in this folder knows them.",
    ]
    return "\n\n".join(parts) + "\n"


def _header(run: RunContent) -> str:
    tags = "\n".join(f"- {tag}" for tag in ("early-exit", "mixed-precision", "quantization", "vision-transformer"))
    return f"---\nlibrary_name: maqee\npipeline_tag: {PIPELINES[tasks[run.plan.task].targets]}\ntags:\n{tags}\n---"


def _results(run: RunContent) -> str:
    return _table(("", run.score, "cost of an image", "mean exit", "measured on"), result_rows(run))


def _exits(run: RunContent) -> str:
    plan = run.plan
    thresholds = [*map(choice_words, plan.thresholds), "all others"]
    kinds = [*plan.exit_kinds, "the model's own"]
    rows = zip(run.exit_names, kinds, thresholds, [f"{share:.1%}" for share in plan.got.exit_mass], strict=True)
    return _table(("exit after", "head", "leaves if as sure as", "images that leave here (calibration)"), list(rows))


def _bits(run: RunContent) -> str:
    blocks = [str(block + 1) for block in range(run.plan.bits.depth)]
    return _table(("block", *blocks), [(name, *cells) for name, cells in bit_rows(run)])


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table; nothing in a cell can end it."""
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
