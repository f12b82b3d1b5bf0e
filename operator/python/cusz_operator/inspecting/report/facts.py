"""What `cusz report` says about a run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cusz_core import tuning

from ...tables.boxes import Box


@dataclasses.dataclass
class StepFacts:
    """A variable at a step.

    Attributes:
        step: its number in the file.
        table: what is known about the blocks, as `ReaderStep.blocks` returns it, and from archives if there is no block
            table; for complex numbers, the tables of both parts, one after the other.
        n_blocks: number of blocks.
        is_placed: whether they lie in a global array.
        raw_bytes, stored_bytes: their sizes; what is not compressed is stored as it is.
        is_compressed: whether blocks are archives.
        bounds: the smallest and the largest bound in force, if the blocks have one.
        relative: the bound relative to every value, if they have one.
        outliers: number of unpredictable values and out-of-range codes; -1: not known.
        value_range: as recorded when it was written.
    """

    step: int
    table: NDArray[Any]
    n_blocks: int
    is_placed: bool
    raw_bytes: int
    stored_bytes: int
    is_compressed: bool
    bounds: tuple[float, float] | None
    outliers: int
    value_range: tuple[float, float] | None
    relative: float | None = None

    @property
    def ratio(self) -> float:
        return self.raw_bytes / self.stored_bytes if self.stored_bytes else 1.0


@dataclasses.dataclass
class StepComparison:
    """A part of a variable (complex numbers have two) at a step, compared with the original.

    Attributes:
        step: its number.
        values: how many values were compared.
        bounded: how many of them have a bound.
        broken: how many break the bound in force.
        differing: how many differ although they are not compressed, and so have no bound.
        unchecked: how many are compressed with bounds that are not known, because blocks overlap.
        max_error: the largest |original - decoded| of finite values that are not fill, as a `Reader` gives them.
        over_bound: the largest error divided by the bound of its block, for values as they are stored (float16 as
            float32); 0 if every value is exact.
        psnr: as `cusz_core.Verification` defines it; NaN for types that the compressor does not take.
        worst: a sentence about the value that breaks the bound most; "" if none does.
        effects: what the bound does to small values; only for the last step, otherwise None.
    """

    step: int
    values: int = 0
    bounded: int = 0
    broken: int = 0
    differing: int = 0
    unchecked: int = 0
    max_error: float = 0.0
    over_bound: float = 0.0
    psnr: float = math.nan
    worst: str = ""
    effects: tuning.Effects | None = None


@dataclasses.dataclass
class View:
    """The values of a part of a variable at a step that are drawn, of both runs.

    Attributes:
        original, decoded: of one to three dimensions, with a limited number of values. Fill values are NaN.
        box: where they lie in the variable.
        is_whole: whether that is the whole variable.
    """

    original: NDArray[Any]
    decoded: NDArray[Any]
    box: Box
    is_whole: bool


@dataclasses.dataclass
class Plane:
    """What is drawn for a part of a variable that is too large to be drawn whole: a plane of a coarser level.

    Attributes:
        name: of the part.
        step: its number.
        decoded, original: float64, of shape (rows, columns); NaN where there is no value, or fill. `original` is
            None if there is none.
        coordinates: indices of the rows and of the columns in the variable.
        cuts: where the other axes are cut.
        level: its number.
        read_bytes: how much of the run's archives was read for it.
        stored_bytes: size of the part at this step, as stored.
    """

    name: str
    step: int
    decoded: NDArray[np.float64]
    original: NDArray[np.float64] | None
    coordinates: tuple[NDArray[np.int64], NDArray[np.int64]]
    cuts: tuple[int, ...]
    level: int
    read_bytes: int
    stored_bytes: int


@dataclasses.dataclass
class Comparison:
    """A part of a variable, compared with the original.

    Attributes:
        name: of the part: the variable, or for complex numbers `NAME/real` or `NAME/imag`.
        steps: those that both runs have.
        histogram: of errors divided by the bound at the last step, in bins from -1 to 1; None if there is no
            bound above 0.
        view: of the last step; None if the part is not compressed with a bound above 0.
        plane: drawn instead of slices of `view` if the last three axes are too large for it, and level 1 is a grid.
    """

    name: str
    steps: list[StepComparison]
    histogram: NDArray[np.int64] | None = None
    view: View | None = None
    plane: Plane | None = None


@dataclasses.dataclass
class VariableFacts:
    """A variable.

    Attributes:
        name: of the variable.
        type: ADIOS2's name of its type, or what a Writer was given.
        shape: at the last step, in words.
        steps: those that have it.
        comparisons: with the original, of each part; empty if there is none.
        planes: of each part, if there is no original and the variable is large.
    """

    name: str
    type: str
    shape: str
    steps: list[StepFacts]
    comparisons: list[Comparison] = dataclasses.field(default_factory=list)
    planes: list[Plane] = dataclasses.field(default_factory=list)

    @property
    def is_compressed(self) -> bool:
        return any(step.is_compressed for step in self.steps)

    @property
    def raw_bytes(self) -> int:
        return sum(step.raw_bytes for step in self.steps)

    @property
    def stored_bytes(self) -> int:
        return sum(step.stored_bytes for step in self.steps)

    @property
    def outliers(self) -> int:
        return -1 if any(step.outliers < 0 for step in self.steps) else sum(step.outliers for step in self.steps)

    @property
    def bounds(self) -> tuple[float, float] | None:
        found = [step.bounds for step in self.steps if step.bounds is not None]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None


@dataclasses.dataclass
class Page:
    """All that the page says.

    Attributes:
        path, original: of the files.
        engine: "BP5" or "BP4".
        n_steps: of the file.
        n_ranks: that wrote it; 0: not known.
        disk_bytes: of all files in its folder.
        written: the time of the newest of these, seconds since 1970.
        variables: what the file holds.
        broken: sentences about bounds that are broken.
        notes: what else is worth knowing, such as what one of the files lacks.
    """

    path: str
    original: str | None
    engine: str
    n_steps: int
    n_ranks: int
    disk_bytes: int
    written: float
    variables: list[VariableFacts]
    broken: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    @property
    def kept(self) -> str:
        """A sentence about bounds that are kept; "" if one is broken, or none was compared with an original."""
        parts = [part for variable in self.variables if variable.is_compressed for part in variable.comparisons]
        n_values = sum(step.bounded for part in parts for step in part.steps)
        if self.broken or not n_values:
            return ""
        counted = f"{len(parts)} compressed variable{'' if len(parts) == 1 else 's'}"
        others = [variable.name for variable in self.variables if variable.is_compressed and not variable.comparisons]
        not_compared = f" Not compared: {', '.join(others)}." if others else ""
        kept = f"Every one of the {n_values} values that have a bound, of {counted}, is within the bound in force."
        return kept + not_compared
