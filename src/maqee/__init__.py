"""Cheap vision transformers: early exits and mixed precision, chosen together.

Names are loaded when they are first used, so that `import maqee` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maqee.compression import compress as compress
    from maqee.data import open_data as open_data
    from maqee.errors import MaqeeError as MaqeeError
    from maqee.exits import EarlyExitModel as EarlyExitModel
    from maqee.exits import Policy as Policy
    from maqee.exits import add_exits as add_exits
    from maqee.models import load_backbone as load_backbone
    from maqee.runtime import load as load
    from maqee.training import read_recipe as read_recipe
    from maqee.training import run_recipe as run_recipe
else:
    from maqee.lazy import attach

    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "EarlyExitModel": "maqee.exits",
            "MaqeeError": "maqee.errors",
            "Policy": "maqee.policy",
            "add_exits": "maqee.exits",
            "compress": "maqee.compression",
            "load": "maqee.runtime",
            "load_backbone": "maqee.models",
            "open_data": "maqee.data",
            "read_recipe": "maqee.training",
            "run_recipe": "maqee.training",
        },
    )
