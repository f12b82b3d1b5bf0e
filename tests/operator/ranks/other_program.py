"""A program that only knows ADIOS2; as a script, it writes three steps to a stream.

other_program.py STREAM FIELD.npy EB
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adios2
import numpy as np


class Program:
    """Writes as a program that only knows ADIOS2, and this operator by name.

    engine is None if the file `configuration` names it; parameters are those of the engine.

    Attributes:
        how: the mode of puts; blocks are kept alive until the step ends, for deferred ones.
        variables: those that have been put, by name.
    """

    def __init__(self, path: Path, engine: str | None = "BP5", *, io: str = "program", mode: str = "Write",
                 configuration: Path | None = None, **parameters: str) -> None:  # fmt: skip
        self.adios = adios2.Adios(str(configuration)) if configuration else adios2.Adios()
        self.io = self.adios.declare_io(io)
        if engine is not None:
            self.io.set_engine(engine)
        self.io.set_parameters(parameters)
        self.engine = self.io.open(str(path), getattr(adios2.Mode, mode))
        self.how = adios2.Mode.Sync
        self.variables: dict[str, Any] = {}
        self._alive: list[Any] = []

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        self.engine.begin_step()
        yield
        self.engine.end_step()
        self._alive.clear()

    def put(self, name: str, block: Any, shape: Any = None, start: Any = None, eb: float | None = None,
            address: int | None = None, **parameters: Any) -> None:  # fmt: skip
        """Like Writer.put. The first put of a variable sets its bound and parameters; without a bound it is not
        compressed. With shape=(), blocks have no place. With an address, the values are read from there."""
        is_value = isinstance(block, str) or np.ndim(block) == 0
        if not isinstance(block, str):
            block = np.ascontiguousarray(np.atleast_1d(block))
        count = [] if is_value else list(block.shape)
        shape = count if shape is None else list(shape)
        zeros = [0] * len(shape)
        if name not in self.variables:
            self.variables[name] = self.io.define_variable(name, block, shape, zeros, count)
            if eb is not None:
                given = {"PluginName": "cusz", "PluginLibrary": "cusz_operator", "accuracy": repr(eb)}
                given |= {key: str(value) for key, value in parameters.items()}
                self.variables[name].add_operation(self.adios.define_operator(f"cusz {name}", "plugin", given))
        if not is_value:
            if shape:
                self.variables[name].set_shape(shape)
            self.variables[name].set_selection([zeros if start is None else list(start), count])
        if address is not None:
            self.engine.impl.Put(self.variables[name].impl, address, self.how)
            return
        self._alive.append(block)
        self.engine.put(self.variables[name], block, self.how)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()


def main() -> None:
    path, field, eb = sys.argv[1:]
    x = np.load(field)
    with Program(Path(path), "SST") as out:
        for step in range(3):
            with out.step():
                for first, last in ((0, 8), (8, 20)):
                    out.put("u", x[first:last] + np.float32(step), x.shape, (first, 0), eb=float(eb) or None)
                out.put("number", step / 2)


if __name__ == "__main__":
    main()
