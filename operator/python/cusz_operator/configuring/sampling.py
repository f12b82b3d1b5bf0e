"""Samples of the variables in a BP file, on which bounds are tried before a run is compressed."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding, tuning
from cusz_core.errors import CorruptArchiveError, CuszError, ParameterError
from cusz_core.parameters import Parameters

from ..errors import PluginError
from ..names import chosen, deciding
from ..plugin import Plugin, without_colours
from ..reading.input import Input
from ..tables import blocktable, checks
from ..tables.boxes import field_shape
from ..tables.stored import FLOATS, INTEGERS

if TYPE_CHECKING:
    from typing import Unpack  # of Python 3.11

    from cusz_core.parameters import Options

_STEPS = 3  # steps of a variable that are sampled
_VALUES = 1 << 20  # values of a sample at most, or one box
#: Blocks of up to this many values are sampled whole, because the archive of a small block is unlike a part of a large
#: one: for 16^3 values it has a header and a codebook of its own, and tiles that are not full.
_WHOLE = 1 << 18
_FETCHED = 32 << 20  # bytes that ADIOS2 reads for a sample at most, or one box
_AT_ONCE = 1 << 20  # bytes for one Get: ADIOS2 reads a block from the first to the last value of a selection
SMALL = 4096  # bytes: smaller blocks are not worth a bound
_MOST_RANGES = 1000  # how many ranges of the sample all values may span; beyond it, some are marks, such as 1e20
_WORTH = 1.05  # the ratio above which packing integers is worth it


@dataclasses.dataclass(frozen=True)
class SampledVariable:
    """A variable of a BP file, with values of type float or double, or integers.

    Attributes:
        name: of the variable.
        type: ADIOS2's name of its type.
        shape: of the global array (at the first step, if it changes); () for local arrays.
        steps: number of steps that have it.
        blocks: number of its blocks at one of these steps.
        sample: some of its values, for `tuning.survey` and `tuning.find_bound`: ratios are for a block of mean size;
            for the value range see `has_statistics`. None: there is no sample, or values are integers.
        packed_ratio: for integers, which the operator packs exactly: raw bytes over packed bytes; NaN if not known.
        has_statistics: the value range is that of all steps, from ADIOS2's statistics; otherwise, of the sample.
        is_single: it is a single value at each step.
        chosen_by: the name or pattern asked for that decides about it (`names.deciding`); "" if none was given.
        remark: why it should not be compressed, or why there is no sample; "" if neither applies.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    steps: int
    blocks: int = 0
    sample: tuning.Sample | None = None
    packed_ratio: float = math.nan
    has_statistics: bool = False
    is_single: bool = False
    chosen_by: str = ""
    remark: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether its values are integers, which need no bound."""
        return self.type in INTEGERS


@dataclasses.dataclass(frozen=True)
class _Block:
    """A block of a variable, which begins at `start` in the global array. In a local array it has a number instead, and
    `start` is 0."""

    step: int
    number: int | None
    start: tuple[int, ...]
    count: tuple[int, ...]


def sampled_variables(
    path: str | os.PathLike[str], names: Collection[str] = (), **options: Unpack[Options]
) -> Iterator[SampledVariable]:
    """Takes samples of the variables in a BP file (BP5 or BP4), one variable after the other.

    A sample consists of small blocks, or of boxes from larger ones, at up to three steps: no more than 2^20 values (or
    one box). For boxes ADIOS2 reads no more than 32 MiB (or what one box needs), in pieces of 1 MiB where possible.

    Args:
        path: the .bp folder or file.
        names: names or patterns (`names`) of variables; if empty, all whose values the operator takes.
        options: parameters of the compression: `fill` is not part of the value range, and `predictor` decides how large
            boxes are.

    Raises:
        FileNotFoundError: there is no such file.
        ParameterError: it has no such variable, or one of another type.
        CuszError: ADIOS2 cannot read it, or there is no complete step in it.
        PluginError, UnsupportedError: adios2 is missing or older than 2.11.
    """
    path = os.fspath(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"{path!r} does not exist")
    checks.verify(Path(path))
    index = Path(path, "md.idx")
    if index.exists() and index.stat().st_size == 0:  # BP5 would crash
        raise CuszError(f"{path!r}: there is no complete step in it")
    try:
        plugin = Plugin()
    except PluginError:  # then ADIOS2 cannot read what the plugin compressed either
        plugin = None
    file = Input(path, None, None, None, plugin)
    try:
        available = {name: told for name, told in file.described().items() if not blocktable.is_table(name)}
        if not available:
            raise CuszError(f"{path!r}: there is no complete step in it, or no variable")
        wanted = chosen(names or None, sorted(available), repr(path))
        for name in names:
            if name in available:  # the others are patterns, which skip variables of other types
                _require_number(name, available[name]["Type"])
        for name in wanted:
            if available[name]["Type"] in FLOATS | INTEGERS:
                by = deciding(name, names, available) or ""
                yield dataclasses.replace(_Run(file, name, available[name]).sampled(**options), chosen_by=by)
    finally:
        with contextlib.suppress(Exception):  # BP5 fails again where it could not open a file
            file.close()


def _require_number(name: str, kind: str) -> None:
    if kind not in FLOATS | INTEGERS:
        raise ParameterError(f"the variable {name!r} is of type {kind}; the operator takes float, double and integers")


class _Run:
    """A variable of an open file."""

    def __init__(self, file: Input, name: str, description: Mapping[str, str]) -> None:
        self.file, self.name, self.description = file, name, description
        self.dtype = (FLOATS | INTEGERS)[description["Type"]]
        self.steps: list[int] = []

    def sampled(self, **options: Unpack[Options]) -> SampledVariable:
        known = SampledVariable(self.name, self.description["Type"], (), 0)
        try:
            self.steps = list(self.file.steps_of(self.name))
            n_steps, shape = len(self.steps), self.file.shape(self.name, self.steps[0])
            known = dataclasses.replace(known, shape=shape or (), steps=n_steps)
            if shape == ():
                return dataclasses.replace(known, is_single=True, remark="a single value, which no operator compresses")
            blocks = self.blocks(is_local=shape is None)
            if not blocks:
                return dataclasses.replace(known, remark="no values at the steps looked at")
            known = dataclasses.replace(known, blocks=sum(block.step == blocks[0].step for block in blocks))
            if compressed := self.compressed(blocks[0]):
                return dataclasses.replace(known, remark=compressed)
            if known.is_exact:
                return self.packed(known, blocks)
            is_whole = max(math.prod(block.count) for block in blocks) <= _WHOLE
            chosen = _spread(blocks) if is_whole else []
            x = self.whole(chosen) if is_whole else self.values(blocks, options.get("predictor", Parameters.predictor))
            limits = cusz_core.value_range(x, options.get("fill"), threads=options.get("threads"))
            stated = self.statistics(x.size, limits, options.get("fill"))
        except ParameterError:  # of the options
            raise
        except Exception as error:  # of ADIOS2; the other variables are still worth looking at
            return dataclasses.replace(known, remark=f"cannot be read: {without_colours(error)}")
        sizes = [math.prod(block.count) for block in blocks]
        share = x.size / (sum(sizes) / len({block.step for block in blocks}) * n_steps)
        size = round(x.size / len(chosen) if is_whole else statistics.mean(sizes))
        shapes = tuple(field_shape(block.count) for block in chosen)
        sample = tuning.Sample(x, size, stated or limits, min(share, 1.0), shapes)
        few = sample.size * self.dtype.itemsize < SMALL
        remark = f"blocks of {sample.size} values are too small to be worth a bound" if few else ""
        return dataclasses.replace(known, sample=sample, has_statistics=stated is not None, remark=remark)

    def packed(self, known: SampledVariable, blocks: list[_Block]) -> SampledVariable:
        """Adds the ratio with which the operator packs the first rows of blocks of integers."""
        raw = packed = 0
        for block in _spread(blocks):
            count, left = list(block.count), _VALUES
            for axis in reversed(range(len(count))):
                count[axis] = max(min(count[axis], left), 1)
                left //= count[axis]
            values = self.read(block, (0,) * len(count), count)
            raw += values.nbytes
            packed += len(embedding.packed(values, "zstd"))
        small = math.prod(blocks[0].count) * self.dtype.itemsize < SMALL
        remark = f"blocks of {math.prod(blocks[0].count)} integers are too small to be worth it" if small else ""
        if raw <= packed * _WORTH:
            remark = "packing does not make it smaller"
        return dataclasses.replace(known, packed_ratio=raw / packed, remark=remark)

    def blocks(self, is_local: bool) -> list[_Block]:
        """The blocks of the steps to be sampled, without those that are less than half as large as the median."""
        found = []
        n_steps = len(self.steps)
        for number in sorted({(2 * i + 1) * n_steps // (2 * _STEPS) for i in range(_STEPS)}):
            step = self.steps[number]
            placed = self.file.placed(self.name, step)
            for i, (start, count) in enumerate(zip(placed.start.tolist(), placed.count.tolist(), strict=True)):
                if math.prod(count) > 0:
                    found.append(_Block(step, i if is_local else None, tuple(start), tuple(count)))
        usual = statistics.median(math.prod(block.count) for block in found) if found else 0
        return [block for block in found if 2 * math.prod(block.count) >= usual]

    def compressed(self, block: _Block) -> str:
        """Says with which bound this plugin compressed the block; "" if it did not."""
        archive = self.file.archive(self.name, block.step, block.start, self.dtype, 1 << 16, block.number)
        if archive is None:
            return ""
        try:
            info = cusz_core.inspect(archive)
            bound = f"{info.eb:g} of every value" if info.mode == "pw_rel" else f"{info.eb_abs:g}"
            return f"already compressed with cusz, bound {bound}"
        except CorruptArchiveError:
            return "already written through cusz"

    def read(self, block: _Block, start: Sequence[int], count: Sequence[int]) -> NDArray[Any]:
        """A box of a block."""
        corner = tuple(map(sum, zip(block.start, start, strict=True)))
        return self.file.values(self.name, block.step, (corner, tuple(count)), self.dtype, block=block.number)

    def whole(self, blocks: list[_Block]) -> NDArray[Any]:
        """The values of the blocks, concatenated."""
        return np.concatenate([self.read(block, (0,) * len(block.count), block.count).reshape(-1) for block in blocks])

    def values(self, blocks: list[_Block], predictor: str) -> NDArray[Any]:
        """Boxes of the blocks, concatenated along the first axis. They have at most four axes: the fastest of those
        whose extent is not 1."""
        smallest = [min(extents) for extents in zip(*(block.count for block in blocks), strict=True)]
        axes = [axis for axis, extent in enumerate(smallest) if extent > 1][-4:]
        total = sum(math.prod(block.count) for block in blocks)
        edges = [smallest[axis] for axis in axes]
        if axes and total > _VALUES:
            edges = list(tuning.box_shape(edges, predictor))
        box = [1] * len(smallest)
        for axis, edge in zip(axes, edges, strict=True):
            box[axis] = edge
        outer = _split(box, blocks[0].count, self.dtype.itemsize)
        size = math.prod(box)
        fetched = math.prod(box[:outer]) * _span(box, blocks[0].count, outer) * self.dtype.itemsize
        n_boxes = max(min(_VALUES // size, _FETCHED // fetched, total // size), 1)
        if box == smallest:
            n_boxes = min(n_boxes, len(blocks))
        parts = []
        for number in range(n_boxes):
            block = blocks[number * len(blocks) // n_boxes]
            corner = tuning.box_start(block.count, box, number)
            for offset in itertools.product(*map(range, box[:outer])):
                start = [*map(sum, zip(corner, offset, strict=False)), *corner[outer:]]
                parts.append(self.read(block, start, [1] * outer + box[outer:]).reshape(-1))
        shape = [box[axis] for axis in axes] or [1]
        return np.concatenate(parts).reshape([-1, *shape[1:]])

    def statistics(self, size: int, limits: cusz_core.ValueRange, fill: float | None) -> cusz_core.ValueRange | None:
        """The value range from ADIOS2's statistics, if it can be true for a sample of `size` values. There may be none
        (0 and 0, or a minimum above the maximum); NaN and fill spoil them, even if the sample has none. So do blocks
        without values: ADIOS2 counts them as 0 (BP4), or as beyond all values (BP5)."""
        low, high = float(self.description["Min"]), float(self.description["Max"])
        placed = [self.file.placed(self.name, step) for step in self.steps]
        has_values = np.concatenate([of_step.count > 0 for of_step in placed]).all(axis=1)
        if not has_values.all():
            low = float(np.concatenate([of_step.min for of_step in placed])[has_values].min())
            high = float(np.concatenate([of_step.max for of_step in placed])[has_values].max())
        slack = 1e-5 * max(abs(low), abs(high))  # statistics are texts of seven digits
        holds = -math.inf < low < high < math.inf and low - slack <= limits.min and limits.max <= high + slack
        half, of_sample = high / 2 - low / 2, limits.max / 2 - limits.min / 2
        holds = holds and not half > _MOST_RANGES * of_sample > 0
        if not holds or limits.values < size or (fill is not None and min(abs(low - fill), abs(high - fill)) <= slack):
            return None
        return limits._replace(min=low, max=high)


def _spread(blocks: list[_Block]) -> list[_Block]:
    """As many of the blocks as a sample may have, evenly spread."""
    mean = statistics.mean(math.prod(block.count) for block in blocks)
    n_blocks = min(max(int(_VALUES // mean), 1), len(blocks))
    return [blocks[(2 * number + 1) * len(blocks) // (2 * n_blocks)] for number in range(n_blocks)]


def _span(box: Sequence[int], extents: Sequence[int], outer: int) -> int:
    """How many values of a block lie from the first to the last value of a box without its `outer` slowest axes."""
    strides = [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]
    return 1 + sum((edge - 1) * stride for edge, stride in zip(box[outer:], strides[outer:], strict=True))


def _split(box: Sequence[int], extents: Sequence[int], value_bytes: int) -> int:
    """How many of the slowest axes of a box have to be split up so that one Get reads little."""
    return next(
        (outer for outer in range(len(box)) if _span(box, extents, outer) * value_bytes <= _AT_ONCE), len(box) - 1
    )
