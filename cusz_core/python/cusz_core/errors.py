"""Exception classes.

Every error of this package is a `CuszError`. Its subclasses follow the status codes of the C library, so that the same
failure has the same kind in C and in Python. Packages that build on this one derive their errors from `CuszError`;
those registered as entry points in the group `cusz.errors` can also be imported from here and from `cusz_core`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import extensions

__all__ = [
    "ArchiveTooNewError",
    "BoundError",
    "CorruptArchiveError",
    "CuszError",
    "DeviceError",
    "OutOfMemoryError",
    "ParameterError",
    "UnsupportedError",
]


class CuszError(Exception):
    """Base of all errors of this package; raised itself only for a defect in the library."""


class ParameterError(CuszError, ValueError):
    """A parameter outside its legal range, or a buffer that does not fit."""


class UnsupportedError(CuszError, TypeError):
    """A type, layout or feature that this library or this build does not have."""


class CorruptArchiveError(CuszError):
    """Not an archive, or a damaged, truncated or inconsistent one."""


class ArchiveTooNewError(CuszError):
    """An archive of a newer format version than this library can read."""


class DeviceError(CuszError, RuntimeError):
    """A compute device is missing or failed."""


class OutOfMemoryError(CuszError, MemoryError):
    """Not enough memory."""


class BoundError(CuszError):
    """A decompressed value breaks the archive's promise: the error bound, or exactness where it is promised.

    Attributes:
        violations: how many values break it.
        index: position of the worst one in the field.
        original, decoded: its two values.
        bound: the absolute error bound; 0 where the value had to come back bit for bit.
    """

    def __init__(
        self,
        message: str,
        *,
        violations: int = 0,
        index: tuple[int, ...] = (),
        original: float = float("nan"),
        decoded: float = float("nan"),
        bound: float = float("nan"),
    ) -> None:
        super().__init__(message)
        self.violations = violations
        self.index = index
        self.original = original
        self.decoded = decoded
        self.bound = bound


if not TYPE_CHECKING:  # otherwise type checkers would accept every misspelt name

    def __getattr__(name: str) -> Any:
        found = extensions.find("cusz.errors", name) if name[:1].isupper() else None  # lower case: a submodule
        if found is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return found.load()
