"""Archives in the data files of a BP5 file that a Writer wrote, read without ADIOS2.

ADIOS2 has no call that returns a block as it is stored: the plugin has to be asked to decode it, into memory of the
block's size that ADIOS2 fills with zeros first, one block at a time. But a Writer puts the blocks of a rank one after
the other, in the order of the variables' names; so where an archive lies follows from where the rank's data begin,
which ADIOS2's index says, and from lengths in block tables. How ADIOS2 (2.10 to 2.12) arranges data is not documented,
so what is read is compared with what must be there; where it differs, ADIOS2 has to be asked.
"""

from __future__ import annotations

import errno
import itertools
import os
import resource
import struct
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plugin import PLUGIN_LIBRARY, PLUGIN_NAME
from ..tables import checks, metadata

#: Data files that the process keeps open, for all Readers together: this fraction of its limit on descriptors, because
#: the program, ADIOS2 and other libraries need some, too; and at most _MAX_OPEN, because reopening them is quick.
_PART_OF_DESCRIPTORS = 8
_MAX_OPEN = 1024
_COMPARED = 1 << 16  # bytes at the end of metadata that tell whether a file is still the same
# Archives that are read in one call: bytes of each, bytes between two of them, and their number.
_MAX_SMALL = 1 << 16
_MAX_GAP = 1 << 10
_MAX_IN_RUN = 256
_ALIGNED = 64  # offset of an archive in its memory: decoding is faster if it is aligned


def _parameter(key: str, value: str) -> bytes:
    return b"".join(struct.pack("B", len(text)) + text.encode() for text in (key, value))


#: What ADIOS2 puts before an archive.
_PREFIX = b"5\x01\0\0\x02" + _parameter("PluginLibrary", PLUGIN_LIBRARY) + _parameter("PluginName", PLUGIN_NAME)


class Place(NamedTuple):
    """Where bytes lie: the number of a data file, and an offset in it."""

    file: int
    offset: int


class StepLayout:
    """Where the blocks of a step's variables begin, relative to the data of the rank that put them.

    Attributes:
        step: the step.
        places: of the blocks of each variable that has been added.
    """

    def __init__(self, step: int, ranks: int) -> None:
        self.step = step
        self.places: dict[str, NDArray[np.int64]] = {}
        self._ends = np.zeros(ranks, np.int64)

    def add(
        self,
        name: str,
        rank: NDArray[np.int64],
        stored_bytes: NDArray[np.int64],
        value_bytes: int,
        has_operator: bool,
    ) -> None:
        """Adds the next variable, in the order in which they are put.

        Args:
            rank: that put each block, ascending; stored_bytes: of each block. Both in the order of its block table.
            value_bytes: of its type.
            has_operator: whether the plugin has stored the blocks.
        """
        taken = stored_bytes + (len(_PREFIX) if has_operator else 0)
        # Every block is aligned to its type, relative to where the rank's data begin.
        aligned = -(-taken // value_bytes) * value_bytes
        before = np.cumsum(aligned) - aligned
        is_first = np.r_[True, rank[1:] != rank[:-1]][: len(rank)]
        of_first = np.maximum.accumulate(np.where(is_first, np.arange(len(rank)), 0))
        begin = -(-self._ends[rank] // value_bytes) * value_bytes
        places = begin + before - before[of_first]
        self.places[name] = places
        self._ends[rank] = places + taken  # in order: the last block of a rank counts


class _File:
    """An open file of a DataFiles. It is closed when nothing refers to it any more, because a read may go on after it
    is no longer kept, or while a Reader is closed."""

    def __init__(self, path: Path, owner: DataFiles, number: int) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._owner = weakref.ref(owner)
        self._number = number

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)

    def forget(self) -> None:
        """Makes its DataFiles drop it."""
        owner = self._owner()
        if owner is not None and owner._opened.get(self._number) is self:
            del owner._opened[self._number]


class _Kept:
    """The files that all DataFiles of the process keep open: those that were used last.

    References are weak, so that the files of a DataFiles are closed when it is dropped.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()  # also guards every DataFiles' own files; never held while a file is opened
        self._files: dict[int, weakref.ref[_File]] = {}  # by descriptors, most recently used last
        # Another thread may have held the lock when the process was forked, and is not there to release it.
        os.register_at_fork(after_in_child=self._renew_lock)

    def use(self, file: _File) -> None:
        """Notes that the file is the one used last; the lock is held."""
        is_new = self._files.pop(file.descriptor, None) is None
        self._files[file.descriptor] = weakref.ref(file)
        if is_new:
            self._reduce(_max_kept())

    def close(self) -> bool:
        """Drops all files. Returns whether there were any."""
        with self.lock:
            return self._reduce(0)

    def _reduce(self, most: int) -> bool:
        self._files = {number: file for number, file in self._files.items() if file() is not None}
        surplus = list(self._files)[: max(len(self._files) - most, 0)]
        for number in surplus:
            file = self._files.pop(number)()
            if file is not None:
                file.forget()
        return bool(surplus)

    def _renew_lock(self) -> None:
        self.lock = threading.Lock()


_kept = _Kept()


def close_kept() -> bool:
    """Closes the data files that are only kept for later reads, to free descriptors for something else.

    Returns:
        Whether there were any.
    """
    return _kept.close()


def _max_kept() -> int:
    """Not cached, because ADIOS2 raises the limit when it opens a file, and a program may lower it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_OPEN
    return max(min(soft // _PART_OF_DESCRIPTORS, _MAX_OPEN), 1)


class DataFiles:
    """The data files of a BP5 file. Threads may read at the same time.

    Attributes:
        bytes_read: of archives, so far.
    """

    def __init__(self, folder: Path) -> None:
        """A folder that is no BP5 file has no data."""
        self._folder = folder
        self._steps = _steps_of(folder)
        self._opened: dict[int, _File] = {}  # as far as they are kept
        self.bytes_read = 0

    def starts(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Where the data of every rank begin at a step: numbers of files, and offsets; None if that is not known."""
        return self._steps[step] if 0 <= step < len(self._steps) else None

    def archive(self, place: Place, n_bytes: int, begun: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The archive at a place, or its first bytes; None if no block of the plugin is there.

        Args:
            place: where the block begins.
            n_bytes: how many bytes of the archive to return, from the first one.
            begun: the first of them, if they are already known; they are not read again.
        """
        if place.offset < 0:  # preadv might take it for something else
            return None
        memory = np.empty(_ALIGNED + n_bytes, np.uint8)
        stored = memory[_ALIGNED - len(_PREFIX) :]
        known = 0
        if begun is not None:
            known = len(_PREFIX) + begun.nbytes
            stored[: len(_PREFIX)] = np.frombuffer(_PREFIX, np.uint8)
            stored[len(_PREFIX) : known] = begun
        try:
            file = self._file(place.file)
            read = known
            while read < stored.nbytes:  # in pieces of at most 2 GiB
                n = os.preadv(file.descriptor, [stored[read:].data], place.offset + read)
                if n <= 0:
                    return None
                read += n
        except OSError:
            return None
        with _kept.lock:
            self.bytes_read += read - max(known, len(_PREFIX))
        return memory[_ALIGNED:] if stored[: len(_PREFIX)].tobytes() == _PREFIX else None

    def archives(
        self, files: Sequence[int], offsets: Sequence[int], n_bytes: Sequence[int]
    ) -> list[NDArray[np.uint8] | None]:
        """`archive` of many places. Small ones that lie close to each other are read in one call of the system."""
        found: list[NDArray[np.uint8] | None] = []
        while (i := len(found)) < len(files):
            end = i + 1
            while end < len(files) and end - i < _MAX_IN_RUN and files[end] == files[i]:
                gap = offsets[end] - offsets[end - 1] - len(_PREFIX) - n_bytes[end - 1]
                if not 0 <= gap <= _MAX_GAP or max(n_bytes[end - 1], n_bytes[end]) > _MAX_SMALL:
                    break
                end += 1
            is_run = end - i > 1 and offsets[i] >= 0  # preadv might take -1 for something else
            run = self._run(files[i], offsets[i:end], n_bytes[i:end]) if is_run else None
            found += run or [self.archive(Place(files[i], offsets[i]), n_bytes[i])]
        return found

    def _run(
        self, number: int, offsets: Sequence[int], n_bytes: Sequence[int]
    ) -> list[NDArray[np.uint8] | None] | None:
        """Archives that lie one after the other in a file; None if it ends before they do."""
        ends = [0, *(begin + len(_PREFIX) + n - offsets[0] for begin, n in zip(offsets, n_bytes, strict=True))]
        # Each archive is put at an aligned place, directly behind what the file has before it, which ends in _PREFIX.
        gaps = [b - a - n for (a, b), n in zip(itertools.pairwise(ends), n_bytes, strict=True)]
        places, place = [], 0
        for gap, n in zip(gaps, n_bytes, strict=True):
            place = -(-(place + gap) // _ALIGNED) * _ALIGNED
            places.append(place)
            place += n
        memory = np.empty(place, np.uint8)
        whole = memory.data
        try:
            pieces = [whole[p - gap : p + n] for p, gap, n in zip(places, gaps, n_bytes, strict=True)]
            if os.preadv(self._file(number).descriptor, pieces, offsets[0]) != ends[-1]:
                return None
        except OSError:
            return None
        with _kept.lock:
            self.bytes_read += sum(n_bytes)
        return [
            memory[p : p + n] if whole[p - len(_PREFIX) : p] == _PREFIX else None
            for p, n in zip(places, n_bytes, strict=True)
        ]

    def close(self) -> None:
        with _kept.lock:
            self._steps = []
            self._opened = {}

    def _file(self, number: int) -> _File:
        with _kept.lock:
            file = self._opened.get(number)
            if file is not None:
                _kept.use(file)
                return file
        file = self._open(number)
        with _kept.lock:
            if self._steps:  # not closed meanwhile
                file = self._opened.setdefault(number, file)  # another thread may have been faster
                _kept.use(file)
        return file

    def _open(self, number: int) -> _File:
        path = self._folder / f"data.{number}"
        try:
            return _File(path, self, number)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not close_kept():
                raise
        return _File(path, self, number)


class MetadataFiles:
    """Tells whether a folder still has the file that was opened, to which a program may have added steps.

    ADIOS2 (2.12) reads the data of a file that was written again where those of the former one were, and takes what is
    there for them: it crashes, or returns other values.
    """

    def __init__(self, folder: Path) -> None:
        self._index = folder / metadata.INDEX
        self._ends = {file: _end_of(file) for file in (self._index, folder / "md.0", folder / checks.CHECKS_FILE)}
        self._known = self._state()

    def are_the_same(self) -> bool:
        """Whether it has them; also if it has none any more, because what is open can still be read."""
        state = self._state()
        if state is None or state == self._known:
            return True
        if any(_end_of(file, *known[:2]) != known for file, known in self._ends.items()):
            return False
        self._known = state
        return True

    def _state(self) -> tuple[int, ...] | None:
        """Changes with the index; None if there is none."""
        try:
            found = self._index.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _end_of(file: Path, begin: int | None = None, end: int = 0) -> tuple[int, int, bytes]:
    """Some of the last bytes of a file (the first ones of its header change while it grows), and where they begin and
    end; or those between two places."""
    try:
        with open(file, "rb") as opened:
            if begin is None:
                end = opened.seek(0, os.SEEK_END)
                begin = max(end - _COMPARED, metadata.HEADER_BYTES)
            opened.seek(begin)
            return begin, end, opened.read(max(end - begin, 0))
    except OSError:
        return 0, 0, b""


def has_several_writers(folder: Path) -> bool:
    """Whether several programs wrote the steps of a BP5 file, as far as its index or a Writer's record tells.

    Unless the same ranks have put a variable in each, ADIOS2 (2.12) crashes when it reads the file as a stream, or
    reports blocks that do not exist. It can read single steps (SelectSteps).
    """
    kinds = [record.kind for record in metadata.index_records(folder)]
    return kinds.count(b"w") > 1 or (bool(kinds) and checks.is_continued(folder, kinds.count(b"s")))


def has_steps(folder: Path) -> bool:
    """Whether a file of BP5 or BP4 may have complete steps: ADIOS2 writes the index last; it begins with a header."""
    index, of_steps = folder / metadata.INDEX, folder / "md.0"
    if not index.exists():
        return of_steps.exists() and of_steps.stat().st_size > 0
    n_steps = metadata.count_steps(folder)
    return index.stat().st_size > metadata.HEADER_BYTES if n_steps is None else n_steps > 0


def _steps_of(folder: Path) -> list[Any]:
    """Where the data of every rank begin, for every step in ADIOS2's index; empty if the index is of another kind."""
    steps: list[Any] = []
    files = np.empty(0, np.int64)
    for kind, numbers, *_ in metadata.index_records(folder):
        if kind == b"w":  # which file each rank writes to
            files = numbers[3:]
        else:
            # If the ranks' data were written in several pieces, one would have to know which block is in which.
            is_whole = numbers[2] == 0 and len(numbers) == 3 + len(files)
            steps.append((files, numbers[3:]) if is_whole else None)
    return steps
