"""Many calls: prints the resident memory (KiB) after each tenth of CALLS round trips, made by THREADS threads at once.

test_endurance.py runs it as a program: endurance.py THREADS CALLS
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import cusz_core as cusz
import support

#: Fields of several sizes and types, and options for different paths, so that the size of scratch memory varies.
CASES: list[tuple[np.ndarray, float, dict[str, Any]]] = [
    (support.smooth((20, 30, 40), support.F32), 1e-3, {"predictor": "lorenzo"}),
    (support.smooth((5000,), support.F64), 1e-6, {"fill": 1.0}),
    (support.smooth((200, 90), support.F32), 1e-2, {"threads": 2}),
    (support.smooth((200, 90), support.F32), 1e-2, {"threads": 2, "predictor": "lorenzo"}),
    (support.random_bits((3, 4, 5, 6), support.F64), 1e-2, {}),
    (support.smooth((17, 33, 20), support.F64), 1e-4, {"bins": 1024, "predictor": "lorenzo"}),
]


def calls(count: int, failures: list[str]) -> None:
    expected = [cusz.compress(x, eb, **options) for x, eb, options in CASES]  # type: ignore[call-overload]
    for n in range(count):
        x, eb, options = CASES[n % len(CASES)]
        archive = cusz.compress(x, eb, **options)  # type: ignore[call-overload]
        y = cusz.decompress(archive)
        if archive != expected[n % len(CASES)] or support.violations(x[-1:], y[-1:], eb, options.get("fill")):
            failures.append(f"call {n}")
        if n % 7 == 0:
            try:  # errors must not leak either
                cusz.decompress(archive[:-1])
            except cusz.CorruptArchiveError:
                pass
            else:
                failures.append(f"call {n}: a truncated archive was decoded")


def main() -> None:
    n_threads, count = int(sys.argv[1]), int(sys.argv[2])
    failures: list[str] = []
    for _ in range(10):
        threads = [threading.Thread(target=calls, args=(count // 10 // n_threads, failures)) for _ in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(support.resident_bytes() // 1024)
    if failures:
        sys.exit("\n".join(failures[:10]))


if __name__ == "__main__":
    main()
