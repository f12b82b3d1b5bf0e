"""The fields of field_kinds.py, with modes by the numbers of the C interface."""

from __future__ import annotations

from dataclasses import dataclass

from simt_library import ABS, REL

import field_kinds
from field_kinds import COVERING, SHAPES

__all__ = ["COVERING", "KINDS", "SHAPES", "Kind"]


@dataclass(frozen=True)
class Kind(field_kinds.Kind):
    mode: int = ABS  # type: ignore[assignment]


KINDS: dict[str, Kind] = {
    name: Kind(kind.make, kind.eb, {"abs": ABS, "rel": REL}[kind.mode], kind.options)
    for name, kind in field_kinds.KINDS.items()
}
