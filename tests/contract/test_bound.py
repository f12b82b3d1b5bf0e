"""The bound is strict, for every shape, type, mode and bound, and an archive is never larger than raw + 48 bytes."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cusz_core as cusz
import support
from cusz_core import embedding
from support import F32, F64, check_contract, same_bits

BOUNDS = {"abs": (1e-1, 1e-3), "rel": (1e-2, 1e-4)}


@pytest.mark.parametrize("shape", support.ALL_SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_every_shape(shape, dtype, backend):
    x = support.smooth(shape, dtype, seed=len(shape))
    for mode, bounds in BOUNDS.items():
        for eb in bounds:
            check_contract(x, eb, mode, backend=backend)
    assert same_bits(x, cusz.decompress(check_contract(x, 0.0, backend=backend)))


@pytest.mark.parametrize("shape", [(4097,), (65, 70), (9, 17, 33), (2, 9, 17, 33)], ids=str)
@pytest.mark.parametrize("exponent", [-300, -45, -38, -20, -7, -1, 0, 3, 30, 38, 300])
def test_any_bound(shape, dtype, exponent, backend):
    x = support.smooth(shape, dtype, seed=3)
    for factor in (1.0, 1.1, 3.7):
        check_contract(x, factor * 10.0**exponent, backend=backend)


#: A bound whose product with a range is rounded up.
ROUNDED_UP = 0.003953504949403078


@given(
    st.floats(1e-12, 1.0),
    st.floats(-1e300, 1e300, allow_subnormal=False),
    st.floats(-1e300, 1e300, allow_subnormal=False),
)
@example(ROUNDED_UP, 0.0, 3.0)
def test_the_bound_in_force_of_a_relative_one(eb, low, high):
    """It is the rounded product, and archives hold it. For an eb smaller by 2^-51 of itself, it never exceeds the exact
    product of eb."""
    low, high = min(low, high), max(low, high)
    exact = Fraction(eb) * (Fraction(high) - Fraction(low))
    if exact < Fraction(1e-290):
        return
    x = np.array([low, high, low / 2 + high / 2])
    archive = cusz.compress(x, eb, "rel")
    info = cusz.inspect(archive)
    bound = support.absolute_bound(x, eb, "rel")
    assert (info.eb_abs if info.kind == "tiled" else bound) == bound == embedding.absolute_bound(eb, low, high)
    assert abs(Fraction(bound) / exact - 1) <= Fraction(3, 2**53)
    cusz.verify(x, archive)
    assert Fraction(embedding.absolute_bound(eb * (1 - 2**-51), low, high)) <= exact
    assert Fraction(embedding.absolute_bound(ROUNDED_UP, 0, 3)) > Fraction(ROUNDED_UP) * 3


@pytest.mark.parametrize("exponent", range(-7, 0))
def test_relative_bounds(dtype, exponent, backend):
    for shape in ((20000,), (130, 140), (20, 30, 40), (3, 9, 20, 40)):
        check_contract(support.smooth(shape, dtype, seed=7), 10.0**exponent, "rel", backend=backend)


@pytest.mark.parametrize("coarse", ["same", "fine", "finer", "finest"])
@pytest.mark.parametrize("shape", [(3000,), (60, 70), (20, 30, 40), (5, 6, 20, 30)], ids=str)
def test_coarser_lattices(shape, dtype, coarse, backend):
    """With smaller bounds they are closer to the field, and the PSNR is higher."""
    x = support.smooth(shape, dtype)
    archive = check_contract(x, 1e-2, "rel", predictor="spline", coarse=coarse, backend=backend)
    assert cusz.inspect(archive).coarse == coarse
    assert cusz.compress(x, 1e-2, "rel", predictor="auto", coarse=coarse) in (
        archive,
        cusz.compress(x, 1e-2, "rel", predictor="lorenzo"),
    )
    lowest = cusz.verify(x, check_contract(x, 1e-2, "rel", predictor="spline", coarse="same")).psnr
    assert coarse == "same" or cusz.verify(x, archive).psnr > lowest


@pytest.mark.parametrize("bins", [64, 128, 256, 512, 1024, 2048, 4096, 8192])
def test_every_number_of_bins(bins, dtype, backend):
    x = support.smooth((40, 50, 60), dtype)
    for eb in (1e-2, 1e-5):
        archive = check_contract(x, eb, "rel", bins=bins, backend=backend, predictor="lorenzo")
        assert cusz.inspect(archive).bins == bins


def test_smooth_fields_get_smaller(dtype, backend):
    x = support.smooth((64, 64, 64), dtype)
    ratios = [x.nbytes / len(check_contract(x, eb, "rel", backend=backend)) for eb in (1e-4, 1e-3, 1e-2, 1e-1)]
    assert ratios == sorted(ratios)
    assert ratios[1] > 3


@pytest.mark.parametrize("shape", [(1,), (3,), (40,), (4096,), (33, 35), (9, 17, 33)], ids=str)
def test_noise_is_stored_raw_and_never_grows_further(shape, dtype, backend):
    x = support.random_bits(shape, dtype, seed=5)
    for eb in (1e-30, 1e-3, 1.0, 1e10):
        check_contract(x, eb, backend=backend)
        check_contract(x, eb, "rel", backend=backend)


def test_bounds_between_two_values_of_the_type(dtype, backend):
    """A bound that the type cannot hold must be rounded down, never up."""
    x = support.smooth((5000,), dtype, seed=11)
    one = float(np.finfo(dtype).eps)
    for base in (1e-3, 1 / 3, 0.1, 2.0**-10):
        for nudge in (-one / 3, one / 7, one / 3):
            check_contract(x, base * (1 + nudge), backend=backend)
    for eb in (math.nextafter(2.0**-8, 0), math.nextafter(2.0**-8, 1)):
        check_contract(x, eb, backend=backend)


@pytest.mark.parametrize("eb", [1e-3, 0.1, 1 / 3, 7e-5, 3.0, 2.0**-12, 1.7e6])
def test_values_halfway_between_two_steps(dtype, eb, backend):
    """d = (k + 1/2) * 2 eb and its neighbours, where rounding decides between just inside and just outside the bound;
    also multiples of eb, some of which lie halfway from others."""
    n = 20000
    k = np.concatenate([support.integers(n, -50, 50, 1), support.integers(n, -(2**20), 2**20, 2)])
    x = ((k + 0.5) * (2 * eb)).astype(dtype)
    towards = np.where(support.integers(x.size, 0, 2, 3) == 1, np.inf, -np.inf).astype(dtype)
    for y in ((k * eb).astype(dtype), x.reshape(200, 200), x, np.nextafter(x, towards)):
        archive = check_contract(y, eb, backend=backend)
    assert cusz.inspect(archive).ratio > 1 or dtype == F32


def test_values_far_beyond_the_bound(dtype, backend):
    """Values so large that their type has fewer digits than the bound asks for, among ordinary ones."""
    x = support.smooth((20, 30, 40), dtype)
    flat = x.reshape(-1)
    flat[::7] *= dtype.type(1e12)
    flat[3::101] = np.finfo(dtype).max
    flat[4::101] = np.finfo(dtype).min
    for eb in (1e-6, 1e-3, 1e5, 1e30):
        check_contract(x, eb, backend=backend)
    for eb in (1e-1, 1e-4, 1.0, 0.5):
        check_contract(x, eb, "rel", backend=backend)


def test_tiny_magnitudes(dtype, backend):
    tiny = np.finfo(dtype).smallest_subnormal
    values = (support.integers(9000, -100, 100) * np.float64(tiny)).astype(dtype)
    for shape in ((9000,), (90, 100), (9, 10, 100)):
        x = values.reshape(shape)
        for eb in (0.0, float(tiny), 3 * float(tiny), 1000 * float(tiny), float(np.finfo(dtype).tiny), 1e-300, 1e-3):
            check_contract(x, eb, backend=backend)
        normal = x * dtype.type(2.0) ** (26 if dtype == F32 else 60)
        for eb in (1e-1, 1e-3):
            check_contract(x, eb, "rel", backend=backend)
            check_contract(normal, eb, "rel", backend=backend)


def test_the_largest_range(dtype, backend):
    """max - min overflows: the range is computed from halves and doubled. Predictions and differences overflow, too."""
    limits = np.finfo(dtype)
    values = np.array([limits.min, limits.max, 0, 1, -1, limits.max / 3, limits.min / 7] * 300, dtype)
    for shape in ((2100,), (42, 50), (10, 14, 15)):
        x = values.reshape(shape)
        for eb in (1e-6, 1e-3, 0.3, 0.5, 0.75, 1.0, 10.0):
            check_contract(x, eb, "rel", backend=backend)
        for eb in (1e30, float(np.finfo(F32).max), float(np.finfo(F64).max)):
            check_contract(x, eb, backend=backend)


@pytest.mark.parametrize("shape", [(5000,), (70, 70), (9, 17, 33), (3, 9, 17, 33)], ids=str)
def test_checkerboards(shape, dtype, backend):
    parity = np.indices(shape).sum(axis=0) % 2
    for low, high in ((0, 1), (-1, 1), (1e-3, 1e3), (0, 1e30)):
        x = np.where(parity == 0, low, high).astype(dtype)
        for eb in (1e-6, 1e-3, 0.5, 2.0):
            check_contract(x, eb, backend=backend)
        check_contract(x, 1e-3, "rel", backend=backend)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -3.7, 1e30, 1e-40])
def test_constant_fields(value, dtype, backend):
    for shape in ((10000,), (100, 101), (9, 17, 33)):
        x = np.full(shape, value, dtype)
        archive = check_contract(x, 1e-3, backend=backend)
        if abs(value) < 1e30:
            assert len(archive) < x.nbytes / 4
        assert same_bits(x, cusz.decompress(check_contract(x, 1e-3, "rel", backend=backend)))  # range 0: lossless
        assert same_bits(x, cusz.decompress(check_contract(x, 0.0, backend=backend)))


def test_spikes_and_steps(dtype, backend):
    x = support.smooth((20, 40, 40), dtype)
    flat = x.reshape(-1)
    flat[support.integers(200, 0, flat.size)] *= dtype.type(1e5)
    flat[support.integers(50, 0, flat.size, 1)] = dtype.type(1e30)
    x[10:] += dtype.type(5000)
    for eb in (1e-2, 1e-4):
        check_contract(x, eb, backend=backend)


def test_mostly_dead_fields(dtype, backend):
    """Long runs of one value with single other values: groups and whole tiles without a symbol."""
    for shape in ((60000,), (300, 200), (40, 40, 40), (3, 20, 40, 40)):
        x = np.zeros(shape, dtype)
        islands = support.integers(40, 0, x.size)
        x.reshape(-1)[islands] = support.integers(40, -1000, 1000, 1)
        for eb in (1e-3, 1.0):
            archive = check_contract(x, eb, backend=backend)
            assert len(archive) < x.nbytes / 10


@pytest.mark.long
@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_large_fields(ndim, dtype, backend):
    """From 128 tiles on, the codebook comes from a sample of the tiles."""
    shape = {1: (6_000_001,), 2: (2049, 2051), 3: (130, 150, 170), 4: (5, 70, 90, 110)}[ndim]
    x = support.smooth(shape, dtype)
    for eb in (1e-2, 1e-4, 1e-6):
        check_contract(x, eb, "rel", backend=backend)


def test_a_sampled_codebook(dtype, backend):
    """More than 1024 tiles, with symbols that the sample does not show."""
    x = support.smooth((4_300_003,), dtype)
    x[support.integers(3000, 0, x.size)] += dtype.type(300)
    for bins in (64, 1024):
        check_contract(x, 1e-4, "rel", bins=bins, backend=backend)
