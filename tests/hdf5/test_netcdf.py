"""NetCDF-4: xarray, netCDF4 and h5netcdf, whose libraries are other copies of HDF5 than h5py's; ncdump and nccopy."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray

import support
from cusz_core.hdf5 import FILTER_ID, Cusz
from support import F32

V = support.smooth((6, 40, 50), F32)
V[2, 5:9] = np.nan


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A file written by xarray, with a chunk for each step."""
    path = tmp_path / "run.nc"
    dataset = xarray.Dataset({"v": (("t", "y", "x"), V), "n": (("t",), np.arange(6))})
    encoding = {"v": {"chunksizes": (1, 40, 50), **Cusz(eb=1e-3)}}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    return path


def printed(*command: str | Path, env: dict[str, str] | None = None) -> str:
    return support.run(command, env=env).stdout


def test_xarray_writes_and_reads_it(written: Path) -> None:
    with xarray.open_dataset(written, engine="h5netcdf") as dataset:
        y = dataset["v"].values
        assert dataset["v"].encoding["chunksizes"] == (1, 40, 50)
        assert (dataset["n"].values == np.arange(6)).all()
    assert support.violations(V, y, 1e-3) == []
    assert not support.same_bits(V, y)


#: h5py writes, netCDF4 reads and writes into the same dataset, and h5py reads that, in one process.
BOTH = r"""
import re, sys
from pathlib import Path
import numpy as np
{imports}
path, folder = sys.argv[1], Path(sys.argv[2])
with netCDF4.Dataset(path) as run:
    np.save(folder / "first.npy", run["v"][...].filled(np.nan))
new = np.load(folder / "new.npy")
with netCDF4.Dataset(path, "a") as run:
    run["v"][3:] = new[3:]
with h5py.File(path) as run:
    np.save(folder / "second.npy", run["v"][...])
with h5py.File(path, "a") as run:
    run["v"][...] = new
with netCDF4.Dataset(path) as run:
    np.save(folder / "third.npy", run["v"][...].filled(np.nan))
print(len(set(re.findall(r"/\S*/libhdf5[-.]\S*", Path("/proc/self/maps").read_text()))))
"""


@pytest.mark.parametrize(
    "imports", ["import h5py, netCDF4", "import netCDF4, h5py", "import cusz_core.hdf5, netCDF4, h5py"]
)
def test_h5py_and_netcdf4_in_one_process(
    written: Path, tmp_path: Path, environment: dict[str, str], imports: str
) -> None:
    """Each has its own HDF5, whose memory and identifiers mean nothing to the other."""
    new = support.smooth(V.shape, F32, 7)
    np.save(tmp_path / "new.npy", new)
    said = printed(sys.executable, "-c", BOTH.format(imports=imports), written, tmp_path, env=environment)
    if said.strip() == "1":
        pytest.skip("h5py and netCDF4 share one HDF5 here")
    assert said.strip() == "2"
    first, second, third = (np.load(tmp_path / f"{name}.npy") for name in ("first", "second", "third"))
    assert support.violations(V, first, 1e-3) == []
    assert support.same_bits(first[:3], second[:3])
    assert support.violations(new[3:], second[3:], 1e-3) == []
    assert support.violations(new, third, 1e-3) == []


READ = {
    "h5py": "import h5py, numpy; numpy.save({out!r}, h5py.File({path!r})['v'][...])",
    "netCDF4": "import netCDF4, numpy; numpy.save({out!r}, netCDF4.Dataset({path!r})['v'][...].filled(numpy.nan))",
}


@pytest.mark.parametrize("reader", READ)
@pytest.mark.parametrize("given", [None, "", "/nowhere"])
def test_processes_that_are_started_find_it(written: Path, tmp_path: Path, reader: str, given: str | None) -> None:
    """Dask's workers start like this. The filters that netCDF4 ships are still found, if no other path is given."""
    environment = {key: value for key, value in os.environ.items() if key != "HDF5_PLUGIN_PATH"}
    if given is not None:
        environment["HDF5_PLUGIN_PATH"] = given
    code = READ[reader].format(out=str(tmp_path / "read.npy"), path=str(written))
    parent = f"import cusz_core.hdf5, subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
    printed(sys.executable, "-c", parent, env=environment)
    assert support.violations(V, np.load(tmp_path / "read.npy"), 1e-3) == []


@pytest.mark.parametrize("imports", ["cusz_core.hdf5, netCDF4", "netCDF4, cusz_core.hdf5"])
def test_the_filters_of_netcdf4_stay_where_they_are_found(tmp_path: Path, imports: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "HDF5_PLUGIN_PATH"}
    code = f"""import {imports}, sys, subprocess
with netCDF4.Dataset({str(tmp_path / "z.nc")!r}, "w") as file:
    file.createDimension("x", 100)
    file.createVariable("x", "f4", ("x",), compression="zstd")[:] = range(100)
child = "import netCDF4; print(netCDF4.Dataset({str(tmp_path / "z.nc")!r})['x'][:].sum())"
subprocess.run([sys.executable, "-c", child], check=True)
"""
    assert float(printed(sys.executable, "-c", code, env=environment)) == 4950


def values_of(dump: str) -> np.ndarray:
    """The values of v that ncdump prints."""
    (text,) = re.findall(r"\n v =\n(.*?);", dump, re.DOTALL)
    words = [word.strip() for word in text.split(",")]
    return np.array([np.nan if word in ("_", "NaNf") else float(word) for word in words], F32).reshape(V.shape)


def test_ncdump_reads_it(written: Path, environment: dict[str, str], require_tool) -> None:
    ncdump = require_tool("ncdump", "netcdf-bin")
    dump = printed(ncdump, "-p", "9,17", "-v", "v", written, env=environment)
    assert support.violations(V, values_of(dump), 1e-3) == []
    said = printed(ncdump, "-h", "-s", written, env=environment)
    start = ",".join(map(str, (FILTER_ID, *Cusz(1e-3).filter_options)))
    assert f'v:_Filter = "{start},' in said


def test_nccopy_writes_it(written: Path, tmp_path: Path, environment: dict[str, str], require_tool) -> None:
    nccopy, ncdump = require_tool("nccopy", "netcdf-bin"), require_tool("ncdump", "netcdf-bin")
    plain, packed, again = (tmp_path / f"{name}.nc" for name in ("plain", "packed", "again"))
    printed(nccopy, "-F", "none", written, plain, env=environment)
    assert "_Filter" not in printed(ncdump, "-h", "-s", plain)
    filter = ",".join(map(str, (FILTER_ID, *Cusz(1e-2).filter_options)))
    printed(nccopy, "-F", f"v,{filter}", "-c", "v:3,40,25", plain, packed, env=environment)
    printed(nccopy, packed, again, env=environment)  # the filter stays
    before = values_of(printed(ncdump, "-p", "9,17", "-v", "v", plain))
    for path in (packed, again):
        said = printed(ncdump, "-h", "-s", path, env=environment)
        assert f'v:_Filter = "{filter},' in said
        assert "v:_ChunkSizes = 3, 40, 25" in said
        with xarray.open_dataset(path, engine="h5netcdf") as dataset:
            y = dataset["v"].values
        assert support.violations(before, y, 1e-2) == []
        before = y


def test_missing_values_stay_masked_behind_nccopy(
    tmp_path: Path, environment: dict[str, str], require_tool, dtype: np.dtype
) -> None:
    """It creates variables whose fill value HDF5 does not know, so that the filter has to be told."""
    nccopy = require_tool("nccopy", "netcdf-bin")
    v = V.astype(dtype)
    v[v > 0.5] = np.nan
    plain, packed, again, untold = (tmp_path / f"{name}.nc" for name in ("plain", "packed", "again", "untold"))
    dataset = xarray.Dataset({"v": (("t", "y", "x"), v)})
    dataset.to_netcdf(plain, engine="h5netcdf", encoding={"v": {"_FillValue": dtype.type(-999.9)}})

    def copied(source: Path, target: Path, *options: str) -> tuple[np.ndarray, str]:
        """The values, with NaN where they are masked, and what nccopy says."""
        said = support.run([nccopy, *options, source, target], env=environment).stderr
        with h5py.File(target) as file, xarray.open_dataset(target, engine="h5netcdf") as dataset:
            assert file["v"].attrs["_FillValue"] == dtype.type(-999.9)
            return dataset["v"].values, said

    for filter in (Cusz(1e-3, fill=-999.9), Cusz(1e-4, "rel", fill=-999.9)):
        numbers = ",".join(map(str, (FILTER_ID, *filter.filter_options)))
        first, said = copied(plain, packed, "-F", f"v,{numbers}", "-c", "v:3,40,50")
        assert said == ""
        assert support.violations(v, first, 1e-3) == []  # NaN for NaN: as many are masked
        second, said = copied(packed, again, "-c", "v:2,40,25")
        assert support.violations(first, second, 1e-3) == []
        with h5py.File(again) as file:
            assert repr(Cusz.of(file["v"])) == repr(Cusz(filter.eb, filter.mode, fill=float(dtype.type(-999.9))))
    numbers = ",".join(map(str, (FILTER_ID, *Cusz(1e-3, "rel").filter_options)))
    y, said = copied(plain, untold, "-F", f"v,{numbers}")
    assert np.isnan(y).sum() < np.isnan(v).sum()
    assert said.count("no longer masked") == said.count("\n") == 1


def test_netcdf_programs_are_told_why(written: Path, tmp_path: Path, environment: dict[str, str], require_tool) -> None:
    """Of themselves, they say no more than "HDF error"."""
    nccopy, ncdump = require_tool("nccopy", "netcdf-bin"), require_tool("ncdump", "netcdf-bin")
    plain = tmp_path / "plain.nc"
    printed(nccopy, "-F", "none", written, plain, env=environment)

    def said(*words: str | Path) -> str:
        result = support.run(words, status=None, env=environment)
        assert result.returncode != 0
        return result.stderr

    for variable, values, why in (
        ("n", Cusz(1e-3).filter_options, "the dataset has another type"),
        ("v", (1, 0xBFF00000, 0, 0, 0), "eb is -1"),
        ("v", (1, 0), "the filter has 2 parameters; legal: 3 to 5"),
    ):
        filter = ",".join(map(str, (variable, FILTER_ID, *values)))
        assert f"cusz (HDF5 filter): {why}" in said(nccopy, "-F", filter, plain, tmp_path / "new.nc")
    with h5py.File(written, "r+") as file:
        archive = file["v"].id.read_direct_chunk((1, 0, 0))[1]
        file["v"].id.write_direct_chunk((1, 0, 0), archive[:-1] + bytes([archive[-1] ^ 1]))
    assert "cusz (HDF5 filter): corrupt archive: " in said(ncdump, "-v", "v", written)
