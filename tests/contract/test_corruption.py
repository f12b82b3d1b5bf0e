"""A damaged, truncated or foreign archive gives a typed error: never a crash, a hang or wrong data."""

import numpy as np
import pytest

import cusz_core as cusz
import formats
import hostile
import support
from support import F32, F64

DAMAGE = (cusz.CorruptArchiveError, cusz.ArchiveTooNewError, cusz.UnsupportedError)


def small_fields():
    """Fields whose small archives together have every part: masks, fine masks, second-order Lorenzo, missing values,
    outliers of both kinds, several tiles."""
    steps = support.smooth((4500,), F64)
    steps[1000:1010] += 1e5
    z, y, x = (i * (i - n) for i, n in zip(np.indices((9, 17, 33)), (9, 17, 33), strict=True))
    ripples = (z * y * x).astype(F64) / 16
    flat = np.full((9, 17, 33), 2.5, F32)
    pyramid = support.smooth((9, 10, 14), F32)
    pyramid.reshape(-1)[[3, 70, 200, 300]] = [np.nan, np.inf, 1e30, 300]
    pyramid.reshape(-1)[800:830] = 1e20
    line = support.smooth((600,), F64)
    line[100:110] *= 1e4
    return {
        "noisy": (hostile.noisy(F32), 1e-1, {"fill": 1e20}),
        "dead": (hostile.mostly_zero(F64), 1e-1, {}),
        "steps": (steps, 3e-1, {"bins": 128}),
        "fine": (hostile.sparse(F32), 1e-1, {}),
        "ripples": (ripples, 1e-1, {}),
        "flat": (flat, 1e-3, {}),
        "raw": (np.arange(20, dtype=F32), 0.0, {}),
        "empty": (np.zeros((3, 0), F64), 0.0, {}),
        "pyramid": (pyramid, 1e-1, {"fill": 1e20, "predictor": "spline"}),
        "line": (line, 1e-2, {"predictor": "spline"}),
        "logarithms": (support.many_magnitudes((9, 14, 17), F32), 1e-2, {"mode": "pw_rel", "predictor": "spline"}),
        **({"zstd": (hostile.waves(F32), 1e-3, {"lossless": "zstd", "predictor": "auto"})} if support.HAS_ZSTD else {}),
    }


FIELDS = small_fields()


def archive_of(name):
    x, eb, options = FIELDS[name]
    archive = cusz.compress(x, eb, **{"predictor": "lorenzo", **options})
    assert len(archive) < 8000
    assert cusz.inspect(archive).kind == ("raw" if name in ("raw", "empty") else "tiled")
    return archive


def must_fail(damaged):
    for read in (cusz.decompress, cusz.check):
        try:
            read(damaged, threads=1)
        except DAMAGE:
            continue
        pytest.fail(f"{read.__name__} took a damaged archive for a good one")


@pytest.mark.parametrize("name", FIELDS)
def test_truncated_anywhere(name):
    archive = archive_of(name)
    for length in range(len(archive)):
        cut = archive[:length]
        for read in (cusz.inspect, cusz.decompress, cusz.check):
            with pytest.raises(cusz.CorruptArchiveError):
                read(cut)


@pytest.mark.parametrize("name", FIELDS)
def test_bytes_behind_the_end(name):
    archive = archive_of(name)
    for tail in (b"\0", b"\0\0\0\0", archive[: formats.HEADER_BYTES], archive):
        for read in (cusz.inspect, cusz.decompress, cusz.check):
            with pytest.raises(cusz.CorruptArchiveError):
                read(archive + tail)


@pytest.mark.parametrize("name", FIELDS)
def test_every_flipped_bit(name):
    archive = archive_of(name)
    for bit in range(8 * len(archive)):
        must_fail(support.flipped(archive, bit))


@pytest.mark.parametrize("name", FIELDS)
def test_every_byte_lost_or_doubled(name):
    archive = archive_of(name)
    for position in range(0, len(archive), 3):
        must_fail(archive[:position] + archive[position + 1 :])
        must_fail(archive[:position] + archive[position : position + 1] + archive[position:])


@pytest.mark.parametrize("name", FIELDS)
def test_blocks_overwritten(name):
    archive = archive_of(name)
    for seed, position in enumerate(range(0, len(archive), 7)):
        for length in (4, 16, 100):
            noise = support.hashes(length, seed).astype(np.uint8).tobytes()
            for block in (noise, bytes(length), b"\xff" * length):
                damaged = (archive[:position] + block + archive[position + length :])[: len(archive)]
                if damaged != archive:
                    must_fail(damaged)


def test_two_archives_mixed_up():
    a = cusz.compress(support.smooth((4, 10, 34), F32, 1), 1e-2)
    b = cusz.compress(support.smooth((4, 10, 34), F32, 2), 1e-2)
    assert a != b
    for cut in range(8, min(len(a), len(b)), 8):
        if a[:cut] != b[:cut] and a[cut:] != b[cut:]:
            must_fail(a[:cut] + b[cut:])


def test_noise_is_not_an_archive(dtype):
    for seed in range(300):
        noise = support.hashes(20, seed).tobytes()[: 7 * seed % 160]
        must_fail(noise)
        must_fail(b"cuSZ" + noise)
    must_fail(support.smooth((100,), dtype).tobytes())


@pytest.mark.parametrize("name", [n for n in FIELDS if n != "empty"])
def test_a_failed_call_leaves_no_trace(name):
    archive = archive_of(name)
    wanted = cusz.decompress(archive)
    damaged = bytearray(archive)
    damaged[-1] ^= 0x10
    for _ in range(3):
        must_fail(damaged)
        assert support.same_bits(cusz.decompress(archive), wanted)


@pytest.mark.parametrize(("version", "error"), [(0, cusz.UnsupportedError), (200, cusz.ArchiveTooNewError)])
def test_versions_before_the_format_was_settled_and_newer_ones_are_refused_by_name(version, error):
    archive = bytearray(archive_of("noisy"))
    archive[formats.VERSION_AT] = version
    for read in (cusz.inspect, cusz.decompress, cusz.check):
        with pytest.raises(error, match=f"version {version}"):
            read(archive)
