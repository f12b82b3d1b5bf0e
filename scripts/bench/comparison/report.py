"""The results as CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from runner import (
    Document,
    Row,
    filled,
    geometric_mean,
    mean_ratios,
    ratios,
    significant,
    table,
    table_of,
    where,
    write_table,
)

from cusz_core.errors import CuszError, ParameterError

from .measure import COLUMNS, RESULTS
from .tools import OURS, YARDSTICK

#: The `predictor` of our tools.
PREDICTORS = {"cusz auto": "auto", "cusz": "lorenzo", "cusz spline": "spline"}

Key = tuple[str, str, float]  # dataset, dtype, bound

# ---------------------------------------------------------------------------------------------------------- files


def write_csv(document: Document, path: Path) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in document["rows"]:
            writer.writerow({**row, "shape": "x".join(map(str, row["shape"]))})


def read_json(path: Path) -> Document:
    try:
        document: Document = json.loads(path.read_text())
        for row in document["rows"]:
            row.update({key: float(row[key]) for key in RESULTS if isinstance(row.get(key), str)})
    except (ValueError, KeyError, TypeError) as error:
        raise ParameterError(f"{path} is not what --json writes: {error!r}") from None
    return document


# --------------------------------------------------------------------------------------------------------- tables


def _error(value: float) -> str:
    return f"{value:.6f}" if value < 1000 else f"{value:.3g}"


def detailed(document: Document) -> str:
    """All columns of every row."""
    mode, rows = document_mode(document), []
    for row in document["rows"]:
        about = {"field": row["dataset"], "type": row["dtype"], mode: f"{row['eb']:g}", "tool": row["tool"]}
        cells = {
            "ratio": _cell(row, "ratio", significant),
            "bits / value": _cell(row, "bit_rate", "{:.3f}".format),
            "PSNR": _cell(row, "psnr", "{:.1f}".format),
            "max error / bound": _cell(row, "max_error_over_eb", _error),
            "beyond it": _cell(row, "violations", str),
            "compress MB/s": _cell(row, "compress_mbps", "{:.0f}".format),
            "decompress MB/s": _cell(row, "decompress_mbps", "{:.0f}".format),
            "memory MB": _cell(row, "peak_bytes", lambda n: f"{n / 1e6:.1f}"),
        }
        if row["error"] is not None:
            cells["max error / bound"] = row["error"].replace("|", "/").replace("\n", " ")
        rows.append({**about, "threads": row["threads"], **cells})
    return table_of(rows)


def _cell(row: Row, name: str, form: Callable[[Any], str]) -> str:
    return "–" if row[name] is None else form(row[name])


def document_mode(document: Document) -> str:
    return str(document["rows"][0]["mode"]) if document["rows"] else "rel"


class Results:
    """The rows, with access by case, tool and threads."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.rows: list[Row] = document["rows"]
        self.mode = document_mode(document)
        self.threads = sorted({row["threads"] for row in self.rows})
        self.tools = list(dict.fromkeys(row["tool"] for row in self.rows))
        self.ours = [tool for tool in self.tools if tool in OURS]
        self.peers = [tool for tool in self.tools if tool not in OURS]
        self.cases: list[Key] = list(dict.fromkeys(self._key(row) for row in self.rows))
        self._found = {(*self._key(row), row["tool"], row["threads"]): row for row in self.rows}

    @staticmethod
    def _key(row: Row) -> Key:
        return row["dataset"], row["dtype"], row["eb"]

    def get(self, case: Key, tool: str, threads: int) -> Row | None:
        """A row without an error, or None."""
        row = self._found.get((*case, tool, threads))
        return None if row is None or row["error"] is not None else row

    def write_by_case(self, path: Path, tools: Sequence[str], threads: int, cell: Callable[[Row], str]) -> None:
        """A line for each field and bound, a column for each tool, as CSV."""
        lines = []
        for case in self.cases:
            rows = [self.get(case, tool, threads) for tool in tools]
            lines.append([case[0], f"{case[2]:g}", *("" if row is None else cell(row) for row in rows)])
        write_table(path, ["field", self.mode, *tools], lines)

    def factors(self, ours: str, peer: str, threads: int) -> list[tuple[float, ...] | None]:
        """Compress speed, decompress speed and ratio of one of our tools over those of a peer, for every case."""
        names = ("compress_mbps", "decompress_mbps", "ratio")
        return [ratios(self.get(case, ours, threads), self.get(case, peer, threads), names) for case in self.cases]


def summary(document: Document) -> str:
    """A line for each peer: geometric mean, smallest and largest factor over all fields and bounds."""
    results = Results(document)
    threads = results.threads[0] if results.threads else 1
    tables = []
    for ours in results.ours:
        lines = []
        for peer in results.peers:
            if found := list(filter(None, results.factors(ours, peer, threads))):
                lines.append([peer, *(_mean_and_range(values) for values in zip(*found, strict=True)), str(len(found))])
        head = [f"{ours} relative to", "compress speed", "decompress speed", "ratio", "fields and bounds"]
        tables += [table(head, lines)] if lines else []
    return "\n\n".join(tables)


def _mean_and_range(values: Sequence[float]) -> str:
    low, high = significant(min(values)), significant(max(values))
    return f"{significant(geometric_mean(values))} ({low} to {high})"


def kept(document: Document) -> str:
    """Which tools kept the bound."""
    results = Results(document)
    lines = []
    for tool in results.tools:
        rows = [row for row in results.rows if row["tool"] == tool]
        measured = [row for row in rows if row["error"] is None]
        cells = ["–"] * 4
        if measured:
            broken = [row for row in measured if row["violations"]]
            worst = max(row["max_error_over_eb"] for row in measured)
            cells = [
                f"{len(broken)} of {len(measured)}",
                f"{sum(row['violations'] for row in broken)}",
                _error(worst),
                _fields(dict.fromkeys(row["dataset"] for row in broken)) or "–",
            ]
        lines.append([tool, *cells, _failures(rows)])
    head = ["tool", "rows with values beyond the bound", "such values", "largest error / bound", "fields", "failed"]
    return table(head, lines)


def require_our_bound(document: Document) -> None:
    """Raises CuszError if one of our tools failed, or broke its bound."""
    for row in document["rows"]:
        if row["tool"] in OURS and (row["error"] is not None or row["violations"]):
            what = row["error"] or f"{row['violations']} values beyond the bound"
            raise CuszError(
                f"{row['dataset']}, {row['eb']:g}, {row['tool']}: {what}. This must not be: please report it"
            )


def _failures(rows: Sequence[Row]) -> str:
    failed: dict[str, list[str]] = {}
    for row in rows:
        if row["error"] is not None:
            names = failed.setdefault(row["error"], [])
            if row["dataset"] not in names:
                names.append(row["dataset"])
    return "; ".join(f"{_fields(names)}: {error}" for error, names in failed.items()).replace("|", "/") or "–"


def _fields(names: Collection[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{len(names)} fields"


def tools_table(document: Document) -> str:
    return table(["tool", "version", "bound it promises", "what its times include"], tool_lines(document))


def tool_lines(document: Document) -> list[list[str]]:
    return [
        [tool["name"], tool["version"] or tool["missing"], tool["bound"], tool["timed"]]
        for tool in document["head"]["tools"]
        if tool["version"] or tool["missing"]  # else it was not asked for
    ]


# ---------------------------------------------------------------------------------------------------------- texts


def conditions(document: Document) -> str:
    """A description of the measurement: what, how and where."""
    head = document["head"]
    machine = f"{head['system']}; Python {head['python']}, numpy {head['numpy']}."
    instruction_set = f", cusz with {head['instruction_set']}" if "instruction_set" in head else ""  # older results
    begin = f"{where(head)}{instruction_set};"
    if "through" in head:
        tools = ", ".join(f"{tool['name']} ({tool['version'] or tool['missing']})" for tool in head["tools"])
        text = (
            f"{begin} {machine} {head['library']}; {tools}. Whole files, in the page cache: opened, written or read, "
            f"closed; medians of {head['repeat']}, one thread. Chunks have at most 2^20 values. All are given the "
            "absolute bound; a fill value is declared for the dataset."
        )
        return filled(text)
    spreads = sorted(row["compress_spread"] for row in document["rows"] if row["error"] is None)
    spread = f", typically {spreads[len(spreads) // 2]:.0%} between slowest and fastest" if any(spreads) else ""
    about = (
        f"- MB/s is 10^6 raw bytes per second, from memory to memory: the median of timed calls (repeat: "
        f"{head['repeat']}{spread}) after a first, untimed one. Calls shorter than 20 ms are repeated for 20 ms, and "
        "their mean counts as one timing. All tools take turns in one process, whose malloc keeps freed memory. Memory "
        "is the growth of the process during a first compression, including the archive.",
        "- Relative bounds are relative to the range of the values that are finite and not fill. cusz finds that range "
        "within its time, and so do SZ3, SZ2 and PFPL if all values count; these get a bound smaller by 1 in 2^22 for "
        "f32, whose range they round. Otherwise tools are given the absolute bound. cusz and PFPL are told the fill "
        "value.",
        "- Values beyond the bound are counted exactly, without tolerance, and so are NaN, infinities and fill values "
        "that do not come back bit for bit.",
    )
    return "\n".join([begin, machine, "", *(filled(text, "  ") for text in about)])


def section_of(head: Row) -> str:
    """The section of a page for these results; its files' names begin with this."""
    return f"through {head['through']}" if head.get("through") else "bench"


def full(document: Document) -> str:
    """The full report, for a terminal."""
    parts = [conditions(document), tools_table(document), detailed(document), *of_all(document)]
    return "\n\n".join(part for part in parts if part) + "\n"


def of_all(document: Document) -> list[str]:
    """Means over all fields and bounds, and which tools kept the bound."""
    means = equal_psnr_means(document)
    at_psnr = ", ".join(f"{ours} {mean:.2f}" for ours, mean in means.items())
    return [
        filled(
            "How many times faster cusz is, and how many times smaller its archives are, with one thread: geometric "
            "mean (smallest to largest). Archives of others that break the bound are included."
        ),
        summary(document),
        filled(
            f"At equal PSNR, the ratio over that of {YARDSTICK}, geometric mean: {at_psnr}. Here cusz is asked "
            f"for the PSNR of {YARDSTICK}, and reaches it or up to 0.05 dB more."
        )
        if means
        else "",
        "Values beyond the bound.",
        kept(document),
    ]


def tables_by_case(document: Document, folder: Path, prefix: str) -> str:
    """Writes ratios and speeds of every field and bound into a folder, as CSV files. Returns links to them."""
    results = Results(document)
    one, *more = results.threads
    several = [
        tool for tool in results.tools if any(results.get(case, tool, n) for case in results.cases for n in more)
    ]
    files = [("ratios", results.tools, one, ratio_cell), ("MB/s", results.tools, one, speed_cell)]
    files += [(f"MB/s with {n} threads", several, n, speed_cell) for n in more]
    links = []
    for title, tools, threads, cell in files:
        what = "ratios" if cell is ratio_cell else "speeds" if threads == one else f"speeds_{threads}"
        path = folder / f"{prefix}_{what}.csv"
        results.write_by_case(path, tools, threads, cell)
        links.append(f"[{title}]({folder.name}/{path.name})")
    return f"Every field and bound: {', '.join(links)} (* marks values beyond the bound)."


def compact(document: Document, folder: Path, prefix: str) -> str:
    """For the documentation: means and which tools kept the bound; results by field and bound go to CSV files."""
    in_memory = "through" not in document["head"]
    versions = pictures = [""]
    if in_memory:
        lines = tool_lines(document)
        write_table(folder / "bench_tools.csv", ["tool", "what its times include"], [line[::3] for line in lines])
        versions = [
            table(["tool", "version", "bound it promises"], [line[:3] for line in lines]),
            f"[What the times of each tool include]({folder.name}/bench_tools.csv).",
        ]
        pictures = [
            f"![Bit rate and PSNR of every tool on every field]({folder.name}/rate_distortion.svg)",
            f"![Throughput and ratio of every tool on every field]({folder.name}/throughput.svg)",
        ]
    parts = [
        conditions(document),
        *versions,
        *of_all(document),
        *pictures,
        tables_by_case(document, folder, prefix),
        f"All numbers: [{prefix}.json]({folder.name}/{prefix}.json).",
    ]
    return "\n\n".join(part for part in parts if part)


def brief(document: Document) -> str:
    """For the first page: means of our tools over every peer, the default first, with one thread."""
    results = Results(document)
    threads = results.threads[0] if results.threads else 1
    ours = sorted(results.ours, key=PREDICTORS.__getitem__)
    lines = []
    for peer in results.peers:
        cells = []
        for tool in ours:
            compress, decompress, ratio = mean_ratios(results.factors(tool, peer, threads)) or (None,) * 3
            cells += map(significant, (ratio, compress, decompress))
        rows = [row for row in results.rows if row["tool"] == peer and row["error"] is None]
        broken = sum(bool(row["violations"]) for row in rows)
        lines.append([peer, *cells, f"{broken} of {len(rows)}"])
    heads = [f"`{PREDICTORS[tool]}`: {what}" for tool in ours for what in ("ratio", "compress", "decompress")]
    head, means = document["head"], equal_psnr_means(document)
    own = sum(bool(row["violations"]) for row in results.rows if row["tool"] in ours)
    text = (
        f"{where(head)}, one thread, median of {head['repeat']} calls; geometric means over {len(results.cases)} "
        "fields and bounds. The last column counts those where the other tool broke the bound; cusz broke "
        f"{own or 'none'}."
    )
    if means:
        at_psnr = ", ".join(f"{means[tool]:.2f} (`{PREDICTORS[tool]}`)" for tool in ours if tool in means)
        text += f" Asked for the PSNR of {YARDSTICK}, cusz has {at_psnr} times its ratio."
    return "\n\n".join([table(["cusz over", *heads, "broke the bound"], lines), filled(text)])


def equal_psnr_means(document: Document) -> dict[str, float]:
    """For each of our tools, its ratio at the yardstick's PSNR over the yardstick's ratio: geometric means."""
    results = Results(document)
    threads = results.threads[0] if results.threads else 1
    means = {}
    for ours in results.ours:
        pairs = [(results.get(case, ours, threads), results.get(case, YARDSTICK, threads)) for case in results.cases]
        found = [
            own["ratio_at_psnr"] / their["ratio"] for own, their in pairs if own and their and own["ratio_at_psnr"]
        ]
        if found:
            means[ours] = geometric_mean(found)
    return means


def ratio_cell(row: Row) -> str:
    return significant(row["ratio"]) + ("*" if row["violations"] else "")


def speed_cell(row: Row) -> str:
    return f"{row['compress_mbps']:.0f} / {row['decompress_mbps']:.0f}"
