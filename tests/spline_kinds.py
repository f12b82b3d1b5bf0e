"""Fields that together reach every branch of the spline codec (format_v2.md), as field_kinds.py does for the other
codec.

The field decides how the compressor interpolates: `layers` makes it leave out an axis, `kinks` makes it choose linear.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

import field_kinds
from field_kinds import Kind, sprinkle
from support import DTYPES, integers, random_bits, smooth

#: By the number of axes to halve: at most three, those with extents of 5 or more. Tiles have 4096, 64 x 64 or
#: 8 x 16 x 32 points along these axes, and 1 along the others; groups have 64, 8 x 8 or 4 x 4 x 4 points of a class.
SHAPES_OF: dict[int, list[tuple[int, ...]]] = {
    0: [(4,), (4, 1, 3, 4)],
    1: [
        *[(5,), (6,), (31,), (32,), (33,), (63,), (65,), (4095,), (4096,), (4097,), (8200,)],
        *[(3, 700), (700, 3), (4, 129, 4), (2, 3, 4, 90), (4, 4, 65, 4)],
    ],
    2: [
        *[(5, 5), (6, 31), (32, 33), (63, 65), (64, 64), (70, 131), (1, 40, 1, 50), (3, 33, 64)],
        *[(65, 3, 17), (2, 3, 9, 34)],
    ],
    3: [
        *[(5, 5, 5), (7, 15, 31), (8, 16, 32), (9, 17, 33), (6, 18, 65), (5, 5, 819)],
        *[(3, 5, 5, 5), (40, 5, 5, 5), (5, 6, 7, 8), (2, 9, 17, 33), (9, 3, 10, 11)],
    ],
}
SHAPES = [shape for shapes in SHAPES_OF.values() for shape in shapes]


def along(axis: int, values: NDArray, ndim: int) -> NDArray:
    """The values laid out along an axis, in a shape that broadcasts over a field of `ndim` axes."""
    return values.reshape([-1 if a == axis else 1 for a in range(ndim)])


def waves(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Long waves along every axis, which predictions follow closely."""
    total = np.zeros(shape)
    for axis, extent in enumerate(shape):
        total += along(axis, np.cos(np.arange(extent) / (9 + 4 * axis) + axis), len(shape))
    return total.astype(dtype)


def layers(shape: tuple[int, ...], dtype: np.dtype, axes: Iterable[int]) -> NDArray:
    """Smooth, except that it jumps along some axes."""
    x = waves(shape, dtype)
    for axis in axes:
        x += along(axis, integers(shape[axis], -50, 50, 7 + axis).astype(dtype) / 5, len(shape))
    return x


def long_axis(shape: tuple[int, ...], number: int) -> list[int]:
    """The axis of this number among those that can be halved, or axis 0 if there are none."""
    axes = [a for a, extent in enumerate(shape) if extent > 4] or [0]
    return [axes[number % len(axes)]]


def flat(shape: tuple[int, ...], dtype: np.dtype, axes: Iterable[int]) -> NDArray:
    """Changes along other axes only."""
    x = waves(shape, dtype)
    for axis in axes:
        x = np.repeat(x.take([0], axis), shape[axis], axis) if shape[axis] else x
    return x


def kinks(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Straight lines with a kink at every eighth point."""
    total = np.zeros(shape)
    for axis, extent in enumerate(shape):
        heights = integers(extent // 8 + 2, -9, 10, axis)
        i = np.arange(extent)
        values = heights[i // 8] * (8 - i % 8) + heights[i // 8 + 1] * (i % 8)
        total += along(axis, values / 8, len(shape))
    return total.astype(dtype)


def steps(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    return np.round(smooth(shape, dtype) * 2) / 2


def stretches(x: NDArray, number: int) -> list[NDArray]:
    """Cuts a field into `number` parts along its longest axis."""
    return np.array_split(x, number, axis=int(np.argmax(x.shape)))


def blocks_of(shape: tuple[int, ...], dtype: np.dtype, value: float) -> NDArray:
    """A smooth field with `value` in two stretches and at single points."""
    x = sprinkle(smooth(shape, dtype), value, 40, 3)
    parts = stretches(x, 7)
    parts[1][...] = parts[4][...] = value
    return x


def disorder(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Random bits in two of three stretches: with a tiny bound, many values are verbatim in several lattices."""
    x = np.zeros(shape, dtype)
    for part in stretches(x, 3)[:2]:
        part[...] = random_bits(part.shape, dtype, 4)
    return x


def spikes(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Values that no code can represent, and codes of all sizes."""
    x = sprinkle(smooth(shape, dtype), 1e30, 90, 1)
    flat, where = x.reshape(-1), integers(x.size // 20 + 1, 0, x.size, 2)
    flat[where] *= 2.0 ** integers(where.size, 0, 25, 3)
    return sprinkle(x, -np.inf, 200, 5)


def tiles_of_all_kinds(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Stretches of zeros, NaN, random bits, spikes, a smooth field and a constant."""
    x = np.zeros(shape, dtype)
    _, missing, raw, verbatim, coded, constant = stretches(x, 6)
    missing[...], constant[...] = np.nan, 2.5
    raw[...] = random_bits(raw.shape, dtype, 5)
    verbatim[...] = spikes(verbatim.shape, dtype) if verbatim.size else 0
    coded[...] = smooth(coded.shape, dtype)
    return x


def near_largest(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Predictions and differences overflow."""
    x = smooth(shape, dtype)
    largest = np.finfo(dtype).max
    return np.where(x > 0, largest, -largest) * (1 - np.abs(x) / 8192).astype(dtype)


def whole(shape: tuple[int, ...], dtype: np.dtype, largest: int = 30) -> NDArray:
    """Integers: with bounds of 1/2 and 1, many differ from their predictions by exactly the bound."""
    return integers(math.prod(shape), -largest, largest + 1).astype(dtype).reshape(shape)


def lake(shape: tuple[int, ...], dtype: np.dtype, fill: float) -> NDArray:
    """The fill value in a stretch and at single points, among zeros of both signs and NaN."""
    x = np.round(smooth(shape, dtype) * 8) / 8
    x = sprinkle(sprinkle(sprinkle(x, np.nan, 60, 7), -0.0, 15, 8), fill, 15, 9)
    stretches(x, 5)[2][...] = fill
    return x


KINDS: dict[str, Kind] = {
    "waves": Kind(waves, 1e-3),
    "waves_rel": Kind(waves, 1e-6, "rel"),
    "smooth": Kind(smooth, 1e-2),
    "smooth_rel": Kind(smooth, 1e-4, "rel"),
    "smooth_loose": Kind(smooth, 0.2, "rel"),
    "noise": Kind(field_kinds.noise, 1e-2, "rel"),
    "kinks": Kind(kinks, 1e-2),
    "steps": Kind(steps, 1e-2, "rel"),
    "constant": Kind(lambda s, t: np.full(s, t.type(2.5)), 1e-3),
    "sparse": Kind(lambda s, t: field_kinds.sparse(s, t, 60), 1e-1),
    "ripples": Kind(field_kinds.ripples, 1e-3),
    "first_axis_in_layers": Kind(lambda s, t: layers(s, t, long_axis(s, 0)), 1e-2),
    "second_axis_in_layers": Kind(lambda s, t: layers(s, t, long_axis(s, 1)), 1e-2),
    "last_axis_in_layers": Kind(lambda s, t: layers(s, t, long_axis(s, -1)), 1e-3, "rel"),
    "flat_along_first_axis": Kind(lambda s, t: flat(s, t, long_axis(s, 0)), 1e-3),
    "flat_along_last_axis": Kind(lambda s, t: flat(s, t, long_axis(s, -1)), 1e-2),
    "nan": Kind(lambda s, t: sprinkle(smooth(s, t), np.nan, 4, 3), 1e-2),
    "nan_blocks": Kind(lambda s, t: blocks_of(s, t, np.nan), 1e-3, "rel"),
    "fill_blocks": Kind(lambda s, t: blocks_of(s, t, 1e20), 1e-2, "abs", {"fill": 1e20}),
    "inf_blocks": Kind(lambda s, t: blocks_of(s, t, np.inf), 1e-2),
    "missing_first": Kind(field_kinds.missing_first, 1e-2),
    "mixture": Kind(field_kinds.mixture, 1e-2, "abs", {"fill": 1e20}),
    "all_nan": Kind(lambda s, t: np.full(s, t.type(np.nan)), 1e-3),
    "fill_of_zero": Kind(lambda s, t: lake(s, t, -0.0), 0.125, "abs", {"fill": -0.0}),
    "fill_of_infinity": Kind(lambda s, t: lake(s, t, np.inf), 1e-4, "rel", {"fill": np.inf}),
    "fill_among_values": Kind(lambda s, t: lake(s, t, 0.125), 0.125, "abs", {"fill": 0.125}),
    "spikes": Kind(spikes, 1e-3),
    "disorder": Kind(disorder, 1e-9),
    "tiles_of_all_kinds": Kind(tiles_of_all_kinds, 1e-2),
    "steep": Kind(field_kinds.steep, 0.125),
    "far": Kind(field_kinds.far, 0.5),
    "whole": Kind(whole, 0.5),
    "ties": Kind(field_kinds.ties, 0.1),
    "signed_zeros": Kind(field_kinds.signed_zeros, 0.25),
    "near_largest": Kind(near_largest, 1e-5, "rel"),
    "largest_bound": Kind(near_largest, float(np.finfo(np.float64).max)),
    "subnormal": Kind(field_kinds.denormal, 1e-38),
    "tiny_bound": Kind(waves, 1e-30),
    "zeros_with_holes": Kind(lambda s, t: sprinkle(np.zeros(s, t), np.nan, 4, 3), 1e-3, "rel"),
}

#: Each shape meets a quarter of the kinds and both types; each kind meets every number of axes to halve and both types.
COVERING = [
    (name, shape, DTYPES[(i + j // 8) % 2])
    for i, shape in enumerate(SHAPES)
    for j, name in enumerate(KINDS)
    if (i + j) % 8 < 2
]
