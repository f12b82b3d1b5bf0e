"""The algorithm of the cuSZ paper in its own setting, stage by stage, in NumPy: an oracle, and a source for its tables.

    archive = compress(x, eb=1e-4)       # valrel; x: float32 or float64, 1-D to 4-D, finite
    y = decompress(archive)
    archive.bytes, archive.rate          # size, bits per value

Tian et al., "cuSZ: An Efficient GPU-Based Error-Bounded Lossy Compression Framework for Scientific Data", PACT 2020,
doi 10.1145/3410463.3414624. Sections are those of the paper. It differs from `cusz_core`: small tiles surrounded by
zeros, one radius with outliers beyond it, one codebook without a length limit, codewords in words of fixed width, 32 or
64 bits, and chunks to deflate. There is no file format, because the paper has none. (tests/reference implements the
format of `cusz_core` a second time.)

A GPU thread of the paper is a vector lane here: deflating, inflating and the reversed dual-quantisation go through
their chunk value by value, all chunks at once. Where the paper leaves a choice open, it is made here, and marked as
"Open in the paper".
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

#: 3.1.1: the chunks of dual-quantisation, for fields of 1, 2 and 3 dimensions.
TILES: dict[int, tuple[int, ...]] = {1: (32,), 2: (16, 16), 3: (8, 8, 8)}
#: 3.2.2: quantisation bins, so that deltas from -511 to 511 have a code.
BINS = 1024
#: Open in the paper: 0 marks an outlier, as in SZ, and delta + bins / 2 is the code of any other value.
OUTLIER = 0
#: 3.2.2, Figure 4: a word has the bit width of a codeword in its highest bits. Open in the paper: how many.
WIDTH_BITS = 8
#: Default number of symbols per chunk to deflate: for fields of a few million values, padding the chunks costs little.
CHUNK = 4096

#: Integers up to this, and the sums of up to eight of them in prediction, are exact in the type of the field.
EXACT = {np.dtype(np.float32): 2.0**21, np.dtype(np.float64): 2.0**50}


# ------------------------------------------------------------------------------------------------ 3.1 dual-quantisation


def absolute_bound(x: Array, valrel: float) -> float:
    """3.2.2, footnote: the value-range-based relative error bound as an absolute one, in the unit of the field."""
    return valrel * (float(x.max()) - float(x.min()))


def as_tiled(shape: Sequence[int]) -> tuple[int, ...]:
    """3.1.1: the extents that are cut into tiles. Open in the paper, which has no tile for 4-D: the two slowest axes
    become one, which is one of the "two representations" of QMCPACK (4.1)."""
    return tuple(shape) if len(shape) < 4 else (math.prod(shape[:-2]), *shape[-2:])


def prequantise(x: Array, eb: float) -> Array:
    """3.1.2, prequant: round(d / (2 eb)) of every value, kept in the floating-point type of the field.

    Raises:
        ValueError: a value is not finite, or so far from 0 that its integer is not exact in its type.
    """
    with np.errstate(all="ignore"):
        integers = np.rint(x / x.dtype.type(2 * eb))
    if not (np.abs(integers) <= EXACT[x.dtype]).all():
        raise ValueError(f"values that are not finite, or beyond {EXACT[x.dtype]:g} times 2 eb = {2 * eb:g}")
    return integers


def lorenzo_deltas(integers: Array, tile: Sequence[int]) -> Array:
    """3.1.1 and 3.1.2: d - p of every value, p being the Lorenzo prediction of order 1 from its neighbours in the tile.

    The padding layer of a tile is 0, so the deltas are differences taken along one axis after another, each of which
    leaves the first value of every tile unchanged.
    """
    deltas = integers.copy()
    for axis, extent in enumerate(tile):
        along = np.moveaxis(deltas, axis, 0)
        first = along[::extent].copy()
        along[1:] -= along[:-1].copy()
        along[::extent] = first
    return deltas


def postquantise(deltas: Array, integers: Array, bins: int = BINS) -> tuple[Array, Array]:
    """3.1.2, postquant (Algorithm 2): the quantisation code of every value, and the outliers in raster order.

    Returns:
        codes: uint16 (uint32 beyond 65536 bins), of the shape of the field: delta + bins / 2, or OUTLIER.
        outliers: the prequantised values, verbatim, of those whose delta has no code.
    """
    radius = bins // 2
    in_cap = np.abs(deltas) < radius
    codes = np.where(in_cap, deltas + deltas.dtype.type(radius), deltas.dtype.type(OUTLIER))
    return codes.astype(np.uint16 if bins <= 1 << 16 else np.uint32), integers[~in_cap]


def reversed_dual_quantisation(codes: Array, outliers: Array, eb: float, tile: Sequence[int], bins: int) -> Array:
    """3.3 and Algorithm 2: the field from its codes; tiles go value by value, because each needs those before it.

    Args:
        codes: as `postquantise` returns them.
        outliers: of the type of the field.
    """
    dtype = outliers.dtype
    verbatim = np.zeros(codes.shape, dtype)
    verbatim[codes == OUTLIER] = outliers
    whole = [(0, -extent % edge) for extent, edge in zip(codes.shape, tile, strict=True)]
    codes = np.pad(codes, whole, constant_values=bins // 2)
    verbatim = np.pad(verbatim, whole)
    integers = np.zeros(codes.shape, dtype)

    def lanes(position: Sequence[int]) -> tuple[slice, ...]:
        """The values at one position of all tiles."""
        return tuple(slice(at, None, edge) for at, edge in zip(position, tile, strict=True))

    steps = list(itertools.product((0, 1), repeat=len(tile)))[1:]
    for position in itertools.product(*map(range, tile)):
        here = lanes(position)
        total = codes[here].astype(dtype) - dtype.type(bins // 2)
        for step in steps:
            neighbour = [at - back for at, back in zip(position, step, strict=True)]
            if min(neighbour) >= 0:  # otherwise it is padding, 0
                if sum(step) % 2:
                    total += integers[lanes(neighbour)]
                else:
                    total -= integers[lanes(neighbour)]
        integers[here] = np.where(codes[here] == OUTLIER, verbatim[here], total)

    inside = tuple(slice(0, extent - pad) for extent, (_, pad) in zip(codes.shape, whole, strict=True))
    return integers[inside] * dtype.type(2 * eb)


# ------------------------------------------------------------------------------------------------------- 3.2 Huffman


def histogram(codes: Array, bins: int = BINS) -> Array:
    """3.2.1: how often each quantisation code occurs; int64, `bins` of them."""
    return np.bincount(codes.ravel(), minlength=bins)


@dataclasses.dataclass(frozen=True)
class Tree:
    """A Huffman tree: the first nodes are the symbols `symbols[i]`, the others join two nodes each; the root is last.
    `parents[i]` is the node above, `sides[i]` the bit that leads from there to node i."""

    symbols: list[int]
    parents: list[int]
    sides: list[int]


def build_tree(frequencies: Array) -> Tree:
    """3.2.2: the optimal Huffman tree of the symbols that occur; of equally frequent nodes the older ones first.

    Raises:
        ValueError: no symbol occurs.
    """
    symbols = np.flatnonzero(frequencies).tolist()
    if not symbols:
        raise ValueError("there is no symbol to make a tree of")
    heap = [(weight, node) for node, weight in enumerate(frequencies[symbols].tolist())]
    heapq.heapify(heap)
    parents, sides = [0] * (2 * len(symbols) - 1), [0] * (2 * len(symbols) - 1)
    for joined in range(len(symbols), len(parents)):
        (a, left), (b, right) = heapq.heappop(heap), heapq.heappop(heap)
        parents[left] = parents[right] = joined
        sides[right] = 1
        heapq.heappush(heap, (a + b, joined))
    return Tree(symbols, parents, sides)


def base_codebook(tree: Tree, bins: int) -> tuple[Array, dict[int, int]]:
    """3.2.2: the bit width of every symbol (0 where it does not occur), and the codewords that the tree itself gives.

    Widths are not limited. A single symbol has one bit.
    """
    depths, codewords = [0] * len(tree.parents), [0] * len(tree.parents)
    for node in range(len(tree.parents) - 2, -1, -1):  # parents come after their children
        above = tree.parents[node]
        depths[node] = depths[above] + 1
        codewords[node] = codewords[above] << 1 | tree.sides[node]
    widths = np.zeros(bins, np.int64)
    widths[tree.symbols] = depths[: len(tree.symbols)]
    if len(tree.symbols) == 1:
        widths[tree.symbols] = 1
    return widths, dict(zip(tree.symbols, codewords, strict=False))


@dataclasses.dataclass(frozen=True)
class Codebook:
    """3.2.3: a canonical codebook and its reverse.

    Attributes:
        widths: int64, bits of the codeword of every symbol; 0 where it does not occur.
        codewords: uint64, of every symbol.
        symbols: those that occur, by width and then by number: the reverse codebook.
        used: the widths that occur, ascending; and for each of them
        first: uint64, its smallest codeword,
        start: where its symbols start in `symbols`,
        limit: uint64, the smallest codeword beyond it, moved up to 64 bits; none for the last.
    """

    widths: Array
    codewords: Array
    symbols: Array
    used: Array
    first: Array
    start: Array
    limit: Array


def canonise(widths: Array) -> Codebook:
    """3.2.3: count the widths, sort the symbols by width, number them.

    Raises:
        ValueError: a codeword is too long for a 64-bit word (no field of less than 10^11 values has one).
    """
    if widths.max() > 64 - WIDTH_BITS:
        raise ValueError(f"a codeword of {widths.max()} bits has no place in a 64-bit word")
    counts = np.bincount(widths)  # (1) a scan of the base codebook
    counts[0] = 0
    symbols = np.argsort(widths, kind="stable")[widths.size - int(counts.sum()) :]  # (2) a radix sort by width
    first, code = [], 0
    for count in counts.tolist():
        first.append(code)
        code = (code + count) << 1
    used = np.flatnonzero(counts)
    firsts, start = np.array(first, np.uint64)[used], np.cumsum(counts)[used] - counts[used]
    codewords = np.zeros(widths.size, np.uint64)  # (3) codewords, and the reverse codebook
    rank = np.arange(symbols.size) - np.repeat(start, counts[used])
    codewords[symbols] = np.repeat(firsts, counts[used]) + rank.astype(np.uint64)
    limit = (firsts + counts[used].astype(np.uint64))[:-1] << (64 - used[:-1]).astype(np.uint64)
    return Codebook(widths, codewords, symbols, used, firsts, start, limit)


def word_bits(codebook: Codebook) -> int:
    """3.2.2: the representation that the widest codeword needs, 32 or 64 bits."""
    return 32 if codebook.widths.max() <= 32 - WIDTH_BITS else 64


def words_of(codebook: Codebook, bits: int) -> Array:
    """3.2.2, Figure 4: every symbol's codeword in the low bits of a uint32 or uint64, its width in the high ones.

    Raises:
        ValueError: the codewords are wider than that.
    """
    if bits < word_bits(codebook):
        raise ValueError(f"codewords of {codebook.widths.max()} bits do not fit into words of {bits}")
    words = codebook.codewords | codebook.widths.astype(np.uint64) << np.uint64(bits - WIDTH_BITS)
    return words.astype(np.uint32 if bits == 32 else np.uint64)


def encode(codes: Array, words: Array) -> Array:
    """3.2.4, encoding: the word of every code, of fixed width; in raster order."""
    return np.take(words, codes.ravel())


def deflate(encoded: Array, chunk: int = CHUNK) -> tuple[Array, Array]:
    """3.2.4, deflating: the codewords of every chunk of `chunk` words one after another, without gaps.

    Returns:
        stream: uint64, first bits highest; every chunk starts a new word (open in the paper).
        bits: int64, the length of every chunk.
    """
    chunk = min(chunk, encoded.size)
    shift = encoded.dtype.type(8 * encoded.itemsize - WIDTH_BITS)
    padded = np.concatenate([encoded, np.zeros(-encoded.size % chunk, encoded.dtype)])
    columns = np.ascontiguousarray(padded.reshape(-1, chunk).T)  # a row for every turn, a lane for every chunk
    bits = (columns >> shift).sum(axis=0, dtype=np.int64)
    starts = _starts(bits)
    stream = np.zeros(starts[-1] + 2, np.uint64)
    at = starts[:-1].astype(np.uint64) << np.uint64(6)
    mask = (encoded.dtype.type(1) << shift) - encoded.dtype.type(1)
    for column in columns:
        width = (column >> shift).astype(np.uint64)
        left = (column & mask).astype(np.uint64) << (np.uint64(64) - width)
        unit, offset = at >> np.uint64(6), at & np.uint64(63)
        stream[unit] |= left >> offset
        stream[unit + np.uint64(1)] |= left << np.uint64(1) << (np.uint64(63) - offset)
        at += width
    return stream[:-2], bits


def _starts(bits: Array) -> Array:
    """Where the chunks start in the stream, and where it ends."""
    return np.concatenate([[0], np.cumsum(-(-bits // 64))])


def inflate(stream: Array, bits: Array, codebook: Codebook, count: int, chunk: int = CHUNK) -> Array:
    """3.3, inflating: `count` codes, int64, from what `deflate` returned for chunks of the same size."""
    chunk = min(chunk, count)
    stream = np.concatenate([stream, np.zeros(2, np.uint64)])
    at = _starts(bits)[:-1].astype(np.uint64) << np.uint64(6)
    columns = np.empty((chunk, bits.size), np.int64)
    in_last = count - chunk * (bits.size - 1)
    used = codebook.used.astype(np.uint64)
    for turn in range(chunk):
        if turn == in_last:
            at = at[:-1]
        unit, offset = at >> np.uint64(6), at & np.uint64(63)
        window = stream[unit] << offset | stream[unit + np.uint64(1)] >> np.uint64(1) >> (np.uint64(63) - offset)
        row = np.searchsorted(codebook.limit, window, side="right")
        width = used[row]
        rank = (window >> (np.uint64(64) - width)) - codebook.first[row]
        columns[turn, : at.size] = codebook.symbols[codebook.start[row] + rank.astype(np.int64)]
        at = at + width
    return columns.T.reshape(-1)[:count]


# ------------------------------------------------------------------------------------------------------------- whole


@dataclasses.dataclass(frozen=True)
class Archive:
    """The input of decompression, as one object.

    Attributes:
        shape, dtype: of the field.
        eb: the absolute bound.
        tile, bins, chunk: the setting.
        codebook: only its widths would be stored, one byte for each bin.
        word: bits of the representation that encoding chose.
        stream, bits: of `deflate`.
        outliers: prequantised values in raster order.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    eb: float
    tile: tuple[int, ...]
    bins: int
    chunk: int
    codebook: Codebook
    word: int
    stream: Array
    bits: Array
    outliers: Array

    @property
    def bytes(self) -> int:
        """The stream, 4 bytes per chunk for its length, the widths and the outliers. (Open in the paper.)"""
        return int(self.stream.nbytes + 4 * self.bits.size + self.bins + self.outliers.nbytes)

    @property
    def rate(self) -> float:
        """Bits per value."""
        return 8 * self.bytes / math.prod(self.shape)


def compress(
    x: Array,
    eb: float,
    mode: str = "valrel",
    *,
    tile: tuple[int, ...] | None = None,
    bins: int = BINS,
    word: int | None = None,
    chunk: int = CHUNK,
) -> Archive:
    """3: the whole compression.

    Args:
        x: float32 or float64, 1-D to 4-D, finite.
        eb: the bound; of the value range where `mode` is "valrel", absolute where it is "abs".
        tile: extents of the chunks of dual-quantisation; None as in the paper.
        bins: quantisation bins.
        word: bits of the words that hold codewords, 32 or 64; None: the width they need.
        chunk: symbols that one thread deflates.

    Raises:
        ValueError: an empty field or another type; a bound that is not positive; what the stages raise.
    """
    if x.dtype not in EXACT or x.size == 0:
        raise ValueError(f"a field of {x.dtype} of shape {x.shape}; float32 or float64 that is not empty is wanted")
    bound = absolute_bound(x, eb) if mode == "valrel" else eb
    if not bound > 0:
        raise ValueError(f"the absolute bound is {bound}; it has to be positive")
    extents = as_tiled(x.shape)
    tile = tile or TILES[len(extents)]
    integers = prequantise(x, bound).reshape(extents)
    codes, outliers = postquantise(lorenzo_deltas(integers, tile), integers, bins)
    widths, _ = base_codebook(build_tree(histogram(codes, bins)), bins)
    codebook = canonise(widths)
    word = word or word_bits(codebook)
    stream, bits = deflate(encode(codes, words_of(codebook, word)), chunk)
    return Archive(x.shape, x.dtype, bound, tile, bins, chunk, codebook, word, stream, bits, outliers)


def decompress(archive: Archive) -> Array:
    """3.3: the whole decompression."""
    count = math.prod(archive.shape)
    codes = inflate(archive.stream, archive.bits, archive.codebook, count, archive.chunk)
    codes = codes.reshape(as_tiled(archive.shape))
    x = reversed_dual_quantisation(codes, archive.outliers, archive.eb, archive.tile, archive.bins)
    return x.reshape(archive.shape)


# ----------------------------------------------------------------------------------------------------------- quality


def psnr(x: Array, y: Array) -> float:
    """4.2.2, footnote: 20 log10((max - min) / RMSE), in dB; infinite where nothing differs."""
    error = normalised_error(x, y)
    return -10 * math.log10(error) if error else math.inf


def normalised_error(x: Array, y: Array) -> float:
    """The mean squared error of `y` over the squared value range of `x`, in double precision."""
    spread = float(x.max()) - float(x.min())
    return float(np.mean(np.square((x.astype(np.float64) - y) / spread)))


def mean_psnr(values: Sequence[float]) -> float:
    """The averages of Table 8: the PSNR of the mean of normalised squared errors, not the mean of the PSNRs, in dB."""
    errors = [10 ** (-value / 10) for value in values]
    return -10 * math.log10(sum(errors) / len(errors)) if any(errors) else math.inf


def entropy(codes: Array) -> float:
    """The zeroth-order entropy of symbols, in bits: the lower limit for any codebook of 3.2.2."""
    counts = np.bincount(codes.ravel())
    shares = counts[counts > 0] / codes.size
    return float(-(shares * np.log2(shares)).sum())


def chunk_sizes(count: int, least: int = 4000) -> Iterator[int]:
    """4.2.1, Table 6: the sizes from 2^6 to 2^16 that leave `least` to 155 000 threads for `count` values."""
    for power in range(6, 17):
        if least <= -(-count // 2**power) <= 155_000:
            yield 2**power


def chunk_of(count: int) -> int:
    """4.2.1: the size from 2^6 to 2^16 that leaves about 2 * 10^4 threads, which is best on a V100."""
    return min((2**power for power in range(6, 17)), key=lambda chunk: abs(math.log(count / chunk / 2e4)))
