"""The benchmarks of engines: every row is there, and decisions are counted."""

from __future__ import annotations

from pathlib import Path

import onnx
import openvino
import pytest
import torch

from maqee.bench.decisions import bench_decisions
from maqee.bench.engine_speed import bench_engines
from maqee.bench.resident import resident_bytes
from maqee.errors import MaqeeError
from maqee.report.engine_table import decisions_line
from maqee.runtime.export.graph_writer import GraphWriter
from maqee.runtime.openvino_models import read_graph
from tests.helpers import run_python
from tests.runtime.makers import small_model, write_compressed_run

EVERY_ROW = """
from maqee.bench.engine_speed import BASE, bench_engines
from maqee.report.engine_table import engine_table

found = bench_engines("test-vit", batch=(1, 2), mean_exit=3, patch="8/8", images=4, memory=False, repeats=1)
nncf = "OpenVINO int8 by NNCF, full depth"
names = [row.engine for row in found.rows if row.batch == 1]
assert names[0] == BASE
assert [row.engine for row in found.rows if row.batch == 2] == names
assert {"ONNX Runtime integer codes, exits", "OpenVINO integer codes, exits"} < set(names)
assert {"ONNX Runtime dynamic int8, full depth", "ONNX Runtime static int8, full depth"} < set(names)
exits = {row.mean_exit for row in found.rows if row.engine.endswith("exits")}
assert len(exits) == 1, "engines that take other exits are not comparable"
assert all(row.images_per_second > 0 for row in found.rows)
assert found.rows[0].speedup == 1
assert (nncf in names) != (nncf in found.missing), "it has a row, or a word why it has none"
table = engine_table(found.to_json())
assert len(table.splitlines()) == 1 + 2 * (1 + len(names) + len(found.missing))
assert table.count(nncf) == 2
assert "rtn, W4A4 bits, patch 8/8, 4 images" in table
"""


@pytest.mark.slow
@pytest.mark.process
def test_every_engine_has_a_row_for_every_batch() -> None:
    """In a process of its own: after so many engines in one process, a signal that is caught ends it (unexplained)."""
    run_python(EVERY_ROW)


@pytest.mark.process
def test_a_file_takes_memory_in_a_process_of_its_own(tmp_path: Path) -> None:
    graph = GraphWriter()
    images = graph.add_input("images", ["batch", 1, 4, 4])
    graph.add_output("y", graph.node("Relu", images), ["batch", 1, 4, 4])
    model = graph.model("test")
    onnx.save(model, tmp_path / "some.onnx")
    openvino.save_model(read_graph(model), tmp_path / "some.xml")
    for name in ("some.onnx", "some.xml"):
        taken = resident_bytes("file", tmp_path / name, 2)
        assert taken is None or taken > 2**20
    with pytest.raises(MaqeeError, match="could not be run to measure its memory"):
        resident_bytes("file", tmp_path / "none.onnx", 2)


def test_a_batch_of_more_images_than_there_are() -> None:
    with pytest.raises(MaqeeError, match=r"batch: \[1, 8\] must be from 1 to the number of images, 4"):
        bench_engines("test-vit", batch=(1, 8), images=4)


def test_decisions_are_those_of_the_simulation(tmp_path: Path) -> None:
    images = torch.randn(24, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    folder, _ = write_compressed_run(tmp_path / "run", small_model(), images)
    found = bench_decisions(folder, images=40, data="digits", show=False)
    assert found.layers_agree
    assert found.same_exit >= found.same >= 39  # one may lie at a threshold
    assert f"40 images: {found.same} take the same exit" in decisions_line(found.to_json())
    with pytest.raises(MaqeeError, match="choose onnxruntime or openvino"):
        bench_decisions(folder, engine="torch")
