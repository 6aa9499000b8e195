"""docs/compress.md: its code runs, and its commands have the options it names."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from maqee.apq import Budget, SearchOptions
from maqee.compression import CompressOptions, RecoverySettings, RiskOptions
from maqee.compression.compress_config import CompressConfig, read_compress_config
from maqee.quant import QuantSettings
from maqee.runs import CARD, EXAMPLES, PAGE, PLAN, PREPROCESSING, REQUEST, SEARCH, SOURCE, TRACE
from maqee.training.recipe import AugmentSection
from tests.helpers import invoke

DOCUMENT = Path(__file__).parents[2] / "docs" / "compress.md"
TEXT = DOCUMENT.read_text()
VERBS = ("compress", "search", "diagnose", "baselines", "envelope")


def test_the_code_runs() -> None:
    [snippet] = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(snippet, DOCUMENT.name, "exec"), names)
    assert names["compressed"].plan == names["done"].plan
    assert names["done"].plan.guarantee.n == 360 - 32 - 100
    for name in (PLAN, TRACE, PREPROCESSING, SEARCH, REQUEST):
        assert (names["run"] / name).is_file()


def test_options_exist() -> None:
    known = "".join(invoke(verb, "--help").output for verb in (*VERBS, "predict", "profile"))
    written = set(re.findall(r"--[a-z][a-z-]+", TEXT))
    assert written
    assert {option for option in written if option not in known} == set()


def test_commands_are_written_as_they_are_parsed() -> None:
    for verb in VERBS:
        [help_text] = [invoke(verb, "--help").output]
        for line in re.findall(rf"^    maqee {verb} (.*)", TEXT, flags=re.MULTILINE):
            assert all(option in help_text for option in re.findall(r"--[a-z-]+", line.split("#")[0])), line


def test_every_file_is_explained() -> None:
    for name in (
        PLAN,
        TRACE,
        PREPROCESSING,
        SEARCH,
        REQUEST,
        SOURCE,
        EXAMPLES,
        PAGE,
        CARD,
        "model.safetensors",
        "config.json",
    ):
        assert f"`{name}`" in TEXT


def test_every_option_is_listed_with_its_default(tmp_path: Path) -> None:
    [listed] = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)
    (tmp_path / "all.yaml").write_text(listed)
    assert read_compress_config(tmp_path / "all.yaml") == CompressConfig()
    values = yaml.safe_load(listed)
    for section, kind in (("budget", Budget), ("search", SearchOptions), ("options", CompressOptions)):
        assert list(values[section]) == [entry.name for entry in fields(kind)]
    options = values["options"]
    assert list(options["quantization"]) == [entry.name for entry in fields(QuantSettings)]
    assert list(options["recovery"]) == [entry.name for entry in fields(RecoverySettings)]
    for name in (*AugmentSection.model_fields, *(entry.name for entry in fields(RiskOptions))):
        assert re.search(rf"(augment|risk): null # .*\b{name}\b", listed), name
