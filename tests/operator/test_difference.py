"""`cusz diff` and compare_runs: how far two runs are apart, whichever programs wrote them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support
from cusz_core import cli
from cusz_operator import report
from cusz_operator.inspecting import difference
from cusz_operator.reading.steps import ReaderStep

pytest.importorskip("adios2")
from other_program import Program

X = support.smooth((20, 30), support.F32)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Written by a program: u, v, ids, z, a text and a number at three steps."""
    with Program(tmp_path / "raw.bp") as out:
        arrays = {"u": X, "v": X.astype(np.float64), "ids": np.arange(40), "z": (X + 2j * X).astype(np.complex64)}
        for n in range(3):
            with out.step():
                for name, array in arrays.items():
                    out.put(name, array + array.dtype.type(n))
                out.put("text", "same")
                out.put("t", n / 2)
    return tmp_path / "raw.bp"


@pytest.fixture
def compressed(tmp_path: Path) -> Path:
    """The same by a Writer, but at the last step without v and with another text, and with one ID changed at step 1."""
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine="BP4") as out:
        for n in range(3):
            with out.step():
                out.put("u", X + np.float32(n))
                if n < 2:
                    out.put("v", X.astype(np.float64) + n)
                ids = np.arange(40) + n
                ids[7] += 5 * (n == 1)
                out.put("ids", ids)
                out.put("z", (X + 2j * X).astype(np.complex64) + np.complex64(n))
                out.put("text", "same" if n < 2 else "other")
                out.put("t", n / 2)
    return tmp_path / "run.bp"


def test_two_runs(raw: Path, compressed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "_MAX_VALUES", 47)  # several pieces
    found = {(one.variable, one.step): one for one in cz.compare_runs(raw, compressed, eb=1e-3)}
    assert sorted(found) == sorted((name, n) for name in ("u", "v", "ids", "z", "text", "t") for n in range(3))
    with cz.Reader(compressed) as run:
        for name, kind in (("u", support.F32), ("v", support.F64)):
            for n in range(2):
                x = np.add(X.astype(kind), n, dtype=kind)
                y = run[n].read(name)
                error = np.abs(x.astype(np.float64) - y.astype(np.float64))
                one = found[name, n]
                assert (one.values, one.different, one.beyond) == (600, int(np.count_nonzero(x != y)), 0)
                assert one.largest == error.max()
                assert error[one.at] == error.max()
                assert one.largest_of_range == error.max() / (float(x.max()) - float(x.min()))
                expected = cusz_core.verify(x, cusz_core.compress(x, 1e-3)).psnr
                assert one.psnr == pytest.approx(expected, abs=1e-9)
    assert found["v", 2].problem == "only in a"
    assert found["ids", 0] == cz.Difference("ids", 0, values=40, largest_of_range=0.0)
    assert (found["ids", 1].different, found["ids", 1].largest, found["ids", 1].at) == (1, 5.0, (7,))
    assert found["ids", 1].beyond == 1
    assert found["z", 0].beyond == 0
    assert found["z", 0].different > 300
    assert [found["text", n].fails for n in range(3)] == [False, False, True]
    assert math.isinf(found["text", 2].largest)
    assert found["t", 1].different == 0
    assert [one.step for one in cz.compare_runs(raw, compressed, variables=["u"], steps=[1])] == [1]


def test_special_values_must_be_the_same(tmp_path: Path) -> None:
    a = np.array([np.nan, np.inf, 1, 1, -0.0, 3e38], np.float32)
    b = np.array([np.nan, np.inf, np.nan, 2, 0.0, -3e38], np.float32)
    for name, values in (("a", a), ("b", b)):
        with Program(tmp_path / f"{name}.bp") as out, out.step():
            out.put("x", values)
    paths = tmp_path / "a.bp", tmp_path / "b.bp"
    (one,) = cz.compare_runs(*paths, eb=1.0)
    assert (one.different, one.beyond, one.at) == (4, 2, (5,))
    assert one.largest == 2 * float(a[5])
    (one,) = cz.compare_runs(*paths, eb=0.0)
    assert one.beyond == 4
    (one,) = cz.compare_runs(*paths)
    assert (one.beyond, one.fails) == (0, False)
    (one,) = cz.compare_runs(paths[0], paths[0], eb=0.0)
    assert (one.different, one.largest, one.psnr) == (0, 0.0, math.inf)


def test_a_relative_bound_is_of_the_range_of_a(raw: Path, compressed: Path) -> None:
    spread = float(X.max()) - float(X.min())
    (one,) = cz.compare_runs(raw, compressed, variables=["u"], steps=[0], eb=1.0001e-3 / spread, mode="rel")
    assert one.beyond == 0
    (one,) = cz.compare_runs(raw, compressed, variables=["u"], steps=[0], eb=0.5e-3 / spread, mode="rel")
    assert 0 < one.beyond < one.different


@pytest.mark.parametrize("kind", ["array", "blocks"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_missing_values_are_not_of_the_range(dtype: Any, kind: str, tmp_path: Path) -> None:
    x = support.smooth((20, 30), np.dtype(dtype))
    x[::7] = 1e20
    y, z = x + dtype(0.01) * (x < 1e19), x.copy()
    y[1, 1] = z[1, 1] = np.nan
    z[0, 0] = 0
    for name, field in (("x", x), ("y", y), ("z", z)):
        field[1, 1] = np.nan
        with Program(tmp_path / name) as out, out.step():
            out.put("u", field, () if kind == "blocks" else None)
    limits = cusz_core.value_range(x, fill=1e20)
    there = x < 1e19
    largest = np.abs(x[there].astype(np.float64) - y[there]).max() / (limits.max - limits.min)
    for eb, n_beyond in ((2 * largest, 0), (1e-4, np.count_nonzero(there))):
        (found,) = cz.compare_runs(tmp_path / "x", tmp_path / "y", eb=eb, mode="rel", fill=1e20)
        assert found.beyond == n_beyond
        assert found.largest_of_range == largest
        assert found.psnr < 60
    (found,) = cz.compare_runs(tmp_path / "x", tmp_path / "z", eb=0.1, fill=1e20)
    assert (found.different, found.beyond, found.finite_in_one) == (1, 1, 1)
    (found,) = cz.compare_runs(tmp_path / "x", tmp_path / "y", eb=1e-4, mode="rel")
    assert found.beyond == 0, "as values they count"


def test_a_fill_value_that_a_type_does_not_have(tmp_path: Path) -> None:
    for name, value in (("a", np.inf), ("b", -np.inf)):
        with Program(tmp_path / name) as out, out.step():
            out.put("u", np.full(5, value, np.float32))
    (found,) = cz.compare_runs(tmp_path / "a", tmp_path / "b", eb=0, fill=1e300)
    assert found.beyond == 5


def test_a_relative_bound_that_holds_takes_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The range is known only after that pass. If a value might be beyond the bound, a second pass decides."""
    nan, inf = math.nan, math.inf
    of_range = 2.0**-6 * float(X.max() - X.min())
    cases = {  # what is added to one value, how many values are then beyond the bound, and passes over both runs
        "same": (0.0, 0, 1),
        "within": (of_range / 2, 0, 1),
        "beyond": (of_range * 2, 1, 2),
        "NaN in b": (nan, 1, 2),
        "infinite in b": (inf, 1, 2),
    }
    calls = support.calls_of(monkeypatch, ReaderStep, "read")
    names = list(cases)
    for run in "ab":
        with Program(tmp_path / run) as out, out.step():
            for name, (added, *_) in cases.items():
                values = X.copy()
                values[3, 4] += np.float32(added) if run == "b" else 0
                out.put(name, values, values.shape)
    found = {d.variable: d for d in cz.compare_runs(tmp_path / "a", tmp_path / "b", eb=2.0**-6, mode="rel")}
    assert {name: found[name].beyond for name in names} == {name: beyond for name, (_, beyond, _) in cases.items()}
    # The second pass begins with the exact range of a, which takes one more read.
    reads = [name for _, name, *_ in calls]
    assert {name: reads.count(name) for name in names} == {
        name: {1: 2, 2: 5}[passes] for name, (*_, passes) in cases.items()
    }


def test_the_command(raw: Path, compressed: Path, cusz_cli: Any) -> None:
    code, out, err = cusz_cli("diff", raw, compressed, "--variable", "u")
    assert (code, err) == (0, "")
    header, line = out.splitlines()
    assert header.split() == ["variable", "step", "values", "different", "largest", "of", "range", "at", "PSNR"]
    assert line.split()[0] == "u"
    assert line.endswith(" dB")
    code, out, _ = cusz_cli("diff", raw, compressed, "--variable", "u", "--eb", "1e-3", "--steps")
    assert code == 0
    assert [text.split()[:2] for text in out.splitlines()[1:4]] == [["u", "0"], ["u", "1"], ["u", "2"]]
    assert out.endswith("\nno value differs by more than abs 0.001\n")
    code, out, _ = cusz_cli("diff", raw, compressed, "--eb", "1e-4")
    assert code == 1
    assert "BEYOND THE BOUND" in out
    assert "v, step 2: only in a" in out
    assert " values differ by more than abs 0.0001; not compared: v\n" in out
    code, out, _ = cusz_cli("diff", raw, compressed, "--json")
    assert code == 1
    listed = json.loads(out)
    assert {one["variable"]: one["problem"] for one in listed if one["step"] == 2}["v"] == "only in a"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--variable", "w"], 2, r"no variable 'w' in either file: there are ids, t, text, u, v, z"),
        (["--step", "3"], 2, "step is 3; there are 3"),
        (["--eb", "-1"], 2, "eb is -1"),
    ],
)
def test_mistakes(words: list[str], code: int, message: str, raw: Path, compressed: Path, cusz_cli: Any) -> None:
    done = cusz_cli("diff", raw, compressed, *words)
    assert done[0] == code
    assert message in done[2]


@pytest.mark.parametrize("words", [[], ["--json"], ["--eb", "1"]])
def test_nothing_to_compare_is_a_failure(words: list[str], tmp_path: Path, cusz_cli: Any) -> None:
    """The status is not 0, which a script would take for "the same"."""
    for name in "ab":
        with cz.Writer(tmp_path / name, eb=1e-3):
            pass
    code, out, err = cusz_cli("diff", tmp_path / "a", tmp_path / "b", *words)
    assert (code, out) == (1, "")
    assert "there is nothing to compare: neither file has a variable in a complete step" in err


def test_shapes_and_types_that_differ(tmp_path: Path) -> None:
    for name, (x, y) in {"a": (X, X), "b": (X[1:], X.astype(np.float64))}.items():
        support.write_run(tmp_path / f"{name}.bp", {"x": x, "y": y, "bytes": np.arange(256, dtype=np.uint8)}, eb=0.0)
    found = list(cz.compare_runs(tmp_path / "a.bp", tmp_path / "b.bp"))
    assert [one.problem for one in found] == [
        "",
        "shape (20, 30) in a, (19, 30) in b",
        "type float32 in a, float64 in b",
    ]


def test_what_only_one_run_has_is_said_in_one_line(raw: Path, tmp_path: Path, cusz_cli: Any) -> None:
    """For example, if one run went on for longer."""
    support.write_run(tmp_path / "short.bp", {"u": X, "v": X, "ids": np.arange(40)}, eb=1e-3)
    code, out_text, _ = cusz_cli("diff", raw, tmp_path / "short.bp", "--variable", "u", "--variable", "ids")
    assert (code, out_text.splitlines()[3:]) == (1, ["ids, u, steps 1-2: only in a"])
    lines = cusz_cli("diff", raw, tmp_path / "short.bp")[1].splitlines()
    assert lines[-3:] == [
        "ids, u, v, steps 1-2: only in a",
        "t, text, z, steps 0-2: only in a",
        "v, step 0: type float64 in a, float32 in b",
    ]


def test_a_writer_has_bool_where_other_programs_have_bytes(tmp_path: Path) -> None:
    flags = X.mean() < X
    with Program(tmp_path / "a") as out, out.step():
        out.put("flag", flags.view(np.uint8), flags.shape)
    changed = flags.copy()
    changed[3, 4] ^= True
    support.write_run(tmp_path / "b", {"flag": changed})
    for runs in (("a", "b"), ("b", "a"), ("b", "b")):
        (found,) = cz.compare_runs(*(tmp_path / name for name in runs), eb=0.5)
        assert (found.problem, found.different, found.beyond) == ("", *(int("a" in runs),) * 2)
    page = report.make(tmp_path / "b", tmp_path / "a")
    i = 1 - int(flags[3, 4])
    told = f"flag, step 0: 1 of 600 values break the bound; the worst, at (3, 4): original {1 - i}, decoded {i}"
    assert page.broken == [f"{told}: they should be the same"]


def test_many_variables_that_are_alike_share_a_line(tmp_path: Path, cusz_cli: Any) -> None:
    """If they differ in the same way."""
    for run_name in ("a", "b"):
        with cz.Writer(tmp_path / f"{run_name}.bp", eb=0.0) as out, out.step():
            for n in range(12):
                changed = X + np.float32(run_name == "b") * np.float32(n == 7 or n > 8)
                out.put(f"level{n}/rho", changed)
                if run_name == "a" or n < 4:
                    out.put(f"level{n}/T", X)
    runs = tmp_path / "a.bp", tmp_path / "b.bp"
    code, out_text, _ = cusz_cli("diff", *runs, "--eb", "0.5")
    lines = out_text.splitlines()
    assert code == 1
    assert [line.split()[0] for line in lines[1:5]] == [
        "level{0..3}/T",
        "level{0..8}/rho",
        "level{4..11}/T",
        "level{7,9,10,11}/rho",
    ]
    assert lines[1].endswith("the same, 4 variables")
    assert lines[2].endswith("the same, 8 variables")
    assert lines[3].endswith("8 variables, only in a")
    assert lines[4].endswith("600 BEYOND THE BOUND, 4 variables, most in level10/rho")
    assert lines[-1].endswith("; not compared: " + ", ".join(sorted(f"level{n}/T" for n in range(4, 12))))
    code, out_text, _ = cusz_cli("diff", *runs, "--eb", "0.5", "--all")
    assert code == 1
    assert sum(line.startswith("level") and ", step" not in line for line in out_text.splitlines()) == 24


@pytest.mark.parametrize("kind", ["int64", "uint64"])
@pytest.mark.parametrize("apart", [1, 3, 2**63, 2**64 - 1])
def test_large_integers_that_are_apart(apart: int, kind: str, tmp_path: Path) -> None:
    """Converted to doubles, many of them would be equal."""
    limits = np.iinfo(kind)
    ids = np.full((4, 5), limits.max, kind)
    others = ids.copy()
    others[2, 3] = limits.max - apart
    for name, values in (("a", ids), ("b", others)):
        support.write_run(tmp_path / f"{name}.bp", {"ids": values})
    for first, second in (("a", "b"), ("b", "a")):
        for eb, beyond in ((0.5, 1), (math.nextafter(apart, 0), 1), (float(apart), 0)):
            (found,) = cz.compare_runs(tmp_path / f"{first}.bp", tmp_path / f"{second}.bp", eb=eb)
            assert (found.different, found.beyond) == (1, beyond)
        assert (found.largest, found.at) == (float(apart), (2, 3))
        assert found.psnr < math.inf


def pair(tmp_path: Path, *steps: tuple[Any, Any], shape: bool = True) -> tuple[Path, Path]:
    """Two runs of plain ADIOS2 with a variable u, one for each side of the steps; `shape` False: without a place."""
    for number, name in enumerate("ab"):
        with Program(tmp_path / f"{name}.bp") as out:
            for both in steps:
                with out.step():
                    out.put("u", both[number], shape=None if shape else ())
    return tmp_path / "a.bp", tmp_path / "b.bp"


def test_blocks_of_other_types(tmp_path: Path) -> None:
    (one,) = cz.compare_runs(*pair(tmp_path, (X, X.astype(np.int32)), shape=False), eb=5.0)
    assert one.problem == "type float32 in a, int32 in b"


def test_a_step_that_is_finite_in_one_run_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = X.copy()
    other[0, 0] += 1e-3
    runs = pair(tmp_path, (X, other), (X, np.full_like(X, np.nan)))
    assert [one.finite_in_one for one in cz.compare_runs(*runs)] == [0, X.size]
    assert cli.main(["diff", *map(str, runs)]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[:2] == ["u", "1"]
    assert line.endswith(f"{X.size} finite in one only")


@pytest.mark.filterwarnings("error")
def test_differences_near_the_largest_double(tmp_path: Path) -> None:
    a = np.array([1.7e308, -1.7e308, 0, 1])
    beyond, half = cz.compare_runs(*pair(tmp_path, (a, a[[1, 0, 2, 3]]), (a, a * [0, 1, 1, 1])))
    assert math.isnan(beyond.psnr)
    assert beyond.largest == math.inf
    assert half.largest_of_range == 0.5
    assert half.psnr == pytest.approx(20 * math.log10(2 / math.sqrt(1 / 4)))


def test_differences_of_subnormal_values(tmp_path: Path) -> None:
    a = np.array([0, 3 * 5e-324])
    (found,) = cz.compare_runs(*pair(tmp_path, (a, a * [0, 0])))
    assert found.largest_of_range == 1.0
    assert found.psnr == pytest.approx(10 * math.log10(2))


def test_the_range_is_that_of_all_finite_values_of_a(tmp_path: Path) -> None:
    """Even of those where b has NaN or no block."""
    a = np.arange(9.0)
    a[4:6] = 1000.0, np.nan
    b = a + 0.5
    b[4] = np.nan
    for (one,) in (cz.compare_runs(*pair(tmp_path, (a, b))), _without_a_block(tmp_path, a, a + 0.5)):
        assert one.largest == 0.5
        assert one.largest_of_range == 0.5 / 1000
        assert one.psnr == pytest.approx(20 * math.log10(1000 / 0.5))


def _without_a_block(tmp_path: Path, a: Any, b: Any) -> Any:
    """Compares a with b, of which values 3 to 5 are in no block."""
    with cz.Writer(tmp_path / "all.bp", eb=0) as out, out.step():
        out.put("u", a)
    with cz.Writer(tmp_path / "part.bp", eb=0) as out, out.step():
        for start in (0, 6):
            out.put("u", b[start : start + 3], start=(start,), shape=(9,))
    return cz.compare_runs(tmp_path / "all.bp", tmp_path / "part.bp")


def test_a_step_that_is_named_twice(tmp_path: Path) -> None:
    assert len(list(cz.compare_runs(*pair(tmp_path, (X, X)), steps=[0, 0]))) == 1


def test_a_variable_that_is_not_at_the_steps_asked_for(raw: Path, compressed: Path) -> None:
    with Program(raw.parent / "late.bp") as out:
        for name in ("u", "v"):
            with out.step():
                out.put(name, X)
    with pytest.raises(cusz_core.ParameterError, match="none of these variables is at one of the steps 0"):
        list(cz.compare_runs(raw.parent / "late.bp", raw.parent / "late.bp", variables=["v"], steps=[0]))
