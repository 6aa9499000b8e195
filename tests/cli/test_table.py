"""`maqee table` through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from maqee.cli import app
from maqee.io import read_json
from tests.helpers import FIXTURES, invoke
from tests.tables.makers import write_table

ROWS = {
    "lost": {"method": "float", "exits": "lost"},
    "rtn": {"method": "rtn", "exits": "mlp", "bits": "W4A4"},
}
MODELS = {"lost": "nowhere", "mlp": str(FIXTURES / "digits")}


@pytest.mark.trains
def test_a_table_with_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(write_table(tmp_path, rows=ROWS, models=MODELS, target=0.5))
    result = invoke("table", path, "--seeds", "1", "--device", "cpu")
    assert result.exit_code == 1
    assert "failed: lost-seed0" in result.output
    assert "nowhere" in result.output
    assert "Written to results/tables/small.json." in result.output
    values = read_json(tmp_path / "results" / "tables" / "small.json")
    assert ([row["name"] for row in values["rows"]], values["missing"]) == (["rtn"], ["lost"])
    assert (tmp_path / "runs" / "tables" / "small" / "models").is_dir()
    fine = invoke("table", path, "--seeds", "1", "--device", "cpu", "--only", "rtn", "--json")
    assert fine.exit_code == 0
    assert '"table": "small"' in fine.output
    shown = invoke("table", path, "--render", "markdown")
    assert shown.output == invoke("table", "results/tables/small.json", "--render", "markdown").output
    assert "| rtn | W4A4 | rtn | mlp | 0.8 | no | 1 |" in shown.output
    assert invoke("table", path, "--render", "latex", "--out", "table.tex").exit_code == 0
    assert (tmp_path / "table.tex").read_text().startswith(r"\begin{table}")


def test_mistakes(tmp_path: Path) -> None:
    path = str(write_table(tmp_path))
    for more, hint in (
        (("--only", "rtm"), "did you mean rtn"),
        (("--set", "seeds"), "is no key=value"),
        (("--render", "pdf"), "does not exist"),
        (("--runs", path), "small.yaml"),
    ):
        result = invoke("table", path, *more, "--out", str(tmp_path / "out.json"))
        assert result.exit_code in (1, 2), more
        assert hint in f"{result.exception} {result.output}", more
    assert "does not exist" in str(invoke("table", str(tmp_path / "none.yaml")).exception)


@pytest.mark.parametrize(
    ("words", "address"),
    [
        (["t.yaml"], None),
        (["t.yaml", "--ray"], "local"),
        (["t.yaml", "--ray", "--jobs", "2"], "local"),
        (["t.yaml", "--ray", "auto"], "auto"),
        (["--ray=10.0.0.1:6379", "t.yaml"], "10.0.0.1:6379"),
    ],
)
def test_ray_may_stand_alone(words: list[str], address: str | None) -> None:
    root: Any = typer.main.get_command(app)
    context = root.commands["table"].make_context("table", list(words))
    assert context.params["ray"] == address
    assert str(context.params["file"]) == "t.yaml"
