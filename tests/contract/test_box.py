"""A decompressed box has the bits of that part of the whole decompressed field."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cusz_core as cusz
from field_kinds import KINDS
from support import ALL_SHAPES, F32, F64, bits, boxes, many_magnitudes, part, same_bits, smooth

PREDICTORS = pytest.mark.parametrize("predictor", ["lorenzo", "spline"])


def check_boxes(archive: bytes, seed: int, how_many: int) -> None:
    whole = cusz.decompress(archive, threads=1)
    for number, (start, count) in enumerate(boxes(whole.shape, seed, how_many)):
        box = cusz.decompress_box(archive, start, count, threads=1 + number % 3)
        assert same_bits(box, part(whole, start, count)), (start, count)
    apart = np.zeros((*whole.shape[:-1], 2 * whole.shape[-1]), whole.dtype)
    cusz.decompress_box(archive, (0,) * whole.ndim, out=apart[..., ::2])
    assert same_bits(np.ascontiguousarray(apart[..., ::2]), whole)
    assert not apart[..., 1::2].any()


@PREDICTORS
@pytest.mark.parametrize("shape", ALL_SHAPES, ids=str)
def test_every_shape(shape: tuple[int, ...], dtype: np.dtype, predictor: Any) -> None:
    archive = cusz.compress(smooth(shape, dtype, 3), 1e-3, threads=1, predictor=predictor)
    check_boxes(archive, math.prod(shape), 8)


@PREDICTORS
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_field(kind: str, dtype: np.dtype, predictor: Any) -> None:
    how = KINDS[kind]
    options: dict[str, Any] = {"mode": how.mode, **how.options, "predictor": predictor}
    for shape in ((9000,), (70, 130), (17, 33, 65), (2, 9, 17, 33)):
        check_boxes(cusz.compress(how.make(shape, dtype), how.eb, threads=1, **options), 7, 6)


@PREDICTORS
def test_bounds_relative_to_every_value(dtype: np.dtype, predictor: Any) -> None:
    for shape in ((10007,), (130, 70), (31, 37, 41), (7, 11, 13, 17), (5000, 1), (1, 1, 4097)):
        check_boxes(cusz.compress(many_magnitudes(shape, dtype), 1e-3, "pw_rel", predictor=predictor), 1, 12)


@PREDICTORS
def test_behind_the_lossless_stage(predictor: Any) -> None:
    check_boxes(cusz.compress(smooth((40, 40, 70), F32), 1e-3, lossless="zstd", predictor=predictor), 1, 20)


SLICES = st.tuples(*[st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(1, 3))] * 3)


@PREDICTORS
@settings(max_examples=150)
@given(slices=SLICES, seed=st.integers(0, 9), order=st.permutations(range(3)))
def test_into_part_of_a_larger_array(
    slices: tuple[tuple[int, int, int], ...], seed: int, order: tuple[int, ...], predictor: cusz.parameters.Predictor
) -> None:
    """Any positive strides and any order of axes in memory; the rest of the array is not touched."""
    whole = smooth((41, 41, 80), F64, seed)
    archive = cusz.compress(whole, 1e-2, threads=1, predictor=predictor)
    whole = cusz.decompress(archive, threads=1)
    start = tuple(s for s, _, _ in slices)
    count = tuple(min(c, n - s) for (s, c, _), n in zip(slices, whole.shape, strict=True))
    steps = [step for _, _, step in slices]
    extents = [2 + c * step for c, step in zip(count, steps, strict=True)]
    larger = np.full([extents[axis] for axis in order], 7.0).transpose(np.argsort(order))
    where = tuple(slice(1, 1 + c * step, step) for c, step in zip(count, steps, strict=True))
    expected = larger.copy()
    expected[where] = part(whole, start, count)
    out = larger[where]
    returned = cusz.decompress_box(archive, start, out=out, threads=1)
    assert returned is out
    assert same_bits(np.ascontiguousarray(larger), np.ascontiguousarray(expected))


@PREDICTORS
@pytest.mark.parametrize("shape", [(40, 40), (0, 5)])
def test_a_box_without_values(shape: tuple[int, int], predictor: Any) -> None:
    """numpy gives empty arrays strides of 0."""
    archive = cusz.compress(np.zeros(shape, F32) + np.arange(shape[1], dtype=F32), 1e-2, predictor=predictor)
    for level in range(2 if shape[0] else 1):
        for prefix in (None, len(archive)):
            assert cusz.decompress_box(archive, (0, 0), (0, 5), level=level, archive_bytes=prefix).shape == (0, 5)
            out = np.empty((5, 4), F32)[:0, ::2]
            assert cusz.decompress_box(archive, (0, 1), out=out, level=level, archive_bytes=prefix) is out


def test_tiles_that_are_not_wanted_are_verified() -> None:
    archive = bytearray(cusz.compress(smooth((64, 64, 64), F32), 1e-3))
    cusz.decompress_box(archive, (0, 0, 0), (1, 1, 1))
    archive[-5] ^= 1
    with pytest.raises(cusz.CorruptArchiveError, match="checksum"):
        cusz.decompress_box(archive, (0, 0, 0), (1, 1, 1))
    with pytest.raises(cusz.CorruptArchiveError):
        cusz.decompress_box(archive, (0, 0, 0), (0, 1, 1))


@pytest.mark.parametrize("eb", [1e-3, 0.0])
def test_what_is_refused(eb: float) -> None:
    archive = cusz.compress(smooth((20, 30), F32), eb)
    for start, count in [((0,), (1,)), ((0, 0), (21, 1)), ((20, 1), (1, 1)), ((0, 31), (0, 0)), ((0, 0, 0), None)]:
        with pytest.raises(cusz.ParameterError, match="not a box within"):
            cusz.decompress_box(archive, start, count)
    with pytest.raises(cusz.ParameterError, match="must be from 0"):
        cusz.decompress_box(archive, (-1, 0))
    no_integers: list[Any] = [(0.5, 0), np.array([0.5, 0]), "ab", None, np.float32(1)]
    for wrong in no_integers:
        with pytest.raises(cusz.ParameterError, match="must be an integer or a sequence of integers"):
            cusz.decompress_box(archive, wrong)
    whole = cusz.decompress(archive)
    for integers in ([2, 3], np.array([2, 3]), np.array([2, 3], np.uint8), (np.int64(2), np.array(3))):
        assert same_bits(cusz.decompress_box(archive, integers, np.array([4, 5])), whole[2:6, 3:8])  # type: ignore[arg-type]
    with pytest.raises(cusz.UnsupportedError, match="float64"):
        cusz.decompress_box(archive, (0, 0), out=np.empty((2, 2), F64))
    with pytest.raises(cusz.UnsupportedError, match="numpy array"):
        cusz.decompress_box(archive, (0, 0), (2, 2), out=[[0, 0], [0, 0]])  # type: ignore[arg-type]
    with pytest.raises(cusz.ParameterError, match="extents"):
        cusz.decompress_box(archive, (0, 0), (2, 3), out=np.empty((2, 2), F32))
    with pytest.raises(cusz.ParameterError, match="strides"):
        cusz.decompress_box(archive, (0, 0), out=np.empty((2, 2), F32)[::-1])
    read_only = np.empty((2, 2), F32)
    read_only.flags.writeable = False
    with pytest.raises(cusz.ParameterError, match="read-only"):
        cusz.decompress_box(archive, (0, 0), out=read_only)
    assert bits(cusz.decompress_box(archive, (19, 29)))[0, 0] == bits(cusz.decompress(archive))[19, 29]
