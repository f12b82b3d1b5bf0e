"""Blocks in the memory of a CUDA device, unreadable blocks, and the parameter `backend`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cusz_operator
from cusz_operator.plugin import Plugin

LOST = "its values are LOST, and NaN (integers: all bits set) is stored in their place (said once per variable)"


def messages_of(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("cusz_operator")]


# ------------------------------------------------------------------------------------- memory that cannot be read

UNREADABLE = """
import ctypes, mmap, sys
import support
from other_program import Program

file, engine_type = sys.argv[1:]
field = support.smooth((64, 128), support.F32)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
address = libc.mmap(None, field.nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
libc.mprotect(address + field.nbytes // 2, field.nbytes // 2, 0)

places = {"low": 4096, "odd": 4097, "half": address, "good": None}
with Program(file, engine_type, StatsLevel="0") as out:
    for step in range(2):
        with out.step():
            for dtype in support.DTYPES:
                values = field.astype(dtype)[: 64 // (dtype.itemsize // 4)]  # all of the same bytes
                for name, place in places.items():
                    out.put(name + dtype.name, values, eb=1e-3, address=place)
print("closed")
"""

READ_UNREADABLE = """
import sys
import adios2
import numpy as np
import support

with adios2.FileReader(sys.argv[1]) as run:
    for step in range(2):
        for dtype in support.DTYPES:
            values = support.smooth((64, 128), support.F32).astype(dtype)[: 64 // (dtype.itemsize // 4)]
            for name in ("low", "odd", "half", "good"):
                got = run.read(name + dtype.name, step_selection=[step, 1]).reshape(values.shape)
                if name == "good":
                    assert not support.violations(values, got, 1e-3)
                else:
                    assert np.isnan(got).all(), name
print("closed")
"""


def test_what_cannot_be_read_is_lost_and_says_so(engine: str, python: Callable, tmp_path: Path) -> None:
    """As when a device has failed, or the plugin without CUDA gets a device pointer."""
    file = tmp_path / "out.bp"
    done = python(UNREADABLE, file, engine)
    assert done.stdout == "closed\n"
    lost = [f"{name}{dtype}" for dtype in ("float32", "float64") for name in ("low", "odd", "half")]
    messages = messages_of(done.stderr)
    assert all(LOST in message for message in messages)
    if engine == "BP5":
        assert len(messages) == len(lost)
        for name in lost:
            assert sum(f"a block of variable '{name}' cannot be read" in message for message in messages) == 1
    else:  # BP4 does not pass the variable's name to the plugin
        assert len(messages) == 1

    done = python(READ_UNREADABLE, file)
    assert done.stdout == "closed\n"
    messages = messages_of(done.stderr)
    assert all("was LOST when it was written" in message for message in messages)
    assert len(messages) == (len(lost) if engine == "BP5" else 1)

    blocks = list(cusz_operator.inspect_bp(file))
    assert len(blocks) == 16
    for block in blocks:
        is_lost = block["variable"] in lost
        assert block["operator"] == "cusz"
        assert block["kind"] == ("lost" if is_lost else "tiled")
        assert ("lost" in block.get("error", "")) == is_lost
        assert block["raw_bytes"] == 64 * 128 * 4


def test_of_names_that_begin_alike_each_is_said_to_be_lost(python: Callable, tmp_path: Path) -> None:
    code = UNREADABLE.replace(
        '{"low": 4096, "odd": 4097, "half": address, "good": None}', '{"n" * 500 + c: 4096 for c in "12"}'
    )
    messages = messages_of(python(code, tmp_path / "out.bp", "BP5").stderr)
    assert len(messages) == 4
    assert all(f"a block of variable '{'n' * 107}...' cannot be read" in message for message in messages)
    code = READ_UNREADABLE.replace('("low", "odd", "half", "good")', '["n" * 500 + c for c in "12"]')
    messages = messages_of(python(code, tmp_path / "out.bp").stderr)
    assert len(messages) == 4
    assert all(f"a block of variable '{'n' * 107}...' was LOST" in message for message in messages)


def test_a_last_message_says_that_no_more_are_shown(python: Callable, tmp_path: Path) -> None:
    code = UNREADABLE.replace(
        '{"low": 4096, "odd": 4097, "half": address, "good": None}', "{f'v{i}': 4096 for i in range(600)}"
    )
    *messages, last = messages_of(python(code, tmp_path / "out.bp", "BP5").stderr)
    assert len(messages) == 1024
    assert all(LOST in message for message in messages)
    assert "there are too many different messages: no more are shown" in last


def test_sst_with_a_memory_selection_does_not_end_the_process(
    programs: Path, program: Callable, tmp_path: Path
) -> None:
    """ADIOS2 2.12 passes NULL to the operator there."""
    done = program([programs / "blocks", "null", tmp_path, "SST"])
    (message,) = messages_of(done.stderr)
    assert "a block of variable 'u' cannot be read" in message
    assert LOST in message
    assert "ADIOS2 gave none (its SST does so for memory selections)" in message


def test_no_file_descriptor_is_needed(python: Callable, tmp_path: Path) -> None:
    """A pipe is used to find out whether memory is readable; without one, blocks are compressed all the same."""
    code = """
import os, resource, sys, time
import adios2
import cusz_operator
import support

io = adios2.Adios().declare_io("output")
field = support.smooth((50, 60), support.F32)
variable = io.define_variable("T", field, field.shape, [0, 0], field.shape)
variable.add_operation_string("plugin", cusz_operator.operator_parameters(1e-3))
engine = io.open(sys.argv[1], adios2.Mode.Write)
engine.begin_step()
while not {"data.0", "md.0", "md.idx", "mmd.0"} <= set(os.listdir(sys.argv[1])):
    time.sleep(0.01)  # ADIOS2 opens its files in a thread
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
try:
    os.pipe()
except OSError:
    print("no descriptor")
engine.put(variable, field, adios2.Mode.Sync)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
engine.end_step()
engine.close()
(block,) = cusz_operator.inspect_bp(sys.argv[1])
print(block["kind"])
"""
    done = python(code, tmp_path / "out.bp")
    assert done.stdout.split("\n") == ["no descriptor", "tiled", ""]
    assert messages_of(done.stderr) == []


# ------------------------------------------------------------------------------------------------- the backend

# Every field is put once for each place: "reference" (host, backend cpu), "host", and "device", which is called "lost"
# if NaN is expected back.
WRITE = """
import sys
import adios2
import numpy as np
import support
from other_program import Program

file, engine_type, backend, predictor, *places = sys.argv[1:]
fields = {}
for dtype in support.DTYPES:
    fields[f"smooth{dtype.name}"] = support.smooth((40, 50, 30), dtype)
    fields[f"special{dtype.name}"] = support.random_bits((5000,), dtype)
    fields[f"noise{dtype.name}"] = support.smooth((9000,), dtype) * 1e30  # is stored raw
    fields[f"one{dtype.name}"] = np.ones((1, 1), dtype)
    fields[f"empty{dtype.name}"] = np.empty((0, 7), dtype)

every = [(name, mode, place) for name in fields for mode in ("abs", "rel") for place in places]
with Program(file, engine_type, StatsLevel="0") as out, out.step():
    for name, mode, place in every:
        given = {"mode": mode, "predictor": predictor, "backend": backend if place != "reference" else "cpu"}
        address = on_device(fields[name]) if place in ("device", "lost") else None
        out.put(f"{name} {mode} {place}", fields[name], eb=1e-3, address=address, **given)

with adios2.FileReader(file) as run:
    for name, mode, place in every:
        field = fields[name]
        if field.size == 0:
            continue
        got = run.read(f"{name} {mode} {place}").reshape(field.shape)
        bound = support.absolute_bound(field, 1e-3, mode)
        assert np.isnan(got).all() if place == "lost" else not support.violations(field, got, bound), (name, place)
print("closed")
"""


def archives(file: Path) -> dict[str, bytes]:
    """The archive of every variable, by its name."""
    adios2 = pytest.importorskip("adios2")
    plugin, found = Plugin(), {}
    with adios2.FileReader(str(file)) as run:
        for name, description in run.available_variables().items():

            def read(name: str = name) -> None:
                run.read(name)

            n = math.prod(int(extent) for extent in description["Shape"].split(","))
            if n:
                archive = plugin.capture(name, 8 * n + 48, read)
                assert archive is not None
                found[name] = archive.tobytes()
    return found


def assert_same_bytes(file: Path, place: str) -> None:
    """The archives of `place` are those of "reference", byte for byte."""
    found = archives(file)
    names = [name for name in found if name.endswith(" reference")]
    assert len(names) == 16
    for name in names:
        assert found[name] == found[name.replace(" reference", f" {place}")], name


def test_backend_cuda_on_host_memory(engine: str, cuda: str, python: Callable, tmp_path: Path) -> None:
    """Without CUDA or a device, there is one message, and the CPU makes the same archives."""
    file = tmp_path / "out.bp"
    done = python(WRITE, file, engine, "cuda", "lorenzo", "reference", "host")
    assert_same_bytes(file, "host")
    messages = messages_of(done.stderr)
    if cuda == "device":
        assert messages == []
    elif cuda == "absent":
        (message,) = messages
        assert "parameter 'backend' = 'cuda', but this build of the plugin has no CUDA; 'auto' is used" in message
    else:
        (message,) = messages
        assert "parameter 'backend' = 'cuda', but a block" in message
        assert "is compressed on the CPU (the archives are the same): device failure" in message


#: Goes between a simulated device's code and a program: makes the device fail, except within on_device.
BREAK = """
def on_device(array, of_good=on_device):
    runtime.simt_break_device(0)
    address = of_good(array)
    runtime.simt_break_device(1)
    return address

runtime.simt_break_device(1)
"""


@pytest.fixture
def write_device(device: Any, python: Callable) -> Callable:
    """Runs WRITE with access to the device: write_device(arguments..., broken=...)."""

    def write(*arguments: str | Path, broken: bool = False) -> Any:
        if broken and not device.is_simulated:
            pytest.skip("a real device cannot be made to fail")
        return python(device.code + BREAK * broken + WRITE, *arguments, env=device.env)

    return write


@pytest.mark.parametrize("predictor", ["lorenzo", "spline", "auto"])
@pytest.mark.parametrize("backend", ["auto", "cuda"])
def test_device_memory(backend: str, predictor: str, engine: str, write_device: Callable, tmp_path: Path) -> None:
    file = tmp_path / "out.bp"
    done = write_device(file, engine, backend, predictor, "reference", "host", "device")
    assert messages_of(done.stderr) == []
    assert_same_bytes(file, "host")
    assert_same_bytes(file, "device")
    versions = {block.get("version") for block in cusz_operator.inspect_bp(file)}
    if predictor != "auto":
        assert (2 in versions) == (predictor == "spline")


@pytest.mark.quick(1)
@pytest.mark.simt
@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
def test_blocks_of_several_devices(
    engine: str, predictor: str, simulated_device: Any, python: Callable, tmp_path: Path
) -> None:
    """Each block is compressed on its own device, whichever device is current."""
    file = tmp_path / "out.bp"
    by_turns = """
import itertools
runtime.simt_set_device_count(3)
numbers = itertools.cycle([2, 0, 1])

def on_device(array, of_number=on_device):
    return of_number(array, next(numbers))
"""
    code, env = simulated_device.code + by_turns + WRITE, simulated_device.env
    done = python(code, file, engine, "auto", predictor, "reference", "device", env=env)
    assert messages_of(done.stderr) == []
    assert_same_bytes(file, "device")


def test_backend_cpu_on_device_memory(engine: str, write_device: Callable, tmp_path: Path) -> None:
    """The device is used all the same, and one message says so."""
    file = tmp_path / "out.bp"
    done = write_device(file, engine, "cpu", "spline", "reference", "device")
    (message,) = messages_of(done.stderr)
    assert "parameter 'backend' = 'cpu', but a block" in message
    assert "lies in memory of CUDA device 0 and is compressed there (the archives are the same)" in message
    assert_same_bytes(file, "device")


def test_an_address_on_the_device_that_is_not_aligned(
    device: Any, engine: str, python: Callable, tmp_path: Path
) -> None:
    """The block is stored raw: nothing is lost."""
    code = """
import sys
import adios2
import numpy as np
import cusz_operator
import support
from other_program import Program

file, engine_type = sys.argv[1:]
field = support.smooth((40, 50), support.F64)
with Program(file, engine_type, StatsLevel="0") as out, out.step():
    out.put("T", field, eb=1e-3, address=on_device(np.frombuffer(bytes(4) + field.tobytes(), np.uint8)) + 4)
with adios2.FileReader(file) as run:
    assert run.read("T").tobytes() == field.tobytes()
(block,) = cusz_operator.inspect_bp(file)
print(block["kind"])
"""
    done = python(device.code + code, tmp_path / "out.bp", engine, env=device.env)
    (message,) = messages_of(done.stderr)
    assert "a block" in message
    assert "is stored raw: its address on CUDA device 0 is not a multiple of 8" in message
    assert done.stdout == "raw\n"


@pytest.mark.parametrize(("backend", "predictor"), [("auto", "spline"), ("cuda", "lorenzo"), ("cuda", "spline")])
def test_broken_device_with_host_memory(
    backend: str, predictor: str, engine: str, write_device: Callable, tmp_path: Path
) -> None:
    """It is written and read all the same, with a message if the device was asked for."""
    file = tmp_path / "out.bp"
    done = write_device(file, engine, backend, predictor, "reference", "host", broken=True)
    messages = messages_of(done.stderr)
    assert len(messages) == (1 if backend == "cuda" else 0)
    assert all("is compressed on the CPU (the archives are the same): " in message for message in messages)
    assert_same_bytes(file, "host")


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
def test_broken_device_with_device_memory(predictor: str, engine: str, write_device: Callable, tmp_path: Path) -> None:
    """Neither an exception nor a signal: NaN, and a message for every variable."""
    done = write_device(tmp_path / "out.bp", engine, "auto", predictor, "reference", "lost", broken=True)
    assert done.stdout == "closed\n"
    messages = messages_of(done.stderr)
    written = [message for message in messages if LOST in message]
    read = [message for message in messages if "was LOST when it was written" in message]
    assert len(written) == len(read) == (16 if engine == "BP5" else 1)
    assert len(messages) == len(written) + len(read)


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.simt
@pytest.mark.parametrize("predictor", ["lorenzo", "spline", "auto"])
def test_arrays_of_a_device_by_writer_and_reader(
    engine: str, predictor: str, simt_environment: dict[str, str], mpirun: Callable, tmp_path: Path
) -> None:
    """Archives are the same as for host arrays, and values are the same when read to either place."""
    done = mpirun(2, "layer_device.py", tmp_path / "out.bp", engine, predictor, env=simt_environment)
    assert done.stdout.count("done") == 2
