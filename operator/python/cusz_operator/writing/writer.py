"""Writing: ranks agree on bounds, each compresses its blocks, and ADIOS2 stores the archives."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cusz_core import embedding
from cusz_core.errors import CuszError, ParameterError, UnsupportedError
from cusz_core.parameters import TABLE, Mode

from ..adios2_calls import calling_adios2, close_after, converted, import_adios2, require_mpi
from ..plugin import plugin_path
from ..ranks import Caught, Ranks, close_at_exit, watch_others
from ..reading import datafiles
from ..reading.contents import what_is_in
from ..tables import blocktable, checks, statistics
from ..tables.representation import one_value, require_text, widening
from ..tables.representation import stored as as_stored
from . import repair
from .agreement import Description, Opening, Openings, Value, bytes_needed, merged_openings, require_same_opening
from .background import Background, Pending, failed
from .blocks import Blocks, prepare
from .claim import Claim
from .compression import Compressor, StepWork, described, parts_of
from .control import Controller, missed_without_search
from .engine_options import Engine, engine_parameters, require_path, statistics_wanted, steps_kept
from .goals import GOALS, LIMITS, STEP, PutOptions, WriterOptions
from .output import Output, free_bytes, require_room
from .progress import Tally, VariableSummary, print_step, print_summary
from .settings import Settings
from .together import Agreed, Report, Together, Totals

if TYPE_CHECKING:
    from typing import Unpack  # of Python 3.11


class _Made(NamedTuple):
    """What a rank has made of its blocks.

    Attributes:
        rows, flat: its rows of every variable's block table, and all of them in one array.
        predictors: the number of its blocks by variable and predictor, without those stored raw.
    """

    rows: dict[str, NDArray[np.float64]]
    flat: NDArray[np.float64]
    predictors: Counter[tuple[str, str]]


_NOTHING = _Made({}, np.empty(0), Counter())


class Writer:
    """Writes steps of compressed variables, from all ranks of a communicator.

        with Writer("run.bp", comm, eb=1e-3, mode="rel") as out:
            for ...:
                with out.step():
                    out.put("U", u, shape=global_shape, start=offset)

    Constructing, the end of a step and `close` are collective: all ranks must reach them. If one rank fails, all raise
    the same error: its class is that of the first rank that failed, and the message names that rank. The step is then
    not written, and the steps before it are complete. Writing can go on, unless it was ADIOS2 that failed.

    All calls of MPI and ADIOS2 are made by the thread that calls the Writer (MPI_THREAD_FUNNELED suffices). A child
    made by fork cannot write with its parent's Writer.
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
        overlap: bool = False,
        ranges: bool = True,
        progress: bool | None = None,
        **options: Unpack[WriterOptions],
    ) -> None:
        """
        Args:
            path: the .bp folder, or the stream, to write. A run of this name is replaced, unless `append`; a folder of
                other things is refused.
            comm: an mpi4py communicator; None: this process alone.
            eb: the error bound of variables without their own, finite and >= 0: in the variable's unit (mode "abs"), or
                a fraction of its value range (mode "rel") or of every value ("pw_rel"). 0 is lossless.
            mode: "abs": |d - d'| <= eb. "rel": |d - d'| <= eb * (max - min) of the whole variable at the step, over all
                ranks and over values that are finite and not `fill`. A range of 0 means lossless. "pw_rel":
                |d - d'| <= eb * |d|, with signs and zeros kept (see `cusz_core.Parameters`).
            variables: parameters that differ for some variables: by name, a dictionary of "eb", "mode" and `options`. A
                bound or a goal there replaces the Writer's. A name may be a pattern, such as "level*/rho", for
                variables that have no entry of their own; the first that fits counts. A pattern does not apply to
                numbers and texts, and only its `lossless` to integers. Closing the Writer warns of entries that have
                applied to no array.
            engine: "BP5", "BP4" or "SST".
            parameters: of the engine, as ADIOS2 takes them. With StatsLevel 1 ADIOS2 keeps minimum and maximum of
                blocks, for bpls -l; with 0 it does not. The default is 1; only 0 is possible for BP4, and without
                `ranges`.
            append: adds steps to an existing file (BP5, BP4), with statistics if the file has them.
            asynchronous: ADIOS2 writes in the background (BP5's AsyncWrite). A step is certain to be in the file once
                writing of the next one has begun, or the Writer is closed; without `asynchronous`, once its `with`
                block has ended. SST always has its own queue.
            overlap: a thread compresses a step while the program goes on, and the step is written when the next one
                ends, or the Writer is closed. Blocks in host memory are copied at the end of the step (once, into
                memory that is reused for the next one); those on a device are compressed before it ends. An error is
                raised at the end of the next step, which is not written either, or by `close`. A step in which a bound
                is sought (`psnr` and so on) is compressed and written before it ends.
            ranges: False: minimum and maximum of variables in mode "abs" are not computed, which saves a pass over the
                data; block tables have NaN for them.
            progress: rank 0 prints a line for each step, and a summary when the Writer is closed, to stderr; None: only
                if stderr is a terminal.
            options: further parameters, by the names of `cusz_core.Parameters`, such as `fill`; `backend` and `threads`
                apply to this rank. Or a goal instead of `eb`, for which a bound is sought at every step:
                psnr: in dB, of every variable that has no bound or goal of its own, over all ranks.
                ratio: raw bytes over archive bytes of the whole step, with one bound relative to the value range for
                    all variables that have no bound or goal of their own.
                budget_bytes: archive bytes of the whole step, in the same way.
                eb_min, eb_max: limits of the bound, in the variable's unit (mode "abs") or as a fraction of its value
                    range ("rel"). If the goal cannot be reached within these limits, the step is still written;
                    `missed_goals` has a message, which rank 0 prints.

        Raises:
            ParameterError: a value out of its legal range, a path that cannot be written to, or ranks that disagree.
            UnsupportedError: an engine other than these three, `asynchronous` with BP4, or an ADIOS2 without MPI or
                with another one than mpi4py's.
            PluginError: the plugin or adios2 is missing, or ADIOS2 loaded another copy of the plugin.
            CuszError: ADIOS2 cannot open the file.
        """
        _require_known("Writer", options)  # raised before any rank waits for others
        self._process = os.getpid()
        self._path = os.fspath(path)
        self._engine = engine
        self._ranks = Ranks(comm)
        self._output: Output | None = None
        self._in_step = False
        self._background = Background() if overlap else None
        self._pending: Pending[_Made] | None = None  # the step before
        self._blocks: list[Blocks] = []  # of the open step, by variable
        self._latest: dict[str, Blocks] = {}  # by variable, the one of `_blocks` that grows
        self._values: dict[str, Value] = {}
        self._together = Together(self._ranks)
        self._controller = Controller(self._ranks)
        # On rank 0:
        self._steps = 0
        self._seconds = 0.0  # at the ends of steps
        self._tally = Tally()
        self._missed: list[str] = []
        self._progress = self._ranks.rank == 0 and (sys.stderr.isatty() if progress is None else bool(progress))
        caught = Caught()
        of_engine: dict[str, str] = {}
        wanted, kept, appends, has_statistics = False, -1, False, None
        with caught:
            self._settings = Settings({"eb": eb, "mode": mode, **options}, variables)
            of_engine = engine_parameters(engine, parameters, append, asynchronous)
            wanted = statistics_wanted(engine, of_engine, ranges)
            kept = steps_kept(of_engine)
            appends, has_statistics = self._checked(append, kept)
        try:
            own = Opening(self._path, str(engine), bool(append), bool(asynchronous), bool(overlap))
            self._open(own, wanted, appends, kept, has_statistics, of_engine, ranges, caught.error)
        except BaseException:
            self._together.free()
            raise

    def _checked(self, append: bool, kept: int) -> tuple[bool, bool | None]:
        """Refuses what cannot be written.

        Args:
            append: as given to the Writer.
            kept: how many steps of the file are to be kept (`repair.keep_steps`).

        Returns, on rank 0:
            whether steps are appended: a file without complete steps is begun anew, because ADIOS2 (2.12) crashes when
                it reads one, and makes one in BP4 unreadable when it appends to it.
            whether that file has ADIOS2's statistics; None if that does not matter.
        """
        appends, has_statistics = False, None
        adios2 = import_adios2()
        if self._ranks.comm is not None:
            require_mpi(adios2)
        if self._ranks.rank == 0:
            require_path(self._path, self._engine, append)
            folder = Path(self._path)
            if self._engine != "SST":
                Claim(folder).release()  # until ADIOS2 has made the files
            if append:
                repair.cut_incomplete_step(folder, kept)
                appends = datafiles.has_steps(folder)
                if not appends and any(file.stat().st_size for file in folder.iterdir()):
                    warnings.warn(f"{self._path!r} has no complete step to append to: it is begun anew", stacklevel=3)
            if appends:
                if self._engine == "BP5":
                    has_statistics = statistics.are_in(adios2, folder)
                known = self._together.known
                known.in_file, known.attributes = what_is_in(self._path)
        plugin_path()
        return appends, has_statistics

    def _open(
        self,
        own: Opening,
        wanted: bool,
        appends: bool,
        kept: int,
        has_statistics: bool | None,
        of_engine: dict[str, str],
        ranges: bool,
        error: BaseException | None,
    ) -> None:
        """Opens the file or stream on all ranks (collective).

        Args:
            own: the arguments that must be the same on all ranks.
            wanted: whether this rank wants ADIOS2 to keep the minimum and maximum of blocks.
            appends, has_statistics: on rank 0, as `_checked` returns them.
            kept: as for `_checked`.
            of_engine: parameters of the engine.
            ranges: as given to the Writer.
            error: of this rank, if it has failed before.
        """
        where = f"cannot write {self._path!r}"
        first = self._ranks.first_of(error is not None)
        if first is not None:
            self._ranks.raise_of(first, error, where, is_counted=True)
        openings = self._ranks.merged(lambda: Openings((self._ranks.rank, own), None), merged_openings, where)
        require_same_opening(openings, where)
        is_wanted_by_all = self._ranks.first_of(not wanted) is None
        known = self._together.known
        appends, has_statistics, known.in_file, known.attributes = self._ranks.of(
            0, (appends, has_statistics, known.in_file, known.attributes)
        )
        known.dimensions = {name: own.dimensions for name, own in known.in_file.items() if own.dimensions}
        self._settings.append_to(known.in_file)
        # From here on ADIOS2 communicates.
        with calling_adios2(f"begin to write {self._path!r}"):
            output = Output(import_adios2(), self._path, self._engine, self._ranks.comm, known.attributes)
        self._ranks.agree(_error_of(output.prepare), where)
        wanted = is_wanted_by_all if has_statistics is None else has_statistics
        wanted = wanted and self._can_have_statistics(bool(has_statistics), where)
        self._compressor = Compressor(ranges or wanted)
        if appends:  # nothing is dropped before all ranks have come so far, and ADIOS2 opens what is left
            dropping = _error_of(lambda: repair.keep_steps(Path(self._path), kept)) if self._ranks.rank == 0 else None
            self._ranks.agree(dropping, where)
        with output.watch("opening it", self._ranks.watched):
            is_first = self._ranks.rank == 0
            opened = _error_of(lambda: output.open(of_engine, wanted, appends, record_checks=is_first))
            try:
                self._ranks.agree_after_adios2(opened, where)
            except CuszError:
                output.keep_for_ever()  # destructors would open it again, and end the process
                raise
        self._output = output
        if self._ranks.size > 1:
            close_at_exit(self, Writer._close)

    def _can_have_statistics(self, must: bool, where: str) -> bool:
        """Whether ADIOS2 keeps the minimum and maximum of blocks: the same on all ranks, or BP5 readers would crash.

        (They would also crash if steps without statistics were appended to a file with them: hence `must`.)
        """
        # The trial writes files. One rank is enough, because all have the same ADIOS2.
        problem = self._ranks.of(0, statistics.problem() if self._ranks.rank == 0 else None)
        if not problem:
            return True
        if must:
            raise UnsupportedError(
                f"{where}: the file has ADIOS2's statistics, and so must what is appended; but {problem}"
            )
        if self._ranks.rank == 0:
            statistics.warn(problem)
        return False

    # ------------------------------------------------------------------------------------------------- for users

    def step(self) -> WriterStep:
        """The next step, for `with`; when the block ends (collective), what was put is written.

        With `overlap`, what was put in the step before is written then.

        Raises:
            ParameterError: a step is already open, the Writer is closed, or it was opened by a process that has forked
                this one.
        """
        self._require_open()
        if self._in_step:
            raise ParameterError("a step is already open: its 'with' block must end first")
        return WriterStep(self)

    def put(
        self,
        name: str,
        array: Any,
        shape: Sequence[int] | None = None,
        start: Sequence[int] | None = None,
        *,
        dims: Sequence[str] | None = None,
        eb: float | None = None,
        mode: Mode | None = None,
        **options: Unpack[PutOptions],
    ) -> None:
        """Adds a block of a variable, or one value, to the open step.

        A rank may put any number of blocks, or none. Blocks of a variable must not overlap; elements that none covers
        have no values, and are NaN in a Reader (0 in integers). The array is not copied: it must not change until the
        step ends.

        Any number of ranks may put one value; that of the first of them is stored.

        Args:
            name: of the variable.
            array: a block of 1 to 32 dimensions, numpy's or on a CUDA device, of float32 or float64; float16, whose
                bound holds after rounding to float16; complex64 or complex128, each part with the bound (and, in mode
                "rel", a value range of its own); or, in host memory, integers or bool, which are stored exactly, packed
                unless `lossless="none"` is given (or the file that is appended to has them unpacked). A block that is
                not C-contiguous is copied once, as are float16 and complex ones. Or one value, a number or a text,
                which is stored exactly.
            shape: of the global array, the same on all ranks; None: this block's.
            start: where the block begins in it; None: at its origin.
            dims: names of the dimensions, slowest first, which xarray uses: the attribute `NAME/dimensions`. One block
                may name them for all.
            eb, mode, options: for this variable at this step, if they differ from the Writer's; a goal (`psnr`, `ratio`
                or `budget_bytes`, with `eb_min` and `eb_max`) then applies to this variable alone. They must be the
                same for all of its blocks on all ranks. For values that are stored exactly, only `lossless` is
                accepted, and it cannot change from step to step.

        Raises:
            UnsupportedError: a type or layout that is not accepted, or a bound for what is stored exactly.
                With BP4 also a text of more than 65535 bytes.
            ParameterError: no step is open, a value out of its legal range, a text with a NUL character, or a block
                outside the global shape.
        """
        _require_known("put", options)
        self._require_open()
        if not self._in_step:
            raise ParameterError("put needs an open step: with writer.step(): writer.put(...)")
        if not isinstance(name, str) or not name or len(name) > 1000:
            raise ParameterError(f"name is {embedding.describe(name)}; it must be a text of 1 to 1000 bytes")
        if not name.isascii() or "\0" in name:
            require_text(name, "name", self._engine)
            if len(name.encode()) > 1000:
                raise ParameterError(f"name is {embedding.describe(name)}; it must be a text of 1 to 1000 bytes")
        if blocktable.is_table(name):
            raise ParameterError(
                f"{name!r} is the name of a block table: choose one that does not begin with "
                f"{blocktable.TABLE_PREFIX!r}"
            )
        put_with = None if options else (shape, dims, eb, mode)
        if put_with is not None and name in self._latest and self._latest[name].adds(array, start, put_with):
            return
        value = one_value(array)
        own = self._settings.own(name, array if value is None else None, {"eb": eb, "mode": mode, **options})
        if value is not None:
            if own or shape is not None or start is not None or dims is not None:
                raise ParameterError(f"{name!r} is one value, which is stored exactly and has no shape: put it alone")
            if isinstance(value, str):
                require_text(value, f"the value of {name!r}", self._engine)
            of_rank = self._values.setdefault(name, Value(name, value))
            if repr(of_rank.value) != repr(value):  # NaN is not equal to itself
                raise ParameterError(
                    f"{name!r} is one value, which has been put as {of_rank.value} in this step, and now as {value}"
                )
            return
        for stored in as_stored(name, array):
            parameters, wanted = self._settings.of(stored, name, own)
            block = prepare(stored, shape, start, dims, parameters, wanted, put_with)
            if self._engine == "BP4" and not any(block.shape) and not self._has_been_put(stored.name):
                raise UnsupportedError(
                    f"variable {name!r} has shape {block.shape}: in BP4 the first array of a variable must have "
                    "values, or its readers take all its blocks for single values: use BP5, or put it first at a step "
                    "in which it has some"
                )
            if block.name not in self._latest or not self._latest[block.name].joins(block):
                self._latest[block.name] = block
                self._blocks.append(block)

    def _has_been_put(self, name: str) -> bool:
        """Whether an array of this name has been put in an earlier step, by any rank."""
        return name in self._together.known.kinds or (self._pending is not None and name in self._pending.agreed.arrays)

    def attribute(self, name: str, value: Any) -> None:
        """Stores an attribute of the file; every rank should, with the same value, and before the last step ends.

        Args:
            name: of the attribute.
            value: a text, a list of texts (with BP5), a number, or a numpy array of numbers.

        Raises:
            UnsupportedError: with BP4 a list of texts, which BP4 would write out of bounds, an empty array, or a text
                of more than 65535 bytes; with SST a list of texts or complex numbers, which would not arrive.
            ParameterError: a text with a NUL character, ADIOS2 refuses the value, as it does a different one later, or
                it is of another type in the file that is appended to.
        """
        self._require_open().attribute(name, value)

    def summary(self) -> list[VariableSummary]:
        """Totals of what has been written, by variable, on rank 0 (the others get an empty list)."""
        return self._tally.summaries(self._seconds * self._ranks.size)

    @property
    def missed_goals(self) -> list[str]:
        """A message for every goal (`ratio` and so on) that a step has missed; the same on all ranks."""
        return list(self._missed)

    def close(self) -> None:
        """Closes the file (collective). A second call does nothing.

        Raises:
            CuszError: ADIOS2 cannot close it; or, with `overlap`, the last step is not written.
        """
        self._close(None)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        is_stopped = error is not None and not isinstance(error, (Exception, SystemExit))
        if is_stopped and self._ranks.size > 1:
            return  # it must not wait for other ranks
        has_failed = isinstance(error, Exception) or (isinstance(error, SystemExit) and error.code)
        close_after(error, lambda: self._close(error if has_failed else None))

    # ----------------------------------------------------------------------------------------------------- inside

    @property
    def _is_copy(self) -> bool:
        """Whether this is the copy of a Writer in a child made by fork: the file belongs to the parent."""
        return os.getpid() != self._process

    def _require_own(self) -> None:
        if self._is_copy:
            raise ParameterError(
                f"the Writer of {self._path!r} belongs to process {self._process}, and this one is a child made by "
                "fork: write in the process that has opened the file"
            )

    def _require_open(self) -> Output:
        self._require_own()
        if self._output is None:
            raise ParameterError(f"the Writer of {self._path!r} is closed")
        if self._together.is_closing:
            raise ParameterError(f"another rank has closed the Writer of {self._path!r}: close it here, too")
        return self._output

    def _close(self, error: BaseException | None) -> None:
        if self._is_copy:
            return
        lost = None
        try:
            self._complete(error)
        except CuszError as caught:  # the file is closed all the same
            lost = caught
        output = self._output
        try:
            self._close_output(error)
        finally:
            if lost is not None:
                raise lost
        if output is not None and error is None and self._ranks.rank == 0:
            self._warn(output.late_attributes)

    def _warn(self, late_attributes: Sequence[str]) -> None:
        """Warns, on rank 0, of what has had no effect or may be a mistake."""
        doubts = [f"variables= has {doubt}" for doubt in self._settings.doubts()] if self._steps > 0 else []
        if coarse := self._settings.coarse_coordinates():
            names = ", ".join(map(repr, coarse))
            doubts.append(f"coordinates have the bound of the Writer; put them with eb=0 to keep them exactly: {names}")
        if late_attributes:
            names = ", ".join(map(repr, late_attributes))
            doubts.append(f"attributes that were set after the last step are not stored: {names}")
        for doubt in doubts:
            warnings.warn(f"{self._path!r}: {doubt}", stacklevel=4)

    def _close_output(self, error: BaseException | None) -> None:
        output, self._output = self._output, None
        if output is None:
            return
        out_of_order = None
        if not self._together.is_closing:
            # A rank that closes while others end a step has failed in between.
            with self._watch_others(output, error):
                out_of_order = self._together.close(error, self._not_written())
        self._finish(output)
        if error is None and out_of_order is not None:
            raise out_of_order

    def _finish(self, output: Output) -> None:
        def close() -> None:
            output.close()
            if self._progress:
                print_summary(self._path, self._steps, self._seconds, self.summary())

        try:
            with output.watch("closing it", self._ranks.watched):
                self._ranks.agree_after_adios2(_error_of(close, of_adios2=True), f"cannot close {self._path!r}")
        except CuszError:
            output.keep_for_ever()
            raise
        finally:
            self._end()

    def _end(self) -> None:
        if self._background is not None:
            self._background.close()
        self._together.free()

    def _abandon(self, output: Output) -> None:
        """Drops the file without its open step; nothing more can be written."""
        output.abandon()
        self._output = None
        self._end()

    def _drop(self, output: Output) -> None:
        """As `_abandon`, but without communication, when writing a step is interrupted: what is put next would be added
        to that step."""
        if self._ranks.size > 1:
            output.keep_for_ever()
        output.abandon()
        self._output = None
        if self._background is not None:
            self._background.close()

    def _not_written(self) -> str:
        return f"{self._path!r}: step {self._steps} of this Writer is not written"

    def _end_step(self, error: Exception | None) -> None:
        blocks, values = self._blocks, list(self._values.values())
        self._forget()
        self._require_own()
        try:
            self._complete(error)
        except CuszError as failure:
            raise type(failure)(f"{failure} (nor is the step after it, which ends here)") from failure
        began = time.perf_counter()
        error = error or _error_of(lambda: _wait_for(blocks))
        work, agreed = self._agree(blocks, values, error)
        self._settings.see(agreed.arrays.values())
        if self._background is not None and not agreed.is_sought:
            self._pending = self._begin(self._background, work, agreed, began)
            return
        agreeing = time.perf_counter() - began
        began += agreeing
        totals = self._compress(work, agreed)
        self._write_step(work, agreed, totals, agreeing, time.perf_counter() - began)

    def _begin(self, background: Background, work: StepWork, agreed: Agreed, began: float) -> Pending[_Made]:
        """Has the blocks of a step compressed in the background. An error is not raised, but is in the result."""
        try:
            agreed.require()
            for number, of in enumerate(work.blocks):
                if not of.are_on_host:  # they may change on the device
                    work.compress(number, agreed.bounds[of.name])
            own = work.with_blocks(background.copied(work.blocks))
            made = background.start(lambda: self._made_of(own, agreed))
            return Pending(own, agreed, made, time.perf_counter() - began)
        except Exception as error:
            return Pending(work, agreed, failed(error), time.perf_counter() - began)

    def _complete(self, error: BaseException | None = None) -> None:
        """Writes the step before if it is still pending, once this rank has compressed it (collective).

        Args:
            error: of this rank, if it has failed since.
        """
        if self._pending is None:
            return
        began = time.perf_counter()
        own, caught = _NOTHING, Caught()
        with caught:
            own = self._pending.made.result()
        pending, self._pending = self._pending, None
        with self._watch_others(self._output, error or caught.error):
            totals = self._gather(own, caught.error, pending.agreed)
        self._write_step(pending.work, pending.agreed, totals, pending.seconds, time.perf_counter() - began)

    def _write_step(
        self, work: StepWork, agreed: Agreed, totals: Mapping[str, Totals], agreeing: float, compressing: float
    ) -> None:
        """Makes ADIOS2 write a step that all ranks have compressed (collective).

        Args:
            agreeing, compressing: how many seconds the program has waited for each.
        """
        began = time.perf_counter()
        output = self._require_open()
        try:
            with output.watch(f"writing step {self._steps} of this Writer", self._ranks.watched):
                self._write(work, agreed, totals)
        except BaseException as error:
            if not isinstance(error, Exception) and output.is_in_step:
                self._drop(output)
            raise
        seconds = (agreeing, compressing, time.perf_counter() - began)
        self._say(self._missed_without_search(agreed, totals))
        self._steps += 1
        self._seconds += sum(seconds)
        self._tally.add(totals)
        if self._progress:
            print_step(self._path, self._steps - 1, totals, seconds)

    def _watch_others(self, output: Output | None, error: BaseException | None) -> AbstractContextManager[None]:
        """While this rank waits for the others to end a step or close the Writer: see `ranks.watch_others`."""
        if output is None or self._ranks.size == 1:
            return contextlib.nullcontext()
        return watch_others(output.plugin, output.absolute, self._ranks.rank, error)

    def _forget(self) -> None:
        """Drops what has been put into the open step."""
        self._blocks, self._latest, self._values = [], {}, {}

    def _agree(
        self, blocks: Sequence[Blocks], values: Sequence[Value], error: Exception | None
    ) -> tuple[StepWork, Agreed]:
        """Finds the bounds of the step (collective).

        Args:
            blocks, values: of this rank.
            error: of this rank, if it has failed before.
        """
        work, report, caught = StepWork(self._compressor, blocks, ()), Report(), Caught(error)
        with caught:
            if error is None:
                ranges = [self._compressor.ranges_before(of) for of in blocks]
                work = StepWork(self._compressor, blocks, ranges)
                report = Report(described(blocks), np.concatenate([np.empty((0, 3)), *ranges]), tuple(values))
        with self._watch_others(self._output, caught.error):
            return work, self._together.end_step(report, caught.error, self._not_written())

    def _compress(self, work: StepWork, agreed: Agreed) -> dict[str, Totals]:
        """Compresses this rank's blocks, and returns the totals of all ranks (collective)."""
        own, caught = _NOTHING, Caught()
        with caught:
            agreed.require()
            work.compress_all(agreed.bounds)
        missed: list[str] = []
        if agreed.is_sought:
            self._ranks.agree(caught.error, self._not_written())
            missed = self._controller.compress(work, agreed.arrays, agreed.spans, self._not_written())
        with caught:
            if caught.error is None:
                own = self._made_of(work, agreed)
        totals = self._gather(own, caught.error, agreed)
        self._say(missed)
        return totals

    def _made_of(self, work: StepWork, agreed: Agreed) -> _Made:
        """What this rank makes of its blocks; compresses those that are not compressed yet (no communication)."""
        work.compress_all(agreed.bounds)
        compressed = work.made()
        rows = parts_of(work.blocks, compressed, self._ranks.rank)
        own = _Made(rows, agreed.layout.in_one(rows), Counter())
        for of, made in zip(work.blocks, compressed, strict=True):
            own.predictors.update({(of.name, predictor): count for predictor, count in made.predictors.items()})
        return own

    def _gather(self, own: _Made, error: BaseException | None, agreed: Agreed) -> dict[str, Totals]:
        """Sums up and gathers what all ranks have made of their blocks (collective).

        Args:
            own: what this rank has made.
            error: of this rank, if it has failed.
        """
        free, caught = math.inf, Caught(error)
        with caught:
            if error is None and self._ranks.rank == 0 and self._require_open().is_file:
                self._require_open().require_folder()
                free = free_bytes(self._require_open().absolute)
        where = self._not_written()
        stored, free = self._together.totals(agreed.layout, own.rows, own.predictors, free, caught.error, where)
        totals = {
            name: each._replace(raw_bytes=each.raw_bytes // widening(agreed.arrays[name].given))
            for name, each in stored.items()
        }
        archive_bytes = sum(each.archive_bytes for each in totals.values())
        blocks = {name: each.blocks for name, each in totals.items()}
        try:
            require_room(bytes_needed(archive_bytes, blocks, agreed.arrays, self._ranks.size), free)
        except CuszError as full:
            raise CuszError(f"{where}: rank 0: {full}") from full
        agreed.layout.gather(own.flat)
        self._together.add(agreed)
        return totals

    def _missed_without_search(self, agreed: Agreed, totals: Mapping[str, Totals]) -> list[str]:
        """A message if the step misses its goal, and no bound was sought for that goal."""
        wanted = self._settings.goal_of_step
        groups = (block.wanted.group for block in agreed.arrays.values() if block.wanted is not None)
        if wanted is None or STEP in groups:
            return []
        raw_bytes, archive_bytes = (
            sum(getattr(each, size) for each in totals.values()) for size in ("raw_bytes", "archive_bytes")
        )
        return missed_without_search(wanted, raw_bytes, archive_bytes)

    def _say(self, missed: Sequence[str]) -> None:
        """Notes which goals the step misses, and prints them on rank 0."""
        for message in missed:
            self._missed.append(f"step {self._steps}: {message}")
            if self._ranks.rank == 0:
                print(f"cusz_operator: {self._path!r}: {self._missed[-1]}", file=sys.stderr, flush=True)

    def _write(self, work: StepWork, agreed: Agreed, totals: Mapping[str, Totals]) -> None:
        """Makes ADIOS2 write the step (collective)."""
        output = self._require_open()

        def put() -> None:
            output.begin_step()
            for description in agreed.arrays.values():
                output.describe(description)
            for of, made in sorted(zip(work.blocks, work.made(), strict=True), key=lambda both: both[0].name):
                output.put(of, made)  # in the order that a Reader relies on (datafiles.py)
            for value in agreed.values.values():  # on rank 0
                output.put_value(value)
            if not agreed.arrays and not agreed.values and self._ranks.rank == 0:
                output.put_nothing()
            before = dict(zip(agreed.layout.names, agreed.layout.before.tolist(), strict=True))
            for name, rows in agreed.layout.tables().items():
                output.put_table(name, rows, before[name], totals[name].blocks)

        try:
            self._ranks.agree(_error_of(put, of_adios2=True), self._not_written())
        except CuszError:
            self._abandon(output)
            raise
        records = {
            name: checks.VariableRecord(*_asked(block), totals[name].predictors)
            for name, block in agreed.arrays.items()
        }
        output.record(records, self._together.combined)
        try:
            self._ranks.agree_after_adios2(_error_of(output.end_step, of_adios2=True), self._not_written())
        except CuszError:
            output.keep_for_ever()
            self._abandon(output)
            raise


class WriterStep:
    """A step of a Writer, for `with`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __enter__(self) -> Writer:
        self._writer._require_open()
        if self._writer._in_step:
            raise ParameterError("a step is already open: its 'with' block must end first")
        self._writer._in_step = True
        return self._writer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer._in_step = False
        if error is not None and not isinstance(error, Exception):
            self._writer._forget()  # the process is being stopped, or the user of a notebook has had enough
            return
        self._writer._end_step(error)


def _require_known(what: str, options: Iterable[str]) -> None:
    """Refuses unknown keywords."""
    for key in options:
        if key not in (*TABLE, *GOALS, *LIMITS):
            raise TypeError(f"{what}() got an unexpected keyword argument {key!r}")


def _asked(block: Description) -> tuple[float, str]:
    """The bound or goal of a variable, as it was asked for."""
    if block.wanted is not None:
        return block.wanted.value, block.wanted.kind
    return block.parameters.eb, block.parameters.mode


def _wait_for(blocks: Iterable[Blocks]) -> None:
    for of in blocks:
        of.wait()


def _error_of(work: Callable[[], None], *, of_adios2: bool = False) -> Exception | None:
    """The error that `work` raises, for ranks to agree on; with `of_adios2`, any but a CuszError is ADIOS2's."""
    try:
        work()
    except Exception as error:
        return converted(error, "failed") if of_adios2 else error
    return None
