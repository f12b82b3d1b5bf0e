"""Version 2 of the archive format, docs/format_v2.md, as a program: written from that document alone, simple and slow.

As format_v1_reference.py is for version 1, from which it takes what the documents share (symbols, checksums, the top).
Section numbers are those of the document. There is no zstd stage here.
"""

import functools
import itertools
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import format_v1_reference as v1
import numpy as np
from format_v1_reference import Array, Box, FormatError, Type, require, volume

__all__ = ["Counts", "FormatError", "Model", "choose_model", "decode", "encode", "halvable"]

VERSION, REVISION = 2, 1
SPLINE, RANS = 1, 1  # ids of predictor family and entropy coder
KIND_TILED = 1
HEADER_BYTES, CODING_HEADER_BYTES = 48, 80
MAX_MODEL_BYTES = 16384

TILE_CODED, TILE_SPECIAL, TILE_RAW = 0, 1, 2
VERBATIM_BIT, EXTRA_BIT = 4, 5  # of the tile header
UNIT = 2  # bytes

ALPHA = (1.0, 1.25, 1.5, 1.75, 2.0)
BETA = (1.0, 2.0, 3.0, 4.0)

T_LIMIT = 1048575  # largest |t| that is quantised
SPECIAL_MAGNITUDE = 255
ALPHABET = v1.Alphabet(5)
CODE_0 = ALPHABET.R  # its symbol
IN_EVERY_TABLE = (CODE_0, *ALPHABET.escapes, ALPHABET.missing)
CONTEXTS, ROW = 648, 9
GROUP_CONTEXTS = 16
MAX_TABLES = 16
TOP_LENGTH_BYTES = 8
SCALE_BITS = 12
SCALE = 1 << SCALE_BITS
LOWEST_STATE = 1 << 16

Ranges = tuple[tuple[int, int], ...]  # (begin, end) along each array axis


# ---------------------------------------------------------------------------------------------------------------------
# Section 2: the pyramid


@dataclass(frozen=True)
class Lattice:
    """One that is coded. Arrays of it, and all that follows from `extents`, have the axes that are numbered anew:
    array axis 3 - j is the field's axis axes[j]."""

    index: int
    axes: tuple[int, ...]  # the active ones first
    extents: Box
    active: tuple[int, ...]  # 0, or 0 and 1, or 0 to 2
    tile: Box

    @property
    def active_in_field(self) -> tuple[int, ...]:
        return tuple(self.axes[j] for j in self.active)

    def from_field_order(self, array: Array) -> Array:
        return np.ascontiguousarray(array.transpose(array_axes(self.axes)))

    def to_field_order(self, array: Array) -> Array:
        return np.ascontiguousarray(array.transpose(np.argsort(array_axes(self.axes))))

    def tiles(self) -> Iterator[Ranges]:
        """In raster order."""
        return itertools.product(
            *[
                [(begin, min(begin + edge, extent)) for begin in range(0, extent, edge)]
                for extent, edge in zip(self.extents, self.tile, strict=True)
            ]
        )

    def tile_count(self) -> int:
        return volume([-(-extent // edge) for extent, edge in zip(self.extents, self.tile, strict=True)])


def extents_of(shape: Sequence[int]) -> Box:
    """(E3, E2, E1, E0)"""
    e3, e2, e1, e0 = [1, 1, 1, 1, *(extent for extent in shape if extent != 1)][-4:]
    return e3, e2, e1, e0


def halvable(shape: Sequence[int]) -> int:
    """The mask of the axes that may be halved."""
    return sum(1 << a for a in range(4) if extents_of(shape)[3 - a] >= 5)


def active_axes(extents: Box, mask: int) -> tuple[int, ...]:
    return tuple(a for a in range(4) if mask >> a & 1 and extents[3 - a] >= 5)


def tile_edges(extents: Box, active: tuple[int, ...]) -> Box:
    starts = {1: (4096,), 2: (64, 64), 3: (32, 16, 8)}[len(active)]
    tile = [1, 1, 1, 1]
    for a, edge in zip(active, starts, strict=True):
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
    e3, e2, e1, e0 = (-(-e // 2) if 3 - axis in active else e for axis, e in enumerate(extents))
    return e3, e2, e1, e0


def array_axes(axes: tuple[int, ...]) -> list[int]:
    return [3 - a for a in axes[::-1]]


def lattice_of(index: int, extents: Box, active: tuple[int, ...]) -> Lattice:
    """From the field's axes."""
    axes = (*active, *(a for a in range(4) if a not in active))
    e3, e2, e1, e0 = (extents[axis] for axis in array_axes(axes))
    numbered_anew = tuple(range(len(active)))
    return Lattice(index, axes, (e3, e2, e1, e0), numbered_anew, tile_edges((e3, e2, e1, e0), numbered_anew))


def pyramid(extents: Box, mask: int) -> tuple[list[Lattice], Box]:
    """The lattices below the top, from lattice 0 on, and the extents of the top, by the field's axes."""
    lattices = []
    while active := active_axes(extents, mask):
        lattices.append(lattice_of(len(lattices), extents, active))
        extents = halved(extents, active)
    return lattices, extents


def odd_axes(c: int, active: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a for j, a in enumerate(active) if c >> j & 1)


def points_of_class(c: int, active: tuple[int, ...]) -> tuple[slice, ...]:
    """Where class c is in an array of a lattice or tile."""
    odd = odd_axes(c, active)
    return tuple(slice(int(3 - axis in odd), None, 2) if 3 - axis in active else slice(None) for axis in range(4))


def half_ranges(c: int, active: tuple[int, ...], tile: Ranges) -> Ranges:
    """The half coordinates, in the lattice, of a tile's points of class c."""
    odd = odd_axes(c, active)

    def half(axis: int, begin: int, end: int) -> tuple[int, int]:
        if 3 - axis not in active:
            return begin, end
        return (begin // 2, end // 2) if 3 - axis in odd else (-(-begin // 2), -(-end // 2))

    return tuple(half(axis, begin, end) for axis, (begin, end) in enumerate(tile))


def slices(ranges: Ranges) -> tuple[slice, ...]:
    return tuple(slice(begin, end) for begin, end in ranges)


@dataclass(frozen=True)
class ClassInTile:
    c: int
    order: Array  # coding order: indices into the class in raster order
    position: Array  # in the tile, in coding order
    group: Array  # numbers within the phase, in coding order


@functools.lru_cache(maxsize=256)
def phases_of(active: tuple[int, ...], shape: Box) -> list[list[ClassInTile]]:
    """The classes of a tile that have points, by phase (phase 1 first)."""
    edge = {1: 64, 2: 8, 3: 4}[len(active)]
    e3, e2, e1, e0 = (edge if 3 - axis in active else 1 for axis in range(4))
    at: Array = np.arange(volume(shape)).reshape(shape)
    phases = []
    for phase in range(1, len(active) + 1):
        classes = []
        groups = 0
        for c in (c for c in range(1 << len(active)) if c.bit_count() == phase):
            positions = at[points_of_class(c, active)]
            if positions.size:
                group = v1.boxes_numbered(positions.shape, (e3, e2, e1, e0))
                order = np.argsort(group, kind="stable")
                classes.append(ClassInTile(c, order, positions.ravel()[order], group[order] + groups))
                groups += v1.count_of(group)
        phases.append(classes)
    return phases


def coded_positions(active: tuple[int, ...], shape: Box) -> Array:
    """Of all coded points of a tile, in coding order."""
    parts = [in_tile.position for classes in phases_of(active, shape) for in_tile in classes]
    return np.concatenate([np.zeros(0, np.int64), *parts])


# ---------------------------------------------------------------------------------------------------------------------
# Section 3: bounds


@dataclass(frozen=True)
class Bound:
    """e of a lattice, and what follows from it."""

    e: np.floating

    @property
    def step(self) -> np.floating:
        return type(self.e)(2) * self.e

    @property
    def inv(self) -> np.floating:
        return type(self.e)(1) / self.step


def bound_of(i: int, e_0: float, alpha: int, beta: int, ty: Type) -> Bound:
    f = min(ALPHA[alpha] ** i, BETA[beta])
    return Bound(max(ty.value(e_0 / f), np.finfo(ty.value).tiny))


# ---------------------------------------------------------------------------------------------------------------------
# Sections 4 and 6: what is known of a lattice and of a tile before it is coded


@dataclass(frozen=True)
class Plan:
    """What sections 2 to 6 need, beside the values; the same for the writer and the reader."""

    ty: Type
    pattern: int
    fill: bool  # byte 53
    lattices: list[Lattice]
    top: Box
    e_0: float
    cubic: bool
    alpha: int
    beta: int

    def bound(self, i: int) -> Bound:
        return bound_of(i, self.e_0, self.alpha, self.beta, self.ty)

    @property
    def top_bound(self) -> float:
        return float(self.bound(len(self.lattices)).e)

    def tile_count(self) -> int:
        return sum(lattice.tile_count() for lattice in self.lattices)


@dataclass(frozen=True)
class Level:
    """A lattice, or the top, when it is known."""

    bits: Array  # reconstructed
    values: Array  # to predict from
    magnitudes: Array

    def each(self, change: Callable[[Array], Array]) -> "Level":
        return Level(change(self.bits), change(self.values), change(self.magnitudes))


def top_level(decoded: Array, pattern: int, ty: Type) -> Level:
    bits = decoded.view(ty.bits)
    special = bits == pattern
    good = (np.isfinite(decoded) & ~special).ravel()
    source = np.maximum.accumulate(np.where(good, np.arange(good.size), -1))
    values = np.where(source < 0, ty.value(0), decoded.ravel()[source]).reshape(decoded.shape)
    return Level(bits, values, np.where(special, SPECIAL_MAGNITUDE, 0))


def saturated(sums: Array) -> Array:
    return np.minimum(sums, 255)


def bit_lengths(values: Array) -> Array:
    """The number of bits of integers that f64 can hold."""
    lengths: Array = np.frexp(np.abs(values).astype(np.float64))[1].astype(np.int64)
    return lengths


def sums_around(magnitudes: Array, active: tuple[int, ...]) -> Array:
    """Over the neighbours that differ by at most 1 along the active axes, and the point itself; not saturated."""
    sums = magnitudes.astype(np.int64)
    for a in active:
        along = np.moveaxis(sums, 3 - a, 0)
        wider = along.copy()
        wider[1:] += along[:-1]
        wider[:-1] += along[1:]
        sums = np.moveaxis(wider, 0, 3 - a)
    return sums


@dataclass(frozen=True)
class Prediction:
    p: Array
    difference: Array  # high - low


@dataclass(frozen=True)
class Phase:
    """What is known of a phase of a tile before its codes; arrays in coding order."""

    position: Array
    group: Array
    p: Array
    context: Array
    group_context: Array  # of every group


class LatticeInWork:
    """A lattice while its tiles are coded or decoded. The coarser one has the field's order of axes, as has what comes
    out in the end (`finished`)."""

    def __init__(self, plan: Plan, lattice: Lattice, coarser: Level) -> None:
        self.plan, self.lattice, self.ty = plan, lattice, plan.ty
        coarser = coarser.each(lattice.from_field_order)
        self.bound = plan.bound(lattice.index)
        self.P = saturated(sums_around(coarser.magnitudes, lattice.active))
        class_0 = points_of_class(0, lattice.active)
        shape = lattice.extents
        self.level = Level(np.empty(shape, self.ty.bits), np.empty(shape, self.ty.value), np.zeros(shape, np.int64))
        self.level.bits[class_0] = coarser.bits
        self.level.values[class_0] = coarser.values
        self.level.magnitudes[class_0] = np.where(coarser.magnitudes == SPECIAL_MAGNITUDE, SPECIAL_MAGNITUDE, 0)

        self.u = {0: coarser.values}
        whole = tuple((0, extent) for extent in shape)
        for c in sorted(range(1, 1 << len(lattice.active)), key=int.bit_count):
            self.u[c] = self.prediction(c, half_ranges(c, lattice.active, whole), {}).p

    def tiles(self) -> Iterator["TileInWork"]:
        for ranges in self.lattice.tiles():
            yield TileInWork(self, ranges)

    def finished(self) -> Level:
        return self.level.each(self.lattice.to_field_order)

    def four(self, c: int, a: int, ranges: Ranges, own: dict[int, Array]) -> list[Array]:
        """v0 to v3 of class c along its odd axis a. `own`: the values of the tile's own classes."""
        axis = 3 - a
        source = c & ~(1 << self.lattice.active.index(a))
        lo, hi = ranges[axis]
        n = self.u[source].shape[axis]
        begin, end = max(lo - 3, 0), min(hi + 4, n)  # what the four, or those that they are continued from, can be
        region = tuple((begin, end) if i == axis else r for i, r in enumerate(ranges))
        line = np.moveaxis(self.u[source][slices(region)], axis, 0).copy()
        if source in own:
            mine = np.moveaxis(own[source], axis, 0)
            line[lo - begin : lo - begin + len(mine)] = mine

        three = self.ty.value(3)
        first = begin
        if begin == 0:
            line = np.concatenate([[three * (line[0] - line[1]) + line[2]], line])
            first = -1
        if end == n and self.lattice.extents[axis] % 2 == 1:
            line = np.concatenate([line, [three * (line[-1] - line[-2]) + line[-3]]])
        elif end == n:
            for _ in range(2):
                line = np.concatenate([line, [(line[-1] - line[-2]) + line[-1]]])
        return [np.moveaxis(line[lo - 1 + k - first : hi - 1 + k - first], 0, axis) for k in range(4)]

    def prediction(self, c: int, ranges: Ranges, own: dict[int, Array]) -> Prediction:
        T = self.ty.value
        chosen = []
        candidates = []  # cubic_a, linear_a, cubic_b, ...
        for a in odd_axes(c, self.lattice.active):
            v0, v1_, v2, v3 = self.four(c, a, ranges, own)
            s = v1_ + v2
            cubic = (s * T(9) - (v0 + v3)) * T(0.0625)
            linear = s * T(0.5)
            chosen.append(cubic if self.plan.cubic else linear)
            candidates += [cubic, linear]

        p = chosen[0]
        if len(chosen) == 2:
            p = (chosen[0] + chosen[1]) * T(0.5)
        if len(chosen) == 3:
            p = ((chosen[0] + chosen[1]) + chosen[2]) * (T(1) / T(3))
        p = np.where(np.abs(p) <= np.finfo(T).max, p, T(0))

        low = high = candidates[0]
        for x in candidates[1:]:
            low = np.where(x < low, x, low)
            high = np.where(x > high, x, high)
        return Prediction(p, high - low)

    def spread(self, difference: Array) -> Array:
        """S"""
        scaled = (difference * self.bound.inv).view(self.ty.bits)
        mantissa_bits, mask, bias = (23, 255, 127) if self.ty.words == 1 else (52, 2047, 1023)
        E2 = (scaled >> mantissa_bits & mask).astype(np.int64) - bias
        return np.select([E2 < -2, E2 > 4], [0, 7], E2 + 3)


class TileInWork:
    """A tile while its phases are coded or decoded, one after the other."""

    def __init__(self, around: LatticeInWork, ranges: Ranges) -> None:
        self.around, self.ranges, self.ty = around, ranges, around.ty
        self.active = around.lattice.active
        e3, e2, e1, e0 = (end - begin for begin, end in ranges)
        self.shape: Box = (e3, e2, e1, e0)
        self.phases = phases_of(self.active, self.shape)
        box = slices(ranges)
        self.bits = np.ascontiguousarray(around.level.bits[box])
        self.values = np.ascontiguousarray(around.level.values[box])
        self.magnitudes = np.zeros(self.shape, np.int64)  # class 0 does not count

    def coded_positions(self) -> Array:
        return coded_positions(self.active, self.shape)

    def earlier_magnitudes(self, c: int) -> Array:
        """Q, of the class in raster order."""
        padded = np.pad(self.magnitudes, 1)
        odd = [3 - a for a in odd_axes(c, self.active)]
        sums: Array = np.zeros(self.magnitudes[points_of_class(c, self.active)].shape, np.int64)
        for steps in itertools.product((-1, 0, 1), repeat=len(odd)):
            if not any(steps):
                continue
            where = []
            for axis, n in enumerate(sums.shape):
                begin = 1 + (steps[odd.index(axis)] + 1 if axis in odd else 0)
                stride = 2 if 3 - axis in self.active else 1
                where.append(slice(begin, begin + stride * (n - 1) + 1, stride))
            sums += padded[tuple(where)]
        return saturated(sums)

    def own_values(self) -> dict[int, Array]:
        return {c: self.values[points_of_class(c, self.active)] for c in range(1 << len(self.active))}

    def begin_phase(self, phase: int) -> Phase:
        parts = []
        own = self.own_values()  # later classes have no values yet, but these are not asked for
        for in_tile in self.phases[phase - 1]:
            ranges = half_ranges(in_tile.c, self.active, self.ranges)
            prediction = self.around.prediction(in_tile.c, ranges, own)
            P = self.around.P[slices(ranges)]
            Q = self.earlier_magnitudes(in_tile.c)
            N = np.where((P == 255) | (Q == 255), 8, np.minimum(7, bit_lengths(P + Q)))
            S = self.around.spread(prediction.difference)
            parts.append([array.ravel()[in_tile.order] for array in (prediction.p, S, N)])
        if not parts:
            empty: Array = np.zeros(0, np.int64)
            return Phase(empty, empty, empty.astype(self.ty.value), empty, empty)
        p, S, N = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        group = np.concatenate([in_tile.group for in_tile in self.phases[phase - 1]])
        position = np.concatenate([in_tile.position for in_tile in self.phases[phase - 1]])
        context = ((min(self.around.lattice.index, 2) * 3 + phase - 1) * 8 + S) * 9 + N
        return Phase(position, group, p, context, group_context(np.bincount(group, S + N).astype(np.int64)))

    def end_phase(self, phase: Phase, code: Array, special: Array, verbatim: Array, verbatim_bits: Array) -> None:
        """The phase's values and magnitudes from its codes; all arrays in coding order. `verbatim_bits` matter only
        where `verbatim`. A special value may be stored verbatim."""
        T = self.ty.value
        special = special | (verbatim & (verbatim_bits == self.around.plan.pattern))
        rebuilt = phase.p + code.astype(T) * self.around.bound.step
        bits = np.where(verbatim, verbatim_bits, rebuilt.view(self.ty.bits))
        bits = np.where(special, self.ty.bits(self.around.plan.pattern), bits)
        value = bits.view(T)
        value = np.where(special | ~np.isfinite(value), phase.p, value)
        magnitude = np.where(verbatim, 0, np.minimum(bit_lengths(code), 9))
        magnitude = np.where(special, SPECIAL_MAGNITUDE, magnitude)
        for array, part in ((self.bits, bits), (self.values, value), (self.magnitudes, magnitude)):
            array.ravel()[phase.position] = part

    def finish_without_codes(self, special: bool, verbatim: bool, bits: Array) -> None:
        """All phases of a tile of kind 1 or 2, or of length 0. `bits`: of a raw tile, at their places in it."""
        for number in range(1, len(self.phases) + 1):
            phase = self.begin_phase(number)
            n = phase.position.size
            all_special, all_verbatim = np.full(n, special), np.full(n, verbatim)
            self.end_phase(phase, np.zeros(n, np.int64), all_special, all_verbatim, bits.ravel()[phase.position])

    def store(self) -> None:
        box = slices(self.ranges)
        level = self.around.level
        for to, own in (
            (level.bits, self.bits),
            (level.values, self.values),
            (level.magnitudes, self.magnitudes),
        ):
            for c in range(1, 1 << len(self.active)):
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
    """k, and whether it is accepted; d is not special."""
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
# Section 7: model


@dataclass(frozen=True)
class Model:
    table_of: Array  # of every context
    frequencies: Array  # of every table: of every symbol
    significant: Array  # of every context of groups: g

    def starts(self) -> Array:
        return np.cumsum(self.frequencies, axis=1) - self.frequencies


def model_section(model: Model) -> bytes:
    values: list[int] = []
    widths: list[int] = []

    def put(value: int, width: int) -> None:
        values.append(value)
        widths.append(width)

    K = len(model.frequencies)
    put(K - 1, 4)
    if K > 1:
        before = [0] * ROW
        for row in model.table_of.reshape(-1, ROW).tolist():
            put(row != before, 1)
            if row != before:
                for table, preceding in zip(row, before[-1:] + row[:-1], strict=True):
                    put(table != preceding, 1)
                    if table != preceding:
                        put(table, 4)
            before = row
    for frequencies in model.frequencies:
        present = np.flatnonzero(frequencies)
        put(int(present[0]), 8)
        put(int(present[-1] - present[0]), 8)
        for frequency in frequencies[present[0] : present[-1] + 1].tolist():
            w = frequency.bit_length()
            put(w, 4)
            if w > 1:
                put(frequency - (1 << (w - 1)), w - 1)
    for g in model.significant.tolist():
        put(g, 12)
    return v1.pack_bits(np.array(values), np.array(widths))


class BitReader:
    def __init__(self, data: bytes, what: str) -> None:
        self.rest, self.left, self.what = int.from_bytes(data, "little"), 8 * len(data), what

    def take(self, n: int) -> int:
        require(n <= self.left, f"{self.what} that ends too early")
        taken = self.rest & ((1 << n) - 1)
        self.rest >>= n
        self.left -= n
        return taken

    def finish(self, unit_bits: int) -> None:
        require(self.left < unit_bits, f"{self.what} of too many bits")
        require(self.rest == 0, f"{self.what}: padding is not 0")


@functools.lru_cache(maxsize=16)  # tests read the same one thousands of times
def read_model(section: bytes) -> Model:
    reader = BitReader(section, "a model")
    K = 1 + reader.take(4)
    table_of = np.zeros((CONTEXTS // ROW, ROW), np.int64)
    if K > 1:
        for row in range(len(table_of)):
            if reader.take(1):
                table = int(table_of[row - 1, -1]) if row else 0
                for column in range(ROW):
                    if reader.take(1):
                        table = reader.take(4)
                    require(table < K, "a table that there is not")
                    table_of[row, column] = table
            elif row:
                table_of[row] = table_of[row - 1]
    frequencies = np.zeros((K, ALPHABET.size), np.int64)
    for table in range(K):
        first = reader.take(8)
        n = 1 + reader.take(8)
        require(first + n <= ALPHABET.size, "a table's range")
        for symbol in range(first, first + n):
            w = reader.take(4)
            require(w <= 13, "a frequency's width")
            if w:
                frequencies[table, symbol] = (1 << (w - 1)) + reader.take(w - 1)
        require(frequencies[table].sum() == SCALE, "a table's sum")
        require(frequencies[table, IN_EVERY_TABLE].all(), "a table without a symbol that all have")
    significant = np.array([reader.take(SCALE_BITS) for _ in range(GROUP_CONTEXTS)])
    require(significant.min() >= 1, "a frequency of groups")
    reader.finish(32)
    return Model(table_of.ravel(), frequencies, significant)


# ---------------------------------------------------------------------------------------------------------------------
# Section 10: how the writer chooses the model


def log(n: int) -> int:
    """floor(256 log2(n)), of n from 1 on"""
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
    if symbol == ALPHABET.missing:
        return 0
    base, extra_bits = ALPHABET.meaning(symbol)
    return log(1 + abs(base >> extra_bits)) + 256 * extra_bits


SIZES = np.array([size_of(symbol) for symbol in range(ALPHABET.size)])
COSTS = np.array([4096] + [3072 - log(f) for f in range(1, SCALE + 1)])  # by frequency


@dataclass
class Counts:
    """Weights of symbols by context, and of groups that are not significant or are."""

    symbols: Array = field(default_factory=lambda: np.zeros((CONTEXTS, ALPHABET.size), np.int64))
    groups: Array = field(default_factory=lambda: np.zeros((GROUP_CONTEXTS, 2), np.int64))

    def add(self, phase: "CodedPhase", weight: int) -> None:
        np.add.at(self.symbols, (phase.context, phase.symbol), weight)
        np.add.at(self.groups, (phase.group_context, phase.significant.astype(np.int64)), weight)


def normalised(weights: Array) -> Array:
    """Frequencies with the sum 4096."""
    total = int(weights.sum())
    frequencies = np.array([max(1, (SCALE * w + total // 2) // total) if w else 0 for w in weights.tolist()])
    for symbol in IN_EVERY_TABLE:
        frequencies[symbol] = max(frequencies[symbol], 1)
    while (too_many := int(frequencies.sum()) - SCALE) != 0:
        largest = int(np.argmax(frequencies))
        if too_many < 0:
            frequencies[largest] -= too_many
        else:
            frequencies[largest] -= min(too_many, max(1, int(frequencies[largest]) // 64))
    return frequencies


def frequencies_of_tables(weights: Array, table_of: Array, K: int) -> Array:
    return np.array([normalised(weights[table_of == table].sum(axis=0)) for table in range(K)])


def first_tables(weights: Array, occurring: list[int], K: int) -> Array:
    """By the mean sizes of the contexts' symbols, so that tables have about the same share of all; -1 where none."""
    n = weights.sum(axis=1)
    z = (weights * SIZES).sum(axis=1)
    share = z + 26 * n
    table_of = np.full(CONTEXTS, -1)
    before = 0
    for context in sorted(occurring, key=lambda context: (int(z[context] // n[context]), context)):
        middle = before + int(share[context]) // 2
        table_of[context] = min(K - 1, middle * K // int(share.sum()))
        before += int(share[context])
    return table_of


def tables_of_all(table_of: Array) -> Array:
    """Also those of contexts that do not occur, which have -1."""
    occurs = table_of >= 0
    result = table_of.copy()
    for context in range(CONTEXTS):
        if not occurs[context]:
            result[context] = result[context - 1] if context else 0
    rows = result.reshape(-1, ROW)
    for row in range(1, len(rows)):
        if not occurs.reshape(-1, ROW)[row].any():
            rows[row] = rows[row - 1]
    return result


def choose_model(counts: Counts) -> Model:
    weights = counts.symbols
    occurring = np.flatnonzero(weights.any(axis=1)).tolist()
    K = max(1, min(MAX_TABLES, len(occurring), int(weights.sum()) // 4096 + 2))
    table_of = first_tables(weights, occurring, K)
    for _ in range(2):
        frequencies = frequencies_of_tables(weights, table_of, K)
        costs = weights[occurring] @ COSTS[frequencies].T  # by context and table
        table_of[occurring] = np.argmin(costs, axis=1)
    frequencies = frequencies_of_tables(weights, table_of, K)

    significant = []
    for other, s in counts.groups.tolist():
        G = other + s
        significant.append(min(max((SCALE * s + G // 2) // G, 1), SCALE - 1) if G else SCALE // 2)
    return Model(tables_of_all(table_of), frequencies, np.array(significant))


# ---------------------------------------------------------------------------------------------------------------------
# Section 8: tiles, encoding


def units_of(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def to_whole(data: bytes, n: int) -> bytes:
    return data + bytes(-len(data) % n)


@dataclass(frozen=True)
class CodedPhase:
    group_context: Array
    significant: Array  # of every group
    context: Array  # this and the rest: of the values of significant groups
    symbol: Array
    extra: Array
    extra_width: Array


@dataclass
class CodedTile:
    """What a tile is before it is packed."""

    kind: int = TILE_CODED
    empty: bool = False  # length 0
    phases: list[CodedPhase] = field(default_factory=list)
    verbatim: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # positions, ascending
    payload: bytes = b""
    n_special: int = 0
    n_unpredictable: int = 0


def significant_groups(phase: Phase, code: Array, special: Array) -> Array:
    return np.bincount(phase.group, weights=(code != 0) | special) > 0


def coded_phase(phase: Phase, code: Array, special: Array, model: Model | None) -> CodedPhase:
    significant = significant_groups(phase, code, special)
    coded = significant[phase.group]
    context, code, special = phase.context[coded], code[coded], special[coded]
    symbol = ALPHABET.symbol(code, special)
    if model is not None:
        escape = np.where(code < 0, ALPHABET.escapes[1], ALPHABET.escapes[0])
        symbol = np.where(model.frequencies[model.table_of[context], symbol] > 0, symbol, escape)
    base, width = np.array([ALPHABET.meaning(s) for s in range(ALPHABET.size)]).T[:, symbol]
    extra = np.where(symbol == ALPHABET.missing, 0, code - base)
    return CodedPhase(phase.group_context, significant, context, symbol, extra, width)


def code_tile(tile: TileInWork, bits: Array, model: Model | None) -> CodedTile:
    """Codes a tile, of the field's `bits`. Without a model it is of kind 0, and no payload is made."""
    plan = tile.around.plan
    positions = tile.coded_positions()
    if model is not None and positions.size and (bits.ravel()[positions] == plan.pattern).all():
        tile.finish_without_codes(True, False, bits)
        return CodedTile(TILE_SPECIAL, payload=struct.pack("<H", TILE_SPECIAL), n_special=positions.size)

    coded = CodedTile()
    for number in range(1, len(tile.phases) + 1):
        phase = tile.begin_phase(number)
        d_bits = bits.ravel()[phase.position]
        special = d_bits == plan.pattern
        code, accepted = quantise(d_bits.view(plan.ty.value), phase.p, tile.around.bound)
        verbatim = ~accepted & ~special
        code[special | verbatim] = 0
        coded.phases.append(coded_phase(phase, code, special, model))
        coded.verbatim = np.sort(np.concatenate([coded.verbatim, phase.position[verbatim]]))
        coded.n_special += int(special.sum())
        tile.end_phase(phase, code, special, verbatim, d_bits)

    coded.n_unpredictable = coded.verbatim.size
    coded.empty = not coded.verbatim.size and not any(phase.significant.any() for phase in coded.phases)
    if model is not None and not coded.empty:
        coded.payload = coded_payload(coded, bits.ravel()[coded.verbatim], model)
        if len(coded.payload) >= UNIT + positions.size * bits.itemsize:
            return raw_tile(tile, bits)
    return coded


def raw_tile(tile: TileInWork, bits: Array) -> CodedTile:
    tile.finish_without_codes(False, True, bits)
    positions = tile.coded_positions()
    payload = struct.pack("<H", TILE_RAW) + units_of(bits.ravel()[positions])
    return CodedTile(TILE_RAW, payload=payload, n_unpredictable=positions.size)


def coded_payload(coded: CodedTile, verbatim_bits: Array, model: Model) -> bytes:
    n = sum(phase.symbol.size for phase in coded.phases)
    log2_lanes = 0 if n <= 1024 else 1 if n <= 2048 else 2
    extra = np.concatenate([phase.extra for phase in coded.phases])
    widths = np.concatenate([phase.extra_width for phase in coded.phases])
    n_extra = -(-int(widths.sum()) // 16)

    head = TILE_CODED | log2_lanes << 2 | (coded.verbatim.size > 0) << VERBATIM_BIT | (n_extra > 0) << EXTRA_BIT
    parts = [struct.pack("<H", head)]
    if coded.verbatim.size:
        parts += [struct.pack("<H", coded.verbatim.size), units_of(coded.verbatim.astype(np.uint16))]
        parts.append(units_of(verbatim_bits))
    if n_extra:
        parts += [struct.pack("<H", n_extra), v1.pack_bits(extra, widths)[: UNIT * n_extra]]
    states, words = rans_encode(coded.phases, model, 1 << log2_lanes)
    parts += [struct.pack(f"<{len(states)}I", *states), struct.pack(f"<{len(words)}H", *words)]
    return b"".join(parts)


def rans_encode(phases: list[CodedPhase], model: Model, lanes: int) -> tuple[list[int], list[int]]:
    starts = model.starts()
    steps: list[tuple[int, int, int]] = []  # lane, start, frequency
    for phase in phases:
        g = model.significant[phase.group_context]
        flag_start = np.where(phase.significant, SCALE - g, 0)
        flag_f = np.where(phase.significant, g, SCALE - g)
        table = model.table_of[phase.context]
        value_start, value_f = starts[table, phase.symbol], model.frequencies[table, phase.symbol]
        for begin, width in ((flag_start, flag_f), (value_start, value_f)):
            steps += zip((np.arange(width.size) % lanes).tolist(), begin.tolist(), width.tolist(), strict=True)

    states = [LOWEST_STATE] * lanes
    words = []
    for lane, start, f in reversed(steps):
        x = states[lane]
        if x >= f << 20:
            words.append(x & 0xFFFF)
            x >>= 16
        states[lane] = (x // f << SCALE_BITS) + x % f + start
    return states, words[::-1]


# ---------------------------------------------------------------------------------------------------------------------
# Sections 1 and 8: whole archives, encoding


def checksum(top: bytes, payloads: Sequence[bytes]) -> int:
    """Section 9. `top` with its length and filling."""

    def part(t: int, data: bytes) -> int:
        word_sum = v1.weigh(v1.words_of(data))
        return v1.mix(word_sum ^ v1.mix((t * v1.GOLDEN64 + len(data) // UNIT) & v1.MASK64))

    parts = [*payloads, top]
    return v1.fold(sum(part(t, data) for t, data in enumerate(parts)) & v1.MASK64)


def field_of(plan: Plan, bits: Array, i: int) -> Array:
    """The points of lattice i, or of the top, in the field's order."""
    for lattice in plan.lattices[:i]:
        bits = bits[points_of_class(0, lattice.active_in_field)]
    return np.ascontiguousarray(bits)


def code_tiles(plan: Plan, bits: Array, top: Level, model: Model | None) -> list[CodedTile]:
    tiles = []
    level = top
    for lattice in reversed(plan.lattices):
        work = LatticeInWork(plan, lattice, level)
        of_lattice = lattice.from_field_order(field_of(plan, bits, lattice.index))
        for tile in work.tiles():
            tiles.append(code_tile(tile, np.ascontiguousarray(of_lattice[slices(tile.ranges)]), model))
            tile.store()
        level = work.finished()
    return tiles


def count_symbols(plan: Plan, tiles: list[CodedTile]) -> Counts:
    """Of tiles that were coded without a model."""
    counts = Counts()
    n_coarse = len(tiles) - plan.lattices[0].tile_count()
    k = v1.log2_rate(len(tiles) - n_coarse)
    for number, tile in enumerate(tiles):
        if number < n_coarse or v1.in_sample(number - n_coarse, k):
            for phase in tile.phases:
                counts.add(phase, 1 if number < n_coarse else 1 << k)
    return counts


def default_axes(shape: Sequence[int]) -> int:
    """The first three axes that may be halved."""
    mask = halvable(shape)
    return mask & 7 if mask == 15 else mask


def encode(
    x: Array,
    eb: float,
    mode: str = "abs",
    fill: float | None = None,
    *,
    axes: int | None = None,
    cubic: bool = True,
    alpha: int = 0,
    beta: int = 0,
    model: Model | None = None,
    even_if_longer: bool = False,
) -> bytes:
    """The archive of a field, without zstd stage. `axes`: the mask of the axes to be halved, of which those with fewer
    than 5 values are ignored; `alpha`, `beta`: ids; `even_if_longer`: than a raw archive, for tests."""
    x = np.ascontiguousarray(x)
    ty = v1.type_of(x.dtype)
    axes = default_axes(x.shape) if axes is None else axes & halvable(x.shape)
    if alpha not in range(len(ALPHA)) or beta not in range(len(BETA)) or axes.bit_count() > 3:
        raise ValueError("axes, alpha or beta")
    if not axes or not 1 <= x.ndim <= 4 or not 0 < eb < float("inf") or mode not in ("abs", "rel"):
        return v1.encode(x, eb, mode, fill=fill)  # which refuses what is not allowed
    raw = v1.encode_raw(x, ty)
    pattern = v1.special_pattern(fill, ty)
    bits = x.view(ty.bits)
    eb_abs = v1.absolute_bound(x, bits == pattern, eb, mode)
    e_0 = v1.largest_bound(eb_abs, ty)
    if x.size == 0 or e_0 < np.finfo(ty.value).tiny:
        return raw

    extents = extents_of(x.shape)
    bits = bits.reshape(extents)
    lattices, top_extents = pyramid(extents, axes)
    plan = Plan(ty, pattern, fill is not None, lattices, top_extents, float(e_0), cubic, alpha, beta)
    with np.errstate(all="ignore"):
        top_field = field_of(plan, bits, len(lattices)).view(ty.value)
        top_archive = v1.encode(top_field, plan.top_bound, fill=fill)
        top = top_level(v1.decode(top_archive), pattern, ty)
        if model is None:
            model = choose_model(count_symbols(plan, code_tiles(plan, bits, top, None)))
        tiles = code_tiles(plan, bits, top, model)

    payloads = [tile.payload for tile in tiles]
    index = np.array([len(payload) // UNIT for payload in payloads], np.uint16)
    stored_top = to_whole(struct.pack("<Q", len(top_archive)) + top_archive, 4)
    body = stored_top + to_whole(units_of(index), 4) + to_whole(b"".join(payloads), 4)
    section = model_section(model)
    n_special = sum(tile.n_special for tile in tiles)
    n_unpredictable = sum(tile.n_unpredictable for tile in tiles)
    coding_header = struct.pack(
        "<8B3d6Q",
        *(SPLINE, RANS, 0, mode == "rel", REVISION, plan.fill, axes, cubic | alpha << 1 | beta << 4),
        *(eb, eb_abs, 2 * plan.e_0, pattern),
        *(len(body), len(body), n_special, len(section), n_unpredictable),
    )
    following = coding_header + section
    archive = header(ty, x.shape, checksum(stored_top, payloads), following) + body
    return archive if even_if_longer or len(archive) < len(raw) else v1.encode(x, eb, mode, fill=fill)


def header(ty: Type, shape: Sequence[int], payload_checksum: int, following: bytes) -> bytes:
    """Header and the sections its checksum covers as well."""
    extents = [*shape, 0, 0, 0, 0][:4]
    first = struct.pack("<4s4B4QII", v1.MAGIC, VERSION, KIND_TILED, ty.id, len(shape), *extents, payload_checksum, 0)
    first += following
    return first[:44] + struct.pack("<I", v1.checksum_of_header(first)) + first[48:]


# ---------------------------------------------------------------------------------------------------------------------
# Section 8: tiles, decoding


class UnitReader:
    """Takes parts from the front of a payload."""

    def __init__(self, payload: bytes) -> None:
        self.rest = payload

    def take(self, n_bytes: int) -> bytes:
        require(n_bytes <= len(self.rest), "a payload ends too early")
        taken, self.rest = self.rest[:n_bytes], self.rest[n_bytes:]
        return taken

    def unit(self) -> int:
        return int.from_bytes(self.take(UNIT), "little")

    def array(self, dtype: type[np.generic], n: int) -> Array:
        little_endian = np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(self.take(n * little_endian.itemsize), little_endian, n).astype(dtype)


class RansDecoder:
    def __init__(self, states: list[int], words: list[int], model: Model) -> None:
        self.states, self.words, self.model = states, words, model
        self.next_word = 0
        require(all(x >= LOWEST_STATE for x in states), "a state below the least")
        symbols = np.arange(ALPHABET.size)
        self.starts, self.frequencies = model.starts().tolist(), model.frequencies.tolist()
        self.symbol_at = [np.repeat(symbols, frequencies).tolist() for frequencies in model.frequencies]

    def advance(self, lane: int, start: int, f: int) -> None:
        x = self.states[lane]
        x = f * (x >> SCALE_BITS) + x % SCALE - start
        if x < LOWEST_STATE:
            require(self.next_word < len(self.words), "a payload without enough words")
            x = x << 16 | self.words[self.next_word]
            self.next_word += 1
        self.states[lane] = x

    def flags(self, contexts: Array) -> Array:
        flags = []
        for j, g in enumerate(self.model.significant[contexts].tolist()):
            lane = j % len(self.states)
            flags.append(self.states[lane] % SCALE >= SCALE - g)
            self.advance(lane, SCALE - g if flags[-1] else 0, g if flags[-1] else SCALE - g)
        return np.array(flags, np.bool_)

    def symbols(self, contexts: Array) -> Array:
        symbols = []
        for j, table in enumerate(self.model.table_of[contexts].tolist()):
            lane = j % len(self.states)
            symbol = self.symbol_at[table][self.states[lane] % SCALE]
            symbols.append(symbol)
            self.advance(lane, self.starts[table][symbol], self.frequencies[table][symbol])
        return np.array(symbols, np.int64)

    def finish(self) -> None:
        require(all(x == LOWEST_STATE for x in self.states), "a state that does not end where it should")
        require(self.next_word == len(self.words), "words that are not used")


def decode_tile(tile: TileInWork, payload: bytes, model: Model) -> None:
    ty = tile.ty
    positions = tile.coded_positions()
    stored_bits = np.zeros(volume(tile.shape), ty.bits)
    if not payload:
        tile.finish_without_codes(False, False, stored_bits)
        return
    reader = UnitReader(payload)
    head = reader.unit()
    kind = head & 3
    require(kind <= TILE_RAW, "unknown tile kind")
    if kind != TILE_CODED:
        require(head == kind, "bits beside the tile kind")
        if kind == TILE_RAW:
            stored_bits[positions] = reader.array(ty.bits, positions.size)
        require(not reader.rest, "a payload that is too long")
        tile.finish_without_codes(kind == TILE_SPECIAL, kind == TILE_RAW, stored_bits)
        return

    log2_lanes = head >> 2 & 3
    require(head >> 6 == 0 and log2_lanes <= 2, "illegal tile header")
    is_verbatim: Array = np.zeros(stored_bits.size, np.bool_)
    if head >> VERBATIM_BIT & 1:
        n = reader.unit()
        require(n > 0, "no verbatim values, but the bit for them")
        verbatim = reader.array(np.uint16, n).astype(np.int64)
        require((np.diff(verbatim) > 0).all() and np.isin(verbatim, positions).all(), "positions of verbatim values")
        is_verbatim[verbatim] = True
        stored_bits[verbatim] = reader.array(ty.bits, n)
    extra = b""
    if head >> EXTRA_BIT & 1:
        extra = reader.take(UNIT * reader.unit())
        require(extra, "no extra bits, but the bit for them")
    extra_bits = BitReader(extra, "extra bits")
    states = reader.array(np.uint32, 1 << log2_lanes).tolist()
    require(len(reader.rest) % UNIT == 0, "half a unit")
    decoder = RansDecoder(states, reader.array(np.uint16, len(reader.rest) // UNIT).tolist(), model)

    for number in range(1, len(tile.phases) + 1):
        phase = tile.begin_phase(number)
        significant = decoder.flags(phase.group_context)
        code = np.zeros(phase.position.size, np.int64)
        special: Array = np.zeros(code.size, np.bool_)
        if code.size:
            coded = np.flatnonzero(significant[phase.group])
            symbols = decoder.symbols(phase.context[coded])
            special[coded] = symbols == ALPHABET.missing
            meanings = [ALPHABET.meaning(symbol) for symbol in symbols.tolist()]
            code[coded] = [base + extra_bits.take(width) for base, width in meanings]
            code[special] = 0
        verbatim = is_verbatim[phase.position]
        require(not (verbatim & ((code != 0) | special)).any(), "a verbatim value with a code")
        tile.end_phase(phase, code, special, verbatim, stored_bits[phase.position])
    extra_bits.finish(8 * UNIT)
    decoder.finish()


# ---------------------------------------------------------------------------------------------------------------------
# Sections 1, 2 and 8: whole archives, decoding


@dataclass(frozen=True)
class PyramidArchive:
    """An archive of version 2 taken apart."""

    plan: Plan
    shape: list[int]
    model: Model
    top: bytes  # the archive
    payloads: list[bytes]


def check_checksums(archive: bytes, body_at: int, payload_checksum: int) -> None:
    stored_payload, stored_header = struct.unpack("<II", archive[40:48])
    require(stored_header == v1.checksum_of_header(archive[:body_at]), "header checksum")
    require(stored_payload == payload_checksum, "payload checksum")


def read_header(archive: bytes) -> tuple[Type, list[int]]:
    require(len(archive) >= HEADER_BYTES + CODING_HEADER_BYTES, "too short")
    magic, version, kind, dtype, ndim, *extents = struct.unpack("<4s4B4Q", archive[:40])
    require(magic == v1.MAGIC and version == VERSION, "no archive of version 2")
    require(kind == KIND_TILED and dtype in (v1.F32.id, v1.F64.id) and 1 <= ndim <= 4, "illegal header")
    ty = v1.F32 if dtype == v1.F32.id else v1.F64
    shape = extents[:ndim]
    require(not any(extents[ndim:]), "extents beyond ndim")
    require(0 < volume(shape) <= 2**60 - 48, "a field too large, or empty")
    return ty, shape


def read_plan(archive: bytes, ty: Type, shape: list[int]) -> Plan:
    family, coder, lossless, mode, revision, special, axes, interpolation = archive[48:56]
    eb, eb_abs, step, pattern = struct.unpack("<3dQ", archive[56:88])
    require(revision == REVISION, f"revision {revision}, not {REVISION}")
    require(family == SPLINE and coder == RANS and lossless <= 1 and mode <= 1 and special <= 1, "unknown id")
    require(1 <= axes.bit_count() <= 3 and axes & ~halvable(shape) == 0, "illegal axes")
    alpha, beta = interpolation >> 1 & 7, interpolation >> 4 & 3
    require(interpolation < 64 and alpha < len(ALPHA), "illegal interpolation")
    require(0 < eb < float("inf") and 0 < eb_abs < float("inf"), "illegal bound")
    smallest = float(np.finfo(ty.value).tiny)
    require(2 * smallest <= step <= 2 * ty.e_limit and step == float(ty.value(step)), "illegal step")
    require(pattern < 1 << (32 * ty.words), "illegal special pattern")
    require(special or pattern == ty.canonical_nan, "illegal special pattern")
    lattices, top = pyramid(extents_of(shape), axes)
    return Plan(ty, pattern, bool(special), lattices, top, step / 2, bool(interpolation & 1), alpha, beta)


def read_archive(archive: bytes) -> PyramidArchive:
    ty, shape = read_header(archive)
    plan = read_plan(archive, ty, shape)
    body_bytes, stored_bytes, _, model_bytes, _ = struct.unpack("<5Q", archive[88:128])
    require(body_bytes % 4 == 0 and model_bytes % 4 == 0 and model_bytes <= MAX_MODEL_BYTES, "illegal length")
    model_at = HEADER_BYTES + CODING_HEADER_BYTES
    body_at = model_at + model_bytes
    require(len(archive) == body_at + stored_bytes, "an archive of another length")
    if archive[50]:
        check_checksums(archive, body_at, v1.checksum_of_bytes(archive[body_at:]))
        raise RuntimeError("the zstd stage: this reference does not undo it")
    require(body_bytes == stored_bytes, "a body of another length")
    model = read_model(archive[model_at:body_at])

    body = archive[body_at:]
    require(len(body) >= TOP_LENGTH_BYTES, "a body without a top")
    (top_bytes,) = struct.unpack("<Q", body[:TOP_LENGTH_BYTES])
    top_end = TOP_LENGTH_BYTES + top_bytes
    require(top_end + -top_end % 4 <= len(body), "a top of another length")
    stored_top, rest = body[: top_end + -top_end % 4], body[top_end + -top_end % 4 :]
    top = stored_top[TOP_LENGTH_BYTES:top_end]
    require(not any(stored_top[top_end:]), "padding is not 0")
    n_tiles = plan.tile_count()
    index_bytes = 4 * -(-n_tiles // 2)
    require(len(rest) >= index_bytes, "a body without a tile index")
    index = np.frombuffer(rest[:index_bytes], "<u2").tolist()
    require(not any(index[n_tiles:]), "padding is not 0")
    rest = rest[index_bytes:]
    require(len(rest) == 4 * -(-sum(index) // 2), "illegal tile index")
    require(not any(rest[UNIT * sum(index) :]), "padding is not 0")
    ends = np.cumsum([0, *index[:n_tiles]]).tolist()
    payloads = [rest[UNIT * begin : UNIT * end] for begin, end in itertools.pairwise(ends)]
    check_checksums(archive, body_at, checksum(stored_top, payloads))
    return PyramidArchive(plan, shape, model, top, payloads)


def decode_top(plan: Plan, top: bytes) -> Array:
    kind, ty, shape = v1.read_header(top)
    require(ty == plan.ty and shape == list(plan.top), "a top of another field")
    if kind == v1.KIND_TILED:
        e = plan.top_bound
        wanted = struct.pack("<6BH3dQ", 0, 0, 0, 0, 5, plan.fill, 0, e, e, 2 * e, plan.pattern)
        require(top[48:88] == wanted, "a top with other parameters")
    return v1.decode(top)


def decode(archive: bytes) -> Array:
    """The field of an archive of version 1 or 2, checked against the document's legal values on the way."""
    if archive[4:5] == bytes([v1.VERSION]) or len(archive) < HEADER_BYTES:
        return v1.decode(archive)
    parsed = read_archive(archive)
    plan = parsed.plan
    payloads = iter(parsed.payloads)
    with np.errstate(all="ignore"):
        level = top_level(decode_top(plan, parsed.top), plan.pattern, plan.ty)
        for lattice in reversed(plan.lattices):
            work = LatticeInWork(plan, lattice, level)
            for tile in work.tiles():
                decode_tile(tile, next(payloads), parsed.model)
                tile.store()
            level = work.finished()
    return level.bits.view(plan.ty.value).reshape(parsed.shape)
