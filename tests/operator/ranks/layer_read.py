"""Reads what layer_write.py wrote, and checks every value: mpirun python layer_read.py FILE..."""

from __future__ import annotations

import sys

import adios2
import numpy as np
from cases import STEPS
from layer import LAYER_CASES, problems
from mpi4py import MPI

import cusz_operator as cz
import support

comm = MPI.COMM_WORLD


def main() -> None:
    for path in sys.argv[1:]:
        with cz.Reader(path, comm, threads=2) as run, adios2.FileReader(path) as plain:
            assert len(run) == STEPS
            for i, step in enumerate(run):
                assert step.index == i
                assert set(step.variables) == {case.name for case in LAYER_CASES if i in case.steps}
                for case in LAYER_CASES:
                    if i not in case.steps:
                        continue
                    assert step.shape(case.name) == case.shape
                    share = step.share(case.name)
                    draws = [int(d) for d in support.integers(2 * len(case.shape), 0, 1000, seed=i * 100 + comm.rank)]
                    start = tuple(d % n for d, n in zip(draws, case.shape, strict=False))
                    count = tuple(1 + d % (n - s) for d, n, s in zip(draws[::-1], case.shape, start, strict=False))
                    whole = ((0,) * len(case.shape), case.shape)
                    for box in (share, (start, count), whole):
                        got = step.read(case.name) if box is share else step.read(case.name, *box)
                        found = problems(case, i, box, got)
                        assert not found, (path, case.name, i, box, found)
                    expected = plain.read(case.name, step_selection=[case.steps.index(i), 1]).reshape(case.shape)
                    assert support.same_bits(got, np.ascontiguousarray(expected)), "plain ADIOS2 reads something else"
                    shares = [step.share(case.name, rank) for rank in range(comm.size)]
                    assert sum(count[0] for _, count in shares) == case.shape[0]
    if comm.rank == 0:
        print("read", len(sys.argv) - 1, flush=True)


try:
    main()
except BaseException as error:
    print(f"rank {comm.rank}: {error!r}", file=sys.stderr, flush=True)
    comm.Abort(1)
