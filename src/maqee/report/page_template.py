"""Pages from templates: everything that is put in is escaped, and nothing may be left out."""

from __future__ import annotations

from importlib.resources import files
from typing import Any


def fill_template(name: str, **values: Any) -> str:
    """One HTML file.

    Args:
        name: of a template in this folder.
        values: everything that it speaks of.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files("maqee.report")
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda part: folder.joinpath(part).read_text(encoding="utf-8")),
    )
    return environment.get_template(name).render(**values)
