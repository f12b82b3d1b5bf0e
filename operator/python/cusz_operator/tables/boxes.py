"""Blocks: boxes of a global array, and the fields in them."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cusz_core import Parameters, embedding
from cusz_core.errors import ParameterError, UnsupportedError

from ..plugin import MAX_NDIM
from ..writing.goals import Wanted
from .representation import CONVERTED, Stored, is_exact, type_name

__all__ = ["Extents", "PreparedBlock", "begin_in_others", "field_shape", "first_overlap", "prepare"]

Extents = tuple[int, ...]
_MOST_FIELD_DIMENSIONS = 4
_COMPARED = 128  # boxes that are compared with each other at once


@dataclasses.dataclass
class PreparedBlock:
    """A block that a rank puts.

    Attributes:
        name: of the variable.
        field: array of 1 to 4 dimensions, C-contiguous, in host or device memory; of integers, any number of
            dimensions, in host memory.
        dtype: float32 or float64, or that of integers, which are stored exactly.
        given: the type that the user gave, which may be another (`representation`).
        dimensions: their names; () if there are none.
        shape, start, count: of the global array, and where the block lies in it.
        parameters: how it is compressed; the same for all blocks of a variable at a step, except those that do not
            affect the archive.
        device: number of the CUDA device that holds the field, -1 for host memory.
        wanted: the goal that its bound is to reach; None: `parameters` has the bound.
    """

    name: str
    field: Any
    dtype: np.dtype[Any]
    given: str
    dimensions: tuple[str, ...]
    shape: Extents
    start: Extents
    count: Extents
    parameters: Parameters
    device: int
    wanted: Wanted | None = None

    @property
    def raw_bytes(self) -> int:
        return math.prod(self.count) * self.dtype.itemsize


def prepare(
    stored: Stored,
    shape: Sequence[int] | None,
    start: Sequence[int] | None,
    dimensions: Sequence[str] | None,
    parameters: Parameters,
    wanted: Wanted | None,
) -> PreparedBlock:
    """A block as it will be stored; copied only if it is not C-contiguous and aligned.

    Raises:
        UnsupportedError: a type or layout that is not accepted.
        ParameterError: it does not lie within the global shape, or its dimensions' names make no sense.
    """
    name, array, given = stored
    what = f"the block of {name!r}"
    field, dtype, count, device = _placed(array, what)
    whole = embedding.extents(shape, f"shape of {name!r}") if shape is not None else count
    first = embedding.extents(start, f"start of {name!r}") if start is not None else (0,) * len(count)
    if not len(whole) == len(first) == len(count):
        raise ParameterError(
            f"{what} has {len(count)} dimensions, shape has {len(whole)} and start has {len(first)}: they must agree"
        )
    for axis, (s, c, n) in enumerate(zip(first, count, whole, strict=True)):
        if s + c > n:
            raise ParameterError(
                f"{what} begins at {first} and has extents {count}: along axis {axis} it ends at {s + c}, outside the "
                f"global shape {whole}"
            )
    names = _names_of_dimensions(dimensions, len(count), name)
    if given not in CONVERTED:  # arrays on a device may have no dtype, or one of their own
        given = type_name(dtype)
    return PreparedBlock(name, field, dtype, given, names, whole, first, count, parameters, device, wanted)


def _placed(array: Any, what: str) -> tuple[Any, np.dtype[Any], Extents, int]:
    """A block's array as it will be stored, its type and extents, and its device (-1: host memory)."""
    if isinstance(array, np.ndarray) and type(array) is not np.ma.MaskedArray and is_exact(array.dtype):
        if not 1 <= array.ndim <= MAX_NDIM:
            raise UnsupportedError(f"{what} has {array.ndim} dimensions; accepted are 1 to {MAX_NDIM}")
        if not array.dtype.isnative:
            raise UnsupportedError(f"{what} has dtype {array.dtype.str}, in foreign byte order: convert it")
        return np.ascontiguousarray(array), array.dtype, array.shape, -1
    if is_exact(getattr(array, "dtype", None)) and not isinstance(array, np.ndarray):
        raise UnsupportedError(f"{what} is {embedding.describe(array)} of integers: pass a numpy array, in host memory")
    count = getattr(array, "shape", None)
    if isinstance(count, tuple) and _MOST_FIELD_DIMENSIONS < len(count) <= MAX_NDIM:
        if not hasattr(array, "reshape"):
            raise UnsupportedError(f"{what} has {len(count)} dimensions and cannot be reshaped to 4")
        array = array.reshape(field_shape(count))
    placed = embedding.placed_field(array, what)
    extents = tuple(int(extent) for extent in count) if isinstance(count, tuple) else placed.shape
    return placed.array, placed.dtype, extents, placed.device


def _names_of_dimensions(names: Sequence[str] | None, ndim: int, variable: str) -> tuple[str, ...]:
    if names is None:
        return ()
    listed = () if isinstance(names, str) else tuple(names)
    if (
        len(listed) != ndim
        or len(set(listed)) != ndim
        or not all(isinstance(name, str) and re.fullmatch(r"[^\s,]+", name) for name in listed)
    ):
        raise ParameterError(
            f"dims of {variable!r} is {names!r}; it must be {ndim} different names without blanks and commas, slowest "
            "first"
        )
    return listed


def field_shape(count: Sequence[int]) -> Extents:
    """A block's extents as the compressor takes them: if more than four, 1s are dropped and the slowest axes merged.

    (As in block_shape of plugin.cpp.)
    """
    if len(count) <= _MOST_FIELD_DIMENSIONS:
        return tuple(count)
    kept = [extent for extent in count if extent != 1] or [1]
    n_merged = max(len(kept) - _MOST_FIELD_DIMENSIONS, 0) + 1
    return (math.prod(kept[:n_merged]), *kept[n_merged:])


def first_overlap(start: NDArray[np.int64], count: NDArray[np.int64]) -> tuple[int, int] | None:
    """Indices of two boxes that have elements in common; None if there are none.

    Args:
        start, count: of shape (boxes, dimensions).
    """
    for numbers, low, high in _groups(start, count):
        pair = _first_of(low, high)
        if pair is not None:
            first, second = sorted(int(numbers[i]) for i in pair)
            return first, second
    return None


def begin_in_others(start: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.bool_]:
    """For every box, whether its first element also lies in another one; not if it has no elements.

    Args:
        start, count: of shape (boxes, dimensions).

    Returns:
        Of shape (boxes,).
    """
    begins = np.zeros(len(start), np.bool_)
    # A box and those that contain its first element are in one group: where a cut crosses some of them, they are all
    # on the side where that element is.
    for numbers, low, high in _groups(start, count):
        open_points = np.arange(len(numbers))  # those that have been found in one box at most: in their own
        found = np.zeros(len(numbers), np.int64)
        for i in range(0, len(numbers), _COMPARED):
            boxes = slice(i, i + _COMPARED)
            points = low[open_points, None]
            found[open_points] += ((low[boxes] <= points) & (points < high[boxes])).all(axis=2).sum(axis=1)
            open_points = open_points[found[open_points] < 2]
        begins[numbers[found > 1]] = True
    return begins


def _groups(
    start: NDArray[np.int64], count: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Groups of boxes, small if possible, such that boxes with elements in common are together in one of them.

    Yields:
        Numbers of boxes, where they begin, and where they end. Boxes without elements are in no group.
    """
    filled = np.flatnonzero((count > 0).all(axis=1))
    to_do = [(filled, start[filled], start[filled] + count[filled])]
    while to_do:
        numbers, low, high = to_do.pop()
        halves = _halves(low, high) if len(numbers) > _COMPARED else ()
        to_do += [(numbers[half], low[half], high[half]) for half in halves]
        if not halves:
            yield numbers, low, high


def _halves(low: NDArray[np.int64], high: NDArray[np.int64]) -> tuple[NDArray[np.bool_], ...]:
    """Boxes on either side of a cut, those that it crosses on both; none if no cut makes both sides smaller."""
    best: tuple[NDArray[np.bool_], ...] = ()
    fewest = len(low)
    for axis in np.argsort(low.min(axis=0) - low.max(axis=0), kind="stable"):  # the longest first
        starts = low[:, axis]
        cut = np.partition(starts, len(starts) // 2)[len(starts) // 2]
        if cut == starts.min():
            if (starts == cut).all():
                continue
            cut = starts[starts > cut].min()
        sides = (starts < cut, high[:, axis] > cut)
        larger = max(int(np.count_nonzero(side)) for side in sides)
        if larger < fewest:
            best, fewest = sides, larger
        if larger < 0.6 * len(low):
            break
    return best


def _first_of(low: NDArray[np.int64], high: NDArray[np.int64]) -> tuple[int, int] | None:
    """As `first_overlap`, by comparing every box with every other."""
    for i in range(0, len(low), _COMPARED):
        for j in range(i, len(low), _COMPARED):
            these, others = slice(i, i + _COMPARED), slice(j, j + _COMPARED)
            meet = low[these, None, 0] < high[others, 0]
            for axis in range(low.shape[1]):
                meet &= low[these, None, axis] < high[others, axis]
                meet &= high[these, None, axis] > low[others, axis]
            if np.count_nonzero(meet) == (len(meet) if i == j else 0):
                continue  # a box only meets itself
            a, b = np.argwhere(np.triu(meet, 1) if i == j else meet)[0].tolist()
            return i + a, j + b
    return None
