"""bpls sees ordinary variables (for other versions of ADIOS2, see test_hosts.py); `inspect_bp` sees the archives."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES, problems

import cusz_core
import cusz_operator
import support
from cusz_operator.plugin import Plugin

pytest.importorskip("adios2")
import adios2
from other_program import Program

# --------------------------------------------------------------------------------------------------- other programs


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["BP5_0_Sync.bp", "BP4_1_Sync.bp"])
def test_bpls_shows_the_values(name: str, written: Callable[[int], Path], shown_by_bpls: Callable) -> None:
    file = written(2) / name
    with adios2.FileReader(str(file)) as run:
        for variable in ("u3", "u3_spline"):
            shown = np.array(shown_by_bpls(file, variable, 3), np.float32)
            assert support.same_bits(shown, run.read(variable, step_selection=[0, 1]).reshape(-1))


# ------------------------------------------------------------------------------------------------------- inspection


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("name", ["BP5_0_Sync.bp", "BP5_1_Deferred.bp", "BP4_1_Sync.bp", "BP4_0_Deferred.bp"])
def test_inspect_bp(ranks: int, name: str, written: Callable[[int], Path], cusz_cli: Callable) -> None:
    file = written(ranks) / name
    blocks = list(cusz_operator.inspect_bp(file))
    assert [(b["step"], b["variable"], b["block"]) for b in blocks] == sorted(
        (b["step"], b["variable"], b["block"]) for b in blocks
    )
    for case in CASES:
        mine = [b for b in blocks if b["variable"] == case.name]
        assert {b["step"] for b in mine} == set(case.steps)
        for step in case.steps:
            boxes = sorted((b["start"], b["count"]) for b in mine if b["step"] == step)
            assert boxes == sorted(case.all_blocks(ranks)), (case.name, step)
        for b in mine:
            raw_bytes = int(np.prod(b["count"])) * case.values(0).dtype.itemsize
            assert b["type"] in ("float", "double", "int32_t", "float complex")
            assert "error" not in b
            if raw_bytes == 0:
                assert b["operator"] == ""
            elif not case.parameters or not case.supported:
                assert b["operator"] == "none or other"
                assert "ratio" not in b
            else:
                assert (b["operator"], b["raw_bytes"], b["mode"]) == ("cusz", raw_bytes, b["mode"])
                assert b["archive_bytes"] <= raw_bytes + 48
                assert (b["eb"], b["mode"]) == ((case.eb, case.mode) if b["kind"] == "tiled" else (0, "abs"))
                assert b["kind"] in (("packed", "raw") if case.exact else ("tiled", "raw"))
                version = b.get("version", 1)  # raw bytes without an archive have no version
                assert version == case.version or (version == 1 and b["ratio"] < 1.3)
            if name.startswith("BP5"):
                wrote = [rank for rank in range(ranks) if (b["start"], b["count"]) in case.blocks(rank, ranks)]
                assert b["writer"] in wrote
            else:
                assert "writer" not in b

    by_name = {b["variable"]: b for b in blocks}
    assert "start" not in by_name["local"]
    assert by_name["local"]["operator"] == "cusz"
    assert (by_name["scalar"]["count"], by_name["scalar"]["operator"]) == ((), "none or other")
    for name in ("u3", "v5", "u6", "u3_spline", "v5_spline", "u6_spline"):  # 3-D, 5-D and 6-D
        assert by_name[name]["ratio"] > 1.5
    for name in ("incompressible", "exact", "constant", "incompressible_spline"):
        assert by_name[name]["kind"] == "raw"
    assert by_name["constant_spline"]["archive_bytes"] <= 40
    assert by_name["v2"]["bins"] == 1024
    assert by_name["u3"]["bins"] == 64

    assert json.loads(cusz_cli("inspect", file, "--blocks", "--json")[1]) == json.loads(json.dumps(blocks))
    assert len(cusz_cli("inspect", file, "--blocks")[1].splitlines()) > len(blocks)
    variables = json.loads(cusz_cli("inspect", file, "--json")[1])
    assert [own["name"] for own in variables] == sorted(by_name)
    assert sum(own["blocks"] for own in variables) == len(blocks)
    assert len(cusz_cli("inspect", file)[1].splitlines()) < 2 * len(variables)


def test_a_run_in_progress_can_be_inspected(tmp_path: Path) -> None:
    with Program(tmp_path / "run.bp") as out:
        for step in range(3):
            with out.step():
                out.put("u", support.smooth((30, 40), support.F32), eb=1e-3)
            steps = [block["step"] for block in cusz_operator.inspect_bp(tmp_path / "run.bp")]
            assert steps in (list(range(step + 1)), list(range(step)))
    assert len(list(cusz_operator.inspect_bp(tmp_path / "run.bp"))) == 3


def test_blocks_that_overlap_are_told_apart_or_reported(engine: str, tmp_path: Path) -> None:
    """ADIOS2 lets a rank write the same place twice."""
    fields = [support.smooth((extent, 40), support.F32, seed=extent) for extent in (30, 20, 10)]
    starts = [[0, 0], [0, 0], [20, 0]]  # the first two share their start, the third begins within the first
    with Program(tmp_path / "run.bp", engine) as out, out.step():
        for start, field in zip(starts, fields, strict=True):
            out.put("u", field, (30, 40), start, 1e-3)
    for block, start, field in zip(cusz_operator.inspect_bp(tmp_path / "run.bp"), starts, fields, strict=True):
        assert (block["start"], block["count"]) == (tuple(start), field.shape)
        if engine == "BP5":
            assert block["archive_bytes"] == len(cusz_core.compress(field, 1e-3))
        else:
            assert "overlaps another block" in block["error"]


# ---------------------------------------------------------------------------------------------------------- capture


@pytest.fixture
def two_fields(engine: str, tmp_path: Path) -> tuple[str, Any, Any, np.ndarray]:
    """Engine type, IO and open engine of a file with the variables A and B, and their field."""
    field = support.smooth((50, 60), support.F64)
    with Program(tmp_path / "two.bp", engine) as out, out.step():
        for name in "AB":
            out.put(name, field, eb=1e-3)
    io = adios2.Adios().declare_io("input")
    return engine, io, io.open(str(tmp_path / "two.bp"), adios2.Mode.ReadRandomAccess), field


def test_capture(two_fields: tuple[str, Any, Any, np.ndarray]) -> None:
    engine_type, io, engine, field = two_fields
    plugin = Plugin()
    assert plugin.version == cusz_core.__version__
    got = {name: np.full_like(field, 7) for name in "AB"}

    def get(*names: str) -> None:
        for name in names:
            engine.get(io.inquire_variable(name), got[name], adios2.Mode.Sync)

    # The archive is the one that Python makes; too small a buffer only causes a second attempt.
    for capacity in (field.nbytes + 48, 1):
        archive = plugin.capture("A", capacity, lambda: get("A"))
        assert archive is not None
        assert archive.tobytes() == cusz_core.compress(field, 1e-3)

    # One block is captured; those after it are decoded.
    archive = plugin.capture("A", field.nbytes + 48, lambda: get("A", "B", "A"))
    assert archive is not None
    assert support.violations(field, got["A"], 1e-3) == []
    assert support.violations(field, got["B"], 1e-3) == []

    # A block of another variable is decoded, if the engine names the variable.
    got["B"][:] = 7
    archive = plugin.capture("A", field.nbytes + 48, lambda: get("B"))
    assert (archive is None) == (engine_type == "BP5")
    if engine_type == "BP5":
        assert support.violations(field, got["B"], 1e-3) == []

    # An error ends the capture.
    with pytest.raises(ZeroDivisionError):
        plugin.capture("A", field.nbytes + 48, lambda: 1 // 0)
    get("A")
    assert support.violations(field, got["A"], 1e-3) == []
    assert plugin.capture("A", 100, lambda: None) is None
    engine.close()


def test_capture_functions_check_their_arguments() -> None:
    library = ctypes.CDLL(str(cusz_operator.plugin_path() / "libcusz_operator.so"))
    begin, end = library.cusz_operator_capture_begin, library.cusz_operator_capture_end
    begin.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
    buffer, size = ctypes.create_string_buffer(100), ctypes.c_size_t(77)
    bad_parameter = 1
    assert end(ctypes.byref(size)) == bad_parameter
    assert begin(b"u", None, 100) == bad_parameter
    assert begin(b"u" * 1024, buffer, 100) == bad_parameter
    assert begin(b"u" * 1023, buffer, 100) == 0
    assert begin(b"u", buffer, 100) == bad_parameter
    assert end(None) == bad_parameter
    assert end(ctypes.byref(size)) == 0
    assert size.value == 0
    assert begin(None, buffer, 100) == 0
    assert end(ctypes.byref(size)) == 0
    library.cusz_operator_release_scratch()


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "threads", "variable", "expected"),
    [(2, None, None, "started 0 0"), (2, "2", None, "started 1 1"), (1, None, "3", "started 2")],
)
def test_threads(
    ranks: int, threads: str | None, variable: str | None, expected: str, mpirun: Callable, tmp_path: Path
) -> None:
    """One thread per rank if a launcher starts several on a node, unless the parameter or OMP_NUM_THREADS is set."""
    arguments = [tmp_path / "threads.bp", *([threads] if threads else [])]
    done = mpirun(ranks, "threads.py", *arguments, env={"OMP_NUM_THREADS": variable})
    assert done.stdout.strip() == expected


def test_the_checks_of_these_tests_see_a_wrong_value() -> None:
    case = next(case for case in CASES if case.name == "with_fill")
    selection = ((0, 0), case.shape)
    right = case.values(1)
    assert problems(case, 1, 2, selection, right) == []
    for place in ((0, 0), (6, 4), (20, 7)):  # a value, fill, NaN
        wrong = right.copy()
        wrong[place] = np.float32(3e5)
        assert problems(case, 1, 2, selection, wrong) != []
