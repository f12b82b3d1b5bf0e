"""Reads a file again and again, each time with different damage: python faults_damage.py FILE FOLDER SEED COUNT

Each read takes place in a child process forked from this one. Prints lines of JSON: the part of the file, what was done
to it, how the read ended ("right", "error", "fewer steps", "wrong", "crash" or "hang"), and details.
Needs MPI4PY_RC_INITIALIZE=0 in the environment, because a process that has initialised MPI should not fork.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import cusz_core
import cusz_operator as cz
import support

PARTS = ("data.0", "md.0", "md.idx", "mmd.0", "cusz.checks")
SECONDS = 60.0  # far more than a read takes on a loaded machine


def contents(path: Path) -> dict[tuple[int, str], tuple[bytes, ...]]:
    """Everything that the Reader returns for every step and variable."""
    told: dict[tuple[int, str], tuple[bytes, ...]] = {}
    with cz.Reader(path, threads=1) as run:
        for step in run:
            for name in step.variables:
                values = step.read(name)
                told[step.index, name] = (
                    repr((values.dtype, values.shape, step.shape(name))).encode(),
                    values.tobytes(),
                    step.blocks(name).tobytes(),
                )
        told[-1, "steps"] = (str(len(run)).encode(),)
    return told


def outcome(path: Path, expected: dict[tuple[int, str], Any]) -> tuple[str, str]:
    """How reading the whole file ends, in this process, and details."""
    errors = set()
    n = int(expected[-1, "steps"][0])
    try:
        with cz.Reader(path, threads=1) as run:
            for (step, name), (description, values, table) in ((k, v) for k, v in expected.items() if k[0] >= 0):
                try:
                    got = run[step].read(name)
                    shape = run[step].shape(name)
                    blocks = run[step].blocks(name)
                except (cusz_core.CuszError, IndexError, MemoryError) as error:
                    errors.add(f"{type(error).__name__}: {' '.join(str(error).split())[-200:]}")
                    continue
                if repr((got.dtype, got.shape, shape)).encode() != description:
                    return "wrong", f"step {step}, {name}: {got.dtype} {got.shape} {shape}, not {description.decode()}"
                if got.tobytes() != values:
                    return "wrong", f"step {step}, {name}: values"
                if blocks.tobytes() != table:
                    return "wrong", f"step {step}, {name}: table"
            if len(run) < n and all(error.startswith("IndexError") for error in errors):
                return "fewer steps", f"{len(run)}"
            if len(run) > n:
                return "wrong", f"{len(run)} steps"
    except (cusz_core.CuszError, FileNotFoundError, MemoryError) as error:
        errors.add(f"{type(error).__name__}: {' '.join(str(error).split())[-200:]}")
    return ("error", "; ".join(sorted(errors))) if errors else ("right", "")


def in_a_child(path: Path, expected: dict[tuple[int, str], Any]) -> tuple[str, str]:
    """`outcome` in a child process."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            told = outcome(path, expected)
        except BaseException as error:
            told = ("wrong", f"{type(error).__name__}: {error}")
        os.write(sending, json.dumps(told).encode()[:4000])
        os._exit(0)
    os.close(sending)
    text = b""
    if select.select([receiving], [], [], SECONDS)[0]:
        text = os.read(receiving, 4000)
    else:
        os.kill(child, signal.SIGKILL)
    os.close(receiving)
    _, status = os.waitpid(child, 0)
    if text:
        how, what = json.loads(text)
        return how, what
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
        return "crash", signal.Signals(os.WTERMSIG(status)).name
    return "hang", f"{SECONDS} s"


def damaged(content: bytes, numbers: list[int]) -> tuple[bytes, str]:
    """Content with a bit or byte changed, a piece zeroed, or the end cut off; and what was done."""
    kind, where, what = numbers
    at = where % len(content)
    changed = bytearray(content)
    if kind % 8 == 0:
        return content[:at], f"cut at {at}"
    if kind % 8 == 1:
        end = min(at + 1 + what % 512, len(content))
        changed[at:end] = bytes(end - at)
        return bytes(changed), f"zeroes from {at} to {end}"
    if kind % 8 == 2:
        changed[at] = what % 256
        return bytes(changed), f"byte {at} is {what % 256}"
    changed[at] ^= 1 << what % 8
    return bytes(changed), f"bit {what % 8} of byte {at}"


def main(file: str, folder: str, seed: str, count: str) -> None:
    path = Path(folder) / "damaged.bp"
    shutil.copytree(file, path)
    expected = contents(path)
    parts = [part for part in PARTS if (path / part).exists()]
    for part in parts:
        content = (path / part).read_bytes()
        numbers: Any = support.integers(3 * int(count), 0, 2**40, seed=int(seed) + len(part)).reshape(-1, 3)
        for row in np.asarray(numbers).tolist():
            changed, what = damaged(content, row)
            (path / part).write_bytes(changed)
            how, detail = in_a_child(path, expected) if changed != content else ("right", "")
            print(json.dumps([part, what, how, detail]), flush=True)
        (path / part).write_bytes(content)


main(*sys.argv[1:])
