"""What is in a BP file: every block, with the properties of its archive."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

import cusz_core
from cusz_core.errors import CorruptArchiveError, CuszError, UnsupportedError

from . import blocktable, checks
from .errors import PluginError
from .plugin import PLUGIN_NAME, Plugin, without_colours

__all__ = ["Block", "inspect_bp"]

#: The types that the plugin compresses, by ADIOS2's names.
DTYPES: dict[str, np.dtype[Any]] = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
OVERHEAD_BYTES = 48  # CUSZ_RAW_OVERHEAD_BYTES
#: Blocks of the plugin that are not archives begin with one of these 16-byte marks (plugin.cpp).
PLAIN_MARK = b"cusz-plain-bytes"
LOST_MARK = b"cusz-lost-block\0"


class Block(TypedDict, total=False):
    """One block of a variable at one step, as plain values that JSON can hold.

    Always present:
        variable: its name.
        type: ADIOS2's name for its type, such as "float".
        step: as ADIOS2 counts them, from 0.
        block: the block's number within variable and step.
        count: extents; () for a single value.
        operator: "cusz", "none or other", or "" for an empty block, which is not read.
    Where applicable:
        writer: the rank that wrote it; unknown in BP4.
        start: offset in the global array; not for local arrays and single values.
        error: why the block cannot be read, or why its archive is invalid.
    For archives, as in `cusz_core.ArchiveInfo`:
        raw_bytes, archive_bytes, ratio, kind, mode, eb, eb_abs, bins, special, out_of_range, unpredictable, version.
    From the block table of a Writer:
        device (number of the CUDA device that held the field, -1: host memory), min, max (of values that are finite and
        not fill; absent if the Writer was told not to compute them), checksum (of the archive's payload), seconds
        (spent compressing).
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
    mode: str
    eb: float
    eb_abs: float
    bins: int
    special: int
    out_of_range: int
    unpredictable: int
    version: int
    device: int
    min: float
    max: float
    checksum: int
    seconds: float
    error: str


def inspect_bp(path: str | os.PathLike[str]) -> Iterator[Block]:
    """Every block in a BP file (BP5 or BP4), by step, variable and block.

    Archives are fetched whole but not decoded: only their headers are read. Variables that are not compressed by this
    plugin are listed as such. Block tables are not listed; they add to the description of their variables' blocks. A
    file that is still being written is listed as far as it is complete.

    Args:
        path: the .bp folder or file.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptArchiveError: its metadata is damaged, according to the Writer's checksums.
        PluginError: the plugin or adios2 is missing, or ADIOS2 loaded another copy of the plugin.
        UnsupportedError: this adios2 is older than 2.11.
    """
    path = os.fspath(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"{path!r} does not exist")
    checks.verify(Path(path))
    adios2 = import_adios2()
    plugin = Plugin()
    return _blocks(adios2, plugin, path)


def import_adios2() -> Any:
    try:
        import adios2
    except ImportError as error:
        raise PluginError(
            f"Python's adios2 cannot be imported ({error}): run scripts/setup, or install ADIOS2 >= 2.11 with Python"
        ) from error
    if not hasattr(adios2, "Mode"):
        raise UnsupportedError(
            f"Python's adios2 is {adios2.__version__}, whose interface lacks what is needed here: "
            "install 2.11 or newer (the plugin alone works with 2.10, too)"
        )
    return adios2


def _blocks(adios2: Any, plugin: Plugin, path: str) -> Iterator[Block]:
    io = adios2.Adios().declare_io("cusz_inspect")
    io.set_parameters({"OpenTimeoutSecs": "1"})
    try:
        engine = io.open(path, adios2.Mode.Read)
    except Exception as error:
        raise CuszError(f"ADIOS2 cannot open {path!r}: {without_colours(error)}") from error
    # BP5 gives the rank that wrote a block, BP4 the number of a file.
    tells_writer = engine.impl.Type().startswith("BP5")
    try:
        while engine.begin_step(adios2.StepMode.Read, 0.0) == adios2.StepStatus.OK:
            step = engine.current_step()
            for name, description in sorted(io.available_variables().items()):
                if blocktable.is_table(name):
                    continue
                infos = engine.blocks_info(name, step)
                blocks = [_describe(name, description, step, info, tells_writer) for info in infos]
                for block, overlaps in zip(blocks, _overlap_at_start(blocks), strict=True):
                    if block["type"] in DTYPES and block["count"] and math.prod(block["count"]) > 0:
                        _add_archive(block, overlaps, adios2, plugin, engine, io.inquire_variable(name))
                _add_table(blocks, name, adios2, engine, io)
                yield from blocks
            engine.end_step()
    finally:
        engine.close()


def _describe(name: str, description: dict[str, str], step: int, info: dict[str, str], tells_writer: bool) -> Block:
    """A block as ADIOS2 describes it."""
    block = Block(variable=name, type=description["Type"], step=step, block=int(info["BlockID"]))
    if tells_writer:
        block["writer"] = int(info["WriterID"])
    is_value = info["IsValue"] == "True"
    if description["Shape"] and not is_value:
        block["start"] = extents_of(info["Start"])
    # BP4 gives a global array of no elements no extents.
    block["count"] = () if is_value else extents_of(info["Count"]) or (0,)
    block["operator"] = "none or other" if math.prod(block["count"]) > 0 else ""
    return block


def _add_table(blocks: list[Block], name: str, adios2: Any, engine: Any, io: Any) -> None:
    """Adds what the variable's block table says about its blocks, if there is a table that matches them."""
    variable = io.inquire_variable(blocktable.table_name(name))
    if variable is None:
        return
    shape = variable.shape()
    rows = np.empty(shape, np.float64)
    try:
        variable.set_selection([[0] * len(shape), shape])
        engine.get(variable, rows, adios2.Mode.Sync)
        table = blocktable.table_of(rows, name)
    except Exception:  # the blocks are still listed
        return
    if len(table) != len(blocks):
        return
    for block, row in zip(blocks, table, strict=True):
        if block["count"] == tuple(row["count"].tolist()):
            block["device"], block["checksum"] = int(row["device"]), int(row["checksum"])
            block["seconds"] = float(row["seconds"])
            if not math.isnan(row["min"]):
                block["min"], block["max"] = float(row["min"]), float(row["max"])


def _overlap_at_start(blocks: list[Block]) -> list[bool]:
    """For every block of a variable and step: whether its first element also lies in another block."""
    if not all("start" in block for block in blocks):
        return [False] * len(blocks)
    starts = np.array([block["start"] for block in blocks])
    ends = starts + np.array([block["count"] for block in blocks])
    return [int(np.all((starts <= start) & (start < ends), axis=1).sum()) > 1 for start in starts]


def _add_archive(block: Block, overlaps: bool, adios2: Any, plugin: Plugin, engine: Any, variable: Any) -> None:
    """What the block's archive says of itself, if it is one of this plugin."""
    count = block["count"]
    dtype = DTYPES[block["type"]]
    ones = [1] * len(count)
    # Only one element is asked for, so that no more than that is read of an uncompressed block.
    if "start" not in block:  # a local array
        variable.set_block_selection(block["block"])
        variable.set_selection([[0] * len(count), ones])
        target = np.empty(ones, dtype)
    elif not overlaps:
        variable.set_selection([list(block["start"]), ones])
        target = np.empty(ones, dtype)
    elif "writer" in block:  # BP5 can read a single block, but only the whole of it
        variable.set_block_selection(block["block"])
        target = np.empty(count, dtype)
    else:
        block["error"] = "overlaps another block: it cannot be read on its own from a BP4 file"
        return

    def get() -> None:
        engine.get(variable, target, adios2.Mode.Sync)

    try:
        archive = plugin.capture(block["variable"], math.prod(count) * dtype.itemsize + OVERHEAD_BYTES, get)
        if archive is None:
            return
        block["operator"] = PLUGIN_NAME
        mark = bytes(archive[:16])
        if mark in (PLAIN_MARK, LOST_MARK):
            raw, stored = math.prod(count) * dtype.itemsize, len(archive)
            if stored != raw + len(mark):
                raise CorruptArchiveError(f"the block stores {stored - len(mark)} plain bytes and has extents {count}")
            block.update(Block(raw_bytes=raw, archive_bytes=stored, ratio=raw / stored, kind="plain"))
            if mark == LOST_MARK:
                block.update(Block(kind="lost", error="lost when it was written: its memory could not be read"))
            return
        info = cusz_core.inspect(archive)
        if info.raw_bytes != math.prod(count) * dtype.itemsize:
            raise CorruptArchiveError(f"the archive holds {info.raw_bytes} raw bytes, the block has extents {count}")
    except PluginError:
        raise
    except Exception as error:  # of ADIOS2, or of a damaged archive: the other blocks are still worth listing
        block["error"] = without_colours(error)
        return
    block.update(
        Block(
            raw_bytes=info.raw_bytes,
            archive_bytes=info.archive_bytes,
            ratio=info.ratio,
            kind=info.kind,
            mode=info.mode,
            eb=info.eb,
            eb_abs=info.eb_abs,
            bins=info.bins,
            special=info.special,
            out_of_range=info.out_of_range,
            unpredictable=info.unpredictable,
            version=info.version,
        )
    )


def extents_of(text: str) -> tuple[int, ...]:
    return tuple(int(extent) for extent in text.split(",") if extent)
