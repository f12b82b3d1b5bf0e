"""What ranks conclude from the messages of all ranks: the same on every rank, so that none waits for another.

Everything here is a function of these messages, in rank order; nothing communicates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import Parameters, embedding
from cusz_core.errors import CuszError, ParameterError

from .blocks import Extents, first_overlap
from .goals import Wanted
from .ranks import Failure
from .representation import float16_bound, is_exact, is_packed

__all__ = [
    "Description",
    "Opening",
    "Report",
    "Value",
    "bound_within",
    "bounds_of",
    "bytes_needed",
    "geometry_of",
    "kind_of_value",
    "kinds_of",
    "out_of_order",
    "range_of",
    "statistics_agreed",
    "values_of",
]

# Written in addition to the archives: padding and metadata of every block and rank, and finally an index and a profile.
_BYTES_OF_A_BLOCK = 4096
_BYTES_BESIDES = 1 << 20


class Opening(NamedTuple):
    """What a rank tells the others when it opens a Writer.

    Attributes:
        failure: why it cannot; None if it can.
        path, engine, append, asynchronous: as given to the Writer.
        wants_statistics: whether ADIOS2 is to keep minimum and maximum of blocks.
        has_statistics: whether the file to append to has them; None for a new file, or on ranks other than 0.
    """

    failure: Failure | None
    path: str
    engine: str
    append: bool
    asynchronous: bool
    wants_statistics: bool
    has_statistics: bool | None


class Description(NamedTuple):
    """What ranks tell each other about a block before it is compressed."""

    name: str
    dtype: str
    shape: Extents
    start: Extents
    extents: Extents
    given: str
    dimensions: tuple[str, ...]
    parameters: Parameters
    range: cusz_core.ValueRange
    wanted: Wanted | None = None


class Value(NamedTuple):
    """One value that a rank puts: a number or a text."""

    name: str
    value: np.generic | str

    @property
    def dtype(self) -> str:
        return "text" if isinstance(self.value, str) else self.value.dtype.name


class Report(NamedTuple):
    """What a rank tells the others at the end of a step ("step"), or when it closes the Writer ("close")."""

    what: str
    failure: Failure | None
    blocks: tuple[Description, ...] = ()
    values: tuple[Value, ...] = ()


class _Placed(NamedTuple):
    """A block, and the rank that puts it."""

    rank: int
    block: Description


# ------------------------------------------------------------------------------------------------ opening and closing


def statistics_agreed(told: Sequence[Opening], where: str) -> bool:
    """Whether the file is to have ADIOS2's statistics: as an existing file has them, else if all ranks want them.

    Raises:
        ParameterError: ranks open with different arguments.
    """
    for rank, other in enumerate(told):
        if other[1:5] != told[0][1:5]:
            raise ParameterError(
                f"{where}: rank 0 opens {told[0][1:5]} (path, engine, append, asynchronous), and rank {rank} opens "
                f"{other[1:5]}"
            )
    in_file = told[0].has_statistics
    return all(rank.wants_statistics for rank in told) if in_file is None else in_file


def out_of_order(told: Sequence[Report], where: str) -> CuszError:
    """The error if some ranks close the Writer while others end a step."""
    rank = next(i for i, report in enumerate(told) if report.what == "close")
    failure = told[rank].failure
    if failure is not None:
        return Failure(failure.kind, f"{where}: rank {rank}: {failure.message}").error()
    return ParameterError(f"{where}: rank {rank} closed the Writer while others ended a step")


# ------------------------------------------------------------------------------------------------------------ a step


def geometry_of(told: Sequence[Sequence[Description]]) -> list[list[tuple[Any, ...]]]:
    """Which blocks there are, and where. If it has not changed, overlaps need not be looked for again."""
    return [[block[:5] for block in blocks] for blocks in told]


def kinds_of(told: Sequence[Sequence[Description]]) -> dict[str, str]:
    """The properties of every variable that cannot change from step to step."""
    return {block.name: _kind(block) for blocks in told for block in blocks}


def bounds_of(
    told: Sequence[Sequence[Description]], known: Mapping[str, str], where: str, *, overlaps: bool = True
) -> dict[str, float]:
    """The absolute bound of every variable of a step, except of those whose bounds are to be sought.

    Args:
        told: the blocks of every rank.
        known: `kinds_of` earlier steps.
        where: what was being done, for messages.
        overlaps: False: blocks are known not to overlap.

    Raises:
        ParameterError: blocks of a variable are inconsistent, on one rank or on several.
    """
    bounds = {}
    for name, blocks in _by_name(told).items():
        what = f"{where}: variable {name!r}"
        _require_same(blocks, what)
        kind = _kind(blocks[0].block)
        if known.get(name, kind) != kind:
            raise ParameterError(
                f"{what} is {kind}, and was {known[name]} in earlier steps: a variable cannot change its type"
            )
        if overlaps:
            _require_no_overlap(blocks, what)
        if blocks[0].block.wanted is None:
            described = [placed.block for placed in blocks]
            are_known = not any(math.isnan(block.range.min) for block in described)
            bounds[name] = _bound_of(described[0], _range_over(described), are_known)
    _require_one_goal(told, where)
    return bounds


def values_of(
    told: Sequence[Sequence[Value]], blocks: Sequence[Sequence[Description]], known: Mapping[str, str], where: str
) -> dict[str, Value]:
    """The single values of a step: that of the first rank that puts one.

    Args:
        told: those of every rank.
        blocks: of every rank.
        known: `kinds_of` earlier steps.
        where: what was being done, for messages.

    Raises:
        ParameterError: ranks disagree about a value's type, or the name is that of an array.
    """
    arrays = {block.name for of_rank in blocks for block in of_rank}
    found: dict[str, tuple[int, Value]] = {}
    for rank, values in enumerate(told):
        for value in values:
            first_rank, first = found.setdefault(value.name, (rank, value))
            if value.dtype != first.dtype:
                raise ParameterError(
                    f"{where}: variable {value.name!r} is one value of {value.dtype} on rank {rank} and of "
                    f"{first.dtype} on rank {first_rank}: they must be the same"
                )
    for name, (rank, value) in found.items():
        kind = kind_of_value(value)
        if name in arrays or known.get(name, kind) != kind:
            other = "an array" if name in arrays else f"{known[name]} in earlier steps"
            raise ParameterError(f"{where}: variable {name!r} is {kind} on rank {rank}, and {other}")
    return {name: value for name, (_, value) in found.items()}


def kind_of_value(value: Value) -> str:
    """The properties of a single value that cannot change from step to step."""
    return f"one value of {value.dtype}"


def _by_name(told: Sequence[Sequence[Description]]) -> dict[str, list[_Placed]]:
    of_name: dict[str, list[_Placed]] = {}
    for rank, blocks in enumerate(told):
        for block in blocks:
            of_name.setdefault(block.name, []).append(_Placed(rank, block))
    return of_name


def _kind(block: Description) -> str:
    packed = ", packed" if is_exact(np.dtype(block.dtype)) and is_packed(block.parameters) else ""
    return f"{block.given}, {len(block.shape)} dimensions{packed}"


def _require_same(blocks: Sequence[_Placed], what: str) -> None:
    first_rank, first = blocks[0]
    for rank, block in blocks:
        for which, here, there in (
            ("dtype", block.given, first.given),
            ("shape", block.shape, first.shape),
            ("dims", block.dimensions, first.dimensions),
            ("goal", block.wanted, first.wanted),
            ("settings", block.parameters.of_archive(), first.parameters.of_archive()),
        ):
            if here != there:
                raise ParameterError(
                    f"{what} has {which} {here} on rank {rank} and {there} on rank {first_rank}: they must be the same"
                )


def _require_one_goal(told: Sequence[Sequence[Description]], where: str) -> None:
    """Variables that are to reach a goal together have the same one."""
    of_group: dict[str, _Placed] = {}
    for rank, blocks in enumerate(told):
        for block in blocks:
            if block.wanted is None:
                continue
            other = of_group.setdefault(block.wanted.group, _Placed(rank, block))
            if other.block.wanted is not None and str(other.block.wanted) != str(block.wanted):
                raise ParameterError(
                    f"{where}: variable {block.name!r} is to reach {block.wanted} on rank {rank}, together with "
                    f"{other.block.name!r}, which is to reach {other.block.wanted} on rank {other.rank}: they must be "
                    "the same"
                )


def _require_no_overlap(blocks: Sequence[_Placed], what: str) -> None:
    pair = first_overlap((block.start, block.extents) for _, block in blocks)
    if pair is not None:
        (rank, one), (other_rank, two) = blocks[pair[0]], blocks[pair[1]]
        raise ParameterError(
            f"{what}: the block at {one.start} with extents {one.extents} of rank {rank} overlaps that at {two.start} "
            f"with extents {two.extents} of rank {other_rank}"
        )


def range_of(told: Sequence[Sequence[Description]], name: str) -> cusz_core.ValueRange:
    """The value range of a variable at a step, over all blocks."""
    return _range_over([block for blocks in told for block in blocks if block.name == name])


def _range_over(blocks: Sequence[Description]) -> cusz_core.ValueRange:
    """That of no values, 0 to 0, if it was not looked for."""
    counted = [block.range for block in blocks if block.range.values > 0]
    low = min((found.min for found in counted), default=0.0)
    high = max((found.max for found in counted), default=0.0)
    return cusz_core.ValueRange(low, high, sum(found.values for found in counted))


def _bound_of(block: Description, found: cusz_core.ValueRange, is_known: bool) -> float:
    parameters = block.parameters
    if parameters.mode == "pw_rel":  # rounding to float16 adds at most as much again
        return parameters.eb / 2 if block.given == "float16" else parameters.eb
    return _for_type(block, found if is_known else None, _absolute(parameters.eb, parameters.mode, found))


def bound_within(block: Description, found: cusz_core.ValueRange, fraction: float) -> float:
    """The absolute bound that is a fraction of a value range, within the limits of what is wanted."""
    assert block.wanted is not None
    low, high = (
        _absolute(limit, block.parameters.mode, found) if limit < math.inf else limit
        for limit in (block.wanted.eb_min, block.wanted.eb_max)
    )
    return _for_type(block, found, min(max(_absolute(fraction, "rel", found), low), high))


def _absolute(eb: float, mode: str, found: cusz_core.ValueRange) -> float:
    return embedding.absolute_bound(eb, found.min, found.max) if mode == "rel" else eb


def _for_type(block: Description, found: cusz_core.ValueRange | None, bound: float) -> float:
    """The bound for what stores the type that was given."""
    if block.given != "float16":
        return bound
    return float16_bound(bound, max(abs(found.min), abs(found.max)) if found else math.nan)


def bytes_needed(tables: Sequence[Mapping[str, NDArray[Any]]]) -> int:
    """Upper limit on the bytes that a step takes on the disk, from the block tables of all ranks."""
    of_ranks = [list(of_rank.values()) for of_rank in tables]
    archive_bytes = sum(int(table["archive_bytes"].sum()) for of_rank in of_ranks for table in of_rank)
    n_blocks = sum(len(table) for of_rank in of_ranks for table in of_rank)
    return archive_bytes + _BYTES_BESIDES + _BYTES_OF_A_BLOCK * (n_blocks + len(tables))
