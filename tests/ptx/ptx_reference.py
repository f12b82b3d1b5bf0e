"""What PTX instructions compute, by the manual: with Python's integers and exact fractions, one lane at a time."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

#: Values of one lane: integers (unsigned, as bits), or True and False.
Function = Callable[..., Any]


class Spec(NamedTuple):
    """An instruction: how it is written, the types of its results and operands, and what it computes. Types are those
    of PTX, such as s32, or pred. `f` takes numbers of the operands' types, and returns numbers, or bits."""

    opcode: str
    to: tuple[str, ...]
    sources: tuple[str, ...]
    f: Function


def bits_of(type_: str) -> int:
    return 1 if type_ == "pred" else int(type_[1:])


def to_bits(value: Any, type_: str) -> int:
    if type_ == "pred":
        return int(value)
    if type_[0] == "f" and isinstance(value, float):
        return int.from_bytes(struct.pack("<f" if type_ == "f32" else "<d", value), "little")
    return int(value) & ((1 << bits_of(type_)) - 1)


def from_bits(bits: int, type_: str) -> Any:
    n = bits_of(type_)
    if type_ == "pred":
        return bool(bits & 1)
    if type_[0] == "f":
        return struct.unpack("<f" if n == 32 else "<d", bits.to_bytes(n // 8, "little"))[0]
    return bits - (1 << n) if type_[0] == "s" and bits >> (n - 1) else bits


# --------------------------------------------------------------------------------------------------- integers


def sign(v: float) -> float:
    return math.copysign(1, v)


def quotient(a: int, b: int) -> int:
    if b == 0:
        return -1
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def remainder(a: int, b: int) -> int:
    return a if b == 0 else a - b * quotient(a, b)


def permuted(a: int, b: int, select: int) -> int:
    data = (b << 32 | a).to_bytes(8, "little")
    out = []
    for k in range(4):
        nibble = select >> 4 * k & 15
        byte = data[nibble & 7]
        out.append((255 if byte & 128 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def inserted(a: int, b: int, c: int, d: int, n: int) -> int:
    first, count = c & 255, d & 255
    for i in range(count):
        if first + i < n:
            b = (b & ~(1 << (first + i))) | (a >> i & 1) << (first + i)
    return b


def shifted_right(a: int, by: int, n: int) -> int:
    return a >> min(by, n)


def funnel(opcode: str) -> Function:
    left = ".l." in opcode

    def shift(a: int, b: int, by: int) -> int:
        both, by = b << 32 | a, by & 31
        return (both << by >> 32 if left else both >> by) & 0xFFFFFFFF

    return shift


# --------------------------------------------------------------------------------------------------- floating point


def rounded(x: Fraction, type_: str, zero: float = 0.0, *, truncate: bool = False) -> float:
    """x rounded to the type: to nearest even, or towards 0. zero: the result if x is 0, with its sign."""
    digits, least, most = (24, -149, 127) if type_ == "f32" else (53, -1074, 1023)
    if x == 0:
        return zero
    negative, x = x < 0, abs(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    if Fraction(2) ** e > x:
        e -= 1
    unit = max(e - digits + 1, least)
    scaled = x / Fraction(2) ** unit
    whole = int(scaled)
    rest = scaled - whole
    whole += not truncate and (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1))
    largest = (Fraction(2) - Fraction(2) ** (1 - digits)) * Fraction(2) ** most
    result = whole * Fraction(2) ** unit
    value = float(min(result, largest)) if truncate else math.inf if result > largest else float(result)
    return -value if negative else value


def summed(a: float, b: float, type_: str, *, truncate: bool = False) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    zero = -0.0 if sign(a) < 0 and sign(b) < 0 else 0.0
    return rounded(Fraction(a) + Fraction(b), type_, zero, truncate=truncate)


def multiplied(a: float, b: float, type_: str) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b
    return rounded(Fraction(a) * Fraction(b), type_, sign(a) * sign(b) * 0.0)


def divided(a: float, b: float, type_: str) -> float:
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)) or (a == 0 and b == 0):
        return math.nan
    if math.isinf(a) or b == 0:
        return sign(a) * sign(b) * math.inf
    if math.isinf(b):
        return sign(a) * sign(b) * 0.0
    return rounded(Fraction(a) / Fraction(b), type_, sign(a) * sign(b) * 0.0)


def fused(a: float, b: float, c: float, type_: str) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        product = a * b if not (math.isfinite(a) and math.isfinite(b)) else 0.0
        return product + c
    product_sign = sign(a) * sign(b)
    exact_zero = a * b == 0 and (a == 0 or b == 0)
    zero = sign(c) * 0.0 if product_sign == sign(c) else 0.0
    if exact_zero and c != 0:
        return c
    return rounded(Fraction(a) * Fraction(b) + Fraction(c), type_, zero)


def extreme(a: float, b: float, least: bool) -> float:
    if math.isnan(a):
        return b
    if math.isnan(b):
        return a
    if a == b:
        return a if (sign(a) < 0) == least else b
    return a if (a < b) == least else b


def real_arithmetic(name: str, type_: str) -> tuple[int, Function]:
    """The number of operands, and the function."""
    functions: dict[str, tuple[int, Function]] = {
        "add": (2, lambda a, b: summed(a, b, type_)),
        "sub": (2, lambda a, b: summed(a, -b, type_)),
        "mul": (2, lambda a, b: multiplied(a, b, type_)),
        "div": (2, lambda a, b: divided(a, b, type_)),
        "rcp": (1, lambda a: divided(1.0, a, type_)),
        "fma": (3, lambda a, b, c: fused(a, b, c, type_)),
        "abs": (1, abs),
        "neg": (1, lambda a: -a),
        "copysign": (2, lambda a, b: math.copysign(b, a)),
        "min": (2, lambda a, b: extreme(a, b, True)),
        "max": (2, lambda a, b: extreme(a, b, False)),
    }
    return functions[name]


# --------------------------------------------------------------------------------------------------- conversions


def whole_number(v: float, way: str) -> float:
    """Rounded to nearest even, to zero, down or up; keeps the sign of zero."""
    if not math.isfinite(v):
        return v
    x = Fraction(v)
    found = {"i": round(x), "z": math.trunc(x), "m": math.floor(x), "p": math.ceil(x)}[way]
    return math.copysign(float(found), v)


def limits(type_: str) -> tuple[int, int]:
    n = bits_of(type_)
    return (-(1 << (n - 1)), (1 << (n - 1)) - 1) if type_[0] == "s" else (0, (1 << n) - 1)


def saturated(v: int, type_: str) -> int:
    low, high = limits(type_)
    return min(max(v, low), high)


def to_integer(v: float, way: str, to: str, source: str) -> int:
    if math.isnan(v):
        return 1 << (bits_of(to) - 1) if "64" in to + source else 0
    low, high = limits(to)
    if math.isinf(v):
        return high if v > 0 else low
    return saturated(int(whole_number(v, way)), to)


def conversion(words: Sequence[str]) -> Spec | None:
    opcode = ".".join(words)
    *modifiers, to, source = words[1:]
    modifier = modifiers[0] if modifiers else ""
    integer_way = {"rni": "i", "rzi": "z", "rmi": "m", "rpi": "p"}.get(modifier)
    f: Function
    if to[0] != "f" and source[0] != "f":
        f = lambda a: a  # noqa: E731
    elif source[0] != "f":
        f = lambda a: rounded(Fraction(a), to)  # noqa: E731
    elif to[0] != "f":
        way = integer_way or ""
        f = lambda a: to_integer(a, way, to, source)  # noqa: E731
    elif integer_way:
        way = integer_way
        f = lambda a: whole_number(a, way)  # noqa: E731
    else:
        f = lambda a: rounded(Fraction(a), to, a) if math.isfinite(a) else a  # noqa: E731
    return Spec(opcode, (to,), (source,), f)


# --------------------------------------------------------------------------------------------------- predicates


def comparison(name: str) -> Function:
    def compare(a: Any, b: Any) -> bool:
        if name == "nan" or a != a or b != b:
            return (a != a or b != b) and (name == "nan" or name.endswith("u"))
        plain = name.removesuffix("u")
        return bool({"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[plain])

    return compare


def setp(words: Sequence[str]) -> Spec:
    type_, compare = words[-1], comparison(words[1])
    opcode = ".".join(words)
    return Spec(opcode, ("pred", "pred"), (type_, type_), lambda a, b: (compare(a, b), not compare(a, b)))


# --------------------------------------------------------------------------------------------------- all


def integer_arithmetic(words: Sequence[str]) -> Spec | None:
    """Instructions with one type, at the end, and results modulo its width."""
    opcode, type_, name = ".".join(words), words[-1], ".".join(words[:-1])
    n = bits_of(type_)
    wide = f"{type_[0]}{2 * n}"
    t, w = type_, "u32"
    table: dict[str, tuple[tuple[str, ...], str, Function]] = {
        "add": ((t, t), t, lambda a, b: a + b),
        "sub": ((t, t), t, lambda a, b: a - b),
        "mul.lo": ((t, t), t, lambda a, b: a * b),
        "mul.hi": ((t, t), t, lambda a, b: a * b >> n),
        "mul.wide": ((t, t), wide, lambda a, b: a * b),
        "mad.lo": ((t, t, t), t, lambda a, b, c: a * b + c),
        "mad.hi": ((t, t, t), t, lambda a, b, c: (a * b >> n) + c),
        "mad.wide": ((t, t, wide), wide, lambda a, b, c: a * b + c),
        "div": ((t, t), t, quotient),
        "rem": ((t, t), t, remainder),
        "min": ((t, t), t, min),
        "max": ((t, t), t, max),
        "neg": ((t,), t, lambda a: -a),
        "abs": ((t,), t, abs),
        "and": ((t, t), t, lambda a, b: a & b),
        "or": ((t, t), t, lambda a, b: a | b),
        "xor": ((t, t), t, lambda a, b: a ^ b),
        "not": ((t,), t, lambda a: ~a),
        "shl": ((t, w), t, lambda a, by: a << min(by, 64)),
        "shr": ((t, w), t, lambda a, by: shifted_right(a, by, n)),
        "popc": ((t,), w, lambda a: a.bit_count()),
        "clz": ((t,), w, lambda a: n - a.bit_length()),
        "brev": ((t,), t, lambda a: int(f"{a:0{n}b}"[::-1], 2)),
        "bfind.shiftamt": ((t,), w, lambda a: n - a.bit_length() if a else 2**32 - 1),
        "bfi": ((t, t, w, w), t, lambda a, b, c, d: inserted(a, b, c, d, n)),
        "prmt": ((w, w, w), w, permuted),
        "selp": ((t, t, "pred"), t, lambda a, b, p: a if p else b),
        "mov": ((t,), t, lambda a: a),
    }
    if opcode == "dp2a.lo.u32.u32":
        return Spec(opcode, (w,), (w, w, w), lambda a, b, c: (a % 2**16) * (b % 2**8) + (a >> 16) * (b >> 8 & 255) + c)
    if words[0] == "shf":
        return Spec(opcode, (w,), (w, w, w), funnel(opcode))
    if name not in table:
        return None
    sources, to, f = table[name]
    return Spec(opcode, (to,), sources, f)


def parts(words: Sequence[str]) -> Spec:
    """mov between a register and its parts: pack2.b64 stands for `mov.b64 d, {a, b}`."""
    count, n = int(words[0][-1]), bits_of(words[1])
    part, each = f"b{n // count}", n // count
    if words[0].startswith("pack"):
        return Spec(".".join(words), (words[1],), (part,) * count,
                    lambda *all_: sum(v << each * i for i, v in enumerate(all_)))  # fmt: skip
    mask = (1 << each) - 1
    return Spec(".".join(words), (part,) * count, (words[1],),
                lambda v: tuple(v >> each * i & mask for i in range(count)))  # fmt: skip


def spec_of(opcode: str) -> Spec | None:
    """None if it concerns more than one lane's registers, or has no meaning by itself."""
    words = opcode.split(".")
    if words[0] == "cvt":
        return conversion(words)
    if words[0] == "setp":
        return setp(words)
    if re.match(r"(un)?pack\d", words[0]):
        return parts(words)
    if words[-1] == "pred" and words[0] in ("and", "or", "xor"):
        f = {"and": lambda a, b: a and b, "or": lambda a, b: a or b, "xor": lambda a, b: a != b}[words[0]]
        return Spec(opcode, ("pred",), ("pred", "pred"), f)
    if opcode in ("not.pred", "mov.pred"):
        return Spec(opcode, ("pred",), ("pred",), (lambda a: not a) if words[0] == "not" else (lambda a: a))
    if words[0] in ("selp", "mov") and words[-1][0] == "f":
        type_ = words[-1]
        if words[0] == "mov":
            return Spec(opcode, (type_,), (type_,), lambda a: a)
        return Spec(opcode, (type_,), (type_, type_, "pred"), lambda a, b, p: a if p else b)
    if opcode == "add.rz.f32":
        return Spec(opcode, ("f32",), ("f32", "f32"), lambda a, b: summed(a, b, "f32", truncate=True))
    real = re.fullmatch(r"(\w+)(?:\.rn)?\.(f32|f64)", opcode)
    if real and real[1] not in ("ld", "st"):
        name, type_ = real.groups()
        count, f = real_arithmetic(name, type_)
        return Spec(opcode, (type_,), (type_,) * count, f)
    if words[0] in ("ld", "st", "atom", "red", "cvta") or not re.fullmatch(r"[usb](16|32|64)", words[-1]):
        return None
    return integer_arithmetic(words)
