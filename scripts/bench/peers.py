#!/usr/bin/env python3
"""Runs compare.py, or a script named first, in .venv-peers: an environment with the packages of .venv and other
compressors.

    scripts/bench/peers.py turbulence --repeat 3     # options are those of compare.py
    scripts/bench/peers.py --docs                    # everything, and rewrites compressors.md (half an hour)
    scripts/bench/peers.py --docs --pfpl FOLDER      # with PFPL, from a checkout of github.com/burtscher/PFPL
    scripts/bench/peers.py --docs --qoz FOLDER       # with QoZ, from a checkout of github.com/szcompressor/QoZ
    scripts/bench/peers.py --through hdf5 --repeat 3 --docs     # whole files: rewrites files.md
    scripts/bench/peers.py blocks.py --docs          # small blocks

The versions are those of scripts/bench/requirements.txt.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from runner import PAGES, PEERS, ROOT, VENV, say

REQUIREMENTS = ROOT / "scripts/bench/requirements.txt"


def main(options: list[str]) -> int:
    if not (VENV / "bin/python").exists():
        print("error: there is no .venv yet\nremedy: Run scripts/setup first.", file=sys.stderr)
        return 1
    make_environment()
    script = options.pop(0) if options and options[0].endswith(".py") else "compare.py"
    if script == "compare.py":  # its options name the pages with the sections that it writes
        is_of_files = any(option.startswith("--through") for option in options)
        pages = {"--docs": "files.md" if is_of_files else "compressors.md", "--summary": "index.md"}
        options = [f"{option}={PAGES / pages[option]}" if option in pages else option for option in options]
    return subprocess.run([PEERS / "bin/python", ROOT / "scripts/bench" / script, *options], check=False).returncode


def make_environment() -> None:
    """Makes .venv-peers, unless it is there and up to date."""
    packages = output(VENV / "bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    version = output(VENV / "bin/python", "--version")
    key = hashlib.sha256("\n".join([REQUIREMENTS.read_text(), packages, version]).encode()).hexdigest()
    done = PEERS / ".done"
    if done.exists() and done.read_text() == key:
        return
    say(".venv-peers: installing scripts/bench/requirements.txt")
    subprocess.run([VENV / "bin/python", "-m", "venv", "--clear", PEERS], check=True)
    own = output(PEERS / "bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    (Path(own) / "venv.pth").write_text(f"{packages}\n")
    pip = [str(PEERS / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
    done.write_text(key)


def output(*command: Path | str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
