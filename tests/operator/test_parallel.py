"""Ranks write, other numbers of ranks read: whole variables and boxes, in files and streams, within the bound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

WRITERS = (1, 2, 4)


@pytest.mark.quick(1)
@pytest.mark.parametrize("readers", [1, 2, 3])
def test_any_number_of_ranks_reads_what_any_number_wrote(
    readers: int, written: Callable[[int], Path], mpirun: Callable
) -> None:
    sources = []
    for ranks in WRITERS:
        for file in sorted(written(ranks).glob("*.bp")):
            engine, stats_level, _ = file.name.split("_")
            sources.append(f"{'stream' if stats_level == '0' else 'random'},{engine},{file}")
    assert len(sources) == 4 * len(WRITERS)
    done = mpirun(readers, "read.py", *sources)
    assert done.stdout.count("selections") == len(sources)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("writers", "readers"), [(2, 1), (1, 3)])
def test_staged_through_sst(
    writers: int, readers: int, tmp_path: Path, start_ranks: Callable, together: Callable
) -> None:
    stream = tmp_path / "SST_1_Sync.bp"
    writing = start_ranks(writers, "write.py", tmp_path, "SST,1,Sync")
    reading = start_ranks(readers, "read.py", f"stream,SST,{stream}")
    assert "selections" in together([writing, reading])[1]


def test_a_wrong_value_would_be_found(written: Callable[[int], Path], mpirun: Callable) -> None:
    """Tests the test, with a bound a hundred times tighter than the one the data were written with."""
    file = written(2) / "BP5_0_Sync.bp"
    done = mpirun(1, "read.py", f"stream,BP5,{file}", check=False, env={"CUSZ_TEST_TIGHTER": "0.01"})
    assert done.returncode != 0
    assert "differs by" in done.stderr
