"""Calls to ADIOS2, whose errors (RuntimeError, ValueError and others) become errors of this package.

Every call to ADIOS2 is made within one of these functions, or its error is passed to `converted`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any

from cusz_core.errors import CuszError, OutOfMemoryError, UnsupportedError

from .errors import PluginError
from .plugin import without_colours


def import_adios2() -> Any:
    try:
        import adios2
    except ImportError as error:
        raise PluginError(
            f"Python's adios2 cannot be imported ({error}): "
            'pip install "adios2>=2.11,<2.13", or run scripts/setup for one with MPI'
        ) from error
    if not hasattr(adios2, "Mode"):
        raise UnsupportedError(
            f"Python's adios2 is {adios2.__version__}, whose interface lacks what is needed here: "
            "install 2.11 or newer (the plugin alone works with 2.10, too)"
        )
    if "HOME" not in os.environ:  # ADIOS2 looks for a configuration there, and crashes without it
        os.environ["HOME"] = os.path.expanduser("~")
    return adios2


def require_mpi(adios2: Any) -> None:
    """Refuses an ADIOS2 without MPI, or with another MPI than mpi4py's: its communicators would crash it."""
    if not adios2.is_built_with_mpi:
        raise UnsupportedError(
            "this adios2 was built without MPI (as the one on PyPI is): run scripts/setup, which builds one with "
            "it, or pass comm=None"
        )
    is_initialized = ctypes.c_int(1)
    with contextlib.suppress(AttributeError):  # MPI is linked statically
        library = ctypes.CDLL(adios2.bindings.adios2_bindings.__file__)  # finds functions in what ADIOS2 links to
        library.MPI_Initialized(ctypes.byref(is_initialized))
    if not is_initialized.value:
        from mpi4py import MPI

        raise UnsupportedError(
            f"mpi4py uses {MPI.get_vendor()[0]}, and this adios2 another MPI: build mpi4py with that of adios2 "
            "(MPICC=mpicc pip install --force-reinstall --no-cache-dir --no-binary mpi4py mpi4py)"
        )


def converted(error: Exception, what: str) -> CuszError:
    """Converts an error of an ADIOS2 call to one of this package; returns errors of this package unchanged.

    Args:
        what: follows "ADIOS2" in the message: "cannot open 'run.bp'".
    """
    if isinstance(error, CuszError):
        return error
    kind = OutOfMemoryError if isinstance(error, MemoryError) else CuszError
    return kind(f"ADIOS2 {what}: {without_colours(error)}")


@contextlib.contextmanager
def calling_adios2(what: str) -> Iterator[None]:
    """Errors in the `with` block become errors of this package.

    Args:
        what: follows "ADIOS2 cannot" in the message: "open 'run.bp'".
    """
    try:
        yield
    except CuszError:
        raise
    except Exception as error:
        raise converted(error, f"cannot {what}") from error


def close_after(error: BaseException | None, close: Callable[[], object]) -> None:
    """Calls `close`. If there already is an `error`, a failure of `close` is only attached to it, as a note."""
    try:
        close()
    except Exception as failure:
        if error is None:
            raise
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"Closing failed, too: {without_colours(failure)}")
        elif error.__context__ is None:
            error.__context__ = failure


@contextlib.contextmanager
def closing(close: Callable[[], object], path: str) -> Iterator[None]:
    """Calls `close`, which closes ADIOS2's file, at the end of the `with` block."""

    def call() -> None:
        with calling_adios2(f"close {path!r}"):
            close()

    try:
        yield
    except BaseException as error:
        close_after(error, call)
        raise
    call()


def blocks_info(engine: Any, name: str, step: int) -> list[dict[str, str]] | None:
    """What ADIOS2 says about a variable's blocks; None if it cannot.

    Minimum and maximum of 8-bit integers are returned as characters, and ADIOS2's Python interface (2.12) fails if they
    are not UTF-8.
    """
    try:
        infos: list[dict[str, str]] = engine.blocks_info(name, step)
    except UnicodeDecodeError:
        return None
    return infos


def counts_of_blocks(variable: Any) -> list[tuple[int, ...]]:
    """The extents of a variable's blocks, in the order of their numbers. Works even where `blocks_info` fails.

    Args:
        variable: of the open step, or with a step selected. Its block selection changes.
    """
    counts: list[tuple[int, ...]] = []
    while True:
        variable.set_block_selection(len(counts))
        try:
            counts.append(tuple(map(int, variable.count())))
        except ValueError:  # there is no such block
            return counts


def is_off(parameter: str) -> bool:
    """Whether the value of an engine's parameter means no."""
    return parameter.lower() in ("off", "no", "false", "0")


def extents_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.rstrip(",").split(","))) if text else ()
