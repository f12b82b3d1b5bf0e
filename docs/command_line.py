"""The command `cusz` as Markdown, from its parser: a section for each command, with its usage and options."""

from __future__ import annotations

import argparse
from collections.abc import Iterator


def markdown(parser: argparse.ArgumentParser, level: int) -> str:
    """The sections of all commands, with headings of a level; a reader needs no other page to call them."""
    return "\n\n".join(part for name, sub in commands(parser).items() for part in _section(parser, name, sub, level))


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of its commands by their names."""
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def _section(parser: argparse.ArgumentParser, name: str, sub: argparse.ArgumentParser, level: int) -> Iterator[str]:
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    (short,) = (choice.help or "" for choice in found._choices_actions if choice.dest == name)
    text = " ".join((sub.description or short).split())
    yield f"{'#' * level} {sub.prog}"
    yield f"{text[:1].upper()}{text[1:].rstrip('.')}."
    yield f"```text\n{' '.join(sub.format_usage().removeprefix('usage: ').split())}\n```"
    for group in sub._action_groups:
        shown = (action for action in group._group_actions if action.help != argparse.SUPPRESS)
        actions = [action for action in shown if not isinstance(action, argparse._HelpAction)]
        if actions and group.title and group.title not in ("positional arguments", "options"):
            yield f"{group.title[:1].upper()}{group.title[1:]}:"
        if actions:
            yield "\n".join(f"- {_invocation(sub, action)}: {_help(sub, action)}" for action in actions)


def _invocation(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """As in --help, such as `-o OUTPUT`, `--output OUTPUT`."""
    formatter = parser._get_formatter()
    if not action.option_strings:
        return f"`{formatter._format_action_invocation(action)}`"
    values = "" if action.nargs == 0 else f" {formatter._format_args(action, (action.dest or '').upper())}"
    return ", ".join(f"`{option}{values}`" for option in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    if not action.help:
        return "a path"
    return parser._get_formatter()._expand_help(action).replace("*", "\\*").replace("<", "\\<")
