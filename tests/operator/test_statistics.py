"""Min and max that ADIOS2 reports for a Writer's files: the true ones, or none."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support
from cusz_operator.plugin import Plugin, PutRange
from cusz_operator.tables import statistics

pytest.importorskip("adios2")
import adios2
from other_program import Program

X = support.smooth((20, 30), support.F32)
UNKNOWN = ("3.40282e+38", "-3.40282e+38")  # of a float variable with statistics of which no value counts
#: What bpls shows for a variable without statistics, and for one of which no value counts. BP4 differs.
AFTER_2_12 = hasattr(adios2.bindings.IO, "DefineReaderDerivedVariable")
NONE, NO_VALUES = (("N/A", "N/A"), ("N/A", "N/A")) if AFTER_2_12 else (("0", "0"), UNKNOWN)
NONE_IN_BP4 = ("0", "0")


def shown(low: Any, high: Any) -> tuple[str, str]:
    return f"{low:g}", f"{high:g}"


Told = Callable[[Path], dict[str, tuple[str, str]]]


@pytest.fixture(scope="session")
def told(program: Callable, bpls: str) -> Told:
    """Min and max of every variable except block tables, as `bpls -l` prints them."""

    def listed(path: Path) -> dict[str, tuple[str, str]]:
        lines = [line for line in program([bpls, "-l", path]).stdout.splitlines() if "cusz/blocks" not in line]
        found = {line.split()[1]: line.rpartition("=")[2].strip() for line in lines if "/" in line}
        return {
            name: ("N/A", "N/A") if text == "N/A / N/A" else shown(*map(float, text.split("/")))
            for name, text in found.items()
        }

    return listed


def blocks_of(path: Path, name: str, step: int = 0) -> list[tuple[str, str, str, str]]:
    """Start, count, min and max of every block, as ADIOS2 reports them."""
    with adios2.FileReader(str(path)) as run:
        blocks = run.engine.blocks_info(name, step)
    return [(block["Start"], block["Count"], block["Min"], block["Max"]) for block in blocks]


def write(path: Path, *fields: np.ndarray, **options: Any) -> None:
    """Writes a step for each field."""
    support.write_run(path, *({"T": field} for field in fields), **{"eb": 1e-3, **options})


# --------------------------------------------------------------------------------------------------- what is shown


def test_bpls_shows_minimum_and_maximum(told: Told, tmp_path: Path) -> None:
    x = X.copy()
    x[0, :4] = np.nan, np.inf, -np.inf, 1e20
    path = tmp_path / "run.bp"
    with cz.Writer(path, eb=1e-3, fill=1e20) as out:
        for step in range(3):
            with out.step():
                out.put("T", x[:8] + np.float32(step), x.shape)
                out.put("T", x[8:], x.shape, (8, 0))
                out.put("R", x, mode="rel")
    counted = x[np.isfinite(x) & (x != np.float32(1e20))]
    assert told(path)["R"] == shown(counted.min(), counted.max())
    later = x[:8].reshape(-1)[4:] + np.float32(2)
    low, high = min(counted.min(), later.min()), max(counted.max(), later.max())
    assert told(path)["T"] == shown(low, high)
    assert blocks_of(path, "T", 2)[1] == ("8,0", "12,30", *shown(x[8:].min(), x[8:].max()))
    assert blocks_of(path, "R", 1) == [("0,0", "20,30", *shown(counted.min(), counted.max()))]


@pytest.mark.parametrize("mode", ["abs", "rel"])
@pytest.mark.parametrize(
    "count",
    [(1,), (2,), (1000,), (1, 1), (1, 77), (77, 1), (9, 8, 7), (1, 1, 2), (3, 4, 5, 6), (1, 5, 1, 6, 1, 7), (1,) * 32],
    ids=str,
)
def test_every_shape(count: tuple[int, ...], mode: Any, dtype: np.dtype, tmp_path: Path) -> None:
    """Not only min and max, but also extents and values are right."""
    shape, start = tuple(n + 3 for n in count), tuple(i % 3 for i in range(len(count)))
    if len(count) > 6:
        shape = count
        start = (0,) * len(count)
    x = support.smooth((math.prod(count),), dtype).reshape(count)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, mode=mode) as out, out.step():
        out.put("T", x, shape, start)
    where = (",".join(map(str, start)), ",".join(map(str, count)))
    assert blocks_of(tmp_path / "run.bp", "T") == [(*where, *shown(x.min(), x.max()))]
    with adios2.FileReader(str(tmp_path / "run.bp")) as run:
        got = run.read("T", start=list(start), count=list(count)).reshape(count)
    assert not support.violations(x, got, support.absolute_bound(x, 1e-3, mode))


def test_blocks_without_values(told: Told, tmp_path: Path) -> None:
    """They do not affect the min and max of other blocks; by themselves, they have a min above the max."""
    nothing = np.full((5, 30), np.nan, np.float32)
    nothing[0] = 1e20, *[np.inf] * 29
    shape = (25, 30)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, fill=1e20) as out, out.step():
        out.put("nan", nothing)
        out.put("empty", nothing[:0])
        out.put("some", nothing, shape)
        out.put("some", X[:0], shape, (5, 0))
        out.put("some", X, shape, (5, 0))
    low_high = shown(X.min(), X.max())
    assert told(tmp_path / "run.bp") == {"nan": NO_VALUES, "empty": NO_VALUES, "some": low_high}
    assert [block[1:] for block in blocks_of(tmp_path / "run.bp", "some")] == [
        ("5,30", *UNKNOWN),
        ("0,30", *UNKNOWN),
        ("20,30", *shown(X.min(), X.max())),
    ]


def test_in_the_background(told: Told, tmp_path: Path) -> None:
    write(tmp_path / "run.bp", X, X + np.float32(1), asynchronous=True)
    assert told(tmp_path / "run.bp")["T"] == shown(X.min(), X.max() + np.float32(1))


@pytest.mark.parametrize(
    "options",
    [{"ranges": False}, {"parameters": {"statslevel": 0}}, {"engine": "BP4"}],
    ids=["without ranges", "StatsLevel 0", "BP4"],
)
def test_without_statistics(options: dict[str, Any], told: Told, tmp_path: Path) -> None:
    write(tmp_path / "run.bp", X, **options)
    assert told(tmp_path / "run.bp")["T"] == (NONE_IN_BP4 if options.get("engine") == "BP4" else NONE)
    with adios2.FileReader(str(tmp_path / "run.bp")) as run:
        assert not support.violations(X, run.read("T"), 1e-3)


# ----------------------------------------------------------------------------------------------------------- append


@pytest.mark.parametrize("then", [{}, {"ranges": False}, {"parameters": {"StatsLevel": 0}}], ids=str)
def test_what_is_appended_is_as_the_file(then: dict[str, Any], told: Told, tmp_path: Path) -> None:
    """BP5 readers crash if some steps have statistics and others do not."""
    path, y = tmp_path / "run.bp", X + np.float32(1)
    write(path, X)
    write(path, y, append=True, **then)
    assert told(path)["T"] == shown(X.min(), y.max())
    write(tmp_path / "without.bp", X, ranges=False)
    write(tmp_path / "without.bp", y, append=True, **then)
    assert told(tmp_path / "without.bp")["T"] == NONE
    for name in ("run.bp", "without.bp"):
        with cz.Reader(tmp_path / name) as run:
            for step, field in zip(run, (X, y), strict=True):
                assert not support.violations(field, step.read("T"), 1e-3)


def test_appending_to_a_file_by_the_plugin_alone(told: Told, tmp_path: Path) -> None:
    for level in 0, 1:
        path = tmp_path / f"{level}.bp"
        with Program(path, StatsLevel=str(level)) as out, out.step():
            out.put("T", X, eb=1e-3)
            out.put("n", 7)
        write(path, X + np.float32(1), append=True)
        assert told(path)["T"] == (shown(X.min(), X.max() + np.float32(1)) if level else NONE)


def described(low: str, high: str, kind: str = "float") -> dict[str, str]:
    return {"Type": kind, "SingleValue": "false", "Min": low, "Max": high}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ([], None),
        ([described("1", "2", "int32_t")], None),
        ([described("0", "0")], False),
        ([described("3.40282e+38", "-3.40282e+38")], False),
        ([described("1.79769e+308", "-1.79769e+308", "double"), described("0", "0")], False),
        ([described("inf", "-inf")], False),
        ([described("3.40282e+38", "-3.40282e+38"), described("-1", "0")], True),
        ([described("0", "0"), described("7", "7", "double")], True),
        ([described("nan", "nan")], True),
    ],
)
def test_how_files_without_statistics_are_known(variables: list[dict[str, str]], expected: bool | None) -> None:
    """ADIOS2 reports 0 for both, or after 2.12 a min above the max, as for a variable without finite values."""

    class FileReader:
        def __init__(self, path: str) -> None:
            assert path == "run.bp"

        def __enter__(self) -> FileReader:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def available_variables(self) -> dict[str, dict[str, str]]:
            return {str(number): variable for number, variable in enumerate(variables)}

    assert statistics.are_in(SimpleNamespace(FileReader=FileReader), Path("run.bp")) is expected


def test_appending_to_a_damaged_file(tmp_path: Path) -> None:
    """ADIOS2 would crash if it were asked for the file's statistics."""
    write(tmp_path / "run.bp", X)
    metadata = tmp_path / "run.bp" / "md.0"
    support.damage(metadata, metadata.stat().st_size // 2, 255)
    with pytest.raises(cusz_core.CorruptArchiveError, match=r"md\.0 is damaged"):
        write(tmp_path / "run.bp", X, append=True)


def test_appending_to_a_file_without_steps(told: Told, tmp_path: Path) -> None:
    write(tmp_path / "run.bp")
    write(tmp_path / "run.bp", X, append=True)
    assert told(tmp_path / "run.bp")["T"] == shown(X.min(), X.max())


# ------------------------------------------------------------------------- an ADIOS2 that does it in another order


@pytest.fixture
def tried_anew() -> Iterator[None]:
    """Forgets what is known about this process's ADIOS2, before and after the test."""
    for forget in (statistics.problem.cache_clear, statistics.warn.cache_clear):
        forget()
    yield
    for forget in (statistics.problem.cache_clear, statistics.warn.cache_clear):
        forget()


def fail(*_: Any) -> str:
    raise RuntimeError("another order")


@pytest.mark.usefixtures("tried_anew")
def test_files_without_where_it_fails(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """There is one warning, and files are as without statistics."""
    write(tmp_path / "with.bp", X)
    statistics.problem.cache_clear()
    monkeypatch.setattr(statistics, "_problem_of", fail)
    for name in "ab":
        write(tmp_path / f"{name}.bp", X)
        assert told(tmp_path / f"{name}.bp")["T"] == NONE
        with cz.Reader(tmp_path / f"{name}.bp") as run:
            assert not support.violations(X, run[0].read("T"), 1e-3)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("cusz_operator: bpls -l will show 0 / 0, ")
    assert line.endswith("because a trial with this ADIOS2 failed: another order")

    with pytest.raises(cusz_core.UnsupportedError, match=r"has ADIOS2's statistics, .* but another order"):
        cz.Writer(tmp_path / "with.bp", eb=1e-3, append=True)
    assert told(tmp_path / "with.bp")["T"] == shown(X.min(), X.max())


@pytest.mark.usefixtures("tried_anew")
@pytest.mark.parametrize("wrong", ["extents", "minimum"])
def test_the_trial_notices(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Plugin.hand_over

    def hand_over(self: Plugin, variable: str, dtype: Any, count: Any, archive: Any, put: Any, given: PutRange) -> None:
        change = {"select": lambda _: None} if wrong == "extents" else {"range": given.range - np.array([1, 0], dtype)}
        keep(self, variable, dtype, count, archive, put, given._replace(**change))

    monkeypatch.setattr(Plugin, "hand_over", hand_over)
    expected = {"extents": "it kept [('0,0', '1,2', -30.0, -7.0)", "minimum": "it kept [('0,0', '4,6', -31.0, -7.0)"}
    assert expected[wrong] in statistics.problem()


NOWHERE = """
import gc, resource, sys
import numpy as np
import cusz_operator
from cusz_operator.tables import statistics

_, unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), unlimited))
statistics.problem()
resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
gc.collect()
with cusz_operator.Writer(sys.argv[1], eb=0) as out, out.step():
    out.put("T", np.arange(6.0))
"""


@pytest.mark.parametrize("most_bytes", [0, 100, 1000])
def test_a_full_disk_at_the_trial(most_bytes: int, told: Told, python: Callable, tmp_path: Path) -> None:
    """The process goes on, although ADIOS2's destructors, which fail as well, would end it."""
    done = python(NOWHERE, tmp_path / "run.bp", str(most_bytes))
    assert len([line for line in done.stderr.splitlines() if "because a trial with this ADIOS2 failed" in line]) == 1
    assert told(tmp_path / "run.bp")["T"] == NONE


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_all_ranks_take_the_same_way(ranks: int, told: Told, mpirun: Callable, tmp_path: Path) -> None:
    done = mpirun(ranks, "layer_statistics.py", tmp_path)
    assert done.stderr.count("because a trial with this ADIOS2 failed") == 1
    seen = {name: told(tmp_path / f"{name}.bp")["T"] for name in ("all", "one", "fails")}
    whole = np.concatenate([support.smooth((10, 20), support.F32, seed=rank) for rank in range(ranks)])
    low_high = shown(whole.min(), whole.max())
    assert seen == {"all": low_high, "one": NONE, "fails": NONE}
    for name in seen:
        with cz.Reader(tmp_path / f"{name}.bp") as run:
            for step in run:
                assert not support.violations(whole, step.read("T"), 1e-3)
    assert json.loads(done.stdout) == [[True, False, False]] * ranks
