"""The Reader: any number of ranks, any box, the same values as plain ADIOS2."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support
from cusz_core import CuszError
from cusz_operator.reading.contents import Cache

pytest.importorskip("adios2")

BY_EITHER_PREDICTOR = pytest.mark.parametrize("file", ["lorenzo", "spline"], indirect=True)


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize("readers", [1, 2, 3, 7])
def test_any_number_of_ranks_reads(readers: int, mpirun: Callable, by_layer: Callable) -> None:
    done = mpirun(readers, "layer_read.py", by_layer(4, "BP5"), by_layer(4, "BP4"), timeout=100)
    assert "read 2" in done.stdout


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, np.ndarray]:
    """T in two blocks, which leave out rows 20 to 24; S only at the second step."""
    x = support.smooth((30, 40), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, predictor=getattr(request, "param", "lorenzo")) as out:
        for step in range(2):
            with out.step():
                out.put("T", x[:20], x.shape)
                out.put("T", x[25:], x.shape, (25, 0))
                if step == 1:
                    out.put("S", x)
    return tmp_path / "run.bp", x


@BY_EITHER_PREDICTOR
def test_reading(file: tuple[Path, np.ndarray]) -> None:
    path, x = file
    with cz.Reader(path) as run:
        assert len(run) == 2
        assert [step.variables for step in run] == [["T"], ["S", "T"]]
        step = run[-1]
        whole = step.read("T")
        assert not support.violations(x[:20], whole[:20], 1e-3)
        assert np.isnan(whole[20:25]).all()
        out = np.full((10, 5), 7, np.float32)
        assert step.read("T", (18, 3), (10, 5), out=out) is out
        assert support.same_bits(np.ascontiguousarray(out[:2]), np.ascontiguousarray(whole[18:20, 3:8]))
        assert np.isnan(out[2:7]).all()
        assert support.same_bits(step.read("T", (26, 0)), np.ascontiguousarray(whole[26:]))
        assert isinstance(step.read("S", like=np), np.ndarray)
        assert step.blocks("T")["count"].tolist() == [[20, 40], [5, 40]]
        with pytest.raises(cusz_core.ParameterError, match="no variable 'S' at step 0"):
            run[0].read("S")
        with pytest.raises(cusz_core.ParameterError, match="no variable 'X'"):
            step.read("X")
        with pytest.raises(cusz_core.ParameterError, match="not a box within"):
            step.read("T", (18, 3), (10, 50))
        with pytest.raises(cusz_core.ParameterError, match="out must be a C-contiguous array of float32"):
            step.read("T", (0, 0), (10, 5), out=np.empty((10, 5)))
        with pytest.raises(cusz_core.ParameterError, match="numpy's or CuPy's"):
            step.read("T", (0, 0), (10, 5), out=memoryview(np.empty((10, 5), np.float32)))
        with pytest.raises(IndexError):
            run[2]
    with pytest.raises(cusz_core.ParameterError, match="is closed"):
        step.read("S")


@pytest.mark.parametrize("index", [slice(0, 2), 1.0, 1.5, None, (0, "T")])
def test_steps_are_numbered_by_integers(file: tuple[Path, np.ndarray], index: Any) -> None:
    with cz.Reader(file[0]) as run:
        with pytest.raises(TypeError, match=f"integers, and variables named by texts, not {type(index).__name__}"):
            run[index]
        assert run[np.int64(-1)].index == 1


def test_a_shape_that_changes_where_a_variable_is_not_in_every_step(engine: Any, tmp_path: Path) -> None:
    x = support.smooth((30, 40), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine) as out:
        for n in range(6):
            with out.step():
                out.put("always", x[: 5 + n])
                if n % 2:
                    out.put("sometimes", x[: 20 - n])
                    for row in range(n):
                        out.put("in more blocks", x[row : row + 1], (n, 40), (row, 0))
    with cz.Reader(tmp_path / "run.bp") as run:
        for step in run:
            assert not support.violations(x[: 5 + step.index], step.read("always"), 1e-3)
            if step.index % 2:
                assert not support.violations(x[: 20 - step.index], step.read("sometimes"), 1e-3)
                assert not support.violations(x[: step.index], step.read("in more blocks"), 1e-3)


def test_a_table_that_lies_about_places(file: tuple[Path, np.ndarray]) -> None:
    """Archives do not contain the start of a block: the table's is compared with ADIOS2's."""
    path, _ = file
    with cz.Reader(path) as run:
        row = cz.tables.blocktable.rows_of(run[0].blocks("T"))[1]
    data = (path / "data.0").read_bytes()
    at = data.index(row.tobytes()[16:]) - 16  # without rank and step, which are 0 like many other bytes
    row[3] = 24.0  # start0, which is really 25
    (path / "data.0").write_bytes(data[:at] + row.tobytes() + data[at + row.nbytes :])
    with cz.Reader(path) as run, pytest.raises(cusz_core.CorruptArchiveError, match="the block table of 'T' at step 0"):
        run[0].read("T")
    (path / cz.tables.checks.CHECKS_FILE).unlink()
    with cz.Reader(path) as run, pytest.raises(cusz_core.CorruptArchiveError, match="disagree about where"):
        run[0].read("T")


def test_checksums_without_decoding(file: tuple[Path, np.ndarray]) -> None:
    path, x = file
    with cz.Reader(path) as run:
        assert [run[i].verify("T") for i in range(2)] == [2, 2]
    data = bytearray((path / "data.0").read_bytes())
    archive = cusz_core.compress(x[25:], 1e-3, predictor="lorenzo")
    data[data.rindex(archive) + len(archive) - 3] ^= 0x40  # in the last step
    (path / "data.0").write_bytes(data)
    with cz.Reader(path) as run:
        assert run[0].verify("T") == 2
        with pytest.raises(cusz_core.CorruptArchiveError, match="checksum"):
            run[1].verify("T")
        with pytest.raises(cusz_core.ParameterError, match="no variable 'X'"):
            run[1].verify("X")


def test_archives_are_kept(file: tuple[Path, np.ndarray]) -> None:
    """What was read once is not fetched again, as far as the limit allows; values do not depend on the cache."""
    path, x = file
    sizes = [len(cusz_core.compress(part, 1e-3, predictor="lorenzo")) for part in (x[:20], x[25:])]
    with cz.Reader(path) as run:
        before = run[0].read("T", (0, 0))
    for limit, fetched in [(2**28, 2), (sum(sizes), 2), (sum(sizes) - 1, 3), (max(sizes) - 1, 3), (0, 4)]:
        with cz.Reader(path, cache_bytes=limit, threads=1) as run:
            count = []
            fetch = run._contents._fetched
            run._contents._fetched = lambda *args, fetch=fetch, count=count: count.extend(args[2]) or fetch(*args)  # type: ignore
            for _ in range(2):
                assert support.same_bits(before, run[0].read("T", (0, 0)))
            assert len(count) == fetched, limit
    with pytest.raises(cusz_core.ParameterError, match="cache_bytes is -1"):
        cz.Reader(path, cache_bytes=-1)


def test_an_archive_that_two_threads_have_fetched() -> None:
    cache = Cache(100)
    for _ in range(10):
        cache.put(("U", 0, 0), np.zeros(30, np.uint8))
        cache.put(("U", 0, 1), np.zeros(30, np.uint8))
    assert [cache.get(("U", 0, number)) is None for number in range(3)] == [False, False, True]
    assert cache._bytes == 60


@pytest.mark.parametrize(
    "options", [{"eb": 1e-3}, {"eb": 1e-4, "mode": "rel"}, {"psnr": 80}], ids=["abs", "rel", "psnr"]
)
def test_more_dimensions_than_four_in_thin_blocks(options: Any, engine: Any, tmp_path: Path) -> None:
    """Extents of 1 are dropped, so that fields of a variable's blocks differ in their number of dimensions."""
    x = support.smooth((2, 3, 4, 5, 6), support.F32)
    edges = [(0, 1), (1, 2)], [(0, 1), (1, 3)], [(0, 4)], [(0, 1), (1, 5)], [(0, 6)]
    with cz.Writer(tmp_path / "run.bp", engine=engine, **options) as out, out.step():
        for ends in itertools.product(*edges):
            out.put("T", x[tuple(slice(*each) for each in ends)], x.shape, [begin for begin, _ in ends])
    with cz.Reader(tmp_path / "run.bp") as run:
        whole, table = run[0].read("T"), run[0].blocks("T")
        assert len(table) == 8
        assert not support.violations(x, whole, float(table["eb_abs"].max()))
        box = run[0].read("T", (0, 0, 1, 0, 2), (2, 2, 2, 3, 3))
        assert support.same_bits(box, np.ascontiguousarray(whole[:, :2, 1:3, :3, 2:5]))


def test_no_such_file(tmp_path: Path) -> None:
    for name in (tmp_path / "run.bp", ""):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            cz.Reader(name)


def test_a_reader_that_is_sent_to_another_process(file: tuple[Path, np.ndarray]) -> None:
    with cz.Reader(file[0]) as run:
        for each in (run, run[0], run["T"]):
            with pytest.raises(TypeError, match=r"cannot be sent to another process: open '.*' there"):
                pickle.dumps(each)


def test_a_file_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "run.nc").touch()
    with pytest.raises(NotADirectoryError, match=r"run\.nc' is a file, not a \.bp folder"):
        cz.Reader(tmp_path / "run.nc")


def test_steps_are_not_selected_by_a_parameter(file: tuple[Path, np.ndarray]) -> None:
    with pytest.raises(cusz_core.ParameterError, match=r"SelectSteps is not for a Reader: take run\[i\]"):
        cz.Reader(file[0], parameters={"selectsteps": "1:2"})
    latest = {"alwaysprovidelatesttimestep": True}
    with pytest.raises(cusz_core.ParameterError, match="AlwaysProvideLatestTimestep: ADIOS2 crashes where it skips"):
        cz.Reader(file[0].with_name("stream"), engine="SST", parameters={**latest, "OpenTimeoutSecs": 1})


def test_a_file_before_its_first_step(tmp_path: Path) -> None:
    """As left by a writer that stopped there: ADIOS2 itself crashes when it closes such a file."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3), cz.Reader(tmp_path / "run.bp") as run:
        assert len(run) == 0
        assert list(run) == []


def test_variables_of_one_shape_are_shared_alike(tmp_path: Path) -> None:
    """However well they compress: a rank's positions and IDs must belong to the same particles."""
    n = 3000
    x = np.zeros(n, np.float32)
    x[: n // 4] = support.random_bits((n // 4,), support.F32)
    ids = np.arange(n)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out, out.step():
        for name, array in (("x", x), ("y", x[::-1].copy()), ("id", ids), ("longer", np.append(x, x))):
            for part in range(3):
                box = slice(part * len(array) // 3, (part + 1) * len(array) // 3)
                out.put(name, array[box], array.shape, (box.start,))
    with cz.Reader(tmp_path / "run.bp") as run:
        run._contents.size = 3  # of three ranks
        (step,) = run
        shares = [[step.share(name, rank) for rank in range(3)] for name in ("x", "y", "id")]
        assert shares[0] == shares[1] == shares[2]
        assert [start for (start,), _ in shares[0][1:]] == [start + count for (start,), (count,) in shares[0][:-1]]
        assert sum(count for _, (count,) in shares[0]) == n
        longer = [step.share("longer", rank)[1][0] for rank in range(3)]
        assert max(longer) - min(longer) > 100  # balanced by what is stored


def write_run(path: Path, engine: Any, first: float, rows: int = 20, **options: Any) -> None:
    """Three steps of U (compressed) and n (integers)."""
    with cz.Writer(path, eb=1e-3, engine=engine, **options) as out:
        for i in range(3):
            with out.step():
                out.put("U", support.smooth((rows, 30), support.F32) + np.float32(first + i))
                out.put("n", np.full((rows, 30), first + i, np.int16))


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("rows", [20, 9, 50])
def test_a_file_that_is_written_again_while_it_is_read(rows: int, replaced: bool, engine: Any, tmp_path: Path) -> None:
    """ADIOS2 crashes, or gives values of the new file. The old values are right as well, where they are still there."""
    path = tmp_path / "run.bp"
    write_run(path, engine, 0)
    with cz.Reader(path, cache_bytes=0) as run:
        old = run[0].read("U")
        if replaced:
            path.rename(tmp_path / "old.bp")
        write_run(path, engine, 0 if rows == 20 else 10, rows)
        with contextlib.suppress(CuszError):
            assert np.array_equal(run[0].read("U"), old)
        for step, name in [(0, "n"), (1, "U"), (1, "n"), (2, "U"), (2, "n")]:
            with pytest.raises(CuszError, match="has been written again since it was opened"):
                run[step].read(name)
    with cz.Reader(path) as run:
        assert run["n"].shape == (rows, 30)
        run["U"].read()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_file_that_grows_while_it_is_read(is_closed: bool, engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    write_run(path, engine, 0)
    with contextlib.ExitStack() as opened:
        if not is_closed:
            write_run(path, engine, 3, append=True)
        run = opened.enter_context(cz.Reader(path, cache_bytes=0))
        n_steps = len(run)
        write_run(path, engine, n_steps, append=True)
        assert len(run) == n_steps
        for i, step in enumerate(run):
            assert not support.violations(support.smooth((20, 30), support.F32) + np.float32(i), step.read("U"), 1e-3)
            assert (step.read("n") == i).all()
