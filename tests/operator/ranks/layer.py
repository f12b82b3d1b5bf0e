"""Shared by the scripts of the in-situ layer: the variables of cases.py that it takes, and their bounds."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from cases import CASES, Box, Case, inside, values
from numpy.typing import NDArray

import cusz_operator
import support

LAYER_CASES = [case for case in CASES if case.is_bounded and case.parameters]


@functools.cache
def bound(name: str, step: int) -> float:
    """The one bound of the whole variable at a step."""
    case = next(case for case in LAYER_CASES if case.name == name)
    return support.absolute_bound(values(name, step), case.eb, case.mode, case.fill)


def problems(case: Case, step: int, selection: Box, got: NDArray) -> list[str]:
    """Where a selection that was read breaks its bound."""
    expected = np.ascontiguousarray(inside(values(case.name, step), selection))
    return support.violations(expected, got, bound(case.name, step), case.fill)[:3]


def put_all(out: cusz_operator.Writer, step: int, rank: int, ranks: int) -> None:
    """Puts this rank's blocks of all variables of a step."""
    for case in LAYER_CASES:
        if step not in case.steps:
            continue
        for box in case.blocks(rank, ranks):
            block = inside(values(case.name, step), box)
            how = {"eb": case.eb, "mode": case.mode, "fill": case.fill, "predictor": case.parameters.get("predictor")}
            out.put(case.name, block, case.shape, box[0], **how)


def read_and_check(comm: Any, step: Any, i: int) -> Iterator[tuple[Case, NDArray]]:
    """Reads shares, boxes, whole variables and levels of step i, and checks every value; yields each whole variable."""
    assert step.index == i
    assert set(step.variables) == {case.name for case in LAYER_CASES if i in case.steps}
    for case in LAYER_CASES:
        if i not in case.steps:
            continue
        assert step.shape(case.name) == case.shape
        share = step.share(case.name)
        draws = [int(d) for d in support.integers(2 * len(case.shape), 0, 1000, seed=i * 100 + comm.rank)]
        start = tuple(d % n for d, n in zip(draws, case.shape, strict=False))
        count = tuple(1 + d % (n - s) for d, n, s in zip(draws[::-1], case.shape, start, strict=False))
        whole = ((0,) * len(case.shape), case.shape)
        for box in (share, (start, count), whole):
            got = step.read(case.name) if box is share else step.read(case.name, *box)
            found = problems(case, i, box, got)
            assert not found, (case.name, i, box, found)
        shares = [step.share(case.name, rank) for rank in range(comm.size)]
        assert sum(count[0] for _, count in shares) == case.shape[0]
        level = step.level(case.name, min(2, step.n_levels(case.name) - 1))
        of_level = np.concatenate(comm.allgather(step.read(case.name, level=level.number)))
        assert support.same_bits(of_level, np.ascontiguousarray(got[np.ix_(*level.coordinates)]))
        assert comm.allreduce(step.verify(case.name)) == np.count_nonzero(step.blocks(case.name)["count"].all(axis=1))
        yield case, got
