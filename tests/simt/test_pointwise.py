"""Pointwise relative bounds: a device takes the same logarithms as the CPU, and returns the same values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from simt_checks import check_identity
from simt_library import DEVICE, HOST, PW_REL, Context, Library

import support

pytestmark = pytest.mark.simt

SHAPES = [(1,), (31,), (64,), (5000,), (130, 150), (18, 33, 40), (3, 9, 17, 33)]
#: 1e-6 takes f64 logarithms of f32 values, and 1e-9 is beyond their arithmetic.
BOUNDS = [0.5, 1e-2, 1e-4, 1e-6, 1e-9]


def with_everything(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Many magnitudes, zeros, signs, subnormals, infinities and NaN."""
    x = support.many_magnitudes(shape, dtype)
    flat = x.reshape(-1)
    tiny = np.finfo(dtype).smallest_subnormal
    for start, value in ((1, np.nan), (2, np.inf), (3, -np.inf), (4, tiny), (6, -tiny * dtype.type(1000)), (7, 1e20)):
        flat[start::61] = value
    return x


@support.pairs("shape, eb, dtype, predictor", SHAPES, BOUNDS, support.DTYPES, ["lorenzo", "spline"])
def test_fields(
    simt: Library, reused: Context, shape: tuple[int, ...], eb: float, dtype: np.dtype, predictor: str
) -> None:
    archive = check_identity(reused, with_everything(shape, dtype), eb, PW_REL, predictor=predictor)
    if len(shape) > 1 and eb > 1e-3:
        assert reused.info_of(archive).kind == 1


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("eb", BOUNDS[:-1])
def test_fields_that_compress_with_any_bound(
    simt: Library, reused: Context, eb: float, dtype: np.dtype, predictor: str
) -> None:
    for shape in ((5000,), (130, 150), (18, 33, 40)):
        archive = check_identity(reused, np.exp2(support.smooth(shape, dtype)), eb, PW_REL, predictor=predictor)
        assert reused.info_of(archive).kind == 1


@pytest.mark.parametrize("place", [HOST, DEVICE])
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_fills_and_places(simt: Library, reused: Context, dtype: np.dtype, place: str) -> None:
    x = with_everything((40, 50, 60), dtype)
    for fill in (1e20, 0.0, -0.0, np.nan):
        check_identity(reused, x, 1e-3, PW_REL, archive=place, fill=fill)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_without_signs(simt: Library, reused: Context, dtype: np.dtype) -> None:
    check_identity(reused, np.abs(support.many_magnitudes((70, 90), dtype)), 1e-3, PW_REL)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_without_logarithms(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """There is no exponent to begin with."""
    for value in (0.0, np.nan, np.inf, np.finfo(dtype).smallest_subnormal):
        check_identity(reused, np.full((40, 50), value, dtype), 1e-3, PW_REL)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_any_bits(simt: Library, reused: Context, dtype: np.dtype) -> None:
    for seed in range(4):
        for eb in (0.1, 1e-3):
            check_identity(reused, support.random_bits((37, 41), dtype, seed), eb, PW_REL)


def test_more_values_than_threads_at_once(simt: Library, reused: Context) -> None:
    check_identity(reused, support.many_magnitudes((90, 100, 110), support.F32), 1e-2, PW_REL)
