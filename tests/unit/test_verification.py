"""`verify` decides exactly, and lets nothing through."""

import dataclasses
import json
import math

import numpy as np
import pytest

import cusz_core as cusz
import support
from cusz_core import verification
from support import F32, F64


def field(dtype):
    return support.smooth((20, 30, 40), dtype)


def test_figures(dtype):
    x = field(dtype)
    x[0, 0, :4] = [np.nan, np.inf, -np.inf, 1e20]
    archive = cusz.compress(x, 1e-3, "rel", fill=1e20)
    result = cusz.verify(x, archive)
    y = cusz.decompress(archive)
    valid = np.isfinite(x) & (x != dtype.type(1e20))
    a, b = x[valid].astype(F64), y[valid].astype(F64)
    assert result.max_error == np.abs(a - b).max() <= result.eb_abs
    assert result.max_error_over_eb == result.max_error / result.eb_abs <= 1
    rmse = np.sqrt(np.mean((a - b) ** 2))
    assert result.psnr == pytest.approx(20 * np.log10((a.max() - a.min()) / rmse), rel=1e-12)
    assert (result.values, result.special) == (x.size - 4, 4)
    assert result.ratio == x.nbytes / len(archive)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["psnr"] == result.psnr


def test_lossless_has_infinite_psnr():
    x = field(F32)
    result = cusz.verify(x, cusz.compress(x, 0.0))
    assert (result.max_error, result.max_error_over_eb, result.psnr) == (0, 0, math.inf)
    assert result.to_dict()["psnr"] == "inf"


def test_psnr_of_extreme_magnitudes():
    """The squares of the errors would overflow or underflow."""
    x = field(F64)
    usual = cusz.verify(x, cusz.compress(x, 2.0**-10)).psnr
    for exponent in (900, -900):
        scaled = np.ldexp(x, exponent)
        psnr = cusz.verify(scaled, cusz.compress(scaled, 2.0 ** (exponent - 10))).psnr
        assert psnr == pytest.approx(usual, rel=1e-12)


@pytest.mark.parametrize("units", [1, 3, 5])
def test_psnr_of_subnormal_values(units):
    """Half of the smallest value is 0."""
    x = np.tile([0.0, units * 5e-324], 50)
    result = cusz.verify(x, cusz.compress(x, 1e-3, predictor="lorenzo"))
    assert result.max_error == units * 5e-324
    assert result.psnr == pytest.approx(10 * math.log10(2))


def test_psnr_of_a_range_that_overflows():
    a, b = np.array([-1.5e308, 1.5e308]), np.array([-1.5e308, 1e308])
    _, squares = verification.compare(a, b, 1e308, None)
    assert squares.psnr(-1.5e308, 1.5e308, 2) == pytest.approx(20 * math.log10(6 * math.sqrt(2)))


def test_one_value_beyond_the_bound(dtype):
    x = field(dtype)
    archive = cusz.compress(x, 1e-3)
    x[3, 17, 21] += dtype.type(0.25)
    with pytest.raises(cusz.BoundError, match=r"1 of 24000 values.*\(3, 17, 21\)") as raised:
        cusz.verify(x, archive)
    error = raised.value
    assert (error.violations, error.index, error.bound) == (1, (3, 17, 21), 1e-3)
    assert error.original == x[3, 17, 21]
    assert abs(error.original - error.decoded) > 0.2


def test_the_worst_value_is_named():
    x = field(F64)
    archive = cusz.compress(x, 1e-3)
    x[0, 0, 0] += 0.1
    x[10, 3, 39] -= 0.5
    x[19, 29, 39] += 0.2
    with pytest.raises(cusz.BoundError, match=r"3 of 24000 values.*\(10, 3, 39\)"):
        cusz.verify(x, archive)


@pytest.mark.parametrize("name", ["nan payload", "nan sign", "finite for nan", "inf sign", "fill", "nan for finite"])
def test_special_values_must_be_the_same_bits(dtype, name):
    x = field(dtype)
    x[1, 1, 1], x[2, 2, 2], x[3, 3, 3] = np.nan, np.inf, 1e20
    archive = cusz.compress(x, 1e-3, fill=1e20)
    cusz.verify(x, archive)
    at = {"nan payload": (1, 1, 1), "nan sign": (1, 1, 1), "finite for nan": (1, 1, 1), "inf sign": (2, 2, 2),
          "fill": (3, 3, 3), "nan for finite": (4, 4, 4)}[name]  # fmt: skip
    if name == "nan payload":
        support.bits(x)[at] ^= 1
    elif name in ("nan sign", "inf sign"):
        support.bits(x)[at] ^= 1 << (8 * dtype.itemsize - 1)
    elif name == "fill":
        x[at] = np.nextafter(x[at], dtype.type(0))
        archive = cusz.compress(x, 1e-3)
        y = cusz.decompress(archive)
        assert y[at] == x[at]  # stored verbatim: too large for the bound
        x[at] = 1e20
    else:
        x[at] = 1.0 if name == "finite for nan" else np.nan
    with pytest.raises(cusz.BoundError):
        cusz.verify(x, archive)


def test_lossless_allows_no_other_zero():
    x = np.array([0.0, 1.0, 2.0])
    archive = cusz.compress(x, 0.0)
    x[0] = -0.0
    with pytest.raises(cusz.BoundError, match="not bit for bit"):
        cusz.verify(x, archive)
    x = np.zeros(5000)
    archive = cusz.compress(x, 1e-3)
    cusz.verify(-x, archive)


def compare(a, b, bound, dtype=F64):
    """The number of violations that `verify` finds for one pair of values: 0 or 1."""
    found, _ = verification.compare(np.array([a], dtype), np.array([b], dtype), bound, None)
    return found.count


@pytest.mark.parametrize(
    ("a", "b", "bound", "broken"),
    [
        (1.0, 0.75, 0.25, 0),
        (1.0, 0.75, math.nextafter(0.25, 0), 1),
        (1.0, -(2.0**-60), 1.0, 1),  # the rounded difference is 1
        (1.0, 2.0**-60, 1.0, 0),
        (-1.0, 2.0**-60, 1.0, 1),
        (-1.0, -(2.0**-60), 1.0, 0),
        (2.0**-60, 1.0, 1.0, 0),
        (-(2.0**-60), 1.0, 1.0, 1),
        (1e300, -1e-300, 1e300, 1),
        (1e300, 1e-300, 1e300, 0),
        (1.7e308, -1.7e308, 1.7976931348623157e308, 1),
        (1.7976931348623157e308, -1e290, 1.7976931348623157e308, 1),
        (1.7976931348623157e308, 1e290, 1.7976931348623157e308, 0),
        (5e-324, 0.0, 5e-324, 0),
        (5e-324, -5e-324, 5e-324, 1),
        (0.1, 0.3, 0.2, 0),  # 0.3 - 0.1 is below 0.2 here, exactly
        (0.0, -0.0, 1e-300, 0),
        (0.0, 1.0, 1.0, 0),
        (0.0, math.nan, 1.0, 1),
        (0.0, math.inf, 1e308, 1),
        (math.inf, 0.0, 1e308, 1),
        (math.nan, math.nan, 1.0, 0),
    ],
)
def test_decisions(a, b, bound, broken):
    assert compare(a, b, bound) == broken
    if all(abs(v) <= 1 and float(np.float32(v)) == v for v in (a, b)):
        assert compare(a, b, bound, F32) == broken


def test_decisions_against_rational_numbers():
    """Pairs whose rounded difference is the bound, or the next number above it."""
    a = (support.hashes(3000, 1) >> np.uint64(11)).astype(F64) * 2.0**-53
    b = (support.hashes(3000, 2) >> np.uint64(11)).astype(F64) * np.ldexp(1.0, -20 - support.integers(3000, 0, 60, 3))
    b *= np.where(support.integers(3000, 0, 2, 4) == 0, 1, -1)
    bounds = np.abs(a - b)
    outcomes = []
    for i in range(3000):
        bound = float(bounds[i])
        if i % 3 == 1:
            bound = math.nextafter(bound, 0)
        wanted = bool(support.violations(a[i : i + 1], b[i : i + 1], bound))
        assert bool(compare(a[i], b[i], bound)) == wanted
        outcomes.append(wanted)
    assert 300 < sum(outcomes) < 2700


def test_a_looser_bound_than_asked_for_is_found(monkeypatch):
    x = field(F64)
    archive = cusz.compress(x, 1e-3, "rel")
    info = cusz.inspect(archive)
    loose = dataclasses.replace(info, eb_abs=math.nextafter(info.eb_abs, 1))
    monkeypatch.setattr(verification, "inspect", lambda _: loose)
    with pytest.raises(cusz.BoundError, match="the archive's absolute bound"):
        cusz.verify(x, archive)


def test_another_field():
    x = field(F32)
    archive = cusz.compress(x, 1e-3)
    for other in (x.astype(F64), x[:-1], x.reshape(-1)):
        with pytest.raises(cusz.ParameterError, match="not of the same field"):
            cusz.verify(other, archive)
    with pytest.raises(cusz.CorruptArchiveError):
        cusz.verify(x, archive[:-1])


def test_any_layout_of_the_original():
    x = field(F32)
    archive = cusz.compress(x, 1e-3)
    assert cusz.verify(np.asfortranarray(x), archive) == cusz.verify(x, archive)


def test_fields_larger_than_a_chunk(monkeypatch):
    x = field(F32)
    archive = cusz.compress(x, 1e-3)
    whole = cusz.verify(x, archive)
    monkeypatch.setattr(verification, "_CHUNK", 1000)
    parts = cusz.verify(x, archive)
    assert parts.psnr == pytest.approx(whole.psnr, rel=1e-13)
    assert dataclasses.replace(parts, psnr=0) == dataclasses.replace(whole, psnr=0)
    x[17, 3, 5] += 1
    with pytest.raises(cusz.BoundError, match=r"\(17, 3, 5\)"):
        cusz.verify(x, archive)


def test_an_error_that_is_not_finite_hides_no_others():
    errors = np.array([3.0, np.nan, 4.0, np.inf])
    squares = verification.SumOfSquares()
    squares.add(errors)
    other = verification.SumOfSquares()
    other.add(errors[[1]])
    squares.merge(other)
    assert (squares.largest, squares.not_finite) == (4, 3)
    assert squares.psnr(0, 10, 5) == pytest.approx(20 * math.log10(10 / math.sqrt(25 / 2)))
    assert math.isnan(other.psnr(0, 10, 5))  # not exact
    assert verification.SumOfSquares().psnr(0, 10, 5) == math.inf
