"""The method on arrays: cost and utilization. No modules and no device code in here."""

from maqee.apq.cost import BitSettings, bops, part_bops, part_reach, total_macs, utilization

__all__ = ["BitSettings", "bops", "part_bops", "part_reach", "total_macs", "utilization"]
