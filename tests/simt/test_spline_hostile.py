"""Archives of the spline codec (format version 2) made to deceive, with checksums that fit, on the device: refused
as by the CPU, or decoded to the same values.

Whatever they hold, no kernel may do what the emulator reports, such as touch memory that is not its own.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from format_v2_reference import encode, read_model
from numpy.typing import NDArray
from simt_checks import outcome, same_as_cpu, status_of_check
from simt_library import CPU, DEVICE, HOST, Context, Library, Status
from v2_cases import REFUSED, large_field, parsed, rebuilt, resealed, strewn

import format_v1 as v1
import format_v2 as v2
import formats
import hostile
import support
from support import F32, F64, random_bits, smooth

pytestmark = pytest.mark.simt

# ---- Archives of few values, which between them have every part (test_victims_have_all_parts)


def lattices(shape: tuple[int, ...], dtype: np.dtype) -> NDArray:
    """Tiles of each kind: points that lattice 0 adds are missing, those of lattice 1 have any bits, those of lattice 2
    are smooth for the most part, and all others 0."""
    index = np.indices(shape)
    lattice = np.minimum.reduce([np.where(i % 2, 0, np.where(i % 4, 1, np.where(i % 8, 2, 3))) for i in index])
    choices = [np.full(shape, np.nan, dtype), random_bits(shape, dtype), strewn(shape, dtype, [1e30, 2e3, np.nan], 20)]
    return np.choose(lattice, [*choices, np.zeros(shape, dtype)]).astype(dtype)


def block(dtype: np.dtype) -> NDArray:
    x = strewn((9, 10, 11), dtype, [np.inf, 1e30, 3e4], 40)
    x[3:6] = np.where(x[3:6] > 0, 1e20, x[3:6])
    return x


#: Field, bound, and what the writer chooses.
CASES: dict[str, tuple[NDArray, float, dict[str, Any]]] = {
    "kinds of tiles, f32": (lattices((41, 45), F32), 1e-2, {"axes": 3}),
    "kinds of tiles, f64": (lattices((41, 45), F64), 1e-2, {"axes": 3}),
    "kinds of tiles in a line": (lattices((900,), F64), 1e-2, {"axes": 1, "cubic": False}),
    "block, f32": (block(F32), 1e-2, {"axes": 7, "fill": 1e20, "even_if_longer": True}),
    "block, f64": (block(F64), 1e-2, {"axes": 7, "fill": 1e20, "even_if_longer": True}),
    "line": (strewn((700,), F32, [np.nan, 1e30, np.inf, 77.0, 5e3], 40), 1e-2, {"axes": 1, "cubic": False}),
    "two of four axes": (strewn((2, 5, 13, 9), F64, [1e30, 3e4], 30), 0.1, {"axes": 3, "alpha": 2, "beta": 1}),
    "two lanes": (smooth((40, 41), F64) * 50, 1e-2, {"axes": 3}),
    "four lanes": (smooth((54, 55), F32) * F32.type(50), 1e-1, {"axes": 3}),
    "constant": (np.full((9, 17, 9), 2.5), 1e-3, {"axes": 7, "alpha": 1, "beta": 2}),
}


@dataclasses.dataclass(frozen=True)
class Victim:
    archive: bytes
    field_bytes: int
    model_bytes: int
    n_tiles: int

    @property
    def body_at(self) -> int:
        return v2.body_at(self.model_bytes)

    @property
    def index_at(self) -> int:
        return v2.index_at(self.archive, self.model_bytes)

    def payloads(self) -> list[tuple[int, int]]:
        """Offset and bytes of every tile's payload."""
        return v2.tiles(self.archive, self.model_bytes, self.n_tiles)

    def sealed(self, changed: bytes | bytearray) -> bytes:
        """With the checksums that fit what has become of the archive."""
        mutant = bytearray(changed)
        formats.seal(mutant, 2, self.model_bytes, self.n_tiles)
        return bytes(mutant)


def victim_of(context: Context, name: str) -> Victim:
    x, eb, options = CASES[name]
    archive = encode(x, eb, "abs", **options)
    info = context.info_of(archive)
    assert info.version == 2
    victim = Victim(archive, x.nbytes, info.codebook_bytes, info.n_tiles)
    assert victim.sealed(archive) == archive
    return victim


@pytest.fixture(scope="module", params=CASES)
def victim(request: pytest.FixtureRequest, reused: Context) -> Victim:
    return victim_of(reused, request.param)


def sort_of(payload: bytes) -> tuple[int, ...]:
    """Kind, lanes, verbatim values, extra bits: of the tile header."""
    if not payload:
        return ()
    header = int.from_bytes(payload[:2], "little")
    return header & 3, header >> 2 & 3, header >> 4 & 1, header >> 5 & 1


def tiles_of_each_sort(victim: Victim) -> dict[tuple[int, ...], tuple[int, int, int]]:
    """Number, offset and bytes of the first tile of each sort."""
    found: dict[tuple[int, ...], tuple[int, int, int]] = {}
    for t, (at, size) in enumerate(victim.payloads()):
        found.setdefault(sort_of(victim.archive[at : at + size]), (t, at, size))
    return found


def test_victims_have_all_parts(reused: Context) -> None:
    sorts = set().union(*(tiles_of_each_sort(victim_of(reused, name)) for name in CASES))
    assert () in sorts
    kinds, lanes, verbatim, extra = map(set, zip(*(sort for sort in sorts if sort), strict=True))
    assert (kinds, lanes, verbatim, extra) == ({0, 1, 2}, {0, 1, 2}, {0, 1}, {0, 1})
    tops = {victim.archive[v2.top(victim.archive, victim.model_bytes)[0] + formats.KIND_AT]
            for victim in (victim_of(reused, name) for name in CASES)}  # fmt: skip
    assert tops == {formats.RAW, formats.TILED}


# ---- What is changed in them

Change = tuple[int, int, int]  # offset, bytes, value


def units(victim: Victim, at: int, n: int) -> list[int]:
    return list(struct.unpack_from(f"<{n}H", victim.archive, at))


def changes_of_tile(victim: Victim, at: int, size: int) -> Iterator[tuple[str, list[Change]]]:
    """Of a payload: its header, verbatim values, extra bits, states and words."""
    header, *rest = units(victim, at, size // 2)
    value_units = 4 if victim.archive[6] == 2 else 2  # f64

    def unit(what: str, number: int, *values: int) -> Iterator[tuple[str, list[Change]]]:
        for value in values:
            yield f"{what} is {value & 0xFFFF:x}", [(at + 2 * number, 2, value)]

    yield from unit("tile header", 0, *(header ^ 1 << bit for bit in range(16)), *(header & ~3 | k for k in range(4)),
                    *(header & ~12 | lanes << 2 for lanes in range(4)))  # fmt: skip
    if header & 3 == 2:
        for number in {1, 2, size // 4, size // 2 - 1}:  # a value
            yield from unit(f"raw unit {number}", number, 0, 0xFFFF, 0x7FF0, 0x7F80)
        return
    number = 1
    if header >> 4 & 1:
        n = rest[0]
        yield from unit("number of verbatim values", 1, 0, 1, n - 1, n + 1, 4096, 0xFFFF)
        for k in {0, n // 2, n - 1}:
            here, before = units(victim, at + 4 + 2 * k, 1)[0], units(victim, at + 4 + 2 * max(k - 1, 0), 1)[0]
            yield from unit(f"position {k} of {n}", 2 + k, before, here - 1, here + 1, 0, 2, 4095, 4096, 0xFFFF)
        if n > 1:
            first, second = units(victim, at + 4, 2)
            yield "positions in another order", [(at + 4, 2, second), (at + 6, 2, first)]
        for value in (np.nan, np.inf, -0.0, 1e20):
            bits = int(support.bits(np.array([value], F64 if value_units == 4 else F32))[0])
            yield f"a verbatim value is {value}", [(at + 4 + 2 * n, 2 * value_units, bits)]
        number += 1 + n * (1 + value_units)
    if header >> 5 & 1:
        n = rest[number - 1]
        yield from unit("units of extra bits", number, 0, n - 1, n + 1, size // 2, 0xFFFF)
        yield from unit("extra bits", number + 1, 0, 0xFFFF, rest[number] ^ 1)
        yield from unit("the last of the extra bits", number + n, 0, 0xFFFF)
        number += 1 + n
    if header & 3 == 0:
        for lane in range(1 << (header >> 2 & 3)):
            for state in (0, 1, 65535, 65536, 0x00010001, 0xFFFFFFFF):
                yield f"state {lane} is {state:x}", [(at + 2 * number + 4 * lane, 4, state)]
        number += 2 << (header >> 2 & 3)
        n_words = size // 2 - number
        for k in {0, 1, n_words // 2, n_words - 2, n_words - 1} & set(range(n_words)):
            word = rest[number + k - 1]
            yield from unit(f"word {k} of {n_words}", number + k, 0, 0xFFFF, word ^ 1, word ^ 0x8000)


def changes_of_index(victim: Victim) -> Iterator[tuple[str, list[Change]]]:
    index = units(victim, victim.index_at, victim.n_tiles)
    for t in sorted({*range(min(4, victim.n_tiles)), victim.n_tiles - 1}):
        place = victim.index_at + 2 * t
        for value in (0, 1, index[t] - 1, index[t] + 1, index[t] + 2, 0x4000, 0xFFFF):
            yield f"length of tile {t} is {value & 0xFFFF}", [(place, 2, value)]
        if t + 1 < victim.n_tiles:  # with the same sum
            for shift in (1, -1, 2, index[t], -index[t + 1]):
                lengths = [(place, 2, index[t] - shift), (place + 2, 2, index[t + 1] + shift)]
                yield f"{shift} units of tile {t} to the next", lengths
    if victim.n_tiles % 2:
        yield "padding of the index", [(victim.index_at + 2 * victim.n_tiles, 2, 1)]
    if sum(index) % 2:
        yield "padding of the payloads", [(len(victim.archive) - 2, 2, 1)]


def changes_of_top(victim: Victim) -> Iterator[tuple[str, list[Change]]]:
    begin, end = v2.top(victim.archive, victim.model_bytes)
    size = end - begin
    for value in (0, 8, 47, 48, size - 4, size - 1, size + 1, size + 4, len(victim.archive), 2**32 + size, 2**63):
        yield f"the top has {value} bytes", [(victim.body_at, 8, value)]
    for byte in (4, 5, 6, 7, 8, 16, 50, 51, 52, 53, 56, 64, 72, 80, 88, 100):
        if byte < size:
            for bit in (0, 1, 6):
                yield f"bit {bit} of byte {byte} of the top", [flip(victim, begin + byte, bit)]
    for at in support.integers(30, begin + 48, end, 1).tolist() if size > 48 else ():
        yield f"byte {at - begin} of the top", [flip(victim, at, at % 8)]


def flip(victim: Victim, at: int, bit: int) -> Change:
    return at, 1, victim.archive[at] ^ 1 << bit


def changes_of_front(victim: Victim) -> Iterator[tuple[str, list[Change]]]:
    """Some bits of the coding header, and of the model."""
    for at in range(v2.CODING_HEADER_AT, v2.CODEBOOK_AT):
        for bit in {0, at % 8, 7}:
            yield f"bit {bit} of byte {at}", [flip(victim, at, bit)]
    for bits in range(0, 64, 5):
        yield f"interpolation is {bits:x}", [(v2.INTERPOLATION_AT, 1, bits)]
    for bits in range(16):
        yield f"halved axes are {bits:x}", [(v2.HALVED_AT, 1, bits)]
    model = 8 * victim.model_bytes
    for bit in sorted({*range(12), *support.integers(30, 0, model, 2).tolist(), *range(model - 8, model)}):
        yield f"bit {bit} of the model", [flip(victim, v2.CODEBOOK_AT + bit // 8, bit % 8)]


def changes_of_tiles(victim: Victim) -> Iterator[tuple[str, list[Change]]]:
    for sort, (t, at, size) in tiles_of_each_sort(victim).items():
        if sort:
            for what, change in changes_of_tile(victim, at, size):
                yield f"tile {t}: {what}", change


def mutants(victim: Victim, part: str) -> Iterator[tuple[str, bytes]]:
    changes = {"front": changes_of_front, "top": changes_of_top, "index": changes_of_index, "tiles": changes_of_tiles}
    for what, change in changes[part](victim):
        mutant = bytearray(victim.archive)
        for at, size, value in change:
            mutant[at : at + size] = (value % 256**size).to_bytes(size, "little")
        if mutant != victim.archive:
            yield what, victim.sealed(mutant)


@pytest.mark.parametrize("part", ["front", "top", "index", "tiles"])
def test_damaged_archives(simt: Library, reused: Context, victim: Victim, part: str) -> None:
    found = {same_as_cpu(reused, mutant, victim.field_bytes, what) for what, mutant in mutants(victim, part)}
    assert Status.CORRUPT in found or not found  # where no tile has anything


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED)
def test_what_the_reference_refuses(simt: Library, reused: Context, edit: Callable[[bytes], bytes]) -> None:
    """As test_format_v2_library.py has it."""
    x = large_field()
    mutant = resealed(edit(encode(x, 1e-3, axes=2)))
    assert same_as_cpu(reused, mutant, x.nbytes, "") != Status.OK


def with_small_state(payload: bytes, g: int) -> bytes:
    """Of a tile of one lane, with a state below the least. If g is the frequency of the first flag, the word put
    before the others makes up for it: from there on all is as it was."""
    (state,) = struct.unpack_from("<I", payload, 2)
    slot = state % 4096
    start, f = (4096 - g, g) if slot >= 4096 - g else (0, 4096 - g)
    high, word = divmod(f * (state >> 12) + slot - start, 2**16)  # the next state
    small = (high // f << 12) + high % f + start
    return payload[:2] + struct.pack("<IH", small, word) + payload[6:]


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_a_small_state_that_fits(simt: Library, reused: Context, dtype: np.dtype) -> None:
    x = smooth((20, 41), dtype)
    archive = encode(x, 1e-2, "abs", axes=3)
    model = read_model(archive[v2.CODEBOOK_AT : v2.body_at(reused.info_of(archive).codebook_bytes)])
    pyramid = parsed(archive)
    tiles = [t for t, payload in enumerate(pyramid.payloads) if payload[:2] == bytes(2)]
    assert tiles
    for t in tiles:
        for g in sorted(set(model.significant.tolist())):
            payloads = pyramid.payloads.copy()
            payloads[t] = with_small_state(payloads[t], g)
            mutant = rebuilt(archive, payloads, pyramid.top)
            assert same_as_cpu(reused, mutant, x.nbytes, f"tile {t}, frequency {g}") == Status.CORRUPT


def test_archives_that_end_too_soon(simt: Library, reused: Context, victim: Victim) -> None:
    """As if something was lost, and with a body that was said to be so short."""
    _, top_end = v2.top(victim.archive, victim.model_bytes)
    n = len(victim.archive)
    ends = {
        *(0, 1, 47, 48, 100, 127, 128, 132, n - 8, n - 4, n - 2, n - 1),
        *(victim.body_at, victim.body_at + 4, victim.body_at + 8, top_end, victim.index_at, victim.index_at + 4),
        *(at for at, _ in victim.payloads()),
    }
    for end in sorted(ends - {n}):
        cut = bytearray(victim.archive[:end])
        assert same_as_cpu(reused, bytes(cut), victim.field_bytes, f"{end} bytes") == Status.CORRUPT
        if end >= victim.body_at + 8 and (end - victim.body_at) % 4 == 0:
            for field in (v1.BODY_BYTES_AT, v1.STORED_BYTES_AT):
                struct.pack_into("<Q", cut, field, end - victim.body_at)
            assert same_as_cpu(reused, victim.sealed(cut), victim.field_bytes, f"{end} bytes") == Status.CORRUPT


def test_checks_are_those_of_the_cpu(simt: Library, reused: Context, victim: Victim) -> None:
    """Of archives whose checksums do not fit, and of those where only they do."""
    n = len(victim.archive)
    for at in support.integers(40, 0, n, 3).tolist():
        mutant = bytearray(victim.archive)
        mutant[at] ^= 1 << at % 8
        assert same_as_cpu(reused, bytes(mutant), victim.field_bytes, f"byte {at}") != Status.OK
        for archive in (bytes(mutant), victim.sealed(mutant)):
            of_device, of_host = (status_of_check(reused, archive, place) for place in (DEVICE, HOST))
            assert of_device == of_host, f"byte {at}"
    assert simt.report == ""


def test_noise_behind_a_good_index(simt: Library, reused: Context, victim: Victim) -> None:
    """In place of the payloads; then behind tile headers that are legal."""
    begin = min(at for at, _ in victim.payloads())
    for seed in range(4):
        noise = support.hashes(len(victim.archive) // 8 + 1, seed).tobytes()[: len(victim.archive) - begin]
        mutant = bytearray(victim.archive[:begin] + noise)
        if seed % 2:
            for at, size in victim.payloads():
                if size:
                    struct.pack_into("<H", mutant, at, seed // 2 << 2)
        if sum(size for _, size in victim.payloads()) // 2 % 2:
            mutant[-2:] = bytes(2)
        same_as_cpu(reused, victim.sealed(mutant), victim.field_bytes, f"noise {seed}")


def test_the_next_call_works(simt: Library, context: Context) -> None:
    """After each refusal, in the memory that it leaves behind."""
    for name in CASES:
        victim = victim_of(context, name)
        wanted = context.decompress(victim.archive, victim.field_bytes, backend=CPU)
        mutant = bytearray(victim.archive)
        mutant[-5 if len(mutant) - victim.index_at > 64 else 130] ^= 16
        for archive in (bytes(mutant), victim.sealed(mutant)):
            outcome(context, archive, victim.field_bytes, DEVICE)
            assert outcome(context, victim.archive, victim.field_bytes, DEVICE) == (Status.OK, wanted)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in hostile.SPLINE_CASES if "packed" not in name])
def test_damaged_archives_at_length(simt: Library, reused: Context, name: str) -> None:
    make, dtype, eb, options = hostile.SPLINE_CASES[name]
    x = make(dtype)
    archive = reused.compress(x, eb, backend=CPU, **options)
    info = reused.info_of(archive)
    for what, mutant in hostile.mutants(archive, 2, 1000):
        formats.seal(mutant, 2, info.codebook_bytes, info.n_tiles)
        same_as_cpu(reused, bytes(mutant), x.nbytes, what)
