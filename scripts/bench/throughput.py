#!/usr/bin/env python3
"""Ratio and throughput of cusz_core on fields: generated ones, those of CUSZ_TEST_DATA, or the .npy files named.

Times are medians of --repeat runs into reused memory, checksums on, the range pass of rel included. MB/s is raw bytes
over time, 10^6. Every value is checked against the bound, exactly. Prints a Markdown table; --json FILE keeps the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fields import GENERATED

import cusz_core as cusz

FILL = {"ipsl_tos_3d_f32": 1e20}  # the finite value that stands for land


def chosen_fields(names: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    folder = os.environ.get("CUSZ_TEST_DATA")
    if not names:
        names = [str(p) for p in sorted(Path(folder).glob("*.npy"))] if folder else []
        names += list(GENERATED)
    for name in names:
        if name in GENERATED:
            yield name, GENERATED[name]()
        else:
            yield Path(name).stem, np.load(name)


def median_seconds(call: Callable[[], object], repeat: int) -> float:
    call()  # memory is touched for the first time here
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def measure(name: str, x: np.ndarray, rel: float, threads: list[int], repeat: int) -> dict[str, Any]:
    fill = FILL.get(name)
    target = bytearray(x.nbytes + 48)
    back = np.empty_like(x)
    archive = cusz.compress(x, rel, mode="rel", fill=fill)
    check = cusz.verify(x, archive)  # raises if a single value misses the bound
    row: dict[str, Any] = {
        "dataset": name,
        "shape": list(x.shape),
        "dtype": str(x.dtype),
        "mode": "rel",
        "eb": rel,
        "ratio": x.nbytes / len(archive),
        "psnr": check.psnr,
        "max_error_over_eb": check.max_error_over_eb,
    }
    for n in threads:

        def compress(n: int = n) -> object:
            return cusz.compress(x, rel, mode="rel", fill=fill, threads=n, out=target)

        def decompress(n: int = n) -> object:
            return cusz.decompress(archive, threads=n, out=back)

        row[f"compress_mbps_{n}"] = x.nbytes / median_seconds(compress, repeat) / 1e6
        row[f"decompress_mbps_{n}"] = x.nbytes / median_seconds(decompress, repeat) / 1e6
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fields", nargs="*", help=f"{', '.join(GENERATED)}, or .npy files")
    parser.add_argument("--rel", type=float, nargs="+", default=[1e-2, 1e-3, 1e-4], metavar="EB")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()

    rows = []
    columns = "".join(f" MB/s, {n} thread{'s' if n > 1 else ''} |" for n in arguments.threads)
    print(f"| field | rel | ratio | PSNR | max error / bound |{columns}")
    print("|---" * (5 + len(arguments.threads)) + "|")
    for name, x in chosen_fields(arguments.fields):
        for rel in arguments.rel:
            row = measure(name, x, rel, arguments.threads, arguments.repeat)
            rows.append(row)
            speeds = "".join(
                f" {row[f'compress_mbps_{n}']:.0f} / {row[f'decompress_mbps_{n}']:.0f} |" for n in arguments.threads
            )
            quality = f"{row['ratio']:.2f} | {row['psnr']:.1f} | {row['max_error_over_eb']:.6f}"
            print(f"| {name} | {rel:g} | {quality} |{speeds}", flush=True)
    if arguments.json:
        arguments.json.write_text(
            json.dumps({"tool": "cusz_core", "version": cusz.__version__, "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
