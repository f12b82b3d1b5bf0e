"""What a killed program or a full disk leaves at the end of files: what a Writer that appends cuts off, and readers."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_operator as cz
from cusz_core.errors import CorruptArchiveError, CuszError
from cusz_operator.reading.datafiles import DataFiles
from cusz_operator.tables import checks, metadata
from cusz_operator.writing import output

pytest.importorskip("adios2")
from other_program import Program

FIELD = np.linspace(0, 1, 600, dtype=np.float32).reshape(20, 30)
STEPS = 4
RECORD_BYTES = {"BP5": 41, "BP4": 64}  # of the index, for a step of one rank


@pytest.fixture(params=[True, False], ids=["", "without checksums"])
def path(request: pytest.FixtureRequest, engine: str, tmp_path: Path) -> Path:
    """A file of STEPS steps, of which the third brings a new variable."""
    path = tmp_path / "run.bp"
    write(path, range(STEPS), engine)
    if not request.param:
        (path / "cusz.checks").unlink()
    return path


def write(path: Path, values: Sequence[int], engine: Any = "BP5", **options: Any) -> None:
    with cz.Writer(path, eb=1e-3, engine=engine, **options) as out:
        for n in values:
            with out.step():
                out.put("u", FIELD + n)
                out.put("n", n)
                if n >= 2:
                    out.put("v", FIELD)


def steps(path: Path) -> list[int]:
    """The steps by the numbers that were written with them; their values are right."""
    with cz.Reader(path) as run:
        found = [int(step.read("n")) for step in run]
        for step, n in zip(run, found, strict=True):
            assert np.abs(step.read("u") - (FIELD + np.float32(n))).max() <= 1.01e-3
    return found


def size(file: Path) -> int:
    return file.stat().st_size


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def append_part(file: Path, begin: int, n: int) -> None:
    """Appends some of a file's bytes to it."""
    content = file.read_bytes()
    file.write_bytes(content + content[begin : begin + n])


@pytest.mark.parametrize("n", [1, 7, 12, -1])
def test_a_part_of_a_record_at_the_end_of_the_index(n: int, engine: Any, path: Path) -> None:
    """ADIOS2 would append behind it, and find nothing there, or nothing at all."""
    record = RECORD_BYTES[engine]
    append_part(path / "md.idx", size(path / "md.idx") - record, n % record)
    assert steps(path) == list(range(STEPS))
    for more in (1, 2):
        write(path, range(STEPS, STEPS + 2), engine, append=True)
        assert steps(path) == [*range(STEPS), *[STEPS, STEPS + 1] * more]


@pytest.mark.parametrize("n", [0, 7, -1])
def test_a_last_step_that_the_index_has_in_part(n: int, engine: Any, tmp_path: Path) -> None:
    """Its metadata and its data are there."""
    path = tmp_path / "run.bp"
    write(path, range(STEPS + 1), engine)
    (path / "cusz.checks").unlink()
    os.truncate(path / "md.idx", size(path / "md.idx") - RECORD_BYTES[engine] + n % RECORD_BYTES[engine])
    with open(path / "md.0", "ab") as file:
        file.write(bytes(100))
    write(path, [7], engine, append=True)
    assert steps(path) == [*range(STEPS), 7]


@pytest.mark.parametrize("n", [7, -1])
def test_no_whole_record_in_the_index(n: int, engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    write(path, [0], engine)
    (path / "cusz.checks").unlink()
    os.truncate(path / "md.idx", 64 + n if n > 0 else size(path / "md.idx") + n)
    with pytest.warns(match="no complete step to append to"):
        write(path, [1], engine, append=True)
    assert steps(path) == [1]


@pytest.mark.parametrize("engine", ["BP5"], indirect=True)
@pytest.mark.parametrize("n", [4, 8, 16, 24, 100, -1])
def test_a_part_of_a_format(n: int, path: Path) -> None:
    """ADIOS2 writes a record of mmd.0 in four writes, and crashes when it reads a part of one."""
    formats, whole = path / "mmd.0", size(path / "mmd.0")
    first = 16 + 12 + int.from_bytes(formats.read_bytes()[8:16], "little")
    append_part(formats, 0, n % first)
    reads: list[Callable[[Path], object]] = [cz.Reader, cz.inspect_bp, cz.inspect_variables, cz.check]
    for read in reads:
        with pytest.raises(CorruptArchiveError, match=rf"repair\(path\) .* truncating mmd.0 to {whole} bytes"):
            read(path)
    truncated = shutil.copytree(path, path.with_name("truncated.bp"))
    os.truncate(truncated / "mmd.0", whole)
    assert steps(truncated) == list(range(STEPS))
    for more in (1, 2):
        write(path, range(STEPS, STEPS + 2), append=True)
        assert steps(path) == [*range(STEPS), *[STEPS, STEPS + 1] * more]


@pytest.mark.parametrize("engine", ["BP5"], indirect=True)
@pytest.mark.parametrize("n", [4, 8, 16, 24, 40])
@pytest.mark.parametrize("name", ["mmd.0", "md.idx"])
def test_records_behind_a_part_of_one(name: str, n: int, path: Path) -> None:
    """As ADIOS2 alone appends them: a Writer does not cut off what may be of use to someone."""
    begin = size(path / name) - RECORD_BYTES["BP5"] if name == "md.idx" else 0
    append_part(path / name, begin, n)
    append_part(path / name, begin, 1 << 20)
    before = contents(path)
    with pytest.raises(CorruptArchiveError, match=rf"{name} is damaged: there is no record at byte \d+"):
        write(path, [5], append=True)
    assert contents(path) == before


def test_data_that_are_missing(engine: Any, tmp_path: Path) -> None:
    """As after a node has lost its power, or in a copy made meanwhile: ADIOS2 would wait for them for ever."""
    path, ends = tmp_path / "run.bp", []
    with cz.Writer(path, eb=1e-3, engine=engine) as out:
        for n in range(STEPS):
            with out.step():
                out.put("u", FIELD + n)
                out.put("i", np.arange(600), lossless="none")
                out.put("n", n)
            ends.append(size(path / "data.0"))
    lines = (path / "cusz.checks").read_bytes().splitlines(keepends=True)
    (path / "cusz.checks").write_bytes(b"".join(lines[:-1]))  # the file was not closed
    os.truncate(path / "data.0", ends[2] - 1)
    why = rf"data\.0 has {ends[2] - 1} bytes, and the data of step 2 end at {ends[2]}"
    with cz.Reader(path) as run:
        assert [int(step.read("n")) for step in run] == list(range(STEPS))
        for step in run:
            for name in ("u", "i"):
                with pytest.raises(CorruptArchiveError, match=why) if step.index >= 2 else contextlib.nullcontext():
                    step.read(name)
        assert "data.0" in str(run)
    before = contents(path)
    reads: list[Callable[[Path], object]] = [cz.inspect_bp, cz.inspect_variables, cz.check, cz.repair]
    for read in (*reads, lambda path: write(path, [5], engine, append=True)):
        with pytest.raises(CorruptArchiveError, match=why):
            read(path)
    assert contents(path) == before
    if engine == "BP5":
        for kept in (3, -2):
            with pytest.raises(CorruptArchiveError, match="appends with AppendAfterSteps = 2 drops"):
                write(path, [5], append=True, parameters={"AppendAfterSteps": kept})
        write(path, [5], append=True, parameters={"AppendAfterSteps": 2})
        assert steps(path) == [0, 1, 5]


def test_data_that_are_missing_from_one_of_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sizes are recorded only when the file is closed, so which steps are affected is not known."""
    monkeypatch.setattr(checks, "_FEW_FILES", 0)
    path = tmp_path / "run.bp"
    write(path, range(STEPS))
    assert (path / "cusz.checks").read_bytes().count(b'"data"') == 1
    assert steps(path) == list(range(STEPS))
    os.truncate(path / "data.0", size(path / "data.0") - 1)
    with cz.Reader(path) as run, pytest.raises(CorruptArchiveError, match="and the data of the last step end at"):
        run[0].read("u")


@contextlib.contextmanager
def files_of_at_most(n: int) -> Iterator[None]:
    """As on a full disk, what would make a file longer cannot be written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_is_full_when_a_writer_appends(tmp_path: Path) -> None:
    """Checksums of earlier steps stay."""
    path = tmp_path / "run.bp"
    write(path, range(STEPS))
    before = contents(path)
    with (
        files_of_at_most(size(path / "md.idx")),
        pytest.raises(CuszError, match=r"File too large|errno = 27"),
    ):
        write(path, [STEPS], append=True)
    assert contents(path)["cusz.checks"].startswith(before["cusz.checks"])
    assert steps(path) == list(range(STEPS))
    with open(path / "md.0", "ab") as file:
        file.write(bytes(100))
    with files_of_at_most(0):
        cz.repair(path)
    assert contents(path)["md.0"] == before["md.0"]
    write(path, [STEPS], append=True)
    assert steps(path) == list(range(STEPS + 1))


class Killed(BaseException):
    pass


@pytest.mark.parametrize("kept", [0, 2, -2])
@pytest.mark.parametrize("kill", range(6))
def test_a_program_that_is_killed_while_it_drops_steps(
    kill: int, kept: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is left can be read and appended to, before any file is cut and before ADIOS2 opens them."""
    path, calls = tmp_path / "run.bp", 0
    write(path, range(STEPS))
    starts = DataFiles(path).starts(kept % (STEPS + 1))
    assert starts is not None

    def count(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            if calls == kill:
                raise Killed
            calls += 1
            return real(*arguments, **options)

        return counted

    with monkeypatch.context() as patch, pytest.raises(Killed) if kill < 5 else contextlib.nullcontext():
        patch.setattr(os, "truncate", count(os.truncate))
        patch.setattr(os, "replace", count(os.replace))
        patch.setattr(output.Output, "open", count(output.Output.open))
        write(path, [7], append=True, parameters={"AppendAfterSteps": kept})
    assert calls == kill  # checksums, index, metadata, data; then ADIOS2
    left = list(range(kept % (STEPS + 1) if kill >= 2 else STEPS)) + [7] * (kill == 5)
    assert steps(path) == left
    assert kill != 4 or size(path / "data.0") == starts[1][0]
    with pytest.warns(match="begun anew") if not left else contextlib.nullcontext():
        write(path, [8], append=True)
    assert steps(path) == [*left, 8]


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.parametrize("aggregation", ["TwoLevelShm", "EveryoneWrites"])
@pytest.mark.parametrize("kept", [1, 3])
def test_ranks_that_drop_steps(kept: int, aggregation: str, mpirun: Callable, tmp_path: Path) -> None:
    mpirun(3, "drop_steps.py", tmp_path / "run.bp", str(kept), aggregation, timeout=60)


def test_steps_of_an_index(engine: str, path: Path, tmp_path: Path) -> None:
    assert metadata.count_steps(path) == STEPS
    assert metadata.index_end(path) == size(path / "md.idx")
    for content, end in ((None, None), (b"", 0), (bytes(40), 0), (bytes(64), None)):
        if content is not None:
            (tmp_path / "md.idx").write_bytes(content)
        assert metadata.count_steps(tmp_path) is None
        assert metadata.index_end(tmp_path) == end


def test_repair_for_another_program(engine: Any, tmp_path: Path) -> None:
    """Also for one with column-major arrays, to whose file a Writer cannot append."""
    path = tmp_path / "run.bp"
    with Program(path, engine) as out:
        for n in range(2):
            with out.step():
                out.put("u", FIELD + n)
    if engine == "BP5":
        with open(path / "md.idx", "r+b") as file:
            file.seek(40)
            file.write(b"y")
    before = contents(path)
    append_part(path / "md.idx", size(path / "md.idx") - RECORD_BYTES[engine], 12)
    with open(path / "md.0", "ab") as file:
        file.write(bytes(100))
    cz.repair(path)
    if engine == "BP4":  # where they do no harm
        before["md.0"] += bytes(100)
    assert contents(path) == before


def test_repair_refuses_what_it_cannot_mend(engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    with pytest.raises(FileNotFoundError, match=r"there is no md\.idx in it"):
        cz.repair(tmp_path)
    write(path, [0], engine)
    with cz.Writer(path, eb=1e-3, engine=engine, append=True) as out:
        with out.step():
            out.put("n", 1)
        with pytest.raises(CuszError, match=r"cannot repair '.*run\.bp': another Writer has it open"):
            cz.repair(path)
    (path / "cusz.checks").unlink()
    for n in (64, 40):  # ADIOS2 cannot open a file with a part of a header
        os.truncate(path / "md.idx", n)
        with pytest.raises(CuszError, match="it has no complete step: remove it"):
            cz.repair(path)
        with cz.Reader(path) as run:
            assert len(run) == 0
