"""Compiles programs of tests/core that run the library's parts of version 2."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "cusz_core"


def compiled(program: Path, options: Sequence[str], *sources: str) -> Path:
    """Compiles a program of tests/core together with sources of the library."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    folders = [f"-I{CORE / 'src'}", f"-I{CORE / 'include'}"]
    files = [ROOT / "tests" / "core" / f"{program.name}.cpp", *(CORE / "src" / source for source in sources)]
    subprocess.run([*compiler, "-std=c++20", "-O1", *options, *folders, *files, "-o", program], check=True)
    return program


INSTRUCTION_SETS = {
    "baseline": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"],
}


def instruction_sets() -> list[str]:
    """The instruction sets that this processor has."""
    flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split()
    return [isa for isa, options in INSTRUCTION_SETS.items() if all(option[2:] in flags for option in options)]
