"""The library over the emulator with kernels from PTX (ptx.hpp), through ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Iterator, Sequence
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

from simt_library import Library

Counts = dict[str, Any]


class PtxError(Exception):
    """A file that cannot be read, or a launch that failed: the report."""


class PtxLibrary(Library):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        sizes = c_uint * 3 * 2
        for name, result, arguments in (
            ("simt_use_ptx", c_int, [c_char_p]),
            ("simt_use_ptx_text", c_int, [c_char_p]),
            ("simt_ptx_error", c_char_p, []),
            ("simt_ptx_launch", c_int, [c_char_p, ctypes.POINTER(c_uint * 3), c_size_t, c_void_p, c_size_t]),
            ("simt_ptx_counts", c_size_t, [c_char_p, c_size_t]),
            ("simt_ptx_lines", c_size_t, [c_char_p, c_size_t]),
            ("simt_ptx_forms", c_size_t, [c_char_p, c_size_t]),
            ("simt_ptx_clear", None, []),
        ):
            function = getattr(self.c, name)
            function.restype, function.argtypes = result, arguments
        self._sizes = sizes

    def use_ptx(self, source: Path | str | None) -> None:
        """A file, a text, or None: kernels as compiled by the host compiler."""
        if isinstance(source, str):
            failed = self.c.simt_use_ptx_text(source.encode())
        else:
            failed = self.c.simt_use_ptx(None if source is None else str(source).encode())
        if failed:
            raise PtxError(self.c.simt_ptx_error().decode())

    @contextlib.contextmanager
    def kernels_of(self, source: Path | str) -> Iterator[None]:
        self.use_ptx(source)
        try:
            yield
        finally:
            self.use_ptx(None)

    def launch(
        self,
        entry: str,
        parameters: bytes,
        *,
        blocks: Sequence[int] = (1,),
        threads: Sequence[int] = (32,),
        shared: int = 0,
    ) -> None:
        sizes = self._sizes(*(tuple([*size, 1, 1][:3]) for size in (blocks, threads)))
        error = self.c.simt_ptx_launch(entry.encode(), sizes, shared, parameters, len(parameters))
        if error:
            raise PtxError(self.report or f"error {error}")

    def text(self, function: str) -> str:
        call = getattr(self.c, function)
        buffer = ctypes.create_string_buffer(call(None, 0))
        call(buffer, len(buffer))
        return buffer.value.decode()

    def counts(self) -> list[Counts]:
        """The counts of every launch since clear(), in order."""
        found: list[Counts] = json.loads(self.text("simt_ptx_counts"))
        return found

    def lines(self) -> dict[str, dict[int, tuple[int, int]]]:
        """By kernel and line of the file: executions by warps, and by threads."""
        found = json.loads(self.text("simt_ptx_lines"))
        return {kernel: {int(line): (n[0], n[1]) for line, n in lines.items()} for kernel, lines in found.items()}

    def forms(self) -> list[tuple[str, str, str]]:
        """Opcode, results and operands of every known instruction."""
        rows = (line.split() for line in self.text("simt_ptx_forms").splitlines())
        return [(opcode, to, source) for opcode, to, source in rows]

    def clear(self) -> None:
        super().clear()
        self.c.simt_ptx_clear()
