"""Kernels compile for a GPU that is not there: the interpreter takes what the compiler would refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import run_python

HEADER = """
import os
os.environ.pop("TRITON_INTERPRET", None)
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def ptx(kernel, types, constants, warps, **more):
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types.get(name, "*fp32") for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs={})
    options = {"num_warps": warps, "num_stages": 3, **more}
    pointers = [i for i, name in enumerate(names) if signature[name].startswith("*")]
    source.attrs = {(i,): [["tt.divisibility", 16]] for i in pointers}  # as memory is that torch gives out
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
"""
LINEAR = """
from maqee.runtime.kernels.linear import _linear

types = {name: "*i32" for name in ("correction", "rests", "sums", "offset", "out_sums")}
types |= {name: "i32" for name in ("rows", "outputs", "out_width")}
types |= {name: "fp32" for name in ("step", "log_step", "zero_share")}
types |= {"left": "tensordesc<i8[128,64]>", "weights": "tensordesc<i8[128,64]>", "out": "tensordesc<i8[128,128]>"}
flags = ("SMALL", "SHORT", "CORRECTED", "GELU", "CODES", "COMPILED")
constants = {name: name in flags for name in (*flags, "RESTS", "AFFINE", "STREAM", "OUT_SUMS", "OFFSETS", "FLAT")}
constants |= dict(SPLIT=128, WIDTH=192, PADDED=128, GRIDS=1, SHARE=128, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64)
constants |= dict(PATCHES=0, TOKENS=0, FRONT=0)
assert "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8" in ptx(_linear, types, constants, 8)
"""
HALVES = """
types |= {"out": "*fp16", "stream": "*fp16"}
constants |= dict(SPLIT=128, WIDTH=128, SHORT=False, GELU=False, CODES=False, STREAM=True)
assert "cvt.rn.satfinite.f16x2.f32" in ptx(_linear, types, constants, 4)
types["stream"] = "*fp32"
assert "cvt.rn.satfinite.f16x2.f32" in ptx(_linear, types, constants | dict(PATCHES=49, TOKENS=50, FRONT=1), 4)
"""
# Four numbers at a time, which the interpreter does not care about.
ROWS = r"""
import re
from maqee.runtime.kernels.patch_codes import _code_patches
from maqee.runtime.kernels.rows import _code_rows

types = {"columns": "*i8", "out": "*i8", "sums": "*i32", "rows": "i32", "offset": "i32"}
types |= {name: "fp32" for name in ("inverse", "epsilon", "low", "high")}
shape = dict(SPLIT=768, WIDTH=768, ORDERED=False, SUMS=True, BLOCK_M=1, BLOCK_N=1024)
constants = shape | dict(CHANNELS=3, HEIGHT=224, ACROSS=14, DOWN=16, RIGHT=16, RUN=16)
assert re.search(r"ld\.global\S*\.v4", ptx(_code_patches, types, constants, 2))
for kind, width in (("*fp32", 4), ("*fp16", 2)):  # in words of four bytes
    found = ptx(_code_rows, types | {"x": kind}, shape | dict(INPUTS=768, NORM=True), 1)
    assert re.search(rf"ld\.global\S*\.v{width}", found)
"""
# Of heads: four numbers at a time again, and bytes that become numbers without a conversion.
HEADS = r"""
from maqee.runtime.kernels.depthwise import _depthwise
from maqee.runtime.kernels.gathering import _gather
from maqee.runtime.kernels.token_rows import _read_tokens

shape |= dict(TOKENS=197, FRONT=1, COUNT=196, ACROSS=14, DOWN=14, STEP=1, INPUTS=768, PARTS=13, PART=16)
for kind, width in (("*fp32", 4), ("*fp16", 2)):
    found = ptx(_read_tokens, types | {"x": kind}, shape | dict(NORM=True, CODES=True, TOTALS=True), 1)
    assert re.search(rf"ld\.global\S*\.v{width}", found)
types = {"epsilon": "fp32", "share": "fp32", "taken": "i32"}
constants = dict(TOKENS=197, DIM=768, SPECIAL=1, NORM=True, PARTS=13, CODE_WIDTH=768, BLOCK_M=16, BLOCK_N=1024)
ptx(_gather, types | {"codes": "*i8"}, constants | dict(ROWS=196, BESIDE=False), 8)
ptx(_gather, types | {"codes": "*i32"}, constants | dict(ROWS=7, BESIDE=False), 4)
ptx(_gather, types | {"x": "*fp16"}, constants | dict(ROWS=0, BESIDE=True), 4)
types = {"codes": "*i8", "out_sums": "*i32", "rest": "fp32", "low": "fp32", "levels": "fp32", "offset": "i32"}
constants = dict(DOWN=14, RIGHT=14, CHANNELS=384, IN_WIDTH=384, OUT_WIDTH=384, COMPILED=True, BLOCK_M=2, BLOCK_N=128)
for pool, kind in ((True, "*i32"), (False, "*i8")):
    flags = dict(POOL=pool, OUT_SUMS=not pool, RESTS=not pool)
    found = ptx(_depthwise, types | {"out": kind}, constants | flags, 1)
    assert "prmt.b32 part, bytes, 0x4B000000, 0x7443" in found
    assert not re.search(r"cvt\.rn\.f32\.s(8|16|32)", found)
"""
ATTENTION = """
from maqee.runtime.kernels.attention import _attention

types = {"qkv": "*i8", "out": "*i8", "out_sums": "*i32", "places": "*i32", "heads": "i32", "offset": "i32"}
rest = "q_rest k_rest v_rest octaves p_first p_second p_low p_high step second_step low high"
types |= {name: "fp32" for name in rest.split()}
constants = dict(KIND=0, TOKENS=50, HEAD=64, QKV_WIDTH=576, OUT_WIDTH=192, CODES=True, OUT_SUMS=False)
constants |= dict(RESTS=True, COMPILED=True, WINDOWS=0, OWN_BIAS=False)
constants |= dict(BLOCK_M=64, BLOCK_N=64, BLOCK_D=64)
assert "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16" in ptx(_attention, types, constants, 4)
constants |= dict(TOKENS=49, HEAD=32, QKV_WIDTH=384, OUT_WIDTH=128, WINDOWS=64, BLOCK_D=32)
for own in (False, True):
    found = ptx(_attention, types, constants | dict(OWN_BIAS=own), 4)
    assert "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16" in found
"""
# Divisions must be PyTorch's, and nothing may be joined that rounds by itself.
SIMULATED = """
from maqee.quant.gpu_rounding import _powers, _uniform

types = {name: "i32" for name in ("first", "last", "shifts", "count")} | {"top": "fp32"}
for kernel in (_uniform, _powers):
    found = ptx(kernel, types, dict(BLOCK=1024), 4)
    assert "div.rn.f32" in found
    assert "div.full" not in found

from maqee.quant.gpu_sums import _scaled_sum

types = {"count": "i32", "columns": "i32"}
constants = dict(PARTS=4, BY_COLUMN=True, BIAS=True, BLOCK=1024)
assert "fma.rn.f32" in ptx(_scaled_sum, types, constants, 4)
assert "fma" not in ptx(_scaled_sum, types, constants, 4, enable_fp_fusion=False)
"""


@pytest.mark.process
def test_compile_to_products_in_tensor_cores(device: object, tmp_path: Path) -> None:
    cache = f"os.environ['TRITON_CACHE_DIR'] = {str(tmp_path)!r}\n"
    run_python("".join((HEADER, cache, LINEAR, HALVES, ROWS, HEADS, ATTENTION, SIMULATED)))
