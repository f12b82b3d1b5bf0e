"""Compiled programs: blocks that only C++ can put, memory that runs out, and how a process ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_operator
from cusz_core.errors import ParameterError

LIBRARY = cusz_operator.plugin_path() / "libcusz_operator.so"


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
@pytest.mark.parametrize(
    ("case", "engine"), [("ghosts", "BP5"), ("random", "BP5"), ("random", "BP4"), ("column", "BP4")]
)
def test_blocks_of_a_cpp_program(
    case: str, engine: str, predictor: str, programs: Path, program: Callable, tmp_path: Path
) -> None:
    program([programs / "blocks", case, tmp_path, engine, predictor])


@pytest.mark.parametrize(("engine_type", "without", "with_it"), [("BP5", "wrong", "wrong"), ("BP4", "right", "wrong")])
def test_ghost_cells_of_a_column_major_program(
    engine_type: str, without: str, with_it: str, programs: Path, program: Callable, tmp_path: Path
) -> None:
    """The cells that ADIOS2 2.12 writes, as the guide states."""
    said = program([programs / "blocks", "fortran", tmp_path, engine_type]).stdout
    assert said == f"without: {without}\nwith: {with_it}\n"


def test_column_major_blocks_compress_when_the_order_is_told(
    engine: str, programs: Path, program: Callable, tmp_path: Path
) -> None:
    program([programs / "blocks", "column", tmp_path, engine])
    path = tmp_path / f"column_{engine}.bp"
    blocks = {block["variable"]: block for block in cusz_operator.inspect_bp(path)}
    assert blocks["column"]["ratio"] > 2 * blocks["row"]["ratio"] > 2
    assert blocks["column"]["shape"] == blocks["column"]["count"] == (11, 23, 97)
    assert blocks["row"]["shape"] == (97, 23, 11)
    (warning,) = cusz_operator.check(path).warnings
    assert warning.startswith(f"{path}: variable 'row': 1 of 1 blocks are compressed along the wrong axes")


def test_the_order_is_proposed_for_a_column_major_run(
    engine: Any, programs: Path, program: Callable, tmp_path: Path, cusz_cli: Callable
) -> None:
    """`cusz config --from`: the ratio that it estimates is that of the right order."""
    program([programs / "blocks", "fortran", tmp_path, engine])
    path = tmp_path / f"fortran_{engine}.bp"
    words = ("config", "--from", path, "--variable", "without", "--eb", "0.1", "--format", "xml")
    order = '<parameter key="order" value="column"/>'
    status, output, _ = cusz_cli(*words)
    assert (status, order in output) == (0, True)
    assert order not in cusz_cli(*words, "--order", "row")[1]
    with cusz_operator.Writer(tmp_path / "row.bp", eb=0, engine=engine) as out, out.step():
        out.put("without", np.zeros((40, 30)))
    assert "order" not in cusz_cli(words[0], "--from", tmp_path / "row.bp", *words[3:])[1]


def test_a_writer_does_not_append_to_a_column_major_file(
    engine: Any, programs: Path, program: Callable, tmp_path: Path
) -> None:
    """BP4 would take such steps, and show the shape of all in the wrong order."""
    program([programs / "blocks", "column", tmp_path, engine])
    path = tmp_path / f"column_{engine}.bp"
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(ParameterError, match="append: it was begun by a program with column-major arrays"):
        cusz_operator.Writer(path, eb=1e-3, engine=engine, append=True)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.full
@pytest.mark.parametrize(("engine", "predictor"), [("BP4", "lorenzo"), ("BP4", "spline"), ("BP5", "lorenzo")])
def test_incompressible_blocks_stay_inside_adios2s_buffers(
    engine: str, predictor: str, programs: Path, program: Callable, tmp_path: Path
) -> None:
    """BP4 reserves little more than the raw size; only a memory checker would notice one byte too many."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed (Debian: valgrind)")
    command = [valgrind, "--quiet", "--error-exitcode=99", programs / "blocks", "random", tmp_path, engine, predictor]
    program(command, env={"OMP_NUM_THREADS": "1"}, timeout=300)
    for file in tmp_path.glob("random*.bp"):
        kinds = {b["count"][0]: b["kind"] for b in cusz_operator.inspect_bp(file) if b["operator"]}
        assert {kind for count, kind in kinds.items() if count % 2} == {"raw"}
        assert {kind for count, kind in kinds.items() if count % 2 == 0 and count > 1000} == {"tiled"}


def test_no_allocation_that_fails_costs_data(programs: Path, program: Callable) -> None:
    done = program([programs / "allocations", LIBRARY])
    assert done.stdout.count("one by one") == 8
    reports = done.stderr.splitlines()
    assert len(reports) == len(set(reports)) or "a block is stored raw" in done.stderr
    assert any("could not be compressed and is stored raw: out of memory" in line for line in reports)


@pytest.mark.full
def test_a_process_that_used_threads_ends_well(program: Callable, tmp_path: Path) -> None:
    """ADIOS2 unloads plugins at exit: no thread may be left in their code."""
    config = tmp_path / "config.xml"
    config.write_text(
        '<adios-config><io name="heat"><variable name="temperature"><operation type="plugin">'
        '<parameter key="PluginName" value="cusz"/><parameter key="PluginLibrary" value="cusz_operator"/>'
        '<parameter key="accuracy" value="1e-3"/><parameter key="threads" value="2"/>'
        "</operation></variable></io></adios-config>",
        encoding="utf-8",
    )
    heat = Path(__file__).parents[2] / "build" / "release" / "apps" / "heat_xml"
    assert heat.is_file(), f"{heat} is missing: run scripts/setup"
    for _ in range(10):
        program([heat, tmp_path / "heat.bp", config, "48", "48", "48", "2", "1"])


# ------------------------------------------------------------------------------------------ apps/device_put.cpp


@pytest.fixture
def device_put(programs: Path) -> Path:
    path = programs / "device_put"
    if not path.exists():
        pytest.skip("there is no CUDA runtime to compile apps/device_put.cpp with")
    return path


def test_device_put_without_a_device(device_put: Path, program: Callable, tmp_path: Path) -> None:
    """The machine's devices are hidden from the program."""
    file = tmp_path / "field.bp"
    done = program([device_put, file], env={"CUDA_VISIBLE_DEVICES": ""}, check=False)
    assert done.returncode == 77
    (line,) = done.stderr.splitlines()
    assert line.startswith("device_put: this program needs a CUDA device, and there is none: ")
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: device_put OUTPUT [NX NY NZ]"),
        (["a.bp", "8", "8"], "usage: device_put OUTPUT [NX NY NZ]"),
        (["a.bp", "8", "0", "8"], "'0' is not a whole number from 1 to 99999"),
        (["a.bp", "8", "-8", "8"], "'-8' is not a whole number from 1 to 99999"),
    ],
)
def test_mistakes_of_device_put(device_put: Path, program: Callable, arguments: list[str], message: str) -> None:
    done = program([device_put, *arguments], check=False)
    assert (done.returncode, done.stderr) == (2, f"device_put: {message}\n")


@pytest.mark.gpu
def test_device_put(device_put: Path, program: Callable, cuda: str, tmp_path: Path) -> None:
    if cuda != "device":
        pytest.skip("no CUDA device here")
    file = tmp_path / "field.bp"
    done = program([device_put, file, "50", "60", "70"])
    assert f"210000 values of a device written to {file} and read back" in done.stdout
    assert done.stderr == ""
    (block,) = cusz_operator.inspect_bp(file)
    assert (block["kind"], block["count"]) == ("tiled", (50, 60, 70))


# ------------------------------------------------------------------------------------------------- the library


def test_the_library_has_no_symbols_of_adios2(program: Callable) -> None:
    """One file serves ADIOS2 with and without MPI, so it must not need ADIOS2's libraries."""
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("nm is not installed (Debian: binutils)")
    undefined = program([nm, "--dynamic", "--demangle", "--undefined-only", LIBRARY]).stdout
    assert "cusz_compress" in undefined or "cusz_compress" in program([nm, "--dynamic", LIBRARY]).stdout
    assert "adios2" not in undefined
    defined = program([nm, "--dynamic", "--defined-only", LIBRARY]).stdout
    exported = {line.split()[-1] for line in defined.splitlines() if line.split()[-2] == "T"}
    ours = {name for name in exported if name.startswith("cusz_operator_")}
    assert ours == {
        "cusz_operator_interface",
        "cusz_operator_offer",
        "cusz_operator_offer_with_range",
        "cusz_operator_withdraw",
        "cusz_operator_watch_begin",
        "cusz_operator_watch_end",
        "cusz_operator_version",
        "cusz_operator_capture_begin",
        "cusz_operator_capture_end",
        "cusz_operator_release_scratch",
    }
    assert {"OperatorCreate", "OperatorDestroy"} <= exported
