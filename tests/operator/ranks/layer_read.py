"""Reads what layer_write.py wrote, and checks every value: mpirun python layer_read.py FILE..."""

from __future__ import annotations

import sys

import adios2
import numpy as np
from cases import STEPS, or_abort
from layer import read_and_check
from mpi4py import MPI

import cusz_operator as cz
import support

comm = MPI.COMM_WORLD


def main() -> None:
    for path in sys.argv[1:]:
        with cz.Reader(path, comm, threads=2) as run, adios2.FileReader(path) as plain:
            assert len(run) == STEPS
            assert run.attributes["purpose"] == "a test"
            assert run.attributes["writers"].tolist() == [4]
            for i, step in enumerate(run):
                for case, got in read_and_check(comm, step, i):
                    expected = plain.read(case.name, step_selection=[case.steps.index(i), 1]).reshape(case.shape)
                    assert support.same_bits(got, np.ascontiguousarray(expected)), "plain ADIOS2 reads something else"
    if comm.rank == 0:
        print("read", len(sys.argv) - 1, flush=True)


or_abort(main)
