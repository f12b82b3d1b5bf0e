"""Levels of a run as xarray datasets, and as a tree."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support

pytest.importorskip("adios2")
pytest.importorskip("dask")
xarray = pytest.importorskip("xarray")

X = support.smooth((40, 60), support.F32)


@pytest.fixture
def written(engine: Any, tmp_path: Path) -> Path:
    """Two steps of U in four blocks, V in one, x and a single value; W, of another shape, at the second step."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine, predictor="spline") as out:
        out.attribute("U/dimensions", "y x")
        out.attribute("V/dimensions", "y x")
        for n in range(2):
            with out.step():
                for y, x in [(0, 0), (0, 32), (16, 0), (16, 32)]:
                    out.put("U", X[y : y + 16 + 8 * (y > 0), x : x + 32 - 4 * (x > 0)] + np.float32(n), X.shape, (y, x))
                out.put("V", np.arange(2400, dtype=np.int32).reshape(X.shape))
                out.put("x", np.arange(60.0) * 10, eb=0.0)
                out.put("time", 0.5 * n)
                if n:
                    out.put("W", X[:9, :11])
    return tmp_path / "run.bp"


def picked(array: Any, level: int) -> np.ndarray:
    step = 2**level
    return np.ascontiguousarray(array.to_numpy()[..., ::step, ::step])


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_dataset_of_a_level(written: Path, level: int) -> None:
    step = 2**level
    with (
        xarray.open_dataset(written, engine="cusz") as whole,
        xarray.open_dataset(written, engine="cusz", level=level) as data,
    ):
        assert set(data.data_vars) == set(whole.data_vars)
        for name in ("U", "V"):
            assert data[name].dims == ("step", "y", "x")
            assert data[name].attrs == whole[name].attrs
            assert support.same_bits(data[name].to_numpy(), picked(whole[name], level))
        assert support.same_bits(data["W"].to_numpy(), picked(whole["W"], level))
        assert data["x"].values.tolist() == list(range(0, 600, 10 * step))
        assert data["time"].values.tolist() == [0.0, 0.5]
        if level:
            assert data["y"].values.tolist() == list(range(0, 40, step))
            assert data["dim_1"].values.tolist() == list(range(0, 11, step))
        nearest = data["U"].sel(x=323, method="nearest").isel(step=1)
        assert support.same_bits(
            nearest.to_numpy(), data["U"].to_numpy()[1, :, int(np.argmin(abs(data["x"].values - 323)))]
        )


def test_chunks_are_those_of_blocks(written: Path) -> None:
    with xarray.open_dataset(written, engine="cusz", level=1, chunks={}) as data:
        assert data["U"].chunks == ((1, 1), (8, 12), (16, 14))
        assert support.same_bits(data["U"].values, pickle.loads(pickle.dumps(data))["U"].values)


def test_a_level_that_nothing_has(written: Path) -> None:
    for level in (-1, 20):
        with pytest.raises(cusz_core.ParameterError, match=f"level is {level}; the variables have the levels 0 to 6"):
            xarray.open_dataset(written, engine="cusz", level=level)
    with xarray.open_dataset(written, engine="cusz", level=5, drop_variables=["V"]) as data:
        assert data["W"].shape == (1, 1)  # W has fewer levels, of which this is the last


def test_a_tree(written: Path) -> None:
    with xarray.open_datatree(written, engine="cusz", drop_variables=["V"]) as tree:
        assert sorted(tree.children) == [f"level_{k}" for k in range(6)]
        for k in range(3):
            assert support.same_bits(tree[f"level_{k}/U"].to_numpy(), picked(tree["level_0/U"], k))


def test_names_with_slashes_are_groups_of_a_tree(tmp_path: Path) -> None:
    names = ("mesh/E/x", "/mesh/E/y", "mesh/rho", "/top", "U")
    fields = {name: X + np.float32(number) for number, name in enumerate(names)}
    support.write_run(tmp_path / "run.bp", fields, eb=1e-3, predictor="spline")
    with (
        xarray.open_datatree(tmp_path / "run.bp", engine="cusz") as tree,
        xarray.open_dataset(tmp_path / "run.bp", engine="cusz", level=1) as data,
    ):
        assert set(tree["level_1"].data_vars) == {"U", "top"}
        assert set(tree["level_1/mesh"].data_vars) == {"rho"}
        assert set(tree["level_1/mesh/E"].data_vars) == {"x", "y"}
        for name in data.data_vars:
            path = f"level_1/{str(name).strip('/')}"
            assert support.same_bits(tree[path].to_numpy(), data[name].to_numpy())
            assert set(tree[path].coords) == set(data[name].coords)


def test_names_in_a_tree_that_are_taken(tmp_path: Path) -> None:
    """A group cannot have the name of a variable beside it, nor a variable that of a dimension."""
    paths = {
        "T": "T",
        "T/std": "T__/std",
        "T/std/error": "T__/std_/error",
        "T_/min": "T_/min",
        "a/T": "a/T",
        "a/T/std": "a/T_/std",
        "a/y/std": "a/y_/std",  # y is a coordinate
        "b/y/std": "b/y_/std",
        "E/x": "E/x__",
        "E/x_": "E/x_",
        "E/y": "E/y_",
        "E/z": "E/z",
    }
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, predictor="spline") as out, out.step():
        out.put("y", np.arange(40.0), eb=0.0, dims=("y",))
        for number, name in enumerate(paths):
            out.put(name, X + np.float32(number), dims=("y", "x"))
    with xarray.open_datatree(tmp_path / "run.bp", engine="cusz") as tree:
        for number, path in enumerate(paths.values()):
            assert not support.violations(X + np.float32(number), tree[f"level_0/{path}"].to_numpy()[0], 1e-3)
            assert tree[f"level_1/{path}"].shape[-2:] == (20, 30)
        assert set(tree["level_0"].children) == {"T__", "T_", "a", "b", "E"}
        assert set(tree["level_1/E"].data_vars) == {"x__", "x_", "y_", "z"}


def test_what_does_not_fit_is_left_out(tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out, out.step():
        out.put("A", X)
        out.put("B", X[:15], X.shape)  # its second block has other rows
        out.put("B", X[15:], X.shape, (15, 0))
        for block in ((0, 0, 20, 30), (20, 0, 20, 30), (0, 30, 11, 30), (11, 30, 29, 30)):
            y, x, height, width = block
            out.put("C", X[y : y + height, x : x + width], X.shape, (y, x))
    with pytest.warns() as warned, xarray.open_dataset(tmp_path / "run.bp", engine="cusz", level=1) as data:
        assert set(data.data_vars) == {"A"}
    texts = [str(warning.message) for warning in warned]
    assert any("'B' is left out: its level has other values along dim_0 than that of 'A'" in text for text in texts)
    assert any("'C' is left out: " in text and "no grid" in text for text in texts)
    assert {Path(warning.filename).name for warning in warned} == {Path(__file__).name}


def moving(path: Path, firsts: list[int]) -> Path:
    """Writes U in two blocks, the first with the given number of rows at each step; V in one."""
    with cz.Writer(path, eb=1e-3) as out:
        for n in firsts:
            with out.step():
                out.put("U", X[:n], X.shape, dims=("y", "x"))
                out.put("U", X[n:], X.shape, (n, 0), dims=("y", "x"))
                out.put("V", X, dims=("y", "x"))
    return path


@pytest.mark.parametrize("firsts", [[16, 17], [16, 16, 16, 16, 11], [16, 16, 17, 16, 16], [16, 16, 39]])
def test_blocks_that_have_moved(firsts: list[int], tmp_path: Path) -> None:
    """For example, after other ranks have appended."""
    moved = next(n for n, first in enumerate(firsts) if first != 16)
    path = moving(tmp_path / "run.bp", firsts)
    why = f"'U' is left out: level 1 of variable 'U' has other coordinates at step {moved} than at step 0"
    with pytest.warns(UserWarning, match=why):
        data = xarray.open_dataset(path, engine="cusz", level=1)
    with data:
        assert set(data.data_vars) == {"V"}
        assert data["V"].isel(step=moved).to_numpy().shape == (20, 30)


def test_other_blocks_with_the_same_values_in_a_level(tmp_path: Path) -> None:
    path = moving(tmp_path / "run.bp", [16, 16, 18, 8])
    with xarray.open_dataset(path, engine="cusz", level=1) as data:
        for n in range(4):
            assert not support.violations(np.ascontiguousarray(X[::2, ::2]), data["U"][n].to_numpy(), 1e-3)


def test_blocks_that_move_between_the_steps_that_are_looked_at(tmp_path: Path) -> None:
    with xarray.open_dataset(moving(tmp_path / "run.bp", [16, 17, 16, 16, 16]), engine="cusz", level=1) as data:
        assert data["U"][0].values.shape == (20, 30)
        with pytest.raises(cusz_core.ParameterError, match="other coordinates at step 1 than at step 0"):
            data["U"][1].to_numpy()


def test_a_variable_with_the_name_of_a_dimension_is_no_coordinate(tmp_path: Path) -> None:
    """For example, a redshift z at every step, and an axis z."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, predictor="spline") as out:
        out.attribute("rho/dimensions", "z x")
        for n in range(3):
            with out.step():
                out.put("rho", X)
                out.put("z", 100.0 - n)
    for level in (0, 1):
        with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", level=level) as data:
            assert data["z"].dims == ("step",)
            assert data["z"].values.tolist() == [100, 99, 98]
            assert data["rho"].dims == ("step", "z", "x")
            assert "x" in data.coords or level == 0


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_coordinate_that_changes_from_step_to_step(level: int, tmp_path: Path) -> None:
    """For example, of a moving window: at every step, it has the values at the points of the level."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, predictor="spline") as out:
        for n in range(3):
            with out.step():
                for first in (0, 20):
                    out.put("rho", X[first : first + 20], X.shape, (first, 0), dims=("z", "x"))
                out.put("z", np.arange(40.0) + n, eb=0.0)
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", level=level, chunks={}) as data:
        assert data["z"].dims == ("step", "z")
        assert data["z"].sizes["z"] == data["rho"].sizes["z"] == 40 // 2**level
        for n in range(3):
            assert data["rho"].isel(step=n)["z"].values.tolist() == list(range(n, 40 + n, 2**level))
