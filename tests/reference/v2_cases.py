"""Fields and archives of version 2 for the tests of format_v2_reference.py, and of the library against it."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import format_v1_reference as v1
import format_v2_reference as reference
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

import support
from support import DTYPES, F32, F64, random_bits, smooth

Options = dict[str, Any]

# ---------------------------------------------------------------------------------------------------------------------
# Fields


def strewn(shape: tuple[int, ...], dtype: np.dtype, values: list[float], one_in: int, seed: int = 0) -> NDArray:
    """A smooth field with other values strewn in."""
    x = smooth(shape, dtype, seed)
    flat = x.reshape(-1)
    where = np.flatnonzero(support.integers(x.size, 0, one_in, seed + 1) == 0)
    with np.errstate(over="ignore"):
        flat[where] = np.resize(np.array(values).astype(dtype), where.size)
    return x


SPECIALS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e20, 1.0]


@st.composite
def any_fields(draw: Any) -> NDArray:
    dtype = draw(st.sampled_from(DTYPES))
    width = 8 * dtype.itemsize
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=14))
    elements = st.one_of(
        st.floats(width=width), st.floats(width=width, min_value=-1, max_value=1), st.sampled_from(SPECIALS)
    ).map(lambda value: float(np.float64(value).astype(dtype)))
    return draw(arrays.arrays(dtype, shape, elements=elements))


@st.composite
def smooth_fields(draw: Any) -> NDArray:
    """Up to a few thousand values, most of them near their predictions."""
    dtype = draw(st.sampled_from(DTYPES))
    largest = {1: 9000, 2: 90, 3: 20, 4: 9}
    ndim = draw(st.integers(1, 4))
    shape = tuple(draw(st.lists(st.integers(1, largest[ndim]), min_size=ndim, max_size=ndim)))
    scale = draw(st.sampled_from([1.0, 1e-30, 1e30, 0.01, 100.0]))
    seed = draw(st.integers(0, 2**20))
    x = strewn(shape, dtype, draw(st.lists(st.sampled_from(SPECIALS), min_size=1)), 200, seed)
    with np.errstate(over="ignore"):
        return x * dtype.type(scale)


def large_field() -> NDArray:
    """For a bound of 1e-3: tiles of several kinds, and a top that is tiled, if axis 1 is halved."""
    x = smooth((3, 70, 80), F64)
    x[:, :, :16] = support.integers(3 * 70 * 16, 2**40, 2**50).reshape(3, 70, 16)
    x[2, 1, 1::6] = 1e99
    return x


def with_all_parts() -> NDArray:
    """Nine tiles of 4096 values in lattice 0."""
    x = np.zeros((64, 576), F32)
    x[:, 128:192] = np.nan
    x[:, 192:256] = random_bits((64, 64), F32)
    x[:, 256:320] = smooth((64, 64), F32)
    x[:, 320:384] = strewn((64, 64), F32, [1e30, 2e3, np.nan], 40)
    x[:40, 384:448] = smooth((40, 64), F32, 2)
    x[:20, 448:512] = smooth((20, 64), F32, 3)
    return x


# ---------------------------------------------------------------------------------------------------------------------
# Archives


def parsed(archive: bytes) -> reference.PyramidArchive:
    assert archive[4] == reference.VERSION
    return reference.read_archive(archive)


def parts_of(archive: bytes) -> Iterator[str]:
    pyramid = parsed(archive)
    if len(pyramid.model.frequencies) > 1:
        yield "tables"
    yield f"top of kind {pyramid.top[5]}"
    for payload in pyramid.payloads:
        if not payload:
            yield "empty"
            continue
        head = int.from_bytes(payload[:2], "little")
        yield f"kind {head & 3}"
        if not head & 3:
            yield f"lanes {1 << (head >> 2 & 3)}"
            yield from (name for bit, name in ((4, "verbatim"), (5, "extra bits")) if head >> bit & 1)


def resealed(archive: bytes) -> bytes:
    """With checksums that fit, also those of the top; unchanged where there is no telling what they would cover."""
    try:
        ty, shape = reference.read_header(archive)
        n_tiles = reference.read_plan(archive, ty, shape).tile_count()
    except reference.FormatError:
        return archive
    body_at = 128 + int.from_bytes(archive[112:120], "little")
    if body_at + 8 > len(archive) or n_tiles > len(archive):
        return archive
    body = archive[body_at:]
    top_bytes = int.from_bytes(body[:8], "little")
    top = resealed_v1(body[8 : 8 + top_bytes])
    stored_top = reference.to_whole(body[:8] + top, 4)
    index = np.frombuffer(body[len(stored_top) :][: 2 * n_tiles].ljust(2 * n_tiles, b"\0"), "<u2").tolist()
    at = len(stored_top) + 4 * -(-n_tiles // 2)
    payloads = []
    for units in index:
        payloads.append(body[at : at + 2 * units])
        at += 2 * units
    payload_checksum = struct.pack("<I", reference.checksum(stored_top, payloads))
    first = archive[:40] + payload_checksum + bytes(4) + archive[48:body_at]
    sealed = struct.pack("<I", v1.checksum_of_header(first))
    return first[:44] + sealed + first[48:] + stored_top + body[len(stored_top) :]


def resealed_v1(archive: bytes) -> bytes:
    if len(archive) < 48 or archive[4:8] not in (b"\1\0\1\4", b"\1\0\2\4", b"\1\1\1\4", b"\1\1\2\4"):
        return archive
    raw = archive[5] == 0
    body_at = 48 if raw else 228
    shape = struct.unpack("<4Q", archive[8:40])
    if raw or not 0 < math.prod(shape) < 10**6:
        payload_checksum = v1.checksum_of_bytes(archive[body_at:])
    else:
        n_tiles = len(list(v1.tiling_of(shape).boxes()))
        body = archive[body_at:].ljust(2 * n_tiles, b"\0")
        ends = np.cumsum([4 * -(-n_tiles // 2), *(4 * np.frombuffer(body[: 2 * n_tiles], "<u2").astype(int))]).tolist()
        payload_checksum = v1.checksum_of_parts([body[begin:end] for begin, end in itertools.pairwise(ends)])
    first = archive[:40] + struct.pack("<II", payload_checksum, 0) + archive[48:body_at]
    return first[:44] + struct.pack("<I", v1.checksum_of_header(first)) + first[48:] + archive[body_at:]


def flipped(archive: bytes, bit: int) -> bytes:
    changed = bytearray(archive)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


# ---------------------------------------------------------------------------------------------------------------------
# What is refused, if checksums fit


def with_field(offset: int, form: str, value: Any) -> Callable[[bytes], bytes]:
    def edit(archive: bytes) -> bytes:
        changed = bytearray(archive)
        struct.pack_into(f"<{form}", changed, offset, value)
        return bytes(changed)

    return edit


def with_tile(kind: str, edit: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Edits the first payload with a part of that name (parts_of)."""

    def edited(archive: bytes) -> bytes:
        pyramid = parsed(archive)
        payloads = pyramid.payloads.copy()
        t = next(t for t, each in enumerate(payloads) if kind in parts_of_tile(each))
        payloads[t] = edit(payloads[t])
        return rebuilt(archive, payloads, pyramid.top)

    return edited


def parts_of_tile(payload: bytes) -> list[str]:
    head = int.from_bytes(payload[:2], "little")
    return [f"kind {head & 3}"] + [name for bit, name in ((4, "verbatim"), (5, "extra bits")) if head >> bit & 1]


def rebuilt(archive: bytes, payloads: list[bytes], top: bytes) -> bytes:
    body_at = 128 + int.from_bytes(archive[112:120], "little")
    index = np.array([len(payload) // 2 for payload in payloads], np.uint16)
    body = reference.to_whole(struct.pack("<Q", len(top)) + top, 4)
    body += reference.to_whole(reference.units_of(index), 4) + reference.to_whole(b"".join(payloads), 4)
    lengths = struct.pack("<QQ", len(body), len(body))
    return resealed(archive[:88] + lengths + archive[104:body_at] + body)


def with_top(edit: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    def edited(archive: bytes) -> bytes:
        pyramid = parsed(archive)
        return rebuilt(archive, pyramid.payloads, edit(pyramid.top))

    return edited


REFUSED: dict[str, Callable[[bytes], bytes]] = {
    "version": with_field(4, "B", 3),
    "kind": with_field(5, "B", 0),
    "dtype": with_field(6, "B", 3),
    "ndim": with_field(7, "B", 5),
    "empty": with_field(8, "Q", 0),
    "large": with_field(8, "Q", 2**60),
    "predictor family": with_field(48, "B", 0),
    "entropy coder": with_field(49, "B", 0),
    "lossless stage": with_field(50, "B", 2),
    "mode": with_field(51, "B", 2),
    "revision": with_field(52, "B", 2),
    "special": with_field(53, "B", 2),
    "no axis": with_field(54, "B", 0),
    "an axis with few values": with_field(54, "B", 9),
    "an axis that there is not": with_field(54, "B", 16),
    **{f"interpolation {value}": with_field(55, "B", value) for value in (64, 128, 10, 14)},
    **{f"eb {value}": with_field(56, "d", value) for value in (0.0, -0.1, math.inf, math.nan)},
    **{f"eb_abs {value}": with_field(64, "d", value) for value in (0.0, -0.1, math.inf, math.nan)},
    **{f"step {value}": with_field(72, "d", value) for value in (0.0, -0.25, math.inf, math.nan, 2.0**1022, 1e-307)},
    "another step": with_field(72, "d", 0.25),
    "another pattern": with_field(80, "Q", 5),
    "body bytes": with_field(88, "Q", 4),
    "stored bytes": with_field(96, "Q", 4),
    "model bytes": with_field(112, "Q", 16388),
    "model that is too long": with_field(112, "Q", 4),
    "a tile of kind 3": with_tile("kind 0", lambda p: bytes([p[0] | 3]) + p[1:]),
    "8 lanes": with_tile("kind 0", lambda p: bytes([p[0] | 12]) + p[1:]),
    "bit 6": with_tile("kind 0", lambda p: bytes([p[0] | 64]) + p[1:]),
    "bit 15": with_tile("kind 0", lambda p: p[:1] + b"\x80" + p[2:]),
    "a word more": with_tile("kind 0", lambda p: p + bytes(2)),
    "a word less": with_tile("kind 0", lambda p: p[:-2]),
    "no states": with_tile("kind 0", lambda p: p[:4]),
    "a small state": with_tile("kind 0", lambda p: bytes([p[0] & ~48, p[1], 255, 255, 0, 0]) + p[6:]),
    "a raw tile with lanes": with_tile("kind 2", lambda p: bytes([p[0] | 4]) + p[1:]),
    "a raw tile that is too long": with_tile("kind 2", lambda p: p + bytes(2)),
    "a raw tile that is too short": with_tile("kind 2", lambda p: p[:-2]),
    "an all-special tile that is too long": with_tile("kind 2", lambda p: b"\1" + p[1:]),
    "too many verbatim values": with_tile("verbatim", lambda p: p[:2] + b"\xff\xff" + p[4:]),
    "a verbatim value of class 0": with_tile("verbatim", lambda p: p[:4] + b"\0\0" + p[6:]),
    "a verbatim value beyond the tile": with_tile("verbatim", lambda p: p[:4] + b"\0\x20" + p[6:]),
    "no verbatim values, but their bit": with_tile("verbatim", lambda p: p[:2] + bytes(2) + p[4:]),
    "a top of another length": with_top(lambda top: top + bytes(4)),
    "a top of a shorter length": with_top(lambda top: top[:-4]),
    "a top of version 2": with_top(lambda top: top[:4] + b"\2" + top[5:]),
    "a top of another type": with_top(lambda top: top[:6] + b"\1" + top[7:]),
    "a top of another mode": with_top(lambda top: top[:51] + b"\1" + top[52:]),
    "a top of other dimensions": with_top(lambda top: top[:7] + b"\3" + top[8:]),
}
