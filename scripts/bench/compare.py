#!/usr/bin/env python3
"""Measures this package and other installed compressors on the same fields: ratio, PSNR, speed, memory, and an exact
count of the values beyond the bound.

    .venv/bin/python scripts/bench/compare.py turbulence density.npy --repeat 3
    .venv/bin/python scripts/bench/compare.py --through hdf5       # whole files, in the page cache
    .venv/bin/python scripts/bench/compare.py --list

Without FIELD: all generated fields, and the .npy files of $CUSZ_TEST_DATA. scripts/bench/peers.py runs it in an
environment that has the others. The package `comparison` contains its code.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import runner
from comparison import fields, figures, measure, pfpl, qoz, report, tools
from comparison.tools import Tool
from runner import Document

from cusz_core import embedding
from cusz_core.command_line import DTYPES, Parser, exit_code_of, number
from cusz_core.errors import ParameterError


def parser() -> argparse.ArgumentParser:
    options = runner.parser(__doc__, repeat=5, kind=Parser)
    add = options.add_argument
    add("fields", nargs="*", metavar="FIELD", help="generated field (see --list), or .npy file")
    add("--list", action="store_true", help="list the generated fields and the tools, and exit")
    add("--tools", metavar="A,B", help="only these tools, such as cusz,sz3-lorenzo")
    add("--through", choices=("hdf5", "zarr"), help="tools that write and read files, in place of those in memory")
    add("--eb", type=number, nargs="+", default=[1e-2, 1e-3, 1e-4], help="default: 1e-2 1e-3 1e-4")
    text = "rel (default): relative to the value range; abs; or pw_rel: relative to every value"
    add("--mode", choices=("abs", "rel", "pw_rel"), default="rel", help=text)
    add("--threads", type=int, nargs="+", default=[1, 2], metavar="N", help="default: 1 2")
    add("--dtype", choices=("f32", "f64"), help="cast the fields (NAME_f64 is a generated field that is cast)")
    add("--fill", type=number, help='value that stands for "no data" in the files')
    add("--pfpl", type=Path, metavar="FOLDER", help="PFPL sources, to be compiled with g++")
    add("--qoz", type=Path, metavar="FOLDER", help="QoZ sources, to be compiled with g++ and zstd")
    add("--csv", type=Path, metavar="FILE")
    add("--figures", type=Path, metavar="FOLDER", help="SVG figures (needs matplotlib)")
    text = "rewrite the marked section of this Markdown file, and the files in the folder figures next to it"
    add("--docs", type=Path, metavar="FILE", help=text)
    text = "rewrite the marked summary of this Markdown file, and its picture and numbers in the folder figures"
    add("--summary", type=Path, metavar="FILE", help=text)
    add("--from", type=Path, metavar="JSON", dest="earlier", help="report this earlier measurement instead")
    return options


def run(options: argparse.Namespace) -> int:
    if options.list:
        _use_sources(options)
        _print_list()
        return 0
    earlier = report.read_json(options.earlier) if options.earlier else None
    _require_outputs(options, report.section_of(earlier["head"] if earlier else {"through": options.through}))
    document = earlier or _measure(options)
    print(report.full(document), end="")
    if options.csv:
        report.write_csv(document, options.csv)
    if options.json:
        runner.write_json(document, options.json)
    if options.figures:
        figures.draw(document, options.figures)
    if options.docs:
        _write_docs(document, options.docs)
    if options.summary:
        _write_summary(document, options.summary)
    report.require_our_bound(document)
    return 0


def _require_outputs(options: argparse.Namespace, section: str) -> None:
    """Checks the options up front: better to fail now than after an hour."""
    if options.figures or options.summary or (options.docs and section == "bench"):
        figures.require_matplotlib()
    for page, of_page in ((options.docs, section), (options.summary, "summary")):
        if page:
            runner.around_section(page, of_page)
    for path in (options.csv, options.json):
        if path and not path.parent.is_dir():
            raise ParameterError(f"there is no folder {path.parent} for {path.name}")


def _measure(options: argparse.Namespace) -> Document:
    _use_sources(options)
    if options.repeat < 1:
        raise ParameterError(f"--repeat is {options.repeat}; it must be at least 1")
    for n in options.threads:
        embedding.threads(n)
    for eb in options.eb:
        embedding.error_bound(eb)
    names = fields.chosen(options.fields)
    library, every = _tools_through(options.through)
    chosen = [tool for tool in _chosen_tools(options.tools, every) if tool.missing() is None]
    chosen = [tool for tool in chosen if tool.is_pointwise or options.mode != "pw_rel"]
    plan = measure.Plan(options.eb, chosen, options.mode, options.threads, options.repeat, options.pfpl, options.qoz)
    head = runner.machine(options.repeat, tools=measure.described(every, plan))
    head |= {"through": options.through, "library": library} if options.through else {}
    runner.reuse_freed_memory()
    dtype = DTYPES[options.dtype] if options.dtype else None
    document: Document = {"head": head, "rows": []}
    try:
        for field in fields.load(names, dtype, options.fill):
            document["rows"] += [runner.shortened(row) for row in measure.measure([field], plan, _say)]
            if options.json:
                runner.write_json(document, options.json)  # the results so far, in case a library crashes the process
    finally:
        _say("")
    return document


def _tools_through(through: str | None) -> tuple[str, Sequence[Tool]]:
    """The libraries that read and write files, and the tools."""
    if through is None:
        return "", tools.TOOLS
    os.environ["OMP_NUM_THREADS"] = "1"  # before libraries read it, ours too: filters and codecs have no other setting
    from comparison import files  # h5py and zarr are not needed otherwise

    return files.THROUGH[through]


def _chosen_tools(text: str | None, every: Sequence[Tool]) -> list[Tool]:
    if text is None:
        return list(every)
    known = {_slug(tool.name): tool for tool in every}
    wanted = [_slug(word) for word in text.split(",")]
    for name in wanted:
        if name not in known:
            raise ParameterError(f"there is no tool {name}; known are {', '.join(known)}")
    return [tool for name, tool in known.items() if name in wanted]


def _slug(name: str) -> str:
    return name.strip().lower().replace(" ", "-")


def _use_sources(options: argparse.Namespace) -> None:
    for tool, folder in ((pfpl, options.pfpl), (qoz, options.qoz)):
        if folder:
            tool.use(folder)


def _print_list() -> None:
    print("fields")
    for name in fields.GENERATED:
        print(f"  {name}, {name}_f64")
    print("tools")
    for tool in tools.TOOLS:
        print(f"  {_slug(tool.name):14s}{tool.missing() or tool.version()}")


def _write_docs(document: Document, path: Path) -> None:
    folder, section = path.parent / "figures", report.section_of(document["head"])
    prefix = section.replace(" ", "_")
    if section == "bench":
        figures.draw(document, folder)
    runner.write_json(document, folder / f"{prefix}.json")
    runner.replace_section(path, report.compact(document, folder, prefix), section)


def _write_summary(document: Document, path: Path) -> None:
    folder = path.parent / "figures"
    figures.draw_throughput(document, folder / "summary.svg")
    runner.write_json(document, folder / "summary.json")
    runner.replace_section(path, report.brief(document), "summary")


def _say(text: str) -> None:
    """Shows progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(words: Sequence[str] | None = None) -> int:
    return exit_code_of("compare.py", lambda: run(parser().parse_args(words)))


if __name__ == "__main__":
    sys.exit(main())
