"""Shared by the studies without a clock: counts of two commits, none of which may rise by more than some percent."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import runner
from runner import ROOT, Failure

WORKING_TREE = "the working tree"
PARTS = ["CMakeLists.txt", "cusz_core"]  # what the library is built from


def parser(doc: str | None) -> argparse.ArgumentParser:
    options = runner.parser(doc, has_json=False)
    add = options.add_argument
    add("base", nargs="?", default="HEAD", metavar="BASE", help="a commit (default: HEAD)")
    add("head", nargs="?", default=WORKING_TREE, metavar="HEAD", help=f"a commit (default: {WORKING_TREE})")
    add("--limit", type=float, default=2, help="percent that a count may rise (default: 2)")
    add("--keep", type=Path, metavar="FOLDER", help="keep the builds here, by commit, and reuse them")
    return options


def exit_code_of(work: Callable[[], Iterable[str]], options: argparse.Namespace) -> int:
    """Runs a study, which returns what has risen too far. Returns 0, 1 if anything has, or 2 if nothing was counted."""

    def told() -> int:
        risen = list(work())
        for text in risen:
            print(f"more than {options.limit:g}% above {options.base}: {text}", file=sys.stderr)
        return 1 if risen else 0

    return runner.exit_code_of(told, code=2)


def change(base: float, head: float) -> float:
    """The change in percent."""
    if base == 0:
        return float("inf") if head else 0.0
    return 100 * (head - base) / base


def unpack(commit: str, source: Path) -> None:
    source.mkdir()
    if commit == WORKING_TREE:
        listed = run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PARTS])
        for path in filter(None, listed.split("\0")):
            if (ROOT / path).is_file():  # neither deleted nor a folder
                (source / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, source / path)
        return
    archive = source.with_suffix(".tar")
    what = f"git has no library of {commit}"
    remedy = "Name a commit of this checkout that has the library (a shallow clone has few)."
    run(["git", "-C", ROOT, "archive", f"--output={archive}", commit, "--", *PARTS], what, remedy)
    run(["tar", "-xf", archive, "-C", source])
    archive.unlink()


def version(commit: str, source: Path) -> str:
    """The commit, or a hash of the working tree."""
    if commit != WORKING_TREE:
        return run(["git", "-C", ROOT, "rev-parse", f"{commit}^{{commit}}"]).strip()[:12]
    digest = hashlib.sha256()
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(source)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return f"tree-{digest.hexdigest()[:12]}"


def run(
    command: Sequence[Path | str],
    what: str | None = None,
    remedy: str = "Read the error above.",
    env: Mapping[str, str] | None = None,
) -> str:
    """The output of a command. Failure if it cannot be started or fails; its output is then shown."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    except FileNotFoundError:
        raise Failure(f"{command[0]} was not found", "Run scripts/setup first.") from None
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr, end="")
        raise Failure(what or f"'{command[0]} ...' failed with status {done.returncode}", remedy)
    return done.stdout
