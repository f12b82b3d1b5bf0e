"""Version 2 of the archive format, as far as tests take its archives apart (docs/format_v2.md).

Not for tests/reference, which has the whole of it from the document alone.
"""

from __future__ import annotations

import struct

CODING_HEADER_AT, CODEBOOK_AT = 48, 128  # what is called a codebook in version 1 is a model here
LOSSLESS_AT, REVISION_AT, HALVED_AT, INTERPOLATION_AT, MODEL_BYTES_AT = 50, 52, 54, 55, 112
REVISION = 1
LOGS_HEADER_BYTES = 112  # of an archive of logarithms, all of its front

TOP_LENGTH_BYTES = 8
UNIT = 2  # bytes


def body_at(model_bytes: int) -> int:
    return CODEBOOK_AT + model_bytes


def top(archive: bytes | bytearray, model_bytes: int) -> tuple[int, int]:
    """Where the archive of the top begins and ends, where there is no lossless stage; it may end beyond the archive."""
    at = body_at(model_bytes)
    (length,) = struct.unpack_from("<Q", archive, at)
    return at + TOP_LENGTH_BYTES, at + TOP_LENGTH_BYTES + length


def index_at(archive: bytes | bytearray, model_bytes: int) -> int:
    _, end = top(archive, model_bytes)
    return end + -(end - body_at(model_bytes)) % 4


def tiles(archive: bytes | bytearray, model_bytes: int, n_tiles: int) -> list[tuple[int, int]]:
    """Offset and bytes of every tile's payload, where there is no lossless stage; 0 bytes where an index should be that
    lies beyond the archive."""
    begin = index_at(archive, model_bytes)
    at, found = begin + (n_tiles + 1) // 2 * 4, []
    index = bytes(archive[begin : begin + 2 * n_tiles]).ljust(2 * n_tiles, b"\0")
    for units in struct.unpack(f"<{n_tiles}H", index):
        found.append((at, UNIT * units))
        at += UNIT * units
    return found


def parts(archive: bytes | bytearray, model_bytes: int, n_tiles: int) -> list[tuple[bytes, int]]:
    """What the payload checksum covers, and how many units of it."""
    places = [*tiles(archive, model_bytes, n_tiles)]
    begin, end = body_at(model_bytes), index_at(archive, model_bytes)
    places.append((begin, end - begin))
    return [(bytes(archive[at : at + size]), size // UNIT) for at, size in places]
