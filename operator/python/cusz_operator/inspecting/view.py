"""Pictures of a variable: a plane, or a mean along axes, from the coarsest level that has enough values."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cusz_core import embedding
from cusz_core.errors import ParameterError, UnsupportedError

from ..reading.levels import VariableLevel
from ..reading.steps import ReaderStep

#: Colours of increasing lightness, from the smallest value to the largest; those between are interpolated.
_COLOURS = np.array(
    [
        *[(68, 1, 84), (70, 50, 127), (54, 92, 141), (39, 127, 142)],
        *[(31, 161, 135), (74, 194, 109), (159, 218, 58), (253, 231, 37)],
    ],
    np.float64,
)
_NO_VALUE = (128, 128, 128)
_RAMP = " .:-=+*#%@"  # where there are no colours
_NAMES = "zyx"  # of the last three axes


@dataclasses.dataclass(frozen=True)
class Picture:
    """A plane of values of a variable.

    Attributes:
        values: float64, of shape (rows, columns); NaN where there is no value, or one far outside the range that a
            Writer recorded for values that are finite and not fill.
        level: the one that they belong to.
        levels: how many levels the variable has.
        cuts: for each axis that is cut, its name and the index.
        means: names of the axes along which the values are means.
    """

    values: NDArray[np.float64]
    level: VariableLevel
    levels: int
    cuts: dict[str, int]
    means: tuple[str, ...]

    def limits(self) -> tuple[float, float] | None:
        """The smallest and the largest finite value; None if there is none."""
        finite = self.values[np.isfinite(self.values)]
        return (float(finite.min()), float(finite.max())) if finite.size else None

    def scaled(self) -> NDArray[np.float64]:
        """The values from 0 to 1, NaN where there is none; infinities are at the ends."""
        limits = self.limits()
        if limits is None:
            return np.full(self.values.shape, np.nan)
        size, scale = embedding.scaled_range(*limits)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (self.values * scale - limits[0] * scale) / (size or 1)
        return np.clip(scaled, 0, 1)


def axis_names(ndim: int) -> list[str]:
    """Names of the axes of an array: x for the last one, y and z before it, and numbers for the others."""
    return [*map(str, range(ndim - len(_NAMES))), *_NAMES[max(len(_NAMES) - ndim, 0) :]]


def picture_of(
    step: ReaderStep,
    name: str,
    cuts: Mapping[str, float | int],
    means: tuple[str, ...],
    width: int,
    height: int,
    axes: Sequence[str] | None = None,
) -> Picture:
    """A picture of an array along its last two axes that are neither cut nor averaged; others are cut in the middle.

    Args:
        step: one that has it.
        name: of the variable.
        cuts: where to cut, by name or number of the axis: an index, or, as a float, a fraction of the extent.
        means: names or numbers of axes along which the mean is taken.
        width, height: pixels available. The level is the coarsest one that has as many values along one of the two
            axes.
        axes: their names, if they have some; those of `axis_names` stand for them, too, unless another axis has
            that name.

    Raises:
        ParameterError: there is no such variable or axis, a cut is outside, or too few axes are left.
        UnsupportedError: it is one value or text, or has no values at this step.
        CuszError: as for `ReaderStep.read`.
    """
    shape = step.shape(name)
    if not shape or step.dtype(name).hasobject:
        raise UnsupportedError(f"variable {name!r} is one value, or text: there is nothing to draw")
    if 0 in shape:
        raise UnsupportedError(f"variable {name!r} has no values at step {step.index}")
    usual = axis_names(len(shape))
    names = usual if axes is None else list(axes)
    named = dict(zip(map(str, range(len(shape))), names, strict=True)) | dict(zip(usual, names, strict=True))
    named |= {axis: axis for axis in names}
    for axis in (*cuts, *means):
        if axis not in named:
            raise ParameterError(f"axis is {axis!r}; variable {name!r} has the axes {', '.join(names)}")
    cut_at = {named[axis]: at for axis, at in cuts.items()}
    averaged = tuple(dict.fromkeys(named[axis] for axis in means))
    if both := sorted(cut_at.keys() & set(averaged)):
        raise ParameterError(f"axis {both[0]} is both cut and averaged")
    free = [axis for axis in names if axis not in cut_at and axis not in averaged]
    cut_at |= dict.fromkeys(free[:-2], 0.5)
    free = free[-2:]
    if not free:
        raise ParameterError(f"no axis of variable {name!r} is left to draw")
    indices = {axis: _index(axis, at, shape[names.index(axis)]) for axis, at in cut_at.items()}
    shown = [names.index(axis) for axis in free]
    wanted = dict(zip(reversed(shown), (width, height), strict=False))  # columns, then rows
    level, n_levels = _level_for(step, name, wanted), step.n_levels(name)
    nearest = {axis: int(np.argmin(abs(level.coordinates[names.index(axis)] - at))) for axis, at in indices.items()}
    start = [nearest.get(axis, 0) for axis in names]
    count = [1 if axis in nearest else n for axis, n in zip(names, level.shape, strict=True)]
    found = step.read(name, start, count, level=level.number)
    with np.errstate(over="ignore"):
        values = (abs(found) if found.dtype.kind == "c" else found).astype(np.float64)
    values[_are_beyond(step, name, values)] = np.nan
    if found.dtype.kind in "biu":  # these types have no NaN, and no coarser levels
        values[~step.coverage(name, start, count)] = np.nan
    if averaged:
        values, scale = _with_room(values)
        with np.errstate(invalid="ignore"):
            values = values.mean(axis=tuple(map(names.index, averaged)), keepdims=True) / scale
    told = {axis: int(level.coordinates[names.index(axis)][at]) for axis, at in nearest.items()}
    plane = values.reshape([level.shape[axis] for axis in shown])
    return Picture(np.atleast_2d(plane), level, n_levels, told, averaged)


def _index(axis: str, at: float | int, extent: int) -> int:
    if isinstance(at, float):
        if not 0 <= at <= 1:
            raise ParameterError(f"{axis} is cut at {at}; a fraction is from 0 to 1, an index has no point")
        return min(int(at * extent), extent - 1)
    if not 0 <= at < extent:
        raise ParameterError(f"{axis} is cut at {at}; its indices are 0 to {extent - 1}")
    return at


def _are_beyond(step: ReaderStep, name: str, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which values are fill, as far as that is known without all archives: those that are further outside the recorded
    range than twice the bound."""
    kept = step.value_range(name)
    if kept is None or not step._blocks(name).has_table:
        return np.zeros(values.shape, np.bool_)
    low, high = kept
    bounds = step.blocks(name)["eb_abs"]  # NaN: relative to every value, so at most the largest of them
    room = max(abs(low), abs(high)) if np.isnan(bounds).any() else max(float(bounds.max()), 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.isfinite(values) & ((values < low - 2 * room) | (values > high + 2 * room))


def _with_room(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The values multiplied by a power of two so that their sums do not overflow, and this power."""
    largest = float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))
    scale = 2.0**-64 if largest > 2.0**900 else 1.0
    return values * scale, scale


def _level_for(step: ReaderStep, name: str, wanted: Mapping[int, int]) -> VariableLevel:
    """The coarsest level that fills the picture along one of these axes. Skips levels that are no grid."""
    for number in range(step.n_levels(name) - 1, 0, -1):
        with contextlib.suppress(ParameterError):
            level = step.level(name, number)
            if any(level.shape[axis] >= pixels for axis, pixels in wanted.items()):
                return level
    return step.level(name, 0)


# ---------------------------------------------------------------------------------------------------------- drawing


def colours(picture: Picture) -> NDArray[np.uint8]:
    """Of shape (rows, columns, 3): red, green and blue."""
    scaled = picture.scaled()
    at = np.nan_to_num(scaled) * (len(_COLOURS) - 1)
    rgb = np.stack([np.interp(at, np.arange(len(_COLOURS)), _COLOURS[:, c]) for c in range(3)], axis=-1)
    rgb[np.isnan(scaled)] = _NO_VALUE
    return np.rint(rgb).astype(np.uint8)


def png(picture: Picture, longest: int) -> bytes:
    """A PNG file with a pixel for each value, or with several if the longer side then has at most `longest`."""
    rgb = colours(picture)
    times = max(longest // max(rgb.shape[:2]), 1)
    rgb = rgb.repeat(times, axis=0).repeat(times, axis=1)
    rows, columns, _ = rgb.shape
    lines = np.zeros((rows, 1 + 3 * columns), np.uint8)  # each begins with its filter: none
    lines[:, 1:] = rgb.reshape(rows, -1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)  # 8 bits each of red, green and blue
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", head),
            chunk(b"IDAT", zlib.compress(lines.tobytes())),
            chunk(b"IEND", b""),
        ]
    )


def fitted(picture: Picture, columns: int, rows: int) -> Picture:
    """The picture with at most this many columns and rows, by averaging neighbours."""
    factor = max(math.ceil(picture.values.shape[1] / columns), math.ceil(picture.values.shape[0] / rows), 1)
    values, scale = _with_room(picture.values)
    for axis in (0, 1):
        edges = np.arange(0, values.shape[axis], factor)
        counts = np.diff([*edges, values.shape[axis]])
        with np.errstate(invalid="ignore"):
            means = np.add.reduceat(values, edges, axis=axis)
        values = means / (counts[:, None] if axis == 0 else counts)
    return dataclasses.replace(picture, values=values / scale)


def half_blocks(picture: Picture) -> str:
    """Lines for a terminal, two rows in each, in 24-bit colours."""
    rgb = colours(picture)
    lines = []
    for row in range(0, len(rgb), 2):
        pairs = zip(rgb[row], rgb[row + 1] if row + 1 < len(rgb) else [None] * rgb.shape[1], strict=True)
        cells = [_foreground(top) + (_background(below) if below is not None else "") + "▀" for top, below in pairs]
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)


def characters(picture: Picture) -> str:
    """Lines for a terminal without colours: every second row, with "?" where there is no value."""
    scaled = picture.scaled()
    lines = []
    for row in scaled[::2]:
        cells = ["?" if math.isnan(s) else _RAMP[min(int(s * len(_RAMP)), len(_RAMP) - 1)] for s in row.tolist()]
        lines.append("".join(cells))
    return "\n".join(lines)


def _foreground(rgb: Any) -> str:
    return "\x1b[38;2;{};{};{}m".format(*rgb)


def _background(rgb: Any) -> str:
    return "\x1b[48;2;{};{};{}m".format(*rgb)
