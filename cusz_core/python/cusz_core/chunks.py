"""Code shared by the codecs of chunked stores (`cusz_core.numcodecs`, `cusz_core.zarr`).

A store keeps a codec's configuration as JSON beside its arrays, and calls the codec for one chunk after another, or,
as Zarr and dask do, for several at once.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from . import _native
from .errors import ParameterError
from .parameters import TABLE, WORK, Mode, Parameters

if TYPE_CHECKING:
    from .parameters import ArchiveOptions


_KEPT = ("eb", "mode", "predictor")  # always stored, even if they are the defaults


def parameters(eb: float, mode: Mode, options: ArchiveOptions) -> Parameters:
    """The parameters of a codec, checked.

    Raises:
        ParameterError: a value out of its legal range, or `fill` is not finite.
        TypeError: an unknown parameter.
    """
    return _with_finite_fill(Parameters(eb, mode, **options))


def with_fill(chosen: Parameters, fill: float) -> Parameters:
    """The same parameters with another `fill`."""
    return _with_finite_fill(dataclasses.replace(chosen, fill=fill))


def configuration(chosen: Parameters) -> dict[str, Any]:
    """The configuration that a store keeps: bound, mode, predictor, and other parameters that are not the defaults."""
    defaults = _of_archive(Parameters(chosen.eb, chosen.mode))
    return {key: value for key, value in _of_archive(chosen).items() if key in _KEPT or value != defaults[key]}


def options_of(kept: dict[str, Any]) -> dict[str, Any]:
    """The options in a store's configuration. One without a predictor comes from a release up to 0.2.0, whose default
    was "lorenzo". It stays: with it and an absolute bound, nothing more is lost when a chunk is rewritten."""
    return {"predictor": "lorenzo", **kept}


def field_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a chunk is compressed: 1 to 4 dimensions; if there are more, the leading ones are merged."""
    if not shape:
        return (1,)
    surplus = max(len(shape) - _native.MAX_NDIM, 0)
    return (math.prod(shape[: surplus + 1]), *shape[surplus + 1 :])


def _of_archive(chosen: Parameters) -> dict[str, Any]:
    return {key: getattr(chosen, key) for key, row in TABLE.items() if row.decides != WORK}


def _with_finite_fill(chosen: Parameters) -> Parameters:
    if chosen.fill is not None and not math.isfinite(chosen.fill):
        raise ParameterError(
            f"fill is {chosen.fill}; a codec's fill must be finite, as JSON has no other numbers. NaN and infinities "
            "come back bit for bit without it"
        )
    return chosen
