"""Checks of user arguments. Messages name the value, the limit and the remedy."""

from __future__ import annotations

import array
import math
import mmap
import operator
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from . import _native
from .errors import OutOfMemoryError, ParameterError, UnsupportedError


class CudaArray(Protocol):
    """An array in CUDA device memory that exposes its address: CuPy, Numba, PyTorch, JAX, ..."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class DLPackArray(Protocol):
    """An array exported through DLPack, such as PyTorch's: on a CUDA device, or for fields also in host memory."""

    def __dlpack__(self, *, stream: Any = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...


DeviceArray = CudaArray | DLPackArray
#: An archive: any C-contiguous buffer of single bytes, or a device array of uint8.
ArchiveLike = bytes | bytearray | memoryview | mmap.mmap | NDArray[np.uint8] | DeviceArray
#: A field in host memory: float32 or float64.
Field = NDArray[np.floating[Any]]

ACCEPTED_FIELDS = (
    "numpy arrays of float32 or float64 in native byte order, with 1 to 4 dimensions, such arrays on a CUDA device, "
    "and those that DLPack exports"
)
ACCEPTED_ARCHIVES = "bytes, bytearray, memoryview, numpy arrays of uint8, and such arrays on a CUDA device"
MAX_THREADS = 1024  # cusz.h

_DTYPES: dict[int, np.dtype[Any]] = {_native.F32: np.dtype(np.float32), _native.F64: np.dtype(np.float64)}


def field(x: object, name: str = "x") -> Field:
    """`x` as a C-contiguous, aligned array; copied only if necessary."""
    if not isinstance(x, np.ndarray):
        raise UnsupportedError(f"{name} is {describe(x)}; accepted are {ACCEPTED_FIELDS}{_array_remedy(x)}")
    if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):  # np.ma is imported by its first use: 10 ms
        raise UnsupportedError(
            f"{name} is a masked array, whose mask would be lost: compress {name}.filled(value) with fill=value"
        )
    field_type(x.dtype, x.shape, name)
    flags = x.flags
    if flags.c_contiguous and flags.aligned:
        return x
    return np.array(x, order="C", copy=True, subok=False)


def field_type(dtype: np.dtype[Any], shape: tuple[int, ...], name: str) -> None:
    """Refuses a dtype or number of dimensions that a field cannot have."""
    if dtype.char not in "fd" or not dtype.isnative:
        raise UnsupportedError(f"{name} has dtype {dtype.str} ({dtype.name}); {_dtype_remedy(dtype, _in_code(name))}")
    if not 1 <= len(shape) <= _native.MAX_NDIM:
        raise UnsupportedError(f"{name} has {len(shape)} dimensions; {_ndim_remedy(shape, _in_code(name))}")


def output_field(out: object, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Field:
    """`out`, if a field of this dtype and shape can be decompressed into it."""
    if not isinstance(out, np.ndarray):
        raise UnsupportedError(f"out is {describe(out)}; {_wanted_field(dtype, shape)}")
    flags = out.flags
    output_type(out.dtype, out.shape, flags.c_contiguous and flags.aligned, flags.writeable, dtype, shape)
    return out


def output_type(
    out_dtype: np.dtype[Any],
    out_shape: tuple[int, ...],
    contiguous: bool,
    writable: bool,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
) -> None:
    """Refuses an `out` that a field of this dtype and shape cannot be decompressed into."""
    if out_dtype != dtype:
        raise UnsupportedError(f"out has dtype {out_dtype.str} ({out_dtype.name}); {_wanted_field(dtype, shape)}")
    if out_shape != shape:
        raise ParameterError(f"out has shape {out_shape}; {_wanted_field(dtype, shape)}")
    if not contiguous:
        raise ParameterError(f"out is not C-contiguous and aligned; {_wanted_field(dtype, shape)}")
    if not writable:
        raise ParameterError(f"out is read-only; {_wanted_field(dtype, shape)}")


def shape_of_output(out: object) -> tuple[int, ...]:
    """The extents of an `out` for a box; UnsupportedError if it is not an array."""
    if not isinstance(out, np.ndarray):
        raise UnsupportedError(f"out is {describe(out)}; it must be a numpy array")
    shape: tuple[int, ...] = out.shape
    return shape


def output_box(out: NDArray[Any], dtype: np.dtype[Any], count: tuple[int, ...]) -> None:
    """Refuses an `out` that a box of a field of this dtype cannot be decompressed into."""
    if out.dtype != dtype:
        raise UnsupportedError(f"out has dtype {out.dtype.str} ({out.dtype.name}); this archive needs {dtype.name}")
    if out.shape != count:
        raise ParameterError(f"out has shape {out.shape}; the box has extents {count}")
    steps = [stride for stride, extent in zip(out.strides, count, strict=True) if extent > 1 and out.size > 0]
    if not out.flags.aligned or any(step <= 0 or step % out.itemsize for step in steps):
        raise ParameterError(f"out has strides {out.strides}; they must be positive multiples of {out.itemsize} bytes")
    if not out.flags.writeable:
        raise ParameterError("out is read-only")


def new_array(dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """An uninitialised numpy array; OutOfMemoryError if there is no memory for it."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):  # ValueError: more elements than numpy can address
        raise OutOfMemoryError(f"out of memory: cannot allocate a {dtype.name} array of shape {shape}") from None


def separate(out: NDArray[Any], archive: Any) -> None:
    """Refuses an `out` that overlaps the archive: decoding would overwrite its own input."""
    if np.may_share_memory(out, np.frombuffer(archive, np.uint8)):
        raise ParameterError("out overlaps the archive: pass separate memory")


def _wanted_field(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return (
        f"this archive needs a writable C-contiguous array (numpy's or on a device) of {dtype.name} and shape {shape}"
    )


def archive(a: object) -> object:
    """`a`, if it is a buffer of bytes."""
    if type(a) is bytes:
        return a
    try:
        view = memoryview(a)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        remedy = ""
        if isinstance(a, str) or hasattr(a, "__fspath__"):
            remedy = "; to read a file, pass pathlib.Path(name).read_bytes()"
        raise UnsupportedError(f"archive is {describe(a)}; accepted are {ACCEPTED_ARCHIVES}{remedy}") from None
    if view.itemsize != 1:
        raise UnsupportedError(f"archive is a buffer of {view.itemsize}-byte items; accepted are {ACCEPTED_ARCHIVES}")
    if not view.c_contiguous:
        raise UnsupportedError("archive is not contiguous: pass bytes(archive)")
    return a


def extents(values: Any, what: str) -> tuple[int, ...]:
    """A tuple of non-negative integers, from a sequence or a single integer."""
    try:
        # Arrays also have __index__, but it fails unless they have no dimensions.
        is_single = hasattr(values, "__index__") and getattr(values, "ndim", 0) == 0
        result = tuple(map(operator.index, (values,) if is_single else values))
    except TypeError:
        raise ParameterError(f"{what} is {describe(values)}; it must be an integer or a sequence of integers") from None
    if result and (min(result) < 0 or max(result) >= 2**63):
        raise ParameterError(f"{what} is {result}; its numbers must be from 0 to 2**63 - 1")
    return result


def extents_of_box(
    start: tuple[int, ...], count: tuple[int, ...] | None, shape: tuple[int, ...], whose: str
) -> tuple[int, ...]:
    """`count`, or if it is None, the extents up to the end of `shape`; ParameterError if the box is not within it."""
    extents = tuple(max(n - s, 0) for s, n in zip(start, shape, strict=False)) if count is None else count
    if not len(start) == len(extents) == len(shape) or any(
        s + c > n for s, c, n in zip(start, extents, shape, strict=True)
    ):
        raise ParameterError(f"start {start} and count {extents} are not a box within {shape}, the shape of {whose}")
    return extents


def dictionary(value: object, what: str) -> Mapping[str, Any]:
    """`value` as a dictionary with string keys; None becomes an empty one. `what`: its name in messages."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ParameterError(f"{what} is {describe(value)}; it must be a dictionary")
    for key in value:
        if not isinstance(key, str):
            raise ParameterError(f"{what} has the key {key!r}; its keys must be texts")
    return value


def error_bound(eb: object) -> float:
    """An error bound, as a float; ParameterError if it is not finite and >= 0."""
    bound = real(eb, "eb", "a number, such as eb=1e-3")
    if not (0.0 <= bound < math.inf):
        raise ParameterError(f"eb is {bound}; it must be finite and >= 0 (0 means lossless)")
    return bound


def threads(n: object) -> int | None:
    """A number of CPU threads, or None; ParameterError if it is out of range."""
    if n is None:
        return None
    value = integer(n, "threads")
    if not 1 <= value <= MAX_THREADS:
        raise ParameterError(
            f"threads is {value}; it must be from 1 to {MAX_THREADS}, or None for {_native.default_threads()}"
        )
    return value


def bytes_limit(n: object, what: str) -> int:
    """A number of bytes; ParameterError if it is negative or not an integer. `what`: its name in messages."""
    limit = integer(n, what)
    if limit < 0:
        raise ParameterError(f"{what} is {limit}; it must not be negative")
    return limit


def within_limit(size: int, max_bytes: object) -> None:
    limit = bytes_limit(max_bytes, "max_bytes")
    if size > limit:
        raise ParameterError(f"the archive's field takes {size} bytes, more than max_bytes = {limit}")


def fill(value: object) -> float | None:
    return None if value is None else real(value, "fill", "a number, such as fill=1e20, or None")


def backend(name: object) -> int:
    return _native.BACKENDS.index(choice(name, "backend", _native.BACKENDS))


def device(name: object) -> str | None:
    """Where a result goes: "cpu", "cuda", or None for the function's default."""
    if name is None or (isinstance(name, str) and name in ("cpu", "cuda")):
        return name
    raise ParameterError(f"device is {name!r:.80}; it must be 'cpu', 'cuda' or None")


def dtype_of(dtype_id: int) -> np.dtype[Any]:
    return _DTYPES[dtype_id]


def dtype_id_of(dtype: np.dtype[Any]) -> int:
    """The number of a dtype in the C interface (cusz_dtype); UnsupportedError if it is neither float32 nor float64."""
    for dtype_id, accepted in _DTYPES.items():
        if dtype == accepted:
            return dtype_id
    raise UnsupportedError(f"dtype {dtype.str} ({dtype.name}) is not supported; accepted are float32 and float64")


def choice(name: object, what: str, names: tuple[str, ...]) -> str:
    if isinstance(name, str) and name in names:
        return name
    raise ParameterError(f"{what} is {name!r:.80}; it must be one of {', '.join(map(repr, names))}")


def real(value: object, what: str, wanted: str = "a number") -> float:
    if type(value) is float:
        return value
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (float, int, np.floating, np.integer)):
        raise ParameterError(f"{what} is {describe(value)}; it must be {wanted}")
    try:
        return float(value)
    except OverflowError:
        raise ParameterError(f"{what} is too large for a double") from None


def integer(value: object, what: str) -> int:
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ParameterError(f"{what} is {describe(value)}; it must be an integer") from None


def describe(value: object) -> str:
    """A short description of a value of the wrong type."""
    if value is None or isinstance(value, (bool, np.bool_, int, float, complex, str)):
        return f"{value!r:.80}"
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else kind.__module__ + "."
    name = module + kind.__qualname__
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


def _array_remedy(x: object) -> str:
    if isinstance(x, (list, tuple, int, float)):
        return "; convert with numpy.asarray(x, dtype=numpy.float32)"
    if isinstance(x, (memoryview, array.array)):
        return "; pass numpy.asarray(x), which does not copy"
    if hasattr(x, "__array__"):  # its cost is unknown: dask computes, h5py reads, pandas may copy
        return "; pass numpy.asarray(x), which may have to read, compute or copy all of it"
    return ""


def _in_code(name: str) -> str:
    """The name for an argument in suggested code: its own, if that is a Python identifier."""
    return name if name.isidentifier() else "array"


def _dtype_remedy(dtype: np.dtype[Any], name: str) -> str:
    accepted = "accepted are float32 and float64 in native byte order"
    if dtype.kind == "c":
        return f"{accepted}: compress {name}.real and {name}.imag separately"
    if dtype.char in "fd":
        return f"{accepted}: convert with {name}.astype({name}.dtype.newbyteorder('='))"
    if dtype.char == "e":
        return f"{accepted}: convert with {name}.astype(numpy.float32)"
    if dtype.kind in "biu":
        return f"{accepted}: integers need a lossless compressor, or {name}.astype(numpy.float64)"
    if dtype.names:
        return f"{accepted}: compress one field at a time, such as {name}[{dtype.names[0]!r}]"
    return accepted


def _ndim_remedy(shape: tuple[int, ...], name: str) -> str:
    if not shape:
        return f"1 to 4 are accepted: pass {name}.reshape(1)"
    lead = math.prod(shape[:-3])
    merged = (lead, *shape[-3:])
    return f"1 to 4 are accepted: merge the leading ones, such as {name}.reshape{merged}"
