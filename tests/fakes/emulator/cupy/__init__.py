"""The part of CuPy that tests and scripts/bench/gpu.py use, over the emulator of kernels (tests/simt).

For a process whose cusz_core has loaded the emulator's libcusz_core.so.0 (simt_environment, tests/conftest.py): its
"device memory" can be read by the host, and its kernels run on the CPU, so that tests and measurements are tried before
there is a GPU. What CuPy would do on a device, numpy does at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import threading
import types

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

import cusz_core  # noqa: F401  (loads the library)

__version__ = "0 (emulator)"

_runtime = ctypes.CDLL("libcusz_core.so.0")
_runtime.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
_runtime.cudaFree.argtypes = [ctypes.c_void_p]
_runtime.cudaStreamCreate.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
_runtime.cudaStreamSynchronize.argtypes = [ctypes.c_void_p]
_runtime.simt_allocated_bytes.restype = ctypes.c_size_t
_MEMORY = 4 << 30
_runtime.simt_set_memory_limit.argtypes = [ctypes.c_size_t]
_runtime.simt_set_memory_limit(_MEMORY)
if "CUSZ_SIMT_DEVICES" in os.environ:
    _runtime.simt_set_device_count(int(os.environ["CUSZ_SIMT_DEVICES"]))


class OutOfMemoryError(MemoryError):
    """CuPy's."""


# ----------------------------------------------------------------------------------------------------------- memory


class _Block:
    """Memory of the device, which goes back to its pool."""

    def __init__(self, pool, address, size):
        self.pool, self.ptr, self.size = pool, address, size

    def __del__(self):
        self.pool._give_back(self.ptr, self.size)


class MemoryPool:
    def __init__(self):
        self.free, self.used, self.limit, self.lock = {}, 0, 0, threading.RLock()

    def malloc(self, size):
        size = max(-(-size // 512) * 512, 512)
        with self.lock:
            if self.free.get(size):
                self.used += size
                return _Block(self, self.free[size].pop(), size)
            if self.limit and self.total_bytes() + size > self.limit:
                self.free_all_blocks()
            if self.limit and self.total_bytes() + size > self.limit:
                raise OutOfMemoryError(f"Out of memory allocating {size} bytes (limit {self.limit})")
            address = ctypes.c_void_p()
            if _runtime.cudaMalloc(ctypes.byref(address), size) != 0:
                _runtime.cudaGetLastError()
                raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
            self.used += size
            return _Block(self, address.value, size)

    def _give_back(self, address, size):
        with self.lock:
            self.used -= size
            self.free.setdefault(size, []).append(address)

    def free_all_blocks(self):
        with self.lock:
            for addresses in self.free.values():
                for address in addresses:
                    _runtime.cudaFree(address)
            self.free = {}

    def used_bytes(self):
        return self.used

    def free_bytes(self):
        return sum(size * len(addresses) for size, addresses in self.free.items())

    def total_bytes(self):
        return self.used + self.free_bytes()

    def set_limit(self, size=0):
        self.limit = size


_default_pool = MemoryPool()
_here = threading.local()


def get_default_memory_pool():
    return _default_pool


def _alloc(size):
    return getattr(_here, "allocator", _default_pool.malloc)(size)


@contextlib.contextmanager
def _using_allocator(allocator):
    _here.allocator = allocator
    try:
        yield
    finally:
        del _here.allocator


# ------------------------------------------------------------------------------------------------ streams and events


class _Stream:
    null: _Stream

    def __init__(self, ptr=None, null=False, non_blocking=False):
        if ptr is None:
            handle = ctypes.c_void_p()
            if not null:
                assert _runtime.cudaStreamCreate(ctypes.byref(handle)) == 0
            ptr = handle.value or 0
        self.ptr = ptr

    def __enter__(self):
        _streams().append(self)
        return self

    def __exit__(self, *_):
        _streams().pop()

    def synchronize(self):
        _runtime.cudaStreamSynchronize(self.ptr)

    def record(self):
        return _Event()


class _ExternalStream(_Stream):
    pass


_Stream.null = _Stream(null=True)


def _streams():
    if not hasattr(_here, "streams"):
        _here.streams = [_Stream.null]
    return _here.streams


def _current_device():
    number = ctypes.c_int()
    assert _runtime.cudaGetDevice(ctypes.byref(number)) == 0
    return number.value


def _device_count():
    number = ctypes.c_int()
    assert _runtime.cudaGetDeviceCount(ctypes.byref(number)) == 0
    return number.value


class _Device:
    """Current for a thread, as in CuPy."""

    def __init__(self, device=None):
        self.id = _current_device() if device is None else int(device)

    def __enter__(self):
        self.before = _current_device()
        if self.id != self.before:
            self.use()
        return self

    def __exit__(self, *_):
        if self.id != self.before:
            _Device(self.before).use()

    def use(self):
        assert _runtime.cudaSetDevice(self.id) == 0

    def synchronize(self):
        _runtime.cudaDeviceSynchronize()


class _Event:
    clock = itertools.count()

    def record(self, stream=None):
        import time

        self.time = time.perf_counter()

    def synchronize(self):
        pass


cuda = types.SimpleNamespace(
    Device=_Device,
    Stream=_Stream,
    ExternalStream=_ExternalStream,
    Event=_Event,
    MemoryPool=MemoryPool,
    alloc=_alloc,
    using_allocator=_using_allocator,
    get_current_stream=lambda device=-1: _streams()[-1],
    get_elapsed_time=lambda a, b: 1e3 * (b.time - a.time),
    runtime=types.SimpleNamespace(
        memGetInfo=lambda: (_MEMORY - _runtime.simt_allocated_bytes(), _MEMORY),
        getDeviceCount=_device_count,
        getDeviceProperties=lambda device: {"name": b"emulator"},
        runtimeGetVersion=lambda: 13000,
        streamSynchronize=lambda stream: _runtime.cudaStreamSynchronize(stream),
    ),
)


# ------------------------------------------------------------------------------------------------------------ arrays


class ndarray(NDArrayOperatorsMixin):
    """A numpy array in device memory."""

    def __init__(self, x, block):
        self.x, self._block = x, block

    @property
    def device(self):
        return _Device(max(_runtime.cusz_device_of(ctypes.c_void_p(self.x.ctypes.data)), 0))

    @property
    def __cuda_array_interface__(self):
        x = self.x
        return {
            "shape": x.shape,
            "typestr": x.dtype.str,
            "data": (x.ctypes.data if x.size else 0, False),
            "strides": None if x.flags.c_contiguous else x.strides,
            "version": 3,
            "stream": cuda.get_current_stream().ptr or 1,
        }

    def __dlpack__(self, *, stream=None, **_):
        from fakes.fake_cupy import DLPackArray

        self._exported = DLPackArray(self.x)
        return self._exported.__dlpack__(stream=stream, max_version=(1, 0))

    def __dlpack_device__(self):
        return 2, 0

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.x.ctypes.data)

    def get(self):
        return np.array(self.x, order="C")

    def copy(self, order="C"):
        return asarray(self.x.copy(order=order))

    def fill(self, value):
        self.x.fill(value)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        if out is not None:
            options["out"] = tuple(_plain(o) for o in out)
        result = getattr(ufunc, method)(*map(_plain, inputs), **options)
        return out[0] if out is not None else asarray(result)

    def __getitem__(self, key):
        part = self.x[_plain(key)]
        return ndarray(part, self._block) if np.may_share_memory(part, self.x) else asarray(part)

    def __setitem__(self, key, value):
        self.x[_plain(key)] = _plain(value)

    def __bool__(self):
        return bool(self.x)

    def __float__(self):
        return float(self.x)

    def __int__(self):
        return int(self.x)

    def __getattr__(self, name):
        found = getattr(self.x, name)
        if not callable(found):
            return found

        def call(*args, **options):
            result = found(*map(_plain, args), **options)
            if name in ("reshape", "view", "transpose"):
                return ndarray(result, self._block)
            return asarray(result) if isinstance(result, (np.ndarray, np.generic)) else result

        return call


def _plain(x):
    if isinstance(x, tuple):
        return tuple(map(_plain, x))
    return x.x if isinstance(x, ndarray) else x


def empty(shape, dtype=np.float64):
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    block = cuda.alloc(size)
    memory = (ctypes.c_char * size).from_address(block.ptr)
    return ndarray(np.frombuffer(memory, dtype).reshape(shape), block)


def asarray(x, dtype=None):
    if isinstance(x, ndarray):
        return x
    x = np.asarray(x, dtype)
    made = empty(x.shape, x.dtype)
    made.x[...] = x
    return made


def zeros(shape, dtype=np.float64):
    made = empty(shape, dtype)
    made.x.fill(0)
    return made


def empty_like(x):
    return empty(x.shape, x.dtype)


def zeros_like(x):
    return zeros(x.shape, x.dtype)


def arange(*args, dtype=None):
    return asarray(np.arange(*args, dtype=dtype))


def copyto(target, source):
    target.x[...] = source.x


def where(condition, a, b):
    return asarray(np.where(_plain(condition), _plain(a), _plain(b)))


def _function(name):
    return lambda *args, **options: asarray(getattr(np, name)(*map(_plain, args), **options))


abs, sin, isfinite = map(_function, ("abs", "sin", "isfinite"))
