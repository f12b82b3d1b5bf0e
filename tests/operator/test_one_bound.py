"""A relative bound gives one and the same absolute bound, to the last bit, at every door."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cusz_core as cusz
import cusz_operator as cz
import support

pytest.importorskip("adios2")
from other_program import Program

X = support.smooth((24, 25), support.F64)
#: With the first, the rounded product exceeds the exact one.
BOUNDS = [0.003953504949403078, 1e-3, 1 / 3, 7e-5]


def by_core(folder: Path, eb: float) -> float:
    archive = cusz.compress(X, eb, "rel")
    cusz.verify(X, archive)
    return cusz.inspect(archive).eb_abs


def by_writer(folder: Path, eb: float) -> float:
    with cz.Writer(folder / "run.bp", eb=eb, mode="rel") as out, out.step():
        out.put("x", X[:7], X.shape)
        out.put("x", X[7:], X.shape, (7, 0))
    with cz.Reader(folder / "run.bp") as run:
        (found,) = {*run[0].blocks("x")["eb_abs"], *(block["eb_abs"] for block in cz.inspect_bp(folder / "run.bp"))}
    return float(found)


def by_plugin(folder: Path, eb: float) -> float:
    with Program(folder / "run.bp") as out, out.step():
        out.put("x", X, eb=eb, mode="rel")
    (block,) = cz.inspect_bp(folder / "run.bp")
    return float(block["eb_abs"])


def by_hdf5(folder: Path, eb: float) -> float:
    h5py = pytest.importorskip("h5py")
    hdf5: Any = pytest.importorskip("cusz_core.hdf5")
    with h5py.File(folder / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=X, chunks=X.shape, **hdf5.Cusz(eb, "rel"))
        return cusz.inspect(dataset.id.read_direct_chunk((0, 0))[1]).eb_abs


def by_numcodecs(folder: Path, eb: float) -> float:
    numcodecs: Any = pytest.importorskip("cusz_core.numcodecs")
    return cusz.inspect(numcodecs.Cusz(eb, "rel").encode(X)).eb_abs


def by_zarr(folder: Path, eb: float) -> float:
    zarr = pytest.importorskip("zarr", minversion="3")
    codec = pytest.importorskip("cusz_core.zarr").CuszCodec(eb, "rel")
    array = zarr.create_array(
        folder / "x.zarr", shape=X.shape, chunks=X.shape, dtype="float64", serializer=codec, compressors=None
    )
    array[...] = X
    return cusz.inspect((folder / "x.zarr" / "c" / "0" / "0").read_bytes()).eb_abs


@pytest.mark.quick("all")
@pytest.mark.parametrize("eb", BOUNDS)
@pytest.mark.parametrize("door", [by_core, by_writer, by_plugin, by_hdf5, by_numcodecs, by_zarr])
def test_every_door(door: Callable[[Path, float], float], eb: float, tmp_path: Path) -> None:
    low, high = float(X.min()), float(X.max())
    assert door(tmp_path, eb) == eb * (high - low) == cusz.value_range(X).absolute_bound(eb)
