"""How a Writer compresses a variable: what was given to the Writer, to its `variables`, and to `put`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from cusz_core import embedding
from cusz_core.errors import ParameterError, UnsupportedError
from cusz_core.parameters import TABLE, WORK, Lossless, Parameters

from ..names import deciding, fits, has_wildcard, listed, meant
from ..reading.contents import AsStored
from ..tables.representation import Stored, float16_of, is_exact
from .agreement import Description
from .goals import GOALS, LIMITS, STEP, Wanted, layered, wanted_of

_MAX_SETTINGS = 10_000
#: Parameters that can be set per variable: those that its archives depend on.
_OF_VARIABLES = (*(key for key, row in TABLE.items() if row.decides != WORK), *GOALS, *LIMITS)


class Settings:
    """Parameters and goals of variables."""

    def __init__(self, given: Mapping[str, Any], variables: Mapping[str, Mapping[str, Any]] | None) -> None:
        """
        Args:
            given, variables: as passed to the Writer.

        Raises:
            ParameterError: a value out of its legal range, or `variables` is not a dictionary of dictionaries.
        """
        self._defaults = _merged({}, given)
        each = embedding.dictionary(variables, "variables")
        self._of_variable = {name: _not_none(_known(name, own)) for name, own in each.items()}
        self._decided: dict[str, str | None] = {}  # the pattern for a name
        self._patterns: dict[str, None] = {}  # that may stand for other names
        for pattern, own in self._of_variable.items():
            if meant(pattern) != (pattern,) or has_wildcard(pattern):
                self._patterns[pattern] = None
            _merged(self._defaults, own)
        self._made: dict[tuple[Any, ...], tuple[Parameters, Wanted | None]] = {}
        self._seen: set[str] = set()
        self._by_default: set[str] = set()  # whose bound or goal is the Writer's
        self._coordinates: set[str] = set()  # of these, what xarray takes for coordinates
        self._in_file: Mapping[str, AsStored] = {}

    @property
    def goal_of_step(self) -> Wanted | None:
        """The ratio or the budget of all variables of a step."""
        wanted = wanted_of(self._defaults, STEP)
        return None if wanted is None or wanted.kind == "psnr" else wanted

    def append_to(self, in_file: Mapping[str, AsStored]) -> None:
        """Notes the variables of a file that is appended to: an operator must not be added to them or dropped."""
        self._in_file = in_file

    def see(self, stored: Iterable[Description]) -> None:
        """Notes the names of arrays that have been put, by any rank."""
        for of in stored:
            self._seen.add(of.name.rpartition("/")[0] if of.given.startswith("complex") else of.name)
            if of.dimensions == (of.name,) and of.name in self._by_default and (of.wanted or of.parameters.eb > 0):
                self._coordinates.add(of.name)

    def coarse_coordinates(self) -> list[str]:
        """Coordinates that are not exact only because the bound or goal of all variables applies to them."""
        return sorted(self._coordinates)

    def doubts(self) -> list[str]:
        """Entries of `variables` that may be mistakes, now that the names of arrays are known."""
        entries = self._of_variable
        decides: dict[str | None, list[str]] = {}
        for name in sorted(self._seen):
            decides.setdefault(self._deciding(name), []).append(name)
        idle = [pattern for pattern in entries if pattern not in decides]
        may_fit = [pattern for pattern in idle if pattern in self._patterns]
        fitting = {pattern for pattern in may_fit if any(fits(name, pattern) for name in self._seen)}
        said = []
        if unknown := [pattern for pattern in idle if pattern not in fitting]:
            said.append(f"{listed(list(map(repr, unknown)))}, and no array of such a name was put")
        by_patterns = [name for by, names in decides.items() if by is not None for name in names if by != name]
        if behind := [pattern for pattern in may_fit if any(fits(name, pattern) for name in by_patterns)]:
            them = listed(list(map(repr, behind)))
            said.append(f"{them} without effect: of patterns that fit a name, the first counts")
        for pattern in entries:
            if others := [name for name in decides.get(pattern, ()) if pattern != name and pattern in self._seen]:
                them = listed(list(map(repr, others)))
                said.append(f"{pattern!r}, the name of an array, which also decided, as a pattern, about {them}")
        return said

    def own(self, name: str, array: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """A variable's own parameters: those in `variables`, overridden by those given to `put`."""
        return layered(self._for_variable(name, array), _not_none(given))

    def _for_variable(self, name: str, array: Any) -> Mapping[str, Any]:
        """What `variables` has for a variable: by its name, or by the first pattern that fits.

        Args:
            array: what is put; None: one value, to which no pattern applies. To integers, only `lossless` does.
        """
        if name in self._of_variable:
            return self._of_variable[name]
        if name not in self._decided:  # matching takes long, and a variable is put at every step
            self._decided[name] = self._deciding(name)
        by = self._decided[name] if array is not None else None
        found: Mapping[str, Any] = {} if by is None else self._of_variable[by]
        dtype = getattr(array, "dtype", None)
        if isinstance(dtype, np.dtype) and dtype.kind in "biu":
            return {key: value for key, value in found.items() if key == "lossless"}
        return found

    def _deciding(self, name: str) -> str | None:
        return name if name in self._of_variable else deciding(name, self._patterns, ())

    def of(self, stored: Stored, name: str, own: Mapping[str, Any]) -> tuple[Parameters, Wanted | None]:
        """How an array is compressed: its parameters, and the goal for which its bound is sought, if there is one. The
        objects are cached by variable and options.

        Args:
            name: of the variable that is put.
            own: its own parameters.

        Raises:
            UnsupportedError, ParameterError: as for `Writer.put`.
        """
        is_integer = is_exact(getattr(stored.array, "dtype", None))
        # The key has values as text, because equal numbers may differ (0.0 and -0.0). Only Python's own numbers and
        # texts: the text of other types may not have all their digits.
        key = (stored.name, stored.given, is_integer, *((option, repr(value)) for option, value in own.items()))
        if any(type(value) not in (int, float, str) for value in own.values()):
            return self._new(stored, name, own, is_integer)
        if key not in self._made:
            self._made[key] = self._new(stored, name, own, is_integer)
        return self._made[key]

    def _new(
        self, stored: Stored, name: str, own: Mapping[str, Any], is_integer: bool
    ) -> tuple[Parameters, Wanted | None]:
        merged = _merged(self._defaults, own)
        if is_integer:
            refused = [key for key in own if key != "lossless"]
            if refused:
                raise UnsupportedError(
                    f"{name!r} is of {stored.given}, which is stored exactly: {', '.join(refused)} cannot be set"
                )
            merged = {"eb": 0.0, "lossless": merged.get("lossless", self._packing(stored.name))}
        elif not any(key in own for key in ("eb", *GOALS)):
            self._by_default.add(stored.name)
        group = stored.name if "psnr" in merged else name if any(key in own for key in GOALS) else STEP
        wanted = wanted_of(merged, group)
        if wanted is None and "eb" not in merged:
            raise ParameterError(
                f"there is no error bound for {name!r}: pass eb= to put or to the Writer (0 is lossless)"
            )
        if len(self._made) > _MAX_SETTINGS:  # bounds may change from step to step
            self._made.clear()
        parameters = _parameters(merged)
        if stored.given == "float16" and parameters.fill is not None:
            parameters = dataclasses.replace(parameters, fill=float16_of(parameters.fill))
        return parameters, wanted

    def _packing(self, name: str) -> Lossless:
        """How integers are stored by default: packed, as by the plugin, unless the file has them plain."""
        in_file = self._in_file.get(name)
        is_plain = in_file is not None and in_file.by_operator is False
        return "zstd" if not is_plain and "zstd" in embedding.lossless_stages() else "none"


def _not_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value is not None}


def _merged(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `base`, overridden by those given, and checked; bound and goal may still be missing."""
    merged = layered(base, _not_none(given))
    wanted_of(merged, STEP)
    _parameters(merged)
    return merged


def _parameters(merged: Mapping[str, Any]) -> Parameters:
    """The parameters of a compression; the bound is 0 if it is missing."""
    return Parameters(**{"eb": 0.0, **{key: value for key, value in merged.items() if key not in (*GOALS, *LIMITS)}})


def _known(name: str, given: object) -> Mapping[str, Any]:
    own = embedding.dictionary(given, f"variables[{name!r}]")
    unknown = [key for key in own if key not in _OF_VARIABLES]
    if unknown:
        raise ParameterError(f"variables[{name!r}] has {unknown[0]!r}; known are {', '.join(_OF_VARIABLES)}")
    return own
