"""The cost of a step with many ranks: counts of messages, their sizes, and memory (docs/benchmarks/nodes.md)."""

from __future__ import annotations

import json
import struct
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from many_ranks import OfMany

import cusz_core
import cusz_operator as cz
from cusz_operator.tables import checks
from cusz_operator.writing import agreement, together
from cusz_operator.writing.agreement import Description, Value
from cusz_operator.writing.together import Layout, Report, Together

pytest.importorskip("adios2")
pytest.importorskip("mpi4py")
from counted import KINDS
from counting import SINGLE, TREES, Call

SIZES = (2, 4, 8)
RANKS_OF_A_TABLE = 2


@pytest.fixture(scope="module")
def calls(mpirun: Callable, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, list[list[Call]]]]:
    """By number of ranks and kind, the calls of every rank in the last step."""
    folder = tmp_path_factory.mktemp("counted")
    found: dict[int, dict[str, list[list[Call]]]] = {}
    for ranks in SIZES:
        done = mpirun(ranks, "counted.py", folder, str(RANKS_OF_A_TABLE), *KINDS)
        for line in map(json.loads, done.stdout.splitlines()):
            of_ranks = [[Call(*call) for call in of_rank] for of_rank in line["calls"]]
            found.setdefault(ranks, {})[line["kind"]] = of_ranks
    return found


#: In order: bounds are agreed on, results are summed, rows of tables are gathered, and all ranks confirm that they have
#: put them, and then that ADIOS2 has written them.
OF_A_STEP = ["Allreduce", "Allreduce", "Gatherv", "Allreduce", "Iallreduce"]
CHECKSUMS = "Reduce"  # if several ranks put rows


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["same", "values", "overlap"])
def test_a_step_like_the_one_before_takes_a_few_reductions(kind: str, calls: dict) -> None:
    """Their number and sizes do not depend on the number of ranks."""
    for ranks in SIZES:
        for of_rank in calls[ranks][kind]:
            names = [call.name for call in of_rank]
            if kind == "overlap":  # agreeing comes last
                assert names[-1] == "Allreduce"
                names = [names[-1], *names[:-1]]
            assert names == (OF_A_STEP if ranks == RANKS_OF_A_TABLE else [*OF_A_STEP[:-1], CHECKSUMS, OF_A_STEP[-1]])
            for call in of_rank:
                assert call.name in TREES or call.ranks == RANKS_OF_A_TABLE
        sizes = {(call.name, call.sent) for of_rank in calls[ranks][kind] for call in of_rank}
        of_two = {(call.name, call.sent) for of_rank in calls[2][kind] for call in of_rank}
        assert {size for size in sizes if size[0] != CHECKSUMS} == of_two
        most = max(call.received for of_rank in calls[ranks][kind] for call in of_rank)
        assert most == max(call.received for of_rank in calls[2][kind] for call in of_rank)


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["psnr", "budget"])
def test_a_trial_takes_a_broadcast_and_a_reduction(kind: str, calls: dict) -> None:
    for ranks in SIZES:
        for of_rank in calls[ranks][kind]:
            names = [call.name for call in of_rank]
            before, after = names[:3], names[-(len(OF_A_STEP) - 1 + (ranks > RANKS_OF_A_TABLE)) :]
            trials = names[3 : -len(after)]
            assert before == ["Allreduce"] * 3  # other variables' bounds; that these are kept; sizes
            assert set(after) <= {*OF_A_STEP, CHECKSUMS}
            assert trials[-1] == "Bcast"
            assert trials[:-1] == ["Bcast", "Reduce"] * (len(trials) // 2)
            assert len(trials) >= 3
            assert all(call.sent <= 56 for call in of_rank[3 : -len(after)])


@pytest.mark.mpi
def test_blocks_that_move_cost_messages_by_the_square_of_a_logarithm(calls: dict) -> None:
    for ranks in SIZES:
        log = ranks.bit_length() - 1
        for of_rank in calls[ranks]["moving"]:
            assert all(call.name in (*TREES, *SINGLE) or call.ranks == RANKS_OF_A_TABLE for call in of_rank)
            exchanged = [call for call in of_rank if call.name in SINGLE]
            assert len(exchanged) == log * (log + 3) // 2
            of_trees = [call for call in of_rank if call.name in TREES]
            assert len(of_trees) <= 9
            row = 8 * (2 + 2 * 4)
            assert all(call.sent <= 64 * row for call in exchanged)


# ------------------------------------------------------------------------------------------------------- 100,000 ranks

MANY = 100_000
PUT = [f"v{i}" for i in range(5)]


def test_a_later_step_of_100000_ranks_builds_no_list_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor anything else of that length: rank 0 uses less than one byte of memory per rank."""
    monkeypatch.setattr(together, "RANKS_OF_A_TABLE", 8)
    parameters = cusz_core.Parameters(1e-3, "rel")
    place = np.array([[0, 0, 0]]), np.array([[4, 4, 4]])
    told = tuple(
        Description(name, "float32", "float32", (), (MANY * 4, 4, 4), parameters, None, *place) for name in PUT
    )
    ranges = np.tile([-1.0, 1.0, 64.0], (len(PUT), 1))
    rows = {name: np.ones((1, 17)) for name in PUT}
    all_ranks = Together(OfMany(MANY, []))
    for step in range(3):
        tracemalloc.start()
        agreed = all_ranks.end_step(Report(told, ranges, (Value("time", np.float64(step)),)), None, "step")
        totals, free = all_ranks.totals(agreed.layout, rows, {("v0", "lorenzo"): 1}, 1e12, None, "step")
        agreed.layout.gather(agreed.layout.in_one(rows))
        tables = agreed.layout.tables()
        all_ranks.add(agreed)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert agreed.bounds == dict.fromkeys(PUT, 2e-3)
        assert totals["v0"].blocks == MANY
        assert totals["v0"].predictors == {"lorenzo": MANY}
        assert [len(table) for table in tables.values()] == [8] * len(PUT)
        if step > 0:
            assert most < MANY, most
    assert isinstance(agreed.layout, Layout)
    assert agreement.bytes_needed(0, dict.fromkeys(PUT, MANY), agreed.arrays, MANY) < free


# -------------------------------------------------------------------------------------------- tables of several ranks


@pytest.mark.mpi
@pytest.mark.full
@pytest.mark.parametrize("ranks_of_a_table", ["1", "3"])
def test_several_ranks_put_rows_of_a_table(
    ranks_of_a_table: str, mpirun: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is the one that a single rank would put, with the checksum of the whole."""
    paths = {}
    for how_many in (ranks_of_a_table, "256"):
        monkeypatch.setenv("RANKS_OF_A_TABLE", how_many)
        paths[how_many] = [tmp_path / f"{how_many}_{engine}.bp" for engine in ("BP5", "BP4")]
        words = [word for path in paths[how_many] for word in (path, path.stem.split("_")[1])]
        mpirun(4, "layer_write.py", *words, timeout=60)
    several, one = paths.values()
    assert mpirun(2, "layer_read.py", *several, timeout=100).stdout.strip().endswith("read 2")
    for path, other in zip(several, one, strict=True):
        with cz.Reader(path) as run, cz.Reader(other) as expected:
            for step, expected_step in zip(run, expected, strict=True):
                assert step.variables == expected_step.variables
                for name in step.variables:
                    table, whole = step.blocks(name), expected_step.blocks(name)
                    table["seconds"] = whole["seconds"] = 0
                    assert table.tobytes() == whole.tobytes()
                    assert step.verify(name) == np.count_nonzero(whole["count"].all(axis=1))


@pytest.mark.mpi
def test_several_ranks_send_rows_of_a_table(
    start_ranks: Callable, together: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKS_OF_A_TABLE", "1")
    stream = tmp_path / "stream"
    writing = start_ranks(3, "layer_write.py", stream, "SST")
    together([writing, start_ranks(2, "layer_receive.py", stream, "Reader")])


# ------------------------------------------------------------------------------------------------ checksums of metadata


def grow(folder: Path, n_bytes: int) -> None:
    """Appends random bytes to stand-ins for ADIOS2's metadata files, and to mmd.0 a record of such bytes."""
    added = np.random.default_rng(n_bytes).bytes(n_bytes)
    for name, head in (("mmd.0", struct.pack("<QQ12x", 12, n_bytes)), ("md.0", b""), ("md.idx", b"")):
        with open(folder / name, "ab") as file:
            file.write(head + added)


def test_the_program_does_not_wait_for_checksums_of_much_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata added meanwhile is not included, and each line waits for the one before."""
    may_go_on = threading.Event()
    plain = checks._crc_of

    def slow(*arguments: Any) -> tuple[int, int]:
        assert may_go_on.wait(60)
        return plain(*arguments)

    monkeypatch.setattr(checks, "_crc_of", slow)
    recorder = checks.Recorder(tmp_path, kept_steps=0)
    grow(tmp_path, 400_000)
    recorder.record(0, {"U": 1})
    assert not (tmp_path / checks.CHECKS_FILE).read_bytes()
    grow(tmp_path, 100)
    may_go_on.set()
    recorder.record(1, {"U": 2})
    grow(tmp_path, 500_000)
    recorder.record(2, {"U": 3})
    recorder.record()
    recorder.close()
    assert checks.verify(tmp_path).tables == {(0, "U"): 1, (1, "U"): 2, (2, "U"): 3}
    lines = list(checks._lines(tmp_path / checks.CHECKS_FILE))
    assert [line["metadata"]["md.0"][0] for line in lines] == [400_000, 400_100, 900_100, 900_100]
    for line in lines:
        for name, (size, crc) in line["metadata"].items():
            assert plain(tmp_path / name, 0, 0, size) == (size, crc)


def test_checksums_end_where_metadata_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = checks.Recorder(tmp_path, kept_steps=0)
    grow(tmp_path, 500_000)
    recorder.record(0, {"U": 1})
    recorder._wait()

    def fail(*_: Any) -> tuple[int, int]:
        raise OSError("a disk error")

    grow(tmp_path, 500_000)
    with monkeypatch.context() as failing:
        failing.setattr(checks, "_crc_of", fail)
        recorder.record(1, {"U": 2})
        recorder._wait()
    grow(tmp_path, 10)
    recorder.record(2, {"U": 3})
    recorder.close()
    assert checks.verify(tmp_path).tables == {(0, "U"): 1}
