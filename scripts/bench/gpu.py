#!/usr/bin/env python3
"""Measures the CUDA engine on this machine's GPU: every kernel, whole calls, calls on host memory, latency.

    scripts/bench/gpu.py                         # everything, into scripts/bench/results/<gpu>_<date>.json
    scripts/bench/gpu.py turbulence@64 --eb 1e-3 # one field, 64^3
    scripts/bench/gpu.py --limit 500             # stops after 500 s; the same command continues
    scripts/bench/gpu.py --resources             # the compiler's figures for the kernels; needs nvcc, but no GPU
    scripts/bench/gpu.py --docs                  # rewrites sections of docs/benchmarks from existing results

Fields are generated ones, NAME@N with a size (turbulence@512 is 512^3), or .npy files. Needs CuPy. The kernels are
timed by gpu_stages.so, which CMake builds with CUSZ_BUILD_BENCH=ON (scripts/gpu build); without it, only whole calls.
Exit status: 1: failure, 3: time is up.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import datetime
import itertools
import math
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gpu_report
import gpu_resources
import numpy as np
import runner
from comparison import fields
from comparison.measure import SHORT, Quality
from comparison.tools import Mode
from runner import ROOT, Document, Failure, Row, median_seconds, say

import cusz_core as cusz
from cusz_core.embedding import compare

STAGES = ROOT / "build/gpu/scripts/bench/gpu_stages.so"

#: Measured without FIELD: sizes that fill a GPU, usual sizes, and the size of a rank's block.
DEFAULT_FIELDS = (
    *("turbulence@512", "density@512", "turbulence@256", "density@256", "turbulence@128", "turbulence@64"),
    *("flux@7200", "flux@1800", "clouds@1800", "particles_x@256", "particles_vx@256", "orbitals@64"),
)
#: Bytes overwritten before every round of the stages: more than any cache, and slow enough for the host to get ahead.
FLUSH_BYTES = 1 << 30
MAX_STAGES = 16  # gpu_stages.cpp
#: That generate fields at a time: the largest take 5 GB of memory.
MOST_PROCESSES = 8
#: Bytes of the largest field of which the spline codec's archive is compared with the CPU's.
MOST_COMPARED = 1 << 27
#: Of the blocks that are compressed in one call: how many, and their edge.
MAX_BLOCKS, BLOCK_EDGE = 1000, 32


# ----------------------------------------------------------------------------------------------------------- fields


def load(name: str, cache: Path | None) -> fields.Field:
    """A generated field NAME@N, which is kept in `cache`, or a .npy file."""
    if name.endswith(".npy"):
        return next(iter(fields.load([name])))
    kind, _, size = name.partition("@")
    if kind not in fields.GENERATED or not size.isdigit():
        raise Failure(f"{name} is neither a .npy file nor a generated field (turbulence@256, for example)")
    kept = cache / f"{name}.npy" if cache else None
    if kept and kept.exists():
        return fields.Field(name, np.load(kept))
    n = int(size)
    make: Callable[..., fields.Array] = fields.GENERATED[kind]
    x = make(n, 2 * n) if kind in ("flux", "clouds") else make(n)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = kept.with_suffix(".part")
        with part.open("wb") as file:  # np.save would add a suffix
            np.save(file, x)
        part.replace(kept)
    return fields.Field(name, x)


def generate(names: Sequence[str], cache: Path) -> None:
    """Makes generated fields that are not in `cache` yet, each in a process of its own: the GPU is idle meanwhile."""
    missing = [name for name in names if not (name.endswith(".npy") or (cache / f"{name}.npy").exists())]
    if not missing:
        return
    say(f"generating {', '.join(missing)}")
    processes = min(len(missing), os.cpu_count() or 1, MOST_PROCESSES)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for made in [pool.submit(_keep, name, cache) for name in missing]:
            made.result()


def _keep(name: str, cache: Path) -> None:
    load(name, cache)


def chosen(names: Sequence[str]) -> list[str]:
    if names:
        return list(names)
    folder = os.environ.get("CUSZ_TEST_DATA")
    return [*DEFAULT_FIELDS, *(map(str, sorted(Path(folder).glob("*.npy"))) if folder else [])]


# ------------------------------------------------------------------------------------------------------------ times


class StageTimes(ctypes.Structure):
    """cusz_stage_times of gpu_stages.cpp."""

    _fields_ = (
        ("n_stages", ctypes.c_int32),
        ("name", ctypes.c_char * 32 * MAX_STAGES),
        ("time", ctypes.c_double * MAX_STAGES),
        ("nothing", ctypes.c_double),
        ("archive_bytes", ctypes.c_uint64),
    )


class Stages:
    """gpu_stages.so."""

    def __init__(self, path: Path) -> None:
        self.function = ctypes.CDLL(str(path)).cusz_time_stages
        self.function.argtypes = [
            *(ctypes.c_int, ctypes.c_double, ctypes.c_int32, ctypes.c_int32, ctypes.c_double),
            *(ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64)),
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint64),
            *(ctypes.POINTER(StageTimes), ctypes.c_char_p, ctypes.c_uint64),
        ]

    def measure(self, task: Task, archive: Any, decoded: Any, repeat: int, flush: int) -> tuple[dict[str, float], int]:
        """Microseconds of every stage, and the bytes of the archive that they wrote (0: it would be raw)."""
        x = task.x
        times, message = StageTimes(), ctypes.create_string_buffer(1024)
        failed = self.function(
            *(int(task.mode == "rel"), task.eb, task.bins, int(task.fill is not None), task.fill or 0.0),
            *(1 if x.dtype == np.float32 else 2, x.ndim, (ctypes.c_uint64 * x.ndim)(*x.shape)),
            *(x.data.ptr, archive.data.ptr, decoded.data.ptr, repeat, flush, times, message, len(message)),
        )
        if failed:
            raise Failure(f"gpu_stages.so: {message.value.decode()}")
        found = {times.name[i].value.decode(): times.time[i] for i in range(times.n_stages)}
        return {**found, "nothing": times.nothing}, int(times.archive_bytes)


@dataclasses.dataclass(frozen=True)
class Task:
    """A field on the device, and a bound."""

    x: Any
    mode: Mode
    eb: float
    fill: float | None
    bins: int = 64


@dataclasses.dataclass(frozen=True)
class Timing:
    """Medians, in microseconds: between two events around the calls, and by the host's clock."""

    events: float
    wall: float


def timed(cupy: Any, call: Callable[[], object], repeat: int) -> Timing:
    """Times of whole calls, one after another, after two uncounted ones."""
    for _ in range(2):
        call()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    events, walls = [], []
    for _ in range(repeat):
        started = time.perf_counter()
        begin.record()
        call()
        end.record()
        end.synchronize()
        walls.append(1e6 * (time.perf_counter() - started))
        events.append(1e3 * cupy.cuda.get_elapsed_time(begin, end))
    return Timing(statistics.median(events), statistics.median(walls))


def copy_bandwidth(cupy: Any, x: Any, repeat: int) -> float:
    """GB/s, counting reads and writes, of a device-to-device copy of this array."""
    target = cupy.empty_like(x)
    timing = timed(cupy, lambda: cupy.copyto(target, x), repeat)
    return 2 * float(x.nbytes) / timing.events / 1e3


# ---------------------------------------------------------------------------------------------------------- quality


def quality(cupy: Any, x: Any, y: Any, eb_abs: float, fill: float | None) -> Quality:
    """Compares the decompressed field on the device. Values whose error reaches the bound are checked again, exactly,
    on the host; NaN, infinities and fill values must have the same bits."""
    bits = np.uint32 if x.dtype == np.float32 else np.uint64
    largest, squares, count, broken = 0.0, 0.0, 0, 0
    low, high = math.inf, -math.inf
    a, b = x.reshape(-1), y.reshape(-1)
    part = 1 << 27
    for start in range(0, a.size, part):
        p, q = a[start : start + part], b[start : start + part]
        counted = cupy.isfinite(p)
        if fill is not None:
            with np.errstate(over="ignore"):
                counted &= p.view(bits) != np.asarray([fill]).astype(x.dtype).view(bits)[0]
        differs = p.view(bits) != q.view(bits)
        broken += int((differs & ~counted).sum())
        if not bool(counted.any()):
            continue
        error = cupy.where(counted, cupy.abs(p.astype(np.float64) - q.astype(np.float64)), 0.0)
        error = cupy.where(error < np.inf, error, np.inf)  # where a number came back as NaN
        largest = max(largest, float(error.max()))
        squares += float((error * error).sum())
        count += int(counted.sum())
        low = min(low, float(cupy.where(counted, p, np.inf).min()))
        high = max(high, float(cupy.where(counted, p, -np.inf).max()))
        far = differs & counted & (error > 1.000001 * eb_abs)
        broken += int(far.sum())
        close = differs & counted & ~far & (error >= 0.999999 * eb_abs)
        if bool(close.any()):
            broken += compare(p[close].get(), q[close].get(), eb_abs, fill)[0].count
    if squares == 0 or count == 0:
        return Quality(broken, 0.0, math.inf)
    psnr = -math.inf
    if high > low and math.isfinite(squares):
        psnr = 20 * math.log10((high - low) / math.sqrt(squares / count))
    return Quality(broken, largest / eb_abs if eb_abs else math.inf, psnr)


# ------------------------------------------------------------------------------------------------------------- rows


class Machine:
    """What is measured, and with what."""

    def __init__(self, cupy: Any, stages: Stages | None, repeat: int, flush: int = FLUSH_BYTES) -> None:
        self.cupy, self.stages, self.repeat, self.flush = cupy, stages, repeat, flush

    def row(self, name: str, host: fields.Array, task: Task) -> Row:
        """All results for one field under one bound."""
        cupy, x, repeat = self.cupy, task.x, self.repeat
        archive = cupy.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8)
        y = cupy.empty(x.shape, x.dtype)
        parameters: dict[str, Any] = {"fill": task.fill, "bins": task.bins, "predictor": "lorenzo"}
        written = cusz.compress(x, task.eb, task.mode, out=archive, **parameters)
        info = cusz.inspect(written)
        cusz.decompress(written, out=y)
        found = quality(cupy, x, y, info.eb_abs, task.fill)

        copy_gbps = copy_bandwidth(cupy, x, repeat)
        compress = timed(cupy, lambda: cusz.compress(x, task.eb, task.mode, out=archive, **parameters), repeat)
        decompress = timed(cupy, lambda: cusz.decompress(written, out=y), repeat)
        on_host = written.get().tobytes()
        buffer, back = bytearray(archive.size), np.empty_like(host)
        few = max(3, repeat // 4)
        from_host = median_seconds(
            lambda: cusz.compress(host, task.eb, task.mode, backend="cuda", out=buffer, **parameters), few, SHORT
        )
        to_host = median_seconds(lambda: cusz.decompress(on_host, backend="cuda", out=back), few, SHORT)

        stages: dict[str, float] | None = None
        notes = ["stored raw"] if info.kind == "raw" else []
        if bytes(buffer[: len(on_host)]) != on_host:
            notes.append("WRONG: host memory gives another archive")
        if not np.array_equal(back.view(np.uint8), y.get().view(np.uint8)):
            notes.append("WRONG: host memory gives another field")
        if self.stages is not None:
            stages, wrong = self._stages(task, on_host, y)
            notes += wrong
        by_spline = self._spline(task, host, archive, y, notes)
        raw, packed = x.nbytes, len(on_host)
        moved = {"compress": raw * (2 if task.mode == "rel" else 1) + packed, "decompress": packed + raw}
        return {
            "tool": gpu_report.OURS,
            "version": cusz.__version__,
            "dataset": name,
            "shape": list(x.shape),
            "dtype": x.dtype.name,
            "mode": task.mode,
            "eb": task.eb,
            "ratio": raw / packed,
            **dataclasses.asdict(found),
            "compress_gbps": raw / compress.events / 1e3,
            "decompress_gbps": raw / decompress.events / 1e3,
            "end_to_end_gbps": raw / from_host / 1e9,
            "decompress_end_to_end_gbps": raw / to_host / 1e9,
            "compress_us": compress.events,
            "decompress_us": decompress.events,
            "compress_wall_us": compress.wall,
            "decompress_wall_us": decompress.wall,
            "copy_gbps": copy_gbps,
            "compress_roofline": moved["compress"] / compress.events / 1e3 / copy_gbps,
            "decompress_roofline": moved["decompress"] / decompress.events / 1e3 / copy_gbps,
            "repeat": repeat,
            **(self._many(host, task, notes) if x.ndim == 3 else {}),
            **by_spline,
            "note": "; ".join(notes),
            "stages": stages,
        }

    def _spline(self, task: Task, host: fields.Array, archive: Any, y: Any, notes: list[str]) -> Row:
        """Whole calls of the spline codec, which "auto" takes for most fields."""
        parameters: dict[str, Any] = {"fill": task.fill, "predictor": "spline"}

        def compress(**how: Any) -> Any:
            return cusz.compress(task.x, task.eb, task.mode, **how, **parameters)

        written = compress(out=archive)
        few = max(3, self.repeat // 4)
        spent = timed(self.cupy, lambda: compress(out=archive), few)
        decoding = timed(self.cupy, lambda: cusz.decompress(written, out=y), few)
        found = quality(self.cupy, task.x, y, cusz.inspect(written).eb_abs, task.fill)
        if found.violations:
            notes.append(f"WRONG: the spline codec leaves {found.violations} values beyond the bound")
        if host.nbytes <= MOST_COMPARED and written.get().tobytes() != cusz.compress(
            host, task.eb, task.mode, backend="cpu", **parameters
        ):
            notes.append("WRONG: the CPU's spline codec writes another archive")
        return {
            "spline_ratio": task.x.nbytes / written.size,
            "spline_psnr": found.psnr,
            "spline_compress_us": spent.events,
            "spline_decompress_us": decoding.events,
        }

    def _many(self, host: fields.Array, task: Task, notes: list[str]) -> Row:
        """Blocks of the field, to host memory in one call."""
        edge = min(BLOCK_EDGE, min(host.shape) // 2)
        corners = itertools.product(*(range(0, n - edge + 1, edge) for n in host.shape))
        boxes = (tuple(slice(at, at + edge) for at in corner) for corner in itertools.islice(corners, MAX_BLOCKS))
        on_host = [np.ascontiguousarray(host[box]) for box in boxes]
        blocks = [self.cupy.asarray(block) for block in on_host]
        parameters: dict[str, Any] = {"fill": task.fill, "bins": task.bins, "predictor": "lorenzo", "backend": "cuda"}
        out = np.empty(sum(cusz.max_archive_bytes(b.shape, b.dtype) for b in blocks), np.uint8)

        def compress() -> list[memoryview]:
            return cusz.compress_many(blocks, task.eb, task.mode, out=out, **parameters)

        took = timed(self.cupy, compress, self.repeat)
        if compress() != cusz.compress_many(on_host, task.eb, task.mode, **{**parameters, "backend": "cpu"}):
            notes.append("WRONG: blocks in one call give other archives")
        return {"blocks": [len(blocks), edge], "blocks_us": took.wall}

    def _stages(self, task: Task, archive: bytes, y: Any) -> tuple[dict[str, float], list[str]]:
        """Times of the kernels; they must write the same as the library."""
        assert self.stages is not None
        own = self.cupy.zeros(cusz.max_archive_bytes(task.x.shape, task.x.dtype), np.uint8)
        decoded = self.cupy.zeros(task.x.shape, task.x.dtype)
        times, size = self.stages.measure(task, own, decoded, self.repeat, self.flush)
        raw = cusz.inspect(archive).kind == "raw"
        wrong = []
        if (size == 0) != raw or (not raw and own[:size].get().tobytes() != archive):
            wrong.append("WRONG: the kernels that were timed wrote another archive")
        elif not raw and not np.array_equal(decoded.get().view(np.uint8), y.get().view(np.uint8)):
            wrong.append("WRONG: the kernels that were timed wrote another field")
        return times, wrong


def key(row: Row) -> tuple[Any, ...]:
    return row["dataset"], row["dtype"], row["mode"], row["eb"]


def label_of(name: str) -> str:
    return Path(name).stem if name.endswith(".npy") else name


def measure(machine: Machine, options: argparse.Namespace, document: dict[str, Any], path: Path) -> bool:
    """Adds the missing rows. Returns whether all are now there."""
    started = time.monotonic()
    have = {key(row) for row in document["rows"] if not gpu_report.is_beside(row)}
    dtypes: dict[str, np.dtype] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}

    def wanted_of(name: str) -> list[tuple[np.dtype, float]]:
        own = [np.load(name, mmap_mode="r").dtype] if name.endswith(".npy") else [dtypes[d] for d in options.dtype]
        return [(d, eb) for d in own for eb in options.eb if (label_of(name), d.name, options.mode, eb) not in have]

    names = [name for name in chosen(options.fields) if wanted_of(name)]
    if options.cache and options.limit > 0:
        generate(names, options.cache)
    for name in names:
        label, wanted = label_of(name), wanted_of(name)
        if time.monotonic() - started > options.limit:
            return False
        field = load(name, options.cache)
        for dtype in dict.fromkeys(d for d, _ in wanted):
            host = np.ascontiguousarray(field.x, dtype)
            x = machine.cupy.asarray(host)
            for eb in (eb for d, eb in wanted if d == dtype):
                if time.monotonic() - started > options.limit:
                    return False
                say(f"{label} {dtype.name} {eb:g}")
                row = machine.row(label, host, Task(x, options.mode, eb, field.fill))
                document["rows"].append(runner.shortened(row))
                runner.write_json(document, path)
    return True


# ------------------------------------------------------------------------------------------------------------- head


def head(cupy: Any) -> dict[str, Any]:
    runtime = cupy.cuda.runtime
    name = runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
    return {
        "gpu": name.decode() if isinstance(name, bytes) else str(name),
        "driver": driver_version(),
        "cuda": "{}.{}".format(*divmod(runtime.runtimeGetVersion() // 10, 100)),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "cpu": cusz.devices()[0].device,
        "python": sys.version.split()[0],
        "cupy": cupy.__version__,
        "flush_bytes": FLUSH_BYTES,
    }


def driver_version() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "unknown"
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else "unknown"


def commit() -> str:
    """The commit of the sources; CUSZ_COMMIT gives it if they are a copy without history."""
    if given := os.environ.get("CUSZ_COMMIT"):
        return given
    git = ["git", "-C", str(ROOT)]
    try:
        done = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip() + ("+" if status.stdout.strip() else "")


def import_cupy() -> Any:
    """CuPy, where there is a device, or what is missing of them."""
    cuda = {backend.name: backend for backend in cusz.devices()}["cuda"]
    if not cuda.available:
        raise Failure(f"there is no GPU to measure: {cuda.device}")
    try:
        import cupy
    except ImportError as error:
        raise Failure(f"CuPy is needed, and cannot be imported: {error}") from None
    return cupy


def open_machine(options: argparse.Namespace) -> Machine:
    cupy = import_cupy()
    stages = None
    if options.stages.exists():
        stages = Stages(options.stages)
    else:
        say(f"no {options.stages}: kernels are not timed one by one (scripts/gpu build makes it)")
    free = int(cupy.cuda.runtime.memGetInfo()[0])
    return Machine(cupy, stages, options.repeat, min(options.flush, free // 4))


def default_path(document_head: dict[str, Any]) -> Path:
    name = re.sub(r"[^a-z0-9]+", "-", str(document_head["gpu"]).lower()).strip("-")
    return gpu_report.RESULTS / f"{name}_{document_head['date']}.json"


def open_document(first: dict[str, Any], path: Path) -> Document:
    """The results in `path`, to be continued, if they are for the same GPU and sources; else new ones."""
    if path.exists():
        earlier = gpu_report.read(path)
        if all(earlier.get(k) == first[k] for k in ("gpu", "driver", "cuda", "commit")):
            return earlier
    return {**first, "rows": []}


def run(options: argparse.Namespace) -> int:
    if options.resources:
        wanted = gpu_resources.architectures()
        say(f"compiling the kernels for {', '.join(map(str, wanted))}, some minutes of a core each")
        figures = gpu_resources.measure(wanted)
        gpu_resources.write(figures)
        print(runner.table(*gpu_report.resources_table(figures)))
        gpu_report.write_docs()
        spilling = gpu_resources.spilling(figures)
        if spilling:
            print(f"error: registers are spilled by {', '.join(spilling)}", file=sys.stderr)
        return 1 if spilling else 0
    if options.docs:
        gpu_report.write_docs()
        return 0
    machine = open_machine(options)
    first = head(machine.cupy)
    path = options.json or default_path(first)
    document = open_document(first, path)
    complete = measure(machine, options, document, path)
    print(gpu_report.full(document))
    return status_of([row for row in document["rows"] if not gpu_report.is_beside(row)], complete)


def status_of(ours: Sequence[Row], complete: bool) -> int:
    """The exit status of a measurement, after a line for every row of ours that is wrong."""
    wrong = [row for row in ours if row["violations"] != 0 or "WRONG" in row["note"]]
    for row in wrong:
        what = (
            f"{row['dataset']} {row['dtype']} {row['eb']:g}: {row['violations']} values beyond the bound; {row['note']}"
        )
        print(f"error: ours, {what}", file=sys.stderr)
    if not complete:
        say("time is up: run the same command again to measure the rest")
    return 1 if wrong else 0 if complete else 3


def common_parser(doc: str | None, repeat: int) -> argparse.ArgumentParser:
    """The options of gpu.py and gpu_peers.py."""
    options = runner.parser(doc, repeat=repeat)
    add = options.add_argument
    add("fields", nargs="*", metavar="FIELD", help="generated fields or .npy files")
    add("--limit", type=float, default=math.inf, metavar="SECONDS", help="start no row after this time")
    add("--cache", type=Path, metavar="FOLDER", help="where generated fields are kept")
    return options


def parser() -> argparse.ArgumentParser:
    options = common_parser(__doc__, 20)
    add = options.add_argument
    add("--eb", type=float, nargs="+", default=[1e-2, 1e-3, 1e-4])
    add("--mode", choices=("abs", "rel"), default="rel")
    add("--dtype", choices=("f32", "f64"), nargs="+", default=["f32", "f64"])
    add("--stages", type=Path, default=STAGES, metavar="FILE", help="gpu_stages.so")
    add("--flush", type=int, default=FLUSH_BYTES, metavar="BYTES", help=argparse.SUPPRESS)
    add("--resources", action="store_true", help="registers, spills, shared memory of the kernels")
    add("--docs", action="store_true", help="rewrite the sections of docs/benchmarks/gpu.md and gpu-kernels.md")
    return options


def main(words: Sequence[str]) -> int:
    return runner.exit_code_of(lambda: run(parser().parse_intermixed_args(words)), (Failure, cusz.CuszError))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
