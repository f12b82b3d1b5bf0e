"""Warps, blocks and barriers; what is reported; and what is counted."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ptx_library import Counts, PtxError, PtxLibrary
from ptx_writing import HEAD, kernel, statements
from simt_library import DEVICE

pytestmark = [pytest.mark.simt, pytest.mark.full]

#: The address of the thread's word for its result, %r1: in the kernel's first parameter, at the thread's number.
PLACE = ("mul.wide.u32 %d10, %r0, 4", "add.s64 %d10, %d10, %d0")
KEEP = ("st.global.u32 [%d10], %r1",)
SCHEDULES = [(0, 0, 4), (1, 0, 1), (2, 1, 3), (2, 9, 16)]


def run(
    ptx: PtxLibrary,
    body: Sequence[str],
    *,
    blocks: int = 1,
    threads: int = 32,
    shared: str = "",
    more: int = 0,
    **options: Any,
) -> NDArray[np.uint32]:
    """%r1 of every thread, in order, then `more` words for the kernel to use, initially zero."""
    ptx.use_ptx(HEAD + kernel("k", statements(*PLACE, "mov.u32 %r1, 0", *body, *KEEP), parameters=2, shared=shared))
    n = blocks * threads
    with ptx.memory(DEVICE, np.zeros(n + more, np.uint32)) as out:
        ptx.launch(
            "k", struct.pack("<2Q", out.pointer, out.pointer + 4 * n), blocks=(blocks,), threads=(threads,), **options
        )
        return np.frombuffer(out.get(), np.uint32)


# ---- Control flow


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nested_branches_meet_again(ptx: PtxLibrary, schedule: tuple[int, int, int]) -> None:
    """Four paths through two levels; the lanes meet again after each level."""
    ptx.set_schedule(*schedule)
    body = [
        "and.b32 %r20, %r52, 1", "setp.eq.u32 %p1, %r20, 1", "and.b32 %r21, %r52, 2", "setp.eq.u32 %p2, %r21, 2",
        "@%p1 bra odd",
        "add.u32 %r1, %r1, 1", "@%p2 bra even_two", "add.u32 %r1, %r1, 10", "bra even_end",
        "even_two:", "add.u32 %r1, %r1, 20",
        "even_end:", "activemask.b32 %r22", "bra end",
        "odd:", "add.u32 %r1, %r1, 2", "@!%p2 bra odd_end", "add.u32 %r1, %r1, 30",
        "odd_end:", "activemask.b32 %r22",
        "end:", "bar.warp.sync -1", "xor.b32 %r1, %r1, %r22",
    ]  # fmt: skip
    wanted = []
    for lane in range(32):
        odd, two = lane % 2, lane // 2 % 2
        way = (2 + 30 * two) if odd else (1 + (20 if two else 10))
        wanted.append(way ^ (0xAAAAAAAA if odd else 0x55555555))
    assert run(ptx, body).tolist() == wanted


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_loops_end_lane_by_lane(ptx: PtxLibrary, schedule: tuple[int, int, int]) -> None:
    """Each lane loops as often as its number says, with an inner loop and an exit in the middle."""
    ptx.set_schedule(*schedule)
    body = [
        "mov.u32 %r20, 0",
        "outer:", "setp.ge.u32 %p1, %r20, %r52", "@%p1 bra end", "mov.u32 %r21, 0",
        "inner:", "add.u32 %r1, %r1, 1", "add.u32 %r21, %r21, 1", "setp.eq.u32 %p2, %r1, 50", "@%p2 bra end",
        "setp.lt.u32 %p3, %r21, %r20", "@%p3 bra inner",
        "add.u32 %r20, %r20, 1", "bra.uni outer",
        "end:", "bar.warp.sync -1",
    ]  # fmt: skip
    assert run(ptx, body, threads=64)[:32].tolist() == [
        min(50, sum(max(1, k) for k in range(lane))) for lane in range(32)
    ]


def test_lanes_that_exit_leave_the_others(ptx: PtxLibrary) -> None:
    body = ["setp.gt.u32 %p1, %r52, 20", "@%p1 ret", "setp.lt.u32 %p2, %r52, 5", "@%p2 bra early",
            "mov.u32 %r1, 1", "bra.uni end", "early:", "mov.u32 %r1, 2", "setp.eq.u32 %p3, %r52, 3", "@%p3 exit",
            "end:", "bar.warp.sync -1", "bar.sync 0"]  # fmt: skip
    wanted = [0 if lane == 3 or lane > 20 else 2 if lane < 5 else 1 for lane in range(32)]
    assert run(ptx, body).tolist() == wanted


def test_a_branch_by_table(ptx: PtxLibrary) -> None:
    body = ["and.b32 %r20, %r52, 3", "ways: .branchtargets a, b, c, a", "brx.idx %r20, ways",
            "a:", "mov.u32 %r1, 5", "bra end", "b:", "mov.u32 %r1, 6", "bra end", "c:", "mov.u32 %r1, 7",
            "end:", "bar.warp.sync -1"]  # fmt: skip
    assert run(ptx, body).tolist() == [5, 6, 7, 5] * 8
    with pytest.raises(PtxError, match="an index beyond the branch's targets"):
        run(ptx, ["mov.u32 %r20, 9", *body[1:]])


def test_predicated_instructions_keep_the_rest(ptx: PtxLibrary) -> None:
    body = ["mov.u32 %r1, 7", "setp.lt.u32 %p1, %r52, 9", "@%p1 add.u32 %r1, %r52, 100", "@!%p1 sub.u32 %r1, %r1, %r52"]
    assert run(ptx, body).tolist() == [100 + k if k < 9 else (7 - k) % 2**32 for k in range(32)]


def test_special_registers(ptx: PtxLibrary) -> None:
    for name, wanted in (
        ("%tid.x", lambda b, t: t), ("%ctaid.x", lambda b, t: b), ("%ntid.x", lambda b, t: 96),
        ("%nctaid.x", lambda b, t: 3), ("%ctaid.y", lambda b, t: 0), ("%ntid.y", lambda b, t: 1),
        ("%laneid", lambda b, t: t % 32),
    ):  # fmt: skip
        found = run(ptx, [f"mov.u32 %r1, {name}"], blocks=3, threads=96)
        assert found.tolist() == [wanted(b, t) for b in range(3) for t in range(96)], name


def test_blocks_of_three_dimensions(ptx: PtxLibrary) -> None:
    body = ["mov.u32 %r20, %tid.x", "mov.u32 %r21, %tid.y", "mov.u32 %r22, %tid.z",
            "mad.lo.u32 %r23, %r22, 3, %r21", "mad.lo.u32 %r23, %r23, 5, %r20", "mul.wide.u32 %d10, %r23, 4",
            "add.s64 %d10, %d10, %d0", "mov.u32 %r1, %r23"]  # fmt: skip
    ptx.use_ptx(HEAD + kernel("k", statements(*body, *KEEP), parameters=1))
    with ptx.memory(DEVICE, 4 * 60) as out:
        ptx.launch("k", struct.pack("<Q", out.pointer), threads=(5, 3, 4))
        assert np.frombuffer(out.get(), np.uint32).tolist() == list(range(60))


def test_variables_of_the_file(ptx: PtxLibrary) -> None:
    """Constant and global ones, with their initial values; a global one keeps what a launch has written."""
    head = (
        ".const .align 8 .b8 few[8] = {1, 2, 0xFF, 4, 5, 6, 7, 8};\n.global .align 4 .u32 sums[2] = {10, 0xFFFFFFFF};\n"
    )
    body = ["and.b32 %r20, %r52, 7", "cvt.u64.u32 %d20, %r20", "mov.u64 %d21, few", "add.s64 %d20, %d20, %d21",
            "ld.const.u8 %r1, [%d20]", "mov.u64 %d22, sums", "red.global.add.u32 [sums+4], 1", "ld.u32 %r21, [%d22]",
            "add.u32 %r1, %r1, %r21", "ld.global.u32 %r22, [sums+4]", "mad.lo.u32 %r1, %r22, 1000, %r1"]  # fmt: skip
    ptx.use_ptx(HEAD + head + kernel("k", statements(*PLACE, *body, *KEEP), parameters=1))
    with ptx.memory(DEVICE, 128) as out:
        for launches in (1, 2):
            ptx.launch("k", struct.pack("<Q", out.pointer))
            found = np.frombuffer(out.get(), np.uint32).tolist()
            assert found == [(32 * launches - 1) * 1000 + 10 + [1, 2, 255, 4, 5, 6, 7, 8][k % 8] for k in range(32)]


def test_parameters(ptx: PtxLibrary) -> None:
    """Several, with gaps between them; read by name and by address."""
    text = """
.visible .entry k(.param .u64 k_0, .param .u8 k_1, .param .align 8 .b8 k_2[16], .param .u16 k_3)
{
    .reg .b32 %r<9>;
    .reg .b64 %d<9>;
    ld.param.u64 %d0, [k_0];
    ld.param.u8 %r0, [k_1];
    mov.b64 %d1, k_2;
    add.s64 %d2, %d1, 20;
    ld.param.u32 %r1, [%d2+-12];
    ld.param.u32 %r2, [%d1+12];
    ld.param.s16 %r3, [k_3];
    st.global.v4.u32 [%d0], {%r0, %r1, %r2, %r3};
    ret;
}
"""
    ptx.use_ptx(HEAD + text)
    with ptx.memory(DEVICE, 16) as out:
        ptx.launch("k", struct.pack("<QB7xQIIh", out.pointer, 200, 1, 22, 33, -4))
        assert np.frombuffer(out.get(), np.uint32).tolist() == [200, 22, 33, 2**32 - 4]


# ---- Barriers and blocks


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_barriers(ptx: PtxLibrary, schedule: tuple[int, int, int]) -> None:
    """Every thread reads what the opposite thread of the block has written."""
    ptx.set_schedule(*schedule)
    body = ["mul.wide.u32 %d20, %r52, 4", "mov.u64 %d21, cells", "add.s64 %d20, %d20, %d21",
            "st.shared.u32 [%d20], %r0", "bar.sync 0", "sub.u32 %r20, 127, %r52",
            "mul.wide.u32 %d22, %r20, 4", "add.s64 %d22, %d22, %d21",
            "ld.shared.u32 %r1, [%d22]"]  # fmt: skip
    found = run(ptx, body, blocks=5, threads=128, shared=".shared .align 4 .b8 cells[512];")
    assert found.tolist() == [128 * b + 127 - t for b in range(5) for t in range(128)]


def test_barriers_that_reduce(ptx: PtxLibrary) -> None:
    body = ["setp.lt.u32 %p1, %r52, 70", "bar.red.popc.u32 %r20, 0, %p1", "bar.red.and.pred %p2, 0, %p1",
            "bar.red.or.pred %p3, 0, %p1", "setp.lt.u32 %p4, %r52, 96", "bar.red.and.pred %p5, 0, 96, %p4",
            "selp.u32 %r21, 1000, 0, %p2", "selp.u32 %r22, 2000, 0, %p3", "selp.u32 %r23, 4000, 0, %p5",
            "add.u32 %r1, %r20, %r21", "add.u32 %r1, %r1, %r22", "add.u32 %r1, %r1, %r23"]  # fmt: skip
    assert set(run(ptx, body, threads=96).tolist()) == {70 + 2000 + 4000}


def test_dynamic_shared_memory_follows_the_static(ptx: PtxLibrary) -> None:
    text = HEAD + ".extern .shared .align 16 .b8 dynamic[];\n" + kernel(
        "k", statements(*PLACE, "mov.u32 %r20, dynamic", "mov.u32 %r21, own", "sub.u32 %r1, %r20, %r21",
                        "st.shared.u32 [dynamic+60], %r1", *KEEP),
        parameters=1, shared=".shared .align 4 .b8 own[20];")  # fmt: skip
    ptx.use_ptx(text)
    with ptx.memory(DEVICE, 128) as out:
        ptx.launch("k", struct.pack("<Q", out.pointer), shared=64)
        assert set(np.frombuffer(out.get(), np.uint32).tolist()) == {32}
        with pytest.raises(PtxError, match="byte 92 of 92 bytes of shared memory"):
            ptx.launch("k", struct.pack("<Q", out.pointer), shared=60)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_that_wait_for_earlier_ones(ptx: PtxLibrary, schedule: tuple[int, int, int]) -> None:
    """Blocks take tickets, and each spins until the one before has added to the sum: with and without sleeping."""
    ptx.set_schedule(*schedule)
    for sleep in (["nanosleep.u32 20"], []):
        body = ["setp.ne.u32 %p1, %r52, 0", "@%p1 bra end", "atom.global.add.u32 %r20, [%d1], 1",
                "spin:", *sleep, "ld.volatile.global.u32 %r21, [%d1+4]", "setp.ne.u32 %p2, %r21, %r20", "@%p2 bra spin",
                "membar.gl", "add.u32 %r22, %r20, 1", "st.volatile.global.u32 [%d1+4], %r22", "mov.u32 %r1, %r20",
                "end:"]  # fmt: skip
        found = run(ptx, [*body, "bar.sync 0"], blocks=40, threads=64, more=2)
        assert sorted(found[:-2:64].tolist()) == list(range(40))
        assert found[-2:].tolist() == [40, 40]


# ---- What is reported


@pytest.mark.parametrize(
    ("body", "told", "at", "where"),
    [
        (["setp.lt.u32 %p1, %r52, 32", "@%p1 bra end", "bar.sync 1, 64", "end:"],
         "threads wait for ever in a barrier", "bar.sync 1, 64;", "warp 1, lanes 0-31"),
        (["setp.lt.u32 %p1, %r52, 8", "@%p1 bra end", "bar.sync 0", "end:"],
         "a barrier that not all lanes of the warp have reached", "bar.sync 0;", "warp 0, lanes 0-7"),
        (["setp.lt.u32 %p1, %r52, 32", "@%p1 bar.sync 0", "@!%p1 bar.red.popc.u32 %r20, 0, %p1"],
         "as another kind", "@!%p1 bar.red.popc.u32 %r20, 0, %p1;", "warp 1, lanes 0-31"),
        (["again:", "ld.volatile.global.u32 %r20, [%d1]", "setp.eq.u32 %p1, %r20, 0", "@%p1 bra again"],
         "everything only spins", "", "warp 0, lanes 0-31"),
        (["add.u32 %r1, %r33, 1"], "register %r33 has no value", "add.u32 %r1, %r33, 1;", "warp 0, lanes 0-31"),
        (["setp.gt.u32 %p1, %r52, 3", "@%p1 mov.u32 %r33, 1", "mov.u32 %r1, %r33"],
         "register %r33 has no value", "mov.u32 %r1, %r33;", "warp 0, lanes 0-3"),
        (["setp.eq.u32 %p1, %r52, 40", "@%p1 trap"], "a trap", "@%p1 trap;", "warp 1, lanes 8"),
        (["bar.sync 16"], "barrier 16", "bar.sync 16;", "warp 0"),
    ],
)  # fmt: skip
def test_what_threads_must_not_do(ptx: PtxLibrary, body: list[str], told: str, at: str, where: str) -> None:
    with pytest.raises(PtxError) as raised:
        run(ptx, body, threads=64, more=1)
    assert told in str(raised.value)
    assert f": {at}" in str(raised.value)
    assert f"block (0, 0, 0), {where}" in str(raised.value)
    assert run(ptx, [], threads=64).tolist() == [0] * 64  # the next launch is not affected


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("frobnicate.u32 %r1, %r2", "frobnicate.u32: no such instruction is known"),
        ("call.uni there, (%r1)", "call.uni: no such instruction is known"),
        ("add.u32 %r1, %r0", "add.u32: takes 3 operands"),
        ("add.u32 %r1, %r0, %d0", "register %d0 has the wrong size"),
        ("add.u32 %r1, %r0, %p0", "a predicate where none is expected"),
        ("add.u32 %r1, %r0, nothing", "'nothing' is not known"),
        ("bra nowhere", "no label nowhere"),
    ],
)
def test_what_cannot_be_decoded(ptx: PtxLibrary, statement: str, told: str) -> None:
    text = HEAD + kernel("k", statements(statement), parameters=1)
    ptx.use_ptx(text)
    with pytest.raises(PtxError) as raised:
        ptx.launch("k", struct.pack("<Q", 0))
    assert f"PTX line {1 + text[: text.index(statement)].count(chr(10))}: " in str(raised.value)
    assert told in str(raised.value)


def test_what_cannot_be_read(ptx: PtxLibrary) -> None:
    for text, told in (("x", "a statement that is not known"), (".visible .entry k() {", "ends within a statement")):
        with pytest.raises(PtxError, match=told):
            ptx.use_ptx(text)
    with pytest.raises(PtxError, match="cannot be read"):
        ptx.use_ptx(Path(__file__).with_suffix(".nothing"))


# ---- What is counted


def counted(ptx: PtxLibrary, body: Sequence[str], **options: Any) -> Counts:
    """The counts of the launch, less those of a kernel that does nothing."""
    ptx.clear()
    run(ptx, [], **options)
    run(ptx, body, **options)
    nothing, something = ptx.counts()
    found = {name: value - nothing[name] for name, value in something.items() if isinstance(value, int)}
    found["threads"] = {name: n - nothing["threads"][name] for name, n in something["threads"].items()}
    return found


def test_instructions_by_class(ptx: PtxLibrary) -> None:
    body = ["add.u32 %r20, %r52, 1", "setp.lt.u32 %p1, %r52, 10", "@%p1 mul.lo.u32 %r20, %r20, 3",
            "cvt.rn.f32.u32 %r21, %r20", "add.rn.f32 %r21, %r21, %r21", "cvt.rn.f64.u32 %d20, %r20",
            "add.f64 %d20, %d20, %d20", "st.shared.u32 [cell], 5", "redux.sync.add.u32 %r22, %r20, -1", "bar.sync 0",
            "ld.global.u32 %r23, [%d10]"]  # fmt: skip
    found = counted(ptx, body, blocks=2, threads=64, shared=".shared .align 4 .b8 cell[4];")
    wanted = dict.fromkeys(found["threads"], 0)
    wanted |= {"integer": 128 + 2 * 10, "predicate": 128, "conversion": 256, "float": 128, "double": 128, "shared": 128}
    wanted |= {"shuffle": 128, "barrier": 128, "global": 128}
    assert found["threads"] == wanted
    assert found["warp_instructions"] == 4 * len(body)
    assert (found["barriers"], found["warps"]) == (2, 0)


@pytest.mark.parametrize(
    ("bytes_", "stride", "passes"),
    [(4, 4, 1), (4, 8, 2), (4, 16, 4), (4, 128, 32), (4, 0, 1), (4, 132, 1), (2, 2, 1), (8, 8, 2), (8, 16, 4),
     (8, 0, 2), (16, 16, 4), (16, 32, 8), (1, 1, 1), (1, 4, 1), (4, 12, 1)],
)  # fmt: skip
def test_bank_conflicts(ptx: PtxLibrary, bytes_: int, stride: int, passes: int) -> None:
    """Passes of one load of `bytes_` by lanes `stride` bytes apart; a store takes the same."""
    access = {1: "u8 %r20", 2: "u16 %r20", 4: "u32 %r20", 8: "u64 %d22", 16: "v4.u32 {%r20, %r21, %r22, %r23}"}[bytes_]
    type_, _, register = access.partition(" ")
    place = [f"mul.lo.u32 %r30, %r52, {stride}", "mov.u32 %r31, cells", "add.u32 %r30, %r30, %r31"]
    shared = ".shared .align 16 .b8 cells[8192];"
    loads = counted(ptx, [*place, f"ld.shared.{type_} {register}, [%r30]"], shared=shared)
    assert (loads["shared_accesses"], loads["shared_wavefronts"]) == (1, passes)
    fill = ["mov.u32 %r20, 1", "mov.u32 %r21, 1", "mov.u32 %r22, 1", "mov.u32 %r23, 1", "mov.u64 %d22, 1"]
    stores = counted(ptx, [*place, *fill, f"st.shared.{type_} [%r30], {register}"], shared=shared)
    assert stores["shared_wavefronts"] == passes


def test_conflicts_of_atomics_and_of_few_lanes(ptx: PtxLibrary) -> None:
    shared = ".shared .align 16 .b8 cells[8192];"
    assert counted(ptx, ["red.shared.add.u32 [cells], 1"], shared=shared)["shared_wavefronts"] == 32
    body = ["setp.lt.u32 %p1, %r52, 4", "mul.lo.u32 %r30, %r52, 128", "mov.u32 %r31, cells", "add.u32 %r30, %r30, %r31",
            "@%p1 ld.shared.u32 %r20, [%r30]"]  # fmt: skip
    assert counted(ptx, body, shared=shared)["shared_wavefronts"] == 4


@pytest.mark.parametrize(("stride", "sectors"), [(4, 4), (8, 8), (32, 32), (64, 32), (0, 1), (16, 16), (1028, 32)])
def test_sectors(ptx: PtxLibrary, stride: int, sectors: int) -> None:
    place = [f"mul.wide.u32 %d20, %r52, {stride}", "add.s64 %d20, %d20, %d0"]
    more = 32 * 1028 // 4
    loads = counted(ptx, [*place, "ld.global.u32 %r20, [%d20]"], more=more)
    assert (loads["sectors_loaded"], loads["sectors_stored"], loads["global_accesses"]) == (sectors, 0, 1)
    stores = counted(ptx, [*place, "st.global.u32 [%d20], 7"], more=more)
    assert (stores["sectors_loaded"], stores["sectors_stored"]) == (0, sectors)


def test_sectors_of_caches(ptx: PtxLibrary) -> None:
    """Every lane reads at four places 16 bytes apart; the lanes are too far apart for a direct-mapped cache."""
    place = ["mul.wide.u32 %d20, %r52, 4096", "add.s64 %d20, %d20, %d0", "add.s64 %d20, %d20, 4096"]
    for what, volatile, missed in (("", "", 64), ("volatile", ".volatile", 128)):
        body = [*place, *(f"ld{volatile}.global.u32 %r20, [%d20+{16 * k}]" for k in range(4))]
        loads = counted(ptx, body, more=33 * 1024)
        assert (loads["sectors_loaded"], loads["sectors_missed"]) == (128, missed), what
    stores = counted(ptx, [*place, *(f"st.global.u32 [%d20+{16 * k}], 7" for k in range(4))], more=33 * 1024)
    assert (stores["sectors_stored"], stores["sectors_merged"], stores["sectors_missed"]) == (128, 64, 0)
    same = counted(
        ptx, ["ld.global.u32 %r20, [%d0+256]", "st.global.u32 [%d0+256], 7", "ld.global.u32 %r20, [%d0+288]"], more=64
    )
    assert (same["sectors_missed"], same["sectors_merged"]) == (2, 0)


def test_chains(ptx: PtxLibrary) -> None:
    """The time of a single warp: an instruction waits for its operands, or else starts in the next cycle."""
    for what, one, cycles in (
        ("independent", "add.u32 %r21, %r52, 2", 1),
        ("dependent", "add.u32 %r20, %r20, 2", 4),
        ("of 64 bits", "add.s64 %d1, %d1, 2", 6),
        ("through memory", "ld.volatile.global.u64 %d1, [%d1]", 500),
        ("through a cache", "ld.global.u64 %d1, [%d1]", 40),
        ("moves", "mov.u32 %r20, %r20", 0),
    ):
        first = ["mov.u32 %r20, %r52", "st.global.u64 [%d1], %d1"]
        few, many = (counted(ptx, [*first, *[one] * n], threads=64, more=2) for n in (20, 50))
        assert many["chain_longest"] - few["chain_longest"] == 30 * cycles, what
        assert many["chain_sum"] - few["chain_sum"] == 2 * 30 * cycles, what


def test_what_does_not_depend_on_a_load_does_not_wait_for_it(ptx: PtxLibrary) -> None:
    """Within a basic block, because the assembler reorders it; but not if one of two accesses writes."""
    load, use = "ld.volatile.global.u32 %r{0}, [%d0]", "add.u32 %r{0}, %r{0}, 1"

    def chain(*parts: str) -> int:
        body = [part.format(k) for k in (21, 22) for part in (load, use, *parts)]
        found: int = counted(ptx, body, more=2)["chain_longest"]
        return found

    moved = counted(ptx, [load.format(21), "mov.u32 %r1, 0", "mov.u32 %r22, %r21"], more=2)
    assert moved["chain_longest"] < 50
    at_once = chain()
    assert at_once < 550
    assert chain("st.global.u32 [%d0], 0") - at_once < 50
    assert 450 < chain("st.global.u32 [%d0], %r{0}") - at_once < 550
    assert 450 < chain("bra.uni to{0}", "to{0}:") - at_once < 550


def test_what_a_block_has_loaded_is_cached(ptx: PtxLibrary) -> None:
    """Sectors of 32 bytes."""

    def chain(*offsets: int) -> int:
        body = [line for at in offsets for line in (f"ld.global.u32 %r20, [%d0+{at}]", "and.b32 %r20, %r20, 0",
                "cvt.u64.u32 %d20, %r20", "add.s64 %d0, %d0, %d20")]  # fmt: skip
        found: int = counted(ptx, body, more=2**17)["chain_longest"]
        return found

    misses = [chain(0, 4, 28), chain(0, 32, 96), chain(0, 65536, 0)]
    assert [round((n - misses[0]) / 460) for n in misses] == [0, 2, 1]


def test_barriers_join_the_chains_of_a_block(ptx: PtxLibrary) -> None:
    work = ["add.u32 %r20, %r52, 1", *["add.u32 %r20, %r20, 2"] * 99]
    body = ["setp.lt.u32 %p1, %r52, 32", "@!%p1 bra end", *work, "end:", "bar.sync 0"]
    found = counted(ptx, body, threads=128)
    assert 400 < found["chain_longest"] < 450
    assert abs(found["chain_sum"] - 4 * found["chain_longest"]) < 4 * 20  # all wait for the first warp


def test_generic_accesses_count_as_what_they_are(ptx: PtxLibrary) -> None:
    body = ["mov.u64 %d20, cells", "cvta.shared.u64 %d20, %d20", "ld.u32 %r1, [%d20]"]
    found = counted(ptx, body, shared=".shared .align 4 .b8 cells[4];")
    assert (found["threads"]["shared"], found["threads"]["global"]) == (32, 0)
    assert found["chain_longest"] < 100


def test_lines(ptx: PtxLibrary) -> None:
    ptx.clear()
    run(ptx, ["mov.u32 %r20, 0", "again:", "add.u32 %r20, %r20, 1", "setp.le.u32 %p1, %r20, %r52", "@%p1 bra again"])
    ((_, lines),) = ptx.lines().items()
    assert sorted(lines.values())[-3:] == [(32, 528)] * 3  # 1 + 2 + .. + 32


def test_clearing(ptx: PtxLibrary) -> None:
    run(ptx, [])
    assert len(ptx.counts()) > 0
    ptx.clear()
    assert (ptx.counts(), ptx.lines()) == ([], {})
