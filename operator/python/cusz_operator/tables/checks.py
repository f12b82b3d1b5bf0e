"""What a Writer keeps besides ADIOS2's files: checksums of what has none there, and what was asked for at every step.

Checksums cover ADIOS2's metadata, which crashes readers if damaged, and block tables. All of this is in `cusz.checks`
in the .bp folder: for every step a line of JSON and the line's CRC-32, written when the step is complete, and one more
line when the file is closed. ADIOS2 only appends to its metadata, so for these the last line is enough; anything after
what it covers (an incomplete step, or steps by another program) is not checked.

Lines also have the sizes of the data files: all lines if these are few, else only the last one. Where data that the
index tells of are missing (a node has lost its power, or the file was copied while it was written), ADIOS2 (2.12) waits
for them for ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from cusz_core.errors import CorruptArchiveError, CuszError

from . import metadata

CHECKS_FILE = "cusz.checks"
_METADATA = (metadata.FORMATS, "md.0", metadata.INDEX)
_PIECE = 1 << 24  # bytes read at once
_FEW_FILES = 64  # data files, whose sizes are recorded at every step: each takes a question to the file system
_BYTES_AT_ONCE = 1 << 20  # of metadata: for the checksum of more, the program does not wait


class VariableRecord(NamedTuple):
    """What was asked of a Writer for a variable at a step, and what it did.

    Attributes:
        eb, mode: the bound as it was asked for, or a goal's value and its name ("psnr", "ratio", "budget_bytes"); block
            tables have the absolute bound that follows from it.
        predictors: the number of blocks coded with each predictor. Blocks stored raw have none.
    """

    eb: float
    mode: str
    predictors: Mapping[str, int]


class Recorder:
    """Appends lines to the checksums of a file.

    If a step adds much metadata, as with very many ranks, a thread computes its checksums while the program goes on,
    and the line is written before that of the next step, or before the file is closed.
    """

    def __init__(self, path: Path, kept_steps: int) -> None:
        """
        Args:
            path: the .bp folder.
            kept_steps: number of steps of an existing file to which others are appended: their lines stay.
        """
        self._path = path
        self._known: dict[str, tuple[int, int]] = {}
        self._variables: dict[str, VariableRecord] = {}  # as last written
        self._thread: threading.Thread | None = None
        checks = path / CHECKS_FILE
        before = _lines_before(checks, kept_steps)
        self._file: BinaryIO | None = open(checks, "ab", buffering=0)  # noqa: SIM115
        self._file.truncate(len(before))  # not written again: the disk may be full
        if b'"step"' in before[before[:-1].rfind(b"\n") + 1 :]:  # the program was killed: as if it had closed it
            self.record()

    def record(
        self,
        step: int | None = None,
        tables: Mapping[str, int] | None = None,
        variables: Mapping[str, VariableRecord] | None = None,
    ) -> None:
        """Writes the line of a step, with the CRC-32 of its block tables; without a step, that of a closed file.

        Only variables for which something has changed are written. If a line cannot be written, no more are: the
        earlier ones stay valid.
        """
        self._wait()
        if self._file is None:
            return
        try:
            files = {name: self._path / name for name in _METADATA}
            sizes = {name: file.stat().st_size for name, file in files.items() if file.exists()}
            data = sorted(self._path.glob("data.*"))
            line: dict[str, Any] = {}
            if step is None or len(data) <= _FEW_FILES:
                line["data"] = {file.name: file.stat().st_size for file in data}
            if step is not None:
                changed = {name: own for name, own in (variables or {}).items() if self._variables.get(name) != own}
                line |= {"step": step, "tables": dict(tables or {})}
                line["variables"] = {name: own._asdict() for name, own in changed.items()}
                self._variables |= changed
        except OSError:
            self._end()
            return
        added = sum(sizes.values()) - sum(size for size, _ in self._known.values())
        if step is not None and added > _BYTES_AT_ONCE:
            self._thread = threading.Thread(target=self._write, args=(sizes, line), name="cusz_operator checks")
            self._thread.start()
        else:
            self._write(sizes, line)

    def close(self) -> None:
        """Ends the file of checksums."""
        self._wait()
        self._end()

    def _write(self, sizes: Mapping[str, int], line: Mapping[str, Any]) -> None:
        """Writes a line, with the checksums of metadata up to these sizes."""
        assert self._file is not None
        try:
            for name, size in sizes.items():
                self._known[name] = _crc_of(self._path / name, *self._known.get(name, (0, 0)), size)
            text = json.dumps({"metadata": self._known, **line}).encode()
            self._file.write(b"%s %d\n" % (text, zlib.crc32(text)))
        except (OSError, MemoryError, ValueError):  # ValueError: a file is shorter than before, so it is another one
            self._end()

    def _wait(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Verified(NamedTuple):
    """What is known of a file whose metadata are right.

    Attributes:
        tables: the CRC-32 of its block tables, by step and variable.
        lacking: the first step whose data are not all there; None: those of all steps are, as far as is known.
        why: what is missing, in words.
    """

    tables: dict[tuple[int, str], int]
    lacking: int | None
    why: str


def verify(path: Path, *, may_end_in_part: bool = False, may_lack_data: bool = False) -> Verified:
    """Verifies a file's metadata, and the sizes of its data.

    Of a file without checksums, only the lengths of BP5's formats are verified.

    Args:
        may_end_in_part: the formats may end in a part of a record, with which ADIOS2 (2.12) crashes.
        may_lack_data: data may be missing.

    Raises:
        CorruptArchiveError: the metadata or the checksums are damaged, or the file is truncated.
        CuszError: they cannot be read.
    """
    with _reading(path):
        found = _verified(path, may_end_in_part)
    if found.lacking is not None and not may_lack_data:
        raise CorruptArchiveError(found.why)
    return found


def _verified(path: Path, may_end_in_part: bool) -> Verified:
    tables: dict[tuple[int, str], int] = {}
    line: dict[str, Any] = {}
    lines = list(_lines(path / CHECKS_FILE))
    for line in lines:
        tables |= {(line["step"], name): crc for name, crc in line.get("tables", {}).items()}
    for name, (size, crc) in line.get("metadata", {}).items():
        if not (path / name).exists() or _crc_of(path / name, 0, 0, size) != (size, crc):
            raise CorruptArchiveError(
                f"{str(path)!r}: {name} is damaged (if a program other than a Writer has rewritten the file, remove "
                f"{CHECKS_FILE})"
            )
    if (path / metadata.FORMATS).exists():
        recorded, _ = line.get("metadata", {}).get(metadata.FORMATS, (0, 0))
        _require_formats(path, recorded, may_end_in_part)
    return Verified(tables, *_lacking(path, lines))


def _lacking(path: Path, lines: Iterable[Mapping[str, Any]]) -> tuple[int | None, str]:
    """The first step whose data are not all there, and what is missing."""
    sizes: dict[str, int] = {}
    step = None
    for line in lines:
        step = line.get("step", step) if "data" in line else None
        for name, size in line.get("data", {}).items():
            if sizes.get(name, -1) < size:
                sizes[name] = _size_of(path / name, size)
            if sizes[name] < size:
                can_drop = step is not None and metadata.is_bp5(path)
                remedy = f". A Writer that appends with AppendAfterSteps = {step} drops this step and later ones"
                return step or 0, (
                    f"{str(path)!r}: {name} has {sizes[name]} bytes, and the data of "
                    f"{'the last step' if step is None else f'step {step}'} end at {size}: it was truncated, or "
                    f"copied while it was written, or a node has lost its power{remedy if can_drop else ''}"
                )
    return None, ""


def _size_of(file: Path, wanted: int) -> int:
    """The size of a file; 0 if it is missing."""
    try:
        size = file.stat().st_size
        if size < wanted:  # NFS may tell a former size until the file is opened
            with open(file, "rb") as opened:
                size = opened.seek(0, os.SEEK_END)
    except FileNotFoundError:
        return 0
    return size


def _require_formats(path: Path, recorded: int, may_end_in_part: bool) -> None:
    """Raises an error if the records of mmd.0 are not whole.

    Args:
        recorded: how many bytes it has had when a step was complete.
    """
    size = (path / metadata.FORMATS).stat().st_size  # before it is read: it may grow
    end = metadata.formats_end(path)
    if end < recorded:
        raise metadata.no_record(path, metadata.FORMATS, end)
    if end < size and not may_end_in_part:
        raise CorruptArchiveError(
            f"{str(path)!r}: mmd.0 ends in a part of a record, with which ADIOS2 crashes: its program was killed, or "
            "the disk was full. If no program writes the file now, cusz_operator.repair(path) cuts the part off, as "
            f"truncating mmd.0 to {end} bytes does"
        )


def keep_steps(path: Path, n_steps: int) -> None:
    """Drops the lines of later steps, whose metadata are about to be cut off."""
    known = path / CHECKS_FILE
    if known.exists():
        os.truncate(known, len(_lines_before(known, n_steps)))


def records(path: Path) -> dict[tuple[int, str], VariableRecord]:
    """What the Writers of a file were asked for, by step and variable; nothing for steps of an older version.

    Raises:
        CorruptArchiveError: the file of checksums is damaged.
        CuszError: it cannot be read.
    """
    found: dict[tuple[int, str], VariableRecord] = {}
    latest: dict[str, VariableRecord] = {}
    with _reading(path):
        lines = list(_lines(path / CHECKS_FILE))
    for line in lines:
        if "step" not in line:
            continue
        if "variables" not in line:  # an older version, which does not say what has changed
            latest.clear()
        for name, own in line.get("variables", {}).items():
            latest[name] = VariableRecord(own["eb"], own["mode"], own["predictors"])
        found |= {(line["step"], name): latest[name] for name in line["tables"] if name in latest}
    return found


def is_continued(path: Path, n_steps: int) -> bool:
    """Whether another program, or a Writer that opened it again, has appended steps to a Writer's file.

    Args:
        n_steps: number of steps in the file.

    Raises:
        CorruptArchiveError: the file of checksums is damaged.
        CuszError: it cannot be read.
    """
    with _reading(path):
        are_steps = ["step" in line for line in _lines(path / CHECKS_FILE)]
    return bool(are_steps) and (sum(are_steps) < n_steps or not all(are_steps[: sum(are_steps)]))


def crc_before(crc: int, n_bytes: int) -> int:
    """What a part of a table contributes to the whole table's CRC-32, which is the exclusive or of all contributions.

    Args:
        crc: of the part.
        n_bytes: how many bytes come after it.
    """
    # A CRC is the remainder of a polynomial over GF(2) whose term 1 is bit 31: each byte after it multiplies it by x^8.
    power = 1 << (31 - 8)
    while n_bytes:
        if n_bytes & 1:
            crc = _product(crc, power)
        power = _product(power, power)
        n_bytes >>= 1
    return crc


def _product(a: int, b: int) -> int:
    """The product of two polynomials, modulo that of CRC-32."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (0xEDB88320 if b & 1 else 0)
    return product


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # no descriptors left, no permission, a disk that fails
        raise CuszError(f"cannot read {str(path)!r}: {error}") from error


def _lines(checks: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a file of checksums; none if there is no such file."""
    if not checks.exists():
        return
    for whole in checks.read_bytes().split(b"\n")[:-1]:
        text, _, crc = whole.rpartition(b" ")
        if not crc.isdigit() or zlib.crc32(text) != int(crc):
            raise CorruptArchiveError(f"{str(checks)!r} is damaged: remove it to read the file without these checksums")
        line: dict[str, Any] = json.loads(text)
        yield line


def _lines_before(checks: Path, step: int) -> bytes:
    """The complete lines before a step's: from that step on, ADIOS2 has dropped the metadata."""
    kept = []
    for whole in checks.read_bytes().split(b"\n")[:-1] if step > 0 and checks.exists() else ():
        line: dict[str, Any] = json.loads(whole.rpartition(b" ")[0])
        if line.get("step", -1) >= step:
            break
        kept.append(whole + b"\n")
    return b"".join(kept)


def _crc_of(file: Path, start: int, crc: int, end: int | None = None) -> tuple[int, int]:
    """The size of a file, up to `end`, and its CRC-32, continued from `crc`, the CRC of the bytes before `start`."""
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
