"""The ranks that write or read together, and how they fail together."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from cusz_core import errors
from cusz_core.errors import CuszError, OutOfMemoryError, ParameterError

from .errors import PluginError
from .plugin import Plugin, without_colours

T = TypeVar("T")
_ERRORS: dict[str, type[CuszError]] = {name: getattr(errors, name) for name in errors.__all__}
_ERRORS[PluginError.__name__] = PluginError


def _patience() -> float:
    text = os.environ.get("CUSZ_PATIENCE", "300")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ParameterError(f"CUSZ_PATIENCE is {text!r}; it must be a number of seconds > 0, or inf")
    return seconds


#: Seconds that ranks wait for each other when ADIOS2 has failed on one of them.
PATIENCE = _patience()


class Failure(NamedTuple):
    """An error as it is sent to other ranks: the name of its class, and the message."""

    kind: str
    message: str

    def error(self) -> CuszError:
        """The exception, the same on every rank."""
        return _ERRORS.get(self.kind, CuszError)(self.message)


class Caught:
    """Catches errors of this rank in `with` blocks between exchanges with others, until all ranks can raise the first.

    Attributes:
        error: the first one, if there is one.
    """

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if isinstance(error, Exception):
            self.error = self.error or error
        return isinstance(error, Exception)


def failure_of(error: BaseException | None) -> Failure | None:
    """An error as it is sent to other ranks."""
    return None if error is None else _told(error)


def _told(error: BaseException) -> Failure:
    if isinstance(error, CuszError):
        return Failure(type(error).__name__, str(error))
    if isinstance(error, MemoryError):
        return Failure(OutOfMemoryError.__name__, f"out of memory: {error}")
    text = without_colours(error) if isinstance(error, Exception) else str(error)
    return Failure(CuszError.__name__, f"{type(error).__name__}: {' '.join(text.split())}")


def first_told(comm: Any, text: str | None) -> tuple[int, str] | None:
    """The first rank that has a text, and its text; None if no rank has one (collective).

    Args:
        comm: an mpi4py communicator.
        text: of this rank; None: it has none.
    """
    own = np.array([-math.inf if text is None else -comm.rank], np.float64)
    first = own.copy()
    comm.Allreduce(own, first, _mpi().MAX)
    if first[0] == -math.inf:
        return None
    rank = int(-first[0])
    return rank, comm.bcast(text, root=rank)


def watch_others(plugin: Plugin, path: str, rank: int, error: BaseException | None) -> AbstractContextManager[None]:
    """While a rank that has failed waits for the others: ends this process, and so the job, if they do not come.

    They may wait for this rank elsewhere, in the program's own communication, where they cannot be told of it.

    Args:
        plugin: has the watch.
        path: of the file or stream; as long as something changes in a folder, the others are at work.
        rank: this one.
        error: of this rank; None: it has not failed, and may wait for as long as it takes.
    """
    failure = failure_of(error)
    if error is None or failure is None:
        return contextlib.nullcontext()
    where = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return plugin.watch(
        path,
        PATIENCE,
        f"{where}cusz_operator: {path!r}: rank {rank} has failed: {failure.message}. For {PATIENCE:g} s the other "
        "ranks have neither ended the step nor closed the file or stream: they may wait for this rank elsewhere. "
        "(CUSZ_PATIENCE sets how many seconds to wait.) The job is ended.",
    )


#: What several ranks have opened together, and how to close it after an error, or at the end of the program.
_OPENED: weakref.WeakKeyDictionary[Any, Callable[[Any, BaseException | None], object]] = weakref.WeakKeyDictionary()
os.register_at_fork(after_in_child=_OPENED.clear)  # a child is no rank


def close_at_exit(opened: Any, close: Callable[[Any, BaseException | None], object]) -> None:
    """When the program ends, or an exception ends it, calls `close(opened, exception)` if `opened` is still there:
    otherwise the other ranks would wait for this one for ever. It does nothing if it is already closed."""
    _OPENED[opened] = close


@atexit.register
def _close_all() -> None:
    error = getattr(sys, "last_value", None)
    if error is not None and (not isinstance(error, Exception) or "mpi4py.run" in sys.modules):
        return  # an interrupted rank must not wait for others; and python -m mpi4py ends the job itself
    for opened, close in list(_OPENED.items()):
        try:
            close(opened, error)
        except CuszError as failure:
            print(f"cusz_operator: {failure}", file=sys.stderr, flush=True)


class Ranks:
    """A duplicate of an MPI communicator, or this process alone.

    Every call is collective unless it says otherwise. The calls that a Writer makes at every step are reductions and
    broadcasts: O(log ranks) messages, whose size does not depend on the number of ranks.
    """

    def __init__(self, comm: Any) -> None:
        """
        Args:
            comm: an mpi4py communicator, which is duplicated (collective); None: this process alone.
        """
        self.comm = comm.Dup() if comm is not None else None
        self.rank: int = self.comm.rank if self.comm is not None else 0
        self.size: int = self.comm.size if self.comm is not None else 1

    @property
    def watched(self) -> int:
        """How many other ranks this one watches over: rank 0 all of them, the others none."""
        return self.size - 1 if self.rank == 0 else 0

    # ------------------------------------------------------------------------------------------ arrays of known size

    def maxima(self, own: NDArray[np.float64]) -> NDArray[np.float64]:
        """The maximum over all ranks of every number; none may be NaN."""
        return self._all_reduced(own, "MAX")

    def sums(self, own: NDArray[Any]) -> NDArray[Any]:
        """The sum over all ranks of every number."""
        return self._all_reduced(own, "SUM")

    def sums_on_first(self, own: NDArray[Any]) -> NDArray[Any]:
        """As `sums`, on rank 0; the others get their own numbers."""
        return self._reduced(own, "SUM")

    def xor_on_first(self, own: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The exclusive or over all ranks, on rank 0; the others get their own numbers."""
        return self._reduced(own, "BXOR")

    def sums_before(self, own: NDArray[Any]) -> NDArray[Any]:
        """The sum over the ranks before this one."""
        sums = np.zeros_like(own)
        if self.comm is not None:
            self.comm.Exscan(own, sums, _mpi().SUM)
        return sums if self.rank else np.zeros_like(own)  # what MPI leaves on rank 0 is undefined

    def first_numbers(self, own: NDArray[np.float64]) -> NDArray[np.float64]:
        """The numbers of rank 0."""
        numbers = own.copy()
        if self.comm is not None:
            self.comm.Bcast(numbers)
        return numbers

    def _all_reduced(self, own: NDArray[Any], operation: str) -> NDArray[Any]:
        reduced = own.copy()
        if self.comm is not None:
            self.comm.Allreduce(own, reduced, getattr(_mpi(), operation))
        return reduced

    def _reduced(self, own: NDArray[Any], operation: str) -> NDArray[Any]:
        reduced = own.copy()
        if self.comm is not None:
            self.comm.Reduce(own, reduced if self.rank == 0 else None, getattr(_mpi(), operation))
        return reduced

    # ---------------------------------------------------------------------------------------------------- any objects

    def merged(self, make: Callable[[], T], merge: Callable[[T, T], T], where: str) -> T:
        """The objects of all ranks, merged in pairs in a tree; what `merge` returns should therefore not be large.

        Args:
            make: the object of this rank.
            merge: associative and commutative.
            where: what is being done, for the message of an error.

        Raises:
            CuszError: something went wrong on a rank; raised on all of them.
        """

        def tried(work: Callable[[], T]) -> T | Failure:
            try:
                return work()
            except Exception as error:
                failure = _told(error)
                return failure._replace(message=f"{where}: rank {self.rank}: {failure.message}")

        def merged(a: T | Failure, b: T | Failure) -> T | Failure:
            if isinstance(a, Failure) or isinstance(b, Failure):
                return a if isinstance(a, Failure) else b
            return tried(lambda: merge(a, b))

        own = tried(make)
        together: T | Failure = own if self.comm is None else self.comm.allreduce(own, merged)
        if isinstance(together, Failure):
            raise together.error()
        return together

    def of(self, rank: int, item: Any) -> Any:
        """The item of a rank."""
        return item if self.comm is None else self.comm.bcast(item, root=rank)

    def exchanged(self, item: Any, other: int) -> Any:
        """Exchanges items with another rank, and returns its item (collective of these two)."""
        assert self.comm is not None
        return self.comm.sendrecv(item, dest=other, source=other)

    def send(self, item: Any, other: int) -> None:
        """Sends an item to a rank that calls `receive` (collective of these two)."""
        assert self.comm is not None
        self.comm.send(item, dest=other)

    def receive(self, other: int) -> Any:
        """The item that a rank sends."""
        assert self.comm is not None
        return self.comm.recv(source=other)

    # --------------------------------------------------------------------------------------------------------- errors

    def first_of(self, is_one: bool) -> int | None:
        """The first rank on which `is_one` is true, if any."""
        first = -self.maxima(np.array([-self.rank if is_one else -math.inf], np.float64))[0]
        return int(first) if first < math.inf else None

    def agree(self, error: BaseException | None, where: str) -> None:
        """If any rank has an error, raises that of the first such rank on all of them; the message names this rank."""
        first = self.first_of(error is not None)
        if first is not None:
            self.raise_of(first, error, where)

    def agree_as_it_is(self, error: BaseException | None) -> None:
        """As `agree`, but with the message unchanged, because it says all there is to say."""
        first = self.first_of(error is not None)
        if first is not None:
            failure: Failure = self.of(first, failure_of(error))
            raise failure.error() from error

    def raise_of(self, first: int, error: BaseException | None, where: str, is_counted: bool = False) -> NoReturn:
        """Raises the error of a rank on all of them, once all know that it has one.

        Args:
            first: the first rank that has one.
            error: of this rank, if any.
            where: what was being done, for the message.
            is_counted: the message also says how many other ranks have one.
        """
        others = int(self.sums(np.array([error is not None], np.int64))[0]) - 1 if is_counted else 0
        failure: Failure = self.of(first, failure_of(error))
        and_others = f" (and {others} other rank{'s' if others > 1 else ''} failed)" if others > 0 else ""
        raise Failure(failure.kind, f"{where}: rank {first}: {failure.message}{and_others}").error() from error

    def agree_after_adios2(self, error: BaseException | None, where: str) -> None:
        """As `agree`, after a collective call of ADIOS2.

        If it failed on this rank alone, others may be stuck in it, waiting for this one for ever. If they do not arrive
        in time, the job is aborted, because its ranks would otherwise wait until its time limit.
        """
        if self.comm is None:
            self.agree(error, where)
            return
        own = np.array([-self.rank if error is not None else -math.inf], np.float64)
        first = own.copy()
        agreeing = self.comm.Iallreduce(own, first, _mpi().MAX)
        give_up = time.monotonic() + PATIENCE
        while error is not None and not agreeing.Test():
            if time.monotonic() > give_up:
                message = f"{where}: rank {self.rank}: {error}. ADIOS2 left other ranks waiting: the job is aborted."
                print(f"cusz_operator: {message}", file=sys.stderr, flush=True)
                time.sleep(1)  # MPICH's mpirun may drop what was printed just before
                self.comm.Abort(1)
            time.sleep(0.01)
        agreeing.Wait()
        if first[0] > -math.inf:
            self.raise_of(int(-first[0]), error, where)

    # --------------------------------------------------------------------------------------------------------- groups

    def groups(self, size: int) -> Ranks:
        """The `size` consecutive ranks among which this one is; the caller frees them."""
        if self.comm is None or self.size <= size:
            return Ranks(self.comm)
        made = Ranks(None)
        made.comm = self.comm.Split(self.rank // size, self.rank)
        made.rank, made.size = made.comm.rank, made.comm.size
        return made

    def gathered(self, own: NDArray[Any], counts: NDArray[np.int64], into: NDArray[Any]) -> None:
        """Concatenates the arrays of all ranks, on rank 0.

        Args:
            own: one-dimensional.
            counts, into: the lengths, and where the arrays go; on rank 0.
        """
        if self.comm is None:
            into[:] = own
        elif self.rank == 0:
            self.comm.Gatherv(own, (into, counts))
        else:
            self.comm.Gatherv(own, None)

    def free(self) -> None:
        """Frees the communicator."""
        if self.comm is not None:
            self.comm.Free()
            self.comm = None


def _mpi() -> Any:
    from mpi4py import MPI

    return MPI
