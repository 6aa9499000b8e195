"""What a result was made with: versions, hardware, source revision. Stored beside every figure."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "numpy", "safetensors", "transformers", "accelerate", "triton", "onnxruntime", "openvino", "nncf")


def version() -> str:
    """The installed version of maqee, or "source" when it runs from a checkout that is not installed."""
    try:
        return importlib.metadata.version("maqee")
    except importlib.metadata.PackageNotFoundError:
        return "source"


def describe_environment() -> dict[str, Any]:
    """Versions, hardware and git revision as plain JSON values."""
    versions = {"maqee": version(), "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"versions": versions, "hardware": _hardware(), "revision": _revision()}


def _hardware() -> dict[str, Any]:
    import torch  # not above: the version alone must not load it

    hardware: dict[str, Any] = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if torch.cuda.is_available():
        hardware["gpu"] = torch.cuda.get_device_name()
        hardware["cuda"] = torch.version.cuda
    return hardware


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _revision() -> str | None:
    """The commit of the checkout this file lies in, with "-dirty" when it has uncommitted changes."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None
