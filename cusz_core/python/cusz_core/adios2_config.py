"""Configuration files that switch the operator on in a program that reads an ADIOS2 config file."""

from __future__ import annotations

import dataclasses
from xml.sax.saxutils import quoteattr

__all__ = ["OperatedVariable", "xml", "yaml"]

PLUGIN_NAME = "cusz"
PLUGIN_LIBRARY = "cusz_operator"

Value = str | int | float


@dataclasses.dataclass(frozen=True)
class OperatedVariable:
    """An ADIOS2 variable and the operator's parameters for it."""

    name: str
    parameters: dict[str, Value]

    def operator(self) -> dict[str, str]:
        """The operator's keys and values, as ADIOS2 reads them."""
        values = {key: repr(v) if isinstance(v, float) else str(v) for key, v in self.parameters.items()}
        return {"PluginName": PLUGIN_NAME, "PluginLibrary": PLUGIN_LIBRARY, **values}


def xml(io: str, engine: str, variables: list[OperatedVariable], comment: str = "") -> str:
    """An ADIOS2 XML file. `io` is the name that the program passes to DeclareIO."""
    lines = ['<?xml version="1.0"?>']
    lines += [f"<!-- {comment.replace('--', '- -')} -->"] if comment else []
    lines += [
        "<adios-config>",
        f"  <io name={quoteattr(io)}>",
        f"    <engine type={quoteattr(engine)}>",
        '      <parameter key="StatsLevel" value="0"/>',
        "    </engine>",
    ]
    for variable in variables:
        lines += [f"    <variable name={quoteattr(variable.name)}>", '      <operation type="plugin">']
        for key, value in variable.operator().items():
            lines.append(f"        <parameter key={quoteattr(key)} value={quoteattr(value)}/>")
        lines += ["      </operation>", "    </variable>"]
    lines += ["  </io>", "</adios-config>"]
    return "\n".join(lines) + "\n"


def yaml(io: str, engine: str, variables: list[OperatedVariable], comment: str = "") -> str:
    """The same as a YAML file."""
    lines = [f"# {comment}"] if comment else []
    lines += [
        "---",
        f"- IO: {_quoted(io)}",
        "  Engine:",
        f"    Type: {_quoted(engine)}",
        "    StatsLevel: 0",
        "  Variables:",
    ]
    for variable in variables:
        lines += [f"    - Variable: {_quoted(variable.name)}", "      Operations:", "        - Type: plugin"]
        lines += [f"          {key}: {_quoted(value)}" for key, value in variable.operator().items()]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A double-quoted YAML scalar."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
