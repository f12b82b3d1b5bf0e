"""The operator's commands, which `cusz` finds by entry points (pyproject.toml)."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cusz_core import embedding
from cusz_core.command_line import (
    EXIT_FAILURE,
    Command,
    FailureError,
    UsageError,
    add_json,
    add_parameters,
    cell,
    new_file,
    number,
    parameters_given,
    print_json,
    print_table,
    progress,
    refuse_overwrite,
)
from cusz_core.errors import CuszError, ParameterError
from cusz_core.parameters import TABLE

from . import configuration, report
from .checking import check
from .device import Binding, device_map
from .inspection import inspect_bp
from .parameters import operator_parameters
from .plugin import plugin_path

__all__ = ["CHECK", "CONFIG", "DEVICES_OF_RANKS", "INSPECT_DIRECTORY", "REPORT"]


# ---------------------------------------------------------------------------------------------------------- config


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--environment", action="store_true", help='print only the environment, for eval "$(cusz config ...)"'
    )
    parser.add_argument("--variable", action="append", metavar="NAME", help="repeat for more variables")
    parser.add_argument("--eb", action="append", type=number, help="once for all, or once per variable")
    parser.add_argument(
        "--mode", action="append", choices=TABLE["mode"].choices, help="the same; rel is per block (default: abs)"
    )
    parser.add_argument("--engine", default="BP5", help="ADIOS2 engine: BP5 (default), BP4 or SST")
    parser.add_argument("--io", default="SimulationOutput", help="name that the program passes to DeclareIO")
    add_parameters(parser, *(key for key in TABLE if key not in ("eb", "mode")))
    parser.add_argument("--order", choices=("row", "column"), help="column for a Fortran program")
    parser.add_argument(
        "--no-statistics",
        action="store_true",
        help="no minimum and maximum from ADIOS2: for programs that put device memory, and to save time",
    )
    parser.add_argument("--format", choices=("xml", "yaml"), help="only this file (default: both, and the environment)")


def _config(options: argparse.Namespace) -> int:
    if options.environment:
        print(f"export ADIOS2_PLUGIN_PATH={shlex.quote(str(plugin_path()))}")
        return 0
    if not options.variable or not options.eb:
        raise ParameterError("--variable NAME and --eb EB are needed (or --environment alone)")
    names: list[str] = options.variable
    bounds = _one_per_variable("--eb", options.eb, names)
    modes = _one_per_variable("--mode", options.mode or ["abs"], names)
    variables = [
        configuration.OperatedVariable(
            name, operator_parameters(**{**parameters_given(options), "eb": eb, "mode": mode}, order=options.order)
        )
        for name, eb, mode in zip(names, bounds, modes, strict=True)
    ]
    configuration.check_engine(options.engine)
    formats = {
        "xml": functools.partial(configuration.xml, statistics=not options.no_statistics),
        "yaml": functools.partial(configuration.yaml, statistics=not options.no_statistics),
    }
    try:
        environment = f"export ADIOS2_PLUGIN_PATH={shlex.quote(str(plugin_path()))}"
    except CuszError as error:  # the files may still be of use on the machine where the program runs
        print(f"cusz: warning: {error}", file=sys.stderr)
        environment = ""
    if options.format:
        print(formats[options.format](options.io, options.engine, variables, environment), end="")
        return 0
    sections = {"environment": f"{environment}\n"} if environment else {}
    sections |= {f"adios2.{name}": write(options.io, options.engine, variables) for name, write in formats.items()}
    print("\n".join(f"# {title}\n{text}" for title, text in sections.items()), end="")
    return 0


def _one_per_variable(option: str, values: list[Any], names: list[str]) -> list[Any]:
    if len(values) == 1:
        return values * len(names)
    if len(values) != len(names):
        raise UsageError(f"{len(values)} of {option} for {len(names)} of --variable: give it once, or once for each")
    return values


# ----------------------------------------------------------------------------------------------------------- check


def _add_check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH", help=".bp directory, XML configuration, or both")
    parser.add_argument("--io", help="name that the program passes to DeclareIO, if the configuration has several")
    add_json(parser)


def _check(options: argparse.Namespace) -> int:
    configurations = [path for path in options.paths if path.suffix.lower() in (".xml", ".yaml", ".yml")]
    runs = [path for path in options.paths if path not in configurations]
    if len(configurations) > 1 or len(runs) > 1:
        raise UsageError("one .bp directory and one configuration (.xml) can be checked at a time")
    report = check(runs[0] if runs else None, configurations[0] if configurations else None, io=options.io)
    code = EXIT_FAILURE if report.problems else 0
    if options.json:
        print_json(report.to_dict())
        return code
    if report.plugin:
        print(f"plugin    {report.plugin['path']}, version {report.plugin['version'] or 'unknown'}")
    for io in report.ios:
        bounds = ", ".join(f"{name} ({'no bound' if eb is None else repr(eb)})" for name, eb in io.variables.items())
        print(
            f"IO        {io.name}, engine {io.engine or 'chosen by the program'}: {bounds or 'no variable compressed'}"
        )
    if report.variables:
        print()
        columns = ("variable", "type", "blocks", "compressed", "ratio", "remarks")
        rows = [(v.name, v.type, v.blocks, v.compressed, v.ratio or "", v.remarks) for v in report.variables]
        print_table([columns, *([cell(value) for value in row] for row in rows)])
        print()
    for problem in report.problems:
        print(f"PROBLEM   {problem}")
    for note in report.notes:
        print(f"note      {note}")
    if not report.problems:
        print("no problems found")
    return code


# ---------------------------------------------------------------------------------------------------------- report


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help=".bp directory")
    parser.add_argument("--original", type=Path, help="the same run without loss, to compare with (.bp directory)")
    parser.add_argument("--variable", action="append", metavar="NAME", help="only this one; repeat for more")
    parser.add_argument("-o", "--output", type=Path, help="page to write (default: PATH.html)")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite the output file")


def _report(options: argparse.Namespace) -> int:
    output: Path = options.output or Path(f"{options.path}.html")
    refuse_overwrite(output, options.path, options.force)
    with progress(f"reporting on {options.path}"):
        page = report.make(options.path, options.original, options.variable)
        text = report.html(page)
    with new_file(output) as file:
        file.write(text.encode())
    numbers = (page.n_steps, len(page.variables), sum(variable.is_compressed for variable in page.variables))
    print("{}: steps {}, variables {}, compressed {}".format(output, *numbers))
    for note in page.notes:
        print(f"note      {note}")
    for sentence in page.broken:
        print(f"BROKEN    {sentence}")
    return EXIT_FAILURE if page.broken else 0


# ------------------------------------------------------------------------------------ parts of commands of the core


def _inspect_directory(options: argparse.Namespace) -> int:
    path: Path = options.path
    try:
        rows: list[Any] = list(inspect_bp(path))
    except CuszError:
        raise
    except Exception as error:  # whatever ADIOS2 makes of a damaged directory
        raise FailureError(f"{path} cannot be read: {error}") from None
    if options.json:
        print_json([{key: embedding.json_value(value) for key, value in row.items()} for row in rows])
        return 0
    if not rows:
        print(f"{path}: no blocks written with the cusz operator")
        return 0
    columns = list(dict.fromkeys(key for row in rows for key in row))
    print_table([columns] + [[cell(row.get(key, "")) for key in columns] for row in rows])
    return 0


def _devices_of_ranks(options: argparse.Namespace) -> int:
    try:
        bindings = device_map()
    except ImportError as error:
        raise FailureError(f"--mpi needs the Python package mpi4py, which cannot be imported ({error})") from None
    if options.json and bindings:
        print_json([dataclasses.asdict(binding) for binding in bindings])
    elif bindings:  # on rank 0
        rows = [(str(b.rank), b.node, f"{b.node_rank} of {b.node_size}", _works_with(b)) for b in bindings]
        print_table([("rank", "node", "on node", "works with"), *rows])
    return 0


def _works_with(binding: Binding) -> str:
    """The device or cores of a rank, in words."""
    if binding.device is None:
        threads = f"{binding.threads} thread{'s' if binding.threads > 1 else ''}"
        return f"CPU, {threads} on cores {_intervals(binding.cores)}: {binding.name}"
    visible = f" of CUDA_VISIBLE_DEVICES={binding.visible}" if binding.visible is not None else ""
    shared = f", shared by {binding.sharing} ranks" if binding.sharing > 1 else ""
    return f"CUDA device {binding.device}{visible}{shared}: {binding.name}"


def _intervals(numbers: Sequence[int]) -> str:
    """Ascending numbers, as in "0-3,8"."""
    found: list[list[int]] = []
    for n in numbers:
        if found and n == found[-1][1] + 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    return ",".join(f"{first}-{last}" if first < last else str(first) for first, last in found)


CONFIG = Command("print the ADIOS2 configuration that switches the operator on", _config, _add_config_options)
CHECK = Command(
    "find what is wrong with an ADIOS2 configuration, or the .bp written with it", _check, _add_check_options
)
REPORT = Command(
    "make an HTML page about a .bp directory, with errors if the original is given", _report, _add_report_options
)
INSPECT_DIRECTORY = Command("describe every block of a .bp directory", _inspect_directory)
DEVICES_OF_RANKS = Command("show the device or cores of every rank", _devices_of_ranks)
