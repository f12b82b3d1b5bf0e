"""The library against format_v1_reference.py, an implementation of format.md that shares no code with it. Both must
give the same bytes for a field and the same values for an archive, and refuse the same archives."""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import format_v1_reference as reference
import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core as cusz
import support
from cusz_core.parameters import Mode
from field_kinds import strewn
from support import DTYPES, F32, F64, integers, same_bits, smooth

Make = Callable[[np.dtype], NDArray]

compress = functools.partial(cusz.compress, predictor="lorenzo")  # gives archives of version 1


def difference(archive: bytes, wanted: bytes) -> str:
    at = next(
        (i for i, (a, b) in enumerate(zip(archive, wanted, strict=False)) if a != b), min(len(archive), len(wanted))
    )
    codebook_end = 128 + (reference.Alphabet(wanted[52]).section_bytes if wanted[5] else 0)
    sections = [(48, "header"), (128, "coding header"), (codebook_end, "codebook"), (math.inf, "body")]
    section = next(name for end, name in sections if at < end)
    return f"{len(archive)} bytes, wanted {len(wanted)}; the first difference is byte {at}, in the {section}"


def agree(x: NDArray, eb: float, mode: Mode = "abs", *, bins: int = 64, fill: float | None = None) -> bytes:
    """Checks that both implementations write the same archive of a field and read the same values from it."""
    wanted = reference.encode(x, eb, mode, bins, fill)
    for backend in support.BACKENDS:
        options: dict[str, Any] = {"bins": bins, "fill": fill, "threads": 1, "backend": backend}
        archive = compress(x, eb, mode, **options)
        if archive != wanted:
            pytest.fail(f"{backend}: {difference(archive, wanted)}")
    assert same_bits(cusz.decompress(wanted, threads=1), reference.decode(wanted))
    return wanted


# ---------------------------------------------------------------------------------------------------------------------
# What a tiled archive is made of


def parsed(archive: bytes) -> reference.TiledArchive:
    kind, ty, shape = reference.read_header(archive)
    assert kind == reference.KIND_TILED
    return reference.read_tiled(archive, ty, shape)


def parts_of(archive: bytes) -> Iterator[str]:
    """Names of the features that occur in an archive."""
    if archive[5] == reference.KIND_RAW:
        yield "raw archive"
        return
    tiled = parsed(archive)
    yield f"{tiled.tiling.dimensions} dimensions"
    yield f"r = {tiled.alphabet.r}"
    yield "rel" if archive[51] else "abs"
    if tiled.alphabet.r == 5:
        yield f"reach 2^{tiled.alphabet.reach(tiled.lengths).bit_length() - 1}"
    if tiled.tiling.dimensions != len(tiled.shape):
        yield "extents of 1"
    if any(extent % edge for extent, edge in zip(tiled.tiling.extents, tiled.tiling.tile, strict=True)):
        yield "clipped tiles"
    for payload in tiled.payloads:
        (head,) = struct.unpack("<I", payload[:4])
        yield f"kind {head & 3}"
        if head & 3 == reference.TILE_CODED:
            yield f"predictor {head >> 2 & 15}"
            yield from (name for name, bit in (("mask", 6), ("missing values", 7), ("flat", 9)) if head >> bit & 1)
            if head >> 14 & 1:
                yield f"fine mask in {tiled.tiling.dimensions} dimensions"
            if head >> 8 & 1:
                n_out_of_range, n_unpredictable = struct.unpack_from("<HH", payload, 4 + 4 * tiled.ty.words)
                yield from (["out-of-range codes"] if n_out_of_range else []) + (
                    ["unpredictable values"] if n_unpredictable else []
                )
                if head >> 9 & 1:
                    yield "flat with outliers"


ALL_PARTS = {
    *("raw archive", "rel", "abs", "extents of 1", "clipped tiles"),
    *(f"{k} dimensions" for k in range(1, 5)),
    *(f"r = {r}" for r in range(5, 13)),
    *(f"kind {kind}" for kind in range(3)),
    *(f"predictor {k}" for k in range(6)),
    *(f"fine mask in {k} dimensions" for k in range(1, 5)),
    *("reach 2^20", "reach 2^21"),
    *("mask", "missing values", "flat", "out-of-range codes", "unpredictable values", "flat with outliers"),
}


# ---------------------------------------------------------------------------------------------------------------------
# Fields


@dataclasses.dataclass(frozen=True)
class Case:
    make: Make
    eb: float
    mode: Mode = "abs"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def nan_of_another_payload(dtype: np.dtype) -> Any:
    return (support.bits(np.array([np.nan], dtype)) | 5).view(dtype)[0]


def spots(shape: tuple[int, ...], values: list[float], one_in: int, seed: int = 0) -> Make:
    """A smooth field with these values strewn in; NaN with two payloads."""

    def make(dtype: np.dtype) -> NDArray:
        x = strewn(shape, dtype, values, one_in, seed)
        x[np.isnan(x) & (integers(x.size, 0, 3, seed).reshape(shape) == 0)] = nan_of_another_payload(dtype)
        return x

    return make


def corner_missing(shape: tuple[int, ...], value: float) -> Make:
    """The first values of many tiles are special; in the largest fields, so are whole tiles."""

    def make(dtype: np.dtype) -> NDArray:
        x = smooth(shape, dtype, 2)
        x[tuple(slice(0, -(-2 * extent // 3)) for extent in shape)] = value
        return x

    return make


def all_but_one(shape: tuple[int, ...], value: float, other: float) -> Make:
    def make(dtype: np.dtype) -> NDArray:
        x = np.full(shape, dtype.type(value))
        x.reshape(-1)[x.size // 3] = other
        return x

    return make


def bumps(shape: tuple[int, ...], n: int) -> Make:
    """Constant, except for a few single values and a block."""

    def make(dtype: np.dtype) -> NDArray:
        x = np.full(shape, dtype.type(2.5))
        x.reshape(-1)[integers(n, 0, x.size, 4)] = integers(n, -300, 300, 5)
        x[tuple(slice(extent // 2, extent // 2 + 5) for extent in shape)] = 7
        return x

    return make


def sparse(shape: tuple[int, ...], one_in: int, seed: int = 0) -> Make:
    """Single values among zeros: most groups have one, but most subgroups have none."""
    return lambda dtype: np.where(integers(math.prod(shape), 0, one_in, seed) == 0, 3, 0).astype(dtype).reshape(shape)


def ripples(shape: tuple[int, ...], axes: int) -> Make:
    """Smooth along the last axes, so that with a tight bound second differences are smaller than first ones."""

    def make(dtype: np.dtype) -> NDArray:
        along = np.indices(shape)
        x = np.prod([np.sin(i / 6 + 1) for i in along[-axes:]], axis=0) * 100
        return (x + along[:-axes].sum(axis=0) + integers(shape[-3], -50, 50, 1)[along[-3]] * (axes == 2)).astype(dtype)

    return make


def half_steps(dtype: np.dtype) -> NDArray:
    """Values on and next to the borders between quantised values for a bound of 0.1: some keep it with neither."""
    x = ((integers(9000, -30, 30, 6) + 0.5) * 0.2).astype(dtype)
    towards = np.array([-np.inf, 0, np.inf], dtype)[integers(9000, 0, 3, 7)]
    return np.where(towards == 0, x, np.nextafter(x, towards))


def steep(dtype: np.dtype) -> NDArray:
    """Codes of every size, many of them beyond the alphabet."""
    digits = 22 if dtype == F32 else 51
    magnitude = integers(9000, 0, 2**digits, 10) >> np.maximum(integers(9000, -6, digits, 11), 0)
    return np.where(integers(9000, 0, 2, 12) == 1, magnitude, -magnitude).astype(dtype)


#: One code of every bucket of the octaves 19 and 20.
FAR = [float(step) for o in (17, 18) for m in (4, 5, 6, 7) for step in (m << o, -(m << o) - 1)]


def far(dtype: np.dtype) -> NDArray:
    x = np.zeros(9000, dtype)
    x[100 : 100 + 7 * len(FAR) : 7] = FAR
    return x


def at_the_limit(dtype: np.dtype) -> NDArray:
    """Values around the largest quantised value for a bound of 0.5."""
    limit = 2.0 ** (22 if dtype == F32 else 51)
    x = np.full((5000,), dtype.type(limit - 40))
    x[::3] += integers(len(x[::3]), 0, 80, 13).astype(dtype) / dtype.type(2)
    x[::7] *= -1
    return x


def noise_among_order(dtype: np.dtype) -> NDArray:
    """Tiles of noise, which are stored raw, among other tiles; special values in both."""
    x = smooth((5 * 4096 + 100,), dtype, 8)
    x[4096:8192] = integers(4096, 2**55, 2**62, 9)
    x[8000:8300] = np.nan
    x[8300:12000] = support.random_bits((3700,), dtype, 9)
    x[16000:] = 3
    return x


def constant_with_misses(dtype: np.dtype) -> NDArray:
    """With a bound of 0.1 all codes are 0, but some values are stored verbatim."""
    x = half_steps(dtype)
    ty = reference.type_of(dtype)
    q, _, miss = reference.quantise(x, np.zeros(x.size, np.bool_), reference.largest_bound(0.1, ty), ty)
    usual = np.bincount(q[miss & (q > 0)]).argmax()
    return np.where(miss & (q == usual), x, dtype.type(usual * 0.2))


def constant(shape: tuple[int, ...], value: float) -> Make:
    return lambda dtype: np.full(shape, dtype.type(value))


def short_last_tile(last: float) -> Make:
    """The last tile has one zero group only."""

    def make(dtype: np.dtype) -> NDArray:
        x = smooth((3 * 4096 + 40,), dtype)
        x[3 * 4096 :] = 1
        x[-3] = last
        return x

    return make


def scaled(shape: tuple[int, ...], factor: Callable[[np.dtype], float]) -> Make:
    def make(dtype: np.dtype) -> NDArray:
        x = smooth(shape, F64) / 40
        return np.clip(x, -1, 1).astype(dtype) * dtype.type(factor(dtype))

    return make


def largest(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max)


def smallest_normal(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).tiny)


def whole_range(dtype: np.dtype) -> NDArray:
    return np.linspace(-1, 1, 9000).astype(dtype) * dtype.type(largest(dtype))


CASES: dict[str, Case] = {
    # predictors, dimensions, clipped and thin tiles
    "1d": Case(lambda t: smooth((20011,), t), 1e-2),
    "2d": Case(lambda t: smooth((150, 131), t), 1e-3, "rel"),
    "3d": Case(lambda t: smooth((17, 35, 67), t), 1e-3, "rel"),
    "4d": Case(lambda t: smooth((3, 10, 19, 40), t), 1e-2),
    "sheet": Case(lambda t: smooth((1, 90, 200), t), 1e-2),
    "thin": Case(lambda t: smooth((6000, 3), t), 1e-2),
    "line_in_4d": Case(lambda t: smooth((1, 9000, 1, 1), t), 1e-2),
    "tall": Case(lambda t: smooth((100, 60, 3), t), 1e-2),
    "waves_1d": Case(lambda t: np.sin(np.arange(20000) / 50).astype(t), 1e-4),
    "waves_2d": Case(lambda t: np.add.outer(*[np.sin(np.arange(n) / 9) for n in (140, 130)]).astype(t), 1e-4),
    "waves_3d": Case(lambda t: np.sin(np.indices((20, 34, 40)).sum(0) / 5 + np.arange(40) ** 2 / 99).astype(t), 1e-5),
    "products": Case(lambda t: np.prod(np.indices((20, 34, 40)) / 8 + 1, axis=0).astype(t), 1e-4),
    "noise_around_0": Case(lambda t: (integers(20000, -20, 21, 1) / 8).astype(t).reshape(100, 200), 1e-1),
    "ripples_2": Case(ripples((19, 35, 67), 2), 1e-3),
    "ripples_3": Case(ripples((19, 35, 67), 3), 1e-3),
    "ripples_3_at_128_bins": Case(ripples((19, 35, 67), 3), 1e-3, "abs", {"bins": 128}),
    "ripples_4d": Case(ripples((3, 9, 20, 35), 3), 1e-3),
    "ripples_thin": Case(ripples((90, 60, 3), 3), 1e-3),
    "ripples_thinner": Case(ripples((2, 2, 1500), 3), 1e-3),
    "ripples_with_spikes": Case(lambda t: ripples((9, 17, 40), 3)(t) + sparse((9, 17, 40), 2000)(t) * 9999, 1e-3),
    # special values, missing values
    "nan": Case(spots((11, 38, 41), [np.nan], 50), 1e-2),
    "inf": Case(spots((11, 38, 41), [np.inf, -np.inf], 50, 1), 1e-2),
    "nan_and_inf": Case(spots((70, 200), [np.nan, np.inf, -np.inf, 1e30], 9, 2), 1e-2),
    "mostly_nan": Case(lambda t: np.where(integers(20000, 0, 30, 3) == 0, smooth((20000,), t), t.type(np.nan)), 1e-2),
    "holes_4d": Case(spots((3, 9, 17, 33), [np.nan, 1e30], 20, 3), 1e-2),
    "nan_corner_1d": Case(corner_missing((15000,), np.nan), 1e-2),
    "nan_corner_2d": Case(corner_missing((150, 140), np.nan), 1e-2),
    "nan_corner_3d": Case(corner_missing((20, 36, 50), np.nan), 1e-2),
    "nan_corner_4d": Case(corner_missing((5, 9, 20, 33), np.nan), 1e-2),
    "inf_corner_3d": Case(corner_missing((20, 36, 50), np.inf), 1e-2),
    "fill": Case(corner_missing((20, 36, 50), 1e20), 1e-3, "rel", {"fill": 1e20}),
    "fill_of_double_precision": Case(corner_missing((130, 70), 0.1), 1e-3, "rel", {"fill": 0.1}),
    "fill_zero": Case(spots((9000,), [0.0, -0.0], 4), 1e-3, "rel", {"fill": 0.0}),
    "fill_minus_zero": Case(spots((9000,), [0.0, -0.0], 4), 1e-3, "abs", {"fill": -0.0}),
    "fill_nan": Case(spots((9000,), [np.nan, -np.nan], 4), 1e-3, "rel", {"fill": np.nan}),
    "fill_nan_of_other_sign": Case(spots((9000,), [np.nan, -np.nan], 4), 1e-3, "rel", {"fill": -np.nan}),
    "fill_inf": Case(spots((9000,), [np.inf, -np.inf], 4), 1e-3, "rel", {"fill": np.inf}),
    "fill_beside_nan": Case(spots((9000,), [-9999.0, np.nan], 4), 1e-3, "rel", {"fill": -9999.0}),
    "all_nan": Case(constant((9, 40, 41), np.nan), 1e-3),
    "all_nan_128_bins": Case(constant((9, 40, 41), np.nan), 1e-3, "abs", {"bins": 128}),
    "all_inf": Case(constant((9000,), np.inf), 1e-3),
    "all_fill": Case(constant((90, 100), -9999.0), 1e-3, "abs", {"fill": -9999.0}),
    "nan_but_one": Case(all_but_one((9000,), np.nan, 1.0), 1e-3),
    "nan_but_one_128_bins": Case(all_but_one((9000,), np.nan, 1.0), 1e-3, "abs", {"bins": 128}),
    "nan_but_one_inf": Case(all_but_one((90, 100), np.nan, np.inf), 1e-3),
    # quantisation
    "misses": Case(half_steps, 0.1),
    "flat_with_misses": Case(constant_with_misses, 0.1),
    "q_limit": Case(at_the_limit, 0.5),
    "q_limit_exceeded": Case(at_the_limit, 0.499),
    "codes_of_every_size": Case(steep, 0.5),
    "codes_of_every_size_128_bins": Case(steep, 0.5, "abs", {"bins": 128}),
    "codes_of_every_size_8192_bins": Case(steep, 0.5, "abs", {"bins": 8192}),
    "codes_of_the_last_octaves": Case(far, 0.5),
    "spikes": Case(spots((9, 40, 60), [2.0**20, -(2.0**24), 2.0**60], 100, 5), 1e-2),
    "noise_tiles": Case(noise_among_order, 1e-1),
    "noise_tiles_128_bins": Case(noise_among_order, 1e-1, "abs", {"bins": 128}),
    # significance masks
    "bumps_1d": Case(bumps((20000,), 20), 1e-1),
    "bumps_2d": Case(bumps((150, 130), 20), 1e-1),
    "bumps_3d": Case(bumps((20, 36, 50), 20), 1e-1),
    "bumps_4d": Case(bumps((3, 9, 20, 35), 20), 1e-1),
    "bumps_thin": Case(bumps((6000, 3), 20), 1e-1),
    **{
        f"sparse_{'x'.join(map(str, shape))}_one_in_{one_in}": Case(sparse(shape, one_in), 1e-1)
        for shape in ((20000,), (4096,), (150, 131), (6000, 3), (3000, 2), (19, 35, 67), (90, 60, 3), (3, 9, 20, 35))
        for one_in in (9, 25, 70)
    },
    **{
        f"sparse_{'x'.join(map(str, shape))}": Case(sparse(shape, 25), 1e-1)
        for shape in ((3, 3, 3, 151), (151, 3, 3, 3), (4001,), (2, 2, 2001), (1, 5, 5, 5), (3, 3), (7,))
    },
    "sparse_nan": Case(lambda t: np.where(sparse((20, 30, 40), 25)(t) > 0, t.type(np.nan), t.type(1)), 1e-1),
    "sparse_128_bins": Case(sparse((20, 30, 40), 25), 1e-1, "abs", {"bins": 128}),
    "sparse_and_dead": Case(lambda t: sparse((9000,), 25)(t) * (np.arange(9000) % 4096 > 1500), 1e-1),
    "constant": Case(constant((7, 50, 50), 2.5), 1e-3),
    "constant_with_spikes": Case(all_but_one((9000,), 2.5, 1e30), 1e-3),
    "one_dead_group": Case(short_last_tile(1.0), 1e-3),
    "one_group": Case(short_last_tile(np.nan), 1e-3),
    # bounds at the ends of the arithmetic
    "large_values": Case(scaled((9000,), largest), 1e-3, "rel"),
    "overflowing_range": Case(whole_range, 0.01, "rel"),
    "overflowing_bound": Case(whole_range, 1e300, "rel"),
    "largest_bound": Case(lambda t: smooth((9000,), t), 1.7e308),
    "bound_between_floats": Case(lambda t: smooth((9000,), t), 0.3),
    "small_values": Case(scaled((9000,), lambda t: smallest_normal(t) * 100), 1e-2, "rel"),
    "smallest_bound": Case(scaled((9000,), lambda t: smallest_normal(t) * 10), smallest_normal(F32)),
    "smallest_bound_f64": Case(scaled((9000,), lambda t: smallest_normal(t) * 10), smallest_normal(F64)),
    "bound_too_small": Case(lambda t: smooth((9000,), t), 5e-324),
    # raw archives
    "lossless": Case(lambda t: smooth((90, 100), t), 0.0),
    "range_0": Case(constant((9000,), 2.0), 1e-2, "rel"),
    "no_range": Case(constant((9000,), np.nan), 1e-2, "rel"),
    "incompressible": Case(lambda t: support.random_bits((9000,), t, 12), 1e-30),
    "empty": Case(constant((3, 0, 2), 1.0), 1e-3),
    "one_value": Case(constant((1, 1), 3.25), 1e-3),
    # alphabets
    **{
        f"{bins}_bins": Case(lambda t: smooth((20, 30, 40), t, 3), 1e-4, "rel", {"bins": bins})
        for bins in (64, 128, 256, 512, 1024, 2048, 4096, 8192)
    },
}


@pytest.mark.parametrize("name", CASES)
def test_same_archive(name: str, dtype: np.dtype) -> None:
    case = CASES[name]
    x = case.make(dtype)
    archive = agree(x, case.eb, case.mode, **case.options)
    bound = support.absolute_bound(x, case.eb, case.mode, case.options.get("fill")) if archive[5] else 0.0
    assert support.violations(x, reference.decode(archive), bound, case.options.get("fill")) == []


def test_cases_have_every_part_of_the_format(dtype: np.dtype) -> None:
    seen: set[str] = set()
    for case in CASES.values():
        archive = compress(case.make(dtype), case.eb, case.mode, threads=1, **case.options)
        seen |= set(parts_of(archive))
    assert seen == ALL_PARTS


@pytest.mark.parametrize("shape", support.ALL_SHAPES, ids=str)
def test_same_archive_of_every_shape(shape: tuple[int, ...], dtype: np.dtype) -> None:
    agree(smooth(shape, dtype), 1e-2)
    agree(bumps(shape, 1)(dtype) if math.prod(shape) else np.zeros(shape, dtype), 1e-2)


@pytest.mark.parametrize("mode", ["abs", "rel"])
@pytest.mark.parametrize("exponent", range(-16, 4))
def test_same_archive_for_every_bound(exponent: int, dtype: np.dtype, mode: Mode) -> None:
    agree(smooth((60, 140), dtype, 1), 10.0**exponent, mode)


@pytest.mark.parametrize("n", [1, 2, 3, 30, 63, 64, 65, 128, 129, 160, 2047, 2048, 2049, 4095, 4096, 4097, 8192])
def test_same_archive_of_few_values(n: int, dtype: np.dtype) -> None:
    """One or two tiles with every number of substreams; a small tile behind large ones."""
    agree(smooth((n,), dtype), 1e-2)
    agree(np.concatenate([np.zeros(2 * 4096, dtype), smooth((n,), dtype)]), 1e-2)


@pytest.mark.parametrize("n_tiles", [127, 128, 255, 256, 1023, 1025])
def test_same_codebook_of_a_sample(n_tiles: int, dtype: np.dtype) -> None:
    """From 128 tiles on the codebook is made from a sample of the tiles."""
    x = np.zeros(n_tiles * 4096 - 5, dtype)
    x[:: 4096 // 3] = integers(len(x[:: 4096 // 3]), -50, 50, 1)
    assert reference.encode(x, 0.1) == compress(x, 0.1)


def codes_escapes(archive: bytes) -> bool:
    """Whether the archive cannot be read without the escapes."""
    tiled = parsed(archive)
    table = reference.decoding_table(tiled.lengths, tiled.alphabet)
    meanings = [tiled.alphabet.meaning(symbol) for symbol in tiled.alphabet.escapes]
    without = [reference.Entry(0, 0, 0) if entry[1:] in meanings else entry for entry in table]
    assert without != table
    for box, payload in zip(tiled.tiling.boxes(), tiled.payloads, strict=True):
        shape = np.empty(tiled.tiling.extents, np.bool_)[box].shape
        try:
            reference.decode_tile(payload, shape, tiled, without)
        except reference.FormatError as error:
            return "no code" in str(error)
    return False


N_TILES = 130
OUTSIDE = next(t for t in range(N_TILES) if not reference.in_sample(t, reference.log2_rate(N_TILES)))


def rare(steps: list[float], sampled: list[float], *, ramp: bool = False) -> Make:
    """Puts `steps` in the first tile outside the sample, and `sampled` in tile 0, inside it. A ramp has no code 0."""

    def make(dtype: np.dtype) -> NDArray:
        x = np.zeros((N_TILES, 4096), F64)
        if ramp:
            x += np.arange(4096)
        for tile, values in ((OUTSIDE, steps), (0, sampled)):
            x[tile, 5 : 5 + 7 * len(values) : 7] += values
        return x.reshape(-1)[: -100 if not ramp else None].astype(dtype)

    return make


#: Values around the ends of the range of the escapes.
ENDS = [float(sign * 2**20 + offset) for sign in (-1, 1) for offset in (-1, 0, 1)]
ESCAPED = {
    "small": (rare([1, -1, 31, -32, 32, -33], []), 20),
    "large": (rare([1000, -1000, 5e5, -5e5], [3, -3]), 20),
    "ends": (rare(ENDS, [3, -3]), 20),
    "outliers": (rare([40, 2.0**20, 2.0**21 - 1, 2.0**21, -(2.0**21)], [3, -3]), 20),
    "outliers in the sample": (rare([40.0], [2.0**20, 2.0**21 - 1, 2.0**21, -(2.0**21)]), 20),
    "outliers without a codeword of code 0": (rare([9000, 1e6, 2.0**21, -(2.0**21)], [], ramp=True), 20),
    "missing values": (rare([40.0, np.nan, np.inf, 1e30], [3, -3]), 20),
    "far": (rare([1000, *ENDS, 2.0**21, -(2.0**21), 2.0**21 - 1], FAR), 21),
    "far but one": (rare([1000, *ENDS, 2.0**21, -(2.0**21), 2.0**21 - 1], FAR[:-1]), 20),
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", ESCAPED)
def test_same_archive_with_symbols_that_have_no_code(name: str, dtype: np.dtype) -> None:
    make, log2_reach = ESCAPED[name]
    x = make(dtype)
    archive = agree(x, 0.5)
    assert f"reach 2^{log2_reach}" in set(parts_of(archive))
    assert codes_escapes(archive)
    assert support.violations(x, reference.decode(archive), 0.5, None) == []


def test_all_tiles_count_for_other_alphabets() -> None:
    x = np.zeros(2**20 + 1, F32)
    x[::5000] = integers(len(x[::5000]), -5000, 5000, 2)
    assert reference.encode(x, 0.1, bins=128) == compress(x, 0.1, bins=128)


@pytest.mark.parametrize("seed", range(24))
def test_same_archive_of_random_fields(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(10):
        agree(*random_case(rng))


def random_case(rng: np.random.Generator) -> Any:
    dtype = DTYPES[rng.integers(2)]
    ndim = int(rng.integers(1, 5))
    most = {1: 20000, 2: 150, 3: 34, 4: 14}[ndim]
    shape = tuple(int(rng.choice([int(rng.integers(1, 8)), int(rng.integers(1, most + 1)), most])) for _ in range(ndim))
    bound = float(10.0 ** rng.uniform(-6, 0))
    x = rng.standard_normal(shape)
    kind = rng.integers(4)
    if kind == 0:
        x = x.cumsum(axis=rng.integers(ndim))
    elif kind == 1:
        x = np.exp(10 * x)
    elif kind == 2:
        x = np.where(x > 3, x, 0)
    else:
        x = (np.round(9 * x) + rng.choice([0, 0.49999, 0.5], shape)) * 2 * bound
    x = x.astype(dtype)
    if rng.integers(2):
        x[rng.random(shape) < rng.choice([0.001, 0.1, 0.9])] = rng.choice([np.nan, np.inf, 1e30, 0])
    return x, bound, *(("rel",) if rng.integers(2) else ())


# ---------------------------------------------------------------------------------------------------------------------
# Tile shapes


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((100000,), (4096,)),
        ((1000, 1000), (64, 64)),
        ((512, 512, 512), (8, 16, 32)),
        ((16, 45, 45, 45), (1, 8, 16, 32)),
        ((1, 1800, 3600), (1, 64, 64)),
        ((1000000, 3), (1024, 3)),
        ((4, 1000, 1000), (4, 16, 64)),
        ((100, 1000, 3), (16, 64, 3)),
        ((3, 5, 7), (3, 5, 7)),
    ],
    ids=str,
)
def test_the_document_s_tile_shapes(shape: tuple[int, ...], tile: tuple[int, ...]) -> None:
    tiling = reference.tiling_of(shape)
    kept = [edge for edge, extent in zip(tile, shape, strict=True) if extent != 1]
    assert tiling.tile == tuple([1] * (4 - len(kept)) + kept)


@pytest.mark.parametrize("seed", range(40))
def test_same_tile_shape(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = [1, 1, 1, 1]
    while math.prod(shape) < 3000 or math.prod(shape) > 100_000:
        shape = [int(2.0 ** rng.uniform(0, 12)) for _ in range(rng.integers(1, 5))]
    info = cusz.inspect(compress(np.zeros(shape, F32), 0.1, threads=1))
    tiling = reference.tiling_of(shape)
    assert [edge for edge in info.tile_shape if edge != 1] == [edge for edge in tiling.tile if edge != 1]
    assert info.tiles == len(list(tiling.boxes()))


# ---------------------------------------------------------------------------------------------------------------------
# Archives that the document allows, but that no encoder writes


@dataclasses.dataclass(frozen=True)
class MoreOutliers(reference.ModelledTile):
    more: NDArray

    def outliers(self, reach: int) -> NDArray:
        return np.union1d(super().outliers(reach), self.more).astype(np.int64)


def random_choices(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the reference choose predictors, masks and outliers at random."""
    model_tile, masks_of = reference.model_tile, reference.masks_of

    def any_predictor(u: NDArray, missing: NDArray, dimensions: int) -> int:
        return int(rng.integers(4 if missing.any() else 6))

    def any_masks(significant: NDArray, shape: reference.Box, tiling: reference.Tiling) -> reference.Masks:
        kind = rng.integers(4)
        if kind == 0:
            return masks_of(significant, shape, tiling)
        significant = significant | (rng.random(significant.size) < rng.choice([0, 0.001, 0.01]))
        if kind == 1 or not significant.any():
            return reference.Masks(None, None, np.ones(significant.size, np.bool_))
        group, subgroup = tiling.groups(shape), tiling.subgroups(shape)
        significant_groups = np.bincount(group, weights=significant) > 0
        if kind == 2:
            return reference.Masks(significant_groups, None, significant_groups[group])
        significant_subgroup = np.bincount(subgroup, weights=significant) > 0
        stored = np.unique(subgroup[significant_groups[group]])
        return reference.Masks(significant_groups, significant_subgroup[stored], significant_subgroup[subgroup])

    def any_outliers(*arguments: Any) -> reference.ModelledTile:
        tile = model_tile(*arguments)
        integer = arguments[-1].integer
        if rng.integers(2):
            at = np.flatnonzero(rng.random(tile.bits.size) < 0.005)
            # as large as possible without a q beyond the limit
            most = 2**28 if integer == np.int64 else 9
            code = tile.code.copy()
            code[at] = rng.integers(-most, most, at.size)
            fields = {field.name: getattr(tile, field.name) for field in dataclasses.fields(tile)}
            tile = MoreOutliers(**fields | {"code": code}, more=at)
        if rng.integers(2):
            tile = dataclasses.replace(tile, value_positions=np.flatnonzero(rng.random(tile.bits.size) < 0.005))
        return tile

    monkeypatch.setattr(reference, "choose_predictor", any_predictor)
    monkeypatch.setattr(reference, "masks_of", any_masks)
    monkeypatch.setattr(reference, "model_tile", any_outliers)


@pytest.mark.parametrize("seed", range(12))
def test_same_values_whatever_the_encoder_chose(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    random_choices(rng, monkeypatch)
    tiled = 0
    for _ in range(12):
        x, eb, *mode = random_case(rng)
        archive = reference.encode(x, eb, *mode)
        tiled += archive[5]
        assert same_bits(cusz.decompress(archive, threads=1), reference.decode(archive))
    assert tiled > 0


def test_both_bits_mean_the_only_code() -> None:
    x = all_but_one((9000,), np.nan, np.inf)(F32)
    archive = agree(x, 1e-3, bins=128)
    assert np.count_nonzero(parsed(archive).lengths) == 1
    (tile,) = (t for t, payload in enumerate(parsed(archive).payloads) if payload[0] & 3 == 0)
    at = len(archive) - sum(map(len, parsed(archive).payloads[tile:]))
    at += len(parsed(archive).payloads[tile]) - 8 - 512  # one outlier of two words behind 4096 bits
    assert archive[at : at + 512] == bytes(512)
    edited = resealed(archive[:at] + bytes(range(256)) * 2 + archive[at + 512 :])
    assert same_bits(reference.decode(edited), x)
    assert same_bits(cusz.decompress(edited, threads=1), x)


# ---------------------------------------------------------------------------------------------------------------------
# Archives that the document does not allow


def resealed(damaged: bytes) -> bytes:
    """The archive with matching checksums."""
    r = damaged[52]
    body_at = 128 + (reference.Alphabet(r).section_bytes if 5 <= r <= 12 else 100)
    tiling = reference.tiling_of(struct.unpack_from("<4Q", damaged, 8)[: damaged[7]])
    tiles = len(list(tiling.boxes()))
    index = struct.unpack_from(f"<{tiles}H", damaged, body_at)
    payloads = []
    at = body_at + -(-tiles // 2) * 4
    for words in index:
        payloads.append(damaged[at : at + 4 * words])
        at += 4 * words
    sealed = damaged[:40] + struct.pack("<I", reference.checksum_of_parts(payloads)) + damaged[44:]
    return sealed[:44] + struct.pack("<I", reference.checksum_of_header(sealed[:body_at])) + sealed[48:]


def with_field(offset: int, layout: str, value: Any) -> Callable[[bytes], bytes]:
    def edit(archive: bytes) -> bytes:
        edited = bytearray(archive)
        struct.pack_into("<" + layout, edited, offset, value)
        return bytes(edited)

    return edit


def with_head(tile: int, change: Callable[[int], int]) -> Callable[[bytes], bytes]:
    def edit(archive: bytes) -> bytes:
        payloads = parsed(archive).payloads
        at = len(archive) - sum(map(len, payloads[tile:]))
        (head,) = struct.unpack_from("<I", archive, at)
        assert change(head) != head
        return with_field(at, "I", change(head))(archive)

    return edit


def with_tile(tile: int, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """An edit that replaces the payload of a tile by another one of the same length."""

    def edit(archive: bytes) -> bytes:
        payloads = parsed(archive).payloads
        at = len(archive) - sum(map(len, payloads[tile:]))
        payload = change(payloads[tile])
        assert len(payload) == len(payloads[tile])
        assert payload != payloads[tile]
        return archive[:at] + payload + archive[at + len(payload) :]

    return edit


def victim() -> NDArray:
    """Tiles: 0 with both masks, missing values, outliers of both kinds; 1 all special; 2 raw; 3 flat; 4 (clipped)
    without a mask."""
    x = np.full(4 * 4096 + 300, np.float32(2.5))
    x[300:400] = smooth((100,), F32)
    x[[310, 900]] = [np.nan, np.inf]
    x[1500] = 3e4
    x[1600:1605] = -8e5
    x[1601] = 8e5
    x[4096:8192] = np.nan
    x[8192:12288] = integers(4096, 2**55, 2**62, 3)
    x[16384:] = smooth((300,), F32)
    return x


@pytest.fixture(scope="module")
def victim_archive() -> bytes:
    archive = agree(victim(), 0.1)
    assert [payload[0] & 3 for payload in parsed(archive).payloads] == [0, 1, 2, 0, 0]
    heads = [(payload[0] >> 6, payload[1] & 3, payload[1] >> 6) for payload in parsed(archive).payloads]
    assert heads == [(3, 1, 1), (0, 0, 0), (0, 0, 0), (0, 2, 0), (0, 0, 0)]
    return archive


def nothing_live_in_live_groups(payload: bytes) -> bytes:
    """Clears the fine mask of tile 0, which has 64 groups of 8 subgroups; its masks begin at byte 12."""
    end = 20 + int.from_bytes(payload[12:20], "little").bit_count() * 8 // 32 * 4
    assert any(payload[20:end])
    return payload[:20] + bytes(end - 20) + payload[end:]


def one_group_less(payload: bytes) -> bytes:
    mask = int.from_bytes(payload[12:20], "little")
    return payload[:12] + (mask & (mask - 1)).to_bytes(8, "little") + payload[20:]


REFUSED: dict[str, Any] = {
    "kind": with_field(5, "B", 2),
    "dtype": with_field(6, "B", 3),
    "ndim": with_field(7, "B", 5),
    "extent beyond ndim": with_field(32, "Q", 1),
    "predictor family": with_field(48, "B", 1),
    "entropy coder": with_field(49, "B", 1),
    "lossless stage": with_field(50, "B", 2),
    "mode": with_field(51, "B", 2),
    "r too small": with_field(52, "B", 4),
    "r too large": with_field(52, "B", 13),
    "special kind": with_field(53, "B", 2),
    "reserved": with_field(54, "H", 256),
    **{f"eb {value}": with_field(56, "d", value) for value in (0.0, -0.1, math.inf, math.nan)},
    **{f"eb_abs {value}": with_field(64, "d", value) for value in (0.0, -0.1, math.inf, math.nan)},
    **{
        f"step {value}": with_field(72, "d", value)
        for value in (0.0, -0.25, math.inf, math.nan, 0.1, 2.0**-126, 2.0**126, 1e300)
    },
    "special pattern too wide": with_field(84, "I", 1),
    "special pattern without fill": with_field(80, "I", 0x7FC00001),
    "body bytes": with_field(88, "Q", 4),
    "stored bytes": with_field(96, "Q", 4),
    "code lengths too large": with_field(128, "B", 0xDD),
    "code lengths too small": with_field(128, "B", 0x11),
    "a tile of no words": with_field(228, "H", 0),
    "tiles of too many words": with_field(228, "H", 8194),
    "tile index padding": with_field(238, "H", 1),
    "tile kind": with_head(0, lambda head: head | 3),
    **{
        f"predictor {predictor}": with_head(4, lambda head, p=predictor: head & ~(15 << 2) | p << 2)
        for predictor in (6, 7, 8, 15)
    },
    **{
        f"predictor {predictor} with missing values": with_head(0, lambda head, p=predictor: head & ~(15 << 2) | p << 2)
        for predictor in (4, 5)
    },
    "fine mask without a mask": with_head(4, lambda head: head | 1 << 14),
    "fine mask and flat": with_head(3, lambda head: head | 1 << 14),
    "no fine mask": with_head(0, lambda head: head & ~(1 << 14)),
    "nothing significant in significant groups": with_tile(0, nothing_live_in_live_groups),
    "codebook padding": with_field(226, "B", 1),
    "more codebook padding": with_field(227, "B", 0x10),
    "bit 15": with_head(0, lambda head: head | 1 << 15),
    "no missing values": with_head(0, lambda head: head & ~(1 << 7)),
    "missing values": with_head(4, lambda head: head | 1 << 7),
    "no mask": with_head(0, lambda head: head & ~(1 << 6)),
    "no outliers": with_head(0, lambda head: head & ~(1 << 8)),
    "mask and flat": with_head(3, lambda head: head | 1 << 6),
    "missing values and flat": with_head(3, lambda head: head | 1 << 7),
    "w and flat": with_head(3, lambda head: head | 1 << 10),
    "base and flat": with_head(3, lambda head: head | 1 << 16),
    "not flat": with_head(3, lambda head: head & ~(1 << 9)),
    "flat": with_head(4, lambda head: 1 << 9),
    "base too small": with_head(4, lambda head: head - (1 << 16)),
    "base too large": with_head(4, lambda head: head + (1 << 16)),
    "w 14": with_head(4, lambda head: head & ~(15 << 10) | 14 << 10),
    "all special and more": with_head(1, lambda head: head | 1 << 16),
    "raw and more": with_head(2, lambda head: head | 1 << 9),
    "all special of too many words": with_head(4, lambda head: 1),
    "raw of too few words": with_head(4, lambda head: 2),
    "nothing significant": with_tile(0, lambda p: p[:12] + bytes(8) + p[20:]),
    "another mask": with_tile(0, one_group_less),
    "too many out-of-range codes": with_tile(0, lambda p: p[:8] + b"\xff\xff" + p[10:]),
    "too many unpredictable values": with_tile(0, lambda p: p[:10] + b"\xff\xff" + p[12:]),
    "no outliers in the list": with_tile(0, lambda p: p[:8] + bytes(4) + p[12:]),
}


def refuses(archive: bytes) -> bool:
    try:
        cusz.decompress(archive, threads=1)
    except (cusz.CorruptArchiveError, cusz.UnsupportedError):
        return True
    return False


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED)
def test_same_archives_refused(victim_archive: bytes, edit: Callable[[bytes], bytes]) -> None:
    damaged = edit(victim_archive)
    if damaged[5:8] == victim_archive[5:8]:  # otherwise it is unknown what the checksums cover
        damaged = resealed(damaged)
    with pytest.raises(reference.FormatError):
        reference.decode(damaged)
    assert refuses(damaged)


def test_resealing_restores_an_archive(victim_archive: bytes) -> None:
    assert resealed(victim_archive[:40] + bytes(8) + victim_archive[48:]) == victim_archive


@pytest.mark.parametrize("seed", range(8))
def test_same_reading_of_changed_payloads(seed: int) -> None:
    """Whatever a payload with matching checksums contains: both refuse it, or both read the same values."""
    rng = np.random.default_rng(seed)
    x = bumps((20, 60), 4)(F32) + np.where(rng.random((20, 60)) < 0.1, 1, 0).astype(F32)
    x[3, 4:9] = [np.nan, np.inf, 1e30, 9e4, -9e4]
    archive = compress(x, 0.1)
    begin = len(archive) - sum(map(len, parsed(archive).payloads))
    taken = 0
    for _ in range(60):
        changed = bytearray(archive)
        at = rng.integers(begin, rng.choice([begin + 24, len(archive)]))
        changed[at] = rng.choice([changed[at] ^ 1 << rng.integers(8), rng.integers(256), 0])
        damaged = resealed(bytes(changed))
        try:
            wanted = reference.decode(damaged)
        except reference.FormatError as error:
            if "padding" in str(error):  # the library does not check padding
                continue
            wanted = None
        if wanted is None:
            assert refuses(damaged)
        else:
            assert same_bits(cusz.decompress(damaged, threads=1), wanted)
            taken += 1
    assert 0 < taken < 60


def test_the_zstd_stage_is_not_undone() -> None:
    x = bumps((150, 130), 20)(F32)
    try:
        archive = compress(x, 0.1, lossless="zstd")
    except cusz.UnsupportedError:
        pytest.skip("a build without zstd")
    assert archive[50] == 1
    with pytest.raises(RuntimeError, match="zstd"):
        reference.decode(archive)
    with pytest.raises(reference.FormatError, match="checksum"):
        reference.decode(archive[:-1] + bytes([archive[-1] ^ 1]))
