"""The values of a run and of its original, piece by piece, as `cusz report` compares and draws them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...reading.reader import Reader
from ...reading.steps import ReaderStep
from ...tables.boxes import Box, pieces
from .facts import StepFacts

SLAB = 2**22  # values at a time


def bounded_pieces(
    step: ReaderStep, part: str, facts: StepFacts
) -> Iterator[tuple[Box, float | None, float | None, bool]]:
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


def stored_values(exact: Reader, step: int, name: str, part: str, box: Box) -> NDArray[Any]:
    """The values of the original as the run stores them: parts of complex values, float16 as float32, bool as uint8."""
    values: NDArray[Any] = exact[step].read(name, *box)
    if values.dtype.kind == "c" and part != name:
        values = values.real if part.endswith("/real") else values.imag
    elif values.dtype == np.float16:
        values = values.astype(np.float32)
    elif values.dtype == np.bool_:
        values = values.view(np.uint8)
    return np.ascontiguousarray(values)


def n_in_blocks(run: Reader, step: int, name: str) -> int:
    """The number of values that the blocks of a variable have at a step."""
    return int(run._contents.blocks(run._contents.entry(name).stored[0], step).table["count"].prod(axis=1).sum())


def is_fill(values: NDArray[Any], fill: float | None) -> NDArray[np.bool_]:
    """Which values are the fill value."""
    if fill is None:
        return np.zeros(values.shape, np.bool_)
    with np.errstate(over="ignore"):
        return np.asarray(values == np.asarray(fill).astype(values.dtype))
