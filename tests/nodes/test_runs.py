"""Runs over nodes with a network between them: aggregators, streams, slow and lossy links, nodes that fail.

Every run ends with correct files, or with an error on every remaining rank, within the time that its test states.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, wait_until
from support import library_of

pytest.importorskip("adios2")
pytestmark = pytest.mark.mpi

HERE = Path(__file__).resolve().parent
RANKS = HERE.parent / "operator" / "ranks"
#: When Open MPI's daemons give each other up: after 4 s of silence and three unanswered probes, 1 s apart.
NOTICE = {"oob_tcp_keepalive_time": 4, "oob_tcp_keepalive_intvl": 1, "oob_tcp_keepalive_probes": 3}
NOTICE_S = 30.0  # time limit for that, on a busy machine
#: The same for sockets whose programs set nothing (SST), and how often TCP repeats what is not acknowledged.
KERNEL = {
    "net.ipv4.tcp_keepalive_time": 4,
    "net.ipv4.tcp_keepalive_intvl": 1,
    "net.ipv4.tcp_keepalive_probes": 3,
    "net.ipv4.tcp_retries2": 5,
}


def script(name: str, *arguments: str | Path) -> list[str | Path]:
    return [sys.executable, RANKS / name, *arguments]


def said(log: Path, rank: int = 0) -> list[str]:
    """What a rank of faults.py has logged so far."""
    path = Path(f"{log}.rank{rank}")
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def steps_of(log: Path, rank: int = 0) -> int:
    return sum(line.startswith("step ") for line in said(log, rank))


def require_right(cluster: Cluster, path: Path, steps: int) -> int:
    """Checks everything that is there with the Reader and plain ADIOS2, on node0; returns the number of steps."""
    n, *found = cluster.run(0, script("faults.py", "check", path, str(steps))).splitlines()
    assert not found, found
    return int(n)


def long(*cases: Any) -> list[Any]:
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long) for case in cases]


# ------------------------------------------------------------------------------------------------ all is well

AGGREGATION = {
    "one a node": ["AggregationType=TwoLevelShm", "NumAggregators=4"],
    "two a node": ["AggregationType=TwoLevelShm", "NumAggregators=8"],
    "every rank": ["AggregationType=EveryoneWrites"],
    "two, one after the other": ["AggregationType=EveryoneWritesSerial", "NumAggregators=2"],
}


@pytest.mark.full
@pytest.mark.parametrize("name", ["one a node", "every rank", *long("two a node", "two, one after the other")])
def test_aggregators_on_four_nodes(name: str, start: Callable, tmp_path: Path) -> None:
    """Ranks on four nodes write with the plugin in plain ADIOS2; one process, and three nodes, read. 120 s."""
    cluster = start(4)
    kind = ",".join(["BP5,0,Sync", *AGGREGATION[name]])
    cluster.mpirun(script("write.py", tmp_path, kind)).require(60)
    file = tmp_path / "BP5_0_Sync.bp"
    expected = {"one a node": 4, "two a node": 8, "every rank": 4, "two, one after the other": 2}
    assert len(list(file.glob("data.*"))) == expected[name]
    assert "selections" in cluster.run(1, script("read.py", f"random,BP5,{file}"))
    reading = cluster.mpirun(script("read.py", f"stream,BP5,{file}"), nodes=[1, 2, 3], ranks=1)
    assert "selections" in reading.require(60)
    assert cluster.link()["bytes"] > 100_000, "the ranks did not talk to each other over the network"


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("engine", "link"),
    [
        *[("BP5", {}), ("BP4", {})],
        *[("BP5", {"delay": 0.05}), ("BP5", {"rate": 500_000}), ("BP5", {"delay": 0.005, "loss": 0.01})],
    ],
    ids=str,
)
def test_the_writer_on_four_nodes(engine: str, link: dict[str, Any], start: Callable, tmp_path: Path) -> None:
    """Even if one of them has a worse link than the others, what is written is correct. 120 s."""
    cluster = start(4)
    cluster.link(2, **link)
    path = tmp_path / "run.bp"
    cluster.mpirun(script("faults.py", "steps", path, engine, "4")).require(120)
    assert require_right(cluster, path, 4) == 4


def streaming(
    cluster: Cluster, folder: Path, steps: int, writers: list[int], readers: list[int], **options: Any
) -> Any:
    """Starts a stream from Writers on some nodes to Readers on others; log files are folder/sent and folder/got."""
    stream = folder / "sent"
    sending = cluster.mpirun(script("faults.py", "steps", stream, "SST", str(steps)), nodes=writers, **options)
    log = {"LOG": str(folder / "got")}
    command = script("faults.py", "receive", stream, "SST")
    return sending, cluster.mpirun(command, nodes=readers, env=log, **options)


@pytest.mark.full
def test_a_stream_over_a_slow_and_lossy_network(start: Callable, tmp_path: Path) -> None:
    """From four nodes to three, with 20 ms one-way latency and 1% of frames lost; receivers check values. 120 s."""
    cluster = start(7)
    for node in range(7):
        cluster.link(node, delay=0.01, loss=0.005)
    sending, receiving = streaming(cluster, tmp_path, 5, [0, 1, 2, 3], [4, 5, 6], ranks=1)
    receiving.require(120)
    sending.require(30)
    for rank in range(3):
        assert [line for line in said(tmp_path / "got", rank) if "step" in line] == [f"step {i}" for i in range(5)]
    assert cluster.link()["lost"] > 0


@pytest.mark.full
def test_a_stream_between_processes_with_the_same_numbers(start: Callable, tmp_path: Path) -> None:
    """On four nodes and three, with equal process IDs as in containers: SST would confuse them and crash. 120 s."""
    cluster = start(7, pids=0)
    sending, receiving = streaming(cluster, tmp_path, 3, [0, 1, 2, 3], [4, 5, 6], ranks=1)
    receiving.require(120)
    sending.require(30)
    assert len({said(tmp_path / "sent", rank)[0] for rank in range(4)}) < 4, "their numbers differ"


# ------------------------------------------------------------------------------------------------ clocks that differ


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that shifts the time of day, node by node."""
    return library_of(HERE / "clock.c", tmp_path_factory.mktemp("clock"))


@pytest.mark.full
def test_clocks_that_differ(clock: Path, start: Callable, tmp_path: Path) -> None:
    """Differences of days and seconds, for a file that is written, read and appended to, and for a stream. 180 s."""
    cluster = start(4)
    env = {"LD_PRELOAD": str(clock), "CLOCKS": "node0=0 node1=-86400 node2=7 node3=400000000"}
    told = [cluster.run(node, ["date", "+%s"], env=env) for node in range(4)]
    now = time.time()
    for shift, text in zip([0, -86400, 7, 400_000_000], told, strict=True):
        assert abs(int(text) - now - shift) < 60
    path = tmp_path / "run.bp"
    cluster.mpirun(script("faults.py", "steps", path, "BP5", "2"), env=env).require(60)
    cluster.mpirun(script("faults.py", "steps", path, "BP5", "2", "2"), nodes=[3, 1], env=env).require(60)
    assert require_right(cluster, path, 4) == 4
    stream = tmp_path / "sent"
    sending = cluster.mpirun(script("faults.py", "steps", stream, "SST", "3"), nodes=[0, 1], ranks=1, env=env)
    env["LOG"] = str(tmp_path / "got")
    cluster.mpirun(script("faults.py", "receive", stream, "SST"), nodes=[3, 2], ranks=1, env=env).require(60)
    sending.require(30)


# ------------------------------------------------------------------------------------------------ devices


def test_ranks_take_the_devices_of_their_node(start: Callable) -> None:
    """Three ranks on each of three nodes with two devices: ranks are counted per node. 60 s."""
    cluster = start(3)
    command = cluster.mpirun(script("two_devices.py", "devices", "--mpi", "--json"), ranks=3)
    command.require(60)
    lines = command.output.splitlines()
    bindings = json.loads("".join(lines[lines.index("[") : lines.index("]") + 1]))
    assert [(b["rank"], b["node"], b["node_rank"], b["node_size"], b["device"], b["sharing"]) for b in bindings] == [
        (3 * node + place, f"node{node}", place, 3, place % 2, 2 - place % 2) for node in range(3) for place in range(3)
    ]
    for node in range(3):
        assert command.output.count(f"3 ranks on node{node} share 2 CUDA devices") == 1


# ------------------------------------------------------------------------------------------------ nodes that fail


def cut(cluster: Cluster, node: int, log: Path) -> None:
    cluster.link(node, is_cut=True)


def die(cluster: Cluster, node: int, log: Path) -> None:
    cluster.die(node)


def kill_rank(cluster: Cluster, node: int, log: Path) -> None:
    """Kills the node's first rank; there are two ranks on every node."""
    cluster.run(node, ["kill", "-9", said(log, 2 * node)[0].split()[1]])


FAILURES = {"cut": cut, "die": die, "rank": kill_rank}


def no_rank_is_left(cluster: Cluster) -> bool:
    return not any("faults.py" in words for node in range(len(cluster.names)) for words in cluster.processes(node))


@pytest.mark.full
@pytest.mark.parametrize(
    ("engine", "fail"),
    [("BP5", "cut"), ("BP5", "die"), ("BP4", "rank"), *long(("BP5", "rank"), ("BP4", "cut"), ("BP4", "die"))],
)
def test_a_node_fails_while_ranks_write(engine: str, fail: str, start: Callable, tmp_path: Path) -> None:
    """All ranks end within NOTICE_S, even those on a node that is cut off; complete steps are right, and a run on the
    remaining nodes goes on from there. 180 s."""
    cluster = start(4)
    path = tmp_path / "run.bp"
    writing = cluster.mpirun(script("faults.py", "steps", path, engine, "1000000"), mca=NOTICE)
    wait_until(lambda: steps_of(path) >= 3, 60, "three steps are written", writing)
    FAILURES[fail](cluster, 2, path)
    assert writing.wait(NOTICE_S) != 0
    assert (fail == "rank") != ("ORTE has lost communication with a remote daemon." in writing.output)
    wait_until(lambda: no_rank_is_left(cluster), NOTICE_S, "all ranks have ended", writing)
    n = require_right(cluster, path, steps_of(path))
    cluster.mpirun(script("faults.py", "steps", path, engine, "2", str(n)), nodes=[0, 1, 3], ranks=1).require(60)
    assert require_right(cluster, path, n + 2) == n + 2


def stream_that_loses(*nodes: int, fail: str, cluster: Cluster, folder: Path) -> Any:
    """The commands that send (nodes 0 and 1) and receive (nodes 2 and 3), after the given nodes have disappeared."""
    for name, value in KERNEL.items():
        cluster.set_kernel(name, value)
    sending, receiving = streaming(cluster, folder, 100_000, [0, 1], [2, 3], ranks=1, mca=NOTICE)
    wait_until(lambda: steps_of(folder / "got", 1) >= 3, 60, "three steps are received", sending, receiving)
    for node in nodes:
        cluster.link(node, is_cut=True)
        if fail == "die":
            cluster.die(node)
    return sending, receiving


@pytest.mark.full
@pytest.mark.parametrize("fail", ["die", *long("cut")])
def test_readers_disappear_while_they_receive(fail: str, start: Callable, tmp_path: Path) -> None:
    """Both nodes at once. The writer waits for them while its queue is full, and goes on when TCP gives up their
    connections: within NOTICE_S, with KERNEL. 120 s."""
    sending, receiving = stream_that_loses(2, 3, fail=fail, cluster=start(4), folder=tmp_path)
    sent = steps_of(tmp_path / "sent")
    wait_until(lambda: steps_of(tmp_path / "sent") > sent + 20, NOTICE_S, "the writer goes on", sending)
    sending.kill()
    assert receiving.wait(NOTICE_S) != 0


@pytest.mark.full
@pytest.mark.parametrize("fail", ["cut", *long("die")])
def test_a_reader_disappears_while_it_receives(fail: str, start: Callable, tmp_path: Path) -> None:
    """One of two nodes: the readers' job ends with an error, and the writer goes on. 120 s."""
    sending, receiving = stream_that_loses(3, fail=fail, cluster=start(4), folder=tmp_path)
    assert receiving.wait(NOTICE_S) != 0
    sent = steps_of(tmp_path / "sent")
    wait_until(lambda: steps_of(tmp_path / "sent") > sent + 20, NOTICE_S, "the writer goes on", sending)
    sending.kill()


@pytest.mark.full
@pytest.mark.parametrize("fail", ["cut", *long("die")])
def test_the_writer_disappears_while_it_sends(fail: str, start: Callable, tmp_path: Path) -> None:
    """Both of its nodes at once: the readers end with an error within NOTICE_S, with KERNEL. 120 s."""
    _, receiving = stream_that_loses(0, 1, fail=fail, cluster=start(4), folder=tmp_path)
    assert receiving.wait(NOTICE_S) != 0, receiving.output
