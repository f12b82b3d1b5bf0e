#!/usr/bin/env python3
"""Runs a command on a node: python login.py NAME WORD..., with CUSZ_NODES, the cluster's folder, in the environment.

It replaces ssh: mpirun starts its daemons with it (plm_rsh_agent). As with ssh, a shell runs the command, in the
environment of a login (the file "environment"), not in the caller's, and the command ends if this process does.
"""

import json
import os
import signal
import socket
import sys


def main() -> int:
    folder = os.environ["CUSZ_NODES"]
    name, *words = sys.argv[1:]
    with open(f"{folder}/environment", encoding="utf-8") as login:
        env = json.load(login)
    asked = {"words": ["sh", "-c", " ".join(words)], "env": env, "folder": env["HOME"]}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as session:
        session.connect(f"{folder}/{name}.socket")
        socket.send_fds(session, [json.dumps(asked).encode()], [0, 1, 2])
        while not (status := session.recv(1)):
            signal.pause()  # the node has died, which ssh would not notice
    return status[0]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        print(f"login.py: {sys.argv[1]}: {error}", file=sys.stderr)
        sys.exit(255)
