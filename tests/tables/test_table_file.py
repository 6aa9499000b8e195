"""The file of a table: what it means, and what is wrong with one in the user's words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from maqee.errors import MaqeeError
from maqee.tables.table_file import read_table
from tests.tables.makers import write_table

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "tables").glob("*.yaml"))


def test_what_is_left_out(tmp_path: Path) -> None:
    table = read_table(write_table(tmp_path))
    rtn, maqee = table.rows["rtn"], table.rows["maqee"]
    assert (rtn.chosen, maqee.chosen) == ("default", "searched")
    assert (list(table.seeds_of(rtn)), list(table.seeds_of(rtn, 3))) == ([0, 1], [0, 1, 2])
    assert table.target_row == "rtn"
    config = table.config("rtn", 5)
    assert (config.options.method, config.options.seed, config.options.samples) == ("rtn", 5, 40)
    assert (config.options.quantization.weight_bits, config.options.scored) == (4, 20)
    assert table.config("maqee", 0).search.act_max == 5


def test_rows_differ_from_the_table(tmp_path: Path) -> None:
    rows = {
        "repq": {"method": "repq", "exits": "mlp", "bits": "W5A6", "compress": {"options": {"samples": 50}}},
        "erq": {"method": "erq", "exits": "mlp", "bits": "W4A4", "recovered": 7, "thresholds": 0.5},
        "plain": {"method": "erq", "exits": "mlp", "bits": "W4A4"},
    }
    table = read_table(write_table(tmp_path, rows=rows), ["recovered_seeds=4", "threshold=0.7"])
    repq = table.config("repq", 0).options
    assert (repq.quantization.weight_bits, repq.quantization.act_bits, repq.samples, repq.fit_images) == (5, 6, 50, 16)
    assert table.config("erq", 0).options.recovery_steps == 7
    assert (len(table.seeds_of(table.rows["erq"])), table.rows["erq"].chosen, table.threshold) == (4, 0.5, 0.7)
    assert table.target_row == "plain"  # the first of ERQ that is not trained


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ({"method": "erk", "exits": "mlp"}, "rows"),
        ({"method": "rtn", "exits": "lgvit", "bits": "W4A4"}, "rows.new.exits: Unknown model 'lgvit'"),
        ({"method": "rtn", "exits": "mlp"}, "rows.new.bits: None must be uniform widths such as W4A4, or best."),
        ({"method": "rtn", "exits": "mlp", "bits": "both"}, "'both' must be uniform widths"),
        ({"method": "mptq", "exits": "mlp", "bits": "best"}, "mptq chooses bits of its own"),
        ({"method": "maqee", "exits": "mlp", "bits": "W4A4"}, "'W4A4' must be both or weights"),
        ({"method": "float", "exits": "mlp", "bits": "W4A4"}, "full precision has no bits"),
        ({"method": "float", "exits": "mlp", "thresholds_of": "rtm"}, "did you mean rtn"),
        ({"method": "float", "exits": "mlp", "thresholds_of": "rtn", "thresholds": 0.5}, "give one of them"),
        ({"method": "float", "exits": "mlp", "compress": {"search": {"alpa": 1}}}, "did you mean alpha"),
        ({"method": "float", "exits": "mlp", "threshold": 1}, "unknown key 'threshold'"),
    ],
)
def test_mistakes_in_a_row(tmp_path: Path, row: dict[str, Any], hint: str) -> None:
    rows = {"rtn": {"method": "rtn", "exits": "mlp", "bits": "W4A4"}, "new": row}
    with pytest.raises(MaqeeError, match=r"small\.yaml: ") as error:
        read_table(write_table(tmp_path, rows=rows))
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ({"name": "a/b"}, "names files"),
        ({"target": "rtm"}, "did you mean rtn"),
        ({"target": 1.5}, "target"),
        ({"rows": {}}, "rows"),
        ({"sedes": 3}, "did you mean seeds"),
    ],
)
def test_mistakes_in_the_table(tmp_path: Path, values: dict[str, Any], hint: str) -> None:
    with pytest.raises(MaqeeError, match=r"small\.yaml: ") as error:
        read_table(write_table(tmp_path, **values))
    assert hint in str(error.value)


def test_assignments(tmp_path: Path) -> None:
    path = write_table(tmp_path)
    assert read_table(path, ["models.mlp=elsewhere"]).models == {"mlp": "elsewhere"}
    with pytest.raises(MaqeeError, match="name is a value"):
        read_table(path, ["name.x=1"])


@pytest.mark.parametrize("path", SHIPPED, ids=[path.stem for path in SHIPPED])
def test_shipped_tables_can_be_read(path: Path) -> None:
    assert read_table(path).name == path.stem


def test_the_file_in_the_documents(tmp_path: Path) -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "tables.md").read_text(), flags=re.DOTALL)
    (tmp_path / "table.yaml").write_text(text)
    table = read_table(tmp_path / "table.yaml")
    assert (table.target_row, list(table.rows)) == ("erq", ["erq", "maqee", "maqee-untrained"])
