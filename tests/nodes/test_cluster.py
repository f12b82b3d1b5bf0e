"""The nodes that the other tests use: what they share, what they do not share, and that they leave nothing behind."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cluster as clusters
import switch
from cluster import processes_in, wait_until

TESTS = Path(__file__).resolve().parents[1]


def test_what_nodes_have_of_their_own(start: Callable) -> None:
    """Names, addresses, processes and a disk; all nodes share the files of the machine."""
    cluster = start(3)
    assert [cluster.run(node, ["hostname"]).strip() for node in range(3)] == ["node0", "node1", "node2"]
    assert cluster.run(2, ["getent", "hosts", "node1"]).split() == [f"{clusters.PREFIX}.2", "node1"]
    interfaces = json.loads(cluster.run(1, ["ip", "-json", "address"]))
    assert [interface["ifname"] for interface in interfaces] == ["lo", "eth0"]
    assert [a["local"] for interface in interfaces for a in interface["addr_info"]] == ["127.0.0.1", "10.77.0.2"]
    cluster.run(0, ["sh", "-c", f"echo zero > {cluster.local}/own; echo zero > /dev/shm/own; echo all > shared"])
    assert cluster.run(1, ["cat", "shared"]) == "all\n"
    assert cluster.start(1, ["cat", cluster.local / "own"]).wait(10) != 0
    assert cluster.start(1, ["cat", "/dev/shm/own"]).wait(10) != 0
    assert len(cluster.run(1, ["sh", "-c", "echo /proc/[0-9]*"]).split()) == 2, "another node's processes are seen"
    assert cluster.start(1, ["sh", "-c", "exit 3"]).wait(10) == 3
    assert cluster.start(1, ["sh", "-c", "kill -9 $$"]).wait(10) == 128 + signal.SIGKILL


def test_nothing_is_left_of_a_cluster(start: Callable) -> None:
    own = Path("/proc/self/mountinfo").read_text(encoding="utf-8"), sorted(os.listdir("/sys/class/net"))
    cluster = start(3)
    assert len(set(cluster.namespaces)) == 3
    cluster.start(0, ["sleep", "1000"])
    cluster.run(1, ["sh", "-c", "setsid sleep 1000 &"])  # a daemon
    wait_until(lambda: len(cluster.processes(0)) == len(cluster.processes(1)) == 2, 10, "both commands run")
    cluster.die(2)
    cluster.close()
    assert [cluster.processes(node) for node in range(3)] == [[], [], []]
    assert not cluster.folder.exists()
    now = Path("/proc/self/mountinfo").read_text(encoding="utf-8"), sorted(os.listdir("/sys/class/net"))
    assert now == own


ENDED = """
import json, os, select, socket, sys
sys.path.insert(0, sys.argv[1])
import node
path = sys.argv[2]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen()
sessions = node.Sessions(listener)
outside = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
outside.connect(path)
asked = {"words": ["true"], "env": dict(os.environ), "folder": "/"}
socket.send_fds(outside, [json.dumps(asked).encode()], [0, 1, 2])
sessions.accept()
(key,) = [key for key in sessions.events.get_map().values() if key.fileobj is not listener]
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # it has ended, which the node does not know yet
outside.close()
select.select([key.fileobj], [], [])
sessions.reap(b"")
key.data()  # this was in the same round of events
"""


def test_a_command_that_ends_while_it_is_left_does_not_end_its_node(tmp_path: Path) -> None:
    """Whoever started it no longer waits for it."""
    command = [sys.executable, "-c", ENDED, TESTS / "nodes", tmp_path / "socket"]
    subprocess.run(command, check=True, timeout=60)


KILLED = """
import os, sys, time
sys.path[:0] = sys.argv[1:3]
import cluster
with cluster.nodes(2, {}) as c:
    c.start(1, ["sleep", "1000"])
    print(*c.namespaces, flush=True)
    time.sleep(1000)
"""


def test_a_cluster_ends_with_its_process(start: Callable, tmp_path: Path) -> None:
    start(1).close()  # or the test is skipped
    env = {**os.environ, "TMPDIR": str(tmp_path)}  # for files that a killed process cannot remove
    command = [sys.executable, "-c", KILLED, TESTS, TESTS / "nodes"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        one, two = process.stdout.readline().split()
        wait_until(lambda: len(processes_in(one)) == 1 and len(processes_in(two)) == 2, 10, "node1 runs a command")
        process.kill()
    wait_until(lambda: not processes_in(one) and not processes_in(two), 10, "all processes of the nodes have ended")


def test_why_there_are_no_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reason is given, and the attempt leaves nothing behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(clusters, "PROGRAMS", ("no-such-program", "ip"))
    with pytest.raises(clusters.NoNodesError, match="not on this machine: no-such-program"):
        clusters.Cluster(2, {})
    monkeypatch.setattr(clusters, "PROGRAMS", ())
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho unshare failed: Operation not permitted >&2; exit 1\n", encoding="ascii")
    refusing.chmod(0o755)
    monkeypatch.setattr(clusters, "_search_path", lambda: f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(clusters.NoNodesError, match="Operation not permitted"):
        clusters.Cluster(2, {})
    assert [path.name for path in tmp_path.iterdir()] == ["unshare"]


SERVE = """
import socket, sys
with socket.create_server(("", 5000)) as server:
    print("listens", flush=True)
    connection, _ = server.accept()
    got = 0
    while data := connection.recv(1 << 16):
        got += len(data)
    print(got)
"""
SEND = """
import socket, sys
with socket.create_connection(("node0", 5000), timeout=float(sys.argv[2])) as connection:
    connection.sendall(bytes(int(sys.argv[1])))
"""


def send(cluster: clusters.Cluster, n: int, timeout: float = 20) -> tuple[clusters.Command, clusters.Command]:
    server = cluster.start(0, [sys.executable, "-c", SERVE])
    wait_until(lambda: "listens" in server.output, 20, "the server listens")
    return server, cluster.start(1, [sys.executable, "-c", SEND, str(n), str(timeout)])


@pytest.mark.parametrize("link", [{}, {"delay": 0.01, "loss": 0.01}, {"rate": 4e6}], ids=str)
def test_what_is_sent_arrives(link: dict, start: Callable) -> None:
    """TCP works over any link: lost frames are sent again."""
    cluster = start(2)
    cluster.link(1, **link)
    server, client = send(cluster, 2_000_000)
    client.require(30)
    assert server.require(30).split() == ["listens", "2000000"]
    counted = cluster.link()
    assert counted["bytes"] > 2_000_000
    assert (counted["lost"] > 0) == ("loss" in link)


@pytest.mark.full
def test_a_node_that_is_cut_off(start: Callable) -> None:
    """Traffic is lost while the node is cut off, and works again afterwards."""
    cluster = start(3)
    cluster.link(1, is_cut=True)
    server, client = send(cluster, 100, timeout=1)
    assert client.wait(20) != 0
    assert re.search("timed out|No route to host", client.output)
    assert cluster.link()["cut"] > 0
    cluster.link(1, is_cut=False)
    cluster.run(1, [sys.executable, "-c", SEND, "100", "20"])
    assert server.require(20).split()[1] == "100"


@pytest.mark.full
def test_the_traffic_is_bounded(start: Callable) -> None:
    cluster = start(2, limit=300_000)
    _, client = send(cluster, 5_000_000, timeout=2)
    assert client.wait(20) != 0
    counted = cluster.link()
    assert counted["is_over"]
    assert 300_000 < counted["bytes"] < 300_000 + 20_000


# ------------------------------------------------------------------------------------------------ the switch alone


def frame(receiver: int, content: bytes = b"") -> bytes:
    target = b"\xff" * 6 if receiver < 0 else bytes([2, 0, 0, 0, 0, receiver + 1])
    return target + bytes(8) + content


@pytest.fixture
def wired() -> Iterator[tuple[switch.Switch, list[socket.socket]]]:
    """A switch with three links, and the nodes' ends of them."""
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(3)]
        for end in itertools.chain(*pairs):
            stack.enter_context(end).setblocking(False)
        yield switch.Switch([theirs.fileno() for _, theirs in pairs], 1, 10_000), [ours for ours, _ in pairs]


def arrived(ends: list[socket.socket]) -> list[int]:
    """How many frames have arrived at each node."""
    counted = []
    for end in ends:
        n = 0
        try:
            while end.recv(1 << 16):
                n += 1
        except BlockingIOError:
            counted.append(n)
    return counted


def test_frames_go_where_they_are_sent(wired: tuple) -> None:
    one, ends = wired
    for receiver in (0, 1, 2, 7, -1):
        one.take(0, frame(receiver), 0.0)
    assert arrived(ends) == [0, 2, 2], "not to the sender, not to one that does not exist, broadcasts to all"


def test_delays_add_up_and_keep_order(wired: tuple) -> None:
    one, ends = wired
    one.change(0, delay=1.0)
    one.change(1, delay=2.0)
    one.take(0, frame(2), 0.0)
    one.take(0, frame(1), 0.5)
    one.take(2, frame(0), 0.25)
    assert one.deliver_due(0.9) == pytest.approx(0.1)
    assert arrived(ends) == [0, 0, 0]
    assert one.deliver_due(1.0) == pytest.approx(0.25)
    assert arrived(ends) == [0, 0, 1]
    assert one.deliver_due(3.4) == pytest.approx(0.1)
    assert arrived(ends) == [1, 0, 0]
    assert one.deliver_due(3.5) is None
    assert arrived(ends) == [0, 1, 0]


def test_what_is_lost_is_drawn_by_lot_and_the_same_again(wired: tuple) -> None:
    one, ends = wired
    one.change(1, loss=0.5)
    for _ in range(200):
        one.take(0, frame(1), 0.0)
    (_, n, _) = arrived(ends)
    assert 60 < n < 140
    again = switch.Switch([link.file for link in one.links], 1, 10_000)
    again.change(1, loss=0.5)
    for _ in range(200):
        again.take(0, frame(1), 0.0)
    assert arrived(ends) == [0, n, 0]


def test_a_rate_makes_frames_wait_and_drops_those_that_would_wait_long(wired: tuple) -> None:
    one, ends = wired
    one.change(2, rate=1000.0)  # 100 bytes take 0.1 s
    for _ in range(20):
        one.take(0, frame(2, bytes(86)), 0.0)
    assert one.counted["late"] > 0
    one.deliver_due(0.25)
    assert arrived(ends) == [0, 0, 2]
    one.deliver_due(10.0)
    assert arrived(ends)[2] == 20 - 2 - one.counted["late"]


def test_a_cut_stops_what_is_on_its_way(wired: tuple) -> None:
    one, ends = wired
    one.change(0, delay=1.0)
    one.take(0, frame(1), 0.0)
    one.change(1, is_cut=True)
    one.deliver_due(2.0)
    one.take(0, frame(-1), 2.0)
    one.deliver_due(4.0)
    assert arrived(ends) == [0, 0, 1]
