"""The operator's parameters, checked before ADIOS2 sees them (the plugin itself can only warn)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from cusz_core import embedding
from cusz_core.errors import ParameterError

from .errors import PluginError
from .plugin import PLUGIN_LIBRARY, PLUGIN_NAME, plugin_path, without_colours

if TYPE_CHECKING:
    import adios2

__all__ = ["bound_of", "define_operator", "operator_parameters", "parameter_problems"]

Mode = Literal["abs", "rel"]
Backend = Literal["auto", "cpu", "cuda"]
Order = Literal["row", "column"]


def operator_parameters(
    eb: float,
    mode: Mode = "abs",
    *,
    bins: int | None = None,
    backend: Backend | None = None,
    threads: int | None = None,
    fill: float | None = None,
    order: Order | None = None,
) -> dict[str, str]:
    """The parameters of an ADIOS2 operation of type "plugin".

        variable.add_operation_string("plugin", operator_parameters(eb=1e-3))

    What is None is left to the plugin.

    Args:
        eb: the error bound, finite and >= 0: in the variable's unit (mode "abs"), or a fraction of the value range
            (mode "rel"). 0 is lossless.
        mode: "abs": |d - d'| <= eb. "rel": |d - d'| <= eb * (max - min) of every *block*, because a plugin cannot
            communicate: blocks of different ranks have different bounds.
        bins: quantisation bins coded directly, a power of two from 64 to 8192.
        backend: "auto": where a block lies, "cuda": blocks of the host on the current device, too, "cpu": blocks of the
            host on the CPU. The archives are the same.
        threads: CPU threads of a rank, at least 1.
        fill: the value that stands for "no data".
        order: "column" if ADIOS2 is used with column-major dimensions (Fortran).

    Raises:
        ParameterError: a value out of its legal range.
    """
    parameters = {"PluginName": PLUGIN_NAME, "PluginLibrary": PLUGIN_LIBRARY}
    parameters["accuracy"] = repr(embedding.error_bound(eb))
    embedding.mode(mode)
    parameters["mode"] = mode
    if bins is not None:
        parameters["bins"] = str(embedding.bins(bins))
    if backend is not None:
        embedding.backend(backend)
        parameters["backend"] = backend
    if threads is not None:
        parameters["threads"] = str(embedding.threads(threads))
    if fill is not None:
        parameters["fill"] = repr(embedding.fill(fill)[1])
    if order is not None:
        if order not in ("row", "column"):
            raise ParameterError(f"order is {order!r}; it must be one of 'row', 'column'")
        parameters["order"] = order
    return parameters


def define_operator(
    adios: adios2.Adios,
    eb: float,
    mode: Mode = "abs",
    *,
    name: str = PLUGIN_NAME,
    bins: int | None = None,
    backend: Backend | None = None,
    threads: int | None = None,
    fill: float | None = None,
    order: Order | None = None,
) -> adios2.Operator:
    """Defines the operator with ADIOS2, which loads the plugin here: a missing one ends the process otherwise.

    Args:
        adios: the `adios2.Adios` to define it in.
        name: the operator's name there, one for each set of parameters.
        eb, mode, bins, backend, threads, fill, order: as for `operator_parameters`.

    Returns:
        What `Variable.add_operation` takes.

    Raises:
        ParameterError: a value out of its legal range, or `adios` has an operator of this name already.
        PluginError: ADIOS2 cannot load the plugin.
    """
    parameters = operator_parameters(eb, mode, bins=bins, backend=backend, threads=threads, fill=fill, order=order)
    folder = plugin_path()
    try:
        return adios.define_operator(name, "plugin", parameters)
    except ValueError as error:
        raise ParameterError(f"ADIOS2 refuses an operator named {name!r}: {without_colours(error)}") from error
    except Exception as error:  # ADIOS2's own message names neither the plugin nor the reason
        raise PluginError(
            f"ADIOS2 cannot load its operator plugin {PLUGIN_NAME!r} from {folder}: check that ADIOS2_PLUGIN_PATH has "
            f"this folder ({without_colours(error)})"
        ) from error


#: ADIOS2's own parameters of an operation of type "plugin".
_OF_ADIOS2 = ("pluginname", "pluginlibrary", "verbose")
_BOUNDS = ("accuracy", "tolerance", "eb")
_NUMBER = re.compile(r"(\+(?!-))?-?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan(\(\w*\))?)", re.ASCII)
_WHOLE_NUMBER = re.compile(r"(\+(?!-))?-?\d+", re.ASCII)


def parameter_problems(given: Mapping[str, str]) -> list[str]:
    """What the plugin is going to warn about, of the parameters of an operation.

    (As parse_parameters of parameters.cpp, and in its words.)

    Args:
        given: keys, in lower case as ADIOS2 hands them on, and values.
    """
    problems = []

    def refuse(key: str, legal: str) -> None:
        problems.append(f"parameter '{key}' = '{given[key]}' is not {legal}")

    bounds = {key: bound_of(given[key]) for key in _BOUNDS if key in given}
    for key, text in given.items():
        value = text.strip().lower()
        if key in _OF_ADIOS2:
            continue
        if key in _BOUNDS:
            if bounds[key] is None:
                refuse(key, "an error bound (a finite number >= 0, such as 1e-3)")
        elif key == "mode":
            if value not in ("abs", "rel"):
                refuse(key, "'abs' or 'rel'")
        elif key == "fill":
            if _number(text) is None:
                refuse(key, "a number (or nan, inf, -inf)")
        elif key == "bins":
            number = int(value) if _WHOLE_NUMBER.fullmatch(value) else 0
            if not 64 <= number <= 8192 or number & (number - 1):
                refuse(key, "a power of two from 64 to 8192")
        elif key == "threads":
            if not _WHOLE_NUMBER.fullmatch(value) or not 0 <= int(value) <= 1024:
                refuse(key, "a whole number from 0 to 1024")
        elif key == "backend":
            if value not in ("auto", "cpu", "cuda"):
                refuse(key, "'auto', 'cpu' or 'cuda'")
        elif key == "order":
            if value not in ("row", "column"):
                refuse(key, "'row' or 'column'")
        else:
            problems.append(
                f"parameter '{key}' is not known and is ignored (known: {', '.join(_BOUNDS)}, mode, bins, backend, "
                "threads, fill, order)"
            )
    if not bounds:
        problems.append("no error bound is given (parameter 'accuracy'): blocks are stored raw")
    elif len({bound for bound in bounds.values() if bound is not None}) > 1:
        problems.append("the error bound is given more than once, and the smallest one is used")
    return problems


def bound_of(text: str) -> float | None:
    """The bound as the plugin reads it; None if it does not take it for one."""
    number = _number(text)
    return number if number is not None and math.isfinite(number) and number >= 0 else None


def _number(text: str) -> float | None:
    """A number as C++'s from_chars reads it, None if it does not."""
    digits = text.strip(" \t\n\v\f\r").lower()
    if not _NUMBER.fullmatch(digits):
        return None
    number = float(digits.partition("(")[0])
    mantissa = digits.partition("e")[0]
    out_of_range = "n" not in digits and (math.isinf(number) or (number == 0 and re.search("[1-9]", mantissa)))
    return None if out_of_range else number
