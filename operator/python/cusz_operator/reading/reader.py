"""Reading: any number of ranks, each reading any part, with decoding outside ADIOS2."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, overload

import numpy as np

from cusz_core.errors import CuszError, ParameterError

from ..adios2_calls import close_after
from ..tables.boxes import Extents
from ..tables.stored import INTEGERS
from .contents import Contents
from .steps import ReaderStep

Engine = Literal["BP5", "BP4", "SST"]

_NOT_COMPRESSED = "not compressed by cusz"


class Reader:
    """Reads variables of a file (BP5 or BP4) or stream (SST), whatever program wrote them.

        with Reader("run.bp", comm) as run:
            print(run)  # a line for each variable
            for step in run:  # for a file also run[i], run[-1]
                u = step.read("U")
            u = run["U"].read(step=3, start=(0, 8, 8), count=(4, 16, 16))

    Blocks compressed by this plugin are decoded outside ADIOS2: several at a time, and only the tiles that are needed.
    Everything else is read by ADIOS2. What is known about every block of a Writer's variables is in their block tables,
    which are not listed as variables.

    Every rank reads independently: no call is collective, and an error concerns that rank alone. The exceptions are
    opening a stream, going to its next step, and closing it before its end, which are collective: if a rank leaves the
    stream, because it has failed for example, the others get an error, too, when they go to the next step. Several
    threads may read from one Reader, and so may a child made by `os.fork` or `multiprocessing` from one of a file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        comm: Any = None,
        *,
        engine: Engine | None = None,
        parameters: Mapping[str, Any] | None = None,
        threads: int | None = None,
        cache_bytes: int = 2**28,
    ) -> None:
        """
        Args:
            path: the .bp folder, or the name of the stream.
            comm: an mpi4py communicator, for the share of a rank, and for a stream; None: this process reads all.
            engine: "SST" for a stream, which must appear within a minute (`OpenTimeoutSecs` in `parameters`); "BP5" or
                "BP4" for a file; None: as it was written.
            parameters: of the engine, as ADIOS2 takes them.
            threads: CPU threads that decode; None as in `cusz_core.compress`.
            cache_bytes: archives are kept for later reads up to this many bytes; 0: none are. Those of a stream are
                dropped with their step.

        Raises:
            FileNotFoundError: there is no such file.
            NotADirectoryError: it is a file, not a .bp folder.
            ParameterError: a parameter out of its legal range.
            CorruptArchiveError: its metadata is damaged, or it is truncated.
            PluginError: the plugin or adios2 is missing, or several copies of the plugin are loaded.
            CuszError: ADIOS2 cannot open it.
        """
        if engine not in (None, "BP5", "BP4", "SST"):
            raise ParameterError(f"engine is {engine!r}; it must be 'BP5', 'BP4', 'SST' or None")
        self._contents = Contents(os.fspath(path), comm, engine, parameters, threads, cache_bytes)
        self._path, self._input = self._contents.path, self._contents.input

    def __len__(self) -> int:
        """The number of steps of a file."""
        if self._input.is_stream:
            raise ParameterError(f"the stream {self._path!r} has no length: iterate over its steps")
        return self._input.n_steps

    @overload
    def __getitem__(self, index: int) -> ReaderStep: ...
    @overload
    def __getitem__(self, index: str) -> ReaderVariable: ...
    def __getitem__(self, index: int | str) -> ReaderStep | ReaderVariable:
        """A step of a file by its number, from 0 (negative ones count from the end), or a variable by its name.

        Raises:
            IndexError: there is no such step.
            ParameterError: there is no such variable.
            TypeError: it is neither an integer nor a text.
        """
        if isinstance(index, str):
            self._contents.entry(index)
            return ReaderVariable(self, index)
        try:
            step = operator.index(index)
        except TypeError:
            kind = type(index).__name__
            raise TypeError(f"steps are numbered by integers, and variables named by texts, not {kind}") from None
        if not -len(self) <= step < len(self):
            raise IndexError(f"step {step}: {self._path!r} has {len(self)} steps")
        return ReaderStep(self._contents, step % len(self))

    def __iter__(self) -> Iterator[ReaderStep]:
        """Steps in order. A stream's step is valid until the next one is requested, or the loop is left."""
        steps = self._contents.received() if self._input.is_stream else range(len(self))
        return (ReaderStep(self._contents, step) for step in steps)

    def __contains__(self, name: object) -> bool:
        """Whether there is a variable of this name: in a file, or in the open step of a stream."""
        return name in self._contents.names()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        close_after(error, lambda: self._contents.close(error))

    def __repr__(self) -> str:
        if not self._input.is_open:
            return f"<Reader of {self._path!r}, closed>"
        if self._input.is_stream and self._input.current is None:
            return f"<Reader of the stream {self._path!r}, between steps>"
        n_steps = "a step" if self._input.is_stream else _counted(len(self), "step")
        return (
            "\n".join([f"<Reader of {self._path!r}: {n_steps}", *(f"  {v!r}" for v in self.variables.values())]) + ">"
        )

    @property
    def variables(self) -> dict[str, ReaderVariable]:
        """The variables by name: those of a file, or of the open step of a stream; without block tables."""
        return {name: ReaderVariable(self, name) for name in self._contents.names()}

    @property
    def bytes_read(self) -> int:
        """Bytes of archives that this process has read so far, from data files or from ADIOS2: the difference is what a
        read of a level costs. (What ADIOS2 reads of variables that are not compressed is not counted.)"""
        return self._contents.bytes_read

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes by name: a text, a list of texts, or an array of numbers. (Of a stream: those received so far.)"""
        return self._input.attributes()

    def close(self) -> None:
        """Closes the file or stream (a stream that has not ended: collective). A second call does nothing.

        Raises:
            CuszError: ADIOS2 cannot close it.
        """
        self._contents.close(None)


class ReaderVariable:
    """A variable of a Reader, over all steps that have it.

    Attributes:
        name: of the variable.
    """

    def __init__(self, reader: Reader, name: str) -> None:
        self._reader = reader
        self._contents, self._input = reader._contents, reader._input
        self.name = name

    def __repr__(self) -> str:
        try:
            return self._in_words()
        except CuszError as error:  # the others are still listed
            return f"{self.name}: {error}"

    def _in_words(self) -> str:
        step, entry = self._last(), self._contents.entry(self.name)
        shape = self._input.shape(entry.stored[0], step.index)
        size = "blocks without a global shape" if shape is None else str(shape) if shape else "one value"
        having = self.steps
        words = [f"{self.name}: {entry.given or entry.type}, {size}"]
        if not self._input.is_stream and having != list(range(len(self._reader))):
            words.append(f"at steps {having[0]} to {having[-1]}, {_counted(len(having), 'step')}")
        if shape:
            words.append(_counted(len(self._contents.blocks(entry.stored[0], step.index).table), "block"))
            words += step_summary(step, entry.stored[0])
        return ", ".join(words)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its values; object for texts.

        Raises:
            UnsupportedError: numpy has no such type.
        """
        return self._contents.dtype(self.name)

    @property
    def steps(self) -> list[int]:
        """The steps that have it."""
        return list(self._input.steps_of(self._contents.entry(self.name).stored[0]))

    @property
    def shape(self) -> Extents:
        """Its global shape at the last step that has it; () for one value.

        Raises:
            ParameterError: it has no global shape.
        """
        return self._last().shape(self.name)

    @property
    def attributes(self) -> dict[str, Any]:
        """Its attributes: those of the file whose names begin with the variable's name and a slash."""
        prefix = f"{self.name}/"
        return {name.removeprefix(prefix): value for name, value in self._input.attributes(prefix).items()}

    def read(
        self,
        start: Sequence[int] | None = None,
        count: Sequence[int] | None = None,
        *,
        step: int | None = None,
        block: int | None = None,
        like: Any = None,
        out: Any = None,
        fill: Any = None,
        level: int = 0,
    ) -> Any:
        """Reads a box, as `ReaderStep.read` does.

        Args:
            step: the number of the step in the file, negative from its end, or of the open one of a stream; None: the
                last that has the variable.
        """
        if self._input.is_stream and step is not None:
            at = ReaderStep(self._contents, step)
        else:
            at = self._last() if step is None else self._reader[step]
        return at.read(self.name, start, count, block=block, like=like, out=out, fill=fill, level=level)

    def _last(self) -> ReaderStep:
        return ReaderStep(self._contents, self.steps[-1])


def step_summary(step: ReaderStep, name: str) -> list[str]:
    """How a variable is stored at a step, in words: bound and ratio."""
    kind = step._contents.entry(name).type
    if kind in INTEGERS:
        return [_how_exactly(step, name, INTEGERS[kind])]
    blocks = step._archived(name)
    if blocks is None:
        return [_NOT_COMPRESSED]
    if blocks.has_table:
        bounds = np.unique(blocks.table["eb_abs"][blocks.filled])
        ratio = blocks.table["raw_bytes"].sum() / max(blocks.table["archive_bytes"].sum(), 1)
    elif blocks.filled.size:
        info = step._contents.info(name, step.index, int(blocks.filled[0]))
        if info is None:
            return [_NOT_COMPRESSED]
        bounds, ratio = np.array([info.eb_abs]), info.ratio
    else:
        return []
    which = "" if blocks.has_table else " (of its first block)"
    bound = f"{bounds.min():.6g}" if bounds.size else "0"
    if np.isnan(bounds).any():
        coded = np.flatnonzero(np.isnan(blocks.table["eb_abs"])) if blocks.has_table else blocks.filled
        info = step._contents.info(name, step.index, int(coded[0]))
        bound = f"{info.eb:.6g} of every value" if info is not None else "?"
    return [f"|error| <= {bound}, ratio {ratio:.1f}{which}"]


def _how_exactly(step: ReaderStep, name: str, dtype: np.dtype[Any]) -> str:
    """How integers are stored at a step, in words."""
    if not step._input.shape(name, step.index):
        return _NOT_COMPRESSED
    blocks = step._contents.blocks(name, step.index)
    filled = blocks.table[blocks.filled]
    if not blocks.has_table:
        start = filled["start"][0].tolist() if len(filled) and not blocks.overlap else None
        is_ours = start is not None and step._input.archive(name, step.index, start, dtype, 1) is not None
        return "exact" if is_ours else _NOT_COMPRESSED
    if (filled["archive_bytes"] == filled["raw_bytes"]).all():
        return _NOT_COMPRESSED
    return f"exact, ratio {filled['raw_bytes'].sum() / filled['archive_bytes'].sum():.1f}"


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
