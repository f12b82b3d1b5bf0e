"""What ranks have to agree on. Nothing here communicates: `together.py` does.

Differences between ranks are merged two by two (`merged_...`), so that nothing grows with the number of ranks.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cusz_core import Parameters, embedding
from cusz_core.errors import ParameterError

from ..reading.contents import AsStored
from ..reading.input import form_of
from ..tables.boxes import Extents
from ..tables.representation import PARTS, float16_bound, is_exact, is_packed
from .goals import Wanted

# What is written besides archives: metadata, which repeat names, and block tables; for every rank, padding, the end of
# its file and a profile; and an index. Measured in BP4, a block takes 244 bytes, 91 for each dimension, and its name;
# in BP5 it takes less. The name of a variable with one block appears up to five times.
_BYTES_OF_A_BLOCK = 512
_BYTES_OF_A_DIMENSION = 96
_NAMES_OF_A_BLOCK = 4
_BLOCKS_OF_A_VARIABLE = 4  # a variable without blocks takes as much as this many blocks
_BYTES_OF_A_VARIABLE_AND_RANK = 128
_BYTES_OF_A_RANK = 8192
_BYTES_BESIDES = 1 << 20
_LANES = 3  # 32-bit numbers per digest: doubles hold them exactly
_MAX_KINDS = 3  # differing reports kept for a variable (`merged_told`)


class Opening(NamedTuple):
    """The arguments of the Writer that must be the same on all ranks."""

    path: str
    engine: str
    append: bool
    asynchronous: bool
    overlap: bool


class Description(NamedTuple):
    """What a rank reports about its blocks of a variable: everything but their values.

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

    def head(self) -> Description:
        """The description without its blocks."""
        return self._replace(start=self.start[:0], extents=self.extents[:0])

    def kind(self) -> tuple[Any, ...]:
        """What cannot differ between blocks of a variable. Settings are texts, because equal numbers may differ."""
        return (*self[:5], self.parameters.of_archive(), repr(self.wanted))

    def has_same_head(self, other: Description) -> bool:
        # 0.0 == -0.0, but they are different fill values.
        return self[:7] == other[:7] and repr(self.parameters.fill) == repr(other.parameters.fill)

    def has_same_blocks(self, other: Description) -> bool:
        return all(map(np.array_equal, self[7:], other[7:]))


class Value(NamedTuple):
    """One value that a rank puts: a number or a text."""

    name: str
    value: np.generic | str

    @property
    def dtype(self) -> str:
        return "text" if isinstance(self.value, str) else self.value.dtype.name

    def kind(self) -> str:
        """The properties that cannot differ between ranks, nor change from step to step."""
        return f"one value of {self.dtype}"


class Span(NamedTuple):
    """Minimum and maximum of a variable's values over all ranks: NaN if not computed, 0 if there are no values."""

    min: float
    max: float


_T = TypeVar("_T", bound=Description | Value)


@dataclasses.dataclass(frozen=True)
class Told(Generic[_T]):
    """What a rank reports about a variable: the head of a description, or a single value.

    Attributes:
        rank: the first rank that reports it.
        position: in the report of that rank.
    """

    rank: int
    position: int
    of: _T


#: By variable, the reports that differ between ranks, or between the blocks of one rank.
ToldOf = dict[str, tuple[Told[_T], ...]]


# ----------------------------------------------------------------------------------------------------------- opening


class Openings(NamedTuple):
    """The arguments of the first rank, and those of the first rank that differs from it."""

    first: tuple[int, Opening]
    other: tuple[int, Opening] | None


def merged_openings(a: Openings, b: Openings) -> Openings:
    every = sorted(one for both in (a, b) for one in both if one is not None)
    first = every[0]
    return Openings(first, next((one for one in every if one[1] != first[1]), None))


def require_same_opening(found: Openings, where: str) -> None:
    """
    Raises:
        ParameterError: ranks open with different arguments.
    """
    if found.other is None:
        return
    (_, one), (rank, other) = found.first, found.other  # of rank 0, and of another one
    raise ParameterError(
        f"{where}: rank 0 opens {tuple(one)} (path, engine, append, asynchronous, overlap), and rank {rank} opens "
        f"{tuple(other)}"
    )


# ------------------------------------------------------------------------------------------------------------ a step


def digest(things: Iterable[object]) -> NDArray[np.float64]:
    """A hash of things, as 32-bit numbers in doubles."""
    hashed = hashlib.blake2b("\0".join(map(repr, things)).encode(), digest_size=4 * _LANES).digest()
    return np.frombuffer(hashed, np.uint32).astype(np.float64)


def heads_of(rank: int, told: Sequence[Description]) -> ToldOf[Description]:
    """A rank's input to `merged_told`: the heads of its descriptions."""
    return told_by(rank, [block.head() for block in told])


def told_by(rank: int, told: Iterable[_T]) -> ToldOf[_T]:
    """A rank's input to `merged_told`."""
    found: ToldOf[_T] = {}
    for position, of in enumerate(told):
        own = (Told(rank, position, of),)
        found[of.name] = _kept((*found[of.name], *own)) if of.name in found else own
    return found


def merged_told(a: ToldOf[_T], b: ToldOf[_T]) -> ToldOf[_T]:
    """Merges the reports of two sets of ranks.

    Keeps the first reports of each variable that differ. Three are enough to find the first disagreement, because
    descriptions that agree may still differ in one way: some name the dimensions, and others do not.
    """
    return {name: _kept((*a.get(name, ()), *b.get(name, ()))) for name in {**a, **b}}


def _kept(told: tuple[Told[_T], ...]) -> tuple[Told[_T], ...]:
    first: dict[object, Told[_T]] = {}
    for one in sorted(told, key=lambda one: (one.rank, one.position)):
        first.setdefault(one.of.kind(), one)
    return tuple(first.values())[:_MAX_KINDS]


@dataclasses.dataclass
class Known:
    """What is known about variables before a step.

    Attributes:
        kinds: by name, from the steps that have been compressed.
        dimensions: their names, by the name of an array that has some, from these steps or the file.
        in_file: by name, from the file that is appended to.
        attributes: the types of those in this file.
    """

    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    dimensions: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    in_file: dict[str, AsStored] = dataclasses.field(default_factory=dict)
    attributes: dict[str, str] = dataclasses.field(default_factory=dict)


def arrays_of(heads: ToldOf[Description], known: Known) -> dict[str, Description]:
    """The arrays of a step, without their blocks, in the order in which ranks put them.

    Args:
        heads: of all ranks.

    Raises:
        ParameterError: ranks, or the blocks of one rank, disagree about a variable.
    """
    firsts = sorted((of[0] for of in heads.values()), key=lambda one: (one.rank, one.position))
    arrays: dict[str, Description] = {}
    for first in firsts:
        name = first.of.name
        what = f"variable {name!r}"
        _require_same(heads[name], what)
        kind = kind_of(first.of)
        if known.kinds.get(name, kind) != kind:
            raise ParameterError(
                f"{what} is {kind}, and was {known.kinds[name]} in earlier steps: a variable cannot change its type"
            )
        named = next((head.of.dimensions for head in heads[name] if head.of.dimensions), ())
        before = known.dimensions.get(name, named)
        if len(named) == len(before) and named != before:
            raise ParameterError(
                f"{what} has dims {named}, and had {before} in earlier steps: a variable has one set of names in a file"
            )
        arrays[name] = first.of._replace(dimensions=named)
    _require_one_goal(firsts)
    for name, block in arrays.items():
        _require_as_in_file(block, known.in_file.get(name), f"variable {name!r}")
    return arrays


def values_of(told: ToldOf[Value], arrays: Collection[str], known: Known) -> tuple[Value, ...]:
    """The single values of a step, each from the first rank that puts it.

    Args:
        told: the reports of all ranks.
        arrays: names of the variables that are arrays.

    Raises:
        ParameterError: ranks disagree about a value's type, or the name is that of an array.
    """
    for name, (first, *others) in sorted(told.items(), key=lambda item: item[1][0].rank):
        what, value = f"variable {name!r}", first.of
        if others:
            other = others[0]
            raise _differing(what, "one value of type", other.rank, other.of.dtype, first.rank, value.dtype)
        kind = value.kind()
        if name in arrays or known.kinds.get(name, kind) != kind:
            was = "an array" if name in arrays else f"{known.kinds[name]} in earlier steps"
            raise ParameterError(f"{what} is {kind} on rank {first.rank}, and {was}")
        if name in known.in_file:
            _require_type(value.dtype, value.dtype, (), known.in_file[name], what)
    return tuple(first.of for first, *_ in told.values())


def bounds_of(arrays: Mapping[str, Description], spans: Mapping[str, Span]) -> dict[str, float]:
    """The bound of every variable without a goal: absolute, or in mode "pw_rel" relative to every value."""
    return {name: _bound_of(block, spans[name]) for name, block in arrays.items() if block.wanted is None}


def spans_of(names: Sequence[str], told: Sequence[Description], ranges: NDArray[np.float64]) -> NDArray[np.float64]:
    """A rank's contribution to the ranges of all variables: `spans_from` takes the maxima over ranks.

    Args:
        names: of the variables; the rank's blocks of others are ignored.
        told: the rank's blocks.
        ranges: of their values, in this order: float64 of shape (blocks, 3), as `cusz_core.ValueRange`.

    Returns:
        Of shape (variables, 3): the negated minimum, the maximum, and 1 if the range of a block is not known.
    """
    made = np.full((len(names), 3), -math.inf)
    numbers = {name: number for number, name in enumerate(names)}
    of_block = np.repeat(
        np.array([numbers.get(block.name, -1) for block in told], np.int64), [len(block.start) for block in told]
    )
    counts = (of_block >= 0) & (ranges[:, 2] > 0)
    np.maximum.at(made[:, 0], of_block[counts], -ranges[counts, 0])
    np.maximum.at(made[:, 1], of_block[counts], ranges[counts, 1])
    made[of_block[(of_block >= 0) & np.isnan(ranges[:, 0])], 2] = 1.0
    return made


def spans_from(names: Sequence[str], maxima: NDArray[np.float64]) -> dict[str, Span]:
    """The ranges of all variables, from the maxima over ranks of what `spans_of` returns."""
    found = {}
    for name, (low, high, unknown) in zip(names, maxima.tolist(), strict=True):
        span = Span(-low, high) if high > -math.inf else Span(0.0, 0.0)
        found[name] = Span(math.nan, math.nan) if unknown > 0 else span
    return found


def kind_of(block: Description) -> str:
    """The properties of an array that cannot change from step to step."""
    packed = ", packed" if is_exact(np.dtype(block.dtype)) and is_packed(block.parameters) else ""
    return f"{block.given}, {len(block.shape)} dimensions{packed}"


def require_distinct(arrays: Mapping[str, Description], values: Iterable[Value], known: Known) -> None:
    """Refuses a variable that has the name of a complex one, because a Reader would not find it.

    Args:
        arrays, values: of the step.

    Raises:
        ParameterError: there is one.
    """
    # Names of earlier steps have been compared with each other. They may be very many.
    kinds = {name: kind_of(block) for name, block in arrays.items()} | {value.name: value.kind() for value in values}

    def kind(name: str) -> str:
        found = kinds.get(name) or known.kinds.get(name, "")
        return f"{known.in_file[name].given} in the file" if not found and name in known.in_file else found

    def is_part(name: str) -> bool:
        in_file = known.in_file.get(name)
        is_plain = in_file is not None and in_file.given == in_file.dtype and not (name in kinds or name in known.kinds)
        return kind(name).startswith("complex") and not is_plain

    for name in kinds:
        for whole, part in ((name.removesuffix(PARTS[0]), name), (name, name + PARTS[0])):
            if whole != part and kind(whole) and is_part(part):
                raise ParameterError(
                    f"variable {whole!r} is of complex numbers, and another one of this name is {kind(whole)}: a "
                    "variable cannot change its type"
                )


def _require_type(dtype: str, given: str, shape: tuple[int, ...], in_file: AsStored, what: str) -> None:
    """Refuses what ADIOS2 writes but cannot read (in BP4 not even the rest of the file), and values that a Reader would
    return as the type that the variable has in the file."""
    if (dtype, given) != (in_file.dtype, in_file.given):
        how = "which ADIOS2 could not read" if dtype != in_file.dtype else f"which would be read as {in_file.given}"
        raise ParameterError(f"{what} is {in_file.given} in the file, and would be {given} in what is appended, {how}")
    form = form_of(shape)
    if in_file.form not in (None, form):
        raise ParameterError(
            f"{what} is {in_file.form} in the file, and would be {form} in what is appended, which ADIOS2 could not "
            "read"
        )


def _require_as_in_file(block: Description, in_file: AsStored | None, what: str) -> None:
    """Refuses what makes ADIOS2's readers crash or hang: a variable of another type than before, or with an operator at
    only some steps."""
    if in_file is None:
        return
    _require_type(np.dtype(block.dtype).name, block.given, block.shape, in_file, what)
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


def _require_same(heads: Sequence[Told[Description]], what: str) -> None:
    first = heads[0]
    named = next((one for one in heads if one.of.dimensions), first)  # one block may name them for all
    for head in heads[1:]:
        for which, here, other, there in (
            ("dtype", head.of.given, first, first.of.given),
            ("shape", head.of.shape, first, first.of.shape),
            ("dims", head.of.dimensions or named.of.dimensions, named, named.of.dimensions),
            ("goal", head.of.wanted, first, first.of.wanted),
            ("settings", head.of.parameters.of_archive(), first, first.of.parameters.of_archive()),
        ):
            if here != there:
                raise _differing(what, which, head.rank, here, other.rank, there)


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


def _require_one_goal(firsts: Sequence[Told[Description]]) -> None:
    """Refuses different goals for variables that are to reach one together."""
    of_group: dict[str, Told[Description]] = {}
    for head in firsts:
        wanted = head.of.wanted
        if wanted is None:
            continue
        other = of_group.setdefault(wanted.group, head)
        if str(wanted) != str(other.of.wanted):
            raise ParameterError(
                f"variable {head.of.name!r} is to reach {wanted} on rank {head.rank}, together with "
                f"{other.of.name!r}, which is to reach {other.of.wanted} on rank {other.rank}: they must be the same"
            )


def _bound_of(block: Description, found: Span) -> float:
    parameters = block.parameters
    if parameters.mode == "pw_rel":  # rounding to float16 adds at most as much again
        return parameters.eb / 2 if block.given == "float16" else parameters.eb
    return _for_type(block, found, _absolute(parameters.eb, parameters.mode, found))


def bound_within(block: Description, found: Span, fraction: float) -> float:
    """The absolute bound that is a fraction of a value range, within the limits of the goal."""
    assert block.wanted is not None
    low, high = (
        _absolute(limit, block.parameters.mode, found) if limit < math.inf else limit
        for limit in (block.wanted.eb_min, block.wanted.eb_max)
    )
    return _for_type(block, found, min(max(_absolute(fraction, "rel", found), low), high))


def _absolute(eb: float, mode: str, found: Span) -> float:
    return embedding.absolute_bound(eb, found.min, found.max) if mode == "rel" else eb


def _for_type(block: Description, found: Span, bound: float) -> float:
    """The bound for the type that is stored, so that values of the type that was given keep `bound`."""
    return float16_bound(bound, max(abs(found.min), abs(found.max))) if block.given == "float16" else bound


def bytes_needed(archive_bytes: int, blocks: Mapping[str, int], arrays: Mapping[str, Description], ranks: int) -> int:
    """Upper limit on the bytes that a step takes on the disk, without attributes and single values.

    Args:
        archive_bytes: of all variables.
        blocks: the number of blocks of each variable.
        arrays: the variables.
    """
    needed = archive_bytes + _BYTES_BESIDES + _BYTES_OF_A_RANK * ranks
    for name, number in blocks.items():
        named, ndim = len(name.encode()), len(arrays[name].shape)
        of_block = _BYTES_OF_A_BLOCK + _BYTES_OF_A_DIMENSION * ndim + _NAMES_OF_A_BLOCK * named
        needed += of_block * (number + _BLOCKS_OF_A_VARIABLE) + _BYTES_OF_A_VARIABLE_AND_RANK * ranks
    return needed
