"""Runs the command line as if every rank saw two devices: mpirun python two_devices.py ARGUMENT...

With FAILING in the environment, the last rank cannot query their names.
"""

import dataclasses
import os
import sys
from typing import Any

from mpi4py import MPI

import cusz_core
from cusz_core import cli
from cusz_operator import device

found = [
    dataclasses.replace(backend, available=True, devices=("GPU A", "GPU B")) if backend.name == "cuda" else backend
    for backend in cusz_core.devices()
]


def devices() -> Any:
    if "FAILING" in os.environ and MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1:
        raise cusz_core.DeviceError("device 1 cannot be asked its name")
    return found


cusz_core.devices = devices
device._make_current = lambda device: None
sys.exit(cli.main(sys.argv[1:]))
