"""The ranks that write or read together, and how they fail together."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from cusz_core import errors
from cusz_core.errors import CuszError, OutOfMemoryError, ParameterError

from .errors import PluginError
from .plugin import without_colours

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


def failure_of(error: BaseException | None) -> Failure | None:
    """An error in the form in which it is sent to other ranks."""
    if error is None:
        return None
    if isinstance(error, CuszError):
        return Failure(type(error).__name__, str(error))
    if isinstance(error, MemoryError):
        return Failure(OutOfMemoryError.__name__, f"out of memory: {error}")
    text = without_colours(error) if isinstance(error, Exception) else str(error)
    return Failure(CuszError.__name__, f"{type(error).__name__}: {' '.join(text.split())}")


def raise_first(failures: Iterable[Failure | None], where: str, own: BaseException | None = None) -> None:
    """Raises the error of the first rank that has one, if any.

    Args:
        failures: of all ranks, in order.
        where: what was being done, for the message.
        own: this rank's own error, if any, as the cause.
    """
    failed = [(rank, failure) for rank, failure in enumerate(failures) if failure is not None]
    if not failed:
        return
    rank, first = failed[0]
    others = f" (and {len(failed) - 1} other ranks failed)" if len(failed) > 1 else ""
    raise Failure(first.kind, f"{where}: rank {rank}: {first.message}{others}").error() from own


class Ranks:
    """A duplicate of an MPI communicator, or this process alone."""

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
        """How many other ranks this one has to watch over: rank 0 all of them, and others none."""
        return self.size - 1 if self.rank == 0 else 0

    def allgather(self, item: Any) -> list[Any]:
        """The items of all ranks (collective)."""
        if self.comm is None:
            return [item]
        items: list[Any] = self.comm.allgather(item)
        return items

    def of_first(self, item: Any) -> Any:
        """The item of rank 0 (collective)."""
        return item if self.comm is None else self.comm.bcast(item)

    def gather(self, item: Any) -> list[Any]:
        """The items of all ranks, on rank 0; nothing on the others (collective)."""
        if self.comm is None:
            return [item]
        items: list[Any] | None = self.comm.gather(item)
        return items or []

    def agree(self, error: BaseException | None, where: str) -> None:
        """Raises the same error on every rank if any of them has one (collective)."""
        if self.comm is None:
            raise_first([failure_of(error)], where, error)
            return
        first = -self.comm.allreduce(-self.rank if error is not None else -self.size, _max())
        if first == self.size:
            return
        failure = self.comm.bcast(failure_of(error), root=first)
        raise_first([None] * first + [failure], where, error)

    def agree_after_adios2(self, error: BaseException | None, where: str) -> None:
        """As `agree`, after a collective call of ADIOS2.

        If it failed on this rank alone, others may be stuck in it, waiting for this one for ever. If they do not arrive
        in time, the job is aborted; otherwise its ranks would wait until its time limit.
        """
        if self.comm is not None:
            here = self.comm.Ibarrier()
            give_up = time.monotonic() + PATIENCE
            while error is not None and not here.Test():
                if time.monotonic() > give_up:
                    message = (
                        f"{where}: rank {self.rank}: {error}. ADIOS2 left other ranks waiting: the job is aborted."
                    )
                    print(f"cusz_operator: {message}", file=sys.stderr, flush=True)
                    self.comm.Abort(1)
                time.sleep(0.01)
            here.Wait()
        self.agree(error, where)

    def free(self) -> None:
        """Frees the communicator (collective)."""
        if self.comm is not None:
            self.comm.Free()
            self.comm = None


def _max() -> Any:
    from mpi4py import MPI

    return MPI.MAX
