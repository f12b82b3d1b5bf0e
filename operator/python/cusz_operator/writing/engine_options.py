"""What a Writer asks of ADIOS2: an engine, its parameters and a path. What cannot work is refused up front."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from cusz_core import embedding
from cusz_core.errors import ParameterError, UnsupportedError

from ..adios2_calls import is_off
from ..reading import datafiles
from ..tables import metadata

Engine = Literal["BP5", "BP4", "SST"]
_ENGINES = ("BP5", "BP4", "SST")


def engine_parameters(
    engine: str, parameters: Mapping[str, Any] | None, append: bool, asynchronous: bool
) -> dict[str, str]:
    """Parameters as ADIOS2 takes them, with those that `asynchronous` adds.

    Raises:
        UnsupportedError, ParameterError: the engine does not exist, or cannot do what is asked of it.
    """
    if engine not in _ENGINES:
        raise UnsupportedError(f"engine is {engine!r}; it must be one of {', '.join(_ENGINES)}")
    if append and engine == "SST":
        raise ParameterError("append needs a file: a stream (SST) cannot be appended to")
    if asynchronous and engine == "BP4":
        raise UnsupportedError("asynchronous is for BP5 and SST: BP4 writes within the step")
    result = {key: str(value) for key, value in embedding.dictionary(parameters, "parameters").items()}

    def given(key: str) -> list[str]:  # ADIOS2 ignores case
        return [value for own, value in result.items() if own.lower() == key.lower()]

    marshalled = given("MarshalMethod")
    if engine == "SST" and any(of.lower() != "bp5" for of in marshalled):
        raise UnsupportedError(
            f"MarshalMethod is {marshalled[0]}: FFS ignores operators, and BP reserves too little memory for blocks "
            "that do not become smaller: leave it out (BP5)"
        )
    pattern = given("CPCommPattern")
    if engine == "SST" and any(of.lower() == "peer" for of in pattern):
        raise UnsupportedError(
            f"CPCommPattern is {pattern[0]}: with several ranks on both sides, some that read fail, and the others "
            "wait for ever: leave it out (Min)"
        )
    if not all(map(is_off, given("FlattenSteps"))):
        raise UnsupportedError(
            "FlattenSteps makes one step of all: the blocks of an array would lie one over the other"
        )
    flush = given("FlushStepsCount")
    if engine == "BP4" and any(of.strip() != "1" for of in flush):
        raise UnsupportedError(
            f"FlushStepsCount is {flush[0]}: of steps that are flushed together, BP4 damages all but the last if it "
            "aggregates ranks, and none is in the file when it ends: leave it out"
        )
    if engine == "BP5" and any(given("BurstBufferPath")):
        raise UnsupportedError(
            "BurstBufferPath: if several ranks write, BP5 loses what it copies from there: leave it out, or take BP4"
        )
    if engine == "BP4" and any(map(is_off, given("CollectiveMetadata"))):
        raise UnsupportedError(
            "CollectiveMetadata is off: without metadata, nothing of the file can be read: leave it out"
        )
    if engine == "BP4" and given("AppendAfterSteps"):
        raise UnsupportedError("AppendAfterSteps is for BP5: BP4 keeps all steps, and appends after them")
    for key, value in result.items():
        if key.lower() == "appendaftersteps" and not re.fullmatch(r"\s*[+-]?\d+\s*", value):
            raise ParameterError(f"{key} is {value!r}; it must be a number of steps")
    if engine == "BP5" and any(of.strip().lower() == "datasizebased" for of in given("AggregationType")):
        raise UnsupportedError(
            "AggregationType is DataSizeBased, with which ADIOS2 does not tell the number of a step that is appended, "
            "and empties the folder after it is opened: leave it out (TwoLevelShm), or take EveryoneWrites"
        )
    if asynchronous and engine == "BP5" and not given("AsyncWrite"):
        result["AsyncWrite"] = "Naive"
    return result


def statistics_wanted(engine: str, parameters: dict[str, str], ranges: bool) -> bool:
    """Whether ADIOS2 is to keep the minimum and maximum of blocks. Removes StatsLevel from `parameters`."""
    where_not = {
        " for BP4": engine == "BP4",
        " without ranges": not ranges,
    }
    why_not = next((why for why, holds in where_not.items() if holds), "")
    level = "0" if why_not else "1"
    for key in [key for key in parameters if key.lower() == "statslevel"]:
        level = parameters.pop(key)
        if level not in ("0", "1") or (level == "1" and why_not):
            raise ParameterError(f"parameters has {key} = {level}; it must be 0{why_not or ' or 1'}")
    return level == "1"


def steps_kept(parameters: dict[str, str]) -> int:
    """How many steps of a file are kept (see `repair.keep_steps`). Removes AppendAfterSteps from `parameters`."""
    found = [parameters.pop(key) for key in list(parameters) if key.lower() == "appendaftersteps"]
    return int(found[-1]) if found else -1


def require_path(given: str, engine: str, append: bool) -> None:
    """Refuses paths at which ADIOS2 would fail on only one rank, or write elsewhere."""
    if not isinstance(given, str):
        raise ParameterError(f"the path is {given!r}; it must be a text or an os.PathLike of one")
    if not given or "\0" in given:
        raise ParameterError("the path is empty" if not given else "the path contains a NUL character")
    path = Path(given)
    folder = path.parent
    if not folder.is_dir():
        raise ParameterError(f"the folder {str(folder)!r} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ParameterError(f"the folder {str(folder)!r} is not writable")
    if engine == "SST":
        return
    if path.is_symlink() and not path.exists():
        raise ParameterError(f"it is a symbolic link to {os.readlink(path)!r}, where nothing is: remove it")
    if path.exists() and not path.is_dir():
        raise ParameterError("a file is in the way of the folder that ADIOS2 makes: remove it")
    if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
        raise ParameterError("it already exists, and is not writable")
    if append and not path.is_dir():
        raise ParameterError("append needs an existing file")
    if append and datafiles.has_steps(path):
        found = "BP5" if (path / "mmd.0").exists() else "BP4"
        if found != engine:
            raise ParameterError(f"append: it was written with engine {found}, not {engine}")
        if metadata.is_column_major(path):
            raise ParameterError(
                "append: it was begun by a program with column-major arrays (Fortran), and only such programs can "
                "append to it"
            )
    elif path.is_dir():
        _require_a_run(path)


def _require_a_run(folder: Path) -> None:
    """Refuses a folder with other contents: ADIOS2 2.12 deletes everything in a folder that it replaces."""
    is_run = datafiles.has_steps(folder)
    for entry in list(os.scandir(folder)):
        is_own = is_run or re.fullmatch(r"(data\.\d+|(md|mmd|profiling|cusz)\..*)", entry.name)
        if not (is_own and (entry.is_file() or entry.is_symlink())):
            raise ParameterError(
                f"it is a folder with other things than a run, such as {entry.name!r}, which ADIOS2 would delete: take "
                "another name"
            )
