"""Which tests run when: the quick ones, and the parts and slices of the others (docs/design/testing.md).

Every test that is not quick belongs to one part of parts.toml, whose paths say which changes concern it, and to one of
eight slices. A run of continuous integration takes the quick tests, the parts that the change touches (half of their
tests if there are many parts), and one slice of the rest, so that eight runs take everything.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "parts.toml"
SLICES = 8
MANY_PARTS = 5  # a change that touches this many runs half of their full tests


@dataclass(frozen=True)
class Part:
    """Full tests that concern the same code.

    Attributes:
        name: name of the part.
        paths: files and folders whose changes concern the part; those that begin with ! are exceptions.
        tests: files and folders of tests.
        together: files and folders of tests that share something expensive, so each of them is in one slice.
        commands: checks that are not pytest tests, by name.
        turns: a change runs one in `turns` of the slowest items (commands and entries of `together`), by the slice.
    """

    name: str
    paths: tuple[str, ...]
    tests: tuple[str, ...]
    together: tuple[str, ...]
    commands: Mapping[str, str]
    turns: int

    def is_touched_by(self, path: str) -> bool:
        if any(is_within(path, own[1:]) for own in self.paths if own.startswith("!")):
            return False
        return any(is_within(path, own) for own in (*self.paths, *self.tests))

    def has_turn(self, number: int, name: str) -> bool:
        """Whether a change runs this command, or entry of `together`, with slice `number`."""
        return ([*self.commands, *self.together].index(name) - number) % self.turns == 0

    def runs(self, number: int, file: str) -> bool:
        """Whether a change runs the full tests of a file with slice `number`."""
        return all(self.has_turn(number, own) for own in self.together if is_within(file, own))


def is_within(path: str, own: str) -> bool:
    return path == own or path.startswith(own + "/")


def read_table(table: Path = TABLE) -> dict[str, Part]:
    import tomllib  # Python 3.11 and later

    parts: dict[str, dict[str, Any]] = tomllib.loads(table.read_text(encoding="utf-8"))

    def made(name: str, part: dict[str, Any]) -> Part:
        paths, tests, together = (tuple(part.get(key, ())) for key in ("paths", "tests", "together"))
        return Part(name, paths, tests, together, part.get("commands", {}), part.get("turns", 1))

    return {name: made(name, part) for name, part in parts.items()}


def part_of(file: str, parts: Iterable[Part]) -> str:
    """The part that a test file belongs to: the one that names it most precisely. Raises ValueError if none does."""
    found = [(len(own), part.name) for part in parts for own in part.tests if is_within(file, own)]
    if not found:
        raise ValueError(f"{file} belongs to no part of {TABLE.relative_to(ROOT)}")
    return max(found)[1]


def touched(changed: Iterable[str], parts: Mapping[str, Part]) -> list[str]:
    """The parts that changed files concern, in the order of the table."""
    paths = list(changed)
    return [name for name, part in parts.items() if any(map(part.is_touched_by, paths))]


def slice_of_test(nodeid: str, parts: Mapping[str, Part]) -> int:
    """The slice of a test; the same on every machine."""
    together = [own for part in parts.values() for own in part.together if is_within(nodeid.partition("::")[0], own)]
    return zlib.crc32(max(together, key=len, default=nodeid).encode()) % SLICES


def is_in_half(nodeid: str, number: int, parts: Mapping[str, Part]) -> bool:
    """Whether a change that touches many parts runs this full test of one of them with slice `number`."""
    return (slice_of_test(nodeid, parts) - number) % 2 == 0


def slice_of_command(name: str, parts: Mapping[str, Part]) -> int:
    """The slice of a command. Commands are dealt out one by one, because they take longest."""
    return [name for part in parts.values() for name in part.commands].index(name) % SLICES


def commands_of(number: int, touched: Iterable[str], parts: Mapping[str, Part]) -> dict[str, str]:
    """The commands of a slice, and those of the touched parts whose turn it is."""
    names = {name for part in touched for name in parts[part].commands if parts[part].has_turn(number, name)}
    return {
        name: command
        for part in parts.values()
        for name, command in part.commands.items()
        if name in names or slice_of_command(name, parts) == number
    }


def cover(sets: Sequence[frozenset[Hashable]]) -> list[int]:
    """Indices of a few sets that together have all elements. Greedy: the next set is always the one that adds most.

    The gain of a set only shrinks, so in a heap of earlier gains only few sets have to be looked at again.
    """
    missing = frozenset[Hashable]().union(*sets)
    by_gain = [(-len(own), i) for i, own in enumerate(sets)]
    heapq.heapify(by_gain)
    chosen = []
    while missing:
        _, i = heapq.heappop(by_gain)
        gain = -len(sets[i] & missing)
        if by_gain and (gain, i) > by_gain[0]:
            heapq.heappush(by_gain, (gain, i))
            continue
        chosen.append(i)
        missing -= sets[i]
    return chosen


def spread(items: Sequence[int], n: int) -> list[int]:
    """n of the items, evenly spaced from the first on; all of them if there are at most n."""
    return [items[i * len(items) // n] for i in range(n)] if n < len(items) else list(items)


def covering(cases: Sequence[Mapping[str, Any]]) -> set[int]:
    """Indices of cases that together have every value of each parameter; the same ones for the same cases."""

    def key(name: str, value: Any) -> Hashable:
        try:
            hash(value)
        except (TypeError, ValueError):
            return name, id(value)
        return name, type(value), value

    return set(cover([frozenset(key(*parameter) for parameter in case.items()) for case in cases]))
