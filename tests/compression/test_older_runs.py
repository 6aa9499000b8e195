"""A run that an earlier version wrote: its model, plan and trace are read as they were meant.

tests/fixtures/compressed_by_0.1.0 is the miniature in tests/fixtures/digits, compressed by that version (ERQ, one swap,
40 calibration images), with the answers that it gave for the first eight test digits.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import maqee
from maqee.apq import SearchState, policy_figures
from maqee.data import eval_batches, open_data
from maqee.errors import MaqeeError
from maqee.report.plan_table import plan_table
from maqee.runs import PLAN, SEARCH, TRACE
from maqee.runtime.loading import load_quantized_network
from tests.helpers import FIXTURES

RUN = FIXTURES / "compressed_by_0.1.0"


def test_the_model_answers_as_it_did() -> None:
    ready = maqee.load(RUN)
    images, _ = next(eval_batches(open_data("digits").test, ready.preprocessing, 8))
    decision, stored = ready.run(images), load_file(RUN / "answers.safetensors")
    best = stored["output"].softmax(dim=-1).topk(2).values
    clear = (best[:, 0] - best[:, 1] > 0.2) & ((best[:, 0] - ready.policy.thresholds[1]).abs() > 0.05)
    assert int(clear.sum()) >= 3  # of the others another way of rounding may change exit or class
    assert torch.equal(decision.exit[clear], stored["exit"][clear])
    assert torch.equal(decision.output.argmax(-1)[clear], stored["output"].argmax(-1)[clear])
    assert ready.classes == ()


def test_plan_and_trace_mean_what_they_meant() -> None:
    stored, plan = json.loads((RUN / PLAN).read_text()), maqee.Plan.load(RUN / PLAN)
    trace = maqee.Trace.load(RUN / TRACE)
    assert stored["version"] == 1
    assert plan.bits.block_weights == tuple(stored["bits"])
    assert plan.bits == trace.bits == load_quantized_network(RUN).bit_settings
    assert plan.thresholds == tuple(stored["thresholds"])
    figures = policy_figures(trace, plan.thresholds)
    # The first exit is closed, and its head of 320 multiply-accumulates at 4/4 bits was charged to everybody then.
    assert plan.policy.closed == (0,)
    assert figures.bops == pytest.approx(plan.got.bops - 320 * 16)
    assert replace(figures, activation_bits=None, bops=plan.got.bops) == plan.got
    assert (trace.samples, trace.exit_blocks, trace.task) == (40, (1, 2, 4), "classification")


def test_its_closed_exit_is_named() -> None:
    roles = {row.layer: row.role for row in maqee.what(RUN).rows if row.layer.startswith("heads.")}
    assert roles == {"heads.0.readout.linear": "closed head", "heads.1.readout.linear": "head"}
    assert re.search(r"^thresholds +closed 0\.55$", plan_table(maqee.Plan.load(RUN / PLAN)), re.MULTILINE)


def test_its_search_cannot_go_on() -> None:
    with pytest.raises(MaqeeError, match="start the search again"):
        SearchState.from_json((RUN / SEARCH).read_text())


@pytest.mark.trains
def test_commands_still_take_it() -> None:
    evaluation = maqee.evaluate(RUN, device="cpu")
    assert evaluation.images == 360
    assert evaluation.plan is not None
    found = maqee.search(RUN, budget=maqee.Budget(max_drop=0.5))
    assert len(found.to_json()["rows"][0]["thresholds"]) == 2
    assert maqee.diagnose(RUN, model=FIXTURES / "digits", images=8, device="cpu").to_json()["violated"] is None
