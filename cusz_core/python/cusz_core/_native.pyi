"""Types of the compiled module: the C API of cusz_core, for this package's own use."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

F32: int
F64: int
#: For every parameter: (key, description, legal, default, choices, type, decides), as cusz_parameter in cusz.h.
PARAMETERS: tuple[tuple[str, str, str, str | None, tuple[str, ...] | None, int, int], ...]
MODES: tuple[str, ...]
BACKENDS: tuple[str, ...]
LOSSLESS_STAGES: tuple[str, ...]
COARSE: tuple[str, ...]
KINDS: tuple[str, ...]
MAX_NDIM: int
FORMAT_VERSION: int
RAW_OVERHEAD_BYTES: int
MIN_PREFIX_BYTES: int

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

class Search:
    """The search for a bound that gives a PSNR or a ratio (src/search.hpp). The functions return the result of
    a bound: (PSNR in dB, ratio); the PSNR is NaN if only the ratio is wanted."""

    def __init__(
        self,
        target: float,
        is_psnr: bool,
        largest: float,
        on_sample: Callable[[float], tuple[float, float]],
        smallest: float = 0.0,
    ) -> None: ...
    def surplus(self, eb: float, /) -> float: ...
    def estimate(self, near: float | None = None) -> float: ...
    def estimate_or(self, exact: float | None, is_constant: bool, /) -> float: ...
    def most_compact(
        self, on_sample: Callable[[int, float], tuple[float, float]], variants: int, eb: float, /
    ) -> tuple[int, float]: ...
    def find(
        self,
        on_whole: Callable[[float], tuple[float, float]],
        first: float,
        lossless: bool,
        most_whole_trials: int,
        /,
    ) -> float | None: ...

def exact_bound(values: list[float], lowest: float, highest: float, /) -> float | None: ...
def rounded_bound(eb: float, digits: int, up: bool, /) -> float: ...

class DeviceMemory:
    """A C-contiguous array in a device's memory; the caller keeps the memory's owner alive."""

    def __init__(self, address: int, dtype: int, shape: tuple[int, ...], writable: bool, /) -> None: ...

class Params:
    """Parameters by key, checked; None keeps the default."""

    def __init__(self, values: dict[str, Any], /) -> None: ...

#: (stream, whether it lives as long as the allocator, device of the allocator, allocator or None); (): the library's
#: own.
Place = tuple[int, bool, int, object | None] | tuple[()]

def compress(
    field: NDArray[Any] | DeviceMemory,
    params: Params,
    place: Place,
    /,
) -> bytes: ...
def compress_into(
    field: NDArray[Any] | DeviceMemory,
    params: Params,
    out: object,
    place: Place,
    /,
) -> int: ...
def compress_described(
    field: NDArray[Any] | DeviceMemory, params: Params, out: object | None, ranges: bool, place: Place, /
) -> tuple[int | bytes, int, int, float, str | None, float, float, int]: ...
def compress_many(
    fields: list[NDArray[Any] | DeviceMemory],
    params: Params,
    out: object | None,
    rows: NDArray[Any],
    ranges: bool,
    place: Place,
    /,
) -> bytes | int: ...
def predictor_name(number: int, /) -> str | None: ...
def layout(archive: object, place: Place, /) -> tuple[int, tuple[int, ...]]: ...
def identities(archives: list[Any], /) -> list[tuple[int, tuple[int, ...], int] | None]: ...
def inspect(archive: object, place: Place, /) -> dict[str, Any]: ...
def check(archive: object, threads: int, place: Place, /) -> None: ...
def decompress_box(archive: Any, out: NDArray[Any], start: tuple[int, ...], threads: int, place: Any, /) -> None: ...
def decompress_many(
    archives: list[Any], out: list[NDArray[Any]], starts: list[tuple[int, ...]], threads: int, /
) -> None: ...
def inspect_level(
    prefix: Any, archive_bytes: int, level: int, place: Place, /
) -> tuple[int, bool, int, tuple[int, ...], tuple[int, ...], int, int]: ...
def level_of_shape(shape: tuple[int, ...], level: int, /) -> tuple[int, tuple[int, ...], tuple[int, ...]]: ...
def decompress_level(
    prefix: Any,
    archive_bytes: int,
    level: int,
    out: NDArray[Any] | DeviceMemory,
    start: tuple[int, ...],
    threads: int,
    place: Place,
    /,
) -> None: ...
def decompress_into(
    archive: object, out: NDArray[Any] | DeviceMemory, backend: int, threads: int, place: Place, /
) -> None: ...
def value_range(
    field: NDArray[Any] | DeviceMemory, has_fill: bool, fill: float, threads: int, place: Place, /
) -> tuple[float, float, int]: ...
def pack(values: object, value_bytes: int, lossless: int, /) -> bytes: ...
def unpack(block: object, /) -> bytes: ...
def scratch_bytes() -> int: ...
def release_scratch() -> None: ...
