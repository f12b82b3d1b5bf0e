"""`scripts/paper/sdrbench.py`: it knows the files of the paper's datasets by name and size."""

import math
from pathlib import Path

import pytest
import runner
import sdrbench

import support

#: A file of every dataset, in the folder that its archive unpacks to, and its extents.
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
    """Makes a file of this many bytes that takes no disk space."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


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
    """The paper's sizes in MB, which are 2^20 bytes there."""
    first = {dataset.name: dataset.shapes[0] for dataset in sdrbench.DATASETS}
    sizes = {"HACC": 1071.75, "CESM-ATM": 24.72, "Hurricane": 95.37, "Nyx": 512.0, "QMCPACK": 601.52}
    for name, size in sizes.items():
        assert round(4 * math.prod(first[name]) / 2**20, 2) == size


@pytest.mark.parametrize("bytes_off", [-4, 4, 1])
def test_a_wrong_size_is_an_error(tmp_path, bytes_off):
    sparse(tmp_path / "CLOUDf48.bin.f32", 100_000_000 + bytes_off)
    wanted = r"Hurricane has 100000000 \(100 x 500 x 500 float32\)"
    with pytest.raises(runner.Failure, match=f"has {100_000_000 + bytes_off} bytes; a field of {wanted}"):
        sdrbench.find(tmp_path)


def test_what_is_not_there_is_an_error(tmp_path):
    with pytest.raises(runner.Failure, match="there is no folder"):
        sdrbench.find(tmp_path / "nowhere")
    with pytest.raises(runner.Failure, match=r"no file in .* has the name of an SDRBench field"):
        sdrbench.find(tmp_path)


def test_one_dimension(tmp_path):
    """A stand-in for a 1-D field: its extent is divided by `shrink` and rounded up."""
    shrink = 100_000
    x = support.smooth((-(-280953867 // shrink),), support.F32)
    x.tofile(tmp_path / "xx.f32")
    (file,) = sdrbench.find(tmp_path, shrink)
    assert (file.dataset.name, file.field, file.shape) == ("HACC", "xx", (2810,))
    assert support.same_bits(file.load(), x)
