"""`maqee ls`: everything that has a name."""

from __future__ import annotations

import typer


def list_things() -> None:
    """List presets, exit heads, quantization methods, data sets, tasks, training stages and recipes."""
    from maqee.data.readers import readers
    from maqee.exits import heads
    from maqee.models import presets
    from maqee.quant import methods
    from maqee.tasks import tasks
    from maqee.training import stages
    from maqee.training.shipped import list_recipes

    for title, names in (
        ("models", presets.names()),
        ("exit schemes", ["lgvit", "lgvit-raw", "vit-ee"]),
        ("exit heads", heads.names()),
        ("quantization methods", methods.names()),
        ("data sets", readers.names()),
        ("tasks", tasks.names()),
        ("training stages", stages.names()),
        ("recipes", list_recipes()),
    ):
        typer.echo(f"{title}: {', '.join(names)}")
