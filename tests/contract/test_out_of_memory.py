"""Memory that runs out, at any allocation of the core."""

import os
import platform
from pathlib import Path

import pytest

import cusz_core
from support import output

HERE = Path(__file__).parent
LIBRARY = Path(cusz_core.__file__).parent / "libcusz_core.so.0"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the program replaces glibc's malloc")
def test_a_context_survives_any_allocation_that_fails(tmp_path: Path) -> None:
    program = tmp_path / "out_of_memory"
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{HERE.parents[1] / 'cusz_core/include'}"]
    output(
        *(os.environ.get("CXX", "c++"), *flags, "-o", program, HERE / "out_of_memory.cpp", LIBRARY),
        f"-Wl,-rpath,{LIBRARY.parent}",
    )
    trials = [int(line) for line in output(program).split()]
    assert len(trials) == 28
    assert min(trials) > 3
