"""A Writer with a PSNR, a ratio or a number of bytes as its goal reaches it, with one bound for all ranks."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import goals
import numpy as np
import pytest
from goals import CASES, FILL, STEPS

import cusz_core
import cusz_operator as cz
import support
from cusz_core import embedding
from cusz_core.cli import main
from cusz_operator.inspecting.variables import Asked

pytest.importorskip("adios2")
from other_program import Program

COMPRESSED = ("U", "V", "W", "X")
X = support.smooth((40, 50, 30), support.F32)


def psnr_of(x: np.ndarray, y: np.ndarray) -> float:
    """The PSNR by definition, over values that are finite and not fill."""
    counts = np.isfinite(x) & (x != FILL)
    values, errors = x[counts].astype(np.float64), (x[counts].astype(np.float64) - y[counts])
    rmse = math.sqrt(np.square(errors).mean())
    return 20 * math.log10((values.max() - values.min()) / rmse) if rmse else math.inf


def fraction_of(bound: float, x: np.ndarray) -> float:
    """The fraction of the value range, with three digits, that gives exactly this bound by the library's own rule."""
    found = cusz_core.value_range(x, float(FILL))
    fraction = float(f"{bound / (found.max - found.min):.2e}")
    assert bound == embedding.absolute_bound(fraction, found.min, found.max)
    return fraction


def sums(step: Any, names: tuple[str, ...] = (*COMPRESSED, "ids")) -> tuple[int, int]:
    """Sums of raw bytes and of archive bytes."""
    tables = [step.blocks(name) for name in names]
    return sum(int(t["raw_bytes"].sum()) for t in tables), sum(int(t["archive_bytes"].sum()) for t in tables)


# ----------------------------------------------------------------------------------------------------- with all ranks


@pytest.fixture(scope="module")
def written(mpirun: Callable, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[Path, dict[str, Any]]]:
    """written(ranks): the folder with the file of every case, and what the ranks reported."""

    @functools.cache
    def write(ranks: int) -> tuple[Path, dict[str, Any]]:
        folder = tmp_path_factory.mktemp("goals")
        said = map(json.loads, mpirun(ranks, "goals.py", folder, *CASES).stdout.splitlines())
        return folder, {line["case"]: line for line in said}

    return write


@pytest.mark.quick(3)
@pytest.mark.mpi
@pytest.mark.parametrize("case", [case for case in CASES if case != "disagree"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_goals_are_reached_and_bounds_kept(ranks: int, case: str, written: Callable) -> None:
    folder, said = written(ranks)
    assert said[case]["error"] is None
    options = CASES[case]
    with cz.Reader(folder / f"{case}.bp") as run:
        assert len(run) == STEPS
        for number, step in enumerate(run):
            fractions = {}
            for name in COMPRESSED:
                x, y, table = goals.field(name, number), step.read(name), step.blocks(name)
                (bound,) = {*table["eb_abs"]}  # the same on all ranks
                assert not support.violations(x, y, bound, FILL)
                fractions[name] = fraction_of(bound, x)
                if case == "psnr" or (case == "several" and name == "U"):
                    wanted = options.get("psnr", 60)
                    assert wanted <= psnr_of(x, y) < wanted + 1
                if case == "several" and name == "V":
                    raw, archives = sums(step, ("V",))
                    assert 9 <= raw / archives < 9 * 1.05
            raw, archives = sums(step)
            of_step = {name: fractions[name] for name in COMPRESSED if name not in options.get("variables", {})}
            if case != "psnr":
                assert len({*of_step.values()}) == 1
            if "budget_bytes" in options:
                assert 0.95 * options["budget_bytes"] < archives <= options["budget_bytes"]
            if case in ("ratio", "spline"):
                assert options["ratio"] <= raw / archives < 1.05 * options["ratio"]
            if case == "limited":
                assert raw / archives < 200
                assert max(fractions.values()) == 1e-2
            if case == "enough":
                assert raw / archives > 4
                assert min(fractions.values()) == 1e-2
    if case == "limited":
        assert len(said[case]["missed"]) == STEPS
        assert said[case]["missed"][3].startswith("step 3: ratio=200 of the step is missed: ratio is ")
        assert "largest bound that eb_max allows" in said[case]["missed"][3]
    else:
        assert said[case]["missed"] == []


@pytest.mark.mpi
def test_the_bounds_do_not_depend_on_how_many_ranks_there_are(written: Callable) -> None:
    """Or only slightly, because every block has its own codebook."""
    bounds = []
    for ranks in (1, 4):
        with cz.Reader(written(ranks)[0] / "psnr.bp") as run:
            bounds.append([step.blocks("U")["eb_abs"][0] for step in run])
    np.testing.assert_allclose(*bounds, rtol=0.05)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_want_different_things(ranks: int, written: Callable) -> None:
    """For variables that only one of them puts. (For the same variable: test_agreement.py.)"""
    _, said = written(ranks)
    message = f"'of rank {ranks - 1}' is to reach ratio=16 on rank {ranks - 1}, together with 'of rank 0', which is to "
    assert message + "reach ratio=15 on rank 0" in said["disagree"]["error"]


# ------------------------------------------------------------------------------------------------------- one process


def test_a_run_is_inspected(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with cz.Writer(tmp_path / "run.bp", psnr=60) as out:
        for _ in range(2):
            with out.step():
                out.put("U", X)
                out.put("V", X, ratio=12)
                out.put("W", X, budget_bytes=20_000)
    u, v, w = cz.inspect_variables(tmp_path / "run.bp")
    assert [variable.asked for variable in (u, v, w)] == [
        (Asked("psnr", 60.0),),
        (Asked("ratio", 12.0),),
        (Asked("budget_bytes", 20000.0),),
    ]
    main(["inspect", str(tmp_path / "run.bp")])
    shown = capsys.readouterr().out
    assert "psnr 60" in shown
    assert "ratio 12" in shown
    assert "budget_bytes 20000" in shown


def test_engines(engine: Any, tmp_path: Path) -> None:
    support.write_run(tmp_path / "run.bp", {"U": X}, engine=engine, ratio=10)
    with cz.Reader(tmp_path / "run.bp") as run:
        for step in run:
            assert 10 <= X.nbytes / step.blocks("U")["archive_bytes"].sum() < 10.5


def test_later_steps_begin_with_the_bound_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = support.calls_of(monkeypatch, cusz_core, "compress_described")
    counts = []
    with cz.Writer(tmp_path / "run.bp", ratio=10) as out:
        for _ in range(3):
            with out.step():
                out.put("U", X)
            counts.append(len(calls))
            calls.clear()
    assert counts[1:] == [1, 1]


def test_a_psnr_takes_fewer_bytes_of_smooth_fields(tmp_path: Path) -> None:
    """Coarser lattices get smaller bounds, as soon as there is a smooth field, and for as long."""
    rough = np.random.default_rng(3).normal(size=X.shape).astype(support.F32)
    sizes: dict[Any, list[int]] = {}
    for coarse in ("same", "auto"):
        with cz.Writer(tmp_path / f"{coarse}.bp", psnr=50, coarse=coarse) as out:
            for field in (np.ones_like(X), X, X + 1, rough):
                with out.step():
                    out.put("U", field[:20], X.shape, (0, 0, 0))
                    out.put("U", field[20:], X.shape, (20, 0, 0))
        with cz.Reader(tmp_path / f"{coarse}.bp") as run:
            sizes[coarse] = [int(step.blocks("U")["archive_bytes"].sum()) for step in run]
            for number, field in ((1, X), (2, X + 1), (3, rough)):
                assert psnr_of(field, run[number].read("U")) >= 50
    constant, smooth, smooth_again, noise = (own / same for own, same in zip(sizes["auto"], sizes["same"], strict=True))
    assert constant == 1
    assert max(smooth, smooth_again) < 0.85
    assert noise < 1.02


def test_a_large_block_is_sampled(tmp_path: Path) -> None:
    x = support.smooth((160, 128, 128), support.F32) + np.random.default_rng(0).normal(
        scale=1e-4, size=(160, 128, 128)
    ).astype(np.float32)
    # The spline codec omits an axis only for looser bounds than this, so that the ratio jumps here.
    for goal in ({"psnr": 75}, {"ratio": 14}, {"ratio": 17, "predictor": "spline"}):
        support.write_run(tmp_path / "run.bp", {"U": x}, **goal)
        with cz.Reader(tmp_path / "run.bp") as run:
            (table, y) = next((step.blocks("U"), step.read("U")) for step in run)
        assert not support.violations(x, y, table["eb_abs"][0])
        if "psnr" in goal:
            assert 75 <= psnr_of(x, y) < 76
        else:
            assert 1 <= x.nbytes / table["archive_bytes"].sum() / goal["ratio"] < 1.05


def test_other_types(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    half = (support.smooth((50, 60), support.F32) * 100).astype(np.float16)
    z = (support.smooth((50, 60), support.F64) + 1j * rng.normal(size=(50, 60))).astype(np.complex128)
    with cz.Writer(tmp_path / "run.bp", variables={"h": {"psnr": 50}, "z": {"budget_bytes": 9000}}) as out:
        with out.step():
            out.put("h", half)
            out.put("z", z)
        with out.step():
            out.put("z", z, psnr=60)
    with cz.Reader(tmp_path / "run.bp") as run:
        first, second = list(run)
        assert psnr_of(half.astype(np.float32), first.read("h").astype(np.float32)) >= 50
        assert 8500 < sum(first.blocks(f"z/{part}")["archive_bytes"].sum() for part in ("real", "imag")) <= 9000
        again = second.read("z")
        assert psnr_of(z.real, again.real) >= 60
        assert psnr_of(z.imag, again.imag) >= 60


@pytest.mark.parametrize("goal", [{"psnr": 60}, {"ratio": 3}, {"budget_bytes": 1000}], ids=str)
def test_fields_without_values_or_with_one(goal: dict[str, Any], tmp_path: Path) -> None:
    """Bounds are 0 or make no difference, and a block takes a few bytes; later steps are not tied to these bounds."""
    fields = [
        np.zeros((8, 9), np.float32),
        np.full((20, 30), np.nan, np.float32),
        np.full((20, 30), 2.5, np.float32),
        np.zeros((0, 5), np.float32),
        X[0].copy(),
    ]
    with cz.Writer(tmp_path / "run.bp", **goal, progress=False) as out:
        for x in fields:
            with out.step():
                out.put("U", x)
    with cz.Reader(tmp_path / "run.bp") as run:
        for x, step in zip(fields, run, strict=True):
            y, bound = step.read("U"), step.blocks("U")["eb_abs"]
            assert y.shape == x.shape
            assert not support.violations(x, y, bound.max(initial=0))
            if len(np.unique(x[np.isfinite(x)])) < 2:
                assert np.array_equal(x.view(np.uint32), y.view(np.uint32))
            elif "psnr" in goal:
                assert 60 <= psnr_of(x, y) < 62
    assert out.missed_goals == []


def test_a_psnr_that_only_exactness_gives(tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", psnr=500) as out, out.step():
        out.put("U", X)
    assert out.missed_goals == []
    with cz.Reader(tmp_path / "run.bp") as run:
        assert all(np.array_equal(step.read("U"), X) for step in run)


def test_a_psnr_beyond_the_smallest_bound(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with cz.Writer(tmp_path / "run.bp", psnr=90, mode="rel", eb_min=1e-3) as out, out.step():
        out.put("U", X)
    (message,) = out.missed_goals
    assert message.startswith("step 0: psnr=90 of 'U' is missed: PSNR is ")
    assert message.endswith(" dB with the smallest bound that eb_min allows")
    assert message in capsys.readouterr().err


def test_a_budget_that_is_spent_already(tmp_path: Path) -> None:
    """A variable with its own bound has spent it."""
    with cz.Writer(tmp_path / "run.bp", budget_bytes=100, mode="rel", eb_max=0.1) as out, out.step():
        out.put("U", X, eb=1e-3)
        out.put("V", X)
    (message,) = out.missed_goals
    assert message.startswith("step 0: budget_bytes=100 of the step is missed: ")
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [fraction_of(step.blocks("V")["eb_abs"][0], X) for step in run] == [0.1]


@pytest.mark.parametrize("overlap", [False, True], ids=["", "overlap"])
@pytest.mark.parametrize("goal", [{"budget_bytes": 1000}, {"ratio": 1000}], ids=str)
def test_a_goal_that_no_bound_is_sought_for(
    goal: dict[str, Any], overlap: bool, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Every variable is exact, or has its own bound. The first step reaches the budget."""
    with cz.Writer(tmp_path / "run.bp", overlap=overlap, **goal) as out:
        for n in (10, 0):
            with out.step():
                out.put("n", np.arange(n or 5000) ** 2)
                if n == 0:
                    out.put("U", X, eb=1e-9)
    (message,) = (said for said in out.missed_goals if said.startswith("step 1: "))
    said = r"step 1: (budget_bytes|ratio)=1000 of the step is missed: (\d+ bytes|ratio is [\d.]+), and every variable "
    assert re.fullmatch(said + "is exact or has a bound or goal of its own", message)
    assert message in capsys.readouterr().err
    assert ("budget_bytes" in goal) == (len(out.missed_goals) == 1)


def test_sizes_of_float16_are_those_that_were_given(tmp_path: Path) -> None:
    x = X.astype(np.float16)
    with cz.Writer(tmp_path / "run.bp", ratio=8) as out, out.step():
        out.put("h", x)
        out.put("e", x, eb=0.01)
    assert out.missed_goals == []
    summary = {each.name: each for each in out.summary()}
    assert {each.raw_bytes for each in summary.values()} == {x.nbytes}
    assert 2 * x.nbytes / sum(each.archive_bytes for each in summary.values()) >= 8


def test_a_layer_replaces_the_one_below(tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", ratio=10, eb_max=3.0, variables={"U": {"eb": 1e-3}}) as out, out.step():
        out.put("U", X)
        out.put("V", X, eb=1e-2, mode="abs")
        out.put("W", X, eb=0)
    with cz.Reader(tmp_path / "run.bp") as run:
        for step in run:
            assert [step.blocks(name)["eb_abs"][0] for name in "UVW"] == [1e-3, 1e-2, 0]
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out, out.step():
        out.put("U", X, ratio=10)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [10 <= X.nbytes / step.blocks("U")["archive_bytes"].sum() < 10.5 for step in run] == [True]


def test_limits_are_those_of_each_variable(tmp_path: Path) -> None:
    """In any order of puts."""
    for names in ("UV", "VU"):
        with cz.Writer(tmp_path / "run.bp", ratio=9, variables={"U": {"eb_max": 1e-3}}) as out, out.step():
            for name in names:
                out.put(name, X)
        assert out.missed_goals == []
        with cz.Reader(tmp_path / "run.bp") as run:
            (step,) = run
            raw, archives = sums(step, ("U", "V"))
            assert 9 <= raw / archives < 9.5
            assert step.blocks("U")["eb_abs"][0] == 1e-3 < step.blocks("V")["eb_abs"][0]


def test_variables_that_reach_a_goal_together_have_the_same(tmp_path: Path) -> None:
    def put_both(out: cz.Writer) -> None:
        with out.step():
            out.put("z", X[:4].astype(np.complex64), ratio=12)
            out.put("z", X, psnr=60)

    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        with pytest.raises(cusz_core.ParameterError, match=r"'z' is to reach psnr=60 on rank 0, together with"):
            put_both(out)
        with out.step():
            out.put("z", X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"psnr": 60, "ratio": 3}, "psnr and ratio are given: only one of them can be"),
        ({"eb": 1e-3, "ratio": 3}, "ratio and eb are given: only one of them can be"),
        ({"eb_max": 1.0}, "eb_max limits a bound that is sought: it needs one of psnr, ratio, budget_bytes"),
        ({"ratio": 3, "mode": "pw_rel"}, "ratio is sought with an absolute bound: mode 'pw_rel' is not possible"),
        ({"ratio": 1}, "ratio is 1.0; it must be finite and above 1"),
        ({"ratio": math.inf}, "ratio is inf; it must be finite and above 1"),
        ({"psnr": math.nan}, "psnr is nan; it must be finite"),
        ({"budget_bytes": 0}, "budget_bytes is 0.0; it must be finite and above 0"),
        ({"budget_bytes": "1e6"}, "budget_bytes is '1e6'; it must be a number"),
        ({"ratio": 3, "eb_min": -1.0}, "eb_min is -1.0; it must be finite and >= 0"),
        ({"ratio": 3, "eb_max": math.inf}, "eb_max is inf; it must be finite and >= 0"),
        ({"ratio": 3, "eb_min": 2.0, "eb_max": 1.0}, "eb_min is 2 and eb_max is 1: it must not be larger"),
    ],
    ids=str,
)
def test_what_makes_no_sense(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(cusz_core.ParameterError, match=message.replace("(", r"\(")):
        cz.Writer(tmp_path / "run.bp", **options)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        with pytest.raises(cusz_core.ParameterError, match=message), out.step():
            out.put("U", X, **options)
        with out.step():
            out.put("U", X)


def test_values_that_are_stored_exactly(tmp_path: Path) -> None:
    out = cz.Writer(tmp_path / "run.bp", eb=1e-3)
    with pytest.raises(cusz_core.UnsupportedError, match="stored exactly: ratio cannot be set"), out.step():
        out.put("ids", np.arange(5), ratio=2)
    out.close()


# ------------------------------------------------------------------------------------------------------- by the plugin


@pytest.mark.parametrize(("mode", "goal"), [("psnr", 60), ("ratio", 8)])
def test_the_plugin_seeks_a_bound_for_every_block(mode: Any, goal: float, engine: Any, tmp_path: Path) -> None:
    parts = [X[:20], X[20:] * np.float32(100)]
    with Program(tmp_path / "run.bp", engine) as out, out.step():
        for start, part in zip((0, 20), parts, strict=True):
            out.put("x", part, X.shape, (start, 0, 0), goal, mode=mode, predictor="lorenzo")
    with cz.Reader(tmp_path / "run.bp") as run:
        whole = run[0].read("x")
    blocks = list(cz.inspect_bp(tmp_path / "run.bp"))
    assert len({block["eb_abs"] for block in blocks}) == 2
    for block, start, part in zip(blocks, (0, 20), parts, strict=True):
        assert block["mode"] == "abs"
        back = whole[start : start + len(part)]
        assert not support.violations(part, back, block["eb_abs"])
        reached = psnr_of(part, back) if mode == "psnr" else block["ratio"]
        assert goal <= reached < (goal + 1 if mode == "psnr" else 1.05 * goal)


def test_the_plugin_stores_what_cannot_reach_a_ratio(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).integers(-(2**30), 2**30, 4000).astype(np.float32)
    with Program(tmp_path / "run.bp") as out, out.step():
        out.put("integers", x, eb=1000, mode="ratio")
    with cz.Reader(tmp_path / "run.bp") as run:
        assert np.array_equal(run[0].read("integers"), x)
    told = capfd.readouterr().err
    assert "is stored raw: bad parameter: ratio is 1000; the best found for this field is " in told
