"""Writes with goals in place of bounds: mpirun python goals.py FOLDER CASE...

CASE is one of CASES, whose file is FOLDER/CASE.bp. Rank 0 prints a line of JSON for each: the goals that were missed,
or the error, which must be the same on every rank.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cusz_core
import cusz_operator as cz
import support

STEPS = 5
SHAPE = (48, 40, 36)
FILL = np.float32(1e20)

CASES: dict[str, dict[str, Any]] = {
    "ratio": {"ratio": 15},
    "budget": {"budget_bytes": 60_000, "mode": "rel"},
    "psnr": {"psnr": 70},
    "limited": {"ratio": 200, "eb_max": 1e-2, "mode": "rel"},
    "enough": {"ratio": 4, "eb_min": 1e-2, "mode": "rel"},
    "several": {
        "budget_bytes": 80_000,
        "variables": {"U": {"psnr": 60}, "V": {"ratio": 9}, "W": {"eb": 1e-3, "mode": "rel"}},
    },
    "spline": {"ratio": 30, "predictor": "spline"},
    "disagree": {"ratio": 15},
}


def field(name: str, step: int) -> NDArray[np.float32]:
    """The whole variable; it changes from step to step, and W has values without data."""
    x = support.smooth(SHAPE, support.F32, seed=ord(name)) * np.float32(1 + 0.2 * step)
    x += np.random.default_rng(step).normal(scale=1e-3, size=SHAPE).astype(np.float32)
    if name == "V":
        x *= np.float32(1e4)
    if name == "W":
        x[:5], x[6, :3] = FILL, np.nan
    return x


def write(comm: Any, folder: Path, case: str) -> dict[str, Any]:
    options = dict(CASES[case])
    is_last = comm.rank == comm.size - 1
    if case == "disagree" and is_last and comm.size > 1:
        options["ratio"] = 16
    # Rank 1 puts no block of the variables; every other rank puts two.
    cuts = np.linspace(0, SHAPE[0], max(comm.size, 2)).astype(int) if comm.size > 1 else np.array([0, 48])
    parts = {0: (cuts[0], cuts[1])} | {rank: (cuts[rank - 1], cuts[rank]) for rank in range(2, comm.size)}
    report: dict[str, Any] = {"missed": None, "error": None}
    try:
        with cz.Writer(folder / f"{case}.bp", comm, fill=float(FILL), progress=False, **options) as out:
            for step in range(STEPS):
                with out.step():
                    puts = comm.rank in parts and case != "disagree"
                    for name in ("U", "V", "W", "X") if puts else ():
                        low, high = parts[comm.rank]
                        for first, last in ((low, low + 3), (low + 3, high)):
                            out.put(name, field(name, step)[first:last], SHAPE, (first, 0, 0))
                    if case == "disagree":
                        out.put(f"of rank {comm.rank}", field("U", step))
                    out.put("ids", np.arange(10), (10 * comm.size,), (10 * comm.rank,))
            report["missed"] = out.missed_goals
    except cusz_core.CuszError as error:
        report["error"] = f"{type(error).__name__}: {error}"
    return report


if __name__ == "__main__":
    from mpi4py import MPI

    for case in sys.argv[2:]:
        told = MPI.COMM_WORLD.allgather(write(MPI.COMM_WORLD, Path(sys.argv[1]), case))
        assert all(other == told[0] for other in told), told
        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps({"case": case, **told[0]}))
