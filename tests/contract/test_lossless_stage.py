"""The optional zstd stage keeps every promise and never makes an archive larger; its bytes follow its version."""

import numpy as np
import pytest

import cusz_core as cusz
import support
from support import check_contract, same_bits


@pytest.mark.skipif(support.HAS_ZSTD, reason="this build has the zstd stage")
def test_a_missing_stage_is_refused():
    with pytest.raises(cusz.UnsupportedError, match="zstd"):
        cusz.compress(np.zeros(5), 1e-3, lossless="zstd")


def fields(dtype):
    waves = (np.indices((40, 50, 60)).sum(axis=0) % 32).astype(dtype)  # repeats: zstd has something to find
    special = support.smooth((9, 17, 33), dtype)
    special.reshape(-1)[[3, 700, 2000]] = [np.nan, np.inf, 1e20]
    return [waves, special, support.smooth((5000,), dtype), np.zeros((70, 70), dtype), np.zeros((0, 3), dtype)]


@support.needs_zstd
def test_the_promises_hold(dtype, backend):
    for x in fields(dtype):
        for eb, mode in ((1e-2, "abs"), (1e-4, "rel"), (0.0, "abs")):
            for predictor in ("lorenzo", "spline", "auto"):
                options = {"fill": 1e20, "backend": backend, "predictor": predictor}
                plain = check_contract(x, eb, mode, **options)
                packed = check_contract(x, eb, mode, lossless="zstd", **options)
                assert len(packed) <= len(plain)
                if predictor != "auto":  # which may use the other codec then
                    assert same_bits(cusz.decompress(packed), cusz.decompress(plain))


@support.needs_zstd
def test_repetition_is_found(dtype):
    x = fields(dtype)[0]
    packed = cusz.compress(x, 1e-3, lossless="zstd")
    info = cusz.inspect(packed)
    assert info.lossless == "zstd"
    assert len(packed) < 0.8 * len(cusz.compress(x, 1e-3))
    assert cusz.compress(x, 1e-3, lossless="zstd", threads=1) == cusz.compress(x, 1e-3, lossless="zstd", threads=3)


@support.needs_zstd
def test_the_codec_is_chosen_with_it(dtype):
    """Where a field repeats itself, Lorenzo's archives do, too."""
    period = np.cos(np.arange(4096) * (np.pi / 2048)) + support.integers(4096, 0, 2**10) / 2**20
    x = np.resize(period, 40_960).astype(dtype)
    plain, packed = (
        {p: len(cusz.compress(x, 1e-3, "rel", predictor=p, lossless=stage)) for p in ("lorenzo", "spline", "auto")}
        for stage in ("none", "zstd")
    )
    assert plain["auto"] == plain["spline"] < plain["lorenzo"]
    assert packed["auto"] == packed["lorenzo"] < packed["spline"]
