"""Every instruction of the table against ptx_reference.py; and accesses, atomics, exchanges."""

from __future__ import annotations

import itertools
import math
import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptx_library import PtxError, PtxLibrary
from ptx_reference import Spec, bits_of, from_bits, spec_of, to_bits
from ptx_writing import HEAD, kernel, of_lanes, statements
from simt_library import DEVICE

pytestmark = [pytest.mark.simt, pytest.mark.full]

THREADS = 512
#: Instructions that concern more than one lane's registers; tested below or in test_ptx_machine.py.
ELSEWHERE = {"ld", "st", "atom", "red", "cvta", "bar", "fence", "membar", "nanosleep", "bra", "brx"}
ELSEWHERE |= {"ret", "exit", "trap", "vote", "shfl", "redux", "activemask"}


def corners(type_: str, opcode: str) -> list[int]:
    """Bits of the values at which instructions tend to go wrong."""
    n = bits_of(type_)
    if type_ == "pred":
        return [0, 1]
    if type_[0] == "f":
        one = {32: 0x3F800000, 64: 0x3FF0000000000000}[n]
        unit = {32: 1 << 23, 64: 1 << 52}[n]
        infinity = {32: 0x7F800000, 64: 0x7FF0000000000000}[n]
        halves = [
            to_bits(v, type_) for v in (0.5, 1.5, 2.5, -0.5, 3.7, -3.2, 2.0**31, 2.0**31 - 0.5, 2.0**63, -(2.0**31))
        ]
        exact = [0, 1, unit - 1, unit, one, one + 1, one - 1, infinity - 1, infinity, infinity | unit >> 1]
        exact += [3 * unit + 5]
        return sorted({bits ^ flip for bits in [*exact, *halves] for flip in (0, 1 << (n - 1))})
    some = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x12345678, 0x89ABCDEF]
    some += [1 << (n - 1), (1 << (n - 1)) - 1, (1 << n) - 1, (1 << n) - 2, 0xA5A5A5A5A5A5A5A5, 0x80, 0x7F]
    some += [1 << 24, (1 << 24) + 1]
    some += [(1 << 53) + 1, (1 << 53) + 3]  # ties of conversions
    return sorted({v & ((1 << n) - 1) for v in some})


def operands_of(spec: Spec) -> list[tuple[int, ...]]:
    """All combinations of corners if they are few, else some of them, and random values."""
    random = np.random.default_rng(sum(map(ord, spec.opcode)))
    choices = [corners(type_, spec.opcode) for type_ in spec.sources]
    combinations = list(itertools.product(*choices)) if math.prod(map(len, choices)) < 10**5 else []
    rows = list(combinations)
    if len(rows) > THREADS * 3 // 4 or not rows:
        rows = [tuple(int(random.choice(np.array(c, np.uint64))) for c in choices) for _ in range(THREADS * 3 // 4)]
    while len(rows) < THREADS:
        rows.append(tuple(int(random.integers(0, 1 << bits_of(t), dtype=np.uint64, endpoint=False)) if bits_of(t) < 64
                          else int(random.integers(0, 2**64, dtype=np.uint64)) for t in spec.sources))  # fmt: skip
    return rows[:THREADS]


def is_nan(bits: int, type_: str) -> bool:
    return type_[0] == "f" and math.isnan(from_bits(bits, type_))


def wanted_of(spec: Spec, row: Sequence[int]) -> list[int]:
    found = spec.f(*(from_bits(bits, t) for bits, t in zip(row, spec.sources, strict=True)))
    all_found = found if isinstance(found, tuple) else (found,)
    return [to_bits(v, t) for v, t in zip(all_found, spec.to, strict=True)]


@pytest.fixture(scope="module")
def specs(library: PtxLibrary) -> dict[str, Spec]:
    found = {}
    for opcode, to, sources in library.forms():
        spec = spec_of(opcode)
        if spec is None:
            assert opcode.split(".")[0] in ELSEWHERE, f"{opcode} has no reference"
            continue
        letters = ["".join("p" if t == "pred" else "wd"[bits_of(t) == 64] for t in side) for side in spec[1:3]]
        assert letters == [to.rstrip("?"), sources], opcode
        found[opcode] = spec
    return found


@pytest.fixture(scope="module")
def written(specs: dict[str, Spec]) -> tuple[str, dict[str, str]]:
    """A kernel for every instruction, and their names by opcode."""
    names = {opcode: f"k{i}" for i, opcode in enumerate(specs)}

    def size(type_: str) -> int:
        return max(16, bits_of(type_)) if type_ != "pred" else 1

    texts = [
        of_lanes(names[opcode], opcode, [size(t) for t in spec.to], [size(t) for t in spec.sources])
        for opcode, spec in specs.items()
    ]
    return HEAD + "".join(texts), names


@pytest.fixture
def compiled(library: PtxLibrary, written: tuple[str, dict[str, str]]) -> Iterator[dict[str, str]]:
    text, names = written
    with library.kernels_of(text):
        yield names


FAMILIES = [
    *(
        "abs",
        "add",
        "and",
        "bfi",
        "bfind",
        "brev",
        "clz",
        "copysign",
        "cvt",
        "div",
        "dp2a",
        "fma",
        "mad",
        "max",
        "min",
        "mov",
        "mul",
    ),
    *("neg", "not", "or", "pack2", "popc", "prmt", "rcp", "rem", "selp", "setp", "shf", "shl", "shr", "sub"),
    *("unpack2", "xor"),
]


def test_families_are_all_here(specs: dict[str, Spec]) -> None:
    assert sorted({opcode.split(".")[0] for opcode in specs}) == FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_results(library: PtxLibrary, specs: dict[str, Spec], compiled: dict[str, str], family: str) -> None:
    for opcode, spec in specs.items():
        if opcode.split(".")[0] != family:
            continue
        rows = operands_of(spec)
        out = run(library, compiled[opcode], np.array(rows, np.uint64), THREADS * len(spec.to))
        for row, found in zip(rows, out.reshape(THREADS, -1).tolist(), strict=True):
            wanted = wanted_of(spec, row)
            for bits, want, type_ in zip(found, wanted, spec.to, strict=True):
                kept = bits & ((1 << bits_of(type_)) - 1)
                told = f"{opcode} of {[hex(v) for v in row]} gave {hex(kept)}, not {hex(want)}"
                if is_nan(want, type_):
                    assert is_nan(kept, type_), told
                else:
                    assert kept == want, told


def run(
    library: PtxLibrary,
    entry: str,
    data: NDArray,
    n_out: int,
    *,
    threads: int = THREADS,
    dtype: Any = np.uint64,
    **options: Any,
) -> NDArray:
    """What the kernel writes to its second parameter, given the data as its first."""
    out = np.zeros(n_out, dtype)
    with library.memory(DEVICE, data) as source, library.memory(DEVICE, out) as target:
        library.launch(entry, struct.pack("<3Q", source.pointer, target.pointer, 0), threads=(threads,), **options)
        return np.frombuffer(target.get(), dtype)


def test_no_number_is_canonical_in_32_bits(library: PtxLibrary, compiled: dict[str, str]) -> None:
    for opcode in ("add.rn.f32", "mul.rn.f32", "min.f32", "fma.rn.f32"):
        rows = np.full((THREADS, 3 if "fma" in opcode else 2), 0xFFC01234, np.uint64)
        assert set(run(library, compiled[opcode], rows, THREADS).tolist()) == {0x7FFFFFFF}


def test_numbers_with_a_fraction(ptx: PtxLibrary) -> None:
    """They have the type that the instruction reads."""
    body = statements(
        "mul.wide.u32 %d10, %r0, 8", "add.s64 %d10, %d10, %d1",
        "mov.f32 %r20, -0.1", "st.global.b32 [%d10], %r20", "add.f32 %r20, %r20, 2.25", "st.global.b32 [%d10+4], %r20",
        "cvt.rzi.s32.f32 %r21, 7.9", "st.global.b32 [%d10+8], %r21",
        "mov.f64 %d20, -0.1", "st.global.b64 [%d10+16], %d20",
    )  # fmt: skip
    ptx.use_ptx(HEAD + kernel("k", body))
    found = run(ptx, "k", np.zeros(1), 3, threads=1).tobytes()
    tenth = np.float32(-0.1)
    assert found == struct.pack("<2fi4xd", tenth, tenth + np.float32(2.25), 7, -0.1)


# ---- Accesses

OUT = ("mul.wide.u32 %d10, %r0, 8", "add.s64 %d11, %d10, %d1", "add.s64 %d10, %d10, %d0")


NARROW = ["u8", "s8", "u16", "s16", "u32", "s32"]


@pytest.mark.parametrize(("type_", "wide"), [*itertools.product(NARROW, [False, True]), ("u64", True), ("f64", True)])
def test_loads_extend(ptx: PtxLibrary, type_: str, wide: bool) -> None:
    to, class_ = ("%d20", "b64") if wide else ("%r20", "b32")
    ptx.use_ptx(
        HEAD + kernel("k", statements(*OUT, f"ld.global.{type_} {to}, [%d10]", f"st.global.{class_} [%d11], {to}"))
    )
    data = np.random.default_rng(1).integers(0, 2**64, 64, np.uint64)
    found = run(ptx, "k", data, 64, threads=64)
    n = bits_of(type_)
    mask = (1 << (64 if wide else 32)) - 1
    assert found.tolist() == [
        from_bits(int(v) & ((1 << n) - 1), "s" + type_[1:] if type_[0] == "s" else "u" + type_[1:]) & mask for v in data
    ]


@pytest.mark.parametrize("space", ["shared", "local", "generic"])
@pytest.mark.parametrize("vector", [1, 2, 4])
def test_stores_and_vectors(ptx: PtxLibrary, space: str, vector: int) -> None:
    """Through memory of each space, with immediates among the stored values."""
    v = f".v{vector}" if vector > 1 else ""
    words = ["%r20", "7", "%r22", "%r23"][:vector]
    loaded = [f"%r{30 + k}" for k in range(vector)]
    listed = [", ".join(all_) if vector == 1 else "{" + ", ".join(all_) + "}" for all_ in (words, loaded)]
    variable = "cell" if space == "local" else "cells"
    where = ["mov.u64 %d20, " + variable]
    if space != "local":
        where += ["mul.wide.u32 %d21, %r52, 16", "add.s64 %d20, %d20, %d21"]
    dot = f".{space}"
    if space == "generic":
        where += ["cvta.shared.u64 %d20, %d20"]
        dot = ""
    body = [*OUT, *where, "ld.global.u32 %r20, [%d10]", "add.u32 %r22, %r20, 2", "add.u32 %r23, %r20, 3",
            f"st{dot}{v}.u32 [%d20], {listed[0]}", f"ld.volatile{dot}{v}.u32 {listed[1]}, [%d20]",
            "mov.u32 %r40, 0", *[f"mad.lo.u32 %r40, {r}, {k + 1}, %r40" for k, r in enumerate(loaded)],
            "st.global.u32 [%d11], %r40"]  # fmt: skip
    text = kernel(
        "k", statements(*body), shared=".shared .align 16 .b8 cells[1024];", local=".local .align 16 .b8 cell[16];"
    )
    ptx.use_ptx(HEAD + text)
    data = np.arange(5, 69, dtype=np.uint64)
    words_of = [lambda a: a, lambda a: 7, lambda a: a + 2, lambda a: a + 3]
    wanted = [sum((k + 1) * words_of[k](a) for k in range(vector)) for a in range(5, 69)]
    assert run(ptx, "k", data, 64, threads=64).tolist() == wanted


def test_generic_addresses_of_several_spaces(ptx: PtxLibrary) -> None:
    """Odd lanes read shared memory, even ones global memory, in one instruction."""
    body = [*OUT, "mul.wide.u32 %d21, %r52, 8", "mov.u64 %d20, cells", "add.s64 %d20, %d20, %d21",
            "cvt.u64.u32 %d23, %r52", "st.shared.u64 [%d20], %d23", "cvta.shared.u64 %d20, %d20",
            "and.b32 %r20, %r52, 1", "setp.eq.u32 %p1, %r20, 1", "selp.b64 %d22, %d20, %d10, %p1",
            "ld.u64 %d24, [%d22]", "st.u64 [%d11], %d24"]  # fmt: skip
    ptx.use_ptx(HEAD + kernel("k", statements(*body), shared=".shared .align 8 .b8 cells[256];"))
    data = np.arange(100, 132, dtype=np.uint64)
    assert run(ptx, "k", data, 32, threads=32).tolist() == [k if k % 2 else 100 + k for k in range(32)]


@pytest.mark.parametrize(
    ("access", "told"),
    [
        (
            "ld.global.u32 %r20, [%d10+256]",
            "outside of every allocation: it is byte 256 from the beginning of one of 256",
        ),
        ("ld.global.u32 %r20, [%d10+-8]", "outside of every allocation"),
        ("st.global.u32 [%d10+2], %r0", "is not a multiple of 4"),
        ("ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%d10]", "is not a multiple of 16"),
        ("ld.shared.u32 %r20, [cells+64]", "byte 64 of 64 bytes of shared memory"),
        ("ld.shared.u32 %r20, [cells+-4]", "byte -4 of 64 bytes of shared memory"),
        ("st.shared.u64 [cells+60], %d10", "is not a multiple of 8"),
        ("ld.local.u32 %r20, [cell+16]", "byte 16 of 16 bytes of local memory"),
        ("ld.param.u32 %r20, [k_2+8]", "byte 24 of 24 bytes of parameter memory"),
        ("ld.u32 %r20, [%d30]", "is in no space"),
        ("ld.global.u64 %d30, [0]", "outside of every allocation"),
    ],
)
def test_bad_accesses_are_named(ptx: PtxLibrary, access: str, told: str) -> None:
    body = [*OUT, "mov.u64 %d30, 0x7000000000000000", access]
    text = kernel(
        "k", statements(*body), shared=".shared .align 16 .b8 cells[64];", local=".local .align 16 .b8 cell[16];"
    )
    ptx.use_ptx(HEAD + text)
    with pytest.raises(PtxError) as raised:
        run(ptx, "k", np.zeros(32, np.uint64), 32, threads=32)
    report = str(raised.value)
    line = 1 + HEAD.count("\n") + text[: text.index(f"    {access};")].count("\n")
    assert told in report
    assert f"kernel k, line {line}: {access};" in report
    assert "block (0, 0, 0), warp 0, lanes " in report


def test_memory_that_was_freed(ptx: PtxLibrary) -> None:
    ptx.use_ptx(HEAD + kernel("k", statements("st.global.u32 [%d0], %r0"), parameters=1))
    with ptx.memory(DEVICE, 64) as memory:
        ptx.launch("k", struct.pack("<Q", memory.pointer))
    with pytest.raises(PtxError, match="outside of every allocation"):
        ptx.launch("k", struct.pack("<Q", memory.pointer))


# ---- Atomics

ATOMICS: dict[str, Callable[[int, int], int]] = {
    **{f"add.u{n}": operator.add for n in (32, 64)},
    **{f"max.u{n}": max for n in (32, 64)},
    **{f"or.b{n}": operator.or_ for n in (32, 64)},
}


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("operation", ATOMICS)
def test_atomics(ptx: PtxLibrary, operation: str, space: str) -> None:
    """All lanes, in order, on a few places; atom also returns the old value, red does not."""
    n = bits_of(operation.split(".")[1])
    f, mask = ATOMICS[operation], (1 << n) - 1
    dot = f".{space}" if space else ""
    register = "%d" if n == 64 else "%r"
    where = ["and.b32 %r19, %r52, 3", "mul.wide.u32 %d15, %r19, 8"]
    setup = [*where, "add.s64 %d12, %d1, %d15", "add.s64 %d12, %d12, 512"]
    teardown: list[str] = []
    if space == "shared":
        setup = [
            *where,
            "mov.u64 %d12, cells",
            "add.s64 %d12, %d12, %d15",
            "mov.u64 %d16, 0",
            "st.shared.u64 [%d12], %d16",
        ]
        teardown = [
            "add.s64 %d13, %d1, %d15",
            f"ld.shared.b{n} {register}25, [%d12]",
            f"st.global.b{n} [%d13+512], {register}25",
        ]
    body = [*OUT, *setup, f"ld.global.b{n} {register}20, [%d10]",
            f"atom{dot}.{operation} {register}24, [%d12], {register}20",
            f"red.relaxed.gpu{dot}.{operation} [%d12], {register}20",
            f"st.global.b{n} [%d11], {register}24", *teardown]  # fmt: skip
    ptx.use_ptx(HEAD + kernel("k", statements(*body), shared=".shared .align 8 .b8 cells[32];"))
    random = np.random.default_rng(3)
    data = [int(v) & mask for v in random.integers(0, 2**64, 32, np.uint64)]
    data[8:16] = [0, 1, 9, 0, mask, 1 << (n - 1), 9, 0]
    out = run(ptx, "k", np.array(data, np.uint64), 68, threads=32)
    cells = [0] * 4
    returned = []
    for _ in range(2):
        for lane, value in enumerate(data):
            returned.append(cells[lane % 4])
            cells[lane % 4] = f(cells[lane % 4], value) & mask
    assert [int(v) & mask for v in out[:32]] == returned[:32]
    assert [int(v) & mask for v in out[64:]] == cells


# ---- Exchanges


def exchanged(ptx: PtxLibrary, body: Sequence[str], data: NDArray) -> NDArray:
    """Two 32-bit results of each lane: %r30, and the predicate %p3."""
    start = ["mul.wide.u32 %d10, %r0, 4", "add.s64 %d10, %d10, %d0", "mul.wide.u32 %d11, %r0, 8",
             "add.s64 %d11, %d11, %d1", "ld.global.u32 %r20, [%d10]", "setp.eq.u32 %p3, 0, 1",
             "mov.u32 %r30, 0"]  # fmt: skip
    end = ["selp.u32 %r31, 1, 0, %p3", "st.global.v2.u32 [%d11], {%r30, %r31}"]
    ptx.use_ptx(HEAD + kernel("k", statements(*start, *body, *end)))
    return run(ptx, "k", data, 64, threads=32, dtype=np.uint32).reshape(32, 2)


VALUES = np.random.default_rng(7).integers(0, 2**32, 32, np.uint32)


@pytest.mark.parametrize("width", [32, 16, 8, 4])
@pytest.mark.parametrize("by", [0, 1, 3, 5, 16, 31])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(ptx: PtxLibrary, mode: str, by: int, width: int) -> None:
    control = (32 - width) << 8 | (0 if mode == "up" else 31)
    found = exchanged(ptx, [f"shfl.sync.{mode}.b32 %r30|%p3, %r20, {by}, {control}, -1"], VALUES)
    for lane in range(32):
        first = lane // width * width
        wanted = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": first + by % width}[mode]
        inside = mode == "idx" or ((mode == "bfly" or first <= wanted) and wanted < first + width)
        source = wanted if inside else lane
        assert found[lane].tolist() == [VALUES[source], int(inside)], lane


def test_votes(ptx: PtxLibrary) -> None:
    some = (VALUES & 1).astype(bool)
    ballot = sum(int(v) << lane for lane, v in enumerate(some))
    ask = ["and.b32 %r21, %r20, 1", "setp.ne.u32 %p1, %r21, 0"]
    assert set(exchanged(ptx, [*ask, "vote.sync.ballot.b32 %r30, %p1, -1"], VALUES)[:, 0].tolist()) == {ballot}
    inverse = exchanged(ptx, [*ask, "vote.sync.ballot.b32 %r30, !%p1, -1"], VALUES)
    assert set(inverse[:, 0].tolist()) == {ballot ^ 0xFFFFFFFF}
    for data, wanted in ((VALUES, (0, 1)), (VALUES | 1, (1, 1)), (VALUES & 0xFFFFFFFE, (0, 0))):
        for vote, holds in zip(("all", "any"), wanted, strict=True):
            found = exchanged(ptx, [*ask, f"vote.sync.{vote}.pred %p3, %p1, -1"], data)
            assert set(found[:, 1].tolist()) == {holds}, vote


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ("add.u32", int(VALUES.sum(dtype=np.uint64)) & 0xFFFFFFFF),
        ("add.s32", int(VALUES.sum(dtype=np.uint64)) & 0xFFFFFFFF),
        ("min.u32", int(VALUES.min())),
        ("max.u32", int(VALUES.max())),
        ("min.s32", int(VALUES.view(np.int32).min()) & 0xFFFFFFFF),
        ("max.s32", int(VALUES.view(np.int32).max()) & 0xFFFFFFFF),
        ("and.b32", int(np.bitwise_and.reduce(VALUES | 0x100))),
        ("or.b32", int(np.bitwise_or.reduce(VALUES))),
        ("xor.b32", int(np.bitwise_xor.reduce(VALUES))),
    ],
)
def test_reductions(ptx: PtxLibrary, operation: str, wanted: int) -> None:
    data = VALUES | 0x100 if operation == "and.b32" else VALUES
    found = exchanged(ptx, [f"redux.sync.{operation} %r30, %r20, -1"], data)
    assert set(found[:, 0].tolist()) == {wanted}


def test_masks_of_groups(ptx: PtxLibrary) -> None:
    """Lanes that name each other in their masks are a group; two groups reduce in one instruction."""
    body = ["and.b32 %r21, %r52, 1", "setp.eq.u32 %p1, %r21, 1", "selp.u32 %r22, 0xAAAAAAAA, 0x55555555, %p1",
            "redux.sync.min.u32 %r30, %r20, %r22"]  # fmt: skip
    found = exchanged(ptx, body, VALUES)
    assert found[:, 0].tolist() == [int(VALUES[lane % 2 :: 2].min()) for lane in range(32)]


@pytest.mark.parametrize(
    ("body", "told", "which"),
    [
        (["@%p1 shfl.sync.idx.b32 %r30, %r20, 0, 31, -1"], "mask 0xffffffff names lanes that are not here", "0-7"),
        (["@%p1 vote.sync.any.pred %p3, %p1, -1"], "names lanes that are not here", "0-7"),
        (["@%p1 bar.warp.sync -1"], "names lanes that are not here", "0-7"),
        (["@%p1 shfl.sync.idx.b32 %r30, %r20, 0, 31, 0xFFFFFF00"], "reads lane 0, which does not take part", "8"),
        (["bar.warp.sync 0xFFFFFF00"], "mask 0xffffff00 does not name the lane itself", "0"),
        (["selp.u32 %r21, -1, 0xFFFFFF01, %p1", "redux.sync.add.u32 %r30, %r20, %r21"], "masks that differ", "8-31"),
    ],
)
def test_lanes_that_do_not_meet(ptx: PtxLibrary, body: list[str], told: str, which: str) -> None:
    with pytest.raises(PtxError) as raised:
        exchanged(ptx, ["setp.gt.u32 %p1, %r52, 7", *body], VALUES)
    assert told in str(raised.value)
    assert f"warp 0, lanes {which}\n" in str(raised.value)


def test_lanes_that_have_exited_are_not_waited_for(ptx: PtxLibrary) -> None:
    found = exchanged(ptx, ["setp.gt.u32 %p1, %r52, 7", "@!%p1 exit", "redux.sync.min.u32 %r30, %r20, -1"], VALUES)
    assert found[:, 0].tolist() == [0] * 8 + [int(VALUES[8:].min())] * 24
