"""Long runs: memory stays flat, children of every kind may compress, and fields may be larger than 2^31 values."""

import multiprocessing
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import cusz_core as cusz
import support

PROGRAM = Path(__file__).with_name("endurance.py")


@pytest.mark.full
@pytest.mark.parametrize("threads", [1, 8])
def test_memory_stays_flat_over_ten_thousand_calls(threads):
    # Otherwise malloc may give every thread its own arena, which keeps freed memory.
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    result = support.run([sys.executable, PROGRAM, threads, 10000], timeout=600, env=environment)
    resident = [int(line) for line in result.stdout.split()]
    assert len(resident) == 10
    growth = max(resident[3:]) - max(resident[:3])
    assert growth < 2048, f"KiB resident: {resident}"  # 7000 calls; leaking one archive per call would be 80 MB


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_children_may_compress_after_their_parent_did(method):
    expected = [support.round_trip(seed) for seed in range(4)]
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(support.round_trip, range(4)).get(timeout=120) == expected
    assert support.round_trip(0) == expected[0]


@pytest.mark.long
@pytest.mark.skipif(
    not hasattr(os, "sysconf") or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") < 20 * 2**30,
    reason="needs 20 GiB of memory",
)
def test_more_values_than_31_bits_count():
    """One field of 8.6 GB, made in slices that can be recomputed: only the field or its copy is in memory at a time."""
    n, slice_values = 2**31 + 4099, 2**24
    base = support.smooth((slice_values,), support.F32)

    def part(start):
        count = min(slice_values, n - start)
        return base[:count] + np.float32(start // slice_values % 64)

    x = np.empty(n, np.float32)
    for start in range(0, n, slice_values):
        x[start : start + slice_values] = part(start)
    archive = cusz.compress(x, 1e-2, predictor="lorenzo")  # the spline codec would need more memory
    del x
    info = cusz.inspect(archive)
    assert info.kind == "tiled"
    assert info.shape == (n,)
    y = cusz.decompress(archive)
    for start in range(0, n, slice_values):
        original = part(start)
        decoded = y[start : start + original.size]
        difference = np.abs(original.astype(np.float64) - decoded.astype(np.float64))
        assert difference.max() <= 1e-2  # exact: f64 holds the difference of f32 values this close to each other
    cusz.release_scratch()  # frees 8.6 GB for later tests
