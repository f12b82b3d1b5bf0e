"""Measures tools on fields: all in turn, in one process, so that disturbances affect all of them alike."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import runner
from runner import Row

import cusz_core
from cusz_core import embedding

from . import pfpl, qoz
from .fields import Array, Field
from .tools import OURS, YARDSTICK, Buffers, Codec, Mode, Task, Tool

Say = Callable[[str], None]
T = TypeVar("T")

#: Seconds for which calls are repeated to be timed.
SHORT = 0.02

#: The columns of a row, in CSV order. Speeds are in 10^6 raw bytes a second, medians. If a tool failed, all RESULTS are
#: None and `error` says why. `ratio_at_psnr` is in our rows: the ratio at the PSNR of YARDSTICK in the same case;
#: None if that was not measured.
COLUMNS = (
    *("dataset", "shape", "dtype", "fill", "mode", "eb", "eb_abs", "tool", "version", "threads"),
    *("ratio", "bit_rate", "psnr", "max_error_over_eb", "violations"),
    *("compress_mbps", "decompress_mbps", "compress_spread", "decompress_spread"),
    *("peak_bytes", "decompress_peak_bytes", "ratio_at_psnr", "error"),
)
RESULTS = COLUMNS[COLUMNS.index("ratio") : COLUMNS.index("error")]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is measured on every field.

    Attributes:
        ebs, mode: the bounds.
        tools: those that are installed.
        threads: numbers of threads; a tool with a lower maximum is measured with that.
        repeat: number of timed calls; the median is kept.
    """

    ebs: Sequence[float]
    tools: Sequence[Tool]
    mode: Mode = "rel"
    threads: Sequence[int] = (1, 2)
    repeat: int = 5
    pfpl: Path | None = None
    qoz: Path | None = None


# ------------------------------------------------------------------------------------------------- what came back


@dataclasses.dataclass(frozen=True)
class Quality:
    """A decompressed field against its original.

    Attributes:
        violations: values that break the bound, in exact arithmetic, and NaN, infinities and fill values that did not
            come back bit for bit.
        max_error_over_eb: the largest error of the other values, over the bound for it.
        psnr: in dB, over the same values; -inf if one of them came back as NaN or infinity.
    """

    violations: int
    max_error_over_eb: float
    psnr: float


def quality(
    original: Array, decoded: Array, bound: float, fill: float | None = None, is_pointwise: bool = False
) -> Quality:
    if decoded.dtype != original.dtype or decoded.shape != original.shape:
        there, back = (f"{x.dtype.name} of shape {x.shape}" for x in (original, decoded))
        raise RuntimeError(f"{there} came back as {back}")
    limits = cusz_core.value_range(original, fill)
    violations, errors = embedding.compare(original.reshape(-1), decoded.reshape(-1), bound, fill, is_pointwise)
    finite = np.isfinite(original)
    if not np.isfinite(decoded[finite]).all():
        return Quality(violations.count, math.inf, -math.inf)
    share = errors.largest / bound if bound else math.inf * bool(errors.largest)
    return Quality(
        violations.count,
        errors.largest_share if is_pointwise else share,
        errors.psnr(limits.min, limits.max, limits.values),
    )


# --------------------------------------------------------------------------------------------------------- memory


def with_peak(call: Callable[[], T]) -> tuple[T, int | None]:
    """The result of a call, and the peak growth of resident memory; None if Linux does not report it."""
    cusz_core.release_scratch()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    before = _reset_peak()
    result = call()
    after = _peak()
    return result, None if before is None or after is None else max(after - before, 0)


def _reset_peak() -> int | None:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _peak()


def _peak() -> int | None:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


# ----------------------------------------------------------------------------------------------------------- runs


class _Run:
    """One tool with one number of threads on one field under one bound, and its row of results."""

    def __init__(self, tool: Tool, task: Task, row: Row) -> None:
        self.tool, self.task, self.row = tool, task, row
        self.codec: Codec | None = None
        self.archive = b""
        self.seconds: dict[str, list[float]] = {"compress": [], "decompress": []}

    def attempt(self, step: Callable[[], None]) -> None:
        """Calls a step of a tool; if it fails, its row says so, and the tool is not called again."""
        if self.row["error"] is None:
            try:
                step()
            except Exception as error:  # whatever a library raises
                self.row["error"] = f"{type(error).__name__}: {error}"[:200]

    def first(self) -> None:
        """The first call, into separate memory: measures ratio, quality and peak memory."""
        x = self.task.x

        def compress() -> tuple[Codec, Any]:
            codec = self.tool.codec(self.task, Buffers(x))
            return codec, codec.compress()

        def decompress() -> Array:
            return self.tool.codec(self.task, Buffers(x)).decompress(self.archive)

        (_, archive), self.row["peak_bytes"] = with_peak(compress)
        self.archive = bytes(archive)
        del archive
        decoded, self.row["decompress_peak_bytes"] = with_peak(decompress)
        is_pointwise, size = self.task.mode == "pw_rel", len(self.archive)
        bound = self.task.eb if is_pointwise else self.task.eb_abs
        found = quality(x, decoded, bound, self.task.fill, is_pointwise)
        self.row.update(dataclasses.asdict(found), ratio=x.nbytes / size, bit_rate=8 * size / x.size)

    def warm_up(self, buffers: Buffers) -> None:
        self.codec = self.tool.codec(self.task, buffers)
        self.codec.compress()
        self.codec.decompress(self.archive)

    def time_once(self) -> None:
        assert self.codec is not None
        codec, archive = self.codec, self.archive
        for what, call in (("compress", codec.compress), ("decompress", lambda: codec.decompress(archive))):
            time.sleep(0.01)  # the previous tool's OpenMP threads spin for some milliseconds
            self.seconds[what].append(runner.seconds(call, SHORT))

    def finish(self) -> Row:
        self.codec = None
        if self.row["error"] is not None:
            self.row.update(dict.fromkeys(RESULTS))
            return self.row
        for what, seconds in self.seconds.items():
            median = statistics.median(seconds)
            self.row[f"{what}_mbps"] = self.task.x.nbytes / median / 1e6
            self.row[f"{what}_spread"] = (max(seconds) - min(seconds)) / median
        return self.row

    def ratio_at(self, psnr: float) -> float:
        """The ratio of this tool, one of ours, if it is asked for a PSNR."""
        codec = self.tool.codec(dataclasses.replace(self.task, mode="psnr", eb=psnr), Buffers(self.task.x))
        return self.task.x.nbytes / len(codec.compress())


def measure(fields: Iterable[Field], plan: Plan, say: Say = lambda _: None) -> list[Row]:
    """Measures every tool on every field under every bound. `say` reports progress."""
    versions = {tool.name: tool.version() for tool in plan.tools}
    rows: list[Row] = []
    for field in fields:
        for eb in plan.ebs:
            rows += _measure_field(field, eb, plan, versions, say)
    return rows


def _measure_field(field: Field, eb: float, plan: Plan, versions: dict[str, str], say: Say) -> list[Row]:
    runs = [
        _Run(tool, task, _new_row(field.name, task, tool.name, versions[tool.name]))
        for tool in plan.tools
        for task in _tasks(field, eb, plan, tool.max_threads)
    ]
    for run in runs:
        say(f"{field.name} {eb:g}: {run.tool.name}")
        run.row["error"] = run.tool.refuses(field.x)
        if run.tool.may_crash and run.row["error"] is None:
            run.row["error"] = runner.apart(try_once, run.tool, run.task, plan.pfpl, plan.qoz, limit=900)[1]
        run.attempt(run.first)
    buffers = Buffers(field.x)
    for run in runs:
        run.attempt(lambda run=run: run.warm_up(buffers))  # type: ignore[misc]
    for n in range(plan.repeat):
        for run in runs:
            say(f"{field.name} {eb:g}: round {n + 1} of {plan.repeat}, {run.tool.name}")
            run.attempt(run.time_once)
    _compare_at_equal_psnr(runs, say)
    return [run.finish() for run in runs]


def _compare_at_equal_psnr(runs: Sequence[_Run], say: Say) -> None:
    """Enters `ratio_at_psnr` in our rows, where the yardstick has a result."""
    psnr = next((run.row["psnr"] for run in runs if run.tool.name == YARDSTICK and run.row["error"] is None), math.nan)
    if not math.isfinite(psnr):
        return
    for name in OURS:
        mine = [run for run in runs if run.tool.name == name and run.row["error"] is None]
        if mine:
            say(f"{mine[0].row['dataset']} {mine[0].task.eb:g}: {name} at the PSNR of {YARDSTICK}")
            ratio = mine[0].ratio_at(psnr)
            for run in mine:
                run.row["ratio_at_psnr"] = ratio


def _tasks(field: Field, eb: float, plan: Plan, max_threads: int) -> list[Task]:
    limits = cusz_core.value_range(field.x, field.fill)
    eb_abs = embedding.absolute_bound(eb, limits.min, limits.max) if plan.mode == "rel" else embedding.error_bound(eb)
    if plan.mode == "pw_rel":
        eb_abs = math.nan
    plain = limits.values == field.x.size
    return [
        Task(field.x, plan.mode, eb, eb_abs, plain, field.fill, threads)
        for threads in sorted({min(n, max_threads) for n in plan.threads})
    ]


def _new_row(name: str, task: Task, tool: str, version: str) -> Row:
    """A row without results."""
    x = task.x
    about = {"dataset": name, "shape": list(x.shape), "dtype": x.dtype.name, "fill": task.fill}
    bound = {"mode": task.mode, "eb": task.eb, "eb_abs": None if math.isnan(task.eb_abs) else task.eb_abs}
    return dict.fromkeys(COLUMNS) | about | bound | {"tool": tool, "version": version, "threads": task.threads}


def try_once(tool: Tool, task: Task, of_pfpl: Path | None, of_qoz: Path | None = None) -> None:
    """Compresses and decompresses with one tool, to see if it crashes. Ignores exceptions: they will occur again."""
    with contextlib.suppress(Exception):
        if of_pfpl:
            pfpl.use(of_pfpl)
        if of_qoz:
            qoz.use(of_qoz)
        codec = tool.codec(task, Buffers(task.x))
        codec.decompress(bytes(codec.compress()))


def described(tools: Sequence[Tool], plan: Plan) -> list[dict[str, Any]]:
    """All known tools, including those that are missing, for the head of a document."""
    measured = {tool.name for tool in plan.tools}
    return [
        {
            "name": tool.name,
            "version": tool.version() if tool.name in measured else None,
            "missing": tool.missing(),
            "bound": tool.bound,
            "timed": tool.timed,
        }
        for tool in tools
    ]
