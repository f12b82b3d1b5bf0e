"""The library over the emulator (tests/simt), with kernels run from the PTX that nvcc generates."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent

sys.path.insert(0, str(SOURCE))  # for `import ptx_library`
sys.path.insert(0, str(SOURCE.parent / "simt"))  # for `import simt_library`

from ptx_library import PtxLibrary  # noqa: E402
from simt_library import Context  # noqa: E402

from support import locked  # noqa: E402


@pytest.fixture(scope="session")
def library(simt_build: Path) -> PtxLibrary:
    build_target(simt_build, "ptx_cusz_core")
    return PtxLibrary(simt_build / "ptx" / "lib" / "libcusz_core.so.0")


@pytest.fixture(scope="session")
def kernels(simt_build: Path) -> Path:
    """The kernels' PTX."""
    build_target(simt_build, "ptx_kernels")
    return simt_build / "ptx" / "kernels.ptx"


def build_target(build: Path, target: str) -> None:
    with locked(build):
        command = ["cmake", "--build", str(build), "--target", target]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        if f"unknown target '{target}'" in done.stdout:
            pytest.skip("nvcc is not here")
        pytest.fail(f"{' '.join(command)}\n{done.stdout}")


@pytest.fixture(scope="session")
def assembled(simt_build: Path, kernels: Path) -> str:
    """What ptxas reports about the kernels."""
    build_target(simt_build, "ptx_assembled")
    return "".join(path.read_text() for path in (kernels.parent / "parts").glob("*.log"))


@pytest.fixture
def ptx(library: PtxLibrary) -> Iterator[PtxLibrary]:
    """The library for a test with its own PTX."""
    library.reset()
    yield library
    library.use_ptx(None)
    library.reset()


@pytest.fixture(scope="session")
def reused(library: PtxLibrary) -> Iterator[Context]:
    """One context for many tests, as programs use theirs."""
    with Context(library) as context:
        yield context


@pytest.fixture(scope="module")
def with_kernels(library: PtxLibrary, kernels: Path) -> Iterator[PtxLibrary]:
    """One load for all tests of a file, so that kernels are decoded once."""
    with library.kernels_of(kernels):
        yield library


@pytest.fixture
def engine(with_kernels: PtxLibrary) -> Iterator[PtxLibrary]:
    """The library with the kernels' PTX. The test fails if anything is reported."""
    library = with_kernels
    library.reset()
    yield library
    report = library.report
    library.reset()
    assert report == ""
