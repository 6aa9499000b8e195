"""The state of a search: what is written comes back, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from maqee.apq.loop import search
from maqee.apq.options import SearchOptions
from maqee.apq.search_state import SearchState
from maqee.errors import MaqeeError
from tests.apq.fake_model import FakeModel


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": "maqee-search", "version": 9}', '{"version": 1}'])
def test_foreign_states(text: str) -> None:
    with pytest.raises(MaqeeError, match="search state"):
        SearchState.from_json(text)


def test_a_state_of_the_version_before() -> None:
    path = Path(__file__).parents[1] / "fixtures" / "search_state.json"
    state = SearchState.from_json(path.read_text(), str(path))
    assert [step.kind for step in state.history] == ["start", "swap", "last"]
    assert state.to_json() == path.read_text()


def test_states_with_other_values() -> None:
    text = search(FakeModel(), SearchOptions(max_swaps=1)).state.to_json()
    assert SearchState.from_json(text).to_json() == text
    with pytest.raises(MaqeeError, match=r"options\.alpha"):
        SearchState.from_json(text.replace('"alpha": 0.75', '"alpha": "0.75"'))
    with pytest.raises(MaqeeError, match="more"):
        SearchState.from_json(text.replace('"alpha": 0.75', '"more": 1, "alpha": 0.75'))
