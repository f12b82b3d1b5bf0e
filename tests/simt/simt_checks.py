"""Checks that several test files share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from simt_library import ABS, AUTO, CPU, CUDA, DEVICE, HOST, PLACES, RAW_OVERHEAD, Context, Failure, Library, Status

PAIRS_OF_PLACES = [f"{field}-{archive}" for field in PLACES for archive in PLACES]

#: (order of threads, seed, blocks in flight). The order is ascending, descending or random by the seed.
SCHEDULES = [
    *[(order, 0, blocks) for order in (0, 1) for blocks in (1, 4, 16)],
    *[(2, seed, blocks) for seed in (1, 2, 3) for blocks in (1, 4, 16)],
]

# ---- The same results as on the CPU


def cpu_archive(context: Context, x: NDArray, eb: float, mode: int = ABS, **options: Any) -> bytes:
    return context.compress(x, eb, mode, backend=CPU, **options)


def check_identity(
    context: Context,
    x: NDArray,
    eb: float,
    mode: int = ABS,
    *,
    field: str = DEVICE,
    archive: str = DEVICE,
    backend: int = AUTO,
    **options: Any,
) -> bytes:
    """Compares the device's results with the CPU's. Returns the archive. field, archive: where they lie.

    With the spline codec, small fields need no kernel."""
    library, where = context.library, {"field": field, "archive": archive, "backend": backend}
    wanted = cpu_archive(context, x, eb, mode, **options)
    may_be_idle = x.size == 0 or field == archive == HOST or options.get("predictor", "lorenzo") != "lorenzo"
    before = library.launches
    made = context.compress(x, eb, mode, **where, **options)
    assert len(made) == len(wanted)
    differ = np.flatnonzero(np.frombuffer(made, np.uint8) != np.frombuffer(wanted, np.uint8))
    assert differ.size == 0, f"{differ.size} of {len(wanted)} bytes differ, from byte {differ[0]} on"
    assert library.launches > before or may_be_idle

    decoded = context.decompress(wanted, x.nbytes, backend=CPU)
    before = library.launches
    assert context.decompress(wanted, x.nbytes, **where) == decoded
    assert library.launches > before or may_be_idle
    return made


def outcome(context: Context, data: bytes, nbytes: int, place: str) -> tuple[Status, bytes | str]:
    """The status, with the values or the message."""
    backend = CPU if place == HOST else AUTO
    try:
        return Status.OK, context.decompress(data, nbytes, field=place, archive=place, backend=backend)
    except Failure as failure:
        return failure.status, failure.message


def same_outcome(context: Context, data: bytes, nbytes: int, what: str) -> tuple[Status, bytes | str]:
    """Returns the device's outcome, which must have the CPU's status and, if that is OK, its values."""
    wanted, values = outcome(context, data, nbytes, HOST)
    status, own = outcome(context, data, nbytes, DEVICE)
    assert context.library.report == "", what
    assert status == wanted, f"{what}: {own!r} in place of {values!r}"
    if status == Status.OK:
        assert own == values, what
    return status, own


def same_as_cpu(context: Context, data: bytes, nbytes: int, what: str) -> Status:
    return same_outcome(context, data, nbytes, what)[0]


def same_check(context: Context, data: bytes, what: str) -> Status:
    """Returns the status of cusz_check, which must be the same on the device and on the CPU."""
    found = []
    for place in (DEVICE, HOST):
        with context.library.memory(place, data) as archive:
            failure = failure_of(lambda archive=archive: context.check(archive))
        found.append(Status.OK if failure is None else failure.status)
    assert found[0] == found[1], what
    return found[0]


# ---- Calls that fail


def refused(status: Status, text: str, call: Callable[[], object]) -> None:
    with pytest.raises(Failure, match=text) as failure:
        call()
    assert failure.value.status == status


def failure_of(call: Callable[[], object]) -> Failure | None:
    try:
        call()
    except Failure as failure:
        return failure
    return None


#: Functions that release something: the engine carries on if they fail.
OF_RELEASE = {"cudaFreeAsync", "cudaFreeHost", "cudaEventDestroy"}
#: If memory for the whole field is refused, the engine tries parts of it.
MAY_GO_ON = {*OF_RELEASE, "cudaMallocAsync", "cudaMallocHost"}


def functions_of_the_runtime() -> list[str]:
    header = (Path(__file__).parent / "include" / "cuda_runtime_api.h").read_text()
    return sorted(set(re.findall(r"^cudaError_t (cuda\w+)\(", header, re.MULTILINE)))


def every_call_may_fail(
    simt: Library, direction: str, places: dict[str, str], x: NDArray, eb: float, mode: int, **options: Any
) -> bytes:
    """Makes every runtime call fail in turn. The library's call then fails, with a message that says where; the next
    one works; and nothing leaks.

    Returns the archive.
    """
    with Context(simt) as other:
        wanted = cpu_archive(other, x, eb, mode, **options)
        decoded = other.decompress(wanted, x.nbytes, backend=CPU)
    with (
        simt.memory(places["field"], x) as field,
        simt.memory(places["archive"], x.nbytes + RAW_OVERHEAD) as archive,
        simt.memory(places["archive"], wanted) as data,
        simt.memory(places["field"], x.nbytes) as result,
    ):
        held = simt.held

        def call(context: Context) -> None:
            if direction == "compress":
                n = context.compress_into(archive, field, x.dtype, x.shape, eb, mode, backend=CUDA, **options)
                assert n == len(wanted)
            elif direction == "decompress":
                context.decompress_into(result, data, backend=CUDA)
            elif direction == "check":
                context.check(data)
            elif direction == "inspect":
                assert context.inspect(data).raw_bytes == x.nbytes
            else:
                assert context.value_range(field, x.dtype, x.size)[2] == x.size

        def check_results() -> None:
            if direction == "compress":
                assert archive.get(len(wanted)) == wanted
            elif direction == "decompress":
                assert result.get() == decoded

        failed = 0
        for kept in (False, True):  # a new context, then one that has its memory already
            for function in functions_of_the_runtime():
                with Context(simt) as context:
                    if kept:
                        call(context)
                    for nth in range(1, 1000):
                        if not kept:
                            context.release_scratch()
                        before = simt.calls(function)
                        simt.fail_call(function, nth)
                        failure = failure_of(lambda c=context: call(c))
                        calls = simt.calls(function) - before
                        simt.fail_call(function, 0)
                        if failure is None:
                            check_results()
                            if calls < nth:
                                break
                            assert function in MAY_GO_ON, f"{function} failed unseen"
                        else:
                            failed += 1
                            assert failure.status in (Status.DEVICE, Status.MEMORY)
                            where = rf"cudaError\w+ \(.+\) from {function}\(.* at \w+\.\w+:\d+$"
                            if function == "cudaGetDeviceCount":
                                where = "no CUDA driver"
                            assert re.search(where, failure.message), failure.message
                        call(context)
                        check_results()
                    else:
                        pytest.fail("it never succeeds")
                    context.release_scratch()
                    if function in OF_RELEASE:  # what could not be released is lost
                        held = simt.held
                    assert simt.held == held
        if DEVICE in places.values() and direction in ("compress", "decompress"):
            assert failed > 5
    return wanted


# ---- Memory


class Pool:
    """An allocator that keeps track of its memory."""

    def __init__(self, simt: Library) -> None:
        self.simt, self.live, self.streams = simt, {}, set[int | None]()
        self.allocations = 0
        self.refuse_from: int | None = None
        self.wrong: list[str] = []

    def allocate(self, user: int | None, nbytes: int, stream: int | None) -> int | None:
        self.allocations += 1
        if user != 77:
            self.wrong.append(f"user is {user}")
        self.streams.add(stream)
        if self.refuse_from is not None and self.allocations >= self.refuse_from:
            return None
        memory = self.simt.memory(DEVICE, nbytes)
        self.live[memory.pointer] = memory
        return memory.pointer

    def release(self, user: int | None, memory: int | None, nbytes: int, stream: int | None) -> None:
        self.streams.add(stream)
        held = self.live.pop(memory, None)
        if held is None or held.nbytes != nbytes or user != 77:
            self.wrong.append(f"{memory}, {nbytes} bytes, of {user}")
        else:
            held.free()
