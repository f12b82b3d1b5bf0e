"""scripts/bench/compare.py: what it counts, what it writes, and that no tool can end it."""

import csv
import dataclasses
import json
import math
import os
import sys
import tempfile
import time

import compare
import numpy as np
import pytest
import runner
from comparison import files, measure, report, tools
from comparison.fields import Field

import cusz_core as cusz
import support

X = support.smooth((12, 20, 30), support.F32)
OURS, SPLINE = tools.TOOLS[:2]
INSTALLED = [tool for tool in tools.TOOLS if tool.missing() is None]


class Careless(tools.Codec):
    """Stores the field unchanged, but decodes three values beyond the bound."""

    def compress(self):
        return self.x.tobytes()

    def decompress(self, archive):
        y = np.frombuffer(archive, self.x.dtype).reshape(self.x.shape).copy()
        y.reshape(-1)[[3, 5, 7]] += self.x.dtype.type(1.5 * self.task.eb_abs)
        return y


class Failing(tools.Codec):
    def compress(self):
        raise ValueError("not | today")

    def decompress(self, archive):
        raise AssertionError


def fake(name, codec, **options):
    class Fake(tools.Tool):
        def version(self):
            return f"{name} 1"

    return Fake(name=name, codec=codec, package="", module="math", bound="none", timed="nothing", **options)


CARELESS, FAILING = fake("careless", Careless), fake("failing", Failing)
MISSING = tools.Tool("absent", Careless, "absent", "there_is_no_such_module", "none", "nothing")


def plan(*chosen, **options):
    return measure.Plan(options.pop("ebs", [1e-2]), chosen, repeat=1, **options)


# ------------------------------------------------------------------------------------------------- what is counted


def test_quality_is_exact(dtype):
    x = np.array([0.0, 1.0, 2.0, 4.0, np.nan, np.inf, 1e20], dtype)
    y = x.copy()
    y[1] += dtype.type(0.25)
    assert measure.quality(x, y, 0.25, 1e20) == measure.Quality(0, 1.0, pytest.approx(20 * math.log10(4 / 0.125)))
    assert measure.quality(x, y, math.nextafter(0.25, 0), 1e20).violations == 1
    for i, value in ((4, 0.0), (5, -np.inf), (6, np.nextafter(x[6], dtype.type(0)))):
        broken = x.copy()
        broken[i] = value
        assert measure.quality(x, broken, 1e15, 1e20).violations == 1
    broken = x.copy()
    broken[2] = np.nan
    assert measure.quality(x, broken, 0.25, 1e20) == measure.Quality(1, math.inf, -math.inf)
    with pytest.raises(RuntimeError, match="came back as"):
        measure.quality(x, y[1:], 0.25)


def test_a_tool_that_breaks_its_bound_is_counted():
    (row,) = measure.measure([Field("x", X)], plan(CARELESS))
    assert (row["violations"], row["error"]) == (3, None)
    bound = support.absolute_bound(X, 1e-2, "rel")
    kept = X.reshape(-1)[[3, 5, 7]]
    errors = (kept + X.dtype.type(1.5 * bound)).astype(np.float64) - kept
    assert row["max_error_over_eb"] == errors.max() / bound
    assert row["ratio"] == 1
    assert "3" in report.kept({"rows": [row]})


@pytest.mark.parametrize(("tool", "predictor", "mode"), [(OURS, "lorenzo", "rel"), (SPLINE, "spline", "abs")])
def test_ours_keeps_it(dtype, tool, predictor, mode):
    x = X.astype(dtype)
    x[0, 0, :5] = [np.nan, np.inf, -np.inf, 1e20, 1e20]
    rows = measure.measure([Field("x", x, 1e20)], plan(tool, mode=mode, ebs=[1e-2, 1e-4]))
    assert [(row["eb"], row["threads"]) for row in rows] == [(1e-2, 1), (1e-2, 2), (1e-4, 1), (1e-4, 2)]
    for row in rows:
        assert (row["violations"], row["error"]) == (0, None)
        archive = cusz.compress(x, row["eb"], mode, fill=1e20, predictor=predictor)
        info = cusz.inspect(archive)
        assert (row["eb_abs"], row["ratio"], row["bit_rate"]) == (info.eb_abs, info.ratio, info.bit_rate)
        checked = cusz.verify(x, archive)
        assert (row["psnr"], row["max_error_over_eb"]) == (checked.psnr, checked.max_error_over_eb)
        assert row["compress_mbps"] > 0 < row["decompress_mbps"]
        assert row["peak_bytes"] is None or row["peak_bytes"] >= 0
        assert set(row) == set(measure.COLUMNS)


@pytest.mark.parametrize("tool", INSTALLED, ids=lambda tool: tool.name)
@pytest.mark.parametrize("shape", [(500,), (40, 50), (12, 20, 30), (3, 4, 20, 30)], ids=str)
def test_every_installed_tool_comes_close(tool, shape):
    """No adapter passes on a wrong bound, shape or type."""
    x = support.smooth(shape, support.F32)
    for field in (x, x.astype(np.float64)):
        for row in measure.measure([Field("x", field)], plan(tool)):
            if tool.refuses(field) is None:
                assert row["error"] is None
                assert 0.01 < row["max_error_over_eb"] < 1.01


class Tighter(tools._Cusz):
    """Keeps a third of the bound."""

    def __init__(self, task, buffers):
        super().__init__(dataclasses.replace(task, mode="abs", eb=task.eb_abs / 3), buffers)


def test_ratio_at_equal_psnr():
    yardstick = fake(tools.YARDSTICK, Tighter)
    bound = support.absolute_bound(X, 1e-2, "rel")
    rows = measure.measure([Field("x", X)], plan(OURS, SPLINE, yardstick, threads=[1]))
    ours, spline, theirs = ({**row, "compress_mbps": 1.0, "decompress_mbps": 1.0} for row in rows)
    assert cusz.verify(X, cusz.compress(X, bound / 3, predictor="lorenzo")).psnr == theirs["psnr"] > ours["psnr"] + 5
    archive = cusz.compress(X, theirs["psnr"], "psnr", predictor="lorenzo")
    assert ours["ratio_at_psnr"] == cusz.inspect(archive).ratio < ours["ratio"]
    assert spline["ratio_at_psnr"] < spline["ratio"]
    assert theirs["ratio_at_psnr"] is None
    means = report.equal_psnr_means({"rows": [ours, spline, theirs]})
    assert means["cusz"] == ours["ratio_at_psnr"] / theirs["ratio"]
    assert means["cusz spline"] == spline["ratio_at_psnr"] / theirs["ratio"]
    assert report.equal_psnr_means({"rows": [ours, spline]}) == {}


def test_memory():
    if measure.with_peak(lambda: None)[1] is None:
        pytest.skip("/proc/self/clear_refs cannot be written: the kernel does not reset the peak of memory")
    _, peak = measure.with_peak(lambda: np.ones(25_000_000))  # 200 MB: the kernel may take some back meanwhile
    assert (peak or 0) > 150_000_000


# --------------------------------------------------------------------------------------------------------- failures


def test_a_failure_is_a_row_and_the_others_go_on():
    flat = fake("flat", Careless, ndims=(2,))
    rows = measure.measure([Field("x", X)], plan(FAILING, flat, CARELESS, threads=[1]))
    assert [row["error"] for row in rows] == ["ValueError: not | today", "3-D fields are not supported", None]
    assert rows[0]["ratio"] is rows[0]["violations"] is None
    assert "not / today" in report.detailed({"rows": rows})


@pytest.mark.parametrize("error", ["crashes (signal 11)", None])
def test_a_tool_that_may_crash_is_tried_elsewhere_first(monkeypatch, error):
    monkeypatch.setattr(runner, "apart", lambda *_, **__: (None, error))
    (row,) = measure.measure([Field("x", X)], plan(dataclasses.replace(CARELESS, may_crash=True)))
    assert row["error"] == error


@pytest.mark.parametrize("tool", [OURS, files.THROUGH["hdf5"][1][0]], ids=["memory", "file"])
def test_the_probe_runs(tool):
    assert runner.apart(measure.try_once, tool, tools.Task(X, "rel", 0.01, 0.02, True), None) == (None, None)


def test_calls_in_a_separate_process():
    assert runner.apart(math.hypot, 3, 4) == (5.0, None)
    assert runner.apart(os.abort) == (None, "crashes (signal 6)")
    assert runner.apart(os._exit, 3) == (None, "ends with status 3")
    assert runner.apart(math.sqrt, -1) == (None, "ValueError: math domain error")
    assert runner.apart(time.sleep, 60, limit=0.6) == (None, "did not end within 0.01 minutes")


def test_missing_tools_are_listed():
    assert MISSING.missing() == "not installed"
    head = {"tools": measure.described([OURS, MISSING], plan(OURS))}
    assert [(tool["name"], tool["missing"]) for tool in head["tools"]] == [("cusz", None), ("absent", "not installed")]
    assert "| absent | not installed |" in report.tools_table({"head": head, "rows": []})


# ------------------------------------------------------------------------------------------------------ command line


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs compare.py with our tool, two fakes and a missing one; returns (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tools, "TOOLS", [OURS, CARELESS, FAILING, MISSING])
    np.save("x.npy", X)

    def call(*words):
        code = compare.main([*map(str, words)])
        return code, *capsys.readouterr()

    return call


def test_files(run, tmp_path):
    words = ["--eb", "1e-2", "1e-3", "--repeat", 2, "--csv", "b.csv", "--json", "b.json"]
    code, out, err = run("x.npy", *words)
    assert (code, err) == (0, "")
    assert "| x | float32 | 0.01 | cusz | 2 |" in out
    assert "| cusz relative to |" in out
    assert "| careless | 2 of 2 | 6 |" in out
    assert "not installed" in out

    document = json.loads((tmp_path / "b.json").read_text())
    assert [(row["tool"], row["eb"], row["threads"]) for row in document["rows"]] == [
        (tool, eb, n) for eb in (1e-2, 1e-3) for tool, n in (("cusz", 1), ("cusz", 2), ("careless", 1), ("failing", 1))
    ]
    assert document["head"]["repeat"] == 2
    assert {"cpu", "cores", "date", "numpy", "tools"} <= document["head"].keys()
    with open("b.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["dataset"], line["shape"], line["violations"]) for line in lines[:4]] == [
        ("x", "12x20x30", "0"),
        ("x", "12x20x30", "0"),
        ("x", "12x20x30", "3"),
        ("x", "12x20x30", ""),
    ]

    # a report from an earlier measurement equals the first one
    assert run("--from", "b.json", "--json", "again.json")[0] == 0
    assert (tmp_path / "again.json").read_text() == (tmp_path / "b.json").read_text()


def test_infinite_values_survive_json(run, tmp_path):
    np.save("x.npy", np.full((5, 6), 2.5, np.float32))  # no range: exact, so the PSNR is infinite
    assert run("x.npy", "--tools", "cusz", "--json", "b.json")[0] == 0
    assert json.loads((tmp_path / "b.json").read_text())["rows"][0]["psnr"] == "inf"
    assert report.read_json(tmp_path / "b.json")["rows"][0]["psnr"] == math.inf


def test_documentation(run, tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "docs.md"
    begin, end = "<!-- bench: begin -->", "<!-- bench: end -->"
    page.write_text(f"before\n{begin}\nfrom before\n{end}\nafter\n")
    assert run("x.npy", "--docs", page, "--repeat", 1)[0] == 0
    text = page.read_text()
    assert text.startswith(f"before\n{begin}\n")
    assert text.endswith(f"\n{end}\nafter\n")
    assert "from before" not in text
    assert "(figures/bench_ratios.csv)" in text
    lines = [*csv.reader((tmp_path / "figures/bench_ratios.csv").read_text().splitlines())]
    assert lines[0] == ["field", "rel", "cusz", "careless", "failing"]
    assert [line[:2] for line in lines[1:]] == [["x", "0.01"], ["x", "0.001"], ["x", "0.0001"]]
    assert all(not line[2].endswith("*") and line[3].endswith("*") and line[4] == "" for line in lines[1:])
    files = {path.name: path.stat().st_size for path in (tmp_path / "figures").iterdir()}
    by_case = {"bench_tools.csv", "bench_ratios.csv", "bench_speeds.csv", "bench_speeds_2.csv"}
    assert files.keys() == {"bench.json", "rate_distortion.svg", "throughput.svg"} | by_case
    assert max(files.values()) < 200_000

    first = (tmp_path / "figures/throughput.svg").read_bytes()
    assert run("--from", "figures/bench.json", "--docs", page)[0] == 0
    assert page.read_text() == text
    assert (tmp_path / "figures/throughput.svg").read_bytes() == first

    page.write_text("<!-- summary: begin -->\n<!-- summary: end -->\n")
    assert run("--from", "figures/bench.json", "--summary", page)[0] == 0
    assert "| careless | " in page.read_text()
    assert "3 of 3 |" in page.read_text()
    assert (tmp_path / "figures/summary.json").read_bytes() == (tmp_path / "figures/bench.json").read_bytes()
    assert run("--from", "figures/summary.json", "--summary", page)[0] == 0

    page.write_text("no markers")
    for option in ("--docs", "--summary"):
        assert run("x.npy", option, page)[:2] == (2, "")


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [
        ((files.MAX_VALUES,), (files.MAX_VALUES,)),
        ((files.MAX_VALUES + 1,), (files.MAX_VALUES // 2 + 1,)),
        ((256, 256, 256), (64, 128, 128)),
        ((1800, 3600), (900, 900)),
        ((1, 2, 3), (1, 2, 3)),
    ],
)
def test_chunks(shape, chunk):
    assert files.chunk_of(shape) == chunk


@pytest.mark.parametrize("through", ["hdf5", "zarr"])
def test_whole_files(run, monkeypatch, tmp_path, through):
    """Only ours: the other codecs are not in this environment."""
    (tmp_path / "files").mkdir()
    (tmp_path / "figures").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "files"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    x = X.copy()
    x[0, :2] = 1e20
    np.save("x.npy", x)
    begin, end = f"<!-- through {through}: begin -->", f"<!-- through {through}: end -->"
    page = tmp_path / "page.md"
    page.write_text(f"{begin}\nfrom before\n{end}\n")
    words = ["--tools", "cusz,cusz-auto", "--eb", "1e-3", "--repeat", 1, "--docs", page]
    assert run("x.npy", "--through", through, "--fill", "1e20", *words)[0] == 0
    assert not list((tmp_path / "files").iterdir())
    assert cusz.default_threads() == 1
    rows = json.loads((tmp_path / f"figures/through_{through}.json").read_text())["rows"]
    assert [(row["tool"], row["threads"]) for row in rows] == [("cusz", 1), ("cusz auto", 1)]
    for row in rows:
        assert (row["error"], row["violations"]) == (None, 0)
        assert row["eb_abs"] == support.absolute_bound(X[X < 1e19], 1e-3, "rel")
        assert row["ratio"] > 1.5
    text = page.read_text()
    assert "Whole files" in text
    assert "from before" not in text
    lines = (tmp_path / f"figures/through_{through}_ratios.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines] == [["field", "rel"], ["x", "0.001"]]
    assert run("--from", f"figures/through_{through}.json", "--docs", page)[0] == 0
    assert page.read_text() == text


def test_figures_without_matplotlib(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run("x.npy", "--figures", "there")
    assert (code, out) == (2, "")
    assert "figures need matplotlib" in err
    assert run("x.npy", "--tools", "cusz")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nor a generated field"),
        (["nowhere.npy"], "No such file"),
        (["x.npy", "--tools", "cusz,gzip"], "there is no tool gzip"),
        (["x.npy", "--repeat", 0], "--repeat is 0"),
        (["x.npy", "--threads", 0], "threads is 0"),
        (["x.npy", "--eb", -1], "eb is -1"),
        (["x.npy", "--pfpl", "."], "not a checkout of PFPL"),
        (["x.npy", "--qoz", "."], "not a checkout of QoZ"),
        (["--from", "x.npy"], "not what"),
        (["x.npy", "--json", "nowhere/b.json"], "there is no folder nowhere"),
    ],
)
def test_mistakes(run, words, message):
    code, out, err = run(*words)
    assert code in (1, 2)
    assert out == ""
    assert message in err


@pytest.mark.parametrize("name", tools.OURS)
def test_a_broken_bound_of_ours_is_an_error(run, monkeypatch, name):
    monkeypatch.setattr(tools, "TOOLS", [dataclasses.replace(CARELESS, name=name)])
    code, _, err = run("x.npy", "--eb", "1e-2")
    assert code == 1
    assert "3 values beyond the bound" in err


def test_list(run):
    code, out, _ = run("--list")
    assert code == 0
    assert "turbulence_f64" in out
    assert f"cusz {cusz.__version__}" in out
    assert compare._slug("SZ3 Lorenzo") == "sz3-lorenzo"
