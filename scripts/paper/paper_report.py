"""The paper page and its figures, from the results of scripts/paper/paper.py: each number next to the paper's.

The paper's numbers are copied from its tables (PACT 2020); no measured number is in this file.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import paper_reference as reference
import sdrbench

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

import runner
from runner import Row

#: Table 2: the datasets, and their extents.
EXTENTS = {each.name: " x ".join(f"{n:,}" for n in each.shapes[0]) for each in sdrbench.DATASETS if each.fields}

# ------------------------------------------------------------------------------------------------------- the paper's

#: Table 3: bins -> ms to build the tree, to get the codebook, together; Hurricane Isabel, V100.
CODEBOOK = {
    128: (0.48, 0.20, 0.68),
    256: (0.77, 1.14, 2.16),
    512: (1.80, 2.36, 4.16),
    1024: (2.13, 2.69, 4.81),
    2048: (6.46, 7.09, 13.55),
    4096: (12.68, 14.43, 27.10),
    8192: (25.06, 25.65, 50.71),
}
#: Table 4: GB/s with 64-bit and with 32-bit words.
ENCODING = {
    "HACC": (250.9, 377.7),
    "CESM-ATM": (255.1, 386.6),
    "Hurricane": (251.7, 379.6),
    "Nyx": (251.1, 377.9),
    "QMCPACK": (251.1, 377.9),
}
#: Table 5: bit rate, ratio and PSNR of cuSZ, and of cuZFP.
RATES = {
    "CESM-ATM": (3.08, 10.4, 85.3, 12, 2.7, 88.7),
    "Hurricane": (3.45, 9.3, 87.0, 12, 2.7, 81.9),
    "Nyx": (2.49, 12.8, 86.0, 6, 5.3, 85.1),
    "QMCPACK": (3.38, 9.5, 85.0, 8, 4.0, 84.0),
}
#: Table 6: log2 of the chunk size -> threads, GB/s of deflating and inflating.
CHUNKS = {
    "HACC": {
        11: (1.4e5, 4.6, 2.8),
        12: (6.9e4, 5.1, 5.1),
        13: (3.4e4, 13.6, 12.1),
        14: (1.7e4, 63.1, 35.0),
        15: (8.6e3, 65.8, 28.1),
        16: (4.3e3, 45.9, 14.3),
    },
    "CESM-ATM": {
        6: (1.0e5, 11.3, 25.0),
        7: (5.1e4, 15.5, 37.8),
        8: (2.5e4, 67.1, 41.6),
        9: (1.3e4, 55.6, 30.7),
        10: (6.3e3, 48.2, 19.6),
    },
    "Hurricane": {
        8: (9.8e4, 5.1, 11.0),
        9: (4.9e4, 10.2, 9.4),
        10: (2.4e4, 64.6, 34.2),
        11: (1.2e4, 57.3, 27.7),
        12: (6.1e3, 50.7, 17.8),
    },
    "Nyx": {
        10: (1.3e5, 4.7, 5.9),
        11: (6.6e4, 5.7, 6.3),
        12: (3.3e4, 25.1, 16.1),
        13: (1.6e4, 69.7, 52.4),
        14: (8.2e3, 72.4, 42.6),
        15: (4.1e3, 50.0, 23.1),
    },
    "QMCPACK": {
        10: (1.5e5, 4.7, 5.1),
        11: (7.7e4, 5.2, 6.2),
        12: (3.8e4, 12.9, 11.1),
        13: (1.9e4, 72.7, 40.3),
        14: (9.6e3, 75.9, 29.0),
        15: (4.8e3, 56.0, 16.1),
    },
}
#: Table 7. CPU-SZ, MB/s: predict + quantise, Huffman, compression, Huffman decoding, reversed, decompression.
CPU_SZ = {
    "HACC": (137.7, 328.6, 94.1, 196.0, 659.3, 151.1),
    "CESM-ATM": (105.0, 459.1, 85.5, 502.2, 451.9, 237.9),
    "Hurricane": (93.8, 504.0, 78.5, 524.5, 306.8, 185.0),
    "Nyx": (98.5, 648.7, 84.7, 670.4, 300.5, 201.8),
    "QMCPACK": (97.5, 396.2, 80.8, 660.3, 313.4, 211.1),
}
#: cuSZ, GB/s except for the codebook's ms: predict + quantise, histogram, codebook, coding, compression kernels, with
#: transfer to the CPU; decoding, reversed, decompression kernels.
CUSZ = {
    "HACC": (207.7, 602.8, 5.16, 54.1, 40.0, 22.8, 35.0, 16.8, 11.4),
    "CESM-ATM": (252.1, 345.3, 4.33, 57.2, 41.1, 27.4, 41.6, 58.5, 24.3),
    "Hurricane": (175.8, 418.0, 4.81, 55.2, 38.2, 19.7, 34.2, 43.9, 19.2),
    "Nyx": (200.2, 427.6, 3.84, 58.8, 41.1, 31.6, 52.4, 29.7, 19.0),
    "QMCPACK": (189.6, 346.1, 4.09, 61.0, 40.7, 28.9, 40.3, 22.4, 14.4),
}
#: cuZFP, GB/s: compression kernels, decompression kernels.
CUZFP = {"CESM-ATM": (47.6, 113.1), "Hurricane": (83.7, 102.2), "Nyx": (71.3, 103.1), "QMCPACK": (72.6, 115.5)}
#: Table 8: PSNR of SZ-1.4 and cuSZ at valrel 1e-4; "" is the average.
PSNR = {
    "Hurricane": {
        "CLOUDf48": (84.99, 94.18),
        "CLOUDf48.log10": (84.51, 87.17),
        "Pf48": (84.79, 84.79),
        "PRECIPf48": (85.35, 92.86),
        "PRECIPf48.log10": (84.82, 84.77),
        "QCLOUDf48": (85.03, 98.91),
        "QCLOUDf48.log10": (85.22, 95.21),
        "QGRAUPf48": (88.21, 97.02),
        "QGRAUPf48.log10": (84.90, 84.82),
        "QICEf48": (84.61, 95.51),
        "QICEf48.log10": (85.56, 85.77),
        "QRAINf48": (85.36, 97.37),
        "QRAINf48.log10": (84.93, 84.56),
        "QSNOWf48": (84.31, 93.36),
        "QSNOWf48.log10": (84.87, 84.93),
        "QVAPORf48": (84.79, 84.80),
        "TCf48": (84.79, 84.79),
        "Uf48": (84.79, 84.79),
        "Vf48": (84.79, 84.79),
        "Wf48": (84.79, 84.79),
        "": (85.01, 86.96),
    },
    "Nyx": {
        "baryon_density": (89.71, 98.25),
        "dark_matter_density": (86.57, 87.77),
        "temperature": (84.77, 84.77),
        "velocity_x": (84.77, 84.77),
        "velocity_y": (84.77, 84.77),
        "velocity_z": (84.77, 84.77),
        "": (85.58, 85.98),
    },
}
#: Table 9: min, percentiles, max, range, eb, within eb of 0 and of min, eb/10, within eb/10 of 0 and of min.
NEAR_ZERO = {
    "CLOUDf48": (0, 0, 0, 0, 0, 2.53e-4, 2.05e-3, 2.05e-3, 2.05e-7, 0.892, 0.892, 2.05e-8, 0.885, 0.885),
    "QSNOWf48": (
        *(0, 0, 1.11e-10, 1.96e-9, 6.34e-9, 6.01e-5, 8.56e-4, 8.56e-4),
        *(8.56e-8, 0.889, 0.889, 8.56e-9, 0.809, 0.809),
    ),
    "baryon_density": (0.058, 0.137, 0.322, 0.506, 0.875, 7.42, 1.16e5, 1.16e5, 11.6, 0.995, 0.995, 1.16, 0.833, 0.844),
}
NEAR_ZERO_COLUMNS = (
    *("min", "1%", "25%", "50%", "75%", "99%", "max", "range"),
    *("eb", "within eb of 0", "within eb of min", "eb/10", "within eb/10 of 0", "within eb/10 of min"),
)


def paper_name(name: str, known: Iterable[str]) -> str | None:
    """The paper's name for a field: QCLOUD and QCLOUD.log10 of the proxy are its QCLOUDf48 and QCLOUDf48.log10."""
    base, dot, rest = name.partition(".")
    for candidate in (name, f"{base}f48{dot}{rest}"):
        if candidate and candidate in known:
            return candidate
    return None


# --------------------------------------------------------------------------------------------------------- the rows


class Results:
    """The results, by dataset."""

    def __init__(self, document: Row) -> None:
        self.document, self.head = document, document["head"]
        self.skipped = [row for row in document["fields"] if "error" in row]
        self.fields = [row for row in document["fields"] if "error" not in row]
        self.datasets = [name for name in EXTENTS if any(row["dataset"] == name for row in self.fields)]

    def of(self, dataset: str) -> list[Row]:
        return [row for row in self.fields if row["dataset"] == dataset]

    def peer(self, name: str) -> str:
        peer = self.head["peers"][name]
        return peer["version"] or peer["missing"]


def mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def throughput(values: Iterable[float]) -> float:
    """GB/s over fields of one size: all bytes over all time."""
    return 1 / mean(1 / value for value in values)


def values_of(row: Row) -> int:
    return math.prod(row["shape"])


def stage(rows: Sequence[Row], names: Sequence[str]) -> float:
    """GB/s of stages of the reference, f32."""
    return sum(4 * values_of(r) for r in rows) / sum(r["reference"]["seconds"][n] for r in rows for n in names) / 1e9


def encoding(row: Row) -> str:
    """The stage that encodes with the words that were chosen."""
    return f"encode{row['reference']['word']}"


def zfp_near(rows: Sequence[Row]) -> tuple[float, float, int] | None:
    """Bits, PSNR and index of zfp's rate whose mean PSNR over the fields is closest to 85 dB."""
    if not all(row["zfp"] for row in rows):
        return None
    points = []
    for i in range(len(rows[0]["zfp"])):
        psnr = reference.mean_psnr([row["zfp"][i]["psnr"] for row in rows])
        points.append((mean(row["zfp"][i]["rate"] for row in rows), psnr, i))
    return min(points, key=lambda point: abs(point[1] - 85))


# ------------------------------------------------------------------------------------------------------------ Markdown


#: Head and lines of a table that has its own file.
Cells = tuple[Sequence[object], Sequence[Sequence[object]]]


def table(rows: Sequence[Row]) -> str:
    return f"{runner.table_of(rows)}\n"


def cells(rows: Sequence[Row]) -> Cells:
    return list(rows[0]) if rows else [], [list(row.values()) for row in rows]


def number(value: float | None, digits: int = 3) -> str:
    """Formats to `digits` digits, without an exponent where that is short."""
    if value is None:
        return "–"
    if math.isinf(value):
        return "exact"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size >= 5 or size < -3:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(digits - 1 - size, 0)}f}"


def percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def decibels(value: float | None) -> str:
    return "–" if value is None else "exact" if math.isinf(value) else f"{value:.2f}"


STEPS = ("build tree, ms", "get codebook", "total")


def codebook(results: Results) -> Cells:
    rows = []
    for row in results.document["codebooks"].get("rows", []):
        bins, tree, book = row["bins"], row["tree_ms"], row["codebook_ms"]
        pairs = (("paper", CODEBOOK[bins]), ("reference", (tree, book, tree + book)))
        rows.append(
            {"bins": bins}
            | {f"{who}: {name}": f"{ms:.2f}" for who, times in pairs for name, ms in zip(STEPS, times, strict=True)}
            | {"symbols that occur, longest code": f"{row['symbols']}, {row['widest']}"}
            | {f"engine, {backend}: whole call, ms": f"{ms:.2f}" for backend, ms in row["engine_ms"].items()}
            | gpu_book(results, bins)
        )
    return cells(rows)


def gpu_book(results: Results, bins: int) -> Row:
    staged = [row for row in results.document["gpu"] if row["stages"]]
    if not staged:
        return {}
    found = [row["stages"]["make_book"] for row in staged if row["bins"] == bins and "make_book" in row["stages"]]
    return {"engine, GPU: codebook kernel, ms": f"{found[0] / 1e3:.3f}" if found else "–"}


def words(results: Results) -> Cells:
    rows = []
    for dataset in results.datasets:
        fields = results.of(dataset)
        both = [row for row in fields if "encode32" in row["reference"]["seconds"]]
        paper64, paper32 = ENCODING[dataset]
        wide = stage(both, ["encode64"]) if both else None
        narrow = stage(both, ["encode32"]) if both else None
        rows.append(
            {
                "dataset": dataset,
                "paper: 64-bit, GB/s": number(paper64, 4),
                "paper: 32-bit": number(paper32, 4),
                "paper: 32 over 64": f"{paper32 / paper64:.2f}",
                "reference: 64-bit, GB/s": number(wide),
                "reference: 32-bit": number(narrow),
                "reference: 32 over 64": f"{narrow / wide:.2f}" if wide and narrow else "–",
                "longest code, bits": max(row["reference"]["widest"] for row in fields),
                "fields that fit 32 bits": f"{len(both)} of {len(fields)}",
            }
        )
    return cells(rows)


RATE_COLUMNS = (
    *("dataset", "", "bits per value", "ratio", "PSNR, dB"),
    *("zfp: bits", "zfp: ratio", "zfp: PSNR, dB", "zfp's bits over ours"),
)


def rates(results: Results) -> Cells:
    rows: list[list[object]] = []
    for dataset in results.datasets:
        if paper := RATES.get(dataset):
            rows.append([dataset, "paper", *paper, f"{paper[3] / paper[0]:.2f}"])
        fields = results.of(dataset)
        near = zfp_near(fields)
        zfp = ["–"] * 3 if near is None else [f"{near[0]:.2f}", f"{32 / near[0]:.1f}", f"{near[1]:.1f}"]
        for name in ("reference", "engine"):
            rate = mean(row[name].get("rate", row[name].get("bit_rate")) for row in fields)
            psnr = reference.mean_psnr([row[name]["psnr"] for row in fields])
            factor = "–" if near is None else f"{near[0] / rate:.2f}"
            rows.append([dataset, name, f"{rate:.2f}", f"{32 / rate:.1f}", f"{psnr:.1f}", *zfp, factor])
    return RATE_COLUMNS, rows


def chunks(results: Results) -> Cells:
    rows: list[list[object]] = []
    for dataset in results.datasets:
        for power, (threads, deflating, inflating) in CHUNKS[dataset].items():
            rows.append([dataset, "paper", f"2^{power}", f"{threads:.1e}", deflating, inflating, "–"])
        for row in next((row["chunks"] for row in results.of(dataset) if row["chunks"]), []):
            speeds = [number(row[f"{what}_gbps"]) for what in ("deflate", "inflate")]
            chunk = f"2^{int(math.log2(row['chunk']))}"
            rows.append([dataset, "reference", chunk, f"{row['threads']:.1e}", *speeds, percent(row["overhead"])])
    columns = ["dataset", "", "chunk", "threads", "deflate, GB/s", "inflate, GB/s", "lost at chunks' ends"]
    return columns, rows


def breakdown(results: Results) -> Cells:
    rows: list[list[object]] = []
    for dataset in results.datasets:
        fields = results.of(dataset)
        paper = [*CUSZ[dataset][:5], *CUSZ[dataset][6:]]
        paper[2] = f"{paper[2]:.2f}"
        rows.append([dataset, "paper: cuSZ, V100", *paper])
        sz = [number(mb / 1e3) for mb in CPU_SZ[dataset]]
        rows.append(["", "paper: CPU-SZ", sz[0], "–", "–", *sz[1:]])
        if dataset in CUZFP:
            rows.append(whole_call("paper: cuZFP, V100", CUZFP[dataset]))

        seconds = [{**r["reference"]["seconds"], "encode": r["reference"]["seconds"][encoding(r)]} for r in fields]

        def gbps(*names: str, of: Sequence[Row] = fields, seconds: Sequence[Row] = seconds) -> str:
            return number(sum(4 * values_of(r) for r in of) / sum(s[n] for s in seconds for n in names) / 1e9)

        book = mean(1e3 * (s["tree"] + s["codebook"]) for s in seconds)
        forward = [gbps("quantise"), gbps("histogram"), f"{book:.2f}", gbps("encode", "deflate"), gbps(*FORWARD)]
        backward = [gbps("inflate"), gbps("reverse"), gbps("inflate", "reverse")]
        rows.append(["", "reference, NumPy", *forward, *backward])
        for name, prefix in (("1 thread", ""), (f"{results.head['threads']} threads", "threads_")):
            if f"{prefix}compress_gbps" in fields[0]["engine"]:
                speeds = [
                    number(throughput(row["engine"][f"{prefix}{what}_gbps"] for row in fields))
                    for what in ("compress", "decompress")
                ]
                rows.append(whole_call(f"engine, CPU, {name}", speeds))
        rows += gpu_breakdown(results, dataset)
        rows.append(whole_call("SZ-1.4 here, 1 thread", peer_speeds([row["sz14"] for row in fields])))
        if (near := zfp_near(fields)) is not None:
            speeds = peer_speeds([field["zfp"][near[2]] for field in fields])
            rows.append(whole_call(f"zfp here, {near[0]:.0f} bits, 1 thread", speeds))
    columns = [
        *("dataset", "", "predict + quantise", "histogram", "codebook, ms", "coding"),
        *("compression", "decoding", "reversed p + q", "decompression"),
    ]
    return columns, rows


#: Stages of the reference's compression.
FORWARD = ("quantise", "histogram", "tree", "codebook", "encode", "deflate")


def whole_call(name: str, speeds: Sequence[object]) -> list[object]:
    """A row without the times of stages."""
    return ["", name, *["–"] * 4, speeds[0], "–", "–", speeds[1]]


def peer_speeds(rows: Sequence[Row]) -> list[str]:
    if errors := [row["error"] for row in rows if "error" in row]:
        return [errors[0], "–"]
    return [number(throughput(row[f"{what}_gbps"] for row in rows)) for what in ("compress", "decompress")]


def gpu_breakdown(results: Results, dataset: str) -> list[list[object]]:
    """A row of the engine's kernels: counting and coding both predict, so the paper's columns cannot be separated."""
    rows: list[list[object]] = []
    for row in results.document["gpu"]:
        if row["bins"] != 64 or not row["dataset"].startswith(f"{dataset} "):
            continue
        cells: list[object] = ["–"] * 4
        if stages := row["stages"]:
            size = math.prod(row["shape"]) * 4 / 1e3
            count, pack = (
                number(size / stages[name]) if name in stages else "–" for name in ("count_symbols", "compress_tiles")
            )
            cells = ["in both →", count, f"{stages.get('make_book', 0) / 1e3:.3f}", pack]
        speeds = [number(row[f"{what}_gbps"]) for what in ("compress", "decompress")]
        rows.append(["", f"engine, {results.head['gpu']}", *cells, speeds[0], "–", "–", speeds[1]])
    return rows


def qualities(results: Results) -> Cells:
    rows = []
    for dataset in ("Hurricane", "Nyx"):
        fields = results.of(dataset)
        for field in fields:
            known = PSNR[dataset].get(paper_name(field["field"], PSNR[dataset]) or "-")
            rows.append({"dataset": dataset, "field": field["field"], **psnr_cells(known, [field])})
        if fields:
            rows.append({"dataset": dataset, "field": "average", **psnr_cells(PSNR[dataset][""], fields)})
    return cells(rows)


def psnr_cells(known: tuple[float, float] | None, fields: Sequence[Row]) -> Row:
    ours = {key: reference.mean_psnr([row[key]["psnr"] for row in fields]) for key in ("reference", "engine")}
    errors = [row["sz14"]["error"] for row in fields if "error" in row["sz14"]]
    sz14 = None if errors else reference.mean_psnr([row["sz14"]["psnr"] for row in fields])
    return {
        "paper: SZ-1.4": decibels(known and known[0]),
        "paper: cuSZ": decibels(known and known[1]),
        "paper: difference": f"{known[1] - known[0]:+.2f}" if known else "–",
        "SZ-1.4 here": errors[0] if errors else decibels(sz14),
        "reference": decibels(ours["reference"]),
        "engine": decibels(ours["engine"]),
        "difference of the engine": "–"
        if sz14 is None or math.isinf(ours["engine"])
        else f"{ours['engine'] - sz14:+.2f}",
    }


def near_zero(results: Results) -> Cells:
    def row_of(name: str, where: str, values: Mapping[str, float]) -> Row:
        own = {c: percent(values[c]) if c.startswith("within") else number(values[c]) for c in NEAR_ZERO_COLUMNS}
        return {"field": name, "": where, **own}

    rows = []
    for known, paper in NEAR_ZERO.items():
        rows.append(row_of(known, "paper", dict(zip(NEAR_ZERO_COLUMNS, paper, strict=True))))
        for field in results.fields:
            if paper_name(field["field"], NEAR_ZERO) == known and field["dataset"] in PSNR:
                rows.append(row_of(field["field"], "here", field["percentiles"]))
    others = [field for field in results.fields if paper_name(field["field"], NEAR_ZERO) is None]
    for field in sorted(others, key=lambda field: -field["engine"]["psnr"])[:3]:
        rows.append(row_of(field["field"], "here", field["percentiles"]))
    return cells(rows)


def bounds(results: Results) -> str:
    rows = []
    for dataset in results.datasets:
        fields = results.of(dataset)
        values = sum(values_of(row) for row in fields)
        beyond = sum(row["reference"]["beyond_bound"] for row in fields)
        outliers = sum(row["reference"]["outliers"] for row in fields)
        rows.append(
            {
                "dataset": dataset,
                "fields": len(fields),
                "10^6 values": f"{values / 1e6:.1f}",
                "reference: outliers": percent(outliers / values),
                "reference: values beyond the bound": beyond,
            }
            | {
                f"{name}: largest error / bound": f"{max(row[name]['max_error_over_eb'] for row in fields):.9f}"
                for name in ("reference", "engine")
            }
        )
    return table(rows)


def fields_table(results: Results) -> str:
    rows = []
    for dataset in results.datasets:
        fields = results.of(dataset)
        shapes = dict.fromkeys(" x ".join(map(str, row["shape"])) for row in fields)
        names = ", ".join(f"`{row['field']}`" for row in fields)
        origins = dict.fromkeys(f"`{row['origin']}`" for row in fields)
        about = {"dataset": dataset, "paper: extents": EXTENTS[dataset], "here: extents": "; ".join(shapes)}
        rows.append({**about, "fields": names, "from": ", ".join(list(origins)[:3])})
    return table(rows)


# ------------------------------------------------------------------------------------------------------------- figures

COLOURS = {"engine": "#000000", "reference": "#009E73", "zfp": "#D55E00", "SZ-1.4": "#0072B2"}
Axes = Any


def draw(results: Results, folder: Path) -> list[tuple[str, str]]:
    """Writes the figures that have data. Returns their file names and captions."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"font.size": 8, "svg.hashsalt": "cusz"})
    drawn = [("throughput.png", "Figure 5: compression and decompression, GB/s (logarithmic).")]
    _throughput(results, folder / "throughput.png")
    for dataset, figure in (("Nyx", 6), ("Hurricane", 7)):
        if results.of(dataset):
            name = f"rate_distortion_{dataset.lower()}.png"
            _curves(results, dataset, folder / name)
            drawn.append((name, f"Figure {figure}: rate-distortion of every field of {dataset}."))
    if any(results.of(dataset) for dataset in ("Hurricane", "Nyx")):
        _overall(results, folder / "rate_distortion_overall.png")
        caption = "Figure 8: overall rate-distortion, averages over the fields (crosses: the paper's Table 5)."
        drawn.append(("rate_distortion_overall.png", caption))
    return drawn


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def _curves(results: Results, dataset: str, path: Path) -> None:
    """A panel for each field: PSNR over bits per value."""
    import matplotlib.pyplot as plt

    fields = results.of(dataset)
    columns = min(5 if len(fields) > 9 else 3, len(fields))
    lines = math.ceil(len(fields) / columns)
    size = (2.05 if columns > 3 else 2.6) * columns + 0.3, 1.75 * lines + 0.6
    figure, panels = plt.subplots(
        lines, columns, figsize=size, squeeze=False, layout="constrained", sharex=True, sharey=True
    )
    for panel in panels.flat[len(fields) :]:
        panel.set_visible(False)
    for n, (panel, field) in enumerate(zip(panels.flat, fields, strict=False)):
        for name, key, style in LINES:
            _line(panel, field.get(key, []), COLOURS[name], style)
        _grid(panel)
        panel.set_title(field["field"], fontsize=8, pad=3)
        if n + columns >= len(fields):
            panel.set_xlabel("bits per value")
            panel.tick_params(labelbottom=True)
    for panel in panels[:, 0]:
        panel.set_ylabel("PSNR, dB")
    _legend(figure, [name for name, key, _ in LINES if any(field.get(key) for field in fields)])
    _save(figure, path)


LINES = (
    ("zfp", "zfp", "^--"),
    ("reference", "reference_curve", "s-"),
    ("engine", "engine_curve", "o-"),
)
LABELS = {
    "zfp": "zfp, fixed rate",
    "reference": "cuSZ, the paper's setting (reference)",
    "engine": "cusz (engine)",
}


def _line(panel: Axes, rows: Sequence[Row], colour: str, style: str) -> None:
    points = [(row["rate"], row["psnr"]) for row in rows if math.isfinite(row["psnr"])]
    if points:
        panel.plot(*zip(*points, strict=True), style, color=colour, markersize=3, linewidth=1.1)


def _grid(panel: Axes) -> None:
    panel.set_xlim(0, 20.5)
    panel.set_xticks([0, 4, 8, 12, 16, 20])
    panel.set_ylim(30, 150)
    panel.grid(True, linewidth=0.3)


def _legend(figure: Any, names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    styles: dict[str, Any] = {name: style for name, _, style in LINES}
    handles = [
        Line2D([], [], color=COLOURS[n], marker=styles[n][0], linestyle=styles[n][1:], markersize=4, label=LABELS[n])
        for n in names
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)


def _overall(results: Results, path: Path) -> None:
    import matplotlib.pyplot as plt

    datasets = [name for name in ("Hurricane", "Nyx") if results.of(name)]
    figure, panels = plt.subplots(
        1, len(datasets), figsize=(3.6 * len(datasets), 3.2), squeeze=False, layout="constrained", sharey=True
    )
    for panel, dataset in zip(panels.flat, datasets, strict=True):
        fields = results.of(dataset)
        for name, key, style in LINES:
            _line(panel, averages([field.get(key, []) for field in fields]), COLOURS[name], style)
        bits, _, psnr, zbits, _, zpsnr = RATES[dataset]
        panel.plot([bits], [psnr], "x", color=COLOURS["reference"], markersize=8, markeredgewidth=2)
        panel.plot([zbits], [zpsnr], "x", color=COLOURS["zfp"], markersize=8, markeredgewidth=2)
        panel.set_title(f"{dataset}, {len(fields)} fields", fontsize=9)
        panel.set_xlabel("bits per value, mean")
        _grid(panel)
    panels[0, 0].set_ylabel("PSNR of the mean squared error, dB")
    drawn = [row for dataset in datasets for row in results.of(dataset)]
    _legend(figure, [name for name, key, _ in LINES if any(row.get(key) for row in drawn)])
    _save(figure, path)


def averages(curves: Sequence[Sequence[Row]]) -> list[Row]:
    """Averages point by point, leaving out points that some field lacks."""
    key = "asked" if any("asked" in row for curve in curves for row in curve) else "eb"
    points = []
    for at in dict.fromkeys(row[key] for curve in curves for row in curve):
        rows = [row for curve in curves for row in curve if row[key] == at]
        if len(rows) == len(curves):
            points.append(
                {"rate": mean(r["rate"] for r in rows), "psnr": reference.mean_psnr([r["psnr"] for r in rows])}
            )
    return points


def _throughput(results: Results, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(8, 3.1), squeeze=False, layout="constrained", sharey=True)
    for panel, what in zip(panels.flat, ("compress", "decompress"), strict=True):
        bars = bars_of(results, what)
        width = 0.8 / len(bars)
        for n, (name, (colour, heights)) in enumerate(bars.items()):
            places = [d + (n - (len(bars) - 1) / 2) * width for d, h in enumerate(heights) if h]
            panel.bar(places, [h for h in heights if h], width, color=colour, label=name)
        panel.set(yscale="log", title=f"{what}ion")
        panel.set_xticks(range(len(results.datasets)), results.datasets)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.grid(True, axis="y", linewidth=0.3)
        panel.set_axisbelow(True)
    panels[0, 0].set_ylabel("GB/s")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    _save(figure, path)


def bars_of(results: Results, what: str) -> dict[str, tuple[str, Sequence[float | None]]]:
    """Colour and a height for each dataset, by label in the legend."""

    def measured(key: str, name: str) -> list[float | None]:
        speeds = [[row[key].get(name) for row in results.of(dataset)] for dataset in results.datasets]
        return [None if None in each else throughput(each) for each in speeds]

    compressing = what == "compress"
    cusz = [CUSZ[dataset][4 if compressing else 8] for dataset in results.datasets]
    cpu_sz = [CPU_SZ[dataset][2 if compressing else 5] / 1e3 for dataset in results.datasets]
    many, one = f"engine, CPU, {results.head['threads']} threads", "engine, CPU, 1 thread"
    bars: dict[str, tuple[str, Sequence[float | None]]] = {
        "paper: cuSZ, V100, kernels": ("#999999", cusz),
        many: ("#000000", measured("engine", f"threads_{what}_gbps")),
        one: ("#56B4E9", measured("engine", f"{what}_gbps")),
        "SZ-1.4 here, 1 thread": (COLOURS["SZ-1.4"], measured("sz14", f"{what}_gbps")),
        "paper: CPU-SZ, 1 core": ("#CC79A7", cpu_sz),
    }
    if results.document["gpu"]:
        heights: list[float | None] = []
        for dataset in results.datasets:
            rows = [r for r in results.document["gpu"] if r["bins"] == 64 and r["dataset"].startswith(f"{dataset} ")]
            heights.append(rows[0][f"{what}_gbps"] if rows else None)
        bars = {f"engine, {results.head['gpu']}, kernels": ("#E69F00", heights), **bars}
    return {name: bar for name, bar in bars.items() if any(bar[1])}


# ---------------------------------------------------------------------------------------------------------- the report


def report(results: Results, figures: Sequence[tuple[str, str]]) -> str:
    head = results.head
    pictures = {name: f"![{caption}]({name})\n\n{caption}\n" for name, caption in figures}
    curves = "\n".join(text for name, text in pictures.items() if name.startswith("rate"))
    gpu = (
        f"The engine's times are those of its CPU backend: {head['gpu_missing']}."
        if head["gpu_missing"]
        else f"GPU: {head['gpu']}."
    )
    other = (
        "the front of the fields alone, where they are large" if head["sdrbench"] else "other fields than the paper's"
    )
    where = f"The fields are {'files of SDRBench.' if head['sdrbench'] else PROXIES}"
    skipped = "".join(f"- left out: {row['dataset']} `{row['field']}`: {row['error']}\n" for row in results.skipped)
    skipped += "\n" if skipped else ""
    source = results.document["codebooks"]
    codebook_source = (
        f"Of {source['dataset']}, `{source['field']}`, in milliseconds." if source else "No field was there."
    )
    return wrapped(f"""\
# The paper's tables and figures, here

Written by `scripts/paper/paper.py` from [results.json](results.json): {runner.where(head)}; Python {head["python"]},
numpy {head["numpy"]}, cusz {head["cusz"]}; {head["minutes"]:.0f} minutes, load average {head["load"]:.1f}. Times are
medians of {head["repeat"]}, on a machine that others may share: ratios and PSNR are exact, times are not. {gpu}

Measured are:

- **reference**: `scripts/paper/paper_reference.py`, the paper's algorithm in its exact setting (tiles of 8 x 8 x 8,
  16 x 16 and 32 with a padding of zeros, 1024 bins, one unlimited codebook, codewords in 32- or 64-bit words, chunks to
  deflate), in NumPy. Its ratios and PSNR are the algorithm's; its speed is that of NumPy on one core.
- **engine**: `cusz_core` with `predictor = lorenzo` ([format](../../reference/format.md)).
- **zfp** ({results.peer("zfp")}) in fixed-rate mode, the one that cuZFP has.
- **SZ-1.4** ({results.peer("sz14")}) without regression, with 1024 bins and gzip at best speed, as in the paper.

The paper's numbers (Tian et al., PACT 2020; an NVIDIA V100 beside two Xeon Gold 6148) stand beside ours. Bounds are
relative to the value range, {results.document["valrel"]:g} unless said. Averages are the paper's: of bits per value,
and of squared errors over the squared range.

In short:

{summary(results)}
## Table 2: the fields

{fields_table(results)}
{where}

{skipped}## The other tables

Each has the paper's numbers beside those measured here.

- [Table 3](table_3.csv), constructing a codebook. {codebook_source} The engine's column is a whole call on 2^18 values
  that use all bins alike.
- [Table 4](table_4.csv), codewords in 32 or 64 bits: GB/s of the field's bytes, encoding alone, over the fields whose
  codes fit 32 bits (8 of them for the width). The engine has no such words.
- [Table 5](table_5.csv), bit rate at about 85 dB. zfp has the rate of
  {", ".join(str(r) for r in zfp_rates(results)) or "those tried"} bits whose mean PSNR is next to 85 dB.
  Here: {other}. {ranges_differ(results)}
- [Table 6](table_6.csv), chunks to deflate: of the first field of each dataset; the reference's threads are its chunks.
  "Lost" is what chunks add to the codewords: a new 64-bit unit, and 32 bits for the length. The engine has 32
  substreams a tile instead.
- [Table 7](table_7.csv), stages: GB/s of the field's bytes, codebook in milliseconds. Compression is the paper's
  "kernel compression". The engine's rows are whole calls, with checksums and the pass for the value range (alone, GB/s:
  {ranges(results)}). The reference's chunks leave about 2 * 10^4 threads, the paper's best, or have 64 values. SZ and
  zfp take 4-D fields as 3-D.
- [Table 8](table_8.csv), PSNR and SZ-1.4, dB at {results.document["valrel"]:g}. The paper's point holds: where many
  values lie within the bound of zero, dual-quantisation gives more than the 84.77 dB of errors that spread evenly.
- [Table 9](table_9.csv), values near zero: the fields that the paper shows, those of the same name here, and the three
  others here whose PSNR is highest.

{pictures.get("throughput.png", "")}
## The bound

{bounds(results)}
The paper says that the error of prequantisation is "strictly bounded". In the arithmetic of f32 it is not quite:
rounding d / (2 eb) and the product with 2 eb takes some values beyond it, by as much as the column says. The engine
looks at every value, and stores apart what would miss; its error never exceeds the bound.

## Figures 6, 7, 8: rate-distortion

{curves}
A bit more gives zfp 6 dB more. The algorithm's curves rise steeply where a field is mostly zeros. The reference has at
least one bit a value, which is where its curves and the engine's part on the left.""")


def summary(results: Results) -> str:
    """The main results of the tables, in numbers."""
    lines = []
    factors = {}
    for dataset in RATES:
        fields = results.of(dataset)
        if fields and (near := zfp_near(fields)):
            factors[dataset] = [near[0] / mean(row[key][name] for row in fields) for key, name in OWN_RATES]
    if factors:
        references, engines = zip(*factors.values(), strict=True)
        papers = [RATES[dataset][3] / RATES[dataset][0] for dataset in factors]
        lines.append(
            f"At about 85 dB zfp's fixed rate takes {span(references)} times the bits of the paper's algorithm, and "
            f"{span(engines)} times those of the engine; in the paper {span(papers)} times (Table 5)."
        )
    narrow = sum(row["reference"]["word"] == 32 for row in results.fields)
    lines.append(f"32-bit words hold the codewords of {narrow} of {len(results.fields)} fields (Table 4).")
    beside = [row for row in results.fields if row["dataset"] in PSNR and "error" not in row["sz14"]]
    gains = [row["engine"]["psnr"] - row["sz14"]["psnr"] for row in beside if math.isfinite(row["engine"]["psnr"])]
    if gains:
        lines.append(
            f"At the same bound the PSNR of dual-quantisation is {span(gains, '+.1f')} dB from that of SZ-1.4; in the "
            f"paper {span(paper_gains(), '+.1f')} (Table 8)."
        )
    beyond = sum(row["reference"]["beyond_bound"] for row in results.fields)
    values = sum(values_of(row) for row in results.fields)
    most = max((row["engine"]["max_error_over_eb"] for row in results.fields), default=0)
    lines.append(
        f"In f32 arithmetic the paper's algorithm misses the bound on {beyond} of {values} values, the engine on none: "
        f"its largest error is {most:.9f} times the bound."
    )
    return "".join(f"- {line}\n" for line in lines)


OWN_RATES = (("reference", "rate"), ("engine", "bit_rate"))


def paper_gains() -> list[float]:
    return [cusz - sz for fields in PSNR.values() for sz, cusz in fields.values()]


def span(values: Sequence[float], form: str = ".1f") -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


def ranges_differ(results: Results) -> str:
    """Compares the spread of the densities of Nyx and its proxy: it decides how much of them is zero at valrel 1e-4."""
    here = [row["percentiles"] for row in results.of("Nyx") if row["field"] == "baryon_density"]
    if not here or results.head["sdrbench"]:
        return ""
    theirs = dict(zip(NEAR_ZERO_COLUMNS, NEAR_ZERO["baryon_density"], strict=True))
    return (
        f"The baryon density of Nyx reaches {theirs['max'] / theirs['50%']:.1e} times its median, so that at 1e-4 of "
        "its range all but its peaks are zero; that of the proxy "
        f"reaches {here[0]['max'] / here[0]['50%']:.0f} times its own. "
    )


def wrapped(text: str) -> str:
    """Paragraphs and list items in lines of up to 120 characters; tables, headings and pictures as they are."""

    def fill(block: str) -> str:
        if block.lstrip().startswith(("#", "|", "!")):
            return block
        if block.startswith("- "):
            return "\n".join(runner.filled("- " + " ".join(item.split()), "  ") for item in block[2:].split("\n- "))
        return runner.filled(block)

    return "\n\n".join(map(fill, text.rstrip("\n").split("\n\n"))) + "\n"


PROXIES = (
    "those of proxies, not the paper's files, and smaller, for a run of minutes on two cores: small fields pay more "
    "for codebook and chunks, and have less in them that is smooth at the scale of a tile."
)


def zfp_rates(results: Results) -> list[int]:
    return sorted({row["asked"] for field in results.fields for row in field["zfp"]})


def ranges(results: Results) -> str:
    return ", ".join(
        f"{dataset} {number(throughput(row['engine']['range_gbps'] for row in results.of(dataset)))}"
        for dataset in results.datasets
    )


#: Tables with their own files, by their numbers in the paper.
TABLES = ((3, codebook), (4, words), (5, rates), (6, chunks), (7, breakdown), (8, qualities), (9, near_zero))


def write(document: Row, folder: Path) -> None:
    """Writes results.json, the figures (if matplotlib is installed) and README.md into an existing folder."""
    results = Results(document)
    (folder / "results.json").write_text(json.dumps(document, indent=None, separators=(",", ":")) + "\n")
    for number_of_table, of in TABLES:
        runner.write_table(folder / f"table_{number_of_table}.csv", *of(results))
    figures = draw(results, folder) if importlib.util.find_spec("matplotlib") else []
    (folder / "README.md").write_text(report(results, figures))
