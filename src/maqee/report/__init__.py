"""Pictures of what a model does."""

from maqee.report.mask_files import save_mask
from maqee.report.show import show_run

__all__ = ["save_mask", "show_run"]
