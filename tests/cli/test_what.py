"""`maqee what`: the table of what is quantized comes from the code, for models of any size."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from maqee.exits import add_exits
from maqee.models import load_backbone, presets, save_backbone
from maqee.quant import QuantSettings, methods, quantize
from maqee.report.layer_table import group_rows
from tests.helpers import invoke


def table(*arguments: str) -> dict[str, dict[str, Any]]:
    result = invoke("what", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return {row["layer"]: row for row in json.loads(result.stdout)["rows"]}


def got(*arguments: str) -> dict[str, str]:
    return {name: row["got"] for name, row in table(*arguments).items()}


@pytest.mark.parametrize(
    ("model", "method"), [*(("test-vit", method) for method in methods.names()), ("test-swin", "repq")]
)
def test_the_narrow_model_tells_the_truth(model: str, method: str) -> None:
    """The same rows as from the real model, fitted to real images."""
    network = load_backbone(model)
    real = quantize(network, torch.randn(2, 3, 32, 32), method, QuantSettings()).table()
    rows = table(model, "--method", method)
    assert [row._asdict() for row in real] == [
        {name: row[name] for name in ("layer", "role", "grid", "asked", "got")} for row in rows.values()
    ]
    assert rows["blocks.0.mlp.fc1"]["weights"] == dict(network.named_parameters())["blocks.0.mlp.fc1.weight"].numel()


@pytest.mark.parametrize("model", ["vit-large", "deit-base-distilled", "swin-base"])
def test_large_models_take_no_time(model: str) -> None:
    start = time.monotonic()
    rows = table(model, "--exits", "lgvit")
    assert time.monotonic() - start < 15
    assert rows["backbone.embedding.patch"]["got"] == "float"
    assert rows["backbone.head.linear"]["got"] == "float"
    assert rows["backbone.blocks.11.mlp.fc2"]["got"] == "4/4"
    dim = getattr(presets[model], "dim")  # noqa: B009 - both kinds of configuration have one
    assert rows["backbone.blocks.0.attn.proj"]["weights"] == dim**2
    assert {row["got"] for name, row in rows.items() if name.startswith("heads.")} == {"4/4", "4x4"}


def test_bits_of_every_part() -> None:
    widths = ("--weight-bits", "3", "--act-bits", "6", "--patch", "4/float", "--classifier", "8/8")
    found = got("test-vit", *widths, "--layer", r"blocks\.0\..*fc=5/5", "--layer", "fc2=float")
    assert found["embedding.patch"] == "4/float"
    assert found["head.linear"] == "8/8"
    assert (found["blocks.1.attn.qkv"], found["blocks.1.attn.attend"]) == ("3/6", "6x6")
    assert (found["blocks.0.mlp.fc2"], found["blocks.1.mlp.fc2"]) == ("5/5", "float")


def test_text_puts_equal_layers_together() -> None:
    result = invoke("what", "test-vit", "--method", "repq")
    assert result.exit_code == 0
    assert "blocks.0-3.attn.qkv" in result.output
    assert "p log-sqrt2" in result.output
    assert "weights (" in result.output
    every = invoke("what", "test-vit", "--method", "repq", "--every-layer")
    assert "blocks.2.attn.qkv" in every.output


def test_grouping_by_hand() -> None:
    row = {"role": "block", "grid": "uniform", "asked": "4/4", "got": "4/4", "weights": 10}
    names = ["blocks.0.fc", "blocks.1.fc", "blocks.3.fc", "head"]
    grouped = group_rows([{**row, "layer": name} for name in names])
    assert [(entry["layer"], entry["layers"], entry["weights"]) for entry in grouped] == [
        ("blocks.0,1,3.fc", 3, 30),
        ("head", 1, 10),
    ]


def test_models_on_disk(tmp_path: Path) -> None:
    backbone = load_backbone("test-vit")
    save_backbone(backbone, tmp_path / "plain")
    add_exits(backbone, "lgvit", positions=(1, 2)).save(tmp_path / "exits")
    assert got(str(tmp_path / "plain")) == got("test-vit")
    stored = got(str(tmp_path / "exits"))
    assert stored["heads.0.expand"] == "4/4"
    again = invoke("what", str(tmp_path / "exits"), "--exits", "lgvit")
    assert again.exit_code == 2
    assert "has exits already" in str(again.exception)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("vit-bse",), "did you mean vit-base"),
        (("test-vit", "--method", "rpq"), "did you mean repq"),
        (("test-vit", "--exits", "lgvt"), "did you mean lgvit"),
        (("test-vit", "--weight-bits", "1"), "2 to 8 bits"),
        (("test-vit", "--patch", "8/16"), "patch: 16"),
        (("test-vit", "--classifier", "x"), "--classifier"),
        (("test-vit", "--layer", "qkv"), "PATTERN=BITS"),
        (("test-vit", "--layer", "(=4"), "no regular expression"),
        (("test-vit", "--layer", "nothing=4"), "matches no layer"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], hint: str) -> None:
    result = invoke("what", *arguments)
    assert result.exit_code == 2
    assert hint in str(result.exception)
