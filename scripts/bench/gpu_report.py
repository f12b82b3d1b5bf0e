"""The results of gpu.py and gpu_peers.py, as JSON and as sections of docs/benchmarks/gpu.md and gpu-kernels.md."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpu_resources
import runner
from runner import PAGES, Document, Row, filled, mean_ratios, ratios, significant, table

OURS = "cusz_core"
RESULTS = Path(__file__).with_name("results")
NOT_MEASURED = "Not measured on a GPU yet: no speed of the CUDA backend is known."

#: Members of every row; rows of other tools need no more.
COLUMNS = (
    *("tool", "version", "dataset", "shape", "dtype", "mode", "eb", "ratio", "psnr", "max_error_over_eb"),
    *("compress_gbps", "decompress_gbps", "end_to_end_gbps", "note"),
)


# ------------------------------------------------------------------------------------------------------------ files


def read(path: Path) -> Document:
    document: Document = json.loads(path.read_text())
    for row in document["rows"]:
        missing = [name for name in COLUMNS if name not in row]
        if missing:
            raise ValueError(f"{path}: a row has no {missing[0]!r}")
        for name in ("ratio", "psnr", "max_error_over_eb"):
            row[name] = None if row[name] is None else float(row[name])
    return document


def is_beside(row: Row) -> bool:
    """Whether a row comes from gpu_peers.py: for a peer, or for our engine measured with them."""
    return "rel_eb" in row


def documents(folder: Path = RESULTS, *, beside: bool = False) -> list[Document]:
    """All results, the latest of every GPU; either gpu.py's or gpu_peers.py's (`beside`)."""
    latest: dict[str, Document] = {}
    for path in sorted(folder.glob("*_*.json")):
        document = read(path)
        if not any(is_beside(row) == beside for row in document["rows"]):
            continue
        before = latest.get(document["gpu"])
        if before is None or before.get("date", "") <= document.get("date", ""):
            latest[document["gpu"]] = document
    return [latest[gpu] for gpu in sorted(latest)]


# ----------------------------------------------------------------------------------------------------------- tables


def _number(row: Row, name: str) -> str:
    return significant(row.get(name))


def _percent(row: Row, name: str) -> str:
    value = row.get(name)
    return "–" if value is None else f"{100 * value:.0f}%"


def _title(row: Row) -> list[str]:
    shape = "x".join(map(str, row["shape"]))
    return [str(row["dataset"]), shape, str(row["dtype"]), f"{row['mode']} {row['eb']:g}"]


_TITLE = ("field", "shape", "type", "bound")


_MEASURED = ("tool", "ratio", "PSNR", "max error / bound", "beyond it", "compress GB/s", "decompress GB/s")


def _measured(row: Row) -> list[str]:
    psnr, worst, beyond = row["psnr"], row["max_error_over_eb"], row.get("violations")
    return [
        str(row["tool"]),
        _number(row, "ratio"),
        "–" if psnr is None else f"{psnr:.1f}",
        "–" if worst is None else f"{worst:.6f}",
        "–" if beyond is None else str(beyond),
        *(_number(row, f"{what}_gbps") for what in ("compress", "decompress")),
    ]


def _note(row: Row) -> str:
    return str(row["note"]).replace("|", "/") or "–"


def speeds(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        of_copy = f"{_percent(row, 'compress_roofline')} / {_percent(row, 'decompress_roofline')}"
        from_host = f"{_number(row, 'end_to_end_gbps')} / {_number(row, 'decompress_end_to_end_gbps')}"
        lines.append([*_title(row), *_measured(row), of_copy, from_host, _note(row)])
    return table([*_TITLE, *_MEASURED, "of the copy's speed", "host to host GB/s", "note"], lines)


def latency(rows: Sequence[Row]) -> str:
    """Microseconds of whole calls on small fields: a rank's block."""
    lines = []
    for row in rows:
        stages = row.get("stages") or {}
        lines.append(
            [
                *_title(row),
                f"{_number(row, 'compress_us')} / {_number(row, 'decompress_us')}",
                f"{_number(row, 'compress_wall_us')} / {_number(row, 'decompress_wall_us')}",
                f"{significant(_sum(stages, COMPRESSION))} / {significant(_sum(stages, DECOMPRESSION))}",
            ]
        )
    return table((*_TITLE, "between events", "by the host's clock", "kernels alone"), lines)


COMPRESSION = (
    *("clear", "compute_range", "resolve_bound", "count_symbols", "make_book", "clear_states", "compress_tiles"),
)
DECOMPRESSION = ("clear_for_reading", "find_starts", "decompress_tiles")


def blocks(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        number, edge = row["blocks"]
        speed = number * edge**3 * _value_bytes(row) / row["blocks_us"] / 1e3
        lines.append([*_title(row), f"{number} of {edge}^3", significant(row["blocks_us"]), significant(speed)])
    return table((*_TITLE, "blocks", "us by the host's clock", "GB/s"), lines)


def spline(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        speeds = (_bytes(row) / row[f"spline_{what}_us"] / 1e3 for what in ("compress", "decompress"))
        lines.append(
            [*_title(row), _number(row, "spline_ratio"), f"{row['spline_psnr']:.1f}", *map(significant, speeds)]
        )
    return table((*_TITLE, "ratio", "PSNR", "compress GB/s", "decompress GB/s"), lines)


def _sum(stages: dict[str, float], names: Sequence[str]) -> float | None:
    found = [stages[name] for name in names if name in stages]
    return sum(found) if found and names[-1] in stages else None


def stages_table(rows: Sequence[Row]) -> str:
    names = [*COMPRESSION, *DECOMPRESSION, "sum_pieces", "nothing"]
    lines = [[*_title(row), *(significant(row["stages"].get(name)) for name in names)] for row in rows]
    return table((*_TITLE, *(f"`{name}`" for name in names)), lines)


def resources_table(figures: dict[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """Head and rows, one for each kind of launch; values that differ between architectures are joined by slashes."""
    architectures = sorted({row["architecture"] for row in figures["rows"]})
    names = " / ".join(f"sm_{n}" for n in architectures)
    head = (
        *("kernel", "for", f"registers, {names}", "spill stores + loads, bytes", "stack bytes", "threads"),
        *("static shared bytes", "dynamic shared bytes", "blocks per multiprocessor"),
    )
    launches: dict[tuple[Any, ...], dict[int, Row]] = {}
    for row in figures["rows"]:
        launch = tuple(row[name] for name in gpu_resources.SHARED)
        launches.setdefault(launch, {})[row["architecture"]] = row

    def own(by_architecture: dict[int, Row], name: str) -> str:
        found = [by_architecture.get(n, {}).get(name) for n in architectures]
        words = ["–" if value is None else str(value) for value in found]
        return words[0] if len(set(words)) == 1 else " / ".join(words)

    lines = []
    for (kernel, purpose, threads, *shared), rows in launches.items():
        compiled = [own(rows, name) for name in ("registers", "spills", "stack")]
        lines.append([kernel, purpose or "–", *compiled, *map(str, (threads, *shared)), own(rows, "blocks")])
    return head, lines


# ------------------------------------------------------------------------------------------------------------ texts


def conditions(document: Document) -> str:
    ours = [row for row in document["rows"] if row["tool"] == OURS]
    bandwidth = max((row.get("copy_gbps") or 0.0 for row in ours), default=0.0)
    repeat = min((row.get("repeat", 0) for row in ours), default=0)
    return f"""\
{document["gpu"]}; driver {document["driver"]}, CUDA {document["cuda"]}; commit {document["commit"]}; \
{document.get("date", "")}. A copy from device to device moves {bandwidth:.0f} GB/s (read and written).

- GB/s is 10^9 raw bytes a second: the median of {repeat} whole calls or more of `compress` and `decompress` from device
  memory to device memory, between two CUDA events, with everything allocated before. Of the copy's speed: bytes that
  have to be read and written (the field, twice if its range has to be found, and the archive) over the time, relative
  to what a copy of the field moves.
- Host to host: numpy arrays with `backend="cuda"` into memory that is there already, by the host's clock.
- Violations are counted on the device; whatever is as far off as the bound is looked at once more, in exact arithmetic.
- Kernels: medians of CUDA events between them, with cold caches. `nothing` is two events in a row, and is in each."""


def full(document: Document) -> str:
    """The full report, for a terminal or the documentation."""
    rows: list[Row] = [row for row in document["rows"] if not is_beside(row)]
    parts = [conditions(document | {"rows": rows}), "Speed.", speeds(rows)]
    small = [row for row in rows if "compress_us" in row and _bytes(row) <= 1 << 27]
    if small:
        parts += ["Latency on small fields, microseconds, compress / decompress.", latency(small)]
    by_spline = [row for row in rows if "spline_ratio" in row]
    if by_spline:
        parts += ["The spline codec, whole calls.", spline(by_spline)]
    many = [row for row in rows if "blocks" in row]
    if many:
        parts += ["Blocks compressed in one call, to host memory.", blocks(many)]
    staged = [row for row in rows if row.get("stages")]
    if staged:
        parts += ["Kernels, microseconds.", stages_table(staged)]
    return "\n\n".join(parts)


def _value_bytes(row: Row) -> int:
    return 4 if row["dtype"] == "float32" else 8


def _bytes(row: Row) -> int:
    return _value_bytes(row) * math.prod(row["shape"])


def beside_peers(document: Document) -> str:
    """The results of gpu_peers.py."""
    rows = [row for row in document["rows"] if is_beside(row)]
    ours = {_cell(row): row for row in rows if row["tool"] == OURS}
    peers: dict[str, list[Row]] = {}
    for row in rows:
        if row["tool"] != OURS:
            peers.setdefault(str(row["tool"]), []).append(row)
    repeat = min((row.get("repeat") or 0 for row in ours.values()), default=0)
    return "\n\n".join(
        [
            f"""\
{document["gpu"]}; driver {document["driver"]}, CUDA {document["cuda"]}; commit {document["commit"]}; \
{document.get("date", "")}. Every tool got the same field and the same absolute bound, the part of the range that the \
table names, rounded down to f32. Speeds are raw bytes over the median time of {repeat} whole calls, or of what the \
note says, from device memory to device memory, between two CUDA events. The errors of all are counted here, without \
tolerance.

Ours over theirs: geometric means over the fields and bounds where both have numbers; where a peer breaks the bound, \
its numbers count all the same.""",
            _beside_summary(ours, peers),
            _beside_rows(rows, ours),
        ]
    )


def _cell(row: Row) -> tuple[Any, ...]:
    return row["dataset"], row["dtype"], row["rel_eb"]


_FACTORS = ("ratio", "compress_gbps", "decompress_gbps")


def _factors(own: Row | None, row: Row) -> tuple[float, ...] | None:
    """Our ratio and speeds over those of another tool."""
    return None if row["tool"] == OURS else ratios(own, row, _FACTORS)


def _beside_summary(ours: dict[tuple[Any, ...], Row], peers: dict[str, list[Row]]) -> str:
    head = (
        *("peer", "version", "runs", "failed", "beyond the bound", "ours / theirs: ratio", "compress GB/s"),
        "decompress GB/s",
    )
    lines = []
    for tool, rows in peers.items():
        means = mean_ratios(_factors(ours.get(_cell(row)), row) for row in rows) or [None] * len(_FACTORS)
        versions = ", ".join(dict.fromkeys(str(row["version"]) for row in rows))
        failed = sum(row["ratio"] is None for row in rows)
        beyond = sum(bool(row["violations"]) for row in rows)
        lines.append([tool, versions, str(len(rows)), str(failed), str(beyond), *map(significant, means)])
    return table(head, lines)


def _beside_rows(rows: Sequence[Row], ours: dict[tuple[Any, ...], Row]) -> str:
    lines = []
    for row in sorted(rows, key=lambda row: list(ours).index(_cell(row)) if _cell(row) in ours else len(ours)):
        factors = _factors(ours.get(_cell(row)), row)
        cells = [*_title(row)[:3], f"{row['rel_eb']:g}", *_measured(row)]
        lines.append([*cells, "–" if factors is None else ", ".join(map(significant, factors)), _note(row)])
    return table([*_TITLE, *_MEASURED, "ours / theirs: ratio, compress, decompress", "note"], lines)


def section(measured: Sequence[Document], beside: Sequence[Document] = ()) -> str:
    parts = [full(document) for document in measured] or [NOT_MEASURED]
    if beside:
        parts += ["## Beside other GPU compressors", *(beside_peers(document) for document in beside)]
    return "\n\n".join(parts)


def resources_section(figures: dict[str, Any], file: str) -> str:
    return filled(
        f"By nvcc {figures['nvcc']} (`scripts/bench/gpu.py --resources`): [registers, spills, stack and shared memory "
        f"of each kernel and launch]({file}). Blocks per multiprocessor: as many as registers, shared memory and "
        f"threads leave room for, up to the {gpu_resources.MAX_BLOCKS} that the engine asks for; calculated, not "
        "measured. Stack bytes that are not spilled registers are small arrays."
    )


def write_docs(pages: Path = PAGES, results: Path = RESULTS, resources: Path = gpu_resources.FIGURES) -> None:
    """Writes the sections between the markers of two pages, and the table of resources into a file."""
    runner.replace_section(pages / "gpu.md", section(documents(results), documents(results, beside=True)), "gpu")
    if resources.exists():
        figures = gpu_resources.read(resources)
        path = pages / "figures/gpu_resources.csv"
        runner.write_table(path, *resources_table(figures))
        runner.replace_section(
            pages / "gpu-kernels.md", resources_section(figures, f"figures/{path.name}"), "gpu resources"
        )
