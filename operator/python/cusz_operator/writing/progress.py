"""A Writer's progress report: sizes and times."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence

from .together import Totals


@dataclasses.dataclass(frozen=True)
class VariableSummary:
    """Totals of what was written of a variable.

    Attributes:
        name: of the variable.
        steps, blocks: how many were written.
        raw_bytes, archive_bytes: before and after compression.
        seconds: spent compressing, summed over ranks.
        share: time spent compressing this variable, as a fraction of the time that ranks spent ending steps (finding
            ranges, compressing, writing, waiting for each other); with `overlap` it may be more than 1.
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
    """Sums up what is written, by variable."""

    def __init__(self) -> None:
        self._written: dict[str, VariableSummary] = {}

    def add(self, step: Mapping[str, Totals]) -> None:
        """Adds a step that was written."""
        for name, own in step.items():
            before = self._written.get(name, VariableSummary(name, 0, 0, 0, 0, 0.0, 0.0))
            self._written[name] = VariableSummary(
                name,
                before.steps + 1,
                before.blocks + own.blocks,
                before.raw_bytes + own.raw_bytes,
                before.archive_bytes + own.archive_bytes,
                before.seconds + own.seconds,
                0.0,
            )

    def summaries(self, seconds: float) -> list[VariableSummary]:
        """The totals of every variable; `seconds` is the time that all ranks together spent ending steps."""
        return [
            dataclasses.replace(total, share=total.seconds / seconds if seconds else 0.0)
            for total in self._written.values()
        ]


def print_step(path: str, number: int, step: Mapping[str, Totals], seconds: tuple[float, float, float]) -> None:
    """Prints a line for a step.

    Args:
        step: what was written.
        seconds: how long the program waited until bounds were agreed on, then until the step was compressed, and then
            until it was written.
    """
    names, blocks = len(step), sum(own.blocks for own in step.values())
    raw = sum(own.raw_bytes for own in step.values())
    archives = sum(own.archive_bytes for own in step.values())
    agreeing, compressing, writing = seconds
    print(
        f"{path}: step {number}: variables {names}, blocks {blocks}, {raw / 1e6:.1f} MB -> "
        f"{archives / 1e6:.1f} MB ({raw / archives if archives else 1:.2f}x), {sum(seconds):.3f} s: range "
        f"{agreeing:.3f}, compress {compressing:.3f}, write {writing:.3f}",
        file=sys.stderr,
        flush=True,
    )


def print_summary(path: str, steps: int, seconds: float, variables: Sequence[VariableSummary]) -> None:
    """Prints a summary of a closed file: all steps, and every variable."""
    print(f"{path}: {steps} steps written, in {seconds:.3f} s", file=sys.stderr)
    for each in variables:
        print(
            f"  {each.name}: {each.raw_bytes / 1e6:.1f} MB -> {each.archive_bytes / 1e6:.1f} MB ({each.ratio:.2f}x), "
            f"compressed at {each.gbps:.2f} GB/s per rank, {each.share:.0%} of the time",
            file=sys.stderr,
        )
