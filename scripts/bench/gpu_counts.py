#!/usr/bin/env python3
"""Counts the work of two commits' CUDA kernels without a GPU: tests/ptx runs the PTX that nvcc makes from them.

    .venv/bin/python scripts/bench/gpu_counts.py                 # HEAD and the working tree
    .venv/bin/python scripts/bench/gpu_counts.py main~1 main     # two commits
    .venv/bin/python scripts/bench/gpu_counts.py --alone main    # one, compared with nothing
    .venv/bin/python scripts/bench/gpu_counts.py --lines 10      # and the lines where most instructions are executed
    .venv/bin/python scripts/bench/gpu_counts.py --keep build/gpu_counts --json build/counts.json

Prints Markdown tables. Exits with 1 if any count has risen by more than --limit percent, with 2 if nothing could be
counted. Needs nvcc and what scripts/setup installs; takes a few minutes for each commit, to compile.

A call's own table adds up all kernels that it launches. The emulated device has two multiprocessors, so a launch has
few blocks, with many tiles each.

Counts are of PTX, which ptxas turns into the processor's own instructions: most moves vanish, and divisions and 64-bit
operations become several. The same commit and compiler always give the same counts. A chain is the time that a warp
would take alone if its instructions, in any order within a basic block, started one per cycle and waited only for each
other's results and in barriers, with assumed latencies (tests/ptx/table.hpp). A sector is 32 bytes loaded from or
stored to memory: only loads that miss a block's cache of 64 KiB count, and stores to the same sector count once.

The times come from a model, not from measurements. The time of a kernel is the longest of
    issue     warp instructions, four per cycle and multiprocessor
    shared    passes over shared memory, one per cycle and multiprocessor
    memory    sectors, at the memory's full bandwidth
    latency   the chains of all warps, as many at a time as fit; for a kernel of one block, its longest chain
for a field of 2^27 values like the one counted, on a processor with the data sheet's figures; launches cost nothing.
The model shows which limit is near, and how a change affects it. gpu-predictions.md compares it with the published
speeds of other compressors.

A field of 64^3 has fewer tiles than a device has room for. Its time is modelled as the assumed cost of its launches
(LAUNCH_US) plus the longest chain of each for one tile. Many blocks that are compressed in one call take the time that
their values take, as part of 2^27, and the cost of the launches, which are as many as for one block.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import commits
import gpu_resources
import runner
from commits import change, run, unpack, version
from runner import ROOT, VENV, Failure, say, table

SIMT = ROOT / "tests/simt"
MODEL_VALUES = 2**27
#: Min and max cost of a launch by itself: assumed, not measured.
LAUNCH_US = (2, 4)
#: Published speeds over modelled ones for other compressors' kernels: min, mean, max (gpu-predictions.md).
PUBLISHED = (0.21, 0.39, 0.58)
ONE_TILE = "turbulence 8x16x32 f32 (one tile), rel 1e-3"
SMALL = "turbulence 64^3 f32, rel 1e-3"
MANY = "turbulence in 64 blocks of 32^3 f32, rel 1e-3"  # in one call, compressed only
BLOCK_VALUES, BLOCKS = 32**3, 1000  # whose time is modelled
SPLINE = ", spline"  # suffix of field names for which this codec is counted instead of Lorenzo
#: The counts that are compared, by the names of their columns.
COMPARED = ("threads", "warp instructions", "wavefronts", "sectors", "chain")


class Processor(NamedTuple):
    """A GPU, as in its data sheet."""

    architecture: int
    multiprocessors: int
    ghz: float  # boost clock
    gb_s: float  # of its memory


PROCESSORS = {
    "A100": Processor(80, 108, 1.41, 2039),
    "H100": Processor(90, 132, 1.98, 3350),
    "H200": Processor(90, 132, 1.98, 4800),
}


class Kernel(NamedTuple):
    """Totals of one kernel in one direction, over all its launches."""

    values: int  # of the field
    blocks: int  # of the largest launch
    block_threads: int
    threads: int  # instructions of threads
    warp_instructions: int
    wavefronts: int
    accesses: int  # of shared memory
    sectors: int
    chain_sum: int
    chain_longest: int
    warps: int
    classes: Mapping[str, int]
    warps_of_processor: Mapping[int, int]  # that fit on a multiprocessor, by architecture
    launches: int = 1
    longest_chains: int = 0  # the longest of each launch, added up
    lines: Mapping[str, int] = {}  # instructions of threads, by line of the source

    @property
    def compared(self) -> dict[str, float]:
        """Counts per value, by the names of COMPARED."""
        counts = (self.threads, self.warp_instructions, self.wavefronts, self.sectors, self.chain_sum)
        return {name: n / self.values for name, n in zip(COMPARED, counts, strict=True)}

    @property
    def active_lanes(self) -> float:
        return self.threads / self.warp_instructions


class Row(NamedTuple):
    field: str
    direction: str
    kernel: str


Counts = Mapping[Row, Kernel]


def main(words: Sequence[str] | None = None) -> int:
    options = parse(words)

    def work() -> Iterator[str]:
        names = [options.base] if options.alone else [options.base, options.head]
        *base, head = count_all(names, options.keep)
        tables = [kernels_table(head), calls_table(head), times_table(head), predictions_table(head)]
        tables += [small_table(head), many_table(head)]
        tables += [line_table(head, options.lines)] if options.lines else []
        tables += [change_table(base[0], head, *names)] if base else []
        print("\n\n".join(tables))
        if options.json:
            write(options.json, names[-1], head)
        for row, name in beyond(base[0], head, options.limit) if base else ():
            yield f"{name}, {', '.join(row)}"

    return commits.exit_code_of(work, options)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = commits.parser(__doc__)
    add = parser.add_argument
    add("--alone", action="store_true", help="count BASE only")
    add("--lines", type=int, default=0, metavar="N", help="show the N busiest lines of each kernel")
    add("--json", type=Path, metavar="FILE", help="keep the counts of HEAD here")
    return parser.parse_args(words)


# ------------------------------------------------------------------------------------------------- counting


def count_all(commits: Sequence[str], keep: Path | None) -> list[Counts]:
    with tempfile.TemporaryDirectory(prefix="cusz-counts-") as scratch:
        builds = (keep or Path(scratch)).resolve()
        folders = [build(commit, builds) for commit in commits]
        return [count(folder) for folder in folders]


def count(folder: Path) -> Counts:
    """The counts of a commit's build, in a separate process: the libraries of both commits have the same name."""
    say(f"counting {folder.name}")
    calls, how = runner.apart(count_here, folder, limit=3600)
    if how is not None:
        raise Failure(f"{folder.name} cannot be counted: {how}", "Run pytest tests/ptx.")
    registers = json.loads((folder / "registers.json").read_text())
    found: dict[Row, Kernel] = {}
    for call in calls:
        for name, of_kernel in by_kernel(call["launches"]).items():
            kernel = summed(of_kernel, call["values"], registers)
            row = Row(call["field"], call["direction"], name)
            found[row] = kernel._replace(lines=call["lines"][name])
    return found


def by_kernel(launches: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for launch in launches:
        found.setdefault(gpu_resources.short_name(launch["kernel"]), []).append(launch)
    return found


def summed(launches: Sequence[Mapping[str, Any]], values: int, registers: Sequence[dict[str, Any]]) -> Kernel:
    """The totals over all launches of one kernel. registers: a row for every kernel and architecture."""
    largest = max(launches, key=lambda launch: math.prod(map(int, launch["grid"])))
    threads, shared = int(largest["block"][0]), int(largest["shared_bytes"])
    fit = {}
    for row in registers:
        if row["kernel"] == largest["kernel"]:
            blocks = gpu_resources.resident_blocks(row, threads, shared - row["static_shared"])
            if blocks:  # 0: on this architecture, a block would get less memory
                fit[int(row["architecture"])] = blocks * threads // 32

    def total(name: str) -> int:
        return sum(int(launch[name]) for launch in launches)

    sectors = total("sectors_missed") + total("sectors_stored") - total("sectors_merged")
    classes = {name: sum(launch["threads"][name] for launch in launches) for name in largest["threads"]}
    return Kernel(
        values, math.prod(map(int, largest["grid"])), threads, sum(classes.values()), total("warp_instructions"),
        total("shared_wavefronts"), total("shared_accesses"), sectors,
        total("chain_sum"), max(int(launch["chain_longest"]) for launch in launches), total("warps"), classes, fit,
        len(launches), total("chain_longest"),
    )  # fmt: skip


def count_here(folder: Path) -> list[dict[str, Any]]:
    """The launches of both directions for every field."""
    sys.path[:0] = [str(SIMT), str(SIMT.parent / "ptx")]
    import numpy as np
    from ptx_library import PtxLibrary
    from simt_library import CPU, CUDA, DEVICE, REL, Context

    ptx = folder / "ptx/kernels.ptx"
    library, sources = PtxLibrary(folder / "ptx/lib/libcusz_core.so.0"), source_lines(ptx.read_text())
    calls: list[dict[str, Any]] = []

    def counted(field: str, direction: str, values: int) -> None:
        call = {"field": field, "direction": direction, "values": values}
        lines = {
            gpu_resources.short_name(kernel): by_source({line: n for line, (_, n) in of_kernel.items()}, sources)
            for kernel, of_kernel in library.lines().items()
        }
        calls.append({**call, "launches": library.counts(), "lines": lines})
        library.clear()

    with library.kernels_of(ptx), Context(library) as context:
        for name, (x, rel) in fields().items():
            if name == MANY:
                blocks = [np.ascontiguousarray(b) for b in blocks_of(x)]
                made = context.compress_many(blocks, rel, REL, field=DEVICE, backend=CUDA)
                if made != context.compress_many(blocks, rel, REL, backend=CPU):
                    raise Failure(f"the archives of {name} are not those of the CPU")
                counted(name, "compress", x.size)
                continue
            predictor = "spline" if name.endswith(SPLINE) else "lorenzo"
            wanted = context.compress(x, rel, REL, backend=CPU, predictor=predictor)
            if context.compress(x, rel, REL, field=DEVICE, archive=DEVICE, predictor=predictor) != wanted:
                raise Failure(f"the archive of {name} is not that of the CPU")
            counted(name, "compress", x.size)
            context.decompress(wanted, x.nbytes, field=DEVICE, archive=DEVICE)
            counted(name, "decompress", x.size)
    return calls


def blocks_of(x: Any) -> Iterator[Any]:
    """Cubes of BLOCK_VALUES values."""
    edge = round(BLOCK_VALUES ** (1 / 3))
    for z, y, x0 in itertools.product(*(range(0, n, edge) for n in x.shape)):
        yield x[z : z + edge, y : y + edge, x0 : x0 + edge]


def source_lines(text: str) -> list[str]:
    """For every line of PTX files, one after another, the line of the source that it comes from: writing.cuh:100."""
    found = []
    for part in re.split(r"^(?=\.version\b)", text, flags=re.MULTILINE):
        names = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"(?:.*/)?([^"/]+)"', part, re.MULTILINE))
        here = "?"
        for line in part.splitlines():
            if at := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", line):
                here = f"{names.get(at[1], '?')}:{at[2]}"
            found.append(here)
    return found


def by_source(counted: Mapping[int, int], sources: Sequence[str]) -> dict[str, int]:
    """Converts counts by line of a PTX file into counts by line of the source."""
    found: dict[str, int] = {}
    for line, n in counted.items():
        found[sources[line - 1]] = found.get(sources[line - 1], 0) + n
    return found


def fields() -> dict[str, tuple[Any, float]]:
    """Fields, and bounds as fractions of their ranges."""
    import numpy as np
    from comparison import fields as made

    turbulence, density = made.turbulence(128), made.density(128)
    holes = made.gaussian_random_field((512, 1024), -4, 106)
    flux = made.flux(512, 1024)
    all_fields: dict[str, tuple[Callable[[], Any], float]] = {
        "turbulence 128^3 f32, rel 1e-3": (lambda: turbulence, 1e-3),
        "turbulence 128^3 f64, rel 1e-3": (lambda: turbulence.astype(np.float64), 1e-3),
        "density 128^3 f32 (masked tiles), rel 1e-2": (lambda: density, 1e-2),
        "density 128^3 f32, rel 1e-3": (lambda: density, 1e-3),
        "flux 512x1024 f32, rel 1e-3": (lambda: flux, 1e-3),
        "flux 512x1024 f32, 20% NaN, rel 1e-3": (
            lambda: np.where(holes > np.quantile(holes, 0.8), np.float32("nan"), flux), 1e-3,
        ),
        "particles 2^18 f32, rel 1e-3": (lambda: made.particles_vx(64), 1e-3),
        SMALL: (lambda: turbulence[:64, :64, :64], 1e-3),
        MANY: (lambda: turbulence, 1e-3),
        ONE_TILE: (lambda: turbulence[:8, :16, :32], 1e-3),
        "turbulence 128^3 f32, rel 1e-3" + SPLINE: (lambda: turbulence, 1e-3),
        "density 128^3 f32, rel 1e-3" + SPLINE: (lambda: density, 1e-3),
    }  # fmt: skip
    return {name: (np.ascontiguousarray(make()), rel) for name, (make, rel) in all_fields.items()}


# ------------------------------------------------------------------------------------------------- building


def build(commit: str, builds: Path) -> Path:
    """The library of a commit over the emulator, its PTX, and its registers. The instrument is this checkout's."""
    builds.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=builds) as name:
        source = Path(name) / "source"
        unpack(commit, source)
        folder = builds / version(commit, source)
        folder.mkdir(exist_ok=True)
        kept = folder / "source"
        if not kept.exists():
            source.rename(kept)
            source.mkdir()  # so that the with block can remove it
    what, remedy = f"{commit} does not build over this checkout's tests/simt", "Compare commits that are near to it."
    cmake = str(VENV / "bin/cmake") if (VENV / "bin/cmake").exists() else "cmake"
    say(f"building {commit}")
    run([cmake, "-S", SIMT, "-B", folder, f"-DCUSZ_SIMT_CORE={kept / 'cusz_core'}"], what, remedy)
    run([cmake, "--build", folder, "--parallel", "2", "--target", "ptx_cusz_core", "ptx_kernels"], what, remedy)
    registers = folder / "registers.json"
    if not registers.exists():
        registers.write_text(json.dumps(registers_of(kept)))
    return folder


def registers_of(source: Path) -> list[dict[str, Any]]:
    """The output of ptxas for every kernel and the architectures of PROCESSORS."""
    nvcc, architectures = gpu_resources.find_nvcc(), sorted({p.architecture for p in PROCESSORS.values()})
    say(f"registers for {', '.join(f'sm_{n}' for n in architectures)}")
    with tempfile.TemporaryDirectory() as scratch:
        return gpu_resources.parse(gpu_resources.compiled(nvcc, source / "cusz_core", architectures, Path(scratch)))


# ------------------------------------------------------------------------------------------------- the model


def sample_rate(values: int) -> int:
    """The counting kernel counts one tile in this many (cusz_core/src/codec/lorenzo/sample.hpp)."""
    rate = 1
    while rate < 16 and values // 4096 // (2 * rate) >= 64:
        rate *= 2
    return rate


def limits(name: str, kernel: Kernel, processor: Processor) -> dict[str, float]:
    """Seconds that each limit alone would take, for MODEL_VALUES values."""
    cycle = 1e-9 / processor.ghz
    of_all = cycle / processor.multiprocessors
    scale = 1.0 if kernel.blocks == 1 else MODEL_VALUES / kernel.values
    if name.startswith("count_kernel") and not name.endswith(gpu_resources.MANY):
        scale *= sample_rate(kernel.values) / sample_rate(MODEL_VALUES)
    fit = kernel.warps_of_processor.get(processor.architecture, 0)
    if kernel.blocks == 1:  # one multiprocessor does all the work, however large the field is
        of_all, latency = cycle, kernel.chain_longest * cycle
    else:
        latency = kernel.chain_sum * scale * of_all / fit if fit else float("inf")
    return {
        "issue": kernel.warp_instructions * scale * of_all / 4,
        "shared": kernel.wavefronts * scale * of_all,
        "memory": kernel.sectors * scale * 32 / (processor.gb_s * 1e9),
        "latency": latency,
    }


def modelled(name: str, kernel: Kernel, processor: Processor) -> tuple[float, str]:
    """Modelled seconds, and the limit that determines them."""
    all_limits = limits(name, kernel, processor)
    which = max(all_limits, key=lambda limit: all_limits[limit])
    return all_limits[which], which


# ------------------------------------------------------------------------------------------------- what is shown


def beyond(base: Counts, head: Counts, limit: float) -> list[tuple[Row, str]]:
    """The counts that have risen by more than `limit` percent."""
    return [
        (row, name)
        for row in base
        if row in head
        for name in COMPARED
        if change(base[row].compared[name], head[row].compared[name]) > limit
    ]


ARCHITECTURES = sorted({processor.architecture for processor in PROCESSORS.values()})
#: Heads of the columns for the names of a row or call, and for the warps that fit.
OF_CALL = ("field", "direction")
WARPS = [f"warps an SM, sm_{n}" for n in ARCHITECTURES]


def warps_of(kernel: Kernel) -> list[str]:
    return [str(kernel.warps_of_processor.get(n, "–")) for n in ARCHITECTURES]


def large_calls(counts: Counts) -> Iterator[tuple[tuple[str, str], dict[str, Kernel]]]:
    """The calls on large fields, each with its kernels by name."""
    for call in dict.fromkeys(row[:2] for row in counts if row.field not in (SMALL, ONE_TILE)):
        yield call, {row.kernel: kernel for row, kernel in counts.items() if row[:2] == call}


def gigabytes(call: tuple[str, str]) -> float:
    return MODEL_VALUES * (8 if " f64" in call[0] else 4) / 1e9


def kernels_table(counts: Counts) -> str:
    head = [*OF_CALL, "kernel", "thread instructions a value", "active lanes", "passes of shared memory a value"]
    head += ["passes an access", "sectors a value", "cycles of warps a value (chains)", "longest chain", *WARPS]
    lines = []
    for row, k in counts.items():
        cells = [f"{k.threads / k.values:.2f}", f"{k.active_lanes:.1f}", f"{k.wavefronts / k.values:.3f}"]
        cells += [f"{k.wavefronts / k.accesses:.2f}" if k.accesses else "–", f"{k.sectors / k.values:.3f}"]
        lines.append([*row, *cells, f"{k.chain_sum / k.values:.2f}", str(k.chain_longest), *warps_of(k)])
    return table(head, lines, len(head) - len(OF_CALL) - 1)


def calls_table(counts: Counts) -> str:
    """Totals of each call over its kernels; the warps that fit are for the kernel with the most instructions."""
    head = [*OF_CALL, "launches", *(f"{name} a value" for name in ("thread instructions", *COMPARED[1:])), *WARPS]
    lines = []
    for call in dict.fromkeys(row[:2] for row in counts):
        kernels = kernels_of(counts, *call)
        busiest = max(kernels, key=lambda kernel: kernel.warp_instructions)
        cells = [str(sum(kernel.launches for kernel in kernels))]
        cells += [f"{sum(kernel.compared[name] for kernel in kernels):.3f}" for name in COMPARED]
        lines.append([*call, *cells, *warps_of(busiest)])
    return table(head, lines, len(head) - len(OF_CALL))


def kernels_of(counts: Counts, field: str, direction: str) -> list[Kernel]:
    """The kernels of a call."""
    return [kernel for row, kernel in counts.items() if row[:2] == (field, direction)]


def times_table(counts: Counts) -> str:
    lines = []
    for call, kernels in large_calls(counts):
        cells = []
        for processor in PROCESSORS.values():
            parts = {name: modelled(name, k, processor) for name, k in kernels.items()}
            seconds = sum(time for time, _ in parts.values())
            if not math.isfinite(seconds):
                cells.append("does not fit as it was counted")
                continue
            longest = sorted(parts.items(), key=lambda item: -item[1][0])[:3]
            told = [f"{name} {time * 1e6:.0f} us ({which})" for name, (time, which) in longest]
            cells.append(f"{gigabytes(call) / seconds:.0f} GB/s: {', '.join(told)}")
        lines.append([*call, *cells])
    return table([*OF_CALL, *(f"{name}, modelled" for name in PROCESSORS)], lines)


def predictions_table(counts: Counts) -> str:
    """Limits of whole calls in microseconds, and speeds in GB/s: modelled, by issue alone, and predicted."""
    lines = []
    for call, kernels in large_calls(counts):
        for name, processor in PROCESSORS.items():
            of_kernels = [limits(kernel, k, processor) for kernel, k in kernels.items()]
            totals = {limit: sum(each[limit] for each in of_kernels) for limit in of_kernels[0]}
            speed = gigabytes(call) / sum(max(each.values()) for each in of_kernels)
            cells = [f"{seconds * 1e6:.0f}" for seconds in totals.values()]
            low, mean, high = (share * speed for share in PUBLISHED)
            cells += [f"{speed:.0f}", f"{gigabytes(call) / totals['issue']:.0f}"]
            lines.append([*call, name, *cells, f"{low:.0f} to {high:.0f}, in the mean {mean:.0f}"])
    head = [*OF_CALL, "GPU", "issue", "shared", "memory", "latency", "modelled", "issue alone"]
    return table([*head, "predicted"], lines)


def small_table(counts: Counts) -> str:
    """A field of 64^3, whose tiles are all processed at once."""
    lines = []
    for direction in dict.fromkeys(row.direction for row in counts if row.field == SMALL):
        launches = sum(kernel.launches for kernel in kernels_of(counts, SMALL, direction))
        cycles = sum(kernel.longest_chains for kernel in kernels_of(counts, ONE_TILE, direction))
        cells = []
        for processor in PROCESSORS.values():
            low, high = (launches * cost + cycles * 1e-3 / processor.ghz for cost in LAUNCH_US)
            cells.append(f"{low:.0f} to {high:.0f} us")
        lines.append([direction, launches, cycles, *cells])
    return table(["64^3 f32", "launches", "cycles one after another", *PROCESSORS], lines)


def many_table(counts: Counts) -> str:
    """Many blocks in one call."""
    kernels = {row.kernel: kernel for row, kernel in counts.items() if row.field == MANY}
    launches, share = sum(kernel.launches for kernel in kernels.values()), BLOCKS * BLOCK_VALUES / MODEL_VALUES
    cells = []
    for processor in PROCESSORS.values():
        us = sum(modelled(name, kernel, processor)[0] for name, kernel in kernels.items()) * share * 1e6
        low, high = (f"{us + launches * cost:.0f}" for cost in LAUNCH_US)
        cells.append(f"{low} to {high} us")
    return table([f"{BLOCKS} blocks of 32^3 f32", "launches", *PROCESSORS], [["compress", launches, *cells]])


def line_table(counts: Counts, n: int) -> str:
    """The n busiest lines of each kernel, for kernels with at least one instruction per value."""
    lines = []
    for row, kernel in counts.items():
        if kernel.threads < kernel.values:
            continue
        for line, threads in sorted(kernel.lines.items(), key=lambda item: -item[1])[:n]:
            lines.append([*row, f"`{line}`", f"{threads / kernel.values:.2f}"])
    return table([*OF_CALL, "kernel", "line", "thread instructions a value"], lines, 1)


def change_table(base: Counts, head: Counts, base_name: str, head_name: str) -> str:
    lines = []
    for row in dict.fromkeys([*base, *head]):
        if row not in base or row not in head:
            cells = ["gone" if row in base else "new"] * len(COMPARED)
        else:
            was, now = base[row].compared, head[row].compared
            cells = [f"{change(was[name], now[name]):+.2f}%" for name in COMPARED]
        lines.append([*row, *cells])
    head_of = [f"{head_name} against {base_name}: {COMPARED[0]}", *COMPARED[1:]]
    return table([*OF_CALL, "kernel", *head_of], lines, len(COMPARED))


def write(path: Path, commit: str, counts: Counts) -> None:
    rows = [{**row._asdict(), **kernel._replace(lines={})._asdict()} for row, kernel in counts.items()]
    runner.write_json({"commit": commit, "rows": rows}, path)


if __name__ == "__main__":
    sys.exit(main())
