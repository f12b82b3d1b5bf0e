"""format_v2_reference.py, an implementation of docs/format_v2.md: what it writes it reads within the bound, it refuses
what the document does not allow, and what it does to whole arrays is what the document says of single points."""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import format_v1_reference as v1
import format_v2_reference as reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from v2_cases import (
    REFUSED,
    Options,
    any_fields,
    flipped,
    large_field,
    parsed,
    parts_of,
    resealed,
    smooth_fields,
    strewn,
    with_all_parts,
)

import support
from support import DTYPES, F32, F64, random_bits, same_bits, smooth

settings.register_profile("format v2", deadline=None, max_examples=30, derandomize=True)
FEW = settings.get_profile("format v2")


def round_trip(x: NDArray, eb: float, mode: str = "abs", fill: float | None = None, **options: Any) -> bytes:
    """Checks what is promised of a field and returns its archive."""
    archive = reference.encode(x, eb, mode, fill, **options)
    y = reference.decode(archive)
    bound = support.absolute_bound(x, eb, mode, fill) if archive[5] else 0.0
    assert support.violations(x, y, bound, fill) == []
    return archive


# ---------------------------------------------------------------------------------------------------------------------
# Round trips

SHAPES: dict[tuple[int, ...], list[int | None]] = {
    (700,): [None],
    (9001,): [None],
    (4, 300): [None],
    (300, 3): [None],
    (70, 81): [None, 1, 2],
    (65, 129): [None],
    (1, 37, 1, 30): [None],
    (17, 18, 19): [None, 1, 4, 5],
    (9, 17, 33): [None],
    (3, 40, 50): [None],
    (2, 3, 4, 90): [None],
    (6, 7, 8, 9): [None, 8, 11, 14],
    (2, 9, 10, 11): [None],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "axes"), [(shape, axes) for shape, masks in SHAPES.items() for axes in masks], ids=str
)
def test_shapes(shape: tuple[int, ...], axes: int | None, dtype: np.dtype) -> None:
    number = len(shape) + (axes or 0)
    options: Options = {"axes": axes, "cubic": number % 3 > 0, "alpha": number % 5, "beta": number // 2 % 4}
    archive = round_trip(smooth(shape, dtype), 1 / 64, **options)
    assert archive[4] == 2
    assert axes is None or archive[54] == axes
    round_trip(strewn(shape, dtype, [np.nan, np.inf, -np.inf, 1e30, -0.0, 5e-324], 50), 1e-3, "rel", **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("fill", [None, 0.0, -9999.0, 1e20, math.nan, math.inf, 0.125])
def test_special_values(fill: float | None, dtype: np.dtype) -> None:
    special = math.nan if fill is None else fill
    x = strewn((90, 95), dtype, [special, special, math.nan, 1.0], 20)
    x[10:80, 66:] = special
    x[:20, :20] = np.round(x[:20, :20] * 8) / 8
    round_trip(x, 0.125, "abs", fill)
    round_trip(x, 1e-4, "rel", fill)
    x[:] = special
    round_trip(x, 0.125, "abs", fill, even_if_longer=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("alpha", range(5))
@pytest.mark.parametrize("beta", range(4))
def test_bounds_of_levels(alpha: int, beta: int, dtype: np.dtype) -> None:
    options: Options = {"alpha": alpha, "beta": beta, "cubic": (alpha + beta) % 2 == 0}
    archive = round_trip(smooth((40, 60), dtype, alpha), 0.01, **options)
    assert archive[55] == ((alpha + beta) % 2 == 0) + 2 * alpha + 16 * beta


def test_bound_of_a_lattice() -> None:
    for i, alpha, beta in itertools.product(range(12), range(5), range(4)):
        f = min(Fraction(reference.ALPHA[alpha]) ** i, Fraction(reference.BETA[beta]))
        assert reference.bound_of(i, 1.0, alpha, beta, v1.F32).e == np.float32(1.0 / float(f))
    tiny = float(np.finfo(F32).tiny)
    assert float(reference.bound_of(5, tiny, 4, 3, v1.F32).e) == tiny


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_integers(dtype: np.dtype) -> None:
    """With predictions halfway between them, many are exactly at the bound."""
    x = support.integers(60 * 70, -30, 30).reshape(60, 70).astype(dtype)
    y = reference.decode(round_trip(x, 0.5, cubic=False))
    assert np.count_nonzero(np.abs(x - y) == 0.5) > 50
    round_trip(x, 0.5, alpha=2, beta=1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [0.0, -0.0, 3.0, -1e-42, 1e37, math.nan])
def test_constant_fields(value: float, dtype: np.dtype) -> None:
    x = np.full((20, 30, 4), value, dtype)
    archive = round_trip(x, 0.1)
    assert archive[4] == 2
    assert len(archive) < 800
    assert round_trip(x, 0.1, "rel")[5] == 0  # raw


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_huge_and_tiny_values(dtype: np.dtype) -> None:
    limits = np.finfo(dtype)
    tiny, largest = float(limits.tiny), float(limits.max)
    x = smooth((40, 50), dtype)
    near_largest = np.where(x > 0, limits.max, -limits.max) * (1 - np.abs(x) / 8192).astype(dtype)
    for eb in (tiny, largest / 1e6, largest, np.finfo(F64).max):
        round_trip(near_largest, float(eb))
    round_trip(near_largest, 1e-5, "rel", alpha=4, beta=3)
    with np.errstate(under="ignore"):
        subnormal = (x * limits.smallest_subnormal * 1000).astype(dtype)
    for eb in (tiny / 2, tiny, 2 * tiny, 1e-3):
        assert round_trip(subnormal, eb, alpha=4, beta=3)[5] == (eb >= tiny)
    round_trip(random_bits((40, 50), dtype), 1e-3)
    round_trip(random_bits((9, 10, 11), dtype), 1e30, cubic=False)


def test_where_an_archive_has_version_1() -> None:
    x = smooth((4, 1, 3, 2), F32)
    assert reference.encode(x, 0.1) == v1.encode(x, 0.1)
    x = smooth((30, 40), F32)
    assert reference.encode(x, 0.1, axes=4) == v1.encode(x, 0.1)
    raw = v1.encode(x, 0.0)
    assert reference.encode(x, 0.0) == raw
    assert reference.encode(x, 1e-60) == raw
    for raw_in_v1, eb, mode in ((np.ones((30, 40), F32), 0.1, "rel"), (random_bits((30, 40), F32), 1e-30, "abs")):
        assert reference.encode(raw_in_v1, eb, mode) == v1.encode_raw(raw_in_v1, v1.F32)
    empty = np.zeros((0, 40), F32)
    assert reference.encode(empty, 0.1) == v1.encode(empty, 0.1)
    assert same_bits(reference.decode(raw), x)
    with pytest.raises(ValueError, match="axes"):
        reference.encode(smooth((5, 5, 5, 5), F32), 0.1, axes=15)


# What Hypothesis finds


@settings(FEW)
@given(
    x=st.one_of(any_fields(), smooth_fields(), smooth_fields()),
    eb=st.one_of(
        st.floats(1e-12, 1e3),
        st.floats(min_value=0.0, allow_infinity=False),
        st.sampled_from([0.5, 0.01, 0.01, 0.125, 1e-38, 2.3e-308, 1e38, 1.7e308]),
    ),
    mode=st.sampled_from(["abs", "rel"]),
    fill=st.sampled_from([None, 0.0, 1e20, math.nan, math.inf]),
    axes=st.integers(1, 14),
    interpolation=st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 3)),
)
def test_any_field(
    x: NDArray, eb: float, mode: str, fill: float | None, axes: int, interpolation: tuple[bool, int, int]
) -> None:
    cubic, alpha, beta = interpolation
    options: Options = {"axes": axes, "cubic": cubic, "alpha": alpha, "beta": beta, "even_if_longer": True}
    round_trip(x, eb, mode, fill, **options)


# ---------------------------------------------------------------------------------------------------------------------
# Parts of archives


def test_all_parts_occur() -> None:
    partly_zero = np.zeros((200, 200), F32)
    partly_zero[150:, 150:] = smooth((50, 50), F32)
    archives = [
        round_trip(with_all_parts(), 1e-4),
        round_trip(smooth((60, 70, 5), F32), 1e-3, axes=2),
        round_trip(partly_zero, 1e-2),
    ]
    assert set().union(*map(parts_of, archives)) == {
        *("tables", "top of kind 0", "top of kind 1", "empty", "kind 0", "kind 1", "kind 2"),
        *("lanes 1", "lanes 2", "lanes 4", "verbatim", "extra bits"),
    }


def test_counters() -> None:
    """Of a tile of special values, one of verbatim ones and one of neither. The special value of the top does not count
    as one, nor do those of raw tiles of coarse lattices."""
    x = np.concatenate([np.full(4096, np.nan), random_bits((4096,), F64), np.zeros(4096)]).astype(F64)
    archive = round_trip(x, 1e-4)
    special, _, verbatim = struct.unpack("<3Q", archive[104:128])
    assert 4080 < special < 4096
    assert 3000 < verbatim < 4200


def some_model(tables: int, symbols: dict[int, int], seed: int = 0) -> reference.Model:
    frequencies = np.zeros((tables, 195), np.int64)
    for symbol, frequency in symbols.items():
        frequencies[:, symbol] = frequency
    assert frequencies[0].sum() == 4096
    table_of = support.integers(648 // 12, 0, tables, seed).repeat(12)
    return reference.Model(table_of, frequencies, support.integers(16, 1, 4096, seed + 1))


@pytest.mark.parametrize("tables", [1, 2, 16])
def test_models_are_read_as_written(tables: int) -> None:
    frequencies = np.zeros((tables, 195), np.int64)
    for table in range(tables):
        frequencies[table, table * 11 : table * 11 + 14] = [1, 2, 3, 0, 4, 1000, 0, 2000, 1, 1, 1, 500, 500, 79]
        frequencies[table, [32, 192, 193, 194]] += 1
        frequencies[table, 32] += 4096 - frequencies[table].sum()
    frequencies[-1] = 0
    frequencies[-1, [32, 192, 193, 194]] = [1, 4093, 1, 1]
    model = replace(some_model(tables, {5: 4096}), frequencies=frequencies)
    section = reference.model_section(model)
    again = reference.read_model(section)
    for wanted, got in zip(vars(model).values(), vars(again).values(), strict=True):
        assert (wanted == got).all()
    for wrong in (section + bytes(4), section[:-4]):
        with pytest.raises(reference.FormatError):
            reference.read_model(wrong)


ONLY_ESCAPES = {32: 4000, 192: 40, 193: 40, 194: 16}
MANY_SPECIAL = {32: 1, 192: 1, 193: 1, 194: 4093}


@pytest.mark.parametrize("symbol", [32, 192, 193, 194])
def test_symbols_that_every_table_has(symbol: int) -> None:
    frequencies = some_model(2, ONLY_ESCAPES).frequencies
    model = replace(some_model(2, ONLY_ESCAPES), frequencies=frequencies)
    frequencies[1, [symbol, 40]] = [0, frequencies[1, symbol]]
    with pytest.raises(reference.FormatError, match="symbol"):
        reference.read_model(reference.model_section(model))


@pytest.mark.parametrize("symbols", [ONLY_ESCAPES, MANY_SPECIAL], ids=str)
@pytest.mark.parametrize("fill", [None, 0.25])
def test_models_without_some_symbols(symbols: dict[int, int], fill: float | None) -> None:
    x = strewn((90, 100), F64, [math.nan, 0.25, 1e200], 300)
    model = some_model(3, symbols)
    round_trip(x, 1e-2, "abs", fill, model=model, even_if_longer=True)
    round_trip(smooth((70, 80), F32), 0.25, model=model, even_if_longer=True)


def test_a_tile_without_coded_points_is_empty() -> None:
    archive = round_trip(smooth((4097,), F32), 0.01)
    assert parsed(archive).payloads[-1] == b""


# ---------------------------------------------------------------------------------------------------------------------
# Single points, as the document puts it


class Pointwise:
    """Sections 4 and 6 of one tile, by points (x0, x1, x2, x3) of the lattice."""

    def __init__(self, tile: reference.TileInWork, coarser: reference.Level) -> None:
        self.tile, self.coarser = tile, coarser
        self.T = tile.ty.value
        self.lattice = tile.around.lattice
        self.u = functools.cache(self.u_uncached)

    def in_tile(self, x: tuple[int, ...]) -> bool:
        return all(begin <= c < end for c, (begin, end) in zip(x[::-1], self.tile.ranges, strict=True))

    def own(self, array: NDArray, x: tuple[int, ...]) -> Any:
        return array[tuple(c - begin for c, (begin, _) in zip(x[::-1], self.tile.ranges, strict=True))]

    def odd(self, x: tuple[int, ...]) -> list[int]:
        return [a for a in self.lattice.active if x[a] % 2]

    def class_0(self, x: tuple[int, ...]) -> tuple[int, ...]:
        """Where the array of the coarser lattice has the point of class 0 with the same half coordinates."""
        return tuple(c // 2 if a in self.lattice.active else c for a, c in enumerate(x))[::-1]

    def known(self, x: tuple[int, ...], of_tile: bool) -> Any:
        if not self.odd(x):
            return self.coarser.values[self.class_0(x)]
        return self.own(self.tile.values, x) if of_tile and self.in_tile(x) else self.u(x)

    def u_uncached(self, x: tuple[int, ...]) -> Any:
        return self.p(x, False)[0]

    def along(self, x: tuple[int, ...], a: int, h: int, of_tile: bool) -> Any:
        """A(h) along axis a of the row that x is in."""
        extent = self.lattice.extents[3 - a]
        N = -(-extent // 2)

        def A(j: int) -> Any:
            return self.along(x, a, j, of_tile)

        if h == -1:
            return self.T(3) * (A(0) - A(1)) + A(2)
        if h == N and extent % 2:
            return self.T(3) * (A(N - 1) - A(N - 2)) + A(N - 3)
        if h >= N:
            return (A(h - 1) - A(h - 2)) + A(h - 1)
        return self.known((*x[:a], 2 * h, *x[a + 1 :]), of_tile)

    def p(self, x: tuple[int, ...], of_tile: bool) -> tuple[Any, int]:
        """p and S."""
        T = self.T
        w, all_of_them = [], []
        for a in self.odd(x):
            v = [self.along(x, a, x[a] // 2 + k, of_tile) for k in (-1, 0, 1, 2)]
            s = v[1] + v[2]
            cubic, linear = (s * T(9) - (v[0] + v[3])) * T(0.0625), s * T(0.5)
            w.append(cubic if self.tile.around.plan.cubic else linear)
            all_of_them += [cubic, linear]
        p = {1: lambda: w[0], 2: lambda: (w[0] + w[1]) * T(0.5), 3: lambda: ((w[0] + w[1]) + w[2]) * T(1 / 3)}[len(w)]()
        low = high = all_of_them[0]
        for value in all_of_them:
            low, high = (value if value < low else low), (value if value > high else high)
        spread = (high - low) * self.tile.around.bound.inv
        E2 = math.frexp(float(spread))[1] - 1 if np.isfinite(spread) and spread else 99 * (not np.isfinite(spread)) - 50
        return (p if abs(p) <= np.finfo(T).max else T(0)), (0 if E2 < -2 else min(E2 + 3, 7))

    def context(self, x: tuple[int, ...], magnitudes: NDArray) -> int:
        """`magnitudes`: of lattice i + 1."""
        phase = len(self.odd(x))
        h = self.class_0(x)[::-1]
        P = Q = 0
        for steps in itertools.product(*[(-1, 0, 1) if a in self.lattice.active else (0,) for a in range(4)]):
            y = tuple(c + step for c, step in zip(h, steps, strict=True))[::-1]
            if all(0 <= c < extent for c, extent in zip(y, magnitudes.shape, strict=True)):
                P += magnitudes[y]
            y = tuple(c + step for c, step in zip(x, steps, strict=True))
            if any(steps) and all(a in self.odd(x) for a in range(4) if steps[a]) and self.in_tile(y):
                Q += self.own(self.tile.magnitudes, y) if 0 < len(self.odd(y)) < phase else 0
        N = 8 if P >= 255 or Q >= 255 else min(7, int(P + Q).bit_length())
        return ((min(self.lattice.index, 2) * 3 + phase - 1) * 8 + self.p(x, True)[1]) * 9 + N


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "axes", "cubic"),
    [
        *[((5000,), 1, True), ((70, 81), 3, True), ((18, 17, 20), 7, False), ((3, 40, 50), 3, False)],
        *[((5, 6, 7), 7, True), ((30, 20, 6), 4, True), ((30, 9, 20), 5, True)],
    ],
    ids=str,
)
def test_points_are_predicted_as_the_document_says(
    shape: tuple[int, ...], axes: int, cubic: bool, dtype: np.dtype
) -> None:
    ty = v1.type_of(dtype)
    lattices, top = reference.pyramid(reference.extents_of(shape), axes)
    plan = reference.Plan(ty, ty.canonical_nan, False, lattices, top, 0.01, cubic, 0, 0)
    lattice = lattices[0]
    seeds = itertools.count(1)

    def random_level(extents: tuple[int, ...]) -> reference.Level:
        values = strewn(extents, dtype, [1e38, -1e38, 1e300, 5.0, 0.0], 150, next(seeds))
        values[~np.isfinite(values)] = 0
        n = values.size
        magnitude = support.integers(n, 0, 10, next(seeds)) * (support.integers(n, 0, 3, next(seeds)) == 0)
        magnitude[support.integers(n, 0, 300, next(seeds)) == 0] = 255
        return reference.Level(values.view(ty.bits), values, magnitude.reshape(extents))

    coarser = random_level(reference.halved(reference.extents_of(shape), lattice.active_in_field))
    numbered_anew = coarser.each(lattice.from_field_order)
    with np.errstate(all="ignore"):
        for tile in reference.LatticeInWork(plan, lattice, coarser).tiles():
            points = Pointwise(tile, numbered_anew)
            for number in range(1, len(tile.phases) + 1):
                phase = tile.begin_phase(number)
                n = phase.position.size
                for j in support.integers(40, 0, n, next(seeds)).tolist() if n else []:
                    local = np.unravel_index(phase.position[j], tile.shape)
                    x = tuple(int(c) + begin for c, (begin, _) in zip(local, tile.ranges, strict=True))[::-1]
                    assert len(points.odd(x)) == number
                    assert phase.p[j] == points.p(x, True)[0]
                    assert phase.context[j] == points.context(x, numbered_anew.magnitudes)
                code = support.integers(n, -20, 21, next(seeds)) * (support.integers(n, 0, 2, next(seeds)))
                special = support.integers(n, 0, 200, next(seeds)) == 0
                code[special] = 0
                tile.end_phase(phase, code, special, np.zeros(n, np.bool_), np.zeros(n, ty.bits))


def test_tiles() -> None:
    wanted = {
        ((100000,), 1): (1, 1, 1, 4096),
        ((100, 100), 3): (1, 1, 64, 64),
        ((100, 100, 100), 7): (1, 8, 16, 32),
        ((100, 100, 100), 1): (1, 4, 8, 100),
        ((64, 64, 64), 2): (1, 8, 8, 64),
        ((70, 3, 65), 4): (1, 3, 16, 70),
        ((3, 100, 100), 3): (1, 1, 64, 64),
        ((8, 5, 1, 9), 5): (1, 5, 8, 9),
    }
    for (shape, axes), tile in wanted.items():
        lattices, _ = reference.pyramid(reference.extents_of(shape), axes)
        assert lattices[0].tile == tile


def test_coding_order() -> None:
    """A tile of 20 x 18 points in classes of 10 x 9, in groups of 8 x 8."""
    (first,), (last,) = (
        reference.phases_of((0, 1), (1, 1, 20, 18))[0][:1],
        reference.phases_of((0, 1), (1, 1, 20, 18))[1],
    )
    assert first.position[:10].tolist() == [1, 3, 5, 7, 9, 11, 13, 15, 37, 39]
    assert first.position[64:66].tolist() == [17, 36 + 17]
    assert np.bincount(first.group).tolist() == [64, 8, 16, 2]
    assert last.position[0] == 19
    sizes = [[in_tile.position.size for in_tile in phase] for phase in reference.phases_of((0, 1, 2), (1, 5, 5, 5))]
    assert sizes == [[18, 18, 18], [12, 12, 12], [8]]


def test_context_of_groups() -> None:
    def F(s: int) -> int:
        if s == 0:
            return 0
        bits = f"{s:b}"
        h = 2 * (len(bits) - 1) + (bits[1:2] == "1")
        return min(15, max(1, h - 3))

    s = np.arange(1000)
    assert reference.group_context(s).tolist() == [F(each) for each in s.tolist()]


@settings(FEW)
@given(
    dtype=st.sampled_from(DTYPES),
    digits=st.integers(-30, 30),
    p=st.integers(-(2**26), 2**26),
    k=st.integers(-(2**20), 2**20),
    fraction=st.sampled_from([0.0, 0.5, 0.5, 0.25]),
    seed=st.integers(0, 2**20),
)
def test_accepted_codes_are_within_the_bound(
    dtype: np.dtype, digits: int, p: int, k: int, fraction: float, seed: int
) -> None:
    """In exact arithmetic, for values near (k + 1/2) steps from their predictions."""
    bound = reference.Bound(dtype.type(2.0**digits * (1 + (seed % 7) / 16)))
    predicted = np.full(41, dtype.type(p) * dtype.type(2.0**digits / 64))
    d = predicted + dtype.type((k + fraction) * float(bound.step))
    for i in range(20):
        for sign in (-1, 1):
            d[20 + sign * (i + 1)] = np.nextafter(d[20 + sign * i], dtype.type(sign * math.inf))
    code, accepted = reference.quantise(d, predicted, bound)
    for d_j, k_j, ok in zip(d, code, accepted, strict=True):
        rebuilt = predicted[0] + dtype.type(k_j) * bound.step
        exact = abs(Fraction(float(d_j)) - Fraction(float(rebuilt)))
        within = abs((d_j - predicted[0]) * bound.inv) <= 1048575
        assert ok == (within and exact <= Fraction(float(bound.e)))


# ---------------------------------------------------------------------------------------------------------------------
# How the writer chooses the model


def test_log() -> None:
    for n in [*range(1, 5000), 2**20 - 1, 2**20, 2**20 + 1]:
        assert reference.log(n) == math.floor(256 * math.log2(n))


def test_sizes_of_symbols() -> None:
    sizes = reference.SIZES.tolist()
    assert [sizes[symbol] for symbol in (31, 32, 33, 35, 194)] == [256, 0, 256, 512, 0]
    assert sizes[64] == math.floor(256 * math.log2(5)) + 256 * 3  # the code 32 and those up to 39
    assert sizes[65] == math.floor(256 * math.log2(6)) + 256 * 3
    assert sizes[192:194] == [256 * 20, 256 * 21]


def test_normalised_frequencies() -> None:
    def normalised(weights: dict[int, int]) -> dict[int, int]:
        given: NDArray = np.zeros(195, np.int64)
        for symbol, weight in weights.items():
            given[symbol] = weight
        frequencies = reference.normalised(given)
        assert frequencies.sum() == 4096
        return {symbol: int(frequencies[symbol]) for symbol in np.flatnonzero(frequencies).tolist()}

    assert normalised({}) == {32: 4093, 192: 1, 193: 1, 194: 1}
    assert normalised({5: 7, 32: 7}) == {5: 2045, 32: 2048, 192: 1, 193: 1, 194: 1}
    many = dict.fromkeys(range(100), 1) | {150: 10**6}
    assert normalised(many) == {**dict.fromkeys(range(100), 1), 150: 4096 - 103, 192: 1, 193: 1, 194: 1}


def test_models_without_values() -> None:
    model = reference.choose_model(reference.Counts())
    assert len(model.frequencies) == 1
    assert not model.table_of.any()
    assert (model.significant == 2048).all()


def test_contexts_that_do_not_occur() -> None:
    occurring: NDArray = np.full(648, -1)
    occurring[[3, 13, 40]] = [2, 1, 4]
    tables = reference.tables_of_all(occurring)
    assert tables[:14].tolist() == [0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1]
    assert tables[14:36].tolist() == [1] * 4 + [2, 2, 2, 2, 1, 1, 1, 1, 1] * 2
    assert tables[36:42].tolist() == [1, 1, 1, 1, 4, 4]
    assert tables[45:54].tolist() == tables[36:45].tolist()


# ---------------------------------------------------------------------------------------------------------------------
# Damage


@pytest.fixture(scope="module")
def victim() -> bytes:
    """A small archive with tiles of all kinds and a verbatim value."""
    x = np.zeros((2, 5, 33, 13), F64)
    x[0, :, :, :] = smooth((5, 33, 13), F64)
    x[1] = strewn((5, 33, 13), F64, [1e30, np.nan], 30)
    return round_trip(x[:, :, :8, :8], 0.1, axes=3, even_if_longer=True)


def refused(archive: bytes) -> bool:
    try:
        reference.decode(archive)
    except reference.FormatError:
        return True
    except RuntimeError as error:
        return "zstd" in str(error)
    return False


def test_resealing_restores_archives(victim: bytes) -> None:
    body_at = 128 + int.from_bytes(victim[112:120], "little")
    unsealed = bytearray(victim)
    unsealed[40:48] = bytes(8)
    unsealed[body_at + 8 + 40 : body_at + 8 + 48] = bytes(8)
    assert resealed(bytes(unsealed)) == victim


def test_truncated_archives_are_refused(victim: bytes) -> None:
    assert all(refused(victim[:n]) for n in range(len(victim)))
    assert refused(victim + bytes(4))
    assert [n for n in range(len(victim)) if not refused(resealed(victim[:n]))] == []


def test_flipped_bits_are_refused(victim: bytes) -> None:
    assert [bit for bit in range(8 * len(victim)) if not refused(flipped(victim, bit))] == []


def test_no_error_but_the_declared_one(victim: bytes) -> None:
    """Every bit of the headers, and every fifth of the rest, with checksums that fit."""
    body_at = 128 + int.from_bytes(victim[112:120], "little")
    bits = [*range(8 * 128), *range(8 * 128, 8 * len(victim), 5)]
    taken = [bit for bit in bits if not refused(resealed(flipped(victim, bit)))]
    assert any(bit >= 8 * body_at for bit in taken)
    assert len(taken) < len(bits) / 2


@pytest.fixture(scope="module")
def large_victim() -> bytes:
    archive = round_trip(large_field(), 1e-3, axes=2)
    assert {"kind 0", "kind 2", "verbatim", "extra bits", "top of kind 1"} <= {*parts_of(archive)}
    return archive


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED)
def test_illegal_archives_are_refused(large_victim: bytes, edit: Callable[[bytes], bytes]) -> None:
    damaged = edit(large_victim)
    assert damaged != large_victim
    with pytest.raises(reference.FormatError):
        reference.decode(resealed(damaged))


def test_the_zstd_stage_is_not_undone(victim: bytes) -> None:
    body_at = 128 + int.from_bytes(victim[112:120], "little")
    first = victim[:40] + struct.pack("<II", v1.checksum_of_bytes(victim[body_at:]), 0)
    first += victim[48:50] + b"\1" + victim[51:body_at]
    archive = first[:44] + struct.pack("<I", v1.checksum_of_header(first)) + first[48:] + victim[body_at:]
    with pytest.raises(RuntimeError, match="zstd"):
        reference.decode(archive)
    with pytest.raises(reference.FormatError, match="checksum"):
        reference.decode(flipped(archive, 8 * len(archive) - 1))
