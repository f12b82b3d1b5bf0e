"""The fields of field_kinds.py and spline_kinds.py, with modes by the numbers of the C interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simt_library import ABS, REL

import field_kinds
import spline_kinds
from field_kinds import COVERING, SHAPES

__all__ = ["COVERING", "KINDS", "SHAPES", "SPLINE_KINDS", "Kind"]


@dataclass(frozen=True)
class Kind(field_kinds.Kind):
    mode: int = ABS  # type: ignore[assignment]


def with_numbers(kinds: Mapping[str, field_kinds.Kind]) -> dict[str, Kind]:
    return {
        name: Kind(kind.make, kind.eb, {"abs": ABS, "rel": REL}[kind.mode], kind.options)
        for name, kind in kinds.items()
    }


KINDS = with_numbers(field_kinds.KINDS)
SPLINE_KINDS = with_numbers(spline_kinds.KINDS)
