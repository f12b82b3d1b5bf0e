"""The CUDA engine behind the C interface: where data lies, schedules, memory, failures, streams."""

from __future__ import annotations

import ctypes
import errno
import itertools
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simt_checks import (
    PAIRS_OF_PLACES,
    SCHEDULES,
    Pool,
    check_identity,
    cpu_archive,
    every_call_may_fail,
    failure_of,
    refused,
)
from simt_fields import KINDS, REACHING, SPLINE_KINDS, SPLINE_SHAPES, Kind
from simt_library import (
    ABS,
    AUTO,
    CPU,
    CUDA,
    DEVICE,
    HOST,
    PLACES,
    PW_REL,
    RAW_OVERHEAD,
    REL,
    Context,
    Failure,
    Library,
    Memory,
    Status,
)

import support

pytestmark = pytest.mark.simt

CORE = Path(__file__).resolve().parents[2] / "cusz_core"
DTYPES: list[np.dtype] = [np.dtype(np.float32), np.dtype(np.float64)]
SHAPE = (18, 33, 40)
SMALL_SHAPE = (9, 17, 33)  # eight tiles, seven of them clipped; and two more lattices

#: Max number of times the host waits if field and archive lie on the device.
SYNCHRONIZATIONS_OF_COMPRESS = {ABS: 5, REL: 6}
SYNCHRONIZATIONS_OF_DECOMPRESS = 3


# ---- Where fields and archives lie


def test_device_memory_can_be_hidden(simt: Library) -> None:
    """A system call tells, without a fault, whether the host could read it."""
    read_end, write_end = os.pipe()
    write = ctypes.CDLL(None, use_errno=True).write
    write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    with simt.memory(DEVICE, b"data") as memory:
        assert write(write_end, memory.pointer, 4) == 4
        assert os.read(read_end, 4) == b"data"
        simt.hide_device_memory()
        assert write(write_end, memory.pointer, 4) == -1
        assert ctypes.get_errno() == errno.EFAULT
        assert memory.get() == b"data"
        with simt.memory(DEVICE, 10) as later:
            assert write(write_end, later.pointer, 4) == -1
        simt.hide_device_memory(False)
        assert write(write_end, memory.pointer, 4) == 4
    os.close(read_end)
    os.close(write_end)


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("archive_place", PLACES)
@pytest.mark.parametrize("field_place", PLACES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["smooth_rel", "mixture", "far", "incompressible", "lossless", "all_nan"])
def test_places(
    simt: Library, context: Context, name: str, dtype: np.dtype, field_place: str, archive_place: str, predictor: str
) -> None:
    kind = KINDS[name]
    x = kind.make(SHAPE if predictor == "lorenzo" else SMALL_SHAPE, dtype)
    of_kind = {**kind.options, "predictor": predictor}
    wanted = cpu_archive(context, x, kind.eb, kind.mode, **of_kind)
    decoded = context.decompress(wanted, x.nbytes, backend=CPU)
    assert simt.launches == 0
    for backend in (AUTO, CUDA):
        options = {"field": field_place, "archive": archive_place, "backend": backend}
        on_host = field_place == archive_place == HOST
        for run in range(2):
            before = simt.launches
            if run == 0:
                assert context.compress(x, kind.eb, kind.mode, **options, **of_kind) == wanted
            else:
                assert context.decompress(wanted, x.nbytes, **options) == decoded
            # A raw archive is copied; the host computes its checksum if either of the two lies there.
            took_device = simt.launches > before
            is_raw = name in ("lossless", "incompressible")
            if predictor == "lorenzo" and not (is_raw and HOST in (field_place, archive_place)):
                assert took_device == (not on_host or backend == CUDA)


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("archive_place", PLACES)
@pytest.mark.parametrize("field_place", PLACES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_levels(
    simt: Library, context: Context, dtype: np.dtype, field_place: str, archive_place: str, predictor: str
) -> None:
    """They are decoded on the host, then copied."""
    kind = KINDS["mixture"]
    x = kind.make(SHAPE, dtype)
    archive = cpu_archive(context, x, kind.eb, kind.mode, **kind.options, predictor=predictor)
    whole = np.frombuffer(context.decompress(archive, x.nbytes, backend=CPU), dtype).reshape(SHAPE)
    for number in range(4):
        level, values = context.level(archive, number, archive_place=archive_place, field_place=field_place)
        step = level.step[: level.ndim]
        assert values == whole[tuple(slice(None, None, s) for s in step)].tobytes()
        assert (level.needed_bytes < len(archive)) == (predictor == "spline" and number > 0)
    assert simt.launches == 0


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["smooth_rel", "mixture", "incompressible", "lossless"])
def test_inspect_and_check(simt: Library, context: Context, name: str, place: str, predictor: str) -> None:
    kind = KINDS[name]
    x = kind.make(SHAPE, DTYPES[0])
    data = cpu_archive(context, x, kind.eb, kind.mode, **kind.options, predictor=predictor)
    wanted = context.info_of(data)
    with simt.memory(place, data) as archive:
        assert bytes(context.inspect(archive)) == bytes(wanted)
        context.check(archive)
    assert (simt.launches > 0) == (place == DEVICE and (predictor == "lorenzo" or wanted.kind == 0))
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with simt.memory(place, bytes(damaged)) as archive, pytest.raises(Failure) as failure:
        context.check(archive)
    assert failure.value.status == Status.CORRUPT
    # The head of a spline archive on a device is verified only when the archive is read.
    read = context.check if (place, predictor) == (DEVICE, "spline") else context.inspect
    with simt.memory(place, data) as archive:
        for nbytes in (0, 1, 47, 48, 100, len(data) - 1):
            with pytest.raises(Failure) as failure:
                read(archive, nbytes)
            assert failure.value.status == Status.CORRUPT


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("name", ["smooth", "mixture", "all_nan", "signed_zeros", "denormal_abs", "random_bits"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_value_range(simt: Library, context: Context, name: str, dtype: np.dtype) -> None:
    for shape in ((1,), (255,), (5000,), (100_001,)):
        x = KINDS[name].make(shape, dtype)
        for fill in (None, 1e20, float(x[0])):
            with simt.memory(HOST, x) as on_host, simt.memory(DEVICE, x) as on_device:
                wanted = context.value_range(on_host, dtype, x.size, fill)
                before = simt.launches
                assert np.array(context.value_range(on_device, dtype, x.size, fill)).tobytes() == (
                    np.array(wanted).tobytes()
                )
                assert simt.launches > before


def test_one_extreme_value_is_found_wherever_it_is(simt: Library, context: Context) -> None:
    n = 3 * 8 * 2 * 256
    for at in (0, 1, 31, 32, 255, 256, 300, n // 2, n - 33, n - 2, n - 1):
        x = np.zeros(n, np.float32)
        x[at] = 5
        x[n - 1 - at] = -7
        with simt.memory(DEVICE, x) as field:
            assert context.value_range(field, x.dtype, n) == (-7, 5, n)


def test_an_empty_range(simt: Library, context: Context) -> None:
    with simt.memory(DEVICE, 8) as field:
        assert context.value_range(field, DTYPES[0], 0) == (0, 0, 0)


@pytest.mark.usefixtures("hidden")
def test_what_is_refused(simt: Library, context: Context, predictor: str) -> None:
    x = support.smooth(SHAPE, DTYPES[0])
    capacity = x.nbytes + RAW_OVERHEAD
    data = cpu_archive(context, x, 1e-2, predictor=predictor)
    raw = cpu_archive(context, x, 0.0)
    memory = simt.memory
    with (
        memory(HOST, x) as field, memory(DEVICE, x) as device_field, memory(DEVICE, x, shift=2) as shifted,
        memory(HOST, capacity) as archive, memory(DEVICE, capacity) as device_archive,
        memory(DEVICE, capacity, shift=2) as shifted_archive,
        memory(DEVICE, data) as device_data, memory(DEVICE, data, shift=2) as shifted_data,
        memory(DEVICE, raw) as device_raw, memory(DEVICE, raw, shift=1) as shifted_raw,
        memory(DEVICE, data, shift=1) as shifted_by_1,
    ):  # fmt: skip

        def compress(target: Memory, source: Memory, eb: float = 1e-2, mode: int = ABS, **options: Any) -> None:
            context.compress_into(target, source, x.dtype, x.shape, eb, mode, predictor=predictor, **options)

        for target in (archive, device_archive):
            wanted = "field lies on a device and is not aligned to 4"
            refused(Status.PARAMETER, wanted, lambda t=target: compress(t, shifted))
            refused(Status.PARAMETER, "not aligned", lambda t=target: compress(t, shifted, 1e-3, REL))
            refused(Status.PARAMETER, "not aligned", lambda t=target: compress(t, shifted, 0.0))
        refused(Status.PARAMETER, "not aligned", lambda: compress(shifted_archive, device_field, 0.0))
        refused(Status.PARAMETER, "not aligned", lambda: compress(shifted_archive, field, 0.0))
        for target, source in ((archive, device_field), (device_archive, field), (device_archive, device_field)):
            refused(Status.PARAMETER, "cpu takes host memory", lambda t=target, s=source: compress(t, s, backend=CPU))
        if simt.c.cusz_has_lossless(1):
            refused(Status.UNSUPPORTED, "lossless", lambda: compress(device_archive, device_field, lossless=1))

        for place in (field, device_field):
            refused(Status.PARAMETER, "not aligned", lambda p=place: context.decompress_into(p, shifted_raw))
        refused(Status.PARAMETER, "not aligned", lambda: context.decompress_into(shifted, device_raw))
        refused(Status.PARAMETER, "cpu takes host", lambda: context.decompress_into(field, device_data, backend=CPU))
        refused(
            Status.PARAMETER, "cpu takes host", lambda: context.decompress_into(device_field, device_raw, backend=CPU)
        )
        refused(Status.PARAMETER, "backend is 3", lambda: context.decompress_into(field, device_data, backend=3))
        refused(Status.PARAMETER, "not aligned", lambda: context.value_range(shifted, x.dtype, x.size))
        if predictor == "lorenzo":  # data that goes through the host is copied
            wanted = "archive lies on a device and is not"
            refused(Status.PARAMETER, wanted, lambda: compress(shifted_archive, device_field))
            refused(Status.PARAMETER, "not aligned", lambda: compress(shifted_archive, field))
            for place in (field, device_field):
                refused(Status.PARAMETER, "not aligned", lambda p=place: context.decompress_into(p, shifted_data))
                refused(Status.PARAMETER, "not aligned", lambda p=place: context.decompress_into(p, shifted_by_1))
            refused(Status.PARAMETER, "not aligned", lambda: context.decompress_into(shifted, device_data))
            refused(Status.PARAMETER, "not aligned", lambda: context.check(shifted_data))
        assert context.inspect(shifted_data).raw_bytes == x.nbytes

        device_field.put(np.frombuffer(x.tobytes(), np.uint8))
        compress(device_archive, device_field)
        assert device_archive.get(len(data)) == data


def test_shared_memory_in_a_new_cuda_context(simt: Library, context: Context, predictor: str) -> None:
    """The limits that were set for kernels are gone with the old context, as after cudaDeviceReset."""
    x = support.smooth((60, 70, 80), DTYPES[1])
    for _ in range(2):
        check_identity(context, x, 1e-3, predictor=predictor)
        simt.c.simt_set_shared_limit(227 << 10)


@pytest.mark.usefixtures("hidden")
def test_the_last_resort_needs_no_kernel_and_no_memory_of_the_device(simt: Library, context: Context) -> None:
    """The plugin stores a block losslessly if one of them fails and the block cannot be compressed."""
    x = support.smooth((60, 70, 80), DTYPES[0])
    wanted = cpu_archive(context, x, 0.0)
    with simt.memory(DEVICE, x) as field, simt.memory(HOST, x.nbytes + RAW_OVERHEAD) as archive:
        simt.set_memory_limit(simt.c.simt_allocated_bytes())
        for function in ("cudaMallocAsync", "cudaLaunchKernelEx"):
            simt.fail_call(function, 1)
        n = context.compress_into(archive, field, x.dtype, x.shape, 0.0)
        assert archive.get(n) == wanted


@pytest.mark.usefixtures("hidden")
def test_archives_of_doubles_need_no_more_alignment_than_words(simt: Library, context: Context, predictor: str) -> None:
    x = support.smooth(SHAPE, DTYPES[1])
    for eb in (1e-2, 0.0):
        data = cpu_archive(context, x, eb, predictor=predictor)
        with simt.memory(DEVICE, x) as field, simt.memory(DEVICE, x.nbytes + RAW_OVERHEAD, shift=4) as archive:
            n = context.compress_into(archive, field, x.dtype, x.shape, eb, predictor=predictor)
            assert archive.get(n) == data
            context.check(archive, n)
            context.decompress_into(field, archive, nbytes=n)
            assert field.get() == context.decompress(data, x.nbytes, backend=CPU)


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("shift", [1, 2, 3, 5, 7])
def test_host_memory_of_any_alignment(simt: Library, context: Context, shift: int, predictor: str) -> None:
    x = support.smooth(SMALL_SHAPE, DTYPES[0])
    for eb in (1e-2, 0.0):
        data = cpu_archive(context, x, eb, predictor=predictor)
        with simt.memory(DEVICE, x) as field, simt.memory(HOST, x.nbytes + RAW_OVERHEAD, shift=shift) as archive:
            n = context.compress_into(archive, field, x.dtype, x.shape, eb, predictor=predictor)
            assert archive.get(n) == data
            context.decompress_into(field, archive, nbytes=len(data))
            assert field.get() == context.decompress(data, x.nbytes, backend=CPU)


def test_nothing_beyond_the_archive_is_written(simt: Library, context: Context, predictor: str) -> None:
    """The memory after its end may be in use."""
    for name in ("smooth", "mixture", "incompressible", "sparse"):
        kind = KINDS[name]
        options = {**kind.options, "predictor": predictor}
        for dtype in DTYPES:
            x = kind.make(SMALL_SHAPE, dtype)
            with simt.memory(DEVICE, x) as field, simt.memory(DEVICE, x.nbytes + RAW_OVERHEAD + 4096) as archive:
                archive.put(np.full(archive.nbytes, 0x5C, np.uint8))
                context.compress_into(archive, field, dtype, x.shape, kind.eb, kind.mode, **options)
                assert archive.get()[x.nbytes + RAW_OVERHEAD :] == b"\x5c" * 4096


@pytest.mark.usefixtures("hidden")
def test_a_lossless_stage_over_an_archive_from_the_device(simt: Library, context: Context, predictor: str) -> None:
    if not simt.c.cusz_has_lossless(1):
        pytest.skip("this build has no zstd stage")
    x = (np.indices((9, 17, 33)).sum(axis=0) % 32).astype(np.float32)
    wanted = cpu_archive(context, x, 1e-2, lossless=1, predictor=predictor)
    assert context.info_of(wanted).lossless == 1
    assert context.compress(x, 1e-2, field=DEVICE, lossless=1, predictor=predictor) == wanted
    decoded = context.decompress(wanted, x.nbytes, backend=CPU)
    assert context.decompress(wanted, x.nbytes, field=DEVICE) == decoded
    assert context.decompress(wanted, x.nbytes, backend=CUDA) == decoded
    if predictor == "spline":  # such archives are read on the host
        assert context.decompress(wanted, x.nbytes, archive=DEVICE) == decoded
    else:
        refused(Status.UNSUPPORTED, "lossless", lambda: context.decompress(wanted, x.nbytes, archive=DEVICE))


def test_devices(simt: Library, context: Context) -> None:
    reason = ctypes.c_char_p()
    name = ctypes.create_string_buffer(40)
    assert simt.c.cusz_device_count(ctypes.byref(reason)) == 1
    assert reason.value == b""
    assert simt.c.cusz_device_name(0, name, 40) == 0
    assert name.value == b"simt emulator"
    assert simt.c.cusz_device_name(1, name, 40) == Status.PARAMETER
    assert simt.c.cusz_device_name(-1, name, 40) == Status.PARAMETER
    with simt.memory(DEVICE, 100) as on_device, simt.memory(HOST, 100) as on_host:
        assert simt.c.cusz_device_of(on_device.pointer) == 0
        assert simt.c.cusz_device_of(on_device.pointer + 99) == 0
        assert simt.c.cusz_device_of(on_host.pointer) == -1
    assert simt.c.cusz_device_of(None) == -1

    simt.c.simt_set_device_count(0)
    x = support.smooth((100,), DTYPES[0])
    assert simt.c.cusz_device_count(ctypes.byref(reason)) == 0
    assert b"there is no CUDA device" in (reason.value or b"")
    assert simt.c.cusz_device_name(0, name, 40) == Status.DEVICE
    refused(Status.DEVICE, "use the cpu backend", lambda: context.compress(x, 1e-2, backend=CUDA))
    assert context.compress(x, 1e-2) == cpu_archive(context, x, 1e-2)


@pytest.mark.usefixtures("hidden")
def test_work_is_done_where_the_memory_is(simt: Library, context: Context, predictor: str) -> None:
    """Kernels of another device could not reach it. One context serves several devices in turn."""
    simt.c.simt_set_device_count(3)
    x = support.smooth((50, 60), DTYPES[0])
    wanted = cpu_archive(context, x, 1e-3, predictor=predictor)
    decoded = context.decompress(wanted, x.nbytes, backend=CPU)
    for number in (2, 0, 1, 2):
        with (
            simt.current_device(number),
            simt.memory(DEVICE, x) as field,
            simt.memory(DEVICE, x.nbytes + RAW_OVERHEAD) as archive,
        ):
            assert simt.c.cusz_device_of(field.pointer) == number
            with simt.current_device(0):  # another one, mostly
                n = context.compress_into(archive, field, x.dtype, x.shape, 1e-3, predictor=predictor)
                assert archive.get(n) == wanted
                context.decompress_into(field, archive, nbytes=n)
                assert field.get() == decoded
                assert context.value_range(field, x.dtype, x.size)[2] == x.size
    with simt.memory(DEVICE, x) as field, simt.current_device(1), simt.memory(DEVICE, wanted) as archive:
        refused(
            Status.PARAMETER,
            "archive lies on CUDA device 1, field on device 0",
            lambda: context.decompress_into(field, archive),
        )
    simt.c.simt_set_device_count(1)


def test_a_thread_makes_no_context_on_a_device_that_it_does_not_use(
    simt: Library, context: Context, predictor: str
) -> None:
    """Device 0 is current in a new thread. A context there would take hundreds of megabytes from whoever uses it."""
    simt.c.simt_set_device_count(3)
    x = support.smooth((50, 60), DTYPES[0])
    device = ctypes.c_int(-1)

    def work() -> None:
        for eb in (1e-3, 0.0):
            n = context.compress_into(archive, field, x.dtype, x.shape, eb, REL, predictor=predictor)
            context.decompress_into(field, archive, nbytes=n)
        data = context.compress(x, 1e-3, backend=CPU)
        with simt.memory(HOST, data) as on_host:
            context.decompress_into(field, on_host)
        context.release_scratch()
        simt.call("cudaGetDevice", ctypes.byref(device))

    with (
        simt.current_device(2),
        simt.memory(DEVICE, x) as field,
        simt.memory(DEVICE, x.nbytes + RAW_OVERHEAD) as archive,
        ThreadPoolExecutor(1) as thread,
    ):
        simt.clear()
        thread.submit(work).result()
        assert simt.launches > 0
        assert (simt.c.simt_contexts(), device.value) == (1 << 2, 0)
    simt.c.simt_set_device_count(1)


@pytest.mark.usefixtures("hidden")
def test_a_device_without_memory_pools(simt: Library, context: Context, predictor: str) -> None:
    """As virtual ones are."""
    simt.c.simt_set_memory_pools(0)
    for dtype in DTYPES:
        check_identity(context, support.smooth(SHAPE, dtype), 1e-3, predictor=predictor)
    check_identity(context, support.smooth((60, 70, 80), DTYPES[0]), 1e-3, predictor=predictor)  # buffers grow
    assert simt.calls("cudaMallocAsync") == 0
    allocated = simt.allocated
    context.release_scratch()
    assert simt.allocated < allocated


def test_host_memory_outlives_the_device(simt: Library, context: Context, predictor: str) -> None:
    """CUDA no longer says where any pointer lies; the cpu backend takes host memory as before."""
    x = support.smooth((40, 50), DTYPES[0])
    wanted = cpu_archive(context, x, 1e-3, predictor=predictor)
    simt.c.simt_break_device(1)
    assert cpu_archive(context, x, 1e-3, predictor=predictor) == wanted
    decoded = context.decompress(wanted, x.nbytes, backend=CPU)
    refused(Status.DEVICE, "host memory can be used with", lambda: context.compress(x, 1e-3, predictor=predictor))
    refused(Status.DEVICE, "host memory can be used with", lambda: context.decompress(wanted, x.nbytes))
    simt.c.simt_break_device(0)
    assert context.decompress(wanted, x.nbytes) == decoded


# ---- Order of threads and blocks


@pytest.mark.quick(6)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_schedules(simt: Library, context: Context, dtype: np.dtype, schedule: tuple[int, int, int]) -> None:
    fields = [KINDS[name].make(SHAPE, dtype) for name in ("smooth", "mixture", "sparse", "raw_tiles")]
    # Whole tiles, several to a block.
    x = KINDS["ripples"].make((16, 32, 64), np.dtype(np.float64))
    fields.append((x / np.abs(x).max() * 1e4).astype(dtype))
    for name, shape in (("smooth", (192, 320)), ("mixture", (192, 320)), ("nan", (40000,))):
        fields.append(KINDS[name].make(shape, dtype))
    # Many tiles, so that the look-back has to wait, and more than the 32 that it inspects at once.
    fields.append(support.smooth((300, 2, 3), dtype) if schedule[1] % 2 else support.smooth((80 * 4096 + 5,), dtype))
    simt.set_schedule(*schedule)
    for x in fields:
        check_identity(context, x, 1e-2)


def test_several_blocks_scan_the_index(simt: Library, context: Context) -> None:
    """A block of that kernel covers 8192 tiles; here most of them are clipped to a few values."""
    x = np.zeros((2060, 9, 17, 33), np.float32)
    x.reshape(-1)[::499] = 3
    wanted = cpu_archive(context, x, 1e-1)
    assert context.info_of(wanted).n_tiles == 2060 * 8 > 2 * 8192
    decoded = context.decompress(wanted, x.nbytes, backend=CPU)
    for schedule in ((0, 0, 4), (1, 0, 16), (2, 5, 16)):
        simt.set_schedule(*schedule)
        with simt.memory(DEVICE, wanted) as archive:
            context.check(archive)
    assert context.decompress(wanted, x.nbytes, field=DEVICE, archive=DEVICE) == decoded


OWN_SUM, SUM_TO_END = 1 << 62, 2 << 62  # as in look_back of block.cuh


@pytest.mark.parametrize("part", [1, 31, 32, 33, 64, 65, 66, 100])
def test_a_look_back_beyond_a_warp(simt: Library, part: int) -> None:
    """The emulator never has that many blocks in flight."""
    for complete in {None, 0, 1, part - 34, part - 33, part - 32, part - 2, part - 1}:
        if complete is not None and not 0 <= complete < part:
            continue
        states = [OWN_SUM | 3**k % 1000 for k in range(part)]  # each part's own sum
        wanted = sum(state - OWN_SUM for state in states)
        if complete is not None:
            wanted = 10**6 + sum(state - OWN_SUM for state in states[complete + 1 :])
            states[complete] = SUM_TO_END | 10**6
        with simt.memory(DEVICE, np.array(states, np.uint64)) as memory, simt.memory(DEVICE, 8) as result:
            simt.call("simt_sum_before", memory.pointer, part, result.pointer)
            assert int.from_bytes(result.get(), "little") == wanted


# ---- Kernels


def kernels_of(source: str) -> set[str]:
    """The kernels of a .cu file, named as they are launched: with types and shapes, and a mark if for many fields."""
    books = re.findall(r"template <int r_limit, class Arguments>\s+__global__[^{]*?(\w+)\s*\(const", source)
    parameters = r"template <class T(, TileShape shape)?(, class Arguments)?>"
    templates = re.findall(rf"{parameters}\s+__global__[^{{]*?(\w+)\s*\(const", source)
    names = re.findall(r"__global__\s+void\s+(?:__launch_bounds__\([^;{]*?\)\s+)?(\w+)\s*\(const", source)
    assert len(names) == source.count("__global__ void") > 0
    of_logs = re.findall(r"template <class T, class V>\s+__global__[^{]*?(\w+)\s*\(const", source)
    of_axes = re.findall(
        r"template <(class T, )?std::uint32_t axes((?:, bool \w+)*)>\s+__global__[^{]*?(\w+)\s*\(const", source
    )
    found = set(names) - {name for *_, name in [*templates, *of_axes]} - {*books, *of_logs}
    for of_type, flags, name in of_axes:
        value_types = ("float, ", "double, ") if of_type else ("",)
        of_flags = [(", false", ", true")] * flags.count(",")
        for t, axes, *given in itertools.product(value_types, "123", *of_flags):
            found.add(f"{name}<{t}{axes}u{''.join(given)}>")
    for types in ("float, float", "float, double", "double, double"):  # of values and of their logarithms
        found |= {f"{name}<{types}>" for name in of_logs}
    for of_shape, of_fields, name in templates:
        shapes = [f", (cusz::TileShape){s}" for s in range(TILE_SHAPES)] if of_shape else [""]
        fields = ("", ", many") if of_fields else ("",)
        found |= {f"{name}<{t}{s}{n}>" for t in ("float", "double") for s in shapes for n in fields}
    return found


def launched_name(name: str) -> str:
    """As in kernels_of, from the name with all its types."""
    name = re.sub(r", Each<.*> >$", ", many>", name.replace("cusz::cuda::", ""))
    return re.sub(r", \w+Arguments(<\w+> )?>$", ">", name)


#: The number of tile shapes in archive/tiling.hpp, and fields that have them, by dimensions.
TILE_SHAPES = 4
TILE_SHAPES_OF: dict[int, list[tuple[int, ...]]] = {1: [(5000,)], 2: [(70, 90)], 3: [SHAPE, (3, 60, 70)]}


def test_every_kernel_is_launched(simt: Library, context: Context) -> None:
    """A kernel that no field reaches is not tested."""
    sources = {str(path): path.read_text() for path in (CORE / "src").rglob("*.cu")}
    kernels = {name: kernels_of(source) for name, source in sources.items()}
    assert {"decompress_kernel<double, (cusz::TileShape)3>", "piece_kernel",
            "copy_boxes_kernel<float>", "read_kernel<3u, true>"} <= set().union(*kernels.values())  # fmt: skip
    for dtype in DTYPES:
        for name, shape in itertools.product(
            ("smooth_rel", "smooth_1024", "mixture_8192", "lossless"), itertools.chain(*TILE_SHAPES_OF.values())
        ):
            round_trip(context, KINDS[name], shape, dtype, "lorenzo")
        for shape, name in itertools.product(SPLINE_SHAPES, REACHING):
            round_trip(context, SPLINE_KINDS[name], shape, dtype, "spline")
        for eb in (1e-2, 1e-6):  # logarithms of either type
            x = np.exp2(support.smooth((70, 90), dtype))
            archive = context.compress(x, eb, PW_REL, field=DEVICE, archive=DEVICE)
            context.decompress(archive, x.nbytes, field=DEVICE, archive=DEVICE)
        for bins, ndim in itertools.product((64, 1024), (1, 2, 3)):
            fields = [KINDS["smooth"].make(shape, dtype) for shape in TILE_SHAPES_OF[ndim]]
            context.compress_many(fields, 1e-3, REL, field=DEVICE, backend=CUDA, bins=bins)
    launched = {launched_name(name) for name in simt.launched() | simt.all_launched}
    assert set().union(*kernels.values()) <= launched
    books = {name for name in launched if name.startswith("book_kernel<")}
    assert len(books) == "".join(sources.values()).count("return launch_book<") == 5


def round_trip(context: Context, kind: Kind, shape: tuple[int, ...], dtype: np.dtype, predictor: str) -> None:
    x, options = kind.make(shape, dtype), {**kind.options, "predictor": predictor}
    archive = context.compress(x, kind.eb, kind.mode, field=DEVICE, archive=DEVICE, **options)
    context.decompress(archive, x.nbytes, field=DEVICE, archive=DEVICE)


# ---- How often the host waits


@pytest.mark.parametrize("mode", [ABS, REL])
def test_synchronizations(simt: Library, context: Context, mode: int) -> None:
    x = support.smooth((40, 50, 60), DTYPES[0])
    with (
        simt.memory(DEVICE, x) as field,
        simt.memory(DEVICE, x.nbytes + RAW_OVERHEAD) as archive,
    ):
        for _ in range(2):
            before = simt.synchronizations
            n = context.compress_into(archive, field, x.dtype, x.shape, 1e-3, mode)
            compress = simt.synchronizations - before
            before = simt.synchronizations
            context.decompress_into(field, archive, nbytes=n)
            decompress = simt.synchronizations - before
        print(f"compress waits {compress} times, decompress {decompress} times")
        assert compress <= SYNCHRONIZATIONS_OF_COMPRESS[mode]
        assert decompress <= SYNCHRONIZATIONS_OF_DECOMPRESS


# ---- Memory


@pytest.mark.usefixtures("hidden")
@support.pairs(
    "name, dtype, places",
    ["smooth_rel", "incompressible", "raw_tiles", "mixture", "lossless"],
    DTYPES,
    PAIRS_OF_PLACES,
    indirect=["places"],
)
def test_batches(simt: Library, context: Context, name: str, dtype: np.dtype, places: dict[str, str]) -> None:
    """If there is memory for only a part of the field, the results are the same."""
    kind = KINDS[name]
    shapes = ((64, 40, 50), (70000,), (900, 70), (12, 18, 17, 40))
    for shape in shapes if name == "smooth_rel" and dtype == DTYPES[0] else shapes[:1]:
        x = kind.make(shape, dtype)
        wanted = cpu_archive(context, x, kind.eb, kind.mode, **kind.options)
        decoded = context.decompress(wanted, x.nbytes, backend=CPU)
        context.release_scratch()
        launches = []
        with (
            simt.memory(places["field"], x) as field,
            simt.memory(places["archive"], x.nbytes + RAW_OVERHEAD) as archive,
        ):
            for limit in (None, x.nbytes, x.nbytes // 2, x.nbytes // 3):
                simt.set_memory_limit(None if limit is None else simt.allocated + limit)
                before = simt.launches
                n = context.compress_into(
                    archive, field, dtype, shape, kind.eb, kind.mode, backend=CUDA, **kind.options
                )
                assert archive.get(n) == wanted
                launches.append(simt.launches - before)
                context.release_scratch()
                context.decompress_into(field, archive, nbytes=n, backend=CUDA)
                assert field.get() == decoded
                context.release_scratch()
                simt.set_memory_limit()
                field.put(np.frombuffer(x.tobytes(), np.uint8))
        if HOST in places.values() and name != "lossless":
            assert launches[-1] > launches[0]


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_too_little_memory(simt: Library, context: Context, dtype: np.dtype, places: dict[str, str]) -> None:
    """The call fails, and the context works."""
    x = support.smooth((64, 40, 50), dtype)
    wanted = cpu_archive(context, x, 1e-2)
    decoded = context.decompress(wanted, x.nbytes, backend=CPU)
    with (
        simt.memory(places["field"], x) as field,
        simt.memory(places["archive"], x.nbytes + RAW_OVERHEAD) as archive,
    ):
        free = simt.held
        for limit in (0, 256, 4096, 20000):
            simt.set_memory_limit(simt.allocated + limit)
            failure = failure_of(lambda: context.compress_into(archive, field, dtype, x.shape, 1e-2, backend=CUDA))
            if limit < 4096 or HOST in places.values():
                assert failure is not None
            if failure is not None:
                assert failure.status == Status.MEMORY
                assert re.search("cudaErrorMemoryAllocation .* from cudaMallocAsync.* at memory.hpp:", failure.message)
            simt.set_memory_limit()
            n = context.compress_into(archive, field, dtype, x.shape, 1e-2, backend=CUDA)
            assert archive.get(n) == wanted
            context.release_scratch()
            assert simt.held == free
        for limit in (0, 256):
            simt.set_memory_limit(simt.allocated + limit)
            refused(
                Status.MEMORY,
                "cudaErrorMemoryAllocation",
                lambda: context.decompress_into(field, archive, nbytes=len(wanted), backend=CUDA),
            )
            simt.set_memory_limit()
            context.decompress_into(field, archive, nbytes=len(wanted), backend=CUDA)
            assert field.get() == decoded
            field.put(np.frombuffer(x.tobytes(), np.uint8))
            context.release_scratch()
            assert simt.held == free


@pytest.mark.quick(2)
@pytest.mark.usefixtures("hidden")
def test_memory_that_is_used(simt: Library, context: Context, places: dict[str, str], predictor: str) -> None:
    x, mode = support.smooth((128, 96, 100) if predictor == "lorenzo" else SHAPE, DTYPES[0]), REL
    capacity = x.nbytes + RAW_OVERHEAD

    def compress() -> int:
        return context.compress_into(archive, field, x.dtype, x.shape, 1e-3, mode, backend=CUDA, predictor=predictor)

    at_first = simt.held
    with simt.memory(places["field"], x) as field, simt.memory(places["archive"], capacity) as archive:
        own = simt.held
        simt.c.simt_reset_peak()
        n = compress()
        context.decompress_into(field, archive, nbytes=n, backend=CUDA)
        field.put(np.frombuffer(x.tobytes(), np.uint8))
        if predictor == "lorenzo":
            assert simt.c.simt_peak_bytes() - at_first[0] <= x.nbytes + capacity + x.nbytes // 2
        assert context.scratch >= simt.allocated - own[0]

        allocations = [simt.calls(name) for name in ("cudaMallocAsync", "cudaMalloc", "cudaMallocHost")]
        held = simt.held
        assert compress() == n
        context.decompress_into(field, archive, nbytes=n, backend=CUDA)
        assert [simt.calls(name) for name in ("cudaMallocAsync", "cudaMalloc", "cudaMallocHost")] == allocations
        assert simt.held == held

        context.release_scratch()
        assert context.scratch == 0
        assert simt.held == own
        assert context.value_range(field, x.dtype, x.size)[2] == x.size
    context.destroy()
    assert simt.held == at_first


# ---- Failures of the runtime


@pytest.mark.quick(3)
@support.pairs(
    "direction, kind, places",
    ["compress", "decompress", "check", "inspect", "value_range"],
    ["tiled", "raw"],
    PAIRS_OF_PLACES,
    indirect=["places"],
)
def test_every_call_may_fail(simt: Library, direction: str, kind: str, places: dict[str, str]) -> None:
    eb, mode = {"tiled": (1e-6, REL), "raw": (0.0, ABS)}[kind]
    x = KINDS["noise"].make((40000,), DTYPES[0])
    assert len(every_call_may_fail(simt, direction, places, x, eb, mode)) > 2**16  # smaller copies take another path


@pytest.mark.quick(2)
@pytest.mark.parametrize("direction", ["compress", "decompress", "check"])
def test_every_call_of_the_spline_codec_may_fail(simt: Library, direction: str, places: dict[str, str]) -> None:
    x = KINDS["noise"].make((20, 40, 50), DTYPES[0])
    archive = every_call_may_fail(simt, direction, places, x, 1e-6, REL, predictor="spline")
    assert archive[:2] == b"\xc5\x5a"
    assert len(archive) > 2**16  # smaller copies take another path


@pytest.mark.parametrize("direction", ["compress", "decompress", "check", "inspect", "value_range"])
def test_memory_of_the_device_is_not_taken_for_the_hosts(
    simt: Library, context: Context, direction: str, predictor: str
) -> None:
    """After a failure on the device, CUDA answers every query with it; reading the pointer would end the process.

    Nor may a query have two answers within a call: a relative bound could then be taken for an absolute one.
    """
    x = support.smooth(SHAPE if predictor == "lorenzo" else SMALL_SHAPE, DTYPES[0])
    data = cpu_archive(context, x, 1e-3, predictor=predictor)
    with (
        simt.memory(DEVICE, x) as field,
        simt.memory(DEVICE, x.nbytes + RAW_OVERHEAD) as archive,
        simt.memory(DEVICE, data) as good,
    ):
        calls = {
            "compress": lambda: context.compress_into(archive, field, x.dtype, x.shape, 1e-3, REL, predictor=predictor),
            "decompress": lambda: context.decompress_into(field, good),
            "check": lambda: context.check(good),
            "inspect": lambda: context.inspect(good),
            "value_range": lambda: context.value_range(field, x.dtype, x.size),
        }
        for nth in range(1, 100):
            before = simt.calls("cuPointerGetAttributes")
            simt.fail_call("cuPointerGetAttributes", nth)
            failure = failure_of(calls[direction])
            simt.fail_call("cuPointerGetAttributes", 0)
            if failure is None:
                assert simt.calls("cuPointerGetAttributes") - before < nth, "it went on"
                break
            assert failure.status == Status.DEVICE


# ---- Streams and allocators


@pytest.mark.usefixtures("hidden")
def test_work_goes_to_the_stream(simt: Library, context: Context, predictor: str) -> None:
    x = support.smooth(SHAPE if predictor == "lorenzo" else SMALL_SHAPE, DTYPES[0])
    first, second = simt.new_stream(), simt.new_stream()
    for eb, mode in ((1e-3, REL), (0.0, ABS)):
        wanted = cpu_archive(context, x, eb, mode, predictor=predictor)
        decoded = context.decompress(wanted, x.nbytes, backend=CPU)
        for field_place in PLACES:
            for archive_place in PLACES:
                with (
                    simt.memory(field_place, x) as field,
                    simt.memory(archive_place, x.nbytes + RAW_OVERHEAD) as archive,
                ):
                    for stream in (first, second, None, first):
                        context.set_stream(stream)
                        simt.clear()
                        n = context.compress_into(
                            archive, field, x.dtype, x.shape, eb, mode, backend=CUDA, predictor=predictor
                        )
                        context.decompress_into(field, archive, nbytes=n, backend=CUDA)
                        context.check(archive, n)
                        context.inspect(archive, n)
                        context.value_range(field, x.dtype, x.size)
                        for other in {first, second, None} - {stream}:
                            assert simt.c.simt_work(other) == 0
                        on_host = field_place == archive_place == HOST
                        assert simt.c.simt_work(stream) > 0 or (on_host and (eb == 0 or predictor == "spline"))
                        assert archive.get(n) == wanted
                        assert field.get() == decoded
                        field.put(np.frombuffer(x.tobytes(), np.uint8))

    # A stream may be gone before the context hears of it.
    def compress() -> bytes:
        return context.compress(x, 1e-2, field=DEVICE, predictor=predictor)

    context.set_stream(first)
    wanted = cpu_archive(context, x, 1e-2, predictor=predictor)
    assert compress() == wanted
    simt.call("cudaStreamDestroy", first)
    context.set_stream(second)
    assert compress() == wanted
    simt.call("cudaStreamDestroy", second)
    refused(Status.DEVICE, "cudaErrorInvalidResourceHandle", compress)
    context.set_stream(None)
    assert compress() == wanted


@pytest.mark.usefixtures("hidden")
def test_allocator(simt: Library, context: Context, places: dict[str, str]) -> None:
    pool = Pool(simt)
    stream = simt.new_stream()
    context.set_stream(stream)
    context.set_allocator(pool.allocate, pool.release, 77)
    x = support.smooth(SHAPE, DTYPES[1])
    wanted = cpu_archive(context, x, 1e-3, REL)
    decoded = context.decompress(wanted, x.nbytes, backend=CPU)
    with (
        simt.memory(places["field"], x) as field,
        simt.memory(places["archive"], x.nbytes + RAW_OVERHEAD) as archive,
    ):

        def both_ways() -> None:
            n = context.compress_into(archive, field, x.dtype, x.shape, 1e-3, REL, backend=CUDA)
            assert archive.get(n) == wanted
            context.decompress_into(field, archive, nbytes=n, backend=CUDA)
            assert field.get() == decoded
            field.put(np.frombuffer(x.tobytes(), np.uint8))

        both_ways()
        assert pool.live
        assert simt.calls("cudaMallocAsync") == 0
        assert context.scratch >= sum(memory.nbytes for memory in pool.live.values())
        context.release_scratch()
        assert not pool.live

        # Without memory the call fails, and the next one works.
        for nth in range(1, 200):
            pool.allocations, pool.refuse_from = 0, nth
            failure = failure_of(both_ways)
            pool.refuse_from = None
            if failure is None:
                break
            assert failure.status == Status.MEMORY
            assert "the allocator has no" in failure.message
            both_ways()
            context.release_scratch()
            assert not pool.live
        else:
            pytest.fail("it never succeeds")
        assert nth > 4

        # Another allocator: what came from this one goes back to it.
        both_ways()
        second = Pool(simt)
        context.set_allocator(second.allocate, second.release, 77)
        assert not pool.live
        both_ways()
        assert second.live
        context.set_allocator(None, None)
        assert not second.live
        before = simt.calls("cudaMallocAsync")
        both_ways()
        assert simt.calls("cudaMallocAsync") > before

        context.set_allocator(second.allocate, second.release, 77)
        both_ways()
    assert second.live
    context.destroy()
    assert not second.live
    assert pool.wrong == second.wrong == []
    assert pool.streams | second.streams <= {stream}
    assert pool.streams == second.streams
    simt.call("cudaStreamDestroy", stream)


def test_half_an_allocator_is_refused(simt: Library, context: Context) -> None:
    pool = Pool(simt)
    refused(Status.PARAMETER, "both of its functions", lambda: context.set_allocator(pool.allocate, None))
    refused(Status.PARAMETER, "both of its functions", lambda: context.set_allocator(None, pool.release))
