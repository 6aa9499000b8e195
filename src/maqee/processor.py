"""Reduced precision and bytes, on processors that promise more than they keep.

Some virtual machines report Intel's AMX but stop a program that uses it with an illegal instruction (SIGILL), and
oneDNN's bfloat16 kernels use it wherever it is reported. Such a stop cannot be caught, so it is tried in a child
process first. It is the same with products of bytes; and where a processor has no instructions for these, oneDNN's are
slow, and wrong where sums of two products exceed 16 bits.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.backends import mkldnn

from maqee.errors import MaqeeError

logger = logging.getLogger(__name__)

VARIABLE, WITHOUT_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
SECONDS = 120  # more than any machine needs to load torch and multiply two small matrices
TRIAL = """
import torch
layer, images = torch.nn.Linear(128, 128), torch.randn(64, 128)
with torch.autocast("cpu", torch.bfloat16):
    layer(images).sum().backward()
heads = torch.randn(2, 4, 64, 32, dtype=torch.bfloat16)
torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
torch.nn.functional.conv2d(torch.randn(2, 3, 32, 32).bfloat16(), torch.randn(64, 3, 16, 16).bfloat16(), stride=16)
"""

BYTES_TRIAL = (
    "import torch; torch._int_mm(torch.ones(64, 256, dtype=torch.int8), torch.ones(256, 64, dtype=torch.int8))"
)


def check_reduced_precision(precision: str, device: torch.device) -> None:
    """Make sure that work in this precision does not end the process: to be called before the first matrix product.

    Only bfloat16 on a processor can do that. Looked at once a process.
    """
    if precision == "bf16" and device.type == "cpu":
        check_bfloat16((sys.executable, "-c", TRIAL), Path("/proc/cpuinfo"))


@cache
def check_bfloat16(command: tuple[str, ...], cpuinfo: Path) -> None:
    """Try bfloat16 in a child; if the child dies, keep oneDNN from AMX in this process and its children.

    oneDNN reads its environment variable at its first matrix product; if that is over, there is an error with the
    remedy. A user who has set the variable is left alone.

    Args:
        command: the child.
        cpuinfo: where the processor tells what it can do.
    """
    if VARIABLE in os.environ or not reports_amx(cpuinfo):
        return
    died = _signal_of(command)
    if died is None:
        return
    os.environ[VARIABLE] = WITHOUT_AMX
    if "AMX" in instructions_in_use():
        del os.environ[VARIABLE]  # or the next call would take it for the user's wish
        raise MaqeeError(
            f"bfloat16 ends in {died} on this processor, and it is too late to avoid it in this process: "
            f"set {VARIABLE}={WITHOUT_AMX} in the environment and start again, or use float32."
        )
    logger.warning("bfloat16 ends in %s on this processor: going on with %s=%s.", died, VARIABLE, WITHOUT_AMX)


@cache
def multiplies_bytes() -> bool:
    """Whether products of bytes with int32 sums are exact and quick in this process: if oneDNN has them."""
    instructions = instructions_in_use()
    if "DL Boost" not in instructions:  # oneDNN's name for them, VNNI elsewhere
        return False
    return "AMX" not in instructions or _signal_of((sys.executable, "-c", BYTES_TRIAL)) is None


def reports_amx(cpuinfo: Path) -> bool:
    """Whether the processor claims to have AMX; False where the file does not exist."""
    if not cpuinfo.is_file():
        return False
    flags = {flag for line in cpuinfo.read_text().splitlines() if line.startswith("flags") for flag in line.split()}
    return "amx_tile" in flags


@cache  # it is said only once
def instructions_in_use() -> str:
    """The instruction set that oneDNN has settled for in this process, in its own words; it settles now if not before.

    torch has no function for that; oneDNN says it in the first line of its log, which goes to standard output.
    """
    sys.stdout.flush()
    ours = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with torch.no_grad(), mkldnn.verbose(mkldnn.VERBOSE_ON):
                F.conv2d(torch.zeros(8, 3, 64, 64), torch.zeros(64, 3, 16, 16), stride=16)
        finally:
            os.dup2(ours, 1)
            os.close(ours)
        file.seek(0)
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.split("isa:", 1)[1] for line in lines if "isa:" in line), "")


def _signal_of(command: tuple[str, ...]) -> str | None:
    """Run a child; the name of the signal that killed it, or None."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no child, no verdict
        return None
    return signal.Signals(-done.returncode).name if done.returncode < 0 else None
