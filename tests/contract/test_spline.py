"""The promises made for every archive, checked with predictor="spline" (format version 2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core as cusz
import format_v2 as v2
import formats
import support
from support import ALL_SHAPES, F32, F64, same_bits, smooth


def check(x: NDArray, eb: float, mode: str = "abs", **options: Any) -> bytes:
    return support.check_contract(x, eb, mode, predictor="spline", **options)


def spline(x: NDArray, eb: float, mode: Any = "abs", **options: Any) -> bytes:
    return cusz.compress(x, eb, mode, predictor="spline", **{"threads": 1, **options})


# ---------------------------------------------------------------------------------------------------------------------
# All shapes, and large fields


@pytest.mark.parametrize("shape", ALL_SHAPES, ids=str)
def test_every_shape(shape: tuple[int, ...], dtype: np.dtype) -> None:
    x = smooth(shape, dtype, seed=len(shape))
    for eb, mode in ((1e-1, "abs"), (1e-4, "rel")):
        archive = spline(x, eb, mode)
        info = cusz.inspect(archive)
        if 0 in shape:
            assert archive == cusz.compress(x, eb, mode, threads=1)  # type: ignore[arg-type]
        elif x.size > 1000:
            assert (info.version, info.predictor, info.coder, info.out_of_range) == (2, "spline", "rans", 0)
            assert sum((info.sections.header, info.sections.codebook, info.sections.index, info.sections.payload)) == (
                len(archive)
            )


def large(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """A field of more than 1024 tiles, different from place to place, because only a sample is looked at beforehand."""
    n = math.prod(shape)
    x = np.sin(np.arange(n) / 40).astype(dtype)
    x[n // 3 : n // 2] *= dtype.type(1e-3)
    x[n // 2 : n // 2 + 99_999] = support.random_bits((99_999,), dtype)
    x[-50_000:] = 1e20
    x[7::1013] = math.nan
    return x.reshape(shape)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((4_300_000,), F32),
        ((2100, 2050), F64),
        ((165, 170, 161), F32),
        ((3, 113, 117, 125), F64),
        ((5, 30_000, 31), F32),
    ],
    ids=str,
)
def test_large_fields(shape: tuple[int, ...], dtype: np.dtype) -> None:
    x = large(shape, dtype)
    archive = check(x, 1e-3, fill=1e20, threads=2)
    assert cusz.inspect(archive).version == 2
    assert archive == spline(x, 1e-3, fill=1e20)


# ---------------------------------------------------------------------------------------------------------------------
# Small and constant fields, archives of version 1, the header, the lossless stage


@pytest.mark.parametrize("shape", [(1,), (2,), (4,), (1, 1, 1, 1), (4, 1, 3, 4), (2, 2), (8, 8, 8)], ids=str)
def test_small_fields(shape: tuple[int, ...], dtype: np.dtype) -> None:
    x = smooth(shape, dtype)
    for eb, mode in ((0.1, "abs"), (1e-3, "rel")):
        archive = check(x, eb, mode)
        assert cusz.inspect(archive).version == 2
        assert len(archive) < 30 + x.nbytes


@pytest.mark.parametrize("shape", [(1,), (16, 16, 16), (8, 8, 8, 8), (2000, 1000)], ids=str)
@pytest.mark.parametrize("value", [0.0, -0.0, 2.5, 1e20, math.nan, -math.inf])
def test_a_constant_field_takes_a_few_bytes(value: float, shape: tuple[int, ...], dtype: np.dtype) -> None:
    x = np.full(shape, value, dtype)
    for eb, mode, fill in ((1e-3, "abs", None), (1e-3, "rel", None), (1.23456789e-3, "rel", 1e20)):
        archive = check(x, eb, mode, fill=fill)
        info = cusz.inspect(archive)
        assert len(archive) <= 40
        assert (info.kind, info.version, info.tiles) == ("tiled", 2, 0)
        assert same_bits(cusz.decompress(archive), x)


@pytest.mark.parametrize("hole", [math.nan, math.inf, 1e20])
@pytest.mark.parametrize("shape", [(3,), (5000,), (16, 16, 16), (5, 6, 7, 8)], ids=str)
def test_zeros_with_holes_are_exact_and_small(shape: tuple[int, ...], hole: float, dtype: np.dtype) -> None:
    """Their value range is 0, and so is a relative bound."""
    x = np.zeros(shape, dtype)
    x.reshape(-1)[: x.size // 2] = hole
    for predictor in ("spline", "auto"):
        archive = cusz.compress(x, 1e-3, "rel", fill=None if hole == math.inf else hole, predictor=predictor)
        info = cusz.inspect(archive)
        assert (info.kind, info.eb_abs) == ("tiled", float(np.finfo(dtype).tiny))
        assert same_bits(cusz.decompress(archive), x)
        assert cusz.verify(x, archive).max_error == 0
        if hole != math.inf:
            assert len(archive) < 60 + x.nbytes / 16
        moved = np.where(x == 0, np.finfo(dtype).smallest_subnormal, x)
        with pytest.raises(cusz.BoundError):
            cusz.verify(moved, archive)
    y = np.where(np.isfinite(x) & (x == 0), dtype.type(2.5), x)
    assert cusz.inspect(cusz.compress(y, 1e-3, "rel", fill=1e20)).kind == "raw"


@pytest.mark.parametrize("fill", [None, -0.0, 1e20])
@pytest.mark.parametrize("shape", [(5000,), (16, 16, 16), (1100, 1000)], ids=str)
def test_zeros_of_either_sign_keep_it(shape: tuple[int, ...], fill: float | None, dtype: np.dtype) -> None:
    """Their value range is 0, too."""
    x = np.zeros(shape, dtype)
    x.reshape(-1)[[7, -1]] = -0.0, math.nan
    for predictor in ("lorenzo", "spline", "auto"):
        archive = cusz.compress(x, 1e-3, "rel", fill=fill, predictor=predictor)
        assert same_bits(cusz.decompress(archive), x)
        assert cusz.verify(x, archive).max_error == 0


def test_what_is_raw_has_version_1(dtype: np.dtype) -> None:
    x = smooth((40, 50), dtype)
    for raw, eb, mode in ((x, 0.0, "abs"), (x, 1e-310, "abs")):
        info = cusz.inspect(check(raw, eb, mode))
        assert (info.version, info.kind, info.predictor, info.archive_bytes) == (1, "raw", None, x.nbytes + 48)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_the_draft_of_version_2_is_refused_by_name(kind: int) -> None:
    """A header of the common form, with version 2."""
    archive = bytearray(cusz.compress(smooth((40, 50), F32), 1e-2, predictor="lorenzo"))
    archive[formats.VERSION_AT : formats.VERSION_AT + 2] = 2, kind
    for read in (cusz.inspect, cusz.decompress, cusz.check):
        with pytest.raises(cusz.UnsupportedError, match=r"version 2, revision 1, .*: compress the field again"):
            read(bytes(archive))


def test_newer_versions_are_refused_by_number() -> None:
    archive = bytearray(spline(smooth((40, 50), F32), 1e-2))
    archive[2] += 1
    v2.seal(archive)
    for read in (cusz.inspect, cusz.decompress, cusz.check):
        with pytest.raises(cusz.ArchiveTooNewError, match="format version 3;"):
            read(bytes(archive))


def test_inspection() -> None:
    """Tiles of all lattices are counted: those of 40 x 50 x 60 values, 20 x 25 x 30, 10 x 13 x 15, and three smaller
    ones. The index has an entry for each unit, of up to 16 tiles, of the first two."""
    bowl = (np.indices((40, 50, 60)) ** 2).sum(axis=0).astype(F32)  # no axis is left out
    info = cusz.inspect(spline(bowl, 1.0))
    assert (info.version, info.predictor, info.coder, info.bins) == (2, "spline", "rans", 64)
    assert (info.tile_shape, info.tiles) == ((8, 16, 32), 40 + 5 + 1 + 4)
    assert info.sections.index == 3 * (3 + 1)
    info = cusz.inspect(spline(smooth((1, 300, 3), F32), 1e-2))
    assert (info.tile_shape, info.tiles, info.sections.index) == ((1, 300, 3), 9, 0)


def test_inspection_of_logarithms() -> None:
    """The sizes of the parts add up, even where all logarithms are equal."""
    for x in (np.full((16, 16, 16), 2.0, F32), np.exp(smooth((30, 40, 50), F64))):
        archive = spline(x, 1e-2, "pw_rel")
        sections = cusz.inspect(archive).sections
        assert sections.codebook == 0
        assert sections.header + sections.index + sections.payload == len(archive)


@support.needs_zstd
def test_the_lossless_stage(dtype: np.dtype) -> None:
    waves = (np.indices((40, 50, 60)).sum(axis=0) % 32).astype(dtype)  # repeats: zstd has something to find
    packed, plain = (spline(waves, 1e-2, lossless=stage) for stage in ("zstd", "none"))
    assert len(packed) < len(plain)
    assert same_bits(cusz.decompress_box(packed, (1, 1, 1)), cusz.decompress_box(plain, (1, 1, 1)))
    packed_info, info = cusz.inspect(packed), cusz.inspect(plain)
    assert (packed_info.version, packed_info.lossless) == (2, "zstd")
    assert (packed_info.sections, packed_info.tiles, packed_info.tile_shape) == (
        info.sections,
        info.tiles,
        info.tile_shape,
    )
