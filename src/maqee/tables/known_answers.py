"""What searches of one fitted model have measured, kept by a process for the next search of the same model.

The rows of an ablation differ in how they search, not in what is fitted: they meet the same allocations again.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import lru_cache

import torch

from maqee.apq import SearchOptions
from maqee.compression.compress_run import OpenedRun
from maqee.compression.job import searched_widths
from maqee.compression.remembered import Memory
from maqee.io import to_json
from maqee.models.digest import weights_digest


def memory_of(opened: OpenedRun, how: SearchOptions, device: torch.device) -> Memory:
    """What is known of the model that these inputs fit, and room for more.

    Args:
        opened: the model in full precision, its images and options.
        how: the search; its widths decide what is fitted.
        device: where it is run.
    """
    options, network = opened.options, opened.network
    images = hashlib.sha256(b"".join(opened.splits.calibration.images.digests()))
    images.update(opened.splits.calibration.targets.cpu().numpy().tobytes())
    return _memory(
        to_json(
            {
                "weights": weights_digest(network),
                "exits": network.to_json(),
                "preprocessing": network.backbone.preprocessing.to_json(),
                "images": images.hexdigest(),
                "draws": options.draws,
                "scored": options.scored,
                "task": options.task,
                "method": options.method,
                "widths": asdict(searched_widths(options.quantization, how)),
                "times": [how.exit_ms, how.head_ms, how.timed_pairs],
                "device": str(device),
            }
        )
    )


@lru_cache(maxsize=1)
def _memory(inputs: str) -> Memory:
    return {}
