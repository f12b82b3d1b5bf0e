"""`scripts/paper/sdrbench.py`: it knows the files of the paper's datasets by name and size, and measures them."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import sdrbench

import cusz_core as cusz
import support

SCRIPT = Path(__file__).parents[2] / "scripts/paper/sdrbench.py"
SHRINK = 25

#: A file of every dataset, in the folder its archive unpacks to, and the extents that it has.
FILES = {
    "HACC_280953867/vx.f32": (280953867,),
    "1800x3600/CLDHGH_1_1800_3600.dat": (1800, 3600),
    "CESM-ATM-26x1800x3600/CLDICE_1_26_1800_3600.f32": (26, 1800, 3600),
    "100x500x500/CLOUDf48.bin.f32": (100, 500, 500),
    "100x500x500/QSNOWf48.log10.bin.f32": (100, 500, 500),
    "NYX-512x512x512/baryon_density.f32": (512, 512, 512),
    "dataset/288x115x69x69/einspline_288_115_69_69.pre.f32": (288, 115, 69, 69),
    "dataset/115x69x69x288/einspline_115_69_69_288.f32": (115, 69, 69, 288),
}


def sparse(path: Path, size: int) -> None:
    """A file of that many bytes that takes no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def stand_ins(folder: Path, shrink: int, only: str = "") -> None:
    """Small fields in the layout of the datasets."""
    for seed, (name, shape) in enumerate(FILES.items()):
        if only in name:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            small = tuple(-(-extent // (2000 * shrink if len(shape) == 1 else shrink)) for extent in shape)
            support.smooth(small, support.F32, seed).tofile(path)


def test_files_are_known_by_name_and_size(tmp_path):
    for name, shape in FILES.items():
        sparse(tmp_path / name, 4 * math.prod(shape))
    sparse(tmp_path / "big/vx.f32", 4 * 1073726487)
    for other in ("README.txt", "vx.f32.sz", "Uf48.bin.f32.gz", "ivx.f32"):
        (tmp_path / other).write_text("not a field")
    found = {str(file.path.relative_to(tmp_path)): file for file in sdrbench.find(tmp_path)}
    assert {name: file.shape for name, file in found.items()} == FILES | {"big/vx.f32": (1073726487,)}
    assert found["100x500x500/QSNOWf48.log10.bin.f32"].field == "QSNOWf48.log10"
    assert found["1800x3600/CLDHGH_1_1800_3600.dat"].field == "CLDHGH"
    assert [file.dataset.name for file in found.values()].count("HACC") == 2


def test_extents_are_those_of_table_2():
    """Sizes in MiB as the paper has them, whose MB are 2^20 bytes."""
    first = {dataset.name: dataset.shapes[0] for dataset in sdrbench.DATASETS}
    sizes = {"HACC": 1071.75, "CESM-ATM": 24.72, "Hurricane": 95.37, "Nyx": 512.0, "QMCPACK": 601.52}
    for name, size in sizes.items():
        assert round(4 * math.prod(first[name]) / 2**20, 2) == size


@pytest.mark.parametrize("bytes_off", [-4, 4, 1])
def test_a_wrong_size_is_an_error(tmp_path, capsys, bytes_off):
    sparse(tmp_path / "CLOUDf48.bin.f32", 100_000_000 + bytes_off)
    assert sdrbench.main([str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert f"has {100_000_000 + bytes_off} bytes" in message
    assert "Hurricane has 100000000 (100 x 500 x 500 float32)" in message


def test_what_is_not_there_is_an_error(tmp_path, capsys):
    assert sdrbench.main([str(tmp_path / "nowhere")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert sdrbench.main([str(tmp_path)]) == 1
    assert "no file" in capsys.readouterr().err
    stand_ins(tmp_path, SHRINK, "CLOUD")
    assert sdrbench.main([str(tmp_path), "--shrink", str(SHRINK), "--dataset", "nyx"]) == 1
    assert "is of nyx" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        sdrbench.main([])


def test_every_field_is_measured(tmp_path):
    stand_ins(tmp_path, SHRINK)
    (tmp_path / "HACC_280953867/vx.f32").unlink()  # 1-D: one extent cannot be divided by as much as two can
    out = tmp_path / "out.json"
    command = [sys.executable, SCRIPT, tmp_path, f"--shrink={SHRINK}", "--eb", "1e-3", "1e-4", "--json", out]
    shown = support.run([*command, "--repeat=1"]).stdout
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 2 * (len(FILES) - 1) == len(shown.splitlines()) - 2
    for row in rows:
        (path,) = tmp_path.rglob(row["file"])
        x = np.fromfile(path, np.float32).reshape(row["shape"])
        archive = cusz.compress(x, row["eb"], "rel", predictor="lorenzo")
        assert row["ratio"] == x.nbytes / len(archive)
        assert 0.5 < row["max_error_over_eb"] <= 1
        assert row["psnr"] == cusz.verify(x, archive).psnr
        assert row["compress_gbps"] > 0
        assert row["decompress_gbps"] > 0


def test_one_dimension(tmp_path, capsys):
    shrink = 100_000
    support.smooth((-(-280953867 // shrink),), support.F32).tofile(tmp_path / "xx.f32")
    assert sdrbench.main([str(tmp_path), f"--shrink={shrink}", "--repeat=1", "--json=-"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["dataset"], row["field"], row["shape"]) == ("HACC", "xx", [2810])


def test_the_list_names_every_dataset(capsys):
    assert sdrbench.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [dataset.key for dataset in sdrbench.DATASETS]
