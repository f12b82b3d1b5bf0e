"""The compressors that are measured, each with the same small interface.

Every adapter takes the shortest path from Python into its library, and writes into given buffers wherever the library
allows it. A compressor whose package is not installed says so, and is skipped.
"""

from __future__ import annotations

import abc
import ctypes
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import math
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import cusz_core

from . import pfpl, qoz
from .fields import Array

Mode = Literal["abs", "rel", "pw_rel", "psnr"]

# Compressors with a relative bound compute the range of an f32 field in single precision, which may round up. They get
# a slightly smaller bound, so that none is blamed for the last bit of the range.
_REL_MARGIN = 1 - 2.0**-22


@dataclasses.dataclass(frozen=True)
class Task:
    """The task for a compressor.

    Attributes:
        x: the field, C-contiguous.
        mode, eb: the bound as requested, "abs", "rel" or "pw_rel"; our tools also take "psnr".
        eb_abs: the absolute bound that results; NaN in mode "pw_rel".
        plain: the field has neither fill values nor NaN nor infinities, so that every tool finds the same range in it.
        fill: the finite value that stands for "no data".
        threads: number of threads to use.
    """

    x: Array
    mode: Mode
    eb: float
    eb_abs: float
    plain: bool
    fill: float | None = None
    threads: int = 1

    @property
    def own_relative_bound(self) -> float | None:
        """The relative bound for a tool that computes the range itself; None if it needs `eb_abs`."""
        if self.mode != "rel" or not self.plain:
            return None
        return self.eb * _REL_MARGIN if self.x.dtype == np.float32 else self.eb


class Buffers:
    """Memory for archives and decompressed fields, which all tools share in turn."""

    def __init__(self, x: Array) -> None:
        self.archive: NDArray[np.uint8] = np.empty(x.nbytes + x.nbytes // 4 + 65536, np.uint8)
        self.field: Array = np.empty_like(x)


class Codec(abc.ABC):
    """One tool, set up for one task."""

    def __init__(self, task: Task, buffers: Buffers) -> None:
        self.task, self.x, self.buffers = task, task.x, buffers

    @abc.abstractmethod
    def compress(self) -> Any:
        """The archive, as an object that holds its bytes; valid until the next call."""

    @abc.abstractmethod
    def decompress(self, archive: bytes) -> Array:
        """The field; valid until the next call."""


@dataclasses.dataclass(frozen=True)
class Tool:
    """A compressor.

    Attributes:
        name: in tables and for --tools.
        codec: its adapter.
        package: the distribution that contains it; "" for none.
        module: the module that must be importable.
        bound: what it promises.
        timed: what its times include.
        ndims: numbers of dimensions that it takes.
        max_threads: of compression; `timed` says how many threads decompression uses.
        may_crash: it is first tried in a separate process.
        is_pointwise: it also takes bounds relative to every value.
    """

    name: str
    codec: Callable[[Task, Buffers], Codec]
    package: str
    module: str
    bound: str
    timed: str
    ndims: tuple[int, ...] = (1, 2, 3, 4)
    max_threads: int = 1
    may_crash: bool = False
    is_pointwise: bool = False

    def missing(self) -> str | None:
        """Why it cannot be used here, or None."""
        try:
            importlib.import_module(self.module)
        except Exception as error:  # a broken package must not end the measurement of the others
            found = importlib.util.find_spec(self.module.split(".")[0]) is not None
            return f"cannot be imported: {error}" if found else "not installed"
        return None

    def version(self) -> str:
        return f"{self.package} {importlib.metadata.version(self.package)}"

    def refuses(self, x: Array) -> str | None:
        """Why it does not accept a field, or None."""
        return None if x.ndim in self.ndims else f"{x.ndim}-D fields are not supported"


# -------------------------------------------------------------------------------------------------------- ours


class _Cusz(Codec):
    predictor: cusz_core.parameters.Predictor = "lorenzo"

    def compress(self) -> Any:
        return cusz_core.compress(
            self.x,
            self.task.eb,
            self.task.mode,
            fill=self.task.fill,
            threads=self.task.threads,
            predictor=self.predictor,
            out=self.buffers.archive,
        )

    def decompress(self, archive: bytes) -> Array:
        return cusz_core.decompress(archive, out=self.buffers.field, threads=self.task.threads)


class _CuszSpline(_Cusz):
    predictor = "spline"


class _CuszAuto(_Cusz):
    predictor = "auto"


class _CuszTool(Tool):
    def version(self) -> str:
        return f"cusz {cusz_core.__version__}"


# --------------------------------------------------------------------------------------------------------- SZ3


class _Sz3(Codec):
    algorithm = "INTERP_LORENZO"

    def __init__(self, task: Task, buffers: Buffers) -> None:
        super().__init__(task, buffers)
        self.pysz = importlib.import_module("pysz")
        self.config = self.pysz.szConfig()
        self.config.cmprAlgo = getattr(self.pysz.szAlgorithm, self.algorithm)
        modes = self.pysz.szErrorBoundMode
        if task.own_relative_bound is None:
            self.config.errorBoundMode, self.config.absErrorBound = modes.ABS, task.eb_abs
        else:
            self.config.errorBoundMode, self.config.relErrorBound = modes.REL, task.own_relative_bound

    def compress(self) -> Any:
        return self.pysz.sz.compress(self.x, self.config)[0]

    def decompress(self, archive: bytes) -> Array:
        field: Array = self.pysz.sz.decompress(np.frombuffer(archive, np.uint8), self.x.dtype, self.x.shape)[0]
        return field


class _Sz3Lorenzo(_Sz3):
    algorithm = "LORENZO_REG"


# --------------------------------------------------------------------------------------------------------- SZ2


class _Sz2Library:
    """SZ 2.1 through its C interface, from hdf5plugin's HDF5 filter, but without HDF5."""

    SZ_FLOAT, SZ_DOUBLE, ABS, REL, PW_REL = 0, 1, 0, 1, 10

    def __init__(self) -> None:
        spec = importlib.util.find_spec("hdf5plugin")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("hdf5plugin is not a package")
        self.functions = ctypes.CDLL(str(Path(spec.submodule_search_locations[0]) / "plugins" / "libh5sz.so"))
        size, double, pointer = ctypes.c_size_t, ctypes.c_double, ctypes.c_void_p
        self.functions.SZ_compress_args.restype = pointer
        self.functions.SZ_compress_args.argtypes = [
            *(ctypes.c_int, pointer, ctypes.POINTER(size), ctypes.c_int, double, double, double),
            *[size] * 5,
        ]
        self.functions.SZ_decompress.restype = pointer
        self.functions.SZ_decompress.argtypes = [ctypes.c_int, ctypes.c_char_p, size, *[size] * 5]
        self.free = ctypes.CDLL(None).free
        self.free.argtypes, self.free.restype = [pointer], None
        if self.functions.SZ_Init(None) != 0:
            raise RuntimeError("SZ_Init failed")

    def version(self) -> str:
        return ".".join(str(n) for n in (ctypes.c_int * 3).in_dll(self.functions, "versionNumber"))

    def owned(self, address: int | None, dtype: np.dtype[Any], count: int) -> Array:
        """The values at an address that SZ2 allocated, freed with the array."""
        if not address:
            raise RuntimeError("SZ2 returned nothing")
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
        weakref.finalize(memory, self.free, address)
        values: Array = np.frombuffer(memoryview(memory), dtype)
        return values


class _Sz2(Codec):
    def __init__(self, task: Task, buffers: Buffers) -> None:
        super().__init__(task, buffers)
        self.sz2 = _Sz2Library()
        self.type = self.sz2.SZ_FLOAT if task.x.dtype == np.float32 else self.sz2.SZ_DOUBLE
        self.extents = [0] * (5 - task.x.ndim) + list(task.x.shape)
        rel = task.own_relative_bound
        self.bound = (self.sz2.ABS, task.eb_abs, 0.0, 0.0) if rel is None else (self.sz2.REL, 0.0, rel, 0.0)
        if task.mode == "pw_rel":
            self.bound = (self.sz2.PW_REL, 0.0, 0.0, task.eb)

    def compress(self) -> Any:
        size = ctypes.c_size_t()
        address = self.sz2.functions.SZ_compress_args(
            self.type, self.x.ctypes.data, ctypes.byref(size), *self.bound, *self.extents
        )
        return self.sz2.owned(address, np.dtype(np.uint8), size.value)

    def decompress(self, archive: bytes) -> Array:
        address = self.sz2.functions.SZ_decompress(self.type, archive, len(archive), *self.extents)
        return self.sz2.owned(address, self.x.dtype, self.x.size).reshape(self.x.shape)


class _Sz2Tool(Tool):
    def missing(self) -> str | None:
        try:
            _Sz2Library()
        except ImportError:
            return "not installed"
        except Exception as error:
            return f"cannot be loaded: {error}"
        return None

    def version(self) -> str:
        return f"SZ {_Sz2Library().version()} of {super().version()}"


# ------------------------------------------------------------------------------------------------- imagecodecs


class _Imagecodecs(Codec):
    """A codec of imagecodecs; `prefix` begins the names of its functions."""

    prefix = ""

    def __init__(self, task: Task, buffers: Buffers) -> None:
        super().__init__(task, buffers)
        module = importlib.import_module("imagecodecs")
        self.encode, self.decode = (getattr(module, f"{self.prefix}_{way}") for way in ("encode", "decode"))

    def compress(self) -> Any:
        return self.encode(self.x, self.task.eb_abs, out=self.buffers.archive)

    def decompress(self, archive: bytes) -> Array:
        field: Array = self.decode(archive, out=self.buffers.field)
        return field.reshape(self.x.shape)


class _Lerc(_Imagecodecs):
    prefix = "lerc"


class _Zfp(_Imagecodecs):
    prefix = "zfp"

    def compress(self) -> Any:
        threads = {"execution": "omp", "numthreads": self.task.threads} if self.task.threads > 1 else {}
        return self.encode(self.x, self.task.eb_abs, mode="accuracy", out=self.buffers.archive, **threads)


class _Sperr(_Imagecodecs):
    """Four-dimensional fields are passed as three-dimensional: the first two axes are merged."""

    prefix = "sperr"

    def __init__(self, task: Task, buffers: Buffers) -> None:
        super().__init__(task, buffers)
        self.shape = task.x.shape if task.x.ndim < 4 else (-1, *task.x.shape[2:])

    def compress(self) -> Any:
        x = self.x.reshape(self.shape)
        return self.encode(x, self.task.eb_abs, "pwe", numthreads=1, out=self.buffers.archive)

    def decompress(self, archive: bytes) -> Array:
        field: Array = self.decode(archive, numthreads=1, out=self.buffers.field.reshape(self.shape))
        return field.reshape(self.x.shape)


# --------------------------------------------------------------------------------------------- simple baselines


class _Quantised(Codec):
    """Passes round(x / 2 eb) as integers to a lossless compressor; does not check that this kept the bound."""

    def __init__(self, task: Task, buffers: Buffers) -> None:
        super().__init__(task, buffers)
        self.step = 2 * task.eb_abs
        counted = task.x[np.isfinite(task.x) & (task.x != task.fill if task.fill is not None else True)]
        largest = float(np.abs(counted).max()) / self.step if counted.size and self.step else math.inf
        self.scaled = np.empty(task.x.size, task.x.dtype)
        self.integers = np.empty(task.x.size, np.int32 if largest < 2**31 - 1 else np.int64)

    def quantise(self) -> Array:
        with np.errstate(all="ignore"):  # NaN and fill values may become anything
            np.multiply(self.x.reshape(-1), self.x.dtype.type(1 / self.step), out=self.scaled)
            np.rint(self.scaled, out=self.scaled)
            np.copyto(self.integers, self.scaled, casting="unsafe")
        return self.integers

    def reconstruct(self, integers: Array) -> Array:
        np.multiply(integers, self.step, out=self.buffers.field.reshape(-1), casting="same_kind")
        return self.buffers.field


class _Pcodec(_Quantised):
    def __init__(self, task: Task, buffers: Buffers) -> None:
        super().__init__(task, buffers)
        self.standalone = importlib.import_module("pcodec.standalone")
        self.config = importlib.import_module("pcodec").ChunkConfig()

    def compress(self) -> Any:
        return self.standalone.simple_compress(self.quantise(), self.config)

    def decompress(self, archive: bytes) -> Array:
        self.standalone.simple_decompress_into(archive, self.integers)
        return self.reconstruct(self.integers)


class _Zstd(_Quantised):
    def __init__(self, task: Task, buffers: Buffers) -> None:
        super().__init__(task, buffers)
        zstandard = importlib.import_module("zstandard")
        self.encoder, self.decoder = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()

    def compress(self) -> Any:
        return self.encoder.compress(self.quantise())

    def decompress(self, archive: bytes) -> Array:
        return self.reconstruct(np.frombuffer(self.decoder.decompress(archive), self.integers.dtype))


# -------------------------------------------------------------------------------------------------------- PFPL


class _Pfpl(Codec):
    def __init__(self, task: Task, buffers: Buffers) -> None:
        super().__init__(task, buffers)
        rel = task.own_relative_bound
        mode, bound = ("abs", task.eb_abs) if rel is None else ("noa", rel)
        if task.mode == "pw_rel":
            mode, bound = "rel", task.eb
        self.encode, self.decode = pfpl.load(task.x.dtype, mode, openmp=task.threads > 1)
        # A bound in the field's type, never above the requested one.
        self.bound = pfpl.rounded_down(bound, task.x.dtype)
        self.threshold = math.inf if task.fill is None else abs(task.fill)

    def compress(self) -> Any:
        size = self.encode(self.x, self.buffers.archive, self.bound, self.threshold, self.task.threads)
        return self.buffers.archive[:size]

    def decompress(self, archive: bytes) -> Array:
        self.decode(archive, self.buffers.field, self.task.threads)
        return self.buffers.field


class _PfplTool(Tool):
    def missing(self) -> str | None:
        return pfpl.missing()

    def version(self) -> str:
        return pfpl.version()

    def refuses(self, x: Array) -> str | None:
        return super().refuses(x) or ("2 GB are its limit" if x.nbytes >= pfpl.MAX_BYTES else None)


# --------------------------------------------------------------------------------------------------------- QoZ


class _Qoz(Codec):
    level = 3  # of optimisation

    def compress(self) -> Any:
        return qoz.encode(self.x, self.task.eb_abs, self.level)

    def decompress(self, archive: bytes) -> Array:
        return qoz.decode(archive, self.buffers.field)


class _QozFull(_Qoz):
    level = 4


class _QozTool(Tool):
    def missing(self) -> str | None:
        return qoz.missing()

    def version(self) -> str:
        return qoz.version()


# --------------------------------------------------------------------------------------------------------- all

_ALLOCATES = "the library allocates what it returns"
_REUSES = "writes into reused memory"
_GIVEN_ABS = "is given the absolute bound, so no range pass is in its time"
_OWN_RANGE = "works the range out itself"
_NO_CHECK = "none: nothing is checked after rounding"
_OWN_TIMES = f"{_OWN_RANGE}; {_REUSES}; checksums on in both directions; no lossless stage"

_OWN_TYPE = "every value, in the arithmetic of its type"
_MANY = 1024  # threads

_BY_LORENZO, _BY_SPLINE, _BY_AUTO = (f"predictor = {name}; {_OWN_TIMES}" for name in ("lorenzo", "spline", "auto"))
_CUSZ = _CuszTool(
    "cusz", _Cusz, "", "cusz_core", "every value, exactly", _BY_LORENZO, max_threads=_MANY, is_pointwise=True
)
_CUSZ_SPLINE = dataclasses.replace(_CUSZ, name="cusz spline", codec=_CuszSpline, timed=_BY_SPLINE)
_CUSZ_AUTO = dataclasses.replace(_CUSZ, name="cusz auto", codec=_CuszAuto, timed=_BY_AUTO)

#: Names of our tools, and of the tool whose ratio is compared with theirs at equal PSNR.
OURS = (_CUSZ.name, _CUSZ_SPLINE.name, _CUSZ_AUTO.name)
YARDSTICK = "SZ3 default"

_TIMED_QOZ = f"tuned interpolation, Huffman, zstd; {_GIVEN_ABS}; copies the field; {_ALLOCATES}"
_QOZ = _QozTool("QoZ", _Qoz, "", "", _OWN_TYPE, f"its defaults, level 3: {_TIMED_QOZ}", may_crash=True)

TOOLS: list[Tool] = [
    _CUSZ,
    _CUSZ_SPLINE,
    _CUSZ_AUTO,
    Tool("SZ3 Lorenzo", _Sz3Lorenzo, "pysz", "pysz", _OWN_TYPE,
         f"Lorenzo and regression, Huffman, zstd; {_OWN_RANGE}; {_ALLOCATES}"),
    Tool("SZ3 default", _Sz3, "pysz", "pysz", _OWN_TYPE,
         f"interpolation or Lorenzo, whichever it chooses, Huffman, zstd; {_OWN_RANGE}; {_ALLOCATES}"),
    _QOZ,
    dataclasses.replace(_QOZ, name="QoZ full", codec=_QozFull, timed=f"level 4: {_TIMED_QOZ}"),
    _Sz2Tool("SZ2", _Sz2, "hdf5plugin", "hdf5plugin", _OWN_TYPE,
             f"its C interface in the library of the HDF5 filter, without HDF5; {_OWN_RANGE}; {_ALLOCATES}",
             may_crash=True, is_pointwise=True),
    Tool("zfp", _Zfp, "imagecodecs", "imagecodecs._zfp", "finite values, unless a block spans too many magnitudes",
         f"fixed-accuracy mode; {_GIVEN_ABS}; {_REUSES}; decompression has one thread always", max_threads=_MANY),
    _PfplTool("PFPL", _Pfpl, "", "", _OWN_TYPE,
              "its CPU sources built as its makefile does (-O3 -march=native), serial for one thread, else OpenMP "
              f"(whose threads wait by spinning, and lose much where other programs run); {_OWN_RANGE}; {_REUSES}",
              max_threads=_MANY, is_pointwise=True),
    Tool("SPERR", _Sperr, "imagecodecs", "imagecodecs._sperr",
         "every value, before it is rounded to the type of the field",
         f"point-wise error mode; {_GIVEN_ABS}; {_REUSES}", ndims=(2, 3, 4), may_crash=True),
    Tool("LERC", _Lerc, "imagecodecs", "imagecodecs._lerc", "finite values, but for rounding",
         f"{_GIVEN_ABS}; {_REUSES}"),
    Tool("pcodec", _Pcodec, "pcodec", "pcodec.standalone", _NO_CHECK,
         f"round(x / 2 eb) by numpy, then pcodec; {_GIVEN_ABS}"),
    Tool("zstd", _Zstd, "zstandard", "zstandard", _NO_CHECK,
         f"round(x / 2 eb) by numpy, then zstd level 3, without prediction; {_GIVEN_ABS}"),
]  # fmt: skip
