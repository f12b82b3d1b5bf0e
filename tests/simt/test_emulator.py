"""The emulator of CUDA kernels itself: what it computes, what it reports, what it lets fail."""

from pathlib import Path

import pytest

from support import run

pytestmark = pytest.mark.simt


def test_cases(simt_build: Path) -> None:
    """Runs every case of selftest.cu."""
    program = simt_build / "simt_selftest"
    cases = run([program, "--list"]).stdout.split()
    assert cases
    for case in cases:
        run([program, case], timeout=120)


def test_static_shared_memory_is_refused(tmp_path: Path) -> None:
    """It would compile as a local variable of each thread."""
    kernel = tmp_path / "kernel.cu"
    kernel.write_text("#include <cuda_runtime.h>\n__global__ void k(int* x) { __shared__ int y[2]; x[0] = y[0]; }\n")
    include = Path(__file__).parent / "include"
    refused = run(["c++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", include, kernel], status=1)
    assert "weak declaration" in refused.stderr
