#!/usr/bin/env python3
"""Makes the constants of format version 2: cusz_core/src/archive/v2/tables.inc.

    .venv/bin/python scripts/train_tables.py [--output FILE]     some minutes on two cores

They are a family of 64 tables of frequencies, 8 tables for regions with missing values, and presets, which assign one
table to each context (docs/reference/format_v2.md, section 7). They are trained on fields that are generated here from
seeds, and on the fields of the programs in apps. No other data are used, so all others remain available for tests. The
same version of numpy gives the same constants.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "reference"), str(ROOT / "apps")]

import format_v1_reference as v1  # noqa: E402
import format_v2_reference as reference  # noqa: E402

Array = NDArray[Any]
PLACES, SYMBOLS, ESCAPE = 64, reference.SYMBOLS, reference.ESCAPE
BOUNDS = (3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5)  # relative to the value range
APPS = {"cosmology": 2.0, "hurricane": 2.5, "climate": 2.0, "orbitals": 1.5}  # and the scales they run at

# ---------------------------------------------------------------------------------------------------------------------
# Fields


def random_field(
    seed: int, shape: Sequence[int], slope: float, k_0: float = 1.0, stretch: Sequence[float] = ()
) -> Array:
    """A Gaussian field of mean 0, variance 1 and power (k_0^2 + k^2)^(slope / 2), cut from a larger periodic one."""
    whole = tuple(n + n // 4 for n in shape)
    k2: Any = k_0**2
    for axis, n in enumerate(whole):
        k = (np.fft.fftfreq(n) if axis < len(whole) - 1 else np.fft.rfftfreq(n)) * n
        k *= stretch[axis] if stretch else 1
        k2 = k2 + k.reshape([-1 if a == axis else 1 for a in range(len(whole))]) ** 2
    modes = np.fft.rfftn(np.random.default_rng(seed).standard_normal(whole)) * k2 ** (slope / 4)
    values = np.fft.irfftn(modes, s=whole, axes=range(len(whole)))
    return ((values - values.mean()) / values.std())[tuple(slice(n) for n in shape)]


def spots(seed: int, n: int, steps: int) -> Array:
    """A reaction of two diffusing substances (Gray-Scott)."""
    rng = np.random.default_rng(seed)
    u, v = np.ones((n, n, n)), np.zeros((n, n, n))
    for corner in rng.integers(0, n - 8, (6, 3)):
        box = tuple(slice(at, at + 6) for at in corner)
        u[box], v[box] = 0.5, 0.25

    def spread(x: Array) -> Array:
        return sum(np.roll(x, by, axis) for axis in range(3) for by in (-1, 1)) - 6 * x

    for _ in range(steps):
        made = u * v * v
        u += 0.16 * spread(u) - made + 0.03 * (1 - u)
        v += 0.08 * spread(v) + made - 0.09 * v
    return v


def generated() -> dict[str, Array]:
    cube, plane, line = (64, 64, 64), (256, 256), (32768,)
    noise = lambda seed, shape: np.random.default_rng(seed).standard_normal(shape)  # noqa: E731
    z, y, x = np.meshgrid(*[np.linspace(0, 1, 64)] * 3, indexing="ij")
    r = np.sqrt((z - 0.4) ** 2 + (y - 0.4) ** 2 + (x - 0.4) ** 2)
    centres = np.random.default_rng(19).random((40, 3))
    waves = np.random.default_rng(18).integers(1, 9, (12, 3))
    return {
        "kolmogorov": random_field(1, cube, -11 / 3),
        "kolmogorov_small": random_field(2, cube, -11 / 3, 4),
        "steep": random_field(3, cube, -5),
        "smooth": random_field(4, cube, -7, 3),
        "rough": random_field(5, cube, -2.5),
        "lognormal": np.exp(1.5 * random_field(6, cube, -11 / 3)),
        "lognormal_wide": np.exp(2.5 * random_field(7, cube, -4, 2)),
        "fronts": np.tanh(4 * random_field(8, cube, -5, 2)) + 0.05 * random_field(9, cube, -11 / 3),
        "fronts_sharp": np.tanh(10 * random_field(10, cube, -6, 2)),
        "clipped": np.maximum(0, random_field(11, cube, -5, 3)),
        "sparse": np.maximum(0, random_field(12, cube, -4, 3) - 1) ** 2,
        "noisy": random_field(13, cube, -6, 2) + 3e-3 * noise(14, cube),
        "layers": random_field(15, cube, -4, 2, (4, 1, 1)),
        "stack": random_field(16, cube, -4, 2, (0.2, 1, 1)) + 0.2 * noise(17, (64, 1, 1)),
        "waves": sum(np.sin(2 * np.pi * (i * z + j * y + k * x) + i) / (1 + i + j) for i, j, k in waves.tolist()),
        "blast": np.exp(-(((r - 0.3) / 0.03) ** 2)) + 0.3 / (1 + 20 * r) + 0.1 * (r < 0.3),
        "blobs": sum(np.exp(-((z - a) ** 2 + (y - b) ** 2 + (x - c) ** 2) / 0.002) for a, b, c in centres.tolist()),
        "spots": spots(20, 64, 600),
        "spots_late": spots(21, 64, 2500),
        "plane": random_field(30, plane, -8 / 3),
        "plane_steep": random_field(31, plane, -4, 3),
        "plane_lognormal": np.exp(2 * random_field(32, plane, -3)),
        "plane_fronts": np.tanh(8 * random_field(33, plane, -5, 3)),
        "plane_sparse": np.maximum(0, random_field(34, plane, -3, 3) - 0.8) ** 2,
        "plane_noisy": random_field(35, plane, -4, 3) + 1e-2 * noise(36, plane),
        "line": random_field(40, line, -2),
        "line_smooth": random_field(41, line, -4, 30),
        "line_rough": random_field(42, line, -1, 10),
        "line_noisy": random_field(43, line, -5, 20) + 1e-2 * noise(44, line),
        "line_walk": np.cumsum(noise(45, line)),
        "line_spikes": 1.0 * (np.random.default_rng(46).random(line) < 0.002) + 0.01 * random_field(47, line, -2),
    }


def of_apps() -> dict[str, Array]:
    found = {}
    for app, scale in APPS.items():
        for name, values in importlib.import_module(app).fields(scale).items():
            found[f"{app}_{name}"] = values[0] if values.ndim == 4 else values
    return found


# ---------------------------------------------------------------------------------------------------------------------
# What is counted


@dataclass(frozen=True)
class Cell:
    """A part of a field with a bound and a curve, and the counts from coding it."""

    name: str  # of the field
    x: Array
    eb: float
    curve: int
    bounds: int
    dimensions: int = 0
    symbols: Array = field(default_factory=lambda: np.zeros(0))  # by row, place and symbol, without missing values
    groups: Array = field(default_factory=lambda: np.zeros(0))  # by context and flag


def cells() -> Iterator[Cell]:
    rng = np.random.default_rng(9)
    for name, values in {**generated(), **of_apps()}.items():
        x = np.ascontiguousarray(values, np.float32)
        parts = [x]
        for edge in {1: (4096, 512), 2: (64, 32), 3: (32, 16, 16, 8, 8, 8)}[x.ndim]:
            if edge < min(x.shape):
                corner = [int(rng.integers(0, n - edge + 1)) for n in x.shape]
                parts.append(np.ascontiguousarray(x[tuple(slice(at, at + edge) for at in corner)]))
        for number, part in enumerate(parts):
            for relative in BOUNDS:
                curves = (0, 1, 2) if number else (1,) if relative > 2e-4 else (2,)
                for curve in curves:
                    if curve < 2 or max(part.shape) > 8:
                        yield Cell(name, part, relative * float(np.ptp(x)), curve, int(relative > 2e-3 and curve > 0))


def counted(cell: Cell) -> Cell:
    ty = v1.type_of(cell.x.dtype)
    extents = reference.extents_of(cell.x.shape)
    e_0 = float(v1.largest_bound(cell.eb, ty))
    plan = reference.Plan(ty, ty.canonical_nan, extents, (15, 15, 15), e_0, cell.curve, cell.bounds)
    bits = cell.x.view(ty.bits).reshape(extents)
    symbols = np.zeros((reference.CONTEXTS, SYMBOLS), np.float32)
    groups = np.zeros((reference.GROUP_CONTEXTS, 2))
    with np.errstate(all="ignore"):
        for tiles in reference.code_field(plan, bits, int(bits.flat[0])):
            for phase in (phase for tile in tiles for phase in tile):
                np.add.at(symbols, (phase.context, phase.symbol), 1)
                np.add.at(groups, (phase.group_context, phase.significant.astype(int)), 1)
    symbols = symbols.reshape(9, -1, SYMBOLS)[:, :PLACES]
    symbols[:, :, reference.SPECIAL :] = 0
    return replace(cell, x=cell.x[:0], dimensions=plan.lattices[0].active, symbols=symbols, groups=groups)


# ---------------------------------------------------------------------------------------------------------------------
# The family of tables


def mirrored() -> Array:
    """The symbol of the negative code, for each symbol."""
    symbols = np.arange(SYMBOLS)
    symbols[1:64] = 64 - symbols[1:64]
    symbols[64:ESCAPE] ^= 1
    return symbols


def with_sum_4096(weights: Array) -> Array:
    """Frequencies with sum 4096 from weights, both symmetric in sign; the remainder goes to code 0."""
    wanted = 4096 * weights / weights.sum()
    frequencies = np.where(wanted >= 0.3, np.maximum(1, np.rint(wanted)), 0).astype(int)
    frequencies[ESCAPE] = max(1, frequencies[ESCAPE])
    frequencies[ESCAPE + 1 :] = 1
    frequencies[reference.DIRECT] += 4096 - frequencies.sum()
    while frequencies[reference.DIRECT] < 1:
        largest = int(np.argmax(np.where(np.arange(SYMBOLS) == reference.DIRECT, 0, frequencies)))
        frequencies[[largest, mirrored()[largest]]] -= 1
        frequencies[reference.DIRECT] += 2
    return frequencies


def family(of: Sequence[Cell]) -> Array:
    """The family of tables: histograms of contexts, grouped by the mean size of their symbols."""
    sizes = reference.SIZES / 256
    weights = np.zeros((reference.SIZE_TABLES, SYMBOLS))
    for cell in of:
        histograms = cell.symbols.reshape(-1, SYMBOLS).astype(float)
        histograms = histograms[histograms.sum(1) >= 40]
        if len(histograms):
            n = histograms.sum(1)
            mean = (histograms @ sizes) / n
            table = np.where(mean < 1, 24 + 3 * np.log2(np.maximum(mean, 1e-9)), 24 + 4 * (mean - 1))
            table = np.clip(np.rint(table), 0, reference.SIZE_TABLES - 1).astype(int)
            np.add.at(weights, table, histograms / (np.maximum(n, 400) ** 0.7 * share(of, cell))[:, None])
    found = np.flatnonzero(weights.sum(1))
    weights = weights[[found[np.argmin(np.abs(found - table))] for table in range(len(weights))]]
    weights /= weights.sum(1, keepdims=True)
    return np.array([with_sum_4096(row) for row in (weights + weights[:, mirrored()]) / 2])


def share(of: Sequence[Cell], cell: Cell) -> int:
    """The number of cells of the same field: dividing by it makes fields count equally."""
    return sum(other.name == cell.name and other.dimensions == cell.dimensions for other in of)


def for_missing(tables: Array) -> list[Array]:
    """Tables with a fixed part of special or verbatim values; the codes are as in a table of the family."""
    result = []
    for missing, parts, sizes in (
        (reference.SPECIAL, (1 / 24, 3 / 16, 1 / 2), reference.SIZES_NEAR_MISSING),
        (reference.SPECIAL, (127 / 128,), (40,)),
        (reference.VERBATIM, (1 / 4,), (20, 40)),
        (reference.VERBATIM, (127 / 128,), (40,)),
    ):
        for part, size in itertools.product(parts, sizes):
            codes = tables[size].astype(float)
            codes[ESCAPE + 1 :] = 0
            frequencies = np.floor(codes / codes.sum() * (4091 - int(4096 * part))).astype(int)
            frequencies = np.minimum(frequencies, frequencies[mirrored()])
            frequencies[ESCAPE:] = 1
            frequencies[missing] = int(4096 * part)
            frequencies[reference.DIRECT] += 4096 - frequencies.sum()
            result.append(frequencies)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Presets


def bits_with(tables: Array) -> Array:
    """Bits of each symbol with each table; a symbol that the table lacks is escaped."""
    bits = np.where(tables > 0, 12 - np.log2(np.maximum(tables, 1)), 12 - np.log2(tables[:, [ESCAPE]]) + 21)
    bits[:, ESCAPE] = 12 - np.log2(tables[:, ESCAPE])
    return bits


PARAMETERS = [(a, b, c) for a in range(-40, 5, 3) for b in range(-40, 5, 3) for c in range(-32, 13, 4)]


@functools.cache
def tables_by_parameters() -> Array:
    places = [divmod(place, 8) for place in range(PLACES)]
    return np.array([[reference.table_by_parameters(p, S, N) for S, N in places] for p in PARAMETERS])


def presets(of: Sequence[Cell], tables: Array) -> tuple[list[list[int]], float]:
    """Presets, as rows of the file, for cells with the same number of dimensions; and the mean excess in size of each
    cell's best preset over its best map."""
    costs = bits_with(tables)
    g = np.array([reference.group_frequency(index) for index in range(64)])
    rows, groups, least = [], [], []
    for cell in of:
        by_table = cell.symbols.astype(float) @ costs.T
        row = np.zeros((9, len(PARAMETERS)), np.float32)
        for number in np.flatnonzero(cell.symbols.sum((1, 2))):
            row[number] = by_table[number][np.arange(PLACES), tables_by_parameters()].sum(1)
        flag = cell.groups[:, 1:] * (12 - np.log2(g)) + cell.groups[:, :1] * (12 - np.log2(4096 - g))
        rows.append(row)
        groups.append(flag)
        least.append(by_table.min(2).sum() + flag.min(1).sum())
    of_rows, of_groups, of_any = np.array(rows), np.array(groups), np.array(least)
    weight = 1 / ((of_any + 100) * [share(of, cell) for cell in of])

    n = reference.PRESETS
    by_size = np.argsort(of_any / [1 + cell.symbols.sum() for cell in of], kind="stable")
    preset = np.empty(len(of), int)
    preset[by_size] = np.arange(len(of)) * n // len(of)
    for _ in range(20):
        mine = np.array([weight * ((preset == m) + 0.01) for m in range(n)])
        parameters = np.array([np.tensordot(w, of_rows, 1).argmin(1) for w in mine])
        indices = np.array([np.tensordot(w, of_groups, 1).argmin(1) for w in mine])
        cost = np.array(
            [
                of_rows[:, range(9), p].sum(1) + of_groups[:, range(reference.GROUP_CONTEXTS), i].sum(1)
                for p, i in zip(parameters, indices, strict=True)
            ]
        )
        preset = cost.argmin(0)
    excess = float(((cost.min(0) + 100) / (of_any + 100)).mean() - 1)
    result = [
        [*(number for row in p for number in PARAMETERS[row]), *map(int, i)]
        for p, i in zip(parameters.tolist(), indices, strict=True)
    ]
    return result, excess


def comma_separated(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) + ","


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes the tables of version 2 of the format.")
    parser.add_argument("--output", type=Path, default=reference.TABLES_FILE)
    options = parser.parse_args()
    with Pool() as pool:
        of = pool.map(counted, cells(), chunksize=4)
    tables = family(of)
    lines = [
        "// Made by scripts/train_tables.py. Tables: frequencies of the codes 0 to 31, of -32, of 64 pairs of buckets,",
        "// of the escape, of special and of verbatim values. Then presets: a, b, c of 9 rows, j of 16 contexts.",
    ]
    for table in [*tables, *for_missing(tables)]:
        lines.append(comma_separated([*table[32:64], table[0], *table[64:ESCAPE:2], *table[ESCAPE:]]))
    for dimensions in (1, 2, 3):
        found, excess = presets([cell for cell in of if cell.dimensions == dimensions], tables)
        print(f"{dimensions} axes: presets take {excess:.1%} more than the best map of each field would")
        lines += map(comma_separated, found)
    options.output.write_text("\n".join(lines) + "\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
