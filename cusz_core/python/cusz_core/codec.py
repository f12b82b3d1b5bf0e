"""Compression and decompression of arrays in host and device memory."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _native, arguments, device_memory, preview
from .arguments import ArchiveLike, DeviceArray, Field
from .errors import CuszError, ParameterError, UnsupportedError
from .parameters import Backend, Mode, Options, Parameters

if TYPE_CHECKING:
    from typing import Unpack  # of Python 3.11

Device = Literal["cpu", "cuda"]


class ValueRange(NamedTuple):
    """Min, max and number of the values that are finite and not fill. Without such values, all three are 0."""

    min: float
    max: float
    values: int

    def absolute_bound(self, eb: float) -> float:
        """Converts a bound of mode "rel" into the bound of mode "abs" for a field of this range.

        Useful for data that grow: computed once, the bound is the same for all parts, including rewritten ones. It is
        0 (lossless) if all values are the same.

        Args:
            eb: a fraction of the range, finite and >= 0.

        Raises:
            ParameterError: `eb` is out of its legal range.
        """
        return _native.absolute_bound(arguments.error_bound(eb), self.min, self.max)


@overload
def compress(
    x: NDArray[Any] | DeviceArray,
    eb: float,
    mode: Mode = ...,
    *,
    out: None = ...,
    device: Literal["cpu"] | None = ...,
    **options: Unpack[Options],
) -> bytes: ...
@overload
def compress(
    x: NDArray[Any] | DeviceArray,
    eb: float,
    mode: Mode = ...,
    *,
    out: bytearray | memoryview | NDArray[Any],
    device: Literal["cpu"] | None = ...,
    **options: Unpack[Options],
) -> memoryview: ...
@overload
def compress(
    x: NDArray[Any] | DeviceArray,
    eb: float,
    mode: Mode = ...,
    *,
    out: DeviceArray | None = ...,
    device: Literal["cuda"] | None = ...,
    **options: Unpack[Options],
) -> Any: ...
def compress(
    x: NDArray[Any] | DeviceArray,
    eb: float,
    mode: Mode = "abs",
    *,
    out: bytearray | memoryview | NDArray[Any] | DeviceArray | None = None,
    device: Device | None = None,
    **options: Unpack[Options],
) -> Any:
    """Compresses a field with a strict error bound.

    Every finite value comes back within the bound, in exact arithmetic; NaN, infinities and `fill` come back bit for
    bit. The archive depends only on the field and the parameters, not on the number of threads.

    Args:
        x: numpy array of float32 or float64 in native byte order, 1 to 4 dimensions, any extents; or such an array in
            the memory of a CUDA device (anything with `__cuda_array_interface__`, or DLPack); or anything whose memory
            DLPack shares, such as PyTorch's tensors. An array that is not C-contiguous is copied once (on a device only
            if it is CuPy's); nothing else is ever copied.
        eb: the error bound, finite and >= 0: in the field's unit (mode "abs"), a fraction of its value range (mode
            "rel"), or of every value ("pw_rel"). 0 is lossless to the bit; in modes "abs" and "rel" a bound > 0 may
            lose the sign of a zero. In modes "psnr" (in dB) and "ratio": the goal for which an absolute bound is
            sought.
        mode: "abs", "rel", "pw_rel", "psnr" or "ratio"; see `Parameters`.
        out: a writable contiguous buffer for the archive. `max_archive_bytes` is always enough; a smaller one will do
            if the archive fits, but costs scratch memory. Or a one-dimensional uint8 array of at least
            `max_archive_bytes` on a device, aligned to 4 bytes.
        device: where the archive goes: "cpu" (None: the same, unless `out` says otherwise), or "cuda": a CuPy array on
            the device of `x`, else on the current one.
        options: further parameters, such as `fill`, `threads` and `bins`: `help(cusz_core.Parameters)` lists them all.

    Returns:
        The archive, as bytes; with `out`, the part of `out` that holds it, as a memoryview, or on a device `out[:n]`;
        with device="cuda" a one-dimensional CuPy array of uint8.

    Raises:
        UnsupportedError: a type or layout that is not accepted, a stage that this build does not have, or one that
            needs host memory ("zstd"); CuPy is needed and missing.
        ParameterError: a parameter out of range, a ratio that no bound gives, `out` too small, or a device array with
            backend="cpu".
        DeviceError: the backend asked for is missing or failed.
        OutOfMemoryError: not enough memory, of the host or of the device.
    """
    return compress_with(x, Parameters(eb, mode, **options), out=out, device=device)


def compress_with(
    x: NDArray[Any] | DeviceArray,
    parameters: Parameters,
    *,
    out: bytearray | memoryview | NDArray[Any] | DeviceArray | None = None,
    device: Device | None = None,
) -> Any:
    """`compress` with its parameters in one object, for code that passes them on."""
    array = arguments.field(x) if isinstance(x, np.ndarray) else device_memory.field(x)
    native = parameters.native
    if out is None and device is None and array is x:  # the usual case
        return _native.compress(x, native, device_memory.HERE)
    field, where = device_memory.memory(array), arguments.device(device)
    if out is None and where != "cuda":
        return _native.compress(field, native, device_memory.place(array))
    if out is None:
        new, target = device_memory.new_archive(device_memory.most_archive_bytes(array), array)
        size = _native.compress_into(field, native, target.memory, device_memory.place(target, array))
        return device_memory.trim(new, size)
    target_array: Any = out
    device_memory.require_device(out, where, "out")
    on_device = device_memory.output_archive(out)
    if on_device is not None:
        size = _native.compress_into(field, native, on_device.memory, device_memory.place(array, on_device))
        return target_array[:size]
    _require_output_buffer(out)
    size = _native.compress_into(field, native, out, device_memory.place(array))
    return _beginning(target_array, size)


class Described(NamedTuple):
    """An archive, and facts about it that are known once it has been made.

    Attributes:
        archive: as from `compress`.
        checksum, outliers, eb_abs, predictor: as in `ArchiveInfo`.
        range: as from `value_range`; NaN if it was not requested.
    """

    archive: bytes | memoryview
    checksum: int
    outliers: int
    eb_abs: float
    predictor: str | None
    range: ValueRange


def compress_described(
    x: NDArray[Any] | DeviceArray,
    parameters: Parameters,
    *,
    out: bytearray | memoryview | NDArray[Any] | None = None,
    ranges: bool = True,
) -> Described:
    """`compress_with`, `inspect` and `value_range` in one call, usually in one pass over the field.

    Args:
        x, parameters: as for `compress_with`.
        out: a writable contiguous buffer in host memory, with room for `max_archive_bytes`; None: the archive is new
            bytes.
        ranges: whether to return the value range.

    Raises:
        As `compress`.
    """
    if out is not None:
        _require_output_buffer(out)
    if isinstance(x, np.ndarray):
        made = _native.compress_described(arguments.field(x), parameters.native, out, ranges, device_memory.HERE)
    else:
        array = device_memory.field(x)
        memory, place = device_memory.memory(array), device_memory.place(array)
        made = _native.compress_described(memory, parameters.native, out, ranges, place)
    archive: Any = made[0]
    return Described(archive if out is None else _beginning(out, archive), *made[1:5], ValueRange(*made[5:]))


#: A row of `compress_many_described`. predictor: a number of cusz_predictor (cusz.h); -1: none.
_BLOCK_ROW = np.dtype(
    [
        ("archive_bytes", np.uint64),
        ("checksum", np.uint32),
        ("predictor", np.int32),
        ("outliers", np.uint64),
        ("eb_abs", np.float64),
        ("min", np.float64),
        ("max", np.float64),
        ("values", np.uint64),
    ],
    align=True,
)


def compress_many(
    fields: Sequence[NDArray[Any] | DeviceArray],
    eb: float,
    mode: Mode = "abs",
    *,
    out: bytearray | memoryview | NDArray[Any] | None = None,
    **options: Unpack[Options],
) -> list[memoryview]:
    """Compresses many fields, such as the blocks of an AMR level, into the archives that `compress` makes of each.

    Each thread takes whole fields, whereas `compress` on a small field has work for only one thread; and one call costs
    less than many.

    Args:
        fields: as for `compress`, all of one dtype and one number of dimensions, of any extents.
        eb, mode: as for `compress`. In mode "rel" a bound is relative to the range of its own field.
        out: a writable contiguous buffer in host memory with room for the sum of `max_archive_bytes` of all fields.
        options: as for `compress`.

    Returns:
        The archives, one after another in one buffer (`out`, if it was given).

    Raises:
        As `compress`, with the number of the first field that failed; ParameterError: dtypes or numbers of dimensions
        differ.
    """
    archives, rows = compress_many_described(fields, Parameters(eb, mode, **options), out=out, ranges=False)
    ends = np.cumsum(rows["archive_bytes"], dtype=np.int64).tolist()
    return [archives[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []


class DescribedBlocks(NamedTuple):
    """Archives of many fields, and facts about them that are known once they have been made.

    Attributes:
        archives: one after another.
        rows: one row per field: archive_bytes, checksum, outliers and eb_abs, as in `ArchiveInfo`; predictor, a
            number of cusz_predictor (cusz.h), -1 for none; min, max and values, as from `value_range`, or NaN, NaN, 0.
    """

    archives: memoryview
    rows: NDArray[Any]


def compress_many_described(
    fields: Sequence[NDArray[Any] | DeviceArray],
    parameters: Parameters,
    *,
    out: bytearray | memoryview | NDArray[Any] | None = None,
    ranges: bool = True,
) -> DescribedBlocks:
    """`compress_many`, with the facts that `compress_described` returns, for every field.

    Args:
        fields, out: as for `compress_many`.
        parameters: of all fields.
        ranges: whether to return value ranges.

    Raises:
        As `compress_many`.
    """
    arrays = [device_memory.field(x, f"field {i}") for i, x in enumerate(fields)]
    if out is not None:
        _require_output_buffer(out)
    rows = np.empty(len(arrays), _BLOCK_ROW)
    memory = [device_memory.memory(array) for array in arrays]
    made = _native.compress_many(
        memory, parameters.native, out, rows.view(np.uint8), ranges, device_memory.place(*arrays)
    )
    if isinstance(made, bytes):
        return DescribedBlocks(memoryview(made), rows)
    return DescribedBlocks(_beginning(out, made), rows)


@overload
def decompress(
    archive: ArchiveLike,
    *,
    out: Field | None = ...,
    like: None = ...,
    device: Literal["cpu"] | None = ...,
    backend: Backend = ...,
    threads: int | None = ...,
    max_bytes: int | None = ...,
    level: int = ...,
    archive_bytes: int | None = ...,
) -> NDArray[Any]: ...
@overload
def decompress(
    archive: ArchiveLike,
    *,
    out: Field | DeviceArray | None = ...,
    like: Any = ...,
    device: Device | None = ...,
    backend: Backend = ...,
    threads: int | None = ...,
    max_bytes: int | None = ...,
    level: int = ...,
    archive_bytes: int | None = ...,
) -> Any: ...
def decompress(
    archive: ArchiveLike,
    *,
    out: Field | DeviceArray | None = None,
    like: Any = None,
    device: Device | None = None,
    backend: Backend = "auto",
    threads: int | None = None,
    max_bytes: int | None = None,
    level: int = 0,
    archive_bytes: int | None = None,
) -> Any:
    """Reconstructs the field of an archive, or a coarser level of it.

    Args:
        archive: bytes, bytearray, memoryview, mmap or uint8 array that holds exactly the archive; or a one-dimensional
            uint8 array on a CUDA device.
        out: a writable C-contiguous array of the archive's dtype and shape, numpy's or on a device, to be filled and
            returned; it must not overlap the archive. Its contents are undefined after an error.
        like: a module, or one of its arrays, whose `empty` makes the result: numpy, cupy, a PyTorch tensor. The result
            lies on the device of that array, else on the archive's, else on the current one.
        device: "cuda": the result is a CuPy array, unless `like` or `out` says otherwise. "cpu": it is a numpy array.
        backend: "auto": the device where `archive` or the result lies, else the CPU. "cuda": a device. "cpu": the
            CPU, for arrays in host memory only.
        threads: CPU threads; None as in `compress`.
        max_bytes: refuse an archive whose field is larger than this, before allocating memory for it: for untrusted
            archives, because a small one may declare a very large field. With `level`, the limit applies to the level,
            and also to the field if all of it has to be decoded.
        level: 0 for the field, or a coarser one (`levels`), which is decoded on the CPU and then copied to the
            device if the result lies there. Its values are those of the field at the same places, bit for bit. `out`
            has the level's shape.
        archive_bytes: the length of the whole archive, if `archive` is only its first bytes: at least
            `levels(...)[level].needed_bytes`. Only the checksums of the head and of all decoded levels are verified.

    Returns:
        The field or level: an array of the archive's dtype and the level's shape, numpy's unless `out`, `like` or
        `device` say otherwise.

    Raises:
        CorruptArchiveError: not an archive, or a damaged one.
        ArchiveTooNewError: a newer format version.
        UnsupportedError: not an array of bytes, `out` of another dtype, `like` of a module whose arrays cannot be
            written to, or a stage that this build does not have or that needs host memory ("zstd"); CuPy is needed
            and missing.
        ParameterError: `out` of another shape or layout, `out`, `like` and `device` that contradict each other, a
            field larger than `max_bytes`, a device array with backend="cpu", a level that the field does not have, or
            fewer bytes of the archive than it needs.
        DeviceError: the backend asked for is missing or failed.
        OutOfMemoryError: not enough memory, of the host or of the device.
    """
    if level != 0 or archive_bytes is not None:
        if arguments.backend(backend) == arguments.backend("cuda"):
            raise UnsupportedError("a level is decoded on the CPU: use backend='auto'")
        if out is not None:
            _require_agreement(out, like, arguments.device(device))
        return preview.decompress_level(
            archive,
            level,
            archive_bytes,
            out=out,
            like=like,
            device=arguments.device(device),
            threads=threads,
            max_bytes=max_bytes,
        )
    source = archive if type(archive) is bytes else device_memory.archive(archive)
    bits, at = source, device_memory.HERE
    if isinstance(source, device_memory.DeviceView):
        bits, at = source.memory, device_memory.place(source)
    n_threads = arguments.threads(threads) or 0
    backend_id = arguments.backend(backend)
    dtype_id, shape = _native.layout(bits, at)
    dtype = arguments.dtype_of(dtype_id)
    if max_bytes is not None:
        arguments.within_limit(math.prod(shape) * dtype.itemsize, max_bytes)
    result: Any = out
    if out is not None:
        _require_agreement(out, like, arguments.device(device))
    elif like is not None or device is not None:
        result = device_memory.new_field(like, arguments.device(device), dtype, shape, source)
    if result is None:
        result = arguments.new_array(dtype, shape)
        target: Any = result
    else:
        target = device_memory.output_field(result, dtype, shape)
        at = device_memory.place(target, source)
    _native.decompress_into(bits, device_memory.memory(target), backend_id, n_threads, at)
    return result


def decompress_box(
    archive: ArchiveLike,
    start: Sequence[int],
    count: Sequence[int] | None = None,
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: int = 0,
    archive_bytes: int | None = None,
) -> NDArray[Any]:
    """Reconstructs a box of an archive's field, or of a coarser level, in host memory.

    Only tiles that meet the box are decoded; the checksums of the whole archive are verified all the same. The values
    are those that `decompress` gives, bit for bit.

    Args:
        archive: as in `decompress`, in host memory.
        start: where the box begins: an index for each of the field's dimensions.
        count: its extents; None: those of `out`, or to the field's end.
        out: a writable numpy array of the archive's dtype and the box's extents, to be filled and returned. It need not
            be contiguous: a slice of a larger array will do. It must not overlap the archive.
        threads: CPU threads; None as in `compress`.
        level, archive_bytes: as in `decompress`; `start` and `count` then describe a box of the level.

    Returns:
        An array of the archive's dtype and the box's extents.

    Raises:
        CorruptArchiveError: not an archive, or a damaged one; the contents of `out` are then undefined.
        ArchiveTooNewError: a newer format version.
        UnsupportedError: an archive on a device, or `out` of another dtype.
        ParameterError: a box that is not within the field, or `out` that does not fit.
        OutOfMemoryError: not enough memory.
    """
    first = arguments.extents(start, "start")
    wanted = None if out is None else arguments.shape_of_output(out)
    if count is not None:
        wanted = arguments.extents(count, "count")
    source = _host_archive(archive)
    if level != 0 or archive_bytes is not None:
        return preview.decompress_level(source, level, archive_bytes, first, wanted, out=out, threads=threads)  # type: ignore[no-any-return]
    first, result = _box(source, first, wanted, out)
    _native.decompress_box(source, result, first, arguments.threads(threads) or 0, device_memory.HERE)
    return result


def decompress_many(
    archives: Sequence[ArchiveLike],
    starts: Sequence[Sequence[int]] | None = None,
    *,
    out: Sequence[NDArray[Any]] | None = None,
    threads: int | None = None,
) -> list[NDArray[Any]]:
    """Reconstructs the fields of many archives, such as the blocks of an AMR level, or boxes of them, in host memory.

    Each thread takes whole archives, whereas `decompress` of a small one has work for only one thread; and one call
    costs less than many.

    Args:
        archives: as in `decompress_box`, all of fields of one dtype and one number of dimensions.
        starts: where the boxes begin, as in `decompress_box`; None: at the first value.
        out: arrays as in `decompress_box`, one for each archive, which must not overlap each other. None: new ones,
            whose boxes reach to the ends of the fields.
        threads: CPU threads; None as in `compress`.

    Returns:
        The arrays, in the order of the archives.

    Raises:
        As `decompress_box`, with the number of the first archive that failed; ParameterError: dtypes or numbers of
        dimensions differ, or there are fewer or more of `starts` or `out` than archives. After an error, the contents
        of all arrays are undefined.
    """
    n, n_threads = len(archives), arguments.threads(threads) or 0
    for name, items in (("starts", starts), ("out", out)):
        if items is not None and len(items) != n:
            raise ParameterError(f"{name} has {len(items)} items; there are {n} archives")
    sources, firsts, results = [], [], []
    for i in range(n):
        try:
            source = _host_archive(archives[i])
            start = None if starts is None else arguments.extents(starts[i], "start")
            given = None if out is None else out[i]
            count = None if out is None else arguments.shape_of_output(given)
            if start is None or given is None:
                first, result = _box(source, start, count, given)
            else:  # which the library checks faster
                first, result = start, given
        except CuszError as error:
            raise type(error)(f"archive {i} of {n}: {error}") from error
        sources.append(source)
        firsts.append(first)
        results.append(result)
    _native.decompress_many(sources, results, firsts, n_threads)
    return results


def _box(
    source: Any, start: tuple[int, ...] | None, count: tuple[int, ...] | None, out: NDArray[Any] | None
) -> tuple[tuple[int, ...], NDArray[Any]]:
    """Where a box of an archive's field begins, and the array that it goes to: `out`, or a new one."""
    dtype_id, shape = _native.layout(source, device_memory.HERE)
    dtype, first = arguments.dtype_of(dtype_id), (0,) * len(shape) if start is None else start
    extent = arguments.extents_of_box(first, count, shape, "the field")
    if out is None:
        return first, arguments.new_array(dtype, extent)
    arguments.output_box(out, dtype, extent)
    arguments.separate(out, source)
    return first, out


def _host_archive(archive: ArchiveLike) -> Any:
    source = archive if type(archive) is bytes else device_memory.archive(archive)
    if isinstance(source, device_memory.DeviceView):
        raise UnsupportedError("a box is decoded in host memory: copy the archive there, or use decompress")
    return source


def check(archive: ArchiveLike, *, threads: int | None = None) -> None:
    """Verifies an archive's header and checksums without reconstructing the field.

    Args:
        archive: as in `decompress`; it is read where it lies.
        threads: CPU threads; None as in `compress`.

    Raises:
        CorruptArchiveError: not an archive, or a damaged one.
        ArchiveTooNewError: a newer format version.
        UnsupportedError: not an array of bytes.
        DeviceError, OutOfMemoryError: for an archive on a device.
    """
    source = device_memory.archive(archive)
    _native.check(device_memory.memory(source), arguments.threads(threads) or 0, device_memory.place(source))


def value_range(x: NDArray[Any] | DeviceArray, fill: float | None = None, *, threads: int | None = None) -> ValueRange:
    """Min and max of a field's values that are finite and not `fill`.

    Args:
        x: an array as `compress` accepts, in host or device memory.
        fill: as in `compress`.
        threads: CPU threads; None as in `compress`.

    Returns:
        (min, max, values): min and max as doubles, +0 for a zero of either sign; (0, 0, 0) if there is no such value.

    Raises:
        UnsupportedError: a type or layout that is not accepted.
        ParameterError: a parameter out of range.
        DeviceError, OutOfMemoryError: for an array on a device.
    """
    array = device_memory.field(x)
    special = arguments.fill(fill)
    n_threads = arguments.threads(threads) or 0
    memory, place = device_memory.memory(array), device_memory.place(array)
    has_fill, value = special is not None, 0.0 if special is None else special  # not "or": -0.0 is false
    return ValueRange(*_native.value_range(memory, has_fill, value, n_threads, place))


def max_archive_bytes(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    """Upper limit on the size of an archive: the raw bytes of the field plus 48."""
    dtype_id = arguments.dtype_id_of(np.dtype(dtype))
    extents = tuple(shape)
    if not 1 <= len(extents) <= _native.MAX_NDIM:
        raise ParameterError(f"shape {extents} has {len(extents)} dimensions; 1 to {_native.MAX_NDIM} are accepted")
    try:
        return _native.max_archive_bytes(dtype_id, extents)
    except RuntimeError:
        raise ParameterError(f"shape is {extents}; extents must be integers from 0 to 2**64 - 1") from None


def scratch_bytes() -> int:
    """Bytes of scratch memory kept for reuse by later calls, in host and device memory together."""
    return _native.scratch_bytes()


def release_scratch() -> None:
    """Returns the scratch memory kept for reuse to its origin, the system or CuPy's pool; calls in progress in other
    threads keep theirs."""
    _native.release_scratch()


def _require_agreement(out: object, like: Any, device: str | None) -> None:
    device_memory.require_device(out, device, "out")
    if like is not None and device_memory.package_of(like) != device_memory.package_of(out):
        made, wanted = device_memory.package_of(out), device_memory.package_of(like)
        raise ParameterError(f"out is of {made} and like of {wanted}: pass one of them")


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
    if "O" in re.sub(":[^:]*:", "", view.format):  # without the names of a structure's fields
        raise UnsupportedError("out holds references to Python objects; it must be a buffer of bytes or numbers")


def _beginning(buffer: Any, size: int) -> memoryview:
    """The first `size` bytes of a buffer, whatever its item type."""
    return np.frombuffer(buffer, dtype=np.uint8)[:size].data
