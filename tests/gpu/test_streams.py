"""Streams, host threads, and device arrays of other libraries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import cusz_core as cusz
import support

pytestmark = pytest.mark.gpu


def test_a_stream_of_ones_own(cupy: Any) -> None:
    x = support.smooth((100, 110, 120), support.F32)
    wanted = cusz.compress(x, 1e-4, backend="cpu")
    for stream in (cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(), cupy.cuda.Stream.null):
        with stream:
            archive = cusz.compress(cupy.asarray(x), 1e-4, device="cuda")
            y = cusz.decompress(archive, like=cupy)
        assert archive.get().tobytes() == wanted
        assert support.same_bits(y.get(), cusz.decompress(wanted, backend="cpu"))


@pytest.mark.parametrize("non_blocking", [True, False])
def test_work_before_and_after_on_the_stream(cupy: Any, non_blocking: bool) -> None:
    """Work given to the stream before the call shows in the archive; later work does not."""
    x = support.smooth((200, 200, 200), support.F32)
    wanted = cusz.compress(x, 1e-4, backend="cpu")
    source = cupy.asarray(x)
    late = cupy.zeros_like(source)
    busy = cupy.zeros(1 << 27, np.float32)
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=non_blocking):
        for _ in range(5):
            late.fill(7)
            for _ in range(10):
                busy += 1
            cupy.copyto(late, source)
            archive = cusz.compress(late, 1e-4, device="cuda")
            late.fill(9)
            y = cusz.decompress(archive, out=late)
            same = bool((y == cupy.asarray(cusz.decompress(wanted, backend="cpu"))).all())
            assert same
            assert archive.get().tobytes() == wanted


def test_streams_of_many_threads(cupy: Any) -> None:
    """Each with its own stream and field, all at once; the archives are the same as from one alone."""
    fields = [support.smooth((60 + 3 * n, 70, 80), support.DTYPES[n % 2], n) for n in range(8)]
    wanted = [cusz.compress(x, 1e-4, "rel", backend="cpu") for x in fields]
    decoded = [cusz.decompress(archive, backend="cpu") for archive in wanted]
    device = cupy.cuda.Device().id

    def work(n: int) -> int:
        good = 0
        with cupy.cuda.Device(device), cupy.cuda.Stream(non_blocking=True):
            x = cupy.asarray(fields[n])
            out = cupy.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8)
            y = cupy.empty_like(x)
            for _ in range(10):
                archive = cusz.compress(x, 1e-4, "rel", out=out)
                cusz.decompress(archive, out=y)
                good += archive.get().tobytes() == wanted[n] and support.same_bits(y.get(), decoded[n])
        return good

    with ThreadPoolExecutor(len(fields)) as threads:
        assert list(threads.map(work, range(len(fields)))) == [10] * len(fields)


def test_threads_on_one_stream_and_on_the_host(cupy: Any) -> None:
    """Device arrays, host arrays on the device and host arrays on the CPU, in turn."""
    x = support.smooth((60, 70, 80), support.F32)
    wanted = cusz.compress(x, 1e-4, "rel", backend="cpu")
    on_device = cupy.asarray(x)
    cupy.cuda.Device().synchronize()
    device = cupy.cuda.Device().id

    def work(n: int) -> bool:
        with cupy.cuda.Device(device):
            results = []
            for i in range(12):
                kind = (n + i) % 3
                source: Any = on_device if kind == 0 else x
                results.append(cusz.compress(source, 1e-4, "rel", backend="cpu" if kind == 1 else "cuda"))
            return all(result == wanted for result in results)

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(work, range(6)))


def test_a_device_that_is_not_current(cupy: Any) -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is only one CUDA device")
    x = support.smooth((60, 70, 80), support.F32)
    wanted = cusz.compress(x, 1e-4, backend="cpu")
    with cupy.cuda.Device(1):
        on_device, y = cupy.asarray(x), cupy.empty(x.shape, x.dtype)
        cupy.cuda.Device().synchronize()
    with cupy.cuda.Device(0):
        assert cusz.compress(OnlyInterface(on_device), 1e-4) == wanted
        cusz.decompress(wanted, out=OnlyInterface(y))
        assert cupy.cuda.Device().id == 0
    with cupy.cuda.Device(1):
        assert support.same_bits(y.get(), cusz.decompress(wanted, backend="cpu"))


# ------------------------------------------------------------------------------------------arrays of other libraries


class OnlyDLPack:
    """An array that offers only DLPack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OnlyInterface:
    """An array that offers only the CUDA array interface."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.array.__cuda_array_interface__


@pytest.mark.parametrize("wrapper", [OnlyDLPack, OnlyInterface])
def test_other_arrays(cupy: Any, dtype: np.dtype, wrapper: Any) -> None:
    x = support.smooth((50, 60, 70), dtype)
    wanted = cusz.compress(x, 1e-4, backend="cpu")
    assert cusz.compress(wrapper(cupy.asarray(x)), 1e-4) == wanted
    y = cupy.empty(x.shape, dtype)
    cusz.decompress(wrapper(cupy.asarray(np.frombuffer(wanted, np.uint8))), out=wrapper(y))
    assert support.same_bits(y.get(), cusz.decompress(wanted, backend="cpu"))


def test_a_field_that_is_not_contiguous(cupy: Any) -> None:
    x = support.smooth((50, 60, 70), support.F32)
    for view in (x.transpose(2, 0, 1), x[::2], x[:, 1:, ::3]):
        wanted = cusz.compress(np.ascontiguousarray(view), 1e-4, backend="cpu")
        strided = cupy.asarray(x)
        same = {x.transpose(2, 0, 1).shape: strided.transpose(2, 0, 1), x[::2].shape: strided[::2]}
        assert cusz.compress(same.get(view.shape, strided[:, 1:, ::3]), 1e-4) == wanted


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_fields_at_any_value_of_an_array(cupy: Any, dtype: np.dtype, offset: int) -> None:
    """Aligned to a value, and to nothing more."""
    x = support.smooth((24, 40, 50), dtype)
    around = cupy.empty(x.size + offset, dtype)
    inner = around[offset:].reshape(x.shape)
    inner[...] = cupy.asarray(x)
    wanted = cusz.compress(x, 1e-4, backend="cpu")
    assert cusz.compress(inner, 1e-4) == wanted
    inner.fill(0)
    cusz.decompress(wanted, out=inner)
    assert support.same_bits(inner.get(), cusz.decompress(wanted, backend="cpu"))
    bytes_around = cupy.empty(cusz.max_archive_bytes(x.shape, dtype) + 4 * offset, np.uint8)
    assert cusz.compress(inner, 0.0, out=bytes_around[4 * offset :]).get().tobytes() == cusz.compress(inner.get(), 0.0)


@pytest.fixture
def torch(cupy: Any) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return torch


def test_tensors_of_pytorch(torch: Any, dtype: np.dtype) -> None:
    x = support.smooth((50, 60, 70), dtype)
    wanted = cusz.compress(x, 1e-4, backend="cpu")
    decoded = cusz.decompress(wanted, backend="cpu")
    tensor = torch.from_numpy(x).cuda()
    assert cusz.compress(tensor, 1e-4) == wanted
    assert cusz.compress(OnlyDLPack(tensor), 1e-4) == wanted
    back = cusz.decompress(wanted, like=tensor)
    assert back.is_cuda
    assert support.same_bits(back.cpu().numpy(), decoded)
    tensor.zero_()
    cusz.decompress(wanted, out=tensor)
    assert support.same_bits(tensor.cpu().numpy(), decoded)


def test_a_stream_of_pytorch(torch: Any) -> None:
    """Work that is pending on PyTorch's own stream is waited for."""
    x = torch.from_numpy(support.smooth((200, 200, 200), support.F32)).cuda()
    wanted = cusz.compress(x.cpu().numpy(), 1e-4, backend="cpu")
    late, busy = torch.zeros_like(x), torch.zeros(1 << 27, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(5):
            late.fill_(7)
            for _ in range(10):
                busy += 1
            late.copy_(x)
            assert cusz.compress(late, 1e-4) == wanted
