"""Fields to measure: generated ones, each with its seed and none trivially smooth, and .npy files.

turbulence    256^3        Gaussian random field whose energy spectrum falls as k^-5/3 down to the grid scale
density       256^3        its exponential, max / min = 1e6, mean 1: like a cosmological baryon density
flux          1800 x 3600  zonal structure, eddies and noise: like a radiation flux of a climate model
clouds        1800 x 3600  a cloud fraction, cut to [0, 1]: half of it is exactly 0
particles_x   2^24         a coordinate of particles displaced from a lattice, sorted by coarse cells
particles_vx  2^24         a velocity of the same particles: bulk motion and a dispersion that follows the density
orbitals      64 x 64 x 32 x 32  Gaussians on sites times plane waves: like orbitals of a quantum Monte Carlo code

All are f32; NAME_f64 is the same field cast to f64. The values are those of numpy 2; other versions use another
precision in transforms.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cusz_core.errors import ParameterError

Array = NDArray[Any]

#: Fields that mark "no data" with a finite value.
KNOWN_FILLS = {"ipsl_tos_3d_f32": 1e20}


@dataclasses.dataclass(frozen=True)
class Field:
    name: str
    x: Array
    fill: float | None = None


# --------------------------------------------------------------------------------------------------- generated


def gaussian_random_field(shape: tuple[int, ...], slope: float, seed: int) -> Array:
    """Zero mean, unit variance, power per mode proportional to k^slope; periodic."""
    white = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    modes = np.fft.rfftn(white)
    wave_numbers = [np.fft.fftfreq(n) * max(shape) for n in shape[:-1]] + [np.fft.rfftfreq(shape[-1]) * max(shape)]
    k2 = np.zeros(1)
    for k in np.meshgrid(*wave_numbers, indexing="ij", sparse=True):
        k2 = k2 + k**2
    origin = (0,) * len(shape)
    k2[origin] = 1
    amplitude = k2 ** (slope / 4)
    amplitude[origin] = 0
    modes *= amplitude  # in place: the values then stay those of single precision
    field = np.fft.irfftn(modes, s=shape, axes=range(len(shape)))
    field -= field.mean()
    field /= field.std()
    return field


def turbulence(n: int = 256) -> Array:
    return _single(gaussian_random_field((n, n, n), -11 / 3, 101))


def density(n: int = 256) -> Array:
    g = gaussian_random_field((n, n, n), -11 / 3, 101)
    field = np.exp(np.log(1e6) / (g.max() - g.min()) * g)
    return _single(field / field.mean())


def flux(rows: int = 1800, columns: int = 3600) -> Array:
    latitude, longitude, cosine = _sphere(rows, columns)
    large, small = _eddies(rows, columns)
    noise = np.random.default_rng(103).standard_normal((rows, columns))
    zonal = 120 + 170 * cosine**1.3 - 35 * np.exp(-((latitude / 9) ** 2))
    waves = 9 * np.sin(3 * longitude + latitude / 25) * cosine
    return _single(zonal + waves + (14 * large + 7 * small) * (0.4 + 0.6 * cosine) + 0.25 * noise)


def clouds(rows: int = 1800, columns: int = 3600) -> Array:
    latitude, _, cosine = _sphere(rows, columns)
    large, small = _eddies(rows, columns)
    zonal = 0.30 + 0.25 * np.cos(np.deg2rad(6 * latitude)) * cosine
    return _single(np.clip(zonal + 0.28 * large + 0.42 * small - 0.18, 0, 1))


def _sphere(rows: int, columns: int) -> tuple[Array, Array, Array]:
    """Latitude in degrees (one column), longitude in radians (one row), cosine of the latitude."""
    latitude = np.linspace(-90, 90, rows)[:, None]
    longitude = np.linspace(0, 2 * np.pi, columns, endpoint=False)[None, :]
    return latitude, longitude, np.cos(np.deg2rad(latitude))


def _eddies(rows: int, columns: int) -> tuple[Array, Array]:
    return gaussian_random_field((rows, columns), -4, 104), gaussian_random_field((rows, columns), -8 / 3, 105)


def particles_x(n: int = 256) -> Array:
    return _particles(n)[0]


def particles_vx(n: int = 256) -> Array:
    return _particles(n)[1]


@functools.lru_cache(maxsize=1)  # both components are requested, one after the other
def _particles(n: int) -> tuple[Array, Array]:
    """The last coordinate and its velocity of n^3 particles in a box of n^3, sorted by cells of 8^3."""
    displacement = [_single(gaussian_random_field((n, n, n), -3.0, 110 + axis)) for axis in range(3)]
    rng = np.random.default_rng(120)
    lattice = np.arange(n, dtype=np.float32) + 0.5
    coordinates = []
    for axis in range(3):
        site = lattice.reshape([-1 if a == axis else 1 for a in range(3)])
        jitter = rng.standard_normal((n, n, n), dtype=np.float32)
        coordinates.append(((site + 2.5 * displacement[axis] + 0.5 * jitter) % n).ravel())

    last_cell = max(n // 8, 1) - 1
    cells = [np.minimum((c / 8).astype(np.int32), last_cell) for c in coordinates]
    cell = (cells[0] * (last_cell + 1) + cells[1]) * (last_cell + 1) + cells[2]
    order = np.lexsort((rng.random(n**3, dtype=np.float32), cell))

    mass = _single(np.exp(0.8 * gaussian_random_field((n, n, n), -3.0, 121))).ravel()
    thermal = rng.standard_normal(n**3, dtype=np.float32)
    velocity = 300 * displacement[2].ravel() + 120 * np.sqrt(mass) * thermal
    return _single(coordinates[2][order]), _single(velocity[order])


def orbitals(n: int = 64) -> Array:
    """n orbitals on a grid of n x n/2 x n/2, in a cell of 2 x 1 x 1."""
    rng = np.random.default_rng(130)
    axes = [np.linspace(0, 2, n, endpoint=False)] + [np.linspace(0, 1, n // 2, endpoint=False)] * 2
    grid = np.meshgrid(*axes, indexing="ij")
    z, y, x = grid
    cell = (2, 1, 1)
    sites = rng.random((24, 3)) * cell
    field = np.empty((n, *z.shape), np.float32)
    for band in range(n):
        reach = band // 8
        k = rng.integers(-4 - reach, 5 + reach, size=3)
        envelope = np.zeros(z.shape)
        for site in sites:
            # the nearest periodic image
            dz, dy, dx = ((u - s + size / 2) % size - size / 2 for u, s, size in zip(grid, site, cell, strict=True))
            sharpness = 30 + 170 * rng.random()
            amplitude = rng.standard_normal()
            gaussian = np.exp(-sharpness * (dz**2 + dy**2 + dx**2))
            envelope += amplitude * gaussian * (1 + rng.standard_normal() * dx * 8)
        wave = np.cos(2 * np.pi * (k[0] * z / 2 + k[1] * y + k[2] * x) + rng.random() * 6.28)
        field[band] = (envelope + 0.15) * wave
    return field


def _single(x: Array) -> Array:
    return np.ascontiguousarray(x, dtype=np.float32)


GENERATED: dict[str, Callable[[], Array]] = {
    "turbulence": turbulence,
    "density": density,
    "flux": flux,
    "clouds": clouds,
    "particles_x": particles_x,
    "particles_vx": particles_vx,
    "orbitals": orbitals,
}


# ------------------------------------------------------------------------------------------------------ chosen


#: One of them also in double precision.
DEFAULTS = ["turbulence", "turbulence_f64", *(name for name in GENERATED if name != "turbulence")]


def chosen(names: Sequence[str]) -> list[str]:
    """The given names; if there are none, the defaults and the files of CUSZ_TEST_DATA."""
    if not names:
        folder = os.environ.get("CUSZ_TEST_DATA")
        files = sorted(Path(folder).glob("*.npy")) if folder else []
        return [*DEFAULTS, *map(str, files)]
    for name in names:
        if not (name.endswith(".npy") or name.removesuffix("_f64") in GENERATED):
            raise ParameterError(f"{name} is neither a .npy file nor a generated field ({', '.join(GENERATED)})")
    return list(names)


def load(names: Sequence[str], dtype: np.dtype[Any] | None = None, fill: float | None = None) -> Iterator[Field]:
    """The fields of `chosen` names, one at a time. `dtype` casts them; `fill` is for unknown files."""
    for name in names:
        if name.endswith(".npy"):
            field = _from_file(Path(name), fill)
        elif name in GENERATED:
            field = Field(name, GENERATED[name]())
        else:
            field = Field(name, GENERATED[name.removesuffix("_f64")]().astype(np.float64))
        yield field if dtype is None else dataclasses.replace(field, x=field.x.astype(dtype, copy=False))


def _from_file(path: Path, fill: float | None) -> Field:
    try:
        x: Array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ParameterError(f"{path} is not a readable .npy file: {error}") from None
    if x.dtype.char not in "fd" or not x.dtype.isnative or x.size == 0:
        raise ParameterError(
            f"{path} holds {x.dtype.name} of shape {x.shape}; fields of float32 or float64 are measured"
        )
    return Field(path.stem, np.ascontiguousarray(x), KNOWN_FILLS.get(path.stem, fill))
