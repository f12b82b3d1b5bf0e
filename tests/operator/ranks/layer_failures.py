"""A step that fails on one rank: mpirun python layer_failures.py FOLDER ENGINE KIND...

Writes a good step, one in which the last rank does something wrong, and if that is possible another good one, for every
kind to FOLDER/KIND.bp. Rank 0 prints, as a line of JSON for each, the errors that the ranks got.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
from mpi4py import MPI

import cusz_core
import cusz_operator as cz
import support

comm = MPI.COMM_WORLD
folder, engine, *kinds = sys.argv[1:]
is_wrong = comm.rank == comm.size - 1
u = support.smooth((10, 20), support.F32, seed=comm.rank)
shape, start = (10 * comm.size, 20), (10 * comm.rank, 0)


#: What is wrong with the last rank's block.
WRONG: dict[str, dict[str, Any]] = {
    "dtype": {"array": u.astype(np.float64)},
    "shape": {"shape": (10 * comm.size, 21)},
    "settings": {"eb": 0.5},
    "overlap": {"start": (10 * comm.rank - 3, 0)},
    "outside": {"start": (10 * comm.rank + 1, 0)},
    "long doubles": {"array": np.arange(200, dtype=np.longdouble).reshape(10, 20)},
    "no name": {"name": ""},
    "dimensions": {"start": (0,)},
}


def good_step(out: cz.Writer) -> None:
    with out.step():
        out.put("U", u, shape, start)


def bad_step(out: cz.Writer, kind: str) -> None:
    if kind == "between steps" and is_wrong:
        raise ValueError("not in a step")
    if kind == "compression" and is_wrong:

        def fail(*_: Any, **__: Any) -> bytes:
            raise cusz_core.OutOfMemoryError("no memory for this")

        cusz_core.compress_described = fail  # type: ignore[assignment]
    if kind == "hand-over" and is_wrong:
        out._output.plugin.hand_over = lambda *_: (_ for _ in ()).throw(cz.PluginError("not stored"))  # type: ignore
    with out.step():
        if kind == "user" and is_wrong:
            raise ValueError("of the simulation")
        block: dict[str, Any] = {"name": "U", "array": u, "shape": shape, "start": start}
        out.put(**block | (WRONG.get(kind, {}) if is_wrong else {}))


def write(kind: str) -> None:
    errors = []
    options: dict[str, Any] = {"eb": 1e-3, "engine": engine}
    target = os.path.join(folder, f"{kind}.bp")
    if kind == "engines" and is_wrong:
        options["engine"] = "BP4" if engine == "BP5" else "BP5"
    if kind == "folder":
        target = os.path.join(folder, "not there", "run.bp")
    if kind == "bound" and is_wrong:
        options["eb"] = -1.0
    if kind == "parameter" and is_wrong:
        options["parameters"] = {"StatsLevel": 2}
    try:
        with cz.Writer(target, comm, **options) as out:
            good_step(out)
            try:
                bad_step(out, kind)
            except cusz_core.CuszError as error:
                errors.append([type(error).__name__, str(error)])
            if errors and kind not in ("hand-over", "between steps"):
                if kind == "compression" and is_wrong:
                    sys.modules["cusz_core"].compress_described = keep  # type: ignore[attr-defined]
                good_step(out)
            if errors and kind == "between steps":
                raise ValueError("after that")
    except Exception as error:
        errors.append([type(error).__name__, str(error)])
    told = comm.gather(errors)
    if comm.rank == 0:
        print(json.dumps(told), flush=True)


keep = cusz_core.compress_described
for kind in kinds:
    write(kind)
