"""What every benchmark gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maqee.values import plain


@dataclass(frozen=True, kw_only=True)
class BenchResult:
    """Base class; each benchmark adds its own figures.

    Attributes:
        environment: versions and hardware, without which a time means nothing.
    """

    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `maqee bench ... --out` writes them."""
        values: dict[str, Any] = plain(self)
        return values
