#!/usr/bin/env python3
"""Searches for values that break their bound: thousands of fields, many of them hard, every value checked exactly.

    scripts/bench/bound_campaign.py                         # this compressor, all cells
    scripts/bench/bound_campaign.py --every 40              # one cell in forty, for tests
    scripts/bench/bound_campaign.py --peers --docs          # with other compressors; rewrites reliability.md

A cell is a kind of field, a type, a shape, a bound and a mode. Every cell is compressed with both predictors, and with
each of them again: with a different number of threads and, on x86-64, with subnormals flushed to zero as in a host
built with -Ofast; and with the other instruction sets. The bytes and the decompressed fields must be the same. --peers
needs .venv-peers (made by scripts/bench/peers.py); the peers get absolute bounds, in a process that may crash.
The cells are the same everywhere: nothing is random.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import dataclasses
import hashlib
import itertools
import math
import multiprocessing
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import runner
from runner import PEERS

DOCS = runner.ROOT / "docs/reference/reliability.md"
Array = np.ndarray[Any, Any]
FILL = 1e20
SECONDS_OF_A_CELL = 20  # at most, for other compressors

# ------------------------------------------------------------------------------------------------------- fields


def hashes(n: int, seed: int) -> Array:
    """Well-mixed 64-bit integers, always the same."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, n + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(n: int, seed: int) -> Array:
    return (hashes(n, seed) >> np.uint64(11)).astype(np.float64) / 2**53


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The requirements for a field. eb: the bound, or an estimate of it."""

    n: int
    row: int
    dtype: np.dtype[Any]
    eb: float
    seed: int

    @property
    def i(self) -> Array:
        return np.arange(self.n, dtype=np.float64)

    @property
    def u(self) -> Array:
        return uniform(self.n, self.seed)

    @property
    def wave(self) -> Array:
        across = np.floor(self.i / self.row)
        return np.sin(self.i % self.row / 7) + np.cos(across / 5) * 0.5


def _neighbours(x: Array, steps: Array) -> Array:
    """Moves every value by some units in its last place."""
    bits = x.view(np.int32 if x.dtype.itemsize == 4 else np.int64)
    return np.where(np.isfinite(x) & (x != 0), (bits + steps.astype(bits.dtype)).view(x.dtype), x)


def ties(w: Wanted) -> Array:
    """Half-way points of the quantiser, odd multiples of eb: as exact as the type allows, and their neighbours."""
    k = np.floor(w.u * 2001) - 1000
    x = ((2 * k + 1) * w.eb).astype(w.dtype)
    return _neighbours(x, np.floor(uniform(w.n, w.seed + 1) * 5) - 2)


def bins(w: Wanted) -> Array:
    """Centres of the quantiser, multiples of 2 eb, and their neighbours."""
    k = np.floor(w.u * 200001) - 100000
    return _neighbours((2 * k * w.eb).astype(w.dtype), np.floor(uniform(w.n, w.seed + 1) * 5) - 2)


def near_bound(w: Wanted) -> Array:
    """Zeros, and values whose distance from 0 is the bound or one of its neighbours in the type."""
    x = np.where(w.u < 0.5, 0.0, np.where(w.u < 0.75, w.eb, -w.eb)).astype(w.dtype)
    return _neighbours(x, np.floor(uniform(w.n, w.seed + 1) * 3) - 1)


def decades(w: Wanted) -> Array:
    """Magnitudes over 60 decades (f32: 44), of both signs."""
    reach = 30 if w.dtype.itemsize == 8 else 22
    sign = np.where(uniform(w.n, w.seed + 1) < 0.5, -1.0, 1.0)
    return sign * 10.0 ** (reach * 2 * w.u - reach)


def extremes(w: Wanted) -> Array:
    """A checkerboard of the largest and the smallest number."""
    largest = float(np.finfo(w.dtype).max)
    return np.where((w.i + np.floor(w.i / w.row)) % 2 == 0, largest, -largest)


def missing(w: Wanted) -> Array:
    """NaN, infinities and fill values among waves: a coast, single missing values, whole tiles."""
    x = w.wave.copy()
    x[w.u < 0.02] = np.nan
    x[(w.u > 0.98) & (w.u < 0.985)] = np.inf
    x[w.u > 0.995] = -np.inf
    x[(w.i % w.row) < w.row * 0.3] = FILL
    return x


def any_bits(w: Wanted) -> Array:
    """Random bit patterns: all magnitudes, NaN of many payloads."""
    h = hashes(w.n, w.seed)
    return (h >> np.uint64(32)).astype(np.uint32).view(np.float32) if w.dtype.itemsize == 4 else h.view(np.float64)


KINDS: dict[str, Callable[[Wanted], Array]] = {
    "smooth": lambda w: w.wave,
    "noisy": lambda w: w.wave + 0.1 * w.u,
    "white": lambda w: w.u - 0.5,
    "ties": ties,
    "bins": bins,
    "near_bound": near_bound,
    # A small signal on a huge offset, which leaves it few digits.
    "offset": lambda w: w.wave * w.eb * 20 + (2.0**23 if w.dtype.itemsize == 4 else 2.0**52) * w.eb,
    "decades": decades,
    "extremes": extremes,
    "subnormal": lambda w: (np.floor(w.u * 4001) - 2000) * float(np.finfo(w.dtype).smallest_subnormal),
    "around_normal": lambda w: (w.u * 4 - 2) * float(np.finfo(w.dtype).tiny),  # the smallest normal number
    "missing": missing,
    "any_bits": any_bits,
    "constant": lambda w: np.full(w.n, -0.1),
    "ramp": lambda w: w.i * w.eb * 1.0000001,
    "steps": lambda w: np.floor(w.i / 97) % 3 * 1e9 * w.eb,  # plateaus with jumps beyond any alphabet
    "sparse": lambda w: np.where(w.u < 0.03, w.u * 1000, 0.0),
    "signed_zeros": lambda w: np.where(w.u < 0.5, -0.0, np.where(w.u < 0.9, 0.0, w.eb * 3)),
}
SHAPES = [(1,), (63,), (4097,), (65, 66), (1, 700), (9, 17, 33), (40, 3, 2), (2, 9, 10, 17)]
# Not representable in f32, powers of two, subnormal in one type or both, next to the maximum, far below any digit.
BOUNDS = [
    *("0.1", "1e-2", "1e-3", "1e-4", "1e-6", "1e-9", "0x1p-10", "0x1.fffffffffffffp-11", "0.3333333333333333"),
    *("1e-40", "1e-310", "5e-324", "1e-30", "1e30", "1e38", "3.5e38", "1.7e308", "1e5", "7.0", "0"),
]
MODES = ("abs", "rel")


@dataclasses.dataclass(frozen=True)
class Cell:
    kind: str
    dtype: str
    shape: tuple[int, ...]
    bound: str
    mode: str
    number: int

    @property
    def eb(self) -> float:
        return float.fromhex(self.bound) if self.bound.startswith("0x") else float(self.bound)

    def field(self) -> Array:
        dtype = np.dtype(self.dtype)
        wanted = Wanted(math.prod(self.shape), max(self.shape[-1], 2), dtype, min(self.eb, 1e300) or 1e-3, self.number)
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(KINDS[self.kind](wanted)).astype(dtype).reshape(self.shape)

    @property
    def fill(self) -> float | None:
        return FILL if self.kind == "missing" else None


def cells(every: int = 1) -> list[Cell]:
    combinations = itertools.product(KINDS, ("float32", "float64"), SHAPES, BOUNDS, MODES)
    # A step that shares no factor with the number of choices goes through all of them.
    return [Cell(*words, number) for number, words in enumerate(combinations) if number * 7919 % every == 0]


# -------------------------------------------------------------------------------------------------------- check


def range_of(x: Array, fill: float | None) -> tuple[float, float]:
    counted = np.isfinite(x)
    if fill is not None:
        counted &= x != x.dtype.type(fill)
    return (float(x[counted].min()), float(x[counted].max())) if counted.any() else (0.0, 0.0)


def absolute_bound(cell: Cell, x: Array) -> float:
    if cell.mode == "abs" or cell.eb == 0:
        return cell.eb
    low, high = range_of(x, cell.fill)
    width = high - low if math.isfinite(high - low) else (high / 2 - low / 2) * 2
    return min(cell.eb * width, float(np.finfo(np.float64).max)) if width else 0.0


def beyond(x: Array, y: Array, bound: float, fill: float | None) -> Array:
    """Which values break the bound, without rounding: a - b is s + e exactly (Knuth's two-sum), s its nearest double.

    Even where the bound allows anything, a value that is NaN, infinite or fill must come back bit for bit.
    """
    bits = np.uint32 if x.dtype.itemsize == 4 else np.uint64
    same = x.view(bits) == y.view(bits)
    exact = ~np.isfinite(x)
    if fill is not None:
        exact |= x == x.dtype.type(fill)
    with np.errstate(all="ignore"):
        a, b = x.astype(np.float64), y.astype(np.float64)
        s = a - b
        bb = s - a
        e = (a - (s - bb)) + (-b - bb)
        distance, rest = np.abs(s), np.where(s < 0, -e, e)
        within = (distance < bound) | ((distance == bound) & (rest <= 0))
    return ~same & (exact | ~np.isfinite(y) | ~within | (bound == 0))


@dataclasses.dataclass
class Outcome:
    """A tool's result on a cell."""

    status: str  # "checked", "refused", "crashed"
    violations: int = 0
    worst: float = 0.0  # the largest error over the bound, of finite values
    note: str = ""
    has_pyramid: bool = False  # ours


def judge(cell: Cell, x: Array, y: Array) -> Outcome:
    bound = absolute_bound(cell, x)
    x, y = x.reshape(-1), y.reshape(-1)
    wrong = beyond(x, y, bound, cell.fill)
    counted = np.isfinite(x) & np.isfinite(y) & (x != x.dtype.type(cell.fill) if cell.fill is not None else True)
    with np.errstate(all="ignore"):
        error = np.abs(x[counted].astype(np.float64) - y[counted].astype(np.float64))
        worst = float(error.max() / bound) if bound and error.size else 0.0
    return Outcome("checked", int(np.count_nonzero(wrong)), worst if math.isfinite(worst) else math.inf)


# --------------------------------------------------------------------------------------------------------- ours


@contextlib.contextmanager
def subnormals_flushed() -> Iterator[None]:
    """The floating-point mode of a host built with -Ofast (glibc on x86-64; no effect elsewhere)."""
    if platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc":
        yield
        return
    mxcsr_at, size = 28, 32  # in fenv_t
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    before = ctypes.create_string_buffer(size)
    libm.fegetenv(before)
    changed = bytearray(before.raw)
    changed[mxcsr_at:] = (int.from_bytes(before.raw[mxcsr_at:], "little") | 0x8040).to_bytes(4, "little")
    try:
        libm.fesetenv(bytes(changed))
        yield
    finally:
        libm.fesetenv(before)


#: The predictors, by their names in the table.
OURS = {"cusz": "lorenzo", "cusz spline": "spline"}
#: Values of CUSZ_SIMD; where the processor lacks one, the previous one is used.
INSTRUCTION_SETS = ("baseline", "avx2", "avx512")


def ours(cell: Cell, predictor: str, elsewhere: tuple[str, ...] = ()) -> Outcome:
    """`elsewhere`: digests of the cell's results with other instruction sets."""
    import cusz_core

    x, eb = cell.field(), cell.eb  # computed beforehand: this process's own arithmetic would flush, too
    options: dict[str, Any] = {"fill": cell.fill, "predictor": predictor}
    archive = cusz_core.compress(x, eb, cell.mode, threads=1, **options)  # type: ignore[call-overload]
    with subnormals_flushed():
        again = cusz_core.compress(x, eb, cell.mode, threads=3, **options)  # type: ignore[call-overload]
        y = cusz_core.decompress(archive, threads=2)
    if again != archive:
        return Outcome("checked", x.size, note="other bytes with other threads and subnormals flushed")
    if any(each != digest(archive, y) for each in elsewhere):
        return Outcome("checked", x.size, note="other bytes with another instruction set")
    if len(archive) > x.nbytes + 48:
        return Outcome("checked", x.size, note="larger than the field plus 48 bytes")
    has_pyramid = cusz_core.inspect(archive).version == 2
    return dataclasses.replace(judge(cell, x, y), has_pyramid=has_pyramid)


def digest(archive: bytes, y: Array) -> str:
    return hashlib.sha256(archive + y.tobytes()).hexdigest()


def print_digests(todo: list[Cell]) -> None:
    """Prints a line for each cell, with the digests of the predictors."""
    import cusz_core

    for cell in todo:
        x, words = cell.field(), []
        for predictor in OURS.values():
            archive = cusz_core.compress(  # type: ignore[call-overload]
                x, cell.eb, cell.mode, fill=cell.fill, threads=1, predictor=predictor
            )
            words.append(digest(archive, cusz_core.decompress(archive, threads=1)))
        print(*words)


def digests_elsewhere(every: int) -> Iterator[list[tuple[str, ...]]]:
    """For each cell and predictor, the digests of the other instruction sets, made in separate processes."""
    import cusz_core.embedding

    here = cusz_core.embedding.instruction_set()
    command = [sys.executable, __file__, "--digests", "--every", str(every)]
    with contextlib.ExitStack() as stack:
        outputs = []
        for name in INSTRUCTION_SETS:
            if name != here:
                environment = {**os.environ, "CUSZ_SIMD": name}
                other = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
                outputs.append(stack.enter_context(other).stdout or [])
        for lines in zip(*outputs, strict=True):
            yield list(zip(*(line.split() for line in lines), strict=True))


# -------------------------------------------------------------------------------------------------------- peers


def peer(name: str, cell: Cell) -> Outcome:
    from comparison.tools import TOOLS, Buffers, Task

    tool = next(tool for tool in TOOLS if tool.name == name)
    x = cell.field()
    bound = absolute_bound(cell, x)
    refusal = tool.refuses(x)
    if refusal is not None or bound == 0:  # 0 is lossless, which none of them has under this name
        return Outcome("refused", note=refusal or "a bound of 0")
    try:
        codec = tool.codec(Task(x, "abs", bound, bound, False, cell.fill), Buffers(x))
        y = np.array(codec.decompress(bytes(codec.compress())))
    except Exception as error:  # whatever a library raises
        return Outcome("refused", note=f"{type(error).__name__}: {error}"[:100])
    return judge(cell, x, y) if y.shape == x.shape and y.dtype == x.dtype else Outcome("checked", x.size, note="shape")


def _serve(name: str, todo: list[Cell], answers: Connection) -> None:
    silence = os.open(os.devnull, os.O_WRONLY)  # libraries print remarks about their input
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    for cell in todo:
        answers.send(peer(name, cell))


def outcomes_of_peer(name: str, todo: list[Cell]) -> Iterator[Outcome]:
    """Runs in separate processes: if one crashes or hangs, its cell is lost, and the next one continues after it."""
    done = 0
    while done < len(todo):
        receive, send = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=_serve, args=(name, todo[done:], send))
        process.start()
        send.close()
        try:
            while done < len(todo):
                if not receive.poll(SECONDS_OF_A_CELL):
                    process.kill()
                    raise EOFError
                yield receive.recv()
                done += 1
        except EOFError:
            process.join()
            yield Outcome("crashed", note=f"ended with {process.exitcode}")
            done += 1
        process.join()


# ------------------------------------------------------------------------------------------------------- report


@dataclasses.dataclass
class Total:
    tool: str
    status: Counter[str] = dataclasses.field(default_factory=Counter)
    broken: Counter[str] = dataclasses.field(default_factory=Counter)  # cells, by kind
    values: int = 0
    worst: float = 0.0
    pyramids: int = 0
    examples: list[str] = dataclasses.field(default_factory=list)

    def add(self, cell: Cell, outcome: Outcome) -> None:
        self.status[outcome.status] += 1
        self.pyramids += outcome.has_pyramid
        if outcome.violations:
            self.broken[cell.kind] += 1
            self.values += outcome.violations
            if len(self.examples) < 20:
                self.examples.append(f"{cell}: {outcome}")
        if outcome.status == "checked":
            self.worst = max(self.worst, outcome.worst)


def table(totals: list[Total], n: int) -> str:
    head = ["tool", "cells checked", "refused", "crashed or hung", "cells with values beyond the bound"]
    lines = []
    for total in totals:
        kinds = ", ".join(f"{kind} {count}" for kind, count in total.broken.most_common(4))
        more = len(total.broken) - 4
        kinds += f", {more} more kinds" if more > 0 else ""
        broken = f"{sum(total.broken.values())}{f' ({kinds})' if kinds else ''}"
        status = [total.status[name] for name in ("checked", "refused", "crashed")]
        lines.append([total.tool, *status, broken, total.values, f"{total.worst:.7g}"])
    about = (
        f"{n} cells: {len(KINDS)} kinds of field, f32 and f64, {len(SHAPES)} shapes of 1 to 4 dimensions, "
        f"{len(BOUNDS)} bounds, absolute and relative."
    )
    pyramids = (
        f"{total.pyramids} archives of {total.tool} hold a pyramid (format version 2); its others have version 1."
        for total in totals
        if total.pyramids
    )
    return "\n\n".join([about, runner.table([*head, "such values", "largest error / bound"], lines), *pyramids])


def main(arguments: list[str] | None = None) -> int:
    parser = runner.parser(__doc__, docs=DOCS)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="one cell in N")
    parser.add_argument("--peers", action="store_true", help="count the violations of the others as well")
    parser.add_argument("--digests", action="store_true", help="print digests of our archives and fields; no check")
    options = parser.parse_args(arguments)
    todo = cells(options.every)
    if options.digests:
        print_digests(todo)
        return 0
    if options.peers and Path(sys.prefix) != PEERS:
        if not (PEERS / "bin/python").exists():
            print("error: there is no .venv-peers\nremedy: Run scripts/bench/peers.py once.", file=sys.stderr)
            return 1
        os.execv(PEERS / "bin/python", [str(PEERS / "bin/python"), __file__, *(arguments or sys.argv[1:])])

    mine = {predictor: Total(name) for name, predictor in OURS.items()}
    for cell, elsewhere in zip(todo, digests_elsewhere(options.every), strict=True):
        for (predictor, total), digests in zip(mine.items(), elsewhere, strict=True):
            total.add(cell, ours(cell, predictor, digests))
    totals = [*mine.values()]
    if options.peers:
        from comparison import tools

        for tool in tools.TOOLS:
            if tool.name in tools.OURS or tool.missing() is not None:
                continue
            print(tool.name, file=sys.stderr)
            totals.append(Total(tool.name))
            for cell, outcome in zip(todo, outcomes_of_peer(tool.name, todo), strict=True):
                totals[-1].add(cell, outcome)
    document = {"rows": [vars(total) for total in totals]}
    runner.publish(document, table(totals, len(todo)), options, "campaign", DOCS)
    for total in mine.values():
        for example in total.examples:
            print(f"BROKEN {total.tool}: {example}", file=sys.stderr)
    return 1 if any(total.values or total.status["checked"] != len(todo) for total in mine.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
