"""Options and fixtures of all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `import support`


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_report_header() -> str:
    folder = os.environ.get("CUSZ_TEST_DATA")
    if folder:
        return f"real fields: {folder}"
    return "real fields: none, CUSZ_TEST_DATA is not set: generated fields stand in for them"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(scope="session")
def simt_build() -> Path:
    """The folder of the build of tests/simt, in which everything is up to date: the executor of CUDA kernels, and the
    whole library over it (lib/libcusz_core.so.0).

    CUSZ_SIMT_BUILD names a folder of a build to use instead, as it is (scripts/mutate does).
    """
    if given := os.environ.get("CUSZ_SIMT_BUILD"):
        return Path(given)
    source = Path(__file__).resolve().parent / "simt"
    build = source.parents[1] / "build" / "simt"
    for command in (["cmake", "-G", "Ninja", "-S", source, "-B", build], ["cmake", "--build", build]):
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if result.returncode != 0:
            if "Boost.Context was not found" in result.stdout:
                pytest.skip("Boost.Context is not there (Debian: libboost-context-dev)")
            pytest.fail(f"{' '.join(map(str, command))}\n{result.stdout}")
    return build


@pytest.fixture(scope="session")
def simt_environment(simt_build: Path) -> dict[str, str]:
    """What makes a process that imports cusz_core use the library over the executor, and gives it a stand-in for CuPy
    (tests/fakes/executor)."""
    tests = Path(__file__).resolve().parent
    folders = [str(tests / "fakes" / "executor"), str(tests), os.environ.get("PYTHONPATH", "")]
    return {"LD_LIBRARY_PATH": str(simt_build / "lib"), "PYTHONPATH": os.pathsep.join(filter(None, folders))}
