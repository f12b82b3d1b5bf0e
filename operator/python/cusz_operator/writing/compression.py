"""A rank's local work at the end of a step: finding the value ranges of its blocks, and compressing them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import Parameters, embedding
from cusz_core.parameters import Coarse, Mode

from ..tables.blocktable import rows_of, table_dtype
from ..tables.boxes import MAX_FIELD_NDIM, Extents, field_shape
from ..tables.representation import is_exact, is_packed
from .agreement import Description
from .blocks import Blocks

_MAX_BOUNDED = 1000
_ALIGNMENT = 64  # of an archive's memory


class Compressed(NamedTuple):
    """The compressed blocks of a variable, and columns of the block table for them.

    Attributes:
        archives: one per block, valid until the next step.
        predictors: the number of blocks coded with each; blocks stored raw have none.
        ranges: of their values: float64 of shape (blocks, 3), as `cusz_core.ValueRange`.
    """

    archives: Sequence[bytes | memoryview]
    predictors: Counter[str]
    archive_bytes: NDArray[Any]
    checksum: NDArray[Any]
    outliers: NDArray[Any]
    eb_abs: NDArray[np.float64]
    ranges: NDArray[np.float64]
    seconds: NDArray[np.float64]


def described(blocks: Sequence[Blocks]) -> tuple[Description, ...]:
    """Descriptions of a rank's blocks, for the other ranks."""
    told = []
    for of in blocks:
        start, count = (np.array(each, np.int64).reshape(len(of), -1) for each in (of.start, of.count))
        what = (of.name, of.dtype.name, of.given, of.dimensions, of.shape)
        told.append(Description(*what, of.parameters, of.wanted, start, count))
    return tuple(told)


class Compressor:
    """Compresses the blocks of every step into the same memory.

    Args:
        ranges: whether to find value ranges even where the bound does not depend on them.
    """

    def __init__(self, ranges: bool) -> None:
        self._ranges = ranges
        self._archives: dict[int, NDArray[np.uint8]] = {}  # memory, by the variable's number in the step
        #: By identity, mode, bound and `coarse`.
        self._bounded: dict[tuple[int, Mode, float, Coarse | None], tuple[Parameters, Parameters]] = {}

    def ranges_before(self, blocks: Blocks) -> NDArray[np.float64]:
        """The value ranges of blocks, if they must be found before compression; otherwise NaN.

        Returns:
            Of shape (blocks, 3), as `cusz_core.ValueRange`.
        """
        parameters = blocks.parameters
        found = np.full((len(blocks), 3), (math.nan, math.nan, 0.0))
        if is_exact(blocks.dtype):
            for i, field in enumerate(blocks.fields) if self._ranges else ():
                if field.size:
                    found[i] = float(field.min()), float(field.max()), field.size
        elif parameters.mode == "rel" or blocks.wanted is not None or (self._ranges and blocks.given == "float16"):
            for i, field in enumerate(blocks.fields):
                found[i] = cusz_core.value_range(field, parameters.fill, threads=parameters.threads)
        return found

    def compress(
        self, number: int, blocks: Blocks, found: NDArray[np.float64], bound: float, coarse: Coarse | None = None
    ) -> Compressed:
        """Compresses the blocks of a variable; integers are packed, or stay as they are.

        Args:
            number: of the variable in the step.
            found: the ranges of their values, if they are known.
            bound: the absolute bound; in mode "pw_rel" the bound relative to every value.
            coarse: in place of the parameters' own; None: that one.
        """
        if is_exact(blocks.dtype):
            return _exactly(blocks, found, bound)
        parameters = self._with_bound(blocks, found, bound, coarse)
        ranges = self._ranges and bool(np.isnan(found[:, 0]).all())
        memory = self._memory(number, blocks)
        # Of more than four dimensions, the number that is left may differ from block to block (`field_shape`).
        is_alike = len(blocks.shape) <= MAX_FIELD_NDIM or len({field.ndim for field in blocks.fields}) == 1
        if len(blocks) > 1 and is_alike and memory is not None:
            made = _at_once(blocks, parameters, memory, ranges)
        else:
            made = _one_by_one(blocks, parameters, memory, ranges)
        if not ranges:
            made = made._replace(ranges=found)
        if parameters.mode != "pw_rel":  # in which it is NaN, or 0 for a block stored raw
            made = made._replace(eb_abs=np.full(len(blocks), bound))
        return made

    def _memory(self, number: int, blocks: Blocks) -> NDArray[np.uint8] | None:
        """Memory for archives, kept from step to step because fresh pages cost more than the copy. Pages that no
        archive needs are never touched and take no physical memory. None if there is not enough address space."""
        needed = sum(_room(count, blocks.dtype) for count in blocks.count)
        kept = self._archives.get(number)
        if kept is None or kept.nbytes < needed:
            self._archives.pop(number, None)
            try:
                kept = self._archives[number] = np.empty(needed, np.uint8)
            except MemoryError:
                return None
        return kept

    def _with_bound(
        self, blocks: Blocks, found: NDArray[np.float64], bound: float, coarse: Coarse | None
    ) -> Parameters:
        """The parameters with an absolute bound, or one relative to every value. If a relative bound is 0 because each
        block is constant or empty, it stays relative: as exact as an absolute 0, which would store the blocks raw."""
        parameters = blocks.parameters
        mode, eb = parameters.mode, bound
        if mode != "pw_rel":
            is_relative = blocks.wanted is not None or (mode == "rel" and parameters.eb > 0)
            is_flat = bound == 0 and is_relative and not (found[:, 0] < found[:, 1]).any()
            mode, eb = ("rel", parameters.eb or 1.0) if is_flat else ("abs", bound)
        key = (id(parameters), mode, eb, coarse)
        known = self._bounded.get(key)
        if known is None or known[0] is not parameters:
            if len(self._bounded) > _MAX_BOUNDED:
                self._bounded.clear()
            own = dataclasses.replace(with_coarse(parameters, coarse), eb=eb, mode=mode)
            known = self._bounded[key] = parameters, own
        return known[1]


def with_coarse(parameters: Parameters, coarse: Coarse | None) -> Parameters:
    """The parameters with another `coarse`, if it is not None."""
    if coarse is None:
        return parameters
    # At the same bound, "auto" would take the shorter archive, whose PSNR may be lower.
    predictor = parameters.predictor if coarse == "same" else "spline"
    return dataclasses.replace(parameters, coarse=coarse, predictor=predictor)


@functools.lru_cache(1024)
def _room(count: Extents, dtype: np.dtype[Any]) -> int:
    """Bytes of memory for the archive of a block."""
    most = cusz_core.max_archive_bytes(field_shape(count), dtype)
    return -(-most // _ALIGNMENT) * _ALIGNMENT


def _at_once(blocks: Blocks, parameters: Parameters, memory: NDArray[np.uint8], ranges: bool) -> Compressed:
    began = time.perf_counter()
    made, rows = cusz_core.compress_many_described(blocks.fields, parameters, out=memory, ranges=ranges)
    seconds = time.perf_counter() - began
    ends = [0, *np.cumsum(rows["archive_bytes"], dtype=np.int64).tolist()]
    numbers, counts = np.unique(rows["predictor"], return_counts=True)
    names = map(embedding.predictor_name, numbers.tolist())
    raw_bytes = blocks.raw_bytes()
    return Compressed(
        [made[begin:end] for begin, end in itertools.pairwise(ends)],
        Counter({name: count for name, count in zip(names, counts.tolist(), strict=True) if name is not None}),
        rows["archive_bytes"],
        rows["checksum"],
        rows["outliers"],
        rows["eb_abs"],
        np.stack([rows[column].astype(np.float64) for column in ("min", "max", "values")], axis=1),
        seconds * raw_bytes / max(int(raw_bytes.sum()), 1),
    )


def _one_by_one(blocks: Blocks, parameters: Parameters, memory: NDArray[np.uint8] | None, ranges: bool) -> Compressed:
    made, seconds, at = [], [], 0
    for field, count in zip(blocks.fields, blocks.count, strict=True):
        began = time.perf_counter()
        room = _room(count, blocks.dtype)
        out = None if memory is None else memory[at : at + room]
        made.append(cusz_core.compress_described(field, parameters, out=out, ranges=ranges))
        at += room
        seconds.append(time.perf_counter() - began)
    return Compressed(
        [one.archive for one in made],
        Counter(one.predictor for one in made if one.predictor is not None),
        np.array([len(one.archive) for one in made]),
        np.array([one.checksum for one in made]),
        np.array([one.outliers for one in made]),
        np.array([one.eb_abs for one in made]),
        np.array([one.range for one in made], np.float64),
        np.array(seconds),
    )


def _exactly(blocks: Blocks, found: NDArray[np.float64], bound: float) -> Compressed:
    stored: list[bytes | memoryview] = []
    checksums, seconds = [], []
    for field in blocks.fields:
        began = time.perf_counter()
        values = memoryview(field.reshape(-1).view(np.uint8))
        stored.append(embedding.packed(field, "zstd") if is_packed(blocks.parameters) else values)
        checksums.append(zlib.crc32(values))
        seconds.append(time.perf_counter() - began)
    sizes, none = np.array([len(one) for one in stored]), np.zeros(len(blocks), np.int64)
    bounds = np.full(len(blocks), bound)
    return Compressed(stored, Counter(), sizes, np.array(checksums), none, bounds, found, np.array(seconds))


class StepWork:
    """A rank's blocks at a step, and what is made of them.

    Attributes:
        blocks: by variable.
        ranges: of their values, as far as they are known before compression (`Compressor.ranges_before`).
    """

    def __init__(self, compressor: Compressor, blocks: Sequence[Blocks], ranges: Sequence[NDArray[np.float64]]) -> None:
        self.blocks, self.ranges = blocks, ranges
        self._compressor = compressor
        self._made: dict[int, Compressed] = {}
        self._on_host: dict[tuple[int, int], NDArray[Any]] = {}

    def compress(self, number: int, bound: float, coarse: Coarse | None = None) -> Compressed:
        """Compresses the blocks of a variable, and replaces what an earlier call has made of them. Arguments: as of
        `Compressor.compress`."""
        blocks, found = self.blocks[number], self.ranges[number]
        self._made[number] = made = self._compressor.compress(number, blocks, found, bound, coarse)
        return made

    def on_host(self, number: int, block: int) -> NDArray[Any]:
        """The field of a block of a variable, in host memory."""
        key = (number, block)
        if key not in self._on_host:
            self._on_host[key] = embedding.on_host(self.blocks[number].fields[block])
        return self._on_host[key]

    def compress_all(self, bounds: Mapping[str, float]) -> None:
        """Compresses the blocks that have not been compressed yet, and whose bounds are known."""
        for number, of in enumerate(self.blocks):
            if of.wanted is None and number not in self._made:
                self.compress(number, bounds[of.name])

    def with_blocks(self, blocks: Sequence[Blocks]) -> StepWork:
        """The same work for other blocks, which have the same values."""
        other = StepWork(self._compressor, blocks, self.ranges)
        other._made.update(self._made)
        return other

    def made(self) -> list[Compressed]:
        """The compressed blocks, by variable."""
        return [self._made[number] for number in sorted(self._made)]

    def sizes(self) -> tuple[int, int]:
        """Bytes of the blocks that have been compressed, as they were put, and of their archives."""
        before = sum(int(self.blocks[number].given_bytes().sum()) for number in self._made)
        return before, sum(int(made.archive_bytes.sum()) for made in self.made())


def parts_of(blocks: Sequence[Blocks], made: Sequence[Compressed], rank: int) -> dict[str, NDArray[np.float64]]:
    """A rank's rows of the block table of every variable, as they are stored, but without the number of the step.

    Args:
        blocks, made: of the rank.
    """
    parts = {}
    for of, compressed in zip(blocks, made, strict=True):
        table = np.zeros(len(of), table_dtype(len(of.shape)))
        table["rank"] = rank
        table["device"] = of.devices
        table["start"], table["count"] = of.start, of.count
        table["raw_bytes"] = of.raw_bytes()
        low, high, values = compressed.ranges.T
        table["min"] = np.where(values == 0, np.nan, low)
        table["max"] = np.where(np.isnan(table["min"]), np.nan, high)
        for column in ("archive_bytes", "eb_abs", "outliers", "checksum", "seconds"):
            table[column] = getattr(compressed, column)
        parts[of.name] = rows_of(table)
    return parts
