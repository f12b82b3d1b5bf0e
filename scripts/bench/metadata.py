#!/usr/bin/env python3
"""Measures what many blocks cost: a file of a million of them.

    .venv/bin/python scripts/bench/metadata.py                       # about 6 minutes, and 2 GB of memory
    .venv/bin/python scripts/bench/metadata.py --blocks 20000        # a small part of it

The file is written by one process, as many small blocks, and read by another, to --folder. (many_ranks.py measures what
many ranks cost.)
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import runner
from runner import Row

EDGE = 4  # cells of a block along each axis


def write(path: Path, blocks: int) -> Row:
    import cusz_operator

    n = round(blocks ** (1 / 3))
    x = np.cumsum(np.random.default_rng(0).standard_normal((EDGE,) * 3), 0).astype(np.float32)
    lap = runner.Clock().lap
    with cusz_operator.Writer(path, eb=1e-2, threads=1, progress=False, predictor="lorenzo") as out:
        for step in ("first", "later"):
            with out.step():
                for i in np.ndindex(n, n, n):
                    out.put("T", x, (n * EDGE,) * 3, tuple(EDGE * j for j in i))
            if step == "first":
                first = lap()
    sizes = {file.name: file.stat().st_size for file in path.iterdir()}
    return {
        "blocks": n**3,
        "first_seconds": first,
        "later_seconds": lap(),
        "metadata_bytes": sum(size for name, size in sizes.items() if name.startswith("m")) / 2,
        "data_bytes": sizes["data.0"] / 2,
    }


def read(path: Path) -> Row:
    import cusz_operator

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lap = runner.Clock().lap
    with cusz_operator.Reader(path, threads=1) as run:
        row = {"open_seconds": lap()}
        step = run[0]
        row["shape"] = step.shape("T")[0]
        step.read("T", (0, 0, 0), (EDGE,) * 3)
        row["first_box_seconds"] = lap()
        others = []
        for i in range(1, 8):
            corner = (row["shape"] * i // 8 // EDGE * EDGE,) * 3
            lap()
            step.read("T", corner, (EDGE,) * 3)
            others.append(lap())
        row["box_seconds"] = float(np.median(others))
        lap()
        step.blocks("T")
        row["table_seconds"] = lap()
    row["kilobytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return row


def apart(function: Callable[..., Row], *arguments: object) -> Row:
    """A part in a process of its own, so that its memory is its own."""
    row, how = runner.apart(function, *arguments, limit=7200)
    if row is None:
        raise runner.Failure(f"{function.__name__}: {how}")
    return dict(row)


def main(words: Sequence[str] | None = None) -> int:
    parser = runner.parser(__doc__)
    add = parser.add_argument
    add("--blocks", type=int, default=10**6, help="of the file, about (default: 1000000)")
    add("--folder", type=Path, default=Path("/dev/shm"), help="for the file (default: /dev/shm)")
    options = parser.parse_args(words)
    document: runner.Document = {"head": runner.machine(1), "files": []}
    for share in (100, 10, 1):
        with tempfile.TemporaryDirectory(prefix="cusz-metadata-", dir=options.folder) as folder:
            path = Path(folder) / "many.bp"
            document["files"].append(apart(write, path, options.blocks // share) | apart(read, path))
            print(json.dumps(document["files"][-1]), flush=True)
    if options.json:
        runner.write_json(document, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
