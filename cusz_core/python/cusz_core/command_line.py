"""Code shared by the commands of this package and those that other packages add to `cusz`.

A package adds a command through an entry point in the group `cusz.commands`, named after the command, that refers to a
`Command`. It is imported only for that command or for the help. `cusz inspect` of a directory is the entry point
`inspect.directory`, and `cusz devices --mpi` is `devices.mpi`: these receive the options of the command that they
belong to.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import io
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TextIO

import numpy as np
from numpy.typing import NDArray

from . import extensions
from .errors import CuszError, ParameterError, UnsupportedError
from .parameters import INTEGER, TABLE

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "DTYPES",
    "EXIT_FAILURE",
    "EXIT_USAGE",
    "Command",
    "FailureError",
    "Parser",
    "UsageError",
    "add_json",
    "add_parameters",
    "cell",
    "exit_code_of",
    "extents",
    "load",
    "new_file",
    "number",
    "parameters_given",
    "print_json",
    "print_table",
    "progress",
    "read_npy",
    "refuse_overwrite",
    "size",
    "told_beside",
]

GROUP = "cusz.commands"
EXIT_FAILURE, EXIT_USAGE = 1, 2
_BAR_WIDTH = 20  # characters
#: Value types, by their names in options.
DTYPES: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


@dataclasses.dataclass(frozen=True)
class Command:
    """A command, or a part of one, that a package adds to `cusz`.

    Attributes:
        help: a line for `cusz --help`.
        run: runs it; returns the exit code.
        add_options: adds the command's options to its parser.
    """

    help: str
    run: Callable[[argparse.Namespace], int]
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None


class UsageError(Exception):
    """An invalid command line."""


class FailureError(Exception):
    """A failure, described in one line."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` instead of exiting."""

    def error(self, message: str) -> NoReturn:
        """Raises `UsageError`."""
        raise UsageError(f"{message} (see '{self.prog} --help')")


def load(name: str, entry: EntryPoint | None = None) -> Command:
    """Loads a command of another package by name.

    Raises:
        FailureError: no package provides it, or the one that does cannot be imported.
    """
    entry = entry or extensions.find(GROUP, name)
    words = " ".join(name.split("."))
    if entry is None:
        raise FailureError(f"no installed package provides 'cusz {words}'")
    try:
        command: Command = entry.load()
    except Exception as error:  # whatever goes wrong there must not break the other commands
        package = entry.value.partition(":")[0].partition(".")[0]
        reason = f"the package {package} is needed for 'cusz {words}' and cannot be imported ({error})"
        raise FailureError(f"{reason}: install what is missing") from None
    return command


def exit_code_of(program: str, work: Callable[[], int]) -> int:
    """Runs a command. Returns its exit code, or 1 for failures, 2 for wrong usage or parameters."""

    def report(error: object, code: int) -> int:
        text = re.sub(r"\033\[[0-9;]*m", "", str(error))  # some libraries colour their messages
        print(f"{program}: error: {' '.join(text.split())}", file=sys.stderr)
        return code

    _repair_standard_streams()
    try:
        code = work()
        sys.stdout.flush()
        return code
    except (UsageError, ParameterError, UnsupportedError) as error:
        return report(error, EXIT_USAGE)
    except (CuszError, FailureError) as error:
        return report(error, EXIT_FAILURE)
    except BrokenPipeError:
        # The reader of our output is gone, as with `| head`; keep Python from complaining when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    except OSError as error:
        name = f": {error.filename}" if error.filename else ""
        return report(f"{error.strerror or error}{name}", EXIT_FAILURE)
    except MemoryError:
        return report("out of memory", EXIT_FAILURE)
    except KeyboardInterrupt:
        report("interrupted", EXIT_FAILURE)
        return 130


def _repair_standard_streams() -> None:
    """Opens closed streams on the null device: otherwise the next file opened would take their descriptor and get our
    output. Also makes everything printable, such as file names that the stream's encoding cannot represent."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (stays open)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")


# ---------------------------------------------------------------------------------------------- options and values


def number(text: str) -> float:
    """Converts a number for argparse."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def add_parameters(parser: argparse._ActionsContainer, *keys: str, is_bound_required: bool = True) -> None:
    """Adds options for parameters of the library's table; those that the user omits are absent from the result."""
    for row in map(TABLE.__getitem__, keys):
        kind = {} if row.choices else {"type": int if row.type == INTEGER else number}
        text = row.description + (f" (default: {row.default})" if row.default not in (None, "0") else "")
        parser.add_argument(
            f"--{row.key}",
            choices=row.choices,
            required=row.key == "eb" and is_bound_required,
            default=argparse.SUPPRESS,
            help=text.replace("%", "%%"),
            **kind,  # type: ignore[arg-type]
        )


def parameters_given(options: argparse.Namespace) -> dict[str, Any]:
    """The parameters that were given."""
    return {key: value for key, value in vars(options).items() if key in TABLE}


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def read_npy(path: Path) -> NDArray[Any]:
    """The array in a .npy file."""
    with open(path, "rb") as file:  # np.load takes .npz files, too, whatever their name
        try:
            return np.lib.format.read_array(file, allow_pickle=False)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # the header is parsed as Python, so damage can raise anything
            raise FailureError(f"{path} is not a readable .npy file: {error}") from None


def refuse_overwrite(output: Path, source: Path, force: bool) -> None:
    """Raises UsageError if the output exists and `force` is not set, or if it is a directory or the input itself.
    Raises FileNotFoundError if its folder does not exist."""
    if not output.exists():
        if not Path(os.path.realpath(output)).parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(output.parent))
        return
    if output.is_dir():
        raise UsageError(f"{output} is a directory")
    if source.exists() and output.samefile(source):
        raise UsageError(f"the output {output} is the input itself")
    if not force:
        raise UsageError(f"{output} exists: use --force to overwrite it")


def told_beside(output: Path) -> contextlib.AbstractContextManager[Any]:
    """Redirects printing to standard error if the output is standard output, as with `-o /dev/stdout`."""
    try:
        own, null = os.stat(output), os.stat(os.devnull)
        is_stdout = os.path.samestat(own, os.fstat(1)) and not os.path.samestat(own, null)
    except OSError:  # a new file, or no standard output
        is_stdout = False
    return contextlib.redirect_stdout(sys.stderr) if is_stdout else contextlib.nullcontext()


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete. Links are followed. Anything but a regular file,
    such as a pipe or a device, is written to directly."""
    if path.exists() and not path.is_file():
        with open(path, "wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    # Only the start of the name: the whole may already have the maximum length.
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:32]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


# -------------------------------------------------------------------------------------------------------- printing


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """Shows the elapsed time after the first second, if standard error is a terminal.

    Yields a function to call with the fraction of the work that is done, from 0 to 1: once it has been called, a bar
    shows this fraction.
    """
    bar = "..."

    def tell(part: float) -> None:
        nonlocal bar
        bar = f"[{'#' * int(_BAR_WIDTH * part):{_BAR_WIDTH}}] {part:4.0%} "

    if not sys.stderr.isatty():
        yield tell
        return
    done = threading.Event()
    started = time.monotonic()

    def show() -> None:
        wait = 1.0
        while not done.wait(wait):
            wait = 0.2
            print(f"\r\033[K{what} {bar} {time.monotonic() - started:.1f} s", end="", file=sys.stderr, flush=True)
        if wait != 1.0:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        done.set()
        thread.join()


def print_json(value: object) -> None:
    """Prints a value as JSON; types that JSON lacks become plain values or text."""
    print(json.dumps(value, indent=2, allow_nan=False, default=_plain))


def _plain(value: Any) -> Any:
    """Converts a value of a type that JSON lacks: numpy scalars and arrays, paths."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def print_table(lines: Sequence[Sequence[str]], right: Collection[int] = (), file: TextIO | None = None) -> None:
    """Prints rows of cells in aligned columns; columns whose indices are in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = enumerate(zip(line, widths, strict=True))
        text = "  ".join(cell.rjust(n) if i in right else cell.ljust(n) for i, (cell, n) in cells)
        print(text.rstrip(), file=file)


def size(n: int) -> str:
    """A number of bytes in readable units."""
    if n < 1000:
        return f"{n} bytes"
    value = n / 1000
    for unit in ("kB", "MB", "GB", "TB"):
        if value < 999.5:  # else it is rounded to 1e+03
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} PB"


def extents(shape: Sequence[int]) -> str:
    """Formats extents as options take them: 256x256x256."""
    return "x".join(map(str, shape))


def cell(value: object) -> str:
    """Formats a value as a cell of a table."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return extents(value)
    return str(value)
