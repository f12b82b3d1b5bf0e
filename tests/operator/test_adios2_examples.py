"""ADIOS2's own gray-scott and heatTransfer, built unchanged from its source distribution (scripts/adios2_examples).

Only their configuration files are changed: they gain operations, and another engine where that is tested. Both programs
give the same bits whenever they run on the same number of ranks (gray-scott without noise), so that a run without the
operator gives the expected values of a run with it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import cusz_operator
import support

adios2 = pytest.importorskip("adios2")
xarray = pytest.importorskip("xarray")
pytestmark = [pytest.mark.mpi, pytest.mark.full]

ROOT = Path(__file__).resolve().parents[2]
EB = 1e-4

Fields = dict[str, list[np.ndarray]]
Bounds = Mapping[str, Mapping[str, float]]  # by IO and variable


@dataclasses.dataclass(frozen=True)
class Job:
    """An example program, its number of ranks and its arguments."""

    ranks: int
    program: str
    arguments: Sequence[str | Path | int]


@dataclasses.dataclass(frozen=True)
class Examples:
    """The programs, and how they run."""

    folder: Path
    libraries: str
    program: Callable[..., subprocess.CompletedProcess[str]]

    def shipped(self, name: str) -> Path:
        return self.folder / "share" / "adios2" / name

    def run(self, cwd: Path, *jobs: Job, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Several jobs run under one mpirun, as in ADIOS2's tests of programs that stream to each other."""
        words: list[str | Path] = []
        for job in jobs:
            binary = self.folder / "bin" / f"adios2_simulations_{job.program}"
            words += [":", "-n", str(job.ranks), binary, *map(str, job.arguments)]
        return self.program(["mpirun", *words[1:]], cwd=cwd, env={"LD_LIBRARY_PATH": self.libraries}, check=check)


@pytest.fixture(scope="session")
def examples(program: Callable, adios2_prefix: Path) -> Examples:
    program([ROOT / "scripts" / "adios2_examples"], timeout=900)
    libraries = [*map(str, adios2_prefix.glob("lib*")), os.environ.get("LD_LIBRARY_PATH", "")]
    return Examples(ROOT / "build" / "adios2-examples", os.pathsep.join(filter(None, libraries)), program)


def configure(
    shipped: Path, target: Path, bounds: Bounds, engine: Mapping[str, str] | None = None, **parameters: str
) -> None:
    """Writes the shipped configuration file with operations added. `engine` names the engine of some IOs; `parameters`
    replaces values of parameters that are already there."""
    tree = ElementTree.parse(shipped)
    for io in tree.iter("io"):
        name = io.get("name", "")
        for element in io.findall("engine"):
            element.set("type", (engine or {}).get(name, element.get("type", "")))
        for variable, eb in bounds.get(name, {}).items():
            operation = ElementTree.SubElement(io, "variable", name=variable)
            operation = ElementTree.SubElement(operation, "operation", type="plugin")
            for key, value in {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": repr(eb)}.items():
                ElementTree.SubElement(operation, "parameter", key=key, value=value)
    for parameter in tree.iter("parameter"):
        key = parameter.get("key", "")
        parameter.set("value", parameters.get(key, parameter.get("value", "")))
    tree.write(target)


def read(file: Path) -> Fields:
    fields = support.fields_of_bp(file)
    require_same_from_reader(file, fields)
    return fields


def require_same_from_reader(file: Path, fields: Fields) -> None:
    """The Reader and xarray must return the same bits."""
    with cusz_operator.Reader(file) as run, xarray.open_dataset(file, engine="cusz") as data:
        assert set(run.variables) == set(fields)
        for name, steps in fields.items():
            for step, expected in zip(run, steps, strict=True):
                got = np.atleast_1d(step.read(name))
                assert (got.dtype, got.tobytes()) == (expected.dtype, expected.tobytes())
                lazy = np.atleast_1d(data[name][step.index].values)
                assert (lazy.dtype, lazy.tobytes()) == (expected.dtype, expected.tobytes())


def check(original: list[np.ndarray], got: list[np.ndarray], eb: float = EB) -> None:
    """Every value of every step keeps the bound; and steps are compressed with loss, unless the bound is 0."""
    assert len(original) == len(got) > 0
    for x, y in zip(original, got, strict=True):
        assert support.violations(x, y, eb) == []
        assert support.same_bits(x, y) == (eb == 0)


def check_blocks(file: Path, variables: str, steps: int, ranks: int, eb: float = EB) -> None:
    """Each rank wrote one archive for each step and variable; variables are named by single letters."""
    blocks = [block for block in cusz_operator.inspect_bp(file) if block["operator"] == "cusz"]
    wanted = [(step, name, rank) for step in range(steps) for name in variables for rank in range(ranks)]
    assert [(block["step"], block["variable"], block["block"]) for block in blocks] == wanted
    assert {(block["kind"], block["eb_abs"]) for block in blocks} == {("tiled" if eb else "raw", eb)}
    assert eb == 0 or min(block["ratio"] for block in blocks) > 2


# ------------------------------------------------------------------------------------------------------- gray-scott

STEPS = 3

#: Small, and without noise, whose seed is random.
SMALL = {"L": 30, "steps": 20 * STEPS, "plotgap": 20, "checkpoint": False, "noise": 0.0}


def gray_scott(
    examples: Examples,
    folder: Path,
    ranks: int,
    engine: str = "BP5",
    bounds: Bounds | None = None,
    parameters: Mapping[str, str] | None = None,
    **settings: object,
) -> Job:
    """Writes its configuration to the folder, where the job will write gs.bp."""
    if bounds is None:
        bounds = {"SimulationOutput": {"U": EB, "V": EB}}
    shipped = examples.shipped("gray-scott/adios2.xml")
    configure(shipped, folder / "adios2.xml", bounds, {"SimulationOutput": engine}, **(parameters or {}))
    given = json.loads(examples.shipped("gray-scott/settings-files.json").read_text(encoding="utf-8"))
    assert given["output"] == "gs.bp"
    assert set(given) >= {*SMALL, *settings}
    (folder / "settings.json").write_text(json.dumps({**given, **SMALL, **settings}), encoding="utf-8")
    return Job(ranks, "gray-scott", ["settings.json"])


Output = Callable[..., Path]


@pytest.fixture(scope="session")
def gray_scott_output(examples: Examples, tmp_path_factory: pytest.TempPathFactory) -> Output:
    """The file that gray-scott writes with these arguments of gray_scott."""
    files: dict[str, Path] = {}

    def run(ranks: int, **arguments: Any) -> Path:
        key = f"{ranks} {arguments}"
        if key not in files:
            folder = tmp_path_factory.mktemp("gray-scott")
            done = examples.run(folder, gray_scott(examples, folder, ranks, **arguments))
            assert "cusz_operator" not in done.stderr
            files[key] = folder / "gs.bp"
        return files[key]

    return run


@pytest.fixture(scope="session")
def gray_scott_original(gray_scott_output: Output) -> Callable[[int], Fields]:
    """What gray-scott writes without the operator."""
    return lambda ranks: read(gray_scott_output(ranks, bounds={}))


FROM_GHOST_CELLS = {"adios_memory_selection": True}
WITH_SPANS = {"adios_span": True}


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize(("engine", "settings"), [("BP5", {}), ("BP4", {}), ("BP5", FROM_GHOST_CELLS)])
def test_gray_scott(
    ranks: int, engine: str, settings: dict[str, bool], gray_scott_output: Output, gray_scott_original: Callable
) -> None:
    file = gray_scott_output(ranks, engine=engine, **settings)
    original, got = gray_scott_original(ranks), read(file)
    assert [int(step[0]) for step in got["step"]] == [20, 40, 60]
    for name in "UV":
        assert len(original[name]) == STEPS
        check(original[name], got[name])
    check_blocks(file, "UV", STEPS, ranks)


def test_gray_scott_continues_from_a_compressed_checkpoint(
    examples: Examples, gray_scott_original: Callable, tmp_path: Path
) -> None:
    """Because it is compressed without loss, the run goes on as if it had never stopped."""
    bounds = {"SimulationOutput": {"U": EB, "V": EB}, "SimulationCheckpoint": {"U": 0.0, "V": 0.0}}
    saving = {"steps": 40, "checkpoint": True, "checkpoint_freq": 40}
    examples.run(tmp_path, gray_scott(examples, tmp_path, 4, bounds=bounds, **saving))
    check_blocks(tmp_path / "gs.bp", "UV", 2, 4)
    check_blocks(tmp_path / "ckpt.bp", "UV", 1, 4, eb=0)
    done = examples.run(tmp_path, gray_scott(examples, tmp_path, 4, bounds=bounds, restart=True))
    assert "restart from step 40" in done.stdout
    original, got = gray_scott_original(4), read(tmp_path / "gs.bp")
    for name in "UV":
        check(original[name], got[name])


# ------------------------------------------------------------------------- pdf_calc, which analyses gray-scott's output

BINS = 40


def pdf_calc(ranks: int, source: Path | str) -> Job:
    """A job that writes histograms and copies of U and V to pdf.bp. Its configuration file is adios2.xml."""
    return Job(ranks, "gray-scott_pdf-calc", [source, "pdf.bp", BINS, "YES"])


def histograms(field: np.ndarray, ranks: int) -> np.ndarray:
    """Histograms of every slice, between the min and max of the slices of the same rank."""
    result = np.zeros((len(field), BINS))
    share = len(field) // ranks
    for rank in range(ranks):
        last = len(field) if rank == ranks - 1 else (rank + 1) * share
        slices = field[rank * share : last]
        low, high = slices.min(), slices.max()
        bins = np.floor((slices - low) / ((high - low) / BINS)).astype(int)
        for i, row in enumerate(bins, rank * share):
            result[i] = np.bincount(np.minimum(row, BINS - 1).ravel(), minlength=BINS)
    return result


@pytest.mark.parametrize("ranks", [1, 3])
def test_pdf_calc(ranks: int, engine: str, examples: Examples, gray_scott_output: Output, tmp_path: Path) -> None:
    """It reads compressed data, and compresses what it writes."""
    file = gray_scott_output(4, engine=engine)
    engines = {"SimulationOutput": engine, "PDFAnalysisOutput": engine}
    bounds = {"PDFAnalysisOutput": {"U": 1e-3, "V": 1e-3}}
    configure(examples.shipped("gray-scott/adios2.xml"), tmp_path / "adios2.xml", bounds, engines)
    done = examples.run(tmp_path, pdf_calc(ranks, file))
    assert "out of [min,max]" not in done.stdout
    read_by_it, got = read(file), read(tmp_path / "pdf.bp")
    for name in "UV":
        check(read_by_it[name], got[name], 1e-3)
        for field, pdf in zip(read_by_it[name], got[f"{name}/pdf"], strict=True):
            assert np.array_equal(pdf, histograms(field, ranks))
    check_blocks(tmp_path / "pdf.bp", "UV", STEPS, ranks, 1e-3)


#: gray-scott waits for pdf_calc, and skips no step.
STREAMED = {"RendezvousReaderCount": "1", "QueueFullPolicy": "Block"}


@pytest.mark.parametrize(("writers", "readers"), [(1, 3), (4, 1), (4, 3)])
def test_gray_scott_streams_to_pdf_calc(
    writers: int, readers: int, examples: Examples, gray_scott_original: Callable, tmp_path: Path
) -> None:
    writing = gray_scott(examples, tmp_path, writers, engine="SST", parameters=STREAMED)
    done = examples.run(tmp_path, writing, pdf_calc(readers, "gs.bp"))
    assert "cusz_operator" not in done.stderr
    original, got = gray_scott_original(writers), read(tmp_path / "pdf.bp")
    for name in "UV":
        check(original[name], got[name])
        for field, pdf in zip(got[name], got[f"{name}/pdf"], strict=True):
            assert np.array_equal(pdf, histograms(field, readers))


# ---------------------------------------------------------- what ADIOS2 does not do with an operator (adios2.md)


def test_bp4_passes_other_cells_than_those_of_a_memory_selection(
    examples: Examples, gray_scott_output: Output, gray_scott_original: Callable, tmp_path: Path
) -> None:
    """Without an operator it passes the right ones. With one, it passes the first cells of the array."""
    original = gray_scott_original(1)
    without = read(gray_scott_output(1, engine="BP4", bounds={}, **FROM_GHOST_CELLS))
    saving = {"steps": 20, "checkpoint": True, "checkpoint_freq": 20}
    examples.run(tmp_path, gray_scott(examples, tmp_path, 1, engine="BP4", **saving, **FROM_GHOST_CELLS))
    with_ghost_cells, got = read(tmp_path / "ckpt.bp"), read(tmp_path / "gs.bp")
    for name in "UV":
        assert support.same_bits(original[name][0], without[name][0])
        assert with_ghost_cells[name][0].shape == (1, 32, 32, 32)
        begin = with_ghost_cells[name][0].ravel()[: 30**3].reshape(30, 30, 30)
        check([begin], got[name])
        assert support.violations(original[name][0], got[name][0], EB) != []


def test_sst_passes_no_cells_of_a_memory_selection(
    examples: Examples, gray_scott_original: Callable, tmp_path: Path
) -> None:
    """The writer says so. A reader fails or gets wrong values, because ADIOS2 puts raw cells over the first block."""
    writing = gray_scott(examples, tmp_path, 4, engine="SST", parameters=STREAMED, **FROM_GHOST_CELLS)
    done = examples.run(tmp_path, writing, pdf_calc(1, "gs.bp"), check=False)
    lost = (
        r"cusz_operator\[rank (\d)\]: a block of variable '([UV])' cannot be read: its values are LOST.* for memory sel"
    )
    assert sorted(re.findall(lost, done.stderr)) == [(rank, name) for rank in "0123" for name in "UV"]
    if done.returncode == 0:
        assert support.violations(gray_scott_original(4)["U"][0], read(tmp_path / "pdf.bp")["U"][0], EB) != []


def test_adios2_refuses_a_span_of_a_variable_with_an_operator(
    engine: str, examples: Examples, gray_scott_output: Output, gray_scott_original: Callable, tmp_path: Path
) -> None:
    without = read(gray_scott_output(1, engine=engine, bounds={}, **WITH_SPANS))
    for name, steps in gray_scott_original(1).items():
        assert all(support.same_bits(x, y) for x, y in zip(steps, without[name], strict=True))
    done = examples.run(tmp_path, gray_scott(examples, tmp_path, 1, engine=engine, **WITH_SPANS), check=False)
    assert done.returncode != 0
    assert "std::invalid_argument" in done.stderr
    assert "Span does not support Operations" in done.stderr


# ----------------------------------------------------------------------------------------------------- heatTransfer

GRIDS = {1: (1, 1), 3: (1, 3), 4: (2, 2)}
HEAT_STEPS = 4  # the first is the initial state


def heat_transfer(examples: Examples, folder: Path, ranks: int, engine: str, bounds: Bounds | None = None) -> Job:
    """Writes its configuration file to the folder, where the job will write T to heat.bp."""
    if bounds is None:
        bounds = {"writer": {"T": EB}}
    configure(examples.shipped(f"heatTransfer/heat_{engine.lower()}.xml"), folder / "heat.xml", bounds)
    return Job(ranks, "heatTransferWrite", ["heat.xml", "heat.bp", *GRIDS[ranks], 33, 29, HEAT_STEPS - 1, 5, engine])


def heat_read(ranks: int, source: Path | str, engine: str) -> Job:
    """A job that writes T and its change since the last step, dT, to read.bp. Its configuration file is heat.xml."""
    return Job(ranks, "heatTransferRead", ["heat.xml", source, "read.bp", *GRIDS[ranks], engine])


@pytest.fixture(scope="session")
def heat_output(examples: Examples, tmp_path_factory: pytest.TempPathFactory) -> Output:
    """The file that heatTransfer writes with these arguments of heat_transfer."""
    files: dict[str, Path] = {}

    def run(ranks: int, engine: str = "BP5", **arguments: Any) -> Path:
        key = f"{ranks} {engine} {arguments}"
        if key not in files:
            folder = tmp_path_factory.mktemp("heat")
            done = examples.run(folder, heat_transfer(examples, folder, ranks, engine, **arguments))
            assert "cusz_operator" not in done.stderr
            files[key] = folder / "heat.bp"
        return files[key]

    return run


def check_heat_read(read_by_it: list[np.ndarray], file: Path) -> None:
    """The reader wrote what it read, and its changes."""
    got = read(file)
    assert len(read_by_it) == len(got["T"]) == HEAT_STEPS
    for step, field in enumerate(read_by_it):
        assert support.same_bits(field, got["T"][step])
        assert support.same_bits(read_by_it[max(step - 1, 0)] - field, got["dT"][step])


@pytest.mark.parametrize("ranks", [1, 4])
def test_heat_transfer(ranks: int, engine: str, heat_output: Output) -> None:
    """A program whose ADIOS object is static, and lives until the process ends."""
    file = heat_output(ranks, engine)
    check(read(heat_output(ranks, bounds={}))["T"], read(file)["T"])
    check_blocks(file, "T", HEAT_STEPS, ranks)


@pytest.mark.parametrize("ranks", [1, 3])
def test_heat_transfers_reader(
    ranks: int, engine: str, examples: Examples, heat_output: Output, tmp_path: Path
) -> None:
    """It reads compressed data, and compresses what it writes without loss."""
    file = heat_output(4, engine)
    heat_transfer(examples, tmp_path, 1, engine, {"readerOutput": {"T": 0.0, "dT": 0.0}})
    done = examples.run(tmp_path, heat_read(ranks, file, engine))
    assert "cusz_operator" not in done.stderr
    check_heat_read(read(file)["T"], tmp_path / "read.bp")
    assert {block["operator"] for block in cusz_operator.inspect_bp(tmp_path / "read.bp")} == {"cusz"}


@pytest.mark.parametrize(("writers", "readers"), [(1, 3), (4, 1), (4, 3)])
def test_heat_transfer_streams(
    writers: int, readers: int, examples: Examples, heat_output: Output, tmp_path: Path
) -> None:
    writing = heat_transfer(examples, tmp_path, writers, "SST")
    done = examples.run(tmp_path, writing, heat_read(readers, "heat.bp", "SST"))
    assert "cusz_operator" not in done.stderr
    got = read(tmp_path / "read.bp")["T"]
    check(read(heat_output(writers, bounds={}))["T"], got)
    check_heat_read(got, tmp_path / "read.bp")


# ---------------------------------------------------------------------------------------------------- ADIOS2's tools


def test_bpcmp_sees_no_difference_above_the_bound(
    engine: str, adios2_prefix: Path, heat_output: Output, program: Callable
) -> None:
    files = [heat_output(4, bounds={}), heat_output(4, engine)]
    compare = [sys.executable, adios2_prefix / "bin" / "bpcmp.py", *files, "--tolerance"]
    assert "DONE : Files have the same content" in program([*compare, repr(EB)]).stdout
    assert "DIFFER : VARIABLE : T : STEP : 0" in program([*compare, repr(EB / 10)]).stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_reorganize_keeps_the_values(
    ranks: int, engine: str, adios2_prefix: Path, heat_output: Output, program: Callable, tmp_path: Path
) -> None:
    """From BP5 it takes over the operator, but not its bound: the plugin stores the decoded values raw."""
    file, copy = heat_output(4, engine), tmp_path / "copy.bp"
    command = ["mpirun", "-n", "2", "adios2_reorganize_mpi"] if ranks > 1 else ["adios2_reorganize"]
    command[-1] = str(adios2_prefix / "bin" / command[-1])
    done = program([*command, file, copy, "BPFile", "", engine, "", str(ranks), "1"])
    assert ("no error bound is given" in done.stderr) == (engine == "BP5")
    stored, copied = read(file)["T"], read(copy)["T"]
    assert all(support.same_bits(x, y) for x, y in zip(stored, copied, strict=True))
    check(read(heat_output(4, bounds={}))["T"], copied)
    blocks = {(block["operator"], block.get("kind")) for block in cusz_operator.inspect_bp(copy)}
    assert blocks == {("cusz", "raw") if engine == "BP5" else ("none or other", None)}
