"""Names of variables: patterns that stand for several names, and short forms of many similar names.

A pattern stands for the variable of exactly that name, if there is one. Otherwise braces stand for each item listed in
them, as in level{0..4}/{rho,u}, and * ? [...] for characters, as in file names.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from cusz_core.errors import ParameterError

_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|[^{}]*,[^{}]*)\}")
_MAX_MEANT = 1000  # numbers in one range
_MAX_NAMES = 50  # in an error message
_NUMBER = re.compile(r"\d+")
#: Attributes of a variable that name its dimensions, slowest first; the first is what `Writer.put(dims=)` writes.
OF_DIMENSIONS = ("dimensions", "_ARRAY_DIMENSIONS")
_OPENPMD_NAMES = "axisLabels"
_MAX_LISTED = 4  # numbers with gaps between them; if there are more, only the first and the last are shown


@functools.lru_cache(maxsize=10_000)
def meant(pattern: str) -> tuple[str, ...]:
    """The patterns without braces that one with braces stands for.

    Raises:
        ParameterError: a range of numbers is descending, or has too many of them.
    """
    found = _BRACES.search(pattern)
    if found is None:
        return (pattern,)
    words = found[0][1:-1].split(",")
    if found[1] is not None:
        first, last = int(found[1]), int(found[2])
        if last - first not in range(_MAX_MEANT):
            raise ParameterError(f"{found[0]} must be of ascending numbers, at most {_MAX_MEANT} of them")
        words = [str(number).zfill(len(found[1])) for number in range(first, last + 1)]
    return tuple(name for word in words for name in meant(pattern.replace(found[0], word, 1)))


def has_wildcard(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def fits(name: str, pattern: str) -> bool:
    """Whether a pattern stands for a name, provided that it is not itself the name of another variable."""
    return name == pattern or any(fnmatch.fnmatchcase(name, one) for one in meant(pattern))


def standing_for(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern stands for, in their order."""
    names = list(names)
    return [pattern] if pattern in names else [name for name in names if fits(name, pattern)]


def deciding(name: str, patterns: Collection[str], names: Collection[str]) -> str | None:
    """The pattern that decides about a name if several stand for it: the name itself, or the first that stands for it;
    None if none does.

    Args:
        names: all known names. A pattern that is one of them stands for no other name.
    """
    if name in patterns:
        return name
    return next((pattern for pattern in patterns if pattern not in names and fits(name, pattern)), None)


def chosen(patterns: Iterable[str] | None, names: Iterable[str], where: str) -> list[str]:
    """The names that at least one pattern stands for, in their order; without patterns, all names.

    Args:
        where: what has these names, for the message of an error.

    Raises:
        ParameterError: a pattern stands for no name.
    """
    names = list(names)
    if patterns is None:
        return names
    found = set[str]()
    for pattern in patterns:
        own = standing_for(pattern, names)
        if not own:
            there = f"there are {listed(names)}" if names else "there are none"
            raise ParameterError(f"no variable {pattern!r} in {where}{like(pattern, names)}: {there}")
        found.update(own)
    return [name for name in names if name in found]


def listed(names: Sequence[str]) -> str:
    """The names as a phrase; if there are many, the first ones."""
    rest = len(names) - _MAX_NAMES
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:_MAX_NAMES])} and {rest} more"


def like(name: str, names: Iterable[str]) -> str:
    """A hint at similar names."""
    import difflib  # here, because every rank of a simulation imports this module

    by_folded = {other.casefold().strip(): other for other in names}
    near = difflib.get_close_matches(name.casefold().strip(), by_folded, n=3)
    return f" (there is {', '.join(repr(by_folded[folded]) for folded in near)})" if near else ""


def dimensions_of(name: str, ndim: int, attributes: Mapping[str, Any]) -> list[str] | None:
    """The names of a variable's dimensions by its attributes, or by those of the openPMD record that it belongs to.

    Args:
        attributes: those of the file.
    """
    record = name.rpartition("/")[0]
    for key in (
        *(f"{name}/{which}" for which in (*OF_DIMENSIONS, _OPENPMD_NAMES)),
        f"{record}/{_OPENPMD_NAMES}",
    ):
        value = attributes.get(key)
        names = re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else value
        if isinstance(names, list) and len(names) == len(set(names)) == ndim:
            return [str(each) for each in names]
    return None


def numbered(text: str) -> str:
    """A text with "#" for every number, so that the names of levels, species or components become the same."""
    return _NUMBER.sub("#", text)


def in_short(texts: Iterable[str]) -> list[str]:
    """The texts, with those that differ only in numbers merged: level{0..4}/rho. (If a text has several numbers, not
    every combination need exist.)"""
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(numbered(text), []).append(text)
    return [together(group) for group in groups.values()]


def together(texts: Sequence[str]) -> str:
    """One text for several that differ only in numbers: level{0..4}/rho."""
    words = _NUMBER.split(texts[0])
    columns = zip(*(_NUMBER.findall(text) for text in texts), strict=True)
    return "".join(word + numbers for word, numbers in zip(words, [*map(_in_braces, columns), ""], strict=True))


def _in_braces(numbers: Sequence[str]) -> str:
    found = sorted(set(numbers), key=lambda text: (int(text), text))
    if len(found) == 1:
        return found[0]
    is_gapless = int(found[-1]) - int(found[0]) == len(found) - 1
    if is_gapless or len(found) > _MAX_LISTED:
        return f"{{{found[0]}..{found[-1]}}}"
    return f"{{{','.join(found)}}}"
