"""Error-bounded lossy compression of floating-point fields with the cuSZ algorithm.

For numpy arrays, and arrays on CUDA devices (CuPy and others; docs/guides/python.md):

    import cusz_core as cusz

    archive = cusz.compress(x, eb=1e-3, mode="rel")  # x: array of float32 or float64, 1 to 4 dimensions
    y = cusz.decompress(archive)                     # every finite value within the bound
    info = cusz.inspect(archive)                     # shape, dtype, bound, ratio, outliers, sections
    cusz.verify(x, archive)                          # largest error, PSNR; raises if the bound is broken
"""

from typing import TYPE_CHECKING, Any

from . import _native, errors, tuning
from .backends import BackendInfo, default_threads, devices
from .codec import (
    Described,
    DescribedBlocks,
    ValueRange,
    check,
    compress,
    compress_described,
    compress_many,
    compress_many_described,
    compress_with,
    decompress,
    decompress_box,
    decompress_many,
    max_archive_bytes,
    release_scratch,
    scratch_bytes,
    value_range,
)
from .errors import (
    ArchiveTooNewError,
    BoundError,
    CorruptArchiveError,
    CuszError,
    DeviceError,
    OutOfMemoryError,
    ParameterError,
    UnsupportedError,
)
from .info import ArchiveInfo, Sections, inspect
from .parameters import Parameters
from .preview import Level, level_of, levels, levels_of_shape
from .verification import Verification, verify

__version__: str = _native.version()

__all__ = [
    "ArchiveInfo",
    "ArchiveTooNewError",
    "BackendInfo",
    "BoundError",
    "CorruptArchiveError",
    "CuszError",
    "Described",
    "DescribedBlocks",
    "DeviceError",
    "Level",
    "OutOfMemoryError",
    "ParameterError",
    "Parameters",
    "Sections",
    "UnsupportedError",
    "ValueRange",
    "Verification",
    "__version__",
    "check",
    "compress",
    "compress_described",
    "compress_many",
    "compress_many_described",
    "compress_with",
    "decompress",
    "decompress_box",
    "decompress_many",
    "default_threads",
    "devices",
    "inspect",
    "level_of",
    "levels",
    "levels_of_shape",
    "max_archive_bytes",
    "release_scratch",
    "scratch_bytes",
    "tuning",
    "value_range",
    "verify",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Errors of packages that build on this one (`cusz_core.errors`)."""
        try:
            return errors.__getattr__(name)
        except AttributeError:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
