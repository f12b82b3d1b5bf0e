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
    number,
    parameters_given,
    print_json,
    print_table,
    progress,
)
from cusz_core.errors import CuszError, ParameterError
from cusz_core.parameters import TABLE

from . import configuration
from .checking import check
from .device import Binding, device_map
from .inspection import inspect_bp
from .parameters import operator_parameters
from .plugin import plugin_path
from .proposal import Goal, Proposal, print_proposals, propose
from .sampling import sampled_variables

__all__ = ["CHECK", "CONFIG", "DEVICES_OF_RANKS", "INSPECT_DIRECTORY"]


# ---------------------------------------------------------------------------------------------------------- config


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--environment", action="store_true", help='print only the environment, for eval "$(cusz config ...)"'
    )
    parser.add_argument("--variable", action="append", metavar="NAME", help="repeat for more variables")
    parser.add_argument("--eb", action="append", type=number, help="once for all, or once per variable")
    parser.add_argument(
        "--from",
        dest="example",
        type=Path,
        metavar="RUN.bp",
        help="variables of an uncompressed run; ratio and PSNR of a few bounds, from samples, go to standard error. "
        "Without --eb it chooses a bound for each variable:",
    )
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--relative", type=number, metavar="R", help="with --from: this fraction of the value range (default: 1e-4)"
    )
    chosen.add_argument("--psnr", type=number, metavar="DB", help="with --from: the largest bound with this PSNR")
    chosen.add_argument("--ratio", type=number, metavar="R", help="with --from: the smallest bound with this ratio")
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
    configuration.check_engine(options.engine)
    variables = _of_run(options) if options.example else _of_options(options)
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


def _of_options(options: argparse.Namespace) -> list[configuration.OperatedVariable]:
    """The variables to be compressed, according to the command line alone."""
    if not options.variable or not options.eb:
        raise ParameterError("--variable NAME and --eb EB are needed (or --from RUN.bp, or --environment alone)")
    if any(value is not None for value in (options.relative, options.psnr, options.ratio)):
        raise UsageError("--relative, --psnr and --ratio need a run to choose bounds for: --from RUN.bp")
    names: list[str] = options.variable
    bounds = _one_per_variable("--eb", options.eb, names)
    modes = _one_per_variable("--mode", options.mode or ["abs"], names)
    return [_operated(name, eb, mode, options) for name, eb, mode in zip(names, bounds, modes, strict=True)]


def _of_run(options: argparse.Namespace) -> list[configuration.OperatedVariable]:
    """The variables of a run, with bounds chosen by samples; what these say is printed to standard error."""
    names: list[str] = options.variable or []
    given = parameters_given(options)
    eb, mode = given.pop("eb", None), given.pop("mode", None)
    if eb and any(value is not None for value in (options.relative, options.psnr, options.ratio)):
        raise UsageError("--eb gives the bound itself: leave out --relative, --psnr or --ratio")
    if len(eb or []) > 1 and not names:
        raise UsageError("several --eb need as many --variable")
    goals = [Goal(psnr=options.psnr, ratio=options.ratio, relative=options.relative)] * max(len(names), 1)
    if eb:
        bounds = _one_per_variable("--eb", eb, names or [""])
        modes = _one_per_variable("--mode", mode or ["abs"], names or [""])
        goals = [Goal(eb=eb, mode=mode) for eb, mode in zip(bounds, modes, strict=True)]
    elif mode:
        raise UsageError("--mode is that of --eb: without --eb, bounds are chosen in mode abs")
    goal_of = dict(zip(names, goals, strict=True)) if names else {}
    proposals: list[Proposal] = []
    with progress(f"sampling {options.example}"):
        for variable in sampled_variables(options.example, names, **given):
            goal = goal_of.get(variable.name, goals[0])
            proposals.append(propose(variable, goal, is_wanted=variable.name in goal_of, **given))
    print_proposals(proposals, sys.stderr)
    chosen = [_operated(p.variable.name, p.eb, p.mode, options, p.comment) for p in proposals if p.eb is not None]
    if not chosen:
        raise FailureError(f"no variable of {options.example} has been given a bound (the notes above say why)")
    return chosen


def _operated(
    name: str, eb: float, mode: Any, options: argparse.Namespace, comment: str = ""
) -> configuration.OperatedVariable:
    given = {**parameters_given(options), "eb": eb, "mode": mode}
    return configuration.OperatedVariable(name, operator_parameters(**given, order=options.order), comment)


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
INSPECT_DIRECTORY = Command("describe every block of a .bp directory", _inspect_directory)
DEVICES_OF_RANKS = Command("show the device or cores of every rank", _devices_of_ranks)
