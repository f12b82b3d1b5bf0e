"""Where the CUDA engine's memory comes from, how much it takes, and what happens when there is none left."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cusz_core as cusz
import support

pytestmark = pytest.mark.gpu

#: These tests are about the memory of the Lorenzo codec, which works in batches if there is little.
compress: Any = functools.partial(cusz.compress, predictor="lorenzo")

MIB = 1 << 20
SHAPE = (128, 256, 256)  # 32 MiB of f32


class Pool:
    """A memory pool of CuPy that replaces the default one and records the sizes requested."""

    def __init__(self, cupy: Any) -> None:
        self.pool = cupy.cuda.MemoryPool()
        self.sizes: list[int] = []

    def allocate(self, size: int) -> Any:
        self.sizes.append(size)
        return self.pool.malloc(size)

    @property
    def total(self) -> int:
        return int(self.pool.total_bytes())


@pytest.fixture
def pool(cupy: Any) -> Iterator[Pool]:
    cusz.release_scratch()
    own = Pool(cupy)
    with cupy.cuda.using_allocator(own.allocate):
        yield own
        cusz.release_scratch()


@pytest.mark.parametrize("mode", ["abs", "rel"])
def test_nothing_is_allocated_after_the_first_call(cupy: Any, pool: Pool, dtype: np.dtype, mode: Any) -> None:
    x = cupy.asarray(support.smooth(SHAPE, dtype))
    archive = cupy.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8)
    y = cupy.empty_like(x)
    totals, scratch, asked = [], [], []
    for _ in range(4):
        written = compress(x, 1e-4, mode, out=archive)
        cusz.decompress(written, out=y)
        totals.append(pool.total)
        scratch.append(cusz.scratch_bytes())
        asked.append(len(pool.sizes))
    assert len(set(totals)) == 1
    assert len(set(scratch)) == 1
    assert len(set(asked)) == 1


def test_scratch_memory_is_cupys(cupy: Any, pool: Pool, free_bytes: Callable[[], int]) -> None:
    """The device loses no more free memory than the pool gains, apart from some pages."""
    x = cupy.asarray(support.smooth(SHAPE, support.F32))
    cusz.decompress(compress(x, 1e-4), like=cupy)  # loads the kernels
    cusz.release_scratch()
    pool.pool.free_all_blocks()
    cupy.cuda.Device().synchronize()
    free, total = free_bytes(), pool.total
    archive = compress(x, 1e-4, device="cuda")
    y = cusz.decompress(archive, like=cupy)
    cupy.cuda.Device().synchronize()
    assert pool.total > total
    assert free - free_bytes() <= pool.total - total + 8 * MIB
    assert y.shape == x.shape


def test_scratch_memory_is_small(cupy: Any, pool: Pool, dtype: np.dtype) -> None:
    """From device to device, less than a hundredth of the field (the goal is at most 1.5 times the field)."""
    x = cupy.asarray(support.smooth(SHAPE, dtype))
    archive = cupy.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8)
    y = cupy.empty_like(x)
    before = sum(pool.sizes)
    cusz.decompress(compress(x, 1e-4, "rel", out=archive), out=y)
    assert sum(pool.sizes) - before < x.nbytes / 100 + MIB


def test_release_gives_all_back(cupy: Any, pool: Pool) -> None:
    x = cupy.asarray(support.smooth(SHAPE, support.F32))
    archive = cupy.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8)
    used = pool.pool.used_bytes()
    compress(x, 1e-4, out=archive)
    assert pool.pool.used_bytes() > used
    cusz.release_scratch()
    assert pool.pool.used_bytes() == used
    assert cusz.scratch_bytes() == 0


@pytest.mark.parametrize("part", [3, 10])
def test_batches_of_a_field_that_does_not_fit(cupy: Any, pool: Pool, dtype: np.dtype, part: int) -> None:
    """Memory for a third, or a tenth, of the field: the same archive, from several batches, and back."""
    x = support.smooth(SHAPE, dtype)
    wanted = compress(x, 1e-4, "rel", backend="cpu")
    out = cupy.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8)
    pool.pool.set_limit(size=pool.total + x.nbytes // part + 4 * MIB)
    asked = len(pool.sizes)
    archive = compress(x, 1e-4, "rel", out=out)
    assert archive.get().tobytes() == wanted
    assert len(pool.sizes) - asked > 3  # some in vain
    cusz.release_scratch()
    pool.pool.free_all_blocks()
    y = np.empty_like(x)
    cusz.decompress(archive, out=y)
    assert support.same_bits(y, cusz.decompress(wanted, backend="cpu"))


def test_batches_of_an_archive_that_does_not_fit(cupy: Any, pool: Pool) -> None:
    x = (support.random_bits(SHAPE, support.F64, 1).view(np.int64) >> 20).astype(np.float64)
    wanted = compress(x, 2.0**20, backend="cpu")
    assert len(wanted) > x.nbytes / 4
    y = cupy.empty(x.shape, x.dtype)
    pool.pool.set_limit(size=pool.total + len(wanted) // 4 + 4 * MIB)
    cusz.decompress(wanted, out=y)
    assert support.same_bits(y.get(), cusz.decompress(wanted, backend="cpu"))


def test_out_of_memory_and_a_good_call(cupy: Any, pool: Pool) -> None:
    x = support.smooth(SHAPE, support.F32)
    wanted = compress(x, 1e-4, backend="cpu")
    on_device = cupy.asarray(x)
    out = cupy.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8)
    y = cupy.empty_like(on_device)
    pool.pool.set_limit(size=pool.total + 512)
    for call in (
        lambda: compress(on_device, 1e-4, out=out),
        lambda: compress(on_device, 1e-4, device="cuda"),
        lambda: compress(x, 1e-4, out=out),
        lambda: cusz.decompress(wanted, out=y),
        lambda: cusz.decompress(wanted, like=cupy),
    ):
        with pytest.raises(cusz.OutOfMemoryError, match="memory"):
            call()
    pool.pool.set_limit(size=0)
    archive = compress(on_device, 1e-4, out=out)
    assert archive.get().tobytes() == wanted
    assert support.same_bits(cusz.decompress(archive, out=y).get(), cusz.decompress(wanted, backend="cpu"))


def test_other_failures_and_a_good_call(cupy: Any) -> None:
    x = support.smooth((50, 60, 70), support.F32)
    wanted = compress(x, 1e-3, backend="cpu")
    archive = cupy.asarray(np.frombuffer(wanted, np.uint8))
    damaged = archive.copy()
    damaged[-1] ^= 255
    for _ in range(3):
        with pytest.raises(cusz.CorruptArchiveError):
            cusz.decompress(damaged, like=cupy)
        with pytest.raises(cusz.CorruptArchiveError):
            cusz.check(archive[:-4])
        with pytest.raises(cusz.ParameterError):
            compress(cupy.asarray(x), 1e-3, backend="cpu")
        assert support.same_bits(cusz.decompress(archive, like=cupy).get(), cusz.decompress(wanted, backend="cpu"))


# ------------------------------------------------------------------------------------------------------ large fields


def large(cupy: Any, shape: tuple[int, ...], dtype: np.dtype, noise: float) -> Any:
    """A smooth field with noise, made on the device, a layer at a time."""
    x = cupy.empty(shape, dtype)
    inner = np.arange(x[0].size, dtype=np.uint32).reshape(shape[1:]) if len(shape) > 1 else None
    i = cupy.asarray(inner) if inner is not None else cupy.arange(shape[0], dtype=np.uint32)
    for z in range(shape[0] if inner is not None else 1):
        mixed = (i + np.uint32(z * 40503)) * np.uint32(2654435761)
        mixed ^= mixed >> np.uint32(15)
        values = cupy.sin((i & np.uint32(0xFFFF)).astype(np.float32) * np.float32(1e-3)) + np.float32(z * 1e-3)
        values += mixed.astype(np.float32) * np.float32(noise / 2**32)
        if inner is not None:
            x[z] = values
        else:
            x[...] = values
    return x


def largest_error(cupy: Any, x: Any, y: Any) -> float:
    """On the device, a part at a time."""
    a, b, part, largest = x.reshape(-1), y.reshape(-1), 1 << 28, 0.0
    for start in range(0, a.size, part):
        p, q = a[start : start + part].astype(np.float64), b[start : start + part].astype(np.float64)
        largest = max(largest, float(cupy.abs(p - q).max()))
    return largest


def test_512_cubed(cupy: Any, free_bytes: Callable[[], int]) -> None:
    if free_bytes() < 4 << 30:
        pytest.skip("less than 4 GiB of device memory are free")
    x = large(cupy, (512, 512, 512), support.F32, 0.05)
    archive = compress(x, 1e-3, device="cuda")
    assert largest_error(cupy, x, cusz.decompress(archive, like=cupy)) <= 1e-3
    assert archive.get().tobytes() == compress(x.get(), 1e-3, backend="cpu")


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "dtype", "noise"),
    [
        pytest.param((1100, 1024, 1024), support.F32, 0.05, id="more than 2^32 bytes"),
        pytest.param((2100, 1024, 1024), support.F32, 0.05, id="more than 2^31 values"),
        pytest.param((2100, 1024, 1024), support.F32, 1e5, id="an archive of more than 2^32 bytes"),
        pytest.param((600, 1024, 1024), support.F64, 0.05, id="f64"),
        pytest.param((2**31 + 4099,), support.F32, 0.05, id="one dimension"),
    ],
)
def test_beyond_32_bits(
    cupy: Any, free_bytes: Callable[[], int], shape: tuple[int, ...], dtype: np.dtype, noise: float
) -> None:
    """Index arithmetic: fields of 4 GiB and more, compared on the device; archives with the CPU's."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    needed = (8 if len(shape) == 1 else 4) * size + (8 << 30)
    if free_bytes() < needed:
        pytest.skip(f"less than {needed >> 30} GiB of device memory are free")
    x = large(cupy, shape, dtype, noise)
    archive = compress(x, 1e-3, device="cuda")
    if noise > 1e3:
        assert archive.size > 2**32
    assert cusz.inspect(archive).kind == "tiled"
    y = cusz.decompress(archive, like=cupy)
    assert largest_error(cupy, x, y) <= 1e-3
    del y
    host = archive.get()
    del archive
    cusz.check(host)
    assert host.tobytes() == compress(x.get(), 1e-3, backend="cpu")
