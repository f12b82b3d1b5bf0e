"""QoZ 2 (https://github.com/szcompressor/QoZ), compiled from its sources where --qoz FOLDER points at them.

It is a library of C++ templates over zstd, which a few lines make callable. By default it runs at level 3 of those that
its program `qoz` has (-q); level 4 is what its paper reports. Compiling takes a minute; the library is kept beside the
other compressors.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import subprocess
import weakref
from pathlib import Path

import numpy as np
import runner

from cusz_core.errors import ParameterError

from .fields import Array

_FLAGS = ["-O3", "-DNDEBUG", "-std=c++17", "-w", "-shared", "-fPIC"]  # as its CMakeLists.txt builds a release
_CODE = """
#include <array>
#include <vector>
#include <cstring>
#include <string>
#include "QoZ/api/sz.hpp"

template <class T> static void* encode(const void* values, int ndim, const size_t* shape, double eb, int level,
                                        size_t* bytes) {
  QoZ::Config conf;
  conf.QoZ = level;
  conf.setDims(shape, shape + ndim);
  conf.cmprAlgo = QoZ::ALGO_INTERP_LORENZO;
  conf.errorBoundMode = QoZ::EB_ABS;
  conf.absErrorBound = eb;
  conf.verbose = false;
  return SZ_compress<T>(conf, static_cast<const T*>(values), *bytes);
}

template <class T> static void decode(char* archive, size_t bytes, void* values) {
  QoZ::Config conf;
  conf.verbose = false;
  T* out = static_cast<T*>(values);
  SZ_decompress<T>(conf, archive, bytes, out);
}

extern "C" void* bench_encode(int is_double, const void* values, int ndim, const size_t* shape, double eb,
                              int level, size_t* bytes) {
  return is_double ? encode<double>(values, ndim, shape, eb, level, bytes)
                   : encode<float>(values, ndim, shape, eb, level, bytes);
}
extern "C" void bench_decode(int is_double, char* archive, size_t bytes, void* values) {
  is_double ? decode<double>(archive, bytes, values) : decode<float>(archive, bytes, values);
}
extern "C" void bench_free(void* archive) { delete[] static_cast<char*>(archive); }
"""

_folder: Path | None = None


def use(folder: Path) -> None:
    """Sets the folder of the sources."""
    global _folder
    if not (folder / "include/QoZ/api/sz.hpp").is_file():
        raise ParameterError(f"{folder} has no include/QoZ/api/sz.hpp: it is not a checkout of QoZ")
    _folder = folder.resolve()


def missing() -> str | None:
    return None if _folder else "not there: --qoz FOLDER names its sources"


def version() -> str:
    """Its version, and a digest of its headers."""
    assert _folder is not None
    (number,) = re.findall(r"project\(QoZ VERSION ([\d.]+)\)", (_folder / "CMakeLists.txt").read_text())
    return f"QoZ {number}, sources {_digest()[:12]}"


@functools.cache
def _digest() -> str:
    assert _folder is not None
    digest = hashlib.sha256()
    for path in sorted((_folder / "include").rglob("*.hpp")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _library() -> ctypes.CDLL:
    assert _folder is not None
    key = hashlib.sha256(f"{_digest()}{_CODE}{_FLAGS}".encode()).hexdigest()
    library = runner.PEERS / f"libqoz-{key[:16]}.so"
    if not library.exists():
        built = library.with_suffix(f".{os.getpid()}")
        command = [os.environ.get("CXX", "g++"), *_FLAGS, f"-I{_folder / 'include'}", "-x", "c++", "-", "-lzstd"]
        done = subprocess.run([*command, "-o", built], input=_CODE, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"QoZ could not be compiled: {done.stderr[-300:]}")
        built.rename(library)
    loaded = ctypes.CDLL(str(library))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    loaded.bench_encode.restype, loaded.bench_decode.restype, loaded.bench_free.restype = pointer, None, None
    loaded.bench_encode.argtypes = [ctypes.c_int, pointer, ctypes.c_int, ctypes.POINTER(size), ctypes.c_double,
                                    ctypes.c_int, ctypes.POINTER(size)]  # fmt: skip
    loaded.bench_decode.argtypes = [ctypes.c_int, ctypes.c_char_p, size, pointer]
    loaded.bench_free.argtypes = [pointer]
    return loaded


def encode(x: Array, eb: float, level: int) -> memoryview:
    """An archive of a C-contiguous field, in memory that QoZ allocated and that is freed with it."""
    library, size = _library(), ctypes.c_size_t()
    shape = (ctypes.c_size_t * x.ndim)(*x.shape)
    address = library.bench_encode(x.dtype == np.float64, x.ctypes.data, x.ndim, shape, eb, level, ctypes.byref(size))
    if not address:
        raise RuntimeError("QoZ returned nothing")
    memory = (ctypes.c_char * size.value).from_address(address)
    weakref.finalize(memory, library.bench_free, address)
    return memoryview(memory)


def decode(archive: bytes, field: Array) -> Array:
    """Fills `field`, which has the type and shape of the one that was compressed."""
    _library().bench_decode(field.dtype == np.float64, archive, len(archive), field.ctypes.data)
    return field
