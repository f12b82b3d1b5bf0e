#!/usr/bin/env python3
"""Compares small blocks, as from codes with adaptive meshes, with SZ3's default: bytes and speed, one thread.

    scripts/bench/peers.py blocks.py --docs
    scripts/bench/peers.py blocks.py turbulence --edges 16 --blocks 8 --repeat 1    # a small part of it

From every field, blocks spread all over it are compressed, each by itself under the same absolute bound, a fraction of
the field's range. Fields of one, two or four dimensions have blocks with the same number of values. Without FIELD:
turbulence and density of 128^3, V of apps/gray_scott.py on as many cells after 1500 steps, and the .npy files of
$CUSZ_TEST_DATA.
--docs rewrites the section of cpu.md.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import runner
from comparison import fields
from comparison.fields import Array, Field
from comparison.tools import TOOLS, YARDSTICK, Buffers, Task, Tool
from runner import Document, Row

import cusz_core

PAGE = runner.PAGES / "cpu.md"
OURS = "cusz auto"
#: Extents of blocks of edge^3 values as powers of the edge, by the number of the field's dimensions.
POWERS = {1: (3,), 2: (1.5, 1.5), 3: (1, 1, 1), 4: (0, 1, 1, 1)}


def blocks_of(x: Array, edge: int, n: int) -> Iterator[Array]:
    """Up to n blocks, evenly over the field, of which no two share a value. Extents are powers of 2."""
    powers = POWERS[x.ndim]
    shape = [min(2 ** int(power * np.log2(edge)), extent) for power, extent in zip(powers, x.shape, strict=True)]
    if x.ndim == 2:
        shape[1] = min(edge**3 // shape[0], x.shape[1])
    places = list(itertools.product(*(range(0, e - s + 1, s) for e, s in zip(x.shape, shape, strict=True))))
    for at in np.unique(np.linspace(0, len(places) - 1, n).astype(int)):
        place = tuple(slice(start, start + s) for start, s in zip(places[at], shape, strict=True))
        yield np.ascontiguousarray(x[place])


def measured(tool: Tool, tasks: Sequence[Task], repeat: int) -> Row:
    """Bytes of all archives, and seconds for all blocks: medians of `repeat` rounds after an uncounted one."""
    codecs = [tool.codec(task, Buffers(task.x)) for task in tasks]
    archives = [bytes(codec.compress()) for codec in codecs]
    clock, laps = runner.Clock(), []
    for _ in range(repeat + 1):
        clock.lap()
        for codec in codecs:
            codec.compress()
        compressed = clock.lap()
        for codec, archive in zip(codecs, archives, strict=True):
            codec.decompress(archive)
        laps.append((compressed, clock.lap()))
    compress, decompress = (statistics.median(times) for times in zip(*laps[1:], strict=True))
    return {"bytes": sum(map(len, archives)), "compress": compress, "decompress": decompress}


def rows_of(field: Field, options: argparse.Namespace) -> Iterator[Row]:
    tools = [next(tool for tool in TOOLS if tool.name == name) for name in (OURS, YARDSTICK)]
    limits = cusz_core.value_range(field.x, fill=field.fill)
    for edge, eb in itertools.product(options.edges, options.eb):
        bound = limits.absolute_bound(eb)
        blocks = blocks_of(field.x, edge, options.blocks if edge < 64 else min(options.blocks, 24))
        tasks = [Task(block, "abs", bound, bound, plain=False, fill=field.fill) for block in blocks]
        ours, theirs = (measured(tool, tasks, options.repeat) for tool in tools)
        about = {"field": field.name, "edge": edge, "eb": eb, "blocks": len(tasks)}
        yield about | {name: theirs[name] / ours[name] for name in ours}


def told(document: Document) -> str:
    rows, head = document["rows"], document["head"]
    lines = []
    for edge in sorted({row["edge"] for row in rows}):
        of_edge = [row for row in rows if row["edge"] == edge]
        means = runner.mean_ratios((row["bytes"], row["compress"], row["decompress"]) for row in of_edge)
        assert means is not None
        worst = min(of_edge, key=lambda row: row["bytes"])
        lines.append(
            [
                f"{edge}^3",
                *(f"{mean:.2f}" for mean in means),
                f"{worst['bytes']:.2f} ({worst['field']}, {worst['eb']:g})",
            ]
        )
    names = sorted({row["field"] for row in rows})
    intro = (
        "How many times smaller the archives are than those of SZ3's default, and how many times faster cusz is: "
        f"geometric means over {len(names)} fields and the "
        f"bounds {', '.join(f'{eb:g}' for eb in sorted({row['eb'] for row in rows}))} of their range, from Python, one "
        f"thread ({runner.where(head)})."
    )
    return (
        runner.filled(intro)
        + "\n\n"
        + runner.table(["blocks", "bytes", "compress", "decompress", "smallest of bytes"], lines)
    )


def generated() -> Iterator[Field]:
    """The generated fields, of 128^3 values."""
    sys.path.append(str(runner.ROOT / "apps"))
    from gray_scott import fields_after

    for make in (fields.turbulence, fields.density):
        yield Field(make.__name__, make(128))
    yield Field("gray_scott", fields_after(1500, (128, 128, 128))["V"])


def run(options: argparse.Namespace) -> int:
    missing = next(tool for tool in TOOLS if tool.name == YARDSTICK).missing()
    if missing:
        raise runner.Failure(f"pysz is {missing}", "Run scripts/bench/peers.py blocks.py.")
    names = options.fields or [name for name in fields.chosen([]) if name.endswith(".npy")]
    document: Document = {"head": runner.machine(options.repeat), "rows": []}
    for field in itertools.chain(() if options.fields else generated(), fields.load(names) if names else ()):
        document["rows"] += [runner.shortened(row) for row in rows_of(field, options)]
    runner.publish(document, told(document), options, "blocks", PAGE)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    options = runner.parser(__doc__, repeat=5, of="rounds", docs=PAGE)
    options.add_argument("fields", nargs="*", metavar="FIELD", help="generated field, or .npy file")
    options.add_argument("--edges", type=int, nargs="+", default=[8, 16, 32, 64], metavar="N")
    options.add_argument("--eb", type=float, nargs="+", default=[1e-2, 1e-3, 1e-4])
    options.add_argument("--blocks", type=int, default=64, metavar="N", help="of a field (of 64^3: 24 at most)")
    return runner.exit_code_of(lambda: run(options.parse_args(words)))


if __name__ == "__main__":
    sys.exit(main())
