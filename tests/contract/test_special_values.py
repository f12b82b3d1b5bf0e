"""NaN, infinities and fill come back bit for bit, wherever they are; zeros may lose their sign, nothing else."""

import numpy as np
import pytest

import cusz_core as cusz
import support
from support import F32, check_contract, same_bits

SHAPES = [(5000,), (70, 71), (9, 17, 33), (2, 9, 17, 33)]
DENSITIES = (1, 2, 7, 300)


def nan_payloads(dtype, n):
    """NaN of both signs, quiet and signalling, with many payloads; a third of them canonical."""
    h = support.hashes(n, 17)
    if dtype == F32:
        payload = (h >> np.uint64(41)).astype(np.uint32) | np.uint32(1)
        nans = np.uint32(0x7F800000) | payload | ((h & np.uint64(1)).astype(np.uint32) << np.uint32(31))
        nans[h % np.uint64(3) == 0] = 0x7FC00000
    else:
        nans = (
            np.uint64(0x7FF0000000000000) | (h >> np.uint64(12)) | np.uint64(1) | ((h & np.uint64(1)) << np.uint64(63))
        )
        nans[h % np.uint64(3) == 0] = 0x7FF8000000000000
    return nans.view(dtype)


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nan_of_every_payload(shape, dtype, density, backend):
    x = support.smooth(shape, dtype)
    where = support.integers(x.size, 0, density, 5).reshape(shape) == 0
    x[where] = nan_payloads(dtype, int(where.sum()))
    for eb, mode in ((1e-3, "abs"), (1e-3, "rel"), (0.0, "abs")):
        y = cusz.decompress(check_contract(x, eb, mode, backend=backend))
        assert same_bits(x[where], y[where])
        assert np.isfinite(y[~where]).all()


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_infinities_do_not_count_in_the_range(shape, dtype, density, backend):
    x = support.smooth(shape, dtype)
    where = support.integers(x.size, 0, density, 6).reshape(shape) == 0
    x[where] = np.where(support.integers(int(where.sum()), 0, 2, 7) == 0, np.inf, -np.inf)
    for eb, mode in ((1e-3, "abs"), (1e-3, "rel"), (1e30, "abs")):
        y = cusz.decompress(check_contract(x, eb, mode, backend=backend))
        assert same_bits(x[where], y[where])


@pytest.mark.parametrize("fill", [1e20, -9999.0, -9999.9, 0.0, -0.0, np.nan, np.inf, 9.96921e36])
def test_fill(fill, dtype, backend):
    for shape in SHAPES:
        for density in DENSITIES:
            x = support.smooth(shape, dtype)
            where = support.integers(x.size, 0, density, 8).reshape(shape) == 0
            x[where] = dtype.type(fill)
            x.reshape(-1)[3::97] = -np.nan
            x.reshape(-1)[4::197] = np.inf
            x.reshape(-1)[5::197] = -np.inf
            for eb, mode in ((1e-3, "abs"), (1e-3, "rel"), (1e21, "abs")):
                check_contract(x, eb, mode, fill=fill, backend=backend)


def test_fill_in_blocks_costs_little(dtype, backend):
    """Land in an ocean: whole tiles of fill, and coasts."""
    x = support.smooth((6, 80, 120), dtype)
    clean = len(check_contract(x, 1e-3, "rel", backend=backend))
    x[:, 20:60, 40:90] = dtype.type(1e20)
    archive = check_contract(x, 1e-3, "rel", fill=1e20, backend=backend)
    assert len(archive) < 1.1 * clean
    info = cusz.inspect(archive)
    assert info.fill == float(dtype.type(1e20))
    assert info.special > 0


def test_a_neighbour_of_fill_is_an_ordinary_value(dtype, backend):
    fill = dtype.type(1e20)
    x = np.full(5000, fill, dtype)
    x[::3] = np.nextafter(fill, dtype.type(0))
    x[1::5] = 1
    for eb in (1e-3, 1e3, 1e19):
        y = cusz.decompress(check_contract(x, eb, fill=float(fill), backend=backend))
        assert same_bits(x[x == fill], y[x == fill])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e20])
@pytest.mark.parametrize("shape", [(1,), (10000,), (100, 70), (17, 33, 65), (2, 9, 17, 33)], ids=str)
def test_nothing_but_special_values(shape, value, dtype, backend):
    x = np.full(shape, value, dtype)
    for fill in (None, value):
        for mode in ("abs", "rel"):
            assert same_bits(x, cusz.decompress(check_contract(x, 1e-3, mode, fill=fill, backend=backend)))


@pytest.mark.parametrize("position", [0, 1, 31, 32, 511, 512, 4095, 4096, -1])
def test_one_special_value_anywhere(position, dtype, backend):
    for value in (np.nan, np.inf, 1e20):
        x = support.smooth((5, 30, 40), dtype)
        x.reshape(-1)[position] = value
        check_contract(x, 1e-3, backend=backend, fill=1e20)


@pytest.mark.parametrize("position", [0, 7, 4095, 4096, -1])
def test_one_value_among_special_ones(position, dtype, backend):
    for value in (np.nan, np.inf, 1e20):
        x = np.full((5, 30, 40), value, dtype)
        x.reshape(-1)[position] = 3.25
        check_contract(x, 1e-3, backend=backend, fill=1e20)
        check_contract(x, 1e-3, "rel", backend=backend, fill=1e20)


def test_zeros_and_subnormals(dtype, backend):
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([0.0, -0.0, tiny, -tiny, np.finfo(dtype).tiny, 1.0, -1.0] * 500, dtype)
    for eb in (1e-3, 1e-30, 1e-44, 1e-310):
        check_contract(x, eb, backend=backend)
    y = cusz.decompress(check_contract(x, 0.0, backend=backend))
    assert same_bits(x, y)


def test_rare_values_outside_the_sample_of_the_codebook(dtype, backend):
    """From 128 tiles on, the codebook is made from a sample; here special values and outliers occur only outside it."""
    for tile in (2, 3, 6):
        x = support.integers(130 * 4096, -30, 30, 3).astype(dtype)
        x[tile * 4096 + 100 : tile * 4096 + 400 : 60] = [np.nan, np.inf, -np.inf, 1e30, -7.0]
        check_contract(x, 0.1, backend=backend)
        check_contract(x, 0.1, fill=-7.0, backend=backend)


def test_every_bit_pattern(dtype, backend):
    for seed, shape in enumerate(SHAPES):
        x = support.random_bits(shape, dtype, seed)
        for eb, mode in ((1e-20, "abs"), (1.0, "abs"), (1e20, "abs"), (1e-3, "rel"), (1.0, "rel")):
            check_contract(x, eb, mode, backend=backend)
            check_contract(x, eb, mode, fill=float(x.reshape(-1)[11]), backend=backend)


def test_value_range(dtype):
    x = np.array([np.nan, -np.inf, 3, -2, 1e20, np.inf], dtype)
    assert cusz.value_range(x) == (-2, float(dtype.type(1e20)), 3)
    assert cusz.value_range(x, fill=1e20) == (-2, 3, 2)
    assert cusz.value_range(x[:2]) == (0, 0, 0)
    assert cusz.value_range(x[:0]) == (0, 0, 0)
    zeros = cusz.value_range(np.array([-0.0, -0.0], dtype))
    assert zeros == (0, 0, 2)
    assert not np.signbit(zeros.min)  # type: ignore[unreachable]
    large = support.smooth((40, 50, 60), dtype)
    for threads in (1, 2, 3, 7):
        assert cusz.value_range(large, threads=threads) == (*support.value_range(large), large.size)


def test_a_negative_zero_that_is_fill_leaves_the_others(dtype):
    x = np.array([0.0, -0.0, 5, 7], dtype)
    assert cusz.value_range(x, fill=-0.0) == (0, 7, 3)
    assert cusz.value_range(x, fill=0.0) == (0, 7, 3)
    assert cusz.value_range(x[[0, 2, 3]], fill=-0.0) == (0, 7, 3)
    assert cusz.value_range(x[1:], fill=-0.0) == (5, 7, 2)
    check_contract(np.tile(x[[0, 2, 3]], 100), 1e-3, "rel", fill=-0.0)
