"""scripts/bench/gpu_peers.py and gpu_peers_build.py, as far as they work without a GPU and without the peers.

tests/simt/test_gpu_tests.py runs all of it on the emulator's device.
"""

import dataclasses
import json
import shutil
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import gpu_peers as peers
import gpu_peers_build as build
import gpu_report as report
import numpy as np
import pytest
import runner

import gpu
import support
from bench.test_gpu import Array, document


def beside(tool, ratio, speed, **changes):
    return {
        "tool": tool, "version": "abc", "dataset": "turbulence@512", "shape": [512, 512, 512], "dtype": "float32",
        "mode": "abs", "eb": 0.25, "rel_eb": 1e-3, "ratio": ratio, "psnr": 64.8, "max_error_over_eb": 1.0,
        "violations": 0, "compress_gbps": speed, "decompress_gbps": 2 * speed, "end_to_end_gbps": None, "repeat": 10,
        "note": "", **changes,
    }  # fmt: skip


def failed(tool):
    return beside(tool, None, 1) | {
        "compress_gbps": None, "decompress_gbps": None, "psnr": None, "max_error_over_eb": None, "violations": None,
        "note": "FAILED: signal 11: a | b",
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- fields, bounds, plan


@pytest.mark.parametrize(
    ("shape", "extents", "dimensions"),
    [
        ((7,), (1, 1, 7), 1),
        ((3, 7), (1, 3, 7), 2),
        ((2, 3, 7), (2, 3, 7), 3),
        ((5, 2, 3, 7), (10, 3, 7), 3),
        ((1, 1, 7), (1, 1, 7), 1),
    ],
)
def test_what_peers_take_a_field_for(shape, extents, dimensions):
    assert (peers.extents_of(shape), peers.dimensions_of(shape)) == (extents, dimensions)


def test_names_of_fields(tmp_path):
    spec = peers.parse_field("particles_x@8x3_f64")
    assert (spec.label, spec.dtype, spec.dimensions()) == ("particles_x@8x3", "float64", 1)
    x, single = peers.load(spec, None).x, peers.load(peers.parse_field("particles_x@8"), None).x
    assert (x.shape, x.dtype, single.dtype) == ((3 * 512,), support.F64, support.F32)
    assert np.array_equal(x[512:1024], single + np.float32(8))
    again = peers.load(peers.parse_field("particles_vx@8x2"), None).x
    assert support.same_bits(again[:512], again[512:])
    assert peers.parse_field("flux@1800").dimensions() == 2
    assert peers.parse_field("orbitals@64").dimensions() == 3

    np.save(tmp_path / "own.npy", np.zeros((4, 5)))
    own = peers.parse_field(str(tmp_path / "own.npy"))
    assert (own.label, own.dtype, own.dimensions()) == ("own", "float64", 2)
    for word in ("turbulence", "nothing@16", "turbulence@0", "particles_x@8x0", "turbulence@16x2"):
        with pytest.raises(runner.Failure):
            peers.parse_field(word)


@pytest.mark.parametrize("relative", [1e-2, 1e-3, 1e-4, 0.3, 0.5])
def test_the_bound_is_the_largest_f32_that_is_not_above(relative):
    x = np.array([-1.5, np.nan, 0.25, np.inf, 6.5], np.float32)
    eb = peers.absolute_bound(np, x, relative)
    assert eb == np.float32(eb)
    assert eb <= relative * 8 < float(np.nextafter(np.float32(eb), np.float32(np.inf)))
    assert peers.absolute_bound(np, np.full(3, np.nan, np.float32), relative) == 0
    assert peers.absolute_bound(np, np.ones(3, np.float32), relative) == 0


def test_the_plan_needs_no_gpu(monkeypatch, tmp_path, capsys):
    for name in build.RECIPES:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(build, "version_of", lambda recipe, folder: "1")
    monkeypatch.setattr(build, "build", lambda recipes, *rest: {"PFPL": "an error of the compiler"})
    words = ["--peers", str(tmp_path), "--dry-run", "turbulence@512", "flux@1800", "turbulence@256_f64"]
    assert peers.main(words) == 1  # because PFPL was not built
    out, err = capsys.readouterr()
    assert "PFPL does not compile:\nan error of the compiler" in err
    assert out.splitlines() == [
        "bounds, of the range: 0.01, 0.001, 0.0001",
        "turbulence@512 float32: cusz_core, cuSZ, cuSZp outlier 1-D, cuSZp outlier 3-D, cuSZp plain 1-D, "
        "cuSZp plain 3-D, FSZ, FZ-GPU",
        "flux@1800 float32: cusz_core, cuSZ, cuSZp outlier 1-D, cuSZp outlier 2-D, cuSZp plain 1-D, "
        "cuSZp plain 2-D, FSZ, FZ-GPU",
        "turbulence@256 float64: cusz_core, cuSZ, cuSZp outlier 1-D, cuSZp outlier 3-D, cuSZp plain 1-D, "
        "cuSZp plain 3-D, FSZ; FZ-GPU has no float64",
    ]
    monkeypatch.setattr(build, "build", lambda recipes, *rest: {})
    assert peers.main([*words, "--only", "FSZ"]) == 0
    assert "turbulence@512 float32: cusz_core, FSZ\n" in capsys.readouterr().out


# --------------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing@16"], "nothing@16 is neither a .npy file"),
        (["--only", "SZ4"], "SZ4 is not a peer: cuSZ, cuSZp, FSZ, FZ-GPU, PFPL"),
        (["--rel", "0"], "must be positive"),
        (["--rel", "nan"], "must be positive"),
        (["--repeat", "0"], "must be positive"),
        (["--dry-run"], "has none of them:\n    cuSZ    https://github.com/szcompressor/cuSZ d3cde38aec71\n"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, capsys, words, message):
    assert peers.main(["--peers", str(tmp_path), *words]) == 1
    assert message in capsys.readouterr().err


def test_a_folder_is_needed(tmp_path, capsys):
    assert peers.main(["--peers", str(tmp_path / "none")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        peers.main([])


def test_without_a_gpu(tmp_path, capsys):
    if "cuda" in support.BACKENDS:
        pytest.skip("there is a CUDA device")
    for name in build.RECIPES:
        (tmp_path / name).mkdir()
    assert peers.main(["--peers", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: there is no GPU to measure: {gpu_device()}\n"


def gpu_device():
    import cusz_core

    return {backend.name: backend for backend in cusz_core.devices()}["cuda"].device


# ------------------------------------------------------------------------------------------------------------- build


def test_what_is_needed_is_copied_and_known(tmp_path):
    recipe = build.Recipe("A", "https://a", "0123456789abcdef", "", ("src", "one.h"), {"a": ("src/a.cu",)})
    folder = tmp_path / "A"
    with pytest.raises(runner.Failure, match="no checkout of https://a"):
        build.digest_of(recipe, folder)
    (folder / "src/deep").mkdir(parents=True)
    for name in ("src/a.cu", "src/deep/b.cuh", "one.h", "not.needed"):
        (folder / name).write_text(name)
    build.copy_needed(recipe, folder, tmp_path / "copy")
    copied = sorted(p.relative_to(tmp_path / "copy").as_posix() for p in (tmp_path / "copy").rglob("*") if p.is_file())
    assert copied == ["one.h", "src/a.cu", "src/deep/b.cuh"]
    digest = build.digest_of(recipe, folder)
    assert build.digest_of(recipe, tmp_path / "copy") == digest
    assert build.version_of(recipe, folder) == f"sources {digest}"
    tried = dataclasses.replace(recipe, digest=digest)
    assert build.version_of(tried, tmp_path / "copy") == "0123456789ab"

    before = (tmp_path / "copy/one.h").stat().st_mtime_ns
    (folder / "src/a.cu").write_text("changed")
    build.copy_needed(recipe, folder, tmp_path / "copy")
    assert (tmp_path / "copy/src/a.cu").read_text() == "changed"
    assert (tmp_path / "copy/one.h").stat().st_mtime_ns == before
    assert build.version_of(tried, folder).startswith("sources ")


def test_the_programs_that_tools_run_are_built():
    for tool in peers.TOOLS:
        programs = set(tool.recipe.programs)
        if tool.program is not None:
            assert tool.program in programs
            sources = tool.recipe.programs[tool.program]
            assert (build.ADAPTERS / sources[0]).is_file()
        else:
            assert programs == {f"pfpl_{t}_{way}" for t in ("f32", "f64") for way in ("comp", "decomp")}
    written = {path.stem for path in build.ADAPTERS.glob("*.c*")} - {"main"}
    assert written == {Path(sources[0]).stem for tool in peers.TOOLS if tool.program
                       for sources in tool.recipe.programs.values()}  # fmt: skip
    for recipe in build.RECIPES.values():
        assert len(recipe.commit) == 40
        assert len(recipe.digest) == 16


def test_ninja_is_told_of_every_source_once(tmp_path):
    text = build.ninja_file([*build.RECIPES.values()], tmp_path / "a b", "/bin/nvcc", "90")
    lines = text.splitlines()
    assert lines[1].endswith("-arch=sm_90")
    assert lines[-1] == "default cuSZ cuSZp FSZ FZ-GPU PFPL"
    built = [line.split(": compile ")[0] for line in lines if ": compile " in line]
    assert len(built) == len(set(built)) == sum(
        len(sources) + ((build.ADAPTERS / sources[0]).is_file())
        for recipe in build.RECIPES.values() for sources in recipe.programs.values()
    )  # fmt: skip
    assert "a$ b/FSZ/fsz: link " in text
    with pytest.raises(runner.Failure, match="cannot be in a path"):
        build.ninja_file([build.FSZ], tmp_path / 'a"b', "/bin/nvcc", "90")


def test_what_does_not_compile_is_named(tmp_path, monkeypatch):
    if not shutil.which("ninja"):
        pytest.skip("ninja is not here")
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin/nvcc", "import sys; sys.exit('nvcc fatal: ' + sys.argv[-1] if 'B' in sys.argv[-1] else "
                                   "open(sys.argv[-1], 'w').close())")  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    recipes = []
    for name in ("A", "B"):
        recipes.append(build.Recipe(name, "", "", "", ("a.cu",), {f"{name}_comp": ("a.cu",)}))
        (tmp_path / "peers" / name).mkdir(parents=True)
        (tmp_path / "peers" / name / "a.cu").write_text("")
    found = build.build(recipes, tmp_path / "peers", tmp_path / "build", "90", 1)
    assert list(found) == ["B"]
    assert "nvcc fatal: " in found["B"]
    assert (tmp_path / "build/A/A_comp").exists()


# ------------------------------------------------------------------------------------------------------------- peers


def test_what_programs_print():
    good = 'its own words\n{"archive_bytes": 1000, "compress_us": [3.0, 1.0, 2.5], "decompress_us": [4.0, 8.0]}\n'
    assert peers.parse_adapter(good) == peers.Measured(1000, 2.5, 6.0, 3)
    for bad in ("", "nothing", '{"archive_bytes": 1}', '{"archive_bytes": 1, "compress_us": [], "decompress_us": []}',
                '{"archive_bytes'):  # fmt: skip
        with pytest.raises(peers.PeerError, match="printed no result"):
            peers.parse_adapter(bad)

    runs = "\n".join(f"lc comp ecltime, {0.001 * n:12.9f}" for n in (900, 800, 3, 1, 2))
    assert peers.parse_pfpl(f"PFPL GPU\n{runs}\nencoded size: 7 bytes\n", "comp") == pytest.approx((2000, 3))
    with pytest.raises(peers.PeerError, match="no times: lc comp ecltime"):
        peers.parse_pfpl(runs, "decomp")


def program(path, code):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def case(tmp_path):
    x = support.smooth((6, 20, 30), np.dtype(np.float32))
    x.tofile(tmp_path / "field.raw")
    return x.view(Array), peers.Case(tmp_path / "field.raw", tmp_path / "decoded.raw", "float32", x.shape, 0.25, 3)


def tool(**changes):
    recipe = build.Recipe("Own", "", "", "", (), {})
    return peers.Tool("Own", recipe, "own", **changes)


def measured(case, code, tmp_path, **changes):
    program(tmp_path / "Own/own", code)
    cupy = SimpleNamespace(**vars(np) | {"asarray": lambda x: x.view(Array)})
    return peers.measured_row(cupy, tool(**changes), "v", case[0], case[1], tmp_path)


RESULT = 'print(\'{"archive_bytes": 4800, "compress_us": [2, 2, 2], "decompress_us": [1, 1, 1]}\')'


def test_a_peer_is_measured_and_checked(case, tmp_path):
    code = f"""
import sys
import numpy as np
_, field, dtype, *extents, eb, repeat, decoded, variant = sys.argv
assert (dtype, extents, float(eb), repeat, variant) == ("f32", ["6", "20", "30"], 0.25, "3", "plain 1"), sys.argv
x = np.fromfile(field, np.float32)
x[:2000] += np.float32(0.2)
x[7] += 1
x[8] = np.nan
x.tofile(decoded)
print("chatter")
{RESULT}
"""
    row = measured(case, code, tmp_path, variant="plain 1", note="seen")
    assert set(report.COLUMNS) <= set(row)
    assert (row["ratio"], row["compress_gbps"], row["decompress_gbps"]) == (3.0, 7.2, 14.4)
    assert (row["violations"], row["note"], row["repeat"]) == (2, "seen", 3)
    assert row["max_error_over_eb"] == np.inf  # NaN came back for a number
    assert row["psnr"] == -np.inf


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit('error: too many outliers')", "FAILED: exit status 1: error: too many outliers"),
        ("import os; os.abort()", "FAILED: signal 6: it says nothing"),
        ("print('done')", "FAILED: it printed no result: done"),
        (RESULT, "FAILED: it gave back a field of another size"),
        ("import time; time.sleep(60)", "FAILED: stopped after 0.5 s"),
        (RESULT.replace("4800", "0") + "; import sys, shutil; shutil.copy(sys.argv[1], sys.argv[8])",
         "FAILED: it says that it took no time or no bytes"),
    ],
)  # fmt: skip
def test_a_peer_that_fails_costs_its_row_alone(case, tmp_path, monkeypatch, code, message):
    if "sleep" in code:
        call = peers.call
        monkeypatch.setattr(peers, "call", lambda command: call(command, 0.5))
    case[1].decoded.write_text("of an earlier peer")
    row = measured(case, code, tmp_path)
    assert row["note"].startswith(message)
    assert [row[name] for name in ("ratio", "psnr", "violations", "compress_gbps")] == [None] * 4


# ------------------------------------------------------------------------------------------------------------ report


def test_the_tables():
    rows = [
        beside(report.OURS, 6.0, 900.0),
        beside("cuSZ", 3.0, 300.0, violations=5),
        beside("FSZ", 2.0, 1800.0),
        failed("FZ-GPU"),
        beside(report.OURS, 8.0, 1000.0, rel_eb=1e-2),
        beside("cuSZ", 1.0, 250.0, rel_eb=1e-2),
    ]
    text = report.beside_peers(document(*rows))
    assert "| cuSZ | abc | 2 | 0 | 1 | 4.00 | 3.46 | 3.46 |" in text
    assert "| FSZ | abc | 1 | 0 | 0 | 3.00 | 0.50 | 0.50 |" in text
    assert "| FZ-GPU | abc | 1 | 1 | 0 | – | – | – |" in text
    assert "| cuSZ | 3.00 | 64.8 | 1.000000 | 5 | 300 | 600 | 2.00, 3.00, 3.00 | – |" in text
    assert "| FZ-GPU | – | – | – | – | – | – | – | FAILED: signal 11: a / b |" in text


def test_rows_beside_peers_stay_apart(tmp_path):
    """They are not rows of gpu.py; the latest rows of each kind are reported."""
    own = beside(report.OURS, 6.0, 900.0) | {"note": "", "stages": None}
    del own["rel_eb"]
    runner.write_json(document(own, date="2026-01-02"), tmp_path / "h200_2026-01-02.json")
    both = document(beside(report.OURS, 6.0, 901.0), beside("cuSZ", 3.0, 300.0), date="2026-02-02")
    runner.write_json(both, tmp_path / "h200_2026-02-02.json")
    assert [d["date"] for d in report.documents(tmp_path)] == ["2026-01-02"]
    assert [d["date"] for d in report.documents(tmp_path, beside=True)] == ["2026-02-02"]
    text = report.section(report.documents(tmp_path), report.documents(tmp_path, beside=True))
    assert text.count("## Beside other GPU compressors") == 1
    assert text.index("900") < text.index("## Beside") < text.index("901")
    assert "cuSZ" not in report.full(document(own, *both["rows"]))


def test_ours_broken_is_an_error_and_a_peer_is_not(monkeypatch, tmp_path, capsys):
    """Runs without a device, because all rows exist already."""
    monkeypatch.setattr(gpu, "import_cupy", lambda: np)
    head = {name: value for name, value in document().items() if name != "rows"}
    monkeypatch.setattr(gpu, "head", lambda cupy: head)
    monkeypatch.setattr(build, "build", lambda recipes, *rest: {})
    monkeypatch.setattr(build, "version_of", lambda recipe, folder: "1")
    (tmp_path / "FSZ").mkdir()
    path = tmp_path / "result.json"
    words = ["turbulence@512", "--peers", str(tmp_path), "--json", str(path), "--rel", "1e-3", "--only", "FSZ"]
    for own, peer, status in ((0, 7, 0), (1, 0, 1), (None, 0, 1)):
        rows = [beside(report.OURS, 6.0, 900.0, violations=own), beside("FSZ", 2.0, 9.0, violations=peer)]
        runner.write_json(document(*rows), path)
        assert peers.main(words) == status
        assert ("error: ours" in capsys.readouterr().err) == bool(status)
    assert len(json.loads(path.read_text())["rows"]) == 2


def test_the_documentation_names_the_peers():
    text = (runner.PAGES / "gpu.md").read_text()
    for recipe in build.RECIPES.values():
        assert f"| {recipe.name} | {recipe.repository} | {recipe.commit[:12]} |" in text
