"""The location of libcusz_operator.so, and access to the copy of it that ADIOS2 loaded."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import operator
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cusz_core import embedding

from .errors import PluginError
from .forks import free_after_fork

#: The parameters PluginName and PluginLibrary by which ADIOS2 finds a plugin operator.
PLUGIN_NAME = "cusz"
PLUGIN_LIBRARY = "cusz_operator"

_FILE_NAME = f"lib{PLUGIN_LIBRARY}.so"
_SEARCH_VARIABLE = "ADIOS2_PLUGIN_PATH"
#: The value before `add_to_plugin_path`: what programs that do not import this package see.
_SEARCHED_BY_OTHERS = os.environ.get(_SEARCH_VARIABLE, "")
_INTERFACE = 5  # CUSZ_OPERATOR_INTERFACE of cusz_operator.h
_WAITING, _USED, _REFUSED = 0, 1, 2  # what became of a posted archive
MAX_NDIM = 32  # CUSZ_OPERATOR_MAX_NDIM
_EXTENTS_SET = 1  # CUSZ_OPERATOR_EXTENTS_SET
_INTEGERS = 256  # CUSZ_OPERATOR_INTEGERS
_MAX_NAME_BYTES = 1023  # longest variable name that cusz_operator_capture_begin takes
_SetExtents = ctypes.CFUNCTYPE(ctypes.c_int32)


def plugin_path() -> Path:
    """The folder of libcusz_operator.so, for ADIOS2_PLUGIN_PATH.

    This package's own folder; if the package was installed without the plugin, the first folder of ADIOS2_PLUGIN_PATH
    that contains it.

    Raises:
        PluginError: it is not found.
    """
    folders = [Path(__file__).resolve().parent, *_searched_folders()]
    for folder in folders:
        if (folder / _FILE_NAME).is_file():
            return folder
    raise PluginError(
        f"the ADIOS2 plugin {_FILE_NAME} is in none of {', '.join(map(str, folders))}: this project was installed "
        "without it (CUSZ_BUILD_OPERATOR=OFF): install it with the plugin, or put the plugin's folder in "
        f"{_SEARCH_VARIABLE}"
    )


def add_to_plugin_path() -> None:
    """Prepends the plugin's folder to ADIOS2_PLUGIN_PATH in this process's environment, if there is a plugin."""
    try:
        folder = str(plugin_path())
    except PluginError:
        return
    others = [entry for entry in os.environ.get(_SEARCH_VARIABLE, "").split(os.pathsep) if entry not in ("", folder)]
    os.environ[_SEARCH_VARIABLE] = os.pathsep.join([folder, *others])


class Found(NamedTuple):
    """What ADIOS2 finds through ADIOS2_PLUGIN_PATH.

    Attributes:
        searched: the variable's value.
        path: of the library; "" if there is none.
        version: of the library; "" if it does not belong to this project.
        errors: one for each library that was found but could not be loaded.
    """

    searched: str
    path: str
    version: str
    errors: list[str]


#: It puts a backslash before each space, as a shell would need.
NO_SPACES = f"ADIOS2 loads no plugin from a path with a space: put a link to its folder in {_SEARCH_VARIABLE}"

# Tries what ADIOS2 tries, in the same order; in a separate process, because there may be several copies.
_SEARCH = """
import ctypes, json, os, sys

def mapped_file(address):
    for line in open("/proc/self/maps", errors="surrogateescape"):
        span, *_, file = line.rstrip("\\n").split(maxsplit=5)
        first, last = (int(end, 16) for end in span.split("-"))
        if first <= address < last:
            return file

def found():
    for folder in sys.argv[2].split(os.pathsep):
        for name in (p + sys.argv[1] + s for p in ("", "lib") for s in ("", ".so")):
            name = folder + "/" + name if folder else name
            if " " in folder:
                if os.path.isfile(name):
                    errors.append(name + ": " + sys.argv[3])
                continue
            try:
                library = ctypes.CDLL(name, os.RTLD_LAZY)
            except OSError as error:
                if os.path.isfile(name):
                    errors.append(str(error))
                continue
            if not hasattr(library, "OperatorCreate"):
                errors.append(name + ": there is no ADIOS2 operator in it")
                break
            path = mapped_file(ctypes.cast(library.OperatorCreate, ctypes.c_void_p).value)
            if not hasattr(library, "cusz_operator_version"):
                return path, ""
            library.cusz_operator_version.restype = ctypes.c_char_p
            return path, library.cusz_operator_version().decode()
    return "", ""

errors = []
print(json.dumps([*found(), errors]))
"""


def found_by_adios2() -> Found:
    """The plugin that ADIOS2 loads in this environment, in a program that does not import this package.

    Raises:
        PluginError: a library that is found cannot be loaded without ending the process.
    """
    import subprocess  # here, because every rank of a simulation imports this module

    command = [sys.executable, "-I", "-S", "-c", _SEARCH, PLUGIN_LIBRARY, _SEARCHED_BY_OTHERS, NO_SPACES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise PluginError(
            f"a library in {_SEARCH_VARIABLE}={_SEARCHED_BY_OTHERS} ends the process that loads it "
            f"(exit status {done.returncode}{': ' + lines[-1] if lines else ''})"
        )
    path, version, errors = json.loads(done.stdout)
    return Found(_SEARCHED_BY_OTHERS, path, version, errors)


class PutRange(NamedTuple):
    """How ADIOS2 is given the minimum and maximum of a block (cusz_operator_offer_with_range).

    Attributes:
        range: minimum and maximum of the block's values, of its type.
        put_count: extents selected when the block is put, of one element or two.
        select: selects extents; called during the put, with the extents of the block.
    """

    range: NDArray[Any]
    put_count: Sequence[int]
    select: Callable[[Sequence[int]], object]


class CaptureMemory:
    """A buffer for a captured archive, which later captures can reuse."""

    def __init__(self) -> None:
        self.buffer: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.address = 0

    def reserve(self, n: int) -> None:
        """Makes room for `n` bytes."""
        if self.buffer.nbytes < n:
            self.buffer = np.empty(n, np.uint8)
            self.address = self.buffer.ctypes.data


class Plugin:
    """The functions of cusz_operator.h, in the copy of the library that ADIOS2 uses in this process."""

    _capture_lock = free_after_fork(threading.Lock(), "innermost")

    def __init__(self) -> None:
        """
        Raises:
            PluginError: no plugin, one of the wrong version, or several copies in this process.
        """
        loaded = _loaded_copies()
        path = loaded[0] if loaded else plugin_path() / _FILE_NAME
        try:
            self._library = ctypes.CDLL(str(path))
            interface = int(self._library.cusz_operator_interface())
        except (OSError, AttributeError) as error:
            raise PluginError(f"cannot use the ADIOS2 plugin {path}: {error}") from error
        if interface != _INTERFACE:
            raise PluginError(
                f"the ADIOS2 plugin {path} has interface {interface}, this package needs {_INTERFACE}: "
                f"install both from one build, and check {_SEARCH_VARIABLE}"
            )
        self._library.cusz_operator_version.restype = ctypes.c_char_p
        keeping_the_gil = ctypes.PyDLL(str(path))
        self._capture_begin = keeping_the_gil.cusz_operator_capture_begin
        self._capture_begin.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
        self._capture_end = keeping_the_gil.cusz_operator_capture_end
        self._capture_end.argtypes = [ctypes.POINTER(ctypes.c_size_t)]
        self._library.cusz_operator_offer.restype = ctypes.c_size_t
        block: list[Any] = [ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64), ctypes.c_char_p]
        self._library.cusz_operator_offer.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *block]
        self._library.cusz_operator_offer_with_range.restype = ctypes.c_size_t
        self._library.cusz_operator_offer_with_range.argtypes = [
            *self._library.cusz_operator_offer.argtypes,
            ctypes.c_void_p,
            ctypes.POINTER(ctypes.c_uint64),
            _SetExtents,
        ]
        self._library.cusz_operator_withdraw.argtypes = [ctypes.c_size_t]
        self._library.cusz_operator_watch_begin.restype = ctypes.c_size_t
        self._library.cusz_operator_watch_begin.argtypes = [ctypes.c_char_p, ctypes.c_double, ctypes.c_char_p]
        self._library.cusz_operator_watch_end.argtypes = [ctypes.c_size_t]
        self._others: set[str] = set()  # variables whose blocks neither this copy nor another one got
        self._select: Callable[[], object] | None = None  # for the put in progress
        self._failed: list[BaseException] = []  # raised by it
        self._set_extents = _SetExtents(self._selected)
        refuse_several_copies()

    @property
    def version(self) -> str:
        """ "major.minor.patch" of the library."""
        version: bytes = self._library.cusz_operator_version()
        return version.decode()

    @contextlib.contextmanager
    def watch(self, folder: str, patience: float, message: str) -> Iterator[None]:
        """Ends the process, with a message on stderr, if nothing in a folder changes for a while in the `with` block.

        Args:
            folder: where files grow.
            patience: seconds; infinity: for ever.
            message: without the last line break.
        """
        key = self._library.cusz_operator_watch_begin(os.fsencode(folder), patience, f"{message}\n".encode())
        try:
            yield
        finally:
            self._library.cusz_operator_watch_end(key)

    def capture(
        self,
        variable: str,
        capacity: int,
        get: Callable[[], object],
        *,
        only_copy: bool = True,
        memory: CaptureMemory | None = None,
    ) -> NDArray[np.uint8] | None:
        """The archive of the block that `get` makes ADIOS2 read; None if that block is not compressed by this plugin.

        Args:
            variable: its name.
            capacity: the expected maximum in bytes; `get` is called again if the archive is larger.
            get: reads (a part of) one block, and returns None. The values it gets are meaningless if there is an
                archive. If other threads of the process read with ADIOS2, it must be a function of ADIOS2 itself, or a
                `functools.partial` of one: during any other function the interpreter may switch to those threads, and
                the plugin would take their block.
            only_copy: if this plugin did not get the block, make sure that no other copy did, which takes milliseconds:
                once for a variable.
                Callers that pass False call `refuse_several_copies` at the end.
            memory: holds the archive until the next call with it; None: the archive gets memory of its own.

        Raises:
            PluginError: ADIOS2 loaded another copy of the plugin.
        """
        needed = max(capacity, 1)
        name = variable.encode()
        if len(name) > _MAX_NAME_BYTES:
            name = b""  # any variable: `get` reads only one block, which is of this one
        memory = memory or CaptureMemory()
        captured = ctypes.c_size_t(0)
        end = functools.partial(self._capture_end, ctypes.byref(captured))
        while True:
            memory.reserve(needed)
            begin = functools.partial(self._capture_begin, name, memory.address, memory.buffer.nbytes)
            done: list[Any] = []
            with self._capture_lock:
                # From the beginning of the capture to its end the interpreter runs only C code, which keeps the GIL.
                calls = map(functools.partial.__call__, (begin, functools.partial(get), end))
                try:
                    done.extend(itertools.takewhile(operator.not_, calls))
                except BaseException:
                    if done:
                        end()
                    raise
            if not done:
                raise PluginError(f"cannot capture blocks of {variable!r}: a capture is in progress elsewhere")
            if len(done) == 3:
                break
            needed = captured.value
        if captured.value == 0:
            if only_copy and variable not in self._others:
                refuse_several_copies()
                self._others.add(variable)
            return None
        return memory.buffer[: captured.value]

    def _selected(self) -> int:
        """Selects extents; called by the library, to which it cannot raise: exceptions are kept."""
        try:
            assert self._select is not None
            self._select()
        except BaseException as error:
            self._failed.append(error)
            return 1 - _EXTENTS_SET
        return _EXTENTS_SET

    def hand_over(
        self,
        variable: str,
        dtype: np.dtype[Any],
        count: Sequence[int],
        archive: bytes | memoryview,
        put: Callable[[int], object],
        put_range: PutRange | None = None,
    ) -> None:
        """Makes the plugin store a finished archive as the block that `put` puts.

        Args:
            variable: its name.
            dtype: of the block: float32, float64 or integers.
            count: its extents, as ADIOS2 has them.
            archive: of a field of this dtype and number of values; for integers, a packed block.
            put: puts the block in Sync mode, at the address that it is called with.
            put_range: for an engine with StatsLevel 1; None for one with StatsLevel 0.

        Raises:
            PluginError: the archive was not stored: ADIOS2 loaded another copy of the plugin, or did something else
                with the address. A block that was put is then lost.
        """
        n_bytes = len(archive)
        data = _pointer_to(archive)
        type_id = _INTEGERS + dtype.itemsize if dtype.kind in "iu" else embedding.dtype_id_of(dtype)
        block = (type_id, len(count), _extents(tuple(count)), variable.encode())
        failed = self._failed
        failed.clear()
        if put_range is None:
            key = self._library.cusz_operator_offer(data, n_bytes, *block)
        else:
            self._select = functools.partial(put_range.select, count)
            key = self._library.cusz_operator_offer_with_range(
                data,
                n_bytes,
                *block,
                put_range.range.tobytes(),
                _extents(tuple(put_range.put_count)),
                self._set_extents,
            )
        if key == 0:
            raise PluginError(
                f"variable {variable!r}: the plugin does not take {n_bytes} bytes for a block of {dtype.name} "
                f"with extents {tuple(count)} (names have at most 1023 bytes, blocks at most {MAX_NDIM} extents, and "
                "archives 48 bytes more than their blocks)"
            )
        outcome = None
        try:
            put(key)
        finally:
            outcome = self._library.cusz_operator_withdraw(key)
        if failed:
            raise failed[0]
        if outcome == _USED:
            return
        if outcome == _WAITING:
            refuse_several_copies()
        reason = {
            _WAITING: "ADIOS2 did not ask this copy of the plugin for the block: it loaded another one, or the "
            "variable has no cusz operator",
            _REFUSED: "ADIOS2 passed it on for another variable, type or extents, or had no room for it",
        }.get(outcome, f"its key was withdrawn elsewhere ({outcome})")
        raise PluginError(f"variable {variable!r}: the archive handed over to the plugin was not stored: {reason}")


def without_colours(error: Exception) -> str:
    """The message of an ADIOS2 error, without its terminal colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()


def _pointer_to(archive: bytes | memoryview) -> Any:
    """What a function of the library takes as the address of an archive."""
    if isinstance(archive, bytes):
        return archive
    if archive.readonly:  # ctypes.c_char.from_buffer refuses it
        return np.frombuffer(archive, np.uint8).ctypes.data
    return ctypes.addressof(ctypes.c_char.from_buffer(archive))


@functools.lru_cache(1024)
def _extents(count: tuple[int, ...]) -> ctypes.Array[ctypes.c_uint64]:
    return (ctypes.c_uint64 * len(count))(*count)


def keep_for_ever(adios: Any) -> None:
    """Keeps ADIOS2's objects from being destroyed: after a failure their destructors fail again and end the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(adios))


def _searched_folders() -> list[Path]:
    return [Path(entry) for entry in os.environ.get(_SEARCH_VARIABLE, "").split(os.pathsep) if entry]


def _loaded_copies() -> list[Path]:
    """The plugin files that are loaded in this process."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []
    paths = (line.split(maxsplit=5)[5] for line in maps.splitlines() if line.endswith(_FILE_NAME))
    return sorted({Path(path) for path in paths})


def refuse_several_copies() -> None:
    """Looks through all libraries loaded in this process, which takes milliseconds.

    Raises:
        PluginError: several copies of the plugin are loaded.
    """
    copies = _loaded_copies()
    if len(copies) > 1:
        raise PluginError(
            f"several copies of the ADIOS2 plugin are loaded in this process: {', '.join(map(str, copies))}. "
            f"Set {_SEARCH_VARIABLE} to one of their folders before the first use of ADIOS2's operators, "
            "or import cusz_operator first"
        )
