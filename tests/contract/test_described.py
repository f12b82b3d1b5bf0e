"""`compress_described` is `compress_with`, `inspect` and `value_range` in one."""

import dataclasses
import math

import numpy as np
import pytest

import cusz_core as cusz
import support
from cusz_core import Parameters
from field_kinds import COVERING, KINDS
from support import F32


def require_same(x, parameters, **options):
    """Checks all results, with memory from the caller and with new bytes."""
    archive = cusz.compress_with(x, parameters)
    info = cusz.inspect(archive)
    found = cusz.value_range(x, parameters.fill)
    assert found == (*support.value_range(x, parameters.fill), found.values)
    usable = np.isfinite(x)
    if parameters.fill is not None:
        usable &= support.bits(x) != support.bits(np.array(parameters.fill, x.dtype))
    assert found.values == np.count_nonzero(usable)
    expected = (info.checksum, info.outliers, info.eb_abs, info.predictor)
    out = np.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8)
    for target in (None, out):
        made = cusz.compress_described(x, parameters, out=target, **options)
        assert bytes(made.archive) == archive
        assert repr(made[1:5]) == repr(expected)
        if options.get("ranges", True):
            assert made.range == found
        else:
            assert math.isnan(made.range.min)
            assert math.isnan(made.range.max)
            assert made.range.values == 0


@pytest.mark.parametrize(("name", "shape", "dtype"), COVERING, ids=str)
def test_kinds_and_shapes(name, shape, dtype, backend):
    kind = KINDS[name]
    x = kind.make(shape, dtype)
    for predictor in ("lorenzo", "auto"):
        require_same(x, Parameters(kind.eb, kind.mode, backend=backend, predictor=predictor, **kind.options))


@pytest.mark.parametrize(
    "parameters",
    [
        Parameters(0.0),
        Parameters(1e-3, "pw_rel"),
        Parameters(70.0, "psnr"),
        Parameters(1e-3, "rel", predictor="spline"),
        Parameters(1e-3, lossless="zstd"),
        Parameters(1e-30),
        Parameters(1e-2, threads=3),
    ],
    ids=str,
)
def test_other_ways_to_compress(parameters, dtype):
    x = support.smooth((40, 50, 60), dtype)
    x[3, 4, 5:9], x[20, :3, 7] = np.nan, -np.inf
    for fill in (None, float(x[0, 0, 0])):
        require_same(x, dataclasses.replace(parameters, fill=fill))
    require_same(x, parameters, ranges=False)


def test_values_that_do_not_count(dtype):
    """Infinities, NaN and fill, alone and among others; zeros of both signs; an empty field."""
    for x in (
        np.full(5000, np.nan),
        np.full(5000, np.inf),
        np.r_[np.full(4095, -np.inf), 7.0, np.full(4096, np.nan), -3.0],
        np.r_[-0.0, np.zeros(5000)],
        np.full(5000, 1e20),
        np.r_[np.full(5000, 1e20), -2.0, np.full(5000, 1e20)],
        np.finfo(dtype).max * np.r_[-1.0, np.ones(5000)],
        np.empty(0),
    ):
        for fill in (None, 1e20):
            require_same(x.astype(dtype), Parameters(0.5, fill=fill))


def test_memory_that_is_too_small_is_refused():
    x, buffer = np.zeros(100, F32), np.zeros(1000, np.uint8)
    with pytest.raises(cusz.ParameterError, match="smaller than max_archive_bytes"):
        cusz.compress_described(x, Parameters(1.0), out=np.empty(447, np.uint8))
    with pytest.raises(cusz.ParameterError, match="overlaps"):
        cusz.compress_described(buffer[:400].view(F32), Parameters(1.0), out=buffer)
