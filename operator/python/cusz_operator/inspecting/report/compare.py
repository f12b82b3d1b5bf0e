"""Compares a run with its original, value by value, for the page of `cusz report`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding, tuning
from cusz_core.errors import ParameterError

from ...reading.reader import Reader
from ...reading.steps import fill_of
from ...tables.boxes import Box, Extents
from ...tables.representation import are_stored_alike, rounded_back
from ...tables.stored import DTYPES, FLOATS
from . import pictures
from .facts import Comparison, Page, StepComparison, StepFacts, VariableFacts
from .values import bounded_pieces, is_fill, n_in_blocks, stored_values

HISTOGRAM_BINS = 60  # from -1 to 1, in units of the bound
_NO_BOUND = float(np.finfo(np.float64).max)  # nothing breaks it: only errors are measured


def compare(page: Page, run: Reader, exact: Reader, path: str | os.PathLike[str]) -> None:
    """Adds to a page how far the run is from its original, which is at `path`."""
    page.original = os.fspath(path)
    _refuse_if_swapped(page, exact)
    if len(exact) != len(run):
        page.notes.append(
            f"the run has {_steps(len(run))}, the original {_steps(len(exact))}: common ones are compared"
        )
    for variable in page.variables:
        if variable.name not in exact.variables:
            page.notes.append(f"{variable.name}: the original has no such variable: not compared")
            continue
        its_steps = {step.step: step for step in variable.steps}
        missing = sorted(its_steps.keys() - set(exact[variable.name].steps))
        if unsaid := [step for step in missing if step < len(exact)]:
            page.notes.append(f"{variable.name}: the original lacks {_listed(unsaid)}: not compared there")
        common = [facts for step, facts in its_steps.items() if step not in missing]
        if common:
            _compare_variable(page, variable, common, run, exact)
    others = sorted(exact.variables.keys() - run.variables.keys())
    if others:
        page.notes.append(f"only the original has: {', '.join(others)}")


def _refuse_if_swapped(page: Page, exact: Reader) -> None:
    """Refuses to compare a lossless run with a lossy one, which cannot be its original."""
    bounds = [step.bounds for variable in page.variables for step in variable.steps if step.bounds is not None]
    if any(largest > 0 for _, largest in bounds):
        return
    for variable in page.variables:
        steps = exact[variable.name].steps if variable.name in exact.variables else []
        if steps and _largest_bound(exact, variable.name, steps[-1]) > 0:
            raise ParameterError(
                f"{page.path!r} is nowhere compressed with an error bound, and {page.original!r}, which is given as "
                f"the original, is: did you mean {page.original!r} --original {page.path!r}?"
            )


def _compare_variable(page: Page, variable: VariableFacts, common: list[StepFacts], run: Reader, exact: Reader) -> None:
    name = variable.name
    entry = run._contents.entry(name)
    shapes = {step.step: run._input.shape(entry.stored[0], step.step) for step in common}
    if None in shapes.values() or exact._input.shape(exact._contents.entry(name).stored[0], common[0].step) is None:
        page.notes.append(f"{name}: its blocks have no global shape: not compared")
        return
    if entry.dtype is None or (entry.dtype.hasobject and () not in shapes.values()):
        page.notes.append(f"{name}: values of type {variable.type} cannot be read in Python: not compared")
        return
    _require_alike(name, shapes, run, exact)
    lossy = _largest_bound(exact, name, common[-1].step)
    if lossy:
        page.notes.append(f"{name}: the original is itself compressed, with errors up to {lossy:.6g}")
    if () in shapes.values():
        both = {step: (run[step].read(name), exact[step].read(name)) for step in shapes}
        differing = [step for step, (a, b) in both.items() if not (a == b or (a != a and b != b))]
        if differing:
            page.notes.append(f"{name}: not the same value as in the original, at steps {_numbers(differing)}")
        return
    apart = [step for step in shapes if n_in_blocks(run, step, name) != n_in_blocks(exact, step, name)]
    if apart:
        page.notes.append(
            f"{name}: blocks of the run and of the original have different numbers of values, at steps "
            f"{_numbers(apart)}: only those of the run are compared"
        )
    for part in entry.stored:
        comparison = _compared(name, part, common, run, exact)
        variable.comparisons.append(comparison)
        _note(page, comparison, entry.given == "float16")


def _require_alike(name: str, shapes: Mapping[int, Extents | None], run: Reader, exact: Reader) -> None:
    """Refuses an original in which a variable has another type or shape."""
    if not are_stored_alike(run[name].dtype, exact[name].dtype):
        raise ParameterError(
            f"variable {name!r} is {run[name].dtype.name} in the run and {exact[name].dtype.name} in the original: "
            "they are not of the same run"
        )
    for step, shape in shapes.items():
        if exact[step].shape(name) != shape:
            raise ParameterError(
                f"variable {name!r} has shape {shape} at step {step}, and {exact[step].shape(name)} in the original: "
                "they are not of the same run"
            )


def _compared(name: str, part: str, common: list[StepFacts], run: Reader, exact: Reader) -> Comparison:
    """A part of a variable at all common steps; of the last one, also what is drawn."""
    *others, last = common
    steps = [_Difference(run, exact, name, part, facts) for facts in others]
    at_end = _Difference(run, exact, name, part, last, with_effects=True)
    comparison = Comparison(part, [step.found for step in (*steps, at_end)], at_end.histogram)
    if last.is_compressed and last.bounds is not None and last.bounds[1] > 0:
        comparison.view = pictures.view_of(run, exact, name, part, last)
        comparison.plane = pictures.plane_of(run, part, last)
        if comparison.plane is not None:
            pictures.add_original(comparison.plane, exact, name)
    return comparison


def _note(page: Page, comparison: Comparison, is_float16: bool) -> None:
    """Notes what is remarkable about a comparison."""
    part, steps = comparison.name, comparison.steps
    for found in steps:
        if found.broken:
            page.broken.append(
                f"{part}, step {found.step}: {found.broken} of {found.values} values break the bound; {found.worst}"
            )
    if is_float16 and any(found.over_bound for found in steps):
        page.notes.append(
            f"{part}: the bound in force is that of the float32 values that are stored; errors are those of the "
            "float16 values that they are rounded to"
        )
    unchecked = [found.step for found in steps if found.unchecked]
    if unchecked:
        page.notes.append(
            f"{part}: blocks overlap, so bounds relative to every value are not checked, at steps {_numbers(unchecked)}"
        )
    differing = [found.step for found in steps if found.differing]
    if differing:
        total = sum(found.differing for found in steps)
        page.notes.append(
            f"{part}: not compressed, yet {total} values differ from the original, at steps {_numbers(differing)}"
        )


class _Difference:
    """The difference between both runs in a stored variable at a step, slab by slab.

    Attributes:
        found: the result.
        histogram: of errors divided by the bound; None without `with_effects`, or a bound above 0.
    """

    def __init__(
        self, run: Reader, exact: Reader, name: str, part: str, facts: StepFacts, *, with_effects: bool = False
    ) -> None:
        """
        Args:
            name, part: the variable, and the part of it, as it is stored.
            facts: of the step.
            with_effects: also finds the histogram, and what the bound does to small values.
        """
        self.found = StepComparison(facts.step)
        self.histogram: NDArray[np.int64] | None = None
        self._given = run._contents.entry(name).given
        self._with_effects = with_effects
        self._effects = tuning.EffectsOfAll()
        self._counts = np.zeros(HISTOGRAM_BINS, np.int64)
        self._excess = -1.0
        empty = np.empty(0, np.float64)
        self._errors = embedding.compare(empty, empty, 0.0, None)[1]
        self._low, self._high, self._n_values = math.inf, -math.inf, 0

        step, dtype = run[facts.step], DTYPES[run._contents.entry(part).type]
        is_field = dtype in FLOATS.values()
        for box, bound, fill, is_pointwise in bounded_pieces(step, part, facts):
            b = step._read_stored(part, box, dtype, None, None, fill_of(dtype)).reshape(-1)
            a = stored_values(exact, facts.step, name, part, box).reshape(-1)
            self.found.values += a.size
            if not is_field or bound is None:
                self._add_exact(a, b, box, bound, facts.is_compressed)
            if is_field:
                self._add_errors(a, b, box, bound, fill, is_pointwise)
        self.found.max_error = self._errors.largest
        if is_field:
            has_values = self._n_values > 0
            self.found.psnr = self._errors.psnr(self._low, self._high, self._n_values) if has_values else math.inf
        if with_effects and self._counts.any():
            self.histogram = self._counts
            self.found.effects = self._effects.shares

    def _add_exact(self, a: NDArray[Any], b: NDArray[Any], box: Box, bound: float | None, is_compressed: bool) -> None:
        """Adds values that should be the same, or whose bound is not known."""
        found = self.found
        differs = np.flatnonzero((a != b) & ~((a != a) & (b != b)))
        if bound is not None:
            found.bounded += a.size
            if differs.size:
                found.broken += differs.size
                found.worst = found.worst or _told(int(differs[0]), box, a, b, "they should be the same")
        elif is_compressed:
            found.unchecked += a.size
        else:
            found.differing += differs.size

    def _add_errors(
        self, a: NDArray[Any], b: NDArray[Any], box: Box, bound: float | None, fill: float | None, is_pointwise: bool
    ) -> None:
        """Adds floating-point values: their errors, and whether they keep the bound, if there is one."""
        found = self.found
        limits = cusz_core.value_range(a, fill)
        if limits.values:
            self._low, self._high = min(self._low, limits.min), max(self._high, limits.max)
            self._n_values += limits.values
        violations, errors = embedding.compare(a, b, _NO_BOUND if bound is None else bound, fill, is_pointwise)
        given_back = rounded_back(b, self._given)
        self._errors.merge(errors if given_back is b else embedding.compare(a, given_back, _NO_BOUND, fill)[1])
        if bound is None:
            return
        found.bounded += a.size
        found.broken += violations.count
        if violations.count and violations.excess > self._excess:
            self._excess = violations.excess
            beyond = f"{bound!r} of the original" if is_pointwise else repr(bound)
            is_exact = math.isinf(self._excess)
            by = "they should be the same" if is_exact else f"they differ by {self._excess!r}, beyond {beyond}"
            found.worst = _told(violations.position, box, a, b, by)
        if bound == 0:
            return
        found.over_bound = max(found.over_bound, errors.largest_share if is_pointwise else errors.largest / bound)
        if self._with_effects:
            self._effects.add(a, given_back, fill)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                limit = bound * np.abs(a.astype(np.float64)) if is_pointwise else bound
                relative = ((b.astype(np.float64) - a) / limit)[~is_fill(a, fill)]
            self._counts += np.histogram(relative, HISTOGRAM_BINS, (-1.0, 1.0))[0]


def _largest_bound(reader: Reader, name: str, step: int) -> float:
    """The largest bound of a variable at a step, according to block tables or, without them, to first blocks."""
    largest = 0.0
    for part in reader._contents.entry(name).stored:
        blocks = reader[step]._archived(part)
        if blocks is None or not blocks.filled.size:
            continue
        if blocks.has_table:
            largest = float(np.fmax(largest, np.fmax.reduce(blocks.table["eb_abs"][blocks.filled])))
        elif (info := reader._contents.info(part, step, int(blocks.filled[0]))) is not None:
            largest = float(np.fmax(largest, info.eb_abs))
    return largest


def _told(position: int, box: Box, a: NDArray[Any], b: NDArray[Any], how: str) -> str:
    """Describes a value of a box, for a message."""
    index: Extents = tuple(int(i) + s for i, s in zip(np.unravel_index(position, box[1]), box[0], strict=True))
    return f"the worst, at {index}: original {a[position].item()!r}, decoded {b[position].item()!r}: {how}"


def _steps(n: int) -> str:
    return f"{n} step{'' if n == 1 else 's'}"


def _listed(steps: Sequence[int]) -> str:
    """The steps as a phrase, with at most ten numbers."""
    shown = ", ".join(map(str, steps[:10])) + (", ..." if len(steps) > 10 else "")
    return f"step{'' if len(steps) == 1 else 's'} {shown}"


def _numbers(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))
