"""What is in a BP file: every block, with the properties of its archive."""

from __future__ import annotations

import enum
import functools
import math
import os
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

import cusz_core
from cusz_core import embedding
from cusz_core.errors import CorruptArchiveError, ParameterError

from ..adios2_calls import blocks_info, calling_adios2, counts_of_blocks, extents_of, import_adios2
from ..errors import PluginError
from ..names import chosen
from ..plugin import PLUGIN_NAME, CaptureMemory, Plugin, refuse_several_copies, without_colours
from ..reading.walk import OpenStep, walk
from ..tables import blocktable, checks
from ..tables.boxes import begin_in_others
from ..tables.representation import attribute_name, widening
from ..tables.stored import (
    FLOATS,
    INTEGERS,
    LOST_MARKS,
    PACKED_HEAD_BYTES,
    PACKED_TAG,
    RAW_OVERHEAD_BYTES,
    VERBATIM_TAG,
    mark_of,
)

#: To read one element, ADIOS2 looks at all blocks of the variable, but BP5 finds a whole block at once. So small blocks
#: are read whole: those with at most this many bytes for every block that it would have looked at.
_BYTES_PER_LOOK = 16
_BLOCKS_PER_REPORT = 100


class Block(TypedDict, total=False):
    """One block of a variable at one step, as plain values that JSON can hold.

    Always present:
        variable: its name.
        type: ADIOS2's name for its type, such as "float".
        step: its number, as ADIOS2 counts from 0.
        block: the block's number within variable and step.
        count: extents; () for a single value.
        operator: "cusz", "none or other", or "" for an empty block, which is not read.
    Where applicable:
        writer: the rank that wrote it; not in BP4, and not for some 8-bit integers in ADIOS2 2.12.
        start: offset in the global array; not for local arrays, single values, and some 8-bit integers in ADIOS2 2.12.
        error: why the block cannot be read, or why its archive is invalid.
    For archives, as in `cusz_core.ArchiveInfo`:
        raw_bytes, archive_bytes, ratio, kind, shape, predictor (not if the kind is "raw"), mode, eb, eb_abs, bins,
        special, out_of_range, unpredictable, version, checksum (of the payload). If a Writer was given float16, which
        it stores as float, raw_bytes and ratio are those of float16. Integers, and float and double where BP4 has no
        room beyond the bytes themselves, are in packed blocks: the kind is "packed", or "raw" if they became no
        smaller, and shape, bins, version and checksum are missing.
    From the block table of a Writer:
        device (number of the CUDA device that held the field, -1: host memory), min, max (of values that are finite and
        not fill; absent if the Writer was told not to compute them), seconds (spent compressing).
    From a Writer's record of what it was asked for (its archives have absolute bounds):
        asked_mode, asked_eb.
    For blocks that the plugin could not compress:
        raw_bytes, archive_bytes, ratio, and kind: "plain" (stored uncompressed) or "lost" (NaN, because the memory
        could not be read when the block was written; `error` says so).
    """

    variable: str
    type: str
    step: int
    block: int
    writer: int
    start: tuple[int, ...]
    count: tuple[int, ...]
    operator: str
    raw_bytes: int
    archive_bytes: int
    ratio: float
    kind: str
    shape: tuple[int, ...]
    predictor: str
    mode: str
    eb: float
    eb_abs: float
    bins: int
    special: int
    out_of_range: int
    unpredictable: int
    version: int
    checksum: int
    device: int
    min: float
    max: float
    seconds: float
    asked_mode: str
    asked_eb: float
    error: str


def inspect_bp(
    path: str | os.PathLike[str],
    *,
    variables: Collection[str] | None = None,
    steps: Collection[int] | None = None,
    check: bool = False,
    progress: Callable[[float], object] | None = None,
) -> Iterator[Block]:
    """Every block in a BP file (BP5 or BP4), by step, variable and block.

    Archives are fetched whole but not decoded: only their headers are read. Variables that are not compressed by this
    plugin are listed as such. Block tables are not listed, but add to the description of their variables' blocks. Of a
    file that is still being written, complete steps are listed.

    Args:
        path: the .bp folder or file.
        variables: names or patterns (`names`) of the variables to list; None: all.
        steps: numbers of the steps to list, from 0, or from the end if negative; None: all.
        check: also verifies the checksums of archives; a block whose payload is damaged has an `error`.
        progress: called from time to time with the part of the work that is done, from 0 to 1.

    Raises:
        FileNotFoundError: there is no such file.
        ParameterError: there is no such variable or step.
        CorruptArchiveError: its metadata is damaged, according to the Writer's checksums. (If a block table is damaged,
            its blocks have an `error` instead.)
        PluginError: the plugin or adios2 is missing, or ADIOS2 loaded another copy of the plugin.
        UnsupportedError: this adios2 is older than 2.11.
    """
    file = OpenFile(path, check=check)
    parts = file.parts(*file.selected(variables, steps), progress)
    return (_as_given(block, part.widening) for part in parts for block in part.blocks(tells_damage=True))


class OpenFile:
    """A file that is read from its first step to its last.

    Attributes:
        table_checks: CRC-32 of block tables, by step and variable, as far as they are known.
        records: what Writers were asked for, by step and variable.
        widenings: stored size of a value over its size as given (2 for float16), by variable, as far as steps opened
            so far tell.
    """

    def __init__(self, path: str | os.PathLike[str], *, check: bool) -> None:
        """
        Args:
            path: the .bp folder or file.
            check: verify the checksums of archives.

        Raises:
            FileNotFoundError, CorruptArchiveError, PluginError, UnsupportedError: as for `inspect_bp`.
        """
        self._path = os.fspath(path)
        self._absolute = os.path.join(os.getcwd(), self._path)  # the program may change its working folder
        if not self._path or not Path(self._path).exists():
            raise FileNotFoundError(f"{self._path!r} does not exist")
        self.table_checks = checks.verify(Path(self._path)).tables
        self.records = checks.records(Path(self._path))
        self.adios2 = import_adios2()
        self.plugin = Plugin()
        self.check = check
        self.widenings: dict[str, int] = {}
        self._others = 0

    def selected(
        self, variables: Collection[str] | None, steps: Collection[int] | None
    ) -> tuple[Collection[str] | None, Collection[int] | None]:
        """Variables, and steps counted from 0, for `parts`, from what ADIOS2's metadata says there is.

        Raises:
            ParameterError: there is no such variable or step.
            CuszError: ADIOS2 cannot open the file.
        """
        if variables is None and steps is None:
            return None, None
        n_steps, names = 0, set[str]()
        for step in self._steps(None):
            n_steps = step.number + 1
            names.update(self._variables(step.io))
        if variables is not None:
            variables = chosen(variables, sorted(names), repr(self._path))
        for number in steps or ():
            if not -n_steps <= number < n_steps:
                has = f"it has {n_steps}, from 0 to {n_steps - 1}" if n_steps else "none is complete yet"
                raise ParameterError(f"{self._path!r} has no step {number}: {has}")
        return variables, None if steps is None else {number % n_steps for number in steps}

    def parts(
        self,
        variables: Collection[str] | None,
        steps: Collection[int] | None,
        progress: Callable[[float], object] | None,
    ) -> Iterator[Part]:
        """Variables at every step, each valid until the next one is asked for.

        Only after the last one is it certain that no other copy of the plugin got what this one did not.

        Args:
            variables, steps: which; None: all.
            progress: as for `inspect_bp`.

        Raises:
            CuszError: ADIOS2 cannot open the file.
            PluginError: ADIOS2 loaded another copy of the plugin.
        """
        for n_done, step in enumerate(self._steps(steps)):
            with calling_adios2(f"count the steps of {self._path!r}"):
                n_steps = max(step.engine.steps() if steps is None else len(steps), n_done + 1)
            found = self._variables(step.io)
            names = [name for name in sorted(found) if variables is None or name in variables]
            selected: dict[str, Any] = {}
            for number, name in enumerate(names):
                begin = (n_done + number / len(names)) / n_steps
                share = (begin, 1 / len(names) / n_steps)
                yield Part(self, step, name, found[name], selected, progress, share)
            with calling_adios2(f"end a step of {self._path!r}"):
                # If the block that is selected does not exist at the next step, ADIOS2 ends the process when it lists
                # the variables there (BP4).
                for variable in selected.values():
                    variable.set_block_selection(0)
        if self._others:
            refuse_several_copies()

    def add_other(self) -> None:
        """Counts a block that the plugin did not get.

        Raises:
            PluginError: ADIOS2 loaded another copy of the plugin, which may have got it.
        """
        self._others += 1
        if self._others & (self._others - 1) == 0:  # at powers of two only: a look at all libraries takes milliseconds
            refuse_several_copies()

    def _steps(self, wanted: Collection[int] | None) -> Iterator[OpenStep]:
        return walk(self.adios2, self._path, self._absolute, wanted, {"OpenTimeoutSecs": "1"})

    def _variables(self, io: Any) -> dict[str, dict[str, str]]:
        with calling_adios2(f"list the variables of {self._path!r}"):
            found = io.available_variables()
            # If several Writers wrote the file, the first step of each has its attributes.
            for name in [name for name, own in found.items() if own["Type"] == "float" and name not in self.widenings]:
                given = io.inquire_attribute(attribute_name(name))
                if given is not None and given.type() == "string":
                    self.widenings[name] = widening(given.data_string())
        return {name: own for name, own in found.items() if not blocktable.is_table(name)}


class Part:
    """A variable at a step.

    Attributes:
        name, type: of the variable.
        step: its number in the file.
        shape: of the global array; () for one value, and for blocks without a place.
        record: what a Writer was asked for; None if that is not known.
        widening: stored size of a value over its size as given (2 for float16).
    """

    def __init__(
        self,
        file: OpenFile,
        step: OpenStep,
        name: str,
        description: Mapping[str, str],
        selected: dict[str, Any],
        progress: Callable[[float], object] | None,
        share: tuple[float, float],
    ) -> None:
        """
        Args:
            description: ADIOS2's, of the variable.
            selected: handles of variables that have a block selected, by name.
            share: where the part begins in the work that `progress` reports, and how much of it the part is.
        """
        self.name, self.type = name, description["Type"]
        self.step = step.number
        self.shape = extents_of(description["Shape"])
        self.record = file.records.get((step.number, name))
        self.widening = file.widenings.get(name, 1)
        self._file = file
        self._opened, self._selected = step, selected
        self._progress = progress
        self._share = share
        self._places_are_known = True
        # Each kind of selection has its own handle, because ADIOS2 keeps earlier selections in it.
        self._handles: dict[_Selection, Any] = {}
        self._memory = CaptureMemory()

    def table(self) -> NDArray[Any] | None:
        """The block table; None if the variable has none.

        Raises:
            CorruptArchiveError: it is damaged, not one of this package, or does not describe the variable's blocks.
        """
        table = self._stored_table()
        # A table sealed by a Writer is not compared with ADIOS2's metadata: that takes longer than the table itself.
        is_sealed = (self.step, self.name) in self._file.table_checks
        if table is not None and not is_sealed and not _describes(table, self._described()):
            raise CorruptArchiveError(f"the block table of {self.name!r} describes other blocks")
        return table

    def blocks(self, *, tells_damage: bool = False) -> Iterator[Block]:
        """The blocks, with what their archives and the block table say; sizes are of values as they are stored. With
        tells_damage, also with what is wrong with the table."""
        blocks = self._described()
        damage = ""  # of the table: the blocks are still listed
        try:
            table = self._stored_table()
        except CorruptArchiveError as error:
            table, damage = None, str(error)
        is_described = table is not None and _describes(table, blocks)
        if table is not None and not is_described:
            damage = f"the block table of {self.name!r} describes other blocks"
        dtype = FLOATS.get(self.type, INTEGERS.get(self.type))
        selections = {}
        if dtype is not None:
            selections = _selections(blocks, dtype) if self._places_are_known else self._by_number(blocks, dtype)
        for number, block in enumerate(blocks):
            if dtype is not None and number in selections:
                self._add_archive(block, dtype, selections[number])
            if table is not None and is_described:
                _add_row(block, table[number])
            if damage and tells_damage:
                block.setdefault("error", damage)
            if self.record is not None:
                block["asked_mode"], block["asked_eb"] = self.record.mode, self.record.eb
            if number % _BLOCKS_PER_REPORT == 0 or number + 1 == len(blocks):
                self.report((number + 1) / len(blocks))
            yield block

    def report(self, done: float) -> None:
        """Reports progress: how much of this variable at this step is done, from 0 to 1."""
        if self._progress is not None:
            begin, size = self._share
            self._progress(begin + size * done)

    def _described(self) -> list[Block]:
        """The blocks as ADIOS2 describes them."""
        with calling_adios2(f"tell the blocks of {self.name!r}"):
            # BP5 gives the rank that wrote a block, BP4 the number of a file.
            tells_writer = self._opened.engine.impl.Type().startswith("BP5")
            infos = blocks_info(self._opened.engine, self.name, self._opened.counted)
            shape_id = self._opened.io.inquire_variable(self.name).shape_id().name
        # BP4 gives blocks without a place a shape, if a global array of this name follows at another step.
        has_shape = bool(self.shape) and shape_id != "LocalArray"
        blocks = []
        if infos is None:
            return self._described_otherwise()
        for info in infos:
            block = Block(variable=self.name, type=self.type, step=self.step, block=int(info["BlockID"]))
            if tells_writer:
                block["writer"] = int(info["WriterID"])
            is_value = info["IsValue"] == "True"
            if has_shape and not is_value:
                block["start"] = extents_of(info["Start"])
            # BP4 gives no extents for a global array without elements.
            block["count"] = () if is_value else extents_of(info["Count"]) or (0,)
            block["operator"] = "none or other" if math.prod(block["count"]) > 0 else ""
            blocks.append(block)
        return blocks

    def _described_otherwise(self) -> list[Block]:
        """The blocks as the block table describes them; without one, only their extents."""
        table = self._stored_table()
        of_variable = Block(variable=self.name, type=self.type, step=self.step, operator="none or other")
        if table is None:
            self._places_are_known = False
            with calling_adios2(f"tell the blocks of {self.name!r}"):
                variable = self._selected[self.name] = self._opened.io.inquire_variable(self.name)
                counts = counts_of_blocks(variable)
            blocks = [Block({**of_variable, "block": i, "count": count}) for i, count in enumerate(counts)]
            for block in blocks:
                if math.prod(block["count"]) == 0:
                    block["operator"] = ""
            return blocks
        boxes = zip(table["start"].tolist(), table["count"].tolist(), strict=True)
        return [
            Block({**of_variable, "block": i, "start": tuple(start), "count": tuple(count)})
            for i, (start, count) in enumerate(boxes)
        ]

    def _stored_table(self) -> NDArray[Any] | None:
        """The block table, if there is one, verified by itself but not against the blocks."""
        try:
            variable = self._opened.io.inquire_variable(blocktable.table_name(self.name))
            if variable is None:
                return None
            shape = variable.shape()
            rows = np.empty(shape, np.float64)
            variable.set_selection([[0] * len(shape), shape])
            self._opened.engine.get(variable, rows, self._file.adios2.Mode.Sync)
            table = blocktable.table_of(rows, self.name)
        except CorruptArchiveError:
            raise
        except Exception as error:  # of ADIOS2, or of a table that has another type or number of dimensions
            why = without_colours(error)
            raise CorruptArchiveError(f"the block table of {self.name!r} cannot be read: {why}") from error
        crc = zlib.crc32(rows.data)
        if self._file.table_checks.get((self.step, self.name), crc) != crc:
            raise CorruptArchiveError(f"the block table of {self.name!r} is damaged")
        return table

    def _by_number(self, blocks: Sequence[Block], dtype: np.dtype[Any]) -> dict[int, _Selection]:
        """As `_selections`, for blocks of which only numbers and extents are known."""
        filled = [i for i, block in enumerate(blocks) if block["operator"] and block["count"]]
        if not filled:
            return {}
        if not self.shape:
            return dict.fromkeys(filled, _Selection.ELEMENT_OF_BLOCK)
        # Blocks of a global array can only be read whole: they are if the smallest of them is found to be an archive.
        first = Block(**blocks[min(filled, key=lambda i: math.prod(blocks[i]["count"]))])
        self._add_archive(first, dtype, _Selection.BLOCK)
        is_other = first["operator"] != PLUGIN_NAME and "error" not in first
        return {} if is_other else dict.fromkeys(filled, _Selection.BLOCK)

    def _add_archive(self, block: Block, dtype: np.dtype[Any], selection: _Selection) -> None:
        """Adds what the block's archive says, if it is one of this plugin.

        Args:
            dtype: of the block's values.
            selection: how ADIOS2 is asked for it.
        """
        if selection is _Selection.NONE:
            block["error"] = "overlaps another block: it cannot be read on its own from a BP4 file"
            return
        count = block["count"]
        ones = [1] * len(count)
        target = np.empty(count if selection is _Selection.BLOCK else ones, dtype)

        raw_bytes = math.prod(count) * dtype.itemsize
        try:
            room = raw_bytes + RAW_OVERHEAD_BYTES
            variable = self._handles.get(selection)
            if variable is None:
                variable = self._handles[selection] = self._opened.io.inquire_variable(self.name)
                if selection is _Selection.BLOCK:
                    # Any extents do: at a step at which rank 0 has put nothing, those of a joined array are not valid.
                    variable.set_selection([[0] * len(count), ones])
            if selection is not _Selection.ELEMENT:
                self._selected[self.name] = variable
                variable.set_block_selection(block["block"])
            if selection is _Selection.ELEMENT_OF_BLOCK:
                variable.set_selection([[0] * len(count), ones])
            if selection is _Selection.ELEMENT:
                variable.set_selection([list(block["start"]), ones])
            mode = self._file.adios2.Mode.Sync
            get = functools.partial(self._opened.engine.impl.Get, variable.impl, target, mode)
            archive = self._file.plugin.capture(self.name, room, get, only_copy=False, memory=self._memory)
            if archive is None:
                self._file.add_other()
            else:
                block["operator"] = PLUGIN_NAME
                block.update(_properties_of(archive, count, raw_bytes))
                if self._file.check and "checksum" in block:
                    cusz_core.check(archive)
                elif self._file.check and block["kind"] in ("packed", "raw"):
                    embedding.unpacked(bytes(archive))  # their checksum is in their header
        except PluginError:
            raise
        except Exception as error:  # of ADIOS2, or of a damaged archive: the other blocks are still worth listing
            block["error"] = without_colours(error)


class _Selection(enum.Enum):
    """What is asked for to make ADIOS2 decode a block. If the block is not compressed, no more than that is read."""

    ELEMENT = enum.auto()  # the first one, by its place in the global array
    ELEMENT_OF_BLOCK = enum.auto()  # of a local array, by the block's number
    BLOCK = enum.auto()  # all of it, by its number
    NONE = enum.auto()  # there is no way


def _selections(blocks: Sequence[Block], dtype: np.dtype[Any]) -> dict[int, _Selection]:
    """How ADIOS2 is asked for the blocks of a variable at a step, by index; single values and empty blocks have none.

    Args:
        dtype: of their values.
    """
    small = _BYTES_PER_LOOK * len(blocks)
    selections = {}
    for i, block in enumerate(blocks):
        size = math.prod(block["count"]) * dtype.itemsize
        if not block["count"] or size == 0:
            continue
        if "start" not in block:
            selections[i] = _Selection.ELEMENT_OF_BLOCK
        elif "writer" in block and size <= small:  # BP5 can read a single block, but only the whole of it
            selections[i] = _Selection.BLOCK
        else:
            selections[i] = _Selection.ELEMENT
    if _Selection.ELEMENT in selections.values():
        start = np.array([blocks[i]["start"] for i in selections], np.int64)
        overlaps = begin_in_others(start, np.array([blocks[i]["count"] for i in selections], np.int64))
        for i, does_overlap in zip(list(selections), overlaps, strict=True):
            if does_overlap:
                selections[i] = _Selection.BLOCK if "writer" in blocks[i] else _Selection.NONE
    return selections


def _properties_of(archive: NDArray[np.uint8], count: tuple[int, ...], raw_bytes: int) -> Block:
    """What the plugin has stored for a block of these extents.

    Raises:
        CorruptArchiveError, ArchiveTooNewError: it cannot be read, or does not belong to this block.
    """
    if mark := mark_of(archive):
        stored = len(archive)
        if stored != raw_bytes + len(mark):
            raise CorruptArchiveError(f"the block stores {stored - len(mark)} plain bytes and has extents {count}")
        block = Block(raw_bytes=raw_bytes, archive_bytes=stored, ratio=raw_bytes / stored, kind="plain")
        if mark in LOST_MARKS:
            block.update(Block(kind="lost", error="lost when it was written: its memory could not be read"))
        return block
    tag = bytes(archive[:4])
    if tag == VERBATIM_TAG and len(archive) != raw_bytes + PACKED_HEAD_BYTES:
        stored = len(archive) - PACKED_HEAD_BYTES
        raise CorruptArchiveError(f"the block stores {stored} bytes and has extents {count}")
    if tag.startswith((VERBATIM_TAG, PACKED_TAG)):
        kind = "raw" if tag == VERBATIM_TAG else "packed"
        block = Block(raw_bytes=raw_bytes, archive_bytes=len(archive), ratio=raw_bytes / len(archive), kind=kind)
        block.update(Block(mode="abs", eb=0.0, eb_abs=0.0, special=0, out_of_range=0, unpredictable=0))
        return block
    info = cusz_core.inspect(archive)
    if info.raw_bytes != raw_bytes:
        raise CorruptArchiveError(f"the archive holds {info.raw_bytes} raw bytes, the block has extents {count}")
    block = Block(
        raw_bytes=raw_bytes,
        archive_bytes=info.archive_bytes,
        ratio=info.ratio,
        kind=info.kind,
        shape=info.shape,
        mode=info.mode,
        eb=info.eb,
        eb_abs=info.eb_abs,
        bins=info.bins,
        special=info.special,
        out_of_range=info.out_of_range,
        unpredictable=info.unpredictable,
        version=info.version,
        checksum=info.checksum,
    )
    if info.predictor is not None:
        block["predictor"] = info.predictor
    return block


def _as_given(block: Block, times: int) -> Block:
    """The block with the size of its values as they were given; they are stored in `times` as many bytes."""
    if "raw_bytes" in block:
        block["raw_bytes"] //= times
        block["ratio"] /= times
    return block


def _describes(table: NDArray[Any], blocks: Sequence[Block]) -> bool:
    """Whether a block table has a row of the right extents for each of these blocks."""
    # BP4 gives no extents for a block without elements.
    in_table = [tuple(count) if 0 not in count else (0,) for count in table["count"].tolist()]
    return in_table == [block["count"] if 0 not in block["count"] else (0,) for block in blocks]


def _add_row(block: Block, row: NDArray[Any]) -> None:
    """Adds what the block table says about a block."""
    block["device"], block["seconds"] = int(row["device"]), float(row["seconds"])
    if not math.isnan(row["min"]):
        block["min"], block["max"] = float(row["min"]), float(row["max"])
    if "checksum" in block and block["checksum"] != int(row["checksum"]):
        block["error"] = "its archive is not the one that the block table describes"
