"""Archives are read from the data files of a Writer's BP5 file, without ADIOS2 (datafiles.py)."""

from __future__ import annotations

import gc
import itertools
import math
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layer import LAYER_CASES

import cusz_core
import cusz_operator as cz
import support
from cusz_operator.reading import contents, datafiles, walk
from cusz_operator.reading.datafiles import DataFiles, Place, StepLayout

pytest.importorskip("adios2")
import adios2
from other_program import Program


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The blocks that ADIOS2 is asked for, while block tables are read whether or not that pays."""
    monkeypatch.setattr(contents, "_BYTES_PER_TABLE", 0)
    return support.calls_of(monkeypatch, contents.Contents, "_captured")


def plain(path: Path, name: str, step: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A variable as ADIOS2 reads it."""
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    with adios2.FileReader(str(path)) as run:
        variable = run.inquire_variable(name)
        variable.set_step_selection([step, 1])
        variable.set_selection([[0] * len(shape), list(shape)])
        return run.read(variable).reshape(shape).astype(dtype)


def require_the_same(path: Path, names: set[str]) -> None:
    with cz.Reader(path) as run:
        for index, step in enumerate(run):
            for name in sorted(names & set(step.variables)):
                dtype = step.dtype(name)
                if dtype.kind == "c":
                    continue  # its parts are variables, too
                own = step.read(name, fill=0)  # ADIOS2 leaves zeros where no block is
                assert np.array_equal(
                    own, plain(path, name, run[name].steps.index(index), own.shape, dtype), equal_nan=True
                )


# ------------------------------------------------------------------------------------------------- where archives lie


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=12).map(sorted),
            st.sampled_from([1, 2, 4, 8]),
            st.booleans(),
        ),
        max_size=5,
    )
)
def test_places_are_those_of_blocks_put_one_by_one(told: list[tuple[list[tuple[int, int]], int, bool]]) -> None:
    layout = StepLayout(0, 5)
    ends = [0] * 5
    expected: list[list[int]] = []
    for blocks, value_bytes, has_operator in told:
        rank, stored = (np.array([block[i] for block in blocks], np.int64) for i in range(2))
        layout.add(str(len(expected)), rank, stored, value_bytes, has_operator)
        expected.append([])
        for of, n in blocks:
            begin = math.ceil(ends[of] / value_bytes) * value_bytes
            expected[-1].append(begin)
            ends[of] = begin + n + (len(datafiles._PREFIX) if has_operator else 0)
    assert [places.tolist() for places in layout.places.values()] == expected


def change_places(patch: pytest.MonkeyPatch, change: Callable[[np.ndarray], np.ndarray]) -> None:
    class Changed(StepLayout):
        def add(self, name: str, *of_blocks: Any) -> None:
            super().add(name, *of_blocks)
            self.places[name] = change(self.places[name])

    patch.setattr(contents, "StepLayout", Changed)


KINDS: dict[str, Callable[[int], Any]] = {
    "f32": lambda n: support.smooth((n, 7), support.F32),
    "f64": lambda n: support.smooth((n, 7), support.F64, seed=1),
    "noise": lambda n: support.random_bits((n, 7), support.F32, seed=2),
    "half": lambda n: support.smooth((n, 7), support.F32).astype(np.float16),
    "complex": lambda n: support.smooth((n, 7), support.F64) * (1 - 2j),
    "ids": lambda n: np.arange(7 * n, dtype=np.int16).reshape(n, 7),
    "bytes": lambda n: np.arange(7 * n).astype(np.uint8).reshape(n, 7),
    "flags": lambda n: np.arange(7 * n).reshape(n, 7) % 3 == 0,
}
Steps = list[list[tuple[str, str, list[int]]]]


@pytest.mark.full
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.lists(
            st.tuples(
                st.sampled_from("abcde"),
                st.sampled_from(sorted(KINDS)),
                st.lists(st.integers(0, 90), min_size=1, max_size=4),
            ),
            min_size=1,
            max_size=5,
            unique_by=lambda variable: variable[0],
        ),
        min_size=1,
        max_size=3,
    ),
    packed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_whatever_is_put_in_whatever_order(
    steps: Steps, packed: bool, seed: int, captured: list[Any], tmp_path: Path
) -> None:
    """ADIOS2 is not asked for any archive, and values are the same as those that it reads."""
    path = tmp_path / "run.bp"
    names = set()
    with cz.Writer(path, eb=1e-3, progress=False) as out:
        for variables in steps:
            puts = []
            for name, kind, sizes in variables:
                x = KINDS[kind](sum(sizes))
                edges = np.cumsum([0, *sizes]).tolist()
                for a, b in itertools.pairwise(edges):
                    puts.append((f"{name}_{kind}", x[a:b], x.shape, (a, 0)))
            random.Random(seed).shuffle(puts)
            with out.step():
                out.put("time", 0.5)
                for name, *block in puts:
                    lossless: Any = {"lossless": "zstd"} if packed else {}
                    out.put(name, *block, **lossless)
                    names.add(name)
    captured.clear()
    require_the_same(path, names)
    assert captured == []


@pytest.mark.quick(1)
@pytest.mark.mpi
def test_ranks_steps_and_appended_ones(engine: str, mpirun: Callable, captured: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    for _ in range(2):
        mpirun(3, "faults.py", "steps", path, engine, "3", timeout=60)
    require_the_same(path, {"U", "V", "W"})
    assert bool(captured) == (engine == "BP4")


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize("parameters", ["NumAggregators=1", "NumSubFiles=3", "AggregationType=EveryoneWrites"])
def test_aggregators(parameters: str, mpirun: Callable, captured: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    mpirun(4, "layer_write.py", path, f"BP5,{parameters}", timeout=60)
    require_the_same(path, {case.name for case in LAYER_CASES})
    assert captured == []


# --------------------------------------------------------------------------------------- where they are not as expected


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def file(tmp_path: Path) -> tuple[Path, np.ndarray]:
    x = support.smooth((40, 50), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out, out.step():
        for i in range(18):
            for half in (0, 20):
                out.put(f"T{i:02}", x[half : half + 20], x.shape, (half, 0))
    return tmp_path / "run.bp", x


def with_data_files(path: Path, n: int) -> Path:
    """The same file with n identical data files."""
    for i in range(1, n):
        shutil.copy(path / "data.0", path / f"data.{i}")
    return path


@pytest.mark.parametrize("shift", [-1, 1, 49, 10**9, -(10**9)])
def test_another_place(
    shift: int, file: tuple[Path, np.ndarray], captured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if ADIOS2 arranged data differently: then ADIOS2 is asked."""
    path, x = file
    change_places(monkeypatch, lambda places: places + shift)
    with cz.Reader(path, cache_bytes=0) as run:
        for name in ("T00", "T01"):
            assert not support.violations(x, run[0].read(name), 1e-3)
    assert len(captured) == 4


def test_the_archive_of_another_block(
    file: tuple[Path, np.ndarray], captured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x = file
    change_places(monkeypatch, lambda places: places[::-1])
    with cz.Reader(path) as run:
        assert not support.violations(x, run[0].read("T00"), 1e-3)
    assert len(captured) == 2


def test_tables_are_read_for_another_variable_if_that_pays(
    file: tuple[Path, np.ndarray], captured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x = file
    for of_each in ("_BYTES_PER_ROW", "_BYTES_PER_BLOCK"):
        monkeypatch.setattr(contents, of_each, 0)
    for bytes_per_table, asked in ((x.nbytes // 17, 0), (x.nbytes // 17 + 1, 2)):
        monkeypatch.setattr(contents, "_BYTES_PER_TABLE", bytes_per_table)
        with cz.Reader(path) as run:
            assert not support.violations(x, run[0].read("T17"), 1e-3)
        assert len(captured) == asked


def test_a_program_that_appends(file: tuple[Path, np.ndarray], captured: list[Any]) -> None:
    """Its blocks have no tables, and can lie anywhere."""
    path, x = file
    with Program(path, mode="Append", StatsLevel="1") as other, other.step():
        for name in ("T17", "T00"):
            other.put(name, x, eb=1e-3)
    with cz.Reader(path) as run:
        for step in run:
            assert not support.violations(x, step.read("T00"), 1e-3)
    assert len(captured) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda index: b"",
        lambda index: index[:63],
        lambda index: index[:-1],
        lambda index: index[:37] + b"\4" + index[38:],
        lambda index: index[:36] + b"\1" + index[37:],
        lambda index: index[:64] + b"x" + index[65:],
    ],
)
def test_an_index_of_another_kind(damage: Callable[[bytes], bytes], file: tuple[Path, np.ndarray]) -> None:
    path, _ = file
    index = path / "md.idx"
    assert DataFiles(path).starts(0) is not None
    assert DataFiles(path).starts(1) is None
    index.write_bytes(damage(index.read_bytes()))
    assert DataFiles(path).starts(0) is None
    index.unlink()
    assert DataFiles(path).starts(0) is None


def test_small_archives_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one call for those that lie side by side, with the bytes that single reads give."""
    path, n = tmp_path / "run.bp", 40
    x = support.smooth((4 * n, 50), support.F32)
    with cz.Writer(path, eb=1e-3) as out, out.step():
        for begin in range(0, 4 * n, 4):
            out.put("T", x[begin : begin + 4], x.shape, (begin, 0))
    with cz.Reader(path) as run:
        run[0].read("T")
        places = run._contents._places_of("T", 0, range(n))
        sizes = run[0].blocks("T")["archive_bytes"].tolist()
    assert places is not None
    data = DataFiles(path)
    alone = [data.archive(Place(*place), size) for *place, size in zip(*places, sizes, strict=True)]
    calls = support.calls_of(monkeypatch, os, "preadv")

    def read(numbers: Any, shift: int = 0) -> list[bool | None]:
        """Whether each archive is the one that is read alone; None if none was found."""
        files, offsets = ([of_all[i] for i in numbers] for of_all in places)
        found = data.archives(files, [offset + shift for offset in offsets], [sizes[i] for i in numbers])
        return [
            None if made is None else made.tobytes() == alone[i].tobytes()  # type: ignore[union-attr]
            for i, made in zip(numbers, found, strict=True)
        ]

    def number_of_calls(numbers: Any) -> int:
        calls.clear()
        before = data.bytes_read
        assert read(numbers) == [True] * len(numbers)
        assert data.bytes_read - before == sum(sizes[i] for i in numbers)
        return len(calls)

    assert number_of_calls(range(n)) == 1
    assert number_of_calls([]) == 0
    assert number_of_calls([7]) == 1
    assert number_of_calls(range(n)[::-1]) == n
    assert number_of_calls([0, 1, 2, *range(10, 20)]) == 2
    assert read(range(5), shift=1) == [None] * 5
    assert read(range(5), shift=-1) == [None] * 5
    monkeypatch.setattr(datafiles, "_MAX_IN_RUN", 16)
    assert number_of_calls(range(n)) == 3
    os.truncate(path / "data.0", places[1][-1] + 60)
    assert read(range(n)) == [True] * (n - 1) + [None]
    monkeypatch.setattr(datafiles, "_MAX_SMALL", sizes[5] - 1)
    assert number_of_calls([4, 5, 6]) == 3


def test_descriptors(file: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_data_files(file[0], 5)
    monkeypatch.setattr(datafiles, "_MAX_OPEN", 2)
    before = descriptors()
    data = DataFiles(path)
    with cz.Reader(path) as run:
        archive_bytes = int(run[0].blocks("T00")["archive_bytes"][0])
    archives = {data.archive(Place(i, 0), archive_bytes).tobytes() for i in (*range(5), *range(5))}  # type: ignore[union-attr]
    assert len(archives) == 1
    assert descriptors() == before + 2
    assert data.archive(Place(7, 0), 10) is None, "no such file"
    assert data.archive(Place(0, -5), 10) is None
    data.close()
    data.close()
    assert descriptors() == before
    assert data.starts(0) is None


def test_files_kept_open_are_those_used_last_in_the_process(
    file: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = with_data_files(file[0], 4)
    datafiles.close_kept()
    monkeypatch.setattr(datafiles, "_MAX_OPEN", 3)
    before = descriptors()
    several = [DataFiles(path) for _ in range(4)]
    for data in several:
        for i in range(4):
            data._file(i)
        assert descriptors() <= before + 3
    last = several[-1]
    assert sorted(last._opened) == [1, 2, 3]
    assert [data._opened for data in several[:-1]] == [{}, {}, {}]
    last._file(1)
    several[0]._file(0)
    assert sorted(last._opened) == [1, 3], "2 was used longest ago"
    in_use = last._file(1)
    assert datafiles.close_kept()
    assert not datafiles.close_kept()
    assert descriptors() == before + 1
    assert os.pread(in_use.descriptor, 1, 0), "a file that is being read stays open"


IN_THREADS = """
import concurrent.futures, os, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
from cusz_operator.reading import datafiles
path = Path(sys.argv[1])
content = (path / "data.0").read_bytes()
several = [datafiles.DataFiles(path) for _ in range(40)]
begin = content.index(datafiles._PREFIX)
expected = content[begin + len(datafiles._PREFIX) :][:500]
def read(number):
    found = several[number * 7 % 40].archive(datafiles.Place(number % 5, begin), 500)
    return found is not None and found.tobytes() == expected
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert all(pool.map(read, range(4000)))
print(sum("/data." in os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if int(n) > 2
          and os.path.exists(f"/proc/self/fd/{n}")))
"""


def test_many_files_in_threads_with_few_descriptors(file: tuple[Path, np.ndarray], python: Callable) -> None:
    """200 files are in use; as many as an eighth of the descriptor limit are kept open."""
    path = with_data_files(file[0], 5)
    for limit in (64, 256):
        assert int(python(IN_THREADS, path, str(limit)).stdout) == limit // 8


#: Prologue of programs that use up their descriptors.
FEW_DESCRIPTORS = """
import os, resource, sys
from pathlib import Path
import numpy as np
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import cusz_operator as cz
from cusz_operator.reading import datafiles

def take_all():
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return taken
"""

WITHOUT_ANY_LEFT = f"""{FEW_DESCRIPTORS}
several = [datafiles.DataFiles(Path(sys.argv[1])) for _ in range(9)]
for data in several[:8]:
    data._file(0)
take_all()
assert several[8]._file(0) is not None  # instead of others
assert several[0]._file(0) is not None
"""


def test_kept_files_make_room_if_there_are_no_descriptors(file: tuple[Path, np.ndarray], python: Callable) -> None:
    python(WITHOUT_ANY_LEFT, file[0])


FOR_ADIOS2 = f"""{FEW_DESCRIPTORS}
path = Path(sys.argv[1])
with cz.Reader(path) as run:
    expected = run[0].read("T00")
kept = [datafiles.DataFiles(path) for _ in range(5)]
for data in kept:
    data._file(0)
with cz.Reader(path) as run:
    take_all()
    assert np.array_equal(run[0].read("T00"), expected)  # its block table is read by ADIOS2
assert not any(data._opened for data in kept)
"""


def test_kept_files_make_room_for_adios2(file: tuple[Path, np.ndarray], python: Callable) -> None:
    python(FOR_ADIOS2, file[0])


AFTER_FORK = """
import os, signal, sys, threading
from pathlib import Path
from cusz_operator.reading import datafiles
data = datafiles.DataFiles(Path(sys.argv[1]))
kept = data._file(0).descriptor
held, done = threading.Event(), threading.Event()
def hold():
    with datafiles._kept.lock:
        held.set()
        done.wait()
threading.Thread(target=hold, daemon=True).start()
assert held.wait(20)
child = os.fork()
if child == 0:
    signal.alarm(20)  # if it waits for a thread that is not there
    same = data._file(0).descriptor == kept
    datafiles.close_kept()
    os._exit(0 if same else 1)
status = os.waitpid(child, 0)[1]
done.set()
assert status == 0, status
assert os.pread(kept, 1, 0), "what the child has closed is open here"
"""


def test_a_process_that_is_forked_while_a_thread_opens_a_file(file: tuple[Path, np.ndarray], python: Callable) -> None:
    python(AFTER_FORK, file[0], timeout=60)


MANY_READERS = """
import functools, resource, sys
import numpy as np
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
import cusz_operator as cz
same = functools.partial(np.array_equal, equal_nan=True)
def values(run):
    return [step.read(name) for step in run for name in ("v2", "not_on_last")]
path, expected, opened = sys.argv[1], None, []
with cz.Reader(path, cache_bytes=0) as run:
    expected = values(run)
for _ in range(2):
    for number in range(25):
        if len(opened) <= number:
            opened.append(cz.Reader(path, cache_bytes=0))
        assert all(map(same, values(opened[number]), expected))
"""


@pytest.mark.mpi
def test_many_readers_of_files_with_subfiles_and_few_descriptors(
    mpirun: Callable, python: Callable, tmp_path: Path
) -> None:
    """25 Readers, themselves and through ADIOS2, read 4 subfiles each with 128 descriptors; nothing is printed."""
    path = tmp_path / "run.bp"
    mpirun(4, "layer_write.py", path, "BP5,AggregationType=EveryoneWrites,NumSubFiles=4", timeout=60)
    assert len(list(path.glob("data.*"))) == 4
    done = python(MANY_READERS, path)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_reader_that_is_forgotten(file: tuple[Path, np.ndarray]) -> None:
    """Even if it is not closed, its descriptors are released."""
    path, _ = file
    cz.Reader(path)[0].read("T00")
    gc.collect()
    before = descriptors()
    for _ in range(3):
        cz.Reader(path)[0].read("T00")
        gc.collect()
    assert descriptors() == before


def test_the_damaged_table_of_another_variable(
    file: tuple[Path, np.ndarray], captured: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, x = file
    found = contents.Contents._found

    def damaged(self: cz.Reader, name: str, step: int) -> Any:
        if name == "T00":
            raise cusz_core.CorruptArchiveError("damaged")
        return found(self, name, step)

    monkeypatch.setattr(contents.Contents, "_found", damaged)
    with cz.Reader(path) as run:
        assert not support.violations(x, run[0].read("T01"), 1e-3)
        assert run[0].verify("T01") == 2
        with pytest.raises(cusz_core.CorruptArchiveError):
            run[0].read("T00")
    assert len(captured) == 2


@pytest.mark.mpi
def test_steps_appended_by_other_ranks(mpirun: Callable, tmp_path: Path) -> None:
    """A rank need not put every variable. ADIOS2 crashes if it reads such a file as a stream to find out which steps
    have a variable."""
    path, x = tmp_path / "run.bp", support.smooth((4, 5), support.F32)
    mpirun(3, "faults.py", "other ranks", path, "BP5", timeout=60)
    expected = {("a", 0): [0, 1, 2], ("b", 0): [0, 1, 2], ("a", 1): [1], ("b", 2): [1, 2], ("c", 2): [0]}
    with cz.Reader(path) as run:
        assert [step.variables for step in run] == [["a", "b"], ["a"], ["b", "c"]]
        assert [run[name].steps for name in "abc"] == [[0, 1], [0, 2], [2]]
        for (name, step), ranks in expected.items():
            assert run[step].blocks(name)["rank"].tolist() == ranks
            for rank in ranks:
                assert not support.violations(x, run[step].read(name)[4 * rank : 4 * rank + 4], 1e-3)
    found = [(block["variable"], block["step"], block["writer"]) for block in cz.inspect_bp(path, check=True)]
    assert found == [(*which, rank) for which, ranks in expected.items() for rank in ranks]
    steps = {variable.name: (variable.steps, variable.blocks) for variable in cz.inspect_variables(path)}
    assert steps == {"a": ((0, 1), 4), "b": ((0, 2), 5), "c": ((2,), 1)}


@pytest.mark.parametrize("how", ["closed", "killed", "by a program"])
def test_single_steps_are_as_those_of_a_stream(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results for a file that several programs wrote, and which must not be read as a stream."""
    path, x = tmp_path / "run.bp", support.smooth((20, 30), support.F32)
    with cz.Writer(path, eb=1e-3) as out:
        for n in range(3):
            with out.step():
                out.put("x", x[:5], x.shape)
                out.put("x", x[5:], x.shape, (5, 0))
                out.put("ids", np.arange(n, 50))
                if n != 1:
                    out.put("t", n / 2)
                    out.put("text", f"step {n}")
                    out.put("z", x[: n + 1] * 1j)
    if how == "killed":  # removes the line that closing the file adds
        lines = (path / "cusz.checks").read_bytes().splitlines(keepends=True)
        (path / "cusz.checks").write_bytes(b"".join(lines[:-1]))
    assert not datafiles.has_several_writers(path)
    if how == "by a program":
        with Program(path, mode="Append") as program, program.step():
            program.put("particles", x[0], shape=())
            program.put("u", x, eb=1e-2)
            program.put("t", 0.5)
    else:
        support.write_run(path, {"x": x, "t": 0.5}, eb=1e-2, append=True)
    assert datafiles.has_several_writers(path)

    def told() -> Any:
        blocks = list(cz.inspect_bp(path, check=True))
        some = list(cz.inspect_bp(path, steps=[-1, 1], variables=["*"]))
        with cz.Reader(path) as run:
            steps = [step.variables for step in run]
        return blocks, some, cz.inspect_variables(path), steps

    by_step = told()
    monkeypatch.setattr(walk, "has_several_writers", lambda _: False)
    assert by_step == told()
    assert len(by_step[3]) == 4
