"""The search for an error bound that gives a PSNR or a ratio: which bounds are tried, and when it ends.

What a bound gives, the caller finds out: for one field, or for blocks on many ranks, where every rank makes the same
search with the same answers.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from . import arguments
from .errors import ParameterError

__all__ = ["Goal", "Search", "Tried", "goal_of", "rounded"]

_OCTAVES = 60.0  # bounds are sought from the largest one down to 2^-60 of it
_DIGITS = 3  # of a bound that is found
_FIRST_OCTAVES = 10.0  # for a ratio, the search begins with 2^-10 of the largest bound
_TRIALS = 24  # on a sample, for one search
_WHOLE_TRIALS = 4  # on the whole field, unless the goal is not reached by then
_PSNR_WITHIN = 0.5  # dB above the goal
_RATIO_WITHIN = math.log(1.04)  # above the goal
_AIM = 0.3  # of that: where a search aims
_NARROW = math.log2(1.01)  # octaves: as far apart as bounds of three digits may be


class Tried(Protocol):
    """What a bound gives: a PSNR in dB (NaN if only the ratio is wanted), and a ratio."""

    @property
    def psnr(self) -> float: ...

    @property
    def ratio(self) -> float: ...


WholeTrial = TypeVar("WholeTrial", bound=Tried)


def rounded(eb: float, digits: int, *, up: bool = False) -> float:
    """A bound of so many significant decimal digits: not larger than `eb`, or with `up` not smaller."""
    exact = decimal.Decimal(eb)
    last = decimal.Decimal((0, (1,), exact.adjusted() - digits + 1))
    return float(exact.quantize(last, decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR))


class Goal(NamedTuple):
    """What is wanted.

    Attributes:
        target: PSNR in dB, or ratio.
        is_psnr: which of these.
    """

    target: float
    is_psnr: bool

    def surplus(self, tried: Tried) -> float:
        """By how much it is surpassed, as a multiple of what is let pass; negative: it is missed."""
        if self.is_psnr:
            return (tried.psnr - self.target) / _PSNR_WITHIN
        return math.log(tried.ratio / self.target) / _RATIO_WITHIN if tried.ratio else -math.inf

    @property
    def slope(self) -> float:
        """Of the surplus in octaves of the bound, roughly: 6 dB, a ratio 20% higher."""
        return 6.02 / _PSNR_WITHIN if self.is_psnr else 0.18 / _RATIO_WITHIN


def goal_of(psnr: float | None, ratio: float | None) -> Goal:
    """The goal that was given.

    Raises:
        ParameterError: not exactly one, or one out of its range.
    """
    if (psnr is None) == (ratio is None):
        raise ParameterError(f"psnr is {psnr} and ratio is {ratio}; exactly one of them must be given")
    if psnr is not None:
        target = arguments.real(psnr, "psnr", "a number of decibels, such as psnr=80")
        if not math.isfinite(target):
            raise ParameterError(f"psnr is {target}; it must be finite (eb=0 is lossless)")
        return Goal(target, True)
    target = arguments.real(ratio, "ratio", "a number, such as ratio=20")
    if not 1 < target < math.inf:
        raise ParameterError(f"ratio is {target}; it must be finite and above 1")
    return Goal(target, False)


class Search:
    """The search for one bound.

    A *position* is the number of octaves from the largest bound down to a bound, for a PSNR with its sign changed: the
    goal is always the largest position at which the surplus is not negative.

    Attributes:
        ratios: what every bound gave that was tried on the whole.
        tried: what every bound gave that was tried on the sample.
    """

    def __init__(
        self,
        goal: Goal,
        on_sample: Callable[[float], Tried],
        largest: float,
        smallest: float = 0.0,
    ) -> None:
        """
        Args:
            goal: what is wanted.
            on_sample: says what a bound gives for a sample; called once for a bound.
            largest: the largest bound that may be tried.
            smallest: the smallest one; 0: 2^-60 of the largest one.
        """
        self.goal, self.largest, self.smallest = goal, largest, smallest
        octaves = math.log2(largest / smallest) if smallest else _OCTAVES
        self.low, self.high = (-octaves, 0.0) if goal.is_psnr else (0.0, octaves)
        self.ratios: dict[float, float] = {}
        self.tried: dict[float, Tried] = {}
        self._on_sample = on_sample

    def bound(self, position: float) -> float:
        """The bound at a position, rounded to the side where the goal is reached."""
        if self.smallest and max(-self.low, self.high) <= abs(position):
            return self.smallest
        eb = self.largest * 2.0 ** -abs(position)
        if eb == 0:
            return math.ulp(0.0)
        return min(max(rounded(eb, _DIGITS, up=not self.goal.is_psnr), self.smallest), self.largest)

    def position(self, eb: float) -> float:
        """Where a bound is."""
        octaves = math.log2(self.largest / eb) if eb else _OCTAVES
        return -octaves if self.goal.is_psnr else octaves

    def surplus(self, eb: float) -> float:
        """On the sample."""
        if eb not in self.tried:
            self.tried[eb] = self._on_sample(eb)
        return self.goal.surplus(self.tried[eb])

    def estimate(self) -> float:
        """The bound, according to the sample. 0: no other gives the PSNR."""
        if not self.goal.is_psnr:
            return self.bound(self._goal_on_sample(_FIRST_OCTAVES))
        octaves = self.goal.target / (20 * math.log10(2)) - math.log2(3) / 2  # if errors are uniform within the bound
        eb = self.bound(self._goal_on_sample(-octaves))
        return eb if self.surplus(eb) >= 0 else 0.0

    def find(
        self,
        on_whole: Callable[[float], WholeTrial],
        first: float | None = None,
        *,
        is_exact: bool = False,
        lossless: bool = True,
    ) -> WholeTrial | None:
        """Tries a bound on the whole, and corrects what the sample says until the goal is reached there and not
        surpassed by far.

        Args:
            on_whole: says what a bound gives for the whole; called once for a bound.
            first: the bound to begin with; None: what the sample says.
            is_exact: the sample is the whole, so that the first bound that reaches the goal is the one.
            lossless: 0 may be tried if no other bound gives the PSNR.

        Returns:
            What `on_whole` said of the best bound; None if none reaches the goal. The last bound tried may be another.
        """
        best: WholeTrial | None = None
        reached, missed, stride = -math.inf, math.inf, _NARROW
        eb = self.estimate() if first is None else first
        while eb not in self.ratios:
            trial = on_whole(eb)
            self.ratios[eb] = trial.ratio
            surplus = self.goal.surplus(trial)
            position = self.position(eb)
            if surplus >= 0:
                best, reached = trial, position
                if surplus <= 1 or surplus == math.inf or position >= self.high or is_exact:
                    break
            elif position > self.low:
                missed = position
            elif self.goal.is_psnr and lossless:
                eb = 0.0
                continue
            else:
                break
            if best and (len(self.ratios) >= _WHOLE_TRIALS or missed - reached < _NARROW):
                break
            correction = surplus - self.surplus(eb)
            step = (surplus - _AIM) / self.goal.slope
            position = self._goal_on_sample(position, correction) if math.isfinite(correction) else position + step
            if best is None:
                position, stride = max(min(position, missed - stride), self.low), 2 * stride
            elif not reached < position < missed:
                position = min(reached + step, (reached + missed) / 2)
            eb = self.bound(position)
        return best

    def _goal_on_sample(self, start: float, correction: float = 0.0) -> float:
        """The position of the goal on the sample; the lowest one if the goal is not reached there."""
        return _largest(lambda p: self.surplus(self.bound(p)) + correction, start, self.goal.slope, self.low, self.high)


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
