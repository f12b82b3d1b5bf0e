"""Every interface gives the same archive, byte for byte: the default predictor is the same as "auto", and a relative
bound gives the same absolute bound."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_int32, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core as cusz
import support
from cusz_core import cli
from cusz_core.parameters import TABLE

EB = 0.01
#: Relative bounds. With the first, the rounded product exceeds the exact one.
RELATIVE = [0.003953504949403078, 1e-3, 1 / 3, 7e-5]
#: Fields, by the predictor that "auto" chooses.
FIELDS = {
    "spline": support.smooth((40, 50, 60), support.F64) * 0.25,
    "lorenzo": support.integers(24000, 0, 2000, 3).astype(np.float32).reshape(20, 30, 40) / 16,
}


def by_c(x: NDArray[Any], folder: Path, eb: float = EB, **options: str) -> bytes:
    """As a program compiled with the current cusz.h."""
    library = ctypes.CDLL(str(Path(cusz.__file__).parent / "libcusz_core.so.0"))
    library.cusz_create.restype = c_void_p
    library.cusz_params_init_sized.argtypes = [c_void_p, c_size_t]
    library.cusz_params_set.argtypes = [c_void_p, c_char_p, c_char_p, c_char_p, c_size_t]
    library.cusz_compress.argtypes = [c_void_p, c_void_p, c_int, c_int32, *[c_void_p] * 3, c_size_t, c_void_p]
    library.cusz_destroy.argtypes = [c_void_p]
    params, size = ctypes.create_string_buffer(56), c_size_t()
    library.cusz_params_init_sized(params, len(params))
    for key, value in {"eb": repr(eb), **options}.items():
        assert library.cusz_params_set(params, key.encode(), value.encode(), None, 0) == 0
    archive, context = ctypes.create_string_buffer(x.nbytes + 48), library.cusz_create()
    shape, dtype = (c_uint64 * x.ndim)(*x.shape), {"f": 1, "d": 2}[x.dtype.char]
    done = library.cusz_compress(
        context, params, dtype, x.ndim, shape, x.ctypes.data, archive, len(archive), byref(size)
    )
    library.cusz_destroy(context)
    assert done == 0
    return archive.raw[: size.value]


def by_compress(x: NDArray[Any], folder: Path, eb: float = EB, **options: Any) -> bytes:
    return cusz.compress(x, eb, **options)


def by_parameters(x: NDArray[Any], folder: Path, eb: float = EB, **options: Any) -> bytes:
    return bytes(cusz.compress_with(x, cusz.Parameters(eb, **options)))


def by_command_line(x: NDArray[Any], folder: Path, eb: float = EB, **options: str) -> bytes:
    np.save(folder / "x.npy", x)
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    assert cli.main(["compress", str(folder / "x.npy"), "--eb", repr(eb), *words]) == 0
    return (folder / "x.npy.cusz").read_bytes()


def by_plugin(x: NDArray[Any], folder: Path, eb: float = EB, **options: str) -> bytes:
    """With the parameters of a configuration file. Returns the file's data."""
    program = pytest.importorskip("other_program").Program(folder / "plugin.bp")
    with program, program.step():
        program.put("x", x, eb=eb, **options)
    return (folder / "plugin.bp/data.0").read_bytes()


def by_writer(x: NDArray[Any], folder: Path, eb: float = EB, **options: Any) -> bytes:
    pytest.importorskip("adios2")
    support.write_run(folder / "writer.bp", {"x": x}, eb=eb, **options)
    return (folder / "writer.bp/data.0").read_bytes()


def by_hdf5(x: NDArray[Any], folder: Path, eb: float = EB, **options: Any) -> bytes:
    h5py = pytest.importorskip("h5py")
    from cusz_core.hdf5 import Cusz

    with h5py.File(folder / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=x, chunks=x.shape, **Cusz(eb, **options))
        assert Cusz.of(dataset).predictor == options.get("predictor", "auto")
        return bytes(dataset.id.read_direct_chunk((0,) * x.ndim)[1])


def by_hdf5_of_others(x: NDArray[Any], folder: Path, eb: float = EB, **options: str) -> bytes:
    """With the filter values that h5repack and C programs pass; the last may be left out."""
    h5py = pytest.importorskip("h5py")
    from cusz_core.hdf5 import FILTER_ID, Cusz

    names = [options.pop("predictor")] if "predictor" in options else []
    given = Cusz(eb, **options).filter_options[:4]
    values = (*given, *((TABLE["predictor"].choices or ()).index(name) for name in names))
    with h5py.File(folder / "x.h5", "w") as file:
        dataset = file.create_dataset("x", data=x, chunks=x.shape, compression=FILTER_ID, compression_opts=values)
        return bytes(dataset.id.read_direct_chunk((0,) * x.ndim)[1])


def by_zarr(x: NDArray[Any], folder: Path, eb: float = EB, **options: Any) -> bytes:
    """Zarr format 3."""
    zarr = pytest.importorskip("zarr", minversion="3")
    from cusz_core.zarr import CuszCodec

    how = {"serializer": CuszCodec(eb, **options), "compressors": None}
    array = zarr.create_array(folder / "x.zarr", shape=x.shape, chunks=x.shape, dtype=x.dtype, **how)
    array[...] = x
    return (folder / "x.zarr/c").joinpath(*"0" * x.ndim).read_bytes()


def by_numcodecs(x: NDArray[Any], folder: Path, eb: float = EB, **options: Any) -> bytes:
    """Zarr format 2."""
    pytest.importorskip("numcodecs")
    from cusz_core.numcodecs import Cusz

    return bytes(Cusz(eb, **options).encode(x))


DOORS: list[Callable[..., bytes]] = [
    *(by_c, by_compress, by_parameters, by_command_line, by_plugin, by_writer, by_hdf5, by_hdf5_of_others, by_zarr),
    by_numcodecs,
]


@pytest.mark.quick("all")
@pytest.mark.parametrize("taken", FIELDS)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_every_predictor(door: Callable[..., bytes], taken: str, tmp_path: Path) -> None:
    x = FIELDS[taken]
    archives = {name: cusz.compress(x, EB, predictor=name) for name in ("lorenzo", "spline", "auto")}
    assert archives["auto"] == archives[taken]
    assert len({*archives.values()}) == 2
    wanted = {"default": archives["auto"], **archives}
    made = {}
    for name in wanted:
        (tmp_path / name).mkdir()
        made[name] = door(x, tmp_path / name, **({} if name == "default" else {"predictor": name}))
    for name, archive in wanted.items():
        assert archive in made[name], name
        assert len(made[name]) == len(archive) or door in (by_plugin, by_writer)
    assert (archives["lorenzo"] in made["default"]) == (taken == "lorenzo")


@pytest.mark.quick("all")
@pytest.mark.parametrize("eb", RELATIVE)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_every_relative_bound(door: Callable[..., bytes], eb: float, tmp_path: Path) -> None:
    """To the last bit. A Writer computes the absolute bound itself."""
    x = support.smooth((24, 25), support.F64)
    bound = eb * (float(x.max()) - float(x.min()))
    wanted = cusz.compress(x, bound) if door is by_writer else cusz.compress(x, eb, "rel")
    assert cusz.inspect(wanted).eb_abs == bound == cusz.value_range(x).absolute_bound(eb)
    assert wanted in door(x, tmp_path, eb, mode="rel")


def test_the_table_says_so() -> None:
    assert TABLE["predictor"].default == "auto" == cusz.Parameters(EB).predictor
