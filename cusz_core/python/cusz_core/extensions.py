"""Additions by other packages, found through the entry points of installed distributions.

Groups:
    cusz.commands: commands of the command line `cusz`, by name (`cusz_core.command_line`).
    cusz.errors: exception classes, by name (`cusz_core.errors`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def of_group(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name; nothing is imported."""
    from importlib.metadata import entry_points  # takes longer to import than all of this package

    return {entry.name: entry for entry in entry_points(group=group)}


def find(group: str, name: str) -> EntryPoint | None:
    """The entry point of this name, if a package has one."""
    return None if name.startswith("_") else of_group(group).get(name)
