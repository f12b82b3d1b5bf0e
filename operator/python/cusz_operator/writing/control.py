"""Bounds that are sought: all ranks find the same one, which reaches a goal for what all of them put together.

A bound is tried on samples of every rank's blocks until their figures, summed up, come close to the goal, and then on
the blocks themselves, whose archives are kept. From the second step on, the search begins with the whole blocks and the
bound of the step before: if that reaches the goal, it costs no further compression.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding, tuning

from ..ranks import Failure, Ranks, failure_of, raise_first
from ..tables.representation import given_back
from .agreement import Description, bound_within
from .compression import StepWork
from .goals import STEP, Wanted

_LEAST = 2.0**-60  # of the value range: the smallest bound that is tried, besides 0
_PSNR_MARGIN = 1e-6  # dB: whoever adds up the errors in another order must reach it, too
_SAMPLE, _WHOLE, _DONE = "sample", "whole", "done"  # what rank 0 tells the others
_Trial = Callable[[float], tuple[float, float]]  # what a fraction gives: PSNR and ratio
_MAX_TRIALS = 4  # of whole blocks at a step: beyond that, a goal that is surpassed by far will do
_MIN_SAMPLE = 1 << 16  # values of a block: what the sample gets wrong is corrected by the whole


class _Figures(NamedTuple):
    """What a bound gives for a rank's blocks; or why it cannot be told."""

    failure: Failure | None
    raw_bytes: int
    archive_bytes: float
    squares: embedding.SumOfSquares


class _Tried(NamedTuple):
    """What a bound gives for all ranks' blocks.

    Attributes:
        fraction: of their value ranges that the bounds are.
        archive_bytes: all of them together.
    """

    fraction: float
    psnr: float
    ratio: float
    archive_bytes: float


class _Member(NamedTuple):
    """A variable of a group, and its value range over all ranks."""

    block: Description
    range: cusz_core.ValueRange


@dataclasses.dataclass(frozen=True)
class _Group:
    """Variables that reach a goal together.

    Attributes:
        wanted: the goal; its limits are those of one variable.
        members: its variables, by name.
        numbers: of this rank's blocks.
    """

    wanted: Wanted
    members: dict[str, _Member]
    numbers: list[int]

    def bound(self, name: str, fraction: float) -> float:
        """The absolute bound of a variable, for a fraction of the value ranges."""
        member = self.members[name]
        return bound_within(member.block, member.range, fraction)

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
        self._latest: dict[str, float] = {}  # fractions, by group
        self._samples: dict[int, tuning.Sample] = {}  # of this step's blocks

    def compress(
        self, work: StepWork, arrays: Mapping[str, Description], ranges: Mapping[str, cusz_core.ValueRange], where: str
    ) -> list[str]:
        """Compresses the blocks of variables with goals (collective); all others have been compressed.

        Args:
            work: this rank's.
            arrays: every variable.
            ranges: of their values, over all ranks.
            where: what was being done, for messages.

        Returns:
            For every goal that was missed, what was reached instead.

        Raises:
            CuszError: a rank failed.
        """
        groups: dict[str, _Group] = {}
        for name, block in arrays.items():
            if block.wanted is not None:
                numbers = [number for number, own in enumerate(work.blocks) if own.name == name]
                group = groups.setdefault(block.wanted.group, _Group(block.wanted, {}, []))
                group.members[name] = _Member(block, ranges[name])
                group.numbers.extend(numbers)
        missed = []
        try:
            for group in sorted(groups.values(), key=lambda group: group.wanted.group == STEP):
                missed += self._reach(group, work, where)
        finally:
            self._samples.clear()
        return missed

    def _reach(self, group: _Group, work: StepWork, where: str) -> list[str]:
        """Compresses the blocks of a group; those of the step's group come last."""
        wanted = group.wanted
        besides = (0, 0)
        if wanted.group == STEP:
            of_ranks = self._ranks.allgather(work.sizes())
            besides = sum(raw for raw, _ in of_ranks), sum(archives for _, archives in of_ranks)

        tried: list[_Tried] = []

        def on_whole(fraction: float) -> tuple[float, float]:
            parts = (self._of_block(group, work, number, fraction) for number in group.numbers)
            tried.append(self._figures(group, fraction, parts, where))
            return tried[-1].psnr, tried[-1].ratio

        def on_sample(fraction: float) -> tuple[float, float]:
            parts = (self._of_sample(group, work, number, fraction) for number in group.numbers)
            found = self._figures(group, fraction, parts, where)
            return found.psnr, found.ratio

        smallest, largest = group.fractions()
        raw_bytes = sum(self._ranks.allgather(sum(work.blocks[number].raw_bytes for number in group.numbers)))
        target = _target_of(wanted, raw_bytes, besides)
        best = None
        if target is None or smallest >= largest or raw_bytes == 0:
            on_whole(largest)
        else:
            best = self._seek(wanted, target, (smallest, largest), {_SAMPLE: on_sample, _WHOLE: on_whole})
        if best is not None and best != tried[-1].fraction:
            on_whole(best)  # these archives are no longer there
        self._latest[wanted.group] = tried[-1].fraction
        return _missed(group, tried[-1], raw_bytes, besides)

    def _seek(
        self, wanted: Wanted, target: float, limits: tuple[float, float], trials: Mapping[str, _Trial]
    ) -> float | None:
        """The best fraction; None if none reaches the goal (collective). Rank 0 searches, and tells the others what to
        try: arithmetic may differ between processors."""
        if self._ranks.rank > 0:
            while True:
                what, fraction = self._ranks.of_first(None)
                if what == _DONE:
                    found: float | None = fraction
                    return found
                trials[what](fraction)

        def together(what: str) -> _Trial:
            return lambda fraction: trials[what](self._ranks.of_first((what, fraction))[1])

        smallest, largest = limits
        search = tuning.Search(target, wanted.kind == "psnr", largest, together(_SAMPLE), smallest)
        latest = self._latest.get(wanted.group)
        first = min(max(latest, smallest), largest) if latest else search.estimate()
        best = search.find(together(_WHOLE), first, wanted.eb_min == 0, _MAX_TRIALS)
        self._ranks.of_first((_DONE, best))
        return best

    def _figures(self, group: _Group, fraction: float, parts: Iterable[_Figures], where: str) -> _Tried:
        """Adds up what ranks find (collective)."""
        own, error = _Figures(None, 0, 0.0, embedding.SumOfSquares()), None
        try:
            own = _sum(parts)
        except Exception as caught:
            error, own = caught, own._replace(failure=failure_of(caught))
        told: list[_Figures] = self._ranks.allgather(own)
        raise_first([other.failure for other in told], where, error)
        total = _sum(told)
        ratio = total.raw_bytes / total.archive_bytes if total.archive_bytes else 0.0
        psnr = math.nan
        if group.wanted.kind == "psnr":
            (member,) = group.members.values()
            psnr = total.squares.psnr(*member.range) - _PSNR_MARGIN
        return _Tried(fraction, psnr, ratio, total.archive_bytes)

    def _of_block(self, group: _Group, work: StepWork, number: int, fraction: float) -> _Figures:
        block = work.blocks[number]
        bound = group.bound(block.name, fraction)
        archive = work.compress(number, bound).archive
        squares = embedding.SumOfSquares()
        if group.wanted.kind == "psnr" and bound > 0:
            decoded = cusz_core.decompress(archive, threads=block.parameters.threads)
            if block.given == "float16":
                decoded = given_back([decoded], block.given).astype(np.float32)
            squares = _errors(work.on_host(number), decoded, bound, block.parameters.fill)
        return _Figures(None, block.raw_bytes, len(archive), squares)

    def _of_sample(self, group: _Group, work: StepWork, number: int, fraction: float) -> _Figures:
        block = work.blocks[number]
        if number not in self._samples:
            parameters = block.parameters
            self._samples[number] = tuning.sample(
                work.on_host(number),
                _MIN_SAMPLE,
                predictor=parameters.predictor,
                fill=parameters.fill,
                threads=parameters.threads,
            )
        found = self._samples[number]
        bound = group.bound(block.name, fraction)
        parameters = dataclasses.replace(block.parameters, eb=bound, mode="abs", backend="auto")
        tried = tuning.try_bound(found, parameters, compared=group.wanted.kind == "psnr")
        squares = tried.squares
        if found.limits.values:
            squares.scaled_sum *= work.ranges[number].values / found.limits.values
        return _Figures(None, block.raw_bytes, tried.archive_bytes, squares)


def _sum(parts: Iterable[_Figures]) -> _Figures:
    raw_bytes, archive_bytes, squares = 0, 0.0, embedding.SumOfSquares()
    for part in parts:
        raw_bytes, archive_bytes = raw_bytes + part.raw_bytes, archive_bytes + part.archive_bytes
        squares.merge(part.squares)
    return _Figures(None, raw_bytes, archive_bytes, squares)


def _errors(original: NDArray[Any], decoded: NDArray[Any], bound: float, fill: float | None) -> embedding.SumOfSquares:
    return embedding.compare(original.reshape(-1), decoded.reshape(-1), bound, fill)[1]


def _target_of(wanted: Wanted, raw_bytes: int, besides: tuple[int, int]) -> float | None:
    """The PSNR or ratio that is sought; None: what is there besides leaves no room.

    Args:
        raw_bytes: of the group.
        besides: raw bytes and bytes of archives of the step's other variables.
    """
    if wanted.kind == "psnr":
        return wanted.value
    room = _budget(wanted, raw_bytes, besides) - besides[1]
    return raw_bytes / room if room >= 1 else None


def _budget(wanted: Wanted, raw_bytes: int, besides: tuple[int, int]) -> float:
    """The bytes that the group, and what is there besides, may take."""
    return wanted.value if wanted.kind == "budget_bytes" else (raw_bytes + besides[0]) / wanted.value


def _missed(group: _Group, chosen: _Tried, raw_bytes: int, besides: tuple[int, int]) -> list[str]:
    """A message if the goal was not reached."""
    wanted = group.wanted
    together = chosen.archive_bytes + besides[1]
    if wanted.kind == "psnr":
        if not chosen.psnr < wanted.value:
            return []
        reached = f"PSNR is {chosen.psnr:.2f} dB with the smallest bound that eb_min allows"
    else:
        if together <= _budget(wanted, raw_bytes, besides) or (wanted.kind == "ratio" and raw_bytes + besides[0] == 0):
            return []
        reached = f"{together:.0f} bytes"
        if wanted.kind == "ratio":
            reached = f"ratio is {(raw_bytes + besides[0]) / together:.4g}"
        limits = [block.wanted.eb_max for block, _ in group.members.values() if block.wanted is not None]
        limit = "eb_max allows" if min(limits) < math.inf else "makes sense"
        reached += f" with the largest bound that {limit}"
    what = "of the step" if wanted.group == STEP else f"of {wanted.group!r}"
    return [f"{wanted} {what} is missed: {reached}"]
