"""xarray's to_zarr and dask's arrays with the codecs of both Zarr formats."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core as cusz
import support
from support import F32, F64

dask_array = pytest.importorskip("dask.array")
xarray = pytest.importorskip("xarray")
zarr = pytest.importorskip("zarr")
if zarr.__version__.startswith("2."):
    pytest.skip("xarray's to_zarr is tested with zarr 3", allow_module_level=True)

from cusz_core.numcodecs import Cusz  # noqa: E402
from cusz_core.zarr import CuszCodec  # noqa: E402

EB = 1e-3
U = support.smooth((5, 40, 60), F32)
V = support.smooth((40, 60), F64)
BY_FORMAT = pytest.mark.parametrize(
    ("zarr_format", "encoding"),
    [(2, {"compressors": Cusz(EB)}), (3, {"serializer": CuszCodec(EB), "compressors": None})],
    ids=["format 2", "format 3"],
)


def dataset() -> Any:
    return xarray.Dataset(
        {"U": (("time", "y", "x"), U.copy()), "V": (("y", "x"), V.copy())},
        coords={"time": np.arange(5), "y": np.linspace(0, 1, 40)},
    )


@BY_FORMAT
@pytest.mark.parametrize("chunks", [None, {"time": 1, "y": 20}])
def test_a_dataset(tmp_path: Path, zarr_format: int, encoding: dict[str, Any], chunks: dict[str, int] | None) -> None:
    data = dataset() if chunks is None else dataset().chunk(chunks)
    data["U"][2, 3, 4] = np.nan
    data.to_zarr(
        tmp_path / "run.zarr", zarr_format=zarr_format, encoding={"U": encoding, "V": encoding}, consolidated=False
    )
    code = (  # xarray alone, in another process
        "import sys, numpy, xarray\n"
        "data = xarray.open_zarr(sys.argv[1], consolidated=False)\n"
        "numpy.savez(sys.argv[2], **{name: data[name].values for name in data.variables})\n"
    )
    support.run([sys.executable, "-c", code, tmp_path / "run.zarr", tmp_path / "back.npz"])
    back = np.load(tmp_path / "back.npz")
    for name in ("U", "V"):
        assert back[name].dtype == data[name].dtype
        assert not support.violations(data[name].values, back[name], EB)
    assert np.isnan(back["U"][2, 3, 4])
    for name in ("time", "y"):  # stored exactly, by Zarr's own compressor
        assert support.same_bits(data[name].values, back[name])
    chunk = next((tmp_path / "run.zarr").rglob("U/0.0.0" if zarr_format == 2 else "U/c/0/0/0")).read_bytes()
    assert cusz.inspect(chunk).eb == EB


@BY_FORMAT
def test_a_dataset_is_written_again(tmp_path: Path, zarr_format: int, encoding: dict[str, Any]) -> None:
    """The encoding comes back with the data, and appending keeps it."""
    first = dataset()
    store = tmp_path / "run.zarr"
    first.to_zarr(store, zarr_format=zarr_format, encoding={"U": encoding, "V": encoding}, consolidated=False)
    opened = xarray.open_zarr(store, consolidated=False)
    key = "serializer" if zarr_format == 3 else "compressors"
    kept = opened["U"].encoding[key]
    assert (kept if zarr_format == 3 else kept[0]) == next(iter(encoding.values()))
    more = dataset()[["U"]].assign_coords(time=np.arange(5, 10))
    more.to_zarr(store, append_dim="time", zarr_format=zarr_format, consolidated=False)
    values = xarray.open_zarr(store, consolidated=False)["U"].values
    assert not support.violations(np.concatenate([U, U]), values, EB)


@BY_FORMAT
def test_dask_writes_and_reads_chunks_in_several_threads(
    tmp_path: Path, zarr_format: int, encoding: dict[str, Any]
) -> None:
    field = support.smooth((64, 96, 80), F32)
    array = zarr.create_array(
        tmp_path / "x", shape=field.shape, dtype=field.dtype, chunks=(16, 32, 40), zarr_format=zarr_format, **encoding
    )
    chunked = dask_array.from_array(field, chunks=(16, 32, 40))
    dask_array.store(chunked, array, scheduler="threads", num_workers=8, lock=False)
    back = dask_array.from_zarr(tmp_path / "x").compute(scheduler="threads", num_workers=8)
    assert not support.violations(field, back, EB)
    names = [
        path for path in (tmp_path / "x").rglob("*") if path.is_file() and not path.name.endswith(("json", "y", "s"))
    ]
    assert len(names) == 4 * 3 * 2
    for path in names:
        place = tuple(map(int, path.name.split("."))) if zarr_format == 2 else tuple(map(int, path.parts[-3:]))
        box = tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, (16, 32, 40), strict=True))
        assert path.read_bytes() == cusz.compress(field[box], EB)  # with any number of threads


def test_packed_variables_are_refused(tmp_path: Path) -> None:
    """xarray converts them to integers before the codec sees them."""
    encoding = {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -1, "serializer": CuszCodec(EB), "compressors": None}
    with pytest.raises(cusz.UnsupportedError, match="cusz is for float32 and float64; the array has dtype int16"):
        dataset().to_zarr(tmp_path / "run.zarr", zarr_format=3, encoding={"U": encoding}, consolidated=False)


@pytest.mark.parametrize("by", ["the codec", "the array"])
def test_a_relative_bound_beside_a_fill_value(tmp_path: Path, by: str) -> None:
    """The codec does not see xarray's _FillValue, which is an attribute: it has to be told."""
    data = dataset()
    data["U"][:, :5] = np.nan
    codec = CuszCodec(EB, "rel", fill=1e20) if by == "the codec" else CuszCodec(EB, "rel")
    encoding = {"_FillValue": np.float32(1e20), "serializer": codec, "compressors": None}
    if by == "the array":
        encoding["fill_value"] = np.float32(1e20)
    data[["U"]].to_zarr(tmp_path / "run.zarr", zarr_format=3, encoding={"U": encoding}, consolidated=False)
    back = xarray.open_zarr(tmp_path / "run.zarr", consolidated=False)["U"].values
    assert np.isnan(back[:, :5]).all()
    valid = U[:, 5:]
    assert not support.violations(valid, back[:, 5:], EB * (float(valid.max()) - float(valid.min())))


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_the_examples_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs/guides/zarr.md").read_text(encoding="utf-8")
    examples = re.findall(r"^\n((?:(?:    .*)?\n)+?)(?=^\S)", text, re.MULTILINE)
    names = {"u": U, "dataset": dataset().rename(V="T")}
    for i, example in enumerate(examples):
        folder = tmp_path / str(i)
        folder.mkdir()
        monkeypatch.chdir(folder)
        exec(textwrap.dedent(example), names)
    assert len(examples) == 3
    stores = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*.zarr"))
    assert stores == ["0/run.zarr", "1/run.zarr", "2/old.zarr", "2/run.zarr"]
    for name in stores[:2]:
        assert not support.violations(U, zarr.open_array(tmp_path / name)[...], EB)
    for name in stores[2:]:
        stored = xarray.open_zarr(tmp_path / name)
        assert not support.violations(V, stored["T"].values, EB)
        assert cusz.inspect(next(path for path in (tmp_path / name / "T").rglob("*0") if path.is_file()).read_bytes())
