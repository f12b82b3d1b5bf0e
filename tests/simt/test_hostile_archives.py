"""Malicious archives with valid checksums, on the device: refused or decoded as by the CPU, and nothing else.

Whatever they hold, no kernel may do what the emulator reports, such as access memory out of bounds.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simt_checks import outcome, same_as_cpu, same_check, same_outcome
from simt_library import CPU, DEVICE, HOST, Context, Failure, Info, Library, Status

import format_v1 as v1
import formats
import hostile
import support
from field_kinds import KINDS

pytestmark = pytest.mark.simt

#: The parts of a tile header that tell sorts of tiles apart.
SORT = (v1.KIND, v1.MASK, v1.MISSING, v1.OUTLIERS, v1.ALL_ZERO, v1.FINE_MASK)
NAMES = [name for name in hostile.CASES if not name.startswith("packed")]


def good_archive(context: Context, name: str) -> tuple[bytes, Info]:
    make, dtype, eb, options = hostile.CASES[name]
    data = context.compress(make(dtype), eb, backend=CPU, **options)
    return data, context.info_of(data)


def tiles(data: bytes, info: Info) -> list[tuple[int, int]]:
    """Offset and words of every tile's payload."""
    return v1.tiles(data, info.codebook_bytes, info.n_tiles)


def change_header(mutant: bytearray, at: int, change: Callable[[int], int]) -> None:
    struct.pack_into("<I", mutant, at, change(*struct.unpack_from("<I", mutant, at)))


def outliers_of(data: bytes, info: Info, at: int, words: int) -> list[tuple[int, int]]:
    """For a tile with outliers, whose payload begins at `at`: where positions begin, and how many there are; first for
    codes out of range, then for values that no code stands for."""
    each = 2 if info.dtype == 2 else 1
    n_out_of_range, n_unpredictable = struct.unpack_from("<HH", data, at + 4 * (1 + each))
    value_at = at + 4 * (words - (n_unpredictable + 1) // 2 - n_unpredictable * each)
    out_of_range_at = value_at - 4 * ((n_out_of_range + 1) // 2 + n_out_of_range * each)
    return [(out_of_range_at, n_out_of_range), (value_at, n_unpredictable)]


def mutants(data: bytes, info: Info, count: int, seed: int) -> Iterator[tuple[str, bytearray]]:
    def changed(what: str, *changes: tuple[int, int, int]) -> tuple[str, bytearray]:
        """changes: offset, bytes, value."""
        mutant = bytearray(data)
        for at, size, value in changes:
            mutant[at : at + size] = (value % 256**size).to_bytes(size, "little")
        return what, mutant

    def word(at: int, size: int = 4) -> int:
        return int.from_bytes(data[at : at + size], "little")

    front = info.header_bytes + info.codebook_bytes
    if info.kind == 1:
        index_at = front
        payloads = tiles(data, info)
        seen = set()
        for at, words in payloads:  # one tile of each sort: every bit of its header, and its other words
            header = word(at)
            sort = tuple(bits.of(header) for bits in SORT)
            if sort in seen:
                continue
            seen.add(sort)
            for bit in range(32):
                yield changed(f"bit {bit} of the tile header at {at}", (at, 4, header ^ 1 << bit))
            for predictor in range(16):
                yield changed(f"predictor {predictor} at {at}", (at, 4, v1.PREDICTOR.put(header, predictor)))
            yield changed(f"kind 3 at {at}", (at, 4, v1.KIND.put(header, 3)))
            if v1.OUTLIERS.of(header) and v1.is_coded(header):  # their positions
                for begin, n in outliers_of(data, info, at, words):
                    for k in {0, n // 2, n - 1} if n else ():
                        for value in (
                            word(begin + 2 * k, 2) - 1,
                            word(begin + 2 * max(k - 1, 0), 2),
                            4095,
                            4096,
                            65535,
                        ):
                            yield changed(f"position {k} of {n} at {at} is {value}", (begin + 2 * k, 2, value))
            for i in range(1, min(words, 12)):
                for value in (0, 0xFFFFFFFF, word(at + 4 * i) ^ 1, word(at + 4 * i) ^ 1 << 31, 0x00010001, 0x10001000):
                    yield changed(f"word {i} at {at} is {value:x}", (at + 4 * i, 4, value))
            for i in range(1, min(words, 12)):
                last = at + 4 * (words - i)
                for value in (0, 0xFFFFFFFF, word(last) ^ 1 << 16):
                    yield changed(f"word -{i} at {at} is {value:x}", (last, 4, value))
        for t in range(min(info.n_tiles, 8)):
            place = index_at + 2 * t
            for value in (0, 1, word(place, 2) - 1, word(place, 2) + 1, 4097, 8193, 8194, 65535):
                yield changed(f"length of tile {t} is {value}", (place, 2, value))
            if t + 1 < info.n_tiles:  # with the same sum
                here, there = word(place, 2), word(place + 2, 2)
                for shift in (1, -1, here):
                    yield changed(
                        f"{shift} words of tile {t} to the next",
                        (place, 2, here - shift),
                        (place + 2, 2, there + shift),
                    )
        if info.n_tiles % 2:
            yield changed("padding of the index", (index_at + 2 * info.n_tiles, 2, 1))
    for i, (a, b, c) in enumerate(support.hashes(3 * count, seed).reshape(count, 3).tolist()):
        at = front + a % max(len(data) - front, 1)
        at = min(at, len(data) - 1)
        what = f"random change {seed}:{i}"
        if c % 8 == 7:  # in front of the payloads
            at = formats.HEADER_BYTES + b % max(front - formats.HEADER_BYTES, 1)
            at = min(at, len(data) - 1)
        yield changed(what, (at, 1, (0, 255, b >> 8, data[at] ^ 1 << b % 8)[c % 4]))


def run(context: Context, name: str, count: int, seed: int) -> tuple[set[Status], set[str]]:
    """Checks and decodes mutants as the CPU does, and checks them before they are sealed too. Returns the statuses, and
    the last parts of the device's messages."""
    make, dtype, _, _ = hostile.CASES[name]
    data, info = good_archive(context, name)
    nbytes = make(dtype).nbytes
    found, messages = set[Status](), set[str]()
    for change, mutant in mutants(data, info, count, seed):
        what = f"{name}: {change}"
        same_check(context, bytes(mutant), what)
        formats.seal(mutant, data)
        same_check(context, bytes(mutant), what)
        status, own = same_outcome(context, bytes(mutant), nbytes, what)
        found.add(status)
        if isinstance(own, str):
            messages.add(own.rpartition(": ")[2])
    return found, messages


def test_damaged_archives(simt: Library, reused: Context) -> None:
    """Every check of the kernels is reached: every sort of damage has its message."""
    messages = set[str]()
    for name in NAMES:
        found, of_device = run(reused, name, 60, 1)
        assert Status.OK in found, name
        assert Status.CORRUPT in found or name.startswith("raw"), name
        messages |= of_device
    source = (Path(__file__).resolve().parents[2] / "cusz_core/src/codec/lorenzo/cuda/engine.cpp").read_text()
    texts = source[source.index("const char* text_of") : source.index('return "bad";')]
    wanted = {text.split('"')[1] for text in texts.split("return ")[1:]}
    assert wanted <= messages


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_damaged_archives_at_length(simt: Library, reused: Context, name: str, seed: int) -> None:
    run(reused, name, 3000, seed)


@pytest.mark.parametrize("shape", [(4096,), (64, 64), (8, 16, 32), (8, 16, 30), (2, 3, 40, 5)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_code_out_of_range_where_a_value_is_missing(
    simt: Library, reused: Context, dtype: type, shape: tuple[int, ...]
) -> None:
    """It stays missing."""
    x = np.zeros(shape, dtype)
    x.flat[[100, 300]] = np.nan
    x.flat[101] = 3e6
    archive = reused.compress(x, 0.5, backend=CPU)
    info = reused.info_of(archive)
    at, words = tiles(archive, info)[0]
    (begin, n), _ = outliers_of(archive, info, at, words)
    (position,) = struct.unpack_from("<H", archive, begin)
    assert (position, n > 0) == (101, True)
    mutant = bytearray(archive)
    struct.pack_into("<H", mutant, begin, 100)
    formats.seal(mutant, archive)
    assert same_as_cpu(reused, bytes(mutant), x.nbytes, "a position") == Status.OK
    assert np.isnan(np.frombuffer(reused.decompress(bytes(mutant), x.nbytes, backend=CPU), dtype)[100])


def with_payload(data: bytes, info: Info, tile: int, payload: list[int]) -> bytes:
    """The archive with another payload for a tile, and the lengths that go with it."""
    at, words = tiles(data, info)[tile]
    mutant = bytearray(data)
    mutant[at : at + 4 * words] = struct.pack(f"<{len(payload)}I", *payload)
    struct.pack_into("<H", mutant, info.header_bytes + info.codebook_bytes + 2 * tile, len(payload))
    body = len(mutant) - info.header_bytes - info.codebook_bytes
    struct.pack_into("<Q", mutant, v1.BODY_BYTES_AT, body)
    struct.pack_into("<Q", mutant, v1.STORED_BYTES_AT, body)
    formats.seal(mutant, data)
    return bytes(mutant)


def first_payload(data: bytes, info: Info, wanted: Callable[[int], bool]) -> tuple[int, list[int]]:
    """Number and payload of the first coded tile whose header `wanted` accepts."""
    for number, (at, words) in enumerate(tiles(data, info)):
        payload = list(struct.unpack_from(f"<{words}I", data, at))
        if v1.is_coded(payload[0]) and wanted(payload[0]):
            return number, payload
    raise AssertionError("there is no such tile")


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_lengths_of_substreams_in_too_many_bits(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """The lengths are right, in fields of up to 13 bits, which is allowed, or of more, which is not."""
    x = support.smooth((8, 16, 32), dtype)
    data = reused.compress(x, 1e-2 if dtype == support.F32 else 1e-4, backend=CPU)  # neither masks nor outliers
    info = reused.info_of(data)
    _, payload = first_payload(data, info, lambda header: not v1.MASK.of(header) and not v1.OUTLIERS.of(header))
    width, at = v1.WIDTH.of(payload[0]), 1 + dtype.itemsize // 4
    assert width > 0
    old = (32 * width + 31) // 32
    bits = sum(word << 32 * i for i, word in enumerate(payload[at : at + old]))
    lengths = [bits >> width * i & ((1 << width) - 1) for i in range(32)]
    decoded = reused.decompress(data, x.nbytes, backend=CPU)
    for other in range(16):
        if max(lengths) >> other:
            continue
        packed = sum(length << other * i for i, length in enumerate(lengths))
        words = [packed >> 32 * i & 0xFFFFFFFF for i in range(other)]
        changed = [v1.WIDTH.put(payload[0], other), *payload[1:at], *words, *payload[at + old :]]
        mutant = with_payload(data, info, 0, changed)
        status = same_as_cpu(reused, mutant, x.nbytes, f"width {other}")
        assert status == (Status.OK if other <= v1.WIDEST else Status.CORRUPT)
        if status == Status.OK:
            assert reused.decompress(mutant, x.nbytes, backend=CPU) == decoded


@pytest.mark.parametrize("shape", [(4096,), (64, 64), (8, 16, 32), (16, 16, 16)], ids=str)
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_masks_that_leave_nothing(simt: Library, reused: Context, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    x = np.where(support.integers(4096, 0, 40) == 0, 3, 0).astype(dtype).reshape(shape)  # one tile, not clipped
    data = reused.compress(x, 1e-1, backend=CPU)
    info, nbytes = reused.info_of(data), x.nbytes
    number, payload = first_payload(
        data, info, lambda header: v1.FINE_MASK.of(header) == 1 and not v1.OUTLIERS.of(header)
    )
    each = dtype.itemsize // 4
    mask = payload[1 + each : 3 + each]
    fine = [0] * ((sum(word.bit_count() for word in mask) * 8 + 31) // 32)
    plain = v1.BASE.put(v1.WIDTH.put(payload[0], 0), 0)  # substreams of no bits
    for what, changed in {
        "fine mask": [plain, *payload[1 : 3 + each], *fine],
        "mask": [v1.FINE_MASK.put(plain, 0), *payload[1 : 1 + each], 0, 0],
        "mask, and a fine one": [plain, *payload[1 : 1 + each], 0, 0],
    }.items():
        mutant = with_payload(data, info, number, changed)
        assert same_as_cpu(reused, mutant, nbytes, what) == Status.CORRUPT, what
        assert str(outcome(reused, mutant, nbytes, DEVICE)[1]).endswith("bad mask"), what


@pytest.mark.parametrize(
    "shape", [(4096,), (5000,), (64, 64), (70, 130), (8, 16, 32), (9, 17, 33), (16, 16, 16)], ids=str
)
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_every_predictor_in_every_shape(
    simt: Library, reused: Context, dtype: np.dtype, shape: tuple[int, ...]
) -> None:
    """Each is legal in a tile of any shape, even if no engine would choose it; with and without a mask."""
    sparse = np.where(support.integers(math.prod(shape), 0, 25) == 0, 3, 0).astype(dtype).reshape(shape)
    for x in (support.smooth(shape, dtype), sparse):
        data = reused.compress(x, 1e-1, backend=CPU)
        info, ways = reused.info_of(data), set()
        for predictor in v1.PREDICTORS:
            mutant = bytearray(data)
            for at, _ in tiles(data, info):
                change_header(
                    mutant, at, lambda h, predictor=predictor: v1.PREDICTOR.put(h, predictor) if v1.is_coded(h) else h
                )
            formats.seal(mutant, data)
            assert same_as_cpu(reused, bytes(mutant), x.nbytes, f"predictor {predictor}") == Status.OK
            ways.add(outcome(reused, bytes(mutant), x.nbytes, DEVICE)[1])
        assert len(ways) > 2


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_tile_headers_that_are_not_legal(simt: Library, reused: Context, dtype: np.dtype) -> None:
    """Wrong in one field each, in tiles that could be decoded all the same. Both engines use the check in v1.hpp."""
    x = support.integers(16 * 16 * 32, -9, 10).astype(dtype).reshape(16, 16, 32)
    x[8:] = 1
    data = reused.compress(x, 0.25, backend=CPU)
    info = reused.info_of(data)
    coded, flat = (at for at, _ in tiles(data, info))
    headers = [struct.unpack_from("<I", data, at)[0] for at in (coded, flat)]
    assert [v1.ALL_ZERO.of(header) for header in headers] == [0, 1]
    assert not any(bits.of(header) for bits in (v1.MASK, v1.MISSING, v1.OUTLIERS) for header in headers)
    for at, bits, value in (
        *[(coded, v1.KIND, 3), (coded, v1.FINE_MASK, 1), (coded, v1.RESERVED, 1)],
        *[(flat, v1.KIND, 3), (flat, v1.FINE_MASK, 1), (flat, v1.RESERVED, 1)],
        *[(flat, v1.WIDTH, 1), (flat, v1.BASE, 1), (flat, v1.MISSING, 1), (flat, v1.PREDICTOR, 6)],
    ):
        mutant = bytearray(data)
        change_header(mutant, at, lambda header, bits=bits, value=value: bits.put(header, value))
        formats.seal(mutant, data)
        for place in (HOST, DEVICE):
            expected = (Status.CORRUPT, f"corrupt archive: tile {int(at == flat)}: bad tile header")
            assert outcome(reused, bytes(mutant), x.nbytes, place) == expected, f"{bits} is {value}"
        assert simt.report == ""


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_lengths_that_raw_and_special_tiles_do_not_have(simt: Library, reused: Context, dtype: np.dtype) -> None:
    x = support.smooth((20, 16, 32), dtype)
    x[8:16] = np.nan
    x[16:] = KINDS["incompressible"].make((4, 16, 32), dtype)
    data = reused.compress(x, 1e-2, backend=CPU)
    info = reused.info_of(data)
    payloads = [list(struct.unpack_from(f"<{words}I", data, at)) for at, words in tiles(data, info)]
    assert [v1.KIND.of(payload[0]) for payload in payloads] == [v1.CODED, v1.SPECIAL, v1.RAW]
    for number, changed in ((1, [*payloads[1], 0]), (2, [*payloads[2], 0]), (2, payloads[2][:-1])):
        mutant = with_payload(data, info, number, changed)
        for place in (HOST, DEVICE):
            expected = (Status.CORRUPT, f"corrupt archive: tile {number}: bad tile header or length")
            assert outcome(reused, mutant, x.nbytes, place) == expected
        assert simt.report == ""


def test_the_first_bad_tile_is_named(simt: Library, reused: Context) -> None:
    """In whichever order the tiles are read."""
    x = support.smooth((16, 64, 64), support.F32)
    data = reused.compress(x, 1e-2, backend=CPU)
    info = reused.info_of(data)
    mutant = bytearray(data)
    for t in (3, 5, 9):
        change_header(mutant, tiles(data, info)[t][0], lambda header: v1.RESERVED.put(header, 1))
    formats.seal(mutant, data)
    for schedule in ((0, 0, 1), (1, 0, 4), (2, 1, 16)):
        simt.set_schedule(*schedule)
        status, message = outcome(reused, bytes(mutant), x.nbytes, DEVICE)
        assert (status, message) == (Status.CORRUPT, "corrupt archive: tile 3: bad tile header")


def test_entries_of_the_index_that_no_tile_has(simt: Library, reused: Context) -> None:
    """Too long, or 0, though the sum of all is right: no entry of such an index is followed."""
    x = KINDS["raw_tiles"].make((32, 64, 64), support.F32)
    data = reused.compress(x, 0.1, backend=CPU)
    info = reused.info_of(data)
    words = [n for _, n in tiles(data, info)]
    longest = [t for t, n in enumerate(words) if n == max(words) == 4097]
    short = [t for t, n in enumerate(words) if n < 2000]
    for tile, other, n in ((longest[0], longest[1], 4098), (short[0], short[1], 0)):
        mutant = bytearray(data)
        for t, entry in ((tile, n), (other, words[tile] + words[other] - n)):
            struct.pack_into("<H", mutant, info.header_bytes + info.codebook_bytes + 2 * t, entry)
        formats.seal(mutant, data)
        for place, what in ((HOST, f" has {n} words"), (DEVICE, ": bad length in the tile index")):
            backend = CPU if place == HOST else 0
            with simt.memory(place, bytes(mutant)) as archive, simt.memory(place, b"\x5c" * x.nbytes) as field:
                with pytest.raises(Failure) as failure:
                    reused.decompress_into(field, archive, backend=backend)
                assert field.get() == b"\x5c" * x.nbytes
            assert failure.value.status == Status.CORRUPT
            assert failure.value.message == f"corrupt archive: tile {tile}{what}"
        assert simt.report == ""


def test_damage_in_a_batch(simt: Library, context: Context) -> None:
    """If the field is processed in parts, the tiles and words of each part are checked."""
    x = support.smooth((64, 40, 50), support.F32)
    data = context.compress(x, 1e-2, backend=CPU)
    info = context.info_of(data)
    payloads, index_at = tiles(data, info), info.header_bytes + info.codebook_bytes
    last = info.n_tiles - 1

    def sealed(at: int, value: int, size: int) -> bytes:
        mutant = bytearray(data)
        mutant[at : at + size] = value.to_bytes(size, "little")
        formats.seal(mutant, data)
        return bytes(mutant)

    damaged: dict[str, bytes] = {
        "head": sealed(payloads[last][0], 0xFFFF, 4),
        "longer": sealed(index_at + 2 * last, payloads[last][1] + 1, 2),
        "shorter": sealed(index_at + 2 * last, payloads[last][1] - 1, 2),
        "longer first": sealed(index_at, payloads[0][1] + 1, 2),
        "not sealed": data[:-1] + bytes([data[-1] ^ 1]),
    }
    options: dict[str, Any] = {"backend": 2}
    with simt.memory(HOST, x.nbytes) as field:
        for what, archive_data in damaged.items():
            with simt.memory(HOST, archive_data) as archive:
                simt.set_memory_limit(simt.allocated + x.nbytes // 2)
                with pytest.raises(Failure) as failure:
                    context.decompress_into(field, archive, **options)
                simt.set_memory_limit()
                context.release_scratch()
                assert failure.value.status == Status.CORRUPT, what
                with pytest.raises(Failure) as of_cpu:
                    context.decompress_into(field, archive, backend=CPU)
                assert of_cpu.value.status == Status.CORRUPT, what


def nearly_legal(header: int) -> int:
    """Makes any word look like the header of a coded tile with short substreams."""
    header = v1.RESERVED.put(v1.KIND.put(header, v1.CODED), 0)
    for bits, some in ((v1.PREDICTOR, 7), (v1.WIDTH, 12), (v1.BASE, 7)):
        header = bits.put(header, bits.of(header) & some)
    return header


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_noise_behind_a_good_header(simt: Library, reused: Context, dtype: np.dtype) -> None:
    x = support.smooth((20, 40, 50), dtype)
    data = reused.compress(x, 1e-2, backend=CPU)
    info = reused.info_of(data)
    front = info.header_bytes + info.codebook_bytes + info.index_bytes
    for seed in range(10):
        noise = support.hashes(len(data) // 8 + 1, seed).tobytes()[: len(data) - front]
        mutant = bytearray(data[:front] + noise)
        if seed % 2:
            for at, _ in tiles(data, info):
                change_header(mutant, at, nearly_legal)
        formats.seal(mutant, data)
        same_as_cpu(reused, bytes(mutant), x.nbytes, f"noise {seed}")
