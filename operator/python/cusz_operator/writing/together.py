"""How ranks agree at the end of a step, in a few messages whose sizes do not depend on the number of ranks.

One reduction finds whether a step is like the one before, whether a rank has failed or closes the Writer, and the
ranges of all variables. All ranks then draw the same conclusions from the same numbers. If variables, blocks or single
values differ from those of the step before, more is exchanged: see `_changed`. After compression, a second reduction
sums up the results.

Every rank takes part in every exchange, even if it has failed: its error waits until all ranks can raise it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cusz_core import parameters
from cusz_core.errors import CuszError, ParameterError

from ..ranks import Caught, Failure, Ranks, failure_of
from ..tables import blocktable
from . import agreement, overlaps
from .agreement import Description, Span, Value

#: How many ranks form a group, whose first rank gathers and puts the rows of their block tables.
RANKS_OF_A_TABLE = 256

# What every rank contributes at the end of a step or when it closes, reduced to maxima: flags, some of them negated
# ranks (so that the first one counts), digests and negated digests, and the ranges of variables.
_ENDS_STEP, _CLOSES, _FAILS, _IS_NEW, _PUTS_VALUES, _VALUES_ARE_NEW = range(6)
_FLAGS = 6
_DIGEST = len(agreement.digest(()))
_BEFORE_RANGES = _FLAGS + 2 * _DIGEST
_PREDICTORS = tuple(name for name in get_args(parameters.Predictor) if name != "auto")
_OF_VARIABLE = 4 + len(_PREDICTORS)  # numbers that are summed over ranks


class Report(NamedTuple):
    """What a rank puts at a step.

    Attributes:
        blocks: by variable.
        ranges: of their values, in this order: float64 of shape (blocks, 3), as `cusz_core.ValueRange`.
    """

    blocks: tuple[Description, ...] = ()
    ranges: NDArray[np.float64] = np.empty((0, 3))
    values: tuple[Value, ...] = ()


class Layout:
    """Where a rank's rows go in the block tables of a step.

    Attributes:
        names: of the variables.
        before: for each, the number of blocks of the ranks before this one.
    """

    def __init__(self, group: Ranks, arrays: Mapping[str, Description], own: Sequence[Description]) -> None:
        """
        Args:
            group: of ranks whose rows are gathered on its first one.
            arrays: every variable.
            own: this rank's blocks.
        """
        self.names = tuple(arrays)
        counts = dict.fromkeys(self.names, 0)
        for block in own:
            counts[block.name] += len(block.start)
        self.before = np.zeros(len(counts), np.int64)
        self._group = group
        self._counts = np.array(list(counts.values()), np.int64)
        self._columns = [len(blocktable.columns_of(len(block.shape))) for block in arrays.values()]
        members = group.size if group.rank == 0 else 0
        self._of_group = np.zeros((members, len(counts)), np.int64)
        self._widths = np.full(members, len(counts), np.int64)
        self._lengths = np.zeros(members, np.int64)  # how many numbers each rank of the group sends
        self._memory = np.empty(0)
        self._pieces: dict[str, list[slice]] = {}  # of the memory, by variable

    def agree(self, ranks: Ranks) -> None:
        """Finds out how many blocks the other ranks have (collective, even if it raises)."""
        self.before = ranks.sums_before(self._counts)
        self._group.gathered(self._counts, self._widths, self._of_group.reshape(-1))
        lengths = self._of_group * np.array(self._columns, np.int64)
        ends = lengths.cumsum().reshape(lengths.shape)
        self._lengths = lengths.sum(axis=1)
        self._memory = np.empty(int(lengths.sum()))
        for name, of_name, up_to in zip(self.names, lengths.T.tolist(), ends.T.tolist(), strict=True):
            self._pieces[name] = [slice(end - n, end) for end, n in zip(up_to, of_name, strict=True) if n]

    def in_one(self, own: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """This rank's rows in one array, for `gather`."""
        flat = [own[name].reshape(-1) for name in self.names if name in own]
        return np.concatenate(flat) if flat else np.empty(0)

    def gather(self, rows: NDArray[np.float64]) -> None:
        """Gathers the rows of the group on its first rank (collective)."""
        self._group.gathered(rows, self._lengths, self._memory)

    def tables(self) -> dict[str, NDArray[np.float64]]:
        """The rows that have been gathered on this rank, by variable."""
        return {
            name: np.concatenate([self._memory[piece] for piece in pieces]).reshape(-1, columns)
            for (name, pieces), columns in zip(self._pieces.items(), self._columns, strict=True)
            if pieces
        }


class Agreed(NamedTuple):
    """What ranks have agreed on for a step before they compress.

    Attributes:
        arrays: every array, without its blocks.
        spans: of their values, over all ranks, as far as they have been computed.
        bounds: of the arrays without a goal (`agreement.bounds_of`).
        kinds: of the single values.
        values: the single values; on rank 0.
        layout: of the block tables.
        error: of this rank, after others may have agreed; it is reported as if compressing had failed.
    """

    arrays: dict[str, Description]
    spans: dict[str, Span]
    bounds: dict[str, float]
    kinds: dict[str, str]
    values: dict[str, Value]
    layout: Layout
    error: Exception | None = None

    @property
    def is_sought(self) -> bool:
        """Whether some bound is to be sought."""
        return any(block.wanted is not None for block in self.arrays.values())

    def require(self) -> None:
        """Raises the error, if there is one."""
        if self.error is not None:
            raise self.error


class Totals(NamedTuple):
    """Totals of a variable at a step, over all ranks.

    Attributes:
        seconds: spent compressing.
        predictors: the number of blocks coded with each; blocks stored raw have none.
    """

    blocks: int
    raw_bytes: int
    archive_bytes: int
    seconds: float
    predictors: dict[str, int]


class Together:
    """What all ranks know about the steps of a Writer, the same on each of them.

    Attributes:
        known: about variables.
        is_closing: whether a rank has closed the Writer.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.known = agreement.Known()
        self.is_closing = False
        self._ranks = ranks
        self._group = ranks.groups(RANKS_OF_A_TABLE)
        self._nowhere = Layout(self._group, {}, ())
        self._none = np.zeros(_DIGEST)
        self._forget()

    def _forget(self) -> None:
        """Forgets the last step, so that the next one counts as new. Never fails, because all ranks must forget."""
        self._own: tuple[Description, ...] | None = None  # this rank's blocks of the step before
        self._digest = self._none  # of their kinds
        self._arrays: dict[str, Description] = {}
        self._layout = self._nowhere
        self._values: frozenset[tuple[str, str]] | None = None  # names and kinds of single values, all of them rank 0's

    def free(self) -> None:
        """Frees the communicators (collective)."""
        self._group.free()
        self._ranks.free()

    # ------------------------------------------------------------------------------------------- before compression

    def close(self, error: BaseException | None, where: str) -> CuszError | None:
        """Tells all ranks that this one closes the Writer. Returns the error if others end a step (collective)."""
        told = self._nothing()
        told[_CLOSES] = -self._ranks.rank
        return self._out_of_order(self._ranks.maxima(told), error, where)

    def end_step(self, report: Report, error: BaseException | None, where: str) -> Agreed:
        """Agrees on a step with all ranks (collective).

        Args:
            report: what this rank puts.
            error: of this rank, if it has failed before.
            where: what is being done, for messages.

        Raises:
            CuszError: a rank failed, ranks disagree, or one closes the Writer.
        """
        told, caught = self._nothing(), Caught(error)
        told[_ENDS_STEP] = 0.0
        with caught:
            if error is None:
                self._tell(told, report)
        error = caught.error
        if error is not None:
            told[_FLAGS:], told[_FAILS] = -math.inf, -self._ranks.rank
        found = self._ranks.maxima(told)
        out_of_order = self._out_of_order(found, error, where)
        if out_of_order is not None:
            self.is_closing = True
            raise out_of_order from error
        try:
            if found[_FAILS] > -math.inf:
                self._ranks.raise_of(int(-found[_FAILS]), error, where, is_counted=True)
            are_told = found[_PUTS_VALUES] > -math.inf
            if found[_IS_NEW] > 0 or (are_told and (found[_PUTS_VALUES] < 0 or found[_VALUES_ARE_NEW] > 0)):
                return self._changed(report, found, where)
        except BaseException:
            self._forget()
            raise
        kinds = self._values or () if are_told else ()
        return self._agreed(found[_BEFORE_RANGES:].reshape(-1, 3), kinds, report.values)

    def _nothing(self) -> NDArray[np.float64]:
        return np.full(_BEFORE_RANGES + 3 * len(self._layout.names), -math.inf)

    def _tell(self, told: NDArray[np.float64], report: Report) -> None:
        own = report.blocks
        is_like = self._own is not None and len(own) == len(self._own)
        is_like = is_like and all(map(Description.has_same_head, own, self._own or ()))
        told[_IS_NEW] = not is_like or not all(map(Description.has_same_blocks, own, self._own or ()))
        digest = self._digest if is_like else agreement.digest(block.kind() for block in own)
        told[_FLAGS:_BEFORE_RANGES] = *digest, *-digest
        if report.values:
            told[_PUTS_VALUES] = -self._ranks.rank
            kinds, known = _kinds_of(report.values), self._values
            has_all = self._ranks.rank > 0 or kinds == known
            told[_VALUES_ARE_NEW] = known is None or not kinds <= known or not has_all
        ranges = agreement.spans_of(self._layout.names, own, report.ranges)
        told[_BEFORE_RANGES:] = ranges.reshape(-1)

    def _out_of_order(self, found: NDArray[np.float64], error: BaseException | None, where: str) -> CuszError | None:
        """The error if some ranks close the Writer while others end a step."""
        if found[_CLOSES] == -math.inf or found[_ENDS_STEP] == -math.inf:
            return None
        rank = int(-found[_CLOSES])
        failure: Failure | None = self._ranks.of(rank, failure_of(error))
        if failure is not None:  # it has failed in between
            return Failure(failure.kind, f"{where}: rank {rank}: {failure.message}").error()
        return ParameterError(f"{where}: rank {rank} closed the Writer while others ended a step")

    def _changed(self, report: Report, found: NDArray[np.float64], where: str) -> Agreed:
        """Agrees on a step that is not like the one before (collective).

        If all ranks' digests are equal, so are the kinds of their blocks; otherwise descriptions are merged in a tree,
        as are single values. Another reduction finds ranges, and which variables' blocks have moved. `overlaps` finds
        whether those overlap, and prefix sums tell where rows go in block tables.
        """
        ranks = self._ranks
        is_new, are_told = found[_IS_NEW] > 0, found[_PUTS_VALUES] > -math.inf
        heads: agreement.ToldOf[Description] | None = None  # None: equal to this rank's own
        if is_new:
            digests = found[_FLAGS:_BEFORE_RANGES].reshape(2, _DIGEST)
            if not np.array_equal(digests[0], -digests[1]):
                heads = ranks.merged(
                    lambda: agreement.heads_of(ranks.rank, report.blocks), agreement.merged_told, where
                )
        told: agreement.ToldOf[Value] = {}
        if are_told:
            told = ranks.merged(lambda: agreement.told_by(ranks.rank, report.values), agreement.merged_told, where)
        arrays, layout, kinds = self._arrays, self._layout, frozenset[tuple[str, str]]()
        values: tuple[Value, ...] = ()
        ranges, caught = np.empty((0, 4)), Caught()
        with caught:
            if is_new:
                heads = agreement.heads_of(0, report.blocks) if heads is None else heads
                arrays = agreement.arrays_of(heads, self.known)
                layout = Layout(self._group, arrays, report.blocks)
            values = agreement.values_of(told, arrays, self.known)
            agreement.require_distinct(arrays, values, self.known)
            kinds = _kinds_of(values)
            ranges = np.empty((len(arrays), 4))
            ranges[:, :3] = agreement.spans_of(layout.names, report.blocks, report.ranges)
            ranges[:, 3] = self._moved(layout.names, report.blocks)
        self._require(caught.error, where)
        ranges = ranks.maxima(ranges)
        if is_new:
            self._place(arrays, layout, report.blocks, ranges[:, 3] > 0, where)
        # If rank 0 has not put all of them, they have to be exchanged at the next step, too.
        self._values = kinds if all(first.rank == 0 for first, *_ in told.values()) else None
        return self._agreed(ranges[:, :3], kinds, values)

    def _place(
        self,
        arrays: dict[str, Description],
        layout: Layout,
        own: tuple[Description, ...],
        moved: NDArray[np.bool_],
        where: str,
    ) -> None:
        """Makes sure that blocks do not overlap, and finds where their rows go in block tables (collective).

        Args:
            moved: the variables whose blocks are not where they were.
        """
        caught = Caught()
        if moved.any():
            ndim = max(len(block.shape) for block in arrays.values())
            rows = overlaps.no_rows(ndim)
            with caught:
                rows = overlaps.rows_of(self._ranks.rank, layout.names, own, moved, ndim)
            with caught:
                pair = overlaps.first_pair(self._ranks, rows)
                if pair is not None:
                    raise overlaps.error_of(pair, layout.names, arrays)
        with caught:
            layout.agree(self._ranks)
            digest = agreement.digest(block.kind() for block in own)
        self._require(caught.error, where)
        self._own, self._digest, self._arrays, self._layout = own, digest, arrays, layout

    def _require(self, error: BaseException | None, where: str) -> None:
        """Raises the first rank's error, if any rank has one, on all of them (collective), with `where` in front. An
        error other than a CuszError concerns that rank alone, so the message names the rank."""
        failure = failure_of(error)
        if failure is not None:
            who = "" if isinstance(error, CuszError) else f"rank {self._ranks.rank}: "
            error = failure._replace(message=f"{where}: {who}{failure.message}").error()
        self._ranks.agree_as_it_is(error)

    def _agreed(self, ranges: NDArray[np.float64], kinds: Iterable[tuple[str, str]], values: Sequence[Value]) -> Agreed:
        """
        Args:
            ranges: the maxima over ranks of what `agreement.spans_of` returns.
            kinds: of the single values.
            values: those of rank 0.
        """
        try:
            spans = agreement.spans_from(self._layout.names, ranges)
            bounds = agreement.bounds_of(self._arrays, spans)
            first = {value.name: value for value in reversed(values)} if self._ranks.rank == 0 else {}
            return Agreed(self._arrays, spans, bounds, dict(kinds), first, self._layout)
        except Exception as error:
            return Agreed(self._arrays, {}, {}, {}, {}, self._layout, error)

    def _moved(self, names: Sequence[str], own: Sequence[Description]) -> list[bool]:
        """Whether this rank's blocks of each variable lie elsewhere than in the step before."""
        now, before = _places_of(own), _places_of(self._own or ())
        return [name in now and (name not in before or not np.array_equal(now[name], before[name])) for name in names]

    # -------------------------------------------------------------------------------------------- after compression

    def totals(
        self,
        layout: Layout,
        own: Mapping[str, NDArray[np.float64]],
        predictors: Mapping[tuple[str, str], int],
        free_bytes: float,
        error: BaseException | None,
        where: str,
    ) -> tuple[dict[str, Totals], float]:
        """The totals of a step over all ranks, and the bytes that rank 0 has found free on the disk (collective).

        Args:
            own: this rank's rows of the block tables.
            predictors: the number of its blocks by variable and predictor, without those stored raw.
            free_bytes: on rank 0.
            error: of this rank, if it has failed.
            where: what is being done, for messages.

        Raises:
            CuszError: a rank has failed.
        """
        n = len(layout.names)
        summed = np.zeros(2 + _OF_VARIABLE * n)
        of_variable = summed[2:].reshape(n, _OF_VARIABLE)
        caught = Caught(error)
        with caught:
            if error is None:
                for i, name in enumerate(layout.names):
                    if name in own:
                        coded = [predictors.get((name, predictor), 0) for predictor in _PREDICTORS]
                        of_variable[i] = *blocktable.totals_of(own[name]), *coded
        summed[0] = caught.error is not None
        summed[1] = free_bytes if self._ranks.rank == 0 else 0.0
        summed = self._ranks.sums(summed)
        if summed[0]:
            self._ranks.agree(caught.error, where)
        made = {}
        for name, (blocks, raw, archives, seconds, *counted) in zip(
            layout.names, summed[2:].reshape(n, _OF_VARIABLE).tolist(), strict=True
        ):
            by_predictor = {p: int(count) for p, count in zip(_PREDICTORS, counted, strict=True) if count}
            made[name] = Totals(int(blocks), int(raw), int(archives), seconds, by_predictor)
        return made, float(summed[1])

    def add(self, step: Agreed) -> None:
        """Notes the variables of a step that all ranks have compressed."""
        self.known.kinds |= {name: agreement.kind_of(block) for name, block in step.arrays.items()}
        self.known.kinds |= step.kinds
        self.known.dimensions |= {name: block.dimensions for name, block in step.arrays.items() if block.dimensions}

    def combined(self, own: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The exclusive or of all ranks' numbers, on rank 0 (collective if other ranks put rows of tables, too)."""
        return own if self._group.size == self._ranks.size else self._ranks.xor_on_first(own)


def _kinds_of(values: Iterable[Value]) -> frozenset[tuple[str, str]]:
    return frozenset((value.name, value.kind()) for value in values)


def _places_of(told: Sequence[Description]) -> dict[str, NDArray[np.int64]]:
    """Starts and extents of blocks, by variable."""
    found: dict[str, NDArray[np.int64]] = {}
    for block in told:
        place = np.hstack([block.start, block.extents])
        before = found.get(block.name)
        if before is not None and before.shape[1] == place.shape[1]:
            place = np.vstack([before, place])
        found[block.name] = place
    return found
