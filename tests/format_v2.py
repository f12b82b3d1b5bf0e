"""Version 2 of the archive format, as much as tests need to take archives of the spline codec and of logarithms apart
(format_v2.md).

Not for tests/reference, which implements all of it from the document alone.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

import formats

MAGIC = b"\xc5\x5a"
LOGS, CONSTANT = 2, 3  # kinds
SMALL_LATTICE, UNIT_TILES = 4096, 16
EDGES = {0: (), 1: (4096,), 2: (64, 64), 3: (32, 16, 8)}


def tiles_of(extents: list[int], active: list[int]) -> int:
    """The number of tiles of a lattice."""
    wanted = dict(zip(active, EDGES[len(active)], strict=True))
    order = active + [a for a in range(4) if a not in active]
    edges = {a: min(wanted.get(a, 1), extents[a]) for a in order}
    grown = True
    while grown:
        grown = False
        for a in order:
            larger = min(2 * edges[a], extents[a])
            if larger != edges[a] and math.prod(edges.values()) // edges[a] * larger <= SMALL_LATTICE:
                edges[a], grown = larger, True
    return math.prod(-(-extents[a] // edges[a]) for a in order)


def units_of_lattices(shape: list[int], masks: tuple[int, int, int]) -> list[int]:
    """The number of units of each lattice that has units besides unit 0, the coarsest first."""
    extents = [n for n in reversed(shape) if n > 1]
    extents += [1] * (4 - len(extents))
    units: list[int] = []
    while math.prod(extents) > SMALL_LATTICE:
        long = [a for a in range(4) if extents[a] > 1]
        active = ([a for a in long if masks[min(len(units), 2)] >> a & 1] or long)[:3]
        units.append(-(-tiles_of(extents, active) // UNIT_TILES))
        extents = [-(-n // 2) if a in active else n for a, n in enumerate(extents)]
    return units[::-1]


class Bytes:
    def __init__(self, data: bytes | bytearray) -> None:
        self.data, self.at = data, 0

    def number(self, width: int) -> int:
        if self.at + width > len(self.data):
            raise ValueError("the archive is too short")
        self.at += width
        return int.from_bytes(self.data[self.at - width : self.at], "little")

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:
                return value


@dataclass
class Parts:
    """Offsets of the parts of an archive; those of the units only without a lossless stage."""

    checksum_at: int
    head_end: int  # the end of what that checksum covers
    curve: int | None = None  # this and `bounds`: the interpolation of the spline codec
    bounds: int | None = None
    #: For each lattice that has units besides unit 0: where its checksum is, and (begin, end) of each unit.
    lattices: list[tuple[int, list[tuple[int, int]]]] = field(default_factory=list)
    signs_at: int = 0  # only for logarithms
    signs_bytes: int = 0


def parts(archive: bytes | bytearray) -> Parts:
    """Raises ValueError if the archive is too damaged to be taken apart."""
    data = Bytes(archive)
    data.at = 2
    first, second = data.number(1), data.number(1)
    width = 8 if first >> 7 else 4
    shape = [data.varint() for _ in range(1 + (second & 3))]
    kind = first >> 4 & 7
    relative, exact, fill, axes, missing, zstd = (second >> bit & 1 for bit in range(2, 8))
    data.number(8 if exact else 2)
    data.number(width * (fill + (relative and kind not in (LOGS, CONSTANT))))
    for _ in range(2 * missing):
        data.varint()
    checksum_at = data.at
    data.number(4)
    if kind == LOGS:
        data.number(11)
        signs_bytes = data.varint()
        return Parts(checksum_at, data.at, signs_at=data.at, signs_bytes=signs_bytes)
    if kind == CONSTANT or zstd:
        return Parts(checksum_at, len(archive))
    interpolation = data.number(1)
    curve, bounds = interpolation & 7, interpolation >> 3
    masks = data.number(2) if axes else 0xFFF
    data.number(1 + width)
    if not 0 < math.prod(shape) < 2**40:
        raise ValueError("no field")
    numbers = units_of_lattices(shape, (masks & 15, masks >> 4 & 15, masks >> 8 & 15))
    if not numbers:
        return Parts(checksum_at, len(archive), curve, bounds)
    length_of_first = 2 * data.varint()
    lengths = [[2 * (data.number(3) & (1 << 21) - 1) for _ in range(n)] for n in numbers]
    sums_at = data.at
    data.number(4 * len(numbers))
    data.number(data.at % 2)
    found = Parts(checksum_at, min(data.at + length_of_first, len(archive)), curve, bounds)
    at = data.at + length_of_first
    for number, of_lattice in enumerate(lengths):
        units = []
        for length in of_lattice:
            units.append((at, at + length))
            at += length
        found.lattices.append((sums_at + 4 * number, units))
    return found


def seal(archive: bytearray) -> None:
    """Gives a changed archive matching checksums; leaves it alone if it cannot be taken apart."""
    try:
        of = parts(archive)
    except ValueError:
        return
    for sum_at, units in of.lattices:
        total = sum(formats.part(number, archive[begin:end]) for number, (begin, end) in enumerate(units))
        struct.pack_into("<I", archive, sum_at, formats.fold(total & formats.MASK))
    covered = bytes(archive[: of.checksum_at] + archive[of.checksum_at + 4 : of.head_end])
    covered += bytes(-len(covered) % 4) + struct.pack("<I", len(covered) % 4)
    struct.pack_into("<I", archive, of.checksum_at, formats.checksum_of_pieces(covered))
