"""How much two runs differ: variable by variable and step by step, whatever programs wrote them."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cusz_core import embedding
from cusz_core.errors import ParameterError, UnsupportedError

from ..names import chosen
from ..reading.reader import Reader
from ..reading.steps import ReaderStep
from ..tables.boxes import Box, Extents, first_overlap, pieces
from ..tables.representation import are_stored_alike

_MAX_VALUES = 2**22  # read at once
_SPARSE = 32  # if blocks cover less than one in this many values, they are read one by one
_CHUNK = 2**15  # values compared at once, so that intermediate arrays stay in the caches


@dataclasses.dataclass(frozen=True)
class Difference:
    """How much a variable of two runs, "a" and "b", differs at a step.

    Attributes:
        variable, step: the name, and the number of the step.
        problem: why it cannot be compared, such as "only in a"; "" if it can.
        values: how many were compared: those in a block of either run.
        covered: the share of the global shape that these are.
        different: how many of them are not the same, bit for bit.
        beyond: how many differ by more than the bound, decided without rounding; 0 without a bound. If one of two
            values is not finite, they must be the same; values that only one run has count as beyond. Real and
            imaginary parts of complex numbers are counted separately.
        finite_in_one: how many are finite in only one run.
        largest: the largest |a - b| over values that are finite in both; of texts, infinite if they differ.
        at: the index of that value; () if there is none.
        largest_of_range: the same over the range of a; NaN if that is 0 or not known.
        psnr: 20 log10(range of a / RMSE) in dB, over values that are finite in both; infinite if all are the same, NaN
            if it is beyond double precision.
    """

    variable: str
    step: int
    problem: str = ""
    values: int = 0
    covered: float = 1.0
    different: int = 0
    beyond: int = 0
    largest: float = 0.0
    at: Extents = ()
    largest_of_range: float = math.nan
    psnr: float = math.inf
    finite_in_one: int = 0

    @property
    def fails(self) -> bool:
        """Whether it cannot be compared, or a value is beyond the bound."""
        return bool(self.problem or self.beyond)

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain values that JSON can hold (NaN and infinities as strings)."""
        return {key: embedding.json_value(value) for key, value in dataclasses.asdict(self).items()}


def compare_runs(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    variables: Collection[str] | None = None,
    steps: Collection[int] | None = None,
    eb: float | None = None,
    mode: str = "abs",
    fill: float | None = None,
    threads: int | None = None,
    progress: Callable[[float], None] = lambda part: None,
) -> Iterator[Difference]:
    """Compares two files (BP5 or BP4), in pieces: memory does not grow with the fields.

    Args:
        a, b: the .bp folders; a is the original, if one of them is.
        variables, steps: only these; variables by names or patterns (`names`). None: all.
        eb: the bound; None: there is none.
        mode: "abs": |a - b| <= eb; "rel": eb is a fraction of the range of a's finite values at the step; "pw_rel":
            |a - b| <= eb * |a|.
        fill: a value of floating-point variables that stands for a missing one, as for `Writer`. Fill counts neither
            for ranges nor for the PSNR, and must be at the same places in both.
        threads: as for `Reader`.
        progress: called with the part of the work that is done.

    Raises:
        FileNotFoundError, NotADirectoryError, CorruptArchiveError, PluginError, CuszError: as for `Reader`.
        ParameterError: neither run has a variable or step, or the bound makes no sense.
    """
    if eb is not None:
        embedding.error_bound(eb)
    with Reader(a, threads=threads) as first, Reader(b, threads=threads) as second:
        runs = (first, second)
        known = sorted({name for run in runs for name in run.variables})
        n_steps = max(map(len, runs))
        for step in steps or ():
            if not 0 <= step < n_steps:
                raise ParameterError(f"step is {step}; there are {n_steps}")
        work = [
            (name, step)
            for name in chosen(variables, known, "either file")
            for step in (range(n_steps) if steps is None else sorted(set(steps)))
            if any(_has(run, name, step) for run in runs)
        ]
        if not work and steps is not None and variables is not None:
            raise ParameterError(f"none of these variables is at one of the steps {', '.join(map(str, steps))}")
        for done, (name, step) in enumerate(work):
            progress(done / len(work))
            try:
                found = _difference(runs, name, step, eb, mode, fill)
            except UnsupportedError as error:  # what ADIOS2 cannot read
                found = Difference(name, step, str(error))
            yield found


def _has(run: Reader, name: str, step: int) -> bool:
    return step < len(run) and name in run[step]


def _difference(
    runs: tuple[Reader, Reader], name: str, number: int, eb: float | None, mode: str, fill: float | None
) -> Difference:
    having = [_has(run, name, number) for run in runs]
    if not all(having):
        return Difference(name, number, f"only in {'a' if having[0] else 'b'}")
    a, b = (run[number] for run in runs)
    try:
        dtypes = [step.dtype(name) for step in (a, b)]
        is_placed = [step.has_shape(name) for step in (a, b)]
        if not are_stored_alike(*dtypes):
            return Difference(name, number, f"type {dtypes[0]} in a, {dtypes[1]} in b")
        if dtypes[0].name in ("float128", "complex256"):
            return Difference(name, number, f"type {dtypes[0]} is not compared")
        if is_placed == [False, False]:
            return _difference_of_blocks(a, b, name, number, eb, mode, fill)
        shapes = [step.shape(name) for step in (a, b)]
    except (ParameterError, UnsupportedError) as error:  # no global shape in one, or a type that numpy lacks
        return Difference(name, number, str(error))
    if shapes[0] != shapes[1]:
        return Difference(name, number, f"shape {shapes[0]} in a, {shapes[1]} in b")
    if dtypes[0].hasobject:
        differs = a.read(name) != b.read(name)
        beyond = int(differs and eb is not None)
        return Difference(name, number, "", 1, 1.0, int(differs), beyond, math.inf if differs else 0.0)
    sums = _Sums(eb if mode != "rel" else None, mode == "pw_rel")
    _add_all(sums, a, b, name, fill)
    if eb is not None and mode == "rel" and not sums.keep(eb):  # the range is known only now; the bound may be broken
        sums = _Sums(embedding.absolute_bound(eb, *_range_of(a, name, fill)))
        _add_all(sums, a, b, name, fill)
    return sums.difference(name, number, math.prod(shapes[0]))


def _add_all(sums: _Sums, a: ReaderStep, b: ReaderStep, name: str, fill: float | None) -> None:
    """Adds all values of a variable that has the same shape and type in both."""
    shape = a.shape(name)
    # Buffers that archives are decoded into; None where ADIOS2 reads, because its values would have to be copied there.
    room = [
        np.empty(min(math.prod(shape), _MAX_VALUES), step.dtype(name))
        if shape and step._blocks(name).has_table
        else None
        for step in (a, b)
    ]
    is_covered = a.is_covered(name) and b.is_covered(name)
    for box in _boxes(shape, (a, b), name):
        in_both = None
        if not is_covered:
            in_a, in_b = a.coverage(name, *box), b.coverage(name, *box)
            sums.add_alone(int(np.count_nonzero(in_a ^ in_b)))
            in_both, in_a_alone = in_a & in_b, in_a & ~in_b
            if in_a_alone.any():
                sums.widen(_with_holes(np.asarray(a.read(name, *box))[in_a_alone], fill))
            if not in_both.any():
                continue
        outs = [None if own is None else own[: math.prod(box[1])].reshape(box[1]) for own in room]
        x, y = (step.read(name, *box, out=out) for step, out in zip((a, b), outs, strict=True))
        fields = (_with_holes(np.asarray(values), fill) for values in (x, y))
        first, second = (values.view(np.uint8) if values.dtype == np.bool_ else values for values in fields)
        sums.add(box[0], first, second, in_both)


def _difference_of_blocks(
    a: ReaderStep, b: ReaderStep, name: str, number: int, eb: float | None, mode: str, fill: float | None
) -> Difference:
    """The difference of a variable without a global shape, block by block; `at` begins with the block's number."""
    if not np.array_equal(a.blocks(name)["count"], b.blocks(name)["count"]):
        return Difference(name, number, "blocks of other extents, or another number of them, in a and b")
    x, y = ([_with_holes(block, fill) for block in step.read_blocks(name)] for step in (a, b))
    bound = eb
    if eb is not None and mode == "rel":
        finite = [part[np.isfinite(part)] for block in x for part in _parts(block)]
        ends = [(float(part.min()), float(part.max())) for part in finite if part.size]
        low, high = min((end[0] for end in ends), default=0.0), max((end[1] for end in ends), default=0.0)
        bound = embedding.absolute_bound(eb, low, high)
    sums = _Sums(bound, mode == "pw_rel")
    for block, (one, other) in enumerate(zip(x, y, strict=True)):
        sums.add((block, *(0,) * one.ndim), one[np.newaxis], other[np.newaxis], None)
    return sums.difference(name, number, sum(block.size for block in x))


def _range_of(step: ReaderStep, name: str, fill: float | None) -> tuple[float, float]:
    """Minimum and maximum of the values in blocks that are finite and not fill; 0 and 0 if there are none."""
    low, high = math.inf, -math.inf
    is_covered = step.is_covered(name)
    for box in _boxes(step.shape(name), [step], name):
        covered: Any = ... if is_covered else step.coverage(name, *box)
        for values in _parts(_with_holes(np.asarray(step.read(name, *box))[covered], fill)):
            finite = values[np.isfinite(values)]
            if finite.size:
                low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 0.0)


def _boxes(shape: Extents, steps: Sequence[ReaderStep], name: str) -> Iterator[Box]:
    """Boxes of a shape that together contain all blocks of a variable."""
    known = [step._blocks(name) for step in steps] if shape else []
    if known and min(int(own.table["count"].prod(axis=1).sum()) for own in known) * _SPARSE < math.prod(shape):
        blocks = {own.box(number) for own in known for number in own.filled.tolist()}
        corners, extents = (np.array([block[i] for block in blocks], np.int64) for i in (0, 1))
        if not blocks or first_overlap(corners, extents) is None:
            for box in sorted(blocks):
                yield from pieces(box, _MAX_VALUES)
            return
    yield from pieces(((0,) * len(shape), shape), _MAX_VALUES)


def _with_holes(values: NDArray[Any], fill: float | None) -> NDArray[Any]:
    """Replaces fill values of floating-point types by a NaN with bits that no program writes."""
    if fill is None or values.dtype.kind != "f":
        return values
    with np.errstate(over="ignore"):
        missing = np.float64(fill).astype(values.dtype)
    if np.isinf(missing) and math.isfinite(fill):  # the type cannot hold it
        return values
    bits = np.dtype(f"u{values.itemsize}")
    hole = (np.array(np.nan, values.dtype).view(bits) + bits.type(0x5A)).view(values.dtype)
    return np.where(values == missing, hole, values)


def _parts(values: NDArray[Any]) -> list[NDArray[Any]]:
    return [values.real, values.imag] if values.dtype.kind == "c" else [values]


def _distances(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """|a - b|, rounded to double precision."""
    if a.dtype.kind in "iu" and a.itemsize == 8:  # as doubles, neighbours may be the same
        x, y = a.view(np.uint64), b.view(np.uint64)
        return np.where(a > b, x - y, y - x).astype(np.float64)
    distances: NDArray[np.float64] = np.subtract(a, b, dtype=np.float64)
    return np.abs(distances, out=distances)


class _Sums:
    """Accumulates the differences between two arrays, piece by piece."""

    def __init__(self, bound: float | None, is_pointwise: bool = False) -> None:
        self._bound, self._is_pointwise = bound, is_pointwise
        self._values = self._different = self._beyond = self._finite = self._finite_in_one = 0
        self._largest = 0.0
        self._at: Extents = ()
        self._low, self._high = math.inf, -math.inf
        self._squares = embedding.SumOfSquares()
        self._are_plain = True  # all that differ are finite floating-point numbers in both

    def add_alone(self, n_values: int) -> None:
        """Adds values that only one of the two has."""
        self._values += n_values
        self._are_plain &= n_values == 0
        self._different += n_values
        self._beyond += n_values if self._bound is not None else 0

    def widen(self, values: NDArray[Any]) -> None:
        """Extends the range of a by the finite ones of these values."""
        for part in _parts(values):
            finite = part[np.isfinite(part)]
            if finite.size:
                self._add_range(float(finite.min()), float(finite.max()))

    def add(self, start: Extents, a: NDArray[Any], b: NDArray[Any], covered: NDArray[np.bool_] | None) -> None:
        """Adds a piece; `covered` says which of its values count, None: all of them."""
        index = None if covered is None else np.flatnonzero(covered)
        pairs = [
            [np.ascontiguousarray(part).reshape(-1)[... if index is None else index] for part in both]
            for both in zip(_parts(a), _parts(b), strict=True)
        ]
        n_values = pairs[0][0].size
        self._values += n_values
        for first in range(0, n_values, _CHUNK):
            same = np.ones(min(_CHUNK, n_values - first), np.bool_)
            chunk = [[part[first : first + _CHUNK] for part in both] for both in pairs]
            for x, y in chunk:
                own, at = self._add_part(x, y)
                same &= own
                if at is not None:
                    place = first + at if index is None else int(index[first + at])
                    where = np.unravel_index(place, a.shape)
                    self._at = tuple(int(s + i) for s, i in zip(start, where, strict=True))
            if not same.all():
                self._different += int(same.size - np.count_nonzero(same))
                are_finite = [np.logical_and.reduce([np.isfinite(both[i]) for both in chunk]) for i in range(2)]
                self._finite_in_one += int(np.count_nonzero(are_finite[0] != are_finite[1]))

    def _add_part(self, a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[np.bool_], int | None]:
        """Adds real numbers; returns which are the same, bit for bit, and where they differ by more than any before."""
        bits = np.dtype(f"u{a.itemsize}")
        same: NDArray[np.bool_] = a.view(bits) == b.view(bits)
        low, high = float(a.min()), float(a.max())  # NaN if there is one
        all_finite = math.isfinite(low) and math.isfinite(high)
        if all_finite:
            self._add_range(low, high)
        else:
            self.widen(a)
        if same.all():
            self._finite += a.size if all_finite else int(np.count_nonzero(np.isfinite(a)))
            return same, None
        with np.errstate(over="ignore", invalid="ignore"):
            error = _distances(a, b)
        largest = float(error.max())
        all_finite &= math.isfinite(largest)
        if all_finite:
            self._finite += a.size
        else:
            self._are_plain = False
            finite = np.isfinite(a) & np.isfinite(b)
            self._finite += int(np.count_nonzero(finite))
            error[~finite | same] = 0.0
            largest = float(error.max())
        self._are_plain &= a.dtype.kind == "f"
        at = None
        if largest > self._largest:
            self._largest, at = largest, int(error.argmax())
        is_decided = self._bound is None
        if self._bound is not None and all_finite and a.dtype.kind == "f":  # differences of large integers are rounded
            is_decided = largest < self._bound and not self._is_pointwise
        if not is_decided:
            self._beyond += self._broken(a, b, same)
        self._squares.add(error)
        return same, at

    def _add_range(self, low: float, high: float) -> None:
        self._low, self._high = min(self._low, low), max(self._high, high)

    def _broken(self, a: NDArray[Any], b: NDArray[Any], same: NDArray[np.bool_]) -> int:
        if a.dtype.kind == "f" and a.itemsize in (4, 8):
            violations, _ = embedding.compare(a, b, self._bound or 0.0, None, self._is_pointwise)
            return int(violations.count)
        if a.dtype.kind == "f":  # of 16 bits, which float32 holds exactly
            return self._broken(a.astype(np.float32), b.astype(np.float32), same)
        apart = zip(a[~same].tolist(), b[~same].tolist(), strict=True)  # integers of any size
        bound = Fraction(self._bound or 0.0)
        if self._is_pointwise:
            return sum(abs(x - y) > bound * abs(x) for x, y in apart)
        whole = math.floor(bound)  # a whole distance is beyond the one exactly if it is beyond the other
        return sum(abs(x - y) > whole for x, y in apart)

    def keep(self, eb: float) -> bool:
        """Whether all values are certain to be within this fraction of a's range."""
        if not self._are_plain or self._different == 0:
            return self._different == 0
        return self._largest < embedding.absolute_bound(eb, self._low, self._high)

    def difference(self, name: str, step: int, size: int) -> Difference:
        whole, scale = embedding.scaled_range(self._low, self._high) if self._finite else (math.nan, 1.0)
        psnr = math.nan if math.isinf(self._largest) else self._squares.psnr(self._low, self._high, self._finite)
        of_range = self._largest * scale / whole if whole > 0 and math.isfinite(self._largest) else math.nan
        counts = (self._values, self._values / size if size else 1.0, self._different, self._beyond)
        return Difference(name, step, "", *counts, self._largest, self._at, of_range, psnr, self._finite_in_one)
