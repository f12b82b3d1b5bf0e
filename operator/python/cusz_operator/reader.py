"""Reading: any number of ranks, each the part that it wants, decoded outside ADIOS2."""

from __future__ import annotations

import concurrent.futures
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import arguments, device_memory
from cusz_core.errors import CorruptArchiveError, CuszError, ParameterError

from . import blocktable
from .blocks import Extents, extents, field_shape, intersection
from .inspection import extents_of, import_adios2
from .plugin import Plugin, without_colours

__all__ = ["Reader", "ReaderStep"]

_DTYPES: dict[str, np.dtype[Any]] = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}


class Reader:
    """Reads a file that a Writer wrote (BP5 or BP4): its variables that have a block table.

        with Reader("run.bp", comm) as run:
            for step in run:  # or run[i], run[-1]
                u = step.read("U")

    Every rank reads for itself: nothing but the ranks' numbers is needed of the communicator, no call is collective,
    and an error is that rank's alone.
    """

    def __init__(self, path: str | os.PathLike[str], comm: Any = None, *, threads: int | None = None) -> None:
        """
        Args:
            path: the .bp folder.
            comm: a communicator of mpi4py, for the share of a rank; None: this process has all.
            threads: CPU threads that decode; None as in `cusz_core.compress`.

        Raises:
            FileNotFoundError: there is no such file.
            PluginError: the plugin or adios2 is missing, or several copies of the plugin are loaded.
            CuszError: ADIOS2 cannot open it.
        """
        self._path = os.fspath(path)
        if not Path(self._path).is_dir():
            raise FileNotFoundError(f"{self._path!r} does not exist")
        self._rank: int = comm.rank if comm is not None else 0
        self._size: int = comm.size if comm is not None else 1
        self._threads = arguments.threads(threads) or cusz_core.default_threads()
        self._adios2 = import_adios2()
        self._plugin = Plugin()
        self._adios = self._adios2.Adios()
        self._io = self._adios.declare_io("cusz_reader")
        self._io.set_engine("BP5" if (Path(self._path) / "mmd.0").exists() else "BP4")
        self._io.set_parameters({"OpenTimeoutSecs": "1"})
        try:
            self._engine: Any = self._io.open(self._path, self._adios2.Mode.ReadRandomAccess)
        except Exception as error:
            raise CuszError(f"ADIOS2 cannot open {self._path!r}: {without_colours(error)}") from error
        self._n_steps = int(self._engine.steps())
        self._own_steps: dict[str, dict[int, int]] = {}
        self._known_tables: dict[tuple[str, int], NDArray[Any]] = {}

    def __len__(self) -> int:
        """The number of steps."""
        return self._n_steps

    def __getitem__(self, index: int) -> ReaderStep:
        """A step by its number, from 0; negative ones count from the end.

        Raises:
            IndexError: there is no such step.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"step {index}: {self._path!r} has {len(self)} steps")
        return ReaderStep(self, index % len(self))

    def __iter__(self) -> Iterator[ReaderStep]:
        return (self[i] for i in range(len(self)))

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file. A second call does nothing."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.close()

    # ----------------------------------------------------------------------------------------------------- inside

    def _names(self) -> list[str]:
        prefix = blocktable.TABLE_PREFIX
        return sorted(name[len(prefix) :] for name in self._io.available_variables() if name.startswith(prefix))

    def _variable(self, name: str) -> Any:
        if self._engine is None:
            raise ParameterError(f"the Reader of {self._path!r} is closed")
        variable = self._io.inquire_variable(name)
        if variable is None:
            raise ParameterError(f"{self._path!r} has no variable {name!r}")
        return variable

    def _get_rows(self, variable: Any, own_step: int) -> NDArray[np.float64]:
        shape = variable.shape(own_step)
        rows = np.empty(shape, np.float64)
        variable.set_step_selection([own_step, 1])
        variable.set_selection([[0] * len(shape), shape])
        try:
            self._engine.get(variable, rows, self._adios2.Mode.Sync)
        except Exception as error:
            raise CuszError(f"ADIOS2 cannot read {self._path!r}: {without_colours(error)}") from error
        return rows

    def _steps_of(self, name: str) -> dict[int, int]:
        """Where a variable is: the file's steps, and what ADIOS2 calls them, which counts those with the variable."""
        if name not in self._own_steps:
            if name not in self._names():
                raise ParameterError(
                    f"{self._path!r} has no variable {name!r} with a block table; there are {self._names()}"
                )
            table = self._variable(blocktable.table_name(name))
            n = int(table.steps())
            if n == self._n_steps:
                self._own_steps[name] = {step: step for step in range(n)}
            else:
                found = (blocktable.table_of(self._get_rows(table, own), name) for own in range(n))
                self._own_steps[name] = {int(rows["step"][0]): own for own, rows in enumerate(found)}
        return self._own_steps[name]

    def _table(self, name: str, step: int) -> NDArray[Any]:
        key = (name, step)
        if key not in self._known_tables:
            own = self._own_step(name, step)
            rows = self._get_rows(self._variable(blocktable.table_name(name)), own)
            table = blocktable.table_of(rows, name)
            self._require_agreement(name, step, own, table)
            self._known_tables = {key: table, **dict(list(self._known_tables.items())[:63])}
        return self._known_tables[key]

    def _require_agreement(self, name: str, step: int, own_step: int, table: NDArray[Any]) -> None:
        """Refuses a table that does not agree with ADIOS2 about where blocks are: one of them is damaged."""
        # BP5 counts the steps that have the variable, BP4 those of the file.
        counted = own_step if self._engine.impl.Type().startswith("BP5") else step
        infos = self._engine.blocks_info(name, counted)
        known = ((extents_of(info["Start"]), extents_of(info["Count"])) for info in infos)
        told = ((tuple(row["start"].tolist()), tuple(row["count"].tolist())) for row in table)
        if sorted(box for box in known if math.prod(box[1] or (0,))) != sorted(
            box for box in told if math.prod(box[1])
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

    def _archive(self, name: str, step: int, row: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
        """The archive of a block, checked against its row of the table."""
        what = f"{self._path!r}: variable {name!r}, step {step}, the block at {tuple(row['start'].tolist())}"
        count = row["count"].tolist()
        variable = self._variable(name)
        variable.set_step_selection([self._own_step(name, step), 1])
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
            raise CorruptArchiveError(f"{what} is not the one that its table describes")
        return archive


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
        return tuple(int(extent) for extent in self._reader._variable(name).shape(own))

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of a variable: float32 or float64."""
        kind = self._reader._variable(name).type()
        if kind not in _DTYPES:
            raise CorruptArchiveError(f"variable {name!r} is of type {kind}, and has a block table")
        return _DTYPES[kind]

    def blocks(self, name: str) -> NDArray[Any]:
        """What is known of every block, as a structured array with one element a block.

        Fields: rank, step, device (-1: host memory), start, count, raw_bytes, archive_bytes, eb_abs, min, max,
        outliers, checksum, seconds.

        Raises:
            ParameterError: there is no such variable at this step.
            CorruptArchiveError: the table is damaged.
        """
        return self._reader._table(name, self.index).copy()

    def share(self, name: str, rank: int | None = None) -> tuple[Extents, Extents]:
        """The part of a variable that `read` gives a rank by default, as (start, count).

        Ranks get slabs along the first axis, cut so that they have about the same bytes of archives to decode. Slabs of
        all ranks together are the variable; some are empty where there are more ranks than indices.

        Args:
            name: of the variable.
            rank: whose part; None: this process's.
        """
        size = self._reader._size
        number = self._reader._rank if rank is None else rank
        if not 0 <= number < size:
            raise ParameterError(f"rank is {number}; there are {size} ranks")
        shape = self.shape(name)
        table = self._reader._table(name, self.index)
        weights = np.full(shape[0], 1e-9)
        for row in table:
            start, count = int(row["start"][0]), int(row["count"][0])
            weights[start : start + count] += int(row["archive_bytes"]) / max(count, 1)
        total = np.concatenate([[0.0], np.cumsum(weights)])
        cuts = np.searchsorted(total, total[-1] * np.arange(1, size) / size)
        first, last = [0, *cuts.tolist(), shape[0]][number : number + 2]
        return (int(first), *(0,) * (len(shape) - 1)), (int(last) - int(first), *shape[1:])

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

        Only blocks that meet the box are fetched, each once, and several are decoded at once. What no block covers is
        0, or stays as it is in `out`.

        Args:
            name: of the variable.
            start, count: the box, within the global shape; start alone: to the end; count alone: from the origin;
                neither: `share(name)`.
            like: a module, or an array of one, that makes the result: numpy (None: the same) or cupy.
            out: a writable C-contiguous array of the variable's dtype and extents `count`, to be filled and returned.

        Returns:
            An array of the variable's dtype and extents `count`.

        Raises:
            ParameterError: there is no such variable at this step, a box outside the shape, `out` that does not fit.
            CorruptArchiveError: a block or the table is damaged; `out` is undefined then.
            PluginError: ADIOS2 loaded another copy of the plugin.
            DeviceError, OutOfMemoryError: as of `cusz_core.decompress`.
        """
        shape, dtype = self.shape(name), self.dtype(name)
        box = self._box(name, shape, start, count)
        result = out
        if out is not None:
            _require_fit(out, dtype, box[1])
        elif like is not None:
            result = device_memory.new_field(like, None, dtype, box[1], None)
        if result is None:
            result = np.empty(box[1], dtype)
        table = self._reader._table(name, self.index)
        needed = []
        for row in table:
            common = intersection(box, (tuple(row["start"].tolist()), tuple(row["count"].tolist())))
            if common is not None:
                needed.append((row, common))
        if out is None and sum(math.prod(common[1]) for _, common in needed) < math.prod(box[1]):
            result[...] = 0
        if not needed:
            return result
        workers = min(self._reader._threads, len(needed))
        threads = max(self._reader._threads // workers, 1)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            pending = []
            for row, common in needed:
                archive = self._reader._archive(name, self.index, row, dtype)
                first = tuple(row["start"].tolist())
                extent = tuple(row["count"].tolist())
                pending.append(pool.submit(_decode, archive, first, extent, common, box[0], result, threads))
            for future in pending:
                future.result()
        return result

    def _box(
        self, name: str, shape: Extents, start: Sequence[int] | None, count: Sequence[int] | None
    ) -> tuple[Extents, Extents]:
        if start is None and count is None:
            return self.share(name)
        first = extents(start, "start", name) if start is not None else (0,) * len(shape)
        if len(first) != len(shape):
            raise ParameterError(f"start is {first}; variable {name!r} has {len(shape)} dimensions")
        extent = (
            extents(count, "count", name)
            if count is not None
            else tuple(n - s for n, s in zip(shape, first, strict=True))
        )
        if len(extent) != len(shape) or any(c < 0 or s + c > n for s, c, n in zip(first, extent, shape, strict=True)):
            raise ParameterError(
                f"start {first} and count {extent} are not a box within {shape}, the shape of {name!r}"
            )
        return first, extent


def _decode(
    archive: NDArray[np.uint8],
    start: Extents,
    count: Extents,
    common: tuple[Extents, Extents],
    origin: Extents,
    result: Any,
    threads: int,
) -> None:
    """Decodes a block, and puts what it has in common with the box that begins at `origin` into `result`."""
    target = result[_slices(common, origin)]
    if common == (start, count) and _is_contiguous(target):
        cusz_core.decompress(archive, out=target.reshape(field_shape(count)), threads=threads)
        return
    like = None if isinstance(result, np.ndarray) else result
    block = cusz_core.decompress(archive, like=like, threads=threads)
    target[...] = block.reshape(count)[_slices(common, start)]


def _slices(box: tuple[Extents, Extents], origin: Extents) -> tuple[slice, ...]:
    return tuple(slice(s - o, s - o + c) for s, c, o in zip(*box, origin, strict=True))


def _is_contiguous(array: Any) -> bool:
    flags = getattr(array, "flags", None)
    return bool(getattr(flags, "c_contiguous", False))


def _require_fit(out: Any, dtype: np.dtype[Any], shape: Extents) -> None:
    if getattr(out, "dtype", None) != dtype or tuple(getattr(out, "shape", ())) != shape or not _is_contiguous(out):
        raise ParameterError(f"out must be a C-contiguous array of {dtype.name} with extents {shape}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ParameterError("out is read-only")
