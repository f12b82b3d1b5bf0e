"""Builds the executor of CUDA kernels, and what runs on it, once per session.

CUSZ_SIMT_BUILD names a folder of a build to use instead, as it is (scripts/mutate does).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent
BUILD = SOURCE.parents[1] / "build" / "simt"

sys.path.insert(0, str(SOURCE))  # for `import simt_library`
sys.path.insert(0, str(SOURCE.parent / "golden"))  # for `import golden_cases`

from simt_library import Context, Library  # noqa: E402


@pytest.fixture(scope="session")
def simt_build() -> Path:
    """The folder of the build, in which everything is up to date."""
    if given := os.environ.get("CUSZ_SIMT_BUILD"):
        return Path(given)
    for command in (["cmake", "-G", "Ninja", "-S", SOURCE, "-B", BUILD], ["cmake", "--build", BUILD]):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if result.returncode != 0:
            if "Boost.Context was not found" in result.stdout:
                pytest.skip("Boost.Context is not there (Debian: libboost-context-dev)")
            pytest.fail(f"{' '.join(map(str, command))}\n{result.stdout}")
    return BUILD


@pytest.fixture(scope="session")
def loaded(simt_build: Path) -> Library:
    return Library(simt_build / "lib" / "libcusz_core.so.0")


@pytest.fixture(scope="session")
def reused(loaded: Library) -> Iterator[Context]:
    """A context that serves many tests, as those of programs do."""
    with Context(loaded) as context:
        yield context


@pytest.fixture
def simt(loaded: Library) -> Iterator[Library]:
    """The library, with everything as it was at first. No kernel may have done what the executor reports."""
    loaded.reset()
    yield loaded
    report = loaded.report
    loaded.reset()
    assert report == ""


@pytest.fixture
def context(simt: Library) -> Iterator[Context]:
    """A context of its own. Nothing may be left of it."""
    before = simt.held
    with Context(simt) as own:
        yield own
    assert simt.held == before
