"""The blocks that a rank puts."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from cusz_core import Parameters, embedding
from cusz_core.errors import ParameterError, UnsupportedError

from ..plugin import MAX_NDIM
from ..tables.boxes import MAX_FIELD_NDIM, Extents, field_shape
from ..tables.representation import CONVERTED, Stored, is_exact, type_name
from .goals import Wanted


@dataclasses.dataclass
class PreparedBlock:
    """A block that a rank puts.

    Attributes:
        name: of the variable.
        field: array of 1 to 4 dimensions, C-contiguous, in host or device memory; of integers, any number of
            dimensions, in host memory.
        dtype: float32 or float64, or that of integers, which are stored exactly.
        given: the type that the user gave, which may be another (`representation`).
        dimensions: their names; () if there are none.
        shape, start, count: of the global array, and where the block lies in it.
        parameters: how it is compressed; the same for all blocks of a variable at a step, except those that do not
            affect the archive.
        device: number of the CUDA device that holds the field, -1 for host memory.
        wanted: the goal that its bound is to reach; None: `parameters` has the bound.
    """

    name: str
    field: Any
    dtype: np.dtype[Any]
    given: str
    dimensions: tuple[str, ...]
    shape: Extents
    start: Extents
    count: Extents
    parameters: Parameters
    device: int
    wanted: Wanted | None = None

    @property
    def raw_bytes(self) -> int:
        return math.prod(self.count) * self.dtype.itemsize


def prepare(
    stored: Stored,
    shape: Sequence[int] | None,
    start: Sequence[int] | None,
    dimensions: Sequence[str] | None,
    parameters: Parameters,
    wanted: Wanted | None,
) -> PreparedBlock:
    """A block as it will be stored; copied only if it is not C-contiguous and aligned.

    Raises:
        UnsupportedError: a type or layout that is not accepted.
        ParameterError: it does not lie within the global shape, or its dimensions' names make no sense.
    """
    name, array, given = stored
    what = f"the block of {name!r}"
    field, dtype, count, device = _placed(array, what)
    whole = embedding.extents(shape, f"shape of {name!r}") if shape is not None else count
    first = embedding.extents(start, f"start of {name!r}") if start is not None else (0,) * len(count)
    if not len(whole) == len(first) == len(count):
        raise ParameterError(
            f"{what} has {len(count)} dimensions, shape has {len(whole)} and start has {len(first)}: they must agree"
        )
    for axis, (s, c, n) in enumerate(zip(first, count, whole, strict=True)):
        if s + c > n:
            raise ParameterError(
                f"{what} begins at {first} and has extents {count}: along axis {axis} it ends at {s + c}, outside the "
                f"global shape {whole}"
            )
    names = _names_of_dimensions(dimensions, len(count), name)
    if given not in CONVERTED:  # arrays on a device may have no dtype, or one of their own
        given = type_name(dtype)
    return PreparedBlock(name, field, dtype, given, names, whole, first, count, parameters, device, wanted)


def _placed(array: Any, what: str) -> tuple[Any, np.dtype[Any], Extents, int]:
    """A block's array as it will be stored, its type and extents, and its device (-1: host memory)."""
    if isinstance(array, np.ndarray) and type(array) is not np.ma.MaskedArray and is_exact(array.dtype):
        if not 1 <= array.ndim <= MAX_NDIM:
            raise UnsupportedError(f"{what} has {array.ndim} dimensions; accepted are 1 to {MAX_NDIM}")
        if not array.dtype.isnative:
            raise UnsupportedError(f"{what} has dtype {array.dtype.str}, in foreign byte order: convert it")
        return np.ascontiguousarray(array), array.dtype, array.shape, -1
    if is_exact(getattr(array, "dtype", None)) and not isinstance(array, np.ndarray):
        raise UnsupportedError(f"{what} is {embedding.describe(array)} of integers: pass a numpy array, in host memory")
    count = getattr(array, "shape", None)
    if isinstance(count, tuple) and MAX_FIELD_NDIM < len(count) <= MAX_NDIM:
        if not hasattr(array, "reshape"):
            raise UnsupportedError(f"{what} has {len(count)} dimensions and cannot be reshaped to 4")
        array = array.reshape(field_shape(count))
    placed = embedding.placed_field(array, what)
    extents = tuple(int(extent) for extent in count) if isinstance(count, tuple) else placed.shape
    return placed.array, placed.dtype, extents, placed.device


def _names_of_dimensions(names: Sequence[str] | None, ndim: int, variable: str) -> tuple[str, ...]:
    if names is None:
        return ()
    listed = () if isinstance(names, str) else tuple(names)
    if (
        len(listed) != ndim
        or len(set(listed)) != ndim
        or not all(isinstance(name, str) and re.fullmatch(r"[^\s,]+", name) for name in listed)
    ):
        raise ParameterError(
            f"dims of {variable!r} is {names!r}; it must be {ndim} different names without blanks and commas, slowest "
            "first"
        )
    return listed
