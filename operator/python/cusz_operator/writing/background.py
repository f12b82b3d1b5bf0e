"""Compressing a step while the program computes the next one: a thread, and copies of the blocks for it.

The thread calls neither MPI nor ADIOS2.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cusz_core import embedding

from .blocks import Blocks
from .compression import StepWork
from .together import Agreed

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Pending(Generic[T]):
    """A step that has ended but is not written yet.

    Attributes:
        work: this rank's blocks and their archives.
        agreed: what ranks have agreed on.
        made: what this rank makes of its blocks, or the error if it fails.
        seconds: how long the program has waited so far.
    """

    work: StepWork
    agreed: Agreed
    made: Future[T]
    seconds: float


class Background:
    """A thread, started at the first step, and memory for the blocks of one step."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "cusz_operator")
        self._memory: dict[int, NDArray[np.uint8]] = {}  # by block number

    def copied(self, blocks: Sequence[Blocks]) -> list[Blocks]:
        """Copies of blocks, which the program cannot change, in the memory of the previous step's copies. Fields that
        are not in host memory are not copied.

        Raises:
            MemoryError: too little memory.
        """
        numbers = itertools.count()
        return [
            dataclasses.replace(
                of,
                fields=[
                    self._copy(next(numbers), field) if isinstance(field, np.ndarray) else field for field in of.fields
                ],
            )
            for of in blocks
        ]

    def _copy(self, number: int, field: NDArray[Any]) -> NDArray[Any]:
        kept = self._memory.get(number)
        if kept is None or kept.nbytes < field.nbytes:
            self._memory.pop(number, None)
            kept = self._memory[number] = np.empty(field.nbytes, np.uint8)
        copy: NDArray[Any] = kept[: field.nbytes].view(field.dtype).reshape(field.shape)
        np.copyto(copy, field)
        return copy

    def start(self, call: Callable[[], T]) -> Future[T]:
        """Calls a function in the thread, after those passed before, on the device that is current now."""
        return self._thread.submit(embedding.on_current_device(call))

    def close(self) -> None:
        """Ends the thread and frees the memory."""
        self._thread.shutdown()
        self._memory.clear()


def failed(error: Exception) -> Future[Any]:
    """The result of a call that failed before it started."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
