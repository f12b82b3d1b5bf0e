"""apps/gray_scott.py: the physics, independence of the number of ranks, restart, failures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gray_scott as app
import numpy as np
import pytest
from demo_check import count_violations
from mpi4py import MPI

import cusz_core
import cusz_operator
import support
from support import fields_of_bp

pytestmark = pytest.mark.mpi

EB = 1e-4
RATE = {"du": 0.14, "dv": 0.07, "feed": 0.03, "kill": 0.06}


def advance(u: np.ndarray, v: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Runs `steps` steps of the program's own stepper in this process."""
    grid = app.make_grid(MPI.COMM_SELF, u.shape)
    sim = app.GrayScott(grid, app.Physics(), u.dtype, np)
    sim.set_state(u, v)
    for _ in range(steps):
        sim.step()
    u, v = (np.ascontiguousarray(field) for field in sim.fields().values())
    return u, v


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [(12, 9, 10), (40, 30, 33), (1, 7, 1)])
def test_step_is_the_equations(size: tuple[int, int, int], dtype: type[np.floating]) -> None:
    """To the bit: here the whole periodic array is shifted, instead of halos and passes."""
    u, v = app.initial_state(size, (0, 0, 0), size, 1, np.dtype(dtype))
    assert u.dtype == v.dtype == dtype
    got_u, got_v = advance(u, v, 3)
    c = {key: dtype(value) for key, value in RATE.items()}
    keep_u = dtype(1 - 6 * RATE["du"] - RATE["feed"])
    keep_v = dtype(1 - 6 * RATE["dv"] - RATE["feed"] - RATE["kill"])

    def around(x: np.ndarray) -> np.ndarray:
        return sum((np.roll(x, s, a) for a in range(3) for s in (1, -1)), start=np.zeros_like(x))

    for _ in range(3):
        reaction = u * v * v
        u, v = (
            around(u) * c["du"] + u * keep_u - reaction + c["feed"],
            np.maximum(around(v) * c["dv"] + v * keep_v + reaction, dtype(1e-18)),
        )
    assert support.same_bits(got_u, u)
    assert support.same_bits(got_v, v)


def test_initial_state_depends_on_the_global_position_alone() -> None:
    size = (20, 18, 16)
    whole = app.initial_state(size, (0, 0, 0), size, 7, np.dtype(np.float32))
    part = app.initial_state(size, (5, 0, 9), (6, 18, 7), 7, np.dtype(np.float32))
    for all_of_it, box in zip(whole, part, strict=True):
        assert support.same_bits(np.ascontiguousarray(all_of_it[5:11, :, 9:16]), box)
    other = app.initial_state(size, (0, 0, 0), size, 8, np.dtype(np.float32))
    assert not support.same_bits(whole[0], other[0])


@pytest.mark.parametrize(
    ("size", "ranks", "cut"),
    [
        ((64, 64, 64), 4, (2, 2, 1)),
        ((64, 64, 64), 8, (2, 2, 2)),
        ((1, 1, 9), 9, (1, 1, 9)),
        ((2, 100, 100), 4, (1, 2, 2)),
        ((7, 5, 3), 7, (7, 1, 1)),
    ],
)
def test_cut(size: tuple[int, int, int], ranks: int, cut: tuple[int, int, int]) -> None:
    assert app.choose_ranks(size, ranks) == cut


@pytest.mark.quick(1)
@pytest.mark.parametrize(("n", "size", "dtype"), [(4, "25x23x19", "f32"), (8, "13x12x11", "f64")])
def test_fields_do_not_depend_on_the_ranks(
    ranks: Any, gray_scott: Path, tmp_path: Path, n: int, size: str, dtype: str
) -> None:
    common = ("--size", size, "--dtype", dtype, "--steps", 60, "--interval", 25, "--eb", 0)
    ranks(1, gray_scott, *common, "--output", tmp_path / "one.bp")
    ranks(n, gray_scott, *common, "--output", tmp_path / "many.bp")
    one, many = fields_of_bp(tmp_path / "one.bp"), fields_of_bp(tmp_path / "many.bp")
    assert [int(step[0]) for step in many["step"]] == [25, 50, 60]
    for name in "UV":
        assert all(support.same_bits(a, b) for a, b in zip(one[name], many[name], strict=True))
        assert np.ptp(many[name][-1]) > 0.1


@pytest.mark.quick(1)
@pytest.mark.parametrize("engine", ["BP5", "BP4"])
def test_compressed_steps_and_restart(
    ranks: Any, gray_scott: Path, stored_bytes: Any, tmp_path: Path, engine: str
) -> None:
    """Compressed steps keep the bound; a restart continues from exactly the decoded fields."""
    ranks(4, gray_scott, "--size", 32, "--steps", 40, "--interval", 20, "--eb", EB, "--engine", engine,
          "--output", tmp_path / "gs.bp", "--reference", tmp_path / "reference.bp")  # fmt: skip
    stored, exact = fields_of_bp(tmp_path / "gs.bp"), fields_of_bp(tmp_path / "reference.bp")
    assert [int(step[0]) for step in stored["step"]] == [20, 40]
    for name in "UV":
        for original, decoded in zip(exact[name], stored[name], strict=True):
            assert count_violations(original, decoded, EB) == 0
            assert not support.same_bits(original, decoded)
    assert 2 * stored_bytes(tmp_path / "gs.bp") < stored_bytes(tmp_path / "reference.bp")

    ranks(3, gray_scott, "--size", 32, "--steps", 55, "--interval", 100, "--eb", 0, "--engine", engine,
          "--restart", tmp_path / "gs.bp", "--output", tmp_path / "more.bp")  # fmt: skip
    more = fields_of_bp(tmp_path / "more.bp")
    assert [int(step[0]) for step in more["step"]] == [55]
    u, v = advance(stored["U"][-1], stored["V"][-1], 15)
    assert support.same_bits(more["U"][0], u)
    assert support.same_bits(more["V"][0], v)


@pytest.mark.full
def test_twenty_steps_within_a_budget(ranks: Any, gray_scott: Path, tmp_path: Path) -> None:
    """From noise to a pattern, no step takes more bytes than it may, and every bound is kept."""
    budget = 20_000
    done = ranks(4, gray_scott, "--size", 32, "--steps", 400, "--interval", 20, "--budget-bytes", budget,
                 "--output", tmp_path / "gs.bp", "--reference", tmp_path / "reference.bp")  # fmt: skip
    assert "missed" not in done.stderr
    exact = fields_of_bp(tmp_path / "reference.bp")
    bounds = []
    with cusz_operator.Reader(tmp_path / "gs.bp") as run:
        assert len(run) == 20
        for number, step in enumerate(run):
            tables = [step.blocks(name) for name in ("U", "V", "step")]
            assert 0.9 * budget < sum(table["archive_bytes"].sum() for table in tables) <= budget
            for name in "UV":
                (bound,) = {*step.blocks(name)["eb_abs"]}
                assert count_violations(exact[name][number], step.read(name), bound) == 0
                bounds.append(bound)
    assert max(bounds) > 3 * min(bounds)


@pytest.mark.full
def test_restart_without_loss_is_no_interruption(ranks: Any, gray_scott: Path, tmp_path: Path) -> None:
    """With a bound of 0 the restarted run has the bits of the uninterrupted one."""
    common = ("--size", "21x20x22", "--interval", 15, "--eb", 0)
    ranks(2, gray_scott, *common, "--steps", 45, "--output", tmp_path / "whole.bp")
    ranks(2, gray_scott, *common, "--steps", 30, "--output", tmp_path / "first.bp")
    ranks(3, gray_scott, *common, "--steps", 45, "--restart", tmp_path / "first.bp", "--output", tmp_path / "rest.bp")
    whole, rest = fields_of_bp(tmp_path / "whole.bp"), fields_of_bp(tmp_path / "rest.bp")
    for name in "UV":
        assert len(rest[name]) == 1
        assert support.same_bits(whole[name][-1], rest[name][0])


def test_restart_of_a_killed_run(ranks: Any, gray_scott: Path, mpi_environment: dict[str, str], tmp_path: Path) -> None:
    """Every announced step is complete, although the file was never closed."""
    command = [sys.executable, str(gray_scott), "--size", "32", "--steps", "1000000", "--interval", "50"]
    command += ["--output", str(tmp_path / "killed.bp")]  # one rank without mpirun, so that it dies at once
    with subprocess.Popen(command, env=mpi_environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        announced = [process.stdout.readline() for _ in range(3)]
        process.kill()
    last = int(announced[-1].split()[1])
    assert last == 150
    done = len(fields_of_bp(tmp_path / "killed.bp")["step"])
    assert done >= 3
    out = ranks(2, gray_scott, "--size", 32, "--steps", 50 * done + 10, "--eb", 0,
                "--restart", tmp_path / "killed.bp", "--output", tmp_path / "on.bp")  # fmt: skip
    assert "10 steps of 32x32x32" in out.stdout


@pytest.mark.full
def test_append(ranks: Any, gray_scott: Path, mpi_environment: dict[str, str], tmp_path: Path) -> None:
    """A run that is killed, and run again until it is done, has the bits of one that was never interrupted."""
    common = ["--size", "21x20x22", "--interval", "5", "--eb", "0", "--output"]
    command = [sys.executable, str(gray_scott), *common, str(tmp_path / "run.bp"), "--append", "--steps", "1000000"]
    with subprocess.Popen(command, env=mpi_environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    last = 5 * len(fields_of_bp(tmp_path / "run.bp")["step"]) + 10
    for line in (f"step {last} of {last} written", f"is at step {last} already: nothing to do"):
        assert line in ranks(2, gray_scott, *common, tmp_path / "run.bp", "--append", "--steps", last).stdout
    ranks(3, gray_scott, *common, tmp_path / "whole.bp", "--steps", last)
    whole, run = fields_of_bp(tmp_path / "whole.bp"), fields_of_bp(tmp_path / "run.bp")
    for name in ("U", "V", "step"):
        assert len(whole[name]) == len(run[name])
        assert all(support.same_bits(x, y) for x, y in zip(whole[name], run[name], strict=True))


@pytest.mark.parametrize("n_steps", [0, 2])
def test_append_after_a_kill_within_metadata(n_steps: int, ranks: Any, gray_scott: Path, tmp_path: Path) -> None:
    """ADIOS2 would crash when it reads what is left."""
    path = tmp_path / "run.bp"
    common = ("--size", 16, "--interval", 5, "--output", path, "--append", "--steps")
    ranks(1, gray_scott, *common, 10)
    if n_steps == 0:
        (path / "cusz.checks").unlink()
        for file, size in (("md.idx", 64), ("md.0", 0), ("mmd.0", 0)):
            os.truncate(path / file, size)
    with open(path / "mmd.0", "ab") as formats:
        formats.write(bytes(10))
    ranks(1, gray_scott, *common, 20)
    assert np.ravel(fields_of_bp(path)["step"]).tolist() == [5, 10, 15, 20]


def test_append_where_nodes_see_different_files(ranks: Any, gray_scott: Path, tmp_path: Path) -> None:
    """Rank 0 decides whether there are steps to continue from; a different last step on another rank is refused."""
    common = ("--size", 16, "--interval", 5, "--output", tmp_path / "run.bp", "--append", "--steps")
    ranks(2, gray_scott, *common, 10)

    def run_late(*change: str, status: int) -> subprocess.CompletedProcess[str]:
        lines = ["import sys", f"sys.path.insert(0, {str(gray_scott.parent)!r})", "import gray_scott as app"]
        lines += ["if app.MPI.COMM_WORLD.rank == 1:", *(f"    {line}" for line in change), "sys.exit(app.main())"]
        (tmp_path / "late.py").write_text("\n".join(lines), "utf-8")
        done: subprocess.CompletedProcess[str] = ranks(2, tmp_path / "late.py", *common, 20, status=status)
        return done

    older = "app.read_restart = lambda *given, read=app.read_restart: (5, *read(*given)[1:])"
    assert "rank 0 sees 10 as the last step, rank 1 5." in run_late(older, status=1).stderr
    assert "step 20 of 20 written" in run_late("app.has_steps = lambda path: False", status=0).stdout
    assert np.ravel(fields_of_bp(tmp_path / "run.bp")["step"]).tolist() == [5, 10, 15, 20]


def test_summary_and_lines(ranks: Any, gray_scott: Path, tmp_path: Path) -> None:
    out = ranks(2, gray_scott, "--size", 16, "--steps", 10, "--interval", 5, "--output", tmp_path / "gs.bp",
                "--summary", tmp_path / "run.json")  # fmt: skip
    lines = out.stdout.splitlines()
    assert lines[0] == f"step 5 of 10 written to {tmp_path / 'gs.bp'}"
    assert len(lines) == 3
    assert "\r" not in out.stdout
    assert '"raw_bytes": 32768,' in (tmp_path / "run.json").read_text()


@pytest.mark.full
@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (2, ["--size", "0"], "argument --size: '0' is neither N nor NXxNYxNZ with whole numbers of at least 1. See"),
        (4, ["--size", "1x1x3"], "4 ranks cannot share a grid of 1x1x3 cells"),
        (2, ["--size", "1000000"], "a grid of 1000000x1000000x1000000: out of memory"),
        (2, ["--output", "file.bp"], "cannot write 'file.bp': rank 0: a file is in the way"),
        (2, ["--restart", "missing.bp"], "--restart missing.bp: 'missing.bp' does not exist"),
    ],
)
def test_mistakes(
    ranks: Any,
    gray_scott: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    n: int,
    options: list[str],
    message: str,
) -> None:
    """One message, exit status 1, no rank left waiting, nothing written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.bp").touch()
    out = ranks(n, gray_scott, *options, status=1)
    assert out.stderr.count(f"gray_scott: {message}") == 1
    assert "Traceback" not in out.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "file.bp"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--size", "8x8"], "argument --size: '8x8' is neither N nor NXxNYxNZ"),
        (["--steps", "0"], "argument --steps: '0' is not a whole number of at least 1"),
        (["--eb", "-1"], "argument --eb: '-1' is not a finite number of at least 0"),
        (["--eb", "nan"], "argument --eb: 'nan' is not a finite number of at least 0"),
        (["--feed", "0.2"], "argument --feed: '0.2' is not a rate from 0 to 0.1"),
        (["--engine", "HDF5"], "argument --engine: invalid choice: 'HDF5'"),
        (["--bogus"], "unrecognized arguments: --bogus. See --help."),
        (["--output", "no/gs.bp"], "--output no/gs.bp: the folder no does not exist."),
        (["--output", "a.bp", "--reference", "./a.bp"], "--output and --reference are the same file, a.bp."),
        (["--output", "a.bp", "--restart", "a.bp"], "--output and --restart are the same file, a.bp."),
        (["--append", "--restart", "a.bp"], "--append cannot be combined with"),
        (["--append", "--reference", "a.bp"], "--append cannot be combined with"),
        (["--append", "--engine", "SST"], "--append cannot be combined with"),
    ],
)
def test_option_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(app.AppError) as caught:
        app.check_paths(app.make_parser().parse_args(options))
    assert str(caught.value).startswith(message)


@pytest.fixture(scope="module")
def old_run(ranks: Any, gray_scott: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("old") / "old.bp"
    ranks(1, gray_scott, "--size", 12, "--steps", 5, "--output", path)
    return path


@pytest.mark.parametrize(
    ("size", "dtype", "feed", "message"),
    [
        (13, np.float32, 0.03, "its grid is 12x12x12. Give --size 12x12x12."),
        (12, np.float64, 0.03, "U is float32. Give the --dtype of its run."),
        (12, np.float32, 0.02, "its run had feed = 0.03, this one has 0.02. Give the same."),
    ],
)
def test_restart_mistakes(old_run: Path, size: int, dtype: type[np.floating], feed: float, message: str) -> None:
    grid = app.make_grid(MPI.COMM_SELF, (size, size, size))
    with pytest.raises(app.AppError) as caught:
        app.read_restart(old_run, grid, np.dtype(dtype), app.physics_attributes(app.Physics(feed=feed), 1))
    assert str(caught.value) == f"--restart {old_run}: {message}"


def test_restart_from_what_is_no_file(tmp_path: Path) -> None:
    grid = app.make_grid(MPI.COMM_SELF, (8, 8, 8))
    with pytest.raises(cusz_core.CuszError, match="ADIOS2 cannot open"):
        app.read_restart(tmp_path, grid, np.dtype(np.float32), {})


@pytest.mark.full
def test_nothing_left_to_do(ranks: Any, gray_scott: Path, old_run: Path, tmp_path: Path) -> None:
    out = ranks(2, gray_scott, "--size", 12, "--steps", 5, "--restart", old_run, "--output", tmp_path / "gs.bp",
                status=1)  # fmt: skip
    assert out.stderr.count(f"--restart {old_run} is at step 5 already. Give --steps beyond it.") == 1


@pytest.mark.full
@pytest.mark.parametrize("package", ["adios2", "cusz_operator"])
def test_package_missing_on_one_rank(ranks: Any, gray_scott: Path, tmp_path: Path, package: str) -> None:
    """A package that one rank lacks ends all ranks, with that rank's message."""
    (tmp_path / f"{package}.py").write_text(
        "import importlib.util, os, sys\n"
        "if os.environ.get('OMPI_COMM_WORLD_RANK', os.environ.get('PMI_RANK')) == '1':\n"
        "    raise ImportError('not on this node')\n"
        "sys.path.remove(os.path.dirname(__file__))\n"
        "del sys.modules[__name__]\n"
        f"import {package}\n"
    )
    out = ranks(3, gray_scott, "--size", 8, "--steps", 2, "--output", tmp_path / "gs.bp", status=1,
                env={"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])})  # fmt: skip
    assert out.stderr.count("not on this node") == 1
    assert "scripts/setup" in out.stderr
    assert not (tmp_path / "gs.bp").exists()
