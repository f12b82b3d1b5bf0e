"""A level has the field's values at its points, bit for bit, and is decoded from just the bytes that it needs."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cusz_core as cusz
import field_kinds
import format_v2
import spline_kinds
from cusz_core.preview import MIN_PREFIX_BYTES
from support import ALL_SHAPES, DTYPES, F32, F64, boxes, hashes, many_magnitudes, needs_zstd, part, same_bits, smooth


def picked(field: NDArray, level: cusz.Level) -> NDArray:
    """The level's values, picked from the whole field."""
    return np.ascontiguousarray(field[tuple(slice(None, None, step) for step in level.step)])


def check_levels(archive: bytes, field: NDArray) -> tuple[cusz.Level, ...]:
    """Checks every level, decoded from just the bytes that it needs; one byte less is not enough."""
    found = cusz.levels(archive)
    assert found[0].shape == field.shape
    assert found[0].step == (1,) * field.ndim
    assert {level.checksum for level in found} == {cusz.inspect(archive).checksum}
    assert [level.number for level in found] == list(range(len(found)))
    for level in found:
        assert level.shape == tuple(-(-n // step) for n, step in zip(field.shape, level.step, strict=True))
        prefix = archive[: level.needed_bytes]
        values = cusz.decompress(prefix, level=level.number, archive_bytes=len(archive), threads=1)
        assert values.dtype == field.dtype
        assert same_bits(values, picked(field, level)), level
        assert cusz.level_of(prefix, level.number, archive_bytes=len(archive))[0] == level
        damaged = prefix + bytes(b ^ 0xFF for b in archive[level.needed_bytes :])
        assert same_bits(cusz.decompress(damaged, level=level.number, threads=1), values)
        with pytest.raises(cusz.ParameterError, match=r"prefix_bytes is \d+; "):
            cusz.decompress(prefix[:-1], level=level.number, archive_bytes=len(archive))
    needed = [level.needed_bytes for level in found]
    assert needed == sorted(needed, reverse=True)
    assert needed[0] == len(archive)
    return found


@pytest.mark.parametrize("shape", ALL_SHAPES, ids=str)
def test_every_shape(shape: tuple[int, ...], dtype: np.dtype) -> None:
    x = smooth(shape, dtype, 3)
    assert math.prod(cusz.levels_of_shape(shape)[-1].shape) in (0, 1)
    for predictor in ("spline", "lorenzo"):
        archive = cusz.compress(x, 1e-3, threads=1, predictor=predictor)  # type: ignore[arg-type]
        found = check_levels(archive, cusz.decompress(archive, threads=1))
        of_shape = cusz.levels_of_shape(shape)
        assert [(level.shape, level.step) for level in found] == [(level.shape, level.step) for level in of_shape]


@pytest.mark.parametrize(("kind", "shape", "dtype"), spline_kinds.COVERING, ids=str)
def test_every_kind_of_field(kind: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    how = spline_kinds.KINDS[kind]
    archive = cusz.compress(how.make(shape, dtype), how.eb, how.mode, threads=1, predictor="spline", **how.options)
    check_levels(archive, cusz.decompress(archive, threads=1))


#: Shapes with several units in several lattices.
LARGE = [(70_000,), (260, 300), (3, 170, 200), (48, 65, 70), (3, 33, 40, 50)]


@pytest.mark.parametrize("shape", LARGE, ids=str)
@pytest.mark.parametrize(
    "kind", ["smooth", "mixture", "first_axis_in_layers", "last_axis_in_layers", "spikes", "nan_blocks"]
)
def test_large_fields(kind: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    how = spline_kinds.KINDS[kind]
    archive = cusz.compress(how.make(shape, dtype), how.eb, how.mode, predictor="spline", **how.options)
    field = cusz.decompress(archive)
    for level in check_levels(archive, field):
        of_level = picked(field, level)
        for start, count in boxes(level.shape, level.number, 3):
            prefix = archive[: level.needed_bytes]
            box = cusz.decompress_box(prefix, start, count, level=level.number, archive_bytes=len(archive))
            assert same_bits(box, part(of_level, start, count)), (level, start, count)


def test_a_level_costs_what_it_has() -> None:
    archive = cusz.compress(smooth((64, 64, 64), F32), 1e-3, predictor="spline")
    field, half, quarter, eighth = cusz.levels(archive)[:4]
    assert all(level.exact_cost for level in (field, half, quarter))
    assert half.needed_bytes < 0.25 * len(archive)
    assert quarter.needed_bytes < 0.05 * len(archive)
    assert eighth.needed_bytes == quarter.needed_bytes  # 16^3 values are decoded at once


def test_axes_that_are_not_halved_at_first_cost_more() -> None:
    """The field is rough along one axis, which its finest lattices therefore do not halve."""
    x = spline_kinds.layers((64, 65, 66), F32, [0])
    archive = cusz.compress(x, 1e-2, predictor="spline")
    half = check_levels(archive, cusz.decompress(archive))[1]
    assert half.step == (2, 2, 2)
    assert not half.exact_cost
    assert half.needed_bytes < len(archive)


OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lorenzo": (smooth((40, 41, 42), F32), {"eb": 1e-3, "predictor": "lorenzo"}),
    "raw": (smooth((40, 41, 42), F64), {"eb": 0.0}),
    "logarithms": (smooth((40, 41, 42), F32), {"eb": 1e-2, "mode": "pw_rel", "predictor": "lorenzo"}),
    "raw instead of logarithms": (smooth((40, 41, 42), F32), {"eb": 1e-9, "mode": "pw_rel"}),
    "empty": (np.empty((3, 0, 5), F32), {"eb": 1e-3}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_archives_without_levels_say_so(name: str) -> None:
    x, how = OTHERS[name]
    archive = cusz.compress(x, **how)
    found = check_levels(archive, cusz.decompress(archive))
    assert [level.exact_cost for level in found] == [True] + [False] * (len(found) - 1)
    assert all(level.needed_bytes == len(archive) for level in found)
    assert len(found) == (1 if x.size == 0 else 7)


LOGARITHMS: dict[str, NDArray] = {
    "of both signs": smooth((40, 41, 42), F32),
    "without a sign": abs(smooth((3, 50, 60), F64)) + 1,
    "with zeros": field_kinds.sparse((40, 41, 42), F64, 5),
    "with holes": np.where(smooth((40, 41, 42), F32) > 1, np.nan, smooth((40, 41, 42), F32) ** 9),
    "of many magnitudes": many_magnitudes((60, 70), F32),
    "of one value": np.full((30, 40), F32.type(-2.5)),
    "of a line": smooth((30_000,), F32),
}


@pytest.mark.parametrize("eb", [1e-2, 1e-6])
@pytest.mark.parametrize("name", LOGARITHMS)
def test_a_bound_relative_to_every_value(name: str, eb: float) -> None:
    archive = cusz.compress(LOGARITHMS[name], eb, "pw_rel", predictor="spline")
    whole = cusz.decompress(archive)
    for level in check_levels(archive, whole)[1:]:
        prefix = archive[: level.needed_bytes]
        for start, count in boxes(level.shape, level.number, 3):
            box = cusz.decompress_box(prefix, start, count, level=level.number, archive_bytes=len(archive))
            assert same_bits(box, part(picked(whole, level), start, count))


def test_signs_come_first() -> None:
    field = smooth((64, 64, 64), F32)
    positive, both = (cusz.compress(x, 1e-3, "pw_rel", predictor="spline") for x in (field + 9, field))
    half = cusz.levels(positive)[1]
    assert half.exact_cost
    assert half.needed_bytes < 0.3 * len(positive)
    assert half.needed_bytes < cusz.levels(both)[1].needed_bytes < len(both)
    for at in np.linspace(20, cusz.levels(both)[1].needed_bytes - 1, 60).astype(int):
        damaged = bytearray(both)
        damaged[at] ^= 16
        with pytest.raises(cusz.CuszError):
            cusz.decompress(damaged, level=1)


def test_hostile_logarithms() -> None:
    """Changes in the head, the signs and the head of the inner archive, with matching checksums: the bytes that a level
    then seems to need are refused or decoded, and nothing else happens."""
    archive = cusz.compress(smooth((20, 21, 22), F32), 1e-2, "pw_rel", predictor="spline")
    outer = format_v2.parts(archive)
    inner_at = outer.signs_at + outer.signs_bytes
    inner_at += -inner_at % 4
    inner = format_v2.parts(archive[inner_at:])
    assert 0 < outer.signs_at < inner_at < inner_at + inner.checksum_at < len(archive)
    unchanged = bytearray(archive[inner_at:])
    format_v2.seal(unchanged)
    assert archive[inner_at:] == unchanged
    regions = [(2, outer.signs_at), (outer.signs_at, inner_at), (inner_at, inner_at + 64), (0, len(archive))]
    refused = decoded = 0
    for i, (a, b, c) in enumerate(hashes(3 * 1200, 5).reshape(-1, 3).tolist()):
        begin, end = regions[i % len(regions)]
        mutant = bytearray(archive)
        for at in (a, b)[: 1 + c % 2]:
            mutant[begin + at % (end - begin)] ^= 1 << c % 8
        own = mutant[inner_at:]
        format_v2.seal(own)
        mutant[inner_at:] = own
        format_v2.seal(mutant)
        try:
            for level in cusz.levels(mutant):
                prefix = bytes(mutant[: level.needed_bytes])
                values = cusz.decompress(
                    prefix, level=level.number, archive_bytes=len(mutant), threads=1, max_bytes=1 << 24
                )
                assert values.shape == level.shape
                decoded += 1
        except cusz.CuszError:
            refused += 1
    assert refused > 300
    assert decoded > 300


def test_a_constant_has_all_levels() -> None:
    archive = cusz.compress(np.full((30, 40), F32.type(2.5)), 1e-3)
    found = check_levels(archive, cusz.decompress(archive))
    assert all(level.exact_cost for level in found)


@needs_zstd
@pytest.mark.parametrize("predictor", ["spline", "lorenzo"])
def test_behind_the_lossless_stage(predictor: Any) -> None:
    waves = (np.indices((40, 50, 60)).sum(axis=0) % 32).astype(F32)
    archive = cusz.compress(waves, 1e-2, lossless="zstd", predictor=predictor)
    assert cusz.inspect(archive).lossless == "zstd"
    assert not any(level.exact_cost for level in check_levels(archive, cusz.decompress(archive))[1:])


@pytest.mark.parametrize("k", [0, 1, 2])
def test_damage_is_found_where_it_matters_and_only_there(k: int) -> None:
    archive = cusz.compress(smooth((64, 64, 64), F32), 1e-3, predictor="spline")
    needed = cusz.levels(archive)[k].needed_bytes
    for at in np.linspace(30, needed - 1, 60).astype(int):
        damaged = bytearray(archive)
        damaged[at] ^= 16
        with pytest.raises(cusz.CuszError):
            cusz.decompress(damaged, level=k)
    damaged = bytearray(archive)
    damaged[needed - 1] ^= 1
    with pytest.raises(cusz.CorruptArchiveError, match="checksum"):
        cusz.decompress(damaged, level=k)


def test_the_first_bytes_say_what_is_needed() -> None:
    """A reader that knows nothing asks, reads as much as it is told, and asks again."""
    archive = cusz.compress(smooth((160, 128, 128), F32), 1e-3, predictor="spline")
    known, asked = MIN_PREFIX_BYTES, 0
    while (needed := cusz.level_of(archive[:known], 1, archive_bytes=len(archive))[0].needed_bytes) > known:
        known, asked = needed, asked + 1
    assert asked == 2
    assert needed == cusz.levels(archive)[1].needed_bytes
    with pytest.raises(cusz.ParameterError, match="legal: 128 to"):
        cusz.level_of(archive[: MIN_PREFIX_BYTES - 1], 1, archive_bytes=len(archive))
    with pytest.raises(cusz.ParameterError, match="prefix_bytes is"):
        cusz.level_of(archive, 1, archive_bytes=len(archive) - 1)


@pytest.mark.parametrize("mode", ["abs", "pw_rel"])
def test_every_cut_is_refused(mode: Any) -> None:
    archive = cusz.compress(smooth((40, 41, 42), F32), 1e-2, mode, predictor="spline")
    needed = cusz.levels(archive)[1].needed_bytes
    assert MIN_PREFIX_BYTES < needed < len(archive)
    for n in [*range(0, needed, 7), needed - 1]:
        with pytest.raises(cusz.ParameterError, match=f"prefix_bytes is {n}; "):
            cusz.decompress(archive[:n], level=1, archive_bytes=len(archive))
    with pytest.raises(cusz.CorruptArchiveError, match="its length is not what its index says"):
        cusz.decompress(archive[:needed], level=1, archive_bytes=len(archive) + 1)


@pytest.mark.parametrize("mode", ["abs", "pw_rel"])
def test_bytes_beyond_are_not_touched(mode: Any) -> None:
    """They lie on a page without read permission."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    archive = cusz.compress(smooth((64, 64, 64), F32), 1e-3, mode, predictor="spline")
    whole = cusz.decompress(archive)
    page = 4096
    for level in cusz.levels(archive)[:4]:
        size = -(-level.needed_bytes // page) * page
        address = libc.mmap(None, size + page, 3, 0x22, -1, 0)  # read and write; private, anonymous
        assert address not in (None, 2**64 - 1)
        assert libc.mprotect(address + size, page, 0) == 0
        begin = address + size - level.needed_bytes
        ctypes.memmove(begin, archive, level.needed_bytes)
        prefix = np.ctypeslib.as_array((ctypes.c_ubyte * level.needed_bytes).from_address(begin))
        values = cusz.decompress(prefix, level=level.number, archive_bytes=len(archive))
        assert same_bits(values, picked(whole, level))
        assert libc.munmap(address, size + page) == 0


def test_what_is_refused() -> None:
    archive = cusz.compress(smooth((20, 30), F32), 1e-3)
    number = len(cusz.levels(archive))
    for level in (number, 99):
        with pytest.raises(cusz.ParameterError, match=f"level is {level}; the field has the levels 0 to {number - 1}"):
            cusz.decompress(archive, level=level)
    with pytest.raises(cusz.ParameterError, match="0 or more"):
        cusz.decompress(archive, level=-1)
    with pytest.raises(cusz.ParameterError, match="must be an integer"):
        cusz.decompress(archive, level=1.5)  # type: ignore[call-overload]
    with pytest.raises(cusz.UnsupportedError, match="on the CPU"):
        cusz.decompress(archive, level=1, backend="cuda")
    with pytest.raises(cusz.ParameterError, match=r"\(10, 15\)"):
        cusz.decompress(archive, level=1, out=np.empty((20, 30), F32))
    with pytest.raises(cusz.ParameterError, match="not a box within"):
        cusz.decompress_box(archive, (9, 0), (2, 1), level=1)
    with pytest.raises(cusz.ParameterError, match="max_bytes"):
        cusz.decompress(archive, level=1, max_bytes=4 * 150 - 1)
    assert cusz.decompress(archive, level=1, max_bytes=4 * 150).shape == (10, 15)
    packed = cusz.compress(smooth((20, 30), F32), 1e-3, predictor="lorenzo")
    with pytest.raises(cusz.ParameterError, match="max_bytes"):  # all of it has to be decoded
        cusz.decompress(packed, level=1, max_bytes=4 * 150)
    with pytest.raises(cusz.ParameterError, match="dimensions"):
        cusz.levels_of_shape((1, 2, 3, 4, 5))
    with pytest.raises(cusz.UnsupportedError, match="the field's size does not fit in 63 bits"):
        cusz.levels_of_shape((2**40, 2**40))
    for archive_bytes in (2**63, 2**64, 2**70):
        with pytest.raises(cusz.ParameterError, match=r"archive_bytes is \d+; it must be less than 2\*\*63"):
            cusz.decompress(archive, level=1, archive_bytes=archive_bytes)
    for level in (0, 1):
        with pytest.raises(cusz.UnsupportedError, match="out is a bytearray; it must be a numpy array"):
            cusz.decompress_box(archive, (0, 0), out=bytearray(100), level=level)  # type: ignore[arg-type]
    with pytest.raises(cusz.CorruptArchiveError, match="not a cuSZ archive"):
        cusz.levels(bytes(200))


def test_into_an_array_of_the_caller() -> None:
    archive = cusz.compress(smooth((20, 30), F64), 1e-3)
    expected = cusz.decompress(archive)[::2, ::2]
    out = np.empty((10, 15), F64)
    assert cusz.decompress(archive, level=1, out=out) is out
    assert same_bits(out, np.ascontiguousarray(expected))
    larger = np.zeros((6, 40), F64)
    assert same_bits(
        np.ascontiguousarray(cusz.decompress_box(archive, (4, 3), out=larger[::2, 1:25:2], level=1)),
        part(np.ascontiguousarray(expected), (4, 3), (3, 12)),
    )
    assert np.count_nonzero(larger) == 36


SHAPE = st.lists(st.integers(1, 40), min_size=1, max_size=4).filter(lambda shape: math.prod(shape) <= 40_000)


@settings(max_examples=150)
@given(
    shape=SHAPE,
    seed=st.integers(0, 99),
    dtype=st.sampled_from(DTYPES),
    eb=st.sampled_from([1e-4, 1e-2, 1.0]),
    special=st.sampled_from([None, np.nan, np.inf, 1e20]),
    predictor=st.sampled_from(["spline", "lorenzo", "auto"]),
)
def test_any_field(shape: list[int], seed: int, dtype: np.dtype, eb: float, special: Any, predictor: Any) -> None:
    x = smooth(tuple(shape), dtype, seed)
    if special is not None:
        x.reshape(-1)[seed % x.size :: 7] = special
    fill = 1e20 if special == 1e20 else None
    archive = cusz.compress(x, eb, fill=fill, predictor=predictor, threads=1)
    check_levels(archive, cusz.decompress(archive, threads=1))
