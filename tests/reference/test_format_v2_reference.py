"""format_v2_reference.py, an implementation of format_v2.md, computes for whole arrays what the document says about
single points. test_format_v2_library.py and test_spline_engine.py compare what it writes and refuses to the library."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import format_v1_reference as v1
import format_v2_reference as reference
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import support
from field_kinds import strewn

# ---------------------------------------------------------------------------------------------------------------------
# Bounds, constants, units


@pytest.mark.parametrize(
    ("eb", "stored"),
    [(1e-3, b"\x01\xfd"), (0.025, b"\x19\xfd"), (100.0, b"\x01\x02"), (255e22, b"\xff\x16"), (1e-22, b"\x01\xea")],
)
def test_short_bounds(eb: float, stored: bytes) -> None:
    assert reference.bound_bytes(eb) == (0, stored)
    assert reference.read_bound(reference.Bytes(stored), False) == eb


def test_tables() -> None:
    constants = reference.CONSTANTS
    assert constants.frequencies.shape == (reference.TABLES, reference.SYMBOLS)
    assert (constants.frequencies.sum(axis=1) == 4096).all()
    always = [reference.DIRECT, reference.ESCAPE, reference.SPECIAL, reference.VERBATIM]
    assert constants.frequencies[:, always].min() >= 1
    means = constants.frequencies[: reference.SIZE_TABLES] @ reference.SIZES
    assert (np.diff(means) > 0).mean() > 0.9
    # For symbols distributed as in a table, that table costs least, or nearly.
    crossed = constants.crossed
    assert (np.diag(crossed) <= 1.05 * crossed.min(axis=1) + 4).all()


def test_units() -> None:
    """The tiles of small lattices share a unit; others are in units of 16 tiles of one lattice."""
    lattices = reference.pyramid(reference.extents_of((70, 80, 90)), (15, 15, 15))
    assert [lattice.extents for lattice in lattices][:3] == [(1, 70, 80, 90), (1, 35, 40, 45), (1, 18, 20, 23)]
    units = reference.units_of(lattices)
    assert [index for index, _ in units[0]] == [6, 5, 4, 3]
    assert [len(unit) for unit in units[1:4]] == [3, 16, 14]
    assert sum(len(unit) for unit in units) == sum(len(lattice.tiles()) for lattice in lattices)
    assert lattices[-1].extents == (1, 2, 2, 2)
    one_axis = reference.pyramid(reference.extents_of((3, 100, 200)), (1, 4, 3))
    assert [lattice.active_in_field for lattice in one_axis[:4]] == [(0,), (2,), (0, 1), (0, 1)]
    assert one_axis[-1].active_in_field == (2,)


# ---------------------------------------------------------------------------------------------------------------------
# What the document says about points


class Pointwise:
    """Sections 4 and 6 for one tile, point by point: (x0, x1, x2, x3) in the lattice."""

    def __init__(self, tile: reference.TileInWork, coarser: reference.Level) -> None:
        self.tile, self.coarser = tile, coarser
        self.T = tile.ty.value
        self.lattice = tile.around.lattice
        self.u = functools.cache(lambda x: self.p(x, False))

    def in_tile(self, x: tuple[int, ...]) -> bool:
        return all(begin <= c < end for c, (begin, end) in zip(x[::-1], self.tile.ranges, strict=True))

    def own(self, array: NDArray, x: tuple[int, ...]) -> Any:
        return array[tuple(c - begin for c, (begin, _) in zip(x[::-1], self.tile.ranges, strict=True))]

    def odd(self, x: tuple[int, ...]) -> list[int]:
        return [a for a in range(self.lattice.active) if x[a] % 2]

    def half(self, x: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(c // 2 if a < self.lattice.active else c for a, c in enumerate(x))

    def known(self, x: tuple[int, ...], of_tile: bool) -> Any:
        if not self.odd(x):
            return self.coarser.values[self.half(x)[::-1]]
        return self.own(self.tile.values, x) if of_tile and self.in_tile(x) else self.u(x)

    def along(self, x: tuple[int, ...], a: int, h: int, of_tile: bool) -> Any:
        """A(h) of the row along axis a that x is in."""
        extent = self.lattice.extents[3 - a]
        N = -(-extent // 2)

        def A(j: int) -> Any:
            return self.along(x, a, j, of_tile)

        def continued(near: int, towards: int) -> Any:
            if N == 1:
                return A(near)
            if N == 2:
                return (A(near) - A(near + towards)) + A(near)
            return self.T(3) * (A(near) - A(near + towards)) + A(near + 2 * towards)

        if h == -1:
            return continued(0, 1)
        if h == N and extent % 2:
            return continued(N - 1, -1)
        if h >= N:
            return (A(h - 1) - A(h - 2)) + A(h - 1) if N > 1 else A(0)
        return self.known((*x[:a], 2 * h, *x[a + 1 :]), of_tile)

    def lines(self, x: tuple[int, ...], a: int, of_tile: bool) -> tuple[Any, Any, Any]:
        T = self.T
        h, N = x[a] // 2, -(-self.lattice.extents[3 - a] // 2)
        v = [self.along(x, a, h + k, of_tile) for k in (-1, 0, 1, 2)]
        s, q = v[1] + v[2], v[0] + v[3]
        cubic = (s * T(9) - q) * T(0.0625)
        six = cubic
        if h >= 2 and h + 3 < N:
            outer = self.along(x, a, h - 2, of_tile) + self.along(x, a, h + 3, of_tile)
            six = ((s * T(150) - q * T(25)) + outer * T(3)) * T(1 / 256)
        return s * T(0.5), cubic, six

    def p(self, x: tuple[int, ...], of_tile: bool) -> Any:
        T = self.T
        curve = self.tile.around.plan.curve
        z = [self.lines(x, a, of_tile)[min(curve, 2)] for a in self.odd(x)]
        p = {1: lambda: z[0], 2: lambda: (z[0] + z[1]) * T(0.5), 3: lambda: ((z[0] + z[1]) + z[2]) * T(1 / 3)}[len(z)]()
        if of_tile and curve == 3 and len(z) > 1:
            p = p + T(0.25) * (p - self.u(x))
        return p if abs(p) <= np.finfo(T).max else T(0)

    def roughness(self, h: tuple[int, ...], a: int) -> int:
        """The roughness at h of the coarser lattice; there need not be a point."""
        x = tuple(2 * c + (b == a) if b < self.lattice.active else c for b, c in enumerate(h))
        if any(c >= extent for c, extent in zip(x[::-1], self.lattice.extents, strict=True)):
            return 0
        linear, cubic, _ = self.lines(x, a, False)
        spread = abs(cubic - linear) * self.tile.around.bound.inv
        E2 = math.frexp(float(spread))[1] - 1 if np.isfinite(spread) and spread else 99 * (not np.isfinite(spread)) - 50
        return 0 if E2 < -2 else min(E2 + 3, 7)

    def context(self, x: tuple[int, ...], magnitudes: NDArray) -> tuple[int, int]:
        """Returns the context and the weight. `magnitudes`: those of lattice i + 1."""
        h, odd, active = self.half(x), self.odd(x), self.lattice.active

        def moved(from_: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(c + step for c, step in zip(from_, steps, strict=True))

        S, sums, large = 0, [], False
        for a in odd:
            for steps in itertools.product(*[(0, 1) if b in odd and b != a else (0,) for b in range(4)]):
                S = max(S, self.roughness(moved(h, steps), a))
            around = [moved(x, tuple(by * (b == a) for b in range(4))) for by in (-1, 1)]
            codes = [max(-64, min(64, int(self.own(self.tile.codes, y)))) for y in around if self.in_tile(y)]
            sums.append(sum(codes))
            large = large or 64 in map(abs, codes)
        D = 255 if large else max(sums) - min(sums)
        if D > 0:
            S = max(S, min(7, D.bit_length() + 1))

        found = []
        for steps in itertools.product(*[(-1, 0, 1) if a < active else (0,) for a in range(4)]):
            y = moved(h, steps)[::-1]
            if all(0 <= c < extent for c, extent in zip(y, magnitudes.shape, strict=True)):
                found.append(int(magnitudes[y]))
            y = moved(x, steps)
            of_class = all(a in odd for a in range(4) if steps[a])
            if any(steps) and of_class and self.in_tile(y) and 0 < len(self.odd(y)) < len(odd):
                found.append(255 if self.own(self.tile.missing, y) else int(self.own(self.tile.magnitudes, y)))
        corners = []
        for steps in itertools.product(*[(0, 1) if a in odd else (0,) for a in range(4)]):
            y = moved(h, steps)[::-1]
            if all(c < extent for c, extent in zip(y, magnitudes.shape, strict=True)):
                corners.append(int(magnitudes[y]))
        N = min(7, (sum(found) + sum(corners)).bit_length())
        place, weight = 8 * S + N, S + N
        if 255 in found:
            some, all_of_them = 255 in corners, set(corners) == {255}
            place, weight = (66, 10) if all_of_them else (65, 9) if some else (64, 8)
        return (min(self.lattice.index, 2) * 3 + len(odd) - 1) * 67 + place, weight


@pytest.mark.parametrize(
    ("shape", "mask", "curve"),
    [
        *[((5000,), 1, 1), ((70, 81), 3, 2), ((18, 17, 20), 7, 0), ((3, 40, 50), 3, 3), ((18, 20, 40), 7, 3)],
        *[((5, 6, 7), 7, 2), ((30, 20, 6), 4, 1), ((30, 9, 20), 5, 3), ((3, 4, 2), 7, 1), ((2, 3), 3, 2)],
    ],
    ids=str,
)
def test_points_are_predicted_as_the_document_says(
    shape: tuple[int, ...], mask: int, curve: int, dtype: np.dtype
) -> None:
    ty = v1.type_of(dtype)
    plan = reference.Plan(ty, ty.canonical_nan, reference.extents_of(shape), (mask, mask, mask), 0.01, curve, 0)
    lattice = plan.lattices[0]
    seeds = itertools.count(1)

    def random_level(extents: tuple[int, ...]) -> reference.Level:
        values = strewn(extents, dtype, [1e38, -1e38, 1e300, 5.0, 0.0], 150, next(seeds))
        values[~np.isfinite(values)] = 0
        n = values.size
        magnitude = support.integers(n, 0, 10, next(seeds)) * (support.integers(n, 0, 3, next(seeds)) == 0)
        magnitude = magnitude.reshape(extents)
        magnitude[support.integers(n, 0, 300, next(seeds)).reshape(extents) == 0] = 255
        magnitude[..., : extents[-1] // 4] = 255
        return reference.Level(values.view(ty.bits), values, magnitude)

    coarser = random_level(reference.halved(plan.extents, lattice.active_in_field))
    numbered_anew = coarser.each(lattice.from_field_order)
    places = set()
    with np.errstate(all="ignore"):
        for tile in reference.LatticeInWork(plan, lattice, coarser).tiles():
            points = Pointwise(tile, numbered_anew)
            for number in range(1, len(tile.phases) + 1):
                phase = tile.begin_phase(number)
                n = phase.position.size
                weights = []
                for j in support.integers(30, 0, n, next(seeds)).tolist() if n else []:
                    local = np.unravel_index(phase.position[j], tile.shape)
                    x = tuple(int(c) + begin for c, (begin, _) in zip(local, tile.ranges, strict=True))[::-1]
                    assert len(points.odd(x)) == number
                    assert phase.p[j] == points.p(x, True)
                    context, weight = points.context(x, numbered_anew.magnitudes)
                    assert phase.context[j] == context
                    places.add(context % 67)
                    weights.append(weight)
                code = support.integers(n, -20, 21, next(seeds)) * support.integers(n, 0, 2, next(seeds))
                code[support.integers(n, 0, 15, next(seeds)) == 0] *= 50
                special = support.integers(n, 0, 200, next(seeds)) == 0
                tile.end_phase(phase, code, special, np.zeros(n, np.bool_), np.zeros(n, ty.bits))
    assert mask < 7 or min(shape) < 5 or {64, 65, 66} <= places


def test_context_of_groups() -> None:
    def F(s: int) -> int:
        if s == 0:
            return 0
        bits = f"{s:b}"
        h = 2 * (len(bits) - 1) + (bits[1:2] == "1")
        return min(15, max(1, h - 3))

    s = np.arange(1000)
    assert reference.group_context(s).tolist() == [F(each) for each in s.tolist()]


def test_coding_order() -> None:
    """A tile of 20 x 18 points has classes of 10 x 9, in groups of 8 x 8; small classes have no groups."""
    phases = reference.phases_of(2, (1, 1, 20, 18))
    first, last = phases[0][0], phases[1][0]
    assert first.position[:10].tolist() == [1, 3, 5, 7, 9, 11, 13, 15, 37, 39]
    assert first.position[64:66].tolist() == [17, 36 + 17]
    assert np.bincount(first.group).tolist() == [64, 8, 16, 2]
    assert last.position[0] == 19
    small = reference.phases_of(3, (1, 5, 5, 5))
    assert [[in_tile.position.size for in_tile in phase] for phase in small] == [[18, 18, 18], [12, 12, 12], [8]]
    assert {int(in_tile.group.max()) for phase in small for in_tile in phase} == {-1}


@given(st.integers(-(2**20) + 1, 2**20 - 1))
def test_symbols(code: int) -> None:
    none: NDArray = np.zeros(1, np.bool_)
    symbol = int(reference.symbol_of(np.array([code]), none, none)[0])
    base, width = reference.meaning(symbol, 32)
    assert base <= code < base + (1 << width)
    assert symbol < reference.ESCAPE
