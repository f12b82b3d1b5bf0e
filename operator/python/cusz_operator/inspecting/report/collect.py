"""Collects what a run's file holds, for the page of `cusz report`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cusz_core import tuning
from cusz_core.errors import CuszError, UnsupportedError

from ...names import chosen
from ...plugin import PLUGIN_NAME, without_colours
from ...reading.reader import Reader
from ...tables import blocktable
from ...tables.stored import FLOATS
from ..blocks import Block, inspect_bp
from . import pictures
from .compare import compare
from .facts import Page, StepFacts, VariableFacts
from .figures import require_matplotlib
from .values import n_in_blocks


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
        NotADirectoryError: it is a file, not a .bp folder.
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
                    compare(page, run, exact, original)
            return page
    except (CuszError, OSError, MemoryError):
        raise
    except Exception as error:  # ADIOS2 may raise anything for a damaged folder
        raise CuszError(f"{os.fspath(path)!r} cannot be read: {without_colours(error)}") from error


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
            covered = min(n_in_blocks(run, steps[-1], name) / math.prod(shape), 1.0)  # blocks may overlap
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
                plane = pictures.plane_of(run, part, facts)
            except CuszError as error:  # damage, which a page without an original need not find
                page.notes.append(f"{part}, step {facts.step}: it cannot be drawn: {error}")
                continue
            variable.planes += [plane] if plane is not None else []
