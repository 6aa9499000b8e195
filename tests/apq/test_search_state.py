"""The state of a search: what is written comes back, and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maqee.apq.options import SearchOptions
from maqee.apq.search_state import SearchState
from maqee.errors import MaqeeError
from tests.apq.fake_model import FakeModel, search_weights, weight_options


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": "maqee-search", "version": 9}', '{"version": 1}'])
def test_foreign_states(text: str) -> None:
    with pytest.raises(MaqeeError, match="search state"):
        SearchState.from_json(text)


FIXTURE = Path(__file__).parents[1] / "fixtures" / "search_state.json"


def test_a_state_that_was_written_before() -> None:
    """Files of this version stay readable, and stay the same text."""
    state = SearchState.from_json(FIXTURE.read_text(), str(FIXTURE))
    assert [step.kind for step in state.history] == ["start", "swap", "last"]
    assert [step.position.bits.block_weights for step in state.history[:2]] == [(4,) * 6, (5, 4, 4, 4, 4, 3)]
    assert {block.attention for block in state.best.bits.blocks} == {(4, 4)}
    assert state.to_json() == FIXTURE.read_text()


def test_a_state_from_before_scores_were_smoothed() -> None:
    """What it has tried was judged by counting, so that it goes on counting."""
    stored = json.loads(FIXTURE.read_text())
    del stored["options"]["scores"]
    assert SearchState.from_json(json.dumps(stored)).options.scores == "counted"
    assert SearchOptions().scores == "smoothed"


def test_a_state_from_before_times_were_measured_and_training_had_bits_of_its_own() -> None:
    stored = json.loads(FIXTURE.read_text())
    for key in ("exit_ms", "head_ms", "timed_on", "timed_pairs", "before_training", "error_passes"):
        del stored["options"][key]
    for budget in (stored["budget"], stored["target"]):
        del budget["max_ms"]
    for step in (*stored["history"], {"position": stored["now"]}, {"position": stored["best"]}):
        del step["position"]["figures"]["ms"]
    assert SearchState.from_json(json.dumps(stored)).to_json() == FIXTURE.read_text()


def test_a_search_of_the_version_before_cannot_go_on() -> None:
    """It knew weight bits of blocks only: what it tried cannot be compared with what is tried now."""
    old = {**json.loads(FIXTURE.read_text()), "version": 1}
    with pytest.raises(MaqeeError, match="version 2 of a search, the file has 1: start the search again"):
        SearchState.from_json(json.dumps(old), "search.json")


def test_states_with_other_values() -> None:
    text = search_weights(FakeModel(), weight_options(max_swaps=1)).state.to_json()
    assert SearchState.from_json(text).to_json() == text
    with pytest.raises(MaqeeError, match=r"options\.alpha"):
        SearchState.from_json(text.replace('"alpha": 0.75', '"alpha": "0.75"'))
    with pytest.raises(MaqeeError, match="more"):
        SearchState.from_json(text.replace('"alpha": 0.75', '"more": 1, "alpha": 0.75'))
