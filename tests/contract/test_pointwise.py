"""Mode pw_rel: |d - d'| <= eb |d| for every finite value, exactly; zeros, signs and everything else bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import cusz_core as cusz
import support
from support import DTYPES, F32, F64, SHAPES

PREDICTORS = ["lorenzo", "spline", "auto"]
BOUNDS = [1e-1, 1e-3, 1e-5]


def check(x: np.ndarray, eb: float, fill: float | None = None, predictor: str = "auto", **options: Any) -> bytes:
    return support.check_contract(x, eb, "pw_rel", fill=fill, predictor=predictor, **options)


# ------------------------------------------------------------------------------------------------------- the bound


@support.pairs("eb, predictor, ndim", BOUNDS, PREDICTORS, SHAPES)
def test_shapes(ndim: int, predictor: str, eb: float, dtype: np.dtype) -> None:
    for shape in SHAPES[ndim]:
        check(support.many_magnitudes(shape, dtype), eb, predictor=predictor)


@pytest.mark.parametrize("eb", [1e300, 2.5, 1.0, 0.999, 1e-2, 1e-4, 1e-6, 3e-7, 1e-7, 1e-9, 1e-14, 1e-300])
def test_every_bit_pattern(eb: float, dtype: np.dtype) -> None:
    """Subnormals, the largest values, infinities, NaN of any payload."""
    for seed in range(3):
        check(support.random_bits((5000,), dtype, seed), eb)
    limits = np.finfo(dtype)
    special = [0, limits.smallest_subnormal, limits.tiny, limits.max, np.inf, np.nan, 1, limits.eps, 1 - limits.epsneg]
    special += [np.nextafter(limits.tiny, 0), np.nextafter(limits.tiny, 1), np.nextafter(limits.max, 0)]
    one = np.array([*special, *(-value for value in special)], dtype)
    check(one, eb)
    with np.errstate(over="ignore"):
        check(np.tile(one, 500) * np.repeat(np.array([1, 1.5, 2, 3], dtype), one.size * 125), eb)
    for value in one:
        check(np.full(3000, value), eb)


@settings(max_examples=150)
@given(
    x=st.sampled_from(DTYPES).flatmap(
        lambda dtype: st_numpy.arrays(
            dtype,
            st_numpy.array_shapes(max_dims=4, max_side=9),
            elements=st.floats(width=8 * dtype.itemsize, allow_nan=True, allow_infinity=True),
        )
    ),
    eb=st.floats(1e-9, 4),
    predictor=st.sampled_from(PREDICTORS),
    fill=st.none() | st.floats(allow_nan=True),
)
def test_any_values(x: np.ndarray, eb: float, predictor: str, fill: float | None) -> None:
    large = np.tile(x, (*[1] * (x.ndim - 1), 1 + 3000 // x.size))  # small ones are stored raw
    check(large, eb, fill, predictor=predictor)


@pytest.mark.parametrize(
    "fill", [1e20, 0.0, -0.0, -999.0, 1.0, math.nan, math.inf, -math.inf, 1e-310, 3.4028234663852886e38]
)
def test_fill(fill: float, dtype: np.dtype) -> None:
    x = support.many_magnitudes((40, 50), dtype)
    x[5:17, 3:20] = np.array(fill).astype(dtype)
    x[20, :] = np.nan
    x[21, ::2] = np.inf
    archive = check(x, 1e-3, fill)
    assert cusz.inspect(archive).special >= 12 * 17
    check(x, 1e-3)


def test_a_bound_of_0_is_lossless(dtype: np.dtype) -> None:
    x = support.many_magnitudes((300,), dtype)
    assert cusz.compress(x, 0.0, "pw_rel") == cusz.compress(x, 0.0)


# ------------------------------------------------------------------------------------------------ what it is good for


def test_small_values_keep_their_digits(dtype: np.dtype) -> None:
    """A bound that is the same for all values loses them, or takes far more bytes."""
    x = np.exp2(6 * support.smooth((40, 50, 60), F64)).astype(dtype)
    archive = check(x, 1e-3)
    same_for_the_smallest = cusz.compress(x, float(1e-3 * x.min()))
    assert 1.5 * len(archive) < len(same_for_the_smallest)


@support.needs_zstd
def test_signs_cost_little_where_they_are_in_groups() -> None:
    x = support.many_magnitudes((64, 64, 64), F32)
    assert len(check(x, 1e-3)) < 1.15 * len(check(np.abs(x), 1e-3))


@support.needs_zstd
def test_the_lossless_stage() -> None:
    x = (2.0 ** (np.indices((40, 50, 60)).sum(axis=0) % 32)).astype(F32)
    assert len(check(x, 1e-3, lossless="zstd")) < len(check(x, 1e-3))


# ------------------------------------------------------------------------------------------------------- verification


def test_verify_decides_exactly() -> None:
    x = support.many_magnitudes((50, 60), F64)
    archive = cusz.compress(x, 1e-3, "pw_rel")
    found = cusz.verify(x, archive)
    assert 0.5 < found.max_error_over_eb <= 1
    y = cusz.decompress(archive)
    at = np.unravel_index(int(np.argmax(np.where(x != 0, np.abs(x), 0))), x.shape)
    for wrong in (y[at] * (1 + 1.1e-3), -y[at]):
        other = x.copy()
        other[at] = wrong
        with pytest.raises(cusz.BoundError, match="1 of 3000 values break the bound") as error:
            cusz.verify(other, archive)
        assert error.value.index == tuple(map(int, at))
    zero = tuple(int(i[0]) for i in np.nonzero(x == 0))
    other = x.copy()
    other[zero] = -x[zero]
    with pytest.raises(cusz.BoundError, match="not bit for bit"):
        cusz.verify(other, archive)


def test_verify_tells_of_values_that_are_not_finite() -> None:
    x = np.linspace(1, 2, 5000, dtype=F32)
    other = x.copy()
    other[77] = np.nan
    for archive, original in ((cusz.compress(other, 1e-2, "pw_rel"), x), (cusz.compress(x, 1e-2, "pw_rel"), other)):
        with pytest.raises(cusz.BoundError, match="1 of 5000 values break the bound") as error:
            cusz.verify(original, archive)
        assert error.value.index == (77,)


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_large_bounds(predictor: str) -> None:
    """Codes of subnormals stay verbatim, and the budget of errors covers its own rounding."""
    x = np.full(4096, 1e-300)
    x[::50] = 5e-324
    for eb in (1.9591782342509188e296, 1e308, 2.0**64, 2.0**256):
        check(x, eb, predictor=predictor)
    eb = 1.2003689999839983e126
    y = np.geomspace(3e70, 5e70, 20000)
    y[0], y[1], y[2] = np.finfo(F64).tiny, 1.9 * 2.0**1022, 3.8484756738795286e70
    check(y, eb, predictor=predictor)
