"""Levels: coarser versions of a field, from the first bytes of its archive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _native, arguments, device_memory
from .arguments import ArchiveLike
from .errors import ParameterError

#: How many leading bytes of an archive suffice to list its levels.
MIN_PREFIX_BYTES = _native.MIN_PREFIX_BYTES


@dataclasses.dataclass(frozen=True)
class Level:
    """A coarser version of a field: every `step`-th value along each dimension, from the first one.

    Attributes:
        number: of the level; 0 is the field.
        shape: its extents.
        step: distance in the field between neighbouring values of the level, along each dimension.
        exact_cost: whether no finer level has to be read or decoded for it. If the archive stores no levels, this is
            True only for level 0, or for all if the field is constant. From a shape: False.
        needed_bytes: how many leading bytes of the archive are needed to decode the level. If the prefix given ends
            before the archive's index: more than that prefix, and what the index needs. From a shape: 0.
        checksum: of the archive, as in `ArchiveInfo`. From a shape: 0.
    """

    number: int
    shape: tuple[int, ...]
    step: tuple[int, ...]
    exact_cost: bool
    needed_bytes: int
    checksum: int

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def levels(archive: ArchiveLike, *, archive_bytes: int | None = None) -> tuple[Level, ...]:
    """All levels of an archive's field, the field first.

    Each level has every second value of the one before along the last three dimensions that have more than one value
    left; the last one is a single value. Archives of the spline codec hold coarse levels first, so that their first
    bytes are enough for one. Other archives are decoded as a whole, whatever the level.

    Args:
        archive: as in `decompress`, or its first bytes: at least 128, unless it is shorter.
        archive_bytes: the length of the whole archive; None: `archive` is the whole.

    Raises:
        CorruptArchiveError: not an archive, or a damaged one. The head is verified if all of it is there.
        ArchiveTooNewError: a newer format version.
        ParameterError: too few bytes, or more than `archive_bytes`.
        UnsupportedError: not an array of bytes.
        DeviceError: for an archive on a device.
    """
    first, number, _ = _level(archive, 0, archive_bytes)
    return (first, *(_level(archive, k, archive_bytes)[0] for k in range(1, number)))


def level_of(archive: ArchiveLike, level: int, *, archive_bytes: int | None = None) -> tuple[Level, np.dtype[Any]]:
    """One level of an archive's field, and the field's dtype; as `levels`."""
    found, _, dtype = _level(archive, level, archive_bytes)
    return found, dtype


def levels_of_shape(shape: Sequence[int]) -> tuple[Level, ...]:
    """All levels of a field of this shape, the field first. `exact_cost` and `needed_bytes` are not known.

    Raises:
        ParameterError: not one to four extents.
        UnsupportedError: a field whose size does not fit in 63 bits.
    """
    extents = arguments.extents(shape, "shape")
    if not 1 <= len(extents) <= _native.MAX_NDIM:
        raise ParameterError(f"shape {extents} has {len(extents)} dimensions; 1 to {_native.MAX_NDIM} are accepted")
    _native.max_archive_bytes(_native.F64, extents)  # it raises the better error message
    number = _native.level_of_shape(extents, 0)[0]
    found = [_native.level_of_shape(extents, k)[1:] for k in range(number)]
    return tuple(Level(k, of_level, step, False, 0, 0) for k, (of_level, step) in enumerate(found))


def _level(archive: ArchiveLike, level: int, archive_bytes: int | None) -> tuple[Level, int, np.dtype[Any]]:
    source = device_memory.archive(archive)
    number, is_exact, dtype_id, shape, step, needed, checksum = _native.inspect_level(
        device_memory.memory(source), _length(source, archive_bytes), _number(level), device_memory.place(source)
    )
    return Level(level, shape, step, is_exact, needed, checksum), number, arguments.dtype_of(dtype_id)


def decompress_level(
    archive: ArchiveLike,
    level: int,
    archive_bytes: int | None,
    start: tuple[int, ...] | None = None,
    count: tuple[int, ...] | None = None,
    *,
    out: Any = None,
    like: Any = None,
    device: str | None = None,
    threads: int | None = None,
    max_bytes: int | None = None,
) -> Any:
    """A box of a level, or all of it if `start` is None, with the values of `decompress` and `decompress_box`."""
    source = device_memory.archive(archive)
    length, number, n_threads = _length(source, archive_bytes), _number(level), arguments.threads(threads) or 0
    found, _, dtype = _level(archive, number, archive_bytes)
    first = start if start is not None else (0,) * len(found.shape)
    extent = arguments.extents_of_box(first, count, found.shape, f"level {number}")
    if max_bytes is not None:
        values = math.prod(extent)
        if not found.exact_cost:  # all of the field may have to be decoded
            values = max(values, _level(archive, 0, archive_bytes)[0].size)
        arguments.within_limit(values * dtype.itemsize, max_bytes)
    result = out
    if out is None and (like is not None or device is not None):
        result = device_memory.new_field(like, device, dtype, extent, source)
    if result is None:
        result = arguments.new_array(dtype, extent)
    target: Any = result
    if start is None or not isinstance(result, np.ndarray):
        target = device_memory.output_field(result, dtype, extent)
    else:
        arguments.output_box(result, dtype, extent)
    if out is not None and isinstance(out, np.ndarray) and not isinstance(source, device_memory.DeviceView):
        arguments.separate(out, source)
    _native.decompress_level(
        device_memory.memory(source),
        length,
        number,
        device_memory.memory(target),
        first,
        n_threads,
        device_memory.place(target, source),
    )
    return result


def _length(source: Any, archive_bytes: int | None) -> int:
    if archive_bytes is not None:
        length = arguments.bytes_limit(archive_bytes, "archive_bytes")
        if length >= 2**63:
            raise ParameterError(f"archive_bytes is {length}; it must be less than 2**63")
        return length
    if isinstance(source, device_memory.DeviceView):
        return math.prod(source.shape)
    return memoryview(source).nbytes


def _number(level: object) -> int:
    number = arguments.integer(level, "level")
    if not 0 <= number < 2**31:
        raise ParameterError(f"level is {number}; it must be 0 or more")
    return number
