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
def instruction_set() -> str: ...
def has_backend(backend: int) -> bool: ...
def has_lossless(stage: int) -> bool: ...
def max_archive_bytes(dtype: int, shape: tuple[int, ...]) -> int: ...
def absolute_bound(rel: float, min: float, max: float) -> float: ...
def device_count() -> tuple[int, str]: ...
def device_name(device: int, /) -> str: ...
def device_of(address: int, /) -> int: ...
def describe_dlpack(
    capsule: object, /
) -> tuple[int, tuple[int, int, int], tuple[int, ...], tuple[int, ...] | None, tuple[int, int], bool]: ...

class DeviceMemory:
    """A C-contiguous array in a device's memory; whoever makes it keeps the memory's owner alive."""

    def __init__(self, address: int, dtype: int, shape: tuple[int, ...], writable: bool, /) -> None: ...

#: (stream, whether it exists as long as the allocator does, device of the allocator, allocator or None); (): the
#: library's own.
Place = tuple[int, bool, int, object | None] | tuple[()]

def compress(
    field: NDArray[Any] | DeviceMemory,
    mode: int,
    eb: float,
    bins: int,
    backend: int,
    threads: int,
    lossless: int,
    has_fill: bool,
    fill: float,
    place: Place,
    /,
) -> bytes: ...
def compress_into(
    field: NDArray[Any] | DeviceMemory,
    mode: int,
    eb: float,
    bins: int,
    backend: int,
    threads: int,
    lossless: int,
    has_fill: bool,
    fill: float,
    out: object,
    place: Place,
    /,
) -> int: ...
def layout(archive: object, place: Place, /) -> tuple[int, tuple[int, ...]]: ...
def inspect(archive: object, place: Place, /) -> dict[str, Any]: ...
def check(archive: object, threads: int, place: Place, /) -> None: ...
def decompress_box(archive: Any, out: NDArray[Any], start: tuple[int, ...], threads: int, place: Any, /) -> None: ...
def decompress_into(
    archive: object, out: NDArray[Any] | DeviceMemory, backend: int, threads: int, place: Place, /
) -> None: ...
def value_range(
    field: NDArray[Any] | DeviceMemory, has_fill: bool, fill: float, threads: int, place: Place, /
) -> tuple[float, float, int]: ...
def scratch_bytes() -> int: ...
def release_scratch() -> None: ...
