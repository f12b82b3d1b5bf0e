"""For packages that build on this one, as `cusz_operator` does.

Together with `cusz_core`, `cusz_core.parameters`, `cusz_core.errors`, `cusz_core.tuning`, `cusz_core.hdf5`,
`cusz_core.zarr`, `cusz_core.numcodecs` and `cusz_core.command_line`, this is the whole interface for other packages:
all other modules may change with every version.

Argument checks. Compression parameters are checked in `cusz_core.parameters`, except for the first two here:
    error_bound, threads
    bytes_limit    a number of bytes
    describe       a value of the wrong type in a few words, for messages
    dictionary     a dictionary with texts as keys
    dtype_id_of    the number of a dtype in the C interface
    extents        a shape, or where a block begins
    real           a number
Fields:
    placed_field   a field as the library takes it, and where it lies
    new_field      an array for a decompressed field, made by the module of another one
    module_of      that module
    on_host        a field as a numpy array
    on_current_device a function for other threads, with the device and CuPy's stream that are current in this one
Values that are stored exactly:
    packed         integers, as a packed block
    unpacked       their bytes
    lossless_stages names of the lossless stages of this build
Results:
    absolute_bound the absolute bound for one relative to a value range, by the library's own rule
    compare        which decoded values break a bound, decided exactly, and their errors: a SumOfSquares
    identities     dtype number, shape and checksum of archives in host memory; None for a damaged one
    json_value     a value for JSON, which has no NaN and no infinities
    predictor_name name of a predictor number from `compress_many_described`; None for -1
    scaled_range   the size of a value range times a scale at which it does not overflow, and the scale
The machine:
    cpu_model, instruction_set
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _native, device_memory
from ._native import absolute_bound, identities, instruction_set, predictor_name
from .arguments import bytes_limit, describe, dictionary, dtype_id_of, error_bound, extents, integer, real, threads
from .backends import cpu_model, lossless_stages
from .device_memory import module_of, on_current_device
from .errors import UnsupportedError
from .info import json_value
from .parameters import Lossless
from .verification import SumOfSquares, compare, on_host, scaled_range

__all__ = [
    "PlacedField",
    "SumOfSquares",
    "absolute_bound",
    "bytes_limit",
    "compare",
    "cpu_model",
    "describe",
    "dictionary",
    "dtype_id_of",
    "error_bound",
    "extents",
    "identities",
    "instruction_set",
    "integer",
    "json_value",
    "lossless_stages",
    "module_of",
    "new_field",
    "on_current_device",
    "on_host",
    "packed",
    "placed_field",
    "predictor_name",
    "real",
    "scaled_range",
    "threads",
    "unpacked",
]


class PlacedField(NamedTuple):
    """A field and where it lies.

    Attributes:
        array: C-contiguous and aligned: the array passed in, or a copy if it was not so.
        dtype, shape: of the field.
        device: number of the CUDA device; -1 for host memory.
        ready: for a CuPy array, an event of the stream current at the call: the values are there after its
            `synchronize()`. Anyone who uses the array on another stream must wait for it. None: no need to wait.
    """

    array: Any
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    device: int
    ready: Any = None


def placed_field(x: object, name: str) -> PlacedField:
    """A field as `compress` takes it; copied only if it is not C-contiguous and aligned.

    Args:
        x: array of float32 or float64, 1 to 4 dimensions, in host memory or on a CUDA device.
        name: its name in messages.

    Raises:
        UnsupportedError: another type or layout.
    """
    found = device_memory.field(x, name)
    if isinstance(found, device_memory.DeviceView):
        return PlacedField(found.array, found.dtype, found.shape, found.device, device_memory.event_after(found))
    return PlacedField(found, found.dtype, found.shape, -1)


def new_field(like: ModuleType | Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """An uninitialised array made by `like`, a module such as cupy or one of its arrays; None if numpy shall make it.

    Raises:
        ParameterError, UnsupportedError: it cannot make one that can be decompressed into.
    """
    return device_memory.new_field(like, None, dtype, shape, None)


def packed(values: NDArray[Any], lossless: Lossless) -> bytes:
    """A packed block of integers (docs/reference/format.md, section 11), at most 8 bytes longer than they are.

    Args:
        values: C-contiguous, in host memory, of 1, 2, 4 or 8 bytes each.
        lossless: "zstd" shortens the block where it can.

    Raises:
        UnsupportedError: a stage that this build does not have.
        OutOfMemoryError: too little memory.
    """
    stage = _native.LOSSLESS_STAGES.index(lossless)
    if not _native.has_lossless(stage):
        raise UnsupportedError(f"lossless is {lossless!r}, which this build does not have: build with libzstd")
    return _native.pack(values.reshape(-1).view(np.uint8), values.dtype.itemsize, stage)


def unpacked(block: bytes | NDArray[np.uint8]) -> bytes:
    """The bytes of a packed block's values.

    Raises:
        CorruptArchiveError: it is damaged, or no packed block.
        UnsupportedError: it needs zstd, which this build does not have.
        OutOfMemoryError: too little memory.
    """
    return _native.unpack(block)
