"""How much memory a process takes that does nothing but run a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from maqee.errors import MaqeeError

_TORCH = """
import sys, torch
from pathlib import Path
from maqee.exits import EarlyExitModel
model = EarlyExitModel.load(Path(sys.argv[1])).eval()
config = model.backbone.config
images = torch.zeros(int(sys.argv[2]), config.channels, *config.image_size)
with torch.inference_mode():
    for _ in range(2):
        model(images)
"""
_EXPORTED = """
import runpy, sys
import numpy as np
Model = runpy.run_path(sys.argv[1] + "/run.py")["Model"]
model = Model(sys.argv[1])
model.about["thresholds"] = [2.0] * len(model.about["thresholds"])  # through every segment
shape = model.about["segments"][0]["shapes"]["images"][1:]
for _ in range(2):
    model.run(np.zeros((int(sys.argv[2]), *shape), np.float32))
"""
_FILE = """
import sys
import numpy as np
path, count = sys.argv[1], int(sys.argv[2])
if path.endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    shape = given.shape
    run = lambda images: session.run(None, {given.name: images})
else:
    import openvino
    run = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    shape = [0, *(size.get_length() for size in list(run.inputs[0].partial_shape)[1:])]
for _ in range(2):
    run(np.zeros((count, *shape[1:]), np.float32))
"""
_TELL = """
import re
print(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
_PROGRAMS = {"torch": _TORCH, "exported": _EXPORTED, "file": _FILE}


def resident_bytes(kind: str, path: Path, batch: int) -> int | None:
    """Resident bytes after two passes; None where the system does not tell.

    Args:
        kind: "torch" for a model's folder, "exported" for what `maqee export` wrote, "file" for a single graph of
            ONNX or OpenVINO with images as its only input.
        path: which.
        batch: images of a pass.
    """
    if not Path("/proc/self/status").is_file():
        return None
    command = [sys.executable, "-c", _PROGRAMS[kind] + _TELL, str(path), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MaqeeError(f"{path} could not be run to measure its memory: {done.stderr.strip().splitlines()[-1]}")
    return 1024 * int(done.stdout.split()[-1])
