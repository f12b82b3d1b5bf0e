"""apps/amr: boxes on two levels, the finer ones moving, compressed by nothing but a configuration file."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_operator as cz
import support
from cusz_core import cli
from cusz_operator import report

pytestmark = pytest.mark.mpi

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "apps" / "amr.xml"
FIELDS = ("T", "rho", "state", "u")


@pytest.fixture(scope="module")
def program() -> Path:
    """The compiled program, where scripts/setup puts it."""
    path = ROOT / "build" / "release" / "apps" / "amr"
    assert path.is_file(), f"{path} is missing: run scripts/setup"
    return path


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a user who has followed the documentation."""
    monkeypatch.setattr("cusz_operator.plugin._SEARCHED_BY_OTHERS", str(cz.plugin_path()))


@pytest.fixture(scope="module")
def runs(ranks: Any, program: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Files of an uncompressed run, and of one compressed by apps/amr.xml with another number of ranks. Read only."""
    folder = tmp_path_factory.mktemp("runs")
    ranks(4, program, folder / "raw.bp", "-", 64, 5)
    ranks(3, program, folder / "run.bp", CONFIG, 64, 5)
    return folder / "raw.bp", folder / "run.bp"


def test_every_bound_is_kept(runs: tuple[Path, Path]) -> None:
    """In every cell of a box, for each kind of variable; and boxes cover the same cells in both files."""
    with cz.Reader(runs[0]) as raw, cz.Reader(runs[1]) as run:
        assert len(run) == len(raw) == 5
        assert [sorted(step.variables) for step in run] == [sorted(step.variables) for step in raw]
        assert "level1/rho" not in run[0].variables
        for step in range(5):
            for name in set(run[step].variables) - {"step"}:
                original, decoded = raw[step].read(name), run[step].read(name)
                inside = raw[step].coverage(name)
                assert np.array_equal(run[step].coverage(name), inside)
                assert inside.all() == name.startswith("level0")
                a, b = original[inside].astype(np.float64), decoded[inside].astype(np.float64)
                bound = {"T": 1.0, "u": 1e3, "state": 0.0, "rho": 1e-3 * abs(a)}[name.rpartition("/")[2]]
                assert (abs(a - b) <= bound).all(), name
                assert name.endswith("state") or not np.array_equal(a, b)
    small, large = (sum(file.stat().st_size for file in path.iterdir()) for path in reversed(runs))
    assert 5 * small < large


def test_check_and_diff_find_nothing_wrong(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(runs[1]), str(CONFIG)]) == 0
    assert "no problems found" in capsys.readouterr().out
    found = list(cz.compare_runs(*runs))
    assert not any(one.fails for one in found)
    assert {one.variable for one in found if one.covered == 1} == {"step", *(f"level0/{field}" for field in FIELDS)}


def test_cells_in_boxes_alone_count(runs: tuple[Path, Path]) -> None:
    """Whatever is shown about a level counts only cells in boxes, in the files of both runs."""
    for path in runs:
        with cz.Reader(path) as run:
            inside = float(np.mean([run[step].coverage("level1/rho") for step in range(1, 5)]))
        assert 0 < inside < 1
        infos = {info.name: info for info in cz.inspect_variables(path)}
        assert infos["level1/rho"].covered == inside  # exact: both are one count divided by another
        assert infos["level0/rho"].covered == 1
    page = report.make(runs[1], runs[0])
    assert page.broken == []


def test_moving_boxes_in_xarray(runs: tuple[Path, Path]) -> None:
    """NaN outside boxes, a step dimension of its own for the level that appears later, a chunk for each step."""
    xarray = pytest.importorskip("xarray")
    for path in runs:
        with cz.Reader(path) as run, xarray.open_dataset(path, engine="cusz", chunks={}) as data:
            rho = data["level1/rho"]
            assert (rho.dims[0], data["level0/rho"].dims[0]) == ("step_level1", "step")
            assert data["step_level1"].values.tolist() == [1, 2, 3, 4]
            assert rho.chunks[0] == (1, 1, 1, 1)
            for i, step in enumerate(range(1, 5)):
                assert np.array_equal(np.isfinite(rho[i].values), run[step].coverage("level1/rho"))
                assert (data["level1/state"][i].values[~run[step].coverage("level1/state")] == 0).all()


@pytest.mark.parametrize("engine", ["BP4", "BP5"])
def test_an_engine_that_writes_ghost_cells_is_noted_before_a_run(engine: str, tmp_path: Path) -> None:
    (tmp_path / "own.xml").write_text(CONFIG.read_text(encoding="utf-8").replace('"BP5"', f'"{engine}"'), "utf-8")
    notes = cz.check(None, tmp_path / "own.xml").notes
    assert any("ignores memory selections (ghost cells)" in note for note in notes) == (engine == "BP4")


@pytest.mark.full
@pytest.mark.parametrize("predictor", ["lorenzo", "auto"])
def test_what_config_proposes_comes_true(
    ranks: Any,
    program: Path,
    runs: tuple[Path, Path],
    predictor: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Densities get a bound relative to each value, integers none; ratios are within a tenth of those of the run."""
    command = ["config", "--from", str(runs[0]), "--io", "amr", "--predictor", predictor, "--format", "xml"]
    assert cli.main(command) == 0
    out, err = capsys.readouterr()
    (tmp_path / "own.xml").write_text(out, encoding="utf-8")
    assert [line.split()[0] for line in err.splitlines() if " of each" in line][-2:] == ["level0/rho", "level1/rho"]
    told = dict(zip(re.findall(r'variable name="(.*?)"', out), re.findall(r"ratio ([\d.e+]+)", out), strict=True))
    assert sorted(told) == [f"level{level}/{field}" for level in (0, 1) for field in FIELDS]
    ranks(4, program, tmp_path / "own.bp", tmp_path / "own.xml", 64, 5)
    report = cz.check(tmp_path / "own.bp", tmp_path / "own.xml")
    assert report.problems == []
    assert {v.name: v.ratio for v in report.variables if v.ratio} == {
        name: pytest.approx(float(ratio), rel=0.1) for name, ratio in told.items()
    }


@pytest.mark.full
def test_a_level_that_was_forgotten_is_named(ranks: Any, program: Path, tmp_path: Path) -> None:
    text = CONFIG.read_text(encoding="utf-8").replace('"level1/rho"', '"level7/rho"')
    (tmp_path / "own.xml").write_text(text, encoding="utf-8")
    ranks(2, program, tmp_path / "run.bp", tmp_path / "own.xml", 32, 2)
    report = cz.check(tmp_path / "run.bp", tmp_path / "own.xml")
    assert any("variable 'level1/rho' is not compressed; level{0,7}/rho are" in text for text in report.warnings)


@pytest.mark.parametrize("before", [1, 5])
def test_a_restart_on_another_number_of_ranks(ranks: Any, program: Path, before: int, tmp_path: Path) -> None:
    """Some ranks have no boxes then: the coarse level has one box, the finer level eight."""
    ranks(before, program, tmp_path / "first.bp", CONFIG, 32, 2)
    done = ranks(3, program, tmp_path / "second.bp", CONFIG, 32, 2, tmp_path / "first.bp")
    (within,) = re.findall(r"restart after step 1 .* are within (\S+) of their values", done.stdout)
    assert 0 < float(within) <= 1e-3
    with cz.Reader(tmp_path / "second.bp") as run:
        assert [int(step.read("step")) for step in run] == [2, 3]


@pytest.mark.parametrize("n", [1, 3])
def test_a_restart_finds_values_that_were_lost(ranks: Any, program: Path, n: int, tmp_path: Path) -> None:
    """NaN in one box of one rank; all other values are right."""
    import adios2

    ranks(2, program, tmp_path / "first.bp", "-", 64, 1)
    with cz.Reader(tmp_path / "first.bp") as run:
        rho, state = run[0].read("level0/rho"), run[0].read("level0/state")
    rho[32:, :32, :32] = np.nan
    shape = [64, 64, 64]
    file: Any
    with adios2.Stream(str(tmp_path / "lost.bp"), "w") as file:
        file.begin_step()
        file.write("step", 0)
        file.write("level0/rho", rho, shape, [0, 0, 0], shape)
        file.write("level0/state", state, shape, [0, 0, 0], shape)
        file.end_step()
    done = ranks(n, program, tmp_path / "second.bp", "-", 64, 1, tmp_path / "lost.bp", status=1)
    assert "of the last step in" in done.stderr
    assert "are not finite, or have been lost" in done.stderr
    assert not (tmp_path / "second.bp").exists()


def test_a_run_does_not_restart_into_its_own_file(ranks: Any, program: Path, tmp_path: Path) -> None:
    """Under any name: opening the file for writing would destroy it."""
    ranks(1, program, tmp_path / "run.bp", "-", 32, 2)
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("run.bp", "link/run.bp"):
        done = ranks(2, program, tmp_path / name, "-", 32, 1, tmp_path / "run.bp", status=1)
        assert "is what it is to restart from" in done.stderr
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [int(step.read("step")) for step in run] == [0, 1]


@pytest.mark.full
def test_the_picture(runs: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for step in ("0", "-1"):
        picture = tmp_path / f"{step}.png"
        support.run([sys.executable, ROOT / "apps" / "amr_slice.py", runs[1], "-o", picture, "--step", step])
        assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: amr OUTPUT [CONFIG [CELLS STEPS [RESTART]]]"),
        (["a.bp", "-", "48", "2"], "CELLS = 48 is not a multiple of 32"),
        (["a.bp", "-", "64", "0"], "'0' is not a whole number from 1 to 1000"),
    ],
)
def test_mistakes(
    ranks: Any, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in ranks(2, program, *arguments, status=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_source_does_not_know_the_operator() -> None:
    assert "cusz" not in (ROOT / "apps" / "amr.cpp").read_text().lower()
