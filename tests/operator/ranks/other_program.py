"""A program that knows ADIOS2 alone; as a script, it writes three steps to a stream.

other_program.py STREAM FIELD.npy EB
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import adios2
import numpy as np

import cusz_operator as cz


class Program:
    """A program that knows ADIOS2 alone."""

    def __init__(self, path: Path, engine: str = "BP5", **parameters: str) -> None:
        self.adios = adios2.Adios()
        self.io = self.adios.declare_io("program")
        self.io.set_engine(engine)
        self.io.set_parameters(parameters)
        self.engine = self.io.open(str(path), adios2.Mode.Write)

    def variable(self, name: str, like: np.ndarray, shape: Any, eb: float | None = None, **parameters: Any) -> Any:
        zeros = [0] * len(shape)
        variable = self.io.define_variable(name, like, list(shape), zeros, list(shape) or list(like.shape))
        if eb is not None:
            operator = cz.operator_parameters(eb=eb, **parameters)
            variable.add_operation(self.adios.define_operator(f"cusz {name}", "plugin", operator))
        return variable

    def put(self, variable: Any, block: np.ndarray, start: Any = None) -> None:
        if start is not None:
            variable.set_selection([list(start), list(block.shape)])
        self.engine.put(variable, np.ascontiguousarray(block), adios2.Mode.Sync)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()


def main() -> None:
    path, field, eb = sys.argv[1:]
    x = np.load(field)
    with Program(Path(path), "SST") as out:
        u = out.variable("u", x, x.shape, float(eb) or None)
        number = out.io.define_variable("number", np.zeros(1))
        for step in range(3):
            out.engine.begin_step()
            out.put(u, x[:8] + np.float32(step), (0, 0))
            out.put(u, x[8:] + np.float32(step), (8, 0))
            out.put(number, np.array([step / 2]))
            out.engine.end_step()


if __name__ == "__main__":
    main()
