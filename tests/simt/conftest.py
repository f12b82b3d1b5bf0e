"""The library over the CUDA emulator, as the tests call it (simt_build in tests/conftest.py builds it)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent

sys.path.insert(0, str(SOURCE))  # for `import simt_library`
sys.path.insert(0, str(SOURCE.parent / "golden"))  # for `import golden_cases`

from simt_checks import PAIRS_OF_PLACES  # noqa: E402
from simt_library import Context, Library  # noqa: E402


@pytest.fixture(scope="session")
def loaded(simt_build: Path) -> Library:
    return Library(simt_build / "lib" / "libcusz_core.so.0")


@pytest.fixture(scope="session")
def reused(loaded: Library) -> Iterator[Context]:
    """One context for many tests, as programs use theirs."""
    with Context(loaded) as context:
        yield context


@pytest.fixture
def simt(loaded: Library) -> Iterator[Library]:
    """The library in its initial state. The test fails if the emulator reports anything."""
    loaded.reset()
    yield loaded
    report = loaded.report
    loaded.reset()
    assert report == ""


@pytest.fixture
def context(simt: Library) -> Iterator[Context]:
    """A context for this test only. It must leave nothing behind."""
    before = simt.held
    with Context(simt) as own:
        yield own
    assert simt.held == before


@pytest.fixture
def hidden(simt: Library) -> None:
    """Host code faults if it touches device memory."""
    simt.hide_device_memory()


@pytest.fixture(params=PAIRS_OF_PLACES)
def places(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where field and archive lie."""
    field, archive = request.param.split("-")
    return {"field": field, "archive": archive}


@pytest.fixture(params=["lorenzo", "spline"])
def predictor(request: pytest.FixtureRequest) -> str:
    return request.param
