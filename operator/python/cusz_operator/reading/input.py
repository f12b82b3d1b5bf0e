"""The ADIOS2 side of a Reader's file or stream: which variables there are, where their blocks lie, and their bytes.

ADIOS2's engines are not thread-safe: every call here waits for the one before it.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import errno
import functools
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cusz_core.errors import CuszError, ParameterError, UnsupportedError

from ..adios2_calls import (
    blocks_info,
    calling_adios2,
    converted,
    counts_of_blocks,
    extents_of,
    import_adios2,
    is_off,
    require_mpi,
)
from ..forks import free_after_fork
from ..plugin import Plugin
from ..ranks import Caught, Ranks, close_at_exit, first_told, watch_others
from ..streams import told_apart
from ..tables.blocktable import table_name
from ..tables.boxes import Box, Extents
from .datafiles import MetadataFiles, close_kept
from .walk import walk

_T = TypeVar("_T")

_READERS_OF_XARRAY = 128  # its file_cache_maxsize
_FILES_OF_METADATA = 3  # which BP5 opens at the same time: it takes no lower limit
_THREADS_OF_ADIOS2 = 16  # at most, to read
_NOT_ACTIVE = "did not find active Writer"  # of a stream, in a message of ADIOS2


@dataclasses.dataclass(frozen=True)
class Placed:
    """Where the blocks of a variable lie at a step, in the order of ADIOS2's block numbers.

    Attributes:
        start, count: int64, of shape (blocks, dimensions). For a variable without a global shape, `start` is 0.
        writer: the rank that wrote each block; -1 if not known (BP4, and where `blocks_info` fails).
        min, max: of each block, as ADIOS2 keeps them; NaN if it does not.
        is_known: False where ADIOS2 cannot tell (`blocks_info`), and one block stands for all of an array.
    """

    start: NDArray[np.int64]
    count: NDArray[np.int64]
    writer: NDArray[np.int64]
    min: NDArray[np.float64]
    max: NDArray[np.float64]
    is_known: bool = True


def form_of(shape: Extents) -> str:
    """What a variable of a global shape is, in words."""
    return f"a {len(shape)}-dimensional array" if shape else "one value"


class Input:
    """An engine that reads."""

    def __init__(
        self, path: str, comm: Any, engine: str | None, parameters: Mapping[str, Any] | None, plugin: Plugin | None
    ) -> None:
        """
        Args:
            path: the .bp folder, or the stream.
            comm: an mpi4py communicator, for a stream; None: this process alone.
            engine: "SST" for a stream; "BP5" or "BP4" for a file; None: as it was written.
            parameters: of the engine.
            plugin: fetches archives; None: none are fetched.

        Raises:
            PluginError: adios2 is missing.
            ParameterError: a parameter changes which steps there are.
            CuszError: ADIOS2 cannot open it.
        """
        self.path = path
        #: ADIOS2 opens files when they are needed, and the program may change its working directory.
        self.absolute = path if engine == "SST" else os.path.join(os.getcwd(), path)
        self.is_stream = engine == "SST"
        self.current: int | None = None  # the open step of a stream
        self._has_begun = False  # a step of a stream, and has not ended
        self._failure: str | None = None  # of a request to a stream
        #: Arrays of failed requests: ADIOS2 goes on filling them in the next request, or when it is closed.
        self._unfinished: list[NDArray[Any]] = []
        self._lock = free_after_fork(threading.RLock(), "input")
        self._plugin = plugin
        self._adios2 = adios2 = import_adios2()
        together = [] if comm is None or not self.is_stream else [comm]
        self._comm = comm if together and comm.size > 1 else None  # of ranks that have not left the stream
        if together:
            require_mpi(adios2)
        with self._calling("begin to read"):
            self._adios = adios2.Adios(comm=comm) if together else adios2.Adios()
        self._engine_name = engine or ("BP5" if (Path(path) / "mmd.0").exists() else "BP4")
        given = {str(key): str(value) for key, value in (parameters or {}).items()}
        if any(key.lower() == "selectsteps" for key in given):
            raise ParameterError("SelectSteps is not for a Reader: take run[i], which is step i of the file")
        if any(key.lower() == "alwaysprovidelatesttimestep" and not is_off(value) for key, value in given.items()):
            raise ParameterError(
                "AlwaysProvideLatestTimestep: ADIOS2 crashes where it skips steps: leave it out, and let the writer "
                "have QueueLimit = 1 and QueueFullPolicy = Discard"
            )
        self._parameters = {**(_of_stream(given) if self.is_stream else _of_file(given)), **given}
        with self._calling("take the parameters of the engine for"):
            self._io = self._declare("cusz_reader")
        self._metadata = None if self.is_stream else MetadataFiles(Path(self.absolute))
        mode = adios2.Mode.Read if self.is_stream else adios2.Mode.ReadRandomAccess
        with contextlib.ExitStack() as stack:
            for stream_comm in together:
                stack.enter_context(told_apart(adios2, stream_comm, self._parameters))
            self._engine: Any = self._opened(lambda: self._io.open(self.absolute, mode, *together))
        if self._comm is not None:
            close_at_exit(self, Input._close_after)
        with self._calling("count the steps of"):
            self.n_steps = 0 if self.is_stream else int(self._engine.steps())
            self._is_bp4 = not self.is_stream and str(self._engine.impl.Type()).startswith("BP4")
        self._described: dict[str, dict[str, str]] | None = None
        self._attribute_names: list[str] | None = None  # sorted
        self._shapes: dict[tuple[str, int], Extents] = {}
        self._own_steps: dict[str, dict[int, int]] = {}
        self._of_one_form: set[str] = set()  # variables of a BP5 file that ADIOS2 can read
        self._have_one_shape: dict[str, bool] = {}  # by variable of a BP4 file: one shape, of several dimensions
        self._of_writer: set[str] = set()  # variables with block tables at all their steps, and the tables
        self._told: list[dict[str, Extents]] | None = None  # the shapes of the variables of each step
        self._last_infos: tuple[tuple[str, int], list[dict[str, str]] | None] | None = None

    def _opened(self, opening: Callable[[], Any]) -> Any:
        """Calls `opening`; for a stream again, within its time, while a file of a killed writer is in its place: ADIOS2
        waits only while there is none."""
        give_up = time.monotonic() + (_seconds_to_open(self._parameters) if self.is_stream else 0)
        while True:
            try:
                return self._opened_by_all(opening)
            except CuszError as error:
                is_late = not time.monotonic() < give_up
                is_late = is_late if self._comm is None else self._comm.bcast(is_late)
                if is_late or _NOT_ACTIVE not in str(error):
                    raise
            time.sleep(0.2)

    def _opened_by_all(self, opening: Callable[[], Any]) -> Any:
        """Calls `opening`; a stream is opened on all ranks or on none. If its writer ends at that moment, ADIOS2 tells
        rank 0 and leaves the others waiting."""
        if self._comm is None:
            return self._attempt("open", opening)
        ranks, engine, caught = Ranks(self._comm), None, Caught()
        with caught:
            engine = self._attempt("open", opening)
        try:
            ranks.agree_after_adios2(caught.error, f"opening the stream {self.path!r}")
        finally:
            ranks.free()
        return engine

    @property
    def is_open(self) -> bool:
        return self._engine is not None

    def close(self, error: BaseException | None = None) -> None:
        """Closes it; a stream that has not ended is left by all ranks together (collective).

        Args:
            error: why this rank leaves it.

        Raises:
            CuszError: ADIOS2 cannot close it.
        """
        with self._lock:
            engine, self._engine = self._engine, None
            if engine is None:
                return
            comm, self._comm = self._comm, None
            if comm is not None and (error is None or isinstance(error, Exception)):  # else the process is stopped
                with watch_others(self._plugin or Plugin(), self.absolute, comm.rank, error):
                    first_told(comm, "it has closed it" if error is None else _described(error))
            # An open step is not ended: that would be collective, and would fail after a failed request.
            if self.is_stream or self.n_steps:  # ADIOS2's Close crashes on a file that is still empty
                with self._calling("close"):
                    engine.close()
            self._unfinished.clear()

    def _close_after(self, error: BaseException | None) -> None:
        """Closes it when an exception ends the program, if the other ranks have not left it."""
        if error is not None and self._comm is not None:
            self.close(error)

    def received(self) -> Iterator[int]:
        """The steps of a stream as they arrive; each is open until the next one is requested."""
        statuses = self._adios2.StepStatus
        self._require_open()
        while self._engine is not None:
            self._require_all()
            comm, self._comm = self._comm, None
            with self._calling("go to the next step of"):
                if self._has_begun:  # here or in a loop that was left
                    self._engine.end_step()
                self._has_begun = False
                status = self._engine.begin_step()
            if status == statuses.EndOfStream:
                return
            if status != statuses.OK:
                raise CuszError(
                    f"the stream {self.path!r} breaks off: its writer was killed, or cannot be reached (ADIOS2 says "
                    f"{status.name})"
                )
            self._comm, self._has_begun = comm, True
            with self._calling("tell the step of"):
                self.current = step = int(self._engine.current_step())
            try:
                yield step
            finally:
                if self.current == step:
                    self.current = None

    def _require_all(self) -> None:
        """Before all ranks go on to the next step of a stream: raises an error if a rank has left it, or if a request
        has failed on one, because ADIOS2's collective calls would then not return (collective)."""
        told = None if self._failure is None else (0, self._failure)
        if self._comm is not None:
            told = first_told(self._comm, self._failure)
        if told is not None:
            self._comm = None
            raise CuszError(f"rank {told[0]} has left the stream {self.path!r} before its end: {told[1]}")

    def attributes(self, prefix: str = "") -> dict[str, Any]:
        """The attributes whose names begin with `prefix`."""
        with self._lock, self._calling("read the attributes of"):
            self._require_open()
            if self._attribute_names is None or self.is_stream:  # slow: converts every value to a text
                self._attribute_names = sorted(self._io.available_attributes())
            found: dict[str, Any] = {}
            names = self._attribute_names
            at = bisect.bisect_left(names, prefix)
            while at < len(names) and names[at].startswith(prefix):
                attribute = self._io.inquire_attribute(names[at])
                if attribute.type() == "string":
                    found[names[at]] = attribute.data_string()
                else:  # BP4 does not distinguish one number from an array of one
                    found[names[at]] = np.atleast_1d(attribute.data())
                at += 1
            return found

    def attribute_types(self) -> dict[str, str]:
        """ADIOS2's names of the types of all attributes."""
        with self._lock, self._calling("read the attributes of"):
            self._require_open()
            return {name: self._io.inquire_attribute(name).type() for name in self._io.available_attributes()}

    def attribute_text(self, name: str) -> str:
        """The text of an attribute, or its texts with blanks between them; "" if there is none."""
        with self._lock, self._calling(f"read the attribute {name!r} of"):
            self._require_open()
            attribute = self._io.inquire_attribute(name)
            text = attribute.data_string() if attribute is not None and attribute.type() == "string" else ""
            return text if isinstance(text, str) else " ".join(text)

    def described(self) -> dict[str, dict[str, str]]:
        """What ADIOS2 says of all variables of a file, or of the open step of a stream, by name."""
        with self._lock, self._calling("list the variables of"):
            self._require_open()
            if self._described is None or self.is_stream:  # slow: looks at every block of every variable
                self._described = dict(sorted(self._io.available_variables().items()))
            return self._described

    def add_steps(self, known: Iterable[tuple[int, str]]) -> None:
        """Tells which steps have which variables, if that is known already: ADIOS2 takes long to find out.

        Args:
            known: step and name, for all steps of the variables that have block tables.
        """
        having: dict[str, list[int]] = {}
        for step, name in sorted(known):
            having.setdefault(name, []).append(step)
        for name, steps in having.items():
            self._own_steps[name] = {step: own for own, step in enumerate(steps)}
            self._own_steps[table_name(name)] = self._own_steps[name]
            self._of_writer |= {name, table_name(name)}

    def steps_of(self, name: str) -> dict[int, int]:
        """The steps that have a variable, with ADIOS2's number for each, which counts only those."""
        if self.is_open and name in self._own_steps:  # of a file; asked for at every read, so first and without a lock
            return self._own_steps[name]
        with self._lock, self._calling(f"tell the steps of {name!r} in"):
            self._require_step()
            if self.current is not None:
                return {self.current: self.current}
            if name not in self._own_steps:
                variable = self._variable(name)
                if int(variable.steps()) == self.n_steps:
                    having = list(range(self.n_steps))
                elif self._is_bp4:
                    having = [s for s in range(self.n_steps) if blocks_info(self._engine, name, s) != []]
                else:
                    having = [s for s, told in enumerate(self._told_step_by_step()) if name in told]
                self._own_steps[name] = {step: own for own, step in enumerate(having)}
            return self._own_steps[name]

    def shape(self, name: str, step: int) -> Extents | None:
        """The global shape of a variable; () for one value; None for blocks without a global shape."""
        key = (name, step)
        if self.is_open and key in self._shapes:  # as for `steps_of`
            return self._shapes[key]
        with self._lock, self._calling(f"tell the shape of {name!r} in"):
            variable = self._variable(name)
            if variable.shape_id().name == "LocalArray":
                return None
            if self.is_stream:
                return tuple(int(extent) for extent in variable.shape())
            find = self._shape_of_bp4 if self._is_bp4 else self._shape_of_bp5
            self._shapes[key] = find(name, variable, step)
            return self._shapes[key]

    def _shape_of_bp5(self, name: str, variable: Any, step: int) -> Extents:
        """For an array that ADIOS2 joins from blocks (JoinedDim), BP5's reader (2.12) gives the last step's shape for
        every step, or that of the first rank's blocks if the last step has none, unless the file is read step by
        step."""
        shape = tuple(int(extent) for extent in variable.shape(self._counted(name, step)))
        if not shape or name in self._of_writer or list(self.steps_of(name)) == [self.n_steps - 1]:
            return shape
        infos = self._infos(name, step)
        self._last_infos = ((name, step), infos)  # `placed` needs them next
        boxes = [(extents_of(info["Start"]), extents_of(info["Count"])) for info in infos or ()]
        ends = [tuple(map(sum, zip(start, count, strict=False))) for start, count in boxes if math.prod(count) > 0]
        if ends and tuple(map(max, zip(*ends, strict=False))) == shape:
            return shape
        told = self._told_step_by_step()
        return told[step].get(name, shape) if step < len(told) else shape

    def form(self, name: str) -> str | None:
        """What a variable of a file is, in words; None where BP4 does not tell (`_shape_of_bp4`)."""
        with self._lock, self._calling(f"tell the shape of {name!r} in"):
            if self._variable(name).shape_id().name == "LocalArray":
                return "blocks without a place"
            with contextlib.suppress(UnsupportedError):
                return form_of(self.shape(name, max(self.steps_of(name))) or ())
            return None

    def _shape_of_bp4(self, name: str, variable: Any, step: int) -> Extents:
        """BP4 marks a block whose extents are all 0 like a single value, and its reader then takes the shape of another
        step; if such a block is a variable's first, it reads none of the others correctly. Of one value of each
        rank (LocalValueDim) it gives the same shape for every step."""
        shape = tuple(int(extent) for extent in variable.shape(step))
        is_value = variable.shape_id().name == "GlobalValue"
        if name not in self._have_one_shape:
            shapes = {tuple(variable.shape(s)) for s in self.steps_of(name)}
            self._have_one_shape[name] = len(shape) > 1 and not is_value and len(shapes) == 1
        if self._have_one_shape[name]:
            return shape  # looking at blocks takes long
        infos = blocks_info(self._engine, name, step)
        if not infos or infos[0]["IsValue"] == "True":
            return (len(infos),) if infos and shape else shape
        has_values = any(info["Count"] for info in infos)
        if has_values and is_value:
            raise UnsupportedError(
                f"ADIOS2 cannot read {name!r} of {self.path!r}: its first block has no values, so that BP4 takes all "
                "its blocks for single values; BP5 has no such limit"
            )
        return shape if has_values else (0,) * max(len(shape), 1)

    def placed(self, name: str, step: int) -> Placed:
        """Where the blocks of an array lie."""
        with self._lock, self._calling(f"tell the blocks of {name!r} in"):
            self._require_one_form(name, self._variable(name))
            shape = self.shape(name, step)
            infos = self._infos(name, step)
            if infos is None and shape is None:
                infos = [{"Count": ",".join(map(str, count))} for count in counts_of_blocks(self._selected(name, step))]
        shape = shape or ()
        if infos is None:
            one = np.zeros((1, len(shape)), np.int64)
            unknown = np.full(1, np.nan)
            return Placed(one, one + shape, np.full(1, -1), unknown, unknown, is_known=False)
        ndim = len(shape)
        counts = [extents_of(info["Count"]) for info in infos]
        ndim = ndim or max(map(len, counts), default=0) or 1
        # BP4 gives no extents for a block whose extents are all 0, and blocks without a place have no start.
        none = (0,) * ndim
        starts = [extents_of(info.get("Start", "")) for info in infos]
        return Placed(
            np.array([start if len(start) == ndim else none for start in starts], np.int64).reshape(-1, ndim),
            np.array([count if len(count) == ndim else none for count in counts], np.int64).reshape(-1, ndim),
            np.array([-1 if self._is_bp4 else int(info.get("WriterID", -1)) for info in infos], np.int64),
            np.array([_number(info.get("Min", "")) for info in infos], np.float64),
            np.array([_number(info.get("Max", "")) for info in infos], np.float64),
        )

    def text(self, name: str, step: int) -> str:
        """The value of a variable of type "string"."""
        with self._lock, self._calling(f"read {name!r} of"):
            variable = self._selected(name, step)
            return str(self._attempt(f"read {name!r} of", lambda: self._engine.get(variable, mode=self._sync)))

    def values(
        self, name: str, step: int, box: Box, dtype: np.dtype[Any], fill: Any = 0, block: int | None = None
    ) -> NDArray[Any]:
        """A box of an array, or one value (a box of no dimensions), as ADIOS2 reads it; `fill` where no block is.

        Args:
            block: the number of a block of a variable without a global shape; the box is then a part of it.
        """
        # ADIOS2 leaves what no block covers as it is. The array is never the user's: after an error ADIOS2 may fill it
        # later (`_unfinished`).
        target = np.full(box[1], fill, dtype)
        with self._lock, self._calling(f"read {name!r} of"):
            variable = self._selected(name, step, block)
            if box[1]:
                variable.set_selection([list(box[0]), list(box[1])])
            if target.size:
                self._get(name, variable, target)
        return target

    def archive(
        self,
        name: str,
        step: int,
        start: Sequence[int],
        dtype: np.dtype[Any],
        capacity: int,
        block: int | None = None,
    ) -> NDArray[np.uint8] | None:
        """The archive of the block that contains the element `start`; None if it is not compressed by this plugin.

        Args:
            capacity: the most bytes that it is expected to have.
            block: as for `values`.
        """
        plugin = self._plugin
        if plugin is None:
            return None
        ones = [1] * len(start)
        target = np.empty(ones, dtype)
        with self._lock, self._calling(f"read {name!r} of"):
            variable = self._selected(name, step, block)
            variable.set_selection([list(start), ones])
            get = functools.partial(self._engine.impl.Get, variable.impl, target, self._sync)
            return self._request(name, target, lambda: plugin.capture(name, capacity, get))

    # ----------------------------------------------------------------------------------------------------- inside

    @property
    def _sync(self) -> Any:
        return self._adios2.Mode.Sync

    def _declare(self, name: str) -> Any:
        io = self._adios.declare_io(name)
        io.set_engine(self._engine_name)
        io.set_parameters(self._parameters)
        return io

    def _require_open(self) -> None:
        if self._engine is None:
            raise ParameterError(f"the Reader of {self.path!r} is closed")

    def _require_step(self) -> None:
        self._require_open()
        if self.is_stream and self.current is None:
            raise ParameterError(f"no step of the stream {self.path!r} is open: read in the loop over its steps")

    def _calling(self, what: str) -> AbstractContextManager[None]:
        """Errors of ADIOS2 in the `with` block become those of this package."""
        return calling_adios2(f"{what} {self.path!r}")

    def _attempt(self, what: str, work: Callable[[], _T]) -> _T:
        """Calls ADIOS2; for a file, once more if descriptors ran out and some could be freed by `close_kept`."""
        try:
            return work()
        except CuszError:
            raise
        except Exception as error:
            is_short = os.strerror(errno.EMFILE) in str(error) or os.strerror(errno.ENFILE) in str(error)
            if self.is_stream or not is_short or not close_kept():
                raise converted(error, f"cannot {what} {self.path!r}") from error
        with self._calling(what):
            return work()

    def _get(self, name: str, variable: Any, target: NDArray[Any]) -> None:
        self._request(name, target, lambda: self._engine.get(variable, target, self._sync))

    def _request(self, name: str, target: NDArray[Any], work: Callable[[], _T]) -> _T:
        """Calls what makes ADIOS2 fill `target`."""
        if self._metadata is not None and not self._metadata.are_the_same():
            raise CuszError(f"{self.path!r} has been written again since it was opened: open it anew")
        try:
            return self._attempt(f"read {name!r} of", work)
        except Exception as error:
            self._unfinished.append(target)
            if self.is_stream:
                self._failure = self._failure or _described(error)
            elif self._is_bp4:
                self._open_anew()
            raise

    def _open_anew(self) -> None:
        """Replaces the engine, because BP4 (2.12) repeats a failed request in all later ones, which then fail too."""
        with contextlib.suppress(Exception):  # later requests report it
            io = self._declare(f"cusz_reader_{len(self._unfinished)}")
            engine = io.open(self.absolute, self._adios2.Mode.ReadRandomAccess)
            stale, self._io, self._engine = self._engine, io, engine
            stale.close()

    def _variable(self, name: str) -> Any:
        with self._lock, self._calling(f"find {name!r} in"):
            self._require_open()
            variable = self._io.inquire_variable(name)
            if variable is None:
                raise ParameterError(f"{self.path!r} has no variable {name!r}")
            return variable

    def _selected(self, name: str, step: int, block: int | None = None) -> Any:
        variable = self._variable(name)
        if not self.is_stream:
            self._require_one_form(name, variable)
            variable.set_step_selection([self.steps_of(name)[step], 1])
        if block is not None:
            variable.set_block_selection(block)
        return variable

    def _require_one_form(self, name: str, variable: Any) -> None:
        """Refuses an array whose number of dimensions changes between steps: ADIOS2 (BP5) gives zeros for it, or ends
        the process."""
        if name in self._of_one_form or self.is_stream or self._is_bp4:
            return
        if variable.shape_id().name == "GlobalArray":
            found = sorted({len(variable.shape(step)) for step in range(int(variable.steps()))})
            if len(found) > 1:
                raise UnsupportedError(
                    f"{name!r} of {self.path!r} has {' and '.join(map(str, found))} dimensions at different steps: "
                    "ADIOS2 cannot read it from a BP5 file"
                )
        self._of_one_form.add(name)

    def _counted(self, name: str, step: int) -> int:
        """The step number for shapes and blocks: BP5 counts steps that have the variable, BP4 those of the file."""
        return step if self.is_stream or self._is_bp4 else self.steps_of(name)[step]

    def _infos(self, name: str, step: int) -> list[dict[str, str]] | None:
        last, self._last_infos = self._last_infos, None
        if last is not None and last[0] == (name, step) and not self.is_stream:
            return last[1]
        return blocks_info(self._engine, name, self._counted(name, step))

    def _told_step_by_step(self) -> list[dict[str, Extents]]:
        """The variables of every step of a file, with their shapes: only reading its steps one by one tells them."""
        if self._told is None:
            close_kept()  # ADIOS2 may need their descriptors
            with self._calling("look at the steps of"):
                self._told = [
                    {name: extents_of(told["Shape"]) for name, told in step.io.available_variables().items()}
                    for step in walk(self._adios2, self.path, self.absolute, range(self.n_steps), self._parameters)
                ]
        return self._told


def _of_stream(given: Mapping[str, str]) -> dict[str, str]:
    """Default parameters of SST: it must not send values before they are asked for, as it does to a process that reads
    alone. If that joins a stream that others read, ADIOS2 (2.12) gives it values of a later step, or waits for ever."""
    key = "SpeculativePreloadMode"
    return {} if key.lower() in map(str.lower, given) else {key: "OFF"}


def _seconds_to_open(parameters: Mapping[str, str]) -> float:
    """How long SST waits for a stream."""
    given = [value for key, value in parameters.items() if key.lower() == "opentimeoutsecs"]
    return _number(given[-1]) if given else 60.0


def _of_file(given: Mapping[str, str]) -> dict[str, str]:
    """Default parameters of an engine that reads a file: above all, how many files it keeps open.

    ADIOS2 keeps every data file open that it has read from. If the process may have only few descriptors, BP5's limit
    is set such that as many Readers as xarray keeps open take half of them.
    """
    parameters = {"OpenTimeoutSecs": "1"}
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # to which ADIOS2 raises the soft one
    named = {key.lower() for key in given}
    if hard != resource.RLIM_INFINITY and "maxopenfilesatonce" not in named:
        most = max(hard // (2 * _READERS_OF_XARRAY), _FILES_OF_METADATA)
        parameters["MaxOpenFilesAtOnce"] = str(most)
        if "threads" not in named and most < _THREADS_OF_ADIOS2:  # it warns of more threads than files
            parameters["Threads"] = str(min(most, os.cpu_count() or 1))
    return parameters


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
