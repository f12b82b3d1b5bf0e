"""One Writer at a time for a file: two would spoil each other's steps, which nobody sees until they are read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import weakref
from pathlib import Path

from cusz_core.errors import CuszError

from ..tables.checks import CHECKS_FILE

_IN_USE = (
    "another Writer has it open: that of a job which has not ended, one of this program that is not closed, or that of "
    "another rank if ranks do not pass their communicator (comm=)"
)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class Claim:
    """Keeps other Writers from a file until it is released, or the process ends.

    The folder is locked, which lasts when ADIOS2 deletes what is in it, and so is `cusz.checks`, because parallel file
    systems pass on locks of files to other nodes, but not those of folders. Where there are no locks, nothing is kept.
    """

    def __init__(self, folder: Path) -> None:
        """
        Args:
            folder: with ADIOS2's files and `cusz.checks` in it, if they are there.

        Raises:
            CuszError: another Writer has claimed it.
        """
        self._folder = folder
        self._descriptors: dict[Path, int] = {}
        self.release = weakref.finalize(self, _release, self._descriptors)
        for path, flags in ((folder, os.O_RDONLY | os.O_DIRECTORY), (folder / CHECKS_FILE, os.O_RDWR)):
            try:
                self._descriptors[path] = os.open(path, flags | os.O_CLOEXEC)
                fcntl.flock(self._descriptors[path], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.release()
                raise CuszError(_IN_USE) from None
            except OSError:
                continue  # not there, or on a file system without locks

    def disown(self) -> None:
        """Gives up, in a child made by fork, the lock that the child has as well: it would outlive its parent."""
        for descriptor in self._descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._descriptors.clear()

    def require_folder(self) -> None:
        """Makes sure that the folder is where it was: ADIOS2 writes on to files that nobody can find any more.

        Raises:
            CuszError: it is not.
        """
        claimed = self._descriptors.get(self._folder)
        try:
            if claimed is None or os.path.samestat(os.fstat(claimed), os.stat(self._folder)):
                return
        except OSError as error:
            if error.errno not in _GONE:
                return  # it cannot be told
        raise CuszError("the folder was removed, renamed or replaced while it was written")


def _release(descriptors: dict[Path, int]) -> None:
    for descriptor in descriptors.values():
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a child that is about to start another program
            os.close(descriptor)
