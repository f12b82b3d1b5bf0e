"""Searching for bounds: all ranks find the same one, with which all that they put reaches a goal.

Bounds are tried on samples of every rank's blocks until the summed figures come close to the goal, and then on the
blocks themselves, whose archives are kept. From the second step on, the search begins with the whole blocks and the
previous step's bound: if that reaches the goal, nothing else needs to be compressed. For a PSNR, samples also tell how
exact the coarser lattices of the spline codec are to be (`coarse`), at the first step and when the ratio has changed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

import cusz_core
from cusz_core import embedding, tuning
from cusz_core.parameters import Coarse

from ..ranks import Caught, Ranks
from ..tables.representation import rounded_back
from .agreement import Description, Span, bound_within
from .compression import StepWork, with_coarse
from .goals import STEP, Wanted

_LEAST = 2.0**-60  # the smallest bound that is tried besides 0, as a fraction of the value range
_PSNR_MARGIN = 1e-6  # dB: the goal must also be reached if errors are summed in another order
_SAMPLE, _WHOLE, _DONE, _FAILED = range(4)  # what rank 0 tells the others
#: What `coarse` may be if it is sought, in this order; None: as the parameters say.
_COARSE: tuple[Coarse | None, ...] = ("same", "fine", "finer", "finest", None)
_AS_GIVEN = _COARSE.index(None)
_CHANGED = 1.5  # `coarse` is sought anew when the ratio has changed by this factor
_MAX_TRIALS = 4  # with whole blocks at a step: after that, even a goal that is surpassed by far will do
_MIN_SAMPLE = 1 << 16  # values per block: trials with whole blocks correct the errors of a sample


class _Figures(NamedTuple):
    """What a bound gives for some blocks.

    Attributes:
        squares: the sum of squared errors, in units of `_Group.unit` squared.
    """

    archive_bytes: float
    squares: float


class _Tried(NamedTuple):
    """What a bound gives for all ranks' blocks.

    Attributes:
        fraction: the bounds, as a fraction of the value ranges.
        coarse: an index into `_COARSE`.
        ratio_then: the ratio of the step that chose `coarse`.
        archive_bytes: of all blocks together.
    """

    fraction: float
    coarse: float
    ratio_then: float
    psnr: float
    ratio: float
    archive_bytes: float

    @property
    def has_changed(self) -> bool:
        """Whether the ratio has changed so much that `coarse` is to be sought anew."""
        return not self.ratio_then / _CHANGED < self.ratio < self.ratio_then * _CHANGED


class _Sizes(NamedTuple):
    """Sums over all ranks.

    Attributes:
        raw_bytes, values: of a group: its raw bytes, and the number of values that count for its goal.
        besides: raw bytes and archive bytes of the step's other variables, where these count for the goal.
    """

    raw_bytes: int
    values: int
    besides: tuple[int, int]


class _Member(NamedTuple):
    """A variable of a group, and its value range over all ranks."""

    block: Description
    range: Span


#: Tries a fraction and `coarse` on this rank's blocks of a variable (by its number): the figures of each block.
_Trial = Callable[[int, float, Coarse | None], Iterable[_Figures]]


@dataclasses.dataclass(frozen=True)
class _Group:
    """Variables that reach a goal together.

    Attributes:
        wanted: the goal, with the limits of one of the variables.
        members: its variables, by name.
        numbers: of the variables that this rank has blocks of.
    """

    wanted: Wanted
    members: dict[str, _Member]
    numbers: list[int]

    def bound(self, name: str, fraction: float) -> float:
        """The absolute bound of a variable, for a fraction of the value ranges."""
        member = self.members[name]
        return bound_within(member.block, member.range, fraction)

    @property
    def seeks_coarse(self) -> bool:
        """Whether `coarse` is sought, too."""
        given = [block.parameters for block, _ in self.members.values()]
        return self.wanted.kind == "psnr" and all(p.coarse == "auto" and p.predictor != "lorenzo" for p in given)

    @property
    def unit(self) -> float:
        """The unit of errors whose squares are summed: the variable's largest magnitude, so that nothing overflows."""
        (member,) = self.members.values()
        return max(abs(member.range.min), abs(member.range.max)) or 1.0

    def fractions(self) -> tuple[float, float]:
        """The smallest and the largest fraction that make a difference, within the limits of bounds; (0, 0) if none
        does."""
        smallest, largest = math.inf, 0.0
        for block, found in self.members.values():
            width = embedding.absolute_bound(1.0, found.min, found.max)
            if width > 0 and block.wanted is not None:
                unit = 1.0 if block.parameters.mode == "rel" else width
                smallest = min(smallest, block.wanted.eb_min / unit)
                largest = max(largest, min(block.wanted.eb_max / unit, 1.0))
        return (max(smallest, _LEAST), largest) if smallest < math.inf else (0.0, 0.0)


class Controller:
    """Finds bounds, step by step."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._latest: dict[str, _Tried] = {}  # what was chosen at the step before, by group
        self._samples: dict[tuple[int, int], tuning.Sample] = {}  # of this step's blocks, by variable

    def compress(
        self, work: StepWork, arrays: Mapping[str, Description], spans: Mapping[str, Span], where: str
    ) -> list[str]:
        """Compresses the blocks of variables with goals (collective). All other blocks are compressed before.

        Args:
            work: this rank's blocks.
            arrays: every variable.
            spans: of their values, over all ranks.
            where: what was being done, for messages.

        Returns:
            A message for every goal that was missed.

        Raises:
            CuszError: a rank failed.
        """
        numbers: dict[str, list[int]] = {}
        for number, own in enumerate(work.blocks):
            numbers.setdefault(own.name, []).append(number)
        groups: dict[str, _Group] = {}
        for name, block in arrays.items():
            if block.wanted is not None:
                group = groups.setdefault(block.wanted.group, _Group(block.wanted, {}, []))
                group.members[name] = _Member(block, spans[name])
                group.numbers.extend(numbers.get(name, ()))
        of_step = groups.pop(STEP, None)
        missed = []
        try:
            for group, sizes in zip(groups.values(), self._sizes(groups.values(), work, (0, 0)), strict=True):
                missed += self._reach(group, sizes, work, where)
            if of_step is not None:
                (sizes,) = self._sizes([of_step], work, work.sizes())
                missed += self._reach(of_step, sizes, work, where)
        finally:
            self._samples.clear()
        return missed

    def _sizes(self, groups: Collection[_Group], work: StepWork, besides: tuple[int, int]) -> list[_Sizes]:
        """The sizes of groups, summed over all ranks (collective)."""
        if not groups:
            return []
        own = [
            (
                sum(int(work.blocks[number].given_bytes().sum()) for number in group.numbers),
                sum(int(work.ranges[number][:, 2].sum()) for number in group.numbers),
            )
            for group in groups
        ]
        *summed, others = self._ranks.sums(np.array([*own, besides], np.int64).reshape(-1)).reshape(-1, 2).tolist()
        return [_Sizes(raw_bytes, values, (others[0], others[1])) for raw_bytes, values in summed]

    def _reach(self, group: _Group, sizes: _Sizes, work: StepWork, where: str) -> list[str]:
        """Compresses the blocks of a group."""
        wanted = group.wanted
        search = _Search(self._ranks, group, sizes, where)
        trials = {
            _SAMPLE: lambda *what: self._of_samples(group, work, *what),
            _WHOLE: lambda *what: self._of_blocks(group, work, *what),
        }
        chosen = search.run(trials, self._latest.get(wanted.group))
        self._latest[wanted.group] = chosen
        return _missed(group, chosen, sizes)

    def _of_blocks(
        self, group: _Group, work: StepWork, number: int, fraction: float, coarse: Coarse | None
    ) -> Iterator[_Figures]:
        blocks = work.blocks[number]
        bound = group.bound(blocks.name, fraction)
        for i, archive in enumerate(work.compress(number, bound, coarse).archives):
            squares = embedding.SumOfSquares()
            unit = 1.0
            if group.wanted.kind == "psnr" and bound > 0:
                unit = group.unit
                decoded = cusz_core.decompress(archive, threads=blocks.parameters.threads)
                decoded = rounded_back(decoded, blocks.given)
                original = work.on_host(number, i).reshape(-1)
                _, squares = embedding.compare(original, decoded.reshape(-1), bound, blocks.parameters.fill)
            yield _Figures(len(archive), _in_units(squares, unit))

    def _of_samples(
        self, group: _Group, work: StepWork, number: int, fraction: float, coarse: Coarse | None
    ) -> Iterator[_Figures]:
        blocks = work.blocks[number]
        bound = group.bound(blocks.name, fraction)
        parameters = with_coarse(blocks.parameters, coarse)
        parameters = dataclasses.replace(parameters, eb=bound, mode="abs", backend="auto")
        for i, values in enumerate(work.ranges[number][:, 2].tolist()):
            found = self._sample(work, number, i)
            tried = tuning.try_bound(found, parameters, compared=group.wanted.kind == "psnr")
            squares = tried.squares
            if found.limits.values:
                squares.scaled_sum *= values / found.limits.values
            unit = group.unit if group.wanted.kind == "psnr" else 1.0
            yield _Figures(tried.archive_bytes, _in_units(squares, unit))

    def _sample(self, work: StepWork, number: int, block: int) -> tuning.Sample:
        key, parameters = (number, block), work.blocks[number].parameters
        if key not in self._samples:
            self._samples[key] = tuning.sample(
                work.on_host(number, block),
                _MIN_SAMPLE,
                predictor=parameters.predictor,
                fill=parameters.fill,
                threads=parameters.threads,
            )
        return self._samples[key]


class _Search:
    """The search for a bound. All ranks try what rank 0 tells them to, because arithmetic may differ between
    processors. A trial is a broadcast of what to try and a reduction of its results, a few numbers each."""

    def __init__(self, ranks: Ranks, group: _Group, sizes: _Sizes, where: str) -> None:
        self._ranks, self._group, self._sizes, self._where = ranks, group, sizes, where
        self._caught = Caught()
        self._tried: list[_Tried] = []  # on whole blocks

    def run(self, trials: Mapping[int, _Trial], latest: _Tried | None) -> _Tried:
        """Returns what is chosen; the archives are then those of its bound (collective).

        Args:
            trials: how to try a fraction on samples (_SAMPLE) and on whole blocks (_WHOLE).
            latest: what was chosen at the previous step; None: there is none.

        Raises:
            CuszError: a rank failed.
        """
        told = (_FAILED, *_UNKNOWN)
        if self._ranks.rank == 0:
            with self._caught, contextlib.suppress(_RankFailed):
                told = (_DONE, *self._sought(trials, latest))
            what, *numbers = self._ranks.first_numbers(np.array(told)).tolist()
        else:
            while True:
                what, *numbers = self._ranks.first_numbers(np.array(told)).tolist()
                if what not in trials:
                    break
                self._try(trials[int(what)], numbers[0], int(numbers[1]))
        if what == _FAILED:
            first = self._ranks.first_of(self._caught.error is not None)
            assert first is not None
            self._ranks.raise_of(first, self._caught.error, self._where, is_counted=True)
        return _Tried(*numbers)

    def _sought(self, trials: Mapping[int, _Trial], latest: _Tried | None) -> _Tried:
        """Searches, on rank 0, and returns what it chooses."""

        def together(what: int, coarse: int, fraction: float) -> tuple[float, float]:
            told = _UNKNOWN._replace(fraction=fraction, coarse=coarse)
            self._ranks.first_numbers(np.array((what, *told), np.float64))
            found = self._try(trials[what], fraction, coarse)
            if what == _WHOLE:
                self._tried.append(found)
            return found.psnr, found.ratio

        wanted, sizes = self._group.wanted, self._sizes
        smallest, largest = self._group.fractions()
        target = _target_of(wanted, sizes)
        if target is None or smallest >= largest or sizes.raw_bytes == 0:
            together(_WHOLE, _AS_GIVEN, largest)
            return self._tried[-1]

        near = min(max(latest.fraction, smallest), largest) if latest is not None and latest.fraction > 0 else None
        seeks_coarse, coarse, ratio_then = self._group.seeks_coarse, _AS_GIVEN, math.nan
        if seeks_coarse:
            coarse = 0
            if latest is not None and near and latest.coarse != _AS_GIVEN and not latest.has_changed:
                seeks_coarse, coarse, ratio_then = False, int(latest.coarse), latest.ratio_then
        on_sample, on_whole = partial(together, _SAMPLE), partial(together, _WHOLE)
        search = tuning.Search(target, wanted.kind == "psnr", largest, partial(on_sample, coarse), smallest)
        first = search.estimate(near) if seeks_coarse or near is None else near
        if seeks_coarse:
            coarse, first = search.most_compact(on_sample, _AS_GIVEN, first)
        best = search.find(partial(on_whole, coarse), first, wanted.eb_min == 0, _MAX_TRIALS)
        if best is not None and best != self._tried[-1].fraction:
            on_whole(coarse, best)  # its archives have been replaced
        chosen = self._tried[-1]
        return chosen._replace(ratio_then=chosen.ratio if math.isnan(ratio_then) else ratio_then)

    def _try(self, trial: _Trial, fraction: float, coarse: int) -> _Tried:
        """Tries a fraction on all ranks' blocks; the result is on rank 0 (collective).

        Raises:
            _RankFailed: on rank 0, if any rank failed.
        """
        summed = np.zeros(3)
        with self._caught:
            if self._caught.error is None:
                for number in self._group.numbers:
                    for figures in trial(number, fraction, _COARSE[coarse]):
                        summed[1:] += figures
        summed[0] = self._caught.error is not None
        failed, archive_bytes, squares = self._ranks.sums_on_first(summed).tolist()
        if self._ranks.rank > 0:
            return _UNKNOWN
        if failed:
            raise _RankFailed
        psnr, ratio = math.nan, self._sizes.raw_bytes / archive_bytes if archive_bytes else 0.0
        if self._group.wanted.kind == "psnr":
            (member,) = self._group.members.values()
            of_all = embedding.SumOfSquares()
            of_all.largest, of_all.scaled_sum = self._group.unit, squares
            psnr = of_all.psnr(*member.range, self._sizes.values) - _PSNR_MARGIN
        return _Tried(fraction, coarse, math.nan, psnr, ratio, archive_bytes)


class _RankFailed(Exception):
    """A rank has failed in a trial."""


_UNKNOWN = _Tried(math.nan, math.nan, math.nan, math.nan, math.nan, math.nan)


def _in_units(squares: embedding.SumOfSquares, unit: float) -> float:
    return squares.scaled_sum * (squares.largest / unit) ** 2


def _target_of(wanted: Wanted, sizes: _Sizes) -> float | None:
    """The PSNR or ratio that is sought; None: the other variables leave no room."""
    if wanted.kind == "psnr":
        return wanted.value
    room = _room(wanted, sizes.raw_bytes + sizes.besides[0]) - sizes.besides[1]
    return sizes.raw_bytes / room if room >= 1 else None


def _room(wanted: Wanted, raw_bytes: float) -> float:
    """How many bytes archives of `raw_bytes` may take."""
    return wanted.value if wanted.kind == "budget_bytes" else raw_bytes / wanted.value


def _missed(group: _Group, chosen: _Tried, sizes: _Sizes) -> list[str]:
    """A message if the goal was not reached."""
    wanted = group.wanted
    raw_bytes, together = sizes.raw_bytes + sizes.besides[0], chosen.archive_bytes + sizes.besides[1]
    if wanted.kind == "psnr":
        if not chosen.psnr < wanted.value:
            return []
        reached = f"PSNR is {chosen.psnr:.2f} dB with the smallest bound that eb_min allows"
    else:
        reached = _missed_size(wanted, raw_bytes, together)
        if not reached:
            return []
        limits = [block.wanted.eb_max for block, _ in group.members.values() if block.wanted is not None]
        limit = "eb_max allows" if min(limits) < math.inf else "makes sense"
        reached += f" with the largest bound that {limit}"
    what = "of the step" if wanted.group == STEP else f"of {wanted.group!r}"
    return [f"{wanted} {what} is missed: {reached}"]


def missed_without_search(wanted: Wanted, raw_bytes: float, archive_bytes: float) -> list[str]:
    """A message if a step misses its goal, and no bound was sought for that goal."""
    reached = _missed_size(wanted, raw_bytes, archive_bytes)
    if not reached:
        return []
    return [f"{wanted} of the step is missed: {reached}, and every variable is exact or has a bound or goal of its own"]


def _missed_size(wanted: Wanted, raw_bytes: float, archive_bytes: float) -> str:
    """What is reached instead of a ratio or budget; "" if the goal is reached."""
    if archive_bytes <= _room(wanted, raw_bytes) or (wanted.kind == "ratio" and raw_bytes == 0):
        return ""
    return f"ratio is {raw_bytes / archive_bytes:.4g}" if wanted.kind == "ratio" else f"{archive_bytes:.0f} bytes"
