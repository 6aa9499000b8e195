"""A folder that runs a model without maqee: a file a segment, what is to be known about them, and a short program."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maqee.errors import MaqeeError
from maqee.io import write_atomically, write_json, write_text
from maqee.registry import Registry
from maqee.runtime.loading import load
from maqee.runtime.ready import ReadyModel
from maqee.values import plain

if TYPE_CHECKING:
    import onnx

MANIFEST, RUNNER = "manifest.json", "run.py"
FORMAT, VERSION = "maqee-export", 1

Save = Callable[["onnx.ModelProto", Path], list[Path]]  # a graph to a path without its ending; gives the files


@dataclass(frozen=True)
class ExportFormat:
    """A way to store graphs.

    Attributes:
        packages: what writes them.
        extra: of maqee, which installs these.
        packed: whether weights have no more bits than their codes.
        save: writes a graph to a path without its ending; gives the files, the one to open first.
    """

    packages: tuple[str, ...]
    extra: str
    packed: bool
    save: Save


formats: Registry[ExportFormat] = Registry("export format")


@dataclass(frozen=True)
class Export:
    """What was written.

    Attributes:
        folder: where.
        format: "onnx" or "openvino".
        files: their names and sizes in bytes.
    """

    folder: Path
    format: str
    files: dict[str, int]

    @property
    def bytes(self) -> int:
        """All files together."""
        return sum(self.files.values())

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values: dict[str, Any] = plain(self)
        return {**values, "folder": str(self.folder), "bytes": self.bytes}


def export(run: str | Path | ReadyModel, out: str | Path, format: str = "onnx", stage: str | None = None) -> Export:
    """Write a model as a folder that runs without maqee: `python DIR/run.py picture.jpg`.

    Exits that the model's policy closes are not in it; a trained run, which has no policy, is exported at full depth.

    Args:
        run: a folder of `maqee compress`, `maqee train`, ..., or what `maqee.load` made of one, with engine "torch".
        out: the folder to write. The manifest comes last: a folder without one is not finished.
        format: "onnx", or "openvino" for files of its own.
        stage: of a trained run, the stage to export; the last one when left out.
    """
    chosen, folder = formats[format], Path(out)
    if missing := [package for package in chosen.packages if find_spec(package) is None]:
        raise MaqeeError(f"Export to {format} needs {missing[0]}: pip install 'maqee[{chosen.extra}]'.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())) and not (folder / MANIFEST).is_file():
        raise MaqeeError(f"{folder} exists and was not exported by maqee: give another folder.")
    model = run if isinstance(run, ReadyModel) else load(run, stage=stage)
    from maqee.runtime.export.segment_files import segment_graphs

    (folder / MANIFEST).unlink(missing_ok=True)
    segments, written = [], []
    for number, segment in enumerate(segment_graphs(model.model, chosen.packed, model.policy), start=1):
        graph = segment.model.graph
        files = chosen.save(segment.model, folder / f"segment_{number}")
        written += files
        segments.append(
            {
                "file": files[0].name,
                "sha256": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
                "block": segment.block,
                "inputs": [found.name for found in graph.input],
                "outputs": [found.name for found in graph.output],
                "shapes": {found.name: _shape(found) for found in (*graph.input, *graph.output)},
            }
        )
    write_text(folder / RUNNER, (Path(__file__).parent / "run_pictures.py").read_text(encoding="utf-8"))
    write_json(folder / MANIFEST, {**_about(model), "segments": segments})
    names = [*written, folder / RUNNER, folder / MANIFEST]
    return Export(folder, format, {file.name: file.stat().st_size for file in names})


def _about(model: ReadyModel) -> dict[str, Any]:
    preprocessing: dict[str, Any] = plain(dataclasses.asdict(model.preprocessing))
    return {
        "format": FORMAT,
        "version": VERSION,
        "task": model.task_name,
        "targets": model.task.targets,
        "classes": list(model.classes),
        "thresholds": [model.policy.thresholds[index] for index in model.policy.open],  # of all segments but the last
        "preprocessing": preprocessing,
        "depth": model.model.backbone.depth,
        "bits": None if model.compression is None else model.plan.bits.to_json(),
    }


def _shape(found: onnx.ValueInfoProto) -> list[int | str]:
    return [size.dim_param or size.dim_value for size in found.type.tensor_type.shape.dim]


def _save_onnx(graph: onnx.ModelProto, path: Path) -> list[Path]:
    import onnx

    onnx.checker.check_model(graph, full_check=True)
    target = path.with_suffix(".onnx")
    data = graph.SerializeToString(deterministic=True)
    write_atomically(target, lambda temporary: _write(temporary, data))
    return [target]


def _save_openvino(graph: onnx.ModelProto, path: Path) -> list[Path]:
    import openvino

    from maqee.runtime.openvino_models import read_graph

    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / path.with_suffix(".xml").name
        openvino.save_model(read_graph(graph), source, compress_to_fp16=False)
        for ending in (".xml", ".bin"):
            made = source.with_suffix(ending)
            write_atomically(path.with_suffix(ending), lambda temporary, made=made: _copy(made, temporary))  # type: ignore[misc]
    return [path.with_suffix(".xml"), path.with_suffix(".bin")]


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _copy(source: Path, path: Path) -> None:
    shutil.copyfile(source, path)


formats.register("onnx")(ExportFormat(("onnx",), "onnx", packed=True, save=_save_onnx))
formats.register("openvino")(ExportFormat(("onnx", "openvino"), "openvino", packed=False, save=_save_openvino))
