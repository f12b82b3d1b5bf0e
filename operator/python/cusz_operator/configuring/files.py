"""Configuration files that switch the operator on in a program that reads an ADIOS2 config file."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Mapping

from cusz_core.errors import ParameterError, UnsupportedError

from ..plugin import PLUGIN_LIBRARY, PLUGIN_NAME

Value = str | int | float

#: Engines that can write with the operator, and ADIOS2's aliases for them (case does not matter).
ENGINES = ("BP5", "BP4", "SST")
ALIASES = {
    "BPFile": "BP5",
    "BP": "BP5",
    "File": "BP5",
    "FileStream": "BP4",  # after 2.12 BP5
    "InSituVisualization": "SST",
    "InSituViz": "SST",
    "InSituAnalysis": "SST",
    "CodeCoupling": "SST",
}
_REFUSED = {
    "hdf5": "ADIOS2's HDF5 refuses operators",
    "inline": "it ignores operators",
    "dataman": "it reserves too little memory for blocks that do not compress",
    "bp3": "ADIOS2 keeps it for old files, and nothing is tested with it",
    "ssc": "ADIOS2 2.12 no longer has it, and nothing is tested with it",
}


@dataclasses.dataclass(frozen=True)
class OperatedVariable:
    """An ADIOS2 variable and the operator's parameters for it; `comment` is one line."""

    name: str
    parameters: Mapping[str, Value]
    comment: str = ""

    def operator(self) -> dict[str, str]:
        """The operator's keys and values, as ADIOS2 reads them."""
        values = {key: repr(v) if isinstance(v, float) else str(v) for key, v in self.parameters.items()}
        return {"PluginName": PLUGIN_NAME, "PluginLibrary": PLUGIN_LIBRARY, **values}


def real_name(engine: str) -> str:
    """The engine that a name stands for, in any case; "" if it is not one that works with the operator."""
    names = {**{own: own for own in ENGINES}, **ALIASES}
    return next((own for name, own in names.items() if name.lower() == engine.lower()), "")


def check_engine(engine: str) -> None:
    """
    Raises:
        UnsupportedError: the engine does not work with the operator.
    """
    if real_name(engine):
        return
    reason = _REFUSED.get(engine.lower(), "it is not known to")
    raise UnsupportedError(
        f"the engine {engine!r} does not work with the operator: {reason}. Use one of {', '.join(ENGINES)} "
        f"(or one of their aliases {', '.join(ALIASES)})"
    )


_NO_STATISTICS = "ADIOS2 does not read the data put, which may be device memory; bpls shows 0 for minimum and maximum"


def xml(io: str, engine: str, variables: list[OperatedVariable], comment: str = "", *, statistics: bool = True) -> str:
    """An ADIOS2 XML file.

    Args:
        io: the name that the program passes to DeclareIO.
        engine: in any case.
        variables: to be compressed.
        comment: for the top of the file.
        statistics: False: ADIOS2 does not compute minimum and maximum of blocks. It must not if a program puts device
            memory, and in BP5 and SST computing them takes nearly as long as compressing.

    Raises:
        UnsupportedError: the engine does not work with the operator.
        ParameterError: a name has characters that a configuration file cannot hold, such as line breaks.
    """
    from xml.sax.saxutils import quoteattr  # here: it imports urllib and ssl, which takes longer than this package

    check_engine(engine)
    _require_writable(io, variables)
    lines = ['<?xml version="1.0"?>']
    lines += _xml_comment(comment)
    lines += ["<adios-config>", f"  <io name={quoteattr(io)}>"]
    if not statistics:
        lines += [
            f"    <engine type={quoteattr(engine)}>",
            f"      <!-- {_NO_STATISTICS} -->",
            '      <parameter key="StatsLevel" value="0"/>',
            "    </engine>",
        ]
    else:
        lines.append(f"    <engine type={quoteattr(engine)}/>")
    for variable in variables:
        lines += [f"    {line}" for line in _xml_comment(variable.comment)]
        lines += [f"    <variable name={quoteattr(variable.name)}>", '      <operation type="plugin">']
        for key, value in variable.operator().items():
            lines.append(f"        <parameter key={quoteattr(key)} value={quoteattr(value)}/>")
        lines += ["      </operation>", "    </variable>"]
    lines += ["  </io>", "</adios-config>"]
    return "\n".join(lines) + "\n"


def yaml(io: str, engine: str, variables: list[OperatedVariable], comment: str = "", *, statistics: bool = True) -> str:
    """The same configuration as a YAML file."""
    check_engine(engine)
    _require_writable(io, variables)
    lines = [f"# {_on_one_line(comment)}"] if comment else []
    lines += ["---", f"- IO: {_quoted(io)}", "  Engine:", f"    Type: {_quoted(engine)}"]
    lines += [f"    # {_NO_STATISTICS}", "    StatsLevel: 0"] if not statistics else []
    lines.append("  Variables:")
    for variable in variables:
        lines += [f"    # {_on_one_line(variable.comment)}"] if variable.comment else []
        lines += [f"    - Variable: {_quoted(variable.name)}", "      Operations:", "        - Type: plugin"]
        lines += [f"          {key}: {_quoted(value)}" for key, value in variable.operator().items()]
    return "\n".join(lines) + "\n"


def _xml_comment(text: str) -> list[str]:
    return [f"<!-- {re.sub('-(?=-)', '- ', _on_one_line(text))} -->"] if text else []


def _on_one_line(comment: str) -> str:
    """A comment with "?" for line breaks and other characters that XML or YAML does not allow."""
    return "".join(character if _is_writable(character) else "?" for character in comment)


def _require_writable(io: str, variables: list[OperatedVariable]) -> None:
    for what, name in (("io", io), *(("the name of a variable", variable.name) for variable in variables)):
        if not all(map(_is_writable, name)):
            raise ParameterError(f"{what} is {name!r}: XML and YAML have no such characters")


def _is_writable(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cs", "Cn", "Zl", "Zp")


def _quoted(text: str) -> str:
    """A double-quoted YAML scalar."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
