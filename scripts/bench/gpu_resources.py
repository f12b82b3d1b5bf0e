"""Resources of the compiled CUDA kernels: registers, spills, shared memory, and blocks per multiprocessor.

Needs nvcc and a C++ compiler, but no GPU. Used by `gpu.py --resources`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import runner
from runner import ROOT, Failure, Row

CORE = ROOT / "cusz_core"
FIGURES = Path(__file__).with_name("gpu_resources.json")

#: Limits of a multiprocessor, by architecture: shared memory in KiB, threads, blocks. Each has 65536 registers.
PROCESSORS = {80: (164, 2048, 32), 86: (100, 1536, 16), 89: (100, 1536, 24), 90: (228, 2048, 32), 100: (228, 2048, 32)}
#: The engine requests at most this many blocks (launch.cuh, max_blocks_of_processor).
MAX_BLOCKS = 8

#: Ends the names of kernels that are launched for many fields at once.
MANY = ", many fields"

#: A launch: the kernel's mangled name, its purpose, threads, and bytes of dynamic shared memory.
Launch = tuple[str, str, int, int]


def architectures() -> list[int]:
    """The default architectures of the build."""
    found = re.search(r"set\(CUSZ_CUDA_ARCHITECTURES ([^)]*?) CACHE", (ROOT / "CMakeLists.txt").read_text())
    assert found is not None, "CMakeLists.txt sets no CUSZ_CUDA_ARCHITECTURES"
    return sorted({int(word.split("-")[0]) for word in found[1].split()})


def sources(core: Path) -> list[Path]:
    """The files with kernels."""
    return sorted((core / "src").rglob("*.cu"))


def measure(wanted: Sequence[int]) -> dict[str, Any]:
    """Compiles the kernels for these architectures, which takes some minutes on a core for each."""
    nvcc = find_nvcc()
    with tempfile.TemporaryDirectory(prefix="cusz-resources-") as name:
        folder = Path(name)
        text = compiled(nvcc, CORE, wanted, folder)
        program = _launching(nvcc, sorted(folder.glob(f"*.{wanted[0]}.o")), folder / "launches")
        launches = {architecture: _launches(program, architecture) for architecture in wanted}
    version = re.search(r"release [\d.]+, V([\d.]+)", _run(nvcc, "--version"))
    return {"nvcc": version[1] if version else "unknown", "rows": joined(parse(text), launches)}


def compiled(nvcc: str, core: Path, wanted: Sequence[int], folder: Path) -> str:
    """Compiles the kernels of a core, each file for each architecture by itself, as many at a time as there are cores.
    Returns the output of `ptxas -v`."""
    # As in cusz_core/CMakeLists.txt.
    flags = ["-O3", "-DNDEBUG", "-std=c++20", "-fmad=false", "--expt-relaxed-constexpr"]
    folders = ["-I", core / "include", "-I", core / "src"]

    def compile_one(source: Path, n: int) -> str:
        code = f"--generate-code=arch=compute_{n},code=sm_{n}"
        target = folder / f"{source.parent.parent.name}_{source.stem}.{n}.o"
        return _run(nvcc, "-c", *flags, *folders, code, "-Xptxas=-v", source, "-o", target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compile_one, source, n) for n in wanted for source in sources(core)]
        return "".join(job.result() for job in jobs)


def find_nvcc() -> str:
    nvcc = os.environ.get("CUDACXX") or shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        raise Failure("nvcc was not found: put it on PATH, or point CUDACXX at it")
    return nvcc


def _run(*command: object) -> str:
    """Standard output and error of a command."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}\n{done.stdout}")
    return done.stdout


def _include_folder(nvcc: str) -> str:
    """Where the headers of the CUDA runtime are."""
    for line in _run(nvcc, "--dryrun", "-c", "-x", "cu", "/dev/null", "-o", "/dev/null").splitlines():
        if found := re.match(r'#\$ INCLUDES="-I([^"]*)"', line):
            return found[1].strip().removeprefix("-I")
    return str(Path(nvcc).resolve().parents[1] / "include")


def _launching(nvcc: str, objects: Sequence[Path], program: Path) -> Path:
    """Builds the program that prints how kernels are launched (gpu_launches.cpp)."""
    own = [Path(__file__).with_name("gpu_launches.cpp"), CORE / "src/archive/tiling.cpp"]
    folders = ["-I", CORE / "src", "-I", CORE / "include", "-isystem", _include_folder(nvcc)]
    _run(os.environ.get("CXX", "c++"), "-std=c++20", *folders, *own, *objects, "-o", program)
    return program


def _launches(program: Path, architecture: int) -> list[Launch]:
    """Every kind of launch, on a device with the shared memory of this architecture."""
    shared_kib, *_ = PROCESSORS.get(architecture, (100,))
    of_block = (shared_kib - 1) * 1024  # the limit of a block
    lines = [line.split(",") for line in _run(program, of_block).splitlines()]
    return [(name, purpose, int(threads), int(shared)) for name, purpose, threads, shared in lines]


def parse(text: str) -> list[Row]:
    """The output of `ptxas -v` for every kernel, by its mangled name."""
    rows: list[Row] = []
    for line in text.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)' for 'sm_(\d+)\w?'", line):
            rows.append({"kernel": found[1], "architecture": int(found[2])})
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if rows and "stack" not in rows[-1]:
                rows[-1] |= {"stack": int(found[1]), "spills": int(found[2]) + int(found[3])}
        elif rows and (found := re.search(r"Used (\d+) registers", line)):
            static = re.search(r"(\d+) bytes smem", line)
            rows[-1] |= {"registers": int(found[1]), "static_shared": int(static[1]) if static else 0}
    return rows


def joined(compiled: Iterable[Row], launches: Mapping[int, Iterable[Launch]]) -> list[Row]:
    """A row for every kernel, architecture and kind of launch. launches: by architecture."""
    by_name = {(row["architecture"], row["kernel"]): row for row in compiled}
    rows = []
    for architecture, of_architecture in sorted(launches.items()):
        for mangled, purpose, threads, shared in dict.fromkeys(of_architecture):
            row = by_name[architecture, mangled]
            launch = {"kernel": short_name(mangled), "for": purpose, "threads": threads, "dynamic_shared": shared}
            rows.append({**row, **launch, "blocks": resident_blocks(row, threads, shared)})
    missing = by_name.keys() - {(n, name) for n, of_architecture in launches.items() for name, *_ in of_architecture}
    if missing:
        names = sorted({short_name(name) for _, name in missing})
        raise Failure(f"gpu_launches.cpp does not launch {', '.join(names)}")
    return rows


def short_name(mangled: str) -> str:
    """compress_kernel<float> of _ZN4cusz4cuda15compress_kernelIfEEvNS0_17CompressArgumentsIT_EE.

    The kernels for many fields at once, whose arguments are those of Each, have a mark.
    """
    found = re.search(r"\d+([a-z_]+_kernel)(?:I([fd])(?:[fd]?E|N|L))?", mangled)
    assert found is not None, mangled
    types = {"f": "<float>", "d": "<double>", None: ""}
    return found[1] + types[found[2]] + (MANY if "4EachI" in mangled else "")


def resident_blocks(row: Row, threads: int, dynamic_shared: int) -> int | None:
    """Blocks that fit on a multiprocessor, by registers, shared memory and threads; None if it is unknown."""
    processor = PROCESSORS.get(row["architecture"])
    if processor is None:
        return None
    shared, max_threads, max_blocks = processor
    warps = -(-threads // 32)
    of_warp = -(-row["registers"] * 32 // 256) * 256
    of_registers = 16384 // of_warp * 4 // warps  # each of a processor's four parts has a quarter
    of_block = row["static_shared"] + dynamic_shared + 1024  # the system's
    of_shared = shared * 1024 // (-(-of_block // 128) * 128)
    return int(min(of_registers, of_shared, max_threads // (warps * 32), max_blocks, MAX_BLOCKS))


#: The properties of a launch that architectures share, and those that differ, which FIGURES has by architecture.
SHARED = ("kernel", "for", "threads", "static_shared", "dynamic_shared")
OWN = ("registers", "spills", "stack", "blocks")


def write(figures: dict[str, Any], path: Path = FIGURES) -> None:
    rows: dict[tuple[Any, ...], Row] = {}
    for row in figures["rows"]:
        shared = {name: row[name] for name in SHARED}
        row_of_all = rows.setdefault(tuple(shared.values()), shared | {"by_architecture": {}})
        row_of_all["by_architecture"][row["architecture"]] = [row[name] for name in OWN]
    runner.write_json({**figures, "own": OWN, "rows": list(rows.values())}, path)


def read(path: Path = FIGURES) -> dict[str, Any]:
    """The figures that `write` has stored."""
    figures: dict[str, Any] = json.loads(path.read_text())
    rows = [
        {"architecture": int(architecture), **{name: row[name] for name in SHARED}, **dict(zip(OWN, own, strict=True))}
        for row in figures["rows"]
        for architecture, own in row["by_architecture"].items()
    ]
    return {"nvcc": figures["nvcc"], "rows": sorted(rows, key=lambda row: row["architecture"])}


def spilling(figures: dict[str, Any]) -> list[str]:
    """Kernels that spill registers, and on which architecture."""
    found = [f"{row['kernel']} (sm_{row['architecture']})" for row in figures["rows"] if row["spills"] > 0]
    return list(dict.fromkeys(found))
