"""The operator's commands, which `cusz` finds by entry points (pyproject.toml)."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import math
import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cusz_core import embedding, tuning
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
    size,
)
from cusz_core.errors import CuszError, ParameterError
from cusz_core.parameters import TABLE

from . import configuration, report
from .checking import Variable as CheckedVariable
from .checking import check
from .configuring.proposal import Goal, Proposal, print_proposals, propose
from .configuring.sampling import SampledVariable, sampled_variables
from .device import Binding, device_map
from .inspecting import view
from .inspecting.blocks import inspect_bp
from .inspecting.difference import Difference, compare_runs
from .inspecting.variables import VariableInfo, inspect_variables
from .names import chosen, deciding, dimensions_of, fits, has_wildcard, in_short, meant, numbered, together
from .parameters import operator_parameters
from .plugin import plugin_path
from .reader import Reader
from .tables import metadata
from .tables.stored import INTEGERS
from .writing.goals import GOALS

__all__ = ["CHECK", "CONFIG", "DEVICES_OF_RANKS", "DIFF", "INSPECT_DIRECTORY", "REPORT", "VIEW"]

_T = TypeVar("_T")
_MAX_LINES = 20  # of a table or a list; if there are more, similar ones share a line


def _add_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all",
        action="store_true",
        help=f"a line for each variable; without it, of more than {_MAX_LINES}, those that differ only in numbers "
        "share one (level{0..4}/rho)",
    )


def _listed(texts: Sequence[str], options: argparse.Namespace) -> Sequence[str]:
    """The lines; if there are many, one for all that differ only in numbers."""
    return texts if options.all or len(texts) <= _MAX_LINES else in_short(texts)


# ---------------------------------------------------------------------------------------------------------- config


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--environment", action="store_true", help='print only the environment, for eval "$(cusz config ...)"'
    )
    parser.add_argument(
        "--variable",
        action="append",
        metavar="NAME",
        help="repeat for more variables; level{0..4}/{rho,u} stands for ten, and with --from RUN.bp level*/rho for "
        "those of the run",
    )
    parser.add_argument(
        "--eb", action="append", type=number, help="error bound: once for all variables, or once for each"
    )
    parser.add_argument(
        "--from",
        dest="example",
        type=Path,
        metavar="RUN.bp",
        help="variables of an uncompressed run; ratio and PSNR of a few bounds, from samples, go to standard error. "
        "Without --eb it chooses a bound for each variable:",
    )
    goals = parser.add_mutually_exclusive_group()
    goals.add_argument(
        "--relative", type=number, metavar="R", help="with --from: this fraction of the value range (default: 1e-4)"
    )
    goals.add_argument("--psnr", type=number, metavar="DB", help="with --from: the largest bound with this PSNR")
    goals.add_argument("--ratio", type=number, metavar="R", help="with --from: the smallest bound with this ratio")
    parser.add_argument(
        "--mode",
        action="append",
        choices=TABLE["mode"].choices,
        help="of --eb, once for all variables, or once for each; rel is per block (default: abs)",
    )
    parser.add_argument("--engine", default="BP5", help="ADIOS2 engine: BP5 (default), BP4 or SST")
    parser.add_argument("--io", default="SimulationOutput", help="name that the program passes to DeclareIO")
    add_parameters(parser, *(key for key in TABLE if key not in ("eb", "mode")))
    parser.add_argument(
        "--order", choices=("row", "column"), help="column for a Fortran program (default with --from: that of the run)"
    )
    parser.add_argument(
        "--no-statistics",
        action="store_true",
        help="no minimum and maximum from ADIOS2: for programs that put device memory, and to save time",
    )
    parser.add_argument("--format", choices=("xml", "yaml"), help="only this file (default: both, and the environment)")


def _config(options: argparse.Namespace) -> int:
    if options.environment:
        print(_environment())
        return 0
    configuration.check_engine(options.engine)
    variables = _of_run(options) if options.example else _of_options(options)
    formats = {
        "xml": functools.partial(configuration.xml, statistics=not options.no_statistics),
        "yaml": functools.partial(configuration.yaml, statistics=not options.no_statistics),
    }
    try:
        environment = _environment()
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


def _environment() -> str:
    """The shell command that tells ADIOS2 where the plugin is, and keeps the folders of other plugins."""
    return f"export ADIOS2_PLUGIN_PATH={shlex.quote(str(plugin_path()))}${{ADIOS2_PLUGIN_PATH:+:$ADIOS2_PLUGIN_PATH}}"


def _of_options(options: argparse.Namespace) -> list[configuration.OperatedVariable]:
    """The variables to be compressed, according to the command line alone."""
    if not options.variable or not options.eb:
        raise ParameterError("--variable NAME and --eb EB are needed (or --from RUN.bp, or --environment alone)")
    if any(value is not None for value in (options.relative, options.psnr, options.ratio)):
        raise UsageError("--relative, --psnr and --ratio need a run to choose bounds for: --from RUN.bp")
    names: list[str] = options.variable
    for pattern in names:
        if has_wildcard(pattern):
            raise UsageError(
                f"--variable {pattern}: ADIOS2's configurations have no wildcards; name the variables, as in "
                "level{0..4}/rho, or a run that has them: --from RUN.bp"
            )
    bounds = _one_per_variable("--eb", options.eb, names)
    modes = _one_per_variable("--mode", options.mode or ["abs"], names)
    goals = _by_pattern(names, list(zip(bounds, modes, strict=True)))
    deciders = {name: deciding(name, names, ()) or "" for pattern in names for name in meant(pattern)}
    _require_use(goals, deciders)
    return [_operated(name, *goals[by], options) for name, by in deciders.items()]


def _by_pattern(patterns: Sequence[str], goals: Sequence[_T]) -> dict[str, _T]:
    """The goal of each pattern."""
    for pattern, count in Counter(patterns).items():
        if count > 1:
            raise UsageError(f"--variable {pattern} is given twice")
    return dict(zip(patterns, goals, strict=True))


def _require_use(goals: Mapping[str, object], deciders: Mapping[str, str]) -> None:
    """Refuses a pattern that decides about no variable, if others decide differently about those that it stands for.

    Args:
        deciders: the pattern that decides, by variable.
    """
    for pattern, goal in goals.items():
        others = [goals[by] for name, by in deciders.items() if by != name and fits(name, pattern)]
        if pattern not in deciders.values() and any(other != goal for other in others):
            raise UsageError(f"--variable {pattern} has no effect: of patterns that fit a name, the first counts")


def _of_run(options: argparse.Namespace) -> list[configuration.OperatedVariable]:
    """The variables of a run, with bounds chosen from samples; prints what the samples say to standard error."""
    patterns: list[str] = options.variable or []
    given = parameters_given(options)
    eb, mode = given.pop("eb", None), given.pop("mode", None)
    if eb and any(value is not None for value in (options.relative, options.psnr, options.ratio)):
        raise UsageError("--eb gives the bound itself: leave out --relative, --psnr or --ratio")
    if len(eb or []) > 1 and not patterns:
        raise UsageError("several --eb need as many --variable")
    goals = [Goal(psnr=options.psnr, ratio=options.ratio, relative=options.relative)] * max(len(patterns), 1)
    if eb:
        bounds = _one_per_variable("--eb", eb, patterns or [""])
        modes = _one_per_variable("--mode", mode or ["abs"], patterns or [""])
        goals = [Goal(eb=eb, mode=mode) for eb, mode in zip(bounds, modes, strict=True)]
    elif mode:
        raise UsageError("--mode is that of --eb, as in --eb 1e-3 --mode pw_rel: it does not choose a bound")

    by_pattern = _by_pattern(patterns or [""], goals)
    proposals: list[Proposal] = []
    with progress(f"sampling {options.example}"):
        for variable in sampled_variables(options.example, patterns, **given):
            goal = by_pattern[variable.chosen_by]
            proposals.append(propose(variable, goal, is_wanted=bool(patterns), **given))
    print_proposals(proposals, sys.stderr)
    if options.order is None and metadata.is_column_major(options.example):
        options.order = "column"
        print("note  the run is of a program with column-major arrays (Fortran): order is column", file=sys.stderr)
    own = [_operated(p.variable.name, p.eb, p.mode, options, p.comment) for p in proposals if p.eb is not None]
    if not own:
        raise FailureError(f"no variable of {options.example} has been given a bound (the notes above say why)")
    return own + _of_other_levels(by_pattern, own, [p.variable for p in proposals], options)


def _of_other_levels(
    goals: Mapping[str, Goal],
    own: Sequence[configuration.OperatedVariable],
    variables: Sequence[SampledVariable],
    options: argparse.Namespace,
) -> list[configuration.OperatedVariable]:
    """The names that patterns with braces stand for but the run lacks, such as levels that it did not reach. Each is
    compressed like the last variable that differs only in numbers, with the bound of its pattern, if that has one."""
    there = {variable.name: variable for variable in variables}
    deciders = {variable.name: variable.chosen_by for variable in variables}
    others = []
    for name in dict.fromkeys(name for pattern in goals if pattern not in there for name in meant(pattern)):
        if not name or name in there or has_wildcard(name):
            continue
        like = [variable for variable in own if numbered(variable.name) == numbered(name)]
        if not like:
            chosen([name], there, repr(str(options.example)))  # raises an error
        deciders[name] = deciding(name, goals, there) or ""
        goal, comment = goals[deciders[name]], f"as {like[-1].name}"
        if goal.eb is None or there[like[-1].name].is_exact:
            others.append(configuration.OperatedVariable(name, like[-1].parameters, comment))
        else:
            others.append(_operated(name, goal.eb, goal.mode, options, comment))
    _require_use(goals, deciders)
    return others


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
    parser.add_argument("--strict", action="store_true", help="exit status 1 after a warning, too")
    _add_all(parser)
    add_json(parser)


def _bound_in_words(eb: float | None, mode: str) -> str:
    if eb is None:
        return "no bound"
    return f"{eb!r}{'' if mode in ('', 'abs') else f' {mode}'}"


def _check_line(own: Sequence[CheckedVariable]) -> list[str]:
    """A line for similar variables: their names, total numbers of blocks, and smallest and largest ratios."""
    ratios = sorted(v.ratio for v in own if v.ratio)
    said = " .. ".join(dict.fromkeys(map(cell, (*ratios[:1], *ratios[-1:]))))
    counts = [str(sum(v.blocks for v in own)), str(sum(v.compressed for v in own))]
    remarks = "; ".join([f"{len(own)} variables"] * (len(own) > 1) + [together([v.remarks for v in own])])
    return [together([v.name for v in own]), own[0].type, *counts, said, remarks.removesuffix("; ")]


def _check(options: argparse.Namespace) -> int:
    configurations = [path for path in options.paths if path.suffix.lower() in (".xml", ".yaml", ".yml")]
    runs = [path for path in options.paths if path not in configurations]
    if len(configurations) > 1 or len(runs) > 1:
        raise UsageError("one .bp directory and one configuration (.xml) can be checked at a time")
    report = check(runs[0] if runs else None, configurations[0] if configurations else None, io=options.io)
    code = EXIT_FAILURE if report.problems or (options.strict and report.warnings) else 0
    if options.json:
        print_json(report.to_dict())
        return code
    if report.plugin:
        print(f"plugin    {report.plugin['path']}, version {report.plugin['version'] or 'unknown'}")
    for io in report.ios:
        bounds = [f"{name} ({_bound_in_words(eb, io.modes[name])})" for name, eb in io.variables.items()]
        said = ", ".join(_listed(bounds, options)) or "no variable compressed"
        print(f"IO        {io.name}, engine {io.engine or 'chosen by the program'}: {said}")
    if report.variables:
        print()
        columns = ("variable", "type", "blocks", "compressed", "ratio", "remarks")
        lines = [[variable] for variable in report.variables]
        if len(lines) > _MAX_LINES and not options.all:
            groups: dict[tuple[str, ...], list[CheckedVariable]] = {}
            for v in report.variables:
                groups.setdefault((numbered(v.name), v.type, numbered(v.remarks)), []).append(v)
            lines = list(groups.values())
        print_table([columns, *map(_check_line, lines)])
        print()
    for problem in _listed(report.problems, options):
        print(f"PROBLEM   {problem}")
    for warning in _listed(report.warnings, options):
        print(f"warning   {warning}")
    for note in _listed(report.notes, options):
        print(f"note      {note}")
    if not report.problems:
        unchecked = "" if runs else " (names are checked only with a file that was written)"
        print(f"no problems found{unchecked}")
    return code


# ------------------------------------------------------------------------------------------------------------ diff


def _add_diff_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", type=Path, help=".bp directory; the original, if one of them is")
    parser.add_argument("b", type=Path, help=".bp directory")
    parser.add_argument("--eb", type=number, help="exit status 1 if a value differs by more (0: by a bit)")
    parser.add_argument("--mode", choices=("abs", "rel", "pw_rel"), default="abs", help="of --eb (default: abs)")
    parser.add_argument("--fill", type=number, help="a value that stands for a missing one, such as 1e20")
    parser.add_argument("--variable", action="append", metavar="NAME", help="only this one; repeat for more")
    parser.add_argument("--step", action="append", type=int, metavar="N", help="only this one; repeat for more")
    parser.add_argument("--steps", action="store_true", help="a line for every step, not only for the worst")
    _add_all(parser)
    add_json(parser)


def _diff(options: argparse.Namespace) -> int:
    with progress("comparing") as tell:
        bounds = {"eb": options.eb, "mode": options.mode, "fill": options.fill}
        selected = {"variables": options.variable, "steps": options.step}
        found = list(compare_runs(options.a, options.b, **selected, **bounds, progress=tell))
    if not found:
        where = "at the steps asked for" if options.step else "in a complete step"
        raise CuszError(f"there is nothing to compare: neither file has a variable {where}")
    code = EXIT_FAILURE if any(one.fails for one in found) else 0
    if options.json:
        print_json([one.to_dict() for one in found])
        return code
    by_variable = itertools.groupby(found, key=lambda one: one.variable)
    lines = found if options.steps else [_worst(own) for _, own in by_variable]
    groups = [[one] for one in lines]
    if len(lines) > _MAX_LINES and not options.all:
        by_kind: dict[tuple[Any, ...], list[Difference]] = {}
        for one in lines:
            kind = numbered(one.problem), bool(one.different), bool(one.beyond), one.step if options.steps else None
            by_kind.setdefault((numbered(one.variable), *kind), []).append(one)
        groups = list(by_kind.values())
    print_table([_DIFF_COLUMNS, *map(_diff_line, groups)])
    problems = [one for one in found if one.problem]
    if not options.steps:
        print("".join(f"{text}\n" for text in _problems_in_words(problems, options)), end="")
    if options.eb is not None:
        beyond = sum(one.beyond for one in found)
        said = f"{beyond} values differ by more than" if beyond else "no value differs by more than"
        names = _listed(sorted({one.variable for one in problems}), options)
        left_out = f"; not compared: {', '.join(names)}" if names else ""
        print(f"\n{said} {options.mode} {options.eb!r}{left_out}")
    return code


def _problems_in_words(problems: Sequence[Difference], options: argparse.Namespace) -> Iterator[str]:
    """A line for all variables and steps with the same problem."""
    steps: dict[tuple[str, str], list[int]] = {}
    for one in problems:
        steps.setdefault((one.variable, one.problem), []).append(one.step)
    names: dict[tuple[str, str], list[str]] = {}
    for (name, problem), own in steps.items():
        at = f"step{'s' if len(own) > 1 else ''} {_intervals(own)}"
        names.setdefault((at, problem), []).append(name)
    for (at, problem), of in names.items():
        yield f"{', '.join(of if options.all else in_short(of))}, {at}: {problem}"


_DIFF_COLUMNS = ("variable", "step", "values", "different", "largest", "of range", "at", "PSNR", "")


def _diff_line(group: Sequence[Difference]) -> list[str]:
    """A line for similar variables, with the numbers of the one that differs most."""
    one = _worst(group)
    names = [own.variable for own in group]
    more = f"{len(names)} variables" if len(names) > 1 else ""
    if one.problem:
        return [together(names), str(one.step), *[""] * 6, ", ".join(filter(None, [more, one.problem]))]
    of_range = "" if math.isnan(one.largest_of_range) else f"{one.largest_of_range:.3g}"
    at = ",".join(map(str, one.at)) if one.largest else ""
    psnr = f"{one.psnr:.2f} dB" if math.isfinite(one.psnr) else ""
    said = "the same" if not one.different else f"{one.beyond} BEYOND THE BOUND" if one.beyond else ""
    in_one = f"{one.finite_in_one} finite in one only" if one.finite_in_one else ""
    covered = f"values in {tuning.percent(one.covered)} of the shape" if one.covered < 1 else ""
    if more and one.different:
        more += f", most in {one.variable}"
    numbers = [str(one.values), str(one.different), f"{one.largest:.6g}", of_range, at, psnr]
    return [together(names), str(one.step), *numbers, ", ".join(filter(None, [said, in_one, covered, more]))]


def _worst(own: Iterable[Difference]) -> Difference:
    """The difference with the most values beyond the bound, or else the largest one. Values that are finite in only one
    run count as further apart than all others."""
    return max(own, key=lambda one: (not one.problem, one.beyond, one.finite_in_one, one.largest, one.different))


# ---------------------------------------------------------------------------------------------------------- report


def _add_report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help=".bp directory")
    parser.add_argument("--original", type=Path, help="the same run without loss, to compare with (.bp directory)")
    parser.add_argument("--variable", action="append", metavar="NAME", help="only this one; repeat for more")
    parser.add_argument("-o", "--output", type=Path, help="page to write (default: PATH.html)")
    parser.add_argument("-f", "--force", action="store_true", help="overwrite the output file")


def _report(options: argparse.Namespace) -> int:
    run = options.path if options.path.name not in ("", "..") else options.path.resolve()
    output: Path = options.output or run.with_name(f"{run.name}.html")
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
    if page.kept:
        print(page.kept)
    return EXIT_FAILURE if page.broken else 0


# ------------------------------------------------------------------------------------------------------------ view

_PICTURE = 512  # pixels along the longer side of a file


def _add_view_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="RUN.bp")
    parser.add_argument("variable")
    parser.add_argument("--step", type=int, metavar="N", help="from 0, or from the end if negative (default: the last)")
    parser.add_argument(
        "--slice",
        action="append",
        default=[],
        type=_cut,
        metavar="AXIS=WHERE",
        help="cut there: an index, or a fraction with a point, as in z=0.5; axes have the names that attributes of the "
        "variable give, and are z, y and x, or numbers. Repeat for more; of more than two axes that are left, the "
        "first are cut in the middle",
    )
    parser.add_argument("--mean", action="append", default=[], metavar="AXIS", help="the mean along this axis")
    parser.add_argument("-o", "--output", type=Path, metavar="PICTURE.png", help="write a picture, not to the terminal")
    parser.add_argument(
        "--pixels", type=int, metavar="N", help=f"along the longer side (default: {_PICTURE}; of a terminal, its width)"
    )
    parser.add_argument("-f", "--force", action="store_true", help="overwrite the picture")


def _cut(text: str) -> tuple[str, float | int]:
    axis, _, where = text.partition("=")
    try:
        return axis, int(where) if where.lstrip("-").isdigit() else float(where)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a cut such as z=0.5 or z=128") from None


def _view(options: argparse.Namespace) -> int:
    output: Path | None = options.output
    if output is not None and output.suffix != ".png":
        raise UsageError(f"{output} does not end in .png")
    if options.pixels is not None and options.pixels < 1:
        raise UsageError(f"--pixels is {options.pixels}; it must be 1 or more")
    if output is not None:
        refuse_overwrite(output, options.path, options.force)
    window = shutil.get_terminal_size()
    width = height = options.pixels or _PICTURE
    if output is None:
        width = min(options.pixels or window.columns, window.columns)
        room = max(2 * (window.lines - 3), 2)
        height = min(options.pixels or room, room)
    with Reader(options.path) as run:
        steps = run[options.variable].steps
        number = steps[-1] if options.step is None else options.step + (len(run) if options.step < 0 else 0)
        if number not in steps:
            at = f"at step {steps[0]}" if len(steps) == 1 else f"at {len(steps)} steps from {steps[0]} to {steps[-1]}"
            raise ParameterError(f"{options.path} has {options.variable!r} {at}, not at step {options.step}")
        step = run[number]
        axes = dimensions_of(options.variable, len(step.shape(options.variable)), run.attributes)
        picture = view.picture_of(step, options.variable, dict(options.slice), tuple(options.mean), width, height, axes)
        read, stored = run.bytes_read, step.blocks(options.variable)["archive_bytes"]
    if output is not None:
        with new_file(output) as file:
            file.write(view.png(picture, width))
    else:
        fitting = view.fitted(picture, width, height)
        has_colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        has_blocks = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print(view.half_blocks(fitting) if has_colours and has_blocks else view.characters(fitting))
    limits = picture.limits()
    is_complex = step.dtype(options.variable).kind == "c"
    is_known = (stored >= 0).all() and not is_complex  # whose `stored` covers the real part only
    of_all = f" of {size(int(stored.sum()))}" if is_known else ""
    words = [
        f"{f'|{options.variable}|' if is_complex else options.variable} at step {number}",
        *(f"{axis} = {at}" for axis, at in picture.cuts.items()),
        *(f"mean along {axis}" for axis in picture.means),
        f"level {picture.level.number} of 0 to {picture.levels - 1}",
        f"{picture.values.shape[1]} x {picture.values.shape[0]} values",
        f"{limits[0]:.6g} to {limits[1]:.6g}" if limits else "none of them a number",
        f"read {size(read)}{of_all}" if read else "",
    ]
    print((f"{output}: " if output else "") + ", ".join(filter(None, words)))
    return 0


# --------------------------------------------------------------------------------------------- inspect of a directory

_MAX_ERRORS = 10  # printed below a table of variables


def _inspect_directory(options: argparse.Namespace) -> int:
    path: Path = options.path
    selected = {"variables": options.variable, "steps": options.step, "check": options.check}
    try:
        with progress(f"reading {path.name}") as tell:
            blocks: list[Any] = list(inspect_bp(path, **selected, progress=tell)) if options.blocks else []
            variables = [] if options.blocks else inspect_variables(path, **selected, progress=tell)
    except CuszError:
        raise
    except Exception as error:  # ADIOS2 may raise anything for a damaged directory
        raise FailureError(f"{path} cannot be read: {error}") from None
    if options.json:
        of_blocks = [{key: embedding.json_value(value) for key, value in block.items()} for block in blocks]
        print_json(of_blocks or [variable.to_dict() for variable in variables])
    elif options.blocks:
        _print_blocks(path, blocks)
    else:
        _print_variables(path, variables)
    is_damaged = any("error" in block for block in blocks) or any(variable.errors for variable in variables)
    return EXIT_FAILURE if options.check and is_damaged else 0


def _print_blocks(path: Path, blocks: Sequence[Mapping[str, Any]]) -> None:
    """Prints what all blocks have in common, and a line for every block. A single block gets a line for every key."""
    if not blocks:
        print(f"{path}: no blocks")
        return
    first, last = ("variable", "step", "block"), ("error",)
    found = dict.fromkeys(key for block in blocks for key in block)
    columns = [*first, *(key for key in found if key not in (*first, *last)), *(key for key in last if key in found)]
    if len(blocks) == 1:
        print_table([(key, cell(blocks[0][key])) for key in columns])
        return
    cells = {key: [cell(block.get(key, "")) for block in blocks] for key in columns}
    same = [key for key in columns if key not in first and len(set(cells[key])) == 1]
    if said := [f"{key} {cells[key][0]}" for key in same if cells[key][0]]:
        print(f"the same for all blocks: {', '.join(said)}\n")
    shown = [key for key in columns if key not in same]
    numbers = [i for i, key in enumerate(shown) if all(isinstance(b.get(key, 0), int | float) for b in blocks)]
    print_table([shown, *zip(*(cells[key] for key in shown), strict=True)], right=numbers)


_COLUMNS = (
    *("variable", "type", "steps", "blocks", "raw", "stored", "ratio"),
    *("asked", "in force", "outliers", "predictor", "remarks"),
)
_NUMBERS = ("blocks", "raw", "stored", "ratio", "outliers")
_WIDEST_STEPS = 16  # characters


def _print_variables(path: Path, variables: Sequence[VariableInfo]) -> None:
    """Prints a line for every variable, their total, and what is wrong."""
    engine = "BP5" if (path / "mmd.0").exists() else "BP4"
    on_disk = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    print(f"{path}: {engine}, {size(on_disk)}")
    if not variables:
        print("there are no variables in it")
        return
    print()
    rows = [_cells(variable) for variable in variables]
    stored = [variable for variable in variables if variable.archive_bytes]
    if len(stored) > 1:
        before, after = (sum(getattr(v, key) for v in stored) for key in ("archive_raw_bytes", "archive_bytes"))
        total = {"variable": "compressed" if any(v.others for v in variables) else "total"}
        total |= {"blocks": str(sum(v.blocks for v in stored)), "raw": size(before), "stored": size(after)}
        rows.append({**total, "ratio": _ratio(before / after)})
    columns = [name for name in _COLUMNS if any(row.get(name) for row in rows)]
    lines = [columns, *([row.get(name, "") for name in columns] for row in rows)]
    print_table(lines, right=[i for i, name in enumerate(columns) if name in _NUMBERS])
    errors = [(variable.name, own) for variable in variables for own in variable.errors]
    if errors:
        print()
    for name, own in errors[:_MAX_ERRORS]:
        where = f"step {own.step}" if own.block is None else f"step {own.step}, block {own.block}"
        print(f"{name}, {where}: {own.error}")
    if len(errors) > _MAX_ERRORS:
        print(f"... and {len(errors) - _MAX_ERRORS} more: --json has them all")


def _cells(variable: VariableInfo) -> dict[str, str]:
    """A variable's line of the table, by column."""
    row = {"variable": variable.name, "type": variable.type, "steps": _steps(variable.steps)}
    row |= {"blocks": str(variable.blocks), "raw": "" if variable.raw_bytes is None else size(variable.raw_bytes)}
    if variable.archive_bytes is not None and variable.ratio is not None:
        row |= {"stored": size(variable.archive_bytes), "ratio": _ratio(variable.ratio)}
        row |= {"asked": _asked(variable), "in force": _in_force(variable)}
        row["outliers"] = "" if variable.type in INTEGERS else str(variable.outliers)
        known = [name for name in variable.predictors if name != "unknown"] or list(variable.predictors)
        row["predictor"] = "mixed" if len(known) > 1 else "".join(known)
    row["remarks"] = "; ".join(_remarks(variable))
    return row


def _steps(steps: Sequence[int]) -> str:
    text = _intervals(steps)
    return text if len(text) <= _WIDEST_STEPS else f"{len(steps)} of {steps[0]}-{steps[-1]}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def _asked(variable: VariableInfo) -> str:
    """The bounds asked for, grouped by mode."""
    bounds: dict[str, list[float]] = {}
    for own in variable.asked:
        mode = "unknown" if own is None else "lossless" if own.eb == 0 and own.mode not in GOALS else own.mode
        bounds.setdefault(mode, []).append(own.eb if own else 0.0)
    return ", ".join(
        mode if mode in ("unknown", "lossless") else f"{mode} {_range(own)}" for mode, own in bounds.items()
    )


def _in_force(variable: VariableInfo) -> str:
    if variable.eb_abs_min is None or variable.eb_abs_max is None:
        return "exact" if variable.packed + variable.raw + variable.plain else ""
    if variable.eb_abs_max == 0:
        return "exact"
    return _range([variable.eb_abs_min, variable.eb_abs_max])


def _range(bounds: Sequence[float]) -> str:
    low, high = (f"{bound:.4g}" for bound in (min(bounds), max(bounds)))
    return f"{bounds[0]:.6g}" if min(bounds) == max(bounds) else low if low == high else f"{low} .. {high}"


def _remarks(variable: VariableInfo) -> list[str]:
    """What is out of the ordinary."""
    n_full = variable.blocks - variable.empty
    if not n_full:
        return ["no values"]

    def blocks(n: int) -> str:
        return "all blocks" if n == n_full else "1 block" if n == 1 else f"{n} blocks"

    remarks = []
    if variable.covered is not None and variable.covered < 1:
        remarks.append(f"values in {tuning.percent(variable.covered)} of the shape")
    if variable.others:
        remarks.append(f"{blocks(variable.others)} not compressed by cusz".removeprefix("all blocks "))
    if variable.raw and any(own is None or own.eb for own in variable.asked):
        remarks.append(f"{blocks(variable.raw)} stored raw")
    if len(variable.predictors) > 1:
        remarks.append(", ".join(f"{blocks(n)} {name}" for name, n in sorted(variable.predictors.items())))
    if variable.plain:
        remarks.append(f"{blocks(variable.plain)} uncompressed: the plugin failed")
    if variable.lost:
        remarks.append(f"{blocks(variable.lost)} LOST")
    if n_damaged := sum(own.block is not None for own in variable.errors) - variable.lost:
        remarks.append(f"{blocks(n_damaged)} with errors")
    if n_tables := sum(own.block is None for own in variable.errors):
        remarks.append(f"block table damaged at {n_tables} step{'s' if n_tables > 1 else ''}")
    return remarks


# ------------------------------------------------------------------------------------- parts of the core's commands


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
DIFF = Command("show how far two .bp directories are apart", _diff, _add_diff_options)
INSPECT_DIRECTORY = Command("describe the variables and blocks of a .bp directory", _inspect_directory)
REPORT = Command(
    "make an HTML page about a .bp directory, with errors if the original is given", _report, _add_report_options
)
VIEW = Command(
    "show a plane of a variable in the terminal, or as a picture, whatever the size of the run",
    _view,
    _add_view_options,
)
DEVICES_OF_RANKS = Command("show the device or cores of every rank", _devices_of_ranks)
