"""Properties that hold for every field, found or refuted by hypothesis."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import cusz_core as cusz
import support
from strategies import any_fields
from support import DTYPES, F32, F64, check_contract, same_bits

settings.register_profile("cusz", max_examples=100, derandomize=True)
settings.load_profile("cusz")

dtypes = st.sampled_from(DTYPES)
modes = st.sampled_from(["abs", "rel"])
bounds = st.one_of(
    st.floats(min_value=0.0, allow_infinity=False, allow_nan=False),
    st.floats(min_value=1e-12, max_value=1e3),
    st.sampled_from(
        [5e-324, 1e-310, 1.1754943508222875e-38, 2.2250738585072014e-308, 1e-3, 0.1, 1 / 3, 1.0, 1e38, 1.7e308]
    ),
)
shapes = arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=20)
fills = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1e20, -9999.0, float("nan"), float("inf")]))


@st.composite
def near_ties(draw):
    """(field, bound): values within a few steps of the type from (k + 1/2) 2 eb, between predicted and verbatim."""
    dtype = draw(dtypes)
    limits = np.finfo(dtype)
    eb = draw(st.one_of(st.floats(min_value=float(limits.tiny) * 4, max_value=float(limits.max) / 8),
                        st.floats(min_value=1e-9, max_value=1e3)))  # fmt: skip
    digits = draw(st.integers(min_value=1, max_value=26 if dtype.itemsize == 4 else 55))
    n = draw(st.integers(min_value=1, max_value=300))
    seed = draw(st.integers(min_value=0, max_value=2**31 - 1))
    k = support.integers(n, -(2**digits), 2**digits, seed).astype(np.float64)
    with np.errstate(over="ignore"):
        x = ((k + draw(st.sampled_from([0.5, 0.5, 0.0, 0.25]))) * (2 * eb)).astype(dtype)
    steps = draw(st.integers(min_value=0, max_value=3))
    direction = np.where(support.integers(n, 0, 2, seed + 1) == 1, np.inf, -np.inf).astype(dtype)
    with np.errstate(over="ignore", under="ignore"):
        for _ in range(steps):
            x = np.nextafter(x, direction)
    return x, eb


@given(x=any_fields(shapes), eb=bounds, mode=modes, fill=fills)
def test_any_field(x, eb, mode, fill):
    check_contract(x, eb, mode, fill=fill)


@given(case=near_ties())
@settings(max_examples=300)
def test_near_ties(case):
    x, eb = case
    check_contract(x, eb)


@given(dtype=dtypes, seed=st.integers(0, 2**31 - 1), shape=shapes, eb=bounds, mode=modes)
def test_any_bit_pattern(dtype, seed, shape, eb, mode):
    check_contract(support.random_bits(shape, dtype, seed), eb, mode)


@given(
    dtype=dtypes,
    seed=st.integers(0, 2**31 - 1),
    shape=shapes,
    digits=st.integers(1, 40),
    exponent=st.integers(-60, 60),
    eb=bounds,
    mode=modes,
)
def test_values_of_few_digits(dtype, seed, shape, digits, exponent, eb, mode):
    """Like decoded measurements: integers times a power of two, often exactly at the bound."""
    x = np.ldexp(support.integers(int(np.prod(shape)), -(2**digits), 2**digits, seed).astype(np.float64), exponent)
    x = x.astype(dtype).reshape(shape)
    check_contract(x, eb, mode)
    check_contract(x, float(np.ldexp(1.0, exponent)), "abs")
    check_contract(x, float(np.ldexp(1.0, exponent - 1)), "abs")


@given(x=any_fields(shapes), eb=bounds, mode=modes, fill=fills)
@settings(max_examples=60)
def test_compressing_twice_changes_nothing_more_than_once(x, eb, mode, fill):
    first = cusz.compress(x, eb, mode, fill=fill)
    assert cusz.compress(x, eb, mode, fill=fill, threads=3) == first
    y = cusz.decompress(first)
    if mode == "abs":
        check_contract(y, eb, mode, fill=fill)


# Decoded values that are compressed again, as a store does when part of a chunk is replaced.


def again(x: np.ndarray, eb: float, **options: Any) -> np.ndarray:
    """Compresses and decompresses, with Lorenzo by default."""
    return cusz.decompress(cusz.compress(x, eb, **{"predictor": "lorenzo", **options}))


@given(x=any_fields(shapes), eb=bounds, fill=fills)
def test_lorenzo_with_an_absolute_bound_changes_nothing(x: np.ndarray, eb: float, fill: float | None) -> None:
    y = again(x, eb, fill=fill)
    assert same_bits(again(y, eb, fill=fill), y)


@given(case=near_ties())
def test_nor_where_values_are_near_ties(case: tuple[np.ndarray, float]) -> None:
    y = again(*case)
    assert same_bits(again(y, case[1]), y)


@given(x=any_fields(shapes), eb=bounds, seed=st.integers(0, 10**6))
def test_nor_when_values_beside_them_change(x: np.ndarray, eb: float, seed: int) -> None:
    """Every value is rounded by itself, so a rounded value is decoded to the same value again.

    Others are rounded only then, if their field or tile was first stored raw.
    """
    y = again(x, eb)
    stays = support.integers(y.size, 0, 2, seed).reshape(y.shape) == 1
    replaced = np.where(stays, y, support.random_bits(y.shape, y.dtype, seed))
    is_rounded = stays & (support.bits(y) != support.bits(x))
    assert same_bits(again(replaced, eb)[is_rounded], y[is_rounded])


FIELDS = {
    "waves": support.smooth((12, 40, 50), F32),
    "of doubles": support.smooth((3, 9, 17, 33), F64),
    "noise": support.random_bits((3000,), F64),
    "many magnitudes": support.many_magnitudes((40, 50), F32),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fifty_times(name: str) -> None:
    x = FIELDS[name]
    y = first = again(x, 1e-3)
    for _ in range(50):
        y = again(y, 1e-3)
    assert same_bits(y, first)


@pytest.mark.parametrize("mode", ["abs", "pw_rel"])
@pytest.mark.parametrize("predictor", ["lorenzo", "spline", "auto"])
@pytest.mark.parametrize("name", ["waves", "many magnitudes"])
def test_where_something_changes_each_time_adds_a_bound_at_most(name: str, mode: Any, predictor: Any) -> None:
    x = FIELDS[name].astype(np.float64)
    y, eb = x, 2.0**-7
    for times in range(1, 5):
        y = again(y, eb, mode=mode, predictor=predictor)
        most = times * eb if mode == "abs" else abs(x) * ((1 + eb) ** times - 1)
        assert (abs(y - x) <= most).all()  # the values have few enough digits for this to be exact


@pytest.mark.parametrize("fill", [None, 1e20])
def test_an_absolute_bound_worked_out_once(fill: float | None) -> None:
    """As docs/guides/hdf5.md and docs/guides/zarr.md advise for data that grow within chunks."""
    x = FIELDS["waves"].copy()
    if fill is not None:
        x[:2, :5] = fill
    eb = cusz.value_range(x, fill).absolute_bound(1e-3)
    assert eb == cusz.inspect(cusz.compress(x, 1e-3, "rel", fill=fill, predictor="lorenzo")).eb_abs
    chunk = np.zeros_like(x)
    for step, values in enumerate(x):
        chunk[step] = values
        chunk = again(chunk, eb, fill=fill)
    assert not support.violations(x, chunk, eb, fill)


def test_an_illegal_bound() -> None:
    with pytest.raises(cusz.ParameterError, match="eb is -1"):
        cusz.value_range(FIELDS["waves"]).absolute_bound(-1)
