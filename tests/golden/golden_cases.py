"""The fields and parameters of the golden archives.

Every field comes from integer arithmetic alone, so it is the same on every machine and with every version of numpy.
Between them the archives have every part of the format: all types, ranks and modes, clipped and thin tiles, masks and
fine masks, all-zero tiles, all predictors, missing values, both kinds of outliers, with either reach, raw tiles, large
alphabets, a sampled codebook with escapes from it, raw archives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import cusz_core as cusz
import support
from support import F32, F64, integers, smooth

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    make: Callable[[], NDArray]
    eb: float
    mode: str = "abs"
    options: dict[str, object] = field(default_factory=dict)

    def compress(self, x: NDArray, **more: object) -> bytes:
        return cusz.compress(x, self.eb, self.mode, **self.options, **more)  # type: ignore[call-overload]


def folder(version: int) -> Path:
    return HERE / f"v{version}"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def nan_and_infinities(dtype: np.dtype) -> NDArray:
    x = smooth((11, 18, 37), dtype, 1)
    flat = x.reshape(-1)
    flat[5:3000:61] = np.nan
    flat[7::301] = np.inf
    flat[8::301] = -np.inf
    support.bits(flat)[9::401] = support.bits(np.array([np.nan], dtype))[0] | 5  # another payload
    return x


def ocean(dtype: np.dtype) -> NDArray:
    x = smooth((5, 30, 50), dtype, 2)
    x[:, 8:25, 10:45] = dtype.type(1e20)
    x[3] = dtype.type(1e20)
    x[0, 0, 0] = np.nan
    return x


def spikes(dtype: np.dtype) -> NDArray:
    x = smooth((9, 20, 40), dtype, 3)
    flat = x.reshape(-1)
    flat[integers(60, 0, flat.size)] *= dtype.type(1 << 20)
    flat[integers(20, 0, flat.size, 1)] = dtype.type(2.0**100)
    x[4:] += dtype.type(1 << 15)
    return x


def islands(shape: tuple[int, ...], dtype: np.dtype, n: int) -> NDArray:
    x = np.zeros(shape, dtype)
    x.reshape(-1)[integers(n, 0, x.size, 4)] = integers(n, -300, 300, 5)
    return x


def coast(dtype: np.dtype) -> NDArray:
    """Whole groups are zero, the others are not worth a fine mask."""
    x = np.zeros((70, 70), dtype)
    x[16:40, 24:64] = integers(960, -30, 30, 13).reshape(24, 40)
    return x


def half_steps(dtype: np.dtype) -> NDArray:
    """(k + 1/2) * 2 * 0.1 and their neighbours."""
    x = ((integers(5000, -30, 30, 6) + 0.5) * 0.2).astype(dtype)
    return np.nextafter(x, np.where(integers(5000, 0, 2, 7) == 1, np.inf, -np.inf).astype(dtype))


def noise_among_order(dtype: np.dtype) -> NDArray:
    """Tiles of noise, which are stored raw, in an archive that is coded."""
    x = smooth((5 * 4096 + 100,), dtype, 8)
    x[4096:8192] = support.random_bits((4096,), dtype, 9)
    return x


def steep(dtype: np.dtype) -> NDArray:
    """Codes of every size, some of them beyond the alphabet."""
    n, digits = 4500, 22 if dtype == F32 else 50
    magnitude = integers(n, 0, 2**digits, 10) >> np.maximum(integers(n, -6, digits, 11), 0)
    return np.where(integers(n, 0, 2, 12) == 1, magnitude, -magnitude).astype(dtype) * dtype.type(0.25)


def ripples(shape: tuple[int, int, int], dtype: np.dtype) -> NDArray:
    """A product of cubic polynomials: differences of differences are smaller still."""
    z, y, x = (i * (i - n // 2) * (i - n) + n for i, n in zip(np.indices(shape), shape, strict=True))
    return (z * y * x).astype(dtype) * dtype.type(2.0**-24)


def far(dtype: np.dtype) -> NDArray:
    """Codes of every bucket of the octaves 19 and 20 for a bound of 0.5, and codes beyond them."""
    steps = [step for o in (17, 18) for m in (4, 5, 6, 7) for step in (m << o, -(m << o) - 1)]
    x = np.zeros((9000,), dtype)
    x[100 : 100 + 7 * len(steps) : 7] = steps
    x[5000:5002] = [1 << 21, -(1 << 21)]
    return x


CASES: dict[str, Case] = {}
for _dtype, _name in ((F32, "f32"), (F64, "f64")):
    CASES |= {
        f"{_name}_1d": Case(lambda t=_dtype: smooth((10007,), t), 1e-2),
        f"{_name}_2d": Case(lambda t=_dtype: smooth((70, 131), t), 1e-3, "rel"),
        f"{_name}_3d": Case(lambda t=_dtype: smooth((17, 33, 40), t), 1e-3, "rel"),
        f"{_name}_4d": Case(lambda t=_dtype: smooth((3, 9, 17, 33), t), 1e-2),
        f"{_name}_thin": Case(lambda t=_dtype: smooth((3000, 3), t), 1e-2),
        f"{_name}_sheet": Case(lambda t=_dtype: smooth((1, 90, 100), t), 1e-2),
        f"{_name}_nan_inf": Case(lambda t=_dtype: nan_and_infinities(t), 1e-2),
        f"{_name}_fill": Case(lambda t=_dtype: ocean(t), 1e-3, "rel", {"fill": 1e20}),
        f"{_name}_spikes": Case(lambda t=_dtype: spikes(t), 1e-2),
        f"{_name}_islands": Case(lambda t=_dtype: islands((30, 40, 50), t, 80), 1e-1),
        f"{_name}_sampled": Case(lambda t=_dtype: islands((3, 70, 80, 90), t, 900), 1e-1),
        f"{_name}_islands_1d": Case(lambda t=_dtype: islands((9000,), t, 300), 1e-1),
        f"{_name}_islands_2d": Case(lambda t=_dtype: islands((70, 131), t, 300), 1e-1),
        f"{_name}_islands_thin": Case(lambda t=_dtype: islands((3, 3, 3, 151), t, 100), 1e-1),
        f"{_name}_ripples": Case(lambda t=_dtype: ripples((18, 33, 40), t), 1e-3),
        f"{_name}_far": Case(lambda t=_dtype: far(t), 0.5),
        f"{_name}_coast": Case(lambda t=_dtype: coast(t), 1e-1),
        f"{_name}_half_steps": Case(lambda t=_dtype: half_steps(t), 0.1),
        f"{_name}_noise": Case(lambda t=_dtype: noise_among_order(t), 1e-1),
        f"{_name}_steep": Case(lambda t=_dtype: steep(t), 0.125),
        f"{_name}_1024_bins": Case(lambda t=_dtype: smooth((30, 30, 30), t), 1e-3, "rel", {"bins": 1024}),
        f"{_name}_8192_bins": Case(lambda t=_dtype: smooth((20, 20, 20), t), 1e-4, "rel", {"bins": 8192}),
        f"{_name}_constant": Case(lambda t=_dtype: np.full((20, 30), t.type(2.5)), 1e-3),
        f"{_name}_all_nan": Case(lambda t=_dtype: np.full((5000,), t.type(np.nan)), 1e-3),
        f"{_name}_all_fill": Case(lambda t=_dtype: np.full((9, 17, 33), t.type(-9999)), 1e-3, "abs", {"fill": -9999.0}),
        f"{_name}_one_value": Case(lambda t=_dtype: np.full((1, 1), t.type(3.25)), 1e-3),
        f"{_name}_lossless": Case(lambda t=_dtype: smooth((7, 11), t), 0.0),
        f"{_name}_incompressible": Case(lambda t=_dtype: support.random_bits((500,), t, 12), 1e-30),
        f"{_name}_empty": Case(lambda t=_dtype: np.zeros((3, 0, 2), t), 1e-3),
    }
