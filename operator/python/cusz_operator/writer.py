"""Writing: every rank compresses its blocks, all agree, and ADIOS2 stores the archives."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import _native, arguments
from cusz_core.errors import CuszError, ParameterError, UnsupportedError
from cusz_core.parameters import TABLE, WORK, ArchiveOptions, Mode, Options, Parameters

from . import blocktable, checks, statistics
from .blocks import Block, Extents, field_shape, first_overlap, prepare
from .inspection import import_adios2
from .parameters import define_operator
from .plugin import Plugin, keep_for_ever, plugin_path, without_colours
from .progress import VariableSummary, print_step, print_summary
from .ranks import Failure, Ranks, failure_of, raise_first

if TYPE_CHECKING:
    from typing import Unpack  # of Python 3.11

__all__ = ["VariableSummary", "Writer", "WriterStep"]

Engine = Literal["BP5", "BP4", "SST"]
_ENGINES = ("BP5", "BP4", "SST")
#: What can be said of a variable: what its archives depend on.
_OF_VARIABLES = tuple(key for key, row in TABLE.items() if row.decides != WORK)
# What is written beside the archives: padding and metadata of every block and rank, and at the end an index, a profile.
_ROOM_OF_A_BLOCK = 4096
_ROOM_BESIDES = 1 << 20


class _Description(NamedTuple):
    """What ranks tell each other of a block before it is compressed."""

    name: str
    dtype: str
    shape: Extents
    start: Extents
    extents: Extents
    parameters: Parameters
    range: cusz_core.ValueRange


class _Report(NamedTuple):
    """What a rank tells the others at the end of a step, or when it closes the Writer."""

    what: str
    failure: Failure | None
    blocks: tuple[_Description, ...]


class Writer:
    """Writes steps of compressed variables, from all ranks of a communicator.

        with Writer("run.bp", comm, eb=1e-3, mode="rel") as out:
            for ...:
                with out.step():
                    out.put("U", u, shape=global_shape, start=offset)

    Constructing, the end of a step and `close` are collective: all ranks have to come there. Where one of them fails,
    all of them raise the same error: the class is that of the first rank that failed, and the message names it. The
    step is not written then, and steps before it are complete. More can be written, unless it was ADIOS2 that failed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        comm: Any = None,
        *,
        eb: float | None = None,
        mode: Mode = "abs",
        variables: Mapping[str, Mapping[str, Any]] | None = None,
        engine: Engine = "BP5",
        parameters: Mapping[str, Any] | None = None,
        append: bool = False,
        asynchronous: bool = False,
        ranges: bool = True,
        progress: bool | None = None,
        **options: Unpack[Options],
    ) -> None:
        """
        Args:
            path: the .bp folder, or the stream, to write. A folder of this name is replaced, unless `append`.
            comm: a communicator of mpi4py; None: this process alone.
            eb: the error bound of variables that have none of their own, finite and >= 0: in the variable's unit (mode
                "abs"), or a fraction of its value range (mode "rel"). 0 is lossless.
            mode: "abs": |d - d'| <= eb. "rel": |d - d'| <= eb * (max - min) of the whole variable at the step, over all
                ranks and over values that are finite and not `fill`. A range of 0 means lossless.
            variables: for some variables by name, a dictionary of parameters that differ: "eb", "mode", or those of
                `options`.
            engine: "BP5", "BP4" or "SST".
            parameters: of the engine, as ADIOS2 takes them. StatsLevel 1 has ADIOS2 keep minimum and maximum of blocks,
                for bpls -l, and 0 not. 0 is for BP4, without `ranges` and with a MarshalMethod; elsewhere 1 is usual.
            append: adds steps to a file (BP5, BP4) that is there already; it has statistics as the file has.
            asynchronous: ADIOS2 writes in the background (BP5's AsyncWrite). A step is in the file for certain when the
                next one has begun to be written, or the Writer is closed; without, when its `with` block has ended. SST
                has a queue of its own in any case.
            ranges: False: minimum and maximum of variables in mode "abs" are not found, which saves a pass over the
                data; block tables have NaN for them.
            progress: rank 0 prints a line for each step, and a summary when the Writer is closed, to stderr; None: if
                that is a terminal.
            options: further parameters by their names, such as `fill`, as `cusz_core.Parameters` has them; `backend`
                and `threads` are those of this rank.

        Raises:
            ParameterError: a value out of its legal range, a path that cannot be written to, or ranks that disagree.
            UnsupportedError: an engine that is not one of the three, `asynchronous` with BP4, or an ADIOS2 without MPI.
            PluginError: the plugin or adios2 is missing, or ADIOS2 loaded another copy of the plugin.
            CuszError: ADIOS2 cannot open the file.
        """
        for key in options:
            if key not in TABLE:  # a mistake in the program, before anybody waits for other ranks
                raise TypeError(f"Writer() got an unexpected keyword argument {key!r}")
        self._path = os.fspath(path)
        self._ranks = Ranks(comm)
        self._engine: Any = None
        self._blocks: list[Block] = []
        self._archives: list[NDArray[np.uint8]] = []
        self._in_step = False
        self._ranges = ranges
        self._closing_agreed = False
        self._shapes: dict[str, str] = {}
        self._checked: Any = None
        self._operated: dict[str, Any] = {}
        self._tables: dict[str, Any] = {}
        self._checks: checks.Recorder | None = None  # of a file, on rank 0
        self._table_checks: dict[str, int] = {}
        self._written: dict[str, VariableSummary] = {}
        self._steps = 0
        self._seconds = 0.0  # at the ends of steps
        self._ranks_at_work = self._ranks.size
        self._progress = self._ranks.rank == 0 and (sys.stderr.isatty() if progress is None else bool(progress))
        where = f"cannot write {self._path!r}"
        error: Exception | None = None
        wanted, in_file = False, None
        try:
            self._defaults = _merged({}, eb=eb, mode=mode, **options)
            self._of_variable = {
                name: _merged(self._defaults, **_known(name, own)) for name, own in (variables or {}).items()
            }
            engine_parameters = _engine_parameters(engine, parameters, append, asynchronous)
            wanted = _statistics_wanted(engine, engine_parameters, ranges)
            self._adios2 = import_adios2()
            if comm is not None and not self._adios2.is_built_with_mpi:
                raise UnsupportedError(
                    "this adios2 was built without MPI (as the one on PyPI is): run scripts/setup, which builds one "
                    "with it, or pass comm=None"
                )
            if self._ranks.rank == 0:
                _check_path(Path(self._path), engine, append)
                if append and engine == "BP5":
                    checks.verify(Path(self._path))  # ADIOS2 crashes when it reads damaged metadata
                    in_file = statistics.are_in(self._adios2, Path(self._path))
            plugin_path()
        except Exception as caught:
            error = caught
        try:
            given = (self._path, engine, append, asynchronous)
            told = self._ranks.allgather((failure_of(error) if error is not None else None, given, wanted, in_file))
            raise_first([failure for failure, *_ in told], where, error)
            for rank, (_, other, *_) in enumerate(told):
                if other != told[0][1]:
                    raise ParameterError(
                        f"{where}: rank 0 opens {told[0][1]} (path, engine, append, asynchronous), and rank {rank} "
                        f"opens {other}"
                    )
            in_file = told[0][3]
            wanted = all(of_rank for *_, of_rank, _ in told) if in_file is None else in_file
            # From here on ADIOS2 communicates.
            self._adios = self._adios2.Adios() if comm is None else self._adios2.Adios(comm=self._ranks.comm)
            try:
                self._operator = define_operator(self._adios, eb=0.0)  # never asked to compress
                self._plugin = Plugin()
                self._io = self._adios.declare_io("cusz_writer")
                self._io.set_engine(engine)
                self._engine_name = engine
            except Exception as caught:
                error = caught
            self._ranks.agree(error, where)
            self._statistics = wanted and self._can_have_statistics(bool(in_file), where)
            self._ranges = self._ranges or self._statistics
            self._io.set_parameters({**engine_parameters, "StatsLevel": str(int(self._statistics))})
            self._open(append)
            self._ranks.agree_after_adios2(self._open_error, where)
        except BaseException:
            self._engine = None
            self._ranks.free()
            raise

    def _can_have_statistics(self, must: bool, where: str) -> bool:
        """Whether ADIOS2 keeps minimum and maximum of blocks: the same on all ranks, as readers of BP5 crash otherwise.

        (As for a file with statistics to which steps without are appended: `must`.)
        """
        problem = next(filter(None, self._ranks.allgather(statistics.problem())), "")
        if problem and must:
            raise UnsupportedError(
                f"{where}: the file has ADIOS2's statistics, and so must what is appended; but {problem}"
            )
        if problem and self._ranks.rank == 0:
            statistics.warn(problem)
        return not problem

    def _open(self, append: bool) -> None:
        self._open_error: Exception | None = None
        mode = self._adios2.Mode.Append if append else self._adios2.Mode.Write
        try:
            comm = [] if self._ranks.comm is None else [self._ranks.comm]
            self._engine = self._io.open(self._path, mode, *comm)
            if self._ranks.rank == 0 and self._engine_name != "SST":
                self._checks = checks.Recorder(Path(self._path), append)
        except Exception as error:
            self._open_error = CuszError(f"ADIOS2 cannot open it: {without_colours(error)}")

    # ------------------------------------------------------------------------------------------------- for users

    def step(self) -> WriterStep:
        """The next step, to be used with `with`; its end writes what was put in between (collective).

        Raises:
            ParameterError: a step is open already, or the Writer is closed.
        """
        self._require_open()
        if self._in_step:
            raise ParameterError("a step is open already: its 'with' block has to end first")
        return WriterStep(self)

    def put(
        self,
        name: str,
        array: Any,
        shape: Sequence[int] | None = None,
        start: Sequence[int] | None = None,
        *,
        eb: float | None = None,
        mode: Mode | None = None,
        **options: Unpack[ArchiveOptions],
    ) -> None:
        """Adds a block of a variable to the open step.

        A rank may put any number of blocks, or none. Blocks of a variable must not overlap; what they leave out has no
        values. The array is not copied: it must stay as it is until the step ends.

        Args:
            name: of the variable.
            array: float32 or float64, numpy's or on a CUDA device, 1 to 32 dimensions. One that is not C-contiguous is
                copied once.
            shape: of the global array, the same on all ranks; None: that of this block.
            start: where the block begins in it; None: at its origin.
            eb, mode, options: for this variable at this step, where they differ from what the Writer was given. The
                same for all of its blocks on all ranks.

        Raises:
            UnsupportedError: a type or layout that is not accepted.
            ParameterError: no step is open, a value out of its legal range, or a block outside the global shape.
        """
        self._require_open()
        if not self._in_step:
            raise ParameterError("put needs an open step: with writer.step(): writer.put(...)")
        if not isinstance(name, str) or not name or len(name.encode()) > 1000:
            raise ParameterError(f"name is {arguments.describe(name)}; it must be a text of 1 to 1000 bytes")
        if blocktable.is_table(name):
            raise ParameterError(
                f"{name!r} is the name of a block table: choose one that does not begin with "
                f"{blocktable.TABLE_PREFIX!r}"
            )
        of_variable = self._of_variable.get(name, self._defaults)
        merged = _merged(of_variable, eb=eb, mode=mode, **options)
        if "eb" not in merged:
            raise ParameterError(
                f"there is no error bound for {name!r}: pass eb= to put or to the Writer (0 is lossless)"
            )
        self._blocks.append(prepare(name, array, shape, start, Parameters(**merged)))

    def attribute(self, name: str, value: Any) -> None:
        """Stores an attribute of the file; every rank should, with the same value.

        Args:
            name: of the attribute.
            value: a text, a list of texts (not with BP4), a number, or a numpy array of numbers.

        Raises:
            UnsupportedError: a list of texts with BP4, which writes out of bounds there.
            ParameterError: ADIOS2 refuses it, as it does a second value of another type.
        """
        self._require_open()
        if self._engine_name == "BP4" and isinstance(value, list):
            raise UnsupportedError(f"the attribute {name!r} is a list, which BP4 cannot write: pass a text or an array")
        try:
            self._io.define_attribute(name, value)
        except Exception as error:
            raise ParameterError(f"ADIOS2 refuses the attribute {name!r}: {without_colours(error)}") from error

    def summary(self) -> list[VariableSummary]:
        """What was written so far, by variable; on rank 0 (the others get an empty list)."""
        all_ranks = self._seconds * self._ranks_at_work
        return [
            dataclasses.replace(own, share=own.seconds / all_ranks if all_ranks else 0.0)
            for own in self._written.values()
        ]

    def close(self) -> None:
        """Closes the file (collective). A second call does nothing."""
        self._close(None)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, Exception):
            return  # the process is told to stop: it waits for nobody
        self._close(error)

    # ----------------------------------------------------------------------------------------------------- inside

    def _require_open(self) -> None:
        if self._engine is None:
            raise ParameterError(f"the Writer of {self._path!r} is closed")

    def _close(self, error: BaseException | None) -> None:
        if self._engine is None:
            return
        try:
            if not self._closing_agreed:
                # A rank that closes while others end a step has failed in between.
                failure = failure_of(error) if error is not None else None
                told = self._ranks.allgather(_Report("close", failure, ()))
                others = [report for report in told if report.what != "close"]
                if others and error is None:
                    self._finish()
                    raise _out_of_order(told, f"{self._path!r}: step {self._steps} of this Writer is not written")
            self._finish()
        finally:
            self._engine = None

    def _finish(self) -> None:
        error: Exception | None = None
        try:
            self._engine.close()
            if self._checks is not None:
                self._checks.record()
                self._checks.close()
            if self._progress:
                print_summary(self._path, self._steps, self._seconds, self.summary())
        except Exception as caught:
            error = CuszError(f"ADIOS2 failed: {without_colours(caught)}")
        self._engine = None
        try:
            self._ranks.agree_after_adios2(error, f"cannot close {self._path!r}")
        except CuszError:
            keep_for_ever(self._adios)
            raise
        finally:
            self._ranks.free()

    def _abandon(self) -> None:
        """Leaves the file without the open step. (Closing would complete it.)"""
        if self._checks is not None:
            self._checks.close()
        self._engine = None
        self._operated.clear()
        self._tables.clear()
        self._io = self._operator = self._adios = None
        self._ranks.free()

    def _end_step(self, error: Exception | None) -> None:
        blocks, self._blocks = self._blocks, []
        clock = [time.perf_counter()]
        where = f"{self._path!r}: step {self._steps} of this Writer is not written"
        described: tuple[_Description, ...] = ()
        try:
            if error is None:
                described = tuple(self._describe(block) for block in blocks)
        except Exception as caught:
            error = caught
        report = _Report("step", failure_of(error) if error is not None else None, described)
        told: list[_Report] = self._ranks.allgather(report)
        if any(other.what != "step" for other in told):
            self._closing_agreed = True  # by the rank that is closing
            raise _out_of_order(told, where) from error
        raise_first([other.failure for other in told], where, error)
        bounds = self._agree_on_bounds([other.blocks for other in told], where)
        clock.append(time.perf_counter())

        archives: list[bytes | memoryview] = []
        own_tables: dict[str, NDArray[Any]] = {}
        try:
            own_tables, rows = _tables_of(blocks, self._ranks.rank)
            for block, description, row in zip(blocks, described, rows, strict=True):
                archives.append(
                    self._compress(block, description, bounds[block.name], row, self._memory(len(archives), block))
                )
        except Exception as caught:
            error = caught
        tables = self._ranks.gather(own_tables)
        try:
            if error is None and self._ranks.rank == 0 and self._engine_name != "SST":
                _require_room(self._path, tables)
        except Exception as caught:
            error = caught
        self._ranks.agree(error, where)
        self._shapes.update((block.name, _kind(block)) for report in told for block in report.blocks)
        clock.append(time.perf_counter())

        try:
            self._engine.begin_step()
            step = self._engine.current_step()
            self._table_checks.clear()
            for block, description, archive in zip(blocks, described, archives, strict=True):
                self._hand_over(block, archive, description.range)
            for name in bounds if self._ranks.rank == 0 else ():
                self._put_table(name, np.concatenate([own[name] for own in tables if name in own]), step)
        except Exception as caught:
            error = caught
            if not isinstance(caught, CuszError):
                error = CuszError(f"ADIOS2 failed: {without_colours(caught)}")
        try:
            self._ranks.agree(error, where)
        except CuszError:
            self._abandon()
            raise
        try:
            self._engine.end_step()
            if self._checks is not None:
                self._checks.record(step, self._table_checks)
        except Exception as caught:
            error = CuszError(f"ADIOS2 failed: {without_colours(caught)}")
        try:
            self._ranks.agree_after_adios2(error, where)
        except CuszError:
            keep_for_ever(self._adios)
            self._abandon()
            raise
        self._steps += 1
        clock.append(time.perf_counter())
        self._seconds += clock[-1] - clock[0]
        if self._progress:
            print_step(self._path, self._steps - 1, tables, clock)

    def _describe(self, block: Block) -> _Description:
        found = cusz_core.ValueRange(math.nan, math.nan, 0)
        parameters = block.parameters
        if self._ranges or parameters.mode == "rel":
            found = cusz_core.value_range(block.field, parameters.fill, threads=parameters.threads)
        return _Description(block.name, block.dtype.name, block.shape, block.start, block.count, parameters, found)

    def _agree_on_bounds(self, told: Sequence[tuple[_Description, ...]], where: str) -> dict[str, float]:
        """The absolute bound of every variable of the step; all ranks find the same, or raise the same error."""
        of_name: dict[str, list[tuple[int, _Description]]] = {}
        for rank, descriptions in enumerate(told):
            for description in descriptions:
                of_name.setdefault(description.name, []).append((rank, description))
        geometry = [[d[:5] for d in descriptions] for descriptions in told]
        bounds = {}
        for name, blocks in of_name.items():
            first_rank, first = blocks[0]
            for rank, block in blocks:
                for what, mine, theirs in (
                    ("dtype", block.dtype, first.dtype),
                    ("shape", block.shape, first.shape),
                    ("settings", block.parameters.of_archive(), first.parameters.of_archive()),
                ):
                    if mine != theirs:
                        raise ParameterError(
                            f"{where}: variable {name!r} has {what} {mine} on rank {rank} and {theirs} on rank "
                            f"{first_rank}: they must be the same"
                        )
            kind = _kind(first)
            if self._shapes.get(name, kind) != kind:
                raise ParameterError(
                    f"{where}: variable {name!r} is {kind}, and was {self._shapes[name]} in earlier steps: a variable "
                    "cannot change its type"
                )
            if geometry != self._checked and (pair := first_overlap((d.start, d.extents) for _, d in blocks)):
                (rank, one), (other_rank, two) = blocks[pair[0]], blocks[pair[1]]
                raise ParameterError(
                    f"{where}: variable {name!r}: the block at {one.start} with extents {one.extents} of rank {rank} "
                    f"overlaps that at {two.start} with extents {two.extents} of rank {other_rank}"
                )
            bounds[name] = first.parameters.eb
            if first.parameters.mode == "rel":
                counted = [d.range for _, d in blocks if d.range.values > 0]
                low = min((r.min for r in counted), default=0.0)
                high = max((r.max for r in counted), default=0.0)
                bounds[name] = _native.absolute_bound(first.parameters.eb, low, high)
        self._checked = geometry
        return bounds

    def _memory(self, number: int, block: Block) -> NDArray[np.uint8] | None:
        """Memory for an archive, kept from step to step: fresh pages cost more than the copy. What an archive does not
        fill is touched by nobody, and takes no memory; but where addresses are short, there is none."""
        needed = cusz_core.max_archive_bytes(field_shape(block.count), block.dtype)
        if number < len(self._archives) and self._archives[number].nbytes >= needed:
            return self._archives[number]
        try:
            memory = np.empty(needed, np.uint8)
        except MemoryError:
            return None
        self._archives[number : number + 1] = [memory]
        return memory

    def _compress(
        self, block: Block, description: _Description, bound: float, row: NDArray[Any], memory: NDArray[np.uint8] | None
    ) -> bytes | memoryview:
        started = time.perf_counter()
        parameters = dataclasses.replace(block.parameters, eb=bound, mode="abs")
        archive: bytes | memoryview = cusz_core.compress_with(block.field, parameters, out=memory)
        seconds = time.perf_counter() - started
        info = cusz_core.inspect(archive)
        row["device"] = block.device
        row["start"], row["count"] = block.start, block.count
        row["raw_bytes"], row["archive_bytes"] = info.raw_bytes, info.archive_bytes
        row["eb_abs"], row["min"], row["max"] = bound, description.range.min, description.range.max
        row["outliers"], row["checksum"], row["seconds"] = info.outliers, info.checksum, seconds
        return archive

    def _hand_over(self, block: Block, archive: bytes | memoryview, found: cusz_core.ValueRange) -> None:
        variable = self._operated.get(block.name)
        if variable is None:
            zeros = [0] * len(block.shape)
            kind = np.zeros(1, block.dtype)
            variable = self._io.define_variable(block.name, kind, list(block.shape), zeros, list(block.shape))
            variable.add_operation(self._operator)
            self._operated[block.name] = variable
        variable.set_shape(list(block.shape))
        where = (block.dtype, block.start, block.count)
        kept = found if self._statistics else None
        statistics.put_archive(self._adios2, self._plugin, self._engine, variable, *where, archive, kept)

    def _put_table(self, name: str, table: NDArray[Any], step: int) -> None:
        table["step"] = step
        rows = blocktable.rows_of(table)
        self._table_checks[name] = zlib.crc32(rows.data)
        variable = self._tables.get(name)
        if variable is None:
            variable = self._io.define_variable(
                blocktable.table_name(name), rows, list(rows.shape), [0, 0], list(rows.shape)
            )
            self._tables[name] = variable
        variable.set_shape(list(rows.shape))
        variable.set_selection([[0, 0], list(rows.shape)])
        self._engine.put(variable, rows, self._adios2.Mode.Sync)
        before = self._written.get(name, VariableSummary(name, 0, 0, 0, 0, 0.0, 0.0))
        self._written[name] = VariableSummary(
            name,
            before.steps + 1,
            before.blocks + len(table),
            before.raw_bytes + int(table["raw_bytes"].sum()),
            before.archive_bytes + int(table["archive_bytes"].sum()),
            before.seconds + float(table["seconds"].sum()),
            0.0,
        )


class WriterStep:
    """A step of a Writer, for `with`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __enter__(self) -> Writer:
        self._writer._require_open()
        if self._writer._in_step:
            raise ParameterError("a step is open already: its 'with' block has to end first")
        self._writer._in_step = True
        return self._writer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer._in_step = False
        if error is not None and not isinstance(error, Exception):
            return
        self._writer._end_step(error)


def _merged(base: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """Parameters over those of `base`, checked; the bound may be missing still."""
    merged = {**base, **{key: value for key, value in given.items() if value is not None}}
    Parameters(**{"eb": 0.0, **merged})
    return merged


def _known(name: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = [key for key in own if key not in _OF_VARIABLES]
    if unknown:
        raise ParameterError(f"variables[{name!r}] has {unknown[0]!r}; known are {', '.join(_OF_VARIABLES)}")
    return own


def _engine_parameters(
    engine: str, parameters: Mapping[str, Any] | None, append: bool, asynchronous: bool
) -> dict[str, str]:
    if engine not in _ENGINES:
        raise UnsupportedError(f"engine is {engine!r}; it must be one of {', '.join(_ENGINES)}")
    if append and engine == "SST":
        raise ParameterError("append needs a file: a stream (SST) cannot be appended to")
    if asynchronous and engine == "BP4":
        raise UnsupportedError("asynchronous is for BP5 and SST: BP4 writes within the step")
    result = {str(key): str(value) for key, value in (parameters or {}).items()}
    if asynchronous and engine == "BP5" and not any(key.lower() == "asyncwrite" for key in result):
        result["AsyncWrite"] = "Naive"
    return result


def _statistics_wanted(engine: str, parameters: dict[str, str], ranges: bool) -> bool:
    """Whether ADIOS2 is to keep minimum and maximum of blocks. Takes StatsLevel out of its parameters."""
    where_not = {
        " for BP4": engine == "BP4",
        " without ranges": not ranges,
        " with MarshalMethod": any(key.lower() == "marshalmethod" for key in parameters),
    }
    why_not = next((why for why, holds in where_not.items() if holds), "")
    level = "0" if why_not else "1"
    for key in [key for key in parameters if key.lower() == "statslevel"]:
        level = parameters.pop(key)
        if level not in ("0", "1") or (level == "1" and why_not):
            raise ParameterError(f"parameters has {key} = {level}; it must be 0{why_not or ' or 1'}")
    return level == "1"


def _check_path(path: Path, engine: str, append: bool) -> None:
    """Refuses what ADIOS2 would fail at on one rank alone."""
    folder = path.parent
    if not folder.is_dir():
        raise ParameterError(f"the folder {str(folder)!r} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ParameterError(f"the folder {str(folder)!r} is not writable")
    if engine == "SST":
        return
    if path.exists() and not path.is_dir():
        raise ParameterError("a file is in the way, where ADIOS2 makes a folder of this name: remove it")
    if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
        raise ParameterError("it is there already, and not writable")
    if append:
        if not path.is_dir():
            raise ParameterError("append needs a file that is there already")
        found = "BP5" if (path / "mmd.0").exists() else "BP4"
        if found != engine:
            raise ParameterError(f"append: it was written with engine {found}, not {engine}")


def _kind(block: _Description) -> str:
    """What of a variable cannot change from step to step."""
    return f"{block.dtype}, {len(block.shape)} dimensions"


def _require_room(path: str, tables: Sequence[Mapping[str, NDArray[Any]]]) -> None:
    """Refuses a step that does not fit on the disk: ADIOS2 would fail on one rank, and leave others waiting."""
    of_ranks = [list(of_rank.values()) for of_rank in tables]
    archive_bytes = sum(int(table["archive_bytes"].sum()) for of_rank in of_ranks for table in of_rank)
    n_blocks = sum(len(table) for of_rank in of_ranks for table in of_rank)
    needed = archive_bytes + _ROOM_BESIDES + _ROOM_OF_A_BLOCK * (n_blocks + len(tables))
    disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks > 0 and free < needed:  # some file systems do not tell
        raise CuszError(f"the disk is full: the step needs up to {needed} bytes, and {free} are free")


def _tables_of(blocks: Sequence[Block], rank: int) -> tuple[dict[str, NDArray[Any]], list[NDArray[Any]]]:
    """This rank's part of the table of every variable; and for every block its row there, an array of one."""
    numbers: dict[str, int] = {}
    row_of = []
    for block in blocks:
        row_of.append(numbers.setdefault(block.name, 0))
        numbers[block.name] += 1
    ndims = {block.name: len(block.shape) for block in blocks}
    tables = {name: np.zeros(n, blocktable.table_dtype(ndims[name])) for name, n in numbers.items()}
    for table in tables.values():
        table["rank"] = rank
    return tables, [tables[block.name][row : row + 1] for block, row in zip(blocks, row_of, strict=True)]


def _out_of_order(told: Sequence[_Report], where: str) -> CuszError:
    """The error for ranks of which some close the Writer while others end a step."""
    rank = next(i for i, report in enumerate(told) if report.what == "close")
    failure = told[rank].failure
    if failure is not None:
        return Failure(failure.kind, f"{where}: rank {rank}: {failure.message}").error()
    return ParameterError(f"{where}: rank {rank} closed the Writer while others ended a step")
