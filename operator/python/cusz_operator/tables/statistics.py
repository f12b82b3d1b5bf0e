"""Minimum and maximum of blocks, as ADIOS2 keeps them and `bpls -l` shows them, for blocks that it never sees.

ADIOS2 computes them from the data put, and does not accept them from outside. BP5 and SST look at as many values as are
selected, then call the operator, and record the selection afterwards. So two values are put, the minimum and the
maximum; and while the plugin is called, the block itself is selected. This order (ADIOS2 2.10 to 2.12) is not
documented, so it is tried before it is relied on (`problem`).

BP4 records everything before it calls the operator, and would have to look at as many values as the block has: it has
no statistics.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cusz_core

from ..adios2_calls import calling_adios2
from ..parameters import define_operator
from ..plugin import Plugin, PutRange, keep_for_ever, without_colours

_TYPES = ("float", "double")
_TRIAL = "trial of statistics"  # a variable's name


class HandingOver:
    """Puts finished archives as blocks of a variable."""

    def __init__(self, adios2: Any, plugin: Plugin, engine: Any, variable: Any, dtype: np.dtype[Any]) -> None:
        """
        Args:
            dtype: of the variable.
        """
        self._plugin, self._engine, self._variable, self._dtype = plugin, engine.impl, variable.impl, dtype
        self._name = variable.name()
        self._is_bp4 = str(self._engine.Type()).startswith("BP4")
        self._sync, self._deferred = adios2.Mode.Sync, adios2.Mode.Deferred
        self._start: Sequence[int] = ()  # of the block that is being put

    def put(
        self, start: Sequence[int], count: Sequence[int], archive: bytes | memoryview, found: NDArray[Any] | None
    ) -> None:
        """Puts an archive.

        Args:
            start, count: of the block.
            found: minimum and maximum of its values, NaN if there are none, for an engine with StatsLevel 1; None for
                one with StatsLevel 0.

        Raises:
            PluginError: it was not stored.
        """
        self._start = start
        if self._is_bp4 and not any(count):  # BP4 does not call the operator
            self._select(count)
            self._engine.Put(self._variable, np.empty(count, self._dtype), self._sync)
            return
        put_range, selected = None, count
        if found is not None:
            low, high = found.tolist()
            selected = _extents_of_two(tuple(count)) if low < high else (1,) * len(count)
            put_range = PutRange(np.ascontiguousarray(found, self._dtype), selected, self._select)
        self._select(selected)
        self._plugin.hand_over(self._name, self._dtype, count, archive, self._put_at, put_range)

    def _select(self, extents: Sequence[int]) -> None:
        self._variable.SetSelection((self._start, extents))

    def _put_at(self, address: int) -> None:
        # In mode Sync, BP4 reserves too little if an archive is as large as its block: it does not count what it writes
        # to a step before the first block.
        self._engine.Put(self._variable, address, self._deferred if self._is_bp4 else self._sync)
        if self._is_bp4:
            self._engine.PerformPuts()


@functools.lru_cache(1024)
def _extents_of_two(count: tuple[int, ...]) -> tuple[int, ...]:
    """Extents of two elements within a block of more than one."""
    longest = count.index(max(count))
    return tuple(2 if axis == longest else 1 for axis in range(len(count)))


def are_in(adios2: Any, path: Path) -> bool | None:
    """Whether a file has statistics; None if it has no variable to tell by.

    A file must have them for all steps or for none: otherwise BP5 readers crash.
    """
    with calling_adios2(f"read {str(path)!r}"), adios2.FileReader(str(path)) as run:
        fields = [v for v in run.available_variables().values() if v["Type"] in _TYPES and v["SingleValue"] != "true"]
        ranges = [(float(v["Min"]), float(v["Max"])) for v in fields]
        # Without statistics, ADIOS2 reports 0 for both or, after 2.12, a minimum above the maximum, as it does if no
        # value is finite. A Writer's files have block tables, which are finite and never all zero.
        return any((low or high) and not low > high for low, high in ranges) if ranges else None


@functools.cache
def problem() -> str:
    """Why `HandingOver` cannot pass this ADIOS2 a range; "" if it can. Tried once per process, with a small file."""
    import tempfile  # here, because every rank of a simulation imports this module

    try:
        with tempfile.TemporaryDirectory(prefix="cusz-") as folder:
            found = _problem_of(Path(folder) / "trial.bp")
            with contextlib.suppress(OSError):  # which ADIOS2 leaves behind for every file that it has read
                Path(f"/tmp/trial.bp_{os.getpid():x}_profiling.json").unlink()
            return found
    except Exception as error:
        return " ".join(without_colours(error).split()) or type(error).__name__


@functools.cache
def warn(why: str) -> None:
    """Warns, once per process, that files will have no statistics."""
    print(
        "cusz_operator: bpls -l will show 0 / 0, and minimum and maximum of blocks are only in the block tables "
        f"(cusz inspect), because a trial with this ADIOS2 failed: {why}",
        file=sys.stderr,
        flush=True,
    )


def _problem_of(path: Path) -> str:
    """Writes a file of two blocks as a Writer does, and returns what is wrong with it."""
    import adios2

    field = np.arange(-30, 30, dtype=np.float32).reshape(10, 6)
    blocks = {"0,0": field[:4], "4,0": field[4:]}
    adios = adios2.Adios()
    io = adios.declare_io("cusz_trial")
    io.set_engine("BP5")
    io.set_parameters({"StatsLevel": "1"})
    variable = io.define_variable(_TRIAL, field, list(field.shape), [0, 0], list(field.shape))
    variable.add_operation(define_operator(adios, eb=0.0))
    engine = io.open(str(path), adios2.Mode.Write)
    try:
        engine.begin_step()
        for start, part in blocks.items():
            found = np.array([part.min(), part.max()])
            hand = HandingOver(adios2, Plugin(), engine, variable, part.dtype)
            hand.put([int(s) for s in start.split(",")], part.shape, cusz_core.compress(part, 0.0), found)
        engine.end_step()
        engine.close()
    except BaseException:
        keep_for_ever(adios)
        raise

    with adios2.FileReader(str(path)) as run:
        shown = [
            (block["Start"], block["Count"], float(block["Min"]), float(block["Max"]))
            for block in run.engine.blocks_info(_TRIAL, 0)
        ]
        expected = [(start, "{},{}".format(*part.shape), part.min(), part.max()) for start, part in blocks.items()]
        if shown != expected:
            return f"for blocks {expected} it kept {shown}"
        return "" if np.array_equal(run.read(_TRIAL), field) else "the values of blocks differ"
