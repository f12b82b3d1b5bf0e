"""The CUDA engine on a device writes the CPU's archives, byte for byte, and reads the same values from them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import CASES_OF, folder

import cusz_core as cusz
import spline_kinds
import support
from field_kinds import COVERING, KINDS

pytestmark = pytest.mark.gpu

REAL = sorted(Path(os.environ["CUSZ_TEST_DATA"]).glob("*.npy")) if os.environ.get("CUSZ_TEST_DATA") else []
Identical = Callable[..., bytes]


@pytest.mark.parametrize(("name", "shape", "dtype"), COVERING, ids=str)
def test_kinds_and_shapes(identical: Identical, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    kind = KINDS[name]
    identical(kind.make(shape, dtype), kind.eb, kind.mode, **kind.options)


@pytest.mark.parametrize("predictor", ["spline", "auto"])
@pytest.mark.parametrize("name", ["waves", "noise", "mixture", "constant", "last_axis_in_layers"])
def test_spline(identical: Identical, name: str, dtype: np.dtype, predictor: str) -> None:
    """And "auto", which chooses by boxes of the field."""
    kind = spline_kinds.KINDS[name]
    for shape in ((9000,), (70, 130), (90, 100, 110), (2, 9, 17, 33)):
        identical(kind.make(shape, dtype), kind.eb, kind.mode, **kind.options, predictor=predictor)


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
@pytest.mark.parametrize("eb", [0.5, 1e-2, 1e-4, 1e-6])
def test_bounds_relative_to_every_value(identical: Identical, eb: float, dtype: np.dtype, predictor: str) -> None:
    for shape in ((1,), (31,), (9000,), (70, 130), (90, 100, 110)):
        x = support.many_magnitudes(shape, dtype)
        x.reshape(-1)[1::61], x.reshape(-1)[2::61] = np.nan, np.finfo(dtype).smallest_subnormal
        identical(x, eb, "pw_rel", predictor=predictor)
        identical(np.exp2(support.smooth(shape, dtype)), eb, "pw_rel", predictor=predictor)
    for seed in range(4):
        identical(support.random_bits((37, 41), dtype, seed), eb, "pw_rel", predictor=predictor)


@pytest.mark.parametrize("shape", support.ALL_SHAPES, ids=str)
def test_shapes(identical: Identical, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Including empty ones."""
    identical(support.smooth(shape, dtype), 1e-3, "rel")


@pytest.mark.parametrize("bins", [64, 128, 256, 512, 1024, 2048, 4096, 8192])
def test_bins(identical: Identical, dtype: np.dtype, bins: int) -> None:
    identical(support.smooth((40, 70, 90), dtype), 1e-5, "rel", bins=bins)


@pytest.mark.parametrize("fill", [np.nan, np.inf, -0.0, 0.0, 1e300])
def test_fills(identical: Identical, dtype: np.dtype, fill: float) -> None:
    x = support.smooth((9, 17, 33), dtype).round(1)
    with np.errstate(over="ignore"):
        x.reshape(-1)[::7] = dtype.type(fill)
    x.reshape(-1)[1::77] = -0.0
    x.reshape(-1)[3::77] = np.nan
    for eb, mode in ((1e-2, "rel"), (1e-1, "abs")):
        identical(x, eb, mode, fill=fill)


def test_many_tiles(identical: Identical, dtype: np.dtype) -> None:
    """More tiles than blocks run at once: look-back over many of them, a sampled codebook, escapes from it."""
    x = support.smooth((130, 200, 300), dtype) * dtype.type(1e-3)
    x[20:22] *= 2000
    x[30, ::3] = np.nan
    x[77:80] = support.random_bits(x[77:80].shape, dtype, 3)
    archive = identical(x, 1e-3)
    assert cusz.inspect(archive).tiles > 2000


@pytest.mark.parametrize(("version", "name"), [(version, name) for version in CASES_OF for name in CASES_OF[version]])
def test_golden_archives(cupy: Any, version: int, name: str) -> None:
    """Written and read exactly as stored in the repository."""
    case = CASES_OF[version][name]
    golden = (folder(version) / f"{name}.cusz").read_bytes()
    if case.written:
        x = case.make()
        on_device: Any = case.compress(cupy.asarray(x), device="cuda")
        assert on_device.get().tobytes() == golden
        assert case.compress(x, backend="cuda") == golden
    decoded = cusz.decompress(golden, backend="cpu")
    on_device = cupy.asarray(np.frombuffer(golden, np.uint8))
    cusz.check(on_device)
    assert support.same_bits(cusz.decompress(on_device, like=cupy).get(), decoded)
    assert support.same_bits(cusz.decompress(golden, backend="cuda"), decoded)


@pytest.mark.parametrize("name", ["smooth", "mixture", "incompressible", "lossless"])
def test_fields_on_the_host(cupy: Any, dtype: np.dtype, name: str) -> None:
    """backend="cuda": the same archive from host memory."""
    kind = KINDS[name]
    x = kind.make((50, 60, 70), dtype)
    parameters: dict[str, Any] = {"mode": kind.mode, "predictor": "lorenzo", **kind.options}
    wanted = cusz.compress(x, kind.eb, backend="cpu", **parameters)
    assert cusz.compress(x, kind.eb, backend="cuda", **parameters) == wanted
    assert (
        bytes(cusz.compress(x, kind.eb, backend="cuda", out=bytearray(len(wanted) + x.nbytes), **parameters)) == wanted
    )
    assert support.same_bits(cusz.decompress(wanted, backend="cuda"), cusz.decompress(wanted, backend="cpu"))
    cusz.verify(x, wanted, backend="cuda")


@pytest.mark.parametrize(("shape", "n"), [((16, 16, 16), 700), ((32, 32, 32), 300), ((60, 70), 200), ((5000,), 50)])
def test_many_fields_in_one_call(cupy: Any, dtype: np.dtype, shape: tuple[int, ...], n: int) -> None:
    """Smooth, missing, constant and incompressible ones."""
    kinds = ("smooth", "nan", "constant", "incompressible")
    fields = [np.roll(KINDS[kinds[i % 4]].make(shape, dtype), i) for i in range(n)]
    for mode in ("abs", "rel"):
        on_host = cusz.compress_many(fields, 1e-3, mode, predictor="lorenzo")
        arrays = [cupy.asarray(x) for x in fields]
        assert cusz.compress_many(arrays, 1e-3, mode, predictor="lorenzo", backend="cuda") == on_host


@pytest.mark.parametrize("name", ["smooth", "mixture", "all_nan"])
def test_value_range(cupy: Any, dtype: np.dtype, name: str) -> None:
    kind = KINDS[name]
    x = kind.make((50, 60, 70), dtype)
    fill = kind.options.get("fill")
    assert cusz.value_range(cupy.asarray(x), fill) == cusz.value_range(x, fill)


@pytest.mark.skipif(not REAL, reason="CUSZ_TEST_DATA is not set")
@pytest.mark.parametrize("path", REAL, ids=[path.stem for path in REAL])
@pytest.mark.parametrize("eb", [1e-2, 1e-3, 1e-4])
def test_real_fields(identical: Identical, path: Path, eb: float) -> None:
    fill = 1e20 if path.stem.startswith("ipsl_tos") else None
    identical(np.ascontiguousarray(np.load(path)), eb, "rel", fill=fill)


def test_damaged_archives(cupy: Any, dtype: np.dtype) -> None:
    """The device finds what the CPU finds, and works afterwards."""
    x = KINDS["mixture"].make((18, 33, 40), dtype)
    good = np.frombuffer(cusz.compress(x, 1e-2, fill=1e20, predictor="lorenzo"), np.uint8)
    refused = 0
    for seed in range(100):
        bad = good.copy()
        at = int(support.integers(1, 0, bad.size, seed)[0])
        bad[at] ^= 1 << seed % 8
        verdicts = []
        for archive in (bad.tobytes(), cupy.asarray(bad)):
            try:
                decoded = cusz.decompress(archive)
            except cusz.CuszError as error:
                verdicts.append((type(error), str(error)))
            else:
                verdicts.append((None, decoded.tobytes()))
        assert verdicts[0] == verdicts[1], f"byte {at}"
        refused += verdicts[0][0] is not None
    assert refused > 90
    assert cusz.decompress(cupy.asarray(good)).tobytes() == cusz.decompress(good).tobytes()


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
def test_the_same_again(cupy: Any, predictor: cusz.parameters.Predictor) -> None:
    """Blocks finish in a different order every time; the bytes do not change."""
    x = cupy.asarray(support.smooth((200, 200, 200), support.F32))
    archives = {cusz.compress(x, 1e-4, "rel", predictor=predictor) for _ in range(20)}
    assert len(archives) == 1
