"""What a Writer may be asked for instead of a bound: a PSNR, a ratio, or a number of bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict

from cusz_core import embedding, parameters
from cusz_core.errors import ParameterError
from cusz_core.parameters import ArchiveOptions, Options

#: Keywords for goals, of which at most one may be given, and for limits of the bound that is then sought.
GOALS = ("psnr", "ratio", "budget_bytes")
LIMITS = ("eb_min", "eb_max")
#: The group of all variables of a step that have neither a bound nor a goal of their own.
STEP = ""


class _Goals(TypedDict, total=False):
    psnr: float | None
    ratio: float | None
    budget_bytes: float | None
    eb_min: float | None
    eb_max: float | None


class PutOptions(ArchiveOptions, _Goals, total=False):
    """Keywords of `Writer.put`."""


class WriterOptions(Options, _Goals, total=False):
    """Keywords of a `Writer`."""


class Wanted(NamedTuple):
    """A goal, and limits of the bound that is sought for it.

    Attributes:
        group: names the variables that reach it together; their bounds are the same fraction of their value ranges.
        kind: "psnr" in dB, "ratio" or "budget_bytes".
        value: of the goal.
        eb_min, eb_max: limits of the bound: in the variable's unit, or fractions of its value range, as `mode` says.
    """

    group: str
    kind: str
    value: float
    eb_min: float
    eb_max: float

    def __str__(self) -> str:
        return f"{self.kind}={self.value:.15g}"


def layered(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """`lower`, overridden by `upper`: a bound or goal there replaces any bound, goal and limits in `lower`."""
    if any(key in upper for key in ("eb", *GOALS)):
        lower = {key: value for key, value in lower.items() if key not in ("eb", *GOALS, *LIMITS)}
    return {**lower, **upper}


def wanted_of(given: Mapping[str, Any], group: str) -> Wanted | None:
    """The goal among parameters; None if there is none.

    Args:
        given: parameters that are not None.
        group: see `Wanted`.

    Raises:
        ParameterError: several goals, a goal with a bound, one out of its range, or limits without a goal.
    """
    if (mode := given.get("mode")) in parameters.GOALS:
        raise ParameterError(f"mode {mode!r} is of one block: a Writer takes {mode}=, over all blocks of all ranks")
    named = [key for key in GOALS if key in given]
    limits = [key for key in LIMITS if key in given]
    if not named:
        if limits:
            raise ParameterError(f"{limits[0]} limits a bound that is sought: it needs one of {', '.join(GOALS)}")
        return None
    if len(named) > 1 or "eb" in given:
        both = " and ".join([*named, *(["eb"] if "eb" in given else [])])
        raise ParameterError(f"{both} are given: only one of them can be (eb_min and eb_max limit what is sought)")
    if given.get("mode") == "pw_rel":
        raise ParameterError(f"{named[0]} is sought with an absolute bound: mode 'pw_rel' is not possible")
    (kind,) = named
    value = embedding.real(given[kind], kind)
    above = 1.0 if kind == "ratio" else 0.0
    if not above < value < math.inf:
        raise ParameterError(f"{kind} is {value}; it must be finite and above {above:g}")
    low, high = (embedding.real(given[key], key) if key in given else None for key in LIMITS)
    for key, limit in zip(LIMITS, (low, high), strict=True):
        if limit is not None and not 0 <= limit < math.inf:
            raise ParameterError(f"{key} is {limit}; it must be finite and >= 0")
    low, high = 0.0 if low is None else low, math.inf if high is None else high
    if low > high:
        raise ParameterError(f"eb_min is {low:g} and eb_max is {high:g}: it must not be larger")
    return Wanted(group, kind, value, low, high)
