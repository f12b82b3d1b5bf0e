"""Writes and reads device and host arrays: mpirun python layer_device.py FILE ENGINE PREDICTOR

Runs on the emulated device, with the stand-in for CuPy (simt_environment, tests/conftest.py).
"""

from __future__ import annotations

import ctypes
import sys

import adios2
import cupy
import numpy as np
from mpi4py import MPI

import cusz_core
import cusz_operator as cz
import support

EB = 1e-3
comm = MPI.COMM_WORLD
path, engine, predictor = sys.argv[1:]
binding = cz.bind_device(comm)
assert (binding.device, binding.sharing) == (0, comm.size)
whole = support.smooth((40, 30, 20), support.F32)
first, last = (40 * r // comm.size for r in (comm.rank, comm.rank + 1))
counts = np.arange(whole.size, dtype=np.int32).reshape(whole.shape)
block, start = whole[first:last], (first, 0, 0)
halves = ((block[:5], first), (block[5:], first + 5))
#: Which halves of a variable are on the device.
PLACES = {"host halves": (False, False), "device halves": (True, True), "mixed halves": (True, False)}

with cz.Writer(path, comm, eb=EB, mode="rel", engine=engine, predictor=predictor) as out:
    for _ in range(2):
        with out.step():
            out.put("device", cupy.asarray(block), whole.shape, start)
            out.put("host", block, whole.shape, start)
            out.put("count", counts[first:last], whole.shape, start)
            for name, places in PLACES.items():
                for (half, at), is_on_device in zip(halves, places, strict=True):
                    out.put(name, cupy.asarray(half) if is_on_device else half, whole.shape, (at, 0, 0))

bound = support.absolute_bound(whole, EB, "rel")
with cz.Reader(path, comm) as run:
    for step in run:
        box = {"start": (3, 2, 1), "count": (30, 20, 10)}
        values = {name: step.read(name, **box) for name in ("host", "device")}
        for name, to_host in values.items():
            assert isinstance(to_host, np.ndarray)
            assert not support.violations(whole[3:33, 2:22, 1:11], to_host, bound)
            before = cupy._runtime.simt_launch_count()
            on_device = step.read(name, **box, like=cupy)
            assert isinstance(on_device, cupy.ndarray)
            assert cupy._runtime.simt_launch_count() == before, "small blocks are decoded in host memory"
            into = cupy.zeros((30, 20, 10), np.float32)
            assert step.read(name, **box, out=into) is into
            assert support.same_bits(into.get(), to_host)
            assert support.same_bits(on_device.get(), to_host)
            level = step.level(name, 2)
            of_level = step.read(name, level=2)
            in_level = step.read(name, like=cupy, level=2)
            assert isinstance(in_level, cupy.ndarray)
            assert support.same_bits(in_level.get(), of_level)
            start_of, count_of = (1, 2, 1), (3, 4, 2)
            target = cupy.zeros(count_of, np.float32)
            assert step.read(name, start_of, count_of, level=2, out=target) is target
            all_of_it = step.read(name, (0, 0, 0), level.shape, level=2)
            assert support.same_bits(target.get(), support.part(all_of_it, start_of, count_of))
            full = step.read(name, (0, 0, 0), whole.shape)
            assert support.same_bits(all_of_it, np.ascontiguousarray(full[np.ix_(*level.coordinates)]))
        of_level = step.read("count", (0, 0, 0), (5, 4, 3), like=cupy, level=2)
        assert isinstance(of_level, cupy.ndarray)
        assert support.same_bits(of_level.get(), np.ascontiguousarray(counts[:20:4, :16:4, :12:4]))
        host, device = step.blocks("host"), step.blocks("device")
        assert (host["device"] == -1).all()
        assert (device["device"] == 0).all()
        assert support.same_bits(values["device"], values["host"])
        in_halves = {name: step.blocks(name) for name in PLACES}
        for column in ("eb_abs", "min", "max", "archive_bytes", "checksum", "outliers"):
            assert (host[column] == device[column]).all(), column
            for name, table in in_halves.items():
                assert (in_halves["host halves"][column] == table[column]).all(), (name, column)
        for name, places in PLACES.items():
            assert in_halves[name]["device"].tolist() == [place - 1 for place in places] * comm.size
            every = step.read(name, (0, 0, 0), whole.shape)
            assert not support.violations(whole, every, bound), name

with adios2.FileReader(path) as run:
    told = run.available_variables()
    low, high = (whole.min(), whole.max()) if engine == "BP5" else (0, 0)
    for name in ("host", "device"):
        assert (told[name]["Min"], told[name]["Max"]) == (f"{low:e}", f"{high:e}"), told[name]

# Blocks of one variable are compressed in one call, with Lorenzo in as many launches as one block.
launches = {}
for parts in (2, 10):
    with cz.Writer(f"{path}.parts.bp", comm, eb=EB, engine=engine, predictor=predictor, backend="cuda") as out:
        before = cupy._runtime.simt_launch_count()
        with out.step():
            for at in range(0, len(block), len(block) // parts):
                part = block[at : at + len(block) // parts]
                out.put("parts", cupy.asarray(part), whole.shape, (first + at, 0, 0))
        launches[parts] = cupy._runtime.simt_launch_count() - before
    with cz.Reader(f"{path}.parts.bp", comm) as run:
        assert not support.violations(whole, run[0].read("parts", (0, 0, 0), whole.shape), EB)
if predictor == "lorenzo":
    assert 0 < launches[2] == launches[10]

# The device fails on the last rank: the step is missing, but those before it are there.
with cz.Writer(f"{path}.failed.bp", comm, eb=EB, engine=engine, predictor=predictor) as out:
    with out.step():
        out.put("device", cupy.asarray(block), whole.shape, start)
    failure = ""
    try:
        with out.step():
            out.put("device", cupy.asarray(block), whole.shape, start)
            cupy._runtime.simt_break_device(comm.rank == comm.size - 1)
    except cusz_core.DeviceError as error:
        failure = str(error)
    assert f"rank {comm.size - 1}" in failure
    cupy._runtime.simt_break_device(False)
with cz.Reader(f"{path}.failed.bp", comm) as run:
    (step,) = run
    assert not support.violations(block, step.read("device", start=start, count=block.shape), EB)

# Host arrays go to the device that is current, also from the thread that compresses while the program goes on.
cupy._runtime.simt_set_device_count(2)
cupy.cuda.Device(1).use()
for overlap in (False, True):
    with cz.Writer(
        f"{path}.host.bp", comm, eb=EB, engine=engine, predictor=predictor, backend="cuda", overlap=overlap
    ) as out:
        cupy._runtime.simt_clear()
        for _ in range(2):
            with out.step():
                out.put("host", block, whole.shape, start)
    used = cupy._runtime.simt_contexts()
    assert used == 1 << 1 or (predictor != "lorenzo" and used == 0), (overlap, used)

# So do the threads of a Reader, and their work is on the stream that is current for the program.
if predictor == "lorenzo":
    large = support.smooth((2 * comm.size, 64, 64, 66), support.F32)
    with cz.Writer(f"{path}.large.bp", comm, eb=EB, engine=engine, predictor=predictor) as out, out.step():
        for at in (2 * comm.rank, 2 * comm.rank + 1):
            out.put("large", large[at : at + 1], large.shape, (at, 0, 0, 0))
    with cz.Reader(f"{path}.large.bp", comm, threads=2) as run, cupy.cuda.Stream(non_blocking=True) as stream:
        cupy._runtime.simt_clear()
        read = run[0].read("large", (0, 1, 0, 0), (2 * comm.size, 60, 64, 66), like=cupy)
        assert not support.violations(large[:, 1:61], read.get(), EB)
        work = [cupy._runtime.simt_work(ctypes.c_void_p(pointer)) for pointer in (stream.ptr, None)]
        assert (cupy._runtime.simt_contexts(), work[1]) == (1 << 1, 0), work
        assert work[0] > 0
print("done")
