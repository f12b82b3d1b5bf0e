"""`scripts/paper/paper.py` and its report: a short run on small fields, and what the report says about it."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import paper
import paper_reference as reference
import paper_report as report
import pytest
import runner

import cusz_core as cusz
import support

#: Small fields for the five datasets, with the peculiarities of some: zeros, a range of magnitudes, 4-D.
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "HACC": {"x": (2500,)},
    "CESM-ATM": {"cloud_fraction": (30, 35)},
    "Hurricane": {"U": (10, 11, 12), "QCLOUD": (10, 11, 12)},
    "Nyx": {"baryon_density": (11, 11, 11), "velocity_x": (11, 11, 11)},
    "QMCPACK": {"orbitals": (3, 5, 6, 7)},
}


def small_fields():
    for dataset, shapes in SHAPES.items():
        for seed, (name, shape) in enumerate(shapes.items()):
            x = support.smooth(shape, support.F32, seed)
            if name == "QCLOUD":
                x = np.maximum(x - np.quantile(x, 0.8).astype(np.float32), 0)
            yield paper.Field(dataset, name, "a test", x)
    yield paper.Field("Nyx", "temperature", "a test", np.ones((4, 4, 4), np.float32))


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A whole run without zfp and SZ, on small fields."""
    folder = tmp_path_factory.mktemp("paper")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper, "fields_of", lambda options: small_fields())
        absent = {"version": None, "missing": "not installed"}
        patch.setattr(paper, "peers_here", lambda: {"zfp": absent, "sz14": absent})
        patch.setattr(paper, "MIN_CHUNKS", 20)
        patch.setattr(paper, "BOUNDS", (1e-2, 1e-4))
        assert paper.main(["--without-peers", "--repeat=1", "--threads=2", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def out(whole_run, tmp_path):
    """The output of whole_run, copied to a folder of the test."""
    return Path(shutil.copytree(whole_run, tmp_path / "out"))


def test_a_run_writes_a_report_with_everything(out):
    text = (out / "README.md").read_text()
    assert all(f"## {heading}" in text for heading in ("Table 2", "The other tables", "The bound", "Figures 6"))
    assert "left out: Nyx `temperature`: values that are not finite, or all alike" in text
    assert "not installed" in text
    pictures = sorted(path.name for path in out.glob("*.png"))
    assert pictures == [
        *("rate_distortion_hurricane.png", "rate_distortion_nyx.png", "rate_distortion_overall.png", "throughput.png")
    ]
    assert all(f"]({name})" in text and (out / name).stat().st_size < 150_000 for name in pictures)
    assert " nan " not in text

    # the numbers agree with the fields
    document = json.loads((out / "results.json").read_text())
    rows = {(row["dataset"], row["field"]): row for row in document["fields"] if "error" not in row}
    for field in small_fields():
        if (field.dataset, field.name) not in rows:
            continue
        row = rows[field.dataset, field.name]
        archive = cusz.compress(field.x, 1e-4, "rel", predictor="lorenzo")
        assert row["engine"]["ratio"] == field.x.nbytes / len(archive)
        assert row["engine"]["max_error_over_eb"] <= 1
        assert row["reference"]["rate"] == reference.compress(field.x, 1e-4).rate
        assert row["zfp"] == []
        assert row["sz14"] == {"error": "not installed"}
    assert rows["Hurricane", "QCLOUD"]["percentiles"]["50%"] == 0
    assert rows["Hurricane", "QCLOUD"]["percentiles"]["within eb of 0"] > 0.5
    assert rows["HACC", "x"]["chunks"][0]["threads"] == -(-2500 // 64)
    assert [row["bins"] for row in document["codebooks"]["rows"]] == list(report.CODEBOOK)

    assert "engine: largest error / bound" in text
    tables = {n: (out / f"table_{n}.csv").read_text() for n, _ in report.TABLES}
    assert all(f"](table_{n}.csv)" in text for n in tables)
    assert '"engine, CPU, 1 thread"' in tables[7]
    assert "HACC,engine," in tables[5]
    assert "HACC,reference,2^6,4.0e+01," in tables[6]
    assert "QCLOUD,here,0,0,0,0," in tables[9]

    # the same report from the same numbers
    again = out.parent / "again"
    assert paper.main([f"--from={out / 'results.json'}", f"--out={again}"]) == 0
    assert (again / "README.md").read_text() == text
    assert json.loads((again / "results.json").read_text()) == document


def test_rates_of_zfp_and_psnr_beside_the_papers(out):
    """With made-up numbers of peers: zfp's rate is the one closest to 85 dB, and averages are of squared errors."""
    document = json.loads((out / "results.json").read_text())
    for row in document["fields"]:
        if "error" in row:
            continue
        speeds = {"compress_gbps": 0.25, "decompress_gbps": 0.5}
        row["zfp"] = [{"asked": r, "rate": float(r), "psnr": 20 + 6.0 * r, **speeds} for r in (4, 10, 12)]
        row["sz14"] = {"rate": 5.0, "psnr": 84.0 if row["field"] == "U" else 94.0, **speeds}
    results = report.Results(document)
    assert report.zfp_near(results.of("Nyx")) == pytest.approx((10.0, 80.0, 1))
    lines = {tuple(line[:2]): line[2:6] for line in report.qualities(results)[1]}
    wanted = -10 * math.log10((10**-8.4 + 10**-9.4) / 2)
    assert lines["Hurricane", "average"] == ["85.01", "86.96", "+1.95", f"{wanted:.2f}"]
    assert lines["Hurricane", "U"] == ["84.79", "84.79", "+0.00", "84.00"]
    assert ["Nyx", "paper", *map(str, (2.49, 12.8, 86.0, 6, 5.3, 85.1, 2.41))] in [
        [*map(str, line)] for line in report.rates(results)[1]
    ]
    of_zfp = ["", "zfp here, 10 bits, 1 thread", *["–"] * 4, "0.250", "–", "–", "0.500"]
    assert of_zfp in report.breakdown(results)[1]
    folder = out.parent / "drawn"
    folder.mkdir()
    assert len(report.draw(results, folder)) == 4


def test_a_gpu_gives_rows_of_its_own(out, monkeypatch):
    stages = {"clear": 1.0, "count_symbols": 10.0, "make_book": 20.0, "compress_tiles": 40.0, "decompress_tiles": 30.0}

    class Machine:
        class cupy:
            asarray = staticmethod(np.asarray)

        @staticmethod
        def row(name, host, task):
            assert (task.mode, task.eb) == ("rel", 1e-4)
            found = {"compress_gbps": 400.0, "decompress_gbps": 500.0}
            return {"dataset": name, "shape": list(host.shape), "stages": stages, **found}

    import gpu

    monkeypatch.setattr(gpu, "open_machine", lambda options: Machine)
    monkeypatch.setattr(gpu, "head", lambda cupy: {"gpu": "a GPU"})
    rows, device = paper.gpu_rows(list(small_fields())[:2], 3)
    assert device == {"gpu": "a GPU", "gpu_missing": None}
    assert [row["bins"] for row in rows] == [64, *paper.BINS, 64]
    document = json.loads((out / "results.json").read_text())
    document["gpu"] = rows
    document["head"] |= device
    results = report.Results(document)
    head, lines = report.codebook(results)
    assert head[-1] == "engine, GPU: codebook kernel, ms"
    assert "0.020" in {line[-1] for line in lines}
    of_kernels = ["", "engine, a GPU", "in both →", "1.00", "0.020", "0.250", "400", "–", "–", "500"]
    assert of_kernels in report.breakdown(results)[1]
    assert "GPU: a GPU." in report.report(results, [])
    assert report.bars_of(results, "compress")["engine, a GPU, kernels"][1] == [400.0, 400.0, None, None, None]


def test_no_gpu_says_why(monkeypatch):
    import gpu

    def refuse(options):
        raise runner.Failure("there is none")

    monkeypatch.setattr(gpu, "open_machine", refuse)
    assert paper.gpu_rows([], 3) == ([], {"gpu": None, "gpu_missing": "there is none"})


def test_a_library_that_ends_its_process_has_an_error(monkeypatch):
    monkeypatch.setattr(runner, "apart", lambda *_: (None, "crashes (signal 11)"))
    assert paper.sz14_apart(np.zeros(3), 1) == {"error": "crashes (signal 11)"}


def test_files_of_sdrbench_are_taken(monkeypatch, tmp_path):
    shrink = 10
    (tmp_path / "100x500x500").mkdir()
    support.smooth((10, 50, 50), support.F32).tofile(tmp_path / "100x500x500/Uf48.bin.f32")
    options = paper.parser().parse_args(["--sdrbench", str(tmp_path), f"--shrink={shrink}"])
    (field,) = paper.fields_of(options)
    assert (field.dataset, field.name, field.origin, field.x.shape) == (
        "Hurricane",
        "Uf48",
        "Uf48.bin.f32",
        (10, 50, 50),
    )
    options.max_mb = 0.055
    (field,) = paper.fields_of(options)
    assert field.x.shape == (5, 50, 50)
    assert paper.main(["--without-peers", "--sdrbench", str(tmp_path / "nowhere"), "--out", str(tmp_path)]) == 1


def test_fields_of_proxies():
    fields = [field for dataset in ("Hurricane", "QMCPACK") for field in paper.proxy_fields(dataset, 0.1)]
    assert {"U", "QCLOUD", "QCLOUD.log10", "orbitals"} <= {field.name for field in fields}
    assert all(field.x.dtype == np.float32 and np.isfinite(field.x).all() for field in fields)


def test_logarithms():
    x = np.array([0, -1, 1e-3, 10], np.float32)
    assert paper.logarithms(x) == pytest.approx([-3, -3, -3, 1])
    assert paper.logarithms(np.zeros(2, np.float32)).tolist() == [0, 0]


def test_names_of_fields_are_found_in_the_papers_tables():
    known = report.PSNR["Hurricane"]
    assert report.paper_name("QCLOUD", known) == "QCLOUDf48"
    assert report.paper_name("QCLOUD.log10", known) == "QCLOUDf48.log10"
    assert report.paper_name("QCLOUDf48", known) == "QCLOUDf48"
    assert report.paper_name("THETA", known) is None


def test_numbers_have_three_digits():
    assert [report.number(x) for x in (0, 123.4, 1.2345, 0.012345, 1.5e-5, 123456.0, math.inf, None)] == [
        *("0", "123", "1.23", "0.0123", "1.50e-05", "1.23e+05", "exact", "–")
    ]
