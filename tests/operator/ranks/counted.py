"""Counts what ranks exchange in a step: mpirun python counted.py FOLDER RANKS_OF_A_TABLE KIND...

KIND is one of KINDS. Rank 0 prints a line of JSON for each: the calls of every rank in the last step, as lists of name,
ranks, bytes sent and bytes received.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
from counting import Counting
from mpi4py import MPI

import cusz_operator as cz
import support
from cusz_operator.writing import together

NAMES = [f"v{i}" for i in range(5)]
STEPS = 4
EDGE = 8
KINDS: dict[str, dict[str, Any]] = {
    "same": {"eb": 1e-3, "mode": "rel"},  # blocks stay where they are
    "values": {"eb": 1e-3, "mode": "rel"},  # as "same", and every rank also puts a number
    "overlap": {"eb": 1e-3, "mode": "rel", "overlap": True},
    "moving": {"eb": 1e-3, "mode": "rel"},  # each rank's blocks move on by one place every step
    "psnr": {"psnr": 60},
    "budget": {"budget_bytes": 1500},
}


def write(comm: Any, path: str, kind: str) -> list[list[Any]]:
    """The calls of this rank in the last step."""
    counting = Counting(comm)
    u = support.smooth((EDGE, EDGE, EDGE), support.F32, seed=comm.rank)
    options = dict(KINDS[kind])
    if kind == "budget":
        options["budget_bytes"] *= comm.size
    with cz.Writer(path, counting, predictor="lorenzo", progress=False, **options) as out:
        for step in range(STEPS):
            counting.calls.clear()
            with out.step():
                place = (comm.rank + step * (kind == "moving")) % comm.size
                for name in NAMES if "eb" in options else NAMES[:1]:
                    out.put(name, u * np.float32(1 + step), (EDGE * comm.size, EDGE, EDGE), (EDGE * place, 0, 0))
                if kind == "values":
                    out.put("time", 0.1 * step)
        return [list(call) for call in counting.calls]


def main(folder: str, ranks_of_a_table: str, *kinds: str) -> None:
    together.RANKS_OF_A_TABLE = int(ranks_of_a_table)
    for kind in kinds:
        told = MPI.COMM_WORLD.gather(write(MPI.COMM_WORLD, os.path.join(folder, f"{kind}.bp"), kind))
        if told is not None:
            print(json.dumps({"kind": kind, "calls": told}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
