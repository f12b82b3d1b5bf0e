"""Fields on the host that are too large for the device: the spline codec takes them in batches, to the same."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from simt_checks import cpu_archive, every_call_may_fail, failure_of, outcome, refused
from simt_fields import SPLINE_KINDS as KINDS
from simt_library import ABS, CPU, CUDA, DEVICE, HOST, PLACES, RAW_OVERHEAD, Context, Info, Library, Status

import format_v2 as v2
import formats
import spline_kinds
import support
from support import DTYPES, F32, F64

pytestmark = pytest.mark.simt


def launches_with_less_memory(
    simt: Library, context: Context, nbytes: int, shares: tuple[float, ...], call: Callable[[], object]
) -> list[int]:
    """Of a call with as much memory as it takes, and with less by these shares of a number of bytes."""
    launches = []
    context.release_scratch()
    most = 0
    for share in (0, *shares):
        simt.set_memory_limit(most - int(share * nbytes) if most > 0 else None)
        simt.c.simt_reset_peak()
        before = simt.launches
        call()
        launches.append(simt.launches - before)
        most = most or simt.c.simt_peak_bytes()
        context.release_scratch()
    simt.set_memory_limit()
    return launches


def launches_to_compress(
    simt: Library,
    context: Context,
    x: NDArray,
    eb: float,
    mode: int = ABS,
    *,
    archive: str = HOST,
    shares: tuple[float, ...] = (1, 1.5, 1.75),
    **options: object,
) -> list[int]:
    """With less memory by these shares of the field's size."""
    wanted = cpu_archive(context, x, eb, mode, **options)
    with simt.memory(HOST, x) as field, simt.memory(archive, x.nbytes + RAW_OVERHEAD) as made:

        def call() -> None:
            made.put(np.full(x.nbytes + RAW_OVERHEAD, 0xA5, np.uint8))
            n = context.compress_into(made, field, x.dtype, x.shape, eb, mode, backend=CUDA, **options)
            assert made.get(n) == wanted

        return launches_with_less_memory(simt, context, x.nbytes, shares, call)


def launches_to_decompress(
    simt: Library,
    context: Context,
    x: NDArray,
    eb: float,
    mode: int = ABS,
    *,
    field: str = HOST,
    archive: str = HOST,
    shares: tuple[float, ...] = (0.2, 0.5, 0.75),
    **options: object,
) -> list[int]:
    """With less memory by these shares of the field's size, or if only the archive is on the host, of its size."""
    data = cpu_archive(context, x, eb, mode, **options)
    wanted = context.decompress(data, x.nbytes, backend=CPU)
    with simt.memory(archive, data) as source, simt.memory(field, x.nbytes) as decoded:

        def call() -> None:
            decoded.put(np.full(x.nbytes, 0xA5, np.uint8))
            context.decompress_into(decoded, source, backend=CUDA)
            assert decoded.get() == wanted

        nbytes = x.nbytes if field == HOST else len(data)
        return launches_with_less_memory(simt, context, nbytes, shares, call)


SHAPES = [(50001,), (260, 190), (52, 33, 33), (3, 33, 33, 33), (40, 9, 8, 7)]


#: In both directions.
both_ways = pytest.mark.parametrize("launches_to", [launches_to_compress, launches_to_decompress])


@pytest.mark.usefixtures("hidden")
@both_ways
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batches(
    simt: Library, context: Context, shape: tuple[int, ...], dtype: np.dtype, launches_to: Callable[..., list[int]]
) -> None:
    launches = launches_to(simt, context, support.smooth(shape, dtype), 1e-3, predictor="spline")
    assert launches[1] > launches[0] > 0


@both_ways
@support.cases(
    "name, shape, dtype",
    ["nan_blocks", "inf_blocks", "missing_first", "mixture", "tiles_of_all_kinds", "fill_of_infinity", "disorder",
     "spikes", "first_axis_in_layers", "second_axis_in_layers", "last_axis_in_layers"],
    SHAPES, DTYPES,
)  # fmt: skip
def test_kinds(
    simt: Library,
    context: Context,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    launches_to: Callable[..., list[int]],
) -> None:
    """Values that are missing, infinite, or stored as they are, and axes that are not halved."""
    kind = KINDS[name]
    options = {**kind.options, "predictor": "spline"}
    launches = launches_to(simt, context, kind.make(shape, dtype), kind.eb, kind.mode, **options)
    assert max(launches[1:]) > launches[0]


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("archive", PLACES)
@pytest.mark.parametrize("predictor", ["spline", "auto"])
def test_places(simt: Library, context: Context, archive: str, predictor: str) -> None:
    x = KINDS["waves"].make((70, 40, 33), F32)
    shares = (1, 1.5, 1.75) if archive == HOST else (0.1, 0.5, 0.75)  # the archive's memory is there already
    launches = launches_to_compress(simt, context, x, 1e-3, archive=archive, shares=shares, predictor=predictor)
    assert launches[1] > launches[0]


@pytest.mark.usefixtures("hidden")
def test_batches_of_one_layer(simt: Library, context: Context) -> None:
    """And with less memory than that, the CPU makes the archive."""
    shares = (0.99, 1.5, 1.75, 1.9, 2.5)
    launches = launches_to_compress(
        simt, context, support.smooth((200, 33, 40), F32), 1e-2, shares=shares, predictor="spline"
    )
    assert launches[0] < launches[1] < launches[3] < launches[4]
    assert launches[5] == 0


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((129, 9, 20, 38), F32), ((2049, 17, 33), F32), pytest.param((1030 * 4096 + 5,), F64, marks=pytest.mark.long)],
    ids=str,
)  # fmt: skip
def test_many_tiles(simt: Library, context: Context, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Of which a sample is counted, with what is around each in the field (docs/format_v2.md, section 10)."""
    x = spline_kinds.layers(shape, dtype, (0,) if len(shape) == 4 else ())
    x[x.shape[0] // 2 :][:2] *= 50
    x.reshape(-1)[7::5003] = np.nan
    launches = launches_to_compress(simt, context, x, 1e-2, shares=(1, 1.5), predictor="spline")
    assert launches[1] > launches[0]


@pytest.mark.usefixtures("hidden")
def test_archives_that_grow_too_long(simt: Library, context: Context) -> None:
    """Found out after some of the batches: the field is stored as it is."""
    x = support.random_bits((40, 33, 40), F32)
    x[:3] = support.smooth((3, 33, 40), F32)
    assert cpu_archive(context, x, 1e-4, predictor="spline")[4] == 1
    launches = launches_to_compress(simt, context, x, 1e-4, shares=(1,), predictor="spline")
    assert launches[1] > launches[0]


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize(("field", "archive"), [(HOST, DEVICE), (DEVICE, HOST)])
@pytest.mark.parametrize("name", ["waves", "tiles_of_all_kinds", "inf_blocks"])
def test_places_to_decompress(simt: Library, context: Context, name: str, field: str, archive: str) -> None:
    """Only what lies on the host is taken in batches."""
    kind, shares = KINDS[name], (0.1, 0.3)
    options = {**kind.options, "predictor": "spline", "field": field, "archive": archive, "shares": shares}
    launches = launches_to_decompress(simt, context, kind.make((70, 40, 33), F32), kind.eb, kind.mode, **options)
    assert launches[1] > launches[0] > 0
    assert launches[2] > launches[0]


@pytest.mark.usefixtures("hidden")
def test_batches_of_one_layer_to_decompress(simt: Library, context: Context) -> None:
    """And with less memory than that, the CPU does it."""
    x = support.smooth((200, 33, 40), F32)
    launches = launches_to_decompress(simt, context, x, 1e-2, shares=(0.1, 0.5, 0.75, 0.9, 1.5), predictor="spline")
    assert 0 < launches[0] < launches[1] < launches[3] < launches[4]
    assert launches[5] == 0


@pytest.mark.usefixtures("hidden")
def test_an_archive_that_does_not_fit_beside_its_field(simt: Library, context: Context) -> None:
    """With too little memory for one layer's payloads, a call for a field on the device fails."""
    x = support.smooth((200, 33, 40), F32)
    data = cpu_archive(context, x, 1e-6, predictor="spline")
    with simt.memory(DEVICE, x.nbytes) as field, simt.memory(HOST, data) as archive:
        simt.set_memory_limit(simt.allocated + x.nbytes // 8)
        refused(Status.MEMORY, "cudaErrorMemoryAllocation", lambda: context.decompress_into(field, archive))
        simt.set_memory_limit()
        context.decompress_into(field, archive)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(40, 8, 7, 6), (70, 40, 33), (300, 200)], ids=str)
def test_infinities_of_coarser_lattices(
    simt: Library, context: Context, shape: tuple[int, ...], dtype: np.dtype
) -> None:
    """Those of the top alone, and of each lattice between it and the field. (Two lattices; and more.)"""
    for step in (2, 4, 8, 16):
        x = support.smooth(shape, dtype)
        x[tuple(slice(0, None, step) for _ in shape)] = np.inf
        x[tuple(slice(0, None, 2 * step) for _ in shape)] = -np.inf
        launches = launches_to_decompress(simt, context, x, 1e-3, fill=1e20, predictor="spline")
        assert max(launches[1:]) > launches[0]


def changed(archive: bytes, info: Info, stride: int) -> Iterator[bytes]:
    """Other lengths in the index, and other payloads, of every stride-th tile."""
    index = v2.index_at(archive, info.codebook_bytes)
    for t in range(0, info.n_tiles, stride):
        (length,) = struct.unpack_from("<H", archive, index + 2 * t)
        for n in (0, length ^ 1, length + 40, 0xFFFF):
            mutant = bytearray(archive)
            struct.pack_into("<H", mutant, index + 2 * t, n % 2**16)
            yield bytes(mutant)
            if t + 1 < info.n_tiles:  # with the same sum
                (following,) = struct.unpack_from("<H", archive, index + 2 * t + 2)
                struct.pack_into("<H", mutant, index + 2 * t + 2, (following + length - n) % 2**16)
                yield bytes(mutant)
    tiles = list(enumerate(v2.tiles(archive, info.codebook_bytes, info.n_tiles)))
    for t, (at, size) in tiles[::stride]:
        for k in [*support.integers(4, 0, max(size, 1), t).tolist(), 0, size - 2]:
            if size > 0:
                mutant = bytearray(archive)
                mutant[at + k] ^= 1 << (k + t) % 8
                yield bytes(mutant)
    yield archive[:-2] + bytes([archive[-2] ^ 1, archive[-1]])


@pytest.mark.parametrize(
    "stride", [9, pytest.param(3, marks=pytest.mark.full), pytest.param(1, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_damaged_archives(simt: Library, context: Context, dtype: np.dtype, stride: int) -> None:
    """Refused as without batches, or decoded to the same values."""
    x = support.smooth((24, 33, 40), dtype)
    x[::2, ::4, ::6] = np.inf
    x[10, :, :] = support.random_bits((33, 40), dtype)
    archive = cpu_archive(context, x, 1e-2, predictor="spline")
    info = context.info_of(archive)
    assert info.version == 2
    found = set()
    with simt.memory(HOST, archive) as source, simt.memory(HOST, x.nbytes) as field:
        context.release_scratch()
        simt.c.simt_reset_peak()
        before = simt.launches
        context.decompress_into(field, source, backend=CUDA)
        launches = simt.launches - before
        less = simt.c.simt_peak_bytes() - x.nbytes // 2
    for mutant in (archive, *changed(archive, info, stride)):
        sealed = bytearray(mutant)
        formats.seal(sealed, 2, info.codebook_bytes, info.n_tiles)
        for data in {bytes(sealed), mutant}:
            wanted, values = outcome(context, data, x.nbytes, HOST)
            context.release_scratch()
            simt.set_memory_limit(less)
            before = simt.launches
            with simt.memory(HOST, data) as source, simt.memory(HOST, x.nbytes) as field:
                failure = failure_of(lambda s=source, f=field: context.decompress_into(f, s, backend=CUDA))
                assert failure.status == wanted if failure is not None else field.get() == values
            simt.set_memory_limit()
            assert simt.report == ""
            assert mutant != archive or simt.launches - before > launches
            found.add(wanted)
    assert found == {Status.OK, Status.CORRUPT}


@pytest.mark.long
@pytest.mark.parametrize("direction", ["compress", "decompress"])
def test_every_call_may_fail(simt: Library, direction: str) -> None:
    x = support.smooth((4, 9, 9, 33), F64)
    x[0, ::2, ::2, ::8] = np.inf
    less = x.nbytes if direction == "compress" else x.nbytes // 2
    with Context(simt) as other:
        data = cpu_archive(other, x, 1e-3, predictor="spline")
        with (
            simt.memory(HOST, x) as field,
            simt.memory(HOST, data.ljust(x.nbytes + RAW_OVERHEAD)) as archive,
        ):
            before = simt.allocated
            simt.c.simt_reset_peak()
            if direction == "compress":
                other.compress_into(archive, field, x.dtype, x.shape, 1e-3, backend=CUDA, predictor="spline")
            else:
                other.decompress_into(field, archive, nbytes=len(data), backend=CUDA)
            most = simt.c.simt_peak_bytes() - before
        launches_to = launches_to_compress if direction == "compress" else launches_to_decompress
        launches = launches_to(simt, other, x, 1e-3, shares=(less / x.nbytes,), predictor="spline")
        assert launches[1] > launches[0]
    places = {"field": HOST, "archive": DEVICE if direction == "compress" else HOST}
    every_call_may_fail(simt, direction, places, x, 1e-3, ABS, free=most - less, predictor="spline")
