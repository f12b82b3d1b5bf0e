"""The codec "cusz" of Zarr's format 3."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core as cusz
import support
from support import F32, F64

zarr = pytest.importorskip("zarr")
if zarr.__version__.startswith("2."):
    pytest.skip("zarr 2 has no format 3", allow_module_level=True)

from cusz_core.numcodecs import Cusz  # noqa: E402
from cusz_core.zarr import CuszCodec, _warn_of_parts  # noqa: E402

X = support.smooth((20, 30, 40), F32)
EB = 1e-3


def create(store: Any, x: NDArray[Any], codec: CuszCodec, **options: Any) -> Any:
    """An array that holds `x`."""
    options = {"chunks": tuple(max(n // 2 - 1, 1) for n in x.shape), "compressors": None, **options}
    array = zarr.create_array(store, shape=x.shape, dtype=x.dtype, serializer=codec, **options)
    array[...] = x
    return array


def metadata(folder: Path) -> Any:
    return json.loads((folder / "zarr.json").read_text())


@pytest.mark.parametrize("shape", [(), (1000,), (40, 50), (9, 17, 33), (3, 9, 17, 33), (2, 3, 4, 5, 6)], ids=str)
def test_an_array(shape: tuple[int, ...], dtype: np.dtype) -> None:
    x = np.asarray(support.smooth((int(np.prod(shape)),), dtype).reshape(shape))
    store = zarr.storage.MemoryStore()
    create(store, x, CuszCodec(EB))
    array = zarr.open_array(store, mode="r+")
    assert not support.violations(x, np.asarray(array[...]), EB)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_chunks_that_are_written_again_lose_nothing_more(zarr_format: Any) -> None:
    """With an absolute bound and the Lorenzo predictor."""
    of_3 = {"serializer": CuszCodec(EB, predictor="lorenzo"), "compressors": None}
    codec = of_3 if zarr_format == 3 else {"compressors": Cusz(EB, predictor="lorenzo")}
    array = zarr.create_array(
        zarr.storage.MemoryStore(), shape=(0, 30, 40), dtype="float32", chunks=X.shape, zarr_format=zarr_format, **codec
    )
    for step in X:
        array.append(step[np.newaxis])
    assert not support.violations(X, np.asarray(array[...]), EB)


def test_values_that_were_stored_exactly_are_rounded_once() -> None:
    """With an absolute bound and the Lorenzo predictor: noise is stored raw, until values beside it are replaced."""
    x = np.random.default_rng(0).standard_normal((8, 40, 40))
    x[1:] *= 1e12
    array = create(zarr.storage.MemoryStore(), x, CuszCodec(EB, predictor="lorenzo"), chunks=x.shape)
    assert support.same_bits(np.asarray(array[...]), x)
    array[1:4] = 0
    rounded = np.asarray(array[0])
    assert not support.same_bits(rounded, x[0])
    array[4:] = 0
    assert support.same_bits(np.asarray(array[0]), rounded)
    assert not support.violations(x[0], rounded, EB)


@pytest.mark.parametrize("options", [{}, {"shards": (8, 30, 40)}], ids=["chunks", "shards"])
@pytest.mark.parametrize(
    ("codec", "adds_up"),
    [
        (CuszCodec(EB), True),
        (CuszCodec(EB, mode="rel", predictor="lorenzo"), True),
        (CuszCodec(EB, predictor="lorenzo"), False),
        (CuszCodec(0), False),
    ],
    ids=["auto", "rel", "lorenzo", "lossless"],
)
def test_a_chunk_that_is_written_in_parts_warns(codec: CuszCodec, adds_up: bool, options: dict[str, Any]) -> None:
    _warn_of_parts.cache_clear()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        array = create(zarr.storage.MemoryStore(), X, codec, chunks=(4, 30, 40), **options)
        array[...] = X  # whole chunks again, the last one at the edge
        array[4:8] = X[4:8]
        assert type(array[4:8]) is np.ndarray
        array[12:16] = array[4:8]
        assert not shown
        array[5] = X[5]
        array[6] = X[6]
    assert len(shown) == adds_up  # once
    assert all("mode='abs' with predictor='lorenzo'" in str(each.message) for each in shown)


@pytest.mark.filterwarnings("ignore:a part of a chunk was written")
@pytest.mark.parametrize(
    "options",
    [
        {"shards": (18, 28, 38)},
        {"config": {"order": "F"}},
        {"filters": [zarr.codecs.TransposeCodec(order=(2, 0, 1))]},
        {"compressors": [zarr.codecs.Crc32cCodec()]},
    ],
    ids=["sharding", "order", "transposed", "checksum"],
)
def test_with_the_other_codecs_of_zarr(tmp_path: Path, options: dict[str, Any]) -> None:
    create(tmp_path / "x", X, CuszCodec(EB), **options)
    array = zarr.open_array(tmp_path / "x", mode="r+")
    assert not support.violations(X, array[...], EB)
    changed = X.copy()
    changed[3:7, 10:20, :] = array[3:7, 10:20, :] = 1.5
    assert not support.violations(changed, array[...], 2 * EB)
    assert not support.violations(changed[5, ::3, 7:9], array[5, ::3, 7:9], 2 * EB)


def test_by_codecs_alone(tmp_path: Path) -> None:
    array = zarr.create(store=tmp_path / "x", shape=X.shape, chunks=X.shape, dtype=X.dtype, codecs=[CuszCodec(EB)])
    array[...] = X
    assert (tmp_path / "x/c/0/0/0").read_bytes() == cusz.compress(X, EB)


@pytest.mark.parametrize("name", [">f4", ">f8"])
def test_the_byte_order_in_memory_does_not_matter(name: str) -> None:
    """In format 3, only codecs for bytes store the byte order."""
    store = zarr.storage.MemoryStore()
    create(store, X.astype(name), CuszCodec(EB))
    assert not support.violations(X.astype(np.dtype(name).newbyteorder("=")), zarr.open_array(store)[...], EB)


def test_special_values_come_back() -> None:
    x = X.copy()
    x[0, 0, :4] = np.nan, np.inf, -np.inf, -0.0
    y = create({}, x, CuszCodec(0.0))[...]
    assert support.same_bits(x, y)
    y = create({}, x, CuszCodec(EB), fill_value=np.nan)[...]
    assert support.same_bits(x[0, 0, :3], y[0, 0, :3])
    assert not support.violations(x, y, EB)


@pytest.mark.parametrize("name", ["i4", "u1", "f2", "c8", "?", "S3", "M8[s]"])
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_refused_types(name: str) -> None:
    dtype = np.dtype(name)
    with pytest.raises(cusz.UnsupportedError, match=re.escape(f"the array has dtype {dtype}. ")):
        zarr.create_array({}, shape=(4,), chunks=(4,), dtype=dtype, serializer=CuszCodec(EB), compressors=None)


def test_a_process_that_imports_only_zarr_reads_it(tmp_path: Path) -> None:
    create(tmp_path / "x", X, CuszCodec(EB), shards=(18, 28, 38))
    assert not support.violations(X, support.read_by_zarr_alone(tmp_path / "x"), EB)


# --------------------------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    "codec",
    [
        CuszCodec(0.1),
        CuszCodec(5e-324),
        CuszCodec(np.nextafter(1e-3, 1), "rel"),
        CuszCodec(1e-3, fill=1e20, bins=1024, predictor="spline", lossless="zstd" if support.HAS_ZSTD else "none"),
    ],
    ids=lambda codec: json.dumps(codec.to_dict()["configuration"]),
)
def test_the_configuration_survives_the_metadata(tmp_path: Path, codec: CuszCodec) -> None:
    create(tmp_path / "x", X, codec)
    assert metadata(tmp_path / "x")["codecs"] == [codec.to_dict()]
    assert zarr.open_array(tmp_path / "x", mode="r").serializer == codec
    assert pickle.loads(pickle.dumps(codec)) == codec
    assert hash(pickle.loads(pickle.dumps(codec))) == hash(codec)


def test_a_configuration_without_a_predictor_is_of_a_release_whose_default_was_lorenzo() -> None:
    """Existing arrays keep what they were created with: docs/guides/hdf5.md, "Data that grow within chunks"."""
    kept = CuszCodec.from_dict({"name": "cusz", "configuration": {"eb": 1e-3, "mode": "abs"}})
    assert kept == CuszCodec(1e-3, predictor="lorenzo")
    for codec in (kept, CuszCodec(1e-3), CuszCodec(1e-3, predictor="spline")):
        assert codec.to_dict()["configuration"]["predictor"] == codec.parameters.predictor
        assert CuszCodec.from_dict(codec.to_dict()) == codec


def test_a_configuration_that_is_wrong() -> None:
    with pytest.raises(cusz.ParameterError, match="eb is -1"):
        CuszCodec.from_dict({"name": "cusz", "configuration": {"eb": -1}})
    with pytest.raises(TypeError, match="eb"):
        CuszCodec.from_dict({"name": "cusz"})
    with pytest.raises(TypeError, match="bound"):
        CuszCodec.from_dict({"name": "cusz", "configuration": {"eb": 1, "bound": 2}})


@pytest.mark.parametrize(
    ("fill_value", "fill"),
    [(1e20, float(np.float32(1e20))), (-9999, -9999.0), (0, None), (np.nan, None), (np.inf, None)],
)
def test_the_fill_value_of_the_array_is_fill_if_it_says_no_data(
    tmp_path: Path, fill_value: float, fill: float | None
) -> None:
    create(tmp_path / "x", X, CuszCodec(EB, "rel"), fill_value=fill_value)
    ((codec,), stored) = metadata(tmp_path / "x")["codecs"], metadata(tmp_path / "x")["fill_value"]
    assert codec["configuration"].get("fill") == fill
    assert isinstance(stored, str) or stored == (fill or 0)


@pytest.mark.parametrize("shards", [None, (18, 28, 38)])
def test_padding_with_the_fill_value_does_not_loosen_a_relative_bound(shards: Any) -> None:
    """Chunks at the edges are padded with the array's fill value."""
    array = create({}, X, CuszCodec(EB, "rel"), fill_value=1e20, shards=shards)
    bound = cusz.Parameters(EB, "rel").eb * (float(X.max()) - float(X.min()))
    assert not support.violations(X, array[...], bound)


def test_a_fill_that_was_asked_for_stays(tmp_path: Path) -> None:
    create(tmp_path / "x", X, CuszCodec(EB, fill=-1.0), fill_value=1e20)
    assert metadata(tmp_path / "x")["codecs"][0]["configuration"]["fill"] == -1.0


# ---------------------------------------------------------------------------------------------------------- damage


def test_a_damaged_chunk(tmp_path: Path) -> None:
    create(tmp_path / "x", X, CuszCodec(EB))
    chunk = tmp_path / "x/c/1/0/1"
    data = chunk.read_bytes()
    for damaged in (b"", data[:-1], data[:50] + bytes([data[50] ^ 16]) + data[51:]):
        chunk.write_bytes(damaged)
        array = zarr.open_array(tmp_path / "x", mode="r")
        with pytest.raises(cusz.CorruptArchiveError):
            array[...]
        assert not support.violations(X[:9, :14], array[:9, :14], EB)  # the others can be read


@pytest.mark.parametrize(
    "other",
    [X[:9, :14, :18], X[:9, :14, :19].astype(F64), X[0], np.zeros((1000, 1000, 1000), F32)[:9, :14]],
    ids=lambda x: f"{x.dtype} {x.shape}",
)
def test_an_archive_of_something_else(tmp_path: Path, other: NDArray[Any]) -> None:
    """It is refused before memory is allocated for what it declares."""
    create(tmp_path / "x", X, CuszCodec(EB))
    (tmp_path / "x/c/0/0/0").write_bytes(cusz.compress(other, EB))
    array = zarr.open_array(tmp_path / "x", mode="r")
    with pytest.raises(cusz.CorruptArchiveError, match=r"a chunk holds .* those of this array have float32 of shape"):
        array[0, 0, 0]


def test_importing_the_core_imports_neither_zarr_nor_numcodecs() -> None:
    code = "import sys, cusz_core; assert not {'zarr', 'numcodecs'} & set(sys.modules)"
    support.printed(code)
