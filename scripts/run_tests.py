#!/usr/bin/env python3
"""Runs tests and lint, after scripts/setup (scripts/test calls both). docs/design/testing.md: which tests run when.

  scripts/test [PYTEST OPTION...]         the quick tests
  scripts/test --all [PYTEST OPTION...]   everything
  scripts/test --ci                       what continuous integration runs: the quick tests, the full ones of the parts
                                          that the change touches (half of them if it touches many), and a slice of the
                                          rest
    --since COMMIT    the change is everything after it (default: the newest commit that is known to have passed, on
                      this machine or from .ci/passed)
    --slice K         this slice, 0 to 7 (default: by the commit's hash)

  CUSZ_TEST_DATA=FOLDER  real fields for the tests that use them

The output of pytest is also in build/logs/pytest.log, with the times of the slowest tests, and the output of lint in
build/logs/lint.log.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "logs"
COUNTS = LOGS / "counts.json"  # of tests, by the reason for running them (tests/conftest.py)
sys.path.insert(0, str(ROOT / "tests"))

import tiers  # noqa: E402

#: Commits that have passed, one per line: on this machine, and the one recorded in the project.
PASSED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cusz" / "passed-commits"
PASSED_IN_CI = ROOT / ".ci" / "passed"
#: One of them runs all test files that start ranks (tests/conftest.py), and mostly waits.
PROCESSES = 3
#: The build that tests need first: one command under a lock, as in simt_build of tests/conftest.py.
EMULATOR = """flock build/simt.lock sh -c 'cmake -G Ninja -S tests/simt -B build/simt && cmake --build build/simt'"""


def say(text: str) -> None:
    print(f"\n== {text}", flush=True)


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


# ---------------------------------------------------------------------------------------------- what is to be run


@dataclass(frozen=True)
class Plan:
    """Attributes:
    title: what runs, in words.
    options: of pytest.
    commands: other commands to run, by name.
    left_out: names of other commands.
    lint: options of scripts/lint.
    again: options of this script that give the same plan.
    """

    title: str
    options: list[str]
    commands: dict[str, str]
    left_out: list[str]
    lint: list[str]
    again: list[str]


def last_passed() -> str:
    """The newest ancestor of HEAD that is known to have passed, or ""."""
    known = {commit for file in (PASSED, PASSED_IN_CI) if file.exists() for commit in file.read_text().split()}
    return next((commit for commit in git("rev-list", "HEAD").split() if commit in known), "")


def make_plan(everything: bool, ci: bool, since: str, number: int | None) -> Plan:
    parts = tiers.read_table()
    commands = {name: command for part in parts.values() for name, command in part.commands.items()}
    if everything:
        return Plan("everything", ["--all"], commands, [], [], ["--all"])
    base = git("rev-parse", "--verify", "--quiet", f"{since}^{{commit}}") if since else last_passed()
    if number is None:
        number = int((git("rev-parse", "HEAD") or "0")[-8:], 16) % tiers.SLICES
    lint = ["--since", base, *([str(number)] if ci else [])] if base else []
    if not ci:
        return Plan("the quick tests", [], {}, list(commands), lint, [])
    if base:
        # uncommitted changes do not count: only a commit can pass
        touched = tiers.touched(git("diff", "--name-only", base, "HEAD").splitlines(), parts)
        change = f"{', '.join(touched) or 'no part'} (touched since {base[:12]})"
    else:
        touched, change = list(parts), "all parts, because no commit is known that has passed"
    chosen = tiers.commands_of(number, touched, parts)
    is_half = bool(base) and len(touched) >= tiers.MANY_PARTS
    full = "half of the full tests" if is_half else "the full tests"
    title = f"the quick tests; {full} of {change}; slice {number} of the rest"
    options = [*(["--parts", ",".join(touched)] if touched else []), *(["--half"] if is_half else [])]
    options += ["--slice", str(number)]
    again = ["--ci", *(["--since", base[:12]] if base else []), "--slice", str(number)]
    return Plan(title, options, chosen, [name for name in commands if name not in chosen], lint, again)


# ---------------------------------------------------------------------------------------------------- running it


def run_pytest(plan: Plan, options: list[str]) -> bool:
    say("pytest")
    COUNTS.unlink(missing_ok=True)
    command = ["pytest", "-n", str(PROCESSES), "--max-worker-restart=0", "--no-loadscope-reorder", "--durations=50"]
    # A process that crashes ends the run: pytest-xdist may wait for ever for one that takes its place.
    command += ["--color", "yes" if sys.stdout.isatty() else "no", *plan.options, *options]
    with (LOGS / "pytest.log").open("wb") as log:
        environment = {**os.environ, "CUSZ_TEST_COUNTS": str(COUNTS)}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        while piece := process.stdout.read1():  # type: ignore[attr-defined]
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
            log.write(piece)
        return process.wait() == 0


def run_logged(name: str, command: str) -> tuple[bool, float]:
    """Runs a command with its output in a log of its name. Returns whether it succeeded, and the seconds it took."""
    begin = time.monotonic()
    with (LOGS / f"{name.replace(' ', '-')}.log").open("wb") as log:
        done = subprocess.run(command, shell=True, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)
    return done.returncode == 0, time.monotonic() - begin


def show(name: str, succeeded: bool, seconds: float) -> None:
    say(f"{name}: {'passed' if succeeded else 'FAILED'}, {seconds:.0f} s")
    lines = (LOGS / f"{name.replace(' ', '-')}.log").read_text(errors="replace").splitlines()
    print("\n".join(lines[-12:] if succeeded else lines), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true")
    which.add_argument("--ci", action="store_true")
    parser.add_argument("--since", default="", metavar="COMMIT")
    parser.add_argument("--slice", type=int, choices=range(tiers.SLICES), metavar="K")
    arguments, options = parser.parse_known_args()
    plan = make_plan(arguments.all, arguments.ci, arguments.since, arguments.slice)
    begin = time.monotonic()
    say(f"Tests: {plan.title}")
    results: dict[str, bool] = {}
    with ThreadPoolExecutor(2) as pool:
        if not options:  # with options, the emulator may not be needed
            pool.submit(run_logged, "emulator", EMULATOR)  # if it fails, the tests fail and show why
        lint = pool.submit(run_logged, "lint", " ".join(["scripts/lint", *plan.lint]))
        results["pytest"] = run_pytest(plan, options)
        took = {"pytest": time.monotonic() - begin}
        # Most commands keep one core busy, so two run at a time.
        running = {name: pool.submit(run_logged, name, command) for name, command in plan.commands.items()}
        for name, result in {"lint": lint, **running}.items():
            results[name], took[name] = result.result()
            show(name, results[name], took[name])

    say(f"Run: {plan.title}")
    for name, passed in results.items():
        print(f"  {'passed' if passed else 'FAILED'} in {took[name]:5.0f} s: {name}")
    counts = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    left_out = counts.pop("left out", 0)
    print(f"  tests: {', '.join(f'{n} {reason}' for reason, n in counts.items()) or 'all that the options name'}")
    if not arguments.all:
        commands = ", ".join(plan.left_out)
        print(f"  left to other slices, or to scripts/test --all: {left_out} tests{'; ' * bool(commands)}{commands}")
    if arguments.ci and (commit := git("rev-parse", "HEAD")):
        print(f"  again: git checkout {commit[:12]} && scripts/test {' '.join(plan.again)}")
    say(f"{'passed' if all(results.values()) else 'FAILED'} in {time.monotonic() - begin:.0f} s")
    if not all(results.values()):
        sys.exit(1)
    if arguments.ci and not git("status", "--porcelain"):
        PASSED.parent.mkdir(parents=True, exist_ok=True)
        with PASSED.open("a", encoding="utf-8") as file:
            file.write(git("rev-parse", "HEAD") + "\n")


if __name__ == "__main__":
    main()
