"""`cusz view`: draws a plane of a run from the level that its pixels need."""

from __future__ import annotations

import re
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_core
import cusz_operator as cz
import support
from cusz_operator.inspecting import view

pytest.importorskip("adios2")

X = support.smooth((64, 72, 160), support.F32)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "run.bp"
    with cz.Writer(path, eb=1e-3, predictor="spline") as out:
        for n in range(2):
            with out.step():
                for z in (0, 32):
                    for y in (0, 36):
                        out.put("U", X[z : z + 32, y : y + 36] + np.float32(n), X.shape, (z, y, 0))
                out.put("line", X[0, 0])
                out.put("deep", X[:8, :9, :10].reshape(2, 4, 9, 10))
                out.put("flow", X[:4, :5, :6] * np.complex64(3 + 4j))
                out.put("one", 1.5)
                if n:
                    out.put("late", X[0])
    return path


def pixels_of(file: Path) -> np.ndarray:
    """The colours of a PNG file: 8-bit RGB, without filters."""
    content = file.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        chunks[kind] = content[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack(">I", content[at + 8 + length : at + 12 + length])
        assert checksum == zlib.crc32(kind + chunks[kind])
        at += 12 + length
    width, height, *how = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert how == [8, 2, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, 3)


def test_a_picture_is_of_the_level_that_its_pixels_need(run: Path, tmp_path: Path, cusz_cli: Callable) -> None:
    with cz.Reader(run) as opened:
        step = opened[1]
        for pixels, number in ((160, 0), (512, 0), (80, 1), (40, 2), (1, 8)):
            file = tmp_path / f"{pixels}.png"
            code, out, err = cusz_cli("view", run, "U", "--slice", "z=0.5", "-o", file, "--pixels", pixels)
            assert (code, err) == (0, "")
            level = step.level("U", number)
            rows, columns = level.shape[1:]
            assert out.startswith(f"{file}: U at step 1, z = 32, level {number} of 0 to 8, {columns} x {rows} values, ")
            times = max(pixels // columns, 1)
            rgb = pixels_of(file)
            assert rgb.shape == (times * rows, times * columns, 3)
            plane = step.read("U", level=number)[level.coordinates[0].tolist().index(32)]
            brightness = rgb[::times, ::times].astype(int).sum(axis=2).reshape(-1)
            in_order = np.argsort(plane.reshape(-1), kind="stable")
            assert (np.diff(brightness[in_order]) >= -40).all()  # growing, except for the rounding of colours
            assert pixels == 1 or brightness[in_order[-1]] - brightness[in_order[0]] > 200


def test_axes_have_the_names_of_the_file(tmp_path: Path, cusz_cli: Callable) -> None:
    path, x = tmp_path / "run.bp", X[:8, :9, :10]
    with cz.Writer(path, eb=1e-3) as out, out.step():
        out.put("T", x, dims=("x", "depth", "z"))
    with cz.Reader(path) as opened:
        step = opened[0]
        whole, axes = step.read("T"), ("x", "depth", "z")
        for axis, plane in (("x", whole[1]), ("depth", whole[:, 1]), ("y", whole[:, 1]), ("1", whole[:, 1])):
            picture = view.picture_of(step, "T", {axis: 1}, (), 10, 9, axes)
            assert (picture.values == plane).all()
        picture = view.picture_of(step, "T", {"z": 2}, ("depth",), 10, 9, axes)
        assert (picture.cuts, picture.means) == ({"z": 2}, ("depth",))
        assert (picture.values == whole[:, :, 2].astype(np.float64).mean(axis=1)).all()
    out = cusz_cli("view", path, "T", "--slice", "x=1", "-o", tmp_path / "T.png")[1]
    assert "x = 1, level 0" in out
    assert "10 x 9 values" in out
    code, _, error = cusz_cli("view", path, "T", "--slice", "lat=1", "-o", tmp_path / "T2.png")
    assert code == 2
    assert "has the axes x, depth, z" in error


def test_less_is_read_for_a_smaller_picture(run: Path, tmp_path: Path, cusz_cli: Callable) -> None:
    read = []
    for pixels in (160, 40):
        out = cusz_cli("view", run, "U", "-o", tmp_path / f"{pixels}.png", "--pixels", pixels)[1]
        found = re.search(r"read ([\d.]+) kB of ([\d.]+) kB$", out.strip())
        assert found is not None
        read.append(float(found[1]))
    assert read[1] < 0.1 * read[0]


def test_planes_and_means(run: Path) -> None:
    with cz.Reader(run) as opened:
        step = opened[0]
        whole = step.read("U")
        first = view.picture_of(step, "U", {"y": 3, "z": 0.999}, (), 160, 64)
        assert (first.cuts, first.level.number) == ({"y": 3, "z": 63}, 0)
        assert (first.values == whole[63, 3]).all()
        by_number = view.picture_of(step, "U", {"1": 3}, (), 160, 64)
        assert (by_number.values == whole[:, 3]).all()
        mean = view.picture_of(step, "U", {}, ("y",), 160, 64)
        assert mean.means == ("y",)
        assert (mean.values == whole.astype(np.float64).mean(axis=1)).all()
        assert (view.picture_of(step, "U", {}, ("y", "1"), 160, 64).values == mean.values).all()
        deep = view.picture_of(step, "deep", {"0": 1}, (), 10, 9)
        assert deep.cuts == {"0": 1, "z": 2}
        assert (deep.values == step.read("deep")[1, 2]).all()
        assert (view.picture_of(step, "line", {}, (), 160, 1).values == step.read("line")).all()
        assert (view.picture_of(step, "flow", {"z": 0}, (), 6, 6).values == abs(step.read("flow")[0])).all()
        coarse = view.picture_of(step, "U", {"z": 33}, (), 20, 9)
        assert coarse.cuts == {"z": 32}  # the nearest in this level


def test_in_a_terminal(run: Path, cusz_cli: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "13")
    code, out, _ = cusz_cli("view", run, "U")
    *lines, words = out.splitlines()
    assert code == 0
    assert len(lines) <= 10
    assert {len(line) for line in lines} == {len(lines[0])}
    assert 20 < len(lines[0]) <= 60
    assert set("".join(lines)) <= set(" .:-=+*#%@")
    assert words.startswith("U at step 1, z = 32, level ")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    *coloured, same = cusz_cli("view", run, "U")[1].splitlines()
    assert same == words
    assert [line.count("▀") for line in coloured] == [len(line) for line in lines]
    assert all(re.fullmatch(r"(\x1b\[38;2;[\d;]+m(\x1b\[48;2;[\d;]+m)?▀)+\x1b\[0m", line) for line in coloured)
    monkeypatch.setenv("NO_COLOR", "1")
    assert cusz_cli("view", run, "U")[1].splitlines()[:-1] == lines
    monkeypatch.setenv("LINES", "3")
    assert len(cusz_cli("view", run, "U")[1].splitlines()) == 2


def test_values_that_are_no_numbers() -> None:
    with_holes = np.array([[0.0, 1.0, np.nan], [np.inf, -np.inf, 0.5]])
    of: Any = None
    picture = view.Picture(with_holes, of, 1, {}, ())
    assert picture.limits() == (0.0, 1.0)
    assert picture.scaled()[1].tolist() == [1.0, 0.0, 0.5]
    assert view.colours(picture)[0, 2].tolist() == [128, 128, 128]
    assert view.characters(picture) == " @?"
    nothing = view.Picture(np.full((2, 2), np.nan), of, 1, {}, ())
    assert nothing.limits() is None
    assert view.characters(nothing) == "??"
    flat = view.Picture(np.full((4, 4), 3.0), of, 1, {}, ())
    assert (view.colours(flat) == view.colours(flat)[0, 0]).all()
    largest = view.Picture(np.array([[-1.7e308, 1.7e308]]), of, 1, {}, ())
    assert largest.scaled().tolist() == [[0.0, 1.0]]
    smallest = view.Picture(np.array([[0, 5e-324]]), of, 1, {}, ())
    assert smallest.scaled().tolist() == [[0.0, 1.0]]
    huge = view.Picture(np.array([[1.75 * 2.0**1023, 1.25 * 2.0**1023, -np.inf, np.inf]]), of, 1, {}, ())
    finite, infinite = view.fitted(huge, 2, 1).values[0]
    assert finite == 1.5 * 2.0**1023
    assert np.isnan(infinite)
    fitted = view.fitted(view.Picture(np.arange(30.0).reshape(5, 6), of, 1, {}, ()), 3, 9)
    assert fitted.values.tolist() == [[3.5, 5.5, 7.5], [15.5, 17.5, 19.5], [24.5, 26.5, 28.5]]


def test_means_of_huge_values(tmp_path: Path) -> None:
    x = np.full((4, 5, 6), 1.7e308)
    support.write_run(tmp_path / "run.bp", {"U": x}, eb=0.0)
    with cz.Reader(tmp_path / "run.bp") as opened:
        assert (view.picture_of(opened[0], "U", {}, ("z",), 6, 5).values == x[0]).all()


def test_sizes_of_complex_numbers_are_drawn(run: Path, cusz_cli: Callable) -> None:
    assert cusz_cli("view", run, "flow")[1].splitlines()[-1].startswith("|flow| at step 1, z = 2, ")


@pytest.mark.parametrize("mode", ["abs", "pw_rel"])
def test_fill_values_are_not_drawn(engine: Any, mode: Any, tmp_path: Path) -> None:
    filled = X[0].copy()
    filled[:8, :16] = 1e20
    filled[10, 10] = np.inf
    support.write_run(tmp_path / "run.bp", {"U": filled}, eb=1e-3, mode=mode, engine=engine, fill=1e20)
    with cz.Reader(tmp_path / "run.bp") as opened:
        picture = view.picture_of(opened[0], "U", {}, (), 160, 72)
        decoded = opened[0].read("U").astype(np.float64)
    assert np.isnan(picture.values[:8, :16]).all()
    decoded[:8, :16] = np.nan
    assert np.array_equal(picture.values, decoded, equal_nan=True)
    assert picture.scaled()[10, 10] == 1.0


def test_integers_that_no_block_has_are_not_drawn(engine: Any, tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", engine=engine) as out, out.step():
        out.put("n", support.integers(24, -9, 9, 1).astype(np.int32).reshape(3, 8), (6, 8), (0, 0))
    with cz.Reader(tmp_path / "run.bp") as opened:
        picture = view.picture_of(opened[0], "n", {}, (), 8, 6)
    assert np.isfinite(picture.values[:3]).all()
    assert np.isnan(picture.values[3:]).all()


def test_what_is_refused(run: Path, tmp_path: Path, cusz_cli: Callable) -> None:
    for words, message in (
        (["V"], "has no variable 'V'"),
        (["one"], "'one' is one value"),
        (["U", "--step", 2], "has 'U' at 2 steps from 0 to 1, not at step 2"),
        (["U", "--step", -3], "not at step -3"),
        (["late", "--step", 0], "has 'late' at step 1, not at step 0"),
        (["U", "--slice", "q=1"], "axis is 'q'; variable 'U' has the axes z, y, x"),
        (["U", "--slice", "z"], "'z' is not a cut"),
        (["U", "--slice", "z=64"], "its indices are 0 to 63"),
        (["U", "--slice", "z=1.5"], "a fraction is from 0 to 1"),
        (["U", "--slice", "z=1", "--mean", "z"], "both cut and averaged"),
        (["U", "--mean", "z", "--mean", "y", "--mean", "x"], "no axis"),
        (["U", "--pixels", 0], "--pixels is 0"),
        (["U", "-o", "picture.jpg"], "does not end in .png"),
    ):
        assert support.fails(cusz_cli("view", run, *words), 2, message)
    file = tmp_path / "there.png"
    file.write_bytes(b"")
    assert support.fails(cusz_cli("view", run, "U", "-o", file), 2, "exists")
    assert cusz_cli("view", run, "U", "-o", file, "--force")[0] == 0


def test_levels_that_are_no_grid_are_left_out(tmp_path: Path, cusz_cli: Callable) -> None:
    """The blocks' rows differ in coarser levels, so that all values are drawn."""
    x = X[0]
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out, out.step():
        for (top, bottom), (left, right) in (
            ((0, 33), (0, 160)),
            ((33, 72), (0, 41)),
            ((33, 50), (41, 160)),
            ((50, 72), (41, 160)),
        ):
            out.put("U", x[top:bottom, left:right], x.shape, (top, left))
    with cz.Reader(tmp_path / "run.bp") as reader:
        with pytest.raises(cusz_core.ParameterError, match="is no grid"):
            reader[0].level("U", 1)
        picture = view.picture_of(reader[0], "U", {}, (), 10, 10)
    assert picture.level.number == 0
    assert np.abs(picture.values - x).max() <= 1e-3
    code, _, err = cusz_cli("view", tmp_path / "run.bp", "U", "-o", tmp_path / "U.png", "--pixels", 20)
    assert (code, err) == (0, "")
    assert pixels_of(tmp_path / "U.png").shape[:2] == x.shape
