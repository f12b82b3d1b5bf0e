"""Modes "psnr" and "ratio", in addition to unit/test_tuning.py: the archive reaches what was asked for."""

from __future__ import annotations

import numpy as np
import pytest

import cusz_core as cusz
import support
from support import F32


def test_the_archive_depends_on_field_and_goal_alone(backend):
    x = support.smooth((140, 128, 130), F32)  # sampled
    expected = cusz.compress(x, 70, "psnr", threads=1)
    for threads in (2, 3):
        assert cusz.compress(x, 70, "psnr", threads=threads, backend=backend) == expected
    room = bytearray(cusz.max_archive_bytes(x.shape, x.dtype))
    assert cusz.compress(x, 70, "psnr", out=room) == expected


@pytest.mark.parametrize("shape", [(60, 70, 80), (300, 310), (140, 128, 130)], ids=str)  # the last one is sampled
@pytest.mark.parametrize("predictor", ["spline", "auto"])
def test_smooth_fields_take_fewer_bytes_for_a_psnr_than_with_one_bound(predictor, shape, dtype):
    """Because coarser lattices get smaller bounds. The archive's own bound is larger, and kept."""
    x = support.smooth(shape, dtype)
    archive = cusz.compress(x, 50, "psnr", predictor=predictor)
    plain = cusz.tuning.find_bound(x, psnr=50, predictor=predictor)
    result = cusz.verify(x, archive)
    assert 50 <= result.psnr < 50.5
    assert len(archive) < 0.85 * len(plain.archive)
    assert result.max_error <= result.eb_abs > plain.eb
    assert cusz.inspect(archive).predictor == "spline"


@pytest.mark.parametrize("psnr", [60, 85])
def test_evenly_spaced_values_are_exact_where_that_takes_fewer_bytes(psnr, dtype):
    """Lorenzo keeps measurements in tenths exact with a bound of half a tenth, interpolation only with smaller ones."""
    x = (np.random.default_rng(1).gamma(0.2, 40, (200, 300)).round(1) + 0.0).astype(dtype)
    archive = cusz.compress(x, psnr, "psnr")
    assert len(archive) < 0.95 * len(cusz.compress(x, psnr, "psnr", predictor="spline"))
    if psnr == 85:
        assert cusz.inspect(archive).predictor == "lorenzo"
        assert cusz.verify(x, archive).max_error < 1e-4


def test_rough_fields_take_no_more_bytes_for_a_psnr_than_with_one_bound():
    x = np.random.default_rng(5).normal(size=(40, 50, 60)).astype(F32)
    plain = cusz.tuning.find_bound(x, psnr=60)
    assert len(cusz.compress(x, 60, "psnr")) <= len(plain.archive)


@support.needs_zstd
def test_with_the_lossless_stage():
    x = support.smooth((60, 70, 80), F32)
    archive = cusz.compress(x, 25, "ratio", lossless="zstd")
    assert 25 <= cusz.verify(x, archive).ratio < 26.3


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
def test_errors_whose_squares_are_no_longer_numbers(predictor):
    """Far below the bound, which the largest values allow: lossless is the only way to so many dB."""
    x = np.array([1e308, -1e308, 1e-3, 2e5, 0, 3e-100, -7, 1e10] * 500)
    for psnr in (4000, 10000):
        archive = cusz.compress(x, psnr, "psnr", predictor=predictor)
        assert cusz.verify(x, archive).psnr >= psnr


def test_nothing_to_seek():
    for x in (np.zeros((0, 4), F32), np.full((30, 30), np.nan, F32), np.zeros((30, 30), F32), np.array([2.5], F32)):
        assert support.same_bits(cusz.decompress(cusz.compress(x, 80, "psnr")), x)
    assert support.same_bits(cusz.decompress(cusz.compress(np.zeros((0, 4), F32), 20, "ratio")), np.zeros((0, 4), F32))


@pytest.mark.parametrize(("mode", "goal"), [("psnr", 0), ("psnr", -3), ("ratio", 1), ("ratio", 0)])
def test_goals_out_of_range(mode, goal):
    with pytest.raises(cusz.ParameterError):
        cusz.compress(support.smooth((10, 10), F32), goal, mode)
