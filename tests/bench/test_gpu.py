"""scripts/bench/gpu.py and the scripts beside it, as far as they work without a GPU."""

import json
import os
import re
import shutil
from pathlib import Path

import gpu_report as report
import gpu_resources as resources
import numpy as np
import pytest
import runner

import gpu
import support

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts/bench"

PTXAS = """\
ptxas info    : 17 bytes gmem
ptxas info    : Compiling entry function '_ZN4cusz4cuda15compress_kernelIfEEvNS0_17CompressArgumentsIT_EE' for 'sm_90'
ptxas info    : Function properties for _ZN4cusz4cuda15compress_kernelIfEEvNS0_17CompressArgumentsIT_EE
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 8 bytes cumulative stack size, 24 bytes smem
ptxas info    : Compiling entry function '_ZN4cusz4cuda12piece_kernelENS0_14PieceArgumentsE' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers
"""
READING = "_ZN4cusz4cuda17decompress_kernelIdLNS_9TileShapeE3EEvNS0_19DecompressArgumentsIT_EE"


def row(**changes):
    return {
        "tool": "cusz_core", "version": "1", "dataset": "turbulence@512", "shape": [512, 512, 512], "dtype": "float32",
        "mode": "rel", "eb": 1e-3, "ratio": 5.4321, "psnr": 64.8, "max_error_over_eb": 0.999999, "violations": 0,
        "compress_gbps": 1234.5, "decompress_gbps": 1500.25, "end_to_end_gbps": 20.5,
        "compress_us": 400.0, "decompress_us": 300.0, "compress_wall_us": 410.0, "decompress_wall_us": 305.0,
        "decompress_end_to_end_gbps": 25.5, "copy_gbps": 4000.0, "compress_roofline": 0.5, "decompress_roofline": 0.4,
        "repeat": 20, "note": "",
        "stages": {"clear": 2.0, "compute_range": 150.0, "clear_states": 3.0, "compress_tiles": 200.0,
                   "decompress_tiles": 250.0, "nothing": 1.5}, **changes,
    }  # fmt: skip


def document(*rows, **changes):
    head = {"gpu": "NVIDIA H200", "driver": "580.1", "cuda": "13.0", "commit": "abc", "date": "2026-01-02"}
    return {**head, **changes, "rows": list(rows)}


# ----------------------------------------------------------------------------------------------------------- report


def test_results_can_be_read_again(tmp_path):
    path = tmp_path / "new" / "h200_2026-01-02.json"
    runner.write_json(document(row(), row(psnr=float("inf"), stages=None)), path)
    again = report.read(path)
    assert (again["gpu"], len(again["rows"]), again["rows"][1]["psnr"]) == ("NVIDIA H200", 2, float("inf"))
    assert set(report.COLUMNS) <= set(json.loads(path.read_text())["rows"][0])


def test_a_row_without_a_column_is_refused(tmp_path):
    path = tmp_path / "h200_2026-01-02.json"
    incomplete = row()
    del incomplete["ratio"]
    runner.write_json(document(incomplete), path)
    with pytest.raises(ValueError, match="no 'ratio'"):
        report.read(path)


def test_the_latest_result_of_each_gpu_counts(tmp_path):
    for name, date in (("H200", "2026-01-02"), ("H200", "2026-03-02"), ("A100", "2026-02-02")):
        runner.write_json(document(row(), gpu=name, date=date), tmp_path / f"{name}_{date}.json")
    assert [(d["gpu"], d["date"]) for d in report.documents(tmp_path)] == [
        ("A100", "2026-02-02"),
        ("H200", "2026-03-02"),
    ]


def test_the_section_has_what_was_measured():
    other = dict.fromkeys(report.COLUMNS) | {
        "tool": "cuSZ", "dataset": "turbulence@512", "shape": [512, 512, 512], "dtype": "float32", "mode": "rel",
        "eb": 1e-3, "ratio": 5.0, "compress_gbps": 300.0, "decompress_gbps": 200.0, "note": "of its own repository",
    }  # fmt: skip
    small = row(dataset="turbulence@64", shape=[64, 64, 64])
    text = report.section([document(row(), other, small)])
    with_spline = row(spline_ratio=9.87, spline_psnr=71.26, spline_compress_us=5e3, spline_decompress_us=4e3)
    assert "| 9.87 | 71.3 | 107 | 134 |" in report.section([document(with_spline)])
    for part in ("NVIDIA H200", "4000 GB/s", "1234", "64.8", "50% / 40%", "300", "of its own repository", "355 / 250"):
        assert part in text
    assert report.NOT_MEASURED not in text
    assert text.count("turbulence@64") == 3  # speed, latency, kernels


def test_the_documentation_is_what_the_files_say(tmp_path):
    """No page has a GPU figure that is not in the results."""
    names = ("gpu.md", "gpu-kernels.md", "figures/gpu_resources.csv")
    (tmp_path / "figures").mkdir()
    for name in names:
        shutil.copy(runner.PAGES / name, tmp_path / name)
    report.write_docs(tmp_path)
    for name in names:
        assert (tmp_path / name).read_text() == (runner.PAGES / name).read_text(), "run scripts/bench/gpu.py --docs"
    if not list(report.RESULTS.glob("*.json")):
        assert report.NOT_MEASURED in (tmp_path / "gpu.md").read_text()


def test_a_file_without_markers_is_refused(tmp_path):
    (tmp_path / "gpu.md").write_text("nothing")
    with pytest.raises(ValueError, match="no lines"):
        report.write_docs(tmp_path)


# -------------------------------------------------------------------------------------------------------- resources


def test_what_the_compiler_says():
    first, second = resources.parse(PTXAS)
    assert (first["registers"], first["spills"], first["stack"], first["static_shared"]) == (80, 16, 8, 24)
    assert (second["registers"], second["spills"], second["architecture"]) == (32, 0, 90)
    launches = [(first["kernel"], "64 bins", 256, 42200), (second["kernel"], "", 256, 64)]
    rows = resources.joined([first, second], {90: [*launches, launches[1]]})
    assert [(r["kernel"], r["for"], r["blocks"]) for r in rows] == [
        ("compress_kernel<float>", "64 bins", 3),
        ("piece_kernel", "", 8),
    ]
    assert resources.spilling({"rows": rows}) == ["compress_kernel<float> (sm_90)"]
    with pytest.raises(runner.Failure, match="does not launch compress_kernel<float>"):
        resources.joined([first, second], {90: launches[1:]})


def test_kernels_that_are_launched_differently_by_architecture():
    rows = [{"kernel": READING, "architecture": n, "registers": 60, "static_shared": 0} for n in (80, 90)]
    launches = {
        n: [(READING, "2-D tiles", threads, shared)] for n, threads, shared in ((80, 512, 166000), (90, 1024, 230000))
    }
    found = [(r["architecture"], r["kernel"], r["threads"], r["blocks"]) for r in resources.joined(rows, launches)]
    assert found == [(80, "decompress_kernel<double>", 512, 1), (90, "decompress_kernel<double>", 1024, 1)]


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "blocks"),
    [
        (80, 256, 42200, 3),  # registers: 6 warps in each part of a multiprocessor
        (128, 256, 74968, 2),  # registers, and shared memory as well
        (48, 96, 71872, 3),  # shared memory
        (32, 1024, 0, 2),  # threads
        (16, 32, 0, 8),  # no more are asked for
    ],
)
def test_blocks_of_a_processor(registers, threads, shared, blocks):
    figures = {"architecture": 90, "registers": registers, "static_shared": 0}
    assert resources.resident_blocks(figures, threads, shared) == blocks
    assert resources.resident_blocks({**figures, "architecture": 77}, threads, shared) is None


def test_the_table_has_every_kernel():
    figures = resources.read()
    sources = {str(path.relative_to(resources.CORE)): path.read_text() for path in resources.sources(resources.CORE)}
    assert "src/codec/lorenzo/cuda/writing.cu" in sources
    written = set(re.findall(r"__global__[^{;]*?\b(\w+_kernel)\(", "".join(sources.values())))
    assert len(written) == sum(text.count("__global__ void") for text in sources.values())
    for architecture in resources.architectures():
        found = {re.split(r"[<,]", r["kernel"])[0] for r in figures["rows"] if r["architecture"] == architecture}
        assert found == written


def test_no_kernel_spills_registers():
    assert resources.spilling(resources.read()) == []


def test_the_program_that_launches_every_kernel_fits_them(nvcc):
    """No other quick test compiles it."""
    folders = [
        "-I",
        resources.CORE / "src",
        "-I",
        resources.CORE / "include",
        "-isystem",
        resources._include_folder(nvcc),
    ]
    source = Path(resources.__file__).with_name("gpu_launches.cpp")
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", *folders, source]
    assert support.run(command).stderr == ""


# -------------------------------------------------------------------------------------------------------------- gpu


def test_without_a_gpu_it_says_so(capsys):
    if "cuda" in support.BACKENDS:
        pytest.skip("there is a CUDA device")
    assert gpu.main(["turbulence@16"]) == 1
    assert capsys.readouterr().err.startswith("error: there is no GPU to measure: ")


def test_fields_are_kept(tmp_path):
    first = gpu.load("turbulence@16", tmp_path)
    assert (first.x.shape, first.x.dtype) == ((16, 16, 16), support.F32)
    assert (tmp_path / "turbulence@16.npy").exists()
    assert support.same_bits(gpu.load("turbulence@16", tmp_path).x, first.x)
    assert gpu.load("flux@20", None).x.shape == (20, 40)
    for name in ("turbulence", "nothing@16", "turbulence@x"):
        with pytest.raises(runner.Failure, match="nor a generated field"):
            gpu.load(name, None)


def test_fields_are_generated_at_once_and_kept_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "MOST_PROCESSES", 2)
    names = ["turbulence@8", "density@8", "flux@8"]
    gpu.generate([*names, "file.npy"], tmp_path / "cache")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == sorted(f"{name}.npy" for name in names)
    assert support.same_bits(gpu.load("flux@8", tmp_path / "cache").x, gpu.load("flux@8", None).x)
    monkeypatch.setattr(gpu, "ProcessPoolExecutor", None)
    gpu.generate(names, tmp_path / "cache")

    def no_room(file, x):
        file.write(b"a part")
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", no_room)
        with pytest.raises(OSError, match="no room"):
            gpu.load("clouds@8", tmp_path / "cache")
    assert gpu.load("clouds@8", tmp_path / "cache").x.shape == (8, 16)


class Array(np.ndarray):
    """Stands in for an array of CuPy."""

    def get(self):
        return np.asarray(self)


@pytest.mark.parametrize("fill", [None, 1e20])
def test_quality_is_that_of_the_exact_comparison(dtype, fill):
    from comparison import measure

    x = support.smooth((20, 30, 40), dtype)
    x.reshape(-1)[::17] = np.nan
    if fill is not None:
        x.reshape(-1)[::19] = fill
    y = x.copy()
    y[3] += dtype.type(1e-3)
    y[4, 5, 6:9] += dtype.type(2e-3)
    y.reshape(-1)[:400:17] = 0
    found = gpu.quality(np, x.view(Array), y.view(Array), 1e-3, fill)
    wanted = measure.quality(x, y, 1e-3, fill)
    assert found.violations == wanted.violations > 0
    assert found.max_error_over_eb == wanted.max_error_over_eb
    assert found.psnr == pytest.approx(wanted.psnr)
