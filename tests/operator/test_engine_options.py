"""The engine options that a Writer sets (engine_options.py), without ADIOS2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cusz_core
from cusz_operator.writing.engine_options import engine_parameters, require_path, statistics_wanted


def test_parameters_are_texts() -> None:
    assert engine_parameters("BP5", {"NumAggregators": 2}, False, False) == {"NumAggregators": "2"}
    assert engine_parameters("SST", None, False, True) == {}
    assert engine_parameters("SST", {"MarshalMethod": "bp5"}, False, False) == {"MarshalMethod": "bp5"}


@pytest.mark.parametrize("given", [{}, {"asyncwrite": "Guided"}])
def test_asynchronous_is_a_parameter_of_bp5(given: dict[str, str]) -> None:
    """Unless the user has set it."""
    assert engine_parameters("BP5", given, True, True) == (given or {"AsyncWrite": "Naive"})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("HDF5", None, False, False), cusz_core.UnsupportedError, "engine is 'HDF5'; it must be one of BP5, BP4, SST"),
        (("SST", None, True, False), cusz_core.ParameterError, "a stream .* cannot be appended to"),
        (("BP4", None, False, True), cusz_core.UnsupportedError, "BP4 writes within the step"),
        (("BP4", {"AppendAfterSteps": 1}, True, False), cusz_core.UnsupportedError, "AppendAfterSteps is for BP5"),
        (("BP5", {"AppendAfterSteps": "x"}, True, False), cusz_core.ParameterError, "AppendAfterSteps is 'x'; it must"),
        (
            ("BP5", {"flattenSteps": True}, False, False),
            cusz_core.UnsupportedError,
            "FlattenSteps makes one step of all",
        ),
        (
            ("BP4", {"flushStepsCount": 3}, False, False),
            cusz_core.UnsupportedError,
            "FlushStepsCount is 3: of steps that are flushed together, BP4 damages all but the last",
        ),
        (
            ("BP4", {"collectiveMetadata": "Off"}, False, False),
            cusz_core.UnsupportedError,
            "CollectiveMetadata is off: without metadata, nothing of the file can be read",
        ),
        (
            ("BP5", {"aggregationType": "dataSizeBased"}, False, False),
            cusz_core.UnsupportedError,
            "AggregationType is DataSizeBased, with which ADIOS2 does not tell the number of a step",
        ),
        (("BP5", {"burstbufferpath": "/b"}, False, False), cusz_core.UnsupportedError, "BP5 loses what it copies from"),
        (("BP5", ["NumAggregators=2"], False, False), cusz_core.ParameterError, "parameters is .*list.*a dictionary"),
        (("BP5", {1: "2"}, False, False), cusz_core.ParameterError, "parameters has the key 1; its keys must be texts"),
        (("SST", {"marshalmethod": "ffs"}, False, False), cusz_core.UnsupportedError, "is ffs: FFS ignores operators"),
        (("SST", {"cpcommpattern": "peer"}, False, False), cusz_core.UnsupportedError, "CPCommPattern is peer: with"),
        (("SST", {"MarshalMethod": "BP"}, False, False), cusz_core.UnsupportedError, "is BP: .*BP reserves too"),
    ],
)
def test_what_engines_cannot_do(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        engine_parameters(*arguments)


@pytest.mark.parametrize(
    ("engine", "parameters", "ranges", "why_not"),
    [
        ("BP5", {}, True, None),
        ("SST", {}, True, None),
        ("BP4", {}, True, " for BP4"),
        ("BP5", {}, False, " without ranges"),
    ],
)
def test_statistics(engine: str, parameters: dict[str, str], ranges: bool, why_not: str | None) -> None:
    assert statistics_wanted(engine, dict(parameters), ranges) is (why_not is None)
    for level, wanted in (("0", False), ("1", True)):
        given = {**parameters, "StatsLevel": level}
        if wanted and why_not:
            with pytest.raises(cusz_core.ParameterError, match=f"StatsLevel = 1; it must be 0{why_not}"):
                statistics_wanted(engine, given, ranges)
        else:
            assert statistics_wanted(engine, given, ranges) is wanted
            assert given == parameters, "a Writer sets it itself"
    with pytest.raises(cusz_core.ParameterError, match="statslevel = 2; it must be 0"):
        statistics_wanted(engine, {**parameters, "statslevel": "2"}, ranges)


def test_places_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file.bp").write_text("")
    for name in ("bp4.bp", "bp5.bp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "md.idx").write_bytes(bytes(146))
    (tmp_path / "bp5.bp/mmd.0").touch()
    (tmp_path / "link.bp").symlink_to("gone.bp")
    for name, engine, append in (
        ("new.bp", "BP5", False),
        ("file.bp", "SST", False),
        ("link.bp", "SST", False),
        ("bp5.bp", "BP5", True),
    ):
        require_path(str(tmp_path / name), engine, append)
    for name, engine, append, message in (
        ("nowhere/new.bp", "SST", False, "nowhere' does not exist"),
        ("file.bp", "BP5", False, "a file is in the way"),
        ("new.bp", "BP5", True, "append needs an existing file"),
        ("bp4.bp", "BP5", True, "it was written with engine BP4, not BP5"),
        ("bp5.bp", "BP4", True, "it was written with engine BP5, not BP4"),
        ("link.bp", "BP4", False, "it is a symbolic link to 'gone.bp', where nothing is"),
        ("link.bp", "BP5", True, "it is a symbolic link to 'gone.bp', where nothing is"),
    ):
        with pytest.raises(cusz_core.ParameterError, match=message):
            require_path(str(tmp_path / name), engine, append)
