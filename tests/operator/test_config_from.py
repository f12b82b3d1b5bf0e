"""`cusz config --from`: proposes a configuration from an uncompressed run."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray

import cusz_core
import cusz_operator
import support
from cusz_core import cli, tuning
from cusz_core.errors import CorruptArchiveError, CuszError, ParameterError
from cusz_operator.configuring import sampling
from cusz_operator.configuring.proposal import Goal, propose
from cusz_operator.configuring.sampling import SampledVariable, sampled_variables
from support import F32, F64

pytest.importorskip("adios2")
from other_program import Program

pytestmark = pytest.mark.usefixtures("plugin_is_found")

T = support.smooth((40, 60, 80), F32)
V = support.smooth((150, 200), F64, 3) * 1e-9


def write(
    path: Path,
    engine_type: str,
    steps: Sequence[Mapping[str, Any]],
    *,
    stats: int = 1,
    configuration: Path | None = None,
) -> None:
    """Writes a run as a program would: arrays in two blocks along their first axis, lists of arrays as local arrays."""
    given = {"configuration": configuration, "StatsLevel": str(stats)}
    with Program(path, engine_type, io="SimulationOutput", **given) as out:
        for step in steps:
            with out.step():
                for name, values in step.items():
                    is_placed = not isinstance(values, list) and np.ndim(values) > 0
                    for block, start in _blocks(values):
                        out.put(name, block, np.shape(values) if is_placed else (), start or None)


def _blocks(values: Any) -> list[tuple[NDArray[Any], list[int]]]:
    if isinstance(values, list):
        return [(block, []) for block in values]
    if np.ndim(values) == 0:
        return [(np.asarray(values), [])]
    half = len(values) // 2
    cuts = [(0, half), (half, len(values))] if half else [(0, len(values))]
    return [(values[low:high], [low, *[0] * (values.ndim - 1)]) for low, high in cuts]


def all_kinds() -> list[dict[str, Any]]:
    particles = [np.cumsum(support.integers(n, 0, 9)).astype(F64) for n in (5000, 5600, 4100)]
    common = {"V": V, "particles/x": particles, "n": np.arange(30), "axis": np.linspace(0, 1, 80), "time": 0.5}
    return [{"T": T * F32.type(1 + step), **common} for step in range(4)]


@pytest.fixture(scope="module", params=["BP5", "BP4"])
def run_bp(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp(request.param) / "run.bp"
    write(path, request.param, all_kinds())
    return path


@pytest.fixture
def config(cusz_cli: Callable) -> Callable[..., tuple[int, str, str]]:
    """Runs `cusz config --from`."""
    return functools.partial(cusz_cli, "config", "--from")


def bounds_of(xml: str) -> dict[str, float]:
    found = {}
    for variable in ElementTree.fromstring(xml).findall("io/variable"):
        keys = {p.get("key"): p.get("value") for p in variable.findall("operation/parameter")}
        assert (keys["PluginName"], keys["PluginLibrary"], keys["mode"]) == ("cusz", "cusz_operator", "abs")
        found[str(variable.get("name"))] = float(str(keys["accuracy"]))
    return found


def by_name(path: Path, *names: str, **options: Any) -> dict[str, SampledVariable]:
    return {variable.name: variable for variable in sampled_variables(path, names, **options)}


# ------------------------------------------------------------------------------------------------------ the command


def test_a_bound_for_every_variable(run_bp: Path, config: Callable, tmp_path: Path) -> None:
    """1e-4 of the value range, rounded down to two digits; other output does not get into the file."""
    code, out, err = config(run_bp, "--format", "xml")
    assert code == 0
    ranges = {"T": 4 * np.ptp(T.astype(F64)), "V": np.ptp(V), "particles/x": np.ptp(all_kinds()[0]["particles/x"][1])}
    bounds = bounds_of(out)
    assert list(bounds) == ["T", "V", "particles/x"]
    for name, eb in bounds.items():
        assert 0.9e-4 * ranges[name] < eb <= 1.00001e-4 * ranges[name]
        assert float(f"{eb:.1e}") == eb
    assert out.count("(ADIOS2's statistics), rounded down; estimated: ratio ") == 3
    rows = {line.split()[0]: line.split() for line in err.splitlines() if line}
    assert rows["T"][-1] != ""
    assert re.search(r"^T +float +40x60x80 +4 +2 .* statistics$", err, re.MULTILINE)
    assert re.search(r"^particles/x +double +local +4 +3 .* statistics$", err, re.MULTILINE)
    assert re.search(r"^time +double +single value +", err, re.MULTILINE)
    assert "\nnote  axis: left out: blocks of 40 values are too small to be worth a bound\n" in err
    assert "\nnote  time: left out: a single value, which no operator compresses\n" in err
    assert "\nnote  n: left out: blocks of 15 integers are too small to be worth it\n" in err
    (tmp_path / "adios2.xml").write_text(out, encoding="utf-8")
    assert cusz_operator.check(configuration=tmp_path / "adios2.xml").problems == []


def test_what_is_estimated_comes_true(run_bp: Path, config: Callable, tmp_path: Path) -> None:
    """Running the program again with the configuration gives the ratios that were printed."""
    engine = "BP4" if "BP4" in str(run_bp) else "BP5"
    _code, out, _err = config(run_bp, "--format", "xml", "--engine", engine)
    xml = tmp_path / "adios2.xml"
    xml.write_text(out, encoding="utf-8")
    write(tmp_path / "compressed.bp", engine, all_kinds(), configuration=xml)
    told = dict(zip(bounds_of(out), map(float, re.findall(r"estimated: ratio ([\d.]+)", out)), strict=True))
    report = cusz_operator.check(tmp_path / "compressed.bp", xml)
    assert report.problems == []
    ratios = {variable.name: variable.ratio for variable in report.variables if variable.ratio}
    assert ratios == {name: pytest.approx(ratio, rel=0.1) for name, ratio in told.items()}


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan, 1e20])
def test_a_value_that_is_no_number_at_a_step_that_is_not_sampled(value: float, tmp_path: Path) -> None:
    """ADIOS2's statistics are useless then."""
    with Program(tmp_path / "run.bp") as out:
        for n in range(10):
            field = T.copy()
            field[0, 0, 0] = value if n == 2 else 0
            with out.step():
                out.put("T", field)
    (found,) = sampled_variables(tmp_path / "run.bp")
    eb = propose(found, Goal(), is_wanted=True).eb
    assert eb is not None
    assert 0 < eb <= 1e-4 * np.ptp(T)


def test_both_files_and_the_environment(run_bp: Path, config: Callable) -> None:
    yaml = pytest.importorskip("yaml")
    code, out, _err = config(run_bp, "--variable", "T", "--io", "Out", "--order", "column", "--no-statistics")
    assert code == 0
    assert out.startswith("# environment\nexport ADIOS2_PLUGIN_PATH=")
    xml = ElementTree.fromstring(out[out.index("<?xml") : out.index("\n# adios2.yaml")])
    assert [(io.get("name"), len(io.findall("variable"))) for io in xml] == [("Out", 1)]
    assert 'key="StatsLevel" value="0"' in out
    (io,) = yaml.safe_load(out.partition("# adios2.yaml\n")[2])
    (operation,) = io["Variables"][0]["Operations"]
    assert operation["order"] == "column"
    assert operation["accuracy"] == next(iter(bounds_of(ElementTree.tostring(xml, "unicode")).values())).__repr__()
    (alone,) = yaml.safe_load(config(run_bp, "--format", "yaml", "--variable", "V")[1])
    assert [variable["Variable"] for variable in alone["Variables"]] == ["V"]


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
def test_goals(run_bp: Path, config: Callable, predictor: str) -> None:
    code, out, _ = config(run_bp, "--psnr", 70, "--predictor", predictor, "--format", "xml", "--variable", "T")
    assert code == 0
    assert f'key="predictor" value="{predictor}"' in out
    assert "for a PSNR of 70 dB on samples; the value range" in out
    (eb,) = bounds_of(out).values()
    assert float(f"{eb:.1e}") == eb
    whole = np.concatenate([T * F32.type(1 + step) for step in range(4)])
    assert 70 < cusz_core.verify(whole, cusz_core.compress(whole, eb, predictor=predictor)).psnr < 73
    code, out, _err = config(run_bp, "--ratio", 8, "--predictor", predictor, "--format", "xml", "--variable", "V")
    assert code == 0
    assert "for a ratio of 8 on samples" in out
    (eb,) = bounds_of(out).values()
    archives = [cusz_core.compress(half, eb, predictor=predictor) for half in (V[:75], V[75:])]
    assert V.nbytes / sum(map(len, archives)) == pytest.approx(8, rel=0.15)


def test_bounds_that_are_given(run_bp: Path, config: Callable) -> None:
    out = config(run_bp, "--eb", "1e-3", "--format", "xml")[1]
    assert bounds_of(out) == {"T": 1e-3, "V": 1e-3, "particles/x": 1e-3}
    names = ["--variable", "V", "--variable", "T"]
    out = config(run_bp, *names, "--eb", "1e-3", "--eb", "0.1", "--format", "xml")[1]
    assert bounds_of(out) == {"T": 0.1, "V": 1e-3}
    _code, out, err = config(run_bp, "--variable", "T", "--eb", "1e-2", "--mode", "rel", "--format", "xml")
    assert 'value="rel"' in out
    assert re.search(r"^T .* 0\.01 of the range: (\d+\.?\d*) / 4\d$", err, re.MULTILINE)
    relative = bounds_of(config(run_bp, "--variable", "V", "--relative", "0.01", "--format", "xml")[1])["V"]
    assert 0.9e-2 * np.ptp(V) < relative <= 1e-2 * np.ptp(V)


def test_small_variables_are_taken_if_asked_for(run_bp: Path, config: Callable) -> None:
    code, out, _err = config(run_bp, "--variable", "axis", "--format", "xml")
    assert (code, list(bounds_of(out))) == (0, ["axis"])
    assert config(run_bp, "--variable", "time", "--format", "xml")[0] == 2


def fails(result: tuple[int, str, str], code: int, words: str) -> bool:
    assert result[:2] == (code, "")
    assert re.search(words, result[2].splitlines()[-1]), result[2]
    return True


def test_errors(run_bp: Path, config: Callable, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert fails(config(run_bp, "--variable", "t"), 2, r"no variable 't' in '\S+' \(there is 'T'\)")
    for bound in ((), ("--eb", "1")):
        assert fails(
            config(run_bp, "--variable", "time", *bound), 2, "'time': a single value.*: BP5 refuses its second"
        )
    assert fails(config(run_bp, "--variable", "T", "--ratio", "1e5"), 2, "'T': ratio is 100000; the best found")
    assert fails(config(run_bp, "--ratio", "1e5"), 1, "no variable of .* has been given a bound")
    assert fails(config(run_bp, "--eb", "1", "--psnr", "3"), 2, "leave out --relative, --psnr or --ratio")
    assert fails(config(run_bp, "--eb", "1", "--eb", "2"), 2, "several --eb need as many --variable")
    assert fails(config(run_bp, "--variable", "T", "--eb", "1", "--eb", "2"), 2, "2 of --eb for 1 of --variable")
    assert fails(config(run_bp, "--mode", "rel"), 2, "--mode is that of --eb")
    assert fails(config(run_bp, "--relative", "-1"), 2, "relative is -1.0; it must be finite and above 0")
    assert fails(config(run_bp, "--psnr", "nan"), 2, "psnr is nan")
    assert fails(config(run_bp, "--engine", "HDF5"), 2, "engine 'HDF5' does not work")
    assert fails(config(tmp_path / "none.bp"), 1, "does not exist")
    assert cli.main(["config", "--variable", "T", "--eb", "1", "--psnr", "60"]) == 2
    assert "need a run to choose bounds for" in capsys.readouterr().err


def test_variables_that_are_compressed_already(engine: str, config: Callable, tmp_path: Path) -> None:
    with Program(tmp_path / "run.bp", engine) as out, out.step():
        out.put("done", T, eb=1e-3)
        out.put("raw", T)
    code, out, err = config(tmp_path / "run.bp", "--format", "xml")
    assert (code, list(bounds_of(out))) == (0, ["raw"])
    assert "\nnote  done: left out: already compressed with cusz, bound 0.001\n" in err
    assert fails(
        config(tmp_path / "run.bp", "--variable", "done"), 2, "already compressed .*: give its bound with --eb"
    )
    code, out, err = config(tmp_path / "run.bp", "--variable", "done", "--eb", "0.01", "--format", "xml")
    assert bounds_of(out) == {"done": 0.01}
    assert "\nnote  done: already compressed with cusz, bound 0.001\n" in err


def test_values_that_may_mean_no_data(engine: str, config: Callable, tmp_path: Path) -> None:
    """A bound from a range with 1e20 in it would ruin the variable."""
    x = V.copy()
    x[::3, 50:] = 1e20
    write(tmp_path / "run.bp", engine, [{"sea": x, "V": V, "positive": np.abs(x) + 1}])
    _code, out, err = config(tmp_path / "run.bp", "--format", "xml")
    assert list(bounds_of(out)) == ["V"]
    assert re.search(
        r"^note  sea: left out: 2\d% are 1e\+20, far from the others: give --fill 1e\+20", err, re.MULTILINE
    )
    assert fails(config(tmp_path / "run.bp", "--variable", "sea"), 2, "'sea': 2.% are 1e.20")
    err = config(tmp_path / "run.bp", "--variable", "positive", "--eb", "1e-3", "--mode", "rel", "--format", "xml")[2]
    assert "give --fill 1e+20" in err
    assert "pw_rel" not in err
    bounds = bounds_of(config(tmp_path / "run.bp", "--fill", "1e20", "--format", "xml")[1])
    assert bounds["sea"] == pytest.approx(bounds["V"], rel=0.1)
    found = by_name(tmp_path / "run.bp", fill=1e20)
    assert (found["sea"].has_statistics, found["V"].has_statistics) == (False, True)


def test_one_value_everywhere(engine: str, config: Callable, tmp_path: Path) -> None:
    write(tmp_path / "run.bp", engine, [{"mask": np.full((60, 70), 2.0), "V": V}])
    _code, out, err = config(tmp_path / "run.bp", "--format", "xml")
    assert list(bounds_of(out)) == ["V"]
    assert "note  mask: left out: all values sampled are 2: a bound can be given with --eb\n" in err
    out = config(tmp_path / "run.bp", "--variable", "mask", "--eb", "0.1", "--format", "xml")[1]
    assert bounds_of(out) == {"mask": 0.1}


@pytest.fixture(scope="module")
def boxes() -> list[dict[str, list[NDArray[Any]]]]:
    """Five steps of an AMR code: moving boxes of 16^3 and 32^3 values. The density spans many decades."""
    large = {name: support.smooth((96, 96, 96), F64, seed) for seed, name in enumerate(("rho", "u"))}
    noise = support.integers(96**3, -1000, 1000, 5).reshape(96, 96, 96) / 1e4
    large["rho"] = np.exp(6 * large["rho"] + noise - 60).astype(F32)
    large["u"] = (large["u"] + noise / 30).astype(F32)
    steps = []
    for step in range(5):
        corners = np.stack([support.integers(60, 0, 64, 7 * step + axis) for axis in range(3)], axis=1)
        cut = [tuple(slice(a, a + (16 if n % 3 else 32)) for a in corner) for n, corner in enumerate(corners)]
        steps.append({name: [np.ascontiguousarray(x[box]) for box in cut] for name, x in large.items()})
    return steps


@pytest.mark.parametrize("predictor", ["lorenzo", "spline", "auto"])
def test_estimates_of_small_blocks_come_true(
    boxes: list[dict[str, list[NDArray[Any]]]], engine: str, predictor: str, tmp_path: Path
) -> None:
    """Each block is compressed whole and separately, as by the plugin."""
    write(tmp_path / "run.bp", engine, boxes)
    options: Any = {"predictor": predictor}
    for name, variable in by_name(tmp_path / "run.bp", **options).items():
        assert variable.sample is not None
        assert set(variable.sample.blocks) == {(16,) * 3, (32,) * 3}
        proposal = propose(variable, Goal(), is_wanted=False, **options)
        assert proposal.mode == ("pw_rel" if name == "rho" else "abs")
        blocks = [block for step in boxes for block in step[name]]
        archives = [cusz_core.compress(x, proposal.eb, proposal.mode, **options) for x in blocks]
        ratio = sum(x.nbytes for x in blocks) / sum(map(len, archives))
        assert proposal.outcome.ratio == pytest.approx(ratio, rel=0.1)


def test_undershoots_and_peaks_do_not_hide_a_density(
    boxes: list[dict[str, list[NDArray[Any]]]], config: Callable, tmp_path: Path
) -> None:
    """Undershoots are a few negative values; the peak is one cell with the same value at every step."""
    undershot = [{"rho": [x.copy() for x in step["rho"]]} for step in boxes]
    undershot[0]["rho"][0].flat[:3] *= -1e-3
    peaked = [{"rho": [x.copy() for x in step["rho"]]} for step in boxes]
    for step in peaked:
        step["rho"][0].flat[7] = 30 * max(x.max() for x in boxes[0]["rho"])
    for steps in (undershot, peaked):
        write(tmp_path / "run.bp", "BP5", steps)
        code, out, err = config(tmp_path / "run.bp", "--format", "xml")
        assert code == 0
        assert 'value="pw_rel"' in out, err


def test_values_of_many_decades_get_a_bound_of_each(
    boxes: list[dict[str, list[NDArray[Any]]]], engine: str, config: Callable, tmp_path: Path
) -> None:
    """A bound of 1e-4 of the range would turn most of them into zeros."""
    write(tmp_path / "run.bp", engine, [{**step, "minus": [-x for x in step["rho"]]} for step in boxes])
    _code, out, err = config(tmp_path / "run.bp", "--format", "xml")
    found = {}
    for variable in ElementTree.fromstring(out).findall("io/variable"):
        found[variable.get("name")] = {p.get("key"): p.get("value") for p in variable.findall("operation/parameter")}
    assert {name: keys["mode"] for name, keys in found.items()} == {"minus": "pw_rel", "rho": "pw_rel", "u": "abs"}
    assert found["rho"]["accuracy"] == "0.001"
    assert out.count("0.001 of every value, as 0.0001 of the range would be too much for small ones (") == 2
    changes = err.partition("what the chosen bounds do to values that are not 0, estimated:\n")[2].splitlines()
    assert " ".join(changes[0].split()) == "variable bound become 0 change sign off by > 1% off by > 10%"
    assert changes[2].split() == ["rho", "0.001", "of", "each", "0", "0", "0", "0"]
    words = ["--relative", "1e-4", "--variable", "rho", "--predictor", "lorenzo"]
    _code, out, err = config(tmp_path / "run.bp", "--format", "xml", *words)
    assert 'value="abs"' in out
    shares = r"\d\d% become 0, 0 change sign, \d\d% off by > 1%, \d\d% off by > 10%"
    assert re.search(f"^note  rho: with this bound, {shares}: --mode pw_rel", err, re.MULTILINE), err


def test_names_with_ranges_of_numbers(engine: str, config: Callable, tmp_path: Path) -> None:
    write(tmp_path / "run.bp", engine, [{f"level{n}/rho": V * (n + 1) for n in range(3)}])
    names = ["--variable", "level{0..2}/rho", "--format", "xml"]
    assert list(bounds_of(config(tmp_path / "run.bp", *names)[1])) == [f"level{n}/rho" for n in range(3)]
    names = ["--variable", "level{0..1}/rho", "--eb", "2", "--variable", "level2/rho", "--eb", "3", "--format", "xml"]
    assert list(bounds_of(config(tmp_path / "run.bp", *names)[1]).values()) == [2, 2, 3]
    assert fails(config(tmp_path / "run.bp", "--variable", "{3..1}"), 2, "{3..1} must be of ascending numbers")


@pytest.mark.parametrize("given", [(), ("--eb", "0.5")], ids=str)
def test_levels_that_the_run_did_not_reach(given: tuple[str, ...], config: Callable, tmp_path: Path) -> None:
    """They get the bound of the last level. A name that differs in more than its numbers is an error."""
    write(tmp_path / "run.bp", "BP5", [{f"level{n}/{name}": V * 4**n for n in range(2) for name in ("rho", "p")}])
    names = ["--variable", "level{0..3}/{p,rho}", "--format", "xml", *given]
    code, out, _err = config(tmp_path / "run.bp", *names)
    bounds = bounds_of(out)
    assert code == 0
    assert list(bounds) == [f"level{n}/{name}" for n, name in [(0, "p"), (0, "rho"), (1, "p"), (1, "rho")]] + [
        f"level{n}/{name}" for n in (2, 3) for name in ("p", "rho")
    ]
    for name in ("p", "rho"):
        assert bounds[f"level2/{name}"] == bounds[f"level3/{name}"] == bounds[f"level1/{name}"]
    assert out.count("<!-- as level1/rho -->") == 2
    assert fails(config(tmp_path / "run.bp", "--variable", "level{0..3}/{rho,w}"), 2, "no variable 'level0/w'")
    assert fails(config(tmp_path / "run.bp", "--variable", "level{4..6}/rho"), 2, "no variable 'level{4..6}/rho'")


def test_wildcards_are_for_what_a_run_has(config: Callable, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "run.bp", "BP5", [{f"level{n}/{name}": V for n in range(3) for name in ("rho", "p")}])
    names = ["--variable", "*/rho", "--eb", "2", "--variable", "level0/*", "--eb", "3", "--format", "xml"]
    assert bounds_of(config(tmp_path / "run.bp", *names)[1]) == {
        "level0/p": 3,
        "level0/rho": 2,
        "level1/rho": 2,
        "level2/rho": 2,
    }
    assert cli.main(["config", "--variable", "level*/rho", "--eb", "1"]) == 2
    assert "ADIOS2's configurations have no wildcards" in capsys.readouterr().err


@pytest.mark.parametrize("has_run", [False, True])
def test_which_bound_a_variable_gets(has_run: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That of its own name, or of the first pattern that matches. It is listed once, because ADIOS2 takes the first."""
    write(tmp_path / "run.bp", "BP5", [dict.fromkeys(("level0/rho", "level1/rho", "a1", "a[1]"), V)])

    def configured(*patterns: str) -> tuple[int, str, str]:
        words = [word for n, pattern in enumerate(patterns) for word in ("--variable", pattern, "--eb", str(n + 1))]
        run = ["--from", str(tmp_path / "run.bp")] if has_run else []
        code = cli.main(["config", "--format", "xml", *run, *words])
        return code, *capsys.readouterr()

    rho = ("level{0..1}/rho", "level0/rho")
    for patterns in (rho, rho[::-1]):
        code, out, err = configured(*patterns)
        assert code == 0, err
        assert out.count("<variable") == 2
        assert bounds_of(out) == {
            "level0/rho": 1.0 + patterns.index(rho[1]),
            "level1/rho": 1.0 + patterns.index(rho[0]),
        }
    if has_run:
        assert bounds_of(configured("a[1]", "a*")[1]) == {"a[1]": 1, "a1": 2}
        found = bounds_of(configured("level{0..1}/rho", "level{0..3}/rho")[1])
        assert found == {f"level{n}/rho": 1.0 + (n > 1) for n in range(4)}  # even levels that the run does not have
    assert fails(configured("level{0..1}/rho", "a1", "level{0,1}/rho"), 2, r"rho has no effect: of patterns that fit a")
    assert fails(configured("a1", "a1"), 2, "--variable a1 is given twice")


def test_names_with_ranges_of_numbers_and_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["config", "--format=xml", "--variable=l{9..10}/{0..1}", "--eb=1", "--variable=T{a..b}", "--eb"]
    assert cli.main([*command, "2"]) == 0
    bounds = bounds_of(capsys.readouterr().out)
    assert bounds == {"l9/0": 1, "l9/1": 1, "l10/0": 1, "l10/1": 1, "T{a..b}": 2}
    assert cli.main(["config", "--format", "xml", "--variable", "{x,yz}/{0..1}", "--eb", "1"]) == 0
    assert list(bounds_of(capsys.readouterr().out)) == ["x/0", "x/1", "yz/0", "yz/1"]
    assert cli.main(["config", "--format", "xml", "--variable", "l{08..10}", "--eb", "1"]) == 0
    assert list(bounds_of(capsys.readouterr().out)) == ["l08", "l09", "l10"]
    assert cli.main(["config", "--variable", "l{0..1000000}", "--eb", "1"]) == 2
    assert "at most 1000 of them" in capsys.readouterr().err


def test_integers_are_packed(engine: str, config: Callable, tmp_path: Path) -> None:
    """They are packed exactly, without a bound, unless that saves nothing. Estimates come true."""
    mask = (np.indices((60, 70, 40))[0] // 17).astype(np.uint8)
    ids = [support.integers(5000 + n, 0, 1 << 40, n) * 2 for n in range(3)]
    noise = support.random_bits((4000,), F64).view(np.int64)
    steps = [{"mask": mask, "ids": ids, "noise": noise, "V": V, "z": V * 1j} for _ in range(2)]
    write(tmp_path / "run.bp", engine, steps)
    code, out, err = config(tmp_path / "run.bp", "--format", "xml", "--engine", engine)
    assert code == 0
    assert list(bounds_of(out)) == ["V", "ids", "mask"]
    assert "\nnote  noise: left out: packing does not make it smaller\n" in err
    xml = tmp_path / "adios2.xml"
    xml.write_text(out, encoding="utf-8")
    write(tmp_path / "compressed.bp", engine, steps, configuration=xml)
    report = cusz_operator.check(tmp_path / "compressed.bp", xml)
    assert report.problems == []
    told = dict(zip(("V", "ids", "mask"), map(float, re.findall(r"estimated: ratio ([\d.e+]+)", out)), strict=True))
    assert {v.name: v.ratio for v in report.variables if v.ratio} == {
        name: pytest.approx(ratio, rel=0.1) for name, ratio in told.items()
    }
    assert list(bounds_of(config(tmp_path / "run.bp", "--variable", "noise", "--format", "xml")[1])) == ["noise"]
    assert fails(config(tmp_path / "run.bp", "--variable", "z"), 2, "'z' is of type double complex; the operator takes")


def test_statistics_of_blocks_without_values_do_not_count(engine: str, dtype: np.dtype, tmp_path: Path) -> None:
    """BP5 stores the limits of the type for them, BP4 stores 0."""
    x = (1e6 * (1 + np.arange(9000) / 9000)).astype(dtype)
    steps: list[dict[str, Any]] = [{"x": [x[:4000], x[4000:], x[:0]]} for _ in range(4)]
    write(tmp_path / "run.bp", engine, steps)
    (variable,) = sampled_variables(tmp_path / "run.bp")
    assert variable.has_statistics
    assert variable.sample.limits.min == pytest.approx(1e6)
    assert variable.sample.limits.max == pytest.approx(float(x[-1]), rel=1e-5)


def test_blocks_that_adios2_cannot_list(engine: str, tmp_path: Path) -> None:
    """In Python, it cannot return the minimum and maximum of such integers, and hence no list of blocks."""
    mask = (np.indices((60, 70, 40))[0] // 17 + 190).astype(np.uint8)
    with Program(tmp_path / "run.bp", engine) as out:
        for rows in (60, 50):
            with out.step():
                out.put("mask", mask[:rows])
                for _ in range(2):
                    out.put("local", mask[:rows], ())
    variables = list(sampled_variables(tmp_path / "run.bp"))
    assert [variable.name for variable in variables] == ["local", "mask"]
    for variable in variables:
        assert variable.remark == ""
        assert variable.packed_ratio > 100


def test_names_that_need_escapes(config: Callable, tmp_path: Path) -> None:
    write(tmp_path / "run.bp", "BP5", [{'a<&>"b--': V}])
    assert list(bounds_of(config(tmp_path / "run.bp", "--format", "xml")[1])) == ['a<&>"b--']


# ------------------------------------------------------------------------------------------------------ the samples


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
def test_samples_are_values_of_the_run(run_bp: Path, predictor: str) -> None:
    steps = all_kinds()
    found = by_name(run_bp, predictor=predictor)
    assert list(found) == ["T", "V", "axis", "n", "particles/x", "time"]
    for name, variable in found.items():
        if name in ("n", "time"):
            assert variable.sample is None
            continue
        sample = variable.sample
        assert sample is not None
        values = [np.concatenate([np.ravel(block) for block, _ in _blocks(step[name])]) for step in steps]
        assert np.isin(sample.x, np.concatenate(values)).all()
        assert sample.limits.values == sample.x.size
        assert 0 < sample.share <= 1
    assert found["T"].sample.size == T.size // 2
    assert found["particles/x"].sample.size == 4900
    assert found["T"].sample.limits.max == pytest.approx(4 * T.max(), rel=1e-6)


@pytest.mark.parametrize("n_steps", [1, 2, 3, 4, 9])
def test_steps_that_are_looked_at(engine: str, n_steps: int, tmp_path: Path) -> None:
    """Up to three steps, spread over the run, and all blocks of each."""
    steps = [{"x": np.repeat(10.0 * step + np.arange(2), 3000)} for step in range(n_steps)]
    write(tmp_path / "run.bp", engine, steps)
    (variable,) = sampled_variables(tmp_path / "run.bp")
    seen = {1: [0], 2: [0, 1], 3: [0, 1, 2], 4: [0, 2, 3], 9: [1, 4, 7]}[n_steps]
    assert np.unique(variable.sample.x).tolist() == [10.0 * step + block for step in seen for block in range(2)]


def test_boxes_are_those_of_the_field(engine: str, tmp_path: Path) -> None:
    """Wherever a box lies, its values are arranged as in the field."""
    x = np.arange(90 * 100 * 130, dtype=F64).reshape(90, 100, 130)
    write(tmp_path / "run.bp", engine, [{"x": x}])
    (variable,) = sampled_variables(tmp_path / "run.bp", predictor="lorenzo")
    box = tuning.box_shape((45, 100, 130), "lorenzo")
    boxes = variable.sample.x.reshape(-1, *box)
    assert len(boxes) > 10
    for part in boxes:
        start = np.unravel_index(int(part.flat[0]), x.shape)
        assert np.array_equal(part, support.part(x, start, box))
        assert start[0] // 45 == (start[0] + box[0] - 1) // 45, "it lies in one block"


@pytest.mark.parametrize("stats", [0, 1])
def test_value_ranges(engine: str, stats: int, tmp_path: Path) -> None:
    """ADIOS2's statistics are used if they exist and can be right."""
    holes, infinite = V.copy(), V.copy()
    holes[0, 0] = np.nan
    infinite[75, 0] = np.inf
    write(tmp_path / "run.bp", engine, [{"V": V, "holes": holes, "infinite": infinite}], stats=stats)
    found = by_name(tmp_path / "run.bp")
    assert found["V"].has_statistics == (stats == 1)
    for name, x in {"V": V, "holes": holes, "infinite": infinite}.items():
        low, high = support.value_range(x)
        assert found[name].sample.limits.min == pytest.approx(low, rel=1e-5)
        assert found[name].sample.limits.max == pytest.approx(high, rel=1e-5)
    assert not found["infinite"].has_statistics


def test_variables_of_some_steps_and_shapes(engine: str, config: Callable, tmp_path: Path) -> None:
    """A variable that appears late, one that grows, empty blocks, many dimensions, and a run of single values only."""
    late = {"late": V}
    six = support.smooth((2, 1, 6, 5, 20, 30), F32)
    steps = [{"time": 0.1 * step, "six": six, **(late if step in (2, 5) else {})} for step in range(6)]
    for step, values in enumerate(steps):
        values["particles"] = [support.smooth((n,), F64) for n in (3000 + 100 * step, 0, 4000)]
    write(tmp_path / "run.bp", engine, steps)
    found = by_name(tmp_path / "run.bp")
    assert {name: (v.steps, v.blocks) for name, v in found.items()} == {
        "late": (2, 2),
        "particles": (6, 2),
        "six": (6, 2),
        "time": (6, 0),
    }
    assert found["six"].sample.blocks == ((6, 5, 20, 30),) * 6  # as the plugin compresses them
    assert np.array_equal(found["six"].sample.x, np.tile(six.reshape(-1), 3))
    assert np.isin(found["late"].sample.x, V).all()
    assert list(bounds_of(config(tmp_path / "run.bp", "--format", "xml")[1])) == ["late", "particles", "six"]
    write(tmp_path / "values.bp", engine, [{"time": 1.0}])
    assert fails(config(tmp_path / "values.bp"), 1, "no variable of .* has been given a bound")


@pytest.mark.parametrize("predictor", ["lorenzo", "spline"])
def test_little_is_read(engine: str, predictor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a block is, although ADIOS2 reads everything from the first to the last value of a selection."""
    x = np.zeros((100, 300, 400), F32)
    write(tmp_path / "run.bp", engine, [{"x": x}])
    monkeypatch.setattr(sampling, "_AT_ONCE", 1 << 16)
    monkeypatch.setattr(sampling, "_FETCHED", 8 << 20)
    reads = support.calls_of(monkeypatch, sampling._Run, "read")
    (variable,) = sampled_variables(tmp_path / "run.bp", predictor=predictor)
    spans = [4 * sampling._span(count, block.count, 0) for _, block, _, count in reads]
    assert max(spans) <= 1 << 16 if predictor == "lorenzo" else max(spans) <= 1.6 * (1 << 16)
    assert sum(spans) <= 8 << 20
    assert variable.sample.x.size >= 1 << 17


# ----------------------------------------------------------------------------------------------------------- damage


def test_files_that_cannot_be_read(engine: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(sampled_variables(tmp_path / "none.bp"))
    (tmp_path / "empty.bp").mkdir()
    with pytest.raises(CuszError, match=r"empty\.bp"):
        next(sampled_variables(tmp_path / "empty.bp"))
    write(tmp_path / "run.bp", engine, [{"V": V, "W": V}])
    with pytest.raises(ParameterError, match="no variable 'v'"):
        next(sampled_variables(tmp_path / "run.bp", ["v"]))
    (tmp_path / "run.bp" / "data.0").unlink()
    remarks = [variable.remark for variable in sampled_variables(tmp_path / "run.bp")]
    assert len(remarks) == 2
    assert all(remark.startswith("cannot be read: ") for remark in remarks)
    (tmp_path / "run.bp" / "md.idx").write_bytes(b"")
    with pytest.raises(CuszError, match=r"run\.bp"):
        next(sampled_variables(tmp_path / "run.bp"))


def test_a_damaged_file_of_a_writer(tmp_path: Path) -> None:
    support.write_run(tmp_path / "run.bp", {"T": T}, eb=1e-3)
    metadata = tmp_path / "run.bp" / "md.0"
    support.damage(metadata, metadata.stat().st_size // 2)
    with pytest.raises(CorruptArchiveError, match=r"md\.0"):
        next(sampled_variables(tmp_path / "run.bp"))


def test_a_file_of_a_writer(tmp_path: Path) -> None:
    """Block tables are not variables of the simulation."""
    support.write_run(tmp_path / "run.bp", {"T": T}, eb=1e-3)
    (variable,) = sampled_variables(tmp_path / "run.bp")
    assert (variable.name, variable.remark) == ("T", "already compressed with cusz, bound 0.001")


def test_a_process_of_its_own(run_bp: Path, program: Callable) -> None:
    command = [sys.executable, "-m", "cusz_core", "config", "--from", run_bp, "--format", "xml"]
    done = program(command)
    assert bounds_of(done.stdout).keys() == {"T", "V", "particles/x"}
    assert "ratio / PSNR, estimated" in done.stderr
