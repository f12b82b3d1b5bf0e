"""Compresses and decompresses once with one tool: `measure` runs this in a process of its own to see whether it lives.

What the tool raises is of no interest here; it will raise it again.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import numpy as np

from . import pfpl
from .tools import TOOLS, Buffers, Mode, Task


def main(name: str, path: str, mode: Mode, eb: str, eb_abs: str, plain: str, fill: str, sources: str) -> None:
    if sources != "None":
        pfpl.use(Path(sources))
    x = np.load(path)
    task = Task(x, mode, float(eb), float(eb_abs), plain == "1", None if fill == "None" else float(fill))
    tool = next(tool for tool in TOOLS if tool.name == name)
    with contextlib.suppress(Exception):
        codec = tool.codec(task, Buffers(x))
        codec.decompress(bytes(codec.compress()))


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
