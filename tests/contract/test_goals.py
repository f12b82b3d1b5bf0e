"""Modes "psnr" and "ratio": the archive keeps an absolute bound, and reaches what was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import cusz_core as cusz
import support
from cusz_core.cli import main
from support import DTYPES, F32

SHAPES = [(5000,), (70, 90), (20, 30, 40), (3, 20, 20, 30), (1, 40, 1, 50)]


@pytest.mark.parametrize("predictor", ["lorenzo", "spline", "auto"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_goals_are_reached_and_the_bound_is_kept(shape, dtype, predictor):
    x = support.smooth(shape, dtype)
    x.reshape(-1)[:3] = [np.nan, np.inf, 1e20]
    for mode, goal in (("psnr", 55), ("psnr", 90), ("ratio", 3)):
        archive = cusz.compress(x, goal, mode, predictor=predictor, fill=1e20)
        found = cusz.verify(x, archive)
        info = cusz.inspect(archive)
        assert (info.mode, info.eb) == ("abs", info.eb_abs)
        assert archive == cusz.compress(x, info.eb_abs, predictor=predictor, fill=1e20)
        reached = found.psnr if mode == "psnr" else found.ratio
        assert goal <= reached
        if mode == "psnr":
            assert reached < goal + 1
        elif predictor != "auto":  # which jumps where it changes from one codec to the other
            assert reached < 1.05 * goal


def test_the_archive_depends_on_field_and_goal_alone(backend):
    x = support.smooth((140, 128, 130), F32)  # sampled
    expected = cusz.compress(x, 70, "psnr", threads=1)
    for threads in (2, 3):
        assert cusz.compress(x, 70, "psnr", threads=threads, backend=backend) == expected
    room = bytearray(cusz.max_archive_bytes(x.shape, x.dtype))
    assert cusz.compress(x, 70, "psnr", out=room) == expected


@support.needs_zstd
def test_with_the_lossless_stage():
    x = support.smooth((60, 70, 80), F32)
    archive = cusz.compress(x, 25, "ratio", lossless="zstd")
    assert 25 <= cusz.verify(x, archive).ratio < 26.3


def test_what_cannot_be_reached():
    noise = support.integers(4000, -(2**30), 2**30).astype(F32)
    with pytest.raises(cusz.ParameterError, match=r"ratio is 1000; the best found for this field is \d+\.?\d*, with"):
        cusz.compress(noise, 1000, "ratio")
    exact = cusz.compress(noise, 5000, "psnr")
    assert support.same_bits(cusz.decompress(exact), noise)


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


@settings(max_examples=100, derandomize=True)
@given(st.data())
def test_any_field(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=12))
    x = data.draw(arrays.arrays(dtype, shape, elements=st.floats(width=8 * dtype.itemsize)))
    predictor = data.draw(st.sampled_from(["lorenzo", "spline", "auto"]))
    psnr = data.draw(st.floats(0.01, 15000))
    assert cusz.verify(x, cusz.compress(x, psnr, "psnr", predictor=predictor, threads=1)).psnr >= psnr
    ratio = data.draw(st.floats(1.01, 20))
    try:
        archive = cusz.compress(x, ratio, "ratio", predictor=predictor, threads=1)
    except cusz.ParameterError:
        assert x.size > 0
    else:
        assert cusz.verify(x, archive).ratio >= ratio or x.size == 0


def test_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x = support.smooth((40, 50), F32)
    np.save("x.npy", x)
    assert main(["compress", "x.npy", "--eb", "70", "--mode", "psnr"]) == 0
    assert main(["verify", "x.npy", "x.npy.cusz"]) == 0
    shown = capsys.readouterr().out
    psnr = float(shown.partition("PSNR")[2].split()[0])
    assert 70 <= psnr < 71
    assert main(["compress", "x.npy", "--eb", "0.5", "--mode", "ratio", "--force"]) == 2
    assert "ratio is 0.5; it must be finite and above 1" in capsys.readouterr().err
