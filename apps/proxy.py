"""Code shared by the proxy simulations: the ranks' slabs of a grid, the options, the output and the run itself.

A proxy is a small solver whose fields resemble a well-known data set. It is a class derived from
`Simulation`; `main` runs it under mpirun and writes its fields with `cusz_operator.Writer`:

    mpirun -n 4 python apps/cosmology.py --grid 64 --eb 1e-4 --output cosmology.bp --reference exact.bp

and `run_alone` runs it in this process, without MPI. A rank holds only its slab of the grid. The fields have the same
bits for any number of ranks: every cell sees the same operations in the same order, each one-dimensional Fourier
transform runs on a single rank, and sums over ranks are exact or follow the order of the grid's planes.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class ProxyError(Exception):
    """A mistake in the options, raised alike on every rank; the message says what to do."""


class OneRank:
    """The communicator of a single process."""

    rank, size = 0, 1

    def allgather(self, item: Any) -> list[Any]:
        """The items of all ranks."""
        return [item]


class Slabs:
    """The planes of a grid, divided over ranks in order; the numbers of planes per rank differ by at most one.

    comm   a communicator of mpi4py, or OneRank()
    n      planes of the whole grid
    start  first plane of this rank
    stop   the plane after this rank's last one
    """

    def __init__(self, comm: Any, n: int, halo: int = 1) -> None:
        """Each rank gets at least `halo` planes; ProxyError if there are too few."""
        if n < halo * comm.size:
            raise ProxyError(
                f"{comm.size} ranks cannot share {n} planes: each needs at least {halo}. Use fewer ranks or a larger "
                "--grid."
            )
        self.comm, self.n = comm, n
        self.cuts = cuts(n, comm.size)
        self.start, self.stop = self.cuts[comm.rank : comm.rank + 2]

    @property
    def count(self) -> int:
        """Planes of this rank."""
        return self.stop - self.start

    @property
    def own(self) -> slice:
        """The slice of this rank's planes in the whole grid."""
        return slice(self.start, self.stop)

    def with_halo(self, field: Array, width: int, axis: int = 0) -> Array:
        """A copy of `field` with `width` planes of each neighbour added along `axis`; the ranks form a ring."""
        n = field.shape[axis]
        ends = ((0, width), (n - width, n))
        to_low, to_high = (np.ascontiguousarray(take(field, first, last, axis)) for first, last in ends)
        from_low, from_high = to_high, to_low
        if self.comm.size > 1:
            low, high = (self.comm.rank - 1) % self.comm.size, (self.comm.rank + 1) % self.comm.size
            from_low, from_high = np.empty_like(to_high), np.empty_like(to_low)
            self.comm.Sendrecv(to_high, high, recvbuf=from_low, source=low)
            self.comm.Sendrecv(to_low, low, recvbuf=from_high, source=high)
        return np.concatenate([from_low, field, from_high], axis)

    def transpose(self, field: Array, n_join: int, divide: int, join: int) -> Array:
        """Redistributes an array divided over ranks along axis `join` (total extent `n_join`) to axis `divide`."""
        comm = self.comm
        if comm.size == 1:
            return field
        parts = np.split(field, cuts(field.shape[divide], comm.size)[1:-1], divide)
        lengths = np.diff(cuts(n_join, comm.size))
        shape = list(parts[comm.rank].shape)
        shapes = [[*shape[:join], int(length), *shape[join + 1 :]] for length in lengths]
        sent = np.concatenate([part.ravel() for part in parts])
        sizes = [math.prod(each) for each in shapes]
        received = np.empty(sum(sizes), field.dtype)
        comm.Alltoallv([sent, [part.size for part in parts]], [received, sizes])
        pieces = np.split(received, np.cumsum(sizes)[:-1])
        return np.concatenate([piece.reshape(each) for piece, each in zip(pieces, shapes, strict=True)], join)

    def forward(self, field: Array) -> Array:
        """The 3-D Fourier transform of a real periodic field (planes, ny, nz), with shape (n, ky of this rank, kz)."""
        return np.fft.fft(self.transpose(np.fft.rfftn(field, axes=(1, 2)), self.n, 1, 0), axis=0)

    def backward(self, transformed: Array, ny: int, nz: int) -> Array:
        """The inverse of `forward`."""
        return np.fft.irfftn(self.transpose(np.fft.ifft(transformed, axis=0), ny, 0, 1), (ny, nz), axes=(1, 2))

    def total(self, field: Array, axis: int = 0) -> float:
        """The sum over all ranks' planes along `axis`: planes are summed separately, and their sums added exactly."""
        sums = [float(np.ascontiguousarray(plane).sum()) for plane in np.moveaxis(field, axis, 0)]
        return math.fsum(term for each in self.comm.allgather(sums) for term in each)

    def ordered_sum(self, parts: Iterable[Array], like: Array) -> Array:
        """The sum of `parts`, one array like `like` for each plane of all ranks, in the order of the planes."""
        result = np.zeros_like(like)
        if self.comm.rank > 0:
            self.comm.Recv(result, self.comm.rank - 1)
        for part in parts:
            result += part
        if self.comm.size > 1:
            if self.comm.rank < self.comm.size - 1:
                self.comm.Send(result, self.comm.rank + 1)
            self.comm.Bcast(result, self.comm.size - 1)
        return result

    def largest(self, value: float) -> float:
        """The largest of all ranks' values."""
        return max(self.comm.allgather(float(value)))


def cuts(n: int, parts: int) -> list[int]:
    """Where n planes are cut into parts: parts + 1 numbers from 0 to n."""
    return [n * i // parts for i in range(parts + 1)]


def take(field: Array, first: int, last: int | None, axis: int) -> Array:
    """A view of the planes along `axis` from `first` to before `last`, or to the end."""
    return field[(slice(None),) * (axis % field.ndim) + (slice(first, last),)]


def noise(seed: int, planes: Sequence[int], shape: tuple[int, ...]) -> Array:
    """Standard normal numbers: an array (len(planes), *shape) that depends only on seed and plane numbers."""
    generators = (np.random.Generator(np.random.Philox(key=[seed, plane])) for plane in planes)
    return np.stack([generator.standard_normal(shape) for generator in generators])


def limited_slope(a: Array, b: Array) -> Array:
    """The slope in a cell from the differences to its two neighbours, limited so that no new extremum appears.

    (The monotonised central limiter of van Leer, 1977.)
    """
    bound = np.minimum(2 * np.minimum(np.abs(a), np.abs(b)), 0.5 * np.abs(a + b))
    return np.where(a * b > 0, np.copysign(bound, a), 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# A simulation and its run


class Block(NamedTuple):
    """This rank's part of a field: a C-contiguous f32 array, the shape of the whole, and where the part begins."""

    array: Array
    shape: tuple[int, ...]
    start: tuple[int, ...]


class Simulation(ABC):
    """One rank's part of a simulation.

    GRID      default extents of the grid
    STEPS     default number of steps
    PERIODIC  axes of the fields along which a power spectrum is taken, as text for the file
    """

    GRID: ClassVar[tuple[int, ...]]
    STEPS: ClassVar[int]
    PERIODIC: ClassVar[str]

    @abstractmethod
    def __init__(self, comm: Any, grid: tuple[int, ...], steps: int, seed: int) -> None:
        """Sets the state before the first of `steps` steps (collective). ProxyError: an unsuitable grid or number."""

    @abstractmethod
    def step(self) -> None:
        """Advance by one step (collective)."""

    @abstractmethod
    def fields(self) -> dict[str, Block]:
        """The fields to write (collective)."""

    @abstractmethod
    def conserved(self) -> dict[str, float]:
        """Quantities that the scheme conserves to round-off, of the whole grid (collective)."""


def whole_slab(slabs: Slabs, axis: int = 0) -> Callable[[Array], Block]:
    """Returns a function that makes the Block of an array divided along `axis` as the slabs are."""

    def block(array: Array) -> Block:
        shape, start = list(array.shape), [0] * array.ndim
        shape[axis], start[axis] = slabs.n, slabs.start
        return Block(np.ascontiguousarray(array, np.float32), tuple(shape), tuple(start))

    return block


def run_alone(kind: type[Simulation], scale: float) -> dict[str, Array]:
    """The final fields of a run in this process alone; `scale` multiplies the default grid's extents."""
    grid = tuple(max(round(n * scale), 8) for n in kind.GRID)
    simulation = kind(OneRank(), grid, kind.STEPS, seed=1)
    for _ in range(kind.STEPS):
        simulation.step()
    return {name: block.array for name, block in simulation.fields().items()}


class _Parser(argparse.ArgumentParser):
    """Raises ProxyError instead of exiting, and prints on the first rank only."""

    speaks = True

    def error(self, message: str) -> NoReturn:
        raise ProxyError(f"{message}. See --help.")

    def _print_message(self, message: str, file: Any = None) -> None:
        if self.speaks:
            super()._print_message(message, file)


def _options(kind: type[Simulation], speaks: bool) -> argparse.Namespace:
    def grid(text: str) -> tuple[int, ...]:
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text) or text.count("x") not in (0, len(kind.GRID) - 1):
            raise argparse.ArgumentTypeError(f"{text!r} is neither N nor {'x'.join(['N'] * len(kind.GRID))}")
        numbers = tuple(map(int, text.split("x")))
        return numbers * len(kind.GRID) if len(numbers) == 1 else numbers

    def count(text: str) -> int:
        if not re.fullmatch(r"[1-9]\d*", text):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
        return int(text)

    text = sys.modules[kind.__module__].__doc__ or ""
    parser = _Parser(description=text.split("\n\n")[0])
    parser.speaks = speaks
    add = parser.add_argument
    extents, file = "x".join(map(str, kind.GRID)), f"{kind.__name__.lower()}.bp"
    add("--grid", type=grid, default=extents, metavar="N|NxN...", help="extents of the grid (default: %(default)s)")
    add("--steps", type=count, default=kind.STEPS, metavar="N", help="steps to simulate (default: %(default)s)")
    add("--every", type=count, metavar="N", help="write every N steps, and after the last one (default: only the last)")
    add("--eb", type=float, default=1e-4, help="error bound; 0 is lossless (default: %(default)s)")
    add("--mode", choices=("abs", "rel"), default="rel", help="rel (the default): times the range of each whole field")
    add("--output", type=Path, default=Path(file), metavar="PATH", help="file to write (default: %(default)s)")
    add("--reference", type=Path, metavar="PATH", help="also write the fields without loss to this file")
    add("--engine", choices=("BP5", "BP4"), default="BP5", help="of ADIOS2 (default: %(default)s)")
    add("--seed", type=int, default=1, help="of the initial state, at least 0 (default: %(default)s)")
    options = parser.parse_args()
    if options.seed < 0:
        raise ProxyError(f"--seed {options.seed} is less than 0.")
    if options.reference is not None and options.reference.resolve() == options.output.resolve():
        raise ProxyError(f"--output and --reference are the same file, {options.output}.")
    return options


def _run(kind: type[Simulation], comm: Any) -> None:
    from cusz_core import CuszError
    from cusz_operator import Writer

    options = _options(kind, comm.rank == 0)
    began = time.perf_counter()
    simulation = kind(comm, options.grid, options.steps, options.seed)
    files: list[Any] = []
    try:
        files.append(Writer(options.output, comm, eb=options.eb, mode=options.mode, engine=options.engine))
        if options.reference is not None:
            files.append(Writer(options.reference, comm, eb=0.0, engine=options.engine))
        seconds = _simulate(simulation, files, options, comm)
    except CuszError:  # raised on every rank by Writer; after any other error ranks cannot close: that is collective
        for file in files:
            file.close()
        raise
    if comm.rank == 0:
        written = [variable for variable in files[0].summary() if variable.name != "diagnostics"]
        raw, stored = (sum(getattr(each, what) for each in written) for what in ("raw_bytes", "archive_bytes"))
        size, simulating = "x".join(map(str, options.grid)), time.perf_counter() - began - sum(seconds)
        print(
            f"{options.steps} steps of {size} on {comm.size} ranks: {simulating:.2f} s; "
            f"{raw / 1e6:.1f} MB written as {stored / 1e6:.2f} MB, ratio {raw / stored:.1f}: {seconds[0]:.2f} s",
            flush=True,
        )


def _simulate(simulation: Simulation, files: list[Any], options: argparse.Namespace, comm: Any) -> list[float]:
    """Runs all steps. Returns the seconds spent writing each of the files (collective)."""
    seconds = [0.0] * len(files)
    for file in files:
        file.attribute("proxy", type(simulation).__name__.lower())
        file.attribute("grid", "x".join(map(str, options.grid)))
        file.attribute("periodic", simulation.PERIODIC)
        file.attribute("diagnostics", ",".join(["step", *simulation.conserved()]))
    for step in range(1, options.steps + 1):
        simulation.step()
        if step < options.steps and (options.every is None or step % options.every):
            continue
        blocks, conserved = simulation.fields(), simulation.conserved()
        for i, file in enumerate(files):
            started = time.perf_counter()
            with file.step():
                for name, block in blocks.items():
                    file.put(name, block.array, block.shape, block.start)
                if comm.rank == 0:
                    file.put("diagnostics", np.array([step, *conserved.values()]), eb=0.0, mode="abs")
            seconds[i] += time.perf_counter() - started
        if comm.rank == 0:
            kept = ", ".join(f"{name} {value:.15g}" for name, value in conserved.items())
            print(f"step {step} written to {options.output}: {kept}", flush=True)
    for i, file in enumerate(files):
        started = time.perf_counter()
        file.close()
        seconds[i] += time.perf_counter() - started
    return seconds


def main(kind: type[Simulation]) -> int:
    """Runs the program of a proxy. Exit status: 0, or 1 after a message."""
    from mpi4py import MPI

    from cusz_core import CuszError

    comm = MPI.COMM_WORLD
    try:
        _run(kind, comm)
    except (ProxyError, CuszError) as error:  # the same on every rank
        if comm.rank == 0:
            print(f"{kind.__name__.lower()}: {error}", file=sys.stderr, flush=True)
        return 1
    except SystemExit as leaving:  # --help
        return int(leaving.code or 0)
    except BaseException:  # one rank failed while others compute or write: end them all
        traceback.print_exc()
        print(f"rank {comm.rank} of {comm.size} failed", file=sys.stderr, flush=True)
        comm.Abort(1)
    return 0
