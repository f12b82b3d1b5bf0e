# mypy: disable-error-code="attr-defined, func-returns-value, index"
"""Device arrays, with stand-ins in host memory and without a device: what is accepted, refused and passed on."""

import gc
import os
import shutil
import sys
import textwrap
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import cusz_core as cusz
import support
from cusz_core import _native, device_memory, embedding
from fakes import fake_cupy
from fakes.fake_cupy import CudaArray, DLPackArray

X = support.smooth((4, 5, 6), support.F32)
ARCHIVE = cusz.compress(X, 1e-3)
ARCHIVE_BYTES = np.frombuffer(ARCHIVE, np.uint8)
DECODED = cusz.decompress(ARCHIVE)
PLACED = ("compress", "compress_into", "layout", "inspect", "check", "decompress_into", "value_range")


@pytest.fixture(autouse=True)
def known_addresses(monkeypatch):
    fake_cupy.know_addresses(monkeypatch)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)


@pytest.fixture
def cupy(monkeypatch):
    return fake_cupy.install(monkeypatch)


@pytest.fixture
def places(monkeypatch):
    with fake_cupy.every_place(monkeypatch, *PLACED) as collected:
        yield collected


# ------------------------------------------------------------------------------------------------------- fields


@pytest.mark.parametrize("make", [CudaArray, lambda x: CudaArray(x, 2), DLPackArray], ids=["v3", "v2", "dlpack"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (2, 3, 4, 5), (0,), (3, 0, 2), (1, 1, 1)])
def test_fields(make, dtype, shape):
    x = support.smooth(shape, dtype)
    assert cusz.compress(make(x), 1e-3) == cusz.compress(x, 1e-3)
    assert cusz.compress(make(x), 1e-3, "rel", fill=0.5) == cusz.compress(x, 1e-3, "rel", fill=0.5)
    assert cusz.value_range(make(x)) == cusz.value_range(x)
    assert cusz.verify(make(x), cusz.compress(x, 1e-3)) == cusz.verify(x, cusz.compress(x, 1e-3))
    out = make(np.full(shape, 7, dtype))
    assert cusz.decompress(cusz.compress(x, 0.0), out=out) is out
    assert support.same_bits(out.x, x)


def test_no_copy(monkeypatch):
    calls = support.calls_of(monkeypatch, _native, "compress")
    cusz.compress(CudaArray(X), 1e-3)
    assert isinstance(calls[0][0], _native.DeviceMemory)


@pytest.mark.parametrize("strides", [None, X.strides])
def test_contiguous_strides(strides):
    assert cusz.compress(CudaArray(X, strides=strides), 1e-3) == ARCHIVE


def test_strides_of_single_and_missing_extents_do_not_matter():
    one = X[:1]
    assert cusz.compress(CudaArray(one, strides=(99, *one.strides[1:])), 0.0) == cusz.compress(one, 0.0)
    empty = np.zeros((3, 0, 2), np.float32)
    assert cusz.compress(CudaArray(empty, strides=(-4, 12, 99)), 0.0) == cusz.compress(empty, 0.0)


NOT_CONTIGUOUS = [X[:, :, ::2], X[::-1], np.asfortranarray(X), np.broadcast_to(X[:1], (3, 5, 6))]


@pytest.mark.parametrize("x", NOT_CONTIGUOUS)
@pytest.mark.parametrize("make", [CudaArray, DLPackArray])
def test_fields_that_are_not_contiguous_are_refused(make, x):
    with pytest.raises(cusz.UnsupportedError, match=r"not C-contiguous.*cupy.ascontiguousarray\(x\).*x.contiguous\(\)"):
        cusz.compress(make(x), 1e-3)
    with pytest.raises(cusz.ParameterError, match="out is not C-contiguous"):
        cusz.decompress(cusz.compress(x, 1e-3), out=make(x))


@pytest.mark.parametrize("x", NOT_CONTIGUOUS)
def test_a_cupy_array_that_is_not_contiguous_is_copied_once(cupy, x):
    assert cusz.compress(cupy.ndarray(x, 1), 1e-3) == cusz.compress(x, 1e-3)
    assert cupy.log == [("copy", 1)]  # on the array's device


def test_unaligned_fields_are_refused():
    memory = np.zeros(41, np.uint8)
    with pytest.raises(cusz.UnsupportedError, match="aligned"):
        cusz.compress(CudaArray(memory[1:].view(np.float32)), 1e-3)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (X.astype(np.float16), r"x has dtype <f2 \(float16\).*x.astype\(numpy.float32\)"),
        (X.astype(np.int32), "int32.*accepted are float32 and float64"),
        (X > 0, "bool.*accepted are float32 and float64"),
        (X.astype(np.complex64), "complex64.*x.real and x.imag"),
        (np.array(1.0), r"0 dimensions; 1 to 4 are accepted: pass x.reshape\(1\)"),
        (np.zeros((2, 3, 4, 5, 6)), r"5 dimensions; 1 to 4 are accepted.*x.reshape\(6, 4, 5, 6\)"),
    ],
)
@pytest.mark.parametrize("make", [CudaArray, DLPackArray])
def test_refused_fields(make, x, words):
    for call in (lambda a: cusz.compress(a, 1e-3), cusz.value_range, lambda a: cusz.verify(a, ARCHIVE)):
        with pytest.raises(cusz.UnsupportedError, match=words):
            call(make(x))


def test_other_byte_orders_are_refused():
    with pytest.raises(cusz.UnsupportedError, match=r">f4.*native byte order"):
        cusz.compress(CudaArray(X.astype(">f4")), 1e-3)


def test_masks_are_refused():
    with pytest.raises(cusz.UnsupportedError, match=r"masked array.*fill=value"):
        cusz.compress(CudaArray(X, mask=CudaArray(X > 0)), 1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 1}, "of version 1; 2 and 3 are accepted"),
        ({"version": 4}, "of version 4"),
        ({"version": None}, "of version None"),
        ({"shape": (-1,)}, r"malformed: shape is \(-1,\)"),
        ({"shape": ("4",)}, "malformed"),
        ({"shape": 4}, "malformed"),
        ({"shape": (4.0,)}, "malformed"),
        ({"shape": (2**62, 4)}, "does not fit in 63 bits"),
        ({"shape": (2**70,)}, "does not fit in 63 bits"),
        ({"typestr": "f99"}, "malformed"),
        ({"typestr": 7}, "malformed|accepted are float32"),
        ({"typestr": "|V8"}, "accepted are float32"),
        ({"typestr": "|O"}, "accepted are float32"),
        ({"data": None}, "malformed"),
        ({"data": (1, False, 3)}, "malformed"),
        ({"data": (None, False)}, "malformed"),
        ({"data": (1.5, False)}, "malformed"),
        ({"data": (0, False)}, "480 bytes cannot lie at address 0"),
        ({"data": (-8, False)}, "cannot lie at address -8"),
        ({"data": (2**64 - 8, False)}, "cannot lie at address"),
        ({"data": (2**70, False)}, "cannot lie at address"),
        ({"strides": (4, 4)}, "malformed: strides are"),
        ({"strides": 4}, "malformed"),
        ({"strides": ("a", "b", "c")}, "malformed"),
        ({"stream": 0}, "stream is 0"),
        ({"stream": -1}, "stream is -1"),
        ({"stream": "s"}, "malformed"),
    ],
)
def test_malformed_interfaces(changes, words):
    array = CudaArray(X, **changes)
    for call in (
        lambda: cusz.compress(array, 1e-3),
        lambda: cusz.decompress(ARCHIVE, out=array),
        lambda: cusz.check(array),
    ):
        with pytest.raises(cusz.CuszError):
            call()
    with pytest.raises(cusz.UnsupportedError, match=words):
        cusz.compress(array, 1e-3)


@pytest.mark.parametrize("key", ["version", "shape", "typestr", "data"])
def test_interfaces_with_entries_missing(key):
    array = CudaArray(X)
    del array.interface[key]
    with pytest.raises(cusz.UnsupportedError, match=f"CudaArray whose __cuda_array_interface__ has no '{key}'"):
        cusz.compress(array, 1e-3)


def test_interfaces_that_are_none_at_all():
    class Array:
        pass

    array = Array()
    for interface in ([], 7, "abc"):
        array.__cuda_array_interface__ = interface
        with pytest.raises(cusz.UnsupportedError, match="not a dict"):
            cusz.compress(array, 1e-3)
    array.__cuda_array_interface__ = None
    with pytest.raises(cusz.UnsupportedError, match="accepted are numpy arrays"):
        cusz.compress(array, 1e-3)
    with pytest.raises(cusz.UnsupportedError, match="accepted are numpy arrays"):
        cusz.compress(CudaArray, 1e-3)  # the class, not an array


def test_an_interface_that_raises_tells_why():
    class Gradient:
        @property
        def __cuda_array_interface__(self):
            raise RuntimeError("this tensor requires grad: use detach()")

    with pytest.raises(cusz.UnsupportedError, match=r"use detach\(\)"):
        cusz.compress(Gradient(), 1e-3)


def test_addresses_that_cuda_does_not_know_are_refused(monkeypatch):
    start = X.ctypes.data
    for known in (lambda a: -1, lambda a: 0 if a < start + X.nbytes - 1 else -1, lambda a: int(a != start)):
        monkeypatch.setattr(_native, "device_of", known)
        for array in (CudaArray(X), DLPackArray(X)):
            with pytest.raises(cusz.UnsupportedError, match=r"480 bytes of device memory.*CUDA does not know"):
                cusz.compress(array, 1e-3)


def test_a_failed_device_is_not_taken_for_a_wrong_address(monkeypatch):
    monkeypatch.setattr(_native, "device_of", lambda address: -2)
    for array in (CudaArray(X), DLPackArray(X)):
        with pytest.raises(cusz.DeviceError, match="CUDA does not say where x lies, as after a device has failed"):
            cusz.compress(array, 1e-3)


def test_the_library_is_asked_where_an_address_lies(monkeypatch):
    monkeypatch.undo()
    assert _native.device_of(X.ctypes.data) == -1
    with pytest.raises(cusz.UnsupportedError, match="CUDA does not know"):
        cusz.compress(CudaArray(X, data=(0xDEADBEEF000, False)), 1e-3)
    assert cusz.compress(CudaArray(X[:0]), 1e-3) == cusz.compress(X[:0], 1e-3)


def test_device_memory_checks_what_memory_safety_needs():
    for shape in ((), (1,) * 5):
        with pytest.raises(cusz.UnsupportedError, match="1 to 4 dimensions"):
            _native.DeviceMemory(4096, _native.F32, shape, True)
    with pytest.raises(cusz.UnsupportedError, match="63 bits"):
        _native.DeviceMemory(4096, _native.F64, (2**40, 2**40), True)
    with pytest.raises(cusz.ParameterError, match="negative"):
        _native.DeviceMemory(4096, _native.F64, (-1,), True)
    for address in (0, 2**64 - 8):
        with pytest.raises(cusz.ParameterError, match="address"):
            _native.DeviceMemory(address, _native.F64, (2,), True)
    read_only = _native.DeviceMemory(X.ctypes.data, _native.F32, X.shape, False)
    with pytest.raises(cusz.ParameterError, match="read-only"):
        _native.decompress_into(ARCHIVE, read_only, 0, 0, ())


# ------------------------------------------------------------------------------------------------------- DLPack


@pytest.mark.parametrize("kind", [2, 13])
@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack(kind, versioned, places):
    array = DLPackArray(X, kind, versioned)
    assert cusz.compress(array, 1e-3) == ARCHIVE
    assert array.streams == [1]  # the legacy stream waits for the array
    assert places[-1] == (0, True, -1, None)


def test_dlpack_with_an_offset_and_without_strides():
    memory = np.concatenate([np.zeros(5, np.float32), X.reshape(-1)])
    array = DLPackArray(memory, byte_offset=20, strides=None)
    array.changes |= {"ndim": 1}
    array.x = memory[:-5]
    assert cusz.compress(array, 1e-3) == cusz.compress(X.reshape(-1), 1e-3)


def test_the_capsule_lives_as_long_as_the_call():
    freed = []

    class Memory(np.ndarray):
        pass

    class Array(DLPackArray):
        def __dlpack__(self, **options):
            # From here on, only the capsule holds the memory.
            memory = X.copy().view(Memory)
            weakref.finalize(memory, freed.append, True)
            self.x = memory
            self.capsule = super().__dlpack__(**options)
            return self.capsule

    array = Array(X)
    layout = device_memory.field(array)
    assert layout.owner[1] is array.capsule
    assert freed == []


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("kind", [1, 3])  # pageable and pinned
def test_host_memory_by_dlpack_is_used_in_place(kind, versioned, places):
    array = DLPackArray(X, kind=kind, versioned=versioned)
    assert cusz.compress(array, 1e-3) == ARCHIVE
    assert places[-1] == ()
    assert device_memory.field(array).ctypes.data == X.ctypes.data
    assert cusz.value_range(array) == cusz.value_range(X)
    assert cusz.verify(array, ARCHIVE).ratio > 1
    assert cusz.compress_described(array, cusz.Parameters(1e-3)).archive == ARCHIVE
    columns = DLPackArray(X[:, ::2], kind=1, versioned=versioned)
    assert cusz.compress(columns, 1e-3) == cusz.compress(X[:, ::2], 1e-3)


def test_host_memory_by_dlpack_that_is_refused():
    for x, words in ((X.astype(np.int32), "int32"), (np.zeros((2, 3, 4, 5, 6)), "5 dimensions")):
        with pytest.raises(cusz.UnsupportedError, match=words):
            cusz.compress(DLPackArray(x, kind=1), 1e-3)

    class Raises(DLPackArray):
        def __dlpack__(self, **options):
            raise BufferError("it has a gradient")

    with pytest.raises(cusz.UnsupportedError, match="it has a gradient"):
        cusz.compress(Raises(X, kind=1), 1e-3)
    array = DLPackArray(X, device_type=1)  # announces one device type and gives another
    with pytest.raises(cusz.UnsupportedError, match="device type 1"):
        cusz.compress(array, 1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"code": 4, "bits": 16}, r"code 4, 16 bits, 1 lanes\); accepted are float32"),
        ({"lanes": 4}, "4 lanes"),
        ({"bits": 7}, "7 bits"),
        ({"bits": 128 + 8}, "136 bits"),
        ({"ndim": -1}, "malformed"),
        ({"ndim": 1000}, "malformed"),
        ({"shape": None}, "malformed"),
        ({"data": None}, "cannot lie at address 0"),
        ({"byte_offset": 2}, "aligned"),
    ],
)
def test_malformed_tensors(changes, words):
    with pytest.raises(cusz.UnsupportedError, match=words):
        cusz.compress(DLPackArray(X, **changes), 1e-3)


def test_broken_dlpack():
    class Array(DLPackArray):
        def __dlpack__(self, **options):
            return self.result

    array = Array(X)
    for array.result in (None, 7, "capsule"):
        with pytest.raises(cusz.UnsupportedError, match=r"__dlpack__\(\) fails: it is not an unused DLPack capsule"):
            cusz.compress(array, 1e-3)

    class Raises(DLPackArray):
        def __dlpack__(self, **options):
            raise BufferError("cannot export")

    with pytest.raises(cusz.UnsupportedError, match="cannot export"):
        cusz.compress(Raises(X), 1e-3)

    class NoDevice(DLPackArray):
        def __dlpack_device__(self):
            raise RuntimeError("no device today")

    with pytest.raises(cusz.UnsupportedError, match="no device today"):
        cusz.compress(NoDevice(X), 1e-3)
    with pytest.raises(cusz.UnsupportedError, match="newer than 1"):
        cusz.compress(DLPackArray(X, major=2), 1e-3)


def test_read_only_by_dlpack():
    with pytest.raises(cusz.ParameterError, match="out is read-only"):
        cusz.decompress(ARCHIVE, out=DLPackArray(np.zeros_like(X), read_only=True))


class Both(CudaArray, DLPackArray):
    def __init__(self, x, version, **changes):
        DLPackArray.__init__(self, x)
        CudaArray.__init__(self, x, version, **changes)


def test_arrays_with_both_protocols(places):
    array = Both(X, 3, stream=77)
    assert cusz.compress(array, 1e-3) == ARCHIVE
    assert array.streams == []  # the interface, which names a stream
    assert places[-1] == (77, False, -1, None)
    array = Both(X, 2)
    assert cusz.compress(array, 1e-3) == ARCHIVE
    assert array.streams == [1]  # the interface, which knows no streams: the legacy stream is made to wait
    assert places[-1] == (0, True, -1, None)


# ------------------------------------------------------------------------------------------------------ streams


@pytest.mark.parametrize(
    ("stream", "place"),
    [
        ({}, (0, True, -1, None)),
        ({"stream": None}, (0, True, -1, None)),
        ({"stream": 1}, (0, True, -1, None)),
        ({"stream": 2}, (2, True, -1, None)),
        ({"stream": 0x7F00}, (0x7F00, False, -1, None)),
    ],
)
def test_streams_of_the_interface(places, stream, place):
    array, archive = CudaArray(X, **stream), CudaArray(ARCHIVE_BYTES, **stream)
    out = CudaArray(np.zeros_like(X), **stream)
    cusz.compress(array, 1e-3)
    cusz.value_range(array)
    cusz.inspect(archive)
    cusz.check(archive)
    cusz.decompress(archive)
    cusz.decompress(archive, out=out)
    assert places == [place] * 8  # decompress: once for the layout
    places.clear()
    cusz.decompress(ARCHIVE, out=out)
    assert places == [(), place]
    places.clear()
    cusz.compress(X, 1e-3, out=CudaArray(np.zeros(X.nbytes + 48, np.uint8), **stream))
    assert places == [place]


def test_numpy_arrays_have_no_place(places):
    cusz.compress(X, 1e-3, backend="auto")
    cusz.verify(X, ARCHIVE)
    cusz.check(ARCHIVE)
    assert set(places) == {()}


def test_cupys_current_stream(cupy, places):
    x = cupy.array(X, 1)
    stream = cupy.Stream(4096, 1)
    with cupy.cuda.Device(1), stream:
        cusz.compress(x, 1e-3)
    cusz.compress(x, 1e-3)
    with cupy.cuda.Device(1), cupy.ExternalStream(512):
        cusz.compress(x, 1e-3)
    with cupy.cuda.Device(0), cupy.Stream(640, 0):  # a stream of another device
        cusz.compress(x, 1e-3)
    assert [place[:3] for place in places] == [(4096, True, 1), (0, True, 1), (512, False, 1), (0, True, 1)]
    assert all(isinstance(place[3], device_memory.PoolAllocator) for place in places)


def test_cupys_stream_before_that_of_others(cupy, places):
    with cupy.Stream(4096):
        other = CudaArray(ARCHIVE_BYTES, stream=77)
        cusz.decompress(other, like=cupy)
        assert places[-1][0] == 4096
        assert ("synchronize", 77) in cupy.log  # waits for work pending on the archive
        cupy.log.clear()
        cusz.decompress(cupy.array(ARCHIVE_BYTES), out=CudaArray(np.zeros_like(X), version=2))
        assert not any(entry[0] == "synchronize" for entry in cupy.log)  # no stream to wait for
        cusz.compress(DLPackArray(X), 1e-3, device="cuda")
        assert ("synchronize", 0) in cupy.log


@pytest.mark.parametrize("ptr", [0, 0x70, 2])
def test_the_stream_of_the_program_in_other_threads(cupy, ptr):
    """Of stream 2 each thread has one of its own, so those who take turns on an array wait for it."""
    stream = cupy.Stream(ptr)
    with stream:
        there = embedding.on_current_device(lambda n: (n, cupy.cuda.get_current_stream()))
    waits = [("synchronize", 2)] if ptr == 2 else []
    assert cupy.log == waits
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(there, 5).result() == (5, stream)
    assert cupy.log == waits * 2


def test_two_streams_without_cupy():
    out = CudaArray(np.zeros_like(X), stream=77)
    with pytest.raises(cusz.ParameterError, match="on two streams, one of them 0x4e"):
        cusz.decompress(CudaArray(ARCHIVE_BYTES, stream=78), out=out)


# ------------------------------------------------------------------------------------------------------ results


def test_the_archive_is_on_the_host_by_default(cupy):
    for device in (None, "cpu"):
        archive = cusz.compress(cupy.array(X), 1e-3, device=device)
        assert type(archive) is bytes
        assert archive == ARCHIVE


@pytest.mark.parametrize("x", [X, support.random_bits((500,), support.F32), X[:0]])
@pytest.mark.parametrize("where", ["host", 0, 1])
def test_archives_on_a_device(cupy, x, where):
    field = x if where == "host" else cupy.array(x, where)
    archive = cusz.compress(field, 1e-3, device="cuda")
    wanted = cusz.compress(x, 1e-3)
    assert isinstance(archive, cupy.ndarray)
    assert (archive.dtype, archive.shape) == (np.uint8, (len(wanted),))
    assert archive.get().tobytes() == wanted
    assert ("empty", 0 if where == "host" else where, (x.nbytes + 48,), "uint8") in cupy.log
    assert cusz.inspect(archive) == cusz.inspect(wanted)
    cusz.check(archive)
    assert support.same_bits(cusz.decompress(archive), cusz.decompress(wanted))


def test_a_small_archive_does_not_keep_the_memory_of_a_large_one(cupy):
    zeros = np.zeros(10000, np.float32)
    archive = cusz.compress(cupy.array(zeros), 1e-3, device="cuda")
    assert archive.x.base is None
    assert cupy.log[-2:] == [("copy", 0), ("synchronize", 0)]
    noise = support.random_bits((10000,), support.F32)
    cupy.log.clear()
    assert cusz.compress(cupy.array(noise), 0.0, device="cuda").x.size == noise.nbytes + 48
    assert not any(entry[0] == "copy" for entry in cupy.log)


def test_compress_into_a_device_array(cupy):
    for make in (CudaArray, cupy.ndarray):
        out = make(np.zeros(X.nbytes + 50, np.uint8))
        filled = cusz.compress(X, 1e-3, out=out, device="cuda")
        assert type(filled) is type(out)
        assert filled.x.tobytes() == ARCHIVE
        assert np.shares_memory(filled.x, out.x)


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (
            CudaArray(np.zeros(X.nbytes + 47, np.uint8)),
            cusz.ParameterError,
            "out holds 527 bytes; on a device it needs 528",
        ),
        (CudaArray(np.zeros(2000, np.uint8)[::2]), cusz.UnsupportedError, "out is not contiguous"),
        (CudaArray(np.zeros(600, np.float32)), cusz.UnsupportedError, "one-dimensional array of uint8"),
        (CudaArray(np.zeros((30, 30), np.uint8)), cusz.UnsupportedError, "one-dimensional array of uint8"),
        (CudaArray(np.frombuffer(bytes(600), np.uint8)), cusz.ParameterError, "out is read-only"),
        (CudaArray(X.reshape(-1).view(np.uint8)), cusz.ParameterError, "overlaps"),
    ],
)
def test_refused_outputs_of_compress(out, error, words):
    with pytest.raises(error, match=words):
        cusz.compress(X, 1e-3, out=out)


def test_decompress_for_cupy(cupy):
    like = cupy.array(np.zeros(1), 1)
    for options, device in (
        ({"like": cupy}, 0),
        ({"device": "cuda"}, 0),
        ({"like": cupy, "device": "cuda"}, 0),
        ({"like": like}, 1),
        ({"like": like, "device": "cuda"}, 1),
    ):
        cupy.log.clear()
        field = cusz.decompress(ARCHIVE, **options)
        assert isinstance(field, cupy.ndarray)
        assert support.same_bits(field.x, DECODED)
        assert cupy.log == [("empty", device, X.shape, "float32")]
    with cupy.cuda.Device(1):
        cupy.log.clear()
        cusz.decompress(ARCHIVE, device="cuda")
        cusz.decompress(cupy.array(ARCHIVE_BYTES, 0), device="cuda")  # where the archive lies
    assert [entry[1] for entry in cupy.log] == [1, 0]


def test_decompress_for_numpy(cupy):
    archive = cupy.array(ARCHIVE_BYTES)
    for options in (
        {},
        {"device": "cpu"},
        {"like": np},
        {"like": X},
        {"like": np, "device": "cpu"},
        {"like": np.ma.array(X)},
    ):
        for source in (ARCHIVE, archive):
            field = cusz.decompress(source, **options)
            assert type(field) is np.ndarray
            assert support.same_bits(field, DECODED)


def test_decompress_for_pytorch(monkeypatch):
    torch = fake_cupy.FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    tensor = torch.Tensor(X)
    for options in ({"like": tensor}, {"like": torch, "device": "cuda"}):
        field = cusz.decompress(ARCHIVE, **options)
        assert isinstance(field, torch.Tensor)
        assert support.same_bits(field.x, DECODED)
    for device in ("cuda:0", "cuda:1"):  # the current one, and another
        tensor = torch.Tensor(X, device)
        assert cusz.compress(tensor, 1e-3) == ARCHIVE
        assert tensor.exports == [1]
        assert torch.current_device == "cuda:0"
    with pytest.raises(cusz.UnsupportedError, match="neither numpy's nor on a CUDA device: leave like out"):
        cusz.decompress(ARCHIVE, like=torch)


def test_an_array_tells_its_module(cupy):
    class Array:
        def __array_namespace__(self):
            return cupy

    assert isinstance(cusz.decompress(ARCHIVE, like=cupy.array(X)), cupy.ndarray)
    array = Array()
    array.device = cupy.cuda.Device(1)
    assert isinstance(cusz.decompress(ARCHIVE, like=array), cupy.ndarray)


@pytest.mark.parametrize("options", [{"device": "cuda"}, {"like": np, "device": "cuda"}, {"like": X, "device": "cuda"}])
def test_arrays_that_must_be_made_without_cupy(monkeypatch, options):
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it fails
    if "like" in options:
        with pytest.raises(cusz.ParameterError, match=r"like is numpy.*device is 'cuda'"):
            cusz.decompress(ARCHIVE, **options)
        return
    for call in (lambda: cusz.decompress(ARCHIVE, **options), lambda: cusz.compress(X, 1e-3, **options)):
        with pytest.raises(cusz.UnsupportedError, match=r"needs CuPy, which cannot be imported.*install cupy-cuda"):
            call()


def test_contradictions(cupy):
    field, archive = cupy.array(DECODED), cupy.array(ARCHIVE_BYTES)
    host = np.zeros_like(X)
    for options, words in (
        ({"like": cupy, "device": "cpu"}, "like is cupy.*device is 'cpu'"),
        ({"like": field, "device": "cpu"}, "like is cupy.*device is 'cpu'"),
        ({"out": host, "device": "cuda"}, "out is a numpy.ndarray in host memory, and device is 'cuda'"),
        ({"out": field, "device": "cpu"}, "out is .* on a device, and device is 'cpu'"),
        ({"out": host, "like": cupy}, "out is of numpy and like of cupy"),
    ):
        for source in (ARCHIVE, archive):
            with pytest.raises(cusz.ParameterError, match=words):
                cusz.decompress(source, **options)
    assert cusz.decompress(ARCHIVE, out=host, like=np, device="cpu") is host
    with pytest.raises(cusz.ParameterError, match="out is a bytearray in host memory, and device is 'cuda'"):
        cusz.compress(X, 1e-3, out=bytearray(1000), device="cuda")
    with pytest.raises(cusz.ParameterError, match=r"out is .* on a device, and device is 'cpu'"):
        cusz.compress(X, 1e-3, out=CudaArray(np.zeros(1000, np.uint8)), device="cpu")
    for device in ("gpu", "cuda:0", 0, True, ["cuda"]):
        for call in (lambda d: cusz.compress(X, 1e-3, device=d), lambda d: cusz.decompress(ARCHIVE, device=d)):
            with pytest.raises(cusz.ParameterError, match=r"device is .*; it must be 'cpu', 'cuda' or None"):
                call(device)


@pytest.mark.parametrize("like", ["cupy", 7, object(), sys, CudaArray(X)])
def test_refused_likes(like):
    with pytest.raises(cusz.ParameterError, match=r"like is .*it must be a module with empty"):
        cusz.decompress(ARCHIVE, like=like)


def test_arrays_that_must_not_change_are_not_written_to():
    class Array(CudaArray):
        pass

    Array.__module__ = "jaxlib._jax"
    array = Array(np.zeros_like(X))
    assert cusz.compress(Array(X), 1e-3) == ARCHIVE
    with pytest.raises(cusz.UnsupportedError, match="is immutable"):
        cusz.decompress(ARCHIVE, out=array)
    namespace = type(sys)("jax.numpy")
    namespace.empty = np.empty
    Array.__array_namespace__ = lambda self: namespace
    for like in (array, namespace):
        with pytest.raises(cusz.UnsupportedError, match=r"jax.numpy, whose arrays are immutable: leave it out"):
            cusz.decompress(ARCHIVE, like=like)


@pytest.mark.parametrize("make", [CudaArray, DLPackArray])
@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (X.astype(np.float64), cusz.UnsupportedError, "float64.*needs a writable C-contiguous array"),
        (X.reshape(20, 6), cusz.ParameterError, r"shape \(20, 6\).*shape \(4, 5, 6\)"),
        (np.zeros((4, 5, 12), np.float32)[:, :, ::2], cusz.ParameterError, "C-contiguous"),
    ],
)
def test_refused_output_fields(make, out, error, words):
    with pytest.raises(error, match=words):
        cusz.decompress(ARCHIVE, out=make(out))


def test_read_only_output_fields():
    with pytest.raises(cusz.ParameterError, match="out is read-only"):
        cusz.decompress(ARCHIVE, out=CudaArray(np.frombuffer(X.tobytes(), np.float32).reshape(X.shape)))


def test_output_must_not_overlap():
    memory = np.zeros(1000, np.float32)
    memory.view(np.uint8)[100 : 100 + len(ARCHIVE)] = ARCHIVE_BYTES
    with pytest.raises(cusz.ParameterError, match="overlaps"):
        cusz.decompress(
            CudaArray(memory.view(np.uint8)[100 : 100 + len(ARCHIVE)]), out=CudaArray(memory[: X.size].reshape(X.shape))
        )


@pytest.mark.parametrize("make", [CudaArray, DLPackArray])
def test_archives_in_device_arrays(make):
    archive = make(ARCHIVE_BYTES.copy())
    assert cusz.inspect(archive) == cusz.inspect(ARCHIVE)
    cusz.check(archive)
    assert support.same_bits(cusz.decompress(archive), DECODED)
    cusz.verify(X, archive)
    with pytest.raises(cusz.CorruptArchiveError):
        cusz.decompress(make(ARCHIVE_BYTES[:-4].copy()))
    with pytest.raises(cusz.CorruptArchiveError):
        cusz.inspect(make(np.zeros(0, np.uint8)))


@pytest.mark.parametrize(
    ("archive", "words"),
    [
        (np.zeros(100, np.float32), "device array of float32 with 1 dimensions.*one-dimensional array of uint8"),
        (np.zeros((10, 10), np.uint8), "device array of uint8 with 2 dimensions"),
        (np.zeros(100, np.uint8)[::2], "not contiguous"),
        (np.zeros(100, bool), "device array of bool"),
    ],
)
def test_refused_archives(archive, words):
    for read in (cusz.inspect, cusz.check, cusz.decompress, lambda a: cusz.verify(X, a)):
        with pytest.raises(cusz.UnsupportedError, match=words):
            read(CudaArray(archive))


def test_limits_hold_for_archives_on_a_device(cupy):
    with pytest.raises(cusz.ParameterError, match="more than max_bytes"):
        cusz.decompress(CudaArray(ARCHIVE_BYTES), like=cupy, max_bytes=X.nbytes - 1)
    assert cupy.log == []


# ----------------------------------------------------------------------------------------------------- backends


def test_backends_of_decompress():
    assert support.same_bits(cusz.decompress(ARCHIVE, backend="cpu"), DECODED)
    for call in (cusz.decompress, lambda a, **options: cusz.verify(X, a, **options)):
        with pytest.raises(cusz.ParameterError, match="backend is 'gpu'; it must be one of 'auto', 'cpu', 'cuda'"):
            call(ARCHIVE, backend="gpu")
        if "cuda" not in support.BACKENDS:
            with pytest.raises(cusz.DeviceError, match="CUDA"):
                call(ARCHIVE, backend="cuda")


def test_backend_and_arrays_are_passed_on(monkeypatch):
    seen = []
    monkeypatch.setattr(_native, "decompress_into", lambda *args: seen.append(args))
    out = CudaArray(np.zeros_like(X))
    cusz.decompress(ARCHIVE, out=out, backend="cpu")  # refused by the library, which knows where memory lies
    cusz.decompress(ARCHIVE, backend="cuda")
    assert [args[2] for args in seen] == [1, 2]
    assert isinstance(seen[0][1], _native.DeviceMemory)


def test_cupys_memory_errors(cupy):
    cupy.out_of_memory = True
    for call in (lambda: cusz.decompress(ARCHIVE, like=cupy), lambda: cusz.compress(X, 1e-3, device="cuda")):
        with pytest.raises(cusz.OutOfMemoryError, match="the fake device is full"):
            call()
    cupy.out_of_memory = False

    def no_driver(*args, **options):
        raise RuntimeError("cudaErrorInsufficientDriver")

    cupy.empty = no_driver
    with pytest.raises(cusz.DeviceError, match=r"cupy.empty cannot make .*cudaErrorInsufficientDriver"):
        cusz.decompress(ARCHIVE, device="cuda")


def test_devices_in_all_kinds_of_builds(monkeypatch):
    def cuda():
        return next(backend for backend in cusz.devices() if backend.name == "cuda")

    monkeypatch.setattr(_native, "has_backend", lambda backend: True)
    monkeypatch.setattr(_native, "device_count", lambda: (0, "there is no CUDA driver"))
    assert cuda().to_dict() == {
        "name": "cuda",
        "available": False,
        "device": "there is no CUDA driver",
        "threads": 0,
        "devices": [],
    }
    monkeypatch.setattr(_native, "device_count", lambda: (2, ""))
    monkeypatch.setattr(_native, "device_name", lambda number: f"GPU {number}")
    assert (cuda().available, cuda().device, cuda().devices) == (True, "GPU 0", ("GPU 0", "GPU 1"))
    monkeypatch.undo()
    if not _native.has_backend(2):
        assert (cuda().available, cuda().device, cuda().devices) == (False, "not in this build", ())
        with pytest.raises(cusz.DeviceError, match="CUDA device 0"):
            _native.device_name(0)
    count, reason = _native.device_count()
    assert (count > 0) != bool(reason)


# --------------------------------------------------------------------------------------------- memory of CuPy's pool


def test_the_allocator_takes_from_the_pool(cupy):
    stream = cupy.Stream(4096, 1)
    allocator = device_memory.PoolAllocator(cupy, 1, stream)
    address = allocator.allocate(1000)
    assert address % 256 == 0
    assert cupy.log == [("alloc", 1, 4096, 1000)]
    assert cupy.live == {address: 1000}  # kept, though nobody else holds it
    assert (cupy.current_device, cupy.streams[1][-1].ptr) == (0, 0)  # as before
    allocator.release(address)
    assert cupy.live == {}
    allocator.release(address)  # not held: does nothing

    cupy.out_of_memory = True
    assert allocator.allocate(1000) == 0
    assert isinstance(allocator.take_failure(), MemoryError)
    assert allocator.take_failure() is None


def test_nothing_is_held_after_a_call(cupy):
    x = cupy.array(X)
    cusz.release_scratch()
    out = cupy.array(np.zeros_like(X))
    references = [weakref.ref(x), weakref.ref(out)]
    cusz.decompress(cusz.compress(x, 1e-3), out=out)
    del x, out
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    cusz.release_scratch()


PRETEND = """
import ctypes, gc, os, sys
sys.path.insert(0, {tests!r})
import numpy as np
import cusz_core as cusz
from cusz_core import _native
from fakes.fake_cupy import CudaArray, FakeCupy

cupy = sys.modules["cupy"] = FakeCupy()
_native.device_of = lambda address: 0 if address else -1
pretend = ctypes.PyDLL({library!r})
pretend.pretend_log.restype = ctypes.c_char_p

def log():
    text = pretend.pretend_log().decode().splitlines()
    pretend.pretend_clear()
    return text

X = np.arange(600, dtype=np.float32)
x = cupy.array(X)
archive = cusz.compress(X, 1e-3)
assert log() == []
"""


@pytest.fixture(scope="module")
def pretend(tmp_path_factory):
    """Runs a program in a process whose library pretends to need memory on a device (fakes/pretend_device.c)."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    tests = Path(__file__).parents[1]
    library = tmp_path_factory.mktemp("pretend") / "pretend_device.so"
    include = tests.parent / "cusz_core" / "include"
    source = tests / "fakes" / "pretend_device.c"
    support.run([compiler, "-shared", "-fPIC", f"-I{include}", source, "-o", library, "-ldl", "-pthread"])

    def run(code):
        program = PRETEND.format(tests=str(tests), library=str(library)) + textwrap.dedent(code)
        preload = [os.environ.get("LD_PRELOAD", ""), str(library)]  # a sanitizer's comes first
        environment = os.environ | {"LD_PRELOAD": " ".join(filter(None, preload))}
        support.run([sys.executable, "-c", program], env=environment)

    return run


def test_scratch_memory_comes_from_the_pool_and_goes_back(pretend):
    pretend("""
        assert cusz.compress(x, 1e-3) == archive
        assert log() == ["allocator 1", "stream 0"]
        assert list(cupy.live.values()) == [4096]
        for _ in range(3):
            assert cusz.compress(x, 1e-3) == archive
            assert cusz.compress(X, 1e-3) == archive
        assert log() == []
        assert len([entry for entry in cupy.log if entry[0] == "alloc"]) == 1  # kept for reuse
        cusz.release_scratch()
        assert cupy.live == {}
        assert log() == ["destroy 1", "destroy 1"]
    """)


def test_streams_reach_the_library(pretend):
    pretend("""
        with cupy.Stream(4096):
            cusz.compress(x, 1e-3)
        assert log() == ["allocator 1", "stream 4096"]
        assert cupy.log[-1] == ("alloc", 0, 4096, 4096)
        with cupy.Stream(4096):
            cusz.compress(x, 1e-3)
        assert log() == []
        # A stream that somebody else may destroy: nothing of it is kept.
        with cupy.ExternalStream(512):
            cusz.compress(x, 1e-3)
        assert log() == ["allocator 1", "stream 512", "allocator 0", "stream 0"]
        for stream in range(77, 97):
            cusz.compress(CudaArray(X, stream=stream), 1e-3)
            assert log() == [f"stream {stream}", "stream 0"]
        cusz.compress(CudaArray(X), 1e-3)
        assert log() == []
        cusz.release_scratch()
        assert log() == ["destroy 1"] * 2  # the contexts that there were
    """)


def test_streams_without_end_do_not_pile_up(pretend):
    pretend("""
        for i in range(100):
            with cupy.Stream(4096 + i):
                assert cusz.compress(x, 1e-3) == archive
        assert len(cupy.live) <= 8
        assert "destroy 1" not in log()
        cusz.release_scratch()
        assert cupy.live == {}
        assert log().count("destroy 1") <= 8
    """)


def test_failures_of_the_pool_are_told(pretend):
    pretend("""
        cupy.out_of_memory = True
        for _ in range(2):
            try:
                cusz.compress(x, 1e-3)
            except cusz.OutOfMemoryError as error:
                assert str(error) == "out of memory", error
                assert isinstance(error.__cause__, MemoryError)
                assert "the fake pool is empty" in str(error.__cause__)
            else:
                raise AssertionError
        cupy.out_of_memory = False

        def interrupted(size):
            raise KeyboardInterrupt

        alloc, cupy.cuda.alloc = cupy.cuda.alloc, interrupted
        try:
            cusz.compress(x, 1e-3)
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError
        cupy.cuda.alloc = lambda size: object()  # no memory at all
        try:
            cusz.compress(x, 1e-3)
        except cusz.OutOfMemoryError as error:
            assert isinstance(error.__cause__, AttributeError)
        else:
            raise AssertionError
        cupy.cuda.alloc = alloc
        assert cusz.compress(x, 1e-3) == archive
    """)


def test_scratch_memory_of_many_threads(pretend):
    pretend("""
        import threading
        failures = []

        def work():
            try:
                for i in range(50):
                    with cupy.cuda.Device(0):
                        assert cusz.compress(x, 1e-3, threads=1) == archive
                    assert cusz.compress(X, 1e-3, threads=1) == archive
                    if i % 10 == 0:
                        cusz.release_scratch()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == [], failures
    """)
