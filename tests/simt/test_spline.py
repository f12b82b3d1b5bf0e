"""The spline codec on a device: the same archives and values as on the CPU. The codec, and "auto", choose by boxes of
the field, and only these are copied to the host for it."""

from __future__ import annotations

import ctypes
import math
import struct

import numpy as np
import pytest
from numpy.typing import NDArray
from simt_checks import SCHEDULES, check_identity, cpu_archive, same_as_cpu, same_check
from simt_fields import SPLINE_KINDS as KINDS
from simt_library import CPU, DEVICE, HOST, RAW_OVERHEAD, REL, Context, Failure, Library, Status, dtype_code

import format_v2
import spline_kinds
import support
from support import DTYPES, F32

pytestmark = [pytest.mark.simt, pytest.mark.usefixtures("hidden")]

PREDICTORS = ["spline", "auto"]
SHAPES = [(1,), (5000,), (70, 131), (9, 17, 33), (3, 9, 10, 11)]


@support.pairs("name, shape, dtype, predictor", KINDS, SHAPES, DTYPES, PREDICTORS)
def test_kinds_and_shapes(
    simt: Library, reused: Context, name: str, shape: tuple[int, ...], dtype: np.dtype, predictor: str
) -> None:
    kind = KINDS[name]
    check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options, predictor=predictor)


#: One to three active axes, with lattices of several units; and shapes that are thin along some axes or cut into long
#: tiles.
LARGE = [(300_001,), (257, 1000), (70, 50, 99), (9, 17, 33, 40), (80, 5, 5, 60)]
THIN = [(2, 5000), (3, 3, 3000), (3000, 3, 3), (2, 2, 2, 700), (600, 2, 2, 2), (70, 2, 65), (65, 70, 2), (4097, 1, 2)]


@pytest.mark.quick(4)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_choices(simt: Library, reused: Context, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Boxes of a field on the device lead to the same choices, with several boxes and with holes in the field."""
    for rough in range(len(shape)):
        x = spline_kinds.layers(shape, dtype, [rough] if len(shape) > 1 else [])
        x[..., shape[-1] // 3 : shape[-1] // 2] = 1e20
        x.reshape(-1)[7::5003] = np.nan
        for predictor in PREDICTORS:
            check_identity(reused, x, 1e-2, fill=1e20, predictor=predictor)


@pytest.mark.parametrize("coarse", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bounds_of_coarser_lattices(reused: Context, dtype: np.dtype, coarse: int) -> None:
    for shape in ((90_001,), (257, 300), (40, 50, 60)):
        check_identity(reused, spline_kinds.waves(shape, dtype), 1e-3, predictor="spline", coarse=coarse)


@pytest.mark.parametrize("archive", [HOST, DEVICE])
def test_the_shorter_of_two_archives(reused: Context, archive: str) -> None:
    """Boxes of one value tell nothing, so both codecs are tried, and the first one may have to be used again."""
    bump, noise = np.zeros((40, 41, 42), F32), np.zeros((24, 24, 24), F32)
    bump[:6, :6, :6] = spline_kinds.waves((6, 6, 6), F32)
    noise[16:] = support.integers(noise[16:].size, 0, 2**16).reshape(noise[16:].shape)
    for x, magic in ((bump, b"\xc5Z"), (noise, b"cuSZ")):
        assert check_identity(reused, x, 1e-2, REL, archive=archive, predictor="auto").startswith(magic)


@pytest.mark.parametrize("at", [0, -1])
def test_zeros_of_either_sign(reused: Context, at: int) -> None:
    """The range is found in parts; a -0 at either end of the field must not make it differ from the CPU's."""
    x = np.zeros((17, 250, 251), F32)
    x[0, 0, 7] = np.nan
    check_identity(reused, x, 1e-2, REL, predictor="spline")
    x.reshape(-1)[at] = -0.0
    check_identity(reused, x, 1e-2, REL, predictor="spline")


def test_kernels_work(simt: Library, context: Context) -> None:
    """A field does not leave the device: the host decodes unit 0 at most."""
    for x in (spline_kinds.waves((70, 50, 99), F32), spline_kinds.waves((5, 9, 5), F32)):
        archive, is_large = cpu_archive(context, x, 1e-3, predictor="spline"), x.size > 4096
        with (
            simt.memory(DEVICE, x.nbytes) as field,
            simt.memory(DEVICE, archive) as source,
            simt.memory(DEVICE, x) as original,
            simt.memory(DEVICE, x.nbytes + RAW_OVERHEAD) as target,
        ):
            before, copied = simt.launches, simt.bytes_to_host
            context.decompress_into(field, source)
            assert (simt.launches > before) == is_large
            assert simt.bytes_to_host - copied < 2 * len(archive) + 2000
            assert field.get() == context.decompress(archive, x.nbytes, backend=CPU)
            n = context.compress_into(target, original, x.dtype, x.shape, 1e-3, predictor="spline")
            assert target.get(n) == archive
            launched = simt.launched()
            for kernel in ("write_kernel", "read_kernel"):
                assert any(kernel in name for name in launched) == is_large
            simt.clear()


@support.pairs("name, shape, dtype", KINDS, THIN, DTYPES)
def test_thin_fields(simt: Library, reused: Context, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
    kind = KINDS[name]
    check_identity(reused, kind.make(shape, dtype), kind.eb, kind.mode, **kind.options, predictor="spline")


def test_lattices_for_which_a_device_has_too_little_shared_memory(simt: Library, reused: Context) -> None:
    """Such a field goes through the host. In a lattice one value wide, contexts need more memory than values do."""
    simt.c.simt_set_shared_limit(99 << 10)  # as on many graphics cards
    x = support.integers(5000, -100, 100, 3)[:, None] + np.linspace(0, 1, 16) ** 2
    simt.clear()
    archive = check_identity(reused, x, 1e-3, predictor="spline")
    assert not any("fixed_kernel" in kernel for kernel in simt.launched())
    simt.c.simt_set_shared_limit(227 << 10)
    assert check_identity(reused, x, 1e-3, predictor="spline") == archive
    assert any("fixed_kernel" in kernel for kernel in simt.launched())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(9000,), (90, 131), (20, 33, 40)], ids=str)
def test_values_that_are_no_codes(simt: Library, reused: Context, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Special and verbatim values, finite and not, and codes of all sizes, in every lattice."""
    kinds = support.integers(math.prod(shape), 0, 40, 5).reshape(shape)
    x = support.smooth(shape, dtype)
    for kind, value in enumerate((np.nan, np.inf, -np.inf, 1e30, 40, -90, 500, -7000)):
        x[kinds == kind] = value
    x.reshape(-1)[0] = np.inf
    check_identity(reused, x, 1e-3, predictor="spline", fill=40)


@pytest.mark.parametrize("archive", [HOST, DEVICE])
@pytest.mark.parametrize("nth", range(1, 6))
def test_memory_that_is_given_back_in_the_middle_of_a_call(
    simt: Library, context: Context, nth: int, archive: str
) -> None:
    """If there is too little memory for all. (The emulator reports memory freed before it can have been allocated.)"""
    x = spline_kinds.waves((40, 50, 60), F32)
    data = cpu_archive(context, x, 1e-3, predictor="spline")
    decoded = context.decompress(data, x.nbytes, backend=CPU)
    with (
        simt.memory(DEVICE, x.nbytes) as field,
        simt.memory(DEVICE, x) as original,
        simt.memory(archive, data) as source,
        simt.memory(archive, x.nbytes + RAW_OVERHEAD) as target,
    ):
        simt.fail_call("cudaMallocAsync", nth)
        context.decompress_into(field, source)
        assert field.get() == decoded
        context.release_scratch()
        simt.fail_call("cudaMallocAsync", nth)
        if nth == 1:  # for the boxes that the choice is made from
            with pytest.raises(Failure, match="MEMORY"):
                context.compress_into(target, original, x.dtype, x.shape, 1e-3, predictor="spline")
        else:
            n = context.compress_into(target, original, x.dtype, x.shape, 1e-3, predictor="spline")
            assert target.get(n) == data


@pytest.mark.quick(6)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_schedules(simt: Library, reused: Context, dtype: np.dtype, schedule: tuple[int, int, int]) -> None:
    simt.set_schedule(*schedule)
    for shape in ((9000,), (90, 131), (20, 33, 40), (9, 10, 11, 12), (3, 3, 3000)):
        x = spline_kinds.waves(shape, dtype)
        check_identity(reused, x, 1e-3, predictor="spline")
        x += support.integers(x.size, 0, 2, 3).reshape(shape).astype(dtype) / 100
        x.reshape(-1)[::301] = np.nan
        x.reshape(-1)[::307] = 1e30
        check_identity(reused, x, 1e-3, predictor="spline")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("around", [-(2**15), 2**15, -(2**16), 2**16], ids=str)
def test_codes_around_limits_of_words(simt: Library, reused: Context, around: int, dtype: np.dtype) -> None:
    """Between kernels, codes are 16-bit words, some of which stand for values without such a code."""
    x = np.zeros(9000, dtype)
    x[101::20] = np.arange(x[101::20].size) % 16 + around - 8
    data = check_identity(reused, x, 0.5, predictor="spline")
    assert len(data) < x.nbytes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(9000,), (90, 131), (20, 33, 40)], ids=str)
def test_damaged_units(simt: Library, reused: Context, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """With valid checksums: refused, or decoded to the same values, as by the CPU."""
    x = support.smooth(shape, dtype)
    x.reshape(-1)[::37] = np.inf
    data = cpu_archive(reused, x, 1e-3, predictor="spline")
    units = [unit for _, of_lattice in format_v2.parts(data).lattices for unit in of_lattice if unit[1] > unit[0]]
    found = set()
    for number, (begin, end) in enumerate(units[-6:]):
        places = [begin, begin + 1, begin + 2, begin + 5, end - 2, end - 1]
        for i, at in enumerate([*places, *support.integers(12, begin, end, 60 + number).tolist()]):
            mutant = bytearray(data)
            mutant[at] ^= 1 << (i + number) % 8
            format_v2.seal(mutant)
            found.add(same_as_cpu(reused, bytes(mutant), x.nbytes, f"byte {at}"))
            mutant[at] ^= 1  # and with checksums that no longer fit
            assert same_as_cpu(reused, bytes(mutant), x.nbytes, f"byte {at}, not sealed") == Status.CORRUPT
    assert Status.CORRUPT in found


def test_a_code_beyond_the_limit(simt: Library, reused: Context) -> None:
    """The lowest one that extra bits can express."""
    x = np.zeros(9000, F32)
    x[5001] = 1 - 2**20  # the lowest one that is legal: its extra bits are 1 and then all zeros, but for the last
    data = cpu_archive(reused, x, 0.5, predictor="spline")
    (end,) = (end for begin, end in format_v2.parts(data).lattices[-1][1] if end > begin)
    found = []
    for bit in range(32):
        mutant = bytearray(data)
        mutant[end - 1 - bit // 8] ^= 1 << bit % 8
        format_v2.seal(mutant)
        found.append(same_as_cpu(reused, bytes(mutant), x.nbytes, f"bit {bit}"))
    assert {Status.OK, Status.CORRUPT} == set(found)


def test_a_state_that_is_too_small(simt: Library, reused: Context) -> None:
    """A unit of one symbol, after which its lane reads a word and so reaches the state in which units end."""
    x = np.zeros(8194, F32)
    x[8193] = 3
    data = cpu_archive(reused, x, 0.5, predictor="spline")
    ((begin, end),) = format_v2.parts(data).lattices[-1][1]
    (state,) = struct.unpack_from("<I", data, begin + 2)  # after the bits of live tiles
    assert end == begin + 6 == len(data)
    length_at = format_v2.parts(data).lattices[0][0] - 3
    for frequency in range(2, 4096):
        first_slot = state % 4096 - 2**16 % frequency
        if 2**16 // frequency != state >> 12 or first_slot < 0:  # not the frequency of the symbol
            continue
        mutant = bytearray(data[: begin + 2] + struct.pack("<IH", first_slot + 1, 0))
        mutant[length_at] += 1  # in words
        format_v2.seal(mutant)
        assert same_as_cpu(reused, bytes(mutant), x.nbytes, f"frequency {frequency}") == Status.CORRUPT


def test_tables_are_copied_anew(simt: Library, context: Context) -> None:
    x = support.smooth((90, 131), F32)
    for _ in range(2):
        check_identity(context, x, 1e-3, predictor="spline")
        context.release_scratch()


def test_only_boxes_are_copied_for_a_choice(simt: Library, reused: Context) -> None:
    """And, if the spline codec compresses, the points of a small lattice and the counts."""
    for x in (
        support.integers(2_000_000, -(2**20), 2**20).astype(F32).reshape(125, 160, 100),
        spline_kinds.waves((125, 160, 100), F32),
    ):
        before = simt.bytes_to_host
        archive = reused.compress(x, 1e-3, REL, field=DEVICE, archive=DEVICE, predictor="auto")
        copied = simt.bytes_to_host - before - len(archive)  # compress() fetches the archive
        assert x.nbytes / 200 <= copied <= x.nbytes / 6
        assert archive == cpu_archive(reused, x, 1e-3, REL, predictor="auto")


BOX = np.dtype([("offset", "<u8"), ("edge", "<u4", 4), ("stride", "<u8", 4)])


def boxes_of(x: NDArray, n: int) -> tuple[NDArray, list[NDArray]]:
    """Boxes of random extents and places in a field, and their values."""
    boxes, values = np.zeros(n, BOX), []
    chosen = support.integers(n * 8, 0, 2**30, x.size).reshape(n, 4, 2)
    for box, ends in zip(boxes, chosen, strict=True):
        box["edge"] = 1
        begin = [int(a) % extent for (a, _), extent in zip(ends, x.shape, strict=False)]
        edge = [1 + int(b) % min(extent - at, 40) for (_, b), extent, at in zip(ends, x.shape, begin, strict=False)]
        strides = [stride // x.itemsize for stride in x.strides]
        box["offset"] = np.dot(begin, strides)
        box["edge"][: x.ndim], box["stride"][: x.ndim] = edge[::-1], strides[::-1]
        values.append(x[tuple(slice(at, at + length) for at, length in zip(begin, edge, strict=True))].reshape(-1))
    return boxes, values


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(9000,), (70, 131), (20, 33, 40), (7, 9, 11, 13)], ids=str)
def test_boxes_of_a_field(simt: Library, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """More boxes than blocks that run at once."""
    x = support.random_bits(shape, dtype)
    boxes, values = boxes_of(x, 50)
    found = np.zeros(sum(part.size for part in values), dtype)
    with simt.memory(DEVICE, x) as field:
        shape_of_c = (ctypes.c_uint64 * len(shape))(*shape)
        simt.c.simt_read_boxes(
            *(dtype_code(dtype), len(shape), shape_of_c, field.pointer),
            *(boxes.ctypes.data, boxes.size, found.ctypes.data),
        )
    assert support.same_bits(found, np.concatenate(values))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_damaged_archives(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """Refused as by the CPU."""
    x = support.smooth((9, 17, 33), dtype)
    archive = cpu_archive(reused, x, 1e-2, predictor="spline")
    for i, at in enumerate([*range(40), *support.integers(60, 0, len(archive)).tolist()]):
        mutant = bytearray(archive)
        mutant[at] ^= 1 << i % 8
        assert same_check(reused, bytes(mutant), f"byte {at}") != Status.OK, f"byte {at}"
    for n in (0, 1, 2, 20, len(archive) // 2, len(archive) - 1):
        assert same_as_cpu(reused, archive[:n], x.nbytes, f"{n} bytes") == Status.CORRUPT
