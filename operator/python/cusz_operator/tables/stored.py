"""How values are stored: ADIOS2's names of types, and how a block that is no archive begins."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The types that the plugin compresses, by ADIOS2's names.
FLOATS: dict[str, np.dtype[Any]] = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
#: Those that it stores exactly. (ADIOS2 calls numpy's int8 "char".)
INTEGERS: dict[str, np.dtype[Any]] = {
    **{f"{kind}{bits}_t": np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "char": np.dtype(np.int8),
}
#: numpy's types by ADIOS2's names; `object` for texts.
DTYPES: dict[str, np.dtype[Any]] = {
    **FLOATS,
    **INTEGERS,
    "long double": np.dtype(np.longdouble),
    "float complex": np.dtype(np.complex64),
    "double complex": np.dtype(np.complex128),
    "string": np.dtype(object),
}
#: An archive stored raw is larger than its block by exactly this, and no other is (CUSZ_RAW_OVERHEAD_BYTES).
RAW_OVERHEAD_BYTES = 48
#: Blocks of the plugin that are not archives begin with one of these marks (block_operator.cpp).
PLAIN_MARKS = (b"cusz-plain-bytes", b"cusz-raw")
LOST_MARKS = (b"cusz-lost-block\0", b"cusz-nan")
#: Values that are stored exactly, as they are or packed: a tag and a checksum (docs/reference/format.md, section 11).
VERBATIM_TAG = b"raw8"
PACKED_TAG = b"zst"
PACKED_HEAD_BYTES = 8


def mark_of(archive: NDArray[np.uint8]) -> bytes:
    """The mark at the beginning of a block that is no archive; b"" if there is none."""
    head = bytes(archive[:16])
    return next((mark for mark in (*PLAIN_MARKS, *LOST_MARKS) if head.startswith(mark)), b"")
