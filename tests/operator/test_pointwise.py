"""Mode pw_rel through the plugin and the Writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cusz_operator
import support
from cusz_core import cli
from cusz_operator import Reader, Writer
from support import F32, F64

pytest.importorskip("adios2")
import adios2
from other_program import Program


def test_bounds_relative_to_every_value(engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Written by a Writer and by the plugin; every reader keeps to them, and every tool shows them."""
    x = np.exp2(20 * support.smooth((30, 40), F64)).astype(F32)
    x[3, ::5], x[7, 1], x[8, :] = 0, np.nan, -x[8, :]
    z, half = (x + 1j * x[::-1]).astype(np.complex64), (x[:, :20] % 1000).astype(np.float16)
    with Writer(tmp_path / "run.bp", engine=engine, eb=1e-3, mode="pw_rel") as out:
        for _ in range(2):
            with out.step():
                out.put("x", x[:11], x.shape)
                out.put("x", x[11:], x.shape, (11, 0))
                out.put("z", z)
                out.put("half", half)
                out.put("abs", x, eb=1.0, mode="abs")
    with Program(tmp_path / "plugin.bp", engine) as program, program.step():
        program.put("x", x, eb=1e-3, mode="pw_rel")

    def check(before: np.ndarray, after: np.ndarray) -> None:
        kept = np.isnan(before) | (before == 0)
        assert support.same_bits(before[kept], after[kept])
        off = np.abs(before[~kept].astype(F64) - after[~kept].astype(F64))
        assert (off <= 1e-3 * np.abs(before[~kept].astype(F64))).all()
        assert (np.signbit(before) == np.signbit(after)).all()
        assert (before[~kept] != after[~kept]).any()

    for name in ("run.bp", "plugin.bp"):
        with adios2.FileReader(str(tmp_path / name)) as file:
            check(x, file.read("x", start=[0, 0], count=x.shape, step_selection=[0, 1]).reshape(x.shape))
        with Reader(tmp_path / name) as run:
            assert "|error| <= 0.001 of every value, ratio" in repr(run)
            check(x, run[0].read("x"))
            assert support.same_bits(run[0].read("x", (5, 6), (20, 7)), run[0].read("x")[5:25, 6:13].copy())
            assert run[0].verify("x") > 0
            if name == "run.bp":
                assert np.isnan(run[0].blocks("x")["eb_abs"]).all()
                got = run[1].read("z")
                for part in ("real", "imag"):
                    check(*(np.ascontiguousarray(getattr(of, part)) for of in (z, got)))
                check(half, run[1].read("half"))
        for check_all in (False, True):
            (info,) = cusz_operator.inspect_variables(tmp_path / name, variables=["x"], check=check_all)
            assert [(asked.mode, asked.eb) for asked in info.asked if asked] == [("pw_rel", 1e-3)]
            assert (info.eb_abs_min, info.errors) == (None, ())
    with Program(tmp_path / "raw.bp") as program:
        for _ in range(2):
            with program.step():
                program.put("x", x)
    report = [str(tmp_path / "run.bp"), "--original", str(tmp_path / "raw.bp"), "--variable", "x", "-o"]
    assert cli.main(["report", *report, str(tmp_path / "page.html")]) == 0
    assert "of 1 compressed variable, is within the bound in force." in capsys.readouterr().out
