"""The codec "cusz" of numcodecs, for format 2 of Zarr among others (docs/guides/zarr.md).

numcodecs finds it by its name, through an entry point, so that reading needs no import of this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ensure_ndarray_like

from . import chunks, codec
from .errors import ParameterError, UnsupportedError
from .info import inspect

if TYPE_CHECKING:
    from typing import Unpack  # of Python 3.11

    from .parameters import ArchiveOptions, Mode

__all__ = ["Cusz"]


class Cusz(Codec):  # type: ignore[misc] # numcodecs has no types
    """Every finite value of a chunk comes back within the bound; NaN, infinities and `fill` bit for bit.

    Args:
        eb, mode: as in `cusz_core.compress`. Modes apply to each chunk by itself: the value range is the chunk's.
        options: `fill`, which must be finite, `predictor`, `coarse`, `bins` and `lossless`: see `cusz_core.Parameters`.

    Raises:
        ParameterError: a value out of its legal range.
        TypeError: an unknown parameter.
    """

    codec_id = "cusz"

    def __init__(self, eb: float, mode: Mode = "abs", **options: Unpack[ArchiveOptions]) -> None:
        self._parameters = chunks.parameters(eb, mode, options)

    def encode(self, buf: Any) -> bytes:
        """Compresses a chunk.

        Args:
            buf: array of float32 or float64 in native byte order, of any number of dimensions. It is used in place if
                it is contiguous, in C or in Fortran order; otherwise it is copied once.

        Returns:
            An archive of a field with the chunk's values in memory order: for a chunk in Fortran order, the axes are
            reversed. The field has 4 dimensions where the chunk has more, and 1 where it has none.

        Raises:
            UnsupportedError: another type. (Other byte orders too, because the decoder is not told the type.)
            OutOfMemoryError: not enough memory.
        """
        chunk = ensure_ndarray_like(buf)
        if chunk.flags.f_contiguous and not chunk.flags.c_contiguous:
            chunk = chunk.T
        archive: bytes = codec.compress_with(chunk.reshape(chunks.field_shape(chunk.shape)), self._parameters)
        return archive

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Reconstructs a chunk.

        Args:
            buf: an archive: bytes, or another buffer of bytes.
            out: a writable contiguous buffer of exactly the chunk's size, to be filled and returned: an array of its
                dtype, or of bytes.

        Returns:
            `out`, or an array of the archive's dtype and shape.

        Raises:
            CorruptArchiveError: not an archive, or a damaged one.
            ArchiveTooNewError: a newer format version.
            UnsupportedError: not a buffer of bytes, or `out` of another dtype.
            ParameterError: `out` of another size, or read-only.
            OutOfMemoryError: not enough memory.
        """
        if out is None:
            return codec.decompress(buf)
        info = inspect(buf)
        flat: np.ndarray[Any, Any] = ensure_contiguous_ndarray(out)
        if flat.dtype != info.dtype and flat.dtype.itemsize != 1:
            raise UnsupportedError(f"out has dtype {flat.dtype.str}; this archive needs {info.dtype.name}, or bytes")
        if flat.nbytes != info.raw_bytes:
            raise ParameterError(f"out has {flat.nbytes} bytes; this archive needs {info.raw_bytes}")
        codec.decompress(buf, out=flat.view(info.dtype).reshape(info.shape))
        return out

    def get_config(self) -> dict[str, Any]:
        """The codec's name and parameters, for JSON: `numcodecs.get_codec` makes an equal codec from it."""
        return {"id": self.codec_id, **chunks.configuration(self._parameters)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Cusz:
        """The codec for a configuration; without a predictor there, it is "lorenzo"."""
        return cls(**chunks.options_of(config))

    def __repr__(self) -> str:
        given = chunks.configuration(self._parameters).items()
        return f"Cusz({', '.join(f'{key}={value!r}' for key, value in given)})"
