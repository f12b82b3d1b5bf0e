"""Many fields in one call: the archives of `compress`, with a few launches for all fields if these lie on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from simt_checks import OF_RELEASE, Pool, cpu_archive, failure_of, functions_of_the_runtime
from simt_fields import KINDS, SHAPES
from simt_library import ABS, AUTO, CPU, CUDA, DEVICE, HOST, REL, Context, Failure, Library, Status

import support

pytestmark = pytest.mark.simt

DTYPES: list[np.dtype] = [np.dtype(np.float32), np.dtype(np.float64)]


def check_many(
    context: Context, fields: Sequence[NDArray], eb: float, mode: int = ABS, *, backend: int = CUDA, **options: Any
) -> None:
    """Compares everything that the call says of fields on the device with what it says of fields on the host."""
    wanted = context.compress_many_described(fields, eb, mode, backend=CPU, **options)
    assert context.compress_many_described(fields, eb, mode, field=DEVICE, backend=backend, **options) == wanted


def small_fields(n: int, dtype: np.dtype, shape: tuple[int, ...] = (9, 17, 33)) -> list[NDArray]:
    return [support.smooth(shape, dtype, seed) for seed in range(n)]


@pytest.mark.quick("all")
@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_kinds_and_shapes(simt: Library, context: Context, name: str, dtype: np.dtype) -> None:
    """Fields of one number of dimensions, whose tiles differ in shape, and empty ones among them."""
    kind = KINDS[name]
    for ndim in range(1, 5):
        fields = [kind.make(shape, dtype) for shape in SHAPES if len(shape) == ndim]
        fields[1:1] = [np.zeros((0,) * ndim, dtype)]
        check_many(context, fields, kind.eb, kind.mode, **kind.options)


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fields_that_differ(simt: Library, context: Context, dtype: np.dtype) -> None:
    """Archives of every length, some of them raw, and ranges of every kind."""
    shape = (11, 20, 34)
    makes = [kind.make for kind in KINDS.values() if not kind.options]
    fields = [make(shape, dtype) for make in makes]
    for mode, ranges, options in (
        (ABS, True, {}),
        (ABS, False, {"fill": 1e20}),
        (REL, True, {"bins": 1024}),
        (REL, False, {}),
        (REL, False, {"bins": 8192}),
        (ABS, True, {"lossless": 1, "threads": 2}),
    ):
        check_many(context, fields, 1e-3, mode, ranges=ranges, **options)
    archives = context.compress_many(fields, 1e-3, field=DEVICE, backend=CUDA)
    assert {context.info_of(archive).kind for archive in archives} == {0, 1}


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("mode", [ABS, REL])
def test_launches_and_waits_do_not_depend_on_the_number_of_fields(simt: Library, context: Context, mode: int) -> None:
    found = []
    for n in (2, 50):
        fields = small_fields(n, DTYPES[0])
        launches, waits = simt.launches, simt.synchronizations
        context.compress_many_described(fields, 1e-3, mode, field=DEVICE, backend=CUDA, ranges=False)
        found.append((simt.launches - launches, simt.synchronizations - waits - n))  # each is put there with one
    assert found[0] == found[1]
    assert found[0][0] == 5 + (mode == REL)  # bound, count, codebook, tiles, gathering; and the range
    assert found[0][1] <= 8


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize(("n", "on_device"), [(25, False), (30, True)])
def test_many_values_are_worth_the_launches(simt: Library, context: Context, n: int, on_device: bool) -> None:
    """With backend auto: 2^17 values, or a field of that size."""
    fields = small_fields(n, DTYPES[0])
    assert (sum(x.size for x in fields) >= 2**17) is on_device
    before = simt.launches
    check_many(context, fields, 1e-3, backend=AUTO)
    assert (simt.launches > before) is on_device


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("sizes", "is_staged"), [(range(20), True), ([3, 300, 5], False)], ids=["small", "large"])
def test_places(
    simt: Library, context: Context, sizes: Sequence[int], is_staged: bool, dtype: np.dtype, predictor: str
) -> None:
    """Few values are compressed on the host, unless the call asks for cuda."""
    fields = [support.smooth((n, 21, 22), dtype, seed=n) for n in sizes]
    wanted = [cpu_archive(context, x, 1e-2, predictor=predictor) for x in fields]
    for place, backend, launches in (
        (HOST, AUTO, False),
        (DEVICE, AUTO, not is_staged),
        (DEVICE, CUDA, True),
    ):
        for threads in (1, 2):
            before = simt.launches
            made = context.compress_many(
                fields, 1e-2, field=place, threads=threads, backend=backend, predictor=predictor
            )
            assert made == wanted
            assert (simt.launches > before) is launches
    with pytest.raises(Failure, match="go to host memory"):
        context.compress_many(fields, 1e-2, archives=DEVICE, predictor=predictor)
    with pytest.raises(Failure, match="cpu takes host memory"):
        context.compress_many(fields, 1e-2, field=DEVICE, backend=CPU, predictor=predictor)


@pytest.mark.usefixtures("hidden")
@pytest.mark.full
def test_more_than_are_done_at_a_time(simt: Library, context: Context) -> None:
    """64 MiB of fields, and one that is longer."""
    n = 9 << 20
    fields = [np.full(size, 3, np.float32) for size in (n, 100, n, 2 * n, n, 0, 7)]
    check_many(context, fields, 1e-3)


def test_when_cuda_cannot_tell(simt: Library, context: Context) -> None:
    fields = [support.smooth((9, 20), DTYPES[0], seed=n) for n in range(3)]
    simt.c.simt_break_device(1)
    try:
        with pytest.raises(Failure, match="DEVICE: block 0 of 3: "):
            context.compress_many(fields, 1e-2)
    finally:
        simt.c.simt_break_device(0)
    assert context.compress_many(fields, 1e-2) == [cpu_archive(context, x, 1e-2) for x in fields]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_small_fields_are_fetched_together(simt: Library, context: Context, dtype: np.dtype) -> None:
    """More than fits the pinned memory, in sizes that do not fill it evenly; for a codec that runs on the CPU."""
    fields = [support.smooth((n % 7 + 1, 61, 301), dtype, seed=n) for n in range(40)]
    wanted = [cpu_archive(context, x, 1e-2, predictor="spline") for x in fields]
    before = simt.synchronizations
    assert context.compress_many(fields, 1e-2, field=DEVICE, predictor="spline") == wanted
    waits = simt.synchronizations - before - len(fields)  # one for each, to put it on the device
    assert waits <= sum(x.nbytes for x in fields) // (8 << 20) + 2


# ---- Memory and failures


def test_without_memory_for_all_they_are_done_one_by_one(simt: Library, context: Context) -> None:
    fields = small_fields(20, DTYPES[0])
    wanted = context.compress_many(fields, 1e-3, backend=CPU)
    before = simt.allocated
    context.compress(fields[0], 1e-3, field=DEVICE)
    alone = simt.allocated - before
    context.release_scratch()
    simt.set_memory_limit(before + alone + sum(x.nbytes for x in fields) + 100_000)
    launches = simt.launches
    assert context.compress_many(fields, 1e-3, field=DEVICE, backend=CUDA) == wanted
    assert simt.launches - launches > 2 * len(fields)


def test_scratch_memory_is_kept_and_given_back(simt: Library, context: Context) -> None:
    pool = Pool(simt)
    context.set_allocator(pool.allocate, pool.release, 77)
    fields = small_fields(12, DTYPES[1])
    check_many(context, fields, 1e-3, REL)
    allocations, scratch = pool.allocations, context.scratch
    assert scratch >= sum(memory.nbytes for memory in pool.live.values()) > 0
    check_many(context, fields, 1e-3, REL)
    assert (pool.allocations, context.scratch) == (allocations, scratch)
    context.release_scratch()
    assert (context.scratch, pool.live, pool.wrong) == (0, {}, [])


def test_every_call_of_the_runtime_may_fail(simt: Library) -> None:
    fields = small_fields(3, DTYPES[0])
    with Context(simt) as context:
        wanted = context.compress_many(fields, 1e-3, REL, backend=CPU)
    failed = 0
    for function in functions_of_the_runtime():
        with Context(simt) as context:
            held = simt.held
            for nth in range(4, 100):  # the first ones put the fields on the device
                before = simt.calls(function)
                simt.fail_call(function, nth)
                failure = failure_of(lambda c=context: c.compress_many(fields, 1e-3, REL, field=DEVICE, backend=CUDA))
                calls = simt.calls(function) - before
                simt.fail_call(function, 0)
                if failure is None and calls < nth:
                    break
                if failure is not None:
                    failed += 1
                    assert failure.status in (Status.DEVICE, Status.MEMORY)
                assert context.compress_many(fields, 1e-3, REL, field=DEVICE, backend=CUDA) == wanted
                context.release_scratch()
                assert simt.held == held or function in OF_RELEASE
                held = simt.held
            else:
                pytest.fail("it never succeeds")
    assert failed > 5


def test_a_field_that_is_not_aligned_is_named(simt: Library, context: Context) -> None:
    fields = small_fields(3, DTYPES[0])
    real = simt.memory

    def shifted(place: str, data: Any, shift: int = 0) -> Any:
        return real(place, data, shift=2 if data is fields[1] else shift)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simt, "memory", shifted)
        with pytest.raises(Failure, match="block 1 of 3: field lies on a device and is not aligned to 4 bytes"):
            context.compress_many(fields, 1e-3, field=DEVICE, backend=CUDA)


def test_schedules(simt: Library, context: Context) -> None:
    fields = [*small_fields(5, DTYPES[0], (40, 33, 40)), support.smooth((3, 3, 3), DTYPES[0])]
    wanted = context.compress_many(fields, 1e-3, REL, backend=CPU)
    assert math.prod(fields[0].shape) > 8 * 4096
    for order, seed, blocks in ((0, 0, 1), (1, 0, 16), (2, 1, 4), (2, 2, 16)):
        simt.set_schedule(order, seed, blocks)
        assert context.compress_many(fields, 1e-3, REL, field=DEVICE, backend=CUDA) == wanted
