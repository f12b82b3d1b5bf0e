"""The blocks that a rank puts."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cusz_core import Parameters, embedding
from cusz_core.errors import ParameterError, UnsupportedError

from ..plugin import MAX_NDIM
from ..tables.boxes import MAX_FIELD_NDIM, Extents, field_shape
from ..tables.representation import CONVERTED, Stored, is_exact, type_name, widening
from .goals import Wanted


@dataclasses.dataclass
class Blocks:
    """The blocks of a variable that a rank puts at a step, in their order.

    Attributes:
        name: of the variable.
        dtype: float32 or float64, or an integer type, whose values are stored exactly.
        given: the name of the type that the user gave, which may be another (`representation`).
        dimensions: names of the dimensions; () if there are none.
        shape: of the global array.
        parameters: how they are compressed.
        wanted: the goal for which a bound is sought; None: `parameters` has the bound.
        fields: the array of each, C-contiguous, of 1 to 4 dimensions, in host or device memory; integers may have more
            dimensions and are in host memory.
        start, count: where each lies in the global array.
        devices: the number of the CUDA device that holds each, -1 for host memory.
        ready: events after which values in device memory are valid; see `wait`.
        put_with: the arguments of the last put, if `adds` may compare those of the next one with them.
    """

    name: str
    dtype: np.dtype[Any]
    given: str
    dimensions: tuple[str, ...]
    shape: Extents
    parameters: Parameters
    wanted: Wanted | None
    fields: list[Any]
    start: list[Extents]
    count: list[Extents]
    devices: list[int]
    ready: list[Any]
    put_with: PutWith | None = None

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def are_on_host(self) -> bool:
        """Whether all are in host memory."""
        return all(isinstance(field, np.ndarray) for field in self.fields)

    def wait(self) -> None:
        """Waits for the streams that were current when arrays on devices were put, whatever is current now."""
        for event in self.ready:
            event.synchronize()
        self.ready.clear()

    def raw_bytes(self) -> NDArray[np.int64]:
        """Bytes of every block before compression."""
        return np.array([math.prod(count) for count in self.count], np.int64) * self.dtype.itemsize

    def given_bytes(self) -> NDArray[np.int64]:
        """Bytes of every block as it was put."""
        return self.raw_bytes() // widening(self.given)

    def joins(self, other: Blocks) -> bool:
        """Adds other blocks, unless they differ in what all blocks of a variable must share."""
        names = self.dimensions or other.dimensions  # one block may name them for all
        if (self.name, self.dtype, self.given, self.shape, self.wanted, names) != (
            *(other.name, other.dtype, other.given, other.shape, other.wanted),
            other.dimensions or names,
        ):
            return False
        if self.parameters is not other.parameters and self.parameters.of_archive() != other.parameters.of_archive():
            return False
        self.dimensions, self.put_with = names, other.put_with
        for own, more in zip(self._of_blocks(), other._of_blocks(), strict=True):
            own.extend(more)
        self.ready.extend(other.ready)
        return True

    def adds(self, array: Any, start: Any, put_with: PutWith) -> bool:
        """Adds a block that is put with the same arguments as the last one, except for its values and place.

        This is a fast path for thousands of blocks, and does what `prepare` does for those that it accepts.

        Returns:
            False: it is not added; `prepare` has to look at it.
        """
        if self.put_with is None or start is None or type(array) is not np.ndarray or array.dtype != self.dtype:
            return False
        flags, count = array.flags, array.shape
        is_plain = flags.c_contiguous and flags.aligned and len(count) == len(self.shape)
        if not is_plain or not all(map(_is_same, self.put_with, put_with)):
            return False
        first = embedding.extents(start, f"start of {self.name!r}")
        if len(first) != len(count) or any(map(operator.gt, map(operator.add, first, count), self.shape)):
            return False
        self.fields.append(array)
        self.start.append(first)
        self.count.append(count)
        self.devices.append(-1)
        return True

    def _of_blocks(self) -> tuple[list[Any], ...]:
        return self.fields, self.start, self.count, self.devices


#: shape, dims, eb and mode, as given to put.
PutWith = tuple[Any, Any, Any, Any]
_IMMUTABLE = (type(None), bool, int, float, str, tuple)


def _is_same(one: Any, other: Any) -> bool:
    """Whether they are one object, or (because a shape is often a new tuple) equal tuples of the same types."""
    if one is other:
        return True
    are_equal = type(one) is type(other) is tuple and one == other
    return are_equal and list(map(type, one)) == list(map(type, other))


def prepare(
    stored: Stored,
    shape: Sequence[int] | None,
    start: Sequence[int] | None,
    dimensions: Sequence[str] | None,
    parameters: Parameters,
    wanted: Wanted | None,
    put_with: PutWith | None = None,
) -> Blocks:
    """A block as it will be stored; copied only if it is not C-contiguous and aligned.

    Args:
        put_with: the arguments of the put; None if it had others, too.

    Raises:
        UnsupportedError: a type or layout that is not accepted.
        ParameterError: it lies outside the global shape, or the names of its dimensions are not valid.
    """
    name, array, given = stored
    what = f"the block of {name!r}"
    field, dtype, count, device, ready = _placed(array, what)
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
    if put_with is not None:
        can_be_compared = type(shape) is tuple and all(type(one) in _IMMUTABLE for one in put_with)
        is_like_its_field = given == type_name(dtype) and (is_exact(dtype) or len(count) <= MAX_FIELD_NDIM)
        put_with = put_with if can_be_compared and is_like_its_field else None
    events = [] if ready is None else [ready]
    of_blocks = ([field], [first], [count], [device])
    return Blocks(name, dtype, given, names, whole, parameters, wanted, *of_blocks, events, put_with)


def _placed(array: Any, what: str) -> embedding.PlacedField:
    """A block's array as it will be stored, with the block's extents."""
    if isinstance(array, np.ndarray) and not 1 <= array.ndim <= MAX_NDIM:
        raise UnsupportedError(f"{what} has {array.ndim} dimensions; accepted are 1 to {MAX_NDIM}")
    if isinstance(array, np.ndarray) and is_exact(array.dtype):
        if not array.dtype.isnative:
            raise UnsupportedError(f"{what} has dtype {array.dtype.str}, in foreign byte order: convert it")
        return embedding.PlacedField(np.ascontiguousarray(array), array.dtype, array.shape, -1)
    if is_exact(getattr(array, "dtype", None)) and not isinstance(array, np.ndarray):
        raise UnsupportedError(f"{what} is {embedding.describe(array)} of integers: pass a numpy array, in host memory")
    count = getattr(array, "shape", None)
    if isinstance(count, tuple) and MAX_FIELD_NDIM < len(count) <= MAX_NDIM:
        if not hasattr(array, "reshape"):
            raise UnsupportedError(f"{what} has {len(count)} dimensions and cannot be reshaped to 4")
        array = array.reshape(field_shape(count))
    placed = embedding.placed_field(array, what)
    return placed._replace(shape=tuple(map(int, count))) if isinstance(count, tuple) else placed


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
