"""`compress_many` gives the archives of `compress`, and `decompress_many` the values of `decompress`."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import cusz_core as cusz
import support
from cusz_core import Parameters, _native
from cusz_core.errors import CorruptArchiveError, ParameterError, UnsupportedError
from field_kinds import KINDS
from support import F32, F64

SHAPES: dict[int, list[tuple[int, ...]]] = {
    1: [(1,), (5,), (513,), (4097,)],
    2: [(1, 1), (3, 40), (65, 70)],
    3: [(1, 16, 31), (8, 8, 8), (16, 16, 16), (33, 20, 9)],
    4: [(1, 2, 3, 4), (3, 9, 8, 17)],
}
PARAMETERS = [
    Parameters(1e-3),
    Parameters(1e-3, "rel", threads=3),
    Parameters(0.0, threads=2),
    Parameters(1e-2, "pw_rel", threads=2),
    Parameters(60.0, "psnr", threads=2),
    Parameters(1e-3, "rel", predictor="lorenzo", bins=1024, threads=4),
    Parameters(1e-3, "rel", predictor="spline", fill=1e20, threads=2),
    Parameters(1e-3, lossless="zstd", threads=2),
]


def blocks(dtype, ndim):
    """Fields of every kind, in different shapes, and an empty one."""
    shapes = SHAPES[ndim]
    made = [kind.make(shapes[i % len(shapes)], dtype) for i, kind in enumerate(KINDS.values())]
    return [*made, np.empty((0,) * ndim, dtype)]


def plain(values: Iterable[Any]) -> list[str]:
    """The values in a form in which NaN equals NaN."""
    return [repr(value.item() if isinstance(value, np.generic) else value) for value in values]


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("ndim", SHAPES)
def test_they_are_those_of_single_calls(dtype, ndim, parameters):
    fields = blocks(dtype, ndim)
    alone = [cusz.compress_described(x, parameters) for x in fields]
    room = np.empty(sum(cusz.max_archive_bytes(x.shape, x.dtype) for x in fields), np.uint8)
    for out in (None, room):
        made = cusz.compress_many_described(fields, parameters, out=out)
        assert bytes(made.archives) == b"".join(bytes(each.archive) for each in alone)
        for row, each in zip(made.rows, alone, strict=True):
            assert row["archive_bytes"] == len(each.archive)
            told = row["checksum"], row["outliers"], row["eb_abs"], _native.predictor_name(row["predictor"])
            assert plain(told) == plain(each[1:5])
            assert plain([row["min"], row["max"], row["values"]]) == plain(each.range)
    without = cusz.compress_many_described(fields, parameters, ranges=False)
    assert bytes(without.archives) == bytes(made.archives)
    assert np.isnan(without.rows["min"]).all()
    assert np.isnan(without.rows["max"]).all()
    assert not without.rows["values"].any()


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_any_number_of_threads_gives_them(threads):
    fields = [support.smooth((n, 17, 20), F32, seed=n) for n in range(1, 40)]
    archives = cusz.compress_many(fields, 1e-3, "rel", threads=threads)
    assert archives == [cusz.compress(x, 1e-3, "rel") for x in fields]


def test_few_large_ones():
    """With more threads than blocks, every block gets all threads."""
    fields = [support.smooth((70, 80, 90), F64, seed=n) for n in range(2)]
    assert cusz.compress_many(fields, 1e-3, threads=4) == [cusz.compress(x, 1e-3) for x in fields]


def test_none_at_all():
    assert cusz.compress_many([], 1e-3) == []
    assert len(cusz.compress_many_described([], Parameters(1e-3)).rows) == 0


def test_arrays_that_are_copied():
    x = support.smooth((20, 30, 40), F32)
    views = [x[::2], x.T, x[:, 3:9]]
    assert cusz.compress_many(views, 1e-3) == [cusz.compress(v, 1e-3) for v in views]


def test_scratch_of_all_threads_is_counted_and_given_back():
    fields = [support.smooth((16, 16, 16), F32, seed=n) for n in range(64)]
    cusz.release_scratch()
    cusz.compress_many(fields, 1e-3, threads=1)
    one = cusz.scratch_bytes()
    cusz.compress_many(fields, 1e-3, threads=4)
    assert cusz.scratch_bytes() > one
    cusz.release_scratch()
    assert cusz.scratch_bytes() == 0


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_first_that_fails_is_named(threads):
    """Blocks 20 and 30 of 40 are asked for a ratio that no bound gives; later calls work as usual."""
    fields = [support.smooth((40, 50), F32, seed=n) for n in range(40)]
    fields[20] = fields[30] = support.random_bits((3, 3), F32, 13)
    with pytest.raises(ParameterError, match=r"^block 20 of 40: "):
        cusz.compress_many(fields, 3.0, "ratio", threads=threads)
    good = fields[:20]
    assert cusz.compress_many(good, 1e-3, threads=threads) == [cusz.compress(x, 1e-3) for x in good]


def test_what_is_refused():
    x = support.smooth((8, 8), F32)
    with pytest.raises(ParameterError, match="one dtype and one number of dimensions"):
        cusz.compress_many([x, x.astype(np.float64)], 1e-3)
    with pytest.raises(ParameterError, match="one dtype and one number of dimensions"):
        cusz.compress_many([x, x[0]], 1e-3)
    with pytest.raises(UnsupportedError, match=r"^field 1 has dtype"):
        cusz.compress_many([x, x.astype(np.int32)], 1e-3)
    with pytest.raises(UnsupportedError, match=r"^field 1 is None"):
        cusz.compress_many([x, None], 1e-3)  # type: ignore[list-item]
    with pytest.raises(ParameterError, match="out is smaller"):
        cusz.compress_many([x, x], 1e-3, out=np.empty(2 * x.nbytes, np.uint8))
    both = np.empty(4 * x.nbytes, np.uint8)
    inside = both[: x.nbytes].view(np.float32).reshape(8, 8)
    inside[:] = 0
    with pytest.raises(ParameterError, match="out overlaps a field"):
        cusz.compress_many([x, inside], 1e-3, out=both)
    assert math.isfinite(cusz.inspect(cusz.compress_many([x], 1e-3)[0]).ratio)


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("ndim", SHAPES)
def test_values_are_those_of_single_calls(dtype, ndim, parameters):
    fields = blocks(dtype, ndim)
    archives = cusz.compress_many_described(fields, parameters)
    parts = np.split(np.frombuffer(archives.archives, np.uint8), np.cumsum(archives.rows["archive_bytes"])[:-1])
    alone = [cusz.decompress(part) for part in parts]
    for made in (
        cusz.decompress_many(parts, threads=parameters.threads),
        cusz.decompress_many([part.tobytes() for part in parts], out=[np.empty(x.shape, dtype) for x in fields]),
    ):
        assert all(map(support.same_bits, made, alone))


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_boxes_of_many(threads):
    """Parts of blocks, each to its place in a larger array, by any number of threads."""
    fields = [support.smooth((n, 17, 20), F32, seed=n) for n in range(3, 40)]
    archives = cusz.compress_many(fields, 1e-3, "rel")
    starts = [(n % 3, 5, n % 7) for n in range(len(fields))]
    whole, expected = np.zeros((len(fields), 4, 12, 26), F32), np.zeros((len(fields), 4, 12, 26), F32)
    for to, archive, start in zip(expected, archives, starts, strict=True):
        part = cusz.decompress_box(archive, start, (1, 12, 13))
        to[2:3, :, ::2] = part
    out = [to[2:3, :, ::2] for to in whole]
    made = cusz.decompress_many(archives, starts, out=out, threads=threads)
    assert all(a is b for a, b in zip(made, out, strict=True))
    assert support.same_bits(whole, expected)
    ends = cusz.decompress_many(archives, starts, threads=threads)
    assert all(
        support.same_bits(end, cusz.decompress_box(archive, start))
        for end, archive, start in zip(ends, archives, starts, strict=True)
    )


def test_few_large_archives():
    fields = [support.smooth((70, 80, 90), F64, seed=n) for n in range(2)]
    archives = cusz.compress_many(fields, 1e-3)
    assert all(map(support.same_bits, cusz.decompress_many(archives, threads=4), map(cusz.decompress, archives)))


def test_no_archives_at_all():
    assert cusz.decompress_many([]) == []


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_the_first_archive_that_fails_is_named(threads):
    fields = [support.smooth((40, 50), F32, seed=n) for n in range(40)]
    archives = [bytearray(archive) for archive in cusz.compress_many(fields, 1e-3)]
    archives[20][-1] ^= 1
    archives[30][-1] ^= 1
    with pytest.raises(CorruptArchiveError, match=r"^archive 20 of 40: .*checksum"):
        cusz.decompress_many(archives, threads=threads)
    good = archives[:20]
    assert all(map(support.same_bits, cusz.decompress_many(good, threads=threads), map(cusz.decompress, good)))


def refuse_many(error: type[Exception], match: str, *args: Any, **options: Any) -> None:
    with pytest.raises(error, match=match):
        cusz.decompress_many(*args, **options)


def test_what_is_refused_of_archives():
    x = support.smooth((8, 8), F32)
    archive, of_f64, flat = cusz.compress(x, 1e-3), cusz.compress(x.astype(F64), 1e-3), cusz.compress(x[0], 1e-3)
    two, out = [archive, archive], [np.empty_like(x), np.empty_like(x)]
    refuse_many(ParameterError, "one dtype and one number of dimensions", [archive, of_f64])
    refuse_many(ParameterError, "one dtype and one number of dimensions", [archive, flat])
    refuse_many(ParameterError, "starts has 1 items; there are 2", two, [(0, 0)])
    refuse_many(ParameterError, "out has 1 items; there are 2", two, out=out[:1])
    for starts in (None, [(0, 0), (0, 0)]):
        refuse_many(UnsupportedError, r"^archive 1 of 2: archive is None", [archive, None], starts, out=out)
        refuse_many(UnsupportedError, "^archive 1 of 2: out .*float", two, starts, out=[out[0], x.astype(np.int32)])
        refuse_many(ParameterError, r"^archive 1 of 2: .*strides", two, starts, out=[out[0], out[1][::-1]])
        read_only = np.empty_like(x)
        read_only.flags.writeable = False
        refuse_many(ParameterError, "^archive 1 of 2: out is read-only", two, starts, out=[out[0], read_only])
        memory = np.zeros(4 * x.nbytes, np.uint8)
        memory[: len(archive)] = np.frombuffer(archive, np.uint8)
        inside = memory[: x.nbytes].view(F32).reshape(8, 8)
        overlapping = [archive, memory[: len(archive)]]
        refuse_many(ParameterError, "^archive 1 of 2: out overlaps", overlapping, starts, out=[out[0], inside])
    refuse_many(ParameterError, "^archive 1 of 2: .*dimension", two, [(0, 0), (0, 1)], out=out)
    refuse_many(ParameterError, "^archive 1 of 2: .*dimension", two, [(0, 0), (0,)], out=out)
    refuse_many(ParameterError, "^archive 1 of 2: its field is of float64", [archive, of_f64], [(0, 0)] * 2, out=out)
    refuse_many(ParameterError, "^archive 1 of 2: start is", two, [(0, 0), (-1, 0)], out=out)
    refuse_many(UnsupportedError, "^archive 1 of 2: out", two, [(0, 0)] * 2, out=[out[0], None])
