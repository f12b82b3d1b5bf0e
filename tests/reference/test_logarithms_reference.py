"""The library's archives of mode pw_rel against section 12 of format_v2.md, as implemented in logarithms_reference.py:
the same values, and the same logarithms inside."""

from __future__ import annotations

import logarithms_reference as reference
import numpy as np
import pytest

import cusz_core as cusz
import support
from support import F64, same_bits

SHAPES = [(700,), (33, 40), (9, 17, 20)]


def fields(shape: tuple[int, ...], dtype: np.dtype) -> dict[str, np.ndarray]:
    smooth = np.exp2(9 * support.smooth(shape, F64)).astype(dtype)
    signed = (smooth * np.where(support.smooth(shape, F64, 1) < 0, -1, 1)).astype(dtype)
    special = signed.copy()
    flat = special.reshape(-1)
    limits = np.finfo(dtype)
    values = [0.0, -0.0, np.nan, np.inf, -np.inf, limits.smallest_subnormal, -limits.tiny / 4, limits.tiny, limits.max]
    for i, value in enumerate(values):
        flat[3 + 7 * i :: 131] = value
    return {"smooth": smooth, "signed": signed, "special": special, "bits": support.random_bits(shape, dtype)}


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
@pytest.mark.parametrize("fill", [None, 0.0, 1e20])
def test_archives(dtype: np.dtype, fill: float | None, predictor: cusz.parameters.Predictor) -> None:
    n_wide = n_signed = n_tiled = 0
    bounds = (0.5, 1e-2, 1e-4, 1e-6) if predictor == "lorenzo" else (1e-2, 1e-5)  # the spline reference is slow
    for shape in SHAPES[: len(bounds)]:
        for x in fields(shape, dtype).values():
            for eb in bounds:
                archive = cusz.compress(x, eb, "pw_rel", fill=fill, predictor=predictor, threads=1)
                if cusz.inspect(archive).kind == "raw":
                    continue
                assert same_bits(reference.decode(archive), cusz.decompress(archive, threads=1))
                parsed = reference.Parsed(archive)
                assert (parsed.eb, parsed.has_fill) == (eb, fill is not None)
                v = reference.logarithms(x, parsed)
                most = float(np.finfo(v.dtype).max)
                inner = cusz.compress(v, parsed.bound, fill=most, predictor=predictor, threads=1)
                assert inner == parsed.inner
                n_tiled += 1
                n_wide += parsed.wide != dtype
                n_signed += bool(parsed.signs.any())
    assert n_tiled >= 12
    assert n_signed >= 8
    assert (n_wide > 0) == (dtype == np.float32)
