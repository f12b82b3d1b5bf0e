"""Arrays in CUDA device memory: their description, the stream for work on them, and CuPy's memory.

CuPy is imported only when the caller asks for a CuPy array.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
import mmap
import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from . import _native, arguments
from .errors import DeviceError, OutOfMemoryError, ParameterError, UnsupportedError

P = ParamSpec("P")
T = TypeVar("T")

BYTES = np.dtype(np.uint8)
_DTYPE_IDS = {BYTES: 0, np.dtype(np.float32): _native.F32, np.dtype(np.float64): _native.F64}
_DLPACK_HOST = (1, 3, 11)  # kDLCPU, and pinned memory: kDLCUDAHost, kDLROCMHost
_DLPACK_DEVICE = (2, 13)  # kDLCUDA, kDLCUDAManaged
_DLPACK_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_LEGACY_STREAM, _LEGACY_HANDLE, _PER_THREAD_HANDLE = 0, 1, 2  # 0 and 1 are the same stream
_UNKNOWN = -2  # cusz_device_of, if CUDA cannot tell
#: The place of calls without device arrays.
HERE: _native.Place = ()
#: Packages whose arrays are immutable.
_IMMUTABLE = ("jax", "jaxlib")


@dataclasses.dataclass(frozen=True)
class DeviceView:
    """A C-contiguous array on a device, in the form that the library takes.

    Attributes:
        memory: for `_native`.
        dtype, shape: of the array.
        writable: whether it may be written to.
        device: number of its CUDA device; -1 if unknown (an empty array has no address).
        stream: handle of the stream with the array's pending work; None if there is none.
        cupy: the module, if the array is CuPy's.
        array: what the user passed in, or a contiguous copy of it.
        owner: what keeps the memory alive, besides the array.
    """

    memory: _native.DeviceMemory
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    writable: bool
    device: int
    stream: int | None
    cupy: Any
    array: Any
    owner: object


@dataclasses.dataclass
class _Layout:
    """A device array's description of itself, through either interface."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    address: int
    writable: bool
    contiguous: bool
    stream: int | None
    owner: object


# ------------------------------------------------------------------------------------------------------ input arrays


def field(x: object, name: str = "x") -> NDArray[Any] | DeviceView:
    """`x` as a C-contiguous, aligned array in host or device memory; copied only if necessary."""
    if isinstance(x, np.ndarray):
        return arguments.field(x, name)
    if (layout := _layout(x, name)) is None:
        return arguments.field(_host_view(x, name), name)
    arguments.field_type(layout.dtype, layout.shape, name)
    if not (layout.contiguous and layout.address % layout.dtype.itemsize == 0):
        x = _contiguous_copy(x, name)
        copied = _layout(x, name)
        if copied is None or not copied.contiguous:
            raise UnsupportedError(f"{name} is not C-contiguous, and neither is its copy")
        layout = copied
    return _device_array(x, layout, name)


def archive(a: object) -> object:
    """Returns `a` if it is a buffer of bytes in host memory, or a `DeviceView` of it if it is on a device."""
    if isinstance(a, (bytes, bytearray, memoryview, mmap.mmap, np.ndarray)):
        return arguments.archive(a)
    layout = _layout(a, "archive")
    return arguments.archive(a) if layout is None else _archive(a, layout, "archive")


def output_field(out: object, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any] | DeviceView:
    """`out`, if a field of this dtype and shape can be decompressed into it."""
    if isinstance(out, np.ndarray) or (layout := _layout(out, "out")) is None:
        return arguments.output_field(out, dtype, shape)
    _refuse_immutable(out, "out")
    aligned = layout.address % dtype.itemsize == 0
    arguments.output_type(layout.dtype, layout.shape, layout.contiguous and aligned, layout.writable, dtype, shape)
    return _device_array(out, layout, "out")


def output_archive(out: object) -> DeviceView | None:
    """`out`, if it is an array on a device that an archive can be written to; None if it is not on a device."""
    if isinstance(out, (bytearray, memoryview, np.ndarray)) or (layout := _layout(out, "out")) is None:
        return None
    _refuse_immutable(out, "out")
    if not layout.writable:
        raise ParameterError(f"out is read-only ({arguments.describe(out)})")
    return _archive(out, layout, "out")


def _archive(a: object, layout: _Layout, name: str) -> DeviceView:
    if layout.dtype.itemsize != 1 or layout.dtype.kind not in "ui" or len(layout.shape) != 1:
        raise UnsupportedError(
            f"{name} is a device array of {layout.dtype.name} with {len(layout.shape)} dimensions; "
            "on a device an archive is a one-dimensional array of uint8"
        )
    if not layout.contiguous:
        raise UnsupportedError(f"{name} is not contiguous")
    layout.dtype = BYTES
    return _device_array(a, layout, name)


def memory(a: Any) -> Any:
    """The argument that `_native` takes for an array returned by one of the functions above."""
    return a.memory if isinstance(a, DeviceView) else a


def _layout(x: object, name: str) -> _Layout | None:
    """The layout that `x` declares; None if it does not claim to be on a CUDA device."""
    if isinstance(x, type):  # a class has the attributes of its instances, unbound
        return None
    interface = _ask(x, "__cuda_array_interface__", name)
    if interface is not None:
        return _cuda_layout(x, interface, name)
    ask_device = _ask(x, "__dlpack_device__", name)
    if ask_device is None:
        return None
    try:
        kind = int(ask_device()[0])
    except Exception as error:
        _refuse(x, name, f"__dlpack_device__() fails: {error}", error)
    return _dlpack_layout(x, name) if kind in _DLPACK_DEVICE else None


def _ask(x: object, attribute: str, name: str) -> Any:
    try:
        return getattr(x, attribute, None)
    except Exception as error:  # such as PyTorch's for a tensor that requires a gradient
        _refuse(x, name, f"{attribute} cannot be read: {error}", error)


def _refuse(x: object, name: str, why: str, error: Exception | None = None) -> NoReturn:
    raise UnsupportedError(f"{name} is {arguments.describe(x)} whose {why}") from error


def _cuda_layout(x: object, interface: Any, name: str) -> _Layout:
    """The layout from the CUDA array interface, version 2 or 3."""
    what = "__cuda_array_interface__"
    if not isinstance(interface, dict):
        _refuse(x, name, f"{what} is {arguments.describe(interface)}, not a dict")
    missing = [key for key in ("version", "shape", "typestr", "data") if key not in interface]
    if missing:
        _refuse(x, name, f"{what} has no {missing[0]!r}")
    version = interface["version"]
    if version not in (2, 3):
        _refuse(x, name, f"{what} is of version {version!r:.80}; 2 and 3 are accepted")
    if interface.get("mask") is not None:
        raise UnsupportedError(
            f"{name} is a masked array, whose mask would be lost: compress a copy with the masked values filled in, "
            "and fill=value"
        )
    try:
        dtype = np.dtype(interface["typestr"])
        shape = tuple(operator.index(extent) for extent in interface["shape"])
        address, read_only = interface["data"]
        address = operator.index(address)
        strides = interface.get("strides")
        if strides is not None:
            strides = tuple(operator.index(stride) for stride in strides)
        stream = interface.get("stream")
        if stream is not None:
            stream = operator.index(stream)
    except Exception as error:
        _refuse(x, name, f"{what} is malformed: {error}", error)
    if stream is not None and not 0 < stream < 2**64:
        _refuse(x, name, f"{what} is malformed: stream is {stream} (1 is the legacy default stream)")
    layout = _Layout(dtype, shape, address, not read_only, True, _normal(stream), x)
    _check_layout(x, layout, strides, f"{what} is malformed", name)
    if version == 2 and _cupy_of(x) is None and (export := _ask(x, "__dlpack__", name)) is not None:
        # Version 2 has no streams, but DLPack does: when asked for a capsule, the owner makes the legacy stream wait.
        try:
            with _where(x):
                export(stream=_LEGACY_HANDLE)
        except Exception as error:
            _refuse(x, name, f"__dlpack__() fails: {error}", error)
        layout.stream = _LEGACY_STREAM
    return layout


def _dlpack_layout(x: Any, name: str) -> _Layout:
    """The layout from DLPack. From here on the capsule keeps the tensor alive."""
    try:
        with _where(x):
            try:
                capsule = x.__dlpack__(stream=_LEGACY_HANDLE, max_version=(1, 0))
            except TypeError:  # older than DLPack 1
                capsule = x.__dlpack__(stream=_LEGACY_HANDLE)
        address, (code, bits, lanes), shape, strides, (kind, _), writable = _native.describe_dlpack(capsule)
    except Exception as error:
        _refuse(x, name, f"__dlpack__() fails: {error}", error)
    if kind not in _DLPACK_DEVICE:
        _refuse(x, name, f"__dlpack__() gives memory of DLPack's device type {kind}, not of a CUDA device")
    letter = _DLPACK_KINDS.get(code)
    try:
        if letter is None or lanes != 1 or bits % 8 != 0:
            raise TypeError
        dtype = np.dtype(f"{letter}{bits // 8}")
    except TypeError:
        raise UnsupportedError(
            f"{name} has DLPack's type (code {code}, {bits} bits, {lanes} lanes); accepted are float32 and float64"
        ) from None
    if strides is not None:
        strides = tuple(stride * dtype.itemsize for stride in strides)
    layout = _Layout(dtype, shape, address, writable, True, _LEGACY_STREAM, (x, capsule))
    _check_layout(x, layout, strides, "DLPack tensor is malformed", name)
    return layout


def _where(x: object) -> contextlib.AbstractContextManager[object]:
    """Makes the device of a PyTorch tensor current: PyTorch exports, and makes streams wait, only on that device."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if isinstance(tensor, type) and isinstance(x, tensor):
        found: contextlib.AbstractContextManager[object] = cast("Any", torch).cuda.device(cast("Any", x).device)
        return found
    return contextlib.nullcontext()


def _host_view(x: Any, name: str) -> object:
    """A numpy array over the memory of `x` if DLPack says it is in host memory, else `x` itself. Never copies."""
    if isinstance(x, type) or (ask_device := _ask(x, "__dlpack_device__", name)) is None:
        return x
    try:
        if int(ask_device()[0]) not in _DLPACK_HOST:
            return x
        try:
            return np.from_dlpack(x, copy=False)
        except TypeError:  # numpy before 2.1, or an owner without `copy`: neither copies
            return np.from_dlpack(x)
    except Exception as error:
        _refuse(x, name, f"__dlpack__() fails: {error}", error)


def _check_layout(x: object, layout: _Layout, strides: tuple[int, ...] | None, malformed: str, name: str) -> None:
    """Refuses an impossible layout before any of its memory is read. Clears `contiguous` if it is not C-contiguous."""
    shape = layout.shape
    if any(extent < 0 for extent in shape):
        _refuse(x, name, f"{malformed}: shape is {shape}")
    if strides is not None and len(strides) != len(shape):
        _refuse(x, name, f"{malformed}: strides are {strides} for shape {shape}")
    size = math.prod(shape) * layout.dtype.itemsize
    if size >= 2**63:
        raise UnsupportedError(f"{name} has shape {shape}; the field's size does not fit in 63 bits")
    if not 0 <= layout.address <= 2**64 - size or (size > 0 and layout.address == 0):
        _refuse(x, name, f"{malformed}: {size} bytes cannot lie at address {layout.address}")
    if size == 0 or strides is None:
        return
    step = layout.dtype.itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            layout.contiguous = False
            return
        step *= extent


def _device_array(x: Any, layout: _Layout, name: str) -> DeviceView:
    size = math.prod(layout.shape) * layout.dtype.itemsize
    cupy = _cupy_of(x)
    device = -1
    if size > 0:
        device = _native.device_of(layout.address)
        if device == _UNKNOWN:
            raise DeviceError(f"CUDA does not say where {name} lies, as after a device has failed")
        if device < 0 or _native.device_of(layout.address + size - 1) != device:
            raise UnsupportedError(
                f"{name} is {arguments.describe(x)} that claims {size} bytes of device memory at {layout.address:#x}, "
                "which CUDA does not know: pass the array itself while it is alive, and host memory as a numpy array"
            )
    elif cupy is not None:
        device = int(x.device.id)
    described = _native.DeviceMemory(layout.address, _DTYPE_IDS[layout.dtype], layout.shape, layout.writable)
    return DeviceView(
        described, layout.dtype, layout.shape, layout.writable, device, layout.stream, cupy, x, layout.owner
    )


def _contiguous_copy(x: Any, name: str) -> Any:
    cupy = _cupy_of(x)
    if cupy is None:
        raise UnsupportedError(
            f"{name} is {arguments.describe(x)} that is not C-contiguous and aligned: pass a contiguous copy, such as "
            f"cupy.ascontiguousarray({name}), or for PyTorch {name}.contiguous()"
        )
    with x.device:
        return x.copy(order="C")


def _cupy_of(x: object) -> Any:
    """The module cupy, if `x` is a CuPy array."""
    cupy = sys.modules.get("cupy")
    ndarray = getattr(cupy, "ndarray", None)
    return cupy if isinstance(ndarray, type) and isinstance(x, ndarray) else None


def _normal(stream: int | None) -> int | None:
    return _LEGACY_STREAM if stream == _LEGACY_HANDLE else stream


# ------------------------------------------------------------------------------------------------ where work is done


def place(*arrays: object) -> _native.Place:
    """The stream and source of scratch memory for a call with these arrays; `HERE` if no array is on a device.

    The stream is CuPy's current one if one of the arrays is CuPy's, else that of the first array that names one, else
    the legacy default stream. Waits for pending work of other arrays on other streams.
    """
    on_device = [a for a in arrays if isinstance(a, DeviceView)]
    if not on_device:
        return HERE
    main = next((a for a in on_device if a.cupy is not None), None)
    if main is None:
        stream = next((a.stream for a in on_device if a.stream is not None), _LEGACY_STREAM)
        made: _native.Place = (stream, stream in (_LEGACY_STREAM, _PER_THREAD_HANDLE), -1, None)
    else:
        current = main.cupy.cuda.get_current_stream(main.device)
        stream = _LEGACY_STREAM if current.ptr == _LEGACY_HANDLE else int(current.ptr)
        # A stream made by CuPy lives as long as its object; the lifetime of others is not known.
        lasting = stream in (_LEGACY_STREAM, _PER_THREAD_HANDLE) or isinstance(current, main.cupy.cuda.Stream)
        made = (stream, lasting, main.device, PoolAllocator(main.cupy, main.device, current))
    for array in on_device:
        if array.cupy is None and array.stream not in (None, stream):
            _wait_for(array)
    return made


def _wait_for(array: DeviceView) -> None:
    cupy = sys.modules.get("cupy")
    if cupy is None:
        raise ParameterError(
            f"the arrays are on two streams, one of them {array.stream:#x}: pass arrays on one stream, or import cupy, "
            "which is needed to wait for it"
        )
    with cupy.cuda.Device(array.device if array.device >= 0 else None):
        cupy.cuda.runtime.streamSynchronize(array.stream)


def event_after(array: DeviceView) -> Any:
    """For a CuPy array, an event after the pending work of the current stream; other arrays name their stream."""
    if array.cupy is None or array.device < 0:
        return None
    with array.cupy.cuda.Device(array.device):
        return array.cupy.cuda.get_current_stream().record()


def on_current_device(call: Callable[P, T]) -> Callable[P, T]:
    """`call`, for other threads: there it has the device and CuPy's stream that are current here, if CuPy is loaded."""
    cupy: Any = sys.modules.get("cupy")
    try:
        device, stream = cupy.cuda.Device(), cupy.cuda.get_current_stream()
    except Exception:  # no CuPy, or no device
        return call
    is_per_thread = stream.ptr == _PER_THREAD_HANDLE  # each thread has its own: they have to wait for each other
    if is_per_thread:
        stream.synchronize()

    def there(*arguments: P.args, **named: P.kwargs) -> T:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(Exception):  # the call says what is wrong with the device
                if cupy.cuda.Device().id != device.id:
                    device.use()  # for good: going back would make a context on the other device
                stack.enter_context(stream)
            if is_per_thread:
                stack.callback(stream.synchronize)
            return call(*arguments, **named)

    return there


class PoolAllocator:
    """Scratch memory on one stream, from CuPy's pool, so that CuPy and the library do not hoard memory separately.

    The library calls it (cusz_set_allocator) from any thread. It keeps the stream alive.
    """

    def __init__(self, cupy: Any, device: int, stream: Any) -> None:
        self._cupy, self._device, self._stream = cupy, device, stream
        self._held: dict[int, object] = {}
        self._failure: BaseException | None = None

    def allocate(self, size: int) -> int:
        """Allocates `size` bytes until `release`. Returns their address, or 0 on failure."""
        try:
            with self._cupy.cuda.Device(self._device), self._stream:
                memory = self._cupy.cuda.alloc(size)
            address = int(memory.ptr)
            self._held[address] = memory
            self._failure = None
            return address
        except BaseException as error:  # cannot propagate through the library: report a failed allocation instead
            self._failure = error
            return 0

    def release(self, address: int) -> None:
        """Returns memory from `allocate` to the pool."""
        self._held.pop(address, None)

    def take_failure(self) -> BaseException | None:
        """Why the latest `allocate` failed; a second call returns None."""
        failure, self._failure = self._failure, None
        return failure


# --------------------------------------------------------------------------------------------------- output arrays


def most_archive_bytes(a: NDArray[Any] | DeviceView) -> int:
    """Upper limit on the size of a field's archive."""
    return _native.max_archive_bytes(_DTYPE_IDS[a.dtype], a.shape)


def new_archive(size: int, near: object) -> tuple[Any, DeviceView]:
    """A CuPy array for an archive, on the device of the field `near`, or else on the current device."""
    cupy = _cupy()
    array = _allocate(cupy, (size,), BYTES, _device_of(near), {})
    return array, _archive(array, _claimed_layout(array, "the archive"), "the archive")


def trim(array: Any, size: int) -> Any:
    """The first `size` bytes of a CuPy array; a copy, which frees the rest, if that is at least half of the array."""
    trimmed = array[:size]
    if 2 * size > array.size:
        return trimmed
    with array.device:
        trimmed = trimmed.copy()
        _cupy_of(array).cuda.get_current_stream().synchronize()
    return trimmed


def new_field(like: Any, device: str | None, dtype: np.dtype[Any], shape: tuple[int, ...], near: object) -> Any:
    """An array for a field, made by the module of `like`, or by CuPy for device="cuda"; None if numpy shall make it.

    Args:
        like: a module or an array; None: `device` decides.
        device: "cpu", "cuda" or None.
        dtype, shape: of the field.
        near: an archive; the field is made on its device unless something else decides.
    """
    module: Any = None
    if like is not None:
        module = module_of(like)
    elif device == "cuda":
        module = _cupy()
    if module is None or module is np:
        if device == "cuda":
            raise ParameterError(
                "like is numpy, whose arrays are in host memory, and device is 'cuda': pass one of them"
            )
        return None
    is_array = not isinstance(like, ModuleType) and like is not None
    number = _device_of(near)
    options: dict[str, Any] = {}
    if module.__name__ == "cupy":
        if device == "cpu":
            raise ParameterError("like is cupy, whose arrays are on a device, and device is 'cpu': pass one of them")
        if is_array:
            number = int(like.device.id)
    else:
        number = None
        if is_array and hasattr(like, "device"):
            options["device"] = like.device
        elif device is not None:
            options["device"] = device
        dtype = getattr(module, dtype.name, dtype)  # PyTorch has its own dtypes
    array = _allocate(module, shape, dtype, number, options)
    if not isinstance(array, np.ndarray) and _layout(array, "like") is None:
        raise UnsupportedError(
            f"like makes {arguments.describe(array)}, which is neither numpy's nor on a CUDA device: leave like "
            "out and convert the result, or pass an array that is on a device, or device='cuda'"
        )
    require_device(array, device, "like")
    return array


def module_of(like: object) -> ModuleType:
    """The module that makes arrays like `like`, a module or an array."""
    module: Any = like
    if not isinstance(like, ModuleType):
        module = sys.modules.get(package_of(like))
        namespace = getattr(like, "__array_namespace__", None)
        if not callable(getattr(module, "empty", None)) and callable(namespace):
            module = namespace()
    name = getattr(module, "__name__", "")
    if package_of(module) in _IMMUTABLE:
        raise UnsupportedError(
            f"like is of {name}, whose arrays are immutable: leave it out, or pass like=cupy, and convert the result"
        )
    if not isinstance(module, ModuleType) or not callable(getattr(module, "empty", None)):
        raise ParameterError(
            f"like is {arguments.describe(like)}; it must be a module with empty(shape, dtype), such as numpy or cupy, "
            "or an array of one"
        )
    return module


def package_of(like: object) -> str:
    """The package of a module, or of an array's class."""
    if isinstance(like, np.ndarray):
        return "numpy"
    if _cupy_of(like) is not None:
        return "cupy"
    return (like.__name__ if isinstance(like, ModuleType) else type(like).__module__).partition(".")[0]


def require_device(array: object, device: str | None, name: str) -> None:
    """Refuses an array that does not lie where `device` says."""
    if device is None:
        return
    actual = "cpu" if isinstance(array, np.ndarray) or _layout(array, name) is None else "cuda"
    if actual != device:
        where = {"cpu": "in host memory", "cuda": "on a device"}[actual]
        raise ParameterError(
            f"{name} is {arguments.describe(array)} {where}, and device is {device!r}: pass one of them"
        )


def _allocate(module: Any, shape: tuple[int, ...], dtype: Any, device: int | None, options: dict[str, Any]) -> Any:
    """An uninitialised array of `module`. device: for CuPy; None: the current device, or the one in `options`."""
    try:
        if device is None:
            return module.empty(shape, dtype=dtype, **options)
        with module.cuda.Device(device):
            return module.empty(shape, dtype=dtype, **options)
    except MemoryError as error:  # CuPy's is one
        raise OutOfMemoryError(f"out of memory: cannot allocate {dtype} of shape {shape}: {error}") from error
    except Exception as error:
        kind = DeviceError if module.__name__ == "cupy" else ParameterError
        raise kind(f"{module.__name__}.empty cannot make {dtype} of shape {shape}: {error}") from error


def _claimed_layout(array: object, name: str) -> _Layout:
    layout = _layout(array, name)
    if layout is None:
        raise UnsupportedError(f"{name} is {arguments.describe(array)}, not an array on a CUDA device")
    return layout


def _device_of(near: object) -> int | None:
    return near.device if isinstance(near, DeviceView) and near.device >= 0 else None


def _refuse_immutable(x: object, name: str) -> None:
    if package_of(x) in _IMMUTABLE:
        raise UnsupportedError(f"{name} is {arguments.describe(x)}, which is immutable: pass a CuPy array")


def _cupy() -> Any:
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise UnsupportedError(
            f"device='cuda' needs CuPy, which cannot be imported ({error}): install cupy-cuda12x or cupy-cuda13x, "
            "whichever fits the driver, or pass out= an array on the device"
        ) from error
