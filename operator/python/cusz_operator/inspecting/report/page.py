"""The HTML of `cusz report`: one self-contained page, with figures as inline SVG."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import cusz_core
from cusz_core.command_line import size

from .facts import Comparison, Page, StepComparison, VariableFacts
from .figures import Figures, block_map, comparison_figures, over_steps, plane_figures

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
td:first-child { white-space: normal; min-width: 6rem; }
td.bad { color: #b00020; font-weight: 600; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
figure { margin: 0; max-width: 30rem; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: .875rem; color: #444; }
summary { cursor: pointer; }
@media (max-width: 24rem) { dl { grid-template-columns: 7rem 1fr; gap: .15rem .5rem; } }
@media print { body { max-width: none; padding: 0; font-size: 10pt; } .table { overflow: visible; }
  .figures { grid-template-columns: repeat(3, 1fr); } h2, h3 { break-after: avoid; } a { color: inherit; } }
"""


def html(page: Page) -> str:
    """The page as one self-contained text.

    Raises:
        UnsupportedError: matplotlib is not installed.
    """
    title = f"cusz report: {page.path}"
    body = [f"<h1>Report on {escape(page.path)}</h1>", *_verdict(page), _head(page)]
    if page.notes:
        body.append(f'<div class="notes"><strong>Notes</strong>{_list(page.notes)}</div>')
    body += ["<h2>Variables</h2>", _variables(page)]
    if page.original is not None:
        body += ["<h2>Against the original</h2>", _comparisons(page)]
    figures = Figures()
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
    if page.kept:
        yield f'<div class="kept">{page.kept}</div>'
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
        counts = [str(len(variable.steps)), str(sum(step.n_blocks for step in variable.steps))]
        raw, stored = variable.raw_bytes, variable.stored_bytes
        sizes = [size(raw), size(stored), _ratio(raw, stored)] if raw > 0 else [""] * 3
        outliers = str(variable.outliers) if variable.is_compressed and variable.outliers >= 0 else ""
        what = [link, escape(variable.type), escape(variable.shape)]
        rows.append([*what, *counts, *sizes, _bounds(variable), outliers])
    heads = ("variable", "type", "shape", "steps", "blocks", "raw", "stored", "ratio", "bound in force", "outliers")
    told = "<p>Sizes, blocks and outliers: of all steps. Outliers: values stored verbatim, and codes out of range.</p>"
    return _table("Variables", heads, rows, text_columns=(0, 1, 2)) + told


def _comparisons(page: Page) -> str:
    rows = []
    for variable in page.variables:
        for part in variable.comparisons:
            broken = sum(step.broken for step in part.steps)
            differing = sum(step.differing for step in part.steps)
            is_bound = variable.is_compressed
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


def _section(figures: Figures, number: int, variable: VariableFacts) -> Iterator[str]:
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
        shown += list(over_steps(figures, variable))
    if facts[-1].n_blocks > 1:
        shown.append(block_map(figures, variable.name, facts[-1]))
    for plane in variable.planes:
        shown += list(plane_figures(figures, plane))
    if shown:
        yield f'<div class="figures">{"".join(shown)}</div>'
    for part in variable.comparisons:
        drawn = list(comparison_figures(figures, part))
        yield f"<h3>{escape(part.name)} against the original</h3>"
        last = part.steps[-1]
        yield (
            f"<p>Step {last.step}: largest error {last.max_error:.6g}, {last.over_bound:.6f} of the bound; PSNR "
            f"{_psnr(last.psnr)}{' dB' if math.isfinite(last.psnr) else ''}.{_effects_in_words(last)}"
            f"{_view_in_words(part)}</p>"
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
    """A table of HTML cells; those that begin with an exclamation mark are shown as bad."""

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
        relative = sorted({step.relative for step in variable.steps if step.relative is not None})
        if relative:
            return f"{' to '.join(f'{eb:.6g}' for eb in dict.fromkeys((relative[0], relative[-1])))} of every value"
        return "not compressed" if variable.raw_bytes else ""
    return _interval(variable.bounds)


def _interval(bounds: tuple[float, float] | None) -> str:
    if bounds is None:
        return ""
    low, high = (f"{bound:.6g}" if bound else "0 (exact)" for bound in bounds)
    return low if low == high else f"{low} to {high}"


def _psnr(psnr: float) -> str:
    return "" if math.isnan(psnr) else "exact" if psnr == math.inf else f"{psnr:.2f}"


def _effects_in_words(found: StepComparison) -> str:
    return f" Of the values that are not 0, {escape(str(found.effects))}." if found.effects is not None else ""


def _view_in_words(part: Comparison) -> str:
    view = part.view
    if view is None:
        return ""
    start, count = view.box
    if view.is_whole:
        return " Spectra are of the whole variable at this step."
    slices = "Slices are of a coarser level, and spectra" if part.plane is not None else "Slices and spectra are"
    return (
        f" {slices} of the box of extents {' × '.join(map(str, count))} at "
        f"({', '.join(map(str, start))}), its middle, at this step."
    )
