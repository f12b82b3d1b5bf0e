"""Options and fixtures of all tests."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `import support`
sys.path.append(str(Path(__file__).parents[1] / "scripts" / "bench"))  # for `import comparison`

from support import locked


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_report_header() -> str:
    folder = os.environ.get("CUSZ_TEST_DATA")
    if folder:
        return f"real fields: {folder}"
    return "real fields: none, CUSZ_TEST_DATA is not set: generated fields stand in for them"


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With pytest-xdist (scripts/test) a worker takes whole files, so that what a file's tests share is made once, and
    one takes all files that start ranks: beside each other these would wait for cores until their time is over.

    (`--dist loadgroup` would do it with marks, but has no effect with pytest 9.2: pytest-xdist's issue 1386.)
    """
    from xdist.scheduler import LoadScopeScheduling

    @functools.cache
    def group(file: str) -> str:
        starts_ranks = re.search(r"\bmark\.(mpi|slurm)\b", (config.rootpath / file).read_text(encoding="utf-8"))
        return "ranks" if starts_ranks else file

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid.partition("::")[0])

    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "slow" in item.keywords and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(scope="session")
def simt_build() -> Path:
    """The folder of the build of tests/simt, in which everything is up to date: the emulator of CUDA kernels, and the
    whole library over it (lib/libcusz_core.so.0).

    CUSZ_SIMT_BUILD names a folder of a build to use instead, as it is (scripts/mutate does).
    """
    if given := os.environ.get("CUSZ_SIMT_BUILD"):
        return Path(given)
    source = Path(__file__).resolve().parent / "simt"
    build = source.parents[1] / "build" / "simt"
    with locked(build):
        for command in (
            ["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build)],
            ["cmake", "--build", str(build)],
        ):
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if result.returncode != 0:
                if "Boost.Context was not found" in result.stdout:
                    pytest.skip("Boost.Context is not there (Debian: libboost-context-dev)")
                pytest.fail(f"{' '.join(command)}\n{result.stdout}")
    return build


@pytest.fixture(scope="session")
def simt_environment(simt_build: Path) -> dict[str, str]:
    """What makes a process that imports cusz_core use the library over the emulator, and gives it a stand-in for CuPy
    (tests/fakes/emulator)."""
    tests = Path(__file__).resolve().parent
    folders = [str(tests / "fakes" / "emulator"), str(tests), os.environ.get("PYTHONPATH", "")]
    return {"LD_LIBRARY_PATH": str(simt_build / "lib"), "PYTHONPATH": os.pathsep.join(filter(None, folders))}
