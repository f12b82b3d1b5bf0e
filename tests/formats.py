"""The archive format as tests need it: what all versions share (format.md, sections 1 and 9).

What belongs to one version is in a module of its own, such as format_v1.py.
"""

from __future__ import annotations

import struct

import numpy as np

import cusz_core as cusz
import format_v1
import format_v2

HEADER_BYTES = 48
VERSION_AT, KIND_AT, SHAPE_AT, PAYLOAD_CHECKSUM_AT, HEADER_CHECKSUM_AT = 4, 5, 8, 40, 44
RAW = 0

MASK = 2**64 - 1
PIECE = 4 * 4096  # bytes per piece, where data is checksummed without regard to its structure


def mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def weights(n: int) -> np.ndarray:
    return (np.uint64(0x9E3779B1) * (2 * np.arange(n, dtype=np.uint64) + np.uint64(1))) & np.uint64(0xFFFFFFFF)


WEIGHTS = weights(20000)


def part(number: int, data: bytes | bytearray, size: int | None = None) -> int:
    """The checksum part of `data`, whose length counts as `size`; by default as its number of words."""
    words = np.frombuffer(data + bytes(-len(data) % 4), "<u4").astype(np.uint64)
    weighed = int((words * WEIGHTS[: words.size]).sum(dtype=np.uint64)) if words.size else 0
    return mix(weighed ^ mix((number * 0x9E3779B97F4A7C15 + (words.size if size is None else size)) & MASK))


def fold(x: int) -> int:
    return (x ^ x >> 32) & 0xFFFFFFFF


def checksum_of_pieces(data: bytes) -> int:
    """The checksum of whole words, without regard to their structure."""
    pieces = [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
    return fold(sum(part(number, piece) for number, piece in enumerate(pieces)) & MASK)


def seal(archive: bytearray, original: bytes) -> None:
    """Gives an archive that was changed matching checksums."""
    info = cusz.inspect(original)
    if info.version == 2:
        format_v2.seal(archive)
        return
    is_raw = archive[KIND_AT] == RAW
    front = HEADER_BYTES if is_raw else format_v1.body_at(info.sections.codebook)
    if is_raw or archive[format_v1.LOSSLESS_AT] != 0:
        body = bytes(archive[front:])
        checksum = checksum_of_pieces(body + bytes(-len(body) % 4))
    else:
        parts = format_v1.parts(archive, info.sections.codebook, info.tiles)
        checksum = fold(sum(part(number, *of_part) for number, of_part in enumerate(parts)) & MASK)
    struct.pack_into("<I", archive, PAYLOAD_CHECKSUM_AT, checksum)
    struct.pack_into("<I", archive, HEADER_CHECKSUM_AT, 0)
    struct.pack_into("<I", archive, HEADER_CHECKSUM_AT, fold(part(0, archive[:front])))


def tile_headers(archive: bytes | bytearray) -> list[tuple[int, int]]:
    """Offset and value of the first word of every tile's payload; version 1, without a lossless stage."""
    info = cusz.inspect(archive)
    tiles = format_v1.tiles(archive, info.sections.codebook, info.tiles)
    return [(at, *struct.unpack_from("<I", archive, at)) for at, _ in tiles]
