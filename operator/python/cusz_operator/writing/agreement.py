"""What follows from the messages of all ranks: rank 0 concludes it, and tells the others.

Everything here is a function of these messages, in rank order; nothing communicates.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import Parameters, embedding
from cusz_core.errors import CuszError, ParameterError

from ..ranks import Failure, failure_of, raise_first
from ..reading.contents import AsStored
from ..tables.boxes import Extents, first_overlap
from ..tables.representation import float16_bound, is_exact, is_packed
from .goals import Wanted

# Written in addition to the archives: padding and metadata of every block and rank, and finally an index and a profile.
_BYTES_OF_A_BLOCK = 4096
_BYTES_BESIDES = 1 << 20


class Opening(NamedTuple):
    """What a rank tells the others when it opens a Writer.

    Attributes:
        failure: why it cannot; None if it can.
        path, engine, append, asynchronous, overlap: as given to the Writer.
        wants_statistics: whether ADIOS2 is to keep minimum and maximum of blocks.
        has_statistics: whether the file to append to has them; None for a new file, or on ranks other than 0.
    """

    failure: Failure | None
    path: str
    engine: str
    append: bool
    asynchronous: bool
    overlap: bool
    wants_statistics: bool
    has_statistics: bool | None


class Description(NamedTuple):
    """What a rank tells about its blocks of a variable, except for their values.

    Attributes:
        start, extents: int64, of shape (blocks, dimensions).
    """

    name: str
    dtype: str
    given: str
    dimensions: tuple[str, ...]
    shape: Extents
    parameters: Parameters
    wanted: Wanted | None
    start: NDArray[np.int64]
    extents: NDArray[np.int64]

    def is_like(self, other: Description) -> bool:
        """Whether what cannot differ between blocks of a variable is the same."""
        # Zeros of either sign are equal, but not the same fill value.
        return self[:7] == other[:7] and repr(self.parameters.fill) == repr(other.parameters.fill)

    def is_same(self, other: Description) -> bool:
        return self.is_like(other) and all(map(np.array_equal, self[7:], other[7:]))


class Value(NamedTuple):
    """One value that a rank puts: a number or a text."""

    name: str
    value: np.generic | str

    @property
    def dtype(self) -> str:
        return "text" if isinstance(self.value, str) else self.value.dtype.name


class Report(NamedTuple):
    """What a rank tells at the end of a step ("step"), or when it closes the Writer ("close").

    Attributes:
        blocks: by variable; None: the same as in the step before.
        ranges: of their values, in this order: the bytes of float64s of shape (blocks, 3), as `cusz_core.ValueRange`.
    """

    what: str
    failure: Failure | None
    blocks: tuple[Description, ...] | None = ()
    ranges: bytes = b""
    values: tuple[Value, ...] = ()


class _OfRank(NamedTuple):
    """Blocks of a variable, and the rank that puts them."""

    rank: int
    blocks: Description


@dataclasses.dataclass(frozen=True)
class Structure:
    """The blocks that all ranks put at a step, except for their values.

    Attributes:
        arrays: every variable, without its blocks.
        blocks: start and extents of its blocks, in the order of ranks.
        variable: to which each block belongs, in the order of the ranks' reports: an index into `arrays`.
    """

    arrays: dict[str, Description]
    blocks: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]
    variable: NDArray[np.int64]


class Agreed(NamedTuple):
    """What ranks have agreed on for a step before they compress.

    Attributes:
        arrays: every variable, without its blocks.
        ranges: of their values, over all ranks, as far as they have been looked for.
        bounds: the absolute bound of every variable, if it is not to be sought.
    """

    arrays: dict[str, Description]
    ranges: dict[str, cusz_core.ValueRange]
    bounds: dict[str, float]


class Conclusion(NamedTuple):
    """What rank 0 concludes from all ranks' reports.

    Attributes:
        failure: the error to raise on all ranks.
        is_closing: whether a rank closes the Writer.
        agreed: for the step, if neither.
    """

    failure: Failure | None
    is_closing: bool = False
    agreed: Agreed = Agreed({}, {}, {})


class Register:
    """What is known of the steps of a Writer.

    Attributes:
        kinds: of variables, in all steps.
        in_file: variables in the file that is appended to, on rank 0.
        values: the single values of the step, on rank 0.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.in_file: dict[str, AsStored] = {}
        self.values: dict[str, Value] = {}
        self._heard: list[tuple[Description, ...]] = []  # all ranks' blocks, on rank 0
        self._structure: Structure | None = None  # of these, if they are consistent

    def concluded(self, told: Sequence[Report], where: str) -> Conclusion:
        """What rank 0 concludes from the reports of all ranks.

        Raises:
            CuszError: that of a rank, or what ranks disagree about.
        """
        closing = [report.what == "close" for report in told]
        if any(closing):
            return Conclusion(None if all(closing) else failure_of(out_of_order(told, where)), is_closing=True)
        is_new = self._structure is None or any(report.blocks is not None for report in told)
        before = self._heard or [()] * len(told)
        self._heard = [old if new.blocks is None else new.blocks for old, new in zip(before, told, strict=True)]
        raise_first([report.failure for report in told], where)
        if is_new or self._structure is None:
            last, self._structure = self._structure, None
            self._structure = structure_of(self._heard, self.kinds, where, last)
            for name, block in self._structure.arrays.items():
                _require_as_in_file(block, self.in_file.get(name), f"{where}: variable {name!r}")
        self.values = values_of([report.values for report in told], self._structure.arrays, self.kinds, where)
        for name, value in self.values.items():
            if name in self.in_file:
                _require_type(value.dtype, self.in_file[name], f"{where}: variable {name!r}")
        return Conclusion(None, agreed=agreed(self._structure, [report.ranges for report in told]))

    def add(self, step: Agreed) -> None:
        """Adds a step that all ranks have compressed."""
        self.kinds |= {name: kind_of(block) for name, block in step.arrays.items()}
        self.kinds |= {name: kind_of_value(value) for name, value in self.values.items()}


# ------------------------------------------------------------------------------------------------ opening and closing


def statistics_agreed(told: Sequence[Opening], where: str) -> bool:
    """Whether the file is to have ADIOS2's statistics: as an existing file has them, else if all ranks want them.

    Raises:
        ParameterError: ranks open with different arguments.
    """
    for rank, other in enumerate(told):
        if other[1:6] != told[0][1:6]:
            raise ParameterError(
                f"{where}: rank 0 opens {told[0][1:6]} (path, engine, append, asynchronous, overlap), and rank {rank} "
                f"opens {other[1:6]}"
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


def structure_of(
    told: Sequence[Sequence[Description]], known: Mapping[str, str], where: str, before: Structure | None
) -> Structure:
    """The blocks of all ranks.

    Args:
        told: those of every rank.
        known: the kinds of variables in earlier steps.
        where: what was being done, for messages.
        before: that of an earlier step, whose blocks do not overlap; None: there is none.

    Raises:
        ParameterError: blocks of a variable are inconsistent, on one rank or on several, or overlap.
    """
    of_name: dict[str, list[_OfRank]] = {}
    for rank, blocks in enumerate(told):
        for block in blocks:
            of_name.setdefault(block.name, []).append(_OfRank(rank, block))
    made = Structure({}, {}, np.empty(0, np.int64))
    for name, parts in of_name.items():
        what = f"{where}: variable {name!r}"
        _require_same(parts, what)
        first = parts[0].blocks
        kind = kind_of(first)
        if known.get(name, kind) != kind:
            raise ParameterError(
                f"{what} is {kind}, and was {known[name]} in earlier steps: a variable cannot change its type"
            )
        place = (np.concatenate([of.blocks.start for of in parts]), np.concatenate([of.blocks.extents for of in parts]))
        if before is None or not all(map(np.array_equal, place, before.blocks.get(name, ((), ())))):
            _require_no_overlap(parts, place, what)
        named = next((of.blocks.dimensions for of in parts if of.blocks.dimensions), ())
        made.arrays[name] = first._replace(dimensions=named, start=first.start[:0], extents=first.extents[:0])
        made.blocks[name] = place
    _require_one_goal(told, where)
    numbers = {name: number for number, name in enumerate(made.arrays)}
    variable = [np.full(len(block.start), numbers[block.name]) for blocks in told for block in blocks]
    return dataclasses.replace(made, variable=np.concatenate(variable) if variable else made.variable)


def agreed(structure: Structure, ranges: Iterable[bytes]) -> Agreed:
    """What follows from all ranks' reports.

    Args:
        ranges: those of every rank's report.
    """
    found = _ranges_of(structure, np.frombuffer(b"".join(ranges)).reshape(-1, 3))
    bounds = {name: _bound_of(block, found[name]) for name, block in structure.arrays.items() if block.wanted is None}
    return Agreed(structure.arrays, found, bounds)


def _ranges_of(structure: Structure, ranges: NDArray[np.float64]) -> dict[str, cusz_core.ValueRange]:
    """The value range of every variable; NaN if it was not looked for."""
    n = len(structure.arrays)
    low, high, values, unknown = np.full(n, math.inf), np.full(n, -math.inf), np.zeros(n), np.zeros(n, bool)
    counted = ranges[:, 2] > 0
    variable = structure.variable[counted]
    np.minimum.at(low, variable, ranges[counted, 0])
    np.maximum.at(high, variable, ranges[counted, 1])
    np.add.at(values, variable, ranges[counted, 2])
    unknown[structure.variable[np.isnan(ranges[:, 0])]] = True
    found = {}
    for number, name in enumerate(structure.arrays):
        some = cusz_core.ValueRange(float(low[number]), float(high[number]), int(values[number]))
        if unknown[number]:
            some = cusz_core.ValueRange(math.nan, math.nan, 0)
        found[name] = some if values[number] or unknown[number] else cusz_core.ValueRange(0.0, 0.0, 0)
    return found


def values_of(
    told: Sequence[Sequence[Value]], arrays: Collection[str], known: Mapping[str, str], where: str
) -> dict[str, Value]:
    """The single values of a step: that of the first rank that puts one.

    Args:
        told: those of every rank.
        arrays: names of variables that are none.
        known: the kinds of variables in earlier steps.
        where: what was being done, for messages.

    Raises:
        ParameterError: ranks disagree about a value's type, or the name is that of an array.
    """
    found: dict[str, tuple[int, Value]] = {}
    for rank, values in enumerate(told):
        for value in values:
            first_rank, first = found.setdefault(value.name, (rank, value))
            if value.dtype != first.dtype:
                what = f"{where}: variable {value.name!r}"
                raise _differing(what, "one value of type", rank, value.dtype, first_rank, first.dtype)
    for name, (rank, value) in found.items():
        kind = kind_of_value(value)
        if name in arrays or known.get(name, kind) != kind:
            other = "an array" if name in arrays else f"{known[name]} in earlier steps"
            raise ParameterError(f"{where}: variable {name!r} is {kind} on rank {rank}, and {other}")
    return {name: value for name, (_, value) in found.items()}


def kind_of_value(value: Value) -> str:
    """The properties of a single value that cannot change from step to step."""
    return f"one value of {value.dtype}"


def kind_of(block: Description) -> str:
    """The properties of an array that cannot change from step to step."""
    packed = ", packed" if is_exact(np.dtype(block.dtype)) and is_packed(block.parameters) else ""
    return f"{block.given}, {len(block.shape)} dimensions{packed}"


def _require_type(dtype: str, in_file: AsStored, what: str) -> None:
    """Refuses what ADIOS2 writes, and cannot read: in BP4 not even the file."""
    if dtype != in_file.dtype:
        raise ParameterError(
            f"{what} is {in_file.dtype} in the file, and would be {dtype} in what is appended, which ADIOS2 could not "
            "read"
        )


def _require_as_in_file(block: Description, in_file: AsStored | None, what: str) -> None:
    """Refuses what readers of ADIOS2 crash over, or wait for ever: a variable of another type than before, or with an
    operator at some steps alone."""
    if in_file is None:
        return
    _require_type(np.dtype(block.dtype).name, in_file, what)
    is_integer = is_exact(np.dtype(block.dtype))
    is_stored = not is_integer or is_packed(block.parameters)
    if in_file.by_operator in (None, is_stored):
        return
    was, would_be = ("packed" if is_integer else "compressed", "stored without an operator")[
        :: 1 if in_file.by_operator else -1
    ]
    remedy = "" if not is_integer else f": pass lossless={'zstd' if in_file.by_operator else 'none'!r}"
    raise ParameterError(
        f"{what} is {was} in the file, and would be {would_be} in what is appended, which ADIOS2 could not read{remedy}"
    )


def _require_same(parts: Sequence[_OfRank], what: str) -> None:
    first_rank, first = parts[0]
    named_by, named = next((of for of in parts if of.blocks.dimensions), parts[0])  # one block may name them for all
    for rank, blocks in parts:
        if blocks.is_like(first):
            continue
        for which, here, other_rank, there in (
            ("dtype", blocks.given, first_rank, first.given),
            ("shape", blocks.shape, first_rank, first.shape),
            ("dims", blocks.dimensions or named.dimensions, named_by, named.dimensions),
            ("goal", blocks.wanted, first_rank, first.wanted),
            ("settings", blocks.parameters.of_archive(), first_rank, first.parameters.of_archive()),
        ):
            if here != there:
                raise _differing(what, which, rank, here, other_rank, there)


_OF_SHAPES = (
    " (shape= is that of the global array, in which start= says where a block begins; if lengths differ from rank to "
    "rank, it is the sum of all of them, and start= that of those before)"
)


def _differing(what: str, which: str, rank: int, here: object, other_rank: int, there: object) -> ParameterError:
    more = _OF_SHAPES if which == "shape" else ""
    if rank == other_rank:
        return ParameterError(
            f"{what} has {which} {here} in one put of rank {rank} and {there} in another: they must be the same{more}"
        )
    return ParameterError(
        f"{what} has {which} {here} on rank {rank} and {there} on rank {other_rank}: they must be the same{more}"
    )


def _require_one_goal(told: Sequence[Sequence[Description]], where: str) -> None:
    """Variables that are to reach a goal together have the same one."""
    of_group: dict[str, tuple[int, Description, Wanted]] = {}
    for rank, blocks in enumerate(told):
        for block in blocks:
            if block.wanted is None:
                continue
            other_rank, other, wanted = of_group.setdefault(block.wanted.group, (rank, block, block.wanted))
            if str(wanted) != str(block.wanted):
                raise ParameterError(
                    f"{where}: variable {block.name!r} is to reach {block.wanted} on rank {rank}, together with "
                    f"{other.name!r}, which is to reach {wanted} on rank {other_rank}: they must be the same"
                )


def _require_no_overlap(
    parts: Sequence[_OfRank], place: tuple[NDArray[np.int64], NDArray[np.int64]], what: str
) -> None:
    pair = first_overlap(*place)
    if pair is None:
        return
    ranks = np.repeat([rank for rank, _ in parts], [len(blocks.start) for _, blocks in parts])
    (start, count), (other_start, other_count) = ([tuple(of[i].tolist()) for of in place] for i in pair)
    raise ParameterError(
        f"{what}: the block at {start} with extents {count} of rank {ranks[pair[0]]} overlaps that at {other_start} "
        f"with extents {other_count} of rank {ranks[pair[1]]}"
    )


def _bound_of(block: Description, found: cusz_core.ValueRange) -> float:
    parameters = block.parameters
    if parameters.mode == "pw_rel":  # rounding to float16 adds at most as much again
        return parameters.eb / 2 if block.given == "float16" else parameters.eb
    return _for_type(block, found, _absolute(parameters.eb, parameters.mode, found))


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


def _for_type(block: Description, found: cusz_core.ValueRange, bound: float) -> float:
    """The bound for what stores the type that was given."""
    return float16_bound(bound, max(abs(found.min), abs(found.max))) if block.given == "float16" else bound


def bytes_needed(tables: Mapping[str, NDArray[Any]], ranks: int) -> int:
    """Upper limit on the bytes that a step takes on the disk, from its block tables and the number of ranks."""
    archive_bytes = sum(int(table["archive_bytes"].sum()) for table in tables.values())
    n_blocks = sum(map(len, tables.values()))
    return archive_bytes + _BYTES_BESIDES + _BYTES_OF_A_BLOCK * (n_blocks + ranks)
