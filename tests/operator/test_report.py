"""`cusz report`: the page shows the figures of the file, and says what is wrong."""

from __future__ import annotations

import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cusz_core
import cusz_operator as cz
import support
from cusz_core import cli, embedding
from cusz_operator import report
from cusz_operator.inspecting.report import collect, figures, pictures, values
from cusz_operator.tables.boxes import pieces

pytest.importorskip("adios2")
pytest.importorskip("matplotlib")
from other_program import Program

X = support.smooth((24, 20, 16), support.F32)
EB = 1e-3
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Html(HTMLParser):
    """The contents of a page: tables by name, as lists of rows; all text; identifiers, links and classes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.ids: list[str] = []
        self.links: list[str] = []
        self.classes: dict[str, str] = {}  # the text in elements of a class
        self.titles: list[str] = []  # of figures
        self.terms: dict[str, str] = {}
        self.words = ""
        self._open: list[tuple[str, dict[str, str]]] = []
        self._table: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self._open == [], "all elements are closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if "id" in given:
            self.ids.append(given["id"])
        self.links += [given[key] for key in ("href", "xlink:href", "src") if key in given]
        self.links += re.findall(r"url\(([^)]*)\)", " ".join(given.values()))
        if tag == "tr":
            self._table.append([])
        if tag in ("td", "th"):
            self._table[-1].append("")
        if tag == "div" and given.get("class") == "table":
            self._table = self.tables.setdefault(given["aria-label"], [])
        if tag not in VOID:
            self._open.append((tag, given))
        if tag == "dt":
            self.terms[""] = ""
        if tag == "dd":
            self.terms[self.terms.pop("")] = ""
        if tag == "svg":
            assert given["role"] == "img"
            assert given["aria-labelledby"]
        if tag == "title" and any(of == "svg" for of, _ in self._open):
            self.titles.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self._open]
        if not tags or tags[-1] in ("style", "script"):
            return
        self.words += data
        for _, attrs in self._open:
            for name in attrs.get("class", "").split():
                self.classes[name] = self.classes.get(name, "") + data
        if {"td", "th"} & set(tags):
            self._table[-1][-1] += data
        if tags[-1] == "title" and "svg" in tags:
            self.titles[-1] += data
        if tags[-1] == "dt":
            self.terms[""] += data
        if tags[-1] == "dd":
            self.terms[list(self.terms)[-1]] += data

    def rows(self, table: str) -> dict[str, dict[str, str]]:
        """The rows of a table by their first cell."""
        heads, *rows = self.tables[table]
        return {row[0]: dict(zip(heads, row, strict=True)) for row in rows}


def page_of(*arguments: Any) -> Html:
    return checked(report.html(report.make(*arguments)))


def checked(text: str) -> Html:
    """Parses a page after checking that it refers to nothing outside, and to no missing identifier."""
    words = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=\s]*", "", text)
    assert not re.search(r"https?:|//[a-z]|@import|<script|<link|<iframe", words, re.IGNORECASE)
    html = Html(text)
    assert len(set(html.ids)) == len(html.ids)
    for link in html.links:
        assert link.startswith("data:image/png;base64,") or link[1:] in html.ids, link[:60]
    return html


def write(path: Path, steps: int = 3, offset: float = 0.0, **options: Any) -> Path:
    """Writes U in two blocks, V (doubles), integers and a text at each step."""
    with cz.Writer(path, **{"eb": EB, **options}) as out:
        for n in range(steps):
            with out.step():
                out.put("U", X[:10] + np.float32(n), X.shape)
                out.put("U", X[10:] + np.float32(n + offset), X.shape, (10, 0, 0))
                spike = np.zeros(X[0].shape)
                spike[5, 6] = 1000 * n  # outliers to Lorenzo
                out.put("V", X[0] * (n + 1.0) + spike, eb=2 * options.get("eb", EB), predictor="lorenzo")
                out.put("ids", np.arange(7), (7,), lossless="none")
                out.put("title", "a run")
    return path


def pair(folder: Path, fields: dict[str, Any], eb: float = EB, **options: Any) -> tuple[Path, Path]:
    """Writes a step of these variables, and the same without loss."""
    run, exact = folder / "run.bp", folder / "exact.bp"
    return support.write_run(run, fields, eb=eb, **options), support.write_run(exact, fields, eb=0.0, **options)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path / "run.bp"), write(tmp_path / "exact.bp", eb=0.0)


def test_what_is_in_a_file(engine: str, tmp_path: Path) -> None:
    path = write(tmp_path / "run.bp", engine=engine)
    html = page_of(path)
    with cz.Reader(path) as run:
        tables = [step.blocks("U") for step in run]
    raw, stored = (sum(int(table[key].sum()) for table in tables) for key in ("raw_bytes", "archive_bytes"))
    rows = html.rows("Variables")
    assert set(rows) == {"U", "V", "ids", "title"}
    assert rows["U"] == {
        "variable": "U",
        "type": "float",
        "shape": "24 × 20 × 16",
        "steps": "3",
        "blocks": "6",
        "raw": "92.2 kB",
        "stored": cusz_core.command_line.size(stored),
        "ratio": f"{raw / stored:.2f}",
        "bound in force": "0.001",
        "outliers": str(sum(int(table["outliers"].sum()) for table in tables)),
    }
    assert (rows["V"]["bound in force"], rows["V"]["type"]) == ("0.002", "double")
    assert (rows["ids"]["ratio"], rows["title"]["shape"], rows["title"]["raw"]) == ("1.00", "one value", "")
    assert (html.terms["File"], html.terms["Engine"], html.terms["Steps"]) == (str(path), engine, "3")
    assert html.terms["Report by"] == f"cusz {cusz_core.__version__}"
    assert "Compared with" not in html.terms
    for step, (row, table) in enumerate(zip(html.tables["Every step of U"][1:], tables, strict=True)):
        assert row[:2] == [str(step), "2"]
        assert row[4] == f"{table['raw_bytes'].sum() / table['archive_bytes'].sum():.2f}"
        assert row[7:] == [f"{table['min'].min():.6g}", f"{table['max'].max():.6g}"]
    for words in ("Ratio of U over", "Value range of U over", "Outliers of V over", "Map of the blocks of U at step 2"):
        assert any(title.startswith(words) for title in html.titles), words
    assert not any("ids" in title or "Outliers of U" in title for title in html.titles)
    assert int(rows["V"]["outliers"]) > 0
    ratios = tables[-1]["raw_bytes"] / tables[-1]["archive_bytes"]
    assert any(f"coloured by ratio, from {ratios.min():.2f} to {ratios.max():.2f}" in title for title in html.titles)
    for rank_and_ratio in ratios:
        assert f"{rank_and_ratio:.2f}" in html.words


def test_errors_are_those_that_verify_finds(tmp_path: Path) -> None:
    fields = {"f": X, "d": support.smooth((50, 40), support.F64), "line": support.smooth((4000,), support.F64)}
    fields["holes"] = np.where(np.median(X) < X, np.float32(1e20), X)
    fields["holes"][0, 0, :2] = np.nan, np.inf
    page = report.make(*pair(tmp_path, fields, variables={"holes": {"fill": 1e20}}))
    assert (page.broken, page.notes) == ([], [])
    rows = checked(report.html(page)).rows("Against the original")
    assert set(rows) == set(fields)
    for variable, field in fields.items():
        fill = 1e20 if variable == "holes" else None
        known = cusz_core.verify(field, cusz_core.compress(field, EB, fill=fill))
        row = rows[variable]
        assert row["values"] == str(field.size)
        assert row["largest error"] == f"{known.max_error:.6g}"
        assert row["error / bound"] == f"{known.max_error_over_eb:.6f}"
        assert row["lowest PSNR, dB"] == f"{known.psnr:.2f}"
        assert row["bound broken"] == "0"
    (holes,) = next(variable for variable in page.variables if variable.name == "holes").comparisons
    n_holes = int(np.count_nonzero(fields["holes"] == np.float32(1e20)))
    assert holes.view is not None
    assert holes.histogram is not None
    assert np.isnan(holes.view.original).sum() == np.isnan(holes.view.decoded).sum() == n_holes + 1
    assert holes.histogram.sum() == X.size - n_holes - 2


@pytest.mark.full
def test_figures_of_a_comparison(runs: tuple[Path, Path]) -> None:
    page = report.make(*runs)
    html = checked(report.html(page))
    assert "is within the bound in force" in html.classes["kept"]
    assert "broken" not in html.classes
    for name in "UV":
        for words in (
            f"Original: slice of {name}",
            f"Decoded: slice of {name}",
            "Error (decoded - original): slice of",
        ):
            assert any(title.startswith(words) for title in html.titles), words
        assert any(title.startswith(f"Histogram of the errors of {name} at step 2") for title in html.titles)
        assert any(title.startswith(f"Power spectra of {name} at step 2") for title in html.titles)
    (u,) = page.variables[0].comparisons
    with cz.Reader(runs[0]) as run:
        error = run["U"].read().astype(np.float64) - (X + np.float32(2))
    assert u.histogram is not None
    assert u.histogram.tolist() == np.histogram(error / EB, len(u.histogram), (-1, 1))[0].tolist()
    assert u.view is not None
    assert u.view.is_whole
    assert support.same_bits(u.view.original, X + np.float32(2))


def test_only_some_variables(runs: tuple[Path, Path]) -> None:
    html = page_of(*runs, ["V"])
    assert set(html.rows("Variables")) == {"V"}
    assert "left out, because the report was asked for others: U, ids, title" in html.classes["notes"]
    with pytest.raises(cusz_core.ParameterError, match="no variable 'W'"):
        report.make(*runs, ["W"])


def test_a_broken_bound(runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = runs
    other = write(tmp_path / "other.bp", eb=0.0, offset=0.5)
    output = tmp_path / "page.html"
    assert cli.main(["report", str(run), "--original", str(other), "-o", str(output)]) == 1
    html = checked(output.read_text(encoding="utf-8"))
    assert "kept" not in html.classes
    told = html.classes["broken"]
    n = X[10:].size
    assert f"U, step 1: {n} of {X.size} values break the bound; the worst, at (" in told
    assert "beyond 0.001" in told
    assert "V" not in re.findall(r"(\w+), step", told)
    assert html.rows("Against the original")["U"]["bound broken"] == str(3 * n)
    assert float(html.rows("Against the original")["U"]["error / bound"]) > 499
    assert html.words.index("The error bound is broken") < html.words.index("Ranks that wrote it")
    assert f"BROKEN    U, step 1: {n} of" in capsys.readouterr().out


def test_the_bound_is_compared_exactly(tmp_path: Path) -> None:
    """An error equal to the bound is allowed; the next larger one is not."""
    x = np.zeros((1, 64), np.float64)
    eb = 0.25
    for name, shift in (("equal.bp", eb), ("beyond.bp", math.nextafter(eb, 1))):
        y = x.copy()
        support.write_run(tmp_path / "run.bp", {"u": x}, eb=eb)
        with cz.Reader(tmp_path / "run.bp") as run:
            decoded = run["u"].read()
        y[0, 5] = decoded[0, 5] + shift
        support.write_run(tmp_path / name, {"u": y}, eb=0.0)
    assert report.make(tmp_path / "run.bp", tmp_path / "equal.bp").broken == []
    (broken,) = report.make(tmp_path / "run.bp", tmp_path / "beyond.bp").broken
    assert broken.startswith("u, step 0: 1 of 64 values break the bound; the worst, at (0, 5): ")


def test_values_that_must_be_the_same(tmp_path: Path) -> None:
    """NaN that came back as a number, and integers."""
    field = X.copy()
    field[1, 2, 3] = np.nan
    for name, eb, x, n in (("run.bp", EB, X, 3), ("exact.bp", 0.0, field, 4)):
        support.write_run(tmp_path / name, {"u": x, "n": np.array([1, 2, n]), "title": f"of {name}"}, eb=eb)
    page = report.make(tmp_path / "run.bp", tmp_path / "exact.bp")
    assert [sentence.split(":")[0] for sentence in page.broken] == ["n, step 0", "u, step 0"]
    assert "1 of 3 values" in page.broken[0]
    assert "at (1, 2, 3): original nan" in page.broken[1]
    assert page.notes == ["title: not the same value as in the original, at steps 0"]
    html = checked(report.html(page))
    assert "1 values that are not finite or fill were replaced by the mean of the others" in html.words


def test_a_step_without_a_bound_is_not_said_to_keep_one(tmp_path: Path) -> None:
    for name, eb in (("first.bp", EB), ("exact.bp", None)):
        with Program(tmp_path / name, "BP4") as out:
            for n in range(2):
                with out.step():
                    out.put("u", X + n, eb=eb)
    for name, field in (("first.bp", X + 5), ("exact.bp", X)):
        with Program(tmp_path / name, "BP4", mode="Append") as out, out.step():
            out.put("u", field)
    page = report.make(tmp_path / "first.bp", tmp_path / "exact.bp")
    assert page.kept.startswith(f"Every one of the {2 * X.size} values that have a bound, of 1 compressed variable, ")
    assert page.notes == [f"u: not compressed, yet {X.size} values differ from the original, at steps 2"]


def test_blocks_that_overlap_with_bounds_relative_to_every_value(tmp_path: Path) -> None:
    """Because it is unknown which of them a value comes from."""
    for name, eb in (("run.bp", EB), ("exact.bp", None)):
        with Program(tmp_path / name) as out, out.step():
            for _ in range(2):
                out.put("u", X, eb=eb, **({"mode": "pw_rel"} if eb else {}))
    page = report.make(tmp_path / "run.bp", tmp_path / "exact.bp")
    assert page.kept == ""
    assert page.notes == ["u: blocks overlap, so bounds relative to every value are not checked, at steps 0"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    run = support.write_run(tmp_path / "run.bp", *[{"u": X, "only here": X}] * 4, eb=EB)
    both, one = {"u": X, "only there": X}, {"only there": X}
    html = page_of(run, support.write_run(tmp_path / "exact.bp", both, one, both, eb=0.0))
    notes = html.classes["notes"]
    for words in (
        "the run has 4 steps, the original 3 steps",
        "only here: the original has no such variable: not compared",
        "u: the original lacks step 1: not compared there",
        "only the original has: only there",
    ):
        assert words in notes
    assert html.rows("Against the original")["u"]["steps"] == "2"
    assert [row[9] != "" for row in html.tables["Every step of u"][1:]] == [True, False, True, False]


def test_nothing_in_common(tmp_path: Path) -> None:
    for name in ("a", "b"):
        support.write_run(tmp_path / f"{name}.bp", {name: X}, eb=EB)
    html = page_of(tmp_path / "a.bp", tmp_path / "b.bp")
    assert "No compressed variable could be compared" in html.classes["notes"]
    assert "Nothing could be compared: see the notes." in html.words


@pytest.mark.parametrize(("other", "words"), [(X[1:], "has shape"), (X.astype(np.float64), "float32 in the run")])
def test_originals_of_other_fields(other: np.ndarray, words: str, tmp_path: Path) -> None:
    run = support.write_run(tmp_path / "run.bp", {"u": X}, eb=EB)
    exact = support.write_run(tmp_path / "exact.bp", {"u": other}, eb=0.0)
    with pytest.raises(cusz_core.ParameterError, match=f"variable 'u' .*{words}.*not of the same run"):
        report.make(run, exact)


@pytest.mark.full
def test_a_lossy_original_is_named(runs: tuple[Path, Path]) -> None:
    page = report.make(runs[0], runs[0])
    assert page.notes[0] == "U: the original is itself compressed, with errors up to 0.001"
    assert "The spectra are the same." in checked(report.html(page)).words


def test_a_foreign_file(engine: str, tmp_path: Path) -> None:
    """Compressed by the plugin in a program that only knows ADIOS2; blocks without a global shape are listed."""
    field = X.astype(np.float64)
    for path, eb in ((tmp_path / "run.bp", EB), (tmp_path / "raw.bp", None)):
        with Program(path, engine) as out:
            for n in range(2):
                with out.step():
                    out.put("u", field[:9] + n, X.shape, eb=eb)
                    out.put("u", field[9:] + n, X.shape, (9, 0, 0))
                    out.put("plain", X if eb is None or n == 0 else X + np.float32(1))
                    out.put("number", n / 2)
                    out.put("local", X, (), eb=eb)
                    out.put("local", X[::-1], ())
    page = report.make(tmp_path / "run.bp", tmp_path / "raw.bp")
    html = checked(report.html(page))
    assert page.broken == []
    assert page.notes == [
        "local: its blocks have no global shape: not compared",
        f"plain: not compressed, yet {X.size} values differ from the original, at steps 1",
    ]
    blocks = [block for block in cz.inspect_bp(tmp_path / "run.bp") if block["variable"] == "u"]
    stored = sum(block["archive_bytes"] for block in blocks)
    rows = html.rows("Variables")
    assert rows["u"]["ratio"] == f"{2 * field.nbytes / stored:.2f}"
    assert rows["u"]["bound in force"] == rows["local"]["bound in force"] == "0.001"
    assert rows["u"]["outliers"] == str(sum(block["out_of_range"] + block["unpredictable"] for block in blocks))
    assert (rows["plain"]["bound in force"], rows["plain"]["ratio"]) == ("not compressed", "1.00")
    assert "Ratios of the 2 blocks of local at step 1." in html.words
    assert (rows["local"]["shape"], rows["number"]["shape"]) == ("blocks without a global shape", "one value")
    found = html.rows("Against the original")
    known = [
        cusz_core.verify(part, cusz_core.compress(part, EB)) for n in (0, 1) for part in (field[:9] + n, field[9:] + n)
    ]
    assert found["u"]["largest error"] == f"{max(each.max_error for each in known):.6g}"
    assert found["plain"]["bound broken"] == f"{X.size} differ"


def test_an_uncompressed_file(tmp_path: Path) -> None:
    with Program(tmp_path / "raw.bp") as out, out.step():
        out.put("u<b>", X)
    html = page_of(tmp_path / "raw.bp")
    assert html.rows("Variables")["u<b>"]["bound in force"] == "not compressed"
    assert html.titles == []


@pytest.mark.full
def test_types_that_are_stored_as_others(tmp_path: Path) -> None:
    wave = (X + 1j * X[::-1]).astype(np.complex64)
    fields = {"wave": wave, "half": X.astype(np.float16), "mask": X > 0, "noise": np.random.default_rng(0).random(5)}
    page = report.make(*pair(tmp_path, fields))
    assert page.broken == []
    html = checked(report.html(page))
    assert set(html.rows("Against the original")) == {"half", "mask", "noise", "wave/real", "wave/imag"}
    assert html.rows("Variables")["wave"]["raw"] == cusz_core.command_line.size(wave.nbytes)
    with cz.Reader(tmp_path / "run.bp") as run:
        error = np.abs(run["wave"].read().imag.astype(np.float64) - wave.imag).max()
    assert html.rows("Against the original")["wave/imag"]["largest error"] == f"{error:.6g}"


def test_float16_is_compared_as_a_reader_gives_it(tmp_path: Path) -> None:
    x = (X * 100).astype(np.float16)
    original, run = tmp_path / "original.bp", tmp_path / "run.bp"
    for path, eb in ((original, 0.0), (run, 0.3)):
        support.write_run(path, {"h": x}, eb=eb)
    page = report.make(run, original)
    (half,) = page.variables
    assert (page.broken, half.raw_bytes) == ([], x.nbytes)
    found = half.comparisons[0].steps[0]
    (exact,) = cz.compare_runs(original, run)
    assert found.over_bound <= 1
    assert found.max_error == exact.largest
    assert found.psnr == pytest.approx(exact.psnr, rel=1e-12)
    view = half.comparisons[0].view
    assert view is not None
    with cz.Reader(run) as reader:
        assert np.array_equal(view.decoded, reader[0].read("h").astype(np.float32))
    assert page.notes == [
        "h: the bound in force is that of the float32 values that are stored; errors are those of the float16 values "
        "that they are rounded to"
    ]


@pytest.mark.quick(2)
@pytest.mark.parametrize("shape", [(1,), (1, 1), (2, 3), (1, 30), (3, 5, 7, 9), (2, 2, 3, 4, 5)])
def test_every_number_of_dimensions(shape: tuple[int, ...], tmp_path: Path) -> None:
    field = support.smooth((math.prod(shape),), support.F64).reshape(shape)
    html = page_of(*pair(tmp_path, {"u": field, "constant": np.full(shape, 2.0), "nothing": np.empty((0, 3))}))
    rows = html.rows("Against the original")
    assert {name: row["values"] for name, row in rows.items()} == {
        "constant": str(field.size),
        "nothing": "0",
        "u": str(field.size),
    }
    assert (rows["constant"]["largest error"], rows["constant"]["lowest PSNR, dB"]) == ("0", "exact")


@pytest.mark.full
def test_slabs_give_the_same_figures(runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = report.make(*runs)
    monkeypatch.setattr(values, "SLAB", 50)
    monkeypatch.setattr(pictures, "VIEW", 500)
    parts = report.make(*runs)
    for one, other in zip(whole.variables, parts.variables, strict=True):
        for a, b in zip(one.comparisons, other.comparisons, strict=True):
            for x, y in zip(a.steps, b.steps, strict=True):
                assert (x.values, x.max_error, x.over_bound) == (y.values, y.max_error, y.over_bound)
                assert y.psnr == pytest.approx(x.psnr, rel=1e-12, nan_ok=True)
            if a.histogram is not None and b.histogram is not None:
                assert a.histogram.tolist() == b.histogram.tolist()
    view = parts.variables[0].comparisons[0].view
    assert view is not None
    start, count = view.box
    assert math.prod(count) <= 500
    assert support.same_bits(view.original, support.part(X + np.float32(2), start, count))
    assert "Slices are of a coarser level, and spectra of the box of extents" in checked(report.html(parts)).words


LARGE = support.smooth((64, 72, 160), support.F32)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A run with U in four blocks, which counts as large and has fill values in a corner; and its original."""
    monkeypatch.setattr(pictures, "VIEW", LARGE.size // 2)
    monkeypatch.setattr(pictures, "PREVIEW", 40)
    filled = LARGE.copy()
    filled[:, :8, :8] = 1e20
    for name, eb in (("run.bp", EB), ("exact.bp", 0.0)):
        with cz.Writer(tmp_path / name, eb=eb, predictor="spline" if eb else "auto") as out, out.step():
            for z in (0, 32):
                for y in (0, 36):
                    out.put("U", filled[z : z + 32, y : y + 36], LARGE.shape, (z, y, 0), fill=1e20)
            out.put("small", X)
    return tmp_path / "run.bp", tmp_path / "exact.bp"


def test_a_large_run_is_drawn_from_few_of_its_bytes(large: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[cz.Reader] = []

    class Counting(cz.Reader):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            opened.append(self)

    monkeypatch.setattr(collect, "Reader", Counting)
    page = report.make(large[0])
    (run,) = opened
    with cz.Reader(large[0]) as reader:
        step = reader[0]
        stored = int(step.blocks("U")["archive_bytes"].sum())
        level = step.level("U", 2)
        plane = step.read("U", level=2)[level.coordinates[0].tolist().index(32)]
    assert 0 < run.bytes_read < 0.1 * stored
    planes = {variable.name: variable.planes for variable in page.variables}
    assert planes["small"] == []
    (drawn,) = planes["U"]
    assert (drawn.level, drawn.cuts, drawn.original) == (2, (32,), None)
    assert (drawn.read_bytes, drawn.stored_bytes) == (run.bytes_read, stored)
    assert [along.tolist() for along in drawn.coordinates] == [along.tolist() for along in level.coordinates[1:]]
    assert np.isnan(drawn.decoded[:2, :2]).all()  # fill
    plane[:2, :2] = np.nan
    assert np.array_equal(drawn.decoded, plane, equal_nan=True)
    html = checked(report.html(page))
    assert [title for title in html.titles if "lice of" in title] == ["Slice of U at step 0"]
    read, of_all = (cusz_core.command_line.size(n) for n in (run.bytes_read, stored))
    assert (
        f"U at step 0, at 32 of axis 0: level 2, 18 × 40 values, for which {read} of {of_all} were read." in html.words
    )


def test_a_large_run_against_its_original(large: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "SLAB", 700)  # several pieces of the plane
    page = report.make(*large)
    assert (page.broken, page.variables[0].planes) == ([], [])
    (comparison,) = page.variables[0].comparisons
    plane = comparison.plane
    assert plane is not None
    assert plane.original is not None
    expected = LARGE[32][np.ix_(*plane.coordinates)].astype(np.float64)
    expected[:2, :2] = np.nan
    assert np.array_equal(plane.original, expected, equal_nan=True)
    assert 0 < np.nanmax(abs(plane.decoded - plane.original)) <= EB
    html = checked(report.html(page))
    slices = [title for title in html.titles if "slice of U" in title]
    assert slices == [f"{what}: slice of U at step 0" for what in ("Original", "Decoded", "Error (decoded - original)")]
    assert "Slices are of a coarser level, and spectra of the box of extents 64 × 72 × 80" in html.words
    (small,) = page.variables[1].comparisons
    assert small.plane is None
    assert "Spectra are of the whole variable" in html.words


def test_a_large_run_without_levels_that_are_a_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "VIEW", 1000)
    for name, eb in (("run.bp", EB), ("exact.bp", 0.0)):
        with cz.Writer(tmp_path / name, eb=eb) as out, out.step():
            out.put("U", LARGE[0, :15], LARGE[0].shape)
            out.put("U", LARGE[0, 15:40, :80], LARGE[0].shape, (15, 0))
            out.put("U", LARGE[0, 15:, 80:], LARGE[0].shape, (15, 80))
            out.put("U", LARGE[0, 40:, :80], LARGE[0].shape, (40, 0))
    assert report.make(tmp_path / "run.bp").variables[0].planes == []
    page = report.make(tmp_path / "run.bp", tmp_path / "exact.bp")
    assert page.variables[0].comparisons[0].plane is None
    assert "Slices and spectra are of the box of extents" in checked(report.html(page)).words


def test_where_a_large_run_has_no_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a level of an AMR code: the gaps between blocks are not filled with the values of their neighbours."""
    monkeypatch.setattr(pictures, "VIEW", 1000)
    with cz.Writer(tmp_path / "run.bp", eb=EB, predictor="spline") as out, out.step():
        out.put("U", LARGE[0, :16, :32], LARGE[0].shape)
        out.put("U", LARGE[0, 16:33, 100:], LARGE[0].shape, (16, 100))
    page = report.make(tmp_path / "run.bp")
    (plane,) = page.variables[0].planes
    assert plane.level == 1
    assert plane.coordinates[1].tolist() == [*range(0, 32, 2), *range(100, 160, 2)]
    assert np.isnan(plane.decoded[:8, 16:]).all()
    edges, before = figures._edges(plane.coordinates[1], 2)
    assert before.tolist() == [16]
    assert edges.tolist() == [-0.5, *range(1, 32, 2), 99.5, *range(101, 160, 2)]
    edges, before = figures._edges(plane.coordinates[0], 2)
    assert (edges.tolist(), before.tolist()) == ([-0.5, *range(1, 34, 2)], [])
    checked(report.html(page))
    assert figures._edges(np.array([7]), 2)[0].tolist() == [6.5, 7.5]


def test_a_large_foreign_run(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ADIOS2 returns whole archives; only those of blocks that the plane cuts are read."""
    monkeypatch.setattr(pictures, "VIEW", 1000)
    with Program(tmp_path / "run.bp", engine) as out, out.step():
        out.put("u", LARGE[:20], LARGE.shape, eb=EB)
        out.put("u", LARGE[20:], LARGE.shape, (20, 0, 0))
    page = report.make(tmp_path / "run.bp")
    (plane,) = page.variables[0].planes
    stored = [block["archive_bytes"] for block in cz.inspect_bp(tmp_path / "run.bp")]
    assert (plane.read_bytes, plane.stored_bytes) == (stored[1], sum(stored))
    with cz.Reader(tmp_path / "run.bp") as run:
        level = run[0].level("u", plane.level)
        expected = run[0].read("u")[32][np.ix_(*level.coordinates[1:])]
    assert np.array_equal(plane.decoded, expected)
    checked(report.html(page))


@pytest.mark.parametrize("is_large", [False, True])
def test_values_whose_range_overflows(is_large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are drawn, although matplotlib itself would raise errors."""
    if is_large:
        monkeypatch.setattr(pictures, "VIEW", 500)
    most = np.finfo(np.float64).max
    field = np.where(support.smooth((12, 30, 40), support.F64) > 0, most, -most)
    field[0, 0, :3] = np.nan, np.inf, 0
    page = report.make(*pair(tmp_path, {"space": field, "plane": field[6], "line": field[6, 15]}, eb=1e305))
    assert page.broken == []
    html = checked(report.html(page))
    assert set(html.rows("Against the original")) == {"space", "plane", "line"}
    # Without an original, part of a large run is drawn.
    checked(report.html(report.make(tmp_path / "run.bp")))


def test_a_small_run_is_not_decoded_to_be_drawn(runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an original, variables of up to 2^24 values are not drawn; with one, slices of the whole are."""
    assert pictures.VIEW == 2**24
    monkeypatch.setattr(pictures, "picture_of", None)
    page = report.make(runs[0])
    assert all(variable.planes == [] for variable in page.variables)
    assert not any("lice of" in title for title in checked(report.html(page)).titles)
    page = report.make(*runs)
    assert page.variables[0].comparisons[0].plane is None
    html = checked(report.html(page))
    assert "Spectra are of the whole variable at this step." in html.words
    assert "Decoded: U at step 2, at 12 of axis 0." in html.words


def test_damage_where_a_large_run_is_drawn(large: tuple[Path, Path]) -> None:
    with cz.Reader(large[0]) as run:
        archive = bytes(run._contents.archive("U", 0, 2, support.F32))  # type: ignore[arg-type]
    support.damage(large[0] / "data.0", 2000, 0x10, within=archive)
    page = report.make(large[0])
    (note,) = page.notes
    assert note.startswith("U, step 0: it cannot be drawn: ")
    assert "the block at (32, 0, 0)" in note
    assert "Slice of" not in " ".join(checked(report.html(page)).titles)


@given(count=st.lists(st.integers(0, 9), min_size=1, max_size=4), slab=st.integers(1, 200))
def test_slabs_cover_a_box_once(count: list[int], slab: int) -> None:
    covered = np.zeros(count, np.int64)
    for start, extents in pieces(((3,) * len(count), tuple(count)), slab):
        assert math.prod(extents) <= slab
        covered[tuple(slice(s - 3, s - 3 + c) for s, c in zip(start, extents, strict=True))] += 1
    assert (covered == 1).all()


@pytest.mark.parametrize("shape", [(64,), (63,), (32, 32), (31, 24), (16, 16, 16), (8, 1, 12)])
def test_a_spectrum(shape: tuple[int, ...]) -> None:
    """A single wave along the last axis has its power at its wave number; noise has equal power at all."""
    at = np.arange(shape[-1]) / shape[-1]
    field = np.broadcast_to(3 + 4 * np.cos(2 * np.pi * 3 * at), shape)
    found = figures.spectrum(field)
    peak = 3 * max(shape) / shape[-1]
    assert found.waves[np.argmax(found.power)] == pytest.approx(peak, abs=0.5)
    if len(shape) == 1:
        assert found.power.max() == pytest.approx(4.0)  # |4 / 2|^2
        np.testing.assert_allclose(found.power.sum() * 2, field.var())
    assert (np.diff(found.waves) > 0).all()
    noise = figures.spectrum(np.random.default_rng(0).standard_normal((64, 64, 64))).power * 64**3
    assert noise[5:] == pytest.approx(1.0, abs=0.2)


def test_long_spectra_have_few_points() -> None:
    found = figures.spectrum(np.random.default_rng(0).standard_normal(2**16))
    assert len(found.waves) <= figures.SPECTRUM_POINTS
    assert found.waves[0] == 1
    assert found.waves[-1] == pytest.approx(2**15, rel=0.05)
    assert found.power[-50:] * 2**16 == pytest.approx(1.0, abs=0.5)


def test_merged_errors_are_those_of_the_whole() -> None:
    a = support.smooth((3000,), support.F64)
    b = a + np.random.default_rng(0).normal(0, 1e-4, a.size)
    whole = embedding.compare(a, b, 1.0, None)[1]
    merged = embedding.compare(a[:0], b[:0], 1.0, None)[1]
    for part in (slice(0, 100), slice(100, 100), slice(100, 2000), slice(2000, None)):
        merged.merge(embedding.compare(a[part], b[part], 1.0, None)[1])
    assert merged.largest == whole.largest
    assert merged.scaled_sum == pytest.approx(whole.scaled_sum, rel=1e-12)


# ------------------------------------------------------------------------------------------------ the command


def test_a_run_that_is_the_current_folder(runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The page goes beside it, not into it."""
    run, _ = runs
    monkeypatch.chdir(run)
    inside = sorted(run.iterdir())
    assert cli.main(["report", ".", "--force"]) == 0
    assert sorted(run.iterdir()) == inside
    assert Path(f"{run}.html").is_file()
    Path(f"{run}.html").unlink()


def test_the_command(runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, exact = runs
    assert cli.main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run}.html: steps 3, variables 4, compressed 2\n"
    assert checked(Path(f"{run}.html").read_text(encoding="utf-8")).terms["File"] == str(run)
    assert cli.main(["report", str(run)]) == 2
    assert "exists: use --force to overwrite it" in capsys.readouterr().err
    assert cli.main(["report", str(run), "--force", "--original", str(exact), "--variable", "U"]) == 0
    assert "of 1 compressed variable, is within the bound in force.\n" in capsys.readouterr().out
    html = checked(Path(f"{run}.html").read_text(encoding="utf-8"))
    assert html.terms["Compared with"] == str(exact)
    assert set(html.rows("Variables")) == {"U"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["none.bp"], 1, "'none.bp' does not exist"),
        (["run.bp", "--original", "none.bp"], 1, "'none.bp' does not exist"),
        (["file.nc"], 1, "'file.nc' is a file, not a .bp folder"),
        (["run.bp", "--variable", "W"], 2, "no variable 'W' in 'run.bp': there are U, V, ids, title"),
        (["exact.bp", "--original", "run.bp"], 2, "did you mean 'run.bp' --original 'exact.bp'?"),
        (["run.bp", "-o", "."], 2, ". is a directory"),
        (["empty.bp"], 1, "empty.bp"),
    ],
)
def test_what_cannot_be_reported(
    arguments: list[str],
    code: int,
    words: str,
    runs: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(runs[0].parent)
    Path("empty.bp").mkdir()
    Path("file.nc").touch()
    assert cli.main(["report", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"cusz: error: [^\n]+\n", err)
    assert words in err
    assert not list(Path().glob("*.html"))


def test_a_damaged_file(runs: tuple[Path, Path], tmp_path: Path) -> None:
    support.damage(runs[0] / "data.0", -20, 0x10, within=cusz_core.compress(X[:10], EB))
    assert set(page_of(runs[0]).rows("Variables")) == {"U", "V", "ids", "title"}  # it is not decoded
    with pytest.raises(cusz_core.CorruptArchiveError, match=r"variable 'U', step 0, the block at \(0, 0, 0\)"):
        report.make(*runs)


def test_a_damaged_foreign_file(engine: str, tmp_path: Path) -> None:
    """Without block tables, all archives are examined; damage to one is a note."""
    with Program(tmp_path / "run.bp", engine) as out, out.step():
        out.put("u", X[:10], X.shape, eb=EB)
        out.put("u", X[10:], X.shape, (10, 0, 0))
    support.damage(tmp_path / "run.bp" / "data.0", 20, 0xFF, within=cusz_core.compress(X[10:], EB))
    html = page_of(tmp_path / "run.bp")
    assert "u, step 0: 1 blocks cannot be read as they should: block 1: " in html.classes["notes"]
    assert html.rows("Variables")["u"]["bound in force"] == "0.001"


def test_names_are_only_text(tmp_path: Path) -> None:
    name = """<b> & "c' $x$"""
    for path, eb in ((tmp_path / "run.bp", EB), (tmp_path / "exact.bp", 0.0)):
        with cz.Writer(path, eb=eb) as out, out.step():
            out.put(name, X[:10], X.shape)
            out.put(name, X[10:], X.shape, (10, 0, 0))
    html = page_of(tmp_path / "run.bp", tmp_path / "exact.bp")
    assert name in html.rows("Variables")
    assert any(title.startswith(f"Original: slice of {name} at step 0") for title in html.titles)


@pytest.mark.parametrize(("largest", "is_linear"), [(3.0, True), (1e5, False)])
def test_small_changes_of_a_spectrum_can_be_seen(largest: float, is_linear: bool) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    change = 1e-9 * np.array([1.0, -2.0, 1.5, -1.0, 0.0, largest])
    figures._set_axis_of_change(axes, change)
    low, high = axes.get_ylim()
    assert low < -2e-9
    assert high > change.max()
    heights = axes.transAxes.inverted().transform(axes.transData.transform([(0, 0), (0, 1e-9)]))[:, 1]
    assert heights[1] - heights[0] > 0.05  # as a fraction of the panel's height
    assert (axes.get_yscale() == "linear") == is_linear
    assert all(low <= tick <= high for tick in axes.get_yticks()) or is_linear


def test_without_matplotlib(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["report", str(runs[0])]) == 2
    assert re.fullmatch(
        r"cusz: error: a report needs matplotlib \(.*\): pip install 'cusz\[plot\]'\n", capsys.readouterr().err
    )
    assert not Path(f"{runs[0]}.html").exists()


def test_matplotlib_is_imported_only_when_needed(program: Any) -> None:
    code = """
import sys
from cusz_core import cli
from cusz_operator import commands, report
assert cli.main(["check", "none.bp"]) == 1
assert "matplotlib" not in sys.modules
"""
    program([sys.executable, "-c", code])
