"""PFPL (https://github.com/burtscher/PFPL), compiled from its sources where --pfpl FOLDER points at them.

It has programs but no library: each source file is one program for one type, one kind of bound and one direction. A few
lines around a file make its encoder or decoder callable in memory. The range pass, which is part of `main`, is
rewritten here. The flags are those of its makefile: contraction to FMA would break its bound.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cusz_core.errors import ParameterError

from .fields import Array

MAX_BYTES = 2147221529
_FLAGS = ["-O3", "-march=native", "-mno-fma", "-ffp-contract=off", "-std=c++17", "-w", "-shared", "-fPIC"]

_COMMON = """
#define main pfpl_program
#include "{source}"
#undef main
#ifdef _OPENMP
#include <omp.h>
static void use_threads(int n) {{ omp_set_num_threads(n); }}
#else
static void use_threads(int) {{}}
#endif
"""

_ENCODER = """
static {type} range_of(const {type}* v, long n) {{
  {type} lo = v[0], hi = v[0];
  #pragma omp parallel for reduction(max: hi) reduction(min: lo)
  for (long i = 1; i < n; i++) {{
    hi = std::max(v[i], hi);
    lo = std::min(v[i], lo);
  }}
  return hi - lo;
}}

extern "C" int bench_encode(const unsigned char* in, int bytes, unsigned char* out,
                            {type} eb, {type} threshold, int threads) {{
  use_threads(threads);
  try {{
    int size = 0;
    {call};
    return size;
  }} catch (...) {{
    return -1;
  }}
}}
"""
_ENCODE = {
    "noa": "h_encode(in, bytes, out, size, eb, threshold, range_of((const {type}*)in, bytes / sizeof({type})))",
    "abs": "h_encode(in, bytes, out, size, eb, threshold)",
    "rel": "h_encode(in, bytes, out, size, eb, threshold)",
}

_DECODER = """
extern "C" int bench_decode(const unsigned char* in, unsigned char* out, int threads) {{
  use_threads(threads);
  try {{
    int size = 0;
    h_decode(in, out, size);
    return size;
  }} catch (...) {{
    return -1;
  }}
}}
"""

Encoder = Callable[[Array, Array, float, float, int], int]
Decoder = Callable[[bytes, Array, int], None]

_folder: Path | None = None


def use(folder: Path) -> None:
    """Sets the folder of the sources."""
    global _folder
    if not (folder / "src" / "f32_abs_comp_cpu.cpp").is_file():
        raise ParameterError(f"{folder} has no src/f32_abs_comp_cpu.cpp: it is not a checkout of PFPL")
    _folder = folder.resolve()


def missing() -> str | None:
    if _folder is None:
        return "not there: --pfpl FOLDER names its sources"
    try:
        _compiler_version()
    except (OSError, subprocess.CalledProcessError):
        return f"there is no compiler {_compiler()} to build it with"
    return None


def version() -> str:
    """A digest of its CPU sources, because they have no version number, and the compiler."""
    assert _folder is not None
    digest = hashlib.sha256()
    for path in sorted([*_folder.glob("src/*_cpu.cpp"), *_folder.glob("src/components/**/h_*.h")]):
        digest.update(path.read_bytes())
    return f"sources {digest.hexdigest()[:12]}, g++ {_compiler_version()}"


def rounded_down(value: float, dtype: np.dtype[Any]) -> float:
    """The largest value of a type that is not above `value`."""
    rounded = dtype.type(value)
    return float(np.nextafter(rounded, dtype.type(0)) if float(rounded) > value else rounded)


@functools.cache
def load(dtype: np.dtype[Any], mode: str, *, openmp: bool) -> tuple[Encoder, Decoder]:
    """Encoder and decoder for a type and a kind of bound: "abs", "noa" (relative to the range), "rel" (to values)."""
    c_type, name = (ctypes.c_float, "f32") if dtype == np.float32 else (ctypes.c_double, "f64")
    c_name = {"f32": "float", "f64": "double"}[name]
    call = _ENCODE[mode].format(type=c_name)
    encoder = _compile(f"{name}_{mode}_comp_cpu.cpp", _ENCODER.format(type=c_name, call=call), openmp).bench_encode
    decoder = _compile(f"{name}_{mode}_decomp_cpu.cpp", _DECODER.format(), openmp).bench_decode
    encoder.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, c_type, c_type, ctypes.c_int]
    decoder.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int]

    def encode(x: Array, archive: Array, bound: float, threshold: float, threads: int) -> int:
        size: int = encoder(x.ctypes.data, x.nbytes, archive.ctypes.data, bound, threshold, threads)
        if size <= 0:
            raise RuntimeError("PFPL refused the field or the bound")
        return size

    def decode(archive: bytes, field: Array, threads: int) -> None:
        if decoder(archive, field.ctypes.data, threads) != field.nbytes:
            raise RuntimeError("PFPL did not decode the archive")

    return encode, decode


def _compile(source: str, wrapper: str, openmp: bool) -> ctypes.CDLL:
    assert _folder is not None
    with tempfile.TemporaryDirectory(prefix="cusz-pfpl-") as folder:
        code, library = Path(folder) / "wrapper.cpp", Path(folder) / "library.so"
        code.write_text(_COMMON.format(source=_folder / "src" / source) + wrapper)
        command = [_compiler(), *_FLAGS, *(["-fopenmp"] if openmp else []), f"-I{_folder / 'src'}"]
        built = subprocess.run([*command, "-o", library, code], capture_output=True, text=True, check=False)
        if built.returncode != 0:
            raise RuntimeError(f"PFPL's {source} could not be compiled: {built.stderr[-300:]}")
        return ctypes.CDLL(str(library))  # stays loaded after its file is gone


def _compiler() -> str:
    return os.environ.get("CXX", "g++")


@functools.cache
def _compiler_version() -> str:
    return subprocess.run([_compiler(), "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
