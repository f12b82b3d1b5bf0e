"""Levels of a variable: the points of its global array that belong to the same level of all its blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core.errors import ParameterError

from ..tables.boxes import Box, Extents, intersection

_HALVED = 3  # how many of the last dimensions a level halves


@dataclasses.dataclass(frozen=True)
class VariableLevel:
    """A coarser version of a variable: the values that belong to the same level of every block.

    Attributes:
        number: of the level; 0 is the variable itself.
        coordinates: for each axis the indices, in the global array, of the values along it, ascending: int64. Their
            distances differ where blocks do not begin at multiples of the level's step.
    """

    number: int
    coordinates: tuple[NDArray[np.int64], ...]

    @property
    def shape(self) -> Extents:
        """Its extents."""
        return tuple(len(along) for along in self.coordinates)

    def box_of(self, block: Box) -> Box:
        """Where in the level the values of a box of the global array are, as (start, count)."""
        first = [np.searchsorted(along, s) for along, s in zip(self.coordinates, block[0], strict=True)]
        ends = [np.searchsorted(along, s + c) for along, s, c in zip(self.coordinates, *block, strict=True)]
        return tuple(map(int, first)), tuple(int(end - begin) for begin, end in zip(first, ends, strict=True))

    def box_within(self, block: Box, box: Box) -> tuple[Box, Extents]:
        """The part of a block that is in a box of the level: where that part lies in the level, and where it begins in
        the block's own level."""
        own = self.box_of(block)
        common = intersection(own, box)
        return common, tuple(c - s for c, s in zip(common[0], own[0], strict=True))


def steps_of(count: Extents, level: int) -> Extents:
    """The distances between the values of a level of a block."""
    halved = count[-_HALVED:] if len(count) > 4 else count  # the core merges the others
    levels = cusz_core.levels_of_shape(halved)
    own = levels[min(level, len(levels) - 1)].step
    return (*(1,) * (len(count) - len(own)), *own)


def n_levels(counts: NDArray[np.int64]) -> int:
    """The number of levels of a variable whose blocks have these extents: the largest number of any block.

    Args:
        counts: of shape (blocks, dimensions).
    """
    counts = np.unique(counts, axis=0)
    halved = [tuple(count[-_HALVED:] if len(count) > 4 else count) for count in counts.tolist()]
    return max((len(cusz_core.levels_of_shape(count)) for count in halved), default=1)


def level_of(
    shape: Extents, start: NDArray[np.int64], count: NDArray[np.int64], level: int, what: str
) -> VariableLevel:
    """A level of a variable.

    Args:
        shape: of the global array.
        start, count: of the blocks that have values, of shape (blocks, dimensions); without any, as if one had all.
        level: its number.
        what: the variable in words.

    Raises:
        ParameterError: there is no such level, or its values do not form a grid.
    """
    if not len(start):
        start, count = np.zeros((1, len(shape)), np.int64), np.array([shape], np.int64)
    number = n_levels(count)
    if not 0 <= level < number:
        raise ParameterError(f"level is {level}; {what} has the levels 0 to {number - 1}")
    if level == 0:
        return VariableLevel(0, tuple(np.arange(extent) for extent in shape))
    extents, which = np.unique(count, axis=0, return_inverse=True)
    step = np.array([steps_of(tuple(each), level) for each in extents.tolist()], np.int64)[which.reshape(-1)]
    coordinates = []
    for axis in range(len(shape)):
        # Blocks side by side have the same points along an axis: each set of points is handled once.
        runs, block = np.unique(
            np.column_stack([start[:, axis], count[:, axis], step[:, axis]]), axis=0, return_index=True
        )
        points = [np.arange(s, s + c, d) for s, c, d in runs.tolist()]
        along = np.unique(np.concatenate(points))
        first, end = np.searchsorted(along, runs[:, 0]), np.searchsorted(along, runs[:, 0] + runs[:, 1])
        own = np.array([len(each) for each in points])
        for i in np.flatnonzero(end - first != own):
            beyond = np.setdiff1d(along[first[i] : end[i]], points[i])[0]
            other = next(j for j, each in enumerate(points) if beyond in each)
            a, b = (tuple(start[block[k]].tolist()) for k in (i, other))
            raise ParameterError(
                f"level {level} of {what} is no grid: along axis {axis} the block at {b} has values at {beyond}, and "
                f"the block at {a}, which reaches there, has none: read the level of one block at a time (block=)"
            )
        coordinates.append(along)
    return VariableLevel(level, tuple(coordinates))
