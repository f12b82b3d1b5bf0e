"""Locks that are free in a process that `os.fork` makes.

Only the thread that forks goes on in the child: a lock that another thread holds at that moment would never be released
there. So a fork waits until no other thread holds one of these; what they guard is then complete in the child, too.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Literal, TypeVar

_Lock = TypeVar("_Lock")

#: In this order, in which threads take several of them.
_KINDS = ("contents", "input", "innermost")
_locks: dict[str, weakref.WeakSet[Any]] = {kind: weakref.WeakSet() for kind in _KINDS}
#: How long a fork waits for a lock. A finalizer may take locks in any order, so that its thread and the one that forks
#: could wait for each other.
_MOST_SECONDS = 10
_guard = threading.Lock()  # of what is kept here; held while the process forks
_held: list[Any] = []


def free_after_fork(lock: _Lock, kind: Literal["contents", "input", "innermost"]) -> _Lock:
    """The lock, which a fork will wait for.

    Args:
        lock: of `threading`.
        kind: a thread that holds one lock may wait for those of the kinds that follow, not for those before.
    """
    with _guard:
        _locks[kind].add(lock)
    return lock


def _before() -> None:
    _guard.acquire()
    for kind in _KINDS:
        for lock in list(_locks[kind]):
            if lock.acquire(timeout=_MOST_SECONDS):
                _held.append(lock)


def _after() -> None:
    while _held:
        _held.pop().release()
    _guard.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
