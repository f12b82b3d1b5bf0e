"""Compression and decompression of numpy arrays."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _native, arguments
from .arguments import ArchiveLike, Field
from .errors import OutOfMemoryError, ParameterError, UnsupportedError

__all__ = [
    "Backend",
    "Lossless",
    "Mode",
    "ValueRange",
    "check",
    "compress",
    "decompress",
    "max_archive_bytes",
    "release_scratch",
    "scratch_bytes",
    "value_range",
]

Mode = Literal["abs", "rel"]
Backend = Literal["auto", "cpu", "cuda"]
Lossless = Literal["none", "zstd"]


class ValueRange(NamedTuple):
    """Smallest and largest of the values that are finite and not fill, and how many there are (0: both are 0)."""

    min: float
    max: float
    values: int


@overload
def compress(
    x: NDArray[Any],
    eb: float,
    mode: Mode = ...,
    *,
    bins: int = ...,
    backend: Backend = ...,
    threads: int | None = ...,
    lossless: Lossless = ...,
    fill: float | None = ...,
    out: None = ...,
) -> bytes: ...
@overload
def compress(
    x: NDArray[Any],
    eb: float,
    mode: Mode = ...,
    *,
    bins: int = ...,
    backend: Backend = ...,
    threads: int | None = ...,
    lossless: Lossless = ...,
    fill: float | None = ...,
    out: bytearray | memoryview | NDArray[Any],
) -> memoryview: ...
def compress(
    x: NDArray[Any],
    eb: float,
    mode: Mode = "abs",
    *,
    bins: int = 64,
    backend: Backend = "auto",
    threads: int | None = None,
    lossless: Lossless = "none",
    fill: float | None = None,
    out: bytearray | memoryview | NDArray[Any] | None = None,
) -> bytes | memoryview:
    """Compresses a field with a strict error bound.

    Every finite value comes back within the bound, in exact arithmetic; NaN, infinities and `fill` come back bit for
    bit. The archive depends on the field and the parameters alone, not on the number of threads.

    Args:
        x: numpy array of float32 or float64 in native byte order, 1 to 4 dimensions, any extents. One that is not
            C-contiguous is copied once.
        eb: the error bound, finite and >= 0: in the field's unit (mode "abs"), or a fraction of its value range
            (mode "rel"). 0 is lossless to the bit; a bound > 0 may lose the sign of a zero.
        mode: "abs": |d - d'| <= eb. "rel": |d - d'| <= eb * (max - min), over values that are finite and not `fill`;
            a field of one value has range 0 and is stored exactly.
        bins: quantisation bins coded directly, a power of two from 64 to 8192.
        backend: "auto", "cpu" or "cuda".
        threads: CPU threads; None: OMP_NUM_THREADS, else 1 where a launcher runs several ranks on this node, else
            the cores this process may use.
        lossless: "none", or "zstd" for a further lossless stage.
        fill: a value that stands for "no data", such as 1e20. It is cast to the field's type and compared by its bits.
        out: a writable contiguous buffer for the archive. `max_archive_bytes` is always enough; a smaller one is
            filled by way of scratch memory if the archive fits.

    Returns:
        The archive, as bytes; with `out`, the part of `out` that holds it, as a memoryview.

    Raises:
        UnsupportedError: a type or layout that is not accepted, or a stage that this build does not have.
        ParameterError: a parameter out of range, or `out` too small.
        DeviceError: the backend asked for is missing or failed.
        OutOfMemoryError: not enough memory.
    """
    array = arguments.field(x)
    has_fill, fill_value = (False, 0.0) if fill is None else arguments.fill(fill)
    parameters = (
        arguments.mode(mode),
        arguments.error_bound(eb),
        arguments.bins(bins),
        arguments.backend(backend),
        arguments.threads(threads),
        arguments.lossless(lossless),
        has_fill,
        fill_value,
    )
    if out is None:
        return _native.compress(array, *parameters)
    _require_output_buffer(out)
    size = _native.compress_into(array, *parameters, out)
    return np.frombuffer(out, dtype=np.uint8)[:size].data


def decompress(
    archive: ArchiveLike, *, out: Field | None = None, threads: int | None = None, max_bytes: int | None = None
) -> NDArray[Any]:
    """Reconstructs the field of an archive.

    Args:
        archive: bytes, bytearray, memoryview, mmap or uint8 array of exactly the archive.
        out: a writable C-contiguous array of the archive's dtype and shape, to be filled and returned; it must not
            overlap the archive. Its contents are undefined after an error.
        threads: CPU threads; None as in `compress`.
        max_bytes: refuse an archive whose field is larger than this, before memory for it is asked for: for archives
            from elsewhere, as a small one may declare a very large field.

    Returns:
        The field: a numpy array of the archive's dtype and shape.

    Raises:
        CorruptArchiveError: not an archive, or a damaged one.
        ArchiveTooNewError: a newer format version.
        UnsupportedError: not a buffer of bytes, `out` of another dtype, or a stage that this build does not have.
        ParameterError: `out` of another shape or layout, or a field larger than `max_bytes`.
        OutOfMemoryError: not enough memory.
    """
    source = arguments.archive(archive)
    n_threads = arguments.threads(threads)
    dtype_id, shape = _native.layout(source)
    dtype = arguments.dtype_of(dtype_id)
    if max_bytes is not None:
        arguments.within_limit(math.prod(shape) * dtype.itemsize, max_bytes)
    if out is None:
        try:
            field: NDArray[Any] = np.empty(shape, dtype)
        except (MemoryError, ValueError):  # ValueError: more elements than numpy can address
            raise OutOfMemoryError(f"out of memory: cannot allocate a {dtype.name} field of shape {shape}") from None
    else:
        field = arguments.output_field(out, dtype, shape)
    _native.decompress_into(source, field, n_threads)
    return field if out is None else out


def check(archive: ArchiveLike, *, threads: int | None = None) -> None:
    """Verifies an archive's header and checksums without reconstructing the field.

    Raises:
        CorruptArchiveError: not an archive, or a damaged one.
        ArchiveTooNewError: a newer format version.
    """
    _native.check(arguments.archive(archive), arguments.threads(threads))


def value_range(x: NDArray[Any], fill: float | None = None, *, threads: int | None = None) -> ValueRange:
    """Smallest and largest of a field's values that are finite and not `fill`.

    Args:
        x: an array as `compress` accepts.
        fill: as in `compress`.
        threads: CPU threads; None as in `compress`.

    Returns:
        (min, max, values): as doubles, +0 for a zero of either sign; (0, 0, 0) if there is no such value.

    Raises:
        UnsupportedError: a type or layout that is not accepted.
        ParameterError: a parameter out of range.
    """
    array = arguments.field(x)
    has_fill, fill_value = arguments.fill(fill)
    return ValueRange(*_native.value_range(array, has_fill, fill_value, arguments.threads(threads)))


def max_archive_bytes(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    """Hard bound of the size of an archive: the raw bytes of the field and 48 more."""
    dtype_id = arguments.dtype_id_of(np.dtype(dtype))
    extents = tuple(shape)
    if not 1 <= len(extents) <= _native.MAX_NDIM:
        raise ParameterError(f"shape {extents} has {len(extents)} dimensions; 1 to {_native.MAX_NDIM} are accepted")
    try:
        return _native.max_archive_bytes(dtype_id, extents)
    except RuntimeError:
        raise ParameterError(f"shape is {extents}; extents must be integers from 0 to 2**64 - 1") from None


def scratch_bytes() -> int:
    """Bytes of scratch memory kept for reuse by later calls."""
    return _native.scratch_bytes()


def release_scratch() -> None:
    """Gives the scratch memory kept for reuse back to the system; calls in progress in other threads keep theirs."""
    _native.release_scratch()


def _require_output_buffer(out: object) -> None:
    try:
        view = memoryview(out)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UnsupportedError(
            f"out is a {type(out).__name__}; it must be a writable buffer, such as a bytearray"
        ) from None
    if view.readonly:
        raise ParameterError(
            f"out is read-only ({type(out).__name__}); it must be a writable buffer, such as a bytearray"
        )
    if not view.c_contiguous:
        raise ParameterError("out is not C-contiguous")
