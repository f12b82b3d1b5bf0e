"""Verification that an archive keeps its bound, against the original field and without any tolerance."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _native, device_memory
from .arguments import ArchiveLike, DeviceArray
from .codec import compress, decompress, value_range
from .errors import BoundError, ParameterError
from .info import ArchiveInfo, inspect, json_value
from .parameters import Backend

_CHUNK = 1 << 16  # values compared at a time, so that intermediate arrays stay in the caches


class Effects(NamedTuple):
    """The effects of a bound on values relative to their own size: shares of those that are finite, not fill and not 0.

    A bound that is small compared with a field's largest values may be large compared with most of them.

    Attributes:
        to_zero: become 0.
        other_sign: change their sign.
        off_1_percent, off_10_percent: are off by more than 1% and 10% of their own size, including those above.
    """

    to_zero: float = 0.0
    other_sign: float = 0.0
    off_1_percent: float = 0.0
    off_10_percent: float = 0.0

    def __str__(self) -> str:
        shares = zip(("become 0", "change sign", "off by > 1%", "off by > 10%"), self, strict=True)
        return ", ".join(f"{percent(share)} {what}" for what, share in shares)


def percent(share: float) -> str:
    """Formats a share; only exactly 0 is printed as "0": "<0.1%", "12%"."""
    if 0 < share < 1e-3:
        return "<0.1%"
    if 0.995 <= share < 1:
        return ">99%"
    return "0" if share == 0 else f"{100 * share:.1f}%" if share < 0.1 else f"{share:.0%}"


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of comparing a field with its archive; the bound holds, or `verify` would have raised an error.

    Attributes:
        shape, dtype: of the field.
        mode, eb, eb_abs: the bound as requested, and the absolute bound in force (0: every value is exact; NaN for mode
            "pw_rel").
        max_error: largest |original - decoded|, in the field's unit.
        max_error_over_eb: the largest error as a fraction of the bound for its value, at most 1; 0 if every value is
            exact.
        psnr: 20 log10((max - min) / RMSE) in dB, over finite values that are not fill; infinite if all are exact.
        ratio: raw bytes over archive bytes.
        bit_rate: archive bits per value.
        values: finite values that are not fill.
        special: NaN, infinite and fill values; all came back bit for bit.
        raw_bytes, archive_bytes: sizes.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    mode: str
    eb: float
    eb_abs: float
    max_error: float
    max_error_over_eb: float
    psnr: float
    ratio: float
    bit_rate: float
    values: int
    special: int
    raw_bytes: int
    archive_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain Python values that JSON can hold (NaN and infinities as strings)."""
        d = dataclasses.asdict(self)
        d["shape"], d["dtype"] = list(self.shape), self.dtype.name
        return {key: json_value(value) for key, value in d.items()}


class Violations:
    """Counts the values that break the bound, and records the worst."""

    def __init__(self) -> None:
        self.count = 0
        self.position = -1
        self.excess = -1.0

    def add(self, positions: NDArray[np.intp], excess: NDArray[np.float64]) -> None:
        if positions.size == 0:
            return
        self.count += positions.size
        worst = int(np.argmax(excess))
        if excess[worst] > self.excess:
            self.position, self.excess = int(positions[worst]), float(excess[worst])


def verify(
    x: NDArray[Any] | DeviceArray, archive: ArchiveLike, *, backend: Backend = "auto", threads: int | None = None
) -> Verification:
    """Decompresses an archive and compares it with the field that it was made from.

    The check is exact: |d - d'| <= eb is decided without rounding, for every value. Values that are not finite or are
    equal to fill must come back bit for bit, and so must every value if the bound is 0. In mode "pw_rel" the bound of a
    value is eb * |d|; its sign must be kept, and zeros come back bit for bit.

    Args:
        x: the original field, as `compress` accepts it. A field on a device is copied to the host and compared there.
        archive: its archive, as `decompress` accepts it.
        backend: decompresses it, as in `decompress`; the comparison always runs on the CPU.
        threads: CPU threads; None as in `compress`.

    Returns:
        A `Verification`: largest error, PSNR, ratio.

    Raises:
        BoundError: the bound is broken; its attributes say where.
        ParameterError: `x` has a different shape or dtype from the archive.
        CorruptArchiveError, ArchiveTooNewError, UnsupportedError, OutOfMemoryError: as `decompress`.
    """
    return verified_and_decoded(x, archive, backend=backend, threads=threads)[0]


def verified_and_decoded(
    x: NDArray[Any] | DeviceArray, archive: ArchiveLike, *, backend: Backend = "auto", threads: int | None = None
) -> tuple[Verification, NDArray[Any]]:
    """As `verify`, but also returns the decoded values as a one-dimensional array."""
    original = on_host(x)
    info = inspect(archive)
    if original.dtype != info.dtype or original.shape != info.shape:
        raise ParameterError(
            f"x is {original.dtype.name} of shape {original.shape}, "
            f"the archive holds {info.dtype.name} of shape {info.shape}: they are not of the same field"
        )
    limits = value_range(original, info.fill, threads=threads)
    bound = _bound_to_keep(info, limits.min, limits.max)

    decoded = decompress(archive, backend=backend, threads=threads).reshape(-1)
    flat = original.reshape(-1)
    is_pointwise = info.mode == "pw_rel"
    violations, squares = compare(flat, decoded, bound, info.fill, is_pointwise)
    if violations.count:
        raise _bound_error(info, flat, decoded, violations)

    return Verification(
        shape=info.shape,
        dtype=info.dtype,
        mode=info.mode,
        eb=info.eb,
        eb_abs=info.eb_abs,
        max_error=squares.largest,
        max_error_over_eb=squares.largest_share if is_pointwise or not info.eb_abs else squares.largest / info.eb_abs,
        psnr=squares.psnr(limits.min, limits.max, limits.values),
        ratio=info.ratio,
        bit_rate=info.bit_rate,
        values=limits.values,
        special=info.size - limits.values,
        raw_bytes=info.raw_bytes,
        archive_bytes=info.archive_bytes,
    ), decoded


def on_host(x: NDArray[Any] | DeviceArray) -> NDArray[Any]:
    """A field, as `compress` accepts it, in host memory; copied only if it is on a device, or not C-contiguous."""
    field = device_memory.field(x)
    return field if isinstance(field, np.ndarray) else decompress(compress(x, 0.0))  # lossless to the bit


def _bound_to_keep(info: ArchiveInfo, lowest: float, highest: float) -> float:
    """The bound that values are held to: the archive's, or 0 if all values besides missing ones are zero.

    Raises:
        BoundError: the archive's absolute bound is looser than the one requested.
    """
    if info.mode == "pw_rel":
        return info.eb
    allowed = _native.absolute_bound(info.eb, lowest, highest) if info.mode == "rel" else info.eb
    if info.mode == "rel" and lowest == highest == 0 and info.eb_abs == float(np.finfo(info.dtype).tiny):
        return allowed
    if not info.eb_abs <= allowed:
        raise BoundError(
            f"the archive's absolute bound is {info.eb_abs!r}, but eb={info.eb!r} in mode {info.mode!r} allows "
            f"{allowed!r} for this field",
            bound=allowed,
        )
    return info.eb_abs


def compare(
    original: NDArray[Any], decoded: NDArray[Any], bound: float, fill: float | None, is_pointwise: bool = False
) -> tuple[Violations, SumOfSquares]:
    """The values of `decoded` that break the bound, and the errors of those that may differ from `original`. Both
    arrays are one-dimensional and have the same dtype. is_pointwise: the bound is relative to every value."""
    violations, squares = Violations(), SumOfSquares()
    for start in range(0, original.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        _compare(start, original[part], decoded[part], bound, fill, is_pointwise, violations, squares)
    return violations, squares


class EffectsOfAll:
    """Accumulates the effects of decoding, piece by piece."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(Effects._fields), np.int64)
        self._total = 0

    def add(self, original: NDArray[Any], decoded: NDArray[Any], fill: float | None) -> None:
        """Adds a piece. Both arrays are one-dimensional and have the same dtype."""
        for start in range(0, original.size, _CHUNK):
            a, b = (x[start : start + _CHUNK].astype(np.float64) for x in (original, decoded))
            counted = np.isfinite(a) & (a != 0)
            if fill is not None:
                with np.errstate(over="ignore"):
                    counted &= a != float(np.float64(fill).astype(original.dtype))
            a, b = a[counted], b[counted]
            self._total += a.size
            changes_sign = (b != 0) & (np.signbit(a) != np.signbit(b))
            with np.errstate(over="ignore"):
                off = np.abs(a - b) / np.abs(a)  # a fraction of a subnormal number would be rounded
            found = (b == 0, changes_sign, off > 0.01, off > 0.1)
            self._counts += [np.count_nonzero(those) for those in found]

    @property
    def shares(self) -> Effects:
        return Effects(*(self._counts / self._total).tolist()) if self._total else Effects()


def effects(original: NDArray[Any], decoded: NDArray[Any], fill: float | None) -> Effects:
    """The effects of decoding. Both arrays are one-dimensional and have the same dtype."""
    found = EffectsOfAll()
    found.add(original, decoded, fill)
    return found.shares


def _compare(
    start: int,
    a: NDArray[Any],
    b: NDArray[Any],
    bound: float,
    fill: float | None,
    is_pointwise: bool,
    violations: Violations,
    squares: SumOfSquares,
) -> None:
    """Compares one chunk of the original, `a`, and of the decoded field, `b`."""
    unsigned = np.uint32 if a.dtype.itemsize == 4 else np.uint64
    differs = np.flatnonzero(a.view(unsigned) != b.view(unsigned))
    if differs.size == 0:
        return
    a, b = a[differs], b[differs]
    may_differ = np.isfinite(a)
    if fill is not None:
        with np.errstate(over="ignore"):
            fill_bits = np.array([fill]).astype(a.dtype).view(unsigned)[0]
        may_differ &= a.view(unsigned) != fill_bits
    if bound == 0:
        may_differ[:] = False
    if is_pointwise:  # zeros and signs are kept
        may_differ &= (a != 0) & (np.signbit(a) == np.signbit(b))

    if not may_differ.all():
        must_be_same = differs[~may_differ]
        violations.add(start + must_be_same, np.full(must_be_same.size, np.inf))
        differs, a, b = differs[may_differ], a[may_differ], b[may_differ]
        if differs.size == 0:
            return
    left, right = a.astype(np.float64), b.astype(np.float64)
    if is_pointwise:
        broken = _breaks_pointwise(left, right, bound, squares)
        with np.errstate(over="ignore", invalid="ignore"):
            error = np.abs(left - right)
        violations.add(start + differs[broken], np.where(np.isnan(error[broken]), np.inf, error[broken]))
        squares.add(error)
        return
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(left - right)
        # Rounding is monotone and the bound is a double: if the rounded difference is below it, so is the true one,
        # and likewise above it. Only equality is undecided.
        broken = ~(error <= bound)
    ties = np.flatnonzero(error == bound)
    broken[ties] = _exceeds_when_rounding_hides_it(left[ties], right[ties], bound)
    violations.add(start + differs[broken], np.where(np.isnan(error[broken]), np.inf, error[broken]))
    squares.add(error)


def _breaks_pointwise(
    left: NDArray[np.float64], right: NDArray[np.float64], bound: float, squares: SumOfSquares
) -> NDArray[np.bool_]:
    """Whether |left - right| > bound * |left|, for values that are not 0."""
    # Scaling by powers of two is exact, and keeps everything below from being subnormal or overflowing.
    scale = np.where(np.abs(left) < 2.0**-500, 2.0**500, np.where(np.abs(left) > 2.0**500, 2.0**-100, 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        error, limit = np.abs(left * scale - right * scale), bound * np.abs(left * scale)
        broken = ~(error <= limit) | ~np.isfinite(right)
        unclear = np.abs(error - limit) <= 2.0**-50 * limit  # both sides are rounded
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        shares = np.minimum(error / limit, 1.0)
    squares.largest_share = max(squares.largest_share, float(np.nanmax(shares, initial=0.0)))
    for i in np.flatnonzero(unclear & np.isfinite(right)):
        exact = Fraction(float(left[i]))
        broken[i] = abs(exact - Fraction(float(right[i]))) > Fraction(bound) * abs(exact)
    return broken


def _exceeds_when_rounding_hides_it(
    left: NDArray[np.float64], right: NDArray[np.float64], bound: float
) -> NDArray[np.bool_]:
    """Whether |left - right| > bound, where the rounded difference equals the bound."""
    # Knuth's TwoSum: difference + rest is exactly left - right.
    difference = left - right
    with np.errstate(over="ignore", invalid="ignore"):
        subtrahend = difference - left
        rest = (left - (difference - subtrahend)) - (right + subtrahend)
        rest = np.where(difference < 0, -rest, rest)
        exceeds: NDArray[np.bool_] = ~(rest <= 0)
    for i in np.flatnonzero(exceeds):  # few or none, so confirm them in rational arithmetic
        exceeds[i] = abs(Fraction(float(left[i])) - Fraction(float(right[i]))) > Fraction(bound)
    return exceeds


class SumOfSquares:
    """Sum of squared errors that neither overflows nor underflows, and the largest error; finite errors only."""

    def __init__(self) -> None:
        self.largest = 0.0
        self.not_finite = 0  # number of other errors, which are left out
        self.largest_share = 0.0  # largest error as a fraction of its value's bound; for pointwise bounds
        self.scaled_sum = 0.0  # in units of largest ** 2

    def add(self, errors: NDArray[np.float64]) -> None:
        if not math.isfinite(largest := float(np.max(errors))):
            are_finite = np.isfinite(errors)
            self.not_finite += int(np.count_nonzero(~are_finite))
            errors = errors[are_finite]
            largest = float(np.max(errors, initial=0.0))
        if largest == 0.0:
            return
        if largest > self.largest:
            self.scaled_sum *= (self.largest / largest) ** 2
            self.largest = largest
        scaled = errors / self.largest
        self.scaled_sum += float(np.square(scaled, out=scaled).sum())  # np.dot would start BLAS's threads

    def merge(self, other: SumOfSquares) -> None:
        """Adds the errors of another part of the field."""
        self.not_finite += other.not_finite
        if other.largest > self.largest:
            self.scaled_sum *= (self.largest / other.largest) ** 2
            self.largest = other.largest
        self.largest_share = max(self.largest_share, other.largest_share)
        if other.largest:
            self.scaled_sum += other.scaled_sum * (other.largest / self.largest) ** 2

    def psnr(self, lowest: float, highest: float, count: int) -> float:
        """PSNR in dB, for `count` values in this range; infinite if all are exact, NaN if all errors are left out."""
        if self.scaled_sum == 0.0:
            return math.nan if self.not_finite else math.inf
        size, scale = scaled_range(lowest, highest)
        if size == 0.0:
            return -math.inf
        log_rmse = math.log10(self.largest) + 0.5 * math.log10(self.scaled_sum / (count - self.not_finite))
        return 20 * (math.log10(size) - math.log10(scale) - log_rmse)


def scaled_range(lowest: float, highest: float) -> tuple[float, float]:
    """The size of a value range times a scale, and that scale: 1, or 1/2 where the size itself would overflow. (Not
    always 1/2, because halving rounds subnormal numbers.)"""
    scale = 1.0 if math.isfinite(highest - lowest) else 0.5
    return highest * scale - lowest * scale, scale


def _bound_for(info: ArchiveInfo, original: float) -> float:
    return info.eb * abs(original) if info.mode == "pw_rel" else info.eb_abs


def _bound_error(info: ArchiveInfo, flat: NDArray[Any], decoded: NDArray[Any], violations: Violations) -> BoundError:
    position = violations.position
    index = tuple(int(i) for i in np.unravel_index(position, info.shape))
    original, result = float(flat[position]), float(decoded[position])
    if math.isinf(violations.excess):
        what = f"original {original!r} came back as {result!r}, not bit for bit"
    else:
        bound = f"{info.eb!r} of it" if info.mode == "pw_rel" else repr(info.eb_abs)
        what = f"original {original!r}, decoded {result!r}: they differ by {violations.excess!r}, beyond {bound}"
    return BoundError(
        f"{violations.count} of {info.size} values break the bound; the worst, at {index}: {what}",
        violations=violations.count,
        index=index,
        original=original,
        decoded=result,
        bound=0.0 if math.isinf(violations.excess) else _bound_for(info, original),
    )
