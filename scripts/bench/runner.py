"""Shared by the studies: options, rounds and medians, machine names, tables, results as JSON, sections of docs/.

A study measures a document, a dictionary with the machine (`machine`) and rows, and reports it in Markdown. This module
imports cusz_core only where needed, because some studies run without it.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import datetime
import json
import math
import multiprocessing
import os
import platform
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Document = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
VENV, PEERS = ROOT / ".venv", ROOT / ".venv-peers"
PAGES = ROOT / "docs/benchmarks"
#: Members of rows that keep all of their digits.
EXACT = {"fill", "eb", "eb_abs", "max_error_over_eb"}


class Failure(Exception):
    """Something is missing or has failed; the second argument is the remedy, if it is not obvious."""


def exit_code_of(work: Callable[[], int], failures: tuple[type[Exception], ...] = (Failure,), *, code: int = 1) -> int:
    """Runs a command. Returns its exit code, or `code` after the message of a failure."""
    try:
        return work()
    except failures as error:
        what = error.args if isinstance(error, Failure) else (error,)
        print("error: " + "\nremedy: ".join(map(str, what)), file=sys.stderr)
        return code


def say(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------------------------------- options


def parser(
    doc: str | None,
    *,
    repeat: int = 0,
    of: str = "timed calls",
    docs: Path | None = None,
    has_json: bool = True,
    kind: type[argparse.ArgumentParser] = argparse.ArgumentParser,
) -> argparse.ArgumentParser:
    """The options that studies have in common.

    Args:
        doc: the study's docstring.
        repeat, of: the default of --repeat, and what it counts; 0: there is no such option.
        docs: the page with the section that --docs writes; None: there is no such option.
        has_json: whether there is --json.
    """
    made = kind(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    if repeat:
        text = f"number of {of}; the median is kept (default: {repeat})"
        made.add_argument("--repeat", type=int, default=repeat, metavar="N", help=text)
    if has_json:
        made.add_argument("--json", type=Path, metavar="FILE", help="write the rows to this file, too")
    if docs:
        text = f"rewrite the section of {docs.relative_to(ROOT)}"
        made.add_argument("--docs", action="store_true", help=text)
    return made


# ------------------------------------------------------------------------------------------------- rounds and medians


def seconds(call: Callable[[], object], shortest: float = 0.0) -> float:
    """Seconds for one call, or the mean over as many calls as fill `shortest`."""
    calls, spent, started = 0, 0.0, time.perf_counter()
    while calls == 0 or spent < shortest:
        result = call()
        spent = time.perf_counter() - started
        calls += 1
        del result  # the time excludes freeing the last result
    return spent / calls


def median_seconds(call: Callable[[], object], repeat: int, shortest: float = 0.0) -> float:
    """The median of `repeat` timings after one uncounted call."""
    call()
    return statistics.median(seconds(call, shortest) for _ in range(repeat))


def geometric_mean(values: Iterable[float]) -> float:
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def ratios(ours: Row | None, theirs: Row | None, names: Sequence[str]) -> tuple[float, ...] | None:
    """Our numbers over those of another tool; None where one of them is missing."""
    if ours is None or theirs is None or not all(row[name] for row in (ours, theirs) for name in names):
        return None
    return tuple(ours[name] / theirs[name] for name in names)


def mean_ratios(found: Iterable[tuple[float, ...] | None]) -> tuple[float, ...] | None:
    """Geometric means over the cases that have ratios."""
    return tuple(map(geometric_mean, zip(*filter(None, found), strict=True))) or None


class Clock:
    """Measures the seconds between laps."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def lap(self) -> float:
        passed = time.perf_counter() - self.last
        self.last += passed
        return passed


def stored_bytes(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def reuse_freed_memory() -> None:
    """Makes malloc keep freed memory in this process: a tool that allocates its results then pays for fresh pages
    once, not in every call. (glibc; no effect elsewhere.)"""
    M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def apart(function: Callable[..., Any], *arguments: Any, limit: float = 300.0) -> tuple[Any, str | None]:
    """The result of a call in a separate process, which may crash or hang; or None and how it failed."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(send, function, arguments), daemon=True)
    process.start()
    send.close()
    try:
        if receive.poll(limit):
            answer: tuple[Any, str | None] = receive.recv()
            return answer
        return None, f"did not end within {limit / 60:g} minutes"
    except EOFError:
        process.join()
        code = process.exitcode or 0
        return None, f"crashes (signal {-code})" if code < 0 else f"ends with status {code}"
    finally:
        process.kill()
        process.join()


def _answer(send: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    silence = os.open(os.devnull, os.O_WRONLY)  # libraries print remarks about their input
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    try:
        send.send((function(*arguments), None))
    except Exception as error:  # whatever a library raises
        send.send((None, f"{type(error).__name__}: {error}"[:200]))


# -------------------------------------------------------------------------------------------------------- the machine


def machine(repeat: int, **more: Any) -> dict[str, Any]:
    """The software and hardware of the measurements."""
    import numpy as np

    import cusz_core
    from cusz_core import embedding

    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": embedding.cpu_model(),
        "instruction_set": embedding.instruction_set(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cusz": cusz_core.__version__,
        "repeat": repeat,
        **more,
    }


def where(head: dict[str, Any]) -> str:
    """The date and the processor, in words."""
    return f"{head['date'][:10]}; {head['cpu']}, {head['cores']} cores"


# ------------------------------------------------------------------------------------------------------------- results


def shortened(row: Row) -> Row:
    """A row without meaningless digits."""
    short: Row = {}
    for name, value in row.items():
        if isinstance(value, dict):
            short[name] = shortened(value)
        else:
            short[name] = float(f"{value:.6g}") if isinstance(value, float) and name not in EXACT else value
    return short


def json_of(document: Document) -> str:
    """JSON with one row per line; NaN and infinities are strings."""
    from cusz_core.embedding import json_value

    def text_of(value: Any) -> str:
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
            rows = [{name: json_value(cell) for name, cell in row.items()} for row in value]
            return "[\n" + ",\n".join(f" {json.dumps(row, allow_nan=False)}" for row in rows) + "\n]"
        return json.dumps(value)

    members = [f"{json.dumps(name)}: {text_of(value)}" for name, value in document.items()]
    return "{" + ",\n".join(members) + "}\n"


def write_json(document: Document, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_of(document))


def publish(document: Document, text: str, options: argparse.Namespace, section: str, page: Path) -> None:
    """Prints the text, and writes the outputs of --json and --docs."""
    print(text)
    if options.json:
        write_json(document, options.json)
    if options.docs:
        replace_section(page, text, section)


def write_table(path: Path, head: Sequence[object], lines: Iterable[Sequence[object]]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(lines)


# ------------------------------------------------------------------------------------------------------------ Markdown


def around_section(path: Path, section: str) -> tuple[str, str]:
    """The text before and after a section, including its two markers."""
    from cusz_core.errors import ParameterError

    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    before, found_begin, rest = path.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise ParameterError(f"{path} has no lines {begin} and {end} for the tables to go between")
    return before + begin, end + after


def replace_section(path: Path, text: str, section: str) -> None:
    """Puts `text` between the two markers of a section in a Markdown file."""
    before, after = around_section(path, section)
    path.write_text(f"{before}\n\n{text}\n\n{after}")


def table(head: Sequence[object], lines: Iterable[Sequence[object]], numbers: int = 0) -> str:
    """A table whose last `numbers` columns are right-aligned."""
    rule = ["---"] * (len(head) - numbers) + ["--:"] * numbers
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (head, rule, *lines))


def table_of(rows: Sequence[Row]) -> str:
    """A table of rows that all have the same members, whose names are its head."""
    return table(list(rows[0]), [list(row.values()) for row in rows]) if rows else ""


def filled(text: str, indent: str = "") -> str:
    """A paragraph in lines of up to 120 characters."""
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": indent}
    return textwrap.fill(text.strip(), 120, **options)


def significant(value: float | None) -> str:
    """Three digits or more."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return str(value)
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"


def ms(seconds: float) -> str:
    return significant(1e3 * seconds)
