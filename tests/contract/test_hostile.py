"""Archives crafted to deceive: whatever they contain, they are refused or decoded, and nothing else happens.

Their checksums are valid, so only the reader's own checks stand between them and its memory.
"""

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cusz_core as cusz
import format_v1 as v1
import formats
import hostile
import support
from cusz_core import backends

PROGRAM = Path(hostile.__file__)
MUTANTS, SPLINE_MUTANTS = 500, 300  # random mutants of each archive of version 1 and of version 2
ALL_CASES = [*hostile.CASES, *hostile.SPLINE_CASES]


@pytest.mark.parametrize(("version", "predictor", "coder"), [(1, 1, 1), (1, 0, 1), (1, 7, 0), (1, 0, 255)])
def test_a_codec_that_does_not_exist_is_refused_by_name(version, predictor, coder):
    """Version, predictor and coder do not combine freely."""
    x = support.smooth((24, 33, 40), support.F32)
    archive = bytearray(cusz.compress(x, eb=1e-3, predictor="lorenzo"))
    assert archive[4] == version
    archive[48:50] = predictor, coder
    text = f"no codec has format version {version}, predictor family {predictor} and entropy coder {coder}"
    for call in (cusz.inspect, cusz.check, cusz.decompress):
        with pytest.raises(cusz.CorruptArchiveError, match=text):
            call(bytes(archive))


@pytest.mark.parametrize("name", ALL_CASES)
def test_checksums_are_those_of_the_specification(name):
    archive = hostile.archive_of(name)
    assert cusz.inspect(archive).kind == ("raw" if name.startswith("raw") else "tiled")
    sealed = bytearray(archive)
    formats.seal(sealed, archive)
    assert sealed == archive


def run(names, seed, count, folder, instruction_set=""):
    """For each case: how many archives were decoded and refused, and a digest of all decoded values and messages."""
    progress = folder / "progress"
    command = [sys.executable, PROGRAM, seed, count, progress, *names]
    try:
        environment = os.environ | {"CUSZ_SIMD": instruction_set}
        result = support.run(command, status=None, timeout=600, env=environment)
    except subprocess.TimeoutExpired:
        pytest.fail(f"hangs at {progress.read_text().splitlines()[-1]}")
    last = progress.read_text().splitlines()[-1] if progress.exists() else "the start"
    assert result.returncode == 0, f"ended with {result.returncode} at {last}: {result.stderr[-2000:]}"
    lines = [line.split() for line in result.stdout.splitlines()]
    return {name: (int(decoded), int(refused), digest) for name, decoded, refused, digest in lines}


def run_all(folder, instruction_set):
    cases = run(hostile.CASES, 1, MUTANTS, folder, instruction_set)
    return cases | run(hostile.SPLINE_CASES, 1, SPLINE_MUTANTS, folder, instruction_set)


@pytest.fixture(scope="module")
def of_the_baseline(tmp_path_factory):
    return run_all(tmp_path_factory.mktemp("baseline"), "baseline")


def test_no_archive_harms_its_reader(of_the_baseline):
    assert list(of_the_baseline) == ALL_CASES
    for name, (decoded, refused, _) in of_the_baseline.items():
        assert refused > 100, name
        assert decoded > 0, name


@pytest.mark.long
@pytest.mark.parametrize("instruction_set", ["avx2", "avx512"])
def test_instruction_sets_agree_on_what_is_refused(instruction_set, of_the_baseline, tmp_path):
    assert run_all(tmp_path, instruction_set) == of_the_baseline


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3, 4])
@pytest.mark.parametrize("name", ALL_CASES)
def test_no_archive_harms_its_reader_at_length(name, seed, tmp_path):
    run([name], seed, 10000, tmp_path)


def test_shapes_beyond_the_archive_are_not_believed(dtype):
    """A header that announces a huge field must be refused before memory is allocated for it."""
    x = support.smooth((40, 50, 60), dtype)
    archive = cusz.compress(x, 1e-2, predictor="lorenzo")
    for shape in ((2**20, 2**20, 2**10), (40, 50, 2**40), (2**62, 1, 1), (2**32, 2**32, 0), (2**40, 1, 1)):
        mutant = bytearray(archive)
        for axis, extent in enumerate(shape):
            struct.pack_into("<Q", mutant, formats.SHAPE_AT + 8 * axis, extent)
        formats.seal(mutant, archive)
        for read in (cusz.inspect, cusz.check, cusz.decompress):
            with pytest.raises((cusz.CorruptArchiveError, cusz.UnsupportedError)):
                read(mutant)


@pytest.mark.skipif("zstd" not in backends.lossless_stages(), reason="this build has no zstd stage")
def test_a_body_that_zstd_cannot_have_packed_is_refused():
    """Otherwise a few bytes could make the reader allocate any amount of memory."""
    original = cusz.compress(np.zeros((2048, 2048), np.float32), 1e-3, lossless="zstd", predictor="lorenzo")
    archive = bytearray(original)
    assert cusz.inspect(archive).lossless == "zstd"
    (stored,) = struct.unpack_from("<Q", archive, v1.STORED_BYTES_AT)

    def declare(tiles):  # a field of this many tiles, and a body to match
        struct.pack_into("<QQ", archive, formats.SHAPE_AT, 64 * tiles, 64)
        struct.pack_into("<Q", archive, v1.BODY_BYTES_AT, 6 * tiles)
        formats.seal(archive, original)

    most = (32768 * (stored + 1) - 1) // 6 // 2 * 2
    declare(most)
    assert cusz.inspect(archive).tiles == most
    declare(most + 2)
    with pytest.raises(cusz.CorruptArchiveError, match=f"{stored} stored bytes for a body of {6 * (most + 2)}"):
        cusz.inspect(archive)
