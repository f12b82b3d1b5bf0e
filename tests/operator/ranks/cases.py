"""The variables that write.py writes and read.py expects, and which rank writes which part of them."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import adios2
import numpy as np
from numpy.typing import NDArray

import support

STEPS = 3
FILL = 1e20
SST = {"RendezvousReaderCount": "1", "DataTransport": "WAN", "OpenTimeoutSecs": "60"}
PLUGIN = {"PluginName": "cusz", "PluginLibrary": "cusz_operator"}

Mode, StepStatus = adios2.bindings.Mode, adios2.bindings.StepStatus  # also in 2.10 under this name


def or_abort(main: Callable[[], object]) -> None:
    """Ends all ranks if one of them fails."""
    from mpi4py import MPI

    try:
        main()
    except BaseException as error:
        print(f"rank {MPI.COMM_WORLD.rank}: {error!r}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


def make_adios(comm: Any) -> adios2.Adios:
    """An ADIOS2 over these ranks, or for this process alone if ADIOS2 was built without MPI."""
    return adios2.Adios(comm=comm) if adios2.is_built_with_mpi else adios2.Adios()


Box = tuple[tuple[int, ...], tuple[int, ...]]  # start, count


@dataclass(frozen=True)
class Case:
    """A variable of the tests."""

    name: str
    shape: tuple[int, ...]
    values: Callable[[int], NDArray]  # global array at a step
    parameters: dict[str, str] = field(default_factory=dict)
    eb: float = 0.0
    mode: str = "abs"
    fill: float | None = None
    blocks_of: Callable[[int, int, int], list[tuple[int, int]]] | None = None  # see `blocks`
    steps: tuple[int, ...] = tuple(range(STEPS))
    supported: bool = True
    exact: bool = False  # for any bound

    def blocks(self, rank: int, ranks: int) -> list[Box]:
        """The blocks that a rank writes: slabs along the first axis."""
        split = self.blocks_of or one_slab
        rest = self.shape[1:]
        return [((start, *[0] * len(rest)), (count, *rest)) for start, count in split(self.shape[0], rank, ranks)]

    def all_blocks(self, ranks: int) -> Iterator[Box]:
        for rank in range(ranks):
            yield from self.blocks(rank, ranks)

    @property
    def version(self) -> int:
        """Format version of a block that compresses well; other blocks have version 1 with either predictor."""
        return 2 if self.parameters.get("predictor") == "spline" else 1

    @property
    def is_bounded(self) -> bool:
        return self.supported and not self.exact

    def bound(self, block: NDArray) -> float:
        """The bound promised for one block."""
        tighter = float(os.environ.get("CUSZ_TEST_TIGHTER", "1"))  # for a test of the tests
        return support.absolute_bound(block, self.eb, self.mode, self.fill) * tighter if self.is_bounded else 0.0


def one_slab(extent: int, rank: int, ranks: int) -> list[tuple[int, int]]:
    first, last = extent * rank // ranks, extent * (rank + 1) // ranks
    return [(first, last - first)]


def two_slabs(extent: int, rank: int, ranks: int) -> list[tuple[int, int]]:
    """Two blocks of one variable in one step, the second one first."""
    ((first, count),) = one_slab(extent, rank, ranks)
    half = count // 3
    return [(first + half, count - half), (first, half)]


def even_ranks(extent: int, rank: int, ranks: int) -> list[tuple[int, int]]:
    """Odd ranks put an empty block."""
    first = extent * ((rank + 1) // 2) // ((ranks + 1) // 2)
    last = first if rank % 2 else extent * (rank // 2 + 1) // ((ranks + 1) // 2)
    return [(first, last - first)]


def no_block_of_last(extent: int, rank: int, ranks: int) -> list[tuple[int, int]]:
    """The last of several ranks puts nothing at all."""
    writers = max(ranks - 1, 1)
    return one_slab(extent, rank, writers) if rank < writers else []


def smooth(shape: tuple[int, ...], dtype: type) -> Callable[[int], NDArray]:
    return lambda step: support.smooth(shape, np.dtype(dtype), seed=step)


def with_fill(step: int) -> NDArray:
    x = support.smooth((40, 50), np.dtype(np.float32), seed=step)
    x[5:17, 3:20] = FILL
    x[20, :] = np.nan
    return x


def with_specials(step: int) -> NDArray:
    x = support.smooth((12, 20, 21), np.dtype(np.float64), seed=step)
    flat = x.reshape(-1)
    special = [np.nan, np.inf, -np.inf, -0.0, 5e-324, -2.2e-308, 1.7e308, -1.7e308, 1e30, -np.nan]
    for i, value in enumerate(special):
        flat[i * 97 + step :: 1500] = value
    return x


def integers(step: int) -> NDArray:
    return support.integers(60 * 7, -1000, 1000, seed=step).astype(np.int32).reshape(60, 7)


def complexes(step: int) -> NDArray:
    x = support.smooth((30, 20), np.dtype(np.float32), seed=step)
    return (x + 1j * x[::-1]).astype(np.complex64)


def case(
    name: str, shape: tuple[int, ...], values: Callable[[int], NDArray], eb: float, mode: str = "abs", **rest: Any
) -> Case:
    parameters = {**PLUGIN, "accuracy": repr(eb), "mode": mode, "predictor": "lorenzo", **rest.pop("parameters", {})}
    return Case(name, shape, values, parameters, eb, mode, **rest)


f32, f64 = np.float32, np.float64

CASES = [
    case("u1", (1009,), smooth((1009,), f32), 1e-3),
    case("v1", (5003,), smooth((5003,), f64), 1e-3, "rel", steps=(0, 2)),
    case("u2", (65, 70), smooth((65, 70), f32), 1e-2, "rel", blocks_of=two_slabs),
    case("v2", (64, 129), smooth((64, 129), f64), 1e-4, parameters={"bins": "1024", "threads": "2"}),
    case("u3", (24, 17, 35), smooth((24, 17, 35), f32), 1e-3, parameters={"tolerance": "2e-3"}),
    case("v3", (16, 20, 33), smooth((16, 20, 33), f64), 1e-6, blocks_of=two_slabs, steps=(1, 2)),
    case("u4", (9, 6, 7, 20), smooth((9, 6, 7, 20), f32), 1e-3, "rel"),
    case("v5", (8, 3, 1, 9, 10), smooth((8, 3, 1, 9, 10), f64), 1e-3),
    case("u6", (4, 3, 2, 5, 6, 7), smooth((4, 3, 2, 5, 6, 7), f32), 1e-3, "rel"),
    case("constant", (40, 30), lambda step: np.full((40, 30), 2.5 + step, f32), 1e-3, "rel"),
    case("exact", (50, 40), smooth((50, 40), f64), 0.0),
    case("random32", (3001,), lambda step: support.random_bits((3001,), np.dtype(f32), seed=step), 1e-3),
    case("random64", (41, 43), lambda step: support.random_bits((41, 43), np.dtype(f64), seed=step), 1e-3),
    case("incompressible", (2111,), lambda step: 1 + support.integers(2111, 0, 2**23, seed=step) / 2**23, 1e-16),
    case("with_fill", (40, 50), with_fill, 1e-3, "rel", fill=FILL, parameters={"fill": repr(FILL)}),
    case("specials", (12, 20, 21), with_specials, 1e-3, blocks_of=two_slabs),
    case("empty_on_odd", (37, 20), smooth((37, 20), f32), 1e-3, blocks_of=even_ranks),
    case("not_on_last", (37, 20), smooth((37, 20), f64), 1e-3, blocks_of=no_block_of_last),
    case("int32", (60, 7), integers, 1e-3, exact=True),
    case("complex64", (30, 20), complexes, 1e-3, supported=False),
    Case("not_compressed", (30, 20), smooth((30, 20), f32)),
]
# Cases repeated with the other predictor, because their fields exercise it in different ways.
OF_BOTH_PREDICTORS = {
    *("u1", "u2", "v2", "u3", "v3", "u4", "v5", "u6", "constant", "random32", "incompressible", "with_fill"),
    *("specials", "empty_on_odd"),
}
CASES += [
    replace(each, name=f"{each.name}_spline", parameters={**each.parameters, "predictor": "spline"})
    for each in CASES
    if each.name in OF_BOTH_PREDICTORS
]


@functools.cache
def values(name: str, step: int) -> NDArray:
    """The global array of a variable at a step."""
    array = next(case for case in CASES if case.name == name).values(step)
    array.setflags(write=False)
    return array


def inside(array: NDArray, box: Box) -> NDArray:
    """The part of an array in a box."""
    return array[tuple(slice(start, start + count) for start, count in zip(*box, strict=True))]


def overlap(a: Box, b: Box) -> Box | None:
    """The intersection of two boxes, if any."""
    starts = tuple(map(max, a[0], b[0]))
    ends = [min(s + c, t + d) for s, c, t, d in zip(*a, *b, strict=True)]
    counts = tuple(end - start for start, end in zip(starts, ends, strict=True))
    return (starts, counts) if min(counts) > 0 else None


def moved(box: Box, origin: tuple[int, ...]) -> Box:
    """A box in the coordinates of another origin."""
    return tuple(s - o for s, o in zip(box[0], origin, strict=True)), box[1]


def problems(case: Case, step: int, writers: int, selection: Box, got: NDArray) -> list[str]:
    """Where a selection that was read breaks its bound, block by block."""
    expected = values(case.name, step)
    if got.dtype != expected.dtype:
        return [f"dtype {got.dtype}, expected {expected.dtype}"]
    if not case.is_bounded:
        return [] if support.same_bits(np.ascontiguousarray(inside(expected, selection)), got) else ["not bit for bit"]
    found = []
    for block in case.all_blocks(writers):
        common = overlap(block, selection)
        if common is None:
            continue
        before = np.ascontiguousarray(inside(expected, common))
        after = np.ascontiguousarray(inside(got, moved(common, selection[0])))
        bound = case.bound(np.ascontiguousarray(inside(expected, block)))
        found += support.violations(before, after, bound, case.fill)[:3]
    return found
