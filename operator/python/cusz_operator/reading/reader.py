"""Reading: any number of ranks, each reading any part, with decoding outside ADIOS2."""

from __future__ import annotations

import bisect
import concurrent.futures
import contextlib
import dataclasses
import functools
import math
import os
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding
from cusz_core.errors import CorruptArchiveError, CuszError, ParameterError, UnsupportedError

from ..adios2_calls import close_after
from ..tables import blocktable, checks
from ..tables.boxes import Box, Extents, field_shape, first_overlap
from ..tables.representation import PARTS, attribute_name, given_back
from ..tables.stored import DTYPES, INTEGERS, LOST_MARK, PLAIN_MARK, RAW_OVERHEAD_BYTES, VERBATIM_TAG
from .datafiles import DataFiles, Place, StoredVariable, places_of
from .input import Input, Placed

Engine = Literal["BP5", "BP4", "SST"]

_BYTES_PER_TABLE = 1 << 21  # of blocks that ADIOS2 fetches in the time that it takes to read a block table
_NOT_COMPRESSED = "not compressed by cusz"


class Reader:
    """Reads variables of a file (BP5 or BP4) or stream (SST), whatever program wrote them.

        with Reader("run.bp", comm) as run:
            print(run)  # a line for each variable
            for step in run:  # for a file also run[i], run[-1]
                u = step.read("U")
            u = run["U"].read(step=3, start=(0, 8, 8), count=(4, 16, 16))

    Blocks compressed by this plugin are decoded outside ADIOS2: several at a time, and only the tiles that are needed.
    Everything else is read by ADIOS2. What is known about every block of a Writer's variables is in their block tables,
    which are not listed as variables.

    Every rank reads independently: no call is collective, and an error concerns that rank alone. The exceptions are
    opening a stream, going to its next step, and closing it before its end, which are collective: if a rank leaves the
    stream, because it has failed for example, the others get an error, too, when they go to the next step. Several
    threads may read from one Reader.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        comm: Any = None,
        *,
        engine: Engine | None = None,
        parameters: Mapping[str, Any] | None = None,
        threads: int | None = None,
        cache_bytes: int = 2**28,
    ) -> None:
        """
        Args:
            path: the .bp folder, or the name of the stream.
            comm: an mpi4py communicator, for the share of a rank, and for a stream; None: this process reads all.
            engine: "SST" for a stream, which must appear within a minute (`OpenTimeoutSecs` in `parameters`); "BP5" or
                "BP4" for a file; None: as it was written.
            parameters: of the engine, as ADIOS2 takes them.
            threads: CPU threads that decode; None as in `cusz_core.compress`.
            cache_bytes: archives are kept for later reads up to this many bytes; 0: none are. Those of a stream are
                dropped with their step.

        Raises:
            FileNotFoundError: there is no such file.
            ParameterError: a parameter out of its legal range.
            CorruptArchiveError: its metadata is damaged, or it is truncated.
            PluginError: the plugin or adios2 is missing, or several copies of the plugin are loaded.
            CuszError: ADIOS2 cannot open it.
        """
        self._path = os.fspath(path)
        if engine not in (None, "BP5", "BP4", "SST"):
            raise ParameterError(f"engine is {engine!r}; it must be 'BP5', 'BP4', 'SST' or None")
        is_stream = engine == "SST"
        if not is_stream and not Path(self._path).is_dir():
            raise FileNotFoundError(f"{self._path!r} does not exist")
        self._rank: int = comm.rank if comm is not None else 0
        self._size: int = comm.size if comm is not None else 1
        self._threads = embedding.threads(threads) or cusz_core.default_threads()
        self._cache = Cache(embedding.bytes_limit(cache_bytes, "cache_bytes"))
        self._lock = threading.RLock()  # of what is kept here
        self._checks = {} if is_stream else checks.verify(Path(self._path))
        self._input = Input(self._path, comm, engine, parameters)
        self._data = DataFiles(Path(self._path)) if self._checks else None
        self._places: dict[tuple[str, int], NDArray[np.int64] | None] = {}  # of archives in it
        self._stored: dict[tuple[str, int], StoredVariable] = {}  # of one step
        self._names_by_step: dict[int, list[str]] = {}  # of a Writer's variables, in the order in which it puts them
        for step, name in sorted(self._checks):
            self._names_by_step.setdefault(step, []).append(name)
        if len(self._names_by_step) == self._input.n_steps:
            self._input.add_steps(self._checks)
        self._known: dict[tuple[str, int], _Blocks] = {}
        self._known_entries: dict[str, _Entry] | None = None

    def __len__(self) -> int:
        """The number of steps of a file."""
        if self._input.is_stream:
            raise ParameterError(f"the stream {self._path!r} has no length: iterate over its steps")
        return self._input.n_steps

    @overload
    def __getitem__(self, index: int) -> ReaderStep: ...
    @overload
    def __getitem__(self, index: str) -> ReaderVariable: ...
    def __getitem__(self, index: int | str) -> ReaderStep | ReaderVariable:
        """A step of a file by its number, from 0 (negative ones count from the end), or a variable by its name.

        Raises:
            IndexError: there is no such step.
            ParameterError: there is no such variable.
        """
        if isinstance(index, str):
            self._entry(index)
            return ReaderVariable(self, index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"step {index}: {self._path!r} has {len(self)} steps")
        return ReaderStep(self, index % len(self))

    def __iter__(self) -> Iterator[ReaderStep]:
        """Steps in order. That of a stream is valid until the next one is requested, or the loop is left."""
        return self._received() if self._input.is_stream else (self[i] for i in range(len(self)))

    def __contains__(self, name: object) -> bool:
        """Whether there is a variable of this name: in a file, or in the open step of a stream."""
        return name in self._names()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        close_after(error, lambda: self._close(error))

    def __repr__(self) -> str:
        if not self._input.is_open:
            return f"<Reader of {self._path!r}, closed>"
        if self._input.is_stream and self._input.current is None:
            return f"<Reader of the stream {self._path!r}, between steps>"
        n_steps = "a step" if self._input.is_stream else _counted(len(self), "step")
        return (
            "\n".join([f"<Reader of {self._path!r}: {n_steps}", *(f"  {v!r}" for v in self.variables.values())]) + ">"
        )

    @property
    def variables(self) -> dict[str, ReaderVariable]:
        """The variables by name: those of a file, or of the open step of a stream; without block tables."""
        return {name: ReaderVariable(self, name) for name in self._names()}

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes by name: a text, a list of texts, or an array of numbers. (Of a stream: those received so far.)"""
        return self._input.attributes()

    def close(self) -> None:
        """Closes the file or stream (a stream that has not ended: collective). A second call does nothing.

        Raises:
            CuszError: ADIOS2 cannot close it.
        """
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        if self._input.is_open:
            self._cache.clear()
            if self._data is not None:
                self._data.close()
            self._input.close(error)

    # ----------------------------------------------------------------------------------------------------- inside

    def _received(self) -> Iterator[ReaderStep]:
        for step in self._input.received():
            self._known_entries = None
            try:
                yield ReaderStep(self, step)
            finally:
                with self._lock:
                    self._known_entries = None
                    self._known.clear()
                    self._cache.clear()

    def _entries(self) -> dict[str, _Entry]:
        """The variables by name, with the parts of complex numbers, but without block tables."""
        with self._lock:
            types = self._input.types() if self._known_entries is None else {}
            if self._known_entries is None:
                found = {name: self._described(name, of) for name, of in types.items() if not blocktable.is_table(name)}
                for whole in [name.removesuffix(PARTS[0]) for name in found if name.endswith(PARTS[0])]:
                    given = self._input.attribute_text(attribute_name(whole))
                    parts = tuple(whole + part for part in PARTS)
                    if given.startswith("complex") and found.keys() >= set(parts):
                        found |= {part: dataclasses.replace(found[part], is_part=True) for part in parts}
                        found[whole] = _Entry(parts, found[parts[0]].type, given, np.dtype(given))
                self._known_entries = dict(sorted(found.items()))
            return self._known_entries

    def _described(self, name: str, adios2_type: str) -> _Entry:
        given = self._input.attribute_text(attribute_name(name))
        dtype = np.dtype(given) if given in ("bool", "float16") else DTYPES.get(adios2_type)
        return _Entry((name,), adios2_type, given, dtype)

    def _names(self) -> list[str]:
        return [name for name, entry in self._entries().items() if not entry.is_part]

    def _entry(self, name: str) -> _Entry:
        entry = self._entries().get(name)
        if entry is None:
            names = ", ".join(self._names()) or "none"
            raise ParameterError(f"{self._path!r} has no variable {name!r}; it has {names}")
        return entry

    def _entry_at(self, name: str, step: int) -> _Entry:
        entry = self._entry(name)
        if step not in self._input.steps_of(entry.stored[0]):
            raise ParameterError(f"{self._path!r} has no variable {name!r} at step {step}")
        return entry

    def _blocks(self, name: str, step: int) -> _Blocks:
        """The blocks of an array at a step."""
        key = (name, step)
        with self._lock:
            if key not in self._known:
                self._entry_at(name, step)
                self._known = {key: self._found(name, step), **dict(list(self._known.items())[:63])}
            return self._known[key]

    def _found(self, name: str, step: int) -> _Blocks:
        if self._input.shape(name, step) == ():
            raise ParameterError(f"variable {name!r} is one value: it has no blocks")
        rows = self._rows(name, step)
        if rows is None:
            placed = self._input.placed(name, step)
            return _Blocks(_table_of_others(placed, step, self._entry(name).dtype), has_table=False)
        is_checked = (step, name) in self._checks
        if is_checked and zlib.crc32(rows.data) != self._checks[step, name]:
            raise CorruptArchiveError(f"{self._path!r}: the block table of {name!r} at step {step} is damaged")
        table = blocktable.table_of(rows, name)
        if is_checked:  # and so is ADIOS2's metadata
            return _Blocks(table, has_table=True)
        placed = self._input.placed(name, step)
        # If ADIOS2 says that blocks lie elsewhere, one of the two is damaged.
        known, in_table = (np.hstack(both) for both in ((placed.start, placed.count), (table["start"], table["count"])))
        if known.shape[1] != in_table.shape[1] or (
            placed.is_known and not np.array_equal(_sorted_boxes(known), _sorted_boxes(in_table))
        ):
            raise CorruptArchiveError(
                f"{self._path!r}: variable {name!r}, step {step}: the block table and ADIOS2's metadata disagree about "
                "where the blocks are: the file is damaged"
            )
        return _Blocks(table, has_table=True)

    def _rows(self, name: str, step: int) -> NDArray[np.float64] | None:
        """The rows of a variable's block table; None if it has none."""
        of_table = blocktable.table_name(name)
        of_type = self._input.types().get(of_table)
        if of_type is None:
            if (step, name) in self._checks:
                raise CorruptArchiveError(
                    f"{self._path!r}: the block table of {name!r} is missing: the file is damaged"
                )
            return None
        shape = self._input.shape(of_table, step) if step in self._input.steps_of(of_table) else None
        if shape is None and (step, name) not in self._checks:
            return None  # a step that another program appended
        if of_type != "double" or shape is None or len(shape) != 2:
            raise CorruptArchiveError(
                f"{self._path!r}: {of_table!r} is not a block table of this package: it has type {of_type} and shape "
                f"{shape}"
            )
        rows: NDArray[np.float64] = self._input.values(of_table, step, ((0, 0), shape), np.dtype(np.float64))
        return rows

    def _archive(self, name: str, step: int, number: int, dtype: np.dtype[Any]) -> NDArray[np.uint8] | None:
        """The archive of a block, by its number; None if it is not compressed by this plugin."""
        key = (name, step, number)
        with self._lock:
            known = self._cache.get(key)
        if known is None:
            known = self._fetch(name, step, number, dtype)
            if known is not None:
                with self._lock:
                    self._cache.put(key, known)
        return known

    def _fetch(self, name: str, step: int, number: int, dtype: np.dtype[Any]) -> NDArray[np.uint8] | None:
        with self._lock:
            place = self._place(name, step, number)
            row = self._blocks(name, step).table[number]
        if place is not None and self._data is not None:
            found = self._data.archive(place, int(row["archive_bytes"]))
            with contextlib.suppress(CuszError):
                if found is not None and _is_block(cusz_core.inspect(found), row, dtype):
                    return found
            with self._lock:
                self._places[name, step] = None  # it is not where it was expected
        with self._lock:
            return self._captured(name, step, number, dtype)

    def _place(self, name: str, step: int, number: int) -> Place | None:
        """Where the archive of a block must lie in a data file; None if that is not known."""
        starts = self._data.starts(step) if self._data is not None else None
        if starts is None:
            return None
        if (name, step) not in self._places:
            self._places = {
                (name, step): self._places_of(name, step, len(starts[1])),
                **dict(list(self._places.items())[:63]),
            }
        relative = self._places[name, step]
        if relative is None:
            return None
        rank = int(self._blocks(name, step).table["rank"][number])
        return Place(int(starts[0][rank]), int(starts[1][rank] + relative[number]))

    def _places_of(self, name: str, step: int, ranks: int) -> NDArray[np.int64] | None:
        """Where the archives of a variable lie among the data of their ranks; None if the variable was not put by a
        Writer, or if it takes longer to read the block tables of others, which tell, than to ask ADIOS2."""
        names = self._names_by_step.get(step, [])
        before = names[: bisect.bisect_right(names, name)]
        if not before or before[-1] != name:
            return None
        unknown = [other for other in before if (other, step) not in self._stored]
        others = sum(other != name for other in unknown)
        if others * _BYTES_PER_TABLE > int(self._blocks(name, step).table["raw_bytes"].sum()):
            return None
        for other in unknown:
            try:
                table = self._blocks(other, step).table
                dtype = DTYPES[self._input.types()[other]]
            except (CuszError, KeyError):
                return None  # which is an error of the other variable
            is_coded = dtype.kind == "f" or not np.array_equal(table["archive_bytes"], table["raw_bytes"])
            rank, stored_bytes = table["rank"].copy(), table["archive_bytes"].copy()
            if (np.diff(rank) < 0).any() or (rank < 0).any() or (rank >= ranks).any():
                return None
            if any(at != step for _, at in self._stored):  # one step at a time: they take memory
                self._stored.clear()
            self._stored[other, step] = StoredVariable(rank, stored_bytes, dtype.itemsize, is_coded)
        if any((other, step) not in self._stored for other in before):  # another step's thread came between
            return None
        return places_of([self._stored[other, step] for other in before], ranks)[-1]

    def _captured(self, name: str, step: int, number: int, dtype: np.dtype[Any]) -> NDArray[np.uint8] | None:
        """The archive of a block, from ADIOS2."""
        blocks = self._blocks(name, step)
        row = blocks.table[number]
        start, count = row["start"].tolist(), row["count"].tolist()
        what = self._block_in_words(name, step, tuple(start))
        raw_bytes = math.prod(count) * dtype.itemsize
        capacity = raw_bytes + RAW_OVERHEAD_BYTES
        if blocks.has_table:
            capacity = min(int(row["archive_bytes"]), capacity)
        archive = self._input.archive(name, step, start, dtype, capacity)
        if archive is None or bytes(archive[:16]) in (PLAIN_MARK, LOST_MARK) or bytes(archive[:4]) == VERBATIM_TAG:
            if blocks.has_table:
                raise CorruptArchiveError(f"{what} is not compressed by this plugin")
            return None
        with _in_words(what):
            info = cusz_core.inspect(archive)
        # Without a table, extents may be in another order, such as Fortran's.
        fits = _is_block(info, row, dtype) if blocks.has_table else (info.raw_bytes, info.dtype) == (raw_bytes, dtype)
        if not fits:
            raise CorruptArchiveError(
                f"{what} is not the one that {'the block table' if blocks.has_table else 'the metadata'} describes"
            )
        return archive

    def _block_in_words(self, name: str, step: int, start: Extents) -> str:
        return f"{self._path!r}: variable {name!r}, step {step}, the block at {start}"


@dataclasses.dataclass(frozen=True)
class _Entry:
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
class _Blocks:
    """The blocks of an array at a step.

    Attributes:
        table: of `blocktable.table_dtype`.
        has_table: whether it is a block table; if not, it has only what ADIOS2 knows (`_table_of_others`).
        may_be_archives: False once a block was found not to be compressed by this plugin: then ADIOS2 reads.
    """

    table: NDArray[Any]
    has_table: bool
    may_be_archives: bool = True

    @functools.cached_property
    def _edges(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Where blocks begin and end along each axis; rows of a table are too far apart to look at many of them."""
        start, end = self.table["start"], self.table["start"] + self.table["count"]
        return [(start[:, axis].copy(), end[:, axis].copy()) for axis in range(start.shape[1])]

    def meeting(self, box: Box) -> NDArray[np.int64]:
        """The numbers of the blocks that have elements in common with a box."""
        numbers: NDArray[np.int64] | None = None
        for (start, end), first, count in zip(self._edges, *box, strict=True):
            own = (start, end) if numbers is None else (start[numbers], end[numbers])
            meets = np.flatnonzero(np.minimum(own[1], first + count) > np.maximum(own[0], first))
            numbers = meets if numbers is None else numbers[meets]
        return np.arange(len(self.table)) if numbers is None else numbers

    @functools.cached_property
    def overlap(self) -> bool:
        """Whether blocks have elements in common. Then one alone cannot be fetched."""
        if self.has_table:
            return False  # a Writer refuses that
        return first_overlap(self.table["start"], self.table["count"]) is not None


class ReaderStep:
    """A step of a Reader.

    Attributes:
        index: its number in the file.
    """

    def __init__(self, reader: Reader, index: int) -> None:
        self._reader = reader
        self._input = reader._input
        self.index = index

    def __repr__(self) -> str:
        return f"<step {self.index} of {self._reader._path!r}: {', '.join(self.variables)}>"

    def __contains__(self, name: object) -> bool:
        """Whether a variable of this name is at this step."""
        return name in self.variables

    @property
    def variables(self) -> list[str]:
        """Names of the variables at this step."""
        entries = self._reader._entries()
        return [n for n in self._reader._names() if self.index in self._input.steps_of(entries[n].stored[0])]

    def shape(self, name: str) -> Extents:
        """The global shape of a variable; () for one value.

        Raises:
            ParameterError: there is no such variable at this step, or it has no global shape.
        """
        shape = self._input.shape(self._reader._entry_at(name, self.index).stored[0], self.index)
        if shape is None:
            raise ParameterError(f"variable {name!r} has no global shape: its blocks are read one by one (block=)")
        return shape

    def has_shape(self, name: str) -> bool:
        """Whether a variable has a global shape; if not, its blocks are read one by one (`read_blocks`).

        Raises:
            ParameterError: there is no such variable at this step.
        """
        return self._input.shape(self._reader._entry_at(name, self.index).stored[0], self.index) is not None

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of a variable's values; object for texts.

        Raises:
            ParameterError: there is no such variable.
            UnsupportedError: numpy has no such type.
        """
        return ReaderVariable(self._reader, name).dtype

    def blocks(self, name: str) -> NDArray[Any]:
        """What is known about the blocks of an array, as a structured array with one element per block.

        Fields: rank, step, device (-1: host memory), start, count, raw_bytes, archive_bytes, eb_abs, min, max,
        outliers, checksum, seconds: the block table of a Writer. For what other programs wrote, only what ADIOS2 knows
        is there, and the rest is -1 or NaN. Of complex numbers it is the table of the real part; `NAME/imag` has its
        own.

        Raises:
            ParameterError: there is no such variable at this step, or it is one value.
            CorruptArchiveError: the table is damaged.
        """
        return self._reader._blocks(self._first_stored(name), self.index).table.copy()

    def value_range(self, name: str) -> tuple[float, float] | None:
        """Minimum and maximum of a variable over its blocks, as they were kept when it was written.

        Those that a Writer kept are of values that are finite and not fill; those that ADIOS2 kept of all values.

        Returns:
            None if they were not kept, there are no values, or these are complex, or one value. (ADIOS2 shows 0 for all
            blocks if it kept none; a variable of which it kept only zeros cannot be told from that.)

        Raises:
            ParameterError: there is no such variable at this step.
        """
        stored = self._reader._entry_at(name, self.index).stored
        if len(stored) > 1 or self._input.shape(stored[0], self.index) == ():
            return None
        blocks = self._reader._blocks(name, self.index)
        low, high = blocks.table["min"], blocks.table["max"]
        known = (low <= high) & (blocks.table["count"] > 0).all(axis=1)
        if not known.any() or not (blocks.has_table or low.any() or high.any()):
            return None
        return float(low[known].min()), float(high[known].max())

    def share(self, name: str, rank: int | None = None) -> Box:
        """The part of a variable that `read` gives a rank by default, as (start, count).

        Ranks get slabs along the first axis, cut so that each has about the same number of archive bytes to decode (of
        raw bytes if there is no block table). The slabs of all ranks together cover the variable; some are empty if
        there are more ranks than indices. One value is every rank's.

        Args:
            name: of the variable.
            rank: whose part; None: that of this process.
        """
        size = self._reader._size
        number = self._reader._rank if rank is None else rank
        if not 0 <= number < size:
            raise ParameterError(f"rank is {number}; there are {size} ranks")
        shape = self.shape(name)
        if not shape or size == 1:
            return (0,) * len(shape), shape
        blocks = self._reader._blocks(self._first_stored(name), self.index)
        stored = blocks.table["archive_bytes" if blocks.has_table else "raw_bytes"]
        first, count = blocks.table["start"][:, 0], blocks.table["count"][:, 0]
        steps = np.zeros(shape[0] + 1)  # changes in stored bytes from index to index
        np.add.at(steps, first, stored / np.maximum(count, 1))
        np.add.at(steps, first + count, -stored / np.maximum(count, 1))
        weights = np.maximum(np.cumsum(steps[:-1]), 0) + 1e-9
        total = np.concatenate([[0.0], np.cumsum(weights)])
        cuts = np.searchsorted(total, total[-1] * np.arange(1, size) / size)
        begin, end = [0, *cuts.tolist(), shape[0]][number : number + 2]
        return (int(begin), *(0,) * (len(shape) - 1)), (int(end) - int(begin), *shape[1:])

    def read(
        self,
        name: str,
        start: Sequence[int] | None = None,
        count: Sequence[int] | None = None,
        *,
        block: int | None = None,
        like: Any = None,
        out: Any = None,
        fill: Any = None,
    ) -> Any:
        """Reads a box of a variable.

        Of a variable that this plugin compressed, only blocks that overlap the box are fetched, each once, and only
        their tiles that do so are decoded, several blocks at a time. Where no block is, there are no values: `fill` is
        put there, and `coverage` tells where that is.

        Args:
            name: of the variable.
            start, count: the box, within the global shape; start alone: to the end; count alone: from the origin;
                neither: `share(name)`.
            block: the number of a block, which is read whole: for a variable without a global shape.
            like: a module, or one of its arrays, to make the result: numpy (None: the same) or cupy.
            out: a writable C-contiguous array of the variable's dtype and extents `count`, to be filled and returned.
            fill: what is put where no block is; None: NaN, or 0 (False) in variables of integers and bool.

        Returns:
            An array of the variable's dtype and extents `count`. One value: a number, or a text (`like` and `out` do
            not apply).

        Raises:
            ParameterError: there is no such variable at this step, the box is outside the shape, `out` does not fit, or
                `fill` is not a value of the variable's type.
            UnsupportedError: a type that numpy does not have.
            CorruptArchiveError: a block or the table is damaged; `out` is undefined then.
            PluginError: ADIOS2 loaded another copy of the plugin.
            DeviceError, OutOfMemoryError: as for `cusz_core.decompress`.
        """
        entry = self._reader._entry_at(name, self.index)
        dtype = self.dtype(name)
        if block is not None:
            start, count = self._place_of(name, block)
            if self._input.shape(entry.stored[0], self.index) is None:
                return self._input.block(name, self.index, block, count, dtype)
        shape = self.shape(name)
        box = self._box(name, shape, start, count)
        if dtype.hasobject:
            if shape:
                raise UnsupportedError(f"variable {name!r} is an array of texts, which ADIOS2 does not read in Python")
            return self._input.text(name, self.index)
        if not shape:
            return self._input.values(name, self.index, box, dtype)[()]
        if out is not None:
            _require_fit(out, dtype, box[1])
        fill = fill_of(dtype, fill, name)
        if not entry.given:
            return self._read_stored(name, box, dtype, like, out, fill)
        fills = [complex(fill).real, complex(fill).imag] if len(entry.stored) > 1 else [fill]
        stored = zip(entry.stored, fills, strict=True)
        parts = [self._read_stored(part, box, DTYPES[entry.type], None, None, own) for part, own in stored]
        return _placed(given_back(parts, entry.given), like, out)

    def read_blocks(self, name: str) -> list[NDArray[Any]]:
        """All blocks of an array, one array each, in the order of `blocks`: the way to read a variable without a global
        shape, such as particles.

        Raises:
            As `read`.
        """
        return [self.read(name, block=number) for number in range(len(self.blocks(name)))]

    def coverage(
        self, name: str, start: Sequence[int] | None = None, count: Sequence[int] | None = None
    ) -> NDArray[np.bool_]:
        """Where a variable has values: in a block. The levels of an AMR code do not have them everywhere.

        Args:
            name: of the variable.
            start, count: the box, as in `read`.

        Returns:
            A bool array of the extents of the box.

        Raises:
            ParameterError: there is no such variable at this step, it has no global shape, or the box is outside it.
        """
        box = self._box(name, self.shape(name), start, count)
        if not box[1]:
            return np.ones((), np.bool_)
        covered = np.zeros(box[1], np.bool_)
        blocks = self._reader._blocks(self._first_stored(name), self.index)
        for number in blocks.meeting(box).tolist():
            row = blocks.table[number]
            starts = np.maximum(row["start"], box[0])
            ends = np.minimum(row["start"] + row["count"], np.add(*box))
            covered[_slices((_tuple(starts), _tuple(ends - starts)), box[0])] = True
        return covered

    def is_covered(self, name: str) -> bool:
        """Whether a variable has values everywhere in its global shape.

        Raises:
            ParameterError: as for `coverage`.
        """
        shape = self.shape(name)
        if not shape:
            return True
        blocks = self._reader._blocks(self._first_stored(name), self.index)
        in_blocks, in_shape = int(blocks.table["count"].prod(axis=1).sum()), math.prod(shape)
        if in_blocks < in_shape or not blocks.overlap:
            return in_blocks == in_shape
        return all(self.coverage(name, *box).all() for box in pieces(shape))

    def verify(self, name: str) -> int:
        """Verifies the checksums of this rank's share of a variable's blocks, without decoding them.

        Returns:
            The number of blocks that this rank verified; all ranks together verify every block of an array with a
            global shape that this plugin compressed, or that a Writer stored exactly. The others have no checksums, or
            are verified by `inspect_bp(check=True)` alone, as are blocks without a global shape.

        Raises:
            ParameterError: there is no such variable at this step.
            CorruptArchiveError: a block or the table is damaged.
        """
        return sum(self._verified(stored) for stored in self._reader._entry_at(name, self.index).stored)

    # ----------------------------------------------------------------------------------------------------- inside

    def _place_of(self, name: str, number: int) -> Box:
        table = self._reader._blocks(self._first_stored(name), self.index).table
        if not 0 <= number < len(table):
            raise ParameterError(f"block is {number}; variable {name!r} has {len(table)} at step {self.index}")
        return _tuple(table["start"][number]), _tuple(table["count"][number])

    def _first_stored(self, name: str) -> str:
        return self._reader._entry_at(name, self.index).stored[0]

    def _read_stored(self, name: str, box: Box, dtype: np.dtype[Any], like: Any, out: Any, fill: Any) -> Any:
        """A box of an array as the file has it."""
        blocks = self._archived(name)
        if blocks is not None:
            result = out
            if out is None and like is not None:
                result = embedding.new_field(like, dtype, box[1])
            if result is None:
                result = np.empty(box[1], dtype)
            if self._decoded(name, blocks, box, dtype, result, fill):
                return result
        return _placed(self._input.values(name, self.index, box, dtype, fill), like, out)

    def _verified(self, name: str) -> int:
        dtype = DTYPES[self._reader._entry(name).type]
        if not self._input.shape(name, self.index):
            return 0
        blocks, archived = self._reader._blocks(name, self.index), self._archived(name)
        verified = 0
        for number in range(self._reader._rank, len(blocks.table), self._reader._size):
            row = blocks.table[number]
            what = self._reader._block_in_words(name, self.index, _tuple(row["start"]))
            if not (row["count"] > 0).all():
                continue
            if archived is not None:
                archive = self._reader._archive(name, self.index, number, dtype)
                if archive is None:
                    continue
                with _in_words(what):
                    cusz_core.check(archive, threads=self._reader._threads)
            elif blocks.has_table:
                values = self._input.values(name, self.index, (_tuple(row["start"]), _tuple(row["count"])), dtype)
                if zlib.crc32(values.data) != int(row["checksum"]):
                    raise CorruptArchiveError(f"{what} is damaged: its checksum differs from that of the block table")
            else:
                continue
            verified += 1
        return verified

    def _archived(self, name: str) -> _Blocks | None:
        """The blocks of a variable; None if they are known not to be archives that can be fetched one by one."""
        if self._reader._entry(name).type not in ("float", "double") or not self._input.shape(name, self.index):
            return None
        blocks = self._reader._blocks(name, self.index)
        return None if blocks.overlap or not blocks.may_be_archives else blocks

    def _decoded(self, name: str, blocks: _Blocks, box: Box, dtype: np.dtype[Any], result: Any, fill: Any) -> bool:
        """Decodes a box from archives, into `result`; False if a block of it is no archive."""
        needed = []
        for number in blocks.meeting(box).tolist():
            row = blocks.table[number]
            block = _tuple(row["start"]), _tuple(row["count"])
            starts = np.maximum(block[0], box[0])
            needed.append((number, block, (_tuple(starts), _tuple(np.minimum(np.add(*block), np.add(*box)) - starts))))
        if sum(math.prod(common[1]) for *_, common in needed) < math.prod(box[1]):
            result[...] = fill
        workers = min(self._reader._threads, len(needed))
        threads = max(self._reader._threads // max(workers, 1), 1)
        # ADIOS2 is asked by the caller's thread alone: MPI may allow no other (MPI_THREAD_FUNNELED).
        fetch_here = self._reader._data is None or workers <= 1

        def fetched(number: int) -> NDArray[np.uint8] | None:
            archive = self._reader._archive(name, self.index, number, dtype) if blocks.may_be_archives else None
            if archive is None:
                blocks.may_be_archives = False
            return archive

        def decode(number: int, block: Box, common: Box, archive: NDArray[np.uint8] | None) -> None:
            if archive is None:
                archive = fetched(number)
            if archive is not None:
                what = self._reader._block_in_words(name, self.index, block[0])
                _decode(archive, block, common, result[_slices(common, box[0])], threads, what)

        with concurrent.futures.ThreadPoolExecutor(max(workers, 1)) as pool:
            pending: deque[concurrent.futures.Future[None]] = deque()
            for number, block, common in needed:
                archive = fetched(number) if fetch_here else None
                if not blocks.may_be_archives:
                    break
                if workers <= 1:
                    decode(number, block, common, archive)
                    continue
                if len(pending) > 2 * workers:  # waiting archives take memory, and an error is to be told soon
                    pending.popleft().result()
                pending.append(pool.submit(decode, number, block, common, archive))
            while pending:
                pending.popleft().result()
        return blocks.may_be_archives

    def _box(self, name: str, shape: Extents, start: Sequence[int] | None, count: Sequence[int] | None) -> Box:
        if start is None and count is None:
            return self.share(name)
        first = embedding.extents(start, f"start of {name!r}") if start is not None else (0,) * len(shape)
        if len(first) != len(shape):
            raise ParameterError(f"start is {first}; variable {name!r} has {len(shape)} dimensions")
        extent = (
            embedding.extents(count, f"count of {name!r}")
            if count is not None
            else tuple(n - s for n, s in zip(shape, first, strict=True))
        )
        if len(extent) != len(shape) or any(c < 0 or s + c > n for s, c, n in zip(first, extent, shape, strict=True)):
            raise ParameterError(
                f"start {first} and count {extent} are not a box within {shape}, the shape of {name!r}"
            )
        return first, extent


def pieces(shape: Extents, most_values: int = 2**22) -> Iterator[Box]:
    """Boxes of at most so many values that cover a shape."""
    if math.prod(shape) <= most_values or not shape:
        yield (0,) * len(shape), shape
        return
    axis = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= most_values)
    rows = max(most_values // math.prod(shape[axis + 1 :]), 1)
    for outer in np.ndindex(shape[:axis]):
        for first in range(0, shape[axis], rows):
            count = (*(1,) * axis, min(rows, shape[axis] - first), *shape[axis + 1 :])
            yield (*outer, first, *(0,) * (len(shape) - axis - 1)), count


class ReaderVariable:
    """A variable of a Reader, over all steps that have it.

    Attributes:
        name: of the variable.
    """

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self._input = reader._input
        self.name = name

    def __repr__(self) -> str:
        try:
            return self._in_words()
        except CuszError as error:  # it does not keep others from being listed
            return f"{self.name}: {error}"

    def _in_words(self) -> str:
        step, entry = self._last(), self._reader._entry(self.name)
        shape = self._input.shape(entry.stored[0], step.index)
        size = "blocks without a global shape" if shape is None else str(shape) if shape else "one value"
        having = self.steps
        words = [f"{self.name}: {entry.given or entry.type}, {size}"]
        if not self._input.is_stream and having != list(range(len(self._reader))):
            words.append(f"at steps {having[0]} to {having[-1]}, {_counted(len(having), 'step')}")
        if shape:
            words.append(_counted(len(self._reader._blocks(entry.stored[0], step.index).table), "block"))
            words += step_summary(step, entry.stored[0])
        return ", ".join(words)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its values; object for texts.

        Raises:
            UnsupportedError: numpy has no such type.
        """
        entry = self._reader._entry(self.name)
        if entry.dtype is None:
            raise UnsupportedError(f"variable {self.name!r} is of ADIOS2's type {entry.type!r}, which numpy has not")
        return entry.dtype

    @property
    def steps(self) -> list[int]:
        """The steps that have it."""
        return list(self._input.steps_of(self._reader._entry(self.name).stored[0]))

    @property
    def shape(self) -> Extents:
        """Its global shape at the last step that has it; () for one value.

        Raises:
            ParameterError: it has no global shape.
        """
        return self._last().shape(self.name)

    @property
    def attributes(self) -> dict[str, Any]:
        """Its attributes: those of the file whose names begin with that of the variable and a slash."""
        prefix = f"{self.name}/"
        return {
            name[len(prefix) :]: value for name, value in self._reader.attributes.items() if name.startswith(prefix)
        }

    def read(
        self,
        start: Sequence[int] | None = None,
        count: Sequence[int] | None = None,
        *,
        step: int | None = None,
        block: int | None = None,
        like: Any = None,
        out: Any = None,
        fill: Any = None,
    ) -> Any:
        """Reads a box, as `ReaderStep.read` does.

        Args:
            step: the number of the step in the file, negative from its end; None: the last that has the variable.
        """
        at = self._last() if step is None or self._input.is_stream else self._reader[step]
        return at.read(self.name, start, count, block=block, like=like, out=out, fill=fill)

    def _last(self) -> ReaderStep:
        return ReaderStep(self._reader, self.steps[-1])


def step_summary(step: ReaderStep, name: str) -> list[str]:
    """How a variable is stored at a step, in words: bound and ratio."""
    kind = step._reader._entry(name).type
    if kind in INTEGERS:
        return [_how_exactly(step, name, INTEGERS[kind])]
    blocks = step._archived(name)
    if blocks is None:
        return [_NOT_COMPRESSED]
    filled = np.flatnonzero((blocks.table["count"] > 0).all(axis=1))
    if blocks.has_table:
        bounds = np.unique(blocks.table["eb_abs"][filled])
        ratio = blocks.table["raw_bytes"].sum() / max(blocks.table["archive_bytes"].sum(), 1)
    elif filled.size:
        archive = step._reader._archive(name, step.index, int(filled[0]), step.dtype(name))
        if archive is None:
            blocks.may_be_archives = False
            return [_NOT_COMPRESSED]
        info = cusz_core.inspect(archive)
        bounds, ratio = np.array([info.eb_abs]), info.ratio
    else:
        return []
    which = "" if blocks.has_table else " (of its first block)"
    bound = f"{bounds.min():.6g}" if bounds.size else "0"
    if np.isnan(bounds).any():
        coded = np.flatnonzero(np.isnan(blocks.table["eb_abs"])) if blocks.has_table else filled
        archive = step._reader._archive(name, step.index, int(coded[0]), DTYPES[kind])
        bound = f"{cusz_core.inspect(archive).eb:.6g} of every value" if archive is not None else "?"
    return [f"|error| <= {bound}, ratio {ratio:.1f}{which}"]


def _how_exactly(step: ReaderStep, name: str, dtype: np.dtype[Any]) -> str:
    """How integers are stored at a step, in words."""
    if not step._input.shape(name, step.index):
        return _NOT_COMPRESSED
    blocks = step._reader._blocks(name, step.index)
    filled = blocks.table[(blocks.table["count"] > 0).all(axis=1)]
    if not blocks.has_table:
        start = filled["start"][0].tolist() if len(filled) and not blocks.overlap else None
        is_ours = start is not None and step._input.archive(name, step.index, start, dtype, 1) is not None
        return "exact" if is_ours else _NOT_COMPRESSED
    if (filled["archive_bytes"] == filled["raw_bytes"]).all():
        return _NOT_COMPRESSED
    return f"exact, ratio {filled['raw_bytes'].sum() / filled['archive_bytes'].sum():.1f}"


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
        self._kept[key] = archive
        self._bytes += archive.nbytes
        while self._bytes > self._max_bytes:
            self._bytes -= self._kept.pop(next(iter(self._kept))).nbytes

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


def _is_block(info: cusz_core.ArchiveInfo, row: Any, dtype: np.dtype[Any]) -> bool:
    """Whether an archive is the one that a row of the block table describes."""
    there = field_shape(row["count"].tolist()), dtype, int(row["checksum"])
    return (info.shape, info.dtype, info.checksum) == there


def _table_of_others(placed: Placed, step: int, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    """What ADIOS2 knows of blocks, as a table; the rest is -1 or NaN."""
    table = np.empty(len(placed.count), blocktable.table_dtype(placed.count.shape[1]))
    for name in table.dtype.names or ():
        table[name] = np.nan if table.dtype[name].kind == "f" else -1
    table["rank"], table["step"], table["start"], table["count"] = placed.writer, step, placed.start, placed.count
    if dtype is not None and not dtype.hasobject:
        table["raw_bytes"] = placed.count.prod(axis=1) * dtype.itemsize
    table["min"], table["max"] = placed.min, placed.max
    return table


@contextlib.contextmanager
def _in_words(what: str) -> Iterator[None]:
    """Errors name the block that they are about."""
    try:
        yield
    except CuszError as error:
        raise type(error)(f"{what}: {error}") from error


def _decode(archive: NDArray[np.uint8], block: Box, common: Box, target: Any, threads: int, what: str) -> None:
    """Decodes the part of a block that lies in the box being read, into its place in the result."""
    start, count = block
    shape = cusz_core.inspect(archive).shape  # more than four axes are merged, and Fortran's are reversed
    with _in_words(what):
        if isinstance(target, np.ndarray) and shape == count:
            first = [c - s for c, s in zip(common[0], start, strict=True)]
            cusz_core.decompress_box(archive, first, out=target, threads=threads)
        elif common == block and _is_contiguous(target):
            cusz_core.decompress(archive, out=target.reshape(shape), threads=threads)
        else:
            like = None if isinstance(target, np.ndarray) else target
            values = cusz_core.decompress(archive, like=like, threads=threads)
            target[...] = values.reshape(count)[_slices(common, start)]


def fill_of(dtype: np.dtype[Any], fill: Any = None, name: str = "") -> Any:
    """What is put where no block is: `fill`, or if it is None what stands for nothing there."""
    if fill is None:
        return math.nan if dtype.kind in "fc" else 0
    if dtype.hasobject:
        return fill
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            given = np.asarray(fill)
            own = given.astype(dtype)[()]
            fits = given.shape == () and (own == given[()] or bool(own != own) == bool(given[()] != given[()]) is True)
            fits = fits or (dtype.kind == "f" and np.isfinite(given[()]) and np.isfinite(own))  # rounded
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ParameterError(f"fill is {embedding.describe(fill)}; it must be a value of {dtype}, the type of {name!r}")
    return own


def _placed(values: NDArray[Any], like: Any, out: Any) -> Any:
    """Values in host memory where they are wanted: in `out`, or in an array of the module of `like`."""
    module = None if out is None and like is None else embedding.module_of(like if out is None else out)
    made = values if module in (None, np) else module.asarray(values)
    if out is None:
        return made
    out[...] = made
    return out


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _tuple(numbers: NDArray[np.int64]) -> Extents:
    return tuple(numbers.tolist())


def _sorted_boxes(boxes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The non-empty boxes, as rows of starts and counts, sorted."""
    filled = boxes[(boxes[:, boxes.shape[1] // 2 :] > 0).all(axis=1)]
    return filled[np.lexsort(filled.T)] if filled.size else filled[:0, :0]


def _slices(box: Box, origin: Extents) -> tuple[slice, ...]:
    return tuple(slice(s - o, s - o + c) for s, c, o in zip(*box, origin, strict=True))


def _is_contiguous(array: Any) -> bool:
    flags = getattr(array, "flags", None)
    return bool(getattr(flags, "c_contiguous", False))


def _require_fit(out: Any, dtype: np.dtype[Any], shape: Extents) -> None:
    if getattr(out, "dtype", None) != dtype or tuple(getattr(out, "shape", ())) != shape or not _is_contiguous(out):
        raise ParameterError(f"out must be a C-contiguous array of {dtype.name} with extents {shape}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ParameterError("out is read-only")
