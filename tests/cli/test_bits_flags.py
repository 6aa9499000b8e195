"""What bits are chosen for, from which widths and for which target: flags of `maqee compress`, on a miniature.

Equal runs take what they have in common from one fixture. Accuracies of forty images are no matter here, so that
targets are such as any model keeps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import maqee
from maqee.apq import Plan
from maqee.compression.compress_config import CompressConfig, read_compress_config
from maqee.runs import FRONTIER, PLAN, REQUEST, SEARCH
from maqee.widths import BlockWidths
from tests.helpers import FIXTURES, invoke

pytestmark = pytest.mark.trains
MODEL, OLDER = FIXTURES / "digits", FIXTURES / "compressed_by_0.1.0"


def compress(out: Path, *more: str) -> str:
    arguments = (str(MODEL), "--data", "digits", "--out", str(out), "--device", "cpu", "--method", "rtn")
    result = invoke("compress", *arguments, "--samples", "40", "--fit-images", "8", "--max-moves", "1", *more)
    assert result.exit_code == 0, result.output
    return str(result.output)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything chosen from few widths, with a frontier."""
    out = tmp_path_factory.mktemp("runs") / "all"
    ranges = ("--weight-range", "5-6", "--act-range", "4 - 8")
    text = compress(out, "--max-drop", "1", "--frontier", "--search-bits", "all", *ranges)
    for words in ("patch embedding", "classifier", "uniform W5A4", "accuracy at most 100.00% below full precision"):
        assert words in text
    return out


def choices(out: Path) -> Any:
    return json.loads((out / REQUEST).read_text())["choices"]


def test_flags_are_the_keys_they_stand_for(run: Path) -> None:
    search = choices(run)["search"]
    wanted = {"bits": "both", "grain": "layer", "search_bits": "all", "bit_min": 5, "bit_max": 6, "act_min": 4}
    assert {key: search[key] for key in wanted} == wanted
    assert (search["act_max"], search["frontier"], search["max_swaps"], search["objective"]) == (8, True, 1, "direct")
    assert choices(run)["budget"]["target_on"] == "expected"


def test_widths_are_of_the_ranges(run: Path) -> None:
    bits = Plan.load(run / PLAN).bits
    linear = [pair for block in bits.blocks for pair in block.linear]
    products = [block.attention for block in bits.blocks]
    assert all(weight in (5, 6) and 4 <= activation <= 8 for weight, activation in linear)
    assert all(one == other and 4 <= one <= 8 for one, other in products)
    assert all(weight in (5, 6) for weight, _ in (bits.patch, bits.classifier, *(bits.heads or (bits.head,))))


def test_the_frontier_is_folders_that_can_be_used(run: Path) -> None:
    folders = sorted((run / FRONTIER).iterdir())
    assert folders
    plans = [Plan.load(folder / PLAN) for folder in folders]
    assert [plan.budget.min_metric for plan in plans] == sorted((p.budget.min_metric for p in plans), reverse=True)  # type: ignore[type-var]
    assert maqee.load(folders[-1]).plan == plans[-1]


def test_a_request_of_today_is_repeated_as_it_was(run: Path) -> None:
    again = read_compress_config(run / REQUEST)
    assert (again.search.search_bits, again.search.bit_min, again.budget.max_drop) == ("all", 5, 1.0)
    assert read_compress_config(run / REQUEST, values={"search.bits": "both"}) == again


def test_an_older_request_means_what_it_meant() -> None:
    """Before there was a choice: weight bits, hundredths, J, and targets on calibration images."""
    config = read_compress_config(OLDER / REQUEST)
    search = config.search
    assert (search.bits, search.candidates, search.objective) == ("weights", "grid", "paper")
    assert (config.budget.target_on, config.budget.average_bits, search.max_swaps) == ("calibration", 4.0, 1)
    assert config != CompressConfig()
    stronger = read_compress_config(OLDER / REQUEST, ["objective=direct"], {"search.bits": "both"})
    assert (stronger.search.bits, stronger.search.objective, stronger.search.candidates) == ("both", "direct", "grid")


def test_an_older_request_is_repeated(tmp_path: Path) -> None:
    compress(tmp_path / "out", "--config", str(OLDER / REQUEST))
    again, before = Plan.load(tmp_path / "out" / PLAN), Plan.load(OLDER / PLAN)
    assert {pair[1] for block in again.bits.blocks for pair in block} == {4}
    assert sum(again.bits.block_weights) == sum(before.bits.block_weights) == 16
    assert again.options == before.options
    assert again.budget == before.budget


def test_the_papers_mode(tmp_path: Path) -> None:
    text = compress(tmp_path / "out", "--bits", "weights", "--objective", "paper", "--avg-bits", "5")
    plan = Plan.load(tmp_path / "out" / PLAN)
    assert sum(plan.bits.block_weights) == 20
    assert all(block == BlockWidths.uniform(block.qkv[0], 4) for block in plan.bits.blocks)
    assert "the least J" in text
    assert "all layers" in text


def test_like_uniform_widths(tmp_path: Path) -> None:
    """The best accuracy at what uniform bits cost; the line beside it is what they do themselves."""
    text = compress(tmp_path / "out", "--like", "w4a4", "--max-drop", "0.5", "--grain", "block")
    plan = Plan.load(tmp_path / "out" / PLAN)
    assert (plan.budget.like, plan.budget.max_drop) == ("w4a4", 0.5)
    limit = json.loads((tmp_path / "out" / SEARCH).read_text())["target"]["max_bops"]
    assert plan.got.bops <= limit * (1 + 1e-9)
    assert "at the cost of uniform W4A4" in text
    assert "uniform W4A4  " in text


@pytest.mark.parametrize("more", [(), ("--max-drop", "1"), ("--objective", "paper"), ("--max-bops", "1e12")])
def test_thresholds_again(run: Path, more: tuple[str, ...]) -> None:
    """What the policy is the best for is said as it is."""
    aims = {"--objective": "least J at lambda_outer 0.5", "--max-bops": "best accuracy within the BOPs"}
    result = invoke("search", str(run), *more, "--target-on", "calibration", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["objective"] == aims.get(more[0] if more else "", "least expected cost")
    asks = not more or more[0] == "--max-drop"
    assert found["budget"]["target_on"] == ("calibration" if asks else None)
    if asks:
        allowed = found["rows"][-1]["accuracy"] - 0.01 if not more else 0.0
        assert found["rows"][0]["accuracy"] >= allowed - 1e-6
    shown = invoke("search", str(run), *more, "--target-on", "calibration").output
    assert "bits of block  " in shown


def test_a_target_is_reached_as_expected(run: Path) -> None:
    """Not only on the images that chose: what cross-validation says reaches it, margin included."""
    found = maqee.search(run, budget=maqee.Budget(max_drop=0.2, drop_from="quantized"))
    assert found.expected is not None
    needed = found.to_json()["budget"]["min_metric"]
    assert needed == pytest.approx(found.full_depth.metric - 0.2, abs=1e-6)
    assert found.expected.metric >= needed - 1e-9
    assert found.revised_plan().budget.max_drop == 0.2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--solver", "exact", "--max-drop", "1"), "exact looks at the samples at hand alone"),
        (("--target-on", "test"), "not one of expected, calibration"),
        (("--objective", "best"), "not one of direct, paper"),
    ],
)
def test_mistakes_of_a_search(run: Path, more: tuple[str, ...], message: str) -> None:
    result = invoke("search", str(run), *more)
    assert result.exit_code == 2
    assert message in str(result.exception)


def test_like_needs_the_model(run: Path) -> None:
    with pytest.raises(maqee.MaqeeError, match=r"like: .* needs the model"):
        maqee.search(run, budget=maqee.Budget(like="W4A4"))


def test_where_a_target_counts_is_no_limit(run: Path) -> None:
    found = maqee.search(run, budget=maqee.Budget(target_on="calibration"), frontier=True)
    assert isinstance(found, maqee.TraceFrontier)


def test_what_is_quantized_in_a_compressed_run(run: Path) -> None:
    result = invoke("what", str(run), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    bits, rows = Plan.load(run / PLAN).bits, {row["layer"]: row for row in found["rows"]}
    assert found["method"] == "rtn"
    for number, block in enumerate(bits.blocks):
        row = rows[f"backbone.blocks.{number}.mlp.fc2"]
        assert row["asked"] == row["got"] == "{}/{}".format(*block.fc2)
        assert rows[f"backbone.blocks.{number}.attn.attend"]["got"] == "{0}x{0}".format(block.attention[1])
    assert rows["backbone.embedding.patch"]["asked"] == "{}/{}".format(*bits.patch)
    assert found["weights"] == found["quantized_weights"] > 30_000
    for more in (("--method", "erq"), ("--weight-bits", "3"), ("--exits", "lgvit")):
        assert "compressed already" in str(invoke("what", str(run), *more).exception)


def test_an_older_run_is_shown_too() -> None:
    rows = {row.layer: row for row in maqee.what(OLDER).rows}
    assert rows["backbone.embedding.patch"].got == "float"
    assert {row.asked == row.got for row in rows.values()} == {True}
