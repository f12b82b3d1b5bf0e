"""The records of ADIOS2's `md.idx` (the index) and of BP5's `mmd.0` (formats of metadata), and where whole ones end.

A program that is killed, or a disk that is full, leaves a part of a record at the end. ADIOS2 (2.10 to 2.12) does not
expect that: it appends behind the part, and crashes when it reads one in `mmd.0`. Neither file is documented:

- The index begins with 64 bytes. In BP5 a record has a letter ("w": a program and its ranks, "s": a step), the number
  of bytes that follow, and 8-byte integers; in BP4 it has 64 bytes, and is of a step.
- A format has two numbers of 8 bytes, and as many bytes as each says: its identifier (12), and what it describes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cusz_core.errors import CorruptArchiveError

INDEX, METADATA, FORMATS = "md.idx", "md.0", "mmd.0"
HEADER_BYTES = 64
_BP4_RECORD_BYTES = 64
#: What the header says in bytes 36 and 37: little endian, and the version.
_BP4, _BP5 = b"\0\x04", b"\0\x05"
#: A record that claims to be longer is none: something has been appended to a part of one.
_LONGEST, _LONGEST_IDENTIFIER = 1 << 28, 64


class Record(NamedTuple):
    """A record of a BP5 file's index.

    Attributes:
        kind: "w" or "s".
        numbers: of a program: how many ranks, aggregators and data files it has, and the file of every rank. Of a step:
            where its metadata begin in `md.0` and how many bytes they have, in how many pieces its data were flushed,
            and where they begin in the data files, for every rank.
        begin, end: where it lies in the index.
    """

    kind: bytes
    numbers: NDArray[np.int64]
    begin: int
    end: int


def is_bp5(folder: Path) -> bool:
    """Whether there is an index, and it is of a BP5 file."""
    return _index(folder)[36:38] == _BP5


def is_column_major(folder: Path) -> bool:
    """Whether the program that began the file gave dimensions fastest first, as in Fortran. ADIOS2 shows them reversed.

    In BP4 this is in the metadata of the first step, behind the number of pieces that ranks wrote, the bytes that
    describe these, those of the first, and the name of the IO.
    """
    content = _index(folder)
    if content[36:38] != _BP4:
        return content[40:41] == b"y"
    with open(folder / METADATA, "rb") as file:
        file.seek(int.from_bytes(content[HEADER_BYTES + 16 : HEADER_BYTES + 24], "little") + 18)
        file.seek(int.from_bytes(file.read(2), "little"), os.SEEK_CUR)
        return file.read(1) == b"y"


def index_records(folder: Path) -> Iterator[Record]:
    """The whole records of a BP5 file's index; none if it is of another kind."""
    content = _index(folder)
    if content[36:38] != _BP5:
        return
    at = HEADER_BYTES
    while at + 9 <= len(content):
        kind, length = content[at : at + 1], int.from_bytes(content[at + 1 : at + 9], "little")
        begin, at = at, at + 9 + length
        if kind not in (b"w", b"s") or at > len(content) or length % 8 or length < 24:
            return
        yield Record(kind, np.frombuffer(content[begin + 9 : at], "<i8").astype(np.int64), begin, at)


def index_end(folder: Path) -> int | None:
    """Where the last whole record of the index ends; None if there is no index, or one of another kind.

    Raises:
        CorruptArchiveError: what follows is not a part of a record either.
    """
    content = _index(folder)
    if not content and (folder / INDEX).exists():
        return 0  # not even the header is whole
    if content[36:38] == _BP4:
        return len(content) - (len(content) - HEADER_BYTES) % _BP4_RECORD_BYTES
    if content[36:38] != _BP5:
        return None
    end = max((record.end for record in index_records(folder)), default=HEADER_BYTES)
    kind, length = content[end : end + 1], int.from_bytes(content[end + 1 : end + 9], "little")
    left = len(content) - end - 9
    if kind not in (b"", b"w", b"s") or (left >= 0 and (length % 8 or not left < length <= _LONGEST)):
        raise no_record(folder, INDEX, end)
    return end


def count_steps(folder: Path) -> int | None:
    """How many steps are in the index; None if there is no index, or one of another kind."""
    content = _index(folder)
    if content[36:38] == _BP4:
        return (len(content) - HEADER_BYTES) // _BP4_RECORD_BYTES
    return sum(record.kind == b"s" for record in index_records(folder)) if content[36:38] == _BP5 else None


def formats_end(folder: Path) -> int:
    """Where the last whole record of `mmd.0` ends.

    Raises:
        CorruptArchiveError: what follows is not a part of a record either.
        OSError: it cannot be read.
    """
    at = 0
    with open(folder / FORMATS, "rb") as file:
        size = file.seek(0, 2)
        while at + 16 <= size:
            file.seek(at)
            identifier, described = struct.unpack("<QQ", file.read(16))
            if not 0 < identifier <= _LONGEST_IDENTIFIER or described > _LONGEST:
                raise no_record(folder, FORMATS, at)
            if at + 16 + identifier + described > size:
                break
            at += 16 + identifier + described
    return at


def _index(folder: Path) -> bytes:
    """The index; nothing if there is none with a whole header."""
    try:
        content = (folder / INDEX).read_bytes()
    except OSError:
        return b""
    return content if len(content) >= HEADER_BYTES else b""


def no_record(folder: Path, name: str, at: int) -> CorruptArchiveError:
    """The error that a file has something else where a record should begin."""
    return CorruptArchiveError(f"{str(folder)!r}: {name} is damaged: there is no record at byte {at}")
