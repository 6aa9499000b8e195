"""A run that an earlier version wrote: its model, plan and trace are read as they were meant.

tests/fixtures/compressed_by_0.1.0 is the miniature in tests/fixtures/digits, compressed by that version (ERQ, one swap,
40 calibration images), with the answers that it gave for the first eight test digits.
"""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

import maqee
from maqee.apq import SearchState
from maqee.data import eval_batches, open_data
from maqee.runs import PLAN, SEARCH, TRACE
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


def test_plan_trace_and_search_are_the_same_text_again() -> None:
    assert maqee.Plan.load(RUN / PLAN).to_json() == (RUN / PLAN).read_text()
    state = (RUN / SEARCH).read_text()
    assert SearchState.from_json(state).to_json() == state
    trace = maqee.Trace.load(RUN / TRACE)
    assert (trace.samples, trace.exit_blocks, trace.task) == (40, (1, 2, 4), "classification")


@pytest.mark.trains
def test_commands_still_take_it() -> None:
    evaluation = maqee.evaluate(RUN, device="cpu")
    assert evaluation.images == 360
    assert evaluation.plan is not None
    found = maqee.search(RUN, budget=maqee.Budget(max_drop=0.5))
    assert len(found.to_json()["rows"][0]["thresholds"]) == 2
    assert maqee.diagnose(RUN, model=FIXTURES / "digits", images=8, device="cpu").to_json()["violated"] is None
