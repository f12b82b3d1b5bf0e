"""The figures of `cusz report`, drawn by matplotlib as SVG for the page."""

from __future__ import annotations

import importlib
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cusz_core.command_line import size
from cusz_core.errors import UnsupportedError

from .facts import Comparison, Plane, StepFacts, VariableFacts, View

MANY_BLOCKS = 8  # with more along an axis, blocks are not labelled in a map
LINE_VALUES = 2000  # of a one-dimensional variable, drawn as a line
PICTURE_VALUES = 600  # along each axis of a picture
SPECTRUM_POINTS = 400
DRAWN = 1e300  # matplotlib fails where the range of what it draws overflows; larger values are drawn as this
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


class Figures:
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
            figure = self._matplotlib.figure.Figure(inches, dpi=200, facecolor="none", layout="constrained")
            paint(figure)
            text = io.StringIO()
            # Not by savefig, which first draws everything once more to find the layout.
            self._matplotlib.backends.backend_svg.FigureCanvasSVG(figure).print_svg(text)
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


def over_steps(figures: Figures, variable: VariableFacts) -> Iterator[str]:
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

    if all(step.outliers >= 0 for step in facts) and any(step.outliers for step in facts):

        def outliers(figure: Any) -> None:
            axes = axes_of(figure, "outliers")
            axes.plot(steps, [step.outliers for step in facts], ".-", color=_BLUE)
            axes.set_ylim(bottom=0)
            axes.yaxis.get_major_locator().set_params(integer=True)

        title = f"Outliers of {variable.name} over steps, at most {max(step.outliers for step in facts)}"
        yield figures.draw(title, f"Outliers of {name} at every step.", outliers)


def block_map(figures: Figures, name: str, facts: StepFacts) -> str:
    """Blocks as boxes, coloured by ratio, seen along all axes but two."""
    table = facts.table[(facts.table["count"] > 0).all(axis=1)]
    starts, counts = table["start"], table["count"]
    if not facts.is_placed:
        starts = np.arange(len(table))[:, np.newaxis]
        counts = np.ones_like(starts)
    ndim = starts.shape[1]
    # The two axes with the most blocks; of axes with the same number, the last ones.
    cuts = [len(np.unique(starts[:, axis])) for axis in range(ndim)]
    axes_shown = sorted(sorted(range(ndim), key=lambda axis: (cuts[axis], axis))[-2:])
    lies = np.hstack([starts[:, axes_shown], counts[:, axes_shown]])
    boxes, inverse = np.unique(lies, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    stored = np.where(table["archive_bytes"] >= 0, table["archive_bytes"], table["raw_bytes"])
    raw_sums, stored_sums = (np.bincount(inverse, sizes, len(boxes)) for sizes in (table["raw_bytes"], stored))
    ratios = raw_sums / np.maximum(stored_sums, 1)
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
        axes.set_xlabel(f"axis {axes_shown[-1]}" if facts.is_placed else "block")
        if n == 2:
            axes.set_ylabel(f"axis {axes_shown[0]}")
        else:
            axes.set_yticks([])
        figure.colorbar(drawn, ax=axes, label="ratio")
        if max(len(np.unique(boxes[:, axis])) for axis in range(n)) <= MANY_BLOCKS:
            dark = drawn.norm(ratios) < 0.6
            ranks = [sorted(set(table["rank"][inverse == i].tolist()) - {-1}) for i in range(len(boxes))]
            for box, ratio, of, is_dark in zip(rectangles, ratios, ranks, dark, strict=True):
                who = f"rank {_spans(of)}\n" if of else ""
                x, y = box.get_x() + box.get_width() / 2, box.get_y() + box.get_height() / 2
                colour = "white" if is_dark else "black"
                axes.text(x, y, f"{who}{ratio:.2f}", color=colour, ha="center", va="center", fontsize=7)

    title = f"Map of the blocks of {name} at step {facts.step}, coloured by ratio"
    if len(ratios):
        title += f", from {ratios.min():.2f} to {ratios.max():.2f}"
    is_projected = len(boxes) < len(np.unique(np.hstack([starts, counts]), axis=0))
    behind = " Blocks that lie behind one another are taken together." if is_projected else ""
    caption = f"Where the {facts.n_blocks} blocks of {escape(name)} at step {facts.step} lie, and their ratios.{behind}"
    if not facts.is_placed:
        caption = f"Ratios of the {facts.n_blocks} blocks of {escape(name)} at step {facts.step}."
    return figures.draw(title, caption, paint) if len(table) else ""


def _spans(ranks: Sequence[int]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"


def comparison_figures(figures: Figures, part: Comparison) -> Iterator[str]:
    if part.plane is not None:
        yield from plane_figures(figures, part.plane)
    elif part.view is not None:
        if part.view.original.ndim == 1:
            yield from _lines(figures, part, part.view)
        else:
            yield from _slices(figures, part, part.view)
    if part.histogram is not None:
        yield _histogram(figures, part, part.histogram)
    if part.view is not None:
        yield _spectra(figures, part, part.view)


def _histogram(figures: Figures, part: Comparison, counts: NDArray[np.int64]) -> str:
    step = part.steps[-1]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.stairs(counts / counts.sum(), np.linspace(-1, 1, len(counts) + 1), fill=True, color=_BLUE)
        axes.set_xlabel("error over the bound")
        axes.set_ylabel("share of the values")
        axes.set_xlim(-1.05, 1.05)
        axes.set_xticks([-1, -0.5, 0, 0.5, 1])
        axes.spines[["top", "right"]].set_visible(False)

    name = escape(part.name)
    beyond = " Values beyond the bound are not in it." if step.broken else ""
    return figures.draw(
        f"Histogram of the errors of {part.name} at step {step.step}",
        f"Errors (decoded - original) of {name} at step {step.step}, in units of the bound.{beyond}",
        paint,
    )


def _slices(figures: Figures, part: Comparison, view: View) -> Iterator[str]:
    """The middle slice along the slowest axis: original, decoded, error."""
    planes = [values if values.ndim == 2 else values[len(values) // 2] for values in (view.original, view.decoded)]
    strides = tuple(slice(None, None, -(-n // PICTURE_VALUES)) for n in planes[0].shape)
    original, decoded = (plane[strides].astype(np.float64) for plane in planes)
    start, count = view.box
    ndim = len(start)
    extent = (start[-1] - 0.5, start[-1] + count[-1] - 0.5, start[-2] - 0.5, start[-2] + count[-2] - 0.5)
    where = [start[axis] + count[axis] // 2 for axis in range(ndim - 2)]
    at = f", at {', '.join(f'{i} of axis {axis}' for axis, i in enumerate(where))}" if where else ""
    step, name = part.steps[-1].step, escape(part.name)
    coarse = max(-(-n // PICTURE_VALUES) for n in planes[0].shape)
    if coarse > 1:
        at += f", every {coarse}th value or less"
    for what, plane, colours in _beside_each_other(original, decoded):

        def paint(figure: Any, plane: NDArray[np.float64] = plane, colours: dict[str, Any] = colours) -> None:
            axes = figure.subplots()
            axes.set_facecolor("#cccccc")  # where there is no number
            drawn = axes.imshow(plane, origin="lower", interpolation="nearest", extent=extent, aspect="auto", **colours)
            axes.set_xlabel(f"axis {ndim - 1}")
            axes.set_ylabel(f"axis {ndim - 2}")
            figure.colorbar(drawn, ax=axes)

        title = f"{what}: slice of {part.name} at step {step}"
        yield figures.draw(title, f"{what}: {name} at step {step}{at}.", paint)


def plane_figures(figures: Figures, plane: Plane) -> Iterator[str]:
    """A plane of a level: only decoded, or, if there is an original, that, decoded, and the error."""
    (rows, below), (columns, left) = (_edges(along, 2**plane.level) for along in plane.coordinates)
    name, n_cut = escape(plane.name), len(plane.cuts)
    at = "".join(f", at {i} of axis {axis}" for axis, i in enumerate(plane.cuts))
    at += f": level {plane.level}, {' × '.join(map(str, plane.decoded.shape))} values"
    if plane.original is None:
        alone = _drawable(plane.decoded)
        kinds = [(f"Slice of {plane.name} at step {plane.step}", "", alone, _colours(alone))]
        at += f", for which {size(plane.read_bytes)} of {size(plane.stored_bytes)} were read"
    else:
        kinds = [
            (f"{what}: slice of {plane.name} at step {plane.step}", f"{what}: ", values, colours)
            for what, values, colours in _beside_each_other(plane.original, plane.decoded)
        ]
    for title, what, values, colours in kinds:

        def paint(figure: Any, values: NDArray[np.float64] = values, colours: dict[str, Any] = colours) -> None:
            axes = figure.subplots()
            axes.set_facecolor("#cccccc")  # where there is no number
            # Values are not evenly spaced where blocks do not begin at multiples of the level's step.
            cells = np.insert(np.insert(values, below, np.nan, axis=0), left, np.nan, axis=1)
            drawn = axes.pcolormesh(columns, rows, np.ma.masked_invalid(cells), rasterized=True, **colours)
            axes.set_xlabel(f"axis {n_cut + 1}")
            axes.set_ylabel(f"axis {n_cut}")
            figure.colorbar(drawn, ax=axes)

        yield figures.draw(title, f"{what}{name} at step {plane.step}{at}.", paint)


def _edges(along: NDArray[np.int64], step: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The edges of the cells around points, and the points after gaps where no block has values: those further than
    `step` from the point before. Each gap has an empty cell of its own."""
    gaps = np.flatnonzero(np.diff(along) > step) + 1
    between = (along[:-1] + along[1:]) / 2
    between[gaps - 1] = along[gaps] - 0.5
    inner = np.insert(between, gaps - 1, along[gaps - 1] + step / 2)
    last = along[-1] + (min(along[-1] - along[-2], step) / 2 if len(along) > 1 else 0.5)
    return np.array([along[0] - 0.5, *inner, last]), gaps


def _beside_each_other(
    original: NDArray[np.float64], decoded: NDArray[np.float64]
) -> Iterator[tuple[str, NDArray[np.float64], dict[str, Any]]]:
    """Original, decoded and error: what each is, its values, and their colours."""
    original, decoded, error = _with_error(original, decoded)
    field = _colours(original)
    yield "Original", original, field
    yield "Decoded", decoded, field
    yield "Error (decoded - original)", error, _colours_of_error(error)


def _with_error(original: NDArray[np.float64], decoded: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    with np.errstate(over="ignore", invalid="ignore"):
        error = decoded - original
    return _drawable(original), _drawable(decoded), _drawable(error)


def _drawable(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), np.clip(values, -DRAWN, DRAWN), values)


def _colours(values: NDArray[np.float64]) -> dict[str, Any]:
    finite = values[np.isfinite(values)]
    return {"cmap": "viridis", **({"vmin": float(finite.min()), "vmax": float(finite.max())} if finite.size else {})}


def _colours_of_error(error: NDArray[np.float64]) -> dict[str, Any]:
    errors = error[np.isfinite(error)]
    largest = float(np.abs(errors).max()) if errors.size and errors.any() else 1.0
    return {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}


def _lines(figures: Figures, part: Comparison, view: View) -> Iterator[str]:
    n = len(view.original)
    first = max((n - LINE_VALUES) // 2, 0)
    own = slice(first, min(first + LINE_VALUES, n))
    original, decoded, error = _with_error(view.original[own].astype(np.float64), view.decoded[own].astype(np.float64))
    at = np.arange(own.start, own.stop) + view.box[0][0]
    step, name = part.steps[-1].step, escape(part.name)
    which = "" if len(at) == n and view.is_whole else f", the {len(at)} values in the middle"

    def lines(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(at, original, color=_BLUE, linewidth=1.2, label="original")
        axes.plot(at, decoded, "--", color=_ORANGE, linewidth=0.8, label="decoded")
        axes.set_xlabel("axis 0")
        axes.locator_params(axis="x", nbins=5)
        axes.legend(frameon=False)

    def errors(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(at, error, color=_RED, linewidth=0.7)
        axes.set_xlabel("axis 0")
        axes.locator_params(axis="x", nbins=5)
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
    """The power spectrum of a field's deviations from its mean; in several dimensions, averaged over directions.

    Args:
        field: of one to three dimensions, with finite values.
    """
    values = field.reshape([n for n in field.shape if n > 1] or [1]).astype(np.float64)
    longest = max(values.shape)
    if longest < 2:
        return Spectrum(np.empty(0), np.empty(0))
    values -= values.mean()
    # Computes the power in place where possible, because boxes are large.
    amplitudes = np.fft.rfftn(values, norm="forward")
    power = amplitudes.real**2
    power += amplitudes.imag**2
    del amplitudes
    waves = [np.fft.fftfreq(n) * longest for n in values.shape]
    waves[-1] = np.fft.rfftfreq(values.shape[-1]) * longest
    twins = np.where((waves[-1] == 0) | (2 * waves[-1] == longest), 1.0, 2.0)  # with those that a real transform omits
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


def _spectra(figures: Figures, part: Comparison, view: View) -> str:
    step, name = part.steps[-1].step, escape(part.name)
    is_number = np.isfinite(view.original) & np.isfinite(view.decoded)
    n_special = is_number.size - int(np.count_nonzero(is_number))

    def of(values: NDArray[Any]) -> Spectrum:
        if 0 < n_special < values.size:
            values = np.where(is_number, values, values.mean(where=is_number, dtype=np.float64))
        return spectrum(values)

    with np.errstate(over="ignore", invalid="ignore"):
        difference = view.decoded.astype(np.float64) - view.original
        original, decoded, error = (of(values) for values in (view.original, view.decoded, difference))
    shown = original.power > 0
    if not shown.any() or not np.isfinite([original.power, decoded.power]).all():
        return f"<figure><figcaption>{name} has no power spectrum there that could be drawn.</figcaption></figure>"
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
        told = "The spectra are the same."
    if n_special:
        told += f" {n_special} values that are not finite or fill were replaced by the mean of the others."
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
    low, high = math.floor(math.log10(typical)), math.ceil(math.log10(largest) + 0.01)
    axes.set_yscale("symlog", linthresh=10.0**low)
    axes.set_ylim(-(10.0 ** (high if change.min() < 0 else low)), 10.0 ** (high if change.max() > 0 else low))
    levels = [10.0**i for i in range(high, low, -max(-(-(high - low) // 2), 1))]
    axes.set_yticks([*(-level for level in levels), 0.0, *levels])
    axes.minorticks_off()
