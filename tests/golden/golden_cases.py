"""The fields and parameters of the golden archives.

Every field is made by integer arithmetic only, so it is the same on every machine and with every version of numpy. The
functions of field_kinds.py and spline_kinds.py that are used here must not change.

Together the archives of a version cover every part of it. Version 1: all types, ranks and modes, clipped and thin
tiles, masks and fine masks, all-zero tiles, all predictors, missing values, both kinds of outliers, with either reach,
raw tiles, large alphabets, a sampled codebook with escapes, raw archives. Version 2: constants, one and several units,
fields of one to four axes, even and odd extents, the curves 0, 1 and 3, tighter bounds of coarser lattices, axes left
out, the map of a model, missing values of both kinds, codes of all sizes; logarithms of either type, over archives of
either version, with signs and without.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import cusz_core as cusz
import support
from field_kinds import denormal, steep, strewn
from spline_kinds import along, kinks, near_largest, whole
from support import F32, F64, integers, smooth

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    make: Callable[[], NDArray]
    eb: float
    mode: str = "abs"
    options: dict[str, object] = field(default_factory=dict)
    #: Whether the present writer gives the stored bytes. They must be readable in any case.
    written: bool = True
    #: Whether zstd has packed a part of the archive.
    needs_zstd: bool = False

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
    """Whole groups are zero; in the others a fine mask would not pay."""
    x = np.zeros((70, 70), dtype)
    x[16:40, 24:64] = integers(960, -30, 30, 13).reshape(24, 40)
    return x


def half_steps(dtype: np.dtype) -> NDArray:
    """(k + 1/2) * 2 * 0.1 and their neighbours."""
    x = ((integers(5000, -30, 30, 6) + 0.5) * 0.2).astype(dtype)
    return np.nextafter(x, np.where(integers(5000, 0, 2, 7) == 1, np.inf, -np.inf).astype(dtype))


def noise_among_order(dtype: np.dtype) -> NDArray:
    """A tile of noise, which is stored raw, in a coded archive."""
    x = smooth((5 * 4096 + 100,), dtype, 8)
    x[4096:8192] = support.random_bits((4096,), dtype, 9)
    return x


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
        f"{_name}_steep": Case(lambda t=_dtype: steep((4500,), t), 0.125),
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


# ---------------------------------------------------------------------------------------------------------- version 2


def waves(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Sums of parabolic waves, which predictions follow closely."""
    total = np.zeros(shape)
    for axis, extent in enumerate(shape):
        period = 16 + 4 * axis
        i = np.arange(extent) % (2 * period)
        total += along(axis, np.where(i < period, i * (period - i), (i - period) * (i - 2 * period)), len(shape))
    return (total / 64).astype(dtype)


def layers(shape: tuple[int, ...], dtype: np.dtype, axis: int) -> NDArray:
    """Smooth, except that it jumps along one axis."""
    return waves(shape, dtype) + along(axis, integers(shape[axis], -50, 50, 7) / 4, len(shape)).astype(dtype)


def stretches_of_every_kind(dtype: np.dtype) -> NDArray:
    x = np.zeros((10, 1900), dtype)
    x[:, :300] = smooth((10, 300), dtype)
    x[:, 400:900] = np.nan
    x[:, 900:1300] = support.random_bits((10, 400), dtype)
    x[:, 1400:1700] = strewn((10, 300), dtype, [1e30, 2e3, np.nan], 40)
    return x


def lake(dtype: np.dtype, fill: float) -> NDArray:
    """The fill value in a region and at single points, NaN at others, and a corner of rounded values."""
    x = strewn((40, 45), dtype, [fill, fill, np.nan, 1.0, -0.0], 20)
    x[10:30, 20:] = fill
    x[:20, :20] = np.round(x[:20, :20] * 8) / 8
    return x


def many_tiles(dtype: np.dtype) -> NDArray:
    """132 tiles, so that only a sample of them is counted."""
    x = np.zeros((9, 17, 1025), dtype)
    x[:, :, 300:420] = smooth((9, 17, 120), dtype)
    x[::4, ::5] *= 100
    x[::5, 1::7, ::50] = np.nan
    return x


SPLINE_CASES: dict[str, Case] = {}
for _dtype, _name in ((F32, "f32"), (F64, "f64")):
    _tiny, _largest = float(np.finfo(_dtype).tiny), float(np.finfo(_dtype).max)
    _cases = {
        "1d": Case(lambda t=_dtype: smooth((8200,), t), 1e-2),
        "2d": Case(lambda t=_dtype: smooth((70, 81), t), 1e-3, "rel"),
        "3d": Case(lambda t=_dtype: smooth((9, 17, 35), t), 1e-3, "rel"),
        "4d": Case(lambda t=_dtype: smooth((3, 9, 10, 11), t), 1e-2),
        "4d_four_axes": Case(lambda t=_dtype: smooth((5, 6, 7, 8), t), 1e-2),
        "even": Case(lambda t=_dtype: smooth((8, 16, 32), t), 0.1),
        "odd": Case(lambda t=_dtype: smooth((33, 65), t), 0.1),
        "thin": Case(lambda t=_dtype: smooth((700, 3), t), 1e-2),
        "sheet": Case(lambda t=_dtype: smooth((1, 40, 1, 50), t), 1e-2),
        "two_values": Case(lambda t=_dtype: np.array([1, 2.5], t), 1e-3),
        "one_value": Case(lambda t=_dtype: np.full((1, 1), t.type(3.25)), 1e-3),
        "empty": Case(lambda t=_dtype: np.zeros((3, 0, 2), t), 1e-3),
        "several_units": Case(lambda t=_dtype: waves((20, 60, 70), t), 1e-3),
        "several_units_2d": Case(lambda t=_dtype: waves((210, 300), t), 0.1),
        "map": Case(lambda t=_dtype: many_tiles(t), 1e-2),
        "waves": Case(lambda t=_dtype: waves((17, 18, 33), t), 1e-4),
        "loose": Case(lambda t=_dtype: waves((17, 18, 33), t), 0.2, "rel"),
        "kinks": Case(lambda t=_dtype: kinks((60, 70), t), 1e-2),
        "layers": Case(lambda t=_dtype: layers((16, 20, 24), t, 0), 1e-2),
        "rows": Case(lambda t=_dtype: layers((5, 9, 10, 24), t, 3), 1e-2),
        "nan_inf": Case(lambda t=_dtype: nan_and_infinities(t)[:, :, :20], 1e-2),
        "fill": Case(lambda t=_dtype: ocean(t), 1e-3, "rel", {"fill": 1e20}),
        "fill_of_zero": Case(lambda t=_dtype: lake(t, -0.0), 0.125, "abs", {"fill": -0.0}),
        "fill_of_infinity": Case(lambda t=_dtype: lake(t, np.inf), 1e-4, "rel", {"fill": np.inf}),
        "fill_among_values": Case(lambda t=_dtype: lake(t, 0.125), 0.125, "abs", {"fill": 0.125}),
        "all_nan": Case(lambda t=_dtype: np.full((5000,), t.type(np.nan)), 1e-3),
        "all_fill": Case(lambda t=_dtype: np.full((9, 17, 33), t.type(-9999)), 1e-3, "abs", {"fill": -9999.0}),
        "mixture": Case(lambda t=_dtype: stretches_of_every_kind(t), 1e-2),
        "spikes": Case(lambda t=_dtype: spikes(t)[:, :, :15], 1e-2),
        "steep": Case(lambda t=_dtype: steep((4500,), t), 8.0 if _dtype == F32 else 2.0**30),
        "far": Case(lambda t=_dtype: far(t)[:6000], 0.5),
        "whole": Case(lambda t=_dtype: whole((40, 50), t), 0.5),
        "whole_far": Case(lambda t=_dtype: whole((17, 10, 9), t, 3000), 1.0),
        "near_largest": Case(lambda t=_dtype: near_largest((30, 40), t), 1e-5, "rel"),
        "largest_bound": Case(lambda t=_dtype: near_largest((30, 40), t), _largest),
        "subnormal": Case(lambda t=_dtype: denormal((30, 40), t), _tiny),
        "constant": Case(lambda t=_dtype: np.full((20, 30), t.type(2.5)), 1e-3, "rel"),
        "exact_bound": Case(lambda t=_dtype: smooth((8, 9, 10), t), 0.123456789),
        "finer": Case(lambda t=_dtype: smooth((18, 40, 41), t), 1e-2, "rel", {"coarse": "finer"}),
        "finest": Case(lambda t=_dtype: waves((70, 81), t), 1e-3, "abs", {"coarse": "finest"}),
        "lossless": Case(lambda t=_dtype: smooth((7, 11), t), 0.0),
        "incompressible": Case(lambda t=_dtype: support.random_bits((500,), t, 12), 1e-30),
        "random_bits": Case(lambda t=_dtype: support.random_bits((40, 50), t), 1e-3),
    }
    SPLINE_CASES |= {
        f"{_name}_{name}": replace(case, options={"predictor": "spline", **case.options})
        for name, case in _cases.items()
    }


def powers(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Values near powers of 2, with smooth logarithms."""
    logs = 8 * smooth(shape, F64)  # multiples of 2^-9
    whole = np.floor(logs)
    return np.ldexp(1 + (logs - whole), whole.astype(np.int64)).astype(dtype)


def powers_and_others(shape: tuple[int, ...], dtype: np.dtype, sign: int = 1) -> NDArray:
    """Powers, with zeros, NaN and other special values strewn in. If sign is -1, about half of all are negative."""
    x = powers(shape, dtype)
    flat, limits = x.reshape(-1), np.finfo(dtype)
    for i, value in enumerate([0, np.nan, np.inf, 1e20, limits.smallest_subnormal, limits.tiny, limits.max]):
        flat[2 + 7 * i :: 151] = dtype.type(value)
    return np.where(smooth(shape, F64, 1) < 0, sign * x, x)


CASES = {name: replace(case, options={"predictor": "lorenzo", **case.options}) for name, case in CASES.items()}

LOG_CASES: dict[str, Case] = {}
for _dtype, _name in ((F32, "f32"), (F64, "f64")):
    _cases = {
        "logs": Case(lambda t=_dtype: powers((9, 17, 35), t), 1e-2),
        "logs_wide": Case(lambda t=_dtype: powers((40, 50), t), 1e-6),
        "logs_and_others": Case(lambda t=_dtype: powers_and_others((40, 50), t), 1e-3),
        "logs_fill": Case(lambda t=_dtype: powers_and_others((40, 50), t), 1e-3, options={"fill": 1e20}),
        "logs_too_fine": Case(lambda t=_dtype: powers((700,), t), 1e-17),
        # Their signs are stored by zstd, whose bytes change between versions.
        "logs_signed": Case(
            lambda t=_dtype: powers_and_others((9, 17, 35), t, -1), 1e-3, written=False, needs_zstd=True
        ),
    }
    LOG_CASES |= {
        f"{_name}_{name}_{predictor}": replace(case, mode="pw_rel", options={"predictor": predictor, **case.options})
        for name, case in _cases.items()
        for predictor in ("lorenzo", "spline")
    }

#: Written by releases that had no map in small fields, or estimated such fields otherwise. What is written instead is
#: in cases with "_again" at the end.
FORMER = {
    *[
        f"{t}_{name}"
        for t in ("f32", "f64")
        for name in ("fill", "fill_of_infinity", "fill_of_zero", "nan_inf", "spikes")
    ],
    *[f"{t}_{name}" for t in ("f32", "f64") for name in ("layers", "rows", "near_largest")],
    *[f"{t}_logs_{name}_spline" for t in ("f32", "f64") for name in ("and_others", "fill", "wide")],
    *["f32_waves", "f64_random_bits"],
}


def _with_former(cases: dict[str, Case]) -> dict[str, Case]:
    again = {f"{name}_again": case for name, case in cases.items() if name in FORMER}
    return {name: replace(case, written=case.written and name not in FORMER) for name, case in cases.items()} | again


SPLINE_CASES, LOG_CASES = _with_former(SPLINE_CASES), _with_former(LOG_CASES)

#: By version. Some cases of version 2 have an archive of version 1, because version 2 gains nothing there.
CASES_OF = {1: CASES, 2: SPLINE_CASES | LOG_CASES}
