"""What a Writer cuts off from the files of a folder before it appends steps to it.

A program that is killed, or a disk that is full, leaves at the end of each file a part of the step that was being
written. ADIOS2 (2.12) appends behind it, and says nothing. It writes a step in this order:

- `data.*`: where a step's data begin is said in the index, so data of no step do no harm. They stay.
- `mmd.0` (BP5; only if there is a new format of metadata, as with a new variable): a part of a record crashes every
  reader, and makes what follows unreadable. No complete step needs it. A whole one that no step uses does no harm.
- `md.0`: in BP5, metadata that are not in the index, whole or not, make all steps unreadable once others follow; in BP4
  the index says where a step's are, and they do no harm.
- `md.idx`, the index: a step is complete once its record is whole. Behind a part of one, no other is found.
- `cusz.checks`: the line of a step may be there before the index is, if ADIOS2 writes in the background. Part of a line
  is ignored.

The same holds for steps that `AppendAfterSteps` drops. Files are cut in such an order that what is left can be read at
every moment, because this program may be killed, too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cusz_core.errors import CorruptArchiveError, CuszError

from ..reading import datafiles
from ..tables import checks, metadata
from .claim import Claim


def repair(path: str | os.PathLike[str]) -> None:
    """Cuts off what a killed program, or a full disk, has left of an incomplete step, before any program appends to it.

    A Writer with `append=True` does this by itself. Complete steps are not touched. The program that writes the file
    must have ended: only a Writer is noticed that has not.

    Args:
        path: the .bp folder (BP5 or BP4).

    Raises:
        FileNotFoundError: there is no such folder, or no index of BP5 or BP4 in it.
        CuszError: it has no complete step, a Writer has it open, or its files cannot be written to.
        CorruptArchiveError: a file is damaged, not only cut off.
    """
    folder = Path(path)
    if not (folder / metadata.INDEX).exists():
        raise FileNotFoundError(f"{os.fspath(path)!r} is no file of BP5 or BP4: there is no {metadata.INDEX} in it")
    try:
        claim = Claim(folder)
        try:
            cut_incomplete_step(folder)
        finally:
            claim.release()
        if not datafiles.has_steps(folder):
            raise CuszError("it has no complete step: remove it")
    except CorruptArchiveError:
        raise
    except CuszError as error:
        raise CuszError(f"cannot repair {os.fspath(path)!r}: {error}") from None


def cut_incomplete_step(folder: Path, kept: int = -1) -> None:
    """Cuts off what a step that is not complete has left.

    Args:
        kept: how many of the complete steps are to be kept, as in `keep_steps`.

    Raises:
        CorruptArchiveError: a file is damaged, not only cut off, or lacks data of a step that is to be kept: what is
            appended would lie where these were.
        CuszError: the files cannot be written to.
    """
    found = checks.verify(folder, may_end_in_part=True, may_lack_data=True)
    if found.lacking is not None and _number_kept(kept, metadata.count_steps(folder) or 0) > found.lacking:
        raise CorruptArchiveError(found.why)
    with _cutting("a step that is not complete"):
        if (folder / metadata.FORMATS).exists():
            _cut(folder / metadata.FORMATS, metadata.formats_end(folder))
        end = metadata.index_end(folder)
        if end is not None:
            _cut_index(folder, end)


def keep_steps(folder: Path, kept: int) -> None:
    """Drops all but the first steps of a BP5 file, as ADIOS2 does for `AppendAfterSteps`.

    ADIOS2 itself cuts the data first: if the program is killed then, the index tells of steps that have none.

    Args:
        kept: how many steps to keep; from -1 down: all, all but the last, and so on.

    Raises:
        CuszError: the files cannot be written to.
    """
    with _cutting("steps"):
        records = list(metadata.index_records(folder))
        begins = [record.begin for record in records if record.kind == b"s"]
        kept = _number_kept(kept, len(begins))
        if kept == len(begins):
            return
        ends: dict[int, int] = {}  # of data files
        files = np.empty(0, np.int64)
        for kind, numbers, begin, _ in records:
            if kind == b"w":
                files = numbers[3:]
            elif begin >= begins[kept] and numbers[2] == 0:  # data that were flushed in pieces stay
                for file, place in zip(files.tolist(), numbers[3:].tolist(), strict=True):
                    ends[file] = min(place, ends.get(file, place))
        _cut_index(folder, begins[kept])
        for file, end in ends.items():
            _cut(folder / f"data.{file}", end)


def _number_kept(kept: int, there: int) -> int:
    return min(kept if kept >= 0 else max(there + 1 + kept, 0), there)


def _cut_index(folder: Path, end: int) -> None:
    """Cuts the index; first what has been recorded of steps that it will not have, and then their metadata."""
    index, of_steps = folder / metadata.INDEX, folder / "md.0"
    if not metadata.is_bp5(folder):
        _cut(index, end)
        return
    kept = [record for record in metadata.index_records(folder) if record.kind == b"s" and record.end <= end]
    end_of_steps = max((int(record.numbers[0] + record.numbers[1]) for record in kept), default=0)
    if index.stat().st_size > end or (of_steps.exists() and of_steps.stat().st_size > end_of_steps):
        checks.keep_steps(folder, len(kept))
        _cut(index, end)
        _cut(of_steps, end_of_steps)


def _cut(file: Path, end: int) -> None:
    if file.exists() and file.stat().st_size > end:
        os.truncate(file, end)


@contextlib.contextmanager
def _cutting(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CuszError(f"cannot cut off {what}: {error}") from error
