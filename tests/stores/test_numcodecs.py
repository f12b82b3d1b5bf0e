"""The codec "cusz" of numcodecs, and format 2 of Zarr with it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core as cusz
import support
from support import F32

numcodecs = pytest.importorskip("numcodecs")
zarr = pytest.importorskip("zarr")

from cusz_core.numcodecs import Cusz  # noqa: E402

X = support.smooth((20, 30, 40), F32)
EB = 1e-3
SHAPES = [(), (0,), (1,), (1000,), (40, 50), (7, 15, 31), (3, 9, 17, 33), (2, 3, 4, 5, 6), (1, 1, 2, 1, 8, 9)]


def field(shape: tuple[int, ...], dtype: np.dtype) -> NDArray[Any]:
    return np.asarray(support.smooth((max(int(np.prod(shape)), 1),), dtype)[: int(np.prod(shape))].reshape(shape))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_decoded_lies_in_memory_as_what_was_encoded(
    shape: tuple[int, ...], dtype: np.dtype, order: Any
) -> None:
    """numcodecs deals with buffers: the caller has to know shape and order."""
    x = np.array(field(shape, dtype), order=order)
    archive = Cusz(EB).encode(x)
    y = Cusz(EB).decode(archive)
    assert y.dtype == dtype
    assert not support.violations(x.reshape(-1, order="A"), y.reshape(-1, order="A"), EB)
    filled = np.empty_like(x)
    assert Cusz(EB).decode(archive, out=filled) is filled
    assert not support.violations(x, filled, EB)


def test_a_contiguous_chunk_is_not_copied() -> None:
    assert Cusz(EB).encode(X) == cusz.compress(X, EB)
    assert Cusz(EB).encode(np.asfortranarray(X)) == cusz.compress(np.ascontiguousarray(X.T), EB)
    large = np.zeros((8, 16, 16, 32, 32), np.float32)
    assert np.shares_memory(large, large.reshape(8 * 16, 16, 32, 32))
    assert Cusz(EB).encode(large) == cusz.compress(large.reshape(8 * 16, 16, 32, 32), EB)


def test_a_chunk_that_is_not_contiguous() -> None:
    x = X[::2, :, ::3]
    y = Cusz(EB).decode(Cusz(EB).encode(x))
    assert y.shape == x.shape
    assert not support.violations(x, y, EB)


@pytest.mark.parametrize("out", [bytearray(X.nbytes), np.empty(X.nbytes, np.uint8), np.empty(X.size, np.float32)])
def test_any_buffer_of_the_right_size_is_filled(out: Any) -> None:
    archive = Cusz(EB).encode(X)
    assert Cusz(EB).decode(archive, out=out) is out
    assert np.frombuffer(out, np.float32).tobytes() == cusz.decompress(archive).tobytes()


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (bytearray(X.nbytes - 4), cusz.ParameterError, "out has 95996 bytes; this archive needs 96000"),
        (np.empty(X.size // 2, np.float64), cusz.UnsupportedError, "out has dtype <f8; this archive needs float32"),
        (np.empty(X.size, ">f4"), cusz.UnsupportedError, "out has dtype >f4; this archive needs float32"),
        (bytes(X.nbytes), cusz.ParameterError, "out is read-only"),
    ],
)
def test_refused_output(out: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Cusz(EB).decode(Cusz(EB).encode(X), out=out)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (X.astype(np.float16), "float16.*accepted are float32 and float64"),
        (X.astype(np.int32), "int32.*integers need a lossless compressor"),
        (X.astype(">f4"), ">f4.*native byte order"),
        (X.astype(np.complex64), "complex64"),
        (X > 0, "bool"),
        (X.tobytes(), "accepted are float32 and float64"),
    ],
)
def test_refused_chunks(x: Any, words: str) -> None:
    with pytest.raises(cusz.UnsupportedError, match=words):
        Cusz(EB).encode(x)


def test_damaged_chunks() -> None:
    archive = Cusz(EB).encode(X)
    for damaged in (b"", archive[:-1], archive[:60] + bytes([archive[60] ^ 1]) + archive[61:], bytes(100)):
        for out in (None, np.empty_like(X)):
            with pytest.raises(cusz.CorruptArchiveError):
                Cusz(EB).decode(damaged, out=out)


# --------------------------------------------------------------------------------------------------- configuration


@pytest.mark.parametrize(
    "codec",
    [
        Cusz(0.1),
        Cusz(eb=5e-324),
        Cusz(1.7976931348623157e308),
        Cusz(np.nextafter(1e-3, 1), "rel"),
        Cusz(80, "psnr"),
        Cusz(1e-3, fill=1e20, bins=1024, predictor="spline", lossless="zstd" if support.HAS_ZSTD else "none"),
    ],
    ids=repr,
)
def test_the_configuration_survives_json(codec: Cusz) -> None:
    text = json.dumps(codec.get_config(), allow_nan=False)
    again = numcodecs.get_codec(json.loads(text))
    assert isinstance(again, Cusz)
    assert again == codec
    assert again.get_config() == codec.get_config()
    assert eval(repr(codec)) == codec == pickle.loads(pickle.dumps(codec))


def test_the_configuration_has_the_predictor_and_what_is_not_the_default() -> None:
    assert Cusz(np.float32(0.5)).get_config() == {"id": "cusz", "eb": 0.5, "mode": "abs", "predictor": "auto"}
    shown = {"id": "cusz", "eb": 1.0, "mode": "abs", "fill": -9999.0, "predictor": "lorenzo"}
    assert Cusz(1, fill=-9999, predictor="lorenzo").get_config() == shown
    assert Cusz(1) != Cusz(2)


def test_a_configuration_without_a_predictor_is_of_a_release_whose_default_was_lorenzo() -> None:
    assert numcodecs.get_codec({"id": "cusz", "eb": 1e-3, "mode": "abs"}) == Cusz(1e-3, predictor="lorenzo")


@pytest.mark.parametrize("fill", [np.nan, np.inf, -np.inf])
def test_a_fill_that_json_does_not_have(fill: float) -> None:
    with pytest.raises(cusz.ParameterError, match=r"fill is .*; a codec's fill must be finite, as JSON"):
        Cusz(EB, fill=fill)


def test_refused_parameters() -> None:
    with pytest.raises(cusz.ParameterError, match="eb is -1"):
        Cusz(-1)
    with pytest.raises(cusz.ParameterError, match="mode is 'relative'"):
        Cusz(1, "relative")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tolerance"):
        Cusz(1, tolerance=2)  # type: ignore[call-arg]


# ------------------------------------------------------------------------------------------------- Zarr, format 2


def create(folder: Path, x: NDArray[Any], compressor: Any, **options: Any) -> Any:
    """An array of format 2 that holds `x`, made by zarr 2 or 3."""
    options = {"chunks": (9, 16, 25)[: x.ndim], "compressor": compressor, "zarr_format": 2, **options}
    if zarr.__version__.startswith("2."):
        del options["zarr_format"]
    array = zarr.open_array(str(folder), mode="w", shape=x.shape, dtype=x.dtype, **options)
    array[...] = x
    return array


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_of_format_2(tmp_path: Path, dtype: np.dtype, order: str) -> None:
    x = X.astype(dtype)
    create(tmp_path / "x", x, Cusz(EB), order=order)
    metadata = json.loads((tmp_path / "x/.zarray").read_text())
    assert metadata["compressor"] == {"id": "cusz", "eb": EB, "mode": "abs", "predictor": "auto"}
    assert metadata["order"] == order
    again = zarr.open_array(str(tmp_path / "x"), mode="r+")
    assert not support.violations(x, again[...], EB)
    again[3:7, 10:20, :] = 1.5  # chunks are read, changed and written
    x[3:7, 10:20, :] = 1.5
    assert not support.violations(x, again[...], 2 * EB)


def test_a_process_that_imports_only_zarr_reads_it(tmp_path: Path) -> None:
    create(tmp_path / "x", X, Cusz(EB))
    assert not support.violations(X, support.read_by_zarr_alone(tmp_path / "x"), EB)


def test_a_damaged_store(tmp_path: Path) -> None:
    create(tmp_path / "x", X, Cusz(EB))
    chunk = tmp_path / "x/1.0.1"
    support.damage(chunk, chunk.stat().st_size // 2)
    array = zarr.open_array(str(tmp_path / "x"), mode="r")
    with pytest.raises(cusz.CorruptArchiveError):
        array[...]
    assert not support.violations(X[:9, :16], array[:9, :16], EB)  # the others can be read
