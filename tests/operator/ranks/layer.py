"""What the scripts of the in-situ layer share: the variables of cases.py that it takes, and its promises."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from cases import CASES, Box, Case, inside, values
from numpy.typing import NDArray

import cusz_operator
import support

LAYER_CASES = [case for case in CASES if case.supported and case.parameters]
SST = {"RendezvousReaderCount": "1", "DataTransport": "WAN", "OpenTimeoutSecs": "60"}


@functools.cache
def bound(name: str, step: int) -> float:
    """The one bound of the whole variable at a step."""
    case = next(case for case in LAYER_CASES if case.name == name)
    return support.absolute_bound(values(name, step), case.eb, case.mode, case.fill)


def problems(case: Case, step: int, selection: Box, got: NDArray) -> list[str]:
    """What in a selection that was read breaks the promise."""
    expected = np.ascontiguousarray(inside(values(case.name, step), selection))
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return [f"{got.dtype} {got.shape}, expected {expected.dtype} {expected.shape}"]
    limit = bound(case.name, step)
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.abs(expected.astype(np.float64) - got.astype(np.float64))
    doubtful = (support.bits(expected) != support.bits(got)) & ~(distance < 0.999999 * limit)
    return support.violations(expected[doubtful], got[doubtful], limit, case.fill)[:3]


def put_all(out: cusz_operator.Writer, step: int, rank: int, ranks: int) -> None:
    """Puts this rank's blocks of all variables of a step."""
    for case in LAYER_CASES:
        if step not in case.steps:
            continue
        for box in case.blocks(rank, ranks):
            block = inside(values(case.name, step), box)  # not contiguous, some of them
            out.put(case.name, block, case.shape, box[0], eb=case.eb, mode=case.mode, fill=case.fill)


def written_by_layer(ranks: int, folder: Path) -> list[Path]:
    """The files that layer_write.py makes."""
    return [folder / f"by{ranks}_{engine}.bp" for engine in ("BP5", "BP4")]
