"""Checksums of what has none in an ADIOS2 file: ADIOS2's metadata, which crashes readers if damaged, and block tables.

They lie in the .bp folder, in `cusz.checks`: for every step a line of JSON and its own CRC-32, written when the step is
complete, and one more when the file is closed. ADIOS2 only adds to its metadata, so that the last line is enough, and
what is behind what it covers (a step that was not complete, or steps of somebody else) is not checked.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from cusz_core.errors import CorruptArchiveError

__all__ = ["CHECKS_FILE", "Recorder", "verify"]

CHECKS_FILE = "cusz.checks"
_METADATA = ("mmd.0", "md.0", "md.idx")
_PIECE = 1 << 24  # bytes read at once


class Recorder:
    """Adds lines to the checksums of a file."""

    def __init__(self, path: Path, append: bool) -> None:
        """
        Args:
            path: the .bp folder.
            append: after the lines that are there; a last one that is not whole goes.
        """
        self._path = path
        self._known: dict[str, tuple[int, int]] = {}
        checks = path / CHECKS_FILE
        before = checks.read_bytes() if append and checks.exists() else b""
        self._file: BinaryIO | None = open(checks, "wb", buffering=0)  # noqa: SIM115
        self._file.write(before[: before.rfind(b"\n") + 1])

    def record(self, step: int | None = None, tables: Mapping[str, int] | None = None) -> None:
        """A line for a step, with the CRC-32 of its block tables; without a step, that for a file that is closed.

        If it cannot be written, none is any more: those before it stay good.
        """
        if self._file is None:
            return
        try:
            for name in _METADATA:
                if (self._path / name).exists():
                    self._known[name] = _crc_of(self._path / name, *self._known.get(name, (0, 0)))
            line: dict[str, Any] = {"metadata": self._known}
            if step is None:
                line["data"] = {data.name: data.stat().st_size for data in sorted(self._path.glob("data.*"))}
            else:
                line |= {"step": step, "tables": dict(tables or {})}
            text = json.dumps(line).encode()
            self._file.write(b"%s %d\n" % (text, zlib.crc32(text)))
        except OSError:
            self.close()

    def close(self) -> None:
        """No more lines."""
        if self._file is not None:
            self._file.close()
            self._file = None


def verify(path: Path) -> dict[tuple[int, str], int]:
    """The CRC-32 of block tables, by step and variable, of a file whose metadata is as it was written.

    Nothing is known, and nothing verified, of a file without checksums.

    Raises:
        CorruptArchiveError: the metadata or the checksums are damaged, or the file is not whole.
    """
    checks = path / CHECKS_FILE
    if not checks.exists():
        return {}
    tables: dict[tuple[int, str], int] = {}
    line: dict[str, Any] = {}
    for whole in checks.read_bytes().split(b"\n")[:-1]:
        text, _, crc = whole.rpartition(b" ")
        if not crc.isdigit() or zlib.crc32(text) != int(crc):
            raise CorruptArchiveError(f"{str(checks)!r} is damaged: remove it to read the file without these checksums")
        line = json.loads(text)
        tables |= {(line["step"], name): crc for name, crc in line.get("tables", {}).items()}
    for name, (size, crc) in line.get("metadata", {}).items():
        if not (path / name).exists() or _crc_of(path / name, 0, 0, size) != (size, crc):
            raise CorruptArchiveError(
                f"{str(path)!r}: {name} is damaged (if a program other than a Writer has written the file anew, remove "
                f"{CHECKS_FILE})"
            )
    for name, size in line.get("data", {}).items():
        if not (path / name).exists() or (path / name).stat().st_size < size:
            raise CorruptArchiveError(f"{str(path)!r}: {name} has less than its {size} bytes: it is not whole")
    return tables


def _crc_of(file: Path, start: int, crc: int, end: int | None = None) -> tuple[int, int]:
    """Where a file ends, at most at `end`, and its CRC-32, going on from that of the bytes before `start`."""
    # A byte of the index says whether the file is being written: it does not count.
    flag = (39 if (file.parent / "mmd.0").exists() else 38) if file.name == "md.idx" else -1
    with open(file, "rb") as opened:
        opened.seek(start)
        while piece := bytearray(opened.read(_PIECE if end is None else min(_PIECE, end - start))):
            if 0 <= flag - start < len(piece):
                piece[flag - start] = 0
            crc = zlib.crc32(piece, crc)
            start += len(piece)
    return start, crc
