"""What ranks conclude from the messages of all ranks: the same on every rank, so that none waits for another.

Everything here is a function of these messages, in rank order; nothing communicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

import cusz_core
from cusz_core import Parameters, embedding
from cusz_core.errors import CuszError, ParameterError

from .blocks import Extents, first_overlap
from .ranks import Failure

__all__ = [
    "Description",
    "Opening",
    "Report",
    "bounds_of",
    "bytes_needed",
    "geometry_of",
    "kinds_of",
    "out_of_order",
    "parameters_of",
    "statistics_agreed",
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
    parameters: Parameters
    range: cusz_core.ValueRange


class Report(NamedTuple):
    """What a rank tells the others at the end of a step ("step"), or when it closes the Writer ("close")."""

    what: str
    failure: Failure | None
    blocks: tuple[Description, ...]


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


def parameters_of(told: Sequence[Sequence[Description]]) -> dict[str, Parameters]:
    """The parameters of every variable of a step, which `bounds_of` has found to be the same for all of its blocks."""
    return {block.name: block.parameters for blocks in told for block in blocks}


def bounds_of(
    told: Sequence[Sequence[Description]], known: Mapping[str, str], where: str, *, overlaps: bool = True
) -> dict[str, float]:
    """The absolute bound of every variable of a step.

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
        bounds[name] = _bound_of(blocks)
    return bounds


def _by_name(told: Sequence[Sequence[Description]]) -> dict[str, list[_Placed]]:
    of_name: dict[str, list[_Placed]] = {}
    for rank, blocks in enumerate(told):
        for block in blocks:
            of_name.setdefault(block.name, []).append(_Placed(rank, block))
    return of_name


def _kind(block: Description) -> str:
    return f"{block.dtype}, {len(block.shape)} dimensions"


def _require_same(blocks: Sequence[_Placed], what: str) -> None:
    first_rank, first = blocks[0]
    for rank, block in blocks:
        for which, here, there in (
            ("dtype", block.dtype, first.dtype),
            ("shape", block.shape, first.shape),
            ("settings", block.parameters.of_archive(), first.parameters.of_archive()),
        ):
            if here != there:
                raise ParameterError(
                    f"{what} has {which} {here} on rank {rank} and {there} on rank {first_rank}: they must be the same"
                )


def _require_no_overlap(blocks: Sequence[_Placed], what: str) -> None:
    pair = first_overlap((block.start, block.extents) for _, block in blocks)
    if pair is not None:
        (rank, one), (other_rank, two) = blocks[pair[0]], blocks[pair[1]]
        raise ParameterError(
            f"{what}: the block at {one.start} with extents {one.extents} of rank {rank} overlaps that at {two.start} "
            f"with extents {two.extents} of rank {other_rank}"
        )


def _bound_of(blocks: Sequence[_Placed]) -> float:
    parameters = blocks[0].block.parameters
    if parameters.mode != "rel":
        return parameters.eb
    counted = [block.range for _, block in blocks if block.range.values > 0]
    low = min((found.min for found in counted), default=0.0)
    high = max((found.max for found in counted), default=0.0)
    return embedding.absolute_bound(parameters.eb, low, high)


def bytes_needed(tables: Sequence[Mapping[str, NDArray[Any]]]) -> int:
    """Upper limit on the bytes that a step takes on the disk, from the block tables of all ranks."""
    of_ranks = [list(of_rank.values()) for of_rank in tables]
    archive_bytes = sum(int(table["archive_bytes"].sum()) for of_rank in of_ranks for table in of_rank)
    n_blocks = sum(len(table) for of_rank in of_ranks for table in of_rank)
    return archive_bytes + _BYTES_BESIDES + _BYTES_OF_A_BLOCK * (n_blocks + len(tables))
