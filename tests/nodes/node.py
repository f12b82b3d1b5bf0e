"""Process 1 of a node: python node.py NAME FOLDER PREFIX PIDS, in its own namespaces (see cluster.py).

It sets up the node's name, network interface and local disk, and then starts commands for login.py, as an ssh daemon
would. Its standard input is a socket, to which it passes the interface's file descriptor. The node ends when the socket
is closed, because the kernel ends all processes of a PID namespace with its process 1.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

INTERFACE = "eth0"
MTU = 9000
#: From <linux/if_tun.h>.
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
MOST_BYTES_OF_COMMAND = 1 << 18
N_FILES = 3  # a command comes with its standard input, output and error


def address(number: int) -> str:
    """The MAC address of a node's interface; its last byte tells the switch which node it is."""
    return f"02:00:00:00:00:{number + 1:02x}"


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip() or f'exit status {done.returncode}'}")


def set_up(number: int, folder: Path, prefix: str, pids: int) -> int:
    """Gives the node its name, interface and disk. Returns the file descriptor of the interface's other end."""
    socket.sethostname(f"node{number}")
    # SST tells processes of several nodes apart by process ID and by the second in which they started.
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(pids * number + 100), encoding="ascii")
    Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1", encoding="ascii")
    interface = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    request = struct.pack("16sH22x", INTERFACE.encode(), _IFF_TAP | _IFF_NO_PI)
    fcntl.ioctl(interface, _TUNSETIFF, request)
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "set", INTERFACE, "address", address(number), "mtu", str(MTU), "up")
    _run("ip", "address", "add", f"{prefix}.{number + 1}/24", "dev", INTERFACE)
    _run("mount", "-t", "tmpfs", "-o", "size=256m", "none", str(folder / "local"))
    _run("mount", "-t", "tmpfs", "-o", "size=256m", "none", "/dev/shm")
    _run("mount", "--bind", str(folder / "hosts"), "/etc/hosts")
    return interface


class Sessions:
    """The commands that were started from outside."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._of_pid: dict[int, socket.socket] = {}
        self.events = selectors.DefaultSelector()
        self.events.register(listener, selectors.EVENT_READ, self.accept)

    def accept(self) -> None:
        """Starts a command: {"words", "env", "folder"}, which comes with its standard streams."""
        session, _ = self._listener.accept()
        files = array.array("i")
        try:
            message, ancillary, *_ = session.recvmsg(MOST_BYTES_OF_COMMAND, socket.CMSG_SPACE(N_FILES * files.itemsize))
            for _, _, content in ancillary:
                files.frombytes(content)
            asked = json.loads(message)
            words = ["sh", "-c", 'cd "$0" && exec "$@"', asked["folder"], *asked["words"]]
            actions = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate(files)]
            signals = {signal.SIGCHLD, signal.SIGPIPE}
            pid = os.posix_spawnp(
                "sh", words, asked["env"], file_actions=actions, setsid=True, setsigmask=(), setsigdef=signals
            )
        except (OSError, ValueError) as error:
            print(f"node.py: cannot start a command: {error}", file=sys.stderr, flush=True)
            session.close()
            return
        finally:
            for file in files:
                os.close(file)
        self._of_pid[pid] = session
        self.events.register(session, selectors.EVENT_READ, lambda: self.end(pid))

    def end(self, pid: int) -> None:
        """Kills a command whose session was closed from outside, unless it has just ended by itself."""
        if pid in self._of_pid:
            self._close(pid)
            os.killpg(pid, signal.SIGKILL)

    def reap(self, signals: bytes) -> None:
        """Reaps processes that have ended, including orphans, and sends their exit status to whoever waits for it."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._of_pid:
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(ConnectionError):  # whoever started it may have left
                    self._of_pid[pid].send(bytes([code if code >= 0 else 128 - code]), socket.MSG_NOSIGNAL)
                self._close(pid)

    def _close(self, pid: int) -> None:
        session = self._of_pid.pop(pid)
        self.events.unregister(session)
        session.close()


def main() -> None:
    name, folder, prefix, pids = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    outside = socket.socket(fileno=0)
    try:
        interface = set_up(int(name.removeprefix("node")), folder, prefix, pids)
    except OSError as error:
        outside.send(f"{name}: {error}".encode())
        raise SystemExit(1) from error
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(folder / f"{name}.socket"))
    listener.listen(64)
    socket.send_fds(outside, [b"ready"], [interface])
    os.close(interface)

    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    sessions = Sessions(listener)
    sessions.events.register(woken, selectors.EVENT_READ, lambda: sessions.reap(os.read(woken, 4096)))
    sessions.events.register(outside, selectors.EVENT_READ, sys.exit)
    while True:
        for key, _ in sessions.events.select():
            key.data()


if __name__ == "__main__":
    main()
