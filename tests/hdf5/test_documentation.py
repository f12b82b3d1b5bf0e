"""Runs the examples of docs/guides/hdf5.md as written."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import h5py
import numpy as np
import xarray

import support
from cusz_core.hdf5 import FILTER_ID, Cusz, plugin_path
from support import F32

PAGE = (Path(__file__).parents[2] / "docs/guides/hdf5.md").read_text(encoding="utf-8")
T = support.smooth((70, 80, 90), F32)


def block(starts_with: str) -> str:
    """The indented block of the page that contains this text."""
    (found,) = [text for text in re.findall(r"(?:^    .*\n|^\n(?=    ))+", PAGE, re.MULTILINE) if starts_with in text]
    return re.sub(r"^    ", "", found, flags=re.MULTILINE).strip("\n")


def command(starts_with: str) -> list[str]:
    (line,) = re.findall(rf"^    ({re.escape(starts_with)}.*)$", PAGE, re.MULTILINE)
    return shlex.split(line)


def test_h5py(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"t": T}
    exec(block("import h5py"), names)
    assert support.violations(T[:10], np.asarray(names["t"]), 1e-3) == []
    with h5py.File("run.h5") as file:
        assert f"# {Cusz.of(file['T'])!r}\n" in PAGE


def test_reading_in_parts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File("run.h5", "w") as file:
        file.create_dataset("T", data=T, chunks=(20, 80, 90), **Cusz(1e-3))
    names = {"h5py": h5py}
    exec(block("rdcc_nbytes"), names)
    with names["file"] as file:
        assert names["means"] == [step.mean() for step in file["T"][...]]


def test_xarray(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    t = support.smooth((3, 180, 360), F32)
    exec(block("encoding ="), {"dataset": xarray.Dataset({"T": (("time", "lat", "lon"), t)})})
    with xarray.open_dataset("run.nc", engine="h5netcdf") as dataset:
        assert support.violations(t, dataset["T"].values, 1e-3) == []


def test_commands(tmp_path: Path, environment: dict[str, str], require_tool) -> None:
    for tool, package in (("h5repack", "hdf5-tools"), ("nccopy", "netcdf-bin")):
        require_tool(tool, package)
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file.create_dataset("T", data=support.smooth((70, 80, 90), F32))
    plain = xarray.Dataset({"T": (("time", "lat", "lon"), support.smooth((2, 180, 360), F32))})
    plain.to_netcdf(tmp_path / "plain.nc", engine="h5netcdf")
    for words, name in ((command("h5repack"), "small.h5"), (command("nccopy"), "small.nc")):
        support.run(words, cwd=tmp_path, env=environment)
        with h5py.File(tmp_path / name) as file:
            assert repr(Cusz.of(file["T"])) == repr(Cusz(1e-3, fill=-999) if name == "small.nc" else Cusz(1e-3))
            assert file["T"].chunks == ((64, 64, 64) if name == "small.h5" else (1, 180, 360))


def test_what_python_prints() -> None:
    def said(*words: str) -> str:
        return support.run([sys.executable, *words]).stdout.strip()

    assert said("-m", "cusz_core.hdf5") == str(plugin_path())
    (code,) = re.findall(r'`python -c "(.*)"`', PAGE)
    assert f"UD={FILTER_ID},0,5,{said('-c', code)} " in PAGE
    (code,) = re.findall(r"^The numbers are `(.*)`: nccopy", PAGE, re.MULTILINE)
    numbers = eval(code, {"Cusz": Cusz})
    assert f"-F T,{FILTER_ID},{','.join(map(str, numbers))} " in PAGE


def test_the_number_is_one_for_tests() -> None:
    assert 256 <= FILTER_ID <= 511
    assert f"The filter's number is {FILTER_ID}" in PAGE
