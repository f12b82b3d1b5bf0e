"""Decodes archives that were changed and then given valid checksums, as an attacker would.

contract/test_hostile.py runs this as a program, to notice crashes: hostile.py SEED COUNT PROGRESS CASE...
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

import cusz_core as cusz
import format_v1
import support
from cusz_core import backends
from formats import seal
from support import F32, F64

# -------------------------------------------------------------------------------------------------------- cases


def noisy(dtype: np.dtype) -> np.ndarray:
    x = support.smooth((9, 10, 34), dtype)
    x.reshape(-1)[[3, 700, 2000]] = [np.nan, np.inf, 1e30]
    x.reshape(-1)[100:130] = dtype.type(1e20)
    return x


def mostly_zero(dtype: np.dtype) -> np.ndarray:
    x = np.zeros((70, 70), dtype)
    x[20:40, 30:60] = support.smooth((20, 30), dtype)
    x[5, 5] = 1e7
    return x


def far(dtype: np.dtype) -> np.ndarray:
    """Codes beyond the alphabet."""
    x = support.smooth((5000,), dtype)
    x[::50] = 2.0**20 if dtype == F32 else 2.0**40
    x[25::50] = -(2.0**20) if dtype == F32 else -(2.0**40)
    return x


def waves(dtype: np.dtype) -> np.ndarray:
    return (np.indices((9, 17, 33)).sum(axis=0) % 32).astype(dtype)


def ripples(dtype: np.dtype) -> np.ndarray:
    """Tiles that use the predictors 4 and 5."""
    z, y, x = (i * (i - n) for i, n in zip(np.indices((18, 17, 33)), (18, 17, 33), strict=True))
    return (z * y * x).astype(dtype) * dtype.type(2.0**-10)


def sparse(dtype: np.dtype) -> np.ndarray:
    """Tiles with a fine mask."""
    return np.where(support.integers(9000, 0, 25) == 0, 3, 0).astype(dtype).reshape(10, 30, 30)


#: Version 1.
CASES: dict[str, tuple[Any, ...]] = {
    f"{name}_{dtype.name}": (make, dtype, eb, options | {"predictor": "lorenzo"})  # type: ignore[operator]
    for dtype in (F32, F64)
    for name, (make, eb, options) in {
        "noisy": (noisy, 1e-1, {"fill": 1e20}),
        "mostly_zero": (mostly_zero, 1e-1, {}),
        "far": (far, 0.125, {"bins": 128}),
        "flat": (lambda t: np.full((9, 17, 33), t.type(2.5)), 1e-3, {}),
        "uncoded": (lambda t: np.full((9, 17, 33), t.type(2.5)), 1e-3, {"bins": 128}),  # an empty codebook
        "ripples": (ripples, 1e-2, {}),
        "sparse": (sparse, 1e-1, {}),
        "nan": (lambda t: np.full((5000,), t.type(np.nan)), 1e-3, {}),
        "raw": (lambda t: support.smooth((20,), t), 0.0, {}),
        "packed": (waves, 1e-2, {"lossless": "zstd"}),
    }.items()
    if options.get("lossless", "none") in backends.lossless_stages()  # type: ignore[attr-defined]
}


def pyramid(dtype: np.dtype) -> np.ndarray:
    """Tiles of all kinds in several lattices: coded, with some verbatim values, all verbatim, all special, all 0."""
    x = np.zeros((20, 1100), dtype)
    x[:, :300] = support.smooth((20, 300), dtype)
    x[3::7, 5:200:31] = [np.nan, np.inf, 1e30, 5e3, -1e4, 1e20, -0.0]
    x[:, 300:600] = np.nan
    x[:, 600:900] = support.random_bits((20, 300), dtype)
    return x


#: Version 2.
SPLINE_CASES: dict[str, tuple[Any, ...]] = {
    f"spline_{name}_{dtype.name}": (make, dtype, eb, options | {"predictor": "spline"})  # type: ignore[operator]
    for dtype in (F32, F64)
    for name, (make, eb, options) in {
        "noisy": (noisy, 1e-1, {"fill": 1e20}),
        "tiles": (pyramid, 1e-1, {}),
        "ripples": (ripples, 1e-2, {}),
        "line": (far, 0.125, {}),
        "flat": (lambda t: np.full((9, 17, 33), t.type(2.5)), 1e-3, {}),
        "packed": (waves, 1e-2, {"lossless": "zstd"}),
    }.items()
    if options.get("lossless", "none") in backends.lossless_stages()  # type: ignore[attr-defined]
}


def archive_of(name: str) -> bytes:
    make, dtype, eb, options = (CASES | SPLINE_CASES)[name]
    return cusz.compress(make(dtype), eb, **options, threads=1)


def mutants(archive: bytes, seed: int, count: int):
    """Yields (what was changed, archive): with every bit in front of the payloads flipped (in a large codebook, every
    few bits), then with `count` random changes."""
    info = cusz.inspect(archive)
    front = min(len(archive), sum((info.sections.header, info.sections.codebook, info.sections.index)))
    at, length = (format_v1.CODEBOOK_AT, info.sections.codebook) if info.version == 1 else (info.sections.header, 0)
    model = range(8 * at, 8 * (at + length))
    stride = max(1, len(model) // 1000)
    for bit in range(8 * min(front + 16, len(archive))):
        if bit in model and bit % stride != 0:
            continue
        yield f"bit {bit}", bytearray(support.flipped(archive, bit))
    begin, end = (format_v1.CODING_HEADER_AT, at) if info.version == 1 else (2, min(at + 16, len(archive)))
    h = support.hashes(4 * count, seed).reshape(count, 4).tolist()
    for i, (a, b, c, d) in enumerate(h):
        mutant = bytearray(archive)
        for k in range(1 + a % 3):
            place = b >> k
            where = (
                front + place % max(len(archive) - front, 1),
                place % len(archive),
                begin + place % (end - begin),
            )[c % 3]
            where = min(where, len(archive) - 1)
            mutant[where] = [0, 255, d >> 8 * k & 255, mutant[where] ^ 1 << (d >> k) % 8][d % 4]
        yield f"random {seed}:{i}", mutant


def main() -> None:
    """Prints for each case how many archives were decoded and refused, and a digest of all values and messages."""
    seed, count, progress = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    with progress.open("w", buffering=1) as log:
        for name in sys.argv[4:]:
            archive = archive_of(name)
            decoded = refused = 0
            outcomes = hashlib.sha256()
            for what, mutant in mutants(archive, seed, count):
                log.write(f"{name}: {what}\n")
                seal(mutant, archive)
                with contextlib.suppress(cusz.CuszError):
                    cusz.check(mutant, threads=1)
                with contextlib.suppress(cusz.CuszError):
                    for level in cusz.levels(mutant)[1:]:
                        prefix = bytes(mutant[: level.needed_bytes])
                        cusz.decompress(prefix, level=level.number, archive_bytes=len(mutant), threads=1)
                try:
                    outcomes.update(cusz.decompress(mutant, threads=1).tobytes())
                    decoded += 1
                except cusz.CuszError as error:
                    outcomes.update(str(error).encode())
                    refused += 1
            print(name, decoded, refused, outcomes.hexdigest())


if __name__ == "__main__":
    main()
