"""Writes T at two steps without knowing about the operator: configured.py CONFIGURATION IO FIELD.npy FILE"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from other_program import Program

configuration, io, field, file = sys.argv[1:]
with Program(Path(file), None, io=io, configuration=Path(configuration)) as out:
    for _ in range(2):
        with out.step():
            out.put("T", np.load(field))
