"""Opening a stream on many nodes.

SST's network library (EVPath, in ADIOS2 2.12) identifies a process by the sum of its process number and the second in
which it opens its first stream. Two ranks with the same sum (the same number in the same second, on two nodes or in two
containers; or neighbouring numbers in two seconds, on one node) look like one rank to the other side: what is sent to
one of them reaches the other, which crashes. With hundreds of ranks this happens.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

#: The part of a second, by its own clock, in which a process may open its first stream.
_FIRST_IN_SECOND, _LATEST_IN_SECOND = 0.05, 0.6
_LONG_S = 10.0  # longest wait without a message


@contextlib.contextmanager
def told_apart(adios2: Any, comm: Any, parameters: Mapping[str, str]) -> Iterator[None]:
    """For a `with` block in which all ranks open a stream: delays some, so that SST can tell them apart (collective).

    All ranks open a stream together, in the same second. So each first opens one of its own, which nobody reads.

    Args:
        adios2: the module.
        comm: an mpi4py communicator.
        parameters: of the engine, by ADIOS2's names.
    """
    if comm.size == 1:
        yield
        return
    processes: list[tuple[int, float]] = comm.allgather((os.getpid(), time.time()))
    waits = waits_apart(processes)
    if comm.rank == 0 and max(waits) > _LONG_S:
        numbers = len({number for number, _ in processes})
        print(
            f"cusz_operator: {comm.size} ranks have only {numbers} process numbers between them: opening a stream "
            f"takes {max(waits):.0f} s, so that SST tells them apart",
            file=sys.stderr,
            flush=True,
        )
    time.sleep(waits[comm.rank])
    with contextlib.ExitStack() as stack:
        import tempfile  # here, because every rank of a simulation imports this module

        # Errors, as in the parameters, are reported when the stream itself is opened: by all ranks.
        with contextlib.suppress(Exception):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            adios = adios2.Adios()
            io = adios.declare_io("cusz_first_stream")
            io.set_engine("SST")
            shared = {key: value for key, value in parameters.items() if key.lower() == "controlmodule"}
            io.set_parameters({"RendezvousReaderCount": "0", "DataTransport": "WAN", **shared})
            engine = io.open(os.path.join(folder, "first"), adios2.Mode.Write)
            stack.callback(_close, engine)
        yield


def _close(engine: Any) -> None:
    with contextlib.suppress(Exception):
        engine.close()


def waits_apart(processes: Sequence[tuple[int, float]]) -> list[float]:
    """How many seconds each process has to wait so that the sums of number and second differ.

    Args:
        processes: number and time of day of each, by its own clock, at the same moment.
    """
    taken: set[int] = set()
    waits = []
    for number, now in processes:
        second = math.floor(now)
        begin = now
        # Not at the end of a second, because it takes a moment until SST asks for the time.
        while begin - second > _LATEST_IN_SECOND or number + second in taken:
            second += 1
            begin = second + _FIRST_IN_SECOND
        taken.add(number + second)
        waits.append(begin - now)
    return waits
