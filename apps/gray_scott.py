#!/usr/bin/env python3
"""Gray-Scott reaction-diffusion in 3-D under MPI, writing error-bounded compressed steps with cusz_operator.Writer.

    mpirun -n 4 python apps/gray_scott.py --size 96 --steps 1000 --interval 250 --eb 1e-4 --output gs.bp

Two species U and V diffuse and react on a periodic grid of unit spacing with a time step of one:

    dU/dt = Du lap(U) - U V^2 + feed (1 - U)
    dV/dt = Dv lap(V) + U V^2 - (feed + kill) V          lap(X) = sum of the six neighbours - 6 X

Each rank owns a box of the grid, with a halo one cell wide that is exchanged at every step. The fields do not depend
on how the grid is cut: every cell sees the same operations in the same order, nothing is summed over ranks, and the
initial noise is a hash of the cell's global index. So one rank and four ranks agree to the last bit.

U and V are written as global ADIOS2 variables of shape (nx, ny, nz), one block per rank, together with the step number,
without loss. A run can be continued from its compressed steps: in another file with --restart, or in the same file with
--append, which starts a new run if there are no steps yet, so that a stopped job just needs to be run again.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

try:
    import numpy as np
    from mpi4py import MPI

    import cusz_operator
    from cusz_core import CuszError
except ImportError as missing:
    print(
        f"gray_scott: {missing}. Run scripts/setup, then use the Python of its environment (.venv/bin/python).",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)  # skips MPI_Finalize, which would wait for ranks whose imports succeed; mpirun ends those

Triple = tuple[int, int, int]

VARIABLES = ("U", "V")
NOISE = 0.01  # amplitude of the initial noise
SEED_HALF_WIDTH = 3  # a seed is a cube of 7^3 cells in which V starts high
CELLS_PER_SEED = 32**3
V_FLOOR = 1e-18  # keeps V and U V^2 from being subnormal, which is slow; far below any bound of interest
CHUNK_BYTES = 64 * 1024  # of cells per pass: few enough for the working arrays to stay in cache


class AppError(Exception):
    """A mistake in the options or the environment; the message names it and says what to do."""


def plain(error: BaseException) -> str:
    """The text of an exception on one line, without the colours that ADIOS2 adds."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())


@contextlib.contextmanager
def agreed(comm: MPI.Intracomm, doing: str) -> Iterator[None]:
    """Run local work so that a failure on any rank becomes the same AppError on every rank.

    The block must not communicate: a rank that fails inside leaves it at once.
    """
    message = None
    try:
        yield
    except AppError as error:
        message = str(error)
    except MemoryError as error:
        message = f"{doing}: out of memory ({error})"
    except Exception as error:  # whatever a library raises must reach the other ranks as well
        message = f"{doing}: {plain(error)}"
    first = next((each for each in comm.allgather(message) if each is not None), None)
    if first is not None:
        raise AppError(first)


# ---------------------------------------------------------------------------------------------------------------------
# The grid and its ranks


@dataclass(frozen=True)
class Grid:
    """The box of one rank.

    cart   periodic Cartesian communicator
    size   cells of the whole grid
    ranks  ranks along each axis
    start  first cell of this rank's box
    count  cells of this rank's box, at least one along each axis
    """

    cart: MPI.Cartcomm
    size: Triple
    ranks: Triple
    start: Triple
    count: Triple


def choose_ranks(size: Triple, ranks: int) -> Triple:
    """Cut `size` cells into `ranks` boxes of at least one cell, with the smallest faces between them.

    (MPI.Compute_dims balances only the numbers of ranks; for a flat or thin grid the extents matter.)
    """
    divisors = [d for d in range(1, ranks + 1) if ranks % d == 0]
    fitting = [
        (px, py, ranks // (px * py))
        for px, py in itertools.product(divisors, divisors)
        if ranks % (px * py) == 0 and px <= size[0] and py <= size[1] and ranks // (px * py) <= size[2]
    ]
    if not fitting:
        text = "x".join(map(str, size))
        raise AppError(
            f"{ranks} ranks cannot share a grid of {text} cells: each rank needs a box of at least one cell. "
            "Use fewer ranks or a larger --size."
        )

    def cost(dims: Triple) -> tuple[float, int, Triple]:
        faces = sum(p * math.prod(size) / n for p, n in zip(dims, size, strict=True) if p > 1)
        return faces, max(dims), (-dims[0], -dims[1], -dims[2])  # ties: the most even cut, preferably of the slow axes

    return min(fitting, key=cost)


def make_grid(comm: MPI.Intracomm, size: Triple) -> Grid:
    """Divide the grid over the ranks of `comm` (collective). Boxes differ by at most one cell along each axis."""
    ranks = choose_ranks(size, comm.size)
    cart = comm.Create_cart(ranks, periods=(True, True, True))
    bounds = [(n * c // p, n * (c + 1) // p) for n, c, p in zip(size, cart.coords, ranks, strict=True)]
    start = tuple(low for low, _ in bounds)
    count = tuple(high - low for low, high in bounds)
    return Grid(cart, size, ranks, start, count)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------------
# The initial state


def hash_noise(index: np.ndarray, seed: int) -> np.ndarray:
    """A number in [0, 1) for every global cell index (uint64): the top 24 bits of SplitMix64, exact in f32 and f64."""
    x = index + np.uint64((seed * 0x9E3779B97F4A7C15) % 2**64)  # uint64 arithmetic wraps
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(40)).astype(np.float64) / 2.0**24


def initial_state(
    size: Triple, start: Triple, count: Triple, seed: int, dtype: np.dtype[Any]
) -> tuple[np.ndarray, np.ndarray]:
    """U and V at step 0 in the box at `start`: two arrays of shape `count` and type `dtype`.

    U is 1 and V is 0 with a little noise, except in seeds (cubes placed by hash, one per 32^3 cells), where they are
    0.25 and 0.33. A cell's value depends only on its global position, `size` and `seed`.
    """
    axes = [np.arange(s, s + c, dtype=np.uint64) for s, c in zip(start, count, strict=True)]
    index = (axes[0][:, None, None] * np.uint64(size[1]) + axes[1][:, None]) * np.uint64(size[2]) + axes[2]
    inside = np.zeros(count, dtype=bool)
    n_seeds = max(1, math.prod(size) // CELLS_PER_SEED)
    places = hash_noise(np.arange(3 * n_seeds, dtype=np.uint64), 3 * seed + 2).reshape(n_seeds, 3)
    for place in places:
        near = []
        for axis, n in enumerate(size):
            distance = np.abs(axes[axis].astype(np.int64) - int(place[axis] * n))
            near.append(np.minimum(distance, n - distance) <= SEED_HALF_WIDTH)  # the grid is periodic
        inside |= near[0][:, None, None] & near[1][:, None] & near[2]
    u = np.where(inside, 0.25, 1.0) - NOISE * hash_noise(index, 3 * seed)
    v = np.where(inside, 0.33, 0.0) + NOISE * hash_noise(index, 3 * seed + 1)
    return u.astype(dtype), v.astype(dtype)


# ---------------------------------------------------------------------------------------------------------------------
# The halo and the time step


class Halo:
    """Exchange of the six faces of fields with a halo of one cell.

    The axes are exchanged one after another with whole padded faces, so that edges and corners are right as well. On an
    axis that is not cut, the periodic copy is local. Messages travel in host memory: device arrays are staged.
    """

    def __init__(self, grid: Grid, dtype: np.dtype[Any], n_fields: int, xp: Any) -> None:
        self.count = grid.count
        self.on_host = xp is np
        self.buffers: list[list[np.ndarray] | None] = []  # per axis: to low, to high, from low, from high
        self.requests: list[list[MPI.Prequest]] = []
        padded = [n + 2 for n in grid.count]
        for axis in range(3):
            if grid.ranks[axis] == 1:
                self.buffers.append(None)
                self.requests.append([])
                continue
            face = [n_fields, *padded[:axis], *padded[axis + 1 :]]
            to_low, to_high, from_low, from_high = (np.empty(face, dtype) for _ in range(4))
            low, high = grid.cart.Shift(axis, 1)
            down, up = 2 * axis, 2 * axis + 1  # tags: with two ranks on an axis, low and high are the same rank
            self.buffers.append([to_low, to_high, from_low, from_high])
            self.requests.append(
                [
                    grid.cart.Recv_init(from_low, low, up),
                    grid.cart.Recv_init(from_high, high, down),
                    grid.cart.Send_init(to_low, low, down),
                    grid.cart.Send_init(to_high, high, up),
                ]
            )

    def exchange(self, fields: Sequence[Any]) -> None:
        """Fill the halos of `fields`, arrays of the padded shape (nx + 2, ny + 2, nz + 2)."""
        for axis, (buffers, requests) in enumerate(zip(self.buffers, self.requests, strict=True)):
            ahead = (slice(None),) * axis
            n = self.count[axis]
            if buffers is None:
                for field in fields:
                    field[(*ahead, 0)] = field[(*ahead, n)]
                    field[(*ahead, n + 1)] = field[(*ahead, 1)]
                continue
            to_low, to_high, from_low, from_high = buffers
            for i, field in enumerate(fields):
                to_low[i] = self._host(field[(*ahead, 1)])
                to_high[i] = self._host(field[(*ahead, n)])
            MPI.Prequest.Startall(requests)
            MPI.Prequest.Waitall(requests)
            for i, field in enumerate(fields):
                self._set(field, (*ahead, 0), from_low[i])
                self._set(field, (*ahead, n + 1), from_high[i])

    def _host(self, face: Any) -> Any:
        return face if self.on_host else face.get()

    def _set(self, field: Any, where: tuple[Any, ...], face: np.ndarray) -> None:
        if self.on_host:
            field[where] = face
        else:
            field[where].set(face)


@dataclass(frozen=True)
class Physics:
    """Rates per unit of time; time step and grid spacing are 1.

    The explicit step is stable while 12 diffusion + feed + V^2 stays below 2, and V stays below about 0.5.
    """

    diffusion_u: float = 0.14
    diffusion_v: float = 0.07
    feed: float = 0.03
    kill: float = 0.06


class GrayScott:
    """The state of one rank's box and its time step, on NumPy or CuPy arrays (`xp`).

    A step works on the flat arrays, halo included, from the first to the last cell of the interior: all operands are
    contiguous runs at six fixed offsets, and nothing is allocated. The values that this leaves in halo cells are
    overwritten by the next exchange.
    """

    def __init__(self, grid: Grid, physics: Physics, dtype: np.dtype[Any], xp: Any) -> None:
        self.grid, self.physics, self.dtype, self.xp = grid, physics, dtype, xp
        nx, ny, nz = grid.count
        padded = (nx + 2, ny + 2, nz + 2)
        self.u, self.v, self.u_next, self.v_next = (xp.empty(padded, dtype) for _ in range(4))
        self.stride_x, self.stride_y = padded[1] * padded[2], padded[2]
        self.first = self.stride_x + self.stride_y + 1
        self.last = nx * self.stride_x + ny * self.stride_y + nz + 1
        cells = self.last - self.first
        self.chunk = min(cells, CHUNK_BYTES // dtype.itemsize) if xp is np else cells
        self.reaction, self.scratch = xp.empty(self.chunk, dtype), xp.empty(self.chunk, dtype)
        self.halo = Halo(grid, dtype, 2, xp)

    def interior(self, field: Any) -> Any:
        """The box without its halo: a view of shape `count`."""
        return field[1:-1, 1:-1, 1:-1]

    def set_state(self, u: np.ndarray, v: np.ndarray) -> None:
        """Take U and V of shape `count` from host memory."""
        self.interior(self.u)[...] = self.xp.asarray(u)
        self.interior(self.v)[...] = self.xp.asarray(v)

    def fields(self) -> dict[str, Any]:
        """U and V without their halos: views of shape `count`, which the next step changes."""
        return {"U": self.interior(self.u), "V": self.interior(self.v)}

    def step(self) -> None:
        """Advance by one step (collective)."""
        self.halo.exchange((self.u, self.v))
        xp, number, p = self.xp, self.dtype.type, self.physics
        around_u, around_v = number(p.diffusion_u), number(p.diffusion_v)
        keep_u, keep_v = number(1.0 - 6.0 * p.diffusion_u - p.feed), number(1.0 - 6.0 * p.diffusion_v - p.feed - p.kill)
        feed, floor = number(p.feed), number(V_FLOOR)
        u, v = self.u.reshape(-1), self.v.reshape(-1)
        u_next, v_next = self.u_next.reshape(-1), self.v_next.reshape(-1)
        for low in range(self.first, self.last, self.chunk):
            high = min(low + self.chunk, self.last)
            uc, vc = u[low:high], v[low:high]
            reaction, scratch = self.reaction[: high - low], self.scratch[: high - low]
            xp.multiply(uc, vc, out=reaction)
            xp.multiply(reaction, vc, out=reaction)
            for old, centre, new, around, keep in (
                (u, uc, u_next, around_u, keep_u),
                (v, vc, v_next, around_v, keep_v),
            ):
                out = new[low:high]
                xp.add(
                    old[low - self.stride_x : high - self.stride_x],
                    old[low + self.stride_x : high + self.stride_x],
                    out=out,
                )
                xp.add(out, old[low - self.stride_y : high - self.stride_y], out=out)
                xp.add(out, old[low + self.stride_y : high + self.stride_y], out=out)
                xp.add(out, old[low - 1 : high - 1], out=out)
                xp.add(out, old[low + 1 : high + 1], out=out)
                xp.multiply(out, around, out=out)
                xp.multiply(centre, keep, out=scratch)
                xp.add(out, scratch, out=out)
            out = u_next[low:high]
            xp.subtract(out, reaction, out=out)
            xp.add(out, feed, out=out)
            out = v_next[low:high]
            xp.add(out, reaction, out=out)
            xp.maximum(out, floor, out=out)
        self.u, self.u_next = self.u_next, self.u
        self.v, self.v_next = self.v_next, self.v


# ---------------------------------------------------------------------------------------------------------------------
# Output and restart


def fields_after(steps: int, size: Triple) -> dict[str, np.ndarray]:
    """U and V of a run in this process alone, with the default options."""
    grid = make_grid(MPI.COMM_SELF, size)
    sim = GrayScott(grid, Physics(), np.dtype(np.float32), np)
    sim.set_state(*initial_state(grid.size, grid.start, grid.count, 1, sim.dtype))
    for _ in range(steps):
        sim.step()
    return {name: np.ascontiguousarray(field) for name, field in sim.fields().items()}


def write_step(out: cusz_operator.Writer, sim: GrayScott, step: int) -> None:
    """Write U, V and the number of the step (collective)."""
    with out.step():
        for name, field in sim.fields().items():
            out.put(name, field, shape=sim.grid.size, start=sim.grid.start, dims=("x", "y", "z"))
        if sim.grid.cart.rank == 0:
            out.put("step", np.array([step], np.float64), eb=0)


class RawFile:
    """U and V uncompressed, written by ADIOS2 alone, as a reference."""

    def __init__(self, path: Path, sim: GrayScott) -> None:
        """Create the file (collective)."""
        import adios2

        self.sim = sim
        self.adios = adios2.Adios(comm=sim.grid.cart)
        io = self.adios.declare_io("reference")
        io.set_engine("BP5")
        grid, kind = sim.grid, np.zeros(1, sim.dtype)
        self.variables = [io.define_variable(name, kind, grid.size, grid.start, grid.count) for name in VARIABLES]
        self.engine = io.open(str(path), adios2.Mode.Write, grid.cart)
        self.sync = adios2.Mode.Sync

    def write(self) -> None:
        """Write a step (collective)."""
        self.engine.begin_step()
        for variable, field in zip(self.variables, self.sim.fields().values(), strict=True):
            block = field if self.sim.xp is np else field.get()
            self.engine.put(variable, np.ascontiguousarray(block), self.sync)
        self.engine.end_step()


@dataclass
class Clock:
    """Accumulates the time spent in `with clock:`."""

    seconds: float = 0.0

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self.began


def physics_attributes(physics: Physics, seed: int) -> dict[str, float]:
    """The run's parameters as stored in the file."""
    return {
        "diffusion_u": physics.diffusion_u,
        "diffusion_v": physics.diffusion_v,
        "feed": physics.feed,
        "kill": physics.kill,
        "seed": float(seed),
    }


def has_steps(path: Path) -> bool:
    """Whether `path` is a file with complete steps."""
    if not (path / "md.idx").exists():
        return False
    with contextlib.suppress(CuszError):  # if it has no complete step
        cusz_operator.repair(path)  # it cannot be read if the job was killed at a wrong moment
    with cusz_operator.Reader(path) as run:
        return len(run) > 0


def read_restart(
    path: Path, grid: Grid, dtype: np.dtype[Any], wanted: dict[str, float]
) -> tuple[int, np.ndarray, np.ndarray]:
    """Reads the last complete step in `path`: its number, and U and V of this rank's box.

    Every rank reads independently, so this may fail on one rank alone. Any number of ranks may have written the file.
    """
    with cusz_operator.Reader(path) as run:
        if len(run) == 0 or not {*VARIABLES, "step"} <= set(run[-1].variables):
            raise AppError(f"--restart {path}: it holds no complete step of U and V.")
        attributes = run.attributes
        for key, value in wanted.items():
            found = float(attributes[key][0]) if key in attributes else None
            if found != value:
                raise AppError(f"--restart {path}: its run had {key} = {found}, this one has {value}. Give the same.")
        last = run[-1]
        for name in VARIABLES:
            if last.shape(name) != grid.size:
                text = "x".join(map(str, last.shape(name)))
                raise AppError(f"--restart {path}: its grid is {text}. Give --size {text}.")
            if last.dtype(name) != dtype:
                raise AppError(f"--restart {path}: {name} is {last.dtype(name)}. Give the --dtype of its run.")
        u, v = (last.read(name, grid.start, grid.count) for name in VARIABLES)
        return int(last.read("step", (0,), (1,))[0]), u, v


# ---------------------------------------------------------------------------------------------------------------------
# The command line


class Parser(argparse.ArgumentParser):
    """Raises AppError instead of exiting, and prints on the first rank only."""

    def error(self, message: str) -> NoReturn:
        raise AppError(f"{message}. See --help.")

    def _print_message(self, message: str, file: Any = None) -> None:
        if MPI.COMM_WORLD.rank == 0:
            super()._print_message(message, file)


def parse_size(text: str) -> Triple:
    """'96' or '96x64x32', as cells along x, y, z."""
    match = re.fullmatch(r"(\d+)(?:x(\d+)x(\d+))?", text)
    if match is None or any(group is not None and int(group) < 1 for group in match.groups()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither N nor NXxNYxNZ with whole numbers of at least 1")
    x, y, z = match.groups()
    return (int(x), int(y or x), int(z or x))


def parse_count(text: str) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch(r"\d+", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def parse_number(text: str) -> float:
    """A finite number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number of at least 0")
    return value


def parse_rate(text: str) -> float:
    """A rate from 0 to 0.1, where the time step is stable."""
    value = parse_number(text)
    if value > 0.1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate from 0 to 0.1")
    return value


def make_parser() -> Parser:
    """The options."""
    text = (__doc__ or "").split("\n\n")
    parser = Parser(prog="gray_scott.py", description=text[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--size", type=parse_size, default="64", metavar="N|NXxNYxNZ", help="cells of the grid")
    add("--steps", type=parse_count, default=1000, metavar="N", help="number of the last step")
    add("--interval", type=parse_count, default=250, metavar="N", help="write every N steps, and after the last one")
    add("--dtype", choices=("f32", "f64"), default="f32", help="type of the fields")
    add("--array", choices=("numpy", "cupy"), default="numpy", help="where the fields live: host or GPU memory")
    add("--output", type=Path, default=Path("gs.bp"), metavar="PATH", help="file to write")
    add(
        "--engine",
        choices=("BP5", "BP4", "SST"),
        default="BP5",
        help="ADIOS2 engine; SST: a stream, which waits for a reader",
    )
    add("--eb", type=parse_number, default=1e-4, help="error bound; 0 is lossless")
    add(
        "--mode",
        choices=("abs", "rel"),
        default="abs",
        help="abs: the bound itself; rel: times the value range of the whole field at the step",
    )
    add(
        "--budget-bytes",
        type=parse_number,
        metavar="N",
        help="instead of --eb: the bytes that a step may take, for which a bound is sought",
    )
    add("--restart", type=Path, metavar="PATH", help="continue from the last complete step of this file")
    add("--append", action="store_true", help="continue --output itself from its last complete step, if it has one")
    add("--reference", type=Path, metavar="PATH", help="also write the fields uncompressed to this file")
    add("--seed", type=int, default=1, help="of the initial noise")
    defaults = Physics()
    for key in ("feed", "kill"):
        add(f"--{key}", type=parse_rate, default=getattr(defaults, key), metavar="RATE", help=f"{key} rate, 0 to 0.1")
    add("--summary", type=Path, metavar="PATH", help="write a summary of the run, with times, as JSON")
    add(
        "--progress",
        choices=("auto", "on", "off"),
        default="auto",
        help="progress line between outputs; auto: on a terminal (not under mpirun, where a rank cannot tell)",
    )
    return parser


def check_paths(options: argparse.Namespace) -> None:
    """Refuse paths that cannot be written, or that would overwrite what is read."""
    if options.append and (options.restart is not None or options.reference is not None or options.engine == "SST"):
        raise AppError("--append cannot be combined with --restart, --reference or a stream.")
    paths = {f"--{name}": getattr(options, name) for name in ("output", "reference", "summary", "restart")}
    given = [(name, path) for name, path in paths.items() if path is not None]
    for name, path in given:
        if not path.parent.is_dir():
            raise AppError(f"{name} {path}: the folder {path.parent} does not exist.")
    for (name, path), (other, same) in itertools.combinations(given, 2):
        if path.resolve() == same.resolve():
            raise AppError(f"{name} and {other} are the same file, {path}. Choose another one for {name}.")


class Progress:
    """A line per output, and on a terminal a progress line between outputs; the first rank only."""

    def __init__(self, rank: int, mode: str, last: int) -> None:
        self.speaks = rank == 0
        self.live = self.speaks and (mode == "on" or (mode == "auto" and sys.stdout.isatty() and sys.stderr.isatty()))
        self.last = last
        self.began = self.shown = time.perf_counter()
        self.done = 0

    def tick(self, step: int) -> None:
        """Counts a step."""
        self.done += 1
        now = time.perf_counter()
        if self.live and now - self.shown > 0.2:
            self.shown = now
            left = (now - self.began) / self.done * (self.last - step)
            print(f"\rstep {step} of {self.last}, {left:.0f} s left ", end="", flush=True)

    def line(self, text: str) -> None:
        """Prints a line that is not overwritten."""
        if self.live:
            print("\r" + " " * 50 + "\r", end="")
        if self.speaks:
            print(text, flush=True)


def array_module(name: str) -> Any:
    """numpy or cupy."""
    if name == "numpy":
        return np
    try:
        import cupy
    except ImportError as error:
        raise AppError(
            f"--array cupy: the Python package cupy is missing ({error}). Install it or use numpy."
        ) from None
    return cupy


def wants_to_append(comm: MPI.Intracomm, options: argparse.Namespace) -> bool:
    """Whether there are steps to continue from (collective). Rank 0 looks: other nodes may not see the file yet."""
    with agreed(comm, f"--append {options.output}"):
        found = comm.rank == 0 and options.append and has_steps(options.output)
    return bool(comm.bcast(found))


def restart(comm: MPI.Intracomm, sim: GrayScott, options: argparse.Namespace, append: bool) -> int:
    """Sets the state of --restart (collective). Returns the number of its step."""
    with agreed(comm, f"--restart {options.restart}"):
        expected = physics_attributes(sim.physics, options.seed)
        first, u, v = read_restart(options.restart, sim.grid, sim.dtype, expected)
        sim.set_state(u, v)
        if first >= options.steps and not append:
            raise AppError(f"--restart {options.restart} is at step {first} already. Give --steps beyond it.")
    of_rank_0 = comm.bcast(first)
    with agreed(comm, f"--restart {options.restart}"):
        if first != of_rank_0:
            raise AppError(
                f"--restart {options.restart}: rank 0 sees {of_rank_0} as the last step, rank {comm.rank} {first}. "
                "Its file system shows nodes different contents: try again later."
            )
    return first


def open_output(sim: GrayScott, options: argparse.Namespace, append: bool) -> cusz_operator.Writer:
    """The Writer of the output (collective), with the parameters that a restart must share as its attributes."""
    try:
        out = cusz_operator.Writer(
            options.output,
            sim.grid.cart,
            eb=options.eb if options.budget_bytes is None else None,
            budget_bytes=options.budget_bytes,
            mode=options.mode,
            engine=options.engine,
            append=append,
            progress=False,
        )
    except CuszError as error:  # the same on all ranks
        raise AppError(str(error)) from error
    for key, value in physics_attributes(sim.physics, options.seed).items():
        out.attribute(key, value)
    return out


def run(comm: MPI.Intracomm) -> None:
    """The whole program (collective); raises the same AppError on every rank."""
    with agreed(comm, "options"):
        options = make_parser().parse_args()
    with agreed(comm, "paths"):
        if comm.rank == 0:
            check_paths(options)
    with agreed(comm, "set-up"):
        choose_ranks(options.size, comm.size)
        xp = array_module(options.array)
    cusz_operator.bind_device(comm)
    append = wants_to_append(comm, options)
    if append:
        options.restart = options.output
    grid = make_grid(comm, options.size)
    dtype = np.dtype({"f32": np.float32, "f64": np.float64}[options.dtype])
    with agreed(comm, f"a grid of {'x'.join(map(str, grid.size))}"):
        sim = GrayScott(grid, Physics(feed=options.feed, kill=options.kill), dtype, xp)
        if options.restart is None:
            sim.set_state(*initial_state(grid.size, grid.start, grid.count, options.seed, dtype))
    first = 0 if options.restart is None else restart(comm, sim, options, append)
    if first >= options.steps:
        if comm.rank == 0:
            print(f"{options.output} is at step {first} already: nothing to do", flush=True)
        return

    writing, writing_raw = Clock(), Clock()
    out = open_output(sim, options, append)
    reference = RawFile(options.reference, sim) if options.reference is not None else None
    progress = Progress(comm.rank, options.progress, options.steps)
    began = time.perf_counter()
    written = 0
    for step in range(first + 1, options.steps + 1):
        sim.step()
        progress.tick(step)
        if step % options.interval == 0 or step == options.steps:
            with writing:
                write_step(out, sim, step)
            if reference is not None:
                with writing_raw:
                    reference.write()
            written += 1
            progress.line(f"step {step} of {options.steps} written to {options.output}")
    with writing:
        out.close()
    if reference is not None:
        with writing_raw:
            reference.engine.close()

    seconds = comm.allreduce(time.perf_counter() - began, MPI.MAX)
    write_seconds, raw_write_seconds = (comm.allreduce(clock.seconds, MPI.MAX) for clock in (writing, writing_raw))
    variables = [dataclasses.asdict(variable) for variable in out.summary() if variable.name in VARIABLES]
    summary = {
        "size": grid.size,
        "dtype": dtype.name,
        "ranks": comm.size,
        "rank_grid": grid.ranks,
        "first_step": first,
        "last_step": options.steps,
        "outputs": written,
        "eb": options.eb if options.budget_bytes is None else None,
        "budget_bytes": options.budget_bytes,
        "mode": options.mode,
        "variables": variables,
        "seconds": seconds,
        "write_seconds": write_seconds,
        "reference_write_seconds": raw_write_seconds if reference is not None else None,
    }
    if comm.rank == 0 and options.summary is not None:
        options.summary.write_text(json.dumps(summary, indent=2) + "\n")
    raw = sum(variable["raw_bytes"] for variable in variables)
    cells = math.prod(grid.size) * (options.steps - first)
    simulating = max(seconds - write_seconds - raw_write_seconds, 1e-9)
    size, cut = ("x".join(map(str, numbers)) for numbers in (grid.size, grid.ranks))
    progress.line(
        f"{options.steps - first} steps of {size} {dtype.name}, ranks {cut}: {simulating:.2f} s, "
        f"{cells / simulating / 1e6:.0f} million cells/s; outputs {written}, {raw / 1e6:.1f} MB raw: "
        f"{write_seconds:.2f} s"
    )


def main() -> int:
    """Exit status: 0, or 1 after a message."""
    comm = MPI.COMM_WORLD
    try:
        run(comm)
    except AppError as error:
        if comm.rank == 0:
            print(f"gray_scott: {error}", file=sys.stderr, flush=True)
        return 1
    except SystemExit as leaving:  # --help
        return int(leaving.code or 0)
    except BaseException as error:  # one rank failed while the others compute or write: end them all
        traceback.print_exc()
        print(f"gray_scott: rank {comm.rank} of {comm.size} failed: {plain(error)}", file=sys.stderr, flush=True)
        comm.Abort(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
