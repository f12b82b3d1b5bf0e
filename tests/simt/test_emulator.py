"""The emulator of CUDA kernels itself: what it computes, what it reports, what it lets fail."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.simt

CASES = [
    "block_sum",
    "partial_warps",
    "warp_scan",
    "votes",
    "shuffles",
    "atomics",
    "look_back",
    "early_exit",
    "missing_barrier",
    "divergent_barriers",
    "missing_lane",
    "masks",
    "endless_spin",
    "shared_overrun",
    "red_zones",
    "faults",
    "fresh_memory",
    "shared_limits",
    "failure_injection",
    "memory_limit",
    "no_device",
    "pointer_attributes",
    "copies",
    "copies_under_way",
    "launched",
    "float_modes",
    "host_threads",
]


def selftest(build: Path, case: str) -> str:
    result = subprocess.run([build / "simt_selftest", case], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, f"exit {result.returncode}\n{result.stderr[-4000:]}"
    return result.stdout


def test_cases_are_all_here(simt_build: Path) -> None:
    assert selftest(simt_build, "--list").split() == CASES


@pytest.mark.parametrize("case", CASES)
def test_emulator(simt_build: Path, case: str) -> None:
    print(selftest(simt_build, case))


def test_static_shared_memory_is_refused(simt_build: Path, tmp_path: Path) -> None:
    """It would be a local variable of each thread."""
    kernel = tmp_path / "kernel.cu"
    kernel.write_text("#include <cuda_runtime.h>\n__global__ void k(int* x) { __shared__ int y[2]; x[0] = y[0]; }\n")
    include = Path(__file__).parent / "include"
    command = ["c++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", include, kernel]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "weak declaration" in result.stderr
