"""Text tables, pictures and masks, made from results."""

from maqee.report.mask_files import save_mask

__all__ = ["save_mask"]
