"""The page itself: the content of runs, put into the template."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from maqee.evaluation.kept_examples import KeptExample
from maqee.io import to_json
from maqee.report import report_tables as tables
from maqee.report import report_words as words
from maqee.report.figure_files import Shown
from maqee.report.page_template import fill_template
from maqee.report.report_content import RunContent

TEMPLATE = "report.html.jinja"


class ExitExamples(NamedTuple):
    """The kept images of one exit."""

    title: str
    easy: list[KeptExample]
    hard: list[KeptExample]


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """Everything that the template says about one run."""

    name: str
    key: str
    score: str
    kicker: str
    summary: str
    tiles: list[words.Tile]
    asked: str
    verdict: str
    rows: list[tables.Row]
    sections: list[Shown]
    bit_rows: list[tuple[str, list[str]]]
    other_bits: str
    examples: list[ExitExamples]
    guarantee: str
    guarantee_figures: str
    settings: list[tuple[str, str]]
    request: str
    quoted: str

    @classmethod
    def of(cls, run: RunContent, sections: list[Shown]) -> RunPage:
        """Gather it."""
        return cls(
            name=run.name,
            key=run.key,
            score=run.score,
            kicker=words.kicker(run),
            summary=words.summary(run),
            tiles=words.tiles(run),
            asked=words.asked(run),
            verdict=words.verdict(run),
            rows=tables.result_rows(run),
            sections=sections,
            bit_rows=tables.bit_rows(run),
            other_bits=tables.other_bits(run),
            examples=_by_exit(run),
            guarantee="" if run.plan.guarantee is None else run.plan.guarantee.statement,
            guarantee_figures=words.guarantee_words(run),
            settings=tables.settings(run),
            request=to_json(run.request["choices"]) if "choices" in run.request else "",
            quoted=shlex.quote(run.name),
        )


@dataclass(frozen=True, kw_only=True)
class Together:
    """What the template says about several runs together."""

    summary: str
    table: list[tuple[str, list[str]]]
    sections: list[Shown]

    @classmethod
    def of(cls, runs: Sequence[RunContent], sections: list[Shown]) -> Together:
        """Gather it."""
        return cls(summary=words.several_summary(runs), table=tables.compared(runs), sections=sections)


def render_page(runs: Sequence[RunPage], together: Together | None) -> str:
    """One HTML file.

    Args:
        runs: what is said about each.
        together: what is said about all of them, where there are several.
    """
    return fill_template(TEMPLATE, runs=runs, together=together)


def _by_exit(run: RunContent) -> list[ExitExamples]:
    """Exits with images to show, in order."""
    if run.examples is None:
        return []
    found = []
    for number, name in enumerate(run.exit_names):
        here = [example for example in run.examples.examples if example.exit == number]
        easy, hard = ([example for example in here if example.place == place] for place in ("easy", "hard"))
        if here:
            found.append(ExitExamples(f"Exit after {name}" if number < run.exits else "Full depth", easy, hard))
    return found
