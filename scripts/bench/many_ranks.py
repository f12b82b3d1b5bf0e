#!/usr/bin/env python3
"""Models the messages of ranks at the end of a step, and the time that they take with up to 100,000 ranks.

    .venv/bin/python scripts/bench/many_ranks.py               # some seconds
    .venv/bin/python scripts/bench/many_ranks.py --docs        # also rewrites its section of docs/benchmarks/nodes.md

Times of that many ranks on two cores would mean nothing. The model adds up the calls of a step, with the time that
their messages need on a network of a certain speed (LogGP), and the time of Python, which is measured in a process that
acts as rank 0 of that many. tests/operator/test_many_ranks.py checks that these are the calls of a step.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import runner
from numpy.typing import NDArray
from runner import Document, Row, filled, significant, table

from cusz_core import Parameters
from cusz_operator.ranks import Ranks
from cusz_operator.writing import overlaps, together
from cusz_operator.writing.agreement import Description
from cusz_operator.writing.together import Report, Together

VARIABLES = [f"variable{i}" for i in range(5)]
EDGE = 8  # cells of a block along each axis
REL = 1e-3  # the bound, relative to the range
PAGE = runner.PAGES / "nodes.md"

# The network of the model, roughly that between nodes of a large machine.
LATENCY = 2e-6  # seconds until a message arrives (L)
OVERHEAD = 1e-6  # seconds of a processor to send or to receive one (o)
PER_BYTE = 1 / 10e9  # seconds (G)
MODELLED = (1_000, 10_000, 100_000)
#: The messages of one trial in the search for a bound: the bound to try, and its results.
TRIAL = (("Bcast", 40), ("Reduce", 24))


class Exchange(NamedTuple):
    """An exchange of a rank with all others ("Allreduce" and so on), or with the ranks of its table ("Gatherv")."""

    name: str
    n_bytes: int


def seconds_of(exchange: Exchange, ranks: int, of_table: int) -> float:
    """The time by LogGP."""
    message = LATENCY + 2 * OVERHEAD + exchange.n_bytes * PER_BYTE
    if exchange.name == "Gatherv":  # one after another
        return LATENCY + of_table * (OVERHEAD + exchange.n_bytes * PER_BYTE)
    depth = math.ceil(math.log2(ranks))
    return message * depth * (2 if exchange.name in ("Allreduce", "Iallreduce", "allreduce") else 1)


class OfMany(Ranks):
    """Rank 0 of many that all behave like it; a group has as many as are asked for. `done` gets its exchanges."""

    def __init__(self, size: int, done: list[Exchange]) -> None:
        super().__init__(None)
        self.size, self.done = size, done

    def _all_reduced(self, own: NDArray[Any], operation: str) -> NDArray[Any]:
        self.done.append(Exchange("Allreduce", own.nbytes))
        return own * self.size if operation == "SUM" else own.copy()

    def _reduced(self, own: NDArray[Any], operation: str) -> NDArray[Any]:
        self.done.append(Exchange("Reduce", own.nbytes))
        return own.copy()

    def sums_before(self, own: NDArray[Any]) -> NDArray[Any]:
        self.done.append(Exchange("Exscan", own.nbytes))
        return np.zeros_like(own)

    def groups(self, size: int) -> Ranks:
        return OfMany(size, self.done)

    def gathered(self, own: NDArray[Any], counts: NDArray[np.int64], into: NDArray[Any]) -> None:
        self.done.append(Exchange("Gatherv", own.nbytes))
        into.reshape(len(counts), -1)[:] = own

    def exchanged(self, item: Any, other: int) -> Any:
        self.done.append(Exchange("sendrecv", item.nbytes))
        return item[:0]  # their blocks lie elsewhere

    def receive(self, other: int) -> Any:
        self.done.append(Exchange("recv", 0))
        return overlaps.no_rows(3)


def model(ranks: int) -> Row:
    """Rank 0's part in a step of `ranks` ranks, with one block of each of five variables."""
    done: list[Exchange] = []
    parameters = Parameters(REL, "rel")
    shape = (ranks * EDGE, EDGE, EDGE)

    def report(at: int) -> Report:
        place = np.array([[at, 0, 0]]), np.array([[EDGE] * 3])
        told = (Description(name, "float32", "float32", (), shape, parameters, None, *place) for name in VARIABLES)
        return Report(tuple(told), np.tile([-1.0, 1.0, EDGE**3], (len(VARIABLES), 1)))

    rows = {name: np.ones((1, 17)) for name in VARIABLES}
    all_ranks = Together(OfMany(ranks, done))

    def step(at: int) -> None:
        agreed = all_ranks.end_step(report(at), None, "step")
        all_ranks.totals(agreed.layout, rows, {}, 1e15, None, "step")
        agreed.layout.gather(agreed.layout.in_one(rows))
        agreed.layout.tables()
        all_ranks.add(agreed)
        all_ranks.combined(np.zeros(len(VARIABLES), np.uint32))
        for _ in range(2):  # that rows are put, and that ADIOS2 has written them
            all_ranks._ranks.agree(None, "step")

    row: Row = {"ranks": ranks}
    of_table = min(ranks, together.RANKS_OF_A_TABLE)
    for kind, at in (("first", lambda i: i), ("later", lambda i: 10**6)):
        taken = []
        step(at(-1))
        for i in range(50):
            done.clear()
            taken.append(runner.seconds(functools.partial(step, at(i))))
        row[f"{kind}_python_seconds"] = statistics.median(taken)
        row[f"{kind}_network_seconds"] = sum(
            LATENCY + 2 * OVERHEAD + one.n_bytes * PER_BYTE
            if one.name in ("sendrecv", "recv")
            else seconds_of(one, ranks, of_table)
            for one in done
        )
        row[f"{kind}_exchanges"] = len(done)
    row["trial_seconds"] = sum(seconds_of(Exchange(*one), ranks, of_table) for one in TRIAL)
    row["tables"] = -(-ranks // together.RANKS_OF_A_TABLE)
    return row


# ------------------------------------------------------------------------------------------------------------ document


def report(document: Document) -> str:
    text = (
        f"{runner.where(document['head'])}. A message between nodes takes {1e6 * LATENCY:.0f} us, plus "
        f"{1e6 * OVERHEAD:.0f} us on each of the two processors and 1 us for every {1e-6 / PER_BYTE / 1e3:.0f} kB; a "
        "reduction to all ranks is a chain of messages, twice the binary logarithm of the number of ranks. Python's "
        "time is measured: what rank 0 takes to agree, and to gather the rows of 256 ranks. Every rank has a block of "
        f"each of {len(VARIABLES)} variables."
    )
    cells = [
        [
            f"{row['ranks']:,}",
            *(
                f"{significant(1e3 * row[f'{kind}_network_seconds'])} + "
                f"{significant(1e3 * row[f'{kind}_python_seconds'])} ms"
                for kind in ("later", "first")
            ),
            f"{significant(1e6 * row['trial_seconds'])} us",
            row["tables"],
        ]
        for row in document["rows"]
    ]
    titles = ["ranks", "a later step: messages + Python", "where blocks have moved", "a trial", "pieces of a table"]
    return f"{filled(text)}\n\n{table(titles, cells)}"


def main(words: Sequence[str] | None = None) -> int:
    options: argparse.Namespace = runner.parser(__doc__, docs=PAGE).parse_args(words)
    document: Document = {"head": runner.machine(50), "rows": [model(ranks) for ranks in MODELLED]}
    runner.publish(document, report(document), options, "many ranks", PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
