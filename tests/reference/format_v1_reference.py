"""Version 1 of the archive format as a program: written from format.md alone, simple and slow.

It is an independent second implementation. If it and the library give different bytes for the same field, one of the
two or the document is wrong. Section numbers are those of the document. There is no zstd stage here.
"""

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Box = tuple[int, int, int, int]  # (E3, E2, E1, E0): a shape or a position, axis 0 last; so axis a is array axis 3 - a

MASK32 = 2**32 - 1
MASK64 = 2**64 - 1
GOLDEN64 = 0x9E3779B97F4A7C15
GOLDEN32 = 0x9E3779B1

MAGIC = b"cuSZ"
VERSION = 1
KIND_RAW, KIND_TILED = 0, 1
HEADER_BYTES, CODING_HEADER_BYTES = 48, 80
TILE_VALUES = 4096
TILE_CODED, TILE_SPECIAL, TILE_RAW = 0, 1, 2


class FormatError(ValueError):
    """The bytes are not an archive that the document allows."""


def require(condition: object, message: str) -> None:
    if not condition:
        raise FormatError(message)


@dataclass(frozen=True)
class Type:
    """What the document specifies separately for f32 and f64."""

    id: int
    value: type[np.floating[Any]]  # T
    integer: type[np.signedinteger[Any]]  # I; arrays of it wrap modulo 2^width
    bits: type[np.unsignedinteger[Any]]
    words: int  # 32-bit words of one value
    q_limit: int  # largest magnitude of a quantised value
    e_limit: float  # largest e
    canonical_nan: int


F32 = Type(1, np.float32, np.int32, np.uint32, 1, 2**22, 2.0**124, 0x7FC00000)
F64 = Type(2, np.float64, np.int64, np.uint64, 2, 2**51, 2.0**1020, 0x7FF8000000000000)


def type_of(dtype: "np.dtype[Any]") -> Type:
    for candidate in (F32, F64):
        if dtype == candidate.value:
            return candidate
    raise TypeError(f"no archive type for {dtype}")


# ---------------------------------------------------------------------------------------------------------------------
# Bytes, words, bits: little-endian, lowest bit first


def padded(data: bytes) -> bytes:
    """Padded with zeros to a whole word."""
    return data + bytes(-len(data) % 4)


def words_of(data: bytes) -> Array:
    return np.frombuffer(padded(data), "<u4")


def little(array: Array) -> bytes:
    return padded(array.astype(array.dtype.newbyteorder("<")).tobytes())


def pack_bits(values: Array, widths: Array) -> bytes:
    """Concatenates bit strings without padding between them, each from its lowest bit up."""
    which = np.repeat(np.arange(values.size), widths)
    bit = np.arange(which.size) - (np.cumsum(widths) - widths)[which]
    bits = (values.astype(np.uint64)[which] >> bit.astype(np.uint64)) & np.uint64(1)
    return padded(np.packbits(bits.astype(np.uint8), bitorder="little").tobytes())


def wrap(value: int, ty: Type) -> int:
    """The signed I that is `value` modulo 2^32 or 2^64."""
    half = 1 << (32 * ty.words - 1)
    return (value + half) % (2 * half) - half


# ---------------------------------------------------------------------------------------------------------------------
# Section 9: checksums


def weigh(words: Array) -> int:
    c = (GOLDEN32 * (2 * np.arange(words.size, dtype=np.uint64) + 1)) & MASK32
    return int((words.astype(np.uint64) * c).sum(dtype=np.uint64))


def mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK64
    return x ^ x >> 31


def part(t: int, words: Array) -> int:
    return mix(weigh(words) ^ mix((t * GOLDEN64 + words.size) & MASK64))


def fold(x: int) -> int:
    return (x ^ x >> 32) & MASK32


def checksum_of_parts(parts: Sequence[bytes]) -> int:
    return fold(sum(part(t, words_of(data)) for t, data in enumerate(parts)) & MASK64)


def checksum_of_bytes(data: bytes) -> int:
    step = 4 * 4096
    return checksum_of_parts([data[i : i + step] for i in range(0, len(data), step)])


def checksum_of_header(sections: bytes) -> int:
    return fold(part(0, words_of(sections[:44] + bytes(4) + sections[48:])))


# ---------------------------------------------------------------------------------------------------------------------
# Section 3: tiles and their groups


@dataclass(frozen=True)
class Tiling:
    dimensions: int  # k, the extents larger than 1
    extents: Box
    tile: Box
    group: Box
    subgroup: Box

    def boxes(self) -> Iterator[tuple[slice, ...]]:
        """The tiles in raster order."""
        axes = [
            [slice(begin, min(begin + edge, extent)) for begin in range(0, extent, edge)]
            for extent, edge in zip(self.extents, self.tile, strict=True)
        ]
        return itertools.product(*axes)

    def groups(self, shape: Box) -> Array:
        """The group of every value of a tile, in tile order."""
        return boxes_numbered(shape, self.group)

    def subgroups(self, shape: Box) -> Array:
        return boxes_numbered(shape, self.subgroup)


def boxes_numbered(shape: Box, box: Box) -> Array:
    """For every value of a tile, in tile order, the number of its box; boxes are numbered in raster order."""
    numbers: Array = np.zeros(shape, np.int64)
    for axis in range(4):
        along = np.arange(shape[axis]) // box[axis]
        numbers = numbers * (along[-1] + 1) + along.reshape([-1 if a == axis else 1 for a in range(4)])
    return numbers.ravel()


def count_of(numbers: Array) -> int:
    return int(numbers.max()) + 1


def volume(box: Sequence[int]) -> int:
    product = 1
    for edge in box:
        product *= edge
    return product


def tiling_of(shape: Sequence[int]) -> Tiling:
    kept = [extent for extent in shape if extent != 1] or [1]
    k = len(kept)
    extents = [1] * (4 - k) + kept

    tile = [
        min(t, e) for t, e in zip({1: (1, 1, 1, 4096), 2: (1, 1, 64, 64)}.get(k, (1, 8, 16, 32)), extents, strict=True)
    ]
    changed = True
    while changed:
        changed = False
        for a in (3, 2, 1, 0):  # the document's axes 0, 1, 2, 3
            larger = tile.copy()
            larger[a] = min(2 * tile[a], extents[a])
            if tile[a] < extents[a] and volume(larger) <= TILE_VALUES:
                tile = larger
                changed = True

    group = [min(g, t) for g, t in zip({1: (1, 1, 1, 64), 2: (1, 1, 8, 8)}.get(k, (1, 4, 4, 4)), tile, strict=True)]
    for a in itertools.cycle((3, 2, 1, 0)):
        if volume([-(-t // g) for t, g in zip(tile, group, strict=True)]) <= 64:
            break
        group[a] = min(2 * group[a], tile[a])
    subgroup = [min(s, g) for s, g in zip({1: (1, 1, 1, 8), 2: (1, 1, 2, 4)}.get(k, (1, 2, 2, 2)), group, strict=True)]

    def box(edges: list[int]) -> Box:
        return edges[0], edges[1], edges[2], edges[3]

    return Tiling(k, box(extents), box(tile), box(group), box(subgroup))


# ---------------------------------------------------------------------------------------------------------------------
# Section 4: bounds and quantisation


def absolute_bound(field: Array, special: Array, eb: float, mode: str) -> float:
    """eb_abs. If it is 0 (no valid values, or all equal), the archive is raw."""
    if mode == "abs":
        return eb
    valid = field[np.isfinite(field) & ~special]
    if valid.size == 0:
        return 0.0
    low, high = np.float64(valid.min()), np.float64(valid.max())
    with np.errstate(over="ignore"):
        bound = np.float64(eb) * (high - low)
        if np.isinf(high - low):
            bound = np.float64(eb) * (high / 2 - low / 2) * 2
    return float(min(bound, np.finfo(np.float64).max))


def largest_bound(eb_abs: float, ty: Type) -> Any:
    """e, a T."""
    eb_abs = min(eb_abs, ty.e_limit)
    e = ty.value(eb_abs)
    return e if float(e) <= eb_abs else np.nextafter(e, ty.value(0))


def rebuilt(q: Array, step: Any, ty: Type) -> Array:
    """T(q) * step: what the decoder computes."""
    with np.errstate(over="ignore"):
        product: Array = q.astype(ty.value) * ty.value(step)
    return product


def quantise(d: Array, special: Array, e: Any, ty: Type) -> tuple[Array, Array, Array]:
    """For every value: q (0 if the value is missing), whether it is missing, and whether q misses the bound."""
    step = ty.value(2) * e
    inv = ty.value(1) / step
    with np.errstate(all="ignore"):
        t = d * inv
        missing = special | ~(np.abs(t) <= ty.q_limit)
        q = np.rint(np.where(missing, ty.value(0), t)).astype(ty.integer)
        first = rebuilt(q, step, ty)
        hit = np.abs(d - first) <= e
        retry = q + np.where(d > first, 1, -1).astype(ty.integer)
        retry_hit = (np.abs(d - rebuilt(retry, step, ty)) <= e) & (np.abs(retry) <= ty.q_limit)
    q = np.where(~missing & ~hit & retry_hit, retry, q)
    return q, missing, ~missing & ~hit & ~retry_hit


def coordinates(shape: Box) -> list[Array]:
    """x0, x1, x2, x3 of every position."""
    return list(np.indices(shape))[::-1]


def strides(shape: Box) -> list[int]:
    """Distance in raster order of neighbours along the axes 0, 1, 2, 3."""
    return [1, shape[3], shape[3] * shape[2], shape[3] * shape[2] * shape[1]]


def distance_to_predecessor(shape: Box, stride: list[int]) -> Array:
    """To the value from which order 1 predicts, along the first axis whose coordinate is not 0; 0 at the first one."""
    x = coordinates(shape)
    return np.select([x[a] > 0 for a in range(4)], stride, 0)


def fill_missing(q: Array, missing: Array, anchor: Any) -> Array:
    flat = q.ravel().copy()
    distance = distance_to_predecessor(q.shape, strides(q.shape)).ravel()
    for p in np.flatnonzero(missing):
        flat[p] = flat[p - distance[p]] if distance[p] else anchor
    return flat.reshape(q.shape)


# ---------------------------------------------------------------------------------------------------------------------
# Section 5: prediction


def difference_order(shape: Box, k: int) -> Array:
    """For every position, the j whose difference A_j is its code."""
    x = coordinates(shape)
    j = np.full(shape, k)
    if k >= 1:
        for order in range(k, 4):
            j[(j == order) & (x[order - 1] == 0)] = order + 1
    return j


def codes_of(u: Array, k: int) -> Array:
    differences = [u]  # A_0 to A_4
    for j in range(1, 5):
        differences.append(np.diff(differences[-1], axis=4 - j, prepend=u.dtype.type(0)))
    chosen: Array = np.choose(difference_order(u.shape, k), differences)
    return chosen


#: The axes along which a predictor takes differences of the codes of 3-D Lorenzo.
SECOND = {4: (0, 1), 5: (0, 1, 2)}
NO_SECOND: tuple[int, ...] = ()


def second_difference(values: Array, a: int) -> Array:
    """D_a"""
    along = np.moveaxis(values, 3 - a, 0)
    result = along.copy()
    result[2:] = along[2:] - along[1:-1]
    return np.moveaxis(result, 0, 3 - a)


def undo_second_difference(values: Array, a: int) -> Array:
    result = np.moveaxis(values, 3 - a, 0).copy()
    for x in range(2, len(result)):
        result[x] += result[x - 1]
    return np.moveaxis(result, 0, 3 - a)


def predicted(u: Array, missing: Array, predictor: int) -> Array:
    """The codes of a predictor (0 at missing values)."""
    code = np.where(missing, u.dtype.type(0), codes_of(u, min(predictor, 3)))
    for a in SECOND.get(predictor, NO_SECOND):
        code = second_difference(code, a)
    return code


def choose_predictor(u: Array, missing: Array, dimensions: int) -> int:
    rows = u.size // u.shape[3]
    judged = slice(2, None, 4) if rows >= 8 else slice(None)

    def judged_magnitudes(predictor: int) -> Array:
        return magnitude_of(predicted(u, missing, predictor)).reshape(rows, -1)[judged]

    costs = [int(np.minimum(judged_magnitudes(k), 512).sum()) for k in range(min(dimensions, 3) + 1)]
    best = costs.index(min(costs))
    if best < 3 or missing.any():
        return best
    costs = [sum(min(m, 2**22).bit_length() for m in judged_magnitudes(k).ravel().tolist()) for k in (3, 4, 5)]
    return 3 + costs.index(min(costs))


def magnitude_of(code: Array) -> Array:
    return np.abs(code.astype(np.int64)).astype(np.uint64)


def undo_prediction(code: Array, missing: Array, predictor: int, ty: Type) -> Array:
    """u from its codes, one position at a time: A_j(p) is the sum of (-1)^|s| u(p - s) over the corners s of a
    j-dimensional unit cube, in which only u(p) itself is unknown."""
    k = min(predictor, 3)
    for a in SECOND.get(predictor, NO_SECOND):
        code = undo_second_difference(code, a)
    shape: Box = code.shape
    padded_shape: Box = (shape[0] + 1, shape[1] + 1, shape[2] + 1, shape[3] + 1)
    stride = strides(padded_shape)
    terms: list[list[tuple[int, int]]] = []  # for every j, the corners except s = 0: (distance, sign)
    for j in range(5):
        corners = itertools.product((0, 1), repeat=j)
        terms.append([(sum(s * d for s, d in zip(c, stride, strict=False)), (-1) ** sum(c)) for c in corners if any(c)])

    at = np.ravel_multi_index(tuple(x + 1 for x in np.indices(shape)), padded_shape).ravel().tolist()
    orders = difference_order(shape, k).ravel().tolist()
    back = distance_to_predecessor(shape, stride).ravel().tolist()
    u = [0] * volume(padded_shape)  # the padding layer stays 0
    for p, value, j, is_missing, b in zip(
        at, code.ravel().tolist(), orders, missing.ravel().tolist(), back, strict=True
    ):
        if is_missing:
            u[p] = u[p - b] if b else 0
        else:
            for distance, sign in terms[j]:
                value -= sign * u[p - distance]
            u[p] = wrap(value, ty)
    return np.array([u[p] for p in at], ty.integer).reshape(shape)


# ---------------------------------------------------------------------------------------------------------------------
# Section 6: symbols

MISSING = -(2**21)  # stands for a missing value in decoded codes


@dataclass(frozen=True)
class Alphabet:
    r: int

    @property
    def R(self) -> int:
        return 1 << self.r

    @property
    def limit(self) -> int:
        return 12 if self.r == 5 else 15

    @property
    def o_max(self) -> int:
        return 20 if self.limit == 12 else 19

    @property
    def size(self) -> int:
        return self.octave(self.o_max + 1) + 3

    def octave(self, o: int) -> int:
        """The first symbol for magnitudes of at least 2^o."""
        return 2 * self.R + 8 * (o - self.r)

    @property
    def escapes(self) -> tuple[int, int]:
        """The escapes of codes >= 0 and of negative codes."""
        return self.size - 3, self.size - 2

    @property
    def missing(self) -> int:
        return self.size - 1

    @property
    def section_bytes(self) -> int:
        return len(padded(bytes(-(-self.size // 2))))

    @property
    def full_reach(self) -> int:
        return 1 << (self.o_max + 1)

    def reach(self, lengths: Array) -> int:
        """The reach with these code lengths."""
        if self.r == 5 and not lengths[self.octave(20) : self.octave(21)].all():
            return 1 << 20
        return self.full_reach

    def symbol(self, code: Array, missing: Array) -> Array:
        """Symbol of every code below the full reach, before escapes are considered."""
        code = code.astype(np.int64)
        key = np.where(code < 0, ~code, code)
        o = np.maximum(np.frexp(key.astype(np.float64))[1].astype(np.int64) - 1, self.r)
        m = (key >> (o - 2)) - 4
        symbol = np.where(key < self.R, code + self.R, self.octave(self.r) + 8 * (o - self.r) + 2 * m + (code < 0))
        return np.where(missing, self.missing, symbol)

    def meaning(self, symbol: int) -> tuple[int, int]:
        """Base and number of extra bits of a symbol: the code is base + extra bits (MISSING for a missing value)."""
        if symbol < 2 * self.R:
            return symbol - self.R, 0
        if symbol == self.missing:
            return MISSING, 0
        if symbol in self.escapes:
            bits = 32 - self.limit
            return (0 if symbol == self.escapes[0] else -(1 << bits)), bits
        bucket = symbol - 2 * self.R
        o, m, negative = self.r + bucket // 8, bucket % 8 // 2, bucket % 2
        return (-((5 + m) << (o - 2)) if negative else (4 + m) << (o - 2)), o - 2


def substream_count(n: int) -> int:
    return min(32, -(-n // 64))


# ---------------------------------------------------------------------------------------------------------------------
# Section 7: codebook


def log2_rate(n_tiles: int) -> int:
    return max(k for k in range(5) if k == 0 or n_tiles // 2**k >= 64)


def in_sample(t: int, k: int) -> bool:
    return k == 0 or ((t >> 1) * GOLDEN64 & MASK64) >> (64 - k) == 0


def code_lengths(weights: list[int], limit: int) -> Array:
    """Package-merge."""
    lengths = np.zeros(len(weights), np.int64)
    leaves = sorted((weight, symbol) for symbol, weight in enumerate(weights) if weight > 0)
    n = len(leaves)
    if n <= 1:
        lengths[[symbol for _, symbol in leaves]] = 1
        return lengths

    items = [(weight, False) for weight, _ in leaves]  # (weight, is a sum); a leaf sorts before a sum of its weight
    lists = [items]
    while len(lists) < limit:
        below = lists[-1]
        sums = [(below[i][0] + below[i + 1][0], True) for i in range(0, len(below) - 1, 2)]
        lists.append(sorted(items + sums))

    take = 2 * n - 2
    for level in reversed(lists):
        sums_taken = sum(is_sum for _, is_sum in level[:take])
        for _, symbol in leaves[: take - sums_taken]:
            lengths[symbol] += 1
        take = 2 * sums_taken
    return lengths


def canonical_codes(lengths: Array) -> Array:
    """The codes as they are stored, with their first bit lowest."""
    codes = np.zeros(lengths.size, np.uint64)
    code, previous = 0, 0
    for length, symbol in sorted((int(length), symbol) for symbol, length in enumerate(lengths) if length):
        code = (code + 1) << (length - previous) if previous else 0
        codes[symbol] = int(f"{code:0{length}b}"[::-1], 2)
        previous = length
    return codes


def codebook_section(lengths: Array) -> bytes:
    return pack_bits(lengths, np.full(lengths.size, 4))


def read_codebook(section: bytes, alphabet: Alphabet) -> Array:
    raw = np.frombuffer(section, np.uint8)
    nibbles = np.stack([raw & 15, raw >> 4], axis=1).ravel().astype(np.int64)
    lengths = nibbles[: alphabet.size]
    require(not nibbles[alphabet.size :].any(), "codebook padding is not 0")
    require(lengths.max() <= alphabet.limit, "a code longer than the limit")
    kraft = sum(1 << (alphabet.limit - int(length)) for length in lengths if length)
    alone = np.count_nonzero(lengths) == 1 and lengths.max() == 1
    require(kraft in (0, 1 << alphabet.limit) or alone, "code lengths do not fit together")
    return lengths


class Entry(NamedTuple):
    """How a bit string starts: with a code of `length` bits, then with extra bits that are added to the base."""

    length: int  # 0: no code
    base: int
    extra_bits: int


def decoding_table(lengths: Array, alphabet: Alphabet) -> list[Entry]:
    """An entry for every string of `limit` bits."""
    table = [Entry(0, 0, 0)] * (1 << alphabet.limit)
    codes = canonical_codes(lengths)
    symbols = np.flatnonzero(lengths).tolist()
    for symbol in symbols:
        length = int(lengths[symbol])
        entry = Entry(length, *alphabet.meaning(symbol))
        for string in range(int(codes[symbol]), len(table), 1 << length if len(symbols) > 1 else 1):
            table[string] = entry
    return table


# ---------------------------------------------------------------------------------------------------------------------
# Section 8: tiles, encoding


@dataclass(frozen=True)
class ModelledTile:
    """A tile after prediction: everything but the symbols. Arrays are in tile order."""

    bits: Array  # of the values
    special: Array
    predictor: int
    anchor: Any
    missing: Array
    code: Array  # 0 at missing values
    mask: Array | None  # 1 for every significant group
    fine_mask: Array | None  # for the subgroups of significant groups: 1 if significant
    coded: Array
    value_positions: Array

    @property
    def all_special(self) -> bool:
        return bool(self.special.all())

    def outliers(self, reach: int) -> Array:
        """Positions of the out-of-range codes."""
        return np.flatnonzero(magnitude_of(self.code) >= reach)

    def codes_to_encode(self, reach: int) -> tuple[Array, Array]:
        """For the coded values, in tile order: their codes (0 for outliers), and whether they are missing."""
        code = self.code.copy()
        code[self.outliers(reach)] = 0
        return code[self.coded], self.missing[self.coded]


@dataclass(frozen=True)
class Masks:
    mask: Array | None
    fine_mask: Array | None
    coded: Array


def masks_of(nonzero: Array, shape: Box, tiling: Tiling) -> Masks:
    """Section 6, significance masks. `nonzero`: for every value, whether it is missing or its code is not 0."""
    group, subgroup = tiling.groups(shape), tiling.subgroups(shape)
    n_groups = count_of(group)
    significant_groups = np.bincount(group, weights=nonzero) > 0
    significant_subgroup = np.bincount(subgroup, weights=nonzero) > 0
    zero = n_groups - int(significant_groups.sum())
    if zero == n_groups:
        return Masks(None, None, np.zeros(nonzero.size, np.bool_))

    group_of_subgroup = np.zeros(significant_subgroup.size, np.int64)
    group_of_subgroup[subgroup] = group
    stored = significant_groups[group_of_subgroup]
    paired = nonzero[: nonzero.size // 2 * 2].reshape(-1, 2)
    in_groups, in_subgroups = (
        int(significant_groups[group].sum()),
        int(significant_subgroup[subgroup].sum()),
    )
    fine = in_subgroups + n_groups + int(stored.sum())
    coarse = in_groups + n_groups if zero >= 2 else nonzero.size
    if 2 * int((~paired.any(axis=1)).sum()) > significant_subgroup.size and fine < coarse:
        return Masks(significant_groups, significant_subgroup[stored], significant_subgroup[subgroup])
    if zero >= 2:
        return Masks(significant_groups, None, significant_groups[group])
    return Masks(None, None, np.ones(nonzero.size, np.bool_))


def model_tile(bits: Array, pattern: int, e: Any, tiling: Tiling, ty: Type) -> ModelledTile:
    shape: Box = bits.shape
    special = bits == pattern
    q, missing, miss = quantise(bits.view(ty.value), special, e, ty)

    anchor = q[~missing][0] if not missing.all() else ty.integer(0)
    u = fill_missing(q, missing, anchor) - anchor
    predictor = choose_predictor(u, missing, tiling.dimensions)
    code = predicted(u, missing, predictor).ravel()
    masks = masks_of((code != 0) | missing.ravel(), shape, tiling)
    return ModelledTile(
        bits=bits.ravel(),
        special=special.ravel(),
        predictor=predictor,
        anchor=anchor,
        missing=missing.ravel(),
        code=code,
        mask=masks.mask,
        fine_mask=masks.fine_mask,
        coded=masks.coded,
        value_positions=np.flatnonzero((miss | missing) & ~special),
    )


def raw_payload(bits: Array) -> bytes:
    return struct.pack("<I", TILE_RAW) + little(bits)


def coded_payload(tile: ModelledTile, alphabet: Alphabet, lengths: Array, codes: Array) -> bytes:
    reach = alphabet.reach(lengths)
    outliers = tile.outliers(reach)
    has_outliers = outliers.size > 0 or tile.value_positions.size > 0

    code, missing = tile.codes_to_encode(reach)
    own = alphabet.symbol(code, missing)
    escape = np.where(code < 0, *reversed(alphabet.escapes))
    symbol = np.where(missing | (lengths[own] > 0), own, escape)
    meanings = [alphabet.meaning(s) for s in symbol.tolist()]
    extra_bits = np.array([bits for _, bits in meanings], np.int64)
    raw = np.where(missing, 0, code.astype(np.int64) - np.array([base for base, _ in meanings], np.int64))
    n = symbol.size
    count = substream_count(n)

    # section 6: substreams
    order = np.argsort(np.arange(n) % max(count, 1), kind="stable")
    code_bits = lengths[symbol]
    assert code_bits.all(), "a symbol without a code"
    widths = code_bits + extra_bits
    strings = codes[symbol] | raw.astype(np.uint64) << code_bits.astype(np.uint64)
    stream_bits = np.bincount(np.arange(n) % max(count, 1), weights=widths, minlength=count).astype(np.int64)
    base = int(stream_bits.min()) if count else 0
    w = int(stream_bits.max() - base).bit_length() if count else 0

    head = TILE_CODED | tile.predictor << 2 | w << 10 | base << 16
    head |= (tile.mask is not None) << 6 | bool(tile.missing.any()) << 7 | has_outliers << 8 | (n == 0) << 9
    head |= (tile.fine_mask is not None) << 14
    parts = [struct.pack("<I", head), little(np.array([tile.anchor]))]
    if has_outliers:
        parts.append(struct.pack("<HH", outliers.size, tile.value_positions.size))
    if tile.mask is not None:
        parts.append(pack_bits(tile.mask, np.ones(tile.mask.size, np.int64)))
    if tile.fine_mask is not None:
        parts.append(pack_bits(tile.fine_mask, np.ones(tile.fine_mask.size, np.int64)))
    parts.append(pack_bits(stream_bits - base, np.full(stream_bits.size, w)))
    parts.append(pack_bits(strings[order], widths[order]))
    if has_outliers:
        parts.append(little(outliers.astype(np.uint16)))
        parts.append(little(tile.code[outliers]))
        parts.append(little(tile.value_positions.astype(np.uint16)))
        parts.append(little(tile.bits[tile.value_positions]))
    return b"".join(parts)


# ---------------------------------------------------------------------------------------------------------------------
# Sections 1, 2 and 8: whole archives, encoding


def header(kind: int, ty: Type, shape: Sequence[int], payload_checksum: int, following: bytes) -> bytes:
    """The header and the sections after it that its checksum also covers."""
    extents = [*shape, 0, 0, 0, 0][:4]
    first = MAGIC + struct.pack("<4B4QII", VERSION, kind, ty.id, len(shape), *extents, payload_checksum, 0)
    first += following
    return first[:44] + struct.pack("<I", checksum_of_header(first)) + first[48:]


def encode_raw(field: Array, ty: Type) -> bytes:
    data = little(field.view(ty.bits))
    return header(KIND_RAW, ty, field.shape, checksum_of_bytes(data), b"") + data


def special_pattern(fill: float | None, ty: Type) -> int:
    """The bits of the fill value as a T; those of the canonical NaN for any NaN, or without a fill value."""
    if fill is None or np.isnan(fill):
        return ty.canonical_nan
    with np.errstate(over="ignore"):
        return int(np.array(fill, ty.value).view(ty.bits))


def encode(x: npt.ArrayLike, eb: float, mode: str = "abs", bins: int = 64, fill: float | None = None) -> bytes:
    """The archive of a field, without a zstd stage."""
    field = np.ascontiguousarray(x)
    ty = type_of(field.dtype)
    if not 1 <= field.ndim <= 4:
        raise ValueError("1 to 4 dimensions")
    if mode not in ("abs", "rel") or not 0 <= eb < float("inf"):
        raise ValueError("mode or bound")
    if bins not in [2 << r for r in range(5, 13)]:
        raise ValueError("bins: a power of two, 64 to 8192")
    alphabet = Alphabet(bins.bit_length() - 2)
    raw = encode_raw(field, ty)
    if field.size == 0 or eb == 0:
        return raw

    pattern = special_pattern(fill, ty)
    bits = field.view(ty.bits)
    eb_abs = absolute_bound(field, bits == pattern, eb, mode)
    e = largest_bound(eb_abs, ty)
    if e < np.finfo(ty.value).tiny:
        return raw

    tiling = tiling_of(field.shape)
    bits = bits.reshape(tiling.extents)
    tiles = [model_tile(np.ascontiguousarray(bits[box]), pattern, e, tiling, ty) for box in tiling.boxes()]

    # section 7
    k = 0 if alphabet.r > 5 else log2_rate(len(tiles))
    counts = np.zeros(alphabet.size, np.int64)
    for t, tile in enumerate(tiles):
        if not tile.all_special and in_sample(t, k):
            symbol = alphabet.symbol(*tile.codes_to_encode(alphabet.full_reach))
            counts += np.bincount(symbol, minlength=alphabet.size)
    counts *= 2**k
    if alphabet.r == 5:
        counts[list(alphabet.escapes)] = 1
    if k > 0:
        counts[alphabet.missing] = max(counts[alphabet.missing], 1)
    lengths = code_lengths(counts.tolist(), alphabet.limit)
    codes = canonical_codes(lengths)

    payloads = []
    n_special = n_out_of_range = n_unpredictable = 0
    for tile in tiles:
        verbatim = raw_payload(tile.bits)
        payload = struct.pack("<I", TILE_SPECIAL) if tile.all_special else coded_payload(tile, alphabet, lengths, codes)
        if len(payload) >= len(verbatim):
            payload = verbatim
            n_unpredictable += tile.bits.size
        else:
            n_special += int(tile.special.sum())
            n_out_of_range += tile.outliers(alphabet.reach(lengths)).size
            n_unpredictable += tile.value_positions.size
        payloads.append(payload)

    index = little(np.array([len(payload) // 4 for payload in payloads], np.uint16))
    body = index + b"".join(payloads)
    coding_header = struct.pack(
        "<6BHdddQ5Q",
        *(0, 0, 0, mode == "rel", alphabet.r, fill is not None, 0),
        *(eb, eb_abs, float(ty.value(2) * e), pattern),
        *(len(body), len(body), n_special, n_out_of_range, n_unpredictable),
    )
    sections = coding_header + codebook_section(lengths)
    archive = header(KIND_TILED, ty, field.shape, checksum_of_parts(payloads), sections) + body
    return archive if len(archive) < len(raw) else raw


# ---------------------------------------------------------------------------------------------------------------------
# Section 8: tiles, decoding


@dataclass(frozen=True)
class TiledArchive:
    """A tiled archive taken apart."""

    ty: Type
    shape: list[int]
    tiling: Tiling
    pattern: int
    step: float
    alphabet: Alphabet
    lengths: Array
    payloads: list[bytes]


class Reader:
    """Takes parts from the front of a payload; each part has whole words."""

    def __init__(self, payload: bytes) -> None:
        self.rest = payload

    def take(self, n_bytes: int) -> bytes:
        n_bytes += -n_bytes % 4
        require(n_bytes <= len(self.rest), "a payload ends too early")
        taken, self.rest = self.rest[:n_bytes], self.rest[n_bytes:]
        return taken

    def array(self, dtype: type[np.generic], n: int) -> Array:
        little_endian = np.dtype(dtype).newbyteorder("<")
        data = self.take(n * little_endian.itemsize)
        require(not any(data[n * little_endian.itemsize :]), "padding is not 0")
        return np.frombuffer(data, little_endian, n).astype(dtype)

    def bits(self, n: int) -> Array:
        bits = np.unpackbits(np.frombuffer(self.take(-(-n // 8)), np.uint8), bitorder="little")
        require(not bits[n:].any(), "padding is not 0")
        return bits[:n]


def integer_of(bits: Array) -> int:
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def decode_substream(bits: Array, n: int, table: list[Entry]) -> list[int]:
    """The n codes of a substream, which must fill the bit string exactly."""
    stream = integer_of(bits)
    at = 0
    values = []
    for _ in range(n):
        length, base, extra_bits = table[stream >> at & (len(table) - 1)]
        require(length > 0, "a bit string that is no code")
        at += length
        values.append(base + (stream >> at & ((1 << extra_bits) - 1)))
        at += extra_bits
    require(at == bits.size, "a substream of another length")
    return values


def check_positions(positions: Array, n: int) -> None:
    inside = not positions.size or positions[-1] < n
    require(inside and (np.diff(positions.astype(np.int64)) > 0).all(), "outlier positions out of order or range")


def decode_tile(payload: bytes, shape: Box, archive: TiledArchive, table: list[Entry]) -> Array:
    """The bits of the tile's values."""
    ty = archive.ty
    n = volume(shape)
    reader = Reader(payload)
    (head,) = struct.unpack("<I", reader.take(4))
    kind = head & 3
    require(kind <= 2, "unknown tile kind")
    if kind != TILE_CODED:
        require(head == kind, "bits beside the tile kind")
        bits = np.full(n, archive.pattern, ty.bits) if kind == TILE_SPECIAL else reader.array(ty.bits, n)
        require(not reader.rest, "a payload that is too long")
        return bits.reshape(shape)

    predictor, w, base = head >> 2 & 15, head >> 10 & 15, head >> 16
    has_mask, has_missing, has_outliers, flat = (bool(head >> bit & 1) for bit in (6, 7, 8, 9))
    has_fine_mask = bool(head >> 14 & 1)
    require(predictor <= (3 if has_missing else 5), "unknown predictor")
    require(head >> 15 & 1 == 0 and w <= 13, "illegal tile head")
    require(has_mask or not has_fine_mask, "a fine mask without a mask")
    require(not (flat and (has_mask or w or base)), "illegal head of a flat tile")

    anchor = reader.array(ty.integer, 1)
    n_out_of_range, n_unpredictable = reader.array(np.uint16, 2).tolist() if has_outliers else (0, 0)
    group = archive.tiling.groups(shape)
    n_groups = count_of(group)
    significant = np.full(n_groups, not flat)
    if has_mask:
        significant = reader.bits(32 if n_groups <= 32 else 64).astype(np.bool_)
        require(significant.any() and not significant[n_groups:].any(), "illegal mask")
        significant = significant[:n_groups]
    coded = np.flatnonzero(significant[group])
    if has_fine_mask:
        subgroup = archive.tiling.subgroups(shape)
        stored = np.unique(subgroup[coded])  # the subgroups of significant groups
        fine_mask = reader.bits(stored.size)
        require(fine_mask.any(), "illegal fine mask")
        coded = coded[np.isin(subgroup[coded], stored[fine_mask == 1])]

    count = substream_count(coded.size)
    lengths = [base + integer_of(bits) for bits in reader.bits(count * w).reshape(count, w)]
    streams = reader.bits(sum(lengths))
    code = np.zeros(n, ty.integer)
    missing = np.zeros(n, np.bool_)
    begin = 0
    for s in range(count):
        mine = coded[s::count]
        values = decode_substream(streams[begin : begin + lengths[s]], mine.size, table)
        missing[mine] = [value == MISSING for value in values]
        code[mine] = [0 if value == MISSING else value for value in values]
        begin += lengths[s]
    require(has_missing == missing.any(), "the tile header's bit for missing values does not fit")

    out_of_range_positions = reader.array(np.uint16, n_out_of_range)
    check_positions(out_of_range_positions, n)
    code[out_of_range_positions] = reader.array(ty.integer, n_out_of_range)
    value_positions = reader.array(np.uint16, n_unpredictable)
    check_positions(value_positions, n)
    value_bits = reader.array(ty.bits, n_unpredictable)
    require(not reader.rest, "a payload that is too long")

    u = undo_prediction(code.reshape(shape), missing.reshape(shape), predictor, ty)
    bits = rebuilt(u + anchor, archive.step, ty).ravel().view(ty.bits)
    bits[missing] = archive.pattern
    bits[value_positions] = value_bits
    return bits.reshape(shape)


# ---------------------------------------------------------------------------------------------------------------------
# Sections 1, 2 and 8: whole archives, decoding


def read_header(archive: bytes) -> tuple[int, Type, list[int]]:
    """Kind, type and shape."""
    require(len(archive) >= HEADER_BYTES, "too short")
    magic, version, kind, dtype, ndim, *extents = struct.unpack("<4s4B4Q", archive[:40])
    require(magic == MAGIC, "no archive")
    require(version == VERSION, "an archive of another version")
    require(kind in (KIND_RAW, KIND_TILED) and dtype in (F32.id, F64.id) and 1 <= ndim <= 4, "illegal header")
    ty = F32 if dtype == F32.id else F64
    require(not any(extents[ndim:]), "extents beyond ndim")
    require(volume(extents[:ndim]) * 4 * ty.words < 2**63, "a field too large")
    return kind, ty, extents[:ndim]


def check_checksums(archive: bytes, payload_at: int, payload_checksum: int) -> None:
    stored_payload, stored_header = struct.unpack("<II", archive[40:48])
    require(stored_header == checksum_of_header(archive[:payload_at]), "header checksum")
    require(stored_payload == payload_checksum, "payload checksum")


def read_raw(archive: bytes, ty: Type, shape: list[int]) -> Array:
    data = archive[HEADER_BYTES:]
    require(len(data) == volume(shape) * 4 * ty.words, "a raw archive of another length")
    check_checksums(archive, HEADER_BYTES, checksum_of_bytes(data))
    return np.frombuffer(data, np.dtype(ty.bits).newbyteorder("<")).astype(ty.bits).view(ty.value).reshape(shape)


def read_tiled(archive: bytes, ty: Type, shape: list[int]) -> TiledArchive:
    # section 2
    begin = HEADER_BYTES + CODING_HEADER_BYTES
    require(len(archive) >= begin and volume(shape) > 0, "too short")
    family, coder, lossless, mode, r, special, reserved = struct.unpack("<6BH", archive[48:56])
    eb, eb_abs, step, pattern, body_bytes, stored_bytes = struct.unpack("<3d3Q", archive[56:104])
    require(family == 0 and coder == 0 and lossless <= 1 and mode <= 1 and special <= 1, "unknown id")
    require(5 <= r <= 12 and reserved == 0, "illegal coding header")
    require(0 < eb < float("inf") and 0 < eb_abs < float("inf"), "illegal bound")
    smallest = float(np.finfo(ty.value).tiny)
    require(2 * smallest <= step <= 2 * ty.e_limit and step == float(ty.value(step)), "illegal step")
    require(pattern < 1 << (32 * ty.words), "illegal special pattern")
    require(special or pattern == ty.canonical_nan, "illegal special pattern")
    alphabet = Alphabet(r)
    body_at = begin + alphabet.section_bytes
    require(len(archive) == body_at + stored_bytes, "an archive of another length")
    if lossless:
        check_checksums(archive, body_at, checksum_of_bytes(archive[body_at:]))
        raise RuntimeError("the zstd stage: this reference does not undo it")
    require(body_bytes == stored_bytes, "a body of another length")
    lengths = read_codebook(archive[begin:body_at], alphabet)

    # section 8
    tiling = tiling_of(shape)
    reader = Reader(archive[body_at:])
    index = reader.array(np.uint16, len(list(tiling.boxes()))).tolist()
    require(all(1 <= words <= 8193 for words in index) and 4 * sum(index) == len(reader.rest), "illegal tile index")
    payloads = [reader.take(4 * words) for words in index]
    check_checksums(archive, body_at, checksum_of_parts(payloads))
    return TiledArchive(ty, shape, tiling, pattern, step, alphabet, lengths, payloads)


def decode(archive: bytes) -> Array:
    """The field of an archive; checks the document's legal values on the way."""
    kind, ty, shape = read_header(archive)
    if kind == KIND_RAW:
        return read_raw(archive, ty, shape)
    parsed = read_tiled(archive, ty, shape)
    table = decoding_table(parsed.lengths, parsed.alphabet)
    bits = np.empty(parsed.tiling.extents, ty.bits)
    for box, payload in zip(parsed.tiling.boxes(), parsed.payloads, strict=True):
        bits[box] = decode_tile(payload, bits[box].shape, parsed, table)
    return bits.view(ty.value).reshape(shape)
