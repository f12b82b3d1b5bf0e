"""The fields of field_kinds.py and spline_kinds.py, with modes as the numbers of the C interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simt_library import ABS, REL

import field_kinds
import spline_kinds
from field_kinds import COVERING, SHAPES

__all__ = ["COVERING", "KINDS", "REACHING", "SHAPES", "SPLINE_KINDS", "SPLINE_SHAPES", "Kind"]


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

#: One to three active axes; some shapes are thin along some axes. With the kinds in REACHING, they reach every kernel
#: of the spline codec.
SPLINE_SHAPES: list[tuple[int, ...]] = [
    *[(9000,), (70, 90), (9000, 2), (3000, 2, 2), (20, 33, 40), (2, 5000, 1, 2), (9, 2, 2, 300)],
]
REACHING = ("smooth", "smooth_loose", "spikes", "kinks", "first_axis_in_layers")
