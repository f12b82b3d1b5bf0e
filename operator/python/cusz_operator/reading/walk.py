"""The steps of a file, one after the other: read so, they may differ more than ADIOS2's random access allows."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cusz_core.errors import OutOfMemoryError

from ..adios2_calls import calling_adios2, closing
from .datafiles import has_several_writers, has_steps


class OpenStep(NamedTuple):
    """An open step of a file.

    Attributes:
        number: in the file, from 0.
        counted: the number by which the engine knows it.
        io, engine: ADIOS2's.
    """

    number: int
    counted: int
    io: Any
    engine: Any


def walk(
    adios2: Any, path: str, absolute: str, wanted: Collection[int] | None, parameters: Mapping[str, str]
) -> Iterator[OpenStep]:
    """The steps of a file, each open until the next one is asked for.

    Args:
        adios2: the module.
        path: the .bp folder or file, for messages.
        absolute: its absolute path.
        wanted: numbers of steps; None: all.
        parameters: of the engine.
    """

    @contextlib.contextmanager
    def opened(mode: Any, **more: str) -> Iterator[tuple[Any, Any]]:
        with calling_adios2(f"open {path!r}"):
            io = adios2.Adios().declare_io("cusz_walk")
            io.set_parameters({**parameters, **more})
            engine = io.open(absolute, mode)
        with closing(engine.close, path):
            yield io, engine

    if Path(absolute).is_dir() and not has_steps(Path(absolute)):
        return  # ADIOS2 would wait for ever for the first step of an empty BP4 file
    if has_several_writers(Path(absolute)):  # each step by itself
        if wanted is None:
            with opened(adios2.Mode.ReadRandomAccess) as (_, engine), calling_adios2(f"read {path!r}"):
                wanted = range(int(engine.steps()))
        for number in sorted(wanted):
            with opened(adios2.Mode.ReadRandomAccess, SelectSteps=str(number)) as (io, engine):
                yield OpenStep(number, 0, io, engine)
        return
    last = None if wanted is None else max(wanted, default=0)
    with opened(adios2.Mode.Read) as (io, engine):
        while True:
            with calling_adios2(f"go to the next step of {path!r}"):
                if engine.begin_step(adios2.StepMode.Read, 0.0) != adios2.StepStatus.OK:
                    return
                number = int(engine.current_step())
            if wanted is None or number in wanted:
                yield OpenStep(number, number, io, engine)
            _end_step(engine, path)
            if last is not None and number >= last:
                return


def _end_step(engine: Any, path: str) -> None:
    try:
        with calling_adios2(f"end a step of {path!r}"):
            engine.end_step()
    except OutOfMemoryError as error:  # BP5 looks for lengths where such steps have none
        raise OutOfMemoryError(
            f"{error}. A BP5 file cannot be read where a variable has an operation in some steps and none in later "
            "ones (docs/guides/adios2.md, Appending and restarting)"
        ) from error
