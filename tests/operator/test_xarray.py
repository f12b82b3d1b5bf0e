"""xarray's engine "cusz": files of a Writer, and of other programs, as lazy datasets."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_operator as cz
import support

pytest.importorskip("adios2")
dask = pytest.importorskip("dask")
xarray = pytest.importorskip("xarray")
sys.path.insert(0, str(Path(__file__).parent / "ranks"))
Program = pytest.importorskip("other_program").Program

BY_ENGINE = pytest.mark.parametrize("engine", ["BP5", "BP4"])
X = support.smooth((40, 30), support.F32)


@pytest.fixture(params=["BP5", "BP4"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """By a Writer: U in two blocks and V at all of three steps, W at the last two, once at the second; x and y."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=request.param) as out:
        out.attribute("title", "a run")
        out.attribute("U/dimensions", "y x")
        out.attribute("U/unit", "K")
        out.attribute("V/dimensions", "y, x")
        out.attribute("levels", np.array([1, 2]))
        for n in range(3):
            with out.step():
                out.put("U", X[:25] + np.float32(n), X.shape)
                out.put("U", X[25:] + np.float32(n), X.shape, (25, 0))
                out.put("V", X.astype(np.float64))
                out.put("x", np.arange(30.0), eb=0.0)
                if n:
                    out.put("W", X)
                if n == 1:
                    out.put("once", X[:, 0])
    return tmp_path / "run.bp"


def test_a_dataset(written: Path) -> None:
    with xarray.open_dataset(written, engine="cusz") as data:
        assert dict(data.sizes) == {"step": 3, "y": 40, "x": 30, "steps_of_W": 2, "dim_0": 40, "dim_1": 30}
        assert {name: data[name].dims for name in data.variables} == {
            "U": ("step", "y", "x"),
            "V": ("step", "y", "x"),
            "W": ("steps_of_W", "dim_0", "dim_1"),
            "once": ("dim_0",),
            "x": ("x",),
            "step": ("step",),
            "steps_of_W": ("steps_of_W",),
        }
        assert data["x"].values.tolist() == list(range(30))
        assert data["steps_of_W"].values.tolist() == [1, 2]
        assert data["once"].attrs["step"] == 1
        assert data["U"].attrs == {"dimensions": "y x", "unit": "K"}
        assert data.attrs["title"] == "a run"
        assert data.attrs["levels"].tolist() == [1, 2]
        assert data["V"].dtype == np.float64
        for n in range(3):
            assert not support.violations(X + np.float32(n), data["U"][n].values, 1e-3)
        assert data["U"].encoding["preferred_chunks"] == {"step": (1, 1, 1), "y": (25, 15), "x": (30,)}


INDICES: list[Any] = [
    (2, 5, 7),
    (slice(None), 5, slice(2, 20, 3)),
    (1, slice(30, 2, -4), slice(None, None, -1)),
    ([2, 0], slice(5, 9), [1, 1, 4]),
    (slice(1, 1), slice(None), 3),
    (-1, slice(20, 30), slice(-5, None)),
    ([], 0, 0),
]


@pytest.mark.parametrize("index", INDICES)
def test_every_way_to_index(written: Path, index: Any) -> None:
    with xarray.open_dataset(written, engine="cusz") as data, xarray.open_dataset(written, engine="cusz") as again:
        assert np.array_equal(data["U"][index].values, again["U"].load()[index].values)


def test_only_what_is_needed_is_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, Any, Any]] = []
    step_read = cz.reader.ReaderStep.read

    def recorded(self: Any, name: str, start: Any = None, count: Any = None, **options: Any) -> Any:
        read.append((name, start, count))
        return step_read(self, name, start, count, **options)

    monkeypatch.setattr(cz.reader.ReaderStep, "read", recorded)
    with xarray.open_dataset(written, engine="cusz") as data:
        assert read == [("x", [0], [30])]  # an index
        read.clear()
        column = data["U"].isel(step=1, x=3, y=slice(4, 9))
        assert read == []
        column.load()
        assert read == [("U", [4, 3], [5, 1])]


def test_dask_has_a_chunk_for_each_block_and_step(written: Path) -> None:
    with xarray.open_dataset(written, engine="cusz", chunks={}) as data:
        assert data["U"].chunks == ((1, 1, 1), (25, 15), (30,))
        with dask.config.set(scheduler="threads", num_workers=4):
            mean = data["U"].mean(("y", "x")).compute()
    with xarray.open_dataset(written, engine="cusz") as data:
        np.testing.assert_allclose(mean, data["U"].load().mean(("y", "x")), rtol=1e-5)


def test_a_dataset_can_be_sent_to_another_process(written: Path) -> None:
    with xarray.open_dataset(written, engine="cusz") as data:
        again = pickle.loads(pickle.dumps(data))
        assert np.array_equal(again["U"].values, data["U"].values)
        again.close()


def test_the_engine_is_found_by_the_name_of_the_file(written: Path, tmp_path: Path) -> None:
    with xarray.open_dataset(written) as data:
        assert "U" in data
    (tmp_path / "other.bp").mkdir()
    with pytest.raises(ValueError, match="did not find a match"):
        xarray.open_dataset(tmp_path / "other.bp")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        xarray.open_dataset(tmp_path / "none.bp", engine="cusz")


@BY_ENGINE
def test_a_file_of_another_program(engine: str, tmp_path: Path) -> None:
    with Program(tmp_path / "run.bp", engine) as out:
        u = out.variable("u", X, X.shape, 1e-3)
        ids = out.variable("ids", np.arange(40), (40,))
        step = out.io.define_variable("step", np.zeros(1, np.int32))
        text = out.io.define_variable("text", "")
        local = out.io.define_variable("local", X, [], [], list(X.shape))
        grows = out.variable("grows", np.zeros(5), (5,))
        for n in range(2):
            out.engine.begin_step()
            out.put(u, X[:20] + np.float32(n), (0, 0))
            out.put(u, X[20:] + np.float32(n), (20, 0))
            out.put(ids, np.arange(40) + n)
            out.put(step, np.array([100 * n + 7], np.int32))
            out.engine.put(text, f"text {n}")
            out.put(local, X)
            grows.set_shape([5 + n])
            out.put(grows, np.arange(5.0 + n), (0,))
            out.engine.end_step()
    with pytest.warns(UserWarning, match="is left out") as told:
        data = xarray.open_dataset(tmp_path / "run.bp", engine="cusz", chunks={})
    assert sorted(str(warning.message).partition(" (")[0] for warning in told) == [
        "variable 'grows' is left out: its shape changes from step to step",
        "variable 'local' is left out: it has no global shape",
    ]
    assert {Path(warning.filename) for warning in told} == {Path(__file__)}
    with data:
        assert data["step"].values.tolist() == [7, 107]
        assert data["text"].values.tolist() == ["text 0", "text 1"]
        assert data["u"].dims == ("step", "dim_0", "dim_1")
        assert data["ids"].dims == ("step", "dim_0")
        assert not support.violations(X + np.float32(1), data["u"].sel(step=107).values, 1e-3)
        assert data["ids"].sel(step=107)[3] == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dropped = ["grows", "local", "step"]
        with xarray.open_dataset(
            tmp_path / "run.bp", engine="cusz", drop_variables=dropped, step_dimension="t"
        ) as data:
            assert data["t"].values.tolist() == [0, 1]
            assert "grows" not in data


@BY_ENGINE
def test_groups(engine: str, tmp_path: Path) -> None:
    """As openPMD has them: a group for each iteration, names of axes at the record, other attributes above."""
    with Program(tmp_path / "run.bp", engine) as out:
        names = [f"/data/{n}/meshes/E/{axis}" for n in (0, 100) for axis in "xy"]
        variables = [out.variable(name, X, X.shape, 1e-3) for name in names]
        for n in (0, 100):
            out.io.define_attribute(f"/data/{n}/time", n / 2)
            out.io.define_attribute(f"/data/{n}/meshes/E/axisLabels", ["r", "z"]) if engine == "BP5" else None
            out.io.define_attribute(f"/data/{n}/meshes/E/x/unitSI", 3.0)
        out.engine.begin_step()
        for number, variable in enumerate(variables):
            out.put(variable, X + np.float32(number))
        out.engine.end_step()
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", group="/data/100/meshes") as data:
        assert set(data.data_vars) == {"E/x", "E/y"}
        assert data["E/x"].dims == ("step", *(("r", "z") if engine == "BP5" else ("dim_0", "dim_1")))
        assert data.attrs["time"] == 50
        assert data["E/x"].attrs["unitSI"] == 3
        assert not support.violations(X + np.float32(2), data["E/x"][0].values, 1e-3)
    with pytest.raises(ValueError, match="no variables in group '/data/7'"):
        xarray.open_dataset(tmp_path / "run.bp", engine="cusz", group="/data/7")
