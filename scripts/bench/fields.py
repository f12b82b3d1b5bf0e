"""Generated test fields with fixed seeds: none of them trivially smooth.

turbulence   256^3 f32, a Gaussian random field whose energy spectrum falls as k^-5/3 down to the grid scale
density      256^3 f32, the exponential of it with max / min = 1e6 and mean 1, as a cosmological baryon density
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]


def gaussian_random_field(shape: tuple[int, ...], slope: float, seed: int) -> NDArray[np.floating]:
    """Zero mean, unit variance, power per mode proportional to k^slope; periodic."""
    white = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    modes = np.fft.rfftn(white)
    wave_numbers = [np.fft.fftfreq(n) * max(shape) for n in shape[:-1]] + [np.fft.rfftfreq(shape[-1]) * max(shape)]
    k2 = sum(k**2 for k in np.meshgrid(*wave_numbers, indexing="ij", sparse=True))
    origin = (0,) * len(shape)
    k2[origin] = 1
    amplitude = k2 ** (slope / 4)
    amplitude[origin] = 0
    modes *= amplitude  # in place: the values then stay those of single precision
    field = np.fft.irfftn(modes, s=shape, axes=range(len(shape)))
    field -= field.mean()
    field /= field.std()
    return field


def turbulence(n: int = 256) -> Field:
    return gaussian_random_field((n, n, n), -11 / 3, 101).astype(np.float32)


def density(n: int = 256) -> Field:
    g = gaussian_random_field((n, n, n), -11 / 3, 101)
    field = np.exp(np.log(1e6) / (g.max() - g.min()) * g)
    return (field / field.mean()).astype(np.float32)


GENERATED = {"turbulence": turbulence, "density": density}
