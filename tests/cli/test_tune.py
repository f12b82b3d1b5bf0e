"""`cusz tune`: what it prints and returns."""

import json
import math
import re
import shlex

import numpy as np
import pytest

import cusz_core as cusz
import support
from cusz_core import tuning
from support import fails

X = support.smooth((20, 30, 40), support.F32)


@pytest.mark.parametrize(
    "options",
    [
        ["x.npy"],
        ["x.npy", "--predictor", "spline", "--bins", "256"],
        ["x.npy", "--predictor", "lorenzo", "--bins", "256"],
        ["x.raw", "--shape", "20x30x40", "--dtype", "f32", "--fill=-1e+30", "--threads", "1"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("goal", [("--psnr", 70), ("--ratio", 6.5)], ids=str)
def test_a_goal(run, folder, goal, options):
    """The command that it prints gives the promised archive."""
    code, out, err = run("tune", *options, *goal)
    assert (code, err) == (0, "")
    head, _, rest = out.partition("\n")
    assert re.fullmatch(r"x\.\w+: float32 20x30x40, 96 kB, values -?\d\.\d+ to \d\.\d+", head)
    *_, command = rest.splitlines()
    assert run(*shlex.split(command)[1:])[0] == 0
    archive = (folder / f"{options[0]}.cusz").read_bytes()
    result = cusz.verify(X, archive)
    assert (result.psnr if goal[0] == "--psnr" else result.ratio) >= goal[1]
    assert f"\nbound     {result.eb!r}, " in out
    assert f"\nPSNR      {result.psnr:.2f} dB\n" in out
    assert f"\nratio     {result.ratio:.2f}, " in out
    assert f"\nmax error {result.max_error:.6g}\n" in out
    given = dict(zip(options[1::2], options[2::2], strict=False))
    parameters = cusz.Parameters(
        result.eb,
        predictor=given.get("--predictor", "auto"),
        bins=int(given.get("--bins", 64)),
        fill=-1e30 if "--fill=-1e+30" in options else None,
    )
    assert archive == cusz.compress_with(X, parameters)


@pytest.mark.parametrize("predictor", ["lorenzo", "auto"])
def test_a_table(run, predictor):
    code, out, err = run("tune", "x.npy", *(["--predictor", "lorenzo"] if predictor == "lorenzo" else []))
    assert (code, err) == (0, "")
    _, empty, columns, *rows = out.splitlines()
    assert empty == ""
    assert " ".join(columns.split()) == "of range bound ratio bits/value PSNR to 0 sign off > 1% > 10%"
    assert [float(row.split()[0]) for row in rows] == list(tuning.BOUNDS)
    for row in rows:
        bound = cusz.value_range(X).absolute_bound(float(row.split()[0]))
        result = cusz.verify(X, cusz.compress(X, bound, predictor=predictor))
        assert row.split()[2:5] == [f"{result.ratio:.2f}", f"{result.bit_rate:.2f}", f"{result.psnr:.1f}"]
        (outcome,) = tuning.survey(X, [float(row.split()[0])], predictor=predictor)
        assert row.split()[5:] == list(map(tuning.percent, outcome.effects))
    out = run("tune", "x.npy", "--bounds", "1e-3", "0.02")[1]
    assert [line.split()[0] for line in out.splitlines()[3:]] == ["0.001", "0.02"]


def test_a_table_from_a_sample(run, monkeypatch):
    monkeypatch.setattr(tuning, "_SAMPLE", 1 << 16)
    np.save("large.npy", support.smooth((70, 100, 100), support.F32))
    small_boxes = ("large.npy", "--predictor", "lorenzo")
    *_, empty, last = run("tune", *small_boxes)[1].splitlines()
    assert empty == ""
    assert re.fullmatch(r"estimated from \d+% of the values", last)
    assert "estimated" not in run("tune", *small_boxes, "--psnr", 60)[1]
    rows = json.loads(run("tune", *small_boxes, "--json")[1])["bounds"]
    assert all(row["share"] < 0.5 for row in rows)


def test_values_of_one_sign_over_many_decades(run):
    """A bound relative to the range would ruin most of them."""
    advice = "the values are of one sign, and small ones suffer: --mode pw_rel"
    x = np.exp(8 * X.astype(np.float64))
    for name, values in {"plus": x, "minus": -x, "both": x - x.mean(), "other": X}.items():
        np.save(f"{name}.npy", values)
        assert (advice in run("tune", f"{name}.npy")[1]) == (name in ("plus", "minus"))
    out = run("tune", "plus.npy", "--psnr", 60, "--predictor", "lorenzo")[1]
    assert re.search(
        r"^values    \d+% become 0, 0 change sign, >?\d+% off by > 1%, \d+% off by > 10%$", out, re.MULTILINE
    )
    assert run("compress", "plus.npy", "--eb", 1e-3, "--mode", "pw_rel")[0] == 0
    out = run("verify", "plus.npy", "plus.npy.cusz")[1]
    assert "\neffects   0 become 0, 0 change sign, 0 off by > 1%, 0 off by > 10%\n" in out


def test_json(run):
    table = json.loads(run("tune", "x.npy", "--bounds", "1e-3", "--json")[1])
    assert (table["field"], table["shape"], table["dtype"]) == ("x.npy", [20, 30, 40], "float32")
    assert (table["min"], table["max"]) == (X.min(), X.max())
    assert table["bounds"] == [tuning.survey(X, [1e-3])[0].to_dict()]
    found = json.loads(run("tune", "x.npy", "--psnr", "70", "--json")[1])
    expected = tuning.find_bound(X, psnr=70).to_dict()
    assert {key: found[key] for key in expected} == expected
    np.save("nan.npy", np.full((3, 4), math.nan))
    assert json.loads(run("tune", "nan.npy", "--psnr", "70", "--json")[1])["psnr"] == "inf"


def test_values_that_look_like_no_data(run):
    x = X.copy()
    x[:5] = 1e20
    np.save("ocean.npy", x)
    out = run("tune", "ocean.npy")[1]
    assert "\n25% are 1e+20, far from the others: give --fill 1e+20 if it means no data\n" in out
    assert json.loads(run("tune", "ocean.npy", "--json")[1])["likely_fill"] == float(np.float32(1e20))
    np.save("positive.npy", np.abs(x) + np.float32(1))
    out = run("tune", "positive.npy")[1]  # what its values need will be seen with --fill
    assert "give --fill 1e+20" in out
    assert "pw_rel" not in out
    out = run("tune", "ocean.npy", "--fill", "1e20", "--psnr", "60")[1]
    assert "no data" not in out
    assert f"values {x[5:].min():.6g} to {x[5:].max():.6g}\n" in out


def test_fields_without_a_range(run):
    np.save("equal.npy", np.full((30, 40), 5.0))
    out = run("tune", "equal.npy", "--psnr", "60")[1]
    assert "values 5 to 5\n" in out
    assert "\nbound     2.5\n" in out
    np.save("empty.npy", np.zeros((0, 3)))
    assert "no finite values" in run("tune", "empty.npy", "--psnr", "60")[1]
    assert fails(run("tune", "empty.npy", "--ratio", "3"), 2, "the field is empty")
    assert run("tune", "empty.npy")[0] == 0


def test_errors(run):
    assert fails(run("tune"), 2, "field")
    assert fails(run("tune", "x.npy", "--psnr", "60", "--ratio", "3"), 2, "not allowed with")
    assert fails(run("tune", "x.npy", "--psnr", "60", "--bounds", "1"), 2, "not allowed with")
    assert fails(run("tune", "x.npy", "--ratio", "many"), 2, "'many' is not a number")
    assert fails(run("tune", "x.npy", "--ratio", "0.5"), 2, "ratio is 0.5; it must be finite and above 1")
    assert fails(run("tune", "x.npy", "--psnr", "inf"), 2, "psnr is inf")
    assert fails(run("tune", "x.npy", "--bounds", "-1"), 2, "eb is -1")
    assert fails(run("tune", "x.npy", "--ratio", "1e6"), 2, r"the best found for this field is \d+")
    assert fails(run("tune", "x.npy", "--eb", "1e-3"), 2, "--eb")
    assert fails(run("tune", "x.raw"), 2, "give --shape .* and --dtype")
    assert fails(run("tune", "missing.npy"), 1, "No such file or directory: missing.npy")
    np.save("i.npy", np.arange(5))
    assert fails(run("tune", "i.npy"), 2, "int64.*accepted are float32 and float64")


@pytest.mark.parametrize("goal", [("psnr", 70.0), ("ratio", 6.5)], ids=str)
def test_compress_with_a_goal(run, folder, goal):
    name, wanted = goal
    code, out, err = run("compress", "x.npy", f"--{name}", wanted, "--bins", "256")
    assert (code, err) == (0, "")
    archive = (folder / "x.npy.cusz").read_bytes()
    found = cusz.verify(X, archive)
    assert getattr(found, name) >= wanted
    assert archive == tuning.find_bound(X, **{name: wanted}, bins=256).archive
    assert f"ratio {found.ratio:.2f}" in out
    assert f"PSNR {found.psnr:.2f} dB, bound {found.eb_abs!r}" in out
    told = json.loads(run("compress", "x.npy", f"--{name}", wanted, "--bins", "256", "-f", "--json")[1])
    assert (told["eb"], told["psnr"]) == (found.eb, found.psnr)
    assert run("compress", "x.npy", "--eb", wanted, "--mode", name, "--bins", "256", "-f")[0] == 0
    assert (folder / "x.npy.cusz").read_bytes() == archive


def test_compress_needs_one_goal(run, folder):
    assert fails(run("compress", "x.npy"), 2, "one of the arguments --eb --psnr --ratio is required")
    assert fails(run("compress", "x.npy", "--eb", "1", "--psnr", "70"), 2, "not allowed with")
    assert fails(run("compress", "x.npy", "--psnr", "70", "--mode", "rel"), 2, "--mode is that of --eb")
    too_little = run("compress", "x.npy", "--eb", "0.5", "--mode", "ratio")
    assert fails(too_little, 2, "ratio is 0.5; it must be finite and above 1")
    assert fails(run("compress", "x.npy", "--ratio", "1e6"), 2, "the best found for this field is")
    assert not (folder / "x.npy.cusz").exists()


@pytest.mark.parametrize("fill", ["nan", "inf", "-inf"])
def test_a_fill_that_json_does_not_have(run, fill):
    code, out, _ = run("tune", "x.npy", f"--fill={fill}", "--json")
    assert code == 0
    assert json.loads(out)["fill"] == fill
