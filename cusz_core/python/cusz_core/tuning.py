"""Error bounds for those who know what they want of the result, but not which bound gives it.

    tuned = find_bound(x, psnr=80)     # the largest bound found that keeps 80 dB
    tuned = find_bound(x, ratio=20)    # the smallest bound found that gives a ratio of 20
    for row in survey(x): ...          # what a few bounds give

Bounds are tried on a sample of a large field, where ratio and PSNR come close to those of the whole. What `find_bound`
returns has then been tried on the whole field, and `verify` has compared the result.
"""

from __future__ import annotations

import dataclasses
import decimal
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _native, arguments
from .codec import ValueRange, compress_with, decompress, value_range
from .errors import ParameterError, UnsupportedError
from .info import inspect, json_value
from .parameters import Mode, Options, Parameters
from .verification import Verification, compare, verify

if TYPE_CHECKING:
    from typing import Unpack  # of Python 3.11

__all__ = [
    "BOUNDS",
    "Mark",
    "OutOfReachError",
    "Outcome",
    "Sample",
    "TunedBound",
    "box_shape",
    "box_start",
    "find_bound",
    "likely_fill",
    "rounded",
    "sample",
    "survey",
]

#: The bounds of a survey, as fractions of the value range.
BOUNDS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)

_WHOLE = 1 << 21  # values: a smaller field is its own sample
_SAMPLE = 1 << 20  # values of a sample at least
_SAMPLED = 16  # of a large field, one value in so many
#: Edges of the boxes of a sample, by the number of axes. Tiles of the Lorenzo pipeline are independent of each other,
#: so many small boxes say most. With the spline pipeline a box is worse off than the field at each of its borders.
_SMALL_BOXES = ((16384,), (64, 64), (16, 32, 32), (1, 16, 32, 32))
_LARGE_BOXES = ((65536,), (256, 256), (64, 64, 64), (4, 32, 32, 32))

_DIGITS = 3  # of a bound that is found
_OCTAVES = 60.0  # bounds are sought from the value range down to 2^-60 of it
_FIRST_OCTAVES = 10.0  # for a ratio, the search begins with 2^-10 of it
_TRIALS = 24  # on a sample, for one search
_WHOLE_TRIALS = 4  # on the whole field, unless the goal is not reached by then
_PSNR_WITHIN = 0.5  # dB above the goal
_RATIO_WITHIN = math.log(1.04)  # above the goal
_AIM = 0.3  # of that: where a search aims
_NARROW = math.log2(1.01)  # octaves: as far apart as bounds of three digits may be
#: Of a field that may be evenly spaced: values looked at, different ones among them, and steps over its range at most.
_FEW, _FEW_DIFFERENT, _MOST_STEPS = 1 << 16, 1 << 12, 1e6


class OutOfReachError(ParameterError):
    """No bound gives the ratio that was asked for."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a bound gives.

    Attributes:
        eb: the absolute bound, in the field's unit; the bound relative to every value if that was asked for.
        relative: the absolute one as a fraction of the value range; NaN if the range is 0, or there is no absolute one.
        ratio: raw bytes over archive bytes.
        bit_rate: archive bits per value.
        psnr: in dB, as in `Verification`; infinite if every value is exact.
        max_error: largest |original - decoded|, in the field's unit.
        share: of the field's values that were compressed to know this; 1: all of them. Less: an estimate.
    """

    eb: float
    relative: float
    ratio: float
    bit_rate: float
    psnr: float
    max_error: float
    share: float

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain Python values that JSON can hold (NaN and infinities as strings)."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}  # no archive
        return {key: json_value(value) for key, value in own.items()}


@dataclasses.dataclass(frozen=True)
class TunedBound(Outcome):
    """The bound that `find_bound` found, and what it gives.

    Attributes:
        compressions: how often the whole field was compressed.
        archive: the whole field, compressed with this bound, and verified; None if only a sample was given.
    """

    compressions: int
    archive: bytes | None = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Sample:
    """Values that stand for a field.

    Attributes:
        x: boxes of the field, one behind the other along the first axis; or the field itself.
        size: values in an archive of the field. (Where every block of it gets an archive: values of a block.)
        limits: value range of the field. `values` is the number in `x` that are finite and not fill.
        share: of the field's values that are in `x`; 1: `x` is the field.
    """

    x: NDArray[Any]
    size: int
    limits: ValueRange
    share: float

    @property
    def is_field(self) -> bool:
        return self.share == 1 and self.size == self.x.size


class Mark(NamedTuple):
    """A value that may mean "no data", and its share of a sample's values."""

    value: float
    share: float


# ---------------------------------------------------------------------------------------------------------- samples


def sample(x: NDArray[Any], **options: Unpack[Options]) -> Sample:
    """A sample of a field: the same values for the same field and parameters.

    Args:
        x: numpy array as `compress` accepts it.
        options: parameters of the compression; `predictor` decides how large the boxes are.

    Returns:
        A `Sample`: of one value in 16, or 2^20 values if these are more. A field of at most 2^21 values is its own.

    Raises:
        UnsupportedError: a type or layout that is not accepted.
        ParameterError: a parameter out of range.
    """
    field = _host_field(x)
    special, threads = options.get("fill"), options.get("threads")
    limits = value_range(field, special, threads=threads)
    if field.size <= _WHOLE:
        return Sample(field, field.size, limits, 1.0)
    field = field.reshape([extent for extent in field.shape if extent > 1])
    box = box_shape(field.shape, options.get("predictor", "lorenzo"))
    n_boxes = math.ceil(max(_SAMPLE, field.size / _SAMPLED) / math.prod(box))
    parts = np.concatenate([field[_slices(box_start(field.shape, box, number), box)] for number in range(n_boxes)])
    values = value_range(parts, special, threads=threads).values
    return Sample(parts, field.size, limits._replace(values=values), parts.size / field.size)


def _host_field(x: NDArray[Any]) -> NDArray[Any]:
    if not isinstance(x, np.ndarray):
        raise UnsupportedError(f"x is {arguments.describe(x)}; bounds are tried on numpy arrays, in host memory")
    return arguments.field(x)


def box_shape(shape: Sequence[int], predictor: str = "lorenzo") -> tuple[int, ...]:
    """Extents of the boxes in which a field of 1 to 4 dimensions, none of extent 1, is sampled. An axis that is shorter
    than two boxes is taken whole, with the tiles at its end."""
    edges = (_SMALL_BOXES if predictor == "lorenzo" else _LARGE_BOXES)[len(shape) - 1]
    return tuple(extent if extent < 2 * edge else edge for extent, edge in zip(shape, edges, strict=True))


def box_start(shape: Sequence[int], box: Sequence[int], number: int) -> tuple[int, ...]:
    """Where a box of a sample begins. However many there are, they are spread evenly (an additive recurrence with
    powers of the root of r^(n+1) = r + 1), and not on a lattice that a periodic field could be in step with."""
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (len(shape) + 1))
    places = [(0.5 + (number + 1) / root ** (axis + 1)) % 1 for axis in range(len(shape))]
    return tuple(int(place * (extent - edge + 1)) for place, extent, edge in zip(places, shape, box, strict=True))


def _slices(start: Sequence[int], box: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(first, first + edge) for first, edge in zip(start, box, strict=True))


def likely_fill(found: Sample) -> Mark | None:
    """A value that looks like a mark for "no data" which `fill` does not name: the smallest or the largest one, there
    more than once, and farther from all others than ten times their range. None: there is none."""
    values = found.x[np.isfinite(found.x)]
    for mark in (values.max(), values.min()) if values.size else ():
        others = values[values != mark].astype(np.float64) / 2  # differences of halves do not overflow
        if others.size == 0 or values.size - others.size < 2:
            continue
        low, high = others.min(), others.max()
        if 0 < 10 * (high - low) < max(mark / 2 - high, low - mark / 2):
            return Mark(float(mark), (values.size - others.size) / found.x.size)
    return None


# ----------------------------------------------------------------------------------------------- what bounds give


def survey(
    x: NDArray[Any] | Sample, bounds: Sequence[float] = BOUNDS, mode: Mode = "rel", **options: Unpack[Options]
) -> list[Outcome]:
    """What each of a few bounds gives.

    Args:
        x: a numpy array, as `compress` accepts it; or a `Sample`.
        bounds: as `compress` accepts them.
        mode: "rel": they are fractions of the field's value range; "abs": in its unit; "pw_rel": fractions of every
            value.
        options: further parameters, as for `compress`.

    Returns:
        An `Outcome` for each bound: estimated from a sample if the field has more than 2^21 values.

    Raises:
        UnsupportedError, DeviceError, OutOfMemoryError: as `compress`.
        ParameterError: a parameter out of range.
    """
    checked = [Parameters(eb, mode, **options) for eb in bounds]
    found = x if isinstance(x, Sample) else sample(x, **options)
    lowest, highest, _ = found.limits
    outcomes = []
    for parameters in checked:
        if mode == "rel":
            eb = _native.absolute_bound(parameters.eb, lowest, highest)
            parameters = dataclasses.replace(parameters, eb=eb, mode="abs")
        outcomes.append(_try(found, parameters))
    return outcomes


def _try(found: Sample, parameters: Parameters) -> Outcome:
    """What an absolute bound gives for a sample, scaled to the field."""
    x = found.x
    archive = compress_with(x, parameters)
    info = inspect(archive)
    decoded = decompress(archive, backend=parameters.backend, threads=parameters.threads)
    bound, is_pointwise = (info.eb, True) if info.mode == "pw_rel" else (info.eb_abs, False)
    _, squares = compare(x.reshape(-1), decoded.reshape(-1), bound, info.fill, is_pointwise)
    archive_bytes, raw_bytes = len(archive), found.size * x.itemsize
    if not found.is_field:
        once = info.sections.header + info.sections.codebook  # the rest grows with the field
        archive_bytes = once + math.ceil((archive_bytes - once) * found.size / x.size)
        archive_bytes = min(archive_bytes, raw_bytes + _native.RAW_OVERHEAD_BYTES)
    lowest, highest, values = found.limits
    return Outcome(
        eb=parameters.eb,
        relative=math.nan if is_pointwise else _relative(parameters.eb, found.limits),
        ratio=raw_bytes / archive_bytes,
        bit_rate=8 * archive_bytes / found.size if found.size else 0.0,
        psnr=squares.psnr(lowest, highest, values),
        max_error=squares.largest,
        share=found.share,
    )


def _relative(eb: float, limits: ValueRange) -> float:
    half_range = limits.max / 2 - limits.min / 2  # the range itself may overflow
    return eb / 2 / half_range if half_range else math.nan


def rounded(eb: float, digits: int, *, up: bool = False) -> float:
    """A bound of so many significant decimal digits: not larger than `eb`, or with `up` not smaller."""
    exact = decimal.Decimal(eb)
    last = decimal.Decimal((0, (1,), exact.adjusted() - digits + 1))
    return float(exact.quantize(last, decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR))


# ----------------------------------------------------------------------------------------------------- the search


def find_bound(
    x: NDArray[Any] | Sample,
    *,
    psnr: float | None = None,
    ratio: float | None = None,
    **options: Unpack[Options],
) -> TunedBound:
    """Finds an absolute error bound by what it gives: a PSNR or a ratio.

    Bounds have three significant digits (up to six where the field's values are evenly spaced, such as integers), and
    are at most its value range. PSNR and ratio are not quite monotone in the bound: what is found is within 0.5 dB or
    4% of the goal if the search met such a bound, and nothing says that there is none beyond it. Of a field of more
    than 2^21 values, a sample is searched first, and then corrected by what the whole field gives.

    Args:
        x: a numpy array, as `compress` accepts it; or a `Sample`, for an estimate.
        psnr: in dB, as in `Verification`: the largest bound found whose PSNR is not below it. 0 (lossless) if there is
            no other.
        ratio: above 1: the smallest bound found whose ratio is not below it.
        options: further parameters, as for `compress`.

    Returns:
        A `TunedBound`. Its archive has been made of the whole field and verified, so it is known, not estimated, to
        reach the goal (unless `x` is a `Sample`).

    Raises:
        UnsupportedError, DeviceError, OutOfMemoryError: as `compress`.
        ParameterError: a parameter out of range, or not exactly one goal.
        OutOfReachError: no bound gives the ratio; the message has the best one.
        BoundError: the archive is not what it should be.
    """
    goal = _goal(psnr, ratio)
    parameters = Parameters(0.0, **options)
    if isinstance(x, Sample):
        return _Search(x, goal, parameters).of_sample()
    field = _host_field(x)
    return _Search(sample(field, **options), goal, parameters).of_field(field)


class _Goal(NamedTuple):
    """What is wanted.

    Attributes:
        target: PSNR in dB, or ratio.
        is_psnr: which of these.
    """

    target: float
    is_psnr: bool

    def surplus(self, psnr: float, ratio: float) -> float:
        """By how much it is surpassed, as a multiple of what is let pass; negative: it is missed."""
        if self.is_psnr:
            return (psnr - self.target) / _PSNR_WITHIN
        return math.log(ratio / self.target) / _RATIO_WITHIN if ratio else -math.inf

    @property
    def slope(self) -> float:
        """Of the surplus in octaves of the bound, roughly: 6 dB, a ratio 20% higher."""
        return 6.02 / _PSNR_WITHIN if self.is_psnr else 0.18 / _RATIO_WITHIN


def _goal(psnr: float | None, ratio: float | None) -> _Goal:
    if (psnr is None) == (ratio is None):
        raise ParameterError(f"psnr is {psnr} and ratio is {ratio}; exactly one of them must be given")
    if psnr is not None:
        target = arguments.real(psnr, "psnr", "a number of decibels, such as psnr=80")
        if not math.isfinite(target):
            raise ParameterError(f"psnr is {target}; it must be finite (eb=0 is lossless)")
        return _Goal(target, True)
    target = arguments.real(ratio, "ratio", "a number, such as ratio=20")
    if not 1 < target < math.inf:
        raise ParameterError(f"ratio is {target}; it must be finite and above 1")
    return _Goal(target, False)


class _Trial(NamedTuple):
    """A bound that was tried on the whole field; the archive is compared with the field where its PSNR matters."""

    eb: float
    archive: bytes
    ratio: float
    checked: Verification | None


class _Search:
    """The search for one bound.

    A *position* is the number of octaves from the value range down to a bound, for a PSNR with its sign changed: the
    goal is always the largest position at which the surplus is not negative.
    """

    def __init__(self, found: Sample, goal: _Goal, parameters: Parameters) -> None:
        self.sample, self.goal, self.parameters = found, goal, parameters
        self.largest = _native.absolute_bound(1.0, found.limits.min, found.limits.max) or abs(found.limits.max) or 1.0
        self.low, self.high = (-_OCTAVES, 0.0) if goal.is_psnr else (0.0, _OCTAVES)
        self.outcomes: dict[float, Outcome] = {}

    def bound(self, position: float) -> float:
        """The bound at a position, rounded to the side where the goal is reached."""
        eb = self.largest * 2.0 ** -abs(position)
        if eb == 0:
            return math.ulp(0.0)
        return min(rounded(eb, _DIGITS, up=not self.goal.is_psnr), self.largest)

    def position(self, eb: float) -> float:
        octaves = math.log2(self.largest / eb) if eb else _OCTAVES
        return -octaves if self.goal.is_psnr else octaves

    def outcome(self, eb: float) -> Outcome:
        """What a bound gives for the sample."""
        if eb not in self.outcomes:
            self.outcomes[eb] = _try(self.sample, dataclasses.replace(self.parameters, eb=eb))
        return self.outcomes[eb]

    def surplus(self, eb: float) -> float:
        """On the sample."""
        outcome = self.outcome(eb)
        return self.goal.surplus(outcome.psnr, outcome.ratio)

    def on_sample(self, start: float, correction: float = 0.0) -> float:
        """The position of the goal on the sample; the lowest one if the goal is not reached there."""
        return _largest(lambda p: self.surplus(self.bound(p)) + correction, start, self.goal.slope, self.low, self.high)

    def estimate(self) -> float:
        """The bound, according to the sample. 0: no other gives the PSNR."""
        exact = self.exact_bound() if self.goal.is_psnr else None
        if exact and math.isnan(_relative(exact, self.sample.limits)):  # only exactness gives a PSNR then
            return exact if self.surplus(exact) >= 0 else 0.0
        if not self.goal.is_psnr:
            return self.bound(self.on_sample(_FIRST_OCTAVES))
        octaves = self.goal.target / (20 * math.log10(2)) - math.log2(3) / 2  # if errors are uniform within the bound
        bounds = [self.bound(self.on_sample(-octaves)), exact]
        return max((eb for eb in bounds if eb and self.surplus(eb) >= 0), default=0.0)

    def exact_bound(self) -> float | None:
        """A bound that keeps all values of a field whose values are few and evenly spaced, such as integers, where
        smaller bounds do not."""
        x, limits = self.sample.x, self.sample.limits
        if limits.min == limits.max:
            return abs(limits.max) / 2 or 1.0
        values = x.reshape(-1)[:: max(1, x.size // _FEW)]
        halves = np.unique(values[(values >= limits.min) & (values <= limits.max)]).astype(np.float64) / 2
        if not 1 < halves.size <= _FEW_DIFFERENT:
            return None
        half_range, spacing = float(halves[-1] - halves[0]), float(np.diff(halves).min())
        if spacing * _MOST_STEPS < half_range:
            return None
        return float(f"{half_range / round(half_range / spacing):.6g}")

    def of_sample(self) -> TunedBound:
        outcome = self.outcome(self.estimate())
        if self.goal.surplus(outcome.psnr, outcome.ratio) < 0:
            raise self.out_of_reach({outcome.eb: outcome.ratio})
        return TunedBound(**dataclasses.asdict(outcome), compressions=0, archive=None)

    def of_field(self, x: NDArray[Any]) -> TunedBound:
        """Corrects what the sample says until the whole field reaches the goal without going far beyond."""
        best: _Trial | None = None
        ratios: dict[float, float] = {}  # by the bounds that were tried
        reached, missed, stride = -math.inf, math.inf, _NARROW
        eb = self.estimate()
        while eb not in ratios:
            trial = self.on_field(x, eb)
            ratios[eb] = trial.ratio
            surplus = self.goal.surplus(trial.checked.psnr if trial.checked else math.nan, trial.ratio)
            position = self.position(eb)
            if surplus >= 0:
                best, reached = trial, position
                if surplus <= 1 or surplus == math.inf or position >= self.high or self.sample.is_field:
                    break
            elif position > self.low:
                missed = position
            elif self.goal.is_psnr:
                eb = 0.0
                continue
            else:
                raise self.out_of_reach(ratios)
            if best and (len(ratios) >= _WHOLE_TRIALS or missed - reached < _NARROW):
                break
            correction = surplus - self.surplus(eb)
            step = (surplus - _AIM) / self.goal.slope
            position = self.on_sample(position, correction) if math.isfinite(correction) else position + step
            if best is None:
                position, stride = max(min(position, missed - stride), self.low), 2 * stride
            elif not reached < position < missed:
                position = min(reached + step, (reached + missed) / 2)
            eb = self.bound(position)
        assert best is not None  # every PSNR is reached by eb = 0 at last
        checked = best.checked or self.verified(x, best.archive)
        return TunedBound(
            eb=best.eb,
            relative=_relative(best.eb, self.sample.limits),
            ratio=checked.ratio,
            bit_rate=checked.bit_rate,
            psnr=checked.psnr,
            max_error=checked.max_error,
            share=1.0,
            compressions=len(ratios) + (len(self.outcomes) if self.sample.is_field else 0),
            archive=best.archive,
        )

    def on_field(self, x: NDArray[Any], eb: float) -> _Trial:
        archive = compress_with(x, dataclasses.replace(self.parameters, eb=eb))
        checked = self.verified(x, archive) if self.goal.is_psnr else None
        return _Trial(eb, archive, inspect(archive).ratio, checked)

    def verified(self, x: NDArray[Any], archive: bytes) -> Verification:
        return verify(x, archive, backend=self.parameters.backend, threads=self.parameters.threads)

    def out_of_reach(self, ratios: dict[float, float]) -> OutOfReachError:
        if not self.sample.size:
            return OutOfReachError(f"ratio is {self.goal.target:g}, but the field is empty")
        if self.sample.is_field:
            ratios = {eb: outcome.ratio for eb, outcome in self.outcomes.items()} | ratios
        eb = max(ratios, key=lambda bound: ratios[bound])
        return OutOfReachError(
            f"ratio is {self.goal.target:g}; the best found for this field is {ratios[eb]:.4g}, with the bound {eb:g} "
            "(none larger than its value range is tried)"
        )


def _largest(surplus: Callable[[float], float], start: float, slope: float, low: float, high: float) -> float:
    """The largest position found at which a function that falls, by and large, is not negative; `low` if none is.

    Args:
        surplus: the function; a position is good enough if it is 0 to 1 there.
        start: where to begin.
        slope: how much it may fall from a position to the next, for the first steps.
        low, high: where to seek.
    """
    position = min(max(start, low), high)
    reached = missed = None
    for _ in range(_TRIALS):
        value = surplus(position)
        if value >= 0:
            reached = (position, value)
            if value <= 1 or position == high:
                break
        else:
            missed = (position, value)
            if position == low:
                break
        if reached and missed:
            (here, above), (there, below) = reached, missed
            if there - here < _NARROW:
                break
            share = (above - _AIM) / (above - below) if math.isfinite(above - below) else 0.5
            position = here + (there - here) * min(max(share, 0.1), 0.9)
        else:
            step = min(max((value - _AIM) / slope, -8.0), 8.0)
            position = min(max(position + step, low), high)
            slope /= 2  # steps become longer until there is one on either side
    return reached[0] if reached else low
