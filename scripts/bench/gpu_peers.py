#!/usr/bin/env python3
"""Measures the CUDA engine and other GPU compressors on the same fields and absolute bounds, one after another.

    scripts/bench/gpu_peers.py --peers FOLDER             # FOLDER/cuSZ, cuSZp, FSZ, FZ-GPU, PFPL: checkouts of them
    scripts/bench/gpu_peers.py --peers FOLDER turbulence@256 --rel 1e-3 --only cuSZ PFPL
    scripts/bench/gpu_peers.py --peers FOLDER --limit 480 # no new measurement after 480 s; the same command continues
    scripts/bench/gpu_peers.py --peers FOLDER --dry-run   # builds the peers and prints the plan; needs no GPU
    scripts/bench/gpu_peers.py --peers FOLDER --collect X # copies only what is needed of the peers to X

Every peer is a separate program (gpu_peers_build.py), so a crash or a hang costs only one row. It gets the field, and
returns the size of its archive, its times, and the decompressed field, which is compared here value by value. Our
engine, cusz_core, is measured by such a program in the same way.
Bounds are fractions of the field's range, made absolute and rounded down to f32, which some peers need. The rows go to
the results of gpu.py, with the fraction as "rel_eb". Peers take up to three dimensions: for fields with more, the
leading ones are merged.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gpu_peers_build as build
import gpu_report
import numpy as np
import runner
from comparison import fields, pfpl
from runner import ROOT, Document, Failure, Row, say

import cusz_core as cusz
import gpu

BUILD = ROOT / "build/gpu-peers"
OWN_LIBRARY = Path(cusz.__file__).with_name("libcusz_core.so.0")

#: Measured without FIELD. @256x16 is 16 boxes of 256^3 particles, one after another: 2^28 values.
DEFAULT_FIELDS = (
    *("turbulence@512", "density@512", "flux@1800", "turbulence@256_f64", "orbitals@64"),
    *("particles_x@256x16", "particles_vx@256x16"),
)
SECONDS = 120  # a peer that takes longer with one field is stopped
UNCOUNTED = 2  # of PFPL's runs, the same number as in main.cpp


# ------------------------------------------------------------------------------------------------------------- tools


@dataclasses.dataclass(frozen=True)
class Tool:
    """A peer, or one of its variants.

    Attributes:
        name: in the table.
        recipe: how it is built.
        program: the adapter's program; None for PFPL, which has its own programs.
        variant: the adapter's last argument.
        dtypes, dimensions: those that it accepts.
        note: a remark on its numbers.
    """

    name: str
    recipe: build.Recipe
    program: str | None
    variant: str = ""
    dtypes: tuple[str, ...] = ("float32", "float64")
    dimensions: tuple[int, ...] = (1, 2, 3)
    note: str = ""


def cuszp(mode: str, dimensions: int) -> Tool:
    only = (dimensions,) if dimensions > 1 else (1, 2, 3)
    return Tool(f"cuSZp {mode} {dimensions}-D", build.CUSZP, "cuszp", f"{mode} {dimensions}", dimensions=only)


TOOLS = (
    Tool(gpu_report.OURS, build.own_recipe(ROOT / "cusz_core/include", OWN_LIBRARY), "ours"),
    Tool("cuSZ", build.CUSZ, "cusz"),
    *(cuszp(mode, dimensions) for mode in ("outlier", "plain") for dimensions in (1, 2, 3)),
    Tool("FSZ", build.FSZ, "fsz"),
    Tool("FZ-GPU", build.FZ_GPU, "fzgpu", dtypes=("float32",)),
    Tool("PFPL", build.PFPL, None, note="times are those its own programs print, 7 runs"),
)


def extents_of(shape: Sequence[int]) -> tuple[int, int, int]:
    """The three extents, the fastest last, that peers get for the field."""
    return math.prod(shape[:-2]), shape[-2] if len(shape) > 1 else 1, shape[-1]


def dimensions_of(shape: Sequence[int]) -> int:
    planes, rows, _ = extents_of(shape)
    return 3 if planes > 1 else 2 if rows > 1 else 1


def why_not(tool: Tool, dtype: str, dimensions: int) -> str | None:
    """Why a tool is skipped for a field, or None."""
    if dtype not in tool.dtypes:
        return f"has no {dtype}"
    return None if dimensions in tool.dimensions else "is for other dimensions"


# ------------------------------------------------------------------------------------------------------------ fields


@dataclasses.dataclass(frozen=True)
class Spec:
    """A field by its name: NAME@N, or NAME@NxK for K times particles, either with the suffix _f64, or a .npy file."""

    name: str
    dtype: str
    copies: int = 1

    @property
    def label(self) -> str:
        """Its name in the rows."""
        if self.name.endswith(".npy"):
            return Path(self.name).stem
        return self.name if self.copies == 1 else f"{self.name}x{self.copies}"

    def dimensions(self) -> int:
        """The number of dimensions for peers, without making the whole field: from a small one of its kind."""
        if self.name.endswith(".npy"):
            return dimensions_of(np.load(self.name, mmap_mode="r").shape)
        return dimensions_of(gpu.load(f"{self.name.partition('@')[0]}@8", None).x.shape)


def parse_field(word: str) -> Spec:
    if word.endswith(".npy"):
        return Spec(word, np.load(word, mmap_mode="r").dtype.name)
    found = re.fullmatch(r"([a-z_]+?)@(\d+)(?:x(\d+))?(_f64)?", word)
    if not found or found[1] not in fields.GENERATED or int(found[2]) == 0 or found[3] == "0":
        raise Failure(f"{word} is neither a .npy file nor a generated field (turbulence@256, for example)")
    if found[3] and not found[1].startswith("particles"):
        raise Failure(f"{word}: only particles can be put one after the other")
    return Spec(f"{found[1]}@{found[2]}", "float64" if found[4] else "float32", int(found[3] or 1))


def load(spec: Spec, cache: Path | None) -> fields.Field:
    field = gpu.load(spec.name, cache)
    x = field.x
    if spec.copies > 1:
        kind, _, size = spec.name.partition("@")
        distance = int(size) if kind == "particles_x" else 0  # boxes are placed side by side
        x = np.concatenate([x + x.dtype.type(i * distance) for i in range(spec.copies)])
    return dataclasses.replace(field, name=spec.label, x=np.ascontiguousarray(x, spec.dtype))


def absolute_bound(cupy: Any, x: Any, relative: float) -> float:
    """The largest f32 that is not above `relative` of the range of the finite values; 0 if there is no such range."""
    finite = cupy.isfinite(x)
    if not bool(finite.any()):
        return 0.0
    low, high = float(cupy.where(finite, x, np.inf).min()), float(cupy.where(finite, x, -np.inf).max())
    return pfpl.rounded_down(relative * (high - low), np.dtype(np.float32))


# ------------------------------------------------------------------------------------------------------------- peers


@dataclasses.dataclass(frozen=True)
class Measured:
    """The results that a peer's program prints; medians, in microseconds."""

    archive_bytes: int
    compress_us: float
    decompress_us: float
    repeat: int


class PeerError(Exception):
    """A peer failed on a field; the message goes into its row."""


def parse_adapter(output: str) -> Measured:
    """Parses the last line of an adapter's output."""
    lines = [line for line in output.splitlines() if line.startswith('{"archive_bytes"')]
    try:
        found = json.loads(lines[-1])
        compress, decompress = found["compress_us"], found["decompress_us"]
        return Measured(
            int(found["archive_bytes"]), statistics.median(compress), statistics.median(decompress), len(compress)
        )
    except (IndexError, KeyError, ValueError, statistics.StatisticsError):
        raise PeerError(f"it printed no result: {last_words(output)}") from None


def parse_pfpl(output: str, way: str) -> tuple[float, int]:
    """Median microseconds and number of the runs of PFPL's programs; `way` is comp or decomp."""
    seconds = [float(t) for t in re.findall(rf"^lc {way} ecltime, +([0-9.]+)$", output, re.MULTILINE)][UNCOUNTED:]
    if not seconds:
        raise PeerError(f"it printed no times: {last_words(output)}")
    return 1e6 * statistics.median(seconds), len(seconds)


def last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it says nothing"


def call(command: Sequence[Path | str], seconds: float = SECONDS) -> str:
    """Runs a peer's program; returns what it printed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise PeerError(f"stopped after {seconds:g} s") from None
    if done.returncode != 0:
        how = f"exit status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise PeerError(f"{how}: {last_words(done.stdout + done.stderr)}")
    return done.stdout


@dataclasses.dataclass(frozen=True)
class Case:
    """The input of every peer: a field in a file, and a bound."""

    file: Path
    decoded: Path
    dtype: str
    shape: tuple[int, ...]
    eb: float
    repeat: int


def run_tool(tool: Tool, case: Case, programs: Path) -> Measured:
    """Compresses and decompresses repeatedly; the decompressed field is in `case.decoded`."""
    case.decoded.unlink(missing_ok=True)
    own = programs / tool.recipe.name
    short = {"float32": "f32", "float64": "f64"}[case.dtype]
    if tool.program is not None:
        words: list[Path | str] = [own / tool.program, case.file, short, *map(str, extents_of(case.shape))]
        words += [repr(case.eb), str(case.repeat), case.decoded, *filter(None, [tool.variant])]
        return parse_adapter(call(words))
    archive = case.file.with_suffix(".pfpl")
    archive.unlink(missing_ok=True)
    compress, repeat = parse_pfpl(call([own / f"pfpl_{short}_comp", case.file, archive, repr(case.eb)]), "comp")
    size = archive.stat().st_size
    decompress, _ = parse_pfpl(call([own / f"pfpl_{short}_decomp", archive, case.decoded]), "decomp")
    return Measured(size, compress, decompress, repeat)


def measured_row(cupy: Any, tool: Tool, version: str, x: Any, case: Case, programs: Path) -> Row:
    """A row with gpu_report.COLUMNS and more; without numbers if the peer failed."""
    row: Row = dict.fromkeys(gpu_report.COLUMNS) | {
        "tool": tool.name, "version": version, "dtype": case.dtype, "shape": list(case.shape), "mode": "abs",
        "eb": case.eb, "violations": None, "note": tool.note,
    }  # fmt: skip
    try:
        found = run_tool(tool, case, programs)
        if not case.decoded.exists() or case.decoded.stat().st_size != x.nbytes:
            raise PeerError("it gave back a field of another size")
        if found.archive_bytes <= 0 or not min(found.compress_us, found.decompress_us) > 0:
            raise PeerError(f"it says that it took no time or no bytes: {found}")
    except (PeerError, OSError) as error:
        return row | {"note": f"FAILED: {error}"}
    y = cupy.asarray(np.fromfile(case.decoded, case.dtype).reshape(case.shape))
    quality = gpu.quality(cupy, x, y, case.eb, None)
    return row | {
        "ratio": x.nbytes / found.archive_bytes,
        **dataclasses.asdict(quality),
        "compress_gbps": x.nbytes / found.compress_us / 1e3,
        "decompress_gbps": x.nbytes / found.decompress_us / 1e3,
        **{name: getattr(found, name) for name in ("compress_us", "decompress_us", "repeat")},
    }


# -------------------------------------------------------------------------------------------------------------- plan


def chosen_tools(names: Sequence[str]) -> list[Tool]:
    """Ours, and the named peers; all peers if none is named."""
    unknown = [name for name in names if name not in build.RECIPES]
    if unknown:
        raise Failure(f"{unknown[0]} is not a peer: {', '.join(build.RECIPES)}")
    return [tool for tool in TOOLS if not names or tool.recipe.name in (*names, gpu_report.OURS)]


def plan_lines(specs: Sequence[Spec], rels: Sequence[float], tools: Sequence[Tool]) -> Iterator[str]:
    yield f"bounds, of the range: {', '.join(f'{rel:g}' for rel in rels)}"
    for spec in specs:
        taken, left_out = [], []
        for tool in tools:
            reason = why_not(tool, spec.dtype, spec.dimensions())
            if reason is None:
                taken.append(tool.name)
            elif reason.startswith("has no"):
                left_out.append(f"{tool.name} {reason}")
        yield f"{spec.label} {spec.dtype}: {', '.join(taken)}" + "".join(f"; {text}" for text in left_out)


# ----------------------------------------------------------------------------------------------------------- measure


def key(row: Row) -> tuple[Any, ...]:
    return row["tool"], row["dataset"], row["dtype"], row.get("rel_eb")


@dataclasses.dataclass
class Bench:
    """The measurements to make, and where their results go."""

    cupy: Any
    tools: Sequence[Tool]
    versions: dict[str, str]
    options: argparse.Namespace
    document: Document
    path: Path
    work: Path

    def measure(self, specs: Sequence[Spec]) -> bool:
        """Adds the missing rows. Returns whether all are now there."""
        started = time.monotonic()
        return all(self._measure_field(spec, lambda: time.monotonic() - started > self.options.limit) for spec in specs)

    def _measure_field(self, spec: Spec, is_late: Callable[[], bool]) -> bool:
        tools = [tool for tool in self.tools if why_not(tool, spec.dtype, spec.dimensions()) is None]
        have = {key(row) for row in self.document["rows"]}
        wanted = {(tool.name, spec.label, spec.dtype, rel) for tool in tools for rel in self.options.rel}
        if wanted <= have:
            return True
        if is_late():
            return False
        say(f"{spec.label} {spec.dtype}: generating it")
        field = load(spec, self.options.cache)
        x = self.cupy.asarray(field.x)
        file = self.work / "field.raw"
        field.x.tofile(file)
        for rel in self.options.rel:
            eb = absolute_bound(self.cupy, x, rel)
            if not eb > 0:
                say(f"{spec.label}: left out, it has no range")
                return True
            case = Case(file, self.work / "decoded.raw", spec.dtype, field.x.shape, eb, self.options.repeat)
            for tool in tools:
                if (tool.name, spec.label, spec.dtype, rel) in have:
                    continue
                if is_late():
                    return False
                say(f"{spec.label} {spec.dtype} {rel:g}: {tool.name}")
                version = self.versions[tool.recipe.name]
                row = measured_row(self.cupy, tool, version, x, case, self.options.build)
                self.document["rows"].append(runner.shortened(row | {"dataset": spec.label, "rel_eb": rel}))
                runner.write_json(self.document, self.path)
        return True


def work_folder(given: Path | None) -> Path:
    """Where fields are kept as files: in memory, if there is room for the largest and its decompressed copy."""
    memory = Path("/dev/shm")
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
    elif memory.is_dir() and shutil.disk_usage(memory).free > 6 << 30:
        given = memory
    return Path(tempfile.mkdtemp(prefix="cusz-peers-", dir=given))


# -------------------------------------------------------------------------------------------------------------- main


def run(options: argparse.Namespace) -> int:
    specs = [parse_field(word) for word in options.fields or DEFAULT_FIELDS]
    tools = chosen_tools(options.only)
    recipes = [build.RECIPES[name] for name in options.only or build.RECIPES]
    if not options.peers.is_dir():
        raise Failure(f"there is no folder {options.peers} with checkouts of the peers:\n{build.sources_list(recipes)}")
    present = [recipe for recipe in recipes if (options.peers / recipe.name).is_dir()]
    for recipe in recipes:
        if recipe not in present:
            say(f"{recipe.name} is not in {options.peers}: left out ({recipe.repository})")
    if not present:
        raise Failure(f"{options.peers} has none of them:\n{build.sources_list(recipes)}")
    if options.collect is not None:
        for recipe in present:
            build.copy_needed(recipe, options.peers / recipe.name, options.collect / recipe.name)
        return 0
    cupy = None if options.dry_run else gpu.import_cupy()  # report missing parts before building
    versions = {recipe.name: build.version_of(recipe, options.peers / recipe.name) for recipe in present}
    say(f"building {', '.join(f'{name} ({version})' for name, version in versions.items())}")
    started = time.monotonic()
    versions[gpu_report.OURS] = cusz.__version__
    present = [tools[0].recipe, *present]
    failed = build.build(present, options.peers, options.build, options.architecture, options.jobs)
    for name, output in failed.items():
        print(f"error: {name} does not compile:\n{output}", file=sys.stderr)
    say(f"built in {time.monotonic() - started:.0f} s")
    tools = [tool for tool in tools if tool.recipe in present and tool.recipe.name not in failed]
    if cupy is None:
        print("\n".join(plan_lines(specs, options.rel, tools)))
        return 1 if failed else 0

    first = gpu.head(cupy)
    path = options.json or gpu.default_path(first)
    document = gpu.open_document(first, path)
    work = work_folder(options.work)
    try:
        complete = Bench(cupy, tools, versions, options, document, path, work).measure(specs)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(gpu_report.beside_peers(document))
    ours = [row for row in document["rows"] if row["tool"] == gpu_report.OURS and gpu_report.is_beside(row)]
    status = gpu.status_of(ours, complete)
    return 1 if failed else status


def parser() -> argparse.ArgumentParser:
    options = gpu.common_parser(__doc__, 10)
    add = options.add_argument
    add("--peers", type=Path, required=True, metavar="FOLDER", help="folder with checkouts of the peers")
    add("--only", nargs="+", default=[], metavar="PEER", help="only these peers")
    add("--rel", type=float, nargs="+", default=[1e-2, 1e-3, 1e-4], help="bounds, as fractions of the range")
    add("--work", type=Path, metavar="FOLDER", help="where fields are kept as files (default: in memory)")
    add("--build", type=Path, default=BUILD, metavar="FOLDER", help="default: build/gpu-peers")
    add("--architecture", default="90", help="of the GPU, such as 90 (default)")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="compilers at a time")
    add("--dry-run", action="store_true", help="build, and print what would be measured")
    add("--collect", type=Path, metavar="FOLDER", help="copy only the needed files of the peers to this folder")
    return options


def main(words: Sequence[str]) -> int:
    def work() -> int:
        options = parser().parse_intermixed_args(words)
        if not all(rel > 0 and math.isfinite(rel) for rel in options.rel) or options.repeat < 1 or options.jobs < 1:
            raise Failure("--rel, --repeat and --jobs must be positive")
        return run(options)

    return runner.exit_code_of(work, (Failure, cusz.CuszError))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
