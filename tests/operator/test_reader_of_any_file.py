"""The Reader on files that no Writer wrote: the same values and boxes as plain ADIOS2."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support

pytest.importorskip("adios2")
import adios2
import uneven
from other_program import Program

from cusz_operator.reading import steps

NUMBERS = [*(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64"]
NUMBERS += ["complex64", "complex128"]


def plain(path: Path, name: str, step: int, start: Any = (), count: Any = ()) -> np.ndarray:
    """What ADIOS2 reads; `step` counts only steps that have the variable."""
    with adios2.FileReader(str(path)) as file:
        return file.read(name, start=list(start), count=list(count), step_selection=[step, 1])


def test_every_kind_of_variable(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    fields = {kind: np.arange(24).reshape(4, 6).astype(kind) for kind in NUMBERS}
    with Program(path, engine) as out:
        of_ranks = out.io.define_variable("of ranks", np.zeros(1, np.int32), [adios2.LocalValueDim], [], [])
        out.io.define_attribute("title", "a run")
        out.io.define_attribute("int32/unit", "m")
        for n in range(4):
            with out.step():
                for kind, field in fields.items():
                    out.put(kind, field)
                out.put("number", n * 0.5)
                out.put("text", f"step {n}")
                out.engine.put(of_ranks, np.array([n + 100], np.int32), adios2.Mode.Sync)
                for block in range(2):
                    out.put("local", np.full((2, 3), 10.0 * n + block), ())
                out.put("grows", np.arange(5.0 + n))
                if n in (1, 3):
                    out.put("rare", np.full(5, n, np.float32))
    with cz.Reader(path) as run:
        assert set(run.variables) == {*NUMBERS, "number", "text", "of ranks", "local", "grows", "rare"}
        for step in run:
            for kind, field in fields.items():
                assert (step.dtype(kind).name, step.shape(kind)) == (kind, (4, 6))
                assert step.read(kind).dtype == kind
                np.testing.assert_array_equal(step.read(kind), field)
                np.testing.assert_array_equal(step.read(kind, (1, 2), (2, 3)), field[1:3, 2:5])
                out_ = np.zeros((2, 3), kind)
                assert step.read(kind, (1, 2), (2, 3), out=out_) is out_
                np.testing.assert_array_equal(out_, field[1:3, 2:5])
            assert (step.shape("number"), step.read("number"), step.read("text")) == (
                (),
                0.5 * step.index,
                f"step {step.index}",
            )
            assert step.read("of ranks").tolist() == [step.index + 100]
            for block in range(2):
                np.testing.assert_array_equal(step.read("local", block=block), 10.0 * step.index + block)
            np.testing.assert_array_equal(step.read("grows"), np.arange(5.0 + step.index))
            assert step.value_range("grows") == (0, 4 + step.index)
            assert step.verify("float32") == 0
            assert ("rare" in step.variables) == (step.index in (1, 3))
        assert run["rare"].steps == [1, 3]
        assert run["rare"].read().tolist() == [3] * 5
        assert run["rare"].read(step=1).tolist() == [1] * 5
        assert run["int32"].attributes == {"unit": "m"}
        assert [str(run[name].dtype) for name in ("text", "number")] == ["object", "float64"]
        assert run["grows"].shape == (8,)
        shown = repr(run)
        for part in (
            "4 steps",
            "text: string, one value",
            "rare: float, (5,), at steps 1 to 3, 2 steps, 1 block, not compressed by cusz",
            "local: double, blocks without a global shape",
        ):
            assert part in shown
        with pytest.raises(cusz_core.ParameterError, match="no variable 'rare' at step 0"):
            run[0].read("rare")
        with pytest.raises(cusz_core.ParameterError, match="no variable 'rarer'; it has complex128, "):
            run["rarer"]
        with pytest.raises(cusz_core.ParameterError, match="'local' has no global shape"):
            run[0].read("local")
        with pytest.raises(cusz_core.ParameterError, match="block is 2; variable 'local' has 2 at step 0"):
            run[0].read("local", block=2)
    assert repr(run).endswith("closed>")


@pytest.mark.parametrize(
    ("shape", "grid", "settings"),
    [
        ((4000,), (4,), {}),
        ((33, 47), (2, 3), {"mode": "rel"}),
        ((17, 20, 33), (2, 2, 3), {"predictor": "spline"}),
        ((5, 9, 8, 21), (1, 3, 1, 2), {"fill": -9.0}),
        ((2, 3, 4, 5, 6, 7), (1, 1, 2, 1, 3, 1), {}),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_boxes_of_what_the_plugin_compressed(
    dtype: Any,
    shape: Any,
    grid: Any,
    settings: dict[str, Any],
    engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "_BYTES_PER_TASK", 1000)  # threads also for small blocks
    monkeypatch.setattr(steps, "_MIN_MEAN_BYTES", 0)
    path = tmp_path / "run.bp"
    x = support.smooth((int(np.prod(shape)),), np.dtype(dtype)).reshape(shape)
    x.reshape(-1)[::29] = np.nan
    with Program(path, engine) as out:
        for n in range(2):
            with out.step():
                for start, block in blocks_of(x, grid):
                    out.put("u", block + n, shape, start, 1e-3, **settings)
    with cz.Reader(path, threads=2) as run:
        assert "|error| <= " in repr(run["u"])
        for step in run:
            whole = step.read("u")
            assert support.same_bits(whole, plain(path, "u", step.index))
            for corner, count in support.boxes(shape, step.index, 12):
                box = step.read("u", corner, count)
                assert box.shape == tuple(count)
                assert support.same_bits(box, support.part(whole, corner, count))
            assert step.verify("u") == np.prod(grid)
            table = step.blocks("u")
            assert table["start"].tolist() == [list(start) for start, _ in blocks_of(x, grid)]
            assert (table["raw_bytes"].sum(), table["archive_bytes"].max()) == (x.nbytes, -1)
            every = step.read_blocks("u")
            assert len(every) == np.prod(grid)
            for number, (first, block) in enumerate(blocks_of(x, grid)):
                read = step.read("u", block=number)
                assert support.same_bits(every[number], read)
                assert support.same_bits(read, support.part(whole, tuple(first), block.shape))


def blocks_of(x: np.ndarray, grid: Any) -> list[tuple[list[int], np.ndarray]]:
    cuts = [np.array_split(np.arange(n), parts) for n, parts in zip(x.shape, grid, strict=True)]
    return [
        ([int(cuts[axis][i][0]) for axis, i in enumerate(at)], x[np.ix_(*(cuts[axis][i] for axis, i in enumerate(at)))])
        for at in np.ndindex(*grid)
    ]


@pytest.mark.parametrize(
    ("kib", "n_blocks", "n_tasks"), [(2, 400, 0), (2, 600, 2), (64, 8, 0), (64, 40, 3), (1024, 2, 2)]
)
@pytest.mark.parametrize("by_writer", [True, False])
def test_threads_where_they_pay(
    by_writer: bool, kib: int, n_blocks: int, n_tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few blocks are decoded without threads: starting them would take longer than decoding."""
    given: list[Any] = []

    class Pool(concurrent.futures.ThreadPoolExecutor):
        def submit(self, *task: Any, **options: Any) -> Any:
            given.append(task)
            return super().submit(*task, **options)

    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", Pool)
    path = tmp_path / "run.bp"
    x = support.smooth((2 * kib * n_blocks, 128), support.F32)
    settings = {"predictor": "spline"}
    with cz.Writer(path, eb=1e-3, **settings) if by_writer else Program(path) as out, out.step():
        for start, block in blocks_of(x, (n_blocks, 1)):
            out.put("u", block, x.shape, start, *(() if by_writer else (1e-3,)), **({} if by_writer else settings))
    with cz.Reader(path, threads=2) as run:
        whole = run[0].read("u")
        assert support.same_bits(whole, plain(path, "u", 0))
        assert len(given) == n_tasks
        assert support.same_bits(run[0].read("u", level=1), np.ascontiguousarray(whole[::2, ::2]))
        # Through ADIOS2, blocks are read one by one, and so are levels of small ones.
        assert len(given) == n_tasks * (1 + (by_writer and kib >= 32))
    data = bytearray((path / "data.0").read_bytes())
    archive = cusz_core.compress(block, 1e-3, **settings)  # the last block's
    data[data.index(archive) + len(archive) - 3] ^= 0x40
    (path / "data.0").write_bytes(data)
    with (
        cz.Reader(path, threads=2) as run,
        pytest.raises(cusz_core.CorruptArchiveError, match=rf"variable 'u', step 0, the block at \({start[0]}, 0\)"),
    ):
        run[0].read("u")


def test_blocks_of_which_only_some_are_archives(tmp_path: Path) -> None:
    """Rows 0 to 9 are in an archive, 20 to 24 in no block. (BP5 cannot remove an operator.)"""
    path = tmp_path / "run.bp"
    x = support.smooth((30, 40), support.F32)
    with Program(path, "BP4") as out, out.step():
        out.put("u", x[:10], x.shape, eb=1e-3)
        out.variables["u"].remove_operations()
        out.put("u", x[10:20], x.shape, (10, 0))
        out.put("u", x[25:], x.shape, (25, 0))
    with cz.Reader(path) as run:
        whole = run[0].read("u", fill=0)
        assert support.same_bits(whole, plain(path, "u", 0))
        assert not support.violations(x[:10], whole[:10], 1e-3)
        assert support.same_bits(whole[10:20], x[10:20])
        assert (whole[20:25] == 0).all()
        assert support.same_bits(whole[25:], x[25:])
        box = run[0].read("u", (5, 3), (10, 20))
        assert support.same_bits(box, np.ascontiguousarray(whole[5:15, 3:23]))
    with cz.Reader(path) as run:  # the first block that is read is an archive
        assert support.same_bits(run[0].read("u", (0, 3), (10, 20)), np.ascontiguousarray(whole[:10, 3:23]))
        assert run[0].verify("u") == 1


def test_blocks_that_overlap(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    x = support.smooth((30, 40), support.F32)
    with Program(path, engine) as out, out.step():
        out.put("u", x[:20], x.shape, eb=1e-3)
        out.put("u", x[18:], x.shape, (18, 0))
    with cz.Reader(path) as run:
        assert not support.violations(x, run[0].read("u"), 1e-3)
        # Where both blocks have a value, it depends on ADIOS2's threads which one is read.
        box = run[0].read("u", (15, 3), (10, 20))
        assert not support.violations(np.ascontiguousarray(x[15:25, 3:23]), box, 1e-3)


def test_a_raw_block_and_empty_ones(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    x = support.random_bits((8, 50), support.F32)
    with Program(path, engine) as out, out.step():
        out.put("u", x, eb=0.0)
        out.put("nothing", x[:0], eb=1e-3)
    with cz.Reader(path) as run:
        assert support.same_bits(run[0].read("u"), x)
        assert support.same_bits(run[0].read("u", (3, 7), (2, 9)), np.ascontiguousarray(x[3:5, 7:16]))
        assert run[0].read("nothing").shape == (0, 50)
        assert run[0].read("u", (3, 7), (0, 9)).shape == (0, 9)


def test_a_damaged_archive_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    x = support.smooth((64, 64), support.F32)
    with Program(path) as out, out.step():
        out.put("u", x, eb=1e-3)
    data = path / "data.0"
    whole = data.read_bytes()
    outcomes: set[Any] = set()
    for at in range(60, len(whole), len(whole) // 50):  # ADIOS2's own record of the operator comes before
        data.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with cz.Reader(path) as run:
            try:
                outcomes.add(support.violations(x, run[0].read("u"), 1e-3) == [])
            except cusz_core.CuszError as error:
                outcomes.add((type(error), "variable 'u'" in str(error)))
    assert (cusz_core.CorruptArchiveError, True) in outcomes
    assert False not in outcomes
    assert all(outcome is True or outcome[1] for outcome in outcomes)


def test_threads_may_read_from_one_reader(tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    x = support.smooth((40, 40), support.F32)
    with Program(path) as out:
        for step in range(4):
            with out.step():
                for name, eb in (("u", 1e-3), ("v", None)):
                    for start, block in blocks_of(x + step, (2, 2)):
                        out.put(name, block, x.shape, start, eb)
    with cz.Reader(path, threads=1) as run:
        work = [(n % 4, "uv"[n % 2], (n % 20, n % 17)) for n in range(200)]

        def right(task: tuple[int, str, tuple[int, int]]) -> bool:
            step, name, start = task
            box = run[step].read(name, start, (9, 11))
            expected = (x + step)[start[0] : start[0] + 9, start[1] : start[1] + 11]
            return not support.violations(np.ascontiguousarray(expected), box, 1e-3 if name == "u" else 0.0)

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert all(pool.map(right, work))


@pytest.mark.parametrize("rows", [(20, 16, 12), (3, 9, 5), (7, 7, 7)])
@pytest.mark.parametrize("eb", [None, 1e-3])
def test_arrays_that_are_joined_of_blocks(eb: float | None, rows: tuple[int, ...], engine: str, tmp_path: Path) -> None:
    """Their length differs between steps: ADIOS2's BP5 reader reports that of the last step for all of them."""
    path = tmp_path / "run.bp"
    fields = [support.smooth((n, 50), support.F64) for n in rows]
    with Program(path, engine) as out:
        for name, shape in (("tall", [adios2.JoinedDim, 50]), ("wide", [50, adios2.JoinedDim])):
            variable = out.io.define_variable(name, np.zeros(1), shape, [], [1, 1])
            if eb is not None:
                variable.add_operation_string("plugin", cz.operator_parameters(eb))
        for x in fields:
            with out.step():
                out.put("part", x[:2], (30, 50))  # the rest is in no block
                for name, parts in (("tall", (x[:2], x[2:])), ("wide", (x[:2].T, x[2:].T))):
                    variable = out.io.inquire_variable(name)
                    for part in map(np.ascontiguousarray, parts):
                        variable.set_selection([[], list(part.shape)])
                        out.engine.put(variable, part, adios2.Mode.Sync)
    with cz.Reader(path) as run:
        for step, x in zip(run, fields, strict=True):
            assert step.shape("part") == (30, 50)
            for name, expected in (("tall", x), ("wide", x.T)):
                assert step.shape(name) == expected.shape
                assert step.is_covered(name)
                assert support.violations(np.ascontiguousarray(expected), step.read(name), eb or 0.0) == []


@pytest.mark.mpi
def test_arrays_that_are_joined_of_the_blocks_of_several_ranks(mpirun: Callable, tmp_path: Path) -> None:
    """At a step at which the first rank puts nothing, and if the last step has no block."""
    path = tmp_path / "run.bp"
    mpirun(2, "uneven.py", path, "BP5")
    n_blocks = 0
    with cz.Reader(path) as run:
        for name in uneven.JOINED:
            for step in run:
                blocks = [*uneven.blocks(name, step.index, 0), *uneven.blocks(name, step.index, 1)]
                assert (name in step) == bool(blocks)
                if blocks:
                    np.testing.assert_array_equal(step.read(name), np.concatenate(blocks))
                n_blocks += len(blocks)
    found = [block for block in cz.inspect_bp(path) if block["variable"] in uneven.JOINED]
    assert len(found) == n_blocks
    assert {block["operator"] for block in found} == {"cusz", ""}  # one has no rows
    assert not any("error" in block for block in found)


@pytest.mark.mpi
def test_one_value_of_each_rank_that_has_one(engine: str, mpirun: Callable, tmp_path: Path) -> None:
    """BP4 gives the last step's shape for every step, and puts values together."""
    path = tmp_path / "run.bp"
    mpirun(2, "uneven.py", path, engine)
    with cz.Reader(path) as run:
        found = [step.read("of ranks") for step in run]
    for values, expected in zip(found, uneven.VALUES, strict=True):
        there = values[~np.isnan(values)] if engine == "BP5" else values
        assert there.tolist() == [value for value in expected if value is not None]


@pytest.mark.parametrize("eb", [None, 0.0])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_blocks_without_a_place_of_8_bits(dtype: type, eb: float | None, engine: str, tmp_path: Path) -> None:
    """ADIOS2's Python interface cannot list them if their values are not valid characters."""
    path = tmp_path / "run.bp"
    blocks = {
        step: [np.full((2 + n, 3 + step), 200 + 10 * step + n).astype(dtype) for n in range(3)] for step in (0, 2)
    }
    with Program(path, engine) as out:
        for step in range(3):
            with out.step():
                out.put("x", np.zeros(5))
                for block in blocks.get(step, []):
                    out.put("flags", block, (), eb=eb)
    with cz.Reader(path) as run:
        for step, expected in blocks.items():
            got = run[step].read_blocks("flags")
            assert [block.shape for block in got] == [block.shape for block in expected]
            assert all(map(np.array_equal, got, expected))
            np.testing.assert_array_equal(run[step].read("flags", block=2), expected[2])
            assert run[step].blocks("flags")["count"].tolist() == [list(block.shape) for block in expected]


def test_long_names(engine: str, tmp_path: Path) -> None:
    """ADIOS2 does not limit them; a Writer accepts only shorter ones."""
    x = support.smooth((30, 40), support.F32)
    names = ["ü" * 512, "v" * 1023, "v" * 1024, "v" * 3000]
    with Program(tmp_path / "run.bp", engine) as out, out.step():
        for n, name in enumerate(names):
            out.put(name, x + np.float32(n), eb=1e-3)
    with cz.Reader(tmp_path / "run.bp") as run:
        for n, name in enumerate(names):
            assert support.violations(x + np.float32(n), run[0].read(name), 1e-3) == []
    listed = {block["variable"]: block["kind"] for block in cz.inspect_bp(tmp_path / "run.bp")}
    assert listed == dict.fromkeys(names, "tiled")


@pytest.mark.parametrize("plainly", [True, False])
def test_threads_that_read_files_with_variables_of_one_name(engine: str, plainly: bool, tmp_path: Path) -> None:
    """The plugin hands a block only to the Reader that asked for it, never one that another thread wants decoded."""
    fields = [np.linspace(0, 1, 3000), np.linspace(0, 1, 3000)[::-1].copy()]
    for i, x in enumerate(fields):
        with Program(tmp_path / f"{i}.bp", engine) as out, out.step():
            out.put("u", x, x.shape if i == 0 else (), eb=1e-3)
    done = threading.Event()

    def wrong(read: Callable[[], np.ndarray], x: np.ndarray, at_most: int) -> int:
        found = 0
        for _ in range(at_most):
            found += bool(support.violations(x, read(), 1e-3))
            if done.is_set():
                break
        done.set()
        return found

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with (
            cz.Reader(tmp_path / "0.bp", cache_bytes=0) as run,
            cz.Reader(tmp_path / "1.bp", cache_bytes=0) as other,
            adios2.FileReader(str(tmp_path / "1.bp")) as file,
            concurrent.futures.ThreadPoolExecutor(2) as pool,
        ):
            decoded = (lambda: file.read("u", block_id=0)) if plainly else (lambda: other[0].read_blocks("u")[0])
            captured = pool.submit(wrong, lambda: run[0].read("u"), fields[0], 1000)
            assert pool.submit(wrong, decoded, fields[1], 10000).result() == 0
            assert captured.result() == 0
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.mpi
@pytest.mark.parametrize("eb", [0.0, 1e-3])
def test_a_stream_of_another_program(eb: float, tmp_path: Path, start_ranks: Callable, together: Callable) -> None:
    x = support.smooth((20, 30), support.F32)
    np.save(tmp_path / "x.npy", x)
    # Not in a thread, because ADIOS2 holds the interpreter while it waits for the stream.
    writing = start_ranks(1, "other_program.py", tmp_path / "stream", tmp_path / "x.npy", str(eb))
    received = 0
    with cz.Reader(tmp_path / "stream", engine="SST") as run:
        assert "between steps" in repr(run)
        for step in run:
            y = x + np.float32(received)
            assert step.variables == ["number", "u"]
            assert step.read("number") == received / 2
            assert not support.violations(y, step.read("u"), eb)
            assert not support.violations(support.part(y, (5, 3), (10, 20)), run["u"].read((5, 3), (10, 20)), eb)
            assert ("not compressed" in repr(run)) == (eb == 0)
            received += 1
    assert received == 3
    together([writing])


@pytest.mark.mpi
def test_a_reader_that_joins_a_stream_late(tmp_path: Path, start_ranks: Callable, together: Callable) -> None:
    """By default, ADIOS2 gives a process that reads alone a later step's values of all writing ranks but the first."""
    writing = start_ranks(3, "other_stream.py", tmp_path / "stream")
    with cz.Reader(tmp_path / "stream", engine="SST") as first:
        steps = iter(first)
        next(steps)
        with cz.Reader(tmp_path / "stream", engine="SST") as late:
            (tmp_path / "joined").touch()
            for step in late:
                assert {value for name in "xy" for value in step.read(name)} == {step.index}
        assert [each.index for each in steps] == list(range(1, step.index + 1))
    together([writing])


@pytest.mark.mpi
def test_the_writer_of_a_stream_is_killed(tmp_path: Path, start_ranks: Callable) -> None:
    writing = start_ranks(1, "other_stream.py", tmp_path / "stream")
    said = r"the stream .*stream' breaks off: its writer was killed, or cannot be reached \(ADIOS2 says OtherError\)"
    with cz.Reader(tmp_path / "stream", engine="SST") as run, pytest.raises(cusz_core.CuszError, match=said):
        [writing.terminate() for _ in run]


@pytest.mark.mpi
def test_what_a_killed_writer_has_left_of_a_stream(tmp_path: Path, start_ranks: Callable, together: Callable) -> None:
    """ADIOS2 fails at once, and waits only where there is nothing."""
    stream, left = tmp_path / "stream", tmp_path / "stream.sst"
    with cz.Writer(stream, eb=1, engine="SST", parameters={"RendezvousReaderCount": 0}):
        contact = left.read_bytes()
    left.write_bytes(contact)
    with pytest.raises(cusz_core.CuszError, match=r"did not find active Writer contact info in file .*stream\.sst"):
        cz.Reader(stream, engine="SST", parameters={"opentimeoutsecs": 1})
    (tmp_path / "joined").touch()
    writing = start_ranks(1, "other_stream.py", stream)
    with cz.Reader(stream, engine="SST") as run:
        assert [step.index for step in run] == [0]
    together([writing])


@pytest.mark.mpi
def test_a_loop_over_a_stream_goes_on_where_another_was_left(
    tmp_path: Path, start_ranks: Callable, together: Callable
) -> None:
    writing = start_ranks(1, "other_stream.py", tmp_path / "stream")
    with cz.Reader(tmp_path / "stream", engine="SST") as run:
        for step in run:
            if step.index == 1:
                break
        with pytest.raises(cusz_core.ParameterError, match=r"no step of the stream .* is open"):
            step.read("x")
        (tmp_path / "joined").touch()
        received = []
        for step in run:
            received.append(step.index)
            assert set(run["x"].read(step=step.index)) == set(run["x"].read()) == {step.index}
            with pytest.raises(cusz_core.ParameterError, match="no variable 'x' at step 0"):
                run["x"].read(step=0)
    assert received == list(range(2, step.index + 1))
    together([writing])


def test_a_column_major_program(programs: Path, program: Callable, tmp_path: Path) -> None:
    """Python readers see its shapes reversed; its archives have either order of axes."""
    for engine in ("BP5", "BP4"):
        program([programs / "blocks", "column", tmp_path, engine])
        path = tmp_path / f"column_{engine}.bp"
        with cz.Reader(path) as run:
            for name in run[0].variables:
                whole = plain(path, name, 0)
                assert support.same_bits(run[0].read(name), whole)
                for start, count in support.boxes(whole.shape, 0, 8):
                    assert support.same_bits(run[0].read(name, start, count), support.part(whole, start, count))


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_an_array_whose_number_of_dimensions_changes(engine: Any, dtype: Any, tmp_path: Path) -> None:
    """From a BP5 file, ADIOS2 would return zeros or end the process."""
    x = np.arange(600, dtype=dtype)
    for mode, given in (("Write", x), ("Append", x.reshape(20, 30))):
        with Program(tmp_path / "run.bp", engine, mode=mode) as out, out.step():
            out.put("x", given)
            out.put("y", x)
    with cz.Reader(tmp_path / "run.bp") as run:
        for step in run:
            assert np.array_equal(step.read("y"), x)
            if engine == "BP4":
                assert np.array_equal(step.read("x").ravel(), x)
            else:
                with pytest.raises(
                    cusz_core.UnsupportedError, match=r"'x' of .* has 1 and 2 dimensions at different steps"
                ):
                    step.read("x")
    (of_x, of_y) = cz.compare_runs(tmp_path / "run.bp", tmp_path / "run.bp", steps=[0])
    assert ("dimensions at different steps" in of_x.problem) == (engine == "BP5")
    assert not of_y.problem
