#!/usr/bin/env python3
"""Counts what ranks exchange at the end of a step, and models what it takes with 100,000 of them.

    .venv/bin/python scripts/bench/many_ranks.py               # everything, about 10 minutes
    .venv/bin/python scripts/bench/many_ranks.py --docs        # also rewrites its section of docs/benchmarks/nodes.md
    .venv/bin/python scripts/bench/many_ranks.py --ranks 2 4   # a small part of it

Messages are counted by Open MPI itself (its "monitoring" component): those of a step are the difference between runs of
few and of more steps, divided by how many more they are. Times of so many ranks on two cores would mean nothing. The
model takes over there: it adds up the calls of a step, with the time that their messages need on a network of a certain
speed (LogGP), and the time that Python needs, which is measured here, in a process that takes itself for rank 0 of so
many.
"""

from __future__ import annotations

import argparse
import functools
import glob
import math
import os
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import in_ranks
import numpy as np
import runner
from in_ranks import OPTIONS, REL, Block, Part, Plain
from numpy.typing import NDArray
from runner import Document, Row, filled, significant, table

VARIABLES = [f"variable{i}" for i in range(5)]
EDGE = 8  # cells of a block along each axis
PAGE = runner.PAGES / "nodes.md"
KINDS = ("ADIOS2 alone", "same", "moving", "psnr")
FEW, MORE = 3, 13  # steps
RANKS_OF_A_TABLE = 4  # of what is counted, so that there are several tables

# The network of the model: between nodes of a large machine, about.
LATENCY = 2e-6  # seconds until a message arrives (L)
OVERHEAD = 1e-6  # seconds of a processor to send or to receive one (o)
PER_BYTE = 1 / 10e9  # seconds (G)
MODELLED = (1_000, 10_000, 100_000)
#: What a trial of a sought bound exchanges: what is tried, and what it gives.
TRIAL = (("Bcast", 40), ("Reduce", 24))


# ----------------------------------------------------------------------------------------------------- a rank's work


def write(part: Part) -> list[Row]:
    """Steps of five variables, a block of each a rank; of one, if a bound is sought."""
    import cusz_operator
    from cusz_operator.writing import together

    together.RANKS_OF_A_TABLE = RANKS_OF_A_TABLE
    comm, options = part.comm, part.options
    x = np.ascontiguousarray(part.field[:EDGE, :EDGE, :EDGE])
    path, shape = options.tmpfs / "counted.bp", (EDGE * comm.size, EDGE, EDGE)
    names = VARIABLES[:1] if options.kind == "psnr" else VARIABLES
    how: dict[str, Any] = {"psnr": 60} if options.kind == "psnr" else {"eb": REL, "mode": "rel"}
    if options.kind == "ADIOS2 alone":
        plain = Plain(path, comm, part.eb)
        for _ in range(options.steps):
            plain.step([Block(name, x, shape, (EDGE * comm.rank, 0, 0)) for name in names])
        plain.close()
        return []
    with cusz_operator.Writer(path, comm, progress=False, **OPTIONS, **how) as out:
        for step in range(options.steps):
            with out.step():
                place = (comm.rank + step * (options.kind == "moving")) % comm.size
                for name in names:
                    out.put(name, x, shape, (EDGE * place, 0, 0))
    return []


# ----------------------------------------------------------------------------------------------------------- counting


def counted(options: argparse.Namespace, kind: str, ranks: int, steps: int) -> dict[str, Counter[int]]:
    """Messages that every rank sends and receives in a run, and bytes that it sends."""
    prefix = options.tmpfs / "monitored"
    os.environ |= {
        "OMPI_MCA_osc": "^monitoring",  # it cannot do what ADIOS2 wants
        "OMPI_MCA_pml_monitoring_enable": "2",
        "OMPI_MCA_pml_monitoring_enable_output": "3",
        "OMPI_MCA_pml_monitoring_filename": str(prefix),
    }
    in_ranks.mpirun(__file__, "write", ranks, options, kind=kind, steps=steps)
    found: dict[str, Counter[int]] = {"sent": Counter(), "received": Counter(), "bytes": Counter()}
    files = glob.glob(f"{prefix}.*.prof")
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            words = line.split()
            if words and words[0] in ("E", "I"):  # of the program, and of MPI for it
                source, target, n_bytes, messages = (int(words[i]) for i in (1, 2, 3, 5))
                found["sent"][source] += messages
                found["received"][target] += messages
                found["bytes"][source] += n_bytes
        os.unlink(file)
    if len(files) != ranks:
        raise runner.Failure(f"{len(files)} ranks of {ranks} have been monitored", "this needs Open MPI 4")
    return found


def a_step(options: argparse.Namespace, kind: str, ranks: int) -> Row:
    """What a later step adds, for the ranks for which it is most."""
    few, more = (counted(options, kind, ranks, steps) for steps in (FEW, MORE))
    row: Row = {"ranks": ranks, "kind": kind}
    for name in few:
        each = [(more[name][rank] - few[name][rank]) / (MORE - FEW) for rank in range(ranks)]
        row[name], row[f"{name}_of_all"] = max(each), sum(each)
    return row


# -------------------------------------------------------------------------------------------------------------- model


class Exchange(NamedTuple):
    """What a rank exchanges with all others ("Allreduce" and so on), or with the ranks of its table ("Gatherv")."""

    name: str
    n_bytes: int


def seconds_of(exchange: Exchange, ranks: int, of_table: int) -> float:
    """By LogGP."""
    message = LATENCY + 2 * OVERHEAD + exchange.n_bytes * PER_BYTE
    if exchange.name == "Gatherv":  # one after the other
        return LATENCY + of_table * (OVERHEAD + exchange.n_bytes * PER_BYTE)
    depth = math.ceil(math.log2(ranks))
    return message * depth * (2 if exchange.name in ("Allreduce", "Iallreduce", "allreduce") else 1)


def model(ranks: int) -> Row:
    """Rank 0's part in a step of `ranks` ranks, with a block each of five variables."""
    from cusz_core import Parameters
    from cusz_operator.ranks import Ranks
    from cusz_operator.writing import overlaps, together
    from cusz_operator.writing.agreement import Description
    from cusz_operator.writing.together import Report, Together

    done: list[Exchange] = []

    class OfMany(Ranks):
        """Rank 0 of many, of which the others are like it."""

        def __init__(self, size: int) -> None:
            super().__init__(None)
            self.size = size

        def _all_reduced(self, own: NDArray[Any], operation: str) -> NDArray[Any]:
            done.append(Exchange("Allreduce", own.nbytes))
            return own * self.size if operation == "SUM" else own.copy()

        def _reduced(self, own: NDArray[Any], operation: str) -> NDArray[Any]:
            done.append(Exchange("Reduce", own.nbytes))
            return own.copy()

        def sums_before(self, own: NDArray[Any]) -> NDArray[Any]:
            done.append(Exchange("Exscan", own.nbytes))
            return np.zeros_like(own)

        def groups(self, size: int) -> Ranks:
            return OfMany(size)

        def gathered(self, own: NDArray[Any], counts: NDArray[np.int64], into: NDArray[Any]) -> None:
            done.append(Exchange("Gatherv", own.nbytes))
            into.reshape(len(counts), -1)[:] = own

        def exchanged(self, item: Any, other: int) -> Any:
            done.append(Exchange("sendrecv", item.nbytes))
            return item[:0]  # their blocks lie elsewhere

        def receive(self, other: int) -> Any:
            done.append(Exchange("recv", 0))
            return overlaps.no_rows(3)

    parameters = Parameters(REL, "rel")
    shape = (ranks * EDGE, EDGE, EDGE)

    def report(at: int) -> Report:
        place = np.array([[at, 0, 0]]), np.array([[EDGE] * 3])
        told = (Description(name, "float32", "float32", (), shape, parameters, None, *place) for name in VARIABLES)
        return Report(tuple(told), np.tile([-1.0, 1.0, EDGE**3], (len(VARIABLES), 1)))

    rows = {name: np.ones((1, 17)) for name in VARIABLES}
    all_ranks = Together(OfMany(ranks))

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


def collect(options: argparse.Namespace) -> Document:
    document = in_ranks.new_document(options, variables=len(VARIABLES))
    with in_ranks.scratch(options) as here:
        for ranks in options.ranks:
            for kind in KINDS:
                runner.say(f"{ranks} ranks: {kind}")
                document["rows"].append(a_step(here, kind, ranks))
    document["model"] = [model(ranks) for ranks in MODELLED]
    return document


def report(document: Document) -> str:
    head = document["head"]
    lines = [
        filled(
            f"{head['date'][:10]}; {head['cpu']}, {head['cores']} cores, for all ranks. Messages and bytes of a later "
            "step, of the rank for which they are most, with a block each of five variables (of one, where a bound is "
            f"sought). Rows of block tables are put together by every {RANKS_OF_A_TABLE} ranks here, and not by every "
            "256, so that there are several of them."
        ),
        "",
    ]
    of_kind = {(row["kind"], row["ranks"]): row for row in document["rows"]}
    cells = []
    for ranks in sorted({row["ranks"] for row in document["rows"]}):
        alone = of_kind[KINDS[0], ranks]
        cells.append([ranks, f"{alone['sent'] + alone['received']:.0f}, {alone['bytes'] / 1e3:.1f} kB"])
        for kind in KINDS[1:]:
            row = of_kind[kind, ranks]
            messages = row["sent"] + row["received"]
            cells[-1].append(f"{messages:.0f}, {row['bytes'] / 1e3:.1f} kB")
    titles = ["ranks", "ADIOS2 alone", "Writer", "where blocks move", "`psnr=`"]
    lines += [table(titles, cells), ""]
    lines += [
        filled(
            f"**The model**: a message between nodes takes {1e6 * LATENCY:.0f} us, {1e6 * OVERHEAD:.0f} us of either "
            f"processor, and 1 us for every {1e-6 / PER_BYTE / 1e3:.0f} kB; those of a reduction to all ranks follow "
            "each other, twice the logarithm of the number of ranks. Python's time is measured: rank 0's, to agree and "
            "to bring the rows of 256 ranks together."
        ),
        "",
    ]
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
        for row in document["model"]
    ]
    titles = ["ranks", "a later step: messages + Python", "where blocks have moved", "a trial", "pieces of a table"]
    lines.append(table(titles, cells))
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    options = in_ranks.parser(__doc__, PAGE, size=EDGE, repeat=1)
    text = "numbers of ranks (default: 4 8 16 32 64)"
    options.add_argument("--ranks", type=int, nargs="+", default=[4, 8, 16, 32, 64], metavar="N", help=text)
    parts: dict[str, Callable[[Part], list[Row]]] = {"write": write}
    return in_ranks.main(options, parts, collect, report, "many ranks", PAGE, words=words)


if __name__ == "__main__":
    sys.exit(runner.exit_code_of(main))
