#!/usr/bin/env python3
"""Measures runs over several nodes, with and without compression, beside a model of what they take.

    .venv/bin/python scripts/bench/scaling.py               # everything, about 8 minutes
    .venv/bin/python scripts/bench/scaling.py --docs        # also rewrites its section of docs/performance.md
    .venv/bin/python scripts/bench/scaling.py --nodes 1 2 --rates 50 --size 48 --steps 3      # a small part of it

The nodes are those of tests/nodes, on this machine: they share its cores and its disk, and have a network of their own,
whose rate is set. So what is measured is the cost of working together, and what a slow network costs; not how many
nodes compute faster than one. The model takes over there: its inputs are the speeds measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparison import measure
from comparison.fields import turbulence
from comparison.report import significant

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "nodes")]

DOCS = ROOT / "docs/performance.md"
PICTURE = ROOT / "docs/figures/scaling.svg"
MARKS = ("<!-- scaling: begin -->", "<!-- scaling: end -->")
REL = 1e-3  # of the field's range
TIMEOUT_S = 300.0
METHODS = ("ADIOS2 alone", "Writer")
STREAM = {"RendezvousReaderCount": "1", "DataTransport": "WAN", "OpenTimeoutSecs": "60", "QueueLimit": "1"}

Row = dict[str, Any]


# --------------------------------------------------------------------------------------------------- a rank's work


def output(method: str, path: str, comm: Any, eb: float, engine: str, parameters: dict[str, str]) -> Any:
    """A function that writes a step of one block of each rank, and one that closes the file or stream."""
    if method == "Writer":
        import cusz_operator

        out = cusz_operator.Writer(
            path,
            comm,
            eb=eb,
            engine=engine,
            parameters=parameters,
            threads=1,
            progress=False,  # type: ignore[arg-type]
        )

        def step(array: Any, shape: Sequence[int], start: Sequence[int]) -> None:
            with out.step():
                out.put("T", array, shape, start)

        return step, out.close
    import adios2

    adios = adios2.Adios(comm=comm)
    io = adios.declare_io("plain")
    io.set_engine(engine)
    io.set_parameters({"StatsLevel": "0", **parameters})
    stream = io.open(path, adios2.Mode.Write, comm)
    kept = [adios]  # must outlive the engine

    def plain_step(array: Any, shape: Sequence[int], start: Sequence[int]) -> None:
        stream.begin_step()
        variable = io.inquire_variable("T") or io.define_variable(
            "T", array, list(shape), list(start), list(array.shape)
        )
        stream.put(variable, array, adios2.Mode.Sync)
        stream.end_step()

    def close() -> None:
        stream.close()
        kept.clear()

    return plain_step, close


def send(options: argparse.Namespace) -> Row:
    """Writes steps of a block of each rank; the time of each for the slowest rank."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    field = np.load(options.field)
    n = field.shape[0] if options.method.startswith("weak") else field.shape[0] // comm.size
    own = np.ascontiguousarray(np.roll(field, 17 * comm.rank, 1)[:n])
    eb = REL * float(field.max() - field.min())
    method = options.method.split(":")[1]
    step, close = output(method, options.path, comm, eb, options.engine, STREAM if options.engine == "SST" else {})
    times = []
    began = time.perf_counter()
    for number in range(options.steps + 1):
        comm.Barrier()
        start = time.perf_counter()
        step(np.roll(own, number, 2), (n * comm.size, *own.shape[1:]), (n * comm.rank, 0, 0))
        times.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
    close()
    whole = comm.allreduce(time.perf_counter() - began, MPI.MAX)
    return {"step_seconds": statistics.median(times[1:]), "whole_seconds": whole, "raw_bytes": own.nbytes * comm.size}


def receive(options: argparse.Namespace) -> Row:
    """Receives a stream; the time from one step to the next."""
    from mpi4py import MPI

    import cusz_operator

    arrived = []
    with cusz_operator.Reader(options.path, MPI.COMM_WORLD, engine="SST", parameters=STREAM, threads=1) as run:
        for step in run:
            step.read("T")
            arrived.append(time.perf_counter())
    return {"step_seconds": (arrived[-1] - arrived[0]) / (len(arrived) - 1)}


def rank_main(options: argparse.Namespace) -> int:
    from mpi4py import MPI

    try:
        row = {"send": send, "receive": receive}[options.part](options)
        if MPI.COMM_WORLD.rank == 0:
            options.json.write_text(json.dumps(row))
    except BaseException:
        import traceback

        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
    return 0


# ----------------------------------------------------------------------------------------------------- measurements


class Runs:
    """Starts parts on the nodes of a cluster."""

    def __init__(self, cluster: Any, folder: Path, steps: int) -> None:
        self.cluster, self.folder, self.steps = cluster, folder, steps
        self._n = 0

    def start(self, part: str, method: str, nodes: Sequence[int], ranks: int, engine: str, path: Path) -> Any:
        self._n += 1
        result = self.folder / f"{self._n}.json"
        words = ["--part", part, "--method", method, "--engine", engine, "--path", path, "--json", result]
        words += ["--field", self.folder / "field.npy", "--steps", self.steps]
        command = self.cluster.mpirun([sys.executable, __file__, *words], nodes=nodes, ranks=ranks)
        return command, result

    def file(self, method: str, nodes: Sequence[int], ranks: int) -> Row:
        path = self.folder / "run.bp"
        command, result = self.start("send", method, nodes, ranks, "BP5", path)
        command.require(TIMEOUT_S)
        row: Row = json.loads(result.read_text())
        return {"nodes": len(nodes), "ranks": ranks * len(nodes), "method": method, **row}

    def stream(self, method: str, rate: float) -> Row:
        """From node 0 to node 1."""
        for node in (0, 1):
            self.cluster.link(node, rate=rate)
        self._n += 1
        path = self.folder / f"stream{self._n}"
        sending, sent = self.start("send", f"weak:{method}", [0], 1, "SST", path)
        receiving, received = self.start("receive", method, [1], 1, "SST", path)
        receiving.require(TIMEOUT_S)
        sending.require(TIMEOUT_S)
        for node in (0, 1):
            self.cluster.link(node, rate=0)
        return {
            "rate": rate,
            "method": method,
            "raw_bytes": json.loads(sent.read_text())["raw_bytes"],
            "step_seconds": json.loads(received.read_text())["step_seconds"],
        }


def collect(options: argparse.Namespace) -> dict[str, Any]:
    import cluster as of_tests
    import cusz_core
    import cusz_operator

    field = turbulence(options.size)
    eb = REL * float(field.max() - field.min())
    archive = cusz_core.compress(field, eb, threads=1)

    def seconds(call: Any) -> float:
        times = []
        for _ in range(options.repeat + 1):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return statistics.median(times[1:])

    document: dict[str, Any] = {
        "head": measure.head((), measure.Plan(ebs=(), tools=(), repeat=options.repeat)) | {"size": options.size},
        "speeds": {
            "ratio": field.nbytes / len(archive),
            "compress": field.nbytes / seconds(lambda: cusz_core.compress(field, eb, threads=1)),
            "decompress": field.nbytes / seconds(lambda: cusz_core.decompress(archive, threads=1)),
        },
        "files": [],
        "streams": [],
    }
    environment = {
        "ADIOS2_PLUGIN_PATH": str(cusz_operator.plugin_path()),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    with (
        of_tests.nodes(max(*options.nodes, 2), environment) as nodes,
        tempfile.TemporaryDirectory(prefix="cusz-scaling-") as folder,
    ):
        np.save(Path(folder) / "field.npy", field)
        runs = Runs(nodes, Path(folder), options.steps)
        plan = [(kind, n, method) for kind in ("strong", "weak") for n in options.nodes for method in METHODS]
        for kind, n, method in plan:
            print(f"{kind}, {n} nodes, {method}", file=sys.stderr, flush=True)
            rows = [runs.file(f"{kind}:{method}", range(n), options.ranks) for _ in range(options.repeat)]
            best = {key: statistics.median(row[key] for row in rows) for key in ("step_seconds", "whole_seconds")}
            document["files"].append({**rows[0], **best})
        for rate in options.rates:
            for method in METHODS:
                print(f"{rate:g} MB/s, {method}", file=sys.stderr, flush=True)
                document["streams"].append(runs.stream(method, rate * 1e6))
    return document


# ------------------------------------------------------------------------------------------------------- the model


def stream_seconds(raw_bytes: float, rate: float, speeds: dict[str, float], compressed: bool) -> float:
    """A step of a stream that waits for its receiver: what the slowest of its stages takes, one after the other in a
    stage, stages side by side."""
    if not compressed:
        return raw_bytes / rate
    return max(raw_bytes / speeds["compress"], raw_bytes / speeds["ratio"] / rate, raw_bytes / speeds["decompress"])


def saved(bandwidth: float, cores: int, speeds: dict[str, float]) -> float:
    """By how much a step is shorter: a node's data written with this bandwidth as they are, over compressed by so many
    cores and then written."""
    return (1 / bandwidth) / (1 / (cores * speeds["compress"]) + 1 / (speeds["ratio"] * bandwidth))


def draw(document: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "cusz"
    from matplotlib import pyplot as plt

    speeds = document["speeds"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    rates = np.geomspace(5e6, 1e9, 100)
    raw = document["streams"][0]["raw_bytes"] if document["streams"] else 1e7
    for method, colour in zip(METHODS, ("tab:gray", "tab:blue"), strict=True):
        modelled = [stream_seconds(raw, rate, speeds, method == "Writer") for rate in rates]
        left.plot(rates / 1e6, modelled, color=colour, label=f"{method}, model")
        rows = [row for row in document["streams"] if row["method"] == method]
        left.plot([r["rate"] / 1e6 for r in rows], [r["step_seconds"] for r in rows], "o", color=colour, label=method)
    left.set(
        xscale="log", yscale="log", xlabel="network, MB/s", ylabel="seconds a step", title="A stream between nodes"
    )
    left.legend()
    bandwidths = np.geomspace(1e7, 1e11, 200)
    for cores in (1, 8, 32, 128):
        right.plot(bandwidths / 1e9, [saved(b, cores, speeds) for b in bandwidths], label=f"{cores} cores")
    right.axhline(1, color="black", linewidth=0.8)
    right.set(xscale="log", yscale="log", xlabel="a node's share of the file system, GB/s", ylabel="times as fast")
    right.set_title("Writing, model: compressed over as it is")
    right.legend()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


# ----------------------------------------------------------------------------------------------------------- report


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def report(document: dict[str, Any]) -> str:
    head, speeds = document["head"], document["speeds"]
    n = head["size"]
    parts = [
        f"{head['date'][:10]}; {head['cpu']}, {head['cores']} cores, which all nodes share. Blocks of {n}^3 f32 "
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
    texts = [textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) for text in parts]
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
        f" The model leaves out what a step costs besides, here {1e3 * min(beyond):.0f} to {1e3 * max(beyond):.0f} ms: "
        "ADIOS2's messages about it, and the switch, which is a program."
    )
    streams = table(["network, MB/s", *METHODS, "times as fast"], lines)
    even = {cores: cores * speeds["compress"] * (1 - 1 / speeds["ratio"]) for cores in (1, 8, 32, 128)}
    model = (
        "**The model.** Written as it is, a node's step takes its bytes over the node's share of the network or the "
        "file system; compressed, what its cores take to compress, and a ratio-th of that time. Compression saves time "
        "while the share is below cores x speed x (1 - 1 / ratio), with the speeds above: "
        + ", ".join(
            f"{value / 1e9:.1f} GB/s for {cores} {'core' if cores == 1 else 'cores'}" for cores, value in even.items()
        )
        + ". (All cores at the speed of one, which memory does not sustain on every machine.)"
    )
    texts += [textwrap.fill(part, 120, break_long_words=False, break_on_hyphens=False) for part in (text, model)]
    picture = "![A stream at several rates of the network; writing with and without compression](figures/scaling.svg)"
    return "\n\n".join([*texts[:2], files, texts[2], streams, texts[3], picture])


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = options.add_argument
    add("--nodes", type=int, nargs="+", default=[1, 2, 4], metavar="N", help="numbers of nodes (default: 1 2 4)")
    add("--ranks", type=int, default=2, metavar="N", help="on each node (default: 2)")
    add("--rates", type=float, nargs="+", default=[10, 25, 50, 100], metavar="MB", help="MB/s of streams")
    add("--size", type=int, default=128, metavar="N", help="cells along each axis of a block (default: 128)")
    add("--steps", type=int, default=6, metavar="N", help="of a file or stream (default: 6)")
    add("--repeat", type=int, default=3, metavar="N", help="number of runs; medians are kept (default: 3)")
    add("--json", type=Path, metavar="FILE", help="write the rows")
    add("--docs", action="store_true", help="rewrite the section of docs/performance.md, and its picture")
    for hidden in ("--part", "--method", "--engine", "--path"):
        add(hidden, help=argparse.SUPPRESS)
    add("--field", type=Path, help=argparse.SUPPRESS)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.part:
        return rank_main(options)
    document = collect(options)
    text = report(document)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.docs:
        draw(document, PICTURE)
        before, _, rest = DOCS.read_text().partition(MARKS[0])
        DOCS.write_text(f"{before}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
