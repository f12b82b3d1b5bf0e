"""What is in a BP file: every variable, over all of its steps and blocks."""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from numpy.typing import NDArray

from cusz_core.errors import CorruptArchiveError

from ..plugin import PLUGIN_NAME
from ..tables.checks import VariableRecord
from ..tables.stored import DTYPES, INTEGERS, PACKED_HEAD_BYTES, RAW_OVERHEAD_BYTES
from .blocks import Block, OpenFile


@dataclasses.dataclass(frozen=True)
class Asked:
    """A bound as it was asked for: absolute (mode "abs"), or a fraction of the value range ("rel") or of every value
    ("pw_rel"). Or another goal that a Writer was given: mode "psnr", "ratio" or "budget_bytes", with its value as `eb`.
    """

    mode: str
    eb: float


@dataclasses.dataclass(frozen=True)
class BlockError:
    """Why a block cannot be read; if `block` is None, why the block table of the variable at that step cannot."""

    step: int
    block: int | None
    error: str


@dataclasses.dataclass(frozen=True)
class VariableInfo:
    """A variable of a file, over the steps that were looked at.

    Attributes:
        name: of the variable.
        type: ADIOS2's name for its type, such as "float".
        steps: numbers of the steps that have it.
        blocks: number of blocks, over these steps.
        covered: the share of the global shapes that blocks cover; None: it has no global shape. (1 if blocks overlap
            and have more values than the shapes.)
        raw_bytes: size of all blocks before compression (in float16, if a Writer was given that, though it stores
            float); None for types without a fixed size.
        archive_raw_bytes, archive_bytes: size of the blocks that this operator stores, before compression and as
            stored; None if there are none.
        asked: the bounds asked for, in the order of steps, each once. None is among them if the bound of some blocks is
            not known: the program that wrote them has not recorded it, or they are all stored raw.
        eb_abs_min, eb_abs_max: the smallest and the largest absolute bound in force for a block that is not exact; None
            if there is no such block, or bounds are relative to every value.
        outliers: number of unpredictable values and out-of-range codes.
        predictors: number of blocks coded with each predictor; "unknown" if it is not recorded.
        packed: number of blocks of integers that are stored exactly in fewer bytes.
        raw: number of blocks stored raw, which are exact: too small, incompressible within the bound, or with bound 0.
        plain: number of blocks stored uncompressed because the plugin failed.
        lost: number of blocks whose values are lost: their memory could not be read when they were written.
        others: number of blocks that this operator did not store.
        empty: number of blocks without values.
        errors: blocks that cannot be read, and lost ones. Where block tables are read, archives are not examined.
    """

    name: str
    type: str
    steps: tuple[int, ...]
    blocks: int
    covered: float | None
    raw_bytes: int | None
    archive_raw_bytes: int | None
    archive_bytes: int | None
    asked: tuple[Asked | None, ...]
    eb_abs_min: float | None
    eb_abs_max: float | None
    outliers: int
    predictors: dict[str, int]
    packed: int
    raw: int
    plain: int
    lost: int
    others: int
    empty: int
    errors: tuple[BlockError, ...]

    @property
    def ratio(self) -> float | None:
        """Compression ratio: raw bytes over archive bytes; None if this operator stores no block."""
        return self.archive_raw_bytes / self.archive_bytes if self.archive_raw_bytes and self.archive_bytes else None

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain values that JSON can hold."""
        return {**dataclasses.asdict(self), "ratio": self.ratio}


def inspect_variables(
    path: str | os.PathLike[str],
    *,
    variables: Collection[str] | None = None,
    steps: Collection[int] | None = None,
    check: bool = False,
    progress: Callable[[float], object] | None = None,
) -> list[VariableInfo]:
    """Every variable in a BP file (BP5 or BP4), by name.

    If a Writer wrote the file, only block tables are read, which takes little time whatever its size; for other
    variables of types that the operator takes, all archives are fetched. Nothing is decoded.

    Args:
        path, variables, steps, progress: as for `inspect_bp`.
        check: fetches all archives, and verifies their checksums.

    Raises:
        As `inspect_bp`.
    """
    file = OpenFile(path, check=check)
    tallies: dict[str, _Tally] = {}
    for part in file.parts(*file.selected(variables, steps), progress):
        tally = tallies.setdefault(part.name, _Tally(part.name, part.type, part.widening))
        table: NDArray[Any] | None = None
        is_of_writer = True
        try:
            table = part.table()
            is_of_writer = table is not None
        except CorruptArchiveError as error:
            tally.errors.append(BlockError(part.step, None, str(error)))
        if table is not None and not check:
            tally.add_table(part.step, table, part.record)
            part.report(1.0)
        else:
            for block in part.blocks():
                tally.add_block(block, is_of_writer)
        tally.add_shape(part.shape)
    return [tally.info() for _, tally in sorted(tallies.items())]


class _Tally:
    """Sums up the blocks of a variable."""

    def __init__(self, name: str, kind: str, widening: int) -> None:
        self.errors: list[BlockError] = []
        self._name, self._type, self._widening = name, kind, widening
        dtype = DTYPES.get(kind)
        self._value_bytes = 0 if dtype is None or dtype.hasobject else dtype.itemsize  # 0: no fixed size
        self._steps: dict[int, None] = {}
        self._counts: Counter[str] = Counter()  # of blocks: all, and by what became of them
        self._shapes: Counter[str] = Counter()  # values in global shapes, and steps without one
        self._values = self._values_before = 0  # in blocks, of all steps and of those before the last
        self._bytes: Counter[str] = Counter()  # of all blocks; of those with an archive, before and after
        self._asked: dict[Asked | None, None] = {}
        self._bounds = (math.inf, -math.inf)
        self._outliers = 0
        self._predictors: Counter[str] = Counter()

    def add_table(self, step: int, table: NDArray[Any], record: VariableRecord | None) -> None:
        """Adds the blocks of a step, from the block table."""
        self._steps[step] = None
        filled = table[table["raw_bytes"] > 0]
        more_bytes = filled["archive_bytes"] - filled["raw_bytes"]
        self._counts.update(blocks=len(table), empty=len(table) - len(filled))
        self._values += int(filled["count"].prod(axis=1).sum())
        self._bytes["all"] += int(filled["raw_bytes"].sum())
        if self._type in INTEGERS:
            is_plain = more_bytes == 0
            is_raw = more_bytes == PACKED_HEAD_BYTES
            self._counts.update(others=int(is_plain.sum()), packed=int((~is_plain & ~is_raw).sum()))
            ours, coded = filled[~is_plain], filled[:0]
        else:
            is_raw = more_bytes == RAW_OVERHEAD_BYTES
            ours, coded = filled, filled[~is_raw]
        self._counts["raw"] += int(is_raw.sum())
        self._bytes.update(before=int(ours["raw_bytes"].sum()), after=int(ours["archive_bytes"].sum()))
        self._outliers += int(coded["outliers"].sum())
        if len(coded):
            self._add_bounds(float(coded["eb_abs"].min()), float(coded["eb_abs"].max()))
        if record is not None and self._type not in INTEGERS:
            self._asked[Asked(record.mode, record.eb)] = None
            self._predictors.update(record.predictors)
        elif len(coded):
            self._asked[None] = None
            self._predictors["unknown"] += len(coded)

    def add_shape(self, shape: tuple[int, ...]) -> None:
        """Adds the global shape at a step, after the blocks of this step. (If none of them has values, BP4 reports the
        shape of another step.)"""
        if self._values > self._values_before or not shape:
            self._shapes["values" if shape else "without"] += math.prod(shape)
        self._values_before = self._values

    def add_block(self, block: Block, is_of_writer: bool) -> None:
        """Adds a block, from its archive."""
        self._steps[block["step"]] = None
        n_values = math.prod(block["count"])
        self._counts["blocks"] += 1
        self._values += n_values
        self._bytes["all"] += n_values * self._value_bytes
        if "error" in block:
            self.errors.append(BlockError(block["step"], block["block"], block["error"]))
        if "asked_eb" in block and self._type not in INTEGERS:
            self._asked[Asked(block["asked_mode"], block["asked_eb"])] = None
        if n_values == 0:
            self._counts["empty"] += 1
        elif block["operator"] != PLUGIN_NAME:
            self._counts["others"] += "error" not in block
        elif "kind" in block:
            self._bytes["before"] += block["raw_bytes"]
            self._bytes["after"] += block["archive_bytes"]
            self._counts[block["kind"]] += 1
        if "predictor" in block:
            self._outliers += block["out_of_range"] + block["unpredictable"]
            self._predictors[block["predictor"]] += 1
            self._add_bounds(block["eb_abs"], block["eb_abs"])
            if "asked_eb" not in block:
                # A Writer compresses with the absolute bound that follows from what was asked.
                self._asked[None if is_of_writer else Asked(block["mode"], block["eb"])] = None

    def _add_bounds(self, low: float, high: float) -> None:
        if math.isnan(low):  # relative to every value
            return
        self._bounds = min(self._bounds[0], low), max(self._bounds[1], high)

    def info(self) -> VariableInfo:
        has_archives = self._bytes["after"] > 0
        is_bounded = self._bounds[0] <= self._bounds[1]
        covered = min(self._values / self._shapes["values"], 1.0) if self._shapes["values"] else 1.0
        return VariableInfo(
            name=self._name,
            type=self._type,
            steps=tuple(self._steps),
            blocks=self._counts["blocks"],
            covered=None if self._shapes["without"] else covered,
            raw_bytes=self._bytes["all"] // self._widening if self._value_bytes else None,
            archive_raw_bytes=self._bytes["before"] // self._widening if has_archives else None,
            archive_bytes=self._bytes["after"] if has_archives else None,
            asked=tuple(self._asked) or ((None,) if has_archives and self._type not in INTEGERS else ()),
            eb_abs_min=self._bounds[0] if is_bounded else None,
            eb_abs_max=self._bounds[1] if is_bounded else None,
            outliers=self._outliers,
            predictors=dict(self._predictors),
            packed=self._counts["packed"],
            raw=self._counts["raw"],
            plain=self._counts["plain"],
            lost=self._counts["lost"],
            others=self._counts["others"],
            empty=self._counts["empty"],
            errors=tuple(self.errors),
        )
