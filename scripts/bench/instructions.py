#!/usr/bin/env python3
"""Guards the speed of the CPU engine without a clock: counts two commits' instructions per value, with callgrind.

    .venv/bin/python scripts/bench/instructions.py                 # HEAD and the working tree
    .venv/bin/python scripts/bench/instructions.py main~1 main     # two commits
    .venv/bin/python scripts/bench/instructions.py --functions 5   # and where the instructions are spent
    .venv/bin/python scripts/bench/instructions.py --keep build/instructions   # reuses builds

Prints a Markdown table. Exits with 1 if any count has risen by more than --limit percent, with 2 if nothing could be
counted. Needs valgrind and what scripts/setup installs; takes about a minute and a half, most of it for compiling.

Both sides read the same generated inputs, on one thread, and are counted for the widest instruction set that valgrind
knows (AVX2: it hides AVX-512 from programs) and for the plain one (CUSZ_SIMD=baseline). Counts are exact for one
machine and compiler: they say nothing about memory, caches and threads, which compare.py measures.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import commits
from commits import change, run, unpack, version
from runner import VENV, Failure, say, table

DRIVER = Path(__file__).with_suffix(".c")
OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release",
    *(f"-DCUSZ_{name}=OFF" for name in ("BUILD_PYTHON", "BUILD_OPERATOR", "BUILD_APPS", "USE_CUDA", "USE_ZSTD")),
    "-DCUSZ_INSTRUCTION_SETS=avx2",
]
SETS = ("widest", "baseline")  # instruction sets
DIRECTIONS = ("compress", "decompress")


class Row(NamedTuple):
    """The names of a count."""

    input: str
    instructions: str  # of SETS
    direction: str


class Input(NamedTuple):
    path: Path
    dtype: str
    rel: float
    shape: tuple[int, ...]

    @property
    def n_values(self) -> int:
        return self.path.stat().st_size // (8 if self.dtype == "f64" else 4)


#: Instructions per value of each function, for each row.
Counts = Mapping[Row, Mapping[str, float]]


def main(words: Sequence[str] | None = None) -> int:
    parser = commits.parser(__doc__)
    text = "show the N largest functions of each side"
    parser.add_argument("--functions", type=int, default=0, metavar="N", help=text)
    options = parser.parse_args(words)

    def work() -> Iterator[str]:
        base, head = count_both(options.base, options.head, options.keep)
        print(count_table(base, head, options.base, options.head))
        if options.functions:
            print("\n" + function_table(base, head, options.base, options.head, options.functions))
        for row, side in base.items():
            if change(sum(side.values()), sum(head[row].values())) > options.limit:
                yield ", ".join(row)

    return commits.exit_code_of(work, options)


# ------------------------------------------------------------------------------------------------- counting


def count_both(base: str, head: str, keep: Path | None) -> tuple[Counts, Counts]:
    if shutil.which("valgrind") is None:
        raise Failure("valgrind was not found", "Install it (Debian: valgrind).")
    with tempfile.TemporaryDirectory(prefix="cusz-instructions-") as name:
        scratch = Path(name)
        builds = (keep or scratch / "builds").resolve()
        inputs = make_inputs(scratch)
        drivers = [build(commit, builds) for commit in (base, head)]
        base_counts, head_counts = (dict(count(driver, inputs, scratch)) for driver in drivers)
        return base_counts, head_counts


def count(driver: Path, inputs: Mapping[str, Input], scratch: Path) -> Iterator[tuple[Row, dict[str, float]]]:
    for name, field in inputs.items():
        for instructions in SETS:
            for direction in DIRECTIONS:
                row = Row(name, instructions, direction)
                say(f"{driver.parent.name}: {', '.join(row)}")
                counted = callgrind(driver, field, instructions, direction, scratch / "callgrind.out")
                yield row, {function: n / field.n_values for function, n in counted.items()}


def callgrind(driver: Path, field: Input, instructions: str, direction: str, out: Path) -> Counter[str]:
    """Instructions of each function below cusz_compress or cusz_decompress."""
    environment = {name: value for name, value in os.environ.items() if name != "CUSZ_SIMD"} | {"LD_BIND_NOW": "1"}
    if instructions == "baseline":
        environment["CUSZ_SIMD"] = "baseline"
    function = f"cusz_{direction}"
    valgrind = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"]
    valgrind += ["--compress-strings=no", "--compress-pos=no", f"--toggle-collect={function}"]
    run([*valgrind, driver, field.dtype, repr(field.rel), field.path, *map(str, field.shape)], env=environment)
    counted = parse_callgrind(out.read_text())
    if not counted:
        raise Failure(f"callgrind saw no call of {function}", "See whether the library exports it under this name.")
    return counted


def parse_callgrind(text: str) -> Counter[str]:
    """Instructions of each function itself, from a file of callgrind written without compression."""
    counted: Counter[str] = Counter()
    function = ""
    below = False  # the next line is the inclusive cost of a call, which is counted in the callee
    for line in text.splitlines():
        if line.startswith("fn="):
            function = line[3:]
        elif line.startswith("calls="):
            below = True
        elif line[:1].isdigit():
            if not below:
                counted[function] += int(line.split()[1])
            below = False
    return counted


# ------------------------------------------------------------------------------------------------- inputs


def make_inputs(folder: Path) -> dict[str, Input]:
    try:
        import numpy as np
        from comparison import fields
    except ImportError as error:
        raise Failure(str(error), "Run scripts/setup first, then this with .venv/bin/python.") from None

    def smooth() -> Any:  # second-order Lorenzo predicts it best
        wave = np.sin(np.linspace(0, 2 * np.pi, 64))
        return wave[:, None, None] * wave[:, None] * wave

    def with_missing() -> Any:
        x, g = fields.flux(512, 512), fields.gaussian_random_field((512, 512), -4, 106)
        return np.where(g > np.quantile(g, 0.8), np.float32("nan"), x)

    made: dict[str, tuple[Callable[[], Any], tuple[float, ...]]] = {
        "turbulence 64^3": (lambda: fields.turbulence(64), (1e-3, 1e-5)),
        "density 64^3": (lambda: fields.density(64), (1e-2,)),
        "smooth 64^3": (smooth, (1e-5,)),
        "particles 2^18": (lambda: fields.particles_vx(64), (1e-3,)),
        "flux 512^2, 20% NaN": (with_missing, (1e-3,)),
    }
    inputs = {}
    for i, (name, (make, rels)) in enumerate(made.items()):
        x = np.ascontiguousarray(make())
        path = folder / f"{i}.raw"
        x.tofile(path)
        dtype = f"f{8 * x.itemsize}"
        for rel in rels:
            inputs[f"{name} {dtype}, rel {rel:g}"] = Input(path, dtype, rel, x.shape)
    return inputs


# ------------------------------------------------------------------------------------------------- building


def build(commit: str, builds: Path) -> Path:
    """The driver of a commit, linked with its library, in a folder of `builds`; built there if it is missing."""
    builds.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=builds) as name:
        work = Path(name)
        unpack(commit, work / "source")
        folder = builds / f"{version(commit, work / 'source')}-{toolchain()}"
        if not folder.exists():
            say(f"building {commit}")
            make_driver(commit, work)
            work.rename(folder)
            work.mkdir()  # so that the with block can remove it
    return folder / "driver"


def toolchain() -> str:
    """A hash of everything else that determines the machine code."""
    compilers = [run([os.environ.get(name, default), "--version"]) for name, default in (("CC", "cc"), ("CXX", "c++"))]
    flags = [os.environ.get(name, "") for name in ("CFLAGS", "CXXFLAGS", "LDFLAGS")]
    return hashlib.sha256("\0".join([*compilers, *flags, *OPTIONS, DRIVER.read_text()]).encode()).hexdigest()[:8]


def make_driver(commit: str, work: Path) -> None:
    environment = os.environ | {"PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    source, library = work / "source", work / "build/cusz_core"
    what, remedy = f"{commit} does not build", "Read the error above; tools that are missing come with scripts/setup."
    run(["cmake", "-G", "Ninja", "-S", source, "-B", work / "build", *OPTIONS], what, remedy, env=environment)
    run(["cmake", "--build", work / "build", "--target", "cusz_core"], what, remedy, env=environment)
    what = f"cusz.h of {commit} does not have what {DRIVER.name} uses"
    remedy = "Compare commits whose C interface has it."
    compile_driver: list[Path | str] = [os.environ.get("CC", "cc"), "-std=c11", "-O2", DRIVER, "-o", work / "driver"]
    compile_driver += ["-I", source / "cusz_core/include"]
    compile_driver += [library / "libcusz_core.so", "-Wl,-rpath,$ORIGIN/build/cusz_core"]
    run(compile_driver, what, remedy)


# ------------------------------------------------------------------------------------------------- what is shown


def count_table(base: Counts, head: Counts, base_name: str, head_name: str) -> str:
    lines = []
    for row in base:
        was, now = sum(base[row].values()), sum(head[row].values())
        lines.append([*row, f"{was:.2f}", f"{now:.2f}", f"{change(was, now):+.2f}%"])
    return table(["input", "instruction set", "direction", base_name, head_name, "change"], lines, 3)


def function_table(base: Counts, head: Counts, base_name: str, head_name: str, n: int) -> str:
    """The n largest functions of either side."""
    lines = []
    for row in base:
        largest = {name for side in (base, head) for name, _ in Counter(side[row]).most_common(n)}
        for name in sorted(largest, key=lambda name: -max(base[row].get(name, 0), head[row].get(name, 0))):
            was, now = base[row].get(name, 0), head[row].get(name, 0)
            lines.append([*row, f"`{name}`", f"{was:.2f}", f"{now:.2f}"])
    return table(["input", "instruction set", "direction", "function", base_name, head_name], lines, 2)


if __name__ == "__main__":
    sys.exit(main())
