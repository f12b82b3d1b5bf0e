"""The Writer: one bound for all ranks, ordinary files, a block table, and ranks that fail together."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import values
from hypothesis import given
from hypothesis import strategies as st
from layer import LAYER_CASES, bound, problems

import cusz_core
import cusz_operator as cz
import support
from cusz_core.backends import lossless_stages
from cusz_operator.tables import boxes as blocks
from cusz_operator.tables import checks
from cusz_operator.writing import compression, output
from field_kinds import KINDS

pytest.importorskip("adios2")
import adios2
from other_program import Program

WRITERS = (1, 2, 4)
BOTH_WAYS = pytest.mark.parametrize("overlap", [False, True], ids=["", "overlap"])


def steps_of(path: Path) -> int:
    with adios2.FileReader(str(path)) as run:
        return int(run.num_steps())


# ---------------------------------------------------------------------------------------------- what is in the file


@pytest.mark.quick(2)
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", WRITERS)
def test_plain_adios2_reads_every_value_within_the_bound_of_the_whole_field(
    ranks: int, engine: str, by_layer: Callable
) -> None:
    """The Writer passes keys in place of addresses, so ADIOS2 cannot have touched any value itself."""
    with adios2.FileReader(str(by_layer(ranks, engine))) as run:
        for case in LAYER_CASES:
            for i, step in enumerate(case.steps):
                got = run.read(case.name, step_selection=[i, 1]).reshape(case.shape)
                assert not problems(case, step, ((0,) * got.ndim, case.shape), got), (case.name, step)
        assert run.read_attribute("writers") == ranks
        assert run.read_attribute("purpose") == "a test"


@pytest.mark.mpi
def test_the_bound_does_not_depend_on_the_number_of_writers(engine: str, by_layer: Callable) -> None:
    for ranks in WRITERS:
        seen = {name: set() for name in (case.name for case in LAYER_CASES)}
        for block in cz.inspect_bp(by_layer(ranks, engine)):
            if block["variable"] in seen and block.get("kind") == "tiled":
                seen[block["variable"]].add((block["step"], block["eb_abs"]))
                assert block["mode"] == ("abs" if block["eb_abs"] > 0 else "rel")
        for name, found in seen.items():
            for step, eb_abs in found:
                assert eb_abs == bound(name, step), (name, step, ranks)


@pytest.mark.mpi
def test_what_was_asked_is_known(engine: str, by_layer: Callable) -> None:
    """Over all ranks together, some of which have no block of a variable."""
    for ranks in WRITERS:
        found = {own.name: own for own in cz.inspect_variables(by_layer(ranks, engine))}
        assert found == {own.name: own for own in cz.inspect_variables(by_layer(ranks, engine), check=True)}
        assert sorted(found) == sorted(case.name for case in LAYER_CASES)
        for case in LAYER_CASES:
            own = found[case.name]
            assert [(asked.mode, asked.eb) for asked in own.asked if asked] == [(case.mode, case.eb)]
            assert (own.steps, own.blocks) == (tuple(case.steps), len(case.steps) * len(list(case.all_blocks(ranks))))
            bounds = [bound(case.name, step) for step in case.steps]
            if own.eb_abs_min is not None:
                assert min(bounds) <= own.eb_abs_min <= (own.eb_abs_max or 0) <= max(bounds)
                assert own.predictors.keys() <= {case.parameters.get("predictor", "lorenzo"), "lorenzo"}
                assert sum(own.predictors.values()) == own.blocks - own.empty - own.raw


@pytest.mark.mpi
def test_the_block_table(engine: str, by_layer: Callable) -> None:
    path = by_layer(4, engine)
    archives = [block for block in cz.inspect_bp(path) if not cz.tables.blocktable.is_table(block["variable"])]
    with adios2.FileReader(str(path)) as run:
        for case in LAYER_CASES:
            columns = cz.tables.blocktable.columns_of(len(case.shape))
            for i, step in enumerate(case.steps):
                rows = run.read(f"cusz/blocks/{case.name}", step_selection=[i, 1]).reshape(-1, len(columns))
                table = cz.tables.blocktable.table_of(rows, case.name)
                assert support.same_bits(cz.tables.blocktable.rows_of(table), np.ascontiguousarray(rows))
                boxes = [(rank, box) for rank in range(4) for box in case.blocks(rank, 4)]
                assert table["rank"].tolist() == [rank for rank, _ in boxes]
                assert table["start"].tolist() == [list(box[0]) for _, box in boxes]
                assert table["count"].tolist() == [list(box[1]) for _, box in boxes]
                assert (table["step"] == step).all()
                assert (table["device"] == -1).all()
                assert (table["eb_abs"] == bound(case.name, step)).all()
                assert (table["seconds"] > 0).all()
                of_step = [b for b in archives if (b["variable"], b["step"]) == (case.name, step)]
                for row, block in zip(table, of_step, strict=True):
                    assert tuple(row["count"]) == block["count"]
                    if block["operator"]:
                        assert block["version"] == case.version or (block["version"] == 1 and block["ratio"] < 1.3)
                        assert row["archive_bytes"] == block["archive_bytes"]
                        assert row["outliers"] == block["out_of_range"] + block["unpredictable"]
                field = values(case.name, step)
                low, high = support.value_range(field, case.fill)
                filled = table[table["raw_bytes"] > 0]
                if np.isfinite(field).all():
                    assert (filled["min"].min(), filled["max"].max()) == (low, high)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", WRITERS)
def test_adios2_knows_minimum_and_maximum(ranks: int, by_layer: Callable) -> None:
    """Of every block and variable, over finite values that are not fill; BP4 has none (test_statistics.py)."""
    path = by_layer(ranks, "BP5")
    tables = {(t["variable"], t["step"], t["block"]): t for t in cz.inspect_bp(path)}
    with adios2.FileReader(str(path)) as run:
        of_all = run.available_variables()
        for case in LAYER_CASES:
            for i, step in enumerate(case.steps):
                blocks = run.engine.blocks_info(case.name, i)
                assert len(blocks) == sum(1 for _ in case.all_blocks(ranks))
                for number, (start, count) in enumerate(case.all_blocks(ranks)):
                    block = blocks[number]
                    where = tuple(tuple(int(n) for n in block[key].split(",")) for key in ("Start", "Count"))
                    assert where == (start, count)
                    if 0 not in count:
                        known = tables[case.name, step, number]
                        assert (block["Min"], block["Max"]) == (f"{known['min']:g}", f"{known['max']:g}")
            ranges = [support.value_range(values(case.name, step), case.fill) for step in case.steps]
            low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
            assert (of_all[case.name]["Min"], of_all[case.name]["Max"]) == (f"{low:e}", f"{high:e}")


@pytest.mark.quick(1)
@pytest.mark.mpi
@pytest.mark.parametrize("how", ["Reader", "plain"])
def test_sending_steps_through_sst(how: str, start_ranks: Callable, together: Callable, tmp_path: Path) -> None:
    stream = str(tmp_path / "stream")
    writing, reading = start_ranks(2, "layer_write.py", stream, "SST"), start_ranks(3, "layer_receive.py", stream, how)
    assert "received 3" in together([writing, reading])[1]


# -------------------------------------------------------------------------------------------------- without ranks


@BOTH_WAYS
def test_append(engine: Any, overlap: bool, tmp_path: Path) -> None:
    x = support.smooth((20, 30), support.F32)
    for i in range(3):
        support.write_run(tmp_path / "run.bp", {"T": x + i}, eb=1e-3, engine=engine, append=i > 0, overlap=overlap)
    assert steps_of(tmp_path / "run.bp") == 3
    with adios2.FileReader(str(tmp_path / "run.bp")) as run:
        for i in range(3):
            assert not support.violations(x + i, run.read("T", step_selection=[i, 1]).reshape(x.shape), 1e-3)
            assert run.read("cusz/blocks/T", step_selection=[i, 1]).reshape(-1)[1] == i


@pytest.mark.parametrize("goal", [{"eb": 1e-3, "mode": "rel"}, {"psnr": 80}, {"ratio": 10}], ids=str)
@pytest.mark.parametrize("value", [3.5, 0.0, np.inf, np.nan])
def test_variables_without_a_value_range(value: float, goal: dict[str, Any], tmp_path: Path) -> None:
    """A field at its initial value, or missing everywhere, is stored exactly and takes next to no space."""
    flat = np.full((24, 16, 16), value, np.float32)
    masked = np.where(np.arange(flat.size).reshape(flat.shape) % 3 == 0, np.float32(1e20), flat)
    given: dict[str, np.ndarray] = {"flat": flat, "half": flat.astype(np.float16), "masked": masked}
    with cz.Writer(tmp_path / "run.bp", **goal, variables={"masked": {"fill": 1e20}}) as out, out.step():
        for name, field in given.items():
            out.put(name, field[:16], shape=field.shape, start=(0, 0, 0))
            out.put(name, field[16:], shape=field.shape, start=(16, 0, 0))
    with cz.Reader(tmp_path / "run.bp") as run:
        for name, field in given.items():
            assert support.same_bits(run[0].read(name), field)
    sizes = {info.name: info.archive_bytes or 0 for info in cz.inspect_variables(tmp_path / "run.bp")}
    assert sizes["flat"] == sizes["half"] == 2 * 17
    assert sizes["masked"] < (0.1 if value == 0 else 1.01) * masked.nbytes


def test_a_bound_of_0_relative_to_the_value_range_changes_nothing(dtype: np.dtype, tmp_path: Path) -> None:
    """Not even the sign of a zero."""
    x = np.array([[0.0, -0.0, np.nan, 1e20]], dtype)
    support.write_run(tmp_path / "run.bp", {"x": x}, eb=0, mode="rel", fill=1e20)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert support.same_bits(run[0].read("x"), x)


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("steps", [0, 2])
def test_appending_to_metadata_that_are_not_in_the_index(steps: int, is_recorded: bool, tmp_path: Path) -> None:
    """A program killed while ADIOS2 wrote in the background leaves such metadata; ADIOS2 appends after them."""
    path, later = tmp_path / "run.bp", tmp_path / "later.bp"
    x = support.smooth((20, 30), support.F32)
    for i in range(3):
        support.write_run(path, {"T": x + i}, eb=1e-3, append=i > 0)
    shutil.copytree(path, later)
    support.write_run(later, {"T": x + 3}, eb=1e-3, append=True)
    for name in ("md.0", "data.0"):
        shutil.copy(later / name, path / name)
    if is_recorded:  # the step had ended for the program
        recorder = checks.Recorder(path, 3)
        recorder.record(3, {}, {})
        recorder.close()
    support.write_run(path, *({"T": x + i} for i in range(3, 3 + steps)), eb=1e-3, append=True)
    for file in (path, later):
        with cz.Reader(file) as run:
            assert len(run) == (3 + steps if file == path else 4)
            for i, step in enumerate(run):
                assert not support.violations(x + np.float32(i), step.read("T"), 1e-3)


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("left", [[], ["data.0"], ["data.0", "md.0", "mmd.0"]], ids=["nothing", "data", "all"])
def test_appending_to_a_file_whose_first_step_is_not_complete(
    left: list[str], is_recorded: bool, engine: Any, tmp_path: Path
) -> None:
    """Because its program was killed: ADIOS2 writes the index last."""
    path, x = tmp_path / "run.bp", support.smooth((20, 30), support.F32)
    support.write_run(path, {"T": x, "old": x}, eb=1e-4, engine=engine)
    for file in path.iterdir():
        if file.name not in left:
            os.truncate(file, 0)
    if engine == "BP4" and not left:
        for name in ("md.0", "md.idx"):  # ADIOS2 creates them in the background
            (path / name).unlink()
    if is_recorded:  # the step had ended for the program, while ADIOS2 wrote in the background
        recorder = checks.Recorder(path, 0)
        recorder.record(0, {}, {})
        recorder.close()
    is_left = any(file.stat().st_size for file in path.iterdir())
    options = {"eb": 1e-3, "engine": engine, "append": True}
    with pytest.warns(match="no complete step to append to") if is_left else contextlib.nullcontext():
        writer = cz.Writer(path, **options)
    with pytest.raises(ZeroDivisionError), writer:
        raise ZeroDivisionError  # before its first step
    for i in (0, 2):
        support.write_run(path, {"T": x + i}, {"T": x + i + 1}, **options)
    with cz.Reader(path) as run:
        steps = [step for step in run if step.variables]
        assert [list(step.variables) for step in steps] == [["T"]] * 4
        for i, step in enumerate(steps):
            assert not support.violations(x + np.float32(i), step.read("T"), 1e-3)


@pytest.mark.parametrize("ndim", [1, 4])
@pytest.mark.parametrize("length", [1, 1000])
def test_the_room_that_is_asked_for(
    length: int, ndim: int, engine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For many small blocks and for many variables: enough, but not many times too much."""
    asked, x = [0], np.ones((2,) * ndim, np.float32)
    monkeypatch.setattr("cusz_operator.writing.writer.require_room", lambda needed, _: asked.append(needed))
    for variables, n in ((1, 2000), (500, 1)):
        path, taken = tmp_path / f"{variables}.bp", 0
        with cz.Writer(path, eb=1e-3, engine=engine) as out:
            for _ in range(2):
                with out.step():
                    for name, k in itertools.product(range(variables), range(n)):
                        start = (2 * k, *[0] * (ndim - 1))
                        out.put(f"{name:0{length}}", x, shape=(2 * n, *x.shape[1:]), start=start)
                before, taken = taken, sum(file.stat().st_size for file in path.iterdir())
                of_blocks = asked[-1] - (1 << 20)  # without the reserve for everything else
                assert taken - before <= of_blocks
                assert of_blocks <= 9 * (taken - before) or length > 1


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("how", ["asynchronous", "both"])
def test_appending_no_step_in_the_background(
    how: str, ranks: int, mpirun: Callable, require_right: Callable, tmp_path: Path
) -> None:
    """A restart that ends before its first step: ADIOS2 would crash on closing the file. A later restart can go on."""
    for steps, already_there in (("1", ""), ("0", "1"), ("1", "1"), ("0", "2")):
        mpirun(ranks, "faults.py", how, tmp_path / "run.bp", "BP5", steps, already_there, timeout=60)
    assert require_right(tmp_path / "run.bp", 2) == 2
    assert not [block for block in cz.inspect_bp(tmp_path / "run.bp", check=True) if "error" in block]


@pytest.mark.parametrize(
    "others", [["notes.txt"], ["data.0", "data.csv"], ["figures/a.png"], ["md.idx", "old.bp/md.idx"]]
)
def test_a_folder_of_other_things_is_not_replaced(
    others: list[str], engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADIOS2 deletes everything in the folder, even if it is "." or "/"."""
    for name in others:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    monkeypatch.chdir(tmp_path)
    has_no_index = engine == "BP4" and "md.idx" not in others
    message = r"a folder with other things than a run, such as '.*', which"
    for path, append in itertools.product((tmp_path, ".", f"../{tmp_path.name}/"), {False, has_no_index}):
        with pytest.raises(cusz_core.ParameterError, match=message):
            cz.Writer(path, eb=1, engine=engine, append=append)
    assert [(tmp_path / name).read_text() for name in others] == ["mine"] * len(others)


def test_a_pipe_among_the_files_of_a_run(engine: Any, tmp_path: Path) -> None:
    """ADIOS2 would open it, and wait for ever for somebody to read it."""
    os.mkfifo(tmp_path / "data.0")
    with pytest.raises(cusz_core.ParameterError, match=r"a folder with other things than a run, such as 'data\.0'"):
        cz.Writer(tmp_path, eb=1, engine=engine)


@pytest.mark.parametrize("there", [[], ["data.0"], ["data.0", "md.0", "mmd.0", "profiling.json"]])
def test_an_empty_folder_or_one_of_a_run_that_was_killed_is_replaced(
    there: list[str], engine: Any, tmp_path: Path
) -> None:
    (tmp_path / "run.bp").mkdir()
    for name in there:
        (tmp_path / "run.bp" / name).touch()
    for _ in range(2):
        support.write_run(tmp_path / "run.bp", {"x": np.ones(5)}, eb=1, engine=engine)
        with cz.Reader(tmp_path / "run.bp") as run:
            assert len(run) == 1


@pytest.mark.parametrize("stop", [SystemExit, GeneratorExit, KeyboardInterrupt])
@pytest.mark.parametrize(
    "modes", [{}, {"overlap": True}, {"asynchronous": True}, {"overlap": True, "asynchronous": True}]
)
def test_a_program_that_is_stopped_between_steps(
    modes: dict[str, bool], stop: type[BaseException], tmp_path: Path
) -> None:
    """All steps that have ended are in the file, even those that are written later."""

    def simulate() -> None:
        with cz.Writer(tmp_path / "run.bp", eb=0, **modes) as out:
            for i in range(3):
                with out.step():
                    out.put("x", np.full(5, float(i)))
            raise stop

    with pytest.raises(stop):
        simulate()
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [step.read("x").tolist() for step in run] == [[float(i)] * 5 for i in range(3)]


def test_writing_in_the_background(tmp_path: Path) -> None:
    """A step is in the file once the next one is being written; a step that fails does not lose others."""
    x = support.smooth((64, 64, 64), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, asynchronous=True) as out:
        for i in range(4):
            with out.step():
                out.put("T", x + i)
            with pytest.raises(cusz_core.UnsupportedError), out.step():
                out.put("T", x.astype(np.longdouble))
        with cz.Reader(tmp_path / "run.bp") as run:
            assert len(run) >= 3
            for i in range(3):
                assert not support.violations(x + i, run[i].read("T"), 1e-3)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert len(run) == 4
        assert not support.violations(x + 3, run[3].read("T"), 1e-3)


def test_progress(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    x = support.smooth((20, 30), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, progress=True) as out:
        for _ in range(2):
            with out.step():
                out.put("T", x[:10], x.shape)
                out.put("T", x[10:], x.shape, (10, 0))
                out.put("S", x)
        (of_s, of_t) = sorted(out.summary(), key=lambda own: own.name)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines[:3]] == [
        "step 0",
        "step 1",
        "2 steps written, " + lines[2].split(", ")[-1],
    ]
    assert "variables 2, blocks 3, 0.0 MB" in lines[0]
    assert [line.split(":")[0].strip() for line in lines[3:]] == ["T", "S"]
    assert (of_t.blocks, of_s.blocks, of_t.steps) == (4, 2, 2)
    assert of_t.raw_bytes == 2 * x.nbytes
    assert of_t.gbps == of_t.raw_bytes / of_t.seconds / 1e9
    assert 0 < of_t.share + of_s.share < 1


def test_settings_by_patterns_of_names(tmp_path: Path) -> None:
    """A literal name takes precedence over patterns; among patterns, the first match counts."""
    x = support.smooth((20, 30), support.F64)
    own: dict[str, Any] = {"level*/rho": {"eb": 0.1}, "level[!0]/*": {"eb": 0.2}, "level1/rho": {"eb": 0.3}}
    own |= {"[x]": {"eb": 0.4}, "relative": {"eb": 1e-2, "mode": "rel"}}
    expected = {"level0/rho": 0.1, "level1/rho": 0.3, "level2/u": 0.2, "level0/u": 1e-3, "[x]": 0.4, "Level2/u": 1e-3}
    expected["relative"] = support.absolute_bound(x, 1e-2, "rel")
    support.write_run(tmp_path / "run.bp", dict.fromkeys(expected, x), eb=1e-3, variables=own)
    assert {b["variable"]: b["eb_abs"] for b in cz.inspect_bp(tmp_path / "run.bp")} == expected


def test_settings_that_fit_no_array_are_warned_of(tmp_path: Path) -> None:
    x = support.smooth((20, 30), support.F64)
    own = {"rho": {"eb": 0.1}, "level*/rho": {"eb": 0.2}, "psi": {"eb": 0.3}, "ps*": {"eb": 0.3}, "n[0-9]": {"eb": 0.3}}
    out = cz.Writer(tmp_path / "run.bp", eb=1e-3, variables=own)
    for _ in range(2):
        with out.step():
            out.put("level0/rho", x)
            out.put("psi", x + 1j)
            out.put("n", np.arange(10))
    with pytest.warns(UserWarning, match="variables= has 'rho', 'n\\[0-9\\]', and no array of such a name was put"):
        out.close()
    out.close()
    with cz.Writer(tmp_path / "none.bp", eb=1e-3, variables=own):
        pass  # no step, so no warning


def test_settings_that_decide_about_nothing_are_warned_of(tmp_path: Path) -> None:
    """The first pattern that matches counts: a later one's bound would be lost silently."""
    x = support.smooth((20, 30), support.F64)
    own = {"*": {"eb": 0.1}, "rho": {"eb": 0.2}, "level*/rho": {"eb": 0.3}, "[uz]": {"eb": 0.4}}
    out = cz.Writer(tmp_path / "run.bp", variables=own)
    with out.step():
        for name in ("rho", "level0/rho", "level1/rho", "z"):
            out.put(name, x if name != "z" else x + 1j)
    with pytest.warns(UserWarning, match="run.bp': variables= has 'level\\*/rho', '\\[uz\\]' without effect"):
        out.close()
    assert {b["variable"]: b["eb_abs"] for b in cz.inspect_bp(tmp_path / "run.bp", variables=["*rho"])} == {
        "rho": 0.2,
        "level0/rho": 0.1,
        "level1/rho": 0.1,
    }


def test_a_name_that_is_also_a_pattern_of_another_is_warned_of(tmp_path: Path) -> None:
    x = support.smooth((20, 30), support.F64)
    said = "variables= has 'a\\[1]', the name of an array, which also decided, as a pattern, about 'a1'"
    for name, expectation in (("a1", pytest.warns(UserWarning, match=said)), ("a2", contextlib.nullcontext())):
        out = cz.Writer(tmp_path / "run.bp", eb=1e-3, variables={"a[1]": {"eb": 0.5}})
        with out.step():
            out.put("a[1]", x)
            out.put(name, x)
        with expectation:
            out.close()  # warnings are errors in tests


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.float16])
def test_dimensions_that_are_named_later_and_others(dtype: Any, tmp_path: Path) -> None:
    path, x = tmp_path / "run.bp", support.smooth((20, 30), support.F64).astype(dtype)
    with cz.Writer(path, eb=1e-3) as out:
        for dims in (None, ("y", "x"), None, ("y", "x")):
            with out.step():
                out.put("T", x, dims=dims)
        others = r"has dims \('x', 'y'\), and had \('y', 'x'\) in earlier steps"
        with pytest.raises(cusz_core.ParameterError, match=others), out.step():
            out.put("T", x, dims=("x", "y"))
    with cz.Reader(path) as run:
        assert len(run) == 4
        assert run[3].read("T").dtype == dtype
    with cz.Writer(path, eb=1e-3, append=True) as out:
        with pytest.raises(cusz_core.ParameterError, match=others), out.step():
            out.put("T", x, dims=("x", "y"))
        for dims in (None, ("y", "x")):
            with out.step():
                out.put("T", x, dims=dims)
    with adios2.FileReader(str(path)) as plain_run:
        assert plain_run.read_attribute_string("T/dimensions") == "y x"


@pytest.mark.parametrize("names", ["y, x", ["y", "x"], "of latitude and longitude"])
def test_names_of_dimensions_that_another_program_has_given(names: Any, tmp_path: Path) -> None:
    path, x = tmp_path / "run.bp", support.smooth((20, 30), support.F32)
    with cz.Writer(path, eb=1e-3) as out, out.step():
        out.put("T", x)
        out.attribute("T/dimensions", names)
    with cz.Writer(path, eb=1e-3, append=True) as out:
        if names in ("y, x", ["y", "x"]):
            others = r"has dims \('x', 'y'\), and had \('y', 'x'\) in earlier steps"
            with pytest.raises(cusz_core.ParameterError, match=others), out.step():
                out.put("T", x, dims=("x", "y"))
        with out.step():
            out.put("T", x, dims=("y", "x"))
    with cz.Reader(path) as run:
        assert [np.abs(step.read("T") - x).max() <= 1e-3 for step in run] == [True, True]


def test_coordinates_that_nobody_gave_a_bound(tmp_path: Path) -> None:
    y, x = np.linspace(-90, 90, 181), np.linspace(0, 1, 50)
    out = cz.Writer(tmp_path / "run.bp", eb=1e-3, mode="rel")
    with out.step():
        out.put("lat", y, dims=("lat",))
        out.put("lon", x, dims=("lon",), eb=0)
        out.put("depth", x, dims=("depth",), eb=1e-3)
        out.put("T", np.outer(y, x), dims=("lat", "lon"))
        out.put("n", np.arange(5), dims=("n",))
    with pytest.warns(UserWarning, match="put them with eb=0 to keep them exactly: 'lat'$"):
        out.close()


def test_patterns_of_names_and_what_is_stored_exactly(tmp_path: Path) -> None:
    """A pattern's bound does not apply to integers, single values and texts; its choice of packing does."""
    x = support.smooth((20, 30), support.F64)
    own = {"*": {"eb": 0.5, "lossless": "zstd"}}
    numbers = np.arange(1000)
    fields = {"x": x, "n": numbers // 100, "mask": numbers > 300, "time": 3.5, "title": "a run"}
    support.write_run(tmp_path / "run.bp", fields, variables=own)
    found = {b["variable"]: b for b in cz.inspect_bp(tmp_path / "run.bp")}
    assert found["x"]["eb_abs"] == 0.5
    assert found["n"]["kind"] == "packed"
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [("n" in which, "m" in which) for which in (run, run[0])] == [(True, False)] * 2
        assert (run[0].read("time"), run[0].read("title")) == (3.5, "a run")
        assert run[0].read("x", (np.int64(3), 0)).shape == (17, 30)
        assert run[0].read("n", start=np.int64(3)).shape == (997,)
    out = cz.Writer(tmp_path / "own.bp", variables={"n": {"eb": 0.5}})
    with out, pytest.raises(cusz_core.UnsupportedError, match="stored exactly"), out.step():
        out.put("n", np.arange(10))


def test_without_ranges(cusz_cli: Callable, tmp_path: Path) -> None:
    """If no bound needs minimum and maximum, they can be left out; the archives stay the same."""
    x = support.smooth((20, 30), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, ranges=False) as out, out.step():
        out.put("A", x)
        out.put("R", x, mode="rel")
    with cz.Reader(tmp_path / "run.bp") as run:
        (a,), (r,) = run[0].blocks("A"), run[0].blocks("R")
    assert np.isnan([a["min"], a["max"]]).all()
    assert (r["min"], r["max"]) == (x.min(), x.max())
    assert a["checksum"] == cusz_core.inspect(cusz_core.compress(x, 1e-3)).checksum
    said = json.loads(cusz_cli("inspect", "--blocks", "--json", tmp_path / "run.bp")[1])
    blocks = {block["variable"]: block for block in said}
    assert "min" not in blocks["A"]
    assert (blocks["R"]["device"], blocks["R"]["min"], blocks["R"]["max"]) == (-1, x.min(), x.max())
    assert blocks["A"]["checksum"] == a["checksum"]


@BOTH_WAYS
def test_a_shape_may_change_and_a_type_may_not(overlap: bool, tmp_path: Path) -> None:
    """The type in a step that is not written yet counts, too; and that step is kept."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, overlap=overlap) as out:
        for n in (10, 12, 14):
            with out.step():
                out.put("T", np.ones((n, 5), np.float32))
            with pytest.raises(cusz_core.ParameterError, match="float64, 2 dimensions, and was float32"), out.step():
                out.put("T", np.ones((10, 5)))
    blocks = [block for block in cz.inspect_bp(tmp_path / "run.bp") if block["variable"] == "T"]
    assert [(block["step"], block["count"]) for block in blocks] == [(0, (10, 5)), (1, (12, 5)), (2, (14, 5))]
    assert steps_of(tmp_path / "run.bp") == 3


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        ({"eb": -1}, cusz_core.ParameterError, "eb is -1"),
        ({"eb": 1, "mode": "relative"}, cusz_core.ParameterError, "mode is 'relative'"),
        ({"eb": 1, "parameters": {"statslevel": 2}}, cusz_core.ParameterError, "statslevel = 2; it must be 0"),
        ({"eb": 1, "variables": {"T": {"accuracy": 1}}}, cusz_core.ParameterError, "has 'accuracy'; known are eb"),
        ({"eb": 1, "append": True}, cusz_core.ParameterError, "append needs an existing file"),
        ({"eb": 1, "engine": "BP4", "asynchronous": True}, cusz_core.UnsupportedError, "BP4 writes within the step"),
        ({"eb": 1, "binz": 64}, TypeError, "unexpected keyword argument 'binz'"),
        ({}, cusz_core.ParameterError, "there is no error bound for 'T'"),
    ],
)
def test_mistakes(wrong: dict[str, Any], kind: type, message: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=message):
        support.write_run(tmp_path / "run.bp", {"T": np.ones(5)}, **wrong)


def test_parameters_of_the_writer_of_a_variable_and_of_a_put(tmp_path: Path) -> None:
    """The most specific setting counts, and None means that nothing is set."""
    x = support.smooth((30, 40, 50), support.F32)
    stage = lossless_stages()[-1]  # zstd, if this build has it
    with (
        cz.Writer(
            tmp_path / "run.bp", eb=1e-2, bins=128, threads=1, variables={"V": {"bins": 256}}, predictor="lorenzo"
        ) as out,
        out.step(),
    ):
        out.put("S", x, predictor="spline")
        out.put("U", x, eb=None, bins=None)
        out.put("V", x)
        out.put("W", x, eb=1e-3, bins=512, lossless=stage)
        with pytest.raises(TypeError, match=r"put\(\) got an unexpected keyword argument 'binz'"):
            out.put("X", x, binz=64)  # type: ignore[call-arg]
    found = {block["variable"]: block for block in cz.inspect_bp(tmp_path / "run.bp")}
    assert {name: (block["eb"], block["bins"], block["version"]) for name, block in found.items()} == {
        "S": (1e-2, 64, 2),
        "U": (1e-2, 128, 1),
        "V": (1e-2, 256, 1),
        "W": (1e-3, 512, 1),
    }
    archives = {
        "S": cusz_core.compress(x, 1e-2, predictor="spline"),
        "W": cusz_core.compress(x, 1e-3, bins=512, lossless=stage, predictor="lorenzo"),
    }
    with cz.Reader(tmp_path / "run.bp") as run:
        for name, archive in archives.items():
            assert found[name]["archive_bytes"] == len(archive)
            assert support.same_bits(run[0].read(name), cusz_core.decompress(archive))
    ratio = {own.name: own.ratio for own in out.summary()}
    assert ratio["S"] == x.nbytes / len(archives["S"])


def rows_of_kinds(dtype: np.dtype, edge: int) -> tuple[list[np.ndarray], tuple[int, ...], list[int]]:
    """Blocks of every kind of field along the first axis, the global shape, and where each block begins."""
    made = [kind.make((3 + i % 4, edge, edge + 1), dtype) for i, kind in enumerate(KINDS.values())]
    ends = [0, *itertools.accumulate(len(x) for x in made)]
    return made, (ends[-1], edge, edge + 1), ends[:-1]


OF_MANY: dict[str, dict[str, Any]] = {
    "abs": {"eb": 1e-3},
    "rel": {"eb": 1e-6, "mode": "rel", "threads": 3},
    "pw_rel": {"eb": 1e-2, "mode": "pw_rel", "threads": 2},
    "lossless": {"eb": 0.0, "lossless": lossless_stages()[-1]},
    "fill": {"eb": 1e-3, "fill": 1e20, "predictor": "lorenzo", "bins": 1024},
    "ratio": {"ratio": 2.0},
    "overlap": {"eb": 1e-2, "overlap": True, "predictor": "spline"},
    "without ranges": {"eb": 1e-2, "ranges": False},
    "without memory": {"eb": 1e-2},
}


@pytest.mark.parametrize("how", OF_MANY)
def test_many_blocks_are_compressed_as_each_of_them_alone(
    how: str, dtype: Any, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their archives, byte for byte and in order, and their rows in the block table."""
    if how == "without memory":
        monkeypatch.setattr(compression.Compressor, "_memory", lambda *_: None)
    given = OF_MANY[how]
    for_archive = {key: value for key, value in given.items() if key in cusz_core.parameters.TABLE and key != "threads"}
    made, shape, begins = rows_of_kinds(np.dtype(dtype), 9)
    with cz.Writer(tmp_path / "run.bp", engine=engine, **given) as out:
        for _ in range(2):
            with out.step():
                for x, begin in zip(made, begins, strict=True):
                    out.put("T", x, shape, (begin, 0, 0))
    data = (tmp_path / "run.bp" / "data.0").read_bytes()
    with cz.Reader(tmp_path / "run.bp") as run:
        tables = [run[step].blocks("T") for step in range(2)]
    at = 0
    for table in tables:
        assert table["start"][:, 0].tolist() == begins
        for row, x in zip(table, made, strict=True):
            if how not in ("pw_rel", "lossless"):
                for_archive |= {"eb": row["eb_abs"], "mode": "abs"}
            alone = cusz_core.compress_described(x, cusz_core.Parameters(**for_archive))
            assert (at := data.find(alone.archive, at)) >= 0
            told = (alone.checksum, alone.outliers, len(alone.archive), x.nbytes)
            assert tuple(row[["checksum", "outliers", "archive_bytes", "raw_bytes"]]) == told
            if how == "pw_rel":
                np.testing.assert_equal(row["eb_abs"], alone.eb_abs)
            found = alone.range if alone.range.values and how != "without ranges" else (np.nan, np.nan)
            np.testing.assert_equal((row["min"], row["max"]), found[:2])
        assert (table["seconds"] >= 0).all()
    assert table["seconds"].sum() > 0


def test_one_call_compresses_the_blocks_of_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = support.calls_of(monkeypatch, cusz_core, "compress_many_described")
    monkeypatch.setattr(cusz_core, "compress_described", None)
    x = support.smooth((4, 5), support.F32)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        for _ in range(2):
            with out.step():
                for i in range(30):
                    for name in ("U", "V"):
                        out.put(name, x, (120, 5), (4 * i, 0))
    assert [len(fields) for fields, *_ in calls] == [30] * 4


def test_the_blocks_of_a_variable_may_be_put_in_any_way(tmp_path: Path) -> None:
    """With any mix of arguments, memory orders and kinds of arrays, the table is the same but for times."""
    x = support.smooth((40, 12, 10), support.F32)
    ints = np.arange(400).reshape(40, 10)
    whole, bound = x.shape, 1e-3
    fortran, big = np.asfortranarray(x[5:9]), np.repeat(x[9:12], 2, axis=2)[:, :, ::2]
    ways: list[tuple[Any, int, dict[str, Any]]] = [
        (x[0:5], 0, {"shape": whole, "start": (0, 0, 0)}),
        (fortran, 5, {"shape": whole, "start": (5, 0, 0)}),
        (big, 9, {"shape": list(whole), "start": [9, 0, 0], "dims": ("z", "y", "x")}),
        (x[12:15], 12, {"shape": whole, "start": np.array([12, 0, 0]), "eb": bound}),
        (x[15:16], 15, {"shape": whole, "start": (15, 0, 0), "eb": bound, "mode": "abs"}),
        (x[16:20], 16, {"shape": whole, "start": (16, 0, 0), "eb": bound, "fill": None}),
        (x[20:30], 20, {"shape": tuple(np.array(whole)), "start": (20, 0, 0)}),
        (np.empty((0, 12, 10), np.float32), 30, {"shape": whole, "start": (30, 0, 0)}),
        (x[30:40], 30, {"shape": whole, "start": (30, 0, 0), "dims": ["z", "y", "x"]}),
    ]
    tables = []
    for name in ("plainly", "in any way"):
        with cz.Writer(tmp_path / f"{name}.bp", eb=bound) as out, out.step():
            for array, begin, how in ways:
                if name == "plainly":
                    plain = np.ascontiguousarray(array)
                    out.put("T", plain, whole, (begin, 0, 0), dims=("z", "y", "x"))
                else:
                    out.put("T", array, **how)
                    out.put("ids", ints[begin : begin + len(array)], ints.shape, (begin, 0))
        with cz.Reader(tmp_path / f"{name}.bp") as run:
            assert np.abs(run[0].read("T") - x).max() <= bound
            tables.append(run[0].blocks("T"))
            if name != "plainly":
                assert np.array_equal(run[0].read("ids"), ints)
        with adios2.FileReader(str(tmp_path / f"{name}.bp")) as plain_run:
            assert plain_run.read_attribute_string("T/dimensions") == "z y x"
    for table in tables:
        table["seconds"] = 0
    assert repr(tables[0].tolist()) == repr(tables[1].tolist())


@pytest.mark.parametrize("is_first", [True, False])
def test_a_block_that_is_wrong_is_refused_wherever_it_comes(is_first: bool, tmp_path: Path) -> None:
    x = support.smooth((4, 5), support.F32)
    shape = (8, 5)
    wrong = [
        ({"array": x, "start": (5, 0)}, "along axis 0 it ends at 9"),
        ({"array": x, "start": (0,)}, "start has 1"),
        ({"array": x, "start": (-1, 0)}, "from 0 to"),
        ({"array": x, "start": (0.0, 0)}, "must be an integer"),
        ({"array": x[0], "start": (0, 0)}, "has 1 dimensions"),
        ({"array": np.ma.masked_array(x), "start": (0, 0)}, "masked"),
        ({"array": x.astype(">f4"), "start": (0, 0)}, "dtype >f4"),
        ({"array": x, "start": (0, 0), "shape": (8.0, 5)}, "must be an integer"),
        ({"array": x, "start": (0, 0), "eb": -1.0}, "eb is -1.0"),
        ({"array": x, "start": (0, 0), "dims": ("x", "x")}, "different names"),
    ]
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out, out.step():
        if not is_first:
            out.put("T", x, shape, (4, 0))
        for arguments, message in wrong:
            with pytest.raises(cusz_core.CuszError, match=message):
                out.put("T", **{"shape": shape, **arguments})
        out.put("T", x, shape, (0, 0))
        if is_first:
            out.put("T", x, shape, (4, 0))
    with cz.Reader(tmp_path / "run.bp") as run:
        assert np.abs(run[0].read("T") - np.vstack([x, x])).max() <= 1e-3


def test_puts_and_steps_in_their_order(tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        with pytest.raises(cusz_core.ParameterError, match="needs an open step"):
            out.put("T", np.ones(5))
        with out.step(), pytest.raises(cusz_core.ParameterError, match="a step is already open"):
            out.step()
        with out.step(), pytest.raises(cusz_core.ParameterError, match="name of a block table"):
            out.put("cusz/blocks/T", np.ones(5))
        out._together.is_closing = True
        with pytest.raises(cusz_core.ParameterError, match="another rank has closed the Writer"):
            out.step()
    with pytest.raises(cusz_core.ParameterError, match="is closed"):
        out.step()
    out.close()


@pytest.mark.parametrize(
    ("engine", "modes"),
    [("BP5", {}), ("BP5", {"overlap": True}), ("BP5", {"asynchronous": True}), ("BP4", {}), ("BP4", {"overlap": True})],
    ids=["BP5", "BP5-overlap", "BP5-asynchronous", "BP4", "BP4-overlap"],
)
def test_a_program_that_goes_to_another_folder(
    engine: Any, modes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path keeps its meaning, although files are opened only when they are needed."""
    ids = np.arange(600).reshape(20, 30)
    x = support.smooth((20, 30), support.F32)
    for folder in ("a", "b", "link"):  # the same names of files in all of them
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "deep").mkdir()
    (tmp_path / "link" / "deep").symlink_to(tmp_path / "a" / "deep")
    for number, folder in enumerate(("a", "b", "link")):
        monkeypatch.chdir(tmp_path / folder)
        with cz.Writer("run.bp", eb=1e-3, engine=engine, **modes) as out:
            for n in range(3):
                with out.step():
                    out.put("ids", ids + 1000 * number + n, lossless="none")
                    out.put("x", x + 1000 * number + n)
                monkeypatch.chdir(tmp_path)
    monkeypatch.chdir(tmp_path / "link")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "link"]
    with cz.Reader("deep/../run.bp") as run:  # of a
        blocks = cz.inspect_bp("deep/../run.bp", check=True)
        monkeypatch.chdir(tmp_path / "b")
        for step in run:
            assert np.array_equal(step.read("ids"), ids + step.index)
            assert np.abs(step.read("x") - (x + step.index)).max() <= 1e-3
            assert step.verify("x") == 1
        found = list(blocks)
    assert len(found) == 6
    assert not [block for block in found if "error" in block]
    assert {block["max"] for block in found if block["variable"] == "ids"} == {599.0, 600.0, 601.0}
    checked = (tmp_path / "a" / "run.bp" / "cusz.checks").read_bytes()
    assert len(checked.splitlines()) == 4
    assert b'"md.idx"' in checked.splitlines()[-1]


@pytest.mark.parametrize("texts", [["x", "y"], ("x", "y"), np.array(["x", "y"])], ids=["list", "tuple", "array"])
def test_several_texts(texts: Any, tmp_path: Path) -> None:
    """BP4 writes out of bounds for them, and SST's readers get an empty text."""
    with cz.Writer(tmp_path / "five.bp", eb=1) as out:
        out.attribute("axes", texts)
    with adios2.FileReader(str(tmp_path / "five.bp")) as run:
        assert run.read_attribute_string("axes") == ["x", "y"]
    for engine in ("BP4", "SST"):
        out = cz.Writer(tmp_path / engine, eb=1, engine=engine, parameters={"RendezvousReaderCount": 0})
        with out, pytest.raises(cusz_core.UnsupportedError, match=f"{engine} cannot write"):
            out.attribute("axes", texts)


@pytest.mark.parametrize("value", [np.complex64(1j), np.array([1j, 2])], ids=["number", "array"])
def test_complex_attributes_of_a_stream(value: Any, tmp_path: Path) -> None:
    """SST leaves them out silently."""
    out = cz.Writer(tmp_path / "stream", eb=1, engine="SST", parameters={"RendezvousReaderCount": 0})
    with out, pytest.raises(cusz_core.UnsupportedError, match="'waves' is complex, which SST does not send"):
        out.attribute("waves", value)


def test_attributes_of_any_layout(engine: Any, tmp_path: Path) -> None:
    """ADIOS2 reads an array's memory as if it were contiguous, even if it is not."""
    x = np.arange(24.0).reshape(4, 6)
    given: dict[str, Any] = {
        **{"strided": x[0, ::2], "reversed": x[1, ::-1], "transposed": x.T, "column": x[:, 3]},
        **{"big": np.arange(5, dtype=">i4"), "number": 2**63, "bool": True, "constant": np.broadcast_to(7.0, 3)},
        "text": "a test",
    }
    if engine == "BP5":
        given["texts"] = np.array(["x", "y"])
    with cz.Writer(tmp_path / "run.bp", eb=1, engine=engine) as out:
        for name, value in given.items():
            out.attribute(name, value)
        with out.step():
            out.put("T", np.ones(3))
    with cz.Reader(tmp_path / "run.bp") as run:
        found = run.attributes
    assert sorted(found) == sorted(given)
    for name, value in given.items():
        assert np.ravel(found[name]).tolist() == np.ravel(value).tolist(), name


def test_an_attribute_of_another_type_is_not_appended(engine: Any, tmp_path: Path) -> None:
    """ADIOS2 could not open the file any more."""
    path, x = tmp_path / "run.bp", support.smooth((20, 30), support.F64)
    with cz.Writer(path, engine=engine, eb=1e-3) as out:
        out.attribute("dt", 0.5)
        with out.step():
            out.put("T", x)
    with cz.Writer(path, engine=engine, eb=1e-3, append=True) as out:
        for value in (1, "text"):
            with pytest.raises(
                cusz_core.ParameterError, match="the attribute 'dt' is of type double in the file, and w"
            ):
                out.attribute("dt", value)
        out.attribute("dt", 1.0)
        with out.step():
            out.put("T", x)
    with cz.Reader(path) as run:
        assert len(run) == 2
        assert run.attributes["dt"] == 1


@BOTH_WAYS
def test_attributes_after_the_last_step(engine: Any, overlap: bool, tmp_path: Path) -> None:
    """There is a warning only about attributes that are not stored."""
    path = tmp_path / "run.bp"
    out = cz.Writer(path, eb=1, engine=engine, overlap=overlap)
    out.attribute("before", 1)
    for name in ("between", "late"):
        with out.step():
            out.put("T", np.ones(3))
        out.attribute(name, 1)
    said = "run.bp': attributes that were set after the last step are not stored: 'late'$"
    with contextlib.nullcontext() if overlap else pytest.warns(UserWarning, match=said):
        out.close()
    with cz.Reader(path) as run:
        assert sorted(run.attributes) == ["before", "between", *(["late"] if overlap else [])]


def test_attributes_without_a_step(engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"
    with cz.Writer(path, eb=1, engine=engine) as out:
        out.attribute("first", 1)
    out = cz.Writer(path, eb=1, engine=engine, append=True)
    out.attribute("late", 1)
    with pytest.warns(UserWarning, match="not stored: 'late'$"):
        out.close()
    with cz.Reader(path) as run:
        assert sorted(run.attributes) == ["first"]


@pytest.mark.parametrize("value", [[1, 2.5], [True, False], None], ids=str)
def test_what_no_attribute_can_be(value: Any, tmp_path: Path) -> None:
    said = "'a': .*pass a text, a list of texts, a number or an array"
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out, pytest.raises(cusz_core.ParameterError, match=said):
        out.attribute("a", value)


def test_arrays_are_named_in_what_is_proposed(tmp_path: Path) -> None:
    said = r"the block of 'T' has .*convert with array\.astype\(array\."
    out = cz.Writer(tmp_path / "run.bp", eb=1e-3)
    with out, out.step(), pytest.raises(cusz_core.UnsupportedError, match=said):
        out.put("T", np.ones(5, ">f4"))


def test_an_array_of_no_numbers_as_an_attribute(engine: Any, tmp_path: Path) -> None:
    """BP4's reader would return one number, with whatever is in memory."""
    with cz.Writer(tmp_path / "run.bp", eb=1, engine=engine) as out:
        if engine == "BP4":
            with pytest.raises(cusz_core.UnsupportedError, match="'none' is an array of no numbers, which BP4 cannot"):
                out.attribute("none", np.empty(0))
            return
        out.attribute("none", np.empty(0))
        with out.step():
            out.put("T", np.ones(3))
    with cz.Reader(tmp_path / "run.bp") as run:
        assert run.attributes["none"].shape == (0,)


@pytest.mark.parametrize("text", ["a\0b", "a\udcff"], ids=["NUL", "surrogate"])
def test_a_text_that_adios2_does_not_store(text: str, engine: Any, tmp_path: Path) -> None:
    """It would cut the first at the NUL; the second would fail at the start of the step, and end the file."""
    with cz.Writer(tmp_path / "run.bp", eb=1, engine=engine) as out:
        for name, value in ((text, np.ones(3)), ("title", text)):
            with pytest.raises(cusz_core.ParameterError, match=r"is 'a\\"), out.step():
                out.put(name, value)
        for name, other in ((text, 1), ("title", text)):
            with pytest.raises(cusz_core.ParameterError, match=r"is 'a\\"):
                out.attribute(name, other)
        with out.step():
            out.put("title", "ab")
    with cz.Reader(tmp_path / "run.bp") as run:
        assert run["title"].read() == "ab"
        assert run.attributes == {}


@pytest.mark.parametrize("character", ["x", "ä"])
def test_long_texts(character: str, engine: Any, tmp_path: Path) -> None:
    """BP4 stores their lengths in 16 bits; a longer one would make the whole file unreadable."""
    most = character * (65535 // len(character.encode()))
    with cz.Writer(tmp_path / "run.bp", eb=1, engine=engine) as out:
        out.attribute("text", most)
        with out.step():
            out.put("title", most)
        too_long = pytest.raises(cusz_core.UnsupportedError, match=r"a text of 6553\d bytes, and with more than")
        with too_long if engine == "BP4" else contextlib.nullcontext():
            out.attribute("more", most + character)
        with too_long if engine == "BP4" else contextlib.nullcontext(), out.step():
            out.put("title", most + character)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert run.attributes["text"] == most
        assert run[0].read("title") == most
        if engine == "BP5":
            assert run.attributes["more"] == run[1].read("title") == most + character


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the path is empty"),
        ("a\0b.bp", "contains a NUL character"),
        (b"run.bp", r"the path is b'run\.bp'; it must be a text or an os\.PathLike of one"),
    ],
)
def test_a_path_that_is_none(
    path: Any, message: str, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADIOS2 would write into the current folder, or into one whose name ends at the NUL."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(cusz_core.ParameterError, match=message):
        support.write_run(path, {"T": np.ones(5)}, eb=1, engine=engine)
    assert list(tmp_path.iterdir()) == []
    if not path:
        support.write_run(tmp_path, {"T": np.ones(5)}, eb=1, engine=engine)  # a file in the current folder
        for read in (cz.Reader, cz.inspect_bp):
            with pytest.raises(FileNotFoundError):
                read(path)


Boxes = list[tuple[tuple[int, ...], tuple[int, ...]]]


def first_overlap(boxes: Boxes) -> tuple[int, int] | None:
    return blocks.first_overlap(*(np.array([box[i] for box in boxes], np.int64) for i in range(2)))


BOXES_IN_OTHERS: dict[str, Callable[[np.random.Generator], Any]] = {
    "anywhere": lambda rng: (rng.integers(0, 90, (700, 2)), rng.integers(0, 9, (700, 2))),
    "hardly overlapping": lambda rng: (rng.integers(0, 900, (700, 3)), rng.integers(1, 60, (700, 3))),
    "all the same": lambda _: (np.full((700, 2), 3), np.full((700, 2), 4)),
    "one in the other": lambda _: (np.arange(700)[:, None], 1400 - 2 * np.arange(700)[:, None]),
    "slabs across each other": lambda _: (
        np.array([(i, 0) if i < 200 else (0, i - 200) for i in range(400)]),
        np.array([(1, 200) if i < 200 else (200, 1) for i in range(400)]),
    ),
    "none": lambda _: (np.zeros((0, 2), np.int64), np.zeros((0, 2), np.int64)),
}


@pytest.mark.parametrize("kind", BOXES_IN_OTHERS)
def test_boxes_that_begin_in_others(kind: str) -> None:
    start, count = BOXES_IN_OTHERS[kind](np.random.default_rng(7))
    end = start + count
    expected = [
        bool((count[i] > 0).all()) and np.count_nonzero(((start <= point) & (point < end)).all(axis=1)) > 1
        for i, point in enumerate(start)
    ]
    assert blocks.begin_in_others(start, count).tolist() == expected


def test_boxes_of_a_grid_are_compared_with_few() -> None:
    """The number of pairs that are compared grows in proportion to the number of boxes."""

    def pairs(n: int) -> int:
        start = np.array(list(itertools.product(range(n), repeat=2)), np.int64)
        return sum(len(numbers) ** 2 for numbers, _, _ in blocks._groups(start, np.ones_like(start)))

    assert pairs(64) <= 4.5 * pairs(32)
    assert pairs(64) <= 128 * 64 * 64


def test_first_overlap() -> None:
    grid: Boxes = [((3 * i, 4 * j), (3, 4)) for i in range(10) for j in range(10)]
    assert first_overlap(grid) is None
    assert first_overlap([*grid, ((7, 7), (0, 5))]) is None, "an empty box overlaps nothing"
    assert first_overlap([*grid, ((29, 39), (1, 1))]) == (99, 100)
    assert first_overlap([((0,), (5,)), ((5,), (5,)), ((4,), (1,))]) == (0, 2)
    flat: Boxes = [((0, 0, k), (8, 8, 1)) for k in range(300)]
    assert first_overlap(flat) is None
    assert first_overlap([((4, 3, 28), (1, 2, 1)), *flat]) == (0, 29)
    assert first_overlap([((0, 0), (9, 9))] * 300) == (0, 1)
    nested: Boxes = [((0, 0), (1, 200)), *(((i, i), (1, 200)) for i in range(1, 200))]
    assert first_overlap(nested) is None, "no cut leaves them whole"


@given(seed=st.integers(0, 2**32 - 1), ndim=st.integers(1, 3), n=st.integers(0, 200), room=st.sampled_from([20, 300]))
def test_overlaps_are_those_that_comparing_all_boxes_finds(seed: int, ndim: int, n: int, room: int) -> None:
    rng = np.random.default_rng(seed)
    start, count = rng.integers(0, room, (n, ndim)), rng.integers(0, 4, (n, ndim))
    end = start + count
    meet = ((start[:, None] < end) & (end[:, None] > start)).all(axis=2) & (count > 0).all(axis=1)
    meet &= meet.T & ~np.eye(n, dtype=bool)
    found = first_overlap(
        [(tuple(s), tuple(c)) for s, c in zip(start.tolist(), count.tolist(), strict=True)] or [((0,), (0,))]
    )
    assert (found is not None) == meet.any()
    assert found is None or meet[found]


# ---------------------------------------------------------------------------------------------- ranks that fail


FEW_DESCRIPTORS = """
import gc, os, resource, sys
import cusz_operator as cz
from cusz_core import CuszError
cz.Writer(sys.argv[1], eb=1, engine=sys.argv[2]).close()  # which loads all that there is to load
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
refused = 0
for left in range(9):
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for _ in range(left):
            os.close(taken.pop())
    try:
        cz.Writer(f"{sys.argv[1]}.{left}", eb=1, engine=sys.argv[2]).close()
    except CuszError:
        refused += 1
    for descriptor in taken:
        os.close(descriptor)
    gc.collect()
print(refused)
"""


def test_too_few_descriptors_to_open(engine: Any, python: Callable, tmp_path: Path) -> None:
    """An error, after which the process goes on: ADIOS2 alone ends it if only some of the files can be opened."""
    refused = int(python(FEW_DESCRIPTORS, tmp_path / "run.bp", engine).stdout)
    assert 0 < refused < 9


NO_CHECKSUMS = """
import os, sys
import cusz_operator as cz
from cusz_core import CuszError
from cusz_operator.tables import checks
path, engine = sys.argv[1:]

class Refused:
    def __init__(self, *_):
        # the files that ADIOS2 has opened cannot be written
        for number in os.listdir("/proc/self/fd"):
            if path in os.path.realpath(f"/proc/self/fd/{number}"):
                os.dup2(os.open(os.devnull, os.O_RDONLY), int(number))
        raise OSError("no descriptors left")

checks.Recorder = Refused
try:
    cz.Writer(path, eb=1, engine=engine)
except CuszError as error:
    print("refused:", error)
"""


def test_a_file_that_is_open_and_cannot_be_written(engine: Any, python: Callable, tmp_path: Path) -> None:
    """ADIOS2's destructor must not be called, because it would write to the file."""
    told = python(NO_CHECKSUMS, tmp_path / "run.bp", engine).stdout
    assert "refused:" in told
    assert "no descriptors left" in told


@BOTH_WAYS
def test_a_step_that_is_interrupted(overlap: bool, tmp_path: Path) -> None:
    """Nothing that it put gets into the next step."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, overlap=overlap) as out:
        with out.step():
            out.put("U", np.ones(5, np.float32))
        with contextlib.suppress(KeyboardInterrupt), out.step():
            out.put("stale", np.ones(5, np.float32))
            out.put("time", 0.5)
            raise KeyboardInterrupt
        with out.step():
            out.put("U", np.ones(5, np.float32))
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [step.variables for step in run] == [["U"], ["U"]]


@BOTH_WAYS
@pytest.mark.parametrize("where", ["put", "put_table", "end_step"])
def test_a_step_that_is_interrupted_while_it_is_written(
    where: str, overlap: bool, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADIOS2 would merge the next step into it. Complete steps are kept, and a Writer can append to them."""
    path, x = tmp_path / "run.bp", support.smooth((20, 30), support.F32)

    def interrupt(*_: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    with cz.Writer(path, eb=1e-3, engine=engine, overlap=overlap) as out:
        for n in range(3 if overlap else 2):
            with out.step():
                out.put("U", x + n)
        monkeypatch.setattr(output.Output, where, interrupt)
        with pytest.raises(KeyboardInterrupt), out.step():
            out.put("U", x + 100)
        with pytest.raises(cusz_core.ParameterError, match="is closed"):
            out.step()
    support.write_run(path, {"U": x + 2}, eb=1e-3, engine=engine, append=True)
    with cz.Reader(path) as run:
        steps = [step for step in run if "U" in step]
        assert len(steps) == 3
        for n, step in enumerate(steps):
            assert np.abs(step.read("U") - (x + n)).max() <= 1e-3


def test_bounds_that_look_alike(tmp_path: Path) -> None:
    """The repr of other number types may show fewer digits than they have."""
    x = support.smooth((50, 60), support.F32)
    close = np.float16(0.001)
    with np.printoptions(legacy="1.25"), cz.Writer(tmp_path / "run.bp") as out:
        assert repr(close) == repr(0.001)
        for eb in (close, 0.001):
            with out.step():
                out.put("U", x, eb=eb)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [step.blocks("U")["eb_abs"][0] for step in run] == [float(close), 0.001]


def test_blocks_without_values_have_no_range(tmp_path: Path) -> None:
    x = np.full((20, 30), 5.0, np.float32)
    x[:10] = np.nan
    for mode in ("abs", "rel", "pw_rel"):
        with cz.Writer(tmp_path / "run.bp", eb=1e-3, mode=mode) as out, out.step():
            for name, field in (("U", x), ("N", x[:10])):
                for start in range(0, len(field), 10):
                    out.put(name, field[start : start + 10], field.shape, (start, 0))
        with cz.Reader(tmp_path / "run.bp") as run:
            assert run[0].value_range("U") == (5.0, 5.0)
            assert run[0].value_range("N") is None
            assert np.isnan(run[0].blocks("U")["min"]).tolist() == [True, False]


# ------------------------------------------------------------------------------------------------- appending

X, IDS = support.smooth((20, 30), support.F64), np.arange(600).reshape(20, 30)


@pytest.mark.parametrize("first", ["none", "zstd"])
def test_packing_cannot_change_by_appending(first: str, engine: Any, tmp_path: Path) -> None:
    """ADIOS2 could not read the file afterwards: it would crash or wait for ever."""
    path, mask, then = tmp_path / "run.bp", IDS // 100, {"none": "zstd", "zstd": "none"}[first]
    x = support.smooth((20, 30), support.F32)

    def write(lossless: str, append: bool) -> None:
        fields = {"mask": mask, "x": x, "z": x + 1j * x, "time": 0.5}
        of_mask = {"mask": {"lossless": lossless}}
        support.write_run(path, fields, eb=1e-3, engine=engine, append=append, variables=of_mask)

    write(first, False)
    state = {"none": "stored without an operator", "zstd": "packed"}
    message = f"'mask' is {state[first]} in the file, and would be {state[then]} .*: pass lossless='{first}'"
    with pytest.raises(cusz_core.ParameterError, match=message):
        write(then, True)
    write(first, True)
    with cz.Reader(path) as run:
        steps = [step for step in run if "mask" in step]  # BP4 keeps the step that failed, without variables
        assert len(steps) == 2
        for step in steps:
            assert np.array_equal(step.read("mask"), mask)
            assert np.abs(step.read("z") - (x + 1j * x)).max() < 2e-3


#: Values of every form, under the words that messages use for them (after "one ").
FORMS: dict[str, Any] = {
    **{kind: X.astype(kind) for kind in ("float64", "float32", "float16", "complex64")},
    **{kind: IDS.astype(kind) for kind in ("int64", "int32", "uint8")},
    **{"bool": IDS % 7 == 0, "text": "box", "one float64": np.float64(0.5), "one float32": np.float32(0.5)},
    **{"one value": 0.5, "1-dim": X[0], "2-dim": X},
}


@pytest.mark.parametrize(
    ("was", "then"),
    [
        # ADIOS2 would read wrong values, crash, or no longer find the file's variables.
        *[("float32", "float64"), ("int64", "int32"), ("one float64", "one float32"), ("text", "one float64")],
        # Both are stored alike, and a Reader would return all steps as one of the two: beyond the bound, or not at all.
        *[("float32", "float16"), ("float16", "float32"), ("uint8", "bool"), ("bool", "uint8")],
        *[("float32", "complex64"), ("complex64", "float32")],
        # The variable would not be found, its old steps would be read as zeros, or the process would end.
        *itertools.permutations(["one value", "1-dim", "2-dim"], 2),
    ],
)
def test_what_cannot_change_by_appending(was: str, then: str, engine: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.bp"

    def write(form: str, append: bool) -> None:
        with cz.Writer(path, eb=1e-6, engine=engine, append=append) as out, out.step():
            out.put("x", FORMS[form], dims=("b", "a") if np.ndim(FORMS[form]) == 2 else None)

    write(was, False)
    words = [form.removeprefix("one ") for form in (was, then)]
    message = "'x' is .*{}.* in the file, and would be .*{}.* in what is appended".format(*words)
    if "complex64" in words:
        message = "'x' is of complex numbers, and another one of this name is float32"
    with pytest.raises(cusz_core.ParameterError, match=message):
        write(then, True)
    write(was, True)
    with cz.Reader(path) as run:
        assert run["x"].attributes == ({"dimensions": "b a"} if np.ndim(FORMS[was]) == 2 else {})
        steps = [step for step in run if "x" in step]  # BP4 keeps the step that failed, without variables
        assert len(steps) == 2
        for step in steps:
            if was == "text":
                assert step.read("x") == "box"
            else:
                assert step.dtype("x") == np.asarray(FORMS[was]).dtype
                assert np.abs(step.read("x").astype(np.complex128) - FORMS[was]).max() <= 2e-6


def test_blocks_without_a_place_are_not_continued_by_an_array(engine: Any, tmp_path: Path) -> None:
    x = support.smooth((20, 30), support.F32)
    with Program(tmp_path / "run.bp", engine) as program, program.step():
        program.put("x", x, shape=(), eb=1e-3)
    out = cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine, append=True)
    message = "'x' is blocks without a place in the file, and would be a 2-dimensional array in what is appended"
    with out, pytest.raises(cusz_core.ParameterError, match=message), out.step():
        out.put("x", x)


def test_one_value_is_put_once_in_a_step(engine: Any, tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine) as out, out.step():
        for _ in range(2):
            out.put("t", 1.5)
            out.put("nan", np.nan)
        with pytest.raises(cusz_core.ParameterError, match=r"'t' is one value, which has been put as 1\.5"):
            out.put("t", 2.5)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [step.read("t") for step in run] == [1.5]


def test_a_variable_that_cannot_be_read_does_not_stop_appending(tmp_path: Path) -> None:
    """In BP4, because its first array is empty."""
    with Program(tmp_path / "run.bp", "BP4") as program:
        for n in (0, 3):
            with program.step():
                program.put("x", np.ones(n, np.float32))
    y = support.smooth((20, 30), support.F32)
    support.write_run(tmp_path / "run.bp", {"y": y}, eb=1e-3, engine="BP4", append=True)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert np.abs(run[2].read("y") - y).max() <= 1e-3


@pytest.mark.parametrize("kept", [0, 1, 2, 3, -2])
def test_steps_that_are_dropped_by_appending(kept: int, tmp_path: Path) -> None:
    """What was recorded about them does not apply to the steps that replace them."""
    path, x = tmp_path / "run.bp", support.smooth((20, 30), support.F32)
    before = kept if kept >= 0 else 4 + kept  # -1 keeps all

    def write(out: cz.Writer, names: str) -> None:
        for n in range(3):
            with out.step():
                for name in names:
                    out.put(name, x + n)

    with cz.Writer(path, eb=1e-2) as out:
        write(out, "UVW")
    with cz.Writer(path, eb=1e-3, append=True, parameters={"AppendAfterSteps": kept}) as out:
        if before:
            with cz.Reader(path) as run:  # before the first new step
                assert [step.variables for step in run] == [list("UVW")] * before
                for step in run:
                    assert np.abs(step.read("V") - (x + step.index)).max() <= 1e-2
        write(out, "U")
    expected = [list("UVW")] * before + [["U"]] * 3
    with cz.Reader(path) as run:
        assert [step.variables for step in run] == expected
        assert run["U"].steps == list(range(before + 3))
        for step in run:
            n = step.index if step.index < before else step.index - before
            for name in step.variables:
                assert np.abs(step.read(name) - (x + n)).max() <= (1e-2 if step.index < before else 1e-3)
                assert step.verify(name) == 1
    found = {each.name: each for each in cz.inspect_variables(path)}
    assert {name: list(own.steps) for name, own in found.items()} == {
        name: [n for n, names in enumerate(expected) if name in names] for name in ("UVW" if before else "U")
    }
    bounds = [1e-2] * bool(before) + [1e-3]
    assert [asked.eb for asked in found["U"].asked if asked is not None] == bounds
    with cz.Writer(path, eb=1e-3, append=True) as out:
        write(out, "U")
    with cz.Reader(path) as run:
        assert len(run) == before + 6


def test_what_adios2_wrote_alone_cannot_be_continued_compressed(engine: Any, tmp_path: Path) -> None:
    x = support.smooth((20, 30), support.F32)
    for name, array in (("x", x), ("n", np.arange(600).reshape(20, 30))):
        path = tmp_path / f"{name}.bp"
        with Program(path, engine) as program, program.step():
            program.put(name, array)
        lossless: Any = "zstd" if name == "n" else None
        message = f"'{name}' is stored without an operator in the file"
        out = cz.Writer(path, eb=1e-3, engine=engine, append=True)
        with out, pytest.raises(cusz_core.ParameterError, match=message), out.step():
            out.put(name, array, lossless=lossless)
    more = {"n": np.arange(600).reshape(20, 30), "new": x}
    support.write_run(tmp_path / "n.bp", more, eb=1e-3, engine=engine, append=True)
    with cz.Reader(tmp_path / "n.bp") as run:
        first, last = (step for step in run if "n" in step)
        assert np.array_equal(last.read("n"), first.read("n"))
        assert np.abs(last.read("new") - x).max() <= 1e-3


EMPTY_STEPS = """
import sys
import numpy as np
import cusz_operator as cz
with cz.Reader(sys.argv[1]) as run:
    print([(step.variables, step.read("u").tolist() if "u" in step.variables else None) for step in run])
with cz.Reader(sys.argv[1]) as run:
    print([run[i].variables for i in range(len(run))])
print([(own.name, own.steps) for own in cz.inspect_variables(sys.argv[1])])
"""


def test_steps_without_variables(engine: Any, tmp_path: Path) -> None:
    """ADIOS2 2.12 cannot read a BP4 file with an empty step between others: it ends the process."""
    for name, how_many in {"first": (0, 1), "between": (1, 0, 0, 2), "last": (1, 0)}.items():
        path = tmp_path / f"{name}.bp"
        for append in (False, True):
            with cz.Writer(path, eb=1e-3, engine=engine, append=append) as out:
                for n in how_many:
                    with out.step():
                        if n:
                            out.put("u", np.full(8, n, np.float32))
        said = support.run([sys.executable, "-c", EMPTY_STEPS, path]).stdout.splitlines()
        there = [i for i, n in enumerate(2 * how_many) if n]
        assert said[0] == str([(["u"], [float(n)] * 8) if n else ([], None) for n in 2 * how_many])
        assert said[1] == str([["u"] if n else [] for n in 2 * how_many])
        assert said[2] == str([("u", tuple(there))])
