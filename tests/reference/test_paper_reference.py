"""`scripts/paper/paper_reference.py`: its stages against simpler ones, its round trips, and a comparison with the
engine where both do the same: prequantised integers, deltas inside tiles, codebooks."""

from __future__ import annotations

import functools
import heapq
import itertools
import math

import format_v1_reference
import numpy as np
import paper_reference as paper
import pytest

import cusz_core as cusz
import support
from support import F32, F64, integers, smooth

SHAPES = [
    *[(1,), (31,), (32,), (33,), (4097,)],
    *[(1, 1), (16, 16), (17, 5), (40, 61)],
    *[(1, 1, 1), (8, 8, 8), (9, 7, 17), (20, 21, 22)],
    *[(2, 3, 4, 5), (3, 9, 8, 10)],
]
EB = 2.0**-7  # a power of two: dividing by 2 eb is exact

compress = functools.partial(cusz.compress, predictor="lorenzo")  # the paper's predictor


def rough(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A field with jumps here and there, so that some deltas have no code."""
    x = smooth(shape, dtype)
    flat = x.reshape(-1)
    flat[5::13] += dtype.type(300)
    return x


# ------------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("make", [smooth, rough])
def test_round_trip_gives_the_prequantised_field(make, shape, dtype) -> None:
    x = make(shape, dtype)
    archive = paper.compress(x, EB, "abs", chunk=100)
    y = paper.decompress(archive)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert np.array_equal(y, paper.prequantise(x, EB) * dtype.type(2 * EB))
    assert support.violations(x, y, EB) == []
    if make is rough and x.size > 100:
        assert 0 < archive.outliers.size < x.size


@pytest.mark.parametrize("bins", [4, 128, 1024, 8192, 1 << 17])
def test_any_number_of_bins(bins) -> None:
    x = rough((20, 33, 15), F32)
    archive = paper.compress(x, 1e-3, bins=bins)
    assert np.array_equal(paper.decompress(archive), paper.prequantise(x, archive.eb) * np.float32(2 * archive.eb))
    assert (archive.outliers.size == 0) == (bins > 4096)


@pytest.mark.parametrize("tile", [(4, 4, 4), (1, 1, 1), (16, 8, 4), (3, 20, 30)])
def test_any_tile(tile) -> None:
    x = smooth((13, 14, 15), F32)
    assert np.array_equal(
        paper.decompress(paper.compress(x, EB, "abs", tile=tile)), paper.prequantise(x, EB) * np.float32(2 * EB)
    )


def test_sizes_are_those_of_the_parts() -> None:
    x = rough((40, 41), F32)
    archive = paper.compress(x, 1e-3, chunk=64)
    chunks = -(-x.size // 64)
    assert archive.bits.size == chunks
    units = sum(-(-int(bits) // 64) for bits in archive.bits)
    assert archive.bytes == 8 * units + 4 * chunks + 1024 + 4 * archive.outliers.size
    assert archive.rate == 8 * archive.bytes / x.size


@pytest.mark.parametrize(
    ("x", "eb", "mode"),
    [
        (np.zeros(0, np.float32), 1e-3, "abs"),
        (np.zeros(8, np.int32), 1e-3, "abs"),
        (np.ones(8, np.float32), 1e-3, "valrel"),  # its range is 0
        (np.ones(8, np.float32), math.nan, "abs"),
        (np.array([1, np.nan], np.float32), 1e-3, "abs"),
        (np.array([1, np.inf]), 1e-3, "abs"),
        (np.array([2.0**24, 0], np.float32), 1, "abs"),  # 2^23 times 2 eb
    ],
)
def test_what_cannot_be_done_is_refused(x, eb, mode) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        paper.compress(x, eb, mode)


# ------------------------------------------------------------------------------------------------- dual-quantisation


def predicted(integers: np.ndarray, tile: tuple[int, ...], position: tuple[int, ...]) -> float:
    """3.1.2: the alternating sum over the corners of the cube behind a position; 0 outside the tile."""
    total = 0.0
    for back in itertools.product((0, 1), repeat=len(tile)):
        neighbour = [p - b for p, b in zip(position, back, strict=True)]
        same = all(n >= 0 and n // t == p // t for n, p, t in zip(neighbour, position, tile, strict=True))
        if any(back) and same:
            total -= (-1) ** sum(back) * integers[tuple(neighbour)]
    return total


@pytest.mark.parametrize(("shape", "tile"), [((70,), (32,)), ((20, 19), (16, 16)), ((9, 10, 11), (8, 8, 8))])
def test_deltas_follow_the_formula(shape, tile) -> None:
    wanted = paper.prequantise(rough(shape, F64), EB)
    found = paper.lorenzo_deltas(wanted, tile)
    for position in np.ndindex(shape):
        assert found[position] == wanted[position] - predicted(wanted, tile, position)


def test_codes_and_outliers() -> None:
    deltas = np.array([0, 1, -1, 511, -511, 512, -512, 1e6], np.float32)
    codes, outliers = paper.postquantise(deltas, np.arange(8, dtype=np.float32))
    assert codes.tolist() == [512, 513, 511, 1023, 1, 0, 0, 0]
    assert outliers.tolist() == [5, 6, 7]


# -------------------------------------------------------------------------------------------------------- the engine


@pytest.mark.parametrize("shape", [(9000,), (90, 77), (20, 30, 40), (3, 9, 20, 21)], ids=str)
def test_the_engine_prequantises_alike(shape, dtype) -> None:
    """2 eb is a power of two, so nothing is rounded, and both reconstruct the same multiples of it."""
    x = rough(shape, dtype)
    ours = cusz.decompress(compress(x, EB, threads=1), threads=1)
    assert np.array_equal(ours, paper.decompress(paper.compress(x, EB, "abs")))


def test_the_engine_keeps_the_bound_that_single_precision_alone_does_not() -> None:
    """3.1.2 says that the error of prequant is "strictly bounded"; with rounded products that is only nearly true."""
    x = smooth((200, 200), F32)
    eb = 1e-4 * float(np.ptp(x))
    theirs = paper.decompress(paper.compress(x, eb, "abs"))
    broken = support.violations(x, theirs, eb)
    assert broken
    assert np.abs(x.astype(F64) - theirs).max() < 1.001 * eb
    assert support.violations(x, cusz.decompress(compress(x, eb, threads=1)), eb) == []


@pytest.mark.parametrize("shape", [(128,), (64, 64), (8, 16, 32)], ids=str)
def test_the_engine_predicts_alike_inside_tiles(shape) -> None:
    """Compares the deltas in a tile with those of format.md for Lorenzo of the same number of dimensions."""
    ours = paper.prequantise(smooth(shape, F32), EB)
    boxed = ours.reshape([1] * (4 - len(shape)) + list(shape)).astype(np.int32)
    theirs = format_v1_reference.codes_of(boxed - boxed.ravel()[0], len(shape)).reshape(shape)
    tile = paper.TILES[len(shape)]
    deltas = paper.lorenzo_deltas(ours, tile)
    inside = np.ones(shape, np.bool_)
    for axis, edge in enumerate(tile):
        np.moveaxis(inside, axis, 0)[::edge] = False
    assert inside.any()
    assert np.array_equal(deltas[inside], theirs[inside])


@pytest.mark.parametrize("seed", range(4))
def test_the_engine_makes_codebooks_of_the_same_cost(seed) -> None:
    """One tile of 4096 values in a row, the first one 0, with deltas below 512: both count the same symbols. The widths
    may be distributed differently, but their sum, the bits of the stream, must be the same."""
    steps = (integers(4096, -30, 31, seed) * integers(4096, 0, 9, seed + 10) // 4).astype(np.int64)
    steps[0] = 0
    x = (np.cumsum(steps) * 2 * EB).astype(np.float32)
    archive = compress(x, EB, bins=1024, threads=1)
    ty = format_v1_reference.F32
    lengths = format_v1_reference.read_tiled(archive, ty, [4096]).lengths[:1024]
    ours = paper.compress(x, EB, "abs", tile=(4096,))
    codes, _ = paper.postquantise(paper.lorenzo_deltas(paper.prequantise(x, EB), (4096,)), x)
    counts = paper.histogram(codes)
    widths = ours.codebook.widths
    assert widths.max() <= 15  # the engine's limit
    assert int((counts * widths).sum()) == int((counts * lengths).sum()) == int(ours.bits.sum())
    mean = ours.bits.sum() / x.size
    assert paper.entropy(codes) <= mean < paper.entropy(codes) + 1


# ----------------------------------------------------------------------------------------------------------- Huffman


def fibonacci(n: int) -> np.ndarray:
    counts = [1, 1]
    while len(counts) < n:
        counts.append(counts[-1] + counts[-2])
    return np.array(counts, np.int64)


def optimal_cost(counts: np.ndarray) -> int:
    """Length of the coded stream: the sum of the weights of all inner nodes of a Huffman tree."""
    heap = [int(c) for c in counts if c]
    heapq.heapify(heap)
    total = 0
    while len(heap) > 1:
        joined = heapq.heappop(heap) + heapq.heappop(heap)
        total += joined
        heapq.heappush(heap, joined)
    return total


def codebook_of(counts: np.ndarray) -> paper.Codebook:
    return paper.canonise(paper.base_codebook(paper.build_tree(counts), counts.size)[0])


@pytest.mark.parametrize(
    "counts",
    [integers(1024, 0, 5000, 1), integers(300, 0, 3, 2) * 7, np.full(128, 9), fibonacci(40), np.array([0, 3, 0, 1])],
    ids=["random", "sparse", "equal", "fibonacci", "two"],
)
def test_codebooks_are_optimal_canonical_prefix_codes(counts) -> None:
    tree = paper.build_tree(counts)
    widths, base = paper.base_codebook(tree, counts.size)
    book = paper.canonise(widths)
    occurring = np.flatnonzero(counts).tolist()
    assert np.flatnonzero(widths).tolist() == sorted(occurring) == sorted(book.symbols.tolist())
    assert int((counts * widths).sum()) == optimal_cost(counts)
    for codewords in (base, dict(enumerate(book.codewords.tolist()))):
        strings = sorted(format(codewords[s], f"0{widths[s]}b") for s in occurring)
        assert not any(b.startswith(a) for a, b in itertools.pairwise(strings))
    ordered = sorted(occurring, key=lambda s: (widths[s], s))
    assert book.symbols.tolist() == ordered
    strings = [format(int(book.codewords[s]), f"0{widths[s]}b") for s in ordered]
    assert strings == sorted(strings)  # canonical: numbered in this order


def test_long_codewords_take_64_bits() -> None:
    assert paper.word_bits(codebook_of(fibonacci(25))) == 32
    book = codebook_of(fibonacci(40))
    assert (int(book.widths.max()), paper.word_bits(book)) == (39, 64)
    with pytest.raises(ValueError, match="39 bits do not fit"):
        paper.words_of(book, 32)
    codes = np.concatenate([np.arange(40), integers(500, 0, 40)])
    stream, bits = paper.deflate(paper.encode(codes, paper.words_of(book, 64)), 64)
    assert np.array_equal(paper.inflate(stream, bits, book, codes.size, 64), codes)
    assert codebook_of(fibonacci(57)).widths.max() == 56
    with pytest.raises(ValueError, match="57 bits"):
        codebook_of(fibonacci(58))


def test_one_symbol_has_one_bit() -> None:
    x = np.tile(np.arange(2, dtype=np.float32), 1)
    archive = paper.compress(x, 1.0, "abs")  # both prequantised to 0
    assert archive.codebook.symbols.tolist() == [512]
    assert archive.bits.tolist() == [2]
    assert paper.decompress(archive).tolist() == [0, 0]
    with pytest.raises(ValueError, match="no symbol"):
        paper.build_tree(np.zeros(4, np.int64))


@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize("chunk", [1, 7, 64, 1000, 4096])
def test_deflating_joins_codewords(word, chunk) -> None:
    codes = np.minimum(integers(1000, 0, 30), integers(1000, 0, 30, 1))
    book = codebook_of(paper.histogram(codes, 30))
    stream, bits = paper.deflate(paper.encode(codes, paper.words_of(book, word)), chunk)
    wanted = []
    for start in range(0, codes.size, chunk):
        text = "".join(format(int(book.codewords[c]), f"0{book.widths[c]}b") for c in codes[start : start + chunk])
        assert bits[start // chunk] == len(text)
        text += "0" * (-len(text) % 64)
        wanted += [int(text[i : i + 64], 2) for i in range(0, len(text), 64)]
    assert stream.tolist() == wanted
    assert np.array_equal(paper.inflate(stream, bits, book, codes.size, chunk), codes)


# ----------------------------------------------------------------------------------------------------------- quality


def test_psnr_and_its_averages() -> None:
    """The averages that Table 8 gives for cuSZ follow from its rows."""
    x = np.array([0, 10], np.float32)
    assert paper.psnr(x, x + np.float32(1)) == pytest.approx(20)
    assert paper.psnr(x, x) == math.inf
    nyx = [98.25, 87.77, 84.77, 84.77, 84.77, 84.77]
    hurricane = [94.18, 87.17, 84.79, 92.86, 84.77, 98.91, 95.21, 97.02, 84.82, 95.51, 85.77, 97.37, 84.56, 93.36]
    hurricane += [84.93, 84.80, 84.79, 84.79, 84.79, 84.79]
    assert round(paper.mean_psnr(nyx), 2) == 85.98
    assert round(paper.mean_psnr(hurricane), 2) == 86.96
    assert paper.mean_psnr([math.inf]) == math.inf


def test_chunk_sizes_are_those_of_table_6() -> None:
    sizes = {280953867: (11, 16), 6480000: (6, 10), 25000000: (8, 12), 134217728: (10, 15), 157684320: (10, 15)}
    for count, (low, high) in sizes.items():
        assert list(paper.chunk_sizes(count)) == [2**power for power in range(low, high + 1)]
    bold = {280953867: 14, 6480000: 8, 25000000: 10, 134217728: 13, 157684320: 13}
    assert {count: paper.chunk_of(count) for count in bold} == {count: 2**power for count, power in bold.items()}
    assert paper.chunk_of(1) == 64
