"""The HDF5 filter through h5py: what a chunk contains, what is read back, and what is refused."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cusz_core as cusz
import support
from cusz_core.hdf5 import FILTER_ID, Cusz, plugin_path
from support import F32, F64

#: Shapes and chunks: those that divide the shape, and those that HDF5 pads at the edges.
LAYOUTS = [
    ((10_000,), (4096,)),
    ((1,), (1,)),
    ((100, 90), (50, 45)),
    ((100, 90), (33, 64)),
    ((5, 70, 80), (1, 70, 80)),
    ((30, 31, 32), (8, 16, 32)),
    ((3, 9, 17, 33), (2, 8, 16, 32)),
    ((2, 3, 8, 9, 10), (2, 2, 5, 9, 10)),
    ((2, 3, 1, 8, 9, 10), (1, 3, 1, 8, 4, 10)),
    ((2, 2, 3, 4, 5, 6), (2, 2, 3, 4, 5, 6)),
]


def folded(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a chunk's archive, as docs/guides/hdf5.md says."""
    axes = [n for n in shape if n != 1] or [1]
    return tuple(axes) if len(axes) <= 4 else (math.prod(axes[:-3]), *axes[-3:])


def chunks_of(x: np.ndarray, chunk: tuple[int, ...], padding: float):
    """For every chunk: where it begins, its part of x, and the whole chunk, as HDF5 pads it."""
    for start in itertools.product(*(range(0, n, c) for n, c in zip(x.shape, chunk, strict=True))):
        part = x[tuple(slice(s, s + c) for s, c in zip(start, chunk, strict=True))]
        whole = np.full(chunk, padding, x.dtype)
        whole[tuple(slice(0, n) for n in part.shape)] = part
        yield start, part, whole


def check(path: Path, x: np.ndarray, chunk: tuple[int, ...], filter: Cusz, fill: float | None = None) -> None:
    """Writes a file, and checks the archives in it and the values read back."""
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=chunk, fillvalue=fill, **filter)
    with h5py.File(path) as file:
        dataset = file["x"]
        y = dataset[...]
        told = None if fill is None or math.isnan(fill) else float(x.dtype.type(fill))
        assert repr(Cusz.of(dataset)) == repr(Cusz(filter.eb, filter.mode, filter.predictor, told))
        for start, part, whole in chunks_of(x, chunk, 0 if fill is None else fill):
            mask, archive = dataset.id.read_direct_chunk(start)
            assert mask == 0
            assert archive == cusz.compress(
                whole.reshape(folded(chunk)), filter.eb, filter.mode, fill=told, predictor=filter.predictor
            )
            back = np.ascontiguousarray(y[tuple(slice(s, s + n) for s, n in zip(start, part.shape, strict=True))])
            part = np.ascontiguousarray(part)
            if filter.mode == "pw_rel":
                finite = np.isfinite(part) & (part != 0)
                ratio = np.abs(back[finite].astype(np.longdouble) - part[finite]) <= np.abs(
                    np.longdouble(filter.eb) * part[finite]
                )
                assert ratio.all()
                assert support.same_bits(part[~finite], back[~finite])
            else:
                bound = support.absolute_bound(whole, filter.eb, filter.mode, told)
                assert support.violations(part, back, bound, told) == []


@pytest.mark.parametrize(("shape", "chunk"), LAYOUTS, ids=str)
def test_round_trip(tmp_path: Path, shape: tuple[int, ...], chunk: tuple[int, ...], dtype: np.dtype) -> None:
    check(tmp_path / "x.h5", support.smooth(shape, dtype), chunk, Cusz(eb=1e-3))


@pytest.mark.parametrize("predictor", ["lorenzo", "spline", "auto"])
@pytest.mark.parametrize(("eb", "mode"), [(0.0, "abs"), (1e-2, "abs"), (1e-3, "rel"), (1e-3, "pw_rel")])
def test_modes_and_predictors(tmp_path: Path, eb: float, mode, predictor) -> None:
    for dtype in support.DTYPES:
        x = support.smooth((40, 50, 60), dtype)
        check(tmp_path / f"{dtype}.h5", x, (20, 32, 48), Cusz(eb, mode, predictor))


@pytest.mark.parametrize("fill", [1e20, -999.0, 0.0, math.nan, math.inf])
def test_fill_values(tmp_path: Path, fill: float, dtype: np.dtype) -> None:
    """They come back bit for bit, HDF5 pads with them, and they do not count in the range."""
    x = support.smooth((30, 40), dtype)
    x.reshape(-1)[::7] = fill
    x.reshape(-1)[3::11] = np.nan
    for mode in ("abs", "rel"):
        check(tmp_path / f"{mode}.h5", x, (16, 16), Cusz(1e-3, mode), fill=fill)


@pytest.mark.parametrize(
    ("given", "own", "kept"), [(-999.9, None, -999.9), (-999.9, math.nan, -999.9), (-999.9, 1e20, 1e20)]
)
def test_fill_values_given_with_the_parameters(
    tmp_path: Path, given: float, own: float | None, kept: float, dtype: np.dtype
) -> None:
    """For datasets without one. Another that the dataset has goes before it."""
    x = support.smooth((30, 40), dtype)
    x.reshape(-1)[::7] = kept
    x[10:20] = kept
    with h5py.File(tmp_path / "x.h5", "w") as file:
        filter = Cusz(1e-2, fill=given)
        first = file.create_dataset("x", data=x, chunks=(16, 16), fillvalue=own, **filter)
        copied = first.id.get_create_plist().get_filter_by_id(FILTER_ID)[1]
        file.create_dataset("y", data=x, chunks=(10, 40), compression=FILTER_ID, compression_opts=copied)
    with h5py.File(tmp_path / "x.h5") as file:
        for name in ("x", "y"):
            assert repr(Cusz.of(file[name])) == repr(Cusz(1e-2, fill=float(dtype.type(kept))))
            y = file[name][...]
            assert support.violations(x, y, 1e-2, kept) == []
            assert ((x == dtype.type(kept)) == (y == dtype.type(kept))).all()


CREATE = """
import sys, h5py, math, numpy as np
from cusz_core.hdf5 import FILTER_ID, Cusz
own, told = eval(sys.argv[3]), eval(sys.argv[4])
dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
dcpl.set_chunk((8,))
dcpl.set_filter(FILTER_ID, h5py.h5z.FLAG_MANDATORY, Cusz(1e-3, fill=told).filter_options)
dcpl.set_fill_time(getattr(h5py.h5d, sys.argv[2]))
if own is not None:
    dcpl.set_fill_value(np.array(own, "f4"))
with h5py.File(sys.argv[1], "w") as file:
    for name in (b"x", b"y"):
        h5py.h5d.create(file.id, name, h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((40,)), dcpl)
"""


@pytest.mark.parametrize(
    ("time", "own", "told", "is_warned"),
    [
        *[("FILL_TIME_NEVER", "None", "None", True), ("FILL_TIME_NEVER", "None", "-999.0", False)],
        *[("FILL_TIME_NEVER", "None", "math.nan", False), ("FILL_TIME_NEVER", "1", "None", False)],
        ("FILL_TIME_IFSET", "None", "None", False),
    ],
)
def test_a_fill_value_that_may_be_unknown(time: str, own: str, told: str, is_warned: bool, tmp_path: Path) -> None:
    """Programs that write netCDF without filling do not tell HDF5 of _FillValue. This is said once."""
    arguments = [str(tmp_path / "x.h5"), time, own, told]
    done = subprocess.run([sys.executable, "-c", CREATE, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr.count("no longer masked") == done.stderr.count("\n") == is_warned


def test_every_bit_pattern(tmp_path: Path, dtype: np.dtype) -> None:
    """Incompressible: the chunks are longer than their values, and HDF5 takes them."""
    check(tmp_path / "x.h5", support.random_bits((50, 60), dtype), (32, 32), Cusz(1e-3))


@settings(max_examples=60)
@given(st.data())
def test_any_layout(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6)))
    chunk = tuple(data.draw(st.integers(1, n)) for n in shape)
    dtype = data.draw(st.sampled_from(support.DTYPES))
    filter = Cusz(data.draw(st.floats(0, 1e3)), data.draw(st.sampled_from(["abs", "rel"])))
    fill = data.draw(st.none() | st.floats(width=32))
    x = support.smooth(shape, dtype, data.draw(st.integers(0, 5)))
    check(tmp_path_factory.mktemp("any") / "x.h5", x, chunk, filter, fill)


def test_a_dataset_that_grows_and_is_written_in_parts(tmp_path: Path) -> None:
    x = support.smooth((20, 64, 64), F32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        kept = Cusz(1e-3, predictor="lorenzo")
        dataset = file.create_dataset("x", (0, 64, 64), F32, maxshape=(None, 64, 64), chunks=(4, 64, 64), **kept)
        for step in x:
            dataset.resize(len(dataset) + 1, 0)
            dataset[-1] = step  # every chunk but the last is decoded and written again, or kept in HDF5's cache
    with h5py.File(tmp_path / "x.h5") as file:
        assert support.violations(x, file["x"][...], 1e-3) == []


def test_chunks_that_are_written_again_lose_nothing_more(tmp_path: Path) -> None:
    """With an absolute bound and the Lorenzo predictor. Reopening the file empties HDF5's cache."""
    x = support.smooth((12, 20, 30), F32)
    for step in range(12):
        with h5py.File(tmp_path / "x.h5", "a") as file:
            if step == 0:
                file.create_dataset("x", x.shape, F32, chunks=(12, 20, 30), **Cusz(1e-3, predictor="lorenzo"))
            file["x"][step] = x[step]
    with h5py.File(tmp_path / "x.h5") as file:
        assert support.violations(x, file["x"][...], 1e-3) == []


def test_checksums_of_hdf5_may_follow(tmp_path: Path) -> None:
    x = support.smooth((40, 50), F64)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(16, 16), fletcher32=True, **Cusz(1e-3))
    with h5py.File(tmp_path / "x.h5") as file:
        assert file["x"].fletcher32
        assert support.violations(x, file["x"][...], 1e-3) == []


def test_as_an_object_of_h5py(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (40,), F32, chunks=(8,), compression=Cusz(1e-2, "rel", "auto"))
        assert repr(Cusz.of(dataset)) == "Cusz(eb=0.01, mode='rel', predictor='auto')"


def test_mode_and_predictor_may_be_left_out(tmp_path: Path) -> None:
    short = Cusz(1e-2).filter_options[:3]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (40,), F32, chunks=(8,), compression=FILTER_ID, compression_opts=short)
        assert repr(Cusz.of(dataset)) == repr(Cusz(1e-2))


@pytest.mark.parametrize("dtype", ["i4", "u1", "f2", ">f4", ">f8", "c8", [("a", "f4")]], ids=str)
def test_other_types_are_refused(tmp_path: Path, dtype) -> None:
    with (
        h5py.File(tmp_path / "x.h5", "w") as file,
        pytest.raises(ValueError, match="32-bit and 64-bit little-endian IEEE floats"),
    ):
        file.create_dataset("x", (10, 10), dtype, chunks=(5, 5), **Cusz(1e-3))


def test_floats_of_another_layout_are_refused(tmp_path: Path) -> None:
    """They have the size and class of float32, but other values."""
    dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dcpl.set_chunk((5,))
    dcpl.set_filter(FILTER_ID, h5py.h5z.FLAG_MANDATORY, Cusz(1e-3).filter_options)
    space = h5py.h5s.create_simple((10,))
    other = h5py.h5t.IEEE_F32LE.copy()
    other.set_ebias(126)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, dcpl)
        with pytest.raises(ValueError, match="32-bit and 64-bit little-endian IEEE floats"):
            h5py.h5d.create(file.id, b"y", other, space, dcpl)


def test_a_filter_before_it_is_refused(tmp_path: Path) -> None:
    """It would turn the values into other bytes, for which a bound means nothing."""
    with h5py.File(tmp_path / "x.h5", "w") as file, pytest.raises(ValueError, match="filter 2 comes first"):
        file.create_dataset("x", (10, 10), F32, chunks=(5, 5), shuffle=True, **Cusz(1e-3))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((), "the filter has 0 parameters; legal: 3 to 5"),
        ((1, 0), "the filter has 2 parameters; legal: 3 to 5"),
        ((1, 0, 0, 0, 0, 0), "the filter has 6 parameters; legal: 3 to 5"),
        ((2, 0, 0, 0, 0), "the filter's first parameter is 2; this version"),
        ((1, 0x7FF00000, 0, 0, 0), "eb is inf"),
        ((1, 0xBFF00000, 0, 0, 0), "eb is -1"),
        ((1, 0, 0, 3, 0), "mode is 3; legal"),
        ((1, 0, 0, 2**32 - 1, 0), "mode is 4294967295; legal"),
        ((1, 0, 0, 0, 3), "predictor is 3"),
        (tuple(range(20)), "too many parameters"),
    ],
    ids=str,
)
def test_illegal_parameters_are_refused(tmp_path: Path, values: tuple[int, ...], message: str) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file, pytest.raises(ValueError, match=message):
        file.create_dataset("x", (10,), F32, chunks=(5,), compression=FILTER_ID, compression_opts=values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eb": -1}, "eb is -1"),
        ({"eb": math.nan}, "eb is nan"),
        ({"eb": 80, "mode": "psnr"}, "mode is 'psnr'; legal for HDF5: abs, rel, pw_rel"),
        ({"eb": 1e-3, "predictor": "cubic"}, "predictor is 'cubic'"),
    ],
    ids=str,
)
def test_illegal_arguments_are_refused(options: dict, message: str) -> None:
    with pytest.raises(cusz.ParameterError, match=message):
        Cusz(**options)


def test_other_datasets_have_no_parameters(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (10,), F32, chunks=(5,), compression="gzip")
        with pytest.raises(cusz.UnsupportedError, match="/x was not written with the filter 453"):
            Cusz.of(dataset)


SEARCHED = """
import importlib, os, h5py, cusz_core.hdf5
importlib.reload(cusz_core.hdf5)
print(*(os.fsdecode(h5py.h5pl.get(i)) for i in range(h5py.h5pl.size())), sep=":")
print(os.environ["HDF5_PLUGIN_PATH"])
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [("{there}", "{there}:{ours}"), ("{there}:/nowhere:{there}", "{there}:{ours}:/nowhere:{there}")],
)
def test_the_folder_is_searched_once_and_after_those_of_the_user(tmp_path: Path, before: str, after: str) -> None:
    """But before one that does not exist, behind which HDF5 1.12 (h5py 3.8 and 3.9) finds nothing."""
    found = support.printed(SEARCHED, HDF5_PLUGIN_PATH=before.format(there=tmp_path))
    wanted = after.format(there=tmp_path, ours=plugin_path())
    assert found.splitlines() == [wanted, wanted]


WRITE = """
import sys, h5py, numpy as np
from cusz_core.hdf5 import Cusz
x = np.linspace(0, 9, 20 * 4000).reshape(20, 4000) ** 2
mode, predictor, eb, steps = sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
with h5py.File(sys.argv[1], "w", rdcc_nbytes=0) as file:  # no chunk stays in memory
    dataset = file.create_dataset("x", x.shape, "f8", chunks=(10, 4000), **Cusz(eb, mode, predictor=predictor))
    for i in range(0, 20, steps):
        dataset[i : i + steps] = x[i : i + steps]
print(np.abs(h5py.File(sys.argv[1])["x"][...] - x).max())
"""


@pytest.mark.parametrize(
    ("mode", "predictor", "eb", "steps", "is_warned"),
    [
        *[("abs", "auto", 1e-3, 2, True), ("rel", "lorenzo", 1e-3, 2, True), ("abs", "auto", 1e-3, 10, False)],
        *[("abs", "lorenzo", 1e-3, 2, False), ("abs", "auto", 0, 2, False)],
    ],
)
def test_chunks_that_are_written_in_parts(
    mode: str, predictor: str, eb: float, steps: int, is_warned: bool, tmp_path: Path
) -> None:
    """Their errors add up, which is said once, and not where they do not."""
    arguments = [str(tmp_path / "x.h5"), mode, predictor, str(eb), str(steps)]
    done = subprocess.run([sys.executable, "-c", WRITE, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr.count("errors add up beyond the bound") == done.stderr.count("\n") == is_warned
    assert is_warned or float(done.stdout) <= eb


READ_AND_WRITE = """
import sys, h5py, numpy as np
from cusz_core.hdf5 import Cusz
first, second = np.load(sys.argv[2])
with h5py.File(sys.argv[1], "w") as file:
    for name, x, eb in (("x", first, float(sys.argv[3])), ("y", second, 1e-3)):
        file.create_dataset(name, data=x, chunks=x.shape, fillvalue=-999, **Cusz(eb))
        file.flush()
        file[name].refresh()
        assert (file[name][...][:, 300:1500] == -999).all()
"""


@pytest.mark.parametrize(("is_same", "eb"), [(False, 1e-3), (True, 0)])
def test_other_values_are_no_losses_that_add_up(is_same: bool, eb: float, tmp_path: Path, dtype: np.dtype) -> None:
    """Other data with the same missing ones; values of a lossless dataset."""
    fields = np.stack([support.smooth((40, 2000), dtype, seed) for seed in (0, 0 if is_same else 1)])
    fields[:, :, 300:1500] = -999
    np.save(tmp_path / "x.npy", fields)
    done = support.run([sys.executable, "-c", READ_AND_WRITE, tmp_path / "x.h5", tmp_path / "x.npy", str(eb)])
    assert done.stderr == ""
