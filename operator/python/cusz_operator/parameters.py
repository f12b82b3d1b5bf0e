"""The operator's parameters, checked before ADIOS2 sees them (the plugin itself can only warn)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from cusz_core.errors import ParameterError
from cusz_core.parameters import GOALS, TABLE, Mode, Options, Parameters, is_legal

from .errors import PluginError
from .plugin import NO_SPACES, PLUGIN_LIBRARY, PLUGIN_NAME, plugin_path, without_colours

if TYPE_CHECKING:
    from typing import Unpack  # of Python 3.11

    import adios2

__all__ = ["NO_BOUND", "bound_of", "define_operator", "operator_parameters", "parameter_problems"]

Order = Literal["row", "column"]


def operator_parameters(
    eb: float, mode: Mode = "abs", *, order: Order | None = None, **options: Unpack[Options]
) -> dict[str, str]:
    """The parameters of an ADIOS2 operation of type "plugin".

        variable.add_operation_string("plugin", operator_parameters(eb=1e-3))

    For None, the plugin's default applies.

    Args:
        eb: the error bound, finite and >= 0: in the variable's unit (mode "abs"), or a fraction of the value range
            (mode "rel") or of every value ("pw_rel"). 0 is lossless. Or a PSNR in dB ("psnr"), or a ratio ("ratio").
        mode: "abs": |d - d'| <= eb. "rel": |d - d'| <= eb * (max - min) of every *block*, because a plugin cannot
            communicate: blocks of different ranks have different bounds. "pw_rel": |d - d'| <= eb * |d|. "psnr",
            "ratio": an absolute bound for every block, chosen so that it has that PSNR or ratio.
        order: "column" if ADIOS2 is used with column-major dimensions (Fortran).
        options: further parameters, by the names of `cusz_core.Parameters`.

    Raises:
        ParameterError: a value out of its legal range.
    """
    parameters = {"PluginName": PLUGIN_NAME, "PluginLibrary": PLUGIN_LIBRARY}
    given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    checked = Parameters(eb, mode, **given)
    parameters["accuracy"], parameters["mode"] = repr(checked.eb), checked.mode
    parameters |= {key: str(getattr(checked, key)) for key in TABLE if key in given}
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
    order: Order | None = None,
    **options: Unpack[Options],
) -> adios2.Operator:
    """Defines the operator in ADIOS2, which loads the plugin at once, so that a missing plugin is an error here.

    Args:
        adios: the `adios2.Adios` to define it in.
        name: the operator's name there, a different one for each set of parameters.
        eb, mode, order, options: as for `operator_parameters`.

    Returns:
        The operator, for `Variable.add_operation`.

    Raises:
        ParameterError: a value out of its legal range, or `adios` has an operator of this name already.
        PluginError: ADIOS2 cannot load the plugin, or the plugin does not work with this version of ADIOS2.
    """
    parameters = operator_parameters(eb, mode, order=order, **options)
    folder = plugin_path()
    try:
        return adios.define_operator(name, "plugin", parameters)
    except ValueError as error:
        raise ParameterError(
            f"ADIOS2 refuses an operator named {name!r}: if this Adios object has one of this name already, add that "
            f"one to other variables too, or give another name= ({without_colours(error)})"
        ) from error
    except Exception as error:
        text = without_colours(error)
        if text.startswith("cusz_operator "):  # the plugin refuses this ADIOS2
            raise PluginError(text) from error
        # ADIOS2's own message names neither the plugin nor the reason
        if " " in str(folder):
            raise PluginError(
                f"ADIOS2 cannot load its operator plugin {PLUGIN_NAME!r} from {folder}: {NO_SPACES} ({text})"
            ) from error
        raise PluginError(
            f"ADIOS2 cannot load its operator plugin {PLUGIN_NAME!r} from {folder}: check that ADIOS2_PLUGIN_PATH "
            f"includes this folder ({text})"
        ) from error


#: ADIOS2's own parameters of an operation of type "plugin".
_OF_ADIOS2 = ("pluginname", "pluginlibrary", "verbose")
_BOUNDS = ("accuracy", "tolerance", "eb")
_BLANKS = " \t\n\v\f\r"  # dropped by the plugin
NO_BOUND = "no error bound is given (parameter 'accuracy'): blocks are stored raw"


def parameter_problems(given: Mapping[str, str]) -> list[str]:
    """What the plugin will warn about in the parameters of an operation.

    (Like parse_parameters in parameters.cpp, and in the same words. About an impossible PSNR or ratio the plugin warns
    only at the first block.)

    Args:
        given: keys, in lower case as ADIOS2 passes them on, and values.
    """
    problems = []

    def refuse(key: str, legal: str) -> None:
        problems.append(f"parameter '{key}' = '{given[key]}' is not {legal}")

    bounds = {key: bound_of(given[key]) for key in _BOUNDS if key in given}
    for key, text in given.items():
        name = "eb" if key in _BOUNDS else key
        if key in _OF_ADIOS2:
            continue
        if name in TABLE:
            if not is_legal(name, text):
                refuse(key, TABLE[name].legal)
        elif key == "order":
            if text.strip(_BLANKS).lower() not in ("row", "column"):
                refuse(key, "'row' or 'column'")
        else:
            known = ", ".join((*_BOUNDS, *(name for name in TABLE if name not in _BOUNDS), "order"))
            problems.append(f"parameter '{key}' is not known and is ignored (known: {known})")
    if not bounds:
        problems.append(NO_BOUND)
    elif len({bound for bound in bounds.values() if bound is not None}) > 1:
        problems.append("the error bound is given more than once, and the strictest one is used")
    mode = given.get("mode", "").strip(_BLANKS).lower()
    if mode in GOALS:
        least = GOALS.index(mode)
        for key, bound in bounds.items():
            if bound is not None and bound <= least:
                refuse(key, f"a {mode} above {least}: blocks are stored raw")
    return problems


def bound_of(text: str) -> float | None:
    """The bound as the plugin reads it; None if the text is not a valid bound."""
    return float(text) if is_legal("eb", text) else None
