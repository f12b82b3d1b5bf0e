"""Collects what a run's file holds and how far it is from the original, for the page of `cusz report`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding, tuning
from cusz_core.errors import CuszError, ParameterError, UnsupportedError

from ...names import chosen
from ...plugin import PLUGIN_NAME, without_colours
from ...reading.reader import Reader
from ...reading.steps import ReaderStep, fill_of
from ...tables import blocktable
from ...tables.boxes import Box, Extents, pieces
from ...tables.representation import are_stored_alike, rounded_back
from ...tables.stored import DTYPES, FLOATS
from ..blocks import Block, inspect_bp
from ..view import picture_of
from .facts import Comparison, Page, Plane, StepComparison, StepFacts, VariableFacts, View
from .figures import require_matplotlib

SLAB = 2**22  # values compared at a time
VIEW = 2**24  # values that are drawn and transformed, at most; if there are more, a coarser level is drawn
PREVIEW = 256  # values that such a picture should have along one of its sides, at least
HISTOGRAM_BINS = 60  # from -1 to 1, in units of the bound


def make(
    path: str | os.PathLike[str], original: str | os.PathLike[str] | None = None, variables: Sequence[str] | None = None
) -> Page:
    """Collects the facts about a run that `html` turns into a page.

    Every value that both runs have is compared, in slabs of at most 2^22 values, so the memory needed does not grow
    with the variables. Whether a bound is kept is decided exactly, as `cusz_core.verify` does.

    Args:
        path: the .bp folder (BP5 or BP4), whatever program wrote it.
        original: the same run without loss: uncompressed, or compressed with eb=0. Steps are compared with those of the
            same number. What either run lacks is named in `notes`.
        variables: only these, by names or patterns (`names`); None: all.

    Raises:
        FileNotFoundError: there is no such file.
        ParameterError: the run lacks one of `variables`; a variable has another type or shape in the original; or the
            original is compressed with an error bound, and the run is not.
        CorruptArchiveError: a file is damaged.
        PluginError: the plugin or adios2 is missing.
        UnsupportedError: matplotlib is not installed.
        CuszError: ADIOS2 cannot read a file, or it has no complete step.
    """
    require_matplotlib()  # before the work, rather than after it
    try:
        with Reader(path) as run:
            page = _page(run, path, variables)
            if original is None:
                _draw(page, run)
            else:
                with Reader(original) as exact:
                    _compare(page, run, exact, original)
            return page
    except (CuszError, OSError, MemoryError):
        raise
    except Exception as error:  # ADIOS2 may raise anything for a damaged folder
        raise CuszError(f"{os.fspath(path)!r} cannot be read: {without_colours(error)}") from error


# ------------------------------------------------------------------------------------------- facts about the run


def _page(run: Reader, path: str | os.PathLike[str], wanted: Sequence[str] | None) -> Page:
    folder = Path(path)
    if not len(run):
        raise CuszError(f"{os.fspath(path)!r}: there is no complete step in it")
    names = list(run.variables)
    wanted = chosen(wanted, names, repr(os.fspath(path)))
    archives = _archives(run, folder)
    found, unreadable = [], []
    for name in wanted:
        try:
            found.append(_variable(run, name, archives))
        except UnsupportedError as error:  # in BP4, if its first array is empty
            unreadable.append(str(error))
    ranks = {int(rank) for variable in found for step in variable.steps for rank in step.table["rank"]}
    files = [file.stat() for file in folder.rglob("*") if file.is_file()]
    page = Page(
        path=os.fspath(path),
        original=None,
        engine="BP4" if run._input._is_bp4 else "BP5",
        n_steps=len(run),
        n_ranks=0 if -1 in ranks else len(ranks),
        disk_bytes=sum(file.st_size for file in files),
        written=max((file.st_mtime for file in files), default=time.time()),
        variables=found,
    )
    page.notes += unreadable
    left_out = [name for name in names if name not in wanted]
    if left_out:
        page.notes.append(f"left out, because the report was asked for others: {', '.join(left_out)}")
    for (name, step), blocks in archives.items():
        errors = [f"block {block['block']}: {block['error']}" for block in blocks if "error" in block]
        if errors and any(variable.name == name for variable in found):
            page.notes.append(f"{name}, step {step}: {len(errors)} blocks cannot be read as they should: {errors[0]}")
    return page


def _archives(run: Reader, path: Path) -> dict[tuple[str, int], list[Block]]:
    """What archives say, by variable and step; empty if all arrays of float and double have block tables."""
    found: dict[tuple[str, int], list[Block]] = {}
    for name, entry in run._contents.entries().items():
        if len(entry.stored) > 1 or entry.type not in FLOATS:
            continue
        arrays = [step for step in run[name].steps if run._input.shape(name, step) != ()]
        if not all(run._contents.blocks(name, step).has_table for step in arrays):
            for block in inspect_bp(path):
                found.setdefault((block["variable"], block["step"]), []).append(block)
            break
    return found


def _variable(run: Reader, name: str, archives: dict[tuple[str, int], list[Block]]) -> VariableFacts:
    entry, steps = run._contents.entry(name), run[name].steps
    shape = run._input.shape(entry.stored[0], steps[-1])
    facts = [_step(run, name, step, archives) for step in steps]
    if shape is None:
        shown = "blocks without a global shape"
    else:
        shown = " × ".join(map(str, shape)) if shape else "one value"
        if shape and not run[steps[-1]].is_covered(name):
            covered = min(_in_blocks(run, steps[-1], name) / math.prod(shape), 1.0)  # blocks may overlap
            shown += f", values in {tuning.percent(covered)} of it"
    return VariableFacts(name, entry.given or entry.type, shown, facts)


def _step(run: Reader, name: str, step: int, archives: dict[tuple[str, int], list[Block]]) -> StepFacts:
    entry = run._contents.entry(name)
    shape = run._input.shape(entry.stored[0], step)
    is_one_value = shape == ()
    tables = [] if is_one_value else [_table(run, part, step, archives) for part in entry.stored]
    if is_one_value:
        size = entry.dtype.itemsize if entry.dtype is not None and not entry.dtype.hasobject else 0
        table = np.empty(0, blocktable.table_dtype(1))
        return StepFacts(step, table, 1, False, size, size, False, None, -1, None)
    table = np.concatenate(tables)
    is_archive = table["archive_bytes"] >= 0
    bounds = table["eb_abs"][is_archive & (table["count"] > 0).all(axis=1) & np.isfinite(table["eb_abs"])]
    outliers = table["outliers"][is_archive]
    return StepFacts(
        step=step,
        table=table,
        n_blocks=len(tables[0]),
        is_placed=shape is not None,
        raw_bytes=int(table["raw_bytes"].clip(0).sum()),
        stored_bytes=int(np.where(is_archive, table["archive_bytes"], table["raw_bytes"].clip(0)).sum()),
        is_compressed=entry.type in FLOATS and bool(is_archive.any()),
        bounds=(float(bounds.min()), float(bounds.max())) if bounds.size else None,
        outliers=int(outliers.sum()) if outliers.size and (outliers >= 0).all() else -1,
        value_range=run[step].value_range(name),
        relative=None if bounds.size or not is_archive.any() else _relative_bound(run, entry.stored[0], step),
    )


def _relative_bound(run: Reader, part: str, step: int) -> float | None:
    """The bound of the first block that has values, if it is relative to every value; otherwise None."""
    blocks = run[step]._archived(part)
    if blocks is None or not blocks.filled.size:
        return None
    info = run._contents.info(part, step, int(blocks.filled[0]))
    return info.eb if info is not None and info.mode == "pw_rel" else None


def _table(run: Reader, part: str, step: int, archives: dict[tuple[str, int], list[Block]]) -> NDArray[Any]:
    """What is known about the blocks of a stored variable; without a block table, also from what archives say."""
    blocks = run._contents.blocks(part, step)
    table = blocks.table.copy()
    for block in () if blocks.has_table else archives.get((part, step), ()):
        if block["operator"] == PLUGIN_NAME and "archive_bytes" in block and block["block"] < len(table):
            row = table[block["block"] : block["block"] + 1]
            row["archive_bytes"], row["eb_abs"] = block["archive_bytes"], block.get("eb_abs", 0.0)
            row["outliers"] = block.get("out_of_range", 0) + block.get("unpredictable", 0)
    return table


def _draw(page: Page, run: Reader) -> None:
    """Adds pictures of large variables, for which only the bytes of a coarse level are read."""
    for variable in page.variables:
        facts = variable.steps[-1]
        if not facts.is_compressed or not facts.is_placed:
            continue
        for part in run._contents.entry(variable.name).stored:
            try:
                plane = _plane(run, part, facts)
            except CuszError as error:  # damage, which a page without an original need not find
                page.notes.append(f"{part}, step {facts.step}: it cannot be drawn: {error}")
                continue
            variable.planes += [plane] if plane is not None else []


def _plane(run: Reader, part: str, facts: StepFacts) -> Plane | None:
    """The middle plane of a large variable with two axes or more; None for others, or if level 1 is no grid."""
    step = run[facts.step]
    shape = step.shape(part)
    if len(shape) < 2 or math.prod(shape[-3:]) <= VIEW or step.n_levels(part) < 2:
        return None
    before = run.bytes_read
    try:
        pixels = min(max(step.level(part, 1).shape[-2:]), PREVIEW)
    except ParameterError:  # no grid
        return None
    picture = picture_of(step, part, {}, (), pixels, pixels)
    blocks = step._blocks(part)  # without a table, the variable has this part only
    return Plane(
        name=part,
        step=facts.step,
        decoded=picture.values,
        original=None,
        coordinates=(picture.level.coordinates[-2], picture.level.coordinates[-1]),
        cuts=tuple(picture.cuts.values()),
        level=picture.level.number,
        read_bytes=run.bytes_read - before,
        stored_bytes=int(blocks.table["archive_bytes"].sum()) if blocks.has_table else facts.stored_bytes,
    )


def _add_original(plane: Plane, exact: Reader, name: str) -> None:
    """Adds the same values of the original."""
    rows, columns = plane.coordinates
    start = (*plane.cuts, int(rows[0]), int(columns[0]))
    count = (*(1 for _ in plane.cuts), int(rows[-1] - rows[0] + 1), int(columns[-1] - columns[0] + 1))
    plane.original = np.empty(plane.decoded.shape)
    for box in pieces((start, count), SLAB):
        lies = [
            slice(*np.searchsorted(along, (s, s + c)))
            for along, s, c in zip((rows, columns), box[0][-2:], box[1][-2:], strict=True)
        ]
        own = [along[which] - s for along, which, s in zip((rows, columns), lies, box[0][-2:], strict=True)]
        if own[0].size and own[1].size:
            values = _stored_values(exact, plane.step, name, plane.name, box).reshape(box[1][-2:])
            plane.original[lies[0], lies[1]] = values[np.ix_(*own)]
    nothing = np.isnan(plane.decoded) & np.isfinite(plane.original)
    plane.original[nothing] = np.nan  # fill


# ----------------------------------------------------------------------------------------- against the original


def _compare(page: Page, run: Reader, exact: Reader, path: str | os.PathLike[str]) -> None:
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
    lossy = _largest_bound(exact, name, common[-1].step)
    if lossy:
        page.notes.append(f"{name}: the original is itself compressed, with errors up to {lossy:.6g}")
    if () in shapes.values():
        both = {step: (run[step].read(name), exact[step].read(name)) for step in shapes}
        differing = [str(step) for step, (a, b) in both.items() if not (a == b or (a != a and b != b))]
        if differing:
            page.notes.append(f"{name}: not the same value as in the original, at steps {', '.join(differing)}")
        return
    apart = [str(step) for step in shapes if _in_blocks(run, step, name) != _in_blocks(exact, step, name)]
    if apart:
        page.notes.append(
            f"{name}: blocks of the run and of the original have different numbers of values, at steps "
            f"{', '.join(apart)}: only those of the run are compared"
        )
    for part in entry.stored:
        comparison = Comparison(part, [])
        for facts in common:
            is_last = facts is common[-1]
            comparison.steps.append(_compare_step(run, exact, name, part, facts, comparison if is_last else None))
        last = common[-1]
        if last.is_compressed and last.bounds is not None and last.bounds[1] > 0:
            comparison.view = _view(run, exact, name, part, last)
            comparison.plane = _plane(run, part, last)
            if comparison.plane is not None:
                _add_original(comparison.plane, exact, name)
        variable.comparisons.append(comparison)
        for found in comparison.steps:
            if found.broken:
                page.broken.append(
                    f"{part}, step {found.step}: {found.broken} of {found.values} values break the bound; {found.worst}"
                )
        if entry.given == "float16" and any(found.over_bound for found in comparison.steps):
            page.notes.append(
                f"{part}: the bound in force is that of the float32 values that are stored; errors are those of the "
                "float16 values that they are rounded to"
            )
        unchecked = [str(found.step) for found in comparison.steps if found.unchecked]
        if unchecked:
            page.notes.append(
                f"{part}: blocks overlap, so bounds relative to every value are not checked, at steps "
                f"{', '.join(unchecked)}"
            )
        differing = [str(found.step) for found in comparison.steps if found.differing]
        if differing:
            total = sum(found.differing for found in comparison.steps)
            page.notes.append(
                f"{part}: not compressed, yet {total} values differ from the original, at steps {', '.join(differing)}"
            )


def _compare_step(
    run: Reader, exact: Reader, name: str, part: str, facts: StepFacts, histogram_for: Comparison | None
) -> StepComparison:
    """Compares a stored variable at a step, slab by slab."""
    found = StepComparison(facts.step)
    step, dtype = run[facts.step], DTYPES[run._contents.entry(part).type]
    given = run._contents.entry(name).given
    is_field = dtype in FLOATS.values()
    empty = np.empty(0, np.float64)
    squares = embedding.compare(empty, empty, 0.0, None)[1]
    low, high, n_values = math.inf, -math.inf, 0
    excess = -1.0
    counts = np.zeros(HISTOGRAM_BINS, np.int64)
    effects = tuning.EffectsOfAll()
    for box, bound, fill, is_pointwise in _pieces(step, part, facts):
        decoded = step._read_stored(part, box, dtype, None, None, fill_of(dtype))
        original = _stored_values(exact, facts.step, name, part, box)
        a, b = original.reshape(-1), decoded.reshape(-1)
        found.values += a.size
        if not is_field or bound is None:
            differs = np.flatnonzero((a != b) & ~((a != a) & (b != b)))
            if bound is None and facts.is_compressed:
                found.unchecked += a.size
            elif bound is None:
                found.differing += differs.size
            else:
                found.bounded += a.size
            if bound is not None and differs.size:
                found.broken += differs.size
                found.worst = found.worst or _told(int(differs[0]), box, a, b, "they should be the same")
            if not is_field:
                continue
        limits = cusz_core.value_range(a, fill)
        if limits.values:
            low, high, n_values = min(low, limits.min), max(high, limits.max), n_values + limits.values
        # Without a bound, values are compared with one that nothing breaks, only to measure the errors.
        no_bound = float(np.finfo(np.float64).max)
        violations, errors = embedding.compare(a, b, no_bound if bound is None else bound, fill, is_pointwise)
        given_back = rounded_back(b, given)
        squares.merge(errors if given_back is b else embedding.compare(a, given_back, no_bound, fill)[1])
        if bound is None:
            continue
        found.bounded += a.size
        found.broken += violations.count
        if violations.count and violations.excess > excess:
            excess = violations.excess
            beyond = f"{bound!r} of the original" if is_pointwise else repr(bound)
            by = "they should be the same" if math.isinf(excess) else f"they differ by {excess!r}, beyond {beyond}"
            found.worst = _told(violations.position, box, a, b, by)
        if bound > 0:
            share = errors.largest_share if is_pointwise else errors.largest / bound
            found.over_bound = max(found.over_bound, share)
            if histogram_for is not None:
                effects.add(a, given_back, fill)
                with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                    limit = bound * np.abs(a.astype(np.float64)) if is_pointwise else bound
                    relative = ((b.astype(np.float64) - a) / limit)[~_is_fill(a, fill)]
                counts += np.histogram(relative, HISTOGRAM_BINS, (-1.0, 1.0))[0]
    found.max_error = squares.largest
    if is_field:
        found.psnr = squares.psnr(low, high, n_values) if n_values else math.inf
    if histogram_for is not None and counts.any():
        histogram_for.histogram = counts
        found.effects = effects.shares
    return found


def _pieces(step: ReaderStep, part: str, facts: StepFacts) -> Iterator[tuple[Box, float | None, float | None, bool]]:
    """The boxes that are compared one by one, with the bound, the fill value, and whether the bound is relative to
    every value. The bound is None if the variable is not compressed, or its bounds are not known."""
    contents, shape = step._contents, step.shape(part)
    blocks = step._archived(part) if facts.is_compressed else None
    if blocks is None:
        bound = facts.bounds[1] if facts.bounds is not None else None
        boxes: list[Box] = [((0,) * len(shape), shape)]
        if not step.is_covered(part) and not (blocks := contents.blocks(part, step.index)).overlap:
            boxes = [blocks.box(number) for number in range(len(blocks.table))]
        yield from ((slab, bound, None, False) for box in boxes if 0 not in box[1] for slab in pieces(box, SLAB))
        return
    for number in blocks.filled.tolist():
        info = contents.info(part, step.index, number)
        is_pointwise = info is not None and info.mode == "pw_rel"
        bound, fill = (0.0, None) if info is None else (info.eb if is_pointwise else info.eb_abs, info.fill)
        yield from ((box, bound, fill, is_pointwise) for box in pieces(blocks.box(number), SLAB))


def _stored_values(exact: Reader, step: int, name: str, part: str, box: Box) -> NDArray[Any]:
    """The values of the original as the run stores them: parts of complex values, float16 as float32, bool as uint8."""
    values: NDArray[Any] = exact[step].read(name, *box)
    if values.dtype.kind == "c" and part != name:
        values = values.real if part.endswith("/real") else values.imag
    elif values.dtype == np.float16:
        values = values.astype(np.float32)
    elif values.dtype == np.bool_:
        values = values.view(np.uint8)
    return np.ascontiguousarray(values)


def _in_blocks(run: Reader, step: int, name: str) -> int:
    return int(run._contents.blocks(run._contents.entry(name).stored[0], step).table["count"].prod(axis=1).sum())


def _view(run: Reader, exact: Reader, name: str, part: str, facts: StepFacts) -> View:
    step = facts.step
    shape = run[step].shape(part)
    count = [1] * len(shape[:-3]) + list(shape[-3:])
    while math.prod(count) > VIEW:
        longest = count.index(max(count))
        count[longest] = (count[longest] + 1) // 2
    box: Box = tuple((n - c) // 2 for n, c in zip(shape, count, strict=True)), tuple(count)
    dtype = DTYPES[run._contents.entry(part).type]
    both = (
        _stored_values(exact, step, name, part, box),
        rounded_back(
            run[step]._read_stored(part, box, dtype, None, None, fill_of(dtype)), run._contents.entry(name).given
        ),
    )
    original, decoded = (np.array(values).reshape(tuple(count[-3:])) for values in both)
    for fill in {fill for _, _, fill, _ in _pieces(run[step], part, facts)}:
        nothing = _is_fill(original, fill)
        original[nothing] = decoded[nothing] = np.nan
    return View(original, decoded, box, tuple(count) == shape)


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


def _is_fill(values: NDArray[Any], fill: float | None) -> NDArray[np.bool_]:
    if fill is None:
        return np.zeros(values.shape, np.bool_)
    with np.errstate(over="ignore"):
        return np.asarray(values == np.asarray(fill).astype(values.dtype))


def _steps(n: int) -> str:
    return f"{n} step{'' if n == 1 else 's'}"


def _listed(steps: Sequence[int]) -> str:
    """The steps as a phrase, with at most ten numbers."""
    shown = ", ".join(map(str, steps[:10])) + (", ..." if len(steps) > 10 else "")
    return f"step{'' if len(steps) == 1 else 's'} {shown}"
