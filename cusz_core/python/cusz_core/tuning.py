"""Error bounds for users who know what result they want, but not which bound gives it.

    tuned = find_bound(x, psnr=80)     # the largest bound found that keeps 80 dB
    tuned = find_bound(x, ratio=20)    # the smallest bound found that gives a ratio of 20
    for row in survey(x): ...          # what a few bounds give

For a large field, bounds are tried on a sample, whose ratio and PSNR are close to those of the whole. The bound that
`find_bound` returns has been tried on the whole field, and the result checked as by `verify`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _native, arguments
from ._native import Search
from .codec import ValueRange, compress_with, decompress, value_range
from .errors import ParameterError, UnsupportedError
from .info import inspect, json_value
from .parameters import GOALS, Mode, Options, Parameters
from .verification import (
    Effects,
    EffectsOfAll,
    SumOfSquares,
    compare,
    effects,
    percent,
    scaled_range,
    verified_and_decoded,
    verify,
)

if TYPE_CHECKING:
    from typing import Unpack  # of Python 3.11

__all__ = [
    "BOUNDS",
    "MANY",
    "USUAL",
    "Effects",
    "EffectsOfAll",
    "Mark",
    "OutOfReachError",
    "Outcome",
    "Sample",
    "SampleTrial",
    "Search",
    "TunedBound",
    "box_shape",
    "box_start",
    "compress_for",
    "effects",
    "find_bound",
    "has_one_sign",
    "likely_fill",
    "percent",
    "rounded",
    "sample",
    "survey",
    "try_bound",
]

#: The bounds of a survey, as fractions of the value range.
BOUNDS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)

#: The usual bound for a field of which nothing is known, as a fraction of its value range; and the share of values that
#: may be off by more than 10% in a field of one sign.
USUAL, MANY = 1e-4, 0.01
#: How far a mark for "no data" is from all other values, in units of their range; a rare mark is at most this share.
_RANGES_TO_MARK, _RANGES_TO_RARE_MARK, _RARE_MARK = 10, 1000, 1e-3
#: The share of values that may have the other sign.
_OTHER_SIGN = 0.01

_SAMPLE = 1 << 20  # minimum number of values in a sample
_SAMPLED = 16  # one value of a large field in this many
#: Edges of the boxes of a sample, by the number of axes. Tiles of the Lorenzo codec are independent of each other, so
#: many small boxes represent the field best. The spline codec does worse at the borders of a box than inside the field.
_SMALL_BOXES = ((16384,), (64, 64), (16, 32, 32), (1, 16, 32, 32))
_LARGE_BOXES = ((65536,), (256, 256), (64, 64, 64), (4, 32, 32, 32))

_FEW = 1 << 16  # about how many values are examined to see whether they are evenly spaced
_WHOLE_TRIALS = 8  # at most, on a whole field


class OutOfReachError(ParameterError):
    """No bound gives the ratio that was asked for."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of compressing with a bound.

    Attributes:
        eb: the absolute bound, in the field's unit; in mode "pw_rel" the bound relative to every value.
        relative: the absolute bound as a fraction of the value range; NaN if the range is 0 or no bound is absolute.
        ratio: raw bytes over archive bytes.
        bit_rate: archive bits per value.
        psnr: in dB, as in `Verification`; infinite if every value is exact.
        max_error: largest |original - decoded|, in the field's unit.
        share: fraction of the field's values that were compressed; 1: all of them. Less: an estimate.
        effects: what the bound does to small values.
    """

    eb: float
    relative: float
    ratio: float
    bit_rate: float
    psnr: float
    max_error: float
    share: float
    effects: Effects

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain Python values that JSON can hold (NaN and infinities as strings)."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.repr}  # no archive
        own |= own.pop("effects")._asdict()
        return {key: json_value(value) for key, value in own.items()}


@dataclasses.dataclass(frozen=True)
class TunedBound(Outcome):
    """The bound that `find_bound` found, and its result.

    Attributes:
        archive: the whole field, compressed with this bound, and verified; None if only a sample was given.
    """

    archive: bytes | None = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Sample:
    """Values that stand for a field.

    Attributes:
        x: boxes of the field, concatenated along the first axis or flattened (see `blocks`); or the field itself.
        size: values in an archive of the field. (Where every block of it gets an archive: values of a block.)
        limits: value range of the field. `values` counts those in `x` that are finite and not fill.
        share: fraction of the field's values that are in `x`; 1: `x` is the field.
        blocks: shapes of the blocks that lie one after another in a flat `x`, each of which gets its own archive; ():
            `x` is compressed as one.
    """

    x: NDArray[Any]
    size: int
    limits: ValueRange
    share: float
    blocks: tuple[tuple[int, ...], ...] = ()

    @property
    def is_field(self) -> bool:
        return self.share == 1 and self.size == self.x.size

    def parts(self) -> Iterator[NDArray[Any]]:
        """The arrays that are compressed separately."""
        if not self.blocks:
            yield self.x
        end = 0
        for shape in self.blocks:
            begin, end = end, end + math.prod(shape)
            yield self.x[begin:end].reshape(shape)


class Mark(NamedTuple):
    """A value that may mean "no data", and its share of a sample's values."""

    value: float
    share: float


# ---------------------------------------------------------------------------------------------------------- samples


def sample(x: NDArray[Any], least: int | None = None, **options: Unpack[Options]) -> Sample:
    """A sample of a field, always the same for the same field and parameters.

    Args:
        x: numpy array as `compress` accepts it.
        least: minimum number of values; None: 2^20.
        options: parameters of the compression; `predictor` decides how large the boxes are.

    Returns:
        A `Sample` of one value in 16, or of `least` values if that is more. A field of at most 2 * `least` values is
        its own sample.

    Raises:
        UnsupportedError: a type or layout that is not accepted.
        ParameterError: a parameter out of range.
    """
    field = _host_field(x)
    least = _SAMPLE if least is None else least
    special, threads = options.get("fill"), options.get("threads")
    limits = value_range(field, special, threads=threads)
    if field.size <= 2 * least:
        return Sample(field, field.size, limits, 1.0)
    field = field.reshape([extent for extent in field.shape if extent > 1])
    predictor = options.get("predictor", Parameters.predictor)
    box = box_shape(field.shape, predictor)
    n_boxes = math.ceil(max(least, field.size / _SAMPLED) / math.prod(box))
    boxes = [field[_slices(box_start(field.shape, box, number), box)] for number in range(n_boxes)]
    # Lorenzo tiles are independent of each other, but interpolation would cross from one box to the next.
    blocks = () if predictor == "lorenzo" else (box,) * n_boxes
    parts = np.concatenate([part.reshape(-1) for part in boxes] if blocks else boxes)
    values = value_range(parts, special, threads=threads).values
    return Sample(parts, field.size, limits._replace(values=values), parts.size / field.size, blocks)


def _host_field(x: NDArray[Any]) -> NDArray[Any]:
    if not isinstance(x, np.ndarray):
        raise UnsupportedError(f"x is {arguments.describe(x)}; bounds are tried on numpy arrays, in host memory")
    return arguments.field(x)


def box_shape(shape: Sequence[int], predictor: str = Parameters.predictor) -> tuple[int, ...]:
    """Extents of the boxes that sample a field of 1 to 4 dimensions, none of extent 1. An axis shorter than two boxes
    is taken whole, including the tiles at its end."""
    edges = (_SMALL_BOXES if predictor == "lorenzo" else _LARGE_BOXES)[len(shape) - 1]
    return tuple(extent if extent < 2 * edge else edge for extent, edge in zip(shape, edges, strict=True))


def box_start(shape: Sequence[int], box: Sequence[int], number: int) -> tuple[int, ...]:
    """Where a box of a sample begins. Any number of boxes is spread evenly (an additive recurrence with powers of the
    root of r^(n+1) = r + 1), but not on a lattice, which a periodic field could be in step with."""
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (len(shape) + 1))
    places = [(0.5 + (number + 1) / root ** (axis + 1)) % 1 for axis in range(len(shape))]
    return tuple(int(place * (extent - edge + 1)) for place, extent, edge in zip(places, shape, box, strict=True))


def _slices(start: Sequence[int], box: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(first, first + edge) for first, edge in zip(start, box, strict=True))


def likely_fill(found: Sample) -> Mark | None:
    """A value that looks like a mark for "no data" but is not `fill`, or None. It is the min or the max, occurs more
    than once, and is farther from all other values than 10 times their range, or 1000 times if it is rare: a rare one
    may be a peak that several steps share."""
    values = found.x[np.isfinite(found.x)]
    for mark in (values.max(), values.min()) if values.size else ():
        others = values[values != mark].astype(np.float64) / 2  # differences of halves do not overflow
        if others.size == 0 or values.size - others.size < 2:
            continue
        low, high = others.min(), others.max()
        share = (values.size - others.size) / found.x.size
        ranges = _RANGES_TO_MARK if share > _RARE_MARK else _RANGES_TO_RARE_MARK
        if 0 < ranges * (high - low) < max(mark / 2 - high, low - mark / 2):
            return Mark(float(mark), share)
    return None


def has_one_sign(found: Sample) -> bool:
    """Whether nearly all values have the same sign, as in densities with a few undershoots."""
    positive, negative = int((found.x > 0).sum()), int((found.x < 0).sum())
    return min(positive, negative) <= _OTHER_SIGN * (positive + negative)


# ----------------------------------------------------------------------------------------------- what bounds give


def survey(
    x: NDArray[Any] | Sample, bounds: Sequence[float] = BOUNDS, mode: Mode = "rel", **options: Unpack[Options]
) -> list[Outcome]:
    """Tries a few bounds.

    Args:
        x: a numpy array, as `compress` accepts it; or a `Sample`.
        bounds: as `compress` accepts them.
        mode: "rel": bounds are fractions of the field's value range; "abs": in its unit; "pw_rel": fractions of every
            value.
        options: further parameters, as for `compress`.

    Returns:
        An `Outcome` for each bound: estimated from a sample if the field has more than 2^21 values.

    Raises:
        UnsupportedError, DeviceError, OutOfMemoryError: as `compress`.
        ParameterError: a parameter out of range.
    """
    if mode in GOALS:
        raise ParameterError(f"mode is {mode!r}; a survey takes bounds: 'abs', 'rel' or 'pw_rel'")
    checked = [Parameters(eb, mode, **options) for eb in bounds]
    found = x if isinstance(x, Sample) else sample(x, **options)
    lowest, highest, _ = found.limits
    outcomes = []
    for parameters in checked:
        if mode == "rel" and lowest < highest:
            eb = _native.absolute_bound(parameters.eb, lowest, highest)
            parameters = dataclasses.replace(parameters, eb=eb, mode="abs")
        outcomes.append(_try(found, parameters))
    return outcomes


class SampleTrial(NamedTuple):
    """What compressing a sample says about the field.

    Attributes:
        archive_bytes: estimated size of an archive of the field.
        squares: of the sample's errors; empty if they were not compared.
        decoded: the sample's decoded values, one-dimensional; None if they were not compared.
    """

    archive_bytes: int
    squares: SumOfSquares
    decoded: NDArray[Any] | None


def try_bound(found: Sample, parameters: Parameters, *, compared: bool = True) -> SampleTrial:
    """Compresses a sample and, with `compared`, also decompresses it and measures the errors.

    Raises:
        UnsupportedError, DeviceError, OutOfMemoryError: as `compress`.
    """
    x = found.x
    archive_bytes, bound = 0, 0.0
    parts = []
    for part in found.parts():
        archive = compress_with(part, parameters)
        archive_bytes += len(archive)
        info = inspect(archive)
        if compared:
            parts.append(decompress(archive, backend=parameters.backend, threads=parameters.threads).reshape(-1))
            bound = max(bound, info.eb if info.mode == "pw_rel" else info.eb_abs)
    squares, decoded = SumOfSquares(), None
    if compared:
        decoded = parts[0] if len(parts) == 1 else np.concatenate(parts)
        _, squares = compare(x.reshape(-1), decoded, bound, parameters.fill, parameters.mode == "pw_rel")
    if found.blocks:
        archive_bytes = math.ceil(archive_bytes * found.size / x.size)
    elif not found.is_field:
        once = info.sections.header + info.sections.codebook  # the rest grows with the field
        archive_bytes = once + math.ceil((archive_bytes - once) * found.size / x.size)
        archive_bytes = min(archive_bytes, found.size * x.itemsize + _native.RAW_OVERHEAD_BYTES)
    return SampleTrial(archive_bytes, squares, decoded)


def _try(found: Sample, parameters: Parameters, *, with_effects: bool = True) -> Outcome:
    """The result of a bound on a sample, scaled to the field."""
    archive_bytes, squares, decoded = try_bound(found, parameters)
    assert decoded is not None
    lowest, highest, values = found.limits
    return Outcome(
        eb=0.0 if parameters.mode == "rel" else parameters.eb,  # "rel" remains only if all values are equal
        relative=math.nan if parameters.mode == "pw_rel" else _relative(parameters.eb, lowest, highest),
        ratio=found.size * found.x.itemsize / archive_bytes,
        bit_rate=8 * archive_bytes / found.size if found.size else 0.0,
        psnr=squares.psnr(lowest, highest, values),
        max_error=squares.largest,
        share=found.share,
        effects=effects(found.x.reshape(-1), decoded, parameters.fill) if with_effects else Effects(),
    )


def _relative(eb: float, lowest: float, highest: float) -> float:
    size, scale = scaled_range(lowest, highest)
    return eb * scale / size if size else math.nan


def rounded(eb: float, digits: int, *, up: bool = False) -> float:
    """`eb` rounded to this many significant decimal digits: down, or with `up` up."""
    return _native.rounded_bound(eb, digits, up)


# ----------------------------------------------------------------------------------------------------- the search


def find_bound(
    x: NDArray[Any] | Sample, *, psnr: float | None = None, ratio: float | None = None, **options: Unpack[Options]
) -> TunedBound:
    """Finds the absolute error bound with which `compress` gives a PSNR or a ratio.

    Bounds have three significant digits (up to six where the field's values are evenly spaced, such as integers), and
    are at most its value range. PSNR and ratio are not quite monotone in the bound: the bound found is within 0.5 dB or
    4% of the goal if the search met such a bound, and there may be a better one beyond it. For a field of more than
    2^21 values, a sample is searched first, and the result is then corrected with the whole field.

    For a ratio, this is the bound of `compress` with mode "ratio". With mode "psnr", `compress` takes fewer bytes of
    smooth fields, and may have a larger bound, because it also varies how exact the coarser lattices are.

    Args:
        x: a numpy array, as `compress` accepts it; or a `Sample`, for an estimate.
        psnr: in dB, as in `Verification`, above 0. The result is the largest bound found whose PSNR is not below it,
            or 0 (lossless) if there is no other.
        ratio: above 1. The result is the smallest bound found whose ratio is not below it.
        options: further parameters, as for `compress`.

    Returns:
        A `TunedBound`. Unless `x` is a `Sample`, its archive has been made from the whole field and verified, so it is
        known, not estimated, to reach the goal.

    Raises:
        UnsupportedError, DeviceError, OutOfMemoryError: as `compress`.
        ParameterError: a parameter out of range, or not exactly one goal.
        OutOfReachError: no bound gives the ratio; the message has the best one.
        BoundError: the archive is not what it should be.
    """
    target, is_psnr = _goal(psnr, ratio)
    if isinstance(x, Sample):
        return _of_sample(x, target, is_psnr, Parameters(0.0, **options))
    field = _host_field(x)
    if not (is_psnr and field.size):
        return compress_for(field, psnr=psnr, ratio=ratio, **options)
    parameters = Parameters(0.0, **options)
    found = sample(field, **options)
    search, eb = _searched_on(found, target, is_psnr, parameters)
    if found.is_field:
        return _described(field, compress_with(field, dataclasses.replace(parameters, eb=eb)), parameters)
    archives: dict[float, bytes] = {}

    def on_whole(eb: float) -> tuple[float, float]:
        archives.clear()
        archives[eb] = compress_with(field, dataclasses.replace(parameters, eb=eb))
        checked = verify(field, archives[eb], backend=parameters.backend, threads=parameters.threads)
        return checked.psnr, checked.ratio

    best = search.find(on_whole, eb, True, _WHOLE_TRIALS)
    assert best is not None  # because 0 keeps any PSNR
    if best not in archives:
        on_whole(best)
    return _described(field, archives[best], parameters)


def compress_for(
    x: NDArray[Any], *, psnr: float | None = None, ratio: float | None = None, **options: Unpack[Options]
) -> TunedBound:
    """`compress` with mode "psnr" or "ratio", and a description of what it made.

    Args:
        x, psnr, ratio, options: as for `find_bound`.

    Raises:
        As `find_bound`.
    """
    target, is_psnr = _goal(psnr, ratio)
    field = _host_field(x)
    parameters = Parameters(target, "psnr" if is_psnr else "ratio", **options)
    if not (field.size or is_psnr):
        raise OutOfReachError(f"ratio is {target:g}, but the field is empty")
    try:
        archive = compress_with(field, parameters)
    except ParameterError as error:  # all other parameters have been checked
        raise OutOfReachError(str(error)) from None
    return _described(field, archive, parameters)


def _described(field: NDArray[Any], archive: bytes, parameters: Parameters) -> TunedBound:
    checked, decoded = verified_and_decoded(field, archive, backend=parameters.backend, threads=parameters.threads)
    lowest, highest, _ = value_range(field, parameters.fill, threads=parameters.threads)
    return TunedBound(
        eb=checked.eb_abs,
        relative=_relative(checked.eb_abs, lowest, highest),
        ratio=checked.ratio,
        bit_rate=checked.bit_rate,
        psnr=checked.psnr,
        max_error=checked.max_error,
        share=1.0,
        effects=effects(field.reshape(-1), decoded, parameters.fill),
        archive=archive,
    )


def _goal(psnr: float | None, ratio: float | None) -> tuple[float, bool]:
    """The checked goal, and whether it is a PSNR."""
    if (psnr is None) == (ratio is None):
        raise ParameterError(f"psnr is {psnr} and ratio is {ratio}; exactly one of them must be given")
    if psnr is not None:
        target = arguments.real(psnr, "psnr", "a number of decibels, such as psnr=80")
        if not 0 < target < math.inf:
            raise ParameterError(f"psnr is {target}; it must be finite and above 0 (eb=0 is lossless)")
        return target, True
    target = arguments.real(ratio, "ratio", "a number, such as ratio=20")
    if not 1 < target < math.inf:
        raise ParameterError(f"ratio is {target}; it must be finite and above 1")
    return target, False


def _searched_on(found: Sample, target: float, is_psnr: bool, parameters: Parameters) -> tuple[Search, float]:
    """A search, and the bound that it has found on the sample."""
    lowest, highest, _ = found.limits
    ratios: dict[float, float] = {}

    def on_sample(eb: float) -> tuple[float, float]:
        outcome = _try(found, dataclasses.replace(parameters, eb=eb), with_effects=False)
        ratios[eb] = outcome.ratio
        return outcome.psnr, outcome.ratio

    largest = _native.absolute_bound(1.0, lowest, highest) or abs(highest) or 1.0
    search = Search(target, is_psnr, largest, on_sample)
    eb = search.estimate_or(_exact_bound(found), lowest == highest) if is_psnr else search.estimate()
    if search.surplus(eb) < 0:
        if not found.size:
            raise OutOfReachError(f"ratio is {target:g}, but the field is empty")
        raise OutOfReachError(
            f"ratio is {target:g}; the best found for this field is {ratios[eb]:.4g}, with the bound {eb:g} "
            "(none larger than its value range is tried)"
        )
    return search, eb


def _of_sample(found: Sample, target: float, is_psnr: bool, parameters: Parameters) -> TunedBound:
    _, eb = _searched_on(found, target, is_psnr, parameters)
    best = _try(found, dataclasses.replace(parameters, eb=eb))
    return TunedBound(**dataclasses.asdict(best), archive=None)


def _exact_bound(found: Sample) -> float | None:
    values = found.x.reshape(-1)[:: max(1, found.x.size // _FEW)]
    inside = values[(values >= found.limits.min) & (values <= found.limits.max)]
    return _native.exact_bound(inside.astype(np.float64).tolist(), found.limits.min, found.limits.max)
