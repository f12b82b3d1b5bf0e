"""Arrays without values at some steps: what is written reads back, or is refused before it is written.

BP4 marks a block whose extents are all 0 like a single value. Its reader then shows the shape of another step, or, if
that is the variable's first block, takes all blocks for single values, and returns neither their values nor an error.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support

pytest.importorskip("adios2")
from other_program import Program

#: Global shapes, step by step.
SHAPES: list[list[tuple[int, ...]]] = [
    [(0,), (3,)],
    [(3,), (0,)],
    [(3,), (0,), (2,)],
    [(0,), (0,)],
    [(0, 5), (3, 5), (0, 5)],
    [(3, 0), (3, 2)],
    [(2, 2), (0, 0), (1, 2)],
    [(0, 0), (2, 2)],
    [(2, 2, 2), (2, 0, 2), (0, 2, 2), (0, 0, 0)],
]
BY_SHAPES = pytest.mark.parametrize("shapes", SHAPES, ids=str)
WANTED: list[dict[str, Any]] = [{"eb": 1e-3}, {"eb": 1e-3, "mode": "rel"}, {"eb": 1e-3, "mode": "pw_rel"}, {"psnr": 60}]


def field(shape: tuple[int, ...], step: int, dtype: Any = np.float32) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) + 10 * step).astype(dtype)


@BY_SHAPES
@pytest.mark.parametrize("options", WANTED, ids=str)
def test_a_writer(engine: Any, shapes: list[tuple[int, ...]], options: dict[str, Any], tmp_path: Path) -> None:
    written = {}
    with cz.Writer(tmp_path / "run.bp", engine=engine, eb=1e-3, variables={"x": options}) as out:
        for number, shape in enumerate(shapes):
            is_refused = engine == "BP4" and not any(shape) and not written
            refused = pytest.raises(cusz_core.UnsupportedError, match=r"'x' has shape .*BP5")
            with refused if is_refused else contextlib.nullcontext(), out.step():
                out.put("beside", np.full(4, number, np.float32))
                out.put("x", field(shape, number))
                out.put("n", field(shape, number, np.int16))
            if not is_refused:
                written[len(written)] = (number, shape)
    if not written:
        return
    with cz.Reader(tmp_path / "run.bp") as run:
        assert len(run) == len(written)
        for step, (number, shape) in written.items():
            assert run[step].shape("x") == run[step].shape("n") == shape
            got = run[step].read("x")
            assert got.shape == shape
            x = field(shape, number)
            if options.get("mode") == "pw_rel":
                assert (abs(got.astype(np.float64) - x) <= 1e-3 * abs(x.astype(np.float64))).all()
            else:
                bounds = run[step].blocks("x")["eb_abs"]
                assert "psnr" in options or set(bounds) == {support.absolute_bound(x, 1e-3, options.get("mode", "abs"))}
                assert not support.violations(x, got, float(bounds[0]))
            assert np.array_equal(run[step].read("n"), field(shape, number, np.int16))
            assert np.array_equal(run[step].read("beside"), np.full(4, number, np.float32))
    listed = list(cz.inspect_bp(tmp_path / "run.bp", check=True))
    assert {block["variable"] for block in listed} == {"beside", "n", "x"}
    assert not any("error" in block for block in listed)


CANNOT = pytest.raises(cusz_core.CuszError, match=r"ADIOS2 cannot read 'x'.*its first block has no values")


@BY_SHAPES
@pytest.mark.parametrize("eb", [None, 0.0], ids=["plain", "compressed"])
def test_another_program(engine: str, shapes: list[tuple[int, ...]], eb: float | None, tmp_path: Path) -> None:
    """What ADIOS2 cannot read is an error, which does not affect other variables."""
    with Program(tmp_path / "run.bp", engine) as out:
        for step, shape in enumerate(shapes):
            with out.step():
                out.put("x", field(shape, step), eb=eb)
                out.put("beside", field((4,), step), eb=eb)
    is_lost = engine == "BP4" and not any(shapes[0]) and any(map(any, shapes))
    with cz.Reader(tmp_path / "run.bp") as run:
        assert "beside" in repr(run)
        for step, shape in enumerate(shapes):
            assert np.array_equal(run[step].read("beside"), field((4,), step))
            if is_lost and any(shape):
                with CANNOT:
                    run[step].read("x")
            elif engine == "BP4" and not any(shape):  # BP4 does not show how many axes there are
                assert run[step].read("x").size == 0
                assert not any(run[step].shape("x"))
            else:
                assert run[step].shape("x") == shape
                assert np.array_equal(run[step].read("x"), field(shape, step))
    listed = list(cz.inspect_bp(tmp_path / "run.bp", check=True))
    with_errors = {(block["variable"], block["step"]) for block in listed if "error" in block}
    assert {block["variable"] for block in listed} == {"x", "beside"}
    assert with_errors == {("x", step) for step, shape in enumerate(shapes) if is_lost and np.prod(shape)}


@pytest.mark.parametrize("blocks", [[[3], [0], [2]], [[0], [3]], [[0, 3], [2, 0]], [[3, 0]], [[0], [0]]], ids=str)
def test_blocks_without_a_place(engine: str, blocks: list[list[int]], tmp_path: Path) -> None:
    with Program(tmp_path / "run.bp", engine) as out:
        for step, counts in enumerate(blocks):
            with out.step():
                for count in counts:
                    out.put("x", field((count,), step), ())
    with cz.Reader(tmp_path / "run.bp") as run:
        for step, counts in enumerate(blocks):
            for number, count in enumerate(counts):
                is_lost = engine == "BP4" and blocks[0][0] == 0 and any(counts)
                with CANNOT if is_lost else contextlib.nullcontext():
                    assert np.array_equal(run[step].read("x", block=number), field((count,), step))
