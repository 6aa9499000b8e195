"""Uniform widths of segmentation and detection models, whose metrics are no means over images."""

from __future__ import annotations

import pytest

import maqee
from maqee.errors import MaqeeError
from maqee.report.envelope_table import envelope_table
from maqee.tasks import tasks
from tests.compression import dense


@pytest.fixture(scope="module", params=["segmentation", "detection"])
def mini(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dense.Miniature:
    made: dense.Miniature = getattr(dense, request.param)(tmp_path_factory.mktemp(request.param))
    return made


def test_a_pair_is_what_the_baselines_are(mini: dense.Miniature) -> None:
    options = dense.options(mini.task)
    found = maqee.envelope(
        mini.run, ("erq",), weights=(4, 6), activations=(4, 6), data=mini.data, data_root=mini.root,
        options=options, device="cpu",
    )  # fmt: skip
    _, baseline = maqee.baselines(
        mini.run, ("erq",), data=mini.data, data_root=mini.root, options=options, device="cpu"
    ).rows
    pair = found.pairs[0]
    assert pair.exits == baseline.exits
    swept = {row.thresholds: row for row in pair.swept}
    assert [swept[row.thresholds] for row in baseline.policies] == list(baseline.policies)
    values = found.to_json()
    assert (values["task"], values["metric"]) == (mini.task, tasks[mini.task].metric_name)
    assert f"{found.points[-1].metric:.2%}" in envelope_table(values)


def test_the_wrong_task(mini: dense.Miniature) -> None:
    with pytest.raises(MaqeeError, match="needs labels"):
        maqee.envelope(mini.run, data=mini.data, data_root=mini.root, options=dense.options("classification"))
