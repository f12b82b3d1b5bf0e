#!/usr/bin/env python3
"""Measures what predictor="auto" chooses and what choosing costs.

    .venv/bin/python scripts/bench/choice.py                             # the fields of compare.py
    .venv/bin/python scripts/bench/choice.py turbulence density.npy --rel 1e-3

For every field and relative bound: bytes per value of the archives for "lorenzo", "spline" and "auto"; the second as a
share of the first; what "auto" took, and whether the rule (the shorter one) would have taken
the other by the archives' real sizes; and the processor time of "auto" above that of what it took, in per cent. (The
spline codec always looks at the same sample, so there it is about 0.) One thread, the best of some runs,
alternating.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import runner
from comparison import fields

import cusz_core as cusz
from cusz_core.command_line import Parser, exit_code_of

PREDICTORS: tuple[Literal["lorenzo", "spline", "auto"], ...] = ("lorenzo", "spline", "auto")


def measured(field: fields.Field, rel: float, repeat: int) -> dict[str, Any]:
    x = field.x
    # To an absolute bound: determining the range costs all of them the same.
    lowest, highest = cusz.value_range(x, fill=field.fill)[:2]
    eb = rel * (highest - lowest)
    out = np.empty(cusz.max_archive_bytes(x.shape, x.dtype), np.uint8)
    seconds: dict[str, list[float]] = {predictor: [] for predictor in PREDICTORS}
    bytes_of: dict[str, int] = {}
    took = None
    for _ in range(repeat + 1):
        for predictor in PREDICTORS:
            begin = time.process_time()
            archive = cusz.compress(x, eb, fill=field.fill, predictor=predictor, threads=1, out=out)
            seconds[predictor].append(time.process_time() - begin)
            bytes_of[predictor] = len(archive)
            if predictor == "auto":
                took = cusz.inspect(archive).predictor
    best = {predictor: min(times[1:]) for predictor, times in seconds.items()}
    pays = bytes_of["spline"] < bytes_of["lorenzo"]
    return {
        "field": field.name,
        "rel": rel,
        **{f"{predictor}_bytes_per_value": n / x.size for predictor, n in bytes_of.items()},
        "spline_over_lorenzo": bytes_of["spline"] / bytes_of["lorenzo"],
        "took": took,
        "as_by_size": (took == "spline") == pays,
        "cost_percent": 100 * (best["auto"] / best[took or "lorenzo"] - 1),
    }


def rows(names: Sequence[str], rels: Sequence[float], repeat: int) -> Iterator[dict[str, Any]]:
    for field in fields.load(fields.chosen(names)):
        for rel in rels:
            yield measured(field, rel, repeat)


def run(words: Sequence[str] | None) -> int:
    parser = runner.parser(__doc__, repeat=3, kind=Parser)
    parser.add_argument("fields", nargs="*", metavar="FIELD", help="a generated field or a .npy file")
    parser.add_argument("--rel", nargs="+", type=float, default=[1e-2, 1e-3, 1e-4], help="bounds")
    options = parser.parse_args(words)
    found = []
    for row in rows(options.fields, options.rel, options.repeat):
        found.append(row)
        sizes = "".join(f"  {p} {row[p + '_bytes_per_value']:7.4f}" for p in PREDICTORS)
        print(f"{row['field'][:24]:24s} {row['rel']:6g}{sizes}  spline/lorenzo {row['spline_over_lorenzo']:5.3f}  "
              f"took {row['took']}{'' if row['as_by_size'] else ' (not by size)'}  cost {row['cost_percent']:5.1f} %",
              flush=True)  # fmt: skip
    if options.json:
        runner.write_json({"head": runner.machine(options.repeat), "rows": found}, options.json)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    return exit_code_of("choice.py", lambda: run(words))


if __name__ == "__main__":
    sys.exit(main())
