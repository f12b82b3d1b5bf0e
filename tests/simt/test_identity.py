"""The CUDA engine writes the CPU engine's archives, byte for byte, and reads the same values from them."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
from golden_cases import CASES, folder
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from simt_checks import check_identity
from simt_fields import COVERING, KINDS, Kind
from simt_library import ABS, CPU, CUDA, DEVICE, RAW_OVERHEAD, REL, Context, Library

import format_v1 as v1
import formats
import support
from strategies import any_fields

pytestmark = pytest.mark.simt

DTYPES: list[np.dtype] = [np.dtype(np.float32), np.dtype(np.float64)]
REAL = sorted(Path(os.environ["CUSZ_TEST_DATA"]).glob("*.npy")) if os.environ.get("CUSZ_TEST_DATA") else []


@pytest.mark.quick("all")
@pytest.mark.parametrize(("name", "shape", "dtype"), COVERING, ids=str)
def test_kinds_and_shapes(simt: Library, reused: Context, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    kind = KINDS[name]
    check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options)


#: What each kind is for: a condition on its archive and on the tile headers (of version 1).
REACHED = {
    "smooth": lambda info, all_: info.kind == 1 and set(map(v1.PREDICTOR.of, all_)) & {1, 2, 3},
    "noise": lambda info, all_: info.kind == 1,
    "constant": lambda info, all_: all(map(v1.ALL_ZERO.of, all_)),
    "sparse": lambda info, all_: any(map(v1.FINE_MASK.of, all_)),
    "lonely": lambda info, all_: any(map(v1.MASK.of, all_)),
    "corner": lambda info, all_: any(v1.MASK.of(header) and not v1.FINE_MASK.of(header) for header in all_),
    "nan": lambda info, all_: info.n_special > 0 and any(map(v1.MISSING.of, all_)),
    "inf": lambda info, all_: info.n_unpredictable > 0 and any(map(v1.MISSING.of, all_)),
    "fill": lambda info, all_: info.n_special > 0 and info.has_fill,
    "mixture": lambda info, all_: info.n_special > 0 and info.n_unpredictable > 0,
    "missing_first": lambda info, all_: info.n_special > 0,
    "far": lambda info, all_: info.n_out_of_range > 0,
    "far_128": lambda info, all_: info.n_out_of_range > 0,
    "beyond": lambda info, all_: info.n_unpredictable > 0 and info.n_special == 0,
    "steep": lambda info, all_: info.kind == 1 and info.n_out_of_range > 0,
    "ties": lambda info, all_: info.n_unpredictable > 0 and info.n_special == 0,
    "all_nan": lambda info, all_: set(map(v1.KIND.of, all_)) == {v1.SPECIAL},
    "all_fill": lambda info, all_: info.kind == 0 or set(map(v1.KIND.of, all_)) == {v1.SPECIAL},
    "incompressible": lambda info, all_: info.kind == 0,
    "tiny_bound": lambda info, all_: info.kind == 0,
    "lossless": lambda info, all_: info.kind == 0,
    "huge_bound": lambda info, all_: all(map(v1.ALL_ZERO.of, all_)),
    "raw_tiles": lambda info, all_: set(map(v1.KIND.of, all_)) == {v1.CODED, v1.RAW},
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", REACHED)
def test_kinds_reach_what_they_are_for(simt: Library, reused: Context, name: str, dtype: np.dtype) -> None:
    kind, reached = KINDS[name], []
    for shape in ((20000,), (130, 150), (18, 33, 40), (4, 18, 17, 40)):
        archive = check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options)
        info = reused.info_of(archive)
        headers = [header for _, header in formats.tile_headers(archive)] if info.kind == 1 else []
        reached.append(bool(REACHED[name](info, headers)))
    assert any(reached)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_predictor_is_reached(simt: Library, reused: Context, dtype: np.dtype) -> None:
    predictors: set[int] = set()
    with_missing: set[int] = set()
    ranks_of_fine_masks = set()
    for name, shape in (
        *[(name, (18, 33, 40)) for name in ("smooth", "ripples", "plane_wave", "nan", "noise", "constant")],
        *[("missing_first", (40, 40, 40)), ("nan", (130, 150)), ("nan", (9000,)), ("mixture", (2, 9, 17, 33))],
        *[("sparse", shape) for shape in ((9000,), (130, 150), (18, 33, 40), (4, 18, 17, 40))],
    ):
        kind = KINDS[name]
        archive = check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options)
        for _, header in formats.tile_headers(archive):
            if v1.is_coded(header):
                predictors.add(v1.PREDICTOR.of(header))
                if v1.MISSING.of(header):
                    with_missing.add(v1.PREDICTOR.of(header))
                if v1.FINE_MASK.of(header):
                    ranks_of_fine_masks.add(len(shape))
    assert predictors == set(v1.PREDICTORS)
    assert with_missing == set(v1.LORENZO)
    assert ranks_of_fine_masks == {1, 2, 3, 4}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_codes_beyond_the_sample(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """Only some tiles are counted; symbols of others that the codebook lacks are escaped."""
    x = support.smooth((40, 200, 200), dtype) * dtype.type(1e-3)
    x[20:22] *= 2000
    x[30, ::3] = np.nan
    archive = check_identity(reused, x, 1e-3)
    assert reused.info_of(archive).n_tiles > 128  # so only a sample is counted


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_codebook_of_one_symbol(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """All codes of the only coded group are the same, and this alphabet has no escapes."""
    x = np.clip(np.arange(4096) - 63, 0, 64).astype(dtype)
    archive = check_identity(reused, x, 0.25, bins=128)
    info = reused.info_of(archive)
    codebook = np.frombuffer(archive, np.uint8, info.codebook_bytes, info.header_bytes)
    assert np.count_nonzero(codebook) == 1


@pytest.mark.parametrize("bins", [64, 128, 1024, 8192])
@pytest.mark.parametrize("symbols", [2, 3, 63, 66, 400, 3000])
@pytest.mark.parametrize("counts", ["equal", "doubling", "steep"])
def test_codebooks(simt: Library, reused: Context, counts: str, symbols: int, bins: int) -> None:
    """Many equal weights, and weights whose codewords would be longer than the limit."""
    random = np.random.default_rng(symbols)
    codes = random.permutation(np.arange(symbols) - symbols // 2)
    order = np.arange(symbols)
    odds = {"equal": 0 * order, "doubling": -order / 1.4, "steep": -order / 2.5}[counts]
    chances = np.exp(np.maximum(odds, -60.0))
    steps = random.choice(codes, 20_000, p=chances / chances.sum())
    check_identity(reused, np.cumsum(steps).astype(np.float64), 0.5, bins=bins)


def zeros_in_cubes(cubes: int, dtype: np.dtype) -> NDArray:
    """One tile, clipped to rows of odd length, whose codes are zero in `cubes` subgroups (2x2x2) and nowhere else."""
    x = np.where(support.integers(8 * 16 * 31, 0, 2) == 0, 1, -1).astype(dtype).reshape(8, 16, 31)
    places = [(z, y, 4 * i + y % 4) for y in range(0, 16, 2) for z in range(0, 8, 2) for i in range(7)]
    for z, y, begin in places[:cubes]:
        x[z : z + 2, y : y + 2, begin : begin + 2] = 0
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fine_masks_are_tried_where_zeros_are_adjacent(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """If more pairs are zero than half the number of subgroups. Places after the last value do not count."""
    for cubes, fine in ((127, 0), (128, 0), (129, 1)):  # of 512, each with two pairs at even positions
        archive = check_identity(reused, zeros_in_cubes(cubes, dtype), 0.5)
        ((_, header),) = formats.tile_headers(archive)
        assert v1.FINE_MASK.of(header) == fine


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masks_of_squares_clipped_along_y(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """Some subgroups of the last row are coded; half of that row may lie outside."""
    for rows in range(1, 8):
        x = np.zeros((64 + rows, 64), dtype)
        x[64:, 8:32:5] = support.integers(rows * 5, 1, 100).reshape(rows, 5)
        archive = check_identity(reused, x, 0.5)
        assert v1.MASK.of(formats.tile_headers(archive)[1][1])


@pytest.mark.parametrize("shape", [(40, 15, 31), (18, 33, 31), (16, 32, 64), (18, 33, 40)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_second_order_is_not_for_tiles_with_missing_values(
    simt: Library, reused: Context, dtype: np.dtype, shape: tuple[int, ...]
) -> None:
    kind = KINDS["ripples"]
    x = kind.make(shape, dtype)
    for has_missing in (0, 1):
        if has_missing:
            x.flat[::50] = np.nan
        archive = check_identity(reused, x, kind.eb, kind.mode, **kind.options)
        headers = [header for _, header in formats.tile_headers(archive)]
        predictors = {v1.PREDICTOR.of(h) for h in headers if v1.is_coded(h) and v1.MISSING.of(h) == has_missing}
        assert (max(predictors) <= max(v1.LORENZO)) == has_missing


def subgroup_of(rank: int) -> tuple[int, ...]:
    return {1: (8,), 2: (2, 4), 3: (2, 2, 2)}[rank]


def zero_pairs(x: NDArray) -> int:
    """Pairs of neighbours in tile order, counted from the first value, that are both zero."""
    zero = x.reshape(-1)[: x.size // 2 * 2].reshape(-1, 2) == 0
    return int(np.count_nonzero(zero.all(1)))


def with_zeros(shape: tuple[int, ...], dtype: np.dtype, subgroups: int, pairs: int, seed: int) -> NDArray:
    """One tile, whose values are its codes, with this many zero subgroups and at least this many pairs of zeros."""
    n, edges = math.prod(shape), subgroup_of(len(shape))
    magnitude = support.integers(n, 3, 9, seed) * (support.integers(n, 0, 2, seed + 1) * 2 - 1)
    x = magnitude.astype(dtype).reshape(shape)
    counts = [-(-extent // edge) for extent, edge in zip(shape, edges, strict=True)]
    shuffled = np.argsort(support.hashes(math.prod(counts), seed + 2))
    order = [0, *shuffled[shuffled != 0]]  # the anchor, the first value, is 0
    for number in order[:subgroups]:
        at = np.unravel_index(number, counts)
        x[tuple(slice(i * edge, (i + 1) * edge) for i, edge in zip(at, edges, strict=True))] = 0
    x.reshape(-1, shape[-1])[::2, 0] = 0
    flat = x.reshape(-1)
    flat[-1] = 0
    for number in np.argsort(support.hashes(n // 2, seed + 3)):
        if zero_pairs(x) >= pairs:
            break
        flat[2 * number : 2 * number + 2] = 0
    return x


@pytest.mark.parametrize(
    ("field", "shape", "subgroups"),
    [
        *[((64, 63), (64, 63), 76), ((63, 63), (63, 63), 78), ((7, 15, 31), (7, 15, 31), 104)],
        *[((64, 127), (64, 63), 76), ((127, 127), (63, 63), 78)],
        *[((8, 16, 63), (8, 16, 31), 100), ((15, 31, 63), (7, 15, 31), 104)],
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pairs_of_zeros_in_rows_of_odd_length(
    simt: Library, reused: Context, dtype: np.dtype, field: tuple[int, ...], shape: tuple[int, ...], subgroups: int
) -> None:
    """They decide whether a fine mask is tried: in rows of odd length, subgroups may be zero but their pairs too few.

    In a field of one tile, and in the last, clipped tile of a larger field.
    """
    for seed in range(0, 40, 10):
        for pairs in (256, 257):
            x = np.zeros(field, dtype)
            last = x[tuple(slice(-extent, None) for extent in shape)]
            last[...] = with_zeros(shape, dtype, subgroups, pairs, seed)
            assert zero_pairs(last) == pairs
            archive = check_identity(reused, x, 0.5)
            *_, (_, header) = formats.tile_headers(archive)
            assert v1.PREDICTOR.of(header) == 0
            assert v1.FINE_MASK.of(header) == (pairs > 256)  # of 512 subgroups


@pytest.mark.parametrize("before", [0, 4096])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pairs_of_zeros_in_a_line_of_odd_length(simt: Library, reused: Context, dtype: np.dtype, before: int) -> None:
    """The same: a fine mask would save 65 values for 64 bits, and is tried if more than 32 pairs are zero."""
    for pairs in (32, 33):
        x = np.zeros(before + 505, dtype)
        last = x[before:]
        last[64:504] = support.integers(440, 3, 9) * (support.integers(440, 0, 2, 1) * 2 - 1)
        if pairs == 33:
            last[502:504] = 0
        assert zero_pairs(last) == pairs
        archive = check_identity(reused, x, 0.5, predictor="lorenzo")
        *_, (_, header) = formats.tile_headers(archive)
        assert v1.PREDICTOR.of(header) == 0
        assert v1.FINE_MASK.of(header) == (pairs > 32)


@pytest.mark.parametrize("shape", [(4096,), (64, 64), (8, 16, 32), (16, 16, 16)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_fine_mask_must_pay(simt: Library, reused: Context, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """For 64 groups and 512 subgroups it takes 576 bits, and every zero subgroup saves coding 8 values."""
    for subgroups in (71, 72, 73):
        x = with_zeros(shape, dtype, subgroups, 0, 5)
        archive = check_identity(reused, x, 0.5)
        ((_, header),) = formats.tile_headers(archive)
        assert v1.FINE_MASK.of(header) == (subgroups > 72)


@pytest.mark.parametrize("fill", [np.nan, np.inf, -0.0, 0.0, 1e300])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fills_of_every_sort(simt: Library, reused: Context, dtype: np.dtype, fill: float) -> None:
    x = support.smooth((9, 17, 33), dtype).round(1)
    with np.errstate(over="ignore"):
        x.reshape(-1)[::7] = dtype.type(fill)
    x.reshape(-1)[1::77] = -0.0
    x.reshape(-1)[3::77] = np.nan
    for eb, mode in ((1e-2, REL), (1e-1, ABS)):
        check_identity(reused, x, eb, mode, fill=fill)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_lies_outside_a_tile_is_not_missing(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """Zeros lie there, which are the fill value here; a clipped tile has none, but values that no code stands for."""
    for shape in ((5000,), (70, 130), (9, 17, 33)):
        x = KINDS["ties"].make(shape, dtype)
        archive = check_identity(reused, x, 0.1, fill=0.0)
        info = reused.info_of(archive)
        assert info.n_unpredictable > 0
        assert info.n_special == 0


@pytest.mark.quick("all")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_at_the_limit_of_the_quanta(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """The largest values that are quantised; those just beyond are stored as they are."""
    limit = dtype.type(2.0 ** (22 if dtype.itemsize == 4 else 51))
    for shape in ((4096,), (70, 130), (8, 16, 32), (9, 17, 33), (2, 3, 10, 12)):
        x = support.smooth(shape, dtype)
        flat = x.reshape(-1)
        flat[::50], flat[7::50] = limit, -limit
        flat[1::50], flat[8::50] = np.nextafter(limit, dtype.type(np.inf)), -np.nextafter(limit, dtype.type(np.inf))
        flat[2::50], flat[9::50] = np.nextafter(limit, dtype.type(0)), -np.nextafter(limit, dtype.type(0))
        archive = check_identity(reused, x, 0.5)
        beyond = np.count_nonzero(np.abs(x) > limit)
        assert beyond <= reused.info_of(archive).n_unpredictable < beyond + x.size // 50


def test_an_empty_field(simt: Library, reused: Context) -> None:
    for shape in ((0,), (3, 0, 2)):
        check_identity(reused, np.zeros(shape, np.float32), 1e-3)


# ---- Fields found by hypothesis

dtypes = st.sampled_from(DTYPES)
shapes = arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=18)
bounds = st.one_of(st.floats(1e-9, 1e3), st.sampled_from([5e-324, 1.2e-38, 2.3e-308, 1 / 3, 1e38, 1.7e308]))
fills = st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1e20, -9999.0, float("nan"), float("inf")]))
some_bins = st.sampled_from([64, 64, 128, 1024, 8192])


@st.composite
def patched_fields(draw: st.DrawFn) -> NDArray:
    """Zeros with boxes of several kinds, in any shape of a few tiles."""
    dtype = draw(dtypes)
    shape = draw(st.sampled_from([(draw(st.integers(1, 9000)),), draw(shapes), (20, 40, 50), (100, 90)]))
    x = np.zeros(shape, dtype)
    for _ in range(draw(st.integers(1, 4))):
        kind: Kind = KINDS[draw(st.sampled_from(sorted(KINDS)))]
        begin = [draw(st.integers(0, extent - 1)) for extent in shape]
        box = tuple(slice(b, draw(st.integers(b + 1, n))) for b, n in zip(begin, shape, strict=True))
        x[box] = kind.make(x[box].shape, dtype)
    return x


@given(x=any_fields(shapes) | patched_fields(), eb=bounds, mode=st.sampled_from([ABS, REL]), fill=fills, bins=some_bins)
@settings(max_examples=240, derandomize=True)
def test_any_field(loaded: Library, reused: Context, x: NDArray, eb: float, mode: int, fill: float, bins: int) -> None:
    check_identity(reused, x, eb, mode, fill=fill, bins=bins)
    assert loaded.report == ""


# ---- Archives of the repository, and fields of science


@pytest.mark.parametrize("name", CASES)
def test_golden_archives(simt: Library, reused: Context, name: str) -> None:
    case = CASES[name]
    x = case.make()
    golden = (folder(reused.info_of(reused.compress(x, 0.0)).version) / f"{name}.cusz").read_bytes()
    mode = REL if case.mode == "rel" else ABS
    assert reused.compress(x, case.eb, mode, field=DEVICE, archive=DEVICE, **case.options) == golden
    assert reused.compress(x, case.eb, mode, backend=CUDA, **case.options) == golden
    decoded = reused.decompress(golden, x.nbytes, field=DEVICE, archive=DEVICE)
    assert decoded == reused.decompress(golden, x.nbytes, backend=CPU)


@pytest.mark.skipif(not REAL, reason="CUSZ_TEST_DATA is not set")
@pytest.mark.parametrize(
    ("path", "eb"),
    [
        *[pytest.param(path, 1e-3, id=path.stem) for path in REAL],
        *[pytest.param(path, eb, id=f"{path.stem}-{eb}", marks=pytest.mark.long)
          for path in REAL for eb in (1e-2, 1e-4, 1e-6)],
    ],
)  # fmt: skip
def test_real_fields(simt: Library, reused: Context, path: Path, eb: float) -> None:
    x = np.ascontiguousarray(np.load(path))
    fill = 1e20 if path.stem.startswith("ipsl_tos") else None
    archive = check_identity(reused, x, eb, REL, fill=fill)
    assert len(archive) < x.nbytes + RAW_OVERHEAD
