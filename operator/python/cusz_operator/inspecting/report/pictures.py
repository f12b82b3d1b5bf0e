"""What `cusz report` draws of a variable."""

from __future__ import annotations

import math

import numpy as np

from cusz_core.errors import ParameterError

from ...reading.reader import Reader
from ...reading.steps import fill_of
from ...tables.boxes import Box, pieces
from ...tables.representation import rounded_back
from ...tables.stored import DTYPES
from ..view import picture_of
from . import values
from .facts import Plane, StepFacts, View

VIEW = 2**24  # values that are drawn and transformed, at most; if there are more, a coarser level is drawn
PREVIEW = 256  # values that such a picture should have along one of its sides, at least


def plane_of(run: Reader, part: str, facts: StepFacts) -> Plane | None:
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


def add_original(plane: Plane, exact: Reader, name: str) -> None:
    """Adds the same values of the original."""
    rows, columns = plane.coordinates
    start = (*plane.cuts, int(rows[0]), int(columns[0]))
    count = (*(1 for _ in plane.cuts), int(rows[-1] - rows[0] + 1), int(columns[-1] - columns[0] + 1))
    plane.original = np.empty(plane.decoded.shape)
    for box in pieces((start, count), values.SLAB):
        lies = [
            slice(*np.searchsorted(along, (s, s + c)))
            for along, s, c in zip((rows, columns), box[0][-2:], box[1][-2:], strict=True)
        ]
        own = [along[which] - s for along, which, s in zip((rows, columns), lies, box[0][-2:], strict=True)]
        if own[0].size and own[1].size:
            found = values.stored_values(exact, plane.step, name, plane.name, box).reshape(box[1][-2:])
            plane.original[lies[0], lies[1]] = found[np.ix_(*own)]
    nothing = np.isnan(plane.decoded) & np.isfinite(plane.original)
    plane.original[nothing] = np.nan  # fill


def view_of(run: Reader, exact: Reader, name: str, part: str, facts: StepFacts) -> View:
    """The middle of a part of a variable, in both runs: as much as is drawn and transformed."""
    step = facts.step
    shape = run[step].shape(part)
    count = [1] * len(shape[:-3]) + list(shape[-3:])
    while math.prod(count) > VIEW:
        longest = count.index(max(count))
        count[longest] = (count[longest] + 1) // 2
    box: Box = tuple((n - c) // 2 for n, c in zip(shape, count, strict=True)), tuple(count)
    dtype = DTYPES[run._contents.entry(part).type]
    both = (
        values.stored_values(exact, step, name, part, box),
        rounded_back(
            run[step]._read_stored(part, box, dtype, None, None, fill_of(dtype)), run._contents.entry(name).given
        ),
    )
    original, decoded = (np.array(own).reshape(tuple(count[-3:])) for own in both)
    for fill in {fill for _, _, fill, _ in values.bounded_pieces(run[step], part, facts)}:
        nothing = values.is_fill(original, fill)
        original[nothing] = decoded[nothing] = np.nan
    return View(original, decoded, box, tuple(count) == shape)
