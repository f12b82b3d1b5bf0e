"""Many Python threads call the library at once: each gets what it would have got alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import cusz_core as cusz
import support
from support import F32, F64

#: Fields of different sizes, types and parameters, and some that fail.
FIELDS = [
    support.smooth(shape, dtype) + dtype.type(seed)
    for seed, (shape, dtype) in enumerate(
        (shape, dtype)
        for dtype in (F32, F64)
        for shape in ((0, 3), (1,), (10007,), (101, 103), (31, 37, 41), (3, 9, 17, 33), (64, 64, 64))
    )
]
OPTIONS: list[dict[str, Any]] = [
    {"eb": 1e-3},
    {"eb": 1e-4, "mode": "rel"},
    {"eb": 1e-2, "predictor": "spline"},
    {"eb": 1e-2, "predictor": "lorenzo"},
    {"eb": 1e-3, "mode": "pw_rel"},
    {"eb": 0.0},
]


def of_one(job: tuple[int, int], threads: int | None) -> tuple[Any, ...]:
    """Everything that the calls return for a field."""
    x, options = FIELDS[job[0]], OPTIONS[job[1]]
    archive = cusz.compress(x, threads=threads, **options)
    with pytest.raises(cusz.CorruptArchiveError):
        cusz.decompress(archive[:-1], threads=threads)
    with pytest.raises(cusz.ParameterError, match=f"eb is {-1 - job[0]}.0"):
        cusz.compress(x, -1.0 - job[0])
    info = cusz.inspect(archive)
    out = np.empty_like(x)
    cusz.decompress(archive, out=out, threads=threads)
    box = cusz.decompress_box(archive, (0,) * x.ndim, tuple(n // 2 for n in x.shape), threads=threads)
    return archive, out.tobytes(), box.tobytes(), (info.shape, info.eb, info.checksum), cusz.value_range(x)


@pytest.mark.parametrize("threads", [1, 3, None])
def test_many_threads_get_what_each_would_get_alone(threads: int | None) -> None:
    jobs = [(field, options) for field in range(len(FIELDS)) for options in range(len(OPTIONS))]
    alone = [of_one(job, threads) for job in jobs]
    workers = 16
    together = threading.Barrier(workers)
    with ThreadPoolExecutor(workers, initializer=together.wait) as pool:
        assert list(pool.map(of_one, jobs * 3, [threads] * len(jobs) * 3)) == alone * 3


def test_one_field_and_one_archive_may_be_read_by_many_threads() -> None:
    x = FIELDS[-1]
    archive = cusz.compress(x, 1e-3)
    parameters = cusz.Parameters(1e-3)  # one object for all
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(lambda _: cusz.compress_with(x, parameters), range(64))) == {archive}
        decoded = set(pool.map(lambda _: cusz.decompress(archive).tobytes(), range(64)))
    assert decoded == {cusz.decompress(archive).tobytes()}


def test_scratch_memory_may_be_released_meanwhile() -> None:
    x = FIELDS[-1]
    archive = cusz.compress(x, 1e-3)

    def work(i: int) -> bytes:
        if i % 3 == 0:
            cusz.release_scratch()
        return cusz.compress(x, 1e-3)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(96))) == {archive}


def test_many_threads_in_short_calls() -> None:
    """Without a GIL, short calls use what threads share at the same time; long calls hardly ever do."""
    x = FIELDS[1]
    archive = cusz.compress(x, 1e-3, threads=1)
    workers = 8
    together = threading.Barrier(workers)

    def work(_: int) -> set[bytes]:
        together.wait()
        return {cusz.compress(cusz.decompress(archive, threads=1), 1e-3, threads=1) for _ in range(3000)}

    with ThreadPoolExecutor(workers) as pool:
        assert set().union(*pool.map(work, range(workers))) == {archive}
