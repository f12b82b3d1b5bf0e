"""The ADIOS2 side of a Writer's file or stream: finished archives are handed over to the plugin, which stores them.

Only the calls that ADIOS2 makes collective communicate: constructing, `open`, `begin_step`, `end_step` and `close`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cusz_core.errors import CuszError, ParameterError, UnsupportedError

from .. import ranks
from ..adios2_calls import converted
from ..parameters import define_operator
from ..plugin import Plugin, keep_for_ever, without_colours
from ..streams import told_apart
from ..tables import blocktable, checks, statistics
from ..tables.representation import PARTS, attribute_name, is_exact, is_packed, require_text
from .agreement import Description, Value
from .blocks import Blocks
from .claim import Claim
from .compression import Compressed


class Output:
    """An engine that writes archives and block tables.

    Attributes:
        absolute: the path of a file.
        has_statistics: whether ADIOS2 keeps the minimum and maximum of blocks.
        is_in_step: whether a step has begun and is not complete.
        late_attributes: names of attributes set since the last step ended, if there was one: ADIOS2 stores attributes
            with a step, or in a file without steps.
    """

    def __init__(self, adios2: Any, path: str, engine: str, comm: Any, attributes: Mapping[str, str]) -> None:
        """
        Args:
            adios2: the module.
            path: the .bp folder, or the stream.
            engine: "BP5", "BP4" or "SST".
            comm: an mpi4py communicator; None: this process alone.
            attributes: the types of those in the file that is appended to.
        """
        self._adios2 = adios2
        self._path = path
        self.absolute = os.path.join(os.getcwd(), path)  # the program may change its working directory
        self._engine_name = engine
        self._attributes = attributes
        self._comm = [] if comm is None else [comm]
        self._engine: Any = None
        self._fields: dict[str, Any] = {}  # variables by name
        self._tables: dict[str, Any] = {}
        self._with_dimensions: set[str] = set()  # variables whose dimensions' names are stored
        self._adios = adios2.Adios() if comm is None else adios2.Adios(comm=comm)
        self._checks: checks.Recorder | None = None  # of a file, on rank 0
        self._claim: Claim | None = None  # as well
        self._table_checks: dict[str, int] = {}  # of the open step
        self._records: dict[str, checks.VariableRecord] = {}  # of the open step
        self._step = 0
        self._is_drained = False  # from a burst buffer, where files grow first
        self._leaves_as_it_was = False
        self.has_statistics = False
        self.is_in_step = False
        self.late_attributes: list[str] = []
        self._has_steps = False
        _OUTPUTS.add(self)

    @property
    def is_file(self) -> bool:
        return self._engine_name != "SST"

    def prepare(self) -> None:
        """Makes ADIOS2 load the plugin.

        Raises:
            PluginError: it cannot, or it loaded another copy.
        """
        self._operator = define_operator(self._adios, eb=0.0)  # never asked to compress
        self.plugin = Plugin()
        self._io = self._adios.declare_io("cusz_writer")
        self._io.set_engine(self._engine_name)

    def open(self, parameters: Mapping[str, str], has_statistics: bool, append: bool, record_checks: bool) -> None:
        """
        Args:
            parameters: of the engine.
            has_statistics: whether ADIOS2 keeps the minimum and maximum of blocks.
            append: whether to add steps to an existing file.
            record_checks: whether this rank writes the checksums of the file.

        Raises:
            CuszError: ADIOS2 cannot open it.
        """
        self.has_statistics = has_statistics
        self._is_drained = any(key.lower() == "burstbufferpath" and value for key, value in parameters.items())
        # If no step was appended, ADIOS2 2.12 adds an empty one when it closes a BP4 file, and crashes when it closes
        # one that it would write in the background.
        in_background = any(key.lower() == "asyncwrite" for key in parameters)
        self._leaves_as_it_was = append and (in_background or self._engine_name == "BP4")
        self._has_steps = append
        mode = self._adios2.Mode.Append if append else self._adios2.Mode.Write
        try:
            self._io.set_parameters({**parameters, "StatsLevel": str(int(has_statistics))})
            with contextlib.ExitStack() as stack:
                for comm in [] if self.is_file else self._comm:
                    stack.enter_context(told_apart(self._adios2, comm, parameters))
                # ADIOS2 puts the path of the burst buffer in front of the file's.
                path = self.absolute if self.is_file and not self._is_drained else self._path
                self._engine = self._io.open(path, mode, *self._comm)
            if record_checks and self.is_file:
                kept_steps = int(self._engine.current_step()) if append else 0
                self._checks = checks.Recorder(Path(self.absolute), kept_steps)
                self._claim = Claim(Path(self.absolute))
        except Exception as error:
            raise converted(error, "cannot open it") from error

    def watch(self, what: str, others: int) -> AbstractContextManager[None]:
        """While all ranks are in a call of ADIOS2: ends this process, and so the job, if the call does not return.

        If a write fails on one rank, ADIOS2 may leave all ranks waiting for each other, without a message. This is
        assumed when nothing in the folder has changed for `ranks.PATIENCE` plus a tenth of it, or 2 s if that is more:
        time for a rank to report its error (`Ranks.agree_after_adios2`). Only rank 0 watches, so that not all ranks of
        a large job poll the folder.

        Args:
            what: what is being done, for the message.
            others: number of ranks that this one watches over; 0: it does not watch.
        """
        if others == 0 or not self.is_file or self._is_drained:
            return contextlib.nullcontext()
        patience = ranks.PATIENCE + max(ranks.PATIENCE / 10, 2.0)
        return self.plugin.watch(
            self.absolute,
            patience,
            f"cusz_operator: {self._path!r}: {what}: ADIOS2 does not come back, and nothing in the folder has changed "
            f"for {patience:g} s: it has failed on a rank, and left all of them waiting. (Is the disk full, or a "
            "quota? CUSZ_PATIENCE sets how many seconds to wait.) The job is ended; complete steps are in the file.",
        )

    def attribute(self, name: str, value: Any) -> None:
        """Stores an attribute.

        Raises:
            UnsupportedError, ParameterError: it cannot be stored.
        """
        what = f"the attribute {name!r}"
        require_text(name, "the name of an attribute", self._engine_name)
        if not isinstance(value, (str, list, bool)):
            array = np.asarray(value)
            # ADIOS2 takes the memory as it is, whatever its strides and byte order.
            value = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
            value = value.tolist() if value.dtype.kind == "U" else value
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        for text in texts:
            if isinstance(text, str):
                require_text(text, what, self._engine_name)
        if self._engine_name != "BP5" and isinstance(value, list):
            raise UnsupportedError(f"{what} is a list, which {self._engine_name} cannot write: pass a text or an array")
        if self._engine_name == "SST" and np.iscomplexobj(value):
            raise UnsupportedError(f"{what} is complex, which SST does not send: pass real and imaginary parts")
        if self._engine_name == "BP4" and isinstance(value, np.ndarray) and value.size == 0:
            raise UnsupportedError(f"{what} is an array of no numbers, which BP4 cannot write")
        if name in self._attributes:
            # The engine stores what is defined, even if it is removed again, so the type is found without it.
            with _defining(name):
                adios = self._adios2.Adios()  # which has to live as long as what is made of it
                io = adios.declare_io("cusz_types")
                kind = io.define_attribute(name, value).type()
            if kind != self._attributes[name]:
                raise ParameterError(
                    f"{what} is of type {self._attributes[name]} in the file, and would be {kind} in what is appended, "
                    "with which ADIOS2 could not open the file"
                )
        with _defining(name):
            self._io.define_attribute(name, value)
        if self._has_steps:
            self.late_attributes.append(name)

    def begin_step(self) -> None:
        self.is_in_step = True
        self._engine.begin_step()
        self._leaves_as_it_was = False
        self._step = self._engine.current_step()
        self._table_checks.clear()
        self._records.clear()

    def describe(self, block: Description) -> None:
        """Defines a variable before its first block is put, and its attributes: the same on all ranks."""
        whole = block.name
        if block.given.startswith("complex"):
            whole = next(whole.removesuffix(part) for part in PARTS if whole.endswith(part))
        if block.name not in self._fields:
            zeros = [0] * len(block.shape)
            kind = np.zeros(1, block.dtype)
            variable = self._io.define_variable(block.name, kind, list(block.shape), zeros, list(block.shape))
            if not is_exact(kind.dtype) or is_packed(block.parameters):
                variable.add_operation(self._operator)
            self._fields[block.name] = variable
            if block.given != block.dtype and block.name != whole + PARTS[1]:  # described with the real part
                self.attribute(attribute_name(whole), block.given)
        if block.dimensions and whole not in self._with_dimensions:
            self.attribute(f"{whole}/dimensions", " ".join(block.dimensions))
            self._with_dimensions.add(whole)

    def put(self, blocks: Blocks, made: Compressed) -> None:
        """Hands over the archives of a variable's blocks, or puts the blocks if they are stored as they are.

        Raises:
            PluginError: an archive was not stored.
        """
        variable = self._fields[blocks.name]
        variable.set_shape(list(blocks.shape))
        if is_exact(blocks.dtype) and not is_packed(blocks.parameters):
            for field, start, count in zip(blocks.fields, blocks.start, blocks.count, strict=True):
                variable.set_selection([start, count])
                self._engine.put(variable, field, self._adios2.Mode.Sync)
            return
        ranges = _ranges_of(blocks, made.ranges) if self.has_statistics else itertools.repeat(None)
        hand = statistics.HandingOver(self._adios2, self.plugin, self._engine, variable, blocks.dtype)
        for start, count, archive, found in zip(blocks.start, blocks.count, made.archives, ranges, strict=False):
            hand.put(start, count, archive, found)

    def put_value(self, value: Value) -> None:
        """Puts one number or text (on rank 0)."""
        is_text = isinstance(value.value, str)
        variable = self._fields.get(value.name)
        if variable is None:
            variable = self._io.define_variable(value.name, "" if is_text else np.zeros(1, value.dtype))
            self._fields[value.name] = variable
        content = value.value if is_text else np.array([value.value])
        self._engine.put(variable, content, self._adios2.Mode.Sync)

    def put_nothing(self) -> None:
        """Fills a step without variables (on rank 0): ADIOS2 cannot read a BP4 file with such a step between others."""
        if self._engine_name == "BP4":
            self.put_value(Value(blocktable.table_name(""), np.float64(0)))

    def put_table(self, name: str, rows: NDArray[np.float64], before: int, blocks: int) -> None:
        """Puts rows of the block table of a variable.

        Args:
            rows: as they are stored, except for the number of the step, which is set here.
            before: the number of rows before these.
            blocks: the number of all rows.
        """
        blocktable.set_step(rows, self._step)
        crc = zlib.crc32(rows.data)
        behind = (blocks - before - len(rows)) * rows.shape[1] * rows.itemsize
        self._table_checks[name] = checks.crc_before(crc, behind) if behind else crc
        shape = [blocks, rows.shape[1]]
        variable = self._tables.get(name)
        if variable is None:
            variable = self._io.define_variable(blocktable.table_name(name), rows, shape, [0, 0], shape)
            self._tables[name] = variable
        variable.set_shape(shape)
        variable.set_selection([[before, 0], list(rows.shape)])
        self._engine.put(variable, rows, self._adios2.Mode.Sync)

    def record(self, records: Mapping[str, checks.VariableRecord], combine: Callable[[NDArray[Any]], Any]) -> None:
        """Notes what was asked for each variable, and the checksum of its block table. (A stream keeps no record.)

        Args:
            combine: gives rank 0 the exclusive or of all ranks' numbers (may be collective).
        """
        own = np.array([self._table_checks.get(name, 0) for name in records], np.uint32)
        self._table_checks = dict(zip(records, combine(own).tolist(), strict=True))
        self._records.update(records)

    def end_step(self) -> None:
        self._engine.end_step()
        self.is_in_step = False
        self._has_steps = True
        self.late_attributes.clear()
        if self._checks is not None:
            self._checks.record(self._step, self._table_checks, self._records)

    def require_folder(self) -> None:
        """Makes sure, on rank 0, that the folder of a file is where it was.

        Raises:
            CuszError: it is not.
        """
        if self._claim is not None:
            self._claim.require_folder()

    def close(self) -> None:
        if self._leaves_as_it_was:
            self.abandon()
            return
        engine, self._engine = self._engine, None
        caught = ranks.Caught()
        with caught:
            self.require_folder()
        try:
            with caught:
                engine.close()  # even if the folder is gone: other ranks are in this call, too
            if caught.error is not None:
                raise caught.error
            if self._checks is not None:
                self._checks.record()
        finally:
            self._leave()

    def abandon(self) -> None:
        """Drops the file without completing the open step (closing would complete it)."""
        self._leave()
        self._engine = None
        self._fields.clear()
        self._tables.clear()
        self._io = self._operator = self._adios = None

    def _leave(self) -> None:
        if self._checks is not None:
            self._checks.close()
        if self._claim is not None:
            self._claim.release()

    def keep_for_ever(self) -> None:
        """Keeps ADIOS2's destructors from being called: after a failure they would fail again and end the process."""
        keep_for_ever(self._adios)

    def disown(self) -> None:
        """Leaves the file, in a child made by fork, to the parent. ADIOS2's destructors would write to it, or wait for
        threads that the child does not have."""
        self.keep_for_ever()
        if self._claim is not None:
            self._claim.disown()


@contextlib.contextmanager
def _defining(name: str) -> Iterator[None]:
    """Raises ADIOS2's errors as those of an attribute that it refuses."""
    try:
        yield
    except Exception as error:
        raise ParameterError(
            f"ADIOS2 refuses the attribute {name!r}: {without_colours(error)}: "
            "pass a text, a list of texts, a number or an array of numbers"
        ) from error


_OUTPUTS: weakref.WeakSet[Output] = weakref.WeakSet()


def _disown_all() -> None:
    for output in list(_OUTPUTS):
        output.disown()


os.register_at_fork(after_in_child=_disown_all)


def _ranges_of(blocks: Blocks, found: NDArray[np.float64]) -> Iterable[NDArray[Any]]:
    """Minimum and maximum of every block, in the blocks' type; without values, NaN (0 for integers)."""
    if is_exact(blocks.dtype):  # float64 does not hold large integers
        return [np.array([field.min(), field.max()] if field.size else [0, 0], blocks.dtype) for field in blocks.fields]
    return np.where(found[:, 2:] > 0, found[:, :2], np.nan).astype(blocks.dtype)


def free_bytes(path: str) -> float:
    """The bytes that are free on the disk; infinite if the file system does not say."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize if disk.f_blocks > 0 else math.inf


def require_room(needed: int, free: float) -> None:
    """Refuses a step that does not fit on the disk: ADIOS2 would fail on one rank and leave the others waiting."""
    if free < needed:
        raise CuszError(f"the disk is full: the step needs up to {needed} bytes, and {free:.0f} are free")
