"""What an archive says about itself."""

import dataclasses
import json
import math

import numpy as np
import pytest

import cusz_core as cusz
import support


def test_a_coded_archive():
    x = support.smooth((20, 30, 40), support.F64)
    x[3, 4, 5], x[0, 0, 0] = np.nan, 1e20
    archive = cusz.compress(x, 1e-3, "rel", bins=128, fill=1e20, predictor="lorenzo")
    info = cusz.inspect(archive)
    assert (info.version, info.kind, info.mode, info.lossless) == (1, "tiled", "rel", "none")
    assert (info.predictor, info.coder) == ("lorenzo", "huffman")
    assert (info.shape, info.dtype, info.size) == ((20, 30, 40), np.dtype(np.float64), 24000)
    assert (info.eb, info.eb_abs) == (1e-3, support.absolute_bound(x, 1e-3, "rel", 1e20))
    assert info.eb_abs < info.step <= 2 * info.eb_abs
    assert (info.bins, info.fill) == (128, 1e20)
    assert (info.raw_bytes, info.archive_bytes) == (x.nbytes, len(archive))
    assert info.ratio == x.nbytes / len(archive)
    assert info.bit_rate == 8 * len(archive) / x.size
    assert (info.tile_shape, info.tiles) == ((8, 16, 32), 3 * 2 * 2)
    assert (info.special, info.unpredictable) == (1, 1)
    assert info.outliers == info.out_of_range + info.unpredictable
    assert sum(dataclasses.astuple(info.sections)) == len(archive)


def test_a_raw_archive():
    info = cusz.inspect(cusz.compress(np.zeros((2, 0, 3), np.float32), 1e-3))
    assert (info.kind, info.mode, info.eb_abs, info.bins, info.fill) == ("raw", "abs", 0, 0, None)
    assert (info.raw_bytes, info.archive_bytes, info.ratio, info.bit_rate) == (0, 48, 0, 0)
    assert info.sections == cusz.Sections(48, 0, 0, 0)
    assert (info.predictor, info.coder) == (None, None)


@pytest.mark.parametrize("fill", [None, 1e20, float("nan"), float("-inf")])
def test_json(fill):
    info = cusz.inspect(cusz.compress(support.smooth((30, 40, 50), support.F32), 1e-3, fill=fill))
    d = json.loads(json.dumps(info.to_dict(), allow_nan=False))
    assert d["shape"] == [30, 40, 50]
    assert d["dtype"] == "float32"
    assert d["sections"]["header"] == info.sections.header
    assert d["ratio"] == info.ratio
    if fill is None:
        assert d["fill"] is None
    else:
        assert float(d["fill"]) == float(np.float32(fill)) or math.isnan(fill)


def test_an_archive_cannot_be_changed_through_its_description():
    info = cusz.inspect(cusz.compress(np.zeros(5), 1e-3))
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.eb = 1.0
    assert info == cusz.inspect(cusz.compress(np.zeros(5), 1e-3))


def test_devices():
    found = {backend.name: backend for backend in cusz.devices()}
    assert set(found) == {"cpu", "cuda"}
    assert found["cpu"].available
    assert found["cpu"].threads == cusz.default_threads() >= 1
    assert found["cpu"].device
