"""The library over the emulator of CUDA kernels, as the tests call it (built by simt_build, tests/conftest.py)."""

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
    """A context that serves many tests, as those of programs do."""
    with Context(loaded) as context:
        yield context


@pytest.fixture
def simt(loaded: Library) -> Iterator[Library]:
    """The library, with everything as it was at first. No kernel may have done what the emulator reports."""
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


@pytest.fixture
def hidden(simt: Library) -> None:
    """No test may end well where the host's code touches a device's memory."""
    simt.hide_device_memory()


@pytest.fixture(params=PAIRS_OF_PLACES)
def places(request: pytest.FixtureRequest) -> dict[str, str]:
    """Of the field and the archive."""
    field, archive = request.param.split("-")
    return {"field": field, "archive": archive}


@pytest.fixture(params=["lorenzo", "spline"])
def predictor(request: pytest.FixtureRequest) -> str:
    return request.param
