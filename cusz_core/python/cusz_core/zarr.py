"""The codec "cusz" of Zarr's format 3 (docs/guides/zarr.md).

zarr finds it by its name, through an entry point, so that reading needs no import of this module.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from zarr.abc.codec import ArrayBytesCodec

from . import chunks, codec
from .errors import CorruptArchiveError, UnsupportedError
from .info import inspect
from .parameters import Parameters

if TYPE_CHECKING:
    from typing import Self, Unpack  # of Python 3.11

    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer

    from .parameters import ArchiveOptions, Mode

__all__ = ["CuszCodec"]


@dataclasses.dataclass(frozen=True, init=False)
class CuszCodec(ArrayBytesCodec):
    """A serializer: chunks of float32 or float64 become archives. Every finite value comes back within the bound; NaN,
    infinities and `fill` bit for bit. If a part of a chunk is written, the rest is coded again, and errors can add up
    beyond the bound, with a warning (once); not with mode "abs" and predictor "lorenzo".

    Args:
        eb, mode: as in `cusz_core.compress`. Modes apply to each chunk by itself: the value range is the chunk's.
        options: `fill`, which must be finite, `predictor`, `coarse`, `bins` and `lossless`: see `cusz_core.Parameters`.
            If `fill` is not given, the array's fill value is used if it is finite and not 0.

    Attributes:
        parameters: all of them, as `Parameters`.

    Raises:
        ParameterError: a value out of its legal range.
        TypeError: an unknown parameter.
    """

    is_fixed_size = False

    parameters: Parameters

    def __init__(self, eb: float, mode: Mode = "abs", **options: Unpack[ArchiveOptions]) -> None:
        object.__setattr__(self, "parameters", chunks.parameters(eb, mode, options))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The codec for a configuration in an array's metadata; without a predictor there, it is "lorenzo".

        Raises:
            ParameterError, TypeError: as the constructor.
        """
        return cls(**chunks.options_of(data.get("configuration", {})))

    def to_dict(self) -> dict[str, Any]:
        """The codec's name and configuration, for an array's metadata."""
        return {"name": "cusz", "configuration": chunks.configuration(self.parameters)}

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """The codec for an array.

        Raises:
            UnsupportedError: an array of a type other than float32 and float64.
        """
        dtype = array_spec.dtype.to_native_dtype()
        if dtype.char not in "fd":
            raise UnsupportedError(
                f"the codec cusz is for float32 and float64; the array has dtype {dtype}. Leave the serializer out, so "
                "that it is stored exactly"
            )
        fill = float(array_spec.fill_value)
        if self.parameters.fill is not None or not math.isfinite(fill) or fill == 0:
            return self
        # Padding and missing values would count in the value range: with 1e20 among them, "rel" would keep nothing.
        # 0, Zarr's default, is usually an ordinary value.
        evolved = type(self).__new__(type(self))
        object.__setattr__(evolved, "parameters", chunks.with_fill(self.parameters, fill))
        return evolved

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """The size is not known beforehand. Raises NotImplementedError, as Zarr expects."""
        raise NotImplementedError

    async def _encode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._encode_sync, chunk_array, chunk_spec)

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode_sync, chunk_bytes, chunk_spec)

    def _encode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        if isinstance(chunk_array, _Decoded) and not self._is_stable:
            _warn_of_parts(self.parameters.mode, self.parameters.predictor)
        chunk = chunk_array.as_numpy_array().astype(_dtype(chunk_spec), copy=False)
        archive = codec.compress_with(chunk.reshape(chunks.field_shape(chunk.shape)), self.parameters)
        return chunk_spec.prototype.buffer.from_bytes(archive)

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        archive = chunk_bytes.as_numpy_array()
        info = inspect(archive)
        dtype, shape = _dtype(chunk_spec), chunks.field_shape(chunk_spec.shape)
        if (info.dtype, info.shape) != (dtype, shape):  # before memory is allocated for what the archive declares
            raise CorruptArchiveError(
                f"a chunk holds {info.dtype.name} of shape {info.shape}; those of this array have {dtype.name} of "
                f"shape {shape}"
            )
        field = codec.decompress(archive)
        return _decoded(chunk_spec.prototype.nd_buffer).from_numpy_array(  # type: ignore[arg-type]
            field.reshape(chunk_spec.shape)
        )

    @property
    def _is_stable(self) -> bool:
        """Whether values keep within the bound however often a chunk is decoded and encoded again."""
        chosen = self.parameters
        return chosen.eb == 0 or (chosen.mode, chosen.predictor) == ("abs", "lorenzo")


class _Decoded:
    """Marks a buffer that this codec has decoded. Zarr writes a part of a chunk into a copy of such a buffer, and
    copies and views have the class of the original; so what comes to be encoded with this mark was encoded before."""


@functools.cache
def _decoded(nd_buffer: type[NDBuffer]) -> type[NDBuffer]:
    return type(f"Decoded{nd_buffer.__name__}", (_Decoded, nd_buffer), {})


@functools.cache  # once: in xarray, which resets Python's own record of warnings, every append would show it again
def _warn_of_parts(mode: str, predictor: str) -> None:
    warnings.warn(
        "a part of a chunk was written, so the whole chunk was decoded and is compressed again with codec cusz, mode "
        f"{mode!r} and predictor {predictor!r}: errors can add up beyond the bound. Write whole chunks (dask's chunks "
        "multiples of Zarr's), or use mode='abs' with predictor='lorenzo', which keeps the bound",
        stacklevel=1,
    )


def _dtype(chunk_spec: ArraySpec) -> np.dtype[Any]:
    """The dtype in native byte order, because format 3 does not store the byte order of arrays in memory."""
    return chunk_spec.dtype.to_native_dtype().newbyteorder("=")
