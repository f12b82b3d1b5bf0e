"""Finds out whether blocks of different ranks overlap, without any rank knowing all of them.

Blocks are sorted into regions of space, one for each rank, like numbers in a quicksort on a hypercube. In each round,
a group of ranks agrees on a cut that halves its blocks, from a sample of them; every rank keeps the blocks on its side
of the cut, sends the others to its partner in the other half of the group, and the halves go on as separate groups.
Blocks on both sides of a cut are kept on both, so that blocks that overlap meet in the region where they do. A rank
exchanges O(log(ranks)^2) messages, and sees about as many blocks as it puts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cusz_core.errors import ParameterError

from ..ranks import Caught, Ranks
from ..tables.boxes import best_cut, first_overlap, sides
from .agreement import Description

_SAMPLE = 64  # blocks from which a cut is chosen
_RANK, _INDEX, _PLACE = 0, 1, 2  # columns: the rank that puts a block, the block's number there, and where it lies


def no_rows(ndim: int) -> NDArray[np.int64]:
    """An empty array of rows, for blocks of at most `ndim` dimensions."""
    return np.empty((0, _PLACE + 2 * (1 + ndim)), np.int64)


def rows_of(
    rank: int, names: Sequence[str], told: Sequence[Description], which: NDArray[np.bool_], ndim: int
) -> NDArray[np.int64]:
    """Blocks of a rank as `first_pair` takes them: the blocks of some variables, except for empty ones.

    Args:
        names: of all variables.
        told: the rank's blocks.
        which: the variables whose blocks are wanted.
        ndim: the largest number of dimensions of a variable on any rank. Others have extent 1 along the rest.
    """
    parts = [no_rows(ndim)]
    numbers = {name: number for number, name in enumerate(names)}
    index = 0
    for block in told:
        variable, n = numbers[block.name], len(block.start)
        part = np.zeros((n, parts[0].shape[1]), np.int64)
        part[:, _RANK], part[:, _INDEX] = rank, np.arange(index, index + n)
        low, high = _places(part)
        low[:, 0], high[:, 0], high[:, 1:] = variable, variable + 1, 1
        own = slice(1, 1 + block.start.shape[1])
        low[:, own], high[:, own] = block.start, block.start + block.extents
        if which[variable]:
            parts.append(part[(high > low).all(axis=1)])
        index += n
    return np.concatenate(parts)


def error_of(
    pair: tuple[NDArray[np.int64], NDArray[np.int64]],
    names: Sequence[str],
    arrays: Mapping[str, Description],
) -> ParameterError:
    """The error for two blocks that overlap."""
    name = names[int(pair[0][_PLACE])]
    own = slice(1, 1 + len(arrays[name].shape))
    said = []
    for row in pair:
        low, high = (place[0, own] for place in _places(row[None]))
        start, count = tuple(low.tolist()), tuple((high - low).tolist())
        said.append((start, count, int(row[_RANK])))
    (start, count, rank), (other_start, other_count, other_rank) = said
    return ParameterError(
        f"variable {name!r}: the block at {start} with extents {count} of rank {rank} overlaps that at "
        f"{other_start} with extents {other_count} of rank {other_rank}"
    )


def first_pair(ranks: Ranks, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Two blocks of one variable that have elements in common, if this rank finds some (collective).

    A rank takes part to the end, even if it fails.

    Args:
        rows: this rank's blocks (`rows_of`).

    Raises:
        Exception: what went wrong on this rank.
    """
    search = _Search(ranks, rows)
    search.distribute()
    if search.caught.error is not None:
        raise search.caught.error
    return search.pair()


class _Search:
    """A rank's part in the search.

    Attributes:
        rows: the blocks that this rank has at present.
        caught: the error of this rank, if it has failed; it then goes on without blocks.
    """

    def __init__(self, ranks: Ranks, rows: NDArray[np.int64]) -> None:
        self._ranks, self._none = ranks, rows[:0]
        self.rows = rows
        self.caught = Caught()

    def distribute(self) -> None:
        rank, size = self._ranks.rank, self._ranks.size
        rounds = size.bit_length() - 1
        regions = 1 << rounds
        if rank >= regions:  # those beyond a power of two have no region
            self._ranks.send(self.rows, rank - regions)
            self.rows = self._none
            return
        if rank + regions < size:
            self._take(self._ranks.receive(rank + regions))
        for bit in reversed([1 << i for i in range(rounds)]):
            cut = self._agreed_cut(bit)
            own, others = self._divided(cut, is_low=not rank & bit)
            self.rows = own
            self._take(self._ranks.exchanged(others, rank ^ bit))

    def pair(self) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        rows = np.unique(self.rows, axis=0)  # in the order of ranks and indices
        low, high = _places(rows)
        found = first_overlap(low, high - low)
        return None if found is None else (rows[found[0]], rows[found[1]])

    def _agreed_cut(self, largest_bit: int) -> tuple[int, int] | None:
        """The cut for the group of ranks whose numbers differ only in bits up to this one: all find the same cut."""
        sample = self._tried(_sampled, [self.rows])
        bit = 1
        while bit <= largest_bit:
            sample = self._tried(_sampled, [sample, self._ranks.exchanged(sample, self._ranks.rank ^ bit)])
            bit <<= 1
        with self.caught:
            return best_cut(*_places(sample))
        return None

    def _divided(self, cut: tuple[int, int] | None, is_low: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The blocks on this rank's side of a cut, and those on the other; without a cut, all are on the lower one."""
        if cut is None:
            return (self.rows, self._none) if is_low else (self._none, self.rows)
        with self.caught:
            low, high = sides(*_places(self.rows), *cut)
            return self.rows[low if is_low else high], self.rows[high if is_low else low]
        return self._none, self._none

    def _take(self, rows: NDArray[np.int64]) -> None:
        self.rows = self._tried(np.concatenate, [self.rows, rows])

    def _tried(
        self, work: Callable[[list[NDArray[np.int64]]], NDArray[np.int64]], parts: list[NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        with self.caught:
            return self._none if self.caught.error is not None else work(parts)
        return self._none


def _places(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where blocks begin and end; along the first axis, the variable's number."""
    ndim = (rows.shape[1] - _PLACE) // 2
    return rows[:, _PLACE : _PLACE + ndim], rows[:, _PLACE + ndim :]


def _sampled(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The blocks with the smallest hashes: a sample of the samples of two sets is a sample of both sets together."""
    rows = np.concatenate(parts)
    if len(rows) <= _SAMPLE:
        return rows
    hashed = (rows[:, _RANK].astype(np.uint64) << np.uint64(32)) + rows[:, _INDEX].astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # of splitmix64
        hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    hashed ^= hashed >> np.uint64(31)
    return rows[np.lexsort((rows[:, _INDEX], rows[:, _RANK], hashed))[:_SAMPLE]]
