"""Levels of a run: reading a coarser version of a variable reads only the bytes it needs, and gives the same values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cusz_core
import cusz_operator as cz
import support
from cusz_operator.reading.levels import level_of

pytest.importorskip("adios2")
from other_program import Program

SHAPE = (64, 72, 80)


def write(path: Path, x: NDArray[Any], cuts: list[list[int]], **options: Any) -> None:
    """Writes one step of U, with a block for each box between cuts along the axes."""
    edges = [[0, *cut, n] for cut, n in zip(cuts, x.shape, strict=True)]
    with cz.Writer(path, **({"eb": 1e-3, "predictor": "spline"} | options)) as out, out.step():
        for place in itertools.product(*(range(len(along) - 1) for along in edges)):
            start = tuple(along[i] for along, i in zip(edges, place, strict=True))
            end = tuple(along[i + 1] for along, i in zip(edges, place, strict=True))
            box = np.ascontiguousarray(x[tuple(map(slice, start, end))])
            out.put("U", box, x.shape, start)


def picked(whole: NDArray[Any], level: Any) -> NDArray[Any]:
    return np.ascontiguousarray(whole[np.ix_(*level.coordinates)])


@pytest.fixture(scope="module")
def eight_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("levels") / "run.bp"
    write(path, support.smooth(SHAPE, support.F32), [[32], [32], [40]])
    return path


def test_values_are_those_of_the_whole(eight_blocks: Path) -> None:
    with cz.Reader(eight_blocks) as run:
        step = run[0]
        whole = step.read("U")
        assert step.n_levels("U") == 7
        for number in range(step.n_levels("U")):
            level = step.level("U", number)
            values = step.read("U", level=number)
            assert values.shape == level.shape
            assert support.same_bits(values, picked(whole, level))
        assert [c.tolist() for c in step.level("U", 4).coordinates] == [
            [0, 16, 32, 48],
            [0, 16, 32, 48, 64],
            [0, 16, 32, 40, 56, 72],
        ]


def test_no_more_bytes_are_read_than_are_needed(eight_blocks: Path) -> None:
    with cz.Reader(eight_blocks) as run:
        run[0].read("U")
        full = run.bytes_read
        archives = run[0].blocks("U")["archive_bytes"].sum()
    assert full == archives
    shares = []
    for number in (1, 2):
        with cz.Reader(eight_blocks, threads=2) as run:
            first = run[0].read("U", level=number)
            shares.append(run.bytes_read / full)
            assert support.same_bits(run[0].read("U", level=number), first)
            assert run.bytes_read / full == shares[-1]  # what is read is kept
    assert shares[0] <= 0.3
    assert shares[1] <= 0.1
    with cz.Reader(eight_blocks) as run:
        run[0].read("U", (0, 0, 0), (4, 4, 4), level=1)  # in one block
        assert run.bytes_read < shares[0] * full / 6
        before = run.bytes_read
        run[0].read("U", (0, 0, 0), (4, 4, 4), level=2)  # its bytes were read with level 1
        assert run.bytes_read == before
        whole = run[0].read("U", (0, 0, 0), (32, 32, 40))
        assert support.same_bits(
            run[0].read("U", (0, 0, 0), (16, 16, 20), level=1), np.ascontiguousarray(whole[::2, ::2, ::2])
        )


def test_what_is_read_whole_is_counted_whole(tmp_path: Path) -> None:
    """BP4, where ADIOS2 returns whole archives."""
    write(tmp_path / "run.bp", support.smooth(SHAPE, support.F32), [[32], [32], [40]], engine="BP4")
    with cz.Reader(tmp_path / "run.bp") as run:
        step = run[0]
        stored = step.blocks("U")["archive_bytes"]
        assert run.bytes_read == 0
        step.read("U", (0, 0, 0), (8, 8, 10), level=2)
        assert run.bytes_read == stored[0]
        values = step.read("U", level=2)
        assert run.bytes_read == stored.sum()
        assert support.same_bits(values, picked(step.read("U"), step.level("U", 2)))
        assert run.bytes_read == stored.sum()  # archives are kept
    with cz.Reader(tmp_path / "run.bp", cache_bytes=0) as run:
        for _ in range(2):
            run[0].read("U", level=1)
        assert run.bytes_read == 2 * stored.sum()


@pytest.mark.parametrize(("shape", "predictor"), [(SHAPE, "lorenzo"), ((3, 4, 32, 36, 40), "spline")])
def test_blocks_that_are_decoded_whole_are_counted_whole(
    shape: tuple[int, ...], predictor: str, tmp_path: Path
) -> None:
    """Blocks of the Lorenzo codec, which has no levels, and of more than four dimensions, which are merged."""
    write(
        tmp_path / "run.bp",
        support.smooth(shape, support.F32),
        [[], [2], *([] for _ in shape[2:])],
        predictor=predictor,
    )
    with cz.Reader(tmp_path / "run.bp") as run:
        run[0].read("U", level=2)
        assert run.bytes_read == run[0].blocks("U")["archive_bytes"].sum()


@pytest.mark.mpi
def test_streams(start_ranks: Callable, together: Callable, tmp_path: Path) -> None:
    """Whole archives arrive, and are kept until the step ends. (layer_receive.py checks values.)"""
    stream = tmp_path / "stream"
    writing = start_ranks(2, "layer_write.py", stream, "SST")
    with cz.Reader(stream, engine="SST", parameters={"OpenTimeoutSecs": 60}) as run:
        for step in run:
            before, stored = run.bytes_read, step.blocks("u3_spline")["archive_bytes"]
            step.read("u3_spline", (0, 0, 0), (3, 4, 5), level=2)
            assert run.bytes_read - before == stored[0]
            for level in (2, 1):
                step.read("u3_spline", level=level)
                assert run.bytes_read - before == stored.sum()
    together([writing])


def test_boxes(eight_blocks: Path) -> None:
    with cz.Reader(eight_blocks) as run:
        step = run[0]
        for number in (1, 2, 3):
            of_level = step.read("U", level=number)
            for start, count in support.boxes(of_level.shape, number, 5):
                box = step.read("U", start, count, level=number)
                assert support.same_bits(box, support.part(of_level, start, count))
            out = np.zeros(of_level.shape, np.float32)
            assert run["U"].read(out=out, level=number) is out
            assert support.same_bits(out, of_level)
        block = step.read("U", block=7, level=2)
        assert support.same_bits(block, np.ascontiguousarray(step.read("U", block=7)[::4, ::4, ::4]))
        with pytest.raises(cusz_core.ParameterError, match="not a box within"):
            step.read("U", (0, 0, 0), (33, 1, 1), level=1)
        for wrong in (-1, 7):
            with pytest.raises(
                cusz_core.ParameterError, match=f"level is {wrong}; variable 'U', step 0, has the levels 0 to 6"
            ):
                step.read("U", level=wrong)
        with pytest.raises(cusz_core.ParameterError, match="level is 'x'"):
            step.read("U", level="x")  # type: ignore[arg-type]


def test_blocks_that_do_not_begin_at_multiples(tmp_path: Path) -> None:
    x = support.smooth((50, 61), support.F64)
    write(tmp_path / "run.bp", x, [[7, 30], [33]])
    with cz.Reader(tmp_path / "run.bp") as run:
        step, whole = run[0], run[0].read("U")
        level = step.level("U", 2)
        assert level.coordinates[0].tolist() == [0, 4, 7, 11, 15, 19, 23, 27, 30, 34, 38, 42, 46]
        assert level.coordinates[1].tolist() == [*range(0, 33, 4), *range(33, 61, 4)]
        assert support.same_bits(step.read("U", level=2), picked(whole, level))


def test_blocks_that_are_no_grid_are_named(tmp_path: Path) -> None:
    x = support.smooth((40, 60), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out, out.step():
        out.put("U", x[:20, :30], x.shape)
        out.put("U", x[20:, :30], x.shape, (20, 0))
        out.put("U", x[:11, 30:], x.shape, (0, 30))
        out.put("U", x[11:, 30:], x.shape, (11, 30))
    with cz.Reader(tmp_path / "run.bp") as run:
        step = run[0]
        with pytest.raises(
            cusz_core.ParameterError, match=r"is no grid: .*axis 0 the block at \(.*\) has values at \d+, .*block at \("
        ) as error:
            step.read("U", level=1)
        assert "block=" in str(error.value)
        block = step.read("U", block=3, level=1)
        assert support.same_bits(block, np.ascontiguousarray(step.read("U", block=3)[::2, ::2]))


def test_where_no_block_is(tmp_path: Path) -> None:
    x = support.smooth((40, 64), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, predictor="spline") as out, out.step():
        out.put("U", x[:16], x.shape)
        out.put("U", x[32:], x.shape, (32, 0))
    with cz.Reader(tmp_path / "run.bp") as run:
        values, level = run[0].read("U", level=1), run[0].level("U", 1)
        assert level.coordinates[0].tolist() == [*range(0, 16, 2), *range(32, 40, 2)]
        assert not np.isnan(values).any()


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lorenzo": (support.smooth((40, 30), support.F32), {"predictor": "lorenzo"}),
    "lossless": (support.smooth((40, 30), support.F64), {"eb": 0.0}),
    "logarithms": (support.smooth((40, 30), support.F32), {"eb": 1e-2, "mode": "pw_rel"}),
    "integers": (np.arange(1200, dtype=np.int32).reshape(40, 30), {}),
    "bool": (support.smooth((40, 30), support.F32) > 0, {}),
    "float16": (support.smooth((40, 30), support.F32).astype(np.float16), {}),
    "complex": (support.smooth((40, 30), support.F32) * np.complex64(1 + 2j), {}),
    "missing": (np.where(support.smooth((40, 30), support.F32) > 0, np.nan, support.smooth((40, 30), support.F32)), {}),
    "four dimensions": (support.smooth((3, 20, 16, 20), support.F32), {}),
    "five dimensions": (support.smooth((2, 3, 8, 16, 20), support.F32), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_variable(kind: str, engine: Any, tmp_path: Path) -> None:
    x, options = KINDS[kind]
    half = x.shape[0] // 2
    write(tmp_path / "run.bp", x, [[half], *([] for _ in x.shape[1:])], engine=engine, **options)
    with cz.Reader(tmp_path / "run.bp") as run:
        step, whole = run[0], run[0].read("U")
        for number in range(1, step.n_levels("U")):
            level = step.level("U", number)
            values = step.read("U", level=number)
            assert values.dtype == whole.dtype
            assert np.array_equal(values.view(np.uint8), picked(whole, level).view(np.uint8)), number


def test_what_other_programs_wrote(tmp_path: Path) -> None:
    x = support.smooth((30, 40), support.F64)
    with Program(tmp_path / "run.bp") as out, out.step():
        out.put("U", x[:14], x.shape)
        out.put("U", x[14:], x.shape, (14, 0))
        out.put("n", 3)
    with cz.Reader(tmp_path / "run.bp") as run:
        level = run[0].level("U", 1)
        assert support.same_bits(run[0].read("U", level=1), picked(x, level))
        assert run[0].read("n", level=1) == 3


def test_blocks_without_a_place(tmp_path: Path) -> None:
    x = support.smooth((30, 41), support.F64)
    with Program(tmp_path / "run.bp") as out, out.step():
        out.put("p", x, ())
    with cz.Reader(tmp_path / "run.bp") as run:
        assert support.same_bits(run[0].read("p", block=0, level=2), np.ascontiguousarray(x[::4, ::4]))
        with pytest.raises(cusz_core.ParameterError, match="level is 9; "):
            run[0].read("p", block=0, level=9)


@pytest.mark.parametrize("at", [70, 2000, -3])
def test_damage_is_found_where_it_matters(at: int, tmp_path: Path) -> None:
    """Damage in the head, in the part of the level, and after it."""
    x = support.smooth((48, 64, 64), support.F32)
    write(tmp_path / "run.bp", x, [[], [], []])
    with cz.Reader(tmp_path / "run.bp") as run:
        expected = run[0].read("U", level=1)
        archive = bytes(run._contents.archive("U", 0, 0, support.F32))  # type: ignore[arg-type]
    support.damage(tmp_path / "run.bp" / "data.0", at, 64, within=archive)
    with cz.Reader(tmp_path / "run.bp") as run:
        if at < 0:
            assert support.same_bits(run[0].read("U", level=1), expected)
        else:
            with pytest.raises(cusz_core.CorruptArchiveError, match=r"variable 'U', step 0, the block at \(0, 0, 0\)"):
                run[0].read("U", level=1)


CUTS = st.lists(st.integers(1, 39), max_size=4, unique=True).map(sorted)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.tuples(CUTS, CUTS), predictor=st.sampled_from(["spline", "lorenzo"]), level=st.integers(1, 3))
def test_any_grid_of_blocks(cuts: tuple[list[int], list[int]], predictor: str, level: int, tmp_path: Path) -> None:
    x = support.smooth((40, 40), support.F32, 5)
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.bp"
    write(path, x, list(cuts), predictor=predictor)
    with cz.Reader(path) as run:
        level = min(level, run[0].n_levels("U") - 1)
        found = run[0].level("U", level)
        assert support.same_bits(run[0].read("U", level=level), picked(run[0].read("U"), found))


def test_many_blocks_are_told_apart_quickly() -> None:
    places = np.stack(np.meshgrid(*[np.arange(30) * 16] * 3, indexing="ij"), -1).reshape(-1, 3)
    found = level_of((480,) * 3, places, np.full_like(places, 16), 3, "U")
    assert found.shape == (60, 60, 60)
    assert all((c == np.arange(0, 480, 8)).all() for c in found.coordinates)
