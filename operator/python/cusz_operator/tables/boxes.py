"""Boxes of a global array: their extents, and which of them overlap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Extents = tuple[int, ...]
Box = tuple[Extents, Extents]  # start and count
MAX_FIELD_NDIM = 4
_COMPARED = 128  # boxes that are compared with each other at once


def field_shape(count: Sequence[int]) -> Extents:
    """A block's extents as the compressor takes them: if more than four, 1s are dropped and the slowest axes merged.

    (As in block_shape of plugin.cpp.)
    """
    if len(count) <= MAX_FIELD_NDIM:
        return tuple(count)
    kept = [extent for extent in count if extent != 1] or [1]
    n_merged = max(len(kept) - MAX_FIELD_NDIM, 0) + 1
    return (math.prod(kept[:n_merged]), *kept[n_merged:])


def intersection(a: Box, b: Box) -> Box:
    """The elements that two boxes have in common, if they have any."""
    start = tuple(map(max, a[0], b[0]))
    ends = (min(s + c, t + d) for s, c, t, d in zip(*a, *b, strict=True))
    return start, tuple(end - s for s, end in zip(start, ends, strict=True))


def pieces(box: Box, max_values: int = 2**22) -> Iterator[Box]:
    """Splits a box into boxes of at most `max_values` values."""
    start, count = box
    if math.prod(count) <= max_values:
        yield box
        return
    axis = next(axis for axis in range(len(count)) if math.prod(count[axis + 1 :]) <= max_values)
    rows = max_values // math.prod(count[axis + 1 :])
    for outer in np.ndindex(count[:axis]):
        for first in range(0, count[axis], rows):
            begin = (*outer, first, *(0,) * (len(count) - axis - 1))
            extents = (*(1,) * axis, min(rows, count[axis] - first), *count[axis + 1 :])
            yield tuple(s + b for s, b in zip(start, begin, strict=True)), extents


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
    """For every box, whether its first element also lies in another box; False if it has no elements.

    Args:
        start, count: of shape (boxes, dimensions).

    Returns:
        Of shape (boxes,).
    """
    begins = np.zeros(len(start), np.bool_)
    # A box and those that contain its first element are in one group: if a cut crosses some of them, all of them are
    # on the side where that element is.
    for numbers, low, high in _groups(start, count):
        open_points = np.arange(len(numbers))  # those found in at most one box so far: their own
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
        cut = best_cut(low, high) if len(numbers) > _COMPARED else None
        if cut is None:
            yield numbers, low, high
            continue
        to_do += [(numbers[half], low[half], high[half]) for half in sides(low, high, *cut)]


def sides(
    low: NDArray[np.int64], high: NDArray[np.int64], axis: int, cut: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which boxes have elements before an index along an axis, and which from there on: a box may be in both."""
    return low[:, axis] < cut, high[:, axis] > cut


def best_cut(low: NDArray[np.int64], high: NDArray[np.int64]) -> tuple[int, int] | None:
    """The axis, and the index along it, at which to cut boxes into two halves; None if no cut makes both sides
    smaller."""
    best = None
    fewest = len(low)
    for axis in np.argsort(low.min(axis=0) - low.max(axis=0), kind="stable") if fewest else ():  # the longest first
        starts = low[:, axis]
        cut = np.partition(starts, len(starts) // 2)[len(starts) // 2]
        if cut == starts.min():
            if (starts == cut).all():
                continue
            cut = starts[starts > cut].min()
        larger = max(int(np.count_nonzero(side)) for side in sides(low, high, axis, cut))
        if larger < fewest:
            best, fewest = (int(axis), int(cut)), larger
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
