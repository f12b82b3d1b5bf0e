"""Figures of the results, by matplotlib.

Tools differ in colour (first those of Okabe and Ito, which colour-blind readers can tell apart) and in marker.
"""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from typing import Any

from runner import Document, Row, geometric_mean

from cusz_core.errors import UnsupportedError

from .report import Results
from .tools import OURS

_COLOURS = ["#000000", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#8A8A8A", "#B8A800"]
_COLOURS += ["#6A3D9A", "#7B3F00"]
_MARKERS = "osDv^P*X<>h"
_COLUMNS = 4


def require_matplotlib() -> Any:
    """matplotlib.pyplot, drawing only into files. Raises UnsupportedError if it is not installed."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("svg")
        # The same numbers give the same file; text is kept as text.
        matplotlib.rcParams.update({"svg.hashsalt": "cusz", "svg.fonttype": "none", "font.size": 8})
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise UnsupportedError(f"figures need matplotlib ({error}): pip install 'cusz[plot]'") from None


def draw(document: Document, folder: Path) -> list[Path]:
    """Writes rate_distortion.svg and throughput.svg."""
    plt = require_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(document)
    return [
        _save(plt, _rate_distortion(plt, results), folder / "rate_distortion.svg"),
        _save(plt, _throughput(plt, results), folder / "throughput.svg"),
    ]


def draw_throughput(document: Document, path: Path) -> None:
    plt = require_matplotlib()
    _save(plt, _throughput(plt, Results(document)), path)


def _save(plt: Any, figure: Any, path: Path) -> Path:
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    # Hundredths of a point are enough, and indentation is useless: this halves the size.
    short = re.sub(r"(\.\d\d)\d+", r"\1", path.read_text())
    path.write_text("\n".join(line.strip() for line in short.splitlines()) + "\n")
    return path


def _style(results: Results, tool: str) -> dict[str, Any]:
    i = results.tools.index(tool)
    return {
        "color": _COLOURS[i % len(_COLOURS)],
        "marker": _MARKERS[i % len(_MARKERS)],
        "linewidth": 2 if tool in OURS else 1,
        "zorder": 3 if tool in OURS else 2,
        "markersize": 5,
        "label": tool,
        "clip_on": False,
    }


def _rate_distortion(plt: Any, results: Results) -> Any:
    """A panel for each field: PSNR over bits per value."""
    names = list(dict.fromkeys(case[:2] for case in results.cases))
    columns = min(_COLUMNS, max(len(names), 1))
    lines = max(math.ceil(len(names) / columns), 1)
    figure, panels = plt.subplots(
        lines, columns, figsize=(2.6 * columns + 0.4, 2.3 * lines + 0.9), squeeze=False, layout="constrained"
    )
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    for panel, (dataset, dtype) in zip(panels.flat, names, strict=False):
        cases = [case for case in results.cases if case[:2] == (dataset, dtype)]
        for tool in results.tools:
            rows = [row for case in cases if _drawable(row := results.get(case, tool, results.threads[0]))]
            points = sorted((row["bit_rate"], row["psnr"]) for row in rows if row is not None)
            if points:
                panel.plot(*zip(*points, strict=True), **_style(results, tool))
        panel.set_title(dataset, fontsize=8)
        panel.set_xscale("log", base=2)
        panel.minorticks_off()
        panel.xaxis.set_major_formatter("{x:g}")
        panel.grid(True, which="major", linewidth=0.3)
        panel.set_xlabel("bits per value")
    for panel in panels[:, 0]:
        panel.set_ylabel("PSNR, dB")
    _legend(plt, figure, results)
    return figure


def _drawable(row: Row | None) -> bool:
    """False for points that are not numbers or far from any bound (a lost fill value): they would hide the others."""
    return row is not None and math.isfinite(row["psnr"]) and row["max_error_over_eb"] < 100


def _throughput(plt: Any, results: Results) -> Any:
    """Speed over ratio, one thread: a small mark for every field and bound, a large one for their geometric mean.

    The means are over the cases for which all tools have results, except tools that fail on more than a quarter.
    """
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), sharex=True, sharey=True, squeeze=False, layout="constrained")
    threads = results.threads[0]
    cases_of = {t: [case for case in results.cases if results.get(case, t, threads)] for t in results.tools}
    able = [tool for tool, cases in cases_of.items() if 4 * len(cases) >= 3 * len(results.cases)]
    common = [case for case in results.cases if all(case in cases_of[tool] for tool in able)]
    for panel, what in zip(panels.flat, ("compress", "decompress"), strict=True):
        for tool in results.tools:
            style = _style(results, tool) | {"linestyle": "none"}
            rows = {case: row for case in results.cases if (row := results.get(case, tool, threads)) is not None}
            points = [[row["ratio"] for row in rows.values()], [row[f"{what}_mbps"] for row in rows.values()]]
            panel.plot(*points, **style | {"markersize": 2, "alpha": 0.45})
            if tool in able and common:
                mean = [geometric_mean(rows[case][key] for case in common) for key in ("ratio", f"{what}_mbps")]
                panel.plot(*mean, **style | {"markersize": 10, "markeredgecolor": "white", "zorder": 4})
        panel.set(xscale="log", yscale="log", xlabel="ratio", title=f"{what}, one thread")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.grid(True, which="major", linewidth=0.3)
    panels.flat[0].set_ylabel("MB/s")
    _legend(plt, figure, results)
    return figure


def _legend(plt: Any, figure: Any, results: Results) -> None:
    handles = [plt.Line2D([], [], **_style(results, tool)) for tool in results.tools]
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
