"""BP4 does not ask how much room an archive needs. For a Put in mode Sync it reserves the block's raw size and its own
estimate of the metadata around it, which omits the beginning of a step. The remaining room depends on names and
dimensions, and for the first block of a step it may be less than the head of an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support

pytest.importorskip("adios2")
import adios2
from other_program import Program

SIZES = [1, 3, 7, 50, 100, 201, 500, 1000, 4100, 9000]


def write(
    path: Path, sizes: list[int], ndim: int, mode: Any, dtype: Any = np.float32, name: str = "io", statistics: int = 1
) -> list[np.ndarray]:
    """Writes one block of random values per step, each with only the room that BP4 leaves."""
    fields = [support.random_bits((*(1,) * (ndim - 1), n), np.dtype(dtype), seed=i) for i, n in enumerate(sizes)]
    with Program(path, "BP4", io=name, StatsLevel=str(statistics)) as out:
        out.how = mode
        for field in fields:
            with out.step():
                out.put("x", field, eb=0.0)
    return fields


def written(path: Path, x: np.ndarray, eb: float, mode: Any = "abs", **options: Any) -> Any:
    """Writes a step of one block; returns its description."""
    with Program(path, "BP4", io="o") as out, out.step():
        out.put("x", x, eb=eb, mode=mode, **options)
    (block,) = cz.inspect_bp(path)
    return block


@pytest.mark.parametrize("mode", ["Sync", "Deferred"])
@pytest.mark.parametrize(("name", "statistics"), [("SimulationOutput", 1), ("OutputOfSimu", 0)])
@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_incompressible_blocks_of_growing_size(
    dtype: Any, ndim: int, name: str, statistics: int, mode: str, tmp_path: Path
) -> None:
    fields = write(tmp_path / "run.bp", SIZES, ndim, getattr(adios2.Mode, mode), dtype, name, statistics)
    with adios2.FileReader(str(tmp_path / "run.bp")) as plain:
        for number, field in enumerate(fields):
            got = plain.read("x", [0] * ndim, list(field.shape), step_selection=[number, 1])
            assert support.same_bits(field, got.reshape(field.shape))
    with cz.Reader(tmp_path / "run.bp") as run:
        for step, field in zip(run, fields, strict=True):
            assert support.same_bits(field, step.read("x"))
    blocks = list(cz.inspect_bp(tmp_path / "run.bp"))
    assert {(block["operator"], block["kind"]) for block in blocks} == {("cusz", "raw")}
    assert {block["archive_bytes"] - block["raw_bytes"] for block in blocks} == {8}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_blocks_that_cannot_be_read(dtype: Any, tmp_path: Path) -> None:
    """They are stored as lost, in as little room."""
    path, unreadable = tmp_path / "run.bp", 4096
    with Program(path, "BP4", io="OutputOfSimu", StatsLevel="0") as out:
        for size in SIZES:
            with out.step():
                out.put("x", np.zeros(size, dtype), eb=0.0, address=unreadable)
    blocks = list(cz.inspect_bp(path))
    assert [block["raw_bytes"] for block in blocks] == [size * np.dtype(dtype).itemsize for size in SIZES]
    assert {block["kind"] for block in blocks} == {"lost"}
    assert {block["archive_bytes"] - block["raw_bytes"] for block in blocks} == {8}
    with adios2.FileReader(str(path)) as run:
        for step, size in enumerate(SIZES):
            got = run.read("x", [0], [size], step_selection=[step, 1])
            assert got.tobytes() == b"\xff" * got.nbytes
    with cz.Reader(path) as run:
        assert run[3].read("x").tobytes() == b"\xff" * blocks[3]["raw_bytes"]


def test_compressed_blocks_are_archives_as_ever(tmp_path: Path) -> None:
    x = support.smooth((40, 50), support.F32)
    block = written(tmp_path / "run.bp", x, 1e-3)
    assert block["archive_bytes"] == len(cusz_core.compress(x, 1e-3))


def test_damaged_bytes_are_found(tmp_path: Path) -> None:
    (field,) = write(tmp_path / "run.bp", [1000], 1, adios2.Mode.Sync)
    data = tmp_path / "run.bp" / "data.0"
    whole = data.read_bytes()
    start = whole.index(field.tobytes())
    assert whole[start - 8 : start - 4] == b"raw8"
    for at in (start - 8, start - 4, start, start + 1999, start + 3999):
        data.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        expected = "not a cuSZ archive" if at == start - 8 else ": corrupt archive: the payload does not match"
        with adios2.FileReader(str(tmp_path / "run.bp")) as file, pytest.raises(RuntimeError, match=expected):
            file.read("x")
        with cz.Reader(tmp_path / "run.bp") as run, pytest.raises(cusz_core.CuszError, match=expected):
            run[0].read("x")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_writer(engine: Any, dtype: Any, tmp_path: Path) -> None:
    """Blocks that are larger at each step, after an empty block, and arrays without values."""
    fields = [support.random_bits((size, 7), np.dtype(dtype), seed=size) for size in SIZES]
    with cz.Writer(tmp_path / "run.bp", eb=0.0, engine=engine) as out:
        for field in fields:
            with out.step():
                if engine == "BP5":  # BP4 refuses it as the first block of a variable
                    out.put("none", np.zeros(0, dtype))
                out.put("x", field[:0], field.shape)
                out.put("x", field)
                out.put("none, in a way", np.zeros((0, 7), dtype))
    with cz.Reader(tmp_path / "run.bp") as run:
        for step, field in zip(run, fields, strict=True):
            assert support.same_bits(field, step.read("x"))
            assert engine == "BP4" or step.read("none").shape == (0,)
            assert step.read("none, in a way").shape == (0, 7)
            assert step.verify("x") == 1


def test_archives_of_nearly_the_raw_size(tmp_path: Path) -> None:
    """Archives larger than raw + 8 bytes and smaller than raw + 48 bytes."""
    n = 20000
    noise = (2.0 ** (support.integers(n, -20000, 20000) / 1000)).astype(support.F32)

    def excess(n_ones: int) -> int:
        x = noise.copy()
        x[:n_ones] = 1
        return len(cusz_core.compress(x, 1e-6, "pw_rel", predictor="lorenzo")) - x.nbytes

    low, high = 0, n  # the first is stored raw, the second is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(middle) == 48 else (low, middle)
    n_ones = next(n_ones for n_ones in range(high, n) if excess(n_ones) < 48)
    assert excess(n_ones) > 8
    x = noise.copy()
    x[:n_ones] = 1
    block = written(tmp_path / "run.bp", x, 1e-6, "pw_rel", predictor="lorenzo")
    assert (block["kind"], block["archive_bytes"]) == ("raw", 4 * n + 8)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert support.same_bits(run[0].read("x"), x)
