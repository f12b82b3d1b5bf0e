"""The xarray engine "cusz": files of a Writer and of other programs as lazy datasets."""

from __future__ import annotations

import itertools
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_operator as cz
import support
from cusz_core import CorruptArchiveError
from cusz_operator.reading.contents import Contents

pytest.importorskip("adios2")
from other_program import Program

dask = pytest.importorskip("dask")
xarray = pytest.importorskip("xarray")

X = support.smooth((40, 30), support.F32)


@pytest.fixture
def written(engine: Any, tmp_path: Path) -> Path:
    """By a Writer, in three steps: U (two blocks), V and x in all, W in the last two, `once` in the second."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine) as out:
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
        assert dict(data.sizes) == {"step": 3, "y": 40, "x": 30, "step_W": 2, "dim_0": 40, "dim_1": 30}
        assert {name: data[name].dims for name in data.variables} == {
            "U": ("step", "y", "x"),
            "V": ("step", "y", "x"),
            "W": ("step_W", "dim_0", "dim_1"),
            "once": ("dim_0",),
            "x": ("x",),
            "step": ("step",),
            "step_W": ("step_W",),
        }
        assert data["x"].values.tolist() == list(range(30))
        assert data["step_W"].values.tolist() == [1, 2]
        assert data["once"].attrs["step"] == 1
        assert data["U"].attrs == {"unit": "K"}
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
    ([2, 0, 0], [39, 3, 3], [29, 0]),
    ([-1, 0], [], slice(None, None, 2)),
    (np.array([True, False, True]), np.arange(40) % 7 == 0, np.int8(-1)),
    tuple(xarray.DataArray(each, dims="point") for each in ([2, 0, 2], [39, -40, 3], [1, 1, 29])),
    (slice(None), xarray.DataArray([[1, 39], [0, -1]], dims=("a", "b")), slice(3, 1)),
]


@pytest.mark.parametrize("index", INDICES)
def test_every_way_to_index(written: Path, index: Any) -> None:
    with xarray.open_dataset(written, engine="cusz") as data, xarray.open_dataset(written, engine="cusz") as again:
        assert np.array_equal(data["U"][index].values, again["U"].load()[index].values)


@pytest.mark.parametrize("index", [{"step": 3}, {"step": -4}, {"y": 40}, {"x": -31}, {"y": [3, 40]}], ids=str)
def test_an_index_beyond_the_end(written: Path, index: dict[str, Any]) -> None:
    with xarray.open_dataset(written, engine="cusz") as data, pytest.raises(IndexError, match="out of bounds"):
        data["U"].isel(index).load()


def test_only_what_is_needed_is_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = support.calls_of(monkeypatch, cz.reader.ReaderStep, "read")
    with xarray.open_dataset(written, engine="cusz") as data:
        assert [call[1:] for call in read] == [("x", [0], [30])]  # an index
        read.clear()
        column = data["U"].isel(step=1, x=3, y=slice(4, 9))
        assert read == []
        column.load()
        assert [call[1:] for call in read] == [("U", [4, 3], [5, 1])]
        read.clear()
        data["U"].isel(step=[2, 0], y=[30, 5], x=slice(2, 9, 3)).load()
        assert [(call[0].index, *call[1:]) for call in read] == [(0, "U", [5, 2], [26, 7]), (2, "U", [5, 2], [26, 7])]


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
    (tmp_path / "run.nc").touch()
    with pytest.raises(NotADirectoryError, match=r"run\.nc' is a file, not a \.bp folder"):
        xarray.open_dataset(tmp_path / "run.nc", engine="cusz")


def test_texts_have_a_fixed_width(engine: Any, tmp_path: Path) -> None:
    """dask cannot choose chunks of objects."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine) as out:
        for n, text in enumerate(("dry", "", "très humide")):
            with out.step():
                out.put("weather", text)
                if n == 1:
                    out.put("once", "one text")
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", chunks="auto") as data:
        assert data["weather"].dtype == "<U11"
        assert data["weather"].values.tolist() == ["dry", "", "très humide"]
        assert data["once"].values == np.array("one text")


def test_a_file_of_another_program(engine: str, tmp_path: Path) -> None:
    with Program(tmp_path / "run.bp", engine) as out:
        for n in range(2):
            with out.step():
                out.put("u", X[:20] + np.float32(n), X.shape, eb=1e-3)
                out.put("u", X[20:] + np.float32(n), X.shape, (20, 0))
                out.put("ids", np.arange(40) + n)
                out.put("step", np.int32(100 * n + 7))
                out.put("text", f"text {n}")
                out.put("local", X, ())
                out.put("grows", np.arange(5.0 + n))
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


FILL = np.float32(1e20)
MASKED = np.where(X.mean() < X, X, FILL)


@pytest.fixture
def conventional(engine: Any, tmp_path: Path) -> Path:
    """By a Writer, with attributes of the CF conventions for fill values, packed integers, times and coordinates."""
    attributes = {
        "T/_FillValue": 1e20,  # a double, though T is of float
        "T/coordinates": "lon",
        "T/grid_mapping": "crs",
        "packed/scale_factor": 0.5,
        "packed/add_offset": 10.0,
        "packed/_FillValue": np.int16(-1),
        "time/units": "hours since 2000-01-01",
        "lasts/units": "hours",
    }
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine) as out:
        for name, value in attributes.items():
            out.attribute(name, value)
        for n in range(3):
            with out.step():
                out.put("T", MASKED, fill=1e20)
                out.put("lon", X[0], eb=0.0)
                out.put("packed", np.arange(-1, 5, dtype=np.int16))
                out.put("time", 6.0 * n)
                out.put("lasts", 2.0)
                out.put("crs", 1)
    return tmp_path / "run.bp"


def test_variables_are_decoded_by_the_cf_conventions(conventional: Path) -> None:
    with xarray.open_dataset(conventional, engine="cusz", decode_timedelta=True) as data:
        field = data["T"][1].values
        assert np.array_equal(np.isnan(field), MASKED == FILL)
        assert not support.violations(MASKED[MASKED != FILL], field[MASKED != FILL], 1e-3)
        assert field.dtype == np.float32
        assert "_FillValue" not in data["T"].attrs
        assert data["T"].encoding["_FillValue"] == FILL
        np.testing.assert_array_equal(data["packed"][0], [np.nan, 10, 10.5, 11, 11.5, 12])
        assert list(data["time"].values) == list(
            np.datetime64("2000-01-01", "ns") + np.arange(3) * np.timedelta64(6, "h")
        )
        assert set(data["lasts"].values) == {np.timedelta64(2, "h")}
        assert "lon" in data.coords
        assert "crs" not in data.coords


@pytest.mark.filterwarnings("ignore:Usage of 'use_cftime'")  # xarray accepts it, but prefers a coder
def test_every_keyword_of_xarrays_decoder(conventional: Path) -> None:
    def opened(**keywords: Any) -> Any:
        return xarray.open_dataset(conventional, engine="cusz", **keywords)

    with opened(mask_and_scale=False) as data:
        assert np.array_equal(data["T"][0].values == FILL, MASKED == FILL)
        assert data["packed"].dtype == np.int16
        assert data["T"].attrs["_FillValue"] == FILL
    with opened(mask_and_scale={"packed": False}) as data:
        assert data["packed"].dtype == np.int16
        assert np.isnan(data["T"][0].values).any()
    with opened(decode_times=False) as data:
        assert data["time"].values.tolist() == [0, 6, 12]
        assert data["time"].attrs["units"] == "hours since 2000-01-01"
    with opened(decode_coords=False) as data:
        assert "lon" not in data.coords
        assert data["T"].attrs["coordinates"] == "lon"
    with opened(decode_coords="all") as data:
        assert {"lon", "crs"} <= set(data.coords)
    with opened(decode_timedelta=False, concat_characters=False) as data:
        assert data["lasts"].values.tolist() == [2, 2, 2]
    with opened(drop_variables=["T", "time"], use_cftime=False) as data:
        assert not {"T", "time"} & set(data.variables)
    with opened(decode_cf=False) as data:
        assert data["time"].dtype == np.float64
        assert (data["T"] == FILL).any()
        assert "lon" not in data.coords


def test_times_are_objects_of_cftime_if_that_is_asked(conventional: Path) -> None:
    cftime = pytest.importorskip("cftime")
    coder = xarray.coders.CFDatetimeCoder(use_cftime=True)
    with xarray.open_dataset(conventional, engine="cusz", decode_times=coder) as data:
        assert data["time"].values[1] == cftime.DatetimeGregorian(2000, 1, 1, 6)


def test_decoding_reads_nothing(conventional: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = support.calls_of(monkeypatch, cz.reader.ReaderStep, "read")

    def read() -> list[str]:
        return [name for _, name, *box in calls if box]

    with xarray.open_dataset(conventional, engine="cusz") as data:
        assert not read()
        again = pickle.loads(pickle.dumps(data))
        assert not read()
        assert np.array_equal(np.isnan(again["T"][0, 3].values), MASKED[3] == FILL)
        assert read() == ["T"]
        again.close()
    with xarray.open_dataset(conventional, engine="cusz", chunks={}) as data:
        assert data["T"].chunks == ((1, 1, 1), (40,), (30,))
        assert int(np.isnan(data["T"]).sum()) == 3 * int((MASKED == FILL).sum())


def test_attributes_that_cannot_be_decoded(tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        out.attribute("time/units", "days since then")
        with out.step():
            out.put("time", 1.0)
    with pytest.raises(ValueError, match="decode_times=False"):
        xarray.open_dataset(tmp_path / "run.bp", engine="cusz")
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", decode_times=False) as data:
        assert data["time"].values.tolist() == [1]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (np.float64(1e20), FILL),
        (-9999, np.float32(-9999)),
        (np.float64(np.inf), np.float32(np.inf)),
        (np.float64(1e300), np.float64(1e300)),  # no float has this value, nor may it become infinity
        ("none", "none"),
    ],
)
def test_a_fill_value_has_the_type_of_its_variable(tmp_path: Path, given: Any, kept: Any) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        out.attribute("T/missing_value", given)
        with out.step():
            out.put("T", X)
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", mask_and_scale=False) as data:
        found = data["T"].attrs["missing_value"]
        assert (type(found), found) == (type(kept), kept)


@pytest.mark.parametrize("dtype", ["bool", "float16", "complex64"])
def test_attributes_of_this_package_are_not_those_of_a_dataset(dtype: str, engine: str, tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine) as out:
        out.attribute("title", "a run")
        with out.step():
            out.put("mask", X[0].astype(dtype))
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz") as data:
        assert data.attrs == {"title": "a run"}
        assert data["mask"].dtype == dtype
        if dtype == "bool":  # netCDF does not have the other types
            data.to_netcdf(tmp_path / "run.nc", engine="netcdf4")


def test_groups(engine: str, tmp_path: Path) -> None:
    """As in openPMD: a group for each iteration, axis labels as attributes of the record, other attributes above."""
    with Program(tmp_path / "run.bp", engine) as out:
        for n in (0, 100):
            out.io.define_attribute(f"/data/{n}/time", n / 2)
            out.io.define_attribute(f"/data/{n}/meshes/E/axisLabels", ["r", "z"]) if engine == "BP5" else None
            out.io.define_attribute(f"/data/{n}/meshes/E/x/unitSI", 3.0)
        with out.step():
            for number, (n, axis) in enumerate(itertools.product((0, 100), "xy")):
                out.put(f"/data/{n}/meshes/E/{axis}", X + np.float32(number), eb=1e-3)
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", group="/data/100/meshes") as data:
        assert set(data.data_vars) == {"E/x", "E/y"}
        assert data["E/x"].dims == ("step", *(("r", "z") if engine == "BP5" else ("dim_0", "dim_1")))
        assert data.attrs["time"] == 50
        assert data["E/x"].attrs["unitSI"] == 3
        assert not support.violations(X + np.float32(2), data["E/x"][0].values, 1e-3)
    with pytest.raises(ValueError, match="no variables in group '/data/7'"):
        xarray.open_dataset(tmp_path / "run.bp", engine="cusz", group="/data/7")


@pytest.mark.parametrize("extent", [5, 4])
@pytest.mark.parametrize("name", ["step", "step_late"])
def test_a_variable_with_a_dimension_that_is_called_as_that_of_steps(name: str, extent: int, tmp_path: Path) -> None:
    """It gets another name, whether or not its extent is the number of steps."""
    x = support.smooth((extent, 7), support.F64)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        for n in range(5):
            with out.step():
                out.put("x", x + n, dims=(name, "y"))
                if n:
                    out.put("late", x + n)
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz") as run:
        assert run["x"].dims == ("step", f"{name}_{extent}", "y")
        assert run["late"].dims == ("step_late", "dim_0", "dim_1")
        assert np.abs(run["x"].to_numpy() - [x + n for n in range(5)]).max() <= 1e-3
        assert np.abs(run["late"].to_numpy() - [x + n for n in range(1, 5)]).max() <= 1e-3


@pytest.mark.parametrize("name", ["y", "step"])
def test_one_value_at_one_step_with_the_name_of_a_dimension(name: str, tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        out.attribute("U/dimensions", "y x")
        for n in range(3):
            with out.step():
                out.put("U", X)
                if n == 1:
                    out.put(name, 7.0)
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz") as data:
        assert data[name].dims == ()
        assert float(data[name]) == 7
        assert data["U"].dims == (("step", "y_40", "x") if name == "y" else ("step_", "y", "x"))


def coordinates(kind: str) -> list[np.ndarray]:
    """Coordinates at five steps: one value or more, which change at all steps, at a single one, or never."""
    first = np.array([0.0]) if kind == "one value" else np.arange(6.0)
    changing = [first + 31 * n for n in range(5)]
    return {"never": [first] * 5, "once": [first, first, first + 1, first, first]}.get(kind, changing)


@pytest.mark.parametrize("kind", ["one value", "all", "once", "never"])
@pytest.mark.parametrize("by", ["Writer", "Program"])
def test_a_coordinate_that_changes_from_step_to_step(by: str, kind: str, engine: str, tmp_path: Path) -> None:
    """It gets the step dimension, so that its values are never used for another step."""
    given = coordinates(kind)
    if by == "Writer":
        with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine) as out:
            for time in given:
                with out.step():
                    out.put("time", time, dims=("time",), eb=0.0)
                    out.put("T", np.outer(time, X[0]), dims=("time", "x"))
    else:
        with Program(tmp_path / "run.bp", engine) as out:
            out.io.define_attribute("T/dimensions", "time x")
            for time in given:
                with out.step():
                    out.put("time", time)
                    out.put("T", np.outer(time, X[0]))
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", chunks={}) as data:
        assert "time" in data.coords
        assert data["T"].dims == ("step", "time", "x")
        assert data["time"].dims == (("time",) if kind == "never" else ("step", "time"))
        for n, time in enumerate(given):
            assert np.array_equal(data["T"].isel(step=n)["time"].values, time)
        data.to_netcdf(tmp_path / "copy.nc")
    with xarray.open_dataset(tmp_path / "copy.nc") as again:
        assert np.array_equal(again["time"].values, given[0] if kind == "never" else given)


@pytest.mark.parametrize(("moved", "changed"), [(True, False), (False, True), (True, True)])
def test_coordinates_are_compared_by_their_block_tables(
    moved: bool, changed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are read only where tables differ. Of many steps, only some tables are compared, always with the last."""
    monkeypatch.setattr("cusz_operator.xarray_backend._MOST_COMPARED", 4)
    x = np.arange(8.0)
    with cz.Writer(tmp_path / "run.bp", eb=0.0) as out:
        for n in range(20):
            first = 3 + (moved and n > 15)
            now = x + (changed and n == 19)
            with out.step():
                out.put("x", now[:first], x.shape, dims=("x",))
                out.put("x", now[first:], x.shape, (first,), dims=("x",))
    looked_at = support.calls_of(monkeypatch, Contents, "blocks")
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz") as data:
        steps = {step for _, _, step in looked_at}
        assert steps == {0, 6, 12, 19}
        assert data["x"].dims == (("step", "x") if changed else ("x",))
        assert np.array_equal(data["x"].values[-1] if changed else data["x"].values, x + changed)


def test_a_coordinate_that_is_damaged_at_a_later_step(tmp_path: Path) -> None:
    """The other steps can be read, and the other variables of this step."""
    x = np.arange(30.0)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        for n in range(3):
            with out.step():
                out.put("x", x + n, dims=("x",), eb=0.0)
                out.put("T", X, dims=("y", "x"))
    data_file = tmp_path / "run.bp" / "data.0"
    with cz.Reader(tmp_path / "run.bp") as run:
        row = cz.tables.blocktable.rows_of(run[1].blocks("x")).tobytes()
    whole = data_file.read_bytes()
    assert whole.count(row) == 1
    data_file.write_bytes(whole.replace(row, row[::-1]))
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz") as data:
        assert np.array_equal(data.isel(step=2)["x"].values, x + 2)
        assert not support.violations(X, data["T"][1].values, 1e-3)
        with pytest.raises(CorruptArchiveError, match="the block table of 'x' at step 1 is damaged"):
            data.isel(step=1)["x"].to_numpy()
