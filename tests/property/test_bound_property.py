"""Properties that hold for every field, found or refuted by hypothesis."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import cusz_core as cusz
import support
from support import DTYPES, check_contract, same_bits

settings.register_profile("cusz", deadline=None, max_examples=100, derandomize=True)
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
def any_fields(draw):
    """Any values, special ones included, in any small shape."""
    dtype = draw(dtypes)
    width = 8 * dtype.itemsize
    elements = st.one_of(
        st.floats(width=width),
        st.floats(width=width, min_value=-1, max_value=1),
        st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1e20, 1.0]).map(
            lambda v: float(dtype.type(v))
        ),
    )
    return draw(arrays.arrays(dtype, draw(shapes), elements=elements))


@st.composite
def near_ties(draw):
    """(field, bound): values a few steps of the type beside (k + 1/2) 2 eb, where predicted and verbatim meet."""
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


@given(x=any_fields(), eb=bounds, mode=modes, fill=fills)
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
    """Decoded measurements: integers times a power of two, and often exactly at the bound."""
    x = np.ldexp(support.integers(int(np.prod(shape)), -(2**digits), 2**digits, seed).astype(np.float64), exponent)
    x = x.astype(dtype).reshape(shape)
    check_contract(x, eb, mode)
    check_contract(x, float(np.ldexp(1.0, exponent)), "abs")
    check_contract(x, float(np.ldexp(1.0, exponent - 1)), "abs")


@given(x=any_fields())
def test_lossless_is_lossless(x):
    assert same_bits(x, cusz.decompress(cusz.compress(x, 0.0)))


@given(x=any_fields(), eb=bounds, mode=modes, fill=fills)
@settings(max_examples=60)
def test_compressing_twice_changes_nothing_more_than_once(x, eb, mode, fill):
    first = cusz.compress(x, eb, mode, fill=fill)
    assert cusz.compress(x, eb, mode, fill=fill, threads=3) == first
    y = cusz.decompress(first)
    if mode == "abs":
        check_contract(y, eb, mode, fill=fill)


@given(data=st.binary(max_size=400), seed=st.integers(0, 10**6))
@settings(max_examples=300)
def test_no_bytes_crash_the_reader(data, seed):
    for archive in (data, b"cuSZ\0" + data):
        try:
            cusz.decompress(archive)
        except cusz.CuszError:
            pass
        else:
            raise AssertionError("noise was taken for an archive")
