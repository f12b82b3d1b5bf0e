"""Options and fixtures of all tests."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for `import support`
sys.path += [str(Path(__file__).parents[1] / name) for name in ("scripts/bench", "scripts/paper", "apps")]

import support
import tiers
from cusz_core import cli
from support import locked

QUICK, LEFT_OUT = "quick", "left out"

with contextlib.suppress(ImportError):  # scripts/gpu does without it
    from hypothesis import settings

    settings.register_profile("without deadline", deadline=None)  # on a busy machine anything may take long
    settings.load_profile("without deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every test, not only the quick ones (testing.md)")
    parser.addoption("--parts", default="", help="run the full tests of these parts as well: tests/parts.toml, as a,b")
    parser.addoption("--half", action="store_true", help="of the full tests of --parts, half, by the slice")
    parser.addoption("--slice", type=int, help=f"run this slice of the full tests as well, 0 to {tiers.SLICES - 1}")


def pytest_report_header() -> str:
    folder = os.environ.get("CUSZ_TEST_DATA")
    if folder:
        return f"real fields: {folder}"
    return "real fields: none, CUSZ_TEST_DATA is not set: generated fields stand in for them"


# ------------------------------------------------------------------------------------------ what children get


@pytest.fixture(scope="session", autouse=True)
def children_get_the_environment_of_python() -> Iterator[None]:
    """Without `env`, a child inherits the C environment. In a process started without mpirun, MPI_Init adds variables
    to it (such as PMIX_RANK) that os.environ lacks, and an mpirun that inherits those exits with 1 and no message.
    """
    make = subprocess.Popen.__init__

    @functools.wraps(make)
    def with_environment(self: Any, *arguments: Any, **options: Any) -> None:
        if len(arguments) < 11 and options.get("env") is None:
            options["env"] = dict(os.environ)
        make(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", with_environment)
        yield


# ------------------------------------------------------------------------------------------ which tests are run


def are_named(config: pytest.Config) -> bool:
    return any("::" in argument for argument in config.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what the options do not ask for. Tests asked for by name always run."""
    waits_for_the_emulator = {item.path for item in items if "simt_build" in getattr(item, "fixturenames", ())}
    # The files that start ranks come first, because one process runs them all. Those that need the emulator come last,
    # because scripts/run_tests.py builds it meanwhile.
    items.sort(key=lambda item: (not starts_ranks(item.path), item.path in waits_for_the_emulator))
    mark_cases(items)
    if config.getoption("--all") or are_named(config):
        return
    why = why_run(config)
    reasons = [why(item) for item in items]
    config.stash[COUNTS] = Counter(reasons)
    config.hook.pytest_deselected(
        items=[item for item, reason in zip(items, reasons, strict=True) if reason == LEFT_OUT]
    )
    items[:] = [item for item, reason in zip(items, reasons, strict=True) if reason != LEFT_OUT]


COUNTS = pytest.StashKey[Counter[str]]()


def why_run(config: pytest.Config) -> Any:
    """Returns a function that says why a test runs: "quick", a part or a slice; or "left out"."""
    wanted = set(filter(None, config.getoption("--parts").split(",")))
    number: int | None = config.getoption("--slice")
    parts = tiers.read_table() if wanted or number is not None else {}
    is_half = config.getoption("--half") and number is not None
    if unknown := wanted - set(parts):
        raise pytest.UsageError(f"--parts: {', '.join(sorted(unknown))}; known are {', '.join(parts)}")

    @functools.cache
    def wanted_part_of(path: Path) -> str:
        file = path.relative_to(config.rootpath).as_posix()
        part = tiers.part_of(file, parts.values()) if wanted else ""
        return part if part in wanted and (number is None or parts[part].runs(number, file)) else ""

    def why(item: pytest.Item) -> str:
        if "full" not in item.keywords and "long" not in item.keywords:
            return QUICK
        if (
            "long" not in item.keywords
            and (part := wanted_part_of(item.path))
            and (not is_half or tiers.is_in_half(item.nodeid, number, parts))
        ):
            return part
        if number is not None and tiers.slice_of_test(item.nodeid, parts) == number:
            return f"slice {number}"
        return LEFT_OUT

    return why


def mark_cases(items: list[pytest.Item]) -> None:
    """Leaves few of a test's cases quick, so that every value of each parameter occurs; a mark may ask for fewer."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.keywords.keys() & {"full", "long"}:
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in functions.values():
        mark = cases[0].get_closest_marker("quick")
        if mark and mark.args == ("all",):
            continue
        quick = tiers.covering([case.callspec.params for case in cases])  # type: ignore[attr-defined]
        if mark:
            quick = set(tiers.spread(sorted(quick), mark.args[0]))
        for i, case in enumerate(cases):
            if i not in quick:
                case.add_marker(mark.kwargs.get("rest", "full") if mark else "full")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A hook of pytest-xdist. Takes a worker's counts, which are the same in every worker."""
    if counts := getattr(node, "workeroutput", {}).get("counts"):
        node.config.stash[COUNTS] = Counter(counts)


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["counts"] = dict(config.stash.get(COUNTS, Counter()))
        return
    if new_skips(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def skips(config: pytest.Config) -> Counter[str]:
    """The number of skipped tests, by reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    return Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)


def new_skips(config: pytest.Config) -> list[str]:
    """In continuous integration (CI=true): reasons for skips that allowed_skips.txt does not list."""
    if not os.environ.get("CI"):
        return []
    lines = (Path(__file__).parent / "allowed_skips.txt").read_text(encoding="utf-8").splitlines()
    allowed = [line for line in lines if line and not line.startswith("#")]
    return [reason for reason in skips(config) if not any(re.fullmatch(pattern, reason) for pattern in allowed)]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    counts = config.stash.get(COUNTS, Counter())
    terminalreporter.section("what was run")
    if config.getoption("--all"):
        terminalreporter.line("all tests")
    for reason, n in counts.items():
        terminalreporter.line(f"{n:6} {reason}")
    for reason, n in skips(config).most_common():
        terminalreporter.line(f"{n:6} skipped: {reason}")
    for reason in new_skips(config):
        terminalreporter.line(
            f"ERROR: no test may be skipped for this reason in CI (allowed_skips.txt): {reason}", red=True
        )
    if file := os.environ.get("CUSZ_TEST_COUNTS"):  # for scripts/run_tests.py
        Path(file).write_text(json.dumps(counts), encoding="utf-8")


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With pytest-xdist (scripts/test) a process takes whole files, so that the fixtures of a file are made once. One
    process takes all files that start ranks: in parallel, these would wait for cores until they time out.

    (`--dist loadgroup` would do it with marks, but has no effect with pytest 9.2: pytest-xdist issue 1386.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "ranks" if starts_ranks(config.rootpath / file) else file

    return ByFile(config, log)


@functools.cache
def starts_ranks(file: Path) -> bool:
    return re.search(r"\bmark\.(mpi|slurm)\b", file.read_text(encoding="utf-8")) is not None


# ------------------------------------------------------------------------------------------ what tests share


@pytest.fixture(params=support.DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> Any:
    """A test that takes a dtype runs with both that can be compressed, unless it parametrizes dtype itself."""
    return request.param


@pytest.fixture
def cusz_cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command line of `cusz`; returns (exit code, standard output, standard error)."""

    def call(*words: object) -> tuple[int, str, str]:
        return (cli.main([str(word) for word in words]), *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def nvcc() -> str:
    import gpu_resources
    import runner

    try:
        return gpu_resources.find_nvcc()
    except runner.Failure as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def simt_build() -> Path:
    """The build folder of tests/simt, brought up to date: the emulator of CUDA kernels, and the whole library on top of
    it (lib/libcusz_core.so.0).

    CUSZ_SIMT_BUILD names a build folder to use as it is instead (scripts/mutate sets it).
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
    """An environment in which a process that imports cusz_core uses the library on the emulator, with a stand-in for
    CuPy (tests/fakes/emulator)."""
    tests = Path(__file__).resolve().parent
    folders = [str(tests / "fakes" / "emulator"), str(tests), os.environ.get("PYTHONPATH", "")]
    return {"LD_LIBRARY_PATH": str(simt_build / "lib"), "PYTHONPATH": os.pathsep.join(filter(None, folders))}
