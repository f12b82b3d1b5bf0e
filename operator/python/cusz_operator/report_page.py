"""The HTML of `cusz report`: one page without a reference to anything outside, with figures as inline SVG."""

from __future__ import annotations

import importlib
import io
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core.command_line import size
from cusz_core.errors import UnsupportedError

if TYPE_CHECKING:
    from .report import Comparison, Page, StepFacts, VariableFacts, View

__all__ = ["Spectrum", "html", "require_matplotlib", "spectrum"]

MANY_BLOCKS = 64  # more of them are not labelled in a map
LINE_VALUES = 2000  # of a one-dimensional variable, drawn as a line
PICTURE_VALUES = 600  # along each axis of a picture
SPECTRUM_POINTS = 400

_STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; font: 1rem/1.5 system-ui, sans-serif; color: #1b1b1b;
       background: #fff; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: .75rem; border-top: 1px solid #c8c8c8; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
a { color: #0b4f8a; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 0 1rem; }
dt { color: #555; }
dd { margin: 0; }
.broken, .kept, .notes { padding: .6rem .9rem; margin: 0 0 1rem; border-left: .35rem solid; }
.broken { border-color: #b00020; background: #fdecee; color: #8c0019; }
.kept { border-color: #2e7d32; background: #edf6ee; }
.notes { border-color: #9a6b00; background: #fdf6e3; }
.broken ul, .notes ul { margin: .25rem 0 0; padding-left: 1.2rem; }
.table { overflow-x: auto; margin: 0 0 1rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem .25rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid #e2e2e2;
         overflow-wrap: normal; }
th { font-weight: 600; vertical-align: bottom; border-bottom-color: #999; }
th:first-child, td:first-child, .text { text-align: left; }
td.bad { color: #b00020; font-weight: 600; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
figure { margin: 0; max-width: 30rem; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: .875rem; color: #444; }
summary { cursor: pointer; }
@media (max-width: 24rem) { dl { grid-template-columns: 7rem 1fr; gap: .15rem .5rem; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } .table { overflow: visible; }
  .figures { grid-template-columns: repeat(3, 1fr); } h2, h3 { break-after: avoid; } a { color: inherit; } }
"""
_BLUE, _ORANGE, _GREY, _RED = "#1f5f99", "#c25700", "#666666", "#b00020"


def require_matplotlib() -> Any:
    """matplotlib, which is imported only here.

    Raises:
        UnsupportedError: it is not installed.
    """
    try:
        matplotlib = importlib.import_module("matplotlib")
        importlib.import_module("matplotlib.figure")
        importlib.import_module("matplotlib.backends.backend_svg")
    except ImportError as error:
        raise UnsupportedError(f"a report needs matplotlib ({error}): pip install 'cusz[plot]'") from None
    return matplotlib


def html(page: Page) -> str:
    """The page as one text."""
    title = f"cusz report: {page.path}"
    body = [f"<h1>Report on {escape(page.path)}</h1>", *_verdict(page), _head(page)]
    if page.notes:
        body.append(f'<div class="notes"><strong>Notes</strong>{_list(page.notes)}</div>')
    body += ["<h2>Variables</h2>", _variables(page)]
    if page.original is not None:
        body += ["<h2>Against the original</h2>", _comparisons(page)]
    figures = _Figures()
    for number, variable in enumerate(page.variables):
        if variable.is_compressed:
            body += _section(figures, number, variable)
    newline = "\n"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
{newline.join(body)}
</main>
</body>
</html>
"""


# ------------------------------------------------------------------------------------------------- text and tables


def _verdict(page: Page) -> Iterator[str]:
    if page.broken:
        yield f'<div class="broken" role="alert"><strong>The error bound is broken.</strong>{_list(page.broken)}</div>'
        return
    parts = [part for variable in page.variables if variable.is_compressed for part in variable.comparisons]
    n_values = sum(step.values for part in parts for step in part.steps)
    if n_values:
        counted = f"{len(parts)} compressed variable{'' if len(parts) == 1 else 's'}"
        yield (
            f'<div class="kept">Every one of the {n_values} values compared, of {counted}, is within the bound in '
            "force.</div>"
        )
    elif page.original is not None:
        yield '<div class="notes">No compressed variable could be compared with the original: see the notes.</div>'


def _head(page: Page) -> str:
    raw, stored = (sum(getattr(v, key) for v in page.variables) for key in ("raw_bytes", "stored_bytes"))
    blocks = sum(step.n_blocks for variable in page.variables for step in variable.steps)
    rows = {
        "File": escape(page.path),
        "Compared with": escape(page.original) if page.original is not None else "",
        "Engine": page.engine,
        "Steps": str(page.n_steps),
        "Ranks that wrote it": str(page.n_ranks or "not known"),
        "Blocks": f"{blocks}, over all variables and steps",
        "Raw": size(raw),
        "Stored": f"{size(stored)}; with all metadata, the files have {size(page.disk_bytes)}",
        "Ratio": f"{_ratio(raw, stored)}",
        "Written": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(page.written)) + " (time of the file)",
        "Report by": f"cusz {cusz_core.__version__}",
    }
    return "<dl>" + "".join(f"<dt>{key}</dt><dd>{text}</dd>" for key, text in rows.items() if text) + "</dl>"


def _variables(page: Page) -> str:
    rows = []
    for number, variable in enumerate(page.variables):
        name = escape(variable.name)
        link = f'<a href="#variable-{number}">{name}</a>' if variable.is_compressed else name
        is_known = variable.raw_bytes > 0
        rows.append(
            (
                link,
                escape(variable.type),
                escape(variable.shape),
                str(len(variable.steps)),
                str(sum(step.n_blocks for step in variable.steps)),
                size(variable.raw_bytes) if is_known else "",
                size(variable.stored_bytes) if is_known else "",
                _ratio(variable.raw_bytes, variable.stored_bytes) if is_known else "",
                _bounds(variable),
                str(variable.outliers) if variable.is_compressed and variable.outliers >= 0 else "",
            )
        )
    heads = ("variable", "type", "shape", "steps", "blocks", "raw", "stored", "ratio", "bound in force", "outliers")
    told = "<p>Sizes, blocks and outliers: of all steps. Outliers: values stored verbatim, and codes out of range.</p>"
    return _table("Variables", heads, rows, text_columns=(0, 1, 2)) + told


def _comparisons(page: Page) -> str:
    rows = []
    for variable in page.variables:
        for part in variable.comparisons:
            broken = sum(step.broken for step in part.steps)
            differing = sum(step.differing for step in part.steps)
            is_bound = variable.bounds is not None
            rows.append(
                (
                    escape(part.name),
                    str(len(part.steps)),
                    str(sum(step.values for step in part.steps)),
                    f"{max(step.max_error for step in part.steps):.6g}",
                    f"{max(step.over_bound for step in part.steps):.6f}" if is_bound else "",
                    _psnr(min((step.psnr for step in part.steps), key=lambda x: math.inf if math.isnan(x) else x)),
                    ("!" if broken else "") + str(broken) if is_bound else f"{differing} differ" if differing else "",
                )
            )
    if not rows:
        return "<p>Nothing could be compared: see the notes.</p>"
    heads = ("variable", "steps", "values", "largest error", "error / bound", "lowest PSNR, dB", "bound broken")
    told = (
        "<p>The error is that of every value of all steps that both files have; whether the bound is kept is decided "
        "without rounding. PSNR is 20 log10((max - min) / RMSE) of a step, over finite values that are not fill.</p>"
    )
    return _table("Against the original", heads, rows) + told


def _section(figures: _Figures, number: int, variable: VariableFacts) -> Iterator[str]:
    name = escape(variable.name)
    facts = variable.steps
    yield f'<h2 id="variable-{number}">{name}</h2>'
    outliers = f"{variable.outliers} outliers" if variable.outliers >= 0 else "outliers not known"
    yield (
        f"<p>{escape(variable.type)}, {escape(variable.shape)}; ratio "
        f"{_ratio(variable.raw_bytes, variable.stored_bytes)}, bound {_bounds(variable)}, {outliers}.</p>"
    )
    shown = []
    if len(facts) > 1:
        shown += list(_over_steps(figures, variable))
    shown.append(_block_map(figures, variable.name, facts[-1]))
    yield f'<div class="figures">{"".join(shown)}</div>'
    for part in variable.comparisons:
        drawn = list(_comparison_figures(figures, part))
        yield f"<h3>{escape(part.name)} against the original</h3>"
        last = part.steps[-1]
        yield (
            f"<p>Step {last.step}: largest error {last.max_error:.6g}, {last.over_bound:.6f} of the bound; PSNR "
            f"{_psnr(last.psnr)} dB.{_view_in_words(part)}</p>"
        )
        if drawn:
            yield f'<div class="figures">{"".join(drawn)}</div>'
    yield f"<details><summary>Every step of {name}</summary>{_steps_table(variable)}</details>"


def _steps_table(variable: VariableFacts) -> str:
    compared = [{step.step: step for step in part.steps} for part in variable.comparisons]
    heads = ["step", "blocks", "raw", "stored", "ratio", "bound in force", "outliers", "min", "max"]
    for part in variable.comparisons:
        what = "" if len(compared) == 1 else f" of {escape(part.name)}"
        heads += [f"error / bound{what}", f"PSNR{what}, dB"]
    rows = []
    for facts in variable.steps:
        low, high = (f"{x:.6g}" for x in facts.value_range) if facts.value_range else ("", "")
        row = [str(facts.step), str(facts.n_blocks), size(facts.raw_bytes), size(facts.stored_bytes)]
        row += [f"{facts.ratio:.2f}", _interval(facts.bounds), str(facts.outliers) if facts.outliers >= 0 else ""]
        row += [low, high]
        for by_step in compared:
            found = by_step.get(facts.step)
            row += ["", ""] if found is None else [f"{found.over_bound:.6f}", _psnr(found.psnr)]
        rows.append(row)
    return _table(f"Every step of {variable.name}", heads, rows)


def _table(name: str, heads: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Sequence[int] = (0,)) -> str:
    """A table, of cells that are HTML; those that begin with an exclamation mark are shown as bad."""

    def cell(i: int, text: str) -> str:
        kind = "bad" if text.startswith("!") else "text" if i in text_columns else ""
        return f"<td{f' class={kind!r}' if kind else ''}>{text.removeprefix('!')}</td>"

    head = "".join(
        f'<th scope="col"{" class=" + repr("text") if i in text_columns else ""}>{text}</th>'
        for i, text in enumerate(heads)
    )
    lines = "\n".join("<tr>" + "".join(cell(i, text) for i, text in enumerate(row)) + "</tr>" for row in rows)
    # What scrolls must be reachable by the keyboard.
    return (
        f'<div class="table" role="region" aria-label="{escape(name)}" tabindex="0"><table>\n<thead><tr>{head}</tr>'
        f"</thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )


def _list(texts: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def _ratio(raw: int, stored: int) -> str:
    return f"{raw / stored:.2f}" if stored else ""


def _bounds(variable: VariableFacts) -> str:
    if variable.bounds is None:
        return "not compressed" if variable.raw_bytes else ""
    return _interval(variable.bounds)


def _interval(bounds: tuple[float, float] | None) -> str:
    if bounds is None:
        return ""
    low, high = (f"{bound:.6g}" if bound else "0 (exact)" for bound in bounds)
    return low if low == high else f"{low} to {high}"


def _psnr(psnr: float) -> str:
    return "" if math.isnan(psnr) else "exact" if psnr == math.inf else f"{psnr:.2f}"


def _view_in_words(part: Comparison) -> str:
    view = part.view
    if view is None:
        return ""
    start, count = view.box
    if view.is_whole:
        return " Spectra are of the whole variable at this step."
    return (
        f" Slices and spectra are of the box of extents {' × '.join(map(str, count))} at "
        f"({', '.join(map(str, start))}), its middle, at this step."
    )


# -------------------------------------------------------------------------------------------------------- figures


class _Figures:
    """Draws figures, with identifiers that are unique in the page."""

    def __init__(self) -> None:
        self._matplotlib = require_matplotlib()
        self._n = 0

    def draw(
        self, title: str, caption: str, paint: Callable[[Any], None], inches: tuple[float, float] = (4.2, 3.0)
    ) -> str:
        """A figure.

        Args:
            title: what it shows, for those who cannot see it.
            caption: HTML below it.
            paint: draws into a matplotlib Figure.
        """
        self._n += 1
        own = f"figure-{self._n}"
        settings = {"svg.fonttype": "none", "svg.hashsalt": own, "font.size": 9, "axes.grid": False}
        with self._matplotlib.rc_context(settings):
            figure = self._matplotlib.figure.Figure(figsize=inches, layout="constrained")
            paint(figure)
            text = io.StringIO()
            figure.savefig(text, format="svg", dpi=200, transparent=True)
        svg = text.getvalue()
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
        svg = re.sub(r'\bid="', f'id="{own}-', svg)
        svg = re.sub(r'href="#', f'href="#{own}-', svg)
        svg = re.sub(r"url\(#", f"url(#{own}-", svg)
        view = re.search(r'viewBox="[^"]*"', svg)
        begin = f'<svg {view[0] if view else ""} role="img" aria-labelledby="{own}-title">'
        begin += f'<title id="{own}-title">{escape(title)}</title>'
        svg = begin + svg[svg.index(">") + 1 :]
        return f"<figure>{svg.strip()}<figcaption>{caption}</figcaption></figure>"


def _over_steps(figures: _Figures, variable: VariableFacts) -> Iterator[str]:
    facts, name = variable.steps, escape(variable.name)
    steps = [step.step for step in facts]

    def axes_of(figure: Any, label: str) -> Any:
        axes = figure.subplots()
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(color="#dddddd", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
        return axes

    def ratios(figure: Any) -> None:
        axes_of(figure, "ratio").plot(steps, [step.ratio for step in facts], ".-", color=_BLUE)

    all_ratios = [step.ratio for step in facts]
    title = f"Ratio of {variable.name} over steps, from {min(all_ratios):.2f} to {max(all_ratios):.2f}"
    yield figures.draw(title, f"Ratio of {name} at every step.", ratios)

    known = [(step.step, *step.value_range) for step in facts if step.value_range is not None]
    if known:
        at, low, high = (np.array(column) for column in zip(*known, strict=True))

        def ranges(figure: Any) -> None:
            axes = axes_of(figure, "value")
            axes.fill_between(at, low, high, color=_BLUE, alpha=0.2, linewidth=0)
            axes.plot(at, high, ".-", color=_BLUE, label="largest")
            axes.plot(at, low, ".--", color=_ORANGE, label="smallest")
            axes.legend(frameon=False)

        title = f"Value range of {variable.name} over steps, within {low.min():.6g} and {high.max():.6g}"
        yield figures.draw(title, f"Smallest and largest value of {name} at every step.", ranges)

    if all(step.outliers >= 0 for step in facts):

        def outliers(figure: Any) -> None:
            axes = axes_of(figure, "outliers")
            axes.plot(steps, [step.outliers for step in facts], ".-", color=_BLUE)
            axes.set_ylim(bottom=0)
            axes.yaxis.get_major_locator().set_params(integer=True)

        title = f"Outliers of {variable.name} over steps, at most {max(step.outliers for step in facts)}"
        yield figures.draw(title, f"Outliers of {name} at every step.", outliers)


def _block_map(figures: _Figures, name: str, facts: StepFacts) -> str:
    """Blocks as boxes, coloured by ratio, seen along all axes but two."""
    table = facts.table[(facts.table["count"] > 0).all(axis=1)]
    starts, counts = table["start"], table["count"]
    ndim = starts.shape[1]
    # The axes along which there are most blocks, and of these the last ones.
    cuts = [len(np.unique(starts[:, axis])) for axis in range(ndim)]
    axes_shown = sorted(sorted(range(ndim), key=lambda axis: (cuts[axis], axis))[-2:])
    lies = np.hstack([starts[:, axes_shown], counts[:, axes_shown]])
    boxes, inverse = np.unique(lies, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    stored = np.where(table["archive_bytes"] >= 0, table["archive_bytes"], table["raw_bytes"])
    raw_sums, stored_sums = (np.bincount(inverse, sizes, len(boxes)) for sizes in (table["raw_bytes"], stored))
    ratios = raw_sums / np.maximum(stored_sums, 1)
    ranks = [sorted(set(table["rank"][inverse == i].tolist()) - {-1}) for i in range(len(boxes))]
    n = len(axes_shown)

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        patches = importlib.import_module("matplotlib.patches")
        collections = importlib.import_module("matplotlib.collections")
        rectangles = [
            patches.Rectangle((box[n - 1], box[0] if n == 2 else 0), box[2 * n - 1], box[n] if n == 2 else 1)
            for box in boxes
        ]
        drawn = collections.PatchCollection(
            rectangles, edgecolor="white", linewidth=0.8, cmap="viridis", rasterized=len(boxes) > 1000
        )
        drawn.set_array(ratios)
        axes.add_collection(drawn)
        axes.autoscale_view()
        axes.margins(0)
        axes.set_xlabel(f"axis {axes_shown[-1]}")
        if n == 2:
            axes.set_ylabel(f"axis {axes_shown[0]}")
        else:
            axes.set_yticks([])
        figure.colorbar(drawn, ax=axes, label="ratio")
        if len(boxes) <= MANY_BLOCKS:
            dark = drawn.norm(ratios) < 0.6
            for box, ratio, of, is_dark in zip(rectangles, ratios, ranks, dark, strict=True):
                who = f"rank {_spans(of)}\n" if of and len(boxes) <= 16 else ""
                x, y = box.get_x() + box.get_width() / 2, box.get_y() + box.get_height() / 2
                colour = "white" if is_dark else "black"
                axes.text(x, y, f"{who}{ratio:.2f}", color=colour, ha="center", va="center", fontsize=7)

    shown = f"{len(table)} block{'' if len(table) == 1 else 's'}" if len(table) else "no blocks"
    title = f"Map of the blocks of {name} at step {facts.step}, coloured by ratio"
    if len(ratios):
        title += f", from {ratios.min():.2f} to {ratios.max():.2f}"
    behind = " Blocks that lie behind one another are taken together." if len(boxes) < len(table) else ""
    caption = f"Where the {shown} of {escape(name)} at step {facts.step} lie, and their ratios.{behind}"
    return figures.draw(title, caption, paint) if len(table) else ""


def _spans(ranks: Sequence[int]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"


def _comparison_figures(figures: _Figures, part: Comparison) -> Iterator[str]:
    if part.view is not None:
        if part.view.original.ndim == 1:
            yield from _lines(figures, part, part.view)
        else:
            yield from _slices(figures, part, part.view)
    if part.histogram is not None:
        yield _histogram(figures, part, part.histogram)
    if part.view is not None:
        yield _spectra(figures, part, part.view)


def _histogram(figures: _Figures, part: Comparison, counts: NDArray[np.int64]) -> str:
    step = part.steps[-1]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.stairs(counts / counts.sum(), np.linspace(-1, 1, len(counts) + 1), fill=True, color=_BLUE)
        axes.set_xlabel("error over the bound")
        axes.set_ylabel("share of the values")
        axes.set_xlim(-1.05, 1.05)
        axes.spines[["top", "right"]].set_visible(False)

    name = escape(part.name)
    beyond = " Values beyond the bound are not in it." if step.broken else ""
    return figures.draw(
        f"Histogram of the errors of {part.name} at step {step.step}",
        f"Errors (decoded - original) of {name} at step {step.step}, in units of the bound.{beyond}",
        paint,
    )


def _slices(figures: _Figures, part: Comparison, view: View) -> Iterator[str]:
    """The middle slice along the slowest axis: original, decoded, error."""
    planes = [values if values.ndim == 2 else values[len(values) // 2] for values in (view.original, view.decoded)]
    strides = tuple(slice(None, None, -(-n // PICTURE_VALUES)) for n in planes[0].shape)
    original, decoded = (plane[strides].astype(np.float64) for plane in planes)
    with np.errstate(over="ignore", invalid="ignore"):
        error = decoded - original
    start, count = view.box
    ndim = len(start)
    extent = (start[-1] - 0.5, start[-1] + count[-1] - 0.5, start[-2] - 0.5, start[-2] + count[-2] - 0.5)
    where = [start[axis] + count[axis] // 2 for axis in range(ndim - 2)]
    at = f", index {', '.join(map(str, where))} of the slowest ax{'is' if len(where) == 1 else 'es'}" if where else ""
    step, name = part.steps[-1].step, escape(part.name)
    coarse = max(-(-n // PICTURE_VALUES) for n in planes[0].shape)
    if coarse > 1:
        at += f", every {coarse}th value or less"
    finite = original[np.isfinite(original)]
    scale = {"vmin": float(finite.min()), "vmax": float(finite.max())} if finite.size else {}
    errors = error[np.isfinite(error)]
    largest = float(np.abs(errors).max()) if errors.size and errors.any() else 1.0
    signed = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
    field = {"cmap": "viridis", **scale}
    kinds = (("Original", original, field), ("Decoded", decoded, field), ("Error (decoded - original)", error, signed))
    for what, plane, colours in kinds:

        def paint(figure: Any, plane: NDArray[np.float64] = plane, colours: dict[str, Any] = colours) -> None:
            axes = figure.subplots()
            axes.set_facecolor("#cccccc")  # where there is no number
            drawn = axes.imshow(plane, origin="lower", interpolation="nearest", extent=extent, aspect="auto", **colours)
            axes.set_xlabel(f"axis {ndim - 1}")
            axes.set_ylabel(f"axis {ndim - 2}")
            figure.colorbar(drawn, ax=axes)

        title = f"{what}: slice of {part.name} at step {step}"
        yield figures.draw(title, f"{what}: {name} at step {step}{at}.", paint)


def _lines(figures: _Figures, part: Comparison, view: View) -> Iterator[str]:
    n = len(view.original)
    first = max((n - LINE_VALUES) // 2, 0)
    own = slice(first, min(first + LINE_VALUES, n))
    original, decoded = (values[own].astype(np.float64) for values in (view.original, view.decoded))
    at = np.arange(own.start, own.stop) + view.box[0][0]
    step, name = part.steps[-1].step, escape(part.name)
    which = "" if len(at) == n and view.is_whole else f", the {len(at)} values in the middle"

    def lines(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(at, original, color=_BLUE, linewidth=1.2, label="original")
        axes.plot(at, decoded, "--", color=_ORANGE, linewidth=0.8, label="decoded")
        axes.set_xlabel("axis 0")
        axes.legend(frameon=False)

    def errors(figure: Any) -> None:
        axes = figure.subplots()
        with np.errstate(over="ignore", invalid="ignore"):
            axes.plot(at, decoded - original, color=_RED, linewidth=0.7)
        axes.set_xlabel("axis 0")
        axes.set_ylabel("decoded - original")

    title = f"{part.name} at step {step}, original and decoded"
    yield figures.draw(title, f"{name} at step {step}, original and decoded{which}.", lines)
    yield figures.draw(f"Error of {part.name} at step {step}", f"Error of {name} at step {step}{which}.", errors)


# -------------------------------------------------------------------------------------------------------- spectra


class Spectrum(NamedTuple):
    """Power by wave number.

    Attributes:
        waves: per length of the longest axis.
        power: the mean of |amplitude|^2 over the waves of (about) this number; the amplitudes of a field are those of
            its Fourier series.
    """

    waves: NDArray[np.float64]
    power: NDArray[np.float64]


def spectrum(field: NDArray[Any]) -> Spectrum:
    """The power spectrum of a field's deviations from its mean: of several dimensions, averaged over directions.

    Args:
        field: of one to three dimensions, with finite values.
    """
    values = field.reshape([n for n in field.shape if n > 1] or [1]).astype(np.float64)
    longest = max(values.shape)
    if longest < 2:
        return Spectrum(np.empty(0), np.empty(0))
    values -= values.mean()
    # The power of the amplitudes, in place where that is possible: boxes are large.
    amplitudes = np.fft.rfftn(values, norm="forward")
    power = amplitudes.real**2
    power += amplitudes.imag**2
    del amplitudes
    waves = [np.fft.fftfreq(n) * longest for n in values.shape]
    waves[-1] = np.fft.rfftfreq(values.shape[-1]) * longest
    twins = np.where((waves[-1] == 0) | (2 * waves[-1] == longest), 1.0, 2.0)  # those that a real transform leaves out
    shells = longest // 2 + 1
    sums, numbers = np.zeros(shells), np.zeros(shells)
    rest = sum(each**2 for each in np.ix_(*waves[1:])) if len(waves) > 1 else None
    planes = zip(waves[0], power, strict=True) if rest is not None else iter([(0.0, power)])
    for wave, plane in planes:
        number = np.rint(np.sqrt(wave**2 + rest) if rest is not None else waves[0]).astype(np.int64)
        inside = number < shells
        weights = np.broadcast_to(twins, plane.shape)[inside]
        sums += np.bincount(number[inside], weights * plane[inside], shells)
        numbers += np.bincount(number[inside], weights, shells)
    found = np.flatnonzero(numbers[1:]) + 1
    edges = np.unique(np.geomspace(1, shells, min(SPECTRUM_POINTS, shells)).round().astype(np.int64))
    group = np.searchsorted(edges, found, side="right") - 1
    total, number_of = (np.bincount(group, each[found]) for each in (sums, numbers))
    middle = np.bincount(group, numbers[found] * found)
    has = number_of > 0
    return Spectrum(middle[has] / number_of[has], total[has] / number_of[has])


def _spectra(figures: _Figures, part: Comparison, view: View) -> str:
    step, name = part.steps[-1].step, escape(part.name)
    n_special = int(np.count_nonzero(~(np.isfinite(view.original) & np.isfinite(view.decoded))))
    if n_special:
        return (
            f"<figure><figcaption>No power spectrum of {name}: {n_special} of its values there are not finite."
            "</figcaption></figure>"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        difference = view.decoded.astype(np.float64) - view.original
        original, decoded, error = (spectrum(values) for values in (view.original, view.decoded, difference))
    shown = original.power > 0
    if not shown.any() or not np.isfinite(original.power).all():
        return (
            f"<figure><figcaption>No power spectrum of {name}: its values there are all the same.</figcaption></figure>"
        )
    waves = original.waves[shown]
    change = decoded.power[shown] / original.power[shown] - 1

    def paint(figure: Any) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        above.loglog(waves, original.power[shown], color=_BLUE, linewidth=1.4, label="original")
        above.loglog(waves, decoded.power[shown], "--", color=_ORANGE, linewidth=1.0, label="decoded")
        if error.power.any():
            above.loglog(waves, error.power[shown], ":", color=_GREY, linewidth=1.0, label="error")
        above.set_ylabel("power")
        above.legend(frameon=False)
        below.axhline(0, color=_GREY, linewidth=0.6)
        below.semilogx(waves, change, color=_RED, linewidth=1.0)
        below.set_ylabel("ratio - 1")
        below.set_xlabel("waves per length of the longest axis")
        _set_axis_of_change(below, change)
        figure.align_ylabels()

    if np.abs(change).max() > 0:
        worst = int(np.abs(change).argmax())
        told = f"The ratio differs from 1 by at most {abs(change[worst]):.2g}, at wave number {waves[worst]:.4g}."
    else:
        told = "They are the same."
    averaged = "" if view.original.ndim == 1 else ", averaged over directions"
    caption = (
        f"Power spectra of {name} at step {step}{averaged}; below, the ratio of decoded to original less 1. {told}"
    )
    title = f"Power spectra of {part.name} at step {step}, original and decoded, and their ratio. {told}"
    return figures.draw(title, caption, paint, (4.2, 4.0))


def _set_axis_of_change(axes: Any, change: NDArray[np.float64]) -> None:
    """Chooses an axis on which small changes of long waves can be seen, though short ones may be all noise."""
    sizes = np.abs(change)
    largest = float(sizes.max())
    if largest == 0:
        axes.set_ylim(-1e-6, 1e-6)
        return
    typical = float(np.quantile(sizes[sizes > 0], 0.25))
    if largest <= 30 * typical:
        axes.set_ylim(-1.15 * largest, 1.15 * largest)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
        return
    linear = 10.0 ** math.floor(math.log10(typical))
    top = 10.0 ** math.ceil(math.log10(largest) + 0.01)
    axes.set_yscale("symlog", linthresh=linear)
    axes.set_ylim(-top if (change < 0).any() else -linear, top if (change > 0).any() else linear)
    decades = round(math.log10(top / linear))
    apart = max(-(-decades // 2), 1)
    levels = [linear * 10.0**i for i in range(apart, decades + 1, apart)]
    axes.set_yticks([*(-level for level in reversed(levels)), 0.0, *levels])
    axes.minorticks_off()
