"""How results reach the user: as a table, as JSON, as a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

if TYPE_CHECKING:
    from rich.table import Table

WIDTH = 160  # of tables that are not shown on a terminal


class Result(Protocol):
    """Anything that can be turned into plain values."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""


def deliver(
    result: Result, table: Callable[[dict[str, Any]], str | Table], json: bool = False, out: Path | None = None
) -> None:
    """Print a result, as JSON if that is asked for, and write it to a file if there is one."""
    from maqee.io import to_json, write_json

    values = result.to_json()
    if out is not None:
        write_json(out, values)
    if json:
        typer.echo(to_json(values), nl=False)
        return
    show(table(values))
    if out is not None:
        typer.echo(f"Written to {out}.")


def show(table: str | Table) -> None:
    """Print a table, as wide as the terminal."""
    if isinstance(table, str):
        typer.echo(table)
        return
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else WIDTH).print(table, highlight=False)
