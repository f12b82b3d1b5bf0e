"""The library as tests call it through ctypes: built over the emulator of kernels (CMakeLists.txt).

"Device" memory comes from the emulator's cudaMalloc. Fields and archives lie on the host or on the device, as the test
chooses; `Memory` is either.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ABS, REL, PW_REL = 0, 1, 2
AUTO, CPU, CUDA = 0, 1, 2
PREDICTORS = {"lorenzo": 0, "spline": 1, "auto": 2}
MAX_NDIM = 4
RAW_OVERHEAD = 48
HOST, DEVICE = "host", "device"
PLACES = (HOST, DEVICE)


class Status(IntEnum):
    OK = 0
    PARAMETER = 1
    UNSUPPORTED = 2
    CORRUPT = 3
    TOO_NEW = 4
    DEVICE = 5
    MEMORY = 6
    INTERNAL = 8


class Failure(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{Status(status).name}: {message}")
        self.status, self.message = Status(status), message


class Params(Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        ("mode", c_int32),
        ("eb", c_double),
        ("bins", c_int32),
        ("backend", c_int32),
        ("threads", c_int32),
        ("lossless", c_int32),
        ("has_fill", c_int32),
        ("fill", c_double),
        ("predictor", c_int32),
        ("coarse", c_int32),
    )


class Block(Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        ("reserved", c_int32),
        *[(name, c_void_p) for name in ("shape", "field", "info", "archive")],
        ("archive_bytes", c_size_t),
        ("min", c_double),
        ("max", c_double),
        ("n_valid", c_uint64),
    )


class Info(Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        *[(name, c_int32) for name in ("version", "kind", "dtype", "ndim", "mode", "lossless", "bins", "has_fill")],
        ("checksum", c_uint32),
        ("shape", c_uint64 * MAX_NDIM),
        *[(name, c_double) for name in ("eb", "eb_abs", "step", "fill")],
        *[(name, c_uint64) for name in ("raw_bytes", "archive_bytes")],
        *[(name, c_uint64) for name in ("header_bytes", "codebook_bytes", "index_bytes", "payload_bytes")],
        ("tile_shape", c_uint64 * MAX_NDIM),
        *[(name, c_uint64) for name in ("n_tiles", "n_special", "n_out_of_range", "n_unpredictable")],
        *[(name, c_int32) for name in ("predictor", "coder", "coarse", "reserved")],
    )


class Level(Structure):
    _fields_ = (
        ("struct_bytes", c_uint32),
        *[(name, c_int32) for name in ("n_levels", "exact_cost", "dtype", "ndim")],
        ("checksum", c_uint32),
        *[(name, c_uint64 * MAX_NDIM) for name in ("shape", "step")],
        ("needed_bytes", c_uint64),
    )


Allocate = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_void_p)
Release = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t, c_void_p)


class Allocator(Structure):
    _fields_ = (("allocate", Allocate), ("release", Release), ("user", c_void_p))


def dtype_code(dtype: np.dtype) -> int:
    return {4: 1, 8: 2}[dtype.itemsize]


class Library:
    """The functions of the C interface, the runtime and the emulator; and the kernels launched so far."""

    def __init__(self, path: Path) -> None:
        self.c = c = ctypes.CDLL(str(path))
        for name, result, arguments in (
            ("cusz_create", c_void_p, []),
            ("cusz_destroy", None, [c_void_p]),
            ("cusz_last_error", c_char_p, [c_void_p]),
            ("cusz_scratch_bytes", c_size_t, [c_void_p]),
            ("cusz_release_scratch", None, [c_void_p]),
            ("cusz_set_stream", c_int, [c_void_p, c_void_p]),
            ("cusz_set_allocator", c_int, [c_void_p, POINTER(Allocator)]),
            ("cusz_device_count", c_int32, [POINTER(c_char_p)]),
            ("cusz_device_name", c_int, [c_int32, c_char_p, c_size_t]),
            ("cusz_device_of", c_int32, [c_void_p]),
            ("cusz_has_lossless", c_int32, [c_int]),
            ("cusz_params_init_sized", None, [POINTER(Params), c_size_t]),
            (
                "cusz_value_range",
                c_int,
                [
                    *[c_void_p, c_int, c_uint64, c_void_p, c_int32, c_double, c_int32],
                    *[POINTER(c_double), POINTER(c_double), POINTER(c_uint64)],
                ],
            ),
            (
                "cusz_compress",
                c_int,
                [
                    *[c_void_p, POINTER(Params), c_int, c_int32, POINTER(c_uint64), c_void_p, c_void_p],
                    *[c_size_t, POINTER(c_size_t)],
                ],
            ),
            ("cusz_inspect", c_int, [c_void_p, c_void_p, c_size_t, POINTER(Info)]),
            (
                "cusz_compress_many",
                c_int,
                [c_void_p, POINTER(Params), c_int, c_int32, c_uint64, POINTER(Block), c_int32, c_void_p, c_size_t],
            ),
            ("cusz_check", c_int, [c_void_p, c_void_p, c_size_t, c_int32]),
            ("cusz_inspect_level", c_int, [c_void_p, c_void_p, c_size_t, c_size_t, c_int32, POINTER(Level)]),
            (
                "cusz_decompress_level",
                c_int,
                [*[c_void_p, c_void_p, c_size_t, c_size_t, c_int32, c_int32], *[POINTER(c_uint64)] * 3, c_void_p],
            ),
            ("cusz_decompress", c_int, [c_void_p, c_void_p, c_size_t, c_int, c_int32, c_void_p, c_size_t]),
            ("cudaMalloc", c_int, [POINTER(c_void_p), c_size_t]),
            ("cudaFree", c_int, [c_void_p]),
            ("cudaMallocHost", c_int, [POINTER(c_void_p), c_size_t]),
            ("cudaFreeHost", c_int, [c_void_p]),
            ("cudaMemcpy", c_int, [c_void_p, c_void_p, c_size_t, c_int]),
            ("cudaStreamCreate", c_int, [POINTER(c_void_p)]),
            ("cudaStreamDestroy", c_int, [c_void_p]),
            ("simt_set_schedule", None, [c_int, ctypes.c_uint, c_int]),
            ("simt_fail_call", None, [c_char_p, c_int]),
            ("simt_calls", ctypes.c_ulong, [c_char_p]),
            ("simt_set_memory_limit", None, [c_size_t]),
            ("simt_set_device_count", None, [c_int]),
            ("simt_set_shared_limit", None, [c_size_t]),
            ("simt_break_device", None, [c_int]),
            ("simt_hide_device_memory", None, [c_int]),
            ("simt_allocated_bytes", c_size_t, []),
            ("simt_peak_bytes", c_size_t, []),
            ("simt_reset_peak", None, []),
            ("simt_pinned_bytes", c_size_t, []),
            ("simt_live_handles", ctypes.c_ulong, []),
            ("simt_launch_count", ctypes.c_ulong, []),
            ("simt_launched", c_size_t, [c_char_p, c_size_t]),
            ("simt_synchronizations", ctypes.c_ulong, []),
            ("simt_bytes_to_host", c_size_t, []),
            ("simt_work", ctypes.c_ulong, [c_void_p]),
            ("simt_report", c_char_p, []),
            ("simt_clear", None, []),
            ("simt_sum_before", c_int, [c_void_p, c_uint64, c_void_p]),
            ("simt_read_boxes", None, [c_int, c_int, POINTER(c_uint64), c_void_p, c_void_p, c_size_t, c_void_p]),
        ):
            if not hasattr(c, name):  # built from an earlier commit (scripts/bench/gpu_counts.py)
                continue
            function = getattr(c, name)
            function.restype, function.argtypes = result, arguments
        self.all_launched: set[str] = set()

    # ---- The emulator

    def set_schedule(self, order: int = 0, seed: int = 0, blocks_in_flight: int = 4) -> None:
        self.c.simt_set_schedule(order, seed, blocks_in_flight)

    def fail_call(self, function: str, nth: int) -> None:
        self.c.simt_fail_call(function.encode(), nth)

    def calls(self, function: str) -> int:
        return int(self.c.simt_calls(function.encode()))

    def set_memory_limit(self, nbytes: int | None = None) -> None:
        """Max device memory allocated at a time; None: all of it."""
        self.c.simt_set_memory_limit(8 << 30 if nbytes is None else nbytes)

    def hide_device_memory(self, hide: bool = True) -> None:
        """From the host, which then faults if it reads or writes there, as with a real device."""
        self.c.simt_hide_device_memory(hide)

    @property
    def allocated(self) -> int:
        return int(self.c.simt_allocated_bytes())

    @property
    def held(self) -> tuple[int, int, int]:
        """Bytes of device memory, bytes of pinned memory, streams and events."""
        return self.allocated, int(self.c.simt_pinned_bytes()), int(self.c.simt_live_handles())

    @property
    def launches(self) -> int:
        return int(self.c.simt_launch_count())

    @property
    def synchronizations(self) -> int:
        return int(self.c.simt_synchronizations())

    @property
    def bytes_to_host(self) -> int:
        return int(self.c.simt_bytes_to_host())

    @property
    def report(self) -> str:
        return self.c.simt_report().decode()

    def launched(self) -> set[str]:
        """Names of the kernels launched since clear(), with their types."""
        text = ctypes.create_string_buffer(self.c.simt_launched(None, 0))
        self.c.simt_launched(text, len(text))
        return {line.rpartition(":")[0] for line in text.value.decode().splitlines()}

    def clear(self) -> None:
        self.all_launched |= self.launched()
        self.c.simt_clear()

    def reset(self) -> None:
        """Restores the initial state."""
        self.clear()
        self.set_schedule()
        self.set_memory_limit()
        self.c.simt_set_device_count(1)
        self.c.simt_set_shared_limit(227 << 10)
        self.c.simt_break_device(0)
        self.c.simt_set_memory_pools(1)
        self.hide_device_memory(False)

    # ---- The runtime

    def call(self, function: str, *arguments: Any) -> None:
        status = getattr(self.c, function)(*arguments)
        assert status == 0, f"{function} gave {status}; {self.report}"

    @contextlib.contextmanager
    def current_device(self, number: int) -> Iterator[None]:
        """The device that memory is allocated on."""
        self.call("cudaSetDevice", number)
        yield
        self.call("cudaSetDevice", 0)

    def new_stream(self) -> int:
        stream = c_void_p()
        self.call("cudaStreamCreate", byref(stream))
        assert stream.value is not None
        return stream.value

    def memory(self, place: str, data: Any, *, shift: int = 0) -> Memory:
        """Memory that holds `data`, or of `data` bytes if that is a number. shift: bytes after an aligned address."""
        return (Device if place == DEVICE else Host)(self, data, shift)


class Memory:
    """Bytes on the host or on the device."""

    def __init__(self, library: Library, data: Any, shift: int) -> None:
        self.library, self.shift = library, shift
        content = None if isinstance(data, int) else np.frombuffer(np.ascontiguousarray(data), np.uint8)
        self.nbytes: int = data if content is None else content.size
        self.base = self.allocate(max(self.nbytes + shift, 1))
        self.pointer = self.base + shift
        if content is not None and content.size:
            self.put(content)

    def allocate(self, nbytes: int) -> int:
        raise NotImplementedError

    def put(self, content: NDArray[np.uint8]) -> None:
        raise NotImplementedError

    def get(self, nbytes: int | None = None) -> bytes:
        raise NotImplementedError

    def free(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


class Host(Memory):
    def allocate(self, nbytes: int) -> int:
        self.array = np.full(nbytes + 64, 0xA5, np.uint8)
        return int(self.array.ctypes.data + -self.array.ctypes.data % 64)

    def view(self) -> NDArray[np.uint8]:
        begin = self.pointer - self.array.ctypes.data
        return self.array[begin : begin + self.nbytes]

    def put(self, content: NDArray[np.uint8]) -> None:
        self.view()[:] = content

    def get(self, nbytes: int | None = None) -> bytes:
        return self.view()[:nbytes].tobytes()

    def free(self) -> None:
        pass


class Device(Memory):
    def allocate(self, nbytes: int) -> int:
        pointer = c_void_p()
        self.library.call("cudaMalloc", byref(pointer), nbytes)
        assert pointer.value is not None
        return pointer.value

    def put(self, content: NDArray[np.uint8]) -> None:
        self.library.call("cudaMemcpy", self.pointer, content.ctypes.data, content.size, 1)

    def get(self, nbytes: int | None = None) -> bytes:
        content = np.empty(self.nbytes if nbytes is None else nbytes, np.uint8)
        if content.size:
            self.library.call("cudaMemcpy", content.ctypes.data, self.pointer, content.size, 2)
        return content.tobytes()

    def free(self) -> None:
        if self.base:
            self.library.call("cudaFree", self.base)
        self.base = 0


class MadeOfMany(NamedTuple):
    """An archive of cusz_compress_many, its cusz_info, and min, max and n_valid of the field (0: not wanted)."""

    archive: bytes
    info: bytes
    range: tuple[float, float, int]


class Context:
    """A cusz_context. Calls raise Failure."""

    def __init__(self, library: Library) -> None:
        self.library, self.handle = library, library.c.cusz_create()
        assert self.handle
        self.callbacks: list[Any] = []

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def destroy(self) -> None:
        self.library.c.cusz_destroy(self.handle)
        self.handle = None

    def expect_ok(self, status: int) -> None:
        message = self.library.c.cusz_last_error(self.handle).decode()
        if status != Status.OK:
            raise Failure(status, message)
        assert message == ""

    @property
    def scratch(self) -> int:
        return int(self.library.c.cusz_scratch_bytes(self.handle))

    def release_scratch(self) -> None:
        self.library.c.cusz_release_scratch(self.handle)

    def set_stream(self, stream: int | None) -> None:
        self.expect_ok(self.library.c.cusz_set_stream(self.handle, stream))

    def set_allocator(
        self,
        allocate: Callable[[int | None, int, int | None], int | None] | None,
        release: Callable[[int | None, int, int, int | None], None] | None,
        user: int = 0,
    ) -> None:
        """Both None: the default allocator."""
        if allocate is None and release is None:
            return self.expect_ok(self.library.c.cusz_set_allocator(self.handle, None))
        allocator = Allocator(Allocate(allocate or 0), Release(release or 0), user)
        self.callbacks.append(allocator)
        return self.expect_ok(self.library.c.cusz_set_allocator(self.handle, byref(allocator)))

    def parameters(
        self,
        eb: float,
        mode: int = ABS,
        *,
        bins: int = 64,
        fill: float | None = None,
        backend: int = AUTO,
        lossless: int = 0,
        threads: int = 1,
        predictor: str = "lorenzo",
        coarse: int = 0,
    ) -> Params:
        params = Params()
        self.library.c.cusz_params_init_sized(byref(params), ctypes.sizeof(Params))
        params.mode, params.eb, params.bins, params.backend, params.lossless = mode, eb, bins, backend, lossless
        params.threads, params.has_fill, params.fill = threads, fill is not None, 0.0 if fill is None else fill
        params.predictor, params.coarse = PREDICTORS[predictor], coarse
        return params

    def level(self, archive: bytes, number: int, *, archive_place: str, field_place: str) -> tuple[Level, bytes]:
        """A level and its values, decoded from no more of the archive than it needs."""
        level = Level(struct_bytes=ctypes.sizeof(Level))
        with self.library.memory(archive_place, archive) as whole:
            arguments = (self.handle, whole.pointer, len(archive), len(archive), number, byref(level))
            self.expect_ok(self.library.c.cusz_inspect_level(*arguments))
        count = list(level.shape[: level.ndim])
        strides = [int(np.prod(count[axis + 1 :], dtype=int)) for axis in range(len(count))]
        start, counts, stride = ((c_uint64 * MAX_NDIM)(*each) for each in ([], count, strides))
        needed = archive[: level.needed_bytes]
        with (
            self.library.memory(archive_place, needed) as prefix,
            self.library.memory(field_place, int(np.prod(count)) * 4 * level.dtype) as field,
        ):
            self.expect_ok(
                self.library.c.cusz_decompress_level(
                    *(self.handle, prefix.pointer, len(needed), len(archive), number, 1),
                    *(start, counts, stride, field.pointer),
                )
            )
            return level, field.get()

    def compress_into(
        self,
        archive: Memory,
        field: Memory,
        dtype: np.dtype,
        shape: Sequence[int],
        eb: float,
        mode: int = ABS,
        **options: Any,
    ) -> int:
        """Returns the length of the archive in bytes."""
        params = self.parameters(eb, mode, **options)
        nbytes = c_size_t()
        extents = (c_uint64 * max(len(shape), 1))(*shape)
        self.expect_ok(
            self.library.c.cusz_compress(
                self.handle, byref(params), dtype_code(dtype), len(shape), extents,
                field.pointer, archive.pointer, archive.nbytes, byref(nbytes),
            )
        )  # fmt: skip
        return nbytes.value

    def compress(
        self, x: NDArray, eb: float, mode: int = ABS, *, field: str = HOST, archive: str = HOST, **options: Any
    ) -> bytes:
        """field, archive: where they lie."""
        with (
            self.library.memory(field, x) as source,
            self.library.memory(archive, x.nbytes + RAW_OVERHEAD) as target,
        ):
            return target.get(self.compress_into(target, source, x.dtype, x.shape, eb, mode, **options))

    def compress_many(self, fields: Sequence[NDArray], eb: float, mode: int = ABS, **options: Any) -> list[bytes]:
        return [made.archive for made in self.compress_many_described(fields, eb, mode, **options)]

    def compress_many_described(
        self,
        fields: Sequence[NDArray],
        eb: float,
        mode: int = ABS,
        *,
        field: str = HOST,
        archives: str = HOST,
        ranges: bool = True,
        **options: Any,
    ) -> list[MadeOfMany]:
        """field, archives: where they lie."""
        params = self.parameters(eb, mode, **options)
        ndim, room = fields[0].ndim, sum(x.nbytes + RAW_OVERHEAD for x in fields)
        shapes = [(c_uint64 * ndim)(*x.shape) for x in fields]
        with contextlib.ExitStack() as kept:
            sources = [kept.enter_context(self.library.memory(field, x)) for x in fields]
            target = kept.enter_context(self.library.memory(archives, room))
            blocks, infos = (Block * len(fields))(), [Info() for _ in fields]
            for block, shape, source, info in zip(blocks, shapes, sources, infos, strict=True):
                block.struct_bytes, block.field = ctypes.sizeof(Block), source.pointer
                block.shape = ctypes.cast(shape, c_void_p)
                info.struct_bytes = ctypes.sizeof(Info)
                block.info = ctypes.addressof(info)
            self.expect_ok(
                self.library.c.cusz_compress_many(
                    self.handle, byref(params), dtype_code(fields[0].dtype), ndim, len(fields), blocks,
                    ranges, target.pointer, room,
                )
            )  # fmt: skip
            first, made = blocks[0].archive, target.get()
            return [
                MadeOfMany(
                    made[(at := block.archive - first) : at + block.archive_bytes],
                    bytes(info),
                    (block.min, block.max, block.n_valid),
                )
                for block, info in zip(blocks, infos, strict=True)
            ]

    def decompress_into(
        self, field: Memory, archive: Memory, *, nbytes: int | None = None, backend: int = AUTO, threads: int = 1
    ) -> None:
        """nbytes: length of the archive."""
        self.expect_ok(
            self.library.c.cusz_decompress(
                self.handle, archive.pointer, archive.nbytes if nbytes is None else nbytes,
                backend, threads, field.pointer, field.nbytes,
            )
        )  # fmt: skip

    def decompress(
        self, data: bytes, field_bytes: int, *, field: str = HOST, archive: str = HOST, backend: int = AUTO
    ) -> bytes:
        with self.library.memory(archive, data) as source, self.library.memory(field, field_bytes) as target:
            self.decompress_into(target, source, backend=backend)
            return target.get()

    def inspect(self, archive: Memory, nbytes: int | None = None) -> Info:
        info = Info()
        info.struct_bytes = ctypes.sizeof(Info)
        nbytes = archive.nbytes if nbytes is None else nbytes
        self.expect_ok(self.library.c.cusz_inspect(self.handle, archive.pointer, nbytes, byref(info)))
        return info

    def info_of(self, data: bytes) -> Info:
        with self.library.memory(HOST, data) as archive:
            return self.inspect(archive)

    def check(self, archive: Memory, nbytes: int | None = None) -> None:
        nbytes = archive.nbytes if nbytes is None else nbytes
        self.expect_ok(self.library.c.cusz_check(self.handle, archive.pointer, nbytes, 1))

    def value_range(
        self, field: Memory, dtype: np.dtype, count: int, fill: float | None = None
    ) -> tuple[float, float, int]:
        low, high, n = c_double(), c_double(), c_uint64()
        self.expect_ok(
            self.library.c.cusz_value_range(
                self.handle, dtype_code(dtype), count, field.pointer,
                fill is not None, 0.0 if fill is None else fill, 1, byref(low), byref(high), byref(n),
            )
        )  # fmt: skip
        return low.value, high.value, n.value
