"""The operator's parameters, checked before ADIOS2 sees them (the plugin itself can only warn)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cusz_core import arguments
from cusz_core.errors import ParameterError, PluginError

from .plugin import PLUGIN_LIBRARY, PLUGIN_NAME, plugin_path, without_colours

if TYPE_CHECKING:
    import adios2

__all__ = ["define_operator", "operator_parameters"]

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
    parameters["accuracy"] = repr(arguments.error_bound(eb))
    arguments.mode(mode)
    parameters["mode"] = mode
    if bins is not None:
        parameters["bins"] = str(arguments.bins(bins))
    if backend is not None:
        arguments.backend(backend)
        parameters["backend"] = backend
    if threads is not None:
        parameters["threads"] = str(arguments.threads(threads))
    if fill is not None:
        parameters["fill"] = repr(arguments.fill(fill)[1])
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
