"""Arrays that have values in only a part of their global shape, such as the levels of an AMR code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core
import cusz_operator as cz
import support
from cusz_core import cli

pytest.importorskip("adios2")
from other_program import Program

SHAPE = (40, 30)
#: Where blocks are, step by step: start and extents.
BOXES = [[((0, 0), (16, 16)), ((24, 8), (16, 8))], [((8, 8), (16, 16)), ((30, 25), (0, 5))]]
EB = 1e-3


def covered(step: int) -> NDArray[np.bool_]:
    inside = np.zeros(SHAPE, np.bool_)
    for start, count in BOXES[step]:
        inside[tuple(slice(s, s + c) for s, c in zip(start, count, strict=True))] = True
    return inside


def field(dtype: str, step: int) -> NDArray[Any]:
    x = 5 + support.smooth(SHAPE, support.F64, step)
    return (x + 1j * x.T.reshape(SHAPE) if dtype.startswith("complex") else 10 * x).astype(dtype)


def parts(dtype: str, step: int) -> Any:
    for start, count in BOXES[step]:
        yield start, np.ascontiguousarray(support.part(field(dtype, step), start, count))


def by_writer(path: Path, engine: Any, dtype: str) -> None:
    with cz.Writer(path, eb=EB, engine=engine) as out:
        for step in range(2):
            with out.step():
                for start, part in parts(dtype, step):
                    out.put("x", part, SHAPE, start)


def by_program(path: Path, engine: Any, dtype: str, eb: float | None = EB) -> None:
    with Program(path, engine) as out:
        for step in range(2):
            with out.step():
                for start, part in parts(dtype, step):
                    out.put("x", part, SHAPE, start, eb)


OF_WRITER = ["float32", "float64", "float16", "complex64", "bool", "int16"]
OF_PROGRAM = ["float32", "float64", "int16", "complex64"]
WAYS = [(by_writer, dtype) for dtype in OF_WRITER] + [(by_program, dtype) for dtype in OF_PROGRAM]


@pytest.mark.parametrize(("write", "dtype"), WAYS)
def test_reading(write: Any, engine: str, dtype: str, tmp_path: Path) -> None:
    write(tmp_path / "run.bp", engine, dtype)
    is_exact = np.dtype(dtype).kind in "iub"
    other = True if dtype == "bool" else 7
    with cz.Reader(tmp_path / "run.bp") as run:
        for step in (0, 1):
            inside = covered(step)
            assert not run[step].is_covered("x")
            assert np.array_equal(run[step].coverage("x"), inside)
            assert np.array_equal(run[step].coverage("x", (10, 3), (20, 11)), inside[10:30, 3:14])
            whole = run[step].read("x")
            assert whole.dtype == dtype
            error = whole[inside].astype(np.complex128) - field(dtype, step)[inside]
            assert (np.maximum(abs(error.real), abs(error.imag)) <= (0.0 if is_exact else EB)).all()
            assert (whole[~inside] == 0).all() if is_exact else np.isnan(whole[~inside]).all()
            filled = run[step].read("x", fill=other)
            assert (filled[~inside] == other).all()
            assert support.same_bits(np.ascontiguousarray(filled[inside]), np.ascontiguousarray(whole[inside]))
            out = np.ones((20, 11), dtype)
            assert run[step].read("x", (10, 3), (20, 11), out=out, fill=other) is out
            assert np.array_equal(out, filled[10:30, 3:14])
            blocks = run[step].read_blocks("x")
            assert [block.shape for block in blocks] == [
                tuple(count) for count in run[step].blocks("x")["count"].tolist()
            ]
            for block, start in zip(blocks, run[step].blocks("x")["start"].tolist(), strict=True):
                assert np.array_equal(block, support.part(whole, tuple(start), block.shape))


def test_what_is_covered_everywhere(engine: str, tmp_path: Path) -> None:
    x = support.smooth(SHAPE, support.F32)
    with Program(tmp_path / "run.bp", engine) as out, out.step():
        out.put("a", x)
        out.put("b", x[:25], SHAPE)
        out.put("b", x[15:35], SHAPE, (15, 0))
        out.put("e", x[:0, :5])
        out.put("n", 1.0)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert run[0].is_covered("a")
        assert run[0].coverage("a").all()
        assert not run[0].is_covered("b"), "blocks overlap, and have as many values as the shape"
        assert np.array_equal(run[0].coverage("b"), np.arange(40)[:, np.newaxis] + 0 * np.arange(30) < 35)
        assert run[0].is_covered("e")
        assert run[0].coverage("e").shape == (0, 5)
        assert run[0].is_covered("n")
        assert run[0].coverage("n").shape == ()
        with pytest.raises(cusz_core.ParameterError, match="not a box within"):
            run[0].coverage("a", (0, 0), (41, 1))


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_a_difference_counts_what_is_covered(engine: str, dtype: str, tmp_path: Path) -> None:
    by_program(tmp_path / "raw.bp", engine, dtype, None)
    by_writer(tmp_path / "run.bp", engine, dtype)
    for step, one in enumerate(cz.compare_runs(tmp_path / "raw.bp", tmp_path / "run.bp", eb=EB, mode="rel")):
        inside = covered(step)
        assert (one.values, one.covered) == (int(np.count_nonzero(inside)), float(inside.mean()))
        assert not one.fails
        if dtype == "float32":
            a, b = field(dtype, step)[inside].astype(float), np.zeros(0)
            with cz.Reader(tmp_path / "run.bp") as run:
                b = run[step].read("x")[inside]
            assert one.psnr == pytest.approx(20 * np.log10(np.ptp(a) / np.sqrt(np.square(a - b).mean())))
    support.write_run(tmp_path / "more.bp", *({"x": field(dtype, step)} for step in (0, 1)), eb=EB, engine=engine)
    for step, one in enumerate(cz.compare_runs(tmp_path / "run.bp", tmp_path / "more.bp", eb=EB * 100)):
        assert (one.values, one.covered, one.fails) == (1200, 1.0, True)
        assert one.beyond == np.count_nonzero(~covered(step))


def test_values_that_only_one_run_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are differences, even if missing values read as 0 and the others are 0."""
    for name, boxes in (("a", [0, 8]), ("b", [0])):
        with Program(tmp_path / f"{name}.bp") as out, out.step():
            for start in boxes:
                out.put("state", np.zeros(8, np.int32), (16,), (start,))
    (one,) = cz.compare_runs(tmp_path / "a.bp", tmp_path / "b.bp", eb=0)
    assert (one.values, one.different, one.beyond, one.fails) == (16, 8, 8, True)
    pytest.importorskip("matplotlib")
    cli.main(["report", str(tmp_path / "b.bp"), "--original", str(tmp_path / "a.bp")])
    assert "state: blocks of the run and of the original have different numbers" in capsys.readouterr().out


def test_a_huge_shape_with_few_blocks(tmp_path: Path) -> None:
    """Only blocks are examined: the whole shape would take 140 TB."""
    x = support.smooth((8, 8, 8), support.F32)
    for name, starts in (("a", (0, 8192)), ("overlapping", (0, 4))):
        with Program(tmp_path / f"{name}.bp") as out, out.step():
            for start in starts:
                out.put("rho", x, (32768,) * 3, (start,) * 3)
    (one,) = cz.compare_runs(tmp_path / "a.bp", tmp_path / "a.bp", eb=0)
    assert (one.values, one.fails) == (1024, False)
    with cz.Reader(tmp_path / "overlapping.bp") as run:
        assert not run[0].is_covered("rho")
    pytest.importorskip("matplotlib")
    assert cli.main(["report", str(tmp_path / "a.bp")]) == 0


@pytest.mark.parametrize(
    ("dtype", "fill"), [("uint8", -1), ("uint8", 300), ("int16", np.nan), ("float32", "x"), ("bool", 7)]
)
def test_a_fill_that_is_none(dtype: str, fill: Any, tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=EB) as out, out.step():
        out.put("x", np.ones((3, 4), dtype), SHAPE, (2, 3))
    with cz.Reader(tmp_path / "run.bp") as run, pytest.raises(cusz_core.ParameterError, match="fill is"):
        run[0].read("x", fill=fill)


def test_differences_of_blocks_without_a_place(engine: str, tmp_path: Path) -> None:
    parts = [support.smooth((n,), support.F64, n) for n in (30, 0, 20)]
    for name, change in (("a", 0.0), ("b", 0.25)):
        with Program(tmp_path / f"{name}.bp", engine) as out, out.step():
            for part in parts:
                out.put("x", part + change * (np.arange(len(part)) == 19) * (len(part) == 20), ())
    (one,) = cz.compare_runs(tmp_path / "a.bp", tmp_path / "b.bp", eb=0.2)
    assert (one.values, one.different, one.beyond, one.largest, one.at) == (50, 1, 1, 0.25, (2, 19))
    (one,) = cz.compare_runs(tmp_path / "a.bp", tmp_path / "b.bp", eb=0.25)
    assert not one.fails


def test_differences_relative_to_every_value(tmp_path: Path) -> None:
    x = support.many_magnitudes((400,), support.F32)
    support.write_run(tmp_path / "a.bp", {"x": x}, eb=0.0)
    support.write_run(tmp_path / "b.bp", {"x": x}, eb=1e-2, mode="pw_rel")
    (one,) = cz.compare_runs(tmp_path / "a.bp", tmp_path / "b.bp", eb=1e-2, mode="pw_rel")
    assert not one.fails
    (one,) = cz.compare_runs(tmp_path / "a.bp", tmp_path / "b.bp", eb=1e-3, mode="pw_rel")
    assert one.beyond > 100


def test_a_request_that_failed_does_not_fill_the_users_array_later(tmp_path: Path) -> None:
    by_program(tmp_path / "run.bp", "BP5", "int16")
    with cz.Reader(tmp_path / "run.bp") as run:
        run[0].shape("x")
        out = np.full(SHAPE, 7, np.int16)
        (tmp_path / "run.bp").rename(tmp_path / "away.bp")
        with pytest.raises(cusz_core.CuszError):
            run[0].read("x", (0, 0), SHAPE, out=out)
        out[...] = 5
        (tmp_path / "away.bp").rename(tmp_path / "run.bp")
        run[1].read("x")
    assert (out == 5).all()


@pytest.mark.parametrize("write", [by_writer, by_program])
def test_commands_say_what_share_that_is(write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "run.bp", "BP5", "float32")
    by_program(tmp_path / "raw.bp", "BP5", "float32", None)
    share = sum(covered(step).sum() for step in (0, 1)) / 2400
    (variable,) = cz.inspect_variables(tmp_path / "run.bp")
    assert variable.covered == share
    assert cli.main(["inspect", str(tmp_path / "run.bp")]) == 0
    assert f"values in {share:.0%} of the shape" in capsys.readouterr().out
    assert cli.main(["diff", str(tmp_path / "raw.bp"), str(tmp_path / "run.bp"), "--steps"]) == 0
    assert f"values in {covered(1).mean():.0%} of the shape" in capsys.readouterr().out
    assert cli.main(["inspect", "--json", str(tmp_path / "run.bp")]) == 0
    assert json.loads(capsys.readouterr().out)[0]["covered"] == share


def test_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    by_program(tmp_path / "raw.bp", "BP5", "float32", None)
    by_writer(tmp_path / "run.bp", "BP5", "float32")
    assert cli.main(["report", str(tmp_path / "raw.bp"), "--original", str(tmp_path / "raw.bp")]) == 0
    assert cli.main(["report", str(tmp_path / "run.bp"), "--original", str(tmp_path / "raw.bp")]) == 0
    for name in ("raw", "run"):
        page = (tmp_path / f"{name}.bp.html").read_text(encoding="utf-8")
        assert f"40 × 30, values in {covered(1).mean():.0%} of it" in page
    assert "Of the values that are not 0, 0 become 0, 0 change sign, 0 off by &gt; 1%, 0 off by &gt; 10%." in page


def test_xarray(engine: Any, tmp_path: Path) -> None:
    """NaN, or for integers the `_FillValue`, which xarray turns into NaN; one chunk per step (there is no grid)."""
    xarray = pytest.importorskip("xarray")
    with cz.Writer(tmp_path / "run.bp", eb=EB, engine=engine) as out:
        out.attribute("marked/_FillValue", np.int16(-1))
        for step in range(2):
            with out.step():
                for name, dtype in (("x", "float32"), ("n", "int16"), ("marked", "int16")):
                    for start, part in parts(dtype, step):
                        out.put(name, part, SHAPE, start)
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", chunks={}) as data:
        for step in (0, 1):
            inside = covered(step)
            assert np.array_equal(np.isfinite(data["x"][step].values), inside)
            assert np.array_equal(np.isfinite(data["marked"][step].values), inside)
            assert (data["n"][step].values[~inside] == 0).all()
        assert data["x"].chunks == ((1, 1), (40,), (30,))
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz", mask_and_scale=False) as data:
        assert (data["marked"][0].values[~covered(0)] == -1).all()


def test_dimensions_of_steps_in_xarray(tmp_path: Path) -> None:
    """One for each set of steps that variables have, named after the common part of their names."""
    xarray = pytest.importorskip("xarray")
    x = support.smooth((8, 9), support.F32)
    of_steps = {
        range(4): ["u"],
        range(1, 3): ["level1/rho", "level1/u"],
        range(1, 4): ["/level2/a/rho", "/level2/b/rho"],
        range(3): ["p", "q"],
        range(2): ["alone"],
    }
    steps = ([name for there, names in of_steps.items() if step in there for name in names] for step in range(4))
    support.write_run(tmp_path / "run.bp", *(dict.fromkeys(names, x) for names in steps), eb=EB)
    with xarray.open_dataset(tmp_path / "run.bp", engine="cusz") as data:
        found = {name: variable.dims[0] for name, variable in data.data_vars.items()}
        assert found == {
            "u": "step",
            "level1/rho": "step_level1",
            "level1/u": "step_level1",
            "/level2/a/rho": "step_level2",
            "/level2/b/rho": "step_level2",
            "p": found["q"],
            "q": found["p"],
            "alone": "step_alone",
        }
        assert found["p"].startswith("step_")
        assert data[found["p"]].values.tolist() == [0, 1, 2]
        assert data["step_level1"].values.tolist() == [1, 2]
