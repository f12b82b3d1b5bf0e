"""Fields that together reach every branch of an engine, with parameters to match."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import support
from support import DTYPES, F32, hashes, integers, smooth

#: Single values, exactly full tiles (4096; 64x64; 8x16x32; 1x8x16x32), clipped, thin, odd and long ones. Each tile of
#: the last one spans two volumes, with only some planes of each (2x32x5x12).
SHAPES: list[tuple[int, ...]] = [
    *[(1,), (31,), (63,), (65,), (4096,), (5000,), (8193,)],
    *[(1, 1), (64, 64), (70, 130), (1000, 3), (3, 700), (1, 4097)],
    *[(3, 5, 7), (8, 16, 32), (9, 17, 33), (16, 32, 40), (1, 1800, 36), (100, 10, 3), (300, 1, 3)],
    *[(1, 8, 16, 32), (2, 9, 17, 33), (3, 2, 2, 512), (3, 3, 3, 151), (4, 3, 5, 40), (3, 40, 5, 12)],
]


@dataclass(frozen=True)
class Kind:
    make: Callable[[tuple[int, ...], np.dtype], NDArray]
    eb: float
    mode: str = "abs"
    options: dict[str, Any] = field(default_factory=dict)


def sprinkle(x: NDArray, value: float, every: int, seed: int) -> NDArray:
    """Sets one in `every` values, and always at least one."""
    flat = x.reshape(-1)
    chosen = hashes(flat.size, seed) % np.uint64(every) == 0
    chosen[hashes(1, seed + 1)[0] % np.uint64(flat.size)] = True
    with np.errstate(over="ignore"):
        flat[chosen] = value
    return x


def strewn(shape: tuple[int, ...], dtype: np.dtype, values: list[float], one_in: int, seed: int = 0) -> NDArray:
    """A smooth field with these values strewn in."""
    x = smooth(shape, dtype, seed)
    flat = x.reshape(-1)
    where = np.flatnonzero(integers(x.size, 0, one_in, seed + 1) == 0)
    with np.errstate(over="ignore"):
        flat[where] = np.resize(np.array(values).astype(dtype), where.size)
    return x


def noise(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    return (integers(math.prod(shape), -(2**20), 2**20, 5) / 2**20).astype(dtype).reshape(shape)


def sparse(shape: tuple[int, ...], dtype: np.dtype, one_in: int) -> NDArray:
    return sprinkle(np.zeros(shape, dtype), 3, one_in, 11)


def corner(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Smooth in one corner, constant elsewhere, so that whole groups are zero."""
    x = np.zeros(shape, dtype)
    part = tuple(slice(0, (extent + 1) // 2) for extent in shape)
    x[part] = smooth(x[part].shape, dtype)
    return x


def far(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Codes beyond the alphabet."""
    x = smooth(shape, dtype)
    limit = 2.0**21 if dtype == F32 else 2.0**45
    return sprinkle(sprinkle(x, limit, 50, 1), -limit, 50, 2)


def steep(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Codes of every size."""
    n, digits = math.prod(shape), 22 if dtype == F32 else 50
    magnitude = integers(n, 0, 2**digits, 10) >> np.maximum(integers(n, -6, digits, 11), 0)
    signed = np.where(integers(n, 0, 2, 12) == 1, magnitude, -magnitude)
    return (signed.astype(dtype) * dtype.type(0.25)).reshape(shape)


def ties(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Values next to (k + 1/2) 2 eb for eb = 0.1, so large that either neighbour may miss the bound."""
    n, far_out = math.prod(shape), 400_000 if dtype == F32 else 2**48
    x = ((integers(n, -1000, 1000, 6) + (far_out + 0.5)) * 0.2).astype(dtype)
    step = integers(n, -1, 2, 7)
    return np.nextafter(x, np.select([step < 0, step > 0], [-np.inf, np.inf], x).astype(dtype)).reshape(shape)


def denormal(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    unit = np.finfo(dtype).smallest_subnormal
    return (integers(math.prod(shape), -(2**20), 2**20, 8).astype(dtype) * unit).reshape(shape)


def signed_zeros(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    x = smooth(shape, dtype).round(0)
    return np.where(integers(x.size, 0, 2, 9).reshape(shape) == 1, x, -np.abs(x) * 0).astype(dtype)


def ripples(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """A product of cubic polynomials: differences of differences are smaller still."""
    x = np.ones((), np.float64)
    for axis, n in enumerate(shape):
        i = np.arange(n)
        wave = (i * (i - n // 2) * (i - n) + n).astype(np.float64)
        x = x[..., None] * (wave if n < 200 else i % 7)
        assert axis < x.ndim
    return (x * 2.0**-24).astype(dtype)


def plane_wave(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Quadratic along y and x, anything along z: second-order Lorenzo pays in two directions of three."""
    x = smooth(shape[:1], np.dtype(np.float64)) * 500
    for n in shape[1:]:
        i = np.arange(n)
        x = x[..., None] + (i * (i - n / 3)) * (1 + np.arange(x.size).reshape(x.shape) % 3)[..., None]
    return x.astype(dtype)


def disorder(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Random bits with a magnitude of 2 or more, NaN and infinities included."""
    x = support.random_bits(shape, dtype, 12)
    support.bits(x)[...] |= support.bits(np.full(1, 2, dtype))[0]
    return x


def raw_among_order(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Some tiles are stored raw, though the archive is coded."""
    x = smooth(shape, dtype, 8)
    n = x.shape[0]
    x[n // 4 : n // 2] = disorder(x[n // 4 : n // 2].shape, dtype)
    return x


def missing_first(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Tiles that begin with rows of missing values, so that the first value that is present comes late."""
    x = smooth(shape, dtype)
    x[: (x.shape[0] + 1) // 2, ...] = np.nan
    x.reshape(-1)[-1] = 1
    return x


def mixture(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    x = sprinkle(sprinkle(smooth(shape, dtype), np.nan, 9, 3), 1e20, 7, 4)
    return sprinkle(sprinkle(sprinkle(x, np.inf, 90, 5), -np.inf, 90, 6), 1e9, 40, 7)


KINDS: dict[str, Kind] = {
    "smooth": Kind(smooth, 1e-2),
    "smooth_rel": Kind(smooth, 1e-3, "rel"),
    "smooth_1024": Kind(smooth, 1e-4, "rel", {"bins": 1024}),
    "smooth_8192": Kind(smooth, 1e-5, "rel", {"bins": 8192}),
    "noise": Kind(noise, 1e-3, "rel"),
    "noise_1024": Kind(noise, 1e-4, "rel", {"bins": 1024}),
    "constant": Kind(lambda s, t: np.full(s, t.type(2.5)), 1e-3),
    "sparse": Kind(lambda s, t: sparse(s, t, 25), 1e-1),
    "lonely": Kind(lambda s, t: sparse(s, t, 900), 1e-1, "rel"),
    "corner": Kind(corner, 1e-1),
    "nan": Kind(lambda s, t: sprinkle(smooth(s, t), np.nan, 4, 3), 1e-2),
    "inf": Kind(lambda s, t: sprinkle(sprinkle(smooth(s, t), np.inf, 30, 3), -np.inf, 30, 4), 1e-3, "rel"),
    "fill": Kind(lambda s, t: sprinkle(smooth(s, t), 1e20, 4, 3), 1e-3, "rel", {"fill": 1e20}),
    "mixture": Kind(mixture, 1e-2, "abs", {"fill": 1e20}),
    "mixture_8192": Kind(mixture, 1e-4, "abs", {"fill": 1e20, "bins": 8192}),
    "missing_first": Kind(missing_first, 1e-2),
    "far": Kind(far, 0.5),
    "far_128": Kind(far, 0.5, "abs", {"bins": 128}),
    "beyond": Kind(lambda s, t: sprinkle(smooth(s, t), 1e30, 30, 3), 1e-2),
    "steep": Kind(steep, 0.125),
    "ties": Kind(ties, 0.1),
    "denormal_abs": Kind(denormal, 1e-3),
    "signed_zeros": Kind(signed_zeros, 0.25),
    "ripples": Kind(ripples, 1e-3),
    "plane_wave": Kind(plane_wave, 0.25),
    "huge_bound": Kind(smooth, 1e30),
    "largest_bound": Kind(noise, 1.7e308),
    "tiny_bound": Kind(smooth, 1e-30),
    "lossless": Kind(smooth, 0.0),
    "all_nan": Kind(lambda s, t: np.full(s, t.type(np.nan)), 1e-3),
    "all_fill": Kind(lambda s, t: np.full(s, t.type(-9999)), 1e-3, "rel", {"fill": -9999.0}),
    "incompressible": Kind(disorder, 1e-30),
    "random_bits": Kind(lambda s, t: support.random_bits(s, t, 13), 1e-30),
    "raw_tiles": Kind(raw_among_order, 1e-1),
    # bounds just above the subnormal numbers
    "denormal_f32": Kind(denormal, 1.5e-38),
    "denormal_f64": Kind(denormal, 3e-308),
}

#: Every kind meets every shape, and every kind and every shape meet both types.
COVERING = [(name, shape, DTYPES[(i + j) % 2]) for i, name in enumerate(KINDS) for j, shape in enumerate(SHAPES)]
