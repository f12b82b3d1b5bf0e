"""The network of the nodes, which can delay, lose and limit traffic: python switch.py SEED LIMIT FD...

Each FD is the end of a node's interface (TAP), in the order of the nodes. Standard input is a socket of messages that
control the switch while it runs: {"node": 1, "delay": 0.01, "loss": 0.01, "rate": 1e6, "is_cut": true} changes the link
of a node (settings that are not named stay). The answer to every message, even {}, has the counters: {"frames",
"bytes", "lost", "cut", "late", "is_over"}. The switch ends when the socket is closed.

A process replaces the kernel's traffic control (tc netem), because that is often not available.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import json
import os
import random
import selectors
import socket
import sys
import time
from typing import Any

MOST_BYTES_OF_FRAME = 1 << 16
MOST_AT_ONCE = 64  # frames from a link before others get their turn
MOST_WAITING = 0.5  # seconds of frames that a rate-limited link queues; later ones are lost


@dataclasses.dataclass
class Link:
    """The cable of a node. Its settings apply in both directions; a frame passes the links of two nodes.

    Attributes:
        file: descriptor of the interface.
        delay: seconds.
        loss: the fraction of frames that are lost.
        rate: bytes per second in each direction; 0: unlimited.
        is_cut: nothing goes through.
        free_at: when the last frames, to the node and from it, will have gone through.
    """

    file: int
    delay: float = 0.0
    loss: float = 0.0
    rate: float = 0.0
    is_cut: bool = False
    free_at: list[float] = dataclasses.field(default_factory=lambda: [0.0, 0.0])


class Switch:
    """Links, and the frames in transit."""

    def __init__(self, files: list[int], seed: int, limit: int) -> None:
        """
        Args:
            files: descriptors of the nodes' interfaces.
            seed: for choosing the frames that are lost.
            limit: bytes after which nothing goes through any more.
        """
        self.links = [Link(file) for file in files]
        self.counted = dict.fromkeys(("frames", "bytes", "lost", "cut", "late"), 0)
        self._limit = limit
        self._random = random.Random(seed)
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, int, bytes]] = []  # time due, order, receiver, frame

    @property
    def is_over(self) -> bool:
        """Whether the limit is exceeded."""
        return self.counted["bytes"] > self._limit

    def take(self, number: int, frame: bytes, now: float) -> None:
        """Forwards a frame from a node, to one other node or to all."""
        receiver = frame[5] - 1 if not frame[0] & 1 else -1  # addresses contain the node's number; broadcasts set bit 0
        for other in range(len(self.links)) if receiver < 0 else [receiver]:
            if other != number and other < len(self.links):
                self._forward(number, other, frame, now)

    def _forward(self, sender: int, receiver: int, frame: bytes, now: float) -> None:
        due = now
        for number, direction in ((sender, 1), (receiver, 0)):
            link = self.links[number]
            if link.is_cut or self.is_over:
                self.counted["cut"] += 1
                return
            if link.loss and self._random.random() < link.loss:
                self.counted["lost"] += 1
                return
            if link.rate:
                if link.free_at[direction] - due > MOST_WAITING:
                    self.counted["late"] += 1
                    return
                due = link.free_at[direction] = max(due, link.free_at[direction]) + len(frame) / link.rate
            due += link.delay
        if due <= now and not self._waiting:
            self._deliver(receiver, frame)
        else:
            heapq.heappush(self._waiting, (due, next(self._order), receiver, frame))

    def deliver_due(self, now: float) -> float | None:
        """Delivers frames that are due. Returns the seconds until the next one is; None if there is none."""
        while self._waiting and self._waiting[0][0] <= now:
            _, _, receiver, frame = heapq.heappop(self._waiting)
            self._deliver(receiver, frame)
        return self._waiting[0][0] - now if self._waiting else None

    def _deliver(self, receiver: int, frame: bytes) -> None:
        if self.links[receiver].is_cut:
            self.counted["cut"] += 1
            return
        try:
            os.write(self.links[receiver].file, frame)
        except OSError:  # the node has died, or cannot keep up
            self.counted["late"] += 1
            return
        self.counted["frames"] += 1
        self.counted["bytes"] += len(frame)

    def change(self, node: int, **settings: Any) -> None:
        self.links[node] = dataclasses.replace(self.links[node], **settings)


def main() -> None:
    seed, limit, *files = map(int, sys.argv[1:])
    switch = Switch(files, seed, limit)
    control = socket.socket(fileno=0)
    events = selectors.EpollSelector()
    events.register(control, selectors.EVENT_READ, None)
    for number, file in enumerate(files):
        events.register(file, selectors.EVENT_READ, number)
    timeout: float | None = None
    while True:
        for key, _ in events.select(timeout):
            if key.data is not None:
                receive(switch, events, key.data)
                continue
            message = control.recv(1 << 16)
            if not message:
                return
            asked = json.loads(message)
            if asked:
                switch.change(**asked)
            control.send(json.dumps({**switch.counted, "is_over": switch.is_over}).encode())
        timeout = switch.deliver_due(time.monotonic())


def receive(switch: Switch, events: selectors.BaseSelector, number: int) -> None:
    """Takes the frames that a node has sent."""
    file = switch.links[number].file
    for _ in range(MOST_AT_ONCE):
        try:
            frame = os.read(file, MOST_BYTES_OF_FRAME)
        except BlockingIOError:
            return
        except OSError:  # the node has died
            events.unregister(file)
            return
        switch.take(number, frame, time.monotonic())


if __name__ == "__main__":
    main()
