"""The README: its quick start runs, its commands and links exist, and its figures are those of saved results."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from maqee.io import read_json
from tests.helpers import invoke

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "results" / "README.md", *(ROOT / "docs").glob("*.md")])


def blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(block: str) -> list[list[str]]:
    """The commands of maqee in a block of shell, without comments."""
    lines = block.replace("\\\n", " ").split("\n")
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("maqee ")]


@pytest.mark.trains
def test_the_quick_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell, python = blocks("sh")[0], blocks("python")[0]
    assert len([line for line in (shell + python).split("\n") if line]) <= 10
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "fixtures").symlink_to(ROOT / "tests" / "fixtures")
    monkeypatch.chdir(tmp_path)
    for command in commands(shell):
        result = invoke(*command)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "runs" / "cheap" / "report.html").is_file()
    assert (tmp_path / "runs" / "cheap" / "README.md").is_file()
    capsys.readouterr()
    exec(compile(python, "README.md", "exec"), {})
    lines = capsys.readouterr().out.strip().split("\n")
    assert len(lines) == 4
    assert all(re.fullmatch(r"\d left after block [124]", line) for line in lines)


def test_every_row_has_a_command_with_options_that_exist() -> None:
    block = blocks("sh")[1]
    rows = re.findall(r"^\| (\d) \|", TEXT, flags=re.MULTILINE)
    assert rows == list("123456")
    numbered = " ".join(re.findall(r"^# (\d.*)$", block, flags=re.MULTILINE))
    assert all(re.search(rf"\b{row}\b", numbered) for row in rows)
    known = {name: invoke(name, "--help").output for name in ("compress", "table")}
    for command in commands(block):
        assert all(option in known[command[0]] for option in command if option.startswith("--")), command


# Of each row of the table that is of one run: the file, and where in it the policy is.
ROWS: dict[int, tuple[str, tuple[str | int, ...]]] = {
    2: ("throughput/vit-small-bops.json", ("plan",)),
    5: ("joint/camvid-vit-small.json", ("plan",)),
    6: ("maqee/bccd-yolos-small-recovered.json", ("plan",)),
}


@pytest.mark.parametrize("number", ROWS)
def test_figures_are_those_of_the_files(number: int) -> None:
    name, place = ROWS[number]
    found: Any = read_json(ROOT / "results" / name)
    metric = found["metric"]
    for key in place:
        found = found[key]
    check_row(number, found[metric], found["mean_exit"], found["share_of_full_precision"])


@pytest.mark.parametrize(
    ("number", "table", "name"),
    [(1, "vit-small", "maqee"), (3, "vit-tiny", "maqee"), (4, "vit-tiny", "maqee-untrained")],
)
def test_figures_are_those_of_the_table(number: int, table: str, name: str) -> None:
    rows = {row["name"]: row for row in read_json(ROOT / "results" / "tables" / f"cifar100-{table}.json")["rows"]}
    means = {key: rows[name][key]["mean"] for key in ("accuracy", "mean_exit", "bops")}
    check_row(number, means["accuracy"], means["mean_exit"], means["bops"] / rows["float"]["bops"]["mean"])
    assert rows[name]["seeds"] == 3


@pytest.mark.parametrize(
    ("line", "table", "names"),
    [
        ("ViT-Ti, no training", "cifar100-vit-tiny", ("maqee-untrained", "best-uniform", "erq-lgvit")),
        ("ViT-S, no training", "cifar100-vit-small", ("maqee-untrained", "best-uniform", "erq-lgvit")),
        ("Swin of 24 blocks, no training", "cifar100-swin", ("maqee-untrained", "best-uniform", "erq-lgvit")),
        ("ViT-Ti, 1,200 steps", "cifar100-vit-tiny", ("maqee", "best-uniform-trained", "erq-trained")),
        ("ViT-S, 1,200 steps", "cifar100-vit-small", (None, "best-uniform-trained")),
        ("Swin of 24 blocks, 1,200 steps", "cifar100-swin", ("maqee", "best-uniform-trained")),
        ("ViT-Ti on CamVid, no training", "camvid-vit-tiny", ("maqee-untrained", "best-uniform", "erq")),
        ("ViT-Ti on CamVid, 100 steps", "camvid-vit-tiny", ("maqee", "best-uniform-trained", "erq-trained")),
    ],
)
def test_uniform_bits_beside_them(line: str, table: str, names: tuple[str | None, ...]) -> None:
    rows = {row["name"]: row for row in read_json(ROOT / "results" / "tables" / f"{table}.json")["rows"]}
    [written] = re.findall(rf"^\| {line} \|.*$", TEXT, flags=re.MULTILINE)
    for cell, name in zip(written.strip("|").split("|")[1:], names, strict=False):
        if name is not None:
            mean, deviation = (100 * rows[name]["accuracy"][key] for key in ("mean", "std"))
            assert f"{mean:.1f} %" in cell
            assert f"(± {deviation:.1f})" in cell


def check_row(number: int, accuracy: float, mean_exit: float, share: float) -> None:
    """The figures that the table's row says, as far as it says them."""
    [row] = re.findall(rf"^\| {number} \|.*$", TEXT, flags=re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert f"{accuracy:.1%}".replace("%", " %") in cells[3]
    assert any(near(mean_exit, value, 0.1) for value in re.findall(r"[\d.]+", cells[5]))
    assert any(near(100 * share, value, 0.1) for value in re.findall(r"[\d.]+", cells[6]))


@pytest.mark.parametrize(
    ("device", "file", "chosen"),
    [
        ("GPU", "vit-small.json", ("o/small-exec@triton:0.8", "o/vit-small@torch:0.7", "o/vit-small@torch")),
        ("CPU", "vit-tiny-cpu.json", ("runs/bops@openvino:0.7", "runs/float@torch:0.7", "runs/float@torch")),
    ],
)
def test_executed_accuracy_and_speed(device: str, file: str, chosen: tuple[str, str, str]) -> None:
    """The rows of accuracy and speed are those of the files: low bits with exits, exits alone, full depth."""
    rows = {row["name"]: row for row in read_json(ROOT / "results" / "throughput" / file)["rows"]}
    [line] = re.findall(rf"^\| accuracy and speed of whole models on a {device} \|.*$", TEXT, flags=re.MULTILINE)
    both, alone, full = (rows[name] for name in chosen)
    for row in (both, alone, full):
        assert f"{100 * row['accuracy']:.1f} %" in line
    assert f"{both['ratio']:.2f} times " in line
    assert f"{alone['ratio']:.2f} times |" in line


def near(value: float, written: str, step: float) -> bool:
    return abs(value - float(written)) < step


def test_the_commands_document() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    named = set(re.findall(r"`maqee ([a-z]+)", text)) | set(re.findall(r"`maqee ([a-z]+)", TEXT))
    assert {"demo", "train", "eval", "cost", "bench", "ls", "report"} <= named
    for command in named:
        assert invoke(command, "--help").exit_code == 0, command


@pytest.mark.slow
def test_python_of_the_commands_document() -> None:
    [snippet] = blocks("python", (ROOT / "docs" / "commands.md").read_text())
    exec(compile(snippet, "commands.md", "exec"), {})


def slugs(document: Path) -> set[str]:
    """What links to headings call them."""
    found = re.findall(r"^#+ (.*)$", document.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for link, heading in re.findall(r"\]\(([^)#:]*)#?([^)]*)\)", document.read_text()):
        target = document.parent / link if link else document
        assert target.exists(), link
        assert not heading or heading in slugs(target), f"{link}#{heading}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_are_whole(document: Path) -> None:
    """Every row of a table has as many cells as its head: a blank line or a stray bar breaks it on the page."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        lines = table.strip().split("\n")
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(counts) == 1, lines[0]
        assert re.fullmatch(r"\|(?: ?:?-+:? ?\|)+", lines[1]), lines[0]


def test_every_result_has_a_command() -> None:
    listed = (ROOT / "results" / "README.md").read_text()
    folders = {path.parent.name for path in (ROOT / "results").rglob("*.json")}
    assert all(f"`{folder}/" in listed or f"`{folder}-" in listed for folder in folders)
