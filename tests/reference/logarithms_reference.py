"""format_v2.md, section 12, in numpy: archives of logarithms. It shares no code with the library, except that the
library decompresses zstd frames."""

from __future__ import annotations

import struct
from typing import Any

import format_v1_reference as v1
import format_v2_reference as v2
import numpy as np
from numpy.typing import NDArray

from cusz_core import embedding

Array = NDArray[Any]

#: Per type: unsigned integer, mantissa bits, largest exponent, last powers of the series of log2 and 2^x, largest v.
TYPES: dict[np.dtype[Any], Any] = {
    np.dtype(np.float32): (np.uint32, 23, 127, 9, 7, 300.0),
    np.dtype(np.float64): (np.uint64, 52, 1023, 21, 13, 2200.0),
}


def limits_of(dtype: Any) -> Any:
    return np.finfo(dtype)


def power(v: Array, least: int, dtype: np.dtype[Any]) -> Array:
    """2^(v + least), computed in the type of v and converted to `dtype`."""
    ty = v.dtype.type
    _, _, _, _, n, most = TYPES[v.dtype]
    v = np.minimum(np.maximum(v, ty(-2)), ty(most))
    k = np.rint(v)
    x = (v - k) * ty(0.69314718055994530942)
    factorials = [1.0]
    for j in range(1, n + 1):
        factorials.append(factorials[-1] * j)
    s = np.full_like(v, ty(1 / factorials[n]))
    for j in range(n - 1, -1, -1):
        s = s * x + ty(1 / factorials[j])
    whole = k.astype(np.int64) + least
    half = whole // 2
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(np.ldexp(s, half), whole - half).astype(dtype)
    limits = limits_of(dtype)
    return np.minimum(np.maximum(result, limits.tiny), limits.max)


def logarithm(d: Array, least: int, wide: np.dtype[Any]) -> Array:
    """log2(d) - least of positive normal numbers, as this writer computes it."""
    ty = wide.type
    m, e = np.frexp(d.astype(wide))
    m, e = (m * ty(2)).astype(wide), (e - 1).astype(wide)
    above = m > ty(1.41421356237309504880)
    m, e = np.where(above, m * ty(0.5), m), np.where(above, e + ty(1), e)
    s = (m - ty(1)) / (m + ty(1))
    z = s * s
    last = TYPES[wide][3]
    total = np.full_like(s, ty(2.8853900817779268 / last))
    for k in range(last - 2, 2, -2):
        total = total * z + ty(2.8853900817779268 / k)
    return (e - ty(least)) + (total * z * s + s * ty(2.8853900817779268))


class Parsed:
    """An archive of logarithms, taken apart."""

    def __init__(self, archive: bytes) -> None:
        data = v2.Bytes(archive)
        assert data.take(2) == v2.MAGIC
        first, second = data.take(2)
        assert first & 0x7F == 2 << 4 | 2  # kind, version
        assert second >> 2 & 0b111001 == 0  # neither relative, axes, missing nor zstd
        self.dtype = np.dtype([np.float32, np.float64][first >> 7])
        self.shape = [data.varint() for _ in range(1 + (second & 3))]
        self.eb = v2.read_bound(data, bool(second >> 3 & 1))
        self.has_fill = bool(second >> 4 & 1)
        ty = v1.type_of(self.dtype)
        self.special = data.number(self.dtype.itemsize) if self.has_fill else ty.canonical_nan
        front, checksum = archive[: data.at], data.number(4)
        wide = data.number(1)
        assert wide in (0, 1)
        self.wide = np.dtype(np.float64) if wide else self.dtype
        self.least, self.bound = struct.unpack("<hd", data.take(10))
        sign_bytes = data.varint()
        assert checksum == v2.checksum(front + archive[len(front) + 4 : data.at])
        signs = data.take(sign_bytes)
        inner_at = -(-data.at // 4) * 4
        assert not any(archive[data.at : inner_at])
        self.inner = archive[inner_at:]
        n = int(np.prod(self.shape))
        self.signs = np.zeros(n, bool)
        if sign_bytes:
            words = signs_of(signs)
            assert len(words) == -(-n // 64) * 8
            self.signs = np.unpackbits(np.frombuffer(words, np.uint8), bitorder="little")[:n].astype(bool)


def signs_of(block: bytes) -> bytes:
    extra = 16 * (len(block) % 4)
    if block[:4] == b"raw8":
        assert struct.unpack_from("<I", block, 4)[0] == (v1.checksum_of_bytes(block[8:]) + extra) % 2**32
        return block[8:]
    assert block[:4] == b"zst1"
    assert struct.unpack_from("<I", block, 4)[0] == (v1.checksum_of_bytes(block[8:]) + extra + 1) % 2**32
    return embedding.unpacked(block)


def decode(archive: bytes) -> Array:
    parsed = Parsed(archive)
    v = v2.decode(parsed.inner).reshape(-1)
    assert v.dtype == parsed.wide
    unsigned, mantissa, bias, *_ = TYPES[parsed.wide]
    own = TYPES[parsed.dtype][0]
    bits = v.view(unsigned)
    exponent = bits >> unsigned(mantissa)  # with the sign
    payload = bits & unsigned((1 << mantissa) - 1)
    with np.errstate(invalid="ignore"):
        d = power(np.where(np.isfinite(v), v, 0), parsed.least, parsed.dtype)
        d[v < -2 * parsed.bound] = 0
    is_code = exponent == bias + 60
    d[is_code] = payload[is_code].astype(own).view(parsed.dtype)
    if parsed.wide == parsed.dtype:
        d[~np.isfinite(v)] = v[~np.isfinite(v)]
    d[v == limits_of(parsed.wide).max] = np.array([parsed.special]).astype(own).view(parsed.dtype)[0]
    sign_bits = parsed.signs.astype(own) << own(8 * d.itemsize - 1)
    return (d.view(own) | sign_bits).view(parsed.dtype).reshape(parsed.shape)


def logarithms(d: Array, parsed: Parsed) -> Array:
    """The values v from which the inner archive is made."""
    flat = d.reshape(-1)
    own = TYPES[d.dtype][0]
    unsigned, mantissa, bias, *_ = TYPES[parsed.wide]
    bits = flat.view(own)
    magnitude = bits & own((1 << (8 * d.itemsize - 1)) - 1)
    absolute = magnitude.view(d.dtype)
    normal = np.isfinite(flat) & (absolute >= limits_of(d.dtype).tiny)
    v = logarithm(np.where(normal, absolute, d.dtype.type(1)), parsed.least, parsed.wide)
    v[absolute == 0] = -4 * parsed.bound
    code = unsigned(bias + 60) << unsigned(mantissa)
    small = ~normal & np.isfinite(flat) & (absolute != 0)
    if parsed.wide == d.dtype:
        v[small] = (code | magnitude[small]).view(parsed.wide)
        v[~np.isfinite(flat)] = flat[~np.isfinite(flat)]
    else:
        odd = small | ~np.isfinite(flat)
        v[odd] = (code | bits[odd].astype(unsigned)).view(parsed.wide)
    v[bits == own(parsed.special)] = limits_of(parsed.wide).max
    return v.reshape(d.shape)
