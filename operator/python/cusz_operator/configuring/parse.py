"""What an ADIOS2 XML configuration says about this operator, and what is wrong with it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from xml.parsers import expat

from cusz_core.errors import UnsupportedError

from ..adios2_calls import is_off
from ..parameters import NO_BOUND, bound_of, parameter_problems
from ..plugin import PLUGIN_LIBRARY, PLUGIN_NAME
from .files import check_engine, real_name

# What ADIOS2 reads; it silently ignores everything else. Names are case-sensitive.
_CHILDREN = {
    "adios-config": ("operator", "io"),
    "operator": ("parameter",),
    "io": ("engine", "transport", "variable"),
    "engine": ("parameter",),
    "transport": ("parameter",),
    "variable": ("operation",),
    "operation": ("parameter",),
    "parameter": (),
}
_NEEDED = {
    "operator": ("name", "type"),
    "io": ("name",),
    "engine": ("type",),
    "transport": ("type",),
    "variable": ("name",),
    "parameter": ("key", "value"),
}


_IF_SEVERAL = "of several operations BP5 refuses the second step, and BP4 performs the first one alone"


@dataclasses.dataclass
class IO:
    """An <io>.

    Attributes:
        name: as the program passes it to DeclareIO.
        engine: its type; "" if the program chooses.
        variables: compressed by this operator, with the bound of each (None: no valid one).
        modes: of these bounds, as they are given; "" where none is.
        unbounded: those for which no bound is given, which only integers can do without, and where they are.
        others: variables with an operation that is not this operator's.
        stats_level: the engine's parameter StatsLevel; "" if it is not given.
    """

    name: str
    engine: str = ""
    variables: dict[str, float | None] = dataclasses.field(default_factory=dict)
    modes: dict[str, str] = dataclasses.field(default_factory=dict)
    unbounded: dict[str, str] = dataclasses.field(default_factory=dict)
    others: list[str] = dataclasses.field(default_factory=list)
    stats_level: str = ""


@dataclasses.dataclass
class Configuration:
    """A configuration file.

    Attributes:
        ios: every <io>.
        problems, notes: messages; a problem must be fixed, a note need not be.
    """

    ios: list[IO] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class _Element:
    tag: str
    attributes: dict[str, str]
    line: int
    children: list[_Element] = dataclasses.field(default_factory=list)

    def all(self, tag: str) -> list[_Element]:
        return [child for child in self.children if child.tag == tag]


class _RefusedError(Exception):
    """A file that is not well-formed XML, or has a DOCTYPE."""


def read_configuration(path: Path) -> Configuration:
    """
    Raises:
        OSError: there is no such file, or it cannot be read.
    """
    result = Configuration()
    try:
        root = _parse(path.read_bytes())
    except _RefusedError as error:
        result.problems.append(str(error))
        return result
    if root.tag != "adios-config":
        result.problems.append(f"line {root.line}: the root is <{root.tag}>, but ADIOS2 reads only <adios-config>")
        return result
    _check_form(root, result)
    operators = {element.attributes.get("name", ""): element for element in root.all("operator")}
    for name, n in Counter(element.attributes.get("name", "") for element in root.all("operator")).items():
        if n > 1:
            result.problems.append(
                f"there are {n} <operator> elements with the name {name!r}: ADIOS2 refuses the whole file"
            )
    for element in root.all("io"):
        result.ios.append(_io(element, operators, result))
    if any(map(_is_ours, operators.values())) and not any(io.variables for io in result.ios):
        result.notes.append("no variable has an operation: only a program that adds the <operator> itself compresses")
    elif not result.ios:
        result.problems.append("there is no <io>")
    elif not any(io.variables for io in result.ios) and not result.problems:
        result.problems.append(
            f"no variable has an operation with PluginName {PLUGIN_NAME!r}: no data will be compressed"
        )
    for name, n in Counter(io.name for io in result.ios).items():
        if n > 1:
            result.problems.append(f"there are {n} <io> elements with the name {name!r}")
    return result


def _is_ours(operator: _Element) -> bool:
    return any(parameter.attributes.get("value") == PLUGIN_NAME for parameter in operator.all("parameter"))


def _parse(text: bytes) -> _Element:
    """The root of an XML document. A DOCTYPE, which no configuration needs and which could do harm, is refused."""
    top = _Element("", {}, 0)
    open_elements = [top]
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = _Element(tag, attributes, parser.CurrentLineNumber)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        open_elements.pop()

    def doctype(*_: object) -> None:
        raise _RefusedError(f"line {parser.CurrentLineNumber}: there is a DOCTYPE, which is not allowed here")

    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = start, end, doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise _RefusedError(
            f"line {error.lineno}: it is not well-formed XML: {expat.ErrorString(error.code)}"
        ) from None
    except (LookupError, ValueError) as error:  # a Python codec that expat cannot use, or an unknown encoding
        raise _RefusedError(f"its encoding cannot be read ({error}): save it as UTF-8") from None
    return top.children[0]


def _check_form(element: _Element, result: Configuration) -> None:
    for name in _NEEDED.get(element.tag, ()):
        if name not in element.attributes:
            result.problems.append(
                f"line {element.line}: <{element.tag}> has no {name}, which ADIOS2 reads as an empty one"
            )
    for child in element.children:
        if child.tag in _CHILDREN[element.tag]:
            _check_form(child, result)
            continue
        known = ", ".join(f"<{tag}>" for tag in _CHILDREN[element.tag]) or "nothing"
        result.problems.append(
            f"line {child.line}: ADIOS2 ignores <{child.tag}> within <{element.tag}> (it knows {known} there)"
        )


def _io(element: _Element, operators: dict[str, _Element], result: Configuration) -> IO:
    io = IO(element.attributes.get("name", ""))
    if "name" in element.attributes and not io.name:
        result.problems.append(f"line {element.line}: the name of <io> is empty")
    variables = element.all("variable")
    for name, n in Counter(variable.attributes.get("name", "") for variable in variables).items():
        if n > 1:
            result.problems.append(
                f"IO {io.name!r}: there are {n} <variable> elements with the name {name!r}: {_IF_SEVERAL}"
            )
    for variable in variables:
        name = variable.attributes.get("name", "")
        where = f"line {variable.line}: variable {name!r}"
        operations = variable.all("operation")
        if not operations:
            result.notes.append(f"{where} has no <operation>: it is not compressed")
        elif len(operations) > 1:
            result.problems.append(f"{where} has {len(operations)} operations: {_IF_SEVERAL}")
        for operation in operations[:1]:
            parameters = _operation(operation, operators, where, result)
            if parameters is None:
                io.others.append(name)
            else:
                problems = parameter_problems(parameters)
                if NO_BOUND in problems:
                    problems.remove(NO_BOUND)
                    io.unbounded[name] = where
                result.problems += [f"{where}: {problem}" for problem in problems]
                bounds = [bound_of(parameters[key]) for key in ("accuracy", "tolerance", "eb") if key in parameters]
                valid = [bound for bound in bounds if bound is not None]
                io.variables.setdefault(name, min(valid) if len(valid) == len(bounds) > 0 else None)
                io.modes.setdefault(name, parameters.get("mode", ""))
    _engine(element, io, result)
    return io


def _operation(
    operation: _Element, operators: dict[str, _Element], where: str, result: Configuration
) -> dict[str, str] | None:
    """The parameters of an operation by this operator; None for any other, or one that ADIOS2 refuses."""
    kind, name = operation.attributes.get("type"), operation.attributes.get("operator")
    parameters: dict[str, str] = {}
    if (kind is None) == (name is None):
        result.problems.append(
            f"{where}: <operation> needs either a type or the name of an operator: ADIOS2 refuses the whole file"
        )
        return None
    if name is not None:
        if name not in operators:
            result.problems.append(f"{where}: there is no <operator> {name!r}: ADIOS2 refuses the whole file")
            return None
        kind = operators[name].attributes.get("type", "")
        parameters = _parameters(operators[name], where, result)
    own = _parameters(operation, where, result)
    parameters = _in_lower_case(parameters | own)
    for key, value in _in_lower_case(own).items():
        if parameters[key] != value:
            result.problems.append(
                f"{where}: parameter {key!r} = {value!r} has no effect: ADIOS2 takes that of the <operator>, whose key "
                "has other capitals"
            )
    if str(kind).lower() != "plugin":
        result.notes.append(f"{where}: the operation is {kind!r}, not this operator")
        return None
    plugin, library = parameters.get("pluginname"), parameters.get("pluginlibrary")
    if plugin is None or library is None:
        missing = "PluginName" if plugin is None else "PluginLibrary"
        result.problems.append(f"{where}: there is no parameter {missing}, without which ADIOS2 ends the program")
        return None
    if PLUGIN_NAME not in plugin.lower() and PLUGIN_NAME not in library.lower():
        result.notes.append(f"{where}: the operation is the plugin {plugin!r}, not this operator")
        return None
    for key, value, right in (("PluginName", plugin, PLUGIN_NAME), ("PluginLibrary", library, PLUGIN_LIBRARY)):
        if value != right:
            result.problems.append(
                f"{where}: {key} is {value!r}; it must be {right!r}: it is stored in every block, and readers use it"
            )
    return parameters


def _parameters(element: _Element, where: str, result: Configuration) -> dict[str, str]:
    """Keys and values."""
    found: dict[str, str] = {}
    for parameter in element.all("parameter"):
        key = parameter.attributes.get("key", "")
        if key.lower() in map(str.lower, found):
            result.problems.append(f"{where}: parameter {key.lower()!r} is given twice")
        found.setdefault(key, parameter.attributes.get("value", ""))
    return found


def _in_lower_case(parameters: dict[str, str]) -> dict[str, str]:
    """As ADIOS2 passes them on: if keys differ only in case, the first in alphabetical order counts."""
    return {key.lower(): parameters[key] for key in sorted(parameters, reverse=True)}


def _engine(element: _Element, io: IO, result: Configuration) -> None:
    engines = element.all("engine")
    if len(engines) > 1:
        result.problems.append(f"IO {io.name!r} has {len(engines)} <engine> elements: ADIOS2 refuses the whole file")
    for engine in engines[:1]:
        io.engine = engine.attributes.get("type", "")
        parameters = _in_lower_case(_parameters(engine, f"line {engine.line}: engine", result))
        io.stats_level = parameters.get("statslevel", "")
        if not io.variables:
            continue
        try:
            check_engine(io.engine or "BP5")
        except UnsupportedError as error:
            result.problems.append(f"line {engine.line}: {error}")
        if real_name(io.engine) == "BP4":
            result.notes.append(
                f"line {engine.line}: {io.engine} ignores memory selections (ghost cells) of variables that have an "
                "operator, and writes wrong cells: a program that calls SetMemorySelection before Put needs BP5 (one "
                "in Fortran, where BP5 writes wrong cells, has to put copies without them)"
            )
            flush = parameters.get("flushstepscount", "1")
            if flush.strip() != "1":
                result.problems.append(
                    f"line {engine.line}: FlushStepsCount is {flush}: of steps that are flushed together, BP4 damages "
                    "all but the last if several ranks write"
                )
            if is_off(parameters.get("collectivemetadata", "on")):
                result.problems.append(
                    f"line {engine.line}: CollectiveMetadata is off: BP4 writes no metadata then, and nothing of the "
                    "file can be read"
                )
        if real_name(io.engine or "BP5") == "BP5" and parameters.get("burstbufferpath"):
            result.problems.append(
                f"line {engine.line}: BurstBufferPath: if several ranks write, BP5 loses what it copies from there "
                "(BP4 does not)"
            )
        asynchronous = parameters.get("asyncwrite", "sync")
        if (
            real_name(io.engine or "BP5") == "BP5"
            and parameters.get("aggregationtype", "").lower() == "datasizebased"
            and not (is_off(asynchronous) or asynchronous.lower() == "sync")
        ):
            result.problems.append(
                f"line {engine.line}: AggregationType is DataSizeBased, and AsyncWrite {asynchronous}: BP5 writes "
                "ranks' data over each other: leave out one of them"
            )
        if real_name(io.engine) == "SST" and parameters.get("marshalmethod", "").lower() == "ffs":
            result.problems.append(
                f"line {engine.line}: MarshalMethod is {parameters['marshalmethod']}, which ignores operators: SST's "
                "default, BP5, does not"
            )
        if io.stats_level == "0":
            result.notes.append(
                f"line {engine.line}: StatsLevel is 0, which device memory needs: bpls -l will show 0 / 0"
            )
