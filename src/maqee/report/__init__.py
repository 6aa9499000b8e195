"""Pictures of what a model does."""

from maqee.report.show import show_run

__all__ = ["show_run"]
