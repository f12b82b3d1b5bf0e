"""Types of the compiled module: the C API of cusz_core, for this package's own use."""

from typing import Any

from numpy.typing import NDArray

F32: int
F64: int
MODES: tuple[str, ...]
BACKENDS: tuple[str, ...]
LOSSLESS_STAGES: tuple[str, ...]
KINDS: tuple[str, ...]
MAX_NDIM: int
FORMAT_VERSION: int
RAW_OVERHEAD_BYTES: int

def version() -> str: ...
def default_threads() -> int: ...
def has_backend(backend: int) -> bool: ...
def has_lossless(stage: int) -> bool: ...
def max_archive_bytes(dtype: int, shape: tuple[int, ...]) -> int: ...
def absolute_bound(rel: float, min: float, max: float) -> float: ...
def compress(
    field: NDArray[Any],
    mode: int,
    eb: float,
    bins: int,
    backend: int,
    threads: int,
    lossless: int,
    has_fill: bool,
    fill: float,
    /,
) -> bytes: ...
def compress_into(
    field: NDArray[Any],
    mode: int,
    eb: float,
    bins: int,
    backend: int,
    threads: int,
    lossless: int,
    has_fill: bool,
    fill: float,
    out: object,
    /,
) -> int: ...
def layout(archive: object, /) -> tuple[int, tuple[int, ...]]: ...
def inspect(archive: object, /) -> dict[str, Any]: ...
def check(archive: object, threads: int, /) -> None: ...
def decompress_into(archive: object, out: NDArray[Any], threads: int, /) -> None: ...
def value_range(field: NDArray[Any], has_fill: bool, fill: float, threads: int, /) -> tuple[float, float, int]: ...
def scratch_bytes() -> int: ...
def release_scratch() -> None: ...
