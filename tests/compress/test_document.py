"""docs/compress.md: its code runs, and its commands have the options it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from maqee.compress.folder import SOURCE
from maqee.compress.request import FILE
from maqee.compress.run import PLAN, PREPROCESSING, SEARCH, TRACE
from tests.helpers import invoke, run_python

DOCUMENT = Path(__file__).parents[2] / "docs" / "compress.md"
TEXT = DOCUMENT.read_text()


@pytest.mark.trains
def test_the_code_runs() -> None:
    [snippet] = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(snippet, DOCUMENT.name, "exec"), names)
    assert names["compressed"].plan == names["done"].plan
    assert names["done"].plan.guarantee.n == 360 - 32 - 100
    for name in (PLAN, TRACE, PREPROCESSING, SEARCH, FILE):
        assert (names["run"] / name).is_file()


@pytest.mark.process
def test_the_package_is_called_like_its_function() -> None:
    """Importing a package makes it an attribute of the one above, where the function of the same name was."""
    code = (
        "import maqee\n"
        "one, two = maqee.compress, maqee.compress\n"
        "from maqee.compress import compress\n"
        "for way in (one, two, maqee.compress, compress):\n"
        "    try:\n"
        "        way()\n"
        "    except TypeError as error:\n"
        "        assert 'required positional arguments' in str(error), error\n"
    )
    run_python(code)


def test_options_exist() -> None:
    known = "".join(invoke(verb, "--help").output for verb in ("compress", "search", "diagnose", "baselines"))
    written = set(re.findall(r"--[a-z][a-z-]+", TEXT))
    assert written
    assert {option for option in written if option not in known} == set()


def test_commands_are_written_as_they_are_parsed() -> None:
    for verb in ("compress", "search", "diagnose", "baselines"):
        [help_text] = [invoke(verb, "--help").output]
        for line in re.findall(rf"^    maqee {verb} (.*)", TEXT, flags=re.MULTILINE):
            assert all(option in help_text for option in re.findall(r"--[a-z-]+", line.split("#")[0])), line


def test_every_file_is_explained() -> None:
    for name in (PLAN, TRACE, PREPROCESSING, SEARCH, FILE, SOURCE, "model.safetensors", "config.json"):
        assert f"`{name}`" in TEXT
