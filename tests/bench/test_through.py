"""scripts/bench/through.py: what it measures and counts, and that nothing a codec does ends it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import runner
import through
from comparison.fields import Field
from doors import MAX_VALUES, Case, Codec, Hdf5, Zarr, chunk_of

import support

X = support.smooth((12, 20, 30), support.F32)
MARKS = ("<!-- through hdf5: begin -->", "<!-- through hdf5: end -->")


class Folder:
    """A door whose files are folders, and whose codecs are told what to do to the field."""

    name, suffix = "folder", ".d"

    def __init__(self) -> None:
        def version() -> str:
            return "1"

        self.codecs = [
            Codec("cusz", lambda case: case.x, version),
            Codec("careless", careless, version),
            Codec("failing", failing, version),
            Codec("crashing", lambda case: os.kill(os.getpid(), signal.SIGSEGV), version, may_crash=True),
            Codec("flat", lambda case: case.x, version, ndims=(1, 2)),
        ]

    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return "numpy"

    def write(self, path: Path, case: Case, codec: Codec) -> None:
        path.mkdir()
        np.save(path / "x.npy", codec.options(case))

    def read(self, path: Path, out: np.ndarray) -> None:
        out[...] = np.load(path / "x.npy")


def careless(case: Case) -> np.ndarray:
    y = case.x.copy()
    y.reshape(-1)[[3, 5, 7]] += case.x.dtype.type(1.5 * case.bound)
    return y


def failing(case: Case) -> np.ndarray:
    raise ValueError("not | today")


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [
        ((MAX_VALUES,), (MAX_VALUES,)),
        ((MAX_VALUES + 1,), (MAX_VALUES // 2 + 1,)),
        ((256, 256, 256), (64, 128, 128)),
        ((1800, 3600), (900, 900)),
        ((1, 2, 3), (1, 2, 3)),
    ],
)
def test_chunks(shape: tuple[int, ...], chunk: tuple[int, ...]) -> None:
    assert chunk_of(shape) == chunk


def test_what_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The separate process does not know this door.
    monkeypatch.setattr(runner, "apart", lambda *_, **__: (None, "crashes (signal 11)"))
    rows = through.measure_field(Folder(), Field("x", X), 1e-2, 2, tmp_path)
    ours, careless_row, failing_row, crashing_row, flat_row = rows
    assert ours["violations"] == 0
    assert careless_row["violations"] == 3
    assert careless_row["max_error_over_eb"] == pytest.approx(1.5, rel=1e-3)
    assert ours["ratio"] == X.nbytes / (X.nbytes + 128)  # numpy's header
    assert ours["compress_mbps"] > 0
    assert ours["decompress_mbps"] > 0
    assert failing_row["error"] == "ValueError: not | today"
    assert crashing_row["error"] == "crashes (signal 11)"
    assert flat_row["error"] == "3-D fields are not supported"
    assert all(row["ratio"] is None for row in (failing_row, crashing_row, flat_row))
    assert ours["eb_abs"] == 1e-2 * (float(X.max()) - float(X.min()))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def own_filter(monkeypatch: pytest.MonkeyPatch) -> Hdf5:
    """HDF5 without hdf5plugin, which is not in this environment."""
    door = Hdf5()
    door.codecs = door.codecs[:2]
    monkeypatch.setattr(door, "missing", lambda: None)
    monkeypatch.setitem(through.DOORS, "hdf5", door)
    return door


def test_documentation(own_filter: Hdf5, tmp_path: Path) -> None:
    fields = [tmp_path / "a.npy", tmp_path / "b.npy"]
    parts = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, part, seed in zip(fields, parts, (1, 2), strict=True):
        np.save(path, support.smooth((20, 30, 40), support.F32, seed))
        assert through.main([str(path), "--through", "hdf5", "--repeat", "1", "--eb", "1e-3", "--json", str(part)]) == 0
        (row, auto) = json.loads(part.read_text())["rows"]
        assert (row["tool"], row["violations"], row["through"]) == ("cusz", 0, "hdf5")
        assert (auto["tool"], auto["error"]) == ("cusz auto", None)
    (tmp_path / "figures").mkdir()
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    assert through.main(["--from", *map(str, parts), "--through", "hdf5", "--docs", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(f"before\n{MARKS[0]}\n")
    assert text.endswith(f"{MARKS[1]}\nafter\n")
    assert "old" not in text
    for what in ("ratios", "speeds"):
        assert f"(figures/through_hdf5_{what}.csv)" in text
        lines = (tmp_path / f"figures/through_hdf5_{what}.csv").read_text().splitlines()
        assert [line.split(",")[:2] for line in lines] == [["field", "rel"], ["a", "0.001"], ["b", "0.001"]]
    assert "| cusz | 0 of 2 | 0 | " in text


def test_zarr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the codecs of others, which are not in this environment."""
    door = Zarr()
    door.codecs = door.codecs[:2]
    x = X.copy()
    x[0, :2] = 1e20
    values = x[x < 1e19]
    rows = through.measure_field(door, Field("x", x, 1e20), 1e-3, 1, tmp_path)
    for row in rows:
        assert (row["error"], row["violations"]) == (None, 0)
        assert row["eb_abs"] == 1e-3 * (float(values.max()) - float(values.min()))
        assert row["ratio"] > 1.5


def test_a_broken_bound_of_ours_is_an_error(
    own_filter: Hdf5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(own_filter, "read", lambda path, out: out.fill(0))
    np.save(tmp_path / "x.npy", X)
    assert through.main([str(tmp_path / "x.npy"), "--through", "hdf5", "--repeat", "1", "--eb", "1e-3"]) == 1
    assert "values beyond the bound. This must not be" in capsys.readouterr().err


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert through.main(["--through", "tar"]) == 2
    assert "there is no tar; known are " in capsys.readouterr().err
    (tmp_path / "page.md").write_text("no marks")
    assert through.main(["--docs", str(tmp_path / "page.md")]) == 2
    assert "has no lines <!-- through hdf5: begin -->" in capsys.readouterr().err
