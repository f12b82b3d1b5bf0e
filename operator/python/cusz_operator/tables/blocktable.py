"""The block table: what is known about every block of a variable at a step, stored next to the variable.

It is an ordinary ADIOS2 variable of doubles, one row per block, in the order of ADIOS2's block numbers: by rank, then
in the order in which the rank put them. The columns depend on the number of dimensions (`columns_of`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cusz_core.errors import CorruptArchiveError

#: Prefix of the names of block tables.
TABLE_PREFIX = "cusz/blocks/"
_BEFORE = ("rank", "step", "device")
_AFTER = ("raw_bytes", "archive_bytes", "eb_abs", "min", "max", "outliers", "checksum", "seconds")
_ROWS = 4096  # of a table, converted at once
_INTEGERS = ("rank", "step", "device", "raw_bytes", "archive_bytes", "outliers", "checksum")


def table_name(variable: str) -> str:
    """The name of a variable's block table."""
    return TABLE_PREFIX + variable


def is_table(name: str) -> bool:
    """Whether a variable of this name is a block table."""
    return name.startswith(TABLE_PREFIX)


def columns_of(ndim: int) -> list[str]:
    """The columns of the table of a variable with `ndim` dimensions."""
    axes = range(ndim)
    return [*_BEFORE, *(f"start{i}" for i in axes), *(f"count{i}" for i in axes), *_AFTER]


def table_dtype(ndim: int) -> np.dtype[Any]:
    """The type of a row, as users get it."""
    fields: list[tuple[str, Any] | tuple[str, Any, tuple[int, ...]]] = []
    for name in (*_BEFORE, "start", "count", *_AFTER):
        if name in ("start", "count"):
            fields.append((name, np.int64, (ndim,)))
        else:
            fields.append((name, np.int64 if name in _INTEGERS else np.float64))
    return np.dtype(fields)


def rows_of(table: NDArray[Any]) -> NDArray[np.float64]:
    """A table of `table_dtype` as it is stored: doubles of shape (blocks, columns)."""
    columns = [np.asarray(table[name], np.float64).reshape(len(table), -1) for name in table.dtype.names or ()]
    return np.ascontiguousarray(np.concatenate(columns, axis=1))


def table_of(rows: NDArray[np.float64], variable: str) -> NDArray[Any]:
    """A stored table as a structured array.

    Raises:
        CorruptArchiveError: it is not a block table.
    """
    extra = len(_BEFORE) + len(_AFTER)
    ndim, odd = divmod(rows.shape[1] - extra, 2)
    whole = [
        i for i, name in enumerate(columns_of(max(ndim, 0))) if name[:5] in ("start", "count") or name in _INTEGERS
    ]
    damaged = CorruptArchiveError(f"the block table of {variable!r} is damaged, or not one of this package")
    if ndim < 1 or odd:
        raise damaged
    table = np.empty(len(rows), table_dtype(ndim))
    for begin in range(0, len(rows), _ROWS):  # so few that they stay in the cache from column to column
        part, into = rows[begin : begin + _ROWS], table[begin : begin + _ROWS]
        integers = part[:, whole]
        if not (np.abs(integers) < 2.0**63).all() or (np.floor(integers) != integers).any():
            raise damaged
        at = 0
        for name in table.dtype.names or ():
            width = ndim if name in ("start", "count") else 1
            into[name] = part[:, at : at + width].reshape(into[name].shape)
            at += width
    return table


def totals_of(rows: NDArray[np.float64]) -> tuple[int, float, float, float]:
    """The number of blocks, raw bytes, bytes of archives and seconds of stored rows."""
    raw_bytes, archive_bytes, seconds = (
        float(rows[:, _AFTER.index(name) - len(_AFTER)].sum()) for name in ("raw_bytes", "archive_bytes", "seconds")
    )
    return len(rows), raw_bytes, archive_bytes, seconds


def set_step(rows: NDArray[np.float64], step: int) -> None:
    """Writes the number of their step into stored rows."""
    rows[:, _BEFORE.index("step")] = step
