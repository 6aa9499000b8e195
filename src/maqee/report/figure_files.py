"""Figures of a page: shown inside it, and written beside it as SVG and PNG files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from maqee.io import write_atomically, write_text
from maqee.report.figures.drawing import Section, inline_svg, png_file, settle, svg_file


class Shown(NamedTuple):
    """A section as a template takes it; without a drawing, its words say why."""

    name: str
    title: str
    words: str
    svg: str


@dataclass(frozen=True)
class FigureFiles:
    """The folder of a page's figures.

    Attributes:
        place: the folder.
        written: the files so far.
    """

    place: Path
    written: list[Path] = field(default_factory=list)

    def show(self, section: Section, key: str = "") -> Shown:
        """Write a section's drawing, if it has one, and hand it on as a part of the page.

        Args:
            section: what was drawn.
            key: set before the name, where a page has several sections of that name.
        """
        name = f"{key}-{section.name}" if key else section.name
        if section.figure is None:
            return Shown(name, section.title, section.words, "")
        settle(section.figure)
        svg, dots = svg_file(section.figure), png_file(section.figure)
        paths = [self.place / f"{name}.svg", self.place / f"{name}.png"]
        write_text(paths[0], svg)
        write_atomically(paths[1], lambda file: _write_bytes(file, dots))
        self.written.extend(paths)
        return Shown(name, section.title, section.words, inline_svg(svg, name, section.alt))


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)
