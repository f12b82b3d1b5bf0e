"""What a Writer tells of its work: sizes and times."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tally", "VariableSummary", "print_step", "print_summary"]


@dataclasses.dataclass(frozen=True)
class VariableSummary:
    """What was written of a variable.

    Attributes:
        name: of the variable.
        steps, blocks: how many were written.
        raw_bytes, archive_bytes: before and after compression.
        seconds: spent compressing, summed up over ranks.
        share: of the time that ranks spent at the ends of steps (finding ranges, compressing, writing, waiting for each
            other), the part that compressing this variable took.
    """

    name: str
    steps: int
    blocks: int
    raw_bytes: int
    archive_bytes: int
    seconds: float
    share: float

    @property
    def gbps(self) -> float:
        """Raw GB (10^9 bytes) compressed per second, by one rank."""
        return self.raw_bytes / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def ratio(self) -> float:
        """Compression ratio: raw bytes over archive bytes."""
        return self.raw_bytes / self.archive_bytes if self.archive_bytes else 1.0


class Tally:
    """Adds up what is written, by variable."""

    def __init__(self) -> None:
        self._written: dict[str, VariableSummary] = {}

    def add(self, tables: Mapping[str, NDArray[Any]]) -> None:
        """Counts a step that is written, by the block tables of its variables."""
        for name, table in tables.items():
            before = self._written.get(name, VariableSummary(name, 0, 0, 0, 0, 0.0, 0.0))
            self._written[name] = VariableSummary(
                name,
                before.steps + 1,
                before.blocks + len(table),
                before.raw_bytes + int(table["raw_bytes"].sum()),
                before.archive_bytes + int(table["archive_bytes"].sum()),
                before.seconds + float(table["seconds"].sum()),
                0.0,
            )

    def summaries(self, seconds: float) -> list[VariableSummary]:
        """What was written of every variable; `seconds` is what all ranks together spent at the ends of steps."""
        return [
            dataclasses.replace(own, share=own.seconds / seconds if seconds else 0.0) for own in self._written.values()
        ]


def print_step(path: str, number: int, tables: Sequence[Mapping[str, NDArray[Any]]], clock: Sequence[float]) -> None:
    """A line for a step, from the block tables of all ranks, and when it began and its three parts ended."""
    parts = [table for own in tables for table in own.values()]
    raw, archives = (sum(int(table[size].sum()) for table in parts) for size in ("raw_bytes", "archive_bytes"))
    names, blocks = len({name for own in tables for name in own}), sum(len(table) for table in parts)
    agreeing, compressing, writing = np.diff(clock)
    print(
        f"{path}: step {number}: variables {names}, blocks {blocks}, {raw / 1e6:.1f} MB -> "
        f"{archives / 1e6:.1f} MB ({raw / archives if archives else 1:.2f}x), {clock[-1] - clock[0]:.3f} s: range "
        f"{agreeing:.3f}, compress {compressing:.3f}, write {writing:.3f}",
        file=sys.stderr,
        flush=True,
    )


def print_summary(path: str, steps: int, seconds: float, variables: Sequence[VariableSummary]) -> None:
    """Lines for a file that is closed: all steps, and every variable."""
    print(f"{path}: {steps} steps written, {seconds:.3f} s at their ends", file=sys.stderr)
    for own in variables:
        print(
            f"  {own.name}: {own.raw_bytes / 1e6:.1f} MB -> {own.archive_bytes / 1e6:.1f} MB ({own.ratio:.2f}x), "
            f"compressed at {own.gbps:.2f} GB/s a rank, {own.share:.0%} of the time",
            file=sys.stderr,
        )
