#!/usr/bin/env python3
"""Measures this package and other installed compressors, on the same fields and under the same bound.

    .venv/bin/python scripts/bench/compare.py turbulence density.npy --repeat 3
    .venv/bin/python scripts/bench/compare.py --list

scripts/bench/peers.py runs it in an environment that has the others. The code is in the package `comparison`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from comparison import command

from cusz_core.command_line import Parser, exit_code_of


def main(words: Sequence[str] | None = None) -> int:
    def run() -> int:
        parser = Parser(prog="compare.py", formatter_class=argparse.RawDescriptionHelpFormatter)
        command.add_options(parser)
        return command.run(parser.parse_args(words))

    return exit_code_of("compare.py", run)


if __name__ == "__main__":
    sys.exit(main())
