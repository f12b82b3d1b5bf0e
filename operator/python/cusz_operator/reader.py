"""Reading: any number of ranks, each reading any part, with decoding outside ADIOS2."""

from __future__ import annotations

import concurrent.futures
import math
import os
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding
from cusz_core.errors import CorruptArchiveError, CuszError, ParameterError

from . import blocktable, checks
from .blocks import Extents, field_shape
from .inspection import DTYPES, import_adios2
from .plugin import Plugin, without_colours

__all__ = ["Reader", "ReaderStep"]

Engine = Literal["BP5", "BP4", "SST"]
Box = tuple[Extents, Extents]  # start and count


class Reader:
    """Reads what a Writer wrote: the variables of a file (BP5 or BP4) or stream (SST) that have a block table.

        with Reader("run.bp", comm) as run:
            for step in run:  # for a file also run[i], run[-1]
                u = step.read("U")

    Every rank reads independently: no call is collective, and an error concerns that rank alone. The exceptions are
    opening a stream and going to its next step, which are collective.
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
        self._is_stream = engine == "SST"
        if not self._is_stream and not Path(self._path).is_dir():
            raise FileNotFoundError(f"{self._path!r} does not exist")
        self._rank: int = comm.rank if comm is not None else 0
        self._size: int = comm.size if comm is not None else 1
        self._threads = embedding.threads(threads) or cusz_core.default_threads()
        self._cache = Cache(embedding.bytes_limit(cache_bytes, "cache_bytes"))
        self._adios2 = import_adios2()
        self._plugin = Plugin()
        self._checks = {} if self._is_stream else checks.verify(Path(self._path))
        together = self._is_stream and comm is not None
        self._adios = self._adios2.Adios(comm=comm) if together else self._adios2.Adios()
        self._io = self._adios.declare_io("cusz_reader")
        self._io.set_engine(engine or ("BP5" if (Path(self._path) / "mmd.0").exists() else "BP4"))
        given = {str(key): str(value) for key, value in (parameters or {}).items()}
        self._io.set_parameters(given if self._is_stream else {"OpenTimeoutSecs": "1", **given})
        mode = self._adios2.Mode.Read if self._is_stream else self._adios2.Mode.ReadRandomAccess
        try:
            self._engine: Any = self._io.open(self._path, mode, *([comm] if together else []))
        except Exception as error:
            raise CuszError(f"ADIOS2 cannot open {self._path!r}: {without_colours(error)}") from error
        self._n_steps = 0 if self._is_stream else int(self._engine.steps())
        self._current: int | None = None  # the open step of a stream
        self._own_steps: dict[str, dict[int, int]] = {}
        self._known_tables: dict[tuple[str, int], NDArray[Any]] = {}

    def __len__(self) -> int:
        """The number of steps of a file."""
        if self._is_stream:
            raise ParameterError(f"the stream {self._path!r} has no length: iterate over its steps")
        return self._n_steps

    def __getitem__(self, index: int) -> ReaderStep:
        """A step of a file by its number, from 0; negative ones count from the end.

        Raises:
            IndexError: there is no such step.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"step {index}: {self._path!r} has {len(self)} steps")
        return ReaderStep(self, index % len(self))

    def __iter__(self) -> Iterator[ReaderStep]:
        """Steps in order. That of a stream is valid until the next one is requested, or the loop is left."""
        return self._received() if self._is_stream else (self[i] for i in range(len(self)))

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes by name: a text, a list of texts, or an array of numbers. (Of a stream: those received so far.)"""
        self._require_open()
        found = {}
        for name in sorted(self._io.available_attributes()):
            attribute = self._io.inquire_attribute(name)
            if attribute.type() == "string":
                found[name] = attribute.data_string()
            else:
                found[name] = np.atleast_1d(
                    attribute.data()
                )  # BP4 does not distinguish one number from an array of one
        return found

    def close(self) -> None:
        """Closes the file or stream. A second call does nothing."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            self._cache.clear()
            if self._current is not None:
                engine.end_step()
            if self._is_stream or self._n_steps:  # ADIOS2's Close crashes on a file that is still empty
                engine.close()

    # ----------------------------------------------------------------------------------------------------- inside

    def _require_open(self) -> None:
        if self._engine is None:
            raise ParameterError(f"the Reader of {self._path!r} is closed")

    def _received(self) -> Iterator[ReaderStep]:
        statuses = self._adios2.StepStatus
        self._require_open()
        while self._engine is not None:
            status = self._engine.begin_step()
            if status == statuses.EndOfStream:
                return
            if status != statuses.OK:
                raise CuszError(f"ADIOS2 cannot receive the next step of {self._path!r}: {status.name}")
            self._current = int(self._engine.current_step())
            try:
                yield ReaderStep(self, self._current)
            finally:
                self._known_tables.clear()
                self._cache.clear()
                if self._engine is not None:
                    self._current = None
                    self._engine.end_step()

    def _select_step(self, variable: Any, own_step: int) -> None:
        if not self._is_stream:
            variable.set_step_selection([own_step, 1])

    def _counted(self, own_step: int, step: int) -> int:
        """The step number for shapes and blocks: BP5 counts steps that have the variable, BP4 those of the file."""
        return step if self._is_stream or self._engine.impl.Type().startswith("BP4") else own_step

    def _shape(self, variable: Any, own_step: int, step: int) -> Extents:
        shape = variable.shape() if self._is_stream else variable.shape(self._counted(own_step, step))
        return tuple(int(extent) for extent in shape)

    def _names(self) -> list[str]:
        self._require_open()
        prefix = blocktable.TABLE_PREFIX
        return sorted(name[len(prefix) :] for name in self._io.available_variables() if name.startswith(prefix))

    def _variable(self, name: str) -> Any:
        self._require_open()
        variable = self._io.inquire_variable(name)
        if variable is None:
            raise ParameterError(f"{self._path!r} has no variable {name!r}")
        return variable

    def _get_rows(self, variable: Any, own_step: int, step: int) -> NDArray[np.float64]:
        shape = self._shape(variable, own_step, step)
        if variable.type() != "double" or len(shape) != 2:
            raise CorruptArchiveError(
                f"{self._path!r}: {variable.name()!r} is not a block table of this package: it has type "
                f"{variable.type()} and {len(shape)} dimensions"
            )
        rows = np.empty(shape, np.float64)
        self._select_step(variable, own_step)
        variable.set_selection([[0] * len(shape), list(shape)])
        try:
            self._engine.get(variable, rows, self._adios2.Mode.Sync)
        except Exception as error:
            raise CuszError(f"ADIOS2 cannot read {self._path!r}: {without_colours(error)}") from error
        return rows

    def _steps_of(self, name: str) -> dict[int, int]:
        """The file's steps that have a variable, with ADIOS2's number for each, which counts only those."""
        if self._is_stream and self._current is None:
            raise ParameterError(f"no step of the stream {self._path!r} is open: read in the loop over its steps")
        if name not in self._own_steps:
            if name not in self._names():
                raise ParameterError(
                    f"{self._path!r} has no variable {name!r} with a block table; those with one are {self._names()}"
                )
            if self._current is not None:
                return {self._current: self._current}
            table = self._variable(blocktable.table_name(name))
            n = int(table.steps())
            if n == self._n_steps:
                self._own_steps[name] = {step: step for step in range(n)}
            elif self._engine.impl.Type().startswith("BP5"):
                found = (blocktable.table_of(self._get_rows(table, own, own), name) for own in range(n))
                self._own_steps[name] = {int(rows["step"][0]): own for own, rows in enumerate(found)}
            else:
                has_it = [s for s in range(self._n_steps) if self._engine.blocks_info(blocktable.table_name(name), s)]
                self._own_steps[name] = {step: own for own, step in enumerate(has_it)}
        return self._own_steps[name]

    def _table(self, name: str, step: int) -> NDArray[Any]:
        key = (name, step)
        if key not in self._known_tables:
            own = self._own_step(name, step)
            rows = self._get_rows(self._variable(blocktable.table_name(name)), own, step)
            if zlib.crc32(rows.data) != self._checks.get((step, name), zlib.crc32(rows.data)):
                raise CorruptArchiveError(f"{self._path!r}: the block table of {name!r} at step {step} is damaged")
            table = blocktable.table_of(rows, name)
            self._require_agreement(name, step, own, table)
            self._known_tables = {key: table, **dict(list(self._known_tables.items())[:63])}
        return self._known_tables[key]

    def _require_agreement(self, name: str, step: int, own_step: int, table: NDArray[Any]) -> None:
        """Refuses a table that disagrees with ADIOS2 about where blocks are: one of the two is damaged."""
        infos = self._engine.blocks_info(name, self._counted(own_step, step))
        # BP4 gives no extents for a block without elements.
        in_table = table["start"], table["count"]
        numbers = ",".join(info[what] for info in infos if info["Count"] for what in ("Start", "Count"))
        known = np.array(numbers.split(",") if numbers else [], np.int64)
        width = 2 * len(self._shape(self._variable(name), own_step, step))
        if width != 2 * in_table[0].shape[1] or not np.array_equal(
            _sorted_boxes(known.reshape(-1, width)), _sorted_boxes(np.hstack(in_table))
        ):
            raise CorruptArchiveError(
                f"{self._path!r}: variable {name!r}, step {step}: the block table and ADIOS2's metadata disagree about "
                "where the blocks are: the file is damaged"
            )

    def _own_step(self, name: str, step: int) -> int:
        steps = self._steps_of(name)
        if step not in steps:
            raise ParameterError(f"{self._path!r} has no variable {name!r} at step {step}")
        return steps[step]

    def _archive(self, name: str, step: int, number: int, dtype: np.dtype[Any]) -> NDArray[np.uint8]:
        """The archive of a block, by its number in the table, checked against its row there."""
        known = self._cache.get((name, step, number))
        if known is None:
            known = self._fetch(name, step, self._table(name, step)[number], dtype)
            self._cache.put((name, step, number), known)
        return known

    def _fetch(self, name: str, step: int, row: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
        what = f"{self._path!r}: variable {name!r}, step {step}, the block at {tuple(row['start'].tolist())}"
        count = row["count"].tolist()
        variable = self._variable(name)
        self._select_step(variable, self._own_step(name, step))
        variable.set_selection([row["start"].tolist(), [1] * len(count)])
        target = np.empty([1] * len(count), dtype)

        def get() -> None:
            self._engine.get(variable, target, self._adios2.Mode.Sync)

        capacity = min(int(row["archive_bytes"]), math.prod(count) * dtype.itemsize + 48)
        try:
            archive = self._plugin.capture(name, capacity, get)
        except CuszError:
            raise
        except Exception as error:
            raise CuszError(f"{what}: ADIOS2 cannot read it: {without_colours(error)}") from error
        if archive is None:
            raise CorruptArchiveError(f"{what} is not compressed by this plugin")
        try:
            info = cusz_core.inspect(archive)
        except CuszError as error:
            raise type(error)(f"{what}: {error}") from error
        if (info.shape, info.dtype, info.checksum) != (field_shape(count), dtype, int(row["checksum"])):
            raise CorruptArchiveError(f"{what} is not the one that the block table describes")
        return archive


class Cache:
    """The most recently used archives, up to a number of bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._kept: dict[tuple[str, int, int], NDArray[np.uint8]] = {}  # most recently used last
        self._bytes = 0

    def get(self, key: tuple[str, int, int]) -> NDArray[np.uint8] | None:
        archive = self._kept.pop(key, None)
        if archive is not None:
            self._kept[key] = archive
        return archive

    def put(self, key: tuple[str, int, int], archive: NDArray[np.uint8]) -> None:
        if archive.nbytes > self._most_bytes:
            return
        self._kept[key] = archive
        self._bytes += archive.nbytes
        while self._bytes > self._most_bytes:
            self._bytes -= self._kept.pop(next(iter(self._kept))).nbytes

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0


class ReaderStep:
    """A step of a Reader.

    Attributes:
        index: its number in the file.
    """

    def __init__(self, reader: Reader, index: int) -> None:
        self._reader = reader
        self.index = index

    @property
    def variables(self) -> list[str]:
        """Names of the variables at this step."""
        return [name for name in self._reader._names() if self.index in self._reader._steps_of(name)]

    def shape(self, name: str) -> Extents:
        """The global shape of a variable."""
        own = self._reader._own_step(name, self.index)
        return self._reader._shape(self._reader._variable(name), own, self.index)

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of a variable: float32 or float64."""
        kind = self._reader._variable(name).type()
        if kind not in DTYPES:
            raise CorruptArchiveError(f"variable {name!r} is of type {kind}, but has a block table")
        return DTYPES[kind]

    def blocks(self, name: str) -> NDArray[Any]:
        """The block table, as a structured array with one element per block.

        Fields: rank, step, device (-1: host memory), start, count, raw_bytes, archive_bytes, eb_abs, min, max,
        outliers, checksum, seconds.

        Raises:
            ParameterError: there is no such variable at this step.
            CorruptArchiveError: the table is damaged.
        """
        return self._reader._table(name, self.index).copy()

    def share(self, name: str, rank: int | None = None) -> Box:
        """The part of a variable that `read` gives a rank by default, as (start, count).

        Ranks get slabs along the first axis, cut so that each has about the same number of archive bytes to decode. The
        slabs of all ranks together cover the variable; some are empty if there are more ranks than indices.

        Args:
            name: of the variable.
            rank: whose part; None: that of this process.
        """
        size = self._reader._size
        number = self._reader._rank if rank is None else rank
        if not 0 <= number < size:
            raise ParameterError(f"rank is {number}; there are {size} ranks")
        shape = self.shape(name)
        table = self._reader._table(name, self.index)
        first, count = table["start"][:, 0], table["count"][:, 0]
        steps = np.zeros(shape[0] + 1)  # changes in archive bytes from index to index
        np.add.at(steps, first, table["archive_bytes"] / np.maximum(count, 1))
        np.add.at(steps, first + count, -table["archive_bytes"] / np.maximum(count, 1))
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
        like: Any = None,
        out: Any = None,
    ) -> Any:
        """Reads a box of a variable.

        Only blocks that overlap the box are fetched, each once, and only their tiles that do so are decoded, several
        blocks at a time. Values that no block covers are 0, or left unchanged in `out`.

        Args:
            name: of the variable.
            start, count: the box, within the global shape; start alone: to the end; count alone: from the origin;
                neither: `share(name)`.
            like: a module, or one of its arrays, to make the result: numpy (None: the same) or cupy.
            out: a writable C-contiguous array of the variable's dtype and extents `count`, to be filled and returned.

        Returns:
            An array of the variable's dtype and extents `count`.

        Raises:
            ParameterError: there is no such variable at this step, the box is outside the shape, or `out` does not fit.
            CorruptArchiveError: a block or the table is damaged; `out` is undefined then.
            PluginError: ADIOS2 loaded another copy of the plugin.
            DeviceError, OutOfMemoryError: as for `cusz_core.decompress`.
        """
        shape, dtype = self.shape(name), self.dtype(name)
        box = self._box(name, shape, start, count)
        result = out
        if out is not None:
            _require_fit(out, dtype, box[1])
        elif like is not None:
            result = embedding.new_field(like, dtype, box[1])
        if result is None:
            result = np.empty(box[1], dtype)
        table = self._reader._table(name, self.index)
        starts = np.maximum(table["start"], box[0])  # of the overlaps of blocks and the box
        counts = np.minimum(table["start"] + table["count"], np.add(*box)) - starts
        needed = []
        for number in np.flatnonzero((counts > 0).all(axis=1)).tolist():
            block = _tuple(table["start"][number]), _tuple(table["count"][number])
            needed.append((number, block, (_tuple(starts[number]), _tuple(counts[number]))))
        if out is None and sum(math.prod(common[1]) for *_, common in needed) < math.prod(box[1]):
            result[...] = 0
        if not needed:
            return result
        workers = min(self._reader._threads, len(needed))
        threads = max(self._reader._threads // workers, 1)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            pending: deque[concurrent.futures.Future[None]] = deque()
            for number, block, common in needed:
                if len(pending) > 2 * workers:  # waiting archives take memory
                    pending.popleft().result()
                archive = self._reader._archive(name, self.index, number, dtype)
                pending.append(pool.submit(_decode, archive, block, common, result[_slices(common, box[0])], threads))
            while pending:
                pending.popleft().result()
        return result

    def verify(self, name: str) -> int:
        """Verifies the checksums of this rank's share of a variable's blocks, without decoding them.

        Returns:
            The number of blocks that this rank verified; all ranks together verify every block.

        Raises:
            ParameterError: there is no such variable at this step.
            CorruptArchiveError: a block or the table is damaged.
        """
        dtype, table = self.dtype(name), self._reader._table(name, self.index)
        mine = [
            number for number in range(self._reader._rank, len(table), self._reader._size) if _has_values(table[number])
        ]
        for number in mine:
            cusz_core.check(self._reader._archive(name, self.index, number, dtype), threads=self._reader._threads)
        return len(mine)

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


def _decode(archive: NDArray[np.uint8], block: Box, common: Box, target: Any, threads: int) -> None:
    """Decodes the part of a block that lies in the box being read, into its place in the result."""
    start, count = block
    if isinstance(target, np.ndarray) and field_shape(count) == count:
        first = [c - s for c, s in zip(common[0], start, strict=True)]
        cusz_core.decompress_box(archive, first, out=target, threads=threads)
    elif common == block and _is_contiguous(target):
        cusz_core.decompress(archive, out=target.reshape(field_shape(count)), threads=threads)
    else:
        like = None if isinstance(target, np.ndarray) else target
        values = cusz_core.decompress(archive, like=like, threads=threads)
        target[...] = values.reshape(count)[_slices(common, start)]


def _tuple(numbers: NDArray[np.int64]) -> Extents:
    return tuple(numbers.tolist())


def _sorted_boxes(boxes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The non-empty boxes, as rows of starts and counts, sorted."""
    filled = boxes[(boxes[:, boxes.shape[1] // 2 :] > 0).all(axis=1)]
    return filled[np.lexsort(filled.T)] if filled.size else filled[:0, :0]


def _has_values(row: NDArray[Any]) -> bool:
    return bool((row["count"] > 0).all())


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
