"""The object that holds all parameters, and the library's table behind it."""

import dataclasses
import pickle
import sys
import typing

import numpy as np
import pytest

import cusz_core as cusz
import support
from cusz_core import parameters
from cusz_core.parameters import TABLE, Parameters, is_legal

X = support.smooth((20, 30, 40), support.F32)
FIELDS = {field.name: field for field in dataclasses.fields(Parameters) if field.init}
ALL = {"eb": 1e-3, "mode": "rel", "bins": 128, "backend": "cpu", "threads": 2, "lossless": "none", "fill": 5.0}


def test_the_object_has_the_parameters_of_the_table():
    assert list(FIELDS) == list(TABLE)
    for key, row in TABLE.items():
        default = FIELDS[key].default
        if key == "eb":
            assert default is dataclasses.MISSING  # a bound has to be chosen
        elif key in ("threads", "fill"):
            assert default is None
            assert row.default in ("0", None)
        else:
            assert str(default) == row.default
        if row.choices:
            assert getattr(parameters, key.capitalize()).__args__ == row.choices


def test_the_keywords_are_those_of_the_table():
    of_archives = set(typing.get_type_hints(parameters.ArchiveOptions))
    assert of_archives == {key for key, row in TABLE.items() if row.decides != parameters.WORK} - {"eb", "mode"}
    assert set(typing.get_type_hints(parameters.Options)) == set(TABLE) - {"eb", "mode"}


def test_it_compresses_as_keywords_do():
    made = Parameters(**ALL)
    assert cusz.compress_with(X, made) == cusz.compress(X, **ALL)
    out = bytearray(X.nbytes + 48)
    assert cusz.compress_with(X, made, out=out) == cusz.compress(X, **ALL)


def test_it_is_checked_plain_and_frozen():
    made = Parameters(np.float32(0.5), fill=np.int64(3), bins=np.int16(64))
    assert repr(made) == repr(Parameters(0.5, fill=3.0))
    assert made == Parameters(0.5, fill=3.0)
    assert (type(made.eb), type(made.bins), type(made.fill)) == (float, int, float)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.eb = 1.0
    with pytest.raises(cusz.ParameterError, match="bins is 100; it must be a power of two"):
        dataclasses.replace(made, bins=100)
    with pytest.raises(TypeError, match="binz"):
        cusz.compress(X, 1e-3, binz=64)


def test_it_goes_to_other_processes():
    made = Parameters(**ALL)
    copy = pickle.loads(pickle.dumps(made))
    assert copy == made
    assert cusz.compress_with(X, copy) == cusz.compress_with(X, made)


def test_what_an_archive_depends_on():
    made = Parameters(1e-3, fill=float("nan"), threads=3)
    assert made.of_archive() == Parameters(1e-3, fill=float("nan"), backend="cpu").of_archive()
    assert made.of_archive().startswith("eb=0.001, mode='abs', bins=64, lossless='none', fill=nan")
    for key, value in (("eb", 1.0), ("mode", "rel"), ("bins", 128), ("lossless", "zstd"), ("fill", None)):
        assert dataclasses.replace(made, **{key: value}).of_archive() != made.of_archive()


def test_texts_of_configuration_files():
    assert is_legal("bins", " 128 ")
    assert is_legal("mode", "Rel")
    assert not is_legal("bins", "100")
    assert not is_legal("binz", "64")


def test_parameters_may_live_as_long_as_the_interpreter() -> None:
    """If another library never frees one, nothing is reported at exit."""
    code = "import ctypes, cusz_core; kept = [cusz_core.Parameters(1e-3)]; "
    code += "ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))"
    done = support.run([sys.executable, "-c", code])
    assert (done.stdout, done.stderr) == ("", "")
