"""What a Writer stores besides float32 and float64: integers, bools, float16, complex numbers, single values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import cusz_core
import cusz_operator as cz
import support
from cusz_operator.tables import representation
from cusz_operator.writing.blocks import prepare

adios2 = pytest.importorskip("adios2")

EXACT = ["bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))]
X = support.smooth((20, 30), support.F32)


def exact_values(kind: str) -> np.ndarray:
    if kind == "bool":
        return X.mean() < X
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    values = np.arange(600, dtype=np.int64).astype(kind).reshape(20, 30)
    values[0, :2] = low, high
    return values


def test_what_is_stored_exactly(engine: Any, tmp_path: Path) -> None:
    with cz.Writer(tmp_path / "run.bp", engine=engine, lossless="none") as out:
        for n in range(2):
            with out.step():
                for kind in EXACT:
                    values = np.roll(exact_values(kind), n)
                    out.put(kind, values[:7], values.shape)
                    out.put(kind, values[7:], values.shape, (7, 0))
                out.put("transposed", exact_values("int32").T)
                out.put("5-D", np.arange(64).reshape(2, 2, 2, 2, 4))
                out.put("empty", np.zeros((0, 4), np.int8))
    with cz.Reader(tmp_path / "run.bp") as run:
        for step in run:
            for kind in EXACT:
                expected = np.roll(exact_values(kind), step.index)
                assert step.dtype(kind) == kind
                for box in (((0, 0), (20, 30)), ((5, 3), (10, 20))):
                    got = step.read(kind, *box)
                    assert got.dtype == kind
                    assert np.array_equal(got, expected[tuple(slice(s, s + c) for s, c in zip(*box, strict=True))])
                target = np.empty((2, 2), kind)
                assert np.array_equal(step.read(kind, (6, 0), (2, 2), out=target), expected[6:8, :2])
                table = step.blocks(kind)
                assert table["count"].tolist() == [[7, 30], [13, 30]]
                assert (table["raw_bytes"] == table["archive_bytes"]).all()
                assert step.verify(kind) == 2
                if kind not in ("int64", "uint64"):  # a double cannot represent all of these
                    assert step.value_range(kind) == (expected.min(), expected.max())
            assert np.array_equal(step.read("transposed"), exact_values("int32").T)
            assert np.array_equal(step.read("5-D"), np.arange(64).reshape(2, 2, 2, 2, 4))
            assert step.read("empty").shape == (0, 4)
        assert "bool: bool, (20, 30), 2 blocks, not compressed by cusz" in repr(run)
    with adios2.FileReader(str(tmp_path / "run.bp")) as file:
        assert np.array_equal(file.read("int16", step_selection=[0, 1]).reshape(20, 30), exact_values("int16"))


def test_single_values(engine: Any, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "time": 0.1,
        "n": 7,
        "is last": True,
        "name": "Grüße",
        "f32": np.float32(0.1),
        "u8": np.uint8(100),
        "c": 1.5 - 2j,
        "0-d": np.array(3, np.int16),
        "0-d, bool": np.array(True),
        "0-d, text": np.array("Grüße"),
        "half": np.float16(0.5),
    }
    twice = {name: value if np.asarray(value).dtype.kind in ("b", "U") else 2 * value for name, value in values.items()}
    support.write_run(tmp_path / "run.bp", {"T": X, **values}, {"T": X, **twice}, eb=1e-3, engine=engine)
    with cz.Reader(tmp_path / "run.bp") as run:
        for step, expected in zip(run, (values, twice), strict=True):
            for name, value in expected.items():
                assert step.shape(name) == ()
                assert step.read(name) == value
        with pytest.raises(cusz_core.ParameterError, match="'time' is one value: it has no blocks"):
            run[0].blocks("time")
        assert [str(run[0].dtype(name)) for name in ("time", "n", "f32", "c")] == [
            "float64",
            "int64",
            "float32",
            "complex128",
        ]


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_complex_numbers(kind: str, engine: Any, tmp_path: Path) -> None:
    z = (X + 3j * support.smooth((20, 30), support.F32, seed=1)).astype(kind)
    z[3, 4] = complex(math.nan, 1)
    with cz.Writer(tmp_path / "run.bp", eb=1e-3, engine=engine) as out:
        for n in range(2):
            with out.step():
                out.put("z", z[:9], z.shape, dims=("y", "x"))
                out.put("z", z[9:], z.shape, (9, 0), dims=("y", "x"))
                if n:
                    out.put("rel", z, eb=1e-2, mode="rel")
    with cz.Reader(tmp_path / "run.bp") as run:
        assert list(run.variables) == ["rel", "z"]
        assert run["z"].attributes == {"dimensions": "y x"}
        assert f"z: {kind}, (20, 30), 2 blocks, |error| <= 0.001" in repr(run)
        for step in run:
            got = step.read("z")
            assert got.dtype == kind
            for part in ("real", "imag"):
                expected = np.ascontiguousarray(getattr(z, part))
                assert not support.violations(expected, np.ascontiguousarray(getattr(got, part)), 1e-3)
                assert support.same_bits(step.read(f"z/{part}"), np.ascontiguousarray(getattr(got, part)))
            assert np.array_equal(step.read("z", (5, 3), (10, 20)), got[5:15, 3:23], equal_nan=True)
            assert step.verify("z") == 4
            assert step.value_range("z") is None
            assert len(step.blocks("z")) == 2
        assert run["rel"].steps == [1]
        for part in ("real", "imag"):
            expected = np.ascontiguousarray(getattr(z, part))
            bound = support.absolute_bound(expected, 1e-2, "rel")
            assert not support.violations(expected, np.ascontiguousarray(getattr(run["rel"].read(), part)), bound)
    with adios2.FileReader(str(tmp_path / "run.bp")) as file:
        assert {"z/real", "z/imag"} <= set(file.available_variables())


@pytest.mark.parametrize(("eb", "mode"), [(1e-3, "abs"), (0.01, "rel"), (0.0, "abs"), (1e-9, "abs"), (2.0, "abs")])
@pytest.mark.parametrize("ranges", [True, False])
def test_float16(eb: float, mode: Any, ranges: bool, engine: Any, tmp_path: Path) -> None:
    x = X.astype(np.float16)
    x[:, ::9] *= 1000
    x[0, :6] = np.nan, np.inf, -np.inf, 65504, -65504, 6e-8
    support.write_run(tmp_path / "run.bp", {"x": x}, eb=eb, mode=mode, engine=engine, ranges=ranges)
    with cz.Reader(tmp_path / "run.bp") as run:
        got = run[0].read("x")
        assert (got.dtype.name, run[0].dtype("x").name, run[0].shape("x")) == ("float16", "float16", x.shape)
        wide = x.astype(np.float64)
        bound = support.absolute_bound(wide, eb, mode)
        assert not support.violations(wide, got.astype(np.float64), bound)
        assert np.isfinite(got[0, 3:5]).all()


@pytest.mark.parametrize("check", [False, True])
def test_sizes_are_those_of_float16(check: bool, engine: Any, tmp_path: Path) -> None:
    """Not of the float32 values that are stored, even in steps that were appended."""
    x = X.astype(np.float16)
    for append in (False, True):
        with cz.Writer(tmp_path / "run.bp", engine=engine, append=append) as out:
            for eb in (1e-2, 0.0):
                with out.step():
                    out.put("x", x, eb=eb)
    blocks = list(cz.inspect_bp(tmp_path / "run.bp", check=check))
    assert [block["raw_bytes"] for block in blocks] == 4 * [x.nbytes]
    assert [block["ratio"] for block in blocks] == [x.nbytes / block["archive_bytes"] for block in blocks]
    assert list(cz.inspect_bp(tmp_path / "run.bp", steps=[1, 3], check=check)) == blocks[1::2]
    (variable,) = cz.inspect_variables(tmp_path / "run.bp", check=check)
    assert (variable.raw_bytes, variable.archive_raw_bytes, variable.raw) == (4 * x.nbytes, 4 * x.nbytes, 2)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [step.blocks("x")["raw_bytes"].tolist() for step in run] == 4 * [[x.nbytes]]
        assert f"ratio {blocks[-1]['ratio']:.1f}" in repr(run)


FINITE = st_numpy.arrays(np.float16, st.integers(1, 60), elements=st.floats(-65504, 65504, width=16))
BOUNDS = st.one_of(st.floats(1e-9, 1e5), st.sampled_from([2.0**k for k in range(-26, 16)]))


@settings(max_examples=300)
@given(x=FINITE, eb=BOUNDS, known=st.booleans())
def test_the_bound_for_float16_holds_after_rounding(x: np.ndarray, eb: float, known: bool) -> None:
    """For all float32 values within it, including those at its edge."""
    largest = float(np.abs(x.astype(np.float64)).max())
    bound = representation.float16_bound(eb, largest if known else math.nan)
    assert 0 < bound <= eb
    wide = x.astype(np.float64)
    for edge in (wide - bound, wide + bound):
        inner = edge.astype(np.float32)
        inner = np.where(
            np.abs(inner.astype(np.float64) - wide) > bound, np.nextafter(inner, x.astype(np.float32)), inner
        )
        back = representation.given_back([inner], "float16")
        assert not support.violations(wide, back.astype(np.float64), eb)


@pytest.mark.parametrize("fill", [-9999.0, 0.1, 1e20, math.nan])
def test_the_fill_value_of_float16(fill: float, engine: Any, tmp_path: Path) -> None:
    """A float16 array that is filled with -9999 contains -10000."""
    x = np.linspace(1, 2, 600).astype(np.float16).reshape(20, 30)
    with np.errstate(over="ignore"):
        x[3:8, 5] = x[4, 10:20] = fill
    support.write_run(tmp_path / "run.bp", {"x": x}, eb=0.1, mode="rel", fill=fill, engine=engine)
    filled = np.zeros(x.shape, bool)
    filled[3:8, 5] = filled[4, 10:20] = True
    with cz.Reader(tmp_path / "run.bp") as run:
        got, table = run[0].read("x"), run[0].blocks("x")
    assert np.array_equal(got[filled].view(np.uint16), x[filled].view(np.uint16))
    assert (table["min"].item(), table["max"].item()) == (x[~filled].min(), x[~filled].max())
    assert not support.violations(x[~filled].astype(np.float64), got[~filled].astype(np.float64), 0.1)


class MaskedByUser(np.ma.MaskedArray):  # type: ignore[type-arg]
    """A user's own subclass of masked arrays."""


IDS = np.arange(10)
FLAT = np.zeros((2, 3))
REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "a bound for integers": (IDS, {"eb": 0.1}, cusz_core.UnsupportedError, "is of int64, which is stored exactly: eb"),
    "a mode for bools": (IDS > 3, {"mode": "rel"}, cusz_core.UnsupportedError, "is of bool, which is stored exactly"),
    "a bound for one value": (0.1, {"eb": 0.1}, cusz_core.ParameterError, "is one value, which is stored exactly"),
    "a shape for one value": (0.1, {"shape": (3,)}, cusz_core.ParameterError, "is one value, which is stored exactly"),
    "a large integer": (2**70, {}, cusz_core.UnsupportedError, "no number that ADIOS2 can store"),
    "long doubles": (IDS.astype(np.longdouble), {}, cusz_core.UnsupportedError, "float128"),
    "texts": (np.array(["a"]), {}, cusz_core.UnsupportedError, "dtype <U1"),
    "masked": (np.ma.array(IDS, mask=IDS > 5), {}, cusz_core.UnsupportedError, r"lost: put its .filled\(value\)$"),
    "masked otherwise": (MaskedByUser(IDS, mask=IDS > 5), {}, cusz_core.UnsupportedError, "whose mask would be lost"),
    "masked bools": (MaskedByUser(IDS > 5, mask=IDS > 5), {}, cusz_core.UnsupportedError, "whose mask would be lost"),
    "masked numbers": (np.ma.array(FLAT, mask=FLAT == 0), {}, cusz_core.UnsupportedError, "'v' .* with fill=value$"),
    "masked complex": (np.ma.array(FLAT * 1j, mask=FLAT == 0), {}, cusz_core.UnsupportedError, "'v' .* fill=value$"),
    "a list": ([[1, 2]], {}, cusz_core.UnsupportedError, r"is a list; .* complex64.*: put numpy.asarray\(...\) of it"),
    "None": (None, {}, cusz_core.UnsupportedError, "is None; a Writer takes .* numbers and texts$"),
    "bytes": (b"ab", {}, cusz_core.UnsupportedError, "is a bytes; a Writer takes .* numbers and texts$"),
    "a dictionary": ({"v": IDS}, {}, cusz_core.UnsupportedError, "is a dict; .*: put its variables one by one"),
    "many dimensions": (np.zeros((1,) * 33), {}, cusz_core.UnsupportedError, "33 dimensions; accepted are 1 to 32"),
    "a masked value": (np.ma.masked, {}, cusz_core.UnsupportedError, "whose mask would be lost"),
    "one integer, masked": (np.ma.array(3, mask=True), {}, cusz_core.UnsupportedError, "whose mask would be lost"),
    "foreign bytes": (IDS.astype(">i4"), {}, cusz_core.UnsupportedError, "foreign byte order"),
    "too few names": (FLAT, {"dims": ("x",)}, cusz_core.ParameterError, "2 different names"),
    "a name twice": (FLAT, {"dims": ("x", "x")}, cusz_core.ParameterError, "2 different names"),
    "a name with a blank": (FLAT, {"dims": ("x", "y z")}, cusz_core.ParameterError, "2 different names"),
    "names in one text": (FLAT, {"dims": "xy"}, cusz_core.ParameterError, "2 different names"),
    "another type": (IDS.astype(np.float32), {}, cusz_core.ParameterError, "is float32, 1 dimensions, and was int64"),
    "one value of an array": (1, {}, cusz_core.ParameterError, "is one value of int64 on rank 0, and int64, 1 dimens"),
}


@pytest.mark.parametrize("is_in_one_step", [False, True])
@pytest.mark.parametrize("other", [X, 0.5, "text"], ids=["array", "number", "text"])
def test_no_other_variable_has_the_name_of_a_complex_one(other: Any, is_in_one_step: bool, tmp_path: Path) -> None:
    """A Reader would not find that variable."""
    for order in (1, -1):
        first, then = (X * 1j, other)[::order]
        with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
            steps = [[first, then]] if is_in_one_step else [[first], [then]]
            message = "'psi' is of complex numbers, and another one of this name"
            for number, together in enumerate(steps):
                is_wrong = number == len(steps) - 1
                with pytest.raises(cusz_core.ParameterError, match=message) if is_wrong else nullcontext(), out.step():
                    for value in together:
                        out.put("psi", value)
            with out.step():
                out.put("psi", first)
        with cz.Reader(tmp_path / "run.bp") as run:
            assert len(run) == (1 if is_in_one_step else 2)
            for step in run:
                got = step.read("psi")
                assert got == first if isinstance(first, (str, float)) else np.abs(got - first).max() <= 2e-3


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(case: str, tmp_path: Path) -> None:
    array, options, kind, message = REFUSED[case]
    with cz.Writer(tmp_path / "run.bp", eb=1e-3) as out:
        with out.step():
            out.put("v", IDS)
        with pytest.raises(kind, match=message), out.step():
            out.put("v", array, **options)
        with out.step():
            out.put("v", IDS + 1)
    with cz.Reader(tmp_path / "run.bp") as run:
        assert [step.read("v").tolist() for step in run] == [IDS.tolist(), (IDS + 1).tolist()]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.complex64, np.int32, np.bool_])
@pytest.mark.parametrize(
    ("module", "make", "way"), [("xarray", "DataArray", ".values"), ("dask.array", "from_array", ".compute()")]
)
def test_arrays_that_have_to_be_read_or_computed(module: str, make: str, way: str, dtype: Any, tmp_path: Path) -> None:
    array = getattr(pytest.importorskip(module), make)(np.ones((3, 4), dtype))
    message = rf"'v' is an? {module}.*; a Writer takes .*: put its {re.escape(way)}$"
    with (
        pytest.raises(cusz_core.UnsupportedError, match=message),
        cz.Writer(tmp_path / "run.bp", eb=1e-3) as out,
        out.step(),
    ):
        out.put("v", array)


def test_texts_are_not_asked_for_a_bound(tmp_path: Path) -> None:
    with pytest.raises(cusz_core.UnsupportedError, match=r"'names' has dtype <U1 .* a Writer takes numpy arrays of"):
        support.write_run(tmp_path / "run.bp", {"names": np.array(["a", "b"])})


def test_arrays_that_do_not_tell_their_type() -> None:
    """Such as arrays with only `__cuda_array_interface__`, or PyTorch's, whose types have no name."""
    stored = representation.Stored("x", X, "")
    block = prepare(stored, None, None, None, cusz_core.Parameters(1e-3), None)
    assert (block.given, block.dtype.name) == ("float32", "float32")


def test_damaged_values_are_found(tmp_path: Path) -> None:
    support.write_run(tmp_path / "run.bp", {"ids": np.arange(1000)}, lossless="none")
    support.damage(tmp_path / "run.bp" / "data.0", 0, within=np.arange(100, 110).tobytes())
    with (
        cz.Reader(tmp_path / "run.bp") as run,
        pytest.raises(cusz_core.CorruptArchiveError, match="its checksum differs"),
    ):
        run[0].verify("ids")


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.parametrize("engine", ["BP5", "BP4", "SST"])
def test_over_ranks(engine: str, start_ranks: Callable, together: Callable, tmp_path: Path) -> None:
    path = tmp_path / "run"
    writing = start_ranks(3, "other_types.py", "write", path, engine)
    if engine == "SST":
        together([writing, start_ranks(2, "other_types.py", "read", path, engine)])
        return
    together([writing])
    together([start_ranks(2, "other_types.py", "read", path, engine)])
