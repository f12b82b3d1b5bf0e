"""What a file or stream has: its variables, their blocks, and the archives of the blocks."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
import math
import re
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding
from cusz_core.errors import CorruptArchiveError, CuszError, ParameterError, UnsupportedError

from ..forks import free_after_fork
from ..plugin import Plugin
from ..tables import blocktable, checks
from ..tables.boxes import Box, Extents, field_shape, first_overlap
from ..tables.representation import PARTS, attribute_name, widening
from ..tables.stored import DTYPES, FLOATS, INTEGERS, RAW_OVERHEAD_BYTES, VERBATIM_TAG, mark_of
from .datafiles import DataFiles, Place, StepLayout
from .input import Input, Placed

_FRONT_BYTES = 512  # of an archive, besides its index: more than precedes what is decoded
_MAX_CUTS = 1 << 16  # between ranks, that are kept: finding them takes the block tables of all variables
# What ADIOS2 fetches in the time that it takes to read a block table, in the time for a row of it, and in the time by
# which it is slower for every block than a data file.
_BYTES_PER_TABLE, _BYTES_PER_ROW, _BYTES_PER_BLOCK = 1 << 21, 2560, 1 << 19


@dataclasses.dataclass(frozen=True)
class Entry:
    """A variable, as users see it.

    Attributes:
        stored: the variables of the file that store it: itself, or the parts of complex numbers.
        type: ADIOS2's name of their type.
        given: the type that a Writer was given, if it is another (`representation`); else "".
        dtype: of the values; object for texts; None if numpy does not have the type.
        is_part: whether it is a part of complex numbers, which is not listed.
    """

    stored: tuple[str, ...]
    type: str
    given: str
    dtype: np.dtype[Any] | None
    is_part: bool = False


@dataclasses.dataclass
class Blocks:
    """The blocks of an array at a step.

    Attributes:
        table: of `blocktable.table_dtype`.
        has_table: whether `table` is a block table; if not, it has only what ADIOS2 knows (`_table_of_others`).
        may_be_archives: False once a block was found not to be compressed by this plugin: ADIOS2 then reads all.
    """

    table: NDArray[Any]
    has_table: bool
    may_be_archives: bool = True

    @functools.cached_property
    def _edges(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Where blocks begin and end along each axis: copies, because a column of the table is scattered in memory."""
        start, end = self.table["start"], self.table["start"] + self.table["count"]
        return [(start[:, axis].copy(), end[:, axis].copy()) for axis in range(start.shape[1])]

    def box(self, number: int) -> Box:
        """Where a block lies."""
        return tuple(self.table["start"][number].tolist()), tuple(self.table["count"][number].tolist())

    def meeting(self, box: Box) -> NDArray[np.int64]:
        """The numbers of the blocks that have elements in common with a box."""
        numbers: NDArray[np.int64] | None = None
        for (start, end), first, count in zip(self._edges, *box, strict=True):
            own = (start, end) if numbers is None else (start[numbers], end[numbers])
            meets = np.flatnonzero(np.minimum(own[1], first + count) > np.maximum(own[0], first))
            numbers = meets if numbers is None else numbers[meets]
        return np.arange(len(self.table)) if numbers is None else numbers

    def parts(self, box: Box) -> list[tuple[int, Box, Box]]:
        """The blocks that have elements in common with a box: the number of each, where it lies, and these elements."""
        numbers = self.meeting(box)
        start, count = self.table["start"][numbers], self.table["count"][numbers]
        first = np.maximum(start, box[0])
        extent = np.minimum(start + count, np.add(*box)) - first
        boxes = (list(map(tuple, corners.tolist())) for corners in (start, count, first, extent))
        return [(number, (s, c), (f, e)) for number, s, c, f, e in zip(numbers.tolist(), *boxes, strict=True)]

    @functools.cached_property
    def filled(self) -> NDArray[np.int64]:
        """The numbers of the blocks that have values."""
        return np.flatnonzero((self.table["count"] > 0).all(axis=1))

    @functools.cached_property
    def overlap(self) -> bool:
        """Whether blocks have elements in common. If so, they cannot be fetched one by one."""
        if self.has_table:
            return False  # a Writer refuses that
        return first_overlap(self.table["start"], self.table["count"]) is not None


for _cached in filter(None, (getattr(each, "lock", None) for each in vars(Blocks).values())):
    free_after_fork(_cached, "innermost")  # before Python 3.12, a cached property has a lock, for all instances


_MAX_UNUSED = 1 << 10  # bytes that a kept archive may keep in memory besides its own


class Cache:
    """The most recently used archives, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[tuple[str, int, int], NDArray[np.uint8]] = {}  # most recently used last
        self._bytes = 0

    def get(self, key: tuple[str, int, int]) -> NDArray[np.uint8] | None:
        archive = self._kept.pop(key, None)
        if archive is not None:
            self._kept[key] = archive
        return archive

    def put(self, key: tuple[str, int, int], archive: NDArray[np.uint8]) -> None:
        if archive.nbytes > self._max_bytes:
            return
        if key in self._kept:  # two threads have fetched it
            return
        if archive.base is not None and archive.base.nbytes > archive.nbytes + _MAX_UNUSED:
            archive = archive.copy()  # of several that were read at once
        self._kept[key] = archive
        self._bytes += archive.nbytes
        while self._bytes > self._max_bytes:
            self._bytes -= self._kept.pop(next(iter(self._kept))).nbytes

    def drop(self, key: tuple[str, int, int]) -> None:
        dropped = self._kept.pop(key, None)
        self._bytes -= dropped.nbytes if dropped is not None else 0

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


class Contents:
    """What is known about the variables of a file or stream, and archives that are kept.

    Attributes:
        path: of the file or stream.
        input: its ADIOS2 side.
        rank, size: of the process among those that read.
        threads: number of threads that decode.
        reads_files: whether archives are read from data files, without ADIOS2.
    """

    def __init__(
        self,
        path: str,
        comm: Any,
        engine: str | None,
        parameters: Mapping[str, Any] | None,
        threads: int | None,
        cache_bytes: int,
    ) -> None:
        self.path = path
        is_stream = engine == "SST"
        if not is_stream and (not path or not Path(path).exists()):
            raise FileNotFoundError(f"{path!r} does not exist")
        if not is_stream and not Path(path).is_dir():
            raise NotADirectoryError(f"{path!r} is a file, not a .bp folder")
        self.rank: int = comm.rank if comm is not None else 0
        self.size: int = comm.size if comm is not None else 1
        self.threads = embedding.threads(threads) or cusz_core.default_threads()
        self._cache = Cache(embedding.bytes_limit(cache_bytes, "cache_bytes"))
        self._lock = free_after_fork(threading.RLock(), "contents")  # guards what is kept here
        self._verified = None if is_stream else checks.verify(Path(path), may_lack_data=True)
        self._checks = {} if self._verified is None else self._verified.tables
        self.input = Input(path, comm, engine, parameters, Plugin())
        self._data = DataFiles(Path(self.input.absolute)) if self._checks else None
        self.reads_files = self._data is not None
        self._captured_bytes = 0
        self._places: dict[tuple[str, int], NDArray[np.int64] | None] = {}  # of archives; None: not known
        self._asked: dict[tuple[str, int], int] = {}  # raw bytes of blocks that have been asked for
        self._layout = StepLayout(-1, 0)  # of one step at a time: it takes memory
        self._names_by_step: dict[int, list[str]] = {}  # of a Writer's variables, in the order in which it puts them
        for step, name in sorted(self._checks):
            self._names_by_step.setdefault(step, []).append(name)
        if len(self._names_by_step) == self.input.n_steps:
            self.input.add_steps(self._checks)
        self._known: dict[tuple[str, int], Blocks] = {}
        self._cuts: dict[tuple[int, Extents], list[int]] = {}
        self._alike: tuple[int, dict[Extents, list[str]]] = (-1, {})  # of one step: names of arrays by shape
        self._known_entries: dict[str, Entry] | None = None

    def __reduce__(self) -> Any:
        raise TypeError(f"a Reader cannot be sent to another process: open {self.path!r} there")

    def received(self) -> Iterator[int]:
        """The steps of a stream. What is known about one is forgotten when the next one is requested."""
        for step in self.input.received():
            self._known_entries = None
            try:
                yield step
            finally:
                with self._lock:
                    self._known_entries = None
                    self._known.clear()
                    self._cuts.clear()
                    self._cache.clear()

    def close(self, error: BaseException | None) -> None:
        """Closes it; `error` is why this process stops reading, if it has failed."""
        if self.input.is_open:
            self._cache.clear()
            if self._data is not None:
                self._data.close()
            self.input.close(error)

    def entries(self) -> dict[str, Entry]:
        """The variables by name, with the parts of complex numbers, but without block tables."""
        with self._lock:
            if self._known_entries is None:
                every = self.input.described().items()
                found = {name: self._entry(name, of["Type"]) for name, of in every if not blocktable.is_table(name)}
                for whole in [name.removesuffix(PARTS[0]) for name in found if name.endswith(PARTS[0])]:
                    given = self.input.attribute_text(attribute_name(whole))
                    parts = tuple(whole + part for part in PARTS)
                    if given.startswith("complex") and found.keys() >= set(parts):
                        found |= {part: dataclasses.replace(found[part], is_part=True) for part in parts}
                        found[whole] = Entry(parts, found[parts[0]].type, given, np.dtype(given))
                self._known_entries = dict(sorted(found.items()))
            return self._known_entries

    def _entry(self, name: str, adios2_type: str) -> Entry:
        given = self.input.attribute_text(attribute_name(name))
        dtype = np.dtype(given) if given in ("bool", "float16") else DTYPES.get(adios2_type)
        return Entry((name,), adios2_type, given, dtype)

    def names(self) -> list[str]:
        return [name for name, entry in self.entries().items() if not entry.is_part]

    def entry(self, name: str) -> Entry:
        entry = self.entries().get(name)
        if entry is None:
            names = ", ".join(self.names()) or "none"
            raise ParameterError(f"{self.path!r} has no variable {name!r}; it has {names}")
        return entry

    def entry_at(self, name: str, step: int) -> Entry:
        entry = self.entry(name)
        if step not in self.input.steps_of(entry.stored[0]):
            raise ParameterError(f"{self.path!r} has no variable {name!r} at step {step}")
        return entry

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of a variable's values, as `ReaderStep.dtype` gives it."""
        entry = self.entry(name)
        if entry.dtype is None:
            raise UnsupportedError(f"variable {name!r} is of ADIOS2's type {entry.type!r}, which numpy lacks")
        return entry.dtype

    def lacks_data(self, step: int) -> bool:
        """Whether data of a step are known to be missing, for which ADIOS2 would wait for ever."""
        lacking = None if self._verified is None else self._verified.lacking
        return lacking is not None and step >= lacking

    def require_data(self, step: int) -> None:
        """
        Raises:
            CorruptArchiveError: data of a step are missing.
        """
        if self._verified is not None and self.lacks_data(step):
            raise CorruptArchiveError(self._verified.why)

    def blocks(self, name: str, step: int) -> Blocks:
        """The blocks of an array at a step."""
        key = (name, step)
        with self._lock:
            if key not in self._known:
                self.entry_at(name, step)
                self._known = {key: self._found(name, step), **dict(list(self._known.items())[:63])}
            return self._known[key]

    def _found(self, name: str, step: int) -> Blocks:
        if self.input.shape(name, step) == ():
            raise ParameterError(f"variable {name!r} is one value: it has no blocks")
        self.require_data(step)
        rows = self._rows(name, step)
        if rows is None:
            placed = self.input.placed(name, step)
            return Blocks(_table_of_others(placed, step, self.entry(name).dtype), has_table=False)
        is_checked = (step, name) in self._checks
        if is_checked and zlib.crc32(rows.data) != self._checks[step, name]:
            raise CorruptArchiveError(f"{self.path!r}: the block table of {name!r} at step {step} is damaged")
        table = blocktable.table_of(rows, name)
        table["raw_bytes"] //= widening(self.entry(name).given)
        if is_checked:  # and so is ADIOS2's metadata
            return Blocks(table, has_table=True)
        placed = self.input.placed(name, step)
        # If ADIOS2 says that blocks lie elsewhere, one of the two is damaged.
        known, in_table = (np.hstack(both) for both in ((placed.start, placed.count), (table["start"], table["count"])))
        if known.shape[1] != in_table.shape[1] or (
            placed.is_known and not np.array_equal(_sorted_boxes(known), _sorted_boxes(in_table))
        ):
            raise CorruptArchiveError(
                f"{self.path!r}: variable {name!r}, step {step}: the block table and ADIOS2's metadata disagree about "
                "where the blocks are: the file is damaged"
            )
        return Blocks(table, has_table=True)

    def _rows(self, name: str, step: int) -> NDArray[np.float64] | None:
        """The rows of a variable's block table; None if it has none."""
        of_table = blocktable.table_name(name)
        told = self.input.described().get(of_table)
        if told is None:
            if (step, name) in self._checks:
                raise CorruptArchiveError(f"{self.path!r}: the block table of {name!r} is missing: the file is damaged")
            return None
        shape = self.input.shape(of_table, step) if step in self.input.steps_of(of_table) else None
        if shape is None and (step, name) not in self._checks:
            return None  # a step that another program appended
        if told["Type"] != "double" or shape is None or len(shape) != 2:
            raise CorruptArchiveError(
                f"{self.path!r}: {of_table!r} is not a block table of this package: it has type {told['Type']} and "
                f"shape {shape}"
            )
        rows: NDArray[np.float64] = self.input.values(of_table, step, ((0, 0), shape), np.dtype(np.float64))
        return rows

    def cuts(self, step: int, shape: Extents) -> list[int]:
        """Where the variables of a shape at a step are cut between ranks, along the first axis."""
        key = (step, shape)
        with self._lock:
            if key not in self._cuts:
                if len(self._cuts) * self.size > _MAX_CUTS:
                    self._cuts.clear()
                self._cuts[key] = self._cuts_of(step, shape)
            return self._cuts[key]

    def _cuts_of(self, step: int, shape: Extents) -> list[int]:
        stored_bytes = np.zeros(shape[0] + 1)  # changes from index to index
        for name in self._names_of(step, shape):
            try:
                blocks = self.blocks(name, step)
            except CuszError:  # of another variable
                continue
            first, count = blocks.table["start"][:, 0], blocks.table["count"][:, 0]
            stored = blocks.table["archive_bytes" if blocks.has_table else "raw_bytes"] / np.maximum(count, 1)
            np.add.at(stored_bytes, first, stored)
            np.add.at(stored_bytes, first + count, -stored)
        weights = np.maximum(np.cumsum(stored_bytes[:-1]), 0) + 1e-9
        total = np.concatenate([[0.0], np.cumsum(weights)])
        cuts: list[int] = np.searchsorted(total, total[-1] * np.arange(1, self.size) / self.size).tolist()
        return cuts

    def _names_of(self, step: int, shape: Extents) -> list[str]:
        """The variables of a shape at a step, of complex ones the real parts."""
        if self._alike[0] != step:
            found: dict[Extents, list[str]] = {}
            for name in self.names():
                first = self.entry(name).stored[0]
                with contextlib.suppress(CuszError):  # of another variable
                    if step in self.input.steps_of(first):
                        found.setdefault(self.input.shape(first, step) or (), []).append(first)
            self._alike = (step, found)
        return self._alike[1].get(shape, [])

    def archive(self, name: str, step: int, number: int, dtype: np.dtype[Any]) -> NDArray[np.uint8] | None:
        """The archive of a block, by its number; None if it is not compressed by this plugin."""
        found = self.archives(name, step, [number], dtype)
        return None if found is None else found[0]

    def archives(
        self, name: str, step: int, numbers: Sequence[int], dtype: np.dtype[Any]
    ) -> list[NDArray[np.uint8]] | None:
        """The archives of blocks, by their numbers; None if one of them is not compressed by this plugin."""
        with self._lock:
            cached = {number: self._cache.get((name, step, number)) for number in numbers}
        known = {number: archive for number, archive in cached.items() if archive is not None}
        unknown = [number for number in numbers if number not in known]
        known.update(self._fetched(name, step, unknown, dtype))
        for number in unknown:
            with self._lock:
                archive = known.get(number)
                if archive is None:
                    archive = self._captured(name, step, number, dtype)
                if archive is None:
                    return None
                self._cache.put((name, step, number), archive)
                known[number] = archive
        return [known[number] for number in numbers]

    def prefix(
        self, name: str, step: int, number: int, dtype: np.dtype[Any], level: int
    ) -> tuple[NDArray[np.uint8], int] | None:
        """At least those first bytes of a block's archive that a level needs, and the archive's length.

        Returns:
            None if the block is not compressed by this plugin.
        """
        key, key_of_prefix = (name, step, number), (name, step, -1 - number)
        with self._lock:
            known = self._cache.get(key)
            places = self._places_of(name, step, [number]) if known is None else None
            row = self.blocks(name, step).table[number]
            first = self._cache.get(key_of_prefix)
        is_as_stored = field_shape(row["count"].tolist()) == tuple(row["count"].tolist())  # no axes are merged
        if known is None and places is not None and self._data is not None and is_as_stored:
            archive_bytes = int(row["archive_bytes"])
            with contextlib.suppress(CuszError):
                first = _prefix(self._data, Place(places[0][0], places[1][0]), row, dtype, level, first)
                if first is not None:
                    with self._lock:
                        self._cache.drop(key_of_prefix)
                        self._cache.put(key_of_prefix, first)
                    return first, archive_bytes
        archive = self.archive(name, step, number, dtype)
        return None if archive is None else (archive, archive.nbytes)

    @property
    def bytes_read(self) -> int:
        """Bytes of archives that were read from data files, or given by ADIOS2."""
        return self._captured_bytes + (self._data.bytes_read if self._data is not None else 0)

    def info(self, name: str, step: int, number: int) -> cusz_core.ArchiveInfo | None:
        """What the archive of a block says of itself; None if the block is not compressed by this plugin."""
        archive = self.archive(name, step, number, DTYPES[self.entry(name).type])
        if archive is None:
            self.blocks(name, step).may_be_archives = False
            return None
        return cusz_core.inspect(archive)

    def _fetched(self, name: str, step: int, numbers: list[int], dtype: np.dtype[Any]) -> dict[int, NDArray[np.uint8]]:
        """Archives of blocks from data files, by number, if they are where they are expected."""
        places = self._places_of(name, step, numbers)
        if places is None or self._data is None or dtype not in (np.float32, np.float64):
            return {}
        rows = self.blocks(name, step).table[numbers]
        archives = self._data.archives(*places, rows["archive_bytes"].tolist())
        identities = iter(embedding.identities([archive for archive in archives if archive is not None]))
        found, kind = {}, embedding.dtype_id_of(dtype)
        for number, archive, count, checksum in zip(
            numbers, archives, rows["count"].tolist(), rows["checksum"].tolist(), strict=True
        ):
            if archive is not None and next(identities) == (kind, field_shape(count), checksum):
                found[number] = archive
        if len(found) < len(numbers):
            with self._lock:
                self._places[name, step] = None  # they are not where they were expected
        return found

    def _places_of(self, name: str, step: int, numbers: Sequence[int]) -> tuple[list[int], list[int]] | None:
        """Where the archives of blocks must lie: numbers of data files, and offsets; None if that is not known."""
        starts = self._data.starts(step) if self._data is not None else None
        if starts is None:
            return None
        with self._lock:
            if (name, step) not in self._asked:
                self.expect(name, step, numbers)
            relative = self._places.get((name, step))
        if relative is None:
            return None
        rank = self.blocks(name, step).table["rank"][numbers]
        return starts[0][rank].tolist(), (starts[1][rank] + relative[numbers]).tolist()

    def expect(self, name: str, step: int, numbers: Sequence[int]) -> None:
        """Says which blocks are going to be requested: if they are many, it pays to find out where the archives of the
        variable lie, which requires reading the block tables of the variables before it."""
        key = (name, step)
        with self._lock:
            starts = self._data.starts(step) if self._data is not None and key not in self._places else None
            if starts is None:
                return
            table = self.blocks(name, step).table
            asked = self._asked.pop(key, 0) + int(table["raw_bytes"][numbers].sum()) + _BYTES_PER_BLOCK * len(numbers)
            self._asked = {key: asked, **dict(list(self._asked.items())[:63])}
            names = self._names_by_step.get(step, [])
            end = bisect.bisect_right(names, name)
            is_there = end > 0 and names[end - 1] == name
            if self._layout.step != step:
                self._layout = StepLayout(step, len(starts[1]))
            begin = len(self._layout.places)
            if (end - begin - is_there) * (_BYTES_PER_TABLE + _BYTES_PER_ROW * len(table)) <= asked:
                is_known = is_there and self._laid_out(names[begin:end], step, len(starts[1]))
                places = self._layout.places[name] if is_known else None
                self._places = {key: places, **dict(list(self._places.items())[:63])}

    def _laid_out(self, unknown: Sequence[str], step: int, ranks: int) -> bool:
        """Adds variables to the layout of the step; False if the layout of one of them cannot be determined."""
        for other in unknown:
            try:
                table = self.blocks(other, step).table
                dtype = DTYPES[self.input.described()[other]["Type"]]
            except (CuszError, KeyError):
                return False  # which is an error of the other variable
            is_coded = dtype.kind == "f" or not np.array_equal(table["archive_bytes"], table["raw_bytes"])
            rank, stored_bytes = table["rank"].copy(), table["archive_bytes"].copy()
            if (np.diff(rank) < 0).any() or (rank < 0).any() or (rank >= ranks).any():
                return False
            self._layout.add(other, rank, stored_bytes, dtype.itemsize, is_coded)
        return True

    def _captured(self, name: str, step: int, number: int, dtype: np.dtype[Any]) -> NDArray[np.uint8] | None:
        """The archive of a block, from ADIOS2."""
        blocks = self.blocks(name, step)
        row = blocks.table[number]
        start, count = row["start"].tolist(), row["count"].tolist()
        what = self.block_in_words(name, step, tuple(start))
        raw_bytes = math.prod(count) * dtype.itemsize
        capacity = raw_bytes + RAW_OVERHEAD_BYTES
        if blocks.has_table:
            capacity = min(int(row["archive_bytes"]), capacity)
        archive = self.input.archive(name, step, start, dtype, capacity)
        if archive is None or mark_of(archive) or bytes(archive[:4]) == VERBATIM_TAG:
            if blocks.has_table:
                raise CorruptArchiveError(f"{what} is not compressed by this plugin")
            return None
        with naming(what):
            info = cusz_core.inspect(archive)
        # Without a table, extents may be in another order, such as Fortran's.
        fits = _is_block(info, row, dtype) if blocks.has_table else (info.raw_bytes, info.dtype) == (raw_bytes, dtype)
        self._captured_bytes += archive.nbytes
        if not fits:
            raise CorruptArchiveError(
                f"{what} is not the one that {'the block table' if blocks.has_table else 'the metadata'} describes"
            )
        return archive

    def block_in_words(self, name: str, step: int, start: Extents) -> str:
        return f"{self.path!r}: variable {name!r}, step {step}, the block at {start}"


class AsStored(NamedTuple):
    """A variable in a file.

    Attributes:
        dtype: the name of the type of its values, or "text".
        by_operator: whether this package's operator stores the values, at the last step at which an array has some;
            None for single values, arrays that never have values, and arrays that ADIOS2 cannot read.
        given: the type that a Reader returns, which differs from `dtype` if a Writer has converted the values.
        form: what it is, in words: "one value", "a 3-dimensional array", or "blocks without a place"; None where BP4
            does not tell.
        dimensions: their names; none if it has no attribute that tells them.
    """

    dtype: str
    by_operator: bool | None
    given: str
    form: str | None
    dimensions: tuple[str, ...]


def what_is_in(path: str) -> tuple[dict[str, AsStored], dict[str, str]]:
    """The variables of a file that a Writer could continue, a Writer's complex ones as the two that store them; and the
    types of its attributes.

    Raises:
        CuszError: the file cannot be read.
    """
    found = {}
    contents = Contents(path, None, None, None, threads=1, cache_bytes=0)
    try:
        entries = contents.entries()
        wholes = {part: whole for whole, entry in entries.items() if len(entry.stored) > 1 for part in entry.stored}
        for name, entry in entries.items():
            if entry.stored != (name,) or entry.type not in DTYPES:
                continue
            dtype = "text" if entry.type == "string" else DTYPES[entry.type].name
            by_operator = None
            if entry.type in {*FLOATS, *INTEGERS}:
                with contextlib.suppress(UnsupportedError):  # in BP4, if its first array is empty
                    by_operator = _is_stored_by_operator(contents, name, entry.type)
            whole = wholes.get(name, name)
            dimensions = re.findall(r"[^\s,]+", contents.input.attribute_text(f"{whole}/dimensions"))
            given = entries[whole].given or dtype
            found[name] = AsStored(dtype, by_operator, given, contents.input.form(name), tuple(dimensions))
        return found, contents.input.attribute_types()
    finally:
        contents.close(None)


def _is_stored_by_operator(contents: Contents, name: str, of_type: str) -> bool | None:
    """As `AsStored.by_operator`: None if it never has values, or is one value."""
    if contents.input.form(name) == "one value":
        return None
    for step in sorted(contents.input.steps_of(name), reverse=True):
        if contents.lacks_data(step):  # it is about to be dropped
            continue
        blocks = contents.blocks(name, step)
        if not len(blocks.filled):
            continue
        if blocks.has_table and of_type in FLOATS:  # of a Writer, which compresses all of them
            return True
        row = blocks.table[int(blocks.filled[0])]
        capacity = math.prod(row["count"].tolist()) * DTYPES[of_type].itemsize + RAW_OVERHEAD_BYTES
        # Whatever the operator has stored, packed or plain, counts; sizes do not tell.
        return contents.input.archive(name, step, row["start"].tolist(), DTYPES[of_type], capacity) is not None
    return None


def _prefix(
    data: DataFiles, place: Place, row: Any, dtype: np.dtype[Any], level: int, known: NDArray[np.uint8] | None
) -> NDArray[np.uint8] | None:
    """The first bytes of an archive that a level needs; None if it is not the one that a row describes."""
    archive_bytes = int(row["archive_bytes"])
    # The index takes three bytes per 16 tiles of 4096 values: the first read includes it, and it tells what is needed.
    needed = min(archive_bytes, _FRONT_BYTES + math.prod(row["count"].tolist()) // 4096 // 4)
    while known is None or known.nbytes < needed:
        known = data.archive(place, needed, known)
        if known is None:
            return None
        shape = field_shape(row["count"].tolist())
        last = len(cusz_core.levels_of_shape(shape)) - 1
        field = cusz_core.level_of(known, 0, archive_bytes=archive_bytes)
        if (field[0].shape, field[1], field[0].checksum) != (shape, dtype, int(row["checksum"])):
            return None
        needed = cusz_core.level_of(known, min(level, last), archive_bytes=archive_bytes)[0].needed_bytes
    return known


def _is_block(info: cusz_core.ArchiveInfo, row: Any, dtype: np.dtype[Any]) -> bool:
    """Whether an archive is the one that a row of the block table describes."""
    there = field_shape(row["count"].tolist()), dtype, int(row["checksum"])
    return (info.shape, info.dtype, info.checksum) == there


def _table_of_others(placed: Placed, step: int, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    """What ADIOS2 knows about blocks, as a table; the rest is -1 or NaN."""
    table = np.empty(len(placed.count), blocktable.table_dtype(placed.count.shape[1]))
    for name in table.dtype.names or ():
        table[name] = np.nan if table.dtype[name].kind == "f" else -1
    table["rank"], table["step"], table["start"], table["count"] = placed.writer, step, placed.start, placed.count
    if dtype is not None and not dtype.hasobject:
        table["raw_bytes"] = placed.count.prod(axis=1) * dtype.itemsize
    table["min"], table["max"] = placed.min, placed.max
    return table


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Puts what they are about in front of the messages of errors."""
    try:
        yield
    except CuszError as error:
        raise type(error)(f"{what}: {error}") from error


def _sorted_boxes(boxes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The non-empty boxes, as rows of starts and counts, sorted."""
    filled = boxes[(boxes[:, boxes.shape[1] // 2 :] > 0).all(axis=1)]
    return filled[np.lexsort(filled.T)] if filled.size else filled[:0, :0]
