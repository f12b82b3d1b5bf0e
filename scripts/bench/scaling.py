#!/usr/bin/env python3
"""Measures runs over several nodes, with and without compression, and compares them with a model.

    .venv/bin/python scripts/bench/scaling.py               # everything, about 8 minutes
    .venv/bin/python scripts/bench/scaling.py --docs        # also rewrites its section of nodes.md
    .venv/bin/python scripts/bench/scaling.py --nodes 1 2 --rates 50 --size 48 --steps 3      # a small part of it

The nodes are those of tests/nodes, on this machine: they share its cores and its disk, and have their own network,
whose rate is set. So this measures the cost of working together and of a slow network, not how much faster many nodes
compute than one. The model covers that: its inputs are the speeds measured in the same run.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import in_ranks
import numpy as np
import runner
from in_ranks import ALONE, OPTIONS, REL, Block, Layer, Part, Plain
from runner import Document, Row, filled, significant, table

sys.path[:0] = [str(runner.ROOT / "tests"), str(runner.ROOT / "tests" / "nodes")]

PAGE = runner.PAGES / "nodes.md"
TIMEOUT_S = 300.0
METHODS = (ALONE, "Writer")
STREAM = {"RendezvousReaderCount": "1", "DataTransport": "WAN", "OpenTimeoutSecs": "60", "QueueLimit": "1"}


# --------------------------------------------------------------------------------------------------- a rank's work


def send(part: Part) -> list[Row]:
    """Writes steps with a block from each rank; returns the time of each for the slowest rank."""
    comm, options, field = part.comm, part.options, part.field
    n = field.shape[0] if options.kind == "weak" else field.shape[0] // comm.size
    own = np.ascontiguousarray(np.roll(field, 17 * comm.rank, 1)[:n])
    how: dict[str, Any] = {"engine": options.engine, "parameters": STREAM if options.engine == "SST" else {}}
    path = str(options.path)
    file = Plain(path, comm, **how) if options.method == ALONE else Layer(path, comm, part.eb, **how)
    shape, start = (n * comm.size, *own.shape[1:]), (n * comm.rank, 0, 0)

    def step(number: int) -> None:
        file.step([Block("T", np.roll(own, number, 2), shape, start)])

    began = time.perf_counter()
    times = [part.seconds(functools.partial(step, number)) for number in range(options.steps + 1)]
    file.close()
    whole = part.slowest(time.perf_counter() - began)
    return [{"step_seconds": statistics.median(times[1:]), "whole_seconds": whole, "raw_bytes": own.nbytes * comm.size}]


def receive(part: Part) -> list[Row]:
    """Receives a stream; the time from one step to the next."""
    import cusz_operator

    arrived = []
    with cusz_operator.Reader(part.options.path, part.comm, engine="SST", parameters=STREAM, threads=1) as run:
        for step in run:
            step.read("T")
            arrived.append(time.perf_counter())
    return [{"step_seconds": (arrived[-1] - arrived[0]) / (len(arrived) - 1)}]


# ----------------------------------------------------------------------------------------------------- measurements


class Runs:
    """Starts parts on the nodes of a cluster. `options.tmpfs` has the field, and gets the files."""

    def __init__(self, cluster: Any, options: argparse.Namespace) -> None:
        self.cluster, self.options = cluster, options

    def start(self, part: str, nodes: Sequence[int], ranks: int, **more: Any) -> Any:
        words, result = in_ranks.words_of_rank(__file__, part, self.options, **more)
        return self.cluster.mpirun(words, nodes=nodes, ranks=ranks), result

    def file(self, kind: str, method: str, nodes: Sequence[int]) -> Row:
        ranks = self.options.ranks
        path = self.options.tmpfs / "run.bp"
        command, result = self.start("send", nodes, ranks, kind=kind, method=method, engine="BP5", path=path)
        command.require(TIMEOUT_S)
        (row,) = json.loads(result.read_text())
        return {"nodes": len(nodes), "ranks": ranks * len(nodes), "method": f"{kind}:{method}", **row}

    def stream(self, method: str, rate: float) -> Row:
        """Measures a stream from node 0 to node 1."""
        for node in (0, 1):
            self.cluster.link(node, rate=rate)
        more = {
            "method": method,
            "engine": "SST",
            "path": self.options.tmpfs / f"stream-{METHODS.index(method)}-{rate}",
        }
        sending, sent = self.start("send", [0], 1, kind="weak", **more)
        receiving, received = self.start("receive", [1], 1, **more)
        receiving.require(TIMEOUT_S)
        sending.require(TIMEOUT_S)
        for node in (0, 1):
            self.cluster.link(node, rate=0)
        rows = [json.loads(result.read_text())[0] for result in (sent, received)]
        return {"rate": rate, "method": method, **rows[0], "step_seconds": rows[1]["step_seconds"]}


def collect(options: argparse.Namespace) -> Document:
    import cluster as of_tests
    import cusz_core
    import cusz_operator

    document: Document = {"head": runner.machine(options.repeat, size=options.size), "files": [], "streams": []}
    environment = {
        "ADIOS2_PLUGIN_PATH": str(cusz_operator.plugin_path()),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    with of_tests.nodes(max(*options.nodes, 2), environment) as nodes, in_ranks.scratch(options) as here:
        field = np.load(here.tmpfs / "field.npy")
        eb = REL * float(field.max() - field.min())
        archive = cusz_core.compress(field, eb, **OPTIONS)
        calls = {
            "compress": lambda: cusz_core.compress(field, eb, **OPTIONS),
            "decompress": lambda: cusz_core.decompress(archive, threads=1),
        }
        speeds = {name: field.nbytes / runner.median_seconds(call, options.repeat) for name, call in calls.items()}
        document["speeds"] = {"ratio": field.nbytes / len(archive), **speeds}
        runs = Runs(nodes, here)
        plan = [(kind, n, method) for kind in ("strong", "weak") for n in options.nodes for method in METHODS]
        for kind, n, method in plan:
            runner.say(f"{kind}, {n} nodes, {method}")
            rows = [runs.file(kind, method, range(n)) for _ in range(options.repeat)]
            best = {key: statistics.median(row[key] for row in rows) for key in ("step_seconds", "whole_seconds")}
            document["files"].append({**rows[0], **best})
        for rate in options.rates:
            for method in METHODS:
                runner.say(f"{rate:g} MB/s, {method}")
                document["streams"].append(runs.stream(method, rate * 1e6))
    return document


# ------------------------------------------------------------------------------------------------------- the model


def stream_seconds(raw_bytes: float, rate: float, speeds: dict[str, float], compressed: bool) -> float:
    """The time of a step of a stream that waits for its receiver: the time of its slowest stage, because the stages of
    successive steps overlap."""
    if not compressed:
        return raw_bytes / rate
    return max(raw_bytes / speeds["compress"], raw_bytes / speeds["ratio"] / rate, raw_bytes / speeds["decompress"])


# ----------------------------------------------------------------------------------------------------------- report


def report(document: Document) -> str:
    head, speeds = document["head"], document["speeds"]
    n = head["size"]
    parts = [
        f"{runner.where(head)}, which all nodes share. Blocks of {n}^3 f32 "
        f"(turbulence, {4e-6 * n**3:.0f} MB), a bound of {REL:g} of the range: ratio {speeds['ratio']:.1f}; one thread "
        f"compresses {speeds['compress'] / 1e9:.2f} GB/s and decompresses {speeds['decompress'] / 1e9:.2f} GB/s. "
        f"Medians of {head['repeat']} runs.",
        "**Files** (BP5), milliseconds a step: *strong*: one block, divided among the ranks; *weak*: one block a rank.",
    ]
    found = {(row["method"], row["nodes"]): row for row in document["files"]}
    lines = []
    for kind in ("strong", "weak"):
        for nodes in dict.fromkeys(row["nodes"] for row in document["files"]):
            own = [found[f"{kind}:{method}", nodes] for method in METHODS]
            lines.append([kind, str(nodes), str(own[0]["ranks"]), f"{own[0]['raw_bytes'] / 1e6:.0f}"])
            lines[-1] += [significant(1e3 * row["step_seconds"]) for row in own]
    files = table(["", "nodes", "ranks", "raw MB", *METHODS], lines)
    text = (
        "**Streams** (SST) from one node to another, milliseconds from one step to the next at the receiver, which "
        "reads every value; in brackets what the model says."
    )
    lines = []
    for rate in dict.fromkeys(row["rate"] for row in document["streams"]):
        line = [f"{rate / 1e6:g}"]
        times = []
        for method in METHODS:
            (row,) = (r for r in document["streams"] if (r["rate"], r["method"]) == (rate, method))
            modelled = stream_seconds(row["raw_bytes"], rate, speeds, method == "Writer")
            times.append(row["step_seconds"])
            line.append(f"{significant(1e3 * row['step_seconds'])} ({significant(1e3 * modelled)})")
        lines.append([*line, significant(times[0] / times[1])])
    beyond = [
        row["step_seconds"] - stream_seconds(row["raw_bytes"], row["rate"], speeds, row["method"] == "Writer")
        for row in document["streams"]
    ]
    text += (
        f" The model leaves out the other costs of a step, here {1e3 * min(beyond):.0f} to {1e3 * max(beyond):.0f} ms: "
        "ADIOS2's messages about it, and the switch, which is a program."
    )
    streams = table(["network, MB/s", *METHODS, "times as fast"], lines)
    even = {cores: cores * speeds["compress"] * (1 - 1 / speeds["ratio"]) for cores in (1, 8, 32, 128)}
    model = (
        "**The model.** Uncompressed, a node's step takes its bytes over the node's share of the bandwidth of the "
        "network or the file system; compressed, the time its cores need to compress it, plus the former time over the "
        "ratio. Compression saves time while the share is below cores x speed x (1 - 1 / ratio), with the speeds "
        "above: "
        + ", ".join(
            f"{value / 1e9:.1f} GB/s for {cores} {'core' if cores == 1 else 'cores'}" for cores, value in even.items()
        )
        + ". (This assumes that all cores reach the speed of one, which memory does not sustain on every machine.)"
    )
    texts = [filled(part) for part in (*parts, text, model)]
    return "\n\n".join([*texts[:2], files, texts[2], streams, texts[3]])


def parser() -> argparse.ArgumentParser:
    options = in_ranks.parser(__doc__, PAGE, size=128, repeat=3, of="runs", tmpfs=tempfile.gettempdir())
    add = options.add_argument
    add("--nodes", type=int, nargs="+", default=[1, 2, 4], metavar="N", help="numbers of nodes (default: 1 2 4)")
    add("--ranks", type=int, default=2, metavar="N", help="on each node (default: 2)")
    add("--rates", type=float, nargs="+", default=[10, 25, 50, 100], metavar="MB", help="MB/s of streams")
    add("--steps", type=int, default=6, metavar="N", help="of a file or stream (default: 6)")
    return options


if __name__ == "__main__":
    parts = {"send": send, "receive": receive}
    sys.exit(in_ranks.main(parser(), parts, collect, report, "scaling", PAGE))
