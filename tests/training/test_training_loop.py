"""What the loop sets up around its steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from maqee.data import open_data
from maqee.models import load_backbone
from maqee.models.compiling import MANY
from maqee.tasks import tasks
from maqee.training.recipe import StageSection
from maqee.training.runner import PlainRunner
from maqee.training.stages import Finetune
from maqee.training.training_loop import LoopOptions, train_stage


class Watching(Finetune):
    """Notes how many versions of one function torch would compile."""

    limits: list[int]

    def forward(self, images: Tensor, targets: Tensor, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        self.limits.append(torch._dynamo.config.recompile_limit)
        return super().forward(images, targets, step)


@pytest.mark.parametrize("compile", [False, True])
def test_compiled_steps_may_have_many_kinds_of_blocks(
    compile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Swin has seven; past eight, torch runs the rest uncompiled and only logs it."""
    import torch._dynamo.config

    usual = torch._dynamo.config.recompile_limit
    backbone = load_backbone("vit-digits")
    monkeypatch.setattr(backbone, "compilable", list)  # the limit is what matters, not the compiling
    stage = Watching(backbone, tasks["classification"])
    stage.limits = []
    settings = StageSection(kind="finetune", epochs=0.03, batch_size=32, lr=1e-3)
    options = LoopOptions(folder=tmp_path, digest="", seed=0, compile=compile)
    train_stage(
        stage, open_data("digits", None), settings, "1-finetune", PlainRunner("fp32", torch.device("cpu")), options
    )
    assert set(stage.limits) == {MANY if compile else usual}
    assert torch._dynamo.config.recompile_limit == usual
