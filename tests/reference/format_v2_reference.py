"""Version 2 of the archive format as a program: written from its text alone, simple and slow.

Section numbers are those of docs/reference/format_v2.md. There is no zstd stage here; logarithms_reference.py has
section 12.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import format_v1_reference as v1
import numpy as np
from format_v1_reference import Array, Box, FormatError, Type, require, volume

__all__ = ["FormatError", "decode", "encode"]

MAGIC = b"\xc5\x5a"
VERSION, KIND_SPLINE, KIND_CONSTANT = 2, 1, 3

ALPHA_BETA = ((1.0, 1.0), (1.25, 2.0), (1.5, 4.0), (2.0, 4.0))
LINEAR, CUBIC, SIX_POINTS, SIX_POINTS_AND_CODES = range(4)

T_LIMIT = 1048575  # largest |t| that is quantised
MOST_LIMITED, LARGE_D = 64, 255  # limit of the codes that contexts see, and D if one of them is at the limit
MISSING_MAGNITUDE = 255
SMALL_LATTICE = 4096  # lattices of at most this many points share unit 0
UNIT_TILES = 16
FLAGGED_CLASS = 64  # a class with fewer points in a tile has no flags

Ranges = tuple[tuple[int, int], ...]  # (begin, end) along each array axis


# ---------------------------------------------------------------------------------------------------------------------
# Section 2: the pyramid


@dataclass(frozen=True)
class Lattice:
    """A coded lattice. Its arrays, and everything that follows from `extents`, use the renumbered axes: array axis
    3 - j is the field's axis axes[j]."""

    index: int
    axes: tuple[int, ...]  # the active ones first
    extents: Box
    active: int  # number of active axes: axes 0 to active - 1
    tile: Box

    @property
    def active_in_field(self) -> tuple[int, ...]:
        return self.axes[: self.active]

    @property
    def classes(self) -> list[int]:
        """In the order of phases."""
        return sorted(range(1, 1 << self.active), key=lambda c: (c.bit_count(), c))

    def from_field_order(self, array: Array) -> Array:
        return np.ascontiguousarray(array.transpose(array_axes(self.axes)))

    def to_field_order(self, array: Array) -> Array:
        return np.ascontiguousarray(array.transpose(np.argsort(array_axes(self.axes))))

    def tiles(self) -> list[Ranges]:
        """In raster order."""
        return list(
            itertools.product(
                *[
                    [(begin, min(begin + edge, extent)) for begin in range(0, extent, edge)]
                    for extent, edge in zip(self.extents, self.tile, strict=True)
                ]
            )
        )


def extents_of(shape: Sequence[int]) -> Box:
    """(E3, E2, E1, E0)"""
    e3, e2, e1, e0 = [1, 1, 1, 1, *(extent for extent in shape if extent != 1)][-4:]
    return e3, e2, e1, e0


def active_axes(extents: Box, allowed: int) -> tuple[int, ...]:
    """The first three axes with more than one point that are allowed; if none of them is, the first three."""
    longer = [a for a in range(4) if extents[3 - a] > 1]
    return tuple(([a for a in longer if allowed >> a & 1] or longer)[:3])


def tile_edges(extents: Box, active: int) -> Box:
    starts = {1: (4096,), 2: (64, 64), 3: (32, 16, 8)}[active]
    tile = [1, 1, 1, 1]
    for a, edge in enumerate(starts):
        tile[3 - a] = min(edge, extents[3 - a])
    before = None
    while tile != before:
        before = tile.copy()
        for axis in (3, 2, 1, 0):
            larger = tile.copy()
            larger[axis] = min(2 * tile[axis], extents[axis])
            if tile[axis] < extents[axis] and volume(larger) <= v1.TILE_VALUES:
                tile = larger
    return tile[0], tile[1], tile[2], tile[3]


def halved(extents: Box, active: tuple[int, ...]) -> Box:
    e3, e2, e1, e0 = (-(-extents[3 - a] // 2) if a in active else extents[3 - a] for a in (3, 2, 1, 0))
    return e3, e2, e1, e0


def array_axes(axes: tuple[int, ...]) -> list[int]:
    return [3 - a for a in axes[::-1]]


def lattice_of(index: int, extents: Box, active: tuple[int, ...]) -> Lattice:
    """The lattice with these extents and active axes, both by the field's axes."""
    axes = (*active, *(a for a in range(4) if a not in active))
    e3, e2, e1, e0 = (extents[axis] for axis in array_axes(axes))
    return Lattice(index, axes, (e3, e2, e1, e0), len(active), tile_edges((e3, e2, e1, e0), len(active)))


def pyramid(extents: Box, allowed: Sequence[int]) -> list[Lattice]:
    """The coded lattices, from lattice 0 on. `allowed`: masks of axes for lattice 0, lattice 1 and all others."""
    lattices: list[Lattice] = []
    while volume(extents) > 1:
        active = active_axes(extents, allowed[min(len(lattices), 2)])
        lattices.append(lattice_of(len(lattices), extents, active))
        extents = halved(extents, active)
    return lattices


def units_of(lattices: Sequence[Lattice]) -> list[list[tuple[int, Ranges]]]:
    """The tiles of each unit: the number of the lattice, and the position in it."""
    small = [lattice for lattice in lattices if volume(lattice.extents) <= SMALL_LATTICE]
    units = [[(lattice.index, tile) for lattice in reversed(small) for tile in lattice.tiles()]]
    for lattice in reversed(lattices[: len(lattices) - len(small)]):
        tiles = [(lattice.index, tile) for tile in lattice.tiles()]
        units += [tiles[i : i + UNIT_TILES] for i in range(0, len(tiles), UNIT_TILES)]
    return units


def odd_axes(c: int, active: int) -> tuple[int, ...]:
    return tuple(a for a in range(active) if c >> a & 1)


def points_of_class(c: int, active: int) -> tuple[slice, ...]:
    """The points of class c in an array of a lattice or tile."""
    return tuple(slice(c >> a & 1, None, 2) if a < active else slice(None) for a in (3, 2, 1, 0))


def half_ranges(c: int, active: int, tile: Ranges) -> Ranges:
    """The half coordinates of a tile's points of class c, counted from the lattice's origin."""

    def half(a: int, begin: int, end: int) -> tuple[int, int]:
        if a >= active:
            return begin, end
        return (begin // 2, end // 2) if c >> a & 1 else (-(-begin // 2), -(-end // 2))

    return tuple(half(3 - axis, begin, end) for axis, (begin, end) in enumerate(tile))


def slices(ranges: Ranges) -> tuple[slice, ...]:
    return tuple(slice(begin, end) for begin, end in ranges)


@dataclass(frozen=True)
class ClassInTile:
    c: int
    order: Array  # the points in coding order, as indices into the class in raster order
    position: Array  # indices into the tile, in coding order
    group: Array  # the number of each point's group within the phase, in coding order; -1: none


@functools.lru_cache(maxsize=256)
def phases_of(active: int, shape: Box) -> list[list[ClassInTile]]:
    """For each phase (phase 1 first), the classes that have points in a tile of this shape."""
    edge = {1: 64, 2: 8, 3: 4}[active]
    e3, e2, e1, e0 = (edge if a < active else 1 for a in (3, 2, 1, 0))
    at: Array = np.arange(volume(shape)).reshape(shape)
    phases = []
    for phase in range(1, active + 1):
        classes = []
        groups = 0
        for c in (c for c in range(1 << active) if c.bit_count() == phase):
            positions = at[points_of_class(c, active)]
            if positions.size:
                group = v1.boxes_numbered(positions.shape, (e3, e2, e1, e0))
                order = np.argsort(group, kind="stable")
                numbers = group[order] + groups
                if positions.size < FLAGGED_CLASS:
                    numbers = np.full(numbers.size, -1)
                else:
                    groups += v1.count_of(group)
                classes.append(ClassInTile(c, order, positions.ravel()[order], numbers))
        phases.append(classes)
    return phases


# ---------------------------------------------------------------------------------------------------------------------
# Section 3: bounds


@dataclass(frozen=True)
class Bound:
    """e of a lattice, and the numbers that follow from it."""

    e: np.floating

    @property
    def step(self) -> np.floating:
        return type(self.e)(2) * self.e

    @property
    def inv(self) -> np.floating:
        return type(self.e)(1) / self.step


@dataclass(frozen=True)
class Plan:
    """What sections 2 to 6 need besides the values; the same for the writer and the reader."""

    ty: Type
    pattern: int  # bits of special values
    extents: Box
    allowed: tuple[int, int, int]
    e_0: float
    curve: int
    bounds: int  # index into ALPHA_BETA

    @functools.cached_property
    def lattices(self) -> list[Lattice]:
        return pyramid(self.extents, self.allowed)

    def bound(self, i: int) -> Bound:
        alpha, beta = ALPHA_BETA[self.bounds]
        f = min(alpha**i, beta)
        return Bound(max(self.ty.value(self.e_0 / f), np.finfo(self.ty.value).tiny))


# ---------------------------------------------------------------------------------------------------------------------
# Sections 4 and 6: what is known about a lattice or a tile before it is coded


@dataclass(frozen=True)
class Level:
    """A lattice, or the top, once it is known."""

    bits: Array  # reconstructed
    values: Array  # to predict from
    magnitudes: Array

    def each(self, change: Callable[[Array], Array]) -> Level:
        return Level(change(self.bits), change(self.values), change(self.magnitudes))


def top_level(bits: int, plan: Plan) -> Level:
    of_top = np.full((1, 1, 1, 1), bits, plan.ty.bits)
    value = of_top.view(plan.ty.value)
    special = bits == plan.pattern
    good = bool(np.isfinite(value).all()) and not special
    magnitude = np.full((1, 1, 1, 1), MISSING_MAGNITUDE if special else 0)
    return Level(of_top, value if good else np.zeros_like(value), magnitude)


def bit_lengths(values: Array) -> Array:
    """The number of bits of the magnitudes of integers, which must be exact in f64."""
    lengths: Array = np.frexp(np.abs(values).astype(np.float64))[1].astype(np.int64)
    return lengths


def sums_around(magnitudes: Array, active: int) -> Array:
    """Sums over each point and its neighbours, whose coordinates differ by at most 1 along the active axes."""
    sums = magnitudes.astype(np.int64)
    for a in range(active):
        along = np.moveaxis(sums, 3 - a, 0)
        wider = along.copy()
        wider[1:] += along[:-1]
        wider[:-1] += along[1:]
        sums = np.moveaxis(wider, 0, 3 - a)
    return sums


def shifted(array: Array, axis: int, by: int, fill: int) -> Array:
    """array[i + by] along an axis; `fill` beyond its end."""
    along = np.moveaxis(array, axis, 0)
    result = np.full_like(along, fill)
    result[:-by] = along[by:]
    return np.moveaxis(result, 0, axis)


@dataclass(frozen=True)
class Phase:
    """What is known about a phase of a tile before its codes; arrays are in coding order."""

    position: Array
    group: Array
    p: Array
    context: Array
    group_context: Array  # one for every group


CONTEXTS_IN_ROW = 67
SOME_MISSING, CORNERS_MISSING, ALL_MISSING = 64, 65, 66  # places in a row
CONTEXTS = 9 * CONTEXTS_IN_ROW


class LatticeInWork:
    """A lattice while its tiles are coded or decoded. `coarser` and the result (`finished`) have the field's order of
    axes."""

    def __init__(self, plan: Plan, lattice: Lattice, coarser: Level) -> None:
        self.plan, self.lattice, self.ty, self.active = plan, lattice, plan.ty, lattice.active
        coarser = coarser.each(lattice.from_field_order)
        self.bound = plan.bound(lattice.index)
        class_0 = points_of_class(0, self.active)
        shape = lattice.extents
        self.level = Level(np.empty(shape, self.ty.bits), np.empty(shape, self.ty.value), np.zeros(shape, np.int64))
        self.level.bits[class_0] = coarser.bits
        self.level.values[class_0] = coarser.values
        missing = coarser.magnitudes == MISSING_MAGNITUDE
        self.level.magnitudes[class_0] = np.where(missing, MISSING_MAGNITUDE, 0)

        self.u = {0: coarser.values}
        whole = tuple((0, extent) for extent in shape)
        for c in lattice.classes:
            self.u[c] = self.prediction(c, half_ranges(c, self.active, whole), {})

        # Section 6: what follows from the coarser lattice alone.
        P = sums_around(np.where(missing, 0, coarser.magnitudes), self.active)
        P_missing = sums_around(missing, self.active) > 0
        roughness = {a: self.roughness(a) for a in range(self.active)}
        self.S: dict[int, Array] = {}
        self.P_and_corners: dict[int, Array] = {}
        self.missing: dict[int, Array] = {}  # 0: none, 1: some, 2: some corners, 3: all corners
        for c in lattice.classes:
            odd = odd_axes(c, self.active)
            corners, n_missing, n_corners = (
                self.sum_of_corners(array, odd)
                for array in (np.where(missing, 0, coarser.magnitudes), missing, np.ones_like(missing))
            )
            where = slices(half_ranges(c, self.active, whole))
            self.P_and_corners[c] = (P + corners)[where]
            of_corners = np.where(n_missing == n_corners, 3, np.where(n_missing > 0, 2, P_missing))
            self.missing[c] = of_corners[where]
            S = None
            for a in odd:
                of_axis = roughness[a]
                for b in odd:
                    if b != a:
                        of_axis = np.maximum(of_axis, shifted(of_axis, 3 - b, 1, 0))
                mine = of_axis[where]
                S = mine if S is None else np.maximum(S, mine)
            assert S is not None
            self.S[c] = S

    def sum_of_corners(self, array: Array, odd: tuple[int, ...]) -> Array:
        """Sums over h + {0, 1} along the odd axes, within the lattice."""
        sums = array.astype(np.int64)
        for a in odd:
            sums = sums + shifted(sums, 3 - a, 1, 0)
        return sums

    def tiles(self) -> Iterator[TileInWork]:
        for ranges in self.lattice.tiles():
            yield TileInWork(self, ranges)

    def finished(self) -> Level:
        return self.level.each(self.lattice.to_field_order)

    def row(self, c: int, a: int, ranges: Ranges, own: dict[int, Array]) -> list[Array]:
        """The values of class c without its odd axis a, at h - 2, ..., h + 3 along that axis. The first and the last
        are meaningless where they lie beyond the lattice. `own`: the values of the tile's own classes."""
        axis = 3 - a
        source = c & ~(1 << a)
        lo, hi = ranges[axis]
        n = self.u[source].shape[axis]
        begin, end = max(lo - 4, 0), min(hi + 5, n)  # the positions asked for, and those that continue the row
        region = tuple((begin, end) if i == axis else r for i, r in enumerate(ranges))
        row = list(np.moveaxis(self.u[source][slices(region)], axis, 0).copy())
        if source in own:
            mine = list(np.moveaxis(own[source], axis, 0))
            row[lo - begin : lo - begin + len(mine)] = mine

        odd_extent = self.lattice.extents[axis] % 2 == 1
        if begin == 0:
            row = [row[0], self.continued(row), *row]
            begin = -2
        if end == n and odd_extent:
            row += [self.continued(row[::-1][:n]), row[-1]]
        elif end == n:
            for _ in range(2):
                row.append((row[-1] - row[-2]) + row[-1] if n > 1 else row[-1])
            row.append(row[-1])
        shape = tuple(hi - lo if i == axis else r[1] - r[0] for i, r in enumerate(ranges))
        if lo == hi:
            return [np.zeros(shape, self.ty.value)] * 6
        return [np.stack(row[lo + j - begin : hi + j - begin], axis) for j in range(-2, 4)]

    def continued(self, row: Sequence[Array]) -> Array:
        """The value that continues a row before its start."""
        if len(row) == 1:
            return row[0]
        if len(row) == 2:
            return (row[0] - row[1]) + row[0]
        return self.ty.value(3) * (row[0] - row[1]) + row[2]

    def lines(self, c: int, a: int, ranges: Ranges, own: dict[int, Array]) -> tuple[Array, Array, Array]:
        """linear_a, cubic_a, six_a"""
        T = self.ty.value
        w0, v0, v1_, v2, v3, w5 = self.row(c, a, ranges, own)
        s, q = v1_ + v2, v0 + v3
        linear = s * T(0.5)
        cubic = (s * T(9) - q) * T(0.0625)
        six = ((s * T(150) - q * T(25)) + (w0 + w5) * T(3)) * T(1 / 256)
        axis = 3 - a
        h = np.arange(*ranges[axis]).reshape([-1 if i == axis else 1 for i in range(4)])
        inside = (h >= 2) & (h + 3 < self.u[c & ~(1 << a)].shape[axis])
        return linear, cubic, np.where(inside, six, cubic)

    def prediction(self, c: int, ranges: Ranges, own: dict[int, Array]) -> Array:
        """p; without `own`, u."""
        T = self.ty.value
        curve = min(self.plan.curve, SIX_POINTS)
        w = [self.lines(c, a, ranges, own)[curve] for a in odd_axes(c, self.active)]
        p = w[0]
        if len(w) == 2:
            p = (w[0] + w[1]) * T(0.5)
        if len(w) == 3:
            p = ((w[0] + w[1]) + w[2]) * (T(1) / T(3))
        if len(w) > 1 and own and self.plan.curve == SIX_POINTS_AND_CODES:
            p = p + T(0.25) * (p - self.u[c][slices(ranges)])
        return np.where(np.abs(p) <= np.finfo(T).max, p, T(0))

    def roughness(self, a: int) -> Array:
        """The bucket of |cubic - linear| along an axis of the coarser lattice, at h + 1/2; 0 without an odd point."""
        ranges = tuple((0, extent) for extent in self.u[0].shape)
        odd = half_ranges(1 << a, self.active, tuple((0, extent) for extent in self.lattice.extents))
        linear, cubic, _ = self.lines(1 << a, a, tuple(odd[i] if i == 3 - a else r for i, r in enumerate(ranges)), {})
        scaled = (np.abs(cubic - linear) * self.bound.inv).view(self.ty.bits)
        mantissa_bits, mask, bias = (23, 255, 127) if self.ty.words == 1 else (52, 2047, 1023)
        exponent = (scaled >> mantissa_bits & mask).astype(np.int64) - bias
        bucket = np.select([exponent < -2, exponent > 4], [0, 7], exponent + 3)
        return np.pad(bucket, [(0, n - m) for n, m in zip(self.u[0].shape, bucket.shape, strict=True)])


class TileInWork:
    """A tile while its phases are coded or decoded, one after another."""

    def __init__(self, around: LatticeInWork, ranges: Ranges) -> None:
        self.around, self.ranges, self.ty, self.active = around, ranges, around.ty, around.active
        e3, e2, e1, e0 = (end - begin for begin, end in ranges)
        self.shape: Box = (e3, e2, e1, e0)
        self.phases = phases_of(self.active, self.shape)
        box = slices(ranges)
        self.bits = np.ascontiguousarray(around.level.bits[box])
        self.values = np.ascontiguousarray(around.level.values[box])
        # With a border of zeros. Class 0 stays 0, because it does not count here.
        self.padded = {
            name: np.zeros([n + 2 for n in self.shape], np.int64) for name in ("codes", "magnitudes", "missing")
        }
        self.codes, self.magnitudes, self.missing = (each[1:-1, 1:-1, 1:-1, 1:-1] for each in self.padded.values())

    def neighbour(self, name: str, c: int, steps: dict[int, int]) -> Array:
        """The array `name` at the points of class c moved by `steps` (axis to distance); 0 beyond the tile."""
        where = []
        for axis, n in enumerate(self.bits[points_of_class(c, self.active)].shape):
            a = 3 - axis
            begin = 1 + (c >> a & 1 if a < self.active else 0) + steps.get(a, 0)
            stride = 2 if a < self.active else 1
            where.append(slice(begin, begin + stride * (n - 1) + 1, stride))
        return self.padded[name][tuple(where)]

    def earlier(self, name: str, c: int) -> Array:
        """For each point of a class, the sum over the points around it in earlier phases, for N."""
        odd = odd_axes(c, self.active)
        sums: Array = np.zeros(self.bits[points_of_class(c, self.active)].shape, np.int64)
        for steps in itertools.product((-1, 0, 1), repeat=len(odd)):
            if any(steps):
                sums += self.neighbour(name, c, dict(zip(odd, steps, strict=True)))
        return sums

    def disagreement(self, c: int) -> Array:
        """D"""
        pairs = [[self.neighbour("codes", c, {a: by}) for by in (-1, 1)] for a in odd_axes(c, self.active)]
        sums = [before + behind for before, behind in pairs]
        large = np.abs(pairs).max(axis=(0, 1)) == MOST_LIMITED
        return np.where(large, LARGE_D, np.max(sums, axis=0) - np.min(sums, axis=0))

    def own_values(self) -> dict[int, Array]:
        return {c: self.values[points_of_class(c, self.active)] for c in range(1 << self.active)}

    def begin_phase(self, phase: int) -> Phase:
        around = self.around
        parts = []
        own = self.own_values()  # later classes have no values yet, but these are not used
        for in_tile in self.phases[phase - 1]:
            c = in_tile.c
            ranges = half_ranges(c, self.active, self.ranges)
            here = slices(ranges)
            D = self.disagreement(c)
            S = np.maximum(around.S[c][here], np.where(D == 0, 0, np.minimum(7, bit_lengths(D) + 1)))
            N = np.minimum(7, bit_lengths(around.P_and_corners[c][here] + self.earlier("magnitudes", c)))
            missing = np.maximum(around.missing[c][here], self.earlier("missing", c) > 0)
            place = np.where(missing > 0, SOME_MISSING + missing - 1, 8 * S + N)
            weight = np.where(missing > 0, 8 + missing - 1, S + N)
            p = around.prediction(c, ranges, own)
            parts.append([array.ravel()[in_tile.order] for array in (p, place, weight)])
        if not parts:
            empty: Array = np.zeros(0, np.int64)
            return Phase(empty, empty, empty.astype(self.ty.value), empty, empty)
        p, place, weight = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        group = np.concatenate([in_tile.group for in_tile in self.phases[phase - 1]])
        position = np.concatenate([in_tile.position for in_tile in self.phases[phase - 1]])
        row = min(around.lattice.index, 2) * 3 + phase - 1
        in_group = group >= 0
        s = np.bincount(group[in_group], weight[in_group]).astype(np.int64)
        return Phase(position, group, p, row * CONTEXTS_IN_ROW + place, group_context(s))

    def end_phase(self, phase: Phase, code: Array, special: Array, verbatim: Array, verbatim_bits: Array) -> None:
        """Sets the phase's values and magnitudes from its codes. All arrays are in coding order; `verbatim_bits` matter
        only where `verbatim` is true."""
        T = self.ty.value
        missing = special | verbatim
        code = np.where(missing, 0, code)
        rebuilt = phase.p + code.astype(T) * self.around.bound.step
        bits = np.where(verbatim, verbatim_bits, rebuilt.view(self.ty.bits))
        bits = np.where(special, self.ty.bits(self.around.plan.pattern), bits)
        value = bits.view(T)
        value = np.where(special | ~np.isfinite(value), phase.p, value)
        limited = np.clip(code, -MOST_LIMITED, MOST_LIMITED)
        for array, part in (
            (self.bits, bits),
            (self.values, value),
            (self.codes, limited),
            (self.magnitudes, bit_lengths(limited)),
            (self.missing, missing),
        ):
            array.flat[phase.position] = part

    def store(self) -> None:
        box = slices(self.ranges)
        level = self.around.level
        magnitudes = np.where(self.missing, MISSING_MAGNITUDE, self.magnitudes)
        for to, own in ((level.bits, self.bits), (level.values, self.values), (level.magnitudes, magnitudes)):
            for c in range(1, 1 << self.active):
                points = points_of_class(c, self.active)
                to[box][points] = own[points]


def group_context(s: Array) -> Array:
    """F"""
    b = bit_lengths(s)
    second = (b > 1) & (s >> np.maximum(b - 2, 0) & 1 == 1)
    h = 2 * (b - 1) + second
    return np.where(s == 0, 0, np.clip(h - 3, 1, 15))


# ---------------------------------------------------------------------------------------------------------------------
# Section 5: quantisation


def quantise(d: Array, p: Array, bound: Bound) -> tuple[Array, Array]:
    """k, and whether it is accepted. Meaningless for special values."""
    T = d.dtype.type
    e = bound.e
    t = (d - p) * bound.inv
    within = np.abs(t) <= T(T_LIMIT)
    k = np.rint(np.where(within, t, T(0))).astype(np.int64)
    rebuilt = p + k.astype(T) * bound.step
    r = d - rebuilt
    b = r - d
    error = (d - (r - b)) + (-rebuilt - b)
    below = np.where(r > 0, error <= 0, error >= 0)  # the exact difference is r + error
    return k, within & ((np.abs(r) < e) | ((np.abs(r) == e) & below))


# ---------------------------------------------------------------------------------------------------------------------
# Section 7: symbols, tables, and the table of each context

DIRECT = 32  # the codes -32 to 31 have symbols of their own
ESCAPE, SPECIAL, VERBATIM, SYMBOLS = 192, 193, 194, 195
ESCAPE_BITS = 21


def symbol_of(code: Array, special: Array, verbatim: Array) -> Array:
    key = np.where(code < 0, ~code, code)
    o = np.maximum(bit_lengths(key) - 1, 5)
    m = (key >> (o - 2)) - 4
    symbol = np.where(key < DIRECT, code + DIRECT, 64 + 8 * (o - 5) + 2 * m + (code < 0))
    return np.where(special, SPECIAL, np.where(verbatim, VERBATIM, symbol))


def meaning(symbol: int, value_bits: int) -> tuple[int, int]:
    """Base and number of extra bits of a symbol: the code is base + extra bits."""
    if symbol < 64:
        return symbol - DIRECT, 0
    if symbol >= ESCAPE:
        return 0, {ESCAPE: ESCAPE_BITS, SPECIAL: 0, VERBATIM: value_bits}[symbol]
    o, m, negative = 5 + (symbol - 64) // 8, symbol % 8 // 2, symbol % 2
    return (-((5 + m) << (o - 2)) if negative else (4 + m) << (o - 2)), o - 2


def log(n: int) -> int:
    """floor(256 log2(n)) for n >= 1"""
    whole = n.bit_length() - 1
    mantissa = n << 31 >> whole
    result = whole
    for _ in range(8):
        mantissa = mantissa * mantissa >> 31
        result <<= 1
        if mantissa >= 1 << 32:
            mantissa >>= 1
            result |= 1
    return result


def size_of(symbol: int) -> int:
    """The size of a symbol (section 10), in 1/256 bits"""
    if symbol >= ESCAPE:
        return 0
    base, extra_bits = meaning(symbol, 0)
    return log(1 + abs(base >> extra_bits)) + 256 * extra_bits


SIZES = np.array([size_of(symbol) for symbol in range(SYMBOLS)])

SCALE_BITS = 12
SCALE = 1 << SCALE_BITS
LOWEST_STATE = 1 << 16
GROUP_CONTEXTS = 16
SIZE_TABLES, TABLES, PRESETS = 64, 86, 16
SIZES_NEAR_MISSING = 8, 14, 20, 26, 32, 40  # tables from which the frequencies of codes in tables 64 to 81 derive
DELTA_TABLES = 14, 24  # the tables for a delta after one that is 0 (or none), and after any other
MOST_DELTA = 31
MAP_FROM = 1 << 13  # a map is tried from this many values on
MAP_FROM_WITH_MISSING = 1 << 10  # if there are contexts with missing neighbours among them


class Constants:
    """The tables, from the text of tables.inc."""

    def __init__(self, text: str) -> None:
        rows = [list(map(int, line.rstrip(",").split(","))) for line in text.splitlines() if not line.startswith("//")]
        halves, rows = rows[:TABLES], rows[TABLES:]
        self.frequencies = np.array([self.table(half) for half in halves])
        self.parameters: dict[tuple[int, int], list[list[int]]] = {}  # (dimensions, preset) to a, b, c of each row
        self.groups: dict[tuple[int, int], list[int]] = {}
        for dimensions, preset in itertools.product((1, 2, 3), range(PRESETS)):
            row = rows.pop(0)
            self.parameters[dimensions, preset] = [row[3 * i : 3 * i + 3] for i in range(9)]
            self.groups[dimensions, preset] = row[27:]
        costs = np.array([0] + [256 * SCALE_BITS - log(f) for f in range(1, SCALE + 1)])
        own = self.frequencies
        self.costs = np.where(own > 0, costs[own], costs[own[:, [ESCAPE]]] + 256 * ESCAPE_BITS)
        #: [t, u]: the mean cost of a symbol of table t when it is coded with table u, in 1/256 bits.
        self.crossed = (own[:SIZE_TABLES, :VERBATIM] @ self.costs[:, :VERBATIM].T) >> SCALE_BITS
        self.delta_costs = self.costs[list(DELTA_TABLES)]

    @functools.cached_property
    def starts(self) -> Array:
        return np.cumsum(self.frequencies, axis=1) - self.frequencies

    @functools.cached_property
    def lists(self) -> tuple[list[list[int]], list[list[int]]]:
        """Frequencies and starts."""
        return self.frequencies.tolist(), self.starts.tolist()

    @staticmethod
    def table(half: Sequence[int]) -> Array:
        """All frequencies, from those of the codes 0 to 31, -32, each pair of buckets, and the last three symbols."""
        frequencies = np.zeros(SYMBOLS, np.int64)
        for k in range(DIRECT):
            frequencies[[DIRECT + k, DIRECT - k]] = half[k]
        frequencies[0] = half[DIRECT]
        for pair in range(64):
            frequencies[[64 + 2 * pair, 65 + 2 * pair]] = half[DIRECT + 1 + pair]
        frequencies[ESCAPE:] = half[-3:]
        require(frequencies.sum() == SCALE, "a table's sum")
        return frequencies


def table_by_parameters(parameters: Sequence[int], S: int, N: int) -> int:
    """The table for S and N. `parameters`: a, b, c, in quarters."""
    a, b, c = parameters
    terms = [c] + [a + 4 * S] * (S > 0) + [b + 4 * N] * (N > 0)
    total = sum(power_of_quarters(x) for x in terms)
    v = log(total) - 16 * 256
    return min(max((24 * 256 + (3 if v < 0 else 4) * v + 128) >> 8, 0), SIZE_TABLES - 1)


@functools.cache
def power_of_quarters(x: int) -> int:
    """2^(16 + x/4), rounded down"""
    return int(2 ** (16 + x / 4))


def group_frequency(index: int) -> int:
    """g"""
    return min(max(round(4096 / (1 + 2 ** ((32 - index) / 4))), 1), 4095)


@functools.lru_cache(maxsize=64)
def base_tables(constants: Constants, dimensions: int, preset: int) -> Array:
    rows = []
    for parameters in constants.parameters[dimensions, preset]:
        rows += [table_by_parameters(parameters, place // 8, place % 8) for place in range(64)]
        size = min(max((rows[-64 + 27] - 5) // 6, 0), 5)  # m, from place 27
        rows += [SIZE_TABLES + size, SIZE_TABLES + 6 + size, SIZE_TABLES + 18]
    return np.array(rows)


# ---------------------------------------------------------------------------------------------------------------------
# Section 7: the model


def rows_of(lattices: Sequence[Lattice]) -> list[int]:
    """The rows of contexts that occur."""
    return sorted({min(lattice.index, 2) * 3 + phase for lattice in lattices for phase in range(lattice.active)})


TABLES_FILE = Path(__file__).parents[2] / "cusz_core" / "src" / "archive" / "v2" / "tables.inc"
CONSTANTS = Constants(TABLES_FILE.read_text(encoding="ascii"))


@dataclass(frozen=True)
class Model:
    preset: int
    table_of: Array  # the table of every context
    group_index: Array  # j of every context of groups
    has_map: bool = False

    @property
    def significant(self) -> Array:
        return np.array([group_frequency(index) for index in self.group_index.tolist()])


class MapCoder:
    """Visits what a map can change in a preset, in the order of the map: calls change(context, expected, delta table)
    for every context and then every context of groups, and applies the delta that it returns."""

    def __init__(self, dimensions: int, preset: int, lattices: Sequence[Lattice]) -> None:
        self.base = base_tables(CONSTANTS, dimensions, preset)
        self.group_base = CONSTANTS.groups[dimensions, preset]
        self.rows = rows_of(lattices)

    def run(self, preset: int, change: Callable[[int, int, int], int]) -> Model:
        table_of = self.base.copy()
        changed: Array = np.zeros(CONTEXTS, np.int64)
        last = 0
        for row in self.rows:
            for place in range(CONTEXTS_IN_ROW):
                context = row * CONTEXTS_IN_ROW + place
                near = -1 if place >= 64 else context - 1 if place % 8 else context - 8 if place else -1
                expected = int(self.base[context]) + (int(changed[near]) if near >= 0 else 0)
                first, end = (0, SIZE_TABLES) if place < 64 else (SIZE_TABLES, TABLES)
                expected = min(max(expected, first), end - 1)
                last = change(context, expected, int(last != 0))
                require(first <= expected + last < end, "a table that there is not")
                table_of[context] = expected + last
                changed[context] = table_of[context] - self.base[context]
        groups = []
        for F in range(GROUP_CONTEXTS):
            expected = self.group_base[F] + (groups[-1] - self.group_base[F - 1] if groups else 0)
            expected = min(max(expected, 0), 63)
            last = change(CONTEXTS + F, expected, int(last != 0))
            require(0 <= expected + last < 64, "a frequency of groups that there is not")
            groups.append(expected + last)
        return Model(preset, table_of, np.array(groups), True)


def model_of_preset(dimensions: int, preset: int) -> Model:
    return Model(preset, base_tables(CONSTANTS, dimensions, preset), np.array(CONSTANTS.groups[dimensions, preset]))


@dataclass
class Counts:
    """By context: the number of coded values and the sum of their sizes; by context of groups: the groups that are not
    significant, and those that are. In places from 64 on, special and verbatim values are counted in `missing`."""

    n: Array = field(default_factory=lambda: np.zeros(CONTEXTS, np.int64))
    missing: Array = field(default_factory=lambda: np.zeros((CONTEXTS, 2), np.int64))
    sizes: Array = field(default_factory=lambda: np.zeros(CONTEXTS, np.int64))
    groups: Array = field(default_factory=lambda: np.zeros((GROUP_CONTEXTS, 2), np.int64))

    def add(self, phase: CodedPhase, weight: int) -> None:
        apart = (phase.context % CONTEXTS_IN_ROW >= 64) & (phase.symbol >= SPECIAL)
        np.add.at(self.missing, (phase.context[apart], phase.symbol[apart] - SPECIAL), weight)
        np.add.at(self.n, phase.context[~apart], weight)
        np.add.at(self.sizes, phase.context[~apart], weight * SIZES[phase.symbol[~apart]])
        np.add.at(self.groups, (phase.group_context, phase.significant.astype(np.int64)), weight)


def ideal_table(n: int, size: int) -> int:
    if size < 256 * n:
        return max(0, (24 * 256 + 3 * (log(max(size, 1)) - log(n) - 2048) + 128) >> 8)
    return min(SIZE_TABLES - 1, 24 + (4 * (size - 256 * n) + 128 * n) // (256 * n))


def choose_model(counts: Counts, dimensions: int, lattices: Sequence[Lattice]) -> Model:
    costs = counts.missing @ CONSTANTS.costs[:, [SPECIAL, VERBATIM]].T  # [context, table]
    for context in np.flatnonzero(counts.n).tolist():
        n = int(counts.n[context])
        costs[context] += n * CONSTANTS.crossed[ideal_table(n, int(counts.sizes[context]))]
    g = np.array([group_frequency(index) for index in range(64)])
    logs = np.array([256 * SCALE_BITS - log(f) if f else 0 for f in range(SCALE)])
    group_costs = counts.groups[:, 1:] * logs[g] + counts.groups[:, :1] * logs[SCALE - g]

    def cost(preset: int) -> int:
        model = model_of_preset(dimensions, preset)
        of_values = costs[np.arange(CONTEXTS), model.table_of].sum()
        return int(of_values + group_costs[range(GROUP_CONTEXTS), model.group_index].sum())

    preset = min(range(PRESETS), key=lambda preset: (cost(preset), preset))
    values = (counts.n + counts.missing.sum(axis=1)).reshape(-1, CONTEXTS_IN_ROW)
    if values.sum() < (MAP_FROM_WITH_MISSING if values[:, 64:].any() else MAP_FROM):
        return model_of_preset(dimensions, preset)
    of_map = 0

    def change(context: int, expected: int, delta_table: int) -> int:
        nonlocal of_map
        first, end = 0, SIZE_TABLES
        if context < CONTEXTS and context % CONTEXTS_IN_ROW >= 64:
            first, end = SIZE_TABLES, TABLES
        mine = costs[context] if context < CONTEXTS else group_costs[context - CONTEXTS]
        has = CONSTANTS.frequencies[DELTA_TABLES[delta_table]] > 0
        deltas = [d for d in range(-MOST_DELTA, MOST_DELTA + 1) if first <= expected + d < end and has[DIRECT + d]]
        price = [int(CONSTANTS.delta_costs[delta_table][DIRECT + d]) for d in deltas]
        total = [int(mine[expected + d]) + p for d, p in zip(deltas, price, strict=True)]
        best = min(range(len(deltas)), key=lambda i: (total[i], abs(deltas[i]), deltas[i]))
        of_map += total[best]
        return deltas[best]

    with_map = MapCoder(dimensions, preset, lattices).run(preset, change)
    return with_map if of_map < cost(preset) else model_of_preset(dimensions, preset)


# ---------------------------------------------------------------------------------------------------------------------
# Section 8: units, encoding


@dataclass(frozen=True)
class CodedPhase:
    group_context: Array
    significant: Array  # one flag for every group
    context: Array  # this and the arrays below: for the values that are coded
    symbol: Array
    extra: list[int]
    extra_bits: Array
    n_special: int
    n_verbatim: int


def code_phase(tile: TileInWork, number: int, bits: Array) -> CodedPhase:
    """Codes a phase of a tile whose values have these `bits`."""
    ty, plan = tile.ty, tile.around.plan
    phase = tile.begin_phase(number)
    d_bits = bits.ravel()[phase.position]
    special = d_bits == plan.pattern
    code, accepted = quantise(d_bits.view(ty.value), phase.p, tile.around.bound)
    verbatim = ~accepted & ~special
    code[special | verbatim] = 0
    tile.end_phase(phase, code, special, verbatim, d_bits)

    something = (code != 0) | special | verbatim
    in_group = phase.group >= 0
    significant = np.zeros(phase.group_context.size, np.bool_)
    np.logical_or.at(significant, phase.group[in_group], something[in_group])
    coded = ~in_group
    coded[in_group] = significant[phase.group[in_group]]
    symbol = symbol_of(code, special, verbatim)[coded]
    base, width = np.array([meaning(s, 32 * ty.words) for s in range(SYMBOLS)]).T[:, symbol]
    extra = [
        bits_of if s == VERBATIM else k - b
        for s, k, b, bits_of in zip(
            symbol.tolist(), code[coded].tolist(), base.tolist(), d_bits[coded].tolist(), strict=True
        )
    ]
    return CodedPhase(
        phase.group_context, significant, phase.context[coded], symbol, extra, width, special.sum(), verbatim.sum()
    )


def code_tile(tile: TileInWork, bits: Array) -> list[CodedPhase]:
    return [code_phase(tile, number, bits) for number in range(1, tile.active + 1)]


def is_live(tile: list[CodedPhase]) -> bool:
    return any((phase.symbol != DIRECT).any() for phase in tile)


class RansWriter:
    def __init__(self, model: Model) -> None:
        self.model, self.frequencies, self.starts = model, CONSTANTS.frequencies, CONSTANTS.starts
        self.steps: list[list[tuple[int, int]]] = []  # runs of (start, frequency); every run begins at lane 0
        self.extra = 0
        self.extra_bits = 0
        self.n_values = 0

    def put_extra(self, value: int, bits: int) -> None:
        self.extra |= (value & ((1 << bits) - 1)) << self.extra_bits
        self.extra_bits += bits

    def put(self, tables: Array, symbols: Array) -> None:
        self.steps.append(
            list(zip(self.starts[tables, symbols].tolist(), self.frequencies[tables, symbols].tolist(), strict=True))
        )

    def escaped(self, tables: Array, symbols: Array) -> Array:
        return self.frequencies[tables, symbols] == 0

    def tile(self, tile: list[CodedPhase]) -> None:
        significant = self.model.significant
        for phase in tile:
            g = significant[phase.group_context]
            flags = phase.significant
            self.steps.append(
                list(
                    zip(
                        np.where(flags, SCALE - g, 0).tolist(),
                        np.where(flags, g, SCALE - g).tolist(),
                        strict=True,
                    )
                )
            )
            tables = self.model.table_of[phase.context]
            escaped = self.escaped(tables, phase.symbol)
            self.put(tables, np.where(escaped, ESCAPE, phase.symbol))
            self.n_values += phase.symbol.size
            base = [meaning(symbol, 0)[0] for symbol in phase.symbol.tolist()]
            for value, bits, is_escaped, b in zip(phase.extra, phase.extra_bits.tolist(), escaped, base, strict=True):
                if is_escaped:
                    self.put_extra(value + b, ESCAPE_BITS)
                else:
                    self.put_extra(value, bits)

    def finish(self) -> tuple[int, bytes]:
        """Returns log2 of the number of lanes, and the states, words and extra bits as bytes."""
        log2_lanes = 0
        while log2_lanes < 5 and self.n_values > 1024 << log2_lanes:
            log2_lanes += 1
        lanes = 1 << log2_lanes
        states = [LOWEST_STATE] * lanes
        words = []
        for run in reversed(self.steps):
            for j, (start, f) in reversed(list(enumerate(run))):
                x = states[j % lanes]
                if x >= f << 20:
                    words.append(x & 0xFFFF)
                    x >>= 16
                states[j % lanes] = (x // f << SCALE_BITS) + x % f + start
        n_extra = -(-self.extra_bits // 16)
        extra = [self.extra >> 16 * i & 0xFFFF for i in range(n_extra)]
        return log2_lanes, struct.pack(f"<{lanes}I{len(words) + n_extra}H", *states, *words[::-1], *extra[::-1])


def write_unit(
    tiles: list[list[CodedPhase]], model: Model, deltas: Sequence[tuple[int, int]] | None
) -> tuple[int, bytes]:
    """Returns log2 of the number of lanes, and the payload. `deltas`: those of the map for unit 0 (empty if there is no
    map), which has no bits of live tiles; None for other units."""
    live = [is_live(tile) for tile in tiles]
    if not any(live) and not deltas:
        return 0, b""
    writer = RansWriter(model)
    if deltas:
        writer.put(np.array([DELTA_TABLES[table] for _, table in deltas]), np.array([d + DIRECT for d, _ in deltas]))
    for tile, is_coded in zip(tiles, live, strict=True):
        if is_coded or deltas is not None:
            writer.tile(tile)
    log2_lanes, coded = writer.finish()
    mask = b"" if deltas is not None else struct.pack("<H", sum(is_coded << i for i, is_coded in enumerate(live)))
    return log2_lanes, mask + coded


# ---------------------------------------------------------------------------------------------------------------------
# Sections 1 and 9: archives, encoding


def varint(n: int) -> bytes:
    """Seven bits per byte, the lowest first; all bytes but the last have their highest bit set."""
    parts = []
    while n > 127:
        parts.append(n & 127 | 128)
        n >>= 7
    return bytes([*parts, n])


def bound_bytes(eb: float) -> tuple[int, bytes]:
    """The bit *exact*, and the stored bytes: m and x if they give eb exactly (0), else an f64 (1)."""
    for m in range(1, 256):
        for x in range(-22, 23):
            if eb == (m * 10.0**x if x >= 0 else m / 10.0**-x):
                return 0, struct.pack("<Bb", m, x)
    return 1, struct.pack("<d", eb)


def frame(
    kind: int, ty: Type, shape: Sequence[int], eb: float, rel: bool, e_0: float, fill: int | None,
    counts: tuple[int, int], axes: bool,
) -> bytes:  # fmt: skip
    """The frame up to its checksum."""
    as_f64, bound = bound_bytes(eb)
    flags = rel | as_f64 << 1 | (fill is not None) << 2 | axes << 3 | any(counts) << 4
    parts = [MAGIC, bytes([VERSION | kind << 4 | (ty is v1.F64) << 7, len(shape) - 1 | flags << 2])]
    parts += [*map(varint, shape), bound]
    if rel and kind != KIND_CONSTANT:
        parts.append(v1.little(np.array([e_0], ty.value)))
    if fill is not None:
        parts.append(v1.little(np.array([fill], ty.bits)))
    if any(counts):
        parts += map(varint, counts)
    return b"".join(parts)


def checksum(data: bytes) -> int:
    return v1.checksum_of_bytes(data + bytes(-len(data) % 4) + struct.pack("<I", len(data) % 4))


def lattice_checksum(payloads: Sequence[bytes]) -> int:
    return v1.fold(sum(v1.part(t, v1.words_of(data)) for t, data in enumerate(payloads)) & v1.MASK64)


def fields_of(plan: Plan, bits: Array) -> list[Array]:
    """The points of every lattice and of the top, in the field's order of axes."""
    fields = [bits]
    for lattice in plan.lattices:
        even = tuple(slice(None, None, 2) if 3 - axis in lattice.active_in_field else slice(None) for axis in range(4))
        fields.append(np.ascontiguousarray(fields[-1][even]))
    return fields


def code_field(plan: Plan, bits: Array, top: int) -> list[list[list[CodedPhase]]]:
    """The coded tiles of each lattice, from lattice 0 on."""
    fields = fields_of(plan, bits)
    coded = []
    level = top_level(top, plan)
    for lattice in reversed(plan.lattices):
        work = LatticeInWork(plan, lattice, level)
        of_lattice = lattice.from_field_order(fields[lattice.index])
        tiles = []
        for tile in work.tiles():
            tiles.append(code_tile(tile, np.ascontiguousarray(of_lattice[slices(tile.ranges)])))
            tile.store()
        coded.append(tiles)
        level = work.finished()
    return coded[::-1]


def count(tiles_of: list[list[list[CodedPhase]]], lattices: Sequence[Lattice]) -> Counts:
    """Counts all coded tiles of the lattices from 1 on, and a sample of those of lattice 0."""
    counts = Counts()
    for i, tiles in enumerate(tiles_of):
        k = v1.log2_rate(len(tiles)) if i == 0 else 0
        for number, tile in enumerate(tiles):
            in_unit_0 = volume(lattices[i].extents) <= SMALL_LATTICE
            if v1.in_sample(number, k) and (in_unit_0 or is_live(tile)):
                for phase in tile:
                    counts.add(phase, 1 << k)
    return counts


def encode(
    x: Array, eb: float, mode: str = "abs", fill: float | None = None, *, allowed: Sequence[int] = (15, 15, 15),
    curve: int = CUBIC, bounds: int = 0, even_if_longer: bool = False,
) -> bytes:  # fmt: skip
    """The archive of a field. `allowed`: masks of axes; `curve`, `bounds`: as in the byte *interpolation*;
    `even_if_longer`: whether to keep an archive that is longer than a raw one (for tests)."""
    x = np.ascontiguousarray(x)
    ty = v1.type_of(x.dtype)
    if not 1 <= x.ndim <= 4 or not 0 < eb < float("inf") or mode not in ("abs", "rel"):
        return v1.encode(x, eb, mode, fill=fill)  # it raises for illegal arguments
    raw = v1.encode_raw(x, ty)
    bits = x.view(ty.bits)
    rel = mode == "rel"
    if x.size and (bits == bits.ravel()[0]).all():
        fill_bits = None if fill is None else v1.special_pattern(fill, ty)
        front = frame(KIND_CONSTANT, ty, x.shape, eb, rel, 0.0, fill_bits, (0, 0), False)
        value = v1.little(bits.ravel()[:1])
        return front + struct.pack("<I", checksum(front + value)) + value
    pattern = v1.special_pattern(fill, ty)
    e_0 = v1.largest_bound(v1.absolute_bound(x, bits == pattern, eb, mode), ty)
    if x.size == 0 or e_0 < np.finfo(ty.value).tiny:
        return raw

    axes = tuple(allowed) != (15, 15, 15)
    extents = extents_of(x.shape)
    plan = Plan(ty, pattern, extents, (allowed[0], allowed[1], allowed[2]), float(e_0), curve, bounds)
    bits = bits.reshape(extents)
    top_bits = int(bits.ravel()[0])
    with np.errstate(all="ignore"):
        tiles_of = code_field(plan, bits, top_bits)
    dimensions = plan.lattices[0].active
    model = choose_model(count(tiles_of, plan.lattices), dimensions, plan.lattices)

    deltas: list[tuple[int, int]] = []
    if model.has_map:

        def change(context: int, expected: int, table: int) -> int:
            wanted = model.table_of[context] if context < CONTEXTS else model.group_index[context - CONTEXTS]
            deltas.append((int(wanted) - expected, table))
            return deltas[-1][0]

        MapCoder(dimensions, model.preset, plan.lattices).run(model.preset, change)

    units: list[tuple[int, bytes]] = []
    sums = []
    all_tiles = {lattice.index: iter(tiles) for lattice, tiles in zip(plan.lattices, tiles_of, strict=True)}
    for number, unit in enumerate(units_of(plan.lattices)):
        tiles = [next(all_tiles[index]) for index, _ in unit]
        units.append(write_unit(tiles, model, None if number else deltas))
        sums.append(unit[0][0] if unit else 0)
    counts = [
        sum(getattr(phase, name) for tiles in tiles_of for tile in tiles for phase in tile)
        for name in ("n_special", "n_verbatim")
    ]
    fill_bits = pattern if fill is not None else None
    front = frame(KIND_SPLINE, ty, x.shape, eb, rel, float(e_0), fill_bits, (int(counts[0]), int(counts[1])), axes)
    rest = bytes([curve | bounds << 3])
    if axes:
        rest += struct.pack("<H", allowed[0] | allowed[1] << 4 | allowed[2] << 8)
    rest += bytes([model.preset | model.has_map << 4 | units[0][0] << 5]) + v1.little(np.array([top_bits], ty.bits))
    if len(units) > 1:
        rest += varint(len(units[0][1]) // 2)
        for log2_lanes, payload in units[1:]:
            rest += (len(payload) // 2 | log2_lanes << 21).to_bytes(3, "little")
        for index in sorted(set(sums[1:]), reverse=True):
            of_lattice = [payload for i, (_, payload) in zip(sums[1:], units[1:], strict=True) if i == index]
            rest += struct.pack("<I", lattice_checksum(of_lattice))
    rest += bytes((len(front) + 4 + len(rest)) % 2) + units[0][1]
    archive = front + struct.pack("<I", checksum(front + rest)) + rest + b"".join(payload for _, payload in units[1:])
    return archive if even_if_longer or len(archive) < len(raw) else raw


# ---------------------------------------------------------------------------------------------------------------------
# Section 8: units, decoding


class ExtraReader:
    """Extra bits, whose 16-bit units lie at the end of a payload, the last one first."""

    def __init__(self, units: Array) -> None:
        self.bits = sum(unit << 16 * i for i, unit in enumerate(units[::-1].tolist()))
        self.available = 16 * units.size
        self.used = 0

    def take(self, n: int) -> int:
        require(self.used + n <= self.available, "extra bits that end too early")
        taken = self.bits >> self.used & ((1 << n) - 1)
        self.used += n
        return taken

    def finish(self) -> int:
        """Returns the number of 16-bit units that were used."""
        n = -(-self.used // 16)
        require(self.bits >> self.used & ((1 << 16 * n - self.used) - 1) == 0, "padding is not 0")
        return n


class RansReader:
    def __init__(self, payload: bytes, lanes: int, model: Model | None) -> None:
        require(len(payload) >= 4 * lanes and len(payload) % 2 == 0, "a payload without states")
        self.states = list(struct.unpack(f"<{lanes}I", payload[: 4 * lanes]))
        require(all(x >= LOWEST_STATE for x in self.states), "a state below the least")
        self.words = np.frombuffer(payload[4 * lanes :], "<u2")
        self.next_word = 0
        self.extra = ExtraReader(self.words)
        self.model = model
        self.frequencies, self.starts = CONSTANTS.lists

    def advance(self, lane: int, start: int, f: int) -> None:
        x = self.states[lane]
        x = f * (x >> SCALE_BITS) + x % SCALE - start
        if x < LOWEST_STATE:
            require(self.next_word < self.words.size, "a payload without enough words")
            x = x << 16 | int(self.words[self.next_word])
            self.next_word += 1
        self.states[lane] = x

    def flags(self, frequencies: list[int]) -> Array:
        flags = []
        for j, g in enumerate(frequencies):
            lane = j % len(self.states)
            flags.append(self.states[lane] % SCALE >= SCALE - g)
            self.advance(lane, SCALE - g if flags[-1] else 0, g if flags[-1] else SCALE - g)
        return np.array(flags, np.bool_)

    def symbol(self, j: int, table: int) -> int:
        lane = j % len(self.states)
        symbol = int(symbols_of_slots()[table][self.states[lane] % SCALE])
        self.advance(lane, self.starts[table][symbol], self.frequencies[table][symbol])
        return symbol

    def finish(self) -> None:
        require(all(x == LOWEST_STATE for x in self.states), "a state that does not end where it should")
        require(self.next_word + self.extra.finish() == self.words.size, "words that are not used")


@functools.cache
def symbols_of_slots() -> Array:
    return np.array([np.repeat(np.arange(SYMBOLS), frequencies) for frequencies in CONSTANTS.frequencies])


def decode_phase(tile: TileInWork, number: int, reader: RansReader | None) -> None:
    """Decodes a phase; without a reader, every code of the tile is 0."""
    ty = tile.ty
    phase = tile.begin_phase(number)
    n = phase.position.size
    code, special, verbatim = np.zeros(n, np.int64), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    bits = np.zeros(n, ty.bits)
    if reader is not None and reader.model is not None:
        significant = reader.flags(reader.model.significant[phase.group_context].tolist())
        in_group = phase.group >= 0
        coded = ~in_group
        coded[in_group] = significant[phase.group[in_group]]
        tables = reader.model.table_of[phase.context].tolist()
        symbols = [reader.symbol(j, tables[i]) for j, i in enumerate(np.flatnonzero(coded).tolist())]
        for i, symbol in zip(np.flatnonzero(coded).tolist(), symbols, strict=True):
            base, width = meaning(symbol, 32 * ty.words)
            extra = reader.extra.take(width)
            special[i], verbatim[i] = symbol == SPECIAL, symbol == VERBATIM
            if symbol == VERBATIM:
                bits[i] = extra
                require(extra != tile.around.plan.pattern, "a special value that is stored verbatim")
            elif symbol == ESCAPE:
                code[i] = extra - (1 << ESCAPE_BITS if extra >> ESCAPE_BITS - 1 else 0)
            elif symbol != SPECIAL:
                code[i] = base + extra
        require((np.abs(code) <= T_LIMIT).all(), "a code beyond the limit")
    tile.end_phase(phase, code, special, verbatim, bits)


class Decoder:
    """Decodes tile after tile; a lattice is finished when its last tile is."""

    def __init__(self, plan: Plan, top: int) -> None:
        self.plan, self.level = plan, top_level(top, plan)
        self.work: LatticeInWork | None = None
        self.left = 0

    def tile(self, index: int, ranges: Ranges, reader: RansReader | None) -> None:
        if self.left == 0:
            self.work = LatticeInWork(self.plan, self.plan.lattices[index], self.level)
            self.left = len(self.work.lattice.tiles())
        assert self.work is not None
        tile = TileInWork(self.work, ranges)
        for number in range(1, tile.active + 1):
            decode_phase(tile, number, reader)
        tile.store()
        self.left -= 1
        if self.left == 0:
            self.level = self.work.finished()


# ---------------------------------------------------------------------------------------------------------------------
# Sections 1 and 9: archives, decoding


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        require(self.at + n <= len(self.data), "an archive that ends too early")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, n: int) -> int:
        return int.from_bytes(self.take(n), "little")

    def varint(self) -> int:
        value = 0
        for i in range(10):
            byte = self.number(1)
            value |= (byte & 127) << 7 * i
            if byte < 128:
                require(byte or not i, "a number that could be shorter")
                return value
        raise FormatError("a number that is too long")


def read_bound(archive: Bytes, as_f64: bool) -> float:
    if as_f64:
        eb = float(struct.unpack("<d", archive.take(8))[0])
    else:
        m, x = struct.unpack("<Bb", archive.take(2))
        require(m and abs(x) <= 22, "illegal bound")
        eb = m * 10.0**x if x >= 0 else m / 10.0**-x
    require(0 < eb < float("inf"), "illegal bound")
    return eb


def decode(archive: bytes) -> Array:
    """The field of an archive of version 1 or 2; checks the document's legal values on the way."""
    if archive[:2] != MAGIC:
        return v1.decode(archive)
    data = Bytes(archive)
    data.take(2)
    head, second = data.take(2)
    kind, ty = head >> 4 & 7, v1.F64 if head >> 7 else v1.F32
    require(head & 15 == VERSION and kind in (KIND_SPLINE, KIND_CONSTANT), "no such version or kind")
    ndim, flags = 1 + (second & 3), second >> 2
    rel, as_f64, has_fill, axes, missing, zstd = (flags >> i & 1 for i in range(6))
    if zstd:
        raise RuntimeError("the zstd stage: this reference does not undo it")
    shape = [data.varint() for _ in range(ndim)]
    require(0 < volume(shape) <= 2**60 - 48, "a field too large, or empty")
    require(volume(shape) > 1 or kind == KIND_CONSTANT, "a pyramid of a single value")
    eb = read_bound(data, bool(as_f64))
    width = 4 * ty.words

    def value() -> int:
        return data.number(width)

    if rel:
        e_0 = 0.0 if kind == KIND_CONSTANT else float(np.array([value()], ty.bits).view(ty.value)[0])
    else:
        e_0 = float(v1.largest_bound(eb, ty))
    pattern = value() if has_fill else ty.canonical_nan
    counts = [data.varint(), data.varint()] if missing else [0, 0]
    require(bool(missing) == any(counts), "counters that are 0")
    front = archive[: data.at]
    stored_checksum = data.number(4)
    if kind == KIND_CONSTANT:
        require(not axes and not missing, "illegal flags")
        bits = value()
        require(data.at == len(archive), "an archive of another length")
        require(checksum(front + archive[-width:]) == stored_checksum, "checksum")
        return np.full(shape, bits, ty.bits).view(ty.value)

    require(np.finfo(ty.value).tiny <= e_0 <= ty.e_limit, "illegal bound")
    interpolation = data.number(1)
    require(interpolation < 4 * 8, "illegal interpolation")
    masks = data.number(2) if axes else 0x0FFF
    require(masks < 1 << 12 and (not axes or masks != 0x0FFF), "illegal axes")
    model_byte = data.number(1)
    top = value()
    plan = Plan(
        ty, pattern, extents_of(shape), (masks & 15, masks >> 4 & 15, masks >> 8), e_0, interpolation & 7,
        interpolation >> 3,
    )  # fmt: skip
    require(plan.curve <= SIX_POINTS_AND_CODES, "illegal interpolation")
    units = units_of(plan.lattices)
    lanes, lengths, sums = [model_byte >> 5], [], {}
    if len(units) > 1:
        lengths.append(2 * data.varint())
        for _ in units[1:]:
            entry = data.number(3)
            lengths.append(2 * (entry & (1 << 21) - 1))
            lanes.append(entry >> 21)
            require(lengths[-1] or not lanes[-1], "lanes of nothing")
        for index in sorted({unit[0][0] for unit in units[1:]}, reverse=True):
            sums[index] = data.number(4)
    require(data.at % 2 == 0 or data.take(1) == bytes(1), "padding is not 0")
    if len(units) == 1:
        lengths.append(len(archive) - data.at)
    require(max(lanes) <= 5, "too many lanes")
    payloads = [data.take(length) for length in lengths]
    require(data.at == len(archive), "an archive of another length")
    end_of_head = len(archive) - sum(lengths[1:])
    require(checksum(front + archive[len(front) + 4 : end_of_head]) == stored_checksum, "checksum")
    for index, stored in sums.items():
        of_lattice = [p for p, unit in zip(payloads[1:], units[1:], strict=True) if unit[0][0] == index]
        require(lattice_checksum(of_lattice) == stored, "checksum of a lattice")

    dimensions = plan.lattices[0].active if plan.lattices else 1
    preset, has_map = model_byte & 15, bool(model_byte >> 4 & 1)
    model = model_of_preset(dimensions, preset)
    with np.errstate(all="ignore"):
        decoder = Decoder(plan, top)
        for number, (unit, payload, log2_lanes) in enumerate(zip(units, payloads, lanes, strict=True)):
            reader, live = None, 0
            if payload:
                live = -1
                if number:
                    live, payload = int.from_bytes(payload[:2], "little"), payload[2:]
                    require(0 < live < 1 << len(unit), "bits of live tiles")
                reader = RansReader(payload, 1 << log2_lanes, model)
            if number == 0 and has_map:
                require(reader is not None, "a map that is not there")
                assert reader is not None
                model = read_map(reader, dimensions, preset, plan.lattices)
                reader.model = model
            for i, (index, ranges) in enumerate(unit):
                decoder.tile(index, ranges, reader if live >> i & 1 else None)
            if reader is not None:
                reader.finish()
    return decoder.level.bits.view(ty.value).reshape(shape)


def read_map(reader: RansReader, dimensions: int, preset: int, lattices: Sequence[Lattice]) -> Model:
    numbers = itertools.count()

    def change(context: int, expected: int, table: int) -> int:
        symbol = reader.symbol(next(numbers), DELTA_TABLES[table])
        require(symbol < 2 * DIRECT, "no change of a table")
        return symbol - DIRECT

    return MapCoder(dimensions, preset, lattices).run(preset, change)
