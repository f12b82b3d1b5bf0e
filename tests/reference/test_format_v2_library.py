"""The library against format_v2_reference.py, an implementation of docs/format_v2.md that shares no code with it: the
same bytes for the same field, the same values for the same bytes, and the same archives refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import format_v1_reference as v1
import format_v2_reference as reference
import numpy as np
import pytest
from golden_cases import SPLINE_CASES
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from v2_cases import (
    REFUSED,
    SPECIALS,
    Options,
    any_fields,
    flipped,
    large_field,
    parts_of,
    resealed,
    smooth_fields,
    strewn,
)

import cusz_core as cusz
import spline_kinds
import support
from cusz_core import backends
from field_kinds import KINDS, SHAPES
from support import DTYPES, F32, F64, integers, random_bits, same_bits, smooth

settings.register_profile("format v2, library", deadline=None, max_examples=50, derandomize=True)
FEW = settings.get_profile("format v2, library")


def choices_in(archive: bytes) -> Options:
    """What the text leaves to the writer."""
    interpolation = archive[55]
    return {
        "axes": archive[54],
        "cubic": bool(interpolation & 1),
        "alpha": interpolation >> 1 & 7,
        "beta": interpolation >> 4 & 3,
    }


def difference(archive: bytes, wanted: bytes) -> str:
    pairs = enumerate(zip(archive, wanted, strict=False))
    at = next((i for i, (a, b) in pairs if a != b and not 40 <= i < 48), min(len(archive), len(wanted)))
    body_at = 128 + int.from_bytes(wanted[112:120], "little") if wanted[4] == 2 else math.inf
    sections = [(48, "header"), (128, "coding header"), (body_at, "model"), (math.inf, "body")]
    section = next(name for end, name in sections if at < end)
    return f"{len(archive)} bytes, wanted {len(wanted)}; the first difference is byte {at}, in the {section}"


def agree(x: NDArray, eb: float, mode: cusz.codec.Mode = "abs", fill: float | None = None) -> bytes:
    """The library's archive of a field is the one that the text asks for, and both read the same field from it."""
    archive = cusz.compress(x, eb, mode, predictor="spline", fill=fill, threads=1)
    if archive[4] == 2:
        wanted = reference.encode(x, eb, mode, fill, **choices_in(archive))
    else:  # what the choices were is not known
        wanted = v1.encode(x, eb, mode, fill=fill)
    if archive != wanted:
        pytest.fail(difference(archive, wanted))
    assert same_bits(cusz.decompress(archive, threads=1), reference.decode(archive))
    return archive


# ---------------------------------------------------------------------------------------------------------------------
# The same bytes

#: Every kind meets an eighth of the shapes.
SOME = [
    (kind, shape, DTYPES[(i + j) // 8 % 2])
    for (i, kind), (j, shape) in itertools.product(enumerate(KINDS), enumerate(SHAPES))
    if (i + j) % 8 == 0
]


@pytest.mark.parametrize(("kind", "shape", "dtype"), SOME, ids=str)
def test_same_archives(kind: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    how = KINDS[kind]
    agree(how.make(shape, dtype), how.eb, how.mode, how.options.get("fill"))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_same_archives_of_all_shapes(kind: str) -> None:
    for shape, dtype in itertools.product(SHAPES, DTYPES):
        test_same_archives(kind, shape, dtype)


@pytest.mark.quick(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        *[("mixture", (300_000,)), ("tiles_of_all_kinds", (620, 530)), ("disorder", (3, 110_000))],
        *[("second_axis_in_layers", (90, 60, 61)), ("first_axis_in_layers", (3, 5, 150, 151))],
    ],
    ids=str,
)
def test_fields_worked_on_in_parts(kind: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """So large that the library never has all of the finer lattices."""
    how = spline_kinds.KINDS[kind]
    agree(how.make(shape, dtype), how.eb, how.mode, how.options.get("fill"))


@pytest.mark.parametrize("name", SPLINE_CASES)
def test_golden_cases(name: str) -> None:
    case = SPLINE_CASES[name]
    x = case.make()
    cusz.verify(x, agree(x, case.eb, case.mode, case.options.get("fill")))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_golden_cases_have_all_parts(dtype: np.dtype) -> None:
    cases = ((case, x) for case in SPLINE_CASES.values() if (x := case.make()).dtype == dtype)
    archives = [case.compress(x) for case, x in cases]
    kinds = {(info.version, info.kind) for info in map(cusz.inspect, archives)}
    assert kinds == {(1, "raw"), (1, "tiled"), (2, "tiled")}
    pyramids = [archive for archive in archives if archive[4] == 2]
    assert set().union(*map(parts_of, pyramids)) == {
        *("tables", "top of kind 0", "top of kind 1", "empty", "kind 0", "kind 1", "kind 2"),
        *("lanes 1", "lanes 2", "lanes 4", "verbatim", "extra bits"),
    }
    assert {choices_in(archive)["axes"].bit_count() for archive in pyramids} == {1, 2, 3}
    assert {cusz.inspect(archive).mode for archive in pyramids} == {"abs", "rel"}


@pytest.mark.skipif("zstd" not in backends.lossless_stages(), reason="this build has no zstd stage")
@pytest.mark.parametrize("name", ["f32_all_fill", "f64_many_tiles", "f32_constant"])
def test_the_lossless_stage(name: str) -> None:
    """The reference does not undo it, but checks everything else."""
    case = SPLINE_CASES[name]
    x = case.make()
    plain, packed = case.compress(x), case.compress(x, lossless="zstd")
    assert len(packed) < len(plain)
    assert packed[8:40] == plain[8:40]
    assert (packed[50], packed[51:96], packed[104:128]) == (1, plain[51:96], plain[104:128])
    with pytest.raises(RuntimeError, match="zstd"):
        reference.decode(packed)
    assert same_bits(cusz.decompress(packed), reference.decode(plain))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fill", [0.0, -0.0, 0.125, math.nan, math.inf, 1e20])
def test_fill(fill: float, dtype: np.dtype) -> None:
    """0.125 also occurs among the values that the reader makes."""
    x = strewn((90, 95), dtype, [fill, fill, math.nan, 1.0, -0.0], 20)
    x[10:80, 66:] = fill
    x[:20, :20] = np.round(x[:20, :20] * 8) / 8
    for eb, mode in ((0.125, "abs"), (1e-4, "rel")):
        assert agree(x, eb, mode, fill)[4] == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_integers_at_the_bound(dtype: np.dtype) -> None:
    for shape in ((5000,), (60, 70), (17, 18, 19)):
        x = integers(math.prod(shape), -30, 30).astype(dtype).reshape(shape)
        assert agree(x, 0.5)[4] == 2
        agree(x * 2, 0.5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_huge_and_tiny_values(dtype: np.dtype) -> None:
    limits = np.finfo(dtype)
    tiny, largest = float(limits.tiny), float(limits.max)
    x = smooth((40, 50), dtype)
    near_largest = np.where(x > 0, limits.max, -limits.max) * (1 - np.abs(x) / 8192).astype(dtype)
    for eb in (tiny, largest / 1e6, largest, float(np.finfo(F64).max)):
        agree(near_largest, eb)
    agree(near_largest, 1e-5, "rel")
    with np.errstate(under="ignore"):
        subnormal = (x * limits.smallest_subnormal * 1000).astype(dtype)
    for eb in (tiny / 2, tiny, 2 * tiny, 1e-3):
        agree(subnormal, eb)


@settings(FEW)
@given(
    x=st.one_of(any_fields(), smooth_fields(), smooth_fields(), smooth_fields()),
    eb=st.one_of(
        st.floats(1e-12, 1e3),
        st.floats(min_value=0.0, allow_infinity=False),
        st.sampled_from([0.5, 0.01, 0.01, 0.125, 1e-38, 2.3e-308, 1e38, 1.7e308]),
    ),
    mode=st.sampled_from(["abs", "rel"]),
    fill=st.sampled_from([None, *SPECIALS]),
)
def test_any_field(x: NDArray, eb: float, mode: Any, fill: float | None) -> None:
    agree(x, eb, mode, fill)


@settings(FEW)
@given(
    shape=st.lists(st.integers(1, 30), min_size=1, max_size=4).filter(lambda shape: math.prod(shape) < 5000),
    dtype=st.sampled_from(DTYPES),
    eb=st.sampled_from([0.5, 0.25, 0.3, 3.0]),
    largest=st.sampled_from([2, 30, 3000]),
    fill=st.sampled_from([None, 0.0, 1.0]),
    seed=st.integers(0, 2**20),
)
def test_any_integers(
    shape: list[int], dtype: np.dtype, eb: float, largest: int, fill: float | None, seed: int
) -> None:
    """Predictions and values are often exactly at the bound from each other."""
    agree(integers(math.prod(shape), -largest, largest + 1, seed).astype(dtype).reshape(shape), eb, "abs", fill)


def test_an_archive_has_version_1_where_a_pyramid_would_not_be_shorter() -> None:
    x = smooth((31,), F64)
    options: Options = {"axes": 1, "even_if_longer": True}
    assert all(
        len(reference.encode(x, 0.1, cubic=cubic, alpha=alpha, beta=beta, **options)) >= 48 + x.nbytes
        for cubic, alpha, beta in itertools.product((False, True), range(5), range(4))
    )
    assert cusz.compress(x, 0.1, predictor="spline") == reference.encode(x, 0.1, axes=1) == v1.encode(x, 0.1)


# ---------------------------------------------------------------------------------------------------------------------
# The same values: archives with any choices


@settings(FEW)
@given(
    x=st.one_of(any_fields(), smooth_fields(), smooth_fields()),
    eb=st.sampled_from([0.5, 0.01, 0.1, 1e-4, 1e-38, 1e38]),
    fill=st.sampled_from([None, *SPECIALS]),
    axes=st.integers(1, 14),
    interpolation=st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 3)),
)
def test_any_choices(
    x: NDArray, eb: float, fill: float | None, axes: int, interpolation: tuple[bool, int, int]
) -> None:
    cubic, alpha, beta = interpolation
    options: Options = {"axes": axes, "cubic": cubic, "alpha": alpha, "beta": beta, "even_if_longer": True}
    archive = reference.encode(x, eb, "abs", fill, **options)
    if archive[4] == 2:  # readers may refuse bodies that are longer than raw archives
        assume(int.from_bytes(archive[88:96], "little") <= x.nbytes + support.RAW_OVERHEAD)
    assert same_bits(cusz.decompress(archive, threads=1), reference.decode(archive))


# ---------------------------------------------------------------------------------------------------------------------
# The same archives refused


def refuses(archive: bytes) -> bool:
    try:
        cusz.decompress(archive, threads=1)
    except (cusz.CorruptArchiveError, cusz.UnsupportedError, cusz.ArchiveTooNewError):
        return True
    return False


@pytest.fixture(scope="module")
def victim() -> bytes:
    return reference.encode(large_field(), 1e-3, axes=2)


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED)
def test_same_archives_refused(victim: bytes, edit: Callable[[bytes], bytes]) -> None:
    damaged = resealed(edit(victim))
    with pytest.raises(reference.FormatError):
        reference.decode(damaged)
    assert refuses(damaged)


def read_by_reference(archive: bytes) -> NDArray | None:
    """None if it refuses it."""
    try:
        return reference.decode(archive)
    except (reference.FormatError, RuntimeError):  # RuntimeError: a zstd stage
        return None


def small_victims() -> dict[str, bytes]:
    order = np.zeros((2, 5, 33, 13), F64)
    order[0] = smooth((5, 33, 13), F64)
    order[1] = strewn((5, 33, 13), F64, [1e30, np.nan, 3e4], 30)
    line = strewn((700,), F32, [np.nan, 1e30, np.inf, 77.0, 5e3], 40)
    block = smooth((9, 10, 11), F32)
    block[3:6] = np.where(block[3:6] > 0, 1e20, block[3:6])
    tiles = np.zeros((10, 1500), F32)
    tiles[:, :400] = smooth((10, 400), F32)
    tiles[:, 400:800] = np.nan
    tiles[:, 800:1200] = random_bits((10, 400), F32)
    return {
        "4-D, two axes": reference.encode(order, 0.1, axes=3, alpha=2, beta=1),
        "1-D": reference.encode(line, 1e-2, axes=1, cubic=False),
        "3-D, fill": reference.encode(block, 1e-2, "abs", 1e20, axes=7, even_if_longer=True),
        "tiles": reference.encode(tiles, 1e-2, axes=2),
    }


@pytest.fixture(scope="module", params=["4-D, two axes", "1-D", "3-D, fill", "tiles"])
def small_victim(request: pytest.FixtureRequest) -> bytes:
    return small_victims()[request.param]


@pytest.mark.parametrize("part", ["front", "body"])
def test_same_reading_of_changed_archives(small_victim: bytes, part: str) -> None:
    """Whatever stands in an archive with fitting checksums: both refuse it, or both read the same values."""
    assert small_victim[4] == 2
    body_at = 128 + int.from_bytes(small_victim[112:120], "little")
    begin, end = (48, body_at + 80) if part == "front" else (body_at, len(small_victim))
    taken = 0
    for bit in (8 * begin + integers(150, 0, 8 * (end - begin), begin)).tolist():
        damaged = resealed(flipped(small_victim, bit))
        wanted = read_by_reference(damaged)
        if wanted is None:
            assert refuses(damaged), f"bit {bit}"
        else:
            assert same_bits(cusz.decompress(damaged, threads=1), wanted), f"bit {bit}"
            taken += 1
    assert taken < 150
