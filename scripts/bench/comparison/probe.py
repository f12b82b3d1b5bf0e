"""Compresses and decompresses once with one tool: `measure` runs this in a separate process to see whether it crashes.

Exceptions are ignored here: the tool will raise them again.
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
