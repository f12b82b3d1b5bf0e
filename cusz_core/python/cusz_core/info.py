"""Inspection of archives."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from . import _native, arguments, device_memory
from .arguments import ArchiveLike


@dataclasses.dataclass(frozen=True)
class Sections:
    """Sizes in bytes of an archive's parts: the coder's codebook; index and payload before the lossless stage. With
    predictor "spline" the header is a frame of a few bytes, and there is no codebook."""

    header: int
    codebook: int
    index: int
    payload: int


@dataclasses.dataclass(frozen=True)
class ArchiveInfo:
    """Properties of an archive, from its header.

    Attributes:
        version: format version: 1, or 2 if the predictor is "spline" or the mode "pw_rel".
        kind: "tiled" (quantised and coded) or "raw" (stored unchanged, because coding would not have made it smaller).
        predictor, coder: "lorenzo" and "huffman", or "spline" and "rans"; None for raw archives.
        coarse: how exact the coarser lattices are, as in `Parameters`; None for archives without lattices.
        shape, dtype: of the field.
        mode: "abs", "rel" or "pw_rel"; "abs" for raw archives.
        eb: the bound as requested: absolute, or relative to the value range or every value; 0 for raw archives.
        eb_abs: the absolute bound in force, in the field's unit (in mode "rel" with predictor "spline", rounded down to
            dtype); 0: every value is exact. NaN in mode "pw_rel".
        step: quantisation step, in the field's unit; 0 for raw archives. NaN in mode "pw_rel".
        bins: quantisation bins coded directly; 0 for raw archives.
        lossless: the lossless stage, "none" or "zstd".
        fill: the value that stands for "no data", or None.
        raw_bytes, archive_bytes: sizes of the field and of the archive.
        sections: sizes of the archive's parts.
        tile_shape: extents of a full tile (with "spline" at the finest resolution); zeros for raw archives.
        tiles: number of tiles (with "spline" at all resolutions).
        special: values stored as fill, or as NaN where there is no fill.
        out_of_range: quantisation codes beyond the alphabet.
        unpredictable: values stored verbatim.
        checksum: of the payload, as stored; with "spline" of its head.
    """

    version: int
    kind: str
    predictor: str | None
    coder: str | None
    coarse: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    mode: str
    eb: float
    eb_abs: float
    step: float
    bins: int
    lossless: str
    fill: float | None
    raw_bytes: int
    archive_bytes: int
    sections: Sections
    tile_shape: tuple[int, ...]
    tiles: int
    special: int
    out_of_range: int
    unpredictable: int
    checksum: int

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def ratio(self) -> float:
        """Compression ratio: raw bytes over archive bytes."""
        return self.raw_bytes / self.archive_bytes

    @property
    def bit_rate(self) -> float:
        """Archive bits per value; 0 for an empty field."""
        return 8 * self.archive_bytes / self.size if self.size else 0.0

    @property
    def outliers(self) -> int:
        """Codes and values for which the coder has no symbol: `out_of_range` + `unpredictable`."""
        return self.out_of_range + self.unpredictable

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain Python values that JSON can hold (NaN and infinities as strings)."""
        d: dict[str, Any] = dataclasses.asdict(self)
        d["shape"], d["tile_shape"] = list(self.shape), list(self.tile_shape)
        d["dtype"] = self.dtype.name
        d["ratio"], d["bit_rate"], d["outliers"] = self.ratio, self.bit_rate, self.outliers
        return {key: json_value(value) for key, value in d.items()}


def json_value(value: Any) -> Any:
    """`value`, with a non-finite float written as "nan", "inf" or "-inf": JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def inspect(archive: ArchiveLike) -> ArchiveInfo:
    """Reads and validates an archive's header, without decompressing it.

    Args:
        archive: bytes, bytearray, memoryview, mmap or uint8 array that holds exactly the archive, or a one-dimensional
            uint8 array on a CUDA device, from which only the header is copied to the host.

    Returns:
        An `ArchiveInfo`: shape, dtype, bound, ratio, outliers, sections and more.

    Raises:
        CorruptArchiveError: not an archive, or a damaged one (only header and length are checked here; see `check`).
        ArchiveTooNewError: a newer format version.
        UnsupportedError: not an array of bytes.
        DeviceError: for an archive on a device.
    """
    source = device_memory.archive(archive)
    d = _native.inspect(device_memory.memory(source), device_memory.place(source))
    # A frozen dataclass sets its attributes one by one, which takes three times as long as all else here.
    info = object.__new__(ArchiveInfo)
    info.__dict__.update(
        version=d["version"],
        kind=_native.KINDS[d["kind"]],
        predictor=d["predictor"],
        coder=d["coder"],
        coarse=None if d["coarse"] < 0 else _native.COARSE[d["coarse"]],
        shape=d["shape"],
        dtype=arguments.dtype_of(d["dtype"]),
        mode=_native.MODES[d["mode"]],
        eb=d["eb"],
        eb_abs=d["eb_abs"],
        step=d["step"],
        bins=d["bins"],
        lossless=_native.LOSSLESS_STAGES[d["lossless"]],
        fill=d["fill"] if d["has_fill"] else None,
        raw_bytes=d["raw_bytes"],
        archive_bytes=d["archive_bytes"],
        sections=Sections(d["header_bytes"], d["codebook_bytes"], d["index_bytes"], d["payload_bytes"]),
        tile_shape=d["tile_shape"],
        tiles=d["n_tiles"],
        special=d["n_special"],
        out_of_range=d["n_out_of_range"],
        unpredictable=d["n_unpredictable"],
        checksum=d["checksum"],
    )
    return info
