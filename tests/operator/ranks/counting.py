"""A communicator that counts its calls and their bytes."""

from __future__ import annotations

import math
import pickle
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

#: Calls that MPI libraries implement with trees: O(log ranks) messages per rank, each as large as one rank's data.
TREES = ("Allreduce", "Iallreduce", "Reduce", "Bcast", "Exscan", "bcast", "allreduce", "Barrier", "Ibarrier")
#: One message.
SINGLE = ("send", "recv", "sendrecv")
#: Calls that give some rank data from every rank.
OF_EVERY = ("Gatherv", "gather", "allgather")


class Call(NamedTuple):
    """A call of a rank.

    Attributes:
        ranks: size of the communicator.
        sent, received: bytes, counted once however often a tree passes them on.
    """

    name: str
    ranks: int
    sent: int
    received: int

    def messages(self) -> int:
        """The most messages that a rank has to send or receive."""
        if self.name in SINGLE:
            return 1
        return 2 * math.ceil(math.log2(self.ranks)) if self.name in TREES else self.ranks - 1


def _bytes_of(item: Any) -> int:
    if isinstance(item, np.ndarray):
        return item.nbytes
    if isinstance(item, (list, tuple)) and item and isinstance(item[0], np.ndarray):
        return item[0].nbytes
    return 0 if item is None else len(pickle.dumps(item, pickle.HIGHEST_PROTOCOL))


class Counting(MPI.Intracomm):
    """Duplicates and splits append to the same list, `calls`."""

    calls: list[Call]

    def __new__(cls, comm: Any = None) -> Counting:
        made = super().__new__(cls, comm)
        made.calls = []
        return made

    def Dup(self, info: Any = None) -> Counting:
        made = Counting(super().Dup())
        made.calls = self.calls
        return made

    def Split(self, color: int = 0, key: int = 0) -> Counting:
        made = Counting(super().Split(color, key))
        made.calls = self.calls
        return made


def _counted(name: str) -> Any:
    plain = getattr(MPI.Intracomm, name)
    is_of_arrays = name[0].isupper()

    def call(self: Counting, *arguments: Any, **options: Any) -> Any:
        given = plain(self, *arguments, **options)
        sent = _bytes_of(arguments[0]) if arguments else 0
        arrays = [*arguments[:2], *arguments[:1]]
        received = _bytes_of(arrays[1] if is_of_arrays else given)
        self.calls.append(Call(name, self.size, sent, received))
        return given

    return call


for _name in (*TREES, *SINGLE, *OF_EVERY):
    setattr(Counting, _name, _counted(_name))
for _name in ("Gather", "Allgather", "Allgatherv", "Alltoall", "Alltoallv", "alltoall", "Scatter", "scatter", "Scan"):
    setattr(Counting, _name, None)  # not counted, so using them is an error
