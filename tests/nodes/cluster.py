"""Nodes of a cluster on this machine, for tests: with nodes(4) as cluster: cluster.mpirun([...]).

A node has its own network, host name, mounts and processes (namespaces), and shares the files of this machine, except
for a private /dev/shm and folder "local". Nodes communicate through TCP and the switch (switch.py), which can delay,
lose and limit traffic, and cut a node off. The network of the machine itself is not touched.

Everything ends with the process that made the cluster, however that ends, because node.py and switch.py hold sockets
to it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from support import MPI_ENVIRONMENT

HERE = Path(__file__).resolve().parent
PREFIX = "10.77.0"  # of addresses, which only the nodes see
PROGRAMS = ("unshare", "ip", "mount")
START_S = 30.0  # time limit for nodes to come up, and to end
MOST_BYTES = 4 << 30  # limit of traffic through the network of a cluster

#: A user's login environment on such a cluster: the network interface, and what starts Open MPI's daemons.
LOGIN = {
    **MPI_ENVIRONMENT,
    "OMPI_MCA_plm_rsh_agent": f"{sys.executable} -I -S {HERE / 'login.py'}",
    "OMPI_MCA_plm": "rsh",
    "OMPI_MCA_btl": "tcp,self,vader",  # between nodes, and within one
    "OMPI_MCA_btl_tcp_if_include": "eth0",
    "OMPI_MCA_oob_tcp_if_include": "eth0",
}


class NoNodesError(Exception):
    """Nodes cannot be made here; the message says why."""


class Command:
    """A command that runs on a node, in its own session."""

    def __init__(self, session: socket.socket, words: Sequence[str], output: Path) -> None:
        self._session = session
        self.words = words
        self._output = output
        self._code: int | None = None

    @property
    def output(self) -> str:
        """What it has printed so far, errors included."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def wait(self, timeout: float) -> int:
        """Its exit status, 128 + n for signal n, 255 if its node has died.

        Raises:
            TimeoutError: it has not ended in time, and was killed.
        """
        if self._code is None:
            self._session.settimeout(timeout)
            try:
                status = self._session.recv(1)
            except TimeoutError:
                self.kill()
                raise TimeoutError(f"after {timeout} s: {' '.join(self.words)}\n{self.output[-4000:]}") from None
            except ConnectionError:
                status = b""
            self._code = status[0] if status else 255
            self._session.close()
        return self._code

    def require(self, timeout: float) -> str:
        """Its output, once it has ended; it must succeed."""
        code = self.wait(timeout)
        assert code == 0, f"{' '.join(self.words)}\nexit status {code}\n{self.output[-4000:]}"
        return self.output

    def text(self, timeout: float) -> str:
        """Its output, once it has ended, successfully or not."""
        self.wait(timeout)
        return self.output

    def kill(self) -> None:
        """Kills it, and everything that it has started in its session."""
        self._session.close()


class Cluster:
    """Nodes node0, node1 and so on, and the switch between them.

    Attributes:
        folder: for the cluster's own files.
        names: of the nodes.
        local: path of the folder that is private on every node.
        namespaces: PID namespaces, which identify the processes of a node.
    """

    def __init__(
        self, n: int, environment: Mapping[str, str], seed: int = 0, limit: int = MOST_BYTES, pids: int = 1000
    ) -> None:
        """
        Args:
            n: number of nodes.
            environment: login variables, in addition to those of this process.
            seed: for choosing the frames that are lost.
            limit: bytes after which the network is dead.
            pids: process IDs of node i begin after pids * i + 100; 0: they are alike on all nodes.

        Raises:
            NoNodesError: this machine does not allow such nodes, or not to this user.
        """
        missing = [name for name in PROGRAMS if shutil.which(name, path=_search_path()) is None]
        if missing or not sys.platform.startswith("linux"):
            raise NoNodesError(f"not on this machine: {', '.join(missing) or 'Linux'}")
        self.names = [f"node{number}" for number in range(n)]
        self._stack = ExitStack()
        try:
            self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="cusz-nodes-")))
            self.local = self.folder / "local"
            self.local.mkdir()
            self._write_files(environment)
            self._n_outputs = 0
            self._processes, self._sockets, interfaces = self._start_nodes(pids)
            self._control = self._start_switch(interfaces, seed, limit)
        except BaseException:
            self.close()
            raise

    def _write_files(self, environment: Mapping[str, str]) -> None:
        lines = ["127.0.0.1 localhost", *(f"{PREFIX}.{i + 1} {name}" for i, name in enumerate(self.names))]
        (self.folder / "hosts").write_text("\n".join([*lines, ""]), encoding="utf-8")
        self.environment = {
            **os.environ,
            **LOGIN,
            **environment,
            "PATH": _search_path(),
            "HOME": str(self.folder),
            "TMPDIR": str(self.local),
            "CUSZ_NODES": str(self.folder),
        }
        (self.folder / "environment").write_text(json.dumps(self.environment), encoding="utf-8")

    def _start_nodes(self, pids: int) -> tuple[list[subprocess.Popen[bytes]], list[socket.socket], list[int]]:
        """The processes and sockets that keep the nodes alive, and file descriptors of their interfaces."""
        namespaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        node = [sys.executable, "-I", "-S", str(HERE / "node.py")]
        if os.geteuid() != 0:
            namespaces[:0] = ["--user", "--map-root-user"]
        processes, sockets, interfaces = [], [], []
        for name in self.names:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._stack.callback(ours.close)
            command = ["unshare", *namespaces, *node, name, str(self.folder), PREFIX, str(pids)]
            log = self._stack.enter_context((self.folder / f"{name}.log").open("wb"))
            with theirs:
                process = subprocess.Popen(
                    command, stdin=theirs, stdout=log, stderr=log, env=self.environment, start_new_session=True
                )
            self._stack.callback(_end, process)
            processes.append(process)
            sockets.append(ours)
        # Callbacks run in reverse order, so that all sockets are closed first.
        for ours in sockets:
            self._stack.callback(ours.close)
        for name, ours in zip(self.names, sockets, strict=True):
            ours.settimeout(START_S)
            try:
                message, files, *_ = socket.recv_fds(ours, 4096, 1)
            except OSError as error:
                message, files = f"{name}: {error}".encode(), []
            if message != b"ready":
                said = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip()
                raise NoNodesError(message.decode() or said or f"{name} has ended without a message")
            interfaces += files
            self._stack.callback(os.close, files[0])
        self.namespaces = [os.readlink(f"/proc/{process.pid}/ns/pid_for_children") for process in processes]
        return processes, sockets, interfaces

    def _start_switch(self, interfaces: Sequence[int], seed: int, limit: int) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-I", "-S", HERE / "switch.py", seed, limit, *interfaces]
        with theirs:
            process = subprocess.Popen(
                [str(word) for word in command], stdin=theirs, pass_fds=interfaces, start_new_session=True
            )
        self._stack.callback(_end, process)
        self._stack.callback(ours.close)
        ours.settimeout(START_S)
        return ours

    def link(self, node: int | None = None, **settings: Any) -> dict[str, int]:
        """Changes the link of a node, in both directions: `delay` in seconds, `loss` as a fraction of frames, `rate` in
        bytes per second (0: unlimited), `is_cut`. Returns the counters of the switch."""
        self._control.send(json.dumps({} if node is None else {"node": node, **settings}).encode())
        counted: dict[str, int] = json.loads(self._control.recv(1 << 16))
        return counted

    def die(self, node: int) -> None:
        """Ends a node and all of its processes as a power failure would: its connections are not even closed."""
        self.link(node, is_cut=True)
        self._sockets[node].close()  # ends node.py, and hence all processes of the node
        _end(self._processes[node])

    def start(self, node: int, words: Iterable[str | Path], env: Mapping[str, str] | None = None) -> Command:
        """Starts a command on a node, in the cluster's folder."""
        command = [str(word) for word in words]
        self._n_outputs += 1
        output = self.folder / f"output.{self._n_outputs}"
        asked = {"words": command, "env": {**self.environment, **(env or {})}, "folder": str(self.folder)}
        session = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._stack.callback(session.close)
        session.connect(str(self.folder / f"{self.names[node]}.socket"))
        with output.open("wb") as file, open(os.devnull, "rb") as nothing:
            socket.send_fds(session, [json.dumps(asked).encode()], [nothing.fileno(), file.fileno(), file.fileno()])
        return Command(session, command, output)

    def run(self, node: int, words: Iterable[str | Path], timeout: float = 60, **options: Any) -> str:
        """The output of a command, which must succeed in time."""
        return self.start(node, words, **options).require(timeout)

    def mpirun(
        self,
        words: Iterable[str | Path],
        nodes: Sequence[int] | None = None,
        ranks: int = 2,
        mca: Mapping[str, str | int] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Command:
        """Starts a program with `ranks` ranks on each of these nodes (None: all); mpirun runs on the first of them."""
        nodes = range(len(self.names)) if nodes is None else nodes
        hosts = ",".join(f"{self.names[node]}:{ranks}" for node in nodes)
        options = [word for name, value in (mca or {}).items() for word in ("--mca", name, str(value))]
        exported = [word for name, value in (env or {}).items() for word in ("-x", f"{name}={value}")]
        start = ["mpirun", "--host", hosts, "-n", str(ranks * len(nodes)), *options, *exported]
        return self.start(nodes[0], [*start, *words])

    def set_kernel(self, name: str, value: int) -> None:
        """Sets a kernel parameter, such as "net.ipv4.tcp_retries2", on all nodes."""
        path = Path("/proc/sys", *name.split("."))
        for node in range(len(self.names)):
            self.run(node, ["sh", "-c", f"echo {value} > {path}"])

    def processes(self, node: int) -> list[str]:
        """The command lines of the processes of a node, dead or alive."""
        return processes_in(self.namespaces[node])

    def close(self) -> None:
        """Ends the nodes, and removes the cluster's files."""
        self._stack.close()


def processes_in(namespace: str) -> list[str]:
    """The command lines of this machine's processes in a PID namespace."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(folder / "ns" / "pid") == namespace:
                found.append((folder / "cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " "))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def _search_path() -> str:
    own = str(Path(sys.executable).parent)
    return os.pathsep.join([own, os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Waits for a process that should end because its socket was closed; kills it if it does not."""
    try:
        process.wait(START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(START_S)


def wait_until(condition: Any, timeout: float, what: str, *commands: Command) -> Any:
    """Waits until the condition is true, and returns its value; on a timeout, fails with the commands' output."""
    give_up = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise AssertionError("\n".join([f"not within {timeout} s: {what}", *(one.output for one in commands)]))
        time.sleep(0.01)
    return found


@contextmanager
def nodes(n: int, environment: Mapping[str, str], **options: Any) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    cluster = Cluster(n, environment, **options)
    try:
        yield cluster
    finally:
        cluster.close()
