"""Stand-ins for arrays on a device and for CuPy, in host memory.

The library asks CUDA where an address lies. Without a CUDA driver every address is in host memory, so whole calls go
through the same code as on a device, except for the engine at the end. Only the check that CUDA knows an address is
replaced (`know_addresses`).
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types

import numpy as np

from cusz_core import _native


class CudaArray:
    """An array with the CUDA array interface, whose entries can be changed."""

    def __init__(self, x, version=3, **changes):
        self.x = np.asarray(x)
        strides = None if self.x.flags.c_contiguous else self.x.strides
        self.interface = {
            "shape": self.x.shape,
            "typestr": self.x.dtype.str,
            "data": (self.x.ctypes.data if self.x.size else 0, not self.x.flags.writeable),
            "strides": strides,
            "version": version,
            **changes,
        }

    @property
    def __cuda_array_interface__(self):
        return self.interface

    def __getitem__(self, key):
        return CudaArray(self.x[key])


# ------------------------------------------------------------------------------------------------------- DLPack


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class DLPackArray:
    """A device array that offers only DLPack. `changes`: members of the tensor. Records the stream of every export."""

    CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # noqa: RUF012

    def __init__(self, x, kind=2, versioned=True, read_only=False, major=1, **changes):
        self.x = np.asarray(x)
        self.kind, self.versioned, self.read_only, self.major, self.changes = kind, versioned, read_only, major, changes
        self.streams = []
        self.kept = []  # what the capsules point to

    def __dlpack_device__(self):
        return self.kind, 0

    def __dlpack__(self, *, stream=None, **options):
        if options and not self.versioned:
            raise TypeError("unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        x = self.x
        shape = (ctypes.c_int64 * max(x.ndim, 1))(*x.shape)
        strides = (ctypes.c_int64 * max(x.ndim, 1))(*(s // x.itemsize for s in x.strides))
        tensor = _Tensor(
            x.ctypes.data, self.kind, 0, x.ndim, self.CODES.get(x.dtype.kind, 2), x.itemsize * 8, 1, shape, strides, 0
        )
        for field, value in self.changes.items():
            setattr(tensor, field, value)
        if self.versioned:
            managed: ctypes.Structure = _Versioned(self.major, 0, None, None, int(self.read_only), tensor)
            name = b"dltensor_versioned"
        else:
            managed, name = _Managed(tensor, None, None), b"dltensor"
        self.kept.append((managed, shape, strides, name))
        return _new_capsule(ctypes.addressof(managed), name, None)


# --------------------------------------------------------------------------------------------------------- CuPy


class FakeCupy(types.ModuleType):
    """The part of CuPy that the library uses, over numpy. `log` records the calls."""

    def __init__(self, devices=2):
        super().__init__("cupy")
        module = self
        self.log = []
        self.out_of_memory = False
        self.live = {}  # address -> bytes, of memory that alloc() gave out
        self.current_device = 0
        self.homes = []  # (first address, end, device) of arrays; the latest counts

        class Stream:
            def __init__(self, ptr, device_id=-1):
                self.ptr, self.device_id, self.queued = ptr, device_id, []

            def __enter__(self):
                if self.device_id not in (-1, module.current_device):
                    raise RuntimeError("the stream is of another device")
                module.streams[module.current_device].append(self)
                return self

            def __exit__(self, *_):
                module.streams[module.current_device].pop()

            def synchronize(self):
                module.log.append(("synchronize", self.ptr))

            def record(self):
                return Event(self)

        class Event:
            """Waiting for it runs the work `queued` on its stream."""

            def __init__(self, stream):
                if stream.device_id not in (-1, module.current_device):
                    raise RuntimeError("the stream is of another device")
                self.queued, stream.queued = stream.queued, []

            def synchronize(self):
                for work in self.queued:
                    work()

        class ExternalStream(Stream):
            pass

        class OwnStream(Stream):
            pass

        class Device:
            def __init__(self, device=None):
                self.id = module.current_device if device is None else int(device)
                if not 0 <= self.id < devices:
                    raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")

            def __enter__(self):
                self.before = module.current_device
                module.current_device = self.id
                return self

            def __exit__(self, *_):
                module.current_device = self.before

        class MemoryPointer:
            def __init__(self, size):
                self.memory = np.empty(size + 256, np.uint8)
                self.ptr = -(-self.memory.ctypes.data // 256) * 256
                module.live[self.ptr] = size

            def __del__(self):
                module.live.pop(self.ptr, None)

        class ndarray:
            __module__ = "cupy"

            def __init__(self, x, device=None):
                self.x = x
                self.device = Device(device)
                low, high = np.lib.array_utils.byte_bounds(x)
                module.homes.append((low, high, self.device.id))

            @property
            def __cuda_array_interface__(self):
                # As CuPy does: the current stream of the current device; never 0.
                stream = module.cuda.get_current_stream().ptr or 1
                return CudaArray(self.x, 3, stream=stream).interface

            def __getattr__(self, name):
                return getattr(self.x, name)

            def __getitem__(self, key):
                return ndarray(self.x[key], self.device.id)

            def copy(self, order="C"):
                module.log.append(("copy", module.current_device))
                return ndarray(self.x.copy(order=order), self.device.id)

            def get(self):
                return self.x.copy()

        self.ndarray = ndarray
        self.Stream, self.ExternalStream = OwnStream, ExternalStream
        null = OwnStream(0)
        self.streams = [[null] for _ in range(devices)]
        self.cuda = types.SimpleNamespace(
            Device=Device,
            Stream=OwnStream,
            ExternalStream=ExternalStream,
            alloc=self._alloc,
            get_current_stream=lambda device=-1: self.streams[device if device >= 0 else self.current_device][-1],
            runtime=types.SimpleNamespace(streamSynchronize=lambda s: self.log.append(("synchronize", s))),
        )
        self._pointer = MemoryPointer

    def array(self, x, device=None):
        return self.ndarray(np.array(x), device)

    def empty(self, shape, dtype=np.float64):
        self.log.append(("empty", self.current_device, tuple(shape), np.dtype(dtype).name))
        if self.out_of_memory:
            raise MemoryError("out of memory: the fake device is full")
        return self.ndarray(np.empty(shape, dtype))

    def _alloc(self, size):
        self.log.append(("alloc", self.current_device, self.cuda.get_current_stream().ptr, size))
        if self.out_of_memory:
            raise MemoryError("out of memory: the fake pool is empty")
        return self._pointer(size)


class FakeTorch(types.ModuleType):
    """A module whose arrays are on a device only if told so, and which has its own dtypes."""

    float32, float64 = "torch.float32", "torch.float64"

    def __init__(self):
        super().__init__("torch")
        module = self
        self.current_device = "cuda:0"
        self.cuda = types.SimpleNamespace(device=self._on)

        class Tensor(CudaArray):
            __module__ = "torch"

            def __init__(self, x, device="cuda:0"):
                super().__init__(x, version=2)
                self.device = device
                self.exports = []

            def __dlpack__(self, *, stream=None):
                if module.current_device != self.device:
                    raise BufferError("Can't export tensors on a different CUDA device index")
                self.exports.append(stream)
                return object()

        class HostTensor:
            __module__ = "torch"
            device = "cpu"

        self.Tensor, self.HostTensor = Tensor, HostTensor

    @contextlib.contextmanager
    def _on(self, device):
        before, self.current_device = self.current_device, device
        yield
        self.current_device = before

    def empty(self, shape, dtype, device="cpu"):
        x = np.empty(shape, str(dtype).removeprefix("torch."))
        return self.HostTensor() if device == "cpu" else self.Tensor(x)


def install(monkeypatch):
    """Installs a fake CuPy as the module `cupy`."""
    module = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", module)
    know_addresses(monkeypatch, module)
    return module


def know_addresses(monkeypatch, module=None):
    """Makes CUDA know every address: on the device of the fake CuPy array there, else on the first device."""

    def device_of(address):
        for low, high, device in reversed(module.homes if module else []):
            if low <= address < high:
                return device
        return 0 if address else -1

    monkeypatch.setattr(_native, "device_of", device_of)


@contextlib.contextmanager
def every_place(monkeypatch, *names):
    """Collects the last argument, the place, of every call of these functions of `_native`."""
    places = []
    for name in names:
        function = getattr(_native, name)

        def call(*args, function=function):
            places.append(args[-1])
            return function(*args)

        monkeypatch.setattr(_native, name, call)
    yield places
