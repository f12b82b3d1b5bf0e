"""Version 1 of the archive format, as much as tests need to take archives apart (format.md, sections 2, 6 and 8).

Not for tests/reference, which implements all of it from the document alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

# ------------------------------------------------------------------------------------- what lies in front of the tiles

CODING_HEADER_AT, CODEBOOK_AT = 48, 128
LOSSLESS_AT, BODY_BYTES_AT, STORED_BYTES_AT = 50, 88, 96


def body_at(codebook_bytes: int) -> int:
    return CODEBOOK_AT + codebook_bytes


# ------------------------------------------------------------------------------------------------------------ the body


def tiles(archive: bytes | bytearray, codebook_bytes: int, n_tiles: int) -> list[tuple[int, int]]:
    """Offset of every tile's payload and its length in words; for archives without a lossless stage."""
    index_at = body_at(codebook_bytes)
    at, found = index_at + (n_tiles + 1) // 2 * 4, []
    for words in struct.unpack_from(f"<{n_tiles}H", archive, index_at):
        found.append((at, words))
        at += 4 * words
    return found


def parts(archive: bytes | bytearray, codebook_bytes: int, n_tiles: int) -> list[tuple[bytes, int]]:
    """The parts that the payload checksum covers, each with its number of words."""
    places = tiles(archive, codebook_bytes, n_tiles)
    return [(bytes(archive[at : at + 4 * words]), words) for at, words in places if at + 4 * words <= len(archive)]


# --------------------------------------------------------------------------------------------------------- tile header


@dataclass(frozen=True)
class Bits:
    """A bit field of the tile header, which is the first word of a payload."""

    at: int
    width: int = 1

    def of(self, header: int) -> int:
        return header >> self.at & (1 << self.width) - 1

    def put(self, header: int, value: int) -> int:
        return header & ~((1 << self.width) - 1 << self.at) | value << self.at


KIND, PREDICTOR = Bits(0, 2), Bits(2, 4)
MASK, MISSING, OUTLIERS, ALL_ZERO = Bits(6), Bits(7), Bits(8), Bits(9)
WIDTH, FINE_MASK, RESERVED, BASE = Bits(10, 4), Bits(14), Bits(15), Bits(16, 16)

CODED, SPECIAL, RAW = KINDS = range(3)
PREDICTORS = range(6)
LORENZO = range(4)  # 0-D to 3-D: the predictors that allow missing values
WIDEST = 13


def is_coded(header: int) -> bool:
    return KIND.of(header) == CODED
