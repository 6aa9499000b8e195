"""CITATION.cff: the keys that the Citation File Format 1.2.0 asks for, and the version that is released."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_what_the_format_asks_for() -> None:
    assert CITATION["cff-version"] == "1.2.0"
    assert set(CITATION) == {
        "cff-version", "message", "type", "title", "version", "license", "authors", "keywords", "references",
    }  # fmt: skip
    assert CITATION["type"] == "software"
    assert CITATION["authors"] == [{"name": "The maqee authors"}]


def test_it_is_this_project() -> None:
    assert (CITATION["version"], CITATION["license"]) == (PROJECT["version"], PROJECT["license"])
    assert CITATION["keywords"] == PROJECT["keywords"]


def test_the_paper() -> None:
    [paper] = CITATION["references"]
    assert set(paper) == {"type", "status", "title", "authors"}
    assert (paper["type"], paper["status"]) == ("article", "preprint")
    assert paper["title"] in (ROOT / "README.md").read_text()
    assert [author["family-names"] for author in paper["authors"]] == ["Fang", "Chen", "Chen"]
    assert all(set(author) == {"family-names", "given-names", "affiliation"} for author in paper["authors"])
