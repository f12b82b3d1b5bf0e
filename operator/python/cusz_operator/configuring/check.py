"""Checks whether a configuration and a file do what they are meant to: the command `cusz check`."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cusz_core import __version__
from cusz_core.errors import CuszError, ParameterError, UnsupportedError

from ..adios2_calls import import_adios2
from ..inspecting.blocks import Block, inspect_bp
from ..names import in_short, like, listed, numbered
from ..parameters import NO_BOUND
from ..plugin import PLUGIN_LIBRARY, PLUGIN_NAME, found_by_adios2, without_colours
from ..tables import statistics
from ..tables.stored import FLOATS, INTEGERS
from .files import real_name
from .parse import IO, Configuration, read_configuration
from .sampling import SMALL


@dataclasses.dataclass
class Variable:
    """A variable of a file.

    Attributes:
        name: of the variable.
        type: ADIOS2's name of its type.
        blocks: number of blocks with values, over all steps.
        compressed: number of these whose archive is smaller than the block.
        ratio: raw bytes over archive bytes of the blocks of this operator; None if there are none.
        remarks: remarks on blocks that are not compressed; "" if all are.
    """

    name: str
    type: str
    blocks: int
    compressed: int
    ratio: float | None
    remarks: str


@dataclasses.dataclass
class Report:
    """What `check` found.

    Attributes:
        plugin: path and version of the library that ADIOS2 loads; None if there is none.
        ios: of the configuration, with the variables to be compressed.
        variables: of the file.
        problems: what is wrong.
        warnings: what is probably not intended: a variable of float or double that is not compressed although others
            are; or a change by the configuration of something that must stay the same if a run appends to the file.
        notes: what is worth knowing.
    """

    plugin: dict[str, str] | None = None
    ios: list[IO] = dataclasses.field(default_factory=list)
    variables: list[Variable] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values that JSON can hold."""
        return dataclasses.asdict(self)


def check(
    run: str | os.PathLike[str] | None = None,
    configuration: str | os.PathLike[str] | None = None,
    io: str | None = None,
) -> Report:
    """Checks which plugin ADIOS2 loads, what a configuration asks for, and what a file contains.

    Args:
        run: a .bp folder (BP5 or BP4).
        configuration: the ADIOS2 XML file with which the file was or will be written.
        io: the name that the program passes to DeclareIO, if the configuration has several.

    Raises:
        OSError: the configuration does not exist.
        UnsupportedError: the configuration is YAML.
        ParameterError: the configuration has several IOs with operations, and `io` does not say which.
    """
    report = Report()
    _check_plugin(report)
    asked: dict[str, float | None] | None = None
    if configuration is not None:
        chosen = _check_configuration(Path(configuration), io, run is not None, report)
        asked = dict(chosen.variables) if chosen else None
    if run is not None:
        blocks = _check_run(Path(run), asked, report)
        if configuration is not None:
            _check_appending(Path(run), [chosen] if chosen else report.ios if io is None else [], blocks, report)
    if configuration is not None:
        _check_bounds(Path(configuration), [chosen] if chosen and (io or run is not None) else report.ios, report)
    return report


def _check_plugin(report: Report) -> None:
    try:
        found = found_by_adios2()
    except CuszError as error:
        report.problems.append(f"plugin: {error}")
        return
    where = f"ADIOS2_PLUGIN_PATH is {found.searched!r}" if found.searched else "ADIOS2_PLUGIN_PATH is not set"
    for message in found.errors:
        report.problems.append(f"plugin: a library cannot be loaded: {message}")
    if not found.path:
        report.problems.append(
            f"plugin: ADIOS2 does not find {PLUGIN_LIBRARY} ({where}): "
            'eval "$(cusz config --environment)" (programs that import cusz_operator need not)'
        )
        return
    report.plugin = {"path": found.path, "version": found.version}
    if not found.version:
        report.problems.append(f"plugin: {found.path} is not this project's ({where})")
    elif found.version != __version__:
        report.notes.append(f"plugin: {found.path} has version {found.version}, this command has {__version__}")


def _check_bounds(path: Path, ios: Sequence[IO], report: Report) -> None:
    """Reports variables without a bound that are not known to be integers. Only a run can tell what they are."""
    types = {variable.name: variable.type for variable in report.variables}
    for name, where in [entry for io in ios for entry in io.unbounded.items()]:
        if name not in types:
            report.notes.append(f"{path}: {where}: {NO_BOUND}, unless they are of integers, which need none")
        elif types[name] not in INTEGERS:
            report.problems.append(f"{path}: {where}: {NO_BOUND}")


def _check_configuration(path: Path, io: str | None, has_run: bool, report: Report) -> IO | None:
    """Checks a configuration; returns the IO that is meant, None if that is not known."""
    if path.suffix.lower() in (".yaml", ".yml"):
        raise UnsupportedError(
            f"{path} is YAML, but only XML can be checked: ADIOS2 reads either, and 'cusz config' writes both"
        )
    found: Configuration = read_configuration(path)
    report.problems += [f"{path}: {problem}" for problem in found.problems]
    report.notes += [f"{path}: {note}" for note in found.notes]
    report.ios = found.ios
    if path.suffix != ".xml":
        report.problems.append(f"{path}: ADIOS2 reads a configuration only if its name ends in .xml (or .yaml, .yml)")
    names = [own.name for own in found.ios]
    if io is not None:
        chosen = [own for own in found.ios if own.name == io]
        if not chosen:
            report.problems.append(f"{path}: there is no IO {io!r}{like(io, names)}: ADIOS2 ignores the file for it")
    else:
        chosen = [own for own in found.ios if own.variables]
        if has_run and len(chosen) > 1:
            raise ParameterError(
                f"{path} has operations in several IOs: use --io to say which of them wrote the file "
                f"({', '.join(own.name for own in chosen)})"
            )
    return chosen[0] if chosen else None


def _check_run(path: Path, asked: dict[str, float | None] | None, report: Report) -> dict[str, list[Block]]:
    """Checks a file; returns the blocks of every variable."""
    if not path.exists():
        report.problems.append(f"{path} does not exist: if the program has ended early, its messages say why")
        return {}
    blocks: dict[str, list[Block]] = {}
    try:
        for block in inspect_bp(path):
            blocks.setdefault(block["variable"], []).append(block)
    except (CuszError, OSError):
        raise
    except Exception as error:  # ADIOS2 may raise anything for a damaged folder
        raise CuszError(f"{path} cannot be read: {without_colours(error)}") from None
    if not blocks:
        report.problems.append(f"{path}: there is no complete step in it")
        return {}
    for name in asked or {}:
        if name in blocks:
            continue
        alike = [other for other in blocks if numbered(other) == numbered(name)]
        if alike and all(other in (asked or {}) for other in alike):  # otherwise it may be one of these, misspelt
            report.notes.append(f"{path}: there is no variable {name!r}, as of a level that this run does not have")
        else:
            report.problems.append(
                f"{path}: there is no variable {name!r}{like(name, blocks)}: "
                "ADIOS2 silently ignores what the configuration says about it"
            )
    for name, own in sorted(blocks.items()):
        variable, problems = _variable(name, own, asked)
        report.variables.append(variable)
        turned = sum(map(_is_turned, own))
        if turned:
            report.warnings.append(
                f"{path}: variable {name!r}: {turned} of {variable.blocks} blocks are compressed along the wrong axes, "
                "which makes them larger: the parameter 'order' must be 'column' in a program with column-major arrays "
                "(Fortran), and must not be in others"
            )
        report.problems += [f"{path}: variable {name!r}: {problem}" for problem in problems]
    for name, own in sorted(blocks.items()):
        if asked and name not in asked and all(block["operator"] != PLUGIN_NAME for block in own):
            _check_without_operation(path, name, own, asked, report)
    return blocks


def _check_appending(path: Path, ios: Sequence[IO], blocks: dict[str, list[Block]], report: Report) -> None:
    """Warns if a configuration changes what must stay the same in a file if steps are appended: the engine, and in BP5,
    whose readers rely on it, operations and statistics.

    Args:
        ios: those that may write the file; if there are several, none of them has an operation of this operator.
    """
    if not ios or not blocks:
        return
    begin = f"{path}: if a run with this configuration appends to it,"
    file_engine = "BP5" if (path / "mmd.0").exists() else "BP4"
    for io in ios if len(ios) == 1 else ():
        if {file_engine, real_name(io.engine)} == {"BP4", "BP5"}:
            report.warnings.append(
                f"{begin} the file cannot be read any more: it is of the engine {file_engine}, and the configuration "
                f"has {io.engine}"
            )
        if file_engine == "BP5" and io.stats_level in ("0", "1"):
            has_statistics = statistics.are_in(import_adios2(), path)
            if has_statistics not in (None, io.stats_level == "1"):
                report.warnings.append(
                    f"{begin} readers crash: it has {'' if has_statistics else 'no '}statistics, and the configuration "
                    f"has StatsLevel {io.stats_level}"
                )
    ours = {name for io in ios for name in io.variables}
    others = {name for io in ios for name in io.others}
    without, with_one = list[str](), list[str]()
    for name, own in sorted(blocks.items()) if file_engine == "BP5" else ():  # in BP4 steps need not be alike
        # Single values and empty blocks have no operation.
        known = [block for block in own if block["operator"] == PLUGIN_NAME or "error" not in block]
        last = next((block for block in reversed(known) if block["operator"] != "" and block["count"] != ()), None)
        if last is None or last["type"] not in FLOATS | INTEGERS:
            continue
        is_compressed = last["operator"] == PLUGIN_NAME
        if is_compressed and name not in ours | others:
            without.append(name)
        elif not is_compressed and name in ours:
            with_one.append(name)
    for names, are, has in ((without, "compressed", "no"), (with_one, "not compressed", "an")):
        if names:
            verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
            report.warnings.append(
                f"{begin} readers crash, hang or get wrong values: "
                f"{listed(in_short(names))} {verb} {are} in it, and the configuration has {has} operation for {them}"
            )


def _check_without_operation(path: Path, name: str, own: Sequence[Block], asked: Iterable[str], report: Report) -> None:
    kind = own[0]["type"]
    arrays = [block["count"] for block in own if block["operator"] != "" and block["count"] != ()]
    if not arrays or kind not in FLOATS | INTEGERS:
        return
    alike = [other for other in asked if numbered(other) == numbered(name)]
    said = report.warnings if kind in FLOATS else report.notes
    if alike:
        are = "is" if len(alike) == 1 else "are"
        said.append(
            f"{path}: variable {name!r} is not compressed; {listed(in_short(alike))} {are}. "
            "ADIOS2's configurations have no wildcards: name it, too (cusz config takes 'level{0..4}/rho')"
        )
    elif kind in FLOATS and max(map(math.prod, arrays)) * FLOATS[kind].itemsize >= SMALL:
        said.append(f"{path}: variable {name!r} of {kind} is not compressed: the configuration has no operation for it")


def _is_turned(block: Block) -> bool:
    """Whether a block's extents were reversed when it was compressed. (More than four are merged.)"""
    shape = block.get("shape", block["count"])
    return shape != block["count"] and shape == block["count"][::-1]


def _variable(name: str, blocks: Sequence[Block], asked: dict[str, float | None] | None) -> tuple[Variable, list[str]]:
    """A variable, and what is wrong with it."""
    kind = blocks[0]["type"]
    is_asked = asked is not None and name in asked
    full = [block for block in blocks if block["operator"] != ""]
    ours = [block for block in full if block["operator"] == PLUGIN_NAME]
    kinds = [block.get("kind", "") for block in ours]
    n_raw, n_plain = kinds.count("raw"), kinds.count("plain")
    problems = [
        f"block {block['block']} of step {block['step']}: {block['error']}" for block in blocks if "error" in block
    ]
    why = []
    n_others = sum(block["operator"] != PLUGIN_NAME and "error" not in block for block in full)
    if n_others:
        reason = _why_not(kind, blocks, asked is not None, is_asked)
        why.append(reason if n_others == len(full) else f"{n_others} of {len(full)} blocks: {reason}")
        if is_asked:
            problems.append(f"{n_others} of {len(full)} blocks are not compressed: {reason}")
    if n_plain:
        why.append(f"{n_plain} of {len(full)} blocks are stored uncompressed, because the plugin failed")
        problems.append(why[-1])
    if n_raw:
        why.append(
            f"{n_raw} of {len(full)} blocks are stored raw: too small, incompressible within the bound, or with bound 0"
        )
        if n_raw == len(full) and is_asked and asked is not None and asked[name]:
            problems.append(f"{why[-1]}: none of the variable is compressed")
    if ours and asked is not None and not is_asked:
        why.append("compressed, though the configuration has no operation for it")
    if not full:
        why.append("no values")
    archive_bytes = sum(block.get("archive_bytes", 0) for block in ours)
    ratio = sum(block.get("raw_bytes", 0) for block in ours) / archive_bytes if archive_bytes else None
    return Variable(
        name, kind, len(full), kinds.count("tiled") + kinds.count("packed"), ratio, "; ".join(why)
    ), problems


def _why_not(kind: str, blocks: Sequence[Block], has_configuration: bool, is_asked: bool) -> str:
    """Why blocks of a variable were written without this operator."""
    if kind not in FLOATS | INTEGERS:
        return f"its type is {kind}; the operator takes float, double and integers"
    if all(block["count"] == () for block in blocks):
        why = "a single value, which no operator compresses"
        return f"{why}: with an operation, BP5 refuses the second step" if is_asked else why
    if is_asked and all(block["count"] == (1,) for block in blocks):
        return (
            "its blocks are of one value each: if the program writes one value of each rank (LocalValueDim), no "
            "operator compresses it, and with an operation BP5 refuses the second step"
        )
    if is_asked:
        return (
            "they were written without this configuration, or the program gives DeclareIO another name than this IO's"
        )
    if has_configuration:
        return "the configuration has no operation for it"
    return "written without this operator"
