"""Steps of a Reader: boxes, assembled from the blocks that overlap them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import math
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding
from cusz_core.errors import CorruptArchiveError, CuszError, ParameterError, UnsupportedError

from ..tables.boxes import Box, Extents, field_shape, intersection, pieces
from ..tables.representation import given_back
from ..tables.stored import DTYPES
from .contents import Blocks, Contents, naming
from .levels import VariableLevel, level_of, n_levels, steps_of

_T = TypeVar("_T")

# Raw bytes of blocks: starting a thread takes about as long as decoding 2^18 of them.
_BYTES_PER_TASK = 1 << 20  # of blocks that a thread decodes one after the other
_BYTES_PER_THREAD = 1 << 18  # where several decode one block
_MIN_BYTES_ON_DEVICE = 1 << 19  # for smaller blocks, launching kernels takes longer than decoding them in host memory
_MIN_MEAN_BYTES = 1 << 15  # smaller blocks mostly occupy the interpreter, which runs one thread at a time


class ReaderStep:
    """A step of a Reader.

    Attributes:
        index: its number in the file.
    """

    def __init__(self, contents: Contents, index: int) -> None:
        self._contents = contents
        self._input = contents.input
        self.index = index

    def __repr__(self) -> str:
        try:
            there = ", ".join(self.variables)
        except CuszError as error:  # it is closed, for example
            there = str(error)
        return f"<step {self.index} of {self._contents.path!r}: {there}>"

    def __contains__(self, name: object) -> bool:
        """Whether a variable of this name is at this step."""
        entry = self._contents.entries().get(name) if isinstance(name, str) else None
        return entry is not None and not entry.is_part and self.index in self._input.steps_of(entry.stored[0])

    @property
    def variables(self) -> list[str]:
        """Names of the variables at this step."""
        entries = self._contents.entries()
        return [n for n in self._contents.names() if self.index in self._input.steps_of(entries[n].stored[0])]

    def shape(self, name: str) -> Extents:
        """The global shape of a variable; () for one value.

        Raises:
            ParameterError: there is no such variable at this step, or it has no global shape.
        """
        shape = self._shape(name)
        if shape is None:
            raise ParameterError(f"variable {name!r} has no global shape: its blocks are read one by one (block=)")
        return shape

    def has_shape(self, name: str) -> bool:
        """Whether a variable has a global shape; if not, its blocks are read one by one (`read_blocks`).

        Raises:
            ParameterError: there is no such variable at this step.
        """
        return self._shape(name) is not None

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of a variable's values; object for texts.

        Raises:
            ParameterError: there is no such variable.
            UnsupportedError: numpy has no such type.
        """
        return self._contents.dtype(name)

    def blocks(self, name: str) -> NDArray[Any]:
        """What is known about the blocks of an array, as a structured array with one element per block.

        Fields: rank, step, device (-1: host memory), start, count, raw_bytes, archive_bytes, eb_abs, min, max,
        outliers, checksum, seconds: the block table of a Writer. For what other programs wrote, only what ADIOS2 knows
        is there, and the rest is -1 or NaN. raw_bytes is the size of values as `read` gives them. For complex numbers
        it is the table of the real part; `NAME/imag` has its own.

        Raises:
            ParameterError: there is no such variable at this step, or it is one value.
            CorruptArchiveError: the table is damaged.
        """
        return self._blocks(name).table.copy()

    def value_range(self, name: str) -> tuple[float, float] | None:
        """Minimum and maximum of a variable over its blocks, as they were kept when it was written.

        Those that a Writer kept are over the values that are finite and not fill; those of ADIOS2 are over all values.

        Returns:
            None if they were not kept, there are no values, or the variable is complex or one value. (ADIOS2 shows 0
            for all blocks if it kept none, so a variable with only zeros cannot be told from that.)

        Raises:
            ParameterError: there is no such variable at this step.
        """
        stored = self._contents.entry_at(name, self.index).stored
        if len(stored) > 1 or self._input.shape(stored[0], self.index) == ():
            return None
        blocks = self._blocks(name)
        low, high = blocks.table["min"], blocks.table["max"]
        known = (low <= high) & (blocks.table["count"] > 0).all(axis=1)
        if not known.any() or not (blocks.has_table or low.any() or high.any()):
            return None
        return float(low[known].min()), float(high[known].max())

    def share(self, name: str, rank: int | None = None) -> Box:
        """The part of a variable that `read` gives a rank by default, as (start, count).

        Ranks get slabs along the first axis, the same for all variables that have this shape at this step, so that
        what belongs together stays together. They are cut so that each rank has about the same number of archive bytes
        of these variables to decode (raw bytes where there is no block table). The slabs of all ranks together cover
        the variable; some are empty if there are more ranks than indices. Every rank gets the whole of a single value.

        Args:
            name: of the variable.
            rank: whose part; None: that of this process.
        """
        size = self._contents.size
        number = self._contents.rank if rank is None else rank
        if not 0 <= number < size:
            raise ParameterError(f"rank is {number}; there are {size} ranks")
        shape = self.shape(name)
        if not shape or size == 1:
            return (0,) * len(shape), shape
        self._blocks(name)  # which raises an error if it cannot be read
        begin, end = [0, *self._contents.cuts(self.index, shape), shape[0]][number : number + 2]
        return (begin, *(0,) * (len(shape) - 1)), (end - begin, *shape[1:])

    def read(
        self,
        name: str,
        start: Sequence[int] | None = None,
        count: Sequence[int] | None = None,
        *,
        block: int | None = None,
        like: Any = None,
        out: Any = None,
        fill: Any = None,
        level: int = 0,
    ) -> Any:
        """Reads a box of a variable, or of a coarser level of it.

        Of a variable that this plugin compressed, only the blocks that overlap the box are fetched, each once, and only
        their tiles that overlap it are decoded, several blocks at a time. Elements that no block covers have no values:
        they are set to `fill`, and `coverage` tells where they are.

        Args:
            name: of the variable.
            start, count: the box, within the global shape; start alone: to the end; count alone: from the origin;
                neither: `share(name)`.
            block: the number of a block, which is read whole: for a variable without a global shape.
            like: a module, or one of its arrays, to make the result: numpy (None: the same) or cupy.
            out: a writable C-contiguous array of the variable's dtype and extents `count`, to be filled and returned.
            fill: what is put where no block is; None: NaN, or 0 (False) in variables of integers and bool.
            level: 0 for the variable, or a coarser version with every second, fourth, ... value of each block, which
                `level` describes. `start` and `count` are then a box of it. Of blocks that this plugin compressed, only
                the bytes that the level needs are read from the data files; the values are those of a full read.

        Returns:
            An array of the variable's dtype and extents `count`. One value: a number, or a text (`like` and `out` do
            not apply).

        Raises:
            ParameterError: there is no such variable at this step, the box is outside the shape, `out` does not fit,
                `fill` is not a value of the variable's type, or as for `level`.
            UnsupportedError: a type that numpy does not have.
            CorruptArchiveError: a block or the table is damaged; `out` is undefined then.
            PluginError: ADIOS2 loaded another copy of the plugin.
            DeviceError, OutOfMemoryError: as for `cusz_core.decompress`.
        """
        entry = self._contents.entry_at(name, self.index)
        if self._input.shape(entry.stored[0], self.index) != ():  # single values are in the metadata
            self._contents.require_data(self.index)
        dtype = self.dtype(name)
        level = embedding.integer(level, "level")
        of_level: VariableLevel | None = None
        if block is not None:
            start, count = self._place_of(name, block)
            if self._input.shape(entry.stored[0], self.index) is None:
                values = self._input.values(name, self.index, (start, count), dtype, block=block)
                return values[self._picked(name, (start, count), level)] if level else values
        if level and self.shape(name):
            # The level of a single block is read whether or not all blocks form a grid.
            of_level = self._level(name, level, block)
            if block is not None:
                start, count = of_level.box_of((start, count))  # type: ignore[arg-type]
            elif start is None and count is None:
                start, count = of_level.box_of(self.share(name))
        shape = of_level.shape if of_level else self.shape(name)
        box = self._box(name, shape, start, count)
        if dtype.hasobject:
            if shape:
                raise UnsupportedError(f"variable {name!r} is an array of texts, which ADIOS2 does not read in Python")
            return self._input.text(name, self.index)
        if not shape:
            return self._input.values(name, self.index, box, dtype)[()]
        if out is not None:
            _require_fit(out, dtype, box[1])
        fill = fill_of(dtype, fill, name)

        def read_part(part: str, of_type: np.dtype[Any], like: Any, out: Any, fill: Any) -> Any:
            if of_level is not None:
                return self._read_level(part, of_level, box, of_type, like, out, fill, block)
            return self._read_stored(part, box, of_type, like, out, fill)

        if not entry.given:
            return read_part(name, dtype, like, out, fill)
        fills = [complex(fill).real, complex(fill).imag] if len(entry.stored) > 1 else [fill]
        parts = [
            read_part(part, DTYPES[entry.type], None, None, own) for part, own in zip(entry.stored, fills, strict=True)
        ]
        return _placed(given_back(parts, entry.given), like, out)

    def n_levels(self, name: str) -> int:
        """The number of levels of an array: at the last one, each block has a single value; 1 for a single value.

        Raises:
            ParameterError: there is no such variable at this step.
        """
        if self._shape(name) == ():
            return 1
        blocks = self._blocks(name)
        return n_levels(blocks.table["count"][blocks.filled])

    def level(self, name: str, level: int) -> VariableLevel:
        """What a level of a variable is: its shape, and where its values are in the global array (`coordinates`).

        It has the same level of every block: every `2**level`-th value along the last three axes (those that are long
        enough), counted from where the block begins. If blocks do not begin at multiples of that, the values are not
        evenly spaced.

        Raises:
            ParameterError: there is no such variable at this step, it has no global shape, there is no such level, or
                the blocks' values do not form a grid: their coordinates along an axis differ. The message names two
                blocks.
        """
        self.shape(name)
        return self._level(name, embedding.integer(level, "level"), None)

    def read_blocks(self, name: str) -> list[NDArray[Any]]:
        """All blocks of an array, one array each, in the order of `blocks`: the way to read a variable without a global
        shape, such as particles.

        Raises:
            As `read`.
        """
        entry = self._contents.entry_at(name, self.index)
        blocks = self._archived(name) if not entry.given else None
        if blocks is not None:
            self._contents.require_data(self.index)
            dtype = self.dtype(name)
            made = [np.empty(count, dtype) for count in blocks.table["count"].tolist()]
            boxes = [(number, blocks.box(number)) for number in blocks.filled.tolist()]
            needed = [(number, box, box) for number, box in boxes]
            if self._decoded(name, blocks, needed, dtype, lambda number, _: made[number]):
                return made
        return [self.read(name, block=number) for number in range(len(self.blocks(name)))]

    def coverage(
        self, name: str, start: Sequence[int] | None = None, count: Sequence[int] | None = None
    ) -> NDArray[np.bool_]:
        """Where a variable has values, which is where blocks are. The levels of an AMR code do not cover everything.

        Args:
            name: of the variable.
            start, count: the box, as in `read`.

        Returns:
            A bool array of the extents of the box.

        Raises:
            ParameterError: there is no such variable at this step, it has no global shape, or the box is outside it.
        """
        box = self._box(name, self.shape(name), start, count)
        if not box[1]:
            return np.ones((), np.bool_)
        covered = np.zeros(box[1], np.bool_)
        blocks = self._blocks(name)
        for number in blocks.meeting(box).tolist():
            covered[_slices(intersection(blocks.box(number), box), box[0])] = True
        return covered

    def is_covered(self, name: str) -> bool:
        """Whether a variable has values everywhere in its global shape.

        Raises:
            ParameterError: as for `coverage`.
        """
        shape = self.shape(name)
        if not shape:
            return True
        blocks = self._blocks(name)
        in_blocks, in_shape = int(blocks.table["count"].prod(axis=1).sum()), math.prod(shape)
        if in_blocks < in_shape or not blocks.overlap:
            return in_blocks == in_shape
        return all(self.coverage(name, *box).all() for box in pieces(((0,) * len(shape), shape)))

    def verify(self, name: str) -> int:
        """Verifies the checksums of this rank's share of a variable's blocks, without decoding them.

        Returns:
            The number of blocks that this rank verified; all ranks together verify every block of an array with a
            global shape that this plugin compressed, or that a Writer stored exactly. The others have no checksums, or
            are verified only by `inspect_bp(check=True)`, as are blocks without a global shape.

        Raises:
            ParameterError: there is no such variable at this step.
            CorruptArchiveError: a block or the table is damaged.
        """
        return sum(self._verified(stored) for stored in self._contents.entry_at(name, self.index).stored)

    # ----------------------------------------------------------------------------------------------------- inside

    def _place_of(self, name: str, number: int) -> Box:
        blocks = self._blocks(name)
        if not 0 <= number < len(blocks.table):
            raise ParameterError(f"block is {number}; variable {name!r} has {len(blocks.table)} at step {self.index}")
        return blocks.box(number)

    def _shape(self, name: str) -> Extents | None:
        return self._input.shape(self._contents.entry_at(name, self.index).stored[0], self.index)

    def _blocks(self, name: str) -> Blocks:
        return self._contents.blocks(self._contents.entry_at(name, self.index).stored[0], self.index)

    def _level(self, name: str, level: int, block: int | None) -> VariableLevel:
        shape, blocks = self.shape(name), self._blocks(name)
        # Blocks that overlap are not told apart: the level is that of a single block.
        which = [block] if block is not None else blocks.filled if not blocks.overlap else []
        what = f"variable {name!r}, step {self.index}," if block is None else f"block {block} of variable {name!r}"
        table = blocks.table[which]
        return level_of(shape, table["start"], table["count"], level, what)

    def _picked(self, name: str, block: Box, level: int) -> tuple[slice, ...]:
        """Where the values of a level are among those of a block without a place."""
        count = np.array([block[1]], np.int64)
        level_of(block[1], np.zeros_like(count), count, level, f"the block of variable {name!r}")
        return tuple(slice(None, None, step) for step in steps_of(block[1], level))

    def _read_level(
        self,
        name: str,
        level: VariableLevel,
        box: Box,
        dtype: np.dtype[Any],
        like: Any,
        out: Any,
        fill: Any,
        block: int | None,
    ) -> Any:
        """A box of a level of an array as the file has it; `block`: the only block to read, if not None."""
        blocks, archived = self._contents.blocks(name, self.index), self._archived(name)
        result = _result(box[1], dtype, like, out) if archived is not None else np.empty(box[1], dtype)
        result[...] = fill
        if blocks.overlap:
            self._pick(name, level, box, dtype, fill, result)
            return _placed(result, like, out)
        numbers = [block] if block is not None else []
        if block is None and 0 not in box[1]:  # the blocks around the box
            along = [c[s : s + n] for c, s, n in zip(level.coordinates, *box, strict=True)]
            around = tuple(int(c[0]) for c in along), tuple(int(c[-1] - c[0] + 1) for c in along)
            numbers = blocks.meeting(around).tolist()
        needed = []
        for number in numbers:
            common, first = level.box_within(blocks.box(number), box)
            if min(common[1], default=1) > 0:
                needed.append((number, common, first))
        self._contents.expect(name, self.index, [number for number, *_ in needed])
        raw_bytes = blocks.table["raw_bytes"][[number for number, *_ in needed]]
        tasks = _tasks(needed, raw_bytes)
        shared = self._contents.reads_files and not _are_small(raw_bytes)
        workers = min(self._contents.threads, len(tasks)) if shared else 1

        def read(number: int, common: Box, first: Extents) -> None:
            place = blocks.box(number)
            found = (
                self._contents.prefix(name, self.index, number, dtype, level.number) if archived is not None else None
            )
            if found is None:
                self._pick(name, level, common, dtype, fill, result[_slices(common, box[0])])
                return
            what = self._contents.block_in_words(name, self.index, place[0])
            threads = _threads(int(blocks.table["raw_bytes"][number]), self._contents.threads // workers)
            _decode_level(*found, level.number, place[1], first, result[_slices(common, box[0])], threads, what)

        def read_all(task: list[tuple[int, Box, Extents]]) -> None:
            for each in task:
                read(*each)

        if workers == 1:
            read_all(needed)
        else:
            there = embedding.on_current_device(read_all)
            with concurrent.futures.ThreadPoolExecutor(workers) as pool:
                for done in [pool.submit(there, task) for task in tasks]:
                    done.result()
        return result if archived is not None else _placed(result, like, out)

    def _pick(self, name: str, level: VariableLevel, common: Box, dtype: np.dtype[Any], fill: Any, target: Any) -> None:
        """Reads a box of a level by ADIOS2, which reads all values between as well."""
        along = [c[s : s + n] for c, s, n in zip(level.coordinates, *common, strict=True)]
        start = tuple(int(c[0]) for c in along)
        count = tuple(int(c[-1] - c[0] + 1) for c in along)
        values = self._input.values(name, self.index, (start, count), dtype, fill)
        _placed(values[np.ix_(*(c - c[0] for c in along))], None, target)

    def _read_stored(self, name: str, box: Box, dtype: np.dtype[Any], like: Any, out: Any, fill: Any) -> Any:
        """A box of an array as the file has it."""
        blocks = self._archived(name)
        if blocks is not None:
            result = _result(box[1], dtype, like, out)
            raw_bytes = blocks.table["raw_bytes"]
            there = isinstance(result, np.ndarray) or raw_bytes.sum() >= _MIN_BYTES_ON_DEVICE * len(raw_bytes)
            values = result if there else np.empty(box[1], dtype)
            parts = blocks.parts(box)
            if sum(math.prod(common[1]) for *_, common in parts) < math.prod(box[1]):
                values[...] = fill
            if self._decoded(name, blocks, parts, dtype, lambda _, part: values[_slices(part, box[0])]):
                return result if there else _placed(values, like, result)
        return _placed(self._input.values(name, self.index, box, dtype, fill), like, out)

    def _verified(self, name: str) -> int:
        dtype = DTYPES[self._contents.entry(name).type]
        if not self._input.shape(name, self.index):
            return 0
        blocks, archived = self._contents.blocks(name, self.index), self._archived(name)
        verified = 0
        own = range(self._contents.rank, len(blocks.table), self._contents.size)
        self._contents.expect(name, self.index, list(own))
        for number in own:
            box = blocks.box(number)
            what = self._contents.block_in_words(name, self.index, box[0])
            if 0 in box[1]:
                continue
            if archived is not None:
                archive = self._contents.archive(name, self.index, number, dtype)
                if archive is None:
                    continue
                with naming(what):
                    raw_bytes = int(blocks.table["raw_bytes"][number])
                    cusz_core.check(archive, threads=_threads(raw_bytes, self._contents.threads))
            elif blocks.has_table:
                values = self._input.values(name, self.index, box, dtype)
                if zlib.crc32(values.data) != int(blocks.table["checksum"][number]):
                    raise CorruptArchiveError(f"{what} is damaged: its checksum differs from that of the block table")
            else:
                continue
            verified += 1
        return verified

    def _archived(self, name: str) -> Blocks | None:
        """The blocks of a variable; None if they are known not to be archives that can be fetched one by one."""
        if self._contents.entry(name).type not in ("float", "double") or not self._input.shape(name, self.index):
            return None
        blocks = self._contents.blocks(name, self.index)
        return None if blocks.overlap or not blocks.may_be_archives else blocks

    def _decoded(
        self,
        name: str,
        blocks: Blocks,
        needed: list[tuple[int, Box, Box]],
        dtype: np.dtype[Any],
        target: Callable[[int, Box], Any],
    ) -> bool:
        """Decodes parts of blocks from archives; False if one of these blocks is no archive.

        Args:
            needed: the number of each block, where it lies, and its part.
            target: what the part of a block is decoded into.
        """
        numbers = [number for number, *_ in needed]
        self._contents.expect(name, self.index, numbers)
        raw_bytes = blocks.table["raw_bytes"][numbers]
        tasks = _tasks(needed, raw_bytes)
        workers = min(self._contents.threads, len(tasks))
        fetches = self._contents.reads_files and not _are_small(raw_bytes)
        in_words = functools.partial(self._contents.block_in_words, name, self.index)

        def fetched(task: list[tuple[int, Box, Box]]) -> list[NDArray[np.uint8]] | None:
            if not blocks.may_be_archives:
                return None
            archives = self._contents.archives(name, self.index, [number for number, *_ in task], dtype)
            blocks.may_be_archives = archives is not None
            return archives

        def decode(task: list[tuple[int, Box, Box]], given: list[NDArray[np.uint8]] | None) -> None:
            archives = fetched(task) if given is None else given
            if archives is not None:
                parts = [_Part(block, part, target(number, part)) for number, block, part in task]
                _decode(parts, archives, blocks.has_table, self._contents.threads // workers, in_words)

        if workers == 1:
            for task in tasks:
                decode(task, None)
            return blocks.may_be_archives
        there = embedding.on_current_device(decode)
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            pending: deque[concurrent.futures.Future[None]] = deque()
            for task in tasks:
                # Only the caller's thread calls ADIOS2: MPI may allow no other (MPI_THREAD_FUNNELED).
                given = None if fetches else fetched(task)
                if not blocks.may_be_archives:
                    break
                if len(pending) > 2 * workers:  # waiting archives take memory, and errors should be raised soon
                    pending.popleft().result()
                pending.append(pool.submit(there, task, given))
            while pending:
                pending.popleft().result()
        return blocks.may_be_archives

    def _box(self, name: str, shape: Extents, start: Sequence[int] | None, count: Sequence[int] | None) -> Box:
        if start is None and count is None:
            return self.share(name)
        first = embedding.extents(start, f"start of {name!r}") if start is not None else (0,) * len(shape)
        if len(first) != len(shape):
            raise ParameterError(f"start is {first}; variable {name!r} has {len(shape)} dimensions")
        extent = (
            embedding.extents(count, f"count of {name!r}")
            if count is not None
            else tuple(n - s for n, s in zip(shape, first, strict=True))
        )
        if len(extent) != len(shape) or any(c < 0 or s + c > n for s, c, n in zip(first, extent, shape, strict=True)):
            raise ParameterError(
                f"start {first} and count {extent} are not a box within {shape}, the shape of {name!r}"
            )
        return first, extent


def _tasks(needed: list[_T], raw_bytes: NDArray[np.int64]) -> list[list[_T]]:
    """Groups of blocks, in order, each worth a call of another thread."""
    task = (np.cumsum(raw_bytes) - raw_bytes) // _BYTES_PER_TASK
    ends = [*(np.flatnonzero(np.diff(task)) + 1).tolist(), len(needed)]
    return [needed[i:j] for i, j in itertools.pairwise([0, *ends])]


def _are_small(raw_bytes: NDArray[np.int64]) -> bool:
    """Whether reading these blocks mostly occupies the interpreter, which runs one thread at a time."""
    return bool(raw_bytes.sum() < _MIN_MEAN_BYTES * len(raw_bytes))


def _threads(raw_bytes: int, most: int) -> int:
    """How many threads decode a block."""
    return max(min(raw_bytes // _BYTES_PER_THREAD, most), 1)


class _Part(NamedTuple):
    """A part of a block that is to be decoded.

    Attributes:
        block, part: where they lie.
        target: what the part is decoded into.
    """

    block: Box
    part: Box
    target: Any

    def first(self) -> list[int]:
        """Where the part begins in its block."""
        return [p - b for p, b in zip(self.part[0], self.block[0], strict=True)]

    def decode(self, archive: NDArray[np.uint8], shape: Extents, threads: int) -> None:
        """
        Args:
            archive: the block's.
            shape: of its field: some axes are merged if there are more than four, and Fortran's reversed.
        """
        start, count = self.block
        if isinstance(self.target, np.ndarray) and shape == count:
            cusz_core.decompress_box(archive, self.first(), out=self.target, threads=threads)
        elif self.part == self.block and _is_contiguous(self.target):
            cusz_core.decompress(archive, out=self.target.reshape(shape), threads=threads)
        else:
            like = None if isinstance(self.target, np.ndarray) else self.target
            values = cusz_core.decompress(archive, like=like, threads=threads)
            self.target[...] = values.reshape(count)[_slices(self.part, start)]


def _decode(
    parts: list[_Part],
    archives: list[NDArray[np.uint8]],
    has_table: bool,
    threads: int,
    in_words: Callable[[Extents], str],
) -> None:
    """Decodes parts of blocks into their places.

    Args:
        archives: of these blocks.
        has_table: whether the archives are known to have the blocks' shapes.
        in_words: what a block is called in messages, from where it begins.
    """
    if (
        len(parts) > 1
        and has_table
        and all(isinstance(each.target, np.ndarray) and field_shape(each.block[1]) == each.block[1] for each in parts)
    ):
        out = [each.target for each in parts]
        most = _threads(sum(target.nbytes for target in out), threads)
        with contextlib.suppress(CuszError):  # below, the message of an error tells which block it is about
            cusz_core.decompress_many(archives, [each.first() for each in parts], out=out, threads=most)
            return
    for each, archive in zip(parts, archives, strict=True):
        with naming(in_words(each.block[0])):
            shape = field_shape(each.block[1]) if has_table else cusz_core.inspect(archive).shape
            raw_bytes = math.prod(each.block[1]) * each.target.dtype.itemsize
            each.decode(archive, shape, _threads(raw_bytes, threads))


def _decode_level(
    prefix: NDArray[np.uint8],
    archive_bytes: int,
    level: int,
    count: Extents,
    first: Extents,
    target: Any,
    threads: int,
    what: str,
) -> None:
    """Decodes a box of a block's level, which begins at `first`, into its place in the result."""
    with naming(what):
        shape = cusz_core.level_of(prefix, 0, archive_bytes=archive_bytes)[0].shape
        if shape == count:
            own = min(level, len(cusz_core.levels_of_shape(shape)) - 1)
            how: dict[str, Any] = {"threads": threads, "level": own, "archive_bytes": archive_bytes}
            if isinstance(target, np.ndarray):
                cusz_core.decompress_box(prefix, first, out=target, **how)
            else:
                values = cusz_core.decompress(prefix, like=target, **how)
                target[...] = values[_slices((first, target.shape), (0,) * len(first))]
            return
        # Some axes are merged if there are more than four, and Fortran's are reversed.
        values = cusz_core.decompress(prefix, threads=threads).reshape(count)
        picked = values[tuple(slice(None, None, step) for step in steps_of(count, level))]
        _placed(picked[_slices((first, target.shape), (0,) * len(first))], None, target)


def _result(shape: Extents, dtype: np.dtype[Any], like: Any, out: Any) -> Any:
    """`out`, or a new array of the module of `like`."""
    if out is not None:
        return out
    made = embedding.new_field(like, dtype, shape) if like is not None else None
    return np.empty(shape, dtype) if made is None else made


def fill_of(dtype: np.dtype[Any], fill: Any = None, name: str = "") -> Any:
    """What is put where no block is: `fill`, or if it is None, NaN or 0."""
    if fill is None:
        return math.nan if dtype.kind in "fc" else 0
    if dtype.hasobject:
        return fill
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            given = np.asarray(fill)
            own = given.astype(dtype)[()]
            fits = given.shape == () and (own == given[()] or bool(own != own) == bool(given[()] != given[()]) is True)
            fits = fits or (dtype.kind == "f" and np.isfinite(given[()]) and np.isfinite(own))  # rounded
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ParameterError(f"fill is {embedding.describe(fill)}; it must be a value of {dtype}, the type of {name!r}")
    return own


def _placed(values: NDArray[Any], like: Any, out: Any) -> Any:
    """Puts values from host memory where they are wanted: into `out`, or an array of the module of `like`."""
    module = None if out is None and like is None else embedding.module_of(like if out is None else out)
    made = values if module in (None, np) else module.asarray(values)
    if out is None:
        return made
    out[...] = made
    return out


def _slices(box: Box, origin: Extents) -> tuple[slice, ...]:
    return tuple(slice(s - o, s - o + c) for s, c, o in zip(*box, origin, strict=True))


def _is_contiguous(array: Any) -> bool:
    flags = getattr(array, "flags", None)
    return bool(getattr(flags, "c_contiguous", False))


def _require_fit(out: Any, dtype: np.dtype[Any], shape: Extents) -> None:
    if getattr(out, "dtype", None) != dtype or tuple(getattr(out, "shape", ())) != shape or not _is_contiguous(out):
        raise ParameterError(
            f"out must be a C-contiguous array of {dtype.name} with extents {shape}, and numpy's or CuPy's"
        )
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ParameterError("out is read-only")
